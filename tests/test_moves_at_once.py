"""Sequential moves that threads propose at once: exactness, and the same draws for any number of threads."""

import exact
import numpy as np
import pytest
from slowly import rest_slow
from test_leader_sweep import PRIORS, SETS, after_sweeps

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.many_rows import many_rows
from pymc_dpgmm.sampler.moves.moves_at_once import sequential_moves
from pymc_dpgmm.sampler.moves.split_merge import MERGES, MERGES_TRIED, SEQUENTIAL, SPLITS, SPLITS_TRIED
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.schedule import Options, Schedule


def moves(n_threads):
    def move(rng, state):
        sequential_moves(rng, state, 4, n_threads)
        return state.labels()

    return move


@pytest.mark.parametrize(("cases", "prior"), rest_slow(SETS))
def test_moves_leave_the_posterior_invariant(cases, prior):
    exact.assert_matches(*after_sweeps(cases, prior, 3_000, moves(3)))


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
def test_moves_leave_the_posterior_invariant_in_many_draws(prior):
    # With more threads the draws are the same, and take longer.
    exact.assert_matches(*after_sweeps(("niw",), prior, 200_000, moves(1)))


def overlapping(n, n_clusters=20):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(n, 2)) + 2.0 * rng.integers(3, size=(n, 1))
    base = dp.NormalInverseWishart.from_data(rows)
    state = State([View(base.family, base.numbers(2), rows)], np.arange(n) % n_clusters)
    state.set_prior(chinese_restaurant(1.0))
    return state


def test_draws_do_not_depend_on_the_number_of_threads():
    found = []
    for n_threads in (1, 2, 4):
        state, rng = overlapping(200), np.random.default_rng(1)
        state.tally[:] = 0
        drawn = []
        for _ in range(40):
            sequential_moves(rng, state, 7, n_threads)
            drawn.append(state.labels())
        found.append((np.array(drawn), state.tally.copy(), state.log_joint()))
    (labels, tally, log_joint), *others = found
    for own, counted, density in others:
        assert np.array_equal(own, labels)
        assert np.array_equal(counted, tally)
        assert density == log_joint
    # Each move is counted once, and enough of them are accepted for others to be proposed again.
    tallied = tally[SEQUENTIAL]
    assert tallied[SPLITS_TRIED] + tallied[MERGES_TRIED] == 280
    assert tallied[SPLITS] + tallied[MERGES] > 20
    fresh = overlapping(200)
    fresh.relabel(labels[-1])
    assert fresh.log_joint() == pytest.approx(log_joint, rel=1e-10)


@pytest.mark.parametrize("n_clusters", [1, 2, 5, 8])
@pytest.mark.parametrize("n_before", [1, 5, 40])
def test_there_is_room_for_moves_of_few_clusters(n_clusters, n_before):
    """Slots that a state has left over from more clusters may be too few, or enough."""
    found = []
    for n_threads in (1, 3, 4, 9):
        own = overlapping(200, n_before)
        own.relabel(np.arange(200) % n_clusters)
        sequential_moves(np.random.default_rng(3), own, 9, n_threads)
        found.append((own.labels().tolist(), own.capacity))
    assert all(other == found[0] for other in found)


def test_draws_of_the_default_mix_do_not_depend_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(many_rows, "ROWS_FOR_THREADS", 1_000)
    found = []
    for n_threads in (1, 3):
        options = Options(search=False, threads=n_threads, leader_sweeps=1, sequential=5)
        state, rng, schedule = overlapping(2_000), np.random.default_rng(1), Schedule(options, 10)
        for _ in range(20):
            state, drawn = schedule.draw(rng, state, False)
        found.append((state.labels(), drawn.tally))
        assert drawn.tally[SEQUENTIAL][[SPLITS_TRIED, MERGES_TRIED]].sum() == 5
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


def test_moves_of_many_rows_come_in_batches(monkeypatch):
    """So many of them on average as planned, where no user has given their number."""
    monkeypatch.setattr(many_rows, "ROWS_FOR_THREADS", 100)
    state, rng, n = overlapping(200), np.random.default_rng(1), 4_000
    for planned, possible in ((0.3, {0, 8}), (2, {0, 8}), (8, {8}), (20, {16, 24})):
        schedule = Schedule(Options(search=False), 10, n_sequential=planned)
        drawn = [schedule.sequential_moves(rng, state) for _ in range(n)]
        assert set(drawn) == possible
        assert abs(np.mean(drawn) - planned) <= 4.0 * np.std(drawn) / np.sqrt(n)
    given = Schedule(Options(search=False, sequential=5), 10, n_sequential=5)
    assert {given.sequential_moves(rng, state) for _ in range(20)} == {5}
    # Of fewer rows, every draw has as many.
    few = Schedule(Options(search=False), 10, n_sequential=2)
    monkeypatch.setattr(many_rows, "ROWS_FOR_THREADS", 1_000)
    assert {few.sequential_moves(rng, state) for _ in range(20)} == {2}
