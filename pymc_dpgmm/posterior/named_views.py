"""One view of a mixture, with the names of its columns and categories."""

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as default
from typing import Any

import numpy as np
import pandas as pd

from pymc_dpgmm.families import FAMILIES, BaseMeasure
from pymc_dpgmm.families.contract.base_measure import BASE_MEASURES
from pymc_dpgmm.families.shared.categories import codes_of_new
from pymc_dpgmm.integration.variables import mixture_inputs, of_units
from pymc_dpgmm.integration.variables.records import dataset_of
from pymc_dpgmm.posterior.arrays.atoms import AtomView
from pymc_dpgmm.posterior.arrays.mixtures import ViewDraws
from pymc_dpgmm.posterior.draws import DrawnLabels
from pymc_dpgmm.posterior.stored import Source
from pymc_dpgmm.tables.checks import is_sparse, listed
from pymc_dpgmm.tables.kinds import as_numbers
from pymc_dpgmm.tables.names import as_text, coordinates, is_one_name, plain_names
from pymc_dpgmm.tables.reading import read_table, rows_with_names
from pymc_dpgmm.tables.rows import RowNames, order_of_columns
from pymc_dpgmm.tables.table import Table

# Names of the dimensions of parameters that families denote by these letters.
AXES = {"l": "category", "p": "covariate"}


def _turned(x: Any, dim: str, what: str, has_names: bool) -> Any:
    """Transpose new rows of xarray so that columns come last; anything else is returned as it is.

    Raises
    ------
    ValueError
        If it is unclear which of two dimensions has the columns, and these have names in the data.
    """
    if not hasattr(x, "dims") or not hasattr(x, "transpose"):
        return x
    if dim in x.dims:
        return x.transpose(..., dim)
    if len(x.dims) == 2 and has_names and x.dims[1] not in x.coords:
        raise ValueError(
            f"{what} must have the dimension of the columns, {dim!r}, got dimensions {list(x.dims)}: rename one, "
            f"as in x.rename({x.dims[1]}={dim!r})"
        )
    return x


def _named_line(x: Any) -> pd.Series | None:
    """Return numbers with names, (d,), as a Series; None if a value is something else."""
    if len(getattr(x, "dims", None) or ()) == 1 and hasattr(x, "to_series") and x.dims[0] in x.coords:
        x = x.to_series()
    if isinstance(x, tuple) and hasattr(x, "_asdict") and not any(map(np.ndim, x)):
        x = pd.Series(x._asdict())
    return x if isinstance(x, pd.Series) else None


def _is_number(name: Any) -> bool:
    return isinstance(name, int | float | np.number) and not isinstance(name, bool)


# Stands for the name of a category where a column has fewer of them than others.
NO_CATEGORY = "\N{EMPTY SET}"


