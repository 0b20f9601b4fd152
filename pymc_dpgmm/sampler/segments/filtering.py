r"""Exact draws of all changes at once: a filter over where the present segment has begun, then draws backwards.

Between neighbours there is a change with probability p, and the parameters of a segment are integrated out. Given
the rows up to t, the segment of row t has begun at s with a probability :math:`w_t(s)`, where

.. math:: w_t(s) \propto (1 - p) \, w_{t-1}(s) \, \pi(x_t \mid x_s, \dots, x_{t-1}), \qquad
          w_t(t) \propto p \, \pi(x_t)

for the predictive :math:`\pi` of the base measure (Fearnhead and Liu 2007; Adams and MacKay 2007). The sum of the
right sides is the predictive of row t given all rows before it, so that their product is the marginal likelihood
of all segmentations. Backwards, the last segment begins at s with probability :math:`w_n(s)`, the one before it at
r with probability :math:`w_{s-1}(r)`, and so on: an exact draw (Fearnhead 2006).

A beginning is left out from where on its probability is below ``LEAST``. It could matter later only if the rows
that follow were more probable in its segment than in all others by the inverse of that. The predictives of those
that are kept do not depend on p: with another p the filter goes through them again, a hundred times faster.
"""

import itertools
import math

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import uniform
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, NOTHING, c_function, inlined, shifted
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.partitions.segments import Sequences
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.views import change, gather, weigh

# The least probability of a beginning that is kept.
LEAST = math.exp(-60.0)
# Beginnings for which there is room at first, and numbers that are kept of them for each row.
FIRST_ROOM, FIRST_KEPT = 62, 32

FILTER = Block(
    # The head of a state whose slots are those of beginnings.
    state=blocks.INTS,
    # Rows in order, (n,).
    rows=blocks.INTS,
    # How many beginnings there may be, their slots and places, and what a row adds to their log probabilities.
    # Slots that are not in use come after those that are.
    room=NUMBER,
    slots=blocks.INTS,
    places=blocks.INTS,
    log_predictives=blocks.FLOATS,
    # Of every row in order, (n + 1,), where what is kept of its beginnings starts: places, probabilities, and the
    # predictive of the next row in their segments. Predictives of a row, and that of the row in a new segment,
    # (n,), are relative to the largest, whose logarithm (n,) is kept too.
    ends=blocks.INTS,
    kept_places=blocks.INTS,
    kept=blocks.FLOATS,
    predictives=blocks.FLOATS,
    alone=blocks.FLOATS,
    log_largest=blocks.FLOATS,
    room_for_kept=NUMBER,
    # Whether a row in order begins a segment.
    begins=blocks.BYTES,
    # The log marginal likelihood of the rows.
    log_marginal=blocks.FLOATS,
    next_double=NUMBER,
    bit_state=NUMBER,
)
_at = FILTER.reader()


@inlined
def _predict(f, s, t, start, n_alive):
    """Write the predictives of a row in the segments of all beginnings before it, and in a new one."""
    i, before = f.rows[t], f.ends[t] - n_alive
    for j in range(n_alive):
        f.log_predictives[j] = 0.0
    weigh(s, i, f.slots, n_alive, -1, f.log_predictives)
    largest = s.prior_predictive[i]
    for j in range(n_alive):
        largest = max(largest, f.log_predictives[j])
    for j in range(n_alive):
        f.predictives[before + j] = math.exp(f.log_predictives[j] - largest)
    f.alone[t], f.log_largest[t] = math.exp(s.prior_predictive[i] - largest), largest


@inlined
def _update(f, t, n_alive, change, stay):
    """Write the probabilities of all beginnings after a row, at the end of those that are kept.

    The marginal likelihood is added to. ``change`` is 1 for the first row of a sequence.
    """
    end, before = f.ends[t], f.ends[t] - n_alive
    total = 0.0
    for j in range(n_alive):
        f.kept[end + j] = f.kept[before + j] * stay * f.predictives[before + j]
        total += f.kept[end + j]
    f.kept[end + n_alive] = change * f.alone[t]
    total += f.kept[end + n_alive]
    f.log_marginal[0] += math.log(total) + f.log_largest[t] if total > 0.0 else -math.inf
    share = 1.0 / total
    for j in range(n_alive + 1):
        f.kept[end + j] *= share


@c_function(INT(INTS, INT, INT, FLOAT))
def filter_rows(block, start, stop, p):
    """Filter the rows of a sequence, ``start`` to ``stop - 1`` in order; return 1 where there is no more room.

    Where the marginal likelihood is not a number, or no segmentation has a density, -1 is returned.
    """
    f = _at(block)
    s = memory_at(f.state)
    n_alive = 0
    for t in range(start, stop):
        i, end = f.rows[t], f.ends[t]
        if n_alive == f.room or end + n_alive + 1 > f.room_for_kept:
            return 1
        _predict(f, s, t, start, n_alive)
        _update(f, t, n_alive, p if t > start else 1.0, 1.0 - p)
        if not f.log_marginal[0] > -math.inf:
            return -1
        f.places[n_alive] = t
        n_left = 0
        for j in range(n_alive + 1):
            if f.kept[end + j] < LEAST and j != n_alive:
                continue
            slot = f.slots[n_left]
            f.slots[n_left] = f.slots[j]
            f.slots[j] = slot
            f.places[n_left] = f.kept_places[end + n_left] = f.places[j]
            f.kept[end + n_left] = f.kept[end + j]
            n_left += 1
        n_alive = n_left
        for j in range(n_alive - 1):
            if change(s, i, f.slots[j], 1.0):
                gather(s, f.slots[j], shifted(f.rows, f.places[j]), t + 1 - f.places[j], 1)
        gather(s, f.slots[n_alive - 1], shifted(f.rows, t), 1, 1)
        f.ends[t + 1] = end + n_alive
    return 0


