"""Columns of normals under a normal-inverse-gamma prior: what complete and incomplete rows share.

The formulas are those of :mod:`pymc_dpgmm.families.normal_inverse_gamma`. A cluster has ``n`` entries of column j;
their mean and the sum of squares about it are among the cluster's sums.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.component import DrawnValues, draw_gammas, normal_component
from pymc_dpgmm.families.contract.defaults import column_means, column_variances
from pymc_dpgmm.families.contract.expected import Quadratic, expected_log_variance
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.scale import COLUMNS, NormalScale, ScatterOfClusters
from pymc_dpgmm.families.contract.supports import positive, real
from pymc_dpgmm.families.shared.gamma import log_gamma_ratio
from pymc_dpgmm.families.shared.origins import centred, shift_mean
from pymc_dpgmm.native.compiled import FLOATS, INT, NOTHING, address_of, c_function, inlined
from pymc_dpgmm.native.special import digamma_rise, log_rising

# The variance of clusters that a base measure made from data expects, as a share of the columns' own.
SHARE_WITHIN = 0.05


@inlined
def posterior_scale(p, j, n, s):
    """b_n of a column."""
    offset = s.mean[j] - p.mu[j]
    return p.b[j] + 0.5 * (s.squares[j] + p.kappa[j] * n / (p.kappa[j] + n) * offset * offset)


@inlined
def log_evidence(p, j, n, s):
    """Log marginal likelihood of the entries of column ``j`` (Murphy 2007, eq. 203)."""
    return (
        log_gamma_ratio(p.a[j], p.b[j], 0.5 * n, posterior_scale(p, j, n, s))
        + 0.5 * math.log(p.kappa[j] / (p.kappa[j] + n))
        - 0.5 * n * math.log(2.0 * math.pi)
    )


@inlined
def set_column(p, j, n, s, c):
    """Set r and r mu_n of column ``j`` in the cache; return b_n."""
    kappa_n = p.kappa[j] + n
    scale = posterior_scale(p, j, n, s)
    c.rate[j] = math.sqrt(kappa_n / (2.0 * scale * (kappa_n + 1.0)))
    c.shift[j] = c.rate[j] * (p.kappa[j] * p.mu[j] + n * s.mean[j]) / kappa_n
    return scale


@inlined
def squared_deviation(c, j, x):
    """Return the square of r (x - mu_n) in column ``j``; 1 more is the argument of its predictive t density."""
    root = c.rate[j] * x[j] - c.shift[j]
    return root * root


@inlined
def t_constant(p, j, n, c):
    """Return the log of the normalising constant of that density."""
    a_n = p.a[j] + 0.5 * n
    return log_rising(a_n, 0.5) + math.log(c.rate[j]) - 0.5 * math.log(math.pi)


def posterior_means(params: Any, n: np.ndarray, s: Any) -> tuple[np.ndarray, ...]:
    """Return kappa_n, mu_n, and what of 2 b_n comes of each column, for all clusters: (K, d) each."""
    offset, kappa_n = s.mean - params.mu, params.kappa + n
    return kappa_n, params.mu + n / kappa_n * offset, s.squares + params.kappa * n / kappa_n * offset**2


def gradient_in_means(params: Any, kappa_n: np.ndarray, means: np.ndarray, precisions: np.ndarray) -> DrawnValues:
    """Gradient of the log evidence in mu and kappa, by column, given the precisions of entries: a_n / b_n."""
    # b_n is a minimum over m attained at mu_n, so that in mu and kappa only the explicit dependence of
    # kappa (m - mu)^2 / 2 counts (envelope theorem).
    offset = means - params.mu
    return {
        "mu": np.add.reduce(params.kappa * precisions * offset),
        "kappa": np.add.reduce(0.5 / params.kappa - 0.5 / kappa_n - 0.5 * precisions * offset**2),
    }


def draw_columns(
    rng: np.random.Generator, kappa_n: np.ndarray, means: np.ndarray, variance: np.ndarray
) -> DrawnValues:
    """Draw the means of clusters, given mu_n and variances: (K, d) each."""
    deviation = np.sqrt(variance / kappa_n)
    return {"mean": means + deviation * rng.standard_normal(variance.shape), "variance": variance}


def _entries(s: Any) -> np.ndarray:
    """Return how many entries of each column clusters have: (K, d), or (K, 1) where it is the same for all."""
    return s.entries if "entries" in s._fields else s.n


def _posterior(params: Any, s: Any) -> tuple[np.ndarray, ...]:
    """Return kappa_n, mu_n, a_n and b_n of all clusters and columns: (K, d) each."""
    n = _entries(s)
    kappa_n, means, about = posterior_means(params, n, s)
    return kappa_n, means, params.a + 0.5 * n, params.b + 0.5 * about


@c_function(NOTHING(INT, INT, INT, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS))
def _add_up_gradient(n_clusters, d, n_entries, params, entries, means, squares, gradient):
    """Set the gradient of the sum over clusters of :func:`log_evidence` in mu, kappa, a and b: (4, d).

    Parameters are (4, d) too, means and squares (K, d), and the numbers of entries (K, d), or (K, 1).
    """
    for j in range(d):
        mu, kappa, a, b = params[j], params[d + j], params[2 * d + j], params[3 * d + j]
        in_mu, in_kappa, in_a, in_b = 0.0, 0.0, 0.0, 0.0
        for k in range(n_clusters):
            n = entries[k * n_entries + min(j, n_entries - 1)]
            kappa_n = kappa + n
            offset = means[k * d + j] - mu
            b_n = b + 0.5 * (squares[k * d + j] + kappa * n / kappa_n * offset * offset)
            precision = (a + 0.5 * n) / b_n
            # b_n is a minimum over m attained at mu_n, so that in mu and kappa only the explicit dependence of
            # kappa (m - mu)^2 / 2 counts (envelope theorem).
            shift = n / kappa_n * offset
            in_mu += kappa * precision * shift
            in_kappa += 0.5 * n / (kappa * kappa_n) - 0.5 * precision * shift * shift
            in_a += digamma_rise(a, 0.5 * n) + math.log(b / b_n)
            in_b += a / b - precision
        gradient[j], gradient[d + j], gradient[2 * d + j], gradient[3 * d + j] = in_mu, in_kappa, in_a, in_b


def _gradient(params: Any, s: Any) -> DrawnValues:
    n_clusters, d = s.mean.shape
    entries, gradient = _entries(s), np.empty((4, d))
    arrays = np.array(params), *map(np.ascontiguousarray, (entries, s.mean, s.squares)), gradient
    _add_up_gradient(n_clusters, d, entries.shape[1], *map(address_of, arrays))
    return dict(zip(type(params)._fields, gradient, strict=True))


def _data_gradient(params: Any, s: Any, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    # The same envelope in x_i: only (x_i - m)^2 / 2 at m = mu_n depends on it. Missing entries have no gradient.
    _, means, a_n, b_n = _posterior(params, s)
    gradient = -(a_n / b_n)[labels] * (rows - means[labels])
    gradient[np.isnan(rows)] = 0.0
    return gradient


def _draw(rng: np.random.Generator, params: Any, s: Any) -> DrawnValues:
    kappa_n, means, a_n, b_n = _posterior(params, s)
    return draw_columns(rng, kappa_n, means, b_n / draw_gammas(rng, a_n))


def _predictive(params: Any, s: Any) -> DrawnValues:
    kappa_n, means, a_n, b_n = _posterior(params, s)
    return {"mean": means, "variance": b_n * (1.0 + 1.0 / kappa_n) / a_n}


def _expected(params: Any, s: Any) -> Quadratic:
    kappa_n, means, a_n, b_n = _posterior(params, s)
    terms = expected_log_variance(a_n, b_n) + 1.0 / kappa_n + math.log(2.0 * math.pi)
    return Quadratic(-0.5 * terms.sum(axis=1), means, np.sqrt(a_n / b_n))


def _from_data(rows: np.ndarray) -> dict[str, np.ndarray | float]:
    # The marginal of NormalInverseWishart.from_data in one dimension: a = nu / 2, b = psi / 2.
    return {"mu": column_means(rows), "kappa": 0.01, "a": 1.5, "b": SHARE_WITHIN * column_variances(rows)}


def _scatter(params: Any, s: Any) -> ScatterOfClusters:
    n = np.broadcast_to(_entries(s), s.mean.shape)
    return ScatterOfClusters(n, s.mean - params.mu, s.squares)


# A family of such columns, but for its sums and the functions that run for every row.
ColumnsFamily = partial(
    Family,
    parameters={"mu": real("d"), "kappa": positive("d"), "a": positive("d"), "b": positive("d")},
    gradient=_gradient,
    predictive=_predictive,
    expected=_expected,
    data_gradient=_data_gradient,
    component=normal_component(_draw),
    represent=centred,
    shift=shift_mean,
    from_data=_from_data,
    scale=NormalScale(COLUMNS, lambda d: (0.5, 0.5), {"a": (1, 0.0), "b": (1, 1.0)}, _scatter),
)
