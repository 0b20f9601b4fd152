"""Points at which densities are looked at."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pymc_dpgmm.posterior.arrays.mixtures import ViewDraws
from pymc_dpgmm.posterior.named_views import NamedView
from pymc_dpgmm.posterior.protocol import Draws
from pymc_dpgmm.tables.checks import is_sparse, listed
from pymc_dpgmm.tables.names import as_text, coordinates
from pymc_dpgmm.tables.rows import RowNames
from pymc_dpgmm.tables.table import Table

# Points on each axis of a default grid: for one column, and for two.
_ONE, _TWO = 200, 50
# How far beyond the data a grid reaches, as a share of their range.
_BEYOND = 0.1
# A grid over a latent column spans these quantiles of its draws.
_MIDDLE = (0.001, 0.999)
# The least value of what is positive, as families declare it.
SMALLEST_POSITIVE = float(np.finfo(np.float64).tiny)
# Names in the result of :func:`density` that no coordinate may have.
_NAMES_OF_A_DENSITY = ("mean", "lower", "upper", "point")


class Points(NamedTuple):
    """Points of a density.

    Parameters
    ----------
    values : (m, c) array or sparse matrix
        In stored form.
    dims : tuple of str
        Of a density at them.
    coords : dict
    rows : RowNames
        Their names.
    columns : list of str
    """

    values: Any
    dims: tuple[str, ...]
    coords: dict[str, Any]
    rows: RowNames
    columns: list[str]

    def result(self, mean: np.ndarray, lower: np.ndarray, upper: np.ndarray, probability: float) -> xr.Dataset:
        """Return densities at the points (m,), and the limits of their bands."""
        n = self.values.shape[0]
        shape = tuple(len(self.coords[dim]) for dim in self.dims) if len(self.dims) > 1 else (n,)
        return xr.Dataset(
            {
                "mean": (self.dims, mean.reshape(shape)),
                "lower": (self.dims, lower.reshape(shape)),
                "upper": (self.dims, upper.reshape(shape)),
            },
            coords=self.coords,
            attrs={"probability": probability, "columns": self.columns},
        )


def points_of(draws: Draws, view: NamedView, x: Any, chosen: Sequence[int]) -> Points:
    """Return points over columns at some positions."""
    names = view.column_names
    columns = [str(names[j]) for j in chosen]
    chosen_names = [names[j] for j in chosen]
    if x is None:
        if len(chosen) > 2:
            raise ValueError(
                f"there is no default grid for {len(chosen)} columns: pass points x, or choose one or two columns "
                f"with columns=, from {listed(chosen_names)}"
            )
        n = _ONE if len(chosen) == 1 else _TWO
        levels = [None if view.levels is None else view.levels[j] for j in chosen]
        # Of categories, the codes of all levels.
        axes = [
            grid(view, j, n, draws.numbers.n_draws) if of_column is None else np.arange(float(len(of_column)))
            for j, of_column in zip(chosen, levels, strict=True)
        ]
        shown = [
            axis if of_column is None else coordinates(of_column)
            for axis, of_column in zip(axes, levels, strict=True)
        ]
        if len(axes) == 1:
            return Points(axes[0][:, None], ("x",), {"x": shown[0]}, RowNames("x"), columns)
        points = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=1)
        dims = (coordinate_of(view, chosen_names[0]), coordinate_of(view, chosen_names[1]))
        return Points(points, dims, dict(zip(dims, shown, strict=True)), RowNames("x"), columns)
    of_chosen = view.of_columns(chosen)
    table = of_chosen.read_new(x, "x")
    points = of_chosen.codes(table)
    if not is_sparse(points) and not np.all(np.isfinite(points)):
        raise ValueError("x must be finite, got NaN or infinite values")
    rows = RowNames("x", table.rows)
    values = points if is_sparse(points) else table.values
    if len(chosen) == 1:
        return Points(points, ("x",), {"x": _shown(table, 0, values)}, rows, columns)
    coords = {
        coordinate_of(view, name): ("point", _shown(table, j, values)) for j, name in enumerate(chosen_names)
    }
    return Points(points, ("point",), coords, rows, columns)


def coordinate_of(view: NamedView, name: Any) -> str:
    """Return the coordinate for a column, with the name of the view where ``mean``, say, is taken."""
    text = as_text(name)
    return f"{view.name}_{text}" if text in _NAMES_OF_A_DENSITY else text


def _shown(table: Table, j: int, values: Any) -> np.ndarray:
    """Return a column of points as the user passed it, with text in place of codes."""
    levels = table.levels[j]
    column = values[:, [j]].toarray()[:, 0] if is_sparse(values) else values[:, j]
    return column if levels is None else np.array([levels[int(code)] for code in column])


# Integers that a grid has, at most.
MOST_INTEGERS = 5_000


def grid(view: ViewDraws, column: int, n: int, n_draws: int) -> np.ndarray:
    """Return ``n`` points over the range of a column (:func:`grid_over`).

    For latent rows it is the range of the draws without the most extreme ones.
    """
    values = view.column_values([column], n_draws)
    values = values[~np.isnan(values)]
    if view.is_drawn and len(values) and not view.family.component.is_discrete:
        values = np.quantile(values, _MIDDLE)
    return grid_over(values, view.family.component.is_discrete, view.family.component.bounds, n)


def grid_over(values: np.ndarray, is_discrete: bool, bounds: tuple[float, float], n: int) -> np.ndarray:
    """Return ``n`` points over the range of values and a little beyond, or integers in it if these are discrete.

    These are all integers, or up to ``MOST_INTEGERS`` of them at equal distances.
    """
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    if is_discrete:
        # Of many integers, some are looked at.
        return np.arange(low, high + 1.0, np.ceil((high - low + 1.0) / MOST_INTEGERS))
    beyond = _BEYOND * (high - low) or 1.0
    least, largest = bounds
    if least == SMALLEST_POSITIVE:
        # Of positive numbers 0 is none, and a density may have no limit there: half a step from it is.
        least = (high + beyond) / (2 * n)
    return np.linspace(max(low - beyond, least), min(high + beyond, largest), n)
