"""Memory of draws of latent rows, laid out once and used by all draws of a chain."""

from typing import Any

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.memory import Memory

WORK = Block(
    n=NUMBER,
    # Those that have parameters, and, as the last one, clusters of movable rows that are alone.
    n_clusters=NUMBER,
    d=NUMBER,
    # The slots of the clusters that have parameters.
    slots=blocks.INTS,
    # The cluster of every row, how many rows each has, whether a row is movable, how many rows each cluster has
    # that were not chosen, and the log weights with which clusters are proposed.
    clusters=blocks.INTS,
    sizes=blocks.INTS,
    movable=blocks.INTS,
    counts=blocks.FLOATS,
    log_seats=blocks.FLOATS,
    # Means of the clusters: one for all rows, or one for each.
    n_means=NUMBER,
    means=blocks.FLOATS,
    # Packed triangles of the precisions, and the log density of rows at their mean, with that of other views.
    precisions=blocks.FLOATS,
    at_mean=blocks.FLOATS,
    # Of a row in a cluster: mode of its density, factor of the precision there, and log of its integral.
    modes=blocks.FLOATS,
    factors=blocks.FLOATS,
    log_integrals=blocks.FLOATS,
    # What is proposed: cluster, value, and the log density of the proposal there less that of what is.
    chosen=blocks.INTS,
    proposed=blocks.FLOATS,
    log_proposals=blocks.FLOATS,
    scratch=blocks.FLOATS,
    # The rows in random order, and a number for every slot.
    order=blocks.INTS,
    of_slot=blocks.INTS,
)


read = WORK.reader()


class Work(Memory, block=WORK):
    """Memory for redraws of the rows of one view; larger where a draw needs more.

    Nothing that it holds outlives a redraw. A copy, or one in another process, begins empty.

    Attributes are the fields of :data:`WORK`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shape: tuple[int, ...] = (0, 0, 0, 0, 0)

    def __reduce__(self) -> Any:
        return Work, ()

    def fit(self, n: int, d: int, n_means: int, n_clusters: int, n_slots: int) -> None:
        """Make room for rows (n, d) in some clusters, each with one mean or one for each row.

        ``n_slots`` is the largest number of a slot, and one more.
        """
        *shape, most_clusters, most_slots = self._shape
        if shape != [n, d, n_means] or n_clusters > most_clusters or n_slots > most_slots:
            self._lay_out(n, d, n_means, n_clusters + n_clusters // 2 + 4, n_slots + n_slots // 2)

    def _lay_out(self, n: int, d: int, n_means: int, k: int, n_slots: int) -> None:
        self._shape = n, d, n_means, k, n_slots
        self.n, self.d, self.n_means, self.n_clusters = n, d, n_means, 0
        size = d * (d + 1) // 2
        self._make(slots=k, sizes=k, counts=k, log_seats=k, means=(k, n_means, d), precisions=(k, size))
        self._make(at_mean=(k, n), modes=(k, n, d), factors=(k, n, size), log_integrals=(k, n))
        self._make(clusters=n, movable=n, chosen=n, proposed=(n, d), log_proposals=n, order=n)
        self._make(scratch=4 * d + 2 * d * d + size + k, of_slot=n_slots)
