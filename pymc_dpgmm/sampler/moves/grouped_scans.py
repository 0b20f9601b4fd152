"""Collapsed Gibbs for rows in groups, one row after the other, given the shares of the clusters."""

import math

from pymc_dpgmm.native.compiled import c_function, inlined
from pymc_dpgmm.sampler.state.choices import choose
from pymc_dpgmm.sampler.state.grouping import (
    close_share,
    enter_group,
    log_open_grouped,
    open_share,
    share_of,
    weigh_grouped_seat,
)
from pymc_dpgmm.sampler.state.memory import (
    DONE,
    HEAD,
    NEEDS_ROOM,
    NOT_A_NUMBER,
    memory_at,
)
from pymc_dpgmm.sampler.state.provided import provided
from pymc_dpgmm.sampler.state.slots import free_slot, join, leave, take_slot
from pymc_dpgmm.sampler.state.views import weigh


@inlined
def draw_place(s, i, has_left):
    """Draw a place in the list of slots for a row of the current group, given those of all other rows.

    It is one of the clusters', or the first free one for a new cluster. The row is in its slot unless it
    ``has_left``. Most rows stay where they are, and this is all that a scan does for them: their density under the
    rest of their own cluster comes from the statistics that include them.

    Returns
    -------
    int
        -1 if too many digits would be lost: the row must leave its slot first.
    """
    n_clusters = s.n_clusters
    current = s.slots[i]
    current_place = s.place[current]
    weights = s.log_weights
    for j in range(n_clusters):
        weights[j] = s.seats[s.order[j]]
    if not has_left:
        weights[current_place] = s.seats_left[current]
    weigh(s, i, s.order, n_clusters, -1 if has_left else current, weights)
    if s.sizes[current] == 1 and not has_left:
        # The only row of a slot: staying there is opening a new cluster.
        weights[current_place] = log_open_grouped(s, share_of(s, current)) + s.prior_predictive[i]
        return choose(s, weights, n_clusters)
    if math.isnan(weights[current_place]):
        return -1
    weights[n_clusters] = log_open_grouped(s, 0.0) + s.prior_predictive[i]
    return choose(s, weights, n_clusters + 1)


@inlined
def scan_grouped(s, rows, start, stop):
    """Draw the clusters of ``rows[start:stop]``, each given those of all other rows, and the shares of clusters.

    To stay in a cluster of one row is a draw of its share.

    Returns
    -------
    int
        Where it has stopped: at ``stop``, or at the first row for which there might be no slot; -1 if the density
        of a row is not a number.
    """
    s.current = -1
    for t in range(start, stop):
        n_clusters = s.n_clusters
        if n_clusters == s.capacity:
            return t
        i = rows[t]
        current = s.slots[i]
        enter_group(s, i)
        alone = s.sizes[current] == 1
        choice = draw_place(s, i, False)
        has_left = choice < 0
        if has_left:
            leave(s, i)
            weigh_grouped_seat(s, current)
            choice = draw_place(s, i, True)
            if choice < 0:
                join(s, i, current)
                return -1
        target = s.order[choice]
        if target == current:
            if has_left:
                join(s, i, current)
                weigh_grouped_seat(s, current)
            if alone:
                # It has opened its cluster anew.
                close_share(s, current)
                open_share(s, current)
                weigh_grouped_seat(s, current)
            continue
        s.n_moved += 1
        if not has_left:
            leave(s, i)
        if choice == n_clusters:
            take_slot(s)
            open_share(s, target)
        join(s, i, target)
        weigh_grouped_seat(s, target)
        if alone:
            free_slot(s, current)
            close_share(s, current)
        else:
            weigh_grouped_seat(s, current)
    return stop


@provided("scan_grouped", to_groups=True)
@c_function(HEAD.signature("scan_grouped"))
def scan_grouped_rows(head, rows, n_rows):
    """Scan rows from where the head says on."""
    s = memory_at(head)
    s.position = scan_grouped(s, rows, s.position, n_rows)
    if s.position < 0:
        return NOT_A_NUMBER
    return DONE if s.position == n_rows else NEEDS_ROOM
