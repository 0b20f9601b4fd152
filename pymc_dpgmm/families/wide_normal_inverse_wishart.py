r"""The normal-inverse-Wishart family for wide data: clusters of fewer rows than columns.

With X the n rows of a cluster minus :math:`\mu`, and for pairs of rows

.. math:: g(x, y) = (x - \mu)' \Psi^{-1} (y - \mu) + 1 / \kappa, \qquad A = I + (g(x_i, x_j))_{ij},

Sylvester's identity gives :math:`|\Psi_n| = |\Psi| |A| \kappa / \kappa_n`, since
:math:`\Psi_n = \Psi + X' (I - 1 1' / \kappa_n) X` and :math:`(I - 1 1' / \kappa_n)^{-1} = I + 1 1' / \kappa`. The
argument of the predictive t density of a row x is a ratio of two such determinants,

.. math:: \frac{|\Psi_{n + 1}|}{|\Psi_n|} = \frac{\kappa_n}{\kappa_n + 1} (1 + g(x, x) - g_x' A^{-1} g_x),
          \qquad g_x = (g(x_i, x))_i,

and of row q of the cluster, given the others, :math:`|\Psi_{n - 1}| / |\Psi_n| = (A^{-1})_{qq} \kappa_n /
(\kappa_n - 1)`, in which no digits are lost. So a row costs :math:`n^2 / 2` multiplications for each cluster in
place of :math:`d^2 / 2`. All g are computed once for given parameters. A cluster is represented by the row numbers
of its *members* and the inverse Cholesky factor of A. A cluster that grows beyond d rows is represented by its
mean and scatter, as in :mod:`pymc_dpgmm.families.normal_inverse_wishart`: it is *summed*.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_dpgmm.families import normal_inverse_wishart as summed
from pymc_dpgmm.families.shared.moments import gather_scatter, merge_scatter, update_scatter
from pymc_dpgmm.native.compiled import entries_between, inlined, shifted
from pymc_dpgmm.native.triangles import (
    append_to_inverse,
    diagonal_of_inverse,
    remove_from_inverse,
    squared_distance,
    squared_length,
)

# This family needs _FEWEST_COLUMNS to be faster. It is used for at most _MOST_PER_NUMBER rows per column, so that
# the (n, n) array of g takes at most that multiple of the memory of the data, and at most _MOST_ROWS rows, 128
# MiB.
_FEWEST_COLUMNS = 32
_MOST_PER_NUMBER = 4
_MOST_ROWS = 4096
# A vague prior mean, or one far from the data, adds the same large number to every g. If that number exceeds the
# variation between rows by this factor, digits would be lost: all clusters are then summed.
_LARGEST_COMMON = 1e5

# Functions for summed clusters.
_refresh_sums, _change_sums, _evidence = inlined(summed._refresh), inlined(summed._change), summed._evidence
_predict_by_sums = inlined(summed._log_predictive)
_predict_without_by_sums = inlined(summed._log_predictive_without)
_log_evidence_by_sums = inlined(summed._log_evidence)


def pays(n: int, d: int) -> bool:
    """Tell whether this family is faster than the usual one, for n rows of d columns."""
    return d >= _FEWEST_COLUMNS and n <= min(_MOST_PER_NUMBER * d, _MOST_ROWS)


def pairs(params: Any, rows: np.ndarray) -> np.ndarray:
    """Return g of all pairs of rows: (n, n) array, or (0, 0) where digits would be lost."""
    from scipy.linalg import solve_triangular

    # Scaled to unit diagonal, as in the check that psi is positive definite.
    scales = np.sqrt(np.diag(params.psi))
    factor = np.linalg.cholesky(params.psi / np.outer(scales, scales))
    root = solve_triangular(factor, ((rows - params.mu) / scales).T, lower=True)
    centre = root.mean(axis=1)
    common = 1.0 / params.kappa + centre @ centre
    between_rows = np.mean((root - centre[:, None]) ** 2) * len(centre)
    if not common <= _LARGEST_COMMON * max(between_rows, 1.0):
        return np.zeros((0, 0))
    return root.T @ root + 1.0 / params.kappa


@inlined
def _row(p, member):
    return shifted(p.data, int(member) * p.d)


@inlined
def _place_of(p, x):
    """Return the number of the row ``x`` in the data."""
    return entries_between(p.data, x) // p.d


@inlined
def _member(n, s, i):
    """Return the position of row ``i`` among the members."""
    for q in range(n):
        if int(s.members[q]) == i:
            return q
    return 0


@inlined
def _pairs_with(p, n, s, i, out):
    """Write g of row ``i`` and each of ``n`` members; return g of the row and itself."""
    pairs_of_row = shifted(p.pairs, i * int(p.n_pairs))
    for q in range(n):
        out[q] = pairs_of_row[int(s.members[q])]
    return pairs_of_row[i]


@inlined
def _sum_up(p, n, s):
    """Turn a cluster represented by its members into a summed one."""
    for j in range(p.d):
        s.mean[j] = 0.0
    for j in range(p.d * (p.d + 1) // 2):
        s.scatter[j] = 0.0
    _add_members(p, 0.0, s, int(n), s)
    s.is_summed[0] = 1.0


@inlined
def _add_members(p, n, s, m, t):
    """Add the m members of cluster ``t`` to the sums of the n rows of cluster ``s``."""
    for q in range(m):
        update_scatter(n + q, p.d, s.mean, s.scatter, p.psi, _row(p, t.members[q]), 1.0)


@inlined
def _drop(n, s, q):
    for r in range(q, n - 1):
        s.members[r] = s.members[r + 1]


@inlined
def _update(p, n, s, x, sign):
    size = int(n)
    if s.is_summed[0] == 0.0:
        if sign < 0.0:
            _drop(size, s, _member(size, s, _place_of(p, x)))
            return 1.0
        if size < p.d and p.n_pairs > 0.0:
            s.members[size] = _place_of(p, x)
            return 1.0
        _sum_up(p, n, s)
    share = update_scatter(n, p.d, s.mean, s.scatter, p.psi, x, sign)
    # A share of 0 makes the caller gather the cluster anew, which turns a small one into members.
    return 0.0 if sign < 0.0 and _may_be_members(p, size - 1) else share


@inlined
def _may_be_members(p, size):
    """Tell whether a summed cluster has become small enough to be represented by its members."""
    return 2 * size <= p.d and p.n_pairs > 0.0


def _merge(p, n, s, m, t):
    if s.is_summed[0] == 0.0:
        if t.is_summed[0] == 0.0 and n + m <= p.d:
            for q in range(int(m)):
                s.members[int(n) + q] = t.members[q]
            return
        _sum_up(p, n, s)
    if t.is_summed[0] == 0.0:
        _add_members(p, n, s, int(m), t)
    else:
        merge_scatter(n, p.d, s.mean, s.scatter, m, t.mean, t.scatter)


def _gather(p, n, s, data, stride, members, m, scratch):
    if s.is_summed[0] == 0.0:
        if n + m <= p.d and p.n_pairs > 0.0:
            # Nothing is gathered: the rows become members one by one.
            return 0
        _sum_up(p, n, s)
    return gather_scatter(n, p.d, s.mean, s.scatter, data, stride, members, m, scratch)


@inlined
def _fit(p, n, s, c):
    """Compute the factor from the members; return half the log of the determinant of Psi_n."""
    log_det = math.log(p.kappa / (p.kappa + n))
    for q in range(int(n)):
        g_of_itself = _pairs_with(p, q, s, int(s.members[q]), c.step)
        log_det += math.log(append_to_inverse(c.factor, c.step, 1.0 + g_of_itself, 1.0, c.work, q))
    return p.half_log_det_psi + 0.5 * log_det


@inlined
def _set_constants(p, n, c):
    size = int(n)
    c.constant[0] = p.norms[size] - c.half_log_det[0]
    c.constant_without[0] = p.norms[max(size - 1, 0)] - c.half_log_det[0]


@inlined
def _refresh(p, n, s, c):
    if s.is_summed[0] == 0.0 and p.n_pairs == 0.0:
        # A cluster without rows has no members, but its predictive needs g too.
        _sum_up(p, n, s)
    if s.is_summed[0] > 0.0:
        _refresh_sums(p, n, s, c)
    else:
        c.half_log_det[0] = _fit(p, n, s, c)
        _set_constants(p, n, c)


def _change(p, n, s, c, x, sign):
    size, kappa_n = int(n), p.kappa + n
    if s.is_summed[0] > 0.0:
        share = _change_sums(p, n, s, c, x, sign)
        return 0.0 if sign < 0.0 and _may_be_members(p, size - 1) else share
    if sign > 0.0 and (size == p.d or p.n_pairs == 0.0):
        _update(p, n, s, x, sign)
        _refresh(p, n + 1.0, s, c)
        return 1.0
    i = _place_of(p, x)
    if sign > 0.0:
        g_of_itself = _pairs_with(p, size, s, i, c.step)
        ratio = (
            append_to_inverse(c.factor, c.step, 1.0 + g_of_itself, 1.0, c.work, size) * kappa_n / (kappa_n + 1.0)
        )
    else:
        q = _member(size, s, i)
        ratio = diagonal_of_inverse(c.factor, q, size) * kappa_n / (p.kappa + (n - 1.0))
        remove_from_inverse(c.factor, q, c.step, c.work, size)
    c.half_log_det[0] += 0.5 * math.log(ratio)
    _update(p, n, s, x, sign)
    _set_constants(p, n + sign, c)
    return 1.0


def _log_predictive(p, n, s, c, x):
    if s.is_summed[0] > 0.0:
        return _predict_by_sums(p, n, s, c, squared_distance(c.factor, c.shift, x, p.d))
    size, kappa_n = int(n), p.kappa + n
    g_of_itself = _pairs_with(p, size, s, _place_of(p, x), c.step)
    pivot = max(1.0 + g_of_itself - squared_length(c.factor, c.step, size), 1.0)
    return c.constant[0], 0.5 * (p.nu + n + 1.0), pivot * kappa_n / (kappa_n + 1.0)


def _log_predictive_without(p, n, s, c, x):
    if s.is_summed[0] > 0.0:
        return _predict_without_by_sums(p, n, s, c, squared_distance(c.factor, c.shift, x, p.d))
    size, kappa_n = int(n), p.kappa + n
    inverse_diagonal = diagonal_of_inverse(c.factor, _member(size, s, _place_of(p, x)), size)
    return c.constant_without[0], -0.5 * (p.nu + n - 1.0), inverse_diagonal * kappa_n / (p.kappa + (n - 1.0))


def _log_evidence(p, n, s, c):
    if s.is_summed[0] > 0.0:
        return _log_evidence_by_sums(p, n, s, c)
    return _evidence(p, n, _fit(p, n, s, c))


FAMILY = replace(
    summed.FAMILY,
    name="WideNormalInverseWishart",
    # Its sums are others; those who learn a scale sum up clusters as the usual family does.
    scale=None,
    sums={**summed.FAMILY.sums, "members": "d", "is_summed": ""},
    tables={**summed.FAMILY.tables, "n_pairs": "", "pairs": "n"},
    pairs=pairs,
    update=_update,
    merge=_merge,
    gather=_gather,
    log_evidence=_log_evidence,
    refresh=_refresh,
    change=_change,
    log_predictive=_log_predictive,
    log_predictive_without=_log_predictive_without,
    quadratic=None,
    quadratic_predictive=None,
    quadratic_predictive_without=None,
    wide=None,
)