@dataclass(kw_only=True, eq=False)
class NamedView(ViewDraws):
    """One view of a mixture, with the names of its columns and categories.

    Parameters
    ----------
    is_vector : bool
        Whether the data is (n,).
    categories : list, optional
        For each column, the names of the categories that are stored as codes.
    levels : list, optional
        For each column, the levels that codes stand for, which may be numbers.
    column : str or number, optional
        Name of (n,) data.
    columns : tuple of str and list of str, optional
        Dimension and names of the columns of sparse data, which is stored without them.
    given_names : dict
        Names of the columns of covariates, exposures or trials.
    kinds : sequence of str
        Of the columns of the data, as in :class:`~pymc_dpgmm.tables.table.Table`; none where they are not known.
    key : str, optional
        How a user calls the view where a mixture has several.
    left_out : dict of int to str
        Columns of the table of the data that the mixture left out: names by position.
    places : list of int
        Of the columns in the frame that the views of a mixture share; none where they share none.
    stored : DataArray, optional
        The observed data, with its coordinates.
    """

    is_vector: bool
    categories: list[list[str] | None] | None = None
    levels: list[list[Any] | None] | None = None
    column: Any = None
    columns: tuple[str, list[Any]] | None = None
    given_names: Mapping[str, list[Any]] = default(default_factory=dict)
    kinds: Sequence[str] = ()
    key: str | None = None
    left_out: Mapping[int, str] = default(default_factory=dict)
    places: Sequence[int] = ()
    stored: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        dim = self._dim_of_columns()
        # Whether the columns have names, and not only positions.
        self.has_column_names = self.columns is not None or (dim is not None and dim in self.stored.coords)
        # Names of the columns; for (n,) data, that of the Series or of the view.
        self.column_names: list[Any] = [self.name if self.column is None else self.column]
        if not self.is_vector:
            self.column_names = plain_names(pd.Index(self.axis("d", self.d)[1]))

    def levels_of(self, j: int) -> list[Any] | None:
        """Return the levels that codes of a column stand for, if it has categories."""
        named = None if self.levels is None else self.levels[j]
        if named is not None or not BASE_MEASURES[self.family.name].takes_categories:
            return named
        return list(range(int(self.params(0).levels[j])))

    def as_in_data(self, j: int, values: np.ndarray) -> np.ndarray:
        """Return numbers of a column as the data had them: levels, bools, or counts as integers."""
        levels = self.levels_of(j)
        if levels is not None:
            return coordinates(levels)[values.astype(np.int64)]
        if not self.family.component.is_discrete or np.isnan(values).any():
            return values
        return values.astype(np.bool_ if self.kinds and self.kinds[j] == "bool" else np.int64)

    # Rows may know something of it.
    has_data = True

    def names_in(self, mixture: str) -> tuple[str, ...]:
        """Return the names by which a user may call the view of a mixture of this name, the shorter one last."""
        return self.name, self.name.removeprefix(f"{mixture}_")

    def named(self, parameter: str) -> str:
        """Return the name of a parameter beside those of other views."""
        return f"{self.name}_{parameter}"

    def category_names(self, length: int) -> np.ndarray | None:
        """Return the names of categories that are stored as codes.

        Parameters
        ----------
        length : int
            The largest number of categories of a column.

        Returns
        -------
        (length,) array of str, or (d, length) if categories differ between columns, padded with NO_CATEGORY; or
        None
        """
        if self.categories is None or max(len(known or ()) for known in self.categories) > length:
            return None
        codes = [str(code) for code in range(length)]
        names = np.array(
            [[*known, *[NO_CATEGORY] * (length - len(known))] if known else codes for known in self.categories]
        )
        return names[0] if np.all(names == names[0]) and NO_CATEGORY not in names else names

    def axis(self, letter: str, length: int) -> tuple[str, np.ndarray]:
        """Return name and coordinates of the dimension that a family denotes by a letter."""
        if letter != "d":
            names = self.given_axis(letter)
            names = self.category_names(length) if names is None else names
            dim = f"{self.name}_{AXES.get(letter, letter)}"
            return dim, np.arange(length) if names is None or names.ndim > 1 else names
        if self.columns is not None:
            return self.columns[0], np.asarray(self.columns[1])
        of_columns = self._dim_of_columns()
        if of_columns is None:
            return f"{self.name}_column", np.arange(length)
        is_named = of_columns in self.stored.coords
        return of_columns, self.stored[of_columns].to_numpy() if is_named else np.arange(length)

    def _dim_of_columns(self) -> str | None:
        """Return the dimension of the columns of stored data; None without one, or if its name is ArviZ's own."""
        data = self.stored
        if data is None or data.ndim < 2 or str(data.dims[-1]).startswith(f"{self.name}_dim_"):
            return None
        return str(data.dims[-1])

    @property
    def columns_as_text(self) -> list[str]:
        """Names of the columns as text, or nothing if they have only positions."""
        return [as_text(name) for name in self.column_names] if self.is_vector or self.has_column_names else []

    def positions(self, columns: Any) -> list[int]:
        """Return the positions of one or several columns that a user chooses by name or position.

        Raises
        ------
        ValueError
            If there is no such column, or one is chosen twice. The message lists the columns.
        """
        names, chosen = self.column_names, []
        texts = [as_text(name) for name in names]
        # Where names are numbers, a number is a name: as a position it would be another column.
        are_numbers = any(map(_is_number, names))
        for column in [columns] if is_one_name(columns, texts) else columns:
            if column in names:
                chosen.append(names.index(column))
            elif as_text(column) in texts:
                chosen.append(texts.index(as_text(column)))
            elif isinstance(column, int | np.integer) and 0 <= column < len(names) and not are_numbers:
                chosen.append(int(column))
            else:
                gone = ": the mixture left it out" if as_text(column) in self.left_out.values() else ""
                raise ValueError(f"there is no column {column!r}, only {listed(names)}{gone}")
        if not chosen or len(set(chosen)) < len(chosen):
            raise ValueError(f"columns must be some of {listed(names)}, each once, got {columns!r}")
        return chosen

    def given_axis(self, letter: str) -> np.ndarray | None:
        """Return the names of covariates on an axis with this letter: (p,) array or None."""
        fields = [field for field, axis in self.family.given.items() if axis == letter and letter != "d"]
        named = [self.given_names[field] for field in fields if self.given_names.get(field)]
        return coordinates(named[0]) if named else None

    def _base_of_new(self, given: Any, rows: RowNames, fields: Collection[str] | None = None) -> BaseMeasure:
        """Return the base measure for new rows with covariates ``given``, by default those of the data."""
        wanted = sorted(self.given if fields is None else fields)
        if given is not None and (not isinstance(given, Mapping) or set(given) != set(wanted)):
            got = sorted(given) if isinstance(given, Mapping) else type(given).__name__
            raise ValueError(f"given must have {wanted or 'nothing'} for {self.name}, got {got}")
        if given is None and any(np.ndim(self.given.get(field, [])) for field in wanted):
            needed = f"{{{wanted[0]!r}: ...}}"
            needed = needed if self.key is None else f"{{{self.key!r}: {needed}}}"
            raise ValueError(
                f"new rows of {self.name} need {wanted}: pass given={needed}, one entry for each new row"
            )
        if given is None:
            return self.base()
        in_order = {field: self._line_of_given(field, value) for field, value in given.items()}
        return self.base(given=BaseMeasure.given_for(in_order, rows, self.given_names))

    def _line_of_given(self, field: str, value: Any) -> Any:
        """Return one line of covariates with names in the order of the data's columns; others as they are."""
        line, names = _named_line(value), self.given_names.get(field)
        if line is None or not names or np.ndim(self.given.get(field, 0)) < 2:
            return value
        own, wanted = ([as_text(name) for name in plain_names(each)] for each in (line.index, names))
        if not set(own) & set(wanted):
            return line.to_numpy() if self.is_line(field, line) else value
        at = order_of_columns(field, own, wanted, "the data")
        return line.to_numpy() if at is None else line.to_numpy()[at]

    def is_line(self, field: str, value: Any) -> bool:
        """Tell whether covariates are one line, without an axis of rows, where the data has one for each row."""
        stored = np.shape(self.given.get(field, 0))
        return len(stored) == 2 and np.shape(value) == stored[1:]

    def _given_columns(self, base: BaseMeasure, data: Any) -> list[Any]:
        """Return columns of covariates for new rows; one line may serve all rows."""
        for field, value in list(base.given.items()):
            n_dims = np.ndim(self.given.get(field, 0))
            line = value[None, :] if self.is_line(field, value) else value
            if line.ndim == n_dims > 0 and len(line) == 1:
                base.given[field] = np.repeat(line, data.shape[0], axis=0)
            width = 1 if line.ndim < 2 else line.shape[1]
            if n_dims == 2 and self.family.given[field] != "d" and width != self.given[field].shape[1]:
                named, wanted = self.given_names.get(field), self.given[field].shape[1]
                raise ValueError(
                    f"{field} of new rows of {self.name} must have {wanted} columns, as the data has, got {width}"
                    + (f": {listed(named)}" if named else "")
                )
        return base.given_columns(data.shape, data)

    def check_given(
        self, n_rows: int, given: Mapping[str, Any] | None, rows: RowNames | None = None
    ) -> np.ndarray:
        """Check the covariates of new rows that are to be drawn, and return them: (n_rows, c) array.

        If ``rows`` have names, covariates are aligned by them.

        Raises
        ------
        ValueError
            If they are missing, or have another number of rows.
        """
        # Include what a family otherwise computes from the rows, such as totals: these rows do not exist yet.
        base = self._base_of_new(given, RowNames("the new rows") if rows is None else rows, self.family.given)
        columns = self._given_columns(base, np.empty((n_rows, self.d)))
        return np.concatenate([np.empty((n_rows, 0)), *columns], axis=1)

    def of_columns(self, chosen: Sequence[int]) -> "NamedView":
        """Return a view of some of the columns, to read new rows that have only these."""
        every = list(range(self.d))
        if list(chosen) == every:
            return self
        some = copy.copy(self)
        some.d, some.is_vector, some.left_out = len(chosen), False, {}
        some.levels = None if self.levels is None else [self.levels[j] for j in chosen]
        some.column_names = [self.column_names[j] for j in chosen]
        return some

    def read_new(self, x: Any, what: str = "") -> Table:
        """Return new rows as a table with the columns of the data, in their order.

        Parameters
        ----------
        x : array_like, frame, series or Table
        what : str
            Name of the user's argument, for messages.

        Raises
        ------
        TypeError, ValueError
            If columns are missing. The message says how many columns rows must have.
        """
        what, names = what or f"new rows of {self.name}", self.column_names
        x = rows_with_names(x)
        line = _named_line(x) if self.d > 1 else None
        if line is not None:
            x = line.to_frame().T.infer_objects()
        x = _turned(x, self.axis("d", self.d)[0], what, self.has_column_names and self.d > 1)
        if not isinstance(x, Table) and not is_sparse(x) and not hasattr(x, "columns"):
            if self.d > 1 and np.ndim(x) == 1:
                x = [list(x)]
            elif np.ndim(x) == 0:
                x = [x]
            if np.shape(x)[:1] == (0,):
                raise ValueError(f"{what} must have at least one row")
        table = read_table(x, what)
        if table.columns is not None and not table.is_vector:
            present, wanted = ([as_text(name) for name in plain_names(each)] for each in (table.columns, names))
            table = replace(table, columns=tuple(present))
            absent = [name for name in wanted if name not in present]
            if not absent:
                table = table.of_columns(wanted)
            elif self.has_column_names or not isinstance(names[0], int):
                raise ValueError(f"{what} have no columns {listed(absent)}, only {listed(present)}")
        if table.is_vector:
            table = replace(table, values=table.values[:, None])
        width = self.d + len(self.left_out)
        if table.columns is None and table.values.shape[1] == width > self.d:
            table = table.in_column_order([j for j in range(width) if j not in self.left_out])
        if table.values.shape[1] != self.d:
            kind = "(m,)" if self.d == 1 else f"(m, {self.d})"
            raise ValueError(
                f"{what} must have shape {kind} for the columns {listed(names)}, got {table.values.shape}"
            )
        return table

    def codes(self, table: Table) -> Any:
        """Return new rows with categories as codes, as the data is stored: (m, d) array or sparse matrix.

        Raises
        ------
        TypeError, ValueError
            If they have other types or categories than the data.
        """
        if table.is_sparse:
            return table.values
        base = BASE_MEASURES[self.family.name]
        if not base.takes_categories:
            values = as_numbers(table, base.__name__)
        else:
            levels = self.levels or [None] * self.d
            values = np.column_stack([codes_of_new(table, j, of_column) for j, of_column in enumerate(levels)])
        if np.isinf(values).any():
            raise ValueError(f"{table.what} must be finite, got infinite values")
        return values

    def check_new(self, values: Any, given: Any, rows: RowNames) -> Any:
        """Check new rows, and return them with columns for their covariates: (m, c).

        Parameters
        ----------
        values : (m, d) array or sparse matrix
            As :meth:`codes` returns them.
        given : dict or None
        rows : RowNames
            Names of the rows, to align the covariates by.

        Raises
        ------
        TypeError, ValueError
            If they are not of the type of the data.
        """
        base = self._base_of_new(given, rows)
        if values.shape[0] == 0:
            raise ValueError(f"new rows of {self.name} must be at least one")
        if not is_sparse(values):
            values = np.concatenate([values, *self._given_columns(base, values)], axis=1)
        # Missing entries pass any check.
        self.family.check_with_gaps(self.params(0), values)
        return values

    def complete(self, values: Any, given: Any, rows: RowNames, *, is_asked: bool) -> Any:
        """Return new rows with columns for what is given with them, such as covariates and totals, after checks.

        It is needed for rows of which nothing is known if columns of the view are asked for.
        """
        if is_sparse(values) or not np.isnan(values).all():
            complete = self.check_new(values, given, rows)
            if is_asked:
                # What a family computes from rows is not there for those of which nothing is known.
                lacking = np.isnan(complete[:, self.d :]).any(axis=1)
                if lacking.any():
                    complete[lacking, self.d :] = self.check_given(len(values), given, rows)[lacking]
            return complete
        complete = np.concatenate([values, self.check_given(len(values), given, rows)], axis=1)
        self.family.check_with_gaps(self.params(0), complete)
        return complete