@c_function(NOTHING(INTS, INT, INT, FLOAT))
def filter_again(block, start, stop, p):
    """Filter the rows of a sequence with another probability, by the beginnings and predictives that are kept."""
    f = _at(block)
    for t in range(start, stop):
        before = f.ends[t - 1] if t > start else f.ends[t]
        n_alive, end, change = f.ends[t] - before, f.ends[t], p if t > start else 1.0
        n_kept, q, total = f.ends[t + 1] - end, 0, 0.0
        for j in range(n_alive):
            if q < n_kept and f.kept_places[end + q] == f.kept_places[before + j]:
                f.kept[end + q] = f.kept[before + j] * (1.0 - p) * f.predictives[before + j]
                total += f.kept[end + q]
                q += 1
        f.kept[end + q] = change * f.alone[t]
        total += f.kept[end + q]
        f.log_marginal[0] += math.log(total) + f.log_largest[t] if total > 0.0 else -math.inf
        share = 1.0 / total
        for j in range(n_kept):
            f.kept[end + j] *= share


@c_function(NOTHING(INTS, INT, INT))
def draw_backwards(block, start, stop):
    """Draw which rows of a sequence begin a segment, given what the filter has kept."""
    f = _at(block)
    t = stop - 1
    while t >= start:
        u, place = uniform(f.bits), f.ends[t]
        last = f.ends[t + 1] - 1
        total = f.kept[place]
        while total <= u and place < last:
            place += 1
            total += f.kept[place]
        begin = f.kept_places[place]
        for q in range(begin + 1, t + 1):
            f.begins[q] = 0
        f.begins[begin] = 1
        t = begin - 1


KERNELS = (filter_rows, filter_again, draw_backwards)


class SegmentFilter(Memory, block=FILTER):
    """Draws of all segments at once, for rows in some order.

    Parameters
    ----------
    sequences : Sequences
    """

    room: int
    room_for_kept: int
    state: State | None

    def __init__(self, sequences: Sequences) -> None:
        super().__init__()
        n, starts = len(sequences.rows), sequences.starts.tolist()
        self._sequences, self.rows = sequences, sequences.rows
        self._parts = list(itertools.pairwise(starts))
        # The probability that the filter has gone through the rows with.
        self._p: float | None = None
        self._make(ends=n + 1, begins=n, log_marginal=1, alone=n, log_largest=n)
        self._make_room(FIRST_ROOM, FIRST_KEPT * n)

    def _make_room(self, room: int, room_for_kept: int) -> None:
        self.room, self.room_for_kept = room, room_for_kept
        self._make(places=room + 1, log_predictives=room + 1)
        self._make(kept_places=room_for_kept, kept=room_for_kept, predictives=room_for_kept)
        self.slots = np.arange(1, room + 2)

    def take(self, state: State, p: float) -> None:
        """Take the rows and the base measures of a state, which stays as it is.

        Parameters
        ----------
        state : State
            Must have random numbers in use.
        p : float, in (0, 1)
            A probability of a change. What is kept serves other ones, not farther away than they plausibly are.

        Raises
        ------
        FloatingPointError
            If the density of a row is not a number.
        """
        n = len(self.rows)
        while not self._filter(state, p):
            most = n * (n + 1) // 2
            room = min(2 * self.room + 2, n)
            self._make_room(room, max(min(2 * self.room_for_kept, most), room + 1))
        self._p = p

    def _filter(self, state: State, p: float) -> bool:
        """Filter all rows; tell whether there was room."""
        self.state, self.log_marginal[0], self._p = state.shadow(self.room + 1), 0.0, None
        for start, stop in self._parts:
            told = filter_rows(self.address, start, stop, p)
            if told < 0:
                raise FloatingPointError("the density of a row given the rows before it is not a number, or zero")
            if told > 0:
                return False
        # It has served its purpose, and is large.
        self.state = None
        return True

    def log_marginal_at(self, p: float) -> float:
        """Return the log marginal likelihood of the rows, of all segmentations together."""
        if p != self._p:
            self.log_marginal[0], self._p = 0.0, p
            for start, stop in self._parts:
                filter_again(self.address, start, stop, p)
        return float(self.log_marginal[0])

    def draw(self, rng: np.random.Generator, p: float) -> np.ndarray:
        """Draw the labels of all rows, with the probability p of a change: (n,) int64 array."""
        self.log_marginal_at(p)
        self.draw_from(rng)
        for start, stop in self._parts:
            draw_backwards(self.address, start, stop)
        return self._sequences.labels(self.begins)
