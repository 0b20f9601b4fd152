"""A partition of rows that are in chunks: its statistics, and moves that leave its posterior invariant.

What is here is what a draw goes on from: sums and sizes of the clusters, and who leads them. A draw is one pass
over the chunks, in which all rows draw their labels (:mod:`pymc_dpgmm.sampler.many_rows.leader_sweep`), and then
moves of some rows that have come back: births and deaths of clusters of one row, collapsed scans of rows that
were chosen before anything was known of them, and carvings of these.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from pymc_dpgmm.chunked.passes import FIRST, Gathered, Sent, sums_table
from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.native.compiled import bits_of_generator
from pymc_dpgmm.partitions.concentration import drawn_concentration
from pymc_dpgmm.partitions.priors import GibbsType, log_eppf
from pymc_dpgmm.sampler.many_rows.drawn_clusters import DrawnClusters, draw_clusters, places_in_order
from pymc_dpgmm.sampler.many_rows.leader_sweep import LAST
from pymc_dpgmm.sampler.many_rows.many_rows import LEAST_SCANNED, N_BIRTHS, N_CARVINGS, ROWS_PER_SCANNED
from pymc_dpgmm.sampler.many_rows.part_search import ROWS_OF_PART
from pymc_dpgmm.sampler.moves.births import births_and_deaths_in_part
from pymc_dpgmm.sampler.moves.carving import LEAST_ROWS, MOST_ROWS, carvings_in_part
from pymc_dpgmm.sampler.moves.scans import scan_rows
from pymc_dpgmm.sampler.moves.split_merge import RANDOM_BESIDE_LEADERS
from pymc_dpgmm.sampler.moves.sweep import make_moves
from pymc_dpgmm.sampler.state.memory import LARGEST_DIVIDED, MOST_DIVIDED
from pymc_dpgmm.sampler.state.state import WHY_NO_DENSITY, State
from pymc_dpgmm.sampler.state.table import Table
from pymc_dpgmm.sampler.state.templates import N_KEPT
from pymc_dpgmm.sampler.tuning.schedule import SETTLED_SHARE, largest_change
from pymc_dpgmm.sampler.tuning.search import log_sum

# A cluster of more than so many times the rows of a small one is not expected to be small after the next pass.
SHRINKS = 4


class Rows(Protocol):
    """Rows in chunks."""

    n: int
    n_columns: int

    def run(self, sent: Sent) -> Gathered:
        """Return what one pass over all chunks has gathered."""


class DrawnPartition(NamedTuple):
    """A partition, as what its labels are computed from.

    Parameters
    ----------
    clusters : DrawnClusters
        A pass draws the labels of all rows from them.
    moved, labels : (m,) int64 arrays
        Rows that have moved after the pass, and the labels they have then.
    sums : (K, w) array
        Of the clusters of the partition, as rows of a :class:`Table`; the first column has their sizes.
    """

    clusters: DrawnClusters
    moved: np.ndarray
    labels: np.ndarray
    sums: np.ndarray

    def amend(self, labels: np.ndarray, rows: np.ndarray) -> None:
        """Give rows (m,), whose labels a pass has drawn, those that they have if they have moved after it."""
        if len(rows):
            at = np.minimum(np.searchsorted(rows, self.moved), len(rows) - 1)
            is_there = rows[at] == self.moved
            labels[at[is_there]] = self.labels[is_there]


class Scheme(NamedTuple):
    """What a draw does beside its pass.

    Parameters
    ----------
    n_births : int
        Births and deaths that are proposed.
    n_scanned : int or None
        Rows that are scanned, on average. By default one of 256, at least 1,000 and at most 20,000, or all of up
        to 20,000.
    n_moves : int
        Splits and merges of small clusters.
    n_sequential : int
        Splits and merges of any clusters, where all rows are scanned.
    most_small : int, >= 1
        Rows of a small cluster, at most.
    n_carvings : int
        Carvings of small clusters out of others, and their returns, that are proposed.
    least_carved : int, >= 1
        The smallest bound of the rows of a cluster that is carved out.
    """

    n_births: int = N_BIRTHS
    n_scanned: int | None = None
    n_moves: int = RANDOM_BESIDE_LEADERS
    n_sequential: int = 3
    most_small: int = MOST_ROWS
    n_carvings: int = N_CARVINGS
    least_carved: int = LEAST_ROWS

    def rows_scanned(self, n: int) -> int:
        """Return how many of n rows are scanned on average."""
        if self.n_scanned is not None:
            return min(self.n_scanned, n)
        return n if n <= ROWS_OF_PART else min(max(LEAST_SCANNED, n // ROWS_PER_SCANNED), ROWS_OF_PART)


class ChunkedPartition:
    """A partition of rows in chunks, at first of all rows in one cluster.

    Parameters
    ----------
    rows : Rows
    family : Family
    params : NamedTuple
    origin : (c,) array or None
        As in :class:`View`.
    """

    def __init__(self, rows: Rows, family: Any, params: Any, origin: Any) -> None:
        self.rows, self.family, self.origin = rows, family, origin
        self.order_key = 0
        self.set_params(params)
        # Where there is one cluster, all rows are in it, whatever its parameters are.
        self._place(DrawnClusters(*self._all_may_join(1), np.zeros(1), [{}], 0, 0))

    @property
    def state(self) -> tuple[Any, ...]:
        """What draws go on from."""
        return self.sums, self.leaders, self.order_key, self.last

    @state.setter
    def state(self, state: tuple[Any, ...]) -> None:
        self.sums, self.leaders, self.order_key, self.last = state

    def copy(self) -> "ChunkedPartition":
        """Return a copy that goes on by itself."""
        other = object.__new__(ChunkedPartition)
        # No array is changed in place.
        other.__dict__.update(self.__dict__)
        return other

    @property
    def sizes(self) -> np.ndarray:
        """Sizes of the clusters: (K,) int64 array."""
        return self.sums[:, 0].astype(np.int64)

    def _all_may_join(self, n_clusters: int) -> tuple[np.ndarray, np.ndarray]:
        """Return names and places of leaders of clusters that all rows may join."""
        return np.arange(n_clusters), np.full(n_clusters, FIRST)

    def set_params(self, params: Any) -> None:
        """Take other parameters of the base measure."""
        self.params = params
        # What is tabulated for clusters of any size, and used in all tables.
        self._like = sums_table(self.family, params, self.origin, self.rows.n_columns, 1, most_rows=self.rows.n)

    def _table(self, sums: np.ndarray) -> Table:
        """Return a table of the sums of clusters, from slot 0 on."""
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
        """Return what a pass has gathered, all rows of clusters that few of the others are in among it.

        They are asked for of clusters whose ``sizes`` before the pass are not large. Where others have become
        small all the same, the pass is made again, with the same labels.
        """
        asked = sizes <= SHRINKS * most_small
        while True:
            sent = Sent(self.family, self.params, self.origin, clusters, next_order_key, wanted, most_small, asked)
            found = self.rows.run(sent)
            is_small = (found.sums[:, 0] > 0) & (found.sums[:, 0] <= most_small)
            if not (is_small & ~asked).any():
                return found
            asked = asked | is_small

    def _place(self, clusters: DrawnClusters) -> None:
        """Let all rows draw labels, and take the partition that they make."""
        found = self._send(clusters, self.order_key, np.empty(0, dtype=np.int64))
        present = np.flatnonzero(found.sums[:, 0])
        self.sums, self.leaders = found.sums[present], found.leaders[present]
        none = np.empty(0, dtype=np.int64)
        self.last = DrawnPartition(clusters, none, none, self.sums)

    def search(self, rng: np.random.Generator, prior: GibbsType, search: Callable[[State], State]) -> bool:
        """Search among some of the rows, and let all rows join what is found there, if it is better.

        For tuning only: the posterior is not left invariant. Returns whether something better was found.
        """
        n_rows = min(ROWS_OF_PART, self.rows.n)
        chosen = np.sort(rng.choice(self.rows.n, size=n_rows, replace=False))
        # The labels of the last draw, again.
        again = self._send(self.last.clusters, 0, chosen)
        self.last.amend(again.labels, chosen)
        view = self._view(again.values)
        part = State([view], np.unique(again.labels, return_inverse=True)[1])
        part.set_prior(prior)
        before, merit = part.copy(), log_sum(part)
        found = search(part)
        # Rows that go to and fro between the same clusters are no discovery.
        if log_sum(found) <= merit or largest_change(before, found) <= SETTLED_SHARE * n_rows:
            return False
        labels = found.labels()
        sizes = np.bincount(labels)
        table = Table(view, len(sizes), for_sampling=False)
        table.sum_up(labels, sizes)
        named, places = self._all_may_join(len(sizes))
        log_weights, drawn = draw_clusters(rng, [table], named, sizes - prior.discount)
        self._place(DrawnClusters(named, places, log_weights, drawn, *_keys(rng)))
        return True

    def _view(self, values: np.ndarray) -> View:
        return View(self.family, self.params, values, origin=self.origin)

    def redraw_alpha(self, rng: np.random.Generator, prior: GibbsType, law: tuple[float, float]) -> GibbsType:
        """Return the prior with an alpha drawn given the partition, if its gamma law is given."""
        shape, rate = law
        if rate <= 0.0:
            return prior
        bits = bits_of_generator(rng)
        alpha = drawn_concentration(*bits, prior.alpha, len(self.sums), float(self.rows.n), shape, rate)
        return prior._replace(alpha=alpha)

    def draw(self, rng: np.random.Generator, prior: GibbsType, scheme: Scheme) -> int:
        """Draw the partition; return how many of the rows that came back have moved.

        The posterior is left invariant.
        """
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
        # Every row is scanned with the same probability, whatever the others are.
        share = scheme.rows_scanned(n) / n
        scanned = rng.choice(n, size=rng.binomial(n, share), replace=False)
        births = rng.integers(n, size=scheme.n_births)
        founders = rng.integers(n, size=scheme.n_carvings if share > 0.0 else 0)
        wanted = np.unique(np.concatenate([scanned, births, founders]))
        found = self._send_for_small(clusters, next_key, wanted, scheme.most_small, self.sizes)
        state, found = self._state_of_part(wanted, found)
        state.set_prior(prior)
        before = state.slots.copy()
        # The wanted rows come first, in order.
        births, queue, founders = (np.searchsorted(wanted, rows) for rows in (births, scanned, founders))
        n_moved = births_and_deaths_in_part(rng, state, births, n)
        n_moved += state.run(rng, scan_rows, queue.ctypes.data, len(queue), 0)
        # Not where rows that came back beside the wanted make up all: that depends on the partition.
        has_all = share == 1.0
        if len(founders):
            is_scanned = np.zeros(state.n, dtype=bool)
            is_scanned[queue] = True
            most = MOST_ROWS if has_all else scheme.most_small
            least = min(scheme.least_carved, most)
            n_moved += carvings_in_part(rng, state, founders, is_scanned, share, n, least, most)
        state.head[MOST_DIVIDED] = LARGEST_DIVIDED if has_all else min(LARGEST_DIVIDED, scheme.most_small)
        make_moves(rng, state, scheme.n_moves, scheme.n_sequential if has_all else 0)
        self._take(state, found, before, clusters, next_key)
        return n_moved

    def _state_of_part(self, wanted: np.ndarray, found: Gathered) -> tuple[State, Gathered]:
        """Return a state of rows that came back, those that are wanted first, and what is left of the others.

        Of small clusters all rows are here, so that they can die, unite and divide.
        """
        is_wanted = np.isin(found.rows, wanted)
        order = np.argsort(~is_wanted, kind="stable")
        n_elsewhere = found.sums[:, 0]
        if (n_elsewhere + np.bincount(found.labels[is_wanted], minlength=len(n_elsewhere)) == 0).any():
            raise FloatingPointError(f"the row that leads a cluster has no density there: {WHY_NO_DENSITY}")
        has_come = np.bincount(found.labels[~is_wanted], minlength=len(n_elsewhere)) == n_elsewhere
        elsewhere, leaders = found.sums.copy(), found.leaders.copy()
        elsewhere[has_come], leaders[has_come] = 0.0, LAST
        found = Gathered(elsewhere, leaders, found.rows[order], found.labels[order], found.values[order])
        return State([self._view(found.values)], found.labels, [self._table(elsewhere)]), found

    def _take(
        self,
        state: State,
        found: Gathered,
        before: np.ndarray,
        clusters: DrawnClusters,
        next_key: int,
    ) -> None:
        """Take the partition that a state ends with."""
        slots = state.order[: state.n_clusters]
        (table,) = state.tables
        self.sums = table.array[slots, : int(table.block[N_KEPT])].copy()
        self.sums[:, 0] = state.sizes[slots]
        leaders = np.full(len(state.sizes), LAST)
        leaders[1 : len(found.leaders) + 1] = found.leaders
        np.minimum.at(leaders, state.slots, places_in_order(found.rows, next_key))
        self.leaders, self.order_key = leaders[slots], next_key
        moved = np.flatnonzero(state.slots != before)
        self.last = DrawnPartition(clusters, found.rows[moved], state.slots[moved] - 1, self.sums)


def _keys(rng: np.random.Generator) -> tuple[int, int]:
    first, second = (int(key) for key in rng.integers(2**63, size=2))
    return first, second
