"""Carvings: transition matrices with and without mistakes, partitions before and after, and acceptance."""

import functools
import itertools
import math

import exact
import numpy as np
import pytest
from scipy.special import logsumexp
from slowly import rest_slow
from small_posteriors import CASES, PRIORS, SETS, after_sweeps

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.compiled import INT, INTS, c_function
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.many_rows.drawn_carving import DrawnPart, carvings
from pymc_dpgmm.sampler.moves import carving
from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.moves.move import (
    MERGED_ROWS,
    MERGES,
    MERGES_TRIED,
    SLOTS_NEEDED,
    SPLIT_ROWS,
    SPLITS,
    SPLITS_TRIED,
)
from pymc_dpgmm.sampler.moves.sweep import sweep
from pymc_dpgmm.sampler.state.memory import DONE, NEEDS_ROOM, memory_at, prior_of
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.schedule import Options, Schedule

# Rows that a carved-out cluster may have: with one there are no candidates, with two few of five, with eight all.
SIZES = {"one": (1, 1), "two": (2, 2), "up to four": (1, 4), "all": (8, 8)}


def moves(sizes, number=3):
    def move(rng, state):
        carvings(rng, state, number, *SIZES[sizes])
        return state.labels()

    return move


@pytest.mark.parametrize(("cases", "prior"), rest_slow(SETS))
def test_carvings_leave_the_posterior_invariant(cases, prior):
    """All families and priors, against enumeration."""
    exact.assert_matches(*after_sweeps(cases, prior, 20_000, moves("up to four")))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("cases", [("niw",), ("poisson",)])
def test_carvings_leave_the_posterior_invariant_in_many_draws(cases, prior, sizes):
    """The same with draws enough to see an error of one in a hundred.

    What is wrong by a little in one move is wrong by more after fifteen, which cost less than a fresh start.
    """
    exact.assert_matches(*after_sweeps(cases, prior, 40_000, moves(sizes, 15)))


def moves_of_drawn_rows(share):
    """So many carvings of the same drawn rows that it shows if these are not drawn anew."""

    def move(rng, state):
        founders, is_drawn = rng.integers(state.n, size=100), rng.random(state.n) < share
        carvings(rng, state, 100, 1, 4, DrawnPart(founders, is_drawn, share, state.n))
        return state.labels()

    return move


@pytest.mark.parametrize(("cases", "prior"), rest_slow([SETS[0], SETS[3]]))
def test_carvings_of_drawn_rows_leave_the_posterior_invariant(cases, prior):
    """Carvings where some rows alone may move, against enumeration, under two priors."""
    exact.assert_matches(*after_sweeps(cases, prior, 12_000, moves_of_drawn_rows(0.2)))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("prior", PRIORS)
def test_carvings_of_drawn_rows_leave_the_posterior_invariant_in_many_draws(share, prior):
    """Carvings among rows of which a part was drawn, as of rows in chunks."""
    exact.assert_matches(*after_sweeps(("niw",), prior, 50_000, moves_of_drawn_rows(share)))


@c_function(INT(INTS, INT, INT, INT))
def carve_like_rows(head, n_moves, least, doublings):
    """Carvings whose candidates are like the founder, of so few rows that some of five are left out."""
    s = memory_at(head)
    while s.position < n_moves:
        if s.n_clusters + SLOTS_NEEDED > s.capacity:
            return NEEDS_ROOM
        founder = below(s.bits, s.n) if uniform(s.bits) < 0.5 else -1
        carving.carve_once(s, prior_of(s), None, s.n, founder, least << below(s.bits, doublings + 1))
        s.position += 1
    return DONE


# The fewest rows that a carved-out cluster has at most, and how often this number doubles.
LEAST = {"one": (1, 0), "two": (2, 0), "up to four": (1, 2), "all": (8, 0)}


def moves_of_like_rows(sizes, number):
    def move(rng, state):
        state.run(rng, carve_like_rows, number, *LEAST[sizes])
        return state.labels()

    return move


@pytest.mark.parametrize(("cases", "prior"), rest_slow(SETS))
def test_carvings_of_like_rows_leave_the_posterior_invariant(cases, prior):
    """All families and priors, against enumeration."""
    exact.assert_matches(*after_sweeps(cases, prior, 20_000, moves_of_like_rows("up to four", 3)))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", LEAST)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("cases", [("niw",), ("poisson",)])
def test_carvings_of_like_rows_leave_the_posterior_invariant_in_many_draws(cases, prior, sizes):
    """The same with draws enough to see an error of one in a hundred; counts have rows that are the same."""
    exact.assert_matches(*after_sweeps(cases, prior, 150_000, moves_of_like_rows(sizes, 15)))


