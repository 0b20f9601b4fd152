"""Labels of rows given weights and parameters of the clusters, wherever the rows are.

What is drawn for the clusters, and who leads them, is all that the labels of rows are a function of: see
:mod:`pymc_dpgmm.sampler.many_rows.leader_sweep`.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic

from pymc_dpgmm.families.contract.component import Component, DrawnValues
from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import add_to_all, bits_at, raise_all, uniform_at
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import (
    FLOATS,
    INT,
    INTS,
    NOTHING,
    address_of,
    c_function,
    called_at,
    inlined,
    shifted,
)
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.partitions.draws import log_gamma_numbers
from pymc_dpgmm.sampler.many_rows.quadratics import (
    QUADRATIC,
    add_quadratic,
    begin_densities,
    read_listed,
    rows_of_block,
)
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable

# Densities of a block, and its rows, where they are computed in NumPy.
NUMPY_DENSITIES, LEAST_NUMPY_BLOCK, NUMPY_BLOCK = 524_288, 32, 4_096
# Bytes of a cache line.
LINE = 64

# What labels of rows are drawn from, as compiled code has it.
DRAWS = Block(
    # Slots of the rows; addresses are where the first of all rows would be.
    labels=blocks.INTS,
    # Of the clusters.
    slots=blocks.INTS,
    priorities=blocks.INTS,
    log_weights=blocks.FLOATS,
    views=blocks.INTS,
    # Where super-clusters begin and end, and the super-cluster of each slot.
    ends=blocks.INTS,
    super_clusters=blocks.INTS,
    n_super_clusters=NUMBER,
    n_quadratic=NUMBER,
    order_key=NUMBER,
    uniform_key=NUMBER,
    rows_of_block=NUMBER,
)
draws_at = DRAWS.reader()
VIEW_LENGTH = len(QUADRATIC)


class DrawnClusters(NamedTuple):
    """What the labels of rows are drawn from; it does not depend on where the rows are.

    Parameters
    ----------
    slots : (K,) int64 array
        The clusters, one super-cluster after the other, in each in the order of their leaders.
    priorities : (K,) int64 array
        Places of the leaders in the order of the rows.
    log_weights : (K,) array
        Up to a constant.
    drawn : list of dict
        For each view, parameters of the clusters, for rows in the form that the family makes.
    order_key, uniform_key : int
        Of the order of the rows, and of their random numbers.
    ends : (S + 1,) int64 array, optional
        Where super-clusters begin, and the last one ends: a row joins only clusters of the super-cluster that its
        cluster is in. By default there is one, so that labels do not depend on earlier ones.
    """

    slots: np.ndarray
    priorities: np.ndarray
    log_weights: np.ndarray
    drawn: list[DrawnValues]
    order_key: int
    uniform_key: int
    ends: np.ndarray | None = None

    def in_order(self, order: np.ndarray, ends: np.ndarray | None = None) -> "DrawnClusters":
        """Return the same clusters in another order, and in other super-clusters."""
        return self._replace(
            slots=self.slots[order],
            priorities=self.priorities[order],
            log_weights=self.log_weights[order],
            drawn=[{name: own[order] for name, own in drawn.items()} for drawn in self.drawn],
            ends=ends,
        )


def draw_clusters(
    rng: np.random.Generator, tables: Sequence[ClusterTable], slots: np.ndarray, shapes: np.ndarray
) -> tuple[np.ndarray, list[DrawnValues]]:
    """Draw log weights, up to a constant, and parameters of clusters, given the statistics in tables.

    Parameters
    ----------
    rng : numpy.random.Generator
    tables : sequence of ClusterTable
    slots : (K,) int64 array
    shapes : (K,) array, > 0
        Parameters of the Dirichlet distribution of the weights.
    """
    log_weights = log_gamma_numbers(rng, shapes)
    return log_weights, [draw_parameters(rng, table, slots) for table in tables]


def draw_parameters(rng: np.random.Generator, table: ClusterTable, slots: np.ndarray) -> DrawnValues:
    """Draw parameters of clusters for rows in the form that the family makes, given the statistics in a table."""
    sums = table.family.kept_sums(*(part[slots] for part in table.sums(0, int(slots.max()) + 1)))
    return table.family.component.draw(rng, table.shifted, sums)


class _Quadratic(Memory, block=QUADRATIC):
    """A view whose densities compiled code computes."""


class LabelDraws(Memory, block=DRAWS):
    """Draws the labels of rows.

    Parameters
    ----------
    clusters : DrawnClusters
    tables : sequence of ClusterTable
        Of the rows at hand.
    labels : (n,) int64 array
        Slots of these rows, which become those that are drawn.
    first_row : int
        Number of the first of these rows among all.
    """

    def __init__(
        self, clusters: DrawnClusters, tables: Sequence[ClusterTable], labels: np.ndarray, first_row: int = 0
    ) -> None:
        super().__init__(slots=clusters.slots, priorities=clusters.priorities)
        self.order_key, self.uniform_key = clusters.order_key, clusters.uniform_key
        self._first, self._labels = first_row, labels
        # Rows are counted from the first of all: addresses are where that one would be.
        self.labels = address_of(labels) - 8 * first_row
        self.log_weights = clusters.log_weights.copy()
        # Views whose densities compiled code computes, and the others.
        self.views = np.zeros((max(len(tables), 1), VIEW_LENGTH), dtype=np.int64)
        self._others: list[tuple[Component, DrawnValues, Any]] = []
        self._kept: list[_Quadratic] = []
        self._most_columns = 1
        for table, drawn in zip(tables, clusters.drawn, strict=True):
            component = table.family.component
            if component.quadratic is None or table.family.takes_missing:
                self._others.append((component, component.restore(drawn, table.origin), table.values))
            else:
                self._add_quadratic(table, *component.quadratic(drawn))
        self.n_quadratic = len(self._kept)
        self.ends = np.array([0, len(self.slots)]) if clusters.ends is None else clusters.ends
        self.n_super_clusters = len(self.ends) - 1
        sizes = np.diff(self.ends)
        self._most_clusters = int(sizes.max())
        self._make(super_clusters=int(self.slots.max()) + 1)
        self.super_clusters[self.slots] = np.repeat(np.arange(len(sizes)), sizes)
        self.rows_of_block = rows_of_block(self._most_clusters, self._most_columns)
        if self._others:
            most = NUMPY_DENSITIES // self._most_clusters
            self.rows_of_block = int(np.clip(most, LEAST_NUMPY_BLOCK, NUMPY_BLOCK))

    @property
    def are_compiled(self) -> bool:
        """Whether compiled code computes all densities."""
        return not self._others

    def _add_quadratic(self, table: ClusterTable, mean: np.ndarray, root: np.ndarray) -> None:
        is_diagonal, d = root.ndim == 2, mean.shape[1]
        diagonal = root if is_diagonal else np.diagonal(root, axis1=1, axis2=2)
        shift = root * mean if is_diagonal else np.einsum("kij,kj->ki", root, mean)
        self.log_weights += np.log(np.abs(diagonal)).sum(axis=1) - 0.5 * d * math.log(2.0 * math.pi)
        shift, root = (np.ascontiguousarray(array, dtype=np.float64) for array in (shift, root))
        stride = table.rows.shape[1]
        view = _Quadratic(stride=stride, n_columns=d, is_diagonal=is_diagonal, shift=shift, root=root)
        view.rows = address_of(table.rows) - 8 * self._first * stride
        view.lie_in(self.views[len(self._kept)])
        self._kept.append(view)
        self._most_columns = max(self._most_columns, d)

    def scratch(self, n_rows: int) -> "Scratch":
        """Return what one thread works with, for so many rows at a time, at most."""
        length = (self._most_clusters + self._most_columns + 4) * self.rows_of_block
        return Scratch(length, n_rows, self.n_super_clusters)

    def draw(self, start: int, stop: int, scratch: "Scratch") -> int:
        """Draw the labels of the rows with numbers ``start`` to ``stop - 1``; return how many have changed."""
        rows, begins = scratch.rows, scratch.begins
        list_rows(self.address, start, stop, address_of(rows), address_of(begins))
        n_moved = 0
        for g, (first, last) in enumerate(itertools.pairwise(begins.tolist())):
            # All rows of a super-cluster go together where compiled code computes all densities.
            step = self.rows_of_block if self._others else max(last - first, 1)
            for begin in range(first, last, step):
                own = rows[begin : min(begin + step, last)]
                densities = self._densities(own, slice(*self.ends[g : g + 2]))
                given = 0 if densities is None else address_of(densities)
                n_moved += draw_listed(
                    self.address, g, address_of(own), len(own), self.rows_of_block, given, scratch.address
                )
        return n_moved

    def _densities(self, rows: np.ndarray, clusters: slice) -> np.ndarray | None:
        """Return the log densities (K, n) that NumPy computes, of some rows in some of the clusters."""
        if not self._others:
            return None
        total = sum(
            component.log_density({name: own[clusters] for name, own in drawn.items()}, values[rows - self._first])
            for component, drawn, values in self._others
        )
        return np.ascontiguousarray(np.asarray(total).T)

    def most_probable(self, rows: np.ndarray, n_places: int) -> tuple[np.ndarray, np.ndarray]:
        """Return places (n, n_places) of the most probable clusters of some rows, and their probabilities.

        Leaders have no say in it. A row without any density has probabilities 0. There must be one super-cluster.
        """
        places = np.empty((len(rows), n_places), dtype=np.int64)
        probabilities = np.empty((len(rows), n_places))
        for part, weights in self._weighed(rows):
            # What is not a number has no weight.
            largest = np.fmax.reduce(weights, axis=1, keepdims=True)
            weights = np.nan_to_num(np.exp(weights - np.where(np.isfinite(largest), largest, np.inf)))
            weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1.0)
            n_left = weights.shape[1] - n_places
            places[part] = np.argpartition(weights, n_left, axis=1)[:, n_left:]
            probabilities[part] = np.take_along_axis(weights, places[part], axis=1)
        return places, probabilities

    def log_densities(self, rows: np.ndarray) -> np.ndarray:
        """Return log densities (n, K) of some rows in all clusters, with their log weights."""
        found = np.empty((len(rows), len(self.slots)))
        for part, weights in self._weighed(rows):
            found[part] = weights
        return found

    def _weighed(self, rows: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield places of some of the rows, and log weights and densities (m, K), which the next ones replace."""
        n_clusters, scratch = len(self.slots), self.scratch(0)
        for first in range(0, len(rows), self.rows_of_block):
            own = np.ascontiguousarray(rows[first : first + self.rows_of_block])
            densities = self._densities(own, slice(None))
            given = 0 if densities is None else address_of(densities)
            weigh_listed(self.address, address_of(own), len(own), given, scratch.address)
            part = slice(first, first + len(own))
            yield part, scratch.numbers[: n_clusters * len(own)].reshape(n_clusters, -1).T


