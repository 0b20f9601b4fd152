"""Sampler statistics of steps of labels."""

from typing import Any

import numpy as np

from pymc_dpgmm.kernels.split_merge import (
    MERGED_ROWS,
    MERGES,
    MERGES_TRIED,
    MOVES,
    N_TALLIED,
    SPLIT_ROWS,
    SPLITS,
    SPLITS_TRIED,
)

STATISTICS: dict[str, Any] = {
    "n_clusters": np.int64,
    "largest_share": np.float64,
    "entropy": np.float64,
    "n_moved": np.int64,
    "log_joint": np.float64,
    "searching": np.bool_,
    "seconds": np.float64,
}
# Of each kind of split and merge move: names and columns of the tally, and sizes as ratios of two columns.
COUNTED = {
    "splits_tried": SPLITS_TRIED,
    "splits": SPLITS,
    "merges_tried": MERGES_TRIED,
    "merges": MERGES,
}
SIZES = {"split_size": (SPLIT_ROWS, SPLITS), "merge_size": (MERGED_ROWS, MERGES)}


def tallied(tally: np.ndarray) -> dict[str, Any]:
    """Return the statistics of split and merge moves."""
    statistics: dict[str, Any] = {}
    for kind, counts in zip(MOVES, tally, strict=True):
        statistics |= {f"{kind}_{name}": counts[column] for name, column in COUNTED.items()}
        for name, (rows, number) in SIZES.items():
            statistics[f"{kind}_{name}"] = counts[rows] / counts[number] if counts[number] else np.nan
    return statistics


STATISTICS |= {
    name: np.int64 if name.rsplit("_", 1)[1] != "size" else np.float64
    for name in tallied(np.zeros((len(MOVES), N_TALLIED), dtype=np.int64))
}
