"""In which clusters the chains of a run differ."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.native.threads import Threads, available_threads
from pymc_dpgmm.posterior.arrays.partitions import (
    canonical_draws,
    central,
    certainty_of_rows,
    shares_of_companions,
)
from pymc_dpgmm.posterior.draws import DrawnLabels, Reference, checked_partition, drawn_labels

# Draws of a chain that are looked at, spread over all.
_MOST_DRAWS = 500
# Clusters that a message names, and the mean difference of their rows from which on it does.
_MOST_NAMED, _WORTH_NAMING = 3, 0.2
# They are named for up to so many numbers of chains, rows and clusters together.
_MOST_NUMBERS = 50_000_000


def chain_differences(idata: Any, name: str, reference: Any = None) -> xr.Dataset:
    """Return in which clusters of a partition the chains differ, and how much each row does.

    Chains that have not met are stuck at different partitions. Where all of them keep the rows of a cluster
    together, and let no others join, they agree on it.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file. At least two chains.
    name : str
        Name of the mixture or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        A partition: labels, or the result of :func:`point_partition`. By default a central one among the draws of
        a chain: of that chain where it has the most clusters.

    Returns
    -------
    Dataset
        ``together`` (chain, cluster): how often two rows of the cluster share a cluster in the draws of a chain.
        ``alone`` (chain, cluster): of the rows that share a cluster with one of its rows, the share that belongs
        to it; 1 where no others join. ``difference`` (n,): for each row, how differently the chains choose its
        companions, from 0 to 1. It is the largest total variation distance between two chains of the distribution
        over clusters of the row's companions. The coordinates ``size`` and ``reference`` are the sizes of the
        clusters and the labels of the rows.

    Raises
    ------
    TypeError, ValueError
        If there are no such labels, or there is only one chain.

    Examples
    --------
    One chain joins two clusters which the other keeps apart:

    >>> import xarray as xr
    >>> import pymc_dpgmm as dp
    >>> draws = [[[0, 0, 1, 1, 2, 2]] * 4, [[0, 0, 1, 1, 1, 1]] * 4]
    >>> draws = xr.Dataset({"y_labels": (("chain", "draw", "row"), draws)})
    >>> found = dp.chain_differences(xr.DataTree.from_dict({"posterior": draws}), "y")
    >>> found["alone"].round(2).to_numpy()
    array([[1.  , 1.  , 1.  ],
           [1.  , 0.33, 0.33]])
    >>> found["difference"].round(2).to_numpy()
    array([0.  , 0.  , 0.67, 0.67, 0.67, 0.67])
    """
    drawn = drawn_labels(idata, name)
    if drawn.shape[0] < 2:
        raise ValueError(f"{drawn.labels.name} has only one chain: sample with chains=2 or more to compare them")
    chains = drawn.by_chain(canonical_draws(drawn.rows))
    if reference is None:
        with Threads(available_threads()) as threads:
            clusters = Reference.numbered(finest(np.array([central(threads, chain) for chain in chains])))
    else:
        clusters = checked_partition("reference", reference, drawn)
    found = differences_of(drawn, chains, clusters.labels)
    return found.assign_coords(cluster=clusters.names, reference=(drawn.row, clusters.named))


def finest(partitions: np.ndarray) -> np.ndarray:
    """Return the partition with the most clusters: what other chains join is seen from it, and not the reverse."""
    found: np.ndarray = partitions[np.argmax(partitions.max(axis=1))]
    return found


def differences_of(drawn: DrawnLabels, chains: np.ndarray, labels: np.ndarray) -> xr.Dataset:
    """Return the result of :func:`chain_differences` from canonical draws (chains, draws, n)."""
    few = chains[:, np.unique(np.linspace(0, chains.shape[1] - 1, _MOST_DRAWS).astype(int))]
    sizes, rows = np.bincount(labels), np.arange(len(labels))
    together, alone, companions = [], [], []
    for own in few:
        shares = shares_of_companions(labels, own)
        met = shares.sum(axis=1)
        together.append(np.bincount(labels, certainty_of_rows(labels, own)) / sizes)
        # Of a row that is alone in all draws, nobody else is a companion.
        of_own = np.where(met > 0.0, shares[rows, labels] / np.maximum(met, 1e-12), 1.0)
        alone.append(
            np.where(sizes > 1, np.bincount(labels, of_own) / sizes, 1.0 - np.bincount(labels, met) / sizes)
        )
        companions.append(np.column_stack([shares, 1.0 - met]))
    n_chains = len(few)
    pairs = [(c, d) for c in range(n_chains) for d in range(c)]
    apart = np.max([0.5 * np.abs(companions[c] - companions[d]).sum(axis=1) for c, d in pairs], axis=0)
    return xr.Dataset(
        {
            "together": (("chain", "cluster"), np.array(together)),
            "alone": (("chain", "cluster"), np.array(alone)),
            "difference": (drawn.row, apart),
        },
        coords=drawn.coords()
        | {
            "chain": drawn.labels["chain"].to_numpy(),
            "cluster": np.arange(len(sizes)),
            "size": ("cluster", sizes),
            "reference": (drawn.row, labels),
        },
    )


def words_where_apart(drawn: DrawnLabels, canonical: np.ndarray, references: np.ndarray) -> str | None:
    """Return a sentence that names the clusters in which chains differ most, "" without such, None if too large.

    Parameters
    ----------
    drawn : DrawnLabels
    canonical : (n_draws, n) array
        Their canonical labels.
    references : (R, n) array
        Partitions, of which the finest has the clusters.
    """
    labels = finest(references)
    if drawn.shape[0] * drawn.n * (int(labels.max()) + 1) > _MOST_NUMBERS:
        return None
    found = differences_of(drawn, drawn.by_chain(canonical), labels)
    difference, sizes = found["difference"].to_numpy(), found["size"].to_numpy()
    of_clusters = np.bincount(labels, difference) / sizes
    order = np.argsort(-of_clusters * sizes, kind="stable")
    worst = [k for k in order if of_clusters[k] > _WORTH_NAMING][:_MOST_NAMED]
    if not worst:
        return ""
    names = found[drawn.row].to_numpy() if drawn.row in found.coords else np.arange(len(labels))
    parts = [
        f"{sizes[k]} rows like {names[np.flatnonzero(labels == k)[np.argmax(difference[labels == k])]]}"
        for k in worst
    ]
    return "They differ most in clusters of " + ", ".join(parts) + " (dp.chain_differences, dp.plot_chains). "