class Scratch:
    """Memory that one thread works with.

    Parameters
    ----------
    length : int
        Numbers.
    n_rows, n_super_clusters : int
        Of so many rows there are lists, one for each super-cluster.
    """

    def __init__(self, length: int, n_rows: int, n_super_clusters: int) -> None:
        # Numbers that go through the processor together begin where one of its cache lines does.
        numbers = np.empty(length + LINE // 8)
        begin = -address_of(numbers) % LINE // 8
        self.numbers = numbers[begin : begin + length]
        self.address = address_of(self.numbers)
        self.rows = np.empty(n_rows, dtype=np.int64)
        self.begins = np.empty(n_super_clusters + 1, dtype=np.int64)


@inlined
def put_in_lists(draws, start, stop, rows, begins):
    """List the numbers of rows, one super-cluster after the other; ``begins`` tells where each list begins."""
    slots, of_slots, n = draws_at(draws).labels, draws_at(draws).super_clusters, draws_at(draws).n_super_clusters
    begins[0], begins[n] = 0, stop - start
    if n == 1:
        for i in range(start, stop):
            rows[i - start] = i
        return
    for g in range(n):
        begins[g] = 0
    for i in range(start, stop):
        begins[of_slots[slots[i]]] += 1
    # Where lists end, which becomes where they begin while rows are put in from the back.
    for g in range(1, n):
        begins[g] += begins[g - 1]
    for i in range(stop - 1, start - 1, -1):
        g = of_slots[slots[i]]
        begins[g] -= 1
        rows[begins[g]] = i


@c_function(NOTHING(INTS, INT, INT, INTS, INTS))
def list_rows(draws, start, stop, rows, begins):
    """List the numbers of rows, one super-cluster after the other; ``begins`` tells where each list begins."""
    put_in_lists(draws, start, stop, rows, begins)


@inlined
def _weigh(draws, rows, size, first_cluster, n_clusters, given, scratch):
    """Write log weights and densities (K, size) of rows in clusters to the beginning of ``scratch``."""
    views, n_views = draws_at(draws).views, draws_at(draws).n_quadratic
    found = shifted(scratch, n_clusters * size)
    columns = shifted(found, 4 * size)
    begin_densities(shifted(draws_at(draws).log_weights, first_cluster), given, size, n_clusters, scratch)
    for v in range(n_views):
        view = shifted(views, v * VIEW_LENGTH)
        read_listed(view, rows, size, columns)
        add_quadratic(view, size, first_cluster, n_clusters, columns, found, scratch)


@c_function(NOTHING(INTS, INTS, INT, INT, FLOATS))
def weigh_listed(draws, rows, size, given, scratch):
    """Write log weights and densities (K, size) of a block of rows in all clusters to ``scratch``."""
    _weigh(draws, rows, size, 0, draws_at(draws).ends[draws_at(draws).n_super_clusters], given, scratch)


@inlined
def _keep_order(key, rows, size, n_clusters, priorities, densities):
    """Give no weight to clusters that a row may not join: a leader any other, and any whose leader comes later."""
    latest = priorities[n_clusters - 1]
    for r in range(size):
        priority = bits_at(key, rows[r])
        if priority <= latest:
            k = n_clusters - 1
            while k >= 0 and priorities[k] > priority:
                densities[k * size + r] = -math.inf
                k -= 1
            if k >= 0 and priorities[k] == priority:
                for other in range(k):
                    densities[other * size + r] = -math.inf


@c_function(INT(INTS, INT, INTS, INT, INT, INT, FLOATS))
def draw_listed(draws, g, rows, n_rows, block, given, scratch):
    """Draw the slots of the listed rows of a super-cluster, by blocks; return how many have changed.

    ``given`` is 0, or the address of log densities (K, block) of one block of rows.
    """
    slots, ends = draws_at(draws).labels, draws_at(draws).ends
    first_cluster, n_clusters = ends[g], ends[g + 1] - ends[g]
    # In the order of the leaders.
    names = shifted(draws_at(draws).slots, first_cluster)
    priorities = shifted(draws_at(draws).priorities, first_cluster)
    order_key, uniform_key = draws_at(draws).order_key, draws_at(draws).uniform_key
    n_moved = 0
    for first in range(0, n_rows, block):
        size = min(block, n_rows - first)
        own = shifted(rows, first)
        densities = scratch
        found = shifted(scratch, n_clusters * size)
        largest, total = shifted(found, 2 * size), shifted(found, 3 * size)
        _weigh(draws, own, size, first_cluster, n_clusters, given, scratch)
        _keep_order(order_key, own, size, n_clusters, priorities, densities)
        for r in range(size):
            # What is not a number is never the largest, and has no weight.
            largest[r] = -math.inf
            total[r] = 0.0
        for k in range(n_clusters):
            raise_all(largest, shifted(densities, k * size), size)
        # Sums up to each cluster.
        before = total
        for k in range(n_clusters):
            out = shifted(densities, k * size)
            add_to_all(out, before, out, largest, size)
            before = out
        for r in range(size):
            # Below the total, whatever is rounded, since what follows the last cluster of any weight has none.
            total[r] = before[r] * min(uniform_at(uniform_key, own[r]), 0.9999999999999998)
            found[r] = 0.0
        for k in range(n_clusters):
            out = shifted(densities, k * size)
            for r in range(size):
                found[r] += 1.0 if out[r] <= total[r] else 0.0
        for r in range(size):
            # Where all densities underflow, the row stays: no such state has any weight.
            if largest[r] > -math.inf and found[r] < n_clusters:
                slot = names[int(found[r])]
                n_moved += slot != slots[own[r]]
                slots[own[r]] = slot
    return n_moved


@intrinsic
def call_draw_listed(typing_context, address, draws, g, rows, n_rows, block, given, scratch):
    """Call :func:`draw_listed`, which is at an address."""
    return called_at(draw_listed.signature)


@c_function(NOTHING(INTS, INT, INT, INTS))
def _places(rows, n_rows, key, found):
    for t in range(n_rows):
        found[t] = bits_at(key, rows[t])


def places_in_order(rows: np.ndarray, key: int) -> np.ndarray:
    """Return the places of rows in an order: (m,) int64 array."""
    rows, found = np.ascontiguousarray(rows, dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    _places(address_of(rows), len(rows), key, address_of(found))
    return found
