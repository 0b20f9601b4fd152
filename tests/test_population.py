"""Searches that cross partitions, where those from several starts do not end in one place."""

import numpy as np
import pytest
from rectangles import CORNERS, LONG_SIDES, SHORT_SIDES

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.priors import chinese_restaurant, finite_dirichlet
from pymc_dpgmm.sampler.amounts import CROSSING_SHARE, FAR_APART, POPULATION, SEARCH_DRAWS, SEARCHES_THAT_MEET
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning import population
from pymc_dpgmm.sampler.tuning.exploration import Explored, is_changed
from pymc_dpgmm.sampler.tuning.population import Population, can_cross, crossed
from pymc_dpgmm.sampler.tuning.schedule import Options, Schedule
from pymc_dpgmm.sampler.tuning.search import log_sum

BASE = dp.NormalInverseWishart([0.0, 0.0], 0.01, 4.0, np.eye(2))
N_RECTANGLES, N_OF_CORNER = 8, 40


def state_of(rows, labels, prior=None):
    state = State([View(BASE.family, BASE.numbers(2), rows)], labels)
    state.set_prior(chinese_restaurant(1.0) if prior is None else prior)
    return state


def rectangles():
    """Rows about rectangles that are far from each other, with the rectangle and the corner of each row."""
    of_row = np.repeat(np.arange(N_RECTANGLES), 4 * N_OF_CORNER)
    corners = np.tile(np.repeat(np.arange(4), N_OF_CORNER), N_RECTANGLES)
    noise = np.random.default_rng(0).normal(size=(len(of_row), 2))
    return CORNERS[corners] + 1e3 * of_row[:, None] + noise, of_row, corners


def divided(of_row, corners, is_short):
    """Two clusters for each rectangle: its short sides, or its long ones."""
    side = np.where(is_short[of_row], SHORT_SIDES[corners], LONG_SIDES[corners])
    return np.unique(2 * of_row + side, return_inverse=True)[1]


def same_rows(first, second):
    """Whether two vectors of labels are one partition."""
    return len(np.unique(first * len(second) + second)) == len(np.unique(first)) == len(np.unique(second))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_partition_crossed_with_itself_stays(monkeypatch, share):
    monkeypatch.setattr(population, "BY_REGIONS", share)
    rng = np.random.default_rng(1)
    for _ in range(20):
        labels = np.unique(rng.integers(6, size=30), return_inverse=True)[1]
        assert same_rows(crossed(rng, labels, rng.permutation(labels.max() + 1)[labels]), labels)


def test_a_child_has_each_region_from_one_of_two(monkeypatch):
    """Regions that share no rows are taken whole, each from either vector; all ways to do so occur."""
    monkeypatch.setattr(population, "BY_REGIONS", 1.0)
    rng = np.random.default_rng(2)
    # Two regions, of which the vectors divide each in ways of their own.
    first = np.array([0, 0, 1, 1, 2, 2, 3, 3, 3])
    second = np.array([0, 1, 0, 1, 2, 3, 3, 2, 2])
    wholes = [np.concatenate([one[:4], other[4:]]) for one in (first, second) for other in (first, second)]
    seen = []
    for _ in range(100):
        child = crossed(rng, first, second)
        seen += [k for k, whole in enumerate(wholes) if same_rows(child, np.unique(whole, return_inverse=True)[1])]
    assert len(seen) == 100
    assert set(seen) == {0, 1, 2, 3}


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_children_are_partitions(monkeypatch, share):
    """However the vectors overlap, a child has some label for each row, and no more clusters than both."""
    monkeypatch.setattr(population, "BY_REGIONS", share)
    rng = np.random.default_rng(3)
    for _ in range(50):
        first, second = (
            np.unique(rng.integers(k, size=40), return_inverse=True)[1] for k in rng.integers(1, 9, 2)
        )
        child = crossed(rng, first, second)
        n_clusters = child.max() + 1
        assert child.shape == (40,)
        assert set(child) == set(range(n_clusters))
        assert n_clusters <= first.max() + second.max() + 2


