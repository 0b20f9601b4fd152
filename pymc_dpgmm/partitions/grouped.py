r"""Priors on the labels of rows in groups, as numbers: densities, draws and sufficient counts.

Under the hierarchical Dirichlet process every group seats its rows at tables, and all groups choose the dishes of
their tables, the clusters, from one menu (Teh et al. 2006, section 4). Rows are seated in the order of the data.
Each row *opens* a table or joins one, and only this is recorded of the tables. Let :math:`t_i` rows of its group
come before row i, of which :math:`c_i` are in the cluster of row i. Then row i is an opener with probability
:math:`\alpha / (\alpha + t_i)`. An opener joins a cluster that :math:`m_k` openers of all groups have joined with
weight :math:`m_k`, or opens one with weight :math:`\gamma`; any other row joins a cluster with probability
:math:`c_i / t_i`. With J groups of :math:`n_j` rows, M openers in all, and K clusters,

.. math:: p(\text{labels}, \text{openers}) = \prod_j \frac{\Gamma(\alpha_j)}{\Gamma(\alpha_j + n_j)}
    \alpha_j^{m_j} \prod_{i \text{ opens not}} c_i \;
    \gamma^K \frac{\Gamma(\gamma)}{\Gamma(\gamma + M)} \prod_k \Gamma(m_k).

Summed over all possible openers, the product of the :math:`c_i` becomes the unsigned Stirling numbers of the first
kind, as in the density of labels and numbers of tables. Both vectors have a fixed length. The weights of clusters
and the weights within groups are integrated out without truncation.
"""

import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.native.arithmetic import Bits, uniform
from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, address_of, bits_of_generator, c_function

# Dirichlet parameters with which words in documents can be scanned. The weight of a topic for the only token of a
# document is a difference of sums that hold 1, in which a smaller sum of the document's parameters would lose its
# digits. Products of words' parameters must not overflow.
LEAST_OF_DOCUMENT, LEAST_OF_WORD, LARGEST = 1e-10, 1e-100, 1e100


def can_be_scanned(of_documents: Any, of_words: Any) -> bool:
    """Tell whether scans work with sums of the parameters of documents, and with parameters of words."""
    least = np.min(of_documents) >= LEAST_OF_DOCUMENT and np.min(of_words) >= LEAST_OF_WORD
    return bool(least and np.max(of_documents) <= LARGEST and np.max(of_words) <= LARGEST)


class Groups:
    """Which rows belong to which group.

    Parameters
    ----------
    group : (n,) integer array
        Number of each row's group, from 0 on.
    n_groups : int, optional
        By default one more than the largest number. Groups may have no rows.
    """

    def __init__(self, group: np.ndarray, n_groups: int | None = None) -> None:
        self.group = np.ascontiguousarray(group, dtype=np.int64)
        self.sizes = np.bincount(self.group, minlength=n_groups or 0).astype(np.int64)
        # Rows sorted by group, in the order of the data within each group.
        self.rows = np.argsort(self.group, kind="stable").astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.sizes)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.group)

    @cached_property
    def positions(self) -> np.ndarray:
        """How many rows of its group come before each row: (n,) int64 array."""
        positions = np.empty(self.n, dtype=np.int64)
        positions[self.rows] = np.arange(self.n) - self.starts[:-1][self.group[self.rows]]
        return positions


class Franchise(NamedTuple):
    """Statistics that determine the density of labels given openers.

    Parameters
    ----------
    tables : (K,) int64 array
        Number of openers in each cluster, in order of the clusters' first rows by group. Empty if the labels are
        impossible given the openers.
    log_joined : float
        Sum of the log probabilities c / t of the clusters that rows other than openers join.
    """

    tables: np.ndarray
    log_joined: float


@c_function(FLOAT(INTS, INTS, INTS, INTS, INT, INTS, INTS))
def _log_joined(labels, openers, rows, starts, n_groups, counts, tables):
    """Count openers by label in ``tables``; return ``log_joined`` of :class:`Franchise`, or minus infinity."""
    total = 0.0
    product = 1.0
    for j in range(n_groups):
        for t in range(starts[j], starts[j + 1]):
            i = rows[t]
            k = labels[i]
            if openers[i] == 1:
                tables[k] += 1
            else:
                product *= counts[k] / max(t - starts[j], 1)
                if product < 1e-250:
                    if product == 0.0:
                        return -math.inf
                    total += math.log(product)
                    product = 1.0
            counts[k] += 1
        for t in range(starts[j], starts[j + 1]):
            counts[labels[rows[t]]] = 0
    return total + math.log(product) if product > 0.0 else -math.inf


def _inside(labels: np.ndarray, most: int) -> bool:
    return bool(labels.size) and int(labels.min()) >= 0 and int(labels.max()) < most


def franchise(labels: np.ndarray, openers: np.ndarray, groups: Groups) -> Franchise:
    """Return the statistics that determine the density of labels given openers.

    Parameters
    ----------
    labels : (n,) integer array
        In 0..n-1; other values have probability 0.
    openers : (n,) integer array of 0 and 1
    groups : Groups
    """
    impossible = Franchise(np.zeros(0, dtype=np.int64), -math.inf)
    if not _inside(labels, groups.n) or not _inside(openers, 2):
        return impossible
    labels, openers = labels.astype(np.int64), openers.astype(np.int64)
    counts, tables = np.zeros((2, int(labels.max()) + 1), dtype=np.int64)
    log_joined = _log_joined(
        address_of(labels),
        address_of(openers),
        address_of(groups.rows),
        address_of(groups.starts),
        groups.n_groups,
        address_of(counts),
        address_of(tables),
    )
    return Franchise(tables[tables > 0], log_joined) if log_joined > -math.inf else impossible


