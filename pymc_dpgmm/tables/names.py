"""Names of rows and columns as coordinates of results that can be written to a file."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pymc_dpgmm.tables.checks import listed


def coordinates(names: Any) -> np.ndarray:
    """Return names as an array of numbers, dates without a time zone, or text: what a NetCDF file can hold.

    Numbers, bools, durations and dates without a time zone stay what they are. Everything else becomes text: the
    names of several levels are joined by commas, and bytes are decoded.

    Parameters
    ----------
    names : Index or sequence

    Returns
    -------
    (n,) array

    Examples
    --------
    >>> import pandas as pd
    >>> coordinates(pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]))
    array(['a, 1', 'a, 2'], dtype=object)
    >>> coordinates([3, 1])
    array([3, 1])
    """
    index = names if isinstance(names, pd.Index) else _index_of(list(names))
    if index.nlevels > 1:
        return _as_texts(index)
    if isinstance(index, pd.CategoricalIndex):
        index = pd.Index(index.to_list(), dtype=object)
    if index.dtype == object and not index.hasnans:
        # Numbers among objects are numbers if all of them are.
        index = index.infer_objects()
    if isinstance(index.dtype, np.dtype) and index.dtype.kind in "biufmM":
        return index.to_numpy()
    if index.dtype.kind in "biuf" and not index.hasnans:
        # The numbers of nullable dtypes, and of those of Arrow.
        return index.to_numpy(dtype=getattr(index.dtype, "numpy_dtype", np.float64))
    return _as_texts(index)


def plain_names(names: Any) -> list[Any]:
    """Return names as numbers or text, for comparison with names in results, which may have been saved.

    Examples
    --------
    >>> import pandas as pd
    >>> plain_names(pd.date_range("2024-01-01", periods=2)), plain_names(["a", 1])
    (['2024-01-01 00:00:00', '2024-01-02 00:00:00'], ['a', '1'])
    """
    plain = coordinates(names)
    return [as_text(name) for name in pd.Index(plain)] if plain.dtype.kind in "mM" else plain.tolist()


def _as_texts(names: Any) -> np.ndarray:
    return np.array([as_text(name) for name in names], dtype=object)


def _index_of(names: list[Any]) -> pd.Index:
    """Return names as an index of one level, in which tuples remain single names."""
    return pd.Index(pd.Series(names, dtype=object), dtype=object).infer_objects()


def as_text(name: Any) -> str:
    """Return the name of a row or column as text.

    Examples
    --------
    >>> as_text(("mean", b"length")), as_text(None)
    ('mean, length', 'None')
    """
    if isinstance(name, tuple):
        return ", ".join(as_text(part) for part in name)
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def is_one_name(chosen: Any, names: Collection[str] = ()) -> bool:
    """Tell whether a user has chosen one column, by a name of any kind or a position, and not several.

    A tuple is the name of one column with several levels if ``names``, those of the columns as text, have it.

    Examples
    --------
    >>> is_one_name("a"), is_one_name(1.5), is_one_name(["a"])
    (True, True, False)
    >>> is_one_name(("a", "b")), is_one_name(("a", "b"), ["a, b"])
    (False, True)
    """
    if isinstance(chosen, tuple):
        return as_text(chosen) in names
    return isinstance(chosen, str | bytes) or not isinstance(chosen, Iterable)


def as_plain(name: Any) -> int | float | bool | str:
    """Return a name in a form that JSON returns unchanged: a number or text as it is, anything else as text."""
    if isinstance(name, np.generic):
        name = name.item()
    return name if isinstance(name, bool | int | float | str) else as_text(name)


def check_columns(what: str, columns: Sequence[Any]) -> None:
    """Raise ValueError where two columns have the same name, or the same name as text.

    Parameters
    ----------
    what : str
        Name of the user's argument.
    columns : sequence
        Names of its columns.
    """
    for names in (list(columns), coordinates(columns).tolist()):
        repeated = pd.Series(names, dtype=object)
        repeated = repeated[repeated.duplicated()]
        if len(repeated):
            raise ValueError(
                f"{what} has several columns named {listed(dict.fromkeys(repeated), 3)}, which results could not "
                "distinguish: rename them, as in frame.columns = ['a', 'b', ...], or leave out "
                "repeated columns, frame.loc[:, ~frame.columns.duplicated()]"
            )


def check_coordinates(dim: str, names: Any) -> None:
    """Raise ValueError for coordinates that results cannot hold: all draws would be lost after sampling.

    Parameters
    ----------
    dim : str
        Name of the dimension.
    names : sequence
        Its coordinates in the model.
    """
    odd = next((name for name in names if not isinstance(name, _SAVED)), None)
    if odd is not None:
        raise ValueError(
            f"the coords of dimension {dim!r} have entries that results cannot hold or save, such as {odd!r} of "
            f"type {type(odd).__name__}: make them text or numbers, as in coords={{{dim!r}: "
            "[str(name) for name in names]}"
        )


_SAVED = (str, int, float, np.number, np.bool_, np.str_, np.datetime64, np.timedelta64, pd.Timestamp, pd.Timedelta)
