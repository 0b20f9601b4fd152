"""Replicates whose rows choose their clusters anew, and what ArviZ's predictive checks make of them."""

import arviz as az
import exact
import numpy as np
import pymc as pm
import pytest
from drawn import results
from scipy.sparse import csr_array
from scipy.stats import kstest
from scipy.stats import t as student_t
from slowly import rest_slow

import pymc_dpgmm as dp

pytestmark = pytest.mark.interpreted

NIG = {"mu": 0.3, "kappa": 0.5, "a": 2.0, "b": 0.6}
ROWS = np.array([0.1, 1.4, 1.2, -2.0, 0.9, -1.5])
LABELS = np.array([0, 1, 1, 2, 1, 0])
N_DRAWS = 4_000


def predictive(rows, mu=0.3, kappa=0.5, a=2.0, b=0.6):
    """The predictive distribution of one more row of a cluster."""
    n = len(rows)
    mean = (kappa * mu + np.sum(rows)) / (kappa + n)
    b = b + 0.5 * (kappa * mu**2 + np.sum(rows**2) - (kappa + n) * mean**2)
    return student_t(2 * (a + n / 2), mean, np.sqrt(b * (kappa + n + 1) / ((a + n / 2) * (kappa + n))))


def clusters_of(rows, labels):
    return [predictive(rows[labels == k]) for k in range(labels.max() + 1)] + [predictive(rows[:0])]


def assert_drawn_from(found, weights, laws):
    def cdf(x):
        return np.sum([w * law.cdf(x) for w, law in zip(weights, laws, strict=True)], axis=0)

    assert kstest(found, cdf).pvalue > 1e-4


def replicated(model, draws, name="y", *, with_model=False):
    idata, given = results(model, draws), model if with_model else None
    found = dp.sample_replicates(idata, name, extend_inferencedata=False, random_seed=1, model=given)
    return found["posterior_predictive"]


def by_draw(array):
    return array.to_numpy().reshape(-1, *array.shape[2:])


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
def test_checks_pass_for_the_model_that_drew_the_data():
    """Of overlapping clusters: rows drawn from the clusters that were inferred from them look too regular."""
    base, n = dp.NormalInverseGamma(0.0, 0.3, 3.0, 1.0), 400
    with pm.Model():
        prior = dp.CollapsedMixture("y", dp.CRP("labels", 3.0, n), base, shape=(n,))
        data = pm.draw(prior, random_seed=1)
    with pm.Model() as model:
        dp.DPMixture("y", 3.0, base, observed=data)
        idata = pm.sample(500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False)
    dp.log_likelihood(idata, "y", random_seed=1)

    def p_values():
        own = (by_draw(idata["posterior_predictive"]["y"]) < data).mean(axis=0)
        left_out = az.loo_pit(idata, var_names="y", random_state=1)["y"].to_numpy()
        return [kstest(found, "uniform").pvalue for found in (own, left_out)]

    dp.sample_replicates(idata, "y", random_seed=1)
    assert min(p_values()) > 0.01
    del idata["posterior_predictive"]
    pm.sample_posterior_predictive(idata, model=model, extend_inferencedata=True, progressbar=False, random_seed=1)
    assert max(p_values()) < 1e-4


@pytest.mark.filterwarnings("ignore:Estimated shape parameter")
@pytest.mark.parametrize("first", rest_slow(["log_likelihood", "sample_replicates"], 0))
def test_leave_one_out_pit_agrees_with_enumeration(first):
    """A row's distribution function given the other rows, by sums over all partitions of these."""
    base, alpha = {"mu": 0.2, "kappa": 0.3, "a": 3.0, "b": 0.5}, 0.7
    rows = np.array([0.1, 2.9, -0.3, 0.4, 2.1, -0.6])
    everything, smaller = exact.partitions(6), exact.partitions(5)
    log_joint = exact.log_likelihoods(everything, rows[:, None], exact.nig_log_marginal, **base)
    p = exact.normalized(log_joint + [exact.log_eppf(labels, alpha) for labels in everything])
    wanted = []
    for i in range(6):
        others = np.delete(rows, i)
        log_p = exact.log_likelihoods(smaller, others[:, None], exact.nig_log_marginal, **base)
        weights = exact.normalized(log_p + [exact.log_eppf(labels, alpha) for labels in smaller])
        below = 0.0
        for labels, weight in zip(smaller, weights, strict=True):
            laws = [predictive(others[labels == k], **base) for k in range(labels.max() + 1)]
            joins = np.append(np.bincount(labels), alpha) / (5 + alpha)
            cdfs = [law.cdf(rows[i]) for law in [*laws, predictive(others[:0], **base)]]
            below += weight * np.dot(joins, cdfs)
        wanted.append(below)
    with pm.Model() as model:
        dp.DPMixture("y", alpha, dp.NormalInverseGamma(**base), observed=rows)
    drawn = everything[np.random.default_rng(2).choice(len(p), size=12_000, p=p)]
    idata = results(model, {"y_labels": drawn}, n_chains=4)
    second = {"log_likelihood": "sample_replicates", "sample_replicates": "log_likelihood"}[first]
    getattr(dp, first)(idata, "y", random_seed=1)
    getattr(dp, second)(idata, "y", random_seed=2)
    found = az.loo_pit(idata, var_names="y")["y"].to_numpy()
    np.testing.assert_allclose(found, wanted, atol=0.02)


