"""Splits and merges for tuning: they look for a good partition and leave nothing invariant.

A chain that starts far away must divide big clusters, for which exact moves suffice, and unite the halves of big
clusters, for which they do not: the reverse of such a merge would have to draw the very division at hand, with
probability exp(-O(n)). Here a division is not judged as one labelling but by all like it: its log joint density
minus the log probability of drawing it estimates the log of a sum over labellings, from one draw.
"""

import math

import numpy as np

from pymc_dpgmm.native.arithmetic import below, largest_of, uniform
from pymc_dpgmm.native.compiled import FLOAT, FLOATS, INT, INTS, address_of, c_function, inlined, shifted
from pymc_dpgmm.native.lanes import LANES, add_exponentials, raise_to
from pymc_dpgmm.partitions.priors import log_seat, log_seat_new
from pymc_dpgmm.sampler.amounts import MOST_PIECES, REFINEMENTS, REFINEMENTS_OF_TWO
from pymc_dpgmm.sampler.moves.concentration import log_law
from pymc_dpgmm.sampler.moves.move import SLOTS_NEEDED
from pymc_dpgmm.sampler.moves.split_merge import (
    LEFT,
    RIGHT,
    accept_merge,
    accept_split,
    allocate_rows,
    allocate_sequentially,
    choose_partner,
    copy_statistics,
    gather_halves,
    log_target_ratio,
    unite_statistics,
)
from pymc_dpgmm.sampler.state.all_clusters import log_joint_of
from pymc_dpgmm.sampler.state.choices import choose, shuffle
from pymc_dpgmm.sampler.state.grouping import are_grouped
from pymc_dpgmm.sampler.state.memory import (
    DONE,
    NEEDS_ROOM,
    memory_at,
    prior_of,
)
from pymc_dpgmm.sampler.state.slots import collect, free_slot, join, link, take_slot, unlink
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.views import log_evidence, weigh, weigh_rows

# Where :func:`search` keeps what it has to tell: the largest change, and the clusters there were before splits.
LARGEST, N_TO_SPLIT = 0, 1


@inlined
def refine(s, prior, start, size, halves, counts, times):
    """Draw the halves of ``pool[start:size]`` anew, several times; return the last log probability."""
    log_q = 0.0
    for _ in range(times):
        log_q = allocate_rows(s, prior, start, size, halves, counts, False)
        gather_halves(s, size, halves, counts)
        if counts[LEFT] == 0 or counts[RIGHT] == 0:
            return math.inf
    return log_q


@inlined
def _try_split(s, prior, place):
    """Try to divide a cluster; return the rows in its smaller half, 0 if it stays whole."""
    n_clusters = s.n_clusters
    halves, whole = s.halves, s.order[place]
    counts = s.half_sizes
    size = s.sizes[whole]
    if size == 1:
        return 0
    halves[LEFT], halves[RIGHT] = s.order[n_clusters + 1], s.order[n_clusters]
    collect(s, whole, s.pool)
    shuffle(s.bits, s.pool, 0, size)
    allocate_sequentially(s, size, False, -math.inf)
    log_q = refine(s, prior, 2, size, halves, counts, REFINEMENTS)
    if log_q == math.inf:
        return 0
    log_target = log_target_ratio(s, prior, n_clusters, halves, counts, whole)
    if math.log(uniform(s.bits)) < log_target - log_q:
        accept_split(s, place, size, halves)
        return min(counts[LEFT], counts[RIGHT])
    return 0


@inlined
def _try_merge(s, prior, place):
    """Try to unite a cluster with one that fits a row of it; return the rows of the smaller one, or 0."""
    n_clusters = s.n_clusters
    halves, right = s.halves, s.order[place]
    counts, union = s.half_sizes, s.order[n_clusters + 2]
    n_right = s.sizes[right]
    collect(s, right, s.pool)
    i = s.pool[below(s.bits, n_right)]
    partner, _ = choose_partner(s, prior, place, i)
    if partner < 0:
        return 0
    left = s.order[partner]
    collect(s, left, shifted(s.pool, n_right))
    size = n_right + s.sizes[left]
    unite_statistics(s, left, right, union)
    halves[LEFT], halves[RIGHT] = s.order[n_clusters + 1], s.order[n_clusters]
    copy_statistics(s, left, halves[LEFT])
    copy_statistics(s, right, halves[RIGHT])
    counts[LEFT], counts[RIGHT] = size - n_right, n_right
    log_q = refine(s, prior, 0, size, halves, counts, 1)
    # Two clusters that are known to differ have no union.
    possible = log_evidence(s, union) > -math.inf
    accepted = possible and log_q == math.inf
    if possible and not accepted:
        log_target = log_target_ratio(s, prior, n_clusters - 1, halves, counts, union)
        accepted = math.log(uniform(s.bits)) < log_q - log_target
    if not accepted:
        return 0
    for t in range(size):
        s.side[t] = RIGHT if s.slots[s.pool[t]] == right else LEFT
    accept_merge(s, partner, place, size, union)
    return min(n_right, size - n_right)


