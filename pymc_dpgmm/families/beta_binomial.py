r"""Successes out of known numbers of trials: the beta-binomial family.

For each column :math:`p \sim \mathrm{Beta}(a, b)` and :math:`x_i \sim \mathrm{Binomial}(t_i, p)`. With S successes
and F failures in a cluster, p is Beta(a + S, b + F), and the predictive of x successes out of t is

.. math:: \binom{t}{x} \frac{B(a + S + x, b + F + t - x)}{B(a + S, b + F)}.

Rows hold successes, failures, and the sum over columns of the logs of the binomial coefficients.
"""

from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, Drawn
from pymc_dpgmm.families.contract.expected import Linear
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import positive, refuse_where
from pymc_dpgmm.families.shared.counts import check_counts, log_beta_ratio, missing_as_nothing, with_missing
from pymc_dpgmm.native.special import digamma, digamma_rises, gammaln


def _update(p, n, s, x, sign):
    for j in range(p.d):
        s.successes[j] += sign * x[j]
        s.failures[j] += sign * x[p.d + j]
    s.constant[0] += sign * x[2 * p.d]
    return 1.0


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


def gradient(params: Any, successes: np.ndarray, failures: np.ndarray) -> Drawn:
    """Gradient of the log evidence in a and b, summed over clusters with these successes and failures, (K, d)."""
    common = digamma_rises(params.a + params.b, successes + failures)
    return {
        "a": np.sum(digamma_rises(params.a, successes) - common, axis=0),
        "b": np.sum(digamma_rises(params.b, failures) - common, axis=0),
    }


def _predictive(params: Any, s: Any) -> Drawn:
    a_n, b_n = params.a + s.successes, params.b + s.failures
    return {"probability": a_n / (a_n + b_n)}


def _expected(params: Any, s: Any) -> Linear:
    a_n, b_n = params.a + s.successes, params.b + s.failures
    total = digamma(a_n + b_n)
    factors = {"successes": digamma(a_n) - total, "failures": digamma(b_n) - total}
    return Linear(np.zeros(len(s.n)), factors | {"constant": np.ones(len(s.n))})


def _check_values(params: Any, values: np.ndarray) -> None:
    successes, trials = np.hsplit(values, 2)
    check_counts("observed", successes)
    check_counts("trials", trials)
    refuse_where(successes > trials, "successes must not exceed trials", successes, trials)


def _log_coefficients(successes: np.ndarray, failures: np.ndarray) -> np.ndarray:
    logs = gammaln(successes + failures + 1.0) - gammaln(successes + 1.0) - gammaln(failures + 1.0)
    return np.sum(logs, axis=1)


def _represent(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    successes, trials = np.hsplit(values, 2)
    failures = trials - successes
    return np.column_stack([successes, failures, _log_coefficients(successes, failures)]), None


def _draw(rng: np.random.Generator, params: Any, s: Any) -> Drawn:
    return {"probability": rng.beta(params.a + s.successes, params.b + s.failures)}


def _draw_rows(rng: np.random.Generator, drawn: Drawn, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    return rng.binomial(given.astype(np.int64), drawn["probability"][labels]).astype(np.float64)


def log_bernoulli(drawn: Drawn, successes: np.ndarray, failures: np.ndarray) -> np.ndarray:
    """Log densities (n, K) of rows of successes and failures, without the binomial coefficients."""
    # Draws of p can round to 0 or 1. Without a lower bound, a count of 0 times log 0 would be NaN.
    smallest, p = np.finfo(np.float64).tiny, drawn["probability"]
    return successes @ np.log(np.maximum(p, smallest)).T + failures @ np.log(np.maximum(1.0 - p, smallest)).T


def _mean(drawn: Drawn, values: np.ndarray) -> np.ndarray:
    return np.hsplit(values, 2)[1][:, None, :] * drawn["probability"]


def _log_density(drawn: Drawn, values: np.ndarray) -> np.ndarray:
    successes, trials = np.hsplit(missing_as_nothing(values), 2)
    failures = trials - successes
    return log_bernoulli(drawn, successes, failures) + _log_coefficients(successes, failures)[:, None]


class BetaBinomial(BaseMeasure):
    """Base measure of successes out of known trials, independent within a cluster, for (n,) or (n, d) data.

    Each cluster and column has a probability ``p ~ Beta(a, b)``, and the successes are Binomial(trials, p). An
    example is the number of variant reads among all reads. A scalar parameter applies to all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Prior numbers of successes and of failures.
    trials : scalar, (n,) or (n, d) array_like or pm.Data, >= 0
        Number of trials of each row, the same for all columns or one for each: whole numbers. Rows without trials
        are allowed; only the prior decides about their cluster.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> import pymc as pm
    >>> with pm.Model():
    ...     base = dp.BetaBinomial(a=1.0, b=1.0, trials=[30, 42, 25])
    ...     y = dp.DPMixture("y", 1.0, base, observed=[14, 3, 12])
    """

    family = with_missing(
        Family(
            name="BetaBinomial",
            parameters={"a": positive("d"), "b": positive("d")},
            check_values=_check_values,
            sums={"successes": "d", "failures": "d", "constant": ""},
            update=_update,
            log_evidence=_log_evidence,
            gradient=lambda params, s: gradient(params, s.successes, s.failures),
            predictive=_predictive,
            expected=_expected,
            cache={},
            log_predictive=_log_predictive,
            represent=_represent,
            component=Component(
                {"probability": "d"}, _draw, _draw_rows, _log_density, is_discrete=True, mean=_mean
            ),
            given={"trials": "d"},
        )
    )

    def __init__(self, a: Any, b: Any, trials: Any) -> None:
        super().__init__(given={"trials": trials}, a=a, b=b)
