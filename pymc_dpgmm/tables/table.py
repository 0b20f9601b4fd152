"""The table that users' data of any container is read into."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from pymc_dpgmm.tables.checks import is_sparse, listed
from pymc_dpgmm.tables.names import is_one_name

# Kinds of columns that hold numbers, and kinds that hold categories.
NUMBERS = ("bool", "integer", "real")
CATEGORIES = ("category", "text")
# Beginning of the kind of a column that holds other objects.
OBJECTS = "objects"


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of data as numbers, with the kinds, levels and names of their columns and the names of the rows.

    Parameters
    ----------
    what : str
        Name of the user's argument, for messages.
    values : (n,) or (n, d) float64 array, or sparse matrix
        Numbers, with NaN where an entry is missing. Categories, text and all else are codes of their levels.
    kinds : tuple of d str
        Kind of each column: ``"bool"``, ``"integer"``, ``"real"``, ``"category"``, ``"text"``, ``"date"``,
        ``"duration"``, or a description of anything else.
    levels : tuple of d tuples or None
        For each column that is no numbers, the levels that its codes stand for. A categorical dtype may name
        levels that no row has.
    rows : Index, optional
        Names of the rows.
    columns : tuple, optional
        Names of the columns; at most one for (n,) data.
    variable : optional
        The ``pm.Data`` whose current value these numbers are, or the chunked array of which they are a sample.
    dims : tuple of str, optional
        Names of the dimensions of an object of xarray.
    is_checked : bool
        Whether the values are known to be the data of a base measure, and are as it takes them.
    """

    what: str
    values: Any
    kinds: tuple[str, ...]
    levels: tuple[tuple[Any, ...] | None, ...]
    rows: pd.Index | None = None
    columns: tuple[Any, ...] | None = None
    variable: Any = None
    dims: tuple[str, ...] | None = None
    is_checked: bool = False

    @property
    def is_sparse(self) -> bool:
        """Whether the values are a sparse matrix."""
        return is_sparse(self.values)

    @property
    def in_model(self) -> Any:
        """The data with one entry per row as in a model: the ``pm.Data``, or else the values."""
        return self.values if self.variable is None else self.variable

    @property
    def is_vector(self) -> bool:
        """Whether the rows are (n,)."""
        return bool(self.values.ndim == 1)

    @property
    def columns_of_matrix(self) -> tuple[Any, ...] | None:
        """Names of the columns of (n, d) data, if they have any; the name of (n,) data is no column's."""
        return None if self.is_vector else self.columns

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.values.shape[0])

    def column_name(self, j: int) -> str:
        """Return how a column is named in a message."""
        if self.columns is None:
            return self.what if self.is_vector else f"column {j} of {self.what}"
        return f"column {self.columns[j]!r} of {self.what}"

    def key_of(self, j: int) -> Any:
        """Return the name of a column, or its position if it has none."""
        return j if self.columns is None else self.columns[j]

    def by_kind(self, at: Iterable[int]) -> dict[str, list[Any]]:
        """Return the names, or positions, of some of the columns by their kinds."""
        names: dict[str, list[Any]] = {}
        for j in at:
            names.setdefault(self.kinds[j], []).append(self.key_of(j))
        return names

    def of_columns(self, wanted: Any) -> "Table":
        """Return a table of some of the columns, or a vector of one.

        Raises
        ------
        ValueError
            If there are no such columns.
        """
        columns = self.columns
        assert columns is not None
        # A tuple may be the name of one column of a table whose columns have several levels of names.
        is_one = is_one_name(wanted) or (isinstance(wanted, tuple) and wanted in columns)
        names = None if is_one else list(wanted)
        if names is not None and isinstance(wanted, Set):
            # A set has no order.
            names.sort(key=lambda name: columns.index(name) if name in columns else -1)
        chosen = [wanted] if names is None else names
        absent = [name for name in chosen if name not in columns]
        if absent:
            raise ValueError(f"{self.what} has no columns {listed(absent)}, only {listed(columns)}")
        if len(set(chosen)) < len(chosen) or not chosen:
            raise ValueError(f"the columns of {self.what} must be named once each, got {listed(chosen)}")
        at = [columns.index(name) for name in chosen]
        values = self.values[:, at[0]] if names is None else self.values[:, at]
        return self._with_columns(at, values)

    def turned(self, dims: tuple[str, ...] | None) -> "Table":
        """Return the table, transposed if it is from xarray and has the dimensions ``dims`` in another order."""
        if dims is None or self.dims is None or self.dims == dims or set(self.dims) != set(dims):
            return self
        names = None if self.columns is None else pd.Index(self.columns)
        columns = None if self.rows is None else tuple(self.rows)
        n_columns = self.values.shape[0]
        return replace(
            self,
            values=self.values.T,
            kinds=self.kinds[:1] * n_columns,
            levels=self.levels[:1] * n_columns,
            rows=names,
            columns=columns,
            dims=dims,
        )

    def in_column_order(self, at: Sequence[int]) -> "Table":
        """Return the same columns in another order."""
        return self._with_columns(at, self.values[:, list(at)])

    def _with_columns(self, at: Sequence[int], values: Any) -> "Table":
        return replace(
            self,
            values=values,
            kinds=tuple(self.kinds[j] for j in at),
            levels=tuple(self.levels[j] for j in at),
            columns=None if self.columns is None else tuple(self.columns[j] for j in at),
            dims=None,
        )

    def in_row_order(self, at: np.ndarray | None, rows: pd.Index | None) -> "Table":
        """Return the rows at the positions ``at`` with the names ``rows``, or the same table if ``at`` is None."""
        return self if at is None else replace(self, values=self.values[at], rows=rows)
