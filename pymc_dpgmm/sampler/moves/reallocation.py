"""Reallocations: rows that are like each other stay together, and rows around them are allocated anew at once.

In many columns a cluster can hold some rows that widen it, each of which fits it because of the others: they leave
together or not at all, while rows that would fit it without them stay outside. Or a large cluster hides a smaller
one, some of whose rows are elsewhere. Moves of single rows and of whole clusters do not get across.

A reallocation has a *guide*, a set of rows that does not depend on the partition: the rows most like a row, the
*founder*, or a cluster that a search has seen. Of the founder's cluster, the rows that are in the guide are the
*core*, but for a random part of them. A move has two halves. In the first one the core comes to be a cluster of
its own:

- its other rows, which are *loose*, find other clusters, one after the other, as if the cluster ended where its
  core does; or
- the core leaves, and the others stay.

In the second half

- rows that are like the core, the *candidates*, choose one after the other whether they join it; or
- the core joins another cluster.

Candidates join against all odds with a small probability, or stay against all odds: rows that fit each other
alone, or not at all, have to choose what does not yet fit.

Each half undoes one of the other half. ``docs/moves.md`` derives the ratio.
"""

import math

from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.compiled import INTS, NOTHING, c_function, inlined, shifted
from pymc_dpgmm.partitions.priors import log_seat, log_seat_new
from pymc_dpgmm.sampler.amounts import (
    CLUSTERS_FOR_CARVINGS,
    LEAST_GUIDE,
    MOST_CANDIDATES,
    MOST_GUIDE,
    MOST_LOOSE,
    MOST_REALLOCATIONS,
    REALLOCATIONS_OF_SEARCH,
)
from pymc_dpgmm.sampler.moves.candidates import keep_likest, weigh_likenesses
from pymc_dpgmm.sampler.moves.carving import n_doublings
from pymc_dpgmm.sampler.moves.move import SPLIT_ROWS, SPLITS, SPLITS_TRIED, WORK, Move, Paying, tally_of_kind
from pymc_dpgmm.sampler.moves.split_merge import log_apart, weigh_partners
from pymc_dpgmm.sampler.state.choices import accumulate, pick
from pymc_dpgmm.sampler.state.memory import memory_at, prior_of
from pymc_dpgmm.sampler.state.slots import collect, free_slot, join, leave, take_slot
from pymc_dpgmm.sampler.state.templates import WEIGHED_AT_ONCE
from pymc_dpgmm.sampler.state.views import change, copy_statistics, gather, weigh

# Rows of the guide are no core, with one of these probabilities for all rows of a move.
FEW_MISSING, MANY_MISSING = 0.15, 0.6
# Candidates join against all odds, or stay against all odds, so often in a move, on average.
AGAINST_ODDS = 0.5
# What ``listed`` tells, while rows go back to where they were, of a slot that had rows then: it has some still, or
# it has lost them all. Otherwise it is the slot that these have now.
IN_USE, LOST = -2, -1


