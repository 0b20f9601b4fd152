"""Slices of numbers that latent rows share, with which the rows move: compiled, from end to end."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from numba.extending import intrinsic

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import Bits
from pymc_dpgmm.native.array_calls import Entry, call_entry, words_of
from pymc_dpgmm.native.blocks import FUNCTION, NUMBER, Block
from pymc_dpgmm.native.compiled import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    CFunction,
    address_of,
    bits_of_generator,
    c_function,
    called_at,
    floats_at,
    inlined,
    shifted,
)
from pymc_dpgmm.sampler.hyperparameters.compiled_slices import draw_number

MOVE = Block(
    # The function that places rows, its block, and the rows that it writes.
    place=FUNCTION,
    placement=blocks.INTS,
    rows=blocks.FLOATS,
    n_numbers=NUMBER,
    # What is added to these in the model, 0 if nothing is, and where the model has them.
    offset=NUMBER,
    placed=blocks.FLOATS,
    # The log density of all that depends on the numbers or the rows: see Entry.
    entry=FUNCTION,
    code=NUMBER,
    inputs=blocks.INTS,
    outputs=blocks.INTS,
    log_p=blocks.FLOATS,
    # Whether it could not be computed.
    failed=NUMBER,
)
_FAILED = MOVE.place("failed")
_move_at = MOVE.reader()


class Placement(Protocol):
    """How rows follow a number.

    Attributes
    ----------
    kernel : CFunction
        ``(block, is_first) -> log density``: writes the rows, and returns what the rest of the model does not say
        of their log density, with the Jacobian. The first time the rows are the present ones.
    address : int
        Of the block.
    rows : (n, d) array
    """

    kernel: ClassVar[CFunction]
    address: int
    rows: np.ndarray


@intrinsic
def _call_place(typing_context, address, block, is_first):  # type: ignore[no-untyped-def]
    return called_at(FLOAT(INTS, INT))


@inlined
def _log_density(block, is_first):
    m = _move_at(block)
    log_p = _call_place(m.place, m.placement, is_first)
    # What is no number is impossible.
    if not log_p > -math.inf:
        return -math.inf
    for entry in range(m.n_numbers):
        m.placed[entry] = m.rows[entry] + (floats_at(m.offset)[entry] if m.offset != 0 else 0.0)
    if call_entry(m.entry, m.code, m.inputs, m.outputs) != 0:
        block[_FAILED] = 1
        return -math.inf
    return log_p + m.log_p[0]


@c_function(FLOAT(INTS))
def log_density_of_moved(block):
    """Return the log density of the numbers as they are, with the rows that follow; see :data:`MOVE`."""
    return _log_density(block, 0)


@c_function(INT(INTS, INT, FLOATS, INT, FLOATS, INT, INT))
def move_number(block, log_density, numbers, place, width, next_double, bit_state):
    """Draw a number, and the rows with it; return 0 where they have no density.

    ``log_density`` is the address of the function here. The width of the slice becomes the length of its interval.
    """
    log_p = _log_density(block, 1)
    if not log_p > -math.inf:
        return 0
    failed, bits = shifted(block, _FAILED), Bits(next_double, bit_state)
    _, width[0] = draw_number(log_density, block, failed, numbers, place, width[0], log_p, bits)
    return 1


KERNELS = (log_density_of_moved, move_number)


class SharedNumbers:
    """The log density of all that depends on numbers that rows share, or on the rows.

    Parameters
    ----------
    entry : Entry
        Of a function of ``arrays``; it returns one number.
    arrays : sequence of arrays
        The numbers and the rows are among them, and whatever else the density depends on.
    placed : (n, ...) float64 array
        The rows of the model, one of the arrays.
    offset : (n, d) array or None
        What is added to rows that are placed.
    tell : callable
        Computes the density in Python, and so tells why it cannot be computed.
    """

    def __init__(
        self,
        entry: Entry,
        arrays: Sequence[np.ndarray],
        placed: np.ndarray,
        offset: np.ndarray | None,
        tell: Callable[[], Any],
    ) -> None:
        self._entry, self._tell = entry, tell
        self._offset = None if offset is None else np.ascontiguousarray(offset, dtype=np.float64)
        self._log_p = np.zeros(1)
        self._fields = {
            "n_numbers": placed.size,
            "offset": 0 if self._offset is None else address_of(self._offset),
            "placed": placed,
            "entry": entry.address,
            "code": entry.code,
            "inputs": words_of(arrays),
            "outputs": np.array([address_of(self._log_p)]),
            "log_p": self._log_p,
            "failed": 0,
        }
        # The block has their addresses.
        self._arrays = list(arrays)

    def draw(
        self, rng: np.random.Generator, placement: Placement, values: np.ndarray, at: int, width: float
    ) -> float | None:
        """Draw one number in place, and the rows with it.

        Parameters
        ----------
        rng : numpy.random.Generator
        placement : Placement
            Afterwards it has the rows.
        values : C-contiguous float64 array
            Of one variable: one of the arrays.
        at : int
            Where the number is in the flat array.
        width : float

        Returns
        -------
        float or None
            The length of the interval that it was drawn from; None, and nothing has changed, where the density of
            what is there is zero.
        """
        block = MOVE.filled(
            place=placement.kernel.address, placement=placement.address, rows=placement.rows, **self._fields
        )
        length = np.array([width])
        given = address_of(values), at, address_of(length)
        is_drawn = move_number(address_of(block), log_density_of_moved.address, *given, *bits_of_generator(rng))
        if block[_FAILED]:
            error = getattr(self._entry, "error", None)
            if error is not None:
                raise error
            self._tell()
            raise FloatingPointError("the log density of what latent rows share could not be computed")
        return float(length[0]) if is_drawn else None
