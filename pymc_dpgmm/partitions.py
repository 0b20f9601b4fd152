"""Priors on partitions, as numbers: seating weights, the EPPF, canonical labels.

A prior is a ``NamedTuple`` of floats, and the verbs below are implemented for its class, in Python and
in compiled code alike (see :mod:`pymc_dpgmm.dispatch`). The kernels know a prior only by these verbs.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.dispatch import compiled, implements, verb


@verb
def log_seat(prior, size):
    """Log weight with which a row joins one given cluster of ``size`` >= 1 other rows."""


@verb
def log_seat_new(prior, n_clusters):
    """Log weight with which a row opens a new cluster beside ``n_clusters`` >= 0 others."""


@verb
def log_eppf(prior, sizes, n_clusters):
    """Log probability of a partition with the cluster sizes ``sizes[:n_clusters]``."""


@verb
def log_split(prior, n_clusters, left, right):
    """Log ratio of the EPPFs after and before one of ``n_clusters`` splits into ``left`` and ``right`` rows."""


class ChineseRestaurant(NamedTuple):
    """The Chinese restaurant process with concentration ``alpha`` > 0."""

    alpha: float


@implements(log_seat, ChineseRestaurant)
def _(prior, size):
    return math.log(size)


@implements(log_seat_new, ChineseRestaurant)
def _(prior, n_clusters):
    return math.log(prior.alpha)


@implements(log_eppf, ChineseRestaurant)
def _(prior, sizes, n_clusters):
    # Ewens (1972); Antoniak (1974): alpha^K prod (n_k - 1)! Gamma(alpha) / Gamma(alpha + n).
    total = n_clusters * math.log(prior.alpha)
    n = 0
    for k in range(n_clusters):
        total += math.lgamma(sizes[k])
        n += sizes[k]
    return total + math.lgamma(prior.alpha) - math.lgamma(prior.alpha + n)


@implements(log_split, ChineseRestaurant)
def _(prior, n_clusters, left, right):
    return math.log(prior.alpha) + math.lgamma(left) + math.lgamma(right) - math.lgamma(left + right)


@compiled()
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
    """
    n = labels.shape[0]
    names = np.full(n, -1, dtype=np.int64)
    canonical = np.empty(n, dtype=np.int64)
    n_clusters = 0
    for i in range(n):
        label = labels[i]
        if label < 0 or label >= n:
            raise ValueError("labels must lie in 0..n-1")
        if names[label] < 0:
            names[label] = n_clusters
            n_clusters += 1
        canonical[i] = names[label]
    return canonical, n_clusters


@compiled()
def cluster_sizes(labels: np.ndarray) -> np.ndarray:
    """Return the sizes of the clusters in order of first appearance.

    Parameters
    ----------
    labels : (n,) integer array

    Returns
    -------
    sizes : (K,) int64 array
        Empty if any label is outside 0..n-1, which marks labels that are no partition.
    """
    n = labels.shape[0]
    names = np.full(n, -1, dtype=np.int64)
    sizes = np.zeros(n, dtype=np.int64)
    n_clusters = 0
    for i in range(n):
        label = labels[i]
        if label < 0 or label >= n:
            return sizes[:0]
        if names[label] < 0:
            names[label] = n_clusters
            n_clusters += 1
        sizes[names[label]] += 1
    return sizes[:n_clusters].copy()


@compiled()
def draw_crp(rng: np.random.Generator, alpha: float, n: int) -> np.ndarray:
    """Draw canonical labels of ``n`` rows from a Chinese restaurant process.

    Row i copies the label of a uniformly chosen earlier row with probability i / (i + alpha), and opens a
    cluster otherwise (Blackwell and MacQueen 1973), so the cost is O(n) whatever the number of clusters.

    Parameters
    ----------
    rng : numpy.random.Generator
    alpha : float, > 0
    n : int, >= 1

    Returns
    -------
    labels : (n,) int64 array
    """
    labels = np.zeros(n, dtype=np.int64)
    n_clusters = 1
    for i in range(1, n):
        u = rng.random() * (i + alpha)
        if u < i:
            labels[i] = labels[int(u)]
        else:
            labels[i] = n_clusters
            n_clusters += 1
    return labels


def draw_start(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw an over-dispersed start: a random partition with at most min(n, 50) clusters.

    The number of labels is log-uniform on 1..min(n, 50), and each row takes one of them uniformly.

    Parameters
    ----------
    rng : numpy.random.Generator
    n : int, >= 1

    Returns
    -------
    labels : (n,) int64 array, canonical
    """
    most = min(n, 50)
    n_labels = min(int(math.exp(rng.random() * math.log(most + 1))), most)
    return canonical_labels(rng.integers(n_labels, size=n))[0]
