"""Functions of arrays, such as those of PyTensor, called by C functions: without Python where numba compiled them.

Arguments of numba's code are arrays in its own calling convention. An entry takes addresses in place of arrays,
calls that code, and copies what it returns to other addresses. A function that there is no such code of is called
back in Python, by an entry of the same form.
"""

import ctypes
import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import NumbaError
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from pymc_dpgmm.native.compiled import INT, INTS, address_of, called_at

# Numbers of arrays that are given; results are floats.
_NUMBERS = (
    types.boolean,
    types.float64,
    types.float32,
    *(types.int64, types.int32, types.int16, types.int8),
    *(types.uint64, types.uint32, types.uint16, types.uint8),
)


# Type of numbers and number of axes of an array.
Kind = tuple[np.dtype, int]


class Entry(Protocol):
    """A function of arrays, of which C functions call the entry: ``entry(code, inputs, outputs) -> status``.

    ``inputs`` are, for each array, the address of its numbers and its shape (:func:`words_of`); ``outputs`` are
    addresses of memory that results are copied to, which are floats. The status is 0 where nothing was raised.

    Attributes
    ----------
    code : int
    kinds : list of Kind
        Of the arrays.
    address : int
    """

    code: int
    kinds: list[Kind]

    @property
    def address(self) -> int:
        """The address of the entry."""

    def raise_error(self) -> None:
        """Raise what the function has raised first since this was last called, if that is known."""


class Call(NamedTuple):
    """An entry, and the arrays that follow those that compiled code gives it."""

    entry: Entry
    values: list[np.ndarray]


@intrinsic
def call_entry(typing_context, address, code, inputs, outputs):  # type: ignore[no-untyped-def]
    """Call the entry at an address, and return its status."""
    return called_at(INT(INT, INTS, INTS))


def words_of(arrays: Sequence[np.ndarray], kinds: Sequence[Kind]) -> np.ndarray:
    """Return the inputs of an entry, an int64 array, for C-contiguous arrays of its kinds.

    The arrays must live as long as the inputs are used.

    Raises
    ------
    TypeError
        If arrays are of other kinds: compiled code would read what is not there.
    """
    found = [(array.dtype, array.ndim) for array in arrays]
    if found != list(kinds) or not all(array.flags.c_contiguous for array in arrays):
        raise TypeError(f"compiled code for arrays of the kinds {list(kinds)} was given arrays of {found}")
    return np.array([n for array in arrays for n in (address_of(array), *array.shape)], dtype=np.int64)


