"""Reallocations: transition matrices with and without mistakes, partitions before and after, and acceptance."""

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
from pymc_dpgmm.native.compiled import INT, INTS, c_function
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.moves import reallocation
from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.moves.move import SPLIT_ROWS, SPLITS, SPLITS_TRIED
from pymc_dpgmm.sampler.moves.sweep import sweep
from pymc_dpgmm.sampler.state.memory import DONE, N_CLUSTERS, NEEDS_ROOM, POSITION, memory_at, prior_of
from pymc_dpgmm.sampler.state.state import State

# Five rows open four clusters at most.
ROOM = 8
# Loose rows, about, and candidates, at most: with one or two candidates, most rows are none.
SIZES = {"one candidate": (1, 1), "two candidates": (2, 2), "few loose rows": (1, 8), "all": (8, 8)}


@c_function(INT(INTS, INT, INT, INT))
def reallocate_some(head, n_moves, n_loose, most):
    """Reallocations of some rows."""
    s = memory_at(head)
    while head[POSITION] < n_moves:
        if head[N_CLUSTERS] + ROOM > s.capacity:
            return NEEDS_ROOM
        reallocation.move(s, prior_of(s), n_loose, most)
        head[POSITION] += 1
    return DONE


def moves(sizes, number):
    def move(rng, state):
        state.slots_of_kind[:] = ROOM
        state.run(rng, reallocate_some, number, *SIZES[sizes])
        return state.labels()

    return move


@pytest.mark.parametrize(("cases", "prior"), rest_slow(SETS))
def test_reallocations_leave_the_posterior_invariant(cases, prior):
    """All families and priors, against enumeration."""
    exact.assert_matches(*after_sweeps(cases, prior, 20_000, moves("few loose rows", 5)))


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

    def __init__(self, n, alpha, n_loose, most):
        family, base, rows = CASES["poisson"]
        self.n, self.alpha, self.n_loose, self.most = n, alpha, n_loose, most
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

    def log_core(self, whole, core):
        share = min(0.6, self.n_loose / len(whole))
        return (len(core) - 1) * math.log(1 - share) + (len(whole) - len(core)) * math.log(share)

    def candidates(self, core):
        def log_factor(row):
            return round(self.log_weight(row, core) - math.log(len(core)) - self.evidence(frozenset([row])), 6)

        others = set(range(self.n)) - core
        return sorted(others, key=lambda row: (-log_factor(row), row))[: self.most]

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

    def fill(self):
        for before, founder in itertools.product(self.partitions, range(self.n)):
            whole = next(cluster for cluster in before if founder in cluster)
            for n_others in range(len(whole)):
                for others in itertools.combinations(sorted(whole - {founder}), n_others):
                    self.add(before, founder, whole, frozenset([founder, *others]))
        assert abs(self.matrix.sum(axis=1) - 1).max() < 1e-12
        flow = self.target[:, None] * self.matrix
        return max(np.abs(self.target @ self.matrix - self.target).max(), np.abs(flow - flow.T).max())

    def add(self, before, founder, whole, core):
        candidates = self.candidates(core)
        loose = [row for row in candidates if row in whole]
        staying = whole - set(loose)
        chosen = math.exp(self.log_core(whole, core)) / self.n
        for between, log_there in self.places(before, founder, loose):
            log_back = self.log_sides(between, staying, candidates, [row in loose for row in candidates])
            for joins in itertools.product([True, False], repeat=len(candidates)):
                log_sides = self.log_sides(between, staying, candidates, joins)
                joined = [row for row, is_in in zip(candidates, joins, strict=True) if is_in]
                after = frozenset(
                    cluster - set(joined) | (set(joined) if founder in cluster else set()) for cluster in between
                ) - {frozenset()}
                log_returns = logsumexp(
                    [log_q for end, log_q in self.places(after, founder, joined) if end == between]
                )
                log_ratio = reallocation.log_reallocation(
                    self.log_joint(after) - self.log_joint(before),
                    log_back + log_returns,
                    log_there + log_sides,
                    self.log_core(staying | set(joined), core) - self.log_core(whole, core),
                )
                p = chosen * math.exp(log_there + log_sides)
                accepted = min(1.0, math.exp(log_ratio))
                self.matrix[self.code[before], self.code[after]] += p * accepted
                self.matrix[self.code[before], self.code[before]] += p * (1 - accepted)


@pytest.mark.parametrize("sizes", SIZES)
def test_transition_matrix(sizes):
    assert Matrix(4, 0.8, *SIZES[sizes]).fill() < 1e-12


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
    assert Matrix(4, 0.8, 2, 2).fill() > 1e-4


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
    for _ in range(200):
        sweep(rng, state, 1, 1, *n_moves)
    counted = state.tally[list(MOVES).index("reallocation")]
    assert counted[SPLITS_TRIED] == 2_000
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
