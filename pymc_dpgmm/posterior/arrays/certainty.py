"""How often each row shares a cluster with the rows of each cluster of a partition."""

import numpy as np


def certainty_of_rows(labels: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return the posterior probability that a row shares a cluster with another row of its cluster, on average.

    Parameters
    ----------
    labels : (n,) int64 array
        Canonical labels of the partition, which has K clusters.
    draws : (S, n) int64 array
        Canonical labels.

    Returns
    -------
    shares : (n,) float64 array, from 0 to 1
        Mean over the other rows of the row's cluster of the share of draws in which both are in one cluster. For
        a row that is alone in the partition, the share of draws in which it is alone.
    """
    n, n_clusters = len(labels), int(labels.max()) + 1
    together, alone = np.zeros(n), np.zeros(n)
    for labels_of_draw in draws:
        met = _met(labels, labels_of_draw, n_clusters)
        # Less one for the row itself.
        together += met[labels_of_draw, labels] - 1
        alone += met.sum(axis=1)[labels_of_draw] == 1
    n_others = np.bincount(labels)[labels] - 1
    return np.where(n_others == 0, alone, together / np.maximum(n_others, 1)) / len(draws)


def shares_of_companions(labels: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return how the rows that share a cluster with a row are distributed over the clusters of a partition.

    Parameters
    ----------
    labels, draws
        As in :func:`certainty_of_rows`.

    Returns
    -------
    shares : (n, K) float64 array, from 0 to 1
        Share of each cluster of the partition among the other rows of the row's cluster in a draw, averaged over
        the draws. Draws in which the row is alone count as zero.
    """
    n, n_clusters = len(labels), int(labels.max()) + 1
    total, rows = np.zeros((n, n_clusters)), np.arange(n)
    for labels_of_draw in draws:
        met = _met(labels, labels_of_draw, n_clusters)
        companions = met[labels_of_draw].astype(np.float64)
        companions[rows, labels] -= 1.0
        total += companions / np.maximum(met.sum(axis=1)[labels_of_draw] - 1, 1)[:, None]
    return total / len(draws)


def _met(labels: np.ndarray, drawn: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return how many rows the L clusters of a draw share with the K clusters of a partition: (L, K)."""
    width = int(drawn.max()) + 1
    return np.bincount(drawn * n_clusters + labels, minlength=width * n_clusters).reshape(width, n_clusters)
