"""The rows of a view while they are drawn, and what all their moves need."""

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.sampler.latent_rows.row_density import RowDensity
from pymc_dpgmm.sampler.latent_rows.work import Work
from pymc_dpgmm.sampler.state.all_clusters import refit_clusters
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.state import State

MOVING_ROWS = Block(
    # Heads of the state, of the table of the rows, of the memory of redraws, and of the density of
    # the rest of the model.
    state=blocks.INTS,
    table=blocks.INTS,
    work=blocks.INTS,
    density=blocks.INTS,
    n=NUMBER,
    d=NUMBER,
    # The table's numbers (n, stride), and what the family subtracts from rows there.
    numbers=blocks.FLOATS,
    subtracted=blocks.FLOATS,
    stride=NUMBER,
    # What the rest of the model says of rows: pseudo-observations (n, d), and packed triangles of precisions.
    seen=blocks.FLOATS,
    known=blocks.FLOATS,
    # The rows (n, d), and the log densities of these and of proposed rows.
    rows=blocks.FLOATS,
    values=blocks.FLOATS,
    new_values=blocks.FLOATS,
    # Log predictives of rows in clusters of their own: the rows, what is proposed, and in the other views alone.
    alone=blocks.FLOATS,
    new_alone=blocks.FLOATS,
    others=blocks.FLOATS,
    # Slots of the rows, and whether labels may change.
    slots=blocks.INTS,
    moves_labels=NUMBER,
    next_double=NUMBER,
    bit_state=NUMBER,
)
read_moving = MOVING_ROWS.reader()


@inlined
def put_rows(f, rows):
    """Write rows (n, d) to the table."""
    for i in range(f.n):
        for j in range(f.d):
            f.numbers[i * f.stride + j] = rows[i * f.d + j] - f.subtracted[i * f.stride + j]


@inlined
def take_rows(f, rows):
    """Write rows (n, d) to the table, and compute all that the state knows of them."""
    put_rows(f, rows)
    refit_clusters(memory_at(f.state))


class MovingRows(Memory, block=MOVING_ROWS):
    """The rows of a view of a state, and the memory of their moves.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Its rows and labels change with what is drawn.
    v : int
        The view.
    d : int
        Columns of the rows.
    density : RowDensity
        Of rows as the view has them.
    work : Work
        Memory, of other draws of these rows too.

    Attributes
    ----------
    rng, state, v, d, density, work
    rows : (n, d) array
    slots : (n,) int64 array
    values : (n,) array
        The log densities that the rest of the model gives to the rows, after a redraw.
    others : (n,) array
        See :data:`MOVING_ROWS`.
    """

    d: int

    def __init__(
        self, rng: np.random.Generator, state: State, v: int, d: int, density: RowDensity, work: Work
    ) -> None:
        self.rng, self.v = rng, v
        table = state.tables[v]
        n, numbers = table.n_rows, table.rows
        super().__init__(state=state, table=table, work=work, density=density, n=n, d=d)
        self.numbers, self.subtracted, self.stride = numbers, table.subtracted, numbers.shape[1]
        self._make(rows=(n, d), seen=(n, d), known=(n, d * (d + 1) // 2), slots=n)
        self._make(**dict.fromkeys(("values", "new_values", "alone", "new_alone", "others"), n))
        self.draw_from(rng)

    def is_of(self, rng: np.random.Generator, state: State, density: RowDensity) -> bool:
        """Tell whether this is the memory of a state and a density, and random numbers come from a generator."""
        table, of_rng = state.tables[self.v], rng.bit_generator is self.rng.bit_generator
        is_same = state is self.state and density is self.density and of_rng
        return is_same and table.rows is self.numbers and table.subtracted is self.subtracted

    def begin(self, seen: np.ndarray, known: np.ndarray) -> None:
        """Begin a draw: take the rows of the state, and what the rest of the model says of rows.

        Parameters
        ----------
        seen, known : (n, d) and (n, d (d + 1) / 2) arrays
            See :data:`MOVING_ROWS`; must not depend on the present rows.
        """
        self.rows[:] = self.state.tables[self.v].values[:, : self.d]
        self.seen[:], self.known[:] = seen, known

    def prepare(self, moves_labels: bool) -> None:
        """Get ready for a redraw, after the parameters of the clusters were written to the memory."""
        self.density.make_room(1)
        self.moves_labels = moves_labels

    def take(self, has_room: bool = True) -> None:
        """Let the state have the rows and, if it has no room for as many slots as there are, these too."""
        if not has_room:
            self.state.take_rows(self.v, self.rows, self.slots)
        self.state.tables[self.v].note_rows(self.rows)
