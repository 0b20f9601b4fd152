r"""Binary columns, independent within a cluster: the beta-Bernoulli family.

For each column :math:`p \sim \mathrm{Beta}(a, b)` and :math:`x_i \mid p \sim \mathrm{Bernoulli}(p)`. With s ones
among n rows of a cluster, p is Beta(a + s, b + n - s) and the predictive of a one is (a + s) / (a + b + n).

Stats keep, per cluster, the logits of the columns' predictive probabilities and the log predictive of a row of
zeros, so that the log predictive of a row is a scalar product.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import psi as digamma

from pymc_dpgmm.dispatch import FASTMATH, compiled, implements
from pymc_dpgmm.families import beta_binomial, verbs
from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.component import Component
from pymc_dpgmm.families.counts import check_positive, log_rising, missing_as_nothing
from pymc_dpgmm.families.slots import slotted
from pymc_dpgmm.families.verbs import Family

# Columns that share one logarithm of a product of weights, unless it is smaller than this.
_BLOCK = 8
_SMALLEST = 1e-280


class Params(NamedTuple):
    """Parameters of the base measure, per column: ``a`` > 0 and ``b`` > 0, both (d,)."""

    a: np.ndarray
    b: np.ndarray


@slotted("size", "ones")
class Summary(NamedTuple):
    """Number of rows and of ones in each column of each cluster: (K,), (K, d)."""

    size: np.ndarray
    ones: np.ndarray


@slotted("size", "ones", "logit", "of_zeros")
class Stats(NamedTuple):
    """Cached predictives: the arrays of ``capacity`` slots and what they share."""

    a: np.ndarray
    b: np.ndarray
    size: np.ndarray
    ones: np.ndarray
    logit: np.ndarray
    of_zeros: np.ndarray
    norms: np.ndarray


@compiled(inline="always")
def _refresh(stats, k):
    """Derive the predictive of a slot from its counts."""
    n = stats.size[k]
    total = -stats.norms[n]
    for j in range(stats.a.shape[0]):
        log_zero = math.log(stats.b[j] + (n - stats.ones[k, j]))
        stats.logit[k, j] = math.log(stats.a[j] + stats.ones[k, j]) - log_zero
        total += log_zero
    stats.of_zeros[k] = total


@implements(verbs.summarize, Summary)
def _(summary, k, rows, members):
    d = rows.shape[1]
    summary.size[k] = members.shape[0]
    for j in range(d):
        summary.ones[k, j] = 0.0
    for i in members:
        for j in range(d):
            summary.ones[k, j] += rows[i, j]


@implements(verbs.combine, Summary)
def _(summary, k, j):
    summary.size[k] += summary.size[j]
    for column in range(summary.ones.shape[1]):
        summary.ones[k, column] += summary.ones[j, column]


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    stats.size[k] = summary.size[j]
    for column in range(stats.a.shape[0]):
        stats.ones[k, column] = summary.ones[j, column]
    _refresh(stats, k)


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    stats.size[k] += 1
    for j in range(stats.a.shape[0]):
        stats.ones[k, j] += x[j]
    _refresh(stats, k)


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    stats.size[k] -= 1
    for j in range(stats.a.shape[0]):
        stats.ones[k, j] -= x[j]
    _refresh(stats, k)
    return True


@compiled(_nrt=False, forceinline=True, fastmath=FASTMATH)
def _scalar_product(u, v):
    total = 0.0
    for j in range(u.shape[0]):
        total += u[j] * v[j]
    return total


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    return stats.of_zeros[k] + _scalar_product(stats.logit[k], x)


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.a.shape[0]
    n = stats.size[k]
    total = -stats.norms[n - 1]
    for q in range((d + _BLOCK - 1) // _BLOCK):
        product = 1.0
        for j in range(q * _BLOCK, min((q + 1) * _BLOCK, d)):
            one = stats.a[j] + (stats.ones[k, j] - 1.0)
            zero = stats.b[j] + (n - stats.ones[k, j] - 1.0)
            product *= x[j] * one + (1.0 - x[j]) * zero
        if product > _SMALLEST:
            total += math.log(product)
        else:
            for j in range(q * _BLOCK, min((q + 1) * _BLOCK, d)):
                one = stats.a[j] + (stats.ones[k, j] - 1.0)
                zero = stats.b[j] + (n - stats.ones[k, j] - 1.0)
                total += math.log(one if x[j] > 0.0 else zero)
    return total


@compiled()
def _log_evidence(a, b, n, ones):
    """Log marginal likelihood of n values of one column, ``ones`` of them ones, in their order."""
    return log_rising(a, ones) + log_rising(b, n - ones) - log_rising(a + b, n)


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    total = 0.0
    for j in range(stats.a.shape[0]):
        total += _log_evidence(stats.a[j], stats.b[j], stats.size[k], stats.ones[k, j])
    return total


@implements(verbs.log_marginal_likelihood, Params)
def _(params, summary):
    total = 0.0
    for k in range(summary.size.shape[0]):
        for j in range(params.a.shape[0]):
            total += _log_evidence(params.a[j], params.b[j], summary.size[k], summary.ones[k, j])
    return total


@implements(verbs.log_marginal_gradient, Params)
def _(params, summary):
    size = summary.size[:, None]
    common = digamma(params.a + params.b) - digamma(params.a + params.b + size)
    return Params(
        a=np.sum(common + digamma(params.a + summary.ones) - digamma(params.a), axis=0),
        b=np.sum(common + digamma(params.b + size - summary.ones) - digamma(params.b), axis=0),
    )


def _check_values(params: Params, values: np.ndarray) -> None:
    bad = (values != 0) & (values != 1)
    if np.any(bad):
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"binary columns must be 0 or 1, got {values[row, column]} in row {row}")


def _allocate_summary(params: Params, capacity: int) -> Summary:
    return Summary(size=np.zeros(capacity, dtype=np.int64), ones=np.zeros((capacity, len(params.a))))


def _allocate_stats(params: Params, n: int, capacity: int) -> Stats:
    d = len(params.a)
    return Stats(
        a=np.ascontiguousarray(params.a, dtype=np.float64),
        b=np.ascontiguousarray(params.b, dtype=np.float64),
        size=np.zeros(capacity, dtype=np.int64),
        ones=np.zeros((capacity, d)),
        logit=np.zeros((capacity, d)),
        of_zeros=np.zeros(capacity),
        norms=_log_norms(params.a + params.b, n),
    )


def _log_norms(totals: np.ndarray, n: int) -> np.ndarray:
    """Return sums over columns of ``log(totals + m)`` for m = 0..n rows: (n + 1,)."""
    rows = np.arange(n + 1.0)
    norms = np.zeros(n + 1)
    for total in totals:
        norms += np.log(total + rows)
    return norms


def _draw(rng: np.random.Generator, params: Params, summary: Summary) -> dict[str, np.ndarray]:
    return {"probability": rng.beta(params.a + summary.ones, params.b + summary.size[:, None] - summary.ones)}


def _draw_rows(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, given: np.ndarray
) -> np.ndarray:
    probability = drawn["probability"][labels]
    return (rng.random(probability.shape) < probability).astype(np.float64)


def _log_density(drawn: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    # Draws can be 0 or 1 to working precision; products with a zero are then not a number.
    p = np.clip(drawn["probability"], np.finfo(np.float64).tiny, 1.0)
    ones = np.nan_to_num(values, nan=0.0)
    zeros = np.where(np.isnan(values), 0.0, 1.0 - ones)
    return ones @ np.log(p).T + zeros @ np.log(np.maximum(1.0 - p, np.finfo(np.float64).tiny)).T


COMPONENT = Component(axes={"probability": "d"}, draw=_draw, draw_rows=_draw_rows, log_density=_log_density)

FAMILY = Family(
    name="BetaBernoulli",
    params=Params,
    axes={"a": "d", "b": "d"},
    check=check_positive,
    check_values=_check_values,
    allocate_summary=_allocate_summary,
    allocate_stats=_allocate_stats,
    component=COMPONENT,
    from_data=lambda rows: {"a": np.ones(rows.shape[1]), "b": np.ones(rows.shape[1])},
)


def _represent_incomplete(params: Params, values: np.ndarray) -> tuple[np.ndarray, None]:
    return beta_binomial.represent(params, missing_as_nothing(np.hstack([values, np.ones_like(values)])))


# One trial, or none where an entry is missing.
FAMILY = replace(
    FAMILY,
    incomplete=replace(
        beta_binomial.FAMILY,
        name="IncompleteBetaBernoulli",
        takes_missing=True,
        check_values=lambda params, values: _check_values(params, np.where(np.isnan(values), 0.0, values)),
        represent=_represent_incomplete,
        component=replace(COMPONENT, draw=beta_binomial.draw),
        given={},
        incomplete=None,
    ),
)


class BetaBernoulli(BaseMeasure):
    """Base measure of binary columns that are independent within a cluster, for (n,) or (n, d) data of 0 and 1.

    ``p ~ Beta(a, b)`` for each cluster and column. A scalar parameter serves all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Prior numbers of ones and zeros.

    Notes
    -----
    ``from_data`` takes a = b = 1: uniform probabilities.
    """

    family = FAMILY

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__(a=a, b=b)
