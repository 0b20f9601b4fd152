"""A partition of rows in chunks, and moves that leave its posterior invariant.

The state is the sufficient statistics and leaders of the clusters. A draw is one pass over the chunks, in which
all rows draw labels (:mod:`pymc_dpgmm.sampler.many_rows.leader_sweep`). It returns some rows, for moves in this
process: births and deaths of clusters of one row, collapsed scans of rows that were chosen before the pass,
carvings of small clusters out of others, and splits and merges.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_dpgmm.chunked.passes import FIRST, Gathered, Sent, sums_table
from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.native.compiled import address_of, bits_of_generator
from pymc_dpgmm.partitions.concentration import drawn_concentration
from pymc_dpgmm.partitions.priors import GibbsType, log_eppf
from pymc_dpgmm.sampler.amounts import (
    LARGEST_DIVIDED,
    LEAST_SCANNED,
    N_BIRTHS,
    N_CARVINGS,
    RANDOM_BESIDE_LEADERS,
    ROWS_OF_PART,
    ROWS_PER_SCANNED,
    SETTLED_SHARE,
)
from pymc_dpgmm.sampler.many_rows.drawn_carving import LEAST_ROWS, MOST_ROWS, DrawnPart, carvings
from pymc_dpgmm.sampler.many_rows.drawn_clusters import DrawnClusters, draw_clusters, places_in_order
from pymc_dpgmm.sampler.many_rows.leader_sweep import LAST
from pymc_dpgmm.sampler.moves.scans import scan_rows
from pymc_dpgmm.sampler.moves.sweep import make_moves
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.state.state import WHY_NO_DENSITY, State
from pymc_dpgmm.sampler.tuning.exploration import largest_change
from pymc_dpgmm.sampler.tuning.search import log_sum

# A cluster with more than SHRINKS times the rows of a small one is not expected to be small after the next pass.
SHRINKS = 4


class RowsInChunks(Protocol):
    """Rows in chunks."""

    n: int
    n_columns: int

    def run(self, sent: Sent) -> Gathered:
        """Return the result of one pass over all chunks."""


class DrawnPartition(NamedTuple):
    """A partition in a form from which its labels can be recomputed.

    Parameters
    ----------
    clusters : DrawnClusters
        A pass draws the labels of all rows from them.
    moved, labels : (m,) int64 arrays
        Rows that moved after the pass, and their new labels.
    sums : (K, w) array
        Sums of the clusters, each line as in a :class:`ClusterTable`. The first column has their sizes.
    """

    clusters: DrawnClusters
    moved: np.ndarray
    labels: np.ndarray
    sums: np.ndarray

    def amend(self, labels: np.ndarray, rows: np.ndarray) -> None:
        """Replace the labels of ``rows`` (m,), as drawn by the pass, by the new ones where rows moved after it."""
        if len(rows):
            at = np.minimum(np.searchsorted(rows, self.moved), len(rows) - 1)
            is_there = rows[at] == self.moved
            labels[at[is_there]] = self.labels[is_there]


class Scheme(NamedTuple):
    """Moves of a draw besides its pass.

    Parameters
    ----------
    n_births : int
        Number of proposed births and deaths.
    n_scanned : int or None
        Expected number of rows that are scanned. By default all of up to 20,000 rows; otherwise one of 256, at
        least 1,000 and at most 20,000.
    n_moves : int
        Number of proposed splits and merges of small clusters.
    n_sequential : int
        Number of proposed splits and merges of any clusters, if all rows are scanned.
    most_small : int, >= 1
        Largest number of rows of a small cluster.
    n_carvings : int
        Number of proposed carvings of small clusters out of others, and of their returns.
    least_carved : int, >= 1
        Smallest bound on the number of rows of a cluster that is carved out.
    """

    n_births: int = N_BIRTHS
    n_scanned: int | None = None
    n_moves: int = RANDOM_BESIDE_LEADERS
    n_sequential: int = 3
    most_small: int = MOST_ROWS
    n_carvings: int = N_CARVINGS
    least_carved: int = LEAST_ROWS

    def rows_scanned(self, n: int) -> int:
        """Return the expected number of the n rows that are scanned."""
        if self.n_scanned is not None:
            return min(self.n_scanned, n)
        return n if n <= ROWS_OF_PART else min(max(LEAST_SCANNED, n // ROWS_PER_SCANNED), ROWS_OF_PART)


class ChunkedPartition:
    """A partition of rows in chunks. At first all rows are in one cluster.

    Parameters
    ----------
    rows : RowsInChunks
    family : Family
    params : NamedTuple
    origin : (c,) array or None
        As in :class:`View`.
    """

    def __init__(self, rows: RowsInChunks, family: Any, params: Any, origin: Any) -> None:
        self.rows, self.family, self.origin = rows, family, origin
        self.order_key = 0
        self.set_params(params)
        # With a single cluster the labels do not depend on its parameters, so none are drawn.
        self._place(DrawnClusters(*self._all_may_join(1), np.zeros(1), [{}], 0, 0))

    @property
    def state(self) -> tuple[Any, ...]:
        """State from which draws can be continued."""
        return self.sums, self.leaders, self.order_key, self.last

    @state.setter
    def state(self, state: tuple[Any, ...]) -> None:
        self.sums, self.leaders, self.order_key, self.last = state

    def copy(self) -> "ChunkedPartition":
        """Return an independent copy."""
        other = object.__new__(ChunkedPartition)
        # No array is changed in place.
        other.__dict__.update(self.__dict__)
        return other

    @property
    def sizes(self) -> np.ndarray:
        """Sizes of the clusters: (K,) int64 array."""
        return self.sums[:, 0].astype(np.int64)

    def _all_may_join(self, n_clusters: int) -> tuple[np.ndarray, np.ndarray]:
        """Return slots of clusters, and ranks of leaders such that all rows may join them."""
        return np.arange(n_clusters), np.full(n_clusters, FIRST)

    def set_params(self, params: Any) -> None:
        """Set the parameters of the base measure."""
        self.params = params
        # All tables share the functions of cluster sizes that are tabulated here.
        self._like = sums_table(self.family, params, self.origin, self.rows.n_columns, 1, most_rows=self.rows.n)

    def _table(self, sums: np.ndarray) -> ClusterTable:
        """Return a table with the sums of clusters in slots 0, 1, ..."""
        table = sums_table(self.family, self.params, self.origin, self.rows.n_columns, len(sums), like=self._like)
        table.array[: len(sums), : sums.shape[1]] = sums
        return table

    def log_evidence(self) -> float:
        """Return the log marginal likelihood of the rows."""
        return self._table(self.sums).total_log_evidence(len(self.sums))

    def log_joint(self, prior: GibbsType) -> float:
        """Return the log probability of the partition and the rows."""
        return float(log_eppf(prior, self.sizes, len(self.sums))) + self.log_evidence()

    def _send(self, clusters: DrawnClusters, next_order_key: int, wanted: np.ndarray) -> Gathered:
        return self.rows.run(Sent(self.family, self.params, self.origin, clusters, next_order_key, wanted))

    def _send_for_small(
        self, clusters: DrawnClusters, next_order_key: int, wanted: np.ndarray, most_small: int, sizes: np.ndarray
    ) -> Gathered:
        """Return the result of a pass that includes all rows of small clusters.

        The pass returns rows only of clusters whose ``sizes`` before it are not large. If other clusters have
        become small, the pass is repeated for them; its labels are the same.
        """
        asked = sizes <= SHRINKS * most_small
        while True:
            sent = Sent(self.family, self.params, self.origin, clusters, next_order_key, wanted, most_small, asked)
            gathered = self.rows.run(sent)
            is_small = (gathered.sums[:, 0] > 0) & (gathered.sums[:, 0] <= most_small)
            if not (is_small & ~asked).any():
                return gathered
            asked = asked | is_small

    def _place(self, clusters: DrawnClusters) -> None:
        """Draw labels of all rows in one pass, and set the partition to them."""
        gathered = self._send(clusters, self.order_key, np.empty(0, dtype=np.int64))
        present = np.flatnonzero(gathered.sums[:, 0])
        self.sums, self.leaders = gathered.sums[present], gathered.leaders[present]
        none = np.empty(0, dtype=np.int64)
        self.last = DrawnPartition(clusters, none, none, self.sums)

    def search(self, rng: np.random.Generator, prior: GibbsType, search: Callable[[State], State]) -> bool:
        """Search for a better partition of a sample of rows; if there is one, all rows join its clusters.

        For tuning only: this does not leave the posterior invariant. Returns whether the partition was replaced.
        """
        n_rows = min(ROWS_OF_PART, self.rows.n)
        chosen = np.sort(rng.choice(self.rows.n, size=n_rows, replace=False))
        # Recompute the labels of the last draw.
        again = self._send(self.last.clusters, 0, chosen)
        self.last.amend(again.labels, chosen)
        view = self._view(again.values)
        part = State([view], np.unique(again.labels, return_inverse=True)[1])
        part.set_prior(prior)
        before, merit = part.copy(), log_sum(part)
        better = search(part)
        # Rows that move between the same clusters are no improvement.
        if log_sum(better) <= merit or largest_change(before, better) <= SETTLED_SHARE * n_rows:
            return False
        labels = better.labels()
        sizes = np.bincount(labels)
        table = ClusterTable(view, len(sizes), for_sampling=False)
        table.sum_up(labels, sizes)
        named, places = self._all_may_join(len(sizes))
        log_weights, drawn = draw_clusters(rng, [table], named, sizes - prior.discount)
        self._place(DrawnClusters(named, places, log_weights, drawn, *_keys(rng)))
        return True

    def _view(self, values: np.ndarray) -> View:
        return View(self.family, self.params, values, origin=self.origin)

    def redraw_alpha(self, rng: np.random.Generator, prior: GibbsType, law: tuple[float, float]) -> GibbsType:
        """Return the prior with alpha drawn given the partition; unchanged if ``law`` has a rate of 0."""
        shape, rate = law
        if rate <= 0.0:
            return prior
        bits = bits_of_generator(rng)
        alpha = drawn_concentration(*bits, prior.alpha, len(self.sums), float(self.rows.n), shape, rate)
        return prior._replace(alpha=alpha)

    def draw(self, rng: np.random.Generator, prior: GibbsType, scheme: Scheme) -> int:
        """Draw the partition, leaving its posterior invariant; return how many rows moved after the pass."""
        n, order = self.rows.n, np.argsort(self.leaders)
        self.sums, self.leaders = self.sums[order], self.leaders[order]
        n_clusters = len(order)
        log_weights, drawn = draw_clusters(
            rng, [self._table(self.sums)], np.arange(n_clusters), self.sums[:, 0] - prior.discount
        )
        next_key, uniform_key = _keys(rng)
        clusters = DrawnClusters(
            np.arange(n_clusters), self.leaders, log_weights, drawn, self.order_key, uniform_key
        )
        # Every row is scanned independently with the same probability.
        share = scheme.rows_scanned(n) / n
        scanned = rng.choice(n, size=rng.binomial(n, share), replace=False)
        births = rng.integers(n, size=scheme.n_births)
        founders = rng.integers(n, size=scheme.n_carvings if share > 0.0 else 0)
        wanted = np.unique(np.concatenate([scanned, births, founders]))
        gathered = self._send_for_small(clusters, next_key, wanted, scheme.most_small, self.sizes)
        state, gathered = self._state_of_part(wanted, gathered)
        state.set_prior(prior)
        before = state.slots.copy()
        # In the state, the wanted rows come first, in order.
        births, queue, founders = (np.searchsorted(wanted, rows) for rows in (births, scanned, founders))
        is_scanned = np.zeros(state.n, dtype=bool)
        is_scanned[queue] = True
        n_moved = carvings(rng, state, len(births), 1, 1, DrawnPart(births, is_scanned, 0.0, n))
        n_moved += state.run(rng, scan_rows, address_of(queue), len(queue), 0)
        # Not true if the returned rows happen to be all rows: that depends on the partition.
        has_all = share == 1.0
        if len(founders):
            most = MOST_ROWS if has_all else scheme.most_small
            least = min(scheme.least_carved, most)
            n_moved += carvings(rng, state, len(founders), least, most, DrawnPart(founders, is_scanned, share, n))
        state.most_divided = LARGEST_DIVIDED if has_all else min(LARGEST_DIVIDED, scheme.most_small)
        make_moves(rng, state, scheme.n_moves, scheme.n_sequential if has_all else 0)
        self._take(state, gathered, before, clusters, next_key)
        return n_moved

    def _state_of_part(self, wanted: np.ndarray, gathered: Gathered) -> tuple[State, Gathered]:
        """Return a state of the returned rows, wanted rows first, and the result of the pass for all other rows.

        All rows of small clusters are in the state, so that these clusters can die, merge and split.
        """
        is_wanted = np.isin(gathered.rows, wanted)
        order = np.argsort(~is_wanted, kind="stable")
        n_remote = gathered.sums[:, 0]
        if (n_remote + np.bincount(gathered.labels[is_wanted], minlength=len(n_remote)) == 0).any():
            raise FloatingPointError(f"the leader of a cluster has no density in it: {WHY_NO_DENSITY}")
        has_come = np.bincount(gathered.labels[~is_wanted], minlength=len(n_remote)) == n_remote
        remote, leaders = gathered.sums.copy(), gathered.leaders.copy()
        remote[has_come], leaders[has_come] = 0.0, LAST
        gathered = Gathered(remote, leaders, gathered.rows[order], gathered.labels[order], gathered.values[order])
        return State([self._view(gathered.values)], gathered.labels, [self._table(remote)]), gathered

    def _take(
        self,
        state: State,
        gathered: Gathered,
        before: np.ndarray,
        clusters: DrawnClusters,
        next_key: int,
    ) -> None:
        """Set the partition to that of a state after its moves."""
        slots = state.order[: state.n_clusters]
        (table,) = state.tables
        self.sums = table.array[slots, : table.n_before_cache].copy()
        self.sums[:, 0] = state.sizes[slots]
        leaders = np.full(len(state.sizes), LAST)
        leaders[1 : len(gathered.leaders) + 1] = gathered.leaders
        np.minimum.at(leaders, state.slots, places_in_order(gathered.rows, next_key))
        self.leaders, self.order_key = leaders[slots], next_key
        moved = np.flatnonzero(state.slots != before)
        self.last = DrawnPartition(clusters, gathered.rows[moved], state.slots[moved] - 1, self.sums)


def _keys(rng: np.random.Generator) -> tuple[int, int]:
    first, second = (int(key) for key in rng.integers(2**63, size=2))
    return first, second
