r"""Counts, with exposure: the gamma-Poisson family.

For each column :math:`\lambda \sim \mathrm{Gamma}(a, b)`, b a rate, and :math:`x_i \sim \mathrm{Poisson}(\lambda
e_i)` for a known exposure :math:`e_i`. With sum S of the counts and E of the exposures of a cluster,
:math:`\lambda` is Gamma(a + S, b + E), and the predictive of a count x with exposure e is negative binomial,

.. math:: \frac{\Gamma(a + S + x)}{\Gamma(a + S) x!} \Big(\frac{b + E}{b + E + e}\Big)^{a + S}
          \Big(\frac{e}{b + E + e}\Big)^x.

Rows hold counts, exposures, and the sum over columns of x log e - log x!, which does not depend on the cluster.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, xlogy
from scipy.special import psi as digamma

from pymc_dpgmm.dispatch import compiled, implements
from pymc_dpgmm.families import verbs
from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.component import Component
from pymc_dpgmm.families.counts import check_counts, check_positive, log_rising, missing_as_nothing
from pymc_dpgmm.families.shares import ROUNDING, WORST_ERROR, log_share
from pymc_dpgmm.families.slots import slotted
from pymc_dpgmm.families.sums import no_sums
from pymc_dpgmm.families.verbs import Family


class Params(NamedTuple):
    """Parameters of the base measure, per column: ``a`` > 0 and ``b`` > 0, both (d,)."""

    a: np.ndarray
    b: np.ndarray


@slotted("size", "counts", "rate", "log_rate", "constant", "error")
class Stats(NamedTuple):
    """Cached predictives: the arrays of ``capacity`` slots and what they share. ``rate`` is b + E."""

    a: np.ndarray
    b: np.ndarray
    size: np.ndarray
    counts: np.ndarray
    rate: np.ndarray
    log_rate: np.ndarray
    constant: np.ndarray
    error: np.ndarray


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    stats.size[k] = summary.size[j]
    stats.constant[k] = summary.constant[j]
    stats.error[k] = 0.0
    for column in range(stats.a.shape[0]):
        stats.counts[k, column] = summary.first[j, column]
        stats.rate[k, column] = stats.b[column] + summary.second[j, column]
        stats.log_rate[k, column] = math.log(stats.rate[k, column])


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.a.shape[0]
    stats.size[k] += 1
    stats.constant[k] += x[2 * d]
    stats.error[k] += ROUNDING
    for j in range(d):
        stats.counts[k, j] += x[j]
        stats.rate[k, j] += x[d + j]
        stats.log_rate[k, j] = math.log(stats.rate[k, j])


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.a.shape[0]
    stats.size[k] -= 1
    stats.constant[k] -= x[2 * d]
    smallest = 1.0
    for j in range(d):
        left = max(1.0 - x[d + j] / stats.rate[k, j], ROUNDING)
        smallest = min(smallest, left)
        stats.counts[k, j] -= x[j]
        stats.rate[k, j] *= left
        stats.log_rate[k, j] = math.log(stats.rate[k, j])
    # There is no early return: see families/shares.py on branches. A slot that was not to be changed is undefined.
    good = stats.error[k] + ROUNDING <= WORST_ERROR * smallest
    stats.error[k] = (stats.error[k] + ROUNDING) / smallest
    return good


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.a.shape[0]
    total = x[2 * d]
    for j in range(d):
        shape = stats.a[j] + stats.counts[k, j]
        total += (
            log_rising(shape, x[j])
            + shape * stats.log_rate[k, j]
            - (shape + x[j]) * math.log(stats.rate[k, j] + x[d + j])
        )
    return total


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.a.shape[0]
    total = x[2 * d]
    for j in range(d):
        shape = stats.a[j] + (stats.counts[k, j] - x[j])
        left = 1.0 - x[d + j] / stats.rate[k, j]
        total += log_rising(shape, x[j]) + shape * log_share(left) - x[j] * stats.log_rate[k, j]
    return total


@compiled()
def _log_evidence(a, b, count, rate, log_rate):
    """Log marginal likelihood of one column, without the rows' constants; ``rate`` is b and the exposures."""
    return log_rising(a, count) - a * math.log1p((rate - b) / b) - count * log_rate


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    total = stats.constant[k]
    for j in range(stats.a.shape[0]):
        total += _log_evidence(stats.a[j], stats.b[j], stats.counts[k, j], stats.rate[k, j], stats.log_rate[k, j])
    return total


