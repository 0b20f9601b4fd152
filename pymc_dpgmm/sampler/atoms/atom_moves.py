"""Moves of the atoms of clusters: Hamiltonian dynamics, discrete values, splits and merges.

They know the model by its densities only: :class:`Densities`. Atoms are independent given the labels, so that the
atoms of all clusters move at once and each is accepted by itself.
"""

import math
from typing import NamedTuple, Protocol

import numpy as np

from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import GibbsType, log_split
from pymc_dpgmm.sampler.atoms.beside import Beside

Atoms = list[np.ndarray]


class Densities(Protocol):
    """Densities at a point of a model: see :class:`pymc_dpgmm.integration.process_density.AtomDensities`."""

    @property
    def n_free(self) -> int:
        """Number of continuous values of an atom, D."""

    def by_row(self, atoms: Atoms) -> np.ndarray:
        """Return the log density of each row under each atom: (K, n)."""

    def base(self, atoms: Atoms) -> np.ndarray:
        """Return the log density of the base at atoms: (K,)."""

    def by_cluster(self, atoms: Atoms, labels: np.ndarray) -> np.ndarray:
        """Return the log density of each atom and of the rows in its cluster: (K,)."""

    def gradient(self, free: np.ndarray, fixed: Atoms, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the same for atoms in their free form, with its gradient: (K,) and (K, D)."""

    def to_free(self, atoms: Atoms) -> np.ndarray:
        """Return the free form of atoms: (K, D)."""

    def from_free(self, free: np.ndarray, fixed: Atoms) -> Atoms:
        """Return atoms of a free form, given their discrete values."""

    def fixed(self, atoms: Atoms) -> Atoms:
        """Return the discrete values of atoms."""


# Target of the acceptance of Hamiltonian moves, and constants of its adaptation (Hoffman and Gelman 2014, 3.2).
TARGET = 0.8
GAMMA, T0, KAPPA = 0.05, 10.0, 0.75
MOST_LEAPFROGS = 3
# How fast estimates of the scale forget, while tuning, and the draws from the base that each is made with.
FORGETS = 0.05
N_BASE = 32


# Splits and merges are tried in so many times the share of draws in which one was accepted while tuning, and in
# this share at the least: where none is accepted, they cost time that other moves use better.
SHARE_TRIED, LEAST_TRIED = 2.0, 0.03


class Scales:
    """Step size and scales of Hamiltonian moves, pooled over clusters, and what else is learnt while tuning.

    The precision of a cluster's posterior is taken to be that of the base plus n_k times that of a row, each
    estimated while tuning and fixed from then on.

    Parameters
    ----------
    n_free : int
        Number D of continuous values of an atom.
    """

    def __init__(self, n_free: int) -> None:
        self.base = np.ones(n_free)
        self.row = np.ones(n_free)
        self.step = 1.0
        self.n_learnt = 0
        self.tried = 1.0
        self._accepted = 1.0
        self._mean_error, self._log_step_mean, self._center = 0.0, 0.0, math.log(2.0)
        self._last = 0

    def precision(self, sizes: np.ndarray) -> np.ndarray:
        """Return the precision of the clusters' atoms: (K, D)."""
        return self.base + sizes[:, None] * self.row

    def numbers(self) -> np.ndarray:
        """Return the numbers that are learnt beside ``base`` and ``row``."""
        return np.array(
            [self.step, self.n_learnt, self._mean_error, self._log_step_mean, self._last, self._accepted]
        )

    def take(self, numbers: np.ndarray, base: np.ndarray, row: np.ndarray) -> None:
        """Take what was learnt elsewhere."""
        self.step, n_learnt, self._mean_error, self._log_step_mean, last, self._accepted = numbers.tolist()
        self.n_learnt, self._last = int(n_learnt), int(last)
        self.base, self.row = base, row

    def learn_scales(
        self, density: Densities, free: np.ndarray, fixed: Atoms, labels: np.ndarray, base: np.ndarray
    ) -> None:
        """Learn from the curvature of the density at some atoms, one direction at a time.

        Parameters
        ----------
        density : Densities
        free, fixed : (K, D) array, list of arrays
            The atoms.
        labels : (n,) int64 array
        base : (m, D) array
            Draws from the base, in free form.
        """
        forgets = max(FORGETS, 1.0 / (1.0 + self.n_learnt))
        self.n_learnt += 1
        base = base[np.isfinite(base).all(axis=1)]
        if len(base) > 1:
            spread = 1.0 / np.maximum(np.var(base, axis=0), 1e-12)
            self.base += forgets * (spread - self.base)
        sizes = np.bincount(labels, minlength=len(free)).astype(np.float64)
        d = self._last = (self._last + 1) % free.shape[1]
        shift = np.zeros_like(free)
        shift[:, d] = 0.1 / np.sqrt(self.precision(sizes)[:, d])
        above, below = (density.gradient(free + sign * shift, fixed, labels)[1][:, d] for sign in (1.0, -1.0))
        curvature = (below - above) / (2.0 * shift[:, d])
        good = np.isfinite(curvature)
        if np.any(good):
            found = np.sum(np.maximum(curvature[good] - self.base[d], 0.0)) / np.sum(sizes[good])
            own = max(FORGETS, 1.0 / (1.0 + self.n_learnt / len(self.row)))
            self.row[d] += own * (max(found, 1e-12) - self.row[d])

    def learn_step(self, accepted: float) -> None:
        """Learn from the mean acceptance of a move, by dual averaging."""
        t = self.n_learnt
        rate = 1.0 / (t + T0)
        self._mean_error = (1.0 - rate) * self._mean_error + rate * (TARGET - accepted)
        log_step = self._center - math.sqrt(t) / GAMMA * self._mean_error
        log_step = min(max(log_step, -10.0), 1.0)
        weight = t**-KAPPA if t else 1.0
        self._log_step_mean = weight * log_step + (1.0 - weight) * self._log_step_mean
        self.step = math.exp(log_step)

    def learn_tried(self, accepted: bool) -> None:
        """Learn from whether a split or merge was accepted."""
        self._accepted += FORGETS * (accepted - self._accepted)

    def settle(self) -> None:
        """Fix the step size, and how often splits and merges are tried, at the end of tuning."""
        self.tried = min(max(SHARE_TRIED * self._accepted, LEAST_TRIED), 1.0)
        if self.n_learnt:
            self.step = math.exp(self._log_step_mean)


def move_atoms(
    rng: np.random.Generator,
    density: Densities,
    atoms: Atoms,
    labels: np.ndarray,
    scales: Scales,
) -> tuple[Atoms, float]:
    """Move the continuous values of all atoms by Hamiltonian dynamics (Neal 2011).

    Returns
    -------
    atoms : list of arrays (K, ...)
    accepted : float
        Mean acceptance.
    """
    fixed, free = density.fixed(atoms), density.to_free(atoms)
    sizes = np.bincount(labels, minlength=len(free)).astype(np.float64)
    scale = 1.0 / np.sqrt(scales.precision(sizes))
    value, gradient = density.gradient(free, fixed, labels)
    momentum = rng.standard_normal(free.shape)
    step = scales.step * (0.7 + 0.6 * rng.random())
    n_leapfrogs = 1 + int(MOST_LEAPFROGS * rng.random())
    moved, kinetic = free, 0.5 * np.sum(momentum**2, axis=1)
    new_value, new_gradient = value, gradient
    for _ in range(n_leapfrogs):
        momentum = momentum + 0.5 * step * scale * new_gradient
        moved = moved + step * scale * momentum
        new_value, new_gradient = density.gradient(moved, fixed, labels)
        momentum = momentum + 0.5 * step * scale * new_gradient
    change = new_value - value + kinetic - 0.5 * np.sum(momentum**2, axis=1)
    # An infinite density is that of an atom that has been rounded to a bound of its support.
    ratio = np.exp(np.minimum(np.where(np.isfinite(new_value), change, -np.inf), 0.0))
    ratio = np.where(np.isnan(ratio), 0.0, ratio)
    accepted = rng.random(len(free)) < ratio
    if np.any(accepted):
        new = density.from_free(moved, fixed)
        atoms = [_where(accepted, own, old) for own, old in zip(new, atoms, strict=True)]
    return atoms, float(np.mean(ratio))


def _where(chosen: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(chosen.reshape(-1, *[1] * (old.ndim - 1)), new, old)


def move_discrete(
    rng: np.random.Generator, density: Densities, atoms: Atoms, position: int, labels: np.ndarray
) -> Atoms:
    """Move the discrete values of one of the parameters, all clusters at once, by Metropolis steps.

    One entry of each atom goes up or down by at least k with probability 1 / k, which reaches near and far values.
    """
    old = atoms[position]
    proposed = old.reshape(len(old), -1).astype(np.int64)
    columns = rng.integers(proposed.shape[1], size=len(old))
    steps = (1.0 / (1.0 - rng.random(len(old)))).clip(max=1e6).astype(np.int64) * rng.choice(
        [-1, 1], size=len(old)
    )
    proposed[np.arange(len(old)), columns] += steps
    values = proposed.reshape(old.shape).astype(old.dtype)
    # The likelihood may index something by values that the base has, and by no others.
    values = _where(density.base([*atoms[:position], values, *atoms[position + 1 :]]) > -np.inf, values, old)
    new = [*atoms[:position], values, *atoms[position + 1 :]]
    change = density.by_cluster(new, labels) - density.by_cluster(atoms, labels)
    accepted = np.log(rng.random(len(old))) < np.where(np.isnan(change), -np.inf, change)
    return [*atoms[:position], _where(accepted, values, old), *atoms[position + 1 :]]


# Rounds in which a launch state divides rows between two atoms, and the most Newton steps to a mode after them.
N_ROUNDS = 3
N_NEWTON = 3
# Number of draws from the base among which splits and merges choose their first atoms.
POOL = 16
# Log densities that differ by less than this share of one of them differ by rounding only.
TIED = 1e-9
# Precisions have no eigenvalue below this times the base's.
LEAST_EIGENVALUE = 0.3
# Degrees of freedom of proposals around a mode.
FREEDOM = 6.0


class Launch(NamedTuple):
    """A proposal for atoms: t distributions with modes (K, D) and precisions (K, D, D)."""

    modes: np.ndarray
    precisions: np.ndarray

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw atoms: (K, D)."""
        factors = np.linalg.cholesky(self.precisions).transpose(0, 2, 1)
        stretch = np.sqrt(FREEDOM / rng.chisquare(FREEDOM, size=len(self.modes)))
        normal = np.linalg.solve(factors, rng.standard_normal((*self.modes.shape, 1)))[:, :, 0]
        return self.modes + stretch[:, None] * normal

    def log_density(self, free: np.ndarray) -> float:
        """Return the log density of atoms."""
        d = self.modes.shape[1]
        away = free - self.modes
        distances = np.einsum("ki,kij,kj->k", away, self.precisions, away)
        total = 0.5 * np.linalg.slogdet(self.precisions)[1].sum()
        total -= 0.5 * (FREEDOM + d) * np.log1p(distances / FREEDOM).sum()
        constant = math.lgamma(0.5 * (FREEDOM + d)) - math.lgamma(0.5 * FREEDOM)
        return float(total + len(free) * (constant - 0.5 * d * math.log(FREEDOM * math.pi)))


class Moved(NamedTuple):
    """What a split or merge move ends with.

    Parameters
    ----------
    labels : (n,) int64 array
        0..K-1, in no order.
    free : (K, D) float64 array
    is_split : bool
        Whether a split was tried; else a merge.
    accepted : bool
    rows : int
        Rows in the smaller of the two clusters.
    """

    labels: np.ndarray
    free: np.ndarray
    is_split: bool
    accepted: bool
    rows: int


def split_or_merge(
    rng: np.random.Generator,
    density: Densities,
    prior: GibbsType,
    weights: np.ndarray,
    known: np.ndarray,
    labels: np.ndarray,
    free: np.ndarray,
    scales: Scales,
    pool: np.ndarray,
    pool_rows: np.ndarray,
    beside: Beside | None = None,
) -> Moved:
    """Split the cluster of two rows, or merge their two clusters (Jain and Neal 2007, with proposals of our own).

    Everything that a proposal is made from, the *launch state*, depends on the pair, on the rows of its clusters
    together, and on random numbers of its own; never on how these rows are divided now, or on their atoms. It
    consists of atoms from the pool that suit the two rows, the rows divided between them, and Newton steps towards
    the modes of the two atoms, and of one atom for all rows. From there atoms are drawn around the modes, and rows
    allocated given the atoms; the ratio of acceptance has the densities of these draws.

    Parameters
    ----------
    rng, density
    prior : GibbsType
    weights, known : (n,) float64, (n,) int64 arrays
        See :class:`pymc_dpgmm.sampler.atoms.auxiliary.Rows`.
    labels : (n,) int64 array
        0..K-1.
    free : (K, D) float64 array
        The atoms, all of them continuous.
    scales : Scales
    pool : (m, D) float64 array
        Draws from the base, in free form, that the labels and atoms have not been chosen among.
    pool_rows : (m, n) float64 array
        Log density of the rows under them.
    beside : Beside, optional
        Collapsed mixtures on the same labels, which they have before and after.

    Returns
    -------
    Moved
    """
    n, n_clusters = len(labels), len(free)
    i, j = _pair(rng, n)
    one, other = labels[i], labels[j]
    is_split = bool(one == other)
    inside = (labels == one) | (labels == other)
    inside_rows = np.flatnonzero(inside)
    nothing = Moved(labels, free, is_split, False, 0)
    if not is_split and np.any(known[labels == one]) and np.any(known[labels == other]):
        return nothing
    found = _launch(density, scales, inside, i, j, pool, pool_rows, beside)
    if found is None:
        return nothing
    halves, whole, share, of_beside = found
    between = inside_rows[(inside_rows != i) & (inside_rows != j)]
    if is_split:
        atoms = halves.draw(rng)
        odds = _odds(density, atoms, between, share, of_beside)
        left = rng.random(len(between)) < odds
    else:
        atoms = free[[one, other]]
        odds = _odds(density, atoms, between, share, of_beside)
        left = labels[between] == one
    if np.any(np.isnan(odds)):
        return nothing
    log_allocated = float(np.sum(np.log(np.where(left, odds, 1.0 - odds))))
    own = np.full(n, 2, dtype=np.int64)
    own[i], own[j] = 0, 1
    own[between] = np.where(left, 0, 1)
    together = np.where(inside, 0, 1)
    merged = free[[one]] if is_split else whole.draw(rng)
    size = [float(weights[own == half].sum()) for half in (0, 1)]
    fewest = int(min(size))
    two = density.gradient(np.vstack([atoms, atoms[:1]]), [], own)[0][:2]
    single = density.gradient(np.vstack([merged, merged]), [], together)[0][0]
    n_merged = n_clusters if is_split else n_clusters - 1
    ratio = (
        log_split(prior, n_merged, size[0], size[1])
        + float(two.sum())
        - float(single)
        - halves.log_density(atoms)
        - log_allocated
        + whole.log_density(merged)
    )
    if beside is not None:
        ratio += beside.log_split(np.flatnonzero(own == 0), np.flatnonzero(own == 1))
    ratio = ratio if is_split else -ratio
    if not np.all(np.isfinite(two if is_split else single)):
        return nothing._replace(rows=fewest)
    if not math.log(1.0 - rng.random()) < ratio:
        return nothing._replace(rows=fewest)
    labels = labels.copy()
    if is_split:
        labels[own == 1] = n_clusters
        free = np.vstack([free, atoms[1:]])
        free[one] = atoms[0]
    else:
        labels[labels == other] = one
        labels[labels == n_clusters - 1] = other
        free = free.copy()
        free[one] = merged[0]
        if other != n_clusters - 1:
            free[other] = free[-1] if one != n_clusters - 1 else merged[0]
        free = free[:-1]
    if beside is not None:
        beside.begin(canonical_labels(labels)[0], None)
    return Moved(labels, free, is_split, True, fewest)


def _pair(rng: np.random.Generator, n: int) -> tuple[int, int]:
    """Return two different rows of n."""
    i, j = int(rng.random() * n), int(rng.random() * (n - 1))
    return i, j + (j >= i)


def _odds(
    density: Densities, free: np.ndarray, rows: np.ndarray, share: float, of_beside: np.ndarray
) -> np.ndarray:
    """Return the probabilities of rows to be with the first of two atoms."""
    first, second = density.by_row(density.from_free(free, []))[:, rows]
    return 1.0 / (1.0 + np.exp(second - first - of_beside[rows]) * (1.0 - share) / share)


def _launch(
    density: Densities,
    scales: Scales,
    inside: np.ndarray,
    i: int,
    j: int,
    pool: np.ndarray,
    pool_rows: np.ndarray,
    beside: Beside | None,
) -> tuple[Launch, Launch, float, np.ndarray] | None:
    """Return proposals for the atoms of two clusters, and of one, and the share of rows in the first.

    Last are the log odds (n,) of rows to be in the first by their columns in collapsed mixtures.
    """
    rows = np.flatnonzero(inside)
    # The atom that suits one row of the pair, and the one that suits the other, compared with the first.
    first = int(np.argmax(pool_rows[:, i] - 0.5 * pool_rows[:, j]))
    second = int(np.argmax(pool_rows[:, j] - 0.5 * pool_rows[:, i]))
    free = pool[[first, second]]
    labels = np.full(len(inside), 2, dtype=np.int64)
    labels[i], labels[j] = 0, 1
    of_beside = np.zeros(len(inside))
    for _ in range(N_ROUNDS):
        if beside is not None:
            of_beside = beside.odds(rows, labels)
        by_row = density.by_row(density.from_free(free, []))
        one, other = by_row[:, rows]
        left = one + of_beside[rows] > other + TIED * np.abs(one)
        labels[rows] = np.where(left, 0, 1)
        labels[i], labels[j] = 0, 1
        free, precisions = _newton(density, scales, free, labels, 1)
    halves = Launch(free, precisions)
    share = (float(np.sum(labels[rows] == 0)) + 1.0) / (len(rows) + 2.0)
    middle = share * free[:1] + (1.0 - share) * free[1:]
    whole = Launch(*_newton(density, scales, middle, np.where(inside, 0, 1), N_NEWTON))
    if not all(np.all(np.isfinite(part)) for part in (*halves, *whole)):
        return None
    return halves, whole, share, of_beside if beside is None else beside.odds(rows, labels)


def _newton(
    density: Densities, scales: Scales, free: np.ndarray, labels: np.ndarray, n_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Take Newton steps towards the modes of atoms; return them and precisions there, (K, D) and (K, D, D).

    Labels beyond those of the atoms are of rows that do not matter.
    """
    n_atoms, d = free.shape
    sizes = np.bincount(labels, minlength=n_atoms + 1)[:n_atoms].astype(np.float64)
    shift = 1e-3 / np.sqrt(scales.precision(sizes))
    # No step is longer than the base is wide.
    width = 1.0 / np.sqrt(scales.base)
    for step in range(n_steps + 1):
        gradient, hessian = np.zeros((n_atoms, d)), np.empty((n_atoms, d, d))
        # The rows that do not matter are given the first atom.
        points = np.concatenate([free, free[:1]])
        for axis in range(d):
            points[:n_atoms, axis] = free[:, axis] + shift[:, axis]
            above = density.gradient(points, [], labels)[1][:n_atoms]
            points[:n_atoms, axis] = free[:, axis] - shift[:, axis]
            below = density.gradient(points, [], labels)[1][:n_atoms]
            points[:n_atoms, axis] = free[:, axis]
            hessian[:, axis] = (below - above) / (2.0 * shift[:, axis, None])
            gradient += (above + below) / (2.0 * d)
        precision = _positive(hessian, width)
        if step == n_steps:
            break
        move = np.linalg.solve(precision, gradient[:, :, None])[:, :, 0]
        move[~np.isfinite(gradient).all(axis=1)] = 0.0
        longest = np.max(np.abs(move) / width, axis=1, keepdims=True)
        free = free + move / np.maximum(longest, 1.0)
    return free, precision


def _positive(hessian: np.ndarray, width: np.ndarray) -> np.ndarray:
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