@inlined
def _try_redivision(s, prior, place):
    """Try to divide two neighbouring clusters in another way; return the rows that changed sides, or 0.

    A group of rows in the wrong one of two large clusters reaches the other one by no split and merge: either the
    group alone or the union of both clusters is far less probable.
    """
    n_clusters = s.n_clusters
    halves, right = s.halves, s.order[place]
    counts, union = s.half_sizes, s.order[n_clusters + 2]
    n_right = s.sizes[right]
    collect(s, right, s.pool)
    partner, _ = choose_partner(s, prior, place, s.pool[below(s.bits, n_right)])
    if partner < 0:
        return 0
    left = s.order[partner]
    collect(s, left, shifted(s.pool, n_right))
    size = n_right + s.sizes[left]
    unite_statistics(s, left, right, union)
    if size < 4 or log_evidence(s, union) == -math.inf:
        return 0
    halves[LEFT], halves[RIGHT] = s.order[n_clusters + 1], s.order[n_clusters]
    copy_statistics(s, left, halves[LEFT])
    copy_statistics(s, right, halves[RIGHT])
    counts[LEFT], counts[RIGHT] = size - n_right, n_right
    log_q = refine(s, prior, 0, size, halves, counts, 1)
    if log_q == math.inf:
        return 0
    present = log_target_ratio(s, prior, n_clusters - 1, halves, counts, union) - log_q
    shuffle(s.bits, s.pool, 0, size)
    allocate_sequentially(s, size, False, -math.inf)
    log_q = refine(s, prior, 2, size, halves, counts, REFINEMENTS_OF_TWO)
    if log_q == math.inf:
        return 0
    merit = log_target_ratio(s, prior, n_clusters - 1, halves, counts, union) - log_q
    if math.log(uniform(s.bits)) >= merit - present:
        return 0
    n_stay = 0
    for t in range(size):
        n_stay += 1 if (s.slots[s.pool[t]] == right) == (s.side[t] == RIGHT) else 0
    # Which half has which slot is no matter: most rows stay.
    is_swapped = 2 * n_stay < size
    at_left = halves[RIGHT] if is_swapped else halves[LEFT]
    at_right = halves[LEFT] if is_swapped else halves[RIGHT]
    copy_statistics(s, at_left, left)
    copy_statistics(s, at_right, right)
    for t in range(size):
        slot = right if (s.side[t] == RIGHT) != is_swapped else left
        if s.slots[s.pool[t]] != slot:
            unlink(s, s.pool[t])
            link(s, s.pool[t], slot)
    return min(n_stay, size - n_stay)


@c_function(INT(INTS, INTS))
def _search(head, told):
    s = memory_at(head)
    prior = prior_of(s)
    if s.phase == 0:
        while s.position < s.n_clusters and s.n_clusters > 1:
            if s.n_clusters + SLOTS_NEEDED > s.capacity:
                return NEEDS_ROOM
            rows = _try_merge(s, prior, s.position)
            told[LARGEST] = max(told[LARGEST], rows)
            # Another cluster has taken the place of one that is gone.
            s.position += 0 if rows > 0 else 1
        s.phase = 1
        s.position = 0
        told[N_TO_SPLIT] = s.n_clusters
    while s.phase == 1 and s.position < told[N_TO_SPLIT]:
        if s.n_clusters + SLOTS_NEEDED > s.capacity:
            return NEEDS_ROOM
        told[LARGEST] = max(told[LARGEST], _try_split(s, prior, s.position))
        s.position += 1
    if s.phase == 1:
        s.phase = 2
        s.position = 0
    while s.position < s.n_clusters and s.n_clusters > 1 and not are_grouped(s):
        if s.n_clusters + SLOTS_NEEDED > s.capacity:
            return NEEDS_ROOM
        # Large clusters and small ones are looked at in turn.
        is_large = s.position % 2 == 0
        place = s.place[s.slots[below(s.bits, s.n)]] if is_large else below(s.bits, s.n_clusters)
        told[LARGEST] = max(told[LARGEST], _try_redivision(s, prior, place))
        s.position += 1
    return DONE


