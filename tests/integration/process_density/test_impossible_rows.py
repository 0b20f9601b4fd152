"""Rows that have no density whatever their parameters are told of, where PyMC would not look for them."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import sampled

import pymc_dpgmm as dp

pytestmark = pytest.mark.interpreted

TRIALS = np.full(6, 20)
SUCCESSES = np.array([3, 4, 12, 21, 14, 5])
COUNTS = np.array([2, 3, 1, 8, -1, 0])
GAPPED = np.array([0.1, np.nan, 0.3, np.nan, 0.2, 0.0])


def rows_of(kind):
    if kind == "mixture":
        return dp.DPMixture("u", pm.Gamma("alpha", 1, 1), dp.NormalInverseGamma(0, 0.3, 4, 0.6), shape=6)
    if kind == "units":
        labels = dp.CRP("labels", 1.0, 3)
        base = dp.NormalInverseGamma(0, 0.3, 4, 0.6)
        return dp.CollapsedMixture("u", labels[np.array([0, 0, 1, 1, 2, 2])], base, shape=6)
    if kind == "blocks":
        return dp.DirichletProcess("u", 1.0, pm.Normal.dist(0, 1.5), shape=6, must_link=[0, 0, -1, -1, -1, -1])
    return dp.DirichletProcess("u", pm.Gamma("alpha", 1, 1), pm.Normal.dist(0, 1.5), shape=6)


def likelihood(case, u):
    if case == "successes":
        pm.Binomial("y", TRIALS, logit_p=u, observed=SUCCESSES)
    elif case == "counts":
        pm.Poisson("y", pt.exp(u), observed=COUNTS)
    else:
        pm.Normal("fine", u, 1.0, observed=np.zeros(6))
        pm.Normal("y", u + GAPPED, 1.0, observed=np.zeros(6))


@pytest.mark.parametrize("kind", ["mixture", "units", "process", "blocks"])
@pytest.mark.parametrize(
    ("case", "words"),
    {
        "successes": r"y: .*for row 3 of u, .*above the number of trials",
        "counts": "y: .*for row 4 of u, ",
        "gaps": "fine and y: .*for 2 rows of u, of which the first is row 1, ",
    }.items(),
)
def test_rows_without_a_density_are_told_of(kind, case, words):
    with pm.Model() as model:
        likelihood(case, rows_of(kind))
    with pytest.raises(pm.exceptions.SamplingError, match=words):
        sampled.sample(model, 5, tune=5, chains=1)


@pytest.mark.parametrize("kind", ["mixture", "process"])
def test_rows_that_start_where_they_have_no_density_may_move(kind):
    """A bound that hardly any draw of the base keeps, but some do."""
    with pm.Model() as model:
        u = rows_of(kind)
        pm.Potential("bounds", pt.switch(u > 0.8, 0.0, -np.inf))
        pm.Normal("y", u, 0.5, observed=np.full(6, 1.0))
    idata = sampled.sample(model, 20, tune=60, chains=1, random_seed=1)
    assert float(idata.posterior["u"].min()) > 0.8


def test_discrete_parameters_too():
    with pm.Model() as model:
        u = dp.DirichletProcess("u", 1.0, pm.Poisson.dist(3.0), shape=6)
        pm.Binomial("y", u + 20, 0.4, observed=[3, 4, 12, 90, 14, 5])
    with pytest.raises(pm.exceptions.SamplingError, match="for row 3 of u"):
        sampled.sample(model, 5, tune=5, chains=1)


@pytest.mark.parametrize("kind", ["mixture", "process"])
def test_a_shared_variable_that_starts_too_far_out_is_named(kind):
    """At a rate of 1,000 per unit no draw of the base has a density, whatever the data."""
    with pm.Model() as model:
        u = rows_of(kind)
        r = pm.Gamma("r", 1.0, 0.001)
        pm.Gamma("y", alpha=r, beta=pt.exp(u), observed=np.full(6, 1e-3))
        pm.Potential("bound", pt.switch(u + 0.0 * r > r, 0.0, -np.inf))
    with pytest.raises(pm.exceptions.SamplingError, match=r"with r as at the start.*Look first at where r starts"):
        sampled.sample(model, 5, tune=5, chains=1)


def test_rows_whose_density_is_infinite_are_told_of():
    """Exact zeros under beta distributions: the density is infinite or zero, and plain PyMC refuses it too."""
    with pm.Model() as model:
        c = dp.DirichletProcess("c", 1.0, {"a": pm.Gamma.dist(2.0, 2.0), "b": pm.Gamma.dist(2.0, 2.0)}, shape=5)
        pm.Beta("y", c["a"], c["b"], observed=[0.0, 0.1, 0.3, 0.2, 0.6])
    with pytest.raises(pm.exceptions.SamplingError, match=r"for row 0 of c_a and c_b.*a density that is infinite"):
        sampled.sample(model, 5, tune=5, chains=1)
