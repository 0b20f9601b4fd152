"""Scans for many rows: proposals for a block of rows in threads, then exact acceptance row by row.

The rows are divided at random into blocks of neighbours in memory. The rows of a block are proposed clusters by
their predictives given the rows outside it, which are the same for all of them, so that threads can work on it.
Then each is accepted or rejected, in turn, by its Metropolis-Hastings ratio given the present labels of all other
rows. Most rows of well-separated data are proposed the cluster they are in, and cost nothing more.

Clusters without rows outside the block, and the new cluster, cannot be told apart by such a proposal: together
they are one more choice, *elsewhere*, whose proposal is followed by an exact draw among them. ``docs/moves.md``
derives the ratio.
"""

import math

import numpy as np

from pymc_dpgmm.arithmetic import uniform
from pymc_dpgmm.compiled import FLOATS, INT, INTS, NOTHING, c_function, inlined, shifted
from pymc_dpgmm.kernels.memory import (
    DONE,
    N_CLUSTERS,
    N_MOVED,
    NEEDS_ROOM,
    POSITION,
    accumulate,
    choose,
    free_slot,
    gather,
    join,
    leave,
    memory_at,
    merge,
    pick,
    prior_of,
    swap_places,
    weigh,
)
from pymc_dpgmm.kernels.state import State
from pymc_dpgmm.partitions import log_seat, log_seat_new
from pymc_dpgmm.threads import Threads

N_BLOCKS = 4
# Rows that are neighbours in memory share a block.
TILE = 64
ELSEWHERE = 0


