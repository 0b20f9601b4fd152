r"""Translations of all latent rows: a number that they share moves with them, and with the mean of their base.

An intercept :math:`u` beside latent rows can take the place of the rows' own level, which is the mean :math:`m` of
the base measure: only their priors tell them apart. So all rows move by the same vector when :math:`u` moves,

.. math:: u \to u + \delta, \qquad x_i \to x_i + c \, \delta, \qquad m \to m + c \, \delta,

with a :math:`c` that does not depend on them. The map has the Jacobian 1, and the density of rows whose clusters
have their parameters integrated out stays the same, since it depends on :math:`x_i - m` alone: so :math:`\delta`
is drawn by a slice from the density of the rest of the model. Where :math:`m` is no variable of its own, it stays,
and what the clusters say of the rows counts too.

In tuning, :math:`c` is learnt: the direction in which the gradient of the rest of the model in the rows, summed
over them, does not change. By column it is :math:`- \sum_i \partial^2 f_i / \partial x_i \partial u \, / \sum_i
\partial^2 f_i / \partial x_i^2`, where the sums are over draws too. For an intercept it is -1.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dpgmm.sampler.hyperparameters.slices import draw_slice, learnt_width
from pymc_dpgmm.sampler.latent_rows.expansions import Density
from pymc_dpgmm.sampler.state.state import State

# A step of differences, beside the width of slices of a number and how far rows reach.
STEP = 0.03

# A number among variables: the name of one, and a place in it.
type Place = tuple[str, tuple[int, ...]]


class Directions:
    """What is learnt of translations while tuning, by the places of shared numbers.

    Parameters
    ----------
    d : int
        The number of columns.

    Attributes
    ----------
    widths : dict
        Of slices.
    """

    def __init__(self, d: int) -> None:
        self._d = d
        self.widths: dict[Place, float] = {}
        # Sums of mixed second differences, and of those in the rows: (2, d).
        self._sums: dict[Place, np.ndarray] = {}

    def width(self, place: Place) -> float:
        """Return the width of slices of a number."""
        return self.widths.get(place, 1.0)

    def of(self, place: Place) -> np.ndarray:
        """Return how far rows move for each unit of a number: (d,), zeros where nothing is known."""
        mixed, pure = self._sums.get(place, np.zeros((2, self._d)))
        return np.divide(-mixed, pure, out=np.zeros(self._d), where=pure < 0.0)

    def learn(self, place: Place, mixed: np.ndarray, pure: np.ndarray) -> None:
        """Take the second differences at a draw into account."""
        if np.isfinite(mixed).all() and np.isfinite(pure).all():
            self._sums.setdefault(place, np.zeros((2, self._d)))
            self._sums[place] += mixed, pure


def second_differences(
    density: Density, rows: np.ndarray, values: np.ndarray, place: tuple[int, ...], reach: np.ndarray, step: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return second differences in a shared number and rows, and in rows alone, summed over rows: (d,) each.

    Parameters
    ----------
    density : callable
        Of rows (m, n, d), at the shared numbers as they are in ``values``.
    rows : (n, d) array
    values : array
        Changed meanwhile.
    place : tuple of int
    reach : (d,) array
        Steps in the rows.
    step : float
        In the number.
    """
    d, before = rows.shape[1], float(values[place])
    sides = rows + reach[:, None, None] * np.eye(d)[:, None, :]
    sides = np.concatenate([sides, 2.0 * rows - sides, rows[None]])
    pure = density(sides).sum(axis=1)
    slopes = []
    for side in (1.0, -1.0):
        values[place] = before + side * step
        at_sides = density(sides[: 2 * d]).sum(axis=1)
        slopes.append(at_sides[:d] - at_sides[d:])
    values[place] = before
    mixed = (slopes[0] - slopes[1]) / (4.0 * step * reach)
    return mixed, (pure[:d] + pure[d : 2 * d] - 2.0 * pure[-1]) / reach**2


def translate(
    rng: np.random.Generator,
    state: State,
    v: int,
    values: np.ndarray,
    place: Place,
    place_rows: Callable[[np.ndarray, np.ndarray | None], float],
    moves_mean: bool,
    directions: Directions,
    tuning: bool,
) -> None:
    """Draw one shared number, and move all rows of a state with it.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    v : int
        The view of the rows.
    values : array
        The shared numbers of one variable, of which one changes.
    place : Place
    place_rows : callable
        Of rows (n, d) and the mean (d,) of the base measure, None if that stays: sets them in the model's point,
        and returns the log density of the model without the mixture.
    moves_mean : bool
        Whether the mean of the base measure moves too.
    directions : Directions
    tuning : bool
    """
    (_, at), table = place, state.tables[v]
    direction = directions.of(place)
    before, params = float(values[at]), table.params
    rows = np.array(table.values[:, : len(direction)], dtype=np.float64)

    def moved(u: float) -> tuple[np.ndarray, Any]:
        shift = direction * (u - before)
        return rows + shift, params._replace(mu=params.mu + shift) if moves_mean else None

    def log_density(u: float) -> float:
        values[at] = u
        shifted, others = moved(u)
        if others is not None:
            return place_rows(shifted, others.mu)
        state.take_rows(v, shifted)
        return state.log_joint() + place_rows(shifted, None)

    log_p = log_density(before)
    if not log_p > -np.inf:
        return
    width = directions.width(place)
    sliced = draw_slice(rng, log_density, before, log_p, width)
    shifted, others = moved(sliced.drawn)
    state.take_rows(v, shifted, params=others)
    if tuning:
        directions.widths[place] = learnt_width(width, sliced)
