"""Columns of any container as numbers, with their kinds and the levels that codes stand for."""

from typing import Any

import numpy as np
import pandas as pd

from pymc_dpgmm.tables.names import as_text
from pymc_dpgmm.tables.table import OBJECTS

# Kinds of columns by the kinds of NumPy's dtypes, and by the types that pandas infers for objects.
KINDS_OF_DTYPES = {
    "b": "bool",
    "i": "integer",
    "u": "integer",
    "f": "real",
    "U": "text",
    "S": "text",
    "M": "date",
    "m": "duration",
    "c": "complex",
}
_OF_OBJECTS = {
    "boolean": "bool",
    "integer": "integer",
    "floating": "real",
    "mixed-integer-float": "real",
    "decimal": "real",
    "empty": "real",
    "string": "text",
    "bytes": "text",
    "datetime64": "date",
    "datetime": "date",
    "date": "date",
    "time": "date",
    "timedelta64": "duration",
    "timedelta": "duration",
    "complex": "complex",
    "period": "period",
    "categorical": "category",
}


def is_missing(value: Any) -> bool:
    """Tell whether an entry is one of those that stand for a missing one."""
    if isinstance(value, float | complex):
        return value != value
    return value is None or value is pd.NA or value is pd.NaT


def each_entry(entries: Any) -> np.ndarray:
    """Return entries as an array of objects (n,), also where they are tuples."""
    objects = np.empty(len(entries), dtype=object)
    for i, entry in enumerate(entries):
        objects[i] = entry
    return objects


def narwhals_library() -> Any:
    """Return narwhals, which is imported when it is needed."""
    import narwhals.stable.v2

    return narwhals.stable.v2


# The values of a column as numbers, its kind, and the levels that codes stand for.
Column = tuple[np.ndarray, str, tuple[Any, ...] | None]


def column_of_objects(column: np.ndarray, dtype: Any) -> Column:
    """Return a column whose dtype is not that of numbers."""
    kind = KINDS_OF_DTYPES.get(dtype.kind)
    if dtype.kind == "O":
        inferred = pd.api.types.infer_dtype(column, skipna=True)
        kind = _OF_OBJECTS.get(inferred) or f"{OBJECTS} such as {_odd_entry(column)!r}"
    if kind in ("bool", "integer", "real"):
        missing = np.array([is_missing(entry) for entry in column])
        return np.where(missing, np.nan, np.where(missing, 0, column)).astype(np.float64), str(kind), None
    if kind == "text":
        return _of_text(column)
    return _of_others(column, kind or f"{OBJECTS} of dtype {dtype}")


def _of_others(column: Any, kind: str) -> Column:
    """Return a column of a kind that has no numbers: codes of its entries, which are compared as text."""
    entries = each_entry(column)
    texts = np.array([None if is_missing(entry) else as_text(entry) for entry in entries], dtype=object)
    codes, _ = pd.factorize(texts)
    known = np.flatnonzero(codes >= 0)
    levels = entries[known[np.unique(codes[known], return_index=True)[1]]]
    return np.where(codes < 0, np.nan, codes), kind, tuple(levels)


def _odd_entry(column: Any) -> Any:
    """Return the first entry that is no number, or else the first one that is not missing."""
    present = [entry for entry in column if not is_missing(entry)]
    return next((entry for entry in present if not isinstance(entry, int | float | np.number)), present[0])


def _of_text(column: Any) -> Column:
    codes, levels = pd.factorize(np.asarray(column, dtype=object), sort=True)
    if not len(levels):
        # Missing entries alone fit any kind of column.
        return np.full(len(codes), np.nan), "real", None
    return np.where(codes < 0, np.nan, codes), "text", tuple(levels)


def column_of_series(column: Any, narwhals: Any) -> Column:
    """Return a column of a frame by its dtype in narwhals."""
    dtype, native = column.dtype, narwhals.to_native(column)
    if isinstance(native, pd.Series) and isinstance(native.dtype, pd.SparseDtype):
        dense: Any = native.sparse
        column = narwhals.from_native(dense.to_dense(), series_only=True)
        dtype = column.dtype
    if isinstance(native, pd.Series) and native.dtype == object:
        # Narwhals would judge the column by its first entries.
        return column_of_objects(native.to_numpy(), native.dtype)
    if isinstance(dtype, narwhals.Categorical | narwhals.Enum):
        return _of_categories(column, native)
    if isinstance(dtype, narwhals.Boolean) or dtype.is_numeric():
        kind = "bool" if isinstance(dtype, narwhals.Boolean) else "integer" if dtype.is_integer() else "real"
        return _as_floats(column, native), kind, None
    if isinstance(dtype, narwhals.String):
        return _of_text(column.to_list())
    if isinstance(dtype, narwhals.Datetime | narwhals.Date | narwhals.Time):
        return _of_others(column.to_list(), "date")
    if isinstance(dtype, narwhals.Duration):
        return _of_others(column.to_list(), "duration")
    has_entries = column.null_count() < len(column)
    if isinstance(native, pd.Series) and not isinstance(native.dtype, np.dtype) and has_entries:
        # Periods, intervals and the like.
        kind = "period" if isinstance(native.dtype, pd.PeriodDtype) else str(native.dtype)
        return _of_others(column.to_list(), kind)
    entries = each_entry(column.to_list())
    is_known = isinstance(native, pd.Series) and isinstance(native.dtype, np.dtype)
    return column_of_objects(entries, native.dtype if is_known else entries.dtype)


def _as_floats(column: Any, native: Any) -> np.ndarray:
    if isinstance(native, pd.Series):
        return native.to_numpy(dtype=np.float64, na_value=np.nan)
    if hasattr(native, "unify_dictionaries"):
        # Of pyarrow, whose integers beyond 2^53 are rounded only if that is asked for.
        return np.array(native.cast("float64", safe=False).to_numpy(), dtype=np.float64)
    return np.array(column.cast(narwhals_library().Float64()).to_numpy(), dtype=np.float64)


def _of_categories(column: Any, native: Any) -> Column:
    if isinstance(native, pd.Series) and isinstance(native.dtype, pd.CategoricalDtype):
        codes, levels = native.cat.codes.to_numpy(), native.cat.categories.tolist()
    else:
        entries = column.to_list()
        if isinstance(column.dtype, narwhals_library().Enum):
            levels = list(column.dtype.categories)
        elif hasattr(native, "unify_dictionaries"):
            levels = [
                level
                for level in native.unify_dictionaries().chunk(0).dictionary.to_pylist()
                if not is_missing(level)
            ]
        else:
            # Polars may report the categories of all columns that it has ever read.
            levels = sorted({entry for entry in entries if not is_missing(entry)})
        codes = pd.Categorical(entries, categories=levels).codes
    return np.where(codes < 0, np.nan, codes.astype(np.float64)), "category", tuple(levels)
