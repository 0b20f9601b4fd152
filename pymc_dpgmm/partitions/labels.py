"""Labels of a partition: canonical names, first rows, sizes, and matches with other labels."""

import numpy as np

from pymc_dpgmm.native.compiled import INT, INTS, address_of, c_function


@c_function(INT(INTS, INT, INTS, INTS))
def _canonical(labels, n, names, canonical):
    """Write canonical labels, and return the number of clusters, or -1 if a label is outside 0..n-1.

    ``names`` is filled with -1 by the caller.
    """
    n_clusters = 0
    for i in range(n):
        label = labels[i]
        if label < 0 or label >= n:
            return -1
        if names[label] < 0:
            names[label] = n_clusters
            n_clusters += 1
        canonical[i] = names[label]
    return n_clusters


def _renamed(labels: np.ndarray) -> tuple[np.ndarray, int]:
    labels = np.ascontiguousarray(labels, dtype=np.int64)
    names, canonical = np.full(len(labels), -1), np.empty(len(labels), dtype=np.int64)
    n_clusters = _canonical(address_of(labels), len(labels), address_of(names), address_of(canonical))
    return canonical, n_clusters


def named_by_appearance(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rename labels 0, 1, 2, ... in order of first appearance, and return the first row of each.

    Parameters
    ----------
    labels : (n,) integer array
        Any values.

    Returns
    -------
    canonical : (n,) int64 array
    first : (K,) int64 array
        Increasing.

    Examples
    --------
    >>> named_by_appearance(np.array([20, 0, 20, 1]))
    (array([0, 1, 0, 2]), array([0, 1, 3]))
    """
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    names = np.empty(len(order), dtype=np.int64)
    names[order] = np.arange(len(order))
    return names[codes], first[order]


def first_rows(labels: np.ndarray) -> np.ndarray:
    """Return for each row the first row with its label: (n,) int64 array.

    Examples
    --------
    >>> first_rows(np.array([2, 0, 2, 1]))
    array([0, 1, 0, 3])
    """
    canonical, first = named_by_appearance(labels)
    return first[canonical]


def canonical_labels(labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Rename labels 0, 1, 2, ... in order of first appearance.

    Parameters
    ----------
    labels : (n,) integer array
        Any values in 0..n-1; two rows are in one cluster if and only if their values agree.

    Returns
    -------
    canonical : (n,) int64 array
    n_clusters : int

    Raises
    ------
    ValueError
        If a value is outside 0..n-1.

    Examples
    --------
    >>> canonical_labels(np.array([2, 0, 2, 1]))
    (array([0, 1, 0, 2]), 3)
    """
    canonical, n_clusters = _renamed(labels)
    if n_clusters < 0:
        raise ValueError("labels must lie in 0..n-1")
    return canonical, n_clusters


def matched_names(labels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Match the clusters of one labelling with those of another: a permutation of names.

    Pairs of clusters are matched greedily, those that share most rows first, and among equals those whose first
    shared row comes first. Names without a partner are matched in increasing order. The permutation from the
    second labelling to the first is therefore the inverse.

    Parameters
    ----------
    labels, others : (n,) integer arrays
        Canonical.

    Returns
    -------
    names : (m,) int64 array
        Name k becomes ``names[k]``; m is the larger number of clusters.
    """
    m = int(max(labels.max(), others.max())) + 1
    pairs, first, shared = np.unique(labels.astype(np.int64) * m + others, return_index=True, return_counts=True)
    names = np.full(m, -1, dtype=np.int64)
    taken = np.zeros(m, dtype=np.bool_)
    for pair in pairs[np.lexsort((first, -shared))]:
        name, other = divmod(int(pair), m)
        if names[name] < 0 and not taken[other]:
            names[name] = other
            taken[other] = True
    names[names < 0] = np.flatnonzero(~taken)
    return names


def cluster_sizes(labels: np.ndarray) -> np.ndarray:
    """Return the sizes of the clusters in order of first appearance.

    Parameters
    ----------
    labels : (n,) integer array

    Returns
    -------
    sizes : (K,) int64 array
        Empty if any label is outside 0..n-1, which marks labels that are no partition.

    Examples
    --------
    >>> cluster_sizes(np.array([2, 0, 2, 1]))
    array([2, 1, 1])
    """
    canonical, n_clusters = _renamed(labels)
    return np.bincount(canonical, minlength=n_clusters) if n_clusters >= 0 else np.zeros(0, dtype=np.int64)
