"""Views that count with a power: exact draws of the labels, and what is predicted given them."""

import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import sampled
from drawn import results
from scipy import stats
from scipy.special import gammaln, logsumexp
from slowly import rest_slow

import pymc_dpgmm as dp

X = np.array([[-0.8, 0.2], [-1.1, 0.6], [0.4, -0.4], [1.0, 0.1], [1.3, -1.2]])
Y = np.array([-1.2, -0.5, 0.1, 0.9, 1.6])
TABLE = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
ALPHA, POWER = 1.2, 0.3
OF_X = {"mu": 0.1, "kappa": 0.4, "nu": 4.0, "psi": np.eye(2)}
OF_Y = {"mu": 0.0, "kappa": 0.5, "a": 2.0, "b": 0.7}
PARTITIONS = exact.partitions(len(Y))


def table(power=POWER, x=None, rows=TABLE):
    views = {
        "x": (["a", "b"], dp.NormalInverseWishart(**OF_X) if x is None else x),
        "y": ("y", dp.NormalInverseGamma(**OF_Y)),
    }
    return dp.DPMixture("m", ALPHA, views, observed=rows, power={"x": power})


def log_likelihoods(power):
    of_x = exact.log_likelihoods(PARTITIONS, X, exact.LOG_MARGINALS["NormalInverseWishart"], **of_columns(OF_X, 2))
    of_y = exact.log_likelihoods(PARTITIONS, Y[:, None], exact.LOG_MARGINALS["NormalInverseGamma"], **OF_Y)
    return power * of_x + of_y


def of_columns(params, d):
    return params | {"mu": np.full(d, params["mu"])}


def posterior(power):
    log_p = log_likelihoods(power) + np.array([exact.log_eppf(labels, ALPHA) for labels in PARTITIONS])
    return np.exp(log_p - logsumexp(log_p))


@pytest.mark.parametrize("power", [0.3, 2.5])
def test_the_density_of_a_model_has_the_power(power):
    with pm.Model() as model:
        table(power)
    log_p = model.compile_logp()
    point = model.initial_point()
    found = [log_p(point | {"m_labels": labels}) for labels in PARTITIONS]
    expected = log_likelihoods(power) + [exact.log_eppf(labels, ALPHA) for labels in PARTITIONS]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def check(n_draws, **options):
    with pm.Model() as model:
        table()
    found = sampled.sample(model, n_draws, tune=200, chains=2, cores=1, random_seed=1, **options).posterior
    exact.assert_matches(exact.codes(found["m_labels"].to_numpy()), PARTITIONS, posterior(POWER))


MOVES = {
    "by default": {},
    "scans": {"dpmixture": {"split_merge": {"sequential": 0, "random": 0}}},
    "sequential": {"dpmixture": {"gibbs": {"n_scans": 0}, "split_merge": {"sequential": 3, "random": 0}}},
    "random": {"dpmixture": {"gibbs": {"n_scans": 0}, "split_merge": {"sequential": 0, "random": 3}}},
}


@pytest.mark.parametrize("moves", rest_slow(MOVES, 2))
def test_labels_follow_the_posterior(moves):
    """Scans, and splits and merges, against enumeration of 52 partitions."""
    check(5_000, **MOVES[moves])


@pytest.mark.slow
@pytest.mark.parametrize("moves", MOVES)
def test_many_draws_follow_the_posterior(moves):
    """The same with many times the draws."""
    check(75_000, **MOVES[moves])


def test_another_power_is_another_posterior():
    """The bound of the tests above tells powers apart."""
    with pytest.raises(AssertionError):
        exact.assert_matches(
            np.random.default_rng(0).choice(len(PARTITIONS), 10_000, p=posterior(1.0))[None],
            np.arange(len(PARTITIONS))[:, None],
            posterior(POWER),
        )


