"""Searches among many rows: clusters are found in a part of the rows, and the other rows are placed there.

A division of a large cluster costs the time of all its rows, and most divisions are tried in vain. A part of the
rows shows all but the smallest clusters in a fraction of that time.
"""

from collections.abc import Callable

import numpy as np

from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.sampler.amounts import ROWS_FOR_PART, ROWS_OF_PART
from pymc_dpgmm.sampler.many_rows.leader_sweep import place_rows
from pymc_dpgmm.sampler.state.cluster_table import rows_of_clusters
from pymc_dpgmm.sampler.state.state import State


def has_part(state: State) -> bool:
    """Tell whether a part of the rows is searched first."""
    return state.n >= ROWS_FOR_PART and all(table.absent is None for table in state.tables)


def search_part(rng: np.random.Generator, state: State, search: Callable[[State], State], n_threads: int) -> None:
    """Search among some of the rows, and let all rows join what is found there.

    For tuning only: the posterior is not left invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Of rows that are in no groups and no units, and whose tables are not wide. Changed in place.
    search : callable
        Returns a state of the same rows, after a search.
    n_threads : int, >= 1
    """
    chosen = np.sort(rng.choice(state.n, size=ROWS_OF_PART, replace=False))
    views = [View(table.base_family, table.params, table.values[chosen]) for table in state.tables]
    part = State(views, np.unique(state.slots[chosen], return_inverse=True)[1])
    part.take_prior(state)
    found = search(part)
    members = [chosen[rows] for rows in rows_of_clusters(found.labels())]
    place_rows(rng, state, members, n_threads)
