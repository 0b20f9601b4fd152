"""Splits and merges for tuning: they look for a good partition and leave nothing invariant.

A chain that starts far away must divide big clusters, for which exact moves suffice, and unite the halves of big
clusters, for which they do not: the reverse of such a merge would have to draw the very division at hand, with
probability exp(-O(n)). Here a division is not judged as one labelling but by all like it: its log joint density
minus the log probability of drawing it estimates the log of a sum over labellings, from one draw.
"""

import math

import numpy as np

from pymc_dpgmm.dispatch import compiled, enlarged
from pymc_dpgmm.families.slots import move
from pymc_dpgmm.families.verbs import fit, log_marginal, log_predictive, summarize
from pymc_dpgmm.kernels.gibbs import choose
from pymc_dpgmm.kernels.split_merge import (
    LEFT,
    RIGHT,
    allocate_rows,
    allocate_sequentially,
    choose_partner,
    fit_halves,
    log_target_ratio,
    relink,
    shuffle,
    with_room,
    workspace,
)
from pymc_dpgmm.kernels.state import (
    canonicalize,
    collect,
    copy,
    count_clusters,
    grow,
    join,
    log_joint,
    members,
    open_slot,
    unlink,
)
from pymc_dpgmm.partitions import log_seat, log_seat_new

# Times the rows of a proposed division are drawn again given the halves' statistics, the last one judged.
REFINEMENTS = 3


@compiled()
def _refine(rng, prior, state, work, start, size, left, right, times):
    """Draw the halves of ``own[start:size]`` anew, several times; return the last log probability."""
    log_q = 0.0
    for _ in range(times):
        log_q = allocate_rows(rng, prior, state, work, start, size, left, right, False)
        fit_halves(state, work, size, left, right)
        if work.counts[LEFT] == 0 or work.counts[RIGHT] == 0:
            return math.inf
    return log_q


@compiled(inline="always")
def _try_splits(rng, prior, state, work, order, n_clusters):
    """Try to divide every cluster once.

    Returns the state, and the rows in the smaller half of the largest cluster that divided.
    """
    largest = 0
    for place in range(n_clusters):
        state, order = with_room(state, order, n_clusters)
        whole, right, left = order[place], order[n_clusters], order[n_clusters + 1]
        size = state.sizes[whole]
        if size == 1:
            continue
        collect(state, whole, work.own, 0)
        shuffle(rng, work.own, 0, size)
        allocate_sequentially(rng, prior, state, work, size, left, right, False, -math.inf)
        log_q = _refine(rng, prior, state, work, 2, size, left, right, REFINEMENTS)
        counts = work.counts
        log_target = log_target_ratio(prior, state, n_clusters, left, counts[LEFT], right, counts[RIGHT], whole)
        if math.log(rng.random()) < log_target - log_q:
            move(state.stats, left, whole)
            relink(state, work, size, RIGHT, right)
            n_clusters += 1
            largest = max(largest, min(counts[LEFT], counts[RIGHT]))
    return state, largest


@compiled(inline="always")
def _try_merges(rng, prior, state, work, order, n_clusters):
    """Try to unite every cluster with one that fits a row of it.

    Returns the number of clusters, and the rows in the smaller half of the largest one that came about.
    """
    largest = 0
    counts = work.counts
    place = 0
    while place < n_clusters and n_clusters > 1:
        left, right, spare = order[n_clusters], order[n_clusters + 1], order[n_clusters + 2]
        b = order[place]
        n_b = state.sizes[b]
        collect(state, b, work.own, 0)
        i = work.own[int(rng.random() * n_b)]
        partner, _ = choose_partner(rng, prior, state, order, n_clusters, place, i)
        if partner < 0:
            place += 1
            continue
        a = order[partner]
        collect(state, a, work.own, n_b)
        counts[LEFT], counts[RIGHT] = state.sizes[a], n_b
        size = n_b + state.sizes[a]
        summarize(state.summary, 0, state.rows, work.own[:size])
        fit(state.stats, spare, state.summary, 0)
        move(state.stats, a, left)
        move(state.stats, b, right)
        log_q = _refine(rng, prior, state, work, 0, size, left, right, 1)
        log_target = log_target_ratio(
            prior, state, n_clusters - 1, left, counts[LEFT], right, counts[RIGHT], spare
        )
        # Two clusters that are known to differ have no union.
        possible = log_marginal(state.stats, spare) > -math.inf
        if possible and (log_q == math.inf or math.log(rng.random()) < log_q - log_target):
            largest = max(largest, min(n_b, size - n_b))
            for t in range(size):
                work.side[t] = LEFT
            relink(state, work, size, LEFT, a)
            move(state.stats, spare, a)
            n_clusters -= 1
            order[place], order[n_clusters] = order[n_clusters], order[place]
        else:
            place += 1
    return n_clusters, largest


