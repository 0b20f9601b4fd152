"""What the labels of rows in chunks are computed from, as arrays that can be stored."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.chunked.partition import DrawnPartition
from pymc_dpgmm.sampler.many_rows.drawn_clusters import DrawnClusters

# Of drawn parameters, the names begin so.
_OF_CLUSTERS = "parameter_"


def as_dataset(drawn: Any, coords: Mapping[str, np.ndarray]) -> xr.Dataset:
    """Return partitions (chain, draw) as arrays, padded to the most clusters and the most rows that have moved.

    Padding is NaN for log weights and parameters, 0 for sums, and -1 for rows that have moved.
    """
    shape = drawn.shape
    flat: list[DrawnPartition] = list(drawn.ravel())
    most = max(len(own.clusters.slots) for own in flat)
    most_moved = max(len(own.moved) for own in flat)
    each = ("chain", "draw")

    def padded(rows: list[np.ndarray], length: int, fill: Any, dtype: Any) -> np.ndarray:
        found = _padded(rows, length, fill, dtype)
        return found.reshape(*shape, *found.shape[1:])

    clusters = [own.clusters for own in flat]
    variables: dict[str, Any] = {
        "n_clusters": (each, np.array([len(own.slots) for own in clusters]).reshape(shape)),
        "log_weight": ((*each, "cluster"), padded([own.log_weights for own in clusters], most, np.nan, float)),
        "place": ((*each, "cluster"), padded([own.priorities for own in clusters], most, 0, np.int64)),
        "order_key": (each, np.array([own.order_key for own in clusters]).reshape(shape)),
        "uniform_key": (each, np.array([own.uniform_key for own in clusters]).reshape(shape)),
        "moved_row": ((*each, "moved"), padded([own.moved for own in flat], most_moved, -1, np.int64)),
        "moved_label": ((*each, "moved"), padded([own.labels for own in flat], most_moved, -1, np.int64)),
    }
    occupied = max(len(own.sums) for own in flat)
    variables["sums"] = ((*each, "occupied", "sum"), padded([own.sums for own in flat], occupied, 0.0, float))
    for parameter in clusters[0].drawn[0]:
        values = padded([own.drawn[0][parameter] for own in clusters], most, np.nan, float)
        dims = [f"{parameter}_dim_{i}" for i in range(values.ndim - 3)]
        variables[_OF_CLUSTERS + parameter] = ((*each, "cluster", *dims), values)
    return xr.Dataset(variables, coords=dict(coords))


def sums_as_dataset(sums: Sequence[np.ndarray]) -> xr.Dataset:
    """Return the sums (K, w) of the clusters of one chain of draws, from which labels cannot be computed."""
    most = max(map(len, sums))
    variables = {
        "n_clusters": (("chain", "draw"), np.array([[len(own) for own in sums]])),
        "sums": (("chain", "draw", "occupied", "sum"), _padded(sums, most, 0.0, float)[None]),
    }
    return xr.Dataset(variables, coords={"chain": [0], "draw": np.arange(len(sums))})


def has_labels(dataset: xr.Dataset) -> bool:
    """Tell whether labels can be computed from arrays."""
    return "order_key" in dataset


def _padded(rows: Sequence[np.ndarray], length: int, fill: Any, dtype: Any) -> np.ndarray:
    """Return arrays of different lengths as one."""
    found = np.full((len(rows), length, *rows[0].shape[1:]), fill, dtype=dtype)
    for out, own in zip(found, rows, strict=True):
        out[: len(own)] = own
    return found


def from_dataset(dataset: xr.Dataset, chain: int, draw: int) -> DrawnPartition:
    """Return one partition, given positions of its chain and its draw."""
    own = dataset.isel(chain=chain, draw=draw)
    k = int(own["n_clusters"])
    drawn = {
        str(name).removeprefix(_OF_CLUSTERS): np.ascontiguousarray(values.to_numpy()[:k])
        for name, values in own.items()
        if str(name).startswith(_OF_CLUSTERS)
    }
    moved = own["moved_row"].to_numpy()
    clusters = DrawnClusters(
        np.arange(k),
        np.ascontiguousarray(own["place"].to_numpy()[:k]),
        np.ascontiguousarray(own["log_weight"].to_numpy()[:k]),
        [drawn],
        int(own["order_key"]),
        int(own["uniform_key"]),
    )
    sums = own["sums"].to_numpy()
    of_moved = own["moved_label"].to_numpy()
    return DrawnPartition(clusters, moved[moved >= 0], of_moved[moved >= 0], sums[sums[:, 0] > 0])
