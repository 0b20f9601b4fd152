"""Sweeps: scans of all rows, and moves of all kinds, in turn, each of which leaves the posterior invariant."""

import numpy as np
from numba.extending import intrinsic

from pymc_dpgmm.native.compiled import INT, INTS, NOTHING, address_of, c_function, called_at, inlined
from pymc_dpgmm.sampler.amounts import MOST_METROPOLIZED
from pymc_dpgmm.sampler.moves.concentration import redraw
from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.moves.scans import scan_rows
from pymc_dpgmm.sampler.state.choices import shuffle_rows
from pymc_dpgmm.sampler.state.grouping import are_grouped, redraw_shares, shuffle_groups
from pymc_dpgmm.sampler.state.memory import (
    DONE,
    NEEDS_ROOM,
    memory_at,
)
from pymc_dpgmm.sampler.state.state import State


@intrinsic
def _call_move(typing_context, address, head):
    return called_at(NOTHING(INTS))


@inlined
def _make_moves(s):
    """Make moves from that at ``s.position`` on; return whether all have been made."""
    first = 0
    for kind in range(s.n_kinds):
        s.kind = kind
        stop = first + s.n_of_kind[kind]
        while first <= s.position < stop:
            if s.n_clusters + s.slots_of_kind[kind] > s.capacity:
                return False
            _call_move(s.kernels[kind], s.head)
            s.position += 1
        first = stop
    return True


@c_function(INT(INTS, INT, INT, INT))
def run_sweeps(head, n_sweeps, n_scans, metropolized):
    """Run sweeps, from the one that the head says on.

    Scans of rows in groups are not ``metropolized``: a row that stays alone in its cluster draws the cluster's
    share anew, which is a change.
    """
    s = memory_at(head)
    if are_grouped(s):
        metropolized = 0
    while s.sweep < n_sweeps:
        if s.phase == 0:
            if are_grouped(s):
                redraw_shares(s)
            else:
                redraw(s)
            s.phase = 1
        while s.phase <= n_scans:
            if s.sweep == 0 and s.phase == 1 and s.position == 0:
                # Every order of rows leaves the posterior invariant: they are shuffled once a call.
                if are_grouped(s):
                    shuffle_groups(s)
                else:
                    shuffle_rows(s)
            told = s.scan_rows(head, s.queue, s.n, metropolized)
            if told != DONE:
                return told
            s.position = 0
            s.phase += 1
        if not _make_moves(s):
            return NEEDS_ROOM
        s.position = 0
        s.phase = 0
        s.sweep += 1
    return DONE


@c_function(INT(INTS))
def redraw_once(head):
    """Draw the prior's alpha, if its law is given."""
    redraw(memory_at(head))
    return DONE


def redraw_alpha(rng: np.random.Generator, state: State) -> None:
    """Draw the prior's alpha given the partition, if its law is given."""
    state.run(rng, redraw_once)


@c_function(INT(INTS))
def _run_moves(head):
    return DONE if _make_moves(memory_at(head)) else NEEDS_ROOM


def plan_moves(state: State, numbers: tuple[int, ...]) -> None:
    """Set how many moves of each kind a state's sweeps have, in the order of ``MOVES``; 0 where one is missing."""
    # Small data is drawn in less time than NumPy needs to fill an array.
    if numbers != state.planned:
        state.n_of_kind[: len(numbers)] = numbers
        state.n_of_kind[len(numbers) :] = 0
        # Those of kinds without a move may not have been compiled.
        for place, (move, number) in enumerate(zip(MOVES.values(), numbers, strict=False)):
            state.kernels[place] = move.kernel.address if number else 0
            state.slots_of_kind[place] = move.slots if number else 0
        state.planned = numbers


def gibbs_scan(rng: np.random.Generator, state: State, rows: np.ndarray) -> int:
    """Draw the clusters of rows, one after the other, each given those of all other rows.

    Row i joins a cluster of m other rows with probability proportional to its seating weight times the
    posterior predictive density of row i given those rows, or opens a cluster with the prior's weight for a
    new one times its prior predictive density (Neal 2000, eq. 3.7).

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Changed in place.
    rows : (m,) integer array
        The rows in the order in which they are drawn, such as a permutation of all.

    Returns
    -------
    int
        Number of rows whose set of companions was changed by their own draw.
    """
    rows = np.ascontiguousarray(rows, dtype=np.int64)
    return state.run(rng, scan_rows, address_of(rows), len(rows), 0)


def make_moves(rng: np.random.Generator, state: State, *numbers: int) -> None:
    """Make moves of all kinds, as many as told, in the order of ``MOVES``; ``state.tally`` counts them."""
    plan_moves(state, numbers)
    state.run(rng, _run_moves)


def sweep(rng: np.random.Generator, state: State, n_sweeps: int, n_scans: int, *numbers: int) -> int:
    """Run scans of all rows and moves in turn; all of it leaves the posterior invariant.

    Scans of up to ``MOST_METROPOLIZED`` rows draw a row's cluster given its last one too: see
    :func:`~pymc_dpgmm.sampler.state.choices.pick_metropolized`.

    Where the law of the prior's alpha is given, it is drawn at the beginning of every sweep.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Changed in place; ``state.tally`` counts the moves.
    n_sweeps, n_scans : int
        Each sweep is ``n_scans`` scans, then the moves.
    *numbers : int
        Moves of each kind per sweep, in the order of ``MOVES``.

    Returns
    -------
    int
        Relocations of single rows.
    """
    metropolized = int(state.n <= MOST_METROPOLIZED)
    plan_moves(state, numbers)
    n_moved = state.run(rng, run_sweeps, n_sweeps, n_scans, metropolized)
    if state.is_grouped:
        state.end_draw()
    return n_moved
