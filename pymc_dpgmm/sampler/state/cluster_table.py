"""Tables of clusters: one view's statistics of all clusters, one cluster a row."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.family import Family, Ragged, unshifted, volume
from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.families.shared.origins import shift_mean
from pymc_dpgmm.native.compiled import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NOTHING,
    address_of,
    c_function,
    shifted,
)
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.sampler.state.table_functions import function_of, is_weighed_in_lanes, letters_of
from pymc_dpgmm.sampler.state.templates import (
    ALWAYS,
    CACHE,
    LENGTHS,
    N_BEFORE_SUMS,
    PARAMETERS,
    SUMS,
    VIEW,
    scratch_in_lanes,
    view_at,
    weights_at_once,
)


def places_among(slots: np.ndarray, slots_of_rows: np.ndarray) -> np.ndarray:
    """Return the places among some slots (K,) of those of rows (n,); K for slots that are not among them."""
    place_of = np.full(int(max(slots.max(), slots_of_rows.max())) + 1, len(slots))
    place_of[slots] = np.arange(len(slots))
    places: np.ndarray = place_of[slots_of_rows]
    return places


def members_of_clusters(labels: np.ndarray) -> np.ndarray:
    """Return the rows of cluster 0, then those of cluster 1, and so on: (n,) int64 array."""
    return np.argsort(labels, kind="stable").astype(np.int64)


def rows_of_clusters(labels: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each cluster, in increasing order, given canonical labels (n,)."""
    return np.split(members_of_clusters(labels), np.cumsum(np.bincount(labels))[:-1])


