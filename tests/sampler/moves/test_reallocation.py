"""Reallocations: transition matrices with and without mistakes, draws beside enumerations, and acceptance."""

import functools
import itertools
import math

import exact
import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp
from slowly import rest_slow
from small_posteriors import CASES, PRIORS, SETS, after_sweeps

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.compiled import INT, INTS, c_function
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.moves import reallocation
from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.moves.move import SPLIT_ROWS, SPLITS, SPLITS_TRIED
from pymc_dpgmm.sampler.moves.sweep import make_moves, sweep
from pymc_dpgmm.sampler.state.memory import DONE, NEEDS_ROOM, memory_at, prior_of
from pymc_dpgmm.sampler.state.state import State

# Five rows open four clusters at most; the core has one more, and one is to work with.
ROOM, ROOM_OF_NINE = 8, 12
# Rows of the guide beside the founder, and candidates, at most: with one or two, most rows are none.
SIZES = {"one candidate": (2, 1), "two candidates": (1, 2), "a small guide": (1, 8), "all": (4, 8)}
MISSING = 0.4
# Whether the core leaves its cluster, and whether it joins another. The second pair undoes the third one.
HALVES = [(False, False), (True, True), (True, False), (False, True)]


@c_function(INT(INTS, INT, INT))
def reallocate_once(head, core_leaves, core_joins):
    """One move of certain halves."""
    s = memory_at(head)
    if s.n_clusters + ROOM_OF_NINE > s.capacity:
        return NEEDS_ROOM
    founder = below(s.bits, s.n)
    reallocation.mark_neighbours(s, founder, 3)
    reallocation.move(s, prior_of(s), founder, MISSING, 8, core_leaves == 1, core_joins == 1)
    return DONE


@c_function(INT(INTS, INT, INT, INT))
def reallocate_some(head, n_moves, n_guided, most):
    """Reallocations of some rows, of all halves."""
    s = memory_at(head)
    while s.position < n_moves:
        if s.n_clusters + ROOM > s.capacity:
            return NEEDS_ROOM
        founder = below(s.bits, s.n)
        reallocation.mark_neighbours(s, founder, n_guided)
        core_leaves, core_joins = uniform(s.bits) < 0.5, uniform(s.bits) < 0.5
        reallocation.move(s, prior_of(s), founder, MISSING, most, core_leaves, core_joins)
        s.position += 1
    return DONE


def moves(sizes, number):
    def move(rng, state):
        state.slots_of_kind[:] = ROOM
        state.run(rng, reallocate_some, number, *SIZES[sizes])
        return state.labels()

    return move


def guided_moves(rng, state):
    """Moves of draws, guided by sets of rows that overlap, and by one of a row alone."""
    state.set_guides([np.array(rows) for rows in ([0, 1, 2], [2, 3, 4], [1])])
    make_moves(rng, state, *(5 if name == "reallocation" else 0 for name in MOVES))
    return state.labels()


@pytest.mark.parametrize(("cases", "prior"), rest_slow(SETS))
def test_reallocations_leave_the_posterior_invariant(cases, prior):
    """All families and priors, against enumeration."""
    exact.assert_matches(*after_sweeps(cases, prior, 20_000, moves("a small guide", 5)))


@pytest.mark.parametrize("prior", rest_slow(PRIORS))
def test_guided_reallocations_leave_the_posterior_invariant(prior):
    """With sets of rows as guides; the moves are those of draws."""
    exact.assert_matches(*after_sweeps(("poisson",), prior, 20_000, guided_moves))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("cases", [("niw",), ("poisson",)])
def test_reallocations_leave_the_posterior_invariant_in_many_draws(cases, prior, sizes):
    """The same with draws enough to see an error of one in a hundred; counts have rows that are the same."""
    exact.assert_matches(*after_sweeps(cases, prior, 100_000, moves(sizes, 15)))


