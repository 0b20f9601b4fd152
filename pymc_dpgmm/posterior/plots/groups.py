"""Plots of rows in groups, and of topics."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm

from pymc_dpgmm.posterior.component_draws import are_own
from pymc_dpgmm.posterior.plots.figures import COLORS, GREY, make_axes, pyplot
from pymc_dpgmm.posterior.plots.panels import column_labels, name_ticks, rows_shown
from pymc_dpgmm.posterior.plots.shared import (
    MOST_BARS,
    MOST_NAMED,
    dense,
    names_of_clusters,
    points,
    random_shifts,
)
from pymc_dpgmm.posterior.reading import read_labelled
from pymc_dpgmm.posterior.topics import group_weights, topics
from pymc_dpgmm.tables.checks import check_count, listed


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
    draws = read_labelled(idata, name, model)
    view = draws.sole()
    if draws.groups is None:
        raise ValueError(f"the rows of {draws.labels_name} have no groups: use plot_clusters")
    if view.d < 2:
        raise ValueError(f"plot_groups needs two columns, and {view.name} has one: use plot_group_weights")
    names = view.column_names
    pair = [0, 1] if columns is None else view.positions(columns)
    if len(pair) != 2:
        raise ValueError(f"columns must be two columns, got {len(pair)}: choose two of {listed(names)}")
    j, i = pair
    wanted = draws.groups.names[:MOST_NAMED] if groups is None else groups
    chosen = [draws.groups.names[draws.groups.position(group)] for group in wanted]
    clusters = draws.reference(partition)
    labels = clusters.labels
    sizes = np.bincount(labels)
    largest_first, own = np.argsort(-sizes, kind="stable"), are_own(draws, clusters)
    (rows, what), n_columns = rows_shown(draws, view), min(4, len(chosen))
    data = dense(rows)
    if view.family.component.is_discrete:
        data = data + random_shifts(*data.shape)
    n_rows = -(-len(chosen) // n_columns)
    figure, array = plt.subplots(
        n_rows, n_columns, figsize=(3.0 * n_columns + 1.2, 2.8 * n_rows), squeeze=False, sharex=True, sharey=True
    )
    for group, axes in zip(chosen, array.ravel(), strict=False):
        of_group = draws.rows_of_group(group)
        for rank, k in enumerate(largest_first):
            members = of_group & (labels == k)
            axes.scatter(data[members, j], data[members, i], **points(rank, sizes[k] == 1 or not own[k]))
        axes.set_title(f"{group} ({int(of_group.sum())} rows)")
    for axes in array.ravel()[len(chosen) :]:
        axes.set_visible(False)
    texts = column_labels(view, names, what)
    for axes in array.ravel()[: len(chosen)]:
        name_ticks(axes.yaxis, view, i)
        name_ticks(axes.xaxis, view, j)
    figure.supxlabel(texts[j])
    figure.supylabel(texts[i])
    handles = names_of_clusters(plt, sizes, clusters.names, "row", own)
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
    if len(weights) > MOST_BARS:
        # By the cluster with the largest weight, and then by that weight.
        rows = np.lexsort((-weights.max(axis=1), weights.argmax(axis=1)))
    height = float(np.clip(0.25 * len(weights), 2.5, 8.0))
    size = (float(np.clip(0.35 * len(by_size) + 2.5, 4.0, 12.0)), height + 0.8)
    figure, (axes,) = make_axes(plt, ax, size)
    image = axes.imshow(weights[rows], aspect="auto", cmap="Blues", vmin=0.0, interpolation="nearest")
    shown = range(0, len(by_size), 1 + len(by_size) // 25)
    axes.set_xticks(shown, [str(result[cluster].to_numpy()[by_size[k]]) for k in shown])
    if len(rows) <= MOST_BARS:
        axes.set_yticks(range(len(rows)), [str(result[group].to_numpy()[row]) for row in rows])
    else:
        axes.set_yticks([])
    axes.set_xlabel("topic" if "topic" in str(cluster) else "cluster")
    axes.set_ylabel(f"{len(rows)} groups" if len(rows) > MOST_BARS else "group")
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
    check_count("n_topics", n_topics, 1)
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
