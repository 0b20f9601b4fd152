"""Variational inference for rows in chunks: each method takes one pass over the chunks."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.chunked.dask_rows import DaskRows
from pymc_dpgmm.chunked.passes import as_rows, united_sums
from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.sampler.many_rows.drawn_clusters import places_in_order
from pymc_dpgmm.variational.rows import Components, RowsAnywhere, RowsInMemory, Sums


class Asked(NamedTuple):
    """The message that a pass sends to the chunks.

    Parameters
    ----------
    view : View
        The view, without rows.
    sums : Sums
    log_weights : (K,) array
        Expected log weights. With ``sums`` they determine the responsibilities.
    other : tuple
        Further arguments of a pass.
    """

    view: View
    sums: Sums
    log_weights: np.ndarray
    other: tuple[Any, ...] = ()

    def rows(self, values: np.ndarray) -> RowsInMemory:
        """Return the rows of a chunk."""
        return RowsInMemory([self.view._replace(values=as_rows(values))])

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
        The view, without rows, and with the origin that the sums of all chunks share.
    """

    def __init__(self, rows: DaskRows, view: View) -> None:
        super().__init__([view])
        self.n, self._rows, self._view = rows.n, rows, view

    def _asked(self, sums: Sums, log_weights: np.ndarray, *other: Any) -> Asked:
        view = self._view._replace(params=self.views[0].table.params)
        return Asked(view, sums, np.asarray(log_weights, dtype=np.float64), other)

    def respond(self, sums: Sums, log_weights: np.ndarray, threads: Threads) -> tuple[Sums, float]:
        """Compute responsibilities in one pass; return the sums of rows weighted by them, and their entropy.

        Dask processes the chunks, so ``threads`` are not used.
        """
        results: tuple[Sums, float] = self._rows.reduced(respond_chunk, unite_sums, self._asked(sums, log_weights))
        return results

    def lost_entropies(
        self, sums: Sums, log_weights: np.ndarray, left: np.ndarray, right: np.ndarray
    ) -> np.ndarray:
        """Return the loss of entropy of the responsibilities by merging each of P pairs of components: (P,)."""
        asked = self._asked(sums, log_weights, left, right)
        return np.asarray(self._rows.reduced(lost_entropies_of_chunk, add, asked))

    def members(
        self, sums: Sums, log_weights: np.ndarray, sizes: np.ndarray, most: int, rng: np.random.Generator
    ) -> Iterator[RowsInMemory]:
        """Yield for every component a random sample of about ``most`` of the rows that it is the likeliest for."""
        shares = most / np.maximum(sizes, most)
        asked = self._asked(sums, log_weights, shares, int(rng.integers(2**63)))
        values, labels = self._rows.reduced(members_of_chunk, concatenate, asked)
        rows = asked.rows(values)
        for k in range(len(sizes)):
            yield rows.subset(np.flatnonzero(labels == k))

    def some(self, n_rows: int, rng: np.random.Generator) -> RowsInMemory:
        """Return ``n_rows`` rows, chosen at random."""
        chosen = np.sort(rng.choice(self.n, n_rows, replace=False))
        view = self._view._replace(params=self.views[0].table.params, values=self._rows.values_of(chosen))
        return RowsInMemory([view])

    def responsibilities(self, sums: Sums, log_weights: np.ndarray) -> Any:
        """Return the responsibilities of components as a dask array (n, K) in the chunks of the rows."""
        asked = self._asked(sums, log_weights)
        return self._rows.array(responsibilities_of_chunk, np.float64, (len(sums.sizes),), asked)

    def drawn_sums(
        self, sums: Sums, log_weights: np.ndarray, n_draws: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """Draw the component of every row from its responsibilities, ``n_draws`` times in one pass.

        Returns
        -------
        list of (K, w) arrays
            For each draw, the sums of its clusters with rows, each line as in a :class:`Table`.
        """
        keys = rng.integers(2**63, size=n_draws)
        drawn = self._rows.reduced(draw_in_chunk, unite_drawn, self._asked(sums, log_weights, keys))
        return [of_draw[of_draw[:, 0] > 0] for of_draw in drawn]


def respond_chunk(values: np.ndarray, first_row: int, asked: Asked) -> tuple[Sums, float]:
    """Return the sums of the rows of a chunk, weighted by responsibilities, and the entropy of these."""
    with Threads(1) as alone:
        return asked.rows(values).respond(*asked.source, alone)


def unite_sums(parts: Sequence[tuple[Sums, float]], asked: Asked) -> tuple[Sums, float]:
    """Add up sums and entropies of several chunks."""
    components = Components([asked.view])
    (sums, entropy), *further = parts
    for more_sums, more_entropy in further:
        sums, entropy = components.merged(sums, more_sums), entropy + more_entropy
    return sums, entropy


def lost_entropies_of_chunk(values: np.ndarray, first_row: int, asked: Asked) -> np.ndarray:
    """Return the loss of entropy of the responsibilities in a chunk by merging pairs of components: (P,)."""
    return asked.rows(values).lost_entropies(*asked.source, *asked.other)


def add(parts: Sequence[np.ndarray], asked: Asked) -> np.ndarray:
    """Add up arrays of several chunks."""
    return np.sum(parts, axis=0)


def members_of_chunk(values: np.ndarray, first_row: int, asked: Asked) -> tuple[np.ndarray, np.ndarray]:
    """Sample rows of a chunk, with probabilities by their likeliest component; return rows and components."""
    shares, key = asked.other
    labels = asked.rows(values).likeliest(*asked.source)
    chosen = _uniform(key, first_row, len(labels)) < shares[labels]
    return values[chosen], labels[chosen]


def concatenate(parts: Sequence[tuple[np.ndarray, ...]], asked: Asked) -> tuple[np.ndarray, ...]:
    """Concatenate arrays of several chunks."""
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def responsibilities_of_chunk(values: np.ndarray, first_row: int, asked: Asked) -> np.ndarray:
    """Return the responsibilities of components for the rows of a chunk: (n, K) array."""
    blocks = asked.rows(values).blocks_of_responsibilities(*asked.source)
    return np.concatenate([block.T.copy() for _, block in blocks])


def draw_in_chunk(values: np.ndarray, first_row: int, asked: Asked) -> np.ndarray:
    """Draw components of the rows of a chunk for each key; return the sums of the components: (n_draws, K, w)."""
    (keys,) = asked.other
    rows, n = asked.rows(values), len(values)
    below = np.concatenate(
        [block.cumsum(axis=0) for _, block in rows.blocks_of_responsibilities(*asked.source)], axis=1
    )
    table, n_components, sums = rows.views[0].table, len(asked.log_weights), []
    if table.capacity < n_components:
        table.resize(n_components)
    for key in keys.tolist():
        u = _uniform(key, first_row, n) * below[-1]
        labels = (below[:-1] <= u).sum(axis=0)
        table.sum_up(labels, np.bincount(labels, minlength=n_components))
        sums.append(table.array[:n_components, : table.n_before_cache].copy())
    return np.stack(sums)


def unite_drawn(parts: Sequence[np.ndarray], asked: Asked) -> np.ndarray:
    """Add up the sums of drawn components over several chunks."""
    view, n_columns = asked.view, asked.view.values.shape[1]
    of_draws = zip(*parts, strict=True)
    return np.stack(
        [united_sums(view.family, view.params, view.origin, n_columns, of_draw) for of_draw in of_draws]
    )


def _uniform(key: int, first_row: int, n: int) -> np.ndarray:
    """Return a uniform random number for each of n rows, a function of the key and the number of the row."""
    bits = places_in_order(np.arange(first_row, first_row + n), key).view(np.uint64)
    return (bits >> np.uint64(11)) * 2.0**-53
