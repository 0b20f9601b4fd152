"""Log marginal likelihood of data given labels, with gradients, for models that evaluate it many times.

Between two evaluations usually only parameters change. The sufficient statistics are therefore kept, and
computed anew only when labels or rows differ from those of the last call.
"""

from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.constraints import allow
from pymc_dpgmm.dispatch import compiled
from pymc_dpgmm.families.verbs import (
    Family,
    data_gradient,
    log_marginal_gradient,
    log_marginal_likelihood,
    summarize,
)
from pymc_dpgmm.partitions import canonical_labels, cluster_sizes


@compiled()
def summarize_clusters(summary, rows, labels, sizes):
    """Set slot k of a summary to the rows labelled k, for canonical labels with the given sizes."""
    n_clusters = sizes.shape[0]
    starts = np.zeros(n_clusters + 1, dtype=np.int64)
    for k in range(n_clusters):
        starts[k + 1] = starts[k] + sizes[k]
    filled = starts[:n_clusters].copy()
    order = np.empty(labels.shape[0], dtype=np.int64)
    for i in range(labels.shape[0]):
        order[filled[labels[i]]] = i
        filled[labels[i]] += 1
    for k in range(n_clusters):
        summarize(summary, k, rows, order[starts[k] : starts[k + 1]])


class PartitionSizes:
    """Sizes of the clusters of labels, kept while the labels stay the same.

    Constraints, if there are any, are :mod:`pymc_dpgmm.constraints` and never change.
    """

    def __init__(self) -> None:
        self._labels = np.empty(0, dtype=np.int64)
        self._sizes = np.empty(0, dtype=np.int64)

    def __call__(self, labels: np.ndarray, constraints: np.ndarray | None = None) -> np.ndarray:
        """Return :func:`~pymc_dpgmm.partitions.cluster_sizes` of ``labels``, empty if constraints are not kept."""
        if not np.array_equal(labels, self._labels):
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


class MarginalLikelihood:
    """Log marginal likelihood and its gradients as functions of labels, rows and parameters.

    Parameters
    ----------
    family : Family

    Notes
    -----
    Where the labels are no partition (a value outside 0..n-1) or the parameters are outside their support, the
    density is zero: the value is -inf, and the gradients are zero. ValueError is raised where labels and rows
    differ in length.
    """

    def __init__(self, family: Family) -> None:
        self._family = family
        self._labels = np.empty(0, dtype=np.int64)
        self._values: Any = None
        self._canonical = np.empty(0, dtype=np.int64)
        self._rows: Any = None
        self._origin: Any = None
        self._summary: Any = None
        self._params: Any = None
        self._supported = False

    def at(self, labels: np.ndarray, values: Any, params: Any) -> "MarginalLikelihoodAt":
        """Return it at labels (n,), values (n, c) and the family's parameters, until it is asked for others."""
        if self._update(labels, values, params):
            shifted = self._family.shift(params, self._origin)
            return MarginalLikelihoodAt(params, shifted, self._summary, self._rows, self._canonical)
        return MarginalLikelihoodAt(params, None, None, values, labels)

    def _update(self, labels: np.ndarray, values: Any, params: Any) -> bool:
        """Bring the kept statistics up to date; tell whether the density is positive."""
        if len(labels) != values.shape[0]:
            raise ValueError(f"there are {len(labels)} labels, but the data has {values.shape[0]} rows")
        if self._params is None or any(
            not np.array_equal(new, old) for new, old in zip(params, self._params, strict=True)
        ):
            self._supported = self._family.supports(params)
            self._params = type(params)(*(np.copy(value) for value in params))
        new_values = self._values is None or not same_values(values, self._values)
        if new_values:
            self._family.check_values(params, values)
            self._values = values.copy()
            self._rows, self._origin = self._family.represent(params, values)
        if new_values or not np.array_equal(labels, self._labels):
            self._labels = labels.copy()
            sizes = cluster_sizes(labels)
            self._summary = None
            if len(sizes):
                self._canonical = canonical_labels(labels)[0]
                self._summary = self._family.allocate_summary(params, len(sizes))
                summarize_clusters(self._summary, self._rows, self._canonical, sizes)
        return self._supported and self._summary is not None


class MarginalLikelihoodAt(NamedTuple):
    """The log marginal likelihood at some labels, rows and parameters; ``summary`` is None if it is -inf."""

    params: Any
    shifted: Any
    summary: Any
    rows: Any
    labels: np.ndarray

    def value(self) -> float:
        """Return the log marginal likelihood."""
        return -np.inf if self.summary is None else log_marginal_likelihood(self.shifted, self.summary)

    def gradient(self) -> Any:
        """Return the gradient in the parameters, as parameters."""
        if self.summary is None:
            return type(self.params)(*(np.zeros(np.shape(value)) for value in self.params))
        return log_marginal_gradient(self.shifted, self.summary)

    def data_gradient(self) -> np.ndarray:
        """Return the gradient in the values: (n, c)."""
        if self.summary is None:
            return np.zeros_like(self.rows)
        return data_gradient(self.shifted, self.summary, self.rows, self.labels)
