"""Slots: what summaries and statistics of every family have in common, written once."""

from collections.abc import Callable
from typing import Any

from pymc_dpgmm.dispatch import array_verb, compiled, enlarged, implements, verb


@array_verb
def resize(slots, capacity):
    """Return statistics, or a summary, with ``capacity`` slots: those of the given one first, then unused ones."""


@verb
def move(stats, source, target):
    """Copy slot ``source`` to slot ``target``."""


@compiled()
def copy_slot(array, source, target):
    """Copy ``array[source]`` to ``array[target]``, for one to three dimensions."""
    if array.ndim == 1:
        array[target] = array[source]
    elif array.ndim == 2:
        for i in range(array.shape[1]):
            array[target, i] = array[source, i]
    else:
        for i in range(array.shape[1]):
            for j in range(array.shape[2]):
                array[target, i, j] = array[source, i, j]


def slotted(*fields: str) -> Callable[[Any], Any]:
    """Implement :func:`resize` and :func:`move` for a ``NamedTuple`` class.

    Parameters
    ----------
    *fields : str
        Fields that are arrays with one entry per slot along the first of one to three axes. The others are
        shared by all slots.

    Raises
    ------
    ValueError
        If the class has no such field.
    """

    def register(cls: Any) -> Any:
        unknown = [name for name in fields if name not in cls._fields]
        if unknown:
            raise ValueError(f"{cls.__name__} has no fields {', '.join(unknown)}")
        # Compiled code knows fields by name only, so the two functions are written out.
        resized = ", ".join(
            f"enlarged(slots.{name}, capacity)" if name in fields else f"slots.{name}" for name in cls._fields
        )
        moved = "; ".join(f"copy_slot(stats.{name}, source, target)" for name in fields)
        namespace: dict[str, Any] = {"cls": cls, "enlarged": enlarged, "copy_slot": copy_slot}
        source = (
            f"def resized(slots, capacity):\n    return cls({resized})\n"
            f"def moved(stats, source, target):\n    {moved}\n"
        )
        exec(compile(source, f"<slots of {cls.__module__}>", "exec"), namespace)
        implements(resize, cls)(namespace["resized"])
        implements(move, cls)(namespace["moved"])
        return cls

    return register
