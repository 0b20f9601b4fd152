"""Draws of what is missing in rows, together with the rows' clusters."""

from collections.abc import Sequence

import numpy as np

from pymc_dpgmm.native.compiled import INT, INTS, address_of, c_function, shifted
from pymc_dpgmm.partitions.priors import log_seat, log_seat_new
from pymc_dpgmm.sampler.state.all_clusters import refit_all, set_prior_predictives
from pymc_dpgmm.sampler.state.choices import choose
from pymc_dpgmm.sampler.state.memory import DONE, NEEDS_ROOM, memory_at, prior_of
from pymc_dpgmm.sampler.state.slots import free_slot, join, leave, take_slot
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.views import view_of


@c_function(INT(INTS, INTS, INT))
def impute_rows(head, incomplete, n_incomplete):
    """Draw cluster and absent entries of rows, one after the other."""
    s = memory_at(head)
    prior = prior_of(s)
    weights, choices = s.log_weights, s.listed
    for t in range(s.position, n_incomplete):
        # One slot for a new cluster, beside that of a row which has left.
        if s.n_clusters + 2 > s.capacity:
            s.position = t
            return NEEDS_ROOM
        i = incomplete[t]
        left = s.slots[i]
        leave(s, i)
        if s.sizes[left] == 0:
            free_slot(s, left)
        n_clusters = s.n_clusters
        for place in range(n_clusters):
            choices[place] = s.order[place]
            weights[place] = log_seat(prior, s.sizes[s.order[place]])
        choices[n_clusters] = 0
        s.owns[0] = -1
        weights[n_clusters] = log_seat_new(prior, n_clusters)
        for v in range(s.n_views):
            view = view_of(s, v)
            if not view.has_absent:
                row = shifted(incomplete, t)
                view.weigh(view.head, row, 1, choices, n_clusters + 1, s.owns, 1, weights)
            else:
                for j in range(n_clusters + 1):
                    weights[j] += view.present(view.head, i, choices[j])
        choice = choose(s, weights, n_clusters + 1)
        target = choices[choice]
        for v in range(s.n_views):
            view = view_of(s, v)
            if view.has_absent:
                view.draw_absent(view.head, i, target, s.bits.next_double, s.bits.state)
        if choice == n_clusters:
            target = take_slot(s)
        join(s, i, target)
        set_prior_predictives(s, i, i + 1)
    return DONE


def impute(
    rng: np.random.Generator, state: State, values: Sequence[np.ndarray], absent: Sequence[np.ndarray | None]
) -> list[np.ndarray | None]:
    """Draw cluster and missing entries of incomplete rows, one row after the other, given all else.

    The cluster is drawn given the entries that are there, by their marginal predictive density, and the missing
    ones then from their conditional density in it: together an exact draw of both.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Changed in place, the rows too.
    values : sequence of (n, d) arrays
        Rows of each view, completed as they are in the state.
    absent : sequence of (n, d) bool arrays or None
        Where entries of each view are missing; None for complete views.

    Returns
    -------
    list of (m,) arrays or None
        The missing entries of each view, in the order of rows and then columns.
    """
    tables = state.tables
    are_wide = any(table.is_wide for table in tables)
    for table, gaps in zip(tables, absent, strict=False):
        if gaps is not None and table.absent is None:
            # The rows are the state's own from here on.
            table.rows = table.rows.copy()
            table.set_absent(gaps)
    if are_wide:
        refit_all(state.address)
    pairs = list(zip(values, tables, absent, strict=False))
    origins = [None if gaps is None else given[gaps] - table.rows[gaps] for given, table, gaps in pairs]
    incomplete = np.flatnonzero(np.any([gaps.any(axis=1) for gaps in absent if gaps is not None], axis=0))
    state.run(rng, impute_rows, address_of(incomplete), len(incomplete))
    return [
        None if gaps is None else table.rows[gaps] + origin
        for (_, table, gaps), origin in zip(pairs, origins, strict=True)
    ]
