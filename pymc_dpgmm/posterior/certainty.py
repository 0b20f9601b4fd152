"""How certain each row is of its cluster."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.posterior.arrays.partitions import canonical_draws, certainty_of_rows, shares_of_companions
from pymc_dpgmm.posterior.draws import drawn_labels
from pymc_dpgmm.posterior.point_partition import reference_of


def certainty(idata: Any, name: str, reference: Any = None) -> xr.Dataset:
    """Return how certain the cluster of each row is in a partition, and which other cluster is likely.

    The certainty of a row is the posterior probability that it shares a cluster with another row of its cluster,
    averaged over these rows. This is the mean of :func:`co_clustering` within the cluster. For a row that forms a
    cluster alone, it is the probability that the row is alone.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        A partition: labels, or the result of :func:`point_partition`, which is called by default.

    Returns
    -------
    Dataset
        Four variables of shape (n,): ``labels``, those of the reference; ``certainty`` float64, from 0 to 1;
        ``second``, the label of the likeliest other cluster; and ``second_certainty`` float64, the share of that
        cluster among the rows that share a cluster with the row in a draw, averaged over the draws. The second
        cluster is the one with the largest such share. If there is only one cluster, ``second`` is -1, or "" for
        labels that are text, and its certainty is 0.
        ``to_dataframe()`` makes a table of the four.

    Raises
    ------
    TypeError, ValueError
        If there are no such labels, or the reference has another number of rows.

    Examples
    --------
    In one of two draws, the last of four rows is in the cluster of the first two:

    >>> import xarray as xr
    >>> import pymc_dpgmm as dp
    >>> draws = [[[0, 0, 1, 1], [0, 0, 1, 0]]]
    >>> draws = xr.Dataset({"y_labels": (("chain", "draw", "row"), draws)})
    >>> found = dp.certainty(xr.DataTree.from_dict({"posterior": draws}), "y", [0, 0, 1, 1])
    >>> found["certainty"].to_numpy()
    array([1. , 1. , 0.5, 0.5])
    >>> found["second_certainty"].to_numpy()
    array([0.25, 0.25, 0.  , 0.5 ])
    """
    drawn = drawn_labels(idata, name)
    clusters = reference_of(drawn, reference)
    labels, names = clusters.labels, clusters.names
    # No other cluster is -1, or no text.
    names = np.append(names, -1 if names.dtype.kind in "iu" else "")
    draws, rows = canonical_draws(drawn.rows), np.arange(len(labels))
    of_rows, shares = certainty_of_rows(labels, draws), shares_of_companions(labels, draws)
    shares[rows, labels] = -1.0
    second = np.argmax(shares, axis=1) if shares.shape[1] > 1 else np.full(len(labels), -1)
    return xr.Dataset(
        {
            "labels": (drawn.row, clusters.named),
            "certainty": (drawn.row, of_rows),
            "second": (drawn.row, names[second.astype(np.int64)]),
            "second_certainty": (drawn.row, np.maximum(shares[rows, second], 0.0)),
        },
        coords=drawn.coords(),
    )
