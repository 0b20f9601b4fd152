"""Births and deaths of clusters of a single row, where scans of all rows would cost too much.

A birth lets one row of a cluster of several leave for a cluster of its own, a death lets the only row of a cluster
join another. Scans do both, but look at every row for the few that may open a cluster. ``docs/moves.md`` derives
the ratio.
"""

import math

import numpy as np

from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.compiled import INT, INTS, address_of, c_function, inlined
from pymc_dpgmm.partitions.priors import log_seat, log_seat_new
from pymc_dpgmm.sampler.state.choices import accumulate, pick
from pymc_dpgmm.sampler.state.memory import DONE, NEEDS_ROOM, memory_at, prior_of
from pymc_dpgmm.sampler.state.slots import free_slot, join, leave, take_slot
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.views import weigh


@inlined
def _weigh_others(s, prior, i):
    """Set sums of the weights with which row ``i``, which is in no cluster, joins each; return the log of all."""
    n_clusters = s.n_clusters
    for j in range(n_clusters):
        s.log_weights[j] = log_seat(prior, s.sizes[s.order[j]])
    weigh(s, i, s.order, n_clusters, -1, s.log_weights)
    largest = accumulate(s, s.log_weights, n_clusters)
    return largest + math.log(s.log_weights[n_clusters - 1])


@inlined
def _place_of_single(s, chosen):
    """Return the place of cluster number ``chosen``, from 0, among those of one row; -1 if there are fewer."""
    for place in range(s.n_clusters):
        if s.sizes[s.order[place]] == 1:
            if chosen == 0:
                return place
            chosen -= 1
    return -1


@inlined
def _count_singles(s):
    found = 0
    for place in range(s.n_clusters):
        found += s.sizes[s.order[place]] == 1
    return found


@inlined
def _give_birth(s, prior, i, n):
    """Propose that a row, drawn from all n, leaves for a cluster of its own."""
    current = s.slots[i]
    size = s.sizes[current]
    if size == 1:
        return
    # Singles afterwards: this one, and what it leaves behind.
    singles = _count_singles(s) + (2 if size == 2 else 1)
    leave(s, i)
    log_open = log_seat_new(prior, s.n_clusters) + s.prior_predictive[i]
    log_ratio = math.log(n / singles) + log_open - _weigh_others(s, prior, i)
    if math.log(uniform(s.bits)) < log_ratio:
        join(s, i, take_slot(s))
        s.n_moved += 1
    else:
        join(s, i, current)


@inlined
def _let_die(s, prior, n):
    """Propose that the only row of a cluster joins another cluster."""
    singles = _count_singles(s)
    if singles == 0 or s.n_clusters == 1:
        return
    current = s.order[_place_of_single(s, below(s.bits, singles))]
    i = s.following[s.n + current]
    if i >= s.n:
        # The row is elsewhere.
        return
    leave(s, i)
    free_slot(s, current)
    log_open = log_seat_new(prior, s.n_clusters) + s.prior_predictive[i]
    log_ratio = math.log(singles / n) + _weigh_others(s, prior, i) - log_open
    target = take_slot(s)
    if math.log(uniform(s.bits)) < log_ratio:
        free_slot(s, target)
        target = s.order[pick(uniform(s.bits), s.log_weights, s.n_clusters, 1)]
        s.n_moved += 1
    join(s, i, target)


@c_function(INT(INTS, INT, INTS, INT, INT))
def run_births_and_deaths(head, n_moves, candidates, n_candidates, n):
    """Propose births and deaths, from where the head says on.

    ``candidates`` are rows for births, one for each move, that have been drawn from all n; without them, rows are
    drawn here.
    """
    s = memory_at(head)
    prior = prior_of(s)
    while s.position < n_moves:
        if s.n_clusters == s.capacity:
            return NEEDS_ROOM
        if uniform(s.bits) < 0.5:
            i = candidates[s.position] if n_candidates > 0 else below(s.bits, s.n)
            _give_birth(s, prior, i, n)
        else:
            _let_die(s, prior, n)
        s.position += 1
    return DONE


def births_and_deaths(rng: np.random.Generator, state: State, n_moves: int) -> int:
    """Propose births and deaths of clusters of single rows, each with probability 1/2.

    The posterior of the labels is left invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Of rows that are in no groups. Changed in place.
    n_moves : int, >= 0

    Returns
    -------
    int
        How many were accepted.
    """
    return state.run(rng, run_births_and_deaths, n_moves, address_of(state.slots), 0, state.n)


def births_and_deaths_in_part(rng: np.random.Generator, state: State, candidates: np.ndarray, n_rows: int) -> int:
    """Do the same where a state has a part of the rows, those of clusters of one row among them.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Changed in place.
    candidates : (n_moves,) int64 array
        Rows of the state that have been drawn from all rows, independently and with equal probabilities, one for
        each move, whatever the partition.
    n_rows : int
        Number of all rows.
    """
    rows = np.ascontiguousarray(candidates, dtype=np.int64)
    return state.run(rng, run_births_and_deaths, len(rows), address_of(rows), len(rows), n_rows)
