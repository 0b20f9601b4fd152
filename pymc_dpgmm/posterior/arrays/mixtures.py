"""Draws of a mixture as arrays, and the posterior of cluster parameters given the partition of each draw."""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array, vstack

from pymc_dpgmm.families import BASE_MEASURES, BaseMeasure, Family, View
from pymc_dpgmm.families.shared.counts import from_triplets
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.posterior.arrays.seats import Seats
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.tables.checks import is_sparse

# Largest number of draws that are pooled to show the distribution of latent rows.
MOST_POOLED = 500


def spread(n_draws: int, most: int) -> list[int]:
    """Return the numbers of up to ``most`` draws that are spread over all."""
    found: list[int] = np.unique(np.linspace(0, n_draws - 1, min(n_draws, most)).round().astype(int)).tolist()
    return found


class ValuesByDraw(NamedTuple):
    """Numbers of every draw: a function of the draw's index, and whether they are the same for all."""

    at: Callable[[int], Any]
    is_constant: bool


def constant(value: Any) -> ValuesByDraw:
    """Return numbers that are the same for all draws."""
    return ValuesByDraw(lambda s: value, True)


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
    parameters : mapping of ValuesByDraw
        Of the base measure, by name.
    given : mapping
        Covariates, exposures or trials of the rows, by the name of the base measure's argument.
    observed : ValuesByDraw
        The data, (n,) or (n, d), NaN where an entry is missing, or the triplets of a sparse matrix.
    has_triplets : bool
        Whether the data is the triplets of a sparse matrix.
    missing : ValuesByDraw, optional
        Draws of the missing entries, where these are imputed.
    offset : ValuesByDraw, optional
    unit : (n,) int64 array, optional
        The unit of each row.
    power : float
        By which log densities are multiplied where clusters are weighed.
    """

    name: str
    family: Family
    d: int
    n_labels: int
    parameters: Mapping[str, ValuesByDraw]
    given: Mapping[str, Any]
    observed: ValuesByDraw
    has_triplets: bool = False
    missing: ValuesByDraw | None = None
    offset: ValuesByDraw | None = None
    unit: np.ndarray | None = None
    power: float = 1.0

    @property
    def is_density(self) -> bool:
        """Whether what the view tells of a row is a density of it: with a power, it tells of the labels only."""
        return self.power == 1.0

    def __post_init__(self) -> None:
        # Which entries are missing and imputed: (n, d).
        self.drawn_absent: np.ndarray | None = None
        if self.missing is not None:
            self.drawn_absent = np.isnan(np.asarray(self.observed.at(0), dtype=np.float64)).reshape(-1, self.d)
        of_values = [self.observed, self.missing, self.offset]
        self.has_constant_values = all(numbers is None or numbers.is_constant for numbers in of_values)
        self.has_constant_params = all(numbers.is_constant for numbers in self.parameters.values())

    @property
    def is_drawn(self) -> bool:
        """Whether rows or their offset differ between draws: for latent rows, and for residuals."""
        return not self.observed.is_constant or not (self.offset is None or self.offset.is_constant)

    def column_values(self, columns: Sequence[int], n_draws: int, of_rows: Any = slice(None)) -> np.ndarray:
        """Return some columns of the data less the offset, with NaN where an entry is missing.

        Parameters
        ----------
        columns : sequence of int
        n_draws : int
            Number of draws in all.
        of_rows : index
            Selects rows.

        Returns
        -------
        (m, c) array
            For latent rows, those of up to MOST_POOLED draws, one draw after the other.
        """
        wanted = range(0, n_draws, -(-n_draws // MOST_POOLED)) if self.is_drawn else [0]
        values = []
        for s in wanted:
            of_draw = self.data(s, completed=False)[:, list(columns)]
            values.append(np.asarray(of_draw.todense() if is_sparse(of_draw) else of_draw)[of_rows])
        return np.concatenate(values)

    def table(self, new: Any) -> "_LabelledTable":
        """Return the data of the draws, and new rows, in the representation of the family."""
        return _LabelledTable(self, new)

    def base(self, s: int = 0, given: Mapping[str, Any] | None = None) -> BaseMeasure:
        """Return the base measure of a draw, for the rows of the data or for new rows with ``given``."""
        parameters = {field: np.asarray(numbers.at(s)) for field, numbers in self.parameters.items()}
        return BASE_MEASURES[self.family.name].restored(parameters, self.given if given is None else given)

    def params(self, s: int) -> Any:
        """Return the parameters of the base measure in a draw, as numbers."""
        return self.family.params(*self.base(s).numbers(self.d))

    def data(self, s: int, completed: bool = True) -> Any:
        """Return the data in a draw, less its offset: (n, d), without columns for covariates.

        Imputed entries have the values of the draw if ``completed``, and are NaN otherwise.
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
        """Return rows (n, d) with further columns for their covariates, exposures or trials."""
        if is_sparse(data):
            return data
        return np.concatenate([data, *base.given_columns(data.shape, data)], axis=1)


