"""Point estimates of the partition, by a search for the smallest posterior expected loss."""

import warnings
from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.posterior.arrays.losses import check_costs
from pymc_dpgmm.posterior.arrays.partitions import canonical_draws, certainty_of_rows
from pymc_dpgmm.posterior.arrays.point_partition import N_STARTS, point_partition_of
from pymc_dpgmm.posterior.chains import words_where_apart
from pymc_dpgmm.posterior.diagnostics import distances_of, worst_r_hat
from pymc_dpgmm.posterior.draws import DrawnLabels, Reference, checked_partition, drawn_labels
from pymc_dpgmm.tables.checks import check_count

# Chains that have met have an R-hat below it also in short runs.
_WORST_R_HAT = 1.2


def point_partition(
    idata: Any,
    name: str,
    *,
    loss: str | None = None,
    costs: Any = (1.0, 1.0),
    max_clusters: int | None = None,
    n_starts: int = N_STARTS,
    random_seed: Any = 0,
) -> xr.Dataset:
    """Return a single partition that represents the posterior: one with a small posterior expected loss.

    A search looks for the partition with the smallest expected loss. It starts several times, from an empty
    partition and from draws; it allocates one row after the other, and then moves single rows and dissolves
    clusters as long as the expected loss falls (Dahl, Johnson and Mueller 2022). The expectation is over all
    draws, without approximation; with more than four million labels the search sees a sample of the draws, and the
    best of its results is chosen by all.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture or of its labels.
    loss : {"vi", "binder"}, optional
        The variation of information in bits, or Binder's loss, the share of pairs of rows on which two partitions
        disagree. Binder's loss tends to produce many small clusters beside the large ones (Wade and Ghahramani
        2018). The default is "vi", and "binder" for the words of documents: each belongs to its topic with so
        little certainty that a single cluster may have the smallest variation of information.
    costs : two floats, >= 0
        The costs of separating rows that belong together, and of joining rows that do not.
    max_clusters : int, >= 1, optional
        The largest number of clusters that is allowed.
    n_starts : int, >= 1
        Number of searches that start from an empty partition, and number of those that start from a draw.
    random_seed : int or numpy.random.Generator
        Seed of the searches. By default, the same draws always have the same point partition.

    Returns
    -------
    Dataset
        ``labels`` (n,) int64, numbered in order of first appearance, with the coordinates of the rows;
        ``certainty`` (n,), the mean probability that the row shares a cluster with the others of its cluster (see
        :func:`certainty`); the scalars ``expected_loss`` and ``n_clusters``. The attributes state the loss and its
        costs. If clusters overlap much, joining them may cost least, and the partition may have fewer clusters
        than every draw. Then the attribute ``note`` says so, and which arguments give more clusters.

    Raises
    ------
    TypeError, ValueError
        If there are no such labels, or an argument is of the wrong kind or outside its range.

    Examples
    --------
    Three draws of the labels of three rows:

    >>> import xarray as xr
    >>> import pymc_dpgmm as dp
    >>> draws = xr.Dataset({"y_labels": (("chain", "draw", "row"), [[[0, 0, 1], [0, 0, 1], [0, 1, 1]]])})
    >>> dp.point_partition(xr.DataTree.from_dict({"posterior": draws}), "y")["labels"].to_numpy()
    array([0, 0, 1])
    """
    drawn = drawn_labels(idata, name)
    check_count("n_starts", n_starts, 1)
    if max_clusters is not None:
        check_count("max_clusters", max_clusters, 1)
    checked, loss = check_costs(costs), loss or drawn.loss
    labels, expected = point_partition_of(
        drawn.rows,
        loss,
        checked,
        np.inf if max_clusters is None else float(max_clusters),
        int(n_starts),
        random_seed,
    )
    canonical = canonical_draws(drawn.rows)
    warn_if_chains_differ(drawn, canonical)
    note = "" if max_clusters is not None else note_of_overlap(labels, canonical)
    return xr.Dataset(
        {
            "labels": (drawn.row, labels),
            "certainty": (drawn.row, certainty_of_rows(labels, canonical)),
            "expected_loss": expected,
            "n_clusters": int(labels.max()) + 1,
        },
        coords=drawn.coords(),
        attrs={"loss": loss, "costs": list(checked)} | ({"note": note} if note else {}),
    )


def warn_if_chains_differ(drawn: DrawnLabels, draws: np.ndarray) -> None:
    """Warn if the chains have not met, so that a partition of all draws is a compromise between them."""
    n_chains, n_draws, _ = drawn.shape
    if n_chains < 2 or n_draws < 4:
        return
    # Not from the point partition, which may be as far from the one chain as from the other.
    references, distances = distances_of(drawn, draws)
    if worst_r_hat(distances) <= _WORST_R_HAT:
        return
    words = words_where_apart(drawn, draws, references)
    # Without clusters to name, chains are near each other. Whether there are some may not be known.
    if words != "":
        warnings.warn(
            f"the chains are at different partitions, and this one is a compromise between them. {words or ''}Run "
            "longer, or take the point partition of each chain: idata.isel(chain=[0]), and so on",
            stacklevel=3,
        )


def note_of_overlap(labels: np.ndarray, draws: np.ndarray) -> str:
    """Return a note if a partition (n,) has fewer clusters than every canonical draw (n_draws, n), or ""."""
    n_clusters, fewest = int(labels.max()) + 1, int(draws.max(axis=1).min()) + 1
    if n_clusters >= fewest:
        return ""
    return (
        f"The point partition has {_clusters(n_clusters)}, but every draw has {fewest} or more: clusters "
        "overlap so much that joining them costs least. For more clusters, use dp.point_partition with "
        'loss="binder", or with a smaller cost of separating, as in costs=(0.5, 1), and pass its result as '
        "reference="
    )


def _clusters(number: int) -> str:
    return f"{number} cluster{'s' if number > 1 else ''}"


def reference_of(drawn: DrawnLabels, reference: Any, random_seed: Any = 0) -> Reference:
    """Return a partition that a user passes, or a point partition."""
    if reference is not None:
        return checked_partition("reference", reference, drawn)
    labels, _ = point_partition_of(drawn.rows, drawn.loss, seed=random_seed)
    return Reference.numbered(labels)
