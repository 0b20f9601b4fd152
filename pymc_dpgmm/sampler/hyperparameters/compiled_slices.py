"""Slices of a density at an address, without Python: ``draw_slice`` in ``slices.py``, number for number."""

import math

from numba.extending import intrinsic

from pymc_dpgmm.native.arithmetic import uniform
from pymc_dpgmm.native.compiled import FLOAT, INTS, called_at, inlined
from pymc_dpgmm.sampler.hyperparameters.slices import MOST_STEPS, SMALLEST_INTERVAL


@intrinsic
def call_density(typing_context, address, block):  # type: ignore[no-untyped-def]
    """Return the log density that the function at an address gives to the numbers of a block."""
    return called_at(FLOAT(INTS))


@inlined
def _density_at(density, block, numbers, place, value):
    numbers[place] = value
    log_p = call_density(density, block)
    # What is no number is impossible.
    return log_p if log_p > -math.inf else -math.inf


@inlined
def draw_number(density, block, failed, numbers, place, width, log_p, bits):
    """Draw a number, see ``draw_slice``; return its log density, and the length of its interval.

    Parameters
    ----------
    density : address
        Of a function of ``block``, which returns the log density of the numbers as they are. It is called at the
        drawn number last, unless it fails.
    block : pointer
    failed : pointer
        1 is there when the density has failed.
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
    while to_left > 0 and _density_at(density, block, numbers, place, left) > level:
        left -= width
        to_left -= 1
    while to_right > 0 and _density_at(density, block, numbers, place, right) > level:
        right += width
        to_right -= 1
    if not right - left < math.inf:
        # The interval has no ends.
        return _density_at(density, block, numbers, place, before), right - left
    while failed[0] == 0:
        drawn = left + (right - left) * uniform(bits)
        log_p = _density_at(density, block, numbers, place, drawn)
        if log_p > level:
            break
        if drawn < before:
            left = drawn
        else:
            right = drawn
        if not right - left > SMALLEST_INTERVAL * (1.0 + abs(before)):
            # Nothing but rounding is left of the interval, in which the present value lies.
            log_p = _density_at(density, block, numbers, place, before)
            break
    return log_p, right - left
