"""The step of change points: all segments at once, exactly, given everything else."""

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
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.steps.points import PointFunction
from pymc_dpgmm.integration.steps.statistics import OF_PARTITIONS, of_partition
from pymc_dpgmm.integration.steps.targets import LabelsTarget, Prepared
from pymc_dpgmm.integration.variables.segment_labels import is_segments, sequences_in
from pymc_dpgmm.native.compiled import compiling
from pymc_dpgmm.sampler.segments.filtering import SegmentFilter
from pymc_dpgmm.sampler.state.state import State

STATISTICS: dict[str, Any] = OF_PARTITIONS | {"log_marginal": np.float64}


@dataclass_state
class ChangePointsStepState(StepMethodState):
    """Sampling state: draws do not depend on earlier ones."""

    tune: bool


class SegmentsTarget(LabelsTarget):
    """Numbers of segments of rows in order, and the mixtures on them."""

    has_moves = False

    def __init__(self, model: pm.Model, value: Variable) -> None:
        super().__init__(model, value)
        rv = model.values_to_rvs[value]
        if self.dependents is not None:
            raise NotImplementedError(
                f"{', '.join(self.dependents.watched)} depends on {self.name}, the numbers of segments, on which "
                "only the rows may depend"
            )
        self.sequences = sequences_in(rv)
        self._p = PointFunction(model, [rv.owner.op.dist_params(rv.owner)[0]])
        self.filter = SegmentFilter(self.sequences)

    def p_at(self, point: dict[str, np.ndarray]) -> float | None:
        """Return the probability of a change at a point, None outside its support."""
        p = float(self._p(point)[0])
        return p if 0.0 < p < 1.0 else None

    def labels_of(self, state: State) -> np.ndarray:
        """Return the numbers of segments in the order of the rows."""
        ordered = state.slots[self.sequences.rows]
        return self.sequences.labels(np.append(True, ordered[1:] != ordered[:-1])).astype(self.dtype)


class ChangePointsStep(PartitionStep):
    """Draws the segments of rows in order, all of them at once and exactly, given everything else.

    ``pm.sample`` assigns it automatically to the labels of :func:`ChangePoints`.

    Parameters
    ----------
    vars : list of variables, optional
        Labels of change points. By default all of the model.

    Notes
    -----
    Sampler statistics, per draw and prefixed by the labels' name: ``n_clusters``, the number of segments,
    ``largest_share``, ``entropy``, ``log_joint``, ``n_moved`` and ``seconds`` as for other labels; and
    ``log_marginal``, the log density of the rows given everything else, summed over all segmentations.
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
        given = [rv for rv in model.free_RVs if is_segments(rv)] if vars is None else vars
        self.vars = get_value_vars_from_user_vars(given, model)
        self._set_targets([SegmentsTarget(model, value) for value in self.vars], STATISTICS, rng, compile_kwargs)
        self.prepared: list[Prepared | None] = [None] * len(self.targets)

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
                    target.filter.draw(rng, prepared.state, 0.5)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain with its own random numbers."""
        super().setup_chain(rng, tune, draws)
        self.tune, self.prepared = tune > 0, [None] * len(self.targets)

    def _draw(self, position: int, target: SegmentsTarget, point: dict[str, np.ndarray]) -> dict[str, Any]:
        started = time.perf_counter()
        p, before, log_joint = target.p_at(point), point[target.name], -np.inf
        prepared = None if p is None else target.state(point, None, self.prepared[position])
        # Where the rest of the model has density zero, labels have no posterior: they wait.
        if prepared is not None and p is not None:
            state = prepared.state
            state.use(self.rng)
            labels = target.filter.draw(self.rng, state, p)
            state.relabel(labels)
            named = labels.astype(target.dtype)
            self.prepared[position] = prepared._replace(labels=named)
            point[target.name] = named
            log_joint = _log_joint(target, state, p)
        after = point[target.name]
        return {
            **of_partition(np.bincount(after), int(np.sum(after != before)), log_joint),
            "log_marginal": float(target.filter.log_marginal[0]) if prepared is not None else -np.inf,
            "seconds": time.perf_counter() - started,
        }


def _log_joint(target: SegmentsTarget, state: State, p: float) -> float:
    """Return the log density of segments and rows together."""
    n_may, n_changes = int(target.sequences.may_change.sum()), state.n_clusters - len(target.sequences.starts) + 1
    slots = state.order[: state.n_clusters].tolist()
    evidence = sum(table.log_evidence(k) for table in state.tables for k in slots)
    return evidence + n_changes * float(np.log(p)) + (n_may - n_changes) * float(np.log1p(-p))
