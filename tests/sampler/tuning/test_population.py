"""Searches that recombine clusters, where those from several starts do not end in one place."""

import numpy as np
import pytest
from rectangles import CORNERS, LONG_SIDES, SHORT_SIDES

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.native.compiled import address_of
from pymc_dpgmm.partitions.priors import chinese_restaurant, finite_dirichlet, given_by_weights
from pymc_dpgmm.sampler.amounts import (
    DRAWS_IN_VAIN,
    FAR_APART,
    LONGEST_BEFORE,
    RECOMBINING_SHARE,
    SEARCH_DRAWS,
    SEARCHES_THAT_MEET,
)
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning import pool, population
from pymc_dpgmm.sampler.tuning.exchange import Exchange
from pymc_dpgmm.sampler.tuning.exploration import Explored
from pymc_dpgmm.sampler.tuning.pool import Pool
from pymc_dpgmm.sampler.tuning.population import Population, can_recombine, recombined
from pymc_dpgmm.sampler.tuning.schedule import Ended, Options, Schedule
from pymc_dpgmm.sampler.tuning.search import log_sum
from pymc_dpgmm.sampler.tuning.trials import SAME, is_changed
from pymc_dpgmm.testing import partitions

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


def pool_of(*members):
    pool = Pool(len(members[0]))
    for labels in members:
        pool.add(labels)
    return pool


def every_set(n):
    """A pool of all sets of rows."""
    pool = Pool(n)
    for bits in range(1, 2**n):
        rows = np.flatnonzero([bits >> i & 1 for i in range(n)])
        pool.add_clusters([rows])
    return pool


PRIORS = {
    "chinese restaurant": chinese_restaurant(0.7),
    "finite": finite_dirichlet(1.0, 2),
    "given by weights": given_by_weights(-1.0, np.log(np.arange(9, 1, -1.0))),
}


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("seed", range(4))
def test_of_all_sets_of_rows_the_most_probable_partition_is_made(monkeypatch, prior, seed):
    """By enumeration; where a weight of the number of clusters is no product, it is one nearby."""
    monkeypatch.setattr(pool, "PRICES", (1e4, 1e4))
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(8, 2)) + 4.0 * rng.integers(2, size=(8, 1))
    joints = {tuple(z): state_of(rows, z, PRIORS[prior]).log_joint() for z in partitions(8)}
    best = max(joints, key=joints.get)
    state = state_of(rows, np.array(best), PRIORS[prior])
    np.testing.assert_array_equal(every_set(8).recombined(rng, state), best)
    if prior == "chinese restaurant":
        # From anywhere, since what a cluster adds does not depend on the others.
        other = state_of(rows, np.zeros(8, dtype=int), PRIORS[prior])
        np.testing.assert_array_equal(every_set(8).recombined(rng, other), best)


@pytest.mark.parametrize("unit", [None, np.repeat(np.arange(20), 2)])
def test_what_rows_add_is_the_difference_of_joint_densities(unit):
    """Also of units, whose density without themselves is computed once they have left."""
    rng = np.random.default_rng(11)
    rows = rng.normal(size=(20 if unit is None else 40, 2))
    labels = np.concatenate([rng.integers(3, size=19), [3]])

    def made(of):
        state = State([View(BASE.family, BASE.numbers(2), rows, unit)], of)
        state.set_prior(chinese_restaurant(1.5))
        return state

    def added(state):
        found = np.empty(20)
        state.run(rng, pool._row_scores, address_of(found))
        return found

    state = made(labels)
    before, joint = added(state), state.log_joint()
    for i in range(20):
        moved = labels.copy()
        moved[i] = (moved[i] + 1) % 3
        other = made(np.unique(moved, return_inverse=True)[1])
        assert before[i] - added(other)[i] == pytest.approx(joint - other.log_joint(), abs=1e-8)
    assert state.log_joint() == pytest.approx(joint, abs=1e-8)


def test_rows_without_a_cluster_go_where_those_beside_them_go():
    before = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    labels = np.array([5, 5, -1, -1, -1, 3, 7, -1])
    # Of the second cluster none has gone anywhere: it stays one. Of the third, one row has gone to each of two.
    np.testing.assert_array_equal(pool._completed(labels, before), [0, 0, 0, 1, 1, 2, 3, 2])


