"""Scans by blocks: partition frequencies, bookkeeping, independence of the number of threads."""

import exact
import numpy as np
import pytest
from test_split_merge import BASES, FIVE, NIW, check_state, state_at

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES
from pymc_dpgmm.kernels import block_scan as bs
from pymc_dpgmm.kernels.block_scan import block_scan
from pymc_dpgmm.kernels.sweep import sweep
from pymc_dpgmm.partitions import chinese_restaurant, draw_partition


def draw_codes(rows, family, base, alpha, n_blocks, tile, n_draws):
    state = state_at(np.zeros(len(rows)), rows, family, base)
    state.set_prior(chinese_restaurant(alpha))
    rng, labels = np.random.default_rng(1), np.empty((n_draws, len(rows)), dtype=np.int64)
    for t in range(n_draws):
        block_scan(rng, state, 1, n_blocks, tile)
        labels[t] = state.labels()
    return exact.codes(labels)


@pytest.mark.parametrize(
    ("n_blocks", "tile", "n_draws"),
    [
        (3, 2, 50_000),
        *(pytest.param(b, t, 400_000, marks=pytest.mark.slow) for b, t in ((3, 2), (1, 1), (2, 1), (20, 1))),
    ],
)
@pytest.mark.parametrize("name", ["nig_crp", pytest.param("niw_crp", marks=pytest.mark.slow)])
def test_partition_frequencies(name, n_blocks, tile, n_draws):
    given = exact.reference(name)
    base = dict(given["base_measure"])
    family = base.pop("family")
    rows, alpha = np.array(given["y"]), given["partition_prior"]["alpha"]
    codes = draw_codes(rows, family, base, alpha, n_blocks, tile, n_draws)
    exact.assert_matches(codes, exact.partitions(len(rows)), np.array(given["posterior"]))


@pytest.mark.slow
def test_duplicated_rows_and_close_clusters():
    rows = np.repeat(FIVE[:4], 2, axis=0)[:7] * 0.4
    all_labels = exact.partitions(7)
    p = exact.posterior(all_labels, rows, exact.LOG_MARGINALS["NormalInverseWishart"], 2.5, **NIW)
    exact.assert_matches(draw_codes(rows, "NormalInverseWishart", NIW, 2.5, 3, 1, 400_000), all_labels, p)


@pytest.mark.slow
def test_a_ratio_without_the_proposals_is_seen(monkeypatch):
    given = exact.reference("niw_crp")
    base = dict(given["base_measure"])
    family = base.pop("family")
    rows, alpha = np.array(given["y"]), given["partition_prior"]["alpha"]

    class Forgetful(bs.Plan):
        def propose(self, threads, state, b):
            super().propose(threads, state, b)
            self.log_odds[:] = 0.0

    monkeypatch.setattr(bs, "Plan", Forgetful)
    codes = draw_codes(rows, family, base, alpha, 2, 1, n_draws=50_000)
    with pytest.raises(AssertionError, match="total variation"):
        exact.assert_matches(codes, exact.partitions(len(rows)), np.array(given["posterior"]))


@pytest.mark.parametrize("family", [*BASES, None])
@pytest.mark.parametrize("start", ["together", "apart"])
def test_bookkeeping(family, start):
    """Any number of threads gives the same state."""
    n, alpha = 400, 30.0
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(n, 2)) + 6.0 * rng.integers(3, size=(n, 1))
    base = BASES.get(family, {})
    labels = np.zeros(n) if start == "together" else np.arange(n)
    ends = []
    for threads in (1, 2, 5):
        rng = np.random.default_rng(7)
        state = state_at(labels, rows, family, base)
        state.set_prior(chinese_restaurant(alpha))
        for _ in range(10):
            n_moved = block_scan(rng, state, threads, n_blocks=4, tile=8)
            assert 0 <= n_moved <= n
            check_state(state, chinese_restaurant(alpha), rows, family, base)
        ends.append(state.labels())
    assert all(np.array_equal(end, ends[0]) for end in ends)
    assert len(np.unique(ends[0])) > 8


@pytest.mark.parametrize(("family", "kind"), [*((f, "blocks") for f in BASES), (None, "blocks"), (None, "runs")])
def test_many_rows_keep_their_prior(family, kind):
    """Labels and rows drawn together from the prior: scans leave the labels' prior moments where they are."""
    n, alpha, replicates = 20_000, 5.0, 80
    rng = np.random.default_rng(5)
    base = BASES.get(family, {})
    seen = []
    for _ in range(replicates):
        labels = draw_partition(rng, chinese_restaurant(alpha), n)
        rows = np.zeros((n, 0))
        if base:
            params = getattr(dp, family)(**base).numbers(2)
            rows = FAMILIES[family].draw_rows(rng, params, labels, None)
        state = state_at(labels, rows, family, base)
        state.set_prior(chinese_restaurant(alpha))
        if kind == "blocks":
            block_scan(rng, state, 2)
            block_scan(rng, state, 2)
        else:
            sweep(rng, state, 2, 1, 0, 0)
        sizes = state.cluster_sizes
        seen.append((len(sizes), (sizes == 1).sum(), np.sum((sizes / n) ** 2)))
    # Means of the number of clusters, of clusters of one row (Ewens 1972), and of the chance that two rows share.
    expected = [
        np.sum(alpha / (alpha + np.arange(n))),
        n * alpha / (n - 1 + alpha),
        (n + n * (n - 1) / (1 + alpha)) / n**2,
    ]
    errors = np.std(seen, axis=0, ddof=1) / np.sqrt(replicates)
    assert np.all(np.abs(np.mean(seen, axis=0) - expected) < 4 * errors)