class ClusterTable(Memory, block=VIEW):
    """The statistics of all clusters of one view.

    Memory is ``(capacity + 2) * width`` float64 numbers, ``width`` being two, the sums and the cache, beside the
    data. Slots are made for clusters that exist; :meth:`resize` makes more.

    Parameters
    ----------
    view : View
    capacity : int
        Slots 1 to ``capacity`` may hold clusters. Slot 0 is a cluster without rows, and the one after the last is
        used by functions of units.
    n_labels : int, optional
        Number of units, where rows belong to such.
    for_sampling : bool
        Whether predictives are asked for; otherwise only sums and log evidence are there.
    may_be_wide : bool
        Whether the family may be replaced by that for wide data, see :class:`Family`, where that is less work. It
        serves clusters of rows of this table alone.
    most_rows : int
        Rows that a cluster may have, if more than there are in this table.
    like : ClusterTable, optional
        A table of the same family and origin, whose parameters this one has.
    """

    params: Any
    shifted: Any
    shared: np.ndarray

    def __init__(
        self,
        view: View,
        capacity: int,
        n_labels: int | None = None,
        *,
        for_sampling: bool = True,
        may_be_wide: bool = False,
        most_rows: int = 0,
        like: "ClusterTable | None" = None,
    ) -> None:
        super().__init__()
        self.base_family = self.family = view.family
        self.for_sampling = for_sampling
        self.values, self.unit = view.values, view.unit
        origin = () if view.origin is None else (view.origin,)
        rows, self.origin = self.family.represent(view.params, view.values, *origin)
        self.n_rows = int(view.values.shape[0])
        if may_be_wide and self.family.wide is not None and not np.isnan(rows).any():
            self.family = self.family.wide(*rows.shape) or self.family
        self.power = float(view.power)
        self.starts: np.ndarray | None = None
        if isinstance(rows, Ragged):
            self.rows, self.starts = np.ascontiguousarray(rows.numbers, dtype=np.float64), rows.starts
        else:
            self.rows = np.ascontiguousarray(rows, dtype=np.float64)
            self.stride = self.rows.shape[1]
        self.absent: np.ndarray | None = None
        # What the family has subtracted from each row, where rows change.
        self._subtracted: np.ndarray | None = None
        if view.unit is not None:
            counts = np.bincount(view.unit, minlength=n_labels or 0)
            self.unit_starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            self.unit_rows = np.argsort(view.unit, kind="stable").astype(np.int64)
            self.room = np.empty(self.n_rows, dtype=np.int64)
        # Rows in a cluster, at most. A unit may be weighed beside its own rows, though the result is not used.
        of_units = 0 if view.unit is None else int(counts.max(initial=0))
        self._largest = max(self.n_rows + of_units if for_sampling else 0, most_rows)
        self._places_of_params: list[tuple[int, int]] = []
        # The family whose functions the block has, and which ones.
        self._prepared: tuple[Family, Sequence[str]] | None = None
        # The family and the parameters whose numbers for sizes of clusters are in shared memory.
        self._tabulated: tuple[Family, Any] | None = None
        self._lay_out(view.params)
        self.array = np.zeros((capacity + 2, self.width))
        if like is None:
            self.set_params(view.params)
        else:
            self.params, self.shifted, self.shared = like.params, like.shifted, like.shared
            self.block[PARAMETERS:] = like.block[PARAMETERS:]
            self._places_of_params = like._places_of_params
        self._make_scratch()
        self._prepare_all()

    def _lay_out(self, params: Any) -> None:
        """Set places of sums and cache in a row of the table."""
        family = self.family
        lengths = family.lengths(params)
        for q, letter in enumerate(letters_of(family)):
            self.block[LENGTHS + q] = lengths[letter]
        place = N_BEFORE_SUMS
        # Where each sum lies, and its shape.
        self._fields: dict[str, tuple[slice, tuple[int, ...]]] = {}
        for q, (name, letters) in enumerate(family.sums.items()):
            self.block[SUMS + q], start = place, place
            place += volume(letters, lengths)
            self._fields[name] = slice(start, place), tuple(lengths[letter] for letter in letters)
        self.n_before_cache = place
        for q, letters in enumerate(family.cache.values()):
            self.block[CACHE + q] = place
            place += volume(letters, lengths)
        self.width = place

    @property
    def is_wide(self) -> bool:
        """Whether the family is the one for wide data."""
        return self.family is not self.base_family

    @property
    def capacity(self) -> int:
        """Number of slots that may hold clusters."""
        return len(self.array) - 2

    def set_params(self, params: Any) -> None:
        """Take other parameters of the same shapes; the caller derives the caches of clusters anew."""
        self.params = params
        shifted = self.family.shift(params, self.origin)
        if self._keeps_tables(shifted):
            # Others may have the present numbers.
            self.shared = self.shared.copy()
            self._write(shifted)
            return
        tables = self.family.tabulate(shifted, self._largest)
        if self.family.pairs is not None:
            pairs = self.family.pairs(shifted, self.rows)
            tables |= {"n_pairs": len(pairs), "pairs": pairs}
        values = (*shifted, *tables.values())
        ends = [0, *itertools.accumulate(1 if isinstance(value, float) else np.size(value) for value in values)]
        places = list(itertools.pairwise(ends))
        if places != self._places_of_params:
            self._places_of_params = places
            self.block[PARAMETERS : PARAMETERS + len(values)] = ends[:-1]
        # Others may have the present numbers.
        self.shared = np.empty(ends[-1])
        self._fill(values)
        self.shifted, self._tabulated = shifted, (self.family, shifted)

    def set_params_of_evidence(self, params: Any) -> None:
        """Take other parameters of the same shapes where nothing but log evidence and sums is asked for."""
        if self.family.constants is None or self.for_sampling:
            self.set_params(params)
            return
        self.params = params
        self._write(self.family.shift(params, self.origin))

    def _keeps_tables(self, shifted: Any) -> bool:
        """Tell whether what the family makes for sizes of clusters is the same for other parameters."""
        names = self.family.tabulated_by
        if names is None or self._tabulated is None or self.family.pairs is not None:
            return False
        family, before = self._tabulated
        return family is self.family and all(
            np.array_equal(getattr(shifted, name), getattr(before, name)) for name in names
        )

    def _write(self, shifted: Any) -> None:
        """Write other parameters, and the constants that the family makes of them."""
        assert self.family.constants is not None
        self.shifted = shifted
        self._fill((*shifted, *self.family.constants(shifted).values()))

    def _fill(self, values: Sequence[Any]) -> None:
        """Write numbers to the first places of shared memory."""
        for (start, stop), value in zip(self._places_of_params, values, strict=False):
            if stop - start == 1:
                self.shared[start] = value if isinstance(value, float) else np.ravel(value)[0]
            else:
                self.shared[start:stop] = value.ravel()

    def _make_scratch(self) -> None:
        scratch = max(self.width, self.family.scratch(self.params))
        if is_weighed_in_lanes(self.family):
            scratch = max(scratch, scratch_in_lanes(self.rows.shape[1]))
        # Room beside that of the family: exponents and arguments of predictives.
        self.n_lanes = weights_at_once(len(self.array))
        self._take_scratch(np.ones(scratch + 2 * self.n_lanes))
        self.spare = len(self.array) - 1

    def _take_scratch(self, scratch: np.ndarray) -> None:
        self.scratch, stop = scratch, len(scratch) - self.n_lanes
        self.exponents, self.arguments = scratch[stop - self.n_lanes : stop], scratch[stop:]

    def _prepare_all(self) -> None:
        """Make the functions available that sampling needs, if the table is for it."""
        if self.for_sampling:
            self.prepare(ALWAYS if self.absent is None else (*ALWAYS, "present"))
            if self.unit is not None:
                self.prepare(("weigh_together",))
            if self.absent is not None and self.family.draw_absent is not None:
                self.prepare(("draw_absent",))

    def prepare(self, verbs: Sequence[str]) -> None:
        """Make C functions of the family available to kernels."""
        if self._prepared is not None and self._prepared[0] is self.family and self._prepared[1] == verbs:
            return
        for verb in verbs:
            self.block[VIEW.place(verb)] = function_of(self.family, verb).address
        self._prepared = self.family, verbs

    def set_absent(self, absent: np.ndarray) -> None:
        """Take which entries of the rows are absent: (n, d) bools.

        Rows can change now: the family for wide data is given up, and the caller gathers clusters anew.
        """
        if self.is_wide:
            self.narrow()
        self.absent = np.ascontiguousarray(absent, dtype=np.uint8)
        self._prepare_all()

    @property
    def has_own_rows(self) -> bool:
        """Whether the rows may change: they are no data."""
        return self._subtracted is not None

    def make_own_rows(self) -> None:
        """Get ready for other rows: the family for wide data is given up, and the caller gathers clusters anew."""
        if self.is_wide:
            self.narrow()
        self.rows = self.rows.copy()
        self._subtracted = self.values - self.rows
        self._prepare_all()

    @property
    def subtracted(self) -> np.ndarray:
        """What the family subtracts from the rows, which may change: an array like these."""
        assert self._subtracted is not None
        return self._subtracted

    def take_rows(self, rows: np.ndarray) -> None:
        """Take other rows (n, d) and the known columns of the old ones; the caller gathers clusters anew."""
        self.note_rows(rows)
        d = rows.shape[1]
        np.subtract(rows, self.subtracted[:, :d], out=self.rows[:, :d])

    def note_rows(self, rows: np.ndarray) -> None:
        """Note which rows (n, d) the numbers of the table are, which have been written there already."""
        d = rows.shape[1]
        self.values = np.concatenate([rows, self.values[:, d:]], axis=1)

    def replace_rows(self, values: np.ndarray) -> bool:
        """Take other data of the same shape.

        The caller sums up, and sets parameters, which depend on the origin of the rows.

        Returns
        -------
        bool
            False, and nothing is changed, if the family has these rows in another form, or rows change otherwise.
        """
        if self.is_wide or self.absent is not None or self.has_own_rows:
            return False
        rows, origin = self.family.represent(self.params, values)
        if isinstance(rows, Ragged) or rows.shape != self.rows.shape:
            return False
        self.values, self.origin = values, origin
        self.rows = np.ascontiguousarray(rows, dtype=np.float64)
        return True

    def log_predictives_alone(self) -> np.ndarray:
        """Return the log predictives (n,) of rows in clusters of their own."""
        n, slots = self.n_rows, np.array([0, -1])
        found, every, slot = np.zeros(n), np.arange(n), address_of(slots)
        _weigh_alone(self.address, address_of(every), n, slot, slot + 8, address_of(found))
        return found

    def narrow(self) -> None:
        """Replace the family for wide data by the one that serves any; clusters have to be gathered anew."""
        self.family = self.base_family
        self._lay_out(self.params)
        self.array = np.zeros((len(self.array), self.width))
        self.set_params(self.params)
        self._make_scratch()

    def resize(self, capacity: int) -> None:
        """Make more slots, or fewer."""
        array = np.zeros((capacity + 2, self.width))
        shared = min(len(array), len(self.array)) - 1
        array[:shared] = self.array[:shared]
        self.array = array
        self._make_scratch()

    def copy(self, capacity: int | None = None) -> "ClusterTable":
        """Return a copy that shares the data and what else does not change, with more slots, or fewer."""
        other = self._sharing() if self.unit is None else self._sharing("room")
        # Memory with other slots, for one sweep, shares the rows.
        if self.absent is not None or (self.has_own_rows and capacity is None):
            other.rows = self.rows.copy()
        if capacity is None:
            other.array = self.array.copy()
            other._take_scratch(self.scratch.copy())
        else:
            other.resize(capacity)
        return other

    def sharing(self) -> "ClusterTable":
        """Return a table that shares this memory, with scratch of its own, for another thread."""
        other = self._sharing()
        other._take_scratch(self.scratch.copy())
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_prepared": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._prepare_all()

    def sum_up(self, labels: np.ndarray, sizes: np.ndarray) -> None:
        """Set the sums of slots 0..K-1 to those of the rows labelled so, given the sizes of all K."""
        self.sum_up_members(members_of_clusters(labels), sizes)

    def sum_up_members(self, members: np.ndarray, sizes: np.ndarray) -> None:
        """Set the sums, given the rows of the clusters one after the other: see :func:`members_of_clusters`."""
        call, start = function_of(self.family, "sum_up"), address_of(members)
        for k, size in enumerate(sizes.tolist()):
            call(self.address, k, start, size)
            start += 8 * size

    def gather(self, k: int, members: np.ndarray) -> None:
        """Set slot ``k`` to the cluster of some rows: (m,) int64 array."""
        own = np.ascontiguousarray(members, dtype=np.int64)
        function_of(self.family, "gather")(self.address, k, address_of(own), len(own), 1)

    def change(self, i: int, k: int, sign: float) -> bool:
        """Let row ``i`` join (1.0) or leave (-1.0) slot ``k``; return whether it has to be gathered anew."""
        return bool(function_of(self.family, "change")(self.address, i, k, sign))

    def merge(self, k: int, j: int) -> None:
        """Let slot ``k`` stand for its own rows and those of slot ``j`` together."""
        function_of(self.family, "merge")(self.address, k, j)

    def add_up(self, start: int, stop: int, by: int) -> None:
        """Add to the sums of slots ``start`` to ``stop - 1`` those of the slots ``by`` further on."""
        function_of(self.family, "add_up")(self.address, start, stop - start, by)

    def log_evidence(self, k: int) -> float:
        """Return the log marginal likelihood of the rows of slot ``k``."""
        return float(function_of(self.family, "evidence")(self.address, k))

    def log_predictives(self, k: int) -> np.ndarray:
        """Return the log predictives of all rows given slot ``k``: (n,) float64 array."""
        found, weigh = np.zeros(self.n_rows), function_of(self.family, "weigh")
        rows, slot, nobody = np.arange(self.n_rows), np.array([k]), np.array([-1])
        for i in range(self.n_rows):
            at, out = address_of(rows) + 8 * i, address_of(found) + 8 * i
            weigh(self.address, at, 1, address_of(slot), 1, address_of(nobody), 1, out)
        return found

    def log_predictive_without(self, i: int, k: int) -> float:
        """Return the log predictive of row ``i`` of slot ``k`` given its other rows, NaN if digits are lost."""
        found, row, slots = np.zeros(1), np.array([i]), np.array([k])
        slot, address = address_of(slots), self.address
        function_of(self.family, "weigh")(address, address_of(row), 1, slot, 1, slot, 1, address_of(found))
        return float(found[0])

    def cached(self, name: str, k: int) -> np.ndarray:
        """Return what the cache of slot ``k`` holds under a name: a view of the table, flat."""
        q = list(self.family.cache).index(name)
        length = volume(self.family.cache[name], self.family.lengths(self.params))
        start = int(self.block[CACHE + q])
        return self.array[k, start : start + length]

    def total_log_evidence(self, n_clusters: int) -> float:
        """Return the log marginal likelihood of slots 0 to ``n_clusters - 1`` together, from their sums alone."""
        self.prepare(("evidence_anew",))
        return float(_total(self.address, n_clusters))

    @property
    def is_native(self) -> bool:
        """Whether compiled code can take other parameters for log evidence."""
        return self.family.shift in (unshifted, shift_mean) and self.family.is_native(self.shifted)

    def place_of(self, name: str) -> tuple[int, int]:
        """Return where a parameter, or a number beside them, begins and ends in shared memory."""
        names = [*self.family.parameters, *self.family.tables]
        place = self._places_of_params[names.index(name)]
        return place

    def subtracted_from(self, name: str) -> np.ndarray | None:
        """Return what ``Family.shift`` subtracts from a parameter, (d,), None if nothing."""
        return self.origin if name == "mu" and self.family.shift is shift_mean else None

    def for_evidence(self) -> "ClusterTable":
        """Return a table for log evidence of clusters of the same rows, see :meth:`take_clusters`."""
        view = View(self.base_family, self.params, self.values, self.unit, power=self.power)
        return ClusterTable(view, self.capacity, for_sampling=False)

    def take_clusters(self, other: "ClusterTable", slots: np.ndarray, slots_of_rows: np.ndarray) -> None:
        """Set slots 0 to K - 1 to the clusters in some slots of the table that this one was made for.

        Parameters
        ----------
        other : ClusterTable
        slots : (K,) int64 array
        slots_of_rows : (n,) int64 array
        """
        if len(slots) > self.capacity:
            self.resize(2 * len(slots))
        if self.origin is not other.origin:
            # Parameters are relative to the origin of the sums, also those that nobody sets anew.
            self.origin = other.origin
            self.set_params_of_evidence(other.params)
        if other.is_wide:
            # The sums of its family are others.
            labels = places_among(slots, slots_of_rows)
            self.sum_up(labels, np.bincount(labels, minlength=len(slots)))
            return
        kept = self.n_before_cache
        self.array[: len(slots), :kept] = other.array[slots, :kept]

    def predictives(self, sums: Any, rows: np.ndarray, absent: np.ndarray | None = None) -> np.ndarray:
        """Return log predictives of rows given clusters: (m, K) float64 array.

        Parameters
        ----------
        sums : NamedTuple
            Of K clusters, as :meth:`sums` returns them; they go to slots 1 to K.
        rows : (m,) int64 array
        absent : (n, d) bool array, optional
            Of all rows, the entries that are left out.
        """
        n_clusters, nobody = self._take_sums(sums), np.array([-1])
        self.prepare(ALWAYS if absent is None else (*ALWAYS, "present"))
        if absent is not None:
            self.set_absent(absent)
        slots = np.arange(1, n_clusters + 1)
        found = np.zeros((len(rows), n_clusters))
        arrays = (address_of(rows), len(rows), address_of(slots), n_clusters, address_of(nobody))
        _weigh_all(self.address, *arrays, address_of(found))
        return found

    def joined(self, sums: Any, rows: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return sums of K clusters that rows (m,) have joined, each of them, and their log densities (K,).

        The densities are those of all of the rows together, given each of the clusters.
        """
        n_clusters = self._take_sums(sums)
        self.prepare(ALWAYS)
        found = np.zeros(n_clusters)
        _join_all(self.address, address_of(rows), len(rows), n_clusters, address_of(found))
        return type(sums)(*(field.copy() for field in self.sums(1, n_clusters + 1))), found

    def _take_sums(self, sums: Any) -> int:
        """Set slots 1 to K to clusters of these sums, whose caches are derived where they are used; return K."""
        n_clusters = len(sums.n)
        if n_clusters > self.capacity:
            self.resize(n_clusters)
        self.array[1 : n_clusters + 1, 0] = sums.n[:, 0]
        for name, (places, _) in self._fields.items():
            self.array[1 : n_clusters + 1, places] = getattr(sums, name).reshape(
                n_clusters, places.stop - places.start
            )
        return n_clusters

    def sums(self, start: int, stop: int) -> Any:
        """Return the sums of slots ``start`` to ``stop - 1``: views of the table."""
        chosen = self.array[start:stop]
        fields = [chosen[:, places].reshape(len(chosen), *shape) for places, shape in self._fields.values()]
        return self.family.kept_sums(chosen[:, :1], *fields)


@c_function(FLOAT(INTS, INT))
def _total(view, n_clusters):
    total = 0.0
    for k in range(n_clusters):
        total += view_at(view).evidence_anew(view, k)
    return total


@c_function(NOTHING(INTS, INTS, INT, INTS, INTS, FLOATS))
def _weigh_alone(view, rows, n, slot, nobody, found):
    """Add to ``found`` the log predictives of rows in one slot."""
    for t in range(n):
        view_at(view).weigh(view, shifted(rows, t), 1, slot, 1, nobody, 1, shifted(found, t))


@c_function(NOTHING(INTS, INTS, INT, INTS, INT, INTS, FLOATS))
def _weigh_all(view, rows, n_rows, slots, n_slots, nobody, found):
    for j in range(n_slots):
        # Nothing joins: the cache is derived.
        view_at(view).gather(view, slots[j], slots, 0, 0)
    for t in range(n_rows):
        out = shifted(found, t * n_slots)
        if not view_at(view).has_absent:
            view_at(view).weigh(view, shifted(rows, t), 1, slots, n_slots, nobody, 1, out)
        else:
            for j in range(n_slots):
                out[j] = view_at(view).present(view, rows[t], slots[j])


@c_function(NOTHING(INTS, INTS, INT, INT, FLOATS))
def _join_all(view, rows, n_rows, n_slots, found):
    """Let rows join slots 1 to ``n_slots``, each of them, and set ``found`` to their log densities together."""
    for j in range(n_slots):
        # Nothing joins: the cache is derived.
        view_at(view).gather(view, j + 1, rows, 0, 0)
        before = view_at(view).evidence(view, j + 1)
        view_at(view).gather(view, j + 1, rows, n_rows, 0)
        found[j] = view_at(view).evidence(view, j + 1) - before
