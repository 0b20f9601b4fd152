r"""Exact draws of all changes at once: a filter over where the present segment has begun, then draws backwards.

Between neighbours there is a change with probability p, and the parameters of a segment are integrated out. Given
the rows up to t, the segment of row t has begun at s with a probability :math:`w_t(s)`, where

.. math:: w_t(s) \propto (1 - p) \, w_{t-1}(s) \, \pi(x_t \mid x_s, \dots, x_{t-1}), \qquad
          w_t(t) \propto p \, \pi(x_t)

for the predictive :math:`\pi` of the base measure (Fearnhead and Liu 2007; Adams and MacKay 2007). The sum of the
right sides is the predictive of row t given all rows before it, so that their product is the marginal likelihood
of all segmentations. Backwards, the last segment begins at s with probability :math:`w_n(s)`, the one before it at
r with probability :math:`w_{s-1}(r)`, and so on: an exact draw (Fearnhead 2006).

Of many rows, beginnings are left out that cannot matter. Let a segment have the rows x up to t, and y be any rows
after t. What the segment gives to y, relative to a new one that begins after t, is at most

.. math:: \frac{\pi(x, y)}{\pi(x) \pi(y)} = \frac{\pi(x \mid y)}{\pi(x)}
          \le \frac{\sup_\theta p(x \mid \theta)}{\pi(x)},

as the segment without its prior is a mixture over :math:`\theta`. A beginning is left out where
:math:`w_t(s) (1 - p)` times this is less than ``LEAST`` times p: whatever follows, a change after t is more
probable by the inverse of that (as Killick, Fearnhead and Eckley 2012 prune least costs). The supremum is the
predictive of x given x itself, many times.

The filter of another probability p' is that of p times numbers of single rows: with :math:`F_t` the marginal
likelihood of the rows up to t, and r the ratio of the odds of p' and p,

.. math:: h_t = \frac{F'_t}{F_t} \Big(\frac{1 - p}{1 - p'}\Big)^t
              = w_t(0) + r \sum_{s > 0} w_t(s) \, h_{s - 1},

and :math:`w'_t(s) = r \, w_t(s) \, h_{s - 1} / h_t`, so that no logarithm is taken of any pair of rows. This tells
of a beginning that was left out, too, what it would have with p': where that is more than ``MOST_LEFT_OUT``, all
rows are filtered anew. Weights less
than :math:`e^{-700}`, which are smaller than any number, have no part in it. If r is not above 1, what :math:`h_t`
loses by that is less than n of them, which does not matter where it is above ``LEAST_SUM``. The filter is
therefore made with larger odds than asked for. Where they are not large enough, or some :math:`h_t` is too small,
it goes through the predictives again, or where beginnings are left out through all rows.
"""

import itertools
import math
from typing import Any

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import uniform
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, NOTHING, c_function, inlined, shifted
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.partitions.segments import Sequences
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.templates import ALWAYS
from pymc_dpgmm.sampler.state.views import change, copy_cluster, gather, view_of, weigh

# Logarithms of the least share of a beginning that is kept, whatever follows, and of the most that one that was
# left out may have with another p; and the rows of a sequence from which on beginnings are left out.
LEAST, MOST_LEFT_OUT, MANY_ROWS = -100.0, -50.0, 100
# How much larger the logit is that the filter is made with; the least sum of weights with other odds; and what the
# logarithm of their ratio, times the rows of a sequence, may be at most.
RAISED, LEAST_SUM, MOST_LOG_RATIO = 2.0, 1e-250, 500.0
# Rows are repeated two to the power of this many times for the largest density of a segment.
DOUBLINGS = 10
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
    # How many rows the segments of beginnings have when it is asked next whether they matter.
    asked_at=blocks.INTS,
    # Whether beginnings are left out; of each row, (n,), after which one it was, -1 if it is kept, and the
    # logarithm of its share then, whatever follows.
    leaves_out=NUMBER,
    left_out=blocks.INTS,
    left_out_shares=blocks.FLOATS,
    # Of every row in order, (n + 1,), where what is kept of its beginnings starts: places, probabilities and their
    # logarithms, and the log predictive of the next row in their segments; and that of each row in a new segment,
    # (n,).
    ends=blocks.INTS,
    kept_places=blocks.INTS,
    weights=blocks.FLOATS,
    kept=blocks.FLOATS,
    kept_predictives=blocks.FLOATS,
    alone=blocks.FLOATS,
    room_for_kept=NUMBER,
    # For another probability of a change, of every row, what the weight of its beginning is multiplied by, and the
    # sum of the weights after it.
    factors=blocks.FLOATS,
    sums=blocks.FLOATS,
    # Whether a row in order begins a segment.
    begins=blocks.BYTES,
    # The log marginal likelihood of the rows.
    log_marginal=blocks.FLOATS,
    next_double=NUMBER,
    bit_state=NUMBER,
)
_at = FILTER.reader()


