"""Labels of rows given weights and parameters of the clusters, wherever the rows are.

What is drawn for the clusters, and who leads them, is all that the labels of rows are a function of: see
:mod:`pymc_dpgmm.kernels.leader_sweep`.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic

from pymc_dpgmm.arithmetic import add_to_all, bits_at, raise_all, uniform_at
from pymc_dpgmm.compiled import (
    FLOATS,
    INT,
    INTS,
    NOTHING,
    c_function,
    called_at,
    floats_at,
    inlined,
    ints_at,
    shifted,
)
from pymc_dpgmm.families.component import Component, Drawn
from pymc_dpgmm.kernels.quadratics import VIEW_LENGTH, add_quadratic, begin_densities, rows_of_block
from pymc_dpgmm.kernels.table import Table

# Densities of a block, and its rows, where they are computed in NumPy.
NUMPY_DENSITIES, LEAST_NUMPY_BLOCK, NUMPY_BLOCK = 524_288, 32, 4_096
# Bytes of a cache line.
LINE = 64

# Places in what tells how labels are drawn: addresses of the labels, of the clusters' slots, priorities and log
# weights, and of the views, and numbers.
LABELS, SLOTS, PRIORITIES, LOG_WEIGHTS, VIEWS, N_SLOTS, N_QUADRATIC, ORDER_KEY, UNIFORM_KEY, BLOCK = range(10)
TOLD_LENGTH = 10


class DrawnClusters(NamedTuple):
    """What the labels of rows are drawn from; it does not depend on where the rows are.

    Parameters
    ----------
    slots : (K,) int64 array
        The clusters, in the order of their leaders.
    priorities : (K,) int64 array
        Places of the leaders in the order of the rows.
    log_weights : (K,) array
        Up to a constant.
    drawn : list of dict
        For each view, parameters of the clusters, for rows in the form that the family makes.
    order_key, uniform_key : int
        Of the order of the rows, and of their random numbers.
    """

    slots: np.ndarray
    priorities: np.ndarray
    log_weights: np.ndarray
    drawn: list[Drawn]
    order_key: int
    uniform_key: int


def draw_clusters(
    rng: np.random.Generator, tables: Sequence[Table], slots: np.ndarray, shapes: np.ndarray
) -> tuple[np.ndarray, list[Drawn]]:
    """Draw log weights, up to a constant, and parameters of clusters, given the statistics in tables.

    Parameters
    ----------
    rng : numpy.random.Generator
    tables : sequence of Table
    slots : (K,) int64 array
    shapes : (K,) array, > 0
        Parameters of the Dirichlet distribution of the weights.
    """
    log_weights, drawn = log_gamma_numbers(rng, shapes), []
    for table in tables:
        sums = table.family.kept_sums(*(part[slots] for part in table.sums(0, int(slots.max()) + 1)))
        drawn.append(table.family.component.draw(rng, table.shifted, sums))
    return log_weights, drawn


class LabelDraws:
    """Draws the labels of rows.

    Parameters
    ----------
    clusters : DrawnClusters
    tables : sequence of Table
        Of the rows at hand.
    labels : (n,) int64 array
        Slots of these rows, which become those that are drawn.
    first_row : int
        Number of the first of these rows among all.
    """

    def __init__(
        self, clusters: DrawnClusters, tables: Sequence[Table], labels: np.ndarray, first_row: int = 0
    ) -> None:
        self._clusters, self._first = clusters, first_row
        self._slots, self._priorities = clusters.slots, clusters.priorities
        self._log_weights = clusters.log_weights.copy()
        self._labels = labels
        # Views whose densities compiled code computes, and the others.
        self._views = np.zeros((max(len(tables), 1), VIEW_LENGTH), dtype=np.int64)
        self._n_quadratic = 0
        self._others: list[tuple[Component, Drawn, Any]] = []
        self._kept: list[np.ndarray] = []
        self._most_columns = 1
        for table, drawn in zip(tables, clusters.drawn, strict=True):
            component = table.family.component
            if component.quadratic is None or table.family.takes_missing:
                self._others.append((component, component.restore(drawn, table.origin), table.values))
            else:
                self._add_quadratic(table, *component.quadratic(drawn))
        self._block = rows_of_block(len(self._slots), self._most_columns)
        if self._others:
            most = NUMPY_DENSITIES // len(self._slots)
            self._block = int(np.clip(most, LEAST_NUMPY_BLOCK, NUMPY_BLOCK))
        self.told = np.array(
            [
                # Rows are counted from the first of all: addresses are where that one would be.
                labels.ctypes.data - 8 * first_row,
                *(a.ctypes.data for a in (self._slots, self._priorities, self._log_weights, self._views)),
                len(self._slots),
                self._n_quadratic,
                clusters.order_key,
                clusters.uniform_key,
                self._block,
            ]
        )
        # NumPy takes a microsecond to tell where an array is.
        self._address = self.told.ctypes.data

    @property
    def are_compiled(self) -> bool:
        """Whether compiled code computes all densities."""
        return not self._others

    def _add_quadratic(self, table: Table, mean: np.ndarray, root: np.ndarray) -> None:
        is_diagonal, d = root.ndim == 2, mean.shape[1]
        diagonal = root if is_diagonal else np.diagonal(root, axis1=1, axis2=2)
        shift = root * mean if is_diagonal else np.einsum("kij,kj->ki", root, mean)
        self._log_weights += np.log(np.abs(diagonal)).sum(axis=1) - 0.5 * d * math.log(2.0 * math.pi)
        arrays = [np.ascontiguousarray(array, dtype=np.float64) for array in (shift, root)]
        self._kept += arrays
        stride = table.rows.shape[1]
        self._views[self._n_quadratic] = (
            table.rows.ctypes.data - 8 * self._first * stride,
            stride,
            d,
            is_diagonal,
            *(array.ctypes.data for array in arrays),
        )
        self._most_columns = max(self._most_columns, d)
        self._n_quadratic += 1

    def scratch(self) -> "Scratch":
        """Return what one thread works with."""
        return Scratch((len(self._slots) + self._most_columns + 4) * self._block)

    def draw(self, start: int, stop: int, scratch: "Scratch") -> int:
        """Draw the labels of the rows with numbers ``start`` to ``stop - 1``; return how many have changed."""
        if self.are_compiled:
            return int(draw_rows(self._address, start, stop, self._block, 0, scratch.address))
        n_moved = 0
        for first in range(start, stop, self._block):
            last = min(first + self._block, stop)
            own = slice(first - self._first, last - self._first)
            total = sum(component.log_density(drawn, values[own]) for component, drawn, values in self._others)
            densities = np.ascontiguousarray(np.asarray(total).T)
            given = densities.ctypes.data
            n_moved += draw_rows(self._address, first, last, last - first, given, scratch.address)
        return n_moved


class Scratch:
    """Memory that one thread works with.

    Parameters
    ----------
    length : int
        Numbers.
    """

    def __init__(self, length: int) -> None:
        # Numbers that go through the processor together begin where one of its cache lines does.
        self._numbers = np.empty(length + LINE // 8)
        self.address = -(-self._numbers.ctypes.data // LINE) * LINE


def log_gamma_numbers(rng: np.random.Generator, shape: np.ndarray) -> np.ndarray:
    """Draw logarithms of gamma numbers with shapes > 0, however small, and rate 1."""
    boosted = np.log(rng.standard_gamma(shape + 1.0))
    return boosted + np.log1p(-rng.random(len(shape))) / shape


@inlined
def _keep_order(key, first, size, n_clusters, priorities, densities):
    """Give no weight to clusters that a row may not join: a leader any other, and any whose leader comes later."""
    latest = priorities[n_clusters - 1]
    for r in range(size):
        priority = bits_at(key, first + r)
        if priority <= latest:
            k = n_clusters - 1
            while k >= 0 and priorities[k] > priority:
                densities[k * size + r] = -math.inf
                k -= 1
            if k >= 0 and priorities[k] == priority:
                for other in range(k):
                    densities[other * size + r] = -math.inf


@c_function(INT(INTS, INT, INT, INT, INT, FLOATS))
def draw_rows(told, start, stop, block, given, scratch):
    """Draw the slots of the rows from ``start`` to ``stop``, by blocks, as ``told``; return how many have changed.

    ``given`` is 0, or the address of log densities (K, block) of one block of rows.
    """
    slots, n_clusters = ints_at(told[LABELS]), told[N_SLOTS]
    # In the order of the leaders.
    names, priorities, log_weights = ints_at(told[SLOTS]), ints_at(told[PRIORITIES]), floats_at(told[LOG_WEIGHTS])
    views, n_views = ints_at(told[VIEWS]), told[N_QUADRATIC]
    order_key, uniform_key = told[ORDER_KEY], told[UNIFORM_KEY]
    n_moved = 0
    for first in range(start, stop, block):
        size = min(block, stop - first)
        densities = scratch
        found = shifted(scratch, n_clusters * size)
        largest, total = shifted(found, 2 * size), shifted(found, 3 * size)
        columns = shifted(found, 4 * size)
        begin_densities(log_weights, given, size, n_clusters, densities)
        for v in range(n_views):
            view = shifted(views, v * VIEW_LENGTH)
            add_quadratic(view, first, size, n_clusters, columns, found, densities)
        _keep_order(order_key, first, size, n_clusters, priorities, densities)
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
            total[r] = before[r] * min(uniform_at(uniform_key, first + r), 0.9999999999999998)
            found[r] = 0.0
        for k in range(n_clusters):
            out = shifted(densities, k * size)
            for r in range(size):
                found[r] += 1.0 if out[r] <= total[r] else 0.0
        for r in range(size):
            # Where all densities underflow, the row stays: no such state has any weight.
            if largest[r] > -math.inf and found[r] < n_clusters:
                slot = names[int(found[r])]
                n_moved += slot != slots[first + r]
                slots[first + r] = slot
    return n_moved


@intrinsic
def call_draw_rows(typing_context, address, told, start, stop, block, given, scratch):
    """Call :func:`draw_rows`, which is at an address."""
    return called_at(draw_rows.signature)


@c_function(NOTHING(INTS, INT, INT, INTS))
def _places(rows, n_rows, key, found):
    for t in range(n_rows):
        found[t] = bits_at(key, rows[t])


def places_in_order(rows: np.ndarray, key: int) -> np.ndarray:
    """Return the places of rows in an order: (m,) int64 array."""
    rows, found = np.ascontiguousarray(rows, dtype=np.int64), np.empty(len(rows), dtype=np.int64)
    _places(rows.ctypes.data, len(rows), key, found.ctypes.data)
    return found
