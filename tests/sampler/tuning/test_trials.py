"""Changes of one cluster on trial: what each finds, that none loses, and that the state they begin with stays."""

from itertools import permutations

import numpy as np
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import chinese_restaurant, finite_dirichlet
from pymc_dpgmm.sampler.amounts import Effort
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning import exploration, trials
from pymc_dpgmm.sampler.tuning.search import log_probability_of_labels, log_sum
from pymc_dpgmm.sampler.tuning.trials import core_apart, in_two, one_given_up, try_changes

D = 4
BASE = dp.NormalInverseWishart(np.zeros(D), 0.05, D + 2.0, np.eye(D))


def state_of(rows, labels, prior=None):
    state = State([View(BASE.family, BASE.numbers(D), rows)], labels)
    state.set_prior(chinese_restaurant(1.0) if prior is None else prior)
    return state


def rows_and_groups(seed=0, n_groups=6, n_each=30):
    """Groups eight or eleven standard deviations apart."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), n_each)
    centres = 8.0 * np.concatenate([np.zeros((1, D)), np.eye(D), -np.eye(D)])
    return centres[groups] + rng.normal(size=(len(groups), D)), groups


def merged(groups, first, second):
    return canonical_labels(np.where(groups == second, first, groups))[0]


def are_apart(state, groups):
    """Tell whether no cluster has rows of two groups."""
    return len(np.unique(np.stack([state.labels(), groups]), axis=1).T) == state.n_clusters


def only(monkeypatch, change):
    monkeypatch.setattr(trials, "CHANGES", (change,))


def test_a_cluster_of_two_groups_and_rows_of_others_divides(monkeypatch):
    """The halves alone are less probable than the cluster, until the rows of others have left."""
    only(monkeypatch, in_two)
    rows, groups = rows_and_groups()
    start = merged(groups, 0, 1)
    start[[61, 62, 91, 121]] = start[0]
    found, largest = try_changes(np.random.default_rng(1), state_of(rows, start), 30, 10)
    assert are_apart(found, groups)
    # A few rows may have clusters of their own, which this change does not unite.
    assert found.log_joint() > state_of(rows, merged(groups, 0, 1)).log_joint() + 20.0
    assert largest >= 20


def test_rows_that_widen_a_cluster_leave_it_together(monkeypatch):
    """Twelve rows of a group of their own, in a large cluster: alone, each of them fits nowhere better."""
    only(monkeypatch, core_apart)
    rng = np.random.default_rng(2)
    rows = np.concatenate([rng.normal(size=(80, D)), rng.normal(size=(12, D)) * 0.3 + [3.0, 2.0, 0.0, 0.0]])
    start = state_of(rows, np.zeros(92, dtype=int))
    found, _ = try_changes(np.random.default_rng(3), start, 40, 10)
    apart = np.repeat([0, 1], [80, 12])
    assert state_of(rows, apart).log_joint() > start.log_joint()
    assert found.n_clusters == 2
    assert np.mean(found.labels() == apart) > 0.95


def test_a_cluster_that_need_not_be_there_is_given_up(monkeypatch):
    only(monkeypatch, one_given_up)
    rows, groups = rows_and_groups()
    start = groups.copy()
    start[::7] = 6 + start[::7]
    found, _ = try_changes(np.random.default_rng(4), state_of(rows, start), 40, 10)
    assert are_apart(found, groups)
    assert found.n_clusters < 9
    assert found.log_joint() > state_of(rows, groups).log_joint() - 6.0


@pytest.mark.parametrize("seed", range(3))
def test_no_change_makes_labels_less_probable(seed):
    rows, _ = rows_and_groups(seed)
    rng = np.random.default_rng(seed)
    start = state_of(rows, canonical_labels(rng.integers(9, size=len(rows)))[0])
    labels, log_joint, merit = start.labels(), start.log_joint(), log_sum(start)
    found, _ = try_changes(rng, start, 20, 5)
    assert log_sum(found) > merit + 1.0
    assert found.log_joint() == pytest.approx(state_of(rows, found.labels()).log_joint(), rel=1e-9)
    np.testing.assert_array_equal(start.labels(), labels)
    assert start.log_joint() == log_joint


def log_probabilities(state):
    """The log probability of each row in each cluster as it is, (n, K)."""
    k = state.n_clusters
    weights = np.array([state.tables[0].log_predictives(int(slot)) for slot in state.order[:k]]).T
    weights += np.log(state.sizes[state.order[:k]])
    return weights - np.logaddexp.reduce(weights, axis=1)[:, None]


@pytest.mark.parametrize(("k", "spread"), [(2, 0.01), (2, 1.0), (2, 6.0), (4, 0.0), (4, 30.0)])
def test_a_division_is_counted_whichever_cluster_has_which_label(k, spread):
    """The sum over all permutations is exact for two clusters, for none that overlap and for all."""
    rng = np.random.default_rng(k)
    labels = np.repeat(np.arange(k), 6)
    values = np.tile(rng.normal(size=(6, D)), (k, 1)) + spread * labels[:, None]
    state = state_of(values, labels)
    log_p, rows = log_probabilities(state), np.arange(len(values))
    places = state.place[state.slots]
    exact = np.logaddexp.reduce([log_p[rows, np.array(p)[places]].sum() for p in permutations(range(k))])
    assert log_probability_of_labels(state, rows) == pytest.approx(exact, rel=1e-9)
    assert log_sum(state) == pytest.approx(state.log_joint() - exact, rel=1e-9)
    if k == 4:
        own = log_p[rows, places].sum()
        assert exact - own == pytest.approx(np.log(24.0) if spread == 0.0 else 0.0, abs=1e-9)


def test_log_probabilities_of_some_rows():
    """Rows of clusters that do not overlap add up; clusters without rows among them take no part."""
    rows, groups = rows_and_groups()
    state = state_of(rows * 100.0, merged(groups, 0, 1))
    log_p, places = log_probabilities(state), state.place[state.slots]
    some = np.arange(0, len(rows), 2)
    exact = log_p[some, places[some]].sum()
    assert log_probability_of_labels(state, some) == pytest.approx(exact, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("most", [1, 2])
def test_changes_make_no_more_clusters_than_the_prior_allows(most):
    rows, groups = rows_and_groups(n_groups=4, n_each=15)
    state = state_of(rows, np.minimum(groups, most - 1), finite_dirichlet(0.5, float(most)))
    found, _ = try_changes(np.random.default_rng(5), state, 40, 5)
    assert found.n_clusters <= most
    assert np.isfinite(found.log_joint())


@pytest.mark.parametrize("n", [1, 2, 4])
def test_few_rows_have_changes_too(n):
    rows = rows_and_groups(n_groups=1, n_each=n)[0]
    found, _ = try_changes(np.random.default_rng(6), state_of(rows, np.zeros(n, dtype=int)), 20, 5)
    assert np.isfinite(found.log_joint())


@pytest.mark.parametrize("fewest", [1, 99])
def test_searches_of_many_clusters_change_them_on_trial(fewest, monkeypatch):
    tried = []
    monkeypatch.setattr(exploration, "CLUSTERS_FOR_CARVINGS", fewest)
    monkeypatch.setattr(exploration, "try_changes", lambda *given: tried.append(given) or try_changes(*given))
    rows, groups = rows_and_groups()
    found = exploration.explore(np.random.default_rng(7), state_of(rows, merged(groups, 0, 1)), Effort(1, 1, 3))
    assert found.merit == pytest.approx(log_sum(found.state))
    assert len(tried) == (fewest == 1)
