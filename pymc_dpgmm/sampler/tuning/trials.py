"""Changes of one cluster, made on trial: the rows that it concerns settle before the change is judged.

A cluster that two groups of rows share, with others around them, is more probable than its halves as they are: the
others have to leave first. A cluster that a few rows widen holds these rows, and keeps others out that would fit
without them. One that need not be there shares its rows with several. In each case, what is worth having comes
after some scans, of the rows of clusters that have changed alone, so that hundreds of changes cost no more than a
few scans of all rows. For tuning only, as all of a search.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.compiled import FLOATS, INT, INTS, address_of, c_function
from pymc_dpgmm.sampler.amounts import REFINEMENTS_OF_TRIAL, SHARES_OF_CORES, STARTS_OF_HALVES, STEPS_TO_CORE
from pymc_dpgmm.sampler.moves.move import SLOTS_NEEDED
from pymc_dpgmm.sampler.moves.split_merge import (
    LEFT,
    RIGHT,
    accept_split,
    allocate_sequentially,
    gather_halves,
    log_target_ratio,
)
from pymc_dpgmm.sampler.moves.sweep import gibbs_scan
from pymc_dpgmm.sampler.state.choices import shuffle
from pymc_dpgmm.sampler.state.memory import DONE, NEEDS_ROOM, memory_at, prior_of
from pymc_dpgmm.sampler.state.slots import collect
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.views import gather, weigh
from pymc_dpgmm.sampler.tuning.search import dissolved, log_probability_of_labels, refine

# Clusters count as the same, where a search looks at what has changed, if they share this part of their rows.
SAME = 0.9
# A change is kept only if it gains this, in nats: draws of the other rows differ by as much.
LEAST_GAIN = 1.0
# Clusters of fewer rows have no core.
LEAST_WITH_CORE = 5


class Tried(NamedTuple):
    """What has come of changes on trial: the state, and the rows by which its clusters have changed at most."""

    state: State
    largest: int


def try_changes(rng: np.random.Generator, state: State, n_trials: int, n_scans: int) -> Tried:
    """Change one cluster after another on trial, each time in a copy of a state; keep what is more probable."""
    largest, labels, log_joint = 0, state.labels(), state.log_joint()
    for _ in range(n_trials):
        change = CHANGES[rng.integers(len(CHANGES))]
        rival = change(rng, state)
        if rival is None:
            continue
        settle_changed(rng, rival, labels, n_scans)
        reached = rival.log_joint()
        gain = reached - log_joint
        if not gain >= LEAST_GAIN:
            continue
        # Of labellings like these, those of other rows are the same.
        rows = np.flatnonzero(is_changed(labels, rival.labels(), 1.0))
        if gain + log_probability_of_labels(state, rows) - log_probability_of_labels(rival, rows) > 0.0:
            largest = max(largest, largest_change(state, rival))
            state, labels, log_joint = rival, rival.labels(), reached
    return Tried(state, largest)


@c_function(INT(INTS, INT, INTS))
def _divide_in_two(head, k, sides):
    """Divide slot ``k`` into the most probable of several pairs of halves; ``sides`` (n,) is overwritten."""
    s = memory_at(head)
    prior = prior_of(s)
    n_clusters = s.n_clusters
    if n_clusters + SLOTS_NEEDED > s.capacity:
        return NEEDS_ROOM
    halves, counts, size = s.halves, s.half_sizes, s.sizes[k]
    halves[LEFT], halves[RIGHT] = s.order[n_clusters + 1], s.order[n_clusters]
    collect(s, k, s.pool)
    best = -math.inf
    for _ in range(STARTS_OF_HALVES):
        shuffle(s.bits, s.pool, 0, size)
        allocate_sequentially(s, size, False, -math.inf)
        log_q = refine(s, prior, 0, size, halves, counts, REFINEMENTS_OF_TRIAL)
        if log_q == math.inf:
            continue
        merit = log_target_ratio(s, prior, n_clusters, halves, counts, k) - log_q
        if merit > best:
            best = merit
            for t in range(size):
                sides[s.pool[t]] = s.side[t]
    if best > -math.inf:
        for t in range(size):
            s.side[t] = sides[s.pool[t]]
        gather_halves(s, size, halves, counts)
        accept_split(s, s.place[k], size, halves)
    return DONE


def in_two(rng: np.random.Generator, state: State) -> State | None:
    """Divide one cluster, a large one more often, into halves that have settled, however probable that is."""
    k = int(state.slots[rng.integers(state.n)])
    if state.sizes[k] == 1:
        return None
    rival, sides = state.copy(), np.empty(state.n, dtype=np.int64)
    rival.run(rng, _divide_in_two, k, address_of(sides))
    return rival


@c_function(INT(INTS, INTS, INT, INTS, INT, FLOATS))
def _weigh_in_core(head, core, n_core, rows, n_rows, fits):
    """Set the log predictives of rows in a cluster of the rows of a core."""
    s = memory_at(head)
    if s.n_clusters + SLOTS_NEEDED > s.capacity:
        return NEEDS_ROOM
    s.listed[0] = s.order[s.n_clusters]
    gather(s, s.listed[0], core, n_core, 1)
    for t in range(n_rows):
        s.log_weights[0] = 0.0
        weigh(s, rows[t], s.listed, 1, -1, s.log_weights)
        fits[t] = s.log_weights[0]
    return DONE


@c_function(INT(INTS, INT, INTS, INT, INT))
def _set_apart(head, k, rows, size, n_core):
    """Divide slot ``k`` of the given rows: the first ones stay, and the others are a cluster of their own."""
    s = memory_at(head)
    n_clusters = s.n_clusters
    if n_clusters + SLOTS_NEEDED > s.capacity:
        return NEEDS_ROOM
    s.halves[LEFT], s.halves[RIGHT] = s.order[n_clusters + 1], s.order[n_clusters]
    for t in range(size):
        s.pool[t] = rows[t]
        s.side[t] = LEFT if t < n_core else RIGHT
    gather_halves(s, size, s.halves, s.half_sizes)
    accept_split(s, s.place[k], size, s.halves)
    return DONE


def core_apart(rng: np.random.Generator, state: State) -> State | None:
    """Divide one cluster into a core, of a random share of its rows, and all others.

    The core has the rows that fit it best. It is found by the steps with which Rousseeuw and Van Driessen (1999,
    "A fast algorithm for the minimum covariance determinant estimator") concentrate a sample, from all rows or
    from a random one.
    """
    k = _some_slot(rng, state)
    rows = np.flatnonzero(state.slots == k)
    if len(rows) < LEAST_WITH_CORE:
        return None
    rival, fits = state.copy(), np.empty(len(rows))
    n_core = int(len(rows) * rng.uniform(*SHARES_OF_CORES))
    core = rows if rng.random() < 0.5 else rows[[rng.integers(len(rows))]]
    for _ in range(STEPS_TO_CORE):
        before = core
        rival.run(rng, _weigh_in_core, address_of(core), len(core), address_of(rows), len(rows), address_of(fits))
        order = np.argsort(-fits, kind="stable")
        core = np.sort(rows[order[:n_core]])
        if np.array_equal(core, before):
            break
    ordered = np.concatenate([core, np.setdiff1d(rows, core)])
    rival.run(rng, _set_apart, k, address_of(ordered), len(ordered), n_core)
    return rival


def one_given_up(rng: np.random.Generator, state: State) -> State | None:
    """Let every row of one cluster join another one."""
    rival = state.copy()
    return rival if dissolved(rng, rival, int(rng.choice(state.order[: state.n_clusters]))) else None


# Cores are as often tried as all else.
CHANGES = (in_two, core_apart, core_apart, one_given_up)


def _some_slot(rng: np.random.Generator, state: State) -> int:
    """Draw a slot in use: every other time, a large one more often."""
    if rng.random() < 0.5:
        return int(state.slots[rng.integers(state.n)])
    return int(rng.choice(state.order[: state.n_clusters]))


def settle_changed(rng: np.random.Generator, state: State, before: np.ndarray, n_scans: int) -> None:
    """Scan those rows, in place, whose clusters have changed since other labels (n,).

    A cluster that is given up or divided changes its neighbours, and most clusters are far from it.
    """
    for _ in range(n_scans):
        rows = np.flatnonzero(is_changed(before, state.labels(), SAME))
        if not len(rows):
            break
        gibbs_scan(rng, state, rows)


def is_changed(before: np.ndarray, labels: np.ndarray, same: float) -> np.ndarray:
    """Tell of each row whether it is not in the same cluster as before: (n,) bool array.

    Clusters are the same where they share at least this part of their rows.
    """
    sizes_before, sizes = np.bincount(before), np.bincount(labels)
    pairs, place, shared = np.unique(before * len(sizes) + labels, return_inverse=True, return_counts=True)
    is_same = shared >= same * np.maximum(sizes_before[pairs // len(sizes)], sizes[pairs % len(sizes)])
    changed: np.ndarray = ~is_same[place]
    return changed


def largest_change(state: State, other: State) -> int:
    """Return the largest difference of the sizes of clusters in two states, ordered by size."""
    sizes = [np.sort(s.cluster_sizes)[::-1] for s in (state, other)]
    length = max(map(len, sizes))
    first, second = (np.pad(ordered, (0, length - len(ordered))) for ordered in sizes)
    return int(np.abs(first - second).max())
