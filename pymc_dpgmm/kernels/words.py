r"""Collapsed Gibbs scans of words in documents, whose topics are clusters of one column of categories.

A token of word w in document j joins topic k with probability proportional to

.. math:: (n_{jk} + a_{jk}) \frac{n_{kw} + \eta_w}{n_k + \sum \eta}

(Griffiths and Steyvers 2004, eq. 5), the counts being those of all other tokens. Under the hierarchical
Dirichlet process, :math:`a_{jk}` is :math:`\alpha_j \beta_k` (see :mod:`pymc_dpgmm.kernels.grouping`), and a topic
is opened with weight :math:`\alpha_j \beta_* \eta_w / \sum \eta`.

All topics are weighed for every token, in vector lanes. For up to some hundreds of topics that is faster than to
look for the few topics that matter (``benchmarks/words.py``).
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.arithmetic import Bits, fast_log, uniform
from pymc_dpgmm.compiled import (
    FLOAT,
    INT,
    INTS,
    NOTHING,
    bits_of_generator,
    c_function,
    floats_at,
    inlined,
    ints_at,
    shifted,
    small_ints_at,
)
from pymc_dpgmm.grouped_partitions import Groups

# A topic is found by sums of so many weights, and then one by one.
BLOCK = 8
# Larger counts have their gamma functions computed.
MOST_FACTORS = 12
_SMALLEST = 2.2250738585072014e-308

# What a scan works on: whole numbers, then addresses of arrays.
N_DOCUMENTS, N_TOPICS, IS_OPEN, DOCUMENT, TOKEN, N_MOVED, N_FREE, NEXT_DOUBLE, BIT_STATE = range(9)
ARRAYS = (
    "words",
    "labels",
    "counts",
    "starts",
    "documents",
    "free",
    "totals",
    "eta",
    "pulls",
    "shares",
    "own",
    "odds",
    "weights",
    "numbers",
)
FIRST_ARRAY = 9
# Places in ``numbers``: the sum of eta, the share of topics without tokens, and gamma.
ETA_SUM, REST, GAMMA = range(3)


class Tokens(NamedTuple):
    """Pointers to the arrays."""

    words: object
    labels: object
    counts: object
    starts: object
    documents: object
    free: object
    totals: object
    eta: object
    pulls: object
    shares: object
    own: object
    odds: object
    weights: object
    numbers: object


@inlined
def tokens_at(head):
    """Return the arrays that a head tells of."""
    return Tokens(
        small_ints_at(head[FIRST_ARRAY]),
        small_ints_at(head[FIRST_ARRAY + 1]),
        small_ints_at(head[FIRST_ARRAY + 2]),
        ints_at(head[FIRST_ARRAY + 3]),
        ints_at(head[FIRST_ARRAY + 4]),
        ints_at(head[FIRST_ARRAY + 5]),
        floats_at(head[FIRST_ARRAY + 6]),
        floats_at(head[FIRST_ARRAY + 7]),
        floats_at(head[FIRST_ARRAY + 8]),
        floats_at(head[FIRST_ARRAY + 9]),
        floats_at(head[FIRST_ARRAY + 10]),
        floats_at(head[FIRST_ARRAY + 11]),
        floats_at(head[FIRST_ARRAY + 12]),
        floats_at(head[FIRST_ARRAY + 13]),
    )


@inlined
def _weigh(odds, counts, eta, weights, n_topics):
    """Set the weights of all topics, and return their sum."""
    total = 0.0
    for k in range(n_topics):
        weight = odds[k] * (counts[k] + eta)
        weights[k] = weight
        total += weight
    return total


@inlined
def _find(weights, n_topics, u):
    """Return the topic whose part of the weights, one after the other, u falls into."""
    start = 0
    while start < n_topics - BLOCK:
        part = 0.0
        for k in range(BLOCK):
            part += weights[start + k]
        if u < part:
            break
        u -= part
        start += BLOCK
    k = start
    while k < n_topics - 1 and u >= weights[k]:
        u -= weights[k]
        k += 1
    # Rounding may lead past the last topic that has any weight.
    while weights[k] <= 0.0:
        k -= 1
    return k


@inlined
def _leave(s, row, k, eta_sum):
    """Take a token out of its topic."""
    s.own[k] -= 1.0
    row[k] -= 1
    s.totals[k] -= 1.0
    s.odds[k] = s.own[k] / (s.totals[k] + eta_sum)


@inlined
def _close(s, head, k):
    """Take the share of a topic back, which has no tokens any more."""
    s.numbers[REST] += s.shares[k]
    s.shares[k] = 0.0
    s.own[k] = 0.0
    s.odds[k] = 0.0
    s.free[head[N_FREE]] = k
    head[N_FREE] += 1


@inlined
def _open(s, head, bits, pull):
    """Give a share to a free topic, and return it."""
    head[N_FREE] -= 1
    k = s.free[head[N_FREE]]
    left = s.numbers[REST] * math.exp(math.log1p(-uniform(bits)) / s.numbers[GAMMA])
    s.shares[k] = max(s.numbers[REST] - left, _SMALLEST)
    s.numbers[REST] = left
    s.own[k] = pull * s.shares[k]
    return k


@c_function(INT(INTS))
def scan_words(head):
    """Draw the topics of all tokens, document by document, each given those of all other tokens.

    Returns
    -------
    int
        0, or 1 where a topic may have to be opened and none is free.
    """
    s = tokens_at(head)
    bits = Bits(head[NEXT_DOUBLE], head[BIT_STATE])
    n_topics = head[N_TOPICS]
    is_open = head[IS_OPEN] == 1
    eta_sum = s.numbers[ETA_SUM]
    while head[DOCUMENT] < head[N_DOCUMENTS]:
        j = s.documents[head[DOCUMENT]]
        pull = s.pulls[j]
        for k in range(n_topics):
            s.own[k] = pull * s.shares[k]
        for t in range(s.starts[j], s.starts[j + 1]):
            s.own[s.labels[t]] += 1.0
        # All of a topic's weight but what the word says.
        for k in range(n_topics):
            s.odds[k] = s.own[k] / (s.totals[k] + eta_sum)
        moved = 0
        for t in range(s.starts[j] + head[TOKEN], s.starts[j + 1]):
            if is_open and head[N_FREE] == 0:
                head[TOKEN] = t - s.starts[j]
                head[N_MOVED] += moved
                return 1
            w = s.words[t]
            old = s.labels[t]
            row = shifted(s.counts, w * n_topics)
            # The token stays where it is until it moves: to read what has just been written takes long.
            left = is_open and s.totals[old] == 1.0
            if left:
                _leave(s, row, old, eta_sum)
                _close(s, head, old)
            total = _weigh(s.odds, row, s.eta[w], s.weights, n_topics)
            if not left:
                without = (s.own[old] - 1.0) / (s.totals[old] - 1.0 + eta_sum) * (row[old] - 1 + s.eta[w])
                total += without - s.weights[old]
                s.weights[old] = without
            opening = pull * s.numbers[REST] * s.eta[w] / eta_sum if is_open else 0.0
            u = uniform(bits) * (total + opening)
            new = _find(s.weights, n_topics, u) if u < total else _open(s, head, bits, pull)
            if new != old or left:
                if not left:
                    _leave(s, row, old, eta_sum)
                s.own[new] += 1.0
                row[new] += 1
                s.totals[new] += 1.0
                s.odds[new] = s.own[new] / (s.totals[new] + eta_sum)
                s.labels[t] = new
                moved += 1
        head[N_MOVED] += moved
        head[TOKEN] = 0
        head[DOCUMENT] += 1
    return 0


@c_function(NOTHING(INTS, INT))
def count_words(head, n):
    """Set the counts, which are 0, from the labels of n tokens."""
    s = tokens_at(head)
    n_topics = head[N_TOPICS]
    for t in range(n):
        s.counts[s.words[t] * n_topics + s.labels[t]] += 1
        s.totals[s.labels[t]] += 1.0


@c_function(FLOAT(INTS, INT, INT))
def log_words(head, n_words, n):
    """Log probability of all words given their topics."""
    s = tokens_at(head)
    n_topics = head[N_TOPICS]
    total = 0.0
    for w in range(n_words):
        # Most counts are small: a product of a few factors stands for a quotient of gamma functions.
        product = 1.0
        for k in range(n_topics):
            count = s.counts[w * n_topics + k]
            if count > MOST_FACTORS:
                total += math.lgamma(s.eta[w] + count) - math.lgamma(s.eta[w])
            else:
                for c in range(count):
                    product *= s.eta[w] + c
                if product > 1e200 or product < 1e-200:
                    total += math.log(product)
                    product = 1.0
        total += math.log(product)
    eta_sum = s.numbers[ETA_SUM]
    for k in range(n_topics):
        total += math.lgamma(eta_sum) - math.lgamma(eta_sum + s.totals[k])
    return total


@c_function(FLOAT(INTS))
def log_topics(head):
    """Log probability of all topics given the shares and pulls of the last scan, those of topics with names."""
    s = tokens_at(head)
    n_topics = head[N_TOPICS]
    shares = 0.0
    for k in range(n_topics):
        shares += s.shares[k]
        s.own[k] = 0.0
    total = 0.0
    for j in range(head[N_DOCUMENTS]):
        pull = s.pulls[j]
        n = s.starts[j + 1] - s.starts[j]
        for t in range(s.starts[j], s.starts[j + 1]):
            # One token after the other: a rising factorial for each topic.
            k = s.labels[t]
            total += fast_log(pull * s.shares[k] + s.own[k])
            s.own[k] += 1.0
        for t in range(s.starts[j], s.starts[j + 1]):
            s.own[s.labels[t]] = 0.0
        total -= math.lgamma(pull * shares + n) - math.lgamma(pull * shares)
    return total


class Words:
    """Words in documents and their topics, as scans work on them.

    Memory is 16 bytes for each token, and ``n_words * n_topics`` counts of four bytes.

    Parameters
    ----------
    words : (n,) integer array
        Of all tokens, in 0..n_words-1.
    groups : Groups
        The documents of the tokens.
    eta : (n_words,) array, > 0
        Dirichlet parameters of every topic.
    """

    def __init__(self, words: np.ndarray, groups: Groups, eta: np.ndarray) -> None:
        self.groups = groups
        self.words = np.ascontiguousarray(words[groups.rows], dtype=np.int32)
        self.labels = np.zeros(len(words), dtype=np.int32)
        self.starts = groups.starts
        self.documents = np.arange(groups.n_groups)
        self.numbers = np.zeros(3)
        self.pulls = np.ones(groups.n_groups)
        self.head = np.zeros(FIRST_ARRAY + len(ARRAYS), dtype=np.int64)
        self.head[N_DOCUMENTS] = groups.n_groups
        self.set_eta(eta)
        self.set_labels(np.zeros(len(words), dtype=np.int64), 1)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "head": self.head.copy()}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._point()

    def copy(self) -> "Words":
        """Return a copy that shares what does not change."""
        other = object.__new__(Words)
        other.__dict__.update(self.__dict__)
        for name in (
            "labels",
            "counts",
            "free",
            "totals",
            "pulls",
            "shares",
            "own",
            "odds",
            "weights",
            "numbers",
        ):
            setattr(other, name, getattr(self, name).copy())
        other.head = self.head.copy()
        other._point()
        return other

    @property
    def n_topics(self) -> int:
        """Number of topics that there is room for."""
        return int(self.head[N_TOPICS])

    def _point(self) -> None:
        for position, name in enumerate(ARRAYS):
            if hasattr(self, name):
                self.head[FIRST_ARRAY + position] = getattr(self, name).ctypes.data
        self.address = self.head.ctypes.data

    def set_eta(self, eta: np.ndarray) -> None:
        """Take other parameters of the topics."""
        self.eta = np.array(eta, dtype=np.float64)
        self.numbers[ETA_SUM] = self.eta.sum()
        self._point()

    def set_labels(self, labels: np.ndarray, n_topics: int) -> None:
        """Take topics (n,) in 0..n_topics-1, of the tokens in the order in which they were given."""
        self.labels[:] = labels[self.groups.rows]
        self._make_room(n_topics)
        self.shares = np.zeros(n_topics)
        self._point()

    def _make_room(self, n_topics: int) -> None:
        self.head[N_TOPICS] = n_topics
        self.counts = np.zeros(len(self.eta) * n_topics, dtype=np.int32)
        self.own, self.odds, self.weights, self.totals = np.zeros((4, n_topics))
        self.free = np.zeros(n_topics, dtype=np.int64)
        self._point()
        count_words(self.address, len(self.labels))

    def grow(self) -> None:
        """Make room for more topics, half as many again and sixteen."""
        shares, n_topics = self.shares, self.n_topics
        self._make_room(n_topics + n_topics // 2 + 16)
        self.shares = np.concatenate([shares, np.zeros(self.n_topics - n_topics)])
        self._point()
        self._list_free()

    def _list_free(self) -> None:
        free = np.flatnonzero(self.totals == 0.0)[::-1]
        self.free[: len(free)] = free
        self.head[N_FREE] = len(free)

    def scan(
        self,
        rng: np.random.Generator,
        pulls: np.ndarray,
        shares: np.ndarray,
        rest: float = 0.0,
        gamma: float = 0.0,
    ) -> int:
        """Draw the topics of all tokens once; return how many have moved.

        Parameters
        ----------
        rng : numpy.random.Generator
        pulls : (J,) array
            What shares are multiplied by in each document.
        shares : (n_topics,) array
            Shares of the topics, or Dirichlet parameters.
        rest, gamma : float
            Under a hierarchical Dirichlet process, the share of all topics without tokens, and gamma; topics can
            then be opened. Where ``gamma`` is 0, none is opened or closed.
        """
        self.head[[NEXT_DOUBLE, BIT_STATE]] = bits_of_generator(rng)
        self.head[[DOCUMENT, TOKEN, N_MOVED, N_FREE]] = 0
        self.head[IS_OPEN] = int(gamma > 0.0)
        self.numbers[[REST, GAMMA]] = rest, gamma
        self.pulls[:] = pulls
        self.shares[:] = shares
        if gamma > 0.0:
            self._list_free()
        while scan_words(self.address):
            self.grow()
        return int(self.head[N_MOVED])

    @property
    def rest(self) -> float:
        """The share of all topics without tokens."""
        return float(self.numbers[REST])

    def topics(self) -> np.ndarray:
        """Return the topics of tokens in the order in which they were given: (n,) int64 array."""
        found = np.empty(len(self.labels), dtype=np.int64)
        found[self.groups.rows] = self.labels
        return found

    def log_prior(self, alpha: np.ndarray) -> float:
        """Return the log probability of topics with names, given the Dirichlet parameters of their weights."""
        self.pulls[:], self.shares[:] = 1.0, alpha
        return float(log_topics(self.address))

    def log_likelihood(self) -> float:
        """Return the log probability of all words given their topics."""
        return float(log_words(self.address, len(self.eta), len(self.labels)))
