"""A search for the partition with the smallest posterior expected loss."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from pymc_dpgmm.partitions import canonical_labels
from pymc_dpgmm.posterior.arrays.losses import losses_between, weights_of_sizes
from pymc_dpgmm.posterior.arrays.partitions import distinct
from pymc_dpgmm.threads import Threads, available_threads

# Starts from scratch, and starts from draws, by default.
N_STARTS = 8
# Sweeps of one start, at most; a sweep without a change ends it.
MOST_SWEEPS = 100
# A change of less than this is rounding.
LEAST_GAIN = 1e-12


_compiled = njit(cache=True, nogil=True, error_model="numpy", no_cfunc_wrapper=True)


class Search(NamedTuple):
    """State of a search: a partition that grows and shrinks, and how it meets the draws.

    Parameters
    ----------
    draws : (n, S) int32 array
        Canonical labels of the draws, one column each.
    shares : (S,) float64 array
    gains : (n,) float64 array
        f(x + 1) - f(x) at index x.
    labels : (n,) int64 array
        -1 where a row is in no cluster.
    sizes : (K,) int64 array
        Room for K clusters, those without rows in between.
    met : (K, S, L) int32 array
        Rows of cluster k that are in cluster l of draw s.
    """

    draws: np.ndarray
    shares: np.ndarray
    gains: np.ndarray
    labels: np.ndarray
    sizes: np.ndarray
    met: np.ndarray


@_compiled
def _shuffle(rng, rows):
    """Bring rows into random order (Fisher and Yates)."""
    for t in range(rows.shape[0] - 1, 0, -1):
        other = int(rng.random() * (t + 1))
        rows[t], rows[other] = rows[other], rows[t]
    return rows


@_compiled
def _join_cost(search, i, k, a, b):
    """Growth of the expected loss as row i joins cluster k, less what does not depend on k."""
    shared = 0.0
    for s in range(search.shares.shape[0]):
        shared += search.shares[s] * search.gains[search.met[k, s, search.draws[i, s]]]
    return b * search.gains[search.sizes[k]] - (a + b) * shared


@_compiled
def _count(search, i, k, change):
    """Let row i join (1) or leave (-1) cluster k."""
    search.sizes[k] += change
    for s in range(search.shares.shape[0]):
        search.met[k, s, search.draws[i, s]] += change
    search.labels[i] = k if change > 0 else -1


@_compiled
def _roomy(search):
    """Return the search with room for one cluster more at least, and where that is."""
    for k in range(search.sizes.shape[0]):
        if search.sizes[k] == 0:
            return search, k
    k = search.sizes.shape[0]
    met = np.zeros((2 * k, search.met.shape[1], search.met.shape[2]), dtype=np.int32)
    met[:k] = search.met
    sizes = np.zeros(2 * k, dtype=np.int64)
    sizes[:k] = search.sizes
    return Search(search.draws, search.shares, search.gains, search.labels, sizes, met), k


@_compiled
def _best(search, i, free, n_clusters, most, a, b):
    """Return the cluster in which row i, which is in none, costs least, and that cost; ``free`` has no rows."""
    best, least = -1, np.inf
    if n_clusters < most:
        # All clusters without rows are alike: f(1) - f(0) at every draw.
        best, least = free, b * search.gains[0] - (a + b) * search.gains[0]
    for k in range(search.sizes.shape[0]):
        if search.sizes[k] > 0:
            cost = _join_cost(search, i, k, a, b)
            if cost < least - LEAST_GAIN:
                best, least = k, cost
    return best, least


@_compiled
def _allocate(search, rows, n_clusters, most, a, b):
    """Let rows that are in no cluster join the best one, one after the other; return the sum of the costs too."""
    total = 0.0
    for i in rows:
        search, free = _roomy(search)
        k, cost = _best(search, i, free, n_clusters, most, a, b)
        n_clusters += search.sizes[k] == 0
        _count(search, i, k, 1)
        total += cost
    return search, n_clusters, total


@_compiled
def _sweep(rng, search, n_clusters, most, a, b):
    """Let every row join the cluster that is best for it; return whether any changed."""
    changed = False
    for i in _shuffle(rng, np.arange(search.labels.shape[0])):
        own = search.labels[i]
        _count(search, i, own, -1)
        n_clusters -= search.sizes[own] == 0
        search, free = _roomy(search)
        k, cost = _best(search, i, free, n_clusters, most, a, b)
        alone = search.sizes[own] == 0
        stay = b * search.gains[0] - (a + b) * search.gains[0] if alone else _join_cost(search, i, own, a, b)
        if cost >= stay - LEAST_GAIN:
            k = own
        changed = changed or k != own
        n_clusters += search.sizes[k] == 0
        _count(search, i, k, 1)
    return search, n_clusters, changed


@_compiled
def _dissolve_clusters(rng, search, n_clusters, most, a, b):
    """Dissolve clusters in turn, their rows joining the best ones, where the expected loss falls; else undo it."""
    changed = False
    for k in _shuffle(rng, np.arange(search.sizes.shape[0])):
        if search.sizes[k] == 0:
            continue
        rows = np.flatnonzero(search.labels == k)
        before = 0.0
        for t in range(rows.shape[0] - 1, -1, -1):
            _count(search, rows[t], k, -1)
            before += _join_cost(search, rows[t], k, a, b)
        _shuffle(rng, rows)
        search, n_new, after = _allocate(search, rows, n_clusters - 1, most, a, b)
        if after < before - LEAST_GAIN:
            n_clusters = n_new
            changed = True
            continue
        for i in rows:
            _count(search, i, search.labels[i], -1)
        for i in rows:
            _count(search, i, k, 1)
    return search, n_clusters, changed


@_compiled
def improve(rng, draws, shares, gains, start, most, a, b):
    """Search from a partition, or from none where ``start`` is -1, for one of smaller expected loss.

    Rows are allocated one after the other; sweeps then move single rows, and dissolve clusters, as long as that
    helps (Dahl, Johnson and Mueller 2022, section 3).

    Returns
    -------
    labels : (n,) int64 array
    """
    n = draws.shape[0]
    n_found = 0
    for s in range(draws.shape[1]):
        for i in range(n):
            n_found = max(n_found, draws[i, s] + 1)
    room = max(8, start.max() + 2)
    search = Search(
        draws,
        shares,
        gains,
        np.full(n, -1, dtype=np.int64),
        np.zeros(room, dtype=np.int64),
        np.zeros((room, draws.shape[1], n_found), dtype=np.int32),
    )
    n_clusters = 0
    for i in range(n):
        if start[i] >= 0:
            n_clusters += search.sizes[start[i]] == 0
            _count(search, i, start[i], 1)
    left = np.flatnonzero(start < 0)
    _shuffle(rng, left)
    search, n_clusters, _ = _allocate(search, left, n_clusters, most, a, b)
    for _ in range(MOST_SWEEPS):
        search, n_clusters, moved = _sweep(rng, search, n_clusters, most, a, b)
        if moved:
            continue
        search, n_clusters, dissolved = _dissolve_clusters(rng, search, n_clusters, most, a, b)
        if not dissolved:
            break
    return search.labels


def search_point_partition(
    labels: np.ndarray,
    loss: str = "vi",
    costs: tuple[float, float] = (1.0, 1.0),
    most: float = np.inf,
    n_starts: int = N_STARTS,
    seed: Any = None,
    n_threads: int | None = None,
) -> tuple[np.ndarray, float]:
    """Return canonical labels with a small expected loss under draws (S, n), and that loss.

    Half of the starts begin with nothing, half from those among a handful of draws with the least expected loss.
    """
    draws, shares = distinct(labels)
    n = draws.shape[1]
    f = weights_of_sizes(loss, n)
    a, b = costs
    rng = np.random.default_rng(seed)
    few = draws[rng.choice(len(draws), min(len(draws), 16 * n_starts), replace=False, p=shares)]
    few = few[few.max(axis=1) < most]
    with Threads(n_threads or available_threads()) as threads:
        of_few = losses_between(threads, few, draws, loss, costs) @ shares
        starts = [np.full(n, -1, dtype=np.int64) for _ in range(n_starts)]
        starts += list(few[np.argsort(of_few, kind="stable")[:n_starts]])
        seeds = rng.spawn(len(starts))
        by_row = np.ascontiguousarray(draws.T.astype(np.int32))
        found = np.empty((len(starts), n), dtype=np.int64)

        def run(first: int, last: int) -> None:
            for t in range(first, last):
                own = improve(seeds[t], by_row, shares, np.diff(f), starts[t], most, a, b)
                found[t] = canonical_labels(own)[0]

        threads.run(run, 0, len(starts))
        of_found = losses_between(threads, found, draws, loss, costs) @ shares
    best = int(np.argmin(of_found))
    return found[best], float(of_found[best])