def test_good_parts_of_members_come_together(monkeypatch):
    """Each member has some rectangles as they should be. Nothing but crossings moves rows here."""
    rows, of_row, corners = rectangles()
    rng = np.random.default_rng(4)
    best = divided(of_row, corners, np.ones(N_RECTANGLES, dtype=bool))
    choices = rng.random((POPULATION, N_RECTANGLES)) < 0.5
    assert choices.any(axis=0).all()
    assert not choices.all(axis=1).any()
    members = [divided(of_row, corners, chosen) for chosen in choices]
    state = state_of(rows, members[0])
    merits = [state_of(rows, labels).log_joint() for labels in members]
    assert max(merits) < state_of(rows, best).log_joint() - FAR_APART
    monkeypatch.setattr(population, "log_sum", State.log_joint)
    own = Population(members)
    for _ in range(300):
        before = state.log_joint()
        state, merit = own.draw(rng, state, lambda s: Explored(s, 0, 0, s.log_joint()))
        assert merit == state.log_joint() >= before
    assert same_rows(state.labels(), best)


def test_a_search_is_over_when_its_first_beginnings_meet():
    """Two groups far apart: the searches from other starts end there at once."""
    rng = np.random.default_rng(5)
    rows = np.concatenate([rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) + 30.0])
    schedule = Schedule(Options(threads=1), 600)
    state, n_begun = state_of(rows, np.zeros(120, dtype=int)), 0
    while schedule.searches(True):
        n_begun += schedule.population is not None
        state, _ = schedule.draw(rng, state, True)
    np.testing.assert_array_equal(state.labels(), np.repeat([0, 1], 60))
    assert n_begun == SEARCHES_THAT_MEET - 1
    assert schedule.population is None


@pytest.mark.parametrize("difference", [-1e-11, 1e-11])
def test_rounding_does_not_decide_between_states_of_one_partition(difference):
    """Draws would depend on the machine, since the order of the clusters decides what later draws are."""
    rng = np.random.default_rng(9)
    rows, labels = rng.normal(size=(40, 2)), np.repeat([0, 1], 20)
    state = state_of(rows, labels)
    merit = log_sum(state) + difference
    own = Population([labels])
    kept, _ = own.draw(rng, state, lambda _: Explored(state_of(rows, labels), 0, 0, merit))
    assert kept is state


def test_draws_of_a_search_are_a_share_of_those_of_tuning(monkeypatch):
    """However hard it is: here nothing is ever as good as anything else."""
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(60, 2))
    monkeypatch.setattr(Population, "has_met", property(lambda self: False))
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.schedule.SETTLED_SHARE", -1.0)
    for tune in (30, 160, 400):
        schedule = Schedule(Options(threads=1), tune)
        state, n_draws = state_of(rows, np.zeros(60, dtype=int)), 0
        while schedule.searches(True):
            state, _ = schedule.draw(rng, state, True)
            n_draws += 1
        wanted = min(2 * tune // 3, SEARCH_DRAWS + int(CROSSING_SHARE * tune))
        assert n_draws == wanted
    assert n_draws > SEARCH_DRAWS


def test_children_that_cannot_be_are_not_searched(monkeypatch):
    """Two partitions of four clusters have a child of six, and the prior allows four."""
    rows = np.random.default_rng(7).normal(size=(30, 2))
    rng = np.random.default_rng(8)
    monkeypatch.setattr(population, "POPULATION", 4)
    members = [np.repeat(np.arange(4), sizes) for sizes in 2 * [[5, 5, 5, 15], [15, 5, 5, 5]]]
    state = state_of(rows, members[0], finite_dirichlet(1.0, 4))
    own = Population(list(members))
    seen = []

    def explore(child):
        seen.append(child.log_joint())
        return Explored(child, 0, 0, child.log_joint())

    n_children = [crossed(rng, members[0], members[1]).max() + 1 for _ in range(50)]
    assert max(n_children) == 6
    for _ in range(50):
        state, _ = own.draw(rng, state, explore)
    assert len(seen) == 50
    assert min(seen) > -np.inf


def test_rows_of_changed_clusters_are_known():
    before = np.repeat([0, 1, 2], 20)
    after = before.copy()
    # A cluster divides; a row leaves another one.
    after[:10], after[20] = 3, 2
    changed = is_changed(before, after)
    assert changed[:21].all()
    assert not changed[21:].any()
    assert not is_changed(before, np.array([2, 0, 1])[before]).any()


def test_many_rows_and_groups_are_not_crossed(monkeypatch):
    state = state_of(np.zeros((10, 2)), np.zeros(10, dtype=int))
    assert can_cross(state)
    monkeypatch.setattr(population, "ROWS_TOO_MANY_TO_CROSS", 10)
    assert not can_cross(state)
