"""Draws of a mixture as numbers: what each kept partition says of the parameters of its clusters."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, vstack

from pymc_dpgmm.families import BASE_MEASURES, BaseMeasure, Family, View
from pymc_dpgmm.families.shared.counts import from_triplets
from pymc_dpgmm.partitions.priors import canonical_labels
from pymc_dpgmm.posterior.arrays.seats import Seats
from pymc_dpgmm.sampler.state.table import Table
from pymc_dpgmm.tables.checks import is_sparse

# Draws whose rows are put together to see how they are distributed.
MOST_POOLED = 500


class Numbers(NamedTuple):
    """Numbers of every draw: a function of the draw's index, and whether they are the same for all."""

    at: Callable[[int], Any]
    is_constant: bool


def constant(value: Any) -> Numbers:
    """Return numbers that are the same for all draws."""
    return Numbers(lambda s: value, True)


@dataclass(kw_only=True, eq=False)
class ViewDraws:
    """One view of a mixture: its family, and its data and parameters in every draw.

    Parameters
    ----------
    name : str
    family : Family
    d : int
        Columns of the data.
    n_labels : int
        Rows, or units, that have labels.
    parameters : mapping of Numbers
        Of the base measure, by name.
    given : mapping
        What comes with the rows, by the name of the base measure's argument.
    observed : Numbers
        The data, (n,) or (n, d), NaN where an entry is missing, or the triplets of a sparse matrix.
    has_triplets : bool
        Whether the data is the triplets of a sparse matrix.
    missing : Numbers, optional
        Values of the entries that are missing and drawn.
    offset : Numbers, optional
    unit : (n,) int64 array, optional
        The unit of each row.
    """

    name: str
    family: Family
    d: int
    n_labels: int
    parameters: Mapping[str, Numbers]
    given: Mapping[str, Any]
    observed: Numbers
    has_triplets: bool = False
    missing: Numbers | None = None
    offset: Numbers | None = None
    unit: np.ndarray | None = None

    def __post_init__(self) -> None:
        # Where entries are missing that are drawn: (n, d).
        self.drawn_absent: np.ndarray | None = None
        if self.missing is not None:
            self.drawn_absent = np.isnan(np.asarray(self.observed.at(0), dtype=np.float64)).reshape(-1, self.d)
        of_values = [self.observed, self.missing, self.offset]
        self.has_constant_values = all(found is None or found.is_constant for found in of_values)
        self.has_constant_params = all(found.is_constant for found in self.parameters.values())

    @property
    def is_drawn(self) -> bool:
        """Whether the rows, or their offset, differ between draws: latent rows, and residuals."""
        return not self.observed.is_constant or not (self.offset is None or self.offset.is_constant)

    def column_values(self, columns: Sequence[int], n_draws: int, of_rows: Any = slice(None)) -> np.ndarray:
        """Return what is known of some columns, less the offset: NaN where an entry is missing.

        Parameters
        ----------
        columns : sequence of int
        n_draws : int
            Number of draws that there are.
        of_rows : index
            Of the rows that are wanted.

        Returns
        -------
        (m, c) array
            The rows; where they are drawn, those of up to MOST_POOLED draws, one draw after the other.
        """
        wanted = range(0, n_draws, -(-n_draws // MOST_POOLED)) if self.is_drawn else [0]
        found = []
        for s in wanted:
            own = self.data(s, completed=False)[:, list(columns)]
            found.append(np.asarray(own.todense() if is_sparse(own) else own)[of_rows])
        return np.concatenate(found)

    def table(self, new: Any) -> "_DrawTable":
        """Return the data of the draws, and new rows, as the family represents them."""
        return _DrawTable(self, new)

    def base(self, s: int = 0, given: Mapping[str, Any] | None = None) -> BaseMeasure:
        """Return the base measure of a draw, for the rows of the data or others that come with ``given``."""
        parameters = {field: np.asarray(found.at(s)) for field, found in self.parameters.items()}
        return BASE_MEASURES[self.family.name].restored(parameters, self.given if given is None else given)

    def params(self, s: int) -> Any:
        """Return the parameters of the base measure in a draw, as numbers."""
        return self.family.params(*self.base(s).numbers(self.d))

    def data(self, s: int, completed: bool = True) -> Any:
        """Return the data in a draw, less its offset: (n, d), without what is given with rows.

        Missing entries are those of the draw, or NaN if they are not to be ``completed``.
        """
        data = self.observed.at(s)
        if self.has_triplets:
            n = self.n_labels if self.unit is None else len(self.unit)
            return from_triplets(data, (n, self.d))
        data = np.array(data, dtype=np.float64)
        if self.missing is not None and completed:
            data[np.isnan(data)] = self.missing.at(s)
        if self.offset is not None:
            data = data - np.asarray(self.offset.at(s))
        return data.reshape(len(data), -1)

    def with_given(self, data: Any, base: BaseMeasure) -> Any:
        """Return rows (n, d) with columns for what is given with them."""
        if is_sparse(data):
            return data
        return np.concatenate([data, *base.given_columns(data.shape, data)], axis=1)


class Clusters:
    """What one draw of the partition says of its clusters, in one view.

    Parameters
    ----------
    table : _DrawTable
        Where data and parameters come from.
    sums : NamedTuple
        Of the K clusters, and of one without rows.
    """

    def __init__(self, table: "_DrawTable", sums: Any) -> None:
        self.view, self.family, self._component = table.view, table.family, table.family.component
        self._table, self._params, self._origin = table, table.table.shifted, table.table.origin
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

    @property
    def values(self) -> Any:
        """The data of the draw, completed, with columns for what is given with its rows: (n, c)."""
        return self._table.values

    def observed_values(self) -> Any:
        """Return the data of the draw, with columns for what is given with its rows: (n, c).

        What is missing is NaN, also where it is drawn.
        """
        absent = self.view.drawn_absent
        if absent is None:
            return self._table.values
        values = self._table.values.copy()
        values[:, : self.view.d][absent] = np.nan
        return values

    def log_predictives(self) -> np.ndarray:
        """Return log predictives of the new rows given each cluster, and a new one: (m, K + 1)."""
        own = self._table
        return own.table.predictives(self._sums, own.n_rows, own.n_new, own.all_absent)


class Partition(NamedTuple):
    """One draw: canonical labels (n,) and sizes (K,) of the clusters, their seats, and each view's clusters."""

    draw: int
    labels: np.ndarray
    sizes: np.ndarray
    seats: Seats
    views: list[Clusters]


class MixtureNumbers(NamedTuple):
    """All draws of a mixture, chains one after the other.

    Parameters
    ----------
    labels : (n_draws, n) integer array
    seats : callable
        Returns what a draw says of its clusters' weights, given the number of the draw, its canonical labels (n,),
        sizes (K,), and the labels as they were drawn.
    views : sequence of ViewDraws
    group : (n,) int64 array, optional
        The group of each row, where groups have weights of their own.
    """

    labels: np.ndarray
    seats: Callable[[int, np.ndarray, np.ndarray, np.ndarray], Seats]
    views: Sequence[ViewDraws]
    group: np.ndarray | None = None

    @property
    def n_draws(self) -> int:
        """Number of draws of all chains."""
        return len(self.labels)

    def only(self, names: Collection[str]) -> "MixtureNumbers":
        """Return the draws with some of the views alone."""
        return self._replace(views=[view for view in self.views if view.name in names])

    def partitions(self, new: Sequence[Any] | None = None) -> Iterator[Partition]:
        """Return draw by draw what the partition says.

        Parameters
        ----------
        new : sequence of (m, c) arrays, optional
            New rows of each view, which are represented together with the data.
        """
        rows = [None] * len(self.views) if new is None else new
        tables = [view.table(x) for view, x in zip(self.views, rows, strict=True)]
        for s, own in enumerate(self.labels):
            labels, n_clusters = canonical_labels(own)
            sizes = np.bincount(labels, minlength=n_clusters)
            seats = self.seats(s, labels, sizes, own)
            yield Partition(s, labels, sizes, seats, [table.at(s, labels, sizes) for table in tables])


def family_of_new(view: ViewDraws, new: np.ndarray) -> tuple[Family, np.ndarray | None]:
    """Return the family for new rows (m, c), and which entries (m, d) it has to be told are absent, if any.

    Raises
    ------
    ValueError
        If entries are absent, and the family can do without none.
    """
    absent = np.isnan(new[:, : view.d])
    if not absent.any():
        return view.family, None
    if view.family.incomplete is not None:
        return view.family.incomplete, None
    if view.family.takes_missing:
        return view.family, None
    if view.family.log_predictive_present is None:
        raise ValueError(
            f"{view.family.name} takes no missing entries and has no marginal densities of some columns"
        )
    return view.family, absent


class _DrawTable:
    """Data of a view, and new rows, as its family represents them, kept while they stay the same."""

    def __init__(self, view: ViewDraws, new: Any) -> None:
        self.view, self.family, self._new = view, view.family, new
        self.n_rows, self.n_new = 0, 0 if new is None else new.shape[0]
        self.values: Any = None
        self.all_absent: np.ndarray | None = None
        self.absent: np.ndarray | None = None
        self.table: Any = None
        self._numbers: Any = None
        if new is not None and not is_sparse(new):
            self.family, self.absent = family_of_new(view, new)

    def at(self, s: int, labels: np.ndarray, sizes: np.ndarray) -> Clusters:
        """Return the clusters of a draw, with canonical labels and their sizes."""
        new_params = self._numbers is None or not self.view.has_constant_params
        new_rows = self.table is None or not self.view.has_constant_values
        if new_params:
            self._numbers = self.family.params(*self.view.params(s))
        if new_rows:
            data = self.view.data(s)
            self.n_rows = data.shape[0]
            if self.absent is not None and self.all_absent is None:
                # Of the data nothing is missing by now.
                of_data = np.zeros((self.n_rows, self.view.d), dtype=np.bool_)
                self.all_absent = np.concatenate([of_data, self.absent])
            self.values = self.view.with_given(data, self.view.base(s))
            numbers = View(self.family, self._numbers, self._with_new(self.values))
            self.table = Table(numbers, len(sizes), for_sampling=self._new is not None)
        elif new_params:
            self.table.set_params(self._numbers)
        if self.view.unit is not None:
            labels = labels[self.view.unit]
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
                [csr_array(values)[:, : self.view.d], csr_array(self._new)[:, : self.view.d]], format="csr"
            )
        new = self._new
        if self.absent is not None:
            # Any number will do where none is looked at.
            new = new.copy()
            new[:, : self.view.d][self.absent] = np.broadcast_to(values[0, : self.view.d], self.absent.shape)[
                self.absent
            ]
        return np.concatenate([values, new])
