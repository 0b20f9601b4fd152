"""Multivariate t and normal predictives of a cluster when some entries of a row are absent.

Both are functions of |A (x - mu_n)|^2 with a lower triangular factor A: see
:mod:`pymc_dpgmm.families.normal_inverse_wishart` and :mod:`pymc_dpgmm.families.shared_covariance`.
"""

import math

from pymc_dpgmm.native.arithmetic import LEAST_GAMMA, standard_gamma, standard_normal
from pymc_dpgmm.native.compiled import inlined, shifted
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.native.triangles import solve_upper


@inlined
def condition(d, factor, mean, x, absent, residual, root, delta):
    """Condition the predictive of a cluster on the entries of ``x`` that are not absent.

    With A the factor and mu_n the mean, |A (x - mu_n)|^2 is least, q, where the absent entries are at their
    conditional mean: mu_n + delta, with B' B delta = -B' r, B the absent columns of A, and r = A (x - mu_n) with
    the absent entries at mu_n. ``root`` becomes the Cholesky factor of B' B, and ``delta`` that of the absent
    entries in their order; returned are their number and q.
    """
    squared = 0.0
    for i in range(d):
        residual[i] = 0.0
        for j in range(i + 1):
            if absent[j] == 0:
                residual[i] += factor[i * (i + 1) // 2 + j] * (x[j] - mean[j])
        squared += residual[i] * residual[i]
    # The Cholesky factor of B' B row by row, and forward substitution with it.
    m = 0
    for j in range(d):
        if absent[j] == 0:
            continue
        b = 0
        for k in range(j + 1):
            if absent[k] == 0:
                continue
            value = 0.0
            for i in range(j, d):
                value += factor[i * (i + 1) // 2 + j] * factor[i * (i + 1) // 2 + k]
            for u in range(b):
                value -= root[m * (m + 1) // 2 + u] * root[b * (b + 1) // 2 + u]
            at = m * (m + 1) // 2 + b
            root[at] = math.sqrt(value) if b == m else value / root[b * (b + 1) // 2 + b]
            b += 1
        value = 0.0
        for i in range(j, d):
            value -= factor[i * (i + 1) // 2 + j] * residual[i]
        for u in range(m):
            value -= root[m * (m + 1) // 2 + u] * delta[u]
        delta[m] = value / root[m * (m + 1) // 2 + m]
        squared -= delta[m] * delta[m]
        m += 1
    return m, max(squared, 0.0)


def log_predictive_present(p, n, s, c, x, absent, scratch):
    """Log density of the entries of a row that are not absent, given a cluster."""
    # The marginal of a t is a t with as many degrees of freedom.
    d = p.d
    residual, delta, root = scratch, shifted(scratch, d), shifted(scratch, 2 * d)
    m, squared = condition(d, c.factor, c.mean, x, absent, residual, root, delta)
    freedom = p.nu + n - d + 1.0
    log_det = 0.0
    for j in range(d):
        log_det += math.log(c.factor[j * (j + 1) // 2 + j])
    for k in range(m):
        log_det -= math.log(root[k * (k + 1) // 2 + k])
    present = d - m
    return (
        log_rising(0.5 * freedom, 0.5 * present)
        - 0.5 * present * math.log(math.pi)
        + log_det
        - 0.5 * (freedom + present) * math.log1p(squared)
    )


def draw_absent(p, n, s, c, x, absent, scratch, bits):
    """Set the absent entries of a row to a draw given the others and a cluster."""
    # Given the present entries, u = x_absent - mean is a t: (1 + q + |root' u|^2)^(-(freedom + d) / 2).
    d = p.d
    step, delta, root = scratch, shifted(scratch, d), shifted(scratch, 2 * d)
    m, squared = condition(d, c.factor, c.mean, x, absent, step, root, delta)
    freedom = p.nu + n + 1.0 - m
    gamma = max(standard_gamma(bits, 0.5 * freedom), LEAST_GAMMA)
    scale = math.sqrt((1.0 + squared) / (2.0 * gamma))
    for k in range(m):
        step[k] = delta[k] + scale * standard_normal(bits)
    solve_upper(root, step, m)
    k = 0
    for j in range(d):
        if absent[j] != 0:
            x[j] = c.mean[j] + step[k]
            k += 1
