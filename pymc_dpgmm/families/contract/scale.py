"""What normal families tell of the scale of their clusters, so that it can be learnt."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class ScatterOfClusters(NamedTuple):
    """The sums of K clusters, in the form that draws of a scale need.

    Parameters
    ----------
    sizes : (K, 1) or (K, d) float64 array
        Rows of each cluster or, of columns that are independent, its entries in each column.
    offsets : (K, d) float64 array
        Means less the prior mean.
    scatter : (K, d (d + 1) / 2) or (K, d) float64 array
        Sums of squares and products about the means: triangles row after row or, of columns that are independent,
        their diagonals.
    is_full : bool
        Whether clusters have full covariances.
    repeats : int
        Numbers in each row of a column: more than 1 where columns have one variance in common.
    """

    sizes: np.ndarray
    offsets: np.ndarray
    scatter: np.ndarray
    is_full: bool
    repeats: int = 1


class NormalScale(NamedTuple):
    """How the parameters of a family make a scale: the precision kappa of means, degrees of freedom nu, and Psi.

    Parameters
    ----------
    names : tuple of three str
        The parameters that kappa, the degrees of freedom and Psi are read from.
    degrees : callable
        ``degrees(d) -> (constant, slope)``: the second of these parameters is constant + slope times the degrees
        of freedom beyond d - 1, and the third is the second times the inverse of the expected precisions.
    read : callable
        Returns kappa (a float), the degrees of freedom nu beyond d - 1 (a float), and the diagonal of Psi over nu
        (d,), the inverse of the expected precisions. They are NaN where the parameters have no such form.
    write : callable
        Returns parameters with other values of these, the inverse of ``read``.
    clusters : callable
        Returns :class:`ScatterOfClusters`, given the parameters and the sums of all clusters.
    """

    names: tuple[str, str, str]
    degrees: Callable[[int], tuple[float, float]]
    read: Callable[[Any], tuple[float, float, np.ndarray]]
    write: Callable[[Any, float, float, np.ndarray], Any]
    clusters: Callable[[Any, Any], ScatterOfClusters]
