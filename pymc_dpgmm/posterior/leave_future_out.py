"""How well a model predicts the next row from the rows before it, by refitting the model."""

from collections.abc import Callable
from functools import partial
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.dependence import log_density
from pymc_dpgmm.posterior.refits import refits


def leave_future_out(
    make_model: Callable[[Any], pm.Model],
    name: str,
    rows: Any,
    first: int,
    *,
    every: int = 1,
    group: Any = None,
    random_seed: Any = None,
    progressbar: bool = True,
    **sample: Any,
) -> Any:
    r"""Fit a model to the rows up to a time, score the next row, and do so for one time after the other.

    Rows in order cannot be left out one by one: those after a row know of it. Leave-future-out cross-validation
    scores each row by the rows before it alone,

    .. math:: \text{elpd}_\text{LFO} = \sum_t \log p(y_t \mid y_1, \dots, y_{t - 1})

    (Bürkner et al. 2020, *Journal of Statistical Computation and Simulation* 90, with one step ahead). There is a
    fit for every row that is scored; nothing is approximated but by the number of draws. The results of several
    models of the same rows are compared by ``az.compare({"states": ..., "segments": ...})``.

    Parameters
    ----------
    make_model : callable
        A function that takes the first rows of ``rows`` and returns a model of these.
    name : str
        Name of the mixture in that model.
    rows : table or (n,) or (n, d) array_like
        All rows, in their order, with the columns of the mixture.
    first : int
        The row that is scored first, counted from 0: the first fit has so many rows.
    every : int
        Distance of the rows that are scored.
    group : str or int, optional
        The sequence that the rows go on, where a model has several; see :func:`log_density`.
    random_seed : int or numpy.random.Generator, optional
        Seed of all fits.
    progressbar : bool
        Whether to show the number of finished fits.
    **sample
        Further arguments of ``pm.sample``.

    Returns
    -------
    arviz.ELPDDataLFO
        ``elpd``, its standard error ``se``, and ``elpd_i`` (row,), the log density of each row that is scored.
        The effective number of parameters ``p`` is NaN, as it has no meaning here.

    Raises
    ------
    ValueError
        If no row is left to be scored, or there are none to be fitted.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> def make_model(rows):
    ...     with pm.Model() as model:
    ...         dp.HDPHMM("y", 1.0, 1.0, dp.GammaPoisson(1.0, 0.1), kappa=3.0, observed=rows)
    ...     return model
    >>> rows = [19, 22, 18, 1, 0, 2, 1, 21, 20]
    >>> run = {"draws": 200, "tune": 100, "chains": 1, "random_seed": 1, "progressbar": False}
    >>> found = dp.leave_future_out(make_model, "y", rows, 6, **run)
    >>> found["elpd_i"].sizes["row"]
    3
    """
    n = len(next(iter(rows.values()))) if isinstance(rows, dict) else len(rows)
    if not 0 < first < n or every < 1:
        raise ValueError(f"first must lie in 1..n-1 = 1..{n - 1} and every be at least 1, got {first} and {every}")
    scored = np.arange(first, n, every)
    makers = [partial(make_model, _part(rows, 0, row)) for row in scored.tolist()]
    log_p, n_samples = np.empty(len(scored)), 0
    for place, (model, idata, _) in enumerate(refits(makers, random_seed, progressbar, sample)):
        new = _part(rows, scored[place], scored[place] + 1)
        log_p[place] = float(log_density(idata, name, new, group=group, model=model)["row"].to_numpy()[0])
        n_samples = idata.posterior.sizes["chain"] * idata.posterior.sizes["draw"]
    return az.ELPDDataLFO(
        elpd=float(log_p.sum()),
        se=float(np.sqrt(len(log_p)) * log_p.std()),
        p=np.nan,
        n_samples=n_samples,
        n_data_points=len(log_p),
        scale="log",
        warning=False,
        good_k=None,
        elpd_i=xr.DataArray(log_p, dims=["row"], coords={"row": scored}, name="elpd_i"),
        forecast_horizon=1,
        min_observations=first,
        refits=scored,
        n_refits=len(scored),
    )


def _part(rows: Any, start: int, stop: int) -> Any:
    """Return rows ``start`` to ``stop - 1`` of a table."""
    if isinstance(rows, dict):
        return {key: _part(value, start, stop) for key, value in rows.items()}
    return rows.iloc[start:stop] if hasattr(rows, "iloc") else rows[start:stop]
