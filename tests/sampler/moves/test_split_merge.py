"""Split and merge moves: transition matrices, partition frequencies, bookkeeping."""

import itertools
import math

import exact
import numpy as np
import pytest
from slowly import rest_slow
from small_states import BASES, FIVE, NIW, check_state, state_at

import pymc_dpgmm as dp
from pymc_dpgmm import testing
from pymc_dpgmm.families import FAMILIES, View
from pymc_dpgmm.native.compiled import FLOATS, INT, INTS, NOTHING, c_function
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.amounts import LARGEST_DIVIDED, Effort
from pymc_dpgmm.sampler.moves import split_merge as sm
from pymc_dpgmm.sampler.moves.sweep import sweep
from pymc_dpgmm.sampler.state.memory import memory_at, prior_of
from pymc_dpgmm.sampler.tuning.exploration import explore
from pymc_dpgmm.sampler.tuning.schedule import no_tally


@c_function(NOTHING(INTS, INT, INT, INT, FLOATS))
def split_pieces(head, place, size, sequential, found):
    """Write the product's terms of the split that ``pool[:size]`` and ``side`` tell, of the cluster at a place."""
    s = memory_at(head)
    prior = prior_of(s)
    n_clusters = s.n_clusters
    halves, whole = s.halves, s.order[place]
    counts = s.half_sizes
    halves[0], halves[1] = s.order[n_clusters + 1], s.order[n_clusters]
    if sequential == 1:
        found[0] = sm.allocate_sequentially(s, size, True, -math.inf)
        found[1] = sm.log_choose_partner(s, prior, place, s.pool[0], halves[0], counts[0])
        found[3] = 0.0
    else:
        sm.gather_halves(s, size, halves, counts)
        found[0] = 0.0
        found[1] = 0.0
        found[3] = sm.log_random_selection(s, size, counts[0], counts[1])
    found[2] = sm.log_target_ratio(s, prior, n_clusters, halves, counts, whole)


