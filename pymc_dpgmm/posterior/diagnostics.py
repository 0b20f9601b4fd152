"""Scalars of each draw that are invariant to relabelling, for convergence checks and traces."""

import warnings
from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.integration.variables.records import dataset_of
from pymc_dpgmm.native.interrupts import imported
from pymc_dpgmm.native.threads import Threads, available_threads
from pymc_dpgmm.posterior.arrays.losses import losses_between
from pymc_dpgmm.posterior.arrays.partitions import (
    canonical_draws,
    central,
    entropies,
    largest_shares,
    sizes_of_draws,
)
from pymc_dpgmm.posterior.chains import words_where_apart
from pymc_dpgmm.posterior.draws import DrawnLabels, checked_partition, drawn_labels, with_chains_and_draws

_ENDINGS = {1: "st", 2: "nd", 3: "rd"}
# Chains count as being at different partitions if the R-hat of a distance is larger.
WORST_R_HAT = 1.05


def partition_diagnostics(
    idata: Any, name: str, *, reference: Any = None, n_largest: int = 3, warn: bool = True
) -> xr.Dataset:
    """Return scalars that describe the partition of each draw, for convergence checks and traces.

    Pass them to ``az.summary``, ``az.rhat``, ``az.ess`` and ``az.plot_trace``. Chains can have the same number of
    clusters and yet be stuck at different partitions. The distances reveal this: each chain has a reference
    partition, a central one among its draws. The distance of every draw to it is a scalar, whose R-hat is near 1
    if the chains agree.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        A partition to measure distances to, instead of one from each chain.
    n_largest : int, >= 1
        Number of the largest clusters in ``share``.
    warn : bool
        Whether to warn if the R-hat of a distance is above 1.05.

    Returns
    -------
    Dataset
        (chain, draw) ``n_clusters``; the ``entropy`` of the shares of the clusters, in nats; ``log_joint``, the
        log density of labels and data given everything else, if it is among the sampler statistics; (chain,
        draw, largest) ``share``, by its rank ``"largest"``, ``"2nd"``, ..., zero if there are fewer clusters;
        (chain, draw, reference) ``distance``, the variation of information in bits. With two or more chains,
        the attribute ``distance_r_hat`` is the largest R-hat of a distance; it is infinite if no chain leaves
        its partition and these differ. Where it is above 1.05, ``differ`` names the clusters in which chains
        differ most: see :func:`chain_differences`. Where chains have begun anew at the clusters of another
        chain in tuning, the attribute ``restarted`` lists them, ``alone_lower`` by how many nats what each had
        found alone was less probable, and ``alone_distance`` how far it was from there (variation of
        information, in bits). They no longer come from starts of their own, so that R-hat tells nothing of
        partitions that no chain has found.

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
    result = diagnostics_of(idata, drawn_labels(idata, name), reference, n_largest)
    warn_if_apart(result, warn)
    return result


def diagnostics_of(idata: Any, drawn: DrawnLabels, reference: Any, n_largest: int) -> xr.Dataset:
    """Return the result of :func:`partition_diagnostics` for labels that have been read already."""
    if not isinstance(n_largest, int | np.integer) or isinstance(n_largest, bool) or n_largest < 1:
        raise ValueError(f"n_largest must be an integer of at least 1, got {n_largest!r}")
    canonical = canonical_draws(drawn.rows)
    own = None if reference is None else checked_partition("reference", reference, drawn).labels[None, :]
    of = drawn.labels["chain"].to_numpy() if own is None else np.array([0])
    references, distances = distances_of(drawn, canonical, own)
    sizes = sizes_of_draws(canonical)
    each = ("chain", "draw")
    variables: dict[str, Any] = {
        "n_clusters": (each, drawn.by_chain(np.array([len(sizes_of_draw) for sizes_of_draw in sizes]))),
        "entropy": (each, drawn.by_chain(entropies(sizes, drawn.n))),
        "share": ((*each, "largest"), drawn.by_chain(largest_shares(sizes, drawn.n, int(n_largest)))),
        "distance": ((*each, "reference"), distances),
    }
    statistic, restart = (f"{drawn.labels.name}_{key}" for key in ("log_joint", "restarted"))
    n_chains, n_draws, _ = drawn.shape
    statistics = dataset_of(idata, "sample_stats")
    if statistic in statistics:
        joint = drawn.at_draws(statistics[[statistic]])[statistic]
        variables["log_joint"] = (each, joint.transpose(*each).to_numpy())
    # Names that no cluster has: cluster 1 of a point partition is not the largest one.
    ranks = ["largest", *(f"{k}{_ENDINGS.get(k if k < 20 else k % 10, 'th')}" for k in range(2, n_largest + 1))]
    coords = drawn.per_draw() | {"largest": ranks, "reference": of}
    result = xr.Dataset(variables, coords=coords)
    if restart in statistics:
        of_chains = with_chains_and_draws(statistics[restart]).isel(draw=-1).astype(bool)
        if of_chains.any():
            those = of_chains.to_numpy()
            result.attrs["restarted"] = of_chains["chain"].to_numpy()[those].tolist()
            for key in (
                key for key in ("alone_lower", "alone_distance") if f"{drawn.labels.name}_{key}" in statistics
            ):
                values = with_chains_and_draws(statistics[f"{drawn.labels.name}_{key}"]).isel(draw=-1)
                result.attrs[key] = values.to_numpy()[those].tolist()
    if n_chains > 1 and n_draws >= 4:
        result.attrs["distance_r_hat"] = worst_r_hat(distances)
        is_apart = result.attrs["distance_r_hat"] > WORST_R_HAT
        words = words_where_apart(drawn, canonical, references) if is_apart else None
        if words is not None:
            result.attrs["differ"] = words
    return result


def distances_of(
    drawn: DrawnLabels, canonical: np.ndarray, references: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return partitions, by default a central one of each chain, and the distances of all draws to them.

    The distances are the variation of information in bits: (chain, draw, reference).
    """
    with Threads(available_threads()) as threads:
        if references is None:
            references = np.array([central(threads, chain) for chain in drawn.by_chain(canonical)])
        return references, drawn.by_chain(losses_between(threads, references, canonical, "vi").T)


def warn_if_apart(diagnostics: xr.Dataset, warn: bool = True) -> None:
    """Warn, with the stack level of the caller's caller, if the chains are at different partitions."""
    worst = diagnostics.attrs.get("distance_r_hat", 1.0)
    if warn and worst > WORST_R_HAT:
        warnings.warn(
            f"the chains are at different partitions: R-hat of the distance to a partition of one of them is "
            f"{worst:.2f}. {diagnostics.attrs.get('differ', '')}Run longer, or look at each chain separately.",
            stacklevel=3,
        )


def worst_r_hat(distances: np.ndarray) -> float:
    """Return the largest R-hat of distances (chain, draw, reference), or 1 if no distance varies."""
    array_stats = imported("arviz_stats.base").array_stats
    r_hats = [1.0]
    for distance in np.moveaxis(distances, -1, 0):
        # If chains do not move but differ, the variance within chains is 0 and R-hat is infinite.
        within, all_draws = distance.std(axis=1).max(), distance.std()
        if all_draws > 1e-9:
            r_hats.append(
                np.inf if within < 1e-9 else float(array_stats.rhat(distance, chain_axis=0, draw_axis=1))
            )
    return max(r_hats)
