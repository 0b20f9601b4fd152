r"""Translations: a number that rows share moves, and whatever the rows have of their own moves with it.

An intercept :math:`u` can take the place of the level of latent rows, or of the atoms of a Dirichlet process: only
their priors tell them apart. So all of these move by the same vector when :math:`u` moves,

.. math:: u \to u + \delta, \qquad x_i \to x_i + c \, \delta,

with a :math:`c` that does not depend on them, and :math:`\delta` is drawn by a slice: the map has the Jacobian 1.

In tuning, :math:`c` is learnt: the direction in which the gradient of the density in the vector does not change.
By column it is :math:`- \sum \partial^2 f / \partial x \, \partial u \, / \sum \partial^2 f / \partial x^2`, where
:math:`f` is the log density with all rows moved by :math:`x`, and the sums are over draws. For an intercept it is
-1.
"""

from collections.abc import Callable

import numpy as np

from pymc_dpgmm.sampler.hyperparameters.slices import draw_slice, learnt_width

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
    density: Callable[[np.ndarray], np.ndarray],
    values: np.ndarray,
    place: tuple[int, ...],
    reach: np.ndarray,
    step: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return second differences of a density in a shared number and a shift, and in the shift alone: (d,) each.

    Parameters
    ----------
    density : callable
        Of shifts (m, d), at the shared numbers as they are in ``values``: (m,).
    values : array
        Changed meanwhile.
    place : tuple of int
    reach : (d,) array
        Steps of the shift.
    step : float
        Of the number.
    """
    d, before = len(reach), float(values[place])
    sides = np.diag(reach)
    shifts = np.concatenate([sides, -sides, np.zeros((1, d))])
    pure = density(shifts)
    slopes = []
    for side in (1.0, -1.0):
        values[place] = before + side * step
        at_sides = density(shifts[: 2 * d])
        slopes.append(at_sides[:d] - at_sides[d:])
    values[place] = before
    mixed = (slopes[0] - slopes[1]) / (4.0 * step * reach)
    return mixed, (pure[:d] + pure[d : 2 * d] - 2.0 * pure[-1]) / reach**2


def translate(
    rng: np.random.Generator,
    values: np.ndarray,
    place: Place,
    log_density: Callable[[np.ndarray], float],
    directions: Directions,
    tuning: bool,
) -> tuple[np.ndarray, int]:
    """Draw one shared number, and return by how much everything moves with it: (d,).

    Returns also at how many numbers the log density was +inf or NaN.

    Parameters
    ----------
    rng : numpy.random.Generator
    values : array
        The shared numbers of one variable, of which one changes.
    place : Place
    log_density : callable
        Of a shift (d,), with the numbers as they are in ``values``. Its last call is at what is drawn.
    directions : Directions
    tuning : bool
    """
    (_, at), direction = place, directions.of(place)
    before = float(values[at])

    def at_number(u: float) -> float:
        values[at] = u
        return log_density(direction * (u - before))

    log_p = at_number(before)
    if not -np.inf < log_p < np.inf:
        return np.zeros_like(direction), int(not log_p < np.inf)
    width = directions.width(place)
    sliced = draw_slice(rng, at_number, before, log_p, width)
    if tuning:
        directions.widths[place] = learnt_width(width, sliced.length)
    return direction * (sliced.drawn - before), sliced.n_impossible
