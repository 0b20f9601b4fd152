"""Carvings whose candidates are drawn at random, at a cost that hardly grows with the cluster that they leave.

Among many rows, the clusters that come and go are small, beside large ones that keep nearly all of their rows. A
carving of a single row is a *birth*, and its return a *death*: scans do both, but look at every row for the few
that may open a cluster. What carvings are is in :mod:`pymc_dpgmm.sampler.moves.carving`.
"""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, address_of, c_function
from pymc_dpgmm.sampler.moves.candidates import DrawnRows
from pymc_dpgmm.sampler.moves.carving import carve_once, n_doublings
from pymc_dpgmm.sampler.moves.move import SLOTS_NEEDED
from pymc_dpgmm.sampler.state.memory import DONE, NEEDS_ROOM, memory_at, prior_of
from pymc_dpgmm.sampler.state.state import State

# Rows of a cluster that is carved out, at most: a power of two, drawn between these for every move.
LEAST_ROWS, MOST_ROWS = 8, 1_024


class Part(NamedTuple):
    """A part of all rows, drawn whatever the partition, of which a state has those of small clusters and these.

    Parameters
    ----------
    founders : (n_moves,) int64 array
        Rows of the state that have been drawn from all rows, independently and with equal probabilities, one for
        each move.
    is_drawn : (n,) bool array
        Rows of the state that may be candidates: each of all rows was drawn with the same probability.
    share : float, in [0, 1]
        This probability.
    n_rows : int
        Number of all rows.
    """

    founders: np.ndarray
    is_drawn: np.ndarray
    share: float
    n_rows: int


@c_function(INT(INTS, INT, INT, INT, INTS, INT, FLOAT, INTS))
def run_carvings(head, n_moves, least, doublings, founders, n_rows, share, is_drawn):
    """Propose carvings and returns, from where the head says on; see :func:`carvings`.

    If ``share`` is less than 1, only some of all ``n_rows`` rows are here, and ``founders`` has one for each move;
    otherwise they are drawn here.
    """
    s = memory_at(head)
    prior = prior_of(s)
    drawn = DrawnRows(share, is_drawn)
    while s.position < n_moves:
        if s.n_clusters + SLOTS_NEEDED > s.capacity:
            return NEEDS_ROOM
        most = least << below(s.bits, doublings + 1)
        founder = -1
        if uniform(s.bits) < 0.5:
            founder = founders[s.position] if share < 1.0 else below(s.bits, s.n)
        n_moved, _ = carve_once(s, prior, drawn, n_rows, founder, most)
        s.n_moved += n_moved > 0
        s.position += 1
    return DONE


def carvings(
    rng: np.random.Generator,
    state: State,
    n_moves: int,
    least: int = LEAST_ROWS,
    most: int = MOST_ROWS,
    part: Part | None = None,
) -> int:
    """Propose carvings and returns of small clusters, each with probability 1/2.

    The posterior of the labels is left invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Of rows that are in no groups. Changed in place.
    n_moves : int, >= 0
    least, most : int, >= 1
        A carved-out cluster has up to ``least`` rows, or twice, four times, ... as many, up to ``most``: drawn for
        every move. With both 1 there are no candidates: these are births and deaths.
    part : Part, optional
        If the state has a part of the rows, those of clusters of up to ``most`` rows among them.

    Returns
    -------
    int
        How many were accepted.
    """
    founders, is_drawn, share, n_rows = part or Part(state.slots, state.slots, 1.0, state.n)
    founders, flags = (
        np.ascontiguousarray(founders, dtype=np.int64),
        np.ascontiguousarray(is_drawn, dtype=np.int64),
    )
    among = address_of(founders), n_rows, share, address_of(flags)
    return state.run(rng, run_carvings, n_moves, least, n_doublings(least, most), *among)
