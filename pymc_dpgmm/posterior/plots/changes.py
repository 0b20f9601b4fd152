"""A plot of rows in order, with the places where they change."""

from typing import Any

import numpy as np
import pymc as pm

from pymc_dpgmm.posterior.arrays.predictions import tails
from pymc_dpgmm.posterior.change_points import change_points
from pymc_dpgmm.posterior.component_draws import row_parameters
from pymc_dpgmm.posterior.draws import checked_level
from pymc_dpgmm.posterior.ordered_rows import DrawnOrder
from pymc_dpgmm.posterior.plots.figures import COLORS, GREY, pyplot
from pymc_dpgmm.posterior.reading import read_draws
from pymc_dpgmm.tables.checks import listed
from pymc_dpgmm.tables.names import as_text


def plot_changes(
    idata: Any,
    name: str,
    column: Any = None,
    *,
    sequence: Any = None,
    probability: float | None = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
) -> Any:
    """Plot a column of rows in order, the level of their segments with a band, and where they change.

    Above are the data, and the posterior mean of the level of each row (the mean, rate or probability of its
    segment) with a band for each row alone; lines stand where the segmentation of :func:`change_points` changes.
    Below are the probabilities of a change before each row.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the :func:`ChangePoints`, or of one of its views.
    column : str or int, optional
        Name of the column. Needed where there are several.
    sequence : str or int, optional
        Name of the sequence. Needed where there are several.
    probability : float, in (0, 1), optional
        Probability of the band; by default that of ArviZ, ``arviz.rcParams["stats.ci_prob"]``.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws of levels.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError
        If there is no such model, column or sequence, or none is named where there are several.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.ChangePoints("y", 0.1, dp.GammaPoisson(1.0, 0.2), observed=[9, 12, 8, 10, 1, 0, 2, 1])
    ...     idata = pm.sample(200, tune=10, chains=1, random_seed=1, progressbar=False)
    >>> figure = dp.plot_changes(idata, "y", random_seed=1)
    """
    plt, probability = pyplot(), checked_level(probability)
    segments = DrawnOrder.of(idata, name)
    found = change_points(idata, name, probability=probability)
    rows = segments.rows_of(sequence)
    figure, (above, below), x, data, (view, j) = plot_in_order(plt, segments, rows, idata, name, column, model)
    parameters = row_parameters(idata, view.name, random_seed=random_seed, model=model)
    level = next((parameters[key] for key in ("mean", "rate", "probability") if key in parameters), None)
    above.plot(x, data, ".", color=GREY, ms=4)
    if level is not None:
        values = level.to_numpy()
        of_rows = values.reshape(-1, segments.drawn.n, values[0, 0, 0].size)[:, rows, j]
        low, high = np.quantile(of_rows, tails(probability), axis=0)
        above.fill_between(x, low, high, step="mid", color=COLORS[0], alpha=0.25, lw=0)
        above.step(x, of_rows.mean(axis=0), where="mid", color=COLORS[0], lw=1.5)
    segment, change = found["segment"].to_numpy()[rows], found["change"].to_numpy()[rows]
    for t in np.flatnonzero(segment[1:] != segment[:-1]):
        above.axvline(x[t] + (x[t + 1] - x[t]) / 2, color=COLORS[4], lw=1, ls="--")
    below.vlines(x, 0.0, change, color=COLORS[0], lw=1.5)
    below.set_ylim(0.0, 1.05)
    below.set_ylabel("change")
    return figure


def plot_in_order(
    plt: Any, order: DrawnOrder, rows: np.ndarray, idata: Any, name: str, column: Any, model: pm.Model | None
) -> tuple[Any, Any, np.ndarray, np.ndarray, tuple[Any, int]]:
    """Return a figure of a column of rows in order and of what is told of it below, before anything is drawn.

    Returns the figure, its two axes, places and values (m,) of the rows, and the view and place of the column.

    Raises
    ------
    ValueError
        If there is no such column, or none is named and there are several.
    """
    view, (j, *others) = read_draws(idata, name, model).view_and_columns(None if column is None else [column])
    if others:
        raise ValueError(f"name one of the columns with column=: {listed(view.columns_as_text)}")
    x, along = order.along(rows)
    data = np.asarray(view.stored, dtype=np.float64).reshape(order.drawn.n, -1)[rows, j]
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, height_ratios=(3, 1))
    below.set_xlabel(along)
    above.set_ylabel(as_text(view.column_names[j]))
    return figure, (above, below), x, data, (view, j)
