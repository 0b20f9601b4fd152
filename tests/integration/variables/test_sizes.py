"""The sizes of clusters in a graph: counted by compiled code, or kept in Python where there are many labels."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_dpgmm.integration.hooks.backends import MANY_LABELS
from pymc_dpgmm.integration.variables.operations import partition_sizes
from pymc_dpgmm.partitions.labels import cluster_sizes


@pytest.mark.parametrize("n", [50, MANY_LABELS])
def test_sizes_follow_the_labels(n):
    """In order of first appearance, after every change of a label, and none where a label is out of range."""
    labels = pt.tensor("labels", shape=(n,), dtype="int16")
    sizes = pytensor.function([labels], partition_sizes(labels), mode="NUMBA")
    rng = np.random.default_rng(0)
    given = rng.integers(5, size=n).astype(np.int16)
    for _ in range(4):
        np.testing.assert_array_equal(sizes(given), cluster_sizes(given))
        np.testing.assert_array_equal(sizes(given), sizes(given.copy()))
        _, first = np.unique(given, return_index=True)
        np.testing.assert_array_equal(sizes(given), np.bincount(given)[given[np.sort(first)]])
        given[rng.integers(n)] = 7
    given[3] = -1
    assert len(sizes(given)) == 0
