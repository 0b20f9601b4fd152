"""Pointwise log likelihoods, with labels summed out, and replicates of the data, with labels drawn anew."""

from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp

from pymc_dpgmm.posterior.arrays.mixtures import Clusters, Measure, MixtureNumbers, Partition
from pymc_dpgmm.tables.checks import is_sparse


def pointwise_log_likelihood(
    mixture: MixtureNumbers, streams: Callable[[int], np.random.Generator], of: str | None = None
) -> np.ndarray:
    """Return the log likelihood of each row, or unit, given one draw of weights and parameters: (n_draws, n).

    Parameters
    ----------
    mixture : MixtureNumbers
    streams : callable
        Returns the generator for the weights and parameters of a draw, given the number of the draw.
    of : str, optional
        The name of one of several views. The result is then the log density of the row's entries in this view
        given its entries in the other views.
    """
    n = mixture.labels.shape[1]
    log_likelihood = np.empty((mixture.n_draws, n))
    for partition in mixture.partitions():
        measure = partition.draw_measure(streams(partition.draw), of_groups=True)
        log_weights = log_weights_given(mixture, partition, measure, of)
        total = log_weights
        for clusters, drawn in zip(partition.views, measure.drawn, strict=True):
            if of in (None, clusters.view.name):
                total = total + _log_densities(clusters, drawn, n)
        log_likelihood[partition.draw] = logsumexp(total, axis=1)
        if of is not None:
            log_likelihood[partition.draw] -= logsumexp(log_weights, axis=-1)
    return log_likelihood


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
            log_weights = log_weights + _log_densities(clusters, drawn, mixture.labels.shape[1])
    return log_weights


def _log_densities(clusters: Clusters, drawn: dict[str, np.ndarray], n: int) -> np.ndarray:
    """Return the log density of each of n rows, or units, under each cluster: (n, K)."""
    log_densities = clusters.log_densities(drawn, clusters.observed_values())
    if clusters.view.unit is None:
        return log_densities
    of_units = np.zeros((n, log_densities.shape[1]))
    np.add.at(of_units, clusters.view.unit, log_densities)
    return of_units


def draw_replicates(
    mixture: MixtureNumbers,
    streams: Callable[[int], np.random.Generator],
    rng: np.random.Generator,
    of: str | None = None,
) -> dict[str, np.ndarray]:
    """Draw all rows of the data anew in every draw, given weights and parameters that are drawn once.

    Parameters
    ----------
    mixture : MixtureNumbers
    streams : callable
        Returns the generator for the weights and parameters of a draw, given the number of the draw.
    rng : numpy.random.Generator
        Draws clusters and rows.
    of : str, optional
        The name of one of several views. Only its entries are drawn, given the row's entries in the other views.

    Returns
    -------
    dict
        Rows of each view, (n_draws, n_rows, d) arrays.
    """
    replicates: dict[str, np.ndarray] = {}
    for partition in mixture.partitions():
        measure = partition.draw_measure(streams(partition.draw), of_groups=True)
        log_weights = log_weights_given(mixture, partition, measure, of)
        labels = draw_rows_of_table(rng, log_weights, mixture.labels.shape[1])
        for clusters, drawn in zip(partition.views, measure.drawn, strict=True):
            name = clusters.view.name
            if of in (None, name):
                rows = _rows_of(rng, clusters, drawn, labels, partition.draw)
                if name not in replicates:
                    replicates[name] = np.empty((mixture.n_draws, *rows.shape))
                replicates[name][partition.draw] = rows
    return replicates


def draw_rows_of_table(rng: np.random.Generator, log_weights: np.ndarray, n: int) -> np.ndarray:
    """Draw a cluster for each of n rows, (n,) int64, given log weights (n, K), or (K,) for all rows alike."""
    weights = np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))
    sums = np.cumsum(weights, axis=-1)
    thresholds = rng.random(n) * sums[..., -1]
    if sums.ndim == 1:
        return np.searchsorted(sums, thresholds, side="right").astype(np.int64)
    return (sums <= thresholds[:, None]).sum(axis=1)


def _rows_of(
    rng: np.random.Generator, clusters: Clusters, drawn: dict[str, np.ndarray], labels: np.ndarray, s: int
) -> np.ndarray:
    """Draw the rows of a view given the clusters of rows, or units, and add its offset: (n_rows, d)."""
    view, values = clusters.view, clusters.values
    covariates = values.sum(axis=1)[:, None] if is_sparse(values) else values[:, view.d :]
    of_rows = labels if view.unit is None else labels[view.unit]
    rows = clusters.family.component.draw_rows(rng, drawn, of_rows, covariates)
    if view.offset is None:
        return rows
    offset = np.asarray(view.offset.at(s))
    return rows + (offset[:, None] if offset.ndim == 1 else offset)
