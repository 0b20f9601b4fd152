"""Draws of the scale of clusters whose columns are independent.

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
def _write_whole(n, sizes, offsets, scatter, kappa, out):
    """Write the scatter of columns of clusters about their prior means: (K d,)."""
    for q in range(n):
        weight = kappa * sizes[q] / (kappa + sizes[q])
        out[q] = scatter[q] + weight * offsets[q] * offsets[q]


@inlined
def _draw_shares(n_clusters, d, sizes, whole, psi, nu, shares, least, law, points, bits):
    """Draw the shares one by one, each given all else; ``psi`` follows. ``points`` is (2, N_POINTS)."""
    log_p, factors = points, shifted(points, N_POINTS)
    for j in range(d):
        points_of_share(shares[j], least[j], law[4], 0.5 * n_clusters * nu + 1.0, log_p, factors, bits)
        for i in range(N_POINTS):
            if log_p[i] > -math.inf:
                change = psi[j] * (factors[i] - 1.0)
                for k in range(n_clusters):
                    grown = 1.0 + change / (whole[k * d + j] + psi[j])
                    log_p[i] -= 0.5 * (nu + sizes[k * d + j]) * math.log(grown)
        factor = factors[chosen_point(log_p, bits)]
        shares[j] *= factor
        psi[j] *= factor


@c_function(DRAWS_SCALES)
def draw_column_scales(
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
    bits, n = Bits(next_double, bit_state), n_clusters * d
    psi, whole, points = work, shifted(work, d), shifted(work, d + n)
    for _ in range(n_rounds):
        nu = numbers[1] + LEAST_DEGREES
        set_psi(d, nu, variances, shares, psi)
        for k in range(n_clusters):
            for j in range(d):
                q = k * d + j
                whole[q] = offsets[q] * offsets[q] / (psi[j] + scatter[q])
        numbers[0] = draw_kappa(n, sizes, whole, 0.5, 1.0, nu, numbers[0], law, points, bits)
        _write_whole(n, sizes, offsets, scatter, numbers[0], whole)
        _draw_shares(n_clusters, d, sizes, whole, psi, nu, shares, least, law, points, bits)
        for k in range(n_clusters):
            for j in range(d):
                whole[k * d + j] /= psi[j]
        draw_lines(n, d, sizes, 1, whole, numbers, shares, least, psi, law, points, bits)
