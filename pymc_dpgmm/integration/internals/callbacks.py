"""Python functions that compiled code calls by name, so that PyTensor can keep the compiled code on disk.

Code that holds a Python function, or its address, is of no use to the next process. Code that holds a name is.
Whether a graph is compiled or its code is found on disk, PyTensor first asks for the code of each node, and then
the name is given to the function of that node.
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

# Of the compiled code around a call. Code on disk that was made by another text of these files, or by modules of
# other names, is not found.
_FILES = sorted(str(path) for path in Path(__file__).parents[1].glob("[hi]*/*.py"))
STAMP = f"{__package__} {digest(*_FILES)}"
_PLAIN = str, int, float, bool, type(None)

# Functions of single nodes, which may keep data and are given back with the node, and those of operations.
_of_nodes: WeakValueDictionary[str, Callable[..., Any]] = WeakValueDictionary()
_of_operations: dict[str, Callable[..., Any]] = {}
_lock = threading.Lock()


def called(name: str, *args: Any) -> Any:
    """Call the function with a name."""
    return (_of_nodes.get(name) or _of_operations[name])(*args)


def callback_of_node(node: Apply, function: Callable[..., Any]) -> tuple[Callable[..., Any], str | None]:
    """Return what compiled code may call in place of a node's own function, and a key of such code on disk.

    The name is the first that no other node has: one that compiles the same graphs in the same order finds their
    code. The key is None, and the function is that given, if there is no such name.
    """
    text = described(node.op)
    if text is None:
        return function, None
    with _lock:
        name = next(name for n in itertools.count() if (name := _named(f"{text} {n}")) not in _of_nodes)
        _of_nodes[name] = function
    # The compiled function keeps its graph, and so what it calls.
    node.tag.pymc_dpgmm_callback = function
    return partial(called, name), name


def callback_of_operation(op: Op, function: Callable[..., Any]) -> tuple[Callable[..., Any], str | None]:
    """Return the same for a function that keeps nothing and depends on the operation alone.

    All nodes of equal operations have one name. They may be parts of other operations, and be gone when their code
    is called.
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
    """Return a text that tells operations of this package apart in all processes; None if there is none."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple):
        parts = [described(part) for part in value]
        return None if None in parts else f"{type(value).__name__}{parts}"
    if isinstance(value, Op):
        # Whether a random generator is changed in place is nothing that a draw depends on.
        own = described(tuple(getattr(value, name) for name in type(value).__props__ if name != "inplace"))
        return None if own is None else f"{type(value).__module__}.{type(value).__qualname__} {own}"
    return None
