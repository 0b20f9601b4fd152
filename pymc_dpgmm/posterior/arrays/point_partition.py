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
from pymc_dpgmm.partitions.priors import canonical_labels
from pymc_dpgmm.posterior.arrays.losses import losses_between, weights_of_sizes
from pymc_dpgmm.posterior.arrays.partitions import distinct
from pymc_dpgmm.sampler.state.memory import shuffle

# Starts from scratch, and starts from draws, by default.
N_STARTS = 8
# Sweeps of one start, at most; a sweep without a change ends it.
MOST_SWEEPS = 100
# A change of less than this is rounding.
LEAST_GAIN = 1e-12
# Room for so many clusters to begin with.
_ROOM = 8

# Draws that are searched with first, where there are more than twice as many; what is found is then searched with
# all of them, from the best of the partitions.
N_FIRST = 500
N_KEPT = 2

# Where the head of a search has the number of draws, the number of clusters of a draw at most, room for clusters,
# how many of these have rows, and how many may have.
_N_DRAWS, _WIDTH, _CAPACITY, _N_CLUSTERS, _MOST = range(5)
# The head, draws, their shares, gains, labels, sizes, how clusters meet draws, and room for a number for each
# cluster; see Search.
_STATE = (INTS, SMALL_INTS, FLOATS, FLOATS, INTS, INTS, SMALL_INTS, FLOATS)


@inlined
def _join_cost(head, draws, shares, gains, sizes, met, i, k, a, b):
    """Growth of the expected loss as row i joins cluster k, less what does not depend on k."""
    n_draws, width, capacity = head[_N_DRAWS], head[_WIDTH], head[_CAPACITY]
    own = shifted(draws, i * n_draws)
    shared = 0.0
    for s in range(n_draws):
        shared += shares[s] * gains[met[(s * width + own[s]) * capacity + k]]
    return b * gains[sizes[k]] - (a + b) * shared


@inlined
def _join_costs(head, draws, shares, gains, sizes, met, costs, i, a, b):
    """Set ``costs`` to this of all clusters with rows, and to infinity for others."""
    n_draws, width, capacity = head[_N_DRAWS], head[_WIDTH], head[_CAPACITY]
    own = shifted(draws, i * n_draws)
    last = capacity
    while last > 0 and sizes[last - 1] == 0:
        last -= 1
    for k in range(last):
        costs[k] = 0.0
    for s in range(n_draws):
        # All clusters lie side by side where they meet the row's cluster of a draw.
        clusters, share = shifted(met, (s * width + own[s]) * capacity), shares[s]
        for k in range(last):
            # Where they do not meet, nothing is gained by a first row: f(1) = f(0) = 0 for both losses.
            if clusters[k] > 0:
                costs[k] += share * gains[clusters[k]]
    for k in range(capacity):
        costs[k] = b * gains[sizes[k]] - (a + b) * costs[k] if sizes[k] > 0 else np.inf


@inlined
def _alone_cost(gains, a, b):
    """Growth of the expected loss as a row has a cluster to itself: all without rows are alike."""
    return b * gains[0] - (a + b) * gains[0]


@inlined
def _count(head, draws, labels, sizes, met, i, k, change):
    """Let row i join (1) or leave (-1) cluster k."""
    n_draws, width, capacity = head[_N_DRAWS], head[_WIDTH], head[_CAPACITY]
    own = shifted(draws, i * n_draws)
    for s in range(n_draws):
        met[(s * width + own[s]) * capacity + k] += change
    sizes[k] += change
    labels[i] = k if change > 0 else -1
    if change > 0 and sizes[k] == 1:
        head[_N_CLUSTERS] += 1
    if change < 0 and sizes[k] == 0:
        head[_N_CLUSTERS] -= 1


@inlined
def _first_empty(head, sizes):
    """Return the first cluster without rows, -1 if there is no room for one."""
    for k in range(head[_CAPACITY]):
        if sizes[k] == 0:
            return k
    return -1


@inlined
def _best(head, draws, shares, gains, sizes, met, costs, i, free, a, b):
    """Return the cluster in which row i, which is in none, costs least, and that cost; ``free`` has no rows.

    ``costs`` are then those of all clusters.
    """
    _join_costs(head, draws, shares, gains, sizes, met, costs, i, a, b)
    best, least = -1, np.inf
    if head[_N_CLUSTERS] < head[_MOST]:
        best, least = free, _alone_cost(gains, a, b)
    for k in range(head[_CAPACITY]):
        if costs[k] < least - LEAST_GAIN:
            best, least = k, costs[k]
    return best, least


@c_function(NOTHING(*_STATE, INTS, INT))
def _place(head, draws, shares, gains, labels, sizes, met, costs, rows, n_rows):
    """Let rows that are in no cluster join those that are their labels."""
    for t in range(n_rows):
        _count(head, draws, labels, sizes, met, rows[t], labels[rows[t]], 1)


