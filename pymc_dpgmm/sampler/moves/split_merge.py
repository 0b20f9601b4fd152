"""Split and merge moves: a cluster divides in two, or two clusters unite, at once.

A move has a *selection*, which names a cluster to split or two to merge, and an *allocation*, which draws how the
rows of a cluster divide, or tells with which probability it would have drawn a given division. The two kinds of
move differ in these; what they share is written once, and acceptance is in one place, :func:`_move`.

``SEQUENTIAL``
    Data-driven: two rows found the halves and the others join them in random order, given the statistics of
    those that have joined (Dahl 2005), in blocks that double, and with a merge partner chosen by the data.
``RANDOM``
    Rows divide without regard to the data (Chang and Fisher 2013, section 5.5), clusters being chosen with
    probability inverse to their size, since only small ones can divide well that way. Those of more than
    ``sampler.amounts.LARGEST_DIVIDED`` rows are left alone.

Allocations work on free slots, so that a rejected proposal leaves nothing to undo, and on the rows of the clusters
at hand alone. ``docs/moves.md`` derives the ratios.
"""

import math

from pymc_dpgmm.native.arithmetic import below, take_exponentials, uniform
from pymc_dpgmm.native.compiled import INTS, NOTHING, c_function, inlined, shifted
from pymc_dpgmm.partitions.priors import log_seat, log_split
from pymc_dpgmm.sampler.amounts import RANDOM_BESIDE_LEADERS
from pymc_dpgmm.sampler.moves.move import (
    MERGED_ROWS,
    MERGES,
    MERGES_TRIED,
    SPLIT_ROWS,
    SPLITS,
    SPLITS_TRIED,
    WORK,
    Move,
    Paying,
    tally_of_kind,
)
from pymc_dpgmm.sampler.state.choices import accumulate, pick, shuffle
from pymc_dpgmm.sampler.state.grouping import (
    are_grouped,
    count_halves,
    divide_accepted,
    forget_halves,
    log_division,
    log_grouped_odds,
    note_divided,
    note_whole,
    unite_accepted,
)
from pymc_dpgmm.sampler.state.memory import HEAD, memory_at, prior_of
from pymc_dpgmm.sampler.state.provided import provided
from pymc_dpgmm.sampler.state.slots import collect, link, swap_places, unlink
from pymc_dpgmm.sampler.state.templates import WEIGHED_AT_ONCE
from pymc_dpgmm.sampler.state.views import change, copy_statistics, gather, log_evidence, merge, weigh, weigh_rows

LEFT, RIGHT = 0, 1
RANDOM, SEQUENTIAL = 0, 1
# The first rows of a sequential allocation join one by one, the others in blocks as long as all before them.
ONE_BY_ONE = 4


@inlined
def allocate_rows(s, prior, start, stop, halves, counts, forced):
    """Draw the halves of ``pool[start:stop]`` independently, given the halves' statistics as they are.

    Parameters
    ----------
    halves : pointer
        The slots of the left and the right half.
    counts : pointer
        Their numbers of rows.
    forced : bool
        Whether ``side`` tells the halves, and only their probability is asked for.

    Returns
    -------
    float
        Log probability of the outcome.
    """
    log_q = 0.0
    # Of the probabilities of the likelier halves, the product of the reciprocals: one logarithm for many rows.
    product = 1.0
    odds = log_seat(prior, counts[RIGHT]) - log_seat(prior, counts[LEFT])
    left, right, shrinks = s.log_weights, shifted(s.log_weights, WEIGHED_AT_ONCE), s.shrinks
    for first in range(start, stop, WEIGHED_AT_ONCE):
        m = min(WEIGHED_AT_ONCE, stop - first)
        for t in range(m):
            left[t] = 0.0
            right[t] = 0.0
            s.owns[t] = -1
        weigh_rows(s, shifted(s.pool, first), m, halves, 2, s.owns, WEIGHED_AT_ONCE, left)
        for t in range(m):
            if are_grouped(s):
                odds = log_grouped_odds(s, s.pool[first + t], counts[LEFT], counts[RIGHT])
            right[t] += odds - left[t]
            shrinks[t] = -abs(right[t])
        take_exponentials(shrinks, m, 0.0)
        for t in range(m):
            likely = RIGHT if right[t] > 0.0 else LEFT
            if not forced:
                s.side[first + t] = likely if uniform(s.bits) * (1.0 + shrinks[t]) < 1.0 else 1 - likely
            product *= 1.0 + shrinks[t]
            if product > 1e100:
                log_q -= math.log(product)
                product = 1.0
            if s.side[first + t] != likely:
                log_q -= abs(right[t])
    return log_q - math.log(product)


