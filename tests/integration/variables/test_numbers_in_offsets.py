"""Numbers in the offset of observed rows, drawn with the labels: posteriors by quadrature, learnt directions."""

import exact
import numpy as np
import pymc as pm
import pytest
import sampled
from slowly import rest_slow

import pymc_dpgmm as dp
from pymc_dpgmm.integration.steps import hyperparameters as module
from pymc_dpgmm.integration.steps.evidence import EvidenceOfMixture
from pymc_dpgmm.sampler.hyperparameters.learnt_directions import LearntDirections

BASE = {"mu": 0.0, "kappa": 0.2, "a": 2.0, "b": 1.0}
# The two coefficients are correlated.
DESIGN = np.array([[1.0, -1.0], [1.0, 0.2], [1.0, 0.9], [1.0, 1.7]]) + np.array([0.0, 1.0])
ROWS = np.array([-0.9, 2.6, 1.4, 4.9])
SDS = np.array([1.5, 1.0])
GRID = [np.linspace(-6.0, 6.0, 61), np.linspace(-4.2, 4.2, 57)]


def posterior():
    """Probabilities of coefficients on a grid (points, 2) and of partitions: (points, partitions)."""
    points = np.stack(np.meshgrid(*GRID, indexing="ij"), axis=-1).reshape(-1, 2)
    rows = ROWS - points @ DESIGN.T
    log_p = np.empty((len(points), len(exact.partitions(4))))
    for column, labels in enumerate(exact.partitions(4)):
        log_p[:, column] = exact.log_eppf(labels, 0.8) - 0.5 * ((points / SDS) ** 2).sum(axis=1)
        for k in range(labels.max() + 1):
            own = rows[:, labels == k]
            log_p[:, column] += [exact.nig_log_marginal(each[:, None], *BASE.values()) for each in own]
    p = np.exp(log_p - log_p.max())
    return points, p / p.sum()


def sample(n_draws, **options):
    with pm.Model() as model:
        coefficients = pm.Normal("coefficients", 0.0, SDS, shape=2)
        base = dp.NormalInverseGamma(**BASE)
        dp.DPMixture("y", 0.8, base, observed=ROWS, offset=DESIGN @ coefficients)
    idata = sampled.sample(model, n_draws, tune=500, chains=2, random_seed=2, **options)
    assert "step_size" not in idata.sample_stats
    return idata.posterior


def check(draws):
    points, p = posterior()
    exact.assert_matches(exact.codes(draws["y_labels"].to_numpy()), exact.partitions(4), p.sum(axis=0))
    coefficients = draws["coefficients"].to_numpy()
    for position in range(2):
        sampled.assert_mean_matches(coefficients[..., position], p.sum(axis=1) @ points[:, position])
    product = coefficients[..., 0] * coefficients[..., 1]
    sampled.assert_mean_matches(product, p.sum(axis=1) @ points.prod(axis=1))


@pytest.mark.parametrize("n_draws", rest_slow([2_000, 50_000]))
def test_labels_and_coefficients_follow_the_posterior(n_draws):
    """Two correlated coefficients along learnt directions, against enumeration and quadrature."""
    check(sample(n_draws))


@pytest.mark.slow
def test_rows_that_stay_where_they_are_are_seen(monkeypatch):
    """A mistake: the clusters are not summed up anew where coefficients move."""
    begin = EvidenceOfMixture.begin

    def forgetting(evidence, state):
        begin(evidence, state)
        evidence.rows = None

    monkeypatch.setattr(EvidenceOfMixture, "begin", forgetting)
    with pytest.raises(AssertionError):
        check(sample(5_000))


def test_many_rows_and_numbers_are_left_to_nuts(monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS_TIMES_NUMBERS", 7)
    with pytest.raises(AssertionError):
        sample(20)


@pytest.mark.parametrize("base", [dp.NormalInverseWishart, dp.NormalInverseGamma, dp.SphericalNormalInverseGamma])
def test_bases_of_several_columns_whose_numbers_are_fixed(base):
    """Nothing moves but the rows: two columns with a number each in the offset, which shifts the mean."""
    times, rng = np.linspace(-1.0, 1.0, 40), np.random.default_rng(7)
    rows = 3.0 * times[:, None] + 0.1 * rng.normal(size=(40, 2))
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 10.0, shape=2)
        dp.DPMixture("y", 1.0, base.from_data(rows), observed=rows, offset=times[:, None] * slope)
    idata = sampled.sample(model, 200, tune=200, chains=1, random_seed=1)
    assert "step_size" not in idata.sample_stats
    np.testing.assert_allclose(idata.posterior["slope"].mean(["chain", "draw"]), 3.0, atol=0.2)


def test_directions_are_principal_axes():
    """They are learnt from draws; the axes are the numbers before, and where nothing moves."""
    rng, learnt = np.random.default_rng(3), LearntDirections(2)
    factor = np.array([[2.0, 0.0], [1.9, 0.1]])
    np.testing.assert_array_equal(learnt.directions, np.eye(2))
    for _ in range(1_000):
        learnt.learn(5.0 + factor @ rng.normal(size=2))
    covariance = learnt.directions.T @ learnt.directions
    np.testing.assert_allclose(covariance, factor @ factor.T, rtol=0.25)
    assert abs(learnt.directions[0] @ learnt.directions[1]) < 1e-9
    still = LearntDirections(2)
    for _ in range(100):
        still.learn(np.array([1.0, np.inf]) if _ == 50 else np.zeros(2))
    np.testing.assert_array_equal(still.directions, np.eye(2))
