"""The step of change points: all segments at once, exactly, given everything else."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.internals.pymc_internals import (
    Competence,
    StepMethodState,
    dataclass_state,
    get_value_vars_from_user_vars,
)
from pymc_dpgmm.integration.steps.hyperparameters import governing
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.steps.points import PointFunction
from pymc_dpgmm.integration.steps.prior_slices import PriorSlices
from pymc_dpgmm.integration.steps.statistics import OF_PARTITIONS, of_partition
from pymc_dpgmm.integration.steps.targets import LabelsTarget, Prepared
from pymc_dpgmm.integration.variables.segment_labels import is_segments, sequences_in
from pymc_dpgmm.native.compiled import compiling
from pymc_dpgmm.sampler.segments.filtering import SegmentFilter
from pymc_dpgmm.sampler.state.state import State

STATISTICS: dict[str, Any] = OF_PARTITIONS | {"log_marginal": np.float64}


@dataclass_state
class ChangePointsStepState(StepMethodState):
    """Sampling state: widths of slices. Segments do not depend on those of earlier draws."""

    tune: bool
    widths: dict[str, Any]


class SegmentsTarget(LabelsTarget):
    """Numbers of segments of rows in order, and the mixtures on them."""

    has_moves = False

    def __init__(self, model: pm.Model, value: Variable) -> None:
        super().__init__(model, value)
        rv = model.values_to_rvs[value]
        self.sequences = sequences_in(rv)
        self.probability = rv.owner.op.dist_params(rv.owner)[0]
        self._p = PointFunction(model, [self.probability])
        self.filter = SegmentFilter(self.sequences)

    def p_at(self, point: dict[str, np.ndarray]) -> float | None:
        """Return the probability of a change at a point, None outside its support."""
        p = float(self._p(point)[0])
        return p if 0.0 < p < 1.0 else None

    @property
    def n_neighbours(self) -> int:
        """How many rows there are that may begin a segment or not."""
        return len(self.sequences.rows) - len(self.sequences.starts) + 1

    def n_changes(self, state: State) -> int:
        """Return the number of changes in a state."""
        return state.n_clusters - len(self.sequences.starts) + 1

    def labels_of(self, state: State) -> np.ndarray:
        """Return the numbers of segments in the order of the rows."""
        return self.sequences.labels(self.sequences.begins(state.slots)).astype(self.dtype)


class ChangePointsStep(PartitionStep):
    """Draws the segments of rows in order, all of them at once and exactly, given everything else.

    ``pm.sample`` assigns it automatically to the labels of :func:`ChangePoints`.

    Parameters
    ----------
    vars : list of variables, optional
        Labels of change points, and continuous variables that govern nothing but the probability of a change,
        which are then drawn by slices of the marginal likelihood of all segmentations. By default all of the
        model.

    Notes
    -----
    Sampler statistics, per draw and prefixed by the labels' name: ``n_clusters``, the number of segments,
    ``largest_share``, ``entropy``, ``log_joint``, ``n_moved`` and ``seconds`` as for other labels; and
    ``log_marginal``, the log density of the rows given everything else, summed over all segmentations. Where
    other variables or potentials depend on the segments, an exact draw without them is proposed, and accepted by
    how much more probable they are with it.
    """

    name = "change_points"
    _state_class = ChangePointsStepState

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        by_labels = governing_changes(model)
        everything = [rv for labels, governing in by_labels.items() for rv in (labels, *governing)]
        self.vars = get_value_vars_from_user_vars(everything if vars is None else vars, model)
        given = [model.values_to_rvs[value] for value in self.vars]
        labels = [rv for rv in given if is_segments(rv)]
        strangers = [
            rv.name for rv in given if rv not in labels and all(rv not in by_labels[own] for own in labels)
        ]
        if strangers:
            raise TypeError(
                f"{', '.join(strangers)} cannot be drawn with change points, whose step draws labels, and "
                "continuous variables that govern nothing but their probability: leave them out"
            )
        targets = [SegmentsTarget(model, model.rvs_to_values[rv]) for rv in labels]
        self._set_targets(targets, STATISTICS, rng, compile_kwargs)
        self._probabilities = []
        for target, rv in zip(targets, labels, strict=True):
            values = [model.rvs_to_values[own] for own in by_labels[rv] if own in given]
            self._probabilities.append(
                PriorSlices(model, [target.probability], values, compile_kwargs) if values else None
            )
        self._watch([target.dependents for target in targets if target.dependents is not None])
        self.prepared: list[Prepared | None] = [None] * len(self.targets)
        self.widths: dict[str, np.ndarray] = {}

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Tell PyMC that the step takes the labels of change points."""
        return Competence.IDEAL if is_segments(var) else Competence.INCOMPATIBLE

    def prepare(self, point: Mapping[str, np.ndarray]) -> None:
        """Note with which data the labels are sampled; compile before chains begin."""
        with compiling.announced("the draws of segments"), np.errstate(all="ignore"):
            for target in self.targets:
                for mixture in target.mixtures:
                    mixture.note_sampling()
                prepared = target.state(dict(point), None, None)
                if prepared is not None:
                    rng = np.random.default_rng(0)
                    prepared.state.use(rng)
                    target.filter.take(prepared.state, 0.5)
                    target.filter.draw(rng, 0.25)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain with its own random numbers."""
        super().setup_chain(rng, tune, draws)
        self.tune, self.prepared, self.widths = tune > 0, [None] * len(self.targets), {}

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw the segments, and the probabilities that go with them, given everything else in the point."""
        point, statistics = super().step(point)
        statistics[0].update(self._impossible())
        return point, statistics

    def _draw(self, position: int, target: SegmentsTarget, point: dict[str, np.ndarray]) -> dict[str, Any]:
        started = time.perf_counter()
        p, before, log_joint = target.p_at(point), point[target.name], -np.inf
        last = self.prepared[position]
        prepared = None if p is None else target.state(point, None, last)
        # Where the rest of the model has density zero, labels have no posterior: they wait.
        if prepared is not None and p is not None:
            state = prepared.state
            state.use(self.rng)
            if prepared is not last:
                target.filter.take(state, p)
            probability, rest = self._probabilities[position], target.rest(point, state)
            if probability is not None:
                # Summed over all segmentations, where nothing else depends on the segments, so that p does not
                # follow those of the last draw.
                given = None if rest is None else (target.n_changes(state), target.n_neighbours)

                def log_density(p: float, target: SegmentsTarget = target, given: Any = given) -> float:
                    if not 0.0 < p < 1.0:
                        return -math.inf
                    return target.filter.log_marginal_at(p) if given is None else log_changes(p, *given)

                probability.draw(self.rng, point, self.widths, self.tune, log_density)
                p = target.p_at(point)
                assert p is not None
            labels = target.filter.draw(self.rng, p)
            state.relabel(labels)
            if rest is not None:
                # An independent proposal from the posterior without the rest.
                proposed = rest.proposed(state)
                if rest.value == -np.inf or np.log(self.rng.random()) < proposed.value - rest.value:
                    rest = proposed
                else:
                    labels = before.astype(np.int64)
                    state.relabel(labels)
                rest.write(point)
            named = labels.astype(target.dtype)
            self.prepared[position] = prepared._replace(labels=named)
            point[target.name] = named
            log_joint = _log_joint(target, state, p) + (0.0 if rest is None else rest.value)
        after = point[target.name]
        return {
            **of_partition(np.bincount(after), int(np.sum(after != before)), log_joint),
            "log_marginal": target.filter.log_marginal_at(p)
            if prepared is not None and p is not None
            else -np.inf,
            "seconds": time.perf_counter() - started,
        }


def governing_changes(model: pm.Model) -> dict[Variable, list[Variable]]:
    """Return, by labels of change points, continuous variables that govern nothing but their probability."""
    found = {rv: governing(model, {rv}, set()) for rv in model.free_RVs if is_segments(rv)}
    return {rv: [own for own in model.free_RVs if own in of_labels] for rv, of_labels in found.items()}


def log_changes(p: float, n_changes: int, n_neighbours: int) -> float:
    """Return the log probability of changes between some neighbours and none between the others."""
    return n_changes * math.log(p) + (n_neighbours - n_changes) * math.log1p(-p)


def _log_joint(target: SegmentsTarget, state: State, p: float) -> float:
    """Return the log density of segments and rows together."""
    slots = state.order[: state.n_clusters].tolist()
    evidence = sum(table.log_evidence(k) for table in state.tables for k in slots)
    return evidence + log_changes(p, target.n_changes(state), target.n_neighbours)
