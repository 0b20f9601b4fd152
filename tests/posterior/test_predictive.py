"""Replicates of the data, and rows that arrive later."""

import warnings

import numpy as np
import pymc as pm
import pytest
from drawn import results
from pymc.model.transform.optimization import freeze_dims_and_data
from scipy.sparse import csr_array
from scipy.stats import chisquare, kstest
from scipy.stats import t as student_t

import pymc_dpgmm as dp
from pymc_dpgmm.partitions.priors import log_eppf, pitman_yor
from pymc_dpgmm.testing import partitions

pytestmark = pytest.mark.interpreted

ROWS = np.array([0.1, 1.4, 1.2, -2.0, 0.9, -1.5])
LABELS = np.array([0, 1, 1, 2, 1, 0])
# The mixture's base measure in all of these tests.
MU, KAPPA, A, B = 0.3, 0.5, 2.0, 0.6


def nig(rows, mu=MU, kappa=KAPPA):
    """Location, scale and degrees of freedom of the predictive given some rows."""
    n = len(rows)
    mean = (kappa * mu + np.sum(rows)) / (kappa + n)
    b = B + 0.5 * (kappa * mu**2 + np.sum(rows**2) - (kappa + n) * mean**2)
    a = A + n / 2
    return student_t(2 * a, mean, np.sqrt(b * (kappa + n + 1) / (a * (kappa + n))))


def replicated(model, draws, **kwargs):
    with model:
        found = pm.sample_posterior_predictive(results(model, draws), progressbar=False, random_seed=1, **kwargs)
    group = "predictions" if kwargs.get("predictions") else "posterior_predictive"
    return {k: v.to_numpy().reshape(-1, *v.shape[2:]) for k, v in found[group].data_vars.items()}


def test_replicates_come_from_the_clusters_of_their_rows():
    with pm.Model() as model:
        dp.DPMixture("y", 0.8, dp.NormalInverseGamma(MU, KAPPA, A, B), observed=ROWS)
    drawn = replicated(model, {"y_labels": np.tile(LABELS, (4_000, 1))})["y"]
    for i in range(6):
        assert kstest(drawn[:, i], nig(ROWS[LABELS[i] == LABELS]).cdf).pvalue > 1e-4
    # Rows of a cluster share its parameters, others do not.
    ranks = np.corrcoef(drawn.argsort(axis=0).argsort(axis=0).T)
    assert ranks[1, 2] > 0.1
    assert abs(ranks[0, 3]) < 0.08


def test_replicates_with_all_that_differs_between_draws():
    """Hyperparameters, offsets and missing entries of each draw; units; a covariate that moves every row."""
    gaps = np.array([0.1, 1.4, np.nan, -2.0, 0.9, -1.5])
    n_draws = 4_000
    with pm.Model() as model:
        kappa = pm.Gamma("kappa", 2.0, 2.0)
        shift = pm.Normal("shift", 0.0, 3.0)
        dp.DPMixture(
            "y",
            pm.Gamma("alpha", 1.0, 1.0),
            dp.NormalInverseGamma(MU, kappa, A, B),
            observed=gaps,
            offset=shift * np.arange(6.0),
            unit=[0, 0, 1, 1, 2, 2],
            impute=True,
        )
    labels = np.array([0, 1, 0])
    draws = {
        "y_labels": np.tile(labels, (n_draws, 1)),
        "kappa": np.tile([0.4, 3.0], n_draws // 2),
        "shift": np.tile([-1.0, -1.0, 2.0, 2.0], n_draws // 4),
        "alpha": np.ones(n_draws),
        "y_missing": np.tile([[0.7]], (n_draws, 1)),
    }
    drawn = replicated(model, draws)["y"]
    completed = np.where(np.isnan(gaps), 0.7, gaps)
    of_row = labels[[0, 0, 1, 1, 2, 2]]
    for kappa, shift in ((0.4, -1.0), (3.0, 2.0)):
        own = (draws["kappa"] == kappa) & (draws["shift"] == shift)
        rest = completed - shift * np.arange(6.0)
        for i in range(6):
            law = nig(rest[of_row == of_row[i]], kappa=kappa)
            assert kstest(drawn[own, i] - shift * i, law.cdf).pvalue > 1e-4


@pytest.mark.parametrize("sparse", [False, True])
def test_replicates_of_counts(sparse):
    counts = np.array([[5.0, 0, 1], [4, 1, 0], [0, 2, 9], [1, 0, 8]])
    observed = csr_array(counts) if sparse else counts
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.DirichletMultinomial([0.5, 1.0, 2.0]), observed=observed)
    drawn = replicated(model, {"y_labels": np.tile([0, 0, 1, 1], (4_000, 1))})["y"]
    assert drawn.shape == (4_000, 4, 3)
    np.testing.assert_array_equal(drawn.sum(axis=2), np.tile(counts.sum(axis=1), (4_000, 1)))
    weights = np.add([0.5, 1.0, 2.0], [counts[:2].sum(axis=0), counts[2:].sum(axis=0)])
    wanted = (weights / weights.sum(axis=1, keepdims=True))[[0, 0, 1, 1]] * counts.sum(axis=1, keepdims=True)
    errors = drawn.std(axis=0) / np.sqrt(4_000)
    assert np.all(np.abs(drawn.mean(axis=0) - wanted) < 4.5 * errors)
    # Rows that arrive later have the totals that they are given.
    idata = results(model, {"y_labels": np.tile([0, 0, 1, 1], (4_000, 1))})
    found = dp.sample_new_rows(idata, "y", 2, given={"totals": [7, 20]}, random_seed=4)
    later, clusters = (found[name].to_numpy().reshape(4_000, 2, -1) for name in ("y", "cluster"))
    np.testing.assert_array_equal(later.sum(axis=2), np.tile([7, 20], (4_000, 1)))
    for k in (0, 1):
        own = later[clusters[:, 1, 0] == k, 1]
        errors = own.std(axis=0) / np.sqrt(len(own))
        assert np.all(np.abs(own.mean(axis=0) - 20 * weights[k] / weights[k].sum()) < 4.5 * errors)
    with pytest.raises(ValueError, match=r"new rows of y need \['totals'\]: pass given="):
        dp.sample_new_rows(idata, "y", 2)
    with pytest.raises(ValueError, match=r"totals must be counts .* got fractional values, as 2.5 in row 0"):
        dp.sample_new_rows(idata, "y", 2, given={"totals": 2.5})


def simple_model(data=ROWS, alpha=None):
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1.0, 1.0) if alpha is None else alpha
        dp.DPMixture("y", alpha, dp.NormalInverseGamma(MU, KAPPA, A, B), observed=data)
    return model


