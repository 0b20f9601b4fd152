"""Plots of predictive densities of one or two columns."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.draws import checked_level
from pymc_dpgmm.posterior.plots.figures import COLORS, GREY, make_axes, pyplot
from pymc_dpgmm.posterior.plots.panels import column_labels, name_ticks, places
from pymc_dpgmm.posterior.plots.shared import MOST_BARS, OF_BAR, count_ticks
from pymc_dpgmm.posterior.points import coordinate_of
from pymc_dpgmm.posterior.reading import read_labelled
from pymc_dpgmm.tables.checks import listed

_BINS, _MOST_BINS = 30, 150
# Largest number of points in a plot of two columns; of more, every second or third, say, is shown.
_MOST_POINTS = 5_000


def plot_density(
    idata: Any,
    name: str,
    x: Any = None,
    *,
    columns: Any = None,
    given: Any = None,
    group: Any = None,
    probability: float | None = None,
    bins: int | None = None,
    random_seed: Any = None,
    model: pm.Model | None = None,
    ax: Any = None,
) -> Any:
    """Plot the posterior density of one or two columns together with the data.

    For one column, the posterior mean and a credible band are drawn over a histogram of the data. For two columns,
    contours of the posterior mean density are drawn over the points. For latent rows, and for residuals from a
    random offset, the rows of all draws are shown in place of data, or those of 500 of the draws.

    Parameters
    ----------
    idata, name, x, columns, given, group, probability, random_seed, model
        As in :func:`density`. ``x`` is allowed for one column only. If a group is named, only its rows are shown.
    bins : int, optional
        Number of bins of the histogram. By default 30, or more by the rule of Freedman and Diaconis.
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
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> figure = dp.plot_density(idata, "y", random_seed=1)
    """
    plt = pyplot()
    probability = checked_level(probability)
    draws = read_labelled(idata, name, model, group)
    if draws.has_atoms:
        result = draws.density(x, None, None, probability, random_seed)
        figure, (axes,) = make_axes(plt, ax, (7, 4))
        (observed,) = result.attrs["columns"]
        data = idata["observed_data"].dataset[observed].to_numpy()
        axes.set_xlabel(observed)
        (_draw_line if data.dtype.kind == "f" else _draw_bars)(axes, result, data, "data", bins)
        return figure
    view = draws.sole()
    names = view.column_names
    chosen = list(range(view.d)) if columns is None else view.positions(columns)
    if len(chosen) > 2 or (len(chosen) > 1 and x is not None):
        raise ValueError(
            f"plot_density takes one column, or two without x, got {len(chosen)}: choose some of {listed(names)} "
            "with columns="
        )
    # By their names: where these are numbers, a position would be the name of another column.
    columns_or_all = None if len(chosen) == view.d else [names[j] for j in chosen]
    result = draws.density(x, columns_or_all, given, probability, random_seed)
    data = view.column_values(chosen, draws.numbers.n_draws, draws.rows_of_group(group))
    label = "draws of the rows" if view.is_drawn else "data" if given is None else "all data, whatever is given"
    figure, (axes,) = make_axes(plt, ax, (7, 4))
    labels = column_labels(view, names, "")
    axes.set_xlabel(labels[chosen[0]])
    is_discrete = view.family.component.is_discrete
    if len(chosen) == 2:
        axes.set_ylabel(labels[chosen[1]])
        across, up = (places(view, j, result[coordinate_of(view, names[j])]) for j in chosen)
        # The user may choose columns in another order than the data has.
        height = result["mean"].transpose(*(coordinate_of(view, names[j]) for j in chosen[::-1])).to_numpy()
        if is_discrete:
            _draw_tiles(figure, axes, across, up, height)
            name_ticks(axes.yaxis, view, chosen[1])
            name_ticks(axes.xaxis, view, chosen[0], OF_BAR)
        else:
            _draw_lines_of_height(axes, across, up, height, data, label)
        return figure
    data = data[:, 0][~np.isnan(data[:, 0])]
    at = places(view, chosen[0], result["x"])
    (_draw_bars if is_discrete else _draw_line)(axes, result.assign_coords(x=at), data, label, bins)
    name_ticks(axes.xaxis, view, chosen[0])
    return figure


def _draw_tiles(figure: Any, axes: Any, across: np.ndarray, up: np.ndarray, values: np.ndarray) -> None:
    """Draw probabilities of two discrete columns as a heat map."""
    image = axes.pcolormesh(across, up, values, cmap="cividis", vmin=0)
    figure.colorbar(image, ax=axes, label="posterior mean probability")


def _draw_lines_of_height(
    axes: Any, across: np.ndarray, up: np.ndarray, values: np.ndarray, data: np.ndarray, label: str
) -> None:
    """Draw contours of highest-density regions of two columns over the rows."""
    shown = data[:: 1 + len(data) // _MOST_POINTS]
    axes.scatter(*shown.T, s=10, color=GREY, alpha=0.6, linewidths=0, label=label)
    ranked = np.sort(values.ravel())[::-1]
    mass = np.cumsum(ranked) / ranked.sum()
    inside = (0.95, 0.8, 0.5, 0.2)
    # A grid that is coarse beside the clusters has several regions in one point: the largest of them is drawn.
    regions = {float(ranked[np.searchsorted(mass, p)]): p for p in inside[::-1]}
    levels = sorted(regions)
    widths = np.linspace(0.8, 2.0, len(inside))[: len(levels)]
    lines = axes.contour(across, up, values, levels=levels, colors=COLORS[0], linewidths=widths)
    axes.clabel(lines, levels[:2], fmt={level: f"{regions[level]:.0%}" for level in levels}, fontsize=8)
    # Limit the axes to the grid: outliers would shrink the contours.
    axes.set_xlim(across.min(), across.max())
    axes.set_ylim(up.min(), up.max())
    if label != "data":
        axes.legend(frameon=False)


def _draw_line(axes: Any, bands: xr.Dataset, data: np.ndarray, label: str, bins: int | None) -> None:
    """Draw a density of one continuous column, and a histogram of the data."""
    # The rule of Freedman and Diaconis gives too few bins for several modes, so there are at least _BINS.
    low, high = float(bands["x"].min()), float(bands["x"].max())
    edges = np.histogram_bin_edges(data, "fd")
    bins = bins or int(np.clip(len(edges) - 1, _BINS, _MOST_BINS))
    inside = data[(data >= low) & (data <= high)] if label.startswith("draws") else data
    axes.hist(inside, bins=bins, density=True, color="0.85", label=label)
    band = f"{bands.attrs['probability']:.0%} band"
    axes.fill_between(bands["x"], bands["lower"], bands["upper"], color=COLORS[0], alpha=0.3, lw=0, label=band)
    axes.plot(bands["x"], bands["mean"], color=COLORS[0], lw=2, label="posterior mean")
    axes.set_ylabel("density")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def _draw_bars(axes: Any, bands: xr.Dataset, data: np.ndarray, label: str, bins: int | None) -> None:
    """Draw the probabilities of one column of counts or codes, and the shares of the data."""
    values, counts = np.unique(data, return_counts=True)
    axes.bar(values, counts / counts.sum(), color="0.85", label=label)
    middle, band = bands["mean"].to_numpy(), f"{bands.attrs['probability']:.0%} band"
    reach = [middle - bands["lower"].to_numpy(), bands["upper"].to_numpy() - middle]
    errors = np.maximum(reach, 0.0)
    if len(middle) > MOST_BARS:
        low, high = bands["lower"], bands["upper"]
        axes.fill_between(bands["x"], low, high, color=COLORS[0], alpha=0.3, lw=0, label=band)
        axes.plot(bands["x"], middle, color=COLORS[0], lw=1, label="posterior mean")
    else:
        label = f"posterior mean, {band}"
        axes.errorbar(bands["x"], middle, errors, fmt="o", color=COLORS[0], label=label, clip_on=False)
    axes.set_ylabel("probability")
    count_ticks(axes.xaxis)
    # Space for the legend.
    axes.set_ylim(0.0, 1.3 * axes.get_ylim()[1])
    axes.legend(frameon=False)
