"""Checks of what users give to priors on partitions."""

from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_dpgmm.partitions.known import allow, make_constraints
from pymc_dpgmm.tables.checks import is_variable, without_dims
from pymc_dpgmm.tables.rows import RowNames

# Arguments that are constraints on the partition.
KNOWN = ("known_labels", "must_link")
# Labels of at most this many rows are stored in two bytes each.
_MOST_ROWS_INT16 = 32_767


def start_of_rows(rows: RowNames, initval: Any) -> Any:
    """Return starting labels in the order of the rows; strings, which PyMC interprets, are returned unchanged."""
    return initval if isinstance(initval, str) else rows.entries("initval", initval)


def _refuse_distributions(name: str, value: Any, cure: str) -> None:
    """Raise ValueError for a distribution made with ``.dist``, or an expression of one, in place of a variable."""
    for ancestor in ancestors([value]):
        if ancestor.name is None and ancestor.owner is not None and isinstance(ancestor.owner.op, RandomVariable):
            raise ValueError(
                f"{name} is a distribution, and no variable of the model: give it a name there, as in {cure}"
            )


def checked_scalar(name: str, value: Any) -> Any:
    """Return a variable, or a finite number."""
    value = without_dims(value)
    if is_variable(value):
        if value.ndim != 0:
            raise ValueError(f"{name} must be a scalar, got a variable with {value.ndim} dimensions")
        _refuse_distributions(name, value, f'{name} = pm.Gamma("{name}", 1.0, 1.0)')
        return value
    number = np.asarray(value)
    if number.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be a real number or a variable, got {value!r}")
    if number.ndim != 0 or not np.isfinite(number):
        raise ValueError(f"{name} must be a finite scalar, got {value!r}")
    return np.float64(number)


def checked_positive(name: str, value: Any) -> Any:
    """Return a scalar variable, or a finite number > 0."""
    number = checked_scalar(name, value)
    if not is_variable(number) and not number > 0:
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return number


def checked_integer(name: str, value: Any) -> int:
    """Return an integer of at least 1."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer or a variable, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def checked_number_of_components(value: Any) -> Any:
    """Return an integer of at least 1, or a scalar variable of integers."""
    value = without_dims(value)
    if not is_variable(value):
        return checked_integer("n_components", value)
    if value.ndim != 0 or value.dtype not in pm.vartypes.discrete_types:
        raise TypeError("n_components must be an integer or a scalar variable with integer values")
    _refuse_distributions(
        "n_components", value, 'n_components = 1 + pm.Poisson("extra", 3.0), or use dp.MFMixture'
    )
    model = pm.Model.get_context(error_if_none=False)
    free = [] if model is None else model.free_RVs
    for behind in ancestors([value], blockers=free):
        if behind in free:
            # The tag makes pm.sample assign ComponentsGibbs to the variable.
            behind.tag.is_number_of_components = True
    return value


def checked_rows(n: Any) -> tuple[Any, str]:
    """Return the number of rows and the dtype of their labels."""
    if is_variable(n):
        # The length of pm.Data may grow later.
        return n, "int32"
    n = checked_integer("n", n)
    return n, dtype_of_labels(n)


def dtype_of_labels(n: int) -> str:
    """Return the dtype of the labels of n rows."""
    return "int16" if n <= _MOST_ROWS_INT16 else "int32"


def checked_constraints(n: Any, known_labels: Any, must_link: Any) -> np.ndarray | None:
    """Return constraints from arguments with entries for rows, None without such arguments."""
    for name, groups in zip(KNOWN, (known_labels, must_link), strict=True):
        if is_variable(groups):
            raise TypeError(f"{name} must be an array of names or numbers, not a variable or pm.Data")
    arguments = [groups for groups in (known_labels, must_link) if groups is not None]
    if not arguments:
        return None
    # If the number of rows may change, it is now that of the entries.
    n = len(arguments[0]) if is_variable(n) else checked_integer("n", n)
    return make_constraints(n, known_labels, must_link)


def checked_start(initval: Any, n: Any, constraints: np.ndarray | None = None) -> Any:
    """Return starting labels of n rows."""
    start = np.asarray(initval)
    if start.dtype.kind not in "iu":
        raise TypeError(f"initval of labels must be integers, got dtype {start.dtype}")
    if start.ndim != 1 or (not is_variable(n) and len(start) != n):
        raise ValueError(f"initval of labels must have shape ({n},), got {start.shape}")
    if start.size and (start.min() < 0 or start.max() >= len(start)):
        raise ValueError(
            f"initval of labels must lie in 0..n-1 = 0..{len(start) - 1}, got values from {start.min()} to "
            f"{start.max()}"
        )
    if constraints is not None and not allow(constraints, start):
        raise ValueError("initval of labels contradicts known_labels or must_link")
    return start
