r"""Gaussian clusters with independent columns: the normal-inverse-gamma family.

For each column

.. math:: s^2 \sim \mathrm{InverseGamma}(a, b), \qquad m \mid s^2 \sim N(\mu, s^2 / \kappa), \qquad
          x_i \mid m, s^2 \sim N(m, s^2)

with :math:`E s^2 = b / (a - 1)`. For a cluster of n rows with mean :math:`\bar x` and sum of squares w about it,

.. math:: \kappa_n = \kappa + n, \quad a_n = a + n / 2, \quad
          \mu_n = (\kappa \mu + n \bar x) / \kappa_n, \quad
          b_n = b + \tfrac12 w + \frac{\kappa n}{2 \kappa_n} (\bar x - \mu)^2

(Murphy 2007, eqs 197-200). The predictive of a column is a t with :math:`2 a_n` degrees of freedom, location
:math:`\mu_n` and squared scale :math:`b_n (\kappa_n + 1) / (a_n \kappa_n)`.

Stats keep, per cluster and column, :math:`r = \sqrt{\kappa_n / (2 b_n (\kappa_n + 1))}`, so that the argument of
the t density is :math:`1 + (r x - r \mu_n)^2`.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from pymc_dpgmm.dispatch import FASTMATH, compiled, implements
from pymc_dpgmm.families import incomplete_normal_inverse_gamma, normal_columns, verbs
from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.defaults import column_variances
from pymc_dpgmm.families.normal_columns import log_evidence
from pymc_dpgmm.families.origins import centred, shift_mean
from pymc_dpgmm.families.shares import ROUNDING, WORST_ERROR, log_share
from pymc_dpgmm.families.slots import slotted
from pymc_dpgmm.families.verbs import Family

# Columns that share the exponent share one logarithm of the product of their t arguments, up to this product.
_LARGEST = 1e300


class Params(NamedTuple):
    """Parameters of the base measure, per column: ``mu``, ``kappa`` > 0, ``a`` > 0 and ``b`` > 0, all (d,)."""

    mu: np.ndarray
    kappa: np.ndarray
    a: np.ndarray
    b: np.ndarray


@slotted("size", "mean", "squares")
class Summary(NamedTuple):
    """Number of rows, mean and sum of squares about the mean of each cluster: (K,), (K, d), (K, d)."""

    size: np.ndarray
    mean: np.ndarray
    squares: np.ndarray


@slotted("size", "mean", "scale", "rate", "shift", "constant", "constant_without", "error")
class Stats(NamedTuple):
    """Cached predictives: the arrays of ``capacity`` slots and what they share."""

    mu: np.ndarray
    kappa: np.ndarray
    a: np.ndarray
    b: np.ndarray
    is_common: bool
    size: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    rate: np.ndarray
    shift: np.ndarray
    constant: np.ndarray
    constant_without: np.ndarray
    error: np.ndarray
    norms: np.ndarray


def _log_norms(params: Params, n: int) -> np.ndarray:
    """Normalising constants of the predictive given 0..n rows, without the scales: (n + 1,)."""
    rows = np.arange(n + 1.0)[:, None]
    a_n, kappa_n = params.a + 0.5 * rows, params.kappa + rows
    ratios = gammaln(a_n + 0.5) - gammaln(a_n)
    return np.sum(ratios - 0.5 * math.log(2.0 * math.pi) - 0.5 * np.log1p(1.0 / kappa_n), axis=1)


@compiled(inline="always")
def _refresh(stats: Stats, k: int) -> None:
    """Derive what the predictive needs from a slot's size, mean and b_n (held in ``scale``)."""
    n = stats.size[k]
    log_scales = 0.0
    for j in range(stats.mu.shape[0]):
        kappa_n = stats.kappa[j] + n
        rate = math.sqrt(kappa_n / (2.0 * stats.scale[k, j] * (kappa_n + 1.0)))
        stats.rate[k, j] = rate
        stats.shift[k, j] = rate * stats.mean[k, j]
        log_scales += math.log(stats.scale[k, j])
    stats.constant[k] = stats.norms[n] - 0.5 * log_scales
    stats.constant_without[k] = stats.norms[max(n - 1, 0)] - 0.5 * log_scales


@implements(verbs.summarize, Summary)
def _(summary, k, rows, members):
    d = rows.shape[1]
    n = members.shape[0]
    mean = summary.mean[k]
    squares = summary.squares[k]
    summary.size[k] = n
    for j in range(d):
        mean[j] = 0.0
        squares[j] = 0.0
    for t in range(n):
        for j in range(d):
            mean[j] += rows[members[t], j]
    for j in range(d):
        mean[j] /= max(n, 1)
    for t in range(n):
        for j in range(d):
            deviation = rows[members[t], j] - mean[j]
            squares[j] += deviation * deviation


