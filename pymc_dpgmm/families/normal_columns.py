"""Columns of normals under a normal-inverse-gamma prior: what complete and incomplete rows share.

The formulas are those of :mod:`pymc_dpgmm.families.normal_inverse_gamma`. A cluster has ``n`` entries of column j;
their mean and the sum of squares about it are among the cluster's sums.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from pymc_dpgmm.compiled import inlined
from pymc_dpgmm.families.component import Component, Drawn, draw_normal_rows, log_normal_density, restore_mean
from pymc_dpgmm.families.defaults import column_variances
from pymc_dpgmm.families.family import Family
from pymc_dpgmm.families.origins import centred, shift_mean
from pymc_dpgmm.families.supports import positive, real
from pymc_dpgmm.special import digamma


@inlined
def _posterior_scale(p, j, n, s):
    """b_n of a column."""
    offset = s.mean[j] - p.mu[j]
    return p.b[j] + 0.5 * (s.squares[j] + p.kappa[j] * n / (p.kappa[j] + n) * offset * offset)


@inlined
def log_evidence(p, j, n, s):
    """Log marginal likelihood of the entries of column ``j`` (Murphy 2007, eq. 203)."""
    a_n = p.a[j] + 0.5 * n
    return (
        math.lgamma(a_n)
        - math.lgamma(p.a[j])
        + p.a[j] * math.log(p.b[j])
        - a_n * math.log(_posterior_scale(p, j, n, s))
        + 0.5 * math.log(p.kappa[j] / (p.kappa[j] + n))
        - 0.5 * n * math.log(2.0 * math.pi)
    )


@inlined
def set_column(p, j, n, s, c):
    """Set r and r mu_n of column ``j`` in the cache; return b_n."""
    kappa_n = p.kappa[j] + n
    scale = _posterior_scale(p, j, n, s)
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
    return math.lgamma(a_n + 0.5) - math.lgamma(a_n) + math.log(c.rate[j]) - 0.5 * math.log(math.pi)


def _posterior(params: Any, s: Any) -> tuple[np.ndarray, ...]:
    """Return kappa_n, a_n, b_n and mu_n of all clusters and columns: (K, d) each."""
    # Incomplete rows have a number of entries of each column, complete ones of all columns alike.
    n = np.broadcast_to(s.entries if "entries" in s._fields else s.n, s.mean.shape)
    offset = s.mean - params.mu
    kappa_n = params.kappa + n
    scale = params.b + 0.5 * (s.squares + params.kappa * n / kappa_n * offset**2)
    return kappa_n, params.a + 0.5 * n, scale, params.mu + n / kappa_n * offset


def _gradient(params: Any, s: Any) -> Drawn:
    # b_n is a minimum over m attained at mu_n, so that in mu and kappa only the explicit dependence of
    # kappa (m - mu)^2 / 2 counts (envelope theorem).
    kappa_n, a_n, b_n, posterior_mean = _posterior(params, s)
    offset = posterior_mean - params.mu
    pull = a_n / b_n
    return {
        "mu": np.sum(params.kappa * pull * offset, axis=0),
        "kappa": np.sum(0.5 / params.kappa - 0.5 / kappa_n - 0.5 * pull * offset**2, axis=0),
        "a": np.sum(digamma(a_n) - digamma(params.a) + np.log(params.b / b_n), axis=0),
        "b": np.sum(params.a / params.b - pull, axis=0),
    }


def _data_gradient(params: Any, s: Any, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    # The same envelope in x_i: only (x_i - m)^2 / 2 at m = mu_n depends on it. Missing entries have no gradient.
    _, a_n, b_n, posterior_mean = _posterior(params, s)
    return np.where(np.isnan(rows), 0.0, -(a_n / b_n)[labels] * (rows - posterior_mean[labels]))


def _draw(rng: np.random.Generator, params: Any, s: Any) -> Drawn:
    kappa_n, a_n, b_n, posterior_mean = _posterior(params, s)
    variance = b_n / rng.standard_gamma(a_n)
    deviation = np.sqrt(variance / kappa_n)
    return {"mean": posterior_mean + deviation * rng.standard_normal(b_n.shape), "variance": variance}


def _from_data(rows: np.ndarray) -> dict[str, np.ndarray | float]:
    # The marginal of NormalInverseWishart.from_data in one dimension: a = nu / 2, b = psi / 2.
    return {"mu": np.nanmean(rows, axis=0), "kappa": 0.01, "a": 1.5, "b": 0.05 * column_variances(rows)}


# A family of such columns, but for its sums and the functions that run for every row.
ColumnsFamily = partial(
    Family,
    parameters={"mu": real("d"), "kappa": positive("d"), "a": positive("d"), "b": positive("d")},
    gradient=_gradient,
    data_gradient=_data_gradient,
    component=Component(
        axes={"mean": "d", "variance": "d"},
        draw=_draw,
        draw_rows=draw_normal_rows,
        log_density=log_normal_density,
        restore=restore_mean,
    ),
    represent=centred,
    shift=shift_mean,
    from_data=_from_data,
)
