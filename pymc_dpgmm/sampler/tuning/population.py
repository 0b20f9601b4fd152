"""Several partitions whose clusters a search recombines, where it does not end in one place.

Searches that begin anew end at partitions that each have good clusters in some regions of the data, and poor ones
in others. :mod:`~pymc_dpgmm.sampler.tuning.pool` puts the good ones of all of them together, and a search goes on
from there. For tuning only, as all of a search.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_dpgmm.sampler.amounts import (
    DRAWS_IN_VAIN,
    DRAWS_OF_FIRST,
    DRAWS_OF_START,
    DRAWS_PER_START,
    FAR_APART,
    MOST_CLUSTERS_OF_START,
    ROWS_TOO_MANY_TO_PUT_TOGETHER,
    ROWS_TOO_MANY_TO_RECOMBINE,
    SEARCHES_THAT_MEET,
)
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.exploration import Explored
from pymc_dpgmm.sampler.tuning.pool import Pool
from pymc_dpgmm.sampler.tuning.search import log_sum

# Merits of one partition differ by rounding, which must not decide between two states of it: the order of the
# clusters differs, and so would all later draws.
ROUNDING = 1e-6
# A draw that makes a partition more probable by no more than this is in vain: merits are estimates.
GAIN = 1.0


def can_put_together(state: State) -> bool:
    """Tell whether clusters of partitions can be put together: not those of very many rows, groups, or words."""
    return state.n < ROWS_TOO_MANY_TO_PUT_TOGETHER and state.groups is None and state.words is None


def can_recombine(state: State) -> bool:
    """Tell whether a search goes on with recombined clusters: not where a draw takes long."""
    return state.n < ROWS_TOO_MANY_TO_RECOMBINE and can_put_together(state)


type Explore = Callable[[State], Explored]


@dataclass
class Population:
    """Partitions whose clusters a search recombines.

    Parameters
    ----------
    pool : Pool
    n_meeting : int
        How many searches, from other starts, have ended equally probable as the best one.
    n_draws : int
    n_begun : int
        How many of the draws were searches from other starts.
    n_in_vain : int
        How many of the last draws have come to nothing.
    """

    pool: Pool
    n_meeting: int = 1
    n_draws: int = 0
    n_begun: int = 0
    n_in_vain: int = 0

    @property
    def has_met(self) -> bool:
        """Whether the first searches have all ended equally probable, so that there is nothing to recombine."""
        return self.n_draws == SEARCHES_THAT_MEET - 1 and self.n_meeting == SEARCHES_THAT_MEET

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to recombine, or nothing has come of it for many draws."""
        return self.has_met or self.n_in_vain >= DRAWS_IN_VAIN

    @property
    def begins(self) -> bool:
        """Whether the next draw searches from another start."""
        return self.n_draws < SEARCHES_THAT_MEET - 1 or self.n_draws % DRAWS_PER_START == 0

    def draw(self, rng: np.random.Generator, state: State, explore: Explore) -> tuple[State, float]:
        """Search from another start, or from clusters of several partitions put together.

        Returns
        -------
        state : State
            The better one of the chain's and the new one.
        merit : float
            Its estimated log of the joint density summed over all labellings like it.
        """
        merit = log_sum(state)
        self.pool.add(state.labels())
        if self.begins:
            rival = self._begun(rng, state, merit, explore)
        else:
            rival = explore(recombined(rng, state, self.pool))
            self.pool.add(rival.state.labels())
        self.n_draws += 1
        self.n_in_vain = 0 if rival.merit > merit + GAIN else self.n_in_vain + 1
        return (rival.state, rival.merit) if rival.merit > merit + ROUNDING else (state, merit)

    def _begun(self, rng: np.random.Generator, state: State, best: float, explore: Explore) -> Explored:
        """Search from another start, until it meets the chain's state, the best one, or for some draws."""
        n_clusters = 1 if self.n_begun % 2 == 0 else int(min(MOST_CLUSTERS_OF_START, state.most, state.n))
        self.n_begun += 1
        found = relabelled(state, rng.integers(n_clusters, size=state.n))
        if not found.log_joint() > -np.inf:
            # Where rows are known to be apart, or together.
            found = relabelled(state, state.labels())
        reached = Explored(found, 0, 0, -np.inf)
        for _ in range(DRAWS_OF_FIRST if self.n_begun < SEARCHES_THAT_MEET else DRAWS_OF_START):
            explored = explore(found)
            found = explored.state
            self.pool.add(found.labels())
            if explored.merit > reached.merit:
                reached = explored._replace(state=found.copy())
            if abs(reached.merit - best) < FAR_APART:
                break
        if reached.merit >= best + FAR_APART:
            self.n_meeting = 1
        elif reached.merit > best - FAR_APART:
            self.n_meeting += 1
        return reached


def recombined(rng: np.random.Generator, state: State, pool: Pool) -> State:
    """Return a copy of a state with a partition put together from the clusters of a pool.

    It has its own where that cannot be: more clusters than the prior allows, or rows together that are known to be
    apart.
    """
    child = relabelled(state, pool.recombined(rng, state))
    return child if child.log_joint() > -np.inf else relabelled(state, state.labels())


def relabelled(state: State, labels: np.ndarray) -> State:
    """Return a copy of a state with another partition."""
    other = state.copy()
    other.relabel(labels)
    return other
