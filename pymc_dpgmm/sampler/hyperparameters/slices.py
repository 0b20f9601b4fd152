"""Slices of a density at an address: Neal (2003, section 4 and figures 3 and 5).

An interval about the present number steps out and shrinks, which leaves the density invariant whatever its width
is. Numbers at which the log density is +inf or NaN are impossible: a density that is not finite is none. Numbers
are drawn one by one, or several of them along directions.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba.extending import intrinsic

from pymc_dpgmm.native.arithmetic import uniform
from pymc_dpgmm.native.blocks import FLOATS, NUMBER
from pymc_dpgmm.native.blocks import INTS as INTS_OF_BLOCK
from pymc_dpgmm.native.compiled import FLOAT, INTS, address_of, called_at, floats_at, inlined, shifted
from pymc_dpgmm.sampler.hyperparameters.learnt_directions import LearntDirections

# Widths of an interval, at most.
MOST_STEPS = 16
# Of an interval, beside 1 or the number that it is about: what rounding leaves.
SMALLEST_INTERVAL = 1e-14
# Weight of one draw in the widths that are learnt.
LEARNING = 0.1


@intrinsic
def call_density(typing_context, address, block):  # type: ignore[no-untyped-def]
    """Return the log density that the function at an address gives to the numbers of a block."""
    return called_at(FLOAT(INTS))


@inlined
def is_possible(log_p, failed):
    """Tell whether a log density is finite; +inf and NaN, which are none, are counted beside ``failed``."""
    if not log_p < math.inf:
        failed[1] += 1
    return -math.inf < log_p < math.inf


@inlined
def _density_at(density, block, failed, numbers, place, value):
    numbers[place] = value
    log_p = call_density(density, block)
    return log_p if is_possible(log_p, failed) else -math.inf


@inlined
def draw_number(density, block, failed, numbers, place, width, log_p, bits):
    """Draw a number; return its log density, and the length of its interval.

    Parameters
    ----------
    density : address
        Of a function of ``block``, which returns the log density of the numbers as they are. It is called at the
        drawn number last, unless it fails.
    block : pointer
    failed : pointer
        To the fields :data:`FAILURES`.
    numbers : pointer
    place : int
        Of the number that is drawn.
    width, log_p : float
        By which the interval grows, and the present log density, which is finite.
    bits : Bits
    """
    before = numbers[place]
    level = log_p + math.log1p(-uniform(bits))
    left = before - width * uniform(bits)
    right = left + width
    to_left = int(MOST_STEPS * uniform(bits))
    to_right = MOST_STEPS - 1 - to_left
    while to_left > 0 and _density_at(density, block, failed, numbers, place, left) > level:
        left -= width
        to_left -= 1
    while to_right > 0 and _density_at(density, block, failed, numbers, place, right) > level:
        right += width
        to_right -= 1
    if not right - left < math.inf:
        # The interval has no ends.
        return _density_at(density, block, failed, numbers, place, before), right - left
    while failed[0] == 0:
        drawn = left + (right - left) * uniform(bits)
        log_p = _density_at(density, block, failed, numbers, place, drawn)
        if log_p > level:
            break
        if drawn < before:
            left = drawn
        else:
            right = drawn
        if not right - left > SMALLEST_INTERVAL * (1.0 + abs(before)):
            # Nothing but rounding is left of the interval, in which the present value lies.
            log_p = _density_at(density, block, failed, numbers, place, before)
            break
    return log_p, right - left


@inlined
def learnt(width, length):
    """Return the width for the next draw: about as long as slices are, and shorter where one had no end."""
    return width + LEARNING * (length - width) if length < math.inf else 0.5 * width


@inlined
def place_along(given):
    """Write the numbers of a block with ``ALONG``, if they are being drawn along a direction."""
    if given.which >= 0:
        direction = shifted(given.directions, given.which * given.n_moving)
        for entry in range(given.n_moving):
            floats_at(given.moving[entry])[0] = given.starts[entry] + given.along[0] * direction[entry]


@inlined
def draw_along(density, block, given, which, failed, learns, log_p, bits):
    """Draw the numbers of a block with ``ALONG`` along each direction, and return their log density.

    Parameters
    ----------
    density, block, failed, log_p, bits
        See :func:`draw_number`. The density calls :func:`place_along` first.
    given : the block, read
    which : pointer
        To the field of the block.
    learns : int
        Whether widths change.
    """
    for q in range(given.n_moving):
        which[0], given.along[0] = q, 0.0
        for entry in range(given.n_moving):
            given.starts[entry] = floats_at(given.moving[entry])[0]
        width = given.widths[q]
        log_p, length = draw_number(density, block, failed, given.along, 0, width, log_p, bits)
        if failed[0] != 0:
            break
        if learns != 0:
            given.widths[q] = learnt(width, length)
    which[0] = -1
    return log_p


# Fields of a block: 1 where the density could not be computed, and at how many numbers it was +inf or NaN.
FAILURES = {"failed": NUMBER, "impossible": NUMBER}
# Fields of a block: numbers by their addresses, which are drawn along directions (n, n), from their starts.
# ``which`` is the direction, -1 where they are not being drawn so, and ``along`` how far.
ALONG = {
    "which": NUMBER,
    "n_moving": NUMBER,
    "moving": INTS_OF_BLOCK,
    "directions": FLOATS,
    "starts": FLOATS,
    "along": FLOATS,
    "widths": FLOATS,
}


def filled_along(arrays: Sequence[np.ndarray], directions: LearntDirections) -> dict[str, Any]:
    """Return the fields :data:`ALONG` for the numbers of C-contiguous float64 arrays, which must live on."""
    moving = [address_of(array) + 8 * at for array in arrays for at in range(array.size)]
    return {
        "which": -1,
        "n_moving": len(moving),
        "moving": np.array(moving, dtype=np.int64),
        "directions": directions.directions,
        "starts": np.empty(len(moving)),
        "along": np.zeros(1),
        "widths": directions.widths,
    }
