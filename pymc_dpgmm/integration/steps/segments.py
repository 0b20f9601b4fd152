"""The step of change points: all segments at once, exactly, given everything else."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.internals.direct import DirectFunction
from pymc_dpgmm.integration.internals.pymc_internals import (
    Competence,
    StepMethodState,
    dataclass_state,
    get_value_vars_from_user_vars,
)
from pymc_dpgmm.integration.steps.hyperparameters import governing
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.steps.points import PointFunction
from pymc_dpgmm.integration.steps.statistics import OF_PARTITIONS, of_partition
from pymc_dpgmm.integration.steps.targets import LabelsTarget, Prepared
from pymc_dpgmm.integration.variables.models import values_behind
from pymc_dpgmm.integration.variables.segment_labels import is_segments, sequences_in
from pymc_dpgmm.native.array_calls import PythonCall
from pymc_dpgmm.native.compiled import compiling
from pymc_dpgmm.sampler.hyperparameters.coordinate_slices import CoordinateSlices
from pymc_dpgmm.sampler.segments.filtering import SegmentFilter
from pymc_dpgmm.sampler.state.state import State

STATISTICS: dict[str, Any] = OF_PARTITIONS | {"log_marginal": np.float64}


@dataclass_state
class ChangePointsStepState(StepMethodState):
    """Sampling state: widths of slices. Segments do not depend on those of earlier draws."""

    tune: bool
    widths: dict[str, Any]


class ChangeProbability:
    """The probability of a change, with the variables that govern nothing else, drawn by slices.

    Their density is that of their priors and the marginal likelihood of the rows, summed over all segmentations,
    so that they do not follow the segments of the last draw. Where something else depends on the segments, it is
    that of their priors and of the number of changes.

    Parameters
    ----------
    model : pm.Model
    probability : variable or number
    rows : SegmentFilter
        Of the rows that may change.
    values : sequence of variables
        Value variables, all of them continuous.
    compile_kwargs : dict, optional
    """

    def __init__(
        self,
        model: pm.Model,
        probability: Variable,
        rows: SegmentFilter,
        values: Sequence[Variable],
        compile_kwargs: Any,
    ) -> None:
        self.names, self._filter = [value.name for value in values], rows
        rvs = [model.values_to_rvs[value] for value in values]
        expressions = [model.logp(vars=rvs), *model.replace_rvs_by_values([probability])]
        inputs = values_behind(model, expressions)
        self._inputs = [value.name for value in inputs]
        self._function = DirectFunction(inputs, expressions, **(compile_kwargs or {}))
        self._dtypes = [value.dtype for value in inputs]
        start = model.initial_point(random_seed=0)
        self._arguments = [np.array(start[name], dtype=np.float64, order="C") for name in self._inputs]
        self._slices: CoordinateSlices | None = None
        self._given: tuple[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Addresses belong to one process.
        return {**self.__dict__, "_slices": None}

    def draw(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        widths: dict[str, np.ndarray],
        tuning: bool,
        given: tuple[int, int] | None = None,
    ) -> None:
        """Draw the variables in a point, one coordinate after the other. The filter has the rows.

        ``given`` are the numbers of changes and of neighbours, where it is these that count.
        """
        self._given = given
        for own, name in zip(self._arguments, self._inputs, strict=True):
            own[...] = point[name]
        if self._slices is None:
            kinds = [(array.dtype, array.ndim) for array in self._arguments]
            self._slices = CoordinateSlices(PythonCall(self._log_density, kinds), [np.empty(1)], 0)
        drawn = [self._arguments[self._inputs.index(name)] for name in self.names]
        own_widths = [widths.setdefault(name, np.ones(np.shape(point[name]))) for name in self.names]
        if self._slices.draw(rng, self._arguments, drawn, own_widths, tuning) is None:
            raise RuntimeError(f"the log density of {', '.join(self.names)} could not be computed")
        for name, array in zip(self.names, drawn, strict=True):
            point[name] = array.astype(np.asarray(point[name]).dtype)

    def _log_density(self, *arrays: np.ndarray) -> list[np.ndarray]:
        typed = [array.astype(t, copy=False) for array, t in zip(arrays, self._dtypes, strict=True)]
        prior, p = (float(value) for value in self._function(*typed))
        if not (0.0 < p < 1.0 and -np.inf < prior < np.inf):
            return [np.array(-np.inf)]
        of_rows = self._filter.log_marginal_at(p) if self._given is None else log_changes(p, *self._given)
        return [np.array(prior + of_rows)]


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
            of_target = target.probability, target.filter, values
            self._probabilities.append(ChangeProbability(model, *of_target, compile_kwargs) if values else None)
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
                given = None if rest is None else (target.n_changes(state), target.n_neighbours)
                probability.draw(self.rng, point, self.widths, self.tune, given)
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
