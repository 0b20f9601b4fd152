"""Splits and merges of clusters that have atoms."""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import GibbsType, log_split
from pymc_dpgmm.sampler.atoms.atom_moves import Densities, Scales
from pymc_dpgmm.sampler.atoms.beside import Beside
from pymc_dpgmm.sampler.atoms.discrete_values import DiscreteProposal
from pymc_dpgmm.sampler.atoms.free_form import FreeForm

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


class Proposal(NamedTuple):
    """A proposal for atoms given rows: their discrete values, and then the continuous ones around a mode.

    Parameters
    ----------
    density : Densities
    scales : Scales
    labels : (n,) int64 array
        The atom of each row; labels beyond those of the atoms are of rows that do not matter.
    known : FreeForm
        Atoms that suit the rows.
    around : Launch
        The continuous values given the discrete ones of these atoms.
    """

    density: Densities
    scales: Scales
    labels: np.ndarray
    known: FreeForm
    around: Launch

    def draw(self, rng: np.random.Generator) -> tuple[FreeForm, float] | None:
        """Draw atoms; return them and their log density, or None where the proposal has no density."""
        fixed, log_p = self.known.fixed, 0.0
        if fixed:
            drawn = [own.draw(rng) for own in self._discrete()]
            if any(own is None for own in drawn):
                return None
            found = [own for own in drawn if own is not None]
            fixed = [np.concatenate(values) for values in zip(*(own for own, _ in found), strict=True)]
            log_p = sum(own for _, own in found)
        around = self._given(fixed)
        if around is None:
            return None
        free = around.draw(rng)
        return FreeForm(free, fixed), log_p + around.log_density(free)

    def log_density(self, atoms: FreeForm) -> float:
        """Return the log density of atoms."""
        parts = [
            own.log_probability([values[[k]] for values in atoms.fixed]) for k, own in enumerate(self._discrete())
        ]
        log_p = float(sum(parts))
        around = self._given(atoms.fixed) if log_p > -np.inf else None
        return -np.inf if around is None else log_p + around.log_density(atoms.free)

    def _discrete(self) -> list[DiscreteProposal]:
        """Return the proposals for the discrete values of each atom, if there are any."""
        of_atoms = range(len(self.known.free)) if self.known.fixed else []
        return [DiscreteProposal(self.density, self.known.take([k]), self.labels == k) for k in of_atoms]

    def _given(self, fixed: list[np.ndarray]) -> Launch | None:
        """Return the proposal for continuous values given discrete ones."""
        if all(np.array_equal(own, known) for own, known in zip(fixed, self.known.fixed, strict=True)):
            return self.around
        form = FreeForm(self.known.free, fixed)
        around = Launch(*_newton(self.density, self.scales, form, self.labels, N_NEWTON))
        return around if _is_finite(around) else None


def _is_finite(around: Launch) -> bool:
    return all(np.all(np.isfinite(part)) for part in around)


class Moved(NamedTuple):
    """What a split or merge move ends with.

    Parameters
    ----------
    labels : (n,) int64 array
        0..K-1, in no order.
    atoms : FreeForm
        K atoms.
    is_split : bool
        Whether a split was tried; else a merge.
    accepted : bool
    """

    labels: np.ndarray
    atoms: FreeForm
    is_split: bool
    accepted: bool


