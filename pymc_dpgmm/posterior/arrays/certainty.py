"""How often rows are with the clusters of one partition."""

import numpy as np


def certainty_of_rows(labels: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return how often each row shares a cluster with the other rows of its cluster of a partition, on average.

    Parameters
    ----------
    labels : (n,) int64 array
        Canonical labels of the partition, which has K clusters.
    draws : (S, n) int64 array
        Canonical labels.

    Returns
    -------
    shares : (n,) float64 array, from 0 to 1
        Mean over the draws, and over the other rows of the row's cluster, of their being in one cluster with it.
        Of a row that is a cluster by itself, the share of draws in which it is alone.
    """
    n, n_clusters = len(labels), int(labels.max()) + 1
    together, alone = np.zeros(n), np.zeros(n)
    for own in draws:
        met = _met(labels, own, n_clusters)
        # The row itself is always there.
        together += met[own, labels] - 1
        alone += met.sum(axis=1)[own] == 1
    others = np.bincount(labels)[labels] - 1
    return np.where(others == 0, alone, together / np.maximum(others, 1)) / len(draws)


def shares_of_companions(labels: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return which clusters of a partition the rows belong to that share a cluster with a row, on average.

    Parameters
    ----------
    labels, draws
        As in :func:`certainty_of_rows`.

    Returns
    -------
    shares : (n, K) float64 array, from 0 to 1
        Mean over the draws of the shares of the clusters among the other rows of the row's cluster; draws in which
        the row is alone add nothing.
    """
    n, n_clusters = len(labels), int(labels.max()) + 1
    total, rows = np.zeros((n, n_clusters)), np.arange(n)
    for own in draws:
        met = _met(labels, own, n_clusters)
        companions = met[own].astype(np.float64)
        companions[rows, labels] -= 1.0
        total += companions / np.maximum(met.sum(axis=1)[own] - 1, 1)[:, None]
    return total / len(draws)


def _met(labels: np.ndarray, own: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return how many rows a cluster of a draw has of each cluster of a partition: (L, K)."""
    width = int(own.max()) + 1
    return np.bincount(own * n_clusters + labels, minlength=width * n_clusters).reshape(width, n_clusters)
