"""The sweeps of ``sampler/atoms`` in Python: the slow twin, number for number."""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.compiled import FLOAT, INTS, NOTHING, address_of, bits_of_generator, c_function
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.partitions.concentration import drawn_concentration
from pymc_dpgmm.partitions.labels import canonical_labels, named_by_appearance
from pymc_dpgmm.partitions.priors import log_seats_new, log_split
from pymc_dpgmm.sampler.atoms.auxiliary import HEAD, let_rows_join, scan_at
from pymc_dpgmm.sampler.atoms.beside import join_beside, leave_beside, odds_beside, weigh_beside
from pymc_dpgmm.sampler.atoms.compiled_sweeps import COUNTED
from pymc_dpgmm.sampler.atoms.scales import FORGETS, N_BASE
from pymc_dpgmm.sampler.atoms.sweep_memory import POOL
from pymc_dpgmm.sampler.atoms.sweep_moves import (
    GAMMA,
    KAPPA,
    LONGEST_STEP,
    MOST_LEAPFROGS,
    N_STEPS,
    T0,
    TARGET,
)
from pymc_dpgmm.sampler.atoms.sweep_splits import FREEDOM, LEAST_EIGENVALUE, N_NEWTON, N_ROUNDS, TIED


@c_function(NOTHING(INTS, FLOAT))
def _scan_rows(head, discount):
    let_rows_join(scan_at(head), discount)


class _Scan(Memory, block=HEAD):
    pass


class Scanned(NamedTuple):
    """The atom of each row, the atoms that have rows, how many rows moved, and densities of unseen atoms."""

    labels: np.ndarray
    chosen: np.ndarray
    n_moved: int
    unseen: np.ndarray


def scan(rng, rows, prior, labels, densities, n_auxiliary, more, beside=None):
    """Run one scan, which asks for the densities of more atoms where it needs them."""
    n, m = len(labels), n_auxiliary
    n_atoms, n_clusters = len(densities), int(labels.max()) + 1
    labels = labels.astype(np.int64)
    sizes = np.zeros(n_atoms)
    sizes[:n_clusters] = np.bincount(labels, weights=rows.weights)
    known_slots = np.zeros(n_atoms, dtype=np.int64)
    known_slots[labels[rows.known > 0]] = 1
    active = np.arange(n_atoms)
    places = np.arange(n_atoms)
    auxiliary = np.arange(n_clusters, n_clusters + m)
    next_double, bit_state = bits_of_generator(rng)
    densities = np.ascontiguousarray(densities, dtype=np.float64)
    row, n_moved, n_active, next_atom = 0, 0, n_clusters, n_clusters + m
    slots_beside = np.zeros(n_atoms, dtype=np.int64)
    if beside is not None:
        slots_beside[labels] = beside.state.slots
    while True:
        state = None if beside is None else beside.roomy()
        weights_beside = np.empty(0 if state is None else state.capacity + 1)
        reach = min(n_atoms, n) + 1
        log_new = log_seats_new(prior, reach)
        log_weights = np.empty(n_atoms + m)
        memory = _Scan(
            next_double=next_double,
            bit_state=bit_state,
            n=n,
            n_auxiliary=m,
            row=row,
            n_moved=n_moved,
            n_active=n_active,
            next=next_atom,
            stop=n_atoms,
            labels=labels,
            weights=rows.weights,
            known=rows.known,
            sizes=sizes,
            known_slots=known_slots,
            places=places,
            densities=densities,
            active=active,
            auxiliary=auxiliary,
            log_new=log_new,
            log_weights=log_weights,
            beside=state,
            slots_beside=slots_beside,
            weights_beside=weights_beside,
            leave_beside=leave_beside,
            weigh_beside=weigh_beside,
            join_beside=join_beside,
        )
        _scan_rows(memory.address, prior.discount)
        row, n_moved, n_active, next_atom = memory.row, memory.n_moved, memory.n_active, memory.next
        if row == n:
            break
        if next_atom < n_atoms:
            # There were too few slots.
            continue
        fresh = more()
        densities = np.concatenate([densities, fresh])
        n_atoms += len(fresh)
        sizes = np.append(sizes, np.zeros(len(fresh)))
        known_slots, active, places, slots_beside = (
            np.append(array, np.zeros(len(fresh), dtype=np.int64))
            for array in (known_slots, active, places, slots_beside)
        )
    canonical, first = named_by_appearance(labels)
    return Scanned(canonical, labels[first], n_moved, densities[next_atom:])