@implements(verbs.combine, Summary)
def _(summary, k, j):
    # Chan, Golub and LeVeque (1983), eq. 2.1.
    total = summary.size[k] + summary.size[j]
    share = summary.size[j] / max(total, 1)
    weight = share * summary.size[k]
    for column in range(summary.mean.shape[1]):
        between = summary.mean[j, column] - summary.mean[k, column]
        summary.squares[k, column] += summary.squares[j, column] + weight * between * between
        summary.mean[k, column] += share * between
    summary.size[k] = total


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    n = summary.size[j]
    for column in range(stats.mu.shape[0]):
        kappa_n = stats.kappa[column] + n
        offset = summary.mean[j, column] - stats.mu[column]
        stats.mean[k, column] = stats.mu[column] + n / kappa_n * offset
        stats.scale[k, column] = stats.b[column] + 0.5 * (
            summary.squares[j, column] + stats.kappa[column] * n / kappa_n * offset * offset
        )
    stats.size[k] = n
    stats.error[k] = 0.0
    _refresh(stats, k)


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    n = stats.size[k]
    for j in range(stats.mu.shape[0]):
        kappa_n = stats.kappa[j] + n
        deviation = x[j] - stats.mean[k, j]
        stats.scale[k, j] += 0.5 * kappa_n / (kappa_n + 1.0) * deviation * deviation
        stats.mean[k, j] += deviation / (kappa_n + 1.0)
    stats.size[k] = n + 1
    stats.error[k] += ROUNDING
    _refresh(stats, k)


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    n = stats.size[k]
    smallest = 1.0
    for j in range(stats.mu.shape[0]):
        kappa_n = stats.kappa[j] + n
        deviation = x[j] - stats.mean[k, j]
        lost = 0.5 * kappa_n / (kappa_n - 1.0) * deviation * deviation
        left = max(1.0 - lost / stats.scale[k, j], ROUNDING)
        smallest = min(smallest, left)
        stats.scale[k, j] *= left
        stats.mean[k, j] -= deviation / (kappa_n - 1.0)
    # There is no early return: see families/shares.py on branches. A slot that was not to be changed is undefined.
    good = stats.error[k] + ROUNDING <= WORST_ERROR * smallest
    stats.size[k] = n - 1
    stats.error[k] = (stats.error[k] + ROUNDING) / smallest
    _refresh(stats, k)
    return good


@compiled(_nrt=False, forceinline=True, fastmath=FASTMATH)
def _product(rate, shift, x):
    """Product of ``1 + ((x - mean) / scale)^2`` over the columns."""
    product = 1.0
    for j in range(rate.shape[0]):
        root = rate[j] * x[j] - shift[j]
        product *= 1.0 + root * root
    return product


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    half = 0.5 * stats.size[k] + 0.5
    rate = stats.rate[k]
    shift = stats.shift[k]
    if stats.is_common:
        product = _product(rate, shift, x)
        if product < _LARGEST:
            return stats.constant[k] - (stats.a[0] + half) * math.log(product)
    total = stats.constant[k]
    for j in range(rate.shape[0]):
        root = rate[j] * x[j] - shift[j]
        total -= (stats.a[j] + half) * math.log(1.0 + root * root)
    return total


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    # With n counting x, b_{n-1} = b_n left, left = 1 - kappa_n (x - mu_n)^2 / (2 b_n (kappa_n - 1)), and the
    # density is a ratio of two marginal likelihoods.
    n = stats.size[k]
    total = stats.constant_without[k]
    for j in range(stats.mu.shape[0]):
        kappa_n = stats.kappa[j] + n
        root = stats.rate[k, j] * x[j] - stats.shift[k, j]
        left = 1.0 - root * root * (kappa_n + 1.0) / (kappa_n - 1.0)
        total += (stats.a[j] + 0.5 * n - 0.5) * log_share(left)
    return total


@implements(verbs.log_predictive_present, Stats)
def _(stats, k, rows, i, absent):
    n = stats.size[k]
    total = 0.0
    for j in range(stats.mu.shape[0]):
        if not absent[i, j]:
            a_n = stats.a[j] + 0.5 * n
            root = stats.rate[k, j] * rows[i, j] - stats.shift[k, j]
            total += (
                math.lgamma(a_n + 0.5)
                - math.lgamma(a_n)
                + math.log(stats.rate[k, j])
                - 0.5 * math.log(math.pi)
                - (a_n + 0.5) * math.log(1.0 + root * root)
            )
    return total


@implements(verbs.draw_absent, Stats)
def _(stats, k, rows, i, absent, rng):
    for j in range(stats.mu.shape[0]):
        if absent[i, j]:
            # A t with 2 a_n degrees of freedom, by way of a variance that is b_n over a gamma variable.
            gamma = rng.standard_gamma(stats.a[j] + 0.5 * stats.size[k])
            deviation = rng.standard_normal() / (stats.rate[k, j] * math.sqrt(2.0 * gamma))
            rows[i, j] = stats.mean[k, j] + deviation


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    total = 0.0
    for j in range(stats.mu.shape[0]):
        total += log_evidence(stats.kappa[j], stats.a[j], stats.b[j], stats.size[k], stats.scale[k, j])
    return total


