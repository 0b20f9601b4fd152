"""Dense Cholesky factors, their inverses and rank-1 changes, as small compiled loops.

Everything works on caller-owned float64 arrays and is row-oriented, so that the inner loops run over
contiguous memory. Nothing here calls LAPACK: the matrices are small (d x d with d columns of data),
and a compiled loop neither starts threads nor raises from inside a sampler.
"""

import math

import numpy as np

from pymc_dpgmm.dispatch import FASTMATH, compiled


@compiled(fastmath=FASTMATH, inline="always")
def cholesky_in_place(matrix: np.ndarray) -> None:
    """Overwrite the lower triangle of a symmetric matrix by its Cholesky factor.

    Parameters
    ----------
    matrix : (d, d) float64 array
        Symmetric positive definite; only the lower triangle is read. The strict upper triangle is
        set to zero.

    Notes
    -----
    The callers pass "positive definite prior scale + scatter", which is positive definite in exact
    arithmetic. Where rounding makes a pivot fall below ``d eps`` times the diagonal entry it came from,
    it is set to that value, which is the size of the rounding error itself.
    """
    d = matrix.shape[0]
    for i in range(d):
        for j in range(i):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / matrix[j, j]
            matrix[j, i] = 0.0
        pivot = matrix[i, i]
        smallest = pivot * d * 2.3e-16
        for k in range(i):
            pivot -= matrix[i, k] * matrix[i, k]
        matrix[i, i] = math.sqrt(max(pivot, smallest))


@compiled(fastmath=FASTMATH, inline="always")
def invert_lower_in_place(factor: np.ndarray) -> None:
    """Overwrite a lower triangular matrix by its inverse.

    Parameters
    ----------
    factor : (d, d) float64 array
        Lower triangular with non-zero diagonal; the strict upper triangle must be zero and stays so.
    """
    d = factor.shape[0]
    for i in range(d):
        reciprocal = 1.0 / factor[i, i]
        # Row i of the inverse is -1 / L_ii times sum_{j < i} L_ij (row j of the inverse). The entries
        # L_ij are consumed from the right, so that the columns left of j still hold L.
        for j in range(i):
            total = 0.0
            for k in range(j, i):
                total += factor[i, k] * factor[k, j]
            factor[i, j] = -reciprocal * total
        factor[i, i] = reciprocal


@compiled(fastmath=FASTMATH, inline="always")
def scaled_squared_norm(factor: np.ndarray, shift: np.ndarray, x: np.ndarray) -> float:
    """Return ``|factor @ x - shift|**2`` for a lower triangular factor.

    This is the inner product that dominates a Gibbs scan: one triangular matrix-vector product for
    every (row, cluster).

    Parameters
    ----------
    factor : (d, d) float64 array, lower triangular
    shift : (d,) float64 array
    x : (d,) float64 array
    """
    total = 0.0
    for i in range(x.shape[0]):
        entry = -shift[i]
        for j in range(i + 1):
            entry += factor[i, j] * x[j]
        total += entry * entry
    return total


@compiled(fastmath=FASTMATH, inline="always")
def lower_product(factor: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Write ``factor @ x`` for a lower triangular factor to ``out``; all arrays have side d."""
    for i in range(x.shape[0]):
        entry = 0.0
        for j in range(i + 1):
            entry += factor[i, j] * x[j]
        out[i] = entry


@compiled(fastmath=FASTMATH, inline="always")
def rank_one_inverse(inverse: np.ndarray, p: np.ndarray, sign: float, scale: float, work: np.ndarray) -> None:
    r"""Change an inverse Cholesky factor for a rank-1 change of its matrix, in place.

    With ``S = L L'`` and ``inverse = c inv(L)`` for any scalar c, on return ``inverse`` holds
    ``scale * c inv(L~)`` where ``L~ L~' = S + sign v v'`` and ``p = inv(L) v``.

    Parameters
    ----------
    inverse : (d, d) float64 array, lower triangular
    p : (d,) float64 array
    sign : float
        +1.0 (update) or -1.0 (downdate; needs ``|p|**2 < 1``).
    scale : float
        Factor by which the result is multiplied.
    work : (d,) float64 array
        Overwritten.

    Notes
    -----
    ``L~ = L M`` with ``M M' = I + sign p p'``. With ``t_i = 1 + sign sum_{k <= i} p_k**2``,

    .. math:: M_{ii} = \sqrt{t_i / t_{i-1}}, \qquad
              M_{ij} = \mathrm{sign}\; p_i p_j / \sqrt{t_j t_{j-1}} \quad (j < i),

    so that row i of ``inv(M) inv(L)`` needs only row i and one running combination of the rows above:
    O(d**2) in all (Gill, Golub, Murray and Saunders 1974, method C, written for the inverse).
    """
    d = p.shape[0]
    for j in range(d):
        work[j] = 0.0
    before = 1.0
    for i in range(d):
        after = before + sign * p[i] * p[i]
        ratio = math.sqrt(before / after)
        step = sign * p[i]
        weight = p[i] / math.sqrt(after * before)
        for j in range(i + 1):
            entry = (inverse[i, j] - step * work[j]) * ratio
            work[j] += weight * entry
            inverse[i, j] = scale * entry
        before = after
