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

The cache of a cluster is :math:`A = \sqrt{\kappa_n / (\kappa_n + 1)} L^{-1}` with :math:`\Psi_n = L L'`, so that
the argument of the t density is :math:`1 + |A x - A \mu_n|^2`: one triangular product. Triangles are packed, row
after row.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import draw_gammas
from pymc_dpgmm.families.contract.defaults import column_means, column_variances
from pymc_dpgmm.families.contract.expected import Quadratic
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.scale import FULL, NormalScale, ScatterOfClusters, least_degrees
from pymc_dpgmm.families.contract.supports import positive, positive_definite, real
from pymc_dpgmm.families.shared.full_normal import full_component, log_diagonal
from pymc_dpgmm.families.shared.moments import gather_scatters, merge_scatters, scratch_of_scatters, update_scatter
from pymc_dpgmm.families.shared.origins import centred, shift_mean
from pymc_dpgmm.families.shared.some_columns import draw_absent, log_predictive_present
from pymc_dpgmm.native.arithmetic import LEAST_GAMMA, standard_gamma, standard_normal
from pymc_dpgmm.native.compiled import inlined, shifted
from pymc_dpgmm.native.special import digamma, digamma_rises, log_rising
from pymc_dpgmm.native.triangles import (
    cholesky_in_place,
    factors,
    invert_in_place,
    lower_product,
    pack,
    rank_one_inverse,
    solve_lower,
    solve_upper,
    unpacked,
)

# Number of columns up to which a change of a cluster computes the factor anew. With more columns it is updated.
_FEW_COLUMNS = 4


def _update(p, n, s, x, sign):
    return update_scatter(n, p.d, s.mean, s.scatter, p.psi, x, sign)


@inlined
def _posterior_factor(p, n, s, factor):
    """Write the Cholesky factor of Psi_n; return half the log of its determinant."""
    weight = p.kappa * n / (p.kappa + n)
    at = 0
    for i in range(p.d):
        for j in range(i + 1):
            offsets = (s.mean[i] - p.mu[i]) * (s.mean[j] - p.mu[j])
            factor[at] = p.psi[i * p.d + j] + s.scatter[at] + (weight * offsets if n > 0.0 else 0.0)
            at += 1
    return cholesky_in_place(factor, p.d)


@inlined
def _set_constants(p, n, s, c):
    """Set the shift and the constants of predictive densities from size, mean and factor."""
    share = n / (p.kappa + n)
    for i in range(p.d):
        c.mean[i] = p.mu[i] + share * (s.mean[i] - p.mu[i])
    lower_product(c.factor, c.mean, c.shift, p.d)
    size = int(n)
    c.constant[0] = p.norms[size] - c.half_log_det[0]
    c.constant_without[0] = p.norms[max(size - 1, 0)] - c.half_log_det[0]


def _refresh(p, n, s, c):
    c.half_log_det[0] = _posterior_factor(p, n, s, c.factor)
    kappa_n = p.kappa + n
    invert_in_place(c.factor, p.d, math.sqrt(kappa_n / (kappa_n + 1.0)))
    _set_constants(p, n, s, c)


def _change(p, n, s, c, x, sign):
    before = c.half_log_det[0]
    update_scatter(n, p.d, s.mean, s.scatter, p.psi, x, sign)
    kappa_n = p.kappa + n
    if p.d <= _FEW_COLUMNS:
        _refresh(p, n + sign, s, c)
        return math.exp(2.0 * (c.half_log_det[0] - before)) if sign < 0.0 else 1.0
    # v = sqrt(kappa_n / (kappa_n + sign)) (x - mu_n) gives Psi_{n + sign} = Psi_n + sign v v' (Das 2014, eq. 14),
    # and A x - A mu_n is sqrt(kappa_n / (kappa_n + 1)) inv(L) (x - mu_n) already.
    lower_product(c.factor, x, c.step, p.d)
    ratio = math.sqrt((kappa_n + 1.0) / (kappa_n + sign))
    share = 1.0
    for i in range(p.d):
        c.step[i] = (c.step[i] - c.shift[i]) * ratio
        share += sign * c.step[i] * c.step[i]
    # share = |Psi_{n + sign}| / |Psi_n|. A relative error grows by its reciprocal.
    share = max(share, 1e-15)
    after = kappa_n + sign
    scale = math.sqrt(after / (after + 1.0) * (kappa_n + 1.0) / kappa_n)
    rank_one_inverse(c.factor, c.step, sign, scale, c.work, p.d)
    c.half_log_det[0] += 0.5 * math.log(share)
    _set_constants(p, n + sign, s, c)
    return share


