"""Numbers of draws of partitions that do not depend on names of clusters."""

import numpy as np

from pymc_dpgmm.partitions import canonical_labels, cluster_sizes
from pymc_dpgmm.posterior.arrays.losses import losses_between
from pymc_dpgmm.threads import Threads

# Draws of each chain among which its reference partition is found.
FEW = 50


def canonical_draws(labels: np.ndarray) -> np.ndarray:
    """Return draws (S, n) with canonical labels, int64."""
    return np.array([canonical_labels(draw)[0] for draw in labels])


def distinct(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct partitions among draws (S, n), as canonical labels, and their shares."""
    found, counts = np.unique(canonical_draws(labels), axis=0, return_counts=True)
    return found, counts / counts.sum()


def sizes_of_draws(labels: np.ndarray) -> list[np.ndarray]:
    """Return for each draw, of draws (S, n), the sizes of its clusters, the largest first."""
    return [np.sort(cluster_sizes(draw))[::-1] for draw in labels]


def largest_shares(sizes: list[np.ndarray], n: int, n_largest: int) -> np.ndarray:
    """Return the shares of n rows in the largest clusters of draws: (S, n_largest), zero where there are fewer."""
    shares = np.zeros((len(sizes), n_largest))
    for own, found in zip(shares, sizes, strict=True):
        own[: len(found)] = found[:n_largest] / n
    return shares


def entropies(sizes: list[np.ndarray], n: int) -> np.ndarray:
    """Return the entropy of the clusters' shares of n rows in each draw, in nats: (S,)."""
    # In order of size: the same partition has the same entropy to the last bit, and so the same rank.
    return np.array([-float(np.sum(p * np.log(p))) for p in (np.sort(found) / n for found in sizes)])


def posterior_pmf(labels: np.ndarray) -> np.ndarray:
    """Return the shares of draws (S, n) that have 0, 1, ..., n clusters: (n + 1,) float64 array."""
    counts = [len(np.unique(draw)) for draw in labels]
    return np.bincount(counts, minlength=labels.shape[1] + 1) / len(counts)


def central(threads: Threads, draws: np.ndarray) -> np.ndarray:
    """Return the one of a few draws of a chain (S, n), with canonical labels, that is nearest to the others."""
    few = draws[np.unique(np.linspace(0, len(draws) - 1, FEW).astype(int))]
    return few[losses_between(threads, few, few, "vi").sum(axis=1).argmin()]
