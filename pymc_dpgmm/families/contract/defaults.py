"""Scales of data from which default base measures are made."""

import warnings
from collections.abc import Sequence

import numpy as np

# Numbers that a few operations give, each rounded, differ from what is meant by a few units in the last place, and
# such a unit is at most eps times the number. A spread of no more than that is none.
_ROUNDINGS = 4.0


def _about_the_first(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first entry of each column that is there, and all entries less it.

    Means and variances of the differences keep the digits that sums of entries far from zero would lose: the error
    of a sum of n numbers is up to n eps times the largest. The difference of two numbers that are close is exact.
    """
    first = rows[np.argmax(~np.isnan(rows), axis=0), np.arange(rows.shape[1])]
    return first, rows - first


def _least_variances(rows: np.ndarray) -> np.ndarray:
    """Variance of each column that rounding alone may explain; 1 for a column of zeros."""
    largest = np.nanmax(np.abs(rows), axis=0)
    return np.where(largest > 0, _ROUNDINGS * np.finfo(np.float64).eps * largest, 1.0) ** 2


def column_means(rows: np.ndarray) -> np.ndarray:
    """Mean of each column, without its missing entries (NaN)."""
    first, differences = _about_the_first(rows)
    return first + np.nanmean(differences, axis=0)


def column_variances(rows: np.ndarray) -> np.ndarray:
    """Variance of each column, with a floor for columns without spread.

    Parameters
    ----------
    rows : (n, d) float64 array
        NaN where an entry is missing.

    Returns
    -------
    variances : (d,) float64 array, > 0
        Divisor n. A column whose standard deviation is below 4 eps times its largest absolute value, with eps =
        2.2e-16 the precision of float64, takes the square of that; a column of zeros takes 1. Such a column is
        constant up to rounding. The floor is a share of the column's values, so that the variances are those of
        scaled columns whatever the scale.

    Raises
    ------
    ValueError
        If numbers are so small that their squares are 0.
    """
    variances = np.maximum(np.nanvar(_about_the_first(rows)[1], axis=0), _least_variances(rows))
    if not np.all(variances > 0):
        largest = np.nanmax(np.abs(rows), axis=0)[variances == 0][0]
        raise ValueError(
            f"the data has a column with numbers of no more than {largest:.2g}, whose squares are 0 in float64: "
            "rescale the data, as by x / x.std()"
        )
    return variances


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
    constant = np.flatnonzero(column_variances(rows) <= _least_variances(rows))
    if len(constant):
        first = constant[0]
        exactly = "" if np.nanmin(rows[:, first]) == np.nanmax(rows[:, first]) else " up to rounding"
        more = f" (and {len(constant) - 1} more columns)" if len(constant) > 1 else ""
        _warn(
            f"column {names[first]}{more} is constant{exactly}: it tells nothing about clusters, and "
            f"{kind}.from_data takes a scale of almost zero from it. Leave it out, or give the parameters"
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
