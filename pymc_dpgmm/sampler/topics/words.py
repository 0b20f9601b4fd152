r"""Collapsed Gibbs scans of words in documents, whose topics are clusters of one column of categories.

A token of word w in document j joins topic k with probability proportional to

.. math:: (n_{jk} + a_{jk}) \frac{n_{kw} + \eta_w}{n_k + \sum \eta}

(Griffiths and Steyvers 2004, eq. 5), the counts being those of all other tokens. Under the hierarchical
Dirichlet process, :math:`a_{jk}` is :math:`\alpha_j \beta_k` (see :mod:`pymc_dpgmm.sampler.state.grouping`), and
a topic is opened with weight :math:`\alpha_j \beta_* \eta_w / \sum \eta`.

The sum of the weights has two parts (Yao, Mimno and McCallum 2009). With the odds
:math:`o_k = (n_{jk} + a_{jk}) / (n_k + \sum \eta)`, one is :math:`\sum_k o_k n_{kw}`, which has a term for each of
the few topics that the word is in. The other, :math:`\eta_w \sum_k o_k`, is known: odds change for two topics when
a token moves. They are looked through only where a token falls into that part. Nothing is older than the last
token, so that every draw has its exact law.
"""

import math

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import SMALLEST, uniform
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import (
    FLOAT,
    INT,
    INTS,
    NOTHING,
    c_function,
    inlined,
)
from pymc_dpgmm.native.memory import Memory
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.partitions.grouped import Groups

# A topic is found by sums of so many weights, and then one by one.
BLOCK = 8
# Larger counts have their gamma functions computed.
MOST_FACTORS = 12
# Products of so many larger ones could overflow.
_LARGEST_FACTOR = 1e6

# What a scan works on: whole numbers, then addresses of arrays.
HEAD = Block(
    n_documents=NUMBER,
    n_topics=NUMBER,
    is_open=NUMBER,
    document=NUMBER,
    token=NUMBER,
    n_moved=NUMBER,
    n_free=NUMBER,
    next_double=NUMBER,
    bit_state=NUMBER,
    words=blocks.SMALL_INTS,
    labels=blocks.SMALL_INTS,
    topics=blocks.SMALL_INTS,
    counts=blocks.SMALL_INTS,
    lengths=blocks.SMALL_INTS,
    places=blocks.INTS,
    starts=blocks.INTS,
    free=blocks.INTS,
    totals=blocks.FLOATS,
    eta=blocks.FLOATS,
    group_alphas=blocks.FLOATS,
    shares=blocks.FLOATS,
    own=blocks.FLOATS,
    odds=blocks.FLOATS,
    weights=blocks.FLOATS,
    numbers=blocks.FLOATS,
)
# Places in ``numbers``: the sum of eta, the share of topics without tokens, and gamma.
ETA_SUM, REST, GAMMA = range(3)


# The arrays that a head tells of.
tokens_at = HEAD.reader()


@inlined
def _find(weights, n, u):
    """Return the place whose part of the weights, one after the other, u falls into."""
    r = 0
    while r < n - 1 and u >= weights[r]:
        u -= weights[r]
        r += 1
    # Rounding may lead past the last one that has any weight.
    while weights[r] <= 0.0:
        r -= 1
    return r


@inlined
def _find_odds(odds, n_topics, u, old, odds_old):
    """Return the topic whose part of the odds u falls into; those of topic ``old`` are as given."""
    start = 0
    while start < n_topics - BLOCK:
        part = 0.0
        for k in range(start, start + BLOCK):
            part += odds[k]
        if old >= start and old < start + BLOCK:
            part += odds_old - odds[old]
        if u < part:
            break
        u -= part
        start += BLOCK
    k = start
    while k < n_topics - 1:
        own = odds_old if k == old else odds[k]
        if u < own:
            break
        u -= own
        k += 1
    while (odds_old if k == old else odds[k]) <= 0.0:
        k -= 1
    return k