DRAWS = {"y_labels": np.tile(LABELS, (2_000, 1)), "alpha": np.ones(2_000)}


def test_other_ways_to_ask_for_replicates():
    law = nig(ROWS[LABELS == 1])
    model = simple_model()
    for kwargs in ({"var_names": ["y"]}, {"predictions": True}):
        assert kstest(replicated(model, DRAWS, **kwargs)["y"][:, 1], law.cdf).pvalue > 1e-4
    for other in (pm.do(model, {"alpha": 3.0}), freeze_dims_and_data(model)):
        assert kstest(replicated(other, DRAWS)["y"][:, 1], law.cdf).pvalue > 1e-4


def test_what_cannot_be_right_is_refused():
    model = simple_model()
    without = {"alpha": DRAWS["alpha"]}
    cases = [(model, without, {}), (model, DRAWS, {"sample_vars": ["y_labels", "y"]})]
    cases.append((pm.do(model, {"y_labels": LABELS.astype(np.int16)}), without, {}))
    for refused, draws, kwargs in cases:
        with pytest.raises(NotImplementedError, match="cannot draw this mixture"):
            replicated(refused, draws, **kwargs)


def test_draws_from_the_prior_beside_data():
    """They do not look at it."""
    for model in (simple_model(), simple_model(ROWS + 100.0)):
        with model:
            prior = pm.sample_prior_predictive(4_000, random_seed=2).prior_predictive["y"].to_numpy()[0]
        assert kstest(prior[:, 0], nig(ROWS[:0]).cdf).pvalue > 1e-4
        assert kstest(pm.draw(model["y"], 2_000, random_seed=3)[:, 5], nig(ROWS[:0]).cdf).pvalue > 1e-4


def test_data_that_is_changed_after_sampling():
    with pm.Model() as model:
        data = pm.Data("X", ROWS)
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(MU, KAPPA, A, B), observed=data)
        short = {"draws": 5, "tune": 5, "chains": 1, "progressbar": False, "compute_convergence_checks": False}
        idata = pm.sample(**short)
        before = pm.sample_posterior_predictive(idata, progressbar=False, random_seed=0)
        for changed in (ROWS[::-1].copy(), ROWS[:4].copy()):
            pm.set_data({"X": changed})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                with pytest.raises(
                    ValueError, match=r"X was changed by pm.set_data.*dp.predict\(idata, 'y', new\)"
                ):
                    pm.sample_posterior_predictive(idata, progressbar=False)
        pm.set_data({"X": ROWS})
        again = pm.sample_posterior_predictive(idata, progressbar=False, random_seed=0)
        np.testing.assert_array_equal(before.posterior_predictive["y"], again.posterior_predictive["y"])
        pm.set_data({"X": ROWS[:4]})
        shorter = pm.sample(**short)
        assert pm.sample_posterior_predictive(shorter, progressbar=False).posterior_predictive["y"].shape == (
            1,
            5,
            4,
        )
    with simple_model(ROWS[:4]), pytest.raises(ValueError, match="there are 6 labels, but the data has 4 rows"):
        pm.sample_posterior_predictive(results(model, {**DRAWS}), progressbar=False)


