"""Rates with a gamma prior and variances with an inverse gamma one: what their families share.

The prior's shape and rate, or scale, are a and b, and given the rows of a cluster they are a_n and b_n.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.compiled import inlined
from pymc_dpgmm.families.component import Drawn
from pymc_dpgmm.special import digamma, gammaln


@inlined
def log_gamma_ratio(a, b, a_n, b_n):
    """Log of Gamma(a_n) b^a / (Gamma(a) b_n^a_n), the ratio of the densities' normalising constants."""
    return math.lgamma(a_n) - math.lgamma(a) + a * math.log(b) - a_n * math.log(b_n)


def gradient_in_gamma(params: Any, a_n: np.ndarray, b_n: np.ndarray) -> Drawn:
    """Gradient of the sum over clusters of such logs in a and b, on which a_n and b_n depend by adding to them."""
    return {
        "a": np.sum(digamma(a_n) - digamma(params.a) + np.log(params.b / b_n), axis=0),
        "b": np.sum(params.a / params.b - a_n / b_n, axis=0),
    }


def log_t_norms(a_n: np.ndarray, d: int = 1) -> np.ndarray:
    """Return log Gamma(a_n + d / 2) - log Gamma(a_n) - d / 2 log(2 pi).

    It is the log of the normalising constant of the t density of d normal values, whose common variance is
    InverseGamma(a_n, 1).
    """
    return gammaln(a_n + 0.5 * d) - gammaln(a_n) - 0.5 * d * math.log(2.0 * math.pi)
