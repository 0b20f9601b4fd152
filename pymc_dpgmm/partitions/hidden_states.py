r"""The prior of a hidden Markov model with any number of states, as numbers: densities, draws and counts.

From each state j, the next one is drawn from a Dirichlet process around weights that all states share (Teh et al.
2006, section 7), with a further weight kappa of staying (Fox et al. 2011); the first states of sequences are drawn
from one more, which nobody stays in. Rows are taken sequence by sequence, in their order. Of the :math:`n_j` rows
that have followed state j so far, :math:`c_i` are in the state of row i. Each row

joins
    them, with probability :math:`c_i / (n_j + \alpha + \kappa)`,
opens
    a draw of its own from the shared weights, with probability :math:`\alpha / (n_j + \alpha + \kappa)`: that is
    a state which :math:`m_k` earlier ones have opened with weight :math:`m_k`, or a new one with weight gamma,
stays
    of its own, with probability :math:`\kappa / (n_j + \alpha + \kappa)`, in state j.

With M rows that open, S that stay of their own, J sequences and K states,

.. math:: p(\text{labels}, \text{openers}) = \frac{\Gamma(\alpha)}{\Gamma(\alpha + J)}
    \prod_j \frac{\Gamma(\alpha + \kappa)}{\Gamma(\alpha + \kappa + n_j)} \; \alpha^M \kappa^S
    \prod_{i \text{ joins}} c_i \; \gamma^K \frac{\Gamma(\gamma)}{\Gamma(\gamma + M)} \prod_k \Gamma(m_k).

With at most N states, the shared weights are Dirichlet with N parameters :math:`g = \gamma / N`. A state is opened
with weight :math:`m_k + g`, a new one with :math:`\gamma - K g`, and the last factors become

.. math:: \gamma^K \prod_{j < K} \Big(1 - \frac j N\Big) \frac{\Gamma(\gamma)}{\Gamma(\gamma + M)}
    \prod_k \frac{\Gamma(m_k + g)}{\Gamma(1 + g)},

of which those above are the limit of a large N. Given the shared weights :math:`\beta`, openers can be summed out:
:func:`density_of_transitions`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.arithmetic import Bits, uniform
from pymc_dpgmm.native.compiled import FLOAT, FLOATS, INT, INTS, NOTHING, address_of, bits_of_generator, c_function
from pymc_dpgmm.native.special import gammaln
from pymc_dpgmm.partitions.draws import log_gamma_numbers
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.segments import Sequences

# What a row does: see above.
JOINS, OPENS, STAYS = range(3)
# Cycles of openers and shared weights after which openers of given labels count as drawn.
CYCLES_OF_OPENERS = 50


class HiddenCounts(NamedTuple):
    """Statistics that determine the density of labels and openers.

    Parameters
    ----------
    tables : (K,) int64 array
        How many rows open each state, in the order of the states' first rows; empty if labels and openers are
        impossible together.
    n_stays : int
    sizes : (K,) int64 array
        How many rows follow one of each state.
    log_joined : float
        Sum of the logarithms of the counts :math:`c_i` of rows that join.
    """

    tables: np.ndarray
    n_stays: int
    sizes: np.ndarray
    log_joined: float


@c_function(FLOAT(INTS, INTS, INTS, INTS, INT, INT, INTS, INTS, INTS))
def _count(labels, openers, rows, starts, n_sequences, n_states, counts, tables, sizes):
    """Count in ``counts`` (K + 1, K), ``tables`` (K,) and ``sizes`` (K + 1,); return ``log_joined``, or -inf.

    The first entry of ``sizes`` becomes the number of rows that stay.
    """
    total, product = 0.0, 1.0
    for q in range(n_sequences):
        before = 0
        for t in range(starts[q], starts[q + 1]):
            i = rows[t]
            k = labels[i]
            place = before * n_states + k
            if openers[i] == OPENS:
                tables[k] += 1
            elif openers[i] == STAYS:
                if before != k + 1:
                    return -math.inf
                sizes[0] += 1
            else:
                if counts[place] == 0:
                    return -math.inf
                product *= counts[place]
                if product > 1e250:
                    total += math.log(product)
                    product = 1.0
            counts[place] += 1
            if before > 0:
                sizes[before] += 1
            before = k + 1
    return total + math.log(product)


def count_hidden(labels: np.ndarray, openers: np.ndarray, sequences: Sequences) -> HiddenCounts:
    """Return the statistics that determine the density of labels and openers.

    Parameters
    ----------
    labels : (n,) integer array
        In 0..n-1; other values have probability 0.
    openers : (n,) integer array
        ``JOINS``, ``OPENS`` or ``STAYS`` for each row; other values have probability 0.
    sequences : Sequences
    """
    nothing = np.zeros(0, dtype=np.int64)
    impossible = HiddenCounts(nothing, 0, nothing, -math.inf)
    n = len(labels)
    inside = n and labels.min() >= 0 and labels.max() < n and openers.min() >= 0 and openers.max() <= STAYS
    if not inside:
        return impossible
    codes, n_states = canonical_labels(labels)
    openers = openers.astype(np.int64)
    counts, tables = np.zeros((n_states + 1, n_states), np.int64), np.zeros(n_states, np.int64)
    sizes = np.zeros(n_states + 1, np.int64)
    log_joined = _count(
        *map(address_of, (codes, openers, *sequences)),
        len(sequences.starts) - 1,
        n_states,
        *map(address_of, (counts, tables, sizes)),
    )
    return HiddenCounts(tables, int(sizes[0]), sizes[1:], log_joined) if log_joined > -math.inf else impossible


def log_hidden(
    counts: HiddenCounts, n_sequences: int, alpha: float, gamma: float, kappa: float, most: float = math.inf
) -> float:
    """Return the log density of labels and openers; -inf where concentrations are outside their support.

    There are at most ``most`` states.
    """
    n_tables, inside = counts.tables.sum(), 0.0 < alpha < math.inf and 0.0 < gamma < math.inf
    inside = inside and 0.0 <= kappa < math.inf and 0 < len(counts.tables) <= most
    if not inside or (kappa == 0.0 and counts.n_stays):
        return -math.inf
    each = gamma / most
    return float(
        n_tables * math.log(alpha)
        + (counts.n_stays * math.log(kappa) if counts.n_stays else 0.0)
        - _log_rising(alpha, n_sequences)
        - np.sum(gammaln(alpha + kappa + counts.sizes) - gammaln(alpha + kappa))
        + log_of_states(len(counts.tables), gamma, most)
        - _log_rising(gamma, n_tables)
        + np.sum(gammaln(counts.tables + each))
        + counts.log_joined
    )


def log_of_states(n_states: int, gamma: float, most: float) -> float:
    r"""Return :math:`\log \gamma^K \prod_{j < K} (1 - j / N) / \Gamma(1 + g)^K` for K states of at most N."""
    found = n_states * (math.log(gamma) - math.lgamma(1.0 + gamma / most))
    return found + (float(np.log1p(-np.arange(n_states) / most).sum()) if most < math.inf else 0.0)


def _log_rising(x: float, n: float) -> float:
    return math.lgamma(x + n) - math.lgamma(x)


def transition_counts(codes: np.ndarray, sequences: Sequences, n_states: int) -> np.ndarray:
    """Return how often each state follows each: (K + 1, K), first those that sequences begin with.

    Parameters
    ----------
    codes : (n,) integer array
        States 0 to K - 1 of the rows, in order: those of ``sequences.rows``.
    sequences : Sequences
    n_states : int
    """
    before = np.zeros(len(codes), dtype=np.int64)
    before[1:] = codes[:-1] + 1
    before[sequences.starts[:-1][np.diff(sequences.starts) > 0]] = 0
    found = np.bincount(before * n_states + codes, minlength=(n_states + 1) * n_states)
    return found.reshape(n_states + 1, n_states)


def density_of_transitions(counts: np.ndarray, shares: np.ndarray) -> Callable[[float, float], float]:
    r"""Return the log density of transitions given shared weights, openers summed out, of alpha and kappa.

    .. math:: \sum_j \log \frac{\Gamma(A_j)}{\Gamma(A_j + n_j)}
        \prod_k \frac{\Gamma(a_{jk} + n_{jk})}{\Gamma(a_{jk})}, \qquad a_{jk} = \alpha \beta_k + \kappa [j = k]

    with :math:`A_j = \alpha + \kappa`, and :math:`\alpha` for the first states of sequences.

    Parameters
    ----------
    counts : (K + 1, K) array
        See :func:`transition_counts`.
    shares : (K,) array, > 0
    """
    before, after = np.nonzero(counts)
    sizes, seen = counts.sum(axis=1), counts[before, after]
    # Of transitions that have been seen, and of states; what is added to each, and its sign.
    of_alpha = np.concatenate([shares[after], np.ones(len(sizes))])
    of_kappa = np.concatenate([before == after + 1, np.arange(len(sizes)) > 0]).astype(float)
    more = np.concatenate([seen, sizes])
    signs = np.repeat([1.0, -1.0], [len(seen), len(sizes)])
    signs = np.concatenate([signs, -signs])

    def log_density(alpha: float, kappa: float) -> float:
        weights = alpha * of_alpha + kappa * of_kappa
        return float(signs @ gammaln(np.concatenate([weights + more, weights])))

    return log_density


@c_function(NOTHING(INT, INT, INTS, INTS, INTS, INT, INT, FLOATS, FLOATS, INTS, INTS))
def _open(next_double, state, labels, rows, starts, n_sequences, n_states, shares, numbers, counts, openers):
    """Draw openers given labels and shares; ``numbers`` are alpha and kappa, ``counts`` (K + 1, K) zeros."""
    bits = Bits(next_double, state)
    alpha, kappa = numbers[0], numbers[1]
    for q in range(n_sequences):
        before = 0
        for t in range(starts[q], starts[q + 1]):
            i = rows[t]
            k = labels[i]
            place = before * n_states + k
            opens, stays = alpha * shares[k], kappa if before == k + 1 else 0.0
            c = counts[place]
            u = uniform(bits) * (opens + stays + c)
            openers[i] = OPENS
            if opens <= u < opens + stays:
                openers[i] = STAYS
            elif u >= opens + stays and c > 0:
                openers[i] = JOINS
            counts[place] = c + 1
            before = k + 1


def draw_openers(
    rng: np.random.Generator,
    codes: np.ndarray,
    shares: np.ndarray,
    sequences: Sequences,
    alpha: float,
    kappa: float,
) -> np.ndarray:
    """Draw openers given the states 0 to K - 1 of all rows, and shared weights (K,): (n,) int64 array."""
    codes, shares = np.ascontiguousarray(codes, dtype=np.int64), np.ascontiguousarray(shares)
    n_states, openers = len(shares), np.empty(len(codes), dtype=np.int64)
    counts, numbers = np.zeros((n_states + 1, n_states), dtype=np.int64), np.array([alpha, kappa])
    _open(
        *bits_of_generator(rng),
        *map(address_of, (codes, *sequences)),
        len(sequences.starts) - 1,
        n_states,
        *map(address_of, (shares, numbers, counts, openers)),
    )
    return openers


def shares_parameters(tables: np.ndarray, gamma: float, most: float) -> np.ndarray:
    """Return Dirichlet parameters of the shared weights of states, given how many rows open each: (K + 1,).

    The last one is that of all states without rows together, 0 where there are none.
    """
    found: np.ndarray = np.append(tables + gamma / most, gamma * (1.0 - len(tables) / most))
    return found


def draw_shares(
    rng: np.random.Generator, tables: np.ndarray, gamma: float, most: float = math.inf
) -> tuple[np.ndarray, float]:
    """Draw shared weights of the states (K,), and the log of that of all others, given how many rows open each.

    The last is a logarithm, since with a small gamma it is often smaller than any number.
    """
    parameters = shares_parameters(tables, gamma, most)
    log_drawn, positive = np.full(len(parameters), -math.inf), parameters > 0.0
    log_drawn[positive] = log_gamma_numbers(rng, parameters[positive])
    log_drawn -= np.logaddexp.reduce(log_drawn)
    return np.maximum(np.exp(log_drawn[:-1]), np.finfo(float).tiny), float(log_drawn[-1])


def draw_part_of_rest(rng: np.random.Generator, n_states: int, gamma: float, most: float) -> float:
    """Draw which part of the weight of all states without rows one of them has, chosen by its weight.

    There are ``n_states`` states with rows. The part has a Beta distribution (Pitman 1996).
    """
    others = gamma * (1.0 - (n_states + 1) / most)
    return float(rng.beta(1.0 + gamma / most, others)) if others > 0.0 else 1.0


def draw_hidden(
    rng: np.random.Generator,
    alpha: float,
    gamma: float,
    kappa: float,
    sequences: Sequences,
    most: float = math.inf,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw labels and openers from their prior: two (n,) int64 arrays."""
    labels, openers = np.zeros((2, len(sequences.rows)), dtype=np.int64)
    # The states that have followed each, row by row; -1 is the beginning of a sequence.
    followed: dict[int, list[int]] = {}
    # Those that rows have opened.
    opened: list[int] = []
    n_states, begins = 0, set(sequences.starts[:-1].tolist())
    before = -1
    for t, i in enumerate(sequences.rows.tolist()):
        before = -1 if t in begins else before
        earlier = followed.setdefault(before, [])
        stays = 0.0 if before < 0 else kappa
        u = rng.random() * (len(earlier) + alpha + stays)
        if u < len(earlier):
            state, does = earlier[int(u)], JOINS
        elif u < len(earlier) + stays:
            state, does = before, STAYS
        else:
            v, does = rng.random() * (len(opened) + gamma), OPENS
            if v < len(opened):
                state = opened[int(v)]
            else:
                # Each state has another gamma / most; those that have no rows yet are the next one.
                state = min(int((v - len(opened)) / gamma * most), n_states) if most < math.inf else n_states
            n_states = max(n_states, state + 1)
            opened.append(state)
        earlier.append(state)
        labels[i], openers[i], before = state, does, state
    return labels, openers


def draw_openers_of(
    rng: np.random.Generator,
    labels: np.ndarray,
    sequences: Sequences,
    alpha: float,
    gamma: float,
    kappa: float,
    most: float = math.inf,
) -> np.ndarray:
    """Draw openers given labels, shared weights summed out, by cycles of both: (n,) int64 array."""
    codes, n_states = canonical_labels(labels)
    openers = np.full(len(codes), OPENS)
    for _ in range(CYCLES_OF_OPENERS):
        tables = np.bincount(codes[openers == OPENS], minlength=n_states)
        shares, _ = draw_shares(rng, tables, gamma, most)
        openers = draw_openers(rng, codes, shares, sequences, alpha, kappa)
    return openers