@inlined
def gather_half(s, start, stop, half, k, fresh):
    """Let the rows of one half among ``pool[start:stop]`` join slot ``k``; return their number."""
    n = 0
    for t in range(start, stop):
        s.half_rows[n] = s.pool[t]
        n += 1 if s.side[t] == half else 0
    if n == 1 and not fresh:
        change(s, s.half_rows[0], k, 1.0)
    elif n > 0 or fresh:
        gather(s, k, s.half_rows, n, fresh)
    return n


@inlined
def gather_halves(s, size, halves, counts):
    """Compute the statistics of the halves of ``pool[:size]``."""
    counts[LEFT] = gather_half(s, 0, size, LEFT, halves[LEFT], 1)
    counts[RIGHT] = gather_half(s, 0, size, RIGHT, halves[RIGHT], 1)


@provided("allocate")
@c_function(HEAD.signature("allocate"))
def allocate_in_turn(head, size, forced, bound):
    """Allocate rows sequentially, in compiled code of its own: see :func:`allocate_sequentially`."""
    s = memory_at(head)
    prior = prior_of(s)
    halves, counts = s.halves, s.half_sizes
    s.side[0], s.side[1] = RIGHT, LEFT
    gather(s, halves[RIGHT], s.pool, 1, 1)
    gather(s, halves[LEFT], shifted(s.pool, 1), 1, 1)
    counts[LEFT], counts[RIGHT] = 1, 1
    if are_grouped(s):
        forget_halves(s, size)
        count_halves(s, 0, 2)
    log_q = 0.0
    start = 2
    while start < size:
        stop = start + 1 if start < ONE_BY_ONE else min(size, 2 * start)
        log_q += allocate_rows(s, prior, start, stop, halves, counts, forced == 1)
        if log_q < bound:
            return -math.inf
        counts[LEFT] += gather_half(s, start, stop, LEFT, halves[LEFT], 0)
        counts[RIGHT] += gather_half(s, start, stop, RIGHT, halves[RIGHT], 0)
        if are_grouped(s):
            count_halves(s, start, stop)
        start = stop
    return log_q


@inlined
def allocate_sequentially(s, size, forced, bound):
    """Let the rows ``pool[2:size]`` join the halves founded by ``pool[0]`` (right) and ``pool[1]`` (left) in turn.

    The halves' slots, and then their numbers of rows, are ``halves``. The log probability is a sum of logs of
    predictive probabilities of each row given all before it, or, past ``ONE_BY_ONE`` rows, all before its block;
    it is never positive.

    Returns
    -------
    float
        Log probability of the outcome; of the given ``side`` if ``forced``. Minus infinity as soon as it is known
        to be below ``bound``; the halves' statistics are then unfinished.
    """
    return s.allocate(s.head, size, 1 if forced else 0, bound)


@inlined
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


@inlined
def _weight(s, size, to_divide):
    """Weight with which random moves choose a cluster, to divide it or to unite it with another."""
    return 1.0 / size if not to_divide or 2 <= size <= s.most_divided else 0.0


@inlined
def total_weight(s, to_divide):
    """Sum of the weights of all clusters for random moves."""
    total = 0.0
    for place in range(s.n_clusters):
        total += _weight(s, s.sizes[s.order[place]], to_divide)
    return total


@inlined
def choose_small(s, to_divide, excluded):
    """Draw the place of a cluster for a random move, or -1 if there is none."""
    total = total_weight(s, to_divide)
    if excluded >= 0:
        total -= _weight(s, s.sizes[s.order[excluded]], to_divide)
    u = uniform(s.bits) * total
    chosen = -1
    for place in range(s.n_clusters):
        weight = _weight(s, s.sizes[s.order[place]], to_divide)
        if place != excluded and weight > 0.0:
            chosen = place
            u -= weight
            if u < 0.0:
                break
    return chosen


@inlined
def log_choose_pair(total, n_left, n_right):
    """Log probability that random moves choose a pair of clusters to merge, in either order.

    ``total`` is the weight of all clusters in the divided state.
    """
    a, b = 1.0 / n_left, 1.0 / n_right
    # A sum over other clusters, of which there may be none but this pair, is not left to cancellation.
    return math.log(a * b / total * (1.0 / max(total - a, b) + 1.0 / max(total - b, a)))


