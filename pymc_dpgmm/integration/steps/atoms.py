"""Step method of a Dirichlet process as a prior of rows' parameters, which draws labels and atoms together."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_dpgmm.integration.continuous.density import ModelPart, has_gradient
from pymc_dpgmm.integration.internals.pymc_internals import (
    Competence,
    StepMethodState,
    dataclass_state,
    get_value_vars_from_user_vars,
)
from pymc_dpgmm.integration.steps.atoms_target import AtomsTarget, BesideAtPoint, MovingAtoms, Stream
from pymc_dpgmm.integration.steps.concentration import Concentration, concentration_of
from pymc_dpgmm.integration.steps.continuous import KERNELS as KERNELS_OF_MOVES
from pymc_dpgmm.integration.steps.continuous import STATISTICS as STATISTICS_OF_MOVES
from pymc_dpgmm.integration.steps.continuous import ContinuousMove, MovingPart, nuts_options
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.steps.statistics import OF_PARTITIONS, of_partition
from pymc_dpgmm.integration.steps.targets import is_labels
from pymc_dpgmm.integration.variables.atoms import atoms_inputs, is_atoms
from pymc_dpgmm.native.compiled import compiling
from pymc_dpgmm.partitions.priors import GibbsType, log_eppf
from pymc_dpgmm.sampler.atoms.auxiliary import SPARE
from pymc_dpgmm.sampler.atoms.compiled_sweeps import COUNTED, CompiledSweeps, Counts, sweep
from pymc_dpgmm.sampler.atoms.scales import N_BASE, AtomScales
from pymc_dpgmm.sampler.atoms.sweep_memory import POOL
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


@dataclass_state
class DirichletProcessStepState(StepMethodState):
    """Sampling state: the scales learnt while tuning."""

    tune: bool
    scales: Any
    learnt: Any


class DirichletProcessStep(PartitionStep):
    """Samples the parameters of rows under a :func:`DirichletProcess`, and their labels.

    ``pm.sample`` assigns it automatically. A draw consists of scans over the labels with auxiliary atoms (Neal
    2000, Algorithm 8; Favaro and Teh 2013), Hamiltonian moves of the atoms of all clusters, each accepted
    separately, and splits and merges. Discrete parameters move by Metropolis steps in place of Hamiltonian ones;
    clusters that have some are not split or merged. Collapsed mixtures on the same labels, such as a profile of
    covariates, weigh in all of these.

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
            parts: list[tuple[ModelPart, MovingPart]] = [
                (moving.part, moving) for moving in (MovingAtoms(model, t, compile_kwargs) for t in moves)
            ]
            self.continuous = ContinuousMove(model, continuous, parts, compile_kwargs, **of_nuts)
            self._watch([self.continuous])
            self._record(STATISTICS_OF_MOVES)
        self.learnt = None if self.continuous is None else self.continuous.learnt(0)
        self.scales: list[AtomScales | None] = [None] * len(self.targets)
        self.beside: list[BesideAtPoint | None] = [None] * len(self.targets)
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
                free = density.to_free(atoms)
                density.from_free(free)
                density.calls(free, target.labels_of_rows(labels))
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
        density = target.densities.at(point)
        labels, atoms = target.read(point)
        atoms = density.inside(atoms)
        target.check_rows(labels, atoms)
        scales = self.scales[position]
        if scales is None:
            scales = AtomScales(density.n_continuous, density.n_free - density.n_continuous)
            self.scales[position] = scales
        prior = target.prior.at(point, target.n)
        beside = None
        if target.mixtures:
            made = self.beside[position] = target.beside(point, labels, self.beside[position])
            prior, beside = (None, None) if made is None else (prior, made.beside)
        # Labels have no posterior where the density of the rest is zero: they wait.
        n_sweeps = 0 if prior is None else self.options.sweeps_of(target.n)
        counts, accepted, tally = self._counts(target, scales, n_sweeps), math.nan, dict.fromkeys(COUNTED, 0)
        if prior is not None:
            sweeps = target.sweeps(self.rng, labels, density.to_free(atoms), self.options.n_auxiliary, beside)
            per_sweep = self.options.n_scans * (self.options.n_auxiliary + SPARE) + POOL
            per_sweep += N_BASE * self.options.hamiltonian if self.tune else 0
            stream = Stream(self.rng, density, n_sweeps * per_sweep)
            prior, accepted = self._sweep(sweeps, target, point, prior, scales, stream, counts)
            labels, tally = sweeps.labels, sweeps.take_counts()
            atoms = density.from_free(sweeps.free)
        target.write(point, labels, atoms)
        sizes = np.bincount(labels, weights=target.rows.weights)
        log_joint = -np.inf
        if prior is not None:
            log_labels = log_eppf(prior, sizes.astype(np.int64), len(sizes))
            log_joint = log_labels + float(np.sum(density.log_density(atoms, target.labels_of_rows(labels))))
            log_joint += 0.0 if beside is None else beside.total_log_evidence()
        return {
            **of_partition(sizes, tally.pop("n_moved"), log_joint),
            **tally,
            "accepted": accepted,
            "seconds": time.perf_counter() - started,
        }

    def _sweep(
        self,
        sweeps: CompiledSweeps,
        target: AtomsTarget,
        point: dict[str, np.ndarray],
        prior: Any,
        scales: AtomScales,
        stream: Stream,
        counts: Counts,
    ) -> tuple[GibbsType, float]:
        """Make the sweeps of a draw; return the prior, and the mean acceptance of the atoms' Hamiltonian moves.

        A concentration that is drawn with the labels is set in the point.
        """
        concentration = self.concentrations.get(target.name)
        law = (0.0, 0.0) if concentration is None else concentration.law(point)
        try:
            alpha, accepted = sweeps.sweep(prior, law, target.n, stream.take, counts, scales, self.tune)
        except FloatingPointError:
            # What failed is in the arguments: PyTensor tells what it is.
            free, labels = sweeps.arguments
            target.densities.gradient(free, labels)
            target.densities.by_free_row(free)
            raise
        if concentration is not None and law[1] > 0.0:
            concentration.write(point, alpha)
        return prior._replace(alpha=alpha), accepted

    def _counts(self, target: AtomsTarget, scales: AtomScales, n_sweeps: int) -> Counts:
        """Return how often sweeps make each move."""
        options, densities = self.options, target.densities
        most = options.split_merge if target.n_blocks > 1 and not densities.discrete else 0
        n_splits = [most] * n_sweeps
        if not self.tune:
            n_splits = self.rng.binomial(most, scales.tried, size=n_sweeps).tolist()
        n_hamiltonian = options.hamiltonian if densities.n_continuous else 0
        return Counts(options.n_scans, options.n_auxiliary + SPARE, n_hamiltonian, n_splits)
