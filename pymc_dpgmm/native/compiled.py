"""How code is compiled: C functions over pointers, each found on disk by the next process.

What runs for every row and cluster is compiled with numba into C functions. They take pointers to memory that
NumPy arrays own, numbers, and nothing else, so that compiled code never counts references, makes no Python
objects, and allocates nothing. A kernel calls the functions of a family by their addresses: the kernels are
compiled once for all families, and a family compiles its own few functions only.

Functions that compiled code calls directly are marked :func:`inlined`; they stay plain functions in Python.
"""

import contextlib
import ctypes
import gc
import importlib
import inspect
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary
from numba.core.errors import NumbaError
from numba.extending import intrinsic, overload, register_jitable

from pymc_dpgmm.native.fingerprints import digest, fingerprint, is_outside, own_sources
from pymc_dpgmm.native.interrupts import interrupted_later

# Where users of PyMC look for what their sampler tells.
logger = logging.getLogger("pymc.dpgmm")

FLOATS = types.CPointer(types.float64)
INTS = types.CPointer(types.int64)
BYTES = types.CPointer(types.uint8)
SMALL_INTS = types.CPointer(types.int32)
FLOAT = types.float64
INT = types.int64
NOTHING = types.void

# Sums may be reordered into vector lanes. NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract"}
_OPTIONS = {"error_model": "numpy", "_nrt": False}


_inlined: set[Callable[..., Any]] = set()


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let compiled code call a function, which stays what it is for Python."""
    if function not in _inlined:
        _inlined.add(function)
        register_jitable(fastmath=FASTMATH, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function)
    return function


def compiled_as(
    function: Callable[..., Any], **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let compiled code call the decorated function in place of ``function``, whose sums are not reordered."""

    def decorate(implementation: Callable[..., Any]) -> Callable[..., Any]:
        overload(function, strict=False, jit_options={"no_cfunc_wrapper": True, **_OPTIONS, **options})(
            lambda *arguments: implementation
        )
        return implementation

    return decorate


def shifted(array: Any, n: int) -> Any:
    """Return a pointer to what lies ``n`` entries further; in Python the array from there on."""
    return array[n:]


@intrinsic
def _shifted_pointer(typing_context, pointer, n):  # type: ignore[no-untyped-def]

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, INT), generate


@compiled_as(shifted)
def _shifted(array, n):  # type: ignore[no-untyped-def]
    return _shifted_pointer(array, n)


def entries_between(array: Any, later: Any) -> int:
    """Return how many entries lie between two pointers to the same memory; in Python, between two arrays."""
    start, stop = (a.__array_interface__["data"][0] for a in (array, later))
    return int(stop - start) // array.itemsize


@intrinsic
def _entries_between_pointers(typing_context, pointer, later):  # type: ignore[no-untyped-def]

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        native = context.get_value_type(INT)
        start, stop = (builder.ptrtoint(argument, native) for argument in arguments)
        return builder.sdiv(builder.sub(stop, start), native(8))

    return INT(pointer, later), generate


@compiled_as(entries_between)
def _entries_between(array, later):  # type: ignore[no-untyped-def]
    return _entries_between_pointers(array, later)


def _cast(target: Any, source: Any, instruction: str) -> Any:
    @intrinsic
    def cast(typing_context, value):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            return getattr(builder, instruction)(arguments[0], context.get_value_type(target))

        return target(source), generate

    return cast


# Pointers to what lies at an address, and numbers with the same bits.
floats_at = _cast(FLOATS, INT, "inttoptr")
address_of_floats = _cast(INT, FLOATS, "ptrtoint")
ints_at = _cast(INTS, INT, "inttoptr")
bytes_at = _cast(BYTES, INT, "inttoptr")
small_ints_at = _cast(SMALL_INTS, INT, "inttoptr")
bits_of = _cast(INT, FLOAT, "bitcast")
float_of = _cast(FLOAT, INT, "bitcast")