@inlined
def _leave(s, start, w, place, k, eta_sum):
    """Take a token of word w, whose list of topics has topic k at a place, out of it."""
    s.own[k] -= 1.0
    s.totals[k] -= 1.0
    s.odds[k] = s.own[k] / (s.totals[k] + eta_sum)
    s.counts[start + place] -= 1
    if s.counts[start + place] == 0:
        s.lengths[w] -= 1
        last = start + s.lengths[w]
        s.topics[start + place] = s.topics[last]
        s.counts[start + place] = s.counts[last]


@inlined
def _join(s, start, w, k, eta_sum):
    """Put a token of word w into a topic."""
    s.own[k] += 1.0
    s.totals[k] += 1.0
    s.odds[k] = s.own[k] / (s.totals[k] + eta_sum)
    r = start
    stop = start + s.lengths[w]
    while r < stop and s.topics[r] != k:
        r += 1
    if r == stop:
        s.topics[r] = k
        s.counts[r] = 0
        s.lengths[w] += 1
    s.counts[r] += 1


@inlined
def _close(s, k):
    """Take the share of a topic back, which has no tokens any more."""
    s.numbers[REST] += s.shares[k]
    s.shares[k] = 0.0
    s.own[k] = 0.0
    s.odds[k] = 0.0
    s.free[s.n_free] = k
    s.n_free += 1


@inlined
def _open(s, bits, alpha):
    """Give a share to a free topic, and return it."""
    s.n_free -= 1
    k = s.free[s.n_free]
    left = s.numbers[REST] * math.exp(math.log1p(-uniform(bits)) / s.numbers[GAMMA])
    s.shares[k] = max(s.numbers[REST] - left, SMALLEST)
    s.numbers[REST] = left
    s.own[k] = alpha * s.shares[k]
    return k


@inlined
def _sum_of(odds, n_topics):
    total = 0.0
    for k in range(n_topics):
        total += odds[k]
    return total


@c_function(INT(INTS))
def scan_words(head):
    """Draw the topics of all tokens, document by document, each given those of all other tokens.

    Returns
    -------
    int
        0, or 1 where a topic may have to be opened and none is free.
    """
    s = tokens_at(head)
    bits = s.bits
    n_topics = s.n_topics
    is_open = s.is_open == 1
    eta_sum = s.numbers[ETA_SUM]
    while s.document < s.n_documents:
        j = s.document
        alpha = s.group_alphas[j]
        for k in range(n_topics):
            s.own[k] = alpha * s.shares[k]
        for t in range(s.starts[j], s.starts[j + 1]):
            s.own[s.labels[t]] += 1.0
        for k in range(n_topics):
            s.odds[k] = s.own[k] / (s.totals[k] + eta_sum)
        sum_of_odds = _sum_of(s.odds, n_topics)
        moved = 0
        for t in range(s.starts[j] + s.token, s.starts[j + 1]):
            if is_open and s.n_free == 0:
                s.token = t - s.starts[j]
                s.n_moved += moved
                return 1
            w = s.words[t]
            old = s.labels[t]
            start = s.places[w]
            eta = s.eta[w]
            # The token stays where it is until it moves, but for a topic that it leaves without any.
            odds_old = (s.own[old] - 1.0) / (s.totals[old] - 1.0 + eta_sum)
            has_left = is_open and s.totals[old] == 1.0
            if has_left:
                place = 0
                while s.topics[start + place] != old:
                    place += 1
                _leave(s, start, w, place, old, eta_sum)
                _close(s, old)
                odds_old = 0.0
                sum_of_odds = _sum_of(s.odds, n_topics)
            n = s.lengths[w]
            place = 0
            total = 0.0
            for r in range(n):
                k = s.topics[start + r]
                weight = s.odds[k] * s.counts[start + r]
                if k == old:
                    place = r
                    weight = odds_old * (s.counts[start + r] - 1)
                s.weights[r] = weight
                total += weight
            other = eta * max(sum_of_odds + (odds_old - s.odds[old]), 0.0)
            opening = alpha * s.numbers[REST] * eta / eta_sum if is_open else 0.0
            u = uniform(bits) * (total + other + opening)
            if u < total:
                new = s.topics[start + _find(s.weights, n, u)]
            elif u < total + other or not is_open:
                new = _find_odds(s.odds, n_topics, (u - total) / eta, old, odds_old)
            else:
                new = _open(s, bits, alpha)
            if new != old or has_left:
                before = s.odds[old] + s.odds[new]
                if not has_left:
                    _leave(s, start, w, place, old, eta_sum)
                _join(s, start, w, new, eta_sum)
                if has_left:
                    sum_of_odds = _sum_of(s.odds, n_topics)
                else:
                    sum_of_odds += s.odds[old] + s.odds[new] - before
                s.labels[t] = new
                moved += 1
        s.n_moved += moved
        s.token = 0
        s.document += 1
    return 0