def log_evidence_of_scales(rows, b):
    """Of a normal-inverse-gamma cluster of one column, for many b: Murphy (2007), eq. 203."""
    n, a, kappa, mean = len(rows), OF_Y["a"], OF_Y["kappa"], rows.mean()
    after = b + 0.5 * np.sum((rows - mean) ** 2) + 0.5 * kappa * n / (kappa + n) * (mean - OF_Y["mu"]) ** 2
    constant = gammaln(a + n / 2) - gammaln(a) + 0.5 * np.log(kappa / (kappa + n)) - 0.5 * n * np.log(2.0 * np.pi)
    return constant + a * np.log(b) - (a + n / 2) * np.log(after)


def test_hyperparameters_of_the_view_follow_the_posterior():
    """A random scale of the view with the power, and its labels, against enumeration with quadrature."""
    log_b = np.linspace(-4.5, 2.5, 141)
    log_prior = stats.gamma.logpdf(np.exp(log_b), 2.0, scale=1.0 / 3.0) + log_b
    of_y = exact.log_likelihoods(PARTITIONS, Y[:, None], exact.LOG_MARGINALS["NormalInverseGamma"], **OF_Y)
    log_p = []
    for labels, given_y in zip(PARTITIONS, of_y, strict=True):
        clusters = [X[labels == k, 0] for k in range(labels.max() + 1)]
        of_x = sum(log_evidence_of_scales(own, np.exp(log_b)) for own in clusters)
        log_p.append(exact.log_eppf(labels, ALPHA) + given_y + POWER * of_x + log_prior)
    p = np.exp(np.array(log_p) - logsumexp(log_p))
    with pm.Model() as model:
        views = {
            "x": ("a", dp.NormalInverseGamma(**OF_Y | {"b": pm.Gamma("b", 2.0, 3.0)})),
            "y": ("y", dp.NormalInverseGamma(**OF_Y)),
        }
        dp.DPMixture("m", ALPHA, views, observed=TABLE, power={"x": POWER})
    found = sampled.sample(model, 6_000, tune=300, chains=2, cores=1, random_seed=2).posterior
    exact.assert_matches(exact.codes(found["m_labels"].to_numpy()), PARTITIONS, p.sum(axis=1))
    sampled.assert_mean_matches(np.log(found["b"].to_numpy()), p.sum(axis=0) @ log_b)


def test_a_learnt_scale_is_drawn_by_slices():
    """Its exact draw is for evidence as it is."""
    with pm.Model() as model:
        table(x=dp.NormalInverseWishart)
    step = pm.sampling.mcmc.assign_step_methods(model)[1]
    made = pm.sampling.mcmc.instantiate_steppers(model, [], step, compile_kwargs={})
    (step,) = made if isinstance(made, list) else [made]
    assert [type(group).__name__ for group in step.hyperparameters] == ["Hyperparameters"]


LABELS = np.array([[0, 0, 1, 1, 1], [0, 0, 0, 1, 2]])


SEATS = [np.array([*np.bincount(labels), ALPHA]) / (len(Y) + ALPHA) for labels in LABELS]


@pytest.fixture(scope="module")
def fitted():
    with pm.Model() as model:
        table()
    return results(model, {"m_labels": LABELS}, n_chains=1)


def cluster_weights(row):
    """Probabilities of each cluster, and a new one, given x, up to the density of x, in both draws."""
    log_x = exact.LOG_MARGINALS["NormalInverseWishart"]
    found = []
    for labels, seats in zip(LABELS, SEATS, strict=True):
        members = [X[labels == k] for k in range(labels.max() + 1)] + [X[:0]]
        ratio = [log_x(np.vstack([own, row]), **of_columns(OF_X, 2)) for own in members]
        ratio -= np.array([log_x(own, **of_columns(OF_X, 2)) if len(own) else 0.0 for own in members])
        found.append(np.log(seats) + POWER * ratio)
    return found


