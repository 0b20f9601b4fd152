"""One pass over the rows of a chunk: it draws labels, and returns what the sampler needs of them.

The labels of a chunk are a function of its rows and of the message: weights, parameters and leaders of the
clusters, and keys of random numbers. They do not depend on earlier labels. So chunks have no state between passes,
and a lost chunk can be recomputed wherever its rows are read.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.native.compiled import address_of
from pymc_dpgmm.sampler.many_rows.drawn_clusters import DrawnClusters, LabelDraws
from pymc_dpgmm.sampler.many_rows.leader_sweep import find_first
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable

# Rank of a leader that comes before all rows in every order: all rows may join its cluster.
FIRST = np.iinfo(np.int64).min


class Sent(NamedTuple):
    """The message of a pass. Its result is a function of this and the rows.

    Parameters
    ----------
    family : Family
    params : NamedTuple
    origin : (c,) array or None
        As in :class:`View`.
    clusters : DrawnClusters
        The clusters; slot k has label k.
    next_order_key : int
        Key of the random order of rows that determines the next leaders.
    wanted : (m,) int64 array
        Increasing numbers of rows to return. They are excluded from sums and leaders.
    most_small : int
        All rows of clusters with at most this many (other) rows are returned too.
    asked : (K,) bool array, optional
        Clusters that ``most_small`` applies to. The few rows of a large cluster in a chunk need not be returned.
    """

    family: Any
    params: Any
    origin: Any
    clusters: DrawnClusters
    next_order_key: int
    wanted: np.ndarray
    most_small: int = 0
    asked: np.ndarray | None = None


class Gathered(NamedTuple):
    """The result of a pass over one or several chunks.

    Parameters
    ----------
    sums : (K, w) array
        For each label, sums of the rows that are not wanted, each line as in a :class:`ClusterTable`.
        The first column has the numbers of rows.
    leaders : (K,) int64 array
        For each label, the least rank of these rows in the next order, ``LAST`` if there are none.
    rows : (m,) int64 array
        The wanted rows, and all rows of small clusters.
    labels : (m,) int64 array
    values : (m, c) array
    """

    sums: np.ndarray
    leaders: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    values: np.ndarray


def sums_table(
    family: Any, params: Any, origin: Any, n_columns: int, n_slots: int, **options: Any
) -> ClusterTable:
    """Return a table for sums in slots 0 to ``n_slots - 1``, without rows."""
    no_rows = np.empty((0, n_columns))
    return ClusterTable(View(family, params, no_rows, origin=origin), n_slots, for_sampling=False, **options)


def draw_labels(values: np.ndarray, first_row: int, sent: Sent) -> tuple[np.ndarray, ClusterTable]:
    """Draw the labels of the rows of a chunk, (n,) int64, and return them with a table of its rows."""
    clusters = sent.clusters
    table = ClusterTable(
        View(sent.family, sent.params, values, origin=sent.origin), len(clusters.slots), for_sampling=False
    )
    labels = np.full(len(values), clusters.slots[0])
    if len(clusters.slots) == 1:
        return labels, table
    draws = LabelDraws(clusters, [table], labels, first_row)
    draws.draw(first_row, first_row + len(values), draws.scratch(len(values)))
    return labels, table


def run_pass(values: Any, first_row: int, sent: Sent) -> Gathered:
    """Draw the labels of a chunk, and return the result of the pass.

    Parameters
    ----------
    values : (n, c) array
    first_row : int
        Number of the first row of the chunk among all rows.
    sent : Sent
    """
    values = as_rows(values)
    labels, table = draw_labels(values, first_row, sent)
    n_clusters, n = len(sent.clusters.slots), len(values)
    start, stop = np.searchsorted(sent.wanted, [first_row, first_row + n])
    wanted = sent.wanted[start:stop] - first_row
    of_wanted = labels[wanted]
    # An extra label after all others excludes the wanted rows from sums.
    labels[wanted] = n_clusters
    counts = np.bincount(labels, minlength=n_clusters + 1)
    is_small = (counts > 0) & (counts <= sent.most_small)
    is_small[:n_clusters] &= True if sent.asked is None else sent.asked
    is_small[n_clusters] = False
    few = np.flatnonzero(is_small[labels]) if is_small.any() else np.empty(0, dtype=np.int64)
    table.sum_up(_narrow(labels, n_clusters), counts[:n_clusters])
    leaders = np.empty(n_clusters + 1, dtype=np.int64)
    find_first(
        address_of(labels) - 8 * first_row,
        sent.next_order_key,
        first_row,
        first_row + n,
        n_clusters + 1,
        address_of(leaders),
    )
    sums = table.array[:n_clusters, : table.n_before_cache].copy()
    back = np.concatenate([wanted, few])
    return Gathered(
        sums, leaders[:n_clusters], back + first_row, np.concatenate([of_wanted, labels[few]]), values[back]
    )


def _narrow(labels: np.ndarray, largest: int) -> np.ndarray:
    """Return labels in the smallest integer type, for which NumPy's stable sort is fastest."""
    return labels.astype(np.min_scalar_type(largest))


def unite(parts: Sequence[Gathered], sent: Sent) -> Gathered:
    """Combine the results of several chunks, which are in the order of their rows."""
    n_columns = parts[0].values.shape[1]
    sums = united_sums(sent.family, sent.params, sent.origin, n_columns, [part.sums for part in parts])
    rows, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "labels"))
    values = np.concatenate([part.values for part in parts])
    # A cluster that is small in one chunk may be large in another.
    is_kept = (sums[labels, 0] <= sent.most_small) | np.isin(rows, sent.wanted)
    return Gathered(
        sums, np.min([part.leaders for part in parts], axis=0), rows[is_kept], labels[is_kept], values[is_kept]
    )


def united_sums(family: Any, params: Any, origin: Any, n_columns: int, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Add up the sums (K, w) of clusters over several parts of the rows, which must have the same origin."""
    n_clusters, width = parts[0].shape
    table = sums_table(family, params, origin, n_columns, 2 * n_clusters)
    table.array[:n_clusters, :width] = parts[0]
    for part in parts[1:]:
        table.array[n_clusters : 2 * n_clusters, :width] = part
        table.add_up(0, n_clusters, n_clusters)
    return table.array[:n_clusters, :width].copy()


def as_rows(values: Any) -> np.ndarray:
    """Return a chunk as (n, c) float64 array."""
    values = np.asarray(values, dtype=np.float64)
    return np.ascontiguousarray(values.reshape(len(values), -1))
