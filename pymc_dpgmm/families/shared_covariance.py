r"""Gaussian clusters that share one covariance: the normal family with a normal prior of the cluster's mean.

With one covariance :math:`\Sigma` for all clusters,

.. math:: m \sim N(\mu, \Sigma / \kappa), \qquad x_i \sim N(m, \Sigma).

For n rows with mean :math:`\bar x` and scatter W about it, :math:`\kappa_n = \kappa + n` and :math:`\mu_n =
(\kappa \mu + n \bar x) / \kappa_n`, m is :math:`N(\mu_n, \Sigma / \kappa_n)`, the predictive is :math:`N(\mu_n,
\Sigma (\kappa_n + 1) / \kappa_n)`, and the rows have the log density

.. math:: -\tfrac{nd}2 \log 2\pi - \tfrac n2 \log |\Sigma| + \tfrac d2 \log \frac{\kappa}{\kappa_n}
          - \tfrac12 \mathrm{tr}\, \Sigma^{-1} \Big(W + \frac{\kappa n}{\kappa_n} (\bar x - \mu)(\bar x -
          \mu)'\Big)

(Gelman et al. 2013, section 3.5). Densities need :math:`|A (x - \mu_n)|^2` with A the inverse of the covariance's
Cholesky factor, which all clusters share.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import DrawnValues
from pymc_dpgmm.families.contract.expected import Quadratic
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import positive, positive_definite, real
from pymc_dpgmm.families.shared.full_normal import full_component
from pymc_dpgmm.families.shared.moments import gather_scatters, merge_scatters, scratch_of_scatters, update_scatter
from pymc_dpgmm.families.shared.origins import centred, shift_mean
from pymc_dpgmm.families.shared.some_columns import condition
from pymc_dpgmm.native.arithmetic import standard_normal
from pymc_dpgmm.native.compiled import shifted
from pymc_dpgmm.native.triangles import lower_product, solve_upper, unpacked


def _update(p, n, s, x, sign):
    return update_scatter(n, p.d, s.mean, s.scatter, p.covariance, x, sign)


def _log_evidence(p, n, s):
    weight = p.kappa * n / (p.kappa + n)
    trace = 0.0
    at = 0
    for i in range(p.d):
        for j in range(i + 1):
            offsets = (s.mean[i] - p.mu[i]) * (s.mean[j] - p.mu[j])
            entry = p.precision[at] * (s.scatter[at] + (weight * offsets if n > 0.0 else 0.0))
            trace += entry if i == j else 2.0 * entry
            at += 1
    return 0.5 * p.d * math.log(p.kappa / (p.kappa + n)) - n * p.log_norm - 0.5 * trace


def _refresh(p, n, s, c):
    share = n / (p.kappa + n)
    for i in range(p.d):
        c.mean[i] = p.mu[i] + share * (s.mean[i] - p.mu[i])
    lower_product(p.root, c.mean, c.shift, p.d)
    spread = (p.kappa + n + 1.0) / (p.kappa + n)
    c.constant[0] = -p.log_norm - 0.5 * p.d * math.log(spread)
    c.weight[0] = 0.5 / spread


def _quadratic(p, c):
    return p.root, c.shift


def _log_predictive(p, n, s, c, squared):
    return c.constant[0] - c.weight[0] * squared, 0.0, 1.0


def _log_predictive_without(p, n, s, c, squared):
    # Here n counts x, and x - mu_{n-1} = growth (x - mu_n).
    kappa_n = p.kappa + n
    growth = kappa_n / (kappa_n - 1.0)
    return -p.log_norm - 0.5 * p.d * math.log(growth) - 0.5 * growth * squared, 0.0, 1.0


def _log_predictive_present(p, n, s, c, x, absent, scratch):
    d = p.d
    residual, delta, root = scratch, shifted(scratch, d), shifted(scratch, 2 * d)
    m, squared = condition(d, p.root, c.mean, x, absent, residual, root, delta)
    log_det = 0.0
    for j in range(d):
        log_det += math.log(p.root[j * (j + 1) // 2 + j])
    for k in range(m):
        log_det -= math.log(root[k * (k + 1) // 2 + k])
    return log_det + 0.5 * (d - m) * math.log(c.weight[0] / math.pi) - c.weight[0] * squared


def _draw_absent(p, n, s, c, x, absent, scratch, bits):
    d = p.d
    step, delta, root = scratch, shifted(scratch, d), shifted(scratch, 2 * d)
    m, _ = condition(d, p.root, c.mean, x, absent, step, root, delta)
    scale = 1.0 / math.sqrt(2.0 * c.weight[0])
    for k in range(m):
        step[k] = delta[k] + scale * standard_normal(bits)
    solve_upper(root, step, m)
    k = 0
    for j in range(d):
        if absent[j] != 0:
            x[j] = c.mean[j] + step[k]
            k += 1


def _root(params: Any) -> np.ndarray:
    """Return A: the inverse of the lower Cholesky factor of the covariance."""
    return np.linalg.inv(np.linalg.cholesky(params.covariance))


def _log_norm(root: np.ndarray) -> float:
    """Return d log(2 pi) / 2 + log|Sigma| / 2."""
    return 0.5 * len(root) * math.log(2.0 * math.pi) - float(np.sum(np.log(np.diag(root))))


def _constants(params: Any) -> dict[str, Any]:
    root, lower = _root(params), np.tril_indices(len(params.mu))
    return {"root": root[lower], "precision": (root.T @ root)[lower], "log_norm": _log_norm(root)}


def _posterior(params: Any, s: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return kappa_n (K, 1) and mu_n (K, d)."""
    kappa_n = params.kappa + s.n
    return kappa_n, params.mu + s.n / kappa_n * (s.mean - params.mu)


