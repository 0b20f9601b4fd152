"""Rates with a gamma prior and variances with an inverse gamma one: what their families share.

The prior's shape and rate, or scale, are a and b, and given the rows of a cluster they are a_n and b_n.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.component import DrawnValues
from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.native.special import digamma_rises, log_rising, log_risings


@inlined
def log_gamma_ratio(a, b, more, b_n):
    """Log of Gamma(a_n) b^a / (Gamma(a) b_n^a_n), a_n = a + more: the ratio of the densities' norms.

    The quotient b / b_n is taken before its power, which keeps digits where a is large.
    """
    return log_rising(a, more) + a * math.log(b / b_n) - more * math.log(b_n)


def gradient_in_gamma(params: Any, a_n: np.ndarray, b_n: np.ndarray) -> DrawnValues:
    """Gradient of the sum over clusters of such logs in a and b, on which a_n and b_n depend by adding to them."""
    return {
        "a": np.add.reduce(digamma_rises(params.a, a_n - params.a) + np.log(params.b / b_n)),
        "b": np.add.reduce(params.a / params.b - a_n / b_n),
    }


def log_t_norms(a_n: np.ndarray, d: int = 1) -> np.ndarray:
    """Return log Gamma(a_n + d / 2) - log Gamma(a_n) - d / 2 log(2 pi).

    It is the log of the normalising constant of the t density of d normal values, whose common variance is
    InverseGamma(a_n, 1).
    """
    return log_risings(a_n, 0.5 * d) - 0.5 * d * math.log(2.0 * math.pi)
