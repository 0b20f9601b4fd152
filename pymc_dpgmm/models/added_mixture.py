"""What the functions for mixtures add to a model: labels, and the mixtures of one or several views on them."""

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable

from pymc_dpgmm.families import BaseMeasure
from pymc_dpgmm.families.contract.base_measure import check_base
from pymc_dpgmm.families.default_base import default_base
from pymc_dpgmm.families.default_views import FAMILIES_OF_VIEWS, default_views, has_views
from pymc_dpgmm.integration.variables import CollapsedMixture, partition_sizes
from pymc_dpgmm.integration.variables.grouped_labels import NamedGroups, numbered_groups
from pymc_dpgmm.integration.variables.lengths import note_lengths
from pymc_dpgmm.integration.variables.models import unchanged_on_error
from pymc_dpgmm.integration.variables.named_rows import coords_of, named_by_coords, note_rows
from pymc_dpgmm.integration.variables.observed import check_observed
from pymc_dpgmm.integration.variables.partition_arguments import start_of_rows
from pymc_dpgmm.integration.variables.records import amend_record
from pymc_dpgmm.models.arguments import MixtureArguments
from pymc_dpgmm.models.dims import (
    check_dims,
    dims_of_data,
    dims_without,
    named_dims,
    own_dims,
    shape_of_dims,
)
from pymc_dpgmm.models.learnt_base import learnt_base, with_scatter
from pymc_dpgmm.native.compiled import logger
from pymc_dpgmm.tables.checks import check_units, is_chunked, is_variable, listed
from pymc_dpgmm.tables.doubtful import warn_of_repeated, warn_of_shared_columns
from pymc_dpgmm.tables.names import as_text, coordinates
from pymc_dpgmm.tables.reading import factorized, read_table
from pymc_dpgmm.tables.rows import RowNames
from pymc_dpgmm.tables.table import Table


class Request(NamedTuple):
    """A user's call: name, prior of labels, base measure, and the arguments of all mixtures."""

    name: str
    prior: Callable[..., Any]
    base: Any
    arguments: MixtureArguments
    group: Any = None
    # What makes the base measure of data for which the user gives none.
    default: Callable[[Table], BaseMeasure] = default_base
    # Further arguments of the prior that have an entry for each row.
    of_rows: Mapping[str, Any] = MappingProxyType({})


class _View:
    """One view: its data, if observed, and its base measure.

    Parameters
    ----------
    name : str
    base : BaseMeasure, class of one, or None
    table : Table or None
        Its data.
    arguments : mapping
        ``offset``, ``unit``, ``impute`` and ``power``.
    rows : RowNames
        Names of its rows. The data is put into their order.
    default : callable
        Makes the base measure of a table for which there is none.
    """

    def __init__(
        self,
        name: str,
        base: Any,
        table: Table | None,
        arguments: Mapping[str, Any],
        rows: RowNames,
        default: Callable[[Table], BaseMeasure],
    ) -> None:
        self.name, self.rows = name, rows
        self.impute, self.offset = arguments["impute"], arguments["offset"]
        self.power = 1.0 if arguments["power"] is None else arguments["power"]
        self.table: Table | None = None
        self.base, self._learns = base, False
        # Names of columns of the data that are not in the mixture, by position.
        self.left_out: dict[int, Any] = {}
        # Places of the columns among those of a frame that views share.
        self.places: list[int] = []
        is_class = isinstance(base, type) and issubclass(base, BaseMeasure)
        if base is not None and not is_class:
            check_base(base)
        if table is None:
            if base is None or is_class:
                raise ValueError(
                    "without observed= the mixture is latent, and a latent mixture needs base= with numbers or "
                    "variables for its parameters, such as "
                    "dp.NormalInverseGamma(mu=0, kappa=0.1, a=2, b=1): there is no data to make one from"
                )
            self.unit = rows.entries("unit", arguments["unit"], _IN_UNITS)
            return
        table = rows.arrange(table)
        self.unit = rows.entries("unit", arguments["unit"], _IN_UNITS)
        warn_of_repeated(table, "unit", self.unit)
        is_made = is_class or base is None
        if is_made:
            table, self.left_out = with_scatter(table, base, self.offset is not None)
        if is_class:
            base = base.from_data(table)
        if base is None:
            base = default(table)
        base = self.base = base.in_order({"d": table.columns_of_matrix})
        self.table = check_observed(table, base)
        learns = is_class or (is_made and default is default_base)
        self._learns = learns and base.family.scale is not None

    def learn(self, column_dim: str | None) -> None:
        """Put variables of the model in place of the scale of a base measure that was made from the data."""
        if self._learns:
            assert self.table is not None
            self.base = learnt_base(self.name, self.base, self.table.values, column_dim)

    def n_rows(self, shape: tuple[int, ...]) -> Any:
        """Return the number of rows: a variable if the data is pm.Data, whose length may change."""
        if self.table is not None and self.table.variable is not None:
            return self.table.variable.shape[0]
        return shape[0]


