"""The number of clusters under a prior: its distribution, its expectation, and a parameter that gives this."""

import math
from collections.abc import Callable

import numpy as np

from pymc_dpgmm.native.compiled import FLOAT, FLOATS, INT, NOTHING, address_of, c_function
from pymc_dpgmm.partitions.priors import GibbsType, has_weights, mixes_components


@c_function(NOTHING(FLOAT, FLOAT, FLOAT, INT, FLOATS))
def _fill_pmf(alpha, discount, most, n, p):
    """Set ``p``, zeros, to the probabilities of 0..n clusters of n rows, adding rows one by one."""
    p[1] = 1.0
    # Numbers of clusters with probabilities below 1e-300 are skipped.
    low, high = 1, 1
    for i in range(1, n):
        if high < most:
            high += 1
        total = alpha + i
        for k in range(high, low - 1, -1):
            opened = 0.0 if k == 1 or k - 1 >= most else p[k - 1] * (alpha + (k - 1) * discount)
            p[k] = (p[k] * (i - k * discount) + opened) / total
        while high > low and p[high] < 1e-300:
            p[high] = 0.0
            high -= 1
        while high > low and p[low] < 1e-300:
            p[low] = 0.0
            low += 1


def _two_parameter_pmf(alpha: float, discount: float, most: float, n: int) -> np.ndarray:
    """Return the probabilities of 0..n clusters of n rows."""
    p = np.zeros(n + 2)
    _fill_pmf(alpha, discount, most, n, address_of(p))
    return p[: n + 1]


@c_function(FLOAT(FLOAT, FLOAT, INT))
def _two_parameter_mean(alpha, discount, n):
    """Return the expected number of clusters of n rows."""
    mean = 1.0
    for i in range(1, n):
        mean += (alpha + discount * mean) / (alpha + i)
    return mean


def _finite_parts(prior: GibbsType) -> list[tuple[float, float, float, float]]:
    """Return (probability, alpha, discount, most) of the two-parameter priors of which a prior is a mixture."""
    if not has_weights(prior):
        return [(1.0, prior.alpha, prior.discount, prior.most)]
    gamma, p = -prior.discount, np.exp(prior.log_components - np.max(prior.log_components))
    p = p / p.sum()
    # The largest numbers of components, with total probability 1e-15, are left out.
    used = len(p) - np.searchsorted(np.cumsum(p[::-1]), 1e-15)
    return [(float(p[m - 1]), gamma * m, -gamma, float(m)) for m in range(1, used + 1) if p[m - 1] > 0]


def _pmf_by_weights(prior: GibbsType, n: int) -> np.ndarray:
    r"""Return V_n(K) times the sum over partitions into K clusters of the product over clusters.

    With :math:`S_n(K)` for this sum, :math:`S_{n+1}(K) = S_n(K - 1) + (n - K \sigma) S_n(K)`.
    """
    k = np.arange(1, n + 1)
    log_s = np.full(n + 1, -math.inf)
    log_s[1] = 0.0
    for m in range(1, n):
        with np.errstate(divide="ignore", invalid="ignore"):
            stays = np.where(k <= m, np.log(m - k * prior.discount), -math.inf)
        log_s[1:] = np.logaddexp(log_s[:-1], stays + log_s[1:])
    return np.exp(log_s + prior.log_v[: n + 1])


def n_clusters_pmf(prior: GibbsType, n: int) -> np.ndarray:
    """Return the prior probabilities of 0, 1, ..., n clusters among n rows: (n + 1,) float64 array.

    The cost is O(n) times the number of clusters that have a probability of at least 1e-300, and O(n^2) for priors
    that are given by their weights.
    """
    if has_weights(prior) and not mixes_components(prior):
        return _pmf_by_weights(prior, n)
    return sum(
        (share * _two_parameter_pmf(a, d, most, n) for share, a, d, most in _finite_parts(prior)),
        start=np.zeros(n + 1),
    )


def expected_n_clusters(prior: GibbsType, n: int) -> float:
    """Return the prior expectation of the number of clusters among n rows, in O(n); O(n^2) as above."""
    if has_weights(prior) and not mixes_components(prior):
        return float(_pmf_by_weights(prior, n) @ np.arange(n + 1))
    return float(sum(share * _two_parameter_mean(a, d, n) for share, a, d, _ in _finite_parts(prior)))


def solve_for_n_clusters(make: Callable[[float], GibbsType | None], expected: float, n: int) -> float:
    """Return the parameter of a prior for which n rows have the expected number of clusters ``expected``.

    Parameters
    ----------
    make : callable
        Returns the prior with a parameter > 0; the expected number must grow with it.
    expected : float, > 1
    n : int, >= 1

    Raises
    ------
    ValueError
        If no parameter between 1e-10 and 1e10 has the expected number.
    """

    def excess(log_parameter: float) -> float:
        prior = make(math.exp(log_parameter))
        if prior is None:
            raise ValueError("the other parameters of the prior must be inside their support")
        return expected_n_clusters(prior, n) - expected

    from scipy.optimize import brentq

    low, high = math.log(1e-10), math.log(1e10)
    ends = excess(low), excess(high)
    if not ends[0] < 0 < ends[1]:
        raise ValueError(
            f"the expected number of clusters among {n} rows lies between {ends[0] + expected:.6g} and "
            f"{ends[1] + expected:.6g} with this prior, so it cannot be {expected:g}"
        )
    return math.exp(brentq(excess, low, high, xtol=1e-12, rtol=1e-12))
