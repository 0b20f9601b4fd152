"""Super-clusters: few clusters each, between which rows go, so that a row looks at few of many clusters.

Chang and Fisher (2013, section 4.1) let a row join only clusters that are near its own. What is near must not
depend on the labels, or the sweep would not leave the posterior invariant. Here it is a function of the clusters'
drawn weights and parameters, and of rows that are chosen without looking at the labels: clusters are near each
other where these rows could belong to both. ``docs/moves.md`` has the proof.
"""

import numpy as np

from pymc_dpgmm.sampler.amounts import MANY_CLUSTERS, MOST_CLUSTERS
from pymc_dpgmm.sampler.many_rows.drawn_clusters import DrawnClusters, LabelDraws

# Rows that tell which clusters are near each other, for each cluster; how many clusters of such a row do; and the
# least number of rows for each such row.
ROWS_PER_CLUSTER, CLUSTERS_OF_ROW, ROWS_PER_CHOSEN = 8, 4, 16


def has_super_clusters(n: int, n_clusters: int) -> bool:
    """Tell whether so many clusters of n rows are brought together in super-clusters."""
    return n_clusters >= MANY_CLUSTERS and n >= ROWS_PER_CHOSEN * ROWS_PER_CLUSTER * n_clusters


def clusters_looked_at(n: int, n_clusters: int) -> int:
    """Return how many clusters a row looks at, if putting rows into lists counts as looking at as many again."""
    return 2 * MOST_CLUSTERS if has_super_clusters(n, n_clusters) else n_clusters


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
    n_clusters = len(clusters.slots)
    chosen = rng.integers(n, size=ROWS_PER_CLUSTER * n_clusters)
    places, probabilities = labels.most_probable(chosen, min(CLUSTERS_OF_ROW, n_clusters))
    members = super_clusters(rng, n_clusters, places, probabilities)
    return clusters.in_order(np.concatenate(members), np.cumsum([0, *map(len, members)]))


def super_clusters(
    rng: np.random.Generator, n_clusters: int, places: np.ndarray, probabilities: np.ndarray
) -> list[np.ndarray]:
    """Return the clusters of each super-cluster, in increasing order.

    One begins with a cluster chosen at random. The cluster that shares most rows with those that are in it joins
    next, until it has its number of clusters.

    Parameters
    ----------
    rng : numpy.random.Generator
    n_clusters : int
    places : (m, p) int64 array
        Some clusters of some rows.
    probabilities : (m, p) array
        With which the rows belong to them.
    """
    # Imported only here, because the import takes a tenth of a second.
    from scipy import sparse

    pairs = (np.repeat(places, places.shape[1], axis=1).ravel(), np.tile(places, places.shape[1]).ravel())
    products = (probabilities[:, :, None] * probabilities[:, None, :]).ravel()
    shared = sparse.coo_array((products, pairs), shape=(n_clusters, n_clusters)).tocsr()
    begins, others, values = shared.indptr.tolist(), shared.indices, shared.data
    left, members = np.ones(n_clusters, dtype=bool), []
    n_super_clusters = -(-n_clusters // MOST_CLUSTERS)
    for size in np.diff(np.linspace(0, n_clusters, n_super_clusters + 1).astype(int)).tolist():
        near = np.where(left, 0.0, -np.inf)
        own = [int(rng.choice(np.flatnonzero(left)))]
        for _ in range(size - 1):
            k = own[-1]
            near[k] = -np.inf
            near[others[begins[k] : begins[k + 1]]] += values[begins[k] : begins[k + 1]]
            own.append(int(np.argmax(near)))
        left[own] = False
        members.append(np.sort(own))
    return members
