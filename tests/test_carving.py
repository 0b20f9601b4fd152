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
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.many_rows import carving
from pymc_dpgmm.sampler.many_rows.carving import carvings, carvings_in_part
from pymc_dpgmm.sampler.state.state import State

# Rows that a carved-out cluster may have: with one or two, few of five rows are candidates, with eight all are.
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
        carvings_in_part(rng, state, founders, is_drawn, share, state.n, 1, 4)
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
            share = min(1.0, most / len(whole))
            for n_candidates in range(len(others) + 1):
                for order in itertools.permutations(others, n_candidates):
                    for joins in itertools.product([True, False], repeat=n_candidates):
                        self.add(labels, most, share, whole, (founder, *order), (True, *joins))
        leaving = self.matrix.sum(axis=1)
        assert 0 < leaving.max() < 1 + 1e-12
        self.matrix[np.diag_indices(len(leaving))] += 1 - leaving
        flow = self.target[:, None] * self.matrix
        return max(np.abs(self.target @ self.matrix - self.target).max(), np.abs(flow - flow.T).max())

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
        chosen = 0.5 / len(self.sizes) / math.factorial(n_candidates)
        n_others = len(whole) - 1
        going = chosen / self.n * share**n_candidates * (1 - share) ** (n_others - n_candidates) * math.exp(log_q)
        stayed = n_candidates - (len(right) - 1)
        coming = chosen / n_small / len(right) * math.exp(log_partner)
        coming *= share**stayed * (1 - share) ** (len(left) - stayed)
        a, b = self.code[tuple(labels)], self.code[tuple(divided)]
        self.matrix[a, b] += going * min(1.0, math.exp(log_ratio))
        self.matrix[b, a] += coming * min(1.0, math.exp(-log_ratio))


def test_transition_matrix():
    assert Matrix(4, 0.8, [1, 2, 4]).fill() < 1e-12


RIGHT = carving.log_carving_selection
MISTAKES = {
    "candidates": lambda n, small, right, share, partner: RIGHT(n, small, right, 1.0, partner),
    "partner": lambda n, small, right, share, partner: RIGHT(n, small, right, share, 0.0),
    "founder": lambda n, small, right, share, partner: RIGHT(n, small, right, share, partner) + math.log(right),
    "small clusters": lambda n, small, right, share, partner: RIGHT(n, max(small - 1, 1), right, share, partner),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_transition_matrix_sees_mistakes(mistake, monkeypatch):
    """With a factor left out of the ratio, the matrix does not leave the posterior alone."""
    monkeypatch.setattr(carving, "log_carving_selection", MISTAKES[mistake])
    assert Matrix(4, 0.8, [1, 2, 4]).fill() > 1e-4


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
