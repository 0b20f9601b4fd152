"""Owners of memory, whose arrays and numbers compiled code finds in a block."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from pymc_dpgmm.native.blocks import Block
from pymc_dpgmm.native.compiled import address_of, bits_of_generator

# Types of whole numbers: a union of them would be made anew whenever one is set.
_WHOLE = (int, np.integer, np.bool_)


class Memory:
    """An owner of memory that compiled code finds in a block.

    A subclass says which block it has: ``class Rows(Memory, block=ROWS)``. An attribute with the name of a field
    is written to the block when it is set. A whole number is there alone, where compiled code may change it; None
    is zero, and a float is written bit by bit. Of everything else the address is written: that of an array, or
    what an object has as its ``address``, such as a C function or another owner. The object lives as long as the
    owner, and stays the attribute. Copies, and what is unpickled, have blocks and addresses of their own.

    Parameters
    ----------
    **fields
        Attributes to begin with; the other fields of the block are zero.

    Attributes
    ----------
    block : int64 array
    address : int
        Of the block.

    Examples
    --------
    >>> from pymc_dpgmm.native.blocks import FLOATS, NUMBER
    >>> class Rows(Memory, block=Block(n=NUMBER, weights=FLOATS)):
    ...     pass
    >>> rows = Rows(n=3, weights=np.ones(3))
    >>> rows.n, rows.block[1] == address_of(rows.weights)
    (3, np.True_)
    """

    block: np.ndarray
    address: int
    _declared: ClassVar[Block] = Block()
    _places: ClassVar[Mapping[str, int]] = {}

    def __init_subclass__(cls, *, block: Block | None = None) -> None:
        if block is not None:
            cls._declared, cls._places = block, {name: block.place(name) for name in block.fields}

    def __init__(self, **fields: Any) -> None:
        if not fields.keys() <= self._places.keys():
            raise TypeError(f"the block of {type(self).__name__} has the fields {', '.join(self._places)}")
        self._lie_in(np.zeros(len(self._declared), dtype=np.int64))
        for name, value in fields.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        place = self._places.get(name)
        if place is None:
            object.__setattr__(self, name, value)
        elif isinstance(value, np.ndarray):
            self.block[place], self.__dict__[name] = address_of(value), value
        elif isinstance(value, _WHOLE):
            self.block[place] = value
            self.__dict__.pop(name, None)
        else:
            self.block[place], self.__dict__[name] = _word_of(value), value

    def __getattr__(self, name: str) -> Any:
        """Return a whole number: Python looks for it here, since it is in the block alone."""
        try:
            return self.block.item(self._places[name])
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}") from None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "block": self.block.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lie_in(self.block)
        # Addresses are those of one process.
        for name in self._places.keys() & state.keys():
            setattr(self, name, state[name])

    def draw_from(self, rng: np.random.Generator) -> None:
        """Let compiled code draw from a generator, which must live as long as it does."""
        self.next_double, self.bit_state = bits_of_generator(rng)

    def lie_in(self, words: np.ndarray) -> None:
        """Let the block lie in other memory, such as a row of an array of blocks."""
        words[:] = self.block
        self._lie_in(words)

    def _lie_in(self, words: np.ndarray) -> None:
        self.__dict__["block"], self.__dict__["address"] = words, address_of(words)

    def _sharing(self, *copied: str) -> Self:
        """Return an owner that has copies of some arrays, and shares all else with this one."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._lie_in(self.block.copy())
        for name in copied:
            setattr(other, name, getattr(self, name).copy())
        return other

    def _make(self, **shapes: int | tuple[int, ...]) -> None:
        """Make arrays of zeros, of the shapes that are given and the types that the block declares."""
        for name, shape in shapes.items():
            setattr(self, name, np.zeros(shape, dtype=self._declared.dtype(name)))

    def _make_longer(self, **shapes: int | tuple[int, ...]) -> None:
        """Make arrays that are at least as long as those before, with what was in these."""
        before = {name: self.__dict__[name] for name in shapes if name in self.__dict__}
        self._make(**shapes)
        for name, array in before.items():
            getattr(self, name)[: len(array)] = array


def _word_of(value: Any) -> int:
    """Return what a block has of something that is neither a whole number nor an array."""
    if isinstance(value, float):
        return np.float64(value).view(np.int64).item()
    address: int = 0 if value is None else value.address
    return address
