"""How often rows are with the clusters of one partition."""

import numpy as np


def shares_of_companions(labels: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return which clusters of a partition the rows belong to that share a cluster with a row, on average.

    Parameters
    ----------
    labels, draws
        As in :func:`together_with`.

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


def certainty_of_rows(labels: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return how often each row is with the other rows of its own cluster: (n,); see :func:`together_with`."""
    return together_with(labels, draws)[np.arange(len(labels)), labels]


def together_with(labels: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return how often a row shares a cluster with the other rows of each cluster of a partition, on average.

    Parameters
    ----------
    labels : (n,) int64 array
        Canonical labels of the partition, which has K clusters.
    draws : (S, n) int64 array
        Canonical labels.

    Returns
    -------
    shares : (n, K) float64 array, from 0 to 1
        Mean over the draws, and over the cluster's rows other than the row itself, of their being in one cluster
        with it. Of a cluster that has no other rows, the share of draws in which the row is alone.
    """
    n, n_clusters = len(labels), int(labels.max()) + 1
    sizes = np.bincount(labels, minlength=n_clusters)
    total, alone = np.zeros((n, n_clusters)), np.zeros(n)
    for own in draws:
        met = _met(labels, own, n_clusters)
        total += met[own]
        alone += met.sum(axis=1)[own] == 1
    rows = np.arange(n)
    # The row itself is always there.
    total[rows, labels] -= len(draws)
    others = np.repeat(sizes[None, :], n, axis=0)
    others[rows, labels] -= 1
    shares = total / np.maximum(others, 1) / len(draws)
    single = sizes[labels] == 1
    shares[rows[single], labels[single]] = alone[single] / len(draws)
    return shares
