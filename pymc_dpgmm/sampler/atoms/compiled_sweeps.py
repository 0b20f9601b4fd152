"""Sweeps over labels and atoms, of which densities are functions at addresses.

A sweep is a scan over the labels (``auxiliary.py``), moves of all atoms (``sweep_moves.py``), and splits and
merges (``sweep_splits.py``), on atoms in their free form.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.native.array_calls import Call, words_of
from pymc_dpgmm.native.compiled import INT, INTS, address_of, bits_of_generator, c_function, inlined
from pymc_dpgmm.partitions.concentration import draw_concentration
from pymc_dpgmm.partitions.priors import GibbsType, log_seats_new
from pymc_dpgmm.sampler.atoms.auxiliary import HEAD as SCAN
from pymc_dpgmm.sampler.atoms.auxiliary import Rows, let_rows_join, scan_at
from pymc_dpgmm.sampler.atoms.beside import (
    Beside,
    evidence_beside,
    join_beside,
    leave_beside,
    odds_beside,
    weigh_beside,
)
from pymc_dpgmm.sampler.atoms.scales import N_BASE, Scales
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

Shape = int | tuple[int, ...]
# What sweeps count.
COUNTED = ("n_moved", *TALLY)


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


class CompiledSweeps:
    """The memory of sweeps over the labels and atoms of a model.

    Parameters
    ----------
    rows : Rows
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
        rows: Rows,
        of_row: np.ndarray,
        n_free: int,
        n_continuous: int,
        discrete: Sequence[tuple[slice, np.dtype]],
        calls: Sequence[Call],
        n_auxiliary: int,
    ) -> None:
        self._rows, self._of_row, self._d, self._m = rows, of_row, n_free, n_auxiliary
        # They own the code whose addresses are in the block.
        self._entries = [call.entry for call in calls]
        self._n, self._capacity = len(rows.weights), 0
        self._head = SWEEP.filled(**dict.fromkeys(SWEEP.fields, 0))
        self._scan = SCAN.filled(**dict.fromkeys(SCAN.fields, 0))
        density, by_row, *of_bases = self._entries
        SWEEP.set(
            self._head,
            n=self._n,
            n_rows=len(of_row),
            n_free=n_free,
            n_continuous=n_continuous,
            n_discrete=len(discrete),
            density_entry=density.address,
            density_code=density.code,
            rows_entry=by_row.address,
            rows_code=by_row.code,
        )
        self._bounds = np.array([_bounds_of(dtype) for _, dtype in discrete]).reshape(-1, 2)
        self._discrete = [
            DISCRETE.filled(
                start=own.start, stop=own.stop, bounds=bounds, entry=e.address, code=e.code, inputs=0, outputs=0
            )
            for (own, _), bounds, e in zip(discrete, self._bounds, of_bases, strict=True)
        ]
        SCAN.set(self._scan, n=self._n, n_auxiliary=n_auxiliary)
        self._of_sweep: dict[str, np.ndarray] = {}
        self._of_scan: dict[str, np.ndarray] = {}
        self._log_new = np.zeros(0)
        self._prior: GibbsType | None = None
        self._beside: Beside | None = None
        self._inputs: list[np.ndarray] = []
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
        self._failed[0] = 0
        self._reach(len(free) + self._m)
        memory = self._of_sweep
        memory["labels"][:], memory["atoms"][: len(free)] = labels, free
        SWEEP.set(self._head, n_clusters=len(free))
        bits = bits_of_generator(rng)
        SWEEP.set(self._head, next_double=bits[0], bit_state=bits[1])
        SCAN.set(self._scan, next_double=bits[0], bit_state=bits[1])
        points = memory["points"][:1]
        of_atoms = [[points, memory["row_labels"]], [memory["pool"][:1]], *([points] for _ in self._discrete)]
        # They are kept, since the blocks have their addresses.
        self._values = [call.values for call in calls]
        self._inputs = [
            words_of([*own, *call.values], call.entry.kinds) for own, call in zip(of_atoms, calls, strict=True)
        ]
        SWEEP.set(self._head, density_inputs=self._inputs[0], rows_inputs=self._inputs[1])
        self._point_discrete()

    def sweep(
        self,
        prior: GibbsType,
        law: tuple[float, float],
        n_rows: int,
        take: Callable[[int], np.ndarray],
        counts: Counts,
        scales: Scales,
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
        scales : Scales
            What is learnt while tuning.
        is_tuning : bool

        Raises
        ------
        FloatingPointError
            If a density could not be computed: it is at :attr:`arguments`.
        """
        n_sweeps = len(counts.n_splits)
        numbers = np.array([prior.alpha, prior.discount, prior.most, n_rows, *law])
        self._keep(learnt=np.append(scales.numbers(), 0.0), base=scales.base, row=scales.row, prior=numbers)
        n_taken = counts.n_taken(is_tuning)
        fresh = take(n_taken) if n_taken else np.empty((0, self._d))
        self._keep(splits_of=np.array(counts.n_splits[::-1]), fresh=fresh)
        SWEEP.set(self._head, n_scans=counts.n_scans, n_hamiltonian=counts.n_hamiltonian, is_tuning=int(is_tuning))
        SWEEP.set(self._head, phase=SWEEP_BEGINS, n_left=n_sweeps, n_fresh=counts.n_fresh, next_fresh=0)
        self._know_prior(prior)
        while (ended := sweep(address_of(self._head))) != DONE:
            self._check()
            n_clusters, n_fresh = self._n_clusters, counts.n_fresh + POOL
            if ended == NEEDS_SLOTS:
                self._point_beside()
            elif ended == NEEDS_MEMORY:
                self._reach(n_clusters + max(n_fresh, max(counts.n_splits) + 1))
            elif SWEEP.get(self._head, "phase") == SPLITS:
                # What is left of the scan are too few, and are not looked at.
                stop = SCAN.get(self._scan, "stop")
                SCAN.set(self._scan, next=stop)
                SWEEP.set(self._head, weighed=stop)
                self._add(take(POOL))
            else:
                self._add(take(counts.n_fresh))
            self._know_prior(prior._replace(alpha=float(numbers[ALPHA])))
        if law[1] > 0.0:
            # The weights have changed in place.
            self._prior = None
        memory = self._of_sweep
        scales.take(memory["learnt"][:-1], memory["base"], memory["row"])
        n_moves = n_sweeps * counts.n_hamiltonian
        return float(numbers[ALPHA]), float(memory["learnt"][-1]) / n_moves if n_moves else math.nan

    def _point_discrete(self) -> None:
        """Write where the blocks of discrete values are, and what they need."""
        for own, inputs in zip(self._discrete, self._inputs[2:], strict=True):
            DISCRETE.set(own, inputs=inputs, outputs=self._outputs[2])
        self._keep(discrete=np.array(self._discrete, dtype=np.int64).ravel())

    def _check(self) -> None:
        if self._failed[0]:
            for entry in self._entries:
                entry.raise_error()
            raise FloatingPointError("a density of atoms could not be computed")

    @property
    def _n_clusters(self) -> int:
        return SWEEP.get(self._head, "n_clusters")

    @property
    def labels(self) -> np.ndarray:
        """The labels now, 0..K-1 in order of first appearance: (n,)."""
        return self._of_sweep["labels"].copy()

    @property
    def free(self) -> np.ndarray:
        """The atoms now: (K, D)."""
        return self._of_sweep["atoms"][: self._n_clusters].copy()

    @property
    def arguments(self) -> tuple[np.ndarray, np.ndarray]:
        """Atoms, and labels of rows, that the densities were last computed at."""
        memory = self._of_sweep
        return memory["points"][: self._inputs[0][1]], memory["row_labels"]

    def take_counts(self) -> dict[str, int]:
        """Return what has been counted since the last call: rows that moved, splits and merges."""
        counts = dict(zip(COUNTED, self._head[SWEEP.places(*COUNTED)].tolist(), strict=True))
        SWEEP.set(self._head, **dict.fromkeys(COUNTED, 0))
        return counts

    def _point_beside(self) -> None:
        """Have room for another cluster of the collapsed mixtures, and write where their memory is."""
        if self._beside is None:
            SWEEP.set(self._head, beside=0)
            SCAN.set(self._scan, beside=0)
            return
        state = self._beside.roomy()
        calls: dict[str, Any] = {"leave_beside": leave_beside.address, "join_beside": join_beside.address}
        SWEEP.set(self._head, beside=state.address, slots_beside=state.slots, **calls)
        SWEEP.set(self._head, evidence_beside=evidence_beside.address, odds_beside=odds_beside.address)
        calls["weigh_beside"] = weigh_beside.address
        self._weights_beside = np.zeros(state.capacity + 1)
        calls |= {"beside": state.address, "weights_beside": self._weights_beside}
        SCAN.set(self._scan, **calls)

    def _keep(self, **arrays: np.ndarray) -> None:
        """Take arrays as memory of the sweep."""
        for name, array in arrays.items():
            kept = self._of_sweep[name] = np.ascontiguousarray(array)
            SWEEP.set(self._head, **{name: kept})

    def _add(self, free: np.ndarray) -> None:
        """Add fresh atoms to the pool."""
        stop = SCAN.get(self._scan, "stop")
        self._reach(stop + len(free))
        self._of_sweep["pool"][stop : stop + len(free)] = free
        SCAN.set(self._scan, stop=stop + len(free))

    def _know_prior(self, prior: GibbsType) -> None:
        length = min(self._capacity, self._n) + 1
        if len(self._log_new) != length or self._prior is not prior:
            self._prior, self._log_new = prior, log_seats_new(prior, length)
            SCAN.set(self._scan, log_new=self._log_new)
            SWEEP.set(self._head, log_new=self._log_new, n_log_new=length)

    def _reach(self, n_atoms: int) -> None:
        """Have room for some number of atoms."""
        if n_atoms > self._capacity:
            self._grow(max(n_atoms, 2 * self._capacity))

    def _grow(self, capacity: int) -> None:
        """Get memory for more atoms, with what was in the smaller one."""
        before = self._of_sweep, self._of_scan
        n, d, c, n_rows = self._n, self._d, capacity, len(self._of_row)
        whole, real = np.int64, np.float64
        blocks_of_rows = c if n < n_rows else 0
        ints: dict[str, Shape] = {"row_labels": n_rows, "labels": n, "halves": n, "names": c + 2, "members": n}
        floats: dict[str, Shape] = {
            "pool": (c, d),
            "densities": (c, n),
            "row_densities": (blocks_of_rows, n_rows),
            "atoms": (c + 2, d),
            "sizes": c + 2,
            "moved": (c + 2, d),
            "momentum": (c + 2, d),
            "scale": (c + 2, d),
            "start": c + 2,
            "energy": c + 2,
            "modes": (3, d),
            "precisions": (3, d, d),
            "drawn": (3, d),
            "factor": (d, d),
            "steps": d,
            "gradient": (c + 2, d),
            "hessian": (c + 2, d, d),
            "vectors": (2, d, d),
            "two_rows": (2, n),
            "points": (c + 2, d),
            "values": c + 2,
            "gradients": (c + 2, d),
            "jacobians": c + 2,
            "evidence": 1,
            "odds": n,
        }
        self._of_sweep = {name: np.zeros(shape, dtype=whole) for name, shape in ints.items()}
        self._of_sweep |= {name: np.zeros(shape, dtype=real) for name, shape in floats.items()}
        of_scan_ints: dict[str, Shape] = {
            "known_slots": c,
            "places": c,
            "active": c,
            "auxiliary": self._m,
            "slots_beside": c,
        }
        self._of_scan = {name: np.zeros(shape, dtype=whole) for name, shape in of_scan_ints.items()}
        self._of_scan |= {"sizes": np.zeros(c), "log_weights": np.zeros(c + self._m)}
        for old, new in zip(before, (self._of_sweep, self._of_scan), strict=True):
            for name, array in old.items():
                if name in new:
                    new[name][: len(array)] = array
                else:
                    new[name] = array
        self._capacity = capacity
        SWEEP.set(self._head, capacity=capacity)
        self._connect()

    def _connect(self) -> None:
        """Write the addresses of the memory into the blocks."""
        memory, rows = self._of_sweep, self._rows
        self._failed = np.zeros(1, dtype=np.int64)
        self._outputs = [
            np.array([address_of(memory[name]) for name in names], dtype=np.int64)
            for names in (("values", "gradients", "jacobians"), ("two_rows",), ("values",))
        ]
        others = {"weights": rows.weights, "known": rows.known, "of_row": self._of_row, "scan": self._scan}
        others |= {"failed": self._failed, "density_outputs": self._outputs[0], "rows_outputs": self._outputs[1]}
        arrays = {name: array for name, array in memory.items() if name != "jacobians"} | others
        SWEEP.set(self._head, **arrays)
        of_scan = self._of_scan | {name: memory[name] for name in ("labels", "densities")}
        of_scan |= {"weights": rows.weights, "known": rows.known}
        SCAN.set(self._scan, **of_scan)
        if self._inputs:
            self._inputs[0][0] = address_of(memory["points"])
            self._inputs[0][3] = address_of(memory["row_labels"])
            for inputs in self._inputs[2:]:
                inputs[0] = address_of(memory["points"])
            self._point_discrete()


def _bounds_of(dtype: np.dtype) -> tuple[float, float]:
    """Return the least and the largest whole number of a type that double precision has too."""
    if dtype == np.dtype(bool):
        return 0.0, 1.0
    return max(np.iinfo(dtype).min, -(2.0**53)), min(np.iinfo(dtype).max, 2.0**53)
