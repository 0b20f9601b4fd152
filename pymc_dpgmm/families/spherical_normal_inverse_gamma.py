r"""Gaussian clusters with one scale for all columns: the spherical normal-inverse-gamma family.

.. math:: s^2 \sim \mathrm{InverseGamma}(a, b), \qquad m_j \mid s^2 \sim N(\mu_j, s^2 c_j^2 / \kappa), \qquad
          x_{ij} \mid m, s^2 \sim N(m_j, s^2 c_j^2)

with known relative scales c of the d columns. For a cluster of n rows with means :math:`\bar x_j` and sums of
squares :math:`w_j` about them,

.. math:: \kappa_n = \kappa + n, \quad a_n = a + n d / 2, \quad \mu_n = (\kappa \mu + n \bar x) / \kappa_n, \quad
          b_n = b + \tfrac12 \sum_j \frac{1}{c_j^2} \Big(w_j + \frac{\kappa n}{\kappa_n} (\bar x_j - \mu_j)^2\Big)

(Murphy 2007, eqs 197-200, with d values a row). The predictive is a multivariate t with :math:`2 a_n` degrees of
freedom, location :math:`\mu_n` and scale matrix :math:`\mathrm{diag}(c^2) b_n (\kappa_n + 1) / (a_n \kappa_n)`.

The cache holds :math:`\mu_n` and :math:`r = \kappa_n / (2 b_n (\kappa_n + 1))`, so that the argument of the t
density is :math:`1 + r \sum_j (x_j - \mu_{nj})^2 / c_j^2`.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import DrawnValues, draw_gammas, normal_component
from pymc_dpgmm.families.contract.defaults import column_means, column_variances
from pymc_dpgmm.families.contract.expected import Quadratic, expected_log_variance
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.scale import SPHERICAL, NormalScale, ScatterOfClusters
from pymc_dpgmm.families.contract.supports import positive, real
from pymc_dpgmm.families.shared.gamma import gradient_in_gamma, log_gamma_ratio, log_t_norms
from pymc_dpgmm.families.shared.moments import merge_squares, update_squares
from pymc_dpgmm.families.shared.normal_columns import draw_columns, gradient_in_means, posterior_means
from pymc_dpgmm.families.shared.origins import centred, shift_mean
from pymc_dpgmm.native.arithmetic import LEAST_GAMMA, standard_gamma, standard_normal
from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.native.triangles import set_diagonal


def _update(p, n, s, x, sign):
    before = _posterior_scale(p, n, s)
    update_squares(n, p.d, s.mean, s.squares, p.scale, x, sign)
    return min(_posterior_scale(p, n + sign, s) / before, 1.0)


def _merge(p, n, s, m, t):
    merge_squares(n, p.d, s.mean, s.squares, m, t.mean, t.squares)


@inlined
def _posterior_scale(p, n, s):
    """b_n of a cluster."""
    weight = p.kappa * n / (p.kappa + n)
    total = 0.0
    for j in range(p.d):
        offset = s.mean[j] - p.mu[j]
        total += (s.squares[j] + weight * offset * offset) / (p.scale[j] * p.scale[j])
    return p.b + 0.5 * total


def _log_evidence(p, n, s):
    # Murphy (2007), eq. 203.
    log_scales = 0.0
    for j in range(p.d):
        log_scales += math.log(p.scale[j])
    return (
        log_gamma_ratio(p.a, p.b, 0.5 * p.d * n, _posterior_scale(p, n, s))
        + 0.5 * p.d * math.log(p.kappa / (p.kappa + n))
        - 0.5 * n * p.d * math.log(2.0 * math.pi)
        - n * log_scales
    )


def _refresh(p, n, s, c):
    scale, kappa_n = _posterior_scale(p, n, s), p.kappa + n
    for j in range(p.d):
        c.mean[j] = p.mu[j] + n / kappa_n * (s.mean[j] - p.mu[j])
    c.rate[0] = 0.5 * kappa_n / (scale * (kappa_n + 1.0))
    c.constant[0] = p.norms[int(n)] - 0.5 * p.d * math.log(scale)


@inlined
def _distance(p, c, x):
    """Squared distance of a row from mu_n; 1 more is the argument of the predictive t density."""
    total = 0.0
    for j in range(p.d):
        difference = x[j] - c.mean[j]
        total += p.weight[j] * difference * difference
    return total * c.rate[0]


def _log_predictive(p, n, s, c, x):
    return c.constant[0], p.a + 0.5 * p.d * (n + 1.0), 1.0 + _distance(p, c, x)


def _log_predictive_without(p, n, s, c, x):
    # b_{n-1} = b_n share, and the density is a ratio of two marginal likelihoods.
    kappa_n, size = p.kappa + n, int(n)
    share = 1.0 - (kappa_n + 1.0) / (kappa_n - 1.0) * _distance(p, c, x)
    return c.constant[0] - p.norms[size] + p.norms[size - 1], -(p.a + 0.5 * p.d * (n - 1.0)), share


def _log_predictive_present(p, n, s, c, x, absent, scratch):
    # The marginal of a multivariate t is a t with the same degrees of freedom.
    a_n = p.a + 0.5 * p.d * n
    half, distance, log_norm = 0.0, 0.0, 0.0
    for j in range(p.d):
        if absent[j] == 0:
            weight, difference = p.weight[j] * c.rate[0], x[j] - c.mean[j]
            half += 0.5
            distance += weight * difference * difference
            log_norm += 0.5 * math.log(weight / math.pi)
    return log_rising(a_n, half) + log_norm - (a_n + half) * math.log(1.0 + distance)


def _draw_normal(p, n, s, c, mean, precision, scratch, bits):
    kappa_n, half_log_det = p.kappa + n, 0.0
    shared = max(standard_gamma(bits, p.a + 0.5 * p.d * n), LEAST_GAMMA) / _posterior_scale(p, n, s)
    for j in range(p.d):
        entry = shared * p.weight[j]
        mean[j] = c.mean[j] + standard_normal(bits) / math.sqrt(entry * kappa_n)
        set_diagonal(precision, j, entry)
        half_log_det += 0.5 * math.log(entry)
    return half_log_det


def _constants(params: Any) -> dict[str, Any]:
    return {"weight": 1.0 / params.scale**2}


def _derive(p, t, scratch):
    for j in range(p.d):
        t.weight[j] = 1.0 / (p.scale[j] * p.scale[j])
    return True


def _tabulate(params: Any, n: int) -> dict[str, Any]:
    d, rows = len(params.mu), np.arange(n + 1.0)
    norms = log_t_norms(params.a + 0.5 * d * rows, d) - 0.5 * d * np.log1p(1.0 / (params.kappa + rows))
    return _constants(params) | {"norms": norms - np.log(params.scale).sum()}


def _posterior(params: Any, s: Any) -> tuple[np.ndarray, ...]:
    """Return kappa_n, mu_n, a_n (K,), b_n (K,), and each column's term of 2 b_n before division by its scale."""
    kappa_n, means, about = posterior_means(params, s.n, s)
    b_n = params.b + 0.5 * np.sum(about / params.scale**2, axis=1)
    return kappa_n, means, params.a + 0.5 * len(params.mu) * s.n[:, 0], b_n, about


