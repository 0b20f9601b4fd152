"""Draws of the mixing measure, weights and parameters, given the partition of each draw."""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.posterior.arrays.mixtures import Partition


class Measure(NamedTuple):
    """A draw of the mixing measure: all weights and parameters.

    Parameters
    ----------
    weights : (G, K + J) float64 array
        Weights of the K clusters with rows and of J without: one line for each group, or one for new rows.
    drawn : list of dict
        Parameters of these clusters, for each view.
    n_clusters : int
        K.
    """

    weights: np.ndarray
    drawn: list[dict[str, np.ndarray]]
    n_clusters: int


def draw_measure(rng: np.random.Generator, partition: Partition, *, of_groups: bool = False) -> Measure:
    """Draw the mixing measure from its posterior given a partition of the rows.

    Clusters without rows have parameters from the base measure, and weights by stick-breaking. The weights are
    those of new rows or, with ``of_groups``, those of every group.
    """
    seats, n_clusters = partition.seats, len(partition.sizes)
    weights = seats.draw_all(rng) if of_groups else seats.draw_of_new(rng)[None, :]
    drawn = [view.draw_with_new(rng, weights.shape[1] - n_clusters) for view in partition.views]
    return Measure(weights, drawn, n_clusters)
