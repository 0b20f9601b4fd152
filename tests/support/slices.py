"""Slices of a density of one number in Python, the slow twin of ``sampler/hyperparameters/slices.py``."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.sampler.hyperparameters.slices import LEARNING, MOST_STEPS, SMALLEST_INTERVAL


class Sliced(NamedTuple):
    """A draw, its log density, the length of the interval, and at how many numbers there was no log density."""

    drawn: float
    log_p: float
    length: float
    n_impossible: int


def draw_slice(
    rng: np.random.Generator, at: Callable[[float], float], before: float, log_p: float, width: float
) -> Sliced:
    """Draw a number by an interval that steps out and shrinks; it leaves the density invariant for any width.

    Numbers at which the log density is +inf or NaN are impossible: a density that is not finite is none.

    Parameters
    ----------
    rng : numpy.random.Generator
    at : callable
        The log density at a number, up to a constant. It is called at the drawn number last.
    before, log_p : float
        The present number, and its log density, which is finite.
    width : float
        By which the interval grows.
    """
    n_impossible = 0

    def height(number: float) -> float:
        nonlocal n_impossible
        found = at(number)
        if found < math.inf:
            return found
        n_impossible += 1
        return -math.inf

    level = log_p + math.log1p(-rng.random())
    left = before - width * rng.random()
    right = left + width
    to_left = int(MOST_STEPS * rng.random())
    to_right = MOST_STEPS - 1 - to_left
    while to_left > 0 and height(left) > level:
        left -= width
        to_left -= 1
    while to_right > 0 and height(right) > level:
        right += width
        to_right -= 1
    if not right - left < math.inf:
        # The interval has no ends, as of a density that nothing bounds.
        return Sliced(before, at(before), right - left, n_impossible)
    while True:
        drawn = left + (right - left) * rng.random()
        log_p = height(drawn)
        if log_p > level:
            return Sliced(drawn, log_p, right - left, n_impossible)
        if drawn < before:
            left = drawn
        else:
            right = drawn
        if not right - left > SMALLEST_INTERVAL * (1.0 + abs(before)):
            # Nothing but rounding is left of the interval, in which the present value lies.
            return Sliced(before, at(before), right - left, n_impossible)


def learnt_width(width: float, length: float) -> float:
    """Return the width for the next draw: about as long as slices are, and shorter where one had no end."""
    if not length < math.inf:
        return 0.5 * width
    return width + LEARNING * (length - width)
