"""Priors on partitions, as numbers: seating weights and the EPPF.

Kernels of scans and moves use a prior through the functions marked ``inlined`` below. Python code may call them.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic

from pymc_dpgmm.native.compiled import FLOAT, FLOATS, INT, c_function, called_at, compiled_as, inlined
from pymc_dpgmm.native.special import log_rising

# Stands for the series of priors without one.
_EMPTY = np.empty(0)


class PriorNumbers(NamedTuple):
    """A :class:`GibbsType` for compiled code: arrays are pointers."""

    alpha: float
    discount: float
    most: float
    reach: float
    extra: float
    n_log_v: int
    n_log_components: int
    log_v: object
    log_components: object
    # Address of the compiled function that sums the series for V_n(K).
    series: int


class GibbsType(NamedTuple):
    r"""A Gibbs-type prior: the EPPF is a weight of the number of clusters times a product over clusters.

    .. math:: p(n_1, \ldots, n_K) = V_n(K) \prod_{k=1}^K \frac{\Gamma(n_k - \sigma)}{\Gamma(1 - \sigma)}

    (Gnedin and Pitman 2006). All priors of rows without groups are of this type, so that one kernel serves all of
    them: see :func:`chinese_restaurant`, :func:`pitman_yor`, :func:`finite_dirichlet`,
    :func:`mixture_of_finite_mixtures`, and :func:`given_by_weights` for any other.

    Parameters
    ----------
    alpha : float
        If ``log_v`` is empty, :math:`V_n(K) = \Gamma(\alpha + 1) / \Gamma(\alpha + n) \prod_{i=1}^{K-1}
        (\alpha + i \sigma)` (Pitman 1995).
    discount : float, < 1
        The :math:`\sigma` of the formula.
    most : float
        Largest possible number of clusters; infinity if there is no bound.
    reach : float
        For mixtures of finite mixtures, the number of components up to which all but 1e-12 of their prior lies.
    log_v : (n + 2,) or (0,) float64 array
        :math:`\log V_n(K)` at index K, where it is no such product. NaN stands for a number that has not been
        computed yet, of mixtures of finite mixtures only.
    log_components : (L,) or (0,) float64 array
        For mixtures of finite mixtures, the log prior probability of k + 1 components at index k.
    extra : float
        Number of rows minus the sum of the cluster sizes, which differ where blocks of rows are counted as one. It
        enters :math:`V_n` only.
    """

    alpha: float
    discount: float
    most: float
    reach: float
    log_v: np.ndarray
    log_components: np.ndarray
    extra: float

    @property
    def n_log_v(self) -> int:
        """Length of ``log_v``."""
        return len(self.log_v)

    @property
    def n_log_components(self) -> int:
        """Length of ``log_components``."""
        return len(self.log_components)


def chinese_restaurant(alpha: float) -> GibbsType | None:
    """Return the Chinese restaurant process with concentration ``alpha``, or None unless 0 < alpha < infinity."""
    return pitman_yor(alpha, 0.0)


def pitman_yor(alpha: float, discount: float) -> GibbsType | None:
    """Return the Pitman-Yor process, or None unless 0 <= discount < 1 and alpha > -discount."""
    if not (0.0 <= discount < 1.0 and -discount < alpha < math.inf):
        return None
    return GibbsType(float(alpha), float(discount), math.inf, 0.0, _EMPTY, _EMPTY, 0.0)


def finite_dirichlet(alpha: float, n_components: float) -> GibbsType | None:
    """Return the prior of a finite mixture with weights from a symmetric Dirichlet(alpha / n_components).

    None unless 0 < alpha < infinity and n_components >= 1.
    """
    if not (0.0 < alpha < math.inf and n_components >= 1 and n_components == math.floor(n_components)):
        return None
    return GibbsType(float(alpha), -alpha / n_components, float(n_components), 0.0, _EMPTY, _EMPTY, 0.0)


def mixture_of_finite_mixtures(gamma: float, log_components: np.ndarray, n: int) -> GibbsType | None:
    r"""Return the prior of a mixture with a random number of components, each with Dirichlet parameter gamma.

    .. math:: V_n(K) = \gamma^K \sum_{m \ge K} p(m) \frac{m!}{(m - K)!}
        \frac{\Gamma(\gamma m)}{\Gamma(\gamma m + n)}

    (Miller and Harrison 2018, eq. 3.2, their :math:`V_n(K)` times :math:`\gamma^K`).

    Parameters
    ----------
    gamma : float
    log_components : (L,) array
        ``log_components[k]`` is the log probability of k + 1 components. They must sum to one.
    n : int

    Returns
    -------
    GibbsType or None
        None unless 0 < gamma < infinity and the log probabilities are numbers below infinity.
    """
    log_components = np.asarray(log_components, dtype=np.float64)
    if len(log_components) < n_terms(n):
        log_components = np.pad(log_components, (0, n_terms(n) - len(log_components)), constant_values=-np.inf)
    if not (0.0 < gamma < math.inf and np.all(log_components < math.inf)):
        return None
    possible = np.flatnonzero(log_components > -math.inf)
    if not len(possible):
        raise ValueError("the prior on the number of components has no mass where the sum over it looks")
    most = float(possible[-1] + 1) if possible[-1] + 1 < len(log_components) else math.inf
    reach = float(np.sum(np.cumsum(np.exp(log_components)) < 1.0 - 1e-12))
    return GibbsType(0.0, -float(gamma), most, reach, np.full(n + 2, math.nan), log_components, 0.0)


def given_by_weights(discount: float, log_v: np.ndarray) -> GibbsType | None:
    r"""Return the prior with given weights :math:`V_n(K)` of the number of clusters.

    Labels under it are drawn, and its probabilities of new rows are known. What needs the distribution of the
    clusters' weights, such as bands of densities, is not available.

    Parameters
    ----------
    discount : float, < 1
    log_v : (n,) array
        :math:`\log V_n(K)` for K = 1, ..., n; minus infinity where there cannot be as many clusters. They must
        satisfy :math:`V_n(K) = (n - \sigma K) V_{n+1}(K) + V_{n+1}(K + 1)` over all n (Gnedin and Pitman 2006,
        eq. 4).

    Returns
    -------
    GibbsType or None
        None unless the discount is below 1, and the weights are numbers below infinity of which the first is
        above zero.
    """
    log_v = np.asarray(log_v, dtype=np.float64)
    if not (-math.inf < discount < 1.0 and np.all(log_v < math.inf) and log_v[0] > -math.inf):
        return None
    possible = np.flatnonzero(log_v > -math.inf)
    most = math.inf if possible[-1] + 1 == len(log_v) else float(possible[-1] + 1)
    table = np.concatenate([[0.0], log_v, [-math.inf]])
    return GibbsType(0.0, float(discount), most, 0.0, table, _EMPTY, 0.0)


# The series for V_n(K) is summed from K components to 8 K + N_TERMS plus four times the reach of their prior,
# since its largest terms are at no more than a multiple of K. If the last term is not below LAST_SHARE of the
# largest one, the sum counts as cut off and is refused.
N_TERMS = 1_000
LAST_SHARE = 1e-10
LOG_LAST_SHARE = math.log(LAST_SHARE)


def n_terms(n: int) -> int:
    """Return the number of components up to which the series for n rows may be summed."""
    return 8 * n + N_TERMS


@c_function(FLOAT(FLOAT, FLOATS, INT, FLOAT, INT, INT))
def log_series(gamma, log_components, n_terms, reach, n, n_clusters):
    """Log of V_n(K) for a mixture of finite mixtures; infinity if the series is cut off too early."""
    largest = -math.inf
    total = 0.0
    last = -math.inf
    stop = min(8 * n_clusters + N_TERMS + 4 * int(reach), n_terms + 1)
    for m in range(n_clusters, stop):
        last = log_rising(m - n_clusters + 1.0, n_clusters) - log_rising(gamma * m, n) + log_components[m - 1]
        if last > largest:
            total = total * math.exp(largest - last) + 1.0
            largest = last
        elif last > -math.inf:
            total += math.exp(last - largest)
    if largest == -math.inf:
        return largest
    if last - largest > LOG_LAST_SHARE:
        return math.inf
    return n_clusters * math.log(gamma) + largest + math.log(total)


@intrinsic
def _call_series(typing_context, address, gamma, log_components, n_terms, reach, n, n_clusters):
    return called_at(log_series.signature)


def _series_of(prior: Any, n: int, n_clusters: int) -> float:
    """Compute log V_n(K) of a prior."""
    arguments = -prior.discount, prior.log_components, prior.n_log_components, prior.reach, n, n_clusters
    return log_series.__wrapped__(*arguments)


@compiled_as(_series_of)
def _series_by_address(prior, n, n_clusters):
    # Called by its address, so that the series is not compiled into every kernel: few priors need it.
    return _call_series(
        prior.series, -prior.discount, prior.log_components, prior.n_log_components, prior.reach, n, n_clusters
    )


@inlined
def has_weights(prior):
    """Tell whether V_n(K) is in ``log_v``, and not the product of a two-parameter prior."""
    return prior.n_log_v > 0


def mixes_components(prior: GibbsType) -> bool:
    """Tell whether the number of components is random, so that V_n(K) is a series over it."""
    return prior.n_log_components > 0


@inlined
def _log_v(prior, n_clusters):
    """Log of V_n(K), computed on first use and kept in ``prior.log_v``."""
    if math.isnan(prior.log_v[n_clusters]):
        prior.log_v[n_clusters] = _series_of(prior, prior.n_log_v - 2, n_clusters)
    return prior.log_v[n_clusters]


def check_series(log_v: np.ndarray) -> None:
    """Raise ValueError if a series over numbers of components was cut off too early."""
    if np.any(np.isposinf(log_v)):
        raise ValueError("the prior on the number of components has too heavy a tail: its series was cut off")


@inlined
def log_seat(prior, size):
    """Log weight with which a row joins one given cluster of ``size`` >= 1 other rows."""
    return math.log(size - prior.discount)


@inlined
def log_seat_new(prior, n_clusters):
    """Log weight with which a row opens a new cluster beside ``n_clusters`` >= 0 others."""
    if n_clusters == 0:
        # The first row has no choice.
        return 0.0
    if n_clusters >= prior.most:
        return -math.inf
    if has_weights(prior):
        return _log_v(prior, n_clusters + 1) - _log_v(prior, n_clusters)
    return math.log(prior.alpha + n_clusters * prior.discount)


def log_seats_new(prior: GibbsType, length: int) -> np.ndarray:
    """Return the log weights with which a row opens a new cluster beside 0 to ``length`` - 1 others."""
    if has_weights(prior):
        return np.array([log_seat_new(prior, k) for k in range(length)])
    others = np.arange(length)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.log(np.where(others < prior.most, prior.alpha + others * prior.discount, 0.0))
    # The first row has no choice.
    weights[:1] = 0.0
    return weights


@inlined
def log_eppf(prior, sizes, n_clusters):
    """Log probability of a partition with the cluster sizes ``sizes[:n_clusters]``."""
    total = 0.0
    n = 0
    for k in range(n_clusters):
        total += log_rising(1.0 - prior.discount, sizes[k] - 1)
        n += sizes[k]
    if has_weights(prior):
        return total + _log_v(prior, n_clusters)
    for k in range(1, n_clusters):
        total += log_seat_new(prior, k)
    return total - log_rising(prior.alpha + 1.0, n + prior.extra - 1.0)


@inlined
def log_split(prior, n_clusters, left, right):
    """Log ratio of the EPPFs after and before one of ``n_clusters`` splits into ``left`` and ``right`` rows."""
    return (
        log_seat_new(prior, n_clusters)
        + log_rising(1.0 - prior.discount, right - 1)
        - log_rising(left - prior.discount, right)
    )
