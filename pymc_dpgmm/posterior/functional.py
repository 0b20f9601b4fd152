"""Functionals of the random distribution of rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.arrays.predictions import column_quantiles, masses_below
from pymc_dpgmm.posterior.draws import checked_level, with_bands
from pymc_dpgmm.posterior.protocol import Draws
from pymc_dpgmm.posterior.questions import Column, checked_points, read_question
from pymc_dpgmm.posterior.reading import read_draws
from pymc_dpgmm.tables.checks import check_count, listed

# What can be asked for by name, and what ``at`` is then.
KINDS = {"mass": "numbers", "quantiles": "levels in (0, 1)", "new_clusters": "a number of rows"}


def functional(
    idata: Any,
    name: str,
    what: str | Callable[[np.ndarray, dict[str, np.ndarray]], Any],
    at: Any = None,
    *,
    of: Any = None,
    given: Any = None,
    group: Any = None,
    probability: float | None = None,
    n_draws: int = 1_000,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> xr.Dataset:
    """Return a functional of the random distribution of rows, with its band.

    The distribution of rows is itself random a posteriori: a mixture with drawn weights and parameters. A
    functional is a number, or several, that it determines; the band is that of its posterior.

    Parameters
    ----------
    idata, name, given, group, model
        As in :func:`predict`. For ``"new_clusters"`` labels will do, such as observed ones.
    what : str or callable
        ``"mass"``: the probability of less than ``at`` in a column.
        ``"quantiles"``: the quantiles of a column at the levels ``at``.
        ``"new_clusters"``: how many clusters without rows so far, such as species that have not been seen, there
        are among ``at`` further rows.
        A function of the weights (J,) and of the parameters of the clusters, a dict of arrays (J, ...) with the
        names that :func:`component_draws` gives them, which returns a number or an array. The last clusters have
        no rows, and parameters from the base measure.
    at : number or (g,) array_like
        See ``what``. A whole number for ``"new_clusters"``.
    of : str or int, optional
        The column, if there are several.
    probability : float, in (0, 1), optional
        Probability of the bands, which have equal tails; by default that of ArviZ,
        ``arviz.rcParams["stats.ci_prob"]``.
    n_draws : int, >= 1
        Draws of the posterior that are used, spread over all of them.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws of weights and parameters.

    Returns
    -------
    Dataset
        ``mean``, ``lower`` and ``upper``, over ``at`` if it is an array, and ``draws`` (sample, ...).

    Raises
    ------
    TypeError, ValueError
        If there is no such mixture or column, ``at`` is out of range, or the column has no distribution function
        in closed form.

    Notes
    -----
    Further rows are seated one after the other: their number of new clusters has the law of Favaro, Lijoi, Mena
    and Pruenster (2009, "Bayesian non-parametric inference for species variety with a two-parameter
    Poisson-Dirichlet process prior") given the sample. Stick-breaking ends where
    the weight that is left is 1e-10, or 1e-4 of a Pitman-Yor process.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> dp.functional(idata, "y", "mass", 0.0, random_seed=1)["mean"].round(1).item()
    0.5
    >>> largest = dp.functional(idata, "y", lambda weights, parameters: weights.max(), random_seed=1)
    >>> 0.5 < largest["mean"].item() < 0.8
    True
    """
    probability = checked_level(probability)
    check_count("n_draws", n_draws, 1)
    if not callable(what) and what not in KINDS:
        raise ValueError(f"what must be one of {list(KINDS)}, or a function, got {what!r}")
    if not callable(what) and at is None:
        raise ValueError(f"{what!r} needs at=, {KINDS[what]}")
    rng = np.random.default_rng(random_seed)
    if what == "new_clusters":
        check_count("at", at, 1)
        return _result(_new_clusters(idata, name, int(at), model, group, n_draws, rng), (), {}, probability)
    draws = read_draws(idata, name, model, group)
    draws.refuse_atoms("dp.functional")
    if callable(what):
        found = _of_measures(draws, what, n_draws, rng)
        return _result(found, tuple(f"dim_{k}" for k in range(found.ndim - 1)), {}, probability)
    points = checked_points("at", at, KINDS[what])
    if what == "quantiles" and not np.all((points > 0.0) & (points < 1.0)):
        raise ValueError(f"at must be {KINDS[what]}, got {at!r}")
    found = _of_column(draws, what, np.atleast_1d(points), of, given, n_draws, rng)
    dims, coords = (("at",), {"at": points}) if points.ndim else ((), {})
    return _result(found if points.ndim else found[:, 0], dims, coords, probability)


def _result(found: np.ndarray, dims: tuple[str, ...], coords: dict[str, Any], probability: float) -> xr.Dataset:
    """Return draws (S, ...) of a functional, their mean and the limits of its band."""
    result = with_bands(found, dims, probability, coords)
    return result.assign(draws=(("sample", *dims), found))


def _new_clusters(
    idata: Any, name: str, m: int, model: pm.Model | None, group: Any, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Return how many clusters without rows there are among further rows: (S,)."""
    draws = read_draws(idata, name, model, group, labels_alone=True)
    partitions = draws.numbers.at_most(n_draws).partitions()
    return np.array([partition.seats.count_new(rng, m) for partition in partitions])


def _of_measures(
    draws: Draws,
    function: Callable[[np.ndarray, dict[str, np.ndarray]], Any],
    n_draws: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return what a user's function makes of draws of weights and parameters: (S, ...)."""
    found = []
    for partition in draws.numbers.at_most(n_draws).partitions():
        measure = partition.draw_measure(rng)
        parameters = {
            draws.name_of(view, key): values
            for view, own in zip(draws.views, measure.drawn, strict=True)
            for key, values in own.items()
            if key in view.family.component.axes
        }
        found.append(np.asarray(function(measure.weights[0], parameters), dtype=np.float64))
    return np.stack(found)


def _of_column(
    draws: Draws, what: str, points: np.ndarray, of: Any, given: Any, n_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Return masses below points (g,), or quantiles at levels, of one column: (S, g)."""
    of = draws.all_columns() if of is None else of
    question = read_question(draws, None, of if len(of) else None, given).at_most(n_draws)
    if len(question.columns) != 1:
        raise ValueError(f"say which column with of=, one of {listed([own.name for own in question.columns])}")
    column: Column = question.columns[0]
    if not column.has_cdf:
        raise ValueError(f"{column.name} has no distribution function in closed form")
    numbers, new = question.draws.numbers, question.new
    if what == "mass":
        return masses_below(numbers, new, None, points, rng)[1][:, 0]
    return column_quantiles(numbers, new, None, points, rng)[:, 0, :, 0]
