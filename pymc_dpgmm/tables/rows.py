"""Rows matched by name. No other module puts arguments that have entries for rows into the order of the rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pymc_dpgmm.tables.checks import is_variable, listed, refuse_dims
from pymc_dpgmm.tables.kinds import as_numbers
from pymc_dpgmm.tables.names import coordinates
from pymc_dpgmm.tables.reading import computed, named_entries, read_entries, read_table, row_names
from pymc_dpgmm.tables.table import Table

# How many names a message shows.
_SHOWN = 3


class RowNames:
    """Names of the rows of data, by which arguments with entries for these rows are put into their order.

    An argument with an index is matched by name, and one without an index by position. Rows of data without names
    are named 0, 1, 2, ... Without data, the first argument with an index goes by position, and its names become
    those of the rows. An argument whose index has exactly the names of the model's coordinates for the rows is
    matched by these.

    Parameters
    ----------
    of : str
        The data that the rows belong to, for messages: ``"observed"``, ``"the new rows"``.
    names : Index, optional
        Names of the rows in that data.
    coords : sequence, optional
        Names of the rows in the coordinates of a model.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = RowNames("observed", pd.Index(["b", "a"]))
    >>> rows.order("group", pd.Index(["a", "b"]))
    array([1, 0])
    """

    def __init__(self, of: str, names: pd.Index | None = None, coords: Any = None) -> None:
        self.of, self.names = of, names
        # Whether the data has no names, so that its rows are named by their positions.
        self._are_numbered = False
        # Dimensions of the xarray object that the rows are from, if any.
        self.dims: tuple[str, ...] | None = None
        self.coords = None if coords is None else pd.Index(coords)

    def order(self, what: str, index: pd.Index | None, *, partial: bool = False) -> np.ndarray | None:
        """Return the positions that bring an argument into the order of the rows, None if it is in order.

        Parameters
        ----------
        what : str
            Name of the user's argument.
        index : Index or None
            Names of the argument's rows.
        partial : bool
            Whether entries may be missing, for the message.

        Raises
        ------
        ValueError
            If these are not the names of the rows, or not unique; the message shows three of them. Also if the
            rows have no names, and those of the argument are 0, 1, 2, ... in another order.
        """
        if index is None:
            return None
        known = [(self.names, index), (self.coords, _like_coordinates(index))]
        for names, own in reversed(known) if self._are_numbered else known:
            if names is None:
                continue
            if own.equals(names):
                return None
            if _are_the_same(names, own):
                if names is self.names and self._are_numbered:
                    raise ValueError(self._ambiguity(what, index))
                return own.get_indexer(names)
        if self.names is None:
            self.of, self.names = what, index
            return None
        raise ValueError(self._difference(what, index, partial))

    def arrange(self, table: Table) -> Table:
        """Return a table in the order of the rows.

        Raises
        ------
        ValueError
            If the table has other rows, or the coordinates of the model have the same names in another order.
        """
        names, coords = table.rows, self.coords
        named = None if names is None else _like_coordinates(names)
        if named is not None and coords is not None and not named.equals(coords) and _are_the_same(named, coords):
            raise ValueError(
                f"{table.what} has its rows in another order than the coords of the model: put them into the same "
                f"one, as by {table.what}.loc[list(coords)]"
            )
        if self.dims is None:
            self.dims = table.dims
        if names is None and self.names is None:
            self.names, self._are_numbered = pd.RangeIndex(table.n_rows), True
        return table.in_row_order(self.order(table.what, names), self.names)

    def entries(self, what: str, value: Any, complete: str = "") -> Any:
        """Return an argument with a name or number for every row, in the order of the rows.

        Variables and None are returned as they are.

        Parameters
        ----------
        what : str
            Name of the user's argument.
        value : (n,) array_like, series, dict of rows or variable
        complete : str
            Why no entry may be missing, for the message. By default, entries may be missing.

        Raises
        ------
        TypeError
            If it is text, such as the name of a column.
        ValueError
            If ``complete`` is given and entries are missing. The message names their rows.
        """
        _refuse_text(what, value)
        if value is None or is_variable(value):
            refuse_dims(what, value)
            return value
        value = named_entries(computed(value), what)
        at = self.order(what, row_names(value), partial=not complete)
        entries = read_entries(value, what)
        entries = entries if at is None else entries[at]
        missing = pd.isna(entries)
        if complete and missing.any():
            raise ValueError(
                f"{what} has {missing.sum()} missing entries, {self._told(missing)}: {complete}. Leave these rows "
                "out everywhere, or give them a name of their own"
            )
        return entries

    def numbers(self, what: str, value: Any, columns: Sequence[Any] | None = None) -> Any:
        """Return an argument with a number for every row, or row and column, in the order of the rows.

        Variables, None and single numbers are returned as they are.

        Parameters
        ----------
        what : str
            Name of the user's argument.
        value : scalar, (n,) or (n, d) array_like, frame, series or variable
        columns : sequence, optional
            Names of the columns of the rows.
        """
        _refuse_text(what, value)
        if value is None or is_variable(value):
            return value
        if np.isscalar(value) or (isinstance(value, np.ndarray) and value.ndim == 0):
            return value
        values = as_numbers(self.matched(read_table(value, what), columns, self.of))
        self.check_finite(what, values)
        return values

    def check_finite(self, what: str, values: np.ndarray) -> None:
        """Raise ValueError where numbers for every row are not finite; the message names the rows.

        Parameters
        ----------
        what : str
            Name of the user's argument.
        values : (n,) or (n, d) array
            In the order of the rows.
        """
        bad = ~np.isfinite(values)
        if bad.any():
            rows = bad.reshape(len(bad), -1).any(axis=1)
            raise ValueError(
                f"{what} must be finite, got NaN or infinite values {self._told(rows)}: leave these rows out "
                "everywhere, or fill the values in"
            )

    def _told(self, chosen: np.ndarray) -> str:
        """Return the names of some of the rows for a message, or their positions."""
        at = np.flatnonzero(chosen)
        if self.names is None or len(self.names) != len(chosen):
            return f"in the rows {listed(at.tolist(), _SHOWN)}, counted from 0"
        return f"in the rows {listed(self.names[at].tolist(), _SHOWN)}"

    def matched(self, table: Table, columns: Sequence[Any] | None, of: str) -> Table:
        """Return a table in the order of the rows and of the given columns.

        Parameters
        ----------
        table : Table
        columns : sequence or None
            Names of columns, in the order that the columns of the table take.
        of : str
            The data that these columns belong to, for messages.
        """
        table = table.turned(self.dims)
        at = None if table.is_vector else order_of_columns(table.what, table.columns, columns, of)
        table = table if at is None else table.in_column_order(at)
        return table.in_row_order(self.order(table.what, table.rows), self.names)

    def _ambiguity(self, what: str, index: pd.Index) -> str:
        """Return the message of an error: rows without names, and an index that has numbered them."""
        return (
            f"{what} has the index {listed(index, _SHOWN)}, which numbers rows in another order, and "
            f"{self.of} has no index: is its first row that with the index {index[0]}, or that with the index 0? "
            f"Pass {self.of} with its index, or {what} as an array, {what}.to_numpy(), if its rows are in the "
            f"order of those of {self.of}"
        )

    def _difference(self, what: str, index: pd.Index, partial: bool) -> str:
        """Return the message of an error: why an index does not match the rows, and what to do."""
        expected, of = self.names, self.of
        assert expected is not None
        by_position = (
            f"If its rows are in the order of those of {of}, let it go by position: pass it as an array, "
            f"{what}.to_numpy()"
        )
        cure = f"Give it the index of {of}. {by_position}"
        for which, names in ((what, index), (of, expected)):
            repeated = names[names.duplicated()].unique()
            if len(repeated):
                return (
                    f"{what} cannot be matched with the rows of {of} by name, because {which} has several rows "
                    f"named {listed(repeated, _SHOWN)}. {cure}"
                )
        absent, more = expected.difference(index, sort=False), index.difference(expected, sort=False)
        differences = []
        if len(absent):
            differences.append(f"lacks the rows {listed(absent, _SHOWN)} of {of}")
        if len(more):
            differences.append(f"has the rows {listed(more, _SHOWN)} besides those of {of}")
        table = of.removeprefix("the ").replace(" ", "_")
        if not len(absent):
            cure = f"Select the rows of {of}, {what}.loc[{table}.index]"
        elif partial and not len(more):
            cure = f"If nothing is known of these, make their entries missing: {what}.reindex({table}.index)"
        return f"{what} has the index of other rows than {of}: it {' and '.join(differences)}. {cure}"


def _refuse_text(what: str, value: Any) -> None:
    """Raise TypeError for one text in an argument that has an entry for every row."""
    if isinstance(value, str | bytes):
        raise TypeError(
            f"{what} must have one entry for every row, got the text {value!r}: if that is the name of a column, "
            f"pass the column, as in frame[{value!r}]"
        )


def _like_coordinates(names: pd.Index) -> pd.Index:
    """Return names in the form that coordinates of a model have: those of several levels as one text."""
    return pd.Index(coordinates(names)) if names.nlevels > 1 else names


def _are_the_same(one: pd.Index, other: pd.Index) -> bool:
    """Tell whether two indices have the same names, each once, in any order."""
    if len(one) != len(other) or not (one.is_unique and other.is_unique):
        return False
    try:
        return bool((other.get_indexer(one) >= 0).all())
    except (TypeError, ValueError):
        # Such as dates with and without a time zone.
        return False


def order_of_columns(what: str, own: Sequence[Any] | None, wanted: Sequence[Any] | None, of: str) -> Any:
    """Return the positions that bring columns into the order ``wanted``, None if they stay where they are.

    Columns without names, and columns whose names are all different from those wanted, go by position, and a
    single one of these applies to all columns wanted.

    Parameters
    ----------
    what : str
        Name of the user's argument.
    own, wanted : sequence or None
        Names of the columns of the argument, and names in the order wanted.
    of : str
        The data with the columns ``wanted``, for the message.

    Raises
    ------
    ValueError
        If some names agree, but not all.

    Examples
    --------
    >>> order_of_columns("offset", ["y", "x"], ["x", "y"], "observed")
    [1, 0]
    """
    if own is None or wanted is None or list(own) == list(wanted) or not set(own) & set(wanted):
        return None
    if set(own) != set(wanted) or len(own) != len(wanted):
        absent = [name for name in wanted if name not in own]
        more = [name for name in own if name not in wanted]
        raise ValueError(
            f"the columns of {what} are not those of {of}: "
            + "; ".join(
                part
                for part, names in (
                    (f"it lacks {listed(absent, _SHOWN)}", absent),
                    (f"it has {listed(more, _SHOWN)} besides", more),
                )
                if names
            )
            + f". Give it the columns {listed(wanted)}, or an array, which goes by position"
        )
    return [list(own).index(name) for name in wanted]
