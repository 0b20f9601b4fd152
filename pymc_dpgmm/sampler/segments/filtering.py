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
that follow were more probable in its segment than in all others by the inverse of that.
"""

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

# The logarithm of the least probability of a beginning that is kept.
LEAST = -60.0
# Beginnings for which there is room at first, and numbers that are kept of them for each row.
FIRST_ROOM, FIRST_KEPT = 62, 32

FILTER = Block(
    # The head of a state whose slots are those of beginnings.
    state=blocks.INTS,
    # Rows in order, (n,).
    rows=blocks.INTS,
    # How many beginnings there may be, how many there are, their slots, places and log probabilities, and what a
    # row adds to these. Slots that are not in use come after those that are.
    room=NUMBER,
    n_alive=NUMBER,
    slots=blocks.INTS,
    places=blocks.INTS,
    log_weights=blocks.FLOATS,
    log_predictives=blocks.FLOATS,
    # Of every row in order, (n + 1,), where what is kept of its beginnings starts: places, and log probabilities.
    ends=blocks.INTS,
    kept_places=blocks.INTS,
    kept_log_weights=blocks.FLOATS,
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
def _normalize(f, n_alive):
    """Let the probabilities of beginnings add up to 1; return the logarithm of what they added up to."""
    largest = -math.inf
    for j in range(n_alive):
        largest = max(largest, f.log_weights[j])
    total = 0.0
    for j in range(n_alive):
        total += math.exp(f.log_weights[j] - largest)
    log_total = largest + math.log(total)
    for j in range(n_alive):
        f.log_weights[j] -= log_total
    return log_total


@inlined
def _keep(f, n_alive):
    """Leave out beginnings that are too improbable, but for the last one; return how many are left."""
    n_left = 0
    for j in range(n_alive):
        if f.log_weights[j] < LEAST and j != n_alive - 1:
            continue
        slot = f.slots[n_left]
        f.slots[n_left] = f.slots[j]
        f.slots[j] = slot
        f.places[n_left], f.log_weights[n_left] = f.places[j], f.log_weights[j]
        n_left += 1
    return n_left


@c_function(INT(INTS, INT, INT, FLOAT, FLOAT))
def filter_rows(block, start, stop, log_change, log_stay):
    """Filter the rows of a sequence, ``start`` to ``stop - 1`` in order; return 1 where there is no more room.

    Where the marginal likelihood is not a number, -1 is returned.
    """
    f = _at(block)
    s = memory_at(f.state)
    n_alive = 0
    for t in range(start, stop):
        i = f.rows[t]
        if n_alive == f.room or f.ends[t] + n_alive + 1 > f.room_for_kept:
            return 1
        for j in range(n_alive):
            f.log_predictives[j] = 0.0
        weigh(s, i, f.slots, n_alive, -1, f.log_predictives)
        for j in range(n_alive):
            f.log_weights[j] += log_stay + f.log_predictives[j]
        f.places[n_alive] = t
        f.log_weights[n_alive] = s.prior_predictive[i] + (log_change if t > start else 0.0)
        n_alive += 1
        log_total = _normalize(f, n_alive)
        if math.isnan(log_total):
            return -1
        f.log_marginal[0] += log_total
        n_alive = _keep(f, n_alive)
        end = f.ends[t]
        for j in range(n_alive):
            f.kept_places[end + j], f.kept_log_weights[end + j] = f.places[j], f.log_weights[j]
            # The last one is new.
            if f.places[j] == t:
                gather(s, f.slots[j], shifted(f.rows, t), 1, 1)
            elif change(s, i, f.slots[j], 1.0):
                gather(s, f.slots[j], shifted(f.rows, f.places[j]), t + 1 - f.places[j], 1)
        f.ends[t + 1] = end + n_alive
    return 0


@c_function(NOTHING(INTS, INT, INT))
def draw_backwards(block, start, stop):
    """Draw which rows of a sequence begin a segment, given what the filter has kept."""
    f = _at(block)
    t = stop - 1
    while t >= start:
        u, place = uniform(f.bits), f.ends[t]
        last = f.ends[t + 1] - 1
        total = math.exp(f.kept_log_weights[place])
        while total <= u and place < last:
            place += 1
            total += math.exp(f.kept_log_weights[place])
        begin = f.kept_places[place]
        for q in range(begin + 1, t + 1):
            f.begins[q] = 0
        f.begins[begin] = 1
        t = begin - 1


KERNELS = (filter_rows, draw_backwards)


class SegmentFilter(Memory, block=FILTER):
    """Draws of all segments at once, for rows in some order.

    Parameters
    ----------
    sequences : Sequences

    Attributes
    ----------
    log_marginal : (1,) array
        The log marginal likelihood of the rows, of all segmentations together, at the last draw.
    """

    room: int
    room_for_kept: int

    def __init__(self, sequences: Sequences) -> None:
        super().__init__()
        n = len(sequences.rows)
        self._sequences, self.rows = sequences, sequences.rows
        self._make(ends=n + 1, begins=n, log_marginal=1)
        self._make_room(FIRST_ROOM, FIRST_KEPT * n)

    def _make_room(self, room: int, room_for_kept: int) -> None:
        self.room, self.room_for_kept = room, room_for_kept
        self._make(places=room + 1, log_weights=room + 1, log_predictives=room + 1)
        self._make(kept_places=room_for_kept, kept_log_weights=room_for_kept)
        self.slots = np.arange(1, room + 2)

    def draw(self, rng: np.random.Generator, state: State, p: float) -> np.ndarray:
        """Draw the labels of all rows, with the probability p of a change: (n,) int64 array.

        Parameters
        ----------
        rng : numpy.random.Generator
        state : State
            Has the rows and the base measures. It stays as it is.
        p : float

        Raises
        ------
        FloatingPointError
            If the density of a row is not a number.
        """
        while not self._filter(state, p):
            n_most = len(self.rows) * (len(self.rows) + 1) // 2
            self._make_room(
                min(2 * self.room + 2, len(self.rows)), max(min(2 * self.room_for_kept, n_most), self.room + 1)
            )
        self.draw_from(rng)
        for start, stop in zip(self._sequences.starts[:-1], self._sequences.starts[1:], strict=True):
            draw_backwards(self.address, int(start), int(stop))
        return self._sequences.labels(self.begins)

    def _filter(self, state: State, p: float) -> bool:
        """Filter all rows; tell whether there was room."""
        self.state = state.shadow(self.room + 1)
        self.log_marginal[0] = 0.0
        log_change, log_stay = math.log(p), math.log1p(-p)
        for start, stop in zip(self._sequences.starts[:-1], self._sequences.starts[1:], strict=True):
            told = filter_rows(self.address, int(start), int(stop), log_change, log_stay)
            if told < 0:
                raise FloatingPointError("the density of a row given the rows before it is not a number")
            if told > 0:
                return False
        return True