def read_view(source: Source, name: str, record: Mapping[str, Any], n_labels: int, data: Any) -> NamedView:
    """Return a view of a mixture with labels of ``n_labels`` rows or units, and observed data or None.

    Raises
    ------
    ValueError
        If its family is not known, a variable that is needed was not stored, or rows were removed from ``idata``.
    """
    if record["family"] not in FAMILIES:
        raise ValueError(
            f"the family {record['family']!r} of {name} is not known: import the module that defines it"
        )
    unit = None
    if record["has_unit"]:
        stored = source.find(f"the unit of {name}", record["unit"], lambda model: unit_in(model[name]))
        unit = np.asarray(stored.at(0)).astype(np.int64)
    observed = source.variable(name, "the data, in the group observed_data or, if latent, posterior")
    n_rows = len(np.asarray(observed.at(0)))
    if not record["is_sparse"] and record["rows"] not in (None, n_rows):
        raise ValueError(
            f"idata must have all {record['rows']} rows of {name}, got {n_rows}: select rows of results of this "
            "package's functions, not of idata"
        )
    missing = None if record["missing"] is None else source.variable(record["missing"])
    offset = None
    if record["has_offset"]:
        what = f"the offset of {name}"
        offset = source.find(what, record["offset"], lambda model: mixture_inputs(model[name]).offset)
    return NamedView(
        name=name,
        family=FAMILIES[record["family"]],
        d=int(record["columns"]),
        n_labels=n_labels,
        parameters=source.parameters(name, record["parameters"]),
        given={field: numbers.at(0) for field, numbers in source.parameters(name, record["given"]).items()},
        observed=observed,
        has_triplets=bool(record["is_sparse"]),
        missing=missing,
        offset=offset,
        unit=unit,
        power=float(record.get("power", 1.0)),
        is_vector=bool(record["is_vector"]),
        categories=record["categories"],
        levels=record.get("levels", record["categories"]),
        given_names=record.get("given_names", {}),
        kinds=record.get("kinds") or (),
        left_out=dict(record.get("left_out", [])),
        places=record.get("places", []),
        column=record["column"],
        stored=data,
        columns=(record["column_dim"], record["columns_named"]) if "column_dim" in record else None,
    )


def read_atoms(idata: Any, drawn: DrawnLabels, name: str, record: Mapping[str, Any]) -> AtomView:
    """Return the atoms of the clusters in all draws as a view of the rows.

    Raises
    ------
    ValueError
        If they were not stored.
    """
    atoms, columns = {}, None
    for key, variable in record["entries"].items():
        posterior = dataset_of(idata, "posterior")
        if variable not in posterior:
            raise ValueError(
                f"the draws of the labels have no {variable}: sample with var_names that contain both"
            )
        array = drawn.at_draws(posterior[[variable]])[variable].transpose("chain", "draw", ...)
        atoms[key] = array.to_numpy().reshape(-1, *array.shape[2:])
        if array.ndim == 4 and array.dims[3] in array.coords:
            columns = (str(array.dims[3]), array[array.dims[3]].to_numpy().tolist())
    directions = tuple(record.get("directions", ()))
    return AtomView(name=name, atoms=atoms, columns=columns, directions=directions)


def unit_in(mixture: Any) -> Any:
    """Return the variable that has the unit of each row of a mixture."""
    return of_units(mixture_inputs(mixture).labels)[1]
