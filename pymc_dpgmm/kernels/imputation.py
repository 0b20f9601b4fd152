"""Draws of what is missing in rows, together with the rows' clusters."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_dpgmm.dispatch import compiled
from pymc_dpgmm.families.verbs import draw_absent, log_predictive, log_predictive_present
from pymc_dpgmm.families.views import paired
from pymc_dpgmm.kernels.gibbs import choose
from pymc_dpgmm.kernels.state import State, canonicalize, grow, join, leave, open_slot
from pymc_dpgmm.partitions import log_seat, log_seat_new


@compiled()
def impute(rng, prior, state, incomplete, absent):
    """Draw cluster and missing entries of incomplete rows, one row after the other, given all else.

    The cluster is drawn given the entries that are there, by their marginal predictive density, and the missing
    ones then from their conditional density in it: together an exact draw of both.

    Parameters
    ----------
    rng : numpy.random.Generator
    prior : NamedTuple
        A prior on partitions.
    state : State
        Canonical; changed in place, the rows too.
    incomplete : (m,) int64 array
        Rows with missing entries.
    absent : (n, d) bool array
        Where entries are missing; for several views, pairs of these, and None for complete ones.

    Returns
    -------
    State
        Canonical. A new tuple if more slots were needed.
    """
    for i in incomplete:
        leave(state, i)
        capacity = state.sizes.shape[0]
        log_weights = np.empty(capacity)
        slots = np.empty(capacity, dtype=np.int64)
        n_clusters = 0
        free = -1
        for k in range(1, capacity - 1):
            if state.sizes[k] == 0:
                free = k
                continue
            slots[n_clusters] = k
            log_weights[n_clusters] = log_seat(prior, state.sizes[k]) + log_predictive_present(
                state.stats, k, state.rows, i, absent
            )
            n_clusters += 1
        log_weights[n_clusters] = log_seat_new(prior, n_clusters) + log_predictive_present(
            state.stats, 0, state.rows, i, absent
        )
        choice = choose(rng, log_weights, n_clusters + 1)
        if choice == n_clusters:
            open_slot(state, free)
            slots[n_clusters] = free
        target = slots[choice]
        draw_absent(state.stats, target, state.rows, i, absent, rng)
        join(state, i, target)
        state.prior_predictive[i] = log_predictive(state.stats, 0, state.rows, i)
        # There is always a free slot.
        if choice == n_clusters and n_clusters + 1 == capacity - 2:
            state = grow(state)
    canonicalize(state)
    return state


def impute_views(
    rng: np.random.Generator,
    prior: Any,
    state: State,
    values: Sequence[np.ndarray],
    absent: Sequence[np.ndarray | None],
) -> tuple[State, list[np.ndarray | None]]:
    """Draw what is missing in several views: see :func:`impute`.

    Parameters
    ----------
    rng, prior, state
        As in :func:`impute`.
    values : sequence of (n, d) arrays
        Rows of each view, completed as they are in the state.
    absent : sequence of (n, d) bool arrays or None
        Where entries of each view are missing; None for complete views.

    Returns
    -------
    state : State
    entries : list of (m,) arrays or None
        The missing entries of each view, in the order of rows and then columns.
    """
    rows = unpaired(state.rows, len(values))
    views = list(zip(values, rows, absent, strict=True))
    origins = [None if gaps is None else given[gaps] - own[gaps] for given, own, gaps in views]
    incomplete = np.flatnonzero(np.any([gaps.any(axis=1) for gaps in absent if gaps is not None], axis=0))
    state = impute(rng, prior, state, incomplete, paired(absent))
    entries = [
        None if gaps is None else own[gaps] + origin for (_, own, gaps), origin in zip(views, origins, strict=True)
    ]
    return state, entries


def unpaired(parts: Any, n_views: int) -> list[Any]:
    """Undo :func:`pymc_dpgmm.families.views.paired`."""
    found = []
    for _ in range(n_views - 1):
        found.append(parts.first)
        parts = parts.rest
    return [*found, parts]
