"""Moves of the continuous values of clusters' atoms, by Hamiltonian dynamics.

All moves of atoms know the model by its densities only: :class:`Densities`. Atoms are independent given the
labels, so that the atoms of all clusters move at once and each is accepted by itself.
"""

import math
from typing import Protocol

import numpy as np

Atoms = list[np.ndarray]


class Densities(Protocol):
    """Densities at a point of a model: see :class:`pymc_dpgmm.integration.process_density.AtomDensities`."""

    @property
    def n_free(self) -> int:
        """Number of continuous values of an atom, D."""

    def by_row(self, atoms: Atoms) -> np.ndarray:
        """Return the log density of each row under each atom: (K, n)."""

    @property
    def discrete(self) -> list[int]:
        """Positions of the parameters that are discrete."""

    def base(self, atoms: Atoms) -> np.ndarray:
        """Return the log density of the base at atoms: (K,)."""

    def base_of(self, position: int, atoms: Atoms) -> np.ndarray:
        """Return the part of one parameter in it, given those that it depends on: (K,)."""

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
# this share at the least: where none is accepted, they cost time that other moves use better. Beside discrete
# values they take longer than all other moves of a sweep.
SHARE_TRIED, LEAST_TRIED, LEAST_TRIED_BESIDE_DISCRETE = 2.0, 0.03, 0.01


class Scales:
    """Step size and scales of Hamiltonian moves, pooled over clusters, and what else is learnt while tuning.

    The precision of a cluster's posterior is taken to be that of the base plus n_k times that of a row, each
    estimated while tuning and fixed from then on.

    Parameters
    ----------
    n_free : int
        Number D of continuous values of an atom.
    are_discrete : bool
        Whether there are discrete values too.
    """

    def __init__(self, n_free: int, are_discrete: bool = False) -> None:
        self.base = np.ones(n_free)
        self.row = np.ones(n_free)
        self.step = 1.0
        self.n_learnt = 0
        self.tried = 1.0
        self._least_tried = LEAST_TRIED_BESIDE_DISCRETE if are_discrete else LEAST_TRIED
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

    @property
    def worth_trying(self) -> float:
        """In which share of sweeps splits and merges are worth their time, by what was accepted while tuning."""
        return min(max(SHARE_TRIED * self._accepted, self._least_tried), 1.0)

    def settle(self) -> None:
        """Fix the step size, and how often splits and merges are tried, at the end of tuning."""
        self.tried = self.worth_trying
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
        atoms = [where_chosen(accepted, own, old) for own, old in zip(new, atoms, strict=True)]
    return atoms, float(np.mean(ratio))


def where_chosen(chosen: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Return the new values (K, ...) of the chosen atoms, and the old ones of the others."""
    return np.where(chosen.reshape(-1, *[1] * (old.ndim - 1)), new, old)
