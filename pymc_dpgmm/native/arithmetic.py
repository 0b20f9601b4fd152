"""Exponentials and logarithms that compilers put into vector lanes, and random numbers, for compiled code."""

import math
from typing import Any, NamedTuple

from numba.extending import intrinsic

from pymc_dpgmm.native.compiled import FLOAT, INT, bits_of, called_at, compiled_as, float_of, inlined, shifted
from pymc_dpgmm.native.lanes import (
    LANES,
    LN2_HIGH,
    LN2_LOW,
    LOG2E,
    MANTISSA,
    ONE_BITS,
    ROUNDING,
    ROUNDING_BITS,
    SMALLEST_EXPONENT,
    SQRT_HALF_BITS,
    add_exponentials,
    exponentials,
    largest_in_lanes,
    logarithms,
    raise_to,
)


def fast_exp(x: float) -> float:
    """Return exp(x) for x <= 0, to two units in the last place; 0 below -708."""
    return math.exp(x) if x >= SMALLEST_EXPONENT else 0.0


@compiled_as(fast_exp)
def _fast_exp(x):
    """Compute fast_exp.

    x = k log 2 + r with |r| <= log(2) / 2, and a polynomial of degree 13 in r.
    """
    bounded = max(x, SMALLEST_EXPONENT)
    rounded = bounded * LOG2E + ROUNDING
    k = rounded - ROUNDING
    r = (bounded - k * LN2_HIGH) - k * LN2_LOW
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = float_of(((bits_of(rounded) - ROUNDING_BITS) << 52) + ONE_BITS)
    return p * power if x >= SMALLEST_EXPONENT else 0.0


def fast_log(x: float) -> float:
    """Return log(x) for normal positive x, to two units in the last place; NaN for others."""
    return math.log(x) if x > 0.0 else math.nan


@compiled_as(fast_log)
def _fast_log(x):
    """Compute fast_log.

    x = 2^k m with sqrt(1/2) <= m < sqrt(2), and log m = 2 artanh((m - 1) / (m + 1)).
    """
    above = bits_of(x) - SQRT_HALF_BITS
    k = float_of((above >> 52) + ROUNDING_BITS) - ROUNDING
    m = float_of((above & MANTISSA) + SQRT_HALF_BITS)
    f = (m - 1.0) / (m + 1.0)
    s = f * f
    p = 1.0 / 21.0
    p = p * s + 1.0 / 19.0
    p = p * s + 1.0 / 17.0
    p = p * s + 1.0 / 15.0
    p = p * s + 1.0 / 13.0
    p = p * s + 1.0 / 11.0
    p = p * s + 1.0 / 9.0
    p = p * s + 1.0 / 7.0
    p = p * s + 1.0 / 5.0
    p = p * s + 1.0 / 3.0
    value = k * LN2_HIGH + (2.0 * f + (2.0 * f * s * p + k * LN2_LOW))
    return value if x > 0.0 else math.nan


# The smallest normal number: what underflows is set to it where it must stay above zero.
SMALLEST = 2.2250738585072014e-308


@inlined
def take_logarithms(numbers, m):
    """Replace ``numbers[:m]`` by their logarithms, and what is there up to the next multiple of the lanes."""
    for start in range(0, m, LANES):
        logarithms(shifted(numbers, start))


def largest_of(numbers: Any, m: int) -> float:
    """Return the largest of ``numbers[:m]``, none of which is NaN; what is there up to the lanes' end is lost."""
    return max(numbers[j] for j in range(m))


@compiled_as(largest_of)
def _largest_of(numbers, m):
    stop = (m + LANES - 1) // LANES * LANES
    for j in range(m, stop):
        numbers[j] = -math.inf
    largest = -math.inf
    for start in range(0, stop, LANES):
        largest = max(largest, largest_in_lanes(shifted(numbers, start)))
    return largest


@inlined
def take_exponentials(numbers, m, largest):
    """Replace ``numbers[:m]`` by exp(number - largest), and what is there up to the next multiple of the lanes."""
    for start in range(0, m, LANES):
        exponentials(shifted(numbers, start), largest)


