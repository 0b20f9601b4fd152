"""Which moves make up a draw of the labels, and how their number is chosen while a chain tunes."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.dispatch import compiled
from pymc_dpgmm.families.units import uses_scratch
from pymc_dpgmm.kernels.block_scan import available_threads, block_scan
from pymc_dpgmm.kernels.concentration import redraw
from pymc_dpgmm.kernels.gibbs import gibbs_scan, random_order
from pymc_dpgmm.kernels.search import divided_anew, log_sum, search, without_one
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
from pymc_dpgmm.kernels.state import State, copy, count_clusters, log_joint, relabel

# Tuning draws that search, at most, and at most this share of all tuning draws.
SEARCH_DRAWS = 50
SEARCH_SHARE = 2 / 3
# A search is over when no cluster of this share of the rows has divided or united for some draws.
SETTLED_SHARE = 0.01
SETTLED_DRAWS = 10
# A searching draw repeats: search, then scans that let clusters settle into their new neighbourhood.
SEARCH_ROUNDS = 2
SEARCH_SCANS = 3
# Then one cluster is given up on trial, and one divided into any number; rows need more scans to settle where
# clusters overlap.
RIVAL_SCANS = 10
# Small data: sweeps are repeated within a draw until it holds about so many (row, cluster) pairs, since a draw
# costs about 100 microseconds outside its moves.
PAIRS_PER_DRAW = 25_000
MOST_SWEEPS = 8
# From so many rows on, scans work on blocks of rows.
MANY_ROWS = 20_000
# Sequential moves per sweep: as many as cost about as much as a scan, fewer if they are accepted less often than
# this, at least one.
MOST_MOVES = 40
WORTHWHILE = 0.01
# Arithmetic of a row in a proposed division, in (row, cluster) pairs of a Gibbs scan.
PAIRS_PER_ROW = 2


def check_count(name: str, value: Any, least: int) -> None:
    """Raise TypeError or ValueError unless a value is an integer of at least ``least``."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


class Options(NamedTuple):
    """What a user fixes of a draw; None where tuning decides."""

    n_sweeps: int | None = None
    n_scans: int = 1
    random: int | None = None
    sequential: int | None = None
    search: bool = True
    threads: int | None = None

    def check(self) -> "Options":
        """Return self.

        Raises
        ------
        TypeError, ValueError
            If a number is not an integer or too small, or nothing is left to do.
        """
        for name, least in (("n_sweeps", 1), ("n_scans", 0), ("random", 0), ("sequential", 0), ("threads", 1)):
            value = getattr(self, name)
            if value is None:
                continue
            check_count(name, value, least)
        if not isinstance(self.search, bool | np.bool_):
            raise TypeError(f"search must be True or False, got {self.search!r}")
        if self.n_scans == 0 and self.random == 0 and self.sequential == 0:
            raise ValueError("n_scans, random and sequential must not all be 0: nothing would move the labels")
        return self


@compiled()
def sweep(rng, prior, law, state, n_sweeps, n_scans, n_moves, tally):
    """Run Gibbs scans and split and merge moves in turn; all of it leaves the posterior invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    prior : NamedTuple
        A prior on partitions.
    law : NamedTuple
        Of the prior's parameters, which are drawn at the beginning of every sweep:
        see :mod:`pymc_dpgmm.kernels.concentration`.
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
    prior : NamedTuple
    n_moved : int
        Relocations of single rows.
    log_joint : float
    """
    n_moved = 0
    for _ in range(n_sweeps):
        prior = redraw(law, rng, prior, count_clusters(state), state.slots.shape[0])
        for _ in range(n_scans):
            state, moved = gibbs_scan(rng, prior, state, random_order(rng, state.slots.shape[0]))
            n_moved += moved
        if n_moves.sum() > 0:
            state = split_merge(rng, prior, state, n_moves, tally)
    return state, prior, n_moved, log_joint(prior, state)


def sweep_many(rng, prior, law, state, n_sweeps, n_scans, n_moves, tally, n_threads):
    """Do what :func:`sweep` does, with scans that use threads."""
    n_moved = 0
    for _ in range(n_sweeps):
        prior = redraw(law, rng, prior, count_clusters(state), len(state.slots))
        state, moved = scan(rng, prior, state, n_scans, n_threads)
        n_moved += moved
        if n_moves.sum() > 0:
            state = split_merge(rng, prior, state, n_moves, tally)
    return state, prior, n_moved, log_joint(prior, state)


def scan(rng: np.random.Generator, prior: Any, state: State, n_scans: int, n_threads: int) -> tuple[State, int]:
    """Run scans; return the state and the relocations of single rows."""
    n_moved = 0
    for _ in range(n_scans):
        if len(state.slots) < MANY_ROWS:
            state, moved = gibbs_scan(rng, prior, state, random_order(rng, state.slots.shape[0]))
        else:
            state, moved = block_scan(rng, prior, state, n_threads)
        n_moved += moved
    return state, n_moved


