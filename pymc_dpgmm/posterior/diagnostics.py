"""Numbers of each draw that do not depend on names of clusters, for convergence checks and traces."""

import warnings
from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.partitions import cluster_sizes
from pymc_dpgmm.posterior.draws import canonical_draws, checked_partition, drawn_labels
from pymc_dpgmm.posterior.losses import losses_between
from pymc_dpgmm.threads import Threads, available_threads

# Draws of each chain among which its reference partition is found.
FEW = 50
# R-hat of a distance, from which on chains count as being at different partitions.
WORST_R_HAT = 1.05


def partition_diagnostics(
    idata: Any, name: str, *, reference: Any = None, n_largest: int = 3, warn: bool = True
) -> xr.Dataset:
    """Return numbers of each draw's partition, for ``az.summary``, ``az.rhat``, ``az.ess`` and ``az.plot_trace``.

    Chains can have the same number of clusters and yet be stuck in different partitions. The distances tell: each
    chain has a reference partition, one of its own draws that is near the others, and the distance of all draws to
    it is a number like any other. Where chains agree, its R-hat is 1.

    Parameters
    ----------
    idata : xarray.DataTree
    name : str
        Of the mixture, or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        A partition to measure the distances to, in place of one of each chain.
    n_largest : int, >= 1
        Number of shares of the largest clusters.
    warn : bool
        Whether to warn where R-hat of a distance is above 1.05.

    Returns
    -------
    Dataset
        (chain, draw) ``n_clusters``; ``entropy`` of the clusters' shares, in nats; ``log_joint``, the log density
        of labels and data given everything else, if it is among the sampler statistics; (chain, draw, largest)
        ``share``, zero where there are fewer clusters; (chain, draw, reference) ``distance``, the variation of
        information in bits. The attribute ``distance_r_hat``, where there are two chains or more, is the largest
        R-hat of a distance, infinite where each chain stands still at a partition of its own.

    Raises
    ------
    TypeError, ValueError
        If there are no such labels, or an argument is of the wrong kind or outside its range.

    Examples
    --------
    Two draws of the labels of three rows:

    >>> draws = xr.Dataset({"y_labels": (("chain", "draw", "row"), [[[0, 0, 0], [0, 1, 1]]])})
    >>> found = partition_diagnostics(xr.DataTree.from_dict({"posterior": draws}), "y", n_largest=2)
    >>> found["n_clusters"].to_numpy()
    array([[1, 2]])
    >>> found["share"].to_numpy().round(2)
    array([[[1.  , 0.  ],
            [0.67, 0.33]]])
    """
    drawn = drawn_labels(idata, name)
    if not isinstance(n_largest, int | np.integer) or isinstance(n_largest, bool) or n_largest < 1:
        raise ValueError(f"n_largest must be an integer of at least 1, got {n_largest!r}")
    shape = drawn.labels.transpose("chain", "draw", drawn.row).shape
    canonical = canonical_draws(drawn.rows)
    by_chain = canonical.reshape(shape)
    with Threads(available_threads()) as threads:
        if reference is None:
            references = np.array([_central(threads, chain) for chain in by_chain])
            of = drawn.labels["chain"].to_numpy()
        else:
            references, of = checked_partition("reference", reference, drawn)[None, :], np.array([0])
        distances = losses_between(threads, references, canonical, "vi").T.reshape(*shape[:2], -1)
    sizes = [np.sort(cluster_sizes(labels))[::-1] for labels in canonical]
    shares = np.zeros((len(sizes), n_largest))
    for own, found in zip(shares, sizes, strict=True):
        own[: len(found)] = found[:n_largest] / shape[-1]
    entropies = [-float(np.sum(p * np.log(p))) for p in (found / shape[-1] for found in sizes)]
    each = ("chain", "draw")
    variables: dict[str, Any] = {
        "n_clusters": (each, np.array([len(found) for found in sizes]).reshape(shape[:2])),
        "entropy": (each, np.array(entropies).reshape(shape[:2])),
        "share": ((*each, "largest"), shares.reshape(*shape[:2], -1)),
        "distance": ((*each, "reference"), distances),
    }
    statistic = f"{drawn.labels.name}_log_joint"
    if "sample_stats" in idata.children and statistic in idata["sample_stats"].dataset:
        joint = idata["sample_stats"].dataset[statistic]
        if joint.shape == shape[:2]:
            variables["log_joint"] = (each, joint.transpose(*each).to_numpy())
    coords = {dim: drawn.labels[dim].to_numpy() for dim in each}
    result = xr.Dataset(variables, coords=coords | {"largest": np.arange(n_largest) + 1, "reference": of})
    if shape[0] > 1 and shape[1] >= 4:
        result.attrs["distance_r_hat"] = worst = _worst_r_hat(distances)
        if warn and worst > WORST_R_HAT:
            warnings.warn(
                f"the chains are at different partitions: R-hat of the distance to a partition of one of them is "
                f"{worst:.2f}. They have not met; run longer, or look at each chain by itself.",
                stacklevel=2,
            )
    return result


def _central(threads: Threads, draws: np.ndarray) -> np.ndarray:
    """Return the one of a few draws of a chain that is nearest to the others."""
    few = draws[np.unique(np.linspace(0, len(draws) - 1, FEW).astype(int))]
    return few[losses_between(threads, few, few, "vi").sum(axis=1).argmin()]


def _worst_r_hat(distances: np.ndarray) -> float:
    """Return the largest R-hat of distances (chain, draw, reference); 1 where none varies."""
    from arviz_stats.base import array_stats

    found = [1.0]
    for own in np.moveaxis(distances, -1, 0):
        # Chains that stand still at one partition each have no spread within, whatever is between them.
        within, all_draws = own.std(axis=1).max(), own.std()
        if all_draws > 1e-9:
            found.append(np.inf if within < 1e-9 else float(array_stats.rhat(own, chain_axis=0, draw_axis=1)))
    return max(found)
