r"""Gaussian clusters with one scale for all columns: the spherical normal-inverse-gamma family.

.. math:: s^2 \sim \mathrm{InverseGamma}(a, b), \qquad m_j \mid s^2 \sim N(\mu_j, s^2 c_j^2 / \kappa), \qquad
          x_{ij} \mid m, s^2 \sim N(m_j, s^2 c_j^2)

with known relative scales c of the d columns. For a cluster of n rows with means :math:`\bar x_j` and sums of
squares :math:`w_j` about them,

.. math:: \kappa_n = \kappa + n, \quad a_n = a + n d / 2, \quad \mu_n = (\kappa \mu + n \bar x) / \kappa_n, \quad
          b_n = b + \tfrac12 \sum_j \frac{1}{c_j^2} \Big(w_j + \frac{\kappa n}{\kappa_n} (\bar x_j - \mu_j)^2\Big)

(Murphy 2007, eqs 197-200, with d values a row). The predictive is a multivariate t with :math:`2 a_n` degrees of
freedom, location :math:`\mu_n` and scale matrix :math:`\mathrm{diag}(c^2) b_n (\kappa_n + 1) / (a_n \kappa_n)`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln
from scipy.special import psi as digamma

from pymc_dpgmm.dispatch import FASTMATH, compiled, implements
from pymc_dpgmm.families import verbs
from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.component import Component, draw_normal_rows, log_normal_density, restore_mean
from pymc_dpgmm.families.defaults import column_variances
from pymc_dpgmm.families.normal_inverse_gamma import Summary
from pymc_dpgmm.families.origins import centred, shift_mean
from pymc_dpgmm.families.shares import ROUNDING, WORST_ERROR, log_share
from pymc_dpgmm.families.slots import slotted
from pymc_dpgmm.families.verbs import Family


class Params(NamedTuple):
    """Parameters of the base measure: ``mu`` (d,), ``kappa``, ``a`` and ``b`` > 0, and ``scale`` > 0 (d,)."""

    mu: np.ndarray
    kappa: float
    a: float
    b: float
    scale: np.ndarray


@slotted("size", "mean", "squares", "log_squares", "constant", "constant_without", "error")
class Stats(NamedTuple):
    """Cached predictives: the arrays of ``capacity`` slots and what they share. ``squares`` is b_n."""

    mu: np.ndarray
    kappa: float
    a: float
    b: float
    weight: np.ndarray
    size: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    log_squares: np.ndarray
    constant: np.ndarray
    constant_without: np.ndarray
    error: np.ndarray
    norms: np.ndarray


def _log_norms(params: Params, n: int) -> np.ndarray:
    """Normalising constants of the predictive given 0..n rows, without b_n: (n + 1,)."""
    d = len(params.mu)
    rows = np.arange(n + 1.0)
    a_n, kappa_n = params.a + 0.5 * d * rows, params.kappa + rows
    ratios = gammaln(a_n + 0.5 * d) - gammaln(a_n)
    return ratios - 0.5 * d * (math.log(2.0 * math.pi) + np.log1p(1.0 / kappa_n)) - np.log(params.scale).sum()


@compiled(inline="always")
def _refresh(stats, k):
    n = stats.size[k]
    half = 0.5 * stats.mu.shape[0]
    stats.log_squares[k] = math.log(stats.squares[k])
    stats.constant[k] = stats.norms[n] - half * stats.log_squares[k]
    stats.constant_without[k] = stats.norms[max(n - 1, 0)] - half * stats.log_squares[k]


@compiled(_nrt=False, forceinline=True, fastmath=FASTMATH)
def _distance(weight, mean, x):
    """Half the squared distance of a row from a mean, in units of the relative scales."""
    total = 0.0
    for j in range(weight.shape[0]):
        difference = x[j] - mean[j]
        total += weight[j] * difference * difference
    return 0.5 * total


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    n = summary.size[j]
    kappa_n = stats.kappa + n
    total = stats.b
    for column in range(stats.mu.shape[0]):
        offset = summary.mean[j, column] - stats.mu[column]
        stats.mean[k, column] = stats.mu[column] + n / kappa_n * offset
        about = summary.squares[j, column] + stats.kappa * n / kappa_n * offset * offset
        total += 0.5 * stats.weight[column] * about
    stats.size[k] = n
    stats.squares[k] = total
    stats.error[k] = 0.0
    _refresh(stats, k)


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    kappa_n = stats.kappa + stats.size[k]
    stats.squares[k] += kappa_n / (kappa_n + 1.0) * _distance(stats.weight, stats.mean[k], x)
    for j in range(stats.mu.shape[0]):
        stats.mean[k, j] += (x[j] - stats.mean[k, j]) / (kappa_n + 1.0)
    stats.size[k] += 1
    stats.error[k] += ROUNDING
    _refresh(stats, k)


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    kappa_n = stats.kappa + stats.size[k]
    lost = kappa_n / (kappa_n - 1.0) * _distance(stats.weight, stats.mean[k], x)
    left = max(1.0 - lost / stats.squares[k], ROUNDING)
    stats.squares[k] *= left
    for j in range(stats.mu.shape[0]):
        stats.mean[k, j] -= (x[j] - stats.mean[k, j]) / (kappa_n - 1.0)
    # There is no early return: see families/shares.py on branches. A slot that was not to be changed is undefined.
    good = stats.error[k] + ROUNDING <= WORST_ERROR * left
    stats.size[k] -= 1
    stats.error[k] = (stats.error[k] + ROUNDING) / left
    _refresh(stats, k)
    return good


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.mu.shape[0]
    kappa_n = stats.kappa + stats.size[k]
    exponent = stats.a + 0.5 * d * (stats.size[k] + 1.0)
    added = kappa_n / (kappa_n + 1.0) * _distance(stats.weight, stats.mean[k], x)
    return stats.constant[k] - exponent * math.log(1.0 + added / stats.squares[k])


@implements(verbs.log_predictive_present, Stats)
def _(stats, k, rows, i, absent):
    # The marginal of a t is a t with as many degrees of freedom.
    kappa_n = stats.kappa + stats.size[k]
    a_n = stats.a + 0.5 * stats.mu.shape[0] * stats.size[k]
    half, distance, log_weights = 0.0, 0.0, 0.0
    for j in range(stats.mu.shape[0]):
        if not absent[i, j]:
            difference = rows[i, j] - stats.mean[k, j]
            half += 0.5
            distance += 0.5 * stats.weight[j] * difference * difference
            log_weights += 0.5 * math.log(stats.weight[j])
    added = kappa_n / (kappa_n + 1.0) * distance
    return (
        math.lgamma(a_n + half)
        - math.lgamma(a_n)
        + log_weights
        - half * math.log(2.0 * math.pi * (kappa_n + 1.0) / kappa_n * stats.squares[k])
        - (a_n + half) * math.log(1.0 + added / stats.squares[k])
    )


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    # b_{n-1} = b_n left, and the density is a ratio of two marginal likelihoods.
    d = stats.mu.shape[0]
    n = stats.size[k]
    kappa_n = stats.kappa + n
    lost = kappa_n / (kappa_n - 1.0) * _distance(stats.weight, stats.mean[k], x)
    left = 1.0 - lost / stats.squares[k]
    return stats.constant_without[k] + (stats.a + 0.5 * d * (n - 1.0)) * log_share(left)


@compiled()
def _log_evidence(kappa, a, b, d, n, squares):
    """Log marginal likelihood of n rows (Murphy 2007, eq. 203), without the relative scales."""
    a_n = a + 0.5 * d * n
    return (
        math.lgamma(a_n)
        - math.lgamma(a)
        + a * math.log(b)
        - a_n * math.log(squares)
        + 0.5 * d * math.log(kappa / (kappa + n))
        - 0.5 * n * d * math.log(2.0 * math.pi)
    )


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    d = stats.mu.shape[0]
    total = _log_evidence(stats.kappa, stats.a, stats.b, d, stats.size[k], stats.squares[k])
    for j in range(d):
        total += 0.5 * stats.size[k] * math.log(stats.weight[j])
    return total


@implements(verbs.log_marginal_likelihood, Params)
def _(params, summary):
    d = params.mu.shape[0]
    total = 0.0
    for k in range(summary.size.shape[0]):
        n = summary.size[k]
        squares = params.b
        for j in range(d):
            offset = summary.mean[k, j] - params.mu[j]
            about = summary.squares[k, j] + params.kappa * n / (params.kappa + n) * offset * offset
            squares += 0.5 * about / (params.scale[j] * params.scale[j])
            total -= n * math.log(params.scale[j])
        total += _log_evidence(params.kappa, params.a, params.b, d, n, squares)
    return total


def _posterior(params: Params, summary: Summary) -> tuple[np.ndarray, ...]:
    """Return a_n and b_n (K,), posterior means and sums of squares about the prior's (K, d)."""
    size = summary.size[:, None].astype(np.float64)
    offset = summary.mean - params.mu
    kappa_n = params.kappa + size
    about = summary.squares + params.kappa * size / kappa_n * offset**2
    b_n = params.b + 0.5 * np.sum(about / params.scale**2, axis=1)
    return params.a + 0.5 * len(params.mu) * summary.size, b_n, params.mu + size / kappa_n * offset, about


