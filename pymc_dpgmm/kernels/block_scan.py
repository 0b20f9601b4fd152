"""A scan for many rows: blocks of rows are proposed new clusters in parallel, and accepted one by one.

A Gibbs scan is sequential: each row's probabilities depend on where all rows before it went. Here rows are
divided into a few blocks at random. While one block is worked on, the statistics of all rows *outside* it do not
change, so that proposals drawn given them are independent of each other, and of the block's present labels: they
are drawn by several threads, and their probabilities are known. Then each row that was proposed a change is
accepted with the probability of Metropolis and Hastings, given the present labels of all other rows. Most rows of
well-separated data are proposed the cluster they are in, and cost nothing more.

Clusters without rows outside the block, and the new cluster, cannot be told apart by such a proposal: together
they are one more choice, *elsewhere*, whose proposal is followed by an exact draw among them. ``docs/moves.md``
derives the ratio.
"""

import math
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import config

from pymc_dpgmm.dispatch import compiled, enlarged
from pymc_dpgmm.families.slots import resize
from pymc_dpgmm.families.verbs import combine, fit, log_predictive, log_predictive_without, summarize
from pymc_dpgmm.kernels.gibbs import NEGLIGIBLE, choose, random_order
from pymc_dpgmm.kernels.state import State, canonicalize, grow, join, leave, more_slots, open_slot
from pymc_dpgmm.partitions import log_seat, log_seat_new

N_BLOCKS = 4
# Rows that are neighbours in memory share a block.
TILE = 64
ELSEWHERE = 0


class Plan(NamedTuple):
    """Scratch of a scan.

    Parameters
    ----------
    order : (n,) int64 array
        Rows, those of the first block first.
    ends : (n_blocks + 1,) int64 array
        Block b is ``order[ends[b]:ends[b + 1]]``.
    uniforms : (n,) float64 array
    proposed : (n,) int64 array
        Slot proposed to the row ``order[t]``, or ``ELSEWHERE``.
    log_odds : (n,) float64 array
        Log of the probability of proposing what the row has, over that of what it was proposed.
    parts : NamedTuple
        Summaries of the family: ``k * n_blocks + b`` holds the rows of block b in slot k.
    fixed : NamedTuple
        Statistics of the rows outside the block at hand, with the slots of the state.
    sizes : (capacity,) int64 array
        Their numbers.
    """

    order: np.ndarray
    ends: np.ndarray
    uniforms: np.ndarray
    proposed: np.ndarray
    log_odds: np.ndarray
    parts: Any
    fixed: Any
    sizes: np.ndarray


