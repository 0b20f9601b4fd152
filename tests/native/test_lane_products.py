"""Products of rows and triangles in vector lanes, beside NumPy, and rows weighed at once, beside rows alone."""

import numpy as np
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.families.shared.moments import ROWS_AT_ONCE, gather_scatter
from pymc_dpgmm.native.compiled import FLOATS, INT, INTS, NOTHING, address_of, c_function, shifted
from pymc_dpgmm.native.lane_products import add_outer_products, squared_distances
from pymc_dpgmm.native.lanes import LANES
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.views import weigh, weigh_rows
from pymc_dpgmm.sampler.tuning.search import log_sum_over_labellings

COLUMNS = [1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 50]


@c_function(NOTHING(FLOATS, FLOATS, FLOATS, INT, FLOATS))
def distances_of_lanes(factor, shift, columns, d, out):
    squared_distances(factor, shift, columns, d, out)


@c_function(NOTHING(FLOATS, FLOATS, INT, INT))
def add_products_of_rows(triangle, rows, n_rows, d):
    add_outer_products(triangle, rows, n_rows, d)


@c_function(INT(INT, INT, FLOATS, FLOATS, FLOATS, INTS, INT, FLOATS))
def gather_at_once(n, d, mean, scatter, data, members, m, scratch):
    return gather_scatter(float(n), d, mean, scatter, data, d, members, m, scratch)


@c_function(NOTHING(INTS, INTS, INT, INT, INT, FLOATS, FLOATS))
def weigh_both_ways(head, rows, n_rows, m, stride, at_once, alone):
    s = memory_at(head)
    for t in range(n_rows):
        s.owns[t] = s.slots[rows[t]]
    weigh_rows(s, rows, n_rows, s.order, m, s.owns, stride, at_once)
    for t in range(n_rows):
        weigh(s, rows[t], s.order, m, s.slots[rows[t]], shifted(alone, t * m))


def addresses(*arrays):
    return [address_of(array) for array in arrays]


@pytest.mark.parametrize("d", COLUMNS)
def test_distances_of_rows_in_lanes(d):
    rng = np.random.default_rng(d)
    factor, shift, rows = np.tril(rng.normal(size=(d, d))), rng.normal(size=d), rng.normal(size=(LANES, d))
    packed, columns, found = factor[np.tril_indices(d)], np.ascontiguousarray(rows.T), np.full(LANES, np.nan)
    first, second, third = addresses(packed, shift, columns)
    distances_of_lanes(first, second, third, d, address_of(found))
    np.testing.assert_allclose(found, np.sum((rows @ factor.T - shift) ** 2, axis=1), rtol=1e-12)


@pytest.mark.parametrize("n_rows", [1, 2, 9, 30])
@pytest.mark.parametrize("d", COLUMNS)
def test_outer_products_of_rows(d, n_rows):
    """Nothing is written behind the triangle."""
    rng = np.random.default_rng([d, n_rows])
    rows, before = rng.normal(size=(n_rows, d)), rng.normal(size=d * (d + 1) // 2 + LANES)
    found = before.copy()
    add_products_of_rows(*addresses(found, rows), n_rows, d)
    added = (rows.T @ rows)[np.tril_indices(d)]
    np.testing.assert_allclose(found[:-LANES], before[:-LANES] + added, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found[-LANES:], before[-LANES:])


@pytest.mark.parametrize("m", [1, 5, ROWS_AT_ONCE, ROWS_AT_ONCE + 3, 3 * ROWS_AT_ONCE])
@pytest.mark.parametrize("n", [0, 1, 40])
@pytest.mark.parametrize("d", [8, 11, 24])
def test_rows_that_join_at_once(d, n, m):
    rng = np.random.default_rng([d, n, m])
    rows, members = 1e3 + rng.normal(size=(n + m, d)), rng.permutation(m) + n
    lower = np.tril_indices(d)

    def sums(own):
        mean = own.mean(axis=0) if len(own) else np.zeros(d)
        return mean, ((own - mean).T @ (own - mean))[lower]

    (mean, scatter), (whole_mean, whole_scatter) = sums(rows[:n]), sums(rows)
    scratch = np.full((ROWS_AT_ONCE + 1) * d, np.nan)
    assert gather_at_once(n, d, *addresses(mean, scatter, rows, members), m, address_of(scratch)) == m
    np.testing.assert_allclose(mean, whole_mean, rtol=1e-12)
    np.testing.assert_allclose(scatter, whole_scatter, rtol=1e-9, atol=1e-8)


def some_state(d, base, n=90, n_clusters=12):
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(n, d)) + rng.normal(size=(n_clusters, d))[rng.integers(n_clusters, size=n)]
    measure = {
        "niw": lambda: dp.NormalInverseWishart(0.1, 0.3, d + 1.5, np.eye(d) * 0.5),
        "shared": lambda: dp.SharedCovariance(0.1, 0.3, np.eye(d) * 0.5 + 0.1),
    }[base]()
    # One cluster of a single row: alone, it has to leave before it can be weighed.
    labels = np.r_[0, rng.integers(1, n_clusters, size=n - 1)]
    state = State([View(measure.family, measure.numbers(d), rows)], labels)
    state.set_prior(chinese_restaurant(0.7))
    state.use(rng)
    return state


@pytest.mark.parametrize("n_rows", [1, 2, 3, 7, 8, 19, 32])
@pytest.mark.parametrize("base", ["niw", "shared"])
@pytest.mark.parametrize("d", [2, 3, 5, 9, 20])
def test_rows_weighed_at_once(d, base, n_rows):
    """Each row's own cluster is weighed without the row."""
    state = some_state(d, base)
    m = state.n_clusters if n_rows <= LANES else 2
    rows = np.r_[0, 1 + np.random.default_rng(n_rows).permutation(state.n - 1)[: n_rows - 1]]
    at_once, alone = np.zeros((m, n_rows)), np.zeros((n_rows, m))
    weigh_both_ways(state.address, address_of(rows), n_rows, m, n_rows, *addresses(at_once, alone))
    assert np.isnan(alone).sum() == 1
    np.testing.assert_allclose(at_once.T, alone, rtol=1e-10)


@pytest.mark.parametrize("d", [1, 2, 7])
def test_sum_over_labellings_of_rows_in_lanes(d):
    """Of a number of rows that is no multiple of the lanes."""
    state = some_state(d, "niw")
    table = state.tables[0]
    k, sizes = state.n_clusters, state.sizes[state.order[: state.n_clusters]]
    weights = np.array([table.log_predictives(int(slot)) for slot in state.order[:k]]).T + np.log(sizes)
    log_p = weights - np.logaddexp.reduce(weights, axis=1)[:, None]
    own = log_p[np.arange(state.n), state.place[state.slots]]
    merit, doubt = log_sum_over_labellings(state)
    places = state.place[state.slots]
    overlap = np.array([(log_p - own[:, None])[places == q].sum(axis=0) for q in range(k)])
    swapped = np.triu(np.exp(np.minimum(overlap + overlap.T, 0.0)), k=1)
    log_relabelled = np.log1p(swapped.sum(axis=1)).sum()
    assert merit == pytest.approx(state.log_joint() - own.sum() - log_relabelled, rel=1e-12)
    np.testing.assert_allclose(doubt, [-own[places == q].mean() for q in range(k)], rtol=1e-9, atol=1e-12)