@implements(verbs.log_marginal_gradient, Params)
def _(params, summary):
    # b_n is a minimum over m attained at mu_n: in mu and kappa only the explicit dependence counts.
    a_n, b_n, posterior_mean, about = _posterior(params, summary)
    d = len(params.mu)
    offset = posterior_mean - params.mu
    pull = (a_n / b_n)[:, None] / params.scale**2
    kappa_n = params.kappa + summary.size
    return Params(
        mu=np.sum(params.kappa * pull * offset, axis=0),
        kappa=np.sum(0.5 * d / params.kappa - 0.5 * d / kappa_n - 0.5 * np.sum(pull * offset**2, axis=1)),
        a=np.sum(digamma(a_n) - digamma(params.a) + np.log(params.b / b_n)),
        b=np.sum(params.a / params.b - a_n / b_n),
        scale=np.sum(pull * about - summary.size[:, None], axis=0) / params.scale,
    )


@implements(verbs.data_gradient, Params)
def _(params, summary, rows, labels):
    a_n, b_n, posterior_mean, _ = _posterior(params, summary)
    return -(a_n / b_n)[labels][:, None] * (rows - posterior_mean[labels]) / params.scale**2


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
    return Stats(
        mu=np.ascontiguousarray(params.mu, dtype=np.float64),
        kappa=float(params.kappa),
        a=float(params.a),
        b=float(params.b),
        weight=np.ascontiguousarray(1.0 / params.scale**2, dtype=np.float64),
        size=np.zeros(capacity, dtype=np.int64),
        mean=np.zeros((capacity, len(params.mu))),
        squares=np.zeros(capacity),
        log_squares=np.zeros(capacity),
        constant=np.zeros(capacity),
        constant_without=np.zeros(capacity),
        error=np.zeros(capacity),
        norms=_log_norms(params, n),
    )


