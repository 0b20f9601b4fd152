"""Split and merge moves: a cluster divides in two, or two clusters unite, at once.

A move has a *selection*, which names a cluster to split or two to merge, and an *allocation*, which draws how the
rows of a cluster divide, or tells with which probability it would have drawn a given division. The two kinds of
move differ in these; what they share is written once, and acceptance is in one place, :func:`split_merge`.

``SEQUENTIAL``
    Data-driven: two rows found the halves and the others join them in random order, given the statistics of
    those that have joined (Dahl 2005), in blocks that double, and with a merge partner chosen by the data.
``RANDOM``
    Rows divide without regard to the data (Chang and Fisher 2013, section 5.5), clusters being chosen with
    probability inverse to their size, since only small ones can divide well that way.

Allocations work on two free slots of the statistics, so that a rejected proposal leaves nothing to undo, and on
the rows of the clusters at hand alone. ``docs/moves.md`` derives the ratios.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.dispatch import compiled
from pymc_dpgmm.families.slots import move
from pymc_dpgmm.families.verbs import add, combine, fit, log_marginal, log_predictive, summarize
from pymc_dpgmm.kernels.gibbs import choose
from pymc_dpgmm.kernels.state import canonicalize, collect, count_clusters, grow, link, more_slots, unlink
from pymc_dpgmm.partitions import log_seat, log_split

LEFT, RIGHT = 0, 1
RANDOM, SEQUENTIAL = 0, 1
MOVES = ("random", "sequential")
# Columns of a tally, one row per kind of move.
SPLITS_TRIED, SPLITS, SPLIT_ROWS, MERGES_TRIED, MERGES, MERGED_ROWS, WORK = range(7)
N_TALLIED = 7
# The first rows of a sequential allocation join one by one, the others in blocks as long as all before them.
ONE_BY_ONE = 4


class Workspace(NamedTuple):
    """Scratch of a run of moves.

    Parameters
    ----------
    own : (n,) int64 array
        Rows of the cluster to split, or of the two to merge, first. Founders of the right and the left half
        have the places 0 and 1.
    side : (n,) int8 array
        Half of each of them: ``LEFT`` or ``RIGHT``.
    picked : (n,) int64 array
    counts : (2,) int64 array
        Rows of the halves.
    """

    own: np.ndarray
    side: np.ndarray
    picked: np.ndarray
    counts: np.ndarray


@compiled(inline="always")
def workspace(n):
    """Make a workspace for n rows."""
    return Workspace(
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int8),
        np.empty(n, dtype=np.int64),
        np.zeros(2, dtype=np.int64),
    )


@compiled()
def with_room(state, order, n_clusters):
    """Return the state and its slots, those in use first, with three free slots or more."""
    if n_clusters + 3 <= order.shape[0]:
        return state, order
    state = grow(state)
    return state, more_slots(order, state.sizes.shape[0])


@compiled()
def shuffle(rng, own, start, stop):
    """Bring ``own[start:stop]`` into random order (Fisher and Yates)."""
    for t in range(stop - 1, start, -1):
        other = start + int(rng.random() * (t - start + 1))
        own[t], own[other] = own[other], own[t]


@compiled(_nrt=False)
def allocate_rows(rng, prior, state, work, start, stop, left, right, forced):
    """Draw the halves of ``own[start:stop]`` independently, given the halves' statistics as they are.

    Returns
    -------
    float
        Log probability of the outcome; of the given ``side`` if ``forced``.
    """
    log_q = 0.0
    odds = log_seat(prior, work.counts[RIGHT]) - log_seat(prior, work.counts[LEFT])
    for t in range(start, stop):
        i = work.own[t]
        gain = (
            odds
            + log_predictive(state.stats, right, state.rows, i)
            - log_predictive(state.stats, left, state.rows, i)
        )
        shrink = math.exp(-abs(gain))
        likely = RIGHT if gain > 0.0 else LEFT
        if not forced:
            work.side[t] = likely if rng.random() * (1.0 + shrink) < 1.0 else 1 - likely
        log_q -= math.log1p(shrink)
        if work.side[t] != likely:
            log_q -= abs(gain)
    return log_q


@compiled()
def summarize_half(state, work, start, stop, half, k):
    """Summarise the rows of one half among ``own[start:stop]`` in slot ``k``; return their number."""
    n = 0
    for t in range(start, stop):
        work.picked[n] = work.own[t]
        n += work.side[t] == half
    summarize(state.summary, k, state.rows, work.picked[:n])
    return n


@compiled()
def fit_halves(state, work, size, left, right):
    """Fit the two slots to the halves of ``own[:size]``."""
    work.counts[LEFT] = summarize_half(state, work, 0, size, LEFT, 0)
    fit(state.stats, left, state.summary, 0)
    work.counts[RIGHT] = summarize_half(state, work, 0, size, RIGHT, 0)
    fit(state.stats, right, state.summary, 0)


@compiled()
def allocate_sequentially(rng, prior, state, work, size, left, right, forced, bound):
    """Let the rows ``own[2:size]`` join the halves founded by ``own[0]`` (right) and ``own[1]`` (left) in turn.

    The log probability is a sum of logs of predictive probabilities of each row given all before it, or, past
    ``ONE_BY_ONE`` rows, all before its block; it is never positive.

    Returns
    -------
    float
        Log probability of the outcome; of the given ``side`` if ``forced``. Minus infinity as soon as it is known
        to be below ``bound``; the halves' statistics are then unfinished.
    """
    own, side, counts = work.own, work.side, work.counts
    move(state.stats, 0, right)
    add(state.stats, right, state.rows, own[0])
    move(state.stats, 0, left)
    add(state.stats, left, state.rows, own[1])
    side[0], side[1] = RIGHT, LEFT
    counts[LEFT] = 1
    counts[RIGHT] = 1
    log_q = 0.0
    start = min(size, ONE_BY_ONE)
    for t in range(2, start):
        log_q += allocate_rows(rng, prior, state, work, t, t + 1, left, right, forced)
        if log_q < bound:
            return -math.inf
        add(state.stats, right if side[t] == RIGHT else left, state.rows, own[t])
        counts[side[t]] += 1
    if start < size:
        summarize_half(state, work, 0, start, LEFT, LEFT)
        summarize_half(state, work, 0, start, RIGHT, RIGHT)
    while start < size:
        stop = min(size, 2 * start)
        log_q += allocate_rows(rng, prior, state, work, start, stop, left, right, forced)
        if log_q < bound:
            return -math.inf
        counts[LEFT] += summarize_half(state, work, start, stop, LEFT, 2)
        combine(state.summary, LEFT, 2)
        fit(state.stats, left, state.summary, LEFT)
        counts[RIGHT] += summarize_half(state, work, start, stop, RIGHT, 2)
        combine(state.summary, RIGHT, 2)
        fit(state.stats, right, state.summary, RIGHT)
        start = stop
    return log_q


@compiled(inline="always")
def log_random_division(n_left, n_right):
    """Log probability that random allocation divides a cluster into two given sets of rows.

    Each ordered assignment has the Dirichlet-multinomial(1, 1) probability
    ``n_left! n_right! / (n_left + n_right + 1)!``, and two of them are the same division.
    """
    return (
        math.log(2.0)
        + math.lgamma(n_left + 1.0)
        + math.lgamma(n_right + 1.0)
        - math.lgamma(n_left + n_right + 2.0)
    )


@compiled(inline="always")
def allocate_randomly(rng, state, work, size, left, right):
    """Draw a random division of ``own[:size]``; return its log probability, or infinity if a half is empty."""
    share = rng.random()
    for t in range(size):
        work.side[t] = RIGHT if rng.random() < share else LEFT
    fit_halves(state, work, size, left, right)
    if work.counts[LEFT] == 0 or work.counts[RIGHT] == 0:
        return math.inf
    return log_random_division(work.counts[LEFT], work.counts[RIGHT])


@compiled(inline="always")
def _small(size, smallest):
    """Weight with which a cluster is chosen by random moves, if it has at least ``smallest`` rows."""
    return (size >= smallest) / max(size, 1)


@compiled(inline="always")
def small_weight(state, order, n_clusters, smallest):
    """Sum of the weights of all clusters for random moves."""
    total = 0.0
    for place in range(n_clusters):
        total += _small(state.sizes[order[place]], smallest)
    return total


@compiled(inline="always")
def choose_small(rng, state, order, n_clusters, smallest, excluded):
    """Draw the place of a cluster for a random move, or -1 if there is none."""
    total = small_weight(state, order, n_clusters, smallest)
    if excluded >= 0:
        total -= _small(state.sizes[order[excluded]], smallest)
    u = rng.random() * total
    chosen = -1
    for place in range(n_clusters):
        weight = _small(state.sizes[order[place]], smallest)
        if place != excluded and weight > 0.0:
            chosen = place
            u -= weight
            if u < 0.0:
                break
    return chosen


@compiled(inline="always")
def log_choose_pair(total, n_left, n_right):
    """Log probability that random moves choose a pair of clusters to merge, in either order.

    ``total`` is the weight of all clusters in the divided state.
    """
    a, b = _small(n_left, 1), _small(n_right, 1)
    # A sum over other clusters, of which there may be none but this pair, is not left to cancellation.
    return math.log(a * b / total * (1.0 / max(total - a, b) + 1.0 / max(total - b, a)))


@compiled()
def choose_partner(rng, prior, state, order, n_clusters, excluded, i):
    """Draw a cluster other than ``order[excluded]`` for row ``i``: its place and the log probability.

    The probability is proportional to the weight the cluster would have for it in a Gibbs scan. The place is -1
    where no other cluster can have the row.
    """
    log_weights = np.empty(n_clusters)
    for place in range(n_clusters):
        k = order[place]
        log_weights[place] = log_seat(prior, state.sizes[k]) + log_predictive(state.stats, k, state.rows, i)
    log_weights[excluded] = -math.inf
    largest = log_weights.max()
    if largest == -math.inf:
        return -1, largest
    cumulative = log_weights.copy()
    place = choose(rng, cumulative, n_clusters)
    return place, log_weights[place] - largest - math.log(cumulative[n_clusters - 1])


@compiled()
def log_choose_partner(prior, state, order, n_clusters, divided, i, slot, size):
    """Log probability that ``choose_partner`` draws the cluster in ``slot`` once ``order[divided]`` is divided."""
    own = log_seat(prior, size) + log_predictive(state.stats, slot, state.rows, i)
    total = 1.0
    for place in range(n_clusters):
        if place != divided:
            k = order[place]
            total += math.exp(
                log_seat(prior, state.sizes[k]) + log_predictive(state.stats, k, state.rows, i) - own
            )
    return -math.log(total)


@compiled(inline="always")
def log_target_ratio(prior, state, n_clusters, left, n_left, right, n_right, whole):
    """Log ratio of the joint densities after and before one of ``n_clusters`` divides."""
    return (
        log_split(prior, n_clusters, n_left, n_right)
        + log_marginal(state.stats, left)
        + log_marginal(state.stats, right)
        - log_marginal(state.stats, whole)
    )


@compiled(inline="always")
def log_sequential_selection(n, n_clusters, n_left, n_right, log_partner):
    """Log ratio of the selections of a sequential move: of the merge, over that of the split it undoes.

    A split chooses the founder of the right half among all n rows, and that of the left one among the other rows
    of its cluster. A merge chooses the right cluster among all ``n_clusters + 1``, its founder, the left cluster
    with probability exp(``log_partner``), and its founder.
    """
    return (
        math.log(n)
        + math.log(n_left + n_right - 1.0)
        - math.log(n_clusters + 1.0)
        - math.log(n_right)
        - math.log(n_left)
        + log_partner
    )


@compiled(inline="always")
def log_random_selection(state, order, n_clusters, size, n_left, n_right):
    """Log ratio of the selections of a random move: of the merge, over that of the split it undoes.

    ``order[:n_clusters]`` are the clusters of the undivided state, one of which has ``size`` rows.
    """
    divided = small_weight(state, order, n_clusters, 1) - _small(size, 1) + _small(n_left, 1) + _small(n_right, 1)
    choose_whole = _small(size, 2) / small_weight(state, order, n_clusters, 2)
    return log_choose_pair(divided, n_left, n_right) - math.log(choose_whole)


@compiled(inline="always")
def propose_split(rng, prior, state, work, order, n_clusters, kind):
    """Propose to divide a cluster: right and left half in the slots ``order[n_clusters:n_clusters + 2]``.

    Returns
    -------
    log_ratio : float
        Log of the acceptance ratio.
    place, size : int
        Place of the cluster in ``order``, and its rows, which are in ``work.own[:size]``.
    """
    n = state.slots.shape[0]
    right, left = order[n_clusters], order[n_clusters + 1]
    own, counts = work.own, work.counts
    if kind == RANDOM:
        place = choose_small(rng, state, order, n_clusters, 2, -1)
        if place < 0:
            return -math.inf, 0, 0
        whole = order[place]
        size = state.sizes[whole]
        collect(state, whole, own, 0)
        log_q = allocate_randomly(rng, state, work, size, left, right)
        if log_q == math.inf:
            return -math.inf, place, size
        log_selection = log_random_selection(state, order, n_clusters, size, counts[LEFT], counts[RIGHT])
    else:
        founder = int(rng.random() * n)
        whole = state.slots[founder]
        size = state.sizes[whole]
        place = 0
        while order[place] != whole:
            place += 1
        if size == 1:
            return -math.inf, place, size
        collect(state, whole, own, 0)
        for t in range(size):
            if own[t] == founder:
                own[t] = own[0]
                own[0] = founder
        shuffle(rng, own, 1, size)
        log_q = allocate_sequentially(rng, prior, state, work, size, left, right, False, -math.inf)
        log_partner = log_choose_partner(prior, state, order, n_clusters, place, founder, left, counts[LEFT])
        log_selection = log_sequential_selection(n, n_clusters, counts[LEFT], counts[RIGHT], log_partner)
    log_target = log_target_ratio(prior, state, n_clusters, left, counts[LEFT], right, counts[RIGHT], whole)
    return log_target + log_selection - log_q, place, size


@compiled(inline="always")
def propose_merge(rng, prior, state, work, order, n_clusters, kind, bound):
    """Propose to unite two clusters: the union in the slot ``order[n_clusters + 2]``.

    Returns
    -------
    log_ratio : float
        Log of the acceptance ratio; minus infinity as soon as it is known to be below ``bound``.
    left_place, right_place, size : int
        Places of the clusters, and the rows of both, which are in ``work.own[:size]``; ``work.side`` tells which.
    """
    n = state.slots.shape[0]
    if n_clusters == 1:
        return -math.inf, 0, 0, 0
    spare = order[n_clusters + 2]
    own = work.own
    if kind == RANDOM:
        right_place = choose_small(rng, state, order, n_clusters, 1, -1)
        left_place = choose_small(rng, state, order, n_clusters, 1, right_place)
    else:
        right_place = int(rng.random() * n_clusters)
        left_place = 0
    right = order[right_place]
    n_right = state.sizes[right]
    collect(state, right, own, 0)
    log_partner = 0.0
    if kind == SEQUENTIAL:
        t = int(rng.random() * n_right)
        own[0], own[t] = own[t], own[0]
        left_place, log_partner = choose_partner(rng, prior, state, order, n_clusters, right_place, own[0])
        if left_place < 0:
            return -math.inf, 0, 0, n_right
    left = order[left_place]
    n_left = state.sizes[left]
    collect(state, left, own, n_right)
    size = n_left + n_right
    summarize(state.summary, 0, state.rows, own[:size])
    fit(state.stats, spare, state.summary, 0)
    log_target = log_target_ratio(prior, state, n_clusters - 1, left, n_left, right, n_right, spare)
    if kind == RANDOM:
        # The state that the split would start from: the pair's weights replaced by the union's.
        total = small_weight(state, order, n_clusters, 1)
        splittable = small_weight(state, order, n_clusters, 2) - _small(n_left, 2) - _small(n_right, 2)
        choose_whole = _small(size, 2) / (splittable + _small(size, 2))
        log_selection = log_choose_pair(total, n_left, n_right) - math.log(choose_whole)
        log_q = log_random_division(n_left, n_right)
    else:
        log_selection = log_sequential_selection(n, n_clusters - 1, n_left, n_right, log_partner)
        # log_q <= 0 decides alone from here on.
        bound += log_target + log_selection
        if bound > 0.0:
            return -math.inf, left_place, right_place, size
        t = n_right + int(rng.random() * n_left)
        own[1], own[t] = own[t], own[1]
        shuffle(rng, own, 2, size)
    for t in range(size):
        work.side[t] = RIGHT if state.slots[own[t]] == right else LEFT
    if kind == SEQUENTIAL:
        free_right, free_left = order[n_clusters], order[n_clusters + 1]
        log_q = allocate_sequentially(rng, prior, state, work, size, free_left, free_right, True, bound)
    return log_q - log_target - log_selection, left_place, right_place, size


@compiled(inline="always")
def relink(state, work, size, half, slot):
    """Move the rows of one half of ``own[:size]`` to a slot; return their number."""
    moved = 0
    for t in range(size):
        if work.side[t] == half:
            unlink(state, work.own[t])
            link(state, work.own[t], slot)
            moved += 1
    return moved


@compiled()
def split_merge(rng, prior, state, n_moves, tally):
    """Run split and merge moves, each of which leaves the posterior of the partition invariant.

    Every move is a split or a merge with probability 1/2, and accepted with the probability of Metropolis and
    Hastings.

    Parameters
    ----------
    rng : numpy.random.Generator
    prior : NamedTuple
        A prior on partitions.
    state : State
        Canonical; changed in place.
    n_moves : (2,) int64 array
        Number of moves of each kind.
    tally : (2, 7) int64 array
        Per kind: splits tried, accepted, and rows in the smaller halves of accepted ones; the same of merges;
        rows in all clusters proposed to. Added to.

    Returns
    -------
    State
        Canonical. A new tuple if more slots were needed.
    """
    n_clusters = count_clusters(state)
    # Slots in use, in no order, then free ones; the last slot of the statistics is not among them.
    order = np.arange(1, state.sizes.shape[0] - 1)
    work = workspace(state.slots.shape[0])
    changed = False
    for kind in range(n_moves.shape[0]):
        for _ in range(n_moves[kind]):
            state, order = with_room(state, order, n_clusters)
            log_u = math.log(rng.random())
            if rng.random() < 0.5:
                tally[kind, SPLITS_TRIED] += 1
                log_ratio, place, size = propose_split(rng, prior, state, work, order, n_clusters, kind)
                tally[kind, WORK] += size
                if log_u < log_ratio:
                    changed = True
                    n_right = relink(state, work, size, RIGHT, order[n_clusters])
                    move(state.stats, order[n_clusters + 1], order[place])
                    n_clusters += 1
                    tally[kind, SPLITS] += 1
                    tally[kind, SPLIT_ROWS] += min(n_right, size - n_right)
            else:
                tally[kind, MERGES_TRIED] += 1
                log_ratio, left_place, right_place, size = propose_merge(
                    rng, prior, state, work, order, n_clusters, kind, log_u
                )
                tally[kind, WORK] += size
                if log_u < log_ratio:
                    changed = True
                    move(state.stats, order[n_clusters + 2], order[left_place])
                    n_right = relink(state, work, size, RIGHT, order[left_place])
                    n_clusters -= 1
                    order[right_place], order[n_clusters] = order[n_clusters], order[right_place]
                    tally[kind, MERGES] += 1
                    tally[kind, MERGED_ROWS] += min(n_right, size - n_right)
    if changed:
        canonicalize(state)
    return state
