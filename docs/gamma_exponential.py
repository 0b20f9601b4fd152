r"""A family of one's own, exponential waiting times with a gamma prior on the rate, and the tests it must pass.

For each column :math:`\lambda \sim \mathrm{Gamma}(a, b)`, b a rate, and :math:`x_i \sim
\mathrm{Exponential}(\lambda)`. With sum S of the n values of a cluster, :math:`\lambda` is Gamma(a + n, b + S),
and the predictive is Lomax's,

.. math:: (a + n) (b + S)^{a + n} / (b + S + x)^{a + n + 1}.

Copy this file, and replace the formulas. ``python docs/gamma_exponential.py`` runs the contract test, and the
sampler against an enumeration of all partitions of six rows.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import psi as digamma
from scipy.stats import lomax

import pymc_dpgmm as dp
from pymc_dpgmm.dispatch import compiled, implements
from pymc_dpgmm.families import Family, verbs
from pymc_dpgmm.families.component import Component
from pymc_dpgmm.families.counts import check_positive
from pymc_dpgmm.families.shares import ROUNDING, WORST_ERROR, log_share
from pymc_dpgmm.families.slots import slotted
from pymc_dpgmm.testing import check_family, check_sampler


# The fields of Params are the arguments of the base measure.
class Params(NamedTuple):
    """Parameters of the base measure, per column: ``a`` > 0 and ``b`` > 0, both (d,)."""

    a: np.ndarray
    b: np.ndarray


# Sufficient statistics of clusters, free of parameters. ``slotted`` names the arrays that have a slot per cluster.
@slotted("size", "sums")
class Summary(NamedTuple):
    """Number of rows, and sums of each column: (K,), (K, d)."""

    size: np.ndarray
    sums: np.ndarray


# What the sampler keeps of clusters to tell predictives fast. ``rate`` is b + S.
@slotted("size", "rate", "log_rate", "error")
class Stats(NamedTuple):
    """Cached predictives: the arrays of the slots, and the parameters."""

    a: np.ndarray
    b: np.ndarray
    size: np.ndarray
    rate: np.ndarray
    log_rate: np.ndarray
    error: np.ndarray


@implements(verbs.summarize, Summary)
def _(summary, k, rows, members):
    summary.size[k] = members.shape[0]
    for j in range(rows.shape[1]):
        summary.sums[k, j] = 0.0
        for i in members:
            summary.sums[k, j] += rows[i, j]


@implements(verbs.combine, Summary)
def _(summary, k, j):
    summary.size[k] += summary.size[j]
    for column in range(summary.sums.shape[1]):
        summary.sums[k, column] += summary.sums[j, column]


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    stats.size[k] = summary.size[j]
    stats.error[k] = 0.0
    for column in range(stats.a.shape[0]):
        stats.rate[k, column] = stats.b[column] + summary.sums[j, column]
        stats.log_rate[k, column] = math.log(stats.rate[k, column])


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    stats.size[k] += 1
    stats.error[k] += ROUNDING
    for j in range(stats.a.shape[0]):
        stats.rate[k, j] += rows[i, j]
        stats.log_rate[k, j] = math.log(stats.rate[k, j])


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    # A value that was most of a sum takes its digits along. Where they are too few, False asks the caller to fit
    # the slot anew from its rows. Families of whole numbers lose none and return True.
    stats.size[k] -= 1
    smallest = 1.0
    for j in range(stats.a.shape[0]):
        left = max(1.0 - rows[i, j] / stats.rate[k, j], ROUNDING)
        smallest = min(smallest, left)
        stats.rate[k, j] *= left
        stats.log_rate[k, j] = math.log(stats.rate[k, j])
    good = stats.error[k] + ROUNDING <= WORST_ERROR * smallest
    stats.error[k] = (stats.error[k] + ROUNDING) / smallest
    return good


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    total = 0.0
    for j in range(stats.a.shape[0]):
        shape = stats.a[j] + stats.size[k]
        total += math.log(shape) + shape * stats.log_rate[k, j]
        total -= (shape + 1.0) * math.log(stats.rate[k, j] + rows[i, j])
    return total


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    # The row is in the slot. log_share is NaN where too few digits would be left: the caller then removes the row.
    total = 0.0
    for j in range(stats.a.shape[0]):
        shape = stats.a[j] + (stats.size[k] - 1.0)
        left = 1.0 - rows[i, j] / stats.rate[k, j]
        total += math.log(shape) + shape * log_share(left) - stats.log_rate[k, j]
    return total


@compiled()
def _log_evidence(a, b, n, rate):
    """Log marginal likelihood of n values of one column."""
    return math.lgamma(a + n) - math.lgamma(a) + a * math.log(b) - (a + n) * math.log(rate)


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    total = 0.0
    for j in range(stats.a.shape[0]):
        total += _log_evidence(stats.a[j], stats.b[j], stats.size[k], stats.rate[k, j])
    return total


# These two are called from Python: they give the model's density and its gradient.
@implements(verbs.log_marginal_likelihood, Params)
def _(params, summary):
    total = 0.0
    for k in range(len(summary.size)):
        for j in range(len(params.a)):
            rate = params.b[j] + summary.sums[k, j]
            total += _log_evidence(params.a[j], params.b[j], summary.size[k], rate)
    return total


@implements(verbs.log_marginal_gradient, Params)
def _(params, summary):
    shape, rate = params.a + summary.size[:, None], params.b + summary.sums
    return Params(
        a=np.sum(digamma(shape) - digamma(params.a) + np.log(params.b / rate), axis=0),
        b=np.sum(params.a / params.b - shape / rate, axis=0),
    )


def _check_values(params: Params, values: np.ndarray) -> None:
    if np.any(values < 0):
        raise ValueError(f"waiting times must be >= 0, got {values.min()}")


def _allocate_summary(params: Params, capacity: int) -> Summary:
    return Summary(np.zeros(capacity, dtype=np.int64), np.zeros((capacity, len(params.a))))


def _allocate_stats(params: Params, n: int, capacity: int) -> Stats:
    d = len(params.a)
    return Stats(
        a=np.ascontiguousarray(params.a),
        b=np.ascontiguousarray(params.b),
        size=np.zeros(capacity, dtype=np.int64),
        rate=np.ones((capacity, d)),
        log_rate=np.zeros((capacity, d)),
        error=np.zeros(capacity),
    )


def _draw(rng: np.random.Generator, params: Params, summary: Summary) -> dict[str, np.ndarray]:
    return {"rate": rng.gamma(params.a + summary.size[:, None], 1.0 / (params.b + summary.sums))}


def _draw_rows(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, given: np.ndarray
) -> np.ndarray:
    return rng.exponential(1.0 / drawn["rate"][labels])


def _log_density(drawn: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    return np.log(drawn["rate"]).sum(axis=1) - values @ drawn["rate"].T


FAMILY = Family(
    name="GammaExponential",
    params=Params,
    axes={"a": "d", "b": "d"},
    check=check_positive,
    check_values=_check_values,
    allocate_summary=_allocate_summary,
    allocate_stats=_allocate_stats,
    component=Component(axes={"rate": "d"}, draw=_draw, draw_rows=_draw_rows, log_density=_log_density),
)


# A class with a family of its own registers it: that is all.
class GammaExponential(dp.BaseMeasure):
    """Base measure of exponential waiting times: ``rate ~ Gamma(a, b)`` for each cluster and column."""

    family = FAMILY

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__(a=a, b=b)


def slow_log_marginal(values: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """Telescoping predictives by SciPy, which share nothing with the above."""
    total = 0.0
    for i, x in enumerate(values):
        total += lomax.logpdf(x, a + i, scale=b + values[:i].sum(axis=0)).sum()
    return total


TIMES = np.array([[0.3], [0.1], [2.5], [4.0], [0.2], [1.1], [0.7]])

if __name__ == "__main__":
    check_family(GammaExponential(1.3, 0.4), TIMES, slow_log_marginal)
    check_family(GammaExponential([1.3, 0.5], 2.0), np.hstack([TIMES, TIMES[::-1]]), slow_log_marginal)
    print("the contract is kept")
    check_sampler(GammaExponential(1.3, 0.4), TIMES[:6], slow_log_marginal, n_draws=200_000)
    print("the sampler agrees with the enumeration")