class Plan:
    """Blocks of rows, and what is drawn for them.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    n_blocks, tile : int
        See :func:`block_scan`.

    Attributes
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
    sizes : (capacity + 1,) int64 array
        Rows of each slot outside the block at hand.
    outside : State
        Memory whose tables have, for each slot, the statistics of the rows outside the block at hand, and then
        those of the rows of every block.
    """

    def __init__(self, rng: np.random.Generator, state: State, n_blocks: int, tile: int) -> None:
        n_tiles = -(-state.n // tile)
        self.n_blocks = min(n_blocks, n_tiles)
        tiles = rng.permutation(n_tiles)
        parts = [
            tiles[b * n_tiles // self.n_blocks : (b + 1) * n_tiles // self.n_blocks] for b in range(self.n_blocks)
        ]
        rows = [(own[:, None] * tile + np.arange(tile)).ravel() for own in parts]
        rows = [own[own < state.n] for own in rows]
        self.order = np.concatenate(rows)
        self.ends = np.concatenate([[0], np.cumsum([len(own) for own in rows])])
        self.uniforms = rng.random(state.n)
        self.proposed = np.empty(state.n, dtype=np.int64)
        self.log_odds = np.empty(state.n)
        self.make_room(state)

    def make_room(self, state: State) -> None:
        """Give the memory as many slots as the state has, for rows outside a block and in each block."""
        self.stride = state.capacity + 1
        self.outside = state.shadow(self.stride * (1 + self.n_blocks))
        self.sizes = np.zeros(self.stride, dtype=np.int64)
        self.fixed = np.zeros(self.stride, dtype=np.int64)

    def block(self, b: int) -> np.ndarray:
        """Return the rows of a block."""
        return self.order[self.ends[b] : self.ends[b + 1]]

    def summarize(self, threads: Threads, state: State, b: int) -> None:
        """Compute the statistics of the rows of a block in each slot."""
        own = self.block(b)
        in_order = own[np.argsort(state.slots[own], kind="stable")]
        begins = np.concatenate([[0], np.cumsum(np.bincount(state.slots[own], minlength=self.stride))])
        first = self.stride * (1 + b)

        def run(start: int, stop: int) -> None:
            memory = self.outside if threads.n_threads == 1 else self.outside.sharing()
            gather_parts(memory.address, first, in_order.ctypes.data, begins.ctypes.data, start, stop)

        threads.run(run, 1, self.stride)

    def fix(self, state: State, b: int) -> None:
        """Compute the statistics of the rows outside a block in each slot."""
        inside = np.bincount(state.slots[self.block(b)], minlength=self.stride)
        self.sizes[:] = state.sizes - inside
        found = np.flatnonzero(self.sizes > 0)
        self.n_fixed = len(found)
        self.fixed[: self.n_fixed] = found
        fix_statistics(
            self.outside.address,
            self.fixed.ctypes.data,
            self.n_fixed,
            self.sizes.ctypes.data,
            self.stride,
            b,
            self.n_blocks,
        )

    def propose(self, threads: Threads, state: State, b: int) -> None:
        """Propose clusters to the rows of a block."""

        def run(start: int, stop: int) -> None:
            memory = self.outside if threads.n_threads == 1 else self.outside.sharing()
            propose(
                memory.address,
                self.fixed.ctypes.data,
                self.n_fixed,
                self.order.ctypes.data,
                self.uniforms.ctypes.data,
                self.proposed.ctypes.data,
                self.log_odds.ctypes.data,
                start,
                stop,
            )

        self.outside.head[N_CLUSTERS] = state.n_clusters
        threads.run(run, int(self.ends[b]), int(self.ends[b + 1]))

    def settle(self, rng: np.random.Generator, state: State, b: int) -> int:
        """Accept or reject what the rows of a block were proposed; return how many have moved."""
        state.use(rng)
        state.head[POSITION], state.head[N_MOVED] = self.ends[b], 0
        stop = int(self.ends[b + 1])
        while True:
            done = settle(
                state.address,
                self.sizes.ctypes.data,
                self.order.ctypes.data,
                self.proposed.ctypes.data,
                self.log_odds.ctypes.data,
                stop,
            )
            if done == DONE:
                return int(state.head[N_MOVED])
            state.grow()
            self.sizes = np.concatenate(
                [self.sizes, np.zeros(state.capacity + 1 - len(self.sizes), dtype=np.int64)]
            )


@c_function(NOTHING(INTS, INT, INTS, INTS, INT, INT))
def gather_parts(head, first, in_order, begins, start, stop):
    """Gather the rows of a block in the slots from ``start`` to ``stop``, into those from ``first + start`` on."""
    s = memory_at(head)
    for k in range(start, stop):
        gather(s, first + k, shifted(in_order, begins[k]), begins[k + 1] - begins[k], 1)


@c_function(NOTHING(INTS, INTS, INT, INTS, INT, INT, INT))
def fix_statistics(head, fixed, n_fixed, sizes, stride, b, n_blocks):
    """Add up the statistics of the blocks other than ``b`` in each slot with rows there, and weigh its seat."""
    s = memory_at(head)
    prior = prior_of(s)
    for j in range(n_fixed):
        k = fixed[j]
        gather(s, k, fixed, 0, 1)
        for other in range(n_blocks):
            if other != b:
                merge(s, k, stride * (1 + other) + k)
        s.seats[j] = log_seat(prior, sizes[k])


@c_function(NOTHING(INTS, INTS, INT, INTS, FLOATS, INTS, FLOATS, INT, INT))
def propose(head, fixed, n_fixed, order, uniforms, proposed, log_odds, start, stop):
    """Propose clusters to the rows ``order[start:stop]`` given the fixed statistics."""
    s = memory_at(head)
    weights, cumulative = s.log_weights, s.cumulative
    log_new = log_seat_new(prior_of(s), n_fixed)
    for t in range(start, stop):
        i = order[t]
        own = s.slots[i]
        for j in range(n_fixed):
            weights[j] = s.seats[j]
        weigh(s, i, fixed, n_fixed, -1, weights)
        weights[n_fixed] = log_new + s.prior_predictive[i]
        present = weights[n_fixed]
        for j in range(n_fixed):
            if fixed[j] == own:
                present = weights[j]
        for j in range(n_fixed + 1):
            cumulative[j] = weights[j]
        accumulate(s, cumulative, n_fixed + 1)
        choice = pick(uniforms[t], cumulative, n_fixed + 1)
        proposed[t] = fixed[choice] if choice < n_fixed else ELSEWHERE
        log_odds[t] = present - weights[choice]


@inlined
def _weigh_elsewhere(s, prior, sizes, i):
    """Set the log weights of all clusters without fixed rows, then of a new one, for row ``i``, which is in none.

    Returns their number, and the log of the sum of the weights. ``picked`` lists the slots.
    """
    weights = s.log_weights
    m = 0
    for place in range(s.head[N_CLUSTERS]):
        k = s.order[place]
        if sizes[k] == 0:
            s.picked[m] = k
            weights[m] = log_seat(prior, s.sizes[k])
            m += 1
    weigh(s, i, s.picked, m, -1, weights)
    weights[m] = log_seat_new(prior, s.head[N_CLUSTERS]) + s.prior_predictive[i]
    m += 1
    largest = -math.inf
    for j in range(m):
        largest = max(largest, weights[j])
    total = 0.0
    for j in range(m):
        total += math.exp(weights[j] - largest)
    return m, largest + math.log(total)


@c_function(INT(INTS, INTS, INTS, INTS, FLOATS, INT))
def settle(head, sizes, order, proposed, log_odds, stop):
    """Accept or reject what rows were proposed, one by one, given all other rows' labels, up to ``order[stop]``.

    ``sizes`` are those outside the block.
    """
    s = memory_at(head)
    prior = prior_of(s)
    one = s.halves
    for t in range(head[POSITION], stop):
        i = order[t]
        own = s.slots[i]
        if proposed[t] == own:
            continue
        # One slot for a new cluster, beside that of a row which has left.
        if head[N_CLUSTERS] + 2 > s.capacity:
            head[POSITION] = t
            return NEEDS_ROOM
        has_left = False
        n_choices = 0
        present = 0.0
        # Weights of a row's clusters, given all other rows.
        if sizes[own] > 0:
            one[0] = own
            s.log_weights[0] = 0.0
            weigh(s, i, one, 1, 0, s.log_weights)
            present = s.log_weights[0]
            if math.isnan(present):
                leave(s, i)
                has_left = True
                s.log_weights[0] = 0.0
                weigh(s, i, one, 1, -1, s.log_weights)
                present = s.log_weights[0]
            present += log_seat(prior, s.sizes[own] - (0 if has_left else 1))
        else:
            leave(s, i)
            has_left = True
            if s.sizes[own] == 0:
                free_slot(s, own)
            n_choices, present = _weigh_elsewhere(s, prior, sizes, i)
        if proposed[t] != ELSEWHERE:
            one[0] = proposed[t]
            weight = s.log_weights[n_choices]
            s.log_weights[n_choices] = 0.0
            weigh(s, i, one, 1, -1, shifted(s.log_weights, n_choices))
            wanted = log_seat(prior, s.sizes[proposed[t]]) + s.log_weights[n_choices]
            s.log_weights[n_choices] = weight
        elif n_choices > 0:
            wanted = present
        else:
            n_choices, wanted = _weigh_elsewhere(s, prior, sizes, i)
        target = own
        if math.log(uniform(s.bits)) < wanted - present + log_odds[t]:
            target = proposed[t]
            if target == ELSEWHERE:
                choice = choose(s, s.log_weights, n_choices)
                target = s.picked[choice] if choice < n_choices - 1 else s.order[head[N_CLUSTERS]]
        if target == own and not has_left:
            continue
        if not has_left:
            leave(s, i)
        if s.sizes[target] == 0:
            swap_places(s, s.place[target], head[N_CLUSTERS])
            head[N_CLUSTERS] += 1
        join(s, i, target)
        head[N_MOVED] += 1 if target != own else 0
    head[POSITION] = stop
    return DONE


def block_scan(
    rng: np.random.Generator,
    state: State,
    n_threads: int,
    n_blocks: int = N_BLOCKS,
    tile: int = TILE,
) -> int:
    """Draw proposals for every row and accept them one by one; the posterior of the labels is left invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Changed in place.
    n_threads : int, >= 1
        What is drawn does not depend on it.
    n_blocks, tile : int, >= 1
        Blocks, and how many rows that are neighbours in memory share one.

    Returns
    -------
    int
        Number of rows that changed their cluster.
    """
    plan = Plan(rng, state, n_blocks, tile)
    n_moved = 0
    with Threads(n_threads) as threads:
        for b in range(plan.n_blocks):
            plan.summarize(threads, state, b)
        for b in range(plan.n_blocks):
            plan.fix(state, b)
            plan.propose(threads, state, b)
            moved = plan.settle(rng, state, b)
            n_moved += moved
            if plan.stride != state.capacity + 1:
                plan.make_room(state)
                for other in range(plan.n_blocks):
                    plan.summarize(threads, state, other)
            elif moved:
                plan.summarize(threads, state, b)
    return n_moved
