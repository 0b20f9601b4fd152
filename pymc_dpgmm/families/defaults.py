"""Scales of data from which default base measures are made."""

import warnings
from collections.abc import Sequence

import numpy as np

# A column whose standard deviation is below this share of its largest absolute value is constant up to
# rounding. The floor is a share of that value, or 1 for a column of zeros, which keeps the defaults
# equivariant under column scaling.
_SMALLEST_SPREAD = 1e-10


def column_variances(rows: np.ndarray) -> np.ndarray:
    """Variance of each column, with a floor for columns without spread.

    Parameters
    ----------
    rows : (n, d) float64 array
        NaN where an entry is missing.

    Returns
    -------
    variances : (d,) float64 array, > 0
        Divisor n. A column whose standard deviation is below 1e-10 times its largest absolute value
        takes (1e-10 times that value) squared; a column of zeros takes 1.
    """
    largest = np.nanmax(np.abs(rows), axis=0)
    floor = np.where(largest > 0, _SMALLEST_SPREAD * largest, 1.0) ** 2
    return np.maximum(np.nanvar(rows, axis=0), floor)


# A row that makes more than this share of a column's sum of squares decides the column's scale alone.
_LARGEST_SHARE = 0.75
# Among fewer rows, one may make as much by chance: of ten normal ones in 40 columns, in one case of twelve.
_FEWEST_ROWS = 20


def warn_of_scales(kind: str, rows: np.ndarray, names: Sequence[str]) -> None:
    """Warn where the variances of the columns are no scale of the clusters that a user may look for.

    Parameters
    ----------
    kind : str
        Name of the base measure that is made from the rows.
    rows : (n, d) float64 array
        NaN where an entry is missing.
    names : sequence of d str
        Of the columns.
    """
    if len(rows) == 1:
        _warn(
            f"{kind}.from_data takes its scale from the spread of the rows, and one row has none: give the "
            "parameters"
        )
        return
    smallest, largest = np.nanmin(rows, axis=0), np.nanmax(rows, axis=0)
    constant = [name for name, low, high in zip(names, smallest, largest, strict=True) if low == high]
    if constant:
        more = f" (and {len(constant) - 1} more columns)" if len(constant) > 1 else ""
        _warn(
            f"column {constant[0]}{more} is constant: it tells nothing about clusters, and {kind}.from_data takes "
            "a scale of almost zero from it. Leave it out, or give the parameters"
        )
    if len(rows) < _FEWEST_ROWS:
        return
    squares = np.nan_to_num((rows - np.nanmedian(rows, axis=0)) ** 2, nan=0.0)
    shares = squares.max(axis=0) / np.maximum(squares.sum(axis=0), np.finfo(np.float64).tiny)
    decided = np.flatnonzero(shares > _LARGEST_SHARE)
    if len(decided):
        first = decided[0]
        more = f" (and of {len(decided) - 1} more columns)" if len(decided) > 1 else ""
        _warn(
            f"row {np.argmax(squares[:, first])} alone makes {shares[first]:.0%} of the variance of column "
            f"{names[first]}{more}, from which {kind}.from_data takes its scale: all other rows would look like "
            "one cluster. Check that row, make the base measure from the others, or give the parameters"
        )


def _warn(message: str) -> None:
    warnings.warn(message, UserWarning, stacklevel=4)
