"""Actions that are delayed from the import of the package to its first variable.

PyTensor's backends take long to import, and functions of PyMC, but for the one that prints models, stay unchanged
as long as no model has variables of the package. Modules register actions here, and functions that make variables
call :func:`begin`.
"""

from collections.abc import Callable

# The first operation in a graph, the first mixture in a model, and the first rows in chunks.
GRAPH, MIXTURE, CHUNKS = "graph", "mixture", "chunks"

_waiting: dict[str, list[Callable[[], None]]] = {GRAPH: [], MIXTURE: [], CHUNKS: []}
_done: list[Callable[[], None]] = []


def at_first(event: str, action: Callable[[], None]) -> None:
    """Register an action to be run once, at the first event of this kind."""
    if action not in _done and action not in _waiting[event]:
        _waiting[event].append(action)


def begin(event: str) -> None:
    """Run the actions that wait for such an event. An interrupted action is run again at the next event."""
    waiting = _waiting[event]
    while waiting:
        action = waiting[0]
        action()
        _done.append(waiting.pop(0))
