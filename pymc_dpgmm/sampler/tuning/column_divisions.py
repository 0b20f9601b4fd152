"""Clusters that may be two along one column, for tuning.

A base measure that learns its scale adapts to the partition at hand. Where two groups that differ in one column
are one cluster, the column counts as wide within clusters, and no division along it is worth while before the
scale is another one. So divisions along columns are tried together with the scale that fits them.
"""

from typing import NamedTuple

import numpy as np

# The part of a normal column's variance that is left within its two halves: 1 - 2 / pi.
OF_NORMAL = 1.0 - 2.0 / np.pi
# Fewer rows are not divided.
FEWEST_ROWS = 4


class ColumnDivision(NamedTuple):
    """Some rows of a cluster that lie at one end of a column.

    Parameters
    ----------
    score : float
        Half the number of rows in the cluster, times the log of how many times less variance its two halves have
        than those of a normal column would.
    rows : int array
    """

    score: float
    rows: np.ndarray


def column_divisions(values: np.ndarray, labels: np.ndarray) -> list[ColumnDivision]:
    """Return the best division of each cluster along each column, best first.

    Parameters
    ----------
    values : (n, d) array
        Missing entries are NaN.
    labels : (n,) int array
        0..K - 1.
    """
    divisions = []
    for k in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == k)
        for column in values[members].T if len(members) >= FEWEST_ROWS else ():
            present = np.flatnonzero(~np.isnan(column))
            m = len(present)
            if m < FEWEST_ROWS:
                continue
            ordered = present[np.argsort(column[present], kind="stable")]
            moved = column[ordered] - column[ordered].mean()
            left = np.arange(1, m)
            between = np.cumsum(moved)[:-1] ** 2 * (1.0 / left + 1.0 / (m - left))
            place, total = int(between.argmax()), float(moved @ moved)
            if total > 0.0:
                within = max(1.0 - between[place] / total, 1e-12)
                score = -0.5 * m * float(np.log(within / OF_NORMAL))
                divisions.append(ColumnDivision(score, members[ordered[: place + 1]]))
    return sorted(divisions, key=lambda division: -division.score)
