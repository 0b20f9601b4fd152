"""Collapsed Gibbs: one row after the other (Neal 2000, Algorithm 3).

Processors work on several numbers at once, in *lanes*. So a scan looks ahead: it weighs the next ``LANES`` rows
with all clusters, then visits them one after the other. Most rows stay where they are, and change nothing for the
rows after them. Where one moves, the weights of its old and its new cluster are computed anew for the rows that
are still to come. Every row is drawn from its distribution given the clusters of all others at that time.

The log weight of the row in a lane with the cluster at a place of the list of slots is
``log_weights[place * LANES + lane]``, and ``cumulative`` has the sums of weights likewise. The place after those
of the clusters is that of a new cluster.
"""

import math

from pymc_dpgmm.native.arithmetic import uniform
from pymc_dpgmm.native.compiled import c_function, inlined, shifted
from pymc_dpgmm.native.lanes import LANES, add_exponentials, raise_to
from pymc_dpgmm.partitions.priors import log_seat, log_seat_new
from pymc_dpgmm.sampler.state.choices import pick, pick_metropolized
from pymc_dpgmm.sampler.state.grouping import are_grouped
from pymc_dpgmm.sampler.state.memory import (
    DONE,
    HEAD,
    NEEDS_ROOM,
    NOT_A_NUMBER,
    memory_at,
    prior_of,
)
from pymc_dpgmm.sampler.state.provided import provided
from pymc_dpgmm.sampler.state.slots import free_slot, join, leave, take_slot
from pymc_dpgmm.sampler.state.views import weigh_rows


@inlined
def weigh_seat(s, prior, k):
    """Set the log weights of joining slot ``k``, and of staying in it, beside all its other rows."""
    size = s.sizes[k]
    s.seats[k] = log_seat(prior, size)
    s.seats_left[k] = log_seat(prior, size - 1) if size > 1 else 0.0


@inlined
def weigh_places(s, rows, first, n_rows, place, n_places):
    """Set the log weights of ``rows[first:n_rows]``, in their lanes, with the clusters at some places."""
    weights = shifted(s.log_weights, place * LANES)
    for j in range(n_places):
        k = s.order[place + j]
        for lane in range(first, n_rows):
            weights[j * LANES + lane] = s.seats_left[k] if s.owns[lane] == k else s.seats[k]
    slots, owns = shifted(s.order, place), shifted(s.owns, first)
    weigh_rows(s, shifted(rows, first), n_rows - first, slots, n_places, owns, LANES, shifted(weights, first))


@inlined
def add_weights(s, prior, rows, n_rows, opening):
    """Set the sums of weights of ``rows[:n_rows]``, in their lanes, and the log weights that new clusters have."""
    n_clusters = s.n_clusters
    new = n_clusters * LANES
    weights, sums, largest, nothing = s.log_weights, s.cumulative, s.lanes, shifted(s.lanes, LANES)
    for lane in range(n_rows):
        i, current = rows[lane], s.owns[lane]
        weights[new + lane] = opening + s.prior_predictive[i]
        if current >= 0 and s.sizes[current] == 1:
            # The only row of a slot: staying there is opening a new cluster.
            weights[s.place[current] * LANES + lane] = log_seat_new(prior, n_clusters - 1) + s.prior_predictive[i]
            weights[new + lane] = -math.inf
    for lane in range(LANES):
        largest[lane] = weights[new + lane]
        nothing[lane] = 0.0
    for start in range(0, new, LANES):
        raise_to(largest, shifted(weights, start))
    before = nothing
    for start in range(0, new + LANES, LANES):
        add_exponentials(shifted(sums, start), before, shifted(weights, start), largest)
        before = shifted(sums, start)


@inlined
def scan(s, prior, rows, start, stop, metropolized):
    """Draw the clusters of ``rows[start:stop]``, each given those of all other rows.

    They are drawn given the row's own cluster too, if ``metropolized``: see
    :func:`~pymc_dpgmm.sampler.state.choices.pick_metropolized`.

    Returns
    -------
    int
        Where it has stopped: at ``stop``, or at the first row for which there might be no slot; -1 if the density
        of a row is not a number.
    """
    for place in range(s.n_clusters):
        weigh_seat(s, prior, s.order[place])
    opening = log_seat_new(prior, s.n_clusters)
    # Whether the next row is in no cluster: its density without itself had lost too many digits (NaN), so that it
    # was taken out and is weighed anew.
    has_left = False
    t = start
    while t < stop:
        ahead = shifted(rows, t)
        n_ahead = 1 if has_left else min(LANES, stop - t)
        for lane in range(n_ahead):
            s.owns[lane] = -1 if has_left else s.slots[ahead[lane]]
        weigh_places(s, ahead, 0, n_ahead, 0, s.n_clusters)
        add_weights(s, prior, ahead, n_ahead, opening)
        lane = 0
        while lane < n_ahead:
            n_clusters = s.n_clusters
            if n_clusters == s.capacity:
                return t + lane
            i = ahead[lane]
            current = s.slots[i]
            current_place = s.place[current]
            alone = s.sizes[current] == 1 and not has_left
            if math.isnan(s.log_weights[current_place * LANES + lane]):
                if has_left:
                    join(s, i, current)
                    return -1
                leave(s, i)
                weigh_seat(s, prior, current)
                has_left = True
                break
            sums = shifted(s.cumulative, lane)
            m = n_clusters if alone else n_clusters + 1
            u = uniform(s.bits)
            choice = (
                pick_metropolized(u, sums, m, current_place, LANES) if metropolized else pick(u, sums, m, LANES)
            )
            target = s.order[choice]
            lane += 1
            if target != current:
                s.n_moved += 1
                if not has_left:
                    leave(s, i)
                if choice == n_clusters:
                    take_slot(s)
            if target != current or has_left:
                join(s, i, target)
                weigh_seat(s, prior, target)
                has_left = False
            if target == current:
                continue
            if alone:
                free_slot(s, current)
                last = s.n_clusters * LANES
                for q in range(LANES):
                    s.log_weights[current_place * LANES + q] = s.log_weights[last + q]
            else:
                weigh_seat(s, prior, current)
            opening = log_seat_new(prior, s.n_clusters)
            for later in range(lane, n_ahead):
                # Scans there and back visit rows twice.
                if ahead[later] == i:
                    s.owns[later] = target
            if lane < n_ahead:
                if not alone:
                    weigh_places(s, ahead, lane, n_ahead, current_place, 1)
                weigh_places(s, ahead, lane, n_ahead, s.place[target], 1)
                add_weights(s, prior, ahead, n_ahead, opening)
        t += lane
    return stop


@provided("scan_rows")
@c_function(HEAD.signature("scan_rows"))
def scan_rows(head, rows, n_rows, metropolized):
    """Scan ``rows`` from index ``s.position`` on; rows in groups ignore ``metropolized``."""
    s = memory_at(head)
    if are_grouped(s):
        return s.scan_grouped(head, rows, n_rows)
    s.position = scan(s, prior_of(s), rows, s.position, n_rows, metropolized == 1)
    if s.position < 0:
        return NOT_A_NUMBER
    return DONE if s.position == n_rows else NEEDS_ROOM
