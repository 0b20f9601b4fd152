"""Discrete values of atoms: Metropolis steps, and proposals for splits and merges."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.sampler.atoms.atom_moves import Atoms, Densities, where_chosen
from pymc_dpgmm.sampler.atoms.free_form import FreeForm

# A window has each value so near its centre by itself. Beyond, it has so many bins between one distance and its
# double; so many times at first, and so many at most, as long as the density of the last ones is not below the
# largest by so much.
NEAR = 8
BINS = 4
OCTAVES, MOST_OCTAVES = 3, 20
DEPTH = 30.0


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
    values = where_chosen(_fits(proposed, old.dtype).all(axis=1), proposed.reshape(old.shape), old)
    values = values.astype(old.dtype)
    # Other parameters and the likelihood may index something by values that the base has, and by no others.
    possible = density.base_of(position, [*atoms[:position], values, *atoms[position + 1 :]]) > -np.inf
    values = where_chosen(possible, values, old)
    new = [*atoms[:position], values, *atoms[position + 1 :]]
    change = density.by_cluster(new, labels) - density.by_cluster(atoms, labels)
    accepted = np.log(rng.random(len(old))) < np.where(np.isnan(change), -np.inf, change)
    return [*atoms[:position], where_chosen(accepted, values, old), *atoms[position + 1 :]]


def _fits(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return whether a dtype can hold integers."""
    if dtype == np.dtype(bool):
        return (values >= 0) & (values <= 1)
    return (values >= np.iinfo(dtype).min) & (values <= np.iinfo(dtype).max)


class Window(NamedTuple):
    """A distribution over integers: bins, each of which has one probability for all of its values.

    Parameters
    ----------
    lowest, widths : (B,) int64 arrays
        The least value of each bin, and the number of its values.
    log_p : (B,) float64 array
        Log probabilities of bins.
    """

    lowest: np.ndarray
    widths: np.ndarray
    log_p: np.ndarray

    def draw(self, rng: np.random.Generator) -> int:
        """Draw an integer."""
        summed = np.cumsum(np.exp(self.log_p))
        of = min(int(np.searchsorted(summed, rng.random() * summed[-1], side="right")), len(summed) - 1)
        return int(self.lowest[of] + int(rng.random() * self.widths[of]))

    def find(self, value: int) -> tuple[float, int]:
        """Return the log probability of an integer, and the number of values in its bin."""
        inside = (self.lowest <= value) & (value < self.lowest + self.widths)
        of = int(np.argmax(inside))
        if not inside[of]:
            return -np.inf, 0
        return float(self.log_p[of]) - math.log(self.widths[of]), int(self.widths[of])


