"""Scales of data from which default base measures are made."""

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
