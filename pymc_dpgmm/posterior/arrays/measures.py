"""Draws of the whole mixture, weights and parameters, given each kept partition."""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.posterior.arrays.mixtures import Partition


class Measure(NamedTuple):
    """A mixture with all its weights and parameters.

    Parameters
    ----------
    weights : (G, K + J) float64 array
        Of the K clusters that have rows, and J that have none: of every group, or of rows that arrive.
    drawn : list of dict
        Parameters of these clusters, for each view.
    n_clusters : int
        K.
    """

    weights: np.ndarray
    drawn: list[dict[str, np.ndarray]]
    n_clusters: int


def draw_measure(rng: np.random.Generator, partition: Partition, *, of_groups: bool = False) -> Measure:
    """Draw the mixture from its posterior given a partition of the rows.

    Clusters without rows have parameters from the base measure, and weights by stick-breaking. The weights are
    those of rows that arrive, or ``of_groups``, where there are such, those of every group.
    """
    seats, n_clusters = partition.seats, len(partition.sizes)
    weights = seats.draw_all(rng) if of_groups else seats.draw_of_new(rng)[None, :]
    drawn = [view.draw_with_new(rng, weights.shape[1] - n_clusters) for view in partition.views]
    return Measure(weights, drawn, n_clusters)
