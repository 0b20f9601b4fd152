"""Carvings whose candidates are drawn at random, at a cost that hardly grows with the cluster that they leave.

Among many rows, the clusters that come and go are small, beside large ones that keep nearly all of their rows.
What carvings are is in :mod:`pymc_dpgmm.sampler.moves.carving`; ``docs/moves.md`` derives the ratio.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.arithmetic import below, new_key, take_logarithms, uniform, uniform_at
from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, address_of, c_function, inlined, shifted
from pymc_dpgmm.sampler.moves.carving import (
    choose_return,
    log_carving_ratio,
    log_carving_undone,
    log_choices_of,
    n_doublings,
)
from pymc_dpgmm.sampler.moves.move import SLOTS_NEEDED
from pymc_dpgmm.sampler.moves.split_merge import LEFT, RIGHT, accept_merge, accept_split
from pymc_dpgmm.sampler.state.choices import shuffle
from pymc_dpgmm.sampler.state.memory import (
    DONE,
    N_LANES,
    NEEDS_ROOM,
    memory_at,
    prior_of,
)
from pymc_dpgmm.sampler.state.slots import rows_elsewhere
from pymc_dpgmm.sampler.state.state import State

# Rows of a cluster that is carved out, at most: a power of two, drawn between these for every move.
LEAST_ROWS, MOST_ROWS = 8, 1_024


class DrawnRows(NamedTuple):
    """Which rows may be candidates, drawn before anything was known of the partition; compiled code unpacks it.

    Parameters
    ----------
    n_rows : int
        Number of all rows, here and elsewhere.
    share : float
        The probability with which each of them has been drawn; if it is 1, all are here.
    is_drawn : pointer
        Whether each of the rows here has been drawn; not read if all are.
    """

    n_rows: int
    share: float
    is_drawn: object


@inlined
def may_leave(drawn, i):
    """Tell whether row ``i`` may be a candidate."""
    return drawn.share == 1.0 or drawn.is_drawn[i] != 0


@inlined
def draw_anew(s, drawn, size):
    """Draw anew which of the rows on the right side among ``pool[:size]`` may be candidates."""
    if drawn.share < 1.0:
        for t in range(size):
            if s.side[t] == RIGHT:
                drawn.is_drawn[s.pool[t]] = uniform(s.bits) < drawn.share


@inlined
def draw_all_but_founder(s, drawn, size):
    """Let the rows on the right side among ``pool[:size]`` be drawn ones; the founder ``pool[0]`` is by chance."""
    if drawn.share < 1.0:
        for t in range(1, size):
            if s.side[t] == RIGHT:
                drawn.is_drawn[s.pool[t]] = 1
        drawn.is_drawn[s.pool[0]] = uniform(s.bits) < drawn.share


@inlined
def share_of_candidates(drawn, most, size):
    """Return the probability with which a row of a cluster of ``size`` rows is a candidate: about ``most`` are."""
    return min(drawn.share, most / size)


@inlined
def find_candidates(s, drawn, k, share, excluded, found):
    """Write rows of slot ``k``, but row ``excluded``, to ``found``: each of them with probability ``share``.

    Returns how many there are. They are looked for among all rows here where that takes less time than to visit
    those of the slot.
    """
    n = 0
    # Of the drawn rows, so many.
    kept = share / drawn.share
    if kept * s.n < s.sizes[k] - rows_elsewhere(s, k):
        # Rows are passed over in leaps of geometric length. Many are drawn at once, and what is found is written
        # before it is known whether it counts: rows are far from each other in memory, and a branch would wait for
        # each of them.
        scale, key, place = 1.0 / math.log1p(-kept), new_key(s.bits), -1.0
        for first in range(0, s.n, N_LANES):
            for lane in range(N_LANES):
                s.lanes[lane] = 1.0 - uniform_at(key, first + lane)
            take_logarithms(s.lanes, N_LANES)
            for lane in range(N_LANES):
                place += 1.0 + math.floor(s.lanes[lane] * scale)
                s.lanes[lane] = place
            for lane in range(N_LANES):
                if s.lanes[lane] >= s.n:
                    return n
                i = int(s.lanes[lane])
                found[n] = i
                n += 1 if (s.slots[i] == k) & (i != excluded) & may_leave(drawn, i) else 0
        return n
    i = s.following[s.n + k]
    while i < s.n:
        if i != excluded and may_leave(drawn, i) and (kept == 1.0 or uniform(s.bits) < kept):
            found[n] = i
            n += 1
        i = s.following[i]
    return n


@inlined
def propose_carving(s, prior, drawn, founder, most):
    """Propose that a cluster of up to ``most`` rows leaves that of its founder, in two free slots.

    Returns
    -------
    log_ratio : float
        Log of the acceptance ratio.
    size : int
        The number of candidates and the founder, which are in ``pool[:size]``.
    """
    whole = s.slots[founder]
    if s.sizes[whole] == 1:
        return -math.inf, 0
    share = share_of_candidates(drawn, most, s.sizes[whole])
    s.pool[0] = founder
    size = 1 + find_candidates(s, drawn, whole, share, founder, shifted(s.pool, 1))
    shuffle(s.bits, s.pool, 1, size)
    return log_carving_ratio(s, prior, drawn.n_rows, founder, size, most, share), size


@inlined
def propose_return(s, prior, drawn, most, union, bound):
    """Propose that a cluster of up to ``most`` rows returns to another, the union being in a free slot.

    Returns
    -------
    log_ratio : float
        Log of the acceptance ratio; minus infinity as soon as it is known to be below ``bound``.
    left_place, right_place, size : int
        Places of the two clusters, and the number of the rows that return and of the candidates that do not, which
        are in ``pool[:size]``.
    """
    n_small, left_place, right_place, log_partner = choose_return(s, prior, most)
    if left_place < 0:
        return -math.inf, 0, 0, 0
    left, right = s.order[left_place], s.order[right_place]
    n_right = s.sizes[right]
    share = share_of_candidates(drawn, most, s.sizes[left] + n_right)
    log_others = log_carving_undone(s, prior, drawn.n_rows, left, right, union, n_small, share, log_partner)
    # The candidates' choices have a probability, which decides alone from here on.
    bound += log_others
    if bound > 0.0:
        return -math.inf, left_place, right_place, 0
    size = n_right + find_candidates(s, drawn, left, share, -1, shifted(s.pool, n_right))
    shuffle(s.bits, s.pool, 1, size)
    return log_choices_of(s, prior, size, right, union, bound) - log_others, left_place, right_place, size


@c_function(INT(INTS, INT, INT, INT, INTS, INT, FLOAT, INTS))
def run_carvings(head, n_moves, least, doublings, founders, n_rows, share, is_drawn):
    """Propose carvings and returns, from where the head says on; see :func:`carvings`.

    If ``share`` is less than 1, only some of all ``n_rows`` rows are here, and ``founders`` are rows for carvings,
    one for each move, that have been drawn from all; otherwise they are drawn here.
    """
    s = memory_at(head)
    prior = prior_of(s)
    drawn = DrawnRows(n_rows, share, is_drawn)
    while s.position < n_moves:
        n_clusters = s.n_clusters
        if n_clusters + SLOTS_NEEDED > s.capacity:
            return NEEDS_ROOM
        s.halves[LEFT], s.halves[RIGHT] = s.order[n_clusters + 1], s.order[n_clusters]
        union = s.order[n_clusters + 2]
        bound = least << below(s.bits, doublings + 1)
        log_u = math.log(1.0 - uniform(s.bits))
        if uniform(s.bits) < 0.5:
            founder = founders[s.position] if share < 1.0 else below(s.bits, s.n)
            place = s.place[s.slots[founder]]
            log_ratio, size = propose_carving(s, prior, drawn, founder, bound)
            if log_u < log_ratio:
                draw_anew(s, drawn, size)
                accept_split(s, place, size, s.halves)
                s.n_moved += 1
        else:
            log_ratio, left_place, right_place, size = propose_return(s, prior, drawn, bound, union, log_u)
            if log_u < log_ratio:
                draw_all_but_founder(s, drawn, size)
                accept_merge(s, left_place, right_place, size, union)
                s.n_moved += 1
        s.position += 1
    return DONE


def carvings(
    rng: np.random.Generator, state: State, n_moves: int, least: int = LEAST_ROWS, most: int = MOST_ROWS
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
        every move.

    Returns
    -------
    int
        How many were accepted.
    """
    no_rows = address_of(state.slots)
    return state.run(rng, run_carvings, n_moves, least, n_doublings(least, most), no_rows, state.n, 1.0, no_rows)


def carvings_in_part(
    rng: np.random.Generator,
    state: State,
    founders: np.ndarray,
    is_drawn: np.ndarray,
    share: float,
    n_rows: int,
    least: int,
    most: int,
) -> int:
    """Do the same where a state has a part of the rows, those of clusters of up to ``most`` rows among them.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Changed in place.
    founders : (n_moves,) int64 array
        Rows of the state that have been drawn from all rows, independently and with equal probabilities, one for
        each move, whatever the partition.
    is_drawn : (n,) bool array
        Rows of the state that may be candidates: each of all rows was drawn with the same probability, whatever
        the partition.
    share : float, in (0, 1]
        This probability.
    n_rows : int
        Number of all rows.
    least, most : int, >= 1

    Returns
    -------
    int
        How many were accepted.
    """
    founders, flags = np.ascontiguousarray(founders, dtype=np.int64), is_drawn.astype(np.int64)
    addresses = address_of(founders), address_of(flags)
    return state.run(
        rng,
        run_carvings,
        len(founders),
        least,
        n_doublings(least, most),
        addresses[0],
        n_rows,
        share,
        addresses[1],
    )
