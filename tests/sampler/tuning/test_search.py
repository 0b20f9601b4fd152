"""Searches in tuning: pairs of clusters that divide in another way, and chains that hear of each other's best."""

import contextlib
import signal
import threading
from functools import partial

import numpy as np
import pymc as pm
import pytest
from rectangles import CORNERS, LONG_SIDES, SHORT_SIDES

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.amounts import FAR_APART, Effort
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.exchange import COMPARISONS, ROUNDS, Exchange, Found
from pymc_dpgmm.sampler.tuning.exploration import Explored, settled
from pymc_dpgmm.sampler.tuning.pool import Pool
from pymc_dpgmm.sampler.tuning.schedule import Ended, Options, Schedule
from pymc_dpgmm.sampler.tuning.search import log_sum, search

BASE = dp.NormalInverseWishart([10.0, 8.0], 0.01, 4.0, np.eye(2))
# Another cluster costs so many nats that two have to do, and one does not.
ALPHA = np.exp(-178.0)


def rows_of(n):
    groups = np.repeat(np.arange(4), n)
    return CORNERS[groups] + np.random.default_rng(0).normal(size=(4 * n, 2)), groups


def state_of(rows, labels):
    state = State([View(BASE.family, BASE.numbers(2), rows)], labels)
    state.set_prior(chinese_restaurant(ALPHA))
    return state


def test_pairs_of_clusters_divide_in_another_way():
    """No split or merge pays, and no row moves alone: half of one cluster has to change for half of the other."""
    rows, groups = rows_of(40)
    state, best = state_of(rows, LONG_SIDES[groups]), state_of(rows, SHORT_SIDES[groups])
    assert best.log_joint() > state.log_joint() + 20.0
    for clusters in (np.zeros(4, dtype=int), np.array([0, 0, 1, 2])):
        assert state_of(rows, clusters[groups]).log_joint() < state.log_joint() - 20.0
    rng = np.random.default_rng(1)
    for _ in range(20):
        search(rng, state)
    assert state.log_joint() == pytest.approx(best.log_joint())
    np.testing.assert_array_equal(np.bincount(state.labels()), [80, 80])
    # Sums that have changed are those of the rows.
    fresh = state_of(rows, state.labels())
    assert fresh.log_joint() == pytest.approx(state.log_joint(), abs=1e-8)


def places(exchange, chains):
    return [exchange.place(chain, "y_labels") for chain in range(chains)]


def merits(place):
    return [found.merit for found in place.of_others()]


def test_chains_that_run_together_hear_all_that_began_with_them_or_before(tmp_path):
    """A chain waits for all that it hears, so that what it hears is no race."""
    first, second, late, later = places(Exchange(str(tmp_path), 2), 4)
    heard = []
    waiting = threading.Thread(target=lambda: heard.extend(second.of_others()))
    second.tell(Found(np.array([0, 1]), -3.0))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    first.tell(Found(np.array([0, 0]), -5.0))
    waiting.join(10.0)
    np.testing.assert_array_equal(heard[0].labels, [0, 0])
    assert merits(first) == [-3.0]
    late.tell(Found(np.array([1, 1]), 9.0))
    later.tell(Found(np.array([1, 1]), 8.0))
    assert merits(later) == [-5.0, -3.0, 9.0]
    assert merits(late) == [-5.0, -3.0]
    # The second round is another one, and the last.
    for place, merit in ((first, -1.0), (second, -2.0), (late, -4.0), (later, 7.0)):
        place.tell(Found(np.array([0, 1]), merit))
    first.tell(None)
    first.leave()
    assert merits(later) == [-1.0, -2.0, -4.0]
    assert merits(late) == [-1.0, -2.0]


def test_chains_in_turn_hear_all_before_them_and_wait_for_none(tmp_path):
    first, second, third = places(Exchange(str(tmp_path), 1), 3)
    assert merits(first) == []
    first.tell(Found(np.array([0, 0]), -5.0))
    # The second one was interrupted.
    assert merits(third) == [-5.0]
    second.leave()
    assert merits(third) == [-5.0]


