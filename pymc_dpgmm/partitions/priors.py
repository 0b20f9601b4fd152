"""Priors on partitions, as numbers: seating weights, the EPPF, canonical labels.

Compiled kernels use a prior only through the functions marked ``inlined`` below. Python code may call these too.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic

from pymc_dpgmm.native.arithmetic import Bits, below, uniform
from pymc_dpgmm.native.compiled import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NOTHING,
    address_of,
    bits_of_generator,
    c_function,
    called_at,
    compiled_as,
    inlined,
)
from pymc_dpgmm.native.special import log_rising, log_risings

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

    (Gnedin and Pitman 2006). All priors of this package are of this type, so that one compiled kernel serves all
    of them: see :func:`chinese_restaurant`, :func:`pitman_yor`, :func:`finite_dirichlet` and
    :func:`mixture_of_finite_mixtures`.

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
        For mixtures of finite mixtures, :math:`\log V_n(K)` at index K, NaN where it has not been computed yet.
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
    def mixes_components(self) -> bool:
        """Whether the number of components is random, so that :math:`V_n(K)` is a series over it."""
        return len(self.log_v) > 0

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
def has_series(prior):
    """Tell whether V_n(K) is a series over numbers of components, and not a product."""
    return prior.n_log_v > 0


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
    if has_series(prior):
        return _log_v(prior, n_clusters + 1) - _log_v(prior, n_clusters)
    return math.log(prior.alpha + n_clusters * prior.discount)


def log_seats_new(prior: GibbsType, length: int) -> np.ndarray:
    """Return the log weights with which a row opens a new cluster beside 0 to ``length`` - 1 others."""
    if prior.mixes_components:
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
    if has_series(prior):
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
    if not prior.mixes_components:
        return [(1.0, prior.alpha, prior.discount, prior.most)]
    gamma, p = -prior.discount, np.exp(prior.log_components - np.max(prior.log_components))
    p = p / p.sum()
    # The largest numbers of components, with total probability 1e-15, are left out.
    used = len(p) - np.searchsorted(np.cumsum(p[::-1]), 1e-15)
    return [(float(p[m - 1]), gamma * m, -gamma, float(m)) for m in range(1, used + 1) if p[m - 1] > 0]


def n_clusters_pmf(prior: GibbsType, n: int) -> np.ndarray:
    """Return the prior probabilities of 0, 1, ..., n clusters among n rows: (n + 1,) float64 array.

    The cost is O(n) times the number of clusters that have a probability of at least 1e-300.
    """
    return sum(
        (share * _two_parameter_pmf(a, d, most, n) for share, a, d, most in _finite_parts(prior)),
        start=np.zeros(n + 1),
    )


def expected_n_clusters(prior: GibbsType, n: int) -> float:
    """Return the prior expectation of the number of clusters among n rows, in O(n)."""
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


def seating_probabilities(prior: GibbsType, sizes: np.ndarray) -> np.ndarray:
    """Return the probabilities that another row joins each cluster, or opens a new one: (K + 1,) float64 array.

    Parameters
    ----------
    prior : GibbsType
        Prior for n + 1 rows, where n is the sum of the sizes; this matters to mixtures of finite mixtures.
    sizes : (K,) integer array
    """
    weights = np.append(sizes - prior.discount, math.exp(log_seat_new(prior, len(sizes))))
    return weights / weights.sum()


def with_known_components(rng: np.random.Generator, prior: GibbsType, sizes: np.ndarray) -> GibbsType:
    """Return a prior with its number of components, if that is random, drawn given the sizes of clusters."""
    if not prior.mixes_components:
        return prior
    gamma, n_clusters = -prior.discount, len(sizes)
    m = np.arange(n_clusters, len(prior.log_components) + 1)
    log_p = (
        log_risings(m - n_clusters + 1.0, n_clusters)
        - log_risings(gamma * m, sizes.sum())
        + prior.log_components[m - 1]
    )
    p = np.exp(log_p - log_p.max())
    n_components = float(rng.choice(m, p=p / p.sum()))
    return GibbsType(gamma * n_components, -gamma, n_components, 0.0, _EMPTY, _EMPTY, 0.0)


def draw_weights(rng: np.random.Generator, prior: GibbsType, sizes: np.ndarray) -> np.ndarray:
    r"""Draw the weights of the clusters of a partition, and of all others together: (K + 1,) float64 array.

    They are Dirichlet :math:`(N_1 - \sigma, \ldots, N_K - \sigma, \alpha + K \sigma)` (Pitman 1996, corollary 20).

    Parameters
    ----------
    prior : GibbsType
        With a known number of components: see :func:`with_known_components`.
    sizes : (K,) integer array
    """
    shapes = np.append(sizes - prior.discount, max(prior.alpha + len(sizes) * prior.discount, 0.0))
    weights = np.zeros(len(shapes))
    weights[shapes > 0] = rng.dirichlet(shapes[shapes > 0])
    return weights


def draw_new_weights(
    rng: np.random.Generator, prior: GibbsType, n_clusters: int, rest: float, smallest: float, most: int
) -> np.ndarray:
    r"""Divide the total weight of clusters without rows among them, in size-biased order: (J,) float64 array.

    With K clusters that have rows, the j-th of the others takes a share
    :math:`\mathrm{Beta}(1 - \sigma, \alpha + (K + j) \sigma)` of the weight that the earlier ones have left
    (Pitman 1996, section 4). Drawing stops when less than ``smallest`` is left, which one more cluster takes, or
    when ``most`` clusters have been drawn. In the second case the rest is divided evenly among ``most`` further
    clusters; each of these weights is so small that its exact value hardly matters.

    Parameters
    ----------
    prior : GibbsType
        With a known number of components.
    n_clusters : int
        Clusters with rows, K.
    rest : float
        Total weight of the clusters without rows.
    smallest : float
    most : int
    """
    weights: list[float] = []
    while rest > smallest and len(weights) < most:
        other = prior.alpha + (n_clusters + len(weights) + 1) * prior.discount
        # The last of finitely many components takes the rest.
        share = rng.beta(1.0 - prior.discount, other) if other > 1e-12 else 1.0
        weights.append(share * rest)
        rest *= 1.0 - share
    if rest > smallest:
        return np.concatenate([weights, np.full(most, rest / most)])
    return np.array([*weights, rest] if rest > 0.0 else weights)


@c_function(NOTHING(INT, INT, FLOAT, FLOAT, INT, INT, INTS, INT, INTS))
def _seat_rows(next_double, state, alpha, discount, n, n_clusters, counts, m, labels):
    bits = Bits(next_double, state)
    for i in range(m):
        u = uniform(bits) * (n + i + alpha)
        label = 0
        while label < n_clusters and u >= counts[label] - discount:
            u -= counts[label] - discount
            label += 1
        if label == n_clusters and alpha + n_clusters * discount > 1e-12:
            n_clusters += 1
        label = min(label, n_clusters - 1)
        labels[i] = label
        counts[label] += 1


def seat_rows(rng: np.random.Generator, alpha: float, discount: float, sizes: np.ndarray, m: int) -> np.ndarray:
    """Draw the clusters that m further rows join, one after the other: (m,) int64 array.

    The K existing clusters have the labels 0..K - 1, and new clusters the labels from K on.

    Parameters
    ----------
    rng : numpy.random.Generator
    alpha, discount : float
        As in :class:`GibbsType`.
    sizes : (K,) int64 array
    m : int
    """
    counts = np.concatenate([sizes, np.zeros(m)]).astype(np.int64)
    labels = np.empty(m, dtype=np.int64)
    n = int(sizes.sum())
    bits = bits_of_generator(rng)
    _seat_rows(*bits, alpha, discount, n, len(sizes), address_of(counts), m, address_of(labels))
    return labels


@c_function(INT(INTS, INT, INTS, INTS))
def _canonical(labels, n, names, canonical):
    """Write canonical labels, and return the number of clusters, or -1 if a label is outside 0..n-1.

    ``names`` is filled with -1 by the caller.
    """
    n_clusters = 0
    for i in range(n):
        label = labels[i]
        if label < 0 or label >= n:
            return -1
        if names[label] < 0:
            names[label] = n_clusters
            n_clusters += 1
        canonical[i] = names[label]
    return n_clusters


def _renamed(labels: np.ndarray) -> tuple[np.ndarray, int]:
    labels = np.ascontiguousarray(labels, dtype=np.int64)
    names, canonical = np.full(len(labels), -1), np.empty(len(labels), dtype=np.int64)
    n_clusters = _canonical(address_of(labels), len(labels), address_of(names), address_of(canonical))
    return canonical, n_clusters


def named_by_appearance(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rename labels 0, 1, 2, ... in order of first appearance, and return the first row of each.

    Parameters
    ----------
    labels : (n,) integer array
        Any values.

    Returns
    -------
    canonical : (n,) int64 array
    first : (K,) int64 array
        Increasing.

    Examples
    --------
    >>> named_by_appearance(np.array([20, 0, 20, 1]))
    (array([0, 1, 0, 2]), array([0, 1, 3]))
    """
    _, first, codes = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    names = np.empty(len(order), dtype=np.int64)
    names[order] = np.arange(len(order))
    return names[codes], first[order]