@inlined
def weigh_partners(s, prior, excluded, i):
    """Set the log weights with which clusters would have row ``i`` in a Gibbs scan, but for that at one place.

    Returns
    -------
    float
        Log of their sum. ``cumulative`` has the sums of weights, for :func:`~.choices.pick`.
    """
    n_clusters = s.n_clusters
    weights = s.log_weights
    for place in range(n_clusters):
        weights[place] = log_seat(prior, s.sizes[s.order[place]])
    weigh(s, i, s.order, n_clusters, -1, weights)
    weights[excluded] = -math.inf
    for place in range(n_clusters):
        s.cumulative[place] = weights[place]
    largest = accumulate(s, s.cumulative, n_clusters)
    return largest if largest == -math.inf else largest + math.log(s.cumulative[n_clusters - 1])


@inlined
def choose_partner(s, prior, excluded, i):
    """Draw a cluster other than that at place ``excluded`` for row ``i``: its place and the log probability.

    The place is -1 where no other cluster can have the row.
    """
    log_total = weigh_partners(s, prior, excluded, i)
    if log_total == -math.inf:
        return -1, log_total
    place = pick(uniform(s.bits), s.cumulative, s.n_clusters, 1)
    return place, s.log_weights[place] - log_total


@inlined
def log_choose_partner(s, prior, divided, i, slot, size):
    """Log probability that ``choose_partner`` draws the half in ``slot`` of the cluster at ``divided``."""
    n_clusters = s.n_clusters
    weights = s.log_weights
    for place in range(n_clusters):
        weights[place] = log_seat(prior, s.sizes[s.order[place]])
    weigh(s, i, s.order, n_clusters, -1, weights)
    # The half takes the place of the cluster that is divided.
    weights[divided] = log_seat(prior, size)
    s.listed[0] = slot
    weigh(s, i, s.listed, 1, -1, shifted(weights, divided))
    log_weight = weights[divided]
    return log_weight - accumulate(s, weights, n_clusters) - math.log(weights[n_clusters - 1])


@inlined
def log_prior_ratio(s, prior, n_clusters, n_left, n_right, forced):
    """Log ratio of the priors after and before one of ``n_clusters`` divides, as ``side`` tells of ``pool``.

    With groups, the share of its right half is drawn, unless ``forced``: see :func:`log_division`.
    """
    if are_grouped(s):
        return log_division(s, n_left + n_right, n_clusters, forced)
    return log_split(prior, n_clusters, n_left, n_right)


@inlined
def log_target_ratio(s, prior, n_clusters, halves, counts, whole):
    """Log ratio of the joint densities after and before one of ``n_clusters`` divides."""
    return (
        log_prior_ratio(s, prior, n_clusters, counts[LEFT], counts[RIGHT], False)
        + log_evidence(s, halves[LEFT])
        + log_evidence(s, halves[RIGHT])
        - log_evidence(s, whole)
    )


@inlined
def choose_founder(s):
    """Draw the founder of a sequential split; see :func:`log_founder`."""
    if uniform(s.bits) < 0.5:
        return below(s.bits, s.n)
    whole = s.order[below(s.bits, s.n_clusters)]
    i = s.n + whole
    for _ in range(1 + below(s.bits, s.sizes[whole])):
        i = s.following[i]
    return i


@inlined
def log_founder(n, n_clusters, size):
    """Log probability that a row of a cluster of ``size`` founds the right half of a sequential split.

    It is drawn among all n rows, or else, as likely, among those of a cluster drawn among all ``n_clusters``:
    splits of small clusters cost little, and most of the clusters that come and go are small.
    """
    return math.log(0.5 / n + 0.5 / (n_clusters * size))


@inlined
def log_sequential_selection(n, n_clusters, n_left, n_right, log_partner):
    """Log ratio of the selections of a sequential move: of the merge, over that of the split it undoes.

    A split chooses the founder of the right half by :func:`choose_founder` from the ``n_clusters`` clusters, and
    that of the left one among the other rows of its cluster. A merge chooses the right cluster among all
    ``n_clusters + 1``, its founder, the left cluster with probability exp(``log_partner``), and its founder.
    """
    size = n_left + n_right
    return (
        -log_founder(n, n_clusters, size)
        + math.log(size - 1.0)
        - math.log(n_clusters + 1.0)
        - math.log(n_right)
        - math.log(n_left)
        + log_partner
    )


@inlined
def log_random_selection(s, size, n_left, n_right):
    """Log ratio of the selections of a random move: of the merge, over that of the split it undoes.

    The clusters are those of the undivided state, one of which has ``size`` rows.
    """
    divided = total_weight(s, False) - 1.0 / size + 1.0 / n_left + 1.0 / n_right
    choose_whole = _weight(s, size, True) / total_weight(s, True)
    return log_choose_pair(divided, n_left, n_right) - math.log(choose_whole)


