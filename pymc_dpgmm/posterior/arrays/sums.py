"""Draws of a mixture of rows in chunks: a draw has the sufficient statistics of its clusters, and no labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_dpgmm.families import Family, View
from pymc_dpgmm.posterior.arrays.mixtures import Clusters, DrawNumbers, DrawTable, Partition, ViewDraws
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable


@dataclass(frozen=True, kw_only=True, eq=False)
class SummedNumbers(DrawNumbers):
    """Draws of a mixture of one view without labels.

    Parameters
    ----------
    sums : (n_draws, K, w) array
        Sufficient statistics, each line as in a :class:`ClusterTable`. Lines after the last cluster of a draw are
        empty.
    origin : (c,) array or None
        Origin that was subtracted from the rows.
    n_columns : int
        Columns of the rows, with those of their covariates.
    """

    sums: np.ndarray
    origin: Any
    n_columns: int

    def partitions(self, new: Sequence[Any] | None = None) -> Iterator[Partition]:
        """Yield the partition of each draw with its clusters; ``labels`` are empty."""
        (view,) = self.views
        no_labels = np.empty(0, dtype=np.int64)
        held = _SummedTable(view, None if new is None else new[0], self)
        for s in self.used:
            sums = self.sums[s]
            sizes = sums[sums[:, 0] > 0, 0].astype(np.int64)
            seats = self.seats(s, no_labels, sizes, no_labels)
            yield Partition(s, no_labels, sizes, seats, [held.at(s, sums[: len(sizes)])])


class _SummedTable(DrawTable):
    """Sufficient statistics and new rows."""

    def __init__(self, view: ViewDraws, new: Any, numbers: SummedNumbers) -> None:
        super().__init__(view, new)
        self.all_absent = self.absent
        if self.absent is not None:
            # Masked entries are never read: any valid value will do.
            self._new = np.where(np.isnan(new), 0.0, new)
        self._n_columns = numbers.n_columns
        self._origin, self._most = numbers.origin, int(numbers.sums[:, :, 0].max(initial=0.0)) + self.n_new
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
        return Clusters(
            self, complete if self.family is self.view.family else as_incomplete(self.family, complete)
        )

    def _params(self, family: Family, s: int) -> Any:
        return family.params(*self.view.params(s))

    def _made(self, family: Family, params: Any, values: Any) -> ClusterTable:
        is_asked = values is not None
        rows = values if is_asked else np.empty((0, self._n_columns))
        view = View(family, params, rows, origin=self._origin)
        return ClusterTable(view, 1, for_sampling=is_asked, most_rows=self._most if is_asked else 0)


def as_incomplete(family: Family, sums: Any) -> Any:
    """Convert sums of complete rows to those of ``family``, its variant for rows with missing entries.

    Raises
    ------
    NotImplementedError
        If ``family`` has sums that cannot be computed from these.
    """
    known = dict(zip(sums._fields, sums, strict=True))
    d = next((values.shape[1] for values in sums[1:] if values.ndim > 1), 1)
    known["entries"] = np.broadcast_to(sums.n, (len(sums.n), d))
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
    return family.kept_sums(sums.n, *(known[name] for name in family.sums))
