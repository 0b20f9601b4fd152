"""Rows that belong to units, which are in one cluster with all their rows, as if they were one family.

The kernels then move units: their "row" i stands for all rows of unit i, of which there may be any number, also
none. Log densities of several rows are sums of predictives, each given the rows before it.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.dispatch import compiled, implements
from pymc_dpgmm.families import slots, verbs


class Grouped(NamedTuple):
    """Rows by unit.

    Parameters
    ----------
    rows : array or NamedTuple
        All rows, as the family represents them.
    order : (n,) int64 array
        The rows, those of the first unit first.
    starts : (n_units + 1,) int64 array
        Where the rows of each unit begin in ``order``.
    """

    rows: Any
    order: np.ndarray
    starts: np.ndarray


class GroupedSummary(NamedTuple):
    """A family's summary, and (n,) int64 room for the rows of some units."""

    summary: Any
    room: np.ndarray


class GroupedStats(NamedTuple):
    """A family's statistics with one slot more than the kernels know, ``scratch``."""

    stats: Any
    scratch: int


def check_units(unit: Any, n: int) -> int:
    """Return the number of units that the rows belong to.

    Parameters
    ----------
    unit : (n,) integer array
        Unit of each row, from 0 on.
    n : int
        Number of rows.

    Raises
    ------
    TypeError, ValueError
        If there is not one unit per row, or a unit has no rows.
    """
    unit = np.asarray(unit)
    if unit.dtype.kind not in "iu":
        raise TypeError(f"unit must be integers, got dtype {unit.dtype}")
    if unit.shape != (n,):
        raise ValueError(f"unit must have one entry per row, shape ({n},), got {unit.shape}")
    if unit.min() < 0:
        raise ValueError(f"unit must be numbers from 0 on, got {unit.min()}")
    counts = np.bincount(unit)
    gaps = np.flatnonzero(counts == 0)
    if len(gaps):
        shown = ", ".join(map(str, gaps[:5])) + (", ..." if len(gaps) > 5 else "")
        raise ValueError(
            f"unit must be numbered 0, 1, ..., {len(counts) - 1} without gaps, but {len(gaps)} of these have no "
            f"rows: {shown}; pandas.factorize numbers units of any names"
        )
    return len(counts)


def grouped(rows: Any, unit: np.ndarray, n_units: int) -> Grouped:
    """Group rows by unit."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(unit, minlength=n_units))])
    return Grouped(rows, np.argsort(unit, kind="stable"), starts.astype(np.int64))


def uses_scratch(stats: Any) -> bool:
    """Tell whether predictives write to the statistics, so that threads must not share them."""
    return isinstance(stats, GroupedStats) or any(uses_scratch(part) for part in stats if isinstance(part, tuple))


@implements(verbs.summarize, GroupedSummary)
def _(summary, k, rows, members):
    n = 0
    for unit in members:
        for t in range(rows.starts[unit], rows.starts[unit + 1]):
            summary.room[n] = rows.order[t]
            n += 1
    verbs.summarize(summary.summary, k, rows.rows, summary.room[:n])


@implements(verbs.combine, GroupedSummary)
def _(summary, k, j):
    verbs.combine(summary.summary, k, j)


@implements(slots.resize, GroupedSummary)
def _(slots_, capacity):
    return GroupedSummary(slots.resize(slots_.summary, capacity), slots_.room)


@implements(slots.resize, GroupedStats)
def _(slots_, capacity):
    return GroupedStats(slots.resize(slots_.stats, capacity + 1), capacity)


@implements(slots.move, GroupedStats)
def _(stats, source, target):
    slots.move(stats.stats, source, target)


@implements(verbs.fit, GroupedStats)
def _(stats, k, summary, j):
    verbs.fit(stats.stats, k, summary.summary, j)


@implements(verbs.add, GroupedStats)
def _(stats, k, rows, i):
    for t in range(rows.starts[i], rows.starts[i + 1]):
        verbs.add(stats.stats, k, rows.rows, rows.order[t])


@implements(verbs.remove, GroupedStats)
def _(stats, k, rows, i):
    good = True
    for t in range(rows.starts[i], rows.starts[i + 1]):
        good = good and verbs.remove(stats.stats, k, rows.rows, rows.order[t])
    return good


@compiled(_nrt=False)
def _log_predictive_together(stats, scratch, k, rows, order, start, stop):
    """Log density of ``rows[order[start:stop]]``, two or more, given the rows of a slot."""
    slots.move(stats, k, scratch)
    total = 0.0
    for t in range(start, stop):
        total += verbs.log_predictive(stats, scratch, rows, order[t])
        if t + 1 < stop:
            verbs.add(stats, scratch, rows, order[t])
    return total


@implements(verbs.log_predictive, GroupedStats)
def _(stats, k, rows, i):
    start, stop = rows.starts[i], rows.starts[i + 1]
    if stop - start == 1:
        return verbs.log_predictive(stats.stats, k, rows.rows, rows.order[start])
    if stop == start:
        return 0.0
    return _log_predictive_together(stats.stats, stats.scratch, k, rows.rows, rows.order, start, stop)


@implements(verbs.log_predictive_without, GroupedStats)
def _(stats, k, rows, i):
    start, stop = rows.starts[i], rows.starts[i + 1]
    if stop - start == 1:
        return verbs.log_predictive_without(stats.stats, k, rows.rows, rows.order[start])
    # The caller removes the unit, and asks again.
    return 0.0 if stop == start else math.nan


@implements(verbs.log_marginal, GroupedStats)
def _(stats, k):
    return verbs.log_marginal(stats.stats, k)
