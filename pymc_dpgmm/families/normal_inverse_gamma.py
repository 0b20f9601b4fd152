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

The cache holds, per column, :math:`r = \sqrt{\kappa_n / (2 b_n (\kappa_n + 1))}`, so that the argument of
the t density is :math:`1 + (r x - r \mu_n)^2`.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_dpgmm.arithmetic import fast_log, standard_gamma, standard_normal
from pymc_dpgmm.families import normal_columns
from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.defaults import column_variances
from pymc_dpgmm.families.family import Family
from pymc_dpgmm.families.moments import merge_squares, update_squares
from pymc_dpgmm.families.normal_columns import log_evidence, posterior_scale
from pymc_dpgmm.families.origins import centred, shift_mean
from pymc_dpgmm.families.supports import positive, real
from pymc_dpgmm.special import gammaln

# Columns that share the exponent share one logarithm of the product of their t arguments, up to this product.
_LARGEST = 1e300
# Share of b_n without a row below which too few digits are left.
_SMALLEST_SHARE = 1e-8


def _update(p, n, s, x, sign):
    return update_squares(n, p.d, s.mean, s.squares, p.b, x, sign)


def _merge(p, n, s, m, t):
    merge_squares(n, p.d, s.mean, s.squares, m, t.mean, t.squares)


def _log_evidence(p, n, s):
    total = 0.0
    for j in range(p.d):
        total += log_evidence(p, j, n, posterior_scale(p, j, n, s.mean[j], s.squares[j]))
    return total


def _refresh(p, n, s, c):
    log_scales = 0.0
    for j in range(p.d):
        kappa_n = p.kappa[j] + n
        scale = posterior_scale(p, j, n, s.mean[j], s.squares[j])
        c.rate[j] = math.sqrt(kappa_n / (2.0 * scale * (kappa_n + 1.0)))
        c.shift[j] = c.rate[j] * (p.kappa[j] * p.mu[j] + n * s.mean[j]) / kappa_n
        log_scales += fast_log(scale)
    size = int(n)
    c.constant[0] = p.norms[size] - 0.5 * log_scales
    c.constant_without[0] = p.norms[max(size - 1, 0)] - 0.5 * log_scales


def _log_predictive(p, n, s, c, x):
    half = 0.5 * n + 0.5
    if p.is_common > 0.0:
        product = 1.0
        for j in range(p.d):
            root = c.rate[j] * x[j] - c.shift[j]
            product *= 1.0 + root * root
        if product < _LARGEST:
            return c.constant[0], p.a[0] + half, product
    total = c.constant[0]
    for j in range(p.d):
        root = c.rate[j] * x[j] - c.shift[j]
        total -= (p.a[j] + half) * math.log(1.0 + root * root)
    return total, 0.0, 1.0


def _log_predictive_without(p, n, s, c, x):
    # With n counting x, b_{n-1} = b_n left, left = 1 - kappa_n (x - mu_n)^2 / (2 b_n (kappa_n - 1)), and the
    # density is a ratio of two marginal likelihoods.
    total = c.constant_without[0]
    smallest = 1.0
    for j in range(p.d):
        kappa_n = p.kappa[j] + n
        root = c.rate[j] * x[j] - c.shift[j]
        left = 1.0 - root * root * (kappa_n + 1.0) / (kappa_n - 1.0)
        smallest = min(smallest, left)
        total += (p.a[j] + 0.5 * n - 0.5) * fast_log(left)
    return total, 0.0, 1.0 if smallest > _SMALLEST_SHARE else math.nan


def _log_predictive_present(p, n, s, c, x, absent, scratch):
    total = 0.0
    for j in range(p.d):
        if absent[j] == 0:
            a_n = p.a[j] + 0.5 * n
            root = c.rate[j] * x[j] - c.shift[j]
            total += math.lgamma(a_n + 0.5) - math.lgamma(a_n) + math.log(c.rate[j]) - 0.5 * math.log(math.pi)
            total -= (a_n + 0.5) * math.log(1.0 + root * root)
    return total


def _draw_absent(p, n, s, c, x, absent, scratch, bits):
    for j in range(p.d):
        if absent[j] != 0:
            # A t with 2 a_n degrees of freedom, by way of a variance that is b_n over a gamma variable.
            gamma = standard_gamma(bits, p.a[j] + 0.5 * n)
            x[j] = c.shift[j] / c.rate[j] + standard_normal(bits) / (c.rate[j] * math.sqrt(2.0 * gamma))


