"""New rows of which something is known, one by one or together with the other rows of their unit.

Rows of a unit are in one cluster. Given the partition of a draw, a new unit is in a cluster with a probability in
proportion to the cluster's seat and to the density of all its rows together there. Each row is therefore weighed
under clusters that the other known rows of its unit have joined. A unit of the data is in its own cluster.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import vstack

from pymc_dpgmm.posterior.arrays.mixtures import DrawNumbers, Measure, Partition, ViewDraws
from pymc_dpgmm.tables.checks import is_sparse


class Unknown(NamedTuple):
    """New rows in one view, and what is asked of them.

    Parameters
    ----------
    values : (m, c) array or sparse matrix
        NaN where an entry is unknown, with columns for what is given.
    asked : (q,) integer array
        The columns that are asked for. Of densities, all of their entries are NaN.
    """

    values: Any
    asked: np.ndarray

    def rows_with_known(self, d: int) -> np.ndarray:
        """Return the rows (indices) that have known entries among their ``d`` columns."""
        if is_sparse(self.values):
            return np.arange(self.values.shape[0])
        return np.flatnonzero(~np.isnan(self.values[:, :d]).all(axis=1))

    def unknown(self, d: int) -> "Unknown":
        """Return these rows with nothing known of their ``d`` columns."""
        values = np.full(self.values.shape, np.nan) if is_sparse(self.values) else self.values.copy()
        values[:, :d] = np.nan
        return self._replace(values=values)

    def of_rows(self, rows: Any) -> "Unknown":
        """Return what is known of some of the rows."""
        return self._replace(values=self.values[rows])


class Units(NamedTuple):
    """The units that new rows belong to.

    Parameters
    ----------
    unit : (m,) int64 array
        The number of each row's unit.
    label : (U,) int64 array
        Which label of the data each unit has; -1 for a new one.
    known : sequence of Unknown
        For each view, what is known of all rows of the units, M of them.
    of_known : (M,) int64 array
        The number of their units.
    at : (m,) int64 array
        The places of the rows among these.
    """

    unit: np.ndarray
    label: np.ndarray
    known: Sequence[Unknown]
    of_known: np.ndarray
    at: np.ndarray

    def of_rows(self, rows: Any) -> "Units":
        """Return the units of some of the rows, of which as much is known as before."""
        return self._replace(unit=self.unit[rows], at=self.at[rows])

    def firsts(self, views: Sequence[ViewDraws]) -> np.ndarray:
        """Return one row of each unit: if there is one, a row with gaps that cannot join clusters, else its first.

        The other rows join clusters.
        """
        is_partial = np.zeros(len(self.unit), dtype=np.bool_)
        for view, each in zip(views, self.known, strict=True):
            of_view = each.of_rows(self.at)
            knows = np.isin(np.arange(len(self.at)), of_view.rows_with_known(view.d))
            is_partial |= knows & _cannot_join(view, of_view.values)
        order = np.lexsort((np.arange(len(self.unit)), ~is_partial, self.unit))
        return order[np.unique(self.unit[order], return_index=True)[1]]


class _Others(NamedTuple):
    """Rows that are asked about, and the other known rows of their unit.

    Rows with gaps can join clusters of some families only. One such row is weighed after all others have joined.

    Parameters
    ----------
    rows : integer array
        Numbers of the rows that are asked about.
    label : int
        Which label of the data their unit has, -1 if none.
    others : list of integer arrays
        For each view, places of the rows that join clusters in the table of new rows.
    last : list of integer arrays
        For each view, places of the row that is weighed last, or none.
    values : list of arrays
        For each view, these rows, with columns for what is given.
    """

    rows: np.ndarray
    label: int
    others: list[np.ndarray]
    last: list[np.ndarray]
    values: list[Any]


class SharedMeasure:
    """The partition of a draw, and a draw of the mixing measure that all units share."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._drawn: Measure | None = None

    def draw(self, rng: np.random.Generator) -> Measure:
        """Return the mixing measure, which is drawn where it is asked for first."""
        if self._drawn is None:
            self._drawn = self.partition.draw_measure(rng)
        return self._drawn


