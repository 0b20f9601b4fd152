"""Sums over the rows of clusters, for families whose rows hold two numbers per column and a constant."""

from typing import NamedTuple

import numpy as np

from pymc_dpgmm.dispatch import implements
from pymc_dpgmm.families import verbs
from pymc_dpgmm.families.slots import slotted


@slotted("size", "first", "second", "constant")
class Sums(NamedTuple):
    """Numbers of rows, sums of the first d columns, of the next d, and of the last: (K,), (K, d), (K, d), (K,)."""

    size: np.ndarray
    first: np.ndarray
    second: np.ndarray
    constant: np.ndarray


def no_sums(capacity: int, d: int) -> Sums:
    """Return the sums of ``capacity`` clusters without rows."""
    return Sums(
        size=np.zeros(capacity, dtype=np.int64),
        first=np.zeros((capacity, d)),
        second=np.zeros((capacity, d)),
        constant=np.zeros(capacity),
    )


@implements(verbs.summarize, Sums)
def _(summary, k, rows, members):
    d = summary.first.shape[1]
    summary.size[k] = members.shape[0]
    summary.constant[k] = 0.0
    for j in range(d):
        summary.first[k, j] = 0.0
        summary.second[k, j] = 0.0
    for i in members:
        summary.constant[k] += rows[i, 2 * d]
        for j in range(d):
            summary.first[k, j] += rows[i, j]
            summary.second[k, j] += rows[i, d + j]


@implements(verbs.combine, Sums)
def _(summary, k, j):
    summary.size[k] += summary.size[j]
    summary.constant[k] += summary.constant[j]
    for column in range(summary.first.shape[1]):
        summary.first[k, column] += summary.first[j, column]
        summary.second[k, column] += summary.second[j, column]