@inlined
def raise_all(largest, numbers, m):
    """Replace each of ``largest[:m]`` by the number in its place where that is larger, and not where it is NaN."""
    whole = m // LANES * LANES
    for start in range(0, whole, LANES):
        raise_to(shifted(largest, start), shifted(numbers, start))
    for t in range(whole, m):
        largest[t] = numbers[t] if numbers[t] > largest[t] else largest[t]


@inlined
def add_to_all(sums, before, numbers, largest, m):
    """Set ``sums[:m]`` to what was ``before`` plus exp(number - largest), all of them in the same places."""
    whole = m // LANES * LANES
    for start in range(0, whole, LANES):
        add_exponentials(
            shifted(sums, start), shifted(before, start), shifted(numbers, start), shifted(largest, start)
        )
    for t in range(whole, m):
        sums[t] = before[t] + fast_exp(numbers[t] - largest[t])


# The step between numbers that :func:`scrambled` makes independent ones of.
_STEP = -7046029254386353131
_FIRST_FACTOR, _SECOND_FACTOR = -4658895280553007687, -7723592293110705685
_ALL_BITS = (1 << 64) - 1


def scrambled(x: int) -> int:
    """Return 64 bits that look random, a different number for each x (Steele, Lea and Flood 2014, splitmix64)."""
    x &= _ALL_BITS
    x = ((x ^ (x >> 30)) * _FIRST_FACTOR) & _ALL_BITS
    x = ((x ^ (x >> 27)) * _SECOND_FACTOR) & _ALL_BITS
    x ^= x >> 31
    return x - (x >> 63 << 64)


@compiled_as(scrambled)
def _scrambled(x):
    # Numbers are signed: what is shifted in from the left is masked.
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _FIRST_FACTOR
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _SECOND_FACTOR
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


@inlined
def bits_at(key, i):
    """Return number ``i`` of a stream of 64 random bits, no two of which are the same."""
    return scrambled(key + (i + 1) * _STEP)


@inlined
def uniform_at(key, i):
    """Return number ``i`` of a stream of numbers uniform on [0, 1): it does not depend on what is drawn before."""
    return ((bits_at(key, i) >> 11) & 0x1FFFFFFFFFFFFF) * 1.1102230246251565e-16


class Bits(NamedTuple):
    """A NumPy bit generator: the addresses of its function for uniform numbers and of its state."""

    next_double: int
    state: int


@intrinsic
def _next_double(typing_context, address, state):  # type: ignore[no-untyped-def]
    return called_at(FLOAT(INT))


@inlined
def uniform(bits):
    """Draw a number uniform on [0, 1), as ``numpy.random.Generator.random`` does."""
    return _next_double(bits.next_double, bits.state)


@inlined
def below(bits, n):
    """Draw a whole number below n."""
    return int(uniform(bits) * n)


@inlined
def new_key(bits):
    """Draw the key of a stream of random numbers, for :func:`uniform_at`: one of 2^53."""
    return below(bits, 1 << 53)


@inlined
def standard_normal(bits):
    """Draw a standard normal number (Box and Muller 1958)."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(bits)))
    return radius * math.cos(2.0 * math.pi * uniform(bits))


# Below it, a gamma number would make variances, which divide by it, too large for their squares. No row is in such
# a cluster, whose density is 1e-75 of that of others.
LEAST_GAMMA = 1e-150


@inlined
def standard_gamma(bits, shape):
    """Draw a gamma number with a shape > 0 and rate 1 (Marsaglia and Tsang 2000)."""
    scale = 1.0
    if shape < 1.0:
        scale = (1.0 - uniform(bits)) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = standard_normal(bits)
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            if math.log(1.0 - uniform(bits)) < 0.5 * x * x + d - d * v + d * math.log(v):
                return scale * d * v


@inlined
def log_standard_gamma(bits, shape):
    """Draw the logarithm of a gamma number with a shape > 0, however small, and rate 1."""
    if shape >= 1.0:
        return math.log(standard_gamma(bits, shape))
    return math.log(standard_gamma(bits, shape + 1.0)) + math.log1p(-uniform(bits)) / shape


@inlined
def minus_log_beta(bits, a, b):
    """Draw minus the logarithm of a Beta(a, b) number, with all its digits where that is near 0 or 1."""
    x = log_standard_gamma(bits, b) - log_standard_gamma(bits, a)
    return x + math.log1p(math.exp(-x)) if x > 0.0 else math.log1p(math.exp(x))
