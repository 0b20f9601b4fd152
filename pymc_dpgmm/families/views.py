"""Several views of the same rows, of different families, as if they were one family.

Given the labels the views are independent, so what is a log density adds up. More than two views nest:
``Pair(first, Pair(second, third))``.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

from pymc_dpgmm.dispatch import compiled, implements
from pymc_dpgmm.families import slots, verbs
from pymc_dpgmm.families.verbs import Family


class View(NamedTuple):
    """Data of one family.

    Parameters
    ----------
    family : Family
    params : NamedTuple
        Its parameters, as numbers.
    values : (n, c) array or sparse matrix
    unit : (n,) int array, optional
        What each row belongs to, where labels are those of units.
    """

    family: Family
    params: Any
    values: Any
    unit: Any = None


class Pair(NamedTuple):
    """Two things of a kind, one a view: rows, summaries, or statistics."""

    first: Any
    rest: Any


def paired(parts: Sequence[Any]) -> Any:
    """Nest one thing per view into pairs; a single one stays what it is."""
    return reduce(lambda rest, first: Pair(first, rest), reversed(parts[:-1]), parts[-1])


@implements(verbs.summarize, Pair)
def _(summary, k, rows, members):
    verbs.summarize(summary.first, k, rows.first, members)
    verbs.summarize(summary.rest, k, rows.rest, members)


@implements(verbs.combine, Pair)
def _(summary, k, j):
    verbs.combine(summary.first, k, j)
    verbs.combine(summary.rest, k, j)


@implements(verbs.fit, Pair)
def _(stats, k, summary, j):
    verbs.fit(stats.first, k, summary.first, j)
    verbs.fit(stats.rest, k, summary.rest, j)


@implements(slots.resize, Pair)
def _(slots_, capacity):
    return Pair(slots.resize(slots_.first, capacity), slots.resize(slots_.rest, capacity))


@implements(slots.move, Pair)
def _(stats, source, target):
    slots.move(stats.first, source, target)
    slots.move(stats.rest, source, target)


@implements(verbs.add, Pair)
def _(stats, k, rows, i):
    verbs.add(stats.first, k, rows.first, i)
    verbs.add(stats.rest, k, rows.rest, i)


@implements(verbs.remove, Pair)
def _(stats, k, rows, i):
    # Both are asked: a slot of which one view is undefined is fitted anew in all.
    first = verbs.remove(stats.first, k, rows.first, i)
    rest = verbs.remove(stats.rest, k, rows.rest, i)
    return first and rest


@implements(verbs.log_predictive, Pair)
def _(stats, k, rows, i):
    return verbs.log_predictive(stats.first, k, rows.first, i) + verbs.log_predictive(stats.rest, k, rows.rest, i)


@implements(verbs.log_predictive_without, Pair)
def _(stats, k, rows, i):
    return verbs.log_predictive_without(stats.first, k, rows.first, i) + verbs.log_predictive_without(
        stats.rest, k, rows.rest, i
    )


@compiled()
def _log_predictive_present(stats, k, rows, i, absent):
    if absent is None:
        return verbs.log_predictive(stats, k, rows, i)
    return verbs.log_predictive_present(stats, k, rows, i, absent)


@implements(verbs.log_predictive_present, Pair)
def _(stats, k, rows, i, absent):
    first = _log_predictive_present(stats.first, k, rows.first, i, absent.first)
    return first + _log_predictive_present(stats.rest, k, rows.rest, i, absent.rest)


@compiled()
def _draw_absent(stats, k, rows, i, absent, rng):
    if absent is not None:
        verbs.draw_absent(stats, k, rows, i, absent, rng)


@implements(verbs.draw_absent, Pair)
def _(stats, k, rows, i, absent, rng):
    _draw_absent(stats.first, k, rows.first, i, absent.first, rng)
    _draw_absent(stats.rest, k, rows.rest, i, absent.rest, rng)


@implements(verbs.log_marginal, Pair)
def _(stats, k):
    return verbs.log_marginal(stats.first, k) + verbs.log_marginal(stats.rest, k)
