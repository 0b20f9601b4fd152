"""Searches in a part of many rows: what is found there, where the other rows go, priors, threads."""

import numpy as np
import pytest
from small_posteriors import LOG_COMPONENTS
from small_states import check_state

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import (
    chinese_restaurant,
    finite_dirichlet,
    mixture_of_finite_mixtures,
    pitman_yor,
)
from pymc_dpgmm.sampler.amounts import ROWS_FOR_PART
from pymc_dpgmm.sampler.many_rows import part_search
from pymc_dpgmm.sampler.many_rows.leader_sweep import place_rows
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.schedule import Options, Schedule

N = 60_000
CENTRES = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0], [40.0, 40.0]])


def rows_of(n=N, n_rare=150):
    """Rows of three large clusters and of a small one, and their clusters."""
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=n)
    labels[rng.choice(n, size=n_rare, replace=False)] = 3
    return CENTRES[labels] + rng.normal(size=(n, 2)), labels


def state_of(rows, labels, prior, base=None):
    base = base or dp.NormalInverseWishart.from_data(rows)
    state = State([View(base.family, base.numbers(rows.shape[1]), rows)], labels)
    state.set_prior(prior)
    return state


PRIORS = {
    "crp": chinese_restaurant(1.0),
    "pitman-yor": pitman_yor(0.5, 0.2),
    "finite": finite_dirichlet(2.0, 6),
    "mfm": mixture_of_finite_mixtures(1.0, LOG_COMPONENTS, N),
}


@pytest.mark.parametrize(
    ("prior", "start"), [*((prior, "together") for prior in PRIORS), ("crp", "apart"), ("finite", "apart")]
)
def test_all_clusters_are_found_in_one_draw(prior, start):
    rows, truth = rows_of()
    n_start = 1 if start == "together" else 6 if prior == "finite" else 50
    state = state_of(rows, np.arange(N) % n_start, PRIORS[prior])
    schedule = Schedule(Options(threads=1), 60)
    rng = np.random.default_rng(2)
    state, drawn = schedule.draw(rng, state, True)
    assert drawn.searching
    large = state.cluster_sizes >= 100
    assert np.count_nonzero(large) == 4
    pairs = np.unique(np.column_stack([state.labels(), truth]), axis=0, return_counts=True)[1]
    assert np.sort(pairs)[-4:].sum() > 0.999 * N
    check_state(
        state, PRIORS[prior], rows, "NormalInverseWishart", dp.NormalInverseWishart.from_data(rows).parameters
    )
    # The search of all rows is short.
    while schedule.searches(True):
        state, _ = schedule.draw(rng, state, True)
    assert schedule.draws == 0


def test_rows_are_placed_where_some_rows_are():
    rows, truth = rows_of()
    base = dp.NormalInverseGamma.from_data(rows)
    state = state_of(rows, np.zeros(N, dtype=np.int64), PRIORS["crp"], base)
    members = [np.flatnonzero(truth == k)[:100] for k in range(4)]
    rng = np.random.default_rng(3)
    place_rows(rng, state, members, 1)
    assert np.mean(canonical_labels(state.labels())[0] == canonical_labels(truth)[0]) > 0.999
    check_state(state, PRIORS["crp"], rows, "NormalInverseGamma", base.parameters)
    place_rows(rng, state, [*members[:3], members[0][:2]], 1)
    assert state.n_clusters <= 4
    assert state.cluster_sizes.min() > 0
    check_state(state, PRIORS["crp"], rows, "NormalInverseGamma", base.parameters)


def test_weights_of_placed_rows_follow_those_given():
    """Where clusters are alike, rows go to each in proportion to the rows given of it."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(N, 1))
    base = dp.NormalInverseGamma(0.0, 1e6, 1e6, 1e6)
    state = state_of(rows, np.zeros(N, dtype=np.int64), PRIORS["crp"], base)
    chosen = rng.permutation(N)
    shares = []
    for _ in range(40):
        place_rows(rng, state, [chosen[:300], chosen[300:400]], 1)
        shares.append(np.mean(state.labels() == state.labels()[chosen[0]]))
    # Of Dirichlet(300, 100), whichever of the two the first row is in.
    shares = np.maximum(shares, 1 - np.array(shares))
    assert np.mean(shares) == pytest.approx(0.75, abs=4 * np.std(shares) / np.sqrt(40))
    assert 0.4 < np.std(shares) / np.sqrt(0.75 * 0.25 / 401) < 1.6


def test_what_is_found_does_not_depend_on_threads():
    rows, _ = rows_of()
    found = []
    for threads in (1, 3):
        state = state_of(rows, np.zeros(N, dtype=np.int64), PRIORS["crp"])
        state, _ = Schedule(Options(threads=threads), 60).draw(np.random.default_rng(5), state, True)
        found.append(state.labels())
    np.testing.assert_array_equal(*found)


def test_where_there_is_none():
    rows, _ = rows_of(ROWS_FOR_PART - 1)
    assert not part_search.has_part(state_of(rows, np.zeros(len(rows), dtype=np.int64), PRIORS["crp"]))
    rows, _ = rows_of()
    state = state_of(rows, np.zeros(N, dtype=np.int64), PRIORS["crp"])
    assert part_search.has_part(state)
    # Missing entries that are drawn belong to all rows.
    state.tables[0].set_absent(np.zeros(rows.shape, dtype=bool))
    assert not part_search.has_part(state)
    # Without leader sweeps, the rows are not placed at once either.
    own = state_of(rows, np.zeros(N, dtype=np.int64), PRIORS["crp"])
    schedule = Schedule(Options(threads=1, leader_sweeps=0), 60)
    schedule.draw(np.random.default_rng(1), own, True)
    assert schedule.search_left > 2
