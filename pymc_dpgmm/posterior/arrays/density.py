"""Posterior densities at points."""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.posterior.arrays.measures import draw_measure
from pymc_dpgmm.posterior.arrays.mixtures import MixtureNumbers, ViewDraws

# How far beyond the data a grid reaches, as a share of their range.
_BEYOND = 0.1
# A grid over a latent column spans these quantiles of its draws.
_MIDDLE = (0.001, 0.999)


class Bands(NamedTuple):
    """Posterior mean of the density at points, and the limits of pointwise bands: (m,) arrays."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def density_bands(
    mixture: MixtureNumbers, points: np.ndarray, probability: float, rng: np.random.Generator
) -> Bands:
    """Return the density of a mixture with one view at points (m, c); columns with NaN are integrated out."""
    mean = np.zeros(points.shape[0])
    densities_of_draws = np.empty((mixture.n_draws, points.shape[0]))
    for partition in mixture.partitions([points]):
        (clusters,) = partition.views
        mean += np.exp(clusters.log_predictives()) @ partition.seats.probabilities()
        measure = draw_measure(rng, partition)
        densities = np.exp(clusters.log_densities(measure.drawn[0], points))
        densities_of_draws[partition.draw] = densities @ measure.weights[0]
    lower, upper = np.quantile(densities_of_draws, [0.5 - 0.5 * probability, 0.5 + 0.5 * probability], axis=0)
    return Bands(mean / len(densities_of_draws), lower, upper)


# Integers that a grid has, at most.
MOST_INTEGERS = 5_000


def grid(view: ViewDraws, column: int, n: int, n_draws: int) -> np.ndarray:
    """Return ``n`` points over the range of a column, or integers in the range if the data is discrete.

    These are all integers, or up to ``MOST_INTEGERS`` of them at equal distances.

    For latent rows it is the range of the draws without the most extreme ones.
    """
    values = view.column_values([column], n_draws)
    values = values[~np.isnan(values)]
    if not len(values):
        values = np.zeros(1)
    component = view.family.component
    if component.is_discrete:
        # Of many integers, some are looked at.
        step = np.ceil((values.max() - values.min() + 1.0) / MOST_INTEGERS)
        return np.arange(values.min(), values.max() + 1.0, step)
    low, high = np.quantile(values, _MIDDLE) if view.is_drawn else (values.min(), values.max())
    beyond = _BEYOND * (high - low) or 1.0
    least, largest = component.bounds
    if least == np.finfo(np.float64).tiny:
        # Of positive numbers 0 is none, and a density may have no limit there: half a step from it is.
        least = (high + beyond) / (2 * n)
    return np.linspace(max(low - beyond, least), min(high + beyond, largest), n)
