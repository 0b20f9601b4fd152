"""The step of change points: all segments at once, exactly, given everything else."""

import math
import time
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.steps.ordered_rows import OrderedRowsStep, OrderedRowsTarget
from pymc_dpgmm.integration.steps.points import PointFunction
from pymc_dpgmm.integration.steps.statistics import OF_PARTITIONS, of_partition
from pymc_dpgmm.integration.variables.segment_labels import is_segments, sequences_in
from pymc_dpgmm.sampler.segments.filtering import SegmentFilter
from pymc_dpgmm.sampler.state.state import State


class SegmentsTarget(OrderedRowsTarget):
    """Numbers of segments of rows in order, and the mixtures on them."""

    def __init__(self, model: pm.Model, value: Variable) -> None:
        super().__init__(model, value)
        rv = model.values_to_rvs[value]
        self.sequences = sequences_in(rv)
        self.numbers = [rv.owner.op.dist_params(rv.owner)[0]]
        self._p = PointFunction(model, self.numbers)
        self.filter = SegmentFilter(self.sequences)

    @classmethod
    def is_for(cls, rv: Variable) -> bool:
        """Tell whether a variable is a vector of labels of segments."""
        return is_segments(rv)

    def compile(self, point: dict[str, np.ndarray]) -> None:
        """Make a draw at a point, in order to compile what it needs."""
        prepared = self.state(point, None, None)
        if prepared is not None:
            rng = np.random.default_rng(0)
            prepared.state.use(rng)
            self.filter.take(prepared.state, 0.5)
            self.filter.draw(rng, 0.25)

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


class ChangePointsStep(OrderedRowsStep):
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
    _target, _statistics = SegmentsTarget, OF_PARTITIONS | {"log_marginal": np.float64}
    _what = "change points", "their probability"

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
            probability, rest = self._slices[position], target.rest(point, state)
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


def log_changes(p: float, n_changes: int, n_neighbours: int) -> float:
    """Return the log probability of changes between some neighbours and none between the others."""
    return n_changes * math.log(p) + (n_neighbours - n_changes) * math.log1p(-p)


def _log_joint(target: SegmentsTarget, state: State, p: float) -> float:
    """Return the log density of segments and rows together."""
    slots = state.order[: state.n_clusters].tolist()
    evidence = sum(table.log_evidence(k) for table in state.tables for k in slots)
    return evidence + log_changes(p, target.n_changes(state), target.n_neighbours)
