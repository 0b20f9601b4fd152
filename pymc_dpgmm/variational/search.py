"""Random starts, and the search for a local optimum from each."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.variational.ascent import Approximation, Prior, ascend, begin, settle
from pymc_dpgmm.variational.moves import add_components, drop_component, merge_pairs, spread_rows
from pymc_dpgmm.variational.rows import RowsAnywhere, RowsInMemory

# With many rows, a start first searches on _FIRST_ROWS random rows, with at most _FIRST_STEPS steps per ascent.
_FIRST_ROWS, _FIRST_STEPS = 4_096, 200
# Largest number of initial components under an infinite prior.
_MOST_FIRST = 20
# Largest number of rounds of births and merges, and numbers of successive failed births after which a search ends:
# in general, and on all rows after a search on some.
_MOST_ROUNDS, _PATIENCE, _PATIENCE_LATER = 50, 6, 2


class Optimum(NamedTuple):
    """The local optimum that one start has reached.

    Parameters
    ----------
    state : Approximation
    bounds : list of float
        The bound after every accepted change, beginning with the first step on all rows.
    is_full : bool
        Whether the largest number of components kept some from being divided.
    has_converged : bool
        Whether the last step raised the bound by less than the tolerance.
    """

    state: Approximation
    bounds: list[float]
    is_full: bool
    has_converged: bool


# Optima whose bounds differ by less than this, relative to the bound, count as one.
_SAME = 1e-6


def distinct(optima: Sequence[Optimum]) -> list[Optimum]:
    """Return the distinct ones among optima, in their order."""
    found: list[Optimum] = []
    for optimum in optima:
        bound = optimum.state.bound
        if all(abs(bound - other.state.bound) > _SAME * (1.0 + abs(bound)) for other in found):
            found.append(optimum)
    return found


class SearchLimits(NamedTuple):
    """Limits of a search.

    Parameters
    ----------
    max_components : int
    tol : float
        Steps end when one raises the bound by less than this for every row.
    max_steps : int
        Largest number of steps of one ascent.
    patience : int
        Number of successive failed births after which the search ends.
    """

    max_components: int
    tol: float
    max_steps: int
    patience: int = _PATIENCE


def first_state(
    rows: RowsInMemory, prior: Prior, rng: np.random.Generator, most: int, threads: Threads
) -> Approximation:
    """Return a state with a random number of components, each initialised at one row.

    A finite mixture always has all its components, some of them without rows.
    """
    most_first = min(rows.n, most, _MOST_FIRST) if prior.is_ordered else min(rows.n, most)
    n_first = int(np.exp(rng.uniform(0.0, np.log(most_first + 1.0)))) if prior.is_ordered else most_first
    n_first = max(1, min(n_first, most_first))
    parent = rows.respond(rows.empty(1), np.zeros(1), threads)[0]
    sums = parent if n_first == 1 else rows.of_single(spread_rows(rows, parent, n_first, rng))
    if not prior.is_ordered and n_first < most:
        sums = sums.beside(rows.empty(most - n_first))
    return begin(rows, prior, sums, threads)


def find_optimum(
    rows: RowsAnywhere,
    prior: Prior,
    rng: np.random.Generator,
    options: SearchLimits,
    threads: Threads,
    report: Callable[[int, float], None] | None = None,
) -> Optimum:
    """Bring one random start to an optimum."""
    most = int(min(options.max_components, prior.most, rows.n))
    if isinstance(rows, RowsInMemory) and rows.n <= 2 * _FIRST_ROWS:
        state = first_state(rows, prior, rng, most, threads)
        return _climb(rows, prior, state, rng, options, most, threads, report)
    n_first = min(_FIRST_ROWS, rows.n)
    some = rows.some(n_first, rng)
    first = first_state(some, prior, rng, most, threads)
    quick = options._replace(max_steps=_FIRST_STEPS, tol=10.0 * options.tol)
    quick_optimum = _climb(some, prior, first, rng, quick, most, threads, report)
    share = np.full(quick_optimum.state.n_components, rows.n / n_first)
    sums = rows.scaled(quick_optimum.state.sums, share)
    source = sums, prior.fit(sums.sizes).log_weights
    state = settle(rows, prior, *rows.respond(*source, threads), source)
    return _climb(rows, prior, state, rng, options._replace(patience=_PATIENCE_LATER), most, threads, report)


def _climb(
    rows: RowsAnywhere,
    prior: Prior,
    state: Approximation,
    rng: np.random.Generator,
    options: SearchLimits,
    most: int,
    threads: Threads,
    report: Callable[[int, float], None] | None,
) -> Optimum:
    """Ascend, and add, merge and drop components, until none of this raises the bound."""
    bounds = [state.bound]
    tolerance = options.tol * rows.n

    def ascended(changed: Approximation) -> Approximation:
        """Return the state after an ascent from changed components."""
        bounds.append(changed.bound)
        new = ascend(rows, prior, changed, threads, tolerance, options.max_steps, bounds)
        if report is not None:
            report(new.n_components, new.bound)
        return new

    state = ascended(state)
    failed, is_full, is_new = 0, False, True
    for _ in range(_MOST_ROUNDS):
        before = state.bound
        if is_new:
            merged = merge_pairs(rows, prior, state)
            state = state if merged is state else ascended(merged)
            fewer = drop_component(rows, prior, state, threads, max(tolerance, state.rounding))
            state = state if fewer is state else ascended(fewer)
        grown, is_full = add_components(rows, prior, state, threads, rng, most, max(tolerance, state.rounding))
        state = state if grown is state else ascended(grown)
        is_new = state.bound > before + tolerance
        # Births are random: the next may succeed.
        failed = 0 if is_new else failed + 1
        if failed >= options.patience:
            break
    return Optimum(state, bounds, is_full, bounds[-1] - bounds[-2] < tolerance)


def renewed(
    rows: RowsAnywhere, prior: Prior, optimum: Optimum, options: SearchLimits, threads: Threads
) -> Optimum:
    """Ascend from an optimum for other hyperparameters to the nearby one for the present ones."""
    state = settle(rows, prior, optimum.state.sums, optimum.state.entropy, None)
    bounds = [state.bound]
    state = ascend(rows, prior, state, threads, options.tol * rows.n, options.max_steps, bounds)
    return optimum._replace(
        state=state, bounds=bounds, has_converged=bounds[-1] - bounds[-2] < options.tol * rows.n
    )
