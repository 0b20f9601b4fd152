"""A picture of one column given another."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm

from pymc_dpgmm.posterior.arrays.predictions import tails
from pymc_dpgmm.posterior.draws import checked_level
from pymc_dpgmm.posterior.named_views import NamedView
from pymc_dpgmm.posterior.plots.figures import COLORS, GREY, make_axes, pyplot
from pymc_dpgmm.posterior.plots.panels import name_ticks
from pymc_dpgmm.posterior.plots.shared import text_of_legend
from pymc_dpgmm.posterior.points import grid
from pymc_dpgmm.posterior.predict import check_kind, densities_of, means_of, quantiles_of
from pymc_dpgmm.posterior.protocol import Draws
from pymc_dpgmm.posterior.questions import Column, Question, read_question
from pymc_dpgmm.posterior.reading import read_draws
from pymc_dpgmm.tables.names import as_text, coordinates

# Points of the curve, and the largest numbers of rows that are shown and of draws that are used.
_POINTS, _MOST_ROWS, _MOST_DRAWS = 100, 5_000, 1_000
_DASHES = ("-", "--", ":", "-.")


def plot_predict(
    idata: Any,
    name: str,
    along: Any,
    *,
    of: Any,
    new: Any = None,
    given: Mapping[str, Any] | None = None,
    group: Any = None,
    probability: float | None = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
    ax: Any = None,
) -> Any:
    """Plot one column given another, as :func:`predict` predicts it.

    The line is the expected entry. The dark band is that of the conditional mean, and the light one has the
    entries of new rows; both have equal tails. The data are points; with ``group``, those of the group. For a
    column of categories, lines and bands are the probabilities of its levels.

    Parameters
    ----------
    idata, name, given, group, random_seed, model
        As in :func:`predict`. What is given must have one entry for each row of ``new``.
    along : str or int
        The known column, on the horizontal axis.
    of : str or int
        The column that is predicted.
    new : table or dict of tables, optional
        Rows with entries of the column ``along``, in increasing order. By default a grid over the range of the
        data, with nothing else known.
    probability : float, in (0, 1), optional
        Probability of both bands; by default that of ArviZ, ``arviz.rcParams["stats.ci_prob"]``.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default a new figure is made.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError
        As :func:`predict`.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> data = dp.datasets.load_old_faithful()
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, dp.NormalInverseWishart.from_data(data), observed=data)
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> figure = dp.plot_predict(idata, "y", "duration", of="waiting", random_seed=1)
    """
    plt = pyplot()
    probability = checked_level(probability)
    draws = read_draws(idata, name, model, group)
    draws.refuse_atoms("dp.plot_predict")
    known, position = _one(draws, along)
    if new is None:
        new = _along(draws, known, position)
    question = read_question(draws, new, of, given, fills_gaps=False).at_most(_MOST_DRAWS)
    (column,) = question.columns if len(question.columns) == 1 else (None,)
    if column is None:
        raise ValueError(f"plot_predict draws one column, got {len(question.columns)}: name one with of=")
    if (column.view.name, column.position) == (known.name, position):
        raise ValueError(f"along and of must be different columns, got {along!r} for both")
    figure, (axes,) = make_axes(plt, ax, (7, 4))
    across = _values(question, known, position)
    rng = np.random.default_rng(random_seed)
    axes.set_xlabel(as_text(known.column_names[position]))
    # A line through the levels of a category would say what is between them.
    are_apart = Column(known, position, "").levels is not None
    if are_apart:
        axes.set_xlim(across.min() - 0.5, across.max() + 0.5)
    if column.levels is not None or column.is_binary:
        _draw_probabilities(axes, question, across, probability, rng, are_apart)
        name_ticks(axes.xaxis, known, position)
        return figure
    check_kind(question, "mean")
    low, high = quantiles_of(question, tails(probability), rng, False)["quantiles"].to_numpy().reshape(2, -1)
    curve = means_of(question, probability, rng, False)
    mean, lower, upper = (curve[key].to_numpy().ravel() for key in ("mean", "lower", "upper"))
    data = _data(draws, (known, position), (column.view, column.position), draws.rows_of_group(group))
    if data is not None:
        axes.scatter(*data, s=10, color=GREY, alpha=0.6, linewidths=0, label="data")
    share = f"{probability:.0%}"
    if are_apart:
        axes.vlines(across, low, high, color=COLORS[0], alpha=0.25, lw=8, label=f"{share} of new rows")
        axes.vlines(across, lower, upper, color=COLORS[0], alpha=0.6, lw=3, label=f"{share} band of the mean")
        axes.plot(across, mean, "o", color=COLORS[0], label="mean")
    else:
        axes.fill_between(across, low, high, color=COLORS[0], alpha=0.15, lw=0, label=f"{share} of new rows")
        axes.fill_between(
            across, lower, upper, color=COLORS[0], alpha=0.4, lw=0, label=f"{share} band of the mean"
        )
        axes.plot(across, mean, color=COLORS[0], lw=2, label="mean")
    name_ticks(axes.xaxis, known, position)
    axes.set_ylabel(column.name)
    axes.legend(frameon=False)
    return figure


def _draw_probabilities(
    axes: Any,
    question: Question,
    across: np.ndarray,
    probability: float,
    rng: np.random.Generator,
    are_apart: bool,
) -> None:
    found = densities_of(question, "probability", None, probability, rng, False)
    levels = found["category"].to_numpy().tolist()
    for number, level in enumerate(levels):
        of_level, color = found.isel(category=number), COLORS[number % len(COLORS)]
        # Levels of one color differ by the kind of line.
        dashes = _DASHES[number // len(COLORS) % len(_DASHES)]
        text = text_of_legend(level)
        if are_apart:
            beside = across + 0.3 * ((number + 0.5) / len(levels) - 0.5)
            axes.vlines(beside, of_level["lower"], of_level["upper"], color=color, alpha=0.5, lw=3)
            axes.plot(beside, of_level["mean"], "o" if dashes == "-" else "D", color=color, label=text)
        else:
            axes.fill_between(across, of_level["lower"], of_level["upper"], color=color, alpha=0.2, lw=0)
            axes.plot(across, of_level["mean"], dashes, color=color, lw=2, label=text)
    axes.set_ylim(0.0, 1.0)
    axes.set_ylabel(f"probability of {question.columns[0].name}")
    axes.legend(frameon=False)


def _one(draws: Draws, along: Any) -> tuple[NamedView, int]:
    """Return the view and the position of the column on the horizontal axis."""
    chosen = [(name, j) for name, own in draws.chosen_columns(along).items() for j in own]
    if len(chosen) != 1:
        raise ValueError(f"along must be one column, got {along!r}, which is {len(chosen)}")
    ((name, position),) = chosen
    return next(view for view in draws.views if view.name == name), position


def _along(draws: Draws, view: NamedView, position: int) -> Any:
    """Return rows over the range of one column, of which nothing else is known."""
    levels = Column(view, position, "").levels
    # Codes would be taken for levels.
    points = grid(view, position, _POINTS, draws.numbers.n_draws) if levels is None else coordinates(levels)
    if levels is not None and view.has_column_names and not view.is_vector:
        values: Any = pd.DataFrame({view.column_names[position]: points})
    else:
        rows = np.full((len(points), view.d), np.nan, dtype=np.float64 if levels is None else object)
        rows[:, position] = points
        values = rows[:, 0] if view.is_vector else rows
    return values if len(draws.views) == 1 else {view.name: values}


def _values(question: Question, view: NamedView, position: int) -> np.ndarray:
    """Return the entries of the column on the horizontal axis."""
    for each, own in zip(question.new, question.draws.views, strict=True):
        if own.name == view.name:
            return np.asarray(each.values)[:, position]
    raise ValueError(f"the new rows have no entries of {view.name}, to be put on the horizontal axis")


def _data(
    draws: Draws, first: tuple[NamedView, int], second: tuple[NamedView, int], of_rows: Any
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the data of two columns in some rows, if both are observed row by row."""
    views = [view for view, _ in (first, second)]
    if any(view.stored is None or view.is_drawn or view.has_triplets for view in views):
        return None
    across, up = (view.column_values([j], draws.numbers.n_draws, of_rows)[:, 0] for view, j in (first, second))
    if len(across) != len(up):
        return None
    every = 1 + len(across) // _MOST_ROWS
    return across[::every], up[::every]
