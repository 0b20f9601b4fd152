"""Draws from a prior on partitions: labels, further rows, weights, and starts of chains."""

import math

import numpy as np

from pymc_dpgmm.native.arithmetic import Bits, below, uniform
from pymc_dpgmm.native.compiled import FLOAT, INT, INTS, NOTHING, address_of, bits_of_generator, c_function
from pymc_dpgmm.native.special import log_risings
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import GibbsType, has_weights, log_seat_new, mixes_components


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
    """Return a prior with its number of components, if that is random, drawn given the sizes of clusters.

    Raises
    ------
    NotImplementedError
        If nothing but V_n(K) is known of the prior: see :func:`~pymc_dpgmm.partitions.priors.given_by_weights`.
    """
    if not has_weights(prior):
        return prior
    if not mixes_components(prior):
        raise NotImplementedError(
            "the distribution of the clusters' weights is not known under a prior that is given by its V_n(K): "
            "ask for what is expected of a new row, such as dp.log_density, or for partitions"
        )
    gamma, n_clusters = -prior.discount, len(sizes)
    m = np.arange(n_clusters, len(prior.log_components) + 1)
    log_p = (
        log_risings(m - n_clusters + 1.0, n_clusters)
        - log_risings(gamma * m, sizes.sum())
        + prior.log_components[m - 1]
    )
    p = np.exp(log_p - log_p.max())
    n_components = float(rng.choice(m, p=p / p.sum()))
    return GibbsType(gamma * n_components, -gamma, n_components, 0.0, np.empty(0), np.empty(0), 0.0)


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


@c_function(INT(INT, INT, FLOAT, FLOAT, INT, INT, INT))
def _count_new(next_double, state, alpha, discount, n, n_clusters, m):
    bits, n_new = Bits(next_double, state), 0
    for i in range(m):
        weight = alpha + (n_clusters + n_new) * discount
        if weight > 1e-12 and uniform(bits) * (n + i + alpha) < weight:
            n_new += 1
    return n_new


def count_new_clusters(rng: np.random.Generator, alpha: float, discount: float, sizes: np.ndarray, m: int) -> int:
    """Draw how many new clusters m further rows open, one after the other: see :func:`seat_rows`."""
    counted: int = _count_new(*bits_of_generator(rng), alpha, discount, int(sizes.sum()), len(sizes), m)
    return counted


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


def _draw_by_weights(rng: np.random.Generator, prior: GibbsType, n: int) -> np.ndarray:
    """Draw labels row by row, by the weights of fewer rows, which follow from those of n rows; O(n^2)."""
    of_m_rows = [prior.log_v[1 : n + 1]]
    for m in range(n - 1, 0, -1):
        later = of_m_rows[-1]
        stays = np.log(m - prior.discount * np.arange(1, m + 1)) + later[:-1]
        of_m_rows.append(np.logaddexp(later[1:], stays))
    of_m_rows.reverse()
    if not math.isclose(of_m_rows[0][0], 0.0, abs_tol=1e-6):
        raise ValueError(
            "the weights V_n(K) of the prior are those of no distribution: V_1(1), which follows from them, is "
            f"{math.exp(of_m_rows[0][0]):g} and not 1"
        )
    labels, sizes = np.zeros(n, dtype=np.int64), [1]
    for m in range(1, n):
        k = len(sizes)
        if rng.random() < math.exp(of_m_rows[m][k] - of_m_rows[m - 1][k - 1]):
            sizes.append(0)
            labels[m] = k
        else:
            seats = np.asarray(sizes) - prior.discount
            labels[m] = rng.choice(k, p=seats / seats.sum())
        sizes[labels[m]] += 1
    return labels


def draw_partition(rng: np.random.Generator, prior: GibbsType, n: int) -> np.ndarray:
    """Draw canonical labels of ``n`` rows from a prior: (n,) int64 array."""
    if not has_weights(prior):
        return draw_labels(rng, prior.alpha, prior.discount, prior.most, n)
    if not mixes_components(prior):
        return _draw_by_weights(rng, prior, n)
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


def log_gamma_numbers(rng: np.random.Generator, shape: np.ndarray) -> np.ndarray:
    """Draw logarithms of gamma numbers with shapes > 0, however small, and rate 1."""
    with np.errstate(divide="ignore", over="ignore"):
        found: np.ndarray = np.log(rng.standard_gamma(shape + 1.0)) + np.log1p(-rng.random(shape.shape)) / shape
    return found