def test_rows_of_two_clusters_and_of_none_have_their_price():
    """Two sets overlap in row 2, and row 5 is in none; what each adds decides."""
    rows, starts = np.array([0, 1, 2, 2, 3, 4]), np.array([0, 3, 6])
    for scores, wanted in ((np.array([3.0, 3.0]), [0, 1]), (np.array([3.0, -5.0]), [0])):
        taken, gains = pool._best_cover(rows, starts, scores, np.array([2.0, 1.0]), 6, np.inf)
        assert sorted(taken) == wanted
        assert np.all(gains <= 0.0)
    # Row 2 twice costs more than the second set adds, with the prices of its other rows.
    taken, _ = pool._best_cover(rows, starts, np.array([3.0, 1.0]), np.array([5.0, 1.0]), 6, np.inf)
    assert taken == [0]


def test_rows_are_of_a_kind_where_they_share_all_sets():
    rows, starts = np.array([0, 1, 2, 2, 3, 4, 6]), np.array([0, 3, 6, 7])
    first, counts = pool._alike(rows, starts, 8)
    assert dict(zip(first.tolist(), counts.tolist(), strict=True)) == {0: 2, 2: 1, 3: 2, 5: 2, 6: 1}


@pytest.mark.parametrize(("limit", "most"), [("MOST_CLUSTERS", 40), ("MOST_ROWS", 2 * len(rectangles()[0]))])
def test_clusters_that_serve_least_are_forgotten(limit, most, monkeypatch):
    rows, of_row, corners = rectangles()
    rng = np.random.default_rng(12)
    best = divided(of_row, corners, np.ones(N_RECTANGLES, dtype=bool))
    worse = [rng.permutation(best) for _ in range(3)]
    own = pool_of(best, *(np.unique(labels, return_inverse=True)[1] for labels in worse))
    monkeypatch.setattr(pool, limit, most)
    assert len(own) == 4 * 2 * N_RECTANGLES
    found = own.recombined(rng, state_of(rows, best))
    assert same_rows(found, best)
    assert len(own) == (20 if limit == "MOST_CLUSTERS" else 2 * 2 * N_RECTANGLES)
    assert same_rows(own.recombined(rng, state_of(rows, best)), best)


def test_good_parts_of_all_partitions_come_together():
    """Each has some rectangles as they should be, and none has all."""
    rows, of_row, corners = rectangles()
    rng = np.random.default_rng(4)
    best = divided(of_row, corners, np.ones(N_RECTANGLES, dtype=bool))
    choices = rng.random((6, N_RECTANGLES)) < 0.5
    assert choices.any(axis=0).all()
    assert not choices.all(axis=1).any()
    members = [divided(of_row, corners, chosen) for chosen in choices]
    state = state_of(rows, members[0])
    assert max(state_of(rows, z).log_joint() for z in members) < state_of(rows, best).log_joint() - FAR_APART
    assert same_rows(recombined(rng, state, pool_of(*members)).labels(), best)


def test_chains_put_together_what_all_have_found(monkeypatch, tmp_path):
    """Each of three chains has two or three of eight rectangles as they should be. Nothing else moves rows."""
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.schedule.log_sum", State.log_joint)
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.comparison.log_sum", State.log_joint)
    rows, of_row, corners = rectangles()
    rng = np.random.default_rng(13)
    best = divided(of_row, corners, np.ones(N_RECTANGLES, dtype=bool))
    exchange = Exchange(str(tmp_path), 1)
    for chain in range(3):
        members = divided(of_row, corners, np.arange(N_RECTANGLES) % 3 == chain)
        state = state_of(rows, members)
        # Two are equally probable: they are put together since no search has ended in one place.
        schedule = Schedule(Options(threads=1), 100, others=exchange.place(chain, "y_labels"))
        found = schedule._best_of_chains(
            rng,
            state,
            state.log_joint(),
            lambda one: Explored(one, 0, 0, one.log_joint()),
            Ended(pool_of(members), has_recombined=True, in_one_place=False),
        )
        assert (schedule.left is not None) == (chain > 0)
        assert same_rows(found.labels(), best) == (chain == 2)


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
    own = Population(Pool(40))
    kept, _ = own.draw(rng, state, lambda _: Explored(state_of(rows, labels), 0, 0, merit))
    assert kept is state


