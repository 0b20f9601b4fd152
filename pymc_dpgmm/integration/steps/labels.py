"""The step methods of labels: read the point, call a kernel, write the point. No numerics."""

import math
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.continuous.density import ModelPart
from pymc_dpgmm.integration.continuous.rows import RowsPart, can_move
from pymc_dpgmm.integration.internals.pymc_internals import (
    StepMethodState,
    chain_of_process,
    dataclass_state,
    get_value_vars_from_user_vars,
)
from pymc_dpgmm.integration.process_density.latent_density import row_terms_of
from pymc_dpgmm.integration.steps.concentration import Concentration
from pymc_dpgmm.integration.steps.continuous import KERNELS as KERNELS_OF_MOVES
from pymc_dpgmm.integration.steps.continuous import STATISTICS as STATISTICS_OF_MOVES
from pymc_dpgmm.integration.steps.continuous import ContinuousMove, LatentClusters, MovingPart
from pymc_dpgmm.integration.steps.grouped import GroupedTarget, TopicsTarget, is_grouped, is_openers, is_topics
from pymc_dpgmm.integration.steps.hyperparameters import Hyperparameters, hyperparameters_of_step
from pymc_dpgmm.integration.steps.latent_rows import KnownOfRows, LatentRows, labels_of_rows
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.steps.scale_trials import scale_trials
from pymc_dpgmm.integration.steps.statistics import OF_CHAINS_ALONE, OF_PARTITIONS, MoveStatistics, of_partition
from pymc_dpgmm.integration.steps.targets import KeptState, LabelsTarget, is_labels
from pymc_dpgmm.integration.variables.atoms import atoms_inputs, is_atoms
from pymc_dpgmm.native.compiled import compiling
from pymc_dpgmm.sampler.amounts import ROWS_TOO_MANY_TO_RECOMBINE, SWEEPS_ALONE, SWEEPS_BESIDE_OTHERS
from pymc_dpgmm.sampler.hamiltonian.no_u_turn import Told
from pymc_dpgmm.sampler.tuning.comparison import STAYED
from pymc_dpgmm.sampler.tuning.corrected import CorrectedSchedule
from pymc_dpgmm.sampler.tuning.exchange import Exchange
from pymc_dpgmm.sampler.tuning.levels import Levels
from pymc_dpgmm.sampler.tuning.preparation import begin, finish, functions_of
from pymc_dpgmm.sampler.tuning.schedule import DrawReport, LabelsSchedule, Options, Schedule, no_tally
from pymc_dpgmm.sampler.tuning.topic_schedule import TopicSchedule


@dataclass_state
class LabelsStepState(StepMethodState):
    """Sampling state of a labels step: the kept states make a repeated draw equal to the last bit."""

    tune: bool
    prepared: list[Any]
    schedules: list[LabelsSchedule]
    widths: dict[str, Any]
    known_of_rows: dict[str, Any]
    learnt: Any


# In place of the shape and rate of a gamma prior, where a concentration is not drawn with its labels.
_NOT_DRAWN = (0.0, 0.0)


def _rv_of(model: pm.Model, value: Variable) -> Variable:
    return model.values_to_rvs[value]


def _target_of(model: pm.Model, value: Variable) -> Any:
    rv = _rv_of(model, value)
    kind = TopicsTarget if is_topics(rv) else GroupedTarget if is_grouped(rv) else LabelsTarget
    return kind(model, value)


def _refuse_atoms(model: pm.Model, values: Sequence[Variable]) -> None:
    """Raise TypeError for labels that cannot change without the parameters of their rows."""
    for rv in model.free_RVs:
        if is_atoms(rv) and model.rvs_to_values[atoms_inputs(rv)[0]] in values:
            raise TypeError(
                f"{atoms_inputs(rv)[0].name} are the labels of a dp.DirichletProcess, which are sampled together "
                f"with {rv.name}: use dp.DirichletProcessStep, or leave the step to pm.sample"
            )


def _latent_rows_of(
    model: pm.Model, targets: Sequence[LabelsTarget], rows: Sequence[Variable], compile_kwargs: Any
) -> tuple[list[list[LatentRows]], dict[Variable, tuple[int, int]]]:
    """Return the latent rows of each target that are drawn with their labels, and where all latent mixtures are.

    ``rows`` are their value variables; several mixtures may be on the same labels. Of each mixture the second
    result has the position of its target, and its view there.

    Raises
    ------
    ValueError
        If there are rows of other labels.
    """
    names = [target.name for target in targets]
    latent: list[list[LatentRows]] = [[] for _ in targets]
    places = {}
    for rv in (_rv_of(model, value) for value in rows):
        labels = model.rvs_to_values[labels_of_rows(rv)].name
        if labels not in names:
            raise ValueError(
                f"{rv.name} can be drawn here together with {labels} only: give these too, or leave the rows to "
                "another step"
            )
        position = names.index(labels)
        target = targets[position]
        places[rv] = position, [own.name for own in target.mixtures].index(rv.name)
        if row_terms_of(model, rv) is not None:
            latent[position].append(LatentRows(model, target, rv, compile_kwargs))
    return latent, places


