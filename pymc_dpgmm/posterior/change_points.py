"""Where rows in order change: probabilities at each place, and a segmentation that represents the posterior."""

from typing import Any

import numpy as np
import xarray as xr

from pymc_dpgmm.posterior.arrays.predictions import tails
from pymc_dpgmm.posterior.arrays.segmentation import point_segmentation
from pymc_dpgmm.posterior.draws import checked_level
from pymc_dpgmm.posterior.ordered_rows import DrawnOrder


def change_points(idata: Any, name: str, *, probability: float | None = None) -> xr.Dataset:
    """Return how probable a change is before each row, and one segmentation that represents the posterior.

    The segmentation has the smallest posterior expected variation of information among all segmentations into
    runs of neighbours, by dynamic programming over all draws. (Where more than 1,000 places have a change in some
    draw, it changes at the most probable ones only.)

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the :func:`ChangePoints`, of one of its views, or of its labels.
    probability : float, in (0, 1), optional
        Probability of the interval of the number of changes, which has equal tails; by default that of ArviZ,
        ``arviz.rcParams["stats.ci_prob"]``.

    Returns
    -------
    Dataset
        ``change`` (n,) float64, the probability of a change between the row before and this one, 0 at the first
        row of a sequence; ``segment`` (n,) int64, the number of the row's segment in the point segmentation, in
        the order of the rows; and of the number of changes ``n_changes``, its mean, with ``n_changes_lower`` and
        ``n_changes_upper``. The rows have the order and the names of the data. With ``order=`` in the model, the
        rows have the coordinate ``order``; with several sequences, ``sequence``.

    Raises
    ------
    TypeError, ValueError
        If there is no such model, or an argument is of the wrong kind or outside its range.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.ChangePoints("y", 0.1, dp.GammaPoisson(1.0, 0.2), observed=[9, 12, 8, 10, 1, 0, 2, 1])
    ...     idata = pm.sample(200, tune=10, chains=1, random_seed=1, progressbar=False)
    >>> dp.change_points(idata, "y")["segment"].to_numpy()
    array([0, 0, 0, 0, 1, 1, 1, 1])
    """
    probability = checked_level(probability)
    found = DrawnOrder.of(idata, name)
    sequences, row = found.sequences, found.drawn.row
    begins = sequences.begins(found.drawn.rows)
    changes = begins & sequences.may_change
    n_changes = changes.sum(axis=1)
    lower, upper = np.quantile(n_changes, tails(probability))
    share, n = np.empty(begins.shape[1]), begins.shape[1]
    share[sequences.rows] = changes.mean(axis=0)
    of_point = [
        point_segmentation(begins[:, start:stop], n)
        for start, stop in zip(sequences.starts[:-1], sequences.starts[1:], strict=True)
    ]
    return xr.Dataset(
        {
            "change": (row, share),
            "segment": (row, sequences.labels(np.concatenate(of_point))),
            "n_changes": n_changes.mean(),
            "n_changes_lower": lower,
            "n_changes_upper": upper,
        },
        coords=found.coords(),
        attrs={"probability": probability},
    )