def first_rows(labels: np.ndarray) -> np.ndarray:
    """Return for each row the first row with its label: (n,) int64 array.

    Examples
    --------
    >>> first_rows(np.array([2, 0, 2, 1]))
    array([0, 1, 0, 3])
    """
    canonical, first = named_by_appearance(labels)
    return first[canonical]


def canonical_labels(labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Rename labels 0, 1, 2, ... in order of first appearance.

    Parameters
    ----------
    labels : (n,) integer array
        Any values in 0..n-1; two rows are in one cluster if and only if their values agree.

    Returns
    -------
    canonical : (n,) int64 array
    n_clusters : int

    Raises
    ------
    ValueError
        If a value is outside 0..n-1.

    Examples
    --------
    >>> canonical_labels(np.array([2, 0, 2, 1]))
    (array([0, 1, 0, 2]), 3)
    """
    canonical, n_clusters = _renamed(labels)
    if n_clusters < 0:
        raise ValueError("labels must lie in 0..n-1")
    return canonical, n_clusters


def matched_names(labels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Match the clusters of one labelling with those of another: a permutation of names.

    Pairs of clusters are matched greedily, those that share most rows first, and among equals those whose first
    shared row comes first. Names without a partner are matched in increasing order. The permutation from the
    second labelling to the first is therefore the inverse.

    Parameters
    ----------
    labels, others : (n,) integer arrays
        Canonical.

    Returns
    -------
    names : (m,) int64 array
        Name k becomes ``names[k]``; m is the larger number of clusters.
    """
    m = int(max(labels.max(), others.max())) + 1
    pairs, first, shared = np.unique(labels.astype(np.int64) * m + others, return_index=True, return_counts=True)
    names = np.full(m, -1, dtype=np.int64)
    taken = np.zeros(m, dtype=np.bool_)
    for pair in pairs[np.lexsort((first, -shared))]:
        name, other = divmod(int(pair), m)
        if names[name] < 0 and not taken[other]:
            names[name] = other
            taken[other] = True
    names[names < 0] = np.flatnonzero(~taken)
    return names


def cluster_sizes(labels: np.ndarray) -> np.ndarray:
    """Return the sizes of the clusters in order of first appearance.

    Parameters
    ----------
    labels : (n,) integer array

    Returns
    -------
    sizes : (K,) int64 array
        Empty if any label is outside 0..n-1, which marks labels that are no partition.

    Examples
    --------
    >>> cluster_sizes(np.array([2, 0, 2, 1]))
    array([2, 1, 1])
    """
    canonical, n_clusters = _renamed(labels)
    return np.bincount(canonical, minlength=n_clusters) if n_clusters >= 0 else np.zeros(0, dtype=np.int64)


@c_function(NOTHING(INT, INT, FLOAT, FLOAT, FLOAT, INT, INTS, INTS))
def _draw_labels(next_double, state, alpha, discount, most, n, sizes, labels):
    bits = Bits(next_double, state)
    labels[0] = 0
    sizes[0] = 1
    n_clusters = 1
    for i in range(1, n):
        u = uniform(bits) * (i + alpha)
        if n_clusters < most and u >= i - discount * n_clusters:
            label = n_clusters
            n_clusters += 1
        elif discount < 0.0 and u >= i:
            label = min(int((u - i) / -discount), n_clusters - 1)
        else:
            label = labels[min(int(u), i - 1)]
            # A cluster of m rows is proposed with probability proportional to m.
            if discount > 0.0:
                label = labels[below(bits, i)]
            while discount > 0.0 and uniform(bits) * sizes[label] < discount:
                label = labels[below(bits, i)]
        labels[i] = label
        sizes[label] += 1


def draw_labels(rng: np.random.Generator, alpha: float, discount: float, most: float, n: int) -> np.ndarray:
    """Draw canonical labels of ``n`` rows from a Pitman-Yor process or a finite Dirichlet prior.

    Row i joins a cluster of m earlier rows with probability proportional to m - discount, and opens one with
    weight alpha + K discount (Pitman 1995). A cluster is drawn by drawing one of its rows, so that the cost is
    O(n) for any number of clusters.

    Parameters
    ----------
    rng : numpy.random.Generator
    alpha, discount, most : float
        As in :class:`GibbsType`.
    n : int, >= 1

    Returns
    -------
    labels : (n,) int64 array
    """
    labels, sizes = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    _draw_labels(*bits_of_generator(rng), alpha, discount, most, n, address_of(sizes), address_of(labels))
    return labels


def draw_partition(rng: np.random.Generator, prior: GibbsType, n: int) -> np.ndarray:
    """Draw canonical labels of ``n`` rows from a prior: (n,) int64 array."""
    if not prior.mixes_components:
        return draw_labels(rng, prior.alpha, prior.discount, prior.most, n)
    weights = np.exp(prior.log_components - prior.log_components.max())
    n_components = 1.0 + rng.choice(len(weights), p=weights / weights.sum())
    return draw_labels(rng, -prior.discount * n_components, prior.discount, n_components, n)


def draw_start(rng: np.random.Generator, n: int, most: float = math.inf) -> np.ndarray:
    """Draw an over-dispersed start: a random partition with at most min(n, most, 50) clusters.

    The number of labels is log-uniform on 1..min(n, most, 50), and each row takes one of them uniformly.

    Parameters
    ----------
    rng : numpy.random.Generator
    n : int, >= 1
    most : float, >= 1

    Returns
    -------
    labels : (n,) int64 array, canonical
    """
    most = int(min(n, most, 50))
    n_labels = min(int(math.exp(rng.random() * math.log(most + 1))), most)
    return canonical_labels(rng.integers(n_labels, size=n))[0]