@intrinsic
def take_next(typing_context, counter):  # type: ignore[no-untyped-def]
    """Return the whole number at a pointer, and add one to it, so that no two threads are given the same."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.atomic_rmw("add", arguments[0], context.get_constant(INT, 1), "seq_cst")

    return INT(counter), generate


_byte_of = ctypes.c_char.from_buffer


def address_of(array: np.ndarray) -> int:
    """Return the address of an array's first entry, in a quarter of the time that ``array.ctypes.data`` takes."""
    try:
        return ctypes.addressof(_byte_of(array)) if array.size else int(array.ctypes.data)
    except (BufferError, TypeError, ValueError):
        # Not contiguous, or not to be written to.
        return int(array.ctypes.data)


def bits_of_generator(rng: Any) -> tuple[int, int]:
    """Return the addresses of a generator's function for uniform numbers and of its state."""
    interface = rng.bit_generator.ctypes
    # The memory of a pointer to a function holds the address of the function.
    return ctypes.c_void_p.from_buffer(interface.next_double).value or 0, interface.state_address


def called_at(signature: Any) -> Any:
    """Return what an intrinsic returns that calls the C function at its first argument, an address.

    Parameters
    ----------
    signature : numba signature
        Of the C function.
    """
    returned, arguments = signature.return_type, signature.args

    def generate(context, builder, own, values):  # type: ignore[no-untyped-def]
        is_void = returned == NOTHING
        native = ir.VoidType() if is_void else context.get_value_type(returned)
        kind = ir.FunctionType(native, [context.get_value_type(a) for a in arguments])
        value = builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])
        return context.get_dummy_value() if is_void else value

    return returned(INT, *arguments), generate


class _Compiling:
    """Tells a user once that code is being compiled, and how long it took."""

    def __init__(self) -> None:
        self._depth = 0
        self._started = 0.0
        self._is_told = False
        # Functions that this process has compiled.
        self.n_compiled = 0

    def enter(self, what: str) -> None:
        """Say from now on that this is compiled, if something is; in what has been entered already, nothing."""
        self._depth += 1
        if self._depth == 1:
            self._what, self._is_told = what, False

    def leave(self) -> None:
        """End what has been entered, and say how long it took if something was compiled."""
        self._depth -= 1
        if self._depth == 0 and self._is_told:
            seconds = time.perf_counter() - self._started
            logger.info("Compiled in %.1f s; the code is kept on disk for later runs.", seconds)

    @contextlib.contextmanager
    def announced(self, what: str) -> Iterator[None]:
        """Say that the body compiles, if it does."""
        self.enter(what)
        try:
            yield
        finally:
            self.leave()

    def begin(self) -> None:
        """Note that a function is compiled, and tell of the first one."""
        self.n_compiled += 1
        self.tell()

    def tell(self) -> None:
        """Say what has been entered, if that has not been said."""
        if self._depth and not self._is_told:
            self._started, self._is_told = time.perf_counter(), True
            logger.info("Compiling %s: some seconds, once ...", self._what)


compiling = _Compiling()