class GivenPartition:
    """One draw of the partition, given other rows of a unit, which have joined each of its clusters.

    Parameters
    ----------
    shared : SharedMeasure
    given : _Others
    """

    def __init__(self, shared: "SharedMeasure", given: _Others) -> None:
        self._shared, self._given, partition = shared, given, shared.partition
        self.draw, self.labels, self.sizes = partition.draw, partition.labels, partition.sizes
        three = zip(partition.views, given.others, given.last, strict=True)
        joined = [view.joined(rows, last) for view, rows, last in three]
        self.views = [clusters for clusters, _ in joined]
        self._log_p = [log_p for _, log_p in joined]

    def _seats(self, weights: np.ndarray) -> np.ndarray:
        """Return log weights (..., K'): those given, or of a unit of the data all of its own cluster."""
        if self._given.label >= 0:
            weights = np.zeros(weights.shape)
            weights[..., self.labels[self._given.label]] = 1.0
        with np.errstate(divide="ignore"):
            return np.log(weights)

    def log_probabilities(self) -> np.ndarray:
        """Return log probabilities of a cluster or a new one for the unit, and its other rows: (K + 1,)."""
        total: np.ndarray = sum(self._log_p, self._seats(self._shared.partition.seats.probabilities()))
        return total

    def log_weights(self, measure: Measure) -> np.ndarray:
        """Return log weights of clusters for the unit under a draw of the mixing measure: (1, K + J)."""
        total = self._seats(measure.weights)
        pairs = zip(self._shared.partition.views, measure.drawn, self._given.values, self._log_p, strict=True)
        for clusters, drawn, values, log_p in pairs:
            if len(values) and clusters.view.is_density:
                total = total + clusters.log_densities(drawn, values).sum(axis=0)
            elif len(values):
                total = total + with_new(log_p, total.shape[1])
        return total

    def draw_measure(self, rng: np.random.Generator) -> Measure:
        """Draw the mixing measure, which knows of the data alone: the same for all units."""
        return self._shared.draw(rng)


def with_new(log_p: np.ndarray, n_clusters: int) -> np.ndarray:
    """Return numbers of clusters and a new one (..., K + 1), where there are many new ones: (..., n_clusters)."""
    n_new = n_clusters - log_p.shape[-1] + 1
    return np.concatenate([log_p[..., :-1], np.repeat(log_p[..., -1:], n_new, axis=-1)], axis=-1)


def _cannot_join(view: ViewDraws, values: Any) -> np.ndarray:
    """Return which rows have gaps with which they cannot join clusters: (m,) bool array."""
    if is_sparse(values) or view.family.incomplete is not None or view.family.takes_missing:
        return np.zeros(values.shape[0], dtype=np.bool_)
    found: np.ndarray = np.isnan(values[:, : view.d]).any(axis=1)
    return found


