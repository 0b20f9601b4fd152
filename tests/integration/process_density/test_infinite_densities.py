"""A log density of +inf or NaN is no place to be: moves take it for impossible, count it, and say so once."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import sampled
from scipy.stats import truncnorm
from slowly import rest_slow

import pymc_dpgmm as dp
from pymc_dpgmm.native.array_calls import PythonCall
from pymc_dpgmm.sampler.hyperparameters.coordinate_slices import CoordinateSlices

COUNTS = np.array([1, 2, 6])
LEAST, MOST = -0.4, 0.9


def broken(x):
    """A log density that is NaN below a bound and +inf above another one."""
    return pt.switch(x > MOST, np.inf, pt.switch(x < LEAST, np.nan, 0.0))


def test_slices_keep_away():
    """The draws are those of the normal distribution between the bounds."""

    def log_density(x):
        u = x[0]
        return [np.array(np.inf if u > MOST else np.nan if u < LEAST else -0.5 * u * u)]

    rng, x, counted = np.random.default_rng(1), np.full(1, 0.1), 0
    slices = CoordinateSlices(PythonCall(log_density, [(x.dtype, 1)]), [np.empty(1)], 0)
    found = []
    for _ in range(20_000):
        counted += slices.draw(rng, [x], [x], [np.ones(1)], False)
        found.append(x[0])
    assert min(found) >= LEAST
    assert max(found) <= MOST
    sampled.assert_mean_matches(np.array(found)[None], truncnorm.mean(LEAST, MOST))
    assert counted > 10_000


def hyperparameter():
    """The prior of a parameter of the base is no density beyond its bounds."""
    b = pm.CustomDist("b", logp=lambda x: -0.5 * x**2 + broken(x), dist=None, initval=0.1)
    dp.DPMixture("y", 1.0, dp.NormalInverseGamma(b, 1.0, 2.0, 1.0), observed=[-1.0, 0.2, 1.4])


def hyperparameter_in_an_offset():
    b = pm.CustomDist("b", logp=lambda x: -0.5 * x**2 + broken(x), dist=None, initval=0.1)
    base = dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0)
    dp.DPMixture("y", 1.0, base, observed=[-1.0, 0.2, 1.4], offset=b * np.array([0.1, 0.0, -0.1]))


def of_a_process():
    b = pm.CustomDist("b", logp=lambda x: -0.5 * x**2 + broken(x), dist=None, initval=0.1)
    theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(b, 1.0), shape=3)
    pm.Normal("y", theta, 1.0, observed=[-1.0, 0.2, 1.4])


def shared_by_latent_rows():
    b = pm.Normal("b", initval=0.1)
    u = dp.DPMixture("u", 1.0, dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), shape=3)
    pm.Poisson("y", pm.math.exp(u + b), observed=COUNTS)
    pm.Potential("bounds", broken(b))


def shared_by_atoms():
    b = pm.Normal("b", initval=0.1)
    theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=3)
    pm.Poisson("y", pm.math.exp(theta + b), observed=COUNTS)
    pm.Potential("bounds", broken(b))


CASES = [hyperparameter, hyperparameter_in_an_offset, of_a_process, shared_by_latent_rows]


@pytest.mark.parametrize("build", rest_slow(CASES, 2))
def test_variables_stay_where_there_is_a_density(build, caplog):
    """Slices, in Python and compiled, do not go where a density is +inf or NaN, and this is told of once."""
    with pm.Model() as model:
        build()
    with caplog.at_level("WARNING"), model:
        idata = pm.sample(500, tune=200, chains=2, cores=1, progressbar=False, random_seed=1)
    b = idata.posterior["b"].to_numpy()
    assert b.min() >= LEAST
    assert b.max() <= MOST
    assert np.ptp(b) > 0.5
    counted = idata.sample_stats["b_impossible"].to_numpy()
    assert counted.dtype == np.int64
    assert counted.sum() > 50
    assert caplog.text.count("The log density of b was +inf or NaN") == 1


def test_numbers_that_move_with_atoms_stay_where_there_is_a_density():
    with pm.Model() as model:
        shared_by_atoms()
        step = dp.DirichletProcessStep(model.free_RVs)
    step.setup_chain(np.random.default_rng(1), 2, 300)
    point, found, counted = model.initial_point(random_seed=1), [], 0
    for _ in range(300):
        point, (statistics,) = step.step(point)
        found.append(float(point["b"]))
        counted += statistics["b_impossible"]
    assert min(found) >= LEAST
    assert max(found) <= MOST
    assert np.ptp(found) > 0.5
    assert counted > 50


def test_labels_stay_where_there_is_a_density(caplog):
    """Labels on which another variable depends: partitions of two clusters or more have no density."""
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), observed=[-1.0, 0.2, 1.4])
        pm.Potential("bound", pt.switch(pt.max(model["y_labels"]) > 0, np.inf, 0.0))
    with caplog.at_level("WARNING"), model:
        idata = pm.sample(
            100, tune=50, chains=1, progressbar=False, random_seed=1, initvals={"y_labels": np.zeros(3, dtype=int)}
        )
    assert int(idata.posterior["y_n_clusters"].max()) == 1
    assert "The log density of bound was +inf or NaN" in caplog.text


def test_a_truncated_base_whose_density_overflows():
    """A density of PyMC that is +inf for large rates: the rate does not run there and freeze."""
    with pm.Model() as model:
        b0 = pm.Gamma("b0", 2.0, 4.0)
        base = pm.Truncated.dist(pm.Gamma.dist(1.5, b0), lower=5.0, upper=12.0)
        theta = dp.DirichletProcess("theta", 1.0, base, shape=4)
        pm.Normal("y", theta, 1.0, observed=[6.0, 7.0, 9.0, 11.0])
    idata = sampled.sample(model, 500, tune=300, chains=2, cores=1, random_seed=1)
    drawn = idata.posterior["b0"].to_numpy()
    assert drawn.max() < 5.0
    assert drawn.std() > 0.05
