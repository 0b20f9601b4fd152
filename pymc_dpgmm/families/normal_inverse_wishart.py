r"""Gaussian clusters with full covariance: the normal-inverse-Wishart family.

.. math:: \Sigma \sim \mathrm{IW}(\nu, \Psi), \qquad m \mid \Sigma \sim N(\mu, \Sigma / \kappa), \qquad
          x_i \mid m, \Sigma \sim N(m, \Sigma)

with :math:`E \Sigma = \Psi / (\nu - d - 1)`. For a cluster of n rows with mean :math:`\bar x` and scatter W,

.. math:: \kappa_n = \kappa + n, \quad \nu_n = \nu + n, \quad
          \mu_n = (\kappa \mu + n \bar x) / \kappa_n, \quad
          \Psi_n = \Psi + W + \frac{\kappa n}{\kappa_n} (\bar x - \mu)(\bar x - \mu)'

(Murphy 2007, eqs 250-254; Das 2014, section 2). The predictive is a multivariate t with
:math:`\nu_n - d + 1` degrees of freedom, location :math:`\mu_n` and scale matrix
:math:`\Psi_n (\kappa_n + 1) / (\kappa_n (\nu_n - d + 1))`.

Stats keep, per cluster, :math:`A = \sqrt{\kappa_n / (\kappa_n + 1)} L^{-1}` with :math:`\Psi_n = L L'`, so that
the argument of the t density is :math:`1 + |A x - A \mu_n|^2`: one triangular product.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln
from scipy.special import psi as digamma

from pymc_dpgmm.cholesky import (
    cholesky_in_place,
    invert_lower_in_place,
    lower_product,
    rank_one_inverse,
    scaled_squared_norm,
)
from pymc_dpgmm.dispatch import compiled, implements
from pymc_dpgmm.families import verbs
from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.component import Component, restore_mean
from pymc_dpgmm.families.defaults import column_variances
from pymc_dpgmm.families.origins import centred, shift_mean
from pymc_dpgmm.families.shares import ROUNDING, WORST_ERROR, log_share
from pymc_dpgmm.families.slots import slotted
from pymc_dpgmm.families.verbs import Family


class Params(NamedTuple):
    """Parameters of the base measure: ``mu`` (d,), ``kappa`` > 0, ``nu`` > d - 1, ``psi`` (d, d)."""

    mu: np.ndarray
    kappa: float
    nu: float
    psi: np.ndarray


@slotted("size", "mean", "scatter")
class Summary(NamedTuple):
    """Number of rows, mean and scatter about the mean of each cluster: (K,), (K, d), (K, d, d)."""

    size: np.ndarray
    mean: np.ndarray
    scatter: np.ndarray


@slotted("size", "mean", "factor", "shift", "log_det", "constant", "constant_without", "error")
class Stats(NamedTuple):
    """Cached predictives: the arrays of ``capacity`` slots and what they share."""

    mu: np.ndarray
    kappa: float
    nu: float
    psi: np.ndarray
    log_det_psi: float
    size: np.ndarray
    mean: np.ndarray
    factor: np.ndarray
    shift: np.ndarray
    log_det: np.ndarray
    constant: np.ndarray
    constant_without: np.ndarray
    error: np.ndarray
    norms: np.ndarray
    work: np.ndarray


def _log_norms(params: Params, n: int) -> np.ndarray:
    """Normalising constants of the predictive t given 0..n rows, without the determinants: (n + 1,)."""
    d = len(params.mu)
    rows = np.arange(n + 1.0)
    kappa_n = params.kappa + rows
    nu_n = params.nu + rows
    # Gamma(x + 1) = x Gamma(x) links the ratios for n and n + 2: one logarithm each, and sums that stay small.
    steps = np.log(nu_n[:-2] + 1.0) - np.log(nu_n[:-2] + 1.0 - d)
    ratios = gammaln(0.5 * (nu_n[:2] + 1.0)) - gammaln(0.5 * (nu_n[:2] + 1.0 - d))
    log_ratios = np.empty(n + 1)
    for parity in range(min(2, n + 1)):
        log_ratios[parity::2] = ratios[parity] + np.concatenate([[0.0], np.cumsum(steps[parity::2])])
    return log_ratios - 0.5 * d * math.log(math.pi) - 0.5 * d * np.log1p(1.0 / kappa_n)


@compiled(inline="always")
def _set_constants(stats: Stats, k: int) -> None:
    """Derive the constant terms of both predictives of a slot from its size and determinant."""
    n = stats.size[k]
    half = 0.5 * stats.log_det[k]
    stats.constant[k] = stats.norms[n] - half
    stats.constant_without[k] = stats.norms[max(n - 1, 0)] - half


@compiled()
def _posterior_scale(mu, kappa, psi, size, mean, scatter, out):
    """Write Psi_n of one cluster to ``out``."""
    d = mu.shape[0]
    weight = kappa * size / (kappa + size)
    for i in range(d):
        for j in range(i + 1):
            value = psi[i, j] + scatter[i, j] + weight * (mean[i] - mu[i]) * (mean[j] - mu[j])
            out[i, j] = value
            out[j, i] = value


@implements(verbs.summarize, Summary)
def _(summary, k, rows, members):
    d = rows.shape[1]
    n = members.shape[0]
    mean = summary.mean[k]
    scatter = summary.scatter[k]
    summary.size[k] = n
    for i in range(d):
        mean[i] = 0.0
        for j in range(d):
            scatter[i, j] = 0.0
    for t in range(n):
        for j in range(d):
            mean[j] += rows[members[t], j]
    for j in range(d):
        mean[j] /= max(n, 1)
    for t in range(n):
        row = members[t]
        for i in range(d):
            deviation = rows[row, i] - mean[i]
            for j in range(i + 1):
                scatter[i, j] += deviation * (rows[row, j] - mean[j])
    for i in range(d):
        for j in range(i):
            scatter[j, i] = scatter[i, j]


@implements(verbs.combine, Summary)
def _(summary, k, j):
    # Chan, Golub and LeVeque (1983), eq. 2.1.
    d = summary.mean.shape[1]
    total = summary.size[k] + summary.size[j]
    share = summary.size[j] / max(total, 1)
    weight = share * summary.size[k]
    for row in range(d):
        for column in range(row + 1):
            between = summary.mean[j, row] - summary.mean[k, row]
            between *= summary.mean[j, column] - summary.mean[k, column]
            value = summary.scatter[k, row, column] + summary.scatter[j, row, column] + weight * between
            summary.scatter[k, row, column] = value
            summary.scatter[k, column, row] = value
    for column in range(d):
        summary.mean[k, column] += share * (summary.mean[j, column] - summary.mean[k, column])
    summary.size[k] = total


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    d = stats.mu.shape[0]
    n = summary.size[j]
    kappa_n = stats.kappa + n
    factor = stats.factor[k]
    _posterior_scale(stats.mu, stats.kappa, stats.psi, n, summary.mean[j], summary.scatter[j], factor)
    cholesky_in_place(factor)
    invert_lower_in_place(factor)
    scale = math.sqrt(kappa_n / (kappa_n + 1.0))
    log_det = 0.0
    for i in range(d):
        log_det -= 2.0 * math.log(factor[i, i])
        for column in range(i + 1):
            factor[i, column] *= scale
        stats.mean[k, i] = (stats.kappa * stats.mu[i] + n * summary.mean[j, i]) / kappa_n
    stats.size[k] = n
    stats.log_det[k] = log_det
    stats.error[k] = 0.0
    lower_product(factor, stats.mean[k], stats.shift[k])
    _set_constants(stats, k)


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.mu.shape[0]
    n = stats.size[k]
    kappa_n = stats.kappa + n
    p = stats.work[0]
    # v = sqrt(kappa_n / (kappa_n + 1)) (x - mu_n) gives Psi_{n+1} = Psi_n + v v' (Das 2014, eq. 14), and
    # A x - A mu_n is inv(L) v already.
    lower_product(stats.factor[k], x, p)
    gained = 1.0
    for i in range(d):
        p[i] -= stats.shift[k, i]
        gained += p[i] * p[i]
    scale = math.sqrt((kappa_n + 1.0) / (kappa_n + 2.0) * (kappa_n + 1.0) / kappa_n)
    rank_one_inverse(stats.factor[k], p, 1.0, scale, stats.work[1])
    for i in range(d):
        stats.mean[k, i] += (x[i] - stats.mean[k, i]) / (kappa_n + 1.0)
    lower_product(stats.factor[k], stats.mean[k], stats.shift[k])
    stats.size[k] = n + 1
    stats.log_det[k] += math.log(gained)
    stats.error[k] += ROUNDING
    _set_constants(stats, k)


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.mu.shape[0]
    n = stats.size[k]
    kappa_n = stats.kappa + n
    p = stats.work[0]
    # Psi_{n-1} = Psi_n - v v' with v = sqrt(kappa_n / (kappa_n - 1)) (x - mu_n).
    lower_product(stats.factor[k], x, p)
    ratio = math.sqrt((kappa_n + 1.0) / (kappa_n - 1.0))
    left = 1.0
    for i in range(d):
        p[i] = (p[i] - stats.shift[k, i]) * ratio
        left -= p[i] * p[i]
    # A share `left` of the determinant remains in the direction of v, so a relative error grows by 1 / left.
    # There is no early return: see families/shares.py on branches. A slot that was not to be changed is undefined.
    good = stats.error[k] + ROUNDING <= WORST_ERROR * left
    left = max(left, ROUNDING)
    scale = math.sqrt((kappa_n - 1.0) / kappa_n * (kappa_n + 1.0) / kappa_n)
    rank_one_inverse(stats.factor[k], p, -1.0, scale, stats.work[1])
    for i in range(d):
        stats.mean[k, i] -= (x[i] - stats.mean[k, i]) / (kappa_n - 1.0)
    lower_product(stats.factor[k], stats.mean[k], stats.shift[k])
    stats.size[k] = n - 1
    stats.log_det[k] += math.log(left)
    stats.error[k] = (stats.error[k] + ROUNDING) / left
    _set_constants(stats, k)
    return good


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    squared = scaled_squared_norm(stats.factor[k], stats.shift[k], x)
    exponent = 0.5 * (stats.nu + 1.0 + stats.size[k])
    return stats.constant[k] - exponent * math.log(1.0 + squared)


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    # With q = (x - mu_n)' inv(Psi_n) (x - mu_n) and n counting x, |Psi_{n-1}| = |Psi_n| left, where
    # left = 1 - kappa_n q / (kappa_n - 1), and the density is a ratio of two marginal likelihoods.
    n = stats.size[k]
    kappa_n = stats.kappa + n
    squared = scaled_squared_norm(stats.factor[k], stats.shift[k], x)
    left = 1.0 - squared * (kappa_n + 1.0) / (kappa_n - 1.0)
    return stats.constant_without[k] + 0.5 * (stats.nu + n - 1.0) * log_share(left)


@compiled()
def _condition(stats, k, x, absent):
    """Condition the predictive of a slot on the entries of ``x`` that are not absent.

    With A the slot's factor, its argument 1 + |A (x - mu_n)|^2 is least, 1 + q, where the absent entries are at
    their conditional mean: mu_n + delta, with B' B delta = -B' r, B the absent columns of A, and r = A (x - mu_n)
    with the absent entries at mu_n.

    Returns
    -------
    n_absent : int
    columns : (d,) int64 array
        Absent ones first.
    root : (d, d) array
        The first (n_absent, n_absent) are the Cholesky factor of B' B.
    delta : (d,) array
    squared : float
        q.
    """
    d = x.shape[0]
    factor = stats.factor[k]
    columns = np.empty(d, dtype=np.int64)
    n_absent = 0
    for j in range(d):
        if absent[j]:
            columns[n_absent] = j
            n_absent += 1
    residual = np.zeros(d)
    for i in range(d):
        for j in range(i + 1):
            if not absent[j]:
                residual[i] += factor[i, j] * (x[j] - stats.mean[k, j])
    root, delta = np.zeros((d, d)), np.zeros(d)
    squared = 0.0
    for i in range(d):
        squared += residual[i] * residual[i]
    # The Cholesky factor of B' B row by row, and forward substitution with it.
    for s in range(n_absent):
        for t in range(s + 1):
            value = 0.0
            for i in range(columns[s], d):
                value += factor[i, columns[s]] * factor[i, columns[t]]
            for u in range(t):
                value -= root[s, u] * root[t, u]
            root[s, t] = math.sqrt(value) if s == t else value / root[t, t]
        value = 0.0
        for i in range(columns[s], d):
            value -= factor[i, columns[s]] * residual[i]
        for u in range(s):
            value -= root[s, u] * delta[u]
        delta[s] = value / root[s, s]
        squared -= delta[s] * delta[s]
    _solve_transposed(root, delta, n_absent)
    return n_absent, columns, root, delta, max(squared, 0.0)


@compiled()
def _solve_transposed(root, vector, n):
    """Replace ``vector[:n]`` by inv(root') vector, for a lower triangular root."""
    for s in range(n - 1, -1, -1):
        for u in range(s + 1, n):
            vector[s] -= root[u, s] * vector[u]
        vector[s] /= root[s, s]


@implements(verbs.log_predictive_present, Stats)
def _(stats, k, rows, i, absent):
    # The marginal of a t is a t with as many degrees of freedom.
    n_absent, _, root, _, squared = _condition(stats, k, rows[i], absent[i])
    d = stats.mu.shape[0]
    n_present = d - n_absent
    freedom = stats.nu + stats.size[k] - d + 1.0
    log_det = 0.0
    for j in range(d):
        log_det += math.log(stats.factor[k, j, j])
    for s in range(n_absent):
        log_det -= math.log(root[s, s])
    return (
        math.lgamma(0.5 * (freedom + n_present))
        - math.lgamma(0.5 * freedom)
        - 0.5 * n_present * math.log(math.pi)
        + log_det
        - 0.5 * (freedom + n_present) * math.log1p(squared)
    )


@implements(verbs.draw_absent, Stats)
def _(stats, k, rows, i, absent, rng):
    # Given the present entries, u = x_absent - mean is a t: (1 + q + |root' u|^2)^(-(freedom + d) / 2).
    n_absent, columns, root, delta, squared = _condition(stats, k, rows[i], absent[i])
    d = stats.mu.shape[0]
    freedom = stats.nu + stats.size[k] + 1.0 - n_absent
    scale = math.sqrt((1.0 + squared) / (2.0 * rng.standard_gamma(0.5 * freedom)))
    step = np.empty(d)
    for s in range(n_absent):
        step[s] = scale * rng.standard_normal()
    _solve_transposed(root, step, n_absent)
    for s in range(n_absent):
        j = columns[s]
        rows[i, j] = stats.mean[k, j] + delta[s] + step[s]


@compiled()
def _log_multivariate_gamma_ratio(nu: float, n: int, d: int) -> float:
    """Log of Gamma_d((nu + n) / 2) / Gamma_d(nu / 2)."""
    total = 0.0
    for j in range(d):
        total += math.lgamma(0.5 * (nu + n - j)) - math.lgamma(0.5 * (nu - j))
    return total


@compiled()
def _log_evidence(kappa, nu, d, log_det_psi, n, log_det):
    """Log marginal likelihood of n rows (Murphy 2007, eq. 266)."""
    return (
        -0.5 * n * d * math.log(math.pi)
        + _log_multivariate_gamma_ratio(nu, n, d)
        + 0.5 * nu * log_det_psi
        - 0.5 * (nu + n) * log_det
        + 0.5 * d * math.log(kappa / (kappa + n))
    )


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    d = stats.mu.shape[0]
    return _log_evidence(stats.kappa, stats.nu, d, stats.log_det_psi, stats.size[k], stats.log_det[k])


@compiled()
def _log_det_of(matrix: np.ndarray) -> float:
    """Log determinant of a symmetric positive definite matrix, which is overwritten."""
    cholesky_in_place(matrix)
    total = 0.0
    for i in range(matrix.shape[0]):
        total += 2.0 * math.log(matrix[i, i])
    return total


@implements(verbs.log_marginal_likelihood, Params)
def _(params, summary):
    d = params.mu.shape[0]
    scale = params.psi.copy()
    log_det_psi = _log_det_of(scale)
    total = 0.0
    for k in range(summary.size.shape[0]):
        n = summary.size[k]
        _posterior_scale(params.mu, params.kappa, params.psi, n, summary.mean[k], summary.scatter[k], scale)
        total += _log_evidence(params.kappa, params.nu, d, log_det_psi, n, _log_det_of(scale))
    return total


def _posterior(params: Params, summary: Summary) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means (K, d) and scale matrices (K, d, d)."""
    size = summary.size.astype(np.float64)
    offset = summary.mean - params.mu
    weight = params.kappa * size / (params.kappa + size)
    scale = params.psi + summary.scatter + weight[:, None, None] * offset[:, :, None] * offset[:, None, :]
    return params.mu + (size / (params.kappa + size))[:, None] * offset, scale


def _inverse_scale(params: Params, summary: Summary) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Posterior inverse scale matrices (K, d, d), their log determinants (K,) and means (K, d)."""
    posterior_mean, scale = _posterior(params, summary)
    return np.linalg.inv(scale), np.linalg.slogdet(scale)[1], posterior_mean


@implements(verbs.log_marginal_gradient, Params)
def _(params, summary):
    # Psi_n is the minimum over m of Psi + sum (x_i - m)(x_i - m)' + kappa (m - mu)(m - mu)', attained at
    # mu_n, so that in mu and kappa only the explicit dependence counts (envelope theorem).
    d = len(params.mu)
    size = summary.size.astype(np.float64)
    inverse, log_det, posterior_mean = _inverse_scale(params, summary)
    kappa_n, nu_n = params.kappa + size, params.nu + size
    pull = np.einsum("kij,kj->ki", inverse, posterior_mean - params.mu)
    quadratic = np.einsum("ki,ki->k", posterior_mean - params.mu, pull)
    columns = np.arange(d)
    inverse_psi = np.linalg.inv(params.psi)
    return Params(
        mu=params.kappa * (nu_n @ pull),
        kappa=np.sum(0.5 * d * (1.0 / params.kappa - 1.0 / kappa_n) - 0.5 * nu_n * quadratic),
        nu=0.5
        * np.sum(
            np.linalg.slogdet(params.psi)[1]
            - log_det
            + np.sum(
                digamma(0.5 * (nu_n[:, None] - columns)) - digamma(0.5 * (params.nu - columns)),
                axis=1,
            )
        ),
        psi=0.5 * (len(size) * params.nu * inverse_psi - np.einsum("k,kij->ij", nu_n, inverse)),
    )


@implements(verbs.data_gradient, Params)
def _(params, summary, rows, labels):
    # The same envelope in x_i: only (x_i - m)(x_i - m)' at m = mu_n depends on it.
    inverse, _, posterior_mean = _inverse_scale(params, summary)
    nu_n = params.nu + summary.size
    gradient = np.empty_like(rows)
    for k in range(len(nu_n)):
        own = labels == k
        gradient[own] = -nu_n[k] * (rows[own] - posterior_mean[k]) @ inverse[k]
    return gradient


def _check(name: str, value: np.ndarray) -> None:
    if not np.all(np.isfinite(value)):
        raise ValueError(f"{name} must be finite, got {value}")
    if name == "kappa" and not value > 0:
        raise ValueError(f"kappa must be > 0, got {value}")
    if name == "psi":
        if np.abs(value - value.T).max() > 1e-10 * np.abs(value).max():
            raise ValueError(f"psi must be symmetric, got {value.tolist()}")
        # Scaling the columns to unit diagonal leaves definiteness and makes the factorisation fair to
        # columns in different units.
        diagonal = np.diag(value)
        if not np.all(diagonal > 0) or not _is_positive_definite(value / np.sqrt(np.outer(diagonal, diagonal))):
            raise ValueError(f"psi must be positive definite, got {value.tolist()}")


def _is_positive_definite(matrix: np.ndarray) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _check_together(params: Params) -> None:
    d = len(params.mu)
    if not params.nu > d - 1:
        raise ValueError(f"nu must be > d - 1 = {d - 1}, got {params.nu}")


def _allocate_summary(params: Params, capacity: int) -> Summary:
    d = len(params.mu)
    return Summary(
        size=np.zeros(capacity, dtype=np.int64),
        mean=np.zeros((capacity, d)),
        scatter=np.zeros((capacity, d, d)),
    )


def _allocate_stats(params: Params, n: int, capacity: int) -> Stats:
    d = len(params.mu)
    return Stats(
        mu=np.ascontiguousarray(params.mu, dtype=np.float64),
        kappa=float(params.kappa),
        nu=float(params.nu),
        psi=np.ascontiguousarray(params.psi, dtype=np.float64),
        log_det_psi=float(np.linalg.slogdet(params.psi)[1]),
        size=np.zeros(capacity, dtype=np.int64),
        mean=np.zeros((capacity, d)),
        factor=np.zeros((capacity, d, d)),
        shift=np.zeros((capacity, d)),
        log_det=np.zeros(capacity),
        constant=np.zeros(capacity),
        constant_without=np.zeros(capacity),
        error=np.zeros(capacity),
        norms=_log_norms(params, n),
        work=np.zeros((2, d)),
    )


def _draw(rng: np.random.Generator, params: Params, summary: Summary) -> dict[str, np.ndarray]:
    # The inverse of an IW(nu, L L') matrix has the law of C A A' C' with C = inv(L)' and A Bartlett's triangular
    # matrix. No product is formed: for nu close to d - 1 it would be singular to working precision.
    posterior_mean, scale = _posterior(params, summary)
    d = len(params.mu)
    lower = np.linalg.cholesky(scale)
    bartlett = np.tril(rng.standard_normal(scale.shape), -1)
    squares = 2.0 * rng.standard_gamma(0.5 * (params.nu + summary.size[:, None] - np.arange(d)))
    bartlett[:, np.arange(d), np.arange(d)] = np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
    identity = np.broadcast_to(np.eye(d), scale.shape)
    factor = lower @ np.linalg.solve(bartlett, identity).transpose(0, 2, 1)
    noise = rng.standard_normal(posterior_mean.shape) / np.sqrt(params.kappa + summary.size)[:, None]
    # Prior covariances with nu close to d - 1 can be infinite.
    with np.errstate(over="ignore"):
        covariance = factor @ factor.transpose(0, 2, 1)
    return {
        "mean": posterior_mean + np.einsum("kij,kj->ki", factor, noise),
        "covariance": covariance,
        # With factor factor' the covariance, and root' root its inverse.
        "factor": factor,
        "root": bartlett.transpose(0, 2, 1) @ np.linalg.solve(lower, identity),
        "log_det": _log_diagonal(bartlett) - _log_diagonal(lower),
    }


def _draw_rows(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, given: np.ndarray
) -> np.ndarray:
    noise = rng.standard_normal((len(labels), drawn["mean"].shape[1]))
    rows = drawn["mean"][labels]
    for k in np.unique(labels):
        own = labels == k
        rows[own] += noise[own] @ drawn["factor"][k].T
    return rows


def _log_density(drawn: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    missing = np.isnan(values)
    if not missing.any():
        return _log_normal(values, drawn["mean"], drawn["root"], drawn["log_det"])
    total = np.empty((len(values), len(drawn["mean"])))
    patterns = missing[:1] if np.all(missing == missing[0]) else np.unique(missing, axis=0)
    for pattern in patterns:
        own, columns = np.all(missing == pattern, axis=1), np.flatnonzero(~pattern)
        factor = np.linalg.cholesky(drawn["covariance"][:, columns[:, None], columns])
        root = np.linalg.solve(factor, np.broadcast_to(np.eye(len(columns)), factor.shape))
        mean = drawn["mean"][:, columns]
        total[own] = _log_normal(values[np.ix_(own, columns)], mean, root, -_log_diagonal(factor))
    return total


def _log_diagonal(matrices: np.ndarray) -> np.ndarray:
    return np.log(np.diagonal(matrices, axis1=1, axis2=2)).sum(axis=1)


def _log_normal(values: np.ndarray, mean: np.ndarray, root: np.ndarray, log_det: np.ndarray) -> np.ndarray:
    """Log normal densities (n, K) of values (n, d), given roots (K, d, d) of the precisions and their log dets."""
    total = np.empty((len(values), len(mean)))
    for k in range(len(mean)):
        total[:, k] = -0.5 * np.sum(((values - mean[k]) @ root[k].T) ** 2, axis=1)
    return total + log_det - 0.5 * values.shape[1] * math.log(2.0 * math.pi)


def _from_data(rows: np.ndarray) -> dict[str, np.ndarray | float]:
    return {
        "mu": np.nanmean(rows, axis=0),
        "kappa": 0.01,
        "nu": rows.shape[1] + 2.0,
        "psi": np.diag(0.1 * column_variances(rows)),
    }


FAMILY = Family(
    name="NormalInverseWishart",
    params=Params,
    axes={"mu": "d", "kappa": "", "nu": "", "psi": "dd"},
    check=_check,
    check_together=_check_together,
    allocate_summary=_allocate_summary,
    allocate_stats=_allocate_stats,
    component=Component(
        axes={"mean": "d", "covariance": "dd"},
        draw=_draw,
        draw_rows=_draw_rows,
        log_density=_log_density,
        restore=restore_mean,
    ),
    represent=centred,
    shift=shift_mean,
    from_data=_from_data,
    draws_missing=True,
    takes=(2,),
)


class NormalInverseWishart(BaseMeasure):
    """Base measure of Gaussian clusters with full covariance.

    ``Sigma ~ IW(nu, psi)`` with mean ``psi / (nu - d - 1)`` and ``m | Sigma ~ N(mu, Sigma / kappa)`` for each
    cluster's covariance Sigma and mean m, d being the number of columns.

    Parameters
    ----------
    mu : scalar or (d,) array_like or variable
        Prior mean of the cluster means.
    kappa : scalar or variable, > 0
        Prior precision of the cluster means, in rows.
    nu : scalar or variable, > d - 1
        Degrees of freedom.
    psi : (d, d) array_like or variable
        Symmetric positive definite scale matrix.

    Notes
    -----
    ``from_data`` takes mu = column means, kappa = 0.01, nu = d + 2 and psi = 0.1 times the diagonal matrix of
    the column variances (:func:`pymc_dpgmm.families.defaults.column_variances`, which states the floor for
    columns without spread).
    """

    family = FAMILY

    def __init__(self, mu: Any, kappa: Any, nu: Any, psi: Any) -> None:
        super().__init__(mu=mu, kappa=kappa, nu=nu, psi=psi)
