"""Scales of data from which default base measures are made."""

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

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


# Rows for each one that may differ from a number that all others have.
_ROWS_FOR_EACH_OTHER = 20
# The share of its variance that a column has beside a linear combination of others, where that is none at all, and
# where it is none if rounding explains it. Rounding in units u has the variance u^2 / 12, and of few rows more.
# A small share of the whole variance may be all that tells clusters apart that lie in strata far from each other.
_NOTHING, _LITTLE, _ROUNDING = 1e-12, 1e-2, 1.0 / 8.0
# Slopes of columns that are named as part of a combination, in standard deviations.
_SLOPE = 0.02
# The share of gaps up to which a column may be one of a combination.
_MOST_GAPS = 0.1
# The fewest degrees of freedom that such a share is told by.
_FEWEST_DEGREES = 10


class WithoutScatter(NamedTuple):
    """Why clusters have no scatter of their own in a column.

    Parameters
    ----------
    value : float
        The number that all rows have but ``n_others``.
    n_others : int
    of : tuple of int
        The columns that it is a linear combination of, but for the share ``value`` of its standard deviation.
    """

    value: float
    n_others: int = 0
    of: tuple[int, ...] = ()


def unit_of(column: np.ndarray) -> float:
    """Return the smallest difference between two numbers of a column, 0 if there is none."""
    gaps = np.diff(np.unique(column[~np.isnan(column)]))
    return float(gaps[gaps > 1e-9 * gaps.sum()].min()) if len(gaps) else 0.0


def columns_without_scatter(rows: np.ndarray, covariances_are_full: bool) -> dict[int, WithoutScatter]:
    """Return the columns in which clusters have no scatter of their own, by position.

    In a column that almost all rows agree in, or that is a linear combination of others within every cluster, each
    cluster would have a variance of next to nothing. That all of them have is so improbable, a priori, that fewer
    clusters explain the rows better, whatever the other columns show.

    Parameters
    ----------
    rows : (n, d) float64 array
        NaN where an entry is missing.
    covariances_are_full : bool
        Whether combinations of columns matter, or each column by itself.
    """
    d = rows.shape[1]
    # A number that almost all rows have is their median.
    values, bounds = np.nanmedian(rows, axis=0), np.sqrt(_least_variances(rows))
    others = np.sum(np.abs(rows - values) > bounds, axis=0)
    few = np.flatnonzero(others <= np.minimum(d, np.sum(~np.isnan(rows), axis=0) // _ROWS_FOR_EACH_OTHER))
    found = {int(j): WithoutScatter(float(values[j]), int(others[j])) for j in few}
    if covariances_are_full and len(found) < d:
        found |= _combinations(rows, [j for j in range(d) if j not in found])
    return found if len(found) < d else {}


def _combinations(rows: np.ndarray, columns: Sequence[int]) -> dict[int, WithoutScatter]:
    """Return the columns that are linear combinations of those before them, and of those with fewer gaps."""
    # In the few rows where a column with many gaps is known, others may be what they are not elsewhere.
    columns = [j for j in columns if np.isnan(rows[:, j]).mean() <= _MOST_GAPS]
    gaps = np.isnan(rows[:, columns])
    z = rows[:, columns][~gaps.any(axis=1)]
    found: dict[int, WithoutScatter] = {}
    kept: list[int] = []
    if len(z) <= _FEWEST_DEGREES:
        return found
    z = z - z.mean(axis=0)
    scales = np.sqrt(np.mean(z**2, axis=0))
    with np.errstate(all="ignore"):
        correlations = (z / scales).T @ (z / scales) / len(z)
    for j in np.argsort(gaps.sum(axis=0), kind="stable"):
        degrees = len(z) - 1 - len(kept)
        if degrees < _FEWEST_DEGREES:
            break
        slopes = np.linalg.solve(correlations[np.ix_(kept, kept)], correlations[kept, j])
        left = (1.0 - slopes @ correlations[kept, j]) * len(z) / degrees
        if left < _LITTLE:
            units = np.array([unit_of(rows[:, columns[i]]) / scales[i] for i in [j, *kept]])
            rounding = _ROUNDING * np.sum((units * [1.0, *slopes]) ** 2)
            if left < max(_NOTHING, rounding):
                chosen = np.flatnonzero(np.abs(slopes) > _SLOPE)
                of = tuple(columns[kept[i]] for i in chosen)
                found[columns[j]] = WithoutScatter(math.sqrt(max(float(left), 0.0)), of=of)
                continue
        kept.append(j)
    return found


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
            f"column {names[first]}{more} is constant{exactly}: {kind}.from_data takes a scale of almost zero "
            "from it, which may hide what the other columns show. Leave it out, or give the parameters"
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
