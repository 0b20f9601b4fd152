"""The posterior probability that two rows share a cluster."""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.native.compiled import BYTES, INT, INTS, NOTHING, SMALL_INTS, c_function, inlined, shifted
from pymc_dpgmm.native.threads import Threads, available_threads
from pymc_dpgmm.posterior.draws import DrawnLabels, drawn_labels

# Default limit on the size of the matrix, in bytes.
MOST_BYTES = 2**31


def co_clustering(idata: Any, name: str, *, rows: Any = None, most_bytes: float = MOST_BYTES) -> xr.DataArray:
    """Return the posterior probability that two rows share a cluster, for all pairs of rows.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture or of its labels.
    rows : slice, (m,) integer or (n,) boolean array_like, optional
        Positions of some rows, or a mask. Use it if the matrix of all rows does not fit into memory.
    most_bytes : float
        Size of the largest matrix that is allowed, 2 GiB by default.

    Returns
    -------
    DataArray
        (n, n) float64, symmetric with ones on the diagonal. The first dimension is that of the labels. The second
        has the same name with ``_2`` appended. Both have the coordinates of the rows.

    Raises
    ------
    TypeError, ValueError
        If there are no such labels or rows. MemoryError if the matrix would be larger than ``most_bytes``.

    Examples
    --------
    Two draws of the labels of three rows:

    >>> draws = xr.Dataset({"y_labels": (("chain", "draw", "row"), [[[0, 0, 1], [0, 1, 1]]])})
    >>> co_clustering(xr.DataTree.from_dict({"posterior": draws}), "y").to_numpy()
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0.5],
           [0. , 0.5, 1. ]])
    """
    return co_clustering_of(drawn_labels(idata, name), rows, most_bytes)


def co_clustering_of(drawn: DrawnLabels, rows: Any, most_bytes: float) -> xr.DataArray:
    """Return the result of :func:`co_clustering` for draws that have been read already."""
    if rows is not None:
        drawn = drawn.of_rows(positions_of(rows, drawn.n))
    n_bytes = 8.0 * drawn.n * drawn.n
    if n_bytes > most_bytes:
        raise MemoryError(
            f"the matrix of {drawn.n:,} rows takes {n_bytes / 2**30:.1f} GiB, more than most_bytes = "
            f"{most_bytes / 2**30:.1f} GiB; choose some rows with rows=, or allow more with most_bytes="
        )
    counts, coords = count_together(drawn.rows), drawn.coords()
    second = {f"{key}_2": (f"{drawn.row}_2", coord.to_numpy()) for key, coord in coords.items()}
    return xr.DataArray(
        counts / len(drawn.rows), dims=(drawn.row, f"{drawn.row}_2"), coords=coords | second, name="co_clustering"
    )


def positions_of(rows: Any, n: int) -> Any:
    """Return positions of rows, or a slice; ``rows`` may also be a mask of all ``n`` rows.

    Raises
    ------
    TypeError, ValueError
        If there are none of the rows, or rows are of the wrong kind or out of range.
    """
    if isinstance(rows, slice):
        return rows
    positions = np.asarray(rows)
    if positions.dtype.kind == "b" and positions.shape == (n,):
        return np.flatnonzero(positions)
    if positions.size == 0:
        raise ValueError("rows are none: give a slice, positions or a mask with some of them")
    if positions.dtype.kind not in "iu" or positions.ndim != 1:
        raise TypeError(
            f"rows must be a slice, positions or a mask of {n} rows, got dtype {positions.dtype} and shape "
            f"{positions.shape}"
        )
    if positions.size and not -n <= positions.min() <= positions.max() < n:
        raise ValueError(f"rows must lie in 0..{n - 1}, got {positions.min()} to {positions.max()}")
    return positions


@inlined
def _count(labels: Any, n_draws: int, counts: Any, n: int, start: int, stop: int) -> None:
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
def _count_few(labels: Any, n_draws: int, counts: Any, n: int, start: int, stop: int) -> None:
    """Run :func:`_count` with labels of one byte, for up to 256 clusters."""
    _count(labels, n_draws, counts, n, start, stop)


@c_function(NOTHING(SMALL_INTS, INT, INTS, INT, INT, INT))
def _count_many(labels: Any, n_draws: int, counts: Any, n: int, start: int, stop: int) -> None:
    """Run :func:`_count` with labels of four bytes, for more clusters."""
    _count(labels, n_draws, counts, n, start, stop)


def count_together(labels: np.ndarray, n_threads: int | None = None) -> np.ndarray:
    """Return in how many draws (n_draws, n) pairs of rows share a cluster: (n, n) int64 array."""
    # The smaller the labels, the more of them one instruction compares.
    few = labels.min(initial=0) >= 0 and labels.max(initial=0) < 256
    by_row = np.ascontiguousarray(labels.T, dtype=np.uint8 if few else np.int32)
    count = _count_few if few else _count_many
    n, n_draws = by_row.shape
    counts = np.empty((n, n), dtype=np.int64)
    with Threads(n_threads or available_threads()) as threads:
        threads.run(partial(count, by_row.ctypes.data, n_draws, counts.ctypes.data, n), 0, n)
    return counts
