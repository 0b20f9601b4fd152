"""Probabilities below numbers and bands of quantiles, beside draws of the random mixture by hand."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.optimize import brentq
from scipy.stats import norm, poisson

import pymc_dpgmm as dp

RNG = np.random.default_rng(2)
GROUPS = np.arange(60) % 2
FRAME = pd.DataFrame(
    {
        "x": RNG.normal(3.0 * GROUPS),
        "y": RNG.normal(-2.0 * GROUPS),
        "visits": RNG.poisson(np.array([1.0, 6.0])[GROUPS]),
    }
)
NEW = pd.DataFrame({"x": [0.0, 1.5, 3.0], "y": np.nan, "visits": np.nan})
BASES = {
    "reals": (["x", "y"], dp.NormalInverseWishart([1.0, -1.0], 0.2, 5.0, np.eye(2) * 2.0)),
    "counts": (["visits"], dp.GammaPoisson(1.0, 0.3)),
}


@pytest.fixture(scope="module")
def idata():
    with pm.Model():
        dp.DPMixture("t", 1.0, BASES, observed=FRAME)
        return pm.sample(400, tune=200, chains=2, cores=1, random_seed=1, progressbar=False)


def mixtures(idata):
    """Weights, parameters and the densities of x of draws of the random mixture, without the package's arrays.

    Weights given the partition are Dirichlet, and that of all new clusters is spread over draws of the base.
    """
    rng = np.random.default_rng(7)
    labels = idata["posterior"]["t_labels"].to_numpy().reshape(-1, len(FRAME))
    mu, kappa, nu, psi = np.array([1.0, -1.0]), 0.2, 5.0, np.eye(2) * 2.0
    rows, counts = FRAME[["x", "y"]].to_numpy(), FRAME["visits"].to_numpy()
    for own in labels:
        sizes = np.bincount(own)
        n_new = 60
        sticks = rng.beta(1.0, 1.0, size=n_new)
        new = sticks * np.cumprod(np.r_[1.0, 1.0 - sticks[:-1]])
        weights = rng.dirichlet(np.r_[sizes, 1.0])
        weights = np.r_[weights[:-1], weights[-1] * new / new.sum()]
        drawn = []
        for k in range(len(weights)):
            members = np.flatnonzero(own == k) if k < len(sizes) else []
            n = len(members)
            mean = rows[members].mean(axis=0) if n else mu
            scatter = (rows[members] - mean).T @ (rows[members] - mean) if n else 0.0
            offset = mean - mu
            psi_n = psi + scatter + kappa * n / (kappa + n) * np.outer(offset, offset)
            precision = wishart(rng, nu + n, np.linalg.inv(psi_n))
            covariance = np.linalg.inv(precision)
            centre = rng.multivariate_normal((kappa * mu + n * mean) / (kappa + n), covariance / (kappa + n))
            rate = rng.gamma(1.0 + counts[members].sum() if n else 1.0) / (0.3 + n)
            drawn.append((centre, covariance, rate))
        yield weights, drawn


def wishart(rng, degrees, scale):
    lower = np.diag(np.sqrt(rng.chisquare(degrees - np.arange(2))))
    lower[1, 0] = rng.normal()
    root = np.linalg.cholesky(scale) @ lower
    return root @ root.T


def distribution(weights, drawn, x, column):
    """The distribution function of a column given x, and the density of x."""
    centre, covariance, rate = (np.array(each) for each in zip(*drawn, strict=True))
    of_x = weights * norm.pdf(x, centre[:, 0], np.sqrt(covariance[:, 0, 0]))
    own = of_x / of_x.sum()
    if column == "visits":
        return lambda c: np.sum(own * poisson.cdf(np.floor(c), rate)), of_x.sum()
    slope = covariance[:, 0, 1] / covariance[:, 0, 0]
    mean = centre[:, 1] + slope * (x - centre[:, 0])
    deviation = np.sqrt(covariance[:, 1, 1] - slope * covariance[:, 0, 1])
    return lambda c: np.sum(own * norm.cdf(c, mean, deviation)), of_x.sum()


@pytest.mark.parametrize(("column", "limits"), [("y", [-2.0, 0.5]), ("visits", [1.0, 4.0])])
def test_probability_below(idata, column, limits):
    found = dp.predict(
        idata, "t", NEW, of=column, kind="probability", below=limits, probability=0.8, random_seed=1
    )
    assert found["mean"].dims == ("new_row", "below")
    for i, x in enumerate(NEW["x"]):
        each = [distribution(*mixture, x, column) for mixture in mixtures(idata)]
        density = np.array([own for _, own in each])
        for g, limit in enumerate(limits):
            strict = limit - 1.0 if column == "visits" else limit
            below = np.array([cdf(strict) for cdf, _ in each])
            assert found["mean"][i, g] == pytest.approx(np.average(below, weights=density), abs=0.02)
            for key, tail in (("lower", 0.1), ("upper", 0.9)):
                assert found[key][i, g] == pytest.approx(np.quantile(below, tail), abs=0.03)
    one = dp.predict(idata, "t", NEW, of=column, kind="probability", below=limits[0], random_seed=1)
    assert one["mean"].dims == ("new_row",)
    np.testing.assert_allclose(one["mean"], found["mean"][:, 0])


@pytest.mark.parametrize("column", ["y", "visits"])
def test_bands_of_quantiles(idata, column):
    found = dp.predict(
        idata, "t", NEW, of=column, kind="quantiles", quantiles=[0.3, 0.9], probability=0.8, random_seed=1
    )
    for i, x in enumerate(NEW["x"]):
        each = [distribution(*mixture, x, column)[0] for mixture in mixtures(idata)]
        for g, level in enumerate((0.3, 0.9)):
            if column == "visits":
                drawn = [next(c for c in range(200) if cdf(c) >= level) for cdf in each]
            else:
                drawn = [brentq(lambda c, f=cdf, p=level: f(c) - p, -60.0, 60.0) for cdf in each]
            for key, tail in (("lower", 0.1), ("upper", 0.9)):
                assert found[key][g, i] == pytest.approx(
                    np.quantile(drawn, tail), abs=1.0 if column == "visits" else 0.12
                )
        assert np.all(found["lower"] <= found["upper"])


def test_what_is_refused(idata):
    with pytest.raises(ValueError, match="below must be a finite number"):
        dp.predict(idata, "t", NEW, of="y", kind="probability", below=np.inf)
    with pytest.raises(ValueError, match="say below= which number"):
        dp.predict(idata, "t", NEW, of="y", kind="probability")
    with pytest.raises(ValueError, match="below"):
        dp.predict(idata, "t", NEW, of="y", kind="mean", below=1.0)
