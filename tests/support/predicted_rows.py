"""A mixture of each family, and a new row of it, for the tests of what is predicted."""

import numpy as np

import pymc_dpgmm as dp

RNG = np.random.default_rng(6)
PAIRS = np.array([[0.1, 0.4], [1.4, 1.1], [1.2, 0.3], [-2.0, -1.0], [0.9, 1.3], [-1.5, -2.2]])
LABELS = np.array([[0, 1, 1, 2, 1, 2], [0, 0, 0, 1, 0, 1], [0, 0, 0, 0, 0, 0]])
ALPHAS = np.array([0.4, 1.7, 0.9])
COUNTS = RNG.poisson([2.0, 6.0], size=(6, 2)).astype(float)
TRIALS = np.array([3.0, 8.0, 5.0, 9.0, 4.0, 6.0])
SUCCESSES = RNG.binomial(TRIALS[:, None].astype(int), [0.3, 0.6], size=(6, 2)).astype(float)
BITS = (RNG.random((6, 2)) < 0.5).astype(float)
CODES = np.column_stack([RNG.integers(2, size=6), [0, 1, 2, 2, 1, 0]]).astype(float)
X = np.array([0.2, 1.1, 1.6, -1.7, 0.8, -1.1])
DESIGN = np.column_stack([np.ones(6), X])
NIG = {"mu": 0.3, "kappa": 0.4, "a": 3.0, "b": 1.2}
ERRORS = np.einsum("nij,nkj->nik", *[RNG.normal(size=(6, 2, 2))] * 2) + 0.2 * np.eye(2)
TIMES = RNG.exponential([0.8, 3.0], size=(6, 2))
SEEN = np.array([1, 1, 0, 1, 0, 1])
# Nodes and weights over the positive numbers.
POSITIVE = np.exp(np.linspace(-38.0, 26.0, 321))
OF_POSITIVE = POSITIVE * 0.2


class Case:
    """A mixture of one view, and one new row of it with the second column unknown."""

    def __init__(self, base, rows, row, support=None, given=None, weights=None):
        self.base, self.rows, self.row, self.support, self.given = base, rows, row, support, given
        self.weights = weights


CASES = {
    "niw": Case(dp.NormalInverseWishart([0.2, -0.1], 0.4, 4.5, [[1.0, 0.6], [0.6, 0.9]]), PAIRS, 1.0),
    "spherical": Case(dp.SphericalNormalInverseGamma([0.2, -0.1], 0.4, 2.5, 0.9, [1.0, 0.6]), PAIRS, 1.0),
    "nig": Case(dp.NormalInverseGamma([0.2, -0.1], 0.4, 2.5, [0.9, 0.5]), PAIRS, 1.0),
    "poisson": Case(dp.GammaPoisson([1.5, 3.0], [0.6, 0.5]), COUNTS, 2.0, np.arange(150.0)),
    "exposed": Case(
        dp.GammaPoisson([1.5, 3.0], [0.6, 0.5], np.arange(1.0, 7.0)),
        COUNTS,
        2.0,
        np.arange(400.0),
        {"exposure": [2.5]},
    ),
    "binomial": Case(
        dp.BetaBinomial([0.6, 2.0], [1.4, 0.8], TRIALS), SUCCESSES, 4.0, np.arange(8.0), {"trials": [7]}
    ),
    "known-variance": Case(
        dp.NormalKnownVariance([0.2, -0.1], [1.5, 0.8], np.linspace(0.2, 0.9, 6)),
        PAIRS,
        1.0,
        given={"variance": [0.5]},
    ),
    "known-covariance": Case(
        dp.NormalKnownCovariance([0.2, -0.1], [[1.5, 0.4], [0.4, 0.8]], ERRORS),
        PAIRS,
        1.0,
        given={"covariance": ERRORS[:1].reshape(1, 4)},
    ),
    "shared": Case(dp.SharedCovariance([0.2, -0.1], 0.4, [[1.0, 0.6], [0.6, 0.9]]), PAIRS, 1.0),
    "exponential": Case(
        dp.GammaExponential([1.6, 2.5], [0.6, 0.5], SEEN), TIMES, 1.0, POSITIVE, {"events": [1]}, OF_POSITIVE
    ),
    "gamma": Case(
        dp.GammaGamma([1.6, 2.5], [0.6, 0.5], np.linspace(0.5, 3.0, 6)),
        TIMES,
        1.0,
        POSITIVE,
        {"shape": [1.5]},
        OF_POSITIVE,
    ),
    "negative-binomial": Case(
        dp.BetaNegativeBinomial([6.0, 9.0], [1.4, 2.5], np.linspace(0.5, 3.0, 6)),
        COUNTS,
        2.0,
        np.arange(4_000.0),
        {"size": [1.5]},
    ),
    "bernoulli": Case(dp.BetaBernoulli([0.6, 2.0], [1.4, 0.8]), BITS, 1.0, np.arange(2.0)),
    "categorical": Case(dp.DirichletCategorical([0.7, 1.2], [2, 3]), CODES, 1.0, np.arange(3.0)),
}
REAL = [name for name, case in CASES.items() if case.support is None or case.weights is not None]
# Nodes and weights over the real line, for integrands with heavy tails.
T = np.linspace(-7.0, 7.0, 281)
NODES = np.sinh(T)
WEIGHTS = np.cosh(T) * (T[1] - T[0])


def stored(case, values):
    """Rows as the exact marginals take them, with columns for what is given."""
    if case.base.family.given:
        (given,) = case.base.given.values() if case.given is None else case.given.values()
        values = np.hstack([values, as_columns(given, values.shape)])
    return values


def as_columns(given, shape):
    given = np.asarray(given, float)
    return given if given.ndim == 2 else np.broadcast_to(given.reshape(-1, 1), shape)


def stored_data(case):
    if not case.base.family.given:
        return case.rows
    (given,) = case.base.given.values()
    return np.hstack([case.rows, as_columns(given, case.rows.shape)])
