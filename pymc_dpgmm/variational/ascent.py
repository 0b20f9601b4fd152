r"""Coordinate ascent, which alternates between responsibilities and the posteriors of weights and parameters.

With the optimal approximate posteriors of weights and parameters inserted, the bound depends on the
responsibilities alone,

.. math:: L(r) = \sum_k \log m_k(r) + W(r) - \sum_{ik} r_{ik} \log r_{ik},

where :math:`m_k(r)` is the evidence of component k with row i counted :math:`r_{ik}` times, and W is the
contribution of the weights.
"""

import contextlib
import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.variational.rows import RowsAnywhere, Sums
from pymc_dpgmm.variational.weights import DirichletWeights, Sticks, Weights

Prior = Sticks | DirichletWeights
# An extrapolation is tried if the rise of the bound is at least _LEAST_RATIO of the previous rise. It covers at
# most _LONGEST_LEAP steps.
_LEAST_RATIO, _LONGEST_LEAP = 0.2, 100.0
# Largest fall of the bound by rounding, relative to the sum of the absolute values of its parts.
ROUNDING = 1e-10


class Approximation(NamedTuple):
    """An approximate posterior.

    Parameters
    ----------
    sums : Sums
        Sufficient statistics of the rows, weighted by responsibilities. They determine the approximate posterior
        of the parameters of each component.
    weights : Weights
    log_evidences : (K,) array
    entropy : float
        Entropy of the responsibilities.
    source : tuple or None
        Sums and expected log weights from which the responsibilities were computed; None if components have been
        merged since.
    """

    sums: Sums
    weights: Weights
    log_evidences: np.ndarray
    entropy: float
    source: tuple[Sums, np.ndarray] | None

    @property
    def bound(self) -> float:
        """The lower bound of the log evidence."""
        return float(self.log_evidences.sum() + self.weights.bound + self.entropy)

    @property
    def rounding(self) -> float:
        """Largest fall of the bound that rounding explains."""
        parts = np.abs(self.log_evidences).sum() + abs(self.weights.bound) + self.entropy
        return ROUNDING * float(parts)

    @property
    def n_components(self) -> int:
        """Number of components that labels may take."""
        return len(self.sums.sizes)


def settle(
    rows: RowsAnywhere,
    prior: Prior,
    sums: Sums,
    entropy: float,
    source: tuple[Sums, np.ndarray] | None,
    before: Weights | None = None,
) -> Approximation:
    """Return the optimal approximate posterior given responsibilities.

    Sticks are sorted by decreasing size if that raises the bound.
    """
    weights = prior.fit(sums.sizes, before)
    order = np.argsort(-sums.sizes, kind="stable")
    if prior.is_ordered and np.any(np.diff(order) < 0):
        ordered = prior.fit(sums.sizes[order], before)
        if ordered.bound > weights.bound:
            weights, sums = ordered, sums.take(order)
            source = None if source is None else (source[0].take(order), source[1][order])
    return Approximation(sums, weights, rows.log_evidences(sums), entropy, source)


def begin(rows: RowsAnywhere, prior: Prior, sums: Sums, threads: Threads) -> Approximation:
    """Return the state after one pass over the rows, with these components at equal weights."""
    log_weights = np.zeros(len(sums.sizes))
    new, entropy = rows.respond(sums, log_weights, threads)
    return settle(rows, prior, new, entropy, (sums, log_weights))


def step(rows: RowsAnywhere, prior: Prior, state: Approximation, threads: Threads) -> Approximation:
    """Update the responsibilities, and then weights and parameters given them.

    Raises
    ------
    FloatingPointError
        If the bound falls by more than rounding explains, or is not a number.
    """
    source = state.sums, state.weights.log_weights
    sums, entropy = rows.respond(*source, threads)
    new = settle(rows, prior, sums, entropy, source, state.weights)
    if not new.bound >= state.bound - max(new.rounding, state.rounding):
        raise FloatingPointError(
            f"the bound fell from {state.bound:.10g} to {new.bound:.10g}, which means that digits were lost. "
            "Scale the columns of the data to similar spreads. If that does not help, report this"
        )
    return new


def ascend(
    rows: RowsAnywhere,
    prior: Prior,
    state: Approximation,
    threads: Threads,
    tolerance: float,
    most: int,
    trace: list[float] | None = None,
) -> Approximation:
    """Repeat steps until one raises the bound by less than a tolerance, at most ``most`` times.

    While the rises fall at a steady rate, an extrapolation to the limit is tried from time to time. The bound
    after each step is appended to ``trace``.
    """
    last_rise, pause, left, longest = 0.0, 1, 1, _LONGEST_LEAP
    for _ in range(most):
        new = step(rows, prior, state, threads)
        rise = new.bound - state.bound
        left -= 1
        if left <= 0 and _LEAST_RATIO * last_rise < rise < last_rise and tolerance < rise:
            leap = _leap(rows, prior, state, new, math.sqrt(rise / last_rise), longest, threads)
            # Each failure makes extrapolations rarer and shorter.
            pause, longest = (2 * pause, 0.5 * longest) if leap is None else (2, min(2.0 * longest, _LONGEST_LEAP))
            left = pause
            new = new if leap is None else leap
        last_rise, state = rise, new
        if trace is not None:
            trace.append(state.bound)
        if rise < tolerance:
            break
    return state


def _leap(
    rows: RowsAnywhere,
    prior: Prior,
    before: Approximation,
    state: Approximation,
    rate: float,
    longest: float,
    threads: Threads,
) -> Approximation | None:
    """Extrapolate in the direction of the last step; return the new state if its bound is higher, else None.

    Near an optimum each step shortens the distance to it by a rate, and the gap of the bound by the squared rate.
    So all further steps together are rate / (1 - rate) times the last one. The extrapolated sums need not belong
    to any rows: responsibilities are computed from them, and then proper sums from these.
    """
    if state.source is None or state.source[0] is not before.sums:
        # Components have been reordered: the difference between the two states is no direction.
        return None
    sums = rows.beyond(before.sums, state.sums, min(rate / (1.0 - rate), longest))
    # Extrapolated sums may have no valid covariance.
    with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError):
        source = sums, prior.fit(sums.sizes, state.weights).log_weights
        proper, entropy = rows.respond(*source, threads)
        if not (math.isfinite(entropy) and all(np.all(np.isfinite(of_view)) for of_view in proper.views)):
            return None
        leap = settle(rows, prior, proper, entropy, source, state.weights)
        return leap if leap.bound > state.bound else None
    return None