@implements(verbs.log_marginal_likelihood, Params)
def _(params, summary):
    total = 0.0
    for k in range(summary.size.shape[0]):
        total += summary.constant[k]
        for j in range(params.a.shape[0]):
            rate = params.b[j] + summary.second[k, j]
            total += _log_evidence(params.a[j], params.b[j], summary.first[k, j], rate, math.log(rate))
    return total


@implements(verbs.log_marginal_gradient, Params)
def _(params, summary):
    rate = params.b + summary.second
    shape = params.a + summary.first
    return Params(
        a=np.sum(digamma(shape) - digamma(params.a) + np.log(params.b / rate), axis=0),
        b=np.sum(params.a / params.b - shape / rate, axis=0),
    )


def _check_values(params: Params, values: np.ndarray) -> None:
    counts, exposure = np.hsplit(values, 2)
    check_counts("observed", counts)
    bad = ~(exposure > 0)
    if np.any(bad):
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"exposure must be > 0, got {exposure[row, column]} in row {row}")


def _represent(params: Params, values: np.ndarray) -> tuple[np.ndarray, None]:
    counts, exposure = np.hsplit(values, 2)
    constants = np.sum(xlogy(counts, exposure) - gammaln(counts + 1.0), axis=1)
    return np.ascontiguousarray(np.column_stack([values, constants])), None


def _allocate_stats(params: Params, n: int, capacity: int) -> Stats:
    d = len(params.a)
    return Stats(
        a=np.ascontiguousarray(params.a, dtype=np.float64),
        b=np.ascontiguousarray(params.b, dtype=np.float64),
        size=np.zeros(capacity, dtype=np.int64),
        counts=np.zeros((capacity, d)),
        rate=np.zeros((capacity, d)),
        log_rate=np.zeros((capacity, d)),
        constant=np.zeros(capacity),
        error=np.zeros(capacity),
    )


def _draw(rng: np.random.Generator, params: Params, summary: Any) -> dict[str, np.ndarray]:
    return {"rate": rng.gamma(params.a + summary.first, 1.0 / (params.b + summary.second))}


def _draw_rows(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, given: np.ndarray
) -> np.ndarray:
    return rng.poisson(drawn["rate"][labels] * given).astype(np.float64)


def _log_density(drawn: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    counts, exposure = np.hsplit(missing_as_nothing(values), 2)
    rate = np.maximum(drawn["rate"], np.finfo(np.float64).tiny)
    constants = xlogy(counts, exposure) - gammaln(counts + 1)
    return counts @ np.log(rate).T - exposure @ rate.T + constants.sum(axis=1)[:, None]


FAMILY = Family(
    name="GammaPoisson",
    params=Params,
    axes={"a": "d", "b": "d"},
    check=check_positive,
    check_values=_check_values,
    allocate_summary=lambda params, capacity: no_sums(capacity, len(params.a)),
    allocate_stats=_allocate_stats,
    represent=_represent,
    component=Component(axes={"rate": "d"}, draw=_draw, draw_rows=_draw_rows, log_density=_log_density),
    given={"exposure": "d"},
    from_data=lambda rows: {
        "a": np.ones(rows.shape[1]),
        "b": 1.0 / np.maximum(np.nanmean(rows, axis=0), 1.0 / len(rows)),
    },
)


def _check_incomplete(params: Params, values: np.ndarray) -> None:
    counts, exposure = np.hsplit(values, 2)
    _check_values(params, np.hstack([np.where(np.isnan(counts), 0.0, counts), exposure]))


# No counts of no exposure have probability 1, whatever the rate is.
FAMILY = replace(
    FAMILY,
    incomplete=replace(
        FAMILY,
        name="IncompleteGammaPoisson",
        takes_missing=True,
        check_values=_check_incomplete,
        represent=lambda params, values: _represent(params, missing_as_nothing(values)),
    ),
)


class GammaPoisson(BaseMeasure):
    """Base measure of counts that are Poisson and independent within a cluster, for (n,) or (n, d) data.

    ``rate ~ Gamma(a, b)`` with mean ``a / b`` for each cluster and column, and counts Poisson(rate times
    exposure). A scalar parameter serves all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Shape and rate of the prior.
    exposure : scalar, (n,) or (n, d) array_like or variable, > 0
        Exposure of each row, for all columns or each: person-years, area, total depth. 1 by default.

    Notes
    -----
    ``from_data`` takes a = 1 and b = 1 / column means (of at least 1 / n): rates around the data's.
    """

    family = FAMILY

    def __init__(self, a: Any, b: Any, exposure: Any = 1.0) -> None:
        super().__init__(given={"exposure": exposure}, a=a, b=b)
