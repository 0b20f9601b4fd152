"""Credible ball: the draws nearest to a partition that hold a given posterior probability."""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.threads import Threads, available_threads
from pymc_dpgmm.posterior.arrays.losses import losses_between
from pymc_dpgmm.posterior.arrays.partitions import distinct

# Distances that differ by no more than this are equal.
TIED = 1e-12


class Ball(NamedTuple):
    """A ball around a partition: its bounds, and how large it is.

    Parameters
    ----------
    labels : (3, n) int64 array
        The horizontal, the vertical upper and the vertical lower bound.
    n_clusters, distance : (3,) arrays
        Of the three bounds; distances are from the centre.
    radius, probability : float
        The probability is the share of draws inside the ball.
    """

    labels: np.ndarray
    n_clusters: np.ndarray
    distance: np.ndarray
    radius: float
    probability: float


def credible_ball_around(center: np.ndarray, labels: np.ndarray, probability: float, loss: str) -> Ball:
    """Return the smallest ball around a partition (n,) that holds at least this share of the draws (S, n)."""
    draws, shares = distinct(labels)
    with Threads(available_threads()) as threads:
        (distances,) = losses_between(threads, center[None, :], draws, loss)
    order = np.argsort(distances, kind="stable")
    reached = np.searchsorted(np.cumsum(shares[order]), probability - 1e-12)
    radius = distances[order][min(reached, len(order) - 1)]
    # Distances that are equal may differ by rounding.
    (inside,) = np.nonzero(distances <= radius + TIED)
    n_clusters = draws.max(axis=1) + 1
    fewest, largest = n_clusters[inside].min(), n_clusters[inside].max()
    chosen = [
        _farthest(inside, distances),
        _farthest(inside[n_clusters[inside] == fewest], distances),
        _farthest(inside[n_clusters[inside] == largest], distances),
    ]
    return Ball(draws[chosen], n_clusters[chosen], distances[chosen], radius, shares[inside].sum())


def _farthest(among: np.ndarray, distances: np.ndarray) -> int:
    return int(among[np.argmax(distances[among] >= distances[among].max() - TIED)])
