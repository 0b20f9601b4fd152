"""How far from a point partition the posterior reaches."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.posterior.draws import check_probability, checked_partition, distinct, drawn_labels
from pymc_dpgmm.posterior.losses import losses_between
from pymc_dpgmm.posterior.point_partition import point_partition
from pymc_dpgmm.threads import Threads, available_threads

BOUNDS = ("horizontal", "vertical_upper", "vertical_lower")


def credible_ball(
    idata: Any,
    name: str,
    partition: Any = None,
    *,
    probability: float = 0.95,
    loss: str = "vi",
    random_seed: Any = None,
) -> xr.Dataset:
    """Return the smallest ball around a partition that has a posterior probability, and its bounds.

    Its bounds are draws inside the ball (Wade and Ghahramani 2018, section 4): the horizontal one is the farthest
    from the partition; the vertical upper one is the farthest among those with the fewest clusters, the vertical
    lower one among those with the most.

    Parameters
    ----------
    idata : xarray.DataTree
    name : str
        Of the mixture, or of its labels.
    partition : (n,) array_like of integers or text, or Dataset, optional
        The centre: labels, or what :func:`point_partition` returns. By default that is called.
    probability : float, in (0, 1)
    loss : {"vi", "binder"}
        The distance, see :func:`point_partition`.
    random_seed : int or numpy.random.Generator, optional
        Of the search for a point partition.

    Returns
    -------
    Dataset
        ``labels`` (bound, n), ``n_clusters`` (bound,) and ``distance`` (bound,) from the centre, for the bounds
        ``"horizontal"``, ``"vertical_upper"`` and ``"vertical_lower"``; ``center`` (n,); scalars ``radius`` and
        ``probability``, the share of the draws in the ball.

    Raises
    ------
    TypeError, ValueError
        If there are no such labels, or an argument is of the wrong kind or outside its range.
    """
    check_probability(probability)
    drawn = drawn_labels(idata, name)
    if partition is None:
        partition = point_partition(idata, name, loss=loss, random_seed=random_seed)
    draws, shares = distinct(drawn.rows)
    center = checked_partition("partition", partition, drawn)
    with Threads(available_threads()) as threads:
        (distances,) = losses_between(threads, center[None, :], draws, loss)
    order = np.argsort(distances, kind="stable")
    reached = np.searchsorted(np.cumsum(shares[order]), probability - 1e-12)
    radius = distances[order][min(reached, len(order) - 1)]
    (inside,) = np.nonzero(distances <= radius)
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
    return int(among[distances[among].argmax()])
