"""Families with parameters and data, for tests that run for all of them."""

import itertools

import numpy as np
from slowly import slow_but

import pymc_dpgmm as dp

SPREAD_PSI = [[1.3, 0.9, -0.2], [0.9, 1.1, 0.1], [-0.2, 0.1, 0.7]]
RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(9, 3)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.5, 0.3], [0.0, 0.0, 1.5]]) + [1, -2, 0.5]
COVARIATES = np.column_stack([np.ones(9), RNG.normal(size=9), RNG.normal(size=9) ** 2])
BITS = (RNG.random((9, 3)) < [0.2, 0.5, 0.9]).astype(float)
CODES = np.column_stack([RNG.integers(2, size=9), RNG.integers(4, size=9), np.zeros(9)]).astype(float)
COUNTS = RNG.poisson([2.0, 9.0], size=(9, 2)).astype(float)
EXPOSURE = RNG.gamma(2.0, 1.0, size=9)
TRIALS = np.array([3, 40, 0, 1, 7, 100, 12, 5, 2])
SUCCESSES = RNG.binomial(TRIALS, 0.3).astype(float)
WORDS = RNG.multinomial([3, 40, 0, 1, 7, 100, 12, 5, 2], [0.1, 0.2, 0.3, 0.4]).astype(float)
VARIANCES = RNG.gamma(4.0, 0.3, size=(9, 2))
COVARIANCES = np.einsum("nij,nkj->nik", *[RNG.normal(size=(9, 2, 2))] * 2) + 0.5 * np.eye(2)
SEEN = (RNG.random((9, 2)) < 0.7).astype(float)
SEEN[0] = 1.0
SUMMED = np.array([3.0, 1.0, 2.0, 0.0, 1.0, 4.0, 1.0, 0.0, 2.0])
TIMES = RNG.exponential([0.5, 4.0], size=(9, 2))
SHAPES = RNG.uniform(0.5, 4.0, size=(9, 2))
ANGLES = RNG.vonmises([3.0, 0.5], [1.0, 3.0], size=(9, 2))


def multisets(d, total):
    """All rows of d counts with a total."""
    return np.array([c for c in itertools.product(range(total + 1), repeat=d) if sum(c) == total])


