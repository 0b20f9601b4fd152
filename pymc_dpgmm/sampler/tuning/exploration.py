"""What one searching draw does: moves of the search, scans, and clusters given up or divided on trial."""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.sampler.amounts import (
    CHANGES_ON_TRIAL,
    CLUSTERS_FOR_CARVINGS,
    ROWS_FOR_ONE_TRIAL,
    SCANS_OF_CHANGE,
    Effort,
)
from pymc_dpgmm.sampler.many_rows import many_rows
from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.moves.sweep import make_moves, redraw_alpha
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.search import divided_anew, log_sum, search, without_one
from pymc_dpgmm.sampler.tuning.trials import largest_change, settle_changed, try_changes

# Scans of a partition that clusters of several have been put together to.
SCANS_TO_SETTLE = 5


class Explored(NamedTuple):
    """What a search returns.

    Parameters
    ----------
    state : State
    n_moved : int
        Relocations of single rows.
    largest : int
        Rows in the smaller half of the largest cluster that divided or united, or by which a cluster differs from
        that of the rival that took its place.
    merit : float
        Estimated log of the joint density summed over all labellings like the state's.
    """

    state: State
    n_moved: int
    largest: int
    merit: float


def explore(
    rng: np.random.Generator,
    state: State,
    effort: Effort,
    n_leader_sweeps: int = 0,
    n_threads: int = 1,
) -> Explored:
    """Search, for tuning: see :mod:`pymc_dpgmm.sampler.tuning.search`."""
    n_moved, largest = 0, 0
    for _ in range(effort.rounds):
        redraw_alpha(rng, state)
        largest = max(largest, search(rng, state))
        n_moved += many_rows.scan(rng, state, effort.scans, n_leader_sweeps, n_threads)
        if not n_leader_sweeps:
            move_some(rng, state)
    if n_leader_sweeps or state.is_grouped or state.n_clusters < CLUSTERS_FOR_CARVINGS:
        state, merit, changed = _try_rivals(rng, state, effort, n_leader_sweeps, n_threads)
    else:
        state, changed = try_changes(rng, state, CHANGES_ON_TRIAL, SCANS_OF_CHANGE)
        merit = log_sum(state)
    return Explored(state, n_moved, max(largest, changed), merit)


def _try_rivals(
    rng: np.random.Generator, state: State, effort: Effort, n_leader_sweeps: int, n_threads: int
) -> tuple[State, float, int]:
    """Give up one cluster on trial, and divide one; return the state, its merit, and the largest change."""
    largest = 0
    rivals: list[State] = []
    if state.n_clusters > 1:
        rival, merit = without_one(rng, state)
        rivals.append(rival)
    else:
        merit = log_sum(state)
    if not rivals or state.n < ROWS_FOR_ONE_TRIAL or rng.random() < 0.5:
        # Pieces of one group unite again before they are judged.
        divided = divided_anew(rng, state)
        search(rng, divided)
        rivals.append(divided)
    labels = state.labels()
    # Where scans take long there is one trial.
    for rival in rivals if state.n < ROWS_FOR_ONE_TRIAL else rivals[-1:]:
        if n_leader_sweeps or state.is_grouped:
            many_rows.scan(rng, rival, effort.scans_of_trial, n_leader_sweeps, n_threads)
        else:
            settle(rng, rival, labels, effort.scans_of_trial)
        rival_merit = log_sum(rival)
        if np.log(rng.random()) < rival_merit - merit:
            largest = max(largest, largest_change(state, rival))
            state, merit = rival, rival_merit
    return state, merit, largest


def move_some(rng: np.random.Generator, state: State) -> None:
    """Move several rows at once, by kinds of moves that a search has where there are many clusters."""
    numbers = [
        move.in_search
        if state.n_clusters >= move.fewest_clusters and (move.in_groups or not state.is_grouped)
        else 0
        for move in MOVES.values()
    ]
    if any(numbers):
        make_moves(rng, state, *numbers)


def settle(rng: np.random.Generator, state: State, before: np.ndarray, n_scans: int) -> None:
    """Scan all rows once, after scans of those rows whose clusters have changed since other labels (n,)."""
    settle_changed(rng, state, before, n_scans - 1)
    many_rows.scan(rng, state, 1, 0, 1)


def settled(rng: np.random.Generator, state: State) -> Explored:
    """Let clusters settle, in place, by scans alone: where a search takes long."""
    n_moved = 0
    for _ in range(SCANS_TO_SETTLE):
        redraw_alpha(rng, state)
        n_moved += many_rows.scan(rng, state, 1, 0, 1)
    return Explored(state, n_moved, 0, log_sum(state))
