"""Plots of data in the clusters of a partition."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior.component_draws import aligned_components, are_own
from pymc_dpgmm.posterior.draws import checked_level
from pymc_dpgmm.posterior.mixtures import MixtureDraws
from pymc_dpgmm.posterior.named_views import NamedView
from pymc_dpgmm.posterior.plots.figures import make_axes, pyplot
from pymc_dpgmm.posterior.plots.panels import (
    chosen_covariates,
    chosen_pairs,
    column_labels,
    grid_size,
    name_ticks,
    regression_of,
    rows_shown,
)
from pymc_dpgmm.posterior.plots.shared import OF_BAR, dense, names_of_clusters, points, random_shifts, style
from pymc_dpgmm.posterior.reading import read_labelled
from pymc_dpgmm.tables.checks import listed

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
    residuals from a random offset, are shown at their posterior means. Grey rows are alone in a cluster of the
    point partition, or in one that is, in most draws, a part of a larger one.

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
    checked_level(probability)
    draws = read_labelled(idata, name, model)
    rows = _ShownRows(draws, draws.sole(), partition, np.random.default_rng(random_seed))
    if rows.regression is not None:
        figure = _draw_regressions(plt, ax, rows, columns)
    else:
        figure = _draw_pairs(plt, ax, rows, columns, probability)
    counted = "row" if rows.view.unit is None else "unit"
    handles = names_of_clusters(plt, rows.sizes, rows.reference.names, counted, rows.are_own)
    if ax is None:
        figure.legend(handles=handles, loc="outside right upper", title="cluster", frameon=False)
    else:
        ax.legend(handles=handles, title="cluster")
    return figure


class _ShownRows:
    """The rows that a plot of clusters shows, and their clusters."""

    def __init__(self, draws: MixtureDraws, view: NamedView, partition: Any, rng: np.random.Generator) -> None:
        self.reference = draws.reference(partition)
        labels = self.reference.labels
        self.draws, self.view, self._rng = draws, view, rng
        self.regression = regression_of(view)
        self.data, self.what = rows_shown(draws, view)
        self.of_row = labels if view.unit is None else labels[view.unit]
        self.sizes, self.are_own = np.bincount(labels), are_own(draws, self.reference)
        # Rows without an outline or a line.
        self.is_grey = (self.sizes == 1) | ~self.are_own
        self.largest_first = np.argsort(-self.sizes, kind="stable")
        names = column_labels(view, view.column_names, self.what)
        self.names: list[str] = names

    def components(self) -> xr.Dataset:
        """Return draws of the parameters of the clusters, NaN of those that are none of their own."""
        return aligned_components(self.draws, self.reference, self._rng)

    def scatter(self, axes: Any, x: np.ndarray, y: np.ndarray) -> None:
        """Draw the rows of all clusters, largest cluster first."""
        for rank, k in enumerate(self.largest_first):
            members = self.of_row == k
            axes.scatter(x[members], y[members], **points(rank, self.is_grey[k]))


def _draw_pairs(plt: Any, ax: Any, rows: _ShownRows, columns: Any, probability: float) -> Any:
    """Draw a panel for each pair of columns, or a strip for a single column."""
    view = rows.view
    pairs, title = chosen_pairs(rows.draws, view, columns, rows.data, rows.of_row)
    if ax is not None and len(pairs) > 1:
        count = len({j for pair in pairs for j in pair})
        names = listed(view.column_names)
        raise ValueError(f"ax takes one or two columns, got {count}: choose some of {names} with columns=")
    n_rows, n_columns, size = grid_size(len(pairs))
    is_strip = pairs[0][1] is None
    figure, grid = make_axes(plt, ax, (7, 2.6) if is_strip else size, n_rows, n_columns)
    mean, covariance = (None, None) if is_strip else _moments(rows.components())
    jitter = random_shifts(rows.data.shape[0], view.d + 1)
    is_discrete = view.family.component.is_discrete
    for (j, i), axes in zip(pairs, grid, strict=False):
        # Jitter keeps rows with equal integers from hiding each other.
        shift = jitter * is_discrete
        x = dense(rows.data[:, [j]])[:, 0] + shift[:, 1 + j]
        ranks = np.argsort(rows.largest_first)[rows.of_row]
        y = jitter[:, 0] + ranks if i is None else dense(rows.data[:, [i]])[:, 0] + shift[:, 1 + i]
        rows.scatter(axes, x, y)
        for rank, k in enumerate(rows.largest_first):
            if i is not None and mean is not None and covariance is not None and not rows.is_grey[k]:
                outline = _ellipse(mean[k, [j, i]], covariance[k][np.ix_([j, i], [j, i])], probability)
                axes.plot(*outline, color=style(rank)[0], lw=1.5)
        axes.set_xlabel(rows.names[j])
        if i is None:
            shown = range(0, len(rows.largest_first), 1 + len(rows.largest_first) // 20)
            axes.set_yticks(shown, [str(rows.reference.names[rows.largest_first[rank]]) for rank in shown])
            axes.set_ylabel("cluster")
        else:
            axes.set_ylabel(rows.names[i])
            name_ticks(axes.yaxis, view, i)
        name_ticks(axes.xaxis, view, j, 0.0 if ax is not None else OF_BAR / n_columns)
    values = dense(rows.data)
    n_hidden = max(
        int(np.isnan(values[:, [c for c in pair if c is not None]]).any(axis=1).sum()) for pair in pairs
    )
    if n_hidden:
        most = "" if len(pairs) == 1 else "up to "
        title = f"{title}{'; ' if title else ''}{most}{n_hidden} rows with missing entries are not shown"
    _finish(plt, figure, grid, len(pairs), title)
    return figure


def _draw_regressions(plt: Any, ax: Any, rows: _ShownRows, columns: Any) -> Any:
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
            if len(covariates) > 1 and rows.are_own[k]:
                ends = np.tile(covariates.mean(axis=0), (2, 1))
                ends[:, j] = covariates[:, j].min(), covariates[:, j].max()
                axes.plot(ends[:, j], ends @ coefficients[k], color=style(rank)[0], lw=1.5)
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
