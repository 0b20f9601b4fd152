"""Sweeps over labels and atoms, of which densities are functions at addresses.

A sweep is a scan over the labels (``auxiliary.py``), moves of all atoms (``sweep_moves.py``), and splits and
merges (``sweep_splits.py``), on atoms in their free form.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.array_calls import Call, words_of
from pymc_dpgmm.native.compiled import INT, INTS, address_of, c_function, inlined
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.partitions.concentration import draw_concentration
from pymc_dpgmm.partitions.priors import GibbsType, log_seats_new
from pymc_dpgmm.sampler.atoms.auxiliary import HEAD as SCAN
from pymc_dpgmm.sampler.atoms.auxiliary import ScannedRows, let_rows_join, scan_at
from pymc_dpgmm.sampler.atoms.beside import (
    Beside,
    evidence_beside,
    join_beside,
    leave_beside,
    odds_beside,
    weigh_beside,
)
from pymc_dpgmm.sampler.atoms.scales import N_BASE, AtomScales
from pymc_dpgmm.sampler.atoms.sweep_memory import (
    ALPHA,
    DISCOUNT,
    DISCRETE,
    DONE,
    FAILED,
    LAW_RATE,
    LAW_SHAPE,
    MOST,
    MOVES,
    N_ALL_ROWS,
    NEEDS_ATOMS,
    NEEDS_MEMORY,
    NEEDS_SLOTS,
    POOL,
    SCAN_BEGINS,
    SCAN_GOES_ON,
    SPLITS,
    SWEEP,
    SWEEP_BEGINS,
    TALLY,
    name_clusters,
    sweep_at,
    weigh_pool,
)
from pymc_dpgmm.sampler.atoms.sweep_moves import move_and_learn
from pymc_dpgmm.sampler.atoms.sweep_splits import try_split_or_merge
from pymc_dpgmm.sampler.state.memory import memory_at

# What sweeps count, and where.
COUNTED = ("n_moved", *TALLY)
_COUNTS = slice(SWEEP.place("n_moved"), SWEEP.place("merges") + 1)


@inlined
def _begin_sweep(s):
    """Draw the concentration given the labels, if it has a law, and see what is to be done in a sweep."""
    if s.prior[LAW_RATE] > 0.0:
        shape, rate, n_clusters = s.prior[LAW_SHAPE], s.prior[LAW_RATE], s.n_clusters
        alpha = draw_concentration(s.bits, s.prior[ALPHA], n_clusters, s.prior[N_ALL_ROWS], shape, rate)
        s.prior[ALPHA] = alpha
        for k in range(1, s.n_log_new):
            s.log_new[k] = math.log(alpha + k * s.prior[DISCOUNT]) if k < s.prior[MOST] else -math.inf
    s.n_left -= 1
    s.n_splits, s.scans_left = s.splits_of[s.n_left], s.n_scans
    of = scan_at(s.scan)
    of.next, of.stop = 0, 0
    if s.is_tuning != 0:
        s.first_learnt = s.next_fresh
        s.next_fresh += s.n_hamiltonian * N_BASE


@inlined
def _fresh_of_scan(s, n_splits):
    """Return how many draws from the base a scan begins with."""
    return s.n_fresh + (POOL if n_splits > 0 else 0)


@inlined
def _begin_scan(s):
    """Put the atoms of clusters and fresh ones into the pool."""
    n_clusters, of = s.n_clusters, scan_at(s.scan)
    n_fresh, first = _fresh_of_scan(s, s.n_splits), s.next_fresh * s.n_free
    for q in range(n_clusters * s.n_free):
        s.pool[q] = s.atoms[q]
    for q in range(n_fresh * s.n_free):
        s.pool[n_clusters * s.n_free + q] = s.fresh[first + q]
    s.next_fresh += n_fresh
    of.stop = n_clusters + n_fresh
    for k in range(of.stop):
        of.sizes[k] = 0.0
        of.known_slots[k] = 0
        of.active[k] = k
        of.places[k] = k
    for i in range(s.n):
        if s.has_beside:
            of.slots_beside[s.labels[i]] = s.slots_beside[i]
        of.sizes[s.labels[i]] += s.weights[i]
        if s.known[i] != 0:
            of.known_slots[s.labels[i]] = 1
    for q in range(of.n_auxiliary):
        of.auxiliary[q] = n_clusters + q
    of.row, of.n_moved, of.n_active = 0, 0, n_clusters
    of.next = n_clusters + of.n_auxiliary
    s.weighed = 0


@c_function(INT(INTS))
def sweep(head):
    """Go on with the sweeps of a draw, from their phase on; return how they ended."""
    s = sweep_at(head)
    of, discount = scan_at(s.scan), s.prior[DISCOUNT]
    while s.failed[0] == 0:
        if s.phase == SWEEP_BEGINS:
            if s.n_left == 0:
                return DONE
            if s.n_clusters + s.splits_of[s.n_left - 1] + 1 > s.capacity:
                return NEEDS_MEMORY
            _begin_sweep(s)
            s.phase = SCAN_BEGINS if s.n_scans > 0 else MOVES
        if s.phase == SCAN_BEGINS:
            if s.n_clusters + _fresh_of_scan(s, s.n_splits) > s.capacity:
                return NEEDS_MEMORY
            _begin_scan(s)
            s.phase = SCAN_GOES_ON
        if s.phase == SCAN_GOES_ON:
            weigh_pool(s)
            let_rows_join(of, discount)
            if s.failed[0] != 0:
                return FAILED
            if of.row < s.n:
                return NEEDS_ATOMS if of.next == of.stop else NEEDS_SLOTS
            s.n_moved += of.n_moved
            name_clusters(s, of.stop, s.pool)
            s.scans_left -= 1
            s.phase = SCAN_BEGINS if s.scans_left > 0 else MOVES
        if s.phase == MOVES:
            move_and_learn(s)
            s.phase = SPLITS
        while s.phase == SPLITS and s.n_splits > 0 and s.failed[0] == 0:
            if of.stop - of.next < POOL:
                return NEEDS_ATOMS
            if s.has_beside and memory_at(s.beside).n_clusters + 2 > memory_at(s.beside).capacity:
                return NEEDS_SLOTS
            weigh_pool(s)
            try_split_or_merge(s, discount)
            s.n_splits -= 1
            # No two of these moves choose among the same atoms.
            of.next = of.stop
        if s.phase == SPLITS:
            s.phase = SWEEP_BEGINS
    return FAILED


class Counts(NamedTuple):
    """How often sweeps make each move, and how many draws from the base each scan takes.

    Parameters
    ----------
    n_scans, n_hamiltonian : int
        Of each sweep.
    n_fresh : int
        Of each scan; where splits follow, ``POOL`` more.
    n_splits : list of int
        Of the sweeps, one after the other.
    """

    n_scans: int
    n_fresh: int
    n_hamiltonian: int
    n_splits: list[int]

    def n_taken(self, is_tuning: bool) -> int:
        """Return how many draws from the base all sweeps begin with."""
        of_scans = sum(self.n_fresh + (POOL if n > 0 else 0) for n in self.n_splits) * self.n_scans
        return of_scans + (self.n_hamiltonian * N_BASE * len(self.n_splits) if is_tuning else 0)


class _AtomSweep(Memory, block=SWEEP):
    n_clusters: int


class _Scan(Memory, block=SCAN):
    """A scan of a sweep, which has some of its arrays too."""


class _Discrete(Memory, block=DISCRETE):
    """A parameter with discrete values."""


class CompiledSweeps:
    """The memory of sweeps over the labels and atoms of a model.

    Parameters
    ----------
    rows : ScannedRows
        Blocks of rows.
    of_row : (n_rows,) int64 array
        The block of each row.
    n_free, n_continuous : int
        Numbers of values of an atom, and how many of these, the first ones, are continuous.
    discrete : sequence of pairs
        Columns of each parameter with discrete values, and the type of these.
    calls : sequence of Call
        See ``AtomDensities.calls``.
    n_auxiliary : int
        Auxiliary atoms of a scan.
    """

    def __init__(
        self,
        rows: ScannedRows,
        of_row: np.ndarray,
        n_free: int,
        n_continuous: int,
        discrete: Sequence[tuple[slice, np.dtype]],
        calls: Sequence[Call],
        n_auxiliary: int,
    ) -> None:
        density, by_row, *of_bases = self._entries = [call.entry for call in calls]
        n, d, n_rows = len(rows.weights), n_free, len(of_row)
        self._sweep = s = _AtomSweep(
            n=n, n_rows=n_rows, n_free=d, n_continuous=n_continuous, n_discrete=len(discrete)
        )
        s.density_entry, s.density_code, s.rows_entry, s.rows_code = density, density.code, by_row, by_row.code
        s.of_row, s.weights, s.known = of_row, rows.weights, rows.known
        s._make(row_labels=n_rows, labels=n, halves=n, members=n, odds=n, two_rows=(2, n), failed=1, evidence=1)
        s._make(modes=(3, d), precisions=(3, d, d), drawn=(3, d), factor=(d, d), steps=d, vectors=(2, d, d))
        s._make(density_inputs=1, discrete=(len(discrete), len(DISCRETE)))
        s.rows_outputs = _addresses(s.two_rows)
        s.scan = self._scan = _Scan(
            n=n, n_auxiliary=n_auxiliary, labels=s.labels, weights=s.weights, known=s.known
        )
        self._scan._make(auxiliary=n_auxiliary)
        self._discrete = []
        for (own, dtype), entry, words in zip(discrete, of_bases, s.discrete, strict=True):
            bounds, none = np.array(_bounds_of(dtype)), np.zeros(1, dtype=np.int64)
            one = _Discrete(
                start=own.start, stop=own.stop, bounds=bounds, entry=entry, code=entry.code, inputs=none
            )
            one.lie_in(words)
            self._discrete.append(one)
        self._prior: GibbsType | None = None
        self._beside: Beside | None = None
        self._grow(2 * n_auxiliary + 2 * POOL)

    def begin(
        self,
        rng: np.random.Generator,
        labels: np.ndarray,
        free: np.ndarray,
        calls: Sequence[Call],
        beside: Beside | None = None,
    ) -> None:
        """Begin a draw.

        Parameters
        ----------
        rng : numpy.random.Generator
        labels : (n,) int64 array
            0..K-1.
        free : (K, D) float64 array
            The atoms in free form, finite.
        calls : sequence of Call
            Those that these sweeps were made for, with their values now.
        beside : Beside, optional
            Collapsed mixtures on the same labels, which they have before and after every sweep.
        """
        self._beside = beside
        self._point_beside()
        s = self._sweep
        s.failed[0] = 0
        self._reach(len(free) + self._scan.n_auxiliary)
        s.labels[:], s.atoms[: len(free)], s.n_clusters = labels, free, len(free)
        s.draw_from(rng)
        self._scan.draw_from(rng)
        points = s.points[:1]
        of_atoms = [[points, s.row_labels], [s.pool[:1]], *([points] for _ in self._discrete)]
        # They are kept, since the inputs have their addresses.
        self._values = [call.values for call in calls]
        s.density_inputs, s.rows_inputs, *of_bases = (
            words_of([*own, *call.values], call.entry.kinds) for own, call in zip(of_atoms, calls, strict=True)
        )
        for one, inputs in zip(self._discrete, of_bases, strict=True):
            one.inputs = inputs

    def sweep(
        self,
        prior: GibbsType,
        law: tuple[float, float],
        n_rows: int,
        take: Callable[[int], np.ndarray],
        counts: Counts,
        scales: AtomScales,
        is_tuning: bool,
    ) -> tuple[float, float]:
        """Make the sweeps of a draw; return the concentration, and the mean acceptance of Hamiltonian moves.

        Parameters
        ----------
        prior : GibbsType
        law : tuple of float
            Shape and rate of a gamma prior of the concentration, which is then drawn before every sweep; zeros if
            it is not.
        n_rows : int
        take : callable
            Draws so many atoms from the base: (m, D), in free form.
        counts : Counts
        scales : AtomScales
            What is learnt while tuning.
        is_tuning : bool

        Raises
        ------
        FloatingPointError
            If a density could not be computed: it is at :attr:`arguments`.
        """
        s, n_sweeps = self._sweep, len(counts.n_splits)
        s.prior = np.array([prior.alpha, prior.discount, prior.most, n_rows, *law])
        s.learnt = np.append(scales.numbers(), 0.0)
        s.base, s.row = np.ascontiguousarray(scales.base), np.ascontiguousarray(scales.row)
        n_taken = counts.n_taken(is_tuning)
        s.fresh = np.ascontiguousarray(take(n_taken) if n_taken else np.empty((0, s.n_free)))
        s.splits_of = np.array(counts.n_splits[::-1])
        s.n_scans, s.n_hamiltonian, s.is_tuning = counts.n_scans, counts.n_hamiltonian, is_tuning
        s.phase, s.n_left, s.n_fresh, s.next_fresh = SWEEP_BEGINS, n_sweeps, counts.n_fresh, 0
        self._know_prior(prior)
        while (ended := sweep(s.address)) != DONE:
            self._check()
            if ended == NEEDS_SLOTS:
                self._point_beside()
            elif ended == NEEDS_MEMORY:
                self._reach(s.n_clusters + max(counts.n_fresh + POOL, max(counts.n_splits) + 1))
            elif s.phase == SPLITS:
                # What is left of the scan are too few, and are not looked at.
                self._scan.next = s.weighed = self._scan.stop
                self._add(take(POOL))
            else:
                self._add(take(counts.n_fresh))
            self._know_prior(prior._replace(alpha=float(s.prior[ALPHA])))
        if law[1] > 0.0:
            # The weights have changed in place.
            self._prior = None
        scales.take(s.learnt[:-1], s.base, s.row)
        n_moves = n_sweeps * counts.n_hamiltonian
        return float(s.prior[ALPHA]), float(s.learnt[-1]) / n_moves if n_moves else math.nan

    def _check(self) -> None:
        if self._sweep.failed[0]:
            for entry in self._entries:
                entry.raise_error()
            raise FloatingPointError("a density of atoms could not be computed")

    @property
    def labels(self) -> np.ndarray:
        """The labels now, 0..K-1 in order of first appearance: (n,)."""
        labels: np.ndarray = self._sweep.labels
        return labels.copy()

    @property
    def free(self) -> np.ndarray:
        """The atoms now: (K, D)."""
        atoms: np.ndarray = self._sweep.atoms
        return atoms[: self._sweep.n_clusters].copy()

    @property
    def arguments(self) -> tuple[np.ndarray, np.ndarray]:
        """Atoms, and labels of rows, that the densities were last computed at."""
        s = self._sweep
        return s.points[: s.density_inputs[1]], s.row_labels

    def take_counts(self) -> dict[str, int]:
        """Return what has been counted since the last call: rows that moved, splits and merges."""
        numbers = self._sweep.block[_COUNTS]
        counts = dict(zip(COUNTED, numbers.tolist(), strict=True))
        numbers[:] = 0
        return counts

    def _point_beside(self) -> None:
        """Have room for another cluster of the collapsed mixtures, and write where their memory is."""
        s, scan = self._sweep, self._scan
        if self._beside is None:
            s.beside = scan.beside = None
            return
        state = self._beside.roomy()
        s.beside, s.slots_beside, scan.beside = state, state.slots, state
        s.evidence_beside, s.odds_beside, scan.weigh_beside = evidence_beside, odds_beside, weigh_beside
        for memory in (s, scan):
            memory.leave_beside, memory.join_beside = leave_beside, join_beside
        scan._make(weights_beside=state.capacity + 1)

    def _add(self, free: np.ndarray) -> None:
        """Add fresh atoms to the pool."""
        stop = self._scan.stop
        self._reach(stop + len(free))
        self._sweep.pool[stop : stop + len(free)] = free
        self._scan.stop = stop + len(free)

    def _know_prior(self, prior: GibbsType) -> None:
        s = self._sweep
        length = min(s.capacity, s.n) + 1
        if s.n_log_new != length or self._prior is not prior:
            self._prior, s.n_log_new = prior, length
            s.log_new = self._scan.log_new = log_seats_new(prior, length)

    def _reach(self, n_atoms: int) -> None:
        """Have room for some number of atoms."""
        if n_atoms > self._sweep.capacity:
            self._grow(max(n_atoms, 2 * self._sweep.capacity))

    def _grow(self, capacity: int) -> None:
        """Get memory for more atoms, with what was in the smaller one."""
        s, scan, c = self._sweep, self._scan, capacity
        d, of_clusters = s.n_free, (c + 2, s.n_free)
        s._make_longer(pool=(c, d), densities=(c, s.n), row_densities=(c if s.n < s.n_rows else 0, s.n_rows))
        s._make_longer(names=c + 2, atoms=of_clusters, sizes=c + 2, moved=of_clusters, momentum=of_clusters)
        s._make_longer(scale=of_clusters, start=c + 2, energy=c + 2, hessian=(c + 2, d, d), gradient=of_clusters)
        s._make_longer(points=of_clusters, values=c + 2, gradients=of_clusters, jacobians=c + 2)
        scan._make_longer(known_slots=c, places=c, active=c, slots_beside=c, sizes=c)
        scan._make_longer(log_weights=c + scan.n_auxiliary)
        scan.densities, s.capacity = s.densities, capacity
        s.density_outputs = _addresses(s.values, s.gradients, s.jacobians)
        s.density_inputs[0] = address_of(s.points)
        for one in self._discrete:
            one.outputs, one.inputs[0] = _addresses(s.values), address_of(s.points)


def _addresses(*arrays: np.ndarray) -> np.ndarray:
    return np.array([address_of(array) for array in arrays], dtype=np.int64)


def _bounds_of(dtype: np.dtype) -> tuple[float, float]:
    """Return the least and the largest whole number of a type that double precision has too."""
    if dtype == np.dtype(bool):
        return 0.0, 1.0
    return max(np.iinfo(dtype).min, -(2.0**53)), min(np.iinfo(dtype).max, 2.0**53)
