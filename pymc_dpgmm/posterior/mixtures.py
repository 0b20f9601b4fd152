"""Draws of a mixture read back: what each kept partition says of the parameters of its clusters.

What is stored of a mixture comes from :mod:`pymc_dpgmm.posterior.stored`.
"""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
from scipy.sparse import csr_array, vstack

from pymc_dpgmm.distributions import mixture_inputs, of_units
from pymc_dpgmm.families import BASE_MEASURES, FAMILIES, BaseMeasure, Family, View
from pymc_dpgmm.families.base_measure import as_reals
from pymc_dpgmm.families.counts import from_triplets, is_sparse
from pymc_dpgmm.kernels.table import Table
from pymc_dpgmm.partitions import GibbsType, canonical_labels
from pymc_dpgmm.posterior.draws import drawn_labels
from pymc_dpgmm.posterior.stored import Source, StoredPrior, data_of, mixtures_on, record_of

# What the letters are that families have for dimensions of parameters.
_AXES = {"l": "category", "p": "covariate"}


class Part:
    """One view of a mixture: its family, data and parameters in every draw."""

    def __init__(self, source: Source, name: str, record: Mapping[str, Any], n_labels: int) -> None:
        if record["family"] not in FAMILIES:
            raise ValueError(
                f"the family {record['family']!r} of {name} is not known; import the module that defines it"
            )
        self.name = name
        self.family: Family = FAMILIES[record["family"]]
        self.d = int(record["columns"])
        self.is_vector = bool(record["is_vector"])
        # Of each column the names of the categories that are stored as codes.
        self.categories: list[list[str] | None] | None = record["categories"]
        # The name of (n,) data, if it has one.
        self.column: str | None = record["column"]
        self._record, self._n_labels = record, n_labels
        self._parameters = {
            field: source.find(f"{field} of {name}", where) for field, where in record["parameters"].items()
        }
        self._given = {
            field: source.find(f"{field} of {name}", where).at(0) for field, where in record["given"].items()
        }
        self.unit: np.ndarray | None = None
        if record["has_unit"]:
            unit = source.find(f"the unit of {name}", record["unit"], self._in_model(_unit_in))
            self.unit = np.asarray(unit.at(0)).astype(np.int64)
        self._data = source.variable(name, "the data, in the group observed_data or, if latent, posterior")
        n_rows = len(np.asarray(self._data.at(0)))
        if not record["is_sparse"] and record["rows"] not in (None, n_rows):
            raise ValueError(
                f"{name} had {record['rows']} rows, of which {n_rows} are there: choose rows of what these "
                "functions return, not of the draws"
            )
        self._missing = None if record["missing"] is None else source.variable(record["missing"])
        # Where entries are missing that are drawn: (n, d).
        self.drawn_absent: np.ndarray | None = None
        if self._missing is not None:
            self.drawn_absent = np.isnan(np.asarray(self._data.at(0), dtype=np.float64)).reshape(-1, self.d)
        self._offset = None
        if record["has_offset"]:
            self._offset = source.find(f"the offset of {name}", record["offset"], self._in_model(_offset_in))
        self.has_constant_values = all(
            n is None or n.is_constant for n in (self._data, self._missing, self._offset)
        )
        self.has_constant_params = all(n.is_constant for n in self._parameters.values())

    def category_names(self, length: int) -> np.ndarray | None:
        """Return the names of categories that are stored as codes.

        Parameters
        ----------
        length : int
            The largest number of categories of a column.

        Returns
        -------
        (length,) array of str, or (d, length) where columns have others, empty where one has fewer; or None
        """
        if self.categories is None or max(len(own or ()) for own in self.categories) > length:
            return None
        codes = [str(code) for code in range(length)]
        names = np.array([[*own, *[""] * (length - len(own))] if own else codes for own in self.categories])
        return names[0] if np.all(names == names[0]) and "" not in names else names

    def _in_model(self, find: Callable[[Any], Any]) -> Callable[[pm.Model], Any]:
        return lambda model: find(model[self.name])

    def base(self, s: int = 0, given: Mapping[str, Any] | None = None) -> BaseMeasure:
        """Return the base measure of a draw, for the rows of the data or others that come with ``given``."""
        parameters = {field: np.asarray(found.at(s)) for field, found in self._parameters.items()}
        return BASE_MEASURES[self.family.name].restored(parameters, self._given if given is None else given)

    def params(self, s: int) -> Any:
        """Return the parameters of the base measure in a draw, as numbers."""
        return self.family.params(*self.base(s).numbers(self.d))

    def data(self, s: int) -> Any:
        """Return the data in a draw, completed, and less its offset: (n, d), without what is given with rows."""
        data = self._data.at(s)
        if self._record["is_sparse"]:
            n = self._n_labels if self.unit is None else len(self.unit)
            return from_triplets(data, (n, self.d))
        data = np.array(data, dtype=np.float64)
        if self._missing is not None:
            data[np.isnan(data)] = self._missing.at(s)
        if self._offset is not None:
            data = data - np.asarray(self._offset.at(s))
        return data.reshape(len(data), -1)

    def with_given(self, data: Any, base: BaseMeasure) -> Any:
        """Return rows (n, d) with columns for what is given with them."""
        if is_sparse(data):
            return data
        return np.concatenate([data, *base.given_columns(data.shape, data)], axis=1)

    def _base_of_new(self, given: Mapping[str, Any] | None, fields: Collection[str] | None = None) -> BaseMeasure:
        """Return the base measure for new rows, which come with ``given``: by default what the data came with."""
        wanted = sorted(self._given if fields is None else fields)
        if given is not None and set(given) != set(wanted):
            raise ValueError(f"given must have {wanted or 'nothing'} for {self.name}, got {sorted(given)}")
        if given is None and any(np.ndim(self._given.get(field, [])) for field in wanted):
            raise ValueError(f"new rows of {self.name} come with {wanted}: pass given={{{wanted[0]!r}: ...}}")
        return self.base(given=None if given is None else {k: np.asarray(v) for k, v in given.items()})

    def _given_columns(self, base: BaseMeasure, data: Any) -> list[Any]:
        """Return what is given with new rows, which may be one line for all of them."""
        for field, value in list(base.given.items()):
            known = np.ndim(self._given.get(field, 0))
            is_line = value.ndim == 1 and known == 2 and value.shape == self._given[field].shape[1:]
            line = value[None, :] if is_line else value
            if line.ndim == known > 0 and len(line) == 1:
                base.given[field] = np.repeat(line, data.shape[0], axis=0)
        return base.given_columns(data.shape, data)

    def check_given(self, n_rows: int, given: Mapping[str, Any] | None) -> np.ndarray:
        """Return what is given with new rows that are to be drawn, checked: (n_rows, c) array.

        Raises
        ------
        ValueError
            If it is not given, or for another number of rows.
        """
        # Also what a family takes from the rows themselves, where there are any.
        base = self._base_of_new(given, self.family.given)
        columns = self._given_columns(base, np.empty((n_rows, self.d)))
        return np.concatenate([np.empty((n_rows, 0)), *columns], axis=1)

    def _codes(self, x: Any, names: Sequence[Any]) -> np.ndarray:
        """Return the codes that the data's categories give to columns of a pandas object."""
        frame = x.to_frame() if isinstance(x, pd.Series) else x
        codes = []
        for name, column, categories in zip(names, frame, self.categories or [], strict=True):
            values = frame[column]
            if categories is not None:
                texts = values.astype(object).where(values.isna(), values.astype(str))
                unknown = sorted(set(texts.dropna()) - set(categories))
                if unknown:
                    raise ValueError(f"{name} has the categories {categories}, but new rows have {unknown}")
                found = pd.Categorical(texts, categories=categories).codes
                values = pd.Series(np.where(found < 0, np.nan, found))
            codes.append(values.to_numpy(dtype=np.float64))
        return np.column_stack(codes)

    def check_new(self, x: Any, names: Sequence[Any], given: Mapping[str, Any] | None) -> Any:
        """Return new rows as checked values (m, c), with columns for what is given with them.

        ``names`` are those of the columns, by which columns of a DataFrame are taken.

        Raises
        ------
        TypeError, ValueError
            If they are not of the kind of the data; the message says of what width they must be.
        """
        base = self._base_of_new(given)
        if isinstance(x, pd.DataFrame) and not isinstance(names[0], int):
            absent = [name for name in names if name not in x.columns]
            if absent:
                raise ValueError(f"new rows of {self.name} have no columns {absent}, only {list(x.columns)}")
            x = x[list(names)]
        if isinstance(x, pd.DataFrame | pd.Series):
            x = base.to_numpy(x) if self.categories is None else self._codes(x, names)
        if not is_sparse(x):
            x = np.asarray(x)
            if x.dtype.kind in "US" and self.categories is not None:
                x = self._codes(pd.DataFrame(x.reshape(len(x), -1)), names)
            if x.dtype.kind == "O":
                # None is a missing entry.
                x = as_reals(f"new rows of {self.name}", x)
            if x.dtype.kind not in "biuf":
                raise TypeError(f"new rows of {self.name} must be real numbers, got dtype {x.dtype}")
            x = x.astype(np.float64)
            if x.ndim < 2 and self.d == 1:
                x = x.reshape(-1, 1)
            if x.ndim < 2:
                x = x.reshape(1, -1)
        if x.ndim != 2 or x.shape[1] != self.d:
            kind = "(m,)" if self.d == 1 else f"(m, {self.d})"
            raise ValueError(f"new rows of {self.name} must have shape {kind}, got {np.shape(x)}")
        if x.shape[0] == 0:
            raise ValueError(f"there are no new rows of {self.name}")
        if not is_sparse(x) and np.any(np.isinf(x)):
            raise ValueError(f"new rows of {self.name} must be finite, got infinite values")
        values = x if is_sparse(x) else np.concatenate([x, *self._given_columns(base, x)], axis=1)
        # What is missing is of any kind.
        self.family.check_values(self.params(0), values if is_sparse(values) else np.nan_to_num(values, nan=0.0))
        return values