@pytest.mark.parametrize("changed", ["exposure", "covariates", "offset", "unit"])
def test_other_data_that_is_changed(changed):
    """Also in a process that has not sampled: the model was built with the data of the draws."""
    n, rng = 12, np.random.default_rng(0)
    with pm.Model() as model:
        x = pm.Data("x", np.repeat(np.arange(4), 3) if changed == "unit" else rng.uniform(1, 2, size=n))
        nig = dp.NormalInverseGamma(MU, KAPPA, A, B)
        real, counts = rng.normal(size=n), rng.poisson(2.0, size=n) * 1.0
        slope = pm.Normal("slope", 0.0, 1.0)
        if changed == "exposure":
            dp.DPMixture("y", 1.0, dp.GammaPoisson(1.0, 1.0, exposure=x), observed=counts)
        elif changed == "covariates":
            dp.DPMixture("y", 1.0, dp.LinearRegression(0.0, 1.0, 2.0, 1.0, x), observed=real)
        elif changed == "offset":
            dp.DPMixture("y", 1.0, nig, observed=real, offset=slope * x)
        else:
            dp.DPMixture("y", 1.0, nig, observed=real, unit=x)
    rows = 4 if changed == "unit" else n
    draws = {"y_labels": np.zeros((20, rows), dtype=int), "slope": np.ones(20)}
    idata = results(model, draws)
    assert replicated(model, draws)["y"].shape == (20, n)
    new = x.get_value()[::-1].copy()
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        pm.set_data({"x": new})
        with pytest.raises(ValueError, match=r"x was changed by pm.set_data"):
            pm.sample_posterior_predictive(idata, progressbar=False)


@pytest.mark.parametrize("discount", [0.0, 0.35])
def test_rows_that_arrive_later(discount):
    """How they are seated is the prior on partitions of all rows, given that of the first."""
    with pm.Model() as model:
        dp.PYMixture("y", 0.8, discount, dp.NormalInverseGamma(MU, KAPPA, A, B), observed=ROWS[:3])
    n_draws, labels = 6_000, np.array([0, 1, 1])
    idata = results(model, {"y_labels": np.tile(labels, (n_draws, 1))})
    found = dp.sample_new_rows(idata, "y", 3, random_seed=5)
    clusters = found["cluster"].to_numpy().reshape(-1, 3)
    seen = {tuple(way): i for i, way in enumerate(partitions(6)) if way[:3].tolist() == labels.tolist()}
    index = {way: i for i, way in enumerate(seen)}
    counts = np.zeros(len(index))
    np.add.at(counts, [index[0, 1, 1, *own] for own in clusters.tolist()], 1)
    prior = pitman_yor(0.8, discount)
    p = np.exp([log_eppf(prior, np.bincount(way), max(way) + 1) for way in index])
    assert chisquare(counts, n_draws * p / p.sum()).pvalue > 1e-4
    drawn = found["y"].to_numpy().reshape(-1, 3)
    for k, rows in ((0, ROWS[:1]), (1, ROWS[1:3]), (2, ROWS[:0])):
        assert kstest(drawn[:, 0][clusters[:, 0] == k], nig(rows).cdf).pvalue > 1e-4
    together = (clusters[:, 0] == 2) & (clusters[:, 1] == 2)
    apart = (clusters[:, 0] == 2) & (clusters[:, 1] == 3)
    assert np.corrcoef(drawn[together, :2].argsort(axis=0).argsort(axis=0).T)[0, 1] > 0.2
    assert abs(np.corrcoef(drawn[apart, :2].argsort(axis=0).argsort(axis=0).T)[0, 1]) < 0.3


def test_finite_mixtures_open_no_more_clusters_than_they_have():
    with pm.Model() as model:
        dp.FiniteMixture("y", 5.0, 3, dp.NormalInverseGamma(MU, KAPPA, A, B), observed=ROWS)
    found = dp.sample_new_rows(results(model, {"y_labels": np.tile(LABELS, (200, 1))}), "y", 20, random_seed=0)
    assert int(found["cluster"].max()) == 2
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.BetaBinomial(1.0, 1.0, trials=9), observed=[1, 2, 8, 7, 0, 3])
    trials = results(model, {"y_labels": np.tile(LABELS, (2, 1))})
    with pytest.raises(ValueError, match=r"trials must be counts .* got fractional values, as 2.5 in row 0"):
        dp.sample_new_rows(trials, "y", 2, given={"trials": 2.5})
    with pytest.raises(ValueError, match="n_rows must be"):
        dp.sample_new_rows(results(model, {"y_labels": np.tile(LABELS, (2, 1))}), "y", 0)


@pytest.mark.parametrize("left_out", ["mu", "b"])
def test_a_variable_that_is_not_among_the_draws_is_not_drawn_from_its_prior(left_out):
    """Of the base measure, or of the offset."""
    rows = 1000.0 + np.random.default_rng(0).normal(size=6)
    with pm.Model():
        mu, b = pm.Normal("mu", 1000.0, 300.0), pm.Normal("b", 0.0, 10.0)
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(mu, 5.0, 4.0, 3.0), observed=rows, offset=b)
        kept = [name for name in ("y_labels", "mu", "b") if name != left_out]
        options = {"chains": 1, "cores": 1, "progressbar": False, "compute_convergence_checks": False}
        idata = pm.sample(20, tune=20, var_names=kept, random_seed=1, quiet=True, **options)
        with pytest.raises(NotImplementedError, match="left out of the draws"):
            pm.sample_posterior_predictive(idata, progressbar=False)
