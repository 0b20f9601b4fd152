"""Carvings: a small cluster leaves a large one, or returns to it.

A split that divides all rows of a large cluster costs more, and succeeds less often, the more rows there are. Here
only some rows of the cluster may leave it: the *candidates*. A row founds the new cluster; each candidate joins
it or stays, given the candidates that have joined before. Among many rows candidates are drawn at random; beside
scans of all rows they are those most like the founder: :mod:`pymc_dpgmm.sampler.moves.candidates`.

``CARVING``
    How much row j is like the founder i is the log Bayes factor log p(y_j | y_i) - log p(y_j) of one cluster of
    both against two. It does not depend on the partition. So the cluster that a carving divides, and the union
    that a return makes of the same rows, give the same candidates. Small clusters of rows that are like each other
    come and go beside a large one in this way. A scan hardly brings that about, since their rows would have to
    leave one by one.

``docs/moves.md`` derives the ratios.
"""

import math

from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.compiled import INTS, NOTHING, c_function, inlined
from pymc_dpgmm.partitions.priors import log_split
from pymc_dpgmm.sampler.amounts import CLUSTERS_FOR_CARVINGS, LEAST_CARVED, MOST_CARVED, MOST_CARVINGS
from pymc_dpgmm.sampler.moves.candidates import (
    choose_leaving,
    choose_returning,
    draw_all_but_founder,
    draw_anew,
    share_of_candidates,
)
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
)
from pymc_dpgmm.sampler.state.memory import memory_at, prior_of
from pymc_dpgmm.sampler.state.slots import collect, gather_all_of, link, unlink
from pymc_dpgmm.sampler.state.views import change, copy_statistics, gather, log_evidence


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
        ``bound``; the statistics are then unfinished, as they are without candidates. ``half_sizes`` tells how
        many have joined.
    """
    halves, counts = s.halves, s.half_sizes
    left = halves[LEFT]
    halves[LEFT] = whole
    s.side[0] = RIGHT
    if size > 1:
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
    log_candidates = 0.0 if n_right == 1 else (n_right - 1.0) * math.log(share)
    return math.log(n) - math.log(n_small) - math.log(n_right) + log_partner - log_candidates


@inlined
def log_carving_ratio(s, prior, n_rows, founder, size, most, share, bound):
    """Propose that some of the candidates ``pool[1:size]`` leave their cluster with ``founder``, at ``pool[0]``.

    Returns the log of the acceptance ratio, minus infinity as soon as it is known to be below ``bound``. The
    statistics of both clusters are then in the two free slots ``halves``, but for a founder without candidates;
    ``share`` is the probability with which a row is a candidate.
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
    # As many as there are once the cluster is divided.
    n_small = count_small(s, most) - (n_whole <= most) + 1 + (n_left <= most)
    log_right = log_evidence(s, halves[RIGHT]) if size > 1 else s.prior_predictive[founder]
    log_ratio = log_right + log_evidence(s, halves[LEFT]) - log_evidence(s, whole) - log_q
    log_ratio += log_split(prior, s.n_clusters, n_left, n_right)
    log_ratio += log_carving_selection(n_rows, n_small, n_right, share, 0.0)
    # The partner's choice has a probability, too.
    if log_ratio < bound:
        return -math.inf
    return log_ratio + log_choose_partner(s, prior, place, founder, halves[LEFT], n_left)


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
def propose_carving(s, prior, drawn, n_rows, founder, most, bound):
    """Propose that up to ``most`` of all ``n_rows`` rows leave their cluster with ``founder``, in two free slots.

    Returns
    -------
    log_ratio : float
        Log of the acceptance ratio; minus infinity as soon as it is known to be below ``bound``.
    size : int
        The number of candidates and the founder, which are in ``pool[:size]``.
    """
    whole = s.slots[founder]
    if s.sizes[whole] == 1:
        return -math.inf, 0
    share = share_of_candidates(drawn, most, s.sizes[whole])
    s.pool[0] = founder
    size = choose_leaving(s, drawn, whole, share, most)
    return log_carving_ratio(s, prior, n_rows, founder, size, most, share, bound), size


