"""The posterior of cluster weights, and of the clusters of new rows, given the partition of a draw."""

import math
from typing import NamedTuple, Protocol

import numpy as np

from pymc_dpgmm.partitions.draws import (
    count_new_clusters,
    draw_new_weights,
    draw_weights,
    seat_rows,
    seating_probabilities,
    with_known_components,
)
from pymc_dpgmm.partitions.hidden_states import draw_part_of_rest, shares_parameters
from pymc_dpgmm.partitions.priors import GibbsType, chinese_restaurant, finite_dirichlet

# Stick-breaking draws clusters without rows until the weight left is SMALLEST, or MOST of them have been drawn. A
# last cluster takes the rest, so that weights add up to one. What is left decides where limits in the tails of a
# density end. With a discount, clusters become small so slowly that it would take thousands of them.
SMALLEST, SMALLEST_WITH_DISCOUNT = 1e-10, 1e-4
MOST = 1_000


class Seats(Protocol):
    """The posterior of weights and of new rows given one partition into K clusters."""

    @property
    def names(self) -> np.ndarray | None:
        """Names of the clusters, and of components without rows, if they have names."""

    def probabilities(self) -> np.ndarray:
        """Return the probabilities that one more row joins each cluster or a new one: (K + 1,)."""

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights of the clusters for new rows, and the total weight of all others: (K + 1,)."""

    def draw_all(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights of the clusters, and of each of J clusters without rows: (G, K + J)."""

    def draw_of_new(self, rng: np.random.Generator) -> np.ndarray:
        """Draw these weights for new rows: (K + J,)."""

    def seat(self, rng: np.random.Generator, m: int) -> np.ndarray:
        """Draw the clusters of m new rows: (m,) int64 array. New clusters are numbered from K on."""

    def count_new(self, rng: np.random.Generator, m: int) -> int:
        """Draw how many clusters without rows m new rows are in."""


