"""Rows in chunks: partitions before and after, against enumeration, with few of the rows at hand."""

import chunked
import exact
import numpy as np
import pytest
from slowly import rest_slow
from small_posteriors import CASES, PRIORS, posterior, view_of

import pymc_dpgmm as dp
from pymc_dpgmm.chunked import partition as chunks_partition
from pymc_dpgmm.chunked.partition import ChunkedPartition, Scheme
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.state.state import State

# Five rows in chunks of two and of three.
STARTS = [0, 2]
SETS = [("niw", "crp"), ("nig", "pitman-yor"), ("poisson", "finite"), ("categorical", "mfm")]
SCHEMES = {
    "pass alone": Scheme(0, 0, 0, 0, 1, 0),
    "births and deaths": Scheme(3, 0, 0, 0, 1, 0),
    "two rows scanned": Scheme(0, 2, 0, 0, 2, 0),
    "small clusters": Scheme(0, 0, 4, 0, 3, 0),
    "carvings of few rows": Scheme(0, 1, 0, 0, 1, 4, 1),
    "carvings": Scheme(0, 3, 0, 0, 2, 4, 1),
    "all of it": Scheme(2, 2, 2, 0, 2, 2, 1),
    "all rows scanned": Scheme(2, None, 2, 2, 1, 2, 1),
}


def partition_of(case):
    view = view_of(case)
    values = np.asarray(view.values, dtype=float)
    _, origin = view.family.represent(view.params, values)
    rows = chunked.RowsInMemory(values, STARTS)
    return ChunkedPartition(rows, view.family, view.params, None if origin is None else origin + 0.3), rows


def after_draws(case, prior, scheme, n_starts, n_draws=2, seed=1):
    """Start at partitions drawn from the posterior, and return the codes of what they have become."""
    partitions, p = posterior([case], prior)
    rng, found = np.random.default_rng(seed), np.empty((n_starts, 5), dtype=np.int64)
    partition, rows = partition_of(case)
    sums = [chunked.sums_of(partition, np.asarray(CASES[case][2], dtype=float), own) for own in partitions]
    for t, start in enumerate(rng.choice(len(p), size=n_starts, p=p)):
        chunked.begin_at(partition, sums[start], partitions[start])
        for _ in range(n_draws):
            partition.draw(rng, PRIORS[prior][0], scheme)
        found[t] = rows.labels(partition)
        assert np.array_equal(np.sort(np.bincount(found[t])), np.sort(partition.sizes))
    return exact.codes(np.array([canonical_labels(f)[0] for f in found])), partitions, p


FEW = dict(zip(SETS, ["all of it", "carvings", "births and deaths", "all rows scanned"], strict=True))


@pytest.mark.parametrize(("case", "prior"), rest_slow(SETS))
def test_draws_leave_the_posterior_invariant(case, prior):
    """Draws of rows in chunks, every scheme of what comes back, against enumeration."""
    exact.assert_matches(*after_draws(case, prior, SCHEMES[FEW[case, prior]], 1_000))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("case", "prior"), SETS)
def test_draws_leave_the_posterior_invariant_in_many_draws(case, prior, scheme):
    """The same with draws enough to see a small error, for all families and priors."""
    exact.assert_matches(*after_draws(case, prior, SCHEMES[scheme], 3_000, n_draws=3))


def many_rows(n=3_000):
    """Rows of a large cluster and a small one, in chunks, and a partition of them."""
    rng = np.random.default_rng(4)
    values = np.concatenate([rng.normal(size=(n - 40, 2)), rng.normal(2.5, 0.3, size=(40, 2))])
    values = rng.permutation(values)
    base = dp.NormalInverseWishart.from_data(values)
    rows = chunked.RowsInMemory(values, [0, 1_000, 1_500])
    _, origin = base.family.represent(base.numbers(2), values)
    return ChunkedPartition(rows, base.family, base.numbers(2), origin), rows, base, values


def test_sums_after_many_carvings_are_those_of_the_labels():
    partition, rows, base, values = many_rows()
    rng, prior, sizes = np.random.default_rng(1), chinese_restaurant(1.0), set()
    for _ in range(60):
        partition.draw(rng, prior, Scheme(n_scanned=600))
        sizes |= set(partition.sizes.tolist())
    # Of up to 1,024 rows, most clusters that come and go have more than births and scans make.
    assert any(20 < size < 1_000 for size in sizes)
    labels = rows.labels(partition)
    assert np.array_equal(np.sort(np.bincount(labels)), np.sort(partition.sizes))
    state = State([View(base.family, base.numbers(2), values)], labels)
    state.set_prior(prior)
    assert partition.log_joint(prior) == pytest.approx(state.log_joint(), rel=1e-10)


def test_rows_of_clusters_that_have_become_small_come_back_in_a_second_pass(monkeypatch):
    """What is expected of the sizes saves passes, and changes no draw."""
    found, passes = [], []
    for shrinks in (4, 0):
        monkeypatch.setattr(chunks_partition, "SHRINKS", shrinks)
        partition, rows, _, _ = many_rows()
        rng, run = np.random.default_rng(1), rows.run
        calls = []
        rows.run = lambda sent, run=run, calls=calls: calls.append(sent) or run(sent)
        for _ in range(20):
            partition.draw(rng, chinese_restaurant(1.0), Scheme(n_scanned=600))
        found.append(rows.labels(partition))
        passes.append(len(calls))
    assert np.array_equal(*found)
    assert passes[0] == 20 < passes[1]