def test_weights_and_parameters_are_those_of_the_log_likelihood():
    """Also where draws are selected in between."""
    with pm.Model() as model:
        dp.DPMixture("y", 0.8, dp.NormalInverseGamma(**NIG), observed=ROWS)
    idata = results(model, {"y_labels": np.tile(LABELS, (40, 1))})
    dp.log_likelihood(idata, "y", random_seed=5)
    few = idata.isel(draw=slice(3, None, 4))
    dp.sample_replicates(few, "y", random_seed=5)
    del few["log_likelihood"]
    dp.log_likelihood(few, "y", random_seed=9)
    kept = idata["log_likelihood"]["y"].isel(draw=slice(3, None, 4))
    np.testing.assert_array_equal(few["log_likelihood"]["y"], kept)
    other = dp.log_likelihood(idata, "y", random_seed=9, extend_inferencedata=False)["log_likelihood"]["y"]
    assert not np.array_equal(other, idata["log_likelihood"]["y"])


@pytest.mark.parametrize(("alpha", "discount"), rest_slow([(0.8, 0.4), (0.8, 0.0)]))
def test_rows_choose_their_clusters_by_the_weights(alpha, discount):
    """Replicated rows have the clusters' weights as frequencies."""
    with pm.Model() as model:
        dp.PYMixture("y", alpha, discount, dp.NormalInverseGamma(**NIG), observed=ROWS)
    found = by_draw(replicated(model, {"y_labels": np.tile(LABELS, (N_DRAWS, 1))})["y"])
    weights = np.append(np.bincount(LABELS) - discount, alpha + 3 * discount) / (6 + alpha)
    for i in range(6):
        assert_drawn_from(found[:, i], weights, clusters_of(ROWS, LABELS))


def test_units_choose_a_cluster_together():
    rows = np.array([-9.0, -9.1, 9.0, 9.2, -8.8, -9.1])
    with pm.Model() as model:
        dp.DPMixture("y", 1e-6, dp.NormalInverseGamma(**NIG), observed=rows, unit=[0, 0, 1, 1, 2, 2])
    found = by_draw(replicated(model, {"y_labels": np.tile([0, 1, 0], (N_DRAWS, 1))})["y"]) > 0.0
    for i in (0, 2, 4):
        assert np.mean(found[:, i] == found[:, i + 1]) > 0.98
        assert abs(found[:, i].mean() - 1 / 3) < 4.5 * np.sqrt(2 / 9 / N_DRAWS) + 0.01
    # Given weights units are independent; the weights are not given, but for three units nearly say nothing.
    assert np.mean(found[:, 0] == found[:, 2]) < 0.75


def test_groups_have_weights_of_their_own():
    rows, group = np.array([-9.0, -9.1, -8.9, 9.2, 9.0]), np.array([0, 0, 0, 1, 1])
    with pm.Model() as model:
        dp.FiniteMixture("y", 1.0, 2, dp.NormalInverseGamma(**NIG), observed=rows, group=group)
    labels = np.array([0, 0, 1, 1, 1])
    found = by_draw(replicated(model, {"y_labels": np.tile(labels, (N_DRAWS, 1))})["y"])
    laws = [predictive(rows[labels == k]) for k in range(2)]
    for j, n_first in ((0, 2), (1, 0)):
        size = np.sum(group == j)
        weights = np.array([n_first + 0.5, size - n_first + 0.5]) / (size + 1.0)
        for i in np.flatnonzero(group == j):
            assert_drawn_from(found[:, i], weights, laws)