def _draw(rng: np.random.Generator, params: Params, summary: Summary) -> dict[str, np.ndarray]:
    a_n, b_n, posterior_mean, _ = _posterior(params, summary)
    variance = (b_n / rng.standard_gamma(a_n))[:, None] * params.scale**2
    deviation = np.sqrt(variance / (params.kappa + summary.size)[:, None])
    return {"mean": posterior_mean + deviation * rng.standard_normal(variance.shape), "variance": variance}


def _from_data(rows: np.ndarray) -> dict[str, np.ndarray | float]:
    variances = column_variances(rows)
    return {
        "mu": np.nanmean(rows, axis=0),
        "kappa": 0.01,
        "a": 1.5,
        "b": 0.05,
        "scale": np.sqrt(variances),
    }


FAMILY = Family(
    name="SphericalNormalInverseGamma",
    params=Params,
    axes={"mu": "d", "kappa": "", "a": "", "b": "", "scale": "d"},
    check=_check,
    allocate_summary=_allocate_summary,
    allocate_stats=_allocate_stats,
    represent=centred,
    shift=shift_mean,
    component=Component(
        axes={"mean": "d", "variance": "d"},
        draw=_draw,
        draw_rows=draw_normal_rows,
        log_density=log_normal_density,
        restore=restore_mean,
    ),
    from_data=_from_data,
)


class SphericalNormalInverseGamma(BaseMeasure):
    """Base measure of Gaussian clusters with one scale for all columns, for (n,) or (n, d) data.

    ``s2 ~ InverseGamma(a, b)`` with mean ``b / (a - 1)`` for each cluster; its columns are independent with means
    ``m ~ N(mu, s2 scale**2 / kappa)`` and variances ``s2 scale**2``. With ``scale=1`` clusters are spherical.

    Parameters
    ----------
    mu : scalar or (d,) array_like or variable
        Prior mean of the cluster means.
    kappa : scalar or variable, > 0
        Prior precision of the cluster means, in rows.
    a, b : scalar or variable, > 0
        Shape and scale of the variance's prior.
    scale : scalar or (d,) array_like or variable, > 0
        Relative scales of the columns, common to all clusters. 1 by default.

    Notes
    -----
    ``from_data`` takes mu = column means, kappa = 0.01, a = 1.5, b = 0.05 and scale = the columns' standard
    deviations.
    """

    family = FAMILY

    def __init__(self, mu: Any, kappa: Any, a: Any, b: Any, scale: Any = 1.0) -> None:
        super().__init__(mu=mu, kappa=kappa, a=a, b=b, scale=scale)