# Base measure, values with columns for what is given, columns that are modelled, and all values of a row.
CASES = {
    "niw": (dp.NormalInverseWishart([0.4, -1.0, 2.0], 0.3, 3.4, SPREAD_PSI), ROWS, 3, None),
    "niw-tight": (dp.NormalInverseWishart(0.0, 20.0, 2.05, np.diag([1e-3, 1.0, 1e3])), ROWS, 3, None),
    "niw-one-column": (dp.NormalInverseWishart(0.3, 0.3, 2.4, [[0.8]]), ROWS[:, :1], 1, None),
    "nig": (dp.NormalInverseGamma([0.4, -1.0, 2.0], 0.3, 1.7, [0.2, 1.0, 3.0]), ROWS, 3, None),
    "nig-columns": (dp.NormalInverseGamma(0.1, [0.2, 1.0, 4.0], [0.6, 2.0, 5.0], 0.8), ROWS, 3, None),
    "nig-one-column": (dp.NormalInverseGamma(0.1, 0.2, 0.6, 0.8), ROWS[:, :1], 1, None),
    "spherical": (dp.SphericalNormalInverseGamma([0.4, -1.0, 2.0], 0.3, 1.7, 0.4, [0.5, 1.0, 2.0]), ROWS, 3, None),
    "spherical-one-column": (dp.SphericalNormalInverseGamma(0.1, 0.2, 1.6, 0.8), ROWS[:, :1], 1, None),
    "regression": (
        dp.LinearRegression([0.5, -1.0, 0.3], SPREAD_PSI, 1.3, 0.7, COVARIATES),
        np.column_stack([ROWS[:, 0], COVARIATES]),
        1,
        None,
    ),
    "regression-line": (
        dp.LinearRegression(0.0, 0.05, 0.9, 0.2, COVARIATES[:, :2]),
        np.column_stack([ROWS[:, 0], COVARIATES[:, :2]]),
        1,
        None,
    ),
    "bernoulli": (dp.BetaBernoulli([0.3, 1.0, 2.0], [0.8, 0.5, 1e-3]), BITS, 3, list(np.ndindex(2, 2, 2))),
    "bernoulli-one-column": (dp.BetaBernoulli(0.3, 0.8), BITS[:, :1], 1, list(np.ndindex(2))),
    "categorical": (
        dp.DirichletCategorical([0.4, 1.5, 0.9], [2, 4, 1]),
        CODES,
        3,
        list(np.ndindex(2, 4, 1)),
    ),
    "categorical-levels": (
        dp.DirichletCategorical([[0.4, 1.5, 9.0], [0.2, 0.7, 0.6]], [2, 3]),
        np.column_stack([CODES[:, 0], np.minimum(CODES[:, 1], 2)]),
        2,
        list(np.ndindex(2, 3)),
    ),
    "multinomial": (
        dp.DirichletMultinomial([0.3, 1.0, 2.5, 0.7]),
        np.column_stack([WORDS, WORDS.sum(axis=1)]),
        4,
        multisets(4, 3),
    ),
    "poisson": (
        dp.GammaPoisson([1.5, 3.0], [0.4, 2.0], EXPOSURE),
        np.column_stack([COUNTS, EXPOSURE, EXPOSURE]),
        2,
        None,
    ),
    "poisson-one-column": (
        dp.GammaPoisson(3.0, 2.0, EXPOSURE),
        np.column_stack([COUNTS[:, 0], EXPOSURE]),
        1,
        np.arange(200.0)[:, None],
    ),
    "binomial": (
        dp.BetaBinomial([0.6, 2.0], [1.4, 0.3], TRIALS),
        np.column_stack([SUCCESSES, TRIALS - SUCCESSES, TRIALS, TRIALS]),
        2,
        list(np.ndindex(4, 4)),
    ),
    "known-variance": (
        dp.NormalKnownVariance([0.4, -1.0], [1.5, 0.7], VARIANCES),
        np.column_stack([ROWS[:, :2], VARIANCES]),
        2,
        None,
    ),
    "known-variance-one-column": (
        dp.NormalKnownVariance(0.4, 1.5, 3.0 * VARIANCES[:, 0]),
        np.column_stack([ROWS[:, 0], 3.0 * VARIANCES[:, 0]]),
        1,
        None,
    ),
    "known-covariance": (
        dp.NormalKnownCovariance([0.4, -1.0], [[1.5, 0.4], [0.4, 0.7]], COVARIANCES),
        np.column_stack([ROWS[:, :2], COVARIANCES.reshape(9, 4)]),
        2,
        None,
    ),
    "known-covariance-three-columns": (
        dp.NormalKnownCovariance(0.1, [1.5, 0.7, 2.0], np.repeat(np.array([SPREAD_PSI]), 9, axis=0)),
        np.column_stack([ROWS, np.tile(np.ravel(SPREAD_PSI), (9, 1))]),
        3,
        None,
    ),
    "shared-covariance": (dp.SharedCovariance([0.4, -1.0, 2.0], 0.3, SPREAD_PSI), ROWS, 3, None),
    "shared-covariance-one-column": (dp.SharedCovariance(0.3, 0.3, [[0.8]]), ROWS[:, :1], 1, None),
    "exponential": (
        dp.GammaExponential([1.5, 3.0], [0.4, 2.0], SEEN),
        np.column_stack([TIMES, SEEN]),
        2,
        None,
    ),
    "exponential-one-column": (
        dp.GammaExponential(1.5, 0.4, SEEN[:, 0]),
        np.column_stack([TIMES[:, 0], SEEN[:, 0]]),
        1,
        None,
    ),
    "exponential-sums": (
        dp.GammaExponential(1.5, 0.4, SUMMED),
        np.column_stack([TIMES[:, 0], SUMMED]),
        1,
        None,
    ),
    "gamma": (dp.GammaGamma([1.5, 3.0], [0.4, 2.0], SHAPES), np.column_stack([TIMES, SHAPES]), 2, None),
    "gamma-one-column": (dp.GammaGamma(1.5, 0.4, 2.5), np.column_stack([TIMES[:, 0], np.full(9, 2.5)]), 1, None),
    "negative-binomial": (
        dp.BetaNegativeBinomial([2.6, 3.0], [1.4, 4.0], SHAPES),
        np.column_stack([COUNTS, SHAPES]),
        2,
        None,
    ),
    "negative-binomial-one-column": (
        dp.BetaNegativeBinomial(9.0, 2.5, 3.5),
        np.column_stack([COUNTS[:, 0], np.full(9, 3.5)]),
        1,
        np.arange(3_000.0)[:, None],
    ),
    "directions": (dp.VonMises([3.0, 0.4], [0.3, 0.5], [1.5, 6.0]), ANGLES, 2, None),
    "directions-one-column": (dp.VonMises(3.0, 0.3, 2.5), ANGLES[:, :1], 1, None),
}

# Further cases of families that have one already: by default their checks are left to the slow suite.
FURTHER = {
    "known-variance-one-column",
    "known-covariance-three-columns",
    "shared-covariance-one-column",
    "exponential-one-column",
    "exponential-sums",
    "gamma-one-column",
    "negative-binomial-one-column",
    "directions-one-column",
    "spherical-one-column",
    "regression-line",
    "niw-one-column",
}


def with_further_slow(names):
    """Return names of cases as parameters of tests, of which further ones are slow."""
    return slow_but(names, lambda name: name not in FURTHER)
