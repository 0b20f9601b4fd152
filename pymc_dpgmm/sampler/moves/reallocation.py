"""Reallocations: part of the rows of a cluster, and rows that could be its, are allocated anew at once.

In many columns a cluster can hold some rows that widen it, each of which fits it because of the others: they leave
together or not at all, while rows that would fit it without them stay outside. Moves of single rows and of whole
clusters do not get across. Here a random part of the rows of a cluster, its *core*, stays; the other rows are
*loose*. Loose rows first find other clusters, as if the cluster ended where its core does. Then loose rows and
others that are like the core, the *candidates*, choose one after the other whether they join it. With a core that
has few of the rows that widen it, these stay outside.

``docs/moves.md`` derives the ratio.
"""

import math

from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.compiled import INTS, NOTHING, c_function, inlined, shifted
from pymc_dpgmm.partitions.priors import log_seat, log_seat_new
from pymc_dpgmm.sampler.amounts import (
    CLUSTERS_FOR_CARVINGS,
    FEWEST_LOOSE,
    MOST_CANDIDATES,
    MOST_LOOSE,
    MOST_REALLOCATIONS,
    REALLOCATIONS_OF_SEARCH,
)
from pymc_dpgmm.sampler.moves.carving import keep_likest, n_doublings, weigh_likenesses
from pymc_dpgmm.sampler.moves.move import SPLIT_ROWS, SPLITS, SPLITS_TRIED, WORK, Move, Paying, tally_of_kind
from pymc_dpgmm.sampler.state.choices import accumulate, pick
from pymc_dpgmm.sampler.state.memory import N_CLUSTERS, memory_at, prior_of
from pymc_dpgmm.sampler.state.slots import collect, free_slot, join, leave, take_slot
from pymc_dpgmm.sampler.state.templates import WEIGHED_AT_ONCE
from pymc_dpgmm.sampler.state.views import change, copy_statistics, gather, weigh

# The share of the rows of a cluster that are loose, at most.
LARGEST_SHARE = 0.6
# Candidates join against all odds, or stay against all odds, so often in a move, on average.
AGAINST_ODDS = 0.5
# What ``listed`` tells, while rows go back to where they were, of a slot that had rows then: it has some still, or
# it has lost them all. Otherwise it is the slot that these have now.
IN_USE, LOST = -2, -1


@inlined
def share_of_loose(n_loose, size):
    """Return the probability with which a row of a cluster of ``size`` rows is loose: about ``n_loose`` are."""
    return min(LARGEST_SHARE, n_loose / size)


@inlined
def log_core(n_loose, size, n_core):
    """Return the log probability that some ``n_core`` rows of a cluster, one of them given, are its core."""
    share = share_of_loose(n_loose, size)
    return (n_core - 1) * math.log(1.0 - share) + (size - n_core) * math.log(share)


@inlined
def draw_core(s, k, founder, share):
    """Mark the core of slot ``k`` by 1 in ``side``, by rows, and write it to ``half_rows``; return its size.

    All rows of the slot are written to ``pool``.
    """
    n_core = 0
    for t in range(collect(s, k, s.pool)):
        i = s.pool[t]
        if i == founder or uniform(s.bits) >= share:
            s.side[i] = 1
            s.half_rows[n_core] = i
            n_core += 1
        else:
            s.side[i] = 0
    return n_core


@inlined
def find_candidates(s, core_slot, k, most):
    """Write the rows most like the core in slot ``core_slot`` to ``candidates``, the likest first.

    They are no rows of the core, which is that of slot ``k`` and marked in ``side``. How much row j is like the
    core B is log p(y_j | y_B) - log p(y_j).

    Returns
    -------
    int
        How many there are, at most ``most``.
    """
    rows = s.half_rows
    size = 0
    for first in range(0, s.n, WEIGHED_AT_ONCE):
        m = min(WEIGHED_AT_ONCE, s.n - first)
        for t in range(m):
            rows[t] = first + t
        weigh_likenesses(s, core_slot, rows, m)
        for t in range(m):
            row, likeness = rows[t], s.log_weights[t]
            is_core = s.slots[row] == k and s.side[row] == 1
            if not is_core and likeness > -math.inf:
                size = keep_likest(s.candidates, s.likenesses, size, most, row, likeness)
    return size