def _gradient(params: Any, s: Any) -> DrawnValues:
    root, d = _root(params), len(params.mu)
    precision = root.T @ root
    n, kappa_n = s.n[:, 0], params.kappa + s.n[:, 0]
    offset = s.mean - params.mu
    weight = params.kappa * n / kappa_n
    total = unpacked(s.scatter).sum(axis=0) + np.einsum("k,ki,kj->ij", weight, offset, offset)
    squared = np.sum((offset @ root.T) ** 2, axis=1)
    return {
        "mu": (weight @ offset) @ precision,
        "kappa": 0.5 * np.sum(d * (1.0 / params.kappa - 1.0 / kappa_n) - (n / kappa_n) ** 2 * squared),
        "covariance": 0.5 * (precision @ total @ precision - n.sum() * precision),
    }


def _data_gradient(params: Any, s: Any, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    # mu_n minimises the sum of squares that the density has: only (x_i - m)(x_i - m)' at m = mu_n depends on x_i.
    _, mean = _posterior(params, s)
    root = _root(params)
    return -(rows - mean[labels]) @ (root.T @ root)


def _predictive(params: Any, s: Any) -> DrawnValues:
    kappa_n, mean = _posterior(params, s)
    factor = np.sqrt(1.0 + 1.0 / kappa_n)[:, :, None] * np.linalg.cholesky(params.covariance)
    return {"mean": mean, "factor": factor, "degrees": np.full(len(mean), math.inf)}


def _expected(params: Any, s: Any) -> Quadratic:
    kappa_n, mean = _posterior(params, s)
    root = _root(params)
    upper = np.linalg.qr(root).R
    constant = -_log_norm(root) - 0.5 * len(root) / kappa_n[:, 0]
    return Quadratic(constant, mean, np.broadcast_to(upper, (len(mean), *upper.shape)))


def _draw(rng: np.random.Generator, params: Any, s: Any) -> DrawnValues:
    kappa_n, mean = _posterior(params, s)
    factor, root = np.linalg.cholesky(params.covariance), _root(params)
    noise = rng.standard_normal(mean.shape) / np.sqrt(kappa_n)
    shape = len(mean), len(root), len(root)
    return {
        "mean": mean + noise @ factor.T,
        "covariance": np.broadcast_to(params.covariance, shape),
        # With factor factor' the covariance, and root' root its inverse.
        "factor": np.broadcast_to(factor, shape),
        "root": np.broadcast_to(root, shape),
        "log_det": np.full(len(mean), float(np.sum(np.log(np.diag(root))))),
    }


FAMILY = Family(
    name="SharedCovariance",
    parameters={"mu": real("d"), "kappa": positive(), "covariance": positive_definite("dd")},
    sums={"mean": "d", "scatter": "D"},
    update=_update,
    merge=merge_scatters,
    gather=gather_scatters,
    log_evidence=_log_evidence,
    gradient=_gradient,
    predictive=_predictive,
    expected=_expected,
    data_gradient=_data_gradient,
    tables={"root": "D", "precision": "D", "log_norm": ""},
    tabulate=lambda params, n: _constants(params),
    constants=_constants,
    tabulated_by=(),
    cache={"mean": "d", "shift": "d", "constant": "", "weight": ""},
    refresh=_refresh,
    quadratic=_quadratic,
    quadratic_predictive=_log_predictive,
    quadratic_predictive_without=_log_predictive_without,
    log_predictive_present=_log_predictive_present,
    draw_absent=_draw_absent,
    scratch=scratch_of_scatters,
    component=full_component(_draw),
    represent=centred,
    shift=shift_mean,
    draws_missing=True,
    takes=(2,),
)


class SharedCovariance(BaseMeasure):
    """Base measure of Gaussian clusters that differ in their means alone, for (n, d) data.

    All clusters have the same covariance; the mean of each is ``m ~ N(mu, covariance / kappa)``. Such location
    mixtures are the "tied" covariances of scikit-learn.

    Parameters
    ----------
    mu : scalar or (d,) array_like or variable
        Prior mean of the cluster means.
    kappa : scalar or variable, > 0
        Prior precision of the cluster means, as a number of rows. A small number, such as 0.05, lets clusters be
        far apart.
    covariance : (d, d) or (d,) array_like or variable
        Covariance of the rows of every cluster, symmetric positive definite, or the diagonal of one that is
        diagonal. A variable is estimated, as in the example.

    Notes
    -----
    The covariance decides what a cluster is, and the data alone cannot: with twice the standard deviations, two
    clusters are one. There is no ``from_data``.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> import pymc as pm
    >>> data = dp.datasets.load_old_faithful()
    >>> with pm.Model():
    ...     root, _, _ = pm.LKJCholeskyCov("root", eta=2.0, n=2, sd_dist=pm.HalfNormal.dist([1.0, 10.0]))
    ...     base = dp.SharedCovariance(data.mean(axis=0), 0.05, root @ root.T)
    ...     y = dp.DPMixture("y", 1.0, base, observed=data)
    """

    family = FAMILY

    def __init__(self, mu: Any, kappa: Any, covariance: Any) -> None:
        super().__init__(mu=mu, kappa=kappa, covariance=covariance)
