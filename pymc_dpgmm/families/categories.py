"""Categories in columns of pandas objects, and their codes; those of text are its sorted values."""

from typing import Any

import numpy as np
import pandas as pd


def _as_categorical(column: Any) -> Any:
    """Return a column of text as a categorical one, and others as they are."""
    return column.astype("category") if pd.api.types.infer_dtype(column, skipna=True) == "string" else column


def _columns(data: Any) -> list[Any] | None:
    """Return the columns of a pandas object, those of text as categorical ones; None for other data."""
    frame = data.to_frame() if isinstance(data, pd.Series) else data
    if not isinstance(frame, pd.DataFrame):
        return None
    return [_as_categorical(frame.iloc[:, j]) for j in range(frame.shape[1])]


def _is_categorical(column: Any) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype)


def categories_of(data: Any) -> list[list[Any] | None] | None:
    """Return the categories of each column of a pandas object, None for one of codes; None for other data."""
    columns = _columns(data)
    if columns is None:
        return None
    return [list(c.cat.categories) if _is_categorical(c) else None for c in columns]


def codes_of(data: Any) -> np.ndarray:
    """Return a pandas object as codes: those of categorical columns, NaN where one has no category."""
    if isinstance(data, pd.DataFrame):
        return np.column_stack([codes_of(data.iloc[:, j]) for j in range(data.shape[1])])
    column = _as_categorical(data)
    if not _is_categorical(column):
        return column.to_numpy()
    codes = column.cat.codes.to_numpy().astype(np.float64)
    return np.where(codes < 0, np.nan, codes)


def numbers_of_levels(data: Any) -> list[int]:
    """Return the number of categories of each column, or its largest code plus one."""
    columns = _columns(data)
    if columns is None:
        codes = np.asarray(data)
        return [int(largest) + 1 for largest in np.nanmax(codes.reshape(len(codes), -1), axis=0)]
    return [len(c.cat.categories) if _is_categorical(c) else int(c.max()) + 1 for c in columns]
