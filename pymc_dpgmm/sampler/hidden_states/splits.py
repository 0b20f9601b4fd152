r"""Splits and merges of hidden states.

Two rows are chosen. If they are in one state, its rows are divided, otherwise their states are united. A launch,
which depends on the rows of both states together and on nothing of how they are divided, draws parameters of two
sides, and on which side each row is, in turn. Then the sides are drawn once more, with the two rows on different
ones, as a path of a chain of two states. The probability of these sides is known, so that the move is that of Jain
and Neal (2004) with another proposal.

Of the share :math:`\sigma` of the whole among states with rows, one side takes a part :math:`\rho`, and the part r
of all weights that states without rows have is drawn anew, so that a last one may be opened too. Both are drawn
from beta distributions whose parameters are about those of their posteriors: for r, :math:`\gamma_* = \gamma - K
g` and the number T of different transitions. In the measures :math:`d\rho` and dr, the densities of shares of
K + 1 states over those of K are

.. math:: \frac{\gamma (1 - K / N)}{\Gamma(1 + g)} \, \sigma^g \, (\rho (1 - \rho))^{g - 1}

times the ratio of :math:`(1 - r)^{K g - T} \, \Gamma(T) / \Gamma(\gamma_* + T)`, which is left of the density of r
over that of its proposal; g and N are those of :mod:`pymc_dpgmm.sampler.hidden_states.hidden_states`.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native.compiled import address_of, bits_of_generator
from pymc_dpgmm.partitions.hidden_states import density_of_transitions, transition_counts
from pymc_dpgmm.sampler.hidden_states.hidden_states import LEAST, HiddenStates
from pymc_dpgmm.sampler.hidden_states.paths import draw_sides
from pymc_dpgmm.sampler.state.views import gather_in_views, log_evidence_in_views

# Rows around each of the two that a launch begins with, at most, and how often it draws all sides.
MOST_SEEDS, LAUNCHES = 16, 2
# Pseudo-counts of transitions between sides, which are proposals only.
PSEUDO_COUNT = 0.5


class Whole(NamedTuple):
    """The rows of a state that may divide, or of two that may unite, in order.

    Parameters
    ----------
    positions, rows : (m,) int64 arrays
        Their places in order, and their numbers.
    follows, leads : (m,) bool arrays
        Whether the row before, or after, is one of them.
    before, after : (m,) int64 arrays
        The state of the row before and after, K where there is none.
    ends : (2,) int64 array
        Places here of the two rows that have been chosen.
    shares : (K,) array
        Of all states.
    share : float
        Of the whole.
    n_others : int
        States that are not in it.
    """

    positions: np.ndarray
    rows: np.ndarray
    follows: np.ndarray
    leads: np.ndarray
    before: np.ndarray
    after: np.ndarray
    ends: np.ndarray
    shares: np.ndarray
    share: float
    n_others: int

    @classmethod
    def of(
        cls, hidden: HiddenStates, codes: np.ndarray, places: tuple[int, int], pair: np.ndarray, shares: np.ndarray
    ) -> "Whole":
        """Return the rows of the states at two places, which may be one, given the states of all rows in order."""
        a, b = places
        belongs = (codes == a) | (codes == b)
        at = np.flatnonzero(belongs)
        follows = belongs[at - 1] & ~hidden.begins[at]
        none, rows = len(shares), hidden.sequences.rows[at]
        return cls(
            positions=at,
            rows=rows,
            follows=follows,
            leads=np.append(follows[1:], False),
            before=np.where(hidden.begins[at], none, codes[at - 1]),
            after=np.where(hidden.ends[at], none, codes[np.minimum(at + 1, len(codes) - 1)]),
            ends=np.array([np.flatnonzero(rows == row)[0] for row in pair]),
            shares=shares,
            share=float(shares[a] if a == b else shares[a] + shares[b]),
            n_others=none - len({a, b}),
        )

    def seeds(self, rng: np.random.Generator) -> np.ndarray:
        """Return the sides that a launch begins with: those of rows near the two, and -1."""
        sides, (left, right) = np.full(len(self.rows), -1), self.ends.tolist()
        # No more than half of the rows between them.
        reach = min(int(rng.integers(1, MOST_SEEDS + 1)), max(abs(right - left) // 2, 1))
        for side, place in enumerate((left, right)):
            near = slice(max(place - reach + 1, 0), place + reach)
            sides[near] = np.where(sides[near] < 0, side, sides[near])
        sides[left], sides[right] = 0, 1
        return sides

    def weigh(self, sides: np.ndarray, alpha: float, kappa: float) -> tuple[np.ndarray, np.ndarray]:
        """Return log weights (m, 2) of sides by the states before and after, and transitions (2, 2) between sides.

        They are smoothed frequencies of a launch, in which rows without a side are -1.
        """
        own, has_side, n_states = PSEUDO_COUNT + alpha * self.share / 2.0, sides >= 0, len(self.shares)
        entered, left, within = np.zeros((2, n_states + 1)), np.zeros((2, n_states + 1)), np.zeros((2, 2))
        enters, leaves, both = has_side & ~self.follows, has_side & ~self.leads, self.follows.copy()
        both[1:] &= has_side[1:] & has_side[:-1]
        np.add.at(entered, (sides[enters], self.before[enters]), 1.0)
        np.add.at(left, (sides[leaves], self.after[leaves]), 1.0)
        np.add.at(within, (sides[np.flatnonzero(both) - 1], sides[both]), 1.0)
        totals = within.sum(axis=1) + left[:, :-1].sum(axis=1) + alpha + kappa + 2.0 * PSEUDO_COUNT
        leaving = np.ones((2, n_states + 1))
        leaving[:, :-1] = (left[:, :-1] + alpha * self.shares + PSEUDO_COUNT / (self.n_others + 1)) / totals[
            :, None
        ]
        weights = np.zeros((len(sides), 2))
        weights[~self.follows] += np.log(entered + own).T[self.before[~self.follows]]
        weights[~self.leads] += np.log(leaving).T[self.after[~self.leads]]
        return weights, (within + own + kappa * np.eye(2)) / totals[:, None]


class _States(NamedTuple):
    """States of all rows.

    Parameters
    ----------
    codes : (n,) int64 array
        States of the rows in order.
    shares : (K,) array
        Parts of the shared weights that have rows.
    counts : (K + 1, K) int64 array
        See :func:`transition_counts`.
    """

    codes: np.ndarray
    shares: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, hidden: HiddenStates, codes: np.ndarray, shares: np.ndarray) -> "_States":
        """Count the transitions."""
        return cls(codes, shares, transition_counts(codes, hidden.sequences, len(shares)))

    def of_rest(self, hidden: HiddenStates) -> tuple[float, int]:
        """Return the parameters of the beta distribution that the weight of states without rows is drawn from."""
        part = 1.0 - len(self.shares) / hidden.most
        return hidden.concentrations[1] * part, int(np.count_nonzero(self.counts))

    def draw_rest(self, hidden: HiddenStates) -> float:
        """Draw the weight of all states without rows."""
        parameters = self.of_rest(hidden)
        return float(hidden.rng.beta(*parameters)) if parameters[0] > 0.0 else 0.0

    def log_density(self, hidden: HiddenStates, rest: float) -> float:
        """Return the log density of transitions and of the weight of states without rows, over its proposal."""
        (alpha, gamma, kappa), (parameter, n_seen) = hidden.concentrations, self.of_rest(hidden)
        found = density_of_transitions(self.counts, np.maximum((1.0 - rest) * self.shares, LEAST))(alpha, kappa)
        found += (len(self.shares) * gamma / hidden.most - n_seen) * math.log1p(-rest)
        return found + math.lgamma(n_seen) - math.lgamma(parameter + n_seen)


def split_or_merge(hidden: HiddenStates) -> int:
    """Divide the state of two rows that are drawn, or unite their states; return 0, as no row moves alone."""
    state, rng, ordered = hidden.state, hidden.rng, hidden.sequences.rows
    if state.n < 2:
        return 0
    pair = rng.choice(state.n, size=2, replace=False)
    is_split = bool(state.slots[pair[0]] == state.slots[pair[1]])
    hidden.tally["splits_tried" if is_split else "merges_tried"] += 1
    if is_split and state.n_clusters >= hidden.most:
        return 0
    while state.capacity < state.n_clusters + 2:
        hidden.grow()
    codes, shares, (alpha, gamma, _) = hidden.codes()[ordered], hidden.own_shares(), hidden.concentrations
    rest = hidden.rest()
    rest, shares = rest / (rest + shares.sum()), shares / shares.sum()
    a, b = state.place[state.slots[pair]].tolist()
    whole = Whole.of(hidden, codes, (a, b), pair, shares)
    sides, log_q = _divide(hidden, whole, None if is_split else (codes[whole.positions] == b).astype(np.int64))
    if not log_q > -math.inf:
        return 0
    # The states united and apart, as numbers, with their shares.
    new = len(shares) if is_split else b
    united, apart = codes.copy(), codes.copy()
    united[whole.positions], apart[whole.positions] = a, np.where(sides == 0, a, new)
    shares_united, shares_apart = shares.copy(), np.append(shares, 0.0) if is_split else shares
    shares_united[a] = whole.share
    if not is_split:
        # The last state takes the number that is free.
        united[united == len(shares) - 1] = b
        shares_united[b] = shares_united[-1]
        shares_united = shares_united[:-1]
    of_apart, of_united = _States.of(hidden, apart, shares_apart), _States.of(hidden, united, shares_united)
    each = gamma / hidden.most
    left, right = (_guessed_tables(alpha * whole.share / 2.0, of_apart.counts[:, k]) + each for k in (a, new))
    if is_split:
        drawn = rng.standard_gamma([left, right])
        shares_apart[[a, new]] = np.maximum(whole.share * drawn / drawn.sum(), LEAST)
    log_parts = np.log(shares_apart[[a, new]] / whole.share)
    proposed = of_apart if is_split else of_united
    rest_proposed = proposed.draw_rest(hidden)
    rest_apart, rest_united = (rest_proposed, rest) if is_split else (rest, rest_proposed)
    log_ratio = (
        math.log(gamma * (1.0 - len(shares_united) / hidden.most))
        - math.lgamma(1.0 + each)
        + each * math.log(whole.share)
        + (each - 1.0) * float(log_parts.sum())
        - _log_beta_density(log_parts, left, right)
        + of_apart.log_density(hidden, rest_apart)
        - of_united.log_density(hidden, rest_united)
        + _log_evidence_ratio(hidden, whole.rows, sides)
        - log_q
    )
    if not math.log1p(-rng.random()) < (log_ratio if is_split else -log_ratio):
        return 0
    hidden.tally["splits" if is_split else "merges"] += 1
    labels = np.empty(state.n, dtype=np.int64)
    labels[ordered] = proposed.codes
    hidden.relabel(labels, np.maximum((1.0 - rest_proposed) * proposed.shares, LEAST), rest_proposed)
    return 0


def _side_of_known(
    hidden: HiddenStates, whole: Whole, given: np.ndarray | None
) -> tuple[np.ndarray, int, float] | None:
    """Return which rows are known to be together, their side, and the log probability of its choice.

    None where the rows cannot be divided so, or those of two known states would be together.
    """
    numbers = hidden.known[whole.rows]
    known, at_ends = numbers >= 0, numbers[whole.ends] >= 0
    if not known.any():
        return known, 0, 0.0
    if at_ends.all() or numbers[known].min() < numbers.max():
        return None
    if at_ends.any():
        return known, int(at_ends[1]), 0.0
    side = int(hidden.rng.integers(2)) if given is None else int(given[known][0])
    return known, side, -math.log(2.0)


def _divide(hidden: HiddenStates, whole: Whole, given: np.ndarray | None) -> tuple[np.ndarray, float]:
    """Draw on which side of two each row is, or take those that are given; return also their log probability."""
    rng, state, m, (alpha, _, kappa) = hidden.rng, hidden.state, len(whole.rows), hidden.concentrations
    links, room, sides, log_q = whole.follows.astype(np.int64), np.empty(2 * m), whole.seeds(rng), -math.inf
    found = _side_of_known(hidden, whole, given)
    if found is None:
        return sides, log_q
    known, side_of_known, log_known = found
    sides[known] = side_of_known
    slots = state.order[state.n_clusters : state.n_clusters + 2].copy()
    for launch in range(LAUNCHES + 1):
        for side, slot in enumerate(slots.tolist()):
            own = np.ascontiguousarray(whole.rows[sides == side])
            gather_in_views(state.address, slot, address_of(own), len(own), 1)
        weights, within = whole.weigh(sides, alpha, kappa)
        weights += hidden.log_densities(slots, whole.rows)
        weights[whole.ends, [1, 0]] = weights[known, 1 - side_of_known] = -math.inf
        weights = np.exp(weights - weights.max(axis=1, keepdims=True))
        is_given = launch == LAUNCHES and given is not None
        sides = given if given is not None and is_given else np.empty(m, dtype=np.int64)
        arrays = map(address_of, (weights, links, within))
        log_q = draw_sides(*bits_of_generator(rng), *arrays, m, address_of(sides), int(is_given), address_of(room))
        if not log_q > -math.inf:
            break
    return sides, float(log_q) + log_known


def _log_evidence_ratio(hidden: HiddenStates, rows: np.ndarray, sides: np.ndarray) -> float:
    """Return the log evidence of the two sides over that of all rows together."""
    state, found = hidden.state, 0.0
    slot = int(state.order[state.n_clusters])
    for own, sign in ((rows[sides == 0], 1.0), (rows[sides == 1], 1.0), (rows, -1.0)):
        own = np.ascontiguousarray(own)
        gather_in_views(state.address, slot, address_of(own), len(own), 1)
        found += sign * log_evidence_in_views(state.address, slot)
    return found


def _guessed_tables(pseudo_count: float, counts: np.ndarray) -> float:
    """Return about how many rows open a state, given how often it has followed each other one."""
    seen = counts[counts > 0]
    return float(np.sum(1.0 + pseudo_count * np.log1p((seen - 1.0) / (pseudo_count + 1.0))))


def _log_beta_density(log_parts: np.ndarray, a: float, b: float) -> float:
    """Return the log density of a beta number, given its logarithm and that of one minus it."""
    within = float(log_parts @ [a - 1.0, b - 1.0])
    return math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + within
