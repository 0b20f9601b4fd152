"""Log marginal likelihood of data given labels, with gradients, for models that evaluate it many times.

Between two evaluations usually only parameters change. The sufficient statistics are therefore kept, and
computed anew only when labels or rows differ from those of the last call.
"""

from typing import Any

import numpy as np

from pymc_dpgmm.families import Family, View
from pymc_dpgmm.partitions.known import allow
from pymc_dpgmm.partitions.labels import canonical_labels, cluster_sizes
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable, members_of_clusters

# Arrays of up to so many bytes are compared byte by byte.
FEW_BYTES = 20_000


class PartitionSizes:
    """Sizes of the clusters of labels, kept while the labels stay the same.

    Constraints, if there are any, are those of :mod:`pymc_dpgmm.partitions.known`, and are always the same ones.
    """

    def __init__(self) -> None:
        self._labels = np.empty(0, dtype=np.int64)
        self._sizes = np.empty(0, dtype=np.int64)

    def __call__(self, labels: np.ndarray, constraints: np.ndarray | None = None) -> np.ndarray:
        """Return the sizes of the clusters of ``labels``, empty if constraints are not kept."""
        if not _are_same(labels, self._labels):
            self._sizes = cluster_sizes(labels)
            self._labels = labels.copy()
            if constraints is not None and not allow(constraints, labels):
                self._sizes = self._sizes[:0]
        return self._sizes


def same_values(values: Any, others: Any) -> bool:
    """Tell whether two arrays, or sparse matrices, hold the same numbers."""
    if isinstance(values, np.ndarray):
        # Missing entries are equal; to look for them costs more, and is rarely needed.
        return values is others or np.array_equal(values, others) or np.array_equal(values, others, equal_nan=True)
    return values is others or (values.shape == others.shape and (values != others).nnz == 0)


def _are_same(values: np.ndarray, others: np.ndarray) -> bool:
    """Tell whether two arrays have the same type, shape and bytes, which missing entries have too.

    Of few numbers, bytes are compared in a tenth of the time that NumPy takes to begin.
    """
    if values.shape != others.shape or values.dtype != others.dtype:
        return False
    if values.nbytes <= FEW_BYTES:
        return values.tobytes() == others.tobytes()
    is_real = values.dtype == np.float64
    return (
        np.array_equal(values.view(np.int64), others.view(np.int64)) if is_real else np.array_equal(values, others)
    )


def _are_equal(value: Any, other: Any) -> bool:
    if isinstance(value, np.ndarray) and isinstance(other, np.ndarray):
        return _are_same(value, other)
    return (
        value == other if isinstance(value, float) and isinstance(other, float) else np.array_equal(value, other)
    )


class MarginalLikelihood:
    """Log marginal likelihood and its gradients as functions of labels, rows and parameters.

    Parameters
    ----------
    family : Family
    has_constant_rows : bool
        Whether the rows are the same in all calls.

    Notes
    -----
    Where the labels are no partition (a value outside 0..n-1) or the parameters are outside their support, the
    density is zero: the value is -inf, and the gradients are zero. ValueError is raised where labels and rows
    differ in length.
    """

    def __init__(self, family: Family, has_constant_rows: bool = False) -> None:
        self._family, self._has_constant_rows = family, has_constant_rows
        self._labels = np.empty(0, dtype=np.int64)
        self._values: Any = None
        self._canonical = self._sizes = self._members = np.empty(0, dtype=np.int64)
        self._n_clusters = 0
        self._table: ClusterTable | None = None
        self._params: Any = None
        self._supported = self._has_params = False

    def at(self, labels: np.ndarray, values: Any, params: Any) -> "MarginalLikelihoodAt":
        """Return it at labels (n,), values (n, c) and the family's parameters, until it is asked for others."""
        if self._update(labels, values, params):
            return MarginalLikelihoodAt(params, self._table, self._canonical, self._n_clusters, values.shape)
        return MarginalLikelihoodAt(params, None, labels, 0, values.shape)

    def _has_rows(self, values: Any) -> bool:
        """Tell whether the statistics are those of these rows."""
        same = _are_same if isinstance(values, np.ndarray) else same_values
        return same(values, self._values)

    def _update(self, labels: np.ndarray, values: Any, params: Any) -> bool:
        """Bring the kept statistics up to date; tell whether the density is positive."""
        if len(labels) != values.shape[0]:
            raise ValueError(f"there are {len(labels)} labels, but the data has {values.shape[0]} rows")
        new_params = self._params is None or not all(map(_are_equal, params, self._params))
        if new_params:
            self._supported = self._family.supports(params)
            self._params = type(params)(*(v if isinstance(v, float) else np.copy(v) for v in params))
        new_values = self._values is None or not (self._has_constant_rows or self._has_rows(values))
        if new_values:
            self._family.check_values(params, values)
            self._values = values.copy()
            # An offset that changes leaves all else as it is.
            is_array = isinstance(values, np.ndarray)
            if self._table is not None and not (is_array and self._table.replace_rows(self._values)):
                self._table = None
            # They depend on the origin of the rows.
            self._has_params = False
        new_labels = not _are_same(labels, self._labels)
        if new_labels:
            self._labels = labels.copy()
            self._n_clusters = len(cluster_sizes(labels))
            self._canonical = canonical_labels(labels)[0] if self._n_clusters else labels
            if self._n_clusters:
                self._sizes, self._members = np.bincount(self._canonical), members_of_clusters(self._canonical)
        if (new_values or new_labels) and self._table is not None and self._n_clusters:
            if new_labels:
                self._table.resize(self._n_clusters)
            self._table.sum_up_members(self._members, self._sizes)
        if not self._supported or not self._n_clusters:
            return False
        if self._table is None:
            view = View(self._family, self._params, self._values)
            self._table = ClusterTable(view, self._n_clusters, for_sampling=False)
            self._table.sum_up_members(self._members, self._sizes)
        elif not self._has_params or new_params or self._table.params is not self._params:
            self._table.set_params_of_evidence(self._params)
        self._has_params = True
        return True


class MarginalLikelihoodAt:
    """The log marginal likelihood at some labels, rows and parameters; ``table`` is None if it is -inf."""

    def __init__(
        self, params: Any, table: ClusterTable | None, labels: np.ndarray, n_clusters: int, shape: tuple[int, ...]
    ) -> None:
        self._params, self._table, self._labels = params, table, labels
        self._n_clusters, self._shape = n_clusters, shape

    def value(self) -> float:
        """Return the log marginal likelihood."""
        return -np.inf if self._table is None else self._table.total_log_evidence(self._n_clusters)

    def gradient(self) -> Any:
        """Return the gradient in the parameters, as parameters."""
        if self._table is None:
            return type(self._params)(*(np.zeros(np.shape(value)) for value in self._params))
        table = self._table
        return table.family.params(**table.family.gradient(table.shifted, table.sums(0, self._n_clusters)))

    def data_gradient(self) -> np.ndarray:
        """Return the gradient in the values: (n, c)."""
        if self._table is None:
            return np.zeros(self._shape)
        table = self._table
        assert table.family.data_gradient is not None
        return table.family.data_gradient(table.shifted, table.sums(0, self._n_clusters), table.rows, self._labels)