def _quadratic(p, c):
    return c.factor, c.shift


def _log_predictive(p, n, s, c, squared):
    return c.constant[0], 0.5 * (p.nu + n + 1.0), 1.0 + squared


def _log_predictive_without(p, n, s, c, squared):
    # Here n counts x. The density is a ratio of two marginal likelihoods, in which, with
    # q = (x - mu_n)' inv(Psi_n) (x - mu_n), |Psi_{n-1}| = |Psi_n| (1 - kappa_n q / (kappa_n - 1)).
    kappa_n = p.kappa + n
    return c.constant_without[0], -0.5 * (p.nu + n - 1.0), 1.0 - squared * (kappa_n + 1.0) / (kappa_n - 1.0)


@inlined
def _evidence(p, n, half_log_det):
    """Log marginal likelihood of n rows (Murphy 2007, eq. 266)."""
    total = 0.0
    for j in range(p.d):
        total += log_rising(0.5 * (p.nu - j), 0.5 * n)
    return (
        total
        - 0.5 * n * p.d * math.log(math.pi)
        + p.nu * p.half_log_det_psi
        - (p.nu + n) * half_log_det
        + 0.5 * p.d * math.log(p.kappa / (p.kappa + n))
    )


def _log_evidence(p, n, s, c):
    return _evidence(p, n, _posterior_factor(p, n, s, c.factor))


def _kept_evidence(p, n, s, c):
    return _evidence(p, n, c.half_log_det[0])


