"""Latent rows that follow numbers which they all share, so that these move together with them."""

from typing import ClassVar

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.blocks import Block
from pymc_dpgmm.native.compiled import CFunction, address_of
from pymc_dpgmm.sampler.latent_rows.moving_rows import MovingRows
from pymc_dpgmm.sampler.latent_rows.redraws import RowOfBase
from pymc_dpgmm.sampler.latent_rows.work import Work

# Rows follow any function of the numbers: its modes need not be exact.
LEAST_EXPANSIONS_OF_FOLLOWING = 1

FOLLOWING = Block(
    # Blocks of the rows, and of the memory of expansions.
    moving=blocks.INTS,
    work=blocks.INTS,
    # What stays of the rows (n, d), and the rows that follow.
    residuals=blocks.FLOATS,
    rows=blocks.FLOATS,
    # The diagonal of the precision of a row in a cluster of its own.
    of_base=blocks.FLOATS,
)
_WORK = FOLLOWING.place("work")
read_following = FOLLOWING.reader()


class FollowingRows:
    """The rows of a view, given something of them that stays where it is while the numbers move.

    Parameters
    ----------
    moving : MovingRows
        Where the state has the rows that follow, it must be given those that are drawn at the end.
    work : Work
        Not to be used by others meanwhile.

    Attributes
    ----------
    kernel : CFunction
        ``(block, is_first) -> log density``: writes the rows that follow, and returns their log density in their
        clusters, with the Jacobian, without the rest of the model. The first time it takes what stays of the
        present rows.
    rows : (n, d) array
        Those that follow.
    address : int
        Of the block.
    """

    kernel: ClassVar[CFunction]

    def __init__(self, moving: MovingRows, work: Work) -> None:
        self._moving, self._work = moving, work
        self.rows, residuals = np.empty((2, *moving.rows.shape))
        self._of_base = np.empty(moving.d)
        # The block has their addresses.
        self._kept = residuals
        self._block = FOLLOWING.filled(
            moving=moving.address, work=0, residuals=residuals, rows=self.rows, of_base=self._of_base
        )
        self.address = address_of(self._block)

    def prepare(self, of_base: RowOfBase) -> None:
        """Get ready to follow from the present rows, given what is proposed to rows alone."""
        self._know_clusters(self._moving, self._work, of_base)
        self._moving.density.make_room(self._work.n_sets)
        self._of_base[:] = of_base.diagonal
        self._block[_WORK] = self._work.address

    def _know_clusters(self, moving: MovingRows, work: Work, of_base: RowOfBase) -> None:
        """Write what is known of the clusters to the memory of expansions."""
        raise NotImplementedError

    def begin(self) -> float:
        """Take what stays of the present rows, and return their log density; see ``kernel``."""
        return self._placed(True)

    def place(self) -> float:
        """Write the rows that follow, and return their log density; see ``kernel``."""
        return self._placed(False)

    def _placed(self, is_first: bool) -> float:
        log_p = float(self.kernel(self.address, int(is_first)))
        self._moving.density.check()
        return log_p