@implements(verbs.log_marginal_likelihood, Params)
def _(params, summary):
    total = 0.0
    for k in range(summary.size.shape[0]):
        n = summary.size[k]
        for j in range(params.mu.shape[0]):
            kappa = params.kappa[j]
            offset = summary.mean[k, j] - params.mu[j]
            scale = params.b[j] + 0.5 * (summary.squares[k, j] + kappa * n / (kappa + n) * offset * offset)
            total += log_evidence(kappa, params.a[j], params.b[j], n, scale)
    return total


@implements(verbs.log_marginal_gradient, Params)
def _(params, summary):
    return normal_columns.log_marginal_gradient(params, summary.size[:, None], summary)


@implements(verbs.data_gradient, Params)
def _(params, summary, rows, labels):
    return normal_columns.data_gradient(params, summary.size[:, None], summary, rows, labels)


def _check(name: str, value: np.ndarray) -> None:
    if not np.all(np.isfinite(value)):
        raise ValueError(f"{name} must be finite, got {value}")
    if name != "mu" and not np.all(value > 0):
        raise ValueError(f"{name} must be > 0, got {value}")


def _allocate_summary(params: Params, capacity: int) -> Summary:
    d = len(params.mu)
    return Summary(
        size=np.zeros(capacity, dtype=np.int64),
        mean=np.zeros((capacity, d)),
        squares=np.zeros((capacity, d)),
    )


def _allocate_stats(params: Params, n: int, capacity: int) -> Stats:
    d = len(params.mu)
    return Stats(
        mu=np.ascontiguousarray(params.mu, dtype=np.float64),
        kappa=np.ascontiguousarray(params.kappa, dtype=np.float64),
        a=np.ascontiguousarray(params.a, dtype=np.float64),
        b=np.ascontiguousarray(params.b, dtype=np.float64),
        is_common=bool(np.all(params.a == params.a[0])),
        size=np.zeros(capacity, dtype=np.int64),
        mean=np.zeros((capacity, d)),
        scale=np.zeros((capacity, d)),
        rate=np.zeros((capacity, d)),
        shift=np.zeros((capacity, d)),
        constant=np.zeros(capacity),
        constant_without=np.zeros(capacity),
        error=np.zeros(capacity),
        norms=_log_norms(params, n),
    )


def _from_data(rows: np.ndarray) -> dict[str, np.ndarray | float]:
    # The marginal of NormalInverseWishart.from_data in one dimension: a = nu / 2, b = psi / 2.
    return {
        "mu": np.nanmean(rows, axis=0),
        "kappa": 0.01,
        "a": 1.5,
        "b": 0.05 * column_variances(rows),
    }


FAMILY = Family(
    name="NormalInverseGamma",
    params=Params,
    axes={"mu": "d", "kappa": "d", "a": "d", "b": "d"},
    check=_check,
    allocate_summary=_allocate_summary,
    allocate_stats=_allocate_stats,
    component=normal_columns.COMPONENT,
    represent=centred,
    shift=shift_mean,
    from_data=_from_data,
    draws_missing=True,
)
FAMILY = replace(
    FAMILY,
    incomplete=replace(
        FAMILY,
        name="IncompleteNormalInverseGamma",
        takes_missing=True,
        draws_missing=False,
        params=incomplete_normal_inverse_gamma.Params,
        allocate_summary=incomplete_normal_inverse_gamma.allocate_summary,
        allocate_stats=incomplete_normal_inverse_gamma.allocate_stats,
    ),
)


class NormalInverseGamma(BaseMeasure):
    """Base measure of Gaussian clusters with independent columns, for (n,) or (n, d) data.

    ``s2 ~ InverseGamma(a, b)`` with mean ``b / (a - 1)`` and ``m | s2 ~ N(mu, s2 / kappa)`` for each cluster's
    variance s2 and mean m of each column. A scalar parameter serves all columns.

    Parameters
    ----------
    mu : scalar or (d,) array_like or variable
        Prior mean of the cluster means.
    kappa : scalar or (d,) array_like or variable, > 0
        Prior precision of the cluster means, in rows.
    a, b : scalar or (d,) array_like or variable, > 0
        Shape and scale of the variances' prior.

    Notes
    -----
    ``from_data`` takes mu = column means, kappa = 0.01, a = 1.5 and b = 0.05 times the column variances, which
    is ``NormalInverseWishart.from_data`` for each column alone.
    """

    family = FAMILY

    def __init__(self, mu: Any, kappa: Any, a: Any, b: Any) -> None:
        super().__init__(mu=mu, kappa=kappa, a=a, b=b)