@inlined
def _normalize(log_weights, n):
    """Let exponentials add up to 1; return the logarithm of what they added up to."""
    largest = -math.inf
    for j in range(n):
        largest = max(largest, log_weights[j])
    if not largest > -math.inf:
        return largest
    total = 0.0
    for j in range(n):
        total += math.exp(log_weights[j] - largest)
    log_total = largest + math.log(total)
    for j in range(n):
        log_weights[j] -= log_total
    return log_total


@inlined
def _log_regret(f, s, slot):
    """Return how much larger the largest log density of the rows of a slot is than their marginal likelihood."""
    found, many, more = 0.0, f.room + 1, f.room + 2
    for v in range(s.n_views):
        view = view_of(s, v)
        copy_cluster(view, slot, many)
        for _ in range(DOUBLINGS):
            copy_cluster(view, many, more)
            view.add_up(view.head, many, 1, 1)
        before = view.evidence_anew(view.head, many)
        copy_cluster(view, slot, more)
        view.add_up(view.head, many, 1, 1)
        found += view.evidence_anew(view.head, many) - before - view.evidence_anew(view.head, slot)
    return found


@c_function(INT(INTS, INT, INT, FLOAT))
def filter_rows(block, start, stop, p):
    """Filter the rows of a sequence, ``start`` to ``stop - 1`` in order; return 1 where there is no more room.

    Where the marginal likelihood is not a number, or no segmentation has a density, -1 is returned.
    """
    f = _at(block)
    s = memory_at(f.state)
    log_change, log_stay = math.log(p), math.log1p(-p)
    n_alive = 0
    for t in range(start, stop):
        i, end = f.rows[t], f.ends[t]
        if n_alive == f.room or end + n_alive + 1 > f.room_for_kept:
            return 1
        before, own = end - n_alive, shifted(f.kept, end)
        for j in range(n_alive):
            f.log_predictives[j] = 0.0
        weigh(s, i, f.slots, n_alive, -1, f.log_predictives)
        for j in range(n_alive):
            f.kept_predictives[before + j] = f.log_predictives[j]
            own[j] = f.kept[before + j] + log_stay + f.log_predictives[j]
        f.alone[t] = s.prior_predictive[i]
        own[n_alive] = f.alone[t] + (log_change if t > start else 0.0)
        log_total = _normalize(own, n_alive + 1)
        if not log_total > -math.inf:
            return -1
        f.log_marginal[0] += log_total
        f.places[n_alive], f.asked_at[n_alive], f.left_out[t] = t, 2, -1
        gather(s, f.slots[n_alive], shifted(f.rows, t), 1, 1)
        for j in range(n_alive):
            if change(s, i, f.slots[j], 1.0):
                gather(s, f.slots[j], shifted(f.rows, f.places[j]), t + 1 - f.places[j], 1)
        n_left = 0
        for j in range(n_alive + 1):
            n_rows, slot = t + 1 - f.places[j], f.slots[j]
            share = own[j] + log_stay - log_change
            if f.leaves_out != 0 and share < LEAST and n_rows >= f.asked_at[j]:
                f.asked_at[j] = n_rows + max(2, n_rows // 8)
                # The density may have no bound.
                share += _log_regret(f, s, slot)
                if share < LEAST:
                    f.left_out[f.places[j]], f.left_out_shares[f.places[j]] = t, share
                    continue
            f.slots[j] = f.slots[n_left]
            f.slots[n_left], f.asked_at[n_left] = slot, f.asked_at[j]
            f.places[n_left] = f.kept_places[end + n_left] = f.places[j]
            own[n_left] = own[j]
            f.weights[end + n_left] = math.exp(own[j])
            n_left += 1
        n_alive = n_left
        f.ends[t + 1] = end + n_alive
    return 0


@c_function(NOTHING(INTS, INT, INT, FLOAT))
def filter_again(block, start, stop, p):
    """Filter the rows of a sequence with another probability, by the beginnings and predictives that are kept."""
    f = _at(block)
    log_change, log_stay = math.log(p), math.log1p(-p)
    for t in range(start, stop):
        before = f.ends[t - 1] if t > start else f.ends[t]
        n_alive, end = f.ends[t] - before, f.ends[t]
        n_kept, q, own = f.ends[t + 1] - end, 0, shifted(f.kept, end)
        for j in range(n_alive):
            if q < n_kept and f.kept_places[end + q] == f.kept_places[before + j]:
                own[q] = f.kept[before + j] + log_stay + f.kept_predictives[before + j]
                q += 1
        own[q] = f.alone[t] + (log_change if t > start else 0.0)
        f.log_marginal[0] += _normalize(own, n_kept)
        for j in range(n_kept):
            f.weights[end + j] = math.exp(own[j])


@c_function(FLOAT(INTS, INT, INT, FLOAT, FLOAT))
def reweigh(block, start, stop, ratio, most_left_out):
    """Weigh the beginnings in a sequence by odds ``ratio`` times as large; return log h of its last row.

    It is minus infinity where what has been lost may matter, or one that was left out has a share above the
    exponential of ``most_left_out``.
    """
    f = _at(block)
    for t in range(start, stop):
        f.factors[t] = ratio * f.sums[t - 1] if t > start else 1.0
        total = 0.0
        for place in range(f.ends[t], f.ends[t + 1]):
            total += f.weights[place] * f.factors[f.kept_places[place]]
        f.sums[t] = total
        if not total > LEAST_SUM:
            return -math.inf
    log_ratio = math.log(ratio)
    for s in range(start, stop if f.leaves_out != 0 else start):
        t = f.left_out[s]
        if t >= 0:
            log_gain = math.log(f.factors[s] / f.sums[t]) - log_ratio
            if f.left_out_shares[s] + log_gain > most_left_out:
                return -math.inf
    return math.log(f.sums[stop - 1]) if stop > start else 0.0


@c_function(NOTHING(INTS, INT, INT))
def draw_backwards(block, start, stop):
    """Draw which rows of a sequence begin a segment, given how its beginnings are weighed."""
    f = _at(block)
    t = stop - 1
    while t >= start:
        u, place = uniform(f.bits) * f.sums[t], f.ends[t]
        last = f.ends[t + 1] - 1
        total = f.weights[place] * f.factors[f.kept_places[place]]
        while total <= u and place < last:
            place += 1
            total += f.weights[place] * f.factors[f.kept_places[place]]
        begin = f.kept_places[place]
        for q in range(begin + 1, t + 1):
            f.begins[q] = 0
        f.begins[begin] = 1
        t = begin - 1


KERNELS = (filter_rows, filter_again, reweigh, draw_backwards)


class SegmentFilter(Memory, block=FILTER):
    """Draws of all segments at once, for rows in some order. A copy, or one in another process, begins empty.

    Parameters
    ----------
    sequences : Sequences
    """

    room: int
    room_for_kept: int
    leaves_out: int
    state: State | None

    def __init__(self, sequences: Sequences) -> None:
        super().__init__()
        n, starts = len(sequences.rows), sequences.starts.tolist()
        self._sequences, self.rows = sequences, sequences.rows
        self._parts = list(itertools.pairwise(starts))
        self._longest = max((stop - start for start, stop in self._parts), default=0)
        # What is filtered, the probability of the filter, and that of weights with the log marginal likelihood.
        self._given: State | None = None
        self._p = 0.5
        self._weighed: tuple[float, float] | None = None
        self._make(ends=n + 1, begins=n, log_marginal=1, alone=n, factors=n, sums=n, left_out=n, left_out_shares=n)
        self._make_room(FIRST_ROOM, FIRST_KEPT * n)

    def __reduce__(self) -> Any:
        return SegmentFilter, (self._sequences,)

    def _make_room(self, room: int, room_for_kept: int) -> None:
        self.room, self.room_for_kept = room, room_for_kept
        self._make(places=room + 1, log_predictives=room + 1, asked_at=room + 1)
        self._make(
            kept_places=room_for_kept, weights=room_for_kept, kept=room_for_kept, kept_predictives=room_for_kept
        )
        self.slots = np.arange(1, room + 2)

    def take(self, state: State, p: float) -> None:
        """Take the rows and the base measures of a state, which must not change until the next ones are taken.

        Parameters
        ----------
        state : State
            Must have random numbers in use.
        p : float, in (0, 1)
            A probability of a change that is plausible.

        Raises
        ------
        FloatingPointError
            If the density of a row is not a number.
        """
        self._given = state
        # Those of wide rows have no sums that could be added.
        self.leaves_out = self._longest > MANY_ROWS and not any(table.is_wide for table in state.tables)
        for table in state.tables:
            table.prepare((*ALWAYS, "add_up", "evidence_anew"))
        self._filter_all(state, _raised(p))

    def _filter_all(self, state: State, p: float) -> None:
        """Filter all rows, with as much room as that takes."""
        n = len(self.rows)
        while not self._filter(state, p):
            most = n * (n + 1) // 2
            room = min(2 * self.room + 2, n)
            self._make_room(room, max(min(2 * self.room_for_kept, most), room + 1))
        self._p, self._weighed = p, None

    def _filter(self, state: State, p: float) -> bool:
        """Filter all rows; tell whether there was room."""
        self.state, self.log_marginal[0] = state.shadow(self.room + 2), 0.0
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
        if self._weighed is not None and self._weighed[0] == p:
            return self._weighed[1]
        found = self._reweighed(p)
        # With the same odds all sums are 1.
        for odds_of in (_raised(p), p):
            if found > -math.inf:
                break
            if self.leaves_out:
                assert self._given is not None
                self._filter_all(self._given, odds_of)
            else:
                self.log_marginal[0], self._p = 0.0, odds_of
                for start, stop in self._parts:
                    filter_again(self.address, start, stop, odds_of)
            found = self._reweighed(p)
        self._weighed = p, found
        return found

    def _reweighed(self, p: float) -> float:
        """Weigh beginnings by a probability; return the log marginal likelihood, -inf where it is not known."""
        log_ratio, log_stay = _logit(p) - _logit(self._p), math.log1p(-p) - math.log1p(-self._p)
        if log_ratio * self._longest > MOST_LOG_RATIO:
            return -math.inf
        found, ratio = float(self.log_marginal[0]), math.exp(log_ratio)
        # A segment that ends at a row is compared with the others that do, not with a change after it.
        most_left_out = MOST_LEFT_OUT - max(_logit(p), 0.0)
        for start, stop in self._parts:
            found += reweigh(self.address, start, stop, ratio, most_left_out)
            found += max(stop - start - 1, 0) * log_stay
        return found

    def draw(self, rng: np.random.Generator, p: float) -> np.ndarray:
        """Draw the labels of all rows, with the probability p of a change: (n,) int64 array."""
        self.log_marginal_at(p)
        self.draw_from(rng)
        for start, stop in self._parts:
            draw_backwards(self.address, start, stop)
        return self._sequences.labels(self.begins)


def _logit(p: float) -> float:
    return math.log(p) - math.log1p(-p)


def _raised(p: float) -> float:
    """Return the probability of a change that the filter is made with."""
    raised = 1.0 / (1.0 + math.exp(-_logit(p) - RAISED))
    # Near 1 the next number is 1.
    return p if raised == 1.0 else raised