@c_function(NOTHING(INT, INT, INTS, INT))
def _shuffle(next_double, state, rows, n_rows):
    """Bring rows into random order."""
    shuffle(Bits(next_double, state), rows, 0, n_rows)


@c_function(INT(*_STATE, INTS, INT, INT, FLOATS, FLOAT, FLOAT))
def _allocate(head, draws, shares, gains, labels, sizes, met, costs, rows, start, stop, total, a, b):
    """Let ``rows[start:stop]``, in no cluster, join the best ones in turn; add the costs to ``total[0]``.

    Return how many of the rows have been handled when there is no room for a cluster more, or ``stop``.
    """
    for t in range(start, stop):
        free = _first_empty(head, sizes)
        if free < 0:
            return t
        k, cost = _best(head, draws, shares, gains, sizes, met, costs, rows[t], free, a, b)
        _count(head, draws, labels, sizes, met, rows[t], k, 1)
        total[0] += cost
    return stop


@c_function(INT(*_STATE, INTS, INT, INT, INTS, FLOAT, FLOAT))
def _sweep(head, draws, shares, gains, labels, sizes, met, costs, rows, start, stop, changed, a, b):
    """Let ``rows[start:stop]`` in turn join the cluster that is best for them; ``changed[0]`` tells if any moved.

    Return how many of the rows have been handled when there is no room for a cluster more, or ``stop``.
    """
    for t in range(start, stop):
        i = rows[t]
        own = labels[i]
        if sizes[own] > 1 and _first_empty(head, sizes) < 0:
            return t
        _count(head, draws, labels, sizes, met, i, own, -1)
        k, cost = _best(head, draws, shares, gains, sizes, met, costs, i, _first_empty(head, sizes), a, b)
        stay = _alone_cost(gains, a, b) if sizes[own] == 0 else costs[own]
        if cost >= stay - LEAST_GAIN:
            k = own
        if k != own:
            changed[0] = 1
        _count(head, draws, labels, sizes, met, i, k, 1)
    return stop


@c_function(FLOAT(*_STATE, INTS, INT, INT, FLOAT, FLOAT))
def _dissolve(head, draws, shares, gains, labels, sizes, met, costs, rows, n_rows, k, a, b):
    """Take all rows out of cluster k, the last one first; return what their joining it had cost."""
    before = 0.0
    for t in range(n_rows - 1, -1, -1):
        _count(head, draws, labels, sizes, met, rows[t], k, -1)
        before += _join_cost(head, draws, shares, gains, sizes, met, rows[t], k, a, b)
    return before


@c_function(NOTHING(*_STATE, INTS, INT, INT))
def _reunite(head, draws, shares, gains, labels, sizes, met, costs, rows, n_rows, k):
    """Let rows, wherever they are, be cluster k."""
    for t in range(n_rows):
        _count(head, draws, labels, sizes, met, rows[t], labels[rows[t]], -1)
    for t in range(n_rows):
        _count(head, draws, labels, sizes, met, rows[t], k, 1)