class CFunction:
    """A C function, compiled when its address is first asked for, or loaded from disk.

    Called from Python it takes addresses for pointers, and lets other threads of Python run.

    Parameters
    ----------
    function : callable
        To compile; it may refer to no local variables of a function around it.
    signature : numba signature
        Pointers, ``int64`` and ``float64``.
    options : dict
        Of ``numba.cfunc``.
    outside : sequence of callables
        Functions that it is made from and that are in none of the files that all compiled code is stamped with,
        such as those of a family of a user's own.
    maker : tuple of a callable and its arguments, optional
        What returns this function in another process; by default it is looked up in its module by its name.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Any,
        options: Mapping[str, Any],
        outside: tuple[Callable[..., Any], ...] = (),
        maker: tuple[Callable[..., Any], tuple[Any, ...]] | None = None,
    ) -> None:
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function
        self._maker = maker or (_named, (function.__module__, function.__name__))
        self.signature, self._options, self._outside = signature, dict(options), outside
        self._compiled: Any = None
        self._call: Any = None

    @property
    def address(self) -> int:
        """The address of the machine code, in this process."""
        self.prepare()
        return self._compiled.address

    def prepare(self) -> None:
        """Compile the function, or find it on disk, if that has not been done. Ctrl-C waits until it is."""
        if self._compiled is None:
            with interrupted_later():
                compiled = self._made()
                compiled.compile()
                self._compiled = compiled

    def is_at_hand(self) -> bool:
        """Find the function on disk, if it is there and has not been; tell whether it is at hand, compiled."""
        if self._compiled is None:
            with interrupted_later():
                made = self._made()
                if made.is_kept():
                    made.compile()
                    self._compiled = made
        return self._compiled is not None

    def __call__(self, *arguments: Any) -> Any:
        """Call the machine code."""
        if self._call is None:
            native = [ctypes.c_double if a == FLOAT else ctypes.c_int64 for a in self.signature.args]
            returned = {FLOAT: ctypes.c_double, INT: ctypes.c_int64, NOTHING: None}[self.signature.return_type]
            self._call = ctypes.CFUNCTYPE(returned, *native)(self.address)
        return self._call(*arguments)

    def __reduce__(self) -> Any:
        # Addresses mean nothing in another process.
        return self._maker

    def _made(self) -> "_Compiled":
        own = self.signature
        options = {**_OPTIONS, **self._options}
        compiled = _Compiled(self.__wrapped__, (own.args, own.return_type), locals={}, options=options)
        compiled.outside = self._outside
        stamp = (digest(*own_sources()), tuple(map(fingerprint, self._outside)))
        with contextlib.suppress(RuntimeError):
            # Where there is no folder that can be written to, code is compiled in every process.
            compiled._cache = _kept(self.__wrapped__, stamp)
        return compiled


def _named(module: str, name: str) -> CFunction:
    return getattr(importlib.import_module(module), name)


class _Read(NullCache):
    """Machine code that has been read from disk, in the place of numba's cache of a function."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def load_overload(self, *_: Any) -> Any:
        """Return it."""
        return self._found


class _Compiled(CFunc):
    """Numba's C callback, which tells when it has to be compiled, and optimises all that it calls at once."""

    # Numba has no types; these names are its own.
    _cache: Any
    _pyfunc: Any
    _sig: Any
    _targetdescr: Any
    # Functions of a user's own that it calls.
    outside: tuple[Callable[..., Any], ...] = ()

    def is_kept(self) -> bool:
        """Tell whether the machine code is on disk. What has been read is not read again."""
        found = self._cache.load_overload(self._sig, self._targetdescr.target_context)
        if found is not None:
            self._cache = _Read(found)
        return found is not None

    def _compile_uncached(self) -> Any:
        compiling.begin()
        try:
            with _no_collection(), self._in_parts():
                return super()._compile_uncached()  # type: ignore[misc]
        except NumbaError as error:
            places = [_place_in(function, str(error)) for function in self.outside]
            if not any(places):
                raise
            raise TypeError(
                f"{next(filter(None, places))} cannot be compiled: {_cause(str(error))}. Compiled functions may "
                "use numbers, loops, functions of math, and functions that are marked with "
                "pymc_dpgmm.native.compiled.inlined"
            ) from None

    @contextlib.contextmanager
    def _in_parts(self) -> Iterator[None]:
        """Let numba optimise all that is called at once. Where its inside is another one, leave it alone."""
        codegen = self._targetdescr.target_context.codegen()
        if not (hasattr(codegen, "_library_class") and hasattr(codegen, "set_env") and _PARTS_ARE_KNOWN):
            yield
            return
        whole = codegen._library_class

        def library(owner: Any, name: str) -> Any:
            return (whole if name == self._pyfunc.__qualname__ else _Part)(owner, name)

        # Environments are for code that handles objects of Python; parts have no memory for them.
        codegen._library_class, codegen.set_env = library, lambda name, environment: None
        try:
            yield
        finally:
            codegen._library_class = whole
            del codegen.set_env


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Let Python not look for garbage: the compiler's many objects make it do so for a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _place_in(function: Callable[..., Any], message: str) -> str:
    """Return which line of a function an error of numba is about, "" if it is none of this function's."""
    lines, first = inspect.getsourcelines(function)
    own = Path(inspect.getfile(function)).name
    for path, number in re.findall(r'File "(.+)", line (\d+)', message):
        if Path(path).name == own and first <= int(number) < first + len(lines):
            return f"{function.__name__}, line {number} of {path},"
    return ""