class GibbsSeats(NamedTuple):
    """Posterior of weights under a prior on partitions of all rows."""

    prior: GibbsType
    sizes: np.ndarray

    @property
    def names(self) -> None:
        """Clusters have no names."""

    def probabilities(self) -> np.ndarray:
        """Return the prior's seating probabilities."""
        return seating_probabilities(self.prior, self.sizes)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights; see :func:`pymc_dpgmm.partitions.draws.draw_weights`."""
        return draw_weights(rng, with_known_components(rng, self.prior, self.sizes), self.sizes)

    def draw_all(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights, those of clusters without rows by stick-breaking."""
        prior = with_known_components(rng, self.prior, self.sizes)
        *weights, rest = draw_weights(rng, prior, self.sizes)
        smallest = SMALLEST if prior.discount == 0.0 else SMALLEST_WITH_DISCOUNT
        new = draw_new_weights(rng, prior, len(weights), float(rest), smallest, MOST)
        return np.append(weights, new)[None, :]

    def draw_of_new(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights: new rows have those of all rows."""
        return self.draw_all(rng)[0]

    def seat(self, rng: np.random.Generator, m: int) -> np.ndarray:
        """Draw clusters of rows one after the other."""
        prior = with_known_components(rng, self.prior, self.sizes)
        return seat_rows(rng, prior.alpha, prior.discount, self.sizes, m)

    def count_new(self, rng: np.random.Generator, m: int) -> int:
        """Draw how many clusters new rows open, whichever others they join."""
        prior = with_known_components(rng, self.prior, self.sizes)
        return count_new_clusters(rng, prior.alpha, prior.discount, self.sizes, m)


class SegmentSeats(NamedTuple):
    """Of rows that come after a sequence: each continues the segment before it, or begins a new one.

    Parameters
    ----------
    last : int
        The last segment of the sequence; -1 for a new sequence, which begins a segment.
    n_segments : int
        Of all sequences.
    p : float
        Probability of a change between neighbours.
    """

    last: int
    n_segments: int
    p: float

    @property
    def names(self) -> None:
        """Segments have no names."""

    def probabilities(self) -> np.ndarray:
        """Return the probabilities that the next row is in each segment, or a new one: (K + 1,)."""
        found = np.zeros(self.n_segments + 1)
        if self.last >= 0:
            found[self.last] = 1.0 - self.p
        found[-1] = 1.0 - found.sum()
        return found

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Return the probabilities themselves: nothing about them is left to draw."""
        return self.probabilities()

    def draw_all(self, rng: np.random.Generator) -> np.ndarray:
        """Return the probabilities as a matrix, a new segment being the last one: (1, K + 1)."""
        return self.probabilities()[None, :]

    def draw_of_new(self, rng: np.random.Generator) -> np.ndarray:
        """Return the probabilities themselves: (K + 1,)."""
        return self.probabilities()

    def seat(self, rng: np.random.Generator, m: int) -> np.ndarray:
        """Draw the segments of the next m rows, one after the other."""
        begins = rng.random(m) < self.p
        if self.last < 0:
            begins[:1] = True
        number = np.cumsum(begins)
        return np.where(number == 0, self.last, self.n_segments - 1 + number)

    def count_new(self, rng: np.random.Generator, m: int) -> int:
        """Draw how many segments the next m rows begin."""
        return max(int(self.seat(rng, m).max(initial=-1)) - self.n_segments + 1, 0)


class HiddenSeats:
    """Of rows that come after a sequence of hidden states: posterior of the transitions from its last state.

    Parameters
    ----------
    last : int
        The last state of the sequence; -1 for a new sequence, whose first state is drawn from the weights of first
        states.
    counts : (K + 1, K) array
        How often each state has followed each, first those that sequences begin with.
    tables : (K,) array
        How many rows have opened each state.
    alpha, gamma, kappa : float
        Concentrations.
    most : float
        The largest number of states.
    """

    def __init__(
        self,
        last: int,
        counts: np.ndarray,
        tables: np.ndarray,
        alpha: float,
        gamma: float,
        kappa: float,
        most: float = math.inf,
    ) -> None:
        self.last, self.counts, self.tables, self.most = last, counts, tables, most
        self.alpha, self.gamma, self.kappa = alpha, gamma, kappa

    @property
    def names(self) -> None:
        """States have no names."""

    def _weights(self, shares: np.ndarray) -> np.ndarray:
        """Return Dirichlet parameters of transitions from each state, first from none: (K + 1, len(shares))."""
        found = self.alpha * np.tile(shares, (len(self.counts), 1))
        found[:, : self.counts.shape[1]] += self.counts
        found[1:][np.diag_indices(len(self.counts) - 1)] += self.kappa
        return found

    def probabilities(self) -> np.ndarray:
        """Return the predictive probabilities of the next state, shared weights integrated out: (K + 1,)."""
        parameters = shares_parameters(self.tables, self.gamma, self.most)
        weights = self._weights(parameters / parameters.sum())
        return np.asarray(weights[self.last + 1] / weights[self.last + 1].sum())

    def draw_shares(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the shared weights of the states, and of all others together: (K + 1,)."""
        return _dirichlet(rng, shares_parameters(self.tables, self.gamma, self.most))

    def draw_transitions(self, rng: np.random.Generator) -> np.ndarray:
        """Draw all transitions: (K + 1, K + 1), first those of first states; last those to any other state."""
        return np.array([_dirichlet(rng, own) for own in self._weights(self.draw_shares(rng))])

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the probabilities of the next state, those of states without rows added up: (K + 1,)."""
        return _dirichlet(rng, self._weights(self.draw_shares(rng))[self.last + 1])

    def draw_of_new(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the probabilities of the next state: (K + J,)."""
        *known, rest = self.draw_shares(rng)
        finite = self.most < math.inf
        process = finite_dirichlet(self.gamma, self.most) if finite else chinese_restaurant(self.gamma)
        assert process is not None
        shares = np.append(known, draw_new_weights(rng, process, len(known), float(rest), SMALLEST, MOST))
        return _dirichlet(rng, self._weights(shares)[self.last + 1])

    def draw_all(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the probabilities of the next state, as a matrix: (1, K + J)."""
        return self.draw_of_new(rng)[None, :]

    def seat(self, rng: np.random.Generator, m: int) -> np.ndarray:
        """Draw the states of the next m rows, one after the other, given drawn shared weights."""
        *shares, rest = self.draw_shares(rng).tolist()
        # What has followed each state, and the weights of all states; new ones get theirs when they are met.
        followed = {j - 1: row.astype(float).tolist() for j, row in enumerate(self.counts)}
        states, before = np.empty(m, dtype=np.int64), self.last
        for i in range(m):
            own = followed.setdefault(before, [])
            own += [0.0] * (len(shares) - len(own))
            weights = self.alpha * np.append(shares, rest) + np.append(own, 0.0)
            if before >= 0:
                weights[before] += self.kappa
            state = int(rng.choice(len(weights), p=weights / weights.sum()))
            if state == len(shares):
                shares.append(rest * draw_part_of_rest(rng, len(shares), self.gamma, self.most))
                rest -= shares[-1]
                own.append(0.0)
            own[state] += 1.0
            states[i] = before = state
        return states

    def count_new(self, rng: np.random.Generator, m: int) -> int:
        """Draw how many states without rows the next m rows are in."""
        return max(int(self.seat(rng, m).max(initial=-1)) - len(self.tables) + 1, 0)


class GroupedSeats:
    """Posterior of weights for rows in groups, given a partition and the posterior of the clusters' shares.

    The shares of the clusters are common to all groups; the weights of a group scatter around them.

    Parameters
    ----------
    counts : (J, K) array
        Rows of each group in each cluster.
    alpha : (J,) array
        Concentrations of the groups.
    tables : (K,) array
        Under a hierarchical Dirichlet process, the number of tables in each cluster. Otherwise the shares of the
        clusters, their Dirichlet parameters divided by the sum of these.
    gamma : float
        Concentration of the shares under a hierarchical Dirichlet process, 0 otherwise.
    empty : (E,) array
        In a finite mixture, the shares of the components without rows.
    names : (K + E,) integer array, optional
        Names of the clusters, and of the components without rows, if they have names.
    group : int or None
        The group of new rows. None is a group without rows; all groups must then have the same concentration.
    """

    def __init__(
        self,
        counts: np.ndarray,
        alpha: np.ndarray,
        tables: np.ndarray,
        *,
        gamma: float = 0.0,
        empty: np.ndarray | None = None,
        names: np.ndarray | None = None,
        group: int | None = None,
    ) -> None:
        self.counts, self.alpha, self.tables = counts, alpha, tables
        self.gamma, self.group = gamma, group
        self.empty = np.zeros(0) if empty is None else empty
        self.names = names

    def _own(self, group: int | None) -> tuple[np.ndarray, float]:
        """Return the number of rows of a group in each cluster, and the concentration of the group."""
        if group is None:
            if np.ptp(self.alpha) > 0.0:
                raise ValueError(
                    "alpha differs between groups, so a new group has none: choose a group by its name, group="
                )
            return np.zeros(len(self.tables)), float(self.alpha[0])
        return self.counts[group], float(self.alpha[group])

    def alpha_of_new(self) -> float:
        """Return the concentration of a group without rows."""
        return self._own(None)[1]

    def _mean_shares(self) -> np.ndarray:
        if self.gamma > 0.0:
            return np.append(self.tables, self.gamma) / (self.tables.sum() + self.gamma)
        return np.append(self.tables, self.empty.sum())

    def probabilities(self) -> np.ndarray:
        """Return the predictive weights of the group, with shares of the clusters integrated out."""
        if self.group is None:
            # The mean weights of a group without rows do not depend on its concentration.
            return self._mean_shares()
        counts, alpha = self._own(self.group)
        return (np.append(counts, 0.0) + alpha * self._mean_shares()) / (counts.sum() + alpha)

    def weights_of_known(self) -> np.ndarray:
        """Return the predictive weights of all groups for the clusters, and for each component without rows."""
        shares = np.append(self._mean_shares()[:-1], self.empty)
        counts = np.column_stack([self.counts, np.zeros((len(self.counts), len(self.empty)))])
        return (counts + self.alpha[:, None] * shares) / (self.counts.sum(axis=1) + self.alpha)[:, None]

    def share_variance(self) -> np.ndarray:
        """Return the variances of the clusters' shares, given the partition: (K,) array."""
        if self.gamma == 0.0:
            return np.zeros(len(self.tables))
        mean, total = self._mean_shares()[:-1], self.tables.sum() + self.gamma
        return mean * (1.0 - mean) / (total + 1.0)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights of the group of new rows, with those of clusters without rows added up."""
        weights, n_clusters = self.draw_of_new(rng), len(self.tables)
        return np.append(weights[:n_clusters], weights[n_clusters:].sum())

    def _draw_known_shares(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the shares of the clusters over all groups, and the total share of all others."""
        return _dirichlet(rng, np.append(self.tables, self.gamma)) if self.gamma > 0.0 else self._mean_shares()

    def draw_shares(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the shares of the clusters, and of each cluster without rows."""
        if self.gamma > 0.0:
            *shares, rest = self._draw_known_shares(rng)
            process = chinese_restaurant(self.gamma)
            assert process is not None
            return np.append(shares, draw_new_weights(rng, process, len(shares), float(rest), SMALLEST, MOST))
        return np.append(self.tables, self.empty)

    def draw_all(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights of all groups."""
        shares = self.draw_shares(rng)
        n_new = len(shares) - len(self.tables)
        return np.array(
            [
                _dirichlet(rng, self.alpha[j] * shares + np.append(counts, np.zeros(n_new)))
                for j, counts in enumerate(self.counts)
            ]
        )

    def draw_of_new(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights of the group of new rows: (K + J,)."""
        shares = self.draw_shares(rng)
        counts, alpha = self._own(self.group)
        return _dirichlet(rng, alpha * shares + np.append(counts, np.zeros(len(shares) - len(counts))))

    def count_new(self, rng: np.random.Generator, m: int) -> int:
        """Draw how many clusters without rows there are among those of new rows."""
        labels = self.seat(rng, m)
        return len(np.unique(labels[labels >= len(self.tables)]))

    def seat(self, rng: np.random.Generator, m: int) -> np.ndarray:
        """Draw clusters of rows one after the other, given shares of the clusters."""
        *shares, rest = self._draw_known_shares(rng)
        counts_of_group, alpha = self._own(self.group)
        counts, shares = list(counts_of_group.astype(float)), list(shares)
        if self.gamma == 0.0:
            # Components without rows are among those that rows can join.
            counts, shares, rest = [*counts, *np.zeros(len(self.empty))], [*shares, *self.empty], 0.0
        labels = np.empty(m, dtype=np.int64)
        for i in range(m):
            weights = np.array(
                [n + alpha * share for n, share in zip(counts, shares, strict=True)] + [alpha * rest]
            )
            k = int(rng.choice(len(weights), p=weights / weights.sum()))
            if k == len(counts):
                counts.append(0.0)
                shares.append(rng.beta(1.0, self.gamma) * rest)
                rest -= shares[-1]
            counts[k] += 1.0
            labels[i] = k
        if self.names is None:
            # Components without rows are exchangeable: number them in the order in which rows join them.
            n_clusters = len(counts_of_group)
            opened = list(dict.fromkeys(labels[labels >= n_clusters].tolist()))
            labels = np.array([k if k < n_clusters else n_clusters + opened.index(k) for k in labels.tolist()])
        return labels


def _dirichlet(rng: np.random.Generator, parameters: np.ndarray) -> np.ndarray:
    """Draw from a Dirichlet distribution; entries whose parameter is zero are zero."""
    drawn = np.zeros(len(parameters))
    positive = parameters > 1e-300
    drawn[positive] = rng.dirichlet(parameters[positive])
    return drawn
