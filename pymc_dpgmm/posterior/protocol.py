"""What public functions ask of draws after sampling, whatever they are draws of."""

import copy
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.arrays.mixtures import DrawNumbers
from pymc_dpgmm.posterior.draws import DrawnLabels, Reference
from pymc_dpgmm.posterior.named_views import NamedView
from pymc_dpgmm.posterior.point_partition import reference_of
from pymc_dpgmm.posterior.stored import StoredGroups, StoredOrder, StoredPrior
from pymc_dpgmm.tables.checks import listed
from pymc_dpgmm.tables.names import as_text, is_one_name


class Draws:
    """All draws of a mixture or process. Each kind answers in its own way, and all share how things are named.

    Parameters
    ----------
    idata : xarray.DataTree
    model : pm.Model or None
    drawn : DrawnLabels
    prior : StoredPrior, StoredGroups or StoredOrder
        Of the partition.
    records : sequence of dict
        Those of the labels and of the views.
    views : sequence of views
    numbers : DrawNumbers
    every_view : sequence of str, optional
        Names of all mixtures on the labels, by default those of ``views``.
    """

    # What only labels in memory have.
    groups: StoredGroups | None = None
    is_constrained = False
    # Whether rows come in order.
    are_ordered = False
    others_on_labels: Sequence[str] = ()
    potentials_on_labels: Sequence[str] = ()
    # Whether clusters have sampled atoms (a DirichletProcess), instead of data of a family.
    has_atoms = False

    def __init__(
        self,
        idata: Any,
        model: pm.Model | None,
        drawn: DrawnLabels,
        prior: StoredPrior | StoredGroups | StoredOrder,
        records: Sequence[Mapping[str, Any]],
        views: Sequence[Any],
        numbers: DrawNumbers,
        every_view: Sequence[str] | None = None,
    ) -> None:
        self._idata, self._model, self._prior, self._records = idata, model, prior, records
        self.drawn, self.labels_name, self.row = drawn, str(drawn.labels.name), drawn.row
        self.views, self.numbers = list(views), numbers
        self._every_view = [view.name for view in views] if every_view is None else every_view

    @property
    def name(self) -> str:
        """Name of the mixture or process."""
        return self.labels_name.removesuffix("_labels")

    @property
    def data_views(self) -> list[NamedView]:
        """The views that have data, of which rows may know something."""
        return [view for view in self.views if view.has_data]

    def density(
        self, x: Any, columns: Any, given: Mapping[str, Any] | None, probability: float, random_seed: Any
    ) -> xr.Dataset:
        """Return the result of :func:`pymc_dpgmm.density` with nothing known of the row."""
        raise NotImplementedError

    def new_rows(self, n_rows: int, given: Any, units: Any, random_seed: Any) -> xr.Dataset:
        """Return the result of :func:`pymc_dpgmm.sample_new_rows` with nothing known of the rows.

        ``units`` are those of the rows, as ``read_units`` of ``questions.py`` returns them, or None.
        """
        raise NotImplementedError

    def log_likelihood(self, name: str, random_seed: Any) -> tuple[np.ndarray, str, dict[str, Any]]:
        """Return log likelihoods of rows (n_draws, n), the name of the variable, and its attributes.

        ``name`` is that of one of several views, of which the result is then, or any other name.
        """
        raise NotImplementedError

    def replicates(self, name: str, rng: np.random.Generator) -> xr.Dataset:
        """Return replicates of the data, of one of several views if it has this name."""
        raise NotImplementedError

    def asked(self) -> "Draws":
        """Return the draws with views that can be asked for in new rows."""
        return self

    def refuse_known(self) -> None:
        """Raise NotImplementedError if no density has known entries."""

    def refuse_atoms(self, what: str) -> None:
        """Raise NotImplementedError if clusters have sampled atoms."""

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
        self.refuse_atoms(f"this answer about {self.name}")
        if len(self.views) > 1:
            raise ValueError(
                f"{self.labels_name} has several views: name one of {[v.name for v in self.views]} instead of "
                "the mixture"
            )
        return self.views[0]

    def of_views(self, names: Collection[str]) -> Self:
        """Return the draws with the views of these names only."""
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
        return view.name.removeprefix(f"{self.name}_")

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
        if len(self.views) == 1:
            return given
        fields = set(given) & set(view.family.given)
        if fields and not named:
            raise ValueError(
                f"given of several views is a dict by view: pass given={{{self.view_name(view)!r}: "
                f"{{{next(iter(fields))!r}: ...}}}}"
            )
        return None

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
        short, own = (name.removeprefix(f"{self.name}_") for name in (others[0], named[0]))
        warnings.warn(
            f"{what} does not know the columns of {listed(others)} here: covariates alone say nothing of "
            f"clusters. If these columns are known, use dp.predict(idata, {self.name!r}, {{{short!r}: ...}}, "
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

    def reference(self, reference: Any, random_seed: Any = 0) -> Reference:
        """Check a partition that a user passes, and return it; a point partition by default."""
        return reference_of(self.drawn, reference, random_seed)

    def is_words(self) -> bool:
        """Tell whether the data is words of documents."""
        sole = self.views[0]
        return (
            self.groups is not None
            and len(self.views) == 1
            and sole.family.name == "DirichletCategorical"
            and sole.d == 1
        )

    def cluster_dim(self) -> str:
        """Return the name of the dimension of clusters, which differs from those of rows and columns."""
        taken = {self.row, *(dim for view in self.data_views for dim in getattr(view.stored, "dims", ()))}
        return "cluster" if "cluster" not in taken else f"{self.name}_cluster"

    def rows_of_group(self, group: Any) -> Any:
        """Return an index of the rows of a group, or of all rows without groups or without a name."""
        if self.groups is None or group is None:
            return slice(None)
        return self.groups.group == self.groups.position(group)

    def view_and_columns(self, columns: Any) -> tuple[NamedView, list[int]]:
        """Return the view that columns belong to, and their positions: by default all those of a sole view."""
        if columns is None:
            if len(self.views) > 1 and not self.has_atoms:
                raise ValueError(
                    f"{self.labels_name} has several views: choose one or two columns of one of them with "
                    f"columns=, from {listed(self.all_columns())}, or name one of "
                    f"{[v.name for v in self.views]} instead of the mixture"
                )
            view = self.sole()
            return view, list(range(view.d))
        ((name, chosen), *others) = self.chosen_columns(columns).items()
        if others:
            raise ValueError(f"columns must be of one view, got some of {name} and of {others[0][0]}")
        (view,) = (view for view in self.views if view.name == name)
        return view, chosen

    def all_columns(self) -> list[str]:
        """Return the names of the columns of all views."""
        return [name for view in self.views for name in view.columns_as_text]

    def asks_for_one(self, of: Any) -> bool:
        """Tell whether a user asks for one column or view by its name."""
        return of is not None and is_one_name(of, self.all_columns())

    def chosen_columns(self, of: Any) -> dict[str, list[int]]:
        """Return the columns that a user asks for by the names of columns or views, by view."""
        found: dict[str, list[int]] = {}
        names = {view.name: view.names_in(self.name) for view in self.views}
        for wanted in [of] if self.asks_for_one(of) else list(of):
            owners = [view for view in self.views if as_text(wanted) in view.columns_as_text]
            whole = [view for view in self.views if wanted in names[view.name]]
            if len(owners) > 1:
                raise ValueError(f"several views have a column {wanted!r}: name the view instead, with name=")
            if owners and whole and owners[0] is not whole[0]:
                raise ValueError(
                    f"{wanted!r} is a view, and a column of another one: call the view {whole[0].name!r}; for the "
                    f"column ask the view that has it, by name={owners[0].name!r} in place of the mixture's name"
                )
            if owners:
                view = owners[0]
                positions = [view.columns_as_text.index(as_text(wanted))]
            elif whole:
                view = whole[0]
                positions = list(range(view.d))
            elif len(self.views) == 1:
                view = self.views[0]
                positions = view.positions(wanted)
            else:
                raise ValueError(
                    f"there is no column or view {wanted!r}, only the columns {listed(self.all_columns())} "
                    f"and the views {listed(names[view.name][-1] for view in self.views)}"
                )
            before = found.setdefault(view.name, [])
            before += [j for j in positions if j not in before]
        return found

    def names_of_columns(self, asked: Mapping[str, list[int]]) -> dict[tuple[str, int], str]:
        """Return names for columns, with that of the view where two views have columns of the same name."""
        found = {
            (view.name, j): as_text(view.column_names[j]) for view in self.views for j in asked.get(view.name, [])
        }
        repeated = {name for name in found.values() if list(found.values()).count(name) > 1}
        return {key: f"{key[0]}_{name}" if name in repeated else name for key, name in found.items()}

    def with_names(
        self,
        views: Sequence[NamedView],
        rows_of_views: Sequence[np.ndarray],
        names_of_rows: np.ndarray,
        more: Mapping[str, Any],
    ) -> xr.Dataset:
        """Return new rows (n_draws, m, d) of some views, with names, and further variables."""
        each = ("chain", "draw", "new_row")
        variables: dict[str, Any] = dict(more)
        coords = self.drawn.per_draw() | {"new_row": names_of_rows}
        for view, rows in zip(views, rows_of_views, strict=True):
            values = [self.drawn.by_chain(view.as_in_data(j, rows[..., j])) for j in range(view.d)]
            if view.is_vector:
                variables[view.name] = (each, values[0])
            else:
                dim, labels = view.axis("d", view.d)
                coords[dim] = labels
                # Columns of text beside others keep their types.
                are_alike = len({column.dtype.kind for column in values}) == 1
                stacked = np.stack(values if are_alike else [column.astype(object) for column in values], axis=-1)
                variables[view.name] = ((*each, dim), stacked)
        return xr.Dataset(variables, coords=coords)