def split_or_merge(
    rng: np.random.Generator,
    density: Densities,
    prior: GibbsType,
    weights: np.ndarray,
    known: np.ndarray,
    labels: np.ndarray,
    atoms: FreeForm,
    scales: Scales,
    pool: FreeForm,
    pool_rows: np.ndarray,
    beside: Beside | None = None,
) -> Moved:
    """Split the cluster of two rows, or merge their two clusters (Jain and Neal 2007, with proposals of our own).

    Everything that a proposal is made from, the *launch state*, depends on the pair, on the rows of its clusters
    together, and on random numbers of its own; never on how these rows are divided now, or on their atoms. It
    consists of atoms from the pool that suit the two rows, the rows divided between them, and steps towards the
    modes of the two atoms, and of one atom for all rows: Newton's of continuous values, and along windows of
    discrete ones. From there atoms are drawn around the modes, and rows allocated given the atoms; the ratio of
    acceptance has the densities of these draws.

    Parameters
    ----------
    rng, density
    prior : GibbsType
    weights, known : (n,) float64, (n,) int64 arrays
        See :class:`pymc_dpgmm.sampler.atoms.auxiliary.Rows`.
    labels : (n,) int64 array
        0..K-1.
    atoms : FreeForm
        The K atoms.
    scales : Scales
    pool : FreeForm
        Draws from the base that the labels and atoms have not been chosen among.
    pool_rows : (m, n) float64 array
        Log density of the rows under them.
    beside : Beside, optional
        Collapsed mixtures on the same labels, which they have before and after.

    Returns
    -------
    Moved
    """
    n, n_clusters = len(labels), len(atoms.free)
    i, j = _pair(rng, n)
    one, other = labels[i], labels[j]
    is_split = bool(one == other)
    inside = (labels == one) | (labels == other)
    inside_rows = np.flatnonzero(inside)
    nothing = Moved(labels, atoms, is_split, False)
    if not is_split and np.any(known[labels == one]) and np.any(known[labels == other]):
        return nothing
    found = _launch(density, scales, inside, i, j, pool, pool_rows, beside)
    if found is None:
        return nothing
    halves, whole, share, of_beside = found
    between = inside_rows[(inside_rows != i) & (inside_rows != j)]
    drawn = halves.draw(rng) if is_split else (atoms.take([one, other]), math.nan)
    if drawn is None:
        return nothing
    pair, log_pair = drawn
    odds = _odds(density, pair, between, share, of_beside)
    left = rng.random(len(between)) < odds if is_split else labels[between] == one
    if np.any(np.isnan(odds)):
        return nothing
    log_allocated = float(np.sum(np.log(np.where(left, odds, 1.0 - odds))))
    own = np.full(n, 2, dtype=np.int64)
    own[i], own[j] = 0, 1
    own[between] = np.where(left, 0, 1)
    drawn = (atoms.take([one]), math.nan) if is_split else whole.draw(rng)
    if drawn is None:
        return nothing
    merged, log_merged = drawn
    if is_split:
        log_merged = whole.log_density(merged)
    else:
        log_pair = halves.log_density(pair)
    size = [float(weights[own == half].sum()) for half in (0, 1)]
    two = _values(density, pair.followed_by(pair.take([0])), own)[:2]
    single = _values(density, merged.followed_by(merged), np.where(inside, 0, 1))[0]
    n_merged = n_clusters if is_split else n_clusters - 1
    ratio = (
        log_split(prior, n_merged, size[0], size[1])
        + float(two.sum())
        - float(single)
        - log_pair
        - log_allocated
        + log_merged
    )
    if beside is not None:
        ratio += beside.log_split(np.flatnonzero(own == 0), np.flatnonzero(own == 1))
    ratio = ratio if is_split else -ratio
    if not np.all(np.isfinite(two if is_split else single)):
        return nothing
    if not math.log(1.0 - rng.random()) < ratio:
        return nothing
    labels, places = labels.copy(), list(range(n_clusters))
    if is_split:
        labels[own == 1] = n_clusters
        atoms = atoms.followed_by(pair)
        places[one] = n_clusters
        places.append(n_clusters + 1)
    else:
        labels[labels == other] = one
        labels[labels == n_clusters - 1] = other
        atoms = atoms.followed_by(merged)
        places[one] = n_clusters
        places[other] = places[-1]
        places.pop()
    if beside is not None:
        beside.begin(canonical_labels(labels)[0], None)
    return Moved(labels, atoms.take(places), is_split, True)


def _values(density: Densities, atoms: FreeForm, labels: np.ndarray) -> np.ndarray:
    """Return the log density of each atom in free form and of its rows."""
    if density.n_free:
        return density.gradient(atoms.free, atoms.fixed, labels)[0]
    return density.by_cluster(density.from_free(*atoms), labels)