def _unit_in(mixture: Any) -> Any:
    return of_units(mixture_inputs(mixture).labels)[1]


def _offset_in(mixture: Any) -> Any:
    return mixture_inputs(mixture).offset


class Clusters:
    """What one draw of the partition says of its clusters, in one view.

    Parameters
    ----------
    view : _View
        Where data and parameters come from.
    sums : NamedTuple
        Of the K clusters, and of one without rows.
    """

    def __init__(self, view: "_View", sums: Any) -> None:
        self.part, self.family, self._component = view.part, view.family, view.family.component
        self._view, self._params, self._origin = view, view.table.shifted, view.table.origin
        self._sums = sums

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw the parameters of all clusters: arrays (K, ...)."""
        own = type(self._sums)(*(field[:-1] for field in self._sums))
        return self._component.restore(self._component.draw(rng, self._params, own), self._origin)

    def draw_with_new(self, rng: np.random.Generator, n_new: int) -> dict[str, np.ndarray]:
        """Draw the parameters of all clusters, and then of some without rows: arrays (K + n_new, ...)."""
        own = self.draw(rng)
        nothing = self.family.no_sums(self._params, n_new)
        new = self._component.restore(self._component.draw(rng, self._params, nothing), self._origin)
        return {name: np.concatenate([own[name], new[name]]) for name in own}

    def observed_values(self) -> Any:
        """Return the data of the draw, with columns for what is given with its rows: (n, c).

        What is missing is NaN, also where it is drawn.
        """
        absent = self.part.drawn_absent
        if absent is None:
            return self._view.values
        values = self._view.values.copy()
        values[:, : self.part.d][absent] = np.nan
        return values

    def log_predictives(self) -> np.ndarray:
        """Return log predictives of the new rows given each cluster, and a new one: (m, K + 1)."""
        return self._view.table.predictives(self._sums, self._view.n_rows, self._view.n_new, self._view.all_absent)


class Partition(NamedTuple):
    """One draw: canonical labels (n,) and sizes (K,) of the clusters, their prior, and each view's clusters."""

    draw: int
    labels: np.ndarray
    sizes: np.ndarray
    prior: GibbsType
    views: list[Clusters]


