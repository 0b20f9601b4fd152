"""Divisions of clusters that are tried together with the learnt scale that fits them, while a chain searches."""

import math
from collections.abc import Sequence

import numpy as np

from pymc_dpgmm.integration.steps.learnt_scales import LearntScaleDraw
from pymc_dpgmm.integration.steps.targets import KeptState, LabelsTarget
from pymc_dpgmm.sampler.amounts import DIVISIONS_TO_CHOOSE_FROM, LARGEST_CHANCE, ROUNDS_OF_SCALE_TRIAL
from pymc_dpgmm.sampler.many_rows import many_rows
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.column_divisions import column_divisions
from pymc_dpgmm.sampler.tuning.population import relabelled


class ScaleTrial:
    """Trials of divisions of the clusters of a target, along columns of one mixture that learns its scale.

    Parameters
    ----------
    target : LabelsTarget
    position : int
        Of the target among those of the step.
    n_targets : int
    drawn : sequence of LearntScaleDraw
        The scales of all mixtures on the labels, of which the first one's rows are divided.
    """

    def __init__(
        self, target: LabelsTarget, position: int, n_targets: int, drawn: Sequence[LearntScaleDraw]
    ) -> None:
        self._target, self._position, self._n_targets, self._drawn = target, position, n_targets, drawn

    def tried(
        self, rng: np.random.Generator, point: dict[str, np.ndarray], prepared: KeptState
    ) -> tuple[dict[str, np.ndarray], KeptState] | None:
        """Return a point with another partition and scale, and what is prepared for it, if it is more probable.

        Parameters
        ----------
        rng : numpy.random.Generator
        point : dict
            Not changed.
        prepared : KeptState
            Of the labels in the point.
        """
        target, prior = self._target, self._target.prior(point)
        now = None if prior is None else target.state(point, prior, prepared)
        if now is None or prior is None:
            return None
        table, labels = now.state.tables[self._drawn[0].place[1]], now.state.labels()
        if table.unit is not None or not isinstance(table.values, np.ndarray):
            return None
        divisions = column_divisions(table.values[:, : self._drawn[0].n_columns], labels)
        if not divisions:
            return None
        merit = self._merit(point, now.state)
        # The best one in half of the trials.
        others = min(len(divisions), DIVISIONS_TO_CHOOSE_FROM)
        chosen = divisions[0 if rng.random() < 0.5 else rng.integers(others)]
        labels[chosen.rows] = labels.max() + 1
        other, adapted = dict(point), now._replace(state=relabelled(now.state, labels))
        for _ in range(ROUNDS_OF_SCALE_TRIAL):
            self._note_labels(other, adapted.state)
            states: list[State | None] = [None] * self._n_targets
            states[self._position] = adapted.state
            for drawn in self._drawn:
                drawn.draw(rng, other, states, {}, True)
            # The views tell which parameters the state has.
            found = target.state(other, prior, adapted._replace(labels=other[target.name]))
            if found is None:
                return None
            adapted = found
            many_rows.scan(rng, adapted.state, 1, 0, 1)
        # Two draws of a scale given one partition differ in log density, with a variance of about its unknowns.
        by_chance = LARGEST_CHANCE * math.sqrt(sum(drawn.n_columns + 2 for drawn in self._drawn))
        if not self._merit(other, adapted.state) > merit + by_chance:
            return None
        self._note_labels(other, adapted.state)
        return other, adapted._replace(labels=other[target.name])

    def _note_labels(self, point: dict[str, np.ndarray], state: State) -> None:
        point[self._target.name] = self._target.labels_of(state)

    def _merit(self, point: dict[str, np.ndarray], state: State) -> float:
        return state.log_joint() + sum(drawn.log_prior(point) for drawn in self._drawn)


def scale_trials(
    targets: Sequence[LabelsTarget], groups: Sequence[object], most_rows: int
) -> dict[int, ScaleTrial]:
    """Return the trials of the targets that have mixtures with learnt scales, by their positions.

    Labels of groups, of topics, of many rows, and those on which other variables depend have none.
    """
    trials = {}
    for position, target in enumerate(targets):
        drawn = [g for g in groups if isinstance(g, LearntScaleDraw) and g.place[0] == position]
        is_plain = type(target) is LabelsTarget and target.dependents is None
        if drawn and is_plain and target.n_rows < most_rows:
            trials[position] = ScaleTrial(target, position, len(targets), drawn)
    return trials