def add_mixture(request: Request) -> Any:
    """Add labels, the data given the labels, and the number of clusters."""
    model = pm.modelcontext(None)
    name, arguments = request.name, request.arguments
    with unchanged_on_error(model):
        observed = arguments["observed"]
        if any(map(is_chunked, observed.values() if isinstance(observed, Mapping) else [observed])):
            if isinstance(request.base, Mapping):
                raise NotImplementedError(
                    "several views of dask data are not supported: put the columns of one family into one array"
                )
            chunked = importlib.import_module("pymc_dpgmm.models.chunked_mixture")
            return chunked.add_chunked_mixture(
                name, request.prior, request.base, arguments | {"group": request.group}
            )
        if isinstance(request.base, Mapping):
            return _add_views(model, request)
        if arguments["power"] is not None:
            raise ValueError(
                "power is for some of several views: with one, the labels would follow no posterior of the rows"
            )
        shape, dims = arguments["shape"], arguments["dims"]
        table = None if observed is None else read_table(observed)
        if request.base is None and table is not None and arguments["offset"] is None and has_views(table):
            views = default_views(table)
            if len(views) > 1:
                observed = arguments | {"observed": table}
                return _add_views(model, request._replace(base=_told(name, views), arguments=observed))
            ((kind, (columns, _)),) = views.items()
            request = request._replace(base=FAMILIES_OF_VIEWS[kind])
            table = table if len(columns) == len(table.kinds) else table.of_columns(columns)
        dims = own_dims(model, table, dims)
        table = None if table is None else named_by_coords(model, table, dims)
        rows = RowNames("observed", coords=coords_of(model, dims))
        view = _View(name, request.base, table, arguments, rows, request.default)
        if view.table is None:
            shape = shape_of_dims(model, dims) if shape is None else shape
            if shape is None:
                raise ValueError(
                    "a mixture without observed data needs shape=(n,) or shape=(n, d), or dims= whose lengths the "
                    "model knows"
                )
            shape = tuple(int(length) for length in np.atleast_1d(shape))
            if any(length < 1 for length in shape):
                raise ValueError(f"shape must have lengths of at least 1, got {shape}")
        else:
            assert table is not None
            if shape is not None and tuple(np.atleast_1d(shape)) != table.values.shape:
                raise ValueError(f"shape is {shape}, but observed has shape {table.values.shape}")
            shape = view.table.values.shape
            dims = dims_without(model, name, view.table, dims) if view.left_out else dims
            dims = named_dims(model, name, name, view.table, dims)
        dims = (dims,) if isinstance(dims, str) else dims
        check_dims(model, dims, shape)
        labels = _add_labels(model, request, [(view, shape)], dims and dims[:1])
        return _add_view(model, view, labels, shape, dims)


