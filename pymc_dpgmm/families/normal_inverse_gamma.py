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
from typing import Any

import numpy as np

from pymc_dpgmm.families import incomplete_normal_inverse_gamma
from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.shared.gamma import log_t_norms
from pymc_dpgmm.families.shared.moments import merge_squares, update_squares
from pymc_dpgmm.families.shared.normal_columns import (
    ColumnsFamily,
    log_evidence,
    posterior_scale,
    set_column,
    squared_deviation,
    t_constant,
)
from pymc_dpgmm.native.arithmetic import LEAST_GAMMA, fast_log, standard_gamma, standard_normal
from pymc_dpgmm.native.triangles import set_diagonal

# If all columns have the same exponent, their t arguments are multiplied and the logarithm is taken once, unless
# the product exceeds this number.
_LARGEST = 1e300


def _update(p, n, s, x, sign):
    return update_squares(n, p.d, s.mean, s.squares, p.b, x, sign)


def _merge(p, n, s, m, t):
    merge_squares(n, p.d, s.mean, s.squares, m, t.mean, t.squares)


def _log_evidence(p, n, s):
    total = 0.0
    for j in range(p.d):
        total += log_evidence(p, j, n, s)
    return total


def _refresh(p, n, s, c):
    log_scales = 0.0
    for j in range(p.d):
        log_scales += fast_log(set_column(p, j, n, s, c))
    size = int(n)
    c.constant[0] = p.norms[size] - 0.5 * log_scales
    c.constant_without[0] = p.norms[max(size - 1, 0)] - 0.5 * log_scales


def _log_predictive(p, n, s, c, x):
    half = 0.5 * n + 0.5
    if p.is_common > 0.0:
        product = 1.0
        for j in range(p.d):
            product *= 1.0 + squared_deviation(c, j, x)
        if product < _LARGEST:
            return c.constant[0], p.a[0] + half, product
    total = c.constant[0]
    for j in range(p.d):
        total -= (p.a[j] + half) * math.log(1.0 + squared_deviation(c, j, x))
    return total, 0.0, 1.0


def _log_predictive_without(p, n, s, c, x):
    # Here n counts x. b_{n-1} = b_n share with share = 1 - kappa_n (x - mu_n)^2 / (2 b_n (kappa_n - 1)), and the
    # density is a ratio of two marginal likelihoods.
    total = c.constant_without[0]
    smallest = 1.0
    for j in range(p.d):
        kappa_n = p.kappa[j] + n
        share = 1.0 - squared_deviation(c, j, x) * (kappa_n + 1.0) / (kappa_n - 1.0)
        smallest = min(smallest, share)
        total += (p.a[j] + 0.5 * n - 0.5) * fast_log(share)
    # With the exponent 0 the smallest share does not enter the density: ``weigh`` compares it with the least one
    # that leaves enough digits.
    return total, 0.0, smallest


def _log_predictive_present(p, n, s, c, x, absent, scratch):
    total = 0.0
    for j in range(p.d):
        if absent[j] == 0:
            total += t_constant(p, j, n, c) - (p.a[j] + 0.5 * n + 0.5) * math.log(1.0 + squared_deviation(c, j, x))
    return total


def _draw_absent(p, n, s, c, x, absent, scratch, bits):
    for j in range(p.d):
        if absent[j] != 0:
            # A draw of a t with 2 a_n degrees of freedom: a normal with variance b_n over a gamma variable.
            gamma = max(standard_gamma(bits, p.a[j] + 0.5 * n), LEAST_GAMMA)
            x[j] = c.shift[j] / c.rate[j] + standard_normal(bits) / (c.rate[j] * math.sqrt(2.0 * gamma))


def _draw_normal(p, n, s, c, mean, precision, scratch, bits):
    half_log_det = 0.0
    for j in range(p.d):
        kappa_n, scale = p.kappa[j] + n, posterior_scale(p, j, n, s)
        entry = max(standard_gamma(bits, p.a[j] + 0.5 * n), LEAST_GAMMA) / scale
        centre = p.mu[j] + n / kappa_n * (s.mean[j] - p.mu[j])
        mean[j] = centre + standard_normal(bits) / math.sqrt(entry * kappa_n)
        set_diagonal(precision, j, entry)
        half_log_det += 0.5 * math.log(entry)
    return half_log_det


def _constants(params: Any) -> dict[str, Any]:
    return {"is_common": float((params.a == params.a[0]).all())}


def _derive(p, t, scratch):
    t.is_common[0] = 1.0
    for j in range(1, p.d):
        if p.a[j] != p.a[0]:
            t.is_common[0] = 0.0
    return True


def _tabulate(params: Any, n: int) -> dict[str, Any]:
    rows = np.arange(n + 1.0)[:, None]
    a_n, kappa_n = params.a + 0.5 * rows, params.kappa + rows
    norms = np.sum(log_t_norms(a_n) - 0.5 * np.log1p(1.0 / kappa_n), axis=1)
    return _constants(params) | {"norms": norms}


class NormalInverseGamma(BaseMeasure):
    """Base measure of Gaussian clusters with independent columns, for (n,) or (n, d) data.

    In each cluster and column, the variance is ``s2 ~ InverseGamma(a, b)`` with mean ``b / (a - 1)``, and the mean
    is ``m | s2 ~ N(mu, s2 / kappa)``. A scalar parameter applies to all columns.

    Parameters
    ----------
    mu : scalar or (d,) array_like or variable
        Prior mean of the cluster means.
    kappa : scalar or (d,) array_like or variable, > 0
        Prior precision of the cluster means, as a number of rows.
    a, b : scalar or (d,) array_like or variable, > 0
        Shape and scale of the prior of the variances.

    Notes
    -----
    As a class, ``base=dp.NormalInverseGamma``, in a mixture, it learns its scale.
    ``from_data`` sets mu = column means, kappa = 0.01, a = 1.5 and b = 0.05 times the column variances. This is
    ``NormalInverseWishart.from_data`` for each column alone.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> base = dp.NormalInverseGamma.from_data([1.0, 2.0, 3.0])
    >>> base.parameters["mu"], base.parameters["b"].round(3)
    (array([2.]), array([0.033]))
    """

    family = ColumnsFamily(
        name="NormalInverseGamma",
        sums={"mean": "d", "squares": "d"},
        update=_update,
        merge=_merge,
        log_evidence=_log_evidence,
        tables={"is_common": "", "norms": "n"},
        tabulate=_tabulate,
        constants=_constants,
        derive=_derive,
        tabulated_by=("kappa", "a"),
        cache={"rate": "d", "shift": "d", "constant": "", "constant_without": ""},
        refresh=_refresh,
        log_predictive=_log_predictive,
        log_predictive_without=_log_predictive_without,
        log_predictive_present=_log_predictive_present,
        draw_absent=_draw_absent,
        draw_normal=_draw_normal,
        incomplete=incomplete_normal_inverse_gamma.FAMILY,
        draws_missing=True,
    )

    def __init__(self, mu: Any, kappa: Any, a: Any, b: Any) -> None:
        super().__init__(mu=mu, kappa=kappa, a=a, b=b)
