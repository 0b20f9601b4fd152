"""Places where integrands are large: their location and scale, and t distributions about them."""

import numpy as np
from scipy.special import gammaln

# Weights are tempered until so many points count for each dimension, but not more often than _MOST_TEMPERED times.
# Scales are a little wider than the points.
_LEAST_WORTH, _TEMPERED, _MOST_TEMPERED, _WIDER = 6.0, 0.5, 60, 1.2


class Centre:
    """A location (n, D) for each row, with a scale (n, D, D), a lower triangular matrix."""

    def __init__(self, location: np.ndarray, root: np.ndarray) -> None:
        self._location, self._root = location, root
        self._inverse = np.linalg.inv(root)
        self.log_scale = np.log(np.abs(np.diagonal(root, axis1=1, axis2=2))).sum(axis=1)

    @classmethod
    def of_draws(cls, drawn: np.ndarray, n: int) -> "Centre":
        """Make the centre of the base measure from draws: their medians, and half the range of the middle 68%."""
        low, middle, high = np.quantile(drawn, [0.16, 0.5, 0.84], axis=0)
        spread = np.maximum(0.5 * (high - low), np.finfo(np.float64).tiny)
        return cls(np.tile(middle, (n, 1)), np.tile(np.diag(spread), (n, 1, 1)))

    @classmethod
    def of_precisions(cls, location: np.ndarray, precisions: np.ndarray) -> "Centre":
        """Make the centre of a Laplace approximation."""
        return cls(location, np.linalg.cholesky(np.linalg.inv(precisions)))

    @classmethod
    def of_weighed(cls, points: np.ndarray, log_weights: np.ndarray) -> "Centre":
        """Make a centre with the moments of weighed points (m, n, D), tempered where few of them count."""
        d, is_possible = points.shape[2], np.isfinite(log_weights)
        # Where few points are possible at all, these few count.
        least = np.minimum(_LEAST_WORTH * (d + 1), 0.9 * is_possible.sum(axis=0))
        log_weights = np.where(is_possible, log_weights, -np.inf)
        largest = log_weights.max(axis=0)
        relative = np.where(np.isfinite(largest), log_weights - largest, 0.0)
        powers = np.ones(points.shape[1])
        for _ in range(_MOST_TEMPERED):
            weights = np.exp(powers * relative)
            is_poor = weights.sum(axis=0) ** 2 < least * (weights**2).sum(axis=0)
            if not is_poor.any():
                break
            powers = np.where(is_poor, _TEMPERED * powers, powers)
        weights = weights / weights.sum(axis=0)
        location = np.einsum("mn,mnd->nd", weights, points)
        away = points - location
        covariance = np.empty((len(location), d, d))
        for i in range(d):
            for j in range(i + 1):
                covariance[:, i, j] = covariance[:, j, i] = (weights * away[:, :, i] * away[:, :, j]).sum(axis=0)
        # A covariance of draws that are alike has no root.
        total = np.maximum(np.trace(covariance, axis1=1, axis2=2), 1e-12)
        covariance += 1e-12 * np.eye(d) * total[:, None, None]
        return cls(location, _WIDER * np.linalg.cholesky(covariance))

    def at(self, location: np.ndarray) -> "Centre":
        """Return a centre at another location, with the same scales."""
        return Centre(location, self._root)

    @property
    def root(self) -> np.ndarray:
        """Scale of each row: (n, D, D)."""
        return self._root

    @property
    def location(self) -> np.ndarray:
        """Location of each row: (n, D)."""
        return self._location

    @property
    def variances(self) -> np.ndarray:
        """Variance of each coordinate: (n, D)."""
        return (self._root**2).sum(axis=2)

    def placed(self, standard: np.ndarray) -> np.ndarray:
        """Return standard points (m, D) scaled and moved to the centre of each row: (m, n, D)."""
        return self._location + _turned(self._root, standard[:, None])

    def log_t(self, points: np.ndarray, degrees: float) -> np.ndarray:
        """Return the log density of the t distribution: (m, n)."""
        d = self._location.shape[1]
        norm = gammaln(0.5 * (degrees + d)) - gammaln(0.5 * degrees) - 0.5 * d * np.log(degrees * np.pi)
        return norm - 0.5 * (degrees + d) * np.log1p(self.distances(points) / degrees) - self.log_scale

    def distances(self, points: np.ndarray) -> np.ndarray:
        """Return squared distances of points (m, n, D) from the centre, in its scale: (m, n)."""
        return (_turned(self._inverse, points - self._location) ** 2).sum(axis=2)


def _turned(matrices: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return products of a matrix for each row, (n, D, D), and points (m, n or 1, D): (m, n, D)."""
    d = matrices.shape[1]
    found = np.zeros((len(points), *matrices.shape[:2]))
    # A few passes over long arrays: D is small, and the matrices are triangular.
    for i in range(d):
        for j in range(i + 1):
            found[:, :, i] += matrices[:, i, j] * points[:, :, j]
    return found
