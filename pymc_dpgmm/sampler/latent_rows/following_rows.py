"""Latent rows that follow numbers which they all share, so that these move together with them."""

from typing import ClassVar

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import CFunction, address_of, inlined
from pymc_dpgmm.sampler.latent_rows.row_density import RowDensity
from pymc_dpgmm.sampler.latent_rows.table_rows import TABLE_ROWS, filled_table_rows, put_and_refit
from pymc_dpgmm.sampler.latent_rows.work import Work
from pymc_dpgmm.sampler.state.all_clusters import log_joint_of
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.state import State

# Rows follow any function of the numbers: its modes need not be exact.
LEAST_EXPANSIONS_OF_FOLLOWING = 1

FOLLOWING = Block(
    **TABLE_ROWS,
    # Heads of the memory of expansions, and of the density of the rest of the model.
    work=blocks.INTS,
    density=blocks.INTS,
    # Where expansions begin, and how far differences reach.
    anchors=blocks.FLOATS,
    distances=blocks.FLOATS,
    # The rows of the state (n, d), what stays of them, and the rows that follow.
    present=blocks.FLOATS,
    residuals=blocks.FLOATS,
    rows=blocks.FLOATS,
    # Slots of the rows, how many there may be, and of each 2 d numbers.
    slots=blocks.INTS,
    n_slots=NUMBER,
    sums=blocks.FLOATS,
    # The diagonal of the precision of a row in a cluster of its own.
    of_base=blocks.FLOATS,
)
read_following = FOLLOWING.reader()


@inlined
def log_joint_with(f):
    """Let the state have the rows that follow; return the log density of these and their labels."""
    put_and_refit(f, f.rows)
    return log_joint_of(memory_at(f.state))


class FollowingRows:
    """The rows of a view, given something of them that stays where it is while the numbers move.

    Parameters
    ----------
    state : State
        Where it has the rows that follow, it must be given those that are drawn at the end.
    v : int
        The view.
    anchors, distances : C-contiguous (n, d) float64 arrays
        Where expansions begin, and how far differences reach; must not depend on the present rows.
    work : Work
        Not to be used by others meanwhile.
    density : RowDensity
        At the numbers as they are.
    of_base : (d,) array
        The diagonal of the precision of a row in a cluster of its own.

    Attributes
    ----------
    kernel : CFunction
        ``(block, is_first) -> log density``: writes the rows that follow, and returns their log density in their
        clusters, with the Jacobian, without the rest of the model. The first time it takes what stays of the
        present rows.
    present : (n, d) array
        The rows of the state.
    rows : (n, d) array
        Those that follow.
    """

    kernel: ClassVar[CFunction]

    def __init__(
        self,
        state: State,
        v: int,
        anchors: np.ndarray,
        distances: np.ndarray,
        work: Work,
        density: RowDensity,
        of_base: np.ndarray,
    ) -> None:
        (n, d), table = anchors.shape, state.tables[v]
        self.present = np.array(table.values[:, :d], dtype=np.float64, order="C")
        self.rows = self.present.copy()
        # The block has their addresses.
        self._kept = anchors, distances, work, density, of_base, state, np.empty((n, d)), state.slots_of_rows(v)
        self._sums = np.empty((state.capacity + 1, 2 * d))
        self._density = density
        self._block = FOLLOWING.filled(
            **filled_table_rows(state, v, d),
            work=work.address,
            density=density.make_room(work.n_sets),
            anchors=anchors,
            distances=distances,
            present=self.present,
            residuals=self._kept[-2],
            rows=self.rows,
            slots=self._kept[-1],
            n_slots=len(self._sums),
            sums=self._sums,
            of_base=of_base,
        )
        self.address = address_of(self._block)

    def begin(self) -> float:
        """Take what stays of the present rows, and return their log density; see ``kernel``."""
        return self._placed(True)

    def place(self) -> float:
        """Write the rows that follow, and return their log density; see ``kernel``."""
        return self._placed(False)

    def _placed(self, is_first: bool) -> float:
        log_p = float(self.kernel(self.address, int(is_first)))
        self._density.check()
        return log_p
