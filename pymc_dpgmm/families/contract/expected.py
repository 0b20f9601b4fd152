r"""Expected log densities of rows, given fractions of rows: what variational inference asks of a family.

Row i belongs to cluster k with weight :math:`r_{ik}`. Where a family is an exponential one and its prior
conjugate, the best approximate posterior of the parameters of a cluster, proportional to :math:`p(\theta) \prod_i
p(x_i \mid \theta)^{r_{ik}}`, is the posterior given the weighted sums of the rows, and the log of what it has to
be divided by is the log evidence at these sums. The expectation of :math:`\log p(x \mid \theta)` under it is the
derivative of the log evidence in the direction of one more row, and has one of the two forms of this module.
"""

from typing import Any, NamedTuple

import numpy as np


class Quadratic(NamedTuple):
    """Expected log density ``constant - |root (x - mean)|^2 / 2`` of a row x in each of K clusters.

    The sums of the family are ``mean`` and either ``scatter`` or ``squares``: those of
    :mod:`pymc_dpgmm.families.shared.moments`.

    Parameters
    ----------
    constant : (K,) array
    mean : (K, d) array
    root : (K, d, d) array of upper triangles, or (K, d) array of diagonals
    """

    constant: np.ndarray
    mean: np.ndarray
    root: np.ndarray


class LinearExpectation(NamedTuple):
    """Expected log density: a constant, and a factor for each number among the sums of the row alone.

    The sums of several rows must be the totals of those of the rows.

    Parameters
    ----------
    constant : (K,) array
    factors : dict of str to array
        For each of the family's sums, one array (K, ...) of its shape; those that are left out are 0.
    """

    constant: np.ndarray
    factors: dict[str, np.ndarray]


Expected = Quadratic | LinearExpectation


def as_packed(matrices: np.ndarray) -> np.ndarray:
    """Return what the entries of packed lower triangles have as factors, for products with symmetric matrices.

    Parameters
    ----------
    matrices : (K, p, p) array
        Symmetric ones.

    Returns
    -------
    (K, p (p + 1) / 2) array, which has entries off the diagonal twice
    """
    rows, columns = np.tril_indices(matrices.shape[-1])
    return matrices[:, rows, columns] * np.where(rows == columns, 1.0, 2.0)


def expected_log_variance(a_n: Any, b_n: Any) -> Any:
    """Return the expected log of a variance that is InverseGamma(a_n, b_n)."""
    from pymc_dpgmm.native.special import digamma

    return np.log(b_n) - digamma(a_n)
