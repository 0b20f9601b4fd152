"""Lower triangular matrices, packed row after row: Cholesky factors, their inverses and rank-1 changes.

Everything works on memory of the caller's, and is row-oriented, so that the inner loops run over contiguous
numbers. Nothing here calls LAPACK: the matrices are small (d x d with d columns of data), and a compiled loop
neither starts threads nor raises from inside a sampler.
"""

import math
from functools import lru_cache

import numpy as np

from pymc_dpgmm.native.compiled import inlined, shifted


@inlined
def pack(matrix, d, out):
    """Write the packed lower triangle of a symmetric matrix (d, d)."""
    at = 0
    for i in range(d):
        for j in range(i + 1):
            out[at] = matrix[i * d + j]
            at += 1


@inlined
def set_diagonal(triangle, j, entry):
    """Set row ``j`` of a packed lower triangle to that of a diagonal matrix."""
    row = j * (j + 1) // 2
    for q in range(j):
        triangle[row + q] = 0.0
    triangle[row + j] = entry


@inlined
def cholesky_in_place(matrix, d):
    """Overwrite a packed triangle of a symmetric matrix by its Cholesky factor; return half its log determinant.

    Notes
    -----
    The callers pass "positive definite prior scale + scatter", which is positive definite in exact
    arithmetic. Where rounding makes a pivot fall below ``d eps`` times the diagonal entry it came from,
    it is set to that value, which is the size of the rounding error itself.
    """
    if d == 2:
        first = math.sqrt(matrix[0])
        matrix[0] = first
        matrix[1] /= first
        pivot = matrix[2] - matrix[1] * matrix[1]
        second = math.sqrt(max(pivot, matrix[2] * 4.6e-16))
        matrix[2] = second
        return math.log(first * second)
    product = 1.0
    log_det = 0.0
    at_i = 0
    for i in range(d):
        at_j = 0
        for j in range(i):
            total = matrix[at_i + j]
            for k in range(j):
                total -= matrix[at_i + k] * matrix[at_j + k]
            matrix[at_i + j] = total * matrix[at_j + j]
            at_j += j + 1
        pivot = matrix[at_i + i]
        smallest = pivot * d * 2.3e-16
        for k in range(i):
            pivot -= matrix[at_i + k] * matrix[at_i + k]
        root = math.sqrt(max(pivot, smallest))
        # The diagonal holds reciprocals until the end: divisions are few then.
        matrix[at_i + i] = 1.0 / root
        product *= root
        if not 1e-100 < product < 1e100:
            log_det += math.log(product)
            product = 1.0
        at_i += i + 1
    at_i = 0
    for i in range(d):
        matrix[at_i + i] = 1.0 / matrix[at_i + i]
        at_i += i + 1
    return log_det + math.log(product)


@inlined
def definite_factor(matrix, d):
    """Overwrite a packed triangle by its Cholesky factor, and return half its log determinant.

    NaN is returned, and the triangle is spoilt, if the matrix is not positive definite, or hardly is.
    """
    half_log_det = 0.0
    for i in range(d):
        row = i * (i + 1) // 2
        diagonal = matrix[row + i]
        for j in range(i + 1):
            at = j * (j + 1) // 2
            total = matrix[row + j]
            for k in range(j):
                total -= matrix[row + k] * matrix[at + k]
            if j < i:
                matrix[row + j] = total / matrix[at + j]
            else:
                if not total > 1e-12 * diagonal:
                    return math.nan
                matrix[row + i] = math.sqrt(total)
                half_log_det += 0.5 * math.log(total)
    return half_log_det


@inlined
def solve_lower(factor, x, out, d):
    """Write the solution of ``factor @ out = x`` for a packed lower triangular factor."""
    for i in range(d):
        row = i * (i + 1) // 2
        total = x[i]
        for j in range(i):
            total -= factor[row + j] * out[j]
        out[i] = total / factor[row + i]