def _gradient(params: Any, s: Any) -> DrawnValues:
    kappa_n, means, a_n, b_n, about = _posterior(params, s)
    precisions = (a_n / b_n)[:, None] / params.scale**2
    by_column = gradient_in_means(params, kappa_n, means, precisions)
    return gradient_in_gamma(params, a_n, b_n) | {
        "mu": by_column["mu"],
        "kappa": np.sum(by_column["kappa"]),
        "scale": np.sum(precisions * about - s.n, axis=0) / params.scale,
    }


def _data_gradient(params: Any, s: Any, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    _, means, a_n, b_n, _ = _posterior(params, s)
    return -(a_n / b_n)[labels][:, None] * (rows - means[labels]) / params.scale**2


def _predictive(params: Any, s: Any) -> DrawnValues:
    kappa_n, means, a_n, b_n, _ = _posterior(params, s)
    spread = (b_n / a_n)[:, None] * (1.0 + 1.0 / kappa_n) * params.scale**2
    return {"mean": means, "variance": spread, "degrees": 2.0 * a_n}


def _draw_unknown(
    rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, values: np.ndarray
) -> np.ndarray:
    # A multivariate t: known columns tell of the variance that all columns share.
    mean, deviation = drawn["mean"][labels], np.sqrt(drawn["variance"])[labels]
    squared = np.nansum(((values - mean) / deviation) ** 2, axis=1)
    degrees = drawn["degrees"][labels] + np.sum(~np.isnan(values), axis=1)
    spread = np.sqrt((drawn["degrees"][labels] + squared) / (2.0 * draw_gammas(rng, 0.5 * degrees)))
    return mean + spread[:, None] * deviation * rng.standard_normal(mean.shape)


def _expected(params: Any, s: Any) -> Quadratic:
    kappa_n, means, a_n, b_n, _ = _posterior(params, s)
    d = len(params.mu)
    shared = expected_log_variance(a_n, b_n) + 1.0 / kappa_n[:, 0] + math.log(2.0 * math.pi)
    root = np.sqrt(a_n / b_n)[:, None] / params.scale
    return Quadratic(-0.5 * d * shared - np.log(params.scale).sum(), means, root)


def _draw(rng: np.random.Generator, params: Any, s: Any) -> DrawnValues:
    kappa_n, means, a_n, b_n, _ = _posterior(params, s)
    return draw_columns(rng, kappa_n, means, (b_n / draw_gammas(rng, a_n))[:, None] * params.scale**2)


def _from_data(rows: np.ndarray) -> dict[str, np.ndarray | float]:
    scale = np.sqrt(column_variances(rows))
    return {"mu": column_means(rows), "kappa": 0.01, "a": 1.5, "b": 0.05, "scale": scale}


def _scatter(params: Any, s: Any) -> ScatterOfClusters:
    return ScatterOfClusters(s.n, s.mean - params.mu, s.squares)


class SphericalNormalInverseGamma(BaseMeasure):
    """Base measure of Gaussian clusters with one scale for all columns, for (n,) or (n, d) data.

    Each cluster has ``s2 ~ InverseGamma(a, b)`` with mean ``b / (a - 1)``. Its columns are independent, with means
    ``m ~ N(mu, s2 scale**2 / kappa)`` and variances ``s2 scale**2``. With ``scale=1`` the clusters are spherical.

    Parameters
    ----------
    mu : scalar or (d,) array_like or variable
        Prior mean of the cluster means.
    kappa : scalar or variable, > 0
        Prior precision of the cluster means, as a number of rows.
    a, b : scalar or variable, > 0
        Shape and scale of the prior of s2.
    scale : scalar or (d,) array_like or variable, > 0
        Relative scales of the columns, which all clusters share. 1 by default.

    Notes
    -----
    As a class, ``base=dp.SphericalNormalInverseGamma``, in a mixture, it learns its scale:
    kappa, a with b = a, and the relative scales of the columns.
    ``from_data`` sets mu = column means, kappa = 0.01, a = 1.5, b = 0.05 and scale = the standard deviations of
    the columns.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> base = dp.SphericalNormalInverseGamma.from_data([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    >>> base.parameters["scale"].round(2)
    array([0.82, 8.16])
    """

    family = Family(
        name="SphericalNormalInverseGamma",
        parameters={
            "mu": real("d"),
            "kappa": positive(),
            "a": positive(),
            "b": positive(),
            "scale": positive("d"),
        },
        sums={"mean": "d", "squares": "d"},
        update=_update,
        merge=_merge,
        log_evidence=_log_evidence,
        gradient=_gradient,
        predictive=_predictive,
        expected=_expected,
        data_gradient=_data_gradient,
        tables={"weight": "d", "norms": "n"},
        tabulate=_tabulate,
        constants=_constants,
        derive=_derive,
        tabulated_by=("kappa", "a", "scale"),
        cache={"mean": "d", "rate": "", "constant": ""},
        refresh=_refresh,
        log_predictive=_log_predictive,
        log_predictive_without=_log_predictive_without,
        log_predictive_present=_log_predictive_present,
        draw_normal=_draw_normal,
        component=replace(normal_component(_draw), draw_unknown=_draw_unknown),
        represent=centred,
        shift=shift_mean,
        from_data=_from_data,
        scale=NormalScale(
            SPHERICAL, lambda d: (0.5, 0.5), {"a": (1, 0.0), "b": (1, 0.0), "scale": (0, 0.5)}, _scatter
        ),
    )

    def __init__(self, mu: Any, kappa: Any, a: Any, b: Any, scale: Any = 1.0) -> None:
        super().__init__(mu=mu, kappa=kappa, a=a, b=b, scale=scale)
