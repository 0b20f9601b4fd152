"""The clusters of a mixture as a step has them, and their log evidence at other parameters of the base measure."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.steps.targets import LabelsTarget
from pymc_dpgmm.integration.variables import as_numbers, mixture_inputs
from pymc_dpgmm.native.compiled import CFunction
from pymc_dpgmm.sampler.hyperparameters.coordinate_slices import RowsOfClusters
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable, members_of_clusters, places_among
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.table_functions import evidence_functions, sum_up_function


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

    def take(self, state: State) -> tuple[ClusterTable, int]:
        """Return a table that has the clusters of a state in its first slots, and their number."""
        given = state.tables[self.view]
        if state is not self._state:
            self._state, self._table = state, given.for_evidence()
        slots = state.order[: state.n_clusters]
        self._table.take_clusters(given, slots, state.slots_of_rows(self.view))
        return self._table, len(slots)

    def rows(self, state: State) -> RowsOfClusters:
        """Return the rows of the clusters in the table, after :meth:`take`."""
        given, slots = state.tables[self.view], state.order[: state.n_clusters]
        labels = places_among(slots, state.slots_of_rows(self.view))
        sizes = np.bincount(labels, minlength=len(slots))
        return RowsOfClusters(
            np.ascontiguousarray(given.values - given.rows, dtype=np.float64), members_of_clusters(labels), sizes
        )


class EvidenceOfMixture:
    """The log evidence of the clusters of a mixture, as a function of the parameters of its base measure.

    Parameters
    ----------
    mixture : variable
    names : sequence of str
        Of the parameters that change; the others are numbers.
    targets : sequence of LabelsTarget
    moves_rows : bool
        Whether rows change too.
    """

    def __init__(
        self, mixture: Variable, names: Sequence[str], targets: Sequence[LabelsTarget], moves_rows: bool = False
    ) -> None:
        self.names, self.moves_rows = names, moves_rows
        self.rows: RowsOfClusters | None = None
        self._clusters = ClustersOfMixture(mixture, targets)
        self.target = self._clusters.target
        self.table: Any = None
        self.n_clusters = 0
        self._params: Any = None

    @property
    def kernels(self) -> list[CFunction]:
        """What is called for draws without Python."""
        family = self._clusters.family
        return [*evidence_functions(family), *([sum_up_function(family)] if self.moves_rows else [])]

    def begin(self, state: State) -> None:
        """Take the clusters of a state."""
        self._params = state.tables[self._clusters.view].params
        self.table, self.n_clusters = self._clusters.take(state)
        self.rows = self._clusters.rows(state) if self.moves_rows else None

    def at(self, params: Sequence[np.ndarray], values: np.ndarray | None = None) -> float:
        """Return the log evidence at values of what changes; minus infinity outside their support.

        Parameters
        ----------
        params : sequence of arrays
        values : (n, d) array, optional
            The rows, if they change.
        """
        numbers = self._params._replace(**dict(zip(self.names, as_numbers(params), strict=True)))
        if not self._clusters.family.supports(numbers, self.names):
            return -math.inf
        self.table.set_params_of_evidence(numbers)
        if values is not None and self.rows is not None:
            np.subtract(values, self.rows.subtracted, out=self.table.rows)
            self.table.sum_up_members(self.rows.members, self.rows.sizes)
        evidence: float = self.table.total_log_evidence(self.n_clusters)
        return evidence
