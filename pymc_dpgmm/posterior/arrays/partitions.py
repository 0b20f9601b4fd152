"""Summaries of draws of partitions that are invariant to relabelling."""

import numpy as np

from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.partitions.labels import canonical_labels, cluster_sizes
from pymc_dpgmm.posterior.arrays.losses import losses_between

# Number of draws of a chain among which :func:`central` chooses.
MOST_CANDIDATES = 50


def canonical_draws(labels: np.ndarray) -> np.ndarray:
    """Return draws (S, n) with canonical labels, int64."""
    return np.array([canonical_labels(draw)[0] for draw in labels])


def grouped(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Group equal rows (m, n).

    Returns
    -------
    group : (m,) int64 array
        The number of each row's group, in order of first appearance.
    first, counts : (g,) int64 arrays
        The first row of each group, and how many rows it has.
    """
    # Sorting many rows takes far longer.
    groups = dict[bytes, int]()
    group = np.array([groups.setdefault(row.tobytes(), len(groups)) for row in np.ascontiguousarray(rows)])
    _, first, counts = np.unique(group, return_index=True, return_counts=True)
    return group, first, counts


def distinct(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct partitions among draws (S, n), as canonical labels, and their shares."""
    draws = canonical_draws(labels)
    _, first, counts = grouped(draws)
    return draws[first], counts / counts.sum()


def sizes_of_draws(labels: np.ndarray) -> list[np.ndarray]:
    """Return the cluster sizes of each of the draws (S, n), largest first."""
    return [np.sort(cluster_sizes(draw))[::-1] for draw in labels]


def largest_shares(sizes: list[np.ndarray], n: int, n_largest: int) -> np.ndarray:
    """Return the shares of n rows in the largest clusters of draws: (S, n_largest), zero where there are fewer."""
    shares = np.zeros((len(sizes), n_largest))
    for shares_of_draw, sizes_of_draw in zip(shares, sizes, strict=True):
        shares_of_draw[: len(sizes_of_draw)] = sizes_of_draw[:n_largest] / n
    return shares


def entropies(sizes: list[np.ndarray], n: int) -> np.ndarray:
    """Return the entropy of the clusters' shares of n rows in each draw, in nats: (S,)."""
    # Summed in order of size: equal partitions then have exactly equal entropies, as ranks need.
    return np.array(
        [-float(np.sum(p * np.log(p))) for p in (np.sort(sizes_of_draw) / n for sizes_of_draw in sizes)]
    )


def shares_of_reference(shared: np.ndarray) -> np.ndarray:
    """Return how each cluster of a draw is divided among the clusters of a reference.

    Two clusters correspond if they share more than half of the rows of one of them. A cluster of the draw that
    corresponds to several reference clusters is divided among them in proportion to the rows that it shares with
    each. If it corresponds to none, it is divided among all in the same way. So rows between two clusters, which
    each draw allocates at random, do not make the membership of other rows uncertain.

    Parameters
    ----------
    shared : (L, K) integer array
        Number of rows that each cluster of the draw shares with each cluster of the reference.

    Returns
    -------
    (L, K) float64 array
        Each line adds up to 1; lines of drawn clusters without rows are 0.
    """
    shared = np.asarray(shared)
    drawn_sizes, sizes = shared.sum(axis=1, keepdims=True), shared.sum(axis=0)
    corresponds = (2 * shared > drawn_sizes) | (2 * shared > sizes)
    corresponds[~corresponds.any(axis=1)] = True
    divided = np.where(corresponds, shared, 0)
    return np.asarray(divided / np.maximum(divided.sum(axis=1, keepdims=True), 1))


def shared_rows(first: np.ndarray, n_first: int, second: np.ndarray, n_second: int) -> np.ndarray:
    """Return how many rows each cluster of a partition (n,) shares with each of another: (n_first, n_second)."""
    pairs = np.bincount(first * n_second + second, minlength=n_first * n_second)
    return pairs.reshape(n_first, n_second)


def matched(
    reference: np.ndarray, n_clusters: int, labels: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the clusters of a draw that have most rows of each of K clusters, and how many these are: (K,) each.

    Also returned is the purity, the share of these rows among all of the matching cluster.
    """
    shared = shared_rows(reference, n_clusters, labels, len(sizes))
    largest, n_shared = shared.argmax(axis=1), shared.max(axis=1)
    return largest, n_shared, n_shared / sizes[largest]


def mean_purity(labels: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return, for each of K clusters, the mean share of its rows in the matching clusters of draws: (K,).

    Of each draw, that is the cluster that has most of the rows.

    Parameters
    ----------
    labels : (n,) int64 array
    draws : (S, n) int64 array
        Canonical labels.
    """
    n_clusters = int(labels.max()) + 1
    total = np.zeros(n_clusters)
    for drawn in draws:
        total += matched(labels, n_clusters, drawn, np.bincount(drawn))[2]
    return total / len(draws)


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
        met = shared_rows(labels_of_draw, int(labels_of_draw.max()) + 1, labels, n_clusters)
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
        met = shared_rows(labels_of_draw, int(labels_of_draw.max()) + 1, labels, n_clusters)
        companions = met[labels_of_draw].astype(np.float64)
        companions[rows, labels] -= 1.0
        total += companions / np.maximum(met.sum(axis=1)[labels_of_draw] - 1, 1)[:, None]
    return total / len(draws)


def posterior_pmf(labels: np.ndarray) -> np.ndarray:
    """Return the shares of draws (S, n) that have 0, 1, ..., n clusters: (n + 1,) float64 array."""
    counts = [len(np.unique(draw)) for draw in labels]
    return np.bincount(counts, minlength=labels.shape[1] + 1) / len(counts)


def central(threads: Threads, draws: np.ndarray) -> np.ndarray:
    """Return the partition nearest to the others among evenly spaced draws (S, n) of a chain.

    At most MOST_CANDIDATES draws are compared, by the variation of information. Labels are canonical.
    """
    few = draws[np.unique(np.linspace(0, len(draws) - 1, MOST_CANDIDATES).astype(int))]
    return few[losses_between(threads, few, few, "vi").sum(axis=1).argmin()]