@inlined
def find_likest(s, slot, most):
    """Write the rows most like those of a slot to ``candidates``, the likest first; not those in ``side``.

    How much row j is like the rows B is log p(y_j | y_B) - log p(y_j).

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
        weigh_likenesses(s, slot, rows, m)
        for t in range(m):
            if s.side[rows[t]] == 0 and s.log_weights[t] > -math.inf:
                size = keep_likest(s.candidates, s.likenesses, size, most, rows[t], s.log_weights[t])
    return size


@inlined
def mark(marks, n, rows, n_rows):
    """Set ``marks[:n]`` to 1 for some rows, and to 0 for all others."""
    for i in range(n):
        marks[i] = 0
    for t in range(n_rows):
        marks[rows[t]] = 1


@inlined
def mark_neighbours(s, founder, most):
    """Let the guide be the founder and the rows most like it, up to ``most``; ``guided`` tells which these are."""
    slot = s.order[s.n_clusters]
    s.pool[0] = founder
    gather(s, slot, s.pool, 1, 1)
    mark(s.side, s.n, s.pool, 1)
    mark(s.guided, s.n, s.candidates, find_likest(s, slot, most))
    s.guided[founder] = 1


@inlined
def mark_set(s, g):
    """Let the guide be set ``g``; draw one of its rows, and return it."""
    first = s.guide_starts[g]
    size = s.guide_starts[g + 1] - first
    mark(s.guided, s.n, shifted(s.guides, first), size)
    return s.guides[first + below(s.bits, size)]


@inlined
def draw_core(s, k, founder, missing):
    """Mark the core of slot ``k`` by 1 in ``side``, by rows, and write it to ``half_rows``; return its size.

    It is the founder, and of the guided rows all but a share ``missing``, on average. All rows of the slot are
    written to ``pool``.
    """
    n_core = 0
    for t in range(collect(s, k, s.pool)):
        i = s.pool[t]
        if i == founder or (s.guided[i] == 1 and uniform(s.bits) >= missing):
            s.half_rows[n_core] = i
            n_core += 1
    mark(s.side, s.n, s.half_rows, n_core)
    return n_core


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
        n_clusters = s.n_clusters
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
            weights[0] = log_seat_new(prior, s.n_clusters - 1) + s.prior_predictive[i]
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
def count_guided(s, rows, n_rows):
    """Return how many of some rows are guided."""
    n_guided = 0
    for t in range(n_rows):
        n_guided += s.guided[rows[t]]
    return n_guided


@inlined
def count_guided_of(s, k):
    """Return how many rows of slot ``k`` are guided."""
    return count_guided(s, s.gathered, collect(s, k, s.gathered))


@inlined
def log_way_back(s, prior, k, joined, n_joined, origins):
    """Let rows join slot ``k``, and find the places again that they have come from.

    Of slots that lose all rows, the last one freed is the first one taken again: in the end all are as they were.

    Returns
    -------
    log_q : float
        Log probability that loose rows find these places.
    log_gain : float
        By how much the log density of the partition has grown, on the way back.
    """
    for t in range(n_joined):
        origins[t] = s.slots[joined[t]]
    bring(s, joined, n_joined, k)
    for t in range(n_joined):
        s.listed[origins[t]] = IN_USE if s.place[origins[t]] < s.n_clusters else LOST
    return find_places(s, prior, k, joined, n_joined, origins, True)


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
def move(s, prior, founder, missing, most, core_leaves, core_joins):
    """Propose a reallocation with up to ``most`` candidates, and accept it or not; the guide is marked.

    Parameters
    ----------
    core_leaves : bool
        Whether the core leaves its cluster, or the other rows of this do.
    core_joins : bool
        Whether the core joins another cluster, or candidates join it.
    """
    tally = tally_of_kind(s)
    origins = shifted(s.candidates, MOST_CANDIDATES)
    tally[SPLITS_TRIED] += 1
    log_u = math.log(1.0 - uniform(s.bits))
    home = s.slots[founder]
    size = s.sizes[home]
    n_core = draw_core(s, home, founder, missing)
    loose, n_loose, n_candidates, n_changed = s.pool, 0, 0, 0
    log_there = log_back = log_gain = 0.0

    # The first half. The core comes to be alone, in slot ``own``.
    if core_leaves:
        if n_core == size:
            return
        own = take_slot(s)
        bring(s, s.half_rows, n_core, own)
        log_gain += log_apart(s, prior, home, own, s.order[s.n_clusters])
        if not core_joins:
            n_candidates = find_likest(s, own, most)
    else:
        own = home
        core_slot = s.order[s.n_clusters]
        gather(s, core_slot, s.half_rows, n_core, 1)
        n_candidates = find_likest(s, core_slot, most)
        # Loose rows that are no candidates stay, with the core.
        for t in range(n_candidates):
            i = s.candidates[t]
            s.side[t] = 1 if s.slots[i] == home else 0
            if s.side[t] == 1:
                loose[n_loose] = i
                n_loose += 1
        # A core that joins a cluster with other rows would not leave it with them.
        if n_loose > MOST_LOOSE or (core_joins and n_core + n_loose < size):
            return
        log_places, log_placed = find_places(s, prior, home, loose, n_loose, origins, False)
        log_there += log_places
        log_gain += log_placed
    tally[WORK] += 2 * s.n + 4 * n_candidates + 2 * n_loose * s.n_clusters
    is_possible = log_there > -math.inf

    # How the partition between the halves is left: by the way back, and, if the core joins, by the way there.
    spare, target = s.order[s.n_clusters], 0
    if is_possible and n_candidates > 0:
        weigh_stays(s, prior, n_candidates)
        if not core_leaves:
            log_back += choose_sides(s, prior, own, spare, n_candidates, True)
    if is_possible and (core_leaves or core_joins):
        log_total = weigh_partners(s, prior, s.place[own], founder)
        is_possible = log_total > -math.inf
        if core_leaves and is_possible:
            log_back += s.log_weights[s.place[home]] - log_total
        if core_joins and is_possible:
            place = pick(uniform(s.bits), s.cumulative, s.n_clusters, 1)
            target = s.order[place]
            log_there += s.log_weights[place] - log_total
            is_possible = not core_leaves or target != home

    # The second half.
    joined, n_joined = s.half_rows, 0
    if is_possible and core_joins:
        n_changed = n_loose
        log_gain -= log_apart(s, prior, target, own, spare)
    elif is_possible:
        log_there += choose_sides(s, prior, own, spare, n_candidates, False)
        for t in range(n_candidates):
            if s.side[t] == 1:
                joined[n_joined] = s.candidates[t]
                n_joined += 1
        n_changed = count_changes(loose, n_loose, joined, n_joined)
        is_possible = n_joined <= MOST_LOOSE and (core_leaves or n_changed > 0)
        if is_possible:
            log_returns, log_loss = log_way_back(s, prior, own, joined, n_joined, origins)
            log_back += log_returns
            log_gain -= log_loss

    is_accepted = False
    if is_possible:
        before = count_guided_of(s, home) if core_leaves else count_guided(s, loose, n_loose)
        after = count_guided_of(s, target) if core_joins else count_guided(s, joined, n_joined)
        log_core_ratio = (after - before) * math.log(missing)
        is_accepted = log_u < log_reallocation(log_gain, log_back, log_there, log_core_ratio)
    if is_accepted:
        tally[SPLITS] += 1
        tally[SPLIT_ROWS] += n_changed + n_core if core_leaves or core_joins else n_changed
    if is_accepted and not core_joins:
        bring(s, joined, n_joined, own)
    elif is_accepted or core_leaves:
        bring(s, s.half_rows, collect(s, own, s.half_rows), target if is_accepted else home)
    else:
        bring(s, loose, n_loose, home)


SIZES = 1 + n_doublings(LEAST_GUIDE, MOST_GUIDE)


@c_function(NOTHING(INTS))
def reallocate(head):
    """Run a reallocation, which leaves the posterior of the partition invariant."""
    s = memory_at(head)
    if s.n_guides == 0 or uniform(s.bits) < 0.5:
        founder = below(s.bits, s.n)
        mark_neighbours(s, founder, LEAST_GUIDE << below(s.bits, SIZES))
    else:
        founder = mark_set(s, below(s.bits, s.n_guides))
    missing = FEW_MISSING if uniform(s.bits) < 0.5 else MANY_MISSING
    moves_core = uniform(s.bits) < 0.5
    core_leaves = moves_core and uniform(s.bits) < 0.5
    core_joins = moves_core and uniform(s.bits) < 0.5
    move(s, prior_of(s), founder, missing, MOST_CANDIDATES, core_leaves, core_joins)


REALLOCATION = Move(
    "reallocation",
    reallocate,
    beside_scans=Paying(0.5, 0.01, 1.0, 0.1, MOST_REALLOCATIONS, CLUSTERS_FOR_CARVINGS),
    beside_leaders=0,
    in_search=REALLOCATIONS_OF_SEARCH,
    in_groups=False,
    # Clusters that loose rows open, the core's, and one to work with.
    slots=MOST_LOOSE + 3,
    counts={"tried": SPLITS_TRIED, "accepted": SPLITS},
    means={"size": (SPLIT_ROWS, SPLITS)},
)
