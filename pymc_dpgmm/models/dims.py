"""The dims of a mixture's rows and columns, from tables, from coordinates of the model, and from users."""

from typing import Any

import pymc as pm

from pymc_dpgmm.integration.variables.models import value_of
from pymc_dpgmm.tables.names import coordinates
from pymc_dpgmm.tables.table import Table


def dims_of_data(model: pm.Model, table: Table | None) -> tuple[str, ...]:
    """Return the dimensions that pm.Data has in a model; nothing for other data."""
    variable = None if table is None else table.variable
    return tuple(model.named_vars_to_dims.get(getattr(variable, "name", None), None) or ())


def own_dims(model: pm.Model, table: Table | None, dims: Any) -> Any:
    """Return the dimensions of data: the user's, or else those of pm.Data, or of xarray if the model has them.

    Dimensions that the model does not have yet are added with the names of the rows and columns of the data.

    Raises
    ------
    ValueError
        If ``dims`` are the dimensions of an xarray object in another order.
    """
    if table is None:
        return dims
    requested = (dims,) if isinstance(dims, str) else tuple(dims or ())
    wanted = requested or table.dims or ()
    if table.dims is None or wanted == table.dims:
        for dim, names in zip(wanted, (table.rows, table.columns), strict=False):
            if names is not None and dim not in model.dim_lengths and dim not in model.named_vars:
                model.add_coord(dim, coordinates(names))
    if not requested and dims_of_data(model, table):
        return dims_of_data(model, table)
    if not requested:
        return wanted if wanted and all(dim in model.dim_lengths for dim in wanted) else None
    if table.dims is not None and set(wanted) == set(table.dims) and wanted != table.dims:
        raise ValueError(
            f"observed has the dimensions {table.dims}, and dims are {wanted}: transpose it, as by "
            f"observed.transpose{wanted}"
        )
    return dims


def named_dims(model: pm.Model, rows: str, columns: str, table: Table, dims: Any) -> Any:
    """Return the dims of the data. Without ``dims``, add coords with the names of its rows and columns."""
    if dims is not None:
        return dims
    if table.variable is not None:
        return dims_of_data(model, table) or None
    if table.is_vector:
        if table.rows is None:
            return None
        names: list[tuple[str, Any]] = [(model.name_for(f"{rows}_obs"), table.rows)]
    else:
        if table.rows is None and table.columns is None:
            return None
        of_rows = range(table.n_rows) if table.rows is None else table.rows
        of_columns = range(table.values.shape[1]) if table.columns is None else table.columns
        names = [(model.name_for(f"{rows}_obs"), of_rows), (model.name_for(f"{columns}_feature"), of_columns)]
    for dim, values in names:
        model.add_coord(dim, coordinates(values))
    return tuple(dim for dim, _ in names)


def dims_without(model: pm.Model, name: str, table: Table, dims: Any) -> Any:
    """Return the dims of a mixture that has left columns out, with one of its own for those in ``table``."""
    coords = model.coords.get(dims[1]) if isinstance(dims, tuple | list) and len(dims) == 2 else None
    if coords is None or len(coords) == table.values.shape[1]:
        return dims
    model.add_coord(f"{name}_feature", coordinates(table.columns_of_matrix))
    return dims[0], f"{name}_feature"


def shape_of_dims(model: pm.Model, dims: Any) -> tuple[int, ...] | None:
    """Return the lengths of dimensions, None unless the model has all of them."""
    names = (dims,) if isinstance(dims, str) else dims or ()
    if not names or any(name not in model.dim_lengths for name in names):
        return None
    return tuple(int(value_of(model.dim_lengths[name])) for name in names)


def check_dims(model: pm.Model, dims: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless dims, if there are any, have the lengths of a shape."""
    if dims is None:
        return
    if len(dims) != len(shape):
        raise ValueError(f"dims must name {len(shape)} dimensions for shape {shape}, got {dims}")
    for dim, length in zip(dims, shape, strict=True):
        coord = model.coords.get(dim)
        if coord is not None and len(coord) != length:
            raise ValueError(f"dimension {dim!r} has {len(coord)} coords, but the data has {length} along it")