class Matrix:
    """The transition matrix of one kind of move.

    How proposals come about is written here a second time, in Python, as docs/moves.md tells it: the probability
    of every choice that a move makes. Only the acceptance ratio is the product's.
    """

    def __init__(self, rows, family, base, alpha, n, most_divided=LARGEST_DIVIDED):
        self.rows, self.family, self.base, self.n = rows[:n], family, base, n
        self.most_divided = most_divided
        self.prior = chinese_restaurant(alpha)
        self.partitions = exact.partitions(n)
        self.code = {tuple(p): i for i, p in enumerate(self.partitions)}
        self.target = exact.posterior(self.partitions, self.rows, exact.LOG_MARGINALS[family], alpha, **self.base)
        self.matrix = np.zeros((len(self.partitions), len(self.partitions)))

    def add(self, source, target, probability, log_ratio):
        accepted = probability * min(1.0, math.exp(log_ratio))
        self.matrix[self.code[tuple(source)], self.code[tuple(canonical_labels(np.array(target))[0])]] += accepted

    def split_pieces(self, labels, k, order, side, sequential):
        """Log ratio of target densities, log probability of the division, and log probability of the partner."""
        state = state_at(labels, self.rows, self.family, self.base)
        state.set_prior(self.prior)
        state.most_divided = self.most_divided
        state.pool[: len(order)], state.side[: len(order)] = order, side
        found = np.empty(4)
        split_pieces(state.address, int(state.place[k + 1]), len(order), int(sequential), found.ctypes.data)
        log_q, log_partner, log_target, log_selection = found.tolist()
        counts = [int(c) for c in state.half_sizes]
        if not sequential:
            log_q = sm.log_random_division(*counts)
        return counts, log_target, log_q, log_partner, log_selection

    def sequential(self):
        n = self.n
        for labels in self.partitions:
            n_clusters = labels.max() + 1
            for k in range(n_clusters):
                own = np.flatnonzero(labels == k)
                size = len(own)
                for order in itertools.permutations(own) if size > 1 else []:
                    # The founder of the right half among all rows or among those of a cluster, that of the left
                    # one among the others of its cluster, the rest in random order.
                    choice = 0.5 * (0.5 / n + 0.5 / n_clusters / size) / math.factorial(size - 1)
                    for rest in itertools.product([0, 1], repeat=size - 2):
                        side = np.array([1, 0, *rest])
                        pieces = self.split_pieces(labels, k, order, side, True)
                        counts, log_target, log_q, log_partner, _ = pieces
                        selection = sm.log_sequential_selection(n, n_clusters, *counts, log_partner)
                        log_ratio = log_target + selection - log_q
                        divided = labels.copy()
                        divided[np.array(order)[side == 1]] = n_clusters
                        self.add(labels, divided, choice * math.exp(log_q), log_ratio)
                        # The merge that undoes it: right cluster, its founder, left cluster by the data, its
                        # founder, the rest in the same order.
                        undone = 0.5 / (n_clusters + 1) / counts[1] / counts[0] / math.factorial(size - 2)
                        self.add(
                            canonical_labels(divided)[0],
                            labels,
                            undone * self.partner(divided, order[0], k),
                            -log_ratio,
                        )

    def partner(self, labels, row, k):
        """Probability that ``row`` draws cluster ``k`` of ``labels`` for a partner, from whole predictives."""
        weights = []
        log_marginal = exact.LOG_MARGINALS[self.family]
        others = [c for c in range(labels.max() + 1) if c != labels[row]]
        for c in others:
            own = np.flatnonzero(labels == c)
            joint = log_marginal(self.rows[[*own, row]], **self.base)
            weights.append(math.log(len(own)) + joint - log_marginal(self.rows[own], **self.base))
        weights = np.exp(np.array(weights) - max(weights))
        return float(weights[others.index(k)] / weights.sum())

    def random(self):
        for labels in self.partitions:
            n_clusters = labels.max() + 1
            sizes = np.bincount(labels)
            may_divide = (sizes > 1) & (sizes <= self.most_divided)
            for k in np.flatnonzero(may_divide):
                own = np.flatnonzero(labels == k)
                choose = (1 / sizes[k]) / np.sum(1 / sizes[may_divide])
                for side in itertools.product([0, 1], repeat=len(own)):
                    right = sum(side)
                    if right in (0, len(own)):
                        continue
                    _, log_target, log_q, _, selection = self.split_pieces(labels, k, own, np.array(side), False)
                    log_ratio = log_target + selection - log_q
                    ordered = (
                        math.factorial(right) * math.factorial(len(own) - right) / math.factorial(len(own) + 1)
                    )
                    divided = labels.copy()
                    divided[own[np.array(side) == 1]] = n_clusters
                    self.add(labels, divided, 0.5 * choose * ordered, log_ratio)
                    # The merge that undoes it, one order of the pair for each of the two ways to name the halves.
                    weights = 1 / np.bincount(divided)
                    first = weights[n_clusters] / weights.sum()
                    second = weights[k] / (weights.sum() - weights[n_clusters])
                    self.add(canonical_labels(divided)[0], labels, 0.5 * first * second, -log_ratio)

    def error(self):
        """Largest error of pi T = pi, and of detailed balance."""
        matrix = self.matrix.copy()
        leaving = matrix.sum(axis=1)
        assert leaving.max() < 1 + 1e-12
        # Random moves leave a single cluster alone if it is too large.
        assert leaving.min() > 0 or self.most_divided < self.n
        matrix[np.diag_indices(len(matrix))] += 1 - leaving
        flow = self.target[:, None] * matrix
        return max(np.abs(self.target @ matrix - self.target).max(), np.abs(flow - flow.T).max())


@pytest.mark.parametrize("family", BASES)
@pytest.mark.parametrize(("kind", "n"), [("random", 4), ("sequential", 4), ("random", 5), ("sequential", 5)])
def test_transition_matrix(family, kind, n):
    matrix = Matrix(FIVE, family, BASES[family], 0.8, n)
    getattr(matrix, kind)()
    assert matrix.error() < 1e-12


