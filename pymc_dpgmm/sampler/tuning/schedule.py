"""Which moves make up a draw of the labels, and how their number is chosen while a chain tunes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, override

import numpy as np

from pymc_dpgmm.native.threads import available_threads
from pymc_dpgmm.sampler.amounts import (
    CLUSTERS_FOR_CARVINGS,
    EFFORT,
    EFFORT_AFTER_PART,
    FAR_APART,
    LEADERS_CHEAPER,
    LEAST_GUIDING,
    LONGEST_BEFORE,
    MANY_CLUSTERS,
    NUMBER_BEFORE,
    PAIRS_PER_MOVE,
    PAIRS_PER_ROW,
    RECOMBINING_SHARE,
    ROWS_FOR_LEADERS,
    ROWS_FOR_LEADERS_OF_MANY,
    ROWS_PER_SCANNED,
    SEARCH_DRAWS,
    SEARCH_DRAWS_AFTER_PART,
    SEARCH_LEADERS,
    SEARCH_SHARE,
    SETTLED_DRAWS,
    SETTLED_DRAWS_OF_PART,
    SETTLED_SHARE,
    SHARES_OF_COMPARISONS,
    SWEEPS_ALONE,
    TRIALS_IN_VAIN,
    TRIED_BEFORE,
    WORDS_CHEAPER,
    Effort,
    Sweeps,
)
from pymc_dpgmm.sampler.many_rows import many_rows, part_search
from pymc_dpgmm.sampler.many_rows.super_clusters import clusters_looked_at
from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.moves.move import MERGES, MERGES_TRIED, SPLITS, SPLITS_TRIED, WORK, Move, Paying
from pymc_dpgmm.sampler.moves.sweep import sweep
from pymc_dpgmm.sampler.state.provided import N_TALLIED
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.topics.topics import scans_of_words, sweep_words, words_of
from pymc_dpgmm.sampler.tuning.comparison import Abandoned, best_of_chains
from pymc_dpgmm.sampler.tuning.exchange import Mailbox
from pymc_dpgmm.sampler.tuning.exploration import Explored, explore, settled
from pymc_dpgmm.sampler.tuning.levels import Levels
from pymc_dpgmm.sampler.tuning.pool import Pool
from pymc_dpgmm.sampler.tuning.population import (
    ROUNDING,
    Population,
    can_put_together,
    can_recombine,
    relabelled,
)
from pymc_dpgmm.sampler.tuning.search import log_sum
from pymc_dpgmm.tables.checks import check_count


class Options(NamedTuple):
    """What a user fixes of a draw; None where tuning decides.

    ``moves`` tells how many moves of a kind a sweep has, by names of kinds; of kinds that are not there, tuning
    decides.
    """

    n_sweeps: int | None = None
    n_scans: int = 1
    moves: Mapping[str, int | None] = {}
    search: bool = True
    threads: int | None = None
    leader_sweeps: int | None = None

    def check(self) -> "Options":
        """Return self.

        Raises
        ------
        TypeError, ValueError
            If a number is not an integer or too small, or nothing is left to do.
        """
        least = {"n_sweeps": 1, "n_scans": 0, "threads": 1, "leader_sweeps": 0}
        numbers = {name: getattr(self, name) for name in least}
        for name, number in (numbers | dict(self.moves)).items():
            if number is not None:
                check_count(name, number, least.get(name, 0))
        if not isinstance(self.search, bool | np.bool_):
            raise TypeError(f"search must be True or False, got {self.search!r}")
        left = [name for name, move in MOVES.items() if self.moves.get(name, None if move.is_usual else 0) != 0]
        if self.n_scans == 0 and not left:
            names = " and ".join(["n_scans", *(name for name, move in MOVES.items() if move.is_usual)])
            raise ValueError(f"{names} must not all be 0: nothing would move the labels")
        if self.n_scans == 0 and self.leader_sweeps:
            raise ValueError("leader_sweeps go before scans, and n_scans is 0: leave one of them out")
        return self


class Mix(NamedTuple):
    """How a draw sweeps.

    Parameters
    ----------
    has_leaders : bool
        Whether leader sweeps go before scans.
    cheaper : float
        How many times less a scan costs than one of all rows.
    sweep : callable
        ``(n_sweeps, n_scans, *numbers) -> n_moved``, with a number of moves for each kind.
    divides : bool
        Whether draws of tuning make the most moves of every kind whose number is a ``Paying``.
    """

    has_leaders: bool
    cheaper: float
    sweep: Callable[..., int]
    divides: bool = False


class Ended(NamedTuple):
    """How a search has ended: with the clusters that it has kept, if they can be put together.

    ``in_one_place`` tells whether searches of the chain have met; of a single one, whether it came to an end, or
    was too short to tell.
    """

    pool: Pool | None
    has_recombined: bool
    in_one_place: bool


class DrawReport(NamedTuple):
    """What a draw of the labels tells; with ``rest``, whatever else depends on them, at those that were drawn."""

    n_moved: int
    log_joint: float
    tally: np.ndarray
    searching: bool
    rest: Any = None


def no_tally() -> np.ndarray:
    """Return the tally of a draw without moves: a row for each kind."""
    return np.zeros((len(MOVES), N_TALLIED), dtype=np.int64)


class LabelsSchedule:
    """How one chain's draws move labels. Kinds of them differ in what moves there are, and in what tuning does."""

    # What the chain had found alone, if it has begun anew elsewhere; of several, what was farthest below.
    left: Abandoned | None = None

    @property
    def tries_scales(self) -> bool:
        """Whether divisions are tried with a learnt scale."""
        return False

    def searches(self, tuning: bool) -> bool:
        """Tell whether the next draw is a search, or compares what all chains have found."""
        return False

    def begin_draw(self) -> None:
        """Count a draw of tuning, also one in which labels have no posterior and wait."""

    def end_draw(self) -> None:
        """Keep no other chain waiting that expects to hear of this draw."""

    def leave(self) -> None:
        """Keep no other chain waiting."""

    def note_trial(self, was_taken: bool) -> None:
        """Note a trial with a learnt scale; a search goes on from what it has found."""

    def draw(self, rng: np.random.Generator, state: Any, tuning: bool, rest: Any) -> tuple[Any, DrawReport]:
        """Move the labels of a state, which is returned, or another; in tuning, learn from it.

        ``rest`` is whatever else depends on the labels, None if nothing does.
        """
        raise NotImplementedError