@inlined
def propose_split(s, prior, kind, halves, counts):
    """Propose to divide a cluster, the halves being in two free slots.

    Returns
    -------
    log_ratio : float
        Log of the acceptance ratio.
    place, size : int
        Place of the cluster in the list of slots, and its rows, which are in ``pool[:size]``.
    """
    members, bits = s.pool, s.bits
    if kind == RANDOM:
        place = choose_small(s, True, -1)
        if place < 0:
            return -math.inf, 0, 0
        whole = s.order[place]
        size = s.sizes[whole]
        collect(s, whole, members)
        if are_grouped(s):
            note_divided(s, whole)
        share = uniform(bits)
        for t in range(size):
            s.side[t] = RIGHT if uniform(bits) < share else LEFT
        gather_halves(s, size, halves, counts)
        if counts[LEFT] == 0 or counts[RIGHT] == 0:
            return -math.inf, place, size
        log_q = log_random_division(counts[LEFT], counts[RIGHT])
        log_selection = log_random_selection(s, size, counts[LEFT], counts[RIGHT])
    else:
        founder = choose_founder(s)
        whole = s.slots[founder]
        size = s.sizes[whole]
        place = s.place[whole]
        if size == 1:
            return -math.inf, place, size
        collect(s, whole, members)
        for t in range(size):
            if members[t] == founder:
                members[t] = members[0]
                members[0] = founder
        shuffle(bits, members, 1, size)
        if are_grouped(s):
            note_divided(s, whole)
        log_q = allocate_sequentially(s, size, False, -math.inf)
        log_partner = log_choose_partner(s, prior, place, founder, halves[LEFT], counts[LEFT])
        log_selection = log_sequential_selection(s.n, s.n_clusters, counts[LEFT], counts[RIGHT], log_partner)
    log_target = log_target_ratio(s, prior, s.n_clusters, halves, counts, whole)
    return log_target + log_selection - log_q, place, size


@inlined
def unite_statistics(s, a, b, union):
    """Set the statistics of slot ``union`` to those of the rows of two others."""
    copy_statistics(s, a, union)
    merge(s, union, b)


@inlined
def log_apart(s, prior, a, b, union):
    """Log ratio of the joint densities with the rows of two slots apart, over that with them together.

    The statistics of both together are written to slot ``union``.
    """
    unite_statistics(s, a, b, union)
    return (
        log_split(prior, s.n_clusters - 1, s.sizes[a], s.sizes[b])
        + log_evidence(s, a)
        + log_evidence(s, b)
        - log_evidence(s, union)
    )


@inlined
def propose_merge(s, prior, kind, halves, counts, union, bound):
    """Propose to unite two clusters, the statistics of the union being in a free slot.

    Returns
    -------
    log_ratio : float
        Log of the acceptance ratio; minus infinity as soon as it is known to be below ``bound``.
    left_place, right_place, size : int
        Places of the clusters, and the rows of both, which are in ``pool[:size]``; ``side`` tells which.
    """
    n_clusters, members, bits = s.n_clusters, s.pool, s.bits
    if n_clusters == 1:
        return -math.inf, 0, 0, 0
    if kind == RANDOM:
        right_place = choose_small(s, False, -1)
        left_place = choose_small(s, False, right_place)
        size = s.sizes[s.order[left_place]] + s.sizes[s.order[right_place]]
        if size > s.most_divided:
            # The split that would undo it is never proposed.
            return -math.inf, left_place, right_place, 0
    else:
        right_place = below(bits, n_clusters)
        left_place = 0
    right = s.order[right_place]
    n_right = s.sizes[right]
    collect(s, right, members)
    log_partner = 0.0
    if kind == SEQUENTIAL:
        t = below(bits, n_right)
        members[0], members[t] = members[t], members[0]
        left_place, log_partner = choose_partner(s, prior, right_place, members[0])
        if left_place < 0:
            return -math.inf, 0, 0, n_right
    left = s.order[left_place]
    n_left = s.sizes[left]
    size = n_left + n_right
    unite_statistics(s, left, right, union)
    if are_grouped(s):
        # Whose rows are where is asked for at once.
        note_whole(s, left, right)
        collect(s, left, shifted(members, n_right))
        for t in range(size):
            s.side[t] = RIGHT if t < n_right else LEFT
    log_target = (
        log_prior_ratio(s, prior, n_clusters - 1, n_left, n_right, True)
        + log_evidence(s, left)
        + log_evidence(s, right)
        - log_evidence(s, union)
    )
    if kind == RANDOM:
        # The state that the split would start from: the pair's weights replaced by the union's.
        total = total_weight(s, False)
        others = total_weight(s, True) - _weight(s, n_left, True) - _weight(s, n_right, True)
        choose_whole = _weight(s, size, True) / (others + 1.0 / size)
        log_selection = log_choose_pair(total, n_left, n_right) - math.log(choose_whole)
        log_q = log_random_division(n_left, n_right)
    else:
        log_selection = log_sequential_selection(s.n, n_clusters - 1, n_left, n_right, log_partner)
        # log_q <= 0 decides alone from here on.
        bound += log_target + log_selection
        log_q = 0.0
        if bound > 0.0:
            return -math.inf, left_place, right_place, size
    collect(s, left, shifted(members, n_right))
    if kind == SEQUENTIAL:
        t = n_right + below(bits, n_left)
        members[1], members[t] = members[t], members[1]
        shuffle(bits, members, 2, size)
    for t in range(size):
        s.side[t] = RIGHT if s.slots[members[t]] == right else LEFT
    if kind == SEQUENTIAL:
        log_q = allocate_sequentially(s, size, True, bound)
    return log_q - log_target - log_selection, left_place, right_place, size


