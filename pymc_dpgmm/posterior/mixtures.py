"""Mixtures read back from the results of ``pm.sample``, with the names of their rows, columns and categories.

:mod:`pymc_dpgmm.posterior.arrays.mixtures` computes with the values, and :mod:`pymc_dpgmm.posterior.stored` reads
them.
"""

import copy
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as default
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_dpgmm.families import FAMILIES, BaseMeasure
from pymc_dpgmm.families.contract.base_measure import BASE_MEASURES
from pymc_dpgmm.families.shared.categories import codes_of_new
from pymc_dpgmm.integration.variables import mixture_inputs, of_units
from pymc_dpgmm.partitions.priors import GibbsType
from pymc_dpgmm.posterior.arrays.atoms import AtomView
from pymc_dpgmm.posterior.arrays.mixtures import MixtureNumbers, ViewDraws
from pymc_dpgmm.posterior.draws import DrawnLabels, drawn_labels
from pymc_dpgmm.posterior.point_partition import reference_labels
from pymc_dpgmm.posterior.stored import (
    Source,
    StoredGroups,
    StoredPrior,
    data_of,
    mixtures_on,
    read_records,
    record_of,
)
from pymc_dpgmm.tables.checks import is_sparse, listed
from pymc_dpgmm.tables.kinds import as_numbers
from pymc_dpgmm.tables.names import as_text, coordinates, plain_names
from pymc_dpgmm.tables.reading import read_table, rows_with_names
from pymc_dpgmm.tables.rows import Rows
from pymc_dpgmm.tables.table import Table

