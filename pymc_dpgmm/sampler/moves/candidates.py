"""Candidates of carvings: which rows of a cluster may leave it with a founder, and return to it with one.

They are either those most like the founder, or drawn at random at a cost that hardly grows with the cluster.
``docs/moves.md`` derives the ratios of both.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.arithmetic import new_key, take_logarithms, uniform, uniform_at
from pymc_dpgmm.native.compiled import inlined, shifted
from pymc_dpgmm.sampler.moves.split_merge import RIGHT
from pymc_dpgmm.sampler.state.choices import shuffle
from pymc_dpgmm.sampler.state.memory import N_LANES
from pymc_dpgmm.sampler.state.slots import rows_elsewhere
from pymc_dpgmm.sampler.state.templates import WEIGHED_AT_ONCE
from pymc_dpgmm.sampler.state.views import gather, weigh_rows

# Likenesses are compared in units of this many nats, so that rounding does not tell rows apart that are the same.
RESOLUTION = 2.0**-20


class DrawnRows(NamedTuple):
    """Which rows may be candidates, drawn before anything was known of the partition; compiled code unpacks it.

    Parameters
    ----------
    share : float
        The probability with which each of all rows has been drawn; if it is 1, all are here.
    is_drawn : pointer
        Whether each of the rows here has been drawn; not read if all are.
    """

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
def find_candidates(s, drawn, k, share, excluded, found):
    """Write rows of slot ``k``, but row ``excluded``, to ``found``: each of them with probability ``share``.

    Returns how many there are. They are looked for among all rows here where that takes less time than to visit
    those of the slot.
    """
    n = 0
    if share == 0.0:
        return n
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
def is_before(likeness, i, other, j):
    """Tell whether row ``i`` is before row ``j`` in the order of their likenesses."""
    return likeness > other or (likeness == other and i < j)


@inlined
def weigh_likenesses(s, slot, rows, m):
    """Set ``log_weights[:m]`` to how much each of up to ``WEIGHED_AT_ONCE`` rows is like those of a slot.

    That of row j is log p(y_j | y of the slot) - log p(y_j), in units of ``RESOLUTION``.
    """
    weights = s.log_weights
    s.listed[0] = slot
    for t in range(m):
        s.owns[t] = -1
        weights[t] = 0.0
    weigh_rows(s, rows, m, s.listed, 1, s.owns, WEIGHED_AT_ONCE, weights)
    for t in range(m):
        weights[t] = np.floor((weights[t] - s.prior_predictive[rows[t]]) / RESOLUTION + 0.5)
        if math.isnan(weights[t]):
            # The row is impossible in a cluster of its own, too.
            weights[t] = -math.inf


@inlined
def keep_likest(rows, likenesses, size, most, row, likeness):
    """Let a row be among ``rows[:size]``, the likest first, of which ``most`` are kept; return their number."""
    if size == most and not is_before(likeness, row, likenesses[size - 1], rows[size - 1]):
        return size
    place = min(size, most - 1)
    while place > 0 and is_before(likeness, row, likenesses[place - 1], rows[place - 1]):
        rows[place], likenesses[place] = rows[place - 1], likenesses[place - 1]
        place -= 1
    rows[place], likenesses[place] = row, likeness
    return min(size + 1, most)


@inlined
def add_likest(s, k, founder_slot, size, most):
    """Let rows of slot ``k`` be among ``pool[1:size]``, where at most ``most`` are kept, the founder among them.

    They are in the order of how much they are like the founder ``pool[0]``, who is alone in slot ``founder_slot``.

    Returns
    -------
    int
        How many there are now, with the founder.
    """
    rows = s.half_rows
    # No row is before the founder.
    s.likenesses[0] = math.inf
    i = s.following[s.n + k]
    left = s.sizes[k]
    while left > 0:
        m = min(left, WEIGHED_AT_ONCE)
        left -= m
        for t in range(m):
            rows[t] = i
            i = s.following[i]
        weigh_likenesses(s, founder_slot, rows, m)
        for t in range(m):
            if rows[t] != s.pool[0]:
                size = keep_likest(s.pool, s.likenesses, size, most, rows[t], s.log_weights[t])
    return size


@inlined
def share_of_candidates(drawn, most, size):
    """Return the probability with which a row of a cluster of ``size`` rows is a candidate beside the founder.

    About ``most`` rows are, with the founder. Those most like it, where ``drawn`` is None, are so for certain.
    """
    if drawn is None:
        return 1.0
    return min(drawn.share, (most - 1.0) / size)


@inlined
def choose_leaving(s, drawn, whole, share, most):
    """Write the candidates in slot ``whole`` to ``pool``, in their order, after the founder ``pool[0]``.

    Returns how many there are, with the founder.
    """
    if drawn is None:
        gather(s, s.halves[RIGHT], s.pool, 1, 1)
        return add_likest(s, whole, s.halves[RIGHT], 1, most)
    size = 1 + find_candidates(s, drawn, whole, share, s.pool[0], shifted(s.pool, 1))
    shuffle(s.bits, s.pool, 1, size)
    return size


@inlined
def choose_returning(s, drawn, left, right, share, most):
    """Write to ``pool`` the candidates of the carving that a return undoes, whose founder is ``pool[0]``.

    Rows of slot ``right`` return to slot ``left``; they are in ``pool``.

    Returns
    -------
    size : int
        How many there are, with the founder.
    are_all : bool
        Whether all rows that return are among them: no carving has others leave.
    """
    n_right = s.sizes[right]
    if drawn is None:
        gather(s, s.halves[RIGHT], s.pool, 1, 1)
        size = add_likest(s, right, s.halves[RIGHT], 1, most)
        size = add_likest(s, left, s.halves[RIGHT], size, most)
        found = 0
        for t in range(size):
            found += s.slots[s.pool[t]] == right
        return size, found == n_right
    size = n_right + find_candidates(s, drawn, left, share, -1, shifted(s.pool, n_right))
    shuffle(s.bits, s.pool, 1, size)
    return size, True
