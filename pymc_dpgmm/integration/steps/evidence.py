"""The clusters of a mixture as a step has them, and their log evidence at other parameters of the base measure."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.steps.targets import LabelsTarget
from pymc_dpgmm.integration.variables import as_numbers, mixture_inputs
from pymc_dpgmm.native.compiled import CFunction
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.table import Table
from pymc_dpgmm.sampler.state.table_functions import evidence_functions


class ClustersOfMixture:
    """The sums of the clusters of one mixture.

    Parameters
    ----------
    mixture : variable
    targets : sequence of LabelsTarget
        All labels of a step, in the order in which states are given.
    """

    def __init__(self, mixture: Variable, targets: Sequence[LabelsTarget]) -> None:
        self.family = mixture.owner.op.layout.family
        found = [
            (t, v)
            for t, target in enumerate(targets)
            for v, own in enumerate(target.mixtures)
            if own.name == mixture.name
        ]
        if not found:
            labels = mixture_inputs(mixture).labels
            raise ValueError(
                f"hyperparameters of {mixture.name} can be drawn here together with its labels only: give "
                f"{labels.name} too, or leave the hyperparameters to another step"
            )
        ((self.target, self.view),) = found
        self._state: State | None = None
        self._table: Any = None

    def take(self, state: State) -> tuple[Table, int]:
        """Return a table that has the clusters of a state in its first slots, and their number."""
        given = state.tables[self.view]
        if state is not self._state:
            self._state, self._table = state, given.for_evidence()
        slots = state.order[: state.n_clusters]
        self._table.take_clusters(given, slots, state.slots_of_rows(self.view))
        return self._table, len(slots)


class EvidenceOfMixture:
    """The log evidence of the clusters of a mixture, as a function of the parameters of its base measure.

    Parameters
    ----------
    mixture : variable
    names : sequence of str
        Of the parameters that change; the others are numbers.
    targets : sequence of LabelsTarget
    """

    def __init__(self, mixture: Variable, names: Sequence[str], targets: Sequence[LabelsTarget]) -> None:
        self.names = names
        self._clusters = ClustersOfMixture(mixture, targets)
        self.target = self._clusters.target
        self.table: Any = None
        self.n_clusters = 0
        self._params: Any = None

    @property
    def kernels(self) -> list[CFunction]:
        """What is called for draws without Python."""
        return evidence_functions(self._clusters.family)

    def begin(self, state: State) -> None:
        """Take the clusters of a state."""
        self._params = state.tables[self._clusters.view].params
        self.table, self.n_clusters = self._clusters.take(state)

    def at(self, params: Sequence[np.ndarray]) -> float:
        """Return the log evidence at values of what changes; minus infinity outside their support."""
        numbers = self._params._replace(**dict(zip(self.names, as_numbers(params), strict=True)))
        if not self._clusters.family.supports(numbers, self.names):
            return -math.inf
        self.table.set_params_of_evidence(numbers)
        evidence: float = self.table.total_log_evidence(self.n_clusters)
        return evidence
