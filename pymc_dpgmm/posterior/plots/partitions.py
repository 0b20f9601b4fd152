"""Plots of partitions: co-clustering, numbers and sizes of clusters, chains, and sensitivity."""

from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.posterior import partition_diagnostics
from pymc_dpgmm.posterior.arrays.partitions import posterior_pmf
from pymc_dpgmm.posterior.arrays.predictions import tails
from pymc_dpgmm.posterior.chains import chain_differences
from pymc_dpgmm.posterior.co_clustering import MOST_BYTES, co_clustering_of, positions_of
from pymc_dpgmm.posterior.draws import checked_level, drawn_labels
from pymc_dpgmm.posterior.n_clusters import n_clusters_of
from pymc_dpgmm.posterior.plots.figures import COLORS, GREY, make_axes, pyplot
from pymc_dpgmm.posterior.plots.shared import MOST_NAMED, count_ticks, style
from pymc_dpgmm.posterior.point_partition import reference_of
from pymc_dpgmm.posterior.reading import read_labelled
from pymc_dpgmm.posterior.stored import UnknownPriorError
from pymc_dpgmm.tables.checks import check_count


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
    labels = reference_of(drawn, partition, random_seed).labels
    if rows is not None:
        labels = labels[positions_of(rows, drawn.n)]
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
    draws = read_labelled(idata, name, model)
    try:
        pmf = n_clusters_of(draws, random_seed)
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
    count_ticks(axes.xaxis)
    axes.set_ylabel("probability")
    axes.legend(frameon=False)
    return figure


def plot_sizes(
    idata: Any, name: str, *, n_largest: int = 8, probability: float | None = None, ax: Any = None
) -> Any:
    """Plot the shares of rows in the largest clusters: medians and intervals over draws, largest first.

    Parameters
    ----------
    idata : xarray.DataTree
        The result of ``pm.sample``, or one that was read from a file.
    name : str
        Name of the mixture or of its labels.
    n_largest : int, >= 1
        Number of clusters to show.
    probability : float, in (0, 1), optional
        Probability of the intervals, which have equal tails; by default that of ArviZ,
        ``arviz.rcParams["stats.ci_prob"]``.
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
    probability = checked_level(probability)
    shares = partition_diagnostics(idata, name, n_largest=n_largest, warn=False)["share"]
    low, high, median = np.quantile(shares.to_numpy(), [*tails(probability), 0.5], axis=(0, 1))
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
            color, marker = style(c)
            shift = 0.5 * (c / max(n_chains - 1, 1) - 0.5)
            values = found[variable].to_numpy()[c, order]
            axes.plot(at + shift, values, marker, color=color, ms=5, label=f"chain {chain}", clip_on=False)
        axes.set(ylim=(0, 1.03), ylabel=label, xlim=(-0.6, len(order) - 0.4))
        for k in at[:-1]:
            axes.axvline(k + 0.5, color="0.9", lw=0.8, zorder=0)
    shown = at[:: 1 + len(at) // 16]
    sizes, names = found["size"].to_numpy(), found["cluster"].to_numpy()
    panels[0].set_xticks(shown, [])
    panels[1].set_xticks(shown, [f"{names[order[k]]}\n{sizes[order[k]]}" for k in shown])
    panels[1].set_xlabel("cluster of the reference, and its number of rows")
    handles, texts = panels[0].get_legend_handles_labels()
    if len(handles) > MOST_NAMED:
        handles[MOST_NAMED:] = [plt.Line2D([], [], ls="")]
        texts[MOST_NAMED:] = [f"and {n_chains - MOST_NAMED} more"]
    figure.legend(handles, texts, loc="outside right upper", frameon=False)
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
