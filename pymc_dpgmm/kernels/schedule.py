"""Which moves make up a draw of the labels, and how their number is chosen while a chain tunes."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from pymc_dpgmm.kernels.gibbs import gibbs_scan
from pymc_dpgmm.kernels.search import prune, search
from pymc_dpgmm.kernels.split_merge import (
    MERGES,
    MERGES_TRIED,
    MOVES,
    N_TALLIED,
    RANDOM,
    SEQUENTIAL,
    SPLITS,
    SPLITS_TRIED,
    WORK,
    split_merge,
)
from pymc_dpgmm.kernels.state import State, count_clusters, log_joint

# Tuning draws that search, at most, and at most this share of all tuning draws.
SEARCH_DRAWS = 50
SEARCH_SHARE = 2 / 3
# A search is over when no cluster of this share of the rows has divided or united for some draws.
SETTLED_SHARE = 0.01
SETTLED_DRAWS = 10
# A searching draw repeats: search, then scans that let clusters settle into their new neighbourhood.
SEARCH_ROUNDS = 2
SEARCH_SCANS = 3
# Small data: sweeps are repeated within a draw until it holds about so many (row, cluster) pairs, since a draw
# costs about 100 microseconds outside its moves.
PAIRS_PER_DRAW = 25_000
MOST_SWEEPS = 10
# Sequential moves per sweep: as many as cost about as much as a scan, fewer if they are accepted less often than
# this, at least one.
MOST_MOVES = 10
WORTHWHILE = 0.05
# Arithmetic of a row in a proposed division, in (row, cluster) pairs of a Gibbs scan.
PAIRS_PER_ROW = 2


class Options(NamedTuple):
    """What a user fixes of a draw; None where tuning decides."""

    n_sweeps: int | None = None
    n_scans: int = 1
    random: int | None = None
    sequential: int | None = None
    search: bool = True

    def check(self) -> "Options":
        """Return self.

        Raises
        ------
        TypeError, ValueError
            If a number is not an integer or too small, or nothing is left to do.
        """
        for name, least in (("n_sweeps", 1), ("n_scans", 0), ("random", 0), ("sequential", 0)):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int | np.integer) or isinstance(value, bool):
                raise TypeError(f"{name} must be an integer, got {value!r}")
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if not isinstance(self.search, bool | np.bool_):
            raise TypeError(f"search must be True or False, got {self.search!r}")
        if self.n_scans == 0 and self.random == 0 and self.sequential == 0:
            raise ValueError("n_scans, random and sequential must not all be 0: nothing would move the labels")
        return self


@njit(cache=True, error_model="numpy")
def sweep(rng, prior, state, n_sweeps, n_scans, n_moves, tally):
    """Run Gibbs scans and split and merge moves in turn; all of it leaves the posterior invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    prior : NamedTuple
    state : State
        Canonical; changed in place.
    n_sweeps, n_scans : int
        Each sweep is ``n_scans`` scans, then the moves.
    n_moves : (2,) int64 array
        Moves of each kind per sweep.
    tally : (2, 7) int64 array
        See :func:`pymc_dpgmm.kernels.split_merge.split_merge`.

    Returns
    -------
    state : State
    n_moved : int
        Relocations of single rows.
    log_joint : float
    """
    n_moved = 0
    for _ in range(n_sweeps):
        for _ in range(n_scans):
            state, moved = gibbs_scan(rng, prior, state)
            n_moved += moved
        if n_moves.sum() > 0:
            state = split_merge(rng, prior, state, n_moves, tally)
    return state, n_moved, log_joint(prior, state)


@njit(cache=True, error_model="numpy")
def explore(rng, prior, state, rounds, n_scans):
    """Search, for tuning: see :mod:`pymc_dpgmm.kernels.search`.

    Returns
    -------
    state : State
    n_moved : int
        Relocations of single rows.
    largest : int
        Rows in the smaller half of the largest cluster that divided or united, or of one given up.
    log_joint : float
    """
    n_moved, largest = 0, 0
    for _ in range(rounds):
        state, changed = search(rng, prior, state)
        largest = max(largest, changed)
        for _ in range(n_scans):
            state, moved = gibbs_scan(rng, prior, state)
            n_moved += moved
    state, given_up = prune(rng, prior, state, n_scans)
    return state, n_moved, max(largest, given_up), log_joint(prior, state)


class Drawn(NamedTuple):
    """What a draw returns beside the state."""

    n_moved: int
    log_joint: float
    tally: np.ndarray
    searching: bool


@dataclass
class Schedule:
    """The moves of one chain's draws: chosen in tuning, then fixed.

    Parameters
    ----------
    options : Options
    tune : int
        Number of tuning draws.
    """

    options: Options
    tune: int
    n_sweeps: int = 0
    n_moves: np.ndarray = field(default_factory=lambda: np.zeros(len(MOVES), dtype=np.int64))
    search_left: int = 0
    settled: int = 0
    pairs: float = 0.0
    draws: int = 0
    totals: np.ndarray = field(default_factory=lambda: np.zeros((len(MOVES), N_TALLIED), dtype=np.int64))

    def __post_init__(self) -> None:
        if self.options.search:
            self.search_left = min(int(SEARCH_SHARE * self.tune), SEARCH_DRAWS)

    def draw(self, rng: np.random.Generator, prior: Any, state: State, tuning: bool) -> tuple[State, Drawn]:
        """Move the labels; in tuning, learn from it."""
        n = len(state.slots)
        if tuning and self.search_left > 0:
            state, n_moved, largest, joint = explore(rng, prior, state, SEARCH_ROUNDS, SEARCH_SCANS)
            self.search_left -= 1
            self.settled = 0 if largest > SETTLED_SHARE * n else self.settled + 1
            if self.settled == SETTLED_DRAWS:
                self.search_left = 0
            return state, Drawn(n_moved, joint, np.zeros_like(self.totals), True)
        if self.n_sweeps == 0:
            self._plan(n * count_clusters(state))
        tally = np.zeros_like(self.totals)
        scans = self.options.n_scans
        state, n_moved, joint = sweep(rng, prior, state, self.n_sweeps, scans, self.n_moves, tally)
        if tuning:
            self.totals += tally
            self.pairs += n * count_clusters(state)
            self.draws += 1
            self._plan(self.pairs / self.draws)
        return state, Drawn(n_moved, joint, tally, False)

    def _plan(self, pairs: float) -> None:
        """Choose the numbers that the user left open, given (row, cluster) pairs of a scan."""
        options = self.options
        self.n_sweeps = options.n_sweeps or int(np.clip(PAIRS_PER_DRAW // (2.0 * pairs), 1, MOST_SWEEPS))
        self.n_moves[RANDOM] = 1 if options.random is None else options.random
        self.n_moves[SEQUENTIAL] = 3 if options.sequential is None else options.sequential
        seen = self.totals[SEQUENTIAL]
        tried = seen[SPLITS_TRIED] + seen[MERGES_TRIED]
        if options.sequential is None and tried:
            # Before anything is seen, one move in ten counts as accepted.
            accepted = (seen[SPLITS] + seen[MERGES] + 1) / (tried + 10)
            affordable = pairs / (PAIRS_PER_ROW * max(seen[WORK] / tried, 1.0))
            self.n_moves[SEQUENTIAL] = int(np.clip(affordable * min(1.0, accepted / WORTHWHILE), 1, MOST_MOVES))