def test_draws_of_a_search_are_a_share_of_those_of_tuning(monkeypatch):
    """However hard it is: here nothing is ever as good as anything else."""
    rng = np.random.default_rng(6)
    rows = rng.normal(size=(60, 2))
    monkeypatch.setattr(Population, "is_over", property(lambda self: False))
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.schedule.SETTLED_SHARE", -1.0)
    for tune in (30, 160, 400):
        schedule = Schedule(Options(threads=1), tune)
        state, n_draws = state_of(rows, np.zeros(60, dtype=int)), 0
        while schedule.searches(True):
            state, _ = schedule.draw(rng, state, True)
            n_draws += 1
        before = min(2 * tune // 3, SEARCH_DRAWS)
        recombining = min(2 * tune // 3 - before, int(RECOMBINING_SHARE * tune))
        assert n_draws == (min(before, LONGEST_BEFORE) + recombining if recombining else before)
    assert recombining > 0


def test_searches_begin_with_one_cluster_and_with_many_in_turn():
    rng = np.random.default_rng(16)
    rows = rng.normal(size=(200, 2))
    state, own, starts = state_of(rows, np.repeat([0, 1], 100)), Population(Pool(200)), []

    def explore(found):
        starts.append(found.n_clusters)
        return Explored(found, 0, 0, -1e9)

    while own.n_begun < 6:
        begins, n_before = own.begins, len(starts)
        state, _ = own.draw(rng, state, explore)
        del starts[n_before + begins :]
    assert starts == [1, 20, 1, 20, 1, 20]


def test_a_search_in_vain_ends(monkeypatch):
    monkeypatch.setattr(Population, "has_met", False)
    rng = np.random.default_rng(14)
    rows = np.concatenate([rng.normal(size=(60, 2)), rng.normal(size=(60, 2)) + 30.0])
    state, own = state_of(rows, np.repeat([0, 1], 60)), Population(Pool(120))
    while not own.is_over:
        state, _ = own.draw(rng, state, lambda s: Explored(s, 0, 0, s.log_joint() - 1e3))
    assert own.n_draws == DRAWS_IN_VAIN


def test_no_more_clusters_than_can_be_are_put_together():
    """Two partitions of four clusters have the best clusters of six, and the prior allows four."""
    rng = np.random.default_rng(8)
    rows = np.repeat(np.arange(6), 20)[:, None] * np.array([30.0, 0.0]) + rng.normal(size=(120, 2))
    members = [np.repeat(np.arange(4), sizes) for sizes in ([20, 20, 20, 60], [60, 20, 20, 20])]
    for most, wanted in ((4, 4), (8, 6)):
        state = state_of(rows, members[0], finite_dirichlet(1.0, most))
        own = pool_of(*members)
        n_clusters = [recombined(rng, state, own).n_clusters for _ in range(20)]
        assert max(n_clusters) == wanted


def test_rows_that_are_known_to_be_apart_are_not_put_together(monkeypatch):
    """Where the clusters do not allow it, the partition stays as it is."""
    rng = np.random.default_rng(15)
    rows, labels = rng.normal(size=(6, 2)), np.array([0, 0, 0, 1, 1, 1])
    state = state_of(rows, labels)
    monkeypatch.setattr(Pool, "recombined", lambda *_: np.zeros(6, dtype=int))
    assert same_rows(recombined(rng, state, Pool(6)).labels(), np.zeros(6, dtype=int))
    monkeypatch.setattr(State, "log_joint", lambda _: -np.inf)
    assert same_rows(recombined(rng, state, Pool(6)).labels(), labels)


def test_merits_have_the_law_of_a_concentration_that_is_drawn():
    """Otherwise partitions of many clusters, which come with a large concentration, look too good."""
    rng = np.random.default_rng(17)
    rows, labels = rng.normal(size=(30, 2)), np.repeat([0, 1, 2], 10)
    merits = {}
    for law in ((0.0, 0.0), (3.0, 2.0)):
        for alpha in (0.5, 4.0):
            state = state_of(rows, labels)
            state.set_prior(chinese_restaurant(alpha), law)
            merits[law, alpha] = log_sum(state)
    for alpha in (0.5, 4.0):
        found = merits[(3.0, 2.0), alpha] - merits[(0.0, 0.0), alpha]
        assert found == pytest.approx(2.0 * np.log(alpha) - 2.0 * alpha, abs=1e-9)


def test_rows_of_changed_clusters_are_known():
    before = np.repeat([0, 1, 2], 20)
    after = before.copy()
    # A cluster divides; a row leaves another one.
    after[:10], after[20] = 3, 2
    changed = is_changed(before, after, SAME)
    assert changed[:21].all()
    assert not changed[21:].any()
    assert not is_changed(before, np.array([2, 0, 1])[before], SAME).any()


def test_clusters_of_many_rows_are_not_recombined(monkeypatch):
    state = state_of(np.zeros((10, 2)), np.zeros(10, dtype=int))
    assert can_recombine(state)
    monkeypatch.setattr(population, "ROWS_TOO_MANY_TO_RECOMBINE", 10)
    assert not can_recombine(state)