def search(rng: np.random.Generator, state: State) -> int:
    """Try to unite every cluster with a likely partner, to divide every cluster, and pairs in another way.

    Pairs of clusters are not divided in another way where rows are in groups.

    For tuning only: the posterior is not left invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Changed in place.

    Returns
    -------
    int
        Rows in the smaller half of the largest cluster that divided or united.
    """
    told = np.zeros(2, dtype=np.int64)
    state.run(rng, _search, address_of(told))
    return int(told[LARGEST])


@inlined
def _log_relabelled(overlap, n_clusters):
    """Return the log of how many times as probable a division is whichever of its clusters has which label.

    ``overlap`` (K x K) has the log probability of all rows of one cluster in another, less that of their own, and
    off zero on its diagonal what takes part. The sum over all permutations of the labels is the permanent of its
    exponentials, here a product of sums over the clusters that each one can still change places with: exact where
    clusters do not overlap, where they overlap entirely, and for two.
    """
    total = 0.0
    for a in range(n_clusters):
        if overlap[a * n_clusters + a] == 0.0:
            continue
        number = 1.0
        for b in range(a + 1, n_clusters):
            if overlap[b * n_clusters + b] != 0.0:
                swapped = overlap[a * n_clusters + b] + overlap[b * n_clusters + a]
                number += math.exp(min(swapped, 0.0))
        total += math.log(number)
    return total


@c_function(FLOAT(INTS, INTS, INT, FLOATS, FLOATS))
def _log_labels(head, rows, n_rows, doubt, overlap):
    """Return the log probability of dividing some rows as they are, given the clusters as they are."""
    s = memory_at(head)
    prior = prior_of(s)
    n_clusters = s.n_clusters
    weights = s.log_weights
    for place in range(n_clusters):
        s.seats[s.order[place]] = log_seat(prior, s.sizes[s.order[place]])
        doubt[place] = 0.0
    total = 0.0
    for lane in range(LANES):
        s.owns[lane] = -1
    for first in range(0, n_rows, LANES):
        n_lanes = min(LANES, n_rows - first)
        for lane in range(n_lanes):
            for place in range(n_clusters):
                weights[place * LANES + lane] = s.seats[s.order[place]]
        weigh_rows(s, shifted(rows, first), n_lanes, s.order, n_clusters, s.owns, LANES, weights)
        for lane in range(LANES):
            s.lanes[lane] = -math.inf
            s.lanes[LANES + lane] = 0.0
        for start in range(0, n_clusters * LANES, LANES):
            raise_to(s.lanes, shifted(weights, start))
        sums = shifted(s.lanes, LANES)
        for start in range(0, n_clusters * LANES, LANES):
            add_exponentials(sums, sums, shifted(weights, start), s.lanes)
        for lane in range(n_lanes):
            own = s.place[s.slots[rows[first + lane]]]
            log_probability = weights[own * LANES + lane] - s.lanes[lane] - math.log(sums[lane])
            total += log_probability
            doubt[own] -= log_probability / s.sizes[s.order[own]]
            overlap[own * n_clusters + own] = 1.0
            for place in range(n_clusters):
                if place != own:
                    difference = weights[place * LANES + lane] - weights[own * LANES + lane]
                    overlap[own * n_clusters + place] += difference
    return total + _log_relabelled(overlap, n_clusters)


def log_sum_over_labellings(state: State) -> tuple[float, np.ndarray]:
    """Estimate the log of the joint density summed over all divisions of the rows like the present one.

    That is the log joint density, with the law of a concentration that is drawn with the labels, minus the log
    probability of this division where every row's label is drawn given the clusters as they are, whichever of
    them has which label. Also returned are the means of minus the log probabilities of the labels of the rows of
    each cluster, (K,), in the order of ``state.order``.
    """
    log_q, doubt = _log_labels_of(state, np.arange(state.n))
    return float(_log_density(state.address)) - log_q, doubt


