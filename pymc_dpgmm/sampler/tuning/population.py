"""Several partitions that a search crosses with each other, where it does not end in one place.

Searches that begin anew end at partitions that each have good clusters in some regions of the data, and poor ones
in others. A child takes whole regions from one of two partitions and the rest from the other: what they agree on
stays, and the good parts of both come together (for means of clusters, Gribel and Vidal 2019; regions are those of
the partition crossover of Whitley, Hains and Howe 2009). For tuning only, as all of a search.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pymc_dpgmm.native.interrupts import imported
from pymc_dpgmm.sampler.amounts import (
    DRAWS_OF_MEMBER,
    FAR_APART,
    MOST_CLUSTERS_OF_START,
    POPULATION,
    ROWS_TOO_MANY_TO_CROSS,
    SEARCHES_THAT_MEET,
)
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.exploration import Explored
from pymc_dpgmm.sampler.tuning.search import log_sum

# The share of crossings by regions; the others are by pairs of clusters.
BY_REGIONS = 0.75
# Two clusters are of one region if they share more than one of these parts of the rows of the smaller one.
SHARED_PARTS = (0.05, 0.1, 0.2, 0.3)
# Merits of one partition differ by rounding, which must not decide between two states of it: the order of the
# clusters differs, and so would all later draws.
ROUNDING = 1e-6


def can_cross(state: State) -> bool:
    """Tell whether the partitions of a state can be crossed: not those of many rows, of groups, or of words."""
    return state.n < ROWS_TOO_MANY_TO_CROSS and state.groups is None and state.words is None


type Explore = Callable[[State], Explored]


@dataclass
class Population:
    """Partitions that are crossed.

    Parameters
    ----------
    members : list of (n,) int arrays
        Canonical labels, beginning with the chain's own.
    n_meeting : int
        How many searches, from other starts, have ended equally probable as the best one.
    """

    members: list[np.ndarray]
    n_meeting: int = 1

    @property
    def has_met(self) -> bool:
        """Whether several searches have ended equally probable, so that there is nothing to cross."""
        return self.n_meeting >= SEARCHES_THAT_MEET

    @property
    def is_full(self) -> bool:
        """Whether there are as many members as there shall be."""
        return len(self.members) >= POPULATION

    def draw(self, rng: np.random.Generator, state: State, explore: Explore) -> tuple[State, float]:
        """Add a member, or cross two; return the better one of the chain's state and the new one, with its merit.

        Parameters
        ----------
        rng : numpy.random.Generator
        state : State
            The chain's.
        explore : callable
            See :func:`~pymc_dpgmm.sampler.tuning.exploration.explore`.
        """
        merit = log_sum(state)
        rival = self._child(rng, state, explore) if self.is_full else self._begun(rng, state, merit, explore)
        return (rival.state, rival.merit) if rival.merit > merit + ROUNDING else (state, merit)

    def _begun(self, rng: np.random.Generator, state: State, best: float, explore: Explore) -> Explored:
        """Search from another start, until it meets the chain's state, the best one, or for some draws."""
        n_clusters = 1 if len(self.members) % 2 else int(min(MOST_CLUSTERS_OF_START, state.most, state.n))
        found = relabelled(state, rng.integers(n_clusters, size=state.n))
        if not found.log_joint() > -np.inf:
            # Where rows are known to be apart, or together.
            found = relabelled(state, state.labels())
        reached = Explored(found, 0, 0, -np.inf)
        for _ in range(DRAWS_OF_MEMBER):
            explored = explore(found)
            found = explored.state
            if explored.merit > reached.merit:
                reached = explored._replace(state=found.copy())
            if abs(reached.merit - best) < FAR_APART:
                break
        self.members.append(reached.state.labels())
        if reached.merit >= best + FAR_APART:
            self.n_meeting = 1
        elif reached.merit > best - FAR_APART:
            self.n_meeting += 1
        return reached

    def _child(self, rng: np.random.Generator, state: State, explore: Explore) -> Explored:
        """Cross the better ones of two pairs. The child takes the place of the worse of the others if better.

        All are judged now, since rows and parameters change between draws.
        """
        chosen = rng.choice(len(self.members), 4, replace=False).tolist()
        merits = {k: log_sum(relabelled(state, self.members[k])) for k in chosen}
        (loser, first), (other, second) = (
            sorted(pair, key=merits.__getitem__) for pair in (chosen[:2], chosen[2:])
        )
        last = min(loser, other, key=merits.__getitem__)
        child = relabelled(state, crossed(rng, self.members[first], self.members[second]))
        if not child.log_joint() > -np.inf:
            # More clusters than there can be, or rows together that are known to be apart.
            child = relabelled(state, self.members[first])
        explored = explore(child)
        if explored.merit > merits[last]:
            self.members[last] = explored.state.labels()
        return explored


