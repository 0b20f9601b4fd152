"""Priors on partitions and labels."""

import exact
import numpy as np
import pytest

from pymc_dpgmm.partitions import (
    canonical_labels,
    chinese_restaurant,
    cluster_sizes,
    draw_partition,
    draw_start,
    log_eppf,
    log_seat,
    log_seat_new,
)

ALPHA = 1.7


def test_eppf_sums_to_one_and_equals_the_closed_form():
    prior = chinese_restaurant(ALPHA)
    logs = []
    for labels in exact.partitions(7):
        sizes = cluster_sizes(labels)
        logs.append(log_eppf(prior, sizes, len(sizes)))
        assert logs[-1] == pytest.approx(exact.log_eppf(labels, ALPHA), rel=1e-12)
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-12)


def test_seating_weights_build_the_eppf():
    prior = chinese_restaurant(ALPHA)
    for labels in exact.partitions(6):
        total = 0.0
        for i, label in enumerate(labels):
            before = labels[:i]
            size = (before == label).sum()
            opened = len(np.unique(before))
            weights = [np.exp(log_seat(prior, (before == k).sum())) for k in range(opened)]
            weights.append(np.exp(log_seat_new(prior, opened)))
            chosen = weights[label] if size else weights[-1]
            total += np.log(chosen / sum(weights))
        assert total == pytest.approx(exact.log_eppf(labels, ALPHA), rel=1e-12)


def test_crp_draws_follow_the_eppf():
    rng = np.random.default_rng(2)
    all_labels = exact.partitions(5)
    p = np.exp([exact.log_eppf(labels, ALPHA) for labels in all_labels])
    draws = np.array([draw_partition(rng, chinese_restaurant(ALPHA), 5) for _ in range(100_000)])
    distance = exact.total_variation(exact.frequencies(exact.codes(draws), all_labels), p)
    assert distance < exact.total_variation_bound(p, len(draws))


def test_canonical_labels():
    canonical, n_clusters = canonical_labels(np.array([4, 4, 0, 3, 0]))
    assert canonical.tolist() == [0, 0, 1, 2, 1]
    assert n_clusters == 3
    assert cluster_sizes(np.array([4, 4, 0, 3, 0])).tolist() == [2, 2, 1]


@pytest.mark.parametrize("bad", [[0, 5, 1, 1, 1], [0, -1, 1, 1, 1]])
def test_labels_outside_the_range(bad):
    assert len(cluster_sizes(np.array(bad))) == 0
    with pytest.raises(ValueError, match=r"0\.\.n-1"):
        canonical_labels(np.array(bad))


@pytest.mark.parametrize("n", [1, 3, 500])
def test_starts_are_spread(n):
    counts = [draw_start(np.random.default_rng(seed), n).max() + 1 for seed in range(300)]
    assert min(counts) == 1
    assert max(counts) <= min(n, 50)
    if n == 500:
        assert max(counts) > 40
        assert 5 < np.median(counts) < 10
