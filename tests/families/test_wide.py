"""The normal-inverse-Wishart family for wide data against that of sums, and against an enumeration."""

import exact
import numpy as np
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm import testing
from pymc_dpgmm.families import View
from pymc_dpgmm.families import wide_normal_inverse_wishart as wide
from pymc_dpgmm.families.shared.moments import ROWS_AT_ONCE
from pymc_dpgmm.partitions.priors import chinese_restaurant, log_eppf
from pymc_dpgmm.sampler.moves.sweep import sweep
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.state.marginal import MarginalLikelihood
from pymc_dpgmm.sampler.state.state import State

D = 32
RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(90, D)) * RNG.gamma(2.0, size=D) + 3.0 * RNG.normal(size=(3, D))[np.arange(90) % 3]
ROOT = RNG.normal(size=(D, D)) / np.sqrt(D)
BASE = dp.NormalInverseWishart(RNG.normal(size=D), 0.3, D + 1.5, ROOT @ ROOT.T + np.eye(D))
VIEW = View(BASE.family, BASE.numbers(D), ROWS)


def tables(n_slots):
    pair = ClusterTable(VIEW, n_slots, may_be_wide=True), ClusterTable(VIEW, n_slots)
    assert [table.family for table in pair] == [wide.FAMILY, BASE.family]
    return pair


def assert_same(pair, members, k):
    """Assert that slot ``k`` of both tables tells the same."""
    fast, slow = pair
    np.testing.assert_allclose(fast.log_evidence(k), slow.log_evidence(k), rtol=1e-11, atol=1e-11)
    outside = np.setdiff1d(np.arange(len(ROWS)), members)
    found, expected = (table.log_predictives(k)[outside] for table in pair)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    if len(members) > 1:
        found, expected = ([table.log_predictive_without(i, k) for i in members] for table in pair)
        # Where sums lose digits they say so; the pairs do not.
        known = np.isfinite(expected)
        np.testing.assert_allclose(np.array(found)[known], np.array(expected)[known], rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 7, D - 1, D, D + 1, 60, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 88])
def test_gathered(n):
    members = RNG.permutation(90)[:n]
    pair = tables(2)
    for table in pair:
        table.gather(1, members)
    assert_same(pair, members, 1)


@pytest.mark.parametrize(("n", "d"), [(64, D), (200, 64), (256, 64), (130, 128)])
def test_one_cluster_of_all_rows(n, d):
    """Many rows at once are gathered by another way, which clusters of few rows never take."""
    rows = np.random.default_rng(n).normal(size=(n, d))
    base = dp.NormalInverseWishart(np.zeros(d), 0.5, d + 2.0, np.eye(d))
    params, prior = base.numbers(d), chinese_restaurant(1.0)
    slow = MarginalLikelihood(base.family)
    state = State([View(base.family, params, rows)], np.zeros(n, dtype=np.int64))
    assert state.tables[0].is_wide
    state.set_prior(prior)
    # Splits gather rows into clusters that have some already.
    for n_sweeps in (0, 2):
        sweep(np.random.default_rng(1), state, n_sweeps, 1, 2, 4)
        labels = state.labels()
        wanted = log_eppf(prior, np.bincount(labels), labels.max() + 1) + slow.at(labels, rows, params).value()
        assert state.log_joint() == pytest.approx(wanted, rel=1e-11 if n_sweeps == 0 else 1e-10)


def test_random_walk():
    """Rows join and leave, the cluster growing past D rows and shrinking again."""
    pair = tables(2)
    rng = np.random.default_rng(0)
    members = []
    for table in pair:
        table.gather(1, np.array([], dtype=np.int64))
    for target in (20, D + 8, 5, 40, 2):
        for _ in range(200):
            grows = rng.random() < (0.75 if len(members) < target else 0.25)
            if grows and len(members) < 90:
                i = rng.choice(np.setdiff1d(np.arange(90), members))
                members.append(int(i))
            elif members:
                i = members.pop(rng.integers(len(members)))
            else:
                continue
            for table in pair:
                if table.change(int(i), 1, 1.0 if grows else -1.0):
                    table.gather(1, np.array(members))
        assert_same(pair, members, 1)


