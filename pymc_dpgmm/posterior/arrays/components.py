"""Draws of the weights and parameters of clusters."""

from typing import Any

import numpy as np

from pymc_dpgmm.posterior.arrays.mixtures import DrawNumbers, Partition
from pymc_dpgmm.posterior.arrays.partitions import matched

# Arrays by the names of a view and of a parameter.
Parameters = dict[tuple[str, str], np.ndarray]


def draw_aligned(
    mixture: DrawNumbers, reference: np.ndarray, rng: np.random.Generator, *, mean_weights: bool = False
) -> tuple[dict[str, np.ndarray], Parameters]:
    """Draw weights and parameters of the clusters of every draw that match those of a reference (n,).

    The match of each of K clusters is the cluster of the draw that has most of its rows. With ``mean_weights``,
    the weights are conditional means given each partition, and not draws.

    Returns
    -------
    found : dict
        ``weight``, ``overlap`` and ``purity``, (n_draws, K), and the total weights ``new_weight`` of clusters
        without rows and ``other_weight`` of those that match no cluster of the reference, (n_draws,).
    parameters : dict of (n_draws, K, ...) arrays
    """
    sizes, n_draws = np.bincount(reference), mixture.n_draws
    found: dict[str, np.ndarray] = {
        key: np.empty((n_draws, len(sizes))) for key in ("weight", "overlap", "purity")
    }
    found |= {key: np.empty(n_draws) for key in ("new_weight", "other_weight")}
    parameters: Parameters = {}
    for partition in mixture.partitions():
        s = partition.draw
        largest, n_shared, purity = matched(reference, len(sizes), partition.labels, partition.sizes)
        weights = partition.seats.probabilities() if mean_weights else partition.seats.draw(rng)
        found["weight"][s], found["overlap"][s], found["purity"][s] = weights[largest], n_shared / sizes, purity
        found["new_weight"][s] = weights[-1]
        found["other_weight"][s] = np.delete(weights[:-1], np.unique(largest)).sum()
        _draw_parameters(partition, rng, largest, parameters, s, n_draws)
    return found, parameters


def _draw_parameters(
    partition: Partition,
    rng: np.random.Generator,
    chosen: np.ndarray,
    parameters: Parameters,
    s: int,
    n_draws: int,
) -> None:
    """Draw the parameters of all clusters, and write those of the chosen ones into line ``s`` of ``n_draws``."""
    for clusters in partition.views:
        drawn = clusters.draw(rng)
        for parameter in clusters.family.component.axes:
            values, key = drawn[parameter][chosen], (clusters.view.name, parameter)
            if key not in parameters:
                parameters[key] = np.empty((n_draws, *values.shape))
            parameters[key][s] = values


def draw_ragged(
    mixture: DrawNumbers, rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], np.ndarray, Parameters]:
    """Draw weights and parameters of all C clusters of all draws, one draw after the other.

    Returns
    -------
    found : dict of (C,) arrays
        The number of the ``draw`` of each cluster, its ``label`` there, its ``weight`` and its ``size``.
    new_weight : (n_draws,) float64 array
        Total weight of the clusters without rows in each draw.
    parameters : dict of (C, ...) arrays
    """
    found: dict[str, list[Any]] = {"draw": [], "label": [], "weight": [], "size": []}
    new_weight, drawn_values = np.empty(mixture.n_draws), dict[tuple[str, str], list[np.ndarray]]()
    for partition in mixture.partitions():
        *with_rows, new_weight[partition.draw] = partition.seats.draw(rng)
        found["draw"] += [partition.draw] * len(with_rows)
        found["label"] += range(len(with_rows))
        found["weight"] += with_rows
        found["size"] += partition.sizes.tolist()
        for clusters in partition.views:
            drawn = clusters.draw(rng)
            for parameter in clusters.family.component.axes:
                drawn_values.setdefault((clusters.view.name, parameter), []).append(drawn[parameter])
    parameters = {key: np.concatenate(values) for key, values in drawn_values.items()}
    return {key: np.array(values) for key, values in found.items()}, new_weight, parameters


def draw_of_rows(mixture: DrawNumbers, rng: np.random.Generator) -> Parameters:
    """Draw for each row, in every draw, the parameters of its cluster: (n_draws, n, ...) arrays."""
    parameters: Parameters = {}
    for s, partition in enumerate(mixture.partitions()):
        _draw_parameters(partition, rng, partition.labels, parameters, s, mixture.n_draws)
    return parameters
