"""Conversion of chunked partitions, from which labels are recomputed, to and from arrays that can be stored."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.chunked.partition import DrawnPartition
from pymc_dpgmm.sampler.many_rows.drawn_clusters import DrawnClusters

# Prefix of the names of drawn parameters of clusters.
_OF_CLUSTERS = "parameter_"


def as_dataset(drawn: Any, coords: Mapping[str, np.ndarray]) -> xr.Dataset:
    """Return partitions (chain, draw) as arrays, padded to the largest numbers of clusters and of moved rows.

    Padding is NaN for log weights and parameters, 0 for sums, and -1 for moved rows.
    """
    shape = drawn.shape
    flat: list[DrawnPartition] = list(drawn.ravel())
    most = max(len(one.clusters.slots) for one in flat)
    most_moved = max(len(one.moved) for one in flat)
    each = ("chain", "draw")

    def padded(rows: list[np.ndarray], length: int, fill: Any, dtype: Any) -> np.ndarray:
        stacked = _padded(rows, length, fill, dtype)
        return stacked.reshape(*shape, *stacked.shape[1:])

    clusters = [one.clusters for one in flat]
    variables: dict[str, Any] = {
        "n_clusters": (each, np.array([len(one.slots) for one in clusters]).reshape(shape)),
        "log_weight": (
            (*each, "cluster"),
            padded([one.log_weights for one in clusters], most, np.nan, float),
        ),
        "place": ((*each, "cluster"), padded([one.priorities for one in clusters], most, 0, np.int64)),
        "order_key": (each, np.array([one.order_key for one in clusters]).reshape(shape)),
        "uniform_key": (each, np.array([one.uniform_key for one in clusters]).reshape(shape)),
        "moved_row": ((*each, "moved"), padded([one.moved for one in flat], most_moved, -1, np.int64)),
        "moved_label": (
            (*each, "moved"),
            padded([one.labels for one in flat], most_moved, -1, np.int64),
        ),
    }
    occupied = max(len(one.sums) for one in flat)
    variables["sums"] = (
        (*each, "occupied", "sum"),
        padded([one.sums for one in flat], occupied, 0.0, float),
    )
    # Clusters that have been set and not drawn, as at a start, have no parameters.
    first = next((one.drawn[0] for one in clusters if one.drawn[0]), {})
    for parameter, of_first in first.items():
        values = padded([one.drawn[0].get(parameter, of_first[:0]) for one in clusters], most, np.nan, float)
        dims = [f"{parameter}_dim_{i}" for i in range(values.ndim - 3)]
        variables[_OF_CLUSTERS + parameter] = ((*each, "cluster", *dims), values)
    return xr.Dataset(variables, coords=dict(coords))


def sums_as_dataset(sums: Sequence[np.ndarray]) -> xr.Dataset:
    """Return the sums (K, w) of the clusters in one chain of draws as arrays; labels cannot be recomputed."""
    most = max(map(len, sums))
    variables = {
        "n_clusters": (("chain", "draw"), np.array([[len(of_draw) for of_draw in sums]])),
        "sums": (("chain", "draw", "occupied", "sum"), _padded(sums, most, 0.0, float)[None]),
    }
    return xr.Dataset(variables, coords={"chain": [0], "draw": np.arange(len(sums))})


def has_labels(dataset: xr.Dataset) -> bool:
    """Whether labels can be recomputed from the arrays."""
    return "order_key" in dataset


def _padded(rows: Sequence[np.ndarray], length: int, fill: Any, dtype: Any) -> np.ndarray:
    """Stack arrays of different lengths, padded to ``length``."""
    stacked = np.full((len(rows), length, *rows[0].shape[1:]), fill, dtype=dtype)
    for out, values in zip(stacked, rows, strict=True):
        out[: len(values)] = values
    return stacked


def from_dataset(dataset: xr.Dataset, chain: int, draw: int) -> DrawnPartition:
    """Return one partition, given positions of its chain and its draw."""
    of_draw = dataset.isel(chain=chain, draw=draw)
    k = int(of_draw["n_clusters"])
    drawn = {
        str(name).removeprefix(_OF_CLUSTERS): np.ascontiguousarray(values.to_numpy()[:k])
        for name, values in of_draw.items()
        if str(name).startswith(_OF_CLUSTERS)
    }
    moved = of_draw["moved_row"].to_numpy()
    clusters = DrawnClusters(
        np.arange(k),
        np.ascontiguousarray(of_draw["place"].to_numpy()[:k]),
        np.ascontiguousarray(of_draw["log_weight"].to_numpy()[:k]),
        [drawn],
        int(of_draw["order_key"]),
        int(of_draw["uniform_key"]),
    )
    sums = of_draw["sums"].to_numpy()
    of_moved = of_draw["moved_label"].to_numpy()
    return DrawnPartition(clusters, moved[moved >= 0], of_moved[moved >= 0], sums[sums[:, 0] > 0])
