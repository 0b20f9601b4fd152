"""Rows matched by their names: the one place where what comes with rows is put into their order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pymc_dpgmm.tables.checks import is_variable, listed, refuse_dims
from pymc_dpgmm.tables.kinds import as_numbers
from pymc_dpgmm.tables.reading import read_entries, read_table, row_names
from pymc_dpgmm.tables.table import Table

# How many names a message shows.
_SHOWN = 3


class Rows:
    """Names of the rows of data, by which everything that comes with these rows is put into their order.

    What has an index of names is matched by name; what has none goes by position. Rows of data without names are
    named 0, 1, 2, ... Where there is no data, the first thing that has names goes by position, and lends its names
    to the rest. The coordinates that a model has for the rows are names too, for what has just these.

    Parameters
    ----------
    of : str
        What the rows are of, for messages: ``"observed"``, ``"the new rows"``.
    names : Index, optional
        What the rows are called there.
    coords : sequence, optional
        What they are called by the coordinates of a model.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = Rows("observed", pd.Index(["b", "a"]))
    >>> rows.order("group", pd.Index(["a", "b"]))
    array([1, 0])
    """

    def __init__(self, of: str, names: pd.Index | None = None, coords: Any = None) -> None:
        self.of, self.names = of, names
        # Of an object of xarray that the rows are from.
        self.dims: tuple[str, ...] | None = None
        self.coords = None if coords is None else pd.Index(coords)

    def order(self, what: str, index: pd.Index | None, *, partial: bool = False) -> np.ndarray | None:
        """Return the positions that bring something into the order of the rows, None if it is in order.

        Parameters
        ----------
        what : str
            Name of the user's argument.
        index : Index or None
            Names that it has for its own rows.
        partial : bool
            Whether entries may be missing, for the message.

        Raises
        ------
        ValueError
            If these are not the names of the rows, or do not tell rows apart; the message shows three of them.
        """
        known = [own for own in (self.names, self.coords) if own is not None]
        if index is None or any(index.equals(own) for own in known):
            return None
        for own in known:
            if _are_the_same(own, index):
                return index.get_indexer(own)
        if self.names is None:
            self.of, self.names = what, index
            return None
        raise ValueError(self._difference(what, index, partial))

    def arrange(self, table: Table) -> Table:
        """Return a table in the order of the rows.

        Raises
        ------
        ValueError
            If its rows have other names, or the coordinates of the model have the same names in another order.
        """
        own, coords = table.rows, self.coords
        if own is not None and coords is not None and not own.equals(coords) and _are_the_same(own, coords):
            raise ValueError(
                f"{table.what} has its rows in another order than the coords of the model: put them into the same "
                f"one, as by {table.what}.loc[list(coords)]"
            )
        if self.dims is None:
            self.dims = table.dims
        if own is None and self.names is None:
            # Rows without names are named by their positions.
            self.names = pd.RangeIndex(table.n_rows)
        return table.in_row_order(self.order(table.what, own), self.names)

    def entries(self, what: str, value: Any, complete: str = "") -> Any:
        """Return names or numbers that a user gives for every row, in the order of the rows.

        Variables and None are returned as they are.

        Parameters
        ----------
        what : str
            Name of the user's argument.
        value : (n,) array_like, series or variable
        complete : str
            Why no entry may be missing, for the message; by default entries may be.

        Raises
        ------
        TypeError
            If it is text, such as the name of a column.
        ValueError
            If entries are missing that may not be. The message names their rows.
        """
        _refuse_text(what, value)
        if value is None or is_variable(value):
            refuse_dims(what, value)
            return value
        at = self.order(what, row_names(value), partial=not complete)
        found = read_entries(value, what)
        found = found if at is None else found[at]
        missing = pd.isna(found)
        if complete and missing.any():
            raise ValueError(
                f"{what} has {missing.sum()} missing entries, {self._told(missing)}: {complete}. Leave these rows "
                "out everywhere, or give them a name of their own"
            )
        return found

    def numbers(self, what: str, value: Any, columns: Sequence[Any] | None = None) -> Any:
        """Return numbers that a user gives for every row, or row and column, in the order of the rows.

        Variables and None are returned as they are, and so is one number for all rows.

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
        """Return what comes with the rows in their order, and in that of columns of the same names.

        Parameters
        ----------
        table : Table
        columns : sequence or None
            Names of columns, whose order those of the table are to have.
        of : str
            What these are columns of, for messages.
        """
        table = table.turned(self.dims)
        at = None if table.is_vector else order_of_columns(table.what, table.columns, columns, of)
        table = table if at is None else table.in_column_order(at)
        return table.in_row_order(self.order(table.what, table.rows), self.names)

    def _difference(self, what: str, index: pd.Index, partial: bool) -> str:
        """Return why names do not tell the order of the rows, and what to do."""
        own, of = self.names, self.of
        assert own is not None
        by_position = (
            f"If its rows are in the order of those of {of}, let it go by position: pass it as an array, "
            f"{what}.to_numpy()"
        )
        cure = f"Give it the index of {of}. {by_position}"
        for which, names in ((what, index), (of, own)):
            doubled = names[names.duplicated()].unique()
            if len(doubled):
                return (
                    f"{what} cannot be matched with the rows of {of} by name, because {which} has several rows "
                    f"named {listed(doubled, _SHOWN)}. {cure}"
                )
        absent, more = own.difference(index, sort=False), index.difference(own, sort=False)
        told = []
        if len(absent):
            told.append(f"lacks the rows {listed(absent, _SHOWN)} of {of}")
        if len(more):
            told.append(f"has the rows {listed(more, _SHOWN)} besides those of {of}")
        table = of.removeprefix("the ").replace(" ", "_")
        if not len(absent):
            cure = f"Select the rows of {of}, {what}.loc[{table}.index]"
        elif partial and not len(more):
            cure = f"If nothing is known of these, make their entries missing: {what}.reindex({table}.index)"
        return f"{what} has the index of other rows than {of}: it {' and '.join(told)}. {cure}"


def _refuse_text(what: str, value: Any) -> None:
    """Raise TypeError for one text in an argument that has an entry for every row."""
    if isinstance(value, str | bytes):
        raise TypeError(
            f"{what} must have one entry for every row, got the text {value!r}: if that is the name of a column, "
            f"pass the column, as in frame[{value!r}]"
        )


def _are_the_same(one: pd.Index, other: pd.Index) -> bool:
    """Tell whether two indices have the same names, each once, in whatever order."""
    if len(one) != len(other) or not (one.is_unique and other.is_unique):
        return False
    try:
        return bool((other.get_indexer(one) >= 0).all())
    except (TypeError, ValueError):
        # Such as dates with and without a time zone.
        return False


def order_of_columns(what: str, own: Sequence[Any] | None, wanted: Sequence[Any] | None, of: str) -> Any:
    """Return the positions that bring columns into the order of others of the same names, None if they are.

    Columns without names, and those that have none in common with the others, go by position.

    Parameters
    ----------
    what : str
        Name of the user's argument.
    own, wanted : sequence or None
        Names of its columns, and of those whose order they are to have.
    of : str
        What the latter are columns of, for the message.

    Raises
    ------
    ValueError
        If some of the names are the same, and not all.

    Examples
    --------
    >>> order_of_columns("offset", ["y", "x"], ["x", "y"], "observed")
    [1, 0]
    """
    if own is None or wanted is None or list(own) == list(wanted) or not set(own) & set(wanted):
        return None
    if len(own) == 1 and len(wanted) > 1:
        # One column for all of them.
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
