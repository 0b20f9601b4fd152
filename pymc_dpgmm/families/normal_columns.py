"""Columns of normals under a normal-inverse-gamma prior: what complete and incomplete rows share.

The formulas are those of :mod:`pymc_dpgmm.families.normal_inverse_gamma`, with the number of entries that each
cluster has of each column, or of all columns alike: ``size`` is (K, d) or (K, 1).
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.compiled import inlined
from pymc_dpgmm.families.component import Component, draw_normal_rows, log_normal_density, restore_mean
from pymc_dpgmm.special import digamma


@inlined
def posterior_scale(p, j, n, mean, squares):
    """Return b_n of column ``j``, given the number of its entries, their mean and sum of squares about it."""
    offset = mean - p.mu[j]
    return p.b[j] + 0.5 * (squares + p.kappa[j] * n / (p.kappa[j] + n) * offset * offset)


@inlined
def log_evidence(p, j, n, scale):
    """Log marginal likelihood of n values of column ``j``, ``scale`` being b_n (Murphy 2007, eq. 203)."""
    a_n = p.a[j] + 0.5 * n
    return (
        math.lgamma(a_n)
        - math.lgamma(p.a[j])
        + p.a[j] * math.log(p.b[j])
        - a_n * math.log(scale)
        + 0.5 * math.log(p.kappa[j] / (p.kappa[j] + n))
        - 0.5 * n * math.log(2.0 * math.pi)
    )


def posterior(params: Any, size: np.ndarray, s: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a_n, b_n and mu_n of all clusters and columns: (K, d) each."""
    offset = s.mean - params.mu
    kappa_n = params.kappa + size
    scale = params.b + 0.5 * (s.squares + params.kappa * size / kappa_n * offset**2)
    return params.a + 0.5 * size, scale, params.mu + size / kappa_n * offset


def gradient(params: Any, size: np.ndarray, s: Any) -> dict[str, Any]:
    """Gradient of the log marginal likelihood in the parameters."""
    # b_n is a minimum over m attained at mu_n, so that in mu and kappa only the explicit dependence of
    # kappa (m - mu)^2 / 2 counts (envelope theorem).
    a_n, b_n, posterior_mean = posterior(params, size, s)
    kappa_n = params.kappa + size
    offset = posterior_mean - params.mu
    pull = a_n / b_n
    return {
        "mu": np.sum(params.kappa * pull * offset, axis=0),
        "kappa": np.sum(0.5 / params.kappa - 0.5 / kappa_n - 0.5 * pull * offset**2, axis=0),
        "a": np.sum(digamma(a_n) - digamma(params.a) + np.log(params.b / b_n), axis=0),
        "b": np.sum(params.a / params.b - pull, axis=0),
    }


def data_gradient(params: Any, size: np.ndarray, s: Any, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Gradient of the log marginal likelihood in the rows: (n, d)."""
    # The same envelope in x_i: only (x_i - m)^2 / 2 at m = mu_n depends on it.
    a_n, b_n, posterior_mean = posterior(params, size, s)
    return -(a_n / b_n)[labels] * (rows - posterior_mean[labels])


def _draw(rng: np.random.Generator, params: Any, s: Any) -> dict[str, np.ndarray]:
    size = s.entries if "entries" in s._fields else s.n
    a_n, b_n, posterior_mean = posterior(params, size, s)
    variance = b_n / rng.standard_gamma(np.broadcast_to(a_n, b_n.shape))
    deviation = np.sqrt(variance / (params.kappa + size))
    return {"mean": posterior_mean + deviation * rng.standard_normal(b_n.shape), "variance": variance}


COMPONENT = Component(
    axes={"mean": "d", "variance": "d"},
    draw=_draw,
    draw_rows=draw_normal_rows,
    log_density=log_normal_density,
    restore=restore_mean,
)