def test_predictions_weigh_clusters_by_the_power(fitted):
    """The mean of y given x, and its density, against formulas written out."""
    row = np.array([0.7, -0.3])
    log_weights = cluster_weights(row)
    total = logsumexp(np.concatenate(log_weights))
    mean = density = 0.0
    log_y = exact.LOG_MARGINALS["NormalInverseGamma"]
    for labels, log_weight in zip(LABELS, log_weights, strict=True):
        for k, weight in enumerate(np.exp(log_weight - total)):
            own = Y[labels == k]
            kappa = OF_Y["kappa"]
            mean += weight * own.sum() / (kappa + len(own))
            before = log_y(own[:, None], **OF_Y) if len(own) else 0.0
            density += weight * np.exp(log_y(np.append(own, 0.4)[:, None], **OF_Y) - before)
    new = pd.DataFrame([row], columns=["a", "b"])
    found = dp.predict(fitted, "m", new, of="y", random_seed=1)
    np.testing.assert_allclose(found["mean"], mean, rtol=1e-9)
    complete = dp.log_density(fitted, "m", new.assign(y=0.4))
    np.testing.assert_allclose(complete["row"], np.log(density), rtol=1e-9)
    np.testing.assert_allclose(complete["entry"].sel(column="y"), np.log(density), rtol=1e-9)
    assert complete["column"].to_numpy().tolist() == ["y"]


def test_bands_weigh_clusters_by_the_power(fitted):
    """As means do; with a power so small that x tells nothing, bands are those without x."""
    with pm.Model() as model:
        table(1e-12)
    nothing = results(model, {"m_labels": LABELS}, n_chains=1)
    far = pd.DataFrame([[9.0, 9.0], [-9.0, 9.0]], columns=["a", "b"])
    bands = dp.predict(nothing, "m", far, of="y", random_seed=1)
    for name in ("mean", "lower", "upper"):
        assert bands[name][0] == pytest.approx(bands[name][1].item(), rel=1e-6)
    told = dp.predict(fitted, "m", far, of="y", random_seed=1)
    assert abs(told["lower"][0] - told["lower"][1]) > 0.01


@pytest.mark.slow
def test_random_measures_condition_on_the_view_as_partitions_do(fitted):
    """Given a partition, weights and the parameters of y are drawn, and those of x integrated out."""
    row, rng = np.array([0.7, -0.3]), np.random.default_rng(2)
    log_x = [log_weight - np.log(seats) for log_weight, seats in zip(cluster_weights(row), SEATS, strict=True)]
    curves = []
    for labels, log_p in zip(LABELS, log_x, strict=True):
        sizes = np.bincount(labels)
        own = []
        for _ in range(4_000):
            # Of clusters with rows, and of all others together, whose means of y have the prior's.
            weights = rng.dirichlet([*sizes, ALPHA])
            means = []
            for k in range(len(sizes)):
                y = Y[labels == k]
                kappa_n, a_n = OF_Y["kappa"] + len(y), OF_Y["a"] + len(y) / 2
                about = np.sum((y - y.mean()) ** 2) + OF_Y["kappa"] * len(y) / kappa_n * y.mean() ** 2
                variance = (OF_Y["b"] + about / 2) / rng.gamma(a_n)
                means.append(y.sum() / kappa_n + np.sqrt(variance / kappa_n) * rng.normal())
            sticks = rng.dirichlet(np.full(200, ALPHA / 200))
            new = OF_Y["b"] / rng.gamma(OF_Y["a"], size=200)
            means.append(sticks @ (np.sqrt(new / OF_Y["kappa"]) * rng.normal(size=200)))
            given = np.log(weights) + log_p
            given = np.exp(given - logsumexp(given))
            own.append(given @ means)
        curves.append(own)
    found = []
    for seed in range(400):
        band = dp.predict(
            fitted, "m", pd.DataFrame([row], columns=["a", "b"]), of="y", probability=1e-9, random_seed=seed
        )
        found.append(float(band["lower"][0]))
    # With two draws of the posterior, a band of no probability is the mean of one curve from each.
    expected = np.mean(curves, axis=0)
    error = np.hypot(np.std(found) / np.sqrt(len(found)), np.std(expected) / np.sqrt(len(expected)))
    assert abs(np.mean(found) - np.mean(expected)) < 4.5 * error
    assert np.std(found) == pytest.approx(np.std(expected), rel=0.2)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda idata: dp.density(idata, "m_x", [[0.0, 0.0]]), "dp.density needs a density of the rows, and m_x"),
        (lambda idata: dp.log_likelihood(idata, "m"), "dp.log_likelihood needs a density"),
        (lambda idata: dp.log_likelihood(idata, "m_y"), "dp.log_likelihood needs a density of the rows, and m_x"),
        (lambda idata: dp.sample_replicates(idata, "m_y"), "dp.sample_replicates needs a density"),
        (lambda idata: dp.log_density(idata, "m_x", [[0.0, 0.0]]), "dp.log_density needs a density"),
        (
            lambda idata: dp.sample_new_rows(idata, "m", known=pd.DataFrame({"a": [0.7], "b": [np.nan]})),
            "a draw of missing entries needs a density",
        ),
        (lambda idata: dp.sample_new_rows(idata, "m", 3), "dp.sample_new_rows needs a density"),
        (lambda idata: dp.dependence(idata, "m"), "dp.dependence needs a density"),
        (lambda idata: dp.predict(idata, "m", pd.DataFrame({"y": [0.1]}), of="a"), "a prediction needs a density"),
    ],
)
def test_rows_with_a_power_have_no_density(ask, message, fitted):
    with pytest.raises(ValueError, match=message):
        ask(fitted)


