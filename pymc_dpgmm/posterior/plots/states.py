"""Plots of hidden states: a series coloured by state, and the transitions between states."""

from typing import Any

import numpy as np
import pymc as pm

from pymc_dpgmm.posterior.hidden_states import hidden_states, transitions
from pymc_dpgmm.posterior.ordered_rows import DrawnOrder
from pymc_dpgmm.posterior.plots.changes import plot_in_order
from pymc_dpgmm.posterior.plots.figures import COLORS, GREY, make_axes, pyplot
from pymc_dpgmm.tables.names import as_text

# States whose transitions are written as numbers too, at most.
MOST_WITH_NUMBERS = 12


def plot_states(
    idata: Any,
    name: str,
    column: Any = None,
    *,
    sequence: Any = None,
    reference: Any = None,
    model: pm.Model | None = None,
) -> Any:
    """Plot a column of rows in order, coloured by their hidden states, with the probability of each state below.

    The states are those of :func:`hidden_states`.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the :func:`HDPHMM`, or of one of its views.
    column : str or int, optional
        Name of the column. Needed where there are several.
    sequence : str or int, optional
        Name of the sequence. Needed where there are several.
    reference : (n,) array_like of integers or text, or Dataset, optional
        Another sequence of states than the point partition.
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
    ...     base = dp.GammaPoisson(1.0, 0.1)
    ...     y = dp.HDPHMM("y", 1.0, 1.0, base, kappa=3.0, observed=[19, 22, 18, 1, 0, 2, 1, 21, 20])
    ...     idata = pm.sample(200, tune=100, chains=1, random_seed=1, progressbar=False)
    >>> figure = dp.plot_states(idata, "y")
    """
    plt, ordered = pyplot(), DrawnOrder.of(idata, name, of_states=True)
    found, rows = hidden_states(idata, name, reference), ordered.rows_of(sequence)
    figure, (above, below), x, data, _ = plot_in_order(plt, ordered, rows, idata, name, column, model)
    state, probability = found["labels"].to_numpy()[rows], found["probability"].to_numpy()[rows]
    above.plot(x, data, color=GREY, lw=0.5, zorder=1)
    names = found["probability"]["state"].to_numpy()
    colors = [COLORS[k % len(COLORS)] for k in range(found.sizes["state"])]
    for k, own in enumerate(names.tolist()):
        mine = state == own
        if mine.any():
            above.plot(x[mine], data[mine], ".", color=colors[k], ms=5, label=as_text(own), zorder=2)
    below.stackplot(x, probability.T, colors=colors, step="mid", lw=0)
    below.set_ylim(0.0, 1.0)
    below.set_ylabel("probability")
    above.legend(title="state", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def plot_transitions(
    idata: Any,
    name: str,
    reference: Any = None,
    *,
    random_seed: Any = None,
    model: pm.Model | None = None,
    ax: Any = None,
) -> Any:
    """Plot the posterior means of the probabilities of transitions as a heat map, with their standard deviations.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the :func:`HDPHMM`, of one of its views, or of its labels.
    reference : (n,) array_like of integers or text, or Dataset, optional
        Another sequence of states than the point partition.
    random_seed : int or numpy.random.Generator, optional
    model : pm.Model, optional
        Needed where a concentration is an expression without a name.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    TypeError, ValueError
        If there is no such model, or an argument is of the wrong kind.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     base = dp.GammaPoisson(1.0, 0.1)
    ...     y = dp.HDPHMM("y", 1.0, 1.0, base, kappa=3.0, observed=[19, 22, 18, 1, 0, 2, 1, 21, 20])
    ...     idata = pm.sample(200, tune=100, chains=1, random_seed=1, progressbar=False)
    >>> figure = dp.plot_transitions(idata, "y", random_seed=1)
    """
    plt = pyplot()
    drawn = transitions(idata, name, reference, random_seed=random_seed, model=model)["transition"]
    mean, deviation = drawn.mean(("chain", "draw")).to_numpy(), drawn.std(("chain", "draw")).to_numpy()
    n_states = len(mean)
    size = 2.5 + 0.7 * n_states
    figure, (axes, *_) = make_axes(plt, ax, (size + 1.0, size))
    image = axes.imshow(mean, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
    if n_states <= MOST_WITH_NUMBERS:
        for (j, k), value in np.ndenumerate(mean):
            text = f"{value:.2f}\n± {deviation[j, k]:.2f}"
            axes.text(k, j, text, ha="center", va="center", fontsize=8, color="white" if value > 0.5 else "black")
    names = [as_text(own) for own in drawn["state"].to_numpy().tolist()]
    axes.set_xticks(range(n_states), names)
    axes.set_yticks(range(n_states), names)
    axes.set_xlabel("next state")
    axes.set_ylabel("state")
    figure.colorbar(image, ax=axes, label="probability")
    return figure
