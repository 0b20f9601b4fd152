"""The state that label kernels share: who is in which cluster, and the cached predictives.

Clusters live in slots 1, 2, ... of the family's statistics; slot 0 holds the cluster without rows, from
which a new cluster starts and which gives the prior predictive. The last slot is spare, for exchanges. The
rows of a slot form a ring, doubly linked through the entry n + k of slot k, so that a row moves, and a slot's
rows are found, without a pass over all rows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.dispatch import compiled, enlarged
from pymc_dpgmm.families.slots import move, resize
from pymc_dpgmm.families.units import GroupedStats, GroupedSummary, grouped
from pymc_dpgmm.families.verbs import add, fit, log_marginal, log_predictive, remove, summarize
from pymc_dpgmm.families.views import View, paired
from pymc_dpgmm.partitions import canonical_labels, log_eppf

N_SUMMARIES = 3


class State(NamedTuple):
    """Partition and caches of one chain. Between kernels it is canonical: see :func:`canonicalize`.

    Parameters
    ----------
    rows : (n, d) array or NamedTuple
        The data, as the family represents it; pairs of these for several views.
    slots : (n,) int64 array
        Slot of each row, 1 or more.
    sizes : (capacity,) int64 array
        Rows in each slot; slot 0 has none.
    following, preceding : (n + capacity,) int64 arrays
        Rings of the rows of each slot, which begin and end at the entry n + slot.
    prior_predictive : (n,) float64 array
        Log predictive density of each row in a cluster of its own.
    stats : NamedTuple
        The family's statistics with ``capacity`` slots.
    summary : NamedTuple
        Scratch summaries: two clusters, and what joins them.
    """

    rows: Any
    slots: np.ndarray
    sizes: np.ndarray
    following: np.ndarray
    preceding: np.ndarray
    prior_predictive: np.ndarray
    stats: Any
    summary: Any


def initial_state(views: Sequence[View], labels: np.ndarray) -> State:
    """Make a state from numbers.

    Parameters
    ----------
    views : sequence of View
        Data of the same rows, or units, of one family or several; parameters inside their support.
    labels : (n,) integer array, values in 0..n-1
        Of rows, or of units.

    Returns
    -------
    State
        Canonical, holding the canonical names of ``labels``.
    """
    labels, n_clusters = canonical_labels(labels)
    n = len(labels)
    capacity = n_clusters + 8
    rows, stats, summary = zip(*(_allocate(view, n, capacity) for view in views), strict=True)
    state = State(
        rows=paired(rows),
        slots=labels + 1,
        sizes=np.zeros(capacity, dtype=np.int64),
        following=np.arange(n + capacity),
        preceding=np.arange(n + capacity),
        prior_predictive=np.empty(n),
        stats=paired(stats),
        summary=paired(summary),
    )
    _fill(state, n_clusters)
    return state


def _allocate(view: View, n: int, capacity: int) -> tuple[Any, Any, Any]:
    """Return rows, statistics and scratch summaries of one view, for ``n`` labels."""
    family, params = view.family, view.params
    rows, origin = family.represent(params, view.values)
    params, n_rows = family.shift(params, origin), view.values.shape[0]
    summary = family.allocate_summary(params, N_SUMMARIES)
    if view.unit is None:
        return rows, family.allocate_stats(params, n_rows, capacity), summary
    stats = GroupedStats(family.allocate_stats(params, n_rows, capacity + 1), capacity)
    return grouped(rows, view.unit, n), stats, GroupedSummary(summary, np.empty(n_rows, dtype=np.int64))


@compiled()
def _fill(state, n_clusters):
    """Set lists, sizes and statistics from rows and slots."""
    for i in range(state.slots.shape[0] - 1, -1, -1):
        link(state, i, state.slots[i])
    for k in range(n_clusters + 1):
        refit(state, k)
    for i in range(state.slots.shape[0]):
        state.prior_predictive[i] = log_predictive(state.stats, 0, state.rows, i)


@compiled()
def relabel(state, slots):
    """Give the rows other, canonical slots; return the state, a new tuple if it needs more room."""
    n_clusters = slots.max()
    while state.sizes.shape[0] < n_clusters + 3:
        state = grow(state)
    for i in range(slots.shape[0]):
        state.slots[i] = slots[i]
    for k in range(state.sizes.shape[0]):
        state.sizes[k] = 0
    for entry in range(state.following.shape[0]):
        state.following[entry] = entry
        state.preceding[entry] = entry
    _fill(state, n_clusters)
    return state


@compiled(inline="always")
def link(state, i, k):
    """Put row ``i``, which is in no ring, into the ring of slot ``k``."""
    ring = state.slots.shape[0] + k
    after = state.following[ring]
    state.following[i] = after
    state.preceding[i] = ring
    state.preceding[after] = i
    state.following[ring] = i
    state.slots[i] = k
    state.sizes[k] += 1


@compiled(inline="always")
def unlink(state, i):
    """Take row ``i`` out of the ring of its slot."""
    before = state.preceding[i]
    after = state.following[i]
    state.following[before] = after
    state.preceding[after] = before
    state.sizes[state.slots[i]] -= 1


@compiled()
def collect(state, k, found, start):
    """Write the rows of slot ``k`` to ``found[start:start + n_k]``."""
    i = state.following[state.slots.shape[0] + k]
    for t in range(start, start + state.sizes[k]):
        found[t] = i
        i = state.following[i]


@compiled()
def members(state, k):
    """Return the rows of slot ``k``: (n_k,) int64 array."""
    found = np.empty(state.sizes[k], dtype=np.int64)
    collect(state, k, found, 0)
    return found


@compiled()
def refit(state, k):
    """Compute the statistics of slot ``k`` from its rows."""
    summarize(state.summary, 0, state.rows, members(state, k))
    fit(state.stats, k, state.summary, 0)


@compiled(inline="always")
def join(state, i, k):
    """Let row ``i``, which is in no slot, join slot ``k``, which has rows or was opened."""
    link(state, i, k)
    add(state.stats, k, state.rows, i)


@compiled()
def open_slot(state, k):
    """Let slot ``k``, which has no rows, start from the prior."""
    move(state.stats, 0, k)


@compiled(inline="always")
def leave(state, i):
    """Let row ``i`` leave its slot. The statistics of a slot without rows are undefined."""
    k = state.slots[i]
    unlink(state, i)
    if not remove(state.stats, k, state.rows, i):
        refit(state, k)


@compiled()
def grow(state):
    """Return the state with room for twice the slots."""
    n = state.slots.shape[0]
    old = state.sizes.shape[0]
    capacity = 2 * old
    following = enlarged(state.following, n + capacity)
    preceding = enlarged(state.preceding, n + capacity)
    for entry in range(n + old, n + capacity):
        following[entry] = entry
        preceding[entry] = entry
    return State(
        state.rows,
        state.slots,
        enlarged(state.sizes, capacity),
        following,
        preceding,
        state.prior_predictive,
        resize(state.stats, capacity),
        state.summary,
    )


@compiled()
def more_slots(slots, capacity):
    """Return the slots of a state grown to ``capacity``: a given list first, then the new ones."""
    more = enlarged(slots, capacity - 2)
    for place in range(slots.shape[0], more.shape[0]):
        more[place] = place + 1
    return more


@compiled()
def copy(state):
    """Return a copy that shares the rows and what else does not change."""
    return State(
        state.rows,
        state.slots.copy(),
        state.sizes.copy(),
        state.following.copy(),
        state.preceding.copy(),
        state.prior_predictive,
        resize(state.stats, state.sizes.shape[0]),
        state.summary,
    )


@compiled()
def count_clusters(state):
    """Return the number of clusters of a canonical state."""
    k = 1
    while k < state.sizes.shape[0] and state.sizes[k] > 0:
        k += 1
    return k - 1


@compiled()
def canonicalize(state):
    """Rename slots 1, 2, ... in order of the first appearance of their rows; return their number."""
    n = state.slots.shape[0]
    capacity = state.sizes.shape[0]
    names = np.zeros(capacity, dtype=np.int64)
    n_clusters = 0
    in_order = True
    for i in range(n):
        k = state.slots[i]
        if names[k] == 0:
            n_clusters += 1
            names[k] = n_clusters
            in_order = in_order and k == n_clusters
        state.slots[i] = names[k]
    if in_order:
        return n_clusters
    # Slots without rows take the names that are left, which makes names a permutation.
    unused = n_clusters
    for k in range(1, capacity):
        if names[k] == 0:
            unused += 1
            names[k] = unused
    _permute(state, names)
    return n_clusters


@compiled()
def _permute(state, names):
    """Move slot k to slot ``names[k]``, for all k at once, by way of the spare slot."""
    capacity = names.shape[0]
    spare = capacity - 1
    origins = np.empty(capacity, dtype=np.int64)
    for k in range(capacity):
        origins[names[k]] = k
    moved = np.zeros(capacity, dtype=np.bool_)
    for start in range(1, spare):
        if moved[start] or origins[start] == start:
            continue
        _copy_slot(state, start, spare)
        hole = start
        while origins[hole] != start:
            _copy_slot(state, origins[hole], hole)
            moved[hole] = True
            hole = origins[hole]
        _copy_slot(state, spare, hole)
        moved[hole] = True
    state.sizes[spare] = 0
    ring = state.slots.shape[0] + spare
    state.following[ring] = ring
    state.preceding[ring] = ring


@compiled()
def _copy_slot(state, source, target):
    move(state.stats, source, target)
    state.sizes[target] = state.sizes[source]
    n = state.slots.shape[0]
    if state.sizes[source] == 0:
        state.following[n + target] = n + target
        state.preceding[n + target] = n + target
        return
    first = state.following[n + source]
    last = state.preceding[n + source]
    state.following[n + target] = first
    state.preceding[n + target] = last
    state.preceding[first] = n + target
    state.following[last] = n + target


@compiled()
def log_joint(prior, state):
    """Log probability of the partition and the data, given the parameters of both, of a canonical state."""
    n_clusters = count_clusters(state)
    total = log_eppf(prior, state.sizes[1:], n_clusters)
    for k in range(1, n_clusters + 1):
        total += log_marginal(state.stats, k)
    return total