def _tabulate(params: Any, n: int) -> dict[str, Any]:
    rows = np.arange(n + 1.0)[:, None]
    a_n, kappa_n = params.a + 0.5 * rows, params.kappa + rows
    ratios = gammaln(a_n + 0.5) - gammaln(a_n)
    norms = np.sum(ratios - 0.5 * math.log(2.0 * math.pi) - 0.5 * np.log1p(1.0 / kappa_n), axis=1)
    return {"is_common": float(np.all(params.a == params.a[0])), "norms": norms}


# Rows with missing entries, which are NaN: each column has a number of entries of its own, and an entry that is
# missing contributes nothing.


def _update_incomplete(p, n, s, x, sign):
    share = 1.0
    for j in range(p.d):
        if not math.isnan(x[j]):
            m = s.entries[j]
            deviation, before = x[j] - s.mean[j], s.squares[j]
            s.squares[j] = max(before + sign * m / max(m + sign, 1.0) * deviation * deviation, 0.0)
            s.mean[j] += sign * deviation / max(m + sign, 1.0)
            s.entries[j] = m + sign
            share = min(share, (p.b[j] + s.squares[j]) / (p.b[j] + before))
    return share


def _merge_incomplete(p, n, s, m, t):
    for j in range(p.d):
        part = t.entries[j] / max(s.entries[j] + t.entries[j], 1.0)
        between = t.mean[j] - s.mean[j]
        s.squares[j] += t.squares[j] + part * s.entries[j] * between * between
        s.mean[j] += part * between
        s.entries[j] += t.entries[j]


def _log_evidence_incomplete(p, n, s):
    total = 0.0
    for j in range(p.d):
        scale = posterior_scale(p, j, s.entries[j], s.mean[j], s.squares[j])
        total += log_evidence(p, j, s.entries[j], scale)
    return total


def _refresh_incomplete(p, n, s, c):
    for j in range(p.d):
        m = s.entries[j]
        kappa_n, a_n = p.kappa[j] + m, p.a[j] + 0.5 * m
        scale = posterior_scale(p, j, m, s.mean[j], s.squares[j])
        c.rate[j] = math.sqrt(kappa_n / (2.0 * scale * (kappa_n + 1.0)))
        c.shift[j] = c.rate[j] * (p.kappa[j] * p.mu[j] + m * s.mean[j]) / kappa_n
        c.constant[j] = math.lgamma(a_n + 0.5) - math.lgamma(a_n) + math.log(c.rate[j] / math.sqrt(math.pi))


def _log_predictive_incomplete(p, n, s, c, x):
    total = 0.0
    for j in range(p.d):
        if not math.isnan(x[j]):
            root = c.rate[j] * x[j] - c.shift[j]
            total += c.constant[j] - (p.a[j] + 0.5 * s.entries[j] + 0.5) * fast_log(1.0 + root * root)
    return total, 0.0, 1.0


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
    parameters={"mu": real("d"), "kappa": positive("d"), "a": positive("d"), "b": positive("d")},
    sums={"mean": "d", "squares": "d"},
    update=_update,
    merge=_merge,
    log_evidence=_log_evidence,
    gradient=lambda params, s: normal_columns.gradient(params, s.n, s),
    data_gradient=lambda params, s, rows, labels: normal_columns.data_gradient(params, s.n, s, rows, labels),
    tables={"is_common": "", "norms": "n"},
    tabulate=_tabulate,
    cache={"rate": "d", "shift": "d", "constant": "", "constant_without": ""},
    refresh=_refresh,
    log_predictive=_log_predictive,
    log_predictive_without=_log_predictive_without,
    log_predictive_present=_log_predictive_present,
    draw_absent=_draw_absent,
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
        sums={"entries": "d", "mean": "d", "squares": "d"},
        update=_update_incomplete,
        merge=_merge_incomplete,
        log_evidence=_log_evidence_incomplete,
        gradient=lambda params, s: normal_columns.gradient(params, s.entries, s),
        data_gradient=lambda params, s, rows, labels: np.where(
            np.isnan(rows), 0.0, normal_columns.data_gradient(params, s.entries, s, rows, labels)
        ),
        tables={},
        tabulate=lambda params, n: {},
        cache={"rate": "d", "shift": "d", "constant": "d"},
        refresh=_refresh_incomplete,
        log_predictive=_log_predictive_incomplete,
        log_predictive_without=None,
        log_predictive_present=None,
        draw_absent=None,
        takes_missing=True,
        draws_missing=False,
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