def _pair(rng: np.random.Generator, n: int) -> tuple[int, int]:
    """Return two different rows of n."""
    i, j = int(rng.random() * n), int(rng.random() * (n - 1))
    return i, j + (j >= i)


def _odds(
    density: Densities, atoms: FreeForm, rows: np.ndarray, share: float, of_beside: np.ndarray
) -> np.ndarray:
    """Return the probabilities of rows to be with the first of two atoms."""
    first, second = density.by_row(density.from_free(*atoms))[:, rows]
    return 1.0 / (1.0 + np.exp(second - first - of_beside[rows]) * (1.0 - share) / share)


def _launch(
    density: Densities,
    scales: Scales,
    inside: np.ndarray,
    i: int,
    j: int,
    pool: FreeForm,
    pool_rows: np.ndarray,
    beside: Beside | None,
) -> tuple[Proposal, Proposal, float, np.ndarray] | None:
    """Return proposals for the atoms of two clusters, and of one, and the share of rows in the first.

    Last are the log odds (n,) of rows to be in the first by their columns in collapsed mixtures.
    """
    rows = np.flatnonzero(inside)
    # The atom that suits one row of the pair, and the one that suits the other, compared with the first.
    first = int(np.argmax(pool_rows[:, i] - 0.5 * pool_rows[:, j]))
    second = int(np.argmax(pool_rows[:, j] - 0.5 * pool_rows[:, i]))
    atoms = pool.take([first, second])
    labels = np.full(len(inside), 2, dtype=np.int64)
    labels[i], labels[j] = 0, 1
    of_beside = np.zeros(len(inside))
    for _ in range(N_ROUNDS):
        if beside is not None:
            of_beside = beside.odds(rows, labels)
        by_row = density.by_row(density.from_free(*atoms))
        one, other = by_row[:, rows]
        left = one + of_beside[rows] > other + TIED * np.abs(one)
        labels[rows] = np.where(left, 0, 1)
        labels[i], labels[j] = 0, 1
        atoms = _climbed(density, atoms, labels)
        free, precisions = _newton(density, scales, atoms, labels, 1)
        atoms = atoms._replace(free=free)
    halves = Proposal(density, scales, labels, atoms, Launch(free, precisions))
    share = (float(np.sum(labels[rows] == 0)) + 1.0) / (len(rows) + 2.0)
    together = np.where(inside, 0, 1)
    middle = atoms.take([0 if share > 0.5 else 1])._replace(free=share * free[:1] + (1.0 - share) * free[1:])
    middle = _climbed(density, middle, together)
    of_whole = Launch(*_newton(density, scales, middle, together, N_NEWTON))
    whole = Proposal(density, scales, together, middle._replace(free=of_whole.modes), of_whole)
    if not _is_finite(halves.around) or not _is_finite(of_whole):
        return None
    return halves, whole, share, of_beside if beside is None else beside.odds(rows, labels)


def _climbed(density: Densities, atoms: FreeForm, labels: np.ndarray) -> FreeForm:
    """Return atoms whose discrete values suit the rows better."""
    if not atoms.fixed:
        return atoms
    own = [DiscreteProposal(density, atoms.take([k]), labels == k).climbed() for k in range(len(atoms.free))]
    return FreeForm(atoms.free, [np.concatenate(values) for values in zip(*(a.fixed for a in own), strict=True)])


def _newton(
    density: Densities, scales: Scales, atoms: FreeForm, labels: np.ndarray, n_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Take Newton steps towards the modes of continuous values; return them and precisions, (K, D) and (K, D, D).

    Labels beyond those of the atoms are of rows that do not matter.
    """
    free = atoms.free
    n_atoms, d = free.shape
    if d == 0:
        return free, np.empty((n_atoms, 0, 0))
    fixed = [np.concatenate([values, values[:1]]) for values in atoms.fixed]
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
            above = density.gradient(points, fixed, labels)[1][:n_atoms]
            points[:n_atoms, axis] = free[:, axis] - shift[:, axis]
            below = density.gradient(points, fixed, labels)[1][:n_atoms]
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
