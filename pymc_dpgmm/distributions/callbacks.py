"""Python functions that compiled code calls by name, so that PyTensor can keep the compiled code on disk.

Code that holds a Python function, or its address, is of no use to the next process. Code that holds a name is.
Whether a graph is compiled or its code is found on disk, PyTensor first asks for the code of each node, and then
the name is given to the function of that node.
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

# Of what the compiled code around a call looks like: raise it where that changes.
VERSION = 2
_PLAIN = str, int, float, bool, type(None)


class Callback:
    """A function of one or several compiled graphs, made anew for each thread that calls it.

    Parameters
    ----------
    make : callable
        Returns the function, which may keep what it can reuse in the next call.
    """

    def __init__(self, make: Callable[[], Callable[..., Any]]) -> None:
        self._make = make
        self._own = threading.local()

    def __call__(self, *args: Any) -> Any:
        if not hasattr(self._own, "function"):
            self._own.function = self._make()
        return self._own.function(*args)


# How functions are made, which says what they do and holds no data, and the functions, which may keep data: these
# are given back with the last graph that they belong to.
_makers: dict[str, Callable[[], Callable[..., Any]]] = {}
_callbacks: WeakValueDictionary[str, Callback] = WeakValueDictionary()


def called(name: str, *args: Any) -> Any:
    """Call the function with a name."""
    # Nodes inside other operations may be gone when their code is called: these keep nothing.
    return (_callbacks.get(name) or _makers[name]())(*args)


def callback(
    node: Apply, make: Callable[[], Callable[..., Any]], storage_map: Mapping[Variable, Any] | None = None
) -> tuple[Callable[..., Any], str | None]:
    """Return a function for compiled code to call, and a key of such code on disk; None if it cannot be kept.

    Parameters
    ----------
    node : Apply
        The node of a graph that is being compiled.
    make : callable
        Returns a function that depends on the node's ``op`` alone. Nodes with equal ones may share it.
    storage_map : dict, optional
        Of the graph's variables, in the graph's order: nodes of one graph do not share what they keep.
    """
    text = described(node.op)
    if text is None:
        return make(), None
    nodes = (variable.owner for variable in storage_map or ())
    alike = [other for other in dict.fromkeys(nodes) if other is not None and other.op == node.op]
    place = alike.index(node) if node in alike else 0
    # PyTensor adds the types of inputs to a key, which with the operation tell those of outputs.
    name = "pymc_dpgmm_" + sha256(f"{VERSION} {text} {place}".encode()).hexdigest()
    _makers[name] = make
    found = _callbacks.get(name)
    if found is None:
        found = _callbacks[name] = Callback(make)
    # The compiled function keeps its graph, and so what it calls.
    node.tag.pymc_dpgmm_callback = found
    return partial(called, name), name


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
