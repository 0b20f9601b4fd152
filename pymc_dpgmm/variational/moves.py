"""Moves that add, merge and drop components. A move is accepted only if it raises the bound.

After the memoized births and merges of Hughes and Sudderth (2013). A birth divides a component by fitting two
components to its rows. A merge adds the responsibilities of two components, and its effect on the bound is exact.
"""

import numpy as np

from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.variational.ascent import Approximation, Prior, ascend, begin, settle, step
from pymc_dpgmm.variational.rows import RowsAnywhere, RowsInMemory, Sums
from pymc_dpgmm.variational.weights import DirichletWeights, Sticks

# Largest number of rows that a birth is fitted to, steps of that fit, and steps on all rows to judge a move by.
_MOST_LOOKED_AT, _STEPS_OF_BIRTH, _STEPS_TO_JUDGE = 4_000, 20, 8
# Births that are tried singly if all together do not raise the bound, and components that a drop is tried for.
_MOST_SINGLE, _MOST_DROPPED = 3, 3
# Number of pairs, per component, for which the loss of entropy by merging is computed.
_PAIRS_EACH = 3


def merge_pairs(rows: RowsAnywhere, prior: Prior, state: Approximation) -> Approximation:
    """Merge pairs of components as long as that raises the bound.

    Finite mixtures keep their number of components: each merge leaves one without rows. Sticks without rows are
    left out, since each costs some of the bound.
    """
    used = np.flatnonzero(state.sums.sizes > 0.0)
    if prior.is_ordered and state.source is not None and len(used) < state.n_components:
        source = state.source[0].take(used), state.source[1][used]
        state = settle(rows, prior, state.sums.take(used), state.entropy, source, state.weights)
    while state.n_components > 1 and state.source is not None:
        merged = _merge_once(rows, prior, state)
        if merged is None:
            return state
        state = merged
    return state


