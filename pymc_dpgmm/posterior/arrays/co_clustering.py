"""How often rows are in one cluster."""

from functools import partial

import numpy as np

from pymc_dpgmm.native.compiled import BYTES, INT, INTS, NOTHING, SMALL_INTS, c_function, inlined, shifted
from pymc_dpgmm.native.threads import Threads, available_threads


@inlined
def _count(labels, n_draws, found, n, start, stop):
    """Count the draws, along the second axis, in which rows ``start`` to ``stop`` are with those before them."""
    for i in range(start, stop):
        own = shifted(labels, i * n_draws)
        for j in range(i + 1):
            other = shifted(labels, j * n_draws)
            together = 0
            for t in range(n_draws):
                together += 1 if own[t] == other[t] else 0
            found[i * n + j] = together
            found[j * n + i] = together


@c_function(NOTHING(BYTES, INT, INTS, INT, INT, INT))
def _count_few(labels, n_draws, found, n, start, stop):
    """Do this for up to 256 clusters."""
    _count(labels, n_draws, found, n, start, stop)


@c_function(NOTHING(SMALL_INTS, INT, INTS, INT, INT, INT))
def _count_many(labels, n_draws, found, n, start, stop):
    """Do this for more."""
    _count(labels, n_draws, found, n, start, stop)


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
    # Small numbers: as many as there is room for are compared at once.
    few = labels.min(initial=0) >= 0 and labels.max(initial=0) < 256
    by_row = np.ascontiguousarray(labels.T, dtype=np.uint8 if few else np.int32)
    count = _count_few if few else _count_many
    n, n_draws = by_row.shape
    found = np.empty((n, n), dtype=np.int64)
    with Threads(n_threads or available_threads()) as threads:
        threads.run(partial(count, by_row.ctypes.data, n_draws, found.ctypes.data, n), 0, n)
    return found
