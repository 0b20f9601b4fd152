"""What families of counts share: checks of values, and ratios of gamma functions."""

import math
import sys
from typing import Any

import numpy as np

from pymc_dpgmm.compiled import inlined

# Up to so many factors a rising factorial is multiplied out, and from this base on Stirling's series has no error
# that double precision would show.
_FEW_FACTORS = 12
_LARGE_BASE = 60.0


@inlined
def _stirling_tail(x):
    """Tail of Stirling's series for log Gamma(x), for x >= 60."""
    inverse = 1.0 / x
    square = inverse * inverse
    return inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square / 1260.0))


@inlined
def log_rising(x, m):
    """Log of Gamma(x + m) / Gamma(x), for x > 0 and a whole number m >= 0.

    A difference of two log gammas would lose digits for large x.
    """
    if m <= _FEW_FACTORS:
        product = 1.0
        for i in range(int(m)):
            product *= x + i
        return math.log(product)
    if x < _LARGE_BASE:
        return math.lgamma(x + m) - math.lgamma(x)
    return (x + m - 0.5) * math.log1p(m / x) + m * math.log(x) - m + _stirling_tail(x + m) - _stirling_tail(x)


def check_positive(name: str, value: np.ndarray) -> None:
    """Raise ValueError unless a parameter is finite and positive everywhere."""
    if not np.all(np.isfinite(value)):
        raise ValueError(f"{name} must be finite, got {value}")
    if not np.all(value > 0):
        raise ValueError(f"{name} must be > 0, got {value}")


def missing_as_nothing(values: np.ndarray) -> np.ndarray:
    """Return counts, and what is given with each of them, with 0 of 0 where counts are missing (NaN)."""
    counts, given = np.hsplit(values, 2)
    missing = np.isnan(counts)
    return np.hstack([np.where(missing, 0.0, counts), np.where(missing, 0.0, given)])


def is_sparse(values: Any) -> bool:
    """Tell a SciPy sparse matrix or array from an array."""
    # Nobody has one where SciPy's module of them has not been imported.
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(values))


def as_triplets(matrix: Any) -> np.ndarray:
    """Return the non-zeros of a sparse matrix as rows of row index, column index and value: (m, 3)."""
    entries = matrix.tocoo()
    return np.column_stack([entries.row, entries.col, entries.data]).astype(np.float64)


def from_triplets(triplets: np.ndarray, shape: tuple[int, int]) -> Any:
    """Return the sparse matrix of :func:`as_triplets`, in CSR form."""
    from scipy.sparse import csr_array

    row, column = triplets[:, :2].astype(np.int64).T
    return csr_array((triplets[:, 2], (row, column)), shape=shape)


def check_counts(what: str, values: Any) -> None:
    """Raise ValueError unless values are whole numbers of at least 0; tell the first row that is not."""
    for bad, kind in ((values < 0, "negative"), (values != np.floor(values), "fractional")):
        rows = np.flatnonzero(bad.any(axis=1))
        if len(rows):
            first = rows[0]
            value = values[first][bad[first]][0]
            raise ValueError(f"{what} must be counts 0, 1, 2, ..., got {kind} values, as {value} in row {first}")