def _merge_once(rows: RowsAnywhere, prior: Prior, state: Approximation) -> Approximation | None:
    """Return the state after merges of disjoint pairs, None if none raises the bound."""
    left, right = np.triu_indices(state.n_components, 1)
    sizes = state.sums.sizes
    # Components without rows need no merges.
    used = (sizes[left] > 0.0) & (sizes[right] > 0.0)
    left, right = left[used], right[used]
    if not len(left):
        return None
    together = rows.merged(state.sums.take(left), state.sums.take(right))
    gains = rows.log_evidences(together) - state.log_evidences[left] - state.log_evidences[right]
    # Pairs are ranked at the present concentration.
    fixed = _given_concentration(prior, state)
    now = fixed.fit(sizes).bound
    for p in range(len(left)):
        gains[p] += fixed.fit(_sizes_after(prior, sizes, left[p], right[p])).bound - now
    best = np.argsort(-gains)[: _PAIRS_EACH * state.n_components]
    best = best[gains[best] > 0.0]
    if not len(best):
        return None
    assert state.source is not None
    losses = rows.lost_entropies(*state.source, left[best], right[best])
    gains = gains[best] - losses
    chosen: list[int] = []
    taken: set[int] = set()
    for p in np.argsort(-gains).tolist():
        pair = {int(left[best[p]]), int(right[best[p]])}
        if gains[p] > state.rounding and not pair & taken:
            chosen.append(p)
            taken |= pair
    while chosen:
        merged = _merged_state(
            rows, prior, state, left[best[chosen]], right[best[chosen]], float(losses[chosen].sum())
        )
        if merged.bound > state.bound + state.rounding:
            return merged
        # Gains are computed pair by pair, but merges change the weights of each other: try fewer.
        chosen = chosen[: len(chosen) // 2]
    return None


def drop_component(
    rows: RowsAnywhere, prior: Prior, state: Approximation, threads: Threads, least_gain: float
) -> Approximation:
    """Drop one component, so that others take its rows, if the bound is higher after a few steps.

    Unlike in a merge, several components can take the rows. The smallest components are tried.
    """
    used = np.flatnonzero(state.sums.sizes > 0.0)
    if len(used) < 2:
        return state
    for k in used[np.argsort(state.sums.sizes[used], kind="stable")][:_MOST_DROPPED].tolist():
        sums = state.sums.take(np.delete(np.arange(state.n_components), k))
        if not prior.is_ordered:
            sums = sums.beside(rows.empty(1))
        dropped = _judged(rows, prior, state, sums, threads, least_gain)
        if dropped is not None:
            return dropped
    return state


def _given_concentration(prior: Prior, state: Approximation) -> Prior:
    """Return the prior with the concentration fixed at its approximate posterior mean, if it has one."""
    if state.weights.alpha is None:
        return prior
    shape, rate = state.weights.alpha
    return Sticks(shape / rate)


def _sizes_after(prior: Prior, sizes: np.ndarray, j: int, k: int) -> np.ndarray:
    sizes = sizes.copy()
    sizes[j], sizes[k] = sizes[j] + sizes[k], 0.0
    return np.delete(sizes, k) if prior.is_ordered else sizes


def _merged_state(
    rows: RowsAnywhere, prior: Prior, state: Approximation, left: np.ndarray, right: np.ndarray, lost: float
) -> Approximation:
    together = rows.merged(state.sums.take(left), state.sums.take(right))
    unmerged = np.setdiff1d(np.arange(state.n_components), np.concatenate([left, right]))
    sums = state.sums.take(unmerged).beside(together)
    if not prior.is_ordered:
        sums = sums.beside(rows.empty(len(left)))
    return settle(rows, prior, sums, state.entropy - lost, None, state.weights)


def add_components(
    rows: RowsAnywhere,
    prior: Prior,
    state: Approximation,
    threads: Threads,
    rng: np.random.Generator,
    most: int,
    least_gain: float,
) -> tuple[Approximation, bool]:
    """Divide components where that raises the bound.

    Returns
    -------
    Approximation
        With more components, or unchanged.
    bool
        Whether the limit ``most`` kept components from being divided.
    """
    if state.source is None:
        state = step(rows, prior, state, threads)
    promising = _divided(rows, state, threads, rng)
    room = most - int(np.count_nonzero(state.sums.sizes > 0.5) if not prior.is_ordered else state.n_components)
    is_full = len(promising) > room
    promising = sorted(promising, key=lambda birth: -birth[0])[: max(room, 0)]
    trials = [promising] if promising else []
    if len(promising) > 1:
        trials += [promising[: len(promising) // 2], *([birth] for birth in promising[:_MOST_SINGLE])]
    for births in trials:
        tried = _with_births(rows, prior, state, births, threads, least_gain)
        if tried is not None:
            return tried, is_full
    return state, is_full


def _divided(
    rows: RowsAnywhere, state: Approximation, threads: Threads, rng: np.random.Generator
) -> list[tuple[float, int, Sums]]:
    """Return promising births: the gain of the bound, the component, and its two children."""
    assert state.source is not None
    births = []
    for k, members in enumerate(rows.members(*state.source, state.sums.sizes, _MOST_LOOKED_AT, rng)):
        birth = None if members.n < 2 else _divided_rows(members, state.sums.take([k]), threads, rng)
        if birth is not None:
            births.append((birth[0], k, birth[1]))
    return births


def _divided_rows(
    rows: RowsInMemory, parent: Sums, threads: Threads, rng: np.random.Generator
) -> tuple[float, Sums] | None:
    """Fit two components to rows; return the gain of the bound and the two, or None if there is no gain.

    The rows may be a sample of those of their component. Sums are then scaled up to all of them.
    """
    seeds = rows.of_single(spread_rows(rows, parent, 2, rng))
    prior = DirichletWeights(2.0, 2)
    state = begin(rows, prior, seeds, threads)
    state = ascend(rows, prior, state, threads, 1e-3, _STEPS_OF_BIRTH)
    share = float(parent.sizes[0]) / rows.n
    children = rows.scaled(state.sums, np.full(2, share))
    together = rows.merged(children.take([0]), children.take([1]))
    gain = float(rows.log_evidences(children).sum() - rows.log_evidences(together)[0])
    gain += prior.fit(children.sizes).bound + share * state.entropy
    return (gain, children) if gain > 0.0 and children.sizes.min() > 0.5 else None


def spread_rows(rows: RowsInMemory, parent: Sums, n_chosen: int, rng: np.random.Generator) -> np.ndarray:
    """Choose rows that differ, as k-means++ chooses its centres (Arthur and Vassilvitskii 2007).

    In place of a squared distance, the probability of a row is proportional to the difference of its expected log
    density under ``parent`` and under the nearest of the rows chosen so far.
    """
    chosen = [int(rng.integers(rows.n))]
    under_parent = rows.log_densities(parent)[:, 0]
    nearest = np.full(rows.n, -np.inf)
    while len(chosen) < n_chosen:
        nearest = np.maximum(nearest, rows.log_densities(rows.of_single(np.array(chosen[-1:])))[:, 0])
        distance = under_parent - nearest
        distance -= distance.min()
        distance[chosen] = 0.0
        total = distance.sum()
        if not total > 0.0:
            chosen.append(int(rng.integers(rows.n)))
            continue
        chosen.append(int(rng.choice(rows.n, p=distance / total)))
    return np.array(chosen)


def _with_births(
    rows: RowsAnywhere,
    prior: Prior,
    state: Approximation,
    births: list[tuple[float, int, Sums]],
    threads: Threads,
    least_gain: float,
) -> Approximation | None:
    """Return the state a few steps after dividing components, or None if that does not raise the bound."""
    divided = [k for _, k, _ in births]
    undivided = np.setdiff1d(np.arange(state.n_components), divided)
    sums = state.sums.take(undivided)
    if not prior.is_ordered:
        # The number of components is fixed: children replace the smallest ones.
        idle = np.argsort(sums.sizes, kind="stable")[: len(births)]
        sums = sums.take(np.setdiff1d(np.arange(len(undivided)), idle))
    for _, _, children in births:
        sums = sums.beside(children)
    return _judged(rows, prior, state, sums, threads, least_gain)


def _judged(
    rows: RowsAnywhere, prior: Prior, state: Approximation, sums: Sums, threads: Threads, least_gain: float
) -> Approximation | None:
    """Return the state a few steps after a change of components, or None if the bound has not risen."""
    source = sums, prior.fit(sums.sizes, state.weights).log_weights
    new = settle(rows, prior, *rows.respond(*source, threads), source, state.weights)
    wanted = state.bound + least_gain + state.rounding
    for n_left in range(_STEPS_TO_JUDGE, 0, -1):
        if new.bound > wanted:
            return new
        before, new = new.bound, step(rows, prior, new, threads)
        # Rises get smaller: stop if further rises as large as this one would not be enough.
        if new.bound + n_left * (new.bound - before) < wanted:
            return None
    return new if new.bound > wanted else None
