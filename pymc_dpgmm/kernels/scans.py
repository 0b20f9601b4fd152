"""Collapsed Gibbs: one row after the other (Neal 2000, Algorithm 3)."""

import math

from pymc_dpgmm.compiled import INT, INTS, c_function, inlined
from pymc_dpgmm.kernels.grouping import (
    are_grouped,
    close_share,
    enter_group,
    log_open_grouped,
    open_share,
    share_of,
    weigh_grouped_seat,
)
from pymc_dpgmm.kernels.memory import (
    CURRENT,
    DONE,
    N_CLUSTERS,
    N_MOVED,
    NEEDS_ROOM,
    POSITION,
    choose,
    choose_metropolized,
    free_slot,
    join,
    leave,
    memory_at,
    prior_of,
    take_slot,
    weigh,
)
from pymc_dpgmm.partitions import log_seat, log_seat_new


@inlined
def weigh_seat(s, prior, k):
    """Set the log weights of joining slot ``k``, and of staying in it, beside all its other rows."""
    if are_grouped(s):
        weigh_grouped_seat(s, k)
        return
    size = s.sizes[k]
    s.seats[k] = log_seat(prior, size)
    s.seats_left[k] = log_seat(prior, size - 1) if size > 1 else 0.0


@inlined
def log_open(s, prior, n_clusters, own):
    """Log weight of opening a cluster beside ``n_clusters`` others, slot ``own`` being given back if it is one."""
    if are_grouped(s):
        return log_open_grouped(s, share_of(s, own) if own > 0 else 0.0)
    return log_seat_new(prior, n_clusters)


@inlined
def draw_place(s, prior, i, alone, has_left, opening, metropolized):
    """Draw a place in the list of slots for a row: one of the clusters', or the first free one for a new cluster.

    It is drawn given those of all other rows, and, if ``metropolized``, given its own too: see
    :func:`~pymc_dpgmm.kernels.memory.choose_metropolized`.
    The row is in its slot unless it ``has_left``. Most rows stay where they are, and this is all that a scan does
    for them: their density under the rest of their own cluster comes from the statistics that include them.

    Returns
    -------
    int
        -1 if too many digits would be lost: the row must leave its slot first.
    """
    n_clusters = s.head[N_CLUSTERS]
    own = s.slots[i]
    own_place = s.place[own]
    weights = s.log_weights
    for j in range(n_clusters):
        weights[j] = s.seats[s.order[j]]
    m = n_clusters
    if alone:
        # The only row of a slot: staying there is opening a new cluster.
        weights[own_place] = 0.0
        weigh(s, i, s.order, n_clusters, own_place, weights)
        weights[own_place] = log_open(s, prior, n_clusters - 1, own) + s.prior_predictive[i]
    else:
        weights[own_place] = s.seats[own] if has_left else s.seats_left[own]
        weigh(s, i, s.order, n_clusters, -1 if has_left else own_place, weights)
        if math.isnan(weights[own_place]):
            return -1
        weights[n_clusters] = opening + s.prior_predictive[i]
        m += 1
    return choose_metropolized(s, weights, m, own_place) if metropolized else choose(s, weights, m)


@inlined
def scan(s, prior, rows, start, stop, metropolized):
    """Draw the clusters of ``rows[start:stop]``, each given those of all other rows; see :func:`gibbs_scan`.

    Returns
    -------
    int
        Where it has stopped: at ``stop``, or at the first row for which there might be no slot.
    """
    if are_grouped(s):
        s.head[CURRENT] = -1
    else:
        for place in range(s.head[N_CLUSTERS]):
            weigh_seat(s, prior, s.order[place])
    opening = log_open(s, prior, s.head[N_CLUSTERS], 0) if not are_grouped(s) else 0.0
    for t in range(start, stop):
        n_clusters = s.head[N_CLUSTERS]
        if n_clusters == s.capacity:
            return t
        i = rows[t]
        own = s.slots[i]
        if are_grouped(s):
            enter_group(s, i)
            opening = log_open(s, prior, n_clusters, 0)
        alone = s.sizes[own] == 1
        has_left = False
        choice = draw_place(s, prior, i, alone, False, opening, metropolized)
        if choice < 0:
            leave(s, i)
            weigh_seat(s, prior, own)
            has_left = True
            choice = draw_place(s, prior, i, False, True, opening, metropolized)
        target = s.order[choice]
        if target == own:
            if has_left:
                join(s, i, own)
                weigh_seat(s, prior, own)
            if alone and are_grouped(s):
                # It has opened its cluster anew.
                close_share(s, own)
                open_share(s, own)
                weigh_seat(s, prior, own)
            continue
        s.head[N_MOVED] += 1
        if not has_left:
            leave(s, i)
        if choice == n_clusters:
            take_slot(s)
            if are_grouped(s):
                open_share(s, target)
        join(s, i, target)
        weigh_seat(s, prior, target)
        if alone:
            free_slot(s, own)
            if are_grouped(s):
                close_share(s, own)
        else:
            weigh_seat(s, prior, own)
        opening = log_open(s, prior, s.head[N_CLUSTERS], 0)
    return stop


@c_function(INT(INTS, INTS, INT, INT))
def scan_rows(head, rows, n_rows, metropolized):
    """Scan rows from where the head says on."""
    s = memory_at(head)
    head[POSITION] = scan(s, prior_of(s), rows, head[POSITION], n_rows, metropolized == 1)
    return DONE if head[POSITION] == n_rows else NEEDS_ROOM
