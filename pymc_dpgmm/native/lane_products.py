"""Products of rows and packed lower triangles on ``LANES`` numbers at once, for compiled code.

Compilers put the short lines of a triangle into vector lanes one by one, and spend most of the time on what is
left over of each.
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

from pymc_dpgmm.native.compiled import FLOATS, INT, NOTHING, inlined, shifted
from pymc_dpgmm.native.lanes import LANES, VECTOR, WORDS, Instructions


@intrinsic
def _add_square(typing_context, line, shift, columns, i, out):  # type: ignore[no-untyped-def]
    """Add to ``out`` the square of line ``i`` of a triangle times the row in each lane, less a shift."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        _Squares(builder, *arguments).add(1)
        return context.get_dummy_value()

    return NOTHING(FLOATS, FLOATS, FLOATS, INT, FLOATS), generate


@intrinsic
def _add_four_squares(typing_context, line, shift, columns, i, out):  # type: ignore[no-untyped-def]
    """Add the squares of four lines, where ``i`` is even."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        _Squares(builder, *arguments).add(4)
        return context.get_dummy_value()

    return NOTHING(FLOATS, FLOATS, FLOATS, INT, FLOATS), generate


class _Squares:
    """Writes products of lines of a packed lower triangle with ``LANES`` rows, whose columns are given."""

    def __init__(self, builder: Any, line: Any, shift: Any, columns: Any, i: Any, out: Any) -> None:
        self.builder, self.lanes = builder, Instructions(builder)
        self.line, self.shift, self.columns, self.i, self.out = line, shift, columns, i, out

    def _number(self, pointer: Any, at: Any) -> Any:
        return self.lanes.spread(self.builder.load(self.builder.gep(pointer, [at])))

    def _column(self, j: Any) -> Any:
        return self.lanes.load(self.builder.gep(self.columns, [self.builder.mul(j, ir.IntType(64)(LANES))]))

    def add(self, n_lines: int) -> None:
        """Add the squares of ``n_lines`` lines; of several, two entries of each at once, so that none waits."""
        builder, lanes, word = self.builder, self.lanes, ir.IntType(64)
        n_steps = 1 if n_lines == 1 else 2
        # Where each line begins: they become longer by one entry each.
        starts, start = [], word(0)
        for r in range(n_lines):
            starts.append(builder.gep(self.line, [start]))
            start = builder.add(start, builder.add(self.i, word(r + 1)))
        sums = [[cgutils.alloca_once(builder, VECTOR) for _ in range(n_steps)] for _ in range(n_lines)]
        for own in sums:
            for kept in own:
                builder.store(lanes.all(0.0), kept)

        def add_entry(r: int, step: int, j: Any, column: Any) -> None:
            kept = sums[r][step]
            product = lanes.multiply(self._number(starts[r], j), column)
            builder.store(lanes.add(builder.load(kept), product), kept)

        with cgutils.for_range_slice(builder, word(0), self.i, word(n_steps)) as (j, _):
            for step in range(n_steps):
                at = builder.add(j, word(step))
                column = self._column(at)
                for r in range(n_lines):
                    add_entry(r, step, at, column)
        for q in range(n_lines):
            at = builder.add(self.i, word(q))
            column = self._column(at)
            for r in range(q, n_lines):
                add_entry(r, q % n_steps, at, column)
        total = lanes.load(self.out)
        for r, own in enumerate(sums):
            product = builder.load(own[0])
            for kept in own[1:]:
                product = lanes.add(product, builder.load(kept))
            offset = lanes.subtract(product, self._number(self.shift, word(r)))
            total = lanes.add(total, lanes.multiply(offset, offset))
        lanes.store(total, self.out)


@inlined
def squared_distances(factor, shift, columns, d, out):
    """Set ``out`` to ``|factor @ x - shift|**2`` of a row x in each lane, for a packed lower triangular factor.

    Column j of the rows is ``columns[j * LANES:(j + 1) * LANES]``. This is what a Gibbs scan of many columns
    spends its time on.
    """
    for lane in range(LANES):
        out[lane] = 0.0
    whole = d - d % 4
    for i in range(0, whole, 4):
        _add_four_squares(shifted(factor, i * (i + 1) // 2), shifted(shift, i), columns, i, out)
    for i in range(whole, d):
        _add_square(shifted(factor, i * (i + 1) // 2), shifted(shift, i), columns, i, out)


@intrinsic
def _add_weighted(typing_context, line, rows, weights, n_rows, stride, first):  # type: ignore[no-untyped-def]
    """Add ``weights[r * stride] * rows[r * stride]`` to ``LANES`` numbers, of all r, from lane ``first`` on."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        lanes, word = Instructions(builder), ir.IntType(64)
        line, rows, weights, n_rows, stride, first = arguments
        (found,) = _weighted_sums(builder, rows, weights, 1, n_rows, stride)
        numbers = ir.Constant(WORDS, [ir.Constant(word, lane) for lane in range(LANES)])
        begun = builder.icmp_signed(">=", numbers, lanes.spread_int(first))
        added = builder.select(begun, found, lanes.all(0.0))
        lanes.store(lanes.add(lanes.load(line), added), line)
        return context.get_dummy_value()

    return NOTHING(FLOATS, FLOATS, FLOATS, INT, INT, INT), generate


