"""Rows in chunks that are in memory: what a sampler is given, without anything between it and the rows."""

import numpy as np

from pymc_dpgmm.chunked.passes import Sent, as_rows, draw_labels, run_pass, unite
from pymc_dpgmm.families import View
from pymc_dpgmm.sampler.many_rows.drawn_clusters import places_in_order
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable


class RowsInMemory:
    """Rows (n, c), in chunks that begin at ``starts``."""

    def __init__(self, values, starts):
        self.n, self.n_columns = values.shape
        self.starts = starts
        self.chunks = np.split(values, starts[1:])

    def run(self, sent):
        parts = [run_pass(chunk, start, sent) for chunk, start in zip(self.chunks, self.starts, strict=True)]
        return unite(parts, sent)

    def labels(self, partition):
        """Labels of all rows after the last draw of a partition."""
        clusters, moved, of_moved, _ = partition.last
        sent = Sent(partition.family, partition.params, partition.origin, clusters, 0, np.empty(0, dtype=np.int64))
        pairs = zip(self.chunks, self.starts, strict=True)
        labels = np.concatenate([draw_labels(as_rows(chunk), start, sent)[0] for chunk, start in pairs])
        labels[moved] = of_moved
        return np.unique(labels, return_inverse=True)[1]


def sums_of(partition, values, labels):
    """Sums of the clusters of labels 0..K-1, as a chunked partition has them."""
    sizes = np.bincount(labels)
    view = View(partition.family, partition.params, values, origin=partition.origin)
    table = ClusterTable(view, len(sizes), for_sampling=False)
    table.sum_up(labels, sizes)
    return table.array[: len(sizes), : table.n_before_cache].copy()


def begin_at(partition, sums, labels):
    """Let a chunked partition be that of some labels 0..K-1, with their sums."""
    partition.sums = sums.copy()
    places = places_in_order(np.arange(len(labels)), partition.order_key)
    partition.leaders = np.array([places[labels == k].min() for k in range(len(sums))])


RUN = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 3}


def three_groups(n=3_000, seed=1):
    rng = np.random.default_rng(seed)
    label = rng.integers(3, size=n)
    return np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])[label] + rng.standard_normal((n, 2)), label
