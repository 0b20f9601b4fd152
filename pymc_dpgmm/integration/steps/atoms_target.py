"""Parameters of rows under a Dirichlet process in a model: their base, densities, and what is beside."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.families import View
from pymc_dpgmm.integration.continuous.atoms import AtomsPart
from pymc_dpgmm.integration.process_density import AtomDensities, ProcessModel
from pymc_dpgmm.integration.process_density.atom_densities import Atoms
from pymc_dpgmm.integration.process_density.impossible_rows import refuse_impossible_rows
from pymc_dpgmm.integration.steps.continuous import Learnt, Moving
from pymc_dpgmm.integration.steps.targets import LabelsPrior, MixtureTarget, of_blocks, same_params, same_rows
from pymc_dpgmm.integration.variables.records import amend_record
from pymc_dpgmm.partitions.labels import named_by_appearance
from pymc_dpgmm.sampler.atoms.auxiliary import ScannedRows
from pymc_dpgmm.sampler.atoms.beside import Beside
from pymc_dpgmm.sampler.atoms.compiled_sweeps import CompiledSweeps

# Draws of the base by which atoms are known where it has no location and scale, and how often in tuning.
N_OF_BASE, LOOKS_AT_BASE = 64, 20


class BesideAtPoint(NamedTuple):
    """Collapsed mixtures beside atoms, and the numbers that they were made from."""

    views: list[View]
    beside: Beside


class AtomsTarget(ProcessModel):
    """Labels, and the parameters of rows under a Dirichlet process on them, in a model and in its points."""

    def __init__(self, model: pm.Model, labels: Variable, compile_kwargs: Any) -> None:
        super().__init__(model, labels, compile_kwargs)
        self.prior = LabelsPrior(model, labels)
        self.name, self.dtype = model.rvs_to_values[labels].name, labels.dtype
        self.values = [model.rvs_to_values[rv].name for rv in self.parameters]
        n, blocks = self.n, self.prior.blocks
        self.of_row = None if blocks is None else blocks.of_row
        self.first = np.arange(n) if blocks is None else blocks.first
        weights = np.ones(n) if blocks is None else np.ascontiguousarray(blocks.table[:, 0])
        known = np.zeros(n, dtype=np.int64) if blocks is None else (blocks.table[:, 1] >= 0).astype(np.int64)
        self.rows = ScannedRows(weights, known)
        self.n_blocks = len(weights)
        self._mixtures = [MixtureTarget(model, mixture) for mixture in self.mixtures]
        self._sweeps: dict[int, CompiledSweeps] = {}
        # What a draw has put into a point, as it is there and as labels and atoms.
        self._written: tuple[dict[str, np.ndarray], np.ndarray, Atoms] | None = None
        self._has_been_checked = False
        if self.mixtures:
            # Rows of such a mixture cannot be left out one at a time for leave-one-out densities.
            amend_record(model, labels.name, {"dependents": [rv.name for rv in self.parameters]})

    def __getstate__(self) -> dict[str, Any]:
        # Code belongs to one process.
        return {**self.__dict__, "_sweeps": {}}

    def begin(self) -> None:
        """Check, at the start of a chain, that rows are still those that the terms were found with."""
        self.terms.check_data()
        self._has_been_checked = False

    def check_rows(self, labels: np.ndarray, atoms: Atoms) -> None:
        """Raise, at the first draw of a chain, if rows have no density; for the arguments see :meth:`read`."""
        if self._has_been_checked:
            return
        self._has_been_checked = True
        densities, of_rows = self.densities, self.labels_of_rows(labels)

        def by_row(atoms: Atoms) -> np.ndarray:
            return densities.by_free_row(densities.to_free(atoms))

        doubtful = ~(densities.log_density(atoms, of_rows) > -np.inf)
        if np.any(doubtful):
            rows, places = np.flatnonzero(doubtful[of_rows]), np.cumsum(doubtful) - 1
            present = np.zeros(self.n)
            present[rows] = by_row([own[doubtful] for own in atoms])[places[of_rows[rows]], rows]
            refuse_impossible_rows(
                " and ".join(rv.name for rv in self.parameters),
                self.terms,
                present,
                lambda m: by_row(densities.draws(0, m)),
            )

    def labels_of_rows(self, labels: np.ndarray) -> np.ndarray:
        """Return the labels of rows from those of blocks of rows."""
        return labels if self.of_row is None else labels[self.of_row]

    def sweeps(
        self,
        rng: np.random.Generator,
        labels: np.ndarray,
        free: np.ndarray,
        n_auxiliary: int,
        beside: Beside | None,
    ) -> CompiledSweeps:
        """Return what makes the sweeps of a draw, from labels (n,) of blocks of rows and free atoms (K, D)."""
        densities = self.densities
        calls = densities.calls(free, self.labels_of_rows(labels))
        if n_auxiliary not in self._sweeps:
            of_row = np.arange(self.n) if self.of_row is None else np.asarray(self.of_row, dtype=np.int64)
            discrete = [(densities.columns[p], np.dtype(densities.dtypes[p])) for p in densities.discrete]
            numbers = densities.n_free, densities.n_continuous
            self._sweeps[n_auxiliary] = CompiledSweeps(self.rows, of_row, *numbers, discrete, calls, n_auxiliary)
        sweeps = self._sweeps[n_auxiliary]
        sweeps.begin(rng, labels, free, calls, beside)
        return sweeps

    def beside(
        self, point: dict[str, np.ndarray], labels: np.ndarray, last: BesideAtPoint | None
    ) -> BesideAtPoint | None:
        """Return the collapsed mixtures on the labels at a point, None where they have no density.

        Parameters
        ----------
        point : dict of arrays
        labels : (n,) int64 array
            Of blocks of rows.
        last : BesideAtPoint, optional
            Of the draw before, used again for what has not changed.
        """
        views = [mixture.view(point, self.n) for mixture in self._mixtures]
        if self.of_row is not None:
            views = of_blocks(views, self.of_row)
        if not all(view.family.supports(view.params) for view in views):
            return None
        if last is None or not all(map(same_rows, views, last.views)):
            return BesideAtPoint(views, Beside(views, labels))
        last.beside.begin(labels, None if all(map(same_params, views, last.views)) else [v.params for v in views])
        return last._replace(views=views)

    def read(self, point: Mapping[str, np.ndarray]) -> tuple[np.ndarray, Atoms]:
        """Return the labels of blocks of rows, and the atoms, at a point.

        Raises
        ------
        ValueError
            If the labels are out of range, or rows of one cluster have different parameters.
        """
        kept = self._written
        if kept is not None and all(point[name] is array for name, array in kept[0].items()):
            return kept[1].copy(), [values.copy() for values in kept[2]]
        raw = np.asarray(point[self.name])
        self.prior.check(raw)
        labels, first = named_by_appearance(raw)
        atoms = [np.asarray(point[name])[first] for name in self.values]
        for name, values in zip(self.values, atoms, strict=True):
            if not np.isfinite(values).all():
                raise ValueError(
                    f"{name} starts at {values[~np.isfinite(values)][0]}: look at the parameters of its base"
                )
            if not np.array_equal(values[labels], point[name]):
                raise ValueError(f"rows of one cluster of {self.name} must have the same {name}")
        return labels[self.first], atoms

    def write(self, point: dict[str, np.ndarray], labels: np.ndarray, atoms: Atoms) -> None:
        """Set labels and the rows' parameters in a point."""
        rows = self.labels_of_rows(labels)
        point[self.name] = rows.astype(self.dtype)
        dtypes = [point[name].dtype for name in self.values]
        for name, values, dtype in zip(self.values, atoms, dtypes, strict=True):
            point[name] = values[rows].astype(dtype, copy=False)
        # What the next draw finds is rounded where types are shorter.
        rounded = [values.astype(dtype) for values, dtype in zip(atoms, dtypes, strict=True)]
        names = [self.name, *self.values]
        self._written = {name: point[name] for name in names}, labels.astype(np.int64), rounded


