"""What several plots share: styles, legends, and limits of what is shown."""

from typing import Any

import numpy as np

from pymc_dpgmm.posterior.plots.figures import COLORS, GREY, MARKERS

# Width of a colour bar or a legend, in inches.
OF_BAR = 1.2
# Largest number of clusters in a legend.
MOST_NAMED = 12
# With more values than this, a band replaces error bars, and groups have no names.
MOST_BARS = 40


def random_shifts(n_rows: int, n_columns: int) -> np.ndarray:
    """Return shifts for points that would hide each other: (n, c) array."""
    # An unusual seed: with a common one, the jitter could repeat the random numbers of simulated data.
    return np.random.default_rng([19, 31, 20, 8]).uniform(-0.3, 0.3, (n_rows, n_columns))


def count_ticks(axis: Any) -> None:
    """Put ticks at integers only."""
    axis.get_major_locator().set_params(integer=True)


def points(rank: int, is_grey: bool) -> dict[str, Any]:
    """Return the style of the rows of a cluster: grey circles for what is none of its own."""
    if is_grey:
        return {"s": 26, "facecolors": "none", "edgecolors": GREY, "marker": "o", "linewidths": 1.0}
    color, marker = style(rank)
    return {"s": 18, "c": color, "marker": marker, "alpha": 0.7, "linewidths": 0}


def names_of_clusters(
    plt: Any, sizes: np.ndarray, names: np.ndarray, counted: str, are_own: np.ndarray
) -> list[Any]:
    """Return legend entries for clusters with these sizes and names, largest first, and one for grey rows.

    ``are_own`` (K,) tells which are clusters of their own in most draws.
    """
    largest_first = np.argsort(-sizes, kind="stable")
    has_color = (sizes > 1) & are_own
    handles = [
        _handle(plt, rank, f"{names[k]}: {sizes[k]} {counted}s")
        for rank, k in enumerate(largest_first[:MOST_NAMED])
        if has_color[k]
    ]
    unnamed = int(np.sum(has_color[largest_first[MOST_NAMED:]]))
    if unnamed:
        handles.append(plt.Line2D([], [], ls="", label=f"and {unnamed} more"))
    for n, label in (
        (int(np.sum(sizes == 1)), "{0} single {1}"),
        (int(np.sum(sizes[(sizes > 1) & ~are_own])), "none: {0} {1}"),
    ):
        if n:
            text = label.format(n, counted + "s" * (n > 1))
            handles.append(plt.Line2D([], [], color=GREY, marker="o", mfc="none", ls="", label=text))
    return handles


def _handle(plt: Any, rank: int, text: str) -> Any:
    color, marker = style(rank)
    return plt.Line2D([], [], color=color, marker=marker, ls="", label=text_of_legend(text))


def text_of_legend(name: Any) -> str:
    """Return a name as a legend shows it: matplotlib hides those that begin with an underscore."""
    text = str(name)
    return f" {text}" if text.startswith("_") else text


def dense(data: Any) -> np.ndarray:
    """Return data, sparse data too, as a NumPy array."""
    return np.asarray(data.todense() if hasattr(data, "todense") else data)


def style(rank: int) -> tuple[str, str]:
    """Return the colour and the marker of a cluster, by its rank."""
    return COLORS[rank % len(COLORS)], MARKERS[(rank + rank // len(COLORS)) % len(MARKERS)]
