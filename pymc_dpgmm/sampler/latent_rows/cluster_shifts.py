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

import numpy as np

from pymc_dpgmm.native.compiled import FLOATS, INT, INTS, NOTHING, address_of, c_function, shifted
from pymc_dpgmm.sampler.latent_rows.expansions import Density, expand_rows
from pymc_dpgmm.sampler.latent_rows.following_rows import FollowingRows
from pymc_dpgmm.sampler.latent_rows.redraws import RowOfBase, take_row_of_base
from pymc_dpgmm.sampler.latent_rows.work import Work, read
from pymc_dpgmm.sampler.state.state import State

# The least weight of a row, in precisions of a row in a cluster of its own.
LEAST_WEIGHT = 1e-8


@c_function(NOTHING(INTS, FLOATS, INTS, INT, FLOATS, FLOATS))
def centre_rows(block, of_base, slots, n_slots, sums, centres):
    """Write the centres (n, d) of the clusters of rows.

    Parameters
    ----------
    block : see :data:`pymc_dpgmm.sampler.latent_rows.work.WORK`
        With the expansions of rows in clusters of their own, and in no other.
    of_base : (d,)
        The diagonal of the precision of a row in a cluster of its own.
    slots : (n,)
        Of the rows.
    n_slots : int
    sums : (n_slots, 2 d)
        Scratch memory.
    centres : (n, d)
    """
    w = read(block)
    d = w.d
    for entry in range(n_slots * 2 * d):
        sums[entry] = 0.0
    for i in range(w.n):
        factor, own = shifted(w.factors, i * (d * (d + 1) // 2)), shifted(sums, slots[i] * 2 * d)
        for j in range(d):
            precision = 0.0
            for q in range(j + 1):
                precision += factor[j * (j + 1) // 2 + q] * factor[j * (j + 1) // 2 + q]
            weight = max(precision - of_base[j], LEAST_WEIGHT * of_base[j])
            own[j] += weight
            own[d + j] += weight * w.modes[i * d + j]
    for i in range(w.n):
        own = shifted(sums, slots[i] * 2 * d)
        for j in range(d):
            centres[i * d + j] = own[d + j] / own[j]


KERNELS = (centre_rows,)


class ClusterShifts(FollowingRows):
    """The rows of a view, given their labels and how far each is from the centre of its cluster.

    Parameters
    ----------
    state : State
        Its rows are those that :meth:`rows` has returned last.
    v, anchors, distances, work
        See :class:`~pymc_dpgmm.sampler.latent_rows.following_rows.FollowingRows`.
    of_base : RowOfBase
    """

    def __init__(
        self,
        state: State,
        v: int,
        anchors: np.ndarray,
        distances: np.ndarray,
        of_base: RowOfBase,
        work: Work,
    ) -> None:
        n, d = anchors.shape
        take_row_of_base(work, n, of_base)
        super().__init__(state, v, anchors, distances, work)
        self._state, self._v = state, v
        self._slots, self._sums = state.slots_of_rows(v), np.empty((state.capacity + 1, 2 * d))
        self._of_base = np.diagonal(of_base.precision).copy()

    def begin(self, density: Density) -> float:
        """Take the distances of the present rows."""
        self._residuals = self.present - self._centres(density)
        return self._state.log_joint()

    def rows(self, density: Density) -> tuple[np.ndarray, float]:
        """Return the rows at these distances, and the log density of them and their labels."""
        rows = self._residuals + self._centres(density)
        self._state.take_rows(self._v, rows)
        return rows, self._state.log_joint()

    def _centres(self, density: Density) -> np.ndarray:
        expand_rows(self._work, density, self.present, self._anchors, self._distances)
        centres = np.empty_like(self._residuals)
        arrays = address_of(self._of_base), address_of(self._slots), len(self._sums), address_of(self._sums)
        centre_rows(self._work.address, *arrays, address_of(centres))
        return centres
