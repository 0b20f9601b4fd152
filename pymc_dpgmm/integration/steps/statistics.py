"""Sampler statistics of steps of labels."""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.sampler.moves.split_merge import (
    MERGED_ROWS,
    MERGES,
    MERGES_TRIED,
    MOVES,
    SPLIT_ROWS,
    SPLITS,
    SPLITS_TRIED,
)

# Of every partition.
OF_PARTITIONS: dict[str, Any] = {
    "n_clusters": np.int64,
    "largest_share": np.float64,
    "entropy": np.float64,
    "n_moved": np.int64,
    "log_joint": np.float64,
    "seconds": np.float64,
}
STATISTICS: dict[str, Any] = OF_PARTITIONS | {"searching": np.bool_}
# Of each kind of split and merge move: names and columns of the tally, and sizes as ratios of two columns.
COUNTED = {
    "splits_tried": SPLITS_TRIED,
    "splits": SPLITS,
    "merges_tried": MERGES_TRIED,
    "merges": MERGES,
}
SIZES = {"split_size": (SPLIT_ROWS, SPLITS), "merge_size": (MERGED_ROWS, MERGES)}
STATISTICS |= {f"{kind}_{name}": np.int64 for kind in MOVES for name in COUNTED}
STATISTICS |= {f"{kind}_{name}": np.float64 for kind in MOVES for name in SIZES}
# The names are made once: a draw of few rows takes no longer than to make them.
_KINDS = [
    (
        [(f"{kind}_{name}", column) for name, column in COUNTED.items()],
        [(f"{kind}_{name}", *columns) for name, columns in SIZES.items()],
    )
    for kind in MOVES
]


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


def tallied(tally: np.ndarray) -> dict[str, Any]:
    """Return the statistics of split and merge moves."""
    statistics: dict[str, Any] = {}
    for (counted, sizes), counts in zip(_KINDS, tally.tolist(), strict=True):
        for name, column in counted:
            statistics[name] = counts[column]
        for name, rows, number in sizes:
            statistics[name] = counts[rows] / counts[number] if counts[number] else math.nan
    return statistics
