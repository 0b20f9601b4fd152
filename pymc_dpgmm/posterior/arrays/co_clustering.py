"""In how many draws two rows share a cluster."""

from functools import partial

import numpy as np

from pymc_dpgmm.native.compiled import BYTES, INT, INTS, NOTHING, SMALL_INTS, c_function, inlined, shifted
from pymc_dpgmm.native.threads import Threads, available_threads


@inlined
def _count(labels, n_draws, counts, n, start, stop):
    """Count the draws in which rows ``start`` to ``stop`` share a cluster with each row up to themselves.

    ``labels`` is (n, n_draws), ``counts`` (n, n).
    """
    for i in range(start, stop):
        of_row = shifted(labels, i * n_draws)
        for j in range(i + 1):
            other = shifted(labels, j * n_draws)
            together = 0
            for t in range(n_draws):
                together += 1 if of_row[t] == other[t] else 0
            counts[i * n + j] = together
            counts[j * n + i] = together


@c_function(NOTHING(BYTES, INT, INTS, INT, INT, INT))
def _count_few(labels, n_draws, counts, n, start, stop):
    """Run :func:`_count` with labels of one byte, for up to 256 clusters."""
    _count(labels, n_draws, counts, n, start, stop)


@c_function(NOTHING(SMALL_INTS, INT, INTS, INT, INT, INT))
def _count_many(labels, n_draws, counts, n, start, stop):
    """Run :func:`_count` with labels of four bytes, for more clusters."""
    _count(labels, n_draws, counts, n, start, stop)


def count_together(labels: np.ndarray, n_threads: int | None = None) -> np.ndarray:
    """Return in how many draws pairs of rows share a cluster.

    Parameters
    ----------
    labels : (n_draws, n) integer array
    n_threads : int, optional

    Returns
    -------
    counts : (n, n) int64 array
    """
    # The smaller the labels, the more of them one instruction compares.
    few = labels.min(initial=0) >= 0 and labels.max(initial=0) < 256
    by_row = np.ascontiguousarray(labels.T, dtype=np.uint8 if few else np.int32)
    count = _count_few if few else _count_many
    n, n_draws = by_row.shape
    counts = np.empty((n, n), dtype=np.int64)
    with Threads(n_threads or available_threads()) as threads:
        threads.run(partial(count, by_row.ctypes.data, n_draws, counts.ctypes.data, n), 0, n)
    return counts
