"""A plot of what each column tells of the clusters."""

from typing import Any

import numpy as np
import pymc as pm

from pymc_dpgmm.posterior.dependence import relevance
from pymc_dpgmm.posterior.plots.figures import COLORS, GREY, make_axes, pyplot
from pymc_dpgmm.tables.checks import check_count


def plot_relevance(
    idata: Any,
    name: str,
    columns: Any = None,
    *,
    group: Any = None,
    n_largest: int = 20,
    probability: float | None = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
    ax: Any = None,
) -> Any:
    """Plot how many bits each column tells of the cluster that a row belongs to.

    The columns that tell most come first, with the intervals of :func:`relevance`. A line marks what all columns
    tell together, and another one the entropy of the clusters, which is the most that can be told.

    Parameters
    ----------
    idata, name, columns, group, probability, random_seed, model
        As in :func:`relevance`.
    n_largest : int, >= 1
        Columns that are shown, at most.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into. By default a new figure is made.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=dp.datasets.load_old_faithful())
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> figure = dp.plot_relevance(idata, "y", random_seed=1)
    """
    check_count("n_largest", n_largest, 1)
    plt = pyplot()
    found = relevance(
        idata, name, columns, group=group, probability=probability, random_seed=random_seed, model=model
    )
    order = np.argsort(-found["mean"].to_numpy(), kind="stable")[:n_largest]
    shown = found.isel(column=order)
    mean, low, high = (shown[key].to_numpy() for key in ("mean", "lower", "upper"))
    places = np.arange(len(order))
    figure, (axes,) = make_axes(plt, ax, (7, 0.8 + 0.35 * len(order)))
    axes.barh(places, mean, height=0.6, color=COLORS[0], alpha=0.6)
    axes.hlines(places, low, high, color=COLORS[0], lw=2)
    for key, style, label in (
        ("all_columns", "-", "all columns together"),
        ("entropy", ":", "entropy of the clusters"),
    ):
        axes.axvline(found[key].item(), color=GREY, ls=style, lw=1.5, label=label)
    axes.set_yticks(places, [str(column) for column in shown["column"].to_numpy()])
    axes.invert_yaxis()
    axes.set_xlim(left=0.0)
    axes.set_xlabel("bits about the cluster of a row")
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2)
    return figure
