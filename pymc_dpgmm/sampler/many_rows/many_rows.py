"""Sweeps for many rows: all rows at once given weights and parameters, then some of them one by one."""

import numpy as np

from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.sampler.amounts import LEAST_SCANNED, N_BIRTHS, N_CARVINGS, ROWS_PER_BIRTH, ROWS_PER_SCANNED
from pymc_dpgmm.sampler.many_rows.drawn_carving import carvings
from pymc_dpgmm.sampler.many_rows.leader_sweep import leader_sweep
from pymc_dpgmm.sampler.moves.sweep import gibbs_scan, make_moves, redraw_alpha, sweep
from pymc_dpgmm.sampler.state.choices import RUN
from pymc_dpgmm.sampler.state.state import State


def takes_leaders(state: State) -> bool:
    """Tell whether there can be leader sweeps: rows must be in no groups and no units, and the tables not wide.

    Parameters of clusters are drawn there, which have no posterior where evidence is raised to a power.
    """
    return not (state.uses_scratch or state.is_grouped) and all(table.power == 1.0 for table in state.tables)


def scan_some(rng: np.random.Generator, state: State) -> int:
    """Draw the clusters of some rows, chosen at random, each given those of all others.

    Returns how many have moved.
    """
    n_runs = -(-state.n // RUN)
    n_chosen = min(n_runs, -(-max(LEAST_SCANNED, state.n // ROWS_PER_SCANNED) // RUN))
    runs = rng.choice(n_runs, size=n_chosen, replace=False)
    rows = (runs[:, None] * RUN + np.arange(RUN)).ravel()
    rows = rows[rows < state.n]
    return gibbs_scan(rng, state, rows)


def scan(
    rng: np.random.Generator, state: State, n_scans: int, n_leader_sweeps: int, threads: int | Threads
) -> int:
    """Run scans, of some of the rows after leader sweeps if there are any; return relocations of single rows."""
    if n_leader_sweeps == 0:
        return sweep(rng, state, 1, n_scans, 0, 0)
    n_moved = 0
    for _ in range(n_scans):
        for _ in range(n_leader_sweeps):
            n_moved += leader_sweep(rng, state, threads)
        n_moved += carvings(rng, state, max(N_BIRTHS, state.n // ROWS_PER_BIRTH), 1, 1)
        n_moved += scan_some(rng, state)
    return n_moved


def sweep_many(
    rng: np.random.Generator,
    state: State,
    n_leader_sweeps: int,
    n_threads: int,
    n_sweeps: int,
    n_scans: int,
    *numbers: int,
) -> int:
    """Run sweeps (:func:`~pymc_dpgmm.sampler.moves.sweep.sweep`) whose scans are made of leader sweeps."""
    n_moved = 0
    with Threads(n_threads) as threads:
        for _ in range(n_sweeps):
            redraw_alpha(rng, state)
            n_moved += scan(rng, state, n_scans, n_leader_sweeps, threads)
            carvings(rng, state, N_CARVINGS)
            make_moves(rng, state, *numbers)
    return n_moved
