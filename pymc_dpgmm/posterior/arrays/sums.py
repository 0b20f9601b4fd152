"""Draws of a mixture of rows in chunks: a draw has the sufficient statistics of its clusters, and no labels."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.families import Family, View
from pymc_dpgmm.posterior.arrays.mixtures import Clusters, Partition, ViewDraws, family_of_new, spread
from pymc_dpgmm.posterior.arrays.seats import Seats
from pymc_dpgmm.sampler.state.table import Table


class SummedNumbers(NamedTuple):
    """All draws of a mixture of one view without labels, chains one after the other.

    :class:`~pymc_dpgmm.posterior.arrays.mixtures.MixtureNumbers` has those of mixtures with labels.

    Parameters
    ----------
    sums : (n_draws, K, w) array
        Sufficient statistics, each line as in a :class:`Table`. Lines after the last cluster of a draw are empty.
    seats : callable
        As in :class:`~pymc_dpgmm.posterior.arrays.mixtures.MixtureNumbers`.
    views : sequence of ViewDraws
    origin : (c,) array or None
        Origin that was subtracted from the rows.
    n_columns : int
        Columns of the rows, with those of their covariates.
    used : sequence of int, optional
        Numbers of the draws that are used, by default all.
    """

    sums: np.ndarray
    seats: Callable[[int, np.ndarray, np.ndarray, np.ndarray], Seats]
    views: Sequence[ViewDraws]
    origin: Any
    n_columns: int
    used: Sequence[int] | None = None

    @property
    def n_draws(self) -> int:
        """Number of draws of all chains, or of those that are used."""
        return len(self.sums) if self.used is None else len(self.used)

    def at_most(self, n_draws: int) -> "SummedNumbers":
        """Return up to ``n_draws`` of the draws, spread over all of them."""
        return self._replace(used=spread(self.n_draws, n_draws))

    def partitions(self, new: Sequence[Any] | None = None) -> Iterator[Partition]:
        """Yield the partition of each draw with its clusters; ``labels`` are empty."""
        (view,) = self.views
        no_labels = np.empty(0, dtype=np.int64)
        held = _HeldSums(view, None if new is None else new[0], self)
        for s in range(len(self.sums)) if self.used is None else self.used:
            sums = self.sums[s]
            sizes = sums[sums[:, 0] > 0, 0].astype(np.int64)
            seats = self.seats(s, no_labels, sizes, no_labels)
            yield Partition(s, no_labels, sizes, seats, [held.at(s, sums[: len(sizes)])])


class _HeldSums:
    """Sufficient statistics and new rows, with the interface that :class:`Clusters` needs."""

    def __init__(self, view: ViewDraws, new: Any, numbers: SummedNumbers) -> None:
        self.view, self.family = view, view.family
        self.n_rows, self.n_new = 0, 0 if new is None else len(new)
        self.values: Any = None
        self.all_absent: np.ndarray | None = None
        self._new = new
        if new is not None:
            self.family, self.all_absent = family_of_new(view, new)
            if self.all_absent is not None:
                # Masked entries are never read: any valid value will do.
                self._new = np.where(np.isnan(new), 0.0, new)
        self._n_columns = numbers.n_columns
        self._origin, self._most = numbers.origin, int(numbers.sums[:, :, 0].max(initial=0.0)) + self.n_new
        self.table: Any = None
        self._complete: Any = None

    def at(self, s: int, sums: np.ndarray) -> Clusters:
        """Return the clusters of a draw."""
        if self.table is None:
            self.table = self._made(self.family, self._params(self.family, s), self._new)
            # The sums are those of the family for complete rows.
            self._complete = self._made(self.view.family, self._params(self.view.family, s), None)
        elif not self.view.has_constant_params:
            self.table.set_params(self._params(self.family, s))
        for table in (self.table, self._complete):
            if len(sums) + 1 > table.capacity:
                table.resize(len(sums) + 1)
        self._complete.array[: len(sums) + 1] = 0.0
        self._complete.array[: len(sums), : sums.shape[1]] = sums
        complete = self._complete.sums(0, len(sums) + 1)
        if self.family is not self.view.family:
            return Clusters(self, as_incomplete(self.family, complete))  # type: ignore[arg-type]
        return Clusters(self, type(complete)(*(field.copy() for field in complete)))  # type: ignore[arg-type]

    def _params(self, family: Family, s: int) -> Any:
        return family.params(*self.view.params(s))

    def _made(self, family: Family, params: Any, values: Any) -> Table:
        is_asked = values is not None
        rows = values if is_asked else np.empty((0, self._n_columns))
        view = View(family, params, rows, origin=self._origin)
        return Table(view, 1, for_sampling=is_asked, most_rows=self._most if is_asked else 0)


def as_incomplete(family: Family, sums: Any) -> Any:
    """Convert sums of complete rows to those of ``family``, its variant for rows with missing entries.

    Raises
    ------
    NotImplementedError
        If ``family`` has sums that cannot be computed from these.
    """
    known = dict(zip(sums._fields, sums, strict=True))
    d = next((values.shape[1] for values in sums[1:] if values.ndim > 1), 1)
    known["entries"] = np.broadcast_to(sums.n, (len(sums.n), d)).copy()
    if "ones" in known:
        # A binary column is one trial in every row; all binomial coefficients are 1.
        known |= {"successes": known["ones"], "failures": sums.n - known["ones"]}
        known["constant"] = np.zeros(len(sums.n))
    unknown = [name for name in family.sums if name not in known]
    if unknown:
        raise NotImplementedError(
            f"densities of some columns of {family.title} need {', '.join(unknown)}, which draws of rows in "
            "chunks do not store: ask for the density of all columns"
        )
    return family.kept_sums(sums.n.copy(), *(known[name].copy() for name in family.sums))