def relabelled(state: State, labels: np.ndarray) -> State:
    """Return a copy of a state with another partition."""
    other = state.copy()
    other.relabel(labels)
    return other


def crossed(rng: np.random.Generator, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return labels (n,) that take some clusters of one vector of canonical labels and some of another.

    The clusters of both are divided into parts, and of each part those of one vector are taken, chosen at random.
    A row that is in two clusters that are taken joins either. One that is in none joins the cluster that shares
    most rows with one of its own.
    """
    shared = np.zeros((first.max() + 1, second.max() + 1), dtype=np.int64)
    np.add.at(shared, (first, second), 1)
    parts = _regions(rng, shared) if rng.random() < BY_REGIONS else _pairs(shared)
    from_first = rng.random(max(own.max() for own in parts) + 1) < 0.5
    taken = from_first[parts[0]], ~from_first[parts[1]]
    n_first = len(shared)
    # Where the rows of each cluster go: they stay, or join that of the other vector that most of them are in.
    with_first = _where_rows_go(shared, *taken, n_first + np.arange(shared.shape[1]), np.arange(n_first))
    with_second = _where_rows_go(shared.T, *taken[::-1], np.arange(n_first), n_first + np.arange(shared.shape[1]))
    claims = taken[0][first].astype(np.int64) - taken[1][second]
    is_first = np.where(claims == 0, rng.random(len(first)) < 0.5, claims > 0)
    return np.unique(np.where(is_first, with_first[first], with_second[second]), return_inverse=True)[1]


def _where_rows_go(
    shared: np.ndarray, taken: np.ndarray, others_taken: np.ndarray, others: np.ndarray, own: np.ndarray
) -> np.ndarray:
    """Return the clusters that rows of clusters which are not taken go to, and those that are taken themselves."""
    among = np.where(others_taken, shared, 0)
    goes = ~taken & (among.max(axis=1) > 0)
    return np.where(goes, others[among.argmax(axis=1)], own)


def _regions(rng: np.random.Generator, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the regions of the clusters of two vectors: those of one region share rows, directly or by others."""
    smaller = np.minimum(shared.sum(axis=1)[:, None], shared.sum(axis=0))
    rows, columns = np.nonzero(shared > rng.choice(SHARED_PARTS) * smaller)
    n = sum(shared.shape)
    links = imported("scipy.sparse").coo_array((np.ones(len(rows)), (rows, len(shared) + columns)), shape=(n, n))
    of_all = imported("scipy.sparse.csgraph").connected_components(links, directed=False)[1]
    return of_all[: len(shared)], of_all[len(shared) :]


def _pairs(shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return parts of two clusters, matched to share the most rows, and of one that has no partner."""
    rows, columns = imported("scipy.optimize").linear_sum_assignment(shared, maximize=True)
    share_rows = shared[rows, columns] > 0
    n_first, n_second = shared.shape
    of_first, of_second = np.arange(n_first), n_first + np.arange(n_second)
    of_second[columns[share_rows]] = rows[share_rows]
    return of_first, of_second
