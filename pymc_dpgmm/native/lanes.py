"""Arithmetic on ``LANES`` numbers at once, for compiled code.

Compilers put loops into vector lanes where they see that it pays. They do not see it for the short loops over a
handful of clusters that samplers are made of, so these functions are written as vector instructions. Each takes
pointers to ``LANES`` numbers in memory, and is a few instructions of the processor without branches.
"""

import math
from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from pymc_dpgmm.native.compiled import FLOAT, FLOATS, NOTHING

# So many numbers are worked on at once; arrays have room for a multiple of it.
LANES = 8

VECTOR = ir.VectorType(ir.DoubleType(), LANES)
WORDS = ir.VectorType(ir.IntType(64), LANES)

LOG2E = 1.0 / math.log(2.0)
# log 2 in two parts, the first with so few digits that its product with a small whole number is exact.
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
# Adding this to a number of moderate size rounds it to a whole one, which is then in the last bits.
ROUNDING = 6755399441055744.0
ROUNDING_BITS = 0x4338000000000000
ONE_BITS = 0x3FF0000000000000
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
MANTISSA = 0x000FFFFFFFFFFFFF
SMALLEST_EXPONENT = -708.0
# Of exp(x) from the highest power of x to the lowest, and of artanh(x) / x - 1 in x^2.
EXP_SERIES = tuple(1.0 / math.factorial(n) for n in range(13, -1, -1))
ARTANH_SERIES = tuple(1.0 / n for n in range(21, 1, -2))


class Instructions:
    """Writes instructions for ``LANES`` numbers; products may be fused with sums."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def all(self, number: float | int) -> Any:
        """Return a number in all lanes."""
        kind = ir.DoubleType() if isinstance(number, float) else ir.IntType(64)
        return ir.Constant(ir.VectorType(kind, LANES), [ir.Constant(kind, number)] * LANES)

    def spread(self, number: Any) -> Any:
        """Return a number that is known when the code runs in all lanes."""
        first = self.builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
        return self.builder.shuffle_vector(first, ir.Constant(VECTOR, ir.Undefined), zeros)

    def spread_int(self, number: Any) -> Any:
        """Return a whole number that is known when the code runs in all lanes."""
        first = self.builder.insert_element(ir.Constant(WORDS, ir.Undefined), number, ir.IntType(32)(0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
        return self.builder.shuffle_vector(first, ir.Constant(WORDS, ir.Undefined), zeros)

    def moved(self, numbers: Any, by: int) -> Any:
        """Return numbers moved to other lanes, round in a circle."""
        places = [ir.Constant(ir.IntType(32), (lane + by) % LANES) for lane in range(LANES)]
        return self.builder.shuffle_vector(
            numbers, ir.Constant(VECTOR, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), LANES), places)
        )

    def load(self, pointer: Any) -> Any:
        """Return the numbers at a pointer."""
        return self.builder.load(self.builder.bitcast(pointer, VECTOR.as_pointer()), align=8)

    def store(self, numbers: Any, pointer: Any) -> None:
        """Write numbers to a pointer."""
        self.builder.store(numbers, self.builder.bitcast(pointer, VECTOR.as_pointer()), align=8)

    def add(self, a: Any, b: Any) -> Any:
        """Return a + b."""
        return self.builder.fadd(a, b, flags=("contract",))

    def subtract(self, a: Any, b: Any) -> Any:
        """Return a - b."""
        return self.builder.fsub(a, b, flags=("contract",))

    def multiply(self, a: Any, b: Any) -> Any:
        """Return a b."""
        return self.builder.fmul(a, b, flags=("contract",))

    def divide(self, a: Any, b: Any) -> Any:
        """Return a / b."""
        return self.builder.fdiv(a, b)

    def larger(self, a: Any, b: Any) -> Any:
        """Return a where it is larger than b, and b elsewhere, also where a is no number."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def polynomial(self, x: Any, coefficients: tuple[float, ...]) -> Any:
        """Return a polynomial, given its coefficients from the highest power on (Horner's scheme)."""
        value = self.all(coefficients[0])
        for coefficient in coefficients[1:]:
            value = self.add(self.multiply(value, x), self.all(coefficient))
        return value

    def exponentials(self, x: Any) -> Any:
        """Return exp(x) for x <= 0, to two units in the last place; 0 below -708, and for what is no number.

        x = k log 2 + r with |r| <= log(2) / 2, and a polynomial of degree 13 in r.
        """
        builder = self.builder
        bounded = self.larger(x, self.all(SMALLEST_EXPONENT))
        rounded = self.add(self.multiply(bounded, self.all(LOG2E)), self.all(ROUNDING))
        k = builder.fsub(rounded, self.all(ROUNDING))
        r = self.subtract(bounded, self.multiply(k, self.all(LN2_HIGH)))
        r = self.subtract(r, self.multiply(k, self.all(LN2_LOW)))
        power = builder.sub(builder.bitcast(rounded, WORDS), self.all(ROUNDING_BITS))
        power = builder.add(builder.shl(power, self.all(52)), self.all(ONE_BITS))
        value = self.multiply(self.polynomial(r, EXP_SERIES), builder.bitcast(power, VECTOR))
        return builder.select(builder.fcmp_ordered(">=", x, self.all(SMALLEST_EXPONENT)), value, self.all(0.0))

    def logarithms(self, x: Any) -> Any:
        """Return log(x) for normal positive x, to two units in the last place; NaN for others.

        x = 2^k m with sqrt(1/2) <= m < sqrt(2), and log m = 2 artanh((m - 1) / (m + 1)).
        """
        builder = self.builder
        above = builder.sub(builder.bitcast(x, WORDS), self.all(SQRT_HALF_BITS))
        exponent = builder.add(builder.ashr(above, self.all(52)), self.all(ROUNDING_BITS))
        k = builder.fsub(builder.bitcast(exponent, VECTOR), self.all(ROUNDING))
        m = builder.add(builder.and_(above, self.all(MANTISSA)), self.all(SQRT_HALF_BITS))
        m = builder.bitcast(m, VECTOR)
        f = self.divide(builder.fsub(m, self.all(1.0)), builder.fadd(m, self.all(1.0)))
        s = self.multiply(f, f)
        twice = builder.fadd(f, f)
        rest = self.multiply(self.multiply(twice, s), self.polynomial(s, ARTANH_SERIES))
        rest = self.add(self.multiply(k, self.all(LN2_LOW)), rest)
        value = self.add(self.multiply(k, self.all(LN2_HIGH)), builder.fadd(twice, rest))
        return builder.select(builder.fcmp_ordered(">", x, self.all(0.0)), value, self.all(math.nan))


