r"""The normal-inverse-gamma family for rows with missing entries, which are NaN.

Columns are independent given a cluster, and entries missing at random integrate out: each column has the posterior
of :mod:`pymc_dpgmm.families.normal_inverse_gamma` with its own number n of entries. An entry that is
missing contributes nothing to a predictive, and a row of which all are missing has density 1 in every cluster.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from pymc_dpgmm.dispatch import compiled, implements
from pymc_dpgmm.families import normal_columns, verbs
from pymc_dpgmm.families.normal_columns import log_evidence
from pymc_dpgmm.families.shares import ROUNDING, WORST_ERROR, log_share
from pymc_dpgmm.families.slots import slotted


class Params(NamedTuple):
    """Parameters of the base measure, per column: ``mu``, ``kappa`` > 0, ``a`` > 0 and ``b`` > 0, all (d,)."""

    mu: np.ndarray
    kappa: np.ndarray
    a: np.ndarray
    b: np.ndarray


@slotted("size", "mean", "squares")
class Summary(NamedTuple):
    """Number of entries, mean and sum of squares about the mean, of each cluster and column: (K, d) each."""

    size: np.ndarray
    mean: np.ndarray
    squares: np.ndarray


@slotted("size", "mean", "scale", "rate", "shift", "constant", "error")
class Stats(NamedTuple):
    """Cached predictives: (capacity, d) arrays but for ``error`` (capacity,), and what slots share.

    ``scale`` is b_n, ``rate`` and ``shift`` are as in the family of complete rows, ``norms`` (n + 1, d) the
    normalising constants given 0..n entries.
    """

    mu: np.ndarray
    kappa: np.ndarray
    a: np.ndarray
    b: np.ndarray
    size: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    rate: np.ndarray
    shift: np.ndarray
    constant: np.ndarray
    error: np.ndarray
    norms: np.ndarray


def _log_norms(params: Params, n: int) -> np.ndarray:
    """Normalising constants of the predictive given 0..n entries, without the scales: (n + 1, d)."""
    entries = np.arange(n + 1.0)[:, None]
    a_n, kappa_n = params.a + 0.5 * entries, params.kappa + entries
    ratios = gammaln(a_n + 0.5) - gammaln(a_n)
    return ratios - 0.5 * math.log(2.0 * math.pi) - 0.5 * np.log1p(1.0 / kappa_n)


@compiled(inline="always")
def _refresh(stats, k, j):
    """Derive what the predictive of a column needs from its size, mean and b_n."""
    kappa_n = stats.kappa[j] + stats.size[k, j]
    rate = math.sqrt(kappa_n / (2.0 * stats.scale[k, j] * (kappa_n + 1.0)))
    stats.rate[k, j] = rate
    stats.shift[k, j] = rate * stats.mean[k, j]
    stats.constant[k, j] = stats.norms[stats.size[k, j], j] - 0.5 * math.log(stats.scale[k, j])


@implements(verbs.summarize, Summary)
def _(summary, k, rows, members):
    for j in range(rows.shape[1]):
        n, mean, squares = 0, 0.0, 0.0
        for i in members:
            if not math.isnan(rows[i, j]):
                n += 1
                mean += rows[i, j]
        mean /= max(n, 1)
        for i in members:
            if not math.isnan(rows[i, j]):
                squares += (rows[i, j] - mean) ** 2
        summary.size[k, j] = n
        summary.mean[k, j] = mean
        summary.squares[k, j] = squares


@implements(verbs.combine, Summary)
def _(summary, k, j):
    # Chan, Golub and LeVeque (1983), eq. 2.1.
    for column in range(summary.mean.shape[1]):
        total = summary.size[k, column] + summary.size[j, column]
        share = summary.size[j, column] / max(total, 1)
        weight = share * summary.size[k, column]
        between = summary.mean[j, column] - summary.mean[k, column]
        summary.squares[k, column] += summary.squares[j, column] + weight * between * between
        summary.mean[k, column] += share * between
        summary.size[k, column] = total


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    for column in range(stats.mu.shape[0]):
        n = summary.size[j, column]
        kappa_n = stats.kappa[column] + n
        offset = summary.mean[j, column] - stats.mu[column]
        stats.size[k, column] = n
        stats.mean[k, column] = stats.mu[column] + n / kappa_n * offset
        stats.scale[k, column] = stats.b[column] + 0.5 * (
            summary.squares[j, column] + stats.kappa[column] * n / kappa_n * offset * offset
        )
        _refresh(stats, k, column)
    stats.error[k] = 0.0


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    for j in range(stats.mu.shape[0]):
        x = rows[i, j]
        if not math.isnan(x):
            kappa_n = stats.kappa[j] + stats.size[k, j]
            deviation = x - stats.mean[k, j]
            stats.scale[k, j] += 0.5 * kappa_n / (kappa_n + 1.0) * deviation * deviation
            stats.mean[k, j] += deviation / (kappa_n + 1.0)
            stats.size[k, j] += 1
            _refresh(stats, k, j)
    stats.error[k] += ROUNDING


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    smallest = 1.0
    for j in range(stats.mu.shape[0]):
        x = rows[i, j]
        if not math.isnan(x):
            kappa_n = stats.kappa[j] + stats.size[k, j]
            deviation = x - stats.mean[k, j]
            lost = 0.5 * kappa_n / (kappa_n - 1.0) * deviation * deviation
            left = max(1.0 - lost / stats.scale[k, j], ROUNDING)
            smallest = min(smallest, left)
            stats.scale[k, j] *= left
            stats.mean[k, j] -= deviation / (kappa_n - 1.0)
            stats.size[k, j] -= 1
            _refresh(stats, k, j)
    good = stats.error[k] + ROUNDING <= WORST_ERROR * smallest
    stats.error[k] = (stats.error[k] + ROUNDING) / smallest
    return good


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    total = 0.0
    for j in range(stats.mu.shape[0]):
        x = rows[i, j]
        if not math.isnan(x):
            root = stats.rate[k, j] * x - stats.shift[k, j]
            exponent = stats.a[j] + 0.5 * stats.size[k, j] + 0.5
            total += stats.constant[k, j] - exponent * math.log(1.0 + root * root)
    return total


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    # As in the family of complete rows, per column.
    total = 0.0
    for j in range(stats.mu.shape[0]):
        x = rows[i, j]
        if not math.isnan(x):
            n = stats.size[k, j]
            kappa_n = stats.kappa[j] + n
            root = stats.rate[k, j] * x - stats.shift[k, j]
            left = 1.0 - root * root * (kappa_n + 1.0) / (kappa_n - 1.0)
            constant = stats.norms[n - 1, j] - 0.5 * math.log(stats.scale[k, j])
            total += constant + (stats.a[j] + 0.5 * n - 0.5) * log_share(left)
    return total


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    total = 0.0
    for j in range(stats.mu.shape[0]):
        total += log_evidence(stats.kappa[j], stats.a[j], stats.b[j], stats.size[k, j], stats.scale[k, j])
    return total


@implements(verbs.log_marginal_likelihood, Params)
def _(params, summary):
    total = 0.0
    for k in range(summary.size.shape[0]):
        for j in range(params.mu.shape[0]):
            n, kappa = summary.size[k, j], params.kappa[j]
            offset = summary.mean[k, j] - params.mu[j]
            scale = params.b[j] + 0.5 * (summary.squares[k, j] + kappa * n / (kappa + n) * offset * offset)
            total += log_evidence(kappa, params.a[j], params.b[j], n, scale)
    return total


@implements(verbs.log_marginal_gradient, Params)
def _(params, summary):
    return normal_columns.log_marginal_gradient(params, summary.size, summary)


@implements(verbs.data_gradient, Params)
def _(params, summary, rows, labels):
    gradient = normal_columns.data_gradient(params, summary.size, summary, rows, labels)
    return np.where(np.isnan(rows), 0.0, gradient)


def allocate_summary(params: Any, capacity: int) -> Summary:
    """Allocate a summary."""
    d = len(params.mu)
    return Summary(
        size=np.zeros((capacity, d), dtype=np.int64),
        mean=np.zeros((capacity, d)),
        squares=np.zeros((capacity, d)),
    )


def allocate_stats(params: Any, n: int, capacity: int) -> Stats:
    """Allocate statistics for n rows."""
    d = len(params.mu)
    mu, kappa, a, b = (np.ascontiguousarray(value, dtype=np.float64) for value in params)
    return Stats(
        mu=mu,
        kappa=kappa,
        a=a,
        b=b,
        size=np.zeros((capacity, d), dtype=np.int64),
        mean=np.zeros((capacity, d)),
        scale=np.ones((capacity, d)),
        rate=np.zeros((capacity, d)),
        shift=np.zeros((capacity, d)),
        constant=np.zeros((capacity, d)),
        error=np.zeros(capacity),
        norms=_log_norms(params, n),
    )
