"""Choice of columns, rows and tick labels for plots of rows."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from pymc_dpgmm.posterior.mixtures import MixtureDraws
from pymc_dpgmm.posterior.named_views import NamedView
from pymc_dpgmm.tables.checks import is_sparse, listed
from pymc_dpgmm.tables.names import is_one_name

# Largest number of columns in a plot of pairs, and the number shown by default.
MOST_COLUMNS = 6
_MOST_BY_DEFAULT = 4
# Width and height of a panel in inches: three panels side by side fit a page without being shrunk. Then the width
# of a legend in inches, and the number of panels side by side.
PANEL = (2.9, 2.7)
_LEGEND = 1.0
_IN_A_ROW = 3
# Letters per inch, inches that an axis takes for its tick labels, and the largest number of names on an axis.
_LETTERS_PER_INCH, _OF_AXIS, _MOST_NAMES = 11.0, 0.7, 25
# Names up to this length are not rotated; instead only every second or third is written.
_SHORT = 3


class Pairs(NamedTuple):
    """Pairs of columns, with None as the second of a single column, and the title of the plot."""

    pairs: list[tuple[int, int | None]]
    title: str


def chosen_pairs(draws: MixtureDraws, view: NamedView, columns: Any, data: Any, labels: np.ndarray) -> Pairs:
    """Return the pairs of columns to show: those that a user has chosen, or those in which clusters differ most.

    Parameters
    ----------
    draws : MixtureDraws
    view : NamedView
    columns : sequence of str or int, or None
    data : (n, d) array or sparse matrix
    labels : (n,) integer array
        Clusters of the rows.

    Raises
    ------
    ValueError
        If more than MOST_COLUMNS are chosen.
    """
    names, title = view.column_names, ""
    if columns is not None:
        chosen = view.positions(columns)
        if len(chosen) > MOST_COLUMNS:
            raise ValueError(
                f"pairs of {len(chosen)} columns are too many to see; choose at most {MOST_COLUMNS} with columns="
                f"{listed(names)}"
            )
    elif view.d > _MOST_BY_DEFAULT:
        order = np.argsort(-separation(view, data, labels), kind="stable")
        chosen = sorted(order[:_MOST_BY_DEFAULT].tolist())
        title = f"the {_MOST_BY_DEFAULT} of {view.d} columns in which clusters differ most; columns= shows others"
    else:
        chosen = list(range(view.d))
    if len(chosen) == 1:
        return Pairs([(chosen[0], None)], title)
    return Pairs(list(combinations(chosen, 2)), title)


def separation(view: NamedView, data: Any, labels: np.ndarray) -> np.ndarray:
    """Return for each column the share of its variance, 0 to 1, that is between clusters: (d,) array.

    For categories it is the share of the variance of all indicators together (Goodman and Kruskal's tau).
    """
    levels = view.levels or [None] * view.d
    member = np.equal.outer(np.arange(labels.max() + 1), labels).astype(np.float64)
    if is_sparse(data):
        squares = np.asarray(data.power(2).sum(axis=0)).ravel()
        between, total = _squares(member @ data, member.sum(axis=1)[:, None], squares)
        return np.where(total > 0.0, between / np.where(total > 0.0, total, 1.0), 0.0)
    shares = np.zeros(view.d)
    for j in range(view.d):
        values = data[:, [j]]
        there = ~np.isnan(values)
        levels_of_column = levels[j]
        if levels_of_column is not None:
            values = np.equal(values, np.arange(len(levels_of_column))).astype(np.float64)
        values = np.where(there, values, 0.0)
        # Centred values, so that sums of squares do not lose digits.
        values = np.where(there, values - values.sum(axis=0) / max(there.sum(), 1), 0.0)
        between, total = _squares(member @ values, member @ there, (values**2).sum(axis=0))
        shares[j] = between.sum() / total.sum() if total.sum() > 0.0 else 0.0
    return shares


def _squares(sums: np.ndarray, counts: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of squares between clusters and in total, from sums and counts (K, q) and squares (q,)."""
    middle = sums.sum(axis=0) ** 2 / max(counts.sum(), 1.0)
    return (sums**2 / np.maximum(counts, 1.0)).sum(axis=0) - middle, squares - middle


def rows_shown(draws: MixtureDraws, view: NamedView) -> tuple[Any, str]:
    """Return the rows (n, d) that a plot of clusters shows, and a note for axis labels, empty for data.

    Latent rows, and residuals from a random offset, differ between draws. They are shown at posterior means.
    """
    if not view.is_drawn:
        return view.data(0, completed=False), ""
    n = draws.numbers.n_draws
    return sum(view.data(s, completed=False) for s in range(n)) / n, "posterior mean"


def column_labels(view: NamedView, names: Sequence[Any], what: str) -> list[str]:
    """Return axis labels of columns, with a note ``what`` in parentheses."""
    labels = [f"{view.name}[{name}]" if isinstance(name, int) else str(name) for name in names]
    return [f"{name} ({what})" if what else name for name in labels]


def grid_size(count: int) -> tuple[int, int, tuple[float, float]]:
    """Return the numbers of rows and columns of panels, and the size in inches of a figure with a legend."""
    if count == 1:
        return 1, 1, (6.0, 4.0)
    across = min(_IN_A_ROW, count)
    down = -(-count // across)
    return down, across, (PANEL[0] * across + _LEGEND, PANEL[1] * down + 0.4)


def places(view: NamedView, column: int, values: Any) -> np.ndarray:
    """Return positions on an axis for values of a column: the numbers, or the codes of categories."""
    levels = view.levels[column] if view.levels is not None else None
    values = np.asarray(values)
    if levels is None:
        return values
    codes = {str(level): code for code, level in enumerate(levels)}
    return np.array([codes[str(value)] for value in values.tolist()])


def name_ticks(axis: Any, view: NamedView, column: int, beside: float = 0.0) -> None:
    """Label the ticks of categories with their names; other discrete columns have ticks at integers.

    Parameters
    ----------
    axis : matplotlib.axis.Axis
        Call this for the y axis first: its names take space from the x axis.
    view : NamedView
    column : int
    beside : float
        Inches that a legend or a colour bar takes beside the panel.
    """
    if not view.family.component.is_discrete:
        return
    names = view.categories and view.categories[column]
    if not names:
        axis.get_major_locator().set_params(integer=True)
        return
    room = _letters(axis.axes, beside) if axis.axis_name == "x" else np.inf
    longest, fitting = max(map(len, names)), _MOST_NAMES
    if longest <= _SHORT and np.isfinite(room):
        fitting = int(room / (longest + 1))
    shown = range(0, len(names), 1 + (len(names) - 1) // max(min(fitting, _MOST_NAMES), 1))
    axis.set_ticks(shown, [names[code] for code in shown])
    axis.set_tick_params(length=0)
    if sum(len(names[code]) + 1 for code in shown) > room:
        for text in axis.get_ticklabels():
            text.set(rotation=35, ha="right", rotation_mode="anchor")


def _letters(axes: Any, beside: float) -> float:
    """Return the number of letters that fit below a panel."""
    grid = axes.get_gridspec()
    inches = axes.figure.get_figwidth() / (1 if grid is None else grid.ncols) - _OF_AXIS - beside
    names = max((len(text.get_text()) for text in axes.get_yticklabels()), default=0)
    return max(_LETTERS_PER_INCH * inches - names, 1.0)


def regression_of(view: NamedView) -> tuple[np.ndarray, list[str]] | None:
    """Return the covariates (n, p) of a regression in each cluster, and their names; None for other families."""
    for field, letter in view.family.given.items():
        if letter == "p" and view.family.component.axes.get("coefficients") == "p":
            values = np.asarray(view.given[field], dtype=np.float64)
            values = values.reshape(len(values), -1)
            names = view.given_names.get(field) or [f"covariate {j}" for j in range(values.shape[1])]
            return values, [str(name) for name in names]
    return None


def chosen_covariates(values: np.ndarray, names: Sequence[str], columns: Any) -> tuple[list[int], str]:
    """Return the covariates to show, by default the first three that vary, and the title of the plot.

    Raises
    ------
    ValueError
        If there is no covariate of a chosen name. The message lists the covariates.
    """
    if columns is None:
        varying = [j for j in range(values.shape[1]) if np.ptp(values[:, j]) > 0.0] or [0]
        is_cut = len(varying) > _IN_A_ROW
        title = f"{_IN_A_ROW} of {len(varying)} covariates; columns= shows others"
        return varying[:_IN_A_ROW], title if is_cut else ""
    chosen = []
    for column in [columns] if is_one_name(columns) else columns:
        if str(column) in names:
            chosen.append(list(names).index(str(column)))
        elif isinstance(column, int | np.integer) and 0 <= column < len(names):
            chosen.append(int(column))
        else:
            raise ValueError(f"there is no covariate {column!r}, only {listed(names)}")
    if not chosen or len(chosen) > MOST_COLUMNS:
        raise ValueError(f"columns must be one to {MOST_COLUMNS} of the covariates {listed(names)}")
    return chosen, ""