@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (10, 12), (20, 20), (5, 40), (40, 5), (40, 45)])
def test_merged(n, m):
    order = RNG.permutation(90)
    pair = tables(3)
    for table in pair:
        table.gather(1, order[:n])
        table.gather(2, order[n : n + m])
        table.merge(1, 2)
    assert_same(pair, order[: n + m], 1)


def test_a_chain_is_the_same():
    """The same random numbers move the same rows, whichever way the densities are computed."""
    found = []
    for may_be_wide in (True, False):
        state = State([VIEW._replace(values=0.5 * ROWS[:40])], np.arange(40) % 2)
        if not may_be_wide:
            state.tables[0].set_absent(np.zeros((40, D), dtype=bool))
            state.tables[0].absent = None
            state.relabel(np.arange(40) % 2)
        state.set_prior(chinese_restaurant(1.0))
        rng = np.random.default_rng(5)
        sweep(rng, state, 30, 1, 2, 4)
        found.append((state.labels(), state.log_joint()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-10)
    assert len(np.unique(found[0][0])) > 1


def test_partition_frequencies():
    rows = ROWS[:5] * 0.5
    view = VIEW._replace(values=rows)
    everything = testing.partitions(5)
    slow = ClusterTable(view, 2)

    def log_marginal(members):
        slow.gather(1, np.asarray(members, dtype=np.int64))
        return slow.log_evidence(1)

    log_prior = np.array([sum(np.log(np.arange(1, c)).sum() for c in np.bincount(p) if c) for p in everything])
    p = testing.normalized(log_prior + testing.log_likelihoods(everything, log_marginal))
    codes, _ = testing.draw_codes([view], chinese_restaurant(1.0), 300_000, n_scans=1, n_moves=(1, 2))
    exact.assert_matches(codes, everything, p)
    assert p.max() < 0.9


def test_few_columns_and_gaps_are_not_wide():
    few = ROWS[:, :3]
    base = dp.NormalInverseWishart.from_data(few)
    state = State([View(base.family, base.numbers(3), few)], np.zeros(90, dtype=np.int64))
    assert state.tables[0].family is BASE.family
    assert not wide.pays(5_000, 2_000)
    with_gaps = np.where(ROWS > 4.0, np.nan, ROWS)
    assert ClusterTable(VIEW._replace(values=with_gaps), 2, may_be_wide=True).family is BASE.family


@pytest.mark.parametrize("far", [0.0, 1e2, 1e5, 1e7])
@pytest.mark.parametrize("kappa", [1.0, 1e-5, 1e-8, 1e-12, 1e-16])
def test_a_vague_or_distant_prior_mean_costs_no_digits(kappa, far):
    params = VIEW.params._replace(kappa=kappa, mu=VIEW.params.mu + far * ROWS.std(axis=0))
    view = VIEW._replace(params=params)
    fast, slow = ClusterTable(view, 2, may_be_wide=True), ClusterTable(view, 2)
    members = RNG.permutation(90)[:20]
    for table in (fast, slow):
        table.gather(1, members[:10])
        for i in members[10:]:
            table.change(int(i), 1, 1.0)
    assert_same((fast, slow), members, 1)
    # A cluster whose last row leaves.
    for table in (fast, slow):
        table.gather(1, members[:1])
        if table.change(int(members[0]), 1, -1.0):
            table.gather(1, members[:0])
    np.testing.assert_allclose(fast.log_predictives(1), slow.log_predictives(1), rtol=1e-9)


def test_scales_that_the_support_takes_can_be_factorised():
    """Nearly singular ones, in columns of very different units."""
    rng = np.random.default_rng(0)
    taken = 0
    for _ in range(300):
        directions = np.linalg.qr(rng.normal(size=(D, D)))[0]
        units = 10.0 ** rng.uniform(-6, 6, size=D)
        psi = (directions * 10.0 ** rng.uniform(-16, 0, size=D)) @ directions.T * np.outer(units, units)
        params = VIEW.params._replace(psi=(psi + psi.T) / 2)
        if BASE.family.supports(params):
            taken += 1
            assert np.isfinite(wide.pairs(params, ROWS)).all()
    assert taken > 50
