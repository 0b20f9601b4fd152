"""Plots of the results of :mod:`pymc_dpgmm.posterior`. They need matplotlib."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior import partition_diagnostics
from pymc_dpgmm.posterior.arrays.partitions import posterior_pmf
from pymc_dpgmm.posterior.chains import chain_differences
from pymc_dpgmm.posterior.co_clustering import MOST_BYTES, co_clustering_of
from pymc_dpgmm.posterior.component_draws import aligned_components
from pymc_dpgmm.posterior.density import coordinate_of, density_of
from pymc_dpgmm.posterior.draws import check_probability, drawn_labels
from pymc_dpgmm.posterior.figures import COLORS, GREY, MARKERS, make_axes, pyplot
from pymc_dpgmm.posterior.mixtures import MixtureDraws, NamedView
from pymc_dpgmm.posterior.n_clusters import n_clusters_of
from pymc_dpgmm.posterior.panels import (
    chosen_covariates,
    chosen_pairs,
    column_labels,
    grid_size,
    name_ticks,
    places,
    regression_of,
    rows_shown,
)
from pymc_dpgmm.posterior.point_partition import reference_labels
from pymc_dpgmm.posterior.processes import density_of_process
from pymc_dpgmm.posterior.stored import UnknownPriorError
from pymc_dpgmm.posterior.topics import group_weights, topics
from pymc_dpgmm.tables.checks import check_count, listed

_BINS, _MOST_BINS = 30, 150
# Largest number of points in a plot of two columns; of more, every second or third, say, is shown.
_MOST_POINTS = 5_000
# Width of a colour bar or a legend, in inches.
_OF_BAR = 1.2
# Largest number of clusters in a legend.
_MOST_NAMED = 12
# With more values than this, a band replaces error bars, and groups have no names.
_MOST_BARS = 40
# Points of the unit circle, to be mapped to an ellipse.
_CIRCLE = np.stack([np.cos(np.linspace(0, 2 * np.pi, 100)), np.sin(np.linspace(0, 2 * np.pi, 100))])


def plot_clusters(
    idata: Any,
    name: str,
    partition: Any = None,
    *,
    columns: Sequence[Any] | None = None,
    probability: float = 0.9,
    random_seed: Any = None,
    model: pm.Model | None = None,
    ax: Any = None,
) -> Any:
    """Plot the data, coloured by the clusters of a partition, with an ellipse around each Gaussian cluster.

    For a regression in each cluster, the data is plotted against covariates, with a line for each cluster: at the
    posterior means of its coefficients, with the other covariates at their means in the cluster. Latent rows, and
    residuals from a random offset, are shown at their posterior means.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of a mixture or of one of its views.
    partition : (n,) array_like of integers or text, or Dataset, optional
        Labels, or the result of :func:`point_partition`, which is called by default.
    columns : sequence of str or int, optional
        At most six columns to show. More than two give a panel for each pair, one gives a strip. By default up to
        four columns are shown: those in which the clusters differ most, if there are more. For a regression,
        names or positions of covariates; by default the first three that vary.
    probability : float, in (0, 1)
        Probability inside an ellipse, that of a normal distribution with the posterior mean of the cluster's mean
        and covariance.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws of means and covariances.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.
    ax : matplotlib.axes.Axes, optional
        Axes to draw one or two columns into. By default a new figure is made.

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
    >>> figure = dp.plot_clusters(idata, "y", [0, 0, 0, 1, 1, 1])
    """
    plt = pyplot()
    check_probability(probability)
    draws = MixtureDraws(idata, name, model)
    rows = _Rows(draws, draws.sole(), draws.reference(partition), np.random.default_rng(random_seed))
    if rows.regression is not None:
        figure = _draw_regressions(plt, ax, rows, columns)
    else:
        figure = _draw_pairs(plt, ax, rows, columns, probability)
    handles = _names_of_clusters(plt, rows.sizes, "row" if rows.view.unit is None else "unit")
    if ax is None:
        figure.legend(handles=handles, loc="outside right upper", title="cluster", frameon=False)
    else:
        ax.legend(handles=handles, title="cluster")
    return figure


class _Rows:
    """The rows that a plot of clusters shows, and their clusters."""

    def __init__(self, draws: MixtureDraws, view: NamedView, labels: np.ndarray, rng: np.random.Generator) -> None:
        self.draws, self.view, self.labels, self._rng = draws, view, labels, rng
        self.regression = regression_of(view)
        self.data, self.what = rows_shown(draws, view)
        self.of_row = labels if view.unit is None else labels[view.unit]
        self.sizes = np.bincount(labels)
        self.largest_first = np.argsort(-self.sizes, kind="stable")
        names = column_labels(view, draws.column_names(view), self.what)
        self.names: list[str] = names

    def components(self) -> xr.Dataset:
        """Return draws of the parameters of the clusters."""
        return aligned_components(self.draws, self.labels, self._rng)

    def scatter(self, axes: Any, x: np.ndarray, y: np.ndarray) -> None:
        """Draw the rows of all clusters, largest cluster first."""
        for rank, k in enumerate(self.largest_first):
            members = self.of_row == k
            axes.scatter(x[members], y[members], **_points(rank, self.sizes[k] == 1))


def _draw_pairs(plt: Any, ax: Any, rows: _Rows, columns: Any, probability: float) -> Any:
    """Draw a panel for each pair of columns, or a strip for a single column."""
    view = rows.view
    pairs, title = chosen_pairs(rows.draws, view, columns, rows.data, rows.of_row)
    if ax is not None and len(pairs) > 1:
        count = len({j for pair in pairs for j in pair})
        names = listed(rows.draws.column_names(view))
        raise ValueError(f"ax takes one or two columns, got {count}: choose some of {names} with columns=")
    n_rows, n_columns, size = grid_size(len(pairs))
    is_strip = pairs[0][1] is None
    figure, grid = make_axes(plt, ax, (7, 2.6) if is_strip else size, n_rows, n_columns)
    mean, covariance = (None, None) if is_strip else _moments(rows.components())
    jitter = _jitter(rows.data.shape[0], view.d + 1)
    is_discrete = view.family.component.is_discrete
    for (j, i), axes in zip(pairs, grid, strict=False):
        # Jitter keeps rows with equal integers from hiding each other.
        shift = jitter * is_discrete
        x = _dense(rows.data[:, [j]])[:, 0] + shift[:, 1 + j]
        ranks = np.argsort(rows.largest_first)[rows.of_row]
        y = jitter[:, 0] + ranks if i is None else _dense(rows.data[:, [i]])[:, 0] + shift[:, 1 + i]
        rows.scatter(axes, x, y)
        for rank, k in enumerate(rows.largest_first):
            if i is not None and mean is not None and covariance is not None and rows.sizes[k] > 1:
                outline = _ellipse(mean[k, [j, i]], covariance[k][np.ix_([j, i], [j, i])], probability)
                axes.plot(*outline, color=_style(rank)[0], lw=1.5)
        axes.set_xlabel(rows.names[j])
        if i is None:
            shown = range(0, len(rows.largest_first), 1 + len(rows.largest_first) // 20)
            axes.set_yticks(shown, [str(rows.largest_first[rank]) for rank in shown])
            axes.set_ylabel("cluster")
        else:
            axes.set_ylabel(rows.names[i])
            name_ticks(axes.yaxis, view, i)
        name_ticks(axes.xaxis, view, j, 0.0 if ax is not None else _OF_BAR / n_columns)
    _finish(plt, figure, grid, len(pairs), title)
    return figure


def _jitter(n_rows: int, n_columns: int) -> np.ndarray:
    """Return shifts for points that would hide each other: (n, c) array."""
    # An unusual seed: with a common one, the jitter could repeat the random numbers of simulated data.
    return np.random.default_rng([19, 31, 20, 8]).uniform(-0.3, 0.3, (n_rows, n_columns))


def _draw_regressions(plt: Any, ax: Any, rows: _Rows, columns: Any) -> Any:
    """Draw rows against each covariate, with a line for each cluster at its means of the other covariates."""
    assert rows.regression is not None
    values, names = rows.regression
    chosen, title = chosen_covariates(values, names, columns)
    if ax is not None and len(chosen) > 1:
        raise ValueError(f"ax takes one covariate, got {len(chosen)}: choose one of {names} with columns=")
    figure, grid = make_axes(plt, ax, grid_size(len(chosen))[2], *grid_size(len(chosen))[:2])
    coefficients = rows.components()["coefficients"].mean(("chain", "draw")).to_numpy()
    y = rows.data[:, 0]
    for j, axes in zip(chosen, grid, strict=False):
        rows.scatter(axes, values[:, j], y)
        for rank, k in enumerate(rows.largest_first):
            covariates = values[rows.of_row == k]
            if len(covariates) > 1:
                ends = np.tile(covariates.mean(axis=0), (2, 1))
                ends[:, j] = covariates[:, j].min(), covariates[:, j].max()
                axes.plot(ends[:, j], ends @ coefficients[k], color=_style(rank)[0], lw=1.5)
        axes.set_xlabel(names[j])
        axes.set_ylabel(rows.names[0])
    _finish(plt, figure, grid, len(chosen), title)
    return figure


def _finish(plt: Any, figure: Any, grid: Sequence[Any], count: int, title: str) -> None:
    """Hide unused panels, and thin out the ticks of the others."""
    for axes in grid[count:]:
        axes.set_visible(False)
    if count > 1:
        for axes in grid[:count]:
            for axis in (axes.xaxis, axes.yaxis):
                # Ticks of categories, which have another locator, have been chosen already.
                if isinstance(axis.get_major_locator(), plt.MaxNLocator):
                    axis.get_major_locator().set_params(nbins=5)
    if title:
        figure.suptitle(title, fontsize="medium")


def plot_co_clustering(
    idata: Any, name: str, partition: Any = None, *, rows: Any = None, random_seed: Any = 0, ax: Any = None
) -> Any:
    """Plot the probabilities that pairs of rows share a cluster, ordered so that likely pairs are side by side.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture or of its labels.
    partition : (n,) array_like of integers or text, or Dataset, optional
        Partition whose clusters are separated by lines, larger ones first. By default :func:`point_partition` is
        called.
    rows : slice or (m,) integer array_like, optional
        Rows to show, see :func:`co_clustering`.
    random_seed : int or numpy.random.Generator, optional
        Seed of the search for a point partition.
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
    >>> figure = dp.plot_co_clustering(idata, "y")
    """
    plt = pyplot()
    drawn = drawn_labels(idata, name)
    matrix = co_clustering_of(drawn, rows, MOST_BYTES)
    together = matrix.to_numpy()
    n = matrix.sizes[matrix.dims[0]]
    labels = reference_labels(drawn, partition, random_seed)
    if rows is not None:
        labels = labels[rows]
    order = _order(together, labels)
    figure, (axes,) = make_axes(plt, ax, (6, 5))
    image = axes.imshow(together[np.ix_(order, order)], cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
    for edge in np.flatnonzero(np.diff(labels[order])) + 0.5:
        axes.axhline(edge, color="white", lw=0.8)
        axes.axvline(edge, color="white", lw=0.8)
    axis = str(matrix.dims[0])
    if n <= 40 and axis in matrix.coords:
        shown = [str(value) for value in matrix[axis].to_numpy()[order]]
        axes.set_xticks(range(n), shown, rotation=90, fontsize=7)
        axes.set_yticks(range(n), shown, fontsize=7)
    axes.set_xlabel(f"{axis}, ordered")
    axes.set_ylabel(f"{axis}, ordered")
    figure.colorbar(image, ax=axes, label="probability of one cluster")
    return figure


def plot_density(
    idata: Any,
    name: str,
    x: Any = None,
    *,
    columns: Any = None,
    given: Any = None,
    group: Any = None,
    probability: float = 0.95,
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
    draws = MixtureDraws(idata, name, model, group)
    if draws.has_atoms:
        result = density_of_process(idata, draws, x, probability, random_seed, model)
        figure, (axes,) = make_axes(plt, ax, (7, 4))
        (observed,) = result.attrs["columns"]
        data = idata["observed_data"].dataset[observed].to_numpy()
        axes.set_xlabel(observed)
        (_draw_line if data.dtype.kind == "f" else _draw_bars)(axes, result, data, "data", bins)
        return figure
    view = draws.sole()
    names = draws.column_names(view)
    chosen = list(range(view.d)) if columns is None else draws.positions(view, columns)
    if len(chosen) > 2 or (len(chosen) > 1 and x is not None):
        raise ValueError(
            f"plot_density takes one column, or two without x, got {len(chosen)}: choose some of {listed(names)} "
            "with columns="
        )
    columns_or_all = None if len(chosen) == view.d else chosen
    result = density_of(draws, x, columns_or_all, given, probability, random_seed)
    of_rows: Any = slice(None)
    if draws.groups is not None and group is not None:
        of_rows = draws.groups.group == draws.groups.position(group)
    data = view.column_values(chosen, draws.numbers.n_draws, of_rows)
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
            name_ticks(axes.xaxis, view, chosen[0], _OF_BAR)
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
    levels = [float(ranked[np.searchsorted(mass, p)]) for p in inside]
    widths = np.linspace(0.8, 2.0, len(levels))
    lines = axes.contour(across, up, values, levels=levels, colors=COLORS[0], linewidths=widths)
    texts = {level: f"{p:.0%}" for level, p in zip(levels[:2], inside[:2], strict=True)}
    axes.clabel(lines, levels[:2], fmt=texts, fontsize=8)
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
    if len(middle) > _MOST_BARS:
        low, high = bands["lower"], bands["upper"]
        axes.fill_between(bands["x"], low, high, color=COLORS[0], alpha=0.3, lw=0, label=band)
        axes.plot(bands["x"], middle, color=COLORS[0], lw=1, label="posterior mean")
    else:
        label = f"posterior mean, {band}"
        axes.errorbar(bands["x"], middle, errors, fmt="o", color=COLORS[0], label=label, clip_on=False)
    axes.set_ylabel("probability")
    _count_ticks(axes.xaxis)
    # Space for the legend.
    axes.set_ylim(0.0, 1.3 * axes.get_ylim()[1])
    axes.legend(frameon=False)


def plot_n_clusters(
    idata: Any, name: str, *, model: pm.Model | None = None, random_seed: Any = None, ax: Any = None
) -> Any:
    """Plot the prior and posterior probabilities of the number of clusters.

    Parameters
    ----------
    idata, name, model, random_seed
        As in :func:`n_clusters`. If the prior is not known, only the posterior is drawn.
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
    >>> figure = dp.plot_n_clusters(idata, "y")
    """
    plt = pyplot()
    draws = MixtureDraws(idata, name, model)
    try:
        pmf = n_clusters_of(draws, model, random_seed)
    except UnknownPriorError:
        shares = np.trim_zeros(posterior_pmf(draws.numbers.labels)[1:], "b")
        numbers = np.arange(1, len(shares) + 1)
        pmf = xr.Dataset({"posterior": ("n_clusters", shares)}, coords={"n_clusters": numbers})
    figure, (axes,) = make_axes(plt, ax, (7, 3.5))
    axes.bar(pmf["n_clusters"], pmf["posterior"], width=0.8, color=COLORS[0], alpha=0.8, label="posterior")
    if "prior" in pmf:
        prior = axes.plot(pmf["n_clusters"], pmf["prior"], "o-", color=COLORS[4], ms=4, lw=1, label="prior")
        prior[0].set_clip_on(False)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("number of clusters")
    _count_ticks(axes.xaxis)
    axes.set_ylabel("probability")
    axes.legend(frameon=False)
    return figure


def plot_sizes(idata: Any, name: str, *, n_largest: int = 8, probability: float = 0.9, ax: Any = None) -> Any:
    """Plot the shares of rows in the largest clusters: medians and intervals over draws, largest first.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture or of its labels.
    n_largest : int, >= 1
        Number of clusters to show.
    probability : float, in (0, 1)
        Probability of the intervals, which have equal tails.
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
    >>> figure = dp.plot_sizes(idata, "y")
    """
    plt = pyplot()
    check_probability(probability)
    shares = partition_diagnostics(idata, name, n_largest=n_largest, warn=False)["share"]
    tail = 0.5 - 0.5 * probability
    low, median, high = np.quantile(shares.to_numpy(), [tail, 0.5, 1.0 - tail], axis=(0, 1))
    used = np.flatnonzero(high > 0)
    figure, (axes,) = make_axes(plt, ax, (7, 3.5))
    axes.vlines(
        used + 1, low[used], high[used], color=COLORS[0], lw=3, alpha=0.5, label=f"{probability:.0%} of draws"
    )
    axes.plot(used + 1, median[used], "o", color=COLORS[0], label="median", clip_on=False)
    axes.set_xticks(used + 1)
    axes.set_xlim(0.5, used.max() + 1.5)
    axes.set_ylim(0, 1.08 * high.max())
    axes.set_xlabel("clusters of a draw, largest first")
    axes.set_ylabel("share of the rows")
    axes.legend(frameon=False)
    return figure


def plot_chains(idata: Any, name: str, reference: Any = None, *, n_largest: int = 30) -> Any:
    """Plot for each chain whether it keeps the clusters of a partition together, and others out of them.

    Where the points of all chains lie on each other, chains agree on a cluster.

    Parameters
    ----------
    idata, name, reference
        As in :func:`chain_differences`.
    n_largest : int, >= 1
        Number of clusters to show.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     idata = pm.sample(50, tune=50, chains=2, cores=1, random_seed=1, progressbar=False)
    >>> figure = dp.plot_chains(idata, "y")
    """
    plt = pyplot()
    check_count("n_largest", n_largest, 1)
    found = chain_differences(idata, name, reference)
    order = np.argsort(-found["size"].to_numpy(), kind="stable")[:n_largest]
    n_chains, at = found.sizes["chain"], np.arange(len(order))
    figure, panels = make_axes(plt, None, (8, 4.6), 2, 1)
    says = {"together": "its rows stay together", "alone": "no other rows join"}
    for axes, (variable, label) in zip(panels, says.items(), strict=True):
        for c, chain in enumerate(found["chain"].to_numpy()):
            color, marker = _style(c)
            shift = 0.5 * (c / max(n_chains - 1, 1) - 0.5)
            values = found[variable].to_numpy()[c, order]
            axes.plot(at + shift, values, marker, color=color, ms=5, label=f"chain {chain}", clip_on=False)
        axes.set(ylim=(0, 1.03), ylabel=label, xlim=(-0.6, len(order) - 0.4))
        for k in at[:-1]:
            axes.axvline(k + 0.5, color="0.9", lw=0.8, zorder=0)
    shown = at[:: 1 + len(at) // 16]
    sizes = found["size"].to_numpy()
    panels[0].set_xticks(shown, [])
    panels[1].set_xticks(shown, [f"{order[k]}\n{sizes[order[k]]}" for k in shown])
    panels[1].set_xlabel("cluster of the reference, and its number of rows")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles[:12], names[:12], loc="outside right upper", frameon=False)
    return figure


def plot_sensitivity(found: xr.Dataset, *, distance: bool = True) -> Any:
    """Plot how the number of clusters and the point partition change with each hyperparameter.

    Parameters
    ----------
    found : Dataset
        The result of :func:`sensitivity`.
    distance : bool
        Whether to add a second row of panels with the distances of the point partitions from that of the baseline.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> def make_model(alpha):
    ...     with pm.Model() as model:
    ...         dp.DPMixture("y", alpha, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     return model
    >>> run = {"draws": 50, "tune": 50, "chains": 1, "random_seed": 1, "progressbar": False}
    >>> report = dp.sensitivity(make_model, "y", {"alpha": 1.0}, {"alpha": [0.1, 2.0]}, **run)
    >>> figure = dp.plot_sensitivity(report)
    """
    plt = pyplot()
    parameters = list(dict.fromkeys(str(p) for p in found["parameter"].to_numpy()[1:]))
    if not parameters:
        raise ValueError("found has only the baseline: pass variations to dp.sensitivity")
    n_rows = 2 if distance else 1
    figure, array = plt.subplots(
        n_rows,
        len(parameters),
        figsize=(3.2 * len(parameters) + 0.8, 2.6 * n_rows),
        squeeze=False,
        sharex="col",
        sharey="row",
    )
    for parameter, column in zip(parameters, array.T, strict=True):
        # The baseline is a point in every panel.
        settings = found.isel(setting=[0, *np.flatnonzero(found["parameter"] == parameter)])
        value, axes = settings["value"].to_numpy().copy(), column[0]
        value[0] = found.attrs[f"baseline_{parameter}"]
        axes.axhline(float(settings["mean"][0]), color=GREY, lw=1, ls="--", label="baseline")
        axes.errorbar(
            value,
            settings["mean"],
            settings["sd"],
            fmt="o",
            color=COLORS[0],
            capsize=3,
            label="posterior mean and sd",
        )
        axes.plot(value, settings["point_n_clusters"], "D", color=COLORS[1], ms=5, label="point partition")
        if distance:
            column[1].axhline(0.0, color=GREY, lw=1, ls="--")
            column[1].plot(value, settings["distance"], "D", color=COLORS[1], ms=5)
        if np.all(value > 0) and value.max() > 5.0 * value.min():
            axes.set_xscale("log")
        column[-1].set_xticks(value, [f"{v:g}" for v in value.tolist()])
        column[-1].minorticks_off()
        column[-1].set_xlabel(parameter)
    array[0, 0].set_ylabel("clusters")
    array[0, 0].set_ylim(bottom=0)
    if distance:
        array[1, 0].set_ylabel("distance (bits)")
        array[1, 0].set_ylim(bottom=-0.02)
    figure.legend(*array[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    return figure


def plot_groups(
    idata: Any,
    name: str,
    partition: Any = None,
    *,
    columns: Sequence[Any] | None = None,
    groups: Sequence[Any] | None = None,
    model: pm.Model | None = None,
) -> Any:
    """Plot two columns of the data, a panel for each group, coloured by clusters that all groups share.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of a mixture of rows in groups, or of one of its views.
    partition : (n,) array_like of integers or text, or Dataset, optional
        Labels, or the result of :func:`point_partition`, which is called by default.
    columns : sequence of str or int, optional
        The two columns to show, by default the first two.
    groups : sequence of str or int, optional
        Names of the groups to show, by default the first twelve.
    model : pm.Model, optional
        Needed in the cases that :func:`component_draws` names.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> eruptions, year = dp.datasets.load_old_faithful(), np.arange(272) // 136
    >>> with pm.Model():
    ...     y = dp.HDPMixture("y", 1.0, 1.0, group=year, observed=eruptions)
    ...     idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    >>> figure = dp.plot_groups(idata, "y")
    """
    plt = pyplot()
    draws = MixtureDraws(idata, name, model)
    view = draws.sole()
    if draws.groups is None:
        raise ValueError(f"the rows of {draws.labels_name} have no groups: use plot_clusters")
    if view.d < 2:
        raise ValueError(f"plot_groups needs two columns, and {view.name} has one: use plot_group_weights")
    names = draws.column_names(view)
    j, i = [0, 1] if columns is None else draws.positions(view, columns)
    wanted = draws.groups.names[:_MOST_NAMED] if groups is None else groups
    chosen = [draws.groups.names[draws.groups.position(group)] for group in wanted]
    labels = draws.reference(partition)
    sizes = np.bincount(labels)
    largest_first = np.argsort(-sizes, kind="stable")
    (rows, what), n_columns = rows_shown(draws, view), min(4, len(chosen))
    data = _dense(rows)
    if view.family.component.is_discrete:
        data = data + _jitter(*data.shape)
    n_rows = -(-len(chosen) // n_columns)
    figure, array = plt.subplots(
        n_rows, n_columns, figsize=(3.0 * n_columns + 1.2, 2.8 * n_rows), squeeze=False, sharex=True, sharey=True
    )
    for group, axes in zip(chosen, array.ravel(), strict=False):
        of_group = draws.groups.group == draws.groups.position(group)
        for rank, k in enumerate(largest_first):
            members = of_group & (labels == k)
            axes.scatter(data[members, j], data[members, i], **_points(rank, sizes[k] == 1))
        axes.set_title(f"{group} ({int(of_group.sum())} rows)")
    for axes in array.ravel()[len(chosen) :]:
        axes.set_visible(False)
    texts = column_labels(view, names, what)
    for axes in array.ravel()[: len(chosen)]:
        name_ticks(axes.yaxis, view, i)
        name_ticks(axes.xaxis, view, j)
    figure.supxlabel(texts[j])
    figure.supylabel(texts[i])
    handles = _names_of_clusters(plt, sizes, "row")
    figure.legend(handles=handles, loc="outside right upper", title="cluster", frameon=False)
    return figure


def plot_group_weights(
    idata: Any, name: str, reference: Any = None, *, model: pm.Model | None = None, ax: Any = None
) -> Any:
    """Plot the weights of clusters, or topics, in every group as a heat map.

    Clusters are in order of size. With many groups, those with similar weights are side by side.

    Parameters
    ----------
    idata, name, reference, model
        As in :func:`group_weights`.
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
    ...     words = dp.LDA("words", 2, 0.1, 0.1, observed=[[4, 5, 0], [5, 4, 1], [0, 0, 6]])
    ...     idata = pm.sample(100, tune=100, chains=1, random_seed=1, progressbar=False)
    >>> figure = dp.plot_group_weights(idata, "words")
    """
    plt = pyplot()
    result = group_weights(idata, name, reference, model=model)
    group, cluster = result["weight"].dims
    by_size = np.argsort(-result["size"].to_numpy(), kind="stable")
    weights = result["weight"].to_numpy()[:, by_size]
    rows = np.arange(len(weights))
    if len(weights) > _MOST_BARS:
        # By the cluster with the largest weight, and then by that weight.
        rows = np.lexsort((-weights.max(axis=1), weights.argmax(axis=1)))
    height = float(np.clip(0.25 * len(weights), 2.5, 8.0))
    size = (float(np.clip(0.35 * len(by_size) + 2.5, 4.0, 12.0)), height + 0.8)
    figure, (axes,) = make_axes(plt, ax, size)
    image = axes.imshow(weights[rows], aspect="auto", cmap="Blues", vmin=0.0, interpolation="nearest")
    shown = range(0, len(by_size), 1 + len(by_size) // 25)
    axes.set_xticks(shown, [str(result[cluster].to_numpy()[by_size[k]]) for k in shown])
    if len(rows) <= _MOST_BARS:
        axes.set_yticks(range(len(rows)), [str(result[group].to_numpy()[row]) for row in rows])
    else:
        axes.set_yticks([])
    axes.set_xlabel("topic" if "topic" in str(cluster) else "cluster")
    axes.set_ylabel(f"{len(rows)} groups" if len(rows) > _MOST_BARS else "group")
    figure.colorbar(image, ax=axes, label="weight")
    return figure


def plot_topics(
    idata: Any,
    name: str,
    *,
    n_topics: int = 8,
    n_words: int = 8,
    relevance: float = 1.0,
    reference: Any = None,
    model: pm.Model | None = None,
) -> Any:
    """Plot the words of the largest topics: bars of their probabilities, with error bars of two sd.

    Parameters
    ----------
    idata, name, n_words, relevance, reference, model
        As in :func:`topics`.
    n_topics : int, >= 1
        Number of topics to show.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model():
    ...     words = dp.LDA("words", 2, 0.1, 0.1, observed=[[4, 5, 0], [5, 4, 1], [0, 0, 6]])
    ...     idata = pm.sample(100, tune=100, chains=1, random_seed=1, progressbar=False)
    >>> figure = dp.plot_topics(idata, "words", n_words=2)
    """
    plt = pyplot()
    result = topics(idata, name, n_words=n_words, relevance=relevance, reference=reference, model=model)
    result = result.isel(topic=slice(0, n_topics))
    count = result.sizes["topic"]
    n_columns = min(4, count)
    n_rows = -(-count // n_columns)
    size = (3.0 * n_columns, (0.24 * result.sizes["rank"] + 0.8) * n_rows)
    figure, grid = make_axes(plt, None, size, n_rows, n_columns)
    places = np.arange(result.sizes["rank"])
    for k, axes in zip(range(count), grid, strict=False):
        words = result.isel(topic=k)
        axes.barh(
            places, words["top_probability"], xerr=2.0 * words["top_sd"], color=COLORS[0], ecolor=GREY, height=0.7
        )
        axes.set_yticks(places, [str(word) for word in words["top_word"].to_numpy()])
        axes.invert_yaxis()
        axes.set_xlim(left=0.0)
        axes.locator_params(axis="x", nbins=3)
        axes.set_title(f"{int(words['topic'])}: {float(words['share']):.0%} of the {result.attrs['rows']}")
    for axes in grid[count:]:
        axes.set_visible(False)
    figure.supxlabel("probability, and two standard deviations either side")
    return figure


def _count_ticks(axis: Any) -> None:
    """Put ticks at integers only."""
    axis.get_major_locator().set_params(integer=True)


def _points(rank: int, is_single: bool) -> dict[str, Any]:
    """Return the style of the rows of a cluster: grey circles for single rows."""
    if is_single:
        return {"s": 26, "facecolors": "none", "edgecolors": GREY, "marker": "o", "linewidths": 1.0}
    color, marker = _style(rank)
    return {"s": 18, "c": color, "marker": marker, "alpha": 0.7, "linewidths": 0}


def _names_of_clusters(plt: Any, sizes: np.ndarray, counted: str) -> list[Any]:
    """Return legend entries for clusters with these sizes, largest first."""
    largest_first = np.argsort(-sizes, kind="stable")
    handles = [
        plt.Line2D(
            [], [], color=_style(rank)[0], marker=_style(rank)[1], ls="", label=f"{k}: {sizes[k]} {counted}s"
        )
        for rank, k in enumerate(largest_first[:_MOST_NAMED])
        if sizes[k] > 1
    ]
    unnamed = int(np.sum(sizes[largest_first[_MOST_NAMED:]] > 1))
    if unnamed:
        handles.append(plt.Line2D([], [], ls="", label=f"and {unnamed} more"))
    n_single = int(np.sum(sizes == 1))
    if n_single:
        label = f"{n_single} single {counted}{'s' if n_single > 1 else ''}"
        handles.append(plt.Line2D([], [], color=GREY, marker="o", mfc="none", ls="", label=label))
    return handles


def _dense(data: Any) -> np.ndarray:
    return np.asarray(data.todense() if hasattr(data, "todense") else data)


def _style(rank: int) -> tuple[str, str]:
    return COLORS[rank % len(COLORS)], MARKERS[(rank + rank // len(COLORS)) % len(MARKERS)]


def _moments(components: xr.Dataset) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return posterior means of cluster means (K, d) and covariances (K, d, d), None for other families."""
    if "mean" not in components or components["mean"].ndim < 4:
        return None, None
    mean = components["mean"].mean(("chain", "draw")).to_numpy()
    if "covariance" in components:
        return mean, components["covariance"].mean(("chain", "draw")).to_numpy()
    if "variance" not in components:
        return None, None
    variance = components["variance"].mean(("chain", "draw")).to_numpy()
    return mean, variance[:, :, None] * np.eye(variance.shape[1])


def _ellipse(mean: np.ndarray, covariance: np.ndarray, probability: float) -> np.ndarray:
    """Return the outline (2, m) of the ellipse that holds this probability of a bivariate normal."""
    radius = np.sqrt(-2.0 * np.log1p(-probability))
    return mean[:, None] + radius * np.linalg.cholesky(covariance) @ _CIRCLE


def _order(together: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Order rows by cluster, largest first, and within a cluster by hierarchical clustering."""
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    order: list[int] = []
    for k in np.argsort(-np.bincount(labels), kind="stable"):
        members = np.flatnonzero(labels == k)
        if len(members) > 2:
            distances = 1.0 - together[np.ix_(members, members)]
            np.fill_diagonal(distances, 0.0)
            members = members[leaves_list(linkage(squareform(distances, checks=False), "average"))]
        order += members.tolist()
    return np.array(order)
