"""Collapsed Gibbs: one row after the other (Neal 2000, Algorithm 3)."""

import math

import numpy as np

from pymc_dpgmm.dispatch import compiled, enlarged
from pymc_dpgmm.families.verbs import log_predictive, log_predictive_without
from pymc_dpgmm.kernels.state import canonicalize, count_clusters, grow, join, leave, more_slots, open_slot
from pymc_dpgmm.partitions import log_seat, log_seat_new

# A weight below exp(-50) = 2e-22 of the largest is below the resolution of the uniform number that chooses
# (2**-53 = 1e-16) for any number of clusters that fits in memory, and its exponential is not computed.
NEGLIGIBLE = -50.0


@compiled()
def random_order(rng, n):
    """Draw a permutation of 0..n-1 (Fisher and Yates)."""
    order = np.arange(n)
    for i in range(n - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        order[i], order[j] = order[j], order[i]
    return order


@compiled()
def choose(rng, log_weights, n_choices):
    """Draw an index below ``n_choices`` with probability proportional to ``exp(log_weights)``.

    The weights are overwritten.
    """
    largest = -math.inf
    for j in range(n_choices):
        largest = max(largest, log_weights[j])
    total = 0.0
    for j in range(n_choices):
        difference = log_weights[j] - largest
        if difference > NEGLIGIBLE:
            total += math.exp(difference)
        log_weights[j] = total
    u = rng.random() * total
    choice = 0
    while choice < n_choices - 1 and log_weights[choice] <= u:
        choice += 1
    return choice


@compiled(_nrt=False, forceinline=True)
def weigh(stats, rows, i, seats, slots, start, stop, log_weights):
    """Set the log weights of row ``i``, which is in none of ``slots[start:stop]``."""
    for j in range(start, stop):
        k = slots[j]
        log_weights[j] = seats[k] + log_predictive(stats, k, rows, i)


@compiled(_nrt=False, forceinline=True)
def draw_place(rng, prior, state, i, slots, seats, own_place, n_clusters, opening, detached, log_weights):
    """Draw a place in the list of slots for a row: one of the clusters', or ``n_clusters`` for a new one.

    Most rows stay where they are, and this is all that a scan does for them. It makes no arrays, and is compiled
    without the reference counts that would cost as much as the arithmetic.

    Returns
    -------
    int
        -1 if too many digits would be lost: the row must leave its slot, and be ``detached``, first.
    """
    own = slots[own_place]
    weigh(state.stats, state.rows, i, seats, slots, 0, own_place, log_weights)
    weigh(state.stats, state.rows, i, seats, slots, own_place + 1, n_clusters, log_weights)
    if state.sizes[own] + detached == 1:
        # The only row of a slot: staying there is opening a new cluster.
        log_weights[own_place] = log_seat_new(prior, n_clusters - 1) + state.prior_predictive[i]
        return choose(rng, log_weights, n_clusters)
    if detached:
        density = log_predictive(state.stats, own, state.rows, i)
    else:
        density = log_predictive_without(state.stats, own, state.rows, i)
        if math.isnan(density):
            return -1
    log_weights[own_place] = log_seat(prior, state.sizes[own] - (not detached)) + density
    log_weights[n_clusters] = opening + state.prior_predictive[i]
    return choose(rng, log_weights, n_clusters + 1)


@compiled()
def gibbs_scan(rng, prior, state, order):
    """Draw the clusters of rows, one after the other, each given those of all other rows.

    Row i joins a cluster of m other rows with probability proportional to its seating weight times the
    posterior predictive density of row i given those rows, or opens a cluster with the prior's weight for a
    new one times its prior predictive density (Neal 2000, eq. 3.7). A row that stays where it is changes
    nothing: its density under the rest of its own cluster comes from the statistics that include it.

    Parameters
    ----------
    rng : numpy.random.Generator
    prior : NamedTuple
        A prior on partitions.
    state : State
        Canonical; changed in place.
    order : (m,) int64 array
        The rows, such as :func:`random_order` of all.

    Returns
    -------
    state : State
        Canonical. A new tuple if more slots were needed.
    n_moved : int
        Number of rows whose set of companions was changed by their own draw.
    """
    n_clusters = count_clusters(state)
    capacity = state.sizes.shape[0]
    # Slots in use, in no order, and their places in that list; the rest of the list are free slots.
    slots_in_use = np.arange(1, capacity - 1)
    place = np.arange(-1, capacity - 1)
    seats = np.empty(capacity)
    for k in range(1, n_clusters + 1):
        seats[k] = log_seat(prior, state.sizes[k])
    opening = log_seat_new(prior, n_clusters)
    log_weights = np.empty(capacity)
    n_moved = 0
    for t in range(order.shape[0]):
        i = order[t]
        own = state.slots[i]
        alone = state.sizes[own] == 1
        own_place = place[own]
        detached = False
        choice = draw_place(
            rng, prior, state, i, slots_in_use, seats, own_place, n_clusters, opening, False, log_weights
        )
        if choice < 0:
            leave(state, i)
            detached = True
            choice = draw_place(
                rng, prior, state, i, slots_in_use, seats, own_place, n_clusters, opening, True, log_weights
            )
        if choice == own_place:
            if detached:
                join(state, i, own)
            continue
        n_moved += 1
        if not detached:
            leave(state, i)
        target = slots_in_use[choice]
        if choice == n_clusters:
            open_slot(state, target)
        join(state, i, target)
        seats[target] = log_seat(prior, state.sizes[target])
        if choice == n_clusters:
            n_clusters += 1
        if alone:
            # The last slot in use takes the place of the emptied one.
            n_clusters -= 1
            last = slots_in_use[n_clusters]
            slots_in_use[own_place] = last
            place[last] = own_place
            slots_in_use[n_clusters] = own
            place[own] = n_clusters
        else:
            seats[own] = log_seat(prior, state.sizes[own])
        opening = log_seat_new(prior, n_clusters)
        if n_clusters == slots_in_use.shape[0]:
            state = grow(state)
            capacity = state.sizes.shape[0]
            slots_in_use = more_slots(slots_in_use, capacity)
            place = np.empty(capacity, dtype=np.int64)
            for j in range(capacity - 2):
                place[slots_in_use[j]] = j
            seats = enlarged(seats, capacity)
            log_weights = np.empty(capacity)
    canonicalize(state)
    return state, n_moved