@dataclass
class Schedule(LabelsSchedule):
    """Draws of labels on which mixtures alone depend: moves are chosen in tuning, then fixed.

    Parameters
    ----------
    options : Options
    tune : int
        Number of tuning draws.
    sweeps : Sweeps
    others : Mailbox, optional
        Where the best partitions that other chains' searches have found can be heard of.
    recombines : bool, optional
        Whether a search that does not end in one place goes on with a population.
    levels : Levels, optional
        What chains of topics tell each other, for which there are no searches.
    """

    options: Options
    tune: int
    sweeps: Sweeps = SWEEPS_ALONE
    others: Mailbox | None = None
    recombines: bool = True
    levels: Levels | None = None
    left: Abandoned | None = None
    settled_draws: int = SETTLED_DRAWS
    n_sweeps: int = 0
    n_clusters_planned_for: float = 0.0
    numbers: dict[str, float] = field(default_factory=dict)
    search_left: int = 0
    has_searched_part: bool = False
    effort: Effort = EFFORT
    settled: int = 0
    trials_in_vain: int = 0
    best_labels: np.ndarray | None = None
    best_merit: float = -np.inf
    population: Population | None = None
    recombining_left: int = 0
    pairs: float = 0.0
    clusters: int = 0
    draws: int = 0
    n_tuning: int = 0
    # What a search has ended with that is still to be compared with other chains', and the draws for that.
    ended: Ended | None = None
    draws_of_comparisons: tuple[int, ...] = ()
    totals: np.ndarray = field(default_factory=no_tally)

    def __post_init__(self) -> None:
        if self.options.search:
            draws = int(SEARCH_SHARE * self.tune)
            self.search_left = min(draws, SEARCH_DRAWS)
            if self.recombines:
                self.recombining_left = min(draws - self.search_left, int(RECOMBINING_SHARE * self.tune))

        if self.others is not None:
            first = (int(SEARCH_SHARE * self.tune) + 1,) if self.others.has_fixed_draw else ()
            self.draws_of_comparisons = (*first, *(int(share * self.tune) for share in SHARES_OF_COMPARISONS))

    @override
    def searches(self, tuning: bool) -> bool:
        return tuning and (self.search_left > 0 or self._compares)

    @property
    def _compares(self) -> bool:
        return self.search_left == 0 and self.ended is not None and self.n_tuning in self.draws_of_comparisons

    @override
    def begin_draw(self) -> None:
        self.n_tuning += 1
        if self.levels is not None:
            self.levels.begin_draw()

    @override
    def end_draw(self) -> None:
        if self.levels is not None:
            self.levels.end_draw()
        if self.others is not None and self.n_tuning in self.draws_of_comparisons:
            # The first comparison is in one of these draws, or was when the search had ended.
            before = 0 if self.others.has_fixed_draw else 1
            self.others.end_comparison(before + sum(draw <= self.n_tuning for draw in self.draws_of_comparisons))

    @property
    @override
    def tries_scales(self) -> bool:
        """Whether divisions are tried with a learnt scale: before any recombination, until some were in vain."""
        return self.search_left > 0 and self.population is None and self.trials_in_vain < TRIALS_IN_VAIN

    @override
    def note_trial(self, was_taken: bool) -> None:
        if was_taken:
            self.trials_in_vain = self.settled = 0
        else:
            self.trials_in_vain += 1

    def draw(
        self, rng: np.random.Generator, state: State, tuning: bool, rest: Any = None
    ) -> tuple[State, DrawReport]:
        """Move the labels, and draw the prior's alpha if its law is given; in tuning, learn from it."""
        n_threads = self.options.threads or available_threads()
        searches = self.searches(tuning)
        n_leader_sweeps = self._leader_sweeps(state, searches)
        if searches:
            return self._search(rng, state, n_leader_sweeps, n_threads)
        mix = self._mix(rng, state, n_leader_sweeps, n_threads)
        if self.n_sweeps == 0:
            self._plan(state.n * state.n_clusters / mix.cheaper, state.n_clusters, mix.has_leaders)
        state.tally[:] = 0
        numbers = [self._number(rng, move, state, mix, tuning) for move in MOVES.values()]
        n_scans = self.options.n_scans
        if mix.divides and self.options.n_sweeps is None:
            n_scans *= scans_of_words(state.n)
        n_moved = mix.sweep(self.n_sweeps, n_scans, *numbers)
        tally = state.tally.copy()
        if tuning:
            self.totals += tally
            self.pairs += state.n * state.n_clusters / mix.cheaper
            self.clusters += state.n_clusters
            self.draws += 1
            self._plan(self.pairs / self.draws, self.clusters / self.draws, mix.has_leaders)
        log_joint = state.log_joint()
        better = self.levels.better(log_joint, state.labels) if tuning and self.levels is not None else None
        if better is not None and self.levels is not None:
            self.left = self.levels.left
            state.relabel(better)
        return state, DrawReport(n_moved, log_joint, tally, False)

    @override
    def leave(self) -> None:
        if self.others is not None:
            self.others.leave()

    def _mix(self, rng: np.random.Generator, state: State, n_leader_sweeps: int, n_threads: int) -> Mix:
        """Return how a draw sweeps."""
        words = words_of(state)
        if words is not None:
            # They do not look at all pairs. Topics are found by divisions, which are accepted the less often the
            # more there are of them.
            return Mix(False, WORDS_CHEAPER, partial(sweep_words, rng, state, words), divides=True)
        if n_leader_sweeps:
            looked_at = clusters_looked_at(state.n, state.n_clusters) / state.n_clusters
            of_sweeps = n_leader_sweeps * looked_at / LEADERS_CHEAPER
            cheaper = 1.0 / (of_sweeps + 1.0 / ROWS_PER_SCANNED)
            return Mix(True, cheaper, partial(many_rows.sweep_many, rng, state, n_leader_sweeps, n_threads))
        return Mix(False, 1.0, partial(sweep, rng, state))

    def _leader_sweeps(self, state: State, searches: bool) -> int:
        """Return how many leader sweeps go before a scan: by default one where there are many rows.

        How many rows these are depends on the clusters of tuning, and not on the present ones: exact draws must
        not choose their moves by the labels.

        Raises
        ------
        NotImplementedError
            If some are asked for where there can be none.
        """
        wanted = self.options.leader_sweeps
        if self.options.n_scans == 0:
            return 0
        if many_rows.takes_leaders(state):
            has_many = (self.n_clusters_planned_for or state.n_clusters) >= MANY_CLUSTERS
            fewest = ROWS_FOR_LEADERS_OF_MANY if has_many and not searches else ROWS_FOR_LEADERS
            return int(state.n >= fewest) if wanted is None else wanted
        if wanted:
            raise NotImplementedError(
                "there are no leader sweeps for rows in units or groups, with known labels or powers, or with so "
                "many columns that scans work with pairs of rows; leave out leader_sweeps"
            )
        return 0

    def _search(
        self, rng: np.random.Generator, state: State, n_leader_sweeps: int, n_threads: int
    ) -> tuple[State, DrawReport]:
        """Search, and end the search with the best partition it has seen; or compare it with other chains'."""
        if self._compares:
            state = self._compared(rng, state, n_leader_sweeps, n_threads)
            return state, DrawReport(0, state.log_joint(), np.zeros_like(self.totals), True)
        if self.population is not None:
            return self._recombine(rng, state, self.population, n_leader_sweeps, n_threads)
        if not self.has_searched_part and n_leader_sweeps and part_search.has_part(state):
            part_search.search_part(rng, state, partial(searched, rng, self.options), n_threads)
            self.search_left = min(self.search_left, SEARCH_DRAWS_AFTER_PART)
            self.effort = EFFORT_AFTER_PART
        if not self.has_searched_part and self.recombining_left and can_recombine(state):
            self.search_left = min(self.search_left, LONGEST_BEFORE)
        self.has_searched_part = True
        found = explore(rng, state, self.effort, n_leader_sweeps * SEARCH_LEADERS, n_threads)
        state = found.state
        has_changed = found.largest > SETTLED_SHARE * state.n or found.merit > self.best_merit + FAR_APART
        if found.merit >= self.best_merit:
            self.best_labels, self.best_merit = state.labels(), found.merit
        self.search_left -= 1
        self.settled = 0 if has_changed else self.settled + 1
        if self.settled == self.settled_draws:
            self.search_left = 0
        if self.search_left == 0 and self.best_labels is not None:
            state, merit = self._best(state, found.merit, self.best_labels)
            self.best_labels = None
            if self.recombining_left and can_recombine(state):
                self.population = Population(Pool(state.n))
                self.search_left = self.recombining_left
            else:
                pool = Pool(state.n) if can_put_together(state) else None
                # Too few draws of tuning to recombine clusters are too few to find out whether searches meet.
                ended = Ended(pool, False, can_recombine(state) or self.settled == self.settled_draws)
                state = self._ended(rng, state, merit, partial(settled, rng), ended)
        return state, DrawReport(found.n_moved, state.log_joint(), np.zeros_like(self.totals), True)

    def _recombine(
        self, rng: np.random.Generator, state: State, population: Population, n_leader_sweeps: int, n_threads: int
    ) -> tuple[State, DrawReport]:
        """Search on with a population, whose best partition the chain stays with."""
        n_moved = 0

        def explored(from_there: State) -> Explored:
            nonlocal n_moved
            found = explore(rng, from_there, self.effort, n_leader_sweeps * SEARCH_LEADERS, n_threads)
            n_moved += found.n_moved
            return found

        state, merit = population.draw(rng, state, explored)
        self.search_left = 0 if population.is_over else self.search_left - 1
        if self.search_left == 0:
            self.population = None
            state = self._ended(rng, state, merit, explored, Ended(population.pool, True, population.has_met))
        return state, DrawReport(n_moved, state.log_joint(), np.zeros_like(self.totals), True)

    def _best(self, state: State, merit: float, labels: np.ndarray) -> tuple[State, float]:
        """Return the better one of a search's last and its best state, judged anew, with its merit.

        Rows and parameters may have changed.
        """
        best = relabelled(state, labels)
        best_merit = log_sum(best)
        return (best, best_merit) if best_merit > merit + ROUNDING else (state, merit)

    def _ended(
        self,
        rng: np.random.Generator,
        state: State,
        merit: float,
        explored: Callable[[State], Explored],
        ended: Ended,
    ) -> State:
        """Compare what a search has ended with, unless chains do that for the first time in a certain draw."""
        if self.others is None or not self.others.has_fixed_draw:
            return self._best_of_chains(rng, state, merit, explored, ended)
        self.ended = ended
        return state

    def _guided(self, state: State, ended: Ended, has_met: bool) -> State:
        """Let the clusters that all chains have found guide moves; compare again where there are many of them."""
        self.ended = None
        if ended.pool is not None and not has_met:
            clusters = ended.pool.clusters.values()
            state.set_guides([rows for rows in clusters if len(rows) >= LEAST_GUIDING])
            if state.n_clusters >= CLUSTERS_FOR_CARVINGS:
                self.ended = ended
        if self.ended is None:
            self.leave()
        return state

    def _compared(self, rng: np.random.Generator, state: State, n_leader_sweeps: int, n_threads: int) -> State:
        """Compare in such a draw what the search had ended with, from where exact draws have led since."""
        ended = self.ended
        assert ended is not None
        explored: Callable[[State], Explored] = partial(settled, rng)
        if ended.has_recombined:
            explored = partial(
                explore,
                rng,
                effort=self.effort,
                n_leader_sweeps=n_leader_sweeps * SEARCH_LEADERS,
                n_threads=n_threads,
            )
        return self._best_of_chains(rng, state, log_sum(state), explored, ended)

    def _best_of_chains(
        self,
        rng: np.random.Generator,
        state: State,
        merit: float,
        explored: Callable[[State], Explored],
        ended: Ended,
    ) -> State:
        """Return the state that a chain goes on from, with what guides its moves."""
        if self.others is None:
            return self._guided(state, ended, ended.in_one_place)
        found = best_of_chains(rng, state, merit, explored, self.others, ended.pool, ended.in_one_place)
        self.left = max(filter(None, (self.left, found.left)), default=None)
        return self._guided(found.state, ended, found.has_met)

    def _plan(self, pairs: float, n_clusters: float, has_leaders: bool) -> None:
        """Choose the numbers that the user left open, given what a scan costs in (row, cluster) pairs."""
        most = self.sweeps.most
        self.n_clusters_planned_for = n_clusters
        self.n_sweeps = self.options.n_sweeps or int(np.clip(self.sweeps.pairs // (2.0 * pairs), 1, most))
        for move, tally in zip(MOVES.values(), self.totals, strict=True):
            amount = _amount(move, has_leaders)
            fixed = self.options.moves.get(move.name)
            if fixed is None:
                fixed = amount if isinstance(amount, int) else None
            self.numbers[move.name] = _paying_number(amount, tally, pairs, n_clusters) if fixed is None else fixed

    def _number(self, rng: np.random.Generator, move: Move, state: State, mix: Mix, tuning: bool) -> int:
        """Draw how many moves of a kind a sweep has."""
        if not move.in_groups and state.is_grouped:
            return 0
        amount, fixed = _amount(move, mix.has_leaders), self.options.moves.get(move.name)
        if mix.divides and tuning and fixed is None and isinstance(amount, Paying):
            return amount.most
        return _drawn_number(rng, self.numbers[move.name])


def _amount(move: Move, has_leaders: bool) -> int | Paying:
    return move.beside_leaders if has_leaders else move.beside_scans


def _paying_number(amount: Any, tally: np.ndarray, pairs: float, n_clusters: float) -> float:
    """Return how many moves of a kind pay beside a scan of some (row, cluster) pairs, given all counted so far."""
    if n_clusters < amount.fewest_clusters:
        return 0
    tried = tally[SPLITS_TRIED] + tally[MERGES_TRIED]
    if not tried:
        return NUMBER_BEFORE
    accepted = (tally[SPLITS] + tally[MERGES] + TRIED_BEFORE * amount.worthwhile) / (tried + TRIED_BEFORE)
    affordable = amount.worth * pairs / (PAIRS_PER_MOVE + PAIRS_PER_ROW * tally[WORK] / tried)
    paying = min(1.0, accepted / amount.worthwhile) ** amount.fade
    wanted = float(np.clip(affordable * paying, amount.least, amount.most))
    return wanted if wanted < 1.0 else int(wanted)


def _drawn_number(rng: np.random.Generator, planned: float) -> int:
    """Draw a whole number that is the planned one on average."""
    whole = int(planned)
    rest = planned - whole
    return whole + int(rest > 0.0 and rng.random() < rest)


def searched(
    rng: np.random.Generator,
    options: Options,
    state: State,
    effort: Effort = EFFORT,
    settled_draws: int = SETTLED_DRAWS_OF_PART,
) -> State:
    """Return a state after a search of its own, as in tuning."""
    schedule = Schedule(options, SEARCH_DRAWS, settled_draws=settled_draws, effort=effort, recombines=False)
    while schedule.searches(True):
        state, _ = schedule.draw(rng, state, True)
    return state
