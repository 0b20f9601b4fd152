"""A search for the partition with the smallest posterior expected loss."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dpgmm.native.arithmetic import Bits
from pymc_dpgmm.native.compiled import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NOTHING,
    SMALL_INTS,
    bits_of_generator,
    c_function,
    inlined,
    shifted,
)
from pymc_dpgmm.native.threads import Threads, available_threads
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.posterior.arrays.losses import losses_between, weights_of_sizes
from pymc_dpgmm.posterior.arrays.partitions import distinct, grouped
from pymc_dpgmm.sampler.state.choices import shuffle

# Default number of starts from an empty partition, and of starts from draws.
N_STARTS = 8
# Largest number of sweeps of one start; a sweep without a change ends it.
MOST_SWEEPS = 100
# Smaller changes of the expected loss are rounding errors.
LEAST_GAIN = 1e-12
# Initial capacity for clusters; it doubles as needed.
_ROOM = 8

# With more than twice N_FIRST draws, all starts search on a sample of N_FIRST draws first. The N_KEPT best
# partitions are then improved on all draws.
N_FIRST = 500
N_KEPT = 2
# The searches see a sample of the draws that has at most so many labels, of at least so many draws.
MOST_LABELS, FEWEST_SEEN = 4_000_000, 40

# Entries of ``head``: number of draws, largest number of clusters of a draw, capacity for clusters, number of
# clusters with rows, and largest number of clusters allowed.
_N_DRAWS, _WIDTH, _CAPACITY, _N_CLUSTERS, _MOST = range(5)
# Types of head, draws, shares, f, counts, labels, sizes, met and costs; see :class:`Search`.
_STATE = (INTS, SMALL_INTS, FLOATS, FLOATS, INTS, INTS, INTS, SMALL_INTS, FLOATS)


@inlined
def _join_cost(head, draws, shares, f, counts, sizes, met, i, k, a, b):
    """Increase of the expected loss when row i joins cluster k, up to a constant in k."""
    n_draws, width, capacity = head[_N_DRAWS], head[_WIDTH], head[_CAPACITY]
    of_row, m = shifted(draws, i * n_draws), counts[i]
    shared = 0.0
    for s in range(n_draws):
        before = met[(s * width + of_row[s]) * capacity + k]
        shared += shares[s] * (f[before + m] - f[before])
    return b * (f[sizes[k] + m] - f[sizes[k]]) - (a + b) * shared


@inlined
def _join_costs(head, draws, shares, f, counts, sizes, met, costs, i, a, b):
    """Set ``costs`` to the increase for each cluster with rows, and to infinity for clusters without."""
    n_draws, width, capacity = head[_N_DRAWS], head[_WIDTH], head[_CAPACITY]
    of_row, m = shifted(draws, i * n_draws), counts[i]
    last = capacity
    while last > 0 and sizes[last - 1] == 0:
        last -= 1
    for k in range(last):
        costs[k] = 0.0
    for s in range(n_draws):
        # Counts of all clusters in the row's cluster of draw s are contiguous.
        clusters, share = shifted(met, (s * width + of_row[s]) * capacity), shares[s]
        for k in range(last):
            # Where there is no common row, it gains f(m) in any cluster.
            if clusters[k] > 0:
                costs[k] += share * (f[clusters[k] + m] - f[clusters[k]] - f[m])
    for k in range(capacity):
        gain = f[sizes[k] + m] - f[sizes[k]]
        costs[k] = b * gain - (a + b) * (costs[k] + f[m]) if sizes[k] > 0 else np.inf


@inlined
def _alone_cost(f, m, a):
    """Increase of the expected loss when a row that stands for m forms a cluster by itself."""
    return -a * f[m]


@inlined
def _count(head, draws, counts, labels, sizes, met, i, k, sign):
    """Let row i join (``sign`` 1) or leave (-1) cluster k."""
    n_draws, width, capacity = head[_N_DRAWS], head[_WIDTH], head[_CAPACITY]
    of_row, change = shifted(draws, i * n_draws), sign * counts[i]
    for s in range(n_draws):
        met[(s * width + of_row[s]) * capacity + k] += change
    sizes[k] += change
    labels[i] = k if change > 0 else -1
    if change > 0 and sizes[k] == change:
        head[_N_CLUSTERS] += 1
    if change < 0 and sizes[k] == 0:
        head[_N_CLUSTERS] -= 1


@inlined
def _first_empty(head, sizes):
    """Return the first cluster without rows, -1 if the capacity is used up."""
    for k in range(head[_CAPACITY]):
        if sizes[k] == 0:
            return k
    return -1


@inlined
def _best(head, draws, shares, f, counts, sizes, met, costs, i, free, a, b):
    """Return the cluster in which row i costs least, and that cost. The row must be in no cluster.

    ``free`` is a cluster without rows. ``costs`` are set to those of all clusters.
    """
    _join_costs(head, draws, shares, f, counts, sizes, met, costs, i, a, b)
    best, least = -1, np.inf
    if head[_N_CLUSTERS] < head[_MOST]:
        best, least = free, _alone_cost(f, counts[i], a)
    for k in range(head[_CAPACITY]):
        if costs[k] < least - LEAST_GAIN:
            best, least = k, costs[k]
    return best, least


@c_function(NOTHING(*_STATE, INTS, INT))
def _place(head, draws, shares, f, counts, labels, sizes, met, costs, rows, n_rows):
    """Count rows in the clusters that their labels name."""
    for t in range(n_rows):
        _count(head, draws, counts, labels, sizes, met, rows[t], labels[rows[t]], 1)


@c_function(NOTHING(INT, INT, INTS, INT))
def _shuffle(next_double, state, rows, n_rows):
    """Bring rows into random order."""
    shuffle(Bits(next_double, state), rows, 0, n_rows)


@c_function(INT(*_STATE, INTS, INT, INT, FLOATS, FLOAT, FLOAT))
def _allocate(head, draws, shares, f, counts, labels, sizes, met, costs, rows, start, stop, total, a, b):
    """Let ``rows[start:stop]``, in no cluster, join the best cluster in turn; add the costs to ``total[0]``.

    Return ``stop``, or the position of the row at which the capacity for clusters was used up.
    """
    for t in range(start, stop):
        free = _first_empty(head, sizes)
        if free < 0:
            return t
        k, cost = _best(head, draws, shares, f, counts, sizes, met, costs, rows[t], free, a, b)
        _count(head, draws, counts, labels, sizes, met, rows[t], k, 1)
        total[0] += cost
    return stop


@c_function(INT(*_STATE, INTS, INT, INT, INTS, FLOAT, FLOAT))
def _sweep(head, draws, shares, f, counts, labels, sizes, met, costs, rows, start, stop, changed, a, b):
    """Move ``rows[start:stop]`` in turn to the best cluster for each; set ``changed[0]`` to 1 if any moved.

    Return ``stop``, or the position of the row at which the capacity for clusters was used up.
    """
    for t in range(start, stop):
        i = rows[t]
        old = labels[i]
        if sizes[old] > counts[i] and _first_empty(head, sizes) < 0:
            return t
        _count(head, draws, counts, labels, sizes, met, i, old, -1)
        k, cost = _best(head, draws, shares, f, counts, sizes, met, costs, i, _first_empty(head, sizes), a, b)
        stay = _alone_cost(f, counts[i], a) if sizes[old] == 0 else costs[old]
        if cost >= stay - LEAST_GAIN:
            k = old
        if k != old:
            changed[0] = 1
        _count(head, draws, counts, labels, sizes, met, i, k, 1)
    return stop


@c_function(FLOAT(*_STATE, INTS, INT, INT, FLOAT, FLOAT))
def _dissolve(head, draws, shares, f, counts, labels, sizes, met, costs, rows, n_rows, k, a, b):
    """Remove all rows from cluster k, the last one first; return the total cost of their having joined it."""
    before = 0.0
    for t in range(n_rows - 1, -1, -1):
        _count(head, draws, counts, labels, sizes, met, rows[t], k, -1)
        before += _join_cost(head, draws, shares, f, counts, sizes, met, rows[t], k, a, b)
    return before


@c_function(NOTHING(*_STATE, INTS, INT, INT))
def _reunite(head, draws, shares, f, counts, labels, sizes, met, costs, rows, n_rows, k):
    """Move rows from their clusters to cluster k."""
    for t in range(n_rows):
        _count(head, draws, counts, labels, sizes, met, rows[t], labels[rows[t]], -1)
    for t in range(n_rows):
        _count(head, draws, counts, labels, sizes, met, rows[t], k, 1)


class Search:
    """A partition under construction, with counts of the rows that its clusters share with those of the draws.

    Rows that are together in all draws are one row that stands for several: as the loss is concave in how many of
    them are in one cluster and how many in another, a partition with the smallest expected loss has them together.

    Parameters
    ----------
    draws : (n, S) int32 array
        Canonical labels of the draws, one column each.
    counts : (n,) int64 array
        How many rows each stands for.
    shares : (S,) float64 array
    f : (N + 1,) float64 array
        The loss of cluster sizes, N being the sum of ``counts``.
    start : (n,) int64 array
        Labels at the start, -1 where a row is in no cluster.
    most : float
        Largest number of clusters.
    costs : two floats
        The costs a of separating and b of joining rows.
    """

    def __init__(
        self,
        draws: np.ndarray,
        counts: np.ndarray,
        shares: np.ndarray,
        f: np.ndarray,
        start: np.ndarray,
        most: float,
        costs: tuple[float, float],
    ) -> None:
        n, n_draws = draws.shape
        width, capacity = int(draws.max()) + 1, max(_ROOM, int(start.max()) + 2)
        self.draws, self.counts, self.shares, self.f, self.costs = draws, counts, shares, f, costs
        self.labels = start.astype(np.int64)
        self.sizes = np.zeros(capacity, dtype=np.int64)
        # Number of rows that cluster k shares with cluster l of draw s: (S, L, K).
        self.met = np.zeros((n_draws, width, capacity), dtype=np.int32)
        self.head = np.array([n_draws, width, capacity, 0, int(min(most, n + 1))])
        self._total, self._changed = np.zeros(1), np.zeros(1, dtype=np.int64)
        self._point()
        placed = np.flatnonzero(start >= 0)
        _place(*self._state, placed.ctypes.data, len(placed))

    def _point(self) -> None:
        self._costs = np.empty(len(self.sizes))
        arrays = self.head, self.draws, self.shares, self.f, self.counts, self.labels, self.sizes, self.met
        self._state = tuple(array.ctypes.data for array in (*arrays, self._costs))

    def _grow(self) -> None:
        """Double the capacity for clusters."""
        self.sizes = np.concatenate([self.sizes, np.zeros_like(self.sizes)])
        self.met = np.concatenate([self.met, np.zeros_like(self.met)], axis=2)
        self.head[_CAPACITY] *= 2
        self._point()

    def _run(self, kernel: Callable[..., int], rows: np.ndarray, counted: np.ndarray) -> None:
        """Run a kernel over all rows, growing the capacity as needed; its result is in ``counted`` (1,)."""
        counted[0], done = 0, 0
        while done < len(rows):
            done = kernel(*self._state, rows.ctypes.data, done, len(rows), counted.ctypes.data, *self.costs)
            if done < len(rows):
                self._grow()

    def allocate(self, rows: np.ndarray) -> float:
        """Allocate rows that are in no cluster to the best one in turn; return the sum of the costs."""
        self._run(_allocate, rows, self._total)
        return float(self._total[0])

    def sweep(self, rng: np.random.Generator) -> bool:
        """Move every row to the best cluster for it; return whether any moved."""
        rows = shuffled(rng, np.arange(len(self.labels)))
        self._run(_sweep, rows, self._changed)
        return bool(self._changed[0])

    def dissolve_clusters(self, rng: np.random.Generator) -> bool:
        """Dissolve clusters in turn, reallocate their rows, and undo it where the loss does not fall.

        Return whether any was dissolved for good.
        """
        changed = False
        for k in shuffled(rng, np.arange(len(self.sizes))).tolist():
            if self.sizes[k] == 0:
                continue
            rows = np.flatnonzero(self.labels == k)
            before = _dissolve(*self._state, rows.ctypes.data, len(rows), k, *self.costs)
            shuffled(rng, rows)
            if self.allocate(rows) < before - LEAST_GAIN:
                changed = True
            else:
                _reunite(*self._state, rows.ctypes.data, len(rows), k)
        return changed


def shuffled(rng: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    """Bring rows, int64, into random order, and return them."""
    _shuffle(*bits_of_generator(rng), rows.ctypes.data, len(rows))
    return rows


def improve(search: Search, rng: np.random.Generator) -> np.ndarray:
    """Search for a partition of smaller expected loss, from one of all rows, some or none.

    Rows in no cluster are allocated one after the other. Then sweeps move single rows, or dissolve clusters, as
    long as the loss falls (Dahl, Johnson and Mueller 2022, section 3).

    Returns
    -------
    labels : (n,) int64 array
    """
    search.allocate(shuffled(rng, np.flatnonzero(search.labels < 0)))
    for _ in range(MOST_SWEEPS):
        if not search.sweep(rng) and not search.dissolve_clusters(rng):
            break
    return search.labels


# Number of results kept in a cache: a table and a plot of the same draws need only one search.
N_REMEMBERED = 8
_remembered: dict[tuple[Any, ...], tuple[np.ndarray, float]] = {}


def point_partition_of(
    labels: np.ndarray,
    loss: str = "vi",
    costs: tuple[float, float] = (1.0, 1.0),
    most: float = np.inf,
    n_starts: int = N_STARTS,
    seed: Any = 0,
) -> tuple[np.ndarray, float]:
    """Return the result of :func:`search_point_partition`, from a cache if the seed is an integer."""
    if not isinstance(seed, int | np.integer):
        return search_point_partition(labels, loss, costs, most, n_starts, seed)
    digest = hashlib.sha256(np.ascontiguousarray(labels, dtype=np.int64)).digest()
    key = (digest, labels.shape, loss, costs, most, n_starts, int(seed))
    if key not in _remembered:
        _remembered[key] = search_point_partition(labels, loss, costs, most, n_starts, seed)
        while len(_remembered) > N_REMEMBERED:
            _remembered.pop(next(iter(_remembered)))
    partition, expected = _remembered[key]
    return partition.copy(), expected


def search_point_partition(
    labels: np.ndarray,
    loss: str = "vi",
    costs: tuple[float, float] = (1.0, 1.0),
    most: float = np.inf,
    n_starts: int = N_STARTS,
    seed: Any = 0,
    n_threads: int | None = None,
) -> tuple[np.ndarray, float]:
    """Return canonical labels with a small expected loss under draws (S, n), and that loss.

    There are ``n_starts`` starts from an empty partition, and as many from draws: those with the smallest expected
    loss in a random sample. With many draws, a first search uses a part of them, and with very many labels all
    searches do. The partition is chosen among their results by all draws.
    """
    draws, shares = distinct(labels)
    n, rng = draws.shape[1], np.random.default_rng(seed)
    seen, of_seen, n_seen = draws, shares, max(MOST_LABELS // n, FEWEST_SEEN)
    if len(draws) > n_seen:
        seen, of_seen = (
            draws[rng.choice(len(draws), n_seen, replace=False, p=shares)],
            np.full(n_seen, 1.0 / n_seen),
        )
    # Rows that are together in all draws stay together.
    alike, first, counts = grouped(seen.T)
    seen, f = np.ascontiguousarray(seen[:, first]), weights_of_sizes(loss, n)
    few = seen[rng.choice(len(seen), min(len(seen), 16 * n_starts), replace=False, p=of_seen)]
    few = few[few.max(axis=1) < most]
    with Threads(n_threads or available_threads()) as threads:

        def expected(partitions: np.ndarray) -> np.ndarray:
            return losses_between(threads, partitions, seen, loss, costs, counts) @ of_seen

        def improved(starts: np.ndarray, draws: np.ndarray, shares: np.ndarray) -> np.ndarray:
            seeds, results = rng.spawn(len(starts)), np.empty(starts.shape, dtype=np.int64)
            by_row = np.ascontiguousarray(draws.T.astype(np.int32))

            def run(first: int, last: int) -> None:
                for t in range(first, last):
                    search = Search(by_row, counts, shares, f, starts[t], most, costs)
                    results[t] = canonical_labels(improve(search, seeds[t]))[0]

            threads.run(run, 0, len(starts))
            return results

        few = few[np.argsort(expected(few), kind="stable")[:n_starts]]
        candidates = np.concatenate([np.full((n_starts, len(first)), -1, dtype=np.int64), few])
        if len(seen) > 2 * N_FIRST:
            some = rng.choice(len(seen), N_FIRST, replace=False, p=of_seen)
            candidates = improved(candidates, seen[some], np.full(N_FIRST, 1.0 / N_FIRST))
            # Several searches may end at the same partition.
            candidates = np.unique(candidates, axis=0)
            candidates = candidates[np.argsort(expected(candidates), kind="stable")[:N_KEPT]]
        candidates = np.concatenate([improved(candidates, seen, of_seen), few[:1]])
        candidates = np.unique(candidates, axis=0)[:, alike]
        losses = losses_between(threads, candidates, draws, loss, costs) @ shares
    best = int(np.argmin(losses))
    return candidates[best], float(losses[best])
