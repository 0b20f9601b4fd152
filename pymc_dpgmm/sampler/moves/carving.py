"""Carvings: a small cluster leaves a large one, or returns to it.

A split that divides all rows of a large cluster costs more, and succeeds less often, the more rows there are. Here
only some rows of the cluster may leave it: the *candidates*. A row founds the new cluster; each candidate joins
it or stays, given the candidates that have joined before. Two ways to choose candidates share what is here: among
many rows they are drawn at random (:mod:`pymc_dpgmm.sampler.many_rows.drawn_carving`), and beside scans of all
rows they are those most like the founder.

``CARVING``
    How much row j is like the founder i is the log Bayes factor log p(y_j | y_i) - log p(y_j) of one cluster of
    both against two. It does not depend on the partition. So the cluster that a carving divides, and the union
    that a return makes of the same rows, give the same candidates. Small clusters of rows that are like each other
    come and go beside a large one in this way. A scan hardly brings that about, since their rows would have to
    leave one by one.

``docs/moves.md`` derives the ratios.
"""

import math

import numpy as np

from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.compiled import INTS, NOTHING, c_function, inlined
from pymc_dpgmm.sampler.amounts import CLUSTERS_FOR_CARVINGS, LEAST_CARVED, MOST_CARVED, MOST_CARVINGS
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
from pymc_dpgmm.sampler.moves.split_merge import (
    LEFT,
    ONE_BY_ONE,
    RIGHT,
    accept_merge,
    accept_split,
    allocate_rows,
    choose_partner,
    gather_half,
    log_apart,
    log_choose_partner,
    log_target_ratio,
)
from pymc_dpgmm.sampler.state.memory import memory_at, prior_of
from pymc_dpgmm.sampler.state.slots import collect, gather_all_of, link, unlink
from pymc_dpgmm.sampler.state.templates import WEIGHED_AT_ONCE
from pymc_dpgmm.sampler.state.views import change, copy_statistics, gather, weigh_rows

# Likenesses are compared in units of this many nats, so that rounding does not tell rows apart that are the same.
RESOLUTION = 2.0**-20


@inlined
def allocate_candidates(s, prior, size, whole, forced, bound):
    """Let the rows ``pool[1:size]`` stay, or join the cluster that ``pool[0]`` founds in slot ``halves[RIGHT]``.

    A row stays with the predictive density of the undivided cluster, in slot ``whole``, and with the seat of a
    cluster of the candidates that have stayed so far, and one more. The first candidates choose one by one, the
    others in blocks, as in :func:`~pymc_dpgmm.sampler.moves.split_merge.allocate_sequentially`.

    Returns
    -------
    float
        Log probability of the outcome; of the given ``side`` if ``forced``. Minus infinity if it is below
        ``bound``; the statistics are then unfinished. ``halves`` tells how many have joined.
    """
    halves, counts = s.halves, s.half_sizes
    left = halves[LEFT]
    halves[LEFT] = whole
    s.side[0] = RIGHT
    gather(s, halves[RIGHT], s.pool, 1, 1)
    counts[LEFT], counts[RIGHT] = 1, 1
    log_q = 0.0
    start = 1
    while start < size and log_q >= bound:
        stop = start + 1 if start < ONE_BY_ONE else min(size, 2 * start)
        log_q += allocate_rows(s, prior, start, stop, halves, counts, forced)
        joined = gather_half(s, start, stop, RIGHT, halves[RIGHT], 0)
        counts[RIGHT] += joined
        counts[LEFT] += stop - start - joined
        start = stop
    halves[LEFT] = left
    return log_q if log_q >= bound else -math.inf


@inlined
def set_remainder(s, size, whole, slot):
    """Let slot ``slot`` stand for the rows of slot ``whole`` but those on the right side among ``pool[:size]``."""
    copy_statistics(s, whole, slot)
    lost = False
    for t in range(size):
        if s.side[t] == RIGHT and change(s, s.pool[t], slot, -1.0):
            lost = True
    if not lost:
        return
    # Rounding has made the difference useless: the rows are gathered anew.
    for t in range(size):
        if s.side[t] == RIGHT:
            unlink(s, s.pool[t])
    gather_all_of(s, whole, slot)
    for t in range(size):
        if s.side[t] == RIGHT:
            link(s, s.pool[t], whole)


@inlined
def count_small(s, most):
    """Return the number of clusters of ``most`` rows or fewer."""
    found = 0
    for place in range(s.n_clusters):
        found += s.sizes[s.order[place]] <= most
    return found


@inlined
def choose_small(s, most, n_small):
    """Draw the place of one of the ``n_small`` clusters of ``most`` rows or fewer."""
    left = below(s.bits, n_small)
    place = 0
    while left > 0 or s.sizes[s.order[place]] > most:
        left -= s.sizes[s.order[place]] <= most
        place += 1
    return place


