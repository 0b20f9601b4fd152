"""What is done when there is a first variable of the package, and not when the package is imported.

PyTensor's backends take long to import, and functions of PyMC are left alone as long as no model has the package's
variables. The rooms that know what to do register it here, and those that make variables call :func:`begin`.
"""

from collections.abc import Callable

# The first operation in a graph, the first mixture in a model, and the first rows in chunks.
GRAPH, MIXTURE, CHUNKS = "graph", "mixture", "chunks"

_waiting: dict[str, list[Callable[[], None]]] = {GRAPH: [], MIXTURE: [], CHUNKS: []}
_done: list[Callable[[], None]] = []


def at_first(event: str, action: Callable[[], None]) -> None:
    """Register what is done once, at the first of such events."""
    if action not in _done and action not in _waiting[event]:
        _waiting[event].append(action)


def begin(event: str) -> None:
    """Do what waits for such an event. What is interrupted is done at the next one."""
    waiting = _waiting[event]
    while waiting:
        action = waiting[0]
        action()
        _done.append(waiting.pop(0))
