r"""Probabilities with a beta prior that are seen through successes and failures: what such families share.

For each column :math:`p \sim \mathrm{Beta}(a, b)`, and a row with u successes and v failures has the probability
:math:`c \, p^u (1 - p)^v`, where c does not depend on the cluster. With the sums U and V of a cluster, p is
Beta(a + U, b + V), and the probability of a row given these is

.. math:: c \, \frac{B(a + U + u, b + V + v)}{B(a + U, b + V)}.

Rows hold successes, failures, and the sum over columns of log c.
"""

from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.component import DrawnValues
from pymc_dpgmm.families.contract.expected import LinearExpectation
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import positive
from pymc_dpgmm.families.shared.counts import log_beta_ratio
from pymc_dpgmm.native.special import digamma, digamma_rises


def _update(p, n, s, x, sign):
    share = 1.0
    for j in range(p.d):
        before = p.a[j] + s.successes[j]
        s.successes[j] = max(s.successes[j] + sign * x[j], 0.0)
        s.failures[j] += sign * x[p.d + j]
        share = min(share, (p.a[j] + s.successes[j]) / before)
    s.constant[0] += sign * x[2 * p.d]
    return share


def _log_evidence(p, n, s):
    total = s.constant[0]
    for j in range(p.d):
        total += log_beta_ratio(p.a[j], p.b[j], s.successes[j], s.failures[j])
    return total


def _log_predictive(p, n, s, c, x):
    # A difference of two log evidences would lose digits where counts are large.
    total = x[2 * p.d]
    for j in range(p.d):
        total += log_beta_ratio(p.a[j] + s.successes[j], p.b[j] + s.failures[j], x[j], x[p.d + j])
    return total, 0.0, 1.0


def gradient(params: Any, successes: np.ndarray, failures: np.ndarray) -> DrawnValues:
    """Gradient of the log evidence in a and b, summed over clusters with these successes and failures, (K, d)."""
    common = digamma_rises(params.a + params.b, successes + failures)
    return {
        "a": np.sum(digamma_rises(params.a, successes) - common, axis=0),
        "b": np.sum(digamma_rises(params.b, failures) - common, axis=0),
    }


def _expected(params: Any, s: Any) -> LinearExpectation:
    a_n, b_n = params.a + s.successes, params.b + s.failures
    total = digamma(a_n + b_n)
    factors = {"successes": digamma(a_n) - total, "failures": digamma(b_n) - total}
    return LinearExpectation(np.zeros(len(s.n)), factors | {"constant": np.ones(len(s.n))})


def draw_probabilities(rng: np.random.Generator, params: Any, s: Any) -> DrawnValues:
    """Draw the probabilities of clusters given their rows."""
    return {"probability": rng.beta(params.a + s.successes, params.b + s.failures)}


def log_bernoulli(drawn: DrawnValues, successes: np.ndarray, failures: np.ndarray) -> np.ndarray:
    """Log densities (n, K) of rows of successes and failures, without the binomial coefficients."""
    # Draws of p can round to 0 or 1. Without a lower bound, a count of 0 times log 0 would be NaN.
    smallest, p = np.finfo(np.float64).tiny, drawn["probability"]
    return successes @ np.log(np.maximum(p, smallest)).T + failures @ np.log(np.maximum(1.0 - p, smallest)).T


def beta_probabilities(name: str, **fields: Any) -> Family:
    """Return the family of rows that ``represent`` takes apart into successes, failures and log c."""
    return Family(
        name=name,
        parameters={"a": positive("d"), "b": positive("d")},
        sums={"successes": "d", "failures": "d", "constant": ""},
        update=_update,
        log_evidence=_log_evidence,
        gradient=lambda params, s: gradient(params, s.successes, s.failures),
        expected=_expected,
        cache={},
        log_predictive=_log_predictive,
        **fields,
    )