@inlined
def relink(s, size, half, slot):
    """Move the rows of one half of ``pool[:size]`` to a slot; return their number."""
    moved = 0
    for t in range(size):
        if s.side[t] == half:
            unlink(s, s.pool[t])
            link(s, s.pool[t], slot)
            moved += 1
    return moved


@inlined
def accept_split(s, place, size, halves):
    """Let a cluster divide as proposed; return the rows of the right half.

    The left half stays in the cluster's slot. The right one's is the first free one.
    """
    n_right = relink(s, size, RIGHT, halves[RIGHT])
    copy_statistics(s, halves[LEFT], s.order[place])
    if are_grouped(s):
        divide_accepted(s, s.order[place], halves[RIGHT])
    s.n_clusters += 1
    return n_right


@inlined
def accept_merge(s, left_place, right_place, size, union):
    """Let two clusters unite as proposed, in the left one's slot. Return the rows of the right one."""
    left = s.order[left_place]
    copy_statistics(s, union, left)
    n_right = relink(s, size, RIGHT, left)
    if are_grouped(s):
        unite_accepted(s, left, s.order[right_place])
    s.n_clusters -= 1
    swap_places(s, right_place, s.n_clusters)
    return n_right


@inlined
def _move(s, prior, kind):
    """Propose a split or a merge, with probability 1/2 each, and accept it as Metropolis and Hastings have it.

    Free slots hold the halves' statistics, and those of the union.
    """
    tally = tally_of_kind(s)
    n_clusters = s.n_clusters
    halves, union = s.halves, s.order[n_clusters + 2]
    halves[LEFT], halves[RIGHT] = s.order[n_clusters + 1], s.order[n_clusters]
    counts = s.half_sizes
    log_u = math.log(uniform(s.bits))
    if uniform(s.bits) < 0.5:
        tally[SPLITS_TRIED] += 1
        log_ratio, place, size = propose_split(s, prior, kind, halves, counts)
        if log_u < log_ratio:
            n_right = accept_split(s, place, size, halves)
            tally[SPLITS] += 1
            tally[SPLIT_ROWS] += min(n_right, size - n_right)
    else:
        tally[MERGES_TRIED] += 1
        log_ratio, left_place, right_place, size = propose_merge(s, prior, kind, halves, counts, union, log_u)
        if log_u < log_ratio:
            n_right = accept_merge(s, left_place, right_place, size, union)
            tally[MERGES] += 1
            tally[MERGED_ROWS] += min(n_right, size - n_right)
    tally[WORK] += size


@c_function(NOTHING(INTS))
def random_move(head):
    """Run a random move, which leaves the posterior of the partition invariant."""
    s = memory_at(head)
    _move(s, prior_of(s), RANDOM)


@c_function(NOTHING(INTS))
def sequential_move(head):
    """Run a sequential move, which leaves the posterior of the partition invariant."""
    s = memory_at(head)
    _move(s, prior_of(s), SEQUENTIAL)


RANDOM_MOVE = Move("random", random_move, beside_scans=1, beside_leaders=RANDOM_BESIDE_LEADERS)
# Only sequential moves unite clusters of thousands of rows. The more rows there are, the fewer of these moves are
# accepted, and soon they are not worth their time.
SEQUENTIAL_MOVE = Move(
    "sequential",
    sequential_move,
    beside_scans=Paying(1.5, 0.01, 1.0, 1.0),
    beside_leaders=Paying(1.0, 0.003, 2.0, 0.05),
)