class Launch(NamedTuple):
    """A proposal for atoms: t distributions with modes (K, D) and precisions (K, D, D)."""

    modes: np.ndarray
    precisions: np.ndarray

    def draw(self, rng):
        factors = np.linalg.cholesky(self.precisions).transpose(0, 2, 1)
        stretch = np.sqrt(FREEDOM / rng.chisquare(FREEDOM, size=len(self.modes)))
        normal = np.linalg.solve(factors, rng.standard_normal((*self.modes.shape, 1)))[:, :, 0]
        return self.modes + stretch[:, None] * normal

    def log_density(self, free):
        d = self.modes.shape[1]
        away = free - self.modes
        distances = np.einsum("ki,kij,kj->k", away, self.precisions, away)
        total = 0.5 * np.linalg.slogdet(self.precisions)[1].sum()
        total -= 0.5 * (FREEDOM + d) * np.log1p(distances / FREEDOM).sum()
        constant = math.lgamma(0.5 * (FREEDOM + d)) - math.lgamma(0.5 * FREEDOM)
        return float(total + len(free) * (constant - 0.5 * d * math.log(FREEDOM * math.pi)))

    def is_finite(self):
        return all(np.all(np.isfinite(part)) for part in self)


def positive(hessian, width):
    """Return precisions near Hessians (K, D, D), none of whose eigenvalues is much below the base's."""
    scale = np.outer(width, width)
    unknown = ~np.isfinite(hessian).all(axis=(1, 2))
    if np.any(unknown):
        hessian = np.where(unknown[:, None, None], np.diag(1.0 / width**2), hessian)
    scaled = 0.5 * (hessian + hessian.transpose(0, 2, 1)) * scale
    if len(width) == 1:
        return np.maximum(np.abs(scaled), LEAST_EIGENVALUE) / scale
    values, vectors = np.linalg.eigh(scaled)
    fixed = np.einsum("kij,kj,klj->kil", vectors, np.maximum(np.abs(values), LEAST_EIGENVALUE), vectors)
    return fixed / scale