@compiled()
def log_sum_over_labellings(prior, state, doubt):
    """Estimate the log of the joint density summed over all labellings like the present one.

    That is the log joint density minus the log probability of drawing every row's label given the clusters as they
    are. ``doubt[k]`` becomes the mean of minus the log probabilities of the rows of slot ``k``.
    """
    n_clusters = count_clusters(state)
    seats = np.empty(n_clusters)
    for k in range(n_clusters):
        seats[k] = log_seat(prior, state.sizes[k + 1])
    log_weights = np.empty(n_clusters)
    for k in range(doubt.shape[0]):
        doubt[k] = 0.0
    total = log_joint(prior, state)
    for i in range(state.slots.shape[0]):
        for k in range(n_clusters):
            log_weights[k] = seats[k] + log_predictive(state.stats, k + 1, state.rows, i)
        own = state.slots[i]
        chosen = log_weights[own - 1]
        largest = log_weights.max()
        weight = 0.0
        for k in range(n_clusters):
            weight += math.exp(log_weights[k] - largest)
        log_probability = chosen - largest - math.log(weight)
        total -= log_probability
        doubt[own] -= log_probability / state.sizes[own]
    return total


@compiled(inline="always")
def _dissolve(rng, prior, state, dissolved):
    """Let every row of one of two or more clusters join another one; return whether they could."""
    n_clusters = count_clusters(state)
    own = members(state, dissolved)
    shuffle(rng, own, 0, own.shape[0])
    order = np.arange(1, n_clusters + 1)
    for i in own:
        place, _ = choose_partner(rng, prior, state, order, n_clusters, dissolved - 1, i)
        if place < 0:
            return False
        unlink(state, i)
        join(state, i, place + 1)
    canonicalize(state)
    return True


@compiled()
def without_one(rng, prior, state):
    """Do without one cluster, in a copy of a state with two or more, its rows having joined others.

    Returns
    -------
    rival : State
        Canonical. With the clusters of the given state if no others can have the rows of the one given up.
    size : int
        Rows of the cluster given up.
    present : float
        Of the given state: see :func:`log_sum_over_labellings`.
    """
    n_clusters = count_clusters(state)
    doubt = np.empty(n_clusters + 1)
    present = log_sum_over_labellings(prior, state, doubt)
    # A cluster that need not be there shares its rows with others, so that few are certain to be in it.
    log_weights = np.log(doubt[1:])
    dissolved = choose(rng, log_weights, n_clusters) + 1
    rival = copy(state)
    if not _dissolve(rng, prior, rival, dissolved):
        rival = copy(state)
    return rival, state.sizes[dissolved], present


@compiled()
def divided_anew(rng, prior, state):
    """Divide one cluster into any number of pieces at once, in a copy of a state.

    Of a cluster of several groups no two halves may be worth having, but the groups are. Its rows are seated one
    after the other, in random order, with pieces that begin with nothing.

    Returns
    -------
    rival : State
        Canonical.
    """
    n = state.slots.shape[0]
    n_clusters = count_clusters(state)
    rival = copy(state)
    # Large clusters are looked at more often.
    chosen = state.slots[int(rng.random() * n)]
    own = members(rival, chosen)
    shuffle(rng, own, 0, own.shape[0])
    n_pieces = 0
    log_weights = np.empty(16)
    for i in own:
        unlink(rival, i)
        for piece in range(n_pieces):
            slot = n_clusters + 1 + piece
            log_weights[piece] = log_seat(prior, rival.sizes[slot]) + log_predictive(
                rival.stats, slot, rival.rows, i
            )
        log_weights[n_pieces] = log_seat_new(prior, n_clusters - 1 + n_pieces) + rival.prior_predictive[i]
        piece = choose(rng, log_weights, n_pieces + 1)
        slot = n_clusters + 1 + piece
        if piece == n_pieces:
            n_pieces += 1
            if n_pieces == log_weights.shape[0]:
                log_weights = enlarged(log_weights, 2 * n_pieces)
            while slot >= rival.sizes.shape[0] - 2:
                rival = grow(rival)
            open_slot(rival, slot)
        join(rival, i, slot)
    canonicalize(rival)
    return rival


@compiled(inline="always")
def log_sum(prior, state):
    """Estimate the log of the joint density summed over all labellings like the present one."""
    return log_sum_over_labellings(prior, state, np.empty(count_clusters(state) + 1))


@compiled()
def search(rng, prior, state):
    """Try to divide every cluster, and to unite every cluster with a likely partner.

    For tuning only: the posterior is not left invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    prior : NamedTuple
        A prior on partitions.
    state : State
        Canonical; changed in place.

    Returns
    -------
    state : State
        Canonical. A new tuple if more slots were needed.
    largest : int
        Rows in the smaller half of the largest cluster that divided or united.
    """
    n_clusters = count_clusters(state)
    order = np.arange(1, state.sizes.shape[0] - 1)
    work = workspace(state.slots.shape[0])
    state, order = with_room(state, order, n_clusters)
    n_clusters, united = _try_merges(rng, prior, state, work, order, n_clusters)
    state, divided = _try_splits(rng, prior, state, work, order, n_clusters)
    canonicalize(state)
    return state, max(divided, united)
