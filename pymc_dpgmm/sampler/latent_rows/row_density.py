"""The log density that the rest of a model gives to latent rows, as compiled code calls it: at an address."""

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.array_calls import Entry, PythonCall, call_entry, words_of
from pymc_dpgmm.native.blocks import FUNCTION, NUMBER, Block
from pymc_dpgmm.native.compiled import (
    FLOATS,
    INT,
    INTS,
    NOTHING,
    address_of,
    address_of_floats,
    c_function,
    inlined,
)
from pymc_dpgmm.native.memory import Memory

DENSITY = Block(
    # Of rows (m, n, d), which are the first input, and whatever else the density needs: see Entry.
    entry=FUNCTION,
    code=NUMBER,
    inputs=blocks.INTS,
    outputs=blocks.INTS,
    # The numbers of a row set, n d, and the rows of one.
    n_numbers=NUMBER,
    n=NUMBER,
    # What is added to rows (n, d), if anything is; and where to.
    offset=blocks.FLOATS,
    placed=blocks.FLOATS,
    # Whether the density could not be computed.
    failed=NUMBER,
)
_N_INPUT = 1

read_density = DENSITY.reader()


@inlined
def log_densities(density, points, m, values):
    """Write the log densities (m, n) of rows (m, n, d); minus infinity where they cannot be computed."""
    if density.has_offset:
        offset = density.offset
        for k in range(m):
            for entry in range(density.n_numbers):
                density.placed[k * density.n_numbers + entry] = (
                    points[k * density.n_numbers + entry] + offset[entry]
                )
        density.inputs[0] = address_of_floats(density.placed)
    else:
        density.inputs[0] = address_of_floats(points)
    density.inputs[_N_INPUT] = m
    density.outputs[0] = address_of_floats(values)
    if call_entry(density.entry, density.code, density.inputs, density.outputs) != 0:
        density.failed = 1
        for at in range(m * density.n):
            values[at] = -math.inf


@c_function(NOTHING(INTS, FLOATS, INT, FLOATS))
def evaluate(density, points, m, values):
    """Write the log densities (m, n) of rows (m, n, d)."""
    log_densities(read_density(density), points, m, values)


KERNELS = (evaluate,)


class RowDensity(Memory, block=DENSITY):
    """Log density that the rest of a model gives to each latent row: a function of rows (m, n, d).

    Parameters
    ----------
    entry : Entry
        Of a function of rows (m, n, ...) and other arrays; it returns (m, n).
    function : callable
        The same function in Python, which tells why a density cannot be computed.
    shape : tuple of int
        Of a row set: (n, d), or (n, ...) as the function takes it.
    others : sequence of arrays
        The other arrays, C-contiguous. They are read at every call.
    """

    failed: int

    def __init__(
        self,
        entry: Entry,
        function: Callable[[np.ndarray], np.ndarray],
        shape: tuple[int, ...],
        others: Sequence[np.ndarray] = (),
    ) -> None:
        super().__init__(entry=entry, code=entry.code, n=shape[0], n_numbers=int(np.prod(shape, dtype=np.int64)))
        self._function, self._shape = function, shape
        self._others = list(others)
        others_of = words_of(self._others, entry.kinds[1:])
        self.inputs = np.concatenate([np.array([0, 0, *shape]), others_of]).astype(np.int64)
        self._make(outputs=1, placed=0)
        self.offset: np.ndarray | None = None

    @classmethod
    def of_function(cls, function: Callable[[np.ndarray], np.ndarray], n: int, d: int) -> "RowDensity":
        """Return the density that a Python function of rows (m, n, d) computes."""
        entry = PythonCall(lambda rows: [function(rows)], [(np.dtype(np.float64), 3)])
        return cls(entry, function, (n, d))

    def add(self, offset: np.ndarray | None) -> None:
        """From now on add an offset (n, d) to rows first, or nothing."""
        self.offset = None if offset is None else np.ascontiguousarray(offset, dtype=np.float64)

    def make_room(self, m: int) -> int:
        """Get ready for m row sets at once, and return the address of the block."""
        if self.offset is not None and len(self.placed) < m * self.n_numbers:
            self._make(placed=m * self.n_numbers)
        return self.address

    def check(self) -> None:
        """Raise what is wrong if a density could not be computed since the last check."""
        if not self.failed:
            return
        self.failed = 0
        self.entry.raise_error()
        m = int(self.inputs[_N_INPUT])
        memory = (ctypes.c_double * (m * self.n_numbers)).from_address(int(self.inputs[0]))
        self._function(np.frombuffer(memory).reshape(m, *self._shape))
        raise FloatingPointError("the log density of latent rows could not be computed")

    def __call__(self, rows: Any) -> np.ndarray:
        """Return the log density of each row, (m, n), at rows (m, n, d)."""
        points = np.ascontiguousarray(rows, dtype=np.float64)
        m = len(points)
        values = np.empty((m, self.n))
        evaluate(self.make_room(m), address_of(points), m, address_of(values))
        self.check()
        return values