@inlined
def log_carving_selection(n, n_small, n_right, share, log_partner):
    """Log ratio of the selections: of the return, over that of the carving that it undoes.

    A carving chooses its founder among all n rows, and each other row of the founder's cluster for a candidate
    with probability ``share``. A return chooses one of the ``n_small`` small clusters, its founder among its
    ``n_right`` rows, the cluster that it returns to with probability exp(``log_partner``), and candidates there:
    they and the rows that return are the candidates of the carving.
    """
    return math.log(n) - math.log(n_small) - math.log(n_right) + log_partner + (1.0 - n_right) * math.log(share)


@inlined
def log_carving_ratio(s, prior, n_rows, founder, size, most, share):
    """Propose that some of the candidates ``pool[1:size]`` leave their cluster with ``founder``, at ``pool[0]``.

    Returns the log of the acceptance ratio. The statistics of both clusters are then in the two free slots
    ``halves``; ``share`` is the probability with which a row is a candidate.
    """
    halves, counts = s.halves, s.half_sizes
    whole = s.slots[founder]
    n_whole, place = s.sizes[whole], s.place[whole]
    log_q = allocate_candidates(s, prior, size, whole, False, -math.inf)
    n_right = counts[RIGHT]
    n_left = n_whole - n_right
    if n_right > most or n_left == 0:
        return -math.inf
    set_remainder(s, size, whole, halves[LEFT])
    log_partner = log_choose_partner(s, prior, place, founder, halves[LEFT], n_left)
    # As many as there are once the cluster is divided.
    n_small = count_small(s, most) - (n_whole <= most) + 1 + (n_left <= most)
    counts[LEFT] = n_left
    log_target = log_target_ratio(s, prior, s.n_clusters, halves, counts, whole)
    return log_target + log_carving_selection(n_rows, n_small, n_right, share, log_partner) - log_q


@inlined
def choose_return(s, prior, most):
    """Draw one of the clusters of up to ``most`` rows, its founder, and the cluster that it returns to.

    Returns
    -------
    n_small : int
        How many clusters of so few rows there are.
    left_place, right_place : int
        Places of that cluster, -1 if there is none, and of the small one, whose rows are in ``pool``, the founder
        first.
    log_partner : float
        Log probability of that cluster.
    """
    n_small = count_small(s, most)
    if s.n_clusters == 1 or n_small == 0:
        return n_small, -1, 0, 0.0
    right_place = choose_small(s, most, n_small)
    n_right = collect(s, s.order[right_place], s.pool)
    t = below(s.bits, n_right)
    s.pool[0], s.pool[t] = s.pool[t], s.pool[0]
    left_place, log_partner = choose_partner(s, prior, right_place, s.pool[0])
    return n_small, left_place, right_place, log_partner


@inlined
def log_carving_undone(s, prior, n_rows, left, right, union, n_small, share, log_partner):
    """Return the log of the acceptance ratio of the carving that a return undoes, but for the candidates' choices.

    The statistics of both clusters together are written to slot ``union``.
    """
    log_selection = log_carving_selection(n_rows, n_small, s.sizes[right], share, log_partner)
    return log_apart(s, prior, left, right, union) + log_selection


@inlined
def log_choices_of(s, prior, size, right, union, bound):
    """Return the log probability that of the candidates ``pool[1:size]`` those in slot ``right`` join the founder.

    It is minus infinity as soon as it is known to be below ``bound``. ``side`` tells where they are.
    """
    for t in range(size):
        s.side[t] = RIGHT if s.slots[s.pool[t]] == right else LEFT
    return allocate_candidates(s, prior, size, union, True, bound)


@inlined
def is_before(likeness, i, other, j):
    """Tell whether row ``i`` is before row ``j`` in the order of their likenesses."""
    return likeness > other or (likeness == other and i < j)


@inlined
def weigh_likenesses(s, slot, rows, m):
    """Set ``log_weights[:m]`` to how much each of up to ``WEIGHED_AT_ONCE`` rows is like those of a slot.

    That of row j is log p(y_j | y of the slot) - log p(y_j), in units of ``RESOLUTION``.
    """
    weights = s.log_weights
    s.listed[0] = slot
    for t in range(m):
        s.owns[t] = -1
        weights[t] = 0.0
    weigh_rows(s, rows, m, s.listed, 1, s.owns, WEIGHED_AT_ONCE, weights)
    for t in range(m):
        weights[t] = np.floor((weights[t] - s.prior_predictive[rows[t]]) / RESOLUTION + 0.5)
        if math.isnan(weights[t]):
            # The row is impossible in a cluster of its own, too.
            weights[t] = -math.inf


@inlined
def keep_likest(rows, likenesses, size, most, row, likeness):
    """Let a row be among ``rows[:size]``, the likest first, of which ``most`` are kept; return their number."""
    if size == most and not is_before(likeness, row, likenesses[size - 1], rows[size - 1]):
        return size
    place = min(size, most - 1)
    while place > 0 and is_before(likeness, row, likenesses[place - 1], rows[place - 1]):
        rows[place], likenesses[place] = rows[place - 1], likenesses[place - 1]
        place -= 1
    rows[place], likenesses[place] = row, likeness
    return min(size + 1, most)


