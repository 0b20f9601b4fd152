"""Exact Gibbs draw of the concentration of a Chinese restaurant process under a gamma prior."""

import numpy as np


def draw_concentration(
    rng: np.random.Generator, alpha: float, n_clusters: int, n: int, shape: float, rate: float
) -> float:
    """Draw alpha given the number of clusters, through an auxiliary beta variable.

    Parameters
    ----------
    rng : numpy.random.Generator
    alpha : float, > 0
        The current value.
    n_clusters, n : int, >= 1
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
