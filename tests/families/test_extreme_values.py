"""Digits at extremes, against products and against Stirling's series in fifty digits; what is refused there."""

from decimal import Decimal, getcontext

import dask.array
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.testing import Contract

getcontext().prec = 50
# Bernoulli numbers over 2 k (2 k - 1), for the series of log gamma.
SERIES = [Decimal(1) / 12, Decimal(-1) / 360, Decimal(1) / 1260, Decimal(-1) / 1680, Decimal(1) / 1188]
HALF_LOG_TWO_PI = Decimal("0.91893853320467274178032973640561763986139747363778")


def log_gamma(x):
    """Log gamma of a number above 1,000, to more digits than floats have."""
    x = Decimal(x)
    series = sum(c / x ** (2 * k + 1) for k, c in enumerate(SERIES))
    return (x - Decimal("0.5")) * x.ln() - x + HALF_LOG_TWO_PI + series


def log_predictive(base, rows, new):
    """Log density of a new row given rows, all with what comes with them."""
    values = np.vstack([rows, new]).astype(float)
    table = Contract(base, values, None, d=1).table([range(len(rows))])
    return float(table.log_predictives(1)[-1])


@pytest.mark.parametrize("size", [4.0, 1e6, 1e9, 1e12, 1e15])
def test_counts_of_any_size(size):
    """With whole b = 2 and a count of 3, the beta functions are products."""
    a, b, count = size + 2.5, 2.0, 3.0
    found = log_predictive(dp.BetaNegativeBinomial(a, b, size), np.empty((0, 2)), [[count, size]])
    a, size = Decimal(a), Decimal(size)
    of_beta = (Decimal(2 * 3 * 4) * a * (a + 1)).ln() - sum((a + size + i).ln() for i in range(5))
    coefficient = sum((size + i).ln() for i in range(3)) - Decimal(6).ln()
    assert found == pytest.approx(float(of_beta + coefficient), rel=1e-11)


@pytest.mark.parametrize(("total", "count"), [(1e4, 2e3), (1e9, 1e7), (1e13, 1e9)])
def test_rates_of_very_many_events(total, count):
    """Of one row, with a = b = 1, and a new one with the same exposure."""
    found = log_predictive(dp.GammaPoisson(1.0, 1.0, 1.0), [[total, 1.0]], [[count, 1.0]])
    total, count, rate = Decimal(total), Decimal(count), Decimal(2)
    shape = total + 1
    wanted = log_gamma(shape + count) - log_gamma(shape) - log_gamma(count + 1)
    wanted += shape * (rate / (rate + 1)).ln() - count * (rate + 1).ln()
    # The coefficient x log e - log x! of a row is a float of its own.
    assert found == pytest.approx(float(wanted), rel=1e-12, abs=1e-15 * float(count * count.ln()))


def test_many_rows_far_from_each_other_beside_their_errors_are_refused():
    """Each alone would be near enough."""
    rows = np.linspace(-1e5, 1e5, 10_000)
    with pm.Model(), pytest.raises(ValueError, match="leaves too few digits"):
        dp.DPMixture("y", 1.0, dp.NormalKnownVariance(0.0, 1e10, np.ones(10_000)), observed=rows)
    with pm.Model():
        dp.DPMixture("y", 1.0, dp.NormalKnownVariance(0.0, 1e10, np.ones(50)), observed=rows[:50])


def test_chunks_far_from_each_other_beside_their_errors_are_refused():
    """The check of one chunk does not know where the others are; the first pass does."""
    rows = dask.array.from_array(np.repeat([0.0, 1e9], 500), chunks=500)
    with pm.Model(), pytest.raises(RuntimeError, match="at least a millionth"):
        dp.DPMixture("y", 1.0, dp.NormalKnownVariance(0.0, 1e18, 1.0), observed=rows)


def test_prior_draws_of_rates_that_are_too_large_for_poisson_draws():
    with pm.Model():
        dp.DPMixture("y", 1.0, dp.GammaPoisson(1.0, 1e-25), observed=[1, 2, 3])
        assert np.all(np.isfinite(pm.sample_prior_predictive(5, random_seed=1).prior_predictive["y"]))


PLANE = [[1.0, 0.2], [0.2, 1.0]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: dp.NormalInverseGamma(np.ma.array([1e9, 2.0], mask=[True, False]), 1, 1, 1),
            ValueError,
            "masked",
        ),
        (lambda: dp.NormalInverseWishart(0.0, 1, 4, [[1e20, 4e9], [-4e9, 1.0]]), ValueError, "must be symmetric"),
        (
            lambda: dp.NormalKnownCovariance(0.0, [1.0, 1.0], [pd.DataFrame(PLANE, columns=["b", "a"])] * 3),
            TypeError,
            "got frames",
        ),
        (lambda: dp.VonMises(180.0, 1.0, 2.0), ValueError, "mu must be radians"),
        (lambda: dp.LinearRegression(0.0, [1.0, 2.0, 3.0], 1, 1, np.ones((5, 2))), ValueError, "for 2 covariates"),
    ],
    ids=["masked", "not symmetric", "frames", "degrees", "precision"],
)
def test_parameters_that_would_be_misread_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (np.ones((4, 3)), "for the d = 3 columns"),
        (np.repeat([[[1.0, 1 - 1e-13, 0], [1 - 1e-13, 1.0, 0], [0, 0, 1.0]]], 4, axis=0), "nearly singular"),
    ],
    ids=["variances", "singular"],
)
def test_covariances_that_would_be_misread_are_refused(covariance, message):
    rows = np.arange(12.0).reshape(4, 3)
    with pm.Model(), pytest.raises(ValueError, match=message):
        dp.DPMixture("y", 1.0, dp.NormalKnownCovariance(0.0, np.ones(3), covariance), observed=rows)


def test_several_times_in_one_row_need_a_time():
    with pm.Model(), pytest.raises(ValueError, match="times of several events must be > 0"):
        dp.DPMixture("y", 1.0, dp.GammaExponential(1.0, 1.0, [2, 1, 1]), observed=[0.0, 0.0, 1.0])
