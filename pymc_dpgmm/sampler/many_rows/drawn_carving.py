"""Carvings whose candidates are drawn at random, at a cost that hardly grows with the cluster that they leave.

Among many rows, the clusters that come and go are small, beside large ones that keep nearly all of their rows. A
carving of a single row is a *birth*, and its return a *death*: scans do both, but look at every row for the few
that may open a cluster. What carvings are is in :mod:`pymc_dpgmm.sampler.moves.carving`.
"""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, address_of, c_function, inlined, shifted
from pymc_dpgmm.sampler.moves.candidates import DrawnRows
from pymc_dpgmm.sampler.moves.carving import carve_once, n_doublings
from pymc_dpgmm.sampler.moves.move import SLOTS_NEEDED
from pymc_dpgmm.sampler.state.memory import DONE, NEEDS_ROOM, memory_at, prior_of
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.views import view_of

# Rows of a cluster that is carved out, at most: a power of two, drawn between these for every move.
LEAST_ROWS, MOST_ROWS = 8, 1_024
# Rows that are fetched from memory at once.
FETCHED = 32


class DrawnPart(NamedTuple):
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


@inlined
def fetch(s, rows, m):
    """Read something of each of some rows, which may be far from each other in memory; return a number.

    Memory answers all of these at once, where moves would wait for one row after the other.
    """
    found = 0.0
    for t in range(m):
        i = rows[t]
        found += s.slots[i] + s.following[i] + s.preceding[i] + s.prior_predictive[i]
    for v in range(s.n_views):
        view = view_of(s, v)
        for t in range(m):
            start = rows[t] * view.stride
            found += view.rows[start] + view.rows[start + max(view.stride - 1, 0)]
    return found


@c_function(INT(INTS, INT, INT, INT, INTS, INT, FLOAT, INTS))
def run_carvings(head, n_moves, least, doublings, founders, n_rows, share, is_drawn):
    """Propose carvings and returns, from where the head says on; see :func:`carvings`.

    ``founders`` has a row for each move, should it be a carving. If ``share`` is less than 1, only some of all
    ``n_rows`` rows are here.
    """
    s = memory_at(head)
    prior = prior_of(s)
    drawn = DrawnRows(share, is_drawn)
    while s.position < n_moves:
        if s.n_clusters + SLOTS_NEEDED > s.capacity:
            return NEEDS_ROOM
        if s.position % FETCHED == 0:
            s.log_weights[0] = fetch(s, shifted(founders, s.position), min(FETCHED, n_moves - s.position))
        most = least << below(s.bits, doublings + 1)
        founder = founders[s.position] if uniform(s.bits) < 0.5 else -1
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
    part: DrawnPart | None = None,
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
    part : DrawnPart, optional
        If the state has a part of the rows, those of clusters of up to ``most`` rows among them.

    Returns
    -------
    int
        How many were accepted.
    """
    if part is None:
        part = DrawnPart(rng.integers(state.n, size=n_moves), np.empty(0), 1.0, state.n)
    founders, is_drawn, share, n_rows = part
    # Compiled code draws flags anew, in a copy.
    founders, flags = np.ascontiguousarray(founders, dtype=np.int64), is_drawn.astype(np.int64)
    among = address_of(founders), n_rows, share, address_of(flags)
    return state.run(rng, run_carvings, n_moves, least, n_doublings(least, most), *among)
