"""What compiled code is made from: the files of this package, and the functions that a user has written."""

import hashlib
import inspect
import os
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np


@cache
def own_sources() -> tuple[str, ...]:
    """Return the files of this package that compiled code is made from."""
    package = Path(__file__).parent
    inside = [package / f"{name}.py" for name in ("partitions", "compiled", "arithmetic", "triangles")]
    return tuple(map(str, sorted([*inside, *package.glob("families/*.py"), *package.glob("kernels/*.py")])))


def digest(*paths: str) -> str:
    """Return a digest of source files."""
    found = hashlib.sha256()
    for path in paths:
        found.update(Path(path).read_bytes())
    return found.hexdigest()


def fingerprint(function: Callable[..., Any]) -> str:
    """Return a digest of what a function computes, the empty text for one of :func:`own_sources`.

    It is made of the function's code, and of the functions, numbers and files of modules that the code refers to.
    So it also serves functions without a file, such as those of a notebook, and sees a change in another file.
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
    yield from _parts_of_code(code, function.__doc__)
    yield repr(function.__defaults__)
    referred = {name: function.__globals__[name] for name in sorted(_names(code)) if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        referred[name] = cell.cell_contents
    for name, value in referred.items():
        yield name
        yield from _parts_of_value(value, seen)


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


def _parts_of_value(value: Any, seen: set[int]) -> Iterator[str]:
    # What numba has compiled stands for the function that it was made from.
    value = getattr(value, "py_func", value)
    if isinstance(value, FunctionType):
        if is_outside(value) and not _is_installed(value.__code__.co_filename):
            yield from _parts(value, seen)
    elif isinstance(value, ModuleType):
        path = inspect.getsourcefile(value) if getattr(value, "__file__", None) else None
        if path is not None and not _is_installed(path) and os.path.exists(path):
            yield digest(path)
    elif isinstance(value, np.ndarray):
        yield repr((value.dtype, value.shape))
        yield value.tobytes().hex()
    elif isinstance(value, bool | int | float | complex | str | bytes | tuple | np.generic):
        yield repr(value)


@cache
def _is_installed(path: str) -> bool:
    """Tell whether a file belongs to Python or to an installed package, which a user does not edit."""
    folders = {os.path.realpath(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    own = os.path.dirname(os.path.realpath(__file__))
    return any(os.path.realpath(path).startswith(f + os.sep) for f in folders) and not os.path.realpath(
        path
    ).startswith(own + os.sep)
