"""Functionals of the random distribution: masses, quantiles, further clusters, and functions of users."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.stats import norm

import pymc_dpgmm as dp

GROUPS = np.arange(60) % 2
RNG = np.random.default_rng(2)
FRAME = pd.DataFrame({"x": RNG.normal(3.0 * GROUPS), "visits": RNG.poisson(np.array([1.0, 6.0])[GROUPS])})
BASES = {
    "reals": (["x"], dp.NormalInverseGamma(1.0, 0.2, 3.0, 2.0)),
    "counts": (["visits"], dp.GammaPoisson(1.0, 0.3)),
}
# How many genes of tomato occur so many times among 2,586 tags: Lijoi, Mena and Pruenster (2007), table 1.
TIMES = {
    1: 1434,
    2: 253,
    3: 71,
    4: 33,
    5: 11,
    6: 6,
    7: 2,
    8: 3,
    9: 1,
    10: 2,
    11: 2,
    12: 1,
    13: 1,
    14: 1,
    16: 2,
    23: 1,
    27: 1,
}


@pytest.fixture(scope="module")
def idata():
    with pm.Model():
        dp.DPMixture("t", 1.0, BASES, observed=FRAME)
        return pm.sample(100, tune=200, chains=2, cores=1, random_seed=1, progressbar=False)


def test_masses_and_quantiles_are_those_of_weights_and_parameters(idata):
    """Draw by draw: a function of weights and parameters gets the same ones."""

    def below(weights, parameters):
        mean, deviation = parameters["mean"][:, 0], np.sqrt(parameters["variance"][:, 0])
        return [weights @ norm.cdf(c, mean, deviation) for c in (0.0, 2.0)]

    wanted = dp.functional(idata, "t_reals", below, random_seed=3)
    found = dp.functional(idata, "t", "mass", [0.0, 2.0], of="x", random_seed=3)
    np.testing.assert_allclose(found["draws"], wanted["draws"], rtol=1e-9)
    np.testing.assert_allclose(found["mean"], wanted["draws"].mean("sample"), rtol=1e-9)
    levels = found["draws"].isel(sample=5).to_numpy()
    quantiles = dp.functional(idata, "t", "quantiles", levels, of="x", random_seed=3)
    np.testing.assert_allclose(quantiles["draws"].isel(sample=5), [0.0, 2.0], atol=1e-9)
    one = dp.functional(idata, "t", "mass", 2.0, of="x", random_seed=3, probability=0.5)
    assert one["mean"].shape == ()
    assert found["lower"][1] < one["lower"] < one["upper"] < found["upper"][1]


def test_counts_below_a_number_are_less(idata):
    found = dp.functional(idata, "t", "mass", [0.0, 1.0, 500.0], of="visits", random_seed=1)
    assert found["mean"][0] == 0.0
    assert 0.1 < found["mean"][1] < 0.5
    assert found["mean"][2] == pytest.approx(1.0)
    quantiles = dp.functional(idata, "t", "quantiles", 0.5, of="visits", random_seed=1)
    assert np.all(quantiles["draws"] == np.floor(quantiles["draws"]))


def sampled(prior, labels, n_draws=4_000):
    """Results with one and the same partition in every draw."""
    with pm.Model():
        prior("species", n=len(labels), observed=labels)
        pm.Normal("x")
        return pm.sample(n_draws, tune=5, chains=1, random_seed=1, progressbar=False)


@pytest.mark.parametrize(("alpha", "discount"), [(2.5, 0.0), (1.0, 0.4)])
def test_number_of_new_clusters(alpha, discount):
    """Its mean has a closed form (Favaro, Lijoi, Mena and Pruenster 2009, proposition 1)."""
    labels, m = np.array([0, 0, 0, 1, 1, 2]), 25
    idata = sampled(lambda name, **kwargs: dp.PitmanYor(name, alpha, discount, **kwargs), labels)
    found = dp.functional(idata, "species", "new_clusters", m, n_draws=4_000, random_seed=1)
    n, k = len(labels), 3
    steps = np.arange(m)
    if discount == 0.0:
        wanted = np.sum(alpha / (alpha + n + steps))
    else:
        wanted = (k + alpha / discount) * (np.prod((alpha + n + discount + steps) / (alpha + n + steps)) - 1.0)
    error = found["draws"].std() / np.sqrt(4_000)
    assert abs(found["mean"] - wanted) < 4.0 * error


def test_new_genes_in_a_library_of_tomato():
    """The published posterior expects 280.5 new ones in 517 further tags, and 1,280 in 2,586."""
    labels = np.repeat(np.arange(sum(TIMES.values())), np.repeat(list(TIMES), list(TIMES.values())))
    assert len(labels) == 2_586
    with pm.Model():
        discount, strength = pm.Uniform("discount"), pm.Gamma("strength", 1.0, 0.001)
        dp.PitmanYor("species", strength, discount, n=len(labels), observed=labels)
        idata = pm.sample(1_000, tune=1_000, chains=2, cores=1, random_seed=1, progressbar=False)
    assert idata["posterior"]["discount"].mean() == pytest.approx(0.6086, abs=0.006)
    for m, published in ((517, 280.5), (2_586, 1_280.0)):
        found = dp.functional(idata, "species", "new_clusters", m, random_seed=1)
        assert found["mean"] == pytest.approx(published, rel=0.01)
        assert found["lower"] < published < found["upper"]


def test_what_is_refused(idata):
    for what, at, message in (
        ("median", 1.0, "what must be one of"),
        ("mass", None, "needs at=, numbers"),
        ("mass", np.inf, "at must be numbers"),
        ("quantiles", [0.5, 1.0], r"at must be levels in \(0, 1\)"),
        ("new_clusters", 0, "at must be at least 1"),
        ("mass", 1.0, r"say which column with of=, one of \['x', 'visits'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            dp.functional(idata, "t", what, at)
