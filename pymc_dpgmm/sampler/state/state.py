"""The state that label kernels share: who is in which cluster, and the tables of statistics.

Memory belongs to NumPy arrays here, and is made larger here alone; :mod:`pymc_dpgmm.sampler.state.memory` tells
what compiled code does with it. It is O(n) whole numbers, the data, and for every view ``width`` numbers for each
slot: a slot for each cluster that there is, half as many again and eight.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.native.compiled import address_of
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.partitions.grouped import Groups
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import GibbsType, check_series, has_weights, log_series
from pymc_dpgmm.sampler.amounts import LARGEST_DIVIDED, MOST_CANDIDATES, MOST_CARVED
from pymc_dpgmm.sampler.state.all_clusters import fill, link_all, log_joint, refit_all, write_labels
from pymc_dpgmm.sampler.state.choices import accumulate_weights
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.state.grouping import begin_sweep, divide_share, end_draw, load_seats, log_prior, recount
from pymc_dpgmm.sampler.state.memory import (
    ALPHA,
    FIRST_ARRAY,
    GAMMA,
    GAMMA_RATE,
    GAMMA_SHAPE,
    HEAD,
    LAW_RATE,
    LAW_SHAPE,
    MOST,
    N_LANES,
    N_PRIOR,
    NEEDS_ROOM,
    NOT_A_NUMBER,
    REST,
)
from pymc_dpgmm.sampler.state.provided import KINDS_OF_MOVES, N_TALLIED, PROVIDED, PROVIDED_TO_GROUPS
from pymc_dpgmm.sampler.state.templates import BLOCK_LENGTH, WEIGHED_AT_ONCE, weights_at_once
from pymc_dpgmm.sampler.state.views import IN_VIEWS

# What only some priors and rows in groups have.
_AT_FIRST_EMPTY = (
    *("log_v", "log_components", "guides", "guide_starts", "group", "group_rows", "group_starts", "touched"),
    *("half_counts", "openers", "group_alphas", "shares", "seated", "visited", "group_counts"),
)
# Where a kernel goes on, and what it has counted.
_OF_CALLS = slice(HEAD.place("sweep"), HEAD.place("n_moved") + 1)
# How a density can be missing or not a number, and what to do.
WHY_NO_DENSITY = (
    "numbers in the data are too large for their squares, or a family's own functions return NaN; rescale the data"
)


# Arrays that a copy shares with its original, or makes by itself; moves change and work with all others.
_SHARED = (
    *("log_v", "log_components", "group", "group_rows", "group_starts", "likenesses", "candidates", "guides"),
    *("guide_starts", "views"),
)
_COPIED = tuple(name for name in HEAD.arrays if name not in _SHARED)
# Of what moves work with, that which has a number for every row, and one more: rows are written before it is known
# whether they count.
_WORKED_WITH = ("pool", "side", "half_rows", "gathered", "guided")
# What every thread has of its own.
_OF_THREADS = ("log_weights", "cumulative", "shrinks", "owns", "lone", "lanes")


class State(Memory, block=HEAD):
    """A partition and the statistics of its clusters.

    Parameters
    ----------
    views : sequence of View
        Data of the same rows, or units, of one family or several; parameters inside their support.
    labels : (n,) integer array, values in 0..n-1
        Of rows, or of units.
    elsewhere : sequence of ClusterTable, optional
        For every view, sums of rows that are elsewhere, in slots 0 to K - 1 of K clusters. Labels are then in 0 to
        K - 1. Such a state has only scans of the rows here, births and deaths, carvings, and moves of clusters
        that are wholly here.
    """

    n: int
    capacity: int
    n_clusters: int
    slots: np.ndarray
    sizes: np.ndarray
    log_v: np.ndarray
    log_components: np.ndarray
    shares: np.ndarray

    def __init__(
        self, views: Sequence[View], labels: np.ndarray, elsewhere: Sequence[ClusterTable] | None = None
    ) -> None:
        super().__init__()
        # Slots that hold sums of rows elsewhere, and no clusters.
        self._n_reserved = 0 if elsewhere is None else len(elsewhere[0].array) - 2
        labels, n_clusters = canonical_labels(labels) if elsewhere is None else (labels, self._n_reserved)
        n = len(labels)
        capacity = _room_for(n_clusters)
        if elsewhere is None:
            self.tables = [ClusterTable(view, capacity, n, may_be_wide=True) for view in views]
        else:
            room = capacity + self._n_reserved
            self.tables = [ClusterTable(v, room, n, like=own) for v, own in zip(views, elsewhere, strict=True)]
        self.n, self.n_views, self.n_kinds = n, len(views), (n_kinds := len(KINDS_OF_MOVES))
        self.most_divided = LARGEST_DIVIDED
        self.slots = labels + 1
        self.queue = np.arange(n)
        self._make(**dict.fromkeys(_WORKED_WITH, n + 1), tally=(n_kinds, N_TALLIED))
        self.kernels, self.n_of_kind, self.slots_of_kind = np.zeros((3, n_kinds), dtype=np.int64)
        # The numbers of moves that ``n_of_kind`` holds; None where the kernels are not known yet.
        self.planned: tuple[int, ...] | None = None
        self.halves, self.half_sizes = np.zeros((2, 2), dtype=np.int64)
        self._make(likenesses=max(MOST_CARVED, MOST_CANDIDATES), candidates=2 * MOST_CANDIDATES)
        self._make(prior_predictive=n, prior=N_PRIOR, **dict.fromkeys(_AT_FIRST_EMPTY, 0))
        self.groups: Groups | None = None
        # What scans of words keep, see sampler/topics/topics.py.
        self.words: Any = None
        self._bits: Any = None
        self._make_slots(capacity)
        self._lay_views()
        self._provide()
        self.accumulate = accumulate_weights
        if elsewhere is not None:
            self.n_elsewhere = n_clusters
            for table, own in zip(self.tables, elsewhere, strict=True):
                table.array[n_clusters + 1 : 2 * n_clusters + 1] = own.array[:n_clusters]
        self._fill(n_clusters)

    @property
    def uses_scratch(self) -> bool:
        """Whether predictives write to the tables, so that threads must not share them."""
        return any(table.unit is not None or table.is_wide for table in self.tables)

    @property
    def alpha(self) -> float:
        """The prior's concentration."""
        return float(self.prior[ALPHA])

    @property
    def most(self) -> float:
        """The most clusters that the prior allows."""
        return float(self.prior[MOST])

    @property
    def gamma(self) -> float:
        """The concentration over groups."""
        return float(self.prior[GAMMA])

    @property
    def cluster_sizes(self) -> np.ndarray:
        """Sizes of the clusters, in no order: (K,) int64 array."""
        return self.sizes[self.order[: self.n_clusters]]

    def _make_slots(self, capacity: int) -> None:
        n, n_slots, reserved = self.n, capacity + self._n_reserved, self._n_reserved
        self._make(sizes=n_slots + 1)
        self.following = np.arange(n + n_slots + 1)
        self.preceding = np.arange(n + n_slots + 1)
        # Those that hold no clusters come last, where none is looked for.
        holding = np.arange(reserved + 1, 2 * reserved + 1)
        self.order = np.concatenate([np.setdiff1d(np.arange(1, n_slots + 1), holding), holding])
        self.place = np.full(n_slots + 1, -1)
        self.place[self.order] = np.arange(n_slots)
        self._make_weights(capacity)

    def _reach(self, capacity: int) -> None:
        """Make slots anew, as many as there are, or more."""
        if capacity > self.capacity:
            for table in self.tables:
                table.resize(capacity)
        self._make_slots(max(capacity, self.capacity))

    def _make_weights(self, capacity: int) -> None:
        n_slots = capacity + self._n_reserved
        self._make(seats=n_slots + 1, seats_left=n_slots + 1, listed=n_slots + 2)
        # Of so many rows at a time as a scan looks ahead.
        self.log_weights, self.cumulative = np.zeros((2, weights_at_once(capacity + 2)))
        self._make(owns=WEIGHED_AT_ONCE, shrinks=WEIGHED_AT_ONCE, lone=2, lanes=N_LANES)
        self.capacity = capacity

    def _make_group_slots(self) -> None:
        """Make room for what is kept of every slot of rows in groups."""
        n_slots = self.capacity + 1
        shares = np.zeros(n_slots)
        shares[: len(self.shares)] = self.shares[:n_slots]
        self.shares = shares
        assert self.groups is not None
        self._make(seated=n_slots, visited=n_slots, group_counts=self.groups.n_groups * n_slots)

    def set_groups(self, groups: Groups) -> None:
        """Take which rows are in which group, for :meth:`set_grouping`."""
        self.groups, self.words = groups, None
        self.group, self.group_rows, self.group_starts = groups.group, groups.rows, groups.starts
        self._make(touched=max(groups.n_groups, 1), half_counts=2 * groups.n_groups)
        self.openers = np.ones(self.n, dtype=np.int64)
        self._make_group_slots()
        self.load_seats, self.divide, self.begin_sweep = load_seats, divide_share, begin_sweep
        self._provide()

    def set_grouping(
        self,
        rng: np.random.Generator,
        group_alphas: np.ndarray,
        openers: np.ndarray | None,
        gamma: float = 1.0,
        laws: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0),
    ) -> None:
        """Let rows join clusters by their groups, from now on.

        Parameters
        ----------
        rng : numpy.random.Generator
        group_alphas : (J,) array
            Concentration of each group.
        openers : (n,) integer array, optional
            Which rows open tables, under a hierarchical Dirichlet process.
        gamma : float
        laws : tuple of float
            Shape and rate of a gamma law of the concentration that all groups share, then those of gamma; zeros
            where it is not drawn with the labels.
        """
        assert self.groups is not None
        if len(self.group_counts) != self.groups.n_groups * (self.capacity + 1):
            self._make_group_slots()
        self.group_alphas = np.array(group_alphas, dtype=np.float64)
        self.n_groups = self.groups.n_groups
        self.prior[[ALPHA, GAMMA]] = group_alphas[0], gamma
        self.prior[[LAW_SHAPE, LAW_RATE, GAMMA_SHAPE, GAMMA_RATE]] = laws
        if openers is not None:
            self.openers[:] = openers
        self.use(rng)
        recount(self.address)
        begin_sweep(self.address, 1)

    def set_guides(self, sets: Sequence[np.ndarray]) -> None:
        """Let sets of rows guide reallocations from now on, in place of those that have.

        Parameters
        ----------
        sets : sequence of int arrays
            The rows of each set, at least one.
        """
        self.guides = np.concatenate([np.zeros(0, dtype=np.int64), *sets])
        self.guide_starts = np.cumsum([0, *map(len, sets)])
        self.n_guides = len(sets)

    def leave_groups(self) -> None:
        """Forget that rows come in groups, until :meth:`set_grouping`."""
        self.n_groups = 0

    @property
    def is_grouped(self) -> bool:
        """Whether rows join clusters by their groups."""
        return self.n_groups > 0

    def end_draw(self) -> None:
        """Draw which rows open tables, given the shares of the clusters, which are forgotten."""
        end_draw(self.address)

    def _provide(self) -> None:
        """Take the functions on all views, and those that moves have registered."""
        given = IN_VIEWS | PROVIDED if self.groups is None else IN_VIEWS | PROVIDED | PROVIDED_TO_GROUPS
        for name, function in given.items():
            setattr(self, name, function)
        self._n_provided = len(PROVIDED)

    def _lay_views(self) -> None:
        """Lay the blocks of the tables one after the other, where compiled code looks for them."""
        self.views = np.zeros((max(len(self.tables), 1), BLOCK_LENGTH), dtype=np.int64)
        for table, words in zip(self.tables, self.views, strict=False):
            table.lie_in(words)

    def _fill(self, n_clusters: int) -> None:
        """Set rings, sizes and statistics from ``slots``, which are 1..K."""
        self.n_clusters = n_clusters
        fill(self.address)

    def __getstate__(self) -> dict[str, Any]:
        # Addresses are those of one process.
        return {**super().__getstate__(), "_bits": None, "planned": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._lay_views()

    def copy(self) -> "State":
        """Return a copy that shares the data and what else does not change."""
        other = self._sharing(*_COPIED)
        other.tables = [table.copy() for table in self.tables]
        other._lay_views()
        return other

    def copied_to(self, spare: "State") -> "State":
        """Return a copy, in the memory of a copy made before that is not needed any more, if it has the room.

        Between the two copies nothing may have changed but what moves change.
        """
        if spare.capacity != self.capacity or any(table.absent is not None for table in self.tables):
            return self.copy()
        for name in _COPIED:
            getattr(spare, name)[:] = getattr(self, name)
        spare.block[:FIRST_ARRAY] = self.block[:FIRST_ARRAY]
        spare.planned = self.planned
        for theirs, table in zip(spare.tables, self.tables, strict=True):
            theirs.array[:] = table.array
        return spare

    def shadow(self, capacity: int) -> "State":
        """Return memory with tables of its own, of another capacity, that shares all else but weights."""
        other = self._sharing()
        other.tables = [table.copy(capacity) for table in self.tables]
        other._lay_views()
        other._make_weights(capacity)
        return other

    def sharing(self) -> "State":
        """Return a state that shares this memory, with weights and scratch of its own, for another thread."""
        other = self._sharing(*_OF_THREADS)
        other.tables = [table.sharing() for table in self.tables]
        other._lay_views()
        return other

    def grow(self) -> None:
        """Make more slots: as many as clusters and moves usually need."""
        old, n, reserved = self.capacity, self.n, self._n_reserved
        capacity = _room_for(self.n_clusters) + int(self.slots_of_kind.max(initial=0))
        first, last = old + reserved + 1, capacity + reserved + 1
        for name in ("following", "preceding"):
            more = np.arange(n + first, n + last)
            setattr(self, name, np.concatenate([getattr(self, name), more]))
        self.sizes = np.concatenate([self.sizes, np.zeros(capacity - old, dtype=np.int64)])
        self.order = np.concatenate([self.order[:old], np.arange(first, last), self.order[old:]])
        self.place = np.concatenate([self.place, np.zeros(capacity - old, dtype=np.int64)])
        self.place[self.order] = np.arange(last - 1)
        self._make_weights(capacity)
        for table in self.tables:
            table.resize(capacity + reserved)
        if self.is_grouped:
            self._make_group_slots()
            recount(self.address)

    def set_prior(self, prior: GibbsType, law: tuple[float, float] = (0.0, 0.0)) -> None:
        """Take a prior on partitions.

        Parameters
        ----------
        prior : GibbsType
        law : tuple of float
            Shape and rate of a gamma prior of alpha, which is then drawn with the labels; zeros if it is not.
        """
        self.prior[: LAW_RATE + 1] = prior.alpha, prior.discount, prior.most, prior.reach, prior.extra, *law
        if has_weights(prior):
            self.series = log_series
        if prior.log_v is not self.log_v and (has_weights(prior) or len(self.log_v)):
            self._take_series(prior)

    def take_prior(self, other: "State") -> None:
        """Take the prior on partitions that another state has, which may be one of another number of rows."""
        self.prior[:] = other.prior
        self.series = other.series
        self._take_series(other)

    def _take_series(self, of: "GibbsType | State") -> None:
        """Take the numbers from which the weights of a prior are computed."""
        self.log_v, self.log_components = of.log_v, of.log_components
        self.n_log_v, self.n_log_components = len(of.log_v), len(of.log_components)

    def set_params(self, params: Sequence[Any]) -> None:
        """Take other parameters of the views' base measures."""
        for table, own in zip(self.tables, params, strict=True):
            table.set_params(own)
        refit_all(self.address)

    def replace_rows(self, values: Sequence[Any], params: Sequence[Any]) -> bool:
        """Take other data of the same shapes, and other parameters; the partition stays the same.

        Returns
        -------
        bool
            False if a table cannot (:meth:`ClusterTable.replace_rows`). Then the state must not be used any more.
        """
        pairs = zip(self.tables, values, strict=True)
        if not all(own is table.values or table.replace_rows(own) for table, own in pairs):
            return False
        self.set_params(params)
        return True

    def slots_of_rows(self, v: int) -> np.ndarray:
        """Return the slots of the rows of a view, whose labels may be those of units."""
        unit = self.tables[v].unit
        return self.slots if unit is None else self.slots[unit]

    def make_own_rows(self, v: int) -> None:
        """Get ready to take other rows of a view."""
        if self.tables[v].has_own_rows:
            return
        self.tables[v].make_own_rows()
        refit_all(self.address)

    def take_rows(
        self, v: int, rows: np.ndarray, slots: np.ndarray | None = None, params: Any | None = None
    ) -> None:
        """Take other rows of a view, after :meth:`make_own_rows`, and other slots of all rows.

        Parameters
        ----------
        v : int
        rows : (n, d) array
        slots : (n,) int64 array, optional
            Any numbers > 0, also beyond the capacity.
        params : NamedTuple, optional
            Other parameters of the view's base measure.
        """
        self.tables[v].take_rows(rows)
        if params is not None:
            self.tables[v].set_params(params)
        if slots is not None:
            if slots.max() > self.capacity:
                self.relabel(np.unique(slots, return_inverse=True)[1])
                return
            self.slots[:] = slots
            link_all(self.address)
        refit_all(self.address)

    def relabel(self, labels: np.ndarray) -> None:
        """Take another partition: labels in 0..n-1."""
        labels, n_clusters = canonical_labels(labels)
        self.leave_groups()
        self.slots[:] = labels + 1
        self._reach(_room_for(n_clusters))
        self._fill(n_clusters)

    def take_slots(self, slots: np.ndarray, shares: np.ndarray, rest: float) -> None:
        """Take another partition of rows in groups: numbers of slots (n,), which may be any, and their shares."""
        used = np.flatnonzero(np.bincount(slots))
        named = np.zeros(used[-1] + 1, dtype=np.int64)
        named[used] = np.arange(1, len(used) + 1)
        self.slots[:] = named[slots]
        self._reach(_room_for(len(used)) if len(used) > self.capacity else 0)
        self._make_group_slots()
        self.shares[:] = 0.0
        self.shares[1 : len(used) + 1] = shares[used]
        self.prior[REST] = rest
        self._fill(len(used))

    def labels(self) -> np.ndarray:
        """Return the canonical labels: (n,) int64 array."""
        found = np.empty(self.n, dtype=np.int64)
        write_labels(self.address, address_of(found))
        return found

    def use(self, rng: np.random.Generator) -> None:
        """Let kernels draw from a generator."""
        if len(PROVIDED) != self._n_provided:
            # The moves were imported after the state was made.
            self._provide()
        bits = rng.bit_generator
        if bits is not self._bits:
            self.draw_from(rng)
            self._bits = bits

    def run(self, rng: np.random.Generator, kernel: Callable[..., int], *arguments: Any) -> int:
        """Run a kernel to its end, with more slots whenever it needs them; return what it has counted.

        Raises
        ------
        FloatingPointError
            If the density of a row in a cluster of others is not a number.
        """
        self.use(rng)
        self.block[_OF_CALLS] = 0
        while (told := kernel(self.address, *arguments)) == NEEDS_ROOM:
            self.grow()
        if told == NOT_A_NUMBER:
            raise FloatingPointError(
                f"the density of a row in a cluster of others is not a number: {WHY_NO_DENSITY}"
            )
        self.check_prior()
        return self.n_moved

    def check_prior(self) -> None:
        """Raise an error if the series of a prior has been cut off where it must not be."""
        if len(self.log_v):
            check_series(self.log_v)

    def log_joint(self) -> float:
        """Log probability of the partition and the data, given the parameters of both."""
        return float(log_joint(self.address)) + (log_prior(self.address) if self.is_grouped else 0.0)

    def members(self, k: int) -> np.ndarray:
        """Return the rows of slot ``k`` in increasing order: int64 array."""
        return np.flatnonzero(self.slots == k)

    @property
    def nbytes(self) -> int:
        """Bytes that the arrays hold, without the data."""
        own = sum(getattr(self, name).nbytes for name in HEAD.arrays)
        return own + sum(table.array.nbytes + table.scratch.nbytes + table.shared.nbytes for table in self.tables)


def _room_for(n_clusters: int) -> int:
    return n_clusters + n_clusters // 2 + 8
