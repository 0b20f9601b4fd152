"""Step method of a Dirichlet process as a prior of rows' parameters, which draws labels and atoms together."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_dpgmm.integration.continuous.density import Part, has_gradient
from pymc_dpgmm.integration.internals.pymc_internals import (
    Competence,
    StepMethodState,
    dataclass_state,
    get_value_vars_from_user_vars,
)
from pymc_dpgmm.integration.process_density import AtomDensities
from pymc_dpgmm.integration.steps.atoms_target import (
    Ahead,
    AtomsTarget,
    BesideAtPoint,
    BlockDensities,
    MovingAtoms,
    Stream,
)
from pymc_dpgmm.integration.steps.concentration import Concentration, concentration_of
from pymc_dpgmm.integration.steps.continuous import KERNELS as KERNELS_OF_MOVES
from pymc_dpgmm.integration.steps.continuous import STATISTICS as STATISTICS_OF_MOVES
from pymc_dpgmm.integration.steps.continuous import ContinuousMove, MovingPart, nuts_options
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.steps.statistics import OF_PARTITIONS, of_partition
from pymc_dpgmm.integration.steps.targets import is_labels
from pymc_dpgmm.integration.variables.atoms import atoms_inputs, is_atoms
from pymc_dpgmm.native.compiled import bits_of_generator, compiling
from pymc_dpgmm.partitions.concentration import drawn_concentration
from pymc_dpgmm.partitions.labels import named_by_appearance
from pymc_dpgmm.partitions.priors import GibbsType, log_eppf
from pymc_dpgmm.sampler.atoms.atom_moves import (
    N_BASE,
    Atoms,
    Scales,
    move_atoms,
)
from pymc_dpgmm.sampler.atoms.auxiliary import SPARE, scan
from pymc_dpgmm.sampler.atoms.beside import Beside
from pymc_dpgmm.sampler.atoms.compiled_sweeps import CompiledSweeps, Counts, sweep
from pymc_dpgmm.sampler.atoms.discrete_values import move_discrete
from pymc_dpgmm.sampler.atoms.free_form import FreeForm
from pymc_dpgmm.sampler.atoms.splits import POOL, split_or_merge
from pymc_dpgmm.sampler.tuning.preparation import begin, finish
from pymc_dpgmm.tables.checks import check_count

STATISTICS: dict[str, Any] = OF_PARTITIONS | {
    "accepted": np.float64,
    "splits_tried": np.int64,
    "splits": np.int64,
    "merges_tried": np.int64,
    "merges": np.int64,
}
# Default number of sweeps of a draw: pairs of the largest number of rows and the number of sweeps; 1 for more
# rows.
SWEEPS = ((500, 4), (2_000, 2))


class AtomOptions(NamedTuple):
    """How often each move of labels and atoms is made in a draw."""

    n_sweeps: int | None = None
    n_scans: int = 1
    n_auxiliary: int = 3
    hamiltonian: int = 2
    split_merge: int = 1

    def check(self) -> "AtomOptions":
        """Return self; raise TypeError or ValueError if an entry is no valid number of moves."""
        for name, value in self._asdict().items():
            if name != "n_sweeps" or value is not None:
                check_count(name, value, 1 if name in ("n_sweeps", "n_auxiliary") else 0)
        return self

    def sweeps_of(self, n: int) -> int:
        """Return the number of sweeps in a draw for n rows: more for few rows, where sweeps are cheap."""
        if self.n_sweeps is not None:
            return self.n_sweeps
        return next((sweeps for most, sweeps in SWEEPS if n <= most), 1)


class Moves:
    """Counts of the moves of a draw."""

    def __init__(self) -> None:
        self.n_moved = 0
        self.accepted: list[float] = []
        self.tally = {"splits_tried": 0, "splits": 0, "merges_tried": 0, "merges": 0}

    def take(self, counts: Mapping[str, int]) -> None:
        """Take what was counted elsewhere."""
        self.n_moved += counts["n_moved"]
        self.tally = {name: counts[name] for name in self.tally}


@dataclass_state
class DirichletProcessStepState(StepMethodState):
    """Sampling state: the scales learnt while tuning."""

    tune: bool
    scales: Any
    learnt: Any


@contextlib.contextmanager
def _told_by_pytensor(native: CompiledSweeps, densities: AtomDensities) -> Iterator[None]:
    """Let PyTensor tell what is wrong where compiled code could not compute a density."""
    try:
        yield
    except FloatingPointError:
        free, labels = native.arguments
        densities.gradient(free, [], labels)
        densities.by_free_row(free)
        raise


class DirichletProcessStep(PartitionStep):
    """Samples the parameters of rows under a :func:`DirichletProcess`, and their labels.

    ``pm.sample`` assigns it automatically. A draw consists of scans over the labels with auxiliary atoms (Neal
    2000, Algorithm 8; Favaro and Teh 2013), Hamiltonian moves of the atoms of all clusters, each accepted
    separately, and splits and merges. Discrete parameters move by Metropolis steps in place of Hamiltonian ones.
    Collapsed mixtures on the same labels, such as a profile of covariates, weigh in all of these.

    Parameters
    ----------
    vars : list of variables, optional
        Labels and parameters, gamma concentrations of the labels on which nothing else depends, and continuous
        variables that move together with the atoms, by the No-U-Turn sampler. By default the labels and parameters
        of the model.
    n_sweeps : int, >= 1, optional
        Sweeps per draw: each consists of the moves below. By default 4 for up to 500 rows, 2 for up to 2,000, and
        1 for more.
    n_scans : int, >= 0
        Scans over the labels.
    n_auxiliary : int, >= 1
        Auxiliary atoms m of a scan.
    hamiltonian : int, >= 0
        Hamiltonian moves of all atoms.
    split_merge : int, >= 0
        Splits and merges. After tuning they are tried less often if few were accepted while tuning.
    nuts : dict, optional
        ``target_accept`` and ``max_treedepth`` of the move of continuous variables and atoms together, as of
        ``pm.NUTS``.

    Raises
    ------
    TypeError, ValueError
        If a number is not an integer in its range.
    NotImplementedError
        If rows are not independent given their parameters, or anything but a collapsed mixture depends on the
        labels too.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> run = {"draws": 20, "tune": 20, "chains": 1, "progressbar": False}
    >>> with pm.Model() as model:
    ...     rate = dp.DirichletProcess("rate", 1.0, pm.LogNormal.dist(1.0, 1.0), shape=4)
    ...     y = pm.Poisson("y", rate, observed=[0, 2, 12, 10])
    ...     idata = pm.sample(**run, step=[dp.DirichletProcessStep(n_sweeps=2)])

    Notes
    -----
    Sampler statistics, per draw and prefixed by the labels' name: ``n_clusters``, ``largest_share``, ``entropy``
    and ``log_joint`` as for other labels; ``n_moved``, rows that joined another cluster; ``accepted``, the mean
    acceptance of Hamiltonian moves; ``splits_tried``, ``splits`` (accepted), ``merges_tried`` and ``merges``;
    ``seconds``; and ``<name>_impossible`` of other variables as for other labels.
    """

    name = "dirichlet_process"
    _state_class = DirichletProcessStepState

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        n_sweeps: int | None = None,
        n_scans: int = 1,
        n_auxiliary: int = 3,
        hamiltonian: int = 2,
        split_merge: int = 1,
        nuts: Mapping[str, Any] | None = None,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ) -> None:
        of_nuts = nuts_options(nuts)
        self.options = AtomOptions(n_sweeps, n_scans, n_auxiliary, hamiltonian, split_merge).check()
        model = pm.modelcontext(model)
        if vars is None:
            chosen = [rv for rv in model.free_RVs if is_atoms(rv)]
        else:
            values = get_value_vars_from_user_vars(vars, model)
            chosen = [model.values_to_rvs[value] for value in values]
        labels = list(
            dict.fromkeys(
                [atoms_inputs(rv)[0] for rv in chosen if is_atoms(rv)] + [rv for rv in chosen if is_labels(rv)]
            )
        )
        self._set_targets(
            [AtomsTarget(model, rv, compile_kwargs) for rv in labels], STATISTICS, rng, compile_kwargs
        )
        without = [target.name for target in self.targets if not target.parameters]
        if without:
            raise TypeError(f"{', '.join(without)} are the labels of no dp.DirichletProcess")
        left_out = [
            rv.name
            for target in self.targets
            if target.labels in chosen
            for rv in target.parameters
            if rv not in chosen
        ]
        if left_out:
            raise ValueError(
                f"{', '.join(left_out)} can only be sampled together with the labels, by "
                "dp.DirichletProcessStep, which pm.sample assigns automatically: leave them out of step="
            )
        others = [model.rvs_to_values[rv] for rv in chosen if not is_atoms(rv) and not is_labels(rv)]
        alone = [value for value in others if concentration_of(model, model.values_to_rvs[value])[0] is not None]
        continuous = [value for value in others if value not in alone]
        drawn = [Concentration(model, value) for value in alone]
        names = {target.name for target in self.targets}
        unrelated = [c.name for c in drawn if c.labels not in names]
        if unrelated:
            raise ValueError(f"{', '.join(unrelated)} can only be drawn together with its own labels")
        self.concentrations = {c.labels: c for c in drawn}
        sampled = [rv for target in self.targets for rv in (target.labels, *target.parameters)]
        self.vars = [*(model.rvs_to_values[rv] for rv in sampled), *alone, *continuous]
        self.continuous = None
        if continuous:
            values = [model.rvs_to_values[rv] for rv in sampled if is_atoms(rv)]
            moves = [t for t in self.targets if not t.densities.discrete and has_gradient(model, values, sampled)]
            parts: list[tuple[Part, MovingPart]] = [
                (moving.part, moving) for moving in (MovingAtoms(model, t, compile_kwargs) for t in moves)
            ]
            self.continuous = ContinuousMove(model, continuous, parts, compile_kwargs, **of_nuts)
            self._watch([self.continuous])
            self._record(STATISTICS_OF_MOVES)
        self.learnt = None if self.continuous is None else self.continuous.learnt(0)
        self.scales: list[Scales | None] = [None] * len(self.targets)
        self.beside: list[BesideAtPoint | None] = [None] * len(self.targets)
        if not all(target.densities.discrete for target in self.targets):
            begin([sweep, *(KERNELS_OF_MOVES if self.continuous is not None else ())], [], are_long=True)

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Never assigned automatically: DPMixtureStep delegates to it."""
        return Competence.INCOMPATIBLE

    def prepare(self, point: Mapping[str, np.ndarray]) -> None:
        """Compile the densities while the moves are compiled."""
        with compiling.announced("the moves of labels and atoms"), np.errstate(all="ignore"):
            for target in self.targets:
                # What is wrong with the start is told before anything is compiled.
                target.read(point)
                target.confirm(point)
                density = target.densities.at(point)
                labels, atoms = target.read(point)
                atoms = density.inside(atoms)
                target.check_rows(labels, atoms)
                if not density.discrete:
                    free = density.to_free(atoms)
                    density.from_free(free, [])
                    target.sweeps(labels, free, self.options.n_auxiliary)
            if self.continuous is not None:
                self.continuous.prepare(point)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain with its own random numbers, and without the scales of the last chain."""
        finish()
        super().setup_chain(rng, tune, draws)
        for target in self.targets:
            target.begin()
        self.tune = tune > 0
        self.scales = [None] * len(self.targets)
        self.beside = [None] * len(self.targets)
        self.learnt = None if self.continuous is None else self.continuous.learnt(tune)

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw labels and atoms, and the hyperparameters that go with them, given everything else in the point."""
        point, statistics = super().step(point)
        if self.continuous is not None and self.learnt is not None:
            told = self.continuous.draw(self.rng, point, [], self.learnt, self.tune)
            statistics[0].update(self.continuous.statistics(told, self.learnt.step_size.size))
            statistics[0].update(self._impossible())
        return point, statistics

    def stop_tuning(self) -> None:
        """Fix the scales learnt while tuning."""
        self.tune = False
        if self.learnt is not None:
            self.learnt.step_size.end()
        for scales in self.scales:
            if scales is not None:
                scales.settle()

    def _draw(self, position: int, target: AtomsTarget, point: dict[str, np.ndarray]) -> dict[str, Any]:
        # Densities may overflow at proposals, which are then rejected.
        with compiling.announced("the moves of labels and atoms"), np.errstate(all="ignore"):
            return self._swept(position, target, point)

    def _swept(self, position: int, target: AtomsTarget, point: dict[str, np.ndarray]) -> dict[str, Any]:
        started = time.perf_counter()
        target.confirm(point)
        density: Any = target.densities.at(point)
        labels, atoms = target.read(point)
        atoms = density.inside(atoms)
        target.check_rows(labels, atoms)
        if target.of_row is not None:
            density = BlockDensities(target.densities, target.of_row)
        scales = self.scales[position]
        if scales is None:
            n_free = density.n_free if len(target.densities.discrete) < len(atoms) else 0
            scales = self.scales[position] = Scales(n_free, bool(target.densities.discrete))
        prior = target.prior.at(point, target.n)
        beside = None
        if target.mixtures:
            made = self.beside[position] = target.beside(point, labels, self.beside[position])
            prior, beside = (None, None) if made is None else (prior, made.beside)
        concentration = self.concentrations.get(target.name)
        # Labels have no posterior where the density of the rest is zero: they wait.
        n_sweeps = 0 if prior is None else self.options.sweeps_of(target.n)
        per_sweep = self.options.n_scans * (self.options.n_auxiliary + SPARE) + POOL
        per_sweep += N_BASE * self.options.hamiltonian if self.tune else 0
        stream = Stream(self.rng, density, n_sweeps * per_sweep)
        moves = Moves()
        is_free = n_sweeps > 0 and len(scales.row) > 0
        native = self._native_sweeps(target, density, labels, atoms, beside) if is_free else None
        counts = self._counts(target, scales, n_sweeps)
        if native is None:
            ahead = Ahead(stream, counts.n_taken(self.tune))
            for n_splits in counts.n_splits:
                if concentration is not None:
                    prior = self._concentrated(concentration, point, prior, labels, target.n)
                given = target, density, prior, labels, atoms, scales, moves, ahead, stream, beside
                labels, atoms = self._sweep(*given, counts, n_splits)
        else:
            prior, accepted = self._sweep_natively(native, target, point, prior, scales, stream, counts)
            moves.accepted.append(accepted)
            labels = native.labels
            moves.take(native.take_counts())
            atoms = density.from_free(native.free, [])
        target.write(point, labels, atoms)
        sizes = np.bincount(labels, weights=target.rows.weights)
        log_joint = -np.inf
        if n_sweeps:
            log_labels = log_eppf(prior, sizes.astype(np.int64), len(sizes))
            log_joint = log_labels + float(np.sum(density.log_density(atoms, labels)))
            log_joint += 0.0 if beside is None else beside.total_log_evidence()
        return {
            **of_partition(sizes, moves.n_moved, log_joint),
            **moves.tally,
            "accepted": float(np.mean(moves.accepted)) if moves.accepted else math.nan,
            "seconds": time.perf_counter() - started,
        }

    def _concentrated(
        self,
        concentration: Concentration,
        point: dict[str, np.ndarray],
        prior: Any,
        labels: np.ndarray,
        n: int,
    ) -> GibbsType:
        """Draw the concentration given the labels, set it in the point, and return the prior with it."""
        shape, rate = concentration.law(point)
        if rate <= 0.0:
            return prior
        bits = bits_of_generator(self.rng)
        alpha = drawn_concentration(*bits, prior.alpha, int(labels.max()) + 1, float(n), shape, rate)
        concentration.write(point, alpha)
        return prior._replace(alpha=alpha)

    def _native_sweeps(
        self, target: AtomsTarget, density: Any, labels: np.ndarray, atoms: Atoms, beside: Beside | None
    ) -> CompiledSweeps | None:
        """Begin a draw without Python, if there can be one."""
        if target.densities.discrete:
            return None
        free = density.to_free(atoms)
        native = target.sweeps(labels, free, self.options.n_auxiliary)
        if native is not None:
            native.begin(self.rng, labels, free, target.densities.native_values, beside)
        return native

    def _sweep_natively(
        self,
        native: CompiledSweeps,
        target: AtomsTarget,
        point: dict[str, np.ndarray],
        prior: Any,
        scales: Scales,
        stream: Stream,
        counts: Counts,
    ) -> tuple[GibbsType, float]:
        """Make the sweeps of a draw without Python; return the prior, and the mean acceptance of atoms' moves.

        A concentration that is drawn with the labels is set in the point.
        """
        concentration = self.concentrations.get(target.name)
        law = (0.0, 0.0) if concentration is None else concentration.law(point)
        with _told_by_pytensor(native, target.densities):
            alpha, accepted = native.sweep(prior, law, target.n, stream.take_free, counts, scales, self.tune)
        if concentration is not None and law[1] > 0.0:
            concentration.write(point, alpha)
        return prior._replace(alpha=alpha), accepted

    def _n_splits(self, target: AtomsTarget, scales: Scales, n_sweeps: int) -> list[int]:
        """Return how many splits and merges each of some sweeps tries."""
        most = self.options.split_merge if target.n_blocks > 1 else 0
        if not self.tune:
            return list(self.rng.binomial(most, scales.tried, size=n_sweeps).tolist())
        if target.densities.discrete:
            # In Python they take so long that they are tried less while tuning too.
            return list(self.rng.binomial(most, scales.worth_trying, size=n_sweeps).tolist())
        return [most] * n_sweeps

    def _counts(self, target: AtomsTarget, scales: Scales, n_sweeps: int) -> Counts:
        """Return how often sweeps make each move."""
        options, has_free = self.options, len(scales.row) > 0
        n_splits = self._n_splits(target, scales, n_sweeps)
        return Counts(
            options.n_scans, options.n_auxiliary + SPARE, options.hamiltonian if has_free else 0, n_splits
        )

    def _sweep(
        self,
        target: AtomsTarget,
        density: Any,
        prior: Any,
        labels: np.ndarray,
        atoms: Atoms,
        scales: Scales,
        moves: "Moves",
        ahead: Ahead,
        stream: Stream,
        beside: Beside | None,
        counts: Counts,
        n_moves: int,
    ) -> tuple[np.ndarray, Atoms]:
        """Make each move as often as the counts say, and so many splits and merges."""
        rng, options = self.rng, self.options
        m = options.n_auxiliary
        fresh: Atoms = []
        fresh_rows = np.empty((0, 0))
        n_hamiltonian, n_fresh = counts.n_hamiltonian, counts.n_fresh + (POOL if n_moves else 0)
        base = [density.to_free(ahead.take(N_BASE)) for _ in range(n_hamiltonian if self.tune else 0)]
        for _ in range(options.n_scans):
            pool = [np.concatenate(pair) for pair in zip(atoms, ahead.take(n_fresh), strict=True)]

            def more() -> np.ndarray:
                nonlocal pool
                added = stream.take(counts.n_fresh)
                pool = [np.concatenate(pair) for pair in zip(pool, added, strict=True)]
                return density.by_row(added)

            scanned = scan(rng, target.rows, prior, labels, density.by_row(pool), m, more, beside)
            labels, atoms = scanned.labels, [values[scanned.chosen] for values in pool]
            moves.n_moved += scanned.n_moved
            fresh_rows = scanned.unseen
            fresh = [values[len(values) - len(fresh_rows) :] for values in pool]
        for move in range(n_hamiltonian):
            atoms, ratio = move_atoms(rng, density, atoms, labels, scales)
            moves.accepted.append(ratio)
            if self.tune:
                free = density.to_free(atoms)
                scales.learn_scales(density, free, density.fixed(atoms), labels, base[move])
                scales.learn_step(ratio)
        for where in target.densities.discrete:
            for _ in range(2):
                atoms = move_discrete(rng, density, atoms, where, labels)
        for _ in range(n_moves):
            # Always POOL atoms, however many the scan has left: a number that depends on the labels would have to
            # be part of the state.
            if len(fresh_rows) < POOL:
                fresh = stream.take(POOL)
                fresh_rows = density.by_row(fresh)
            fresh, fresh_rows = [values[:POOL] for values in fresh], fresh_rows[:POOL]
            moved = split_or_merge(
                rng,
                density,
                prior,
                target.rows.weights,
                target.rows.known,
                labels,
                FreeForm(density.to_free(atoms), density.fixed(atoms)),
                scales,
                FreeForm(density.to_free(fresh), density.fixed(fresh)),
                fresh_rows,
                beside,
            )
            kind = "splits" if moved.is_split else "merges"
            moves.tally[f"{kind}_tried"] += 1
            if self.tune:
                scales.learn_tried(moved.accepted)
            if moved.accepted:
                moves.tally[kind] += 1
                labels, first = named_by_appearance(moved.labels)
                order = moved.labels[first]
                atoms = [values[order] for values in density.from_free(*moved.atoms)]
            fresh_rows = np.empty((0, 0))
        return labels, atoms
