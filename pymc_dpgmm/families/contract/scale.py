"""What normal families tell of the scale of their clusters, so that it can be learnt."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

# Covariances of clusters: full ones, those of independent columns, and one number times known variances.
FULL, COLUMNS, SPHERICAL = 0, 1, 2


def least_degrees(covariances: int, d: int) -> float:
    """Return the degrees of freedom that clusters have at the least: with fewer, Psi could be all but zero.

    Then a cluster of equal numbers in a column would have an unbounded density.
    """
    return max(d - 1.0, 1.0) if covariances == FULL else 1.0


class ScatterOfClusters(NamedTuple):
    """The sums of K clusters, in the form that draws of a scale need.

    Parameters
    ----------
    sizes : (K, 1) or (K, d) float64 array
        Rows of each cluster or, of columns that are independent, its entries in each column.
    offsets : (K, d) float64 array
        Means less the prior mean.
    scatter : (K, d (d + 1) / 2) or (K, d) float64 array
        Sums of squares and products about the means: triangles row after row or, unless covariances are full,
        their diagonals.
    """

    sizes: np.ndarray
    offsets: np.ndarray
    scatter: np.ndarray


class NormalScale(NamedTuple):
    """How the parameters of a family make a scale: the precision kappa of means, degrees of freedom nu, and Psi.

    The family has a parameter ``kappa``.

    Parameters
    ----------
    covariances : int
        Those of clusters: ``FULL``, ``COLUMNS`` or ``SPHERICAL``.
    degrees : callable
        ``degrees(d) -> (constant, slope)``: a count is constant + slope times the degrees of freedom beyond the
        least ones, which :func:`least_degrees` returns.
    powers : dict of str to (int, float)
        By parameter, the powers of the count and of typical variances (d,) whose product it is. Typical variances
        are the inverse of the expected precisions.
    clusters : callable
        Returns :class:`ScatterOfClusters`, given the parameters and the sums of all clusters.
    """

    covariances: int
    degrees: Callable[[int], tuple[float, float]]
    powers: Mapping[str, tuple[int, float]]
    clusters: Callable[[Any, Any], ScatterOfClusters]

    def product(self, name: str, count: Any, typical: Any) -> Any:
        """Return a parameter, as far as it is a product: a number, (d,) numbers, or a variable."""
        of_count, of_typical = self.powers[name]
        variances = 1.0 if of_typical == 0.0 else typical if of_typical == 1.0 else typical**of_typical
        return count * variances if of_count else variances

    def write(self, params: Any, kappa: float, degrees: float, typical: np.ndarray) -> Any:
        """Return parameters with another scale; those that are not of the scale stay as they are."""
        constant, slope = self.degrees(len(typical))
        written = {"kappa": kappa}
        written |= {name: self.product(name, constant + slope * degrees, typical) for name in self.powers}
        return params._replace(**{name: _like(getattr(params, name), value) for name, value in written.items()})


def _like(parameter: Any, value: Any) -> Any:
    """Return a value in the shape of a parameter: a number, (d,) numbers, or a diagonal (d, d)."""
    if np.ndim(parameter) == 0:
        return float(value)
    return np.diag(value) if np.ndim(parameter) == 2 else np.array(np.broadcast_to(value, np.shape(parameter)))