class SweepsInPython:
    """What ``CompiledSweeps`` does, for a target of a step."""

    def __init__(self, target):
        self._target, self._density = target, target.densities
        self._rows = target.rows

    def begin(self, rng, labels, free, n_auxiliary, beside):
        self._rng, self._m, self._beside = rng, n_auxiliary, beside
        self.labels, self.free = labels.copy(), free.copy()
        self._counts = dict.fromkeys(COUNTED, 0)
        return self

    def take_counts(self):
        return self._counts

    def sweep(self, prior, law, n_rows, take, counts, scales, is_tuning):
        n_taken = counts.n_taken(is_tuning)
        ahead, at = take(n_taken) if n_taken else np.empty((0, 0)), 0

        def next_of(n):
            nonlocal at
            at += n
            return ahead[at - n : at]

        accepted = []
        for n_splits in counts.n_splits:
            if law[1] > 0.0:
                bits = bits_of_generator(self._rng)
                alpha = drawn_concentration(*bits, prior.alpha, len(self.free), float(n_rows), *law)
                prior = prior._replace(alpha=alpha)
            of_base = [next_of(N_BASE) for _ in range(counts.n_hamiltonian if is_tuning else 0)]
            fresh, fresh_rows = np.empty((0, 0)), np.empty((0, 0))
            for _ in range(counts.n_scans):
                fresh, fresh_rows = self._scan(
                    prior, take, counts, next_of(counts.n_fresh + POOL * (n_splits > 0))
                )
            for move in range(counts.n_hamiltonian):
                accepted.append(self._move(scales))
                if is_tuning:
                    self._learn_scales(scales, of_base[move])
                    learn_step(scales, accepted[-1])
            for position in self._density.discrete:
                for _ in range(N_STEPS):
                    self._move_discrete(position)
            for _ in range(n_splits):
                if len(fresh_rows) < POOL:
                    fresh = take(POOL)
                    fresh_rows = self._by_row(fresh)
                is_split, is_accepted = self._split_or_merge(prior, scales, fresh[:POOL], fresh_rows[:POOL])
                kind = "splits" if is_split else "merges"
                self._counts[f"{kind}_tried"] += 1
                self._counts[kind] += is_accepted
                if is_tuning:
                    scales._accepted += FORGETS * (is_accepted - scales._accepted)
                fresh_rows = np.empty((0, 0))
        return prior.alpha, float(np.mean(accepted)) if accepted else math.nan

    def _by_row(self, free):
        """The log density of each block under each atom."""
        rows, of_row = self._density.by_free_row(free), self._target.of_row
        if of_row is None:
            return rows
        n = self._target.n_blocks
        return np.array([np.bincount(of_row, weights=row, minlength=n) for row in rows])

    def _gradient(self, free, labels):
        return self._density.gradient(free, self._target.labels_of_rows(labels))

    def _scan(self, prior, take, counts, fresh):
        """Scan the labels; return the atoms that the scan has not looked at, and their densities."""
        pool = np.concatenate([self.free, fresh])

        def more():
            nonlocal pool
            added = take(counts.n_fresh)
            pool = np.concatenate([pool, added])
            return self._by_row(added)

        rows = self._by_row(pool)
        scanned = scan(self._rng, self._rows, prior, self.labels, rows, self._m, more, self._beside)
        self.labels, self.free = scanned.labels, pool[scanned.chosen]
        self._counts["n_moved"] += scanned.n_moved
        return pool[len(pool) - len(scanned.unseen) :], scanned.unseen

    def _precision(self, scales, labels, n):
        sizes = np.bincount(labels, minlength=n)[:n].astype(np.float64)
        return scales.base + sizes[:, None] * scales.row

    def _move(self, scales):
        """Move the continuous values of all atoms; return the mean acceptance."""
        free = self.free
        scale = 1.0 / np.sqrt(self._precision(scales, self.labels, len(free)))
        value, gradient = self._gradient(free, self.labels)
        momentum = self._rng.standard_normal(free.shape)
        step = scales.step * (0.7 + 0.6 * self._rng.random())
        n_leapfrogs = 1 + int(MOST_LEAPFROGS * self._rng.random())
        moved, kinetic = free, 0.5 * np.sum(momentum**2, axis=1)
        new_value = value
        for _ in range(n_leapfrogs):
            momentum = momentum + 0.5 * step * scale * gradient
            moved = moved + step * scale * momentum
            new_value, gradient = self._gradient(moved, self.labels)
            momentum = momentum + 0.5 * step * scale * gradient
        change = new_value - value + kinetic - 0.5 * np.sum(momentum**2, axis=1)
        # An infinite density is that of an atom that has been rounded to a bound of its support.
        ratio = np.exp(np.minimum(np.where(np.isfinite(new_value), change, -np.inf), 0.0))
        ratio = np.where(np.isnan(ratio), 0.0, ratio)
        accepted = self._rng.random(len(free)) < ratio
        self.free = np.where(accepted[:, None], moved, free)
        return float(np.mean(ratio))

    def _learn_scales(self, scales, base):
        free, n = self.free, self._density.n_continuous
        forgets = max(FORGETS, 1.0 / (1.0 + scales.n_learnt))
        scales.n_learnt += 1
        base = base[np.isfinite(base).all(axis=1), :n]
        if len(base) > 1:
            scales.base[:n] += forgets * (1.0 / np.maximum(np.var(base, axis=0), 1e-12) - scales.base[:n])
        sizes = np.bincount(self.labels, minlength=len(free)).astype(np.float64)
        d = scales._last = (scales._last + 1) % n
        shift = np.zeros_like(free)
        shift[:, d] = 0.1 / np.sqrt(self._precision(scales, self.labels, len(free))[:, d])
        above, below = (self._gradient(free + sign * shift, self.labels)[1][:, d] for sign in (1.0, -1.0))
        curvature = (below - above) / (2.0 * shift[:, d])
        good = np.isfinite(curvature)
        if np.any(good):
            found = np.sum(np.maximum(curvature[good] - scales.base[d], 0.0)) / np.sum(sizes[good])
            own = max(FORGETS, 1.0 / (1.0 + scales.n_learnt / n))
            scales.row[d] += own * (max(found, 1e-12) - scales.row[d])

    def _move_discrete(self, position):
        """Move the discrete values of one of the parameters, all clusters at once, by a Metropolis step."""
        density, rng = self._density, self._rng
        columns, dtype = density.columns[position], np.dtype(density.dtypes[position])
        moved = self.free.copy()
        for own in moved:
            column = columns.start + int(rng.random() * (columns.stop - columns.start))
            length = math.floor(min(1.0 / (1.0 - rng.random()), LONGEST_STEP))
            value = own[column] + (length if rng.random() < 0.5 else -length)
            bounds = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            if bounds[0] <= value <= bounds[1]:
                own[column] = value
        possible = density.base_of(position, moved) > -np.inf
        moved = np.where(possible[:, None], moved, self.free)
        change = self._gradient(moved, self.labels)[0] - self._gradient(self.free, self.labels)[0]
        accepted = np.log(1.0 - rng.random(len(moved))) < np.where(np.isnan(change), -np.inf, change)
        self.free = np.where(accepted[:, None], moved, self.free)

    def _split_or_merge(self, prior, scales, pool, pool_rows):
        """Try a split or a merge; return whether it was a split, and whether it was accepted."""
        rng, labels, atoms, n, n_clusters = self._rng, self.labels, self.free, len(self.labels), len(self.free)
        i, j = int(rng.random() * n), int(rng.random() * (n - 1))
        j += j >= i
        one, other = labels[i], labels[j]
        is_split = bool(one == other)
        inside = (labels == one) | (labels == other)
        rows, known = np.flatnonzero(inside), self._rows.known
        if not is_split and np.any(known[labels == one]) and np.any(known[labels == other]):
            return is_split, False
        found = self._launch(scales, inside, i, j, pool, pool_rows)
        if found is None:
            return is_split, False
        halves, whole, share, of_beside = found
        between = rows[(rows != i) & (rows != j)]
        pair = halves.draw(rng) if is_split else atoms[[one, other]]
        first, second = self._by_row(pair)[:, between]
        odds = 1.0 / (1.0 + np.exp(second - first - of_beside[between]) * (1.0 - share) / share)
        left = rng.random(len(between)) < odds if is_split else labels[between] == one
        if np.any(np.isnan(odds)):
            return is_split, False
        log_allocated = float(np.sum(np.log(np.where(left, odds, 1.0 - odds))))
        own = np.full(n, 2, dtype=np.int64)
        own[i], own[j] = 0, 1
        own[between] = np.where(left, 0, 1)
        merged = atoms[[one]] if is_split else whole.draw(rng)
        size = [float(self._rows.weights[own == half].sum()) for half in (0, 1)]
        two = self._gradient(np.vstack([pair, pair[:1]]), own)[0][:2]
        single = self._gradient(np.vstack([merged, merged]), np.where(inside, 0, 1))[0][0]
        n_merged = n_clusters if is_split else n_clusters - 1
        ratio = log_split(prior, n_merged, *size) + float(two.sum()) - float(single)
        ratio += whole.log_density(merged) - halves.log_density(pair) - log_allocated
        if self._beside is not None:
            parts = [np.flatnonzero(own == 0), np.flatnonzero(own == 1), rows]
            evidence = [self._beside.log_evidence(part) for part in parts]
            ratio += evidence[0] + evidence[1] - evidence[2]
        if not np.all(np.isfinite(two if is_split else single)):
            return is_split, False
        if not math.log(1.0 - rng.random()) < (ratio if is_split else -ratio):
            return is_split, False
        labels, places = labels.copy(), list(range(n_clusters))
        if is_split:
            labels[own == 1] = n_clusters
            atoms = np.vstack([atoms, pair])
            places[one] = n_clusters
            places.append(n_clusters + 1)
        else:
            labels[labels == other] = one
            labels[labels == n_clusters - 1] = other
            atoms = np.vstack([atoms, merged])
            places[one] = n_clusters
            places[other] = places[-1]
            places.pop()
        if self._beside is not None:
            self._beside.begin(canonical_labels(labels)[0], None)
        self.labels, first = named_by_appearance(labels)
        self.free = atoms[places][labels[first]]
        return is_split, True

    def _odds_beside(self, rows, sides):
        """Log odds (n,) of rows to be on side 0 by their columns in collapsed mixtures."""
        found, members = np.zeros(len(sides)), np.ascontiguousarray(rows, dtype=np.int64)
        if self._beside is not None:
            state = self._beside.roomy()
            odds_beside(
                state.address, address_of(members), len(members), address_of(sides.copy()), address_of(found)
            )
        return found

    def _launch(self, scales, inside, i, j, pool, pool_rows):
        """Return proposals for two clusters and for one, the share of the first, and log odds beside."""
        rows = np.flatnonzero(inside)
        first = int(np.argmax(pool_rows[:, i] - 0.5 * pool_rows[:, j]))
        second = int(np.argmax(pool_rows[:, j] - 0.5 * pool_rows[:, i]))
        free = pool[[first, second]]
        labels = np.full(len(inside), 2, dtype=np.int64)
        labels[i], labels[j] = 0, 1
        for _ in range(N_ROUNDS):
            of_beside = self._odds_beside(rows, labels)
            one, other = self._by_row(free)[:, rows]
            labels[rows] = np.where(one + of_beside[rows] > other + TIED * np.abs(one), 0, 1)
            labels[i], labels[j] = 0, 1
            free, precisions = self._newton(scales, free, labels, 1)
        halves = Launch(free, precisions)
        share = (float(np.sum(labels[rows] == 0)) + 1.0) / (len(rows) + 2.0)
        middle = share * free[:1] + (1.0 - share) * free[1:]
        whole = Launch(*self._newton(scales, middle, np.where(inside, 0, 1), N_NEWTON))
        if not halves.is_finite() or not whole.is_finite():
            return None
        return halves, whole, share, self._odds_beside(rows, labels)

    def _newton(self, scales, free, labels, n_steps):
        """Take Newton steps towards the modes; return them and precisions, (K, D) and (K, D, D)."""
        n_atoms, d = free.shape
        shift = 1e-3 / np.sqrt(self._precision(scales, labels, n_atoms))
        # No step is longer than the base is wide.
        width = 1.0 / np.sqrt(scales.base)
        for step in range(n_steps + 1):
            gradient, hessian = np.zeros((n_atoms, d)), np.empty((n_atoms, d, d))
            # The rows that do not matter are given the first atom.
            points = np.concatenate([free, free[:1]])
            for axis in range(d):
                points[:n_atoms, axis] = free[:, axis] + shift[:, axis]
                above = self._gradient(points, labels)[1][:n_atoms]
                points[:n_atoms, axis] = free[:, axis] - shift[:, axis]
                below = self._gradient(points, labels)[1][:n_atoms]
                points[:n_atoms, axis] = free[:, axis]
                hessian[:, axis] = (below - above) / (2.0 * shift[:, axis, None])
                gradient += (above + below) / (2.0 * d)
            precision = positive(hessian, width)
            if step == n_steps:
                break
            move = np.linalg.solve(precision, gradient[:, :, None])[:, :, 0]
            move[~np.isfinite(gradient).all(axis=1)] = 0.0
            longest = np.max(np.abs(move) / width, axis=1, keepdims=True)
            free = free + move / np.maximum(longest, 1.0)
        return free, precision


def learn_step(scales, accepted):
    """Learn from the mean acceptance of a move, by dual averaging."""
    t = scales.n_learnt
    rate = 1.0 / (t + T0)
    scales._mean_error = (1.0 - rate) * scales._mean_error + rate * (TARGET - accepted)
    log_step = min(max(math.log(2.0) - math.sqrt(t) / GAMMA * scales._mean_error, -10.0), 1.0)
    weight = t**-KAPPA if t else 1.0
    scales._log_step_mean = weight * log_step + (1.0 - weight) * scales._log_step_mean
    scales.step = math.exp(log_step)
