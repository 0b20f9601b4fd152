"""Scans look ahead, and draw what a scan in Python draws that weighs every row from scratch."""

import exact
import numpy as np
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import chinese_restaurant, pitman_yor
from pymc_dpgmm.sampler.moves.scans import scan_rows
from pymc_dpgmm.sampler.state.state import State

RNG = np.random.default_rng(42)
PAIRS = np.concatenate([RNG.normal(size=(14, 2)), RNG.normal(size=(9, 2)) + 1.5])
CASES = {
    "niw": (PAIRS, dp.NormalInverseWishart(0.2, 0.3, 3.5, np.eye(2) * 0.4), exact.niw_log_marginal),
    "nig": (PAIRS[:, :1], dp.NormalInverseGamma(0.0, 0.4, 1.5, 0.6), exact.nig_log_marginal),
    "bernoulli": (
        RNG.integers(2, size=(21, 3)).astype(float),
        dp.BetaBernoulli(0.7, 0.9),
        exact.beta_bernoulli_log_marginal,
    ),
}


def scan_in_python(rng, rows, order, labels, clusters, alpha, discount, log_marginal, base, metropolized):
    """Neal's Algorithm 3 word by word: ``clusters`` lists labels in the order in which they are chosen from."""

    def log_predictive(i, members):
        with_row = log_marginal(rows[[*members, i]], **base)
        return with_row - (log_marginal(rows[members], **base) if members else 0.0)

    for i in order:
        own = labels[i]
        others = {k: [j for j in range(len(rows)) if labels[j] == k and j != i] for k in clusters}
        n_others = sum(len(members) > 0 for members in others.values())
        opening = np.log(alpha + discount * n_others) + log_predictive(i, [])
        log_weights = [
            np.log(len(others[k]) - discount) + log_predictive(i, others[k]) if others[k] else opening
            for k in clusters
        ]
        if others[own]:
            log_weights.append(opening)
        w = np.exp(np.array(log_weights) - max(log_weights))
        p, place = w / w.sum(), clusters.index(own)
        if metropolized:
            p = w / (w.sum() - 0.9 * np.minimum(w, w[place]))
            p[place] = 0.0
            # The row stays where none of the others is chosen: the last of the choices.
            chosen = int(np.searchsorted(np.cumsum(p), rng.random(), side="right"))
            chosen = place if chosen == len(p) else chosen
        else:
            chosen = min(int(np.searchsorted(np.cumsum(p), rng.random(), side="right")), len(p) - 1)
        if chosen == len(clusters):
            clusters.append(max(clusters) + 1)
        labels[i] = clusters[chosen]
        if not others[own] and labels[i] != own:
            # The last one takes its place.
            last = clusters.pop()
            if last != own:
                clusters[clusters.index(own)] = last


@pytest.mark.parametrize("metropolized", [False, True])
@pytest.mark.parametrize("case", list(CASES))
def test_a_scan_in_python_draws_the_same(case, metropolized):
    rows, base, log_marginal = CASES[case]
    alpha, discount = 1.3, 0.2
    state = State([View(base.family, base.numbers(rows.shape[1]), rows)], np.arange(len(rows)) % 3)
    state.set_prior(pitman_yor(alpha, discount))
    labels, clusters = np.arange(len(rows)) % 3, [0, 1, 2]
    fast, slow, orders = (np.random.default_rng(seed) for seed in (7, 7, 8))
    n_moved = 0
    for _ in range(15):
        order = orders.permutation(len(rows))
        before = labels.copy()
        scan_in_python(
            slow, rows, order, labels, clusters, alpha, discount, log_marginal, base.parameters, metropolized
        )
        n_moved += int((labels != before).sum())
        state.run(fast, scan_rows, order.ctypes.data, len(order), int(metropolized))
        np.testing.assert_array_equal(
            state.labels(), canonical_labels(np.unique(labels, return_inverse=True)[1])[0]
        )
    assert n_moved > 50


