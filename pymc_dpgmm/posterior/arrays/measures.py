"""Draws of the whole mixture, weights and parameters, given each kept partition."""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.partitions import draw_new_weights, draw_weights, with_known_components
from pymc_dpgmm.posterior.arrays.mixtures import Partition

# The clusters without rows are drawn one by one until this weight is left, or so many have been drawn; others have
# the rest, so that no weight is lost.
SMALLEST = 1e-4
MOST = 1_000


class Measure(NamedTuple):
    """A mixture with all its weights and parameters.

    Parameters
    ----------
    weights : (K + J,) float64 array
        Of the K clusters that have rows, and J that have none.
    drawn : list of dict
        Parameters of these clusters, for each view.
    n_clusters : int
        K.
    """

    weights: np.ndarray
    drawn: list[dict[str, np.ndarray]]
    n_clusters: int


def draw_measure(rng: np.random.Generator, partition: Partition) -> Measure:
    """Draw the mixture from its posterior given a partition of the rows.

    Clusters without rows have parameters from the base measure, and weights by stick-breaking.
    """
    prior = with_known_components(rng, partition.prior, partition.sizes)
    *weights, rest = draw_weights(rng, prior, partition.sizes)
    new = draw_new_weights(rng, prior, len(weights), float(rest), SMALLEST, MOST)
    drawn = [view.draw_with_new(rng, len(new)) for view in partition.views]
    return Measure(np.append(weights, new), drawn, len(weights))
