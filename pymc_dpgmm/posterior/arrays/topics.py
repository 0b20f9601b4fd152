"""Clusters matched across draws: their weights in groups, words of topics, and held-out documents."""

import math
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp

from pymc_dpgmm.native.arithmetic import Bits, uniform
from pymc_dpgmm.native.compiled import FLOAT, FLOATS, INT, INTS, bits_of_generator, c_function, inlined, shifted
from pymc_dpgmm.posterior.arrays.mixtures import DrawNumbers
from pymc_dpgmm.posterior.arrays.partitions import shared_rows
from pymc_dpgmm.posterior.arrays.predictions import tails
from pymc_dpgmm.posterior.arrays.seats import GroupedSeats


class Matched(NamedTuple):
    """For R reference clusters, the matching cluster of a draw or -1 (R,), and the number of common rows (R,)."""

    cluster: np.ndarray
    shared: np.ndarray


def match(labels: np.ndarray, n_clusters: int, reference: np.ndarray, n_reference: int) -> Matched:
    """Match clusters of a draw one to one to those of a reference, maximizing the number of common rows.

    This is the linear assignment problem, solved by SciPy.
    """
    shared = shared_rows(reference, n_reference, labels, n_clusters)
    cluster, n_shared = np.full(n_reference, -1), np.zeros(n_reference)
    rows, columns = linear_sum_assignment(shared, maximize=True)
    # Those without a common row match nothing.
    have_common = shared[rows, columns] > 0
    rows, columns = rows[have_common], columns[have_common]
    cluster[rows], n_shared[rows] = columns, shared[rows, columns]
    return Matched(cluster, n_shared)


def with_empty_topics(matched: Matched, seats: GroupedSeats) -> np.ndarray:
    """Return the matching clusters (R,), with topics that have no words for reference topics that match none.

    Topics have names, and are there in every draw: those without words follow the others. Clusters without names
    are -1, where they match none.
    """
    cluster = matched.cluster.copy()
    if seats.names is not None:
        left = np.flatnonzero(cluster < 0)[: len(seats.empty)]
        cluster[left] = len(seats.tables) + np.arange(len(left))
    return cluster


class Moments:
    """Running means and standard deviations of quantities whose mean and variance in each draw are known."""

    def __init__(self, n_lines: int) -> None:
        self._n: np.ndarray = np.zeros((n_lines, 1))
        self._sum = self._squares = np.zeros((n_lines, 0))

    def add(self, mean: np.ndarray, variance: np.ndarray, rows: np.ndarray) -> None:
        """Add means and variances (r, c) of one draw to these lines."""
        if not self._sum.size:
            self._sum, self._squares = np.zeros((2, len(self._n), mean.shape[1]))
        self._n[rows] += 1.0
        self._sum[rows] += mean
        self._squares[rows] += mean**2 + variance

    @property
    def mean(self) -> np.ndarray:
        """Means over the draws, NaN where no draw was added."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._sum / self._n

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations, from the variance within draws and between them."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.sqrt(np.maximum(self._squares / self._n - self.mean**2, 0.0))


# Largest number of draws of weights that an interval is computed from.
_MOST_DRAWN = 1_000


def group_weights_of(
    mixture: DrawNumbers, reference: np.ndarray, probability: float, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Return the weights of the clusters in every group; clusters of draws are matched to a reference (n,).

    Returns
    -------
    dict
        Of R reference clusters in J groups: ``weight``, its ``sd``, and its quantiles ``lower`` and ``upper``
        among weights that are drawn for up to 1,000 of the partitions, (J, R); the total weight of all ``other``
        clusters, (J,); ``overlap`` and ``size``, (R,).
    """
    sizes = np.bincount(reference)
    n_reference = len(sizes)
    moments, overlap = Moments(n_reference), np.zeros(n_reference)
    n_drawn = min(mixture.n_draws, _MOST_DRAWN)
    wanted = set(np.linspace(0, mixture.n_draws - 1, n_drawn).astype(int).tolist())
    drawn: list[np.ndarray] = []
    for t, partition in enumerate(mixture.only([]).partitions()):
        seats = partition.seats
        assert isinstance(seats, GroupedSeats)
        matched = match(partition.labels, len(partition.sizes), reference, n_reference)
        cluster = with_empty_topics(matched, seats)
        mean = seats.weights_of_known()
        n_groups, rows = len(mean), np.flatnonzero(cluster >= 0)
        # A reference cluster that no cluster of the draw matches has weight 0 in it.
        weight = np.zeros((n_reference, n_groups))
        weight[rows] = mean[:, cluster[rows]].T
        # Given the shares of the clusters, a weight has a beta distribution; the shares add their own variance.
        total = (seats.counts.sum(axis=1) + seats.alpha)[None, :]
        between = np.zeros((n_reference, n_groups))
        shares = np.append(seats.share_variance(), np.zeros(len(seats.empty)))[cluster[rows], None]
        between[rows] = (seats.alpha / total[0]) ** 2 * shares
        within = (weight * (1.0 - weight) - between) / (total + 1.0)
        moments.add(weight, within + between, np.arange(n_reference))
        overlap += matched.shared / sizes
        if t in wanted:
            weights = np.zeros((n_groups, n_reference), dtype=np.float32)
            weights[:, rows] = seats.draw_all(rng)[:, cluster[rows]]
            drawn.append(weights)
    mean = moments.mean.T
    lower, upper = np.quantile(drawn, tails(probability), axis=0)
    other = np.maximum(1.0 - np.nansum(mean, axis=1), 0.0)
    overlap /= mixture.n_draws
    found = {"weight": mean, "sd": moments.sd.T, "lower": lower, "upper": upper}
    return found | {"other": other, "overlap": overlap, "size": sizes}


