"""Credible balls around a partition."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.native.threads import Threads, available_threads
from pymc_dpgmm.posterior.arrays.losses import losses_between
from pymc_dpgmm.posterior.arrays.partitions import distinct
from pymc_dpgmm.posterior.arrays.point_partition import point_partition_of
from pymc_dpgmm.posterior.draws import checked_level, checked_partition, drawn_labels

# Distances that differ by no more than this are equal.
TIED = 1e-12
BOUNDS = ("horizontal", "vertical_upper", "vertical_lower")


def credible_ball(
    idata: Any,
    name: str,
    partition: Any = None,
    *,
    probability: float | None = None,
    loss: str | None = None,
    random_seed: Any = 0,
) -> xr.Dataset:
    """Return the smallest ball around a partition that has a given posterior probability, and its bounds.

    The bounds are draws inside the ball (Wade and Ghahramani 2018, section 4). The horizontal bound is the draw
    that is farthest from the partition. The vertical upper bound is the farthest among the draws with the fewest
    clusters, and the vertical lower bound is the farthest among those with the most.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture or of its labels.
    partition : (n,) array_like of integers or text, or Dataset, optional
        The centre: labels, or the result of :func:`point_partition`, which is called by default.
    probability : float, in (0, 1), optional
        Posterior probability of the ball; by default that of ArviZ, ``arviz.rcParams["stats.ci_prob"]``.
    loss : {"vi", "binder"}, optional
        The distance, see :func:`point_partition`.
    random_seed : int or numpy.random.Generator
        Seed of the search for a point partition.

    Returns
    -------
    Dataset
        ``labels`` (bound, n), ``n_clusters`` (bound,) and the ``distance`` (bound,) from the centre, for the
        bounds ``"horizontal"``, ``"vertical_upper"`` and ``"vertical_lower"``; ``center`` (n,); and the scalars
        ``radius`` and ``probability``, the share of the draws in the ball.

    Raises
    ------
    TypeError, ValueError
        If there are no such labels, or an argument is of the wrong kind or outside its range.

    Examples
    --------
    Three draws of the labels of three rows:

    >>> import xarray as xr
    >>> import pymc_dpgmm as dp
    >>> draws = xr.Dataset({"y_labels": (("chain", "draw", "row"), [[[0, 0, 1], [0, 0, 1], [0, 1, 2]]])})
    >>> ball = dp.credible_ball(xr.DataTree.from_dict({"posterior": draws}), "y", [0, 0, 1])
    >>> ball["n_clusters"].sel(bound=["vertical_upper", "vertical_lower"]).to_numpy()
    array([2, 3])
    """
    probability = checked_level(probability)
    drawn = drawn_labels(idata, name)
    loss = loss or drawn.loss
    if partition is None:
        center, _ = point_partition_of(drawn.rows, loss, seed=random_seed)
    else:
        center = checked_partition("partition", partition, drawn).labels
    draws, shares = distinct(drawn.rows)
    with Threads(available_threads()) as threads:
        (distances,) = losses_between(threads, center[None, :], draws, loss)
    order = np.argsort(distances, kind="stable")
    reached = np.searchsorted(np.cumsum(shares[order]), probability - 1e-12)
    radius = distances[order][min(reached, len(order) - 1)]
    # Distances that are equal may differ by rounding.
    (inside,) = np.nonzero(distances <= radius + TIED)
    n_clusters = draws.max(axis=1) + 1
    fewest, largest = n_clusters[inside].min(), n_clusters[inside].max()
    chosen = [
        _farthest(inside, distances),
        _farthest(inside[n_clusters[inside] == fewest], distances),
        _farthest(inside[n_clusters[inside] == largest], distances),
    ]
    return xr.Dataset(
        {
            "labels": (("bound", drawn.row), draws[chosen]),
            "n_clusters": ("bound", n_clusters[chosen]),
            "distance": ("bound", distances[chosen]),
            "center": (drawn.row, center),
            "radius": radius,
            "probability": shares[inside].sum(),
        },
        coords=drawn.coords() | {"bound": list(BOUNDS)},
        attrs={"loss": loss},
    )


def _farthest(among: np.ndarray, distances: np.ndarray) -> int:
    return int(among[np.argmax(distances[among] >= distances[among].max() - TIED)])
