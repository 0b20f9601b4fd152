r"""Successes out of known numbers of trials: the beta-binomial family.

For each column :math:`p \sim \mathrm{Beta}(a, b)` and :math:`x_i \sim \mathrm{Binomial}(t_i, p)`. With S successes
and F failures in a cluster, p is Beta(a + S, b + F), and the predictive of x successes out of t is

.. math:: \binom{t}{x} \frac{B(a + S + x, b + F + t - x)}{B(a + S, b + F)}.

Rows hold successes, failures, and the sum over columns of the logs of the binomial coefficients.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln
from scipy.special import psi as digamma

from pymc_dpgmm.dispatch import compiled, implements
from pymc_dpgmm.families import verbs
from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.component import Component
from pymc_dpgmm.families.counts import check_counts, check_positive, log_rising, missing_as_nothing
from pymc_dpgmm.families.slots import slotted
from pymc_dpgmm.families.sums import no_sums
from pymc_dpgmm.families.verbs import Family


class Params(NamedTuple):
    """Parameters of the base measure, per column: ``a`` > 0 and ``b`` > 0, both (d,)."""

    a: np.ndarray
    b: np.ndarray


@slotted("size", "successes", "failures", "constant")
class Stats(NamedTuple):
    """Counts of each slot, and the parameters."""

    a: np.ndarray
    b: np.ndarray
    size: np.ndarray
    successes: np.ndarray
    failures: np.ndarray
    constant: np.ndarray


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    stats.size[k] = summary.size[j]
    stats.constant[k] = summary.constant[j]
    for column in range(stats.a.shape[0]):
        stats.successes[k, column] = summary.first[j, column]
        stats.failures[k, column] = summary.second[j, column]


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.a.shape[0]
    stats.size[k] += 1
    stats.constant[k] += x[2 * d]
    for j in range(d):
        stats.successes[k, j] += x[j]
        stats.failures[k, j] += x[d + j]


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.a.shape[0]
    stats.size[k] -= 1
    stats.constant[k] -= x[2 * d]
    for j in range(d):
        stats.successes[k, j] -= x[j]
        stats.failures[k, j] -= x[d + j]
    return True


@compiled()
def _log_evidence(a, b, successes, failures):
    """Log of B(a + successes, b + failures) / B(a, b)."""
    return log_rising(a, successes) + log_rising(b, failures) - log_rising(a + b, successes + failures)


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.a.shape[0]
    total = x[2 * d]
    for j in range(d):
        a, b = stats.a[j] + stats.successes[k, j], stats.b[j] + stats.failures[k, j]
        total += _log_evidence(a, b, x[j], x[d + j])
    return total


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.a.shape[0]
    total = x[2 * d]
    for j in range(d):
        a = stats.a[j] + (stats.successes[k, j] - x[j])
        b = stats.b[j] + (stats.failures[k, j] - x[d + j])
        total += _log_evidence(a, b, x[j], x[d + j])
    return total


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    total = stats.constant[k]
    for j in range(stats.a.shape[0]):
        total += _log_evidence(stats.a[j], stats.b[j], stats.successes[k, j], stats.failures[k, j])
    return total


@implements(verbs.log_marginal_likelihood, Params)
def _(params, summary):
    total = 0.0
    for k in range(summary.size.shape[0]):
        total += summary.constant[k]
        for j in range(params.a.shape[0]):
            total += _log_evidence(params.a[j], params.b[j], summary.first[k, j], summary.second[k, j])
    return total


@implements(verbs.log_marginal_gradient, Params)
def _(params, summary):
    a_n, b_n = params.a + summary.first, params.b + summary.second
    common = digamma(params.a + params.b) - digamma(a_n + b_n)
    return Params(
        a=np.sum(common + digamma(a_n) - digamma(params.a), axis=0),
        b=np.sum(common + digamma(b_n) - digamma(params.b), axis=0),
    )


def _check_values(params: Params, values: np.ndarray) -> None:
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


def _allocate_stats(params: Params, n: int, capacity: int) -> Stats:
    a, b = (np.ascontiguousarray(value, dtype=np.float64) for value in params)
    return Stats(a, b, *no_sums(capacity, len(a)))


def draw(rng: np.random.Generator, params: Any, summary: Any) -> dict[str, np.ndarray]:
    """Draw the probabilities of clusters, given sums of their successes and failures."""
    return {"probability": rng.beta(params.a + summary.first, params.b + summary.second)}


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
    params=Params,
    axes={"a": "d", "b": "d"},
    check=check_positive,
    check_values=_check_values,
    allocate_summary=lambda params, capacity: no_sums(capacity, len(params.a)),
    allocate_stats=_allocate_stats,
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