class Matrix:
    """The transition matrix of one move, whose choices are written here again, as docs/moves.md tells them.

    Only how the acceptance ratio is put together is the product's. Partitions are sets of frozen sets.
    """

    def __init__(self, n, alpha, n_guided, most, halves):
        family, base, rows = CASES["poisson"]
        self.n, self.alpha, self.n_guided, self.most, self.halves = n, alpha, n_guided, most, halves
        self.evidence = functools.cache(
            lambda members: exact.LOG_MARGINALS[family](rows[sorted(members)], **base) if members else 0.0
        )
        self.partitions = [
            frozenset(frozenset(np.flatnonzero(labels == k).tolist()) for k in range(max(labels) + 1))
            for labels in exact.partitions(n)
        ]
        self.code = {partition: i for i, partition in enumerate(self.partitions)}
        log_p = [self.log_joint(partition) for partition in self.partitions]
        self.target = exact.normalized(np.array(log_p))
        self.matrix = np.zeros((len(log_p), len(log_p)))

    def log_joint(self, partition):
        return sum(
            math.log(self.alpha) + math.lgamma(len(cluster)) + self.evidence(cluster) for cluster in partition
        )

    def log_weight(self, row, others):
        """Log weight with which a row joins a cluster of other rows; of none if it opens one."""
        seat = math.log(len(others)) if others else math.log(self.alpha)
        return seat + self.evidence(others | {row}) - self.evidence(others)

    def likest(self, core, most):
        """The rows most like some others, the likest first."""

        def log_factor(row):
            return round(self.log_weight(row, core) - math.log(len(core)) - self.evidence(frozenset([row])), 6)

        others = set(range(self.n)) - core
        return sorted(others, key=lambda row: (-log_factor(row), row))[:most]

    def places(self, partition, founder, loose):
        """Where loose rows go, the last one first: partitions with log probabilities."""
        if not loose:
            return [(partition, 0.0)]
        *rest, row = loose
        own = next(cluster for cluster in partition if founder in cluster)
        others = [*(cluster for cluster in partition if cluster != own), frozenset()]
        log_p = np.array([self.log_weight(row, cluster) for cluster in others])
        log_p -= logsumexp(log_p)
        found = []
        for cluster, log_chosen in zip(others, log_p, strict=True):
            after = (partition - {own, cluster}) | {own - {row}, cluster | {row}}
            found += [(end, log_chosen + log_q) for end, log_q in self.places(after, founder, rest)]
        return found

    def log_sides(self, partition, core, candidates, joins):
        """Log probability that candidates join the core, or stay."""
        floor, joined, total = 0.5 / (len(candidates) + 1), core, 0.0
        for row, is_in in zip(candidates, joins, strict=True):
            own = next(cluster for cluster in partition if row in cluster)
            odds = self.log_weight(row, joined) - self.log_weight(row, own - {row})
            p = floor + (1 - 2 * floor) / (1 + math.exp(-odds))
            total += math.log(p if is_in else 1 - p)
            joined = joined | {row} if is_in else joined
        return total

    def partners(self, between, founder):
        """Clusters that the core may join, with log probabilities."""
        others = [cluster for cluster in between if founder not in cluster]
        log_p = np.array([self.log_weight(founder, cluster) for cluster in others])
        return dict(zip(others, log_p - logsumexp(log_p), strict=True)) if others else {}

    def fill(self):
        for before, founder, halves in itertools.product(self.partitions, range(self.n), self.halves):
            whole = next(cluster for cluster in before if founder in cluster)
            guide = {founder, *self.likest(frozenset([founder]), self.n_guided)}
            others = sorted((whole & guide) - {founder})
            for is_core in itertools.product([True, False], repeat=len(others)):
                core = frozenset([founder, *itertools.compress(others, is_core)])
                p = (1 - MISSING) ** sum(is_core) * MISSING ** (len(others) - sum(is_core))
                self.add(before, founder, whole, guide, core, *halves, p / self.n / len(self.halves))
        assert abs(self.matrix.sum(axis=1) - 1).max() < 1e-12
        flow = self.target[:, None] * self.matrix
        return max(np.abs(self.target @ self.matrix - self.target).max(), np.abs(flow - flow.T).max())

    def first_half(self, before, founder, whole, core, core_leaves, candidates):
        """Partitions in which the core is alone, with log probabilities."""
        if core_leaves:
            return [((before - {whole}) | {core, whole - core}, 0.0)] if core != whole else []
        return self.places(before, founder, [row for row in candidates if row in whole])

    def second_half(self, between, founder, core, core_joins, candidates):
        """Partitions after that, with the rows that join the core or that it joins, and log probabilities."""
        own = next(cluster for cluster in between if founder in cluster)
        if core_joins:
            for partner, log_q in self.partners(between, founder).items():
                yield (between - {own, partner}) | {own | partner}, partner, log_q
            return
        for joins in itertools.product([True, False], repeat=len(candidates)):
            joined = frozenset(itertools.compress(candidates, joins))
            after = frozenset(cluster - joined | (joined if cluster == own else set()) for cluster in between)
            yield after - {frozenset()}, joined, self.log_sides(between, own, candidates, joins)

    def add(self, before, founder, whole, guide, core, core_leaves, core_joins, chosen):
        candidates = self.likest(core, self.most)
        loose = frozenset() if core_leaves else whole & set(candidates)
        code = self.code[before]
        between_halves = self.first_half(before, founder, whole, core, core_leaves, candidates)
        if not between_halves or (core_joins and not core_leaves and core | loose != whole):
            self.matrix[code, code] += chosen
            return
        for between, log_there in between_halves:
            own = next(cluster for cluster in between if founder in cluster)
            if core_leaves:
                log_back = self.partners(between, founder)[whole - core]
            else:
                log_back = self.log_sides(between, own, candidates, [row in loose for row in candidates])
            ends = list(self.second_half(between, founder, core, core_joins, candidates))
            if not ends:
                self.matrix[code, code] += chosen * math.exp(log_there)
            for after, joined, log_q in ends:
                log_returns = 0.0
                if not core_joins:
                    ways = self.places(after, founder, [row for row in candidates if row in joined])
                    log_returns = logsumexp([log_way for end, log_way in ways if end == between])
                missing = len(guide & joined) - len(guide & (whole - core if core_leaves else loose))
                log_ratio = reallocation.log_reallocation(
                    self.log_joint(after) - self.log_joint(before),
                    log_back + log_returns,
                    log_there + log_q,
                    missing * math.log(MISSING),
                )
                p = chosen * math.exp(log_there + log_q)
                accepted = min(1.0, math.exp(log_ratio))
                self.matrix[code, self.code[after]] += p * accepted
                self.matrix[code, code] += p * (1 - accepted)


