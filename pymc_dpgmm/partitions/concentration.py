"""Draws of a Chinese restaurant process's concentration given a partition."""

import math

from pymc_dpgmm.native.arithmetic import SMALLEST, Bits, standard_gamma, uniform
from pymc_dpgmm.native.compiled import FLOAT, INT, c_function, inlined


@inlined
def draw_concentration(bits, alpha, n_clusters, n, shape, rate):
    """Draw alpha given the number of clusters, through an auxiliary beta variable.

    Parameters
    ----------
    bits : Bits
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
    first = standard_gamma(bits, alpha + 1.0)
    # eta = first / (first + second) of two gamma variables. log1p keeps the digits of -log eta where eta is near
    # 1.
    rate_given = rate + math.log1p(standard_gamma(bits, n) / max(first, SMALLEST))
    shape_given = shape + n_clusters - 1.0
    odds = shape_given / (n * rate_given)
    if uniform(bits) * (1.0 + odds) < odds:
        shape_given += 1.0
    return max(standard_gamma(bits, shape_given) / rate_given, SMALLEST)


@c_function(FLOAT(INT, INT, FLOAT, INT, FLOAT, FLOAT, FLOAT))
def drawn_concentration(next_double, state, alpha, n_clusters, n, shape, rate):
    """Return a draw of alpha given the number of clusters, for Python."""
    return draw_concentration(Bits(next_double, state), alpha, n_clusters, n, shape, rate)
