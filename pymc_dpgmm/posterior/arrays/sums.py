"""Draws of a mixture whose rows are elsewhere: each kept partition as the sums of its clusters."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.families import View
from pymc_dpgmm.kernels.table import Table
from pymc_dpgmm.posterior.arrays.mixtures import Clusters, Partition, ViewDraws
from pymc_dpgmm.posterior.arrays.seats import Seats


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
    """

    sums: np.ndarray
    seats: Callable[[int, np.ndarray, np.ndarray, np.ndarray], Seats]
    views: Sequence[ViewDraws]
    origin: Any

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
        self.all_absent = self.values = None
        self._new = new
        if new is not None and np.isnan(new[:, : view.d]).any():
            absent = np.isnan(new[:, : view.d])
            if view.family.incomplete is not None:
                self.family = view.family.incomplete
            elif not view.family.takes_missing:
                if view.family.log_predictive_present is None:
                    raise ValueError(
                        f"{view.family.name} takes no missing entries and has no marginal densities of some "
                        "columns"
                    )
                self.all_absent = absent
                self._new = np.where(np.isnan(new), 0.0, new)
        self._origin, self._most = numbers.origin, int(numbers.sums[:, :, 0].max(initial=0.0)) + self.n_new
        self.table: Any = None

    def at(self, s: int, sums: np.ndarray) -> Clusters:
        """Return the clusters of a draw."""
        if self.table is None or not self.view.has_constant_params:
            params = self.family.params(*self.view.params(s))
            if self.table is None:
                values = self._new
                if values is None:
                    values = np.empty((0, self.view.d + sum(1 for _ in self.view.family.given)))
                view = View(self.family, params, values, origin=self._origin)
                is_asked = self._new is not None
                most = self._most if is_asked else 0
                self.table = Table(view, len(sums) + 1, for_sampling=is_asked, most_rows=most)
            else:
                self.table.set_params(params)
        if len(sums) + 1 > self.table.capacity:
            self.table.resize(len(sums) + 1)
        self.table.array[: len(sums) + 1] = 0.0
        self.table.array[: len(sums), : sums.shape[1]] = sums
        found = self.table.sums(0, len(sums) + 1)
        return Clusters(self, type(found)(*(field.copy() for field in found)))  # type: ignore[arg-type]