def _draw_normal(p, n, s, c, mean, precision, scratch, bits):
    # The precision is U' U with U = A' inv(L), for Bartlett's A and Psi_n = L L': see _draw. The cache has inv(L)
    # times a number.
    d, kappa_n, half_log_det = p.d, p.kappa + n, 0.0
    scale = math.sqrt((kappa_n + 1.0) / kappa_n)
    bartlett, root, noise = scratch, shifted(scratch, d * (d + 1) // 2), shifted(scratch, d * (d + 1) // 2 + d * d)
    for i in range(d):
        row = i * (i + 1) // 2
        for j in range(i):
            bartlett[row + j] = standard_normal(bits)
        chi_squared = 2.0 * max(standard_gamma(bits, 0.5 * (p.nu + n - i)), LEAST_GAMMA)
        bartlett[row + i] = math.sqrt(chi_squared)
        half_log_det += 0.5 * math.log(chi_squared) + math.log(scale * c.factor[row + i])
    for i in range(d):
        noise[i] = standard_normal(bits) / math.sqrt(kappa_n)
        for j in range(d):
            total = 0.0
            for q in range(max(i, j), d):
                total += bartlett[q * (q + 1) // 2 + i] * c.factor[q * (q + 1) // 2 + j]
            root[i * d + j] = scale * total
    for i in range(d):
        for j in range(i + 1):
            total = 0.0
            for q in range(d):
                total += root[q * d + i] * root[q * d + j]
            precision[i * (i + 1) // 2 + j] = total
    # The mean is mu_n plus the solution of U x = noise.
    solve_upper(bartlett, noise, d)
    solve_lower(c.factor, noise, mean, d)
    for j in range(d):
        mean[j] = c.mean[j] + mean[j] / scale
    return half_log_det


def _constants(params: Any) -> dict[str, Any]:
    return {"half_log_det_psi": 0.5 * np.linalg.slogdet(params.psi)[1]}


def _derive(p, t, scratch):
    pack(p.psi, p.d, scratch)
    t.half_log_det_psi[0] = cholesky_in_place(scratch, p.d)
    return p.nu > p.d - 1.0


def _tabulate(params: Any, n: int) -> dict[str, Any]:
    return _constants(params) | {"norms": _log_norms(params, n)}


def _log_norms(params: Any, n: int) -> np.ndarray:
    """Normalising constants of the predictive t given 0..n rows, without the determinants: (n + 1,)."""
    d = len(params.mu)
    rows = np.arange(n + 1.0)
    # Gamma(x + 1) = x Gamma(x) links the ratios for n and n + 2: one logarithm each, and sums that stay small.
    after = rows[: max(n - 1, 0)] + (params.nu + 1.0)
    log_ratios = np.empty(n + 1)
    log_ratios[2:] = np.log(after / (after - d))
    for parity in range(min(2, n + 1)):
        log_ratios[parity] = log_rising(0.5 * (params.nu + parity + 1.0 - d), 0.5 * d)
        np.cumsum(log_ratios[parity::2], out=log_ratios[parity::2])
    return log_ratios - 0.5 * d * (math.log(math.pi) + np.log1p(1.0 / (params.kappa + rows)))


def _posterior(params: Any, s: Any) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means (K, d) and scale matrices (K, d, d)."""
    offset = s.mean - params.mu
    weight = (params.kappa * s.n / (params.kappa + s.n))[:, :, None]
    scale = params.psi + unpacked(s.scatter) + weight * offset[:, :, None] * offset[:, None, :]
    return params.mu + s.n / (params.kappa + s.n) * offset, scale


def _gradient(params: Any, s: Any) -> dict[str, Any]:
    # Psi_n is the minimum over m of Psi + sum (x_i - m)(x_i - m)' + kappa (m - mu)(m - mu)', attained at
    # mu_n, so that in mu and kappa only the explicit dependence counts (envelope theorem).
    d = len(params.mu)
    posterior_mean, scale = _posterior(params, s)
    inverse, log_det = np.linalg.inv(scale), np.linalg.slogdet(scale)[1]
    n = s.n[:, 0]
    kappa_n, nu_n = params.kappa + n, params.nu + n
    solved = np.einsum("kij,kj->ki", inverse, posterior_mean - params.mu)
    quadratic = np.einsum("ki,ki->k", posterior_mean - params.mu, solved)
    columns = np.arange(d)
    digammas = digamma_rises(0.5 * (params.nu - columns), 0.5 * s.n)
    return {
        "mu": params.kappa * (nu_n @ solved),
        "kappa": np.sum(0.5 * d * (1.0 / params.kappa - 1.0 / kappa_n) - 0.5 * nu_n * quadratic),
        "nu": 0.5 * np.sum(np.linalg.slogdet(params.psi)[1] - log_det + np.sum(digammas, axis=1)),
        "psi": 0.5 * (len(n) * params.nu * np.linalg.inv(params.psi) - np.einsum("k,kij->ij", nu_n, inverse)),
    }


def _data_gradient(params: Any, s: Any, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    # The same envelope in x_i: only (x_i - m)(x_i - m)' at m = mu_n depends on it.
    posterior_mean, scale = _posterior(params, s)
    inverse, nu_n = np.linalg.inv(scale), params.nu + s.n[:, 0]
    gradient = np.empty_like(rows)
    for k in range(len(nu_n)):
        members = labels == k
        gradient[members] = -nu_n[k] * (rows[members] - posterior_mean[k]) @ inverse[k]
    return gradient


def _predictive(params: Any, s: Any) -> dict[str, np.ndarray]:
    mean, scale = _posterior(params, s)
    degrees = params.nu + s.n[:, 0] - len(params.mu) + 1.0
    spread = (1.0 + 1.0 / (params.kappa + s.n[:, 0])) / degrees
    return {"mean": mean, "factor": np.sqrt(spread)[:, None, None] * factors(scale), "degrees": degrees}


def _expected(params: Any, s: Any) -> Quadratic:
    # E log|Sigma| and E inv(Sigma) of an inverse Wishart (Bishop 2006, eqs 10.64 and 10.65).
    mean, scale = _posterior(params, s)
    d, nu_n = len(params.mu), params.nu + s.n[:, 0]
    lower = factors(scale)
    root = np.linalg.qr(np.linalg.solve(lower, np.broadcast_to(np.eye(d), lower.shape))).R
    digammas = digamma(0.5 * (nu_n[:, None] - np.arange(d))).sum(axis=1)
    constant = (
        0.5 * digammas - log_diagonal(lower) - 0.5 * d * (1.0 / (params.kappa + s.n[:, 0]) + math.log(math.pi))
    )
    return Quadratic(constant, mean, np.sqrt(nu_n)[:, None, None] * root)


def _check_together(params: Any) -> None:
    d = len(params.mu)
    if not params.nu > d - 1:
        raise ValueError(f"nu must be > d - 1 = {d - 1}, got {params.nu}")


def _draw(rng: np.random.Generator, params: Any, s: Any) -> dict[str, np.ndarray]:
    # The inverse of an IW(nu, L L') matrix has the law of C A A' C' with C = inv(L)' and A Bartlett's triangular
    # matrix. No product is formed: for nu close to d - 1 it would be singular to working precision.
    posterior_mean, scale = _posterior(params, s)
    d = len(params.mu)
    lower = factors(scale)
    bartlett = np.tril(rng.standard_normal(scale.shape), -1)
    bartlett[:, np.arange(d), np.arange(d)] = np.sqrt(
        2.0 * draw_gammas(rng, 0.5 * (params.nu + s.n - np.arange(d)))
    )
    identity = np.broadcast_to(np.eye(d), scale.shape)
    factor = lower @ np.linalg.solve(bartlett, identity).transpose(0, 2, 1)
    noise = rng.standard_normal(posterior_mean.shape) / np.sqrt(params.kappa + s.n)
    # Prior covariances with nu close to d - 1 can be infinite.
    with np.errstate(over="ignore"):
        covariance = factor @ factor.transpose(0, 2, 1)
    return {
        "mean": posterior_mean + np.einsum("kij,kj->ki", factor, noise),
        "covariance": covariance,
        # With factor factor' the covariance, and root' root its inverse.
        "factor": factor,
        "root": bartlett.transpose(0, 2, 1) @ np.linalg.solve(lower, identity),
        "log_det": log_diagonal(bartlett) - log_diagonal(lower),
    }


def _from_data(rows: np.ndarray) -> dict[str, np.ndarray | float]:
    return {
        "mu": column_means(rows),
        "kappa": 0.01,
        "nu": rows.shape[1] + 2.0,
        "psi": np.diag(0.1 * column_variances(rows)),
    }


def _scatter(params: Any, s: Any) -> ScatterOfClusters:
    return ScatterOfClusters(s.n, s.mean - params.mu, s.scatter)


def _wide(n: int, d: int) -> Family | None:
    from pymc_dpgmm.families import wide_normal_inverse_wishart as wide

    return wide.FAMILY if wide.pays(n, d) else None


FAMILY = Family(
    name="NormalInverseWishart",
    parameters={"mu": real("d"), "kappa": positive(), "nu": real(), "psi": positive_definite("dd")},
    check_together=_check_together,
    sums={"mean": "d", "scatter": "D"},
    update=_update,
    merge=merge_scatters,
    gather=gather_scatters,
    log_evidence=_log_evidence,
    gradient=_gradient,
    predictive=_predictive,
    expected=_expected,
    data_gradient=_data_gradient,
    tables={"half_log_det_psi": "", "norms": "n"},
    tabulate=_tabulate,
    constants=_constants,
    derive=_derive,
    tabulated_by=("kappa", "nu"),
    cache={
        "mean": "d",
        "shift": "d",
        "factor": "D",
        "half_log_det": "",
        "constant": "",
        "constant_without": "",
        "step": "d",
        "work": "d",
    },
    refresh=_refresh,
    change=_change,
    kept_evidence=_kept_evidence,
    quadratic=_quadratic,
    quadratic_predictive=_log_predictive,
    quadratic_predictive_without=_log_predictive_without,
    log_predictive_present=log_predictive_present,
    draw_absent=draw_absent,
    draw_normal=_draw_normal,
    scratch=scratch_of_scatters,
    component=full_component(_draw),
    represent=centred,
    shift=shift_mean,
    from_data=_from_data,
    draws_missing=True,
    takes=(2,),
    wide=_wide,
    scale=NormalScale(FULL, lambda d: (least_degrees(FULL, d), 1.0), {"nu": (1, 0.0), "psi": (1, 1.0)}, _scatter),
)


class NormalInverseWishart(BaseMeasure):
    """Base measure of Gaussian clusters with full covariance.

    In each cluster, the covariance is ``Sigma ~ IW(nu, psi)`` with mean ``psi / (nu - d - 1)``, where d is the
    number of columns, and the mean is ``m | Sigma ~ N(mu, Sigma / kappa)``.

    Parameters
    ----------
    mu : scalar or (d,) array_like or variable
        Prior mean of the cluster means.
    kappa : scalar or variable, > 0
        Prior precision of the cluster means, as a number of rows.
    nu : scalar or variable, > d - 1
        Degrees of freedom.
    psi : (d, d) or (d,) array_like or variable
        Symmetric positive definite scale matrix, or the diagonal of one that is diagonal.

    Notes
    -----
    As a class, ``base=dp.NormalInverseWishart``, in a mixture, it learns its scale.
    ``from_data`` sets mu = column means, kappa = 0.01, nu = d + 2 and psi = 0.1 times the diagonal matrix of the
    column variances (``pymc_dpgmm.families.contract.defaults.column_variances`` states the lower bound for columns
    without spread).

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> base = dp.NormalInverseWishart.from_data(dp.datasets.load_old_faithful())
    >>> base.parameters["psi"].round(2)
    array([[ 0.13,  0.  ],
           [ 0.  , 18.41]])
    """

    family = FAMILY

    def __init__(self, mu: Any, kappa: Any, nu: Any, psi: Any) -> None:
        super().__init__(mu=mu, kappa=kappa, nu=nu, psi=psi)