class MovingAtoms:
    """The atoms of a process, as they move together with other variables.

    Parameters
    ----------
    model : pm.Model
    target : AtomsTarget
        Without discrete values.
    compile_kwargs : dict, optional
    """

    def __init__(self, model: pm.Model, target: AtomsTarget, compile_kwargs: Any) -> None:
        self._target, densities = target, target.densities
        self.part = AtomsPart(model, target.parameters, target.labels, densities, target.n, compile_kwargs)
        self.name, self.values, self.n, self.d = target.name, target.values, target.n, densities.n_free
        self._fixed = [np.zeros((self.n, self.d)), np.ones((self.n, self.d)), np.ones((2, self.d))]

    def _given(self, point: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [*self._fixed, *(np.array(point[name], order="C") for name in self.part.inputs)]

    def prepare(self, point: Mapping[str, np.ndarray]) -> Moving:
        """Return arrays of the types that are compiled for."""
        n_atoms = int(np.max(point[self._target.name], initial=0)) + 1
        free = np.zeros((n_atoms, self.d))
        self.part.standardized(free, *self._given(point))
        return Moving(np.empty(0), [(free, 1.0)], self._fixed)

    def begin(self, rng: np.random.Generator, point: Any, prepared: Any, learnt: Learnt, tuning: bool) -> Moving:
        """Return what moves of the atoms at a point."""
        densities = self._target.densities.at(point)
        _, atoms = self._target.read(point)
        free = densities.to_free(atoms)
        seen = learnt.seen(self.name, free[point[self._target.name]].astype(np.float64))
        of_base = learnt.of_parts.get(self.name)
        if of_base is None or (tuning and learnt.n_moves % LOOKS_AT_BASE == 0):
            drawn = densities.to_free(densities.draws(0, N_OF_BASE))
            of_base = learnt.of_parts[self.name] = np.array([drawn.mean(axis=0), 1.0 / drawn.var(axis=0)])
        for own, given in zip(self._fixed, (*seen, of_base), strict=True):
            own[...] = given
        moving = self.part.standardized(free, *self._given(point))
        return Moving(np.empty(0), [(moving, 1.0)], self._fixed)

    def end(self, point: Any, prepared: Any, values: Sequence[np.ndarray], numbers: np.ndarray) -> None:
        """Let the point have other atoms."""
        labels, _ = self._target.read(point)
        first = np.unique(point[self._target.name], return_index=True)[1]
        rows = [own.reshape(point[name].shape) for name, own in zip(self.values, values, strict=True)]
        self._target.write(point, labels, self._target.densities.at(point).inside([own[first] for own in rows]))


class Stream:
    """Independent draws from the base, many at a time, since a call takes about as long as drawing the numbers.

    Parameters
    ----------
    rng : Generator
    density : AtomDensities
        Densities at the point of the draw.
    n : int
        Number of draws from the base per call.
    """

    def __init__(self, rng: np.random.Generator, density: AtomDensities, n: int) -> None:
        self._rng, self._density, self._n = rng, density, n
        self._drawn: Atoms = []
        self._next = n

    def take(self, n: int) -> np.ndarray:
        """Return the next n draws in free form: (n, D)."""
        if self._next + n > self._n:
            self._drawn = self._density.draws(int(self._rng.integers(2**63)), max(n, self._n))
            self._next = 0
        taken = [values[self._next : self._next + n] for values in self._drawn]
        self._next += n
        return self._density.to_free(taken)
