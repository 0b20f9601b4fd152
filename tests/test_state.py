"""The kernel's bookkeeping after many scans: rings, sizes, canonical names, and caches that equal fresh ones."""

from itertools import pairwise

import numpy as np
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.kernels.gibbs import gibbs_scan, random_order
from pymc_dpgmm.kernels.state import count_clusters, initial_state, log_joint, members
from pymc_dpgmm.partitions import canonical_labels, chinese_restaurant

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
    state = initial_state([View(base.family, params, rows)], labels)
    rng = np.random.default_rng(0)
    counts = set()
    for scan in range(60):
        state, n_moved = gibbs_scan(rng, prior, state, random_order(rng, len(state.slots)))
        assert 0 <= n_moved <= n
        n_clusters = count_clusters(state)
        counts.add(n_clusters)
        labels = state.slots - 1
        assert np.array_equal(canonical_labels(labels)[0], labels)
        assert n_clusters == labels.max() + 1
        assert np.array_equal(state.sizes[1 : n_clusters + 1], np.bincount(labels))
        assert not state.sizes[0]
        assert not state.sizes[n_clusters + 1 :].any()
        assert np.array_equal(state.stats.size[1 : n_clusters + 1], np.bincount(labels))
        for k in range(state.sizes.shape[0]):
            own = members(state, k)
            assert np.array_equal(np.sort(own), np.flatnonzero(labels == k - 1))
            ring = n + k
            chain = [ring, *own, ring]
            assert all(state.following[a] == b for a, b in pairwise(chain))
            assert all(state.preceding[b] == a for a, b in pairwise(chain))
        if scan % 10 == 9:
            fresh = initial_state([View(base.family, params, rows)], labels)
            assert log_joint(prior, state) == pytest.approx(log_joint(prior, fresh), rel=1e-9, abs=1e-9)
            np.testing.assert_allclose(state.prior_predictive, fresh.prior_predictive)
    if case == "singletons":
        assert max(counts) > 250
    if case == "one-row":
        assert counts == {1}
