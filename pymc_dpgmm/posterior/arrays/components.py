"""Draws of the weights and parameters of clusters."""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.posterior.arrays.mixtures import DrawNumbers

# Arrays by the names of a view and of a parameter.
Parameters = dict[tuple[str, str], np.ndarray]


class AlignedComponents(NamedTuple):
    """For each of K clusters of a reference and each draw, the cluster of the draw that has most of its rows.

    Parameters
    ----------
    weight, overlap, purity : (n_draws, K) arrays
    new_weight, other_weight : (n_draws,) arrays
        Total weight of the clusters without rows, and of those that match no cluster of the reference.
    parameters : dict of (n_draws, K, ...) arrays
    """

    weight: np.ndarray
    overlap: np.ndarray
    purity: np.ndarray
    new_weight: np.ndarray
    other_weight: np.ndarray
    parameters: Parameters


def draw_aligned(
    mixture: DrawNumbers, reference: np.ndarray, rng: np.random.Generator, *, mean_weights: bool = False
) -> AlignedComponents:
    """Draw weights and parameters of the clusters of every draw that match those of a reference (n,).

    With ``mean_weights``, the weights are conditional means given each partition, and not draws.
    """
    sizes = np.bincount(reference)
    n_draws, n_clusters = mixture.n_draws, len(sizes)
    weight, overlap, purity = (np.empty((n_draws, n_clusters)) for _ in range(3))
    new_weight, other_weight = np.empty(n_draws), np.empty(n_draws)
    parameters: Parameters = {}
    for partition in mixture.partitions():
        s, n_drawn = partition.draw, len(partition.sizes)
        pairs = np.bincount(reference * n_drawn + partition.labels, minlength=n_clusters * n_drawn)
        shared = pairs.reshape(n_clusters, n_drawn)
        largest = shared.argmax(axis=1)
        weights = partition.seats.probabilities() if mean_weights else partition.seats.draw(rng)
        weight[s], overlap[s] = weights[largest], shared.max(axis=1) / sizes
        purity[s] = shared.max(axis=1) / partition.sizes[largest]
        new_weight[s] = weights[-1]
        other_weight[s] = np.delete(weights[:-1], np.unique(largest)).sum()
        for clusters in partition.views:
            drawn = clusters.draw(rng)
            for parameter in clusters.family.component.axes:
                key = (clusters.view.name, parameter)
                if key not in parameters:
                    parameters[key] = np.empty((n_draws, n_clusters, *drawn[parameter].shape[1:]))
                parameters[key][s] = drawn[parameter][largest]
    return AlignedComponents(weight, overlap, purity, new_weight, other_weight, parameters)


class RaggedComponents(NamedTuple):
    """All C clusters of all draws, one after the other.

    Parameters
    ----------
    draw, label : (C,) int64 arrays
        Number of the draw of each cluster, and its label in that draw.
    weight, size : (C,) arrays
    new_weight : (n_draws,) float64 array
        Total weight of the clusters without rows in each draw.
    parameters : dict of (C, ...) arrays
    """

    draw: np.ndarray
    label: np.ndarray
    weight: np.ndarray
    size: np.ndarray
    new_weight: np.ndarray
    parameters: Parameters


def draw_ragged(mixture: DrawNumbers, rng: np.random.Generator) -> RaggedComponents:
    """Draw weights and parameters of all clusters of all draws."""
    sizes, weights, new_weight, of_draw = [], [], np.empty(mixture.n_draws), []
    drawn_values: dict[tuple[str, str], list[np.ndarray]] = {}
    for partition in mixture.partitions():
        *with_rows, new_weight[partition.draw] = partition.seats.draw(rng)
        weights += with_rows
        sizes += partition.sizes.tolist()
        of_draw += [(partition.draw, k) for k in range(len(with_rows))]
        for clusters in partition.views:
            drawn = clusters.draw(rng)
            for parameter in clusters.family.component.axes:
                drawn_values.setdefault((clusters.view.name, parameter), []).append(drawn[parameter])
    draw, label = np.array(of_draw).T
    parameters = {key: np.concatenate(values) for key, values in drawn_values.items()}
    return RaggedComponents(draw, label, np.array(weights), np.array(sizes), new_weight, parameters)


def draw_of_rows(mixture: DrawNumbers, rng: np.random.Generator) -> Parameters:
    """Draw for each row, in every draw, the parameters of its cluster: (n_draws, n, ...) arrays."""
    parameters: Parameters = {}
    for s, partition in enumerate(mixture.partitions()):
        for clusters in partition.views:
            drawn = clusters.draw(rng)
            for parameter in clusters.family.component.axes:
                key = (clusters.view.name, parameter)
                of_rows = drawn[parameter][partition.labels]
                if key not in parameters:
                    parameters[key] = np.empty((mixture.n_draws, *of_rows.shape))
                parameters[key][s] = of_rows
    return parameters