def test_views_of_a_row_have_the_same_cluster():
    a, b = np.array([-9.0, -9.1, 9.0, 9.2]), np.array([20.0, 20.4, -20.0, -20.2])
    with pm.Model() as model:
        views = {view: dp.NormalInverseGamma(0.0, 0.01, 4.0, 0.6) for view in "ab"}
        dp.DPMixture("y", 1e-6, views, observed={"a": a, "b": b})
    draws = {"y_labels": np.tile([0, 0, 1, 1], (N_DRAWS, 1))}
    together = replicated(model, draws, "y_labels")
    up, down = by_draw(together["y_a"]) > 0.0, by_draw(together["y_b"]) < 0.0
    assert np.mean(up == down) > 0.98
    assert np.all(np.abs(up.mean(axis=0) - 0.5) < 0.05)
    # Of one view they are drawn given the other, which tells the cluster here.
    alone = replicated(model, draws, "y_a")
    assert list(alone.data_vars) == ["y_a"]
    assert np.all(np.mean((by_draw(alone["y_a"]) > 0.0) == (a > 0.0), axis=0) > 0.98)


def test_offsets_and_covariates_are_those_of_the_row():
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
    base = {"mu": np.array([0.5]), "precision": np.array([[0.7]]), "a": 2.0, "b": 0.6}
    shifts = np.tile([-40.0, 40.0], N_DRAWS // 2)
    with pm.Model() as model:
        shift = pm.Normal("shift", 0.0, 30.0)
        regression = dp.LinearRegression(covariates=x[:, None], **base)
        dp.DPMixture("y", 0.8, regression, observed=ROWS, offset=shift * np.arange(6.0))
    draws = {"y_labels": np.zeros((N_DRAWS, 6), dtype=int), "shift": shifts}
    found = by_draw(replicated(model, draws, with_model=True)["y"])
    for shift in (-40.0, 40.0):
        own = shifts == shift
        rest = ROWS - shift * np.arange(6.0)
        precision = 0.7 + x @ x
        slope = (0.7 * 0.5 + x @ rest) / precision
        b = 0.6 + 0.5 * (0.7 * 0.25 + rest @ rest - precision * slope**2)
        for i in range(6):
            law = student_t(10.0, x[i] * slope, np.sqrt(b / 5.0 * (1 + x[i] ** 2 / precision)))
            new = student_t(4.0, x[i] * 0.5, np.sqrt(0.3 * (1 + x[i] ** 2 / 0.7)))
            assert_drawn_from(found[own, i] - shift * i, np.array([6.0, 0.8]) / 6.8, [law, new])


@pytest.mark.parametrize("is_sparse", [False, True])
def test_rows_of_counts_keep_their_totals(is_sparse):
    counts = np.array([[5.0, 0, 1], [4, 1, 0], [0, 2, 9], [1, 0, 8]])
    with pm.Model() as model:
        observed = csr_array(counts) if is_sparse else counts
        dp.DPMixture("y", 1.0, dp.DirichletMultinomial([0.5, 1.0, 2.0]), observed=observed)
    found = by_draw(replicated(model, {"y_labels": np.tile([0, 0, 1, 1], (N_DRAWS, 1))})["y"])
    np.testing.assert_array_equal(found.sum(axis=2), np.tile(counts.sum(axis=1), (N_DRAWS, 1)))
    a = np.array([0.5, 1.0, 2.0])
    means = [(a + own) / np.sum(a + own) for own in (counts[:2].sum(axis=0), counts[2:].sum(axis=0), 0.0)]
    wanted = np.array([2.0, 2.0, 1.0]) / 5.0 @ np.array(means) * counts.sum(axis=1, keepdims=True)
    assert np.all(np.abs(found.mean(axis=0) - wanted) < 4.5 * found.std(axis=0) / np.sqrt(N_DRAWS))


def models():
    rng = np.random.default_rng(3)
    x, nig = rng.normal(size=(6, 2)), dp.NormalInverseGamma(**NIG)
    labels = {"y_labels": np.tile(LABELS, (8, 1))}
    with pm.Model(coords={"obs": list("abcdef"), "feature": ["u", "v"]}) as named:
        dp.DPMixture("y", 1.0, observed=x, dims=("obs", "feature"))
    with pm.Model() as views:
        dp.DPMixture("y", 1.0, {"a": nig, "b": dp.BetaBernoulli(1.0, 1.0)}, observed={"a": x[:, 0], "b": x > 0})
    with pm.Model() as groups:
        dp.HDPMixture("y", 1.0, 1.0, nig, group=[0, 0, 0, 1, 1, 1], observed=x[:, 0])
    with pm.Model() as units:
        dp.DPMixture("y", 1.0, nig, observed=x[:, 0], unit=[0, 0, 1, 1, 2, 2])
    with pm.Model() as gaps:
        base = dp.NormalInverseWishart([0.0, 0.0], 1.0, 4.0, np.eye(2))
        dp.DPMixture("y", 1.0, base, observed=np.where(np.arange(12).reshape(6, 2) == 5, np.nan, x))
    with pm.Model() as process:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=6)
        pm.Normal("y", theta, 1.0, observed=x[:, 0])
    openers = {"y_openers": np.tile([1, 1, 0, 1, 0, 1], (8, 1)).astype("int8")}
    atoms = {"theta_labels": labels["y_labels"], "theta": np.tile(np.arange(3.0)[LABELS], (8, 1))}
    return {
        "dims": (named, labels, "y"),
        "views": (views, labels, "y"),
        "groups": (groups, labels | openers, "y"),
        "units": (units, {"y_labels": np.tile([0, 1, 0], (8, 1))}, "y"),
        "missing": (gaps, labels | {"y_missing": np.full((8, 1), 0.3)}, "y"),
        "process": (process, atoms, "theta"),
    }


