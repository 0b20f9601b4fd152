"""Point segmentations beside all segmentations, with the variation of information by its definition."""

import itertools

import numpy as np
import pytest

from pymc_dpgmm.posterior.arrays.segmentation import MOST_PLACES, places_of_changes, point_segmentation


def variation_of_information(labels, others):
    """In bits, by the joint distribution of two labels of a row."""
    joint = np.zeros((labels.max() + 1, others.max() + 1))
    np.add.at(joint, (labels, others), 1.0 / len(labels))

    def entropy(p):
        p = p[p > 0]
        return -np.sum(p * np.log2(p))

    return 2.0 * entropy(joint.ravel()) - entropy(joint.sum(axis=1)) - entropy(joint.sum(axis=0))


def expected_loss(begins, draws):
    return np.mean([variation_of_information(np.cumsum(begins) - 1, np.cumsum(own) - 1) for own in draws])


@pytest.mark.parametrize("seed", range(12))
def test_no_segmentation_has_a_smaller_expected_loss(seed):
    rng = np.random.default_rng(seed)
    n = 9
    draws = rng.random((15, n)) < rng.dirichlet(np.full(n, 0.3)) * rng.integers(1, 5)
    draws[:, 0] = True
    found = point_segmentation(draws, n)
    assert found[0]
    losses = [
        expected_loss(np.array([True, *chosen]), draws)
        for chosen in itertools.product([False, True], repeat=n - 1)
    ]
    assert expected_loss(found, draws) == pytest.approx(min(losses), abs=1e-12)


def test_sequences_add_up():
    """Of two sequences each one alone is divided as well as possible, by the number of rows of both."""
    rng = np.random.default_rng(3)
    draws = rng.random((20, 8)) < 0.3
    draws[:, [0, 3]] = True
    found = np.concatenate([point_segmentation(draws[:, :3], 8), point_segmentation(draws[:, 3:], 8)])
    losses = []
    for chosen in itertools.product([False, True], repeat=6):
        begins = np.array([True, *chosen[:2], True, *chosen[2:]])
        losses.append(expected_loss(begins, draws))
    assert expected_loss(found, draws) == pytest.approx(min(losses), abs=1e-12)


def test_places_are_those_where_draws_change():
    rng = np.random.default_rng(0)
    share = rng.random(3_000)
    draws = rng.random((50, 3_000)) < share
    places = places_of_changes(draws)
    assert len(places) == MOST_PLACES
    assert places[0] == 0
    assert share[places[1:]].min() > 0.4
