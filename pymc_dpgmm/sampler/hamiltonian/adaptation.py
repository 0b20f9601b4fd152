r"""What Hamiltonian moves learn in tuning: the size of a step, and the scale of each number.

The size is that of dual averaging (Nesterov 2009; Hoffman and Gelman 2014, section 3.2). Scales are

.. math:: s_j = \left( \frac{\operatorname{var} q_j}{\operatorname{var} g_j} \right)^{1/4}

for numbers q and gradients g of the log density: the standard deviation where a density is normal, and for any
other what makes numbers and gradients alike (Seyboldt, Carlson and Carpenter 2024). Each is learnt from the
draws of a window, whose length doubles. Where there are more clusters, the density bends more in what their base
measure depends on: scales are divided by the root of the curvature there, relative to its mean.

Where two parts of a model have a level each, or a size, numbers vary together much more than each of them does
given the others. Such :class:`Directions` are the first principal components of the draws of a window, in units
of the scales, as far as they stand out from what chance makes of so few draws (the edge
:math:`(1 + \sqrt{p / n})^2` of Marchenko and Pastur 1967): a metric of low rank (Bales et al. 2019). Scales are
then those of what varies beside them. A third of the standard deviation is taken, since what is learnt of a
direction is off by chance, and what is taken is that much too long in all others: three standard deviations are
within reach of a trajectory.
"""

import math
from typing import Any

import numpy as np

# The constants of Hoffman and Gelman (2014).
GAMMA, T_0, KAPPA = 0.05, 10.0, 0.75
FIRST_SIZE = 0.1
# Steps become shorter for ever where a gradient is not a number.
LEAST_SIZE = 1e-10
FIRST_WINDOW = 10
# The share of tuning after which scales stay.
SHARE_OF_SCALES = 0.85
# Bounds of a scale, relative to 1, and where there is nothing to learn from.
LEAST_SCALE, LARGEST_SCALE = 1e-10, 1e10
# Bounds of the curvature where there are more or fewer clusters, relative to its mean.
LEAST_CURVATURE, LARGEST_CURVATURE = 0.5, 8.0
# Of squares of gradients, relative to their mean.
LARGEST_SQUARE = 9.0
# Draws from which directions are learnt, at least and at the most; the variance along one, at least, relative to
# scales and to what chance makes; how many directions there are, and numbers, at the most.
FEWEST_DRAWS, MOST_DRAWS, LEAST_VARIANCE, STANDS_OUT, MOST_DIRECTIONS, MOST_NUMBERS = 40, 300, 16.0, 2.0, 4, 3_000
# The share of a standard deviation along a direction that is taken.
TAKEN = 1.0 / 3.0
POWER_ITERATIONS = 30
# The share of a variance that is left beside directions, at least.
LEAST_LEFT = 1e-4


class StepSize:
    """The size of a leapfrog step.

    Parameters
    ----------
    wanted : float
        The mean acceptance rate.

    Attributes
    ----------
    size : float
        Of the next move.
    """

    def __init__(self, wanted: float) -> None:
        self._wanted = wanted
        self.size = FIRST_SIZE
        self.restart()

    def restart(self) -> None:
        """Begin anew at the present size, since scales have changed."""
        self.size = max(self.size, LEAST_SIZE)
        self._target, self._sum, self._t = math.log(10.0 * self.size), 0.0, 0
        self._log_average = math.log(self.size)

    def learn(self, acceptance_rate: float) -> None:
        """Take the acceptance rate of a move into account."""
        self._t += 1
        self._sum += self._wanted - acceptance_rate
        log_size = self._target - math.sqrt(self._t) / GAMMA * self._sum / (self._t + T_0)
        share = self._t**-KAPPA
        self._log_average += share * (log_size - self._log_average)
        self.size = max(math.exp(log_size), LEAST_SIZE)

    def end(self) -> None:
        """Keep the average of the sizes, if any was learnt."""
        self.size = math.exp(self._log_average)


