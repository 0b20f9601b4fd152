"""Rows in chunks as variational inference sees them: every question about the rows is one pass over the chunks."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.chunked.dask_rows import DaskRows
from pymc_dpgmm.chunked.passes import as_rows, united_sums
from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.sampler.many_rows.drawn_clusters import places_in_order
from pymc_dpgmm.sampler.state.templates import N_KEPT
from pymc_dpgmm.variational.rows import Components, Rows, RowsAnywhere, Sums


class Asked(NamedTuple):
    """What is sent to the chunks.

    Parameters
    ----------
    view : View
        Without rows.
    sums : Sums
    log_weights : (K,) array
        What the responsibilities are computed from.
    other : tuple
        What else a pass is a function of.
    """

    view: View
    sums: Sums
    log_weights: np.ndarray
    other: tuple[Any, ...] = ()

    def rows(self, values: np.ndarray) -> Rows:
        """Return the rows of a chunk."""
        return Rows([self.view._replace(values=as_rows(values))])

    @property
    def source(self) -> tuple[Sums, np.ndarray]:
        """Sums and log weights."""
        return self.sums, self.log_weights


class ChunkedRows(RowsAnywhere):
    """Rows of a dask array, in its chunks.

    Parameters
    ----------
    rows : DaskRows
    view : View
        Without rows, and with the origin that the sums of all chunks have.
    """

    def __init__(self, rows: DaskRows, view: View) -> None:
        super().__init__([view])
        self.n, self._rows, self._view = rows.n, rows, view

    def _asked(self, sums: Sums, log_weights: np.ndarray, *other: Any) -> Asked:
        view = self._view._replace(params=self.views[0].table.params)
        return Asked(view, sums, np.asarray(log_weights, dtype=np.float64), other)

    def respond(self, sums: Sums, log_weights: np.ndarray, threads: Threads) -> tuple[Sums, float]:
        """Compute the responsibilities of components for all rows, in one pass: their sums, and their entropy.

        Chunks are worked on where dask works: ``threads`` are not used.
        """
        found: tuple[Sums, float] = self._rows.reduced(respond_chunk, unite_sums, self._asked(sums, log_weights))
        return found

    def lost_entropies(
        self, sums: Sums, log_weights: np.ndarray, left: np.ndarray, right: np.ndarray
    ) -> np.ndarray:
        """Return by how much merges of pairs of components lower the entropy of the responsibilities: (P,)."""
        asked = self._asked(sums, log_weights, left, right)
        return np.asarray(self._rows.reduced(lost_entropies_of_chunk, add, asked))

    def members(
        self, sums: Sums, log_weights: np.ndarray, sizes: np.ndarray, most: int, rng: np.random.Generator
    ) -> Iterator[Rows]:
        """Yield for every component about ``most`` of the rows of which it is the likeliest, chosen by chance."""
        shares = most / np.maximum(sizes, most)
        asked = self._asked(sums, log_weights, shares, int(rng.integers(2**63)))
        values, labels = self._rows.reduced(members_of_chunk, concatenate, asked)
        rows = asked.rows(values)
        for k in range(len(sizes)):
            yield rows.subset(np.flatnonzero(labels == k))

    def some(self, n_rows: int, rng: np.random.Generator) -> Rows:
        """Return so many rows, chosen at random."""
        chosen = np.sort(rng.choice(self.n, n_rows, replace=False))
        view = self._view._replace(params=self.views[0].table.params, values=self._rows.values_of(chosen))
        return Rows([view])

    def responsibilities(self, sums: Sums, log_weights: np.ndarray) -> Any:
        """Return the responsibilities of components as a dask array (n, K) in the chunks of the rows."""
        asked = self._asked(sums, log_weights)
        return self._rows.array(responsibilities_of_chunk, np.float64, (len(sums.sizes),), asked)

    def drawn_sums(
        self, sums: Sums, log_weights: np.ndarray, n_draws: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """Draw the component of every row from its responsibilities, so many times, in one pass.

        Returns
        -------
        list of (K, w) arrays
            For each draw, sums of the clusters that have rows, as in rows of a :class:`Table`.
        """
        keys = rng.integers(2**63, size=n_draws)
        drawn = self._rows.reduced(draw_in_chunk, unite_drawn, self._asked(sums, log_weights, keys))
        return [own[own[:, 0] > 0] for own in drawn]


def respond_chunk(values: np.ndarray, first_row: int, asked: Asked) -> tuple[Sums, float]:
    """Return what the responsibilities of the rows of a chunk sum up to, and their entropy."""
    with Threads(1) as alone:
        return asked.rows(values).respond(*asked.source, alone)


def unite_sums(parts: Sequence[tuple[Sums, float]], asked: Asked) -> tuple[Sums, float]:
    """Return the same of several chunks together."""
    components = Components([asked.view])
    (sums, entropy), *others = parts
    for own, more in others:
        sums, entropy = components.merged(sums, own), entropy + more
    return sums, entropy


def lost_entropies_of_chunk(values: np.ndarray, first_row: int, asked: Asked) -> np.ndarray:
    """Return by how much merges of pairs lower the entropy of the responsibilities of a chunk."""
    return asked.rows(values).lost_entropies(*asked.source, *asked.other)


def add(parts: Sequence[np.ndarray], asked: Asked) -> np.ndarray:
    """Return the sum of arrays."""
    return np.sum(parts, axis=0)


def members_of_chunk(values: np.ndarray, first_row: int, asked: Asked) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of a chunk, each with the probability that its likeliest component has, and these components."""
    shares, key = asked.other
    labels = asked.rows(values).likeliest(*asked.source)
    chosen = _uniform(key, first_row, len(labels)) < shares[labels]
    return values[chosen], labels[chosen]