@intrinsic
def _add_weighted_to_four(typing_context, line, length, rows, weights, n_rows, stride):  # type: ignore[no-untyped-def]
    """Add to ``LANES`` numbers at the same place of a line of a triangle and of the next three.

    ``length`` is that of the first line, and the weights of the others lie beside its own.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        lanes, word = Instructions(builder), ir.IntType(64)
        line, length, rows, weights, n_rows, stride = arguments
        for r, found in enumerate(_weighted_sums(builder, rows, weights, 4, n_rows, stride)):
            lanes.store(lanes.add(lanes.load(line), found), line)
            line = builder.gep(line, [builder.add(length, word(r))])
        return context.get_dummy_value()

    return NOTHING(FLOATS, INT, FLOATS, FLOATS, INT, INT), generate


def _weighted_sums(builder: Any, rows: Any, weights: Any, n_sums: int, n_rows: Any, stride: Any) -> list[Any]:
    """Write the sums of ``weights[r * stride + q] * rows[r * stride]`` over all r, for each q below ``n_sums``."""
    lanes, word = Instructions(builder), ir.IntType(64)
    sums = [cgutils.alloca_once(builder, VECTOR) for _ in range(n_sums)]
    for kept in sums:
        builder.store(lanes.all(0.0), kept)
    with cgutils.for_range(builder, n_rows) as loop:
        at = builder.mul(loop.index, stride)
        row = lanes.load(builder.gep(rows, [at]))
        for q, kept in enumerate(sums):
            weight = lanes.spread(builder.load(builder.gep(weights, [builder.add(at, word(q))])))
            builder.store(lanes.add(builder.load(kept), lanes.multiply(weight, row)), kept)
    return [builder.load(kept) for kept in sums]


@inlined
def add_outer_products(triangle, rows, n_rows, d):
    """Add ``x x'`` of the rows x (n_rows, d) to a symmetric matrix of which a packed lower triangle is given."""
    for i in range(min(d, LANES)):
        _add_products(triangle, rows, n_rows, d, i, 0)
    # Four lines at a time, as far as the first of them goes.
    together = LANES + (d - LANES) // 4 * 4 if d >= LANES else d
    for i in range(LANES, together, 4):
        line, weights = shifted(triangle, i * (i + 1) // 2), shifted(rows, i)
        done = (i + 1) // LANES * LANES
        for j in range(0, done, LANES):
            _add_weighted_to_four(shifted(line, j), i + 1, shifted(rows, j), weights, n_rows, d)
        for q in range(4):
            _add_products(triangle, rows, n_rows, d, i + q, done)
    for i in range(together, d):
        _add_products(triangle, rows, n_rows, d, i, 0)


@inlined
def _add_products(triangle, rows, n_rows, d, i, done):
    """Add to line ``i`` of the triangle, from its number ``done`` on."""
    line, weights = shifted(triangle, i * (i + 1) // 2), shifted(rows, i)
    if i + 1 < LANES:
        for j in range(i + 1):
            total = 0.0
            for r in range(n_rows):
                total += weights[r * d] * rows[r * d + j]
            line[j] += total
        return
    left_over = (i + 1 - done) % LANES
    for j in range(done, i + 1 - left_over, LANES):
        _add_weighted(shifted(line, j), shifted(rows, j), weights, n_rows, d, 0)
    if left_over > 0:
        # The last lanes of a line that end with it: numbers before have had theirs.
        j = i + 1 - LANES
        _add_weighted(shifted(line, j), shifted(rows, j), weights, n_rows, d, LANES - left_over)
