"""Partitions that the searches of several chains have ended with, compared."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.sampler.amounts import FAR_APART, NOT_FAR_APART, PUT_TOGETHER
from pymc_dpgmm.sampler.moves.sweep import redraw_alpha
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.exchange import Found, Mailbox
from pymc_dpgmm.sampler.tuning.exploration import Explored
from pymc_dpgmm.sampler.tuning.pool import Pool
from pymc_dpgmm.sampler.tuning.population import can_put_together, recombined, relabelled
from pymc_dpgmm.sampler.tuning.search import log_sum


class Compared(NamedTuple):
    """What comes of a comparison: the state a chain goes on from, and, if it begins anew there, from what it left.

    ``has_met`` tells whether searches have ended in one place, so that there is nothing to put together.
    """

    state: State
    left: "Abandoned | None"
    has_met: bool


class Abandoned(NamedTuple):
    """How far what a chain had found alone was from where it has begun anew.

    Parameters
    ----------
    lower : float
        Nats by which it was less probable.
    distance : float
        Variation of information between the partitions, in bits.
    """

    lower: float
    distance: float


STAYED = Abandoned(0.0, 0.0)


def left(lower: float, alone: np.ndarray, labels: np.ndarray) -> Abandoned:
    """Return how far labels (n,) that a chain leaves are from others."""
    together = alone.astype(np.int64) * (int(labels.max()) + 1) + labels
    bits = [_entropy(together), _entropy(alone), _entropy(labels)]
    return Abandoned(lower, 2.0 * bits[0] - bits[1] - bits[2])


def _entropy(labels: np.ndarray) -> float:
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    return float(-(shares * np.log2(shares)).sum())


def best_of_chains(
    rng: np.random.Generator,
    state: State,
    merit: float,
    explored: Callable[[State], Explored],
    others: Mailbox,
    pool: Pool | None,
    has_ended: bool,
) -> Compared:
    """Return the state that a search has ended with, or a better one of what other chains have found.

    This is the best of theirs, or clusters of all put together, unless searches end in one place. All are judged
    by the parameters of this chain, which begins anew only where its own partition is so much less probable that
    it would be stuck.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    merit : float
    explored : callable
        Searches on from a state that clusters have been put together to.
    others : Mailbox
    pool : Pool, optional
        The clusters that a search has kept, unless they cannot be put together. Those of all chains are added.
    has_ended : bool
        Whether the search has ended in one place, or because nothing changed.
    """
    heard = _heard(others, state, merit, [] if pool is None else list(pool.clusters.values()))
    if pool is None:
        # There is no second round. Of many rows, memory may not hold a state for each chain.
        heard = sorted(heard, key=lambda found: found.merit)[-1:]
    best, least = max([(state, merit), *_judged(state, heard)], key=lambda one: one[1]), FAR_APART
    has_met = has_ended and abs(best[1] - merit) < FAR_APART
    if pool is not None:
        if heard and not has_met:
            for found in heard:
                pool.add(found.labels)
                pool.add_clusters(found.clusters)
            pool.add(state.labels())
            for _ in range(PUT_TOGETHER):
                child = explored(recombined(rng, best[0], pool))
                pool.add(child.state.labels())
                best = max(best, (child.state, child.merit), key=lambda one: one[1])
            least = NOT_FAR_APART
        best = max([best, *_judged(state, _heard(others, *best))], key=lambda one: one[1])
    if best[1] <= merit + least:
        return Compared(state, None, has_met)
    return Compared(best[0], left(best[1] - merit, state.labels(), best[0].labels()), has_met)


def _heard(others: Mailbox, state: State, merit: float, clusters: Sequence[np.ndarray] = ()) -> list[Found]:
    """Tell other chains of a partition, and of clusters; return what they have told."""
    others.tell(Found(state.labels(), merit, clusters))
    return others.of_others()


def _judged(state: State, heard: Sequence[Found]) -> list[tuple[State, float]]:
    """Return partitions of other chains, each with its merit under the parameters of a state."""
    rivals = [relabelled(state, found.labels) for found in heard]
    for rival in rivals if can_put_together(state) else ():
        # With a concentration that suits its number of clusters, by random numbers that are not the chain's: a
        # chain that goes on from where it is draws the same, whoever it has heard.
        redraw_alpha(np.random.default_rng(0), rival)
    return [(rival, log_sum(rival)) for rival in rivals]
