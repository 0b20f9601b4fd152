"""Segmentations: partitions of rows in order into runs of neighbours, between which there are changes."""

from typing import NamedTuple

import numpy as np


class Sequences(NamedTuple):
    """Rows in order, in one sequence or several.

    Parameters
    ----------
    rows : (n,) int64 array
        Numbers of the rows of the first sequence in their order, then of the second, and so on.
    starts : (J + 1,) int64 array
        Where the rows of each sequence begin, and n.
    """

    rows: np.ndarray
    starts: np.ndarray

    @property
    def may_change(self) -> np.ndarray:
        """Whether a row in order may begin a segment that its sequence does not begin: (n,) bools."""
        found = np.ones(len(self.rows), dtype=bool)
        found[self.starts[:-1]] = False
        return found

    def labels(self, begins: np.ndarray) -> np.ndarray:
        """Return the numbers of the segments of all rows, given which rows in order begin one: (n,) int64."""
        found = np.empty(len(self.rows), dtype=np.int64)
        found[self.rows] = np.cumsum(begins) - 1
        return found

    def begins(self, labels: np.ndarray) -> np.ndarray:
        """Return which rows in order begin a segment, given numbers of segments (..., n): (..., n) bools."""
        ordered = labels[..., self.rows]
        found = np.ones(ordered.shape, dtype=bool)
        found[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
        return found

    def draw(self, rng: np.random.Generator, p: float) -> np.ndarray:
        """Draw labels from their prior, with the probability p of a change between neighbours."""
        return self.labels((rng.random(len(self.rows)) < p) | ~self.may_change)


def sequences_of(sequence: np.ndarray, order: np.ndarray | None = None) -> Sequences:
    """Return the sequences of rows, given the number of each row's sequence and, if not that of rows, its place.

    Parameters
    ----------
    sequence : (n,) int64 array
        Numbers 0 to J - 1, each of some row.
    order : (n,) array, optional
        Of which rows of a sequence come one after the other.

    Raises
    ------
    ValueError
        If two rows of a sequence have the same place.
    """
    rows = np.argsort(sequence, kind="stable") if order is None else np.lexsort((order, sequence))
    starts = np.append(0, np.cumsum(np.bincount(sequence)))
    if order is not None:
        tied = (order[rows[1:]] == order[rows[:-1]]) & (sequence[rows[1:]] == sequence[rows[:-1]])
        if tied.any():
            i, j = sorted(rows[np.flatnonzero(tied)[0] + np.arange(2)].tolist())
            raise ValueError(
                f"order has {order[i]} for row {i} and for row {j} of one sequence, and for {tied.sum() - 1} more "
                "neighbours: rows of a sequence need places that differ. Give sequence= where there are several, "
                "or add up rows of one time"
            )
    return Sequences(rows.astype(np.int64), starts.astype(np.int64))