def concatenate(parts: Sequence[tuple[np.ndarray, ...]], asked: Asked) -> tuple[np.ndarray, ...]:
    """Return arrays of several chunks, one after the other."""
    return tuple(np.concatenate(own) for own in zip(*parts, strict=True))


def responsibilities_of_chunk(values: np.ndarray, first_row: int, asked: Asked) -> np.ndarray:
    """Return the responsibilities of components for the rows of a chunk: (n, K) array."""
    blocks = asked.rows(values).blocks_of_responsibilities(*asked.source)
    return np.concatenate([own.T.copy() for _, own in blocks])


def draw_in_chunk(values: np.ndarray, first_row: int, asked: Asked) -> np.ndarray:
    """Return the sums of the components that the rows of a chunk draw, for each key: (n_draws, K, w)."""
    (keys,) = asked.other
    rows, n = asked.rows(values), len(values)
    below = np.concatenate(
        [own.cumsum(axis=0) for _, own in rows.blocks_of_responsibilities(*asked.source)], axis=1
    )
    table, n_components, found = rows.views[0].table, len(asked.log_weights), []
    if table.capacity < n_components:
        table.resize(n_components)
    for key in keys.tolist():
        u = _uniform(key, first_row, n) * below[-1]
        labels = (below[:-1] <= u).sum(axis=0)
        table.sum_up(labels, np.bincount(labels, minlength=n_components))
        found.append(table.array[:n_components, : int(table.block[N_KEPT])].copy())
    return np.stack(found)


def unite_drawn(parts: Sequence[np.ndarray], asked: Asked) -> np.ndarray:
    """Return such sums of several chunks together."""
    view, n_columns = asked.view, asked.view.values.shape[1]
    of_draws = zip(*parts, strict=True)
    return np.stack([united_sums(view.family, view.params, view.origin, n_columns, own) for own in of_draws])


def _uniform(key: int, first_row: int, n: int) -> np.ndarray:
    """Return a uniform number for each of n rows, which is a function of a key and of the number of the row."""
    bits = places_in_order(np.arange(first_row, first_row + n), key).view(np.uint64)
    return (bits >> np.uint64(11)) * 2.0**-53