@inlined
def add_likest(s, k, founder_slot, size, most):
    """Let rows of slot ``k`` be among ``pool[1:size]``, where at most ``most`` are kept, the founder among them.

    They are in the order of how much they are like the founder ``pool[0]``, who is alone in slot ``founder_slot``.

    Returns
    -------
    int
        How many there are now, with the founder.
    """
    rows = s.half_rows
    # No row is before the founder.
    s.likenesses[0] = math.inf
    i = s.following[s.n + k]
    left = s.sizes[k]
    while left > 0:
        m = min(left, WEIGHED_AT_ONCE)
        left -= m
        for t in range(m):
            rows[t] = i
            i = s.following[i]
        weigh_likenesses(s, founder_slot, rows, m)
        for t in range(m):
            if rows[t] != s.pool[0]:
                size = keep_likest(s.pool, s.likenesses, size, most, rows[t], s.log_weights[t])
    return size


@inlined
def propose_carving(s, prior, founder, most):
    """Propose that up to ``most`` rows leave their cluster with ``founder``.

    Returns
    -------
    log_ratio : float
        Log of the acceptance ratio.
    size : int
        The number of candidates and the founder, which are in ``pool[:size]``.
    """
    whole, slot = s.slots[founder], s.halves[RIGHT]
    if s.sizes[whole] == 1:
        return -math.inf, 0
    s.pool[0] = founder
    gather(s, slot, s.pool, 1, 1)
    size = add_likest(s, whole, slot, 1, most)
    return log_carving_ratio(s, prior, s.n, founder, size, most, 1.0), size


@inlined
def propose_return(s, prior, most, union, bound):
    """Propose that a cluster of up to ``most`` rows returns to another, the union being in a free slot.

    Returns
    -------
    log_ratio : float
        Log of the acceptance ratio; minus infinity as soon as it is known to be below ``bound``.
    left_place, right_place, size : int
        Places of the two clusters, and the number of candidates and the founder, which are in ``pool[:size]``.
    """
    n_small, left_place, right_place, log_partner = choose_return(s, prior, most)
    if left_place < 0:
        return -math.inf, 0, 0, 0
    left, right, slot = s.order[left_place], s.order[right_place], s.halves[RIGHT]
    log_others = log_carving_undone(s, prior, s.n, left, right, union, n_small, 1.0, log_partner)
    # The candidates' choices have a probability, which decides alone from here on.
    bound += log_others
    if bound > 0.0:
        return -math.inf, left_place, right_place, 0
    gather(s, slot, s.pool, 1, 1)
    size = add_likest(s, right, slot, 1, most)
    size = add_likest(s, left, slot, size, most)
    found = 0
    for t in range(size):
        found += s.slots[s.pool[t]] == right
    if found < s.sizes[right]:
        # No carving has others than candidates leave.
        return -math.inf, left_place, right_place, size
    log_q = log_choices_of(s, prior, size, right, union, bound)
    return log_q - log_others, left_place, right_place, size


@inlined
def move(s, prior, least, doublings):
    """Propose a carving or a return, with probability 1/2 each, and accept it as Metropolis and Hastings have it.

    A carved-out cluster has up to ``least`` rows, or twice, ... as many, with so many ``doublings``.
    """
    tally = tally_of_kind(s)
    n_clusters = s.n_clusters
    halves, union = s.halves, s.order[n_clusters + 2]
    halves[LEFT], halves[RIGHT] = s.order[n_clusters + 1], s.order[n_clusters]
    most = least << below(s.bits, doublings + 1)
    log_u = math.log(1.0 - uniform(s.bits))
    if uniform(s.bits) < 0.5:
        tally[SPLITS_TRIED] += 1
        founder = below(s.bits, s.n)
        place = s.place[s.slots[founder]]
        tally[WORK] += s.sizes[s.order[place]]
        log_ratio, size = propose_carving(s, prior, founder, most)
        if log_u < log_ratio:
            tally[SPLIT_ROWS] += accept_split(s, place, size, halves)
            tally[SPLITS] += 1
    else:
        tally[MERGES_TRIED] += 1
        log_ratio, left_place, right_place, size = propose_return(s, prior, most, union, log_u)
        if size > 0:
            tally[WORK] += s.sizes[s.order[left_place]] + s.sizes[s.order[right_place]]
        if log_u < log_ratio:
            tally[MERGED_ROWS] += accept_merge(s, left_place, right_place, size, union)
            tally[MERGES] += 1


def n_doublings(least: int, most: int) -> int:
    """Return how often ``least`` doubles without exceeding ``most``."""
    return (most // least).bit_length() - 1


DOUBLINGS = n_doublings(LEAST_CARVED, MOST_CARVED)


@c_function(NOTHING(INTS))
def carve(head):
    """Run a carving or a return, which leaves the posterior of the partition invariant."""
    s = memory_at(head)
    move(s, prior_of(s), LEAST_CARVED, DOUBLINGS)


# Beside leader sweeps, candidates are drawn at random: see ``many_rows/drawn_carving.py``.
CARVING = Move(
    "carving",
    carve,
    beside_scans=Paying(0.1, 0.01, 2.0, 0.1, MOST_CARVINGS, CLUSTERS_FOR_CARVINGS),
    beside_leaders=0,
    in_search=MOST_CARVINGS,
    in_groups=False,
)