def views_of(case):
    rng = np.random.default_rng(3)
    rows = np.concatenate([rng.normal(size=(150, 2)), rng.normal(size=(100, 2)) + 2.0])
    if case == "several views, one with units":
        base = dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
        unit = rng.integers(250, size=400)
        return [
            View(base.family, base.numbers(2), rows),
            View(base.family, base.numbers(1), rng.normal(size=(400, 1)) + (unit >= 150)[:, None], unit=unit),
        ]
    if case == "digits are lost":
        # A prior scale far below the distances of rows, which are often nearly all of a cluster's scatter.
        rows = 1e3 * rows[:60]
        base = dp.NormalInverseWishart(0.0, 0.01, 2.5, np.eye(2) * 1e-3)
    elif case == "wide":
        rows = rng.normal(size=(90, 40)) + (np.arange(90) % 3)[:, None]
        base = dp.NormalInverseWishart(0.0, 0.1, 42.0, np.eye(40))
    else:
        base = dp.NormalInverseWishart(0.0, 0.1, 4.0, np.eye(2))
    return [View(base.family, base.numbers(rows.shape[1]), rows)]


@pytest.mark.parametrize("metropolized", [False, True])
@pytest.mark.parametrize("start", ["one cluster", "singles", "random"])
@pytest.mark.parametrize(
    "case", ["overlapping clusters", "several views, one with units", "digits are lost", "wide"]
)
def test_scans_that_look_ahead_draw_what_scans_of_single_rows_draw(case, start, metropolized):
    views = views_of(case)
    n = len(views[0].values)
    labels = {"one cluster": np.zeros(n, int), "singles": np.arange(n), "random": np.arange(n) % 7}[start]
    states = [State(views, labels) for _ in range(2)]
    rngs = [np.random.default_rng(5) for _ in range(2)]
    for state in states:
        state.set_prior(chinese_restaurant(2.0))
    orders = np.random.default_rng(6)
    for scan in range(6):
        order = orders.permutation(n)
        if scan > 3:
            # There and back in small sets.
            sets = np.split(order, range(3, n, 3))
            order = np.concatenate([np.concatenate([rows, rows[::-1]]) for rows in sets])
        together, alone = states
        n_moved = together.run(rngs[0], scan_rows, order.ctypes.data, len(order), int(metropolized))
        moved_alone = sum(
            alone.run(rngs[1], scan_rows, order[t:].ctypes.data, 1, int(metropolized)) for t in range(len(order))
        )
        np.testing.assert_array_equal(together.labels(), alone.labels())
        assert n_moved == moved_alone
    assert together.log_joint() == pytest.approx(alone.log_joint(), rel=1e-12)


def test_the_case_of_lost_digits_is_one():
    """Some rows have to leave their cluster before they are weighed."""
    (view,) = views_of("digits are lost")
    table = State([view], np.arange(60) // 2).tables[0]
    assert np.isnan([table.log_predictive_without(i, i // 2 + 1) for i in range(60)]).any()


@pytest.mark.parametrize(
    "base", [dp.NormalInverseGamma(0.0, 0.3, 1.5, 0.5), dp.NormalInverseWishart(0, 1, 3, np.eye(2))]
)
def test_densities_that_are_not_numbers_end_a_scan(base):
    """Squares of such rows are infinite; models refuse them."""
    rows = np.random.default_rng(0).normal(size=(12, 2)) * 1e160
    state = State([View(base.family, base.numbers(2), rows)], np.zeros(12, int))
    state.set_prior(chinese_restaurant(1.0))
    order = np.arange(12)
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="rescale the data"):
        state.run(np.random.default_rng(1), scan_rows, order.ctypes.data, 12, 1)
    assert np.array_equal(np.sort(np.bincount(state.slots, minlength=len(state.sizes))), np.sort(state.sizes))
