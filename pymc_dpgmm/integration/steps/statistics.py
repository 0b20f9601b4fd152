"""Sampler statistics of steps of labels."""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.sampler.moves.kinds import MOVES

# Of every partition.
OF_PARTITIONS: dict[str, Any] = {
    "n_clusters": np.int64,
    "largest_share": np.float64,
    "entropy": np.float64,
    "n_moved": np.int64,
    "log_joint": np.float64,
    "seconds": np.float64,
}
# How far what a chain had found alone in tuning was from the partition of another chain at which it began anew.
OF_CHAINS_ALONE = ("alone_lower", "alone_distance")


class MoveStatistics:
    """The statistics of all kinds of moves, each prefixed by the name of its kind.

    The names are made once: a draw of few rows takes no longer than to make them.
    """

    def __init__(self) -> None:
        self._kinds = [
            (
                [(f"{move.name}_{name}", column) for name, column in move.counts.items()],
                [(f"{move.name}_{name}", *columns) for name, columns in move.means.items()],
            )
            for move in MOVES.values()
        ]

    @property
    def dtypes(self) -> dict[str, Any]:
        """Their dtypes, by name."""
        counts = {name: np.int64 for counts, _ in self._kinds for name, _ in counts}
        return counts | {name: np.float64 for _, means in self._kinds for name, _, _ in means}

    def of(self, tally: np.ndarray) -> dict[str, Any]:
        """Return them for the tally of a draw."""
        statistics: dict[str, Any] = {}
        for (counts, means), counted in zip(self._kinds, tally.tolist(), strict=True):
            for name, column in counts:
                statistics[name] = counted[column]
            for name, total, number in means:
                statistics[name] = counted[total] / counted[number] if counted[number] else math.nan
        return statistics


def of_partition(sizes: np.ndarray, n_moved: int, log_joint: float) -> dict[str, Any]:
    """Return the statistics of a partition, given the sizes of its clusters, in any order."""
    # In order of size: the same partition has the same entropy to the last bit, and so the same rank.
    ordered = sorted(sizes.tolist())
    n = sum(ordered)
    shares = [size / n for size in ordered]
    return {
        "n_clusters": len(shares),
        "largest_share": shares[-1],
        "entropy": -math.sumprod(shares, map(math.log, shares)),
        "n_moved": n_moved,
        # Digits that the order of clusters leaves the same, for the same reason.
        "log_joint": float(f"{log_joint:.12g}"),
    }
