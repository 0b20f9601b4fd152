r"""Latent rows as standardized residuals: a variable that they share moves with them.

A variable :math:`\beta` that enters the density :math:`f_i(x_i; \beta)` of all rows hardly moves while these stay
where they are: they have adapted to it. Given labels and parameters of the clusters, write each row as

.. math:: x_i = \mu_i(\beta) + L_i(\beta)^{-\top} \epsilon_i,

where :math:`\mu_i` is the mode of the row's density and :math:`L_i` the factor of its precision there, by the same
expansions as in a redraw: functions of :math:`\beta`, but not of the row. In the coordinates :math:`(\beta,
\epsilon)` the density has the Jacobian :math:`\prod_i |L_i(\beta)|^{-1}`, and :math:`\beta` is drawn given
:math:`\epsilon`: rows follow it (Papaspiliopoulos, Roberts and Skold 2007; Yu and Meng 2011). If rows were normal,
:math:`\epsilon` would be independent of :math:`\beta`, which would be drawn as if rows had been integrated out.
"""

import math

from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, c_function, inlined, shifted
from pymc_dpgmm.native.triangles import solve_upper
from pymc_dpgmm.sampler.latent_rows.expansions import expand_rows, log_prior
from pymc_dpgmm.sampler.latent_rows.following_rows import (
    LEAST_EXPANSIONS_OF_FOLLOWING,
    FollowingRows,
    read_following,
)
from pymc_dpgmm.sampler.latent_rows.moving_rows import MovingRows, read_moving
from pymc_dpgmm.sampler.latent_rows.redraws import RowOfBase, begin_draw
from pymc_dpgmm.sampler.latent_rows.row_density import read_density
from pymc_dpgmm.sampler.latent_rows.work import Work, read


@inlined
def _expansion(w, i):
    """Return the mode and the factor of the precision of a row in its cluster."""
    at, d = w.clusters[i] * w.n + i, w.d
    return shifted(w.modes, at * d), shifted(w.factors, at * (d * (d + 1) // 2))


@inlined
def _standardize(w, rows, residuals):
    """Write the residuals of rows (n, d), both of the same shape."""
    d = w.d
    for i in range(w.n):
        mode, factor = _expansion(w, i)
        for j in range(d):
            # The transpose of the lower factor, times the distance from the mode.
            total = 0.0
            for q in range(j, d):
                total += factor[q * (q + 1) // 2 + j] * (rows[i * d + q] - mode[q])
            residuals[i * d + j] = total


@inlined
def _restore(w, residuals, rows):
    """Write the rows that have some residuals; return the log of their density in clusters, with the Jacobian."""
    d, total = w.d, 0.0
    moved, pull = w.scratch, shifted(w.scratch, d)
    for i in range(w.n):
        mode, factor = _expansion(w, i)
        x = shifted(rows, i * d)
        for j in range(d):
            x[j] = residuals[i * d + j]
        solve_upper(factor, x, d)
        for j in range(d):
            x[j] += mode[j]
            total -= math.log(factor[j * (j + 1) // 2 + j])
        total += log_prior(w, w.clusters[i], i, x, moved, pull)
    return total


@c_function(FLOAT(INTS, INT))
def place_standardized(block, is_first):
    """Write the rows that have the residuals; return their log density in clusters, with the Jacobian."""
    f = read_following(block)
    m, w = read_moving(f.moving), read(f.work)
    expand_rows(w, read_density(m.density), m.anchors, m.distances, True, LEAST_EXPANSIONS_OF_FOLLOWING)
    if is_first != 0:
        _standardize(w, m.rows, f.residuals)
    return _restore(w, f.residuals, f.rows)


class StandardizedRows(FollowingRows):
    """The rows of a view, given labels and parameters of the clusters that are drawn first."""

    kernel = place_standardized

    def _know_clusters(self, moving: MovingRows, work: Work, of_base: RowOfBase) -> None:
        begin_draw(moving.rng, moving.state, moving.v, moving.d, False, of_base, work)
