"""Draws from an approximate posterior, and how much the exact posterior would weigh them."""

import math

import numpy as np

from pymc_dpgmm.native.special import gammaln
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.partitions.priors import canonical_labels
from pymc_dpgmm.variational.ascent import Prior, State, step
from pymc_dpgmm.variational.rows import Rows, RowsAnywhere
from pymc_dpgmm.variational.weights import Sticks

# Rows whose largest responsibility is this close to 1 are not drawn one by one.
_CERTAIN = 1.0 - 1e-12


def with_source(rows: RowsAnywhere, prior: Prior, state: State) -> State:
    """Return a state whose responsibilities can be computed again."""
    if state.source is not None:
        return state
    with Threads(1) as threads:
        return step(rows, prior, state, threads)


def draw_labels(
    rows: Rows, state: State, n_draws: int, rng: np.random.Generator, power: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the component of every row from its responsibilities, raised to a power.

    Returns
    -------
    labels : (n_draws, n) int64 array
        Components, in their order.
    log_q : (n_draws,) array
        Log probabilities of the draws, for power 1.
    """
    assert state.source is not None
    labels, log_q = np.empty((n_draws, rows.n), dtype=np.int64), np.zeros(n_draws)
    for first, own in rows.blocks_of_responsibilities(*state.source):
        if power != 1.0:
            own = own**power
            own /= own.sum(axis=0)
        block = labels[:, first : first + own.shape[1]]
        block[:] = own.argmax(axis=0)
        open_rows = np.flatnonzero(own.max(axis=0) < _CERTAIN)
        if not len(open_rows):
            continue
        below = np.cumsum(own[:, open_rows], axis=0)
        u = rng.random((n_draws, len(open_rows))) * below[-1]
        drawn = np.zeros(u.shape, dtype=np.int64)
        for k in range(len(below) - 1):
            drawn += below[k] <= u
        block[:, open_rows] = drawn
        log_q += np.log(own[drawn, open_rows]).sum(axis=1)
    return labels, log_q


def partitions_of(labels: np.ndarray) -> np.ndarray:
    """Return labels (n_draws, n) with clusters named in the order of their first rows."""
    return np.array([canonical_labels(own)[0] for own in labels])


def draw_alpha(state: State, n_draws: int, rng: np.random.Generator) -> np.ndarray | None:
    """Draw the concentration, where it has an approximate posterior: (n_draws,)."""
    if state.weights.alpha is None:
        return None
    shape, rate = state.weights.alpha
    return rng.gamma(shape, 1.0 / rate, n_draws)


def log_importance(
    rows: Rows, prior: Prior, state: State, n_draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    """Return logs of exact over approximate densities, for draws of labels and concentration, (n_draws,).

    The second number is that of different labels among the draws.

    Weights and parameters are integrated out of both. The labels are names of components in the order of their
    sticks, whose probability is that of a sequence of Beta integrals. The mean of the exponentials is an estimate
    of the evidence of all partitions that the components allow.
    """
    labels, log_q = draw_labels(rows, state, n_draws, rng)
    alpha = draw_alpha(state, n_draws, rng)
    found = np.empty(n_draws)
    for t, own in enumerate(labels):
        sums = rows.of_labels(own, state.n_components)
        given = prior if alpha is None else Sticks(float(alpha[t]))
        found[t] = rows.log_evidences(sums).sum() + given.fit(sums.sizes).bound - log_q[t]
    if alpha is not None and state.weights.alpha is not None and prior.law is not None:
        found += _log_gamma(alpha, *prior.law) - _log_gamma(alpha, *state.weights.alpha)
    return found, len(np.unique(labels, axis=0))


def _log_gamma(x: np.ndarray, shape: float, rate: float) -> np.ndarray:
    return shape * math.log(rate) - gammaln(shape) + (shape - 1.0) * np.log(x) - rate * x
