"""Numbers of draws of partitions that do not depend on names of clusters."""

import numpy as np

from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.partitions.priors import canonical_labels, cluster_sizes
from pymc_dpgmm.posterior.arrays.losses import losses_between

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


def shares_of_reference(shared: np.ndarray) -> np.ndarray:
    """Return how the clusters of a draw are divided among the clusters of a reference to which they correspond.

    Two clusters correspond if they share more than half of the rows of one of them. A drawn cluster that
    corresponds to several is divided among them in proportion to the rows that it shares with each; one that
    corresponds to none, among all in the same way. So the rows between two clusters, which every draw places at
    random, do not make the others uncertain.

    Parameters
    ----------
    shared : (L, K) integer array
        How many rows each cluster of the draw shares with each of the reference.

    Returns
    -------
    (L, K) float64 array
        Rows add up to 1; those of drawn clusters without rows are 0.
    """
    shared = np.asarray(shared)
    own, sizes = shared.sum(axis=1, keepdims=True), shared.sum(axis=0)
    corresponds = (2 * shared > own) | (2 * shared > sizes)
    corresponds[~corresponds.any(axis=1)] = True
    found = np.where(corresponds, shared, 0)
    return np.asarray(found / np.maximum(found.sum(axis=1, keepdims=True), 1))


def posterior_pmf(labels: np.ndarray) -> np.ndarray:
    """Return the shares of draws (S, n) that have 0, 1, ..., n clusters: (n + 1,) float64 array."""
    counts = [len(np.unique(draw)) for draw in labels]
    return np.bincount(counts, minlength=labels.shape[1] + 1) / len(counts)


def central(threads: Threads, draws: np.ndarray) -> np.ndarray:
    """Return the one of a few draws of a chain (S, n), with canonical labels, that is nearest to the others."""
    few = draws[np.unique(np.linspace(0, len(draws) - 1, FEW).astype(int))]
    return few[losses_between(threads, few, few, "vi").sum(axis=1).argmin()]