class MixtureDraws:
    """All draws of a mixture.

    Parameters
    ----------
    idata : xarray.DataTree
    name : str
        Of a mixture, of one of its views, or of its labels.
    model : pm.Model, optional

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture, or something that it needs has not been stored.
    """

    def __init__(self, idata: Any, name: str, model: pm.Model | None = None) -> None:
        self._idata = idata
        self.drawn = drawn_labels(idata, name)
        self.labels_name = str(self.drawn.labels.name)
        self.row = self.drawn.row
        self.shape = tuple(self.drawn.labels.transpose("chain", "draw", self.row).shape)
        source = Source(idata, self.drawn, model)
        record = record_of(idata, self.labels_name)
        self.is_constrained = bool(record["is_constrained"])
        self._prior = StoredPrior(source, self.labels_name, record, self.shape[-1])
        mixtures = mixtures_on(idata, self.labels_name)
        chosen = [name] if name in mixtures else list(mixtures)
        if not chosen:
            raise ValueError(f"there is no data on the labels {self.labels_name}")
        self.parts = [Part(source, view, mixtures[view], self.shape[-1]) for view in chosen]
        self._observed = {view: data_of(idata, view) for view in chosen}

    @property
    def n_draws(self) -> int:
        """Number of draws of all chains."""
        return self.shape[0] * self.shape[1]

    def by_chain(self, values: np.ndarray) -> np.ndarray:
        """Return numbers of all draws (n_draws, ...) as (chain, draw, ...)."""
        return values.reshape(*self.shape[:2], *values.shape[1:])

    def sole(self) -> Part:
        """Return the only view.

        Raises
        ------
        ValueError
            If there are several.
        """
        if len(self.parts) > 1:
            raise ValueError(
                f"{self.labels_name} has several views: name one of {[p.name for p in self.parts]}, or give new "
                f"rows as a dict of {[self.view_name(p) for p in self.parts]}"
            )
        return self.parts[0]

    def only(self, names: Sequence[str]) -> "MixtureDraws":
        """Return the draws with some of the views alone."""
        some = copy.copy(self)
        some.parts = [part for part in self.parts if part.name in names]
        return some

    def view_name(self, part: Part) -> str:
        """Return the name of a view without that of the mixture."""
        return part.name.removeprefix(f"{self.labels_name.removesuffix('_labels')}_")

    def by_view(self, table: pd.DataFrame) -> dict[str, Any]:
        """Return the columns of a table that each view has.

        Raises
        ------
        ValueError
            If some are not there, or those of a view have no names.
        """
        found = {}
        for part in self.parts:
            view, names = self.view_name(part), self.column_names(part)
            if (part.is_vector and part.column is None) or (not part.is_vector and isinstance(names[0], int)):
                raise ValueError(
                    f"the columns of the view {view!r} have no names: give new rows as a dict of "
                    f"{[self.view_name(p) for p in self.parts]}"
                )
            absent = [name for name in names if name not in table.columns]
            if absent:
                raise ValueError(
                    f"the table of new rows has no columns {absent}, which the view {view!r} has; for some of the "
                    "views, give a dict"
                )
            found[view] = table[names[0]] if part.is_vector else table[names]
        return found

    def depends_on(self) -> list[str]:
        """Return the names of the variables that prior and base measures depend on."""
        records = [
            record_of(self._idata, name) for name in (self.labels_name, *(part.name for part in self.parts))
        ]
        found = [where for record in records for where in record["parameters"].values() if where is not None]
        names = [name for where in found for name in where.get("of", [where.get("variable")]) if name is not None]
        return list(dict.fromkeys(names))

    def priors(self, model: pm.Model | None, n_draws: int, random_seed: Any) -> list[GibbsType]:
        """Return priors on partitions of as many rows as there are, with parameters drawn from their own prior."""
        return self._prior.draw(self._idata, model, n_draws, random_seed)

    def is_observed(self, part: Part) -> bool:
        """Tell whether a view's data is observed, not latent."""
        return self._observed[part.name] is not None

    def cluster_dim(self) -> str:
        """Return the name of the dimension of clusters, another where rows or columns have it themselves."""
        taken = {self.row, *(dim for found in self._observed.values() if found is not None for dim in found.dims)}
        return "cluster" if "cluster" not in taken else f"{self.labels_name.removesuffix('_labels')}_cluster"

    def per_draw(self) -> dict[str, Any]:
        """Return the coordinates of chains and draws."""
        return {dim: self.drawn.labels[dim].to_numpy() for dim in ("chain", "draw")}

    def axis(self, part: Part, letter: str, length: int) -> tuple[str, np.ndarray]:
        """Return name and coordinates of a dimension that a view's family names by a letter."""
        found = self._observed[part.name]
        if letter != "d":
            names = part.category_names(length)
            dim = f"{part.name}_{_AXES.get(letter, letter)}"
            return dim, np.arange(length) if names is None or names.ndim > 1 else names
        if found is None or found.ndim < 2 or str(found.dims[-1]).startswith(f"{part.name}_dim_"):
            return f"{part.name}_column", np.arange(length)
        dim = str(found.dims[-1])
        return dim, found[dim].to_numpy() if dim in found.coords else np.arange(length)

    def check_new(self, part: Part, x: Any, given: Mapping[str, Any] | None) -> Any:
        """Return new rows of a view, checked: see :meth:`Part.check_new`."""
        return part.check_new(x, self.column_names(part), given)

    def column_names(self, part: Part) -> list[Any]:
        """Return the names of a view's columns; that of (n,) data is its Series' or its own."""
        return [part.column or part.name] if part.is_vector else self.axis(part, "d", part.d)[1].tolist()

    def positions(self, part: Part, columns: Any) -> list[int]:
        """Return the positions of columns that a user gives, one or several, by name or position.

        Raises
        ------
        ValueError
            If there is no such column, or one is given twice; the message says what there is.
        """
        names, chosen = self.column_names(part), []
        for column in [columns] if isinstance(columns, str | int | np.integer) else columns:
            if column in names:
                chosen.append(names.index(column))
            elif isinstance(column, int | np.integer) and 0 <= column < len(names):
                chosen.append(int(column))
            else:
                raise ValueError(f"there is no column {column!r}, only {names}")
        if not chosen or len(set(chosen)) < len(chosen):
            raise ValueError(f"columns must be some of {names}, each once, got {columns!r}")
        return chosen

    def partitions(self, new: Sequence[Any] | None = None) -> Iterator[Partition]:
        """Return draw by draw what the partition says.

        Parameters
        ----------
        new : sequence of (m, c) arrays, optional
            New rows of each view, which are represented together with the data.
        """
        rows = [None] * len(self.parts) if new is None else new
        views = [_View(part, x) for part, x in zip(self.parts, rows, strict=True)]
        for s, own in enumerate(self.drawn.rows):
            labels, n_clusters = canonical_labels(own)
            sizes = np.bincount(labels, minlength=n_clusters)
            yield Partition(s, labels, sizes, self._prior.at(s), [view.at(s, labels, sizes) for view in views])


