"""Rows of the data in clusters whose weights and parameters are drawn: their densities, and rows drawn anew."""

import numpy as np

from pymc_dpgmm.posterior.arrays.mixtures import Clusters, Measure, MixtureNumbers, Partition
from pymc_dpgmm.tables.checks import is_sparse


def log_weights_given(
    mixture: MixtureNumbers, partition: Partition, measure: Measure, of: str | None
) -> np.ndarray:
    """Return the log weights of the clusters for each row, or unit: (n, K), or (K,) if all rows have the same.

    With ``of``, the name of one of several views, the weights condition on the row's entries in the other views,
    up to a constant for each row.
    """
    log_weights = np.log(np.maximum(measure.weights, np.finfo(np.float64).tiny))
    log_weights = log_weights[0] if mixture.group is None else log_weights[mixture.group]
    for clusters, drawn in zip(partition.views, measure.drawn, strict=True):
        if of not in (None, clusters.view.name):
            log_weights = log_weights + log_densities_of(clusters, drawn, mixture.labels.shape[1])
    return log_weights


def log_densities_of(clusters: Clusters, drawn: dict[str, np.ndarray], n: int) -> np.ndarray:
    """Return the log density of each of n rows, or units, under each cluster: (n, K)."""
    log_densities = clusters.log_densities(drawn, clusters.observed_values())
    if clusters.view.unit is None:
        return log_densities
    of_units = np.zeros((n, log_densities.shape[1]))
    np.add.at(of_units, clusters.view.unit, log_densities)
    return of_units


def draw_rows_of_table(rng: np.random.Generator, log_weights: np.ndarray, n: int) -> np.ndarray:
    """Draw a cluster for each of n rows, (n,) int64, given log weights (n, K), or (K,) for all rows alike."""
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    sums = np.cumsum(weights, axis=-1)
    thresholds = rng.random(n) * sums[..., -1]
    if sums.ndim == 1:
        return np.searchsorted(sums, thresholds, side="right").astype(np.int64)
    return (sums <= thresholds[:, None]).sum(axis=1)


def _with_offset(clusters: Clusters, rows: np.ndarray, s: int) -> np.ndarray:
    """Return rows (n, d) with the offset of a draw, which was subtracted from them."""
    if clusters.view.offset is None:
        return rows
    offset = np.asarray(clusters.view.offset.at(s))
    return rows + (offset[:, None] if offset.ndim == 1 else offset)


def complete_rows(rng: np.random.Generator, clusters: Clusters, labels: np.ndarray, s: int) -> np.ndarray:
    """Return the rows (n, d) of the data with all missing entries drawn, given the clusters of rows, or units.

    Entries that were drawn with the labels are what they are in the draw. Others are drawn given drawn parameters
    of the clusters, and the rest of their row.
    """
    of_rows = labels if clusters.view.unit is None else labels[clusters.view.unit]
    rows = clusters.completed(rng, clusters.draw(rng), of_rows, clusters.values)
    return _with_offset(clusters, rows, s)


def rows_of(
    rng: np.random.Generator, clusters: Clusters, drawn: dict[str, np.ndarray], labels: np.ndarray, s: int
) -> np.ndarray:
    """Draw the rows of a view given the clusters of rows, or units, and add its offset: (n_rows, d)."""
    view, values = clusters.view, clusters.values
    covariates = values.sum(axis=1)[:, None] if is_sparse(values) else values[:, view.d :]
    of_rows = labels if view.unit is None else labels[view.unit]
    return _with_offset(clusters, clusters.family.component.draw_rows(rng, drawn, of_rows, covariates), s)
