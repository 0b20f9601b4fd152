r"""One transition of the No-U-Turn sampler, compiled, for a density whose value and gradient are at an address.

A trajectory of leapfrog steps is doubled, forwards or backwards, until it turns or diverges (Hoffman and Gelman
2014). What is drawn of it is multinomial: in a new half each point counts by its density, and the new half takes
the place of the old one with the ratio of their weights (Betancourt 2017, appendix A.3). Halves are walked
through point by point; a few of their points are kept, by which every subtree's ends are compared (Phan, Pradhan
and Jankowiak 2019, appendix A), with the criterion of Betancourt (2017, appendix A.4.2): for ends with momenta
:math:`p_-` and :math:`p_+` and momenta that add up to :math:`\rho`, the trajectory turns where

.. math:: p_\mp^\top (\rho - (p_- + p_+) / 2) \le 0.

Numbers are :math:`q = s A y` for scales s and a matrix :math:`A = I + V^\top D V`, with orthonormal directions V
and a diagonal D, that stay during a transition; momenta are those of y, standard normal.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import standard_normal, uniform
from pymc_dpgmm.native.array_calls import Entry, call_entry, words_of
from pymc_dpgmm.native.blocks import FUNCTION, NUMBER, Block
from pymc_dpgmm.native.compiled import (
    FLOAT,
    INT,
    INTS,
    address_of,
    c_function,
    inlined,
    shifted,
)
from pymc_dpgmm.native.memory import Memory

# A trajectory whose energy grows by more than this diverges (Betancourt 2017; the limit of Stan and PyMC).
LARGEST_ERROR = 1000.0

TRANSITION = Block(
    n=NUMBER,
    # The log density and its gradient at the numbers ``at``: see Entry.
    entry=FUNCTION,
    code=NUMBER,
    inputs=blocks.INTS,
    outputs=blocks.INTS,
    at=blocks.FLOATS,
    log_p=blocks.FLOATS,
    gradient=blocks.FLOATS,
    scales=blocks.FLOATS,
    # Directions (n_directions, n), by how much numbers are stretched along each, less one, and what is stretched.
    n_directions=NUMBER,
    directions=blocks.FLOATS,
    stretches=blocks.FLOATS,
    stretched=blocks.FLOATS,
    # Both ends of the trajectory: numbers, momentum and gradient, (n,) each, one after the other.
    left=blocks.FLOATS,
    right=blocks.FLOATS,
    # The sum of all momenta, and of those in the new half.
    total=blocks.FLOATS,
    of_half=blocks.FLOATS,
    # Momenta at the points of a half that are kept, and the sums up to them: (max_depth, n) each.
    kept=blocks.FLOATS,
    sums=blocks.FLOATS,
    # What is drawn, of the whole and of the new half: numbers, and gradient.
    drawn=blocks.FLOATS,
    of_new=blocks.FLOATS,
    # What the density returns beside itself and its gradient: at the numbers ``at``, of the whole, and of the
    # half.
    n_further=NUMBER,
    further=blocks.FLOATS,
    further_drawn=blocks.FLOATS,
    further_new=blocks.FLOATS,
    max_depth=NUMBER,
    # See RESULTS.
    results=blocks.FLOATS,
    # Of slices, where there is no gradient: their widths; whether the density has failed, and at how many points
    # it was +inf or NaN.
    widths=blocks.FLOATS,
    failures=blocks.INTS,
    next_double=NUMBER,
    bit_state=NUMBER,
)
# What a transition tells: the log density of what is drawn; the mean acceptance rate over the trajectory; how
# often this was doubled, and of how many steps it consists; whether it diverged; the energy of what is drawn; at
# how many points the log density was +inf or NaN; whether it could not be computed; and at how many points it was
# finite, and not far below, and its gradient was not.
RESULTS = (
    "log_p",
    "acceptance_rate",
    "depth",
    "n_steps",
    "diverging",
    "energy",
    "impossible",
    "failed",
    "without_gradient",
)
(_LOG_P, _ACCEPTANCE, _DEPTH, _STEPS, _DIVERGING, _ENERGY, _IMPOSSIBLE, _FAILED, _WITHOUT) = range(len(RESULTS))
NONE = np.empty(0)
_at = TRANSITION.reader()


@inlined
def _density(t):
    """Compute log density and gradient; return the log density, minus infinity where one of them is none."""
    if call_entry(t.entry, t.code, t.inputs, t.outputs) != 0:
        t.results[_FAILED] = 1.0
        return -math.inf
    if not t.log_p[0] < math.inf:
        t.results[_IMPOSSIBLE] += 1.0
        return -math.inf
    # Nothing times what is not finite is not a number.
    nothing = 0.0
    for i in range(t.n):
        nothing += 0.0 * t.gradient[i]
    if nothing != 0.0 and t.log_p[0] > -math.inf:
        # Where a trajectory would diverge, such a point is none that matters.
        if t.log_p[0] > t.results[_LOG_P] - LARGEST_ERROR:
            t.results[_WITHOUT] += 1.0
        return -math.inf
    return t.log_p[0]


@inlined
def _copy(n, source, target):
    for i in range(n):
        target[i] = source[i]


@inlined
def _stretch(t):
    """Stretch the numbers in ``stretched`` along the directions."""
    n = t.n
    for r in range(t.n_directions):
        direction, along = shifted(t.directions, r * n), 0.0
        for i in range(n):
            along += direction[i] * t.stretched[i]
        along *= t.stretches[r]
        for i in range(n):
            t.stretched[i] += along * direction[i]


@inlined
def _push(t, momentum, gradient, size):
    """Let a momentum follow the gradient."""
    for i in range(t.n):
        t.stretched[i] = t.scales[i] * gradient[i]
    _stretch(t)
    for i in range(t.n):
        momentum[i] += size * t.stretched[i]


@inlined
def _step(t, end, size):
    """Let an end of the trajectory make a leapfrog step; return the log density there."""
    n = t.n
    momentum, gradient = shifted(end, n), shifted(end, 2 * n)
    _push(t, momentum, gradient, 0.5 * size)
    _copy(n, momentum, t.stretched)
    _stretch(t)
    for i in range(n):
        end[i] += size * t.scales[i] * t.stretched[i]
        t.at[i] = end[i]
    log_p = _density(t)
    if log_p > -math.inf:
        _copy(n, t.gradient, gradient)
        _push(t, momentum, gradient, 0.5 * size)
    return log_p


@inlined
def _kinetic(n, momentum):
    total = 0.0
    for i in range(n):
        total += momentum[i] * momentum[i]
    return 0.5 * total


@inlined
def _turns(n, first, last, total, before):
    """Tell whether momenta at two ends and their sum, less ``before`` where there is one, are those of a turn."""
    at_first, at_last = 0.0, 0.0
    for i in range(n):
        between = total[i] - before[i] - 0.5 * (first[i] + last[i])
        at_first += first[i] * between
        at_last += last[i] * between
    return at_first <= 0.0 or at_last <= 0.0


@inlined
def _log_sum(a, b):
    largest = max(a, b)
    return (
        largest if not largest > -math.inf else largest + math.log(math.exp(a - largest) + math.exp(b - largest))
    )


@inlined
def _is_turn(t, end, leaf):
    """Keep an even point of a new half; compare an odd one with the first points of the subtrees that it ends."""
    n, momentum = t.n, shifted(end, t.n)
    place, rest = 0, leaf >> 1
    while rest != 0:
        place += rest & 1
        rest >>= 1
    if leaf & 1 == 0:
        _copy(n, momentum, shifted(t.kept, place * n))
        # The sum before this point.
        for i in range(n):
            t.sums[place * n + i] = t.of_half[i] - momentum[i]
        return False
    rest = leaf
    while rest & 1 != 0:
        if _turns(n, shifted(t.kept, place * n), momentum, t.of_half, shifted(t.sums, place * n)):
            return True
        place -= 1
        rest >>= 1
    return False


@c_function(INT(INTS, FLOAT))
def transition(block, size):
    """Draw the numbers of a block from where they are; return 1, or 0 where these have no log density.

    Parameters
    ----------
    block : pointer
        See :data:`TRANSITION`. The numbers are ``drawn``, before and afterwards, with their gradient.
    size : float
        Of a leapfrog step.
    """
    t = _at(block)
    n, bits = t.n, t.bits
    for k in range(len(RESULTS)):
        t.results[k] = 0.0
    t.results[_LOG_P] = -math.inf
    _copy(n, t.drawn, t.at)
    log_p = _density(t)
    t.results[_LOG_P] = log_p
    if not log_p > -math.inf:
        return 0
    for i in range(n):
        t.left[i] = t.at[i]
        # Numbers without a scale stay.
        t.left[n + i] = standard_normal(bits) if t.scales[i] > 0.0 else 0.0
        t.left[2 * n + i] = t.gradient[i]
        t.drawn[n + i] = t.gradient[i]
        t.total[i] = t.left[n + i]
    _copy(t.n_further, t.further, t.further_drawn)
    _copy(3 * n, t.left, t.right)
    energy = _kinetic(n, shifted(t.left, n)) - log_p
    log_weight, accepted, steps, depth, goes_on = 0.0, 0.0, 0, 0, True
    t.results[_ENERGY] = energy
    while goes_on and depth < t.max_depth:
        forwards = uniform(bits) < 0.5
        end, signed = (t.right, size) if forwards else (t.left, -size)
        log_weight_new, log_p_new, energy_new = -math.inf, 0.0, 0.0
        for i in range(n):
            t.of_half[i] = 0.0
        for leaf in range(1 << depth):
            log_p = _step(t, end, signed)
            steps += 1
            error = _kinetic(n, shifted(end, n)) - log_p - energy
            # A comparison with what is not a number is false.
            if not error < LARGEST_ERROR:
                t.results[_DIVERGING] = 1.0
                goes_on = False
                break
            accepted += math.exp(min(0.0, -error))
            for i in range(n):
                t.of_half[i] += end[n + i]
            log_weight_new = _log_sum(log_weight_new, -error)
            if math.log(1.0 - uniform(bits)) < -error - log_weight_new:
                _copy(n, end, t.of_new)
                _copy(n, shifted(end, 2 * n), shifted(t.of_new, n))
                _copy(t.n_further, t.further, t.further_new)
                log_p_new, energy_new = log_p, error + energy
            if _is_turn(t, end, leaf):
                goes_on = False
                break
        if not goes_on:
            break
        depth += 1
        if math.log(1.0 - uniform(bits)) < log_weight_new - log_weight:
            _copy(2 * n, t.of_new, t.drawn)
            _copy(t.n_further, t.further_new, t.further_drawn)
            t.results[_LOG_P], t.results[_ENERGY] = log_p_new, energy_new
        log_weight = _log_sum(log_weight, log_weight_new)
        for i in range(n):
            t.total[i] += t.of_half[i]
            t.of_half[i] = 0.0
        goes_on = not _turns(n, shifted(t.left, n), shifted(t.right, n), t.total, t.of_half)
    t.results[_ACCEPTANCE] = accepted / max(steps, 1)
    t.results[_DEPTH], t.results[_STEPS] = depth, steps
    return 1


class Told(NamedTuple):
    """What a transition tells of itself: see :data:`RESULTS`."""

    log_p: float
    acceptance_rate: float
    depth: int
    n_steps: int
    is_diverging: bool
    energy: float
    n_impossible: int


class _Transition(Memory, block=TRANSITION):
    n: int


class NoUTurn:
    """Draws of numbers, of which there may be more or fewer from draw to draw.

    Parameters
    ----------
    rng : numpy.random.Generator
    entry : Entry
        Of the density, its gradient and further results.
    fixed, given : sequences of arrays
        Inputs of the density after the numbers themselves: arrays whose first axis may be longer or shorter in the
        next draw, which stay where they are, and others, which are copied.
    further : sequence of int
        Lengths of the further results.
    max_depth : int
        A trajectory is doubled this many times at most.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        entry: Entry,
        fixed: Sequence[np.ndarray],
        given: Sequence[np.ndarray],
        further: Sequence[int],
        max_depth: int,
    ) -> None:
        self.rng, self._entry = rng, entry
        self._fixed, self._given = list(fixed), [np.array(array, order="C") for array in given]
        self._ends, self._max_depth, self._room = np.cumsum([0, *further]), max_depth, 0
        self._memory = t = _Transition(entry=entry, code=entry.code, n_further=int(self._ends[-1]))
        t._make(log_p=1, results=len(RESULTS), failures=2)
        t.draw_from(rng)
        self.failed_at: np.ndarray | None = None
        # Whether the last draw has met a point at which the density has no gradient.
        self.lacks_gradient = False

    def takes(self, fixed: Sequence[np.ndarray], given: Sequence[np.ndarray]) -> bool:
        """Take other inputs, if they have the places and shapes of the present ones; tell whether they do."""
        if any(own.shape != array.shape for own, array in zip(self._given, given, strict=True)):
            return False
        if any(address_of(own) != address_of(array) for own, array in zip(self._fixed, fixed, strict=True)):
            return False
        for own, array in zip(self._given, given, strict=True):
            own[...] = array
        self._fixed, place = list(fixed), 2
        for array in fixed:
            self._memory.inputs[place + 1] = len(array)
            place += 1 + array.ndim
        return True

    def _make_room(self, n: int) -> None:
        t, ends = self._memory, self._ends
        m = self._room = n + n // 2 + 16
        t._make(**dict.fromkeys(("at", "gradient", "scales", "stretched", "total", "of_half"), m))
        t._make(**dict.fromkeys(("left", "right"), 3 * m), **dict.fromkeys(("drawn", "of_new"), 2 * m))
        t._make(**dict.fromkeys(("kept", "sums"), (self._max_depth + 1) * m))
        t._make(**dict.fromkeys(("further", "further_drawn", "further_new"), int(ends[-1]) + 1))
        of_further = address_of(t.further) + 8 * ends[:-1]
        t.outputs = np.array([address_of(t.log_p), address_of(t.gradient), *of_further], dtype=np.int64)
        # The vector's length changes from draw to draw.
        t.inputs = words_of([t.at, *self._fixed, *self._given], self._entry.kinds)
        self.further = [t.further_drawn[a:b] for a, b in itertools.pairwise(ends)]

    def begin(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers and their scales, (n,) arrays to be written to before a draw."""
        if n > self._room:
            self._make_room(n)
        t = self._memory
        t.n = t.inputs[1] = n
        return t.drawn[:n], t.scales[:n]

    def draw(
        self, size: float, max_depth: int, directions: np.ndarray = NONE, stretches: np.ndarray = NONE
    ) -> Told | None:
        """Draw the numbers from where they are; None where these have no log density.

        ``size`` is that of a leapfrog step. A trajectory is doubled ``max_depth`` times at most, no more than
        ever. ``directions`` and ``stretches`` are what :func:`.adaptation.stretched` returns. Afterwards the
        numbers are what is drawn, and ``further`` are the further results there. Where the density cannot be
        computed, :attr:`failed_at` has the numbers.
        """
        t = self._memory
        t.max_depth, t.n_directions = min(max_depth, self._max_depth), len(stretches)
        t.directions, t.stretches = directions, stretches
        has_density = transition(t.address, size)
        self._entry.raise_error()
        log_p, rate, depth, n_steps, diverging, energy, n_impossible, failed, without = t.results.tolist()
        self.lacks_gradient = without > 0.0
        self.failed_at = t.at[: t.n].copy() if failed else None
        if not has_density:
            return None
        return Told(log_p, rate, int(depth), int(n_steps), diverging > 0.0, energy, int(n_impossible))

    def draw_with(self, kernel: Any, density: int, widths: np.ndarray, learns: int) -> bool:
        """Draw the first numbers by slices of some widths (m,); tell whether the numbers have a density."""
        t = self._memory
        t.widths = widths
        has_density = kernel(t.address, density, len(widths), learns)
        self._entry.raise_error()
        self.failed_at = t.at[: t.n].copy() if t.failures[0] else None
        return bool(has_density)

    def gradient(self, n: int) -> np.ndarray:
        """Return the gradient of the first numbers at what was drawn."""
        start = self._memory.n
        gradient: np.ndarray = self._memory.drawn[start : start + n]
        return gradient


KERNELS = (transition,)
