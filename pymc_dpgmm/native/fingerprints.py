"""What compiled code is made from: the files of this package, and the functions that a user has written."""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

# The folders that compiled code is made from, with all that is in them.
_FOLDERS = ("native", "partitions", "families", "sampler")


@cache
def own_sources() -> tuple[str, ...]:
    """Return the files of this package that compiled code is made from."""
    package = Path(__file__).parent.parent
    return tuple(sorted(str(path) for folder in _FOLDERS for path in (package / folder).rglob("*.py")))


def digest(*paths: str) -> str:
    """Return a digest of source files."""
    found = hashlib.sha256()
    for path in paths:
        found.update(Path(path).read_bytes())
    return found.hexdigest()


def fingerprint(function: Callable[..., Any]) -> str:
    """Return a digest of what a function computes, the empty text for one of :func:`own_sources`.

    It is made of the function's code, the name of its module, and the functions and numbers that it refers to,
    also through modules. So it also serves functions without a file, such as those of a notebook, and sees a
    change in another file.
    """
    return hashlib.sha256("\n".join(_parts(function, set())).encode()).hexdigest() if is_outside(function) else ""


def is_outside(function: Callable[..., Any]) -> bool:
    """Tell whether a function is in none of the files that all compiled code is stamped with."""
    code = getattr(function, "__code__", None)
    return code is not None and os.path.abspath(code.co_filename) not in own_sources()


def _parts(function: Any, seen: set[int]) -> Iterator[str]:
    """Yield the parts of a function's fingerprint, each function once."""
    code = function.__code__
    if id(code) in seen:
        return
    seen.add(id(code))
    # Compiled code on disk looks for the modules that it was made from.
    yield str(function.__module__)
    yield from _parts_of_code(code, function.__doc__)
    yield repr(function.__defaults__)
    names = sorted(_names(code))
    referred = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        referred[name] = cell.cell_contents
    for name, value in referred.items():
        yield name
        yield from _parts_of_value(value, names, seen)


def _parts_of_code(code: CodeType, doc: str | None = None) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts_of_code(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant)))
        elif constant != doc or doc is None:
            yield repr(constant)


def _names(code: CodeType) -> set[str]:
    """Return the names that code, and functions inside it, may look up."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def _parts_of_value(value: Any, names: list[str], seen: set[int]) -> Iterator[str]:
    """Yield the parts of something that code refers to; ``names`` are all that the code looks up."""
    # What numba has compiled stands for the function that it was made from.
    value = getattr(value, "py_func", value)
    if isinstance(value, FunctionType):
        if is_outside(value) and not _is_of_library(value.__module__):
            yield from _parts(value, seen)
    elif isinstance(value, ModuleType):
        if not _is_of_library(value.__name__):
            for name in names:
                if name in vars(value) and vars(value)[name] is not value:
                    yield f"{value.__name__}.{name}"
                    yield from _parts_of_value(vars(value)[name], names, seen)
    elif isinstance(value, np.ndarray):
        yield repr((value.dtype, value.shape))
        yield value.tobytes().hex()
    elif isinstance(value, bool | int | float | complex | str | bytes | tuple | np.generic):
        yield repr(value)


def _is_of_library(module: str) -> bool:
    """Tell whether a module is Python's, or of the libraries that compiled code may call."""
    return module.partition(".")[0] in sys.stdlib_module_names | {"llvmlite", "numba", "numpy", "scipy"}