@inlined
def find_places(s, prior, k, rows, n_rows, origins, forced):
    """Let ``rows[:n_rows]``, the last one first, leave slot ``k``, whose core stays, for other clusters.

    Each joins another cluster, or opens one, with the weights of a scan.

    Parameters
    ----------
    origins : pointer
        Slots that the rows go back to if ``forced``; ``listed`` tells what has become of these.

    Returns
    -------
    log_q : float
        Log probability of the outcome; minus infinity if a row cannot be anywhere else. Some rows may then still
        be in slot ``k``.
    log_gain : float
        By how much the log density of the partition has grown.
    """
    weights = s.log_weights
    log_q, log_gain = 0.0, 0.0
    for t in range(n_rows - 1, -1, -1):
        i = rows[t]
        leave(s, i)
        n_clusters = s.head[N_CLUSTERS]
        for place in range(n_clusters):
            weights[place] = log_seat(prior, s.sizes[s.order[place]])
        weigh(s, i, s.order, n_clusters, -1, weights)
        log_left = weights[s.place[k]]
        weights[s.place[k]] = -math.inf
        weights[n_clusters] = log_seat_new(prior, n_clusters) + s.prior_predictive[i]
        for place in range(n_clusters + 1):
            s.cumulative[place] = weights[place]
        largest = accumulate(s, s.cumulative, n_clusters + 1)
        if largest == -math.inf:
            join(s, i, k)
            return -math.inf, log_gain
        if forced:
            now = s.listed[origins[t]]
            chosen = n_clusters if now == LOST else s.place[origins[t] if now == IN_USE else now]
        else:
            chosen = pick(uniform(s.bits), s.cumulative, n_clusters + 1, 1)
        log_q += weights[chosen] - largest - math.log(s.cumulative[n_clusters])
        log_gain += weights[chosen] - log_left
        target = s.order[chosen]
        if chosen == n_clusters:
            take_slot(s)
            if forced:
                s.listed[origins[t]] = target
        join(s, i, target)
    return log_q, log_gain


@inlined
def weigh_stays(s, prior, n_candidates):
    """Set ``likenesses`` to the log weights with which candidates stay where they are, beside all other rows."""
    weights = s.log_weights
    for t in range(n_candidates):
        i = s.candidates[t]
        own = s.slots[i]
        s.listed[0] = own
        if s.sizes[own] == 1:
            weights[0] = log_seat_new(prior, s.head[N_CLUSTERS] - 1) + s.prior_predictive[i]
        else:
            weights[0] = log_seat(prior, s.sizes[own] - 1)
            weigh(s, i, s.listed, 1, own, weights)
            if math.isnan(weights[0]):
                # Without the row, too few digits are left; any weight will do, if it is the same again.
                weights[0] = log_seat(prior, s.sizes[own])
                weigh(s, i, s.listed, 1, -1, weights)
        s.likenesses[t] = weights[0]


@inlined
def choose_sides(s, prior, k, spare, n_candidates, forced):
    """Let candidates join the core, which is all that slot ``k`` has, or stay where they are.

    Nothing moves: ``side`` has 1 for those that join, by candidates, and tells it if ``forced``. How much they
    weigh where they are is in ``likenesses``.

    Returns
    -------
    float
        Log probability of the choices.
    """
    weights = s.log_weights
    copy_statistics(s, k, spare)
    s.listed[0] = spare
    size = s.sizes[k]
    floor = AGAINST_ODDS / (n_candidates + 1.0)
    log_q = 0.0
    for t in range(n_candidates):
        i = s.candidates[t]
        weights[0] = log_seat(prior, size)
        weigh(s, i, s.listed, 1, -1, weights)
        joins = 0.0
        if weights[0] > -math.inf:
            joins = floor + (1.0 - 2.0 * floor) / (1.0 + math.exp(s.likenesses[t] - weights[0]))
        if not forced:
            s.side[t] = 1 if uniform(s.bits) < joins else 0
        if s.side[t] == 1:
            log_q += math.log(joins)
            change(s, i, spare, 1.0)
            size += 1
        else:
            log_q += math.log(1.0 - joins)
    return log_q


@inlined
def bring(s, rows, n_rows, k):
    """Let rows leave their clusters for slot ``k``."""
    for t in range(n_rows):
        i = rows[t]
        own = s.slots[i]
        if own == k:
            continue
        leave(s, i)
        if s.sizes[own] == 0:
            free_slot(s, own)
        join(s, i, k)


