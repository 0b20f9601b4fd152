"""Read users' data from any container into a :class:`Table`.

Beside ``columns.py``, no other module knows the containers.

Frames and series of any library are read by columns through narwhals, whose dtypes determine the kinds of columns.
Arrays are read by their dtype, and containers without one, such as lists, by their values.
"""

import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pymc_dpgmm.tables.checks import is_sparse, is_variable, listed, refuse_dims
from pymc_dpgmm.tables.columns import (
    KINDS_OF_DTYPES,
    column_of_objects,
    column_of_series,
    each_entry,
    is_missing,
    narwhals_library,
)
from pymc_dpgmm.tables.names import as_text, check_columns
from pymc_dpgmm.tables.table import Table


def read_table(value: Any, what: str = "observed") -> Table:
    """Return a user's data as a table.

    Parameters
    ----------
    value : array_like, frame, series, sparse matrix, DataArray or pm.Data, or a Table
        Frames and series are those of pandas, polars, pyarrow and other libraries that narwhals knows.
    what : str
        Name of the user's argument, for messages.

    Raises
    ------
    TypeError, ValueError
        If it is no table, or two columns have the same name.

    Examples
    --------
    >>> import pandas as pd
    >>> table = read_table(pd.DataFrame({"size": [1.0, None], "kind": ["b", "a"]}))
    >>> table.kinds, table.levels
    (('real', 'text'), (None, ('a', 'b')))
    >>> table.values
    array([[ 1.,  1.],
           [nan,  0.]])
    """
    if isinstance(value, Table):
        return value
    refuse_dims(what, value)
    if is_variable(value):
        return _of_variable(value, what)
    if is_sparse(value):
        return _of_sparse(value, what)
    if type(value).__module__.startswith("xarray"):
        return _of_xarray(value, what)
    if isinstance(value, Mapping):
        raise TypeError(
            f"{what} is a dict, which only a mixture of several views takes: give a dict as base too. For one "
            "table, make it a frame with pandas.DataFrame"
        )
    value = rows_with_names(computed(value))
    has_names = not isinstance(value, pd.Index | pd.api.extensions.ExtensionArray | np.ndarray)
    value = _as_known(value)
    if not _is_frame_or_series(value):
        return _of_array(value, what)
    table = _of_columns(value, what)
    return table if has_names else replace(table, rows=None)


def computed(value: Any) -> Any:
    """Return a frame, series or array of dask as what it computes, and anything else unchanged."""
    return value.compute() if type(value).__module__.startswith(("dask.", "dask_expr.")) else value


def row_names(value: Any) -> pd.Index | None:
    """Return the names that a user's container has for its rows, None if it has none."""
    if isinstance(value, Table):
        return value.rows
    if isinstance(value, pd.Series | pd.DataFrame):
        return value.index
    if type(value).__module__.startswith("xarray"):
        names: pd.Index | None = value.indexes.get(value.dims[0]) if value.ndim else None
        return names
    # Frames of other libraries may have an index like that of pandas.
    index = getattr(value, "index", None)
    return index.to_pandas() if hasattr(index, "to_pandas") else None  # type: ignore[union-attr]


def names_of_axes(value: Any) -> tuple[Sequence[Any] | None, ...]:
    """Return the names along each axis of a series, frame or DataArray; nothing for anything else."""
    if isinstance(value, pd.Series):
        return (list(value.index),)
    if isinstance(value, pd.DataFrame):
        return list(value.index), list(value.columns)
    if type(value).__module__.startswith("xarray") and hasattr(value, "dims"):
        return tuple(list(value.indexes[dim]) if dim in value.indexes else None for dim in value.dims)
    return ()


def named_entries(value: Any, what: str) -> Any:
    """Return a dict from rows to their entries as a series; anything else as it is.

    Raises
    ------
    TypeError
        For a set, which has no order.
    """
    if isinstance(value, Set):
        raise TypeError(
            f"{what} is a set, which has no order: make it a list, or a Series with the names of the rows"
        )
    if isinstance(value, Mapping):
        return pd.Series(list(value.values()), index=pd.Index(list(value), tupleize_cols=False), dtype=object)
    return value