@c_function(NOTHING(INTS, INT))
def count_words(head, n):
    """Set the lists of topics of all words, which are empty, from the labels of n tokens."""
    s = tokens_at(head)
    for t in range(n):
        k = s.labels[t]
        start = s.places[s.words[t]]
        r = start
        stop = start + s.lengths[s.words[t]]
        while r < stop and s.topics[r] != k:
            r += 1
        if r == stop:
            s.topics[r] = k
            s.counts[r] = 0
            s.lengths[s.words[t]] += 1
        s.counts[r] += 1
        s.totals[k] += 1.0


@c_function(FLOAT(INTS, INT))
def log_words(head, n_words):
    """Log probability of all words given their topics."""
    s = tokens_at(head)
    total = 0.0
    product = 1.0
    for w in range(n_words):
        for r in range(s.places[w], s.places[w] + s.lengths[w]):
            count = s.counts[r]
            # Most counts are small: a product of a few factors stands for a quotient of gamma functions.
            if count > MOST_FACTORS or s.eta[w] > _LARGEST_FACTOR:
                total += log_rising(s.eta[w], count)
                continue
            for c in range(count):
                product *= s.eta[w] + c
            if product > 1e200 or product < 1e-200:
                total += math.log(product)
                product = 1.0
    total += math.log(product)
    eta_sum = s.numbers[ETA_SUM]
    for k in range(s.n_topics):
        total -= log_rising(eta_sum, s.totals[k])
    return total


@c_function(FLOAT(INTS))
def log_topics(head):
    """Log probability of all topics given the shares of the last scan, and the alphas of groups."""
    s = tokens_at(head)
    n_topics = s.n_topics
    shares = 0.0
    for k in range(n_topics):
        shares += s.shares[k]
        s.own[k] = 0.0
    total = 0.0
    product = 1.0
    for j in range(s.n_documents):
        alpha = s.group_alphas[j]
        n = s.starts[j + 1] - s.starts[j]
        for t in range(s.starts[j], s.starts[j + 1]):
            # One token after the other: a rising factorial for each topic.
            k = s.labels[t]
            product *= alpha * s.shares[k] + s.own[k]
            s.own[k] += 1.0
            if product > 1e200 or product < 1e-200:
                total += math.log(product)
                product = 1.0
        for t in range(s.starts[j], s.starts[j + 1]):
            s.own[s.labels[t]] = 0.0
        total -= log_rising(alpha * shares, n)
    return total + math.log(product)


