"""Rows of data as variational inference sees them: responsibilities of components, and what these weigh."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from pymc_dpgmm.families.contract.expected import Expected, Linear, Quadratic
from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.sampler.many_rows.leader_sweep import CHUNK, MOST_CHUNKS
from pymc_dpgmm.sampler.many_rows.quadratics import rows_of_block
from pymc_dpgmm.sampler.state.table import Table
from pymc_dpgmm.sampler.state.templates import EVIDENCE_ANEW, N_BEFORE_SUMS, N_KEPT, SUM_UP
from pymc_dpgmm.variational.responsibilities import MOMENTS, respond, sum_up_each, write_evidences

# Numbers that sums of single rows may take when they are all kept, the share of non-zeros up to which they are
# kept as a sparse matrix, and numbers of a block of them.
_MOST_KEPT, _SPARSE_SHARE, _MOST_OF_BLOCK = 8_000_000, 0.2, 1_000_000
# Rows of a block of these, at least and at most.
_LEAST_ROWS, _MOST_ROWS = 64, 4_096
# Numbers in the sums of all chunks, beside those of two.
_MOST_SUMMED = 8_000_000


class Sums(NamedTuple):
    """Sums of weighted rows, for each of K components.

    Parameters
    ----------
    sizes : (K,) array
        Sums of the weights.
    views : tuple of (K, m) arrays
        For each view, the sums of its family, one after the other.
    """

    sizes: np.ndarray
    views: tuple[np.ndarray, ...]

    def take(self, components: Any) -> "Sums":
        """Return the sums of some components."""
        return Sums(self.sizes[components], tuple(own[components] for own in self.views))

    def beside(self, others: "Sums") -> "Sums":
        """Return these components and others after them."""
        pairs = zip(self.views, others.views, strict=True)
        return Sums(np.concatenate([self.sizes, others.sizes]), tuple(np.concatenate(pair) for pair in pairs))


class WeightedView:
    """One view of the rows.

    Parameters
    ----------
    view : View
        Its family must declare ``expected``; parameters inside their support.
    """

    def __init__(self, view: View) -> None:
        self.family = view.family
        self.table = Table(view, 1, for_sampling=False)
        self.table.prepare((EVIDENCE_ANEW, SUM_UP))
        self.n_sums = int(self.table.block[N_KEPT]) - N_BEFORE_SUMS
        expected = self.expected(Sums(np.zeros(1), (np.zeros((1, self.n_sums)),)), 0)
        self.is_quadratic = isinstance(expected, Quadratic)
        self.n_rows = self.table.n_rows
        # Rows of a quadratic view, and of others the sums of single rows, where they are kept.
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
        found = []
        for ends in self.blocks():
            own = self.block(*ends)
            if np.count_nonzero(own) > _SPARSE_SHARE * own.size:
                return None
            found.append(csr_array(own))
        return vstack(found, format="csr")

    def blocks(self) -> list[tuple[int, int]]:
        """Return the first row of each block of rows, and the one after its last."""
        size = int(np.clip(_MOST_OF_BLOCK // self.n_sums, _LEAST_ROWS, _MOST_ROWS))
        starts = range(0, self.n_rows, size)
        return [(start, min(start + size, self.n_rows)) for start in starts]

    def block(self, first: int, last: int) -> Any:
        """Return the sums of single rows of a view that is not quadratic: (last - first, m)."""
        if self.rows is not None:
            return self.rows[first:last]
        members = np.arange(first, last) if self._members is None else self._members[first:last]
        table = self.table
        if table.capacity < len(members):
            table.resize(len(members))
        members = np.ascontiguousarray(members, dtype=np.int64)
        sum_up_each(table.block.ctypes.data, members.ctypes.data, len(members))
        return table.array[: len(members), N_BEFORE_SUMS : N_BEFORE_SUMS + self.n_sums].copy()

    def subset(self, rows: np.ndarray) -> "WeightedView":
        """Return the view of some rows, whose sums mean the same."""
        other = object.__new__(WeightedView)
        other.__dict__.update(self.__dict__)
        other.n_rows = len(rows)
        if self.rows is not None:
            other.rows = np.ascontiguousarray(self.rows[rows]) if self.is_quadratic else self.rows[rows]
        else:
            other._members = rows if self._members is None else self._members[rows]
        return other

    def of_single(self, rows: np.ndarray) -> np.ndarray:
        """Return the sums of components that have one row each: (K, m)."""
        if self.is_quadratic:
            found = np.zeros((len(rows), self.n_sums))
            found[:, : self.n_columns] = self.rows[rows][:, : self.n_columns]
            return found
        single = [self.block(row, row + 1) for row in np.asarray(rows).tolist()]
        return np.concatenate([own if isinstance(own, np.ndarray) else own.toarray() for own in single])

    def of_labels(self, labels: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the sums of components to which all rows belong by labels, given their sizes: (K, m)."""
        table = self.table
        if table.capacity < len(sizes):
            table.resize(len(sizes))
        table.sum_up(labels, sizes)
        return table.array[: len(sizes), N_BEFORE_SUMS : N_BEFORE_SUMS + self.n_sums].copy()

    def _place(self, sizes: np.ndarray, own: np.ndarray) -> Any:
        """Write sums to the table; return them by their names."""
        table, n_components = self.table, len(sizes)
        if table.capacity < n_components:
            table.resize(n_components)
        table.array[:n_components, 0] = sizes
        table.array[:n_components, N_BEFORE_SUMS : N_BEFORE_SUMS + self.n_sums] = own
        return table.sums(0, n_components)

    def expected(self, sums: Sums, place: int) -> Expected:
        """Return the expected log density under every component; ``place`` is that of the view among the sums."""
        assert self.family.expected is not None
        return self.family.expected(self.table.shifted, self._place(sums.sizes, sums.views[place]))

    def set_params(self, params: Any) -> None:
        """Take other parameters of the same shapes; sums go on to mean the same."""
        self.table.set_params(params)

    def gradient(self, sums: Sums, place: int) -> dict[str, Any]:
        """Return the gradient of the log evidence of all components in the parameters, by their names."""
        return self.family.gradient(self.table.shifted, self._place(sums.sizes, sums.views[place]))

    def factors(self, expected: Linear) -> np.ndarray:
        """Return the factors of all sums of single rows: (K, m)."""
        n_components = len(expected.constant)
        parts = [
            np.reshape(expected.factors.get(name, np.zeros(own.shape)), (n_components, -1))
            for name, own in self.table.sums(0, n_components)._asdict().items()
            if name != "n"
        ]
        return np.concatenate(parts, axis=1)

    def log_evidences(self, sizes: np.ndarray, own: np.ndarray) -> np.ndarray:
        """Return the log evidence of every component: (K,)."""
        self._place(sizes, own)
        found = np.empty(len(sizes))
        write_evidences(self.table.block.ctypes.data, len(sizes), found.ctypes.data)
        return found

    def merged(self, n: np.ndarray, own: np.ndarray, m: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return the sums of components together with others: (K, m) arrays, for (K,) sizes."""
        if not self.is_quadratic:
            return own + others
        d = self.n_columns
        share = (m / np.maximum(n + m, np.finfo(np.float64).tiny))[:, None]
        between = others[:, :d] - own[:, :d]
        second = own[:, d:] + others[:, d:] + share * n[:, None] * self._products(between)
        return np.hstack([own[:, :d] + share * between, second])

    def _products(self, columns: np.ndarray) -> np.ndarray:
        """Return products of columns as they are laid out in sums of a quadratic view."""
        if self.n_sums == 2 * columns.shape[1]:
            return columns**2
        i, j = np.tril_indices(columns.shape[1])
        return columns[:, i] * columns[:, j]

    def scaled(self, own: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """Return the sums (K, m) of components of which every row counts ``factor`` (K,) times."""
        found = own * factor[:, None]
        if self.is_quadratic:
            found[:, : self.n_columns] = own[:, : self.n_columns]
        return found

    def beyond(
        self, n: tuple[np.ndarray, ...], before: np.ndarray, after: np.ndarray, factor: float
    ) -> np.ndarray:
        """Return sums that go on from those before to those after, and beyond by ``factor`` times the change.

        ``n`` has the sizes (K,) before, after, and beyond. What is never negative stays so.
        """
        if not self.is_quadratic:
            found = after + factor * (after - before)
            return np.where((before >= 0.0) & (after >= 0.0), np.maximum(found, 0.0), found)
        d = self.n_columns
        totals = []
        for size, own in zip(n[:2], (before, after), strict=True):
            mean = own[:, :d]
            totals.append((size[:, None] * mean, own[:, d:] + size[:, None] * self._products(mean)))
        first, second = (b + factor * (b - a) for a, b in zip(*totals, strict=True))
        centre = after[:, :d]
        # About the centres after, as if of rows.
        cross = self._products(first + centre) - self._products(first) - self._products(centre)
        about = second - cross + n[2][:, None] * self._products(centre)
        return self.from_moments(n[2], centre, first - n[2][:, None] * centre, about)

    def from_moments(
        self, sizes: np.ndarray, centre: np.ndarray, first: np.ndarray, second: np.ndarray
    ) -> np.ndarray:
        """Return the sums of a quadratic view, given weighted sums about centres."""
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


class _Chunk:
    """Sums over some of the rows: of a pass, the part that one thread adds up."""

    def __init__(self, rows: "Rows", prepared: _Prepared) -> None:
        self.sizes, self.entropy = np.zeros(prepared.n_components), np.zeros(1)
        self.sums = {v: np.zeros((prepared.n_components, rows.views[v].n_sums)) for v in range(len(rows.views))}
        self.blocks = np.zeros((max(len(prepared.quadratic), 1), len(MOMENTS)), dtype=np.int64)
        self.first: dict[int, np.ndarray] = {}
        self.second: dict[int, np.ndarray] = {}
        for place, (v, expected, shift, root) in enumerate(prepared.quadratic):
            view, d = rows.views[v], expected.mean.shape[1]
            self.first[v] = np.zeros(expected.mean.shape)
            self.second[v] = np.zeros((prepared.n_components, view.n_sums - d))
            self.blocks[place] = MOMENTS.filled(
                rows=view.rows,
                stride=view.rows.shape[1],
                n_columns=d,
                is_diagonal=root.ndim == 2,
                shift=shift,
                root=root,
                centre=expected.mean,
                first=self.first[v],
                second=self.second[v],
            )


class Components:
    """Components of rows of one view or several: what follows from their sums, wherever the rows are.

    Parameters
    ----------
    views : sequence of View
        Data of the same rows, complete or of families that integrate over what is missing.
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
        return np.sum([view.log_evidences(sums.sizes, own) for view, own in pairs], axis=0)

    def merged(self, sums: Sums, others: Sums) -> Sums:
        """Return the sums of components together with others, one by one."""
        views = tuple(
            view.merged(sums.sizes, own, others.sizes, other)
            for view, own, other in zip(self.views, sums.views, others.views, strict=True)
        )
        return Sums(sums.sizes + others.sizes, views)

    def scaled(self, sums: Sums, factor: np.ndarray) -> Sums:
        """Return the sums of components of which every row counts ``factor`` (K,) times."""
        views = tuple(view.scaled(own, factor) for view, own in zip(self.views, sums.views, strict=True))
        return Sums(sums.sizes * factor, views)

    def beyond(self, before: Sums, after: Sums, factor: float) -> Sums:
        """Return sums beyond those after by ``factor`` times the change; no size is below 0."""
        sizes = np.maximum(after.sizes + factor * (after.sizes - before.sizes), 0.0)
        n = before.sizes, after.sizes, sizes
        pairs = zip(self.views, before.views, after.views, strict=True)
        return Sums(sizes, tuple(view.beyond(n, own, other, factor) for view, own, other in pairs))


class RowsAnywhere(Components, ABC):
    """All rows, and what is asked of them: in memory or in chunks."""

    @abstractmethod
    def respond(self, sums: Sums, log_weights: np.ndarray, threads: Threads) -> tuple[Sums, float]:
        """Compute the responsibilities of components for all rows, in one pass.

        Parameters
        ----------
        sums : Sums
            What the posterior of the parameters of every component is given.
        log_weights : (K,) array
            Expected log weights.
        threads : Threads

        Returns
        -------
        Sums
            Of the rows, weighted by their responsibilities.
        float
            The entropy of the responsibilities.
        """

    @abstractmethod
    def lost_entropies(
        self, sums: Sums, log_weights: np.ndarray, left: np.ndarray, right: np.ndarray
    ) -> np.ndarray:
        """Return by how much merges of pairs of components lower the entropy of the responsibilities: (P,)."""

    @abstractmethod
    def members(
        self, sums: Sums, log_weights: np.ndarray, sizes: np.ndarray, most: int, rng: np.random.Generator
    ) -> Iterator["Rows"]:
        """Yield for every component the rows of which it is the likeliest, or about ``most`` of them by chance.

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
    def some(self, n_rows: int, rng: np.random.Generator) -> "Rows":
        """Return so many rows, chosen at random."""


class Rows(RowsAnywhere):
    """Rows in memory."""

    def subset(self, rows: np.ndarray) -> Self:
        """Return some of the rows, whose sums mean the same."""
        other = object.__new__(type(self))
        other.views, other.n = [view.subset(rows) for view in self.views], len(rows)
        return other

    def some(self, n_rows: int, rng: np.random.Generator) -> "Rows":
        """Return so many rows, chosen at random."""
        return self.subset(np.sort(rng.choice(self.n, n_rows, replace=False)))

    def of_single(self, rows: np.ndarray) -> Sums:
        """Return the sums of components that have one row each."""
        return Sums(np.ones(len(rows)), tuple(view.of_single(rows) for view in self.views))

    def of_labels(self, labels: np.ndarray, n_components: int) -> Sums:
        """Return the sums of components to which all rows belong by labels 0..K-1. Not for subsets of rows."""
        sizes = np.bincount(labels, minlength=n_components)
        return Sums(sizes.astype(np.float64), tuple(view.of_labels(labels, sizes) for view in self.views))

    def likeliest(self, sums: Sums, log_weights: np.ndarray) -> np.ndarray:
        """Return the component of every row that has the largest responsibility: (n,) int64 array."""
        labels = np.empty(self.n, dtype=np.int64)
        for first, own in self.blocks_of_responsibilities(sums, log_weights):
            labels[first : first + own.shape[1]] = own.argmax(axis=0)
        return labels

    def members(
        self, sums: Sums, log_weights: np.ndarray, sizes: np.ndarray, most: int, rng: np.random.Generator
    ) -> Iterator["Rows"]:
        """Yield for every component the rows of which it is the likeliest, or ``most`` of them by chance."""
        labels = self.likeliest(sums, log_weights)
        order = np.argsort(labels, kind="stable")
        ends = np.searchsorted(labels[order], np.arange(len(sizes) + 1))
        for k in range(len(sizes)):
            own = order[ends[k] : ends[k + 1]]
            if len(own) > most:
                own = np.sort(rng.choice(own, most, replace=False))
            yield self.subset(own)

    def lost_entropies(
        self, sums: Sums, log_weights: np.ndarray, left: np.ndarray, right: np.ndarray
    ) -> np.ndarray:
        """Return by how much merges of pairs of components lower the entropy of the responsibilities: (P,)."""
        lost = np.zeros(len(left))
        for _, own in self.blocks_of_responsibilities(sums, log_weights):
            parts = _x_log_x(own).sum(axis=1)
            both = own[left] + own[right]
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
                mean, root = (np.ascontiguousarray(own, dtype=np.float64) for own in expected[1:])
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
        """Add the rows from ``start`` to ``stop`` to a chunk; those of one block where a view is linear."""
        given = None
        for v, factors in prepared.linear:
            own = (self.views[v].block(start, stop) @ factors.T).T
            given = own if given is None else given + own
        given = None if given is None else np.ascontiguousarray(given)
        respond(
            start,
            stop,
            block,
            prepared.n_components,
            prepared.log_weights.ctypes.data,
            chunk.blocks.ctypes.data,
            len(prepared.quadratic),
            0 if given is None else given.ctypes.data,
            0,
            scratch.ctypes.data,
            chunk.sizes.ctypes.data,
            chunk.entropy.ctypes.data,
        )

    def respond(self, sums: Sums, log_weights: np.ndarray, threads: Threads) -> tuple[Sums, float]:
        """Compute the responsibilities of components for all rows, in one pass: their sums, and their entropy."""
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

        # The table in which sums of single rows are computed anew is shared.
        is_alone = any(self.views[v].rows is None for v, _ in prepared.linear)
        if is_alone:
            run(0, n_chunks)
        else:
            threads.run(run, 0, n_chunks)
        sizes = np.sum([chunk.sizes for chunk in chunks], axis=0)
        found = [np.sum([chunk.sums[v] for chunk in chunks], axis=0) for v in range(len(self.views))]
        for v, expected, *_ in prepared.quadratic:
            first, second = (np.sum([getattr(c, name)[v] for c in chunks], axis=0) for name in ("first", "second"))
            found[v] = self.views[v].from_moments(sizes, expected.mean, first, second)
        return Sums(sizes, tuple(found)), math.fsum(float(chunk.entropy[0]) for chunk in chunks)

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
        """Yield for every block its first row and the responsibilities (K, size), which are overwritten."""
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
        found = np.tile(prepared.log_weights, (self.n, 1))
        for v, expected, shift, root in prepared.quadratic:
            rows = self.views[v].rows[:, : expected.mean.shape[1]]
            for k in range(prepared.n_components):
                product = rows * root[k] if root.ndim == 2 else rows @ root[k].T
                found[:, k] -= 0.5 * np.sum((product - shift[k]) ** 2, axis=1)
        for v, factors in prepared.linear:
            for first, last in self.views[v].blocks():
                found[first:last] += self.views[v].block(first, last) @ factors.T
        return found


def _x_log_x(x: np.ndarray) -> np.ndarray:
    return x * np.log(np.maximum(x, np.finfo(np.float64).tiny))
