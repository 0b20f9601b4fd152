"""Origins close to the data, so that values far from zero cost no digits."""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.supports import refuse_where

# Squared distance of a row from the mean of all rows, in units of its own variance, and the sum of all of these,
# from which on a difference of sums of such squares keeps too few digits.
_LARGEST_SQUARE, _LARGEST_SUM = 1e12, 1e13


def column_means_or_zero(values: np.ndarray) -> np.ndarray:
    """Return the means of the entries of columns that are not missing (NaN), 0 where there are none."""
    means = values.sum(axis=0) / max(len(values), 1)
    if not np.isfinite(means).all():
        # Not np.nanmean, which warns of columns without entries.
        present = ~np.isnan(values)
        means = np.where(present, values, 0.0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
    return means


def centred(params: Any, values: np.ndarray, origin: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return rows less their column means or ``origin``, and what is subtracted; missing entries stay NaN."""
    subtracted = column_means_or_zero(values) if origin is None else origin
    return np.ascontiguousarray(values - subtracted), subtracted


def shift_mean(params: Any, origin: np.ndarray) -> Any:
    """Return parameters whose ``mu`` is relative to ``origin``."""
    return params._replace(mu=params.mu - origin)


def refuse_lost_digits(squares: np.ndarray) -> None:
    """Raise ValueError where rows are too far apart beside their own errors; ``squares`` are (n, columns)."""
    refuse_where(
        squares > _LARGEST_SQUARE,
        "the error of a row must be at least a millionth of its distance from the mean of all rows (are these "
        "variances, in the squared unit of the data?)",
        np.sqrt(squares),
    )
    total = float(squares.sum(axis=0).max(initial=0.0))
    if total > _LARGEST_SUM:
        raise ValueError(
            f"{len(squares)} rows are {math.sqrt(total / len(squares)):.3g} of their errors from their mean (root "
            "mean square), which leaves too few digits to sums of squares (are these variances, in the squared "
            "unit of the data?)"
        )