def _cause(message: str) -> str:
    """Return the innermost cause that an error of numba tells."""
    told = [line.strip() for line in message.splitlines()]
    causes = [
        line for line in told if re.match(r"(No implementation|Untyped|Unknown|Cannot|Use of|Invalid)", line)
    ]
    # Numba names functions by their addresses too.
    return re.sub(r"Function\(<function (\S+) at \w+>\)", r"\1", causes[-1]).rstrip(".:") if causes else told[0]


class _Part(JITCodeLibrary):
    """Code that is only ever linked into a C function.

    Numba would optimise every function by itself, together with all that it calls, and make machine code of it
    that nobody calls, which takes most of the time.
    """

    def finalize(self) -> None:
        """Link what is called, and leave the rest to those who link this."""
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._final_module.verify()
        self._finalized = True

    def _optimize_functions(self, module: Any) -> None:
        """Do nothing: what links this is optimised as a whole."""

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        self._ensure_finalized()
        return 0


# Whether numba's libraries have what :class:`_Part` replaces and calls.
_PARTS_ARE_KNOWN = all(
    hasattr(JITCodeLibrary, name)
    for name in ("finalize", "get_pointer_to_function", "_get_module_for_linking", "_ensure_finalized")
)


def _kept(function: Callable[..., Any], stamp: Any) -> FunctionCache:
    """Return numba's cache of a function, which holds as long as a stamp is the same.

    Numba's own stamp is the function's file alone, and would not notice a change of what is inlined from another.
    """
    kept = FunctionCache(function)
    kept._cache_file = IndexDataCacheFile(
        cache_path=kept._cache_path, filename_base=kept._impl.filename_base, source_stamp=stamp
    )
    return kept


def c_function(signature: Any, **options: Any) -> Callable[[Callable[..., Any]], CFunction]:
    """Make a C function of the decorated one.

    Parameters
    ----------
    signature : numba signature
    **options
        Of ``numba.cfunc``, such as ``fastmath``.
    """

    def decorate(function: Callable[..., Any]) -> CFunction:
        outside = (function,) if is_outside(function) else ()
        return CFunction(function, signature, {"fastmath": FASTMATH} | options, outside)

    return decorate


def specialized(
    template: Callable[..., Any],
    name: str,
    meaning: Mapping[str, Any],
    signature: Any,
    outside: tuple[Callable[..., Any], ...],
    maker: tuple[Callable[..., Any], tuple[Any, ...]],
) -> CFunction:
    """Make a C function of a template whose global names are given a meaning.

    Parameters
    ----------
    template : function
    name : str
        Under which it is kept on disk; it must tell all meanings apart.
    meaning : mapping
    signature : numba signature
    outside, maker : tuples
        See :class:`CFunction`.
    """
    namespace = {**template.__globals__, **meaning}  # type: ignore[attr-defined]
    function = FunctionType(template.__code__, namespace, name)  # type: ignore[attr-defined]
    function.__qualname__, function.__module__ = name, template.__module__
    function.__doc__ = template.__doc__
    return CFunction(function, signature, {"fastmath": FASTMATH}, outside, maker)
