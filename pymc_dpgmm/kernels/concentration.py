"""What label kernels know of the law of a prior's parameters, and how they draw them given a partition."""

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from pymc_dpgmm.dispatch import array_verb, implements
from pymc_dpgmm.partitions import GibbsType


@array_verb
def redraw(law, rng, prior, n_clusters, n):
    """Return a prior on partitions with parameters drawn given that ``n`` rows form ``n_clusters``.

    To ``n`` the prior adds its ``extra`` rows.
    """


class Given(NamedTuple):
    """The parameters are drawn elsewhere, or are constants; ``nothing`` is 0."""

    nothing: float


class GammaConcentration(NamedTuple):
    """A gamma law of a Chinese restaurant process's concentration with ``shape`` and ``rate`` > 0."""

    shape: float
    rate: float


@register_jitable
def draw_concentration(
    rng: np.random.Generator, alpha: float, n_clusters: int, n: float, shape: float, rate: float
) -> float:
    """Draw alpha given the number of clusters, through an auxiliary beta variable.

    Parameters
    ----------
    rng : numpy.random.Generator
    alpha : float, > 0
        The current value.
    n_clusters, n : int or float, >= 1
        Number of clusters and of rows.
    shape, rate : float, > 0
        Parameters of the gamma prior.

    Returns
    -------
    float, > 0

    Notes
    -----
    Escobar and West (1995), eqs 13 and 14: ``eta ~ Beta(alpha + 1, n)``; then alpha is a mixture of
    ``Gamma(shape + K, rate - log eta)`` and ``Gamma(shape + K - 1, rate - log eta)`` with odds
    ``(shape + K - 1) / (n (rate - log eta))``.
    """
    smallest = np.finfo(np.float64).tiny
    rate_given = rate - np.log(max(rng.beta(alpha + 1.0, n), smallest))
    shape_given = shape + n_clusters - 1.0
    odds = shape_given / (n * rate_given)
    if rng.random() * (1.0 + odds) < odds:
        shape_given += 1.0
    return max(rng.standard_gamma(shape_given) / rate_given, smallest)


@implements(redraw, Given)
def _(law, rng, prior, n_clusters, n):
    return prior


@implements(redraw, GammaConcentration)
def _(law, rng, prior, n_clusters, n):
    alpha = draw_concentration(rng, prior.alpha, n_clusters, n + prior.extra, law.shape, law.rate)
    return GibbsType(
        alpha, prior.discount, prior.most, prior.reach, prior.log_v, prior.log_components, prior.extra
    )
