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
        Returns the generator that weights and parameters of a draw come from, given the number of the draw.
    of : str, optional
        The name of one of several views. The result is then that of the row's entries in this view given its
        others.
    """
    n = mixture.labels.shape[1]
    found = np.empty((mixture.n_draws, n))
    for partition in mixture.partitions():
        measure = draw_measure(streams(partition.draw), partition, of_groups=True)
        given = log_weights_given(mixture, partition, measure, of)
        total = given
        for clusters, drawn in zip(partition.views, measure.drawn, strict=True):
            if of in (None, clusters.view.name):
                total = total + _log_densities(clusters, drawn, n)
        found[partition.draw] = logsumexp(total, axis=1)
        if of is not None:
            found[partition.draw] -= logsumexp(given, axis=-1)
    return found


def log_weights_given(
    mixture: MixtureNumbers, partition: Partition, measure: Measure, of: str | None
) -> np.ndarray:
    """Return log weights of the clusters for each row, or unit: (n, K), or (K,) where all rows have the same.

    With the name of one of several views, they are those given the row's entries in the other views, up to a
    constant for each row.
    """
    found = np.log(np.maximum(measure.weights, np.finfo(np.float64).tiny))
    found = found[0] if mixture.group is None else found[mixture.group]
    for clusters, drawn in zip(partition.views, measure.drawn, strict=True):
        if of not in (None, clusters.view.name):
            found = found + _log_densities(clusters, drawn, mixture.labels.shape[1])
    return found


def _log_densities(clusters: Clusters, drawn: dict[str, np.ndarray], n: int) -> np.ndarray:
    """Return the log density of each of n rows, or units, under each cluster: (n, K)."""
    own = clusters.family.component.log_density(drawn, clusters.observed_values())
    if clusters.view.unit is None:
        return own
    of_units = np.zeros((n, own.shape[1]))
    np.add.at(of_units, clusters.view.unit, own)
    return of_units