class AdaptedScales:
    """Scales of numbers.

    Parameters
    ----------
    n : int
    tune : int
        Draws of tuning.

    Attributes
    ----------
    scales : (n,) array
    observations : (n,) array
        Where a normal density with these scales, and the mean gradient of the draws at their mean, has its mode:
        pseudo-observations of numbers of which the gradient is that of a likelihood. None before the first draw.
    """

    def __init__(self, n: int, tune: int) -> None:
        self.scales = np.ones(n)
        self.observations: np.ndarray | None = None
        # How squares of gradients, relative to their mean, grow with the number of clusters, from its mean on.
        self._slopes, self._middle = np.zeros(n), 0.0
        self._end, self._n_drawn, self._window = SHARE_OF_SCALES * tune, 0, FIRST_WINDOW
        self._begin()

    def _begin(self) -> None:
        n = len(self.scales)
        self._n, self._means, self._squares = 0, np.zeros((2, n)), np.zeros((2, n))
        # Sums of squares of gradients, and of these times numbers of clusters; of such numbers, and their squares.
        self._curvatures, self._clusters = np.zeros((2, n)), np.zeros(2)

    def at(self, n_clusters: int) -> np.ndarray:
        """Return the scales where there are so many clusters.

        Given their number, the mean square of a gradient is the mean curvature of the log density.
        """
        relative = 1.0 + self._slopes * (n_clusters - self._middle)
        return self.scales / np.sqrt(np.clip(relative, LEAST_CURVATURE, LARGEST_CURVATURE))

    def learn(self, numbers: np.ndarray, gradient: np.ndarray, n_clusters: int = 0) -> bool:
        """Take a draw into account; tell whether the scales have changed."""
        self._n_drawn += 1
        if self._n_drawn > self._end:
            return False
        seen = np.array([numbers, gradient])
        self._n += 1
        offset = seen - self._means
        self._means += offset / self._n
        self._squares += offset * (seen - self._means)
        square = gradient**2
        if self._n > FIRST_WINDOW:
            # A few large ones would be a slope by themselves.
            square = np.minimum(square, LARGEST_SQUARE * self._curvatures[0] / (self._n - 1))
        self._curvatures += np.array([square, n_clusters * square])
        self._clusters += n_clusters, n_clusters**2
        if self._n < self._window and self._n_drawn + 1 <= self._end:
            return False
        # A last window that is short would know less than the one before.
        is_long = self._n >= 0.5 * self._window
        if is_long:
            self._update()
        self._window *= 2
        self._begin()
        return is_long

    def _update(self) -> None:
        of_numbers, of_gradients = self._squares
        with np.errstate(divide="ignore", invalid="ignore"):
            scales = (of_numbers / of_gradients) ** 0.25
        is_known = np.isfinite(scales) & (scales > 0.0)
        self.scales = np.clip(np.where(is_known, scales, self.scales), LEAST_SCALE, LARGEST_SCALE)
        squares, products = self._curvatures / self._n
        self._middle, of_clusters = self._clusters / self._n
        variance = of_clusters - self._middle**2
        if variance > 0.0:
            with np.errstate(divide="ignore", invalid="ignore"):
                self._slopes = np.nan_to_num(
                    (products - self._middle * squares) / (variance * squares), posinf=0.0
                )
        mean, slope = self._means
        self.observations = mean + self.scales**2 * slope


class Directions:
    """Directions in which numbers vary together more than each does given the others.

    Parameters
    ----------
    tune : int
        Draws of tuning.

    Attributes
    ----------
    found : (r, n) array
        How far numbers reach along each.
    """

    def __init__(self, tune: int) -> None:
        self.found = np.empty((0, 0))
        self._end, self._n_drawn, self._seen = SHARE_OF_SCALES * tune, 0, list[np.ndarray]()

    def learn(self, numbers: np.ndarray) -> None:
        """Take a draw of the numbers (n,) into account."""
        self._n_drawn += 1
        if len(numbers) <= MOST_NUMBERS and self._n_drawn <= self._end:
            self._seen.append(numbers)

    def update(self, scales: np.ndarray) -> np.ndarray:
        """Find the directions of the draws since the last time, given the scales (n,) of the numbers.

        Returns
        -------
        (n,) array
            The scales of what varies beside the directions.
        """
        seen, self._seen = np.array(self._seen[:: 1 + len(self._seen) // MOST_DRAWS]), []
        if len(seen) < FEWEST_DRAWS:
            return scales
        relative = (seen - seen.mean(axis=0)) / scales
        of_all, of_directions = (relative**2).mean(axis=0), np.zeros(len(scales))
        least = max(LEAST_VARIANCE, STANDS_OUT * (1.0 + math.sqrt(relative.shape[1] / len(seen))) ** 2)
        found: list[np.ndarray] = []
        while len(found) < MOST_DIRECTIONS:
            variance, unit = _principal_component(relative)
            if variance <= least:
                break
            found.append(TAKEN * math.sqrt(variance) * unit * scales)
            of_directions += variance * unit**2
            relative -= np.outer(relative @ unit, unit)
        self.found = np.reshape(found, (-1, len(scales)))
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.clip(1.0 - of_directions / of_all, LEAST_LEFT, 1.0)
        narrowed: np.ndarray = scales * np.nan_to_num(left, nan=1.0) ** 0.25
        return narrowed


def _principal_component(numbers: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the largest variance of centred numbers (n, p) along any direction, and this, by power iterations.

    A matrix decomposition would take as long as hundreds of draws where chains share the cores.
    """
    unit: Any = np.random.default_rng(0).normal(size=numbers.shape[1])
    for _ in range(POWER_ITERATIONS):
        unit = np.dot(numbers @ unit, numbers)
        # Numbers that all stay have no direction.
        unit = unit / max(math.sqrt(np.dot(unit, unit)), LEAST_SCALE)
    along = numbers @ unit
    return float(along @ along) / len(numbers), unit


def stretched(displacements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Return orthonormal directions (r, n), and by how much numbers are stretched along them, less one: (r,).

    Along displacements that are orthogonal, standard normal numbers then vary by their lengths more.
    """
    directions, stretches = np.zeros_like(displacements), np.zeros(len(displacements))
    for r, own in enumerate(displacements):
        own = own - (directions[:r] @ own) @ directions[:r]
        length = math.sqrt(own @ own)
        if length > 0.0:
            directions[r], stretches[r] = own / length, math.sqrt(1.0 + length**2) - 1.0
    return directions, stretches
