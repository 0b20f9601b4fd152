r"""Draws of the scale of a normal base measure, given the labels, with the clusters' parameters integrated out.

The base measure has three unknowns: :math:`\kappa`, the prior precision of the cluster means as a number of rows;
:math:`\delta > 0`, the degrees of freedom beyond the least ones; and :math:`w_j > 0`, the share of each column's
variance :math:`v_j` that is typical within clusters:

.. math:: \nu = \max(d - 1, 1) + \delta, \qquad \Psi = \nu \, \mathrm{diag}(v_j t_j), \qquad t_j = w_j + r_j,

where :math:`r_j \ge 0` is known, so that :math:`(E \, \Sigma^{-1})^{-1} = \mathrm{diag}(v_j t_j)` for any
:math:`\delta`. Columns that are independent are the case d = 1 of this, each for itself: with fewer than 1
degree of freedom :math:`\Psi` could be all but zero. For clusters of :math:`n_k` rows with
scatter :math:`S_k` and means :math:`o_k` away from the prior mean, the evidence is (Murphy 2007, eq. 266), up to a
constant,

.. math:: \sum_k \Big[ \sum_{i < d} \log \frac{\Gamma((\nu + n_k - i) / 2)}{\Gamma((\nu - i) / 2)}
          + \frac{\nu}{2} \log |\Psi| - \frac{\nu + n_k}{2} \log |\Psi + S_k + c_k o_k o_k'|
          + \frac{d}{2} \log \frac{\kappa}{\kappa + n_k} \Big], \qquad c_k = \frac{\kappa n_k}{\kappa + n_k}.

A spherical cluster has one unknown variance, which multiplies :math:`v_j t_j` and has :math:`\nu = 1 + \delta`
degrees of freedom. With :math:`q_{kj} = S_{kjj} + c_k o_{kj}^2` its evidence is, up to a constant (eq. 203, with d
numbers a row),

.. math:: \log \frac{\Gamma((\nu + n_k d) / 2)}{\Gamma(\nu / 2)} - \frac{n_k}{2} \log |\Psi|
          - \frac{\nu + n_k d}{2} \log\Big(1 + \sum_j \frac{q_{kj}}{\Psi_{jj}}\Big)
          + \frac{d}{2} \log \frac{\kappa}{\kappa + n_k}.

Each draw is one of points on a line in the logarithms of the unknowns. The determinants of all these points come
from one decomposition of each cluster's matrix:

* :math:`\kappa` changes a matrix by a multiple of :math:`o_k o_k'`, so that :math:`|A + c\,oo'| = |A| (1 + c\,
  o'A^{-1}o)`;
* one :math:`t_j` changes one entry of the diagonal: :math:`|A + f e_j e_j'| = |A| (1 + f (A^{-1})_{jj})`, and the
  inverse by Sherman and Morrison's formula;
* a factor x of :math:`\Psi` changes all of its diagonal: :math:`|x \Psi + M| = x^d |\Psi| |I + T / x|` with T the
  tridiagonal form of :math:`\Psi^{-1/2} M \Psi^{-1/2}`.

Of spherical clusters, all of these change sums over the columns.

The points are a lattice through the present one: its spacing and the place of the present point in it do not
depend on the state. From each of its points the same lattice is drawn with the same probability, so that a choice
among them in proportion to their densities leaves the density invariant. The lattice of a share goes through the
logarithm of :math:`t_j` or of :math:`w_j`, by chance: of many rows, the posterior of a column that is near its
known part lies within a share of about 1 / n above :math:`r_j`.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.families.contract.scale import COLUMNS, FULL, SPHERICAL, ScatterOfClusters
from pymc_dpgmm.native.compiled import CFunction, address_of, bits_of_generator
from pymc_dpgmm.sampler.hyperparameters.column_scales import draw_column_scales
from pymc_dpgmm.sampler.hyperparameters.full_scales import draw_full_scales
from pymc_dpgmm.sampler.hyperparameters.scale_lattices import N_POINTS
from pymc_dpgmm.sampler.hyperparameters.spherical_scales import draw_spherical_scales

# Rounds of a draw: what few columns need is made in less time than what surrounds it takes.
_ROUNDS_OF_ONE, _MOST_ROUNDS = 16, 4
# What is called for clusters with these covariances.
KERNELS: dict[int, CFunction] = {
    FULL: draw_full_scales,
    COLUMNS: draw_column_scales,
    SPHERICAL: draw_spherical_scales,
}


class ScalePrior(NamedTuple):
    """The prior of the scale: log-normal kappa and degrees, exponential shares.

    Parameters
    ----------
    log_kappa, sd_kappa, log_degrees, sd_degrees : float
        Means and standard deviations of the logarithms.
    rate : float
        Of the shares' exponential distributions.
    """

    log_kappa: float
    sd_kappa: float
    log_degrees: float
    sd_degrees: float
    rate: float


class Scale(NamedTuple):
    """The unknowns: two numbers, and (d,) shares."""

    kappa: float
    degrees: float
    within: np.ndarray

    def log_prior(self, prior: ScalePrior) -> float:
        """Return the log density of the logarithms of all unknowns, up to a constant."""
        log_kappa, log_degrees = math.log(self.kappa), math.log(self.degrees)
        of_shares = float(np.sum(np.log(self.within) - prior.rate * self.within))
        of_kappa = ((log_kappa - prior.log_kappa) / prior.sd_kappa) ** 2
        return of_shares - 0.5 * (of_kappa + ((log_degrees - prior.log_degrees) / prior.sd_degrees) ** 2)


def _n_work(n_clusters: int, d: int, length: int) -> int:
    """Return how many numbers of scratch memory the kernels need, whose parts use it in turn."""
    return 2 * d + (n_clusters + 2) * length + 2 * (n_clusters + 1) * d + 3 * N_POINTS


def draw_scale(
    rng: np.random.Generator,
    scale: Scale,
    prior: ScalePrior,
    variances: np.ndarray,
    least: np.ndarray,
    clusters: ScatterOfClusters,
    covariances: int,
) -> Scale:
    """Draw the scale of a base measure given clusters.

    Parameters
    ----------
    rng : numpy.random.Generator
    scale : Scale
        The present one.
    prior : ScalePrior
    variances, least : (d,) float64 arrays
        Variances of the columns, and what is known of their shares within clusters.
    clusters : ScatterOfClusters
    covariances : int
        Those of clusters: ``FULL``, ``COLUMNS`` or ``SPHERICAL``.
    """
    n_clusters, d = clusters.offsets.shape
    numbers = np.array([scale.kappa, scale.degrees, 1.0])
    shares = scale.within + least
    arrays = [
        np.ascontiguousarray(array, dtype=np.float64)
        for array in (clusters.sizes, clusters.offsets, clusters.scatter, variances)
    ]
    own = [*arrays, shares, np.ascontiguousarray(least), numbers, np.array(prior, dtype=np.float64)]
    own.append(np.empty(_n_work(n_clusters, d, clusters.scatter.shape[1])))
    addresses = [address_of(array) for array in own]
    n_rounds = min(max(_ROUNDS_OF_ONE // d, 1), _MOST_ROUNDS)
    KERNELS[covariances](n_rounds, n_clusters, d, *addresses, *bits_of_generator(rng))
    return Scale(float(numbers[0]), float(numbers[1]), shares - least)
