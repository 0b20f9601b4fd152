r"""Responsibilities of components for rows, and sums of rows weighted by them, for variational inference.

For row i and component k, :math:`r_{ik} \propto \exp \rho_{ik}`, where :math:`\rho_{ik}` is an expected log weight
plus the expected log densities of the row's views. Rows are processed in blocks that fit into the cache, so memory
is needed only for the responsibilities of one block and the sums of the components.
"""

import math

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import fast_exp, fast_log, raise_all
from pymc_dpgmm.native.blocks import Block
from pymc_dpgmm.native.compiled import (
    FLOATS,
    INT,
    INTS,
    NOTHING,
    c_function,
    floats_at,
    inlined,
    shifted,
)
from pymc_dpgmm.sampler.many_rows.quadratics import FIELDS as QUADRATIC_FIELDS
from pymc_dpgmm.sampler.many_rows.quadratics import (
    add_quadratic,
    begin_densities,
    read_block,
)
from pymc_dpgmm.sampler.state.templates import view_at

# A quadratic view with the centres of clusters, the sums of weighted differences from these, and the sums of their
# products, packed triangles or diagonals.
MOMENTS = Block(**QUADRATIC_FIELDS, centre=blocks.FLOATS, first=blocks.FLOATS, second=blocks.FLOATS)
MOMENTS_LENGTH = len(MOMENTS)
moments_at = MOMENTS.reader()
# Smaller log ratios of responsibilities are replaced by this one: the product with a share of 0 must be 0.
_LEAST = -708.0


@inlined
def _normalize(size, n_clusters, densities, largest, total, dot):
    """Replace log densities (K, size) by responsibilities, and set ``total`` to their entropy in each row."""
    for r in range(size):
        largest[r] = -math.inf
        total[r] = 0.0
        dot[r] = 0.0
    for k in range(n_clusters):
        raise_all(largest, shifted(densities, k * size), size)
    for k in range(n_clusters):
        of_cluster = shifted(densities, k * size)
        for r in range(size):
            difference = max(of_cluster[r] - largest[r], _LEAST)
            share = fast_exp(of_cluster[r] - largest[r])
            of_cluster[r] = share
            total[r] += share
            dot[r] += share * difference
    for r in range(size):
        largest[r] = 1.0 / total[r]
        total[r] = fast_log(total[r]) - dot[r] * largest[r]
    for k in range(n_clusters):
        of_cluster = shifted(densities, k * size)
        for r in range(size):
            of_cluster[r] *= largest[r]


@inlined
def _add_moments(view, first, size, n_clusters, densities, product, columns):
    """Add the weighted moments of rows about the centres of clusters."""
    v = moments_at(view)
    rows, stride, d = v.rows, v.stride, v.n_columns
    is_diagonal = v.is_diagonal != 0
    length = d if is_diagonal else d * (d + 1) // 2
    for k in range(n_clusters):
        weight = shifted(densities, k * size)
        centre = shifted(v.centre, k * d)
        means, products = shifted(v.first, k * d), shifted(v.second, k * length)
        heaviest = 0.0
        for r in range(size):
            heaviest = max(heaviest, weight[r])
        if heaviest == 0.0:
            continue
        at = 0
        for i in range(d):
            column = shifted(columns, i * size)
            total = 0.0
            for r in range(size):
                column[r] = rows[(first + r) * stride + i] - centre[i]
                product[r] = weight[r] * column[r]
                total += product[r]
            means[i] += total
            for j in range(i if is_diagonal else 0, i + 1):
                other = shifted(columns, j * size)
                total = 0.0
                for r in range(size):
                    total += product[r] * other[r]
                products[at] += total
                at += 1


@c_function(NOTHING(INT, INT, INT, INT, FLOATS, INTS, INT, INT, INT, FLOATS, FLOATS, FLOATS))
def respond(
    start,
    stop,
    block,
    n_clusters,
    log_weights,
    views,
    n_views,
    linear,
    weights,
    scratch,
    sizes,
    entropy,
):
    """Compute responsibilities for the rows from ``start`` to ``stop``, and add up the rows weighted by them.

    ``linear`` is 0, or the address of the log densities (K, block) of linear views for a single block; ``weights``
    is 0, or the address of the weight of every row. The responsibilities of the last block are left in ``scratch``
    (K, size), which must have room for ``(K + 3 + d) block`` numbers.
    """
    for first in range(start, stop, block):
        size = min(block, stop - first)
        densities = scratch
        largest = shifted(scratch, n_clusters * size)
        total, dot, columns = shifted(largest, size), shifted(largest, 2 * size), shifted(largest, 3 * size)
        begin_densities(log_weights, linear, size, n_clusters, densities)
        for v in range(n_views):
            # ``largest`` and the arrays after it serve as scratch space of add_quadratic here, and are set later.
            view = shifted(views, v * MOMENTS_LENGTH)
            read_block(view, first, size, columns)
            add_quadratic(view, size, 0, n_clusters, columns, largest, densities)
        _normalize(size, n_clusters, densities, largest, total, dot)
        if weights != 0:
            weight = shifted(floats_at(weights), first)
            for r in range(size):
                total[r] *= weight[r]
            for k in range(n_clusters):
                shares = shifted(densities, k * size)
                for r in range(size):
                    shares[r] *= weight[r]
        of_block = 0.0
        for r in range(size):
            of_block += total[r]
        entropy[0] += of_block
        for k in range(n_clusters):
            shares = shifted(densities, k * size)
            of_cluster = 0.0
            for r in range(size):
                of_cluster += shares[r]
            sizes[k] += of_cluster
        for v in range(n_views):
            _add_moments(shifted(views, v * MOMENTS_LENGTH), first, size, n_clusters, densities, largest, columns)


@c_function(NOTHING(INTS, INTS, INT))
def sum_up_each(view, members, m):
    """Set slot r to the sums of the single row ``members[r]``, for r from 0 to ``m - 1``."""
    for r in range(m):
        view_at(view).sum_up(view, r, shifted(members, r), 1)


@c_function(NOTHING(INTS, INT, FLOATS))
def write_evidences(view, n_slots, evidences):
    """Write the log evidence of slots 0 to ``n_slots - 1``, computed from their sums."""
    for k in range(n_slots):
        evidences[k] = view_at(view).evidence_anew(view, k)