class Matrix:
    """The transition matrix of one move, whose choices are written here again, as docs/moves.md tells them.

    Only the ratio of the selections is the product's.
    """

    def __init__(self, n, alpha, sizes):
        family, base, rows = CASES["poisson"]
        self.n, self.sizes, self.alpha = n, sizes, alpha
        self.partitions = exact.partitions(n)
        self.code = {tuple(labels): i for i, labels in enumerate(self.partitions)}
        self.evidence = functools.cache(
            lambda members: exact.LOG_MARGINALS[family](rows[sorted(members)], **base) if members else 0.0
        )
        log_p = [self.log_joint(labels) for labels in self.partitions]
        self.target = exact.normalized(np.array(log_p))
        self.matrix = np.zeros((len(log_p), len(log_p)))

    def log_joint(self, labels):
        return exact.log_eppf(labels, self.alpha) + sum(
            self.evidence(frozenset(np.flatnonzero(labels == k).tolist())) for k in range(max(labels) + 1)
        )

    def log_weight(self, row, members):
        """Log predictive density of a row given others."""
        rest = frozenset(members) - {row}
        return self.evidence(rest | {row}) - self.evidence(rest)

    def log_partner(self, labels, row, k):
        """Log probability that a scan without its cluster puts ``row`` into cluster ``k``."""
        log_p = {}
        for c in np.setdiff1d(labels, labels[row]).tolist():
            own = np.flatnonzero(labels == c).tolist()
            log_p[c] = math.log(len(own)) + self.log_weight(row, own)
        return log_p[k] - logsumexp(list(log_p.values()))

    def log_q(self, whole, order, joins):
        """Log probability that rows in this order join, or stay with ``whole``, one by one and then in blocks."""
        joined, stayed, total = [order[0]], 1, 0.0
        stops = [1, 2, 3, 4, 8]
        for start, stop in itertools.pairwise(stops):
            block = list(zip(order, joins, strict=True))[start:stop]
            given, seats = frozenset(joined), math.log(len(joined)) - math.log(stayed)
            for row, is_in in block:
                # That of the whole counts the row twice, as if it were another one like it.
                stays = self.twice(whole, row)
                odds = seats + self.log_weight(row, given) - stays
                total -= math.log1p(math.exp(-odds if is_in else odds))
            joined += [row for row, is_in in block if is_in]
            stayed += sum(not is_in for _, is_in in block)
        return total

    def twice(self, whole, row):
        family, base, rows = CASES["poisson"]
        members = sorted(whole)
        return exact.LOG_MARGINALS[family](rows[[*members, row]], **base) - self.evidence(frozenset(whole))

    def fill(self):
        for labels, most, founder in itertools.product(self.partitions, self.sizes, range(self.n)):
            whole = np.flatnonzero(labels == labels[founder]).tolist()
            others = [i for i in whole if i != founder]
            share = self.share(most, whole)
            for order in self.orders(founder, others, most):
                for joins in itertools.product([True, False], repeat=len(order)):
                    self.add(labels, most, share, whole, (founder, *order), (True, *joins))
        leaving = self.matrix.sum(axis=1)
        assert 0 < leaving.max() < 1 + 1e-12
        self.matrix[np.diag_indices(len(leaving))] += 1 - leaving
        flow = self.target[:, None] * self.matrix
        return max(np.abs(self.target @ self.matrix - self.target).max(), np.abs(flow - flow.T).max())

    def share(self, most, whole):
        """Probability with which a row is a candidate."""
        return min(1.0, (most - 1) / len(whole))

    def orders(self, founder, others, most):
        """All candidates in every order."""
        for n_candidates in range(len(others) + 1):
            yield from itertools.permutations(others, n_candidates)

    def chosen(self, n_candidates, n_others, share):
        """Probability of these candidates, in their order, among others."""
        return share**n_candidates * (1 - share) ** (n_others - n_candidates) / math.factorial(n_candidates)

    def add(self, labels, most, share, whole, order, joins):
        right = [i for i, is_in in zip(order, joins, strict=True) if is_in]
        left = [i for i in whole if i not in right]
        if len(right) > most or not left:
            return
        divided = labels.copy()
        divided[right] = max(labels) + 1
        divided = canonical_labels(divided)[0]
        founder, n_candidates = order[0], len(order) - 1
        n_small = int((np.bincount(divided) <= most).sum())
        log_partner = self.log_partner(divided, founder, divided[left[0]])
        log_q = self.log_q(whole, order, joins)
        log_ratio = self.log_joint(divided) - self.log_joint(labels) - log_q
        log_ratio += carving.log_carving_selection(self.n, n_small, len(right), share, log_partner)
        going = 0.5 / len(self.sizes) / self.n * math.exp(log_q)
        going *= self.chosen(n_candidates, len(whole) - 1, share)
        # The rows that return are candidates for sure.
        coming = 0.5 / len(self.sizes) / n_small / len(right) * math.exp(log_partner)
        coming *= self.chosen(n_candidates, len(whole) - 1, share) / share ** (len(right) - 1)
        a, b = self.code[tuple(labels)], self.code[tuple(divided)]
        self.matrix[a, b] += going * min(1.0, math.exp(log_ratio))
        self.matrix[b, a] += coming * min(1.0, math.exp(-log_ratio))


