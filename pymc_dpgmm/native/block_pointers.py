"""A type of compiled code: a pointer to a block, of which a field is read, or set, where it is asked for.

A named tuple of all fields would be passed to every function one by one, which makes much code and takes long to
compile.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core.imputils import lower_builtin, lower_setattr_generic
from numba.core.typing import templates
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model

from pymc_dpgmm.native.compiled import INT, INTS, called_at

_WORD = ir.IntType(64)
_numbers = itertools.count()
# Of an attribute that tells whether a field, such as an address, is not zero.
_HAS = "has_"


class Field(NamedTuple):
    """A field of a block.

    Parameters
    ----------
    place : int
    kind : numba type
        Of a whole number, or of a pointer.
    """

    place: int
    kind: Any


class FunctionAt(types.Callable):  # type: ignore[misc]
    """The type of a field with the address of a C function, which is called as a method of the block.

    Parameters
    ----------
    signature : numba signature
        Of the function.
    """

    def __init__(self, signature: Any) -> None:
        super().__init__(name=f"FunctionAt({signature})")
        self.signature = signature

    def get_call_type(self, context: Any, arguments: Any, keywords: Any) -> Any:
        """Return the type of a call."""
        if keywords or len(arguments) != len(self.signature.args):
            return None
        return templates.Signature(self.signature.return_type, self.signature.args, recvr=self)

    def get_call_signatures(self) -> tuple[list[Any], bool]:
        """Return the signature."""
        return [self.signature], False

    def get_impl_key(self, signature: Any) -> Any:
        """Return what the implementation of calls is known by."""
        return FunctionAt


@register_model(FunctionAt)
class _FunctionAtModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _WORD)


@lower_builtin(FunctionAt, FunctionAt, types.VarArg(types.Any))
def _call_function_at(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    function, *_ = signature.args
    _, generate = called_at(function.signature)
    return generate(context, builder, None, arguments)


class _BlockPointer(types.Type):
    def __init__(self, fields: Mapping[str, Field], bits: Any) -> None:
        super().__init__(name=f"BlockPointer{next(_numbers)}")
        self.fields, self.bits = fields, bits


@register_model(_BlockPointer)
class _BlockPointerModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _WORD.as_pointer())


def _is_question(kind: Any, name: str) -> bool:
    return name not in kind.fields and name.startswith(_HAS) and name.removeprefix(_HAS) in kind.fields


@infer_getattr
class _AttributesOfBlock(AttributeTemplate):
    key = _BlockPointer

    def generic_resolve(self, kind: Any, name: str) -> Any:
        """Return the type of an attribute, None if there is none."""
        others = {"head": INTS, "bits": kind.bits}
        if _is_question(kind, name):
            return types.boolean
        return kind.fields[name].kind if name in kind.fields else others.get(name)


@lower_getattr_generic(_BlockPointer)
def _attribute_of_block(context: Any, builder: Any, kind: Any, block: Any, name: str) -> Any:
    if name == "head":
        return block
    if name == "bits":
        words = [_read(context, builder, block, kind.fields[own]) for own in ("next_double", "bit_state")]
        return context.make_tuple(builder, kind.bits, words)
    if _is_question(kind, name):
        word = builder.load(builder.gep(block, [ir.Constant(_WORD, kind.fields[name.removeprefix(_HAS)].place)]))
        return builder.icmp_unsigned("!=", word, ir.Constant(_WORD, 0))
    return _read(context, builder, block, kind.fields[name])


@lower_setattr_generic(_BlockPointer)
def _set_attribute_of_block(context: Any, builder: Any, signature: Any, arguments: Any, name: str) -> None:
    kind, given = signature.args
    place = kind.fields[name].place
    block, value = arguments
    builder.store(context.cast(builder, value, given, INT), builder.gep(block, [ir.Constant(_WORD, place)]))


def _read(context: Any, builder: Any, block: Any, field: Field) -> Any:
    word = builder.load(builder.gep(block, [ir.Constant(_WORD, field.place)]))
    if field.kind == INT or isinstance(field.kind, FunctionAt):
        return word
    # Arrays stay where they are while compiled code runs, so that their addresses need not be read twice.
    word.set_metadata("invariant.load", builder.module.add_metadata([]))
    return builder.inttoptr(word, context.get_value_type(field.kind))


def reader_of_pointer(fields: Mapping[str, Field], bits: Any) -> Callable[..., Any]:
    """Return a function for compiled code that takes a pointer to whole numbers for one to a block.

    Parameters
    ----------
    fields : mapping
        By their names.
    bits : named tuple
        What the fields ``next_double`` and ``bit_state`` are together.
    """
    kind = _BlockPointer(fields, types.NamedUniTuple(INT, 2, bits))

    @intrinsic
    def read(typing_context, head):  # type: ignore[no-untyped-def]
        return kind(INTS), lambda context, builder, signature, arguments: arguments[0]

    return read  # type: ignore[no-any-return]