@inlined
def solve_upper(factor, x, d):
    """Overwrite ``x`` by the solution of ``factor' @ out = x`` for a packed lower triangular factor."""
    for i in range(d - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, d):
            total -= factor[j * (j + 1) // 2 + i] * x[j]
        x[i] = total / factor[i * (i + 1) // 2 + i]


@inlined
def invert_in_place(factor, d, scale):
    """Overwrite a packed lower triangular matrix by ``scale`` times its inverse."""
    if d == 2:
        first, second = scale / factor[0], scale / factor[2]
        factor[1] *= -first / factor[2]
        factor[0] = first
        factor[2] = second
        return
    at_i = 0
    for i in range(d):
        reciprocal = 1.0 / factor[at_i + i]
        # Row i of the inverse is -1 / L_ii times sum_{k < i} L_ik (row k of the inverse). The sum grows from the
        # left, where entries L_ik have been used.
        at_k = 0
        for k in range(i):
            entry = -reciprocal * factor[at_i + k]
            factor[at_i + k] = 0.0
            for j in range(k + 1):
                factor[at_i + j] += entry * factor[at_k + j]
            at_k += k + 1
        factor[at_i + i] = reciprocal
        at_i += i + 1
    for i in range(at_i):
        factor[i] *= scale


@inlined
def squared_distance(factor, shift, x, d):
    """Return ``|factor @ x - shift|**2`` for a packed lower triangular factor.

    This is the inner product that dominates a Gibbs scan: one triangular matrix-vector product for
    every (row, cluster).
    """
    if d == 1:
        only = factor[0] * x[0] - shift[0]
        return only * only
    if d == 2:
        first = factor[0] * x[0] - shift[0]
        second = factor[1] * x[0] + factor[2] * x[1] - shift[1]
        return first * first + second * second
    total = 0.0
    at = 0
    for i in range(d):
        entry = -shift[i]
        for j in range(i + 1):
            entry += factor[at + j] * x[j]
        total += entry * entry
        at += i + 1
    return total


@inlined
def lower_product(factor, x, out, d):
    """Write ``factor @ x`` for a packed lower triangular factor to ``out``."""
    at = 0
    for i in range(d):
        entry = 0.0
        for j in range(i + 1):
            entry += factor[at + j] * x[j]
        out[i] = entry
        at += i + 1


@inlined
def add_outer_product(triangle, weight, x, d):
    """Add ``weight x x'`` to a symmetric matrix of which a packed triangle is given."""
    at = 0
    for i in range(d):
        for j in range(i + 1):
            triangle[at + j] += weight * x[i] * x[j]
        at += i + 1


@inlined
def squared_length(factor, x, d):
    """Return ``|factor @ x|**2`` for a packed lower triangular factor."""
    total = 0.0
    at = 0
    for i in range(d):
        entry = 0.0
        for j in range(i + 1):
            entry += factor[at + j] * x[j]
        total += entry * entry
        at += i + 1
    return total


@inlined
def upper_entry(factor, x, j, d):
    """Return entry ``j`` of ``factor' @ x`` for a packed lower triangular factor."""
    entry = 0.0
    for i in range(j, d):
        entry += factor[i * (i + 1) // 2 + j] * x[i]
    return entry


@inlined
def symmetric_entry(triangle, x, i, d):
    """Return entry ``i`` of the product of a symmetric matrix, of which a packed triangle is given, and ``x``."""
    entry = 0.0
    for j in range(d):
        at = i * (i + 1) // 2 + j if j <= i else j * (j + 1) // 2 + i
        entry += triangle[at] * x[j]
    return entry


@inlined
def scalar_product(x, y, d):
    """Return ``x' y``."""
    total = 0.0
    for i in range(d):
        total += x[i] * y[i]
    return total


@inlined
def rank_one_inverse(inverse, p, sign, scale, work, d):
    r"""Change an inverse Cholesky factor, packed, for a rank-1 change of its matrix, in place.

    With ``S = L L'`` and ``inverse = c inv(L)`` for any scalar c, on return ``inverse`` holds
    ``scale * c inv(L~)`` where ``L~ L~' = S + sign v v'`` and ``p = inv(L) v``. ``work`` (d,) is overwritten.

    Notes
    -----
    ``L~ = L M`` with ``M M' = I + sign p p'``. With ``t_i = 1 + sign sum_{k <= i} p_k**2``,

    .. math:: M_{ii} = \sqrt{t_i / t_{i-1}}, \qquad
              M_{ij} = \mathrm{sign}\; p_i p_j / \sqrt{t_j t_{j-1}} \quad (j < i),

    so that row i of ``inv(M) inv(L)`` needs only row i and one running combination of the rows above:
    O(d**2) in all (Gill, Golub, Murray and Saunders 1974, method C, written for the inverse).
    """
    for j in range(d):
        work[j] = 0.0
    before = 1.0
    at = 0
    for i in range(d):
        after = max(before + sign * p[i] * p[i], 1e-15)
        ratio = math.sqrt(before / after)
        step = sign * p[i]
        weight = p[i] / math.sqrt(after * before)
        for j in range(i + 1):
            entry = (inverse[at + j] - step * work[j]) * ratio
            work[j] += weight * entry
            inverse[at + j] = scale * entry
        at += i + 1
        before = after


@inlined
def append_to_inverse(inverse, column, diagonal, smallest, work, n):
    """Append a row and a column to a matrix, in its inverse Cholesky factor, packed.

    The factor has room for one more row. ``column`` (n,) and ``diagonal`` are the new entries of the matrix.
    ``work`` (n,) is overwritten.

    Returns
    -------
    float
        The new pivot, the ratio of the determinants after and before; at least ``smallest``.
    """
    # With L' the new factor, its last row is (z', root) with z = inv(L) column and root**2 the pivot.
    lower_product(inverse, column, work, n)
    pivot = diagonal
    row = shifted(inverse, n * (n + 1) // 2)
    for j in range(n):
        pivot -= work[j] * work[j]
        row[j] = 0.0
    pivot = max(pivot, smallest)
    reciprocal = 1.0 / math.sqrt(pivot)
    at = 0
    for i in range(n):
        weight = -reciprocal * work[i]
        for j in range(i + 1):
            row[j] += weight * inverse[at + j]
        at += i + 1
    row[n] = reciprocal
    return pivot


@inlined
def diagonal_of_inverse(inverse, q, n):
    """Return entry (q, q) of the inverse of a matrix, given its inverse Cholesky factor, packed.

    Without row and column q, the determinant is this part of what it was.
    """
    total = 0.0
    at = q * (q + 1) // 2 + q
    for i in range(q, n):
        total += inverse[at] * inverse[at]
        at += i + 1
    return total


@inlined
def remove_from_inverse(inverse, q, removed, work, n):
    r"""Remove row and column ``q`` of a matrix, in its inverse Cholesky factor, packed, in place.

    ``removed`` (q + 1,) and ``work`` (n,) are overwritten.

    Notes
    -----
    Let row q of the factor be (b', beta), and column q below it -beta p. Without row and column q, the rows of the
    factor below take on p b', and their matrix p p' (see :func:`rank_one_inverse`): digits are not lost.
    """
    start = q * (q + 1) // 2
    for j in range(q + 1):
        removed[j] = inverse[start + j]
    for j in range(n):
        work[j] = 0.0
    before = 1.0
    at, to = start + q + 1, start
    for i in range(q + 1, n):
        own = -inverse[at + q] / removed[q]
        after = before + own * own
        ratio = math.sqrt(before / after)
        weight = own / math.sqrt(after * before)
        for j in range(q):
            entry = (inverse[at + j] + own * (removed[j] - work[j])) * ratio
            work[j] += weight * entry
            inverse[to + j] = entry
        for j in range(q + 1, i + 1):
            entry = (inverse[at + j] - own * work[j]) * ratio
            work[j] += weight * entry
            inverse[to + j - 1] = entry
        at += i + 1
        to += i
        before = after


# To make them takes as long as all the rest for a few small matrices, which gradients unpack at every evaluation.
_places = lru_cache(maxsize=16)(np.tril_indices)


def unpacked(triangles: np.ndarray) -> np.ndarray:
    """Return symmetric matrices (K, d, d) of packed lower triangles (K, d (d + 1) / 2)."""
    d = (math.isqrt(8 * triangles.shape[1] + 1) - 1) // 2
    rows, columns = _places(d)
    matrices = np.empty((len(triangles), d, d))
    matrices[:, rows, columns] = triangles
    matrices[:, columns, rows] = triangles
    return matrices


def factors(matrices: np.ndarray) -> np.ndarray:
    """Return the Cholesky factors of symmetric matrices: (K, d, d).

    Matrices that rounding has made indefinite have the factors that :func:`cholesky_in_place` gives them.
    """
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        pass
    found = np.zeros_like(matrices)
    d = matrices.shape[-1]
    for j in range(d):
        before = found[:, j:, :j]
        column = matrices[:, j:, j] - np.einsum("kij,kj->ki", before, before[:, 0])
        smallest = matrices[:, j, j] * d * 2.3e-16
        root = np.sqrt(np.maximum(column[:, 0], smallest))
        found[:, j, j] = root
        found[:, j + 1 :, j] = column[:, 1:] / root[:, None]
    return found