class _View:
    """Data of a part, and new rows, as its family represents them, kept while they stay the same."""

    def __init__(self, part: Part, new: Any) -> None:
        self.part, self.family, self._new = part, part.family, new
        self.n_rows, self.n_new = 0, 0 if new is None else new.shape[0]
        self.values: Any = None
        self.all_absent: np.ndarray | None = None
        self.absent: np.ndarray | None = None
        self.table: Any = None
        self._numbers: Any = None
        if new is None or is_sparse(new):
            return
        absent = np.isnan(new[:, : part.d])
        if not absent.any():
            return
        if part.family.incomplete is not None:
            self.family = part.family.incomplete
        elif not part.family.takes_missing:
            self.absent = absent
            if part.family.log_predictive_present is None:
                raise ValueError(
                    f"{part.family.name} takes no missing entries and has no marginal densities of some columns"
                )

    def at(self, s: int, labels: np.ndarray, sizes: np.ndarray) -> Clusters:
        """Return the clusters of a draw, with canonical labels and their sizes."""
        new_params = self._numbers is None or not self.part.has_constant_params
        new_rows = self.table is None or not self.part.has_constant_values
        if new_params:
            self._numbers = self.family.params(*self.part.params(s))
        if new_rows:
            data = self.part.data(s)
            self.n_rows = data.shape[0]
            if self.absent is not None and self.all_absent is None:
                # Of the data nothing is missing by now.
                of_data = np.zeros((self.n_rows, self.part.d), dtype=np.bool_)
                self.all_absent = np.concatenate([of_data, self.absent])
            self.values = self.part.with_given(data, self.part.base(s))
            view = View(self.family, self._numbers, self._with_new(self.values))
            self.table = Table(view, len(sizes), for_sampling=self._new is not None)
        elif new_params:
            self.table.set_params(self._numbers)
        if self.part.unit is not None:
            labels = labels[self.part.unit]
            sizes = np.bincount(labels, minlength=len(sizes))
        if len(sizes) + 1 > self.table.capacity:
            self.table.resize(len(sizes) + 1)
        self.table.sum_up(labels, np.append(sizes, 0))
        sums = self.table.sums(0, len(sizes) + 1)
        return Clusters(self, type(sums)(*(field.copy() for field in sums)))

    def _with_new(self, values: Any) -> Any:
        if self._new is None:
            return values
        if is_sparse(values) or is_sparse(self._new):
            return vstack(
                [csr_array(values)[:, : self.part.d], csr_array(self._new)[:, : self.part.d]], format="csr"
            )
        new = self._new
        if self.absent is not None:
            # Any number will do where none is looked at.
            new = new.copy()
            new[:, : self.part.d][self.absent] = np.broadcast_to(values[0, : self.part.d], self.absent.shape)[
                self.absent
            ]
        return np.concatenate([values, new])