class Words(Memory, block=HEAD):
    """Words in documents and their topics, as scans work on them.

    Memory is 16 bytes for each token, and does not depend on the number of topics: a word can be in no more topics
    than it has tokens.

    Parameters
    ----------
    words : (n,) integer array
        Of all tokens, in 0..n_words-1.
    groups : Groups
        The documents of the tokens.
    eta : (n_words,) array, > 0
        Dirichlet parameters of every topic.

    Attributes
    ----------
    n_topics : int
        Number of topics that there is room for.
    """

    n_topics: int
    n_moved: int

    def __init__(self, words: np.ndarray, groups: Groups, eta: np.ndarray) -> None:
        super().__init__(n_documents=groups.n_groups)
        self.groups = groups
        self.words = np.ascontiguousarray(words[groups.rows], dtype=np.int32)
        self._make(labels=len(words), topics=len(words), counts=len(words), numbers=3)
        # Where the list of each word's topics begins.
        sizes = np.bincount(self.words, minlength=len(eta))
        self.places = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        self.starts = groups.starts
        self.group_alphas = np.ones(groups.n_groups)
        self.set_eta(eta)
        self.set_labels(np.zeros(len(words), dtype=np.int64), 1)

    def set_eta(self, eta: np.ndarray) -> None:
        """Take other parameters of the topics."""
        self.eta = np.array(eta, dtype=np.float64)
        self.numbers[ETA_SUM] = self.eta.sum()

    def set_labels(self, labels: np.ndarray, n_topics: int) -> None:
        """Take topics (n,) in 0..n_topics-1, of the tokens in the order in which they were given."""
        self.labels[:] = labels[self.groups.rows]
        self._make_room(n_topics)
        self._make(shares=n_topics)

    def _make_room(self, n_topics: int) -> None:
        self.n_topics = n_topics
        self._make(lengths=len(self.eta), **dict.fromkeys(("own", "odds", "weights", "totals", "free"), n_topics))
        count_words(self.address, len(self.labels))

    def grow(self) -> None:
        """Make room for more topics, half as many again and sixteen."""
        self._make_room(self.n_topics + self.n_topics // 2 + 16)
        self._make_longer(shares=self.n_topics)
        self._list_free()

    def _list_free(self) -> None:
        free = np.flatnonzero(self.totals == 0.0)[::-1]
        self.free[: len(free)] = free
        self.n_free = len(free)

    def scan(
        self,
        rng: np.random.Generator,
        group_alphas: np.ndarray,
        shares: np.ndarray,
        rest: float = 0.0,
        gamma: float = 0.0,
    ) -> int:
        """Draw the topics of all tokens once; return how many have moved.

        Parameters
        ----------
        rng : numpy.random.Generator
        group_alphas : (J,) array
            What shares are multiplied by in each document.
        shares : (n_topics,) array
            Shares of the topics, or Dirichlet parameters.
        rest, gamma : float
            Under a hierarchical Dirichlet process, the share of all topics without tokens, and gamma; topics can
            then be opened. Where ``gamma`` is 0, none is opened or closed.
        """
        self.draw_from(rng)
        self.document = self.token = self.n_moved = self.n_free = 0
        self.is_open = gamma > 0.0
        self.numbers[[REST, GAMMA]] = rest, gamma
        self.group_alphas[:] = group_alphas
        self.shares[:] = shares
        if gamma > 0.0:
            self._list_free()
        while scan_words(self.address):
            self.grow()
        return self.n_moved

    @property
    def rest(self) -> float:
        """The share of all topics without tokens."""
        return float(self.numbers[REST])

    def topics_of_tokens(self) -> np.ndarray:
        """Return the topics of tokens in the order in which they were given: (n,) int64 array."""
        found = np.empty(len(self.labels), dtype=np.int64)
        found[self.groups.rows] = self.labels
        return found

    def log_prior(self, alpha: np.ndarray) -> float:
        """Return the log probability of topics with names, given the Dirichlet parameters of their weights."""
        self.group_alphas[:], self.shares[:] = 1.0, alpha
        return float(log_topics(self.address))

    def log_likelihood(self) -> float:
        """Return the log probability of all words given their topics."""
        return float(log_words(self.address, len(self.eta)))