def explore(
    rng: np.random.Generator,
    prior: Any,
    law: Any,
    state: State,
    rounds: int,
    n_scans: int,
    rival_scans: int,
    n_threads: int = 1,
) -> tuple[State, Any, int, int, float]:
    """Search, for tuning: see :mod:`pymc_dpgmm.kernels.search`.

    Returns
    -------
    state : State
    prior : NamedTuple
    n_moved : int
        Relocations of single rows.
    largest : int
        Rows in the smaller half of the largest cluster that divided or united, or by which a cluster differs from
        that of the rival that took its place.
    merit : float
        Estimated log of the joint density summed over all labellings like the state's.
    """
    n_moved, largest = 0, 0
    for _ in range(rounds):
        prior = redraw(law, rng, prior, count_clusters(state), len(state.slots))
        state, changed = search(rng, prior, state)
        largest = max(largest, changed)
        state, moved = scan(rng, prior, state, n_scans, n_threads)
        n_moved += moved
    merit = log_joint(prior, state)
    rivals: list[State] = []
    if count_clusters(state) > 1:
        rival, _, merit = without_one(rng, prior, state)
        rivals.append(rival)
    if not rivals or len(state.slots) < MANY_ROWS or rng.random() < 0.5:
        # Pieces of one group unite again before they are judged.
        rivals.append(search(rng, prior, divided_anew(rng, prior, state))[0])
    # Where scans take long there is one trial.
    for rival in rivals if len(state.slots) < MANY_ROWS else rivals[-1:]:
        settled, _ = scan(rng, prior, rival, rival_scans, n_threads)
        rival_merit = log_sum(prior, settled)
        if np.log(rng.random()) < rival_merit - merit:
            largest = max(largest, _largest_change(state, settled))
            state, merit = settled, rival_merit
    return state, prior, n_moved, largest, merit


def _largest_change(state: State, other: State) -> int:
    """Return the largest difference of the sizes of clusters in two states, ordered by size."""
    sizes = [np.sort(s.sizes[1 : count_clusters(s) + 1])[::-1] for s in (state, other)]
    length = max(map(len, sizes))
    first, second = (np.pad(own, (0, length - len(own))) for own in sizes)
    return int(np.abs(first - second).max())


class Drawn(NamedTuple):
    """What a draw returns beside state and prior."""

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
    best_slots: np.ndarray | None = None
    best_merit: float = -np.inf
    pairs: float = 0.0
    draws: int = 0
    totals: np.ndarray = field(default_factory=lambda: np.zeros((len(MOVES), N_TALLIED), dtype=np.int64))

    def __post_init__(self) -> None:
        if self.options.search:
            self.search_left = min(int(SEARCH_SHARE * self.tune), SEARCH_DRAWS)

    def draw(
        self, rng: np.random.Generator, prior: Any, law: Any, state: State, tuning: bool
    ) -> tuple[State, Any, Drawn]:
        """Move the labels, and draw the prior's parameters if their law is given; in tuning, learn from it."""
        n = len(state.slots)
        n_threads = 1 if uses_scratch(state.stats) else self.options.threads or available_threads()
        if tuning and self.search_left > 0:
            return self._search(rng, prior, law, state, n_threads)
        if self.n_sweeps == 0:
            self._plan(n * count_clusters(state))
        tally = np.zeros_like(self.totals)
        given = (rng, prior, law, state, self.n_sweeps, self.options.n_scans, self.n_moves, tally)
        drawn = sweep(*given) if n < MANY_ROWS else sweep_many(*given, n_threads)
        state, prior, n_moved, joint = drawn
        if tuning:
            self.totals += tally
            self.pairs += n * count_clusters(state)
            self.draws += 1
            self._plan(self.pairs / self.draws)
        return state, prior, Drawn(n_moved, joint, tally, False)

    def _search(
        self, rng: np.random.Generator, prior: Any, law: Any, state: State, n_threads: int
    ) -> tuple[State, Any, Drawn]:
        """Search, and end the search with the best partition it has seen."""
        state, prior, n_moved, largest, merit = explore(
            rng, prior, law, state, SEARCH_ROUNDS, SEARCH_SCANS, RIVAL_SCANS, n_threads
        )
        if merit >= self.best_merit:
            self.best_slots, self.best_merit = state.slots.copy(), merit
        self.search_left -= 1
        self.settled = 0 if largest > SETTLED_SHARE * len(state.slots) else self.settled + 1
        if self.settled == SETTLED_DRAWS:
            self.search_left = 0
        if self.search_left == 0 and self.best_slots is not None:
            # Judged anew: rows and parameters may have changed since.
            best = relabel(copy(state), self.best_slots)
            if log_sum(prior, best) > merit:
                state = best
            self.best_slots = None
        return state, prior, Drawn(n_moved, log_joint(prior, state), np.zeros_like(self.totals), True)

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
