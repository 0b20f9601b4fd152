"""Draws from an approximate posterior, and their importance weights for the exact one."""

import math

import numpy as np

from pymc_dpgmm.native.special import gammaln
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.variational.ascent import Approximation, Prior, step
from pymc_dpgmm.variational.rows import RowsAnywhere, RowsInMemory
from pymc_dpgmm.variational.weights import Sticks

# A row whose largest responsibility is above this always gets that component.
_CERTAIN = 1.0 - 1e-12


def with_source(rows: RowsAnywhere, prior: Prior, state: Approximation) -> Approximation:
    """Return a state with a source, from which responsibilities can be recomputed."""
    if state.source is not None:
        return state
    with Threads(1) as threads:
        return step(rows, prior, state, threads)


def draw_labels(
    rows: RowsInMemory, state: Approximation, n_draws: int, rng: np.random.Generator, power: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the component of every row from its responsibilities, raised to a power.

    Returns
    -------
    labels : (n_draws, n) int64 array
        Numbers of components.
    log_q : (n_draws,) array
        Log probabilities of the draws if ``power`` is 1.
    """
    assert state.source is not None
    labels, log_q = np.empty((n_draws, rows.n), dtype=np.int64), np.zeros(n_draws)
    for first, responsibilities in rows.blocks_of_responsibilities(*state.source):
        if power != 1.0:
            responsibilities = responsibilities**power
            responsibilities /= responsibilities.sum(axis=0)
        block = labels[:, first : first + responsibilities.shape[1]]
        block[:] = responsibilities.argmax(axis=0)
        open_rows = np.flatnonzero(responsibilities.max(axis=0) < _CERTAIN)
        if not len(open_rows):
            continue
        below = np.cumsum(responsibilities[:, open_rows], axis=0)
        u = rng.random((n_draws, len(open_rows))) * below[-1]
        drawn = np.zeros(u.shape, dtype=np.int64)
        for k in range(len(below) - 1):
            drawn += below[k] <= u
        block[:, open_rows] = drawn
        log_q += np.log(responsibilities[drawn, open_rows]).sum(axis=1)
    return labels, log_q


def partitions_of(labels: np.ndarray) -> np.ndarray:
    """Return labels (n_draws, n) with clusters numbered in order of first appearance."""
    return np.array([canonical_labels(labels_of_draw)[0] for labels_of_draw in labels])


def draw_alpha(state: Approximation, n_draws: int, rng: np.random.Generator) -> np.ndarray | None:
    """Draw the concentration, (n_draws,), or return None if it has no approximate posterior."""
    if state.weights.alpha is None:
        return None
    shape, rate = state.weights.alpha
    return rng.gamma(shape, 1.0 / rate, n_draws)


def log_importance(
    rows: RowsInMemory, prior: Prior, state: Approximation, n_draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, int]:
    """Return log importance weights of draws of labels and concentration, and the number of distinct labellings.

    The weights (n_draws,) are exact over approximate densities. Weights of components and parameters are
    integrated out of both. Labels are positions of sticks, and their prior probability is a product of beta
    integrals. The mean of the exponentials estimates the evidence of all partitions into these components.
    """
    labels, log_q = draw_labels(rows, state, n_draws, rng)
    alpha = draw_alpha(state, n_draws, rng)
    log_weights = np.empty(n_draws)
    for t, labels_of_draw in enumerate(labels):
        sums = rows.of_labels(labels_of_draw, state.n_components)
        prior_of_draw = prior if alpha is None else Sticks(float(alpha[t]))
        log_weights[t] = rows.log_evidences(sums).sum() + prior_of_draw.fit(sums.sizes).bound - log_q[t]
    if alpha is not None and state.weights.alpha is not None and prior.law is not None:
        log_weights += _log_gamma(alpha, *prior.law) - _log_gamma(alpha, *state.weights.alpha)
    return log_weights, len(np.unique(labels, axis=0))


def _log_gamma(x: np.ndarray, shape: float, rate: float) -> np.ndarray:
    return shape * math.log(rate) - gammaln(shape) + (shape - 1.0) * np.log(x) - rate * x