def _refuse_options(targets: Sequence[LabelsTarget], options: Options) -> None:
    """Raise NotImplementedError for options that some targets cannot have."""
    named = [t.name for t in targets if not t.has_moves]
    if named and options.n_scans == 0:
        raise NotImplementedError(
            f"{', '.join(named)} are topics with names, for which there are no split and merge moves; leave "
            "the step to pm.sample, or use dp.CollapsedGibbs"
        )
    without = [t.name for t in targets if not t.takes_leaders]
    if options.leader_sweeps and without:
        raise NotImplementedError(
            f"there are no leader sweeps for {', '.join(without)}: they are for labels of rows that are in no "
            "groups and no units, of which no clusters are known and no view has a power, and on which mixtures "
            "alone depend; leave out leader_sweeps"
        )


class LabelsStep(PartitionStep):
    """Samples labels by moves each of which leaves their posterior invariant, except while tuning.

    Sampler statistics, per draw and prefixed by the labels' name: ``n_clusters``; ``largest_share``, the share of
    rows in the largest cluster; ``entropy`` of the clusters' shares, in nats; ``n_moved``, relocations of single
    rows; ``log_joint``, the log density of labels and data given everything else, before hyperparameters are
    drawn; ``searching``, whether the draw was a search; ``restarted``, whether the chain's search had ended so far
    below another one's that it began anew at the clusters of that, ``alone_lower``, by how many nats, and
    ``alone_distance``, how far the partitions were apart (variation of information, in bits; both are 0 where it
    did not); ``seconds`` that the draw of the labels took;
    for each latent mixture that is drawn with them, ``<its name>_accepted``, the share of accepted proposals; and
    for each kind of split and merge move, prefixed by its name: ``splits_tried``, ``splits`` (accepted),
    ``split_size`` (mean rows in the smaller halves, NaN where none was accepted), and the same for merges. For
    each other variable that is drawn by slices, or depends on the labels, ``<its name>_impossible``: at how many
    evaluations its log density was +inf or NaN, which are impossible values.
    """

    _state_class = LabelsStepState
    # Set by ``integration/hooks/chains.py`` while several chains run, which tell each other what they have found.
    exchange: Exchange | None = None
    # Whether they do.
    share = True

    def _n_rows(self, target: LabelsTarget) -> int:
        return target.n_rows

    def _setup(
        self,
        vars: Sequence[Any] | None,
        model: pm.Model,
        options: Options,
        rng: Any,
        compile_kwargs: dict[str, Any] | None,
        concentrations: Sequence[Variable] = (),
        imputed: Sequence[Variable] = (),
        hyperparameters: Sequence[Variable] = (),
        rows: Sequence[Variable] = (),
        continuous: Sequence[Variable] = (),
        of_nuts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        labels = [rv for rv in model.free_RVs if is_labels(rv)] if vars is None else vars
        self.vars = [v for v in get_value_vars_from_user_vars(labels, model) if not is_openers(_rv_of(model, v))]
        _refuse_atoms(model, self.vars)
        targets = [_target_of(model, value) for value in self.vars]
        self._of_moves = MoveStatistics()
        # What is reported where labels stay, since the rest of the model has density zero.
        self._nothing = DrawReport(0, -np.inf, no_tally(), False)
        of_tuning = {"searching": np.bool_, "restarted": np.bool_, **dict.fromkeys(OF_CHAINS_ALONE, np.float64)}
        statistics = OF_PARTITIONS | of_tuning | self._of_moves.dtypes
        self.latent, places = _latent_rows_of(model, targets, rows, compile_kwargs)
        moving = {rv: place for rv, place in places.items() if can_move(model, rv)}
        self._with_rows = sorted({position for position, _ in places.values()})
        self.continuous = None
        if moving or continuous:
            start = model.initial_point(random_seed=0)
            parts: list[tuple[ModelPart, MovingPart]] = []
            for rv, (position, view) in moving.items():
                own = LatentClusters(
                    model, rv, targets[position], position, view, len(start[model.rvs_to_values[rv].name])
                )
                parts.append((RowsPart(model, rv, start), own))
            self.continuous = ContinuousMove(model, continuous, parts, compile_kwargs, **of_nuts)
        of_targets = {
            target.name: {latent.statistic: np.float64 for latent in of_target}
            for target, of_target in zip(targets, self.latent, strict=True)
        }
        self._set_targets(targets, statistics, rng, compile_kwargs, of_targets)
        _refuse_options(targets, options)
        openers = [t.openers for t in self.targets if t.openers is not None]
        with_labels = [*openers, *concentrations, *imputed, *hyperparameters, *rows, *continuous]
        self.vars += list(dict.fromkeys(with_labels))
        self.hyperparameters = hyperparameters_of_step(model, hyperparameters, targets, compile_kwargs)
        self.scale_trials = scale_trials(self.targets, self.hyperparameters, ROWS_TOO_MANY_TO_RECOMBINE)
        depending = [target.dependents for target in targets if target.dependents is not None]
        by_slices = [group for group in self.hyperparameters if isinstance(group, Hyperparameters)]
        self._watch([*by_slices, *([] if self.continuous is None else [self.continuous]), *depending])
        if self.continuous is not None:
            self._record(STATISTICS_OF_MOVES)
        self.widths: dict[str, np.ndarray] = {}
        self.known_of_rows: dict[str, KnownOfRows] = {}
        self.learnt = None if self.continuous is None else self.continuous.learnt(0)
        self.imputed = [value.name for value in imputed]
        mixtures = [mixture for target in self.targets for mixture in target.mixtures]
        drawn_missing = [m.family for m in mixtures if m.missing is not None and m.missing.name in self.imputed]
        if any(target.has_moves for target in self.targets):
            others = dict.fromkeys(kernel for of in self.latent for one in of for kernel in one.kernels)
            others |= dict.fromkeys(KERNELS_OF_MOVES if self.continuous is not None else ())
            others |= dict.fromkeys(kernel for group in self.hyperparameters for kernel in group.kernels)
            families = [m.sampled_family for m in mixtures]
            begin(functions_of(families, options, drawn_missing, list(others)), families)
        drawn = [Concentration(model, value) for value in concentrations]
        strangers = [c.name for c in drawn if c.labels not in {t.name for t in self.targets}]
        if strangers:
            raise ValueError(
                f"{', '.join(strangers)} can be drawn here together with its own labels only; use "
                "dp.ConcentrationGibbs for a concentration alone"
            )
        self.concentrations = [{c.role: c for c in drawn if c.labels == target.name} for target in self.targets]
        self.options = options
        is_alone = set(model.value_vars) == set(self.vars)
        self.sweeps = SWEEPS_ALONE if is_alone else SWEEPS_BESIDE_OTHERS
        self.prepared: list[KeptState | None] = [None] * len(self.targets)
        self.schedules = self._new_schedules(0)

    def prepare(self, point: Mapping[str, np.ndarray]) -> None:
        """Note with which data the labels are sampled, which may have changed; compile before chains begin."""
        for target in self.targets:
            for mixture in target.mixtures:
                mixture.note_sampling()
        with compiling.announced("the moves of labels and latent rows"), np.errstate(all="ignore"):
            for latent in (one for of_target in self.latent for one in of_target):
                latent.prepare(point)
            if self.continuous is not None:
                self.continuous.prepare(point)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain: its own random numbers, and nothing kept from the last one."""
        finish()
        super().setup_chain(rng, tune, draws)
        for latent in (one for of_target in self.latent for one in of_target):
            latent.begin()
        self.tune = tune > 0
        self.prepared = [None] * len(self.targets)
        self.schedules = self._new_schedules(tune)
        self.widths = {}
        self.known_of_rows = {}
        self.learnt = None if self.continuous is None else self.continuous.learnt(tune)

    def stop_tuning(self) -> None:
        """End tuning; a chain whose search has not come to its end has nothing to tell others."""
        super().stop_tuning()
        if self.learnt is not None:
            self.learnt.step_size.end()
        for schedule in self.schedules:
            schedule.leave()

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw the labels, and the hyperparameters that go with them, given everything else in the point."""
        point = dict(point)
        told = self._sweep_rows(point)
        point, statistics = super().step(point)
        states = [None if prepared is None else prepared.state for prepared in self.prepared]
        for group in (group for group in self.hyperparameters if not group.moves_rows):
            group.draw(self.rng, point, states, self.widths, self.tune)
        for position, trial in self.scale_trials.items() if self.tune else ():
            schedule, prepared = self.schedules[position], self.prepared[position]
            if schedule.tries_scales and prepared is not None:
                bettered = trial.tried(self.rng, point, prepared)
                schedule.note_trial(bettered is not None)
                if bettered is not None:
                    point, self.prepared[position] = bettered
        states = [None if prepared is None else prepared.state for prepared in self.prepared]
        # The states have the rows of before until the next draw.
        for group in (group for group in self.hyperparameters if group.moves_rows):
            group.draw(self.rng, point, states, self.widths, self.tune)
        statistics[0].update(self._impossible())
        if self.continuous is not None and self.learnt is not None:
            statistics[0].update(self.continuous.statistics(told, self.learnt.step_size.size))
        return point, statistics

    def _sweep_rows(self, point: dict[str, np.ndarray]) -> Told | None:
        """Draw all that is continuous, and latent rows with their labels; return what the move tells of itself."""
        self._accepted = [
            dict.fromkeys((latent.statistic for latent in of_target), math.nan) for of_target in self.latent
        ]
        if self.continuous is None and not any(self.latent):
            return None
        held: list[Any] = list(self.prepared)
        if not self._take(point, held):
            return None
        for position in self._with_rows:
            labels = self.targets[position].labels_of(held[position].state)
            if not np.array_equal(point[self.targets[position].name], labels):
                # Labels that a user has begun with, and that other variables may know by their names.
                return None
        told = None
        if self.continuous is not None and self.learnt is not None:
            told = self.continuous.draw(self.rng, point, held, self.learnt, self.tune)
            # Priors, and other rows, may depend on what has moved.
            if not self._take(point, held):
                self.prepared = held
                return told
        for position in self._with_rows:
            target = self.targets[position]
            for latent in self.latent[position]:
                known = self.known_of_rows.setdefault(latent.name, KnownOfRows())
                held[position], accepted = latent.draw(self.rng, point, target, held[position], known, self.tune)
                self._accepted[position][latent.statistic] = accepted
                point[target.name] = held[position].labels
        self.prepared = held
        return told

    def _take(self, point: dict[str, np.ndarray], held: list[Any]) -> bool:
        """Let the states of the labels of latent rows be those at a point; tell whether all have a density there.

        Where the rest of the model has density zero, labels have no posterior: they wait.
        """
        for position in self._with_rows:
            target = self.targets[position]
            prior = target.prior(point)
            held[position] = None if prior is None else target.state(point, prior, held[position])
            if prior is None or held[position] is None:
                return False
            held[position].state.set_prior(prior)
        return True

    def _new_schedules(self, tune: int) -> list[LabelsSchedule]:
        return [self._new_schedule(target, tune) for target in self.targets]

    def _new_schedule(self, target: Any, tune: int) -> LabelsSchedule:
        if target.dependents is not None:
            return CorrectedSchedule(self.options)
        exchange = self.exchange
        chain = chain_of_process() if exchange is None or exchange.chain is None else exchange.chain
        others = None if exchange is None or chain is None else exchange.place(chain, target.name)
        if not target.has_moves:
            return TopicSchedule(self.options, Levels(tune, others))
        leader_sweeps = self.options.leader_sweeps if target.takes_leaders else 0
        options = self.options._replace(
            search=self.options.search and target.may_search, leader_sweeps=leader_sweeps
        )
        tells_level = self.options.search and not target.may_search
        levels = Levels(tune, others) if tells_level else None
        return Schedule(options, tune, self.sweeps, others, levels=levels)

    def _draw(self, position: int, target: LabelsTarget, point: dict[str, np.ndarray]) -> dict[str, Any]:
        started = time.perf_counter()
        concentrations, schedule = self.concentrations[position], self.schedules[position]
        if self.tune:
            schedule.begin_draw()
        prior = target.prior(point)
        prepared = None if prior is None else target.state(point, prior, self.prepared[position])
        drawn = self._nothing
        # Where the rest of the model has density zero, labels have no posterior: they wait.
        if prepared is not None and prior is not None:
            laws = {role: concentration.law(point) for role, concentration in concentrations.items()}
            prepared.state.set_prior(prior, laws.get("alpha", _NOT_DRAWN))
            if self.imputed:
                prepared = target.impute(self.rng, point, prepared, self.imputed)
            if not schedule.searches(self.tune):
                own = (*laws.get("alpha", _NOT_DRAWN), *laws.get("gamma", _NOT_DRAWN))
                target.enter(self.rng, point, prepared.state, own)
            state, drawn = schedule.draw(self.rng, prepared.state, self.tune, target.rest(point, prepared.state))
            if drawn.rest is not None:
                drawn.rest.write(point)
            if target.has_drawn_concentrations(state):
                for role, concentration in concentrations.items():
                    concentration.write(point, getattr(state, role))
            target.leave(point, state)
            labels = target.labels_of(state)
            self.prepared[position] = prepared._replace(labels=labels, state=state)
            point[target.name] = labels
        if self.tune:
            schedule.end_draw()
        sizes = target.sizes(point, self.prepared[position] if prepared is not None else None)
        return {
            **of_partition(sizes, drawn.n_moved, drawn.log_joint),
            "searching": drawn.searching,
            "restarted": schedule.left is not None,
            **dict(zip(OF_CHAINS_ALONE, schedule.left or STAYED, strict=True)),
            **self._of_moves.of(drawn.tally),
            **self._accepted[position],
            "seconds": time.perf_counter() - started,
        }