def topic_words_of(
    mixture: DrawNumbers, words: sparse.csr_array, reference: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the probabilities of words in topics; topics of draws are matched to a reference (n,).

    ``words`` (n, V) are the counts of each word in each row. The results are means and standard deviations (R, V),
    and shares and overlaps of the R topics, (R,).
    """
    sizes = np.bincount(reference)
    n_reference, (view,) = len(sizes), mixture.views
    overlap, share, moments = np.zeros(n_reference), np.zeros(n_reference), Moments(n_reference)
    for partition in mixture.only([]).partitions():
        n_clusters = len(partition.sizes)
        # For rows that are single words, the parameter has an extra axis for their one column.
        eta = np.asarray(view.params(partition.draw).a).reshape(-1)
        matched = match(partition.labels, n_clusters, reference, n_reference)
        rows = np.flatnonzero(matched.cluster >= 0)
        parameters = sums_by(partition.labels, n_clusters, words)[matched.cluster[rows]].toarray() + eta
        total = parameters.sum(axis=1, keepdims=True)
        mean = parameters / total
        moments.add(mean, mean * (1.0 - mean) / (total + 1.0), rows)
        overlap += matched.shared / sizes
        share[rows] += partition.sizes[matched.cluster[rows]] / len(reference)
    return moments.mean, moments.sd, share / mixture.n_draws, overlap / mixture.n_draws


def sums_by(labels: np.ndarray, n_labels: int, rows: sparse.csr_array) -> sparse.csr_array:
    """Return the sums of rows (n, V) that have the same label: (n_labels, V)."""
    ones, of_row = np.ones(len(labels)), np.arange(len(labels))
    return sparse.csr_array((ones, (labels, of_row)), shape=(n_labels, len(labels))) @ rows


@inlined
def _draw_topic(bits, counts, of_word, totals, n_topics, weights):
    """Draw the topic of a word that topics have in proportion to ``of_word / totals``; return the sum too."""
    norm = 0.0
    for k in range(n_topics):
        weights[k] = counts[k] * of_word[k] / totals[k]
        norm += weights[k]
    u = uniform(bits) * norm
    k = 0
    while k < n_topics - 1 and u >= weights[k]:
        u -= weights[k]
        k += 1
    return k, norm


@c_function(FLOAT(INT, INT, INTS, INT, FLOATS, FLOATS, FLOAT, INT, FLOATS, INTS, FLOATS, FLOATS))
def _left_to_right(
    next_double, state, words, n, by_word, totals, learnt, n_topics, alphas, labels, counts, weights
):
    """Log of an unbiased estimate of the probability of a document; see :func:`estimate_documents`."""
    bits = Bits(next_double, state)
    total = 0.0
    for k in range(n_topics):
        counts[k] = alphas[k]
        total += alphas[k]
    log_p = 0.0
    for t in range(n):
        for r in range(t):
            of_word = shifted(by_word, words[r] * n_topics)
            k = labels[r]
            counts[k] -= 1.0
            of_word[k] -= learnt
            totals[k] -= learnt
            k, _ = _draw_topic(bits, counts, of_word, totals, n_topics, weights)
            labels[r] = k
            counts[k] += 1.0
            of_word[k] += learnt
            totals[k] += learnt
        of_word = shifted(by_word, words[t] * n_topics)
        k, norm = _draw_topic(bits, counts, of_word, totals, n_topics, weights)
        log_p += math.log(norm / (total + t)) if norm > 0.0 else -math.inf
        labels[t] = k
        counts[k] += 1.0
        of_word[k] += learnt
        totals[k] += learnt
    # The words of the document are taken out of the topics again.
    for t in range(n):
        by_word[words[t] * n_topics + labels[t]] -= learnt
        totals[labels[t]] -= learnt
    return log_p


class Documents(NamedTuple):
    """Log estimates of the probabilities of documents (J,), and of the weights of topics in them (J, K)."""

    log_probability: np.ndarray
    weights: np.ndarray


def estimate_documents(
    rng: np.random.Generator,
    words: np.ndarray,
    starts: np.ndarray,
    topics: np.ndarray,
    alphas: np.ndarray,
    n: int,
    *,
    are_drawn: bool = True,
) -> Documents:
    """Estimate probabilities of documents given topics, unbiased before the log, and weights of topics in them.

    The probability is the average of ``n`` estimates by the left-to-right algorithm (Wallach et al. 2009, section
    4.5; Buntine 2009). Each run also draws topics of the document's words. The weights of topics given these are
    averaged in proportion to the estimates.

    Parameters
    ----------
    rng : numpy.random.Generator
    words : (m,) int64 array
        The words of all documents, one after the other.
    starts : (J + 1,) int64 array
        Position of the first word of each document, and the number of words.
    topics : (K, V) array
        Probabilities of words; or, if these are not drawn, their Dirichlet parameters. The probabilities are then
        integrated out, and the words of a document tell of the others.
    alphas : (K,) array
        Dirichlet parameters of the weights of topics in a document.
    n : int
        Number of estimates.
    are_drawn : bool
    """
    by_word = np.array(topics.T, dtype=np.float64, order="C")
    totals = np.ones(len(alphas)) if are_drawn else by_word.sum(axis=0)
    alphas = np.ascontiguousarray(alphas, dtype=np.float64)
    log_p = np.zeros(len(starts) - 1)
    weights = np.tile(alphas / alphas.sum(), (len(log_p), 1))
    labels = np.empty(int(np.diff(starts).max(initial=1)), dtype=np.int64)
    counts, scratch = np.empty((2, len(alphas)))
    bits = bits_of_generator(rng)
    for j in range(len(log_p)):
        length = int(starts[j + 1] - starts[j])
        if not length:
            continue
        estimates, left = np.empty(n), np.empty((n, len(alphas)))
        for r in range(n):
            estimates[r] = _left_to_right(
                *bits,
                words.ctypes.data + 8 * int(starts[j]),
                length,
                by_word.ctypes.data,
                totals.ctypes.data,
                0.0 if are_drawn else 1.0,
                len(alphas),
                alphas.ctypes.data,
                labels.ctypes.data,
                counts.ctypes.data,
                scratch.ctypes.data,
            )
            left[r] = counts
        log_p[j] = logsumexp(estimates) - math.log(n)
        if log_p[j] > -math.inf:
            relative = np.exp(estimates - estimates.max())
            weights[j] = relative @ left / relative.sum() / (alphas.sum() + length)
    return Documents(log_p, weights)


def held_out(
    mixture: DrawNumbers,
    words: np.ndarray,
    starts: np.ndarray,
    n_particles: int,
    rng: np.random.Generator,
    reference: np.ndarray,
) -> Documents:
    """Return log probabilities of new documents in the draws, (S, J), and weights of R reference topics, (J, R).

    The probabilities of words are integrated out, given the topics of all words in a draw. The weights of a
    document are averaged over the draws in proportion to the probability of the document.

    Raises
    ------
    ValueError
        If documents differ in their concentration, so that a new one has none.
    """
    (view,) = mixture.views
    data = np.asarray(view.data(0))[:, 0].astype(np.int64)
    n_reference = int(reference.max()) + 1
    log_p, weights = [], []
    for partition in mixture.only([]).partitions():
        seats = partition.seats
        assert isinstance(seats, GroupedSeats)
        eta = np.asarray(view.params(partition.draw).a)[0]
        shares = seats.draw_shares(rng)
        counts = np.zeros((len(shares), len(eta)))
        np.add.at(counts, (partition.labels, data), 1.0)
        if np.ptp(seats.alpha) > 0.0:
            raise ValueError(
                "alpha differs between documents, so documents that are held out have none: fit with one alpha "
                "for all documents"
            )
        alphas = seats.alpha_of_new() * shares
        documents = estimate_documents(rng, words, starts, counts + eta, alphas, n_particles, are_drawn=False)
        matched = match(partition.labels, len(partition.sizes), reference, n_reference)
        cluster = with_empty_topics(matched, seats)
        of_reference = np.zeros((len(starts) - 1, n_reference))
        there = cluster >= 0
        of_reference[:, there] = documents.weights[:, cluster[there]]
        log_p.append(documents.log_probability)
        weights.append(of_reference)
    logs = np.array(log_p)
    # A document that is impossible in all draws has the weights of its prior.
    of_all = np.maximum(logsumexp(logs, axis=0), -np.finfo(np.float64).max)
    share = np.where(of_all > -1e300, np.exp(logs - of_all), 1.0 / len(logs))
    return Documents(logs, np.einsum("sj,sjr->jr", share, np.array(weights)))