@inlined
def count_changes(rows, n_rows, others, n_others):
    """Return how many rows are in one list only."""
    n_both = 0
    for t in range(n_rows):
        for u in range(n_others):
            n_both += rows[t] == others[u]
    return n_rows + n_others - 2 * n_both


@inlined
def log_reallocation(log_gain, log_back, log_there, log_core_ratio):
    """Log of the acceptance ratio.

    Parameters
    ----------
    log_gain : float
        Of the log density of the partition.
    log_back, log_there : float
        Log probabilities of the choices of the way back and of the way there.
    log_core_ratio : float
        Log ratio of the probabilities of the core after and before.
    """
    return log_gain + log_back - log_there + log_core_ratio


@inlined
def move(s, prior, n_loose, most):
    """Propose a reallocation with about ``n_loose`` loose rows and up to ``most`` candidates; accept it or not."""
    head, tally = s.head, tally_of_kind(s)
    origins = shifted(s.candidates, MOST_CANDIDATES)
    tally[SPLITS_TRIED] += 1
    log_u = math.log(1.0 - uniform(s.bits))
    founder = below(s.bits, s.n)
    k = s.slots[founder]
    size_before = s.sizes[k]
    n_core = draw_core(s, k, founder, share_of_loose(n_loose, size_before))
    core_slot = s.order[head[N_CLUSTERS]]
    gather(s, core_slot, s.half_rows, n_core, 1)
    n_candidates = find_candidates(s, core_slot, k, most)
    # Loose rows that are no candidates stay, with the core.
    loose, n_before = s.pool, 0
    for t in range(n_candidates):
        i = s.candidates[t]
        s.side[t] = 1 if s.slots[i] == k else 0
        if s.side[t] == 1:
            loose[n_before] = i
            n_before += 1
    tally[WORK] += s.n + 4 * n_candidates + 2 * n_before * head[N_CLUSTERS]
    if n_before > MOST_LOOSE:
        return
    log_there, log_gain = find_places(s, prior, k, loose, n_before, origins, False)
    if log_there == -math.inf:
        bring(s, loose, n_before, k)
        return
    spare = s.order[head[N_CLUSTERS]]
    weigh_stays(s, prior, n_candidates)
    log_back = choose_sides(s, prior, k, spare, n_candidates, True)
    log_there += choose_sides(s, prior, k, spare, n_candidates, False)
    joined, n_after = s.half_rows, 0
    for t in range(n_candidates):
        if s.side[t] == 1:
            joined[n_after] = s.candidates[t]
            n_after += 1
    n_changed = count_changes(loose, n_before, joined, n_after)
    if n_changed == 0 or n_after > MOST_LOOSE:
        bring(s, loose, n_before, k)
        return
    for t in range(n_after):
        origins[t] = s.slots[joined[t]]
    bring(s, joined, n_after, k)
    for t in range(n_after):
        s.listed[origins[t]] = IN_USE if s.place[origins[t]] < head[N_CLUSTERS] else LOST
    log_returns, log_loss = find_places(s, prior, k, joined, n_after, origins, True)
    size_after = size_before - n_before + n_after
    log_core_ratio = log_core(n_loose, size_after, n_core) - log_core(n_loose, size_before, n_core)
    log_ratio = log_reallocation(log_gain - log_loss, log_back + log_returns, log_there, log_core_ratio)
    if not log_u < log_ratio:
        bring(s, loose, n_before, k)
        return
    bring(s, joined, n_after, k)
    tally[SPLITS] += 1
    tally[SPLIT_ROWS] += n_changed


SIZES = 1 + n_doublings(FEWEST_LOOSE, MOST_LOOSE // 2)


@c_function(NOTHING(INTS))
def reallocate(head):
    """Run a reallocation, which leaves the posterior of the partition invariant."""
    s = memory_at(head)
    move(s, prior_of(s), FEWEST_LOOSE << below(s.bits, SIZES), MOST_CANDIDATES)


REALLOCATION = Move(
    "reallocation",
    reallocate,
    beside_scans=Paying(0.5, 0.01, 1.0, 0.1, MOST_REALLOCATIONS, CLUSTERS_FOR_CARVINGS),
    beside_leaders=0,
    in_search=REALLOCATIONS_OF_SEARCH,
    in_groups=False,
    # Clusters that loose rows open, and one to work with.
    slots=MOST_LOOSE + 2,
    counts={"tried": SPLITS_TRIED, "accepted": SPLITS},
    means={"size": (SPLIT_ROWS, SPLITS)},
)