class Openers(NamedTuple):
    """Statistics that determine the density of openers.

    Parameters
    ----------
    tables : (J,) int64 array
        Openers in each group.
    log_others : float
        Sum of log t over the rows that are no openers, where t is the number of rows of the group before the row;
        minus infinity if the openers are impossible.
    """

    tables: np.ndarray
    log_others: float


def count_openers(openers: np.ndarray, groups: Groups) -> Openers:
    """Return the statistics that determine the density of openers."""
    positions = groups.positions
    opens = openers == 1
    possible = _inside(openers, 2) and bool(np.all(opens[positions == 0]))
    log_others = float(np.sum(np.log(positions[~opens]))) if possible else -math.inf
    return Openers(np.bincount(groups.group[opens], minlength=groups.n_groups), log_others)


def draw_openers(rng: np.random.Generator, alpha: np.ndarray, groups: Groups) -> np.ndarray:
    """Draw which rows open tables: (n,) int8 array; ``alpha`` (J,) are the groups' concentrations."""
    alpha_of_row = alpha[groups.group]
    return (rng.random(groups.n) * (alpha_of_row + groups.positions) < alpha_of_row).astype(np.int8)


@c_function(INT(INT, INT, FLOAT, INTS, INTS, INTS, INT, INTS, INTS, INTS))
def _seat(next_double, state, gamma, openers, rows, starts, n_groups, dishes, labels, tables):
    """Draw labels of rows given openers, in place; return the number of clusters."""
    bits = Bits(next_double, state)
    n_clusters = 0
    n_tables = 0
    for j in range(n_groups):
        for t in range(starts[j], starts[j + 1]):
            i = rows[t]
            if openers[i] == 0:
                # A row that joins a table copies the label of a uniformly drawn earlier row of its group.
                labels[i] = labels[rows[starts[j] + int(uniform(bits) * (t - starts[j]))]]
                continue
            u = uniform(bits) * (n_tables + gamma)
            if u < n_tables:
                k = dishes[int(u)]
            else:
                k = n_clusters
                n_clusters += 1
            dishes[n_tables] = k
            n_tables += 1
            tables[k] += 1
            labels[i] = k
    return n_clusters


def draw_franchise(rng: np.random.Generator, openers: np.ndarray, gamma: float, groups: Groups) -> np.ndarray:
    """Draw labels given openers: (n,) int64 array, canonical in the order of the groups' rows."""
    labels, dishes, tables = np.zeros((3, groups.n), dtype=np.int64)
    openers = openers.astype(np.int64)
    _seat(
        *bits_of_generator(rng),
        gamma,
        address_of(openers),
        address_of(groups.rows),
        address_of(groups.starts),
        groups.n_groups,
        address_of(dishes),
        address_of(labels),
        address_of(tables),
    )
    return labels


class GroupCounts(NamedTuple):
    """How many rows of each group each label has: (m,) int64 arrays, one entry for each pair that has rows.

    All are empty if a label is out of range.
    """

    group: np.ndarray
    label: np.ndarray
    rows: np.ndarray


@c_function(INT(INTS, INTS, INTS, INT, INTS, INTS, INTS, INTS))
def _count_pairs(labels, rows, starts, n_groups, counts, group, label, count):
    m = 0
    for j in range(n_groups):
        for t in range(starts[j], starts[j + 1]):
            counts[labels[rows[t]]] += 1
        for t in range(starts[j], starts[j + 1]):
            k = labels[rows[t]]
            if counts[k] > 0:
                group[m], label[m], count[m] = j, k, counts[k]
                counts[k] = 0
                m += 1
    return m


def count_by_group(labels: np.ndarray, groups: Groups, n_labels: int) -> GroupCounts:
    """Return how many rows of each group each label in 0..n_labels-1 has."""
    empty = np.zeros(0, dtype=np.int64)
    if not _inside(labels, n_labels):
        return GroupCounts(empty, empty, empty)
    labels = labels.astype(np.int64)
    group, label, count = np.empty((3, groups.n), dtype=np.int64)
    counts = np.zeros(n_labels, dtype=np.int64)
    m = _count_pairs(
        address_of(labels),
        address_of(groups.rows),
        address_of(groups.starts),
        groups.n_groups,
        address_of(counts),
        address_of(group),
        address_of(label),
        address_of(count),
    )
    return GroupCounts(group[:m].copy(), label[:m].copy(), count[:m].copy())


def draw_labels_by_group(rng: np.random.Generator, weights: np.ndarray, groups: Groups) -> np.ndarray:
    """Draw labels whose weights in every group are Dirichlet: (n,) int64 array.

    Parameters
    ----------
    weights : (J, K) array
        Dirichlet parameters of each group.
    """
    labels = np.empty(groups.n, dtype=np.int64)
    for j in range(groups.n_groups):
        rows = groups.rows[groups.starts[j] : groups.starts[j + 1]]
        if len(rows):
            labels[rows] = rng.choice(weights.shape[1], size=len(rows), p=rng.dirichlet(weights[j]))
    return labels
