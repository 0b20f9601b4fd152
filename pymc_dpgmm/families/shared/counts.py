"""What families of counts share: checks of values, sparse rows, and ratios of gamma functions."""

from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.family import Ragged
from pymc_dpgmm.families.contract.supports import place_of
from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.tables.checks import is_sparse

# Successes, or failures, of which the logarithms of factorials keep too few digits for a difference.
_MANY = 1e4


@inlined
def log_beta_ratio(a, b, successes, failures):
    """Log of B(a + successes, b + failures) / B(a, b).

    The terms of very many successes, or failures, nearly cancel: then terms of b, or a, are taken in their place.
    """
    if successes > _MANY and successes >= failures and b < successes:
        ratio = log_rising(a, b) - log_rising(a + successes, b)
        return log_rising(b, failures) - log_rising(a + b + successes, failures) + ratio
    if failures > _MANY and a < failures:
        ratio = log_rising(b, a) - log_rising(b + failures, a)
        return log_rising(a, successes) - log_rising(a + b + failures, successes) + ratio
    return log_rising(a, successes) + log_rising(b, failures) - log_rising(a + b, successes + failures)


def sums_of_logs(totals: np.ndarray, n: int) -> np.ndarray:
    """Return sums over columns of log(total + m), for m = 0..n rows: (n + 1,)."""
    rows = np.arange(n + 1.0)
    return sum((np.log(total + rows) for total in totals), start=np.zeros(n + 1))


def as_triplets(matrix: Any) -> np.ndarray:
    """Return the non-zeros of a sparse matrix as rows of row index, column index and value: (m, 3)."""
    entries = matrix.tocoo()
    return np.column_stack([entries.row, entries.col, entries.data]).astype(np.float64)


def from_triplets(triplets: np.ndarray, shape: tuple[int, int]) -> Any:
    """Return the sparse matrix of :func:`as_triplets`, in CSR form."""
    from scipy.sparse import csr_array

    row, column = triplets[:, :2].astype(np.int64).T
    return csr_array((triplets[:, 2], (row, column)), shape=shape)


def as_ragged(matrix: Any, heads: np.ndarray) -> Ragged:
    """Return rows of ``heads`` (n, h), the number of a sparse matrix' non-zeros, and their columns and values.

    The matrix is in CSR form; each column is followed by its value.
    """
    n_nonzero, first = np.diff(matrix.indptr), heads.shape[1] + 1
    starts = np.concatenate([[0], np.cumsum(first + 2 * n_nonzero)]).astype(np.int64)
    numbers = np.empty(starts[-1])
    for place, column in enumerate([*heads.T, n_nonzero]):
        numbers[starts[:-1] + place] = column
    of_row = np.repeat(np.arange(len(heads)), n_nonzero)
    at = starts[of_row] + first + 2 * (np.arange(len(of_row)) - matrix.indptr[of_row])
    numbers[at], numbers[at + 1] = matrix.indices, matrix.data
    return Ragged(numbers, starts)


def draw_counts(rng: np.random.Generator, means: np.ndarray) -> np.ndarray:
    """Draw Poisson counts, as floats, with means up to what such draws take: vague priors have larger ones."""
    return rng.poisson(np.minimum(means, 1e18)).astype(np.float64)


def check_counts(what: str, values: Any) -> None:
    """Raise ValueError unless values, dense or sparse, are whole numbers >= 0; tell the first row that is not."""
    entries = values.data if is_sparse(values) else np.ravel(values)
    for bad, kind in ((entries < 0, "negative"), (entries != np.floor(entries), "fractional")):
        if np.any(bad):
            first = np.flatnonzero(bad)[0]
            row, column = divmod(first, values.shape[1])
            if is_sparse(values):
                row, column = values.tocoo().row[first], values.tocoo().col[first]
            at = place_of(row, column, values.shape[1])
            raise ValueError(f"{what} must be counts 0, 1, 2, ..., got {kind} values, as {entries[first]} in {at}")
