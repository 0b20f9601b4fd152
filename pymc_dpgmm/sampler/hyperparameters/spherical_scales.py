"""Draws of the scale of spherical clusters, which have one unknown variance each.

See :mod:`pymc_dpgmm.sampler.hyperparameters.learnt_scales`.
"""

import math

from pymc_dpgmm.native.arithmetic import Bits
from pymc_dpgmm.native.compiled import c_function, inlined, shifted
from pymc_dpgmm.sampler.hyperparameters.scale_lattices import (
    DRAWS_SCALES,
    LEAST_DEGREES,
    N_POINTS,
    chosen_point,
    draw_kappa,
    draw_lines,
    points_of_share,
    set_psi,
)


@inlined
def _write_squares(n_clusters, d, offsets, scatter, psi, squares):
    """Write the squared lengths of the offsets: (K,)."""
    for k in range(n_clusters):
        within, squares[k] = 1.0, 0.0
        for j in range(d):
            within += scatter[k * d + j] / psi[j]
            squares[k] += offsets[k * d + j] * offsets[k * d + j] / psi[j]
        squares[k] /= within


@inlined
def _draw_shares(
    n_clusters, d, sizes, offsets, scatter, psi, nu, kappa, shares, least, law, whole, sums, points, bits
):
    """Draw the shares one by one, each given all else; ``psi`` follows, and so do ``sums``.

    The scatter of clusters about the prior mean, (K, d), and 1 more than its sums in units of psi, (K,), are
    written. ``points`` is (2, N_POINTS).
    """
    log_p, factors = points, shifted(points, N_POINTS)
    n_rows = 0.0
    for k in range(n_clusters):
        n_rows += sizes[k]
        sums[k] = 1.0
        for j in range(d):
            q = k * d + j
            whole[q] = scatter[q] + kappa * sizes[k] / (kappa + sizes[k]) * offsets[q] * offsets[q]
            sums[k] += whole[q] / psi[j]
    for j in range(d):
        points_of_share(shares[j], least[j], law[4], 1.0 - 0.5 * n_rows, log_p, factors, bits)
        for i in range(N_POINTS):
            if log_p[i] > -math.inf:
                for k in range(n_clusters):
                    change = whole[k * d + j] / psi[j] * (1.0 / factors[i] - 1.0)
                    log_p[i] -= 0.5 * (nu + sizes[k] * d) * math.log1p(change / sums[k])
        factor = factors[chosen_point(log_p, bits)]
        for k in range(n_clusters):
            # Sums are at least 1 in exact arithmetic.
            sums[k] = max(sums[k] + whole[k * d + j] / psi[j] * (1.0 / factor - 1.0), 1.0)
        shares[j] *= factor
        psi[j] *= factor


@c_function(DRAWS_SCALES)
def draw_spherical_scales(
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
    bits = Bits(next_double, bit_state)
    psi, whole = work, shifted(work, d)
    sums, points = shifted(whole, n_clusters * d), shifted(whole, n_clusters * d + n_clusters)
    for _ in range(n_rounds):
        nu = numbers[1] + LEAST_DEGREES
        set_psi(d, nu, variances, shares, psi)
        _write_squares(n_clusters, d, offsets, scatter, psi, sums)
        numbers[0] = draw_kappa(n_clusters, sizes, sums, 0.5 * d, d, nu, numbers[0], law, points, bits)
        _draw_shares(
            n_clusters,
            d,
            sizes,
            offsets,
            scatter,
            psi,
            nu,
            numbers[0],
            shares,
            least,
            law,
            whole,
            sums,
            points,
            bits,
        )
        for k in range(n_clusters):
            sums[k] = 0.0
            for j in range(d):
                sums[k] += whole[k * d + j] / psi[j]
        draw_lines(n_clusters, d, sizes, d, sums, numbers, shares, least, psi, law, points, bits)
