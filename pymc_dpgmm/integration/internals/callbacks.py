"""Python functions that compiled code calls by name, so that PyTensor can keep the compiled code on disk.

Code that holds a Python function or its address cannot be used by another process; code that holds a name can.
Whether PyTensor compiles a graph or finds its code on disk, it first asks for the code of each node. That is when
the function of the node is registered under the name.
"""

import itertools
import threading
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_dpgmm.native.fingerprints import digest

# Part of all keys. Code on disk is not used after a change of these files or of the name of this module's package.
_FILES = sorted(str(path) for path in Path(__file__).parents[1].glob("[hi]*/*.py"))
STAMP = f"{__package__} {digest(*_FILES)}"
_PLAIN = str, int, float, bool, type(None)

# Functions of single nodes, which may keep data and are freed with the node, and functions of operations.
_of_nodes: WeakValueDictionary[str, Callable[..., Any]] = WeakValueDictionary()
_of_operations: dict[str, Callable[..., Any]] = {}
_lock = threading.Lock()


def called(name: str, *args: Any) -> Any:
    """Call the function registered under a name."""
    return (_of_nodes.get(name) or _of_operations[name])(*args)


def callback_of_node(node: Apply, function: Callable[..., Any]) -> tuple[Callable[..., Any], str | None]:
    """Register a node's function; return a callable that finds it by name, and the key of its code on disk.

    The name is the first free one, so that a process that compiles the same graphs in the same order finds their
    code. If the operation has no description, the function itself is returned, and None as the key.
    """
    text = described(node.op)
    if text is None:
        return function, None
    with _lock:
        name = next(name for n in itertools.count() if (name := _named(f"{text} {n}")) not in _of_nodes)
        _of_nodes[name] = function
    # The compiled function keeps its graph alive, and with the node the function.
    node.tag.pymc_dpgmm_callback = function
    return partial(called, name), name


def callback_of_operation(op: Op, function: Callable[..., Any]) -> tuple[Callable[..., Any], str | None]:
    """Return a callback (:func:`callback_of_node`) of a function without state that depends on the operation only.

    All nodes of equal operations share one name, because nodes inside other operations may no longer exist when
    their code is called.
    """
    text = described(op)
    if text is None:
        return function, None
    name = _named(text)
    _of_operations[name] = function
    return partial(called, name), name


def _named(text: str) -> str:
    return "pymc_dpgmm_" + sha256(f"{STAMP} {text}".encode()).hexdigest()


def described(value: Any) -> str | None:
    """Return a text that identifies an operation of this package in all processes; None for other values."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple):
        parts = [described(part) for part in value]
        return None if None in parts else f"{type(value).__name__}{parts}"
    if isinstance(value, Op):
        # Draws do not depend on whether the random generator is updated in place.
        props = described(tuple(getattr(value, name) for name in type(value).__props__ if name != "inplace"))
        return None if props is None else f"{type(value).__module__}.{type(value).__qualname__} {props}"
    return None