@pytest.mark.parametrize("kind", ["dims", "views", "groups", "units", "missing", "process"])
def test_names_are_those_of_pymc(kind):
    model, draws, name = models()[kind]
    idata = results(model, draws)
    pm.sample_posterior_predictive(idata, model=model, extend_inferencedata=True, progressbar=False, random_seed=1)
    wanted = idata["posterior_predictive"].to_dataset()
    own = dp.sample_replicates(idata, name, random_seed=1, model=model)["posterior_predictive"]
    assert list(own.data_vars) == list(wanted.data_vars)
    for variable, found in own.data_vars.items():
        assert found.dims == wanted[variable].dims
        assert (found.shape, found.dtype) == (wanted[variable].shape, wanted[variable].dtype)
        assert set(found.coords) == set(wanted[variable].coords)
        assert all(found[dim].equals(wanted[variable][dim]) for dim in found.coords)
        assert not np.array_equal(found, wanted[variable])


def test_parameters_under_a_process_are_drawn_given_those_of_other_rows():
    """Each of the others', or a new one from the base: never a row's own, if no other row has it."""
    labels = np.array([0, 0, 0, 1])
    atoms = np.array([-30.0, 30.0])[labels]
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 0.5, pm.Normal.dist(0.0, 0.5), shape=4)
        pm.Normal("y", theta, 1.0, observed=atoms)
    draws = {"theta_labels": np.tile(labels, (N_DRAWS, 1)), "theta": np.tile(atoms, (N_DRAWS, 1))}
    found = by_draw(replicated(model, draws, "theta", with_model=True)["y"])
    shares = np.stack([(found < -15.0).mean(axis=0), (np.abs(found) < 15.0).mean(axis=0)])
    wanted = np.array([[2.0, 2.0, 2.0, 3.0], [0.5, 0.5, 0.5, 0.5]]) / 3.5
    assert np.all(np.abs(shares - wanted) < 4.5 * np.sqrt(wanted * (1 - wanted) / N_DRAWS))
    assert not np.any(found[:, 3] > 15.0)
    with pytest.raises(ValueError, match=r"sample_replicates for a dp.DirichletProcess needs its base"):
        replicated(model, draws, "theta")


def test_what_cannot_be_replicated_is_refused():
    labels = {"y_labels": np.zeros((8, 6), dtype=int)}
    with pm.Model() as known:
        dp.DPMixture("y", 1.0, observed=ROWS, known_labels=[0, -1, -1, -1, -1, -1])
    with pytest.raises(ValueError, match=r"known_labels or must_link, .* pm.sample_posterior_predictive draws"):
        replicated(known, labels)
    with pm.Model() as latent:
        y = dp.DPMixture("y", 1.0, dp.NormalInverseGamma(**NIG), shape=(6,))
        pm.Poisson("counts", pm.math.exp(y), observed=[1, 2, 0, 4, 1, 0])
    with pytest.raises(ValueError, match=r"y is latent, .*dp.sample_new_rows for new effects"):
        replicated(latent, labels | {"y": np.zeros((8, 6))})
    with pm.Model() as process:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=6)
        rate = pm.Normal("rate", theta, 1.0)
        pm.Normal("y", rate, 1.0, observed=ROWS)
    draws = {"theta_labels": labels["y_labels"], "theta": np.zeros((8, 6)), "rate": np.zeros((8, 6))}
    with pytest.raises(ValueError, match="rate depends on the parameters and is not observed"):
        replicated(process, draws, "theta", with_model=True)