@compiled()
def make_plan(rng, state, n_blocks, tile):
    """Divide the rows into blocks of neighbouring rows, at random."""
    n = state.slots.shape[0]
    capacity = state.sizes.shape[0]
    n_tiles = (n + tile - 1) // tile
    n_blocks = min(n_blocks, n_tiles)
    tiles = random_order(rng, n_tiles)
    order = np.empty(n, dtype=np.int64)
    ends = np.zeros(n_blocks + 1, dtype=np.int64)
    filled = 0
    for b in range(n_blocks):
        for t in range(b * n_tiles // n_blocks, (b + 1) * n_tiles // n_blocks):
            for i in range(tiles[t] * tile, min((tiles[t] + 1) * tile, n)):
                order[filled] = i
                filled += 1
        ends[b + 1] = filled
    uniforms = np.empty(n)
    for t in range(n):
        uniforms[t] = rng.random()
    return Plan(
        order,
        ends,
        uniforms,
        np.empty(n, dtype=np.int64),
        np.empty(n),
        resize(state.summary, capacity * n_blocks),
        resize(state.stats, capacity),
        np.zeros(capacity, dtype=np.int64),
    )


@compiled()
def enlarge_plan(state, plan):
    """Return the plan with as many slots as the state."""
    capacity = state.sizes.shape[0]
    return Plan(
        plan.order,
        plan.ends,
        plan.uniforms,
        plan.proposed,
        plan.log_odds,
        resize(plan.parts, capacity * (plan.ends.shape[0] - 1)),
        resize(plan.fixed, capacity),
        enlarged(plan.sizes, capacity),
    )


@compiled()
def sort_block(state, plan, b):
    """Return the rows of a block in order of their slots, and where each slot's rows begin: (capacity + 1,)."""
    capacity = state.sizes.shape[0]
    begins = np.zeros(capacity + 2, dtype=np.int64)
    own = plan.order[plan.ends[b] : plan.ends[b + 1]]
    for i in own:
        begins[state.slots[i] + 2] += 1
    for k in range(capacity):
        begins[k + 2] += begins[k + 1]
    in_order = np.empty(own.shape[0], dtype=np.int64)
    for i in own:
        k = state.slots[i]
        in_order[begins[k + 1]] = i
        begins[k + 1] += 1
    return in_order, begins[: capacity + 1]


@compiled(nogil=True)
def summarize_parts(state, plan, b, in_order, begins, start, stop):
    """Summarise the rows of a block in the slots from ``start`` to ``stop``."""
    n_blocks = plan.ends.shape[0] - 1
    for k in range(start, stop):
        summarize(plan.parts, k * n_blocks + b, state.rows, in_order[begins[k] : begins[k + 1]])


@compiled()
def fix_statistics(state, plan, b):
    """Fit ``plan.fixed`` to the rows outside a block."""
    n_blocks = plan.ends.shape[0] - 1
    for k in range(state.sizes.shape[0]):
        plan.sizes[k] = state.sizes[k]
    for i in plan.order[plan.ends[b] : plan.ends[b + 1]]:
        plan.sizes[state.slots[i]] -= 1
    nobody = np.empty(0, dtype=np.int64)
    for k in range(1, state.sizes.shape[0] - 1):
        if plan.sizes[k] == 0:
            continue
        # No row is in slot 0, whose first part is used for the sum.
        summarize(plan.parts, 0, state.rows, nobody)
        for other in range(n_blocks):
            if other != b:
                combine(plan.parts, 0, k * n_blocks + other)
        fit(plan.fixed, k, plan.parts, 0)


@compiled(nogil=True)
def propose(prior, state, plan, start, stop):
    """Propose clusters to the rows ``order[start:stop]`` given the fixed statistics."""
    capacity = plan.sizes.shape[0]
    slots = np.empty(capacity, dtype=np.int64)
    seats = np.empty(capacity)
    n_fixed = 0
    for k in range(1, capacity - 1):
        if plan.sizes[k] > 0:
            slots[n_fixed] = k
            seats[n_fixed] = log_seat(prior, plan.sizes[k])
            n_fixed += 1
    log_new = log_seat_new(prior, n_fixed)
    log_weights = np.empty(n_fixed + 1)
    cumulative = np.empty(n_fixed + 1)
    for t in range(start, stop):
        i = plan.order[t]
        own = state.slots[i]
        log_weights[n_fixed] = log_new + state.prior_predictive[i]
        largest = log_weights[n_fixed]
        present = log_weights[n_fixed]
        for j in range(n_fixed):
            log_weights[j] = seats[j] + log_predictive(plan.fixed, slots[j], state.rows, i)
            largest = max(largest, log_weights[j])
            if slots[j] == own:
                present = log_weights[j]
        total = 0.0
        for j in range(n_fixed + 1):
            difference = log_weights[j] - largest
            if difference > NEGLIGIBLE:
                total += math.exp(difference)
            cumulative[j] = total
        u = plan.uniforms[t] * total
        choice = 0
        while choice < n_fixed and cumulative[choice] <= u:
            choice += 1
        plan.proposed[t] = slots[choice] if choice < n_fixed else ELSEWHERE
        plan.log_odds[t] = present - log_weights[choice]


@compiled()
def _weigh_elsewhere(prior, state, plan, i, slots, n_clusters, log_weights):
    """Set the log weights of all clusters without fixed rows, then of a new one, for row ``i``, which is in none.

    Returns their number, and the log of the sum of the weights.
    """
    n_choices = 0
    largest = -math.inf
    for place in range(n_clusters):
        k = slots[place]
        if plan.sizes[k] == 0:
            log_weights[n_choices] = log_seat(prior, state.sizes[k]) + log_predictive(
                state.stats, k, state.rows, i
            )
            largest = max(largest, log_weights[n_choices])
            n_choices += 1
    log_weights[n_choices] = log_seat_new(prior, n_clusters) + state.prior_predictive[i]
    largest = max(largest, log_weights[n_choices])
    n_choices += 1
    total = 0.0
    for j in range(n_choices):
        total += math.exp(log_weights[j] - largest)
    return n_choices, largest + math.log(total)


@compiled()
def _elsewhere(plan, slots, n_clusters, choice):
    """Return the place of the cluster that is the ``choice``-th without fixed rows, ``n_clusters`` if new."""
    for place in range(n_clusters):
        if plan.sizes[slots[place]] == 0:
            if choice == 0:
                return place
            choice -= 1
    return n_clusters


@compiled()
def settle(rng, prior, state, plan, b):
    """Accept or reject what the rows of a block were proposed, one by one, given all other rows' labels.

    Returns
    -------
    state : State
        A new tuple if more slots were needed.
    plan : Plan
    n_moved : int
    """
    capacity = state.sizes.shape[0]
    # Slots in use, in no order, then free ones, and the place of each.
    slots = np.empty(capacity - 2, dtype=np.int64)
    place = np.full(capacity, -1, dtype=np.int64)
    n_clusters = 0
    n_free = 0
    for k in range(1, capacity - 1):
        if state.sizes[k] > 0:
            slots[n_clusters] = k
            n_clusters += 1
        else:
            n_free += 1
            slots[capacity - 2 - n_free] = k
    for j in range(capacity - 2):
        place[slots[j]] = j
    log_weights = np.empty(capacity)
    n_moved = 0
    for t in range(plan.ends[b], plan.ends[b + 1]):
        i = plan.order[t]
        own = state.slots[i]
        proposed = plan.proposed[t]
        if proposed == own:
            continue
        alone = state.sizes[own] == 1
        detached = False
        n_choices = 0
        # Weights of a row's clusters, given all other rows.
        if plan.sizes[own] > 0:
            present = log_predictive_without(state.stats, own, state.rows, i)
            if math.isnan(present):
                leave(state, i)
                detached = True
                present = log_predictive(state.stats, own, state.rows, i)
            present += log_seat(prior, state.sizes[own] - (not detached))
        else:
            leave(state, i)
            detached = True
            if alone:
                n_clusters -= 1
                last = slots[n_clusters]
                slots[place[own]], slots[n_clusters] = last, own
                place[last], place[own] = place[own], n_clusters
            n_choices, present = _weigh_elsewhere(prior, state, plan, i, slots, n_clusters, log_weights)
        if proposed != ELSEWHERE:
            wanted = log_seat(prior, state.sizes[proposed]) + log_predictive(state.stats, proposed, state.rows, i)
        elif n_choices > 0:
            wanted = present
        else:
            n_choices, wanted = _weigh_elsewhere(prior, state, plan, i, slots, n_clusters, log_weights)
        target = own
        if math.log(rng.random()) < wanted - present + plan.log_odds[t]:
            target = proposed
            if proposed == ELSEWHERE:
                target = slots[_elsewhere(plan, slots, n_clusters, choose(rng, log_weights, n_choices))]
        if target == own and not detached:
            continue
        if not detached:
            leave(state, i)
        if state.sizes[target] == 0:
            open_slot(state, target)
            other = slots[n_clusters]
            slots[place[target]], slots[n_clusters] = other, target
            place[other], place[target] = place[target], n_clusters
            n_clusters += 1
        join(state, i, target)
        n_moved += target != own
        if n_clusters == slots.shape[0]:
            state = grow(state)
            capacity = state.sizes.shape[0]
            slots = more_slots(slots, capacity)
            place = np.full(capacity, -1, dtype=np.int64)
            for j in range(capacity - 2):
                place[slots[j]] = j
            plan = enlarge_plan(state, plan)
            log_weights = np.empty(capacity)
    return state, plan, n_moved


def available_threads() -> int:
    """Return how many threads a chain may use: 1 in a child process, where other chains run beside it.

    Elsewhere it is numba's number, the cores of the machine unless the environment variable NUMBA_NUM_THREADS
    says otherwise.
    """
    return 1 if multiprocessing.parent_process() is not None else int(config.NUMBA_NUM_THREADS)


class Threads:
    """Runs compiled code on ranges of indices, in threads if there are more than one.

    These are threads of Python around kernels that release its lock. Numba's parallel loops would not do: a
    process that has used its OpenMP layer cannot fork chains, and its own layer ends the process when two threads
    enter it. The threads end with the ``with`` block, so that none is alive when a process forks.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> "Threads":
        if self.n_threads > 1:
            self._pool = ThreadPoolExecutor(self.n_threads)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, call: Callable[[int, int], None], start: int, stop: int) -> None:
        """Call ``call(first, last)`` for ranges that make up ``start`` to ``stop``."""
        n_ranges = min(2 * self.n_threads, stop - start)
        if self._pool is None or n_ranges < 2:
            call(start, stop)
        else:
            ends = np.linspace(start, stop, n_ranges + 1).astype(int).tolist()
            list(self._pool.map(call, ends[:-1], ends[1:]))


def block_scan(
    rng: np.random.Generator,
    prior: Any,
    state: State,
    n_threads: int,
    n_blocks: int = N_BLOCKS,
    tile: int = TILE,
) -> tuple[State, int]:
    """Draw proposals for every row and accept them one by one; the posterior of the labels is left invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    prior : NamedTuple
        A prior on partitions.
    state : State
        Canonical; changed in place.
    n_threads : int, >= 1
        What is drawn does not depend on it.
    n_blocks, tile : int, >= 1
        Blocks, and how many rows that are neighbours in memory share one.

    Returns
    -------
    state : State
        Canonical. A new tuple if more slots were needed.
    n_moved : int
        Number of rows that changed their cluster.
    """
    plan = make_plan(rng, state, n_blocks, tile)
    blocks = range(len(plan.ends) - 1)
    n_moved = 0
    with Threads(n_threads) as threads:
        for b in blocks:
            _summarize_block(threads, state, plan, b)
        for b in blocks:
            fix_statistics(state, plan, b)
            threads.run(partial(propose, prior, state, plan), int(plan.ends[b]), int(plan.ends[b + 1]))
            state, plan, moved = settle(rng, prior, state, plan, b)
            n_moved += moved
            if moved:
                _summarize_block(threads, state, plan, b)
    canonicalize(state)
    return state, n_moved


def _summarize_block(threads: Threads, state: State, plan: Plan, b: int) -> None:
    in_order, begins = sort_block(state, plan, b)
    threads.run(partial(summarize_parts, state, plan, b, in_order, begins), 1, len(begins) - 1)