def _add_views(model: pm.Model, request: Request) -> dict[str, Any]:
    name, arguments = request.name, request.arguments
    dims, impute = arguments["dims"], arguments["impute"]
    if arguments["shape"] is not None:
        raise ValueError("a mixture of several views takes its shape from observed")
    if dims is not None and not isinstance(dims, str):
        raise ValueError(f"dims of a mixture of several views name its rows only: one string, got {dims}")
    of_views, columns = _split_views(request.base, arguments["observed"])
    split = {
        key: (base, named_by_coords(model, table, dims_of_data(model, table)))
        for key, (base, table) in of_views.items()
    }
    offsets = _by_view("offset", arguments["offset"], split)
    powers = _by_view("power", arguments["power"], split)
    unit = arguments["unit"]
    units = _by_view("unit", unit if isinstance(unit, Mapping) else dict.fromkeys(split, unit), split)
    of_data = next((own for _, table in split.values() if (own := dims_of_data(model, table))), None)
    coords = coords_of(model, of_data[:1] if dims is None and of_data else dims)
    # Views without units have one label per row, so that their rows must be in the same order.
    of_labels, views = RowNames("observed", coords=coords), {}
    for key, (base, table) in split.items():
        with _naming(key):
            of_view = {"offset": offsets.get(key), "unit": units.get(key), "impute": impute}
            of_view["power"] = powers.get(key, 1.0)
            rows = of_labels if of_view["unit"] is None else RowNames("observed", coords=coords)
            views[key] = _View(f"{name}_{key}", base, table, of_view, rows, request.default)
            views[key].places = _places(columns, table, views[key].left_out)
    if not views:
        raise ValueError("base has no views")
    if impute:
        # The other views integrate missing entries out.
        for view in views.values():
            view.impute = view.base.family.draws_missing
        if not any(view.impute for view in views.values()):
            raise ValueError(
                "impute=True needs a view of Gaussian data: missing entries of others cannot be drawn"
            )
    shapes = {key: view.table.values.shape for key, view in views.items() if view.table is not None}
    # If some view has units, the views have different rows, and each has its own dimension.
    in_common = name if all(view.unit is None for view in views.values()) else None
    named = {key: _view_dims(model, in_common or view.name, view, dims) for key, view in views.items()}
    for key in views:
        check_dims(model, named[key], shapes[key])
    row_dims = (dims,) if dims else next((d[:1] for d in named.values() if d), None)
    labels = _add_labels(model, request, [(view, shapes[key]) for key, view in views.items()], row_dims)
    mixtures = {}
    for key, view in views.items():
        with _naming(key):
            mixtures[key] = _add_view(model, view, labels, shapes[key], named[key])
    return mixtures


def _told(name: str, views: Mapping[str, tuple[list[Any], type]]) -> dict[str, tuple[list[Any], Any]]:
    """Return the base measures of the default views of a table, and log which columns each has."""
    for view, (columns, base) in views.items():
        logger.info(f"{name}_{view}: {listed(columns)} as {base.__name__}")
    # Of numbers, the default base measure warns of what is doubtful.
    return {view: (columns, FAMILIES_OF_VIEWS[view]) for view, (columns, _) in views.items()}


