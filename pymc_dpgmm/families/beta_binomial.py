r"""Successes out of known numbers of trials: the beta-binomial family.

For each column :math:`p \sim \mathrm{Beta}(a, b)` and :math:`x_i \sim \mathrm{Binomial}(t_i, p)`. With S successes
and F failures in a cluster, p is Beta(a + S, b + F), and the predictive of x successes out of t is

.. math:: \binom{t}{x} \frac{B(a + S + x, b + F + t - x)}{B(a + S, b + F)}.

Rows hold successes, failures, and the sum over columns of the logs of the binomial coefficients.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from pymc_dpgmm.compiled import inlined
from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.component import Component
from pymc_dpgmm.families.counts import check_counts, check_positive, log_rising, missing_as_nothing
from pymc_dpgmm.families.family import Family
from pymc_dpgmm.special import digamma, gammaln


def _update(p, n, s, x, sign):
    for j in range(p.d):
        s.successes[j] += sign * x[j]
        s.failures[j] += sign * x[p.d + j]
    s.constant[0] += sign * x[2 * p.d]
    return 1.0


@inlined
def _log_ratio(a, b, successes, failures):
    """Log of B(a + successes, b + failures) / B(a, b)."""
    return log_rising(a, successes) + log_rising(b, failures) - log_rising(a + b, successes + failures)


def _log_evidence(p, n, s):
    total = s.constant[0]
    for j in range(p.d):
        total += _log_ratio(p.a[j], p.b[j], s.successes[j], s.failures[j])
    return total


def _log_predictive(p, n, s, c, x):
    # Not a difference of two evidences, which would lose digits where counts are large.
    total = x[2 * p.d]
    for j in range(p.d):
        total += _log_ratio(p.a[j] + s.successes[j], p.b[j] + s.failures[j], x[j], x[p.d + j])
    return total, 0.0, 1.0


def _log_predictive_without(p, n, s, c, x):
    total = x[2 * p.d]
    for j in range(p.d):
        a, b = p.a[j] + (s.successes[j] - x[j]), p.b[j] + (s.failures[j] - x[p.d + j])
        total += _log_ratio(a, b, x[j], x[p.d + j])
    return total, 0.0, 1.0


def _gradient(params: Any, s: Any) -> dict[str, Any]:
    a_n, b_n = params.a + s.successes, params.b + s.failures
    common = digamma(params.a + params.b) - digamma(a_n + b_n)
    return {
        "a": np.sum(common + digamma(a_n) - digamma(params.a), axis=0),
        "b": np.sum(common + digamma(b_n) - digamma(params.b), axis=0),
    }


def _check_values(params: Any, values: np.ndarray) -> None:
    successes, trials = np.hsplit(values, 2)
    check_counts("observed", successes)
    check_counts("trials", trials)
    bad = successes > trials
    if np.any(bad):
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"successes must not exceed trials, got {successes[row, column]} of {trials[row, column]} in row {row}"
        )


def represent(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    """Return successes, failures and constants of rows of successes and trials."""
    successes, trials = np.hsplit(values, 2)
    failures = trials - successes
    constants = np.sum(gammaln(trials + 1.0) - gammaln(successes + 1.0) - gammaln(failures + 1.0), axis=1)
    return np.ascontiguousarray(np.column_stack([successes, failures, constants])), None


def draw(rng: np.random.Generator, params: Any, s: Any) -> dict[str, np.ndarray]:
    """Draw the probabilities of clusters, given sums of their successes and failures."""
    return {"probability": rng.beta(params.a + s.successes, params.b + s.failures)}


def _draw_rows(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, given: np.ndarray
) -> np.ndarray:
    return rng.binomial(given.astype(np.int64), drawn["probability"][labels]).astype(np.float64)


def _log_density(drawn: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    successes, trials = np.hsplit(missing_as_nothing(values), 2)
    p = np.clip(drawn["probability"], np.finfo(np.float64).tiny, 1.0)
    constants = gammaln(trials + 1) - gammaln(successes + 1) - gammaln(trials - successes + 1)
    failures = (trials - successes) @ np.log(np.maximum(1.0 - p, np.finfo(np.float64).tiny)).T
    return successes @ np.log(p).T + failures + constants.sum(axis=1)[:, None]


FAMILY = Family(
    name="BetaBinomial",
    axes={"a": "d", "b": "d"},
    check=check_positive,
    check_values=_check_values,
    sums={"successes": "d", "failures": "d", "constant": ""},
    update=_update,
    log_evidence=_log_evidence,
    gradient=_gradient,
    cache={},
    refresh=lambda p, n, s, c: None,
    log_predictive=_log_predictive,
    log_predictive_without=_log_predictive_without,
    represent=represent,
    component=Component(axes={"probability": "d"}, draw=draw, draw_rows=_draw_rows, log_density=_log_density),
    given={"trials": "d"},
)
# No successes out of no trials have probability 1, whatever p is.
FAMILY = replace(
    FAMILY,
    incomplete=replace(
        FAMILY,
        name="IncompleteBetaBinomial",
        takes_missing=True,
        check_values=lambda params, values: _check_values(params, missing_as_nothing(values)),
        represent=lambda params, values: represent(params, missing_as_nothing(values)),
    ),
)


class BetaBinomial(BaseMeasure):
    """Base measure of successes out of known trials, independent within a cluster, for (n,) or (n, d) data.

    ``p ~ Beta(a, b)`` for each cluster and column, and successes Binomial(trials, p): variant reads out of all
    reads, say. A scalar parameter serves all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Prior numbers of successes and failures.
    trials : scalar, (n,) or (n, d) array_like or pm.Data, >= 0
        Whole numbers of trials of each row, for all columns or each. Rows without trials are allowed; they belong
        anywhere.
    """

    family = FAMILY

    def __init__(self, a: Any, b: Any, trials: Any) -> None:
        super().__init__(given={"trials": trials}, a=a, b=b)