@pytest.mark.parametrize("most_divided", [2, 3, 4])
def test_transition_matrix_with_large_clusters(most_divided):
    """Clusters that random moves do not divide are not made by them either."""
    matrix = Matrix(FIVE, "NormalInverseWishart", NIW, 0.8, 5, most_divided)
    matrix.random()
    assert matrix.error() < 1e-12


@pytest.mark.parametrize("most_divided", [2, 3])
def test_frequencies_with_large_clusters(most_divided):
    given = exact.reference("niw_crp")
    base = dict(given["base_measure"])
    state = state_at(np.zeros(len(given["y"]), dtype=int), np.array(given["y"]), base.pop("family"), base)
    prior = chinese_restaurant(given["partition_prior"]["alpha"])
    state.set_prior(prior)
    state.most_divided = most_divided
    rng = np.random.default_rng(5)
    partitions = exact.partitions(len(given["y"]))
    drawn = np.empty((60_000, len(given["y"])), dtype=np.int64)
    for labels in drawn:
        sweep(rng, state, 1, 1, 3, 0)
        labels[:] = state.labels()
    exact.assert_matches(exact.codes(drawn), partitions, np.array(given["posterior"]))


RIGHT_SELECTION = sm.log_sequential_selection
MISTAKES = {
    "partner": (
        "sequential",
        "log_sequential_selection",
        lambda n, k, left, right, partner: RIGHT_SELECTION(n, k, left, right, 0.0),
    ),
    "founder": (
        "sequential",
        "log_sequential_selection",
        lambda *given: RIGHT_SELECTION(*given) - math.log((given[2] + given[3] - 1) / given[2]),
    ),
    "small clusters": ("sequential", "log_founder", lambda n, k, size: -math.log(n)),
    "two names": (
        "random",
        "log_random_division",
        lambda left, right: math.lgamma(left + 1) + math.lgamma(right + 1) - math.lgamma(left + right + 2),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_transition_matrix_sees_mistakes(mistake, monkeypatch):
    """With a factor left out of the ratio, the matrix does not leave the posterior alone."""
    kind, name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(sm, name, wrong)
    matrix = Matrix(FIVE, "NormalInverseWishart", NIW, 0.8, 4)
    getattr(matrix, kind)()
    assert matrix.error() > 1e-4


MOVES_ALONE = {
    # Scans, random moves, sequential moves and carvings per draw.
    "sequential": (0, 0, 2, 0),
    "random": (0, 4, 0, 0),
    "carving": (0, 0, 0, 4),
    "both": (0, 2, 1, 0),
    "default": (1, 1, 3, 0),
}


def draw_codes(family, rows, base, alpha, moves, n_draws, law=(0.0, 0.0), seed=1):
    n_scans, *n_moves = MOVES_ALONE[moves]
    views = [View(FAMILIES[family], getattr(dp, family)(**base).numbers(rows.shape[1]), rows)]
    return testing.draw_codes(
        views, chinese_restaurant(alpha), n_draws, n_scans=n_scans, n_moves=n_moves, law=law, seed=seed
    )


@pytest.mark.parametrize(
    "moves", [pytest.param(m, marks=() if m == "default" else pytest.mark.slow) for m in MOVES_ALONE]
)
@pytest.mark.parametrize("name", rest_slow(["niw_crp", "nig_crp"]))
def test_partition_frequencies(name, moves):
    """Each kind of split and merge move with every prior, against enumeration."""
    given = exact.reference(name)
    base = dict(given["base_measure"])
    family = base.pop("family")
    codes, tally = draw_codes(
        family, np.array(given["y"]), base, given["partition_prior"]["alpha"], moves, 1_000_000
    )
    exact.assert_matches(codes, exact.partitions(len(given["y"])), np.array(given["posterior"]))
    for kind, number in enumerate(MOVES_ALONE[moves][1:]):
        assert tally[kind, sm.SPLITS_TRIED] + tally[kind, sm.MERGES_TRIED] == number * 1_000_000
        # As many clusters divide as unite, but for those that Gibbs scans open and close.
        assert (tally[kind, sm.SPLITS] > 1000) == (number > 0)
        assert tally[kind, sm.SPLIT_ROWS] >= tally[kind, sm.SPLITS]


@pytest.mark.slow
@pytest.mark.parametrize("moves", ["default", "sequential", "random", "carving"])
def test_partition_frequencies_with_random_alpha(moves):
    """The same where alpha is drawn in between."""
    given = exact.reference("niw_crp_gamma_alpha")
    base = dict(given["base_measure"])
    family = base.pop("family")
    prior = given["alpha_prior"]
    law = (prior["alpha"], prior["beta"])
    codes, _ = draw_codes(family, np.array(given["y"]), base, 1.0, moves, 1_000_000, law=law)
    exact.assert_matches(codes, exact.partitions(len(given["y"])), np.array(given["posterior"]))


def test_duplicated_rows_and_close_clusters():
    """Weak evidence spreads the posterior over many partitions with small clusters."""
    rows = np.repeat(FIVE[:4], 2, axis=0)[:7] * 0.4
    codes, _ = draw_codes("NormalInverseWishart", rows, NIW, 2.5, "both", 1_000_000)
    all_labels = exact.partitions(7)
    p = exact.posterior(all_labels, rows, exact.LOG_MARGINALS["NormalInverseWishart"], 2.5, **NIW)
    exact.assert_matches(codes, all_labels, p)


@pytest.mark.parametrize("moves", ["sequential", pytest.param("random", marks=pytest.mark.slow)])
def test_small_mistakes_are_seen(moves):
    """With alpha 5 % too large in the moves, the comparison fails."""
    given = exact.reference("niw_crp")
    base = dict(given["base_measure"])
    family = base.pop("family")
    alpha = given["partition_prior"]["alpha"] * 1.05
    codes, _ = draw_codes(family, np.array(given["y"]), base, alpha, moves, 1_000_000)
    with pytest.raises(AssertionError, match="total variation"):
        exact.assert_matches(codes, exact.partitions(len(given["y"])), np.array(given["posterior"]))


@pytest.mark.parametrize("family", BASES)
@pytest.mark.parametrize("kernel", ["sweep", "explore"])
@pytest.mark.parametrize("start", ["together", "apart"])
def test_bookkeeping(family, kernel, start):
    rng = np.random.default_rng(3)
    n = 240
    rows = rng.normal(size=(n, 2)) + 6.0 * rng.integers(3, size=(n, 1))
    # alpha so large that slots run out and grow.
    prior = chinese_restaurant(20.0)
    state = state_at(np.zeros(n) if start == "together" else np.arange(n), rows, family, BASES[family])
    state.set_prior(prior)
    for _ in range(30):
        if kernel == "sweep":
            n_moved = sweep(rng, state, 1, 1, 20, 20)
        else:
            found = explore(rng, state, Effort(1, 1, 1))
            state, n_moved, joint = found.state, found.n_moved, found.state.log_joint()
            other = state.copy()
            other.relabel(rng.integers(n, size=n))
            check_state(other, prior, rows, family, BASES[family])
            # A sum over labellings is at least as large as one of its terms.
            assert found.merit >= joint - 1e-9 * abs(joint)
            assert 0 <= found.largest <= n
        assert 0 <= n_moved <= n
        check_state(state, prior, rows, family, BASES[family])


@pytest.mark.parametrize("n", [1, 2])
def test_few_rows(n):
    state = state_at(np.zeros(n), FIVE[:n], "NormalInverseWishart", NIW)
    state.set_prior(chinese_restaurant(1.0))
    rng = np.random.default_rng(0)
    tally = no_tally()
    for _ in range(200):
        state.tally[:] = 0
        sweep(rng, state, 1, 0, 2, 2)
        tally += state.tally
        state = explore(rng, state, Effort(1, 1, 1)).state
        check_state(state, chinese_restaurant(1.0), FIVE[:n], "NormalInverseWishart", NIW)
    assert (tally[[sm.RANDOM, sm.SEQUENTIAL], sm.SPLITS] > 0).all() == (n == 2)