def test_columns_with_a_power_are_not_asked_for_by_themselves(fitted):
    found = dp.predict(fitted, "m", pd.DataFrame({"a": [0.4], "b": [np.nan], "y": [np.nan]}), random_seed=1)
    assert found["column"].to_numpy().tolist() == ["y"]


def test_members_have_no_density_under_a_power(fitted):
    found = dp.membership(fitted, "m", TABLE.iloc[:2], LABELS[0])
    np.testing.assert_allclose(found["probability"].sum("cluster") + found["new_cluster"], 1.0)
    assert np.isnan(found["log_density"]).all()


def test_a_result_is_kept_with_its_power(fitted, tmp_path):
    fitted.to_netcdf(tmp_path / "fitted.nc")
    from arviz import from_netcdf

    again = from_netcdf(tmp_path / "fitted.nc")
    new = TABLE[["a", "b"]].iloc[:2]
    for name in ("mean", "upper"):
        np.testing.assert_array_equal(
            dp.predict(again, "m", new, of="y", random_seed=1)[name],
            dp.predict(fitted, "m", new, of="y", random_seed=1)[name],
        )


def with_gap():
    rows = TABLE.copy()
    rows.loc[0, "a"] = np.nan
    return table(rows=rows)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: table(0.0), ValueError, "view 'x': power must be > 0"),
        (lambda: table("much"), TypeError, "view 'x': power must be a number"),
        (with_gap, ValueError, "have no law under power="),
        (lambda: dp.DPMixture("m", 1.0, observed=Y, power={"x": 0.5}), ValueError, "power is for some of several"),
        (
            lambda: dp.CollapsedMixture(
                "z", dp.CRP("l", 1.0, n=3), dp.NormalInverseGamma(**OF_Y), shape=3, power=0.5
            ),
            ValueError,
            "power= is for observed data",
        ),
        (
            lambda: dp.DPMixture("m", 1.0, {"x": ("a", None), "y": ("y", None)}, observed=TABLE, power={"z": 0.5}),
            ValueError,
            r"power names the views \['z'\]",
        ),
    ],
)
def test_wrong_powers_are_refused(build, error, message):
    with pm.Model(), pytest.raises(error, match=message):
        build()


@pytest.mark.interpreted
def test_what_needs_a_density_is_refused():
    with pm.Model() as model:
        table()
        with pytest.raises(TypeError, match=r"which dp\.fit does not support"):
            dp.fit()
        with pytest.raises(NotImplementedError, match="there are none to draw from the prior"):
            pm.sample_prior_predictive(draws=2)
        with pytest.raises(NotImplementedError, match="there are no leader sweeps"):
            sampled.sample(model, 5, tune=5, chains=1, dpmixture={"leader_sweeps": 1})