class MatrixOfLikeRows(Matrix):
    """The same where candidates are those most like the founder, in this order."""

    def share(self, most, whole):
        return 1.0

    def orders(self, founder, others, most):
        def log_factor(row):
            return round(self.log_weight(row, [founder]) - self.evidence(frozenset([row])), 6)

        yield tuple(sorted(others, key=lambda row: (-log_factor(row), row))[: most - 1])

    def chosen(self, n_candidates, n_others, share):
        return 1.0


MATRICES = {"drawn": Matrix, "like the founder": MatrixOfLikeRows}


@pytest.mark.parametrize("matrix", MATRICES)
def test_transition_matrix(matrix):
    assert MATRICES[matrix](4, 0.8, [1, 2, 4]).fill() < 1e-12


RIGHT = carving.log_carving_selection
MISTAKES = {
    "candidates": lambda n, small, right, share, partner: RIGHT(n, small, right, 1.0, partner),
    "partner": lambda n, small, right, share, partner: RIGHT(n, small, right, share, 0.0),
    "founder": lambda n, small, right, share, partner: RIGHT(n, small, right, share, partner) + math.log(right),
    "small clusters": lambda n, small, right, share, partner: RIGHT(n, max(small - 1, 1), right, share, partner),
}


@pytest.mark.parametrize(
    ("matrix", "mistake"),
    [
        (matrix, mistake)
        for matrix, mistake in itertools.product(MATRICES, MISTAKES)
        if (matrix, mistake) != ("like the founder", "candidates")
    ],
)
def test_transition_matrix_sees_mistakes(matrix, mistake, monkeypatch):
    """With a factor left out of the ratio, the matrix does not leave the posterior alone."""
    monkeypatch.setattr(carving, "log_carving_selection", MISTAKES[mistake])
    assert MATRICES[matrix](4, 0.8, [1, 2, 4]).fill() > 1e-4


def test_many_are_accepted_beside_large_clusters():
    """Most of the moves of a division of all rows of a large cluster would be refused."""
    rows = np.random.default_rng(0).normal(size=(30_000, 2))
    base = dp.NormalInverseWishart.from_data(rows)
    state = State([View(base.family, base.numbers(2), rows)], np.zeros(len(rows), dtype=np.int64))
    state.set_prior(chinese_restaurant(1.0))
    rng, sizes = np.random.default_rng(1), set()
    n_accepted = 0
    for _ in range(200):
        n_accepted += carvings(rng, state, 50)
        sizes |= set(state.cluster_sizes.tolist())
    assert n_accepted > 500
    assert any(10 < size < 1_000 for size in sizes)
    fresh = State([View(base.family, base.numbers(2), rows)], state.labels())
    fresh.set_prior(chinese_restaurant(1.0))
    assert state.log_joint() == pytest.approx(fresh.log_joint(), rel=1e-10)


def numbers_of_moves(n_clusters, grouped=False, **options):
    """Return how many moves of each kind a schedule plans for a partition."""
    rows = np.random.default_rng(0).normal(size=(200, 2))
    base = dp.NormalInverseWishart.from_data(rows)
    state = State([View(base.family, base.numbers(2), rows)], np.arange(200) % n_clusters)
    state.set_prior(chinese_restaurant(1.0))
    schedule = Schedule(Options(search=False, **options), tune=0)
    schedule.draw(np.random.default_rng(1), state, False)
    return schedule.numbers


def test_only_many_clusters_have_carvings_by_default():
    assert numbers_of_moves(5)["carving"] == 0
    assert numbers_of_moves(60)["carving"] >= 1
    assert numbers_of_moves(5, moves={"carving": 7})["carving"] == 7
    assert numbers_of_moves(60, moves={"carving": 0})["carving"] == 0


def test_small_clusters_come_and_go_beside_large_ones():
    """Handwritten digits break up into a few large clusters and many of some rows."""
    images = dp.datasets.load_digits()[0][:500].astype(float)
    centred = images - images.mean(axis=0)
    rows = centred @ np.linalg.svd(centred, full_matrices=False)[2][:12].T
    base = dp.NormalInverseWishart.from_data(rows)
    rng = np.random.default_rng(1)
    state = State([View(base.family, base.numbers(12), rows)], rng.integers(10, size=len(rows)))
    state.set_prior(chinese_restaurant(3.0))
    for _ in range(200):
        sweep(rng, state, 1, 1, 1, 3, 0)
    state.tally[:] = 0
    for _ in range(200):
        sweep(rng, state, 1, 1, 0, 0, 50)
    counted = state.tally[list(MOVES).index("carving")]
    tried, splits, merges = counted[SPLITS_TRIED] + counted[MERGES_TRIED], counted[SPLITS], counted[MERGES]
    assert tried == 10_000
    assert min(splits, merges) > 100
    # Not only single rows, which a scan moves by itself.
    assert counted[SPLIT_ROWS] > 1.3 * splits
    assert counted[MERGED_ROWS] > 1.3 * merges
    fresh = State([View(base.family, base.numbers(12), rows)], state.labels())
    fresh.set_prior(chinese_restaurant(3.0))
    assert state.log_joint() == pytest.approx(fresh.log_joint(), rel=1e-10)
