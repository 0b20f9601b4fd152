"""The kernel's bookkeeping after many scans: rings, sizes, canonical names, and caches that equal fresh ones."""

import numpy as np
import pytest
from small_states import check_bookkeeping

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.moves.sweep import gibbs_scan
from pymc_dpgmm.sampler.state.all_clusters import refit_all
from pymc_dpgmm.sampler.state.state import State

RNG = np.random.default_rng(4)
CASES = {
    # alpha so large that nearly every row is alone: slots grow from 9 to hundreds.
    "singletons": (RNG.normal(size=(300, 2)), dp.NormalInverseWishart(0.0, 1.0, 4.0, np.eye(2)), 1e4),
    # A prior scale far below the rows' distances: densities without a row and downdates are often refused.
    "tiny-psi": (
        RNG.normal(size=(60, 2)) * 1e3,
        dp.NormalInverseWishart(0.0, 0.01, 2.5, 1e-3 * np.eye(2)),
        3.0,
    ),
    "tiny-b": (RNG.normal(size=(60, 3)) * 1e3, dp.NormalInverseGamma(0.0, 0.01, 0.5, 1e-3), 3.0),
    "one-row": (np.array([[1.0, 2.0]]), dp.NormalInverseWishart(0.0, 1.0, 4.0, np.eye(2)), 1.0),
    "two-rows": (np.array([[1.0, 2.0], [1.1, 2.0]]), dp.NormalInverseWishart(0.0, 1.0, 4.0, np.eye(2)), 1.0),
    "overlapping": (RNG.normal(size=(200, 2)), dp.NormalInverseWishart(0.0, 0.5, 4.0, np.eye(2)), 5.0),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("start", ["together", "apart"])
def test_bookkeeping(case, start):
    rows, base, alpha = CASES[case]
    n, d = rows.shape
    params = base.numbers(d)
    prior = chinese_restaurant(alpha)
    labels = np.zeros(n, dtype=np.int64) if start == "together" else np.arange(n)
    state = State([View(base.family, params, rows)], labels)
    state.set_prior(prior)
    rng = np.random.default_rng(0)
    counts = set()
    for scan in range(60):
        n_moved = gibbs_scan(rng, state, rng.permutation(n))
        assert 0 <= n_moved <= n
        counts.add(state.n_clusters)
        check_bookkeeping(state)
        if scan % 10 == 9:
            fresh = State([View(base.family, params, rows)], state.labels())
            fresh.set_prior(prior)
            assert state.log_joint() == pytest.approx(fresh.log_joint(), rel=1e-9, abs=1e-9)
            np.testing.assert_allclose(state.prior_predictive, fresh.prior_predictive)
    if case == "singletons":
        assert max(counts) > 250
    if case == "one-row":
        assert counts == {1}


@pytest.mark.parametrize("far", [80.0, 3e7])
def test_lost_digits_do_not_outlive_a_change_of_scale(far):
    """Digits that a wide prior scale hid, after an outlier has left, are there when the scale is narrow."""
    rows = 1e-3 * np.random.default_rng(1).normal(size=(41, 2))
    rows[40] = far
    wide, narrow = (dp.NormalInverseWishart(0.0, 0.1, 4.0, scale * np.eye(2)) for scale in (far**2, 1e-6))
    views = [View(base.family, base.numbers(2), rows) for base in (wide, narrow)]
    labels = np.append(np.zeros(40, dtype=np.int64), 1)
    state = State(views[:1], labels)
    state.set_prior(chinese_restaurant(1.0))
    slot = int(state.slots[0])
    assert not state.tables[0].change(40, slot, 1.0)
    assert not state.tables[0].change(40, slot, -1.0)
    state.set_params([views[1].params])
    fresh = State(views[1:], labels)
    fresh.set_prior(chinese_restaurant(1.0))
    assert state.log_joint() == pytest.approx(fresh.log_joint(), abs=1e-9)


@pytest.mark.parametrize("has_own_rows", [False, True])
def test_a_copy_leaves_its_original_as_it_is(has_own_rows):
    """Whatever the copy is told: other parameters, other rows, other clusters."""
    rows, base, alpha = CASES["overlapping"]
    state = State([View(base.family, base.numbers(2), rows)], np.arange(len(rows)) % 3)
    state.set_prior(chinese_restaurant(alpha))
    if has_own_rows:
        state.make_own_rows(0)
    before = state.log_joint(), state.prior_predictive.copy(), state.tables[0].array.copy(), state.labels()
    copy, other = state.copy(), dp.NormalInverseWishart(1.0, 2.0, 9.0, 5.0 * np.eye(2))
    copy.set_params([other.numbers(2)])
    if has_own_rows:
        copy.take_rows(0, rows + 1.0)
    gibbs_scan(np.random.default_rng(1), copy, np.arange(len(rows)))
    if has_own_rows:
        # From the rows, which are its own.
        refit_all(state.address)
    after = state.log_joint(), state.prior_predictive, state.tables[0].array, state.labels()
    for old, new in zip(before, after, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-12, atol=1e-12)