@pytest.mark.parametrize(("offset", "restarts"), [(0.0, True), (0.1, False)])
def test_a_chain_begins_anew_only_where_it_is_far_below(tmp_path, offset, restarts, monkeypatch):
    """Partitions are judged by the chain that hears of them, whatever the other one has made of them."""
    rows, groups = rows_of(40)
    exchange = Exchange(str(tmp_path), 1)
    other = exchange.place(0, "y_labels")
    other.tell(Found(SHORT_SIDES[groups], -1e9))
    other.leave()
    schedule = Schedule(Options(threads=1), 60, others=exchange.place(1, "y_labels"))
    state = state_of(rows, LONG_SIDES[groups])
    gain = log_sum(state_of(rows, SHORT_SIDES[groups])) - log_sum(state)
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.comparison.FAR_APART", gain - 0.05 + offset)
    ended = Ended(Pool(len(rows)), has_recombined=True, in_one_place=True)
    end = schedule._best_of_chains(
        np.random.default_rng(2), state, log_sum(state), lambda one: Explored(one, 0, 0, log_sum(one)), ended
    )
    assert (schedule.left is not None) == restarts
    np.testing.assert_array_equal(end.labels(), (SHORT_SIDES if restarts else LONG_SIDES)[groups])


@contextlib.contextmanager
def alarm(seconds):
    """Raise TimeoutError if the body takes longer: chains that wait for each other wait for ever."""

    def ring(*_):
        raise TimeoutError(f"after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def two_vectors(kind):
    """A model with two vectors of labels, whose searches end at different draws in different chains."""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=n) + 5.0 * rng.integers(3, size=n) for n in (80, 120))
    with pm.Model() as model:
        dp.DPMixture("x", 1.0, observed=x)
        if kind == "mixture":
            dp.DPMixture("y", 1.0, observed=y)
        else:
            dp.LDA("y", 3, 0.5, 0.1, observed=rng.integers(4, size=120), group=np.repeat(range(12), 10))
    return model


@pytest.mark.parametrize("kind", ["mixture", "topics"])
@pytest.mark.parametrize("n_steps", [1, 2])
def test_chains_compare_several_vectors_in_one_order(kind, n_steps):
    """Each chain comes to the same vector at the same draw, in one step or in several."""
    quiet = {"progressbar": False, "compute_convergence_checks": False, "discard_tuned_samples": False}
    with two_vectors(kind) as model:
        names = ["x_labels", "y_labels"]
        for seed in (1, 2):
            parts = [names] if n_steps == 1 else [[name] for name in names]
            step = [dp.DPMixtureStep([model[name] for name in part]) for part in parts]
            with alarm(120):
                idata = pm.sample(5, tune=60, chains=2, cores=2, random_seed=seed, step=step, **quiet)
    for name in names:
        found = idata.warmup_sample_stats[f"{name}_searching"].values
        # The comparison is a draw of the search too, if one has ended before it.
        assert found[:, 40].all() == (kind == "mixture" or name == "x_labels")
        assert not found[:, 41:].any()


def test_a_search_that_has_not_ended_keeps_nobody_waiting(tmp_path):
    """At the draw in which chains compare, a chain that is still searching has nothing to tell."""
    rows, groups = rows_of(40)
    schedules = [
        Schedule(Options(threads=1), 60, others=Exchange(str(tmp_path), 2, n_vectors=2).place(chain, "y_labels"))
        for chain in range(2)
    ]
    schedules[0].search_left = schedules[0].settled_draws = 1000
    rng, told = np.random.default_rng(0), []
    with alarm(60):
        for schedule in schedules:
            state = state_of(rows, groups)
            for _ in range(60):
                schedule.begin_draw()
                state, _ = schedule.draw(rng, state, True)
                schedule.end_draw()
            told.append(schedule.others.n_told)
    assert told == [ROUNDS * COMPARISONS] * 2
    assert schedules[0].ended is None
    assert schedules[1].ended is None


@pytest.mark.parametrize("fewest", [1, 3])
def test_chains_with_many_clusters_compare_again(tmp_path, fewest, monkeypatch):
    """What another chain has found since is heard late in tuning, and guides moves; not with few clusters."""
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.schedule.CLUSTERS_FOR_CARVINGS", fewest)
    rows, groups = rows_of(40)
    exchange = Exchange(str(tmp_path), 1)
    other = exchange.place(0, "y_labels")
    other.end_comparison(1)
    other.tell(Found(SHORT_SIDES[groups], -1e9))
    other.leave()
    schedule = Schedule(Options(threads=1, moves={"sequential": 0}), 60, others=exchange.place(1, "y_labels"))
    schedule.search_left, rng = 0, np.random.default_rng(0)
    ended = Ended(Pool(len(rows)), has_recombined=False, in_one_place=False)
    state = schedule._ended(rng, state_of(rows, LONG_SIDES[groups]), 0.0, partial(settled, rng), ended)
    found = []
    for _ in range(60):
        schedule.begin_draw()
        state, drawn = schedule.draw(rng, state, True)
        schedule.end_draw()
        found.append((drawn.searching, schedule.left is not None))
    compares = [draw in (45, 54) and fewest == 1 for draw in range(1, 61)]
    assert [searching for searching, _ in found] == compares
    assert [restarted for _, restarted in found] == [draw >= 45 and fewest == 1 for draw in range(1, 61)]
    np.testing.assert_array_equal(state.labels(), (SHORT_SIDES if fewest == 1 else LONG_SIDES)[groups])
    assert schedule.others.n_told == ROUNDS * COMPARISONS
    # Each of the two partitions has two clusters.
    assert len(np.split(state.guides, state.guide_starts[1:-1])) == (4 if fewest == 1 else 1)