@intrinsic
def exponentials(typing_context, numbers, largest):  # type: ignore[no-untyped-def]
    """Replace numbers by exp(number - largest), for one ``largest`` that no number exceeds."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        lanes = Instructions(builder)
        pointer, largest = arguments
        lanes.store(lanes.exponentials(lanes.subtract(lanes.load(pointer), lanes.spread(largest))), pointer)
        return context.get_dummy_value()

    return NOTHING(FLOATS, FLOAT), generate


@intrinsic
def logarithms(typing_context, numbers):  # type: ignore[no-untyped-def]
    """Replace numbers by their logarithms."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        lanes = Instructions(builder)
        lanes.store(lanes.logarithms(lanes.load(arguments[0])), arguments[0])
        return context.get_dummy_value()

    return NOTHING(FLOATS), generate


@intrinsic
def largest_in_lanes(typing_context, numbers):  # type: ignore[no-untyped-def]
    """Return the largest of some numbers, none of which is NaN."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        lanes = Instructions(builder)
        largest = lanes.load(arguments[0])
        step = LANES // 2
        while step:
            largest = lanes.larger(largest, lanes.moved(largest, step))
            step //= 2
        return builder.extract_element(largest, ir.IntType(32)(0))

    return FLOAT(FLOATS), generate


@intrinsic
def raise_to(typing_context, largest, numbers):  # type: ignore[no-untyped-def]
    """Replace what is ``largest`` in each lane by the number there where that is larger."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        lanes = Instructions(builder)
        largest, numbers = arguments
        lanes.store(lanes.larger(lanes.load(numbers), lanes.load(largest)), largest)
        return context.get_dummy_value()

    return NOTHING(FLOATS, FLOATS), generate


@intrinsic
def add_exponentials(typing_context, sums, before, numbers, largest):  # type: ignore[no-untyped-def]
    """Set ``sums`` to those ``before`` plus exp(number - largest), for a ``largest`` in each lane."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        lanes = Instructions(builder)
        sums, before, numbers, largest = arguments
        weights = lanes.exponentials(lanes.subtract(lanes.load(numbers), lanes.load(largest)))
        lanes.store(lanes.add(lanes.load(before), weights), sums)
        return context.get_dummy_value()

    return NOTHING(FLOATS, FLOATS, FLOATS, FLOATS), generate
