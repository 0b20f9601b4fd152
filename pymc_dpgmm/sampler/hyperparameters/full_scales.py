"""Draws of the scale of clusters with full covariances, by one decomposition of each cluster's matrix.

See :mod:`pymc_dpgmm.sampler.hyperparameters.learnt_scales`.
"""

import math

from pymc_dpgmm.native.arithmetic import Bits
from pymc_dpgmm.native.compiled import c_function, inlined, shifted
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.native.triangles import cholesky_in_place, invert_in_place
from pymc_dpgmm.sampler.hyperparameters.scale_lattices import (
    DEGREES,
    DRAWS_SCALES,
    N_POINTS,
    SHARES,
    chosen_point,
    draw_kappa,
    move_along,
    points_along,
    points_of_share,
    set_psi,
)


@inlined
def _invert(matrix, d, out):
    """Write the packed inverse of a packed positive definite matrix, which is spoilt."""
    cholesky_in_place(matrix, d)
    invert_in_place(matrix, d, 1.0)
    for at in range(d * (d + 1) // 2):
        out[at] = 0.0
    # inv(A) = inv(L)' inv(L), by rows of inv(L).
    for k in range(d):
        row = k * (k + 1) // 2
        at = 0
        for i in range(k + 1):
            for j in range(i + 1):
                out[at] += matrix[row + i] * matrix[row + j]
                at += 1


@inlined
def _write_squares(n_clusters, d, offsets, scatter, psi, matrix, inverse, squares):
    """Write the squared lengths of the offsets: (K,)."""
    length = d * (d + 1) // 2
    for k in range(n_clusters):
        own, offset = shifted(scatter, k * length), shifted(offsets, k * d)
        for q in range(length):
            matrix[q] = own[q]
        for j in range(d):
            matrix[j * (j + 1) // 2 + j] += psi[j]
        _invert(matrix, d, inverse)
        squares[k] = 0.0
        at = 0
        for i in range(d):
            for j in range(i + 1):
                squares[k] += (2.0 if j < i else 1.0) * inverse[at] * offset[i] * offset[j]
                at += 1


@inlined
def _whole(k, d, sizes, offsets, scatter, kappa, out):
    """Write the scatter of cluster ``k`` about the prior mean, a packed triangle."""
    offset, own, at = shifted(offsets, k * d), shifted(scatter, k * (d * (d + 1) // 2)), 0
    weight = kappa * sizes[k] / (kappa + sizes[k])
    for i in range(d):
        for j in range(i + 1):
            out[at] = own[at] + weight * offset[i] * offset[j]
            at += 1


@inlined
def _draw_shares(n_clusters, d, sizes, offsets, scatter, psi, nu, kappa, shares, least, law, work, bits):
    """Draw the shares one by one, each given all else; ``psi`` follows.

    ``work`` has ((K + 1) d (d + 1) / 2 + d + 2 N_POINTS) numbers.
    """
    length = d * (d + 1) // 2
    inverses, column = shifted(work, length), shifted(work, (n_clusters + 1) * length)
    log_p, factors = shifted(column, d), shifted(column, d + N_POINTS)
    for k in range(n_clusters):
        _whole(k, d, sizes, offsets, scatter, kappa, work)
        for j in range(d):
            work[j * (j + 1) // 2 + j] += psi[j]
        _invert(work, d, shifted(inverses, k * length))
    for j in range(d):
        diagonal = j * (j + 1) // 2 + j
        points_of_share(shares[j], least[j], law[4], 0.5 * n_clusters * nu + 1.0, log_p, factors, bits)
        for i in range(N_POINTS):
            if log_p[i] > -math.inf:
                change = psi[j] * (factors[i] - 1.0)
                for k in range(n_clusters):
                    grown = 1.0 + change * inverses[k * length + diagonal]
                    log_p[i] -= 0.5 * (nu + sizes[k]) * math.log(grown)
        factor = factors[chosen_point(log_p, bits)]
        change = psi[j] * (factor - 1.0)
        if change != 0.0:
            for k in range(n_clusters):
                own = shifted(inverses, k * length)
                for i in range(d):
                    column[i] = own[j * (j + 1) // 2 + i] if i <= j else own[i * (i + 1) // 2 + j]
                scale = change / (1.0 + change * column[j])
                at = 0
                for i in range(d):
                    for q in range(i + 1):
                        own[at] -= scale * column[i] * column[q]
                        at += 1
        shares[j] *= factor
        psi[j] *= factor


@inlined
def _tridiagonal(matrix, d, diagonal, squares, vector, image):
    """Write the diagonal (d,) and the squares beside it (d - 1,) of a tridiagonal form of a packed matrix.

    By Householder's reflections (Golub and Van Loan 2013, algorithm 8.3.1). The matrix is spoilt.
    """
    for c in range(d - 2):
        tail, total = 0.0, 0.0
        for i in range(c + 1, d):
            vector[i] = matrix[i * (i + 1) // 2 + c]
            total += vector[i] * vector[i]
            tail += vector[i] * vector[i] if i > c + 1 else 0.0
        squares[c] = total
        if tail > 0.0:
            length = math.sqrt(total)
            vector[c + 1] += length if vector[c + 1] > 0.0 else -length
            beta = 2.0 / (tail + vector[c + 1] * vector[c + 1])
            product = 0.0
            for i in range(c + 1, d):
                image[i] = 0.0
            for i in range(c + 1, d):
                row = i * (i + 1) // 2
                for j in range(c + 1, i):
                    image[i] += matrix[row + j] * vector[j]
                    image[j] += matrix[row + j] * vector[i]
                image[i] += matrix[row + i] * vector[i]
            for i in range(c + 1, d):
                image[i] *= beta
                product += image[i] * vector[i]
            for i in range(c + 1, d):
                image[i] -= 0.5 * beta * product * vector[i]
            for i in range(c + 1, d):
                row = i * (i + 1) // 2
                for j in range(c + 1, i + 1):
                    matrix[row + j] -= vector[i] * image[j] + image[i] * vector[j]
    if d > 1:
        last = matrix[(d - 1) * d // 2 + d - 2]
        squares[d - 2] = last * last
    for i in range(d):
        diagonal[i] = matrix[i * (i + 1) // 2 + i]


@inlined
def _log_det(d, diagonal, squares, x):
    """Return log |I + T / x| of a tridiagonal T, by its pivots."""
    total, product, pivot = 0.0, 1.0, 1.0
    for i in range(d):
        before = squares[i - 1] / (x * x * pivot) if i > 0 else 0.0
        # In exact arithmetic pivots are at least 1.
        pivot = max(1.0 + diagonal[i] / x - before, 1.0)
        product *= pivot
        if product > 1e100:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@inlined
def _log_evidence(d, n, form, nu, x):
    """Return the log evidence of a cluster where psi is x times what its form was made with, up to a constant."""
    total = 0.0
    for i in range(d):
        total += log_rising(0.5 * (nu - i), 0.5 * n)
    total -= 0.5 * n * d * math.log(x)
    return total - 0.5 * (nu + n) * _log_det(d, form, shifted(form, d), x)


@c_function(DRAWS_SCALES)
def draw_full_scales(
    n_rounds,
    n_clusters,
    d,
    sizes,
    offsets,
    scatter,
    variances,
    shares,
    least,
    numbers,
    law,
    work,
    next_double,
    bit_state,
):
    """Draw kappa, degrees and shares in place; see ``draw_scale`` in ``learnt_scales.py``."""
    bits, length, extra = Bits(next_double, bit_state), d * (d + 1) // 2, max(d - 1.0, 1.0)
    psi, rest = work, shifted(work, d)
    squares = shifted(rest, 2 * length)
    forms, vector = shifted(rest, length), shifted(rest, length + 2 * n_clusters * d)
    points = shifted(vector, 2 * d)
    for _ in range(n_rounds):
        nu = numbers[1] + extra
        set_psi(d, nu, variances, shares, psi)
        _write_squares(n_clusters, d, offsets, scatter, psi, rest, shifted(rest, length), squares)
        log_p = shifted(squares, n_clusters)
        numbers[0] = draw_kappa(n_clusters, sizes, squares, 0.5 * d, 1.0, nu, numbers[0], law, log_p, bits)
        _draw_shares(n_clusters, d, sizes, offsets, scatter, psi, nu, numbers[0], shares, least, law, rest, bits)
        for k in range(n_clusters):
            form = shifted(forms, 2 * k * d)
            _whole(k, d, sizes, offsets, scatter, numbers[0], rest)
            at = 0
            for i in range(d):
                for j in range(i + 1):
                    rest[at] /= math.sqrt(psi[i] * psi[j])
                    at += 1
            _tridiagonal(rest, d, form, shifted(form, d), vector, shifted(vector, d))
        numbers[2] = 1.0
        for direction in (DEGREES, SHARES):
            before, spacing = points_along(direction, d, extra, numbers, shares, least, law, points, bits)
            for i in range(N_POINTS):
                if points[i] > -math.inf:
                    for k in range(n_clusters):
                        form = shifted(forms, 2 * k * d)
                        points[i] += _log_evidence(
                            d, sizes[k], form, points[N_POINTS + i], points[2 * N_POINTS + i]
                        )
            move_along(direction, d, extra, numbers, shares, psi, points, before, spacing, bits)
