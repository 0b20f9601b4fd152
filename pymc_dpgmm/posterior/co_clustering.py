"""How often rows are in one cluster."""

from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.compiled import INT, INTS, NOTHING, c_function, shifted
from pymc_dpgmm.posterior.draws import drawn_labels
from pymc_dpgmm.threads import Threads, available_threads


@c_function(NOTHING(INTS, INT, INTS, INT, INT, INT))
def _count_together(labels, n_draws, found, n, start, stop):
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
    by_row = np.ascontiguousarray(labels.T, dtype=np.int64)
    n, n_draws = by_row.shape
    found = np.empty((n, n), dtype=np.int64)
    with Threads(n_threads or available_threads()) as threads:
        threads.run(partial(_count_together, by_row.ctypes.data, n_draws, found.ctypes.data, n), 0, n)
    return found


def co_clustering(idata: Any, name: str, *, rows: Any = None, most_bytes: float = 2**31) -> xr.DataArray:
    """Return the posterior probabilities that pairs of rows are in one cluster.

    Parameters
    ----------
    idata : xarray.DataTree
    name : str
        Of the mixture, or of its labels.
    rows : slice, (m,) integer or (n,) boolean array_like, optional
        Positions of some rows, or a mask, for data with so many that the matrix of all does not fit in memory.
    most_bytes : float
        The largest matrix that is made.

    Returns
    -------
    DataArray
        (n, n) float64, symmetric with ones on the diagonal. The first dimension is that of the labels, the second
        has its name with ``_2``; both have the coordinates of the rows.

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
    drawn = drawn_labels(idata, name)
    chosen = (
        drawn.labels
        if rows is None
        else drawn.labels.isel({drawn.row: _positions(rows, drawn.labels.sizes[drawn.row])})
    )
    labels = drawn._replace(labels=chosen)
    n = chosen.sizes[drawn.row]
    if 8.0 * n * n > most_bytes:
        raise MemoryError(
            f"the matrix of {n:,} rows takes {8.0 * n * n / 2**30:.1f} GiB, more than most_bytes = "
            f"{most_bytes / 2**30:.1f} GiB; choose some rows with rows=, or allow more with most_bytes="
        )
    counts = count_together(labels.rows)
    coords = labels.coords()
    second = {f"{key}_2": (f"{drawn.row}_2", coord.to_numpy()) for key, coord in coords.items()}
    return xr.DataArray(
        counts / len(labels.rows), dims=(drawn.row, f"{drawn.row}_2"), coords=coords | second, name="co_clustering"
    )


def _positions(rows: Any, n: int) -> Any:
    if isinstance(rows, slice):
        return rows
    positions = np.asarray(rows)
    if positions.dtype.kind == "b" and positions.shape == (n,):
        return np.flatnonzero(positions)
    if positions.dtype.kind not in "iu" or positions.ndim != 1:
        raise TypeError(f"rows must be a slice, positions or a mask of {n} rows, got dtype {positions.dtype}")
    if positions.size and not -n <= positions.min() <= positions.max() < n:
        raise ValueError(f"rows must lie in 0..{n - 1}, got {positions.min()} to {positions.max()}")
    return positions
