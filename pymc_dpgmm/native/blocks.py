"""Blocks of whole numbers that tell compiled code where its memory lies.

A block is declared once, by its fields in order: whole numbers, addresses of arrays with the type of their
entries, and addresses of functions. From the declaration are made the places of the fields in the block, the
function by which compiled code reads them, sets whole numbers, and calls functions as methods, and the attributes
of who owns the memory in Python (``memory.py``).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_dpgmm.native import compiled
from pymc_dpgmm.native.arithmetic import Bits
from pymc_dpgmm.native.block_pointers import Field, FunctionAt, reader_of_pointer
from pymc_dpgmm.native.compiled import bytes_at, floats_at, inlined, ints_at, shifted, small_ints_at

# What a field holds, and how it is read.
NUMBER = FUNCTION = "{}"
INTS, SMALL_INTS, FLOATS, BYTES = "ints_at({})", "small_ints_at({})", "floats_at({})", "bytes_at({})"
_ARRAYS = {
    INTS: compiled.INTS,
    SMALL_INTS: compiled.SMALL_INTS,
    FLOATS: compiled.FLOATS,
    BYTES: compiled.BYTES,
}
_DTYPES = {INTS: np.int64, SMALL_INTS: np.int32, FLOATS: np.float64, BYTES: np.uint8}
_READS = {
    "ints_at": ints_at,
    "small_ints_at": small_ints_at,
    "floats_at": floats_at,
    "bytes_at": bytes_at,
    "shifted": shifted,
    "Bits": Bits,
}


class Block:
    """The fields of a block.

    Parameters
    ----------
    **fields : str, int or numba signature
        ``NUMBER``, ``FUNCTION``, or the type of an array's entries, by the names of the fields; or how many whole
        numbers there are; or the signature of a C function, which compiled code calls as a method.

    Examples
    --------
    >>> block = Block(n=NUMBER, sizes=INTS, weights=FLOATS)
    >>> block.place("weights"), block.arrays, len(block)
    (2, ('sizes', 'weights'), 3)
    """

    def __init__(self, **fields: Any) -> None:
        self._fields = {name: holds for name, holds in fields.items() if not isinstance(holds, int)}
        self._places: dict[str, int] = {}
        self._length = 0
        for name, holds in fields.items():
            self._places[name] = self._length
            self._length += holds if isinstance(holds, int) else 1
        self._names_of_arrays = tuple(name for name, holds in self._fields.items() if holds in _ARRAYS)

    def __len__(self) -> int:
        return self._length

    def place(self, name: str) -> int:
        """Return the place of a field."""
        return self._places[name]

    def places(self, *names: str) -> list[int]:
        """Return the places of some fields."""
        return [self._places[name] for name in names]

    def signature(self, name: str) -> Any:
        """Return the signature of the function whose address a field holds."""
        return self._fields[name]

    def dtype(self, name: str) -> Any:
        """Return the type of the entries of an array whose address a field holds."""
        return _DTYPES[self._fields[name]]

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of all fields."""
        return tuple(self._places)

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the fields that are addresses of arrays."""
        return self._names_of_arrays

    def read(self, name: str, block: str = "head") -> str:
        """Return the expression by which compiled code reads a field of a block of some name."""
        return self._fields[name].format(f"{block}[{self._places[name]}]")

    def reader(self, **aliases: str) -> Callable[..., Any]:
        """Return a function of a block for compiled code, which has the fields as attributes.

        Beside the fields there are ``head``, the block itself; ``bits``, if the block has the addresses of a
        generator; and, for a field x, ``has_x``: whether it is not zero. Fields are read where they are asked for.

        Parameters
        ----------
        **aliases : str
            Fields, by other names.
        """
        fields = {name: Field(self._places[name], _kind_of(holds)) for name, holds in self._fields.items()}
        fields |= {alias: fields[name] for alias, name in aliases.items()}
        return reader_of_pointer(fields, Bits)


def _kind_of(holds: Any) -> Any:
    """Return the type of a field by what it holds."""
    return _ARRAYS.get(holds, compiled.INT) if isinstance(holds, str) else FunctionAt(holds)


def reader(kind: Any, arguments: Sequence[str], fields: Mapping[str, str]) -> Callable[..., Any]:
    """Return a function for compiled code that makes a named tuple of expressions of its arguments.

    Compiled code knows fields by name only, so that the function is written out.
    """
    body = ", ".join(fields[name] for name in kind._fields)
    source = f"def read({', '.join(arguments)}):\n    return kind({body})\n"
    namespace: dict[str, Any] = {"__name__": __name__, "kind": kind, **_READS}
    exec(compile(source, f"<fields of {kind.__name__}>", "exec"), namespace)
    return inlined(namespace["read"])
