"""Scans by blocks: partition frequencies, bookkeeping, independence of the number of threads."""

import exact
import numpy as np
import pytest
from numba import njit
from test_split_merge import BASES, FIVE, NIW, check_state, state_at

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES
from pymc_dpgmm.kernels.block_scan import (
    block_scan,
    fix_statistics,
    make_plan,
    propose,
    settle,
    sort_block,
    summarize_parts,
)
from pymc_dpgmm.kernels.schedule import MANY_ROWS, scan
from pymc_dpgmm.kernels.state import canonicalize, count_clusters
from pymc_dpgmm.partitions import chinese_restaurant, draw_partition


@njit
def one_scan(rng, prior, state, n_blocks, tile, forget_odds):
    """The parts of ``block_scan`` in a compiled loop, optionally with a factor of the ratio left out."""
    plan = make_plan(rng, state, n_blocks, tile)
    n_moved = 0
    for b in range(plan.ends.shape[0] - 1):
        in_order, begins = sort_block(state, plan, b)
        summarize_parts(state, plan, b, in_order, begins, 1, begins.shape[0] - 1)
    for b in range(plan.ends.shape[0] - 1):
        fix_statistics(state, plan, b)
        propose(prior, state, plan, plan.ends[b], plan.ends[b + 1])
        if forget_odds:
            plan.log_odds[:] = 0.0
        state, plan, moved = settle(rng, prior, state, plan, b)
        n_moved += moved
        if moved:
            in_order, begins = sort_block(state, plan, b)
            summarize_parts(state, plan, b, in_order, begins, 1, begins.shape[0] - 1)
    canonicalize(state)
    return state, n_moved


@njit
def run(rng, prior, state, n_blocks, tile, forget_odds, codes):
    n = state.slots.shape[0]
    for t in range(codes.shape[0]):
        state, _ = one_scan(rng, prior, state, n_blocks, tile, forget_odds)
        code = 0
        for i in range(n):
            code = code * n + state.slots[i] - 1
        codes[t] = code


def draw_codes(rows, family, base, alpha, n_blocks, tile, forget_odds=False, n_draws=1_000_000):
    codes = np.empty(n_draws, dtype=np.int64)
    state = state_at(np.zeros(len(rows)), rows, family, base)
    run(np.random.default_rng(1), chinese_restaurant(alpha), state, n_blocks, tile, forget_odds, codes)
    return codes


@pytest.mark.parametrize(
    ("n_blocks", "tile"), [(3, 2), *(pytest.param(b, 1, marks=pytest.mark.slow) for b in (1, 2, 20))]
)
@pytest.mark.parametrize("name", ["nig_crp", pytest.param("niw_crp", marks=pytest.mark.slow)])
def test_partition_frequencies(name, n_blocks, tile):
    given = exact.reference(name)
    base = dict(given["base_measure"])
    family = base.pop("family")
    rows, alpha = np.array(given["y"]), given["partition_prior"]["alpha"]
    codes = draw_codes(rows, family, base, alpha, n_blocks, tile)
    exact.assert_matches(codes, exact.partitions(len(rows)), np.array(given["posterior"]))


@pytest.mark.slow
def test_duplicated_rows_and_close_clusters():
    rows = np.repeat(FIVE[:4], 2, axis=0)[:7] * 0.4
    all_labels = exact.partitions(7)
    p = exact.posterior(all_labels, rows, exact.LOG_MARGINALS["NormalInverseWishart"], 2.5, **NIW)
    exact.assert_matches(draw_codes(rows, "NormalInverseWishart", NIW, 2.5, 3, 1), all_labels, p)


def test_a_ratio_without_the_proposals_is_seen():
    given = exact.reference("niw_crp")
    base = dict(given["base_measure"])
    family = base.pop("family")
    rows, alpha = np.array(given["y"]), given["partition_prior"]["alpha"]
    codes = draw_codes(rows, family, base, alpha, 2, 1, forget_odds=True, n_draws=200_000)
    with pytest.raises(AssertionError, match="total variation"):
        exact.assert_matches(codes, exact.partitions(len(rows)), np.array(given["posterior"]))


@pytest.mark.parametrize("family", [*BASES, "Unobserved"])
@pytest.mark.parametrize("start", ["together", "apart"])
def test_bookkeeping(family, start):
    """Any number of threads, and the compiled loop of this file, give the same canonical state."""
    n, alpha = 400, 30.0
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(n, 2)) + 6.0 * rng.integers(3, size=(n, 1))
    base = BASES.get(family, {})
    labels = np.zeros(n) if start == "together" else np.arange(n)
    if family == "Unobserved":
        rows = np.zeros((n, 0))
    ends = []
    for threads in (0, 1, 2, 5):
        rng = np.random.default_rng(7)
        state = state_at(labels, rows, family, base)
        for _ in range(10):
            if threads:
                state, n_moved = block_scan(rng, chinese_restaurant(alpha), state, threads, n_blocks=4, tile=8)
            else:
                state, n_moved = one_scan(rng, chinese_restaurant(alpha), state, 4, 8, False)
            assert 0 <= n_moved <= n
            check_state(state, chinese_restaurant(alpha), rows, family, base)
        ends.append(state.slots)
    assert all(np.array_equal(end, ends[0]) for end in ends)
    assert len(np.unique(ends[0])) > 8


@pytest.mark.parametrize("family", [*BASES, "Unobserved"])
def test_many_rows_keep_their_prior(family):
    """Labels and rows drawn together from the prior: scans leave the labels' prior moments where they are."""
    n, alpha, replicates = MANY_ROWS, 5.0, 80
    rng = np.random.default_rng(5)
    base = BASES.get(family, {})
    seen = []
    for _ in range(replicates):
        labels = draw_partition(rng, chinese_restaurant(alpha), n)
        rows = np.zeros((n, 0))
        if base:
            params = getattr(dp, family)(**base).numbers(2)
            rows = FAMILIES[family].draw_rows(rng, params, labels, None)
        state, _ = scan(rng, chinese_restaurant(alpha), state_at(labels, rows, family, base), 2, 2)
        sizes = state.sizes[1 : count_clusters(state) + 1]
        seen.append((len(sizes), (sizes == 1).sum(), np.sum((sizes / n) ** 2)))
    # Means of the number of clusters, of clusters of one row (Ewens 1972), and of the chance that two rows share.
    expected = [
        np.sum(alpha / (alpha + np.arange(n))),
        n * alpha / (n - 1 + alpha),
        (n + n * (n - 1) / (1 + alpha)) / n**2,
    ]
    errors = np.std(seen, axis=0, ddof=1) / np.sqrt(replicates)
    assert np.all(np.abs(np.mean(seen, axis=0) - expected) < 4 * errors)
