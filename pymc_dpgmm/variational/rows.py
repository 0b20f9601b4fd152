"""Rows of data for variational inference: responsibilities of components, and rows summed with these weights."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from pymc_dpgmm.families.contract.expected import Expected, LinearExpectation, Quadratic
from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.sampler.many_rows.leader_sweep import CHUNK, MOST_CHUNKS
from pymc_dpgmm.sampler.many_rows.quadratics import rows_of_block
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.state.templates import N_BEFORE_SUMS
from pymc_dpgmm.variational.responsibilities import MOMENTS, respond, sum_up_each, write_evidences

# The sums of all single rows are stored if they are at most _MOST_KEPT numbers. Otherwise they are stored as a
# sparse matrix if at most _SPARSE_SHARE are non-zero, or else computed in blocks of _MOST_OF_BLOCK numbers.
_MOST_KEPT, _SPARSE_SHARE, _MOST_OF_BLOCK = 8_000_000, 0.2, 1_000_000
# Least and largest number of rows of such a block.
_LEAST_ROWS, _MOST_ROWS = 64, 4_096
# Largest total size of the sums of all chunks that threads work on; two chunks are always allowed.
_MOST_SUMMED = 8_000_000


class Sums(NamedTuple):
    """Sufficient statistics of weighted rows, for each of K components.

    Parameters
    ----------
    sizes : (K,) array
        Sums of the weights.
    views : tuple of (K, m) arrays
        For each view, the sums of its family, concatenated.
    """

    sizes: np.ndarray
    views: tuple[np.ndarray, ...]

    def take(self, components: Any) -> "Sums":
        """Return the sums of some components."""
        return Sums(self.sizes[components], tuple(of_view[components] for of_view in self.views))

    def beside(self, others: "Sums") -> "Sums":
        """Return these components followed by others."""
        pairs = zip(self.views, others.views, strict=True)
        return Sums(np.concatenate([self.sizes, others.sizes]), tuple(np.concatenate(pair) for pair in pairs))


class WeightedView:
    """One view of the rows.

    Parameters
    ----------
    view : View
        Its family must declare ``expected``. Parameters must lie in their support.
    """

    def __init__(self, view: View) -> None:
        self.family = view.family
        self.table = ClusterTable(view, 1, for_sampling=False)
        self.table.prepare(("evidence_anew", "sum_up"))
        self.n_sums = self.table.n_before_cache - N_BEFORE_SUMS
        expected = self.expected(Sums(np.zeros(1), (np.zeros((1, self.n_sums)),)), 0)
        self.is_quadratic = isinstance(expected, Quadratic)
        self.n_rows = self.table.n_rows
        # The rows of a quadratic view. For other views, the sums of single rows, or None if they are not stored.
        self.rows: Any = self.table.rows if self.is_quadratic else None
        self._members: np.ndarray | None = None
        if not self.is_quadratic:
            self.rows = self._kept_rows()

    @property
    def n_columns(self) -> int:
        """Number of columns of a quadratic view."""
        return len(self.table.shifted.mu)

    def _kept_rows(self) -> Any:
        from scipy.sparse import csr_array, vstack

        if self.n_rows == 0:
            return np.empty((0, self.n_sums))
        if self.n_rows * self.n_sums <= _MOST_KEPT:
            return np.concatenate([self.block(*ends) for ends in self.blocks()])
        blocks = []
        for ends in self.blocks():
            block = self.block(*ends)
            if np.count_nonzero(block) > _SPARSE_SHARE * block.size:
                return None
            blocks.append(csr_array(block))
        return vstack(blocks, format="csr")

    def blocks(self) -> list[tuple[int, int]]:
        """Return the first row of each block, and the row after its last."""
        size = int(np.clip(_MOST_OF_BLOCK // self.n_sums, _LEAST_ROWS, _MOST_ROWS))
        starts = range(0, self.n_rows, size)
        return [(start, min(start + size, self.n_rows)) for start in starts]

    def block(self, first: int, last: int) -> Any:
        """Return the sums of single rows, (last - first, m). The view must not be quadratic."""
        if self.rows is not None:
            return self.rows[first:last]
        members = np.arange(first, last) if self._members is None else self._members[first:last]
        table = self.table
        if table.capacity < len(members):
            table.resize(len(members))
        members = np.ascontiguousarray(members, dtype=np.int64)
        sum_up_each(table.address, members.ctypes.data, len(members))
        return table.array[: len(members), N_BEFORE_SUMS : N_BEFORE_SUMS + self.n_sums].copy()

    def subset(self, rows: np.ndarray) -> "WeightedView":
        """Return the view of some rows, with the same representation of sums."""
        other = object.__new__(WeightedView)
        other.__dict__.update(self.__dict__)
        other.n_rows = len(rows)
        if self.rows is not None:
            other.rows = np.ascontiguousarray(self.rows[rows]) if self.is_quadratic else self.rows[rows]
        else:
            other._members = rows if self._members is None else self._members[rows]
        return other

    def of_single(self, rows: np.ndarray) -> np.ndarray:
        """Return the sums of components with one row each: (K, m)."""
        if self.is_quadratic:
            sums = np.zeros((len(rows), self.n_sums))
            sums[:, : self.n_columns] = self.rows[rows][:, : self.n_columns]
            return sums
        single = [self.block(row, row + 1) for row in np.asarray(rows).tolist()]
        return np.concatenate(
            [of_row if isinstance(of_row, np.ndarray) else of_row.toarray() for of_row in single]
        )

    def of_labels(self, labels: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the sums of components, given labels of all rows and sizes of components: (K, m)."""
        table = self.table
        if table.capacity < len(sizes):
            table.resize(len(sizes))
        table.sum_up(labels, sizes)
        return table.array[: len(sizes), N_BEFORE_SUMS : N_BEFORE_SUMS + self.n_sums].copy()

    def _place(self, sizes: np.ndarray, sums: np.ndarray) -> Any:
        """Write sums into the table, and return them by name."""
        table, n_components = self.table, len(sizes)
        if table.capacity < n_components:
            table.resize(n_components)
        table.array[:n_components, 0] = sizes
        table.array[:n_components, N_BEFORE_SUMS : N_BEFORE_SUMS + self.n_sums] = sums
        return table.sums(0, n_components)

    def expected(self, sums: Sums, place: int) -> Expected:
        """Return the expected log density under every component; ``place`` is the index of the view in sums."""
        assert self.family.expected is not None
        return self.family.expected(self.table.shifted, self._place(sums.sizes, sums.views[place]))

    def set_params(self, params: Any) -> None:
        """Set other parameters of the same shapes. Sums keep their representation."""
        self.table.set_params(params)

    def gradient(self, sums: Sums, place: int) -> dict[str, Any]:
        """Return the gradient of the total log evidence of all components in the parameters, by name."""
        return self.family.gradient(self.table.shifted, self._place(sums.sizes, sums.views[place]))

    def factors(self, expected: LinearExpectation) -> np.ndarray:
        """Return the factor of each sum of a single row in its expected log density: (K, m)."""
        n_components = len(expected.constant)
        parts = [
            np.reshape(expected.factors.get(name, np.zeros(sums.shape)), (n_components, -1))
            for name, sums in self.table.sums(0, n_components)._asdict().items()
            if name != "n"
        ]
        return np.concatenate(parts, axis=1)

    def log_evidences(self, sizes: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Return the log evidence of every component: (K,)."""
        self._place(sizes, sums)
        evidences = np.empty(len(sizes))
        write_evidences(self.table.address, len(sizes), evidences.ctypes.data)
        return evidences

    def merged(self, n: np.ndarray, sums: np.ndarray, m: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the sums of K pairs of components merged, from sums (K, m) of sizes ``n`` and ``m`` (K,)."""
        if not self.is_quadratic:
            return sums + others
        d = self.n_columns
        share = (m / np.maximum(n + m, np.finfo(np.float64).tiny))[:, None]
        between = others[:, :d] - sums[:, :d]
        second = sums[:, d:] + others[:, d:] + share * n[:, None] * self._products(between)
        return np.hstack([sums[:, :d] + share * between, second])

    def _products(self, columns: np.ndarray) -> np.ndarray:
        """Return products of columns in the layout of the sums of a quadratic view."""
        if self.n_sums == 2 * columns.shape[1]:
            return columns**2
        i, j = np.tril_indices(columns.shape[1])
        return columns[:, i] * columns[:, j]

    def scaled(self, sums: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """Return the sums (K, m) of components whose rows each count ``factor`` (K,) times."""
        multiplied = sums * factor[:, None]
        if self.is_quadratic:
            multiplied[:, : self.n_columns] = sums[:, : self.n_columns]
        return multiplied

    def beyond(
        self, n: tuple[np.ndarray, ...], before: np.ndarray, after: np.ndarray, factor: float
    ) -> np.ndarray:
        """Extrapolate sums: return those ``after`` plus ``factor`` times the change since ``before``.

        ``n`` has the sizes (K,) before, after, and extrapolated. Sums that cannot be negative stay at 0 or above.
        """
        if not self.is_quadratic:
            extrapolated = after + factor * (after - before)
            return np.where((before >= 0.0) & (after >= 0.0), np.maximum(extrapolated, 0.0), extrapolated)
        d = self.n_columns
        totals = []
        for size, sums in zip(n[:2], (before, after), strict=True):
            mean = sums[:, :d]
            totals.append((size[:, None] * mean, sums[:, d:] + size[:, None] * self._products(mean)))
        first, second = (b + factor * (b - a) for a, b in zip(*totals, strict=True))
        centre = after[:, :d]
        # Second moments about the centres after.
        cross = self._products(first + centre) - self._products(first) - self._products(centre)
        about = second - cross + n[2][:, None] * self._products(centre)
        return self.from_moments(n[2], centre, first - n[2][:, None] * centre, about)

    def from_moments(
        self, sizes: np.ndarray, centre: np.ndarray, first: np.ndarray, second: np.ndarray
    ) -> np.ndarray:
        """Return the sums of a quadratic view, given weighted first and second moments about centres."""
        safe = np.where(sizes > 0.0, sizes, 1.0)[:, None]
        offset = first / safe
        second = second - safe * self._products(offset)
        d = self.n_columns
        diagonal = np.arange(d) if second.shape[1] == d else np.cumsum(np.arange(1, d + 1)) - 1
        second[:, diagonal] = np.maximum(second[:, diagonal], 0.0)
        return np.hstack([np.where(sizes[:, None] > 0.0, centre + offset, 0.0), second])


class _Prepared(NamedTuple):
    """Expected log densities in the form that a pass over the rows needs."""

    log_weights: np.ndarray
    quadratic: list[tuple[int, Quadratic, np.ndarray, np.ndarray]]
    linear: list[tuple[int, np.ndarray]]

    @property
    def n_components(self) -> int:
        return len(self.log_weights)


class _Moments(Memory, block=MOMENTS):
    """What a pass over the rows of a quadratic view adds up."""


class _Chunk:
    """Sums over some of the rows, which one thread adds up."""

    def __init__(self, rows: "RowsInMemory", prepared: _Prepared) -> None:
        self.sizes, self.entropy = np.zeros(prepared.n_components), np.zeros(1)
        self.sums = {v: np.zeros((prepared.n_components, rows.views[v].n_sums)) for v in range(len(rows.views))}
        self.blocks = np.zeros((max(len(prepared.quadratic), 1), len(MOMENTS)), dtype=np.int64)
        self.first: dict[int, np.ndarray] = {}
        self.second: dict[int, np.ndarray] = {}
        for place, (v, expected, shift, root) in enumerate(prepared.quadratic):
            view, d = rows.views[v], expected.mean.shape[1]
            self.first[v] = np.zeros(expected.mean.shape)
            self.second[v] = np.zeros((prepared.n_components, view.n_sums - d))
            moments = _Moments(rows=view.rows, stride=view.rows.shape[1], n_columns=d, is_diagonal=root.ndim == 2)
            moments.shift, moments.root, moments.centre = shift, root, expected.mean
            moments.first, moments.second = self.first[v], self.second[v]
            moments.lie_in(self.blocks[place])


class Components:
    """Components of rows in one or several views: all that can be computed from their sums, without the rows.

    Parameters
    ----------
    views : sequence of View
        Data of the same rows. If entries are missing, the family must integrate over them.
    """

    def __init__(self, views: Sequence[View]) -> None:
        self.views = [WeightedView(view) for view in views]
        self.n = self.views[0].n_rows

    def empty(self, n_components: int) -> Sums:
        """Return the sums of components without rows."""
        return Sums(np.zeros(n_components), tuple(np.zeros((n_components, view.n_sums)) for view in self.views))

    def log_evidences(self, sums: Sums) -> np.ndarray:
        """Return the log evidence of every component, all views together: (K,)."""
        pairs = zip(self.views, sums.views, strict=True)
        return np.sum([view.log_evidences(sums.sizes, of_view) for view, of_view in pairs], axis=0)

    def merged(self, sums: Sums, others: Sums) -> Sums:
        """Return the sums of each component merged with the corresponding one of ``others``."""
        views = tuple(
            view.merged(sums.sizes, of_view, others.sizes, other)
            for view, of_view, other in zip(self.views, sums.views, others.views, strict=True)
        )
        return Sums(sums.sizes + others.sizes, views)

    def scaled(self, sums: Sums, factor: np.ndarray) -> Sums:
        """Return the sums of components whose rows each count ``factor`` (K,) times."""
        views = tuple(view.scaled(of_view, factor) for view, of_view in zip(self.views, sums.views, strict=True))
        return Sums(sums.sizes * factor, views)

    def beyond(self, before: Sums, after: Sums, factor: float) -> Sums:
        """Extrapolate sums by ``factor`` times the change; sizes are at least 0."""
        sizes = np.maximum(after.sizes + factor * (after.sizes - before.sizes), 0.0)
        n = before.sizes, after.sizes, sizes
        pairs = zip(self.views, before.views, after.views, strict=True)
        return Sums(sizes, tuple(view.beyond(n, old, new, factor) for view, old, new in pairs))


class RowsAnywhere(Components, ABC):
    """All rows, in memory or in chunks: the interface of passes over them."""

    @abstractmethod
    def respond(self, sums: Sums, log_weights: np.ndarray, threads: Threads) -> tuple[Sums, float]:
        """Compute the responsibilities of components for all rows, in one pass.

        Parameters
        ----------
        sums : Sums
            Sums that the posterior of the parameters of each component conditions on.
        log_weights : (K,) array
            Expected log weights.
        threads : Threads

        Returns
        -------
        Sums
            Sums of the rows, weighted by their responsibilities.
        float
            The entropy of the responsibilities.
        """

    @abstractmethod
    def lost_entropies(
        self, sums: Sums, log_weights: np.ndarray, left: np.ndarray, right: np.ndarray
    ) -> np.ndarray:
        """Return the loss of entropy of the responsibilities by merging each of P pairs of components: (P,)."""

    @abstractmethod
    def members(
        self, sums: Sums, log_weights: np.ndarray, sizes: np.ndarray, most: int, rng: np.random.Generator
    ) -> Iterator["RowsInMemory"]:
        """Yield for every component the rows that it is the likeliest for, or a random sample of about ``most``.

        Parameters
        ----------
        sums, log_weights
            As in :meth:`respond`.
        sizes : (K,) array
            Sums of the responsibilities.
        most : int
        rng : numpy.random.Generator
        """

    @abstractmethod
    def some(self, n_rows: int, rng: np.random.Generator) -> "RowsInMemory":
        """Return ``n_rows`` rows, chosen at random."""


class RowsInMemory(RowsAnywhere):
    """Rows in memory."""

    def subset(self, rows: np.ndarray) -> Self:
        """Return some of the rows, with the same representation of sums."""
        other = object.__new__(type(self))
        other.views, other.n = [view.subset(rows) for view in self.views], len(rows)
        return other

    def some(self, n_rows: int, rng: np.random.Generator) -> "RowsInMemory":
        """Return ``n_rows`` rows, chosen at random."""
        return self.subset(np.sort(rng.choice(self.n, n_rows, replace=False)))

    def of_single(self, rows: np.ndarray) -> Sums:
        """Return the sums of components with one row each."""
        return Sums(np.ones(len(rows)), tuple(view.of_single(rows) for view in self.views))

    def of_labels(self, labels: np.ndarray, n_components: int) -> Sums:
        """Return the sums of components, given labels 0..K-1 of all rows. Not for subsets of rows."""
        sizes = np.bincount(labels, minlength=n_components)
        return Sums(sizes.astype(np.float64), tuple(view.of_labels(labels, sizes) for view in self.views))

    def likeliest(self, sums: Sums, log_weights: np.ndarray) -> np.ndarray:
        """Return the component with the largest responsibility for every row: (n,) int64 array."""
        labels = np.empty(self.n, dtype=np.int64)
        for first, responsibilities in self.blocks_of_responsibilities(sums, log_weights):
            labels[first : first + responsibilities.shape[1]] = responsibilities.argmax(axis=0)
        return labels

    def members(
        self, sums: Sums, log_weights: np.ndarray, sizes: np.ndarray, most: int, rng: np.random.Generator
    ) -> Iterator["RowsInMemory"]:
        """Yield for every component the rows that it is the likeliest for, or a random sample of ``most``."""
        labels = self.likeliest(sums, log_weights)
        order = np.argsort(labels, kind="stable")
        ends = np.searchsorted(labels[order], np.arange(len(sizes) + 1))
        for k in range(len(sizes)):
            chosen = order[ends[k] : ends[k + 1]]
            if len(chosen) > most:
                chosen = np.sort(rng.choice(chosen, most, replace=False))
            yield self.subset(chosen)

    def lost_entropies(
        self, sums: Sums, log_weights: np.ndarray, left: np.ndarray, right: np.ndarray
    ) -> np.ndarray:
        """Return the loss of entropy of the responsibilities by merging each of P pairs of components: (P,)."""
        lost = np.zeros(len(left))
        for _, responsibilities in self.blocks_of_responsibilities(sums, log_weights):
            parts = _x_log_x(responsibilities).sum(axis=1)
            both = responsibilities[left] + responsibilities[right]
            lost += _x_log_x(both).sum(axis=1) - parts[left] - parts[right]
        return np.maximum(lost, 0.0)

    def _prepared(self, sums: Sums, log_weights: np.ndarray) -> _Prepared:
        log_weights = np.array(log_weights, dtype=np.float64)
        quadratic: list[tuple[int, Quadratic, np.ndarray, np.ndarray]] = []
        linear: list[tuple[int, np.ndarray]] = []
        for v, view in enumerate(self.views):
            expected = view.expected(sums, v)
            log_weights += expected.constant
            if isinstance(expected, Quadratic):
                mean, root = (np.ascontiguousarray(array, dtype=np.float64) for array in expected[1:])
                shift = root * mean if root.ndim == 2 else np.einsum("kij,kj->ki", root, mean)
                quadratic.append((v, expected._replace(mean=mean), np.ascontiguousarray(shift), root))
            else:
                linear.append((v, view.factors(expected)))
        return _Prepared(log_weights, quadratic, linear)

    def _block_size(self, prepared: _Prepared) -> int:
        if prepared.linear:
            widest = max(self.views[v].n_sums for v, _ in prepared.linear)
            size = min(_MOST_OF_BLOCK // widest, _MOST_OF_BLOCK // prepared.n_components)
            return int(np.clip(size, _LEAST_ROWS, _MOST_ROWS))
        columns = max(self.views[v].n_columns for v, *_ in prepared.quadratic)
        return rows_of_block(prepared.n_components, columns)

    def _scratch(self, prepared: _Prepared, block: int) -> np.ndarray:
        columns = max((self.views[v].n_columns for v, *_ in prepared.quadratic), default=0)
        return np.empty((prepared.n_components + columns + 3) * block)

    def _respond(
        self, prepared: _Prepared, chunk: _Chunk, start: int, stop: int, block: int, scratch: np.ndarray
    ) -> None:
        """Add the rows from ``start`` to ``stop`` to a chunk. If a view is linear, they must be one block."""
        log_densities = None
        for v, factors in prepared.linear:
            of_view = (self.views[v].block(start, stop) @ factors.T).T
            log_densities = of_view if log_densities is None else log_densities + of_view
        log_densities = None if log_densities is None else np.ascontiguousarray(log_densities)
        respond(
            start,
            stop,
            block,
            prepared.n_components,
            prepared.log_weights.ctypes.data,
            chunk.blocks.ctypes.data,
            len(prepared.quadratic),
            0 if log_densities is None else log_densities.ctypes.data,
            0,
            scratch.ctypes.data,
            chunk.sizes.ctypes.data,
            chunk.entropy.ctypes.data,
        )

    def respond(self, sums: Sums, log_weights: np.ndarray, threads: Threads) -> tuple[Sums, float]:
        """Compute responsibilities in one pass; return the sums of rows weighted by them, and their entropy."""
        prepared = self._prepared(sums, log_weights)
        block = self._block_size(prepared)
        width = prepared.n_components * sum(view.n_sums for view in self.views)
        n_chunks = max(1, min(MOST_CHUNKS, self.n // CHUNK, max(2, _MOST_SUMMED // width)))
        ends = np.linspace(0, self.n, n_chunks + 1).astype(np.int64).tolist()
        chunks = [_Chunk(self, prepared) for _ in range(n_chunks)]

        def run(start: int, stop: int) -> None:
            scratch = self._scratch(prepared, block)
            for c in range(start, stop):
                self._run_chunk(prepared, chunks[c], ends[c], ends[c + 1], block, scratch)

        # Threads would share the table in which sums of single rows are recomputed.
        is_alone = any(self.views[v].rows is None for v, _ in prepared.linear)
        if is_alone:
            run(0, n_chunks)
        else:
            threads.run(run, 0, n_chunks)
        sizes = np.sum([chunk.sizes for chunk in chunks], axis=0)
        of_views = [np.sum([chunk.sums[v] for chunk in chunks], axis=0) for v in range(len(self.views))]
        for v, expected, *_ in prepared.quadratic:
            first, second = (np.sum([getattr(c, name)[v] for c in chunks], axis=0) for name in ("first", "second"))
            of_views[v] = self.views[v].from_moments(sizes, expected.mean, first, second)
        return Sums(sizes, tuple(of_views)), math.fsum(float(chunk.entropy[0]) for chunk in chunks)

    def _run_chunk(
        self, prepared: _Prepared, chunk: _Chunk, start: int, stop: int, block: int, scratch: np.ndarray
    ) -> None:
        if not prepared.linear:
            self._respond(prepared, chunk, start, stop, block, scratch)
            return
        for first in range(start, stop, block):
            last = min(first + block, stop)
            self._respond(prepared, chunk, first, last, last - first, scratch)
            weights = scratch[: prepared.n_components * (last - first)].reshape(prepared.n_components, -1)
            for v, _ in prepared.linear:
                chunk.sums[v] += (self.views[v].block(first, last).T @ weights.T).T

    def blocks_of_responsibilities(self, sums: Sums, log_weights: np.ndarray) -> Any:
        """Yield for every block its first row and the responsibilities (K, size), in an array that is reused."""
        prepared = self._prepared(sums, log_weights)
        block = self._block_size(prepared)
        scratch = self._scratch(prepared, block)
        for first in range(0, self.n, block):
            last = min(first + block, self.n)
            self._respond(prepared, _Chunk(self, prepared), first, last, last - first, scratch)
            yield first, scratch[: prepared.n_components * (last - first)].reshape(prepared.n_components, -1)

    def log_densities(self, sums: Sums) -> np.ndarray:
        """Return the expected log densities of all rows in all components: (n, K)."""
        prepared = self._prepared(sums, np.zeros(len(sums.sizes)))
        densities = np.tile(prepared.log_weights, (self.n, 1))
        for v, expected, shift, root in prepared.quadratic:
            rows = self.views[v].rows[:, : expected.mean.shape[1]]
            for k in range(prepared.n_components):
                product = rows * root[k] if root.ndim == 2 else rows @ root[k].T
                densities[:, k] -= 0.5 * np.sum((product - shift[k]) ** 2, axis=1)
        for v, factors in prepared.linear:
            for first, last in self.views[v].blocks():
                densities[first:last] += self.views[v].block(first, last) @ factors.T
        return densities


def _x_log_x(x: np.ndarray) -> np.ndarray:
    return x * np.log(np.maximum(x, np.finfo(np.float64).tiny))