# Names of the dimensions of parameters that families denote by these letters.
_AXES = {"l": "category", "p": "covariate"}


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
    """

    is_vector: bool
    categories: list[list[str] | None] | None = None
    levels: list[list[Any] | None] | None = None
    column: Any = None
    columns: tuple[str, list[Any]] | None = None
    given_names: Mapping[str, list[Any]] = default(default_factory=dict)

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
        (length,) array of str, or (d, length) if categories differ between columns, padded with ""; or None
        """
        if self.categories is None or max(len(known or ()) for known in self.categories) > length:
            return None
        codes = [str(code) for code in range(length)]
        names = np.array(
            [[*known, *[""] * (length - len(known))] if known else codes for known in self.categories]
        )
        return names[0] if np.all(names == names[0]) and "" not in names else names

    def given_axis(self, letter: str) -> np.ndarray | None:
        """Return the names of covariates on an axis with this letter: (p,) array or None."""
        fields = [field for field, axis in self.family.given.items() if axis == letter and letter != "d"]
        named = [self.given_names[field] for field in fields if self.given_names.get(field)]
        return coordinates(named[0]) if named else None

    def _base_of_new(self, given: Any, rows: Rows, fields: Collection[str] | None = None) -> BaseMeasure:
        """Return the base measure for new rows with covariates ``given``, by default those of the data."""
        wanted = sorted(self.given if fields is None else fields)
        if given is not None and (not isinstance(given, Mapping) or set(given) != set(wanted)):
            got = sorted(given) if isinstance(given, Mapping) else type(given).__name__
            raise ValueError(f"given must have {wanted or 'nothing'} for {self.name}, got {got}")
        if given is None and any(np.ndim(self.given.get(field, [])) for field in wanted):
            raise ValueError(
                f"new rows of {self.name} need {wanted}: pass given={{{wanted[0]!r}: ...}}, one entry for each "
                "new row"
            )
        if given is None:
            return self.base()
        read = BaseMeasure.given_for(given, rows, self.given_names)
        return self.base(given=read)

    def _given_columns(self, base: BaseMeasure, data: Any) -> list[Any]:
        """Return columns of covariates for new rows; one line may serve all rows."""
        for field, value in list(base.given.items()):
            n_dims = np.ndim(self.given.get(field, 0))
            is_line = value.ndim == 1 and n_dims == 2 and value.shape == self.given[field].shape[1:]
            line = value[None, :] if is_line else value
            if line.ndim == n_dims > 0 and len(line) == 1:
                base.given[field] = np.repeat(line, data.shape[0], axis=0)
        return base.given_columns(data.shape, data)

    def check_given(self, n_rows: int, given: Mapping[str, Any] | None, rows: Rows | None = None) -> np.ndarray:
        """Check the covariates of new rows that are to be drawn, and return them: (n_rows, c) array.

        If ``rows`` have names, covariates are aligned by them.

        Raises
        ------
        ValueError
            If they are missing, or have another number of rows.
        """
        # Include what a family otherwise computes from the rows, such as totals: these rows do not exist yet.
        base = self._base_of_new(given, Rows("the new rows") if rows is None else rows, self.family.given)
        columns = self._given_columns(base, np.empty((n_rows, self.d)))
        return np.concatenate([np.empty((n_rows, 0)), *columns], axis=1)

    def of_columns(self, chosen: Sequence[int]) -> "NamedView":
        """Return a view of some of the columns, to read new rows that have only these."""
        every = list(range(self.d))
        if list(chosen) == every:
            return self
        some = copy.copy(self)
        some.d, some.is_vector = len(chosen), False
        some.levels = None if self.levels is None else [self.levels[j] for j in chosen]
        return some

    def read_new(
        self, x: Any, names: Sequence[Any], dim: str, what: str = "", *, are_named: bool = False
    ) -> Table:
        """Return new rows as a table with the columns of the data, in their order.

        Parameters
        ----------
        x : array_like, frame, series or Table
        names : sequence
            Names of the columns of the data, to select named columns by.
        dim : str
            Dimension of the columns, to transpose xarray objects by.
        what : str
            Name of the user's argument, for messages.
        are_named : bool
            Whether the columns of the data have names, and not only positions.

        Raises
        ------
        TypeError, ValueError
            If columns are missing. The message says how many columns rows must have.
        """
        what = what or f"new rows of {self.name}"
        x = rows_with_names(x)
        x = self._decoded(_turned(x, dim, what, are_named and self.d > 1))
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
            elif are_named or not isinstance(names[0], int):
                raise ValueError(f"{what} have no columns {listed(absent)}, only {listed(present)}")
        if table.is_vector:
            table = replace(table, values=table.values[:, None])
        if table.values.shape[1] != self.d:
            kind = "(m,)" if self.d == 1 else f"(m, {self.d})"
            raise ValueError(
                f"{what} must have shape {kind} for the columns {listed(names)}, got {table.values.shape}"
            )
        return table

    def _decoded(self, x: Any) -> Any:
        """Replace the codes of categories in results of :func:`sample_new_rows` by their levels."""
        named = [key for key in getattr(x, "attrs", {}) if str(key).startswith("categories")]
        if not named or self.levels is None or not hasattr(x, "dims"):
            return x
        values = np.asarray(x).reshape(-1, self.d)
        columns = {
            j: values[:, j] if levels is None else np.asarray(levels, dtype=object)[values[:, j].astype(np.int64)]
            for j, levels in enumerate(self.levels)
        }
        return columns[0] if self.is_vector else np.array(pd.DataFrame(columns), dtype=object)

    def codes(self, table: Table) -> Any:
        """Return new rows with categories as codes, as the data is stored: (m, d) array or sparse matrix.

        Raises
        ------
        TypeError, ValueError
            If they have other types or categories than the data.
        """
        if is_sparse(table.values):
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

    def check_new(self, values: Any, given: Any, rows: Rows) -> Any:
        """Check new rows, and return them with columns for their covariates: (m, c).

        Parameters
        ----------
        values : (m, d) array or sparse matrix
            As :meth:`codes` returns them.
        given : dict or None
        rows : Rows
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


def read_view(source: Source, name: str, record: Mapping[str, Any], n_labels: int) -> NamedView:
    """Return a view of a mixture with labels of ``n_labels`` rows or units.

    Raises
    ------
    ValueError
        If its family is not known, a variable that is needed was not stored, or rows were removed from ``idata``.
    """
    if record["family"] not in FAMILIES:
        raise ValueError(
            f"the family {record['family']!r} of {name} is not known: import the module that defines it"
        )
    parameters, given = (
        {field: source.find(f"{field} of {name}", where) for field, where in record[kind].items()}
        for kind in ("parameters", "given")
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
        parameters=parameters,
        given={field: numbers.at(0) for field, numbers in given.items()},
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
        column=record["column"],
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
        posterior = idata["posterior"].dataset if "posterior" in idata.children else xr.Dataset()
        values = drawn.at_draws(posterior[[variable]]) if variable in posterior else None
        if values is None:
            raise ValueError(
                f"the draws of the labels have no {variable}: sample with var_names that contain both"
            )
        array = values[variable].transpose("chain", "draw", ...)
        atoms[key] = array.to_numpy().reshape(-1, *array.shape[2:])
        if array.ndim == 4 and array.dims[3] in array.coords:
            columns = (str(array.dims[3]), array[array.dims[3]].to_numpy().tolist())
    directions = tuple(record.get("directions", ()))
    return AtomView(name=name, atoms=atoms, columns=columns, directions=directions)


def unit_in(mixture: Any) -> Any:
    """Return the variable that has the unit of each row of a mixture."""
    return of_units(mixture_inputs(mixture).labels)[1]


class MixtureDraws:
    """All draws of a mixture.

    Parameters
    ----------
    idata : xarray.DataTree
    name : str
        Name of a mixture, of one of its views, or of its labels.
    model : pm.Model, optional
    group : str or int, optional
        Name of the group of new rows, by default a new group.

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or a variable that is needed was not stored.
    """

    def __init__(self, idata: Any, name: str, model: pm.Model | None = None, group: Any = None) -> None:
        self._idata = idata
        self.drawn = drawn_labels(idata, name)
        self.labels_name = str(self.drawn.labels.name)
        self.row = self.drawn.row
        source, records = Source(idata, self.drawn, model), read_records(idata)
        record = record_of(records, self.labels_name)
        self.is_constrained = bool(record["is_constrained"])
        self.others_on_labels: list[str] = record.get("dependents", [])
        self.groups = StoredGroups(source, self.labels_name, record, group) if "groups" in record else None
        if group is not None and self.groups is None:
            raise ValueError(f"the rows of {self.labels_name} are in no groups: leave out group={group!r}")
        self._prior = self.groups or StoredPrior(source, self.labels_name, record, self.drawn.n)
        mixtures = mixtures_on(records, self.labels_name)
        chosen = [name] if name in mixtures else list(mixtures)
        if not chosen:
            raise ValueError(f"no mixture depends on the labels {self.labels_name}")
        self._records = [record, *(mixtures[view] for view in chosen)]
        # All mixtures that depend on the labels, also those that were not asked for.
        self._every_view = list(mixtures)
        self.views: list[Any] = [
            read_atoms(idata, self.drawn, view, mixtures[view])
            if "entries" in mixtures[view]
            else read_view(source, view, mixtures[view], self.drawn.n)
            for view in chosen
        ]
        of_atoms = next((mixtures[view] for view in chosen if "entries" in mixtures[view]), {})
        # For a DirichletProcess: names of the variables of rows' parameters, by key, and digests of their bases.
        self.entries: dict[str, str] | None = of_atoms.get("entries")
        self.digests: dict[str, str] = of_atoms.get("digests", {})
        of_rows = None if self.groups is None else self.groups.group
        self.numbers = MixtureNumbers(self.drawn.rows, self._prior.seats, self.views, of_rows)
        self._observed = {view: data_of(idata, view) for view in chosen}

    @property
    def has_atoms(self) -> bool:
        """Whether clusters have sampled atoms (a DirichletProcess), instead of data of a family."""
        return self.entries is not None

    def prior_of_rows(self, s: int) -> GibbsType:
        """Return the prior on partitions of the rows in draw ``s``."""
        assert isinstance(self._prior, StoredPrior)
        return self._prior.of_rows(s)

    def refuse_atoms(self, what: str) -> None:
        """Raise NotImplementedError if clusters have sampled atoms."""
        if self.has_atoms:
            raise NotImplementedError(
                f"{what} is not implemented for parameters under a dp.DirichletProcess, only for mixtures of the "
                "package's families"
            )

    def refuse_powers(self, what: str, views: Sequence[Any] | None = None) -> None:
        """Raise ValueError if some views, by default all, count with a power, which makes their rows no data."""
        powered = [view.name for view in (self.views if views is None else views) if not view.is_density]
        if powered:
            raise ValueError(
                f"{what} needs a density of the rows, and {powered[0]}, which has power=, is none: what it tells "
                "of the labels is all there is. dp.predict and the dp.log_density of rows held out are for other "
                "views given this one"
            )

    def sole(self) -> NamedView:
        """Return the single view.

        Raises
        ------
        ValueError
            If there are several.
        """
        self.refuse_atoms(f"what was asked for of {self.labels_name.removesuffix('_labels')}")
        if len(self.views) > 1:
            raise ValueError(
                f"{self.labels_name} has several views: name one of {[v.name for v in self.views]} instead of "
                "the mixture"
            )
        return self.views[0]

    def of_views(self, names: Collection[str]) -> "MixtureDraws":
        """Return the same draws with only the views of these names."""
        some = copy.copy(self)
        some.views = [view for view in self.views if view.name in names]
        if len(some.views) < len(self.views):
            some.numbers = self.numbers.only(names)
        return some

    def name_of(self, view: Any, parameter: str) -> str:
        """Return the name of a clusters' parameter in results: with that of its view if there are several."""
        return parameter if len(self.views) == 1 else str(view.named(parameter))

    def view_name(self, view: NamedView) -> str:
        """Return the name of a view without that of the mixture."""
        return view.name.removeprefix(f"{self.labels_name.removesuffix('_labels')}_")

    def as_rows(self, new: Any) -> Any:
        """Return new rows: a Series is one row of a table, unless the data has a single column."""
        if isinstance(new, pd.Series) and (len(self.views) > 1 or not self.views[0].is_vector):
            return new.to_frame().T.infer_objects()
        return new

    def given_of(self, view: NamedView, given: Any) -> Any:
        """Return the covariates of new rows in one view.

        ``given`` may be a dict by view, and must be one if there are several views.
        """
        if not isinstance(given, Mapping):
            return given
        named = {view.name, self.view_name(view)} & set(given)
        if named and not named & set(view.family.given):
            return given[next(iter(named))]
        return given if len(self.views) == 1 else None

    def warn_of_covariates(self, given: Any, what: str) -> None:
        """Warn if covariates are given, and other views of the same rows are not known.

        Covariates say nothing of clusters. If they are columns of another view, as in a regression by mixtures,
        rows with these covariates belong to other clusters than ``what`` takes them to.
        """
        named = [
            v.name for v in self.views if "p" in v.family.given.values() and self.given_of(v, given) is not None
        ]
        others = [view for view in self._every_view if view not in named]
        if not named or not others:
            return
        mixture, short = self.labels_name.removesuffix("_labels"), others[0]
        short, own = (name.removeprefix(f"{mixture}_") for name in (short, named[0]))
        warnings.warn(
            f"{what} does not know the columns of {listed(others)} here: covariates alone say nothing of "
            f"clusters. If these columns are known, use dp.predict(idata, {mixture!r}, {{{short!r}: ...}}, "
            f"of={own!r}, given={{{own!r}: {{'covariates': ...}}}})",
            UserWarning,
            stacklevel=4,
        )

    def depends_on(self) -> list[str]:
        """Return the names of the variables that the prior on partitions and the base measures depend on."""
        sources = [
            where for record in self._records for where in record["parameters"].values() if where is not None
        ]
        names = [
            name for where in sources for name in where.get("of", [where.get("variable")]) if name is not None
        ]
        return list(dict.fromkeys(names))

    def priors(self, model: pm.Model | None, n_draws: int, random_seed: Any) -> list[GibbsType]:
        """Return priors on partitions of the rows, with parameters drawn from their hyperprior."""
        return self._prior.draw(self._idata, model, n_draws, random_seed)

    def best_draw(self) -> int:
        """Return the number of the draw with the largest log joint density, or the last if it is not stored."""
        statistics = self._idata["sample_stats"].dataset if "sample_stats" in self._idata.children else {}
        if f"{self.labels_name}_log_joint" not in statistics:
            return self.numbers.n_draws - 1
        log_joint = self.drawn.at_draws(statistics[[f"{self.labels_name}_log_joint"]])
        if log_joint is None:
            return self.numbers.n_draws - 1
        return int(log_joint[f"{self.labels_name}_log_joint"].transpose("chain", "draw").to_numpy().argmax())

    def is_words(self) -> bool:
        """Tell whether the data is words of documents."""
        sole = self.views[0]
        return (
            self.groups is not None
            and len(self.views) == 1
            and sole.family.name == "DirichletCategorical"
            and sole.d == 1
        )

    def best_labels(self) -> np.ndarray:
        """Return the labels of the draw with the largest log joint density, from 0 on without gaps: (n,) int64."""
        return np.unique(self.numbers.labels[self.best_draw()], return_inverse=True)[1].astype(np.int64)

    def reference(self, reference: Any, random_seed: Any = 0) -> np.ndarray:
        """Check the labels of a partition that a user passes, and return them: (n,) int64 array.

        The default is a point partition or, for words, the draw with the largest log joint density. Topics overlap
        too much for a point partition of all tokens to be useful.
        """
        if reference is None and self.is_words():
            return self.best_labels()
        return reference_labels(self.drawn, reference, random_seed)

    def is_observed(self, view: NamedView) -> bool:
        """Tell whether a view's data is observed, not latent."""
        return self._observed[view.name] is not None

    def cluster_dim(self) -> str:
        """Return the name of the dimension of clusters, which differs from those of rows and columns."""
        taken = {self.row, *(dim for data in self._observed.values() if data is not None for dim in data.dims)}
        return "cluster" if "cluster" not in taken else f"{self.labels_name.removesuffix('_labels')}_cluster"

    def axis(self, view: NamedView, letter: str, length: int) -> tuple[str, np.ndarray]:
        """Return name and coordinates of the dimension that a family denotes by a letter."""
        data = self._observed[view.name]
        if letter != "d":
            names = view.given_axis(letter)
            names = view.category_names(length) if names is None else names
            dim = f"{view.name}_{_AXES.get(letter, letter)}"
            return dim, np.arange(length) if names is None or names.ndim > 1 else names
        if view.columns is not None:
            return view.columns[0], np.asarray(view.columns[1])
        if data is None or data.ndim < 2 or str(data.dims[-1]).startswith(f"{view.name}_dim_"):
            return f"{view.name}_column", np.arange(length)
        dim = str(data.dims[-1])
        return dim, data[dim].to_numpy() if dim in data.coords else np.arange(length)

    def read_new(self, view: NamedView, x: Any) -> Table:
        """Return new rows of a view as a table: see :meth:`NamedView.read_new`."""
        dim = self.axis(view, "d", view.d)[0]
        if self.is_words() and getattr(x, "ndim", 1) == 2:
            raise ValueError(
                f"new rows of {view.name} must be words, of shape (m,), got {x.ndim} dimensions. For new "
                "documents use dp.held_out_log_likelihood"
            )
        return view.read_new(x, self.column_names(view), dim, are_named=self.has_column_names(view))

    def has_column_names(self, view: NamedView) -> bool:
        """Tell whether the columns of a view have names, and not only positions."""
        data = self._observed[view.name]
        of_data = data is not None and data.ndim == 2 and data.dims[-1] in data.coords
        return view.columns is not None or (not view.is_vector and of_data)

    def column_names(self, view: NamedView) -> list[Any]:
        """Return the names of a view's columns; for (n,) data, that of the Series or of the view."""
        if view.is_vector:
            return [view.name if view.column is None else view.column]
        return plain_names(pd.Index(self.axis(view, "d", view.d)[1]))

    def positions(self, view: NamedView, columns: Any) -> list[int]:
        """Return the positions of one or several columns that a user chooses by name or position.

        Raises
        ------
        ValueError
            If there is no such column, or one is chosen twice. The message lists the columns.
        """
        names, chosen = self.column_names(view), []
        is_one = isinstance(columns, str | int | np.integer)
        if isinstance(columns, tuple) and as_text(columns) in names:
            # A tuple can be the name of one column with several levels.
            is_one = True
        for column in [columns] if is_one else columns:
            column = as_text(column) if isinstance(column, tuple) else column
            if column in names:
                chosen.append(names.index(column))
            elif isinstance(column, int | np.integer) and 0 <= column < len(names):
                chosen.append(int(column))
            else:
                raise ValueError(f"there is no column {column!r}, only {listed(names)}")
        if not chosen or len(set(chosen)) < len(chosen):
            raise ValueError(f"columns must be some of {listed(names)}, each once, got {columns!r}")
        return chosen
