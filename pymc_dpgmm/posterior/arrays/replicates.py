"""Posterior predictive replicates of the data, for which the clusters of rows are drawn anew."""

from collections.abc import Callable

import numpy as np

from pymc_dpgmm.posterior.arrays.log_likelihood import log_weights_given
from pymc_dpgmm.posterior.arrays.measures import draw_measure
from pymc_dpgmm.posterior.arrays.mixtures import Clusters, MixtureNumbers
from pymc_dpgmm.tables.checks import is_sparse


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
        measure = draw_measure(streams(partition.draw), partition, of_groups=True)
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
