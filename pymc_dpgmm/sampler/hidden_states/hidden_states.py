r"""Draws of hidden states: scans and whole sequences, given the shared weights of the states.

The shared weights :math:`\beta` of the K states that have rows, and :math:`\beta_*` of all others, are drawn with
the states and forgotten when a draw ends:

.. math:: p(\text{labels}, \beta) = \gamma^K \beta_*^{\gamma - 1} \prod_k \beta_k^{-1} \;
    p(\text{transitions} \mid \beta)

(Teh et al. 2006, section 5.3; :func:`~pymc_dpgmm.partitions.hidden_states.density_of_transitions`). With at most N
states, :math:`g = \gamma / N` and :math:`\gamma_* = \gamma - K g`, the factors before the last become

.. math:: \gamma^K \prod_{j < K} \Big(1 - \frac j N\Big) \frac{\Gamma(\gamma)}{\Gamma(1 + g)^K \Gamma(\gamma_*)}
    \beta_*^{\gamma_* - 1} \prod_k \beta_k^{g - 1}.

*Sequences* are drawn given transitions and parameters of states. A threshold u, uniform below the least weight of
a state with rows, leaves finitely many states with larger weights, whose weights, transitions and parameters are
drawn: those with rows from their posteriors, the others from the prior. As the density of u is the inverse of that
least weight, a path drawn among them is accepted with the least weight before over that after. (A slice of each
transition, as in Van Gael et al. 2008, would leave fewer states to each row, and rows less free.)
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dpgmm.native.compiled import address_of, bits_of_generator
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.partitions.draws import log_gamma_numbers
from pymc_dpgmm.partitions.hidden_states import (
    OPENS,
    density_of_transitions,
    draw_openers,
    draw_part_of_rest,
    draw_shares,
    log_of_states,
    transition_counts,
)
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.segments import Sequences
from pymc_dpgmm.sampler.hidden_states.paths import draw_paths
from pymc_dpgmm.sampler.hidden_states.scans import ALPHA, GAMMA, HIDDEN, KAPPA, MOST, REST, count_all, scan_states
from pymc_dpgmm.sampler.many_rows.drawn_clusters import DrawnClusters, LabelDraws, draw_parameters
from pymc_dpgmm.sampler.state.memory import NEEDS_ROOM, NOT_A_NUMBER
from pymc_dpgmm.sampler.state.state import WHY_NO_DENSITY, State

LEAST = float(np.finfo(float).tiny)
# What is counted of splits and merges.
TALLIED = ("splits_tried", "splits", "merges_tried", "merges")
# Up to so many densities NumPy is as fast as compiled code, which has to be told first where everything lies.
FEW_DENSITIES = 10_000
# With more states than this, with rows and without, sequences are not drawn.
MOST_STATES = 500


class HiddenStates(Memory, block=HIDDEN):
    """Moves of hidden states of rows in order. Between draws it holds nothing.

    Parameters
    ----------
    sequences : Sequences
    most : float
        The largest number of states, which may be infinite.
    known : (n,) integer array, optional
        Numbers of the states of rows that are known, -1 where they are not. Such rows stay where they are: states
        that labels begin with must have all rows of a number together, and those of others apart.

    Attributes
    ----------
    tally : dict
        Of the last draw: splits and merges that were tried, and accepted.
    """

    state: State
    position: int
    shares: np.ndarray
    numbers: np.ndarray
    counts: np.ndarray

    def __init__(self, sequences: Sequences, most: float = math.inf, known: np.ndarray | None = None) -> None:
        super().__init__()
        self.sequences, n = sequences, len(sequences.rows)
        self.most, self.known = most, np.full(n, -1) if known is None else known
        self._free = np.flatnonzero(self.known < 0)
        begins = np.zeros(n + 1, dtype=bool)
        begins[sequences.starts] = True
        self.begins, self.ends = begins[:-1], begins[1:]
        ordered = sequences.rows
        before, after = np.full((2, n), -1)
        before[ordered[1:]] = np.where(self.begins[1:], -1, ordered[:-1])
        after[ordered[:-1]] = np.where(self.ends[:-1], -1, ordered[1:])
        self.before, self.after = before, after
        self.numbers, self._log_rest = np.ones(5), 0.0
        self.numbers[MOST] = most
        self.tally: dict[str, int] = {}

    def __reduce__(self) -> Any:
        return HiddenStates, (self.sequences, self.most, self.known)

    @property
    def concentrations(self) -> tuple[float, float, float]:
        """Alpha, gamma and kappa."""
        alpha, gamma, kappa, *_ = self.numbers.tolist()
        return alpha, gamma, kappa

    def set_concentrations(self, alpha: float, gamma: float, kappa: float) -> None:
        """Take other ones."""
        self.numbers[[ALPHA, GAMMA, KAPPA]] = alpha, gamma, kappa

    def take(self, rng: np.random.Generator, state: State, openers: np.ndarray) -> None:
        """Begin a draw of the states of rows, with their openers, which shared weights are drawn from.

        Parameters
        ----------
        rng : numpy.random.Generator
        state : State
            Changed in place.
        openers : (n,) integer array
        """
        self.tally = dict.fromkeys(TALLIED, 0)
        self.state, self.rng = state, rng
        state.use(rng)
        self._make_room()
        self.draw_shares(openers)

    def end(self) -> np.ndarray:
        """Draw the openers that a draw ends with: (n,) int64 array."""
        alpha, _, kappa = self.concentrations
        return draw_openers(self.rng, self.codes(), self.shares[self._slots], self.sequences, alpha, kappa)

    def draw_shares(self, openers: np.ndarray) -> None:
        """Draw shared weights given openers."""
        tables = np.bincount(self.codes()[openers == OPENS], minlength=self.state.n_clusters)
        shares, self._log_rest = draw_shares(self.rng, tables, self.concentrations[1], self.most)
        self.shares[:] = 0.0
        self.shares[self._slots], self.numbers[REST] = shares, max(math.exp(self._log_rest), LEAST)

    @property
    def _slots(self) -> np.ndarray:
        """Slots that have rows: (K,)."""
        return self.state.order[: self.state.n_clusters]

    def codes(self) -> np.ndarray:
        """Places of the rows' slots in the list of slots: (n,)."""
        return self.state.place[self.state.slots]

    def _make_room(self) -> None:
        """Make what is kept of slots as long as a state has slots."""
        width = self.state.capacity + 1
        shares = np.zeros(width)
        before = self.__dict__.get("shares", shares)[:width]
        shares[: len(before)] = before
        self.shares = shares
        self._make(counts=width * width, totals=width)

    def log_density(self) -> Callable[[float, float, float], float]:
        """Return the log density of the states with shared weights just drawn, as a function of concentrations."""
        slots = self._slots
        counts = transition_counts(self.codes()[self.sequences.rows], self.sequences, len(slots))
        within, n_states, log_rest = density_of_transitions(counts, self.shares[slots]), len(slots), self._log_rest
        log_shares, part_of_rest = float(np.log(self.shares[slots]).sum()), 1.0 - n_states / self.most

        def log_density(alpha: float, gamma: float, kappa: float) -> float:
            if not (0.0 < alpha < math.inf and 0.0 < gamma < math.inf and 0.0 <= kappa < math.inf):
                return -math.inf
            found = log_of_states(n_states, gamma, self.most) + within(alpha, kappa)
            found += math.lgamma(gamma) + gamma / self.most * log_shares
            if part_of_rest > 0.0:
                found += (gamma * part_of_rest - 1.0) * log_rest - math.lgamma(gamma * part_of_rest)
            return found

        return log_density

    def scan(self, n_rows: int, n_scans: int = 1) -> int:
        """Draw the states of so many rows, one after the other; return how many have another one than before.

        Each of several scans has its own order.
        """
        state = self.state
        queue = np.concatenate([self.rng.permutation(self._free)[:n_rows] for _ in range(n_scans)])
        self.position, state.n_moved = 0, 0
        count_all(self.address)
        while (told := scan_states(self.address, address_of(queue), len(queue))) == NEEDS_ROOM:
            self.grow()
            count_all(self.address)
        if told == NOT_A_NUMBER:
            raise FloatingPointError(f"the density of a row in a state is not a number: {WHY_NO_DENSITY}")
        return int(state.n_moved)

    def own_shares(self) -> np.ndarray:
        """Return the shared weights of the states that have rows, in the order of the list of slots: (K,)."""
        return self.shares[self._slots]

    def rest(self) -> float:
        """Return the weight of all states that have no rows."""
        return float(self.numbers[REST]) if self.state.n_clusters < self.most else 0.0

    def grow(self) -> None:
        """Make room for more states."""
        self.state.grow()
        # Its address stays the same, and its slots do.
        self._make_room()

    def draw_sequences(self, part: tuple[int, int] | None = None) -> int:
        """Draw whole sequences of states; return how many rows have another one than before.

        With a ``part``, it is rows in order ``part[0]`` to ``part[1] - 1``, of one sequence, given all others.
        """
        state, rng, sequences = self.state, self.rng, self.sequences
        slots, (alpha, _, kappa) = self._slots.copy(), self.concentrations
        shares, n_occupied = self.shares[slots], len(slots)
        empty, rest = self._empty_shares(float(shares.min()))
        if n_occupied + len(empty) > MOST_STATES:
            return 0
        shares = np.concatenate([shares, empty])
        n_states, codes = len(shares), np.ascontiguousarray(self.codes()[sequences.rows])
        occupied = np.bincount(codes, minlength=n_states).astype(float)
        weights = transition_counts(codes, sequences, n_states) + alpha * shares
        weights[1:][np.diag_indices(n_states)] += kappa
        # Where all shapes are tiny, all numbers may be smaller than any.
        log_drawn = log_gamma_numbers(rng, np.hstack([weights, np.full((n_states + 1, 1), alpha * rest)]))
        transitions = np.exp(log_drawn - log_drawn.max(axis=1, keepdims=True))
        transitions = np.ascontiguousarray((transitions / transitions.sum(axis=1, keepdims=True))[:, :-1])
        start, stop = (0, state.n) if part is None else part
        starts = sequences.starts if part is None else np.array([0, stop - start])
        first, last, within = transitions[0].copy(), np.ones(n_states), transitions[1:].copy()
        if part is not None and not self.begins[start]:
            first = within[codes[start - 1]].copy()
        if part is not None and not self.ends[stop - 1]:
            last = within[:, codes[stop]].copy()
        of_states = np.concatenate([slots, np.zeros(n_states - n_occupied, dtype=slots.dtype)])
        log_p = self.log_densities(of_states, sequences.rows[start:stop])
        own = codes[start:stop]
        known = np.flatnonzero(self.known[sequences.rows[start:stop]] >= 0)
        of_known = log_p[known, own[known]]
        log_p[known] = -math.inf
        log_p[known, own[known]] = of_known
        largest = log_p.max(axis=1, keepdims=True)
        if not np.all(largest > -math.inf):
            return 0
        densities = np.exp(log_p - largest)
        longest = int(np.diff(starts).max())
        room, drawn = np.empty(longest * n_states), np.empty(longest, np.int64)
        n_moved = draw_paths(
            *bits_of_generator(rng),
            *map(address_of, (first, last, within, densities, shares)),
            n_states,
            address_of(starts),
            len(starts) - 1,
            *map(address_of, (room, own, drawn, occupied)),
        )
        if n_moved:
            labels = np.empty(state.n, dtype=np.int64)
            labels[sequences.rows] = codes
            self.relabel(labels, shares, rest + shares[occupied == 0.0].sum())
        return int(n_moved)

    def draw_part(self) -> int:
        """Draw the states of a part of a sequence, whose place and length are drawn first."""
        start = int(self.rng.integers(self.state.n))
        stop = int(self.sequences.starts[np.searchsorted(self.sequences.starts, start, side="right")])
        length = int(self.state.n ** self.rng.random())
        return self.draw_sequences((start, min(start + length, stop)))

    def copy(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Return what :meth:`restore` needs to undo moves."""
        return self.codes(), self.shares[self._slots], float(self.numbers[REST])

    def restore(self, kept: tuple[np.ndarray, np.ndarray, float]) -> None:
        """Take the states back that there were."""
        self.relabel(*kept)

    def _empty_shares(self, least: float) -> tuple[np.ndarray, float]:
        """Draw the shared weights of states without rows, and what is left; ``least`` is that of states with rows.

        They are those above a threshold, which is uniform below the least one: a stick is broken until nothing
        above the threshold is left.
        """
        gamma, n_occupied, rest = self.concentrations[1], self.state.n_clusters, self.rest()
        found: list[float] = []
        threshold, left = least * self.rng.random(), rest
        n_left, n_broken = self.most - n_occupied, 0
        while left > threshold and n_broken < n_left and len(found) <= MOST_STATES:
            part = left * draw_part_of_rest(self.rng, n_occupied + n_broken, gamma, self.most)
            n_broken += 1
            left -= part
            if part > threshold:
                found.append(part)
                rest -= part
        return np.maximum(np.array(found), LEAST), max(rest, LEAST)

    def log_densities(self, slots: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return log densities (m, K) of rows given drawn parameters of slots; slot 0 is a state without rows."""
        tables, none = self.state.tables, np.zeros(len(slots), dtype=np.int64)
        drawn = [draw_parameters(self.rng, table, slots) for table in tables]
        if len(rows) * len(slots) <= FEW_DENSITIES:
            total = np.zeros((len(rows), len(slots)))
            for table, own in zip(tables, drawn, strict=True):
                component = table.family.component
                total += component.log_density(component.restore(own, table.origin), table.values[rows])
            return total
        clusters = DrawnClusters(slots, none, np.zeros(len(slots)), drawn, 0, 0)
        return LabelDraws(clusters, tables, self.state.slots).log_densities(rows)

    def relabel(self, labels: np.ndarray, shares: np.ndarray, rest: float) -> None:
        """Take other states of the rows, numbers (n,) of some shared weights, and the weight of all others."""
        # There may be more states than rows.
        used = np.flatnonzero(np.bincount(labels, minlength=len(shares)))
        named = np.empty(len(shares), dtype=np.int64)
        named[used] = np.arange(len(used))
        names, n_states = canonical_labels(named[labels])
        self.state.relabel(names)
        self._make_room()
        own = np.empty(n_states)
        own[names] = shares[labels]
        self.shares[:] = 0.0
        self.shares[1 : n_states + 1] = own
        self.numbers[REST] = rest
