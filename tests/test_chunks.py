"""Rows in chunks: partitions before and after, against enumeration, with few of the rows at hand."""

import chunked
import exact
import numpy as np
import pytest
from test_leader_sweep import CASES, PRIORS, posterior, view_of

from pymc_dpgmm.chunks.partition import ChunkedPartition, Scheme
from pymc_dpgmm.partitions import canonical_labels

# Five rows in chunks of two and of three.
STARTS = [0, 2]
SETS = [("niw", "crp"), ("nig", "pitman-yor"), ("poisson", "finite"), ("categorical", "mfm")]
SCHEMES = {
    "pass alone": Scheme(0, 0, 0, 0, 1),
    "births and deaths": Scheme(3, 0, 0, 0, 1),
    "two rows scanned": Scheme(0, 2, 0, 0, 2),
    "small clusters": Scheme(0, 0, 4, 0, 3),
    "all of it": Scheme(2, 2, 2, 0, 2),
    "all rows scanned": Scheme(2, None, 2, 2, 1),
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
    for t, start in enumerate(rng.choice(len(p), size=n_starts, p=p)):
        chunked.begin_at(partition, np.asarray(CASES[case][2], dtype=float), partitions[start])
        for _ in range(n_draws):
            partition.draw(rng, PRIORS[prior][0], scheme)
        found[t] = rows.labels(partition)
        assert np.array_equal(np.sort(np.unique(found[t], return_counts=True)[1]), np.sort(partition.sizes))
    return exact.codes(np.array([canonical_labels(f)[0] for f in found])), partitions, p


FEW = dict(zip(SETS, ["all of it", "small clusters", "births and deaths", "all rows scanned"], strict=True))


@pytest.mark.parametrize(("case", "prior"), SETS)
def test_draws_leave_the_posterior_invariant(case, prior):
    exact.assert_matches(*after_draws(case, prior, SCHEMES[FEW[case, prior]], 1_500))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("case", "prior"), SETS)
def test_draws_leave_the_posterior_invariant_in_many_draws(case, prior, scheme):
    exact.assert_matches(*after_draws(case, prior, SCHEMES[scheme], 20_000))
