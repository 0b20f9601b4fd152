"""Checks of users' arguments that many modules share."""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd


def is_variable(value: Any) -> bool:
    """Tell a model variable (any symbolic tensor) from a number, an array or a table."""
    # Tables have their columns for attributes, of whatever name.
    return not isinstance(value, pd.DataFrame | pd.Series) and hasattr(value, "owner") and hasattr(value, "type")


def is_sparse(values: Any) -> bool:
    """Tell a SciPy sparse matrix or array from an array."""
    # A sparse matrix can exist only after SciPy's module has been imported.
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(values))


def stacked(value: Any) -> Any:
    """Return a (nested) list that contains variables as one variable, and anything else unchanged."""
    if not isinstance(value, list | tuple) or not _has_variables(value):
        return value
    import pytensor.tensor as pt

    return pt.stack([pt.as_tensor(without_dims(stacked(entry)), dtype="float64") for entry in value])


def _has_variables(value: Any) -> bool:
    return is_variable(value) or (isinstance(value, list | tuple) and any(map(_has_variables, value)))


def has_dims(value: Any) -> bool:
    """Tell whether a value is a variable of ``pymc.dims``, without importing PyTensor."""
    return hasattr(getattr(value, "type", None), "dims")


def without_dims(value: Any) -> Any:
    """Return a variable of ``pymc.dims`` as a plain variable, and anything else unchanged.

    The axes are the dims in their order.
    """
    return value.values if has_dims(value) else value


def refuse_dims(what: str, value: Any) -> None:
    """Raise TypeError for a variable of ``pymc.dims`` in an argument that is read while the model is built."""
    if has_dims(value):
        raise TypeError(f"{what} must be numbers or pm.Data, got {value.name!r}, a variable of pymc.dims")


def check_count(name: str, value: Any, least: int) -> None:
    """Raise TypeError or ValueError unless a value is an integer of at least ``least``.

    Examples
    --------
    >>> check_count("n_scans", 0, 1)
    Traceback (most recent call last):
    ValueError: n_scans must be at least 1, got 0
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def listed(names: Iterable[Any], most: int = 12) -> str:
    """Return names as text for a message: all of them, or the first ``most`` and the number of the others.

    Examples
    --------
    >>> listed(["a", 3])
    "['a', 3]"
    >>> listed(range(100), most=2)
    '[0, 1, and 98 more]'
    """
    names = list(names)
    shown = [repr(name) for name in names[:most]]
    if len(names) > most:
        shown.append(f"and {len(names) - most} more")
    return f"[{', '.join(shown)}]"


def check_units(unit: Any, n: int) -> int:
    """Return the number of units that the rows belong to.

    Parameters
    ----------
    unit : (n,) integer array
        Unit of each row, from 0 on.
    n : int
        Number of rows.

    Raises
    ------
    TypeError, ValueError
        If there is not one unit per row, or a unit has no rows.
    """
    unit = np.asarray(unit)
    if unit.dtype.kind not in "iu":
        raise TypeError(f"unit must be integers, got dtype {unit.dtype}")
    if unit.shape != (n,):
        raise ValueError(f"unit must have one entry per row, shape ({n},), got {unit.shape}")
    if unit.min() < 0:
        raise ValueError(f"unit must be numbers from 0 on, got {unit.min()}")
    counts = np.bincount(unit)
    gaps = np.flatnonzero(counts == 0)
    if len(gaps):
        shown = ", ".join(map(str, gaps[:5])) + (", ..." if len(gaps) > 5 else "")
        raise ValueError(
            f"unit must be numbered 0, 1, ..., {len(counts) - 1} without gaps, but {len(gaps)} of these have no "
            f"rows: {shown}; pandas.factorize numbers units of any names"
        )
    return len(counts)


def is_chunked(observed: Any) -> bool:
    """Tell whether data is a dask array, DataFrame or Series, or a DataArray of xarray that holds one."""
    module = type(observed).__module__
    if module.startswith("xarray"):
        observed = getattr(observed, "data", None)
        module = type(observed).__module__
    return module.startswith(("dask.array", "dask.dataframe", "dask_expr"))