def _log_labels_of(state: State, rows: np.ndarray) -> tuple[float, np.ndarray]:
    doubt, overlap = np.zeros(state.n_clusters), np.zeros((state.n_clusters, state.n_clusters))
    log_q = _log_labels(state.address, address_of(rows), len(rows), address_of(doubt), address_of(overlap))
    return float(log_q), doubt


def log_probability_of_labels(state: State, rows: np.ndarray) -> float:
    """Return the log probability of dividing some rows as they are, given the clusters as they are.

    Less this is what these rows add to :func:`log_sum`.
    """
    return _log_labels_of(state, rows)[0]


@c_function(FLOAT(INTS))
def _log_density(head):
    s = memory_at(head)
    return log_joint_of(s) + log_law(s)


@c_function(INT(INTS, INT))
def _dissolve(head, k):
    """Let every row of one of two or more clusters join another one; return whether they could."""
    s = memory_at(head)
    prior = prior_of(s)
    size = s.sizes[k]
    collect(s, k, s.pool)
    shuffle(s.bits, s.pool, 0, size)
    for t in range(size):
        place, _ = choose_partner(s, prior, s.place[k], s.pool[t])
        if place < 0:
            return 0
        unlink(s, s.pool[t])
        join(s, s.pool[t], s.order[place])
    free_slot(s, k)
    return 1


def without_one(rng: np.random.Generator, state: State) -> tuple[State, float]:
    """Do without one cluster, in a copy of a state with two or more, its rows having joined others.

    Returns
    -------
    rival : State
        With the clusters of the given state if no others can have the rows of the one given up.
    present : float
        Of the given state: see :func:`log_sum_over_labellings`.
    """
    present, doubt = log_sum_over_labellings(state)
    # A cluster that need not be there shares its rows with others, so that few are certain to be in it.
    doubt = np.maximum(doubt, 0.0)
    weights = doubt / doubt.sum() if doubt.sum() > 0.0 else np.full(len(doubt), 1.0 / len(doubt))
    k = int(state.order[rng.choice(len(doubt), p=weights)])
    rival = state.copy()
    return rival if dissolved(rng, rival, k) else state.copy(), present


def dissolved(rng: np.random.Generator, state: State, k: int) -> bool:
    """Let every row of slot ``k`` join another cluster, in place; tell whether they could."""
    state.use(rng)
    return state.n_clusters > 1 and bool(_dissolve(state.address, k))


@c_function(INT(INTS))
def _divide_anew(head):
    s = memory_at(head)
    prior = prior_of(s)
    weights = s.log_weights
    if s.phase == 0:
        # Large clusters are looked at more often.
        chosen = s.slots[below(s.bits, s.n)]
        size = s.sizes[chosen]
        collect(s, chosen, s.pool)
        shuffle(s.bits, s.pool, 0, size)
        # Rows of the chosen cluster leave it without a look at what is left; its slot becomes a free one.
        for t in range(size):
            unlink(s, s.pool[t])
        free_slot(s, chosen)
        s.phase = 1 + s.n_clusters
        s.n_members = size
    first = s.phase - 1
    while s.position < s.n_members:
        if s.n_clusters == s.capacity:
            return NEEDS_ROOM
        i = s.pool[s.position]
        n_pieces = s.n_clusters - first
        pieces = shifted(s.order, first)
        for j in range(n_pieces):
            weights[j] = log_seat(prior, s.sizes[pieces[j]])
        weigh(s, i, pieces, n_pieces, -1, weights)
        is_full = n_pieces >= MOST_PIECES and largest_of(weights, n_pieces) > -math.inf
        opening = log_seat_new(prior, s.n_clusters) + s.prior_predictive[i]
        weights[n_pieces] = -math.inf if is_full else opening
        piece = choose(s, weights, n_pieces + 1)
        if piece == n_pieces:
            take_slot(s)
        join(s, i, pieces[piece])
        s.position += 1
    return DONE


def divided_anew(rng: np.random.Generator, state: State) -> State:
    """Divide one cluster into any number of pieces at once, in a copy of a state.

    Of a cluster of several groups no two halves may be worth having, but the groups are. Its rows are seated one
    after the other, in random order, with pieces that begin with nothing.
    """
    rival = state.copy()
    rival.run(rng, _divide_anew)
    return rival


def log_sum(state: State) -> float:
    """Estimate the log of the joint density summed over all divisions of the rows like the present one."""
    return log_sum_over_labellings(state)[0]


# What a search calls.
SEARCHES = (_search, _log_labels, _log_density, _dissolve, _divide_anew)