class NewRows:
    """New rows, of which each view has those where it knows something.

    Parameters
    ----------
    views : sequence of ViewDraws
    new : sequence of Unknown
    units : Units, optional
        Without them each row is the next one after the data.
    points : dict, optional
        For some views, by number, rows (m, g, c) that are weighed beside each row, under the same clusters.

    Attributes
    ----------
    known : list of integer arrays
        For each view, the rows of which it knows something.
    values : list of arrays
        These rows.
    places : list of integer arrays
        For each view, where these rows are in the table of new rows, and after them the points.
    """

    def __init__(
        self,
        views: Sequence[ViewDraws],
        new: Sequence[Unknown],
        units: Units | None = None,
        points: Mapping[int, np.ndarray] | None = None,
    ) -> None:
        self._views, self.new, self.units, self._points = views, new, units, points or {}
        self.n_rows = new[0].values.shape[0]
        self.known = [each.rows_with_known(view.d) for view, each in zip(views, new, strict=True)]
        self.values = [each.values[rows] for each, rows in zip(new, self.known, strict=True)]
        self.places = [np.arange(len(rows) + self._n_points(v)) for v, rows in enumerate(self.known)]

    def _n_points(self, v: int) -> int:
        return int(np.prod(self._points[v].shape[:2])) if v in self._points else 0

    def _of(self, rows: np.ndarray) -> "NewRows":
        """Return some of the rows, which are still at their places in the table."""
        points = {v: of_view[rows] for v, of_view in self._points.items()}
        some = NewRows(self._views, [each.of_rows(rows) for each in self.new], None, points)
        for v, known in enumerate(some.known):
            some.places[v] = np.searchsorted(self.known[v], rows[known])
            if v in points:
                n_each = points[v].shape[1]
                of_points = len(self.known[v]) + rows[:, None] * n_each + np.arange(n_each)
                some.places[v] = np.append(some.places[v], of_points.ravel())
        return some

    def leave_out(self, v: int) -> None:
        """Let a view know nothing of the rows."""
        self.known[v], self.values[v] = self.known[v][:0], self.values[v][:0]
        self.places[v] = self.places[v][len(self.places[v]) - self._n_points(v) :]

    def _others(self, units: Units) -> Iterator[tuple[_Others, "NewRows"]]:
        """Yield what is known of other rows of a unit, and the rows of the unit that are asked about."""
        known = [each.rows_with_known(view.d) for view, each in zip(self._views, units.known, strict=True)]
        knows = np.zeros(len(units.of_known), dtype=np.bool_)
        for rows in known:
            knows[rows] = True
        # Rows that know nothing themselves have the same others.
        key = np.where(knows[units.at], units.at, -1 - units.unit)
        for of_key in np.unique(key):
            rows = np.flatnonzero(key == of_key)
            unit, some = int(units.unit[rows[0]]), self._of(rows)
            others, last, values = [], [], []
            for v, (view, each, of_view) in enumerate(zip(self._views, units.known, known, strict=True)):
                are_of_unit = units.of_known[of_view] == unit
                has_gaps = _cannot_join(view, each.values[of_view])
                is_other = are_of_unit & (of_view != of_key)
                after = np.flatnonzero(is_other & has_gaps)
                if len(after) and len(some.known[v]) and not _cannot_join(view, some.values[v]).any():
                    # The row itself is complete, and joins before one that is not.
                    is_other = are_of_unit
                    some.leave_out(v)
                if len(after) > 1 or (len(after) and len(some.known[v])):
                    raise NotImplementedError(
                        f"several rows of one unit have gaps, of which {view.family.title} has no density "
                        f"together: leave gaps in one row of each unit of {view.name}, beside rows of which "
                        "nothing is known"
                    )
                joining = np.flatnonzero(is_other & ~has_gaps)
                others.append(len(self.places[v]) + joining)
                last.append(len(self.places[v]) + after)
                values.append(each.values[of_view[np.append(joining, after)]])
            yield _Others(rows, int(units.label[unit]), others, last, values), some

    def values_and_points(self, v: int) -> np.ndarray:
        """Return the rows of which a view knows something, and after them the points."""
        points = self._points[v].reshape(-1, self.values[v].shape[1])
        found: np.ndarray = np.concatenate([self.values[v], points])
        return found

    def _table(self) -> list[Any]:
        """Return all rows that are weighed or join clusters, for each view; None where there are none."""
        found: list[Any] = []
        for v, (view, values) in enumerate(zip(self._views, self.values, strict=True)):
            parts: list[Any] = [self.values_and_points(v) if v in self._points else values]
            if self.units is not None:
                known = self.units.known[v]
                parts.append(known.values[known.rows_with_known(view.d)])
            parts = [part for part in parts if part.shape[0]]
            if not parts:
                found.append(None)
            elif len(parts) == 1:
                found.append(parts[0])
            else:
                found.append(vstack(parts, format="csr") if is_sparse(parts[0]) else np.concatenate(parts))
        return found

    def draws(
        self, mixture: DrawNumbers
    ) -> Iterator[tuple[tuple[int, Any], "Partition | GivenPartition", "NewRows"]]:
        """Yield the number of each draw and those of some rows, its partition, and these rows.

        Without units all rows come at once. With units, the other known rows of their unit have joined the
        clusters of the partition.
        """
        if self.units is None:
            for s, partition in enumerate(mixture.partitions(self._table())):
                yield (s, slice(None)), partition, self
            return
        parts = list(self._others(self.units))
        for s, partition in enumerate(mixture.partitions(self._table())):
            shared = SharedMeasure(partition)
            for others, rows in parts:
                yield (s, others.rows), GivenPartition(shared, others), rows

    def log_joint(self, partition: "Partition | GivenPartition", without: int | None = None) -> np.ndarray:
        """Return log probabilities of each cluster and the known entries, (m, K + 1), parameters integrated out.

        ``without`` is the number of a view that is left out.
        """
        total = np.repeat(partition.log_probabilities()[None], self.n_rows, axis=0)
        for v, (clusters, rows) in enumerate(zip(partition.views, self.known, strict=True)):
            if v != without and len(rows):
                total[rows] += clusters.log_predictives(self.places[v])[: len(rows)]
        return total

    def log_joint_given(
        self, partition: "Partition | GivenPartition", measure: Measure, without: int | None = None
    ) -> np.ndarray:
        """Return the log densities given weights and parameters: (m, K + J)."""
        total = np.repeat(partition.log_weights(measure), self.n_rows, axis=0)
        for v, (clusters, rows) in enumerate(zip(partition.views, self.known, strict=True)):
            if v != without and len(rows) and not clusters.view.is_density:
                # Its parameters are integrated out in the density that has the power.
                log_p = clusters.log_predictives(self.places[v])[: len(rows)]
                total[rows] += with_new(log_p, total.shape[1])
            elif v != without and len(rows):
                total[rows] += clusters.log_densities(measure.drawn[v], self.values[v])
        return total
