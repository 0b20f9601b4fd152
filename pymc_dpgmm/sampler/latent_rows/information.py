r"""What the rest of a model says of latent rows: a normal pseudo-observation of each, learnt in tuning.

The rest of a model gives row i the log density :math:`f_i`. The means :math:`\bar g_i` and :math:`\bar H_i` of its
gradients and second derivatives at the draws of tuning make

.. math:: \Lambda_i = -\bar H_i, \qquad y_i = \bar x_i + \Lambda_i^{-1} \bar g_i,

the normal density of which gradient and curvature are those of :math:`f_i` on average where the row is.
Derivatives are differences over a distance in the order of a row's standard deviation: what matters is the shape
of the density there, whether it has derivatives or not.
"""

import itertools
from collections.abc import Callable

import numpy as np

# The distance of differences, in standard deviations of a row; at least this part of a row's value, or of 1; and
# the standard deviation of a row of which nothing is known.
DISTANCE, LEAST_DISTANCE, FIRST_SPREAD = 0.7, 1e-4, 0.5
# Precisions are at least this, in units of a row's own, and are computed anew after so many draws.
LEAST_PRECISION, LEARNT_EVERY = 1e-3, 10


class RowInformation:
    """Pseudo-observations of rows, which tuning learns.

    Attributes
    ----------
    seen : (n, d) array
    known : (n, d (d + 1) / 2) array
        Lower triangles of their precisions.
    n_learnt : int
        Draws that were learnt from.
    """

    def __init__(self) -> None:
        self.seen, self.known, self.n_learnt = np.empty((0, 0)), np.empty((0, 0)), 0
        self._means: list[np.ndarray] = []

    def learn(self, rows: np.ndarray, log_density: Callable[[np.ndarray], np.ndarray]) -> None:
        """Learn from a draw; later ones count more, as the first ones may be far off.

        Parameters
        ----------
        rows : (n, d) array
        log_density : callable
            That of the rest of the model, (m, n), at rows (m, n, d).
        """
        if not self._means:
            n, d = rows.shape
            squares = np.full((n, d), FIRST_SPREAD**2)
            self._means = [rows.copy(), squares, np.zeros((n, d)), np.zeros((n, d, d))]
        self.n_learnt += 1
        gain = 2.0 / (self.n_learnt + 1)
        middle, squares, slope, bend = self._means
        least = LEAST_DISTANCE * np.maximum(1.0, np.abs(rows))
        # Rows, and places near them, may be impossible.
        with np.errstate(invalid="ignore", over="ignore"):
            slopes, bends = _derivatives(log_density, rows, np.maximum(DISTANCE * np.sqrt(squares), least))
        # Next to a bound of its support nothing is known of a row.
        is_known = np.isfinite(slopes).all(axis=1) & np.isfinite(bends).all(axis=(1, 2))
        slope[is_known] += gain * (slopes - slope)[is_known]
        bend[is_known] += gain * (bends - bend)[is_known]
        moved = rows - middle
        squares += min(gain, 0.5) * ((1.0 - min(gain, 0.5)) * moved**2 - squares)
        middle += gain * moved
        if self.n_learnt <= LEARNT_EVERY or self.n_learnt % LEARNT_EVERY == 0:
            self._conclude()

    def _conclude(self) -> None:
        """Compute the pseudo-observations."""
        middle, squares, slope, bend = self._means
        spreads = np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
        scaled = -bend * spreads[:, :, None] * spreads[:, None, :]
        values, vectors = np.linalg.eigh(scaled)
        scaled = np.einsum("nij,nj,nkj->nik", vectors, np.maximum(values, LEAST_PRECISION), vectors)
        precisions = scaled / (spreads[:, :, None] * spreads[:, None, :])
        self.seen = middle + np.linalg.solve(precisions, slope[:, :, None])[:, :, 0]
        i, j = np.tril_indices(precisions.shape[1])
        self.known = precisions[:, i, j]


def _derivatives(
    log_density: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, distances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return first and second derivatives, (n, d) and (n, d, d), by differences over distances (n, d)."""
    n, d = rows.shape
    steps = np.eye(d) * distances[:, None, :]
    pairs = list(itertools.combinations(range(d), 2))
    moved = [steps[:, j] for j in range(d)] + [steps[:, j] + steps[:, q] for j, q in pairs]
    values = log_density(np.array([rows, *(rows + m for m in moved), *(rows - m for m in moved)]))
    middle, up, down = values[0], values[1 : 1 + len(moved)], values[1 + len(moved) :]
    slopes = 0.5 * (up[:d] - down[:d]).T / distances
    bends, second = np.empty((n, d, d)), up - 2.0 * middle + down
    for j in range(d):
        bends[:, j, j] = second[j] / distances[:, j] ** 2
    for (j, q), both in zip(pairs, second[d:], strict=True):
        mixed = 0.5 * (both - second[j] - second[q])
        bends[:, j, q] = bends[:, q, j] = mixed / (distances[:, j] * distances[:, q])
    return slopes, bends
