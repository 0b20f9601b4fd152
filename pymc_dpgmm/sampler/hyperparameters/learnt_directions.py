"""Directions along which several numbers are drawn by slices: principal axes of their draws, learnt in tuning."""

import numpy as np

# Axes are learnt anew after this number of draws of tuning, and not before as many for each number.
LEARNT_EVERY, DRAWS_PER_NUMBER = 25, 4
# The width of the first slices along axes that have just been learnt, in standard deviations.
FIRST_WIDTH = 2.5
# The least standard deviation along an axis, beside the largest one.
LEAST_SHARE = 1e-6


class LearntDirections:
    """What is learnt of numbers while tuning; then it stays.

    Parameters
    ----------
    n : int

    Attributes
    ----------
    directions : (n, n) float64 array
        Each of its rows is a standard deviation along a principal axis; at first the axes are the numbers.
    widths : (n,) float64 array
        Of slices along these.
    """

    def __init__(self, n: int) -> None:
        self.directions, self.widths = np.eye(n), np.ones(n)
        self._n_learnt, self._mean, self._covariance = 0, np.zeros(n), np.zeros((n, n))

    def learn(self, numbers: np.ndarray) -> None:
        """Take a draw (n,) into account; later ones count more, as the first ones may be far off."""
        if not np.isfinite(numbers).all():
            return
        self._n_learnt += 1
        gain = min(0.5, 2.0 / self._n_learnt)
        moved = numbers - self._mean
        self._mean = self._mean + gain * moved
        self._covariance = self._covariance + gain * ((1.0 - gain) * np.outer(moved, moved) - self._covariance)
        if self._n_learnt % LEARNT_EVERY == 0 and self._n_learnt >= DRAWS_PER_NUMBER * len(numbers):
            self._take_axes()

    def _take_axes(self) -> None:
        variances, axes = np.linalg.eigh(self._covariance)
        if not variances[-1] > 0.0:
            # Nothing has moved.
            return
        sds = np.sqrt(np.maximum(variances, LEAST_SHARE**2 * variances[-1]))
        self.directions = np.ascontiguousarray((axes * sds).T)
        self.widths = np.full(len(sds), FIRST_WIDTH)