def test_nothing_is_heard_of_a_search_that_did_not_end(tmp_path):
    place = Exchange(str(tmp_path), 1).place(0, "y_labels")
    place.leave()
    assert merits(Exchange(str(tmp_path), 1).place(1, "y_labels")) == []


def sampled(monkeypatch, cores, tune=60, **options):
    """A run in which searches find nothing by themselves, and one chain begins where the others should be."""
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.schedule.EFFORT", Effort(0, 0, 0))
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.schedule.SEARCH_DRAWS", 3)
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.schedule.log_sum", State.log_joint)
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.comparison.log_sum", State.log_joint)
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.exploration.log_sum", State.log_joint)
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.exploration.without_one", lambda rng, s: (s, s.log_joint()))
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.exploration.divided_anew", lambda rng, s: s)
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.exploration.search", lambda rng, s: 0)
    rows, groups = rows_of(40)
    starts = [{"y_labels": one[groups]} for one in (SHORT_SIDES, LONG_SIDES, LONG_SIDES)]
    with pm.Model():
        dp.DPMixture("y", ALPHA, BASE, observed=rows)
        return pm.sample(
            20, tune=tune, chains=3, cores=cores, initvals=starts, random_seed=1, progressbar=False, **options
        )


def restarted(idata):
    return idata.sample_stats["y_labels_restarted"].values[:, -1].tolist()


@pytest.mark.parametrize("cores", [1, 2])
def test_chains_that_are_far_below_begin_anew(monkeypatch, caplog, cores):
    with caplog.at_level("INFO"):
        idata = sampled(monkeypatch, cores)
    assert restarted(idata) == [False, True, True]
    assert "2 of 3 chains found partitions of y_labels that are far less probable" in caplog.text
    assert np.ptp(idata.sample_stats["y_labels_log_joint"].values[:, -1]) < FAR_APART
    found = dp.partition_diagnostics(idata, "y").attrs
    assert found["restarted"] == [1, 2]
    # The long sides and the short sides of a rectangle halve each other: two bits.
    assert np.round(found["alone_distance"], 9).tolist() == [2.0, 2.0]
    assert min(found["alone_lower"]) > FAR_APART
    told = f"chain 1 ({found['alone_lower'][0]:.0f} nats lower, 2.00 bits from there), 2 ("
    assert f"Begun anew at the clusters of another chain in tuning: {told}" in " ".join(
        repr(dp.summary(idata, "y")).split()
    )
    assert [r.levelname for r in caplog.records if "far less probable" in r.message] == ["WARNING"]
    assert idata.sample_stats["y_labels_alone_lower"].values[0].max() == 0.0
    again = sampled(monkeypatch, cores)
    np.testing.assert_array_equal(again.posterior["y_labels"], idata.posterior["y_labels"])


@pytest.mark.parametrize("cores", [1, 2])
def test_chains_that_tell_each_other_nothing_stay_apart(monkeypatch, caplog, cores):
    idata = sampled(monkeypatch, cores, dpmixture={"share": False})
    assert restarted(idata) == [False, False, False]
    assert "far less probable" not in caplog.text
    with pytest.warns(UserWarning, match="the chains are at different partitions"):
        dp.partition_diagnostics(idata, "y")


def test_whether_chains_tell_each_other_is_true_or_false():
    with pm.Model():
        dp.DPMixture("y", ALPHA, BASE, observed=rows_of(40)[0])
        with pytest.raises(TypeError, match="share must be True or False, got 'no'"):
            pm.sample(5, dpmixture={"share": "no"})


def test_a_search_that_cannot_end_keeps_no_other_chain_waiting(monkeypatch):
    """No search begins: nothing is told, and nobody waits."""
    idata = sampled(monkeypatch, 2, tune=1)
    assert restarted(idata) == [False, False, False]
    assert "restarted" not in dp.partition_diagnostics(idata, "y", warn=False).attrs
    options = {"dpmixture": {"split_merge": {"search": False}}}
    assert restarted(sampled(monkeypatch, 2, **options)) == [False, False, False]
