"""What a partition says of the weights of its clusters, and of rows that arrive after the data."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_dpgmm.partitions.priors import (
    GibbsType,
    draw_new_weights,
    draw_weights,
    seat_rows,
    seating_probabilities,
    with_known_components,
)

# The clusters without rows are drawn one by one until this weight is left, or so many have been drawn; others have
# the rest, so that no weight is lost.
SMALLEST = 1e-4
MOST = 1_000


class Seats(Protocol):
    """What follows from one draw's partition into K clusters."""

    @property
    def n_groups(self) -> int:
        """Number of vectors of weights that :meth:`draw_all` returns."""

    def probabilities(self) -> np.ndarray:
        """Return the probabilities with which one more row joins each cluster, or opens one: (K + 1,)."""

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights, for rows that arrive, of the clusters and of all others together: (K + 1,)."""

    def draw_all(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights of the clusters, and of J others that have no rows one by one: (n_groups, K + J)."""

    def draw_of_new(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the same weights for rows that arrive after the data: (K + J,)."""

    def seat(self, rng: np.random.Generator, m: int) -> np.ndarray:
        """Draw the clusters that m more rows join, new ones being numbered from K on: (m,) int64 array."""


class GibbsSeats(NamedTuple):
    """Seats under a prior on partitions of all rows."""

    prior: GibbsType
    sizes: np.ndarray

    @property
    def n_groups(self) -> int:
        """One vector of weights serves all rows."""
        return 1

    def probabilities(self) -> np.ndarray:
        """Return the prior's seating probabilities."""
        return seating_probabilities(self.prior, self.sizes)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights; see :func:`pymc_dpgmm.partitions.priors.draw_weights`."""
        return draw_weights(rng, with_known_components(rng, self.prior, self.sizes), self.sizes)

    def draw_all(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights, those of clusters without rows by stick-breaking."""
        prior = with_known_components(rng, self.prior, self.sizes)
        *weights, rest = draw_weights(rng, prior, self.sizes)
        new = draw_new_weights(rng, prior, len(weights), float(rest), SMALLEST, MOST)
        return np.append(weights, new)[None, :]

    def draw_of_new(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights, which are those of all rows."""
        return self.draw_all(rng)[0]

    def seat(self, rng: np.random.Generator, m: int) -> np.ndarray:
        """Seat rows one after the other."""
        prior = with_known_components(rng, self.prior, self.sizes)
        return seat_rows(rng, prior.alpha, prior.discount, self.sizes, m)


class GroupedSeats:
    """Seats of rows in groups, given a partition and what the prior says of its clusters' shares.

    Parameters
    ----------
    counts : (J, K) array
        Rows of each group in each cluster.
    alpha : (J,) array
        Concentrations of the groups.
    tables : (K,) array
        Openers in each cluster, under a hierarchical Dirichlet process; otherwise the Dirichlet parameters of the
        clusters as shares of their sum.
    gamma : float
        Of the process, 0 otherwise.
    empty : (E,) array
        Without a process, the shares of the components without rows.
    names : (K + E,) integer array, optional
        Names of the clusters, and of the components without rows, where they have such.
    group : int or None
        The group of rows that arrive; None is one without rows, whose concentration is that of all groups.
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

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.counts)

    def _own(self, group: int | None) -> tuple[np.ndarray, float]:
        """Return rows of a group in each cluster, and its concentration."""
        if group is None:
            if np.ptp(self.alpha) > 0.0:
                raise ValueError(
                    "every group has an alpha of its own, and a new one has none: name one, group=..."
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
            # Whatever its concentration is.
            return self._mean_shares()
        own, alpha = self._own(self.group)
        return (np.append(own, 0.0) + alpha * self._mean_shares()) / (own.sum() + alpha)

    def group_probabilities(self) -> np.ndarray:
        """Return the same of all groups: (J, K + 1)."""
        own = np.column_stack([self.counts, np.zeros(self.n_groups)])
        return (own + self.alpha[:, None] * self._mean_shares()) / (own.sum(axis=1) + self.alpha)[:, None]

    def share_variance(self) -> np.ndarray:
        """Return the variances of the clusters' shares, given the partition: (K,) array."""
        if self.gamma == 0.0:
            return np.zeros(len(self.tables))
        mean, total = self._mean_shares()[:-1], self.tables.sum() + self.gamma
        return mean * (1.0 - mean) / (total + 1.0)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights of the group that rows arrive in, those without rows added up."""
        weights, n_clusters = self.draw_of_new(rng), len(self.tables)
        return np.append(weights[:n_clusters], weights[n_clusters:].sum())

    def _draw_known_shares(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the shares of the clusters over all groups, and of all others together."""
        return _dirichlet(rng, np.append(self.tables, self.gamma)) if self.gamma > 0.0 else self._mean_shares()

    def draw_shares(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the shares of clusters, and of others that have no rows one by one."""
        if self.gamma > 0.0:
            *shares, rest = self._draw_known_shares(rng)
            found: list[float] = []
            while rest > SMALLEST and len(found) < MOST:
                share = rng.beta(1.0, self.gamma) * rest
                found.append(share)
                rest -= share
            return np.array([*shares, *found, rest])
        return np.append(self.tables, self.empty)

    def draw_all(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights of all groups."""
        shares = self.draw_shares(rng)
        n_new = len(shares) - len(self.tables)
        return np.array(
            [
                _dirichlet(rng, self.alpha[j] * shares + np.append(own, np.zeros(n_new)))
                for j, own in enumerate(self.counts)
            ]
        )

    def draw_of_new(self, rng: np.random.Generator) -> np.ndarray:
        """Draw the weights of the group that rows arrive in: (K + J,)."""
        shares = self.draw_shares(rng)
        own, alpha = self._own(self.group)
        return _dirichlet(rng, alpha * shares + np.append(own, np.zeros(len(shares) - len(own))))

    def seat(self, rng: np.random.Generator, m: int) -> np.ndarray:
        """Seat rows one after the other, given shares of the clusters."""
        *shares, rest = self._draw_known_shares(rng)
        own, alpha = self._own(self.group)
        counts, shares = list(own.astype(float)), list(shares)
        if self.gamma == 0.0:
            # Components without rows, too, are named.
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
            # Those without rows are alike: they are numbered as they are opened.
            n_own = len(own)
            opened = list(dict.fromkeys(labels[labels >= n_own].tolist()))
            labels = np.array([k if k < n_own else n_own + opened.index(k) for k in labels.tolist()])
        return labels


def _dirichlet(rng: np.random.Generator, parameters: np.ndarray) -> np.ndarray:
    """Draw from a Dirichlet distribution, of which some parameters may be zero."""
    drawn = np.zeros(len(parameters))
    positive = parameters > 1e-300
    drawn[positive] = rng.dirichlet(parameters[positive])
    return drawn


def rows_by_group(labels: np.ndarray, group: np.ndarray, n_groups: int, n_clusters: int) -> Any:
    """Return how many rows of each group each cluster has: (J, K) int64 array."""
    pairs = np.bincount(group * n_clusters + labels, minlength=n_groups * n_clusters)
    return pairs.reshape(n_groups, n_clusters)
