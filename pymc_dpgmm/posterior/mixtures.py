"""Mixtures read back from the results of ``pm.sample``, with the names of their rows, columns and categories.

:mod:`pymc_dpgmm.posterior.arrays.mixtures` computes with the values, and :mod:`pymc_dpgmm.posterior.stored` reads
them.
"""

import copy
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm

from pymc_dpgmm.partitions.priors import GibbsType
from pymc_dpgmm.posterior.arrays.mixtures import MixtureNumbers
from pymc_dpgmm.posterior.draws import Reference, drawn_labels, read_records
from pymc_dpgmm.posterior.named_views import AXES, NamedView, read_atoms, read_view
from pymc_dpgmm.posterior.point_partition import reference_of
from pymc_dpgmm.posterior.stored import (
    Source,
    StoredGroups,
    StoredPrior,
    data_of,
    mixtures_on,
    record_of,
)
from pymc_dpgmm.tables.checks import listed
from pymc_dpgmm.tables.names import as_text, is_one_name, plain_names
from pymc_dpgmm.tables.table import Table


def _is_number(name: Any) -> bool:
    return isinstance(name, int | float | np.number) and not isinstance(name, bool)


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
        self.potentials_on_labels: list[str] = record.get("potentials", [])
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
        if len(chosen) > 1:
            for view in (view for view in self.views if isinstance(view, NamedView)):
                view.key = self.view_name(view)
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
                "package's families: dp.component_draws has the parameters of its clusters, dp.summary tells of "
                "them, and dp.sample_new_rows(..., model=model) draws those of new rows"
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
        self.refuse_atoms(f"this answer about {self.labels_name.removesuffix('_labels')}")
        if len(self.views) > 1:
            raise ValueError(
                f"{self.labels_name} has several views: name one of {[v.name for v in self.views]} instead of "
                "the mixture"
            )
        return self.views[0]

    def of_views(self, names: Collection[str]) -> "MixtureDraws":
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

    def reference(self, reference: Any, random_seed: Any = 0) -> Reference:
        """Check a partition that a user passes, and return it.

        The default is a point partition or, for words, the draw with the largest log joint density. Topics overlap
        too much for a point partition of all tokens to be useful.
        """
        if reference is None and self.is_words():
            return Reference.numbered(self.best_labels())
        return reference_of(self.drawn, reference, random_seed)

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
            dim = f"{view.name}_{AXES.get(letter, letter)}"
            return dim, np.arange(length) if names is None or names.ndim > 1 else names
        if view.columns is not None:
            return view.columns[0], np.asarray(view.columns[1])
        of_columns = self._dim_of_columns(view)
        if data is None or of_columns is None:
            return f"{view.name}_column", np.arange(length)
        return of_columns, data[of_columns].to_numpy() if of_columns in data.coords else np.arange(length)

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
        data, dim = self._observed[view.name], self._dim_of_columns(view)
        return view.columns is not None or (data is not None and dim is not None and dim in data.coords)

    def _dim_of_columns(self, view: NamedView) -> str | None:
        """Return the dimension of the columns of stored data; None without one, or if its name is ArviZ's own."""
        data = self._observed[view.name]
        if data is None or data.ndim < 2 or str(data.dims[-1]).startswith(f"{view.name}_dim_"):
            return None
        return str(data.dims[-1])

    def column_names(self, view: NamedView) -> list[Any]:
        """Return the names of a view's columns; for (n,) data, that of the Series or of the view."""
        if view.is_vector:
            return [view.name if view.column is None else view.column]
        return plain_names(pd.Index(self.axis(view, "d", view.d)[1]))

    def rows_of_group(self, group: Any) -> Any:
        """Return an index of the rows of a group, or of all rows without groups or without a name."""
        if self.groups is None or group is None:
            return slice(None)
        return self.groups.group == self.groups.position(group)

    def positions(self, view: NamedView, columns: Any) -> list[int]:
        """Return the positions of one or several columns that a user chooses by name or position.

        Raises
        ------
        ValueError
            If there is no such column, or one is chosen twice. The message lists the columns.
        """
        names, chosen = self.column_names(view), []
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
                gone = ": the mixture left it out" if as_text(column) in view.left_out.values() else ""
                raise ValueError(f"there is no column {column!r}, only {listed(names)}{gone}")
        if not chosen or len(set(chosen)) < len(chosen):
            raise ValueError(f"columns must be some of {listed(names)}, each once, got {columns!r}")
        return chosen
