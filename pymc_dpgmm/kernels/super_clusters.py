"""Super-clusters: few clusters each, between which rows go, so that a row looks at few of many clusters.

Chang and Fisher (2013, section 4.1) let a row join only clusters that are near its own. What is near must not
depend on the labels, or the sweep would not leave the posterior invariant. Here it is a function of the clusters'
drawn weights and parameters, and of rows that are chosen without looking at the labels: clusters are near each
other where these rows could belong to both. ``docs/moves.md`` has the proof.
"""

import numpy as np

from pymc_dpgmm.kernels.drawn_clusters import DrawnClusters, LabelDraws

# From so many clusters on there are super-clusters, which have so many clusters each, at most.
MANY_CLUSTERS, MOST_CLUSTERS = 36, 16
# Rows that tell which clusters are near each other, for each cluster, and how many of their clusters do.
ROWS_PER_CLUSTER, CLUSTERS_OF_ROW = 8, 4


def clusters_looked_at(n_clusters: int) -> int:
    """Return how many clusters a row looks at, if putting rows into lists counts as looking at as many again."""
    return n_clusters if n_clusters < MANY_CLUSTERS else 2 * MOST_CLUSTERS


def in_super_clusters(
    rng: np.random.Generator, clusters: DrawnClusters, labels: LabelDraws, n: int
) -> DrawnClusters:
    """Return the clusters, which are in the order of their leaders, one super-cluster after the other.

    Parameters
    ----------
    rng : numpy.random.Generator
    clusters : DrawnClusters
    labels : LabelDraws
        Of these clusters and of all rows.
    n : int
        Number of rows.
    """
    chosen = rng.integers(n, size=ROWS_PER_CLUSTER * len(clusters.slots))
    members = super_clusters(rng, labels.responsibilities(chosen))
    order = np.concatenate(members)
    return DrawnClusters(
        clusters.slots[order],
        clusters.priorities[order],
        clusters.log_weights[order],
        [{name: own[order] for name, own in drawn.items()} for drawn in clusters.drawn],
        clusters.order_key,
        clusters.uniform_key,
        np.cumsum([0, *map(len, members)]),
    )


def super_clusters(rng: np.random.Generator, responsibilities: np.ndarray) -> list[np.ndarray]:
    """Return the clusters of each super-cluster, in increasing order.

    One begins with a cluster chosen at random. The cluster that shares most rows with those that are in it joins
    next, until it has its number of clusters.

    Parameters
    ----------
    rng : numpy.random.Generator
    responsibilities : (m, K) array
        Probabilities with which some rows belong to the clusters.
    """
    n_clusters = responsibilities.shape[1]
    # Sums in a fixed order, which a product of matrices does not have: its order may depend on threads.
    n_places = min(CLUSTERS_OF_ROW, n_clusters)
    places = np.argpartition(responsibilities, n_clusters - n_places, axis=1)[:, n_clusters - n_places :]
    largest = np.take_along_axis(responsibilities, places, axis=1)
    pairs = n_clusters * places[:, :, None] + places[:, None, :]
    products = largest[:, :, None] * largest[:, None, :]
    shared = np.bincount(pairs.ravel(), products.ravel(), n_clusters**2).reshape(n_clusters, n_clusters)
    left, members = np.ones(n_clusters, dtype=bool), []
    n_super_clusters = -(-n_clusters // MOST_CLUSTERS)
    for size in np.diff(np.linspace(0, n_clusters, n_super_clusters + 1).astype(int)).tolist():
        own = [int(rng.choice(np.flatnonzero(left)))]
        near = np.zeros(n_clusters)
        for _ in range(size - 1):
            left[own[-1]] = False
            near += shared[own[-1]]
            own.append(int(np.argmax(np.where(left, near, -1.0))))
        left[own[-1]] = False
        members.append(np.sort(own))
    return members
