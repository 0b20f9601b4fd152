"""Slices of numbers that latent rows share, with which the rows move: compiled, from end to end."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numba.extending import intrinsic

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import Bits
from pymc_dpgmm.native.array_calls import Entry, are_same, call_entry, words_of
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
from pymc_dpgmm.sampler.hyperparameters.compiled_slices import (
    ALONG,
    FAILURES,
    draw_along,
    draw_number,
    filled_along,
    is_possible,
    place_along,
)
from pymc_dpgmm.sampler.hyperparameters.learnt_directions import LearntDirections

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
    **FAILURES,
    # Numbers that are drawn while rows stay.
    **ALONG,
)
_FAILED, _IMPOSSIBLE, _WHICH = MOVE.places("failed", "impossible", "which")
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
    place_along(m)
    log_p = _call_place(m.place, m.placement, is_first)
    if not -math.inf < log_p < math.inf:
        return log_p
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
    failed, bits = shifted(block, _FAILED), Bits(next_double, bit_state)
    if not is_possible(log_p, failed):
        return 0
    _, width[0] = draw_number(log_density, block, failed, numbers, place, width[0], log_p, bits)
    return 1


@c_function(INT(INTS, INT, INT, INT, INT))
def draw_numbers(block, log_density, learns, next_double, bit_state):
    """Draw numbers along directions; return 0 where they have no density."""
    log_p = _log_density(block, 1)
    failed, bits = shifted(block, _FAILED), Bits(next_double, bit_state)
    if not is_possible(log_p, failed):
        return 0
    draw_along(log_density, block, _move_at(block), shifted(block, _WHICH), failed, learns, log_p, bits)
    return 1


@c_function(FLOAT(INTS, INT))
def place_still(block, is_first):
    """Leave the rows where they are."""
    return 0.0


KERNELS = (log_density_of_moved, move_number)
KERNELS_OF_DRAWN = (log_density_of_moved, draw_numbers, place_still)


class StillRows:
    """Rows (n, d) that stay while numbers are drawn."""

    kernel: ClassVar[CFunction] = place_still

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.rows = np.empty(shape)
        self.address = 0


_NOTHING_ALONG = filled_along((), LearntDirections(0))


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

    Attributes
    ----------
    n_impossible : int
        Evaluations so far at which the log density was +inf or NaN.
    """

    def __init__(
        self,
        entry: Entry,
        arrays: Sequence[np.ndarray],
        placed: np.ndarray,
        offset: np.ndarray | None,
        tell: Callable[[], Any],
    ) -> None:
        self._entry, self._tell, self.n_impossible = entry, tell, 0
        own = None if offset is None else np.ascontiguousarray(offset, dtype=np.float64)
        log_p = np.zeros(1)
        inputs, outputs = words_of(arrays, entry.kinds), np.array([address_of(log_p)])
        # Blocks have their addresses.
        self._kept = own, log_p, inputs, outputs, list(arrays)
        self._still = StillRows((len(placed), placed.size // max(len(placed), 1)))
        # For the placements that somebody still has: the block, and what must live as long.
        self._blocks: WeakKeyDictionary[Placement, tuple[np.ndarray, dict[str, Any]]] = WeakKeyDictionary()
        self._along: list[np.ndarray] = []
        self._fields = {
            "n_numbers": placed.size,
            "offset": 0 if own is None else address_of(own),
            "placed": address_of(placed),
            "entry": entry.address,
            "code": entry.code,
            "inputs": address_of(inputs),
            "outputs": address_of(outputs),
            "log_p": address_of(log_p),
            "failed": 0,
            "impossible": 0,
        }

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
        if placement not in self._blocks:
            self._make_block(placement, _NOTHING_ALONG)
        block, _ = self._blocks[placement]
        length = np.array([width])
        given = address_of(values), at, address_of(length)
        density = address_of(block), log_density_of_moved.address
        is_drawn = move_number(*density, *given, *bits_of_generator(rng))
        self._check(block)
        return float(length[0]) if is_drawn else None

    def draw_all(
        self,
        rng: np.random.Generator,
        rows: np.ndarray,
        arrays: Sequence[np.ndarray],
        directions: LearntDirections,
        tuning: bool,
    ) -> None:
        """Draw all numbers of some of the arrays in place, given the rows (n, d) without their offset."""
        self._still.rows[:] = rows
        given = [*arrays, directions.directions, directions.widths]
        if not are_same(self._along, given):
            self._along = given
            self._make_block(self._still, filled_along(arrays, directions))
        block, _ = self._blocks[self._still]
        draw_numbers(address_of(block), log_density_of_moved.address, int(tuning), *bits_of_generator(rng))
        self._check(block)
        if tuning and len(directions.widths) > 1:
            directions.learn(np.concatenate([array.ravel() for array in arrays]))

    def _make_block(self, placement: Placement, along: dict[str, Any]) -> None:
        of_rows = {"place": placement.kernel.address, "placement": placement.address, "rows": placement.rows}
        self._blocks[placement] = MOVE.filled(**of_rows, **self._fields, **along), along

    def _check(self, block: np.ndarray) -> None:
        """Raise what is wrong if the density could not be computed; count where it was +inf or NaN."""
        self.n_impossible += int(block[_IMPOSSIBLE])
        block[_IMPOSSIBLE] = 0
        if block[_FAILED]:
            block[_FAILED] = 0
            self._entry.raise_error()
            self._tell()
            raise FloatingPointError("the log density of what latent rows share could not be computed")
