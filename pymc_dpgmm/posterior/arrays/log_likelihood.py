"""Pointwise log likelihoods, with labels summed out."""

from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp

from pymc_dpgmm.posterior.arrays.measures import Measure, draw_measure
from pymc_dpgmm.posterior.arrays.mixtures import Clusters, MixtureNumbers, Partition


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
        measure = draw_measure(streams(partition.draw), partition, of_groups=True)
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
