"""Names of rows from the coordinates of a model, noted with the labels of these rows."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pymc as pm

from pymc_dpgmm.tables.checks import is_variable, listed
from pymc_dpgmm.tables.names import check_coordinates
from pymc_dpgmm.tables.rows import RowNames
from pymc_dpgmm.tables.table import Table


def coords_of(model: pm.Model, dims: Any) -> Any:
    """Return the coordinates that a model has for the first of some dimensions, None if it has none.

    Raises
    ------
    ValueError
        If the model does not have the first dimension, or results cannot hold the coordinates of one of them.
    """
    names = (dims,) if isinstance(dims, str) else tuple(dims or ())
    if names and names[0] not in model.dim_lengths:
        raise ValueError(
            f"the model has no dimension {names[0]!r}: give it coordinates, as in "
            f"pm.Model(coords={{{names[0]!r}: range(n)}}), or leave dims= out"
        )
    for dim in names:
        if model.coords.get(dim) is not None:
            check_coordinates(dim, model.coords[dim])
    return model.coords.get(names[0]) if names else None


def note_rows(labels: Any, rows: RowNames) -> None:
    """Note the names of rows with their labels, for further data on the same labels."""
    labels.tag.rows = rows


def rows_of(model: pm.Model, labels: Any, dims: Any, of: str = "observed") -> RowNames:
    """Return the names of the rows of data on labels: those noted with the labels.

    Parameters
    ----------
    model : pm.Model
    labels : variable
    dims : str or tuple of str or None
        Dimensions of the data.
    of : str
        The data that the rows belong to, for messages.
    """
    coords = coords_of(model, dims)
    if not is_variable(labels):
        return RowNames(of, coords=coords)
    rows = getattr(labels.tag, "rows", None)
    if rows is None:
        rows = RowNames(of, coords=coords)
        note_rows(labels, rows)
    elif rows.coords is None and coords is not None:
        rows.coords = pd.Index(coords)
    return rows


def named_by_coords(model: pm.Model, table: Table, dims: Any) -> Table:
    """Return a table whose columns have the names of a model's coordinates, if they have none of their own.

    Raises
    ------
    ValueError
        If columns have the names of the coordinates in another order.
    """
    names = (dims,) if isinstance(dims, str) else tuple(dims or ())
    coords = model.coords.get(names[1]) if len(names) == 2 else None
    if coords is None or table.is_vector:
        return table
    if table.columns is None:
        # Coordinates that are positions are no names.
        are_names = len(coords) == table.values.shape[1] and list(coords) != list(range(len(coords)))
        return replace(table, columns=tuple(coords)) if are_names else table
    columns = list(table.columns)
    if columns != list(coords) and set(columns) == set(coords):
        raise ValueError(
            f"{table.what} has its columns in another order than the coords of dimension {names[1]!r}: "
            f"{listed(columns)} and {listed(coords)}. Put them into the same one, as by "
            f"{table.what}[list(coords[{names[1]!r}])]"
        )
    return table
