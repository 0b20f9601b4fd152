r"""Latent rows that are shifted with their cluster: a variable that they share moves with them.

Standardized rows (``standardized.py``) follow a variable :math:`\beta` given the parameters of their clusters.
Where :math:`\beta` can take the place of the means of all clusters, as the effect of a treatment or an intercept
can, it hardly moves while these stay where they are. Here rows keep their distance from a centre of their cluster,

.. math:: x_i = h_{k(i)}(\beta) + r_i, \qquad
          h_k(\beta) = \frac{\sum_{i \in k} w_i(\beta) \mu_i(\beta)}{\sum_{i \in k} w_i(\beta)},

with :math:`\mu_i` the mode of the row's density and :math:`w_i` what the rest of the model adds to its precision,
column by column, both from expansions in a cluster of the row's own: functions of :math:`\beta` and of the labels,
but not of the rows. :math:`\beta` is drawn given labels and distances, by the density of rows whose clusters have
their parameters integrated out. The map from the distances to the rows has the Jacobian 1.
"""

from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, c_function, inlined, shifted
from pymc_dpgmm.sampler.latent_rows.expansions import expand_rows
from pymc_dpgmm.sampler.latent_rows.following_rows import (
    LEAST_EXPANSIONS_OF_FOLLOWING,
    FollowingRows,
    read_following,
)
from pymc_dpgmm.sampler.latent_rows.moving_rows import MovingRows, log_joint_with, read_moving, read_slots
from pymc_dpgmm.sampler.latent_rows.redraws import RowOfBase, take_row_of_base
from pymc_dpgmm.sampler.latent_rows.row_density import read_density
from pymc_dpgmm.sampler.latent_rows.work import Work, read
from pymc_dpgmm.sampler.state.all_clusters import log_joint_of
from pymc_dpgmm.sampler.state.memory import memory_at

# The least weight of a row, in precisions of a row in a cluster of its own.
LEAST_WEIGHT = 1e-8


@inlined
def _centre_rows(f, m, w):
    """Write the centres of the clusters to the rows, given the expansions of rows in clusters of their own."""
    d, sums = m.d, m.sums
    for entry in range(m.n_slots * 2 * d):
        sums[entry] = 0.0
    for i in range(m.n):
        factor, own = shifted(w.factors, i * (d * (d + 1) // 2)), shifted(sums, m.slots[i] * 2 * d)
        for j in range(d):
            precision = 0.0
            for q in range(j + 1):
                precision += factor[j * (j + 1) // 2 + q] * factor[j * (j + 1) // 2 + q]
            weight = max(precision - f.of_base[j], LEAST_WEIGHT * f.of_base[j])
            own[j] += weight
            own[d + j] += weight * w.modes[i * d + j]
    for i in range(m.n):
        own = shifted(sums, m.slots[i] * 2 * d)
        for j in range(d):
            f.rows[i * d + j] = own[d + j] / own[j]


@c_function(FLOAT(INTS, INT))
def place_shifted(block, is_first):
    """Write the rows at their distances from the centres; return the log density of them and their labels."""
    f = read_following(block)
    m, w = read_moving(f.moving), read(f.work)
    if is_first != 0:
        read_slots(m)
    expand_rows(w, read_density(m.density), m.anchors, m.distances, False, LEAST_EXPANSIONS_OF_FOLLOWING)
    _centre_rows(f, m, w)
    if is_first != 0:
        for entry in range(m.n * m.d):
            f.residuals[entry] = m.rows[entry] - f.rows[entry]
            f.rows[entry] = m.rows[entry]
        return log_joint_of(memory_at(m.state))
    for entry in range(m.n * m.d):
        f.rows[entry] += f.residuals[entry]
    return log_joint_with(m, f.rows)


class ClusterShifts(FollowingRows):
    """The rows of a view, given their labels and how far each is from the centre of its cluster.

    The state has the rows that follow.
    """

    kernel = place_shifted

    def _know_clusters(self, moving: MovingRows, work: Work, of_base: RowOfBase) -> None:
        take_row_of_base(work, len(moving.rows), of_base)
