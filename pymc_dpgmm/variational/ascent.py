r"""Coordinate ascent: responsibilities, then the posteriors of weights and parameters given these, in turn.

With the best approximate posteriors of weights and parameters put in, the bound is a function of the
responsibilities alone,

.. math:: L(r) = \sum_k \log m_k(r) + W(r) - \sum_{ik} r_{ik} \log r_{ik},

where :math:`m_k(r)` is the evidence of rows of which :math:`r_{ik}` are in component k, and W what the weights
add.
"""

import contextlib
import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.variational.rows import RowsAnywhere, Sums
from pymc_dpgmm.variational.weights import DirichletWeights, Sticks, Weights

Prior = Sticks | DirichletWeights
# Shares of the rise before from which leaps are tried, and how many steps they are long at the most.
_LEAST_RATIO, _LONGEST_LEAP = 0.2, 100.0
# What rounding may take from the bound, as a share of the sum of the absolute values of its parts.
ROUNDING = 1e-10


class State(NamedTuple):
    """An approximate posterior.

    Parameters
    ----------
    sums : Sums
        What the responsibilities weigh: the parameters of component k have the posterior given these.
    weights : Weights
    log_evidences : (K,) array
    entropy : float
        Of the responsibilities.
    source : tuple or None
        Sums and expected log weights that the responsibilities are computed from; None where components have been
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
        """What rounding may take from the bound."""
        parts = np.abs(self.log_evidences).sum() + abs(self.weights.bound) + self.entropy
        return ROUNDING * float(parts)

    @property
    def n_components(self) -> int:
        """Number of components that labels are among."""
        return len(self.sums.sizes)


def settle(
    rows: RowsAnywhere,
    prior: Prior,
    sums: Sums,
    entropy: float,
    source: tuple[Sums, np.ndarray] | None,
    before: Weights | None = None,
) -> State:
    """Return the best approximate posterior given responsibilities.

    Sticks are brought into decreasing order of their sizes where that raises the bound.
    """
    weights = prior.fit(sums.sizes, before)
    order = np.argsort(-sums.sizes, kind="stable")
    if prior.is_ordered and np.any(np.diff(order) < 0):
        ordered = prior.fit(sums.sizes[order], before)
        if ordered.bound > weights.bound:
            weights, sums = ordered, sums.take(order)
            source = None if source is None else (source[0].take(order), source[1][order])
    return State(sums, weights, rows.log_evidences(sums), entropy, source)


def begin(rows: RowsAnywhere, prior: Prior, sums: Sums, threads: Threads) -> State:
    """Return the state after one pass in which all components of some sums have equal weights."""
    log_weights = np.zeros(len(sums.sizes))
    found, entropy = rows.respond(sums, log_weights, threads)
    return settle(rows, prior, found, entropy, (sums, log_weights))


def step(rows: RowsAnywhere, prior: Prior, state: State, threads: Threads) -> State:
    """Update the responsibilities, then all that depends on them.

    Raises
    ------
    FloatingPointError
        If the bound falls by more than rounding explains, or is not a number.
    """
    source = state.sums, state.weights.log_weights
    sums, entropy = rows.respond(*source, threads)
    found = settle(rows, prior, sums, entropy, source, state.weights)
    if not found.bound >= state.bound - max(found.rounding, state.rounding):
        raise FloatingPointError(
            f"the bound went from {state.bound:.10g} to {found.bound:.10g}, which coordinate ascent cannot do: "
            "digits are lost. Scale the columns of the data to like spreads; if that does not help, report this"
        )
    return found


def ascend(
    rows: RowsAnywhere,
    prior: Prior,
    state: State,
    threads: Threads,
    tolerance: float,
    most: int,
    trace: list[float] | None = None,
) -> State:
    """Repeat steps until one raises the bound by less than a tolerance, or there have been so many.

    Where the bound rises by less and less at a steady rate, a leap to where the steps would lead is tried from
    time to time. ``trace`` gets the bound after each step and leap.
    """
    last_rise, pause, left, longest = 0.0, 1, 1, _LONGEST_LEAP
    for _ in range(most):
        found = step(rows, prior, state, threads)
        rise = found.bound - state.bound
        left -= 1
        if left <= 0 and _LEAST_RATIO * last_rise < rise < last_rise and tolerance < rise:
            leap = _leap(rows, prior, state, found, math.sqrt(rise / last_rise), longest, threads)
            # The more often leaps fail, the rarer and shorter they are.
            pause, longest = (2 * pause, 0.5 * longest) if leap is None else (2, min(2.0 * longest, _LONGEST_LEAP))
            left = pause
            found = found if leap is None else leap
        last_rise, state = rise, found
        if trace is not None:
            trace.append(state.bound)
        if rise < tolerance:
            break
    return state


def _leap(
    rows: RowsAnywhere, prior: Prior, before: State, state: State, rate: float, longest: float, threads: Threads
) -> State | None:
    """Go on in the direction of the last step; return where that leads if the bound is higher there.

    Near an optimum a step makes what is missing smaller by a rate, and what the bound is short of by its square,
    so that all further steps together are rate / (1 - rate) times the last one. The sums beyond need not be those
    of any rows: they are only what responsibilities are computed from.
    """
    if state.source is None or state.source[0] is not before.sums:
        # Components have changed places.
        return None
    sums = rows.beyond(before.sums, state.sums, min(rate / (1.0 - rate), longest))
    # Sums of no rows may stand for no covariance.
    with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError):
        source = sums, prior.fit(sums.sizes, state.weights).log_weights
        found, entropy = rows.respond(*source, threads)
        if not (math.isfinite(entropy) and all(np.all(np.isfinite(own)) for own in found.views)):
            return None
        leap = settle(rows, prior, found, entropy, source, state.weights)
        return leap if leap.bound > state.bound else None
    return None
