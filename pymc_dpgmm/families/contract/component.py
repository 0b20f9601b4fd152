"""The distribution of the rows of a cluster given its parameters, and draws of these given the rows."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_dpgmm.native.arithmetic import LEAST_GAMMA

# Drawn parameters of clusters by name; the first axis is that of the clusters.
DrawnValues = dict[str, np.ndarray]


def _as_drawn(drawn: DrawnValues, origin: Any) -> DrawnValues:
    return drawn


@dataclass(frozen=True)
class Component:
    """The part of a family that works with the parameters of clusters, instead of integrating over them.

    Drawn parameters are a dict of arrays whose first axis is that of the clusters.

    Parameters
    ----------
    axes : dict of str to str
        Names of the parameters, and a letter for each of their dimensions, as in :class:`Family`.
    draw : callable
        ``(rng, params, summary) -> drawn``: one draw from the posterior of the parameters of every cluster of a
        summary. For clusters without rows the posterior is the base measure itself.
    draw_rows : callable
        ``(rng, drawn, labels, given) -> rows``: (n, d), row i from the cluster ``labels[i]``; ``given`` holds the
        last columns of the values.
    log_density : callable
        ``(drawn, values) -> (n, K) array``: log densities of all rows in all clusters. Entries that are missing
        (NaN) are left out.
    quadratic : callable or None
        ``(drawn) -> (mean, root)``: (K, d), and upper triangles (K, d, d) or diagonals (K, d), where the log
        density of a row without gaps is ``log |root| - |root (x - mean)|^2 / 2 - d log(2 pi) / 2``. Rows are in
        the form that ``represent`` of the family makes, and parameters are drawn for these.
    given_columns : callable or None
        ``(drawn, values) -> (mean, root)``: the same for rows whose mean, (K, n, d), depends on their known
        columns.
    restore : callable
        ``(drawn, origin) -> drawn``: undoes what ``represent`` of the family has done to the data.
    mean : callable or None
        ``(drawn, values) -> (n, K, d) array`` or (1, K, d): expected entries of rows in each cluster, given those
        entries of ``values`` that are known. Unknown ones are NaN. None for categories, which have no mean. Of
        circular rows it is the expected unit vector as a complex number.
    is_discrete, bounds
        Whether rows are whole numbers, and the least and the largest value. The least positive normal number
        stands for 0 where 0 itself is no value.
    is_circular : bool
        Whether rows are directions, angles in [-pi, pi] of which both ends are the same.
    directions : tuple of str
        Names of the parameters that are such angles: results average them as directions.
    draw_unknown : callable or None
        ``(rng, drawn, labels, values) -> (n, d) array``: the unknown entries of rows, drawn given the known ones;
        the others may be anything. Needed where the columns of a cluster tell of each other. ``drawn`` are then
        parameters of a predictive: see :class:`Family`.

    cdf : callable or None
        ``(drawn, values, j, points) -> (m, K, g) array`` or (1, K, g): the probability in each cluster that entry
        ``j`` of a row is at most as large as each of its points (m, g), given those entries of ``values`` that are
        known. Unknown ones are NaN. None where it has no closed form.

    Examples
    --------
    The component of a base measure:

    >>> import pymc_dpgmm as dp
    >>> dp.GammaPoisson.family.component.axes
    {'rate': 'd'}
    """

    axes: dict[str, str]
    draw: Callable[[np.random.Generator, Any, Any], DrawnValues]
    draw_rows: Callable[[np.random.Generator, DrawnValues, np.ndarray, np.ndarray], np.ndarray]
    log_density: Callable[[DrawnValues, Any], np.ndarray]
    quadratic: Callable[[DrawnValues], tuple[np.ndarray, np.ndarray]] | None = None
    is_discrete: bool = False
    bounds: tuple[float, float] = (-math.inf, math.inf)
    is_circular: bool = False
    directions: tuple[str, ...] = ()
    restore: Callable[[DrawnValues, Any], DrawnValues] = _as_drawn
    given_columns: Callable[[DrawnValues, np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None
    mean: Callable[[DrawnValues, np.ndarray], np.ndarray] | None = None
    draw_unknown: Callable[[np.random.Generator, DrawnValues, np.ndarray, np.ndarray], np.ndarray] | None = None
    cdf: Callable[[DrawnValues, np.ndarray, int, np.ndarray], np.ndarray] | None = None

    @property
    def normal_rows(self) -> Callable[[DrawnValues, np.ndarray], tuple[np.ndarray, np.ndarray]] | None:
        """``(drawn, values) -> (mean, root)`` where rows of a cluster are normal, otherwise None.

        Means are (K, n, d), or (K, 1, d) where they are the same for all rows; roots are those of ``quadratic``.
        """
        quadratic = self.quadratic
        if self.given_columns is not None or quadratic is None:
            return self.given_columns

        def without_columns(drawn: DrawnValues, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            mean, root = quadratic(drawn)
            return mean[:, None, :], root

        return without_columns


def restore_mean(drawn: DrawnValues, origin: np.ndarray) -> DrawnValues:
    """Return drawn parameters whose ``mean`` is not relative to ``origin`` any more."""
    return drawn | {"mean": drawn["mean"] + origin}


def if_present(x: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """Return the terms (n, K) of a column's entries (n,), 0 where these are missing."""
    missing = np.isnan(x)
    return np.where(missing[:, None], 0.0, terms) if missing.any() else terms


def _draw_normal_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: Any) -> np.ndarray:
    mean, deviation = drawn["mean"][labels], np.sqrt(drawn["variance"])[labels]
    return mean + deviation * rng.standard_normal(mean.shape)


def _log_normal_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    total = np.zeros((len(values), len(drawn["mean"])))
    for x, mean, variance in zip(values.T, drawn["mean"].T, drawn["variance"].T, strict=True):
        total += if_present(
            x, -0.5 * ((x[:, None] - mean) ** 2 / variance + np.log(variance) + math.log(2.0 * math.pi))
        )
    return total


def normal_cdf(points: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return normal probabilities (m, K, g) below points (m, g), of means and deviations (m, K) or (1, K)."""
    from scipy.special import ndtr

    found: np.ndarray = ndtr((points[:, None, :] - mean[:, :, None]) / deviation[:, :, None])
    return found


def _cdf_of_column(drawn: DrawnValues, values: np.ndarray, j: int, points: np.ndarray) -> np.ndarray:
    return normal_cdf(points, drawn["mean"][None, :, j], np.sqrt(drawn["variance"])[None, :, j])


def normal_component(draw: Callable[[np.random.Generator, Any, Any], DrawnValues]) -> Component:
    """Return the component of rows with independent normal columns.

    ``draw`` is that of the component, and gives ``mean`` and ``variance``: (K, d) each.
    """
    return Component(
        axes={"mean": "d", "variance": "d"},
        draw=draw,
        draw_rows=_draw_normal_rows,
        log_density=_log_normal_density,
        quadratic=lambda drawn: (drawn["mean"], 1.0 / np.sqrt(drawn["variance"])),
        restore=restore_mean,
        mean=lambda drawn, values: drawn["mean"][None],
        cdf=_cdf_of_column,
    )


def draw_gammas(rng: np.random.Generator, shape: np.ndarray, size: int | None = None) -> np.ndarray:
    """Draw standard gamma numbers, none below ``LEAST_GAMMA``: under vague priors many would be 0."""
    return np.maximum(rng.standard_gamma(shape, size=size), LEAST_GAMMA)


def draw_dirichlet(rng: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """Draw one probability vector for each of several vectors of weights: (K, d)."""
    return np.array([rng.dirichlet(own) for own in weights]).reshape(weights.shape)