@inlined
def propose_return(s, prior, drawn, n_rows, most, union, bound):
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
    left, right = s.order[left_place], s.order[right_place]
    share = share_of_candidates(drawn, most, s.sizes[left] + s.sizes[right])
    log_others = log_carving_undone(s, prior, n_rows, left, right, union, n_small, share, log_partner)
    # The candidates' choices have a probability, which decides alone from here on.
    bound += log_others
    if bound > 0.0:
        return -math.inf, left_place, right_place, 0
    size, are_all = choose_returning(s, drawn, left, right, share, most)
    if not are_all:
        return -math.inf, left_place, right_place, size
    return log_choices_of(s, prior, size, right, union, bound) - log_others, left_place, right_place, size


@inlined
def carve_once(s, prior, drawn, n_rows, founder, most):
    """Propose a carving with ``founder``, or a return if it is -1; accept it as Metropolis and Hastings have it.

    Returns
    -------
    n_moved, n_visited : int
        Rows that have left or returned, and rows of the clusters in which candidates were looked for.
    """
    n_clusters = s.n_clusters
    halves, union = s.halves, s.order[n_clusters + 2]
    halves[LEFT], halves[RIGHT] = s.order[n_clusters + 1], s.order[n_clusters]
    log_u = math.log(1.0 - uniform(s.bits))
    n_moved = 0
    if founder >= 0:
        place = s.place[s.slots[founder]]
        n_visited = s.sizes[s.order[place]]
        log_ratio, size = propose_carving(s, prior, drawn, n_rows, founder, most, log_u)
        if log_u < log_ratio:
            if drawn is not None:
                draw_anew(s, drawn, size)
            if size == 1:
                gather(s, halves[RIGHT], s.pool, 1, 1)
            n_moved = accept_split(s, place, size, halves)
    else:
        log_ratio, left_place, right_place, size = propose_return(s, prior, drawn, n_rows, most, union, log_u)
        n_visited = 0
        if size > 0:
            n_visited = s.sizes[s.order[left_place]] + s.sizes[s.order[right_place]]
        if log_u < log_ratio:
            if drawn is not None:
                draw_all_but_founder(s, drawn, size)
            n_moved = accept_merge(s, left_place, right_place, size, union)
    return n_moved, n_visited


def n_doublings(least: int, most: int) -> int:
    """Return how often ``least`` doubles without exceeding ``most``."""
    return (most // least).bit_length() - 1


DOUBLINGS = n_doublings(LEAST_CARVED, MOST_CARVED)


@c_function(NOTHING(INTS))
def carve(head):
    """Run a carving or a return, which leaves the posterior of the partition invariant."""
    s = memory_at(head)
    most = LEAST_CARVED << below(s.bits, DOUBLINGS + 1)
    is_carving = uniform(s.bits) < 0.5
    founder = below(s.bits, s.n) if is_carving else -1
    n_moved, n_visited = carve_once(s, prior_of(s), None, s.n, founder, most)
    tally = tally_of_kind(s)
    tally[WORK] += n_visited
    if is_carving:
        tally[SPLITS_TRIED] += 1
        tally[SPLITS] += n_moved > 0
        tally[SPLIT_ROWS] += n_moved
    else:
        tally[MERGES_TRIED] += 1
        tally[MERGES] += n_moved > 0
        tally[MERGED_ROWS] += n_moved


# Beside leader sweeps there are those of ``many_rows/drawn_carving.py``.
CARVING = Move(
    "carving",
    carve,
    beside_scans=Paying(0.1, 0.01, 2.0, 0.1, MOST_CARVINGS, CLUSTERS_FOR_CARVINGS),
    beside_leaders=0,
    in_search=MOST_CARVINGS,
    in_groups=False,
)