class Clusters:
    """The clusters of one draw of the partition, in one view.

    Parameters
    ----------
    table : DrawTable
        Data and parameters.
    sums : NamedTuple
        Sufficient statistics of the K clusters, and of one without rows. They are copied.
    """

    def __init__(self, table: "DrawTable", sums: Any) -> None:
        self.view, self.family, self._component = table.view, table.family, table.family.component
        self._table, self._params, self._origin = table, table.table.shifted, table.table.origin
        self._sums = type(sums)(*(field.copy() for field in sums))
        self._lacks_a_row = False

    def _of(self, clusters: Any) -> Any:
        """Return the sums of some of the clusters."""
        return type(self._sums)(*(field[clusters] for field in self._sums))

    def _drawn(self, rng: np.random.Generator, sums: Any) -> dict[str, np.ndarray]:
        """Draw the parameters of clusters that have these sums."""
        return self._component.restore(self._component.draw(rng, self._params, sums), self._origin)

    def draw(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw the parameters of all clusters: arrays (K, ...)."""
        return self._drawn(rng, self._of(slice(-1)))

    def draw_with_new(self, rng: np.random.Generator, n_new: int) -> dict[str, np.ndarray]:
        """Draw the parameters of all clusters, and then of some without rows: arrays (K + n_new, ...)."""
        with_rows = self.draw(rng)
        new = self._drawn(rng, self.family.no_sums(self._params, n_new))
        return {name: np.concatenate([with_rows[name], new[name]]) for name in with_rows}

    def log_densities(self, drawn: dict[str, np.ndarray], rows: Any) -> np.ndarray:
        """Return log densities of rows (m, c) in clusters with drawn parameters: (m, K)."""
        found = self._component.log_density(drawn, rows)
        # Parameters drawn from a vague base measure may overflow; no row is in such a cluster.
        return np.where(np.isnan(found), -np.inf, found)

    def predictive(self) -> dict[str, np.ndarray]:
        """Return the parameters of the predictive of all clusters and of a new one: arrays (K + 1, ...)."""
        assert self.family.predictive is not None
        self._refuse_lacking()
        return self._component.restore(self.family.predictive(self._params, self._sums), self._origin)

    def draw_unknown(self, rng: np.random.Generator, labels: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Draw the entries of new rows (m, c) that are NaN, from clusters of these labels: (m, d).

        The parameters of the clusters are integrated out; label K is a new cluster. Other entries may be anything.
        """
        component = self._component
        if component.draw_unknown is not None:
            return component.draw_unknown(rng, self.predictive(), labels, values)
        # Columns are independent: known ones tell nothing of the parameters of the others.
        drawn = self.draw_with_new(rng, 1)
        return component.draw_rows(rng, drawn, labels, values[:, self.view.d :])

    def completed(
        self, rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """Return rows (m, d) whose entries that are NaN are drawn, from clusters with drawn parameters.

        ``values`` (m, c) have columns for covariates too.
        """
        component, rows = self._component, np.array(values[:, : self.view.d])
        absent = np.isnan(rows)
        if not absent.any():
            return rows
        # With drawn variances columns are independent, also where they share one.
        if component.draw_unknown is None or "variance" in drawn:
            found = component.draw_rows(rng, drawn, labels, values[:, self.view.d :])
        else:
            normal = {"degrees": np.full(len(drawn["mean"]), np.inf)}
            found = component.draw_unknown(rng, drawn | normal, labels, values)
        rows[absent] = found[absent]
        return rows

    @property
    def values(self) -> Any:
        """The data of the draw, with imputed entries and with columns for covariates: (n, c)."""
        return self._table.values

    def observed_values(self) -> Any:
        """Return the data of the draw with columns for covariates: (n, c).

        Missing entries are NaN, also where they are imputed.
        """
        absent = self.view.drawn_absent
        if absent is None:
            return self._table.values
        values = self._table.values.copy()
        values[:, : self.view.d][absent] = np.nan
        return values

    def log_predictives(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Return log predictive densities of new rows in each cluster, and in a new cluster: (m, K + 1).

        They are multiplied by the view's power. ``rows`` (m,) are numbers of new rows, by default all of them.
        """
        self._refuse_lacking()
        data = self._table
        chosen = np.arange(data.n_new) if rows is None else rows
        return data.table.predictives(self._sums, data.n_rows + chosen, data.all_absent)

    def joined(self, rows: np.ndarray, last: np.ndarray) -> tuple["Clusters", np.ndarray]:
        """Return clusters which new rows (m,) have joined, each and a new one, and log densities of the rows.

        The densities are those of all rows together, (K + 1,), multiplied by the view's power. ``last``, a row
        with gaps or none, is among these but joins no sums: what follows it has no closed form.
        """
        data, other = self._table, self
        log_p = np.zeros(len(self._sums.n))
        if len(rows):
            other = copy.copy(self)
            other._sums, log_p = data.table.joined(self._sums, data.n_rows + rows)
        if len(last):
            log_p = log_p + other.log_predictives(last)[0]
            other = copy.copy(other)
            other._lacks_a_row = True
        return other, log_p

    def _refuse_lacking(self) -> None:
        """Raise NotImplementedError if a row with gaps is known, but not in the sums."""
        if self._lacks_a_row:
            raise NotImplementedError(
                f"given a row of {self.view.name} with gaps, {self.family.title} has no closed form for other "
                "rows of its unit: ask for kind='draws', or leave that row out"
            )

    def draw_of(
        self, rng: np.random.Generator, labels: np.ndarray, known: np.ndarray, rows: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Draw parameters of clusters, K being a new one, for each of some labels (m,): arrays (m, ...).

        They are drawn given one new row (1, c), whose number is in ``rows``, or no row where this is empty.
        """
        self._refuse_lacking()
        clusters, absent = self, self._table.absent
        if absent is not None and absent[rows].any():
            # Its gaps are drawn first. Then it joins the cluster, and parameters are drawn given all of it.
            values = np.repeat(known, len(labels), axis=0)
            values[:, : self.view.d] = self.draw_unknown(rng, labels, values)
            sums = [self._with_row(int(rows[0]), row, label) for row, label in zip(values, labels, strict=True)]
            chosen = type(self._sums)(*(np.concatenate(fields) for fields in zip(*sums, strict=True)))
        else:
            clusters, _ = self.joined(rows, rows[:0])
            chosen = clusters._of(labels)
        return self._drawn(rng, chosen)

    def _with_row(self, row: int, values: np.ndarray, label: int) -> Any:
        """Return the sums of one cluster, which a new row that is ``values`` (c,) has joined."""
        data = self._table
        origin = () if self._origin is None else (self._origin,)
        data.table.rows[data.n_rows + row] = self.family.represent(data.table.params, values[None], *origin)[0][0]
        return data.table.joined(self._of(slice(label, label + 1)), np.array([data.n_rows + row]))[0]


class Measure(NamedTuple):
    """A draw of the mixing measure: all weights and parameters.

    Parameters
    ----------
    weights : (G, K + J) float64 array
        Weights of the K clusters with rows and of J without: one line for each group, or one for new rows.
    drawn : list of dict
        Parameters of these clusters, for each view.
    """

    weights: np.ndarray
    drawn: list[dict[str, np.ndarray]]


class Partition(NamedTuple):
    """One draw: canonical labels (n,), cluster sizes (K,), the posterior of weights, and each view's clusters."""

    draw: int
    labels: np.ndarray
    sizes: np.ndarray
    seats: Seats
    views: list[Clusters]

    def log_probabilities(self) -> np.ndarray:
        """Return the log probabilities that one more row joins each cluster or a new one: (K + 1,)."""
        with np.errstate(divide="ignore"):
            return np.log(self.seats.probabilities())

    def log_weights(self, measure: Measure) -> np.ndarray:
        """Return the log weights of all clusters under a draw of the mixing measure: (G, K + J)."""
        with np.errstate(divide="ignore"):
            return np.log(measure.weights)

    def draw_measure(self, rng: np.random.Generator, *, of_groups: bool = False) -> Measure:
        """Draw the mixing measure from its posterior given the partition.

        Clusters without rows have parameters from the base measure, and weights by stick-breaking. The weights are
        those of new rows or, with ``of_groups``, those of every group.
        """
        weights = self.seats.draw_all(rng) if of_groups else self.seats.draw_of_new(rng)[None, :]
        n_new = weights.shape[1] - len(self.sizes)
        return Measure(weights, [view.draw_with_new(rng, n_new) for view in self.views])


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawNumbers:
    """All draws of a mixture as arrays, chains one after the other. Each kind of draws says what it has of them.

    Parameters
    ----------
    seats : callable
        Returns the posterior of the weights in a draw, given the number of the draw, its canonical labels (n,),
        cluster sizes (K,), and the labels as they were drawn.
    views : sequence of ViewDraws
    used : sequence of int
        Numbers of the draws that are used.
    """

    seats: Callable[[int, np.ndarray, np.ndarray, np.ndarray], Seats]
    views: Sequence[ViewDraws]
    used: Sequence[int]

    @property
    def n_draws(self) -> int:
        """Number of draws of all chains that are used."""
        return len(self.used)

    def at_most(self, n_draws: int) -> Self:
        """Return up to ``n_draws`` of the draws, spread over all of them."""
        return replace(self, used=[self.used[s] for s in spread(self.n_draws, n_draws)])

    def only(self, names: Collection[str]) -> Self:
        """Return the draws with the views of these names only."""
        return replace(self, views=[view for view in self.views if view.name in names])

    def partitions(self, new: Sequence[Any] | None = None) -> Iterator[Partition]:
        """Yield the partition of each draw with its clusters.

        Parameters
        ----------
        new : sequence of (m, c) arrays, optional
            New rows in each view, put into the representation of the data.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, eq=False)
class MixtureNumbers(DrawNumbers):
    """Draws with labels.

    Parameters
    ----------
    labels : (n_draws, n) integer array
    group : (n,) int64 array, optional
        The group of each row, if weights differ between groups.
    """

    labels: np.ndarray
    group: np.ndarray | None = None

    def partitions(self, new: Sequence[Any] | None = None) -> Iterator[Partition]:
        """Yield the partition of each draw with its clusters, whose labels are canonical."""
        rows = [None] * len(self.views) if new is None else new
        tables = [view.table(x) for view, x in zip(self.views, rows, strict=True)]
        for s in self.used:
            drawn = self.labels[s]
            labels, n_clusters = canonical_labels(drawn)
            sizes = np.bincount(labels, minlength=n_clusters)
            seats = self.seats(s, labels, sizes, drawn)
            yield Partition(s, labels, sizes, seats, [table.at(s, labels, sizes) for table in tables])


def family_of_new(view: ViewDraws, new: np.ndarray) -> tuple[Family, np.ndarray | None]:
    """Return the family for new rows (m, c), and a mask (m, d) of missing entries if the family needs one.

    Raises
    ------
    ValueError
        If entries are missing and the family has no marginal densities of some columns.
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
            f"new rows must have no missing entries: {view.family.name} has no marginal densities of some columns"
        )
    return view.family, absent


class DrawTable:
    """What is summed up of a view, and new rows, in the representation of the family: what clusters are made of.

    ``table`` is made at the first draw.
    """

    def __init__(self, view: ViewDraws, new: Any) -> None:
        self.view, self.family, self._new = view, view.family, new
        self.n_rows, self.n_new = 0, 0 if new is None else new.shape[0]
        self.values: Any = None
        # Missing entries of all rows, and of the new ones, where the family needs masks.
        self.all_absent: np.ndarray | None = None
        self.absent: np.ndarray | None = None
        self.table: Any = None
        if new is not None and not is_sparse(new):
            self.family, self.absent = family_of_new(view, new)


class _LabelledTable(DrawTable):
    """Data of a view and new rows, rebuilt only where a draw changes them."""

    def __init__(self, view: ViewDraws, new: Any) -> None:
        super().__init__(view, new)
        self._numbers: Any = None

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
                # Missing entries of the data have been imputed.
                of_data = np.zeros((self.n_rows, self.view.d), dtype=np.bool_)
                self.all_absent = np.concatenate([of_data, self.absent])
            self.values = self.view.with_given(data, self.view.base(s))
            numbers = View(self.family, self._numbers, self._with_new(self.values), power=self.view.power)
            self.table = ClusterTable(numbers, len(sizes), for_sampling=self._new is not None)
        elif new_params:
            self.table.set_params(self._numbers)
        if self.view.unit is not None:
            labels = labels[self.view.unit]
            sizes = np.bincount(labels, minlength=len(sizes))
        if len(sizes) + 1 > self.table.capacity:
            self.table.resize(len(sizes) + 1)
        self.table.sum_up(labels, np.append(sizes, 0))
        return Clusters(self, self.table.sums(0, len(sizes) + 1))

    def _with_new(self, values: Any) -> Any:
        if self._new is None:
            return values
        if is_sparse(values) or is_sparse(self._new):
            return vstack(
                [csr_array(values)[:, : self.view.d], csr_array(self._new)[:, : self.view.d]], format="csr"
            )
        new = self._new
        if self.absent is not None:
            # Masked entries are never read: any valid value will do.
            new = new.copy()
            new[:, : self.view.d][self.absent] = np.broadcast_to(values[0, : self.view.d], self.absent.shape)[
                self.absent
            ]
        return np.concatenate([values, new])