def _by_view(what: str, argument: Any, views: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an argument that is a dict of views, empty if it is None."""
    if argument is None:
        return {}
    if not isinstance(argument, Mapping):
        raise TypeError(f"{what} of several views must be a dict of views, got {type(argument).__name__}")
    unknown = [view for view in argument if view not in views]
    if unknown:
        raise ValueError(f"{what} names the views {unknown}, but there are {list(views)}")
    return argument


def _add_labels(
    model: pm.Model, request: Request, views: Sequence[tuple[_View, tuple[int, ...]]], row_dims: Any
) -> Any:
    """Add the labels of rows, or of units, and the number of their clusters."""
    counts: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    names = None
    for view, shape in views:
        if view.unit is None:
            counts[view.name], numbers[view.name] = view.n_rows(shape), shape[0]
            continue
        view.unit, numbers[view.name], units = _numbered_units(view.unit, shape[0])
        names = units if names is None else names
        if units is not None and not np.array_equal(names, units):
            raise ValueError("the units of all views must have the same names")
        counts[view.name] = (view.unit.max() + 1) if is_variable(view.unit) else numbers[view.name]
    if len(set(numbers.values())) > 1:
        of_what = "rows" if all(view.unit is None for view, _ in views) else "rows or units"
        listed = ", ".join(f"{view} with {n}" for view, n in numbers.items())
        raise ValueError(f"all views must have the same number of {of_what}, got {listed}")
    if any(view.unit is not None for view, _ in views):
        row_dims = None
        if names is not None:
            row_dims = (f"{request.name}_unit",)
            model.add_coord(row_dims[0], coordinates(names))
    if names is None and any(view.unit is not None for view, _ in views):
        # Units in pm.Data are numbers. They have no coordinates, since their number may change.
        names = np.arange(next(iter(numbers.values())))
    rows = RowNames("the units", None if names is None else pd.Index(names))
    for view, _ in views:
        if view.unit is None and names is None:
            rows = view.rows
        elif view.unit is None and view.table is not None:
            at = rows.order(f"observed of {view.name}", view.rows.names)
            view.table = view.table.in_row_order(at, None)
            view.rows = rows
    entries = {key: rows.entries(key, request.arguments[key]) for key in ("known_labels", "must_link")}
    entries |= {key: rows.entries(key, own, _IN_ORDER) for key, own in request.of_rows.items() if own is not None}
    entries["initval"] = start_of_rows(rows, request.arguments["initval"])
    name = f"{request.name}_labels"
    if request.group is None:
        labels = request.prior(name, n=next(iter(counts.values())), dims=row_dims, **entries)
    else:
        if any(view.unit is not None for view, _ in views):
            # A unit with rows in several groups has no single vector of weights.
            raise NotImplementedError("unit is not supported together with group")
        group = request.group
        if not isinstance(group, NamedGroups):
            group = rows.entries("group", group, _IN_GROUPS)
            for view, _ in views:
                warn_of_repeated(view.table, "group", group)
            group = numbered_groups(group, next(iter(numbers.values())))
        labels = request.prior(name, groups=group, dims=row_dims, **entries)
    note_rows(labels, rows)
    if request.group is not None:
        note_lengths(labels, {"group": group.codes})
    if len(views) > 1:
        of_rows = [(view.name, view.table) for view, _ in views if view.unit is None]
        note_lengths(
            labels,
            {f"observed of {view}": table.in_model for view, table in of_rows if table is not None},
        )
    pm.Deterministic(f"{request.name}_n_clusters", partition_sizes(labels).shape[0])
    return labels


# Reasons, for messages, why no entry of unit, group, sequence or order may be missing.
_IN_UNITS, _IN_GROUPS = "every row belongs to a unit", "every row belongs to a group"
_IN_ORDER = "every row has a place in a sequence"


def _are_numbered(values: np.ndarray) -> bool:
    """Tell whether integers are the numbers 0, 1, ... of units, possibly with invalid ones < 0, and not names."""
    used = np.unique(values)
    return bool(used[0] < 0 or (used[0] == 0 and used[-1] < len(used)))


def _numbered_units(unit: Any, n_rows: int) -> tuple[Any, int, Any]:
    """Return the number of each row's unit, the number of units, and their names; no names for pm.Data."""
    if is_variable(unit):
        if not isinstance(unit, SharedVariable):
            raise TypeError("unit must be numbers, names or pm.Data, got an expression of variables")
        return unit, check_units(unit.get_value(borrow=True), n_rows), None
    values = np.asarray(unit)
    if values.dtype.kind in "iu" and _are_numbered(values):
        n_units = check_units(values, n_rows)
        return values, n_units, np.arange(n_units)
    if values.dtype.kind not in "OUSiuMmb":
        raise TypeError(
            f"unit must be integers or names, got dtype {values.dtype}: make them integers with .astype(int), or "
            "text with .astype(str)"
        )
    if values.shape != (n_rows,):
        raise ValueError(f"unit must have one entry per row, shape ({n_rows},), got {values.shape}")
    codes, names = factorized("unit", values)
    if np.any(codes < 0):
        raise ValueError(f"unit has {np.sum(codes < 0)} missing values")
    return codes, check_units(codes, n_rows), names


def _split_views(bases: Mapping[str, Any], observed: Any) -> tuple[dict[str, tuple[Any, Any]], Sequence[Any]]:
    """Return base measure and data of each view, and the columns of a frame that they share, if they do."""
    columns: Sequence[Any] = ()
    if isinstance(observed, Mapping):
        if set(observed) != set(bases):
            raise ValueError(
                f"base and observed must have the same views, got {sorted(bases)} and {sorted(observed)}"
            )
        views = {view: (base, read_table(observed[view])) for view, base in bases.items()}
    else:
        table = None if observed is None else read_table(observed)
        if table is None or table.columns is None or table.is_vector:
            raise TypeError(
                "with a dict of base measures, observed must be a DataFrame or a dict of the same views"
            )
        views, columns = {}, table.columns
        for view, entry in bases.items():
            if not isinstance(entry, tuple) or len(entry) != 2:
                raise TypeError(f"with a DataFrame, base[{view!r}] must be (columns, base), got {entry!r}")
            chosen, base = entry
            with _naming(view):
                views[view] = (base, table.of_columns(chosen))
        warn_of_shared_columns({view: own for view, (_, own) in views.items()})
    taken = [view for view in views if view in ("labels", "n_clusters")]
    if taken:
        raise ValueError(f"a view cannot be named {taken[0]!r}, which the model needs for itself")
    return views, columns


def _places(columns: Sequence[Any], table: Table, left_out: Mapping[int, Any]) -> list[int]:
    """Return where the columns of a view are in the frame that views share; nothing where they share none."""
    if not columns or table.columns is None:
        return []
    return [columns.index(name) for j, name in enumerate(table.columns) if j not in left_out]


@contextlib.contextmanager
def _naming(view: str) -> Iterator[None]:
    """Prefix errors with the name of the view."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"view {view!r}: {error}") from None


def _view_dims(model: pm.Model, named_after: str, view: _View, rows: str | None) -> Any:
    """Return the dims of one view, of its rows and columns."""
    assert view.table is not None
    named = named_dims(model, named_after, view.name, view.table, None)
    if rows is None or view.table.values.ndim == 1:
        return (rows,) if rows else named
    # PyMC cannot name only some of the dims.
    return (rows, *named[1:]) if named else None


def _add_view(model: pm.Model, view: _View, labels: Any, shape: tuple[int, ...], dims: Any) -> Any:
    named = None
    view.learn(dims[1] if dims and len(dims) > 1 else None)
    if view.table is not None and view.table.is_sparse:
        # The value is a table of the non-zeros, with other dimensions than the rows and columns.
        named, dims = dims, None
    if view.unit is not None:
        labels = labels[view.unit]
        note_rows(labels, view.rows)
    mixture = CollapsedMixture(
        view.name,
        labels,
        view.base,
        observed=view.table,
        shape=shape,
        dims=dims,
        offset=view.offset,
        impute=view.impute,
        power=view.power,
    )
    if view.places:
        amend_record(model, view.name, {"places": view.places})
    if view.left_out:
        amend_record(model, view.name, {"left_out": [[j, as_text(name)] for j, name in view.left_out.items()]})
    if view.table is None and dims is not None and len(dims) > 1:
        # Nothing else tells the names of latent columns.
        named = dims
    if named is not None and named[1] in model.coords and model.coords[named[1]] is not None:
        names = np.asarray(model.coords[named[1]]).tolist()
        amend_record(model, view.name, {"column_dim": named[1], "columns_named": [str(name) for name in names]})
    return mixture