def are_same(arrays: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    """Tell whether arrays are the same objects as others, so that their addresses are known."""
    return len(arrays) == len(others) and all(map(operator.is_, arrays, others))


class PythonCall:
    """A Python function of arrays, with an entry.

    Parameters
    ----------
    function : callable
        Of arrays, which it must not keep; returns a sequence of arrays.
    kinds : sequence of Kind
        Of the arrays.

    Attributes
    ----------
    code : int
    kinds : list of Kind
    """

    def __init__(self, function: Callable[..., Sequence[np.ndarray]], kinds: Sequence[Kind]) -> None:
        self.code, self.kinds = 0, list(kinds)
        self._error: BaseException | None = None
        self._function = function
        words = ctypes.POINTER(ctypes.c_int64)
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, words, words)(self._called)
        self._address: int = ctypes.cast(self._entry, ctypes.c_void_p).value or 0

    @property
    def address(self) -> int:
        """The address of the entry."""
        return self._address

    def _called(self, code: int, inputs: Any, outputs: Any) -> int:
        try:
            results = self._function(*self._arrays(inputs))
            for k, result in enumerate(results):
                numbers = np.ascontiguousarray(result, dtype=np.float64)
                ctypes.memmove(outputs[k], address_of(numbers), numbers.nbytes)
        except BaseException as error:
            # It cannot pass through compiled code: who has called that raises it.
            self._error = self._error or error
            return 1
        return 0

    def raise_error(self) -> None:
        """Raise what the function has raised first since this was last called."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _arrays(self, inputs: Any) -> list[np.ndarray]:
        arrays, place = [], 0
        for dtype, n_axes in self.kinds:
            address, shape = inputs[place], inputs[place + 1 : place + 1 + n_axes]
            length = math.prod(shape)
            memory = (ctypes.c_char * (length * dtype.itemsize)).from_address(address)
            arrays.append(np.frombuffer(memory, dtype, length).reshape(shape))
            place += 1 + n_axes
        return arrays


class NativeCall:
    """A function of arrays that numba has compiled, with an entry.

    Parameters
    ----------
    code : int
        Address of PyTensor's machine code.
    entry : numba.CFunc
        It is kept for the life of the process, as its address is.
    kinds : sequence of Kind
        Of the arrays.
    """

    def __init__(self, code: int, entry: Any, kinds: Sequence[Kind]) -> None:
        self.code, self._entry, self.kinds = code, entry, list(kinds)

    @property
    def address(self) -> int:
        """The address of the entry."""
        address: int = self._entry.address
        return address

    def raise_error(self) -> None:
        """Do nothing: who has called compiled code calls the function in Python, which tells what is wrong."""


def machine_code(function: Any) -> Callable[..., Any] | None:
    """Return what a function that numba has compiled for one kind of arguments calls for these, from Python.

    Nothing is checked: the arguments must be of this kind. None where numba's inside is not as it is known.
    """
    compiled = list(getattr(function, "overloads", {}).values())
    if len(compiled) != 1 or not hasattr(compiled[0], "entry_point"):
        return None
    code: Callable[..., Any] = compiled[0].entry_point
    return (lambda *arguments: code(arguments)) if _is_packed(compiled[0].signature.args) else code


def _is_packed(given: Any) -> bool:
    """Tell whether a function of PyTensor takes its arrays as a tuple, and not one by one."""
    return len(given) == 1 and isinstance(given[0], types.BaseTuple)


def native_call(function: Any) -> NativeCall | None:
    """Return how C functions call a function of arrays that numba has compiled for one kind of arguments.

    None where arguments are not arrays of numbers, or results not arrays of floats, in the form that PyTensor
    makes; and where numba's inside is not as it is known.
    """
    compiled = list(getattr(function, "overloads", {}).values())
    if len(compiled) != 1:
        return None
    given, returned = compiled[0].signature.args, compiled[0].signature.return_type
    is_packed = _is_packed(given)
    kinds = tuple(given[0].types) if is_packed else tuple(given)
    if not isinstance(returned, types.BaseTuple):
        return None
    takes_arrays = all(_is_array(kind, *_NUMBERS) and kind.layout == "C" for kind in kinds)
    # They are copied to memory of floats.
    if not takes_arrays or not all(_is_array(kind, types.float64) for kind in returned.types):
        return None
    try:
        address = compiled[0].library.get_pointer_to_function(compiled[0].fndesc.llvm_func_name)
        of_arrays = [(np.dtype(str(kind.dtype)), kind.ndim) for kind in kinds]
        return NativeCall(address, _entry(kinds, is_packed, returned), of_arrays)
    except (AttributeError, NotImplementedError, TypeError, NumbaError):
        # Numba's inside is not as it is known: the function is called from Python then.
        return None


def _is_array(kind: Any, *dtypes: Any) -> bool:
    return isinstance(kind, types.Array) and kind.dtype in dtypes


@cache
def _entry(kinds: tuple[Any, ...], is_packed: bool, returned: Any) -> Any:
    """Return the entry for arrays of some types, which are arguments or a tuple, and for a tuple of results."""
    packed = types.Tuple(kinds)
    arguments_of = [packed] if is_packed else list(kinds)

    @intrinsic
    def call(typing_context, code, inputs, outputs):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            code, inputs, outputs = arguments
            convention = context.call_conv
            kind = convention.get_function_type(returned, arguments_of)
            words = _Words(builder, inputs)
            arrays = [_array_at(context, builder, kind_of, words) for kind_of in kinds]
            given = [context.make_tuple(builder, packed, arrays)] if is_packed else arrays
            target = builder.inttoptr(code, kind.as_pointer())
            status, results = convention.call_function(builder, target, returned, arguments_of, given)
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
    step = size = ir.Constant(word, np.dtype(str(kind.dtype)).itemsize)
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