# Halves of which each has the one that undoes it.
CLOSED = {"others move": HALVES[:1], "the core moves": HALVES[1:2], "both move": HALVES[2:], "all": HALVES}


@pytest.mark.parametrize("halves", CLOSED)
@pytest.mark.parametrize("sizes", SIZES)
def test_transition_matrix(sizes, halves):
    matrix = Matrix(4, 0.8, *SIZES[sizes], CLOSED[halves])
    assert matrix.fill() < 1e-12
    # It moves at all.
    assert np.diag(matrix.matrix).mean() < 0.95


MISTAKES = {
    "core": lambda gain, back, there, core: gain + back - there,
    "way back": lambda gain, back, there, core: gain - there + core,
    "way there": lambda gain, back, there, core: gain + back + core,
    "density": lambda gain, back, there, core: back - there + core,
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_transition_matrix_sees_mistakes(mistake, monkeypatch):
    """With a part left out of the ratio, the matrix does not leave the posterior alone."""
    monkeypatch.setattr(reallocation, "log_reallocation", MISTAKES[mistake])
    assert Matrix(4, 0.8, 4, 2, HALVES).fill() > 1e-4


def test_transition_matrix_sees_halves_that_nothing_undoes():
    assert Matrix(4, 0.8, 4, 8, HALVES[2:3]).fill() > 1e-4


@pytest.mark.parametrize("halves", HALVES)
def test_what_is_rejected_leaves_everything_as_it_was(halves):
    """Also where several clusters have lost all their rows on the way; and sums are those of the rows."""
    rng = np.random.default_rng(0)
    base = dp.GammaPoisson(1.0, 0.25)
    rows = np.column_stack([rng.poisson(3.0, size=9), np.ones(9)])
    n_accepted = 0
    for _ in range(300):
        state = State([View(base.family, base.numbers(1), rows)], rng.integers(4, size=9))
        state.set_prior(chinese_restaurant(1.0))
        state.slots_of_kind[:] = ROOM_OF_NINE
        before = state.labels()
        state.run(rng, reallocate_once, *map(int, halves))
        is_accepted = state.tally[:, SPLITS].sum() == 1
        n_accepted += is_accepted
        assert is_accepted or (state.labels() == before).all()
        used = state.order[: state.n_clusters]
        np.testing.assert_array_equal(
            np.bincount(state.slots, minlength=state.capacity + 1)[used], state.sizes[used]
        )
        assert state.sizes[used].sum() == 9
        fresh = State([View(base.family, base.numbers(1), rows)], state.labels())
        fresh.set_prior(chinese_restaurant(1.0))
        assert state.log_joint() == pytest.approx(fresh.log_joint(), abs=1e-8)
    assert 0 < n_accepted < 300


def test_several_rows_move_at_once_among_many_clusters():
    """Handwritten digits break up into a few large clusters and many of some rows."""
    images = dp.datasets.load_digits()[0][:500].astype(float)
    centred = images - images.mean(axis=0)
    rows = centred @ np.linalg.svd(centred, full_matrices=False)[2][:12].T
    base = dp.NormalInverseWishart.from_data(rows)
    rng = np.random.default_rng(1)
    state = State([View(base.family, base.numbers(12), rows)], rng.integers(10, size=len(rows)))
    state.set_prior(chinese_restaurant(3.0))
    for _ in range(200):
        sweep(rng, state, 1, 1, 1, 3)
    state.tally[:] = 0
    n_moves = [10 if name == "reallocation" else 0 for name in MOVES]
    for _ in range(1_200):
        sweep(rng, state, 1, 1, *n_moves)
    counted = state.tally[list(MOVES).index("reallocation")]
    assert counted[SPLITS_TRIED] == 12_000
    assert counted[SPLITS] > 50
    # Not only single rows, which a scan moves by itself.
    assert counted[SPLIT_ROWS] > 1.2 * counted[SPLITS]
    fresh = State([View(base.family, base.numbers(12), rows)], state.labels())
    fresh.set_prior(chinese_restaurant(3.0))
    assert state.log_joint() == pytest.approx(fresh.log_joint(), rel=1e-10)


def test_rows_known_to_be_apart_stay_apart():
    """Rows of known clusters are impossible in others, also for moves that try what is against all odds."""
    rng = np.random.default_rng(2)
    rows, known = rng.normal(size=(60, 2)), np.full(60, -1)
    known[:20] = np.arange(20) % 4
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=rows, known_labels=known)
        step = dp.DPMixtureStep(
            [model["y_labels"]], split_merge={"reallocation": 20, "carving": 20, "search": False}
        )
    point = model.initial_point(random_seed=1)
    step.setup_chain(rng, 0, 100)
    n_accepted = 0
    for _ in range(100):
        point, (statistics,) = step.step(point)
        n_accepted += statistics["y_labels_reallocation_accepted"]
        labels = point["y_labels"][:20]
        assert len(set(labels.tolist())) == 4
        assert all((labels[known[:20] == k] == labels[k]).all() for k in range(4))
    assert n_accepted > 0