def window(log_density: Callable[[np.ndarray], np.ndarray], centre: int) -> tuple[Window, int] | None:
    """Return a distribution near a density over integers, and its largest value among those looked at.

    Values near the centre have probabilities in proportion to the density, farther ones in proportion to that of a
    value in the middle of their bin. There is no such distribution where the density of all is zero.

    Parameters
    ----------
    log_density : function
        Of integers (m,).
    centre : int
    """
    offsets, widths = FIRST_BINS
    heights = log_density(centre + offsets + (widths - 1) // 2)
    for octave in range(OCTAVES, MOST_OCTAVES):
        least = heights.max() - DEPTH
        ends = {-1: int(np.argmin(offsets)), 1: int(np.argmax(offsets))}
        sides = [side for side, end in ends.items() if heights[end] > least]
        if not sides:
            break
        further, more = _octave(octave, sides)
        offsets, widths = np.concatenate([offsets, further]), np.concatenate([widths, more])
        heights = np.concatenate([heights, log_density(centre + further + (more - 1) // 2)])
    log_p = heights + np.log(widths)
    best = float(log_p.max())
    if best == -np.inf:
        return None
    log_p = log_p - (best + np.log(np.sum(np.exp(log_p - best))))
    top = int(np.argmax(heights))
    return Window(centre + offsets, widths, log_p), int(centre + offsets[top] + (widths[top] - 1) // 2)


def _octave(octave: int, sides: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the least values and the widths of the bins between one distance from 0 and its double."""
    width = 2**octave * NEAR // BINS
    above = 2**octave * NEAR + 1 + width * np.arange(BINS)
    offsets = np.concatenate([above if side == 1 else 1 - width - above for side in sides])
    return offsets, np.full(len(offsets), width)


def _first_bins() -> tuple[np.ndarray, np.ndarray]:
    near = np.arange(-NEAR, NEAR + 1)
    parts = [(near, np.ones(len(near), dtype=np.int64)), *(_octave(octave, (-1, 1)) for octave in range(OCTAVES))]
    offsets, widths = (np.concatenate(own) for own in zip(*parts, strict=True))
    return offsets, widths


FIRST_BINS = _first_bins()


class DiscreteProposal(NamedTuple):
    """A proposal for the discrete values of one atom: one after the other, from windows around known values.

    The window of a value is that of the density of the rows and of the base, given the values that have been drawn
    before, and the known ones of those that come later and of the continuous ones.

    Parameters
    ----------
    density : Densities
    form : FreeForm
        The atom with the known values.
    rows : (n,) bool array
        The rows that it has.
    """

    density: Densities
    form: FreeForm
    rows: np.ndarray

    def climbed(self) -> FreeForm:
        """Return the atom with each of its discrete values, one after the other, at the top of its window."""
        found = self._walk(lambda position, entry, own, top: top)
        return self.form if found is None else self.form._replace(fixed=found[0])

    def draw(self, rng: np.random.Generator) -> tuple[Atoms, float] | None:
        """Draw discrete values (1, ...); return them and their log probability, or None where there are none."""
        return self._walk(lambda position, entry, own, top: own.draw(rng))

    def log_probability(self, fixed: Atoms) -> float:
        """Return the log probability of discrete values."""
        found = self._walk(lambda position, entry, own, top: int(fixed[position].reshape(-1)[entry]))
        return -np.inf if found is None else found[1]

    def _walk(self, choose: Callable[[int, int, Window, int], int]) -> tuple[Atoms, float] | None:
        """Choose one value after the other; return all, and their log probability."""
        fixed, total = [values.copy() for values in self.form.fixed], 0.0
        for position, values in enumerate(fixed):
            for entry in range(values.size):
                at = int(values.reshape(-1)[entry])
                given = self._given(fixed, position, entry)
                found = window(given, at)
                if found is None:
                    return None
                own, top = found
                value = choose(position, entry, own, top)
                log_p, n_alike = own.find(value)
                total += log_p
                # Of a bin with several values one has been looked at.
                if total == -np.inf or (n_alike > 1 and given(np.array([value]))[0] == -np.inf):
                    return None
                values.reshape(-1)[entry] = value
        return fixed, total

    def _given(self, fixed: Sequence[np.ndarray], position: int, entry: int) -> Callable[[np.ndarray], np.ndarray]:
        """Return the log density of one value given all others, as a function of integers (m,)."""
        density, form = self.density, self.form
        here, of_all = density.from_free(form.free, list(fixed)), density.discrete[position]

        def log_density(values: np.ndarray) -> np.ndarray:
            log_p = np.full(len(values), -np.inf)
            fits = np.flatnonzero(_fits(values, fixed[position].dtype))
            m = len(fits)
            if m == 0:
                return log_p
            candidates = [np.repeat(own, m, axis=0) for own in fixed]
            candidates[position].reshape(m, -1)[:, entry] = values[fits]
            atoms = [np.repeat(own, m, axis=0) for own in here]
            atoms[of_all] = candidates[position]
            base = density.base_of(of_all, atoms)
            possible = base > -np.inf
            if not np.any(possible):
                return log_p
            kept = [own[possible] for own in candidates]
            atoms = density.from_free(np.repeat(form.free, len(kept[0]), axis=0), kept)
            # The base of a single parameter has been asked.
            of_base = density.base(atoms) if len(atoms) > 1 else base[possible]
            total = of_base + density.by_row(atoms)[:, self.rows].sum(axis=1)
            log_p[fits[possible]] = np.where(np.isnan(total), -np.inf, total)
            return log_p

        return log_density