class Search:
    """A partition that grows and shrinks, and how its clusters meet the draws.

    Parameters
    ----------
    draws : (n, S) int32 array
        Canonical labels of the draws, one column each.
    shares : (S,) float64 array
    gains : (n,) float64 array
        f(x + 1) - f(x) at index x.
    start : (n,) int64 array
        Labels at the start, -1 where a row is in no cluster.
    most : float
        Clusters that there may be.
    costs : two floats
        a and b.
    """

    def __init__(
        self,
        draws: np.ndarray,
        shares: np.ndarray,
        gains: np.ndarray,
        start: np.ndarray,
        most: float,
        costs: tuple[float, float],
    ) -> None:
        n, n_draws = draws.shape
        width, capacity = int(draws.max()) + 1, max(_ROOM, int(start.max()) + 2)
        self.draws, self.shares, self.gains, self.costs = draws, shares, gains, costs
        self.labels = start.astype(np.int64)
        self.sizes = np.zeros(capacity, dtype=np.int64)
        # Rows of cluster k that are in cluster l of draw s: (S, L, K).
        self.met = np.zeros((n_draws, width, capacity), dtype=np.int32)
        self.head = np.array([n_draws, width, capacity, 0, int(min(most, n + 1))])
        self._total, self._changed = np.zeros(1), np.zeros(1, dtype=np.int64)
        self._point()
        placed = np.flatnonzero(start >= 0)
        _place(*self._state, placed.ctypes.data, len(placed))

    def _point(self) -> None:
        self._costs = np.empty(len(self.sizes))
        arrays = self.head, self.draws, self.shares, self.gains, self.labels, self.sizes, self.met, self._costs
        self._state = tuple(array.ctypes.data for array in arrays)

    def _grow(self) -> None:
        """Make room for twice as many clusters."""
        self.sizes = np.concatenate([self.sizes, np.zeros_like(self.sizes)])
        self.met = np.concatenate([self.met, np.zeros_like(self.met)], axis=2)
        self.head[_CAPACITY] *= 2
        self._point()

    def _run(self, kernel: Callable[..., int], rows: np.ndarray, counted: np.ndarray) -> None:
        """Run a kernel over all rows, with more clusters whenever it needs them; it adds to ``counted`` (1,)."""
        counted[0], done = 0, 0
        while done < len(rows):
            done = kernel(*self._state, rows.ctypes.data, done, len(rows), counted.ctypes.data, *self.costs)
            if done < len(rows):
                self._grow()

    def allocate(self, rows: np.ndarray) -> float:
        """Let rows that are in no cluster join the best one, one after the other; return the sum of the costs."""
        self._run(_allocate, rows, self._total)
        return float(self._total[0])

    def sweep(self, rng: np.random.Generator) -> bool:
        """Let every row join the cluster that is best for it; return whether any changed."""
        rows = shuffled(rng, np.arange(len(self.labels)))
        self._run(_sweep, rows, self._changed)
        return bool(self._changed[0])

    def dissolve_clusters(self, rng: np.random.Generator) -> bool:
        """Dissolve clusters in turn, their rows joining the best ones, and undo what does not lower the loss.

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
    """Search from a partition, of some of the rows or of none, for one of smaller expected loss.

    Rows are allocated one after the other; sweeps then move single rows, and dissolve clusters, as long as that
    helps (Dahl, Johnson and Mueller 2022, section 3).

    Returns
    -------
    labels : (n,) int64 array
    """
    search.allocate(shuffled(rng, np.flatnonzero(search.labels < 0)))
    for _ in range(MOST_SWEEPS):
        if not search.sweep(rng) and not search.dissolve_clusters(rng):
            break
    return search.labels


# Searches whose results are remembered: a table and a picture of the same draws need not search twice.
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
    """Return what :func:`search_point_partition` finds; with a whole number for a seed it searches once."""
    if not isinstance(seed, int | np.integer):
        return search_point_partition(labels, loss, costs, most, n_starts, seed)
    digest = hashlib.sha256(np.ascontiguousarray(labels, dtype=np.int64)).digest()
    key = (digest, labels.shape, loss, costs, most, n_starts, int(seed))
    if key not in _remembered:
        _remembered[key] = search_point_partition(labels, loss, costs, most, n_starts, seed)
        while len(_remembered) > N_REMEMBERED:
            _remembered.pop(next(iter(_remembered)))
    found, expected = _remembered[key]
    return found.copy(), expected


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

    Half of the starts begin with nothing, half from those among a handful of draws with the least expected loss.
    Of many draws, a part is searched with first.
    """
    draws, shares = distinct(labels)
    n = draws.shape[1]
    gains = np.diff(weights_of_sizes(loss, n))
    rng = np.random.default_rng(seed)
    few = draws[rng.choice(len(draws), min(len(draws), 16 * n_starts), replace=False, p=shares)]
    few = few[few.max(axis=1) < most]
    with Threads(n_threads or available_threads()) as threads:

        def expected(partitions: np.ndarray) -> np.ndarray:
            return losses_between(threads, partitions, draws, loss, costs) @ shares

        def improved(starts: np.ndarray, draws: np.ndarray, shares: np.ndarray) -> np.ndarray:
            seeds, found = rng.spawn(len(starts)), np.empty((len(starts), n), dtype=np.int64)
            by_row = np.ascontiguousarray(draws.T.astype(np.int32))

            def run(first: int, last: int) -> None:
                for t in range(first, last):
                    own = Search(by_row, shares, gains, starts[t], most, costs)
                    found[t] = canonical_labels(improve(own, seeds[t]))[0]

            threads.run(run, 0, len(starts))
            return found

        few = few[np.argsort(expected(few), kind="stable")[:n_starts]]
        found = np.concatenate([np.full((n_starts, n), -1, dtype=np.int64), few])
        if len(draws) > 2 * N_FIRST:
            some = rng.choice(len(draws), N_FIRST, replace=False, p=shares)
            found = improved(found, draws[some], np.full(N_FIRST, 1.0 / N_FIRST))
            # Searches that end at the same partition need not go on twice.
            found = np.unique(found, axis=0)
            found = found[np.argsort(expected(found), kind="stable")[:N_KEPT]]
        found = np.concatenate([improved(found, draws, shares), few[:1]])
        losses = expected(found)
    best = int(np.argmin(losses))
    return found[best], float(losses[best])
