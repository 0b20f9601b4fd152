"""How code is compiled, and verbs: functions with one implementation per class of their first argument.

The kernels are written once, for all families and all priors on partitions, in terms of verbs such as
``log_predictive(stats, k, x)``. A verb is declared with :func:`verb` and implemented for a ``NamedTuple``
class, or for arrays, with :func:`implements`. Called from Python it looks the class up; called from compiled code
it is resolved by type when the caller is compiled, so that it can be inlined and the caller, found by the types
of its arguments, stays in numba's on-disk cache. (A jitted function that is passed as an argument, or
captured by a closure, would be compiled again in every process.)
"""

import functools
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import overload

# Sums may be reordered into vector lanes. NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract"}


def _outside_modules(signature: Any) -> list[str]:
    """Return the modules outside this package that define ``NamedTuple`` classes of a signature."""
    found, left = set(), list(getattr(signature, "args", signature))
    while left:
        kind = left.pop()
        if isinstance(kind, types.BaseNamedTuple):
            found.add(kind.instance_class.__module__)
        left.extend(getattr(kind, "types", ()))
    return sorted(name for name in found if name.split(".")[0] != __name__.split(".")[0])


class _Cache(FunctionCache):
    """On-disk cache whose index of types from elsewhere is a file of its own.

    An index names its types by their modules, and cannot be read where one of these is missing: a family of one's
    own would keep everybody else from the compiled code of this package.
    """

    _cache_file: Any

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        return self._with_own_index(sig, super()._load_overload, sig, target_context)

    def _save_overload(self, sig: Any, data: Any) -> None:
        self._with_own_index(sig, super()._save_overload, sig, data)

    def _with_own_index(self, sig: Any, call: Callable[..., Any], *args: Any) -> Any:
        modules = _outside_modules(sig)
        if not modules:
            return call(*args)
        common: Any = self._cache_file
        digest = hashlib.sha256("\n".join(modules).encode()).hexdigest()[:12]
        self._cache_file = IndexDataCacheFile(
            cache_path=self._cache_path,
            filename_base=f"{self._impl.filename_base}.{digest}",
            source_stamp=self._impl.locator.get_source_stamp(),
        )
        try:
            return call(*args)
        finally:
            self._cache_file = common


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with numba, cached on disk, without what makes compilation slow and nobody uses.

    Parameters
    ----------
    **options
        Further options of ``numba.njit``. Functions that are called in one place only are best compiled into it,
        with ``inline="always"``: otherwise they are optimised once for themselves and again with every caller of
        their callers.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        dispatcher = njit(cache=True, error_model="numpy", no_cfunc_wrapper=True, **options)(function)
        dispatcher._cache = _Cache(function)
        return dispatcher

    return decorate


@compiled()
def enlarged(array: np.ndarray, length: int) -> np.ndarray:
    """Return an array of ``length`` along the first axis: the given one first, then zeros.

    Slices would do the same with many times the compiled code, in every place.
    """
    larger = np.zeros((length, *array.shape[1:]), dtype=array.dtype)
    source, target = array.reshape(array.size), larger.reshape(larger.size)
    for i in range(source.shape[0]):
        target[i] = source[i]
    return larger


def verb(declaration: Callable[..., Any], allocates: bool = False) -> Callable[..., Any]:
    """Declare a verb; the body of the declaration is its docstring, the contract.

    Implementations are compiled without reference counts, which cost several times the arithmetic of a predictive,
    and half of the compiled code. They may not make arrays, then, only slices of those they are given, nor return
    any: a verb that does is declared with :func:`array_verb`.
    """
    implementations: dict[type, Callable[..., Any]] = {}

    @functools.wraps(declaration)
    def dispatch(first: Any, *args: Any) -> Any:
        try:
            implementation = implementations[type(first)]
        except KeyError:
            raise TypeError(
                f"{declaration.__name__} is not implemented for {type(first).__name__}; it is for "
                f"{', '.join(f'{c.__module__}.{c.__name__}' for c in implementations) or 'nothing'}"
            ) from None
        return implementation(first, *args)

    dispatch.implementations = implementations  # type: ignore[attr-defined]
    dispatch.counts_references = allocates  # type: ignore[attr-defined]
    return dispatch


def array_verb(declaration: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a verb whose implementations make or return arrays."""
    return verb(declaration, allocates=True)


def implements(declared: Callable[..., Any], of_class: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as a verb's implementation for one class.

    Parameters
    ----------
    declared : verb
        A function made by :func:`verb`. The decorated function must have the same argument names.
    of_class : type
        The ``NamedTuple`` class of the first argument, or ``numpy.ndarray``.

    Raises
    ------
    ValueError
        If the verb is already implemented for the class.
    """
    implementations = declared.implementations  # type: ignore[attr-defined]

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if of_class in implementations:
            raise ValueError(f"{declared.__name__} is already implemented for {of_class.__name__}")
        implementations[of_class] = function

        @functools.wraps(function)
        def choose(*args: Any) -> Callable[..., Any] | None:
            first = args[0]
            if isinstance(first, types.BaseNamedTuple):
                matches = first.instance_class is of_class
            else:
                matches = of_class is np.ndarray and isinstance(first, types.Array)
            return function if matches else None

        overload(
            declared,
            strict=True,
            jit_options={
                "fastmath": FASTMATH,
                "error_model": "numpy",
                "no_cfunc_wrapper": True,
                "_nrt": declared.counts_references,  # type: ignore[attr-defined]
            },
        )(choose)
        return function

    return register


def is_implemented(declared: Callable[..., Any], of_class: type) -> bool:
    """Tell whether a verb is implemented for a class."""
    return of_class in declared.implementations  # type: ignore[attr-defined]
