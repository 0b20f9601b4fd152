"""Draws of a mixture whose rows are elsewhere: each kept partition as the sums of its clusters."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.families import Family, View
from pymc_dpgmm.posterior.arrays.mixtures import Clusters, Partition, ViewDraws, family_of_new
from pymc_dpgmm.posterior.arrays.seats import Seats
from pymc_dpgmm.sampler.state.table import Table


class SummedNumbers(NamedTuple):
    """All draws of a mixture of one view, chains one after the other, as :class:`MixtureNumbers` without labels.

    Parameters
    ----------
    sums : (n_draws, K, w) array
        Rows of a :class:`Table`; those after the last cluster of a draw have 0 rows.
    seats : callable
        As in :class:`MixtureNumbers`.
    views : sequence of ViewDraws
    origin : (c,) array or None
        Of the sums.
    n_columns : int
        Columns of the rows, with those of what is given with them.
    """

    sums: np.ndarray
    seats: Callable[[int, np.ndarray, np.ndarray, np.ndarray], Seats]
    views: Sequence[ViewDraws]
    origin: Any
    n_columns: int

    @property
    def n_draws(self) -> int:
        """Number of draws of all chains."""
        return len(self.sums)

    def partitions(self, new: Sequence[Any] | None = None) -> Iterator[Partition]:
        """Return draw by draw what the partition says; its labels are those of no rows."""
        (view,) = self.views
        no_labels = np.empty(0, dtype=np.int64)
        held = _HeldSums(view, None if new is None else new[0], self)
        for s, own in enumerate(self.sums):
            sizes = own[own[:, 0] > 0, 0].astype(np.int64)
            seats = self.seats(s, no_labels, sizes, no_labels)
            yield Partition(s, no_labels, sizes, seats, [held.at(s, own[: len(sizes)])])


class _HeldSums:
    """A table of sums, and of new rows: what :class:`Clusters` reads."""

    def __init__(self, view: ViewDraws, new: Any, numbers: SummedNumbers) -> None:
        self.view, self.family = view, view.family
        self.n_rows, self.n_new = 0, 0 if new is None else len(new)
        self.values: Any = None
        self.all_absent: np.ndarray | None = None
        self._new = new
        if new is not None:
            self.family, self.all_absent = family_of_new(view, new)
            if self.all_absent is not None:
                # Any number will do where none is looked at.
                self._new = np.where(np.isnan(new), 0.0, new)
        self._n_columns = numbers.n_columns
        self._origin, self._most = numbers.origin, int(numbers.sums[:, :, 0].max(initial=0.0)) + self.n_new
        self.table: Any = None
        self._complete: Any = None

    def at(self, s: int, sums: np.ndarray) -> Clusters:
        """Return the clusters of a draw."""
        if self.table is None:
            self.table = self._made(self.family, self._params(self.family, s), self._new)
            # As the sums were gathered.
            self._complete = self._made(self.view.family, self._params(self.view.family, s), None)
        elif not self.view.has_constant_params:
            self.table.set_params(self._params(self.family, s))
        for table in (self.table, self._complete):
            if len(sums) + 1 > table.capacity:
                table.resize(len(sums) + 1)
        self._complete.array[: len(sums) + 1] = 0.0
        self._complete.array[: len(sums), : sums.shape[1]] = sums
        found = self._complete.sums(0, len(sums) + 1)
        if self.family is not self.view.family:
            return Clusters(self, as_incomplete(self.family, found))  # type: ignore[arg-type]
        return Clusters(self, type(found)(*(field.copy() for field in found)))  # type: ignore[arg-type]

    def _params(self, family: Family, s: int) -> Any:
        return family.params(*self.view.params(s))

    def _made(self, family: Family, params: Any, values: Any) -> Table:
        is_asked = values is not None
        rows = values if is_asked else np.empty((0, self._n_columns))
        view = View(family, params, rows, origin=self._origin)
        return Table(view, 1, for_sampling=is_asked, most_rows=self._most if is_asked else 0)


def as_incomplete(family: Family, sums: Any) -> Any:
    """Return sums of complete rows as those of the family that goes with them for rows with missing entries.

    Raises
    ------
    NotImplementedError
        If that family has sums that do not follow from these.
    """
    known = dict(zip(sums._fields, sums, strict=True))
    d = next((own.shape[1] for own in sums[1:] if own.ndim > 1), 1)
    known["entries"] = np.broadcast_to(sums.n, (len(sums.n), d)).copy()
    if "ones" in known:
        # Of each column one trial in every row; all coefficients are 1.
        known |= {"successes": known["ones"], "failures": sums.n - known["ones"]}
        known["constant"] = np.zeros(len(sums.n))
    unknown = [name for name in family.sums if name not in known]
    if unknown:
        raise NotImplementedError(
            f"densities of some columns of {family.title} need {', '.join(unknown)}, which do not follow from "
            "what is kept of rows in chunks: ask for the density of all columns"
        )
    return family.kept_sums(sums.n.copy(), *(known[name].copy() for name in family.sums))