def read_entries(value: Any, what: str) -> np.ndarray:
    """Return a user's names or numbers, one for every row, as an array.

    Missing entries of an array of objects are None. Categories become the values that they stand for.

    Parameters
    ----------
    value : (n,) array_like, series, DataArray
    what : str
        Name of the user's argument, for messages.

    Examples
    --------
    >>> import pandas as pd
    >>> read_entries(pd.Series([2, None], dtype="Int64"), "unit")
    array([2, None], dtype=object)
    """
    refuse_dims(what, value)
    value = named_entries(value, what)
    if type(value).__module__.startswith("xarray"):
        value = value.to_numpy()
    value = _as_known(value)
    if _is_frame_or_series(value):
        value = _entries_of_series(value, what)
    if isinstance(value, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(value)
        value = _without_masked(value, mask) if mask.any() else np.ma.getdata(value)
    # NumPy would turn the numbers and missing entries of a list that contains text into text.
    entries = value if isinstance(value, np.ndarray) else _as_objects(value)
    if entries.ndim > 1:
        raise ValueError(
            f"{what} must have shape ({len(entries)},), one entry for every row, got {entries.shape}: make one "
            "name of several, such as text"
        )
    if entries.dtype != object:
        _refuse_missing_as_text(entries, what)
        return entries
    missing = np.array([is_missing(entry) for entry in entries.ravel()], dtype=np.bool_).reshape(entries.shape)
    kind = pd.api.types.infer_dtype(entries[~missing], skipna=False)
    if kind in ("floating", "mixed-integer-float"):
        return np.where(missing, np.nan, np.where(missing, 0.0, entries)).astype(np.float64)
    if missing.any():
        entries = entries.copy()
        entries[missing] = None
        return entries
    if kind == "integer" and max(entries) > np.iinfo(np.int64).max:
        return entries
    return entries.astype({"integer": np.int64, "boolean": np.bool_}.get(kind, object))


def columns_as_frame(value: Any) -> Any:
    """Return a dict of columns, or of the entries of one row, as a DataFrame, and anything else as it is.

    Examples
    --------
    >>> columns_as_frame({"x": 1.0, "y": 2.0}).shape, columns_as_frame({"x": [1.0, 3.0]}).shape
    ((1, 2), (2, 1))
    """
    if not isinstance(value, Mapping):
        return value
    return pd.DataFrame([dict(value)] if all(np.ndim(entry) == 0 for entry in value.values()) else dict(value))


def factorized(what: str, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of each entry's name, -1 where it is missing, and the sorted names.

    Raises
    ------
    TypeError
        If the names are of kinds that have no common order.
    ValueError
        If two names are the same as text.
    """
    try:
        codes, names = pd.factorize(entries, sort=True)
    except TypeError:
        raise TypeError(f"{what} mixes names of several kinds, such as numbers and text: make them text") from None
    texts = pd.Index([as_text(name) for name in names])
    if not texts.is_unique:
        raise ValueError(
            f"several {what}s have the name {texts[texts.duplicated()][0]!r}, as text and as a number: results "
            "could not tell them apart. Give them one type, as by .astype(str)"
        )
    return codes, np.asarray(names)


# What NumPy writes for missing entries where it makes text of a list.
_MISSING_AS_TEXT = ("nan", "NaN", "None", "<NA>", "NaT")


def _refuse_missing_as_text(entries: np.ndarray, what: str) -> None:
    """Raise ValueError for an array of text that had missing entries before NumPy made text of them."""
    if entries.dtype.kind not in "US":
        return
    found = np.intersect1d(entries.astype(np.str_), _MISSING_AS_TEXT)
    if len(found):
        raise ValueError(
            f"{what} has the text {str(found[0])!r} in an array of text, as which NumPy writes missing entries: "
            "pass a list, a Series, or an array of dtype=object, where missing entries stay what they are"
        )


def _without_masked(array: Any, mask: np.ndarray) -> np.ndarray:
    objects = np.array(array, dtype=object)
    objects[mask] = None
    return objects


def _as_objects(value: Any) -> np.ndarray:
    if hasattr(value, "__array__"):
        return np.asarray(value)
    entries = list(value) if np.iterable(value) else [value]
    objects = np.empty(len(entries), dtype=object)
    objects[:] = entries
    nested = any(isinstance(entry, list | tuple | np.ndarray) and np.ndim(entry) for entry in entries)
    return np.asarray(entries) if nested else objects


def _entries_of_series(value: Any, what: str) -> np.ndarray:
    narwhals = narwhals_library()
    column = narwhals.from_native(value, allow_series=True)
    if isinstance(column, narwhals.DataFrame):
        if len(column.columns) != 1:
            raise ValueError(
                f"{what} must be one column, one entry for every row, got {len(column.columns)} columns"
            )
        column = column[:, 0]
    if isinstance(value, pd.Series) and isinstance(value.dtype, np.dtype) and value.dtype != object:
        return value.to_numpy()
    return each_entry(column.to_list())


def _as_known(value: Any) -> Any:
    """Return arrays of pandas and pyarrow, and structured arrays, as a series or frame; other values unchanged."""
    if isinstance(value, pd.MultiIndex):
        return pd.Series([as_text(name) for name in value], dtype=object)
    if isinstance(value, pd.Index):
        return pd.Series(value.array)
    if isinstance(value, pd.api.extensions.ExtensionArray):
        return pd.Series(value)
    if isinstance(value, np.ndarray) and value.dtype.names:
        several = [name for name in value.dtype.names if value[name].ndim > 1]
        if several:
            raise ValueError(
                f"the fields {listed(several)} of a structured array have several numbers in a row: give each "
                "number a field of its own, or pass a matrix"
            )
        return pd.DataFrame({name: _unmasked(value[name]) for name in value.dtype.names})
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None and isinstance(value, pyarrow.Array):
        return pyarrow.chunked_array([value])
    if pyarrow is not None and isinstance(value, pyarrow.RecordBatch):
        return pyarrow.Table.from_batches([value])
    return value


def _unmasked(column: np.ndarray) -> np.ndarray:
    """Return a column with NaN, or None among what is no number, where it is masked."""
    mask = np.ma.getmaskarray(column)
    if not mask.any():
        return np.ma.getdata(column)
    if column.dtype.kind in "biuf":
        return np.where(mask, np.nan, np.ma.getdata(column).astype(np.float64))
    return _without_masked(column, mask)


def rows_with_names(value: Any) -> Any:
    """Return records, such as dicts or the rows of ``DataFrame.itertuples``, as a frame; others as they are.

    One named tuple of numbers or texts is a row, and a structured array has as many as it is long.

    Examples
    --------
    >>> rows_with_names([{"a": 1, "b": 2}, {"b": 4, "a": 3}])
       a  b
    0  1  2
    1  3  4
    """
    if isinstance(value, tuple) and _is_record(value) and all(map(_is_single, value)):
        value = [value]
    if isinstance(value, np.ndarray | np.void) and value.dtype.names:
        return _as_known(np.atleast_1d(value))
    if not (isinstance(value, list | tuple) and value and all(map(_is_record, value))):
        return value
    return pd.DataFrame([record._asdict() if hasattr(record, "_asdict") else record for record in value])


def _is_single(value: Any) -> bool:
    return isinstance(value, str) or not np.iterable(value)


def _is_record(value: Any) -> bool:
    return isinstance(value, Mapping | pd.Series) or (isinstance(value, tuple) and hasattr(value, "_fields"))


def _is_frame_or_series(value: Any) -> bool:
    """Tell whether narwhals knows a value as a frame or series; arrays and Python's containers are none."""
    if value is None or isinstance(value, _OF_PYTHON):
        return False
    if isinstance(value, pd.Series | pd.DataFrame):
        return True
    narwhals = narwhals_library()
    return isinstance(
        narwhals.from_native(value, allow_series=True, pass_through=True),
        narwhals.DataFrame | narwhals.LazyFrame | narwhals.Series,
    )


def _of_variable(value: Any, what: str) -> Table:
    if not hasattr(value, "get_value"):
        raise TypeError(
            f"{what} must be numbers or pm.Data, got an expression of variables, which PyMC does not allow as "
            "observed data"
        )
    table = _of_array(value.get_value(borrow=True), what)
    return Table(what, table.values, table.kinds, table.levels, variable=value)


def _of_sparse(value: Any, what: str) -> Table:
    from scipy.sparse import csr_array

    kind = KINDS_OF_DTYPES.get(value.dtype.kind, str(value.dtype))
    if kind not in ("bool", "integer", "real"):
        raise TypeError(f"{what} must be real numbers, got a sparse matrix of dtype {value.dtype}")
    if value.ndim != 2:
        raise ValueError(f"{what} must have shape (n, d) if it is sparse, got {value.shape}")
    matrix = csr_array(value, dtype=np.float64)
    return Table(what, matrix, (kind,) * matrix.shape[1], (None,) * matrix.shape[1])


def _of_xarray(value: Any, what: str) -> Table:
    if not hasattr(value, "dims") or hasattr(value, "data_vars"):
        raise TypeError(
            f"{what} is a {type(value).__name__} of xarray, which holds several arrays: pass one of them, or a "
            "table, dataset.to_dataframe()"
        )
    table = _of_array(value.to_numpy(), what)
    names = [value.indexes.get(dim) for dim in value.dims]
    columns = None if value.ndim < 2 or names[1] is None else tuple(names[1])
    if columns is not None:
        check_columns(what, columns)
    return Table(
        what,
        table.values,
        table.kinds,
        table.levels,
        rows=names[0] if names else None,
        columns=columns,
        dims=tuple(str(dim) for dim in value.dims),
    )


def _of_array(value: Any, what: str) -> Table:
    """Return the table of an array, or of a value that NumPy converts to one."""
    if isinstance(value, list | tuple) and any(isinstance(part, np.ma.MaskedArray) for part in value):
        # NumPy would forget what is masked.
        value = np.ma.stack(value)
    mask = np.ma.getmaskarray(value) if isinstance(value, np.ma.MaskedArray) else None
    array = np.ma.getdata(value) if mask is not None else _as_array(value, what)
    if array.ndim not in (1, 2):
        raise ValueError(f"{what} must have shape (n,) or (n, d), got {array.shape}")
    if array.size == 0:
        raise ValueError(f"{what} must have at least one row and one column, got shape {array.shape}")
    kind = KINDS_OF_DTYPES.get(array.dtype.kind)
    n_columns = 1 if array.ndim == 1 else array.shape[1]
    if kind in ("bool", "integer", "real"):
        values = np.array(array, dtype=np.float64)
        if mask is not None:
            values[mask] = np.nan
        return Table(what, values, (kind,) * n_columns, (None,) * n_columns)
    _refuse_missing_as_text(array, what)
    if mask is not None:
        array = _without_masked(array, mask)
    columns = [column_of_objects(column, array.dtype) for column in array.reshape(len(array), -1).T]
    values = np.column_stack([parts[0] for parts in columns])
    return Table(
        what,
        values[:, 0] if array.ndim == 1 else values,
        tuple(parts[1] for parts in columns),
        tuple(parts[2] for parts in columns),
    )


def _as_array(value: Any, what: str) -> np.ndarray:
    """Return an array; a list that mixes text and numbers becomes an array of objects."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{what} must have rows of equal lengths, as an array (n, d)") from None
    if array.dtype.kind in "US" and not isinstance(value, np.ndarray):
        array = np.asarray(value, dtype=object)
    return array


# Types that are no frames or series, so that narwhals need not be imported to ask.
_OF_PYTHON = (np.ndarray, np.generic, list, tuple, range, set, str, int, float, complex)


def _of_columns(value: Any, what: str) -> Table:
    """Return the table of a frame or a series."""
    narwhals = narwhals_library()
    names: list[Any]
    index = row_names(value)
    if isinstance(value, pd.DataFrame):
        names = list(value.columns)
        check_columns(what, names)
        # Names that are no strings, or have several levels, could not be handed to narwhals.
        value = value.set_axis([str(j) for j in range(len(names))], axis=1)
    frame = narwhals.from_native(value, allow_series=True)
    if isinstance(frame, narwhals.LazyFrame):
        raise TypeError(f"{what} is not computed yet: pass what its .collect() returns")
    is_series = isinstance(frame, narwhals.Series)
    if is_series:
        columns, names = [frame], [] if frame.name in (None, "") else [getattr(value, "name", frame.name)]
    else:
        columns = [frame[:, j] for j in range(len(frame.columns))]
        if not isinstance(value, pd.DataFrame):
            names = list(frame.columns)
            check_columns(what, names)
    n_rows = len(frame)
    if n_rows == 0 or not columns:
        raise ValueError(f"{what} must have at least one row and one column, got shape {(n_rows, len(columns))}")
    if isinstance(value, pd.DataFrame) and all(isinstance(t, np.dtype) and t.kind in "biuf" for t in value.dtypes):
        values = value.to_numpy(dtype=np.float64, copy=True)
        kinds = [KINDS_OF_DTYPES[dtype.kind] for dtype in value.dtypes]
        levels: list[tuple[Any, ...] | None] = [None] * len(names)
    else:
        read = [column_of_series(column, narwhals) for column in columns]
        kinds, levels = [parts[1] for parts in read], [parts[2] for parts in read]
        values = read[0][0] if is_series else np.column_stack([column for column, _, _ in read])
    return Table(
        what,
        np.ascontiguousarray(values),
        tuple(kinds),
        tuple(levels),
        rows=index,
        columns=tuple(names) or None,
    )
