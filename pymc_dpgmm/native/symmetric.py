"""Eigenvalues of small symmetric matrices in compiled code."""

import math

from pymc_dpgmm.native.compiled import inlined

# Off the diagonal, nothing but rounding is left below this share of the diagonal; few rounds get there.
_ROUNDING = 1e-30
_MOST_ROUNDS = 30


@inlined
def _turn(matrix, vectors, d, p, q):
    """Turn two axes so that the entry between them is zero (Golub and Van Loan 2013, algorithm 8.5.1)."""
    between = matrix[p * d + q]
    if between == 0.0:
        return
    tau = (matrix[q * d + q] - matrix[p * d + p]) / (2.0 * between)
    tangent = 1.0 / (tau + math.copysign(math.sqrt(1.0 + tau * tau), tau))
    cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
    sine = tangent * cosine
    for k in range(d):
        left, right = matrix[k * d + p], matrix[k * d + q]
        matrix[k * d + p], matrix[k * d + q] = cosine * left - sine * right, sine * left + cosine * right
    for k in range(d):
        left, right = matrix[p * d + k], matrix[q * d + k]
        matrix[p * d + k], matrix[q * d + k] = cosine * left - sine * right, sine * left + cosine * right
    for k in range(d):
        left, right = vectors[k * d + p], vectors[k * d + q]
        vectors[k * d + p], vectors[k * d + q] = cosine * left - sine * right, sine * left + cosine * right


@inlined
def definite_near(matrix, work, d, least):
    """Give a symmetric matrix (d, d) the absolute values of its eigenvalues, and ``least`` where these are less.

    ``work`` has room for 2 d d numbers. Eigenvalues and eigenvectors are found by turning pairs of axes (Jacobi).
    """
    vectors = work
    for i in range(d):
        for j in range(d):
            vectors[i * d + j] = 1.0 if i == j else 0.0
    for _ in range(_MOST_ROUNDS):
        off, on = 0.0, 0.0
        for i in range(d):
            on += matrix[i * d + i] * matrix[i * d + i]
            for j in range(i):
                off += matrix[i * d + j] * matrix[i * d + j]
        if off <= _ROUNDING * on:
            break
        for p in range(d - 1):
            for q in range(p + 1, d):
                _turn(matrix, vectors, d, p, q)
    for k in range(d):
        work[d * d + k] = max(abs(matrix[k * d + k]), least)
    for i in range(d):
        for j in range(d):
            total = 0.0
            for k in range(d):
                total += work[d * d + k] * vectors[i * d + k] * vectors[j * d + k]
            matrix[i * d + j] = total
