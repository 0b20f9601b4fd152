"""Log densities of normal rows in all clusters at once, for blocks of rows that stay near the processor."""

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import floats_at, inlined, shifted
from pymc_dpgmm.native.lanes import LANES

# Rows of a block, whose densities are computed together: as many as keep these near the processor.
MOST_DENSITIES, MOST_COLUMNS, MOST_BLOCK, LEAST_BLOCK = 16_384, 6_400, 1_024, 32

# A view whose log densities are quadratic: its rows, and of every cluster the root of its precision, an upper
# triangle or a diagonal, and the shift, which is this root times the mean.
FIELDS: dict[str, str | int] = {
    "rows": blocks.FLOATS,
    "stride": NUMBER,
    "n_columns": NUMBER,
    "is_diagonal": NUMBER,
    "shift": blocks.FLOATS,
    "root": blocks.FLOATS,
}
QUADRATIC = Block(**FIELDS)
quadratic_at = QUADRATIC.reader()


def rows_of_block(n_clusters: int, n_columns: int) -> int:
    """Return how many rows to work on together: a multiple of the lanes of the processor."""
    most = min(MOST_DENSITIES // n_clusters, MOST_COLUMNS // n_columns)
    return int(np.clip(most // LANES * LANES, LEAST_BLOCK, MOST_BLOCK))


@inlined
def begin_densities(log_weights, given, size, n_clusters, densities):
    """Set ``densities`` (K, size) to log weights and, if ``given`` is an address and not 0, the numbers there."""
    for k in range(n_clusters):
        out = shifted(densities, k * size)
        if given != 0:
            extra = shifted(floats_at(given), k * size)
            for r in range(size):
                out[r] = log_weights[k] + extra[r]
        else:
            for r in range(size):
                out[r] = log_weights[k]


@inlined
def read_block(view, first, size, columns):
    """Write the columns (d, size) of the rows from ``first`` on."""
    v = quadratic_at(view)
    rows, stride = v.rows, v.stride
    for j in range(v.n_columns):
        own = shifted(columns, j * size)
        for r in range(size):
            own[r] = rows[(first + r) * stride + j]


@inlined
def read_listed(view, listed, size, columns):
    """Write the columns (d, size) of the listed rows."""
    v = quadratic_at(view)
    rows, stride = v.rows, v.stride
    for j in range(v.n_columns):
        own = shifted(columns, j * size)
        for r in range(size):
            own[r] = rows[listed[r] * stride + j]


@inlined
def add_quadratic(view, size, first_cluster, n_clusters, columns, found, densities):
    """Add to ``densities`` (K, size) minus half of |root (x - mean)|^2 of rows in some clusters, given columns."""
    v = quadratic_at(view)
    d, is_diagonal = v.n_columns, v.is_diagonal != 0
    width = d if is_diagonal else d * d
    shift, root = shifted(v.shift, first_cluster * d), shifted(v.root, first_cluster * width)
    for k in range(n_clusters):
        out = shifted(densities, k * size)
        if is_diagonal:
            for j in range(d):
                a, b = root[k * d + j], shift[k * d + j]
                own = shifted(columns, j * size)
                for r in range(size):
                    out[r] -= 0.5 * (a * own[r] - b) * (a * own[r] - b)
        else:
            _add_triangle(d, size, shifted(root, k * d * d), shifted(shift, k * d), columns, found, out)


@inlined
def _add_triangle(d, size, root, shift, columns, found, out):
    """Subtract half the squared length of the products of an upper triangle with rows, less a shift.

    Two rows of the triangle go together, since what is read of the columns serves both.
    """
    other = shifted(found, size)
    for i in range(0, d, 2):
        own, next_own = shifted(root, i * d), shifted(root, i * d + d)
        is_pair = i + 1 < d
        for r in range(size):
            found[r] = -shift[i]
            other[r] = -shift[i + 1] if is_pair else 0.0
        # Four columns at a time, after those that are left over.
        n_first = (d - i) % 4
        for j in range(i, i + n_first):
            a, b = own[j], next_own[j] if is_pair and j > i else 0.0
            x = shifted(columns, j * size)
            for r in range(size):
                found[r] += a * x[r]
                other[r] += b * x[r]
        for j in range(i + n_first, d, 4):
            a0, a1, a2, a3 = own[j], own[j + 1], own[j + 2], own[j + 3]
            # Below the diagonal there is nothing.
            b0 = next_own[j] if j > i else 0.0
            b1, b2, b3 = next_own[j + 1], next_own[j + 2], next_own[j + 3]
            x0, x1 = shifted(columns, j * size), shifted(columns, (j + 1) * size)
            x2, x3 = shifted(columns, (j + 2) * size), shifted(columns, (j + 3) * size)
            for r in range(size):
                found[r] += a0 * x0[r] + a1 * x1[r] + a2 * x2[r] + a3 * x3[r]
                other[r] += b0 * x0[r] + b1 * x1[r] + b2 * x2[r] + b3 * x3[r]
        for r in range(size):
            out[r] -= 0.5 * (found[r] * found[r] + other[r] * other[r])
