"""Functions of arrays that numba has compiled, such as those of PyTensor, called by C functions without Python.

Their arguments are arrays in numba's own calling convention. An entry takes addresses in place of arrays, calls
that code, and copies what it returns to other addresses.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import NumbaError
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from pymc_dpgmm.native.compiled import INT, INTS, address_of

_NUMBER_BYTES = 8


class NativeCall:
    """A function of arrays, of which C functions call the entry: ``entry(code, inputs, outputs) -> status``.

    ``inputs`` are, for each array, the address of its numbers and its shape; ``outputs`` are addresses of memory
    that results are copied to. The status is 0 where nothing was raised.

    Parameters
    ----------
    code : int
        Address of PyTensor's machine code.
    entry : numba.CFunc
        It is kept for the life of the process, as its address is.
    """

    def __init__(self, code: int, entry: Any) -> None:
        self.code, self._entry = code, entry

    @property
    def address(self) -> int:
        """The address of the entry."""
        address: int = self._entry.address
        return address

    @staticmethod
    def inputs(arrays: Sequence[np.ndarray]) -> np.ndarray:
        """Return the inputs, an int64 array, for C-contiguous arrays, which must live as long as they are used."""
        return np.array([n for array in arrays for n in (address_of(array), *array.shape)], dtype=np.int64)


def native_call(function: Any) -> NativeCall | None:
    """Return how C functions call a function of arrays that numba has compiled for one kind of arguments.

    None where arguments are not arrays of numbers with 8 bytes each, or results not arrays of floats, in the form
    that PyTensor makes; and where numba's inside is not as it is known.
    """
    compiled = list(getattr(function, "overloads", {}).values())
    if len(compiled) != 1 or len(compiled[0].signature.args) != 1:
        return None
    (packed,), returned = compiled[0].signature.args, compiled[0].signature.return_type
    if not isinstance(packed, types.BaseTuple) or not isinstance(returned, types.BaseTuple):
        return None
    takes_arrays = all(_is_array(kind, types.float64, types.int64) and kind.layout == "C" for kind in packed.types)
    # They are copied to memory of floats.
    if not takes_arrays or not all(_is_array(kind, types.float64) for kind in returned.types):
        return None
    try:
        address = compiled[0].library.get_pointer_to_function(compiled[0].fndesc.llvm_func_name)
        return NativeCall(address, _entry(packed, returned))
    except (AttributeError, NotImplementedError, TypeError, NumbaError):
        # Numba's inside is not as it is known: the function is called from Python then.
        return None


def _is_array(kind: Any, *dtypes: Any) -> bool:
    return isinstance(kind, types.Array) and kind.dtype in dtypes


@cache
def _entry(packed: Any, returned: Any) -> Any:
    """Return the entry for arrays of some types: a tuple of arguments, and one of results."""

    @intrinsic
    def call(typing_context, code, inputs, outputs):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            code, inputs, outputs = arguments
            convention = context.call_conv
            kind = convention.get_function_type(returned, [packed])
            words = _Words(builder, inputs)
            arrays = [_array_at(context, builder, kind_of, words) for kind_of in packed.types]
            given = context.make_tuple(builder, packed, arrays)
            target = builder.inttoptr(code, kind.as_pointer())
            status, results = convention.call_function(builder, target, returned, [packed], [given])
            with builder.if_then(status.is_ok):
                addresses = _Words(builder, outputs)
                for k, kind_of in enumerate(returned.types):
                    result = builder.extract_value(results, k)
                    _copy(context, builder, kind_of, result, addresses.take())
                    context.nrt.decref(builder, kind_of, result)
            return builder.sext(status.code, context.get_value_type(INT))

        return INT(INT, INTS, INTS), generate

    def entry(code, inputs, outputs):  # type: ignore[no-untyped-def]
        return call(code, inputs, outputs)

    return numba.cfunc(INT(INT, INTS, INTS))(entry)


class _Words:
    """Whole numbers that follow each other in memory."""

    def __init__(self, builder: Any, start: Any) -> None:
        self._builder, self._start, self._place = builder, start, 0

    def take(self) -> Any:
        """Return the next one."""
        place = ir.Constant(ir.IntType(64), self._place)
        self._place += 1
        return self._builder.load(self._builder.gep(self._start, [place]))


def _array_at(context: Any, builder: Any, kind: Any, words: _Words) -> Any:
    """Return a C-contiguous array that owns no memory."""
    word = ir.IntType(64)
    data = builder.inttoptr(words.take(), context.get_data_type(kind.dtype).as_pointer())
    shape = [words.take() for _ in range(kind.ndim)]
    strides: list[Any] = []
    step = size = ir.Constant(word, _NUMBER_BYTES)
    for length in reversed(shape):
        strides.insert(0, step)
        step = builder.mul(step, length)
    array = context.make_array(kind)(context, builder)
    populate_array(
        array,
        data=data,
        shape=cgutils.pack_array(builder, shape, ty=word),
        strides=cgutils.pack_array(builder, strides, ty=word),
        itemsize=size,
        meminfo=None,
    )
    return array._getvalue()


def _copy(context: Any, builder: Any, kind: Any, value: Any, address: Any) -> None:
    """Copy an array, of any strides, to an address: one number after the other."""
    array = context.make_array(kind)(context, builder, value)
    target = builder.inttoptr(address, context.get_data_type(kind.dtype).as_pointer())
    shape = cgutils.unpack_tuple(builder, array.shape, kind.ndim)
    with cgutils.loop_nest(builder, shape, ir.IntType(64)) as indices:
        place: Any = ir.Constant(ir.IntType(64), 0)
        for length, index in zip(shape, indices, strict=True):
            place = builder.add(builder.mul(place, length), index)
        source = cgutils.get_item_pointer(context, builder, kind, array, indices)
        builder.store(builder.load(source), builder.gep(target, [place]))
