"""States of few rows, and checks of all that they keep."""

from itertools import pairwise

import numpy as np
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES, View
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.templates import SIZE


def check_bookkeeping(state):
    """Assert that lists, rings, sizes and tables of a state agree."""
    n, n_clusters = state.n, state.n_clusters
    in_use = state.order[:n_clusters]
    assert np.array_equal(np.sort(state.order), np.arange(1, state.capacity + 1))
    assert np.array_equal(state.place[state.order], np.arange(state.capacity))
    assert np.array_equal(np.sort(in_use), np.unique(state.slots))
    assert np.array_equal(state.sizes, np.bincount(state.slots, minlength=state.capacity + 1))
    for table in state.tables:
        if table.unit is None:
            assert np.array_equal(table.array[in_use, SIZE], state.sizes[in_use])
    for k in range(state.capacity + 1):
        ring, chain = n + k, [n + k]
        while len(chain) == 1 or chain[-1] != ring:
            chain.append(state.following[chain[-1]])
        assert np.array_equal(np.sort(chain[1:-1]), state.members(k))
        assert all(state.preceding[b] == a for a, b in pairwise(chain))


# Lopsided: two near rows, one beside them, one far off, and one between.
FIVE = np.array([[0.3, -0.1], [2.9, 3.3], [3.6, 2.4], [-4.0, 5.0], [0.9, 1.2]])
NIW = {"mu": [-1.0, 2.0], "kappa": 0.7, "nu": 2.3, "psi": [[0.5, 0.44], [0.44, 0.6]]}
NIG = {"mu": [0.5, -1.0], "kappa": [0.4, 1.7], "a": [0.8, 2.6], "b": [0.3, 1.1]}
BASES = {"NormalInverseWishart": NIW, "NormalInverseGamma": NIG}


def state_at(labels, rows, family, base):
    """State without data if no family is named."""
    views = []
    if family is not None:
        views = [View(FAMILIES[family], getattr(dp, family)(**base).numbers(rows.shape[1]), rows)]
    return State(views, np.asarray(labels, dtype=np.int64))


def check_state(state, prior, rows, family, base):
    check_bookkeeping(state)
    fresh = state_at(state.labels(), rows, family, base)
    fresh.set_prior(prior)
    assert state.log_joint() == pytest.approx(fresh.log_joint(), rel=1e-9, abs=1e-8)
