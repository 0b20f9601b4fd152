"""Draws of segments, and their marginal likelihood, beside an enumeration of all segmentations."""

import itertools

import exact
import numpy as np
import pytest
from family_cases import CASES, with_further_slow

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.segments import sequences_of
from pymc_dpgmm.sampler.segments import filtering
from pymc_dpgmm.sampler.segments.filtering import SegmentFilter
from pymc_dpgmm.sampler.state.state import State

P = 0.3
# Seven rows in two sequences, in an order of their own.
SEQUENCE = np.array([0, 1, 0, 0, 1, 0, 1])
ORDER = np.array([3.0, 0.5, 1.0, 2.0, 0.1, 7.0, 9.0])
SEQUENCES = sequences_of(SEQUENCE, ORDER)


def view_of(case):
    base, values, d, _ = CASES[case]
    return View(base.family, base.numbers(d), np.asarray(values, dtype=np.float64)[: len(SEQUENCE)])


def state_of(views):
    return State(views, np.zeros(len(views[0].values), dtype=np.int64))


def log_evidence(views, rows):
    """Of some rows as one cluster."""
    own = state_of([view._replace(values=view.values[rows]) for view in views])
    (slot,) = own.order[: own.n_clusters]
    return sum(table.log_evidence(int(slot)) for table in own.tables)


def segmentations(sequences):
    """Labels of all segmentations, and how many changes each has."""
    free = np.flatnonzero(sequences.may_change)
    for chosen in itertools.product([False, True], repeat=len(free)):
        begins = ~sequences.may_change
        begins[free] = chosen
        yield sequences.labels(begins), sum(chosen), len(free)


def enumerated(views, sequences, p):
    """All segmentations as canonical labels, their probabilities, and the log of the sum of their densities."""
    all_labels, log_p = [], []
    for labels, k, m in segmentations(sequences):
        total = k * np.log(p) + (m - k) * np.log1p(-p)
        total += sum(log_evidence(views, np.flatnonzero(labels == own)) for own in range(labels.max() + 1))
        all_labels.append(canonical(labels))
        log_p.append(total)
    log_p = np.array(log_p)
    largest = log_p.max()
    return np.array(all_labels), exact.normalized(log_p), largest + np.log(np.exp(log_p - largest).sum())


def canonical(labels):
    return np.unique(labels, return_index=True, return_inverse=True)[1].argsort().argsort()[labels]


def drawn(views, sequences, p, n_draws, seed=1):
    state, rng = state_of(views), np.random.default_rng(seed)
    state.use(rng)
    own = SegmentFilter(sequences)
    # What is kept with one probability serves another.
    own.take(state, 0.5 * p)
    labels = np.array([canonical(own.draw(rng, p)) for _ in range(n_draws)])
    found = own.log_marginal_at(p)
    own.take(state, p)
    assert own.log_marginal_at(p) == pytest.approx(found, rel=1e-12)
    return labels, found


@pytest.mark.parametrize("case", with_further_slow(CASES))
def test_segments_of_every_family(case):
    """Given everything else, segments are drawn from their posterior; their marginal likelihood is a sum."""
    views = [view_of(case)]
    all_labels, p, log_marginal = enumerated(views, SEQUENCES, P)
    labels, found = drawn(views, SEQUENCES, P, 4_000)
    assert found == pytest.approx(log_marginal, rel=1e-9, abs=1e-9)
    exact.assert_matches(exact.codes(labels)[None], all_labels, p)


def test_segments_of_views_with_gaps_and_a_power():
    rows = np.array(
        [[0.1, np.nan], [0.4, 1.0], [np.nan, np.nan], [5.0, 0.2], [4.4, np.nan], [5.2, 0.4], [0.2, 3.0]]
    )
    base = dp.NormalInverseGamma([0.0, 1.0], 0.3, 2.0, 0.5)
    family = base.family.incomplete
    views = [View(family, family.params(*base.numbers(2)), rows), view_of("poisson")._replace(power=0.4)]
    all_labels, p, log_marginal = enumerated(views, SEQUENCES, P)
    labels, found = drawn(views, SEQUENCES, P, 4_000)
    assert found == pytest.approx(log_marginal, rel=1e-9)
    exact.assert_matches(exact.codes(labels)[None], all_labels, p)


# What is done in place of the filter: whether that is a mistake must be seen in the marginal likelihood.
MISTAKES = {
    "another probability": lambda real, block, start, stop, p: real(block, start, stop, p + 0.01),
    "sequences that go on": lambda real, block, start, stop, p: real(block, 0, 7, p) if start == 0 else 0,
    "a sequence that is left out": lambda real, block, start, stop, p: real(block, start, stop, p) if start else 0,
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_seen(mistake, monkeypatch):
    views, real = [view_of("nig-one-column")], filtering.filter_rows
    _, _, log_marginal = enumerated(views, SEQUENCES, P)
    monkeypatch.setattr(filtering, "filter_rows", lambda *arguments: MISTAKES[mistake](real, *arguments))
    own, state = SegmentFilter(SEQUENCES), state_of(views)
    own._filter(state, P)
    assert abs(own.log_marginal[0] - log_marginal) > 1e-3


def rows_of_many(kind, rng):
    """More rows than a sequence without leaving out has, their base measure, and where they change."""
    if kind == "one column":
        x = np.concatenate([rng.normal(size=200), rng.normal(4.0, 0.5, size=100), rng.normal(size=220)])
        return dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), x[:, None], [200, 300]
    if kind == "a small change":
        # With the least p it is no change: a beginning that is left out with a larger one has all of the weight.
        x = np.concatenate([rng.normal(size=260), rng.normal(1.4, 1.0, size=260)])
        return dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), x[:, None], []
    if kind == "many bits":
        # A segment pays for what it learns of its columns long before it is worth it.
        rate = np.full((520, 180), 0.03)
        rate[260:, :27] = 0.6
        return dp.BetaBernoulli(1.0, 1.0), (rng.random((520, 180)) < rate).astype(float), [260]
    x = rng.normal(size=(520, 12))
    return dp.NormalInverseWishart(x.mean(axis=0), 0.01, 14.0, np.cov(x.T)), x, []


@pytest.mark.parametrize("many_rows", [500, 1_000], ids=["some left out", "all kept"])
@pytest.mark.parametrize("kind", ["one column", "a small change", "many bits", "many reals"])
def test_many_rows_beside_a_recursion_backwards_over_all_segments(kind, many_rows, monkeypatch):
    """Neither beginnings that are left out nor weights smaller than any number matter, whatever p is asked for."""
    monkeypatch.setattr(filtering, "MANY_ROWS", many_rows)
    base, x, changes = rows_of_many(kind, np.random.default_rng(2))
    view = View(base.family, base.numbers(x.shape[1]), x)
    n, state = len(x), state_of([view])
    (table,) = state.tables
    log_p = np.full((n, n + 1), -np.inf)
    for start in range(n):
        table.gather(table.spare, np.array([start]))
        log_p[start, start + 1] = table.log_evidence(table.spare)
        for stop in range(start + 2, n + 1):
            table.change(stop - 1, table.spare, 1.0)
            log_p[start, stop] = table.log_evidence(table.spare)

    def log_marginal(p):
        backwards = np.zeros(n + 1)
        for start in range(n - 1, -1, -1):
            ends = np.arange(start + 1, n + 1)
            stay = (ends - start - 1) * np.log1p(-p) + np.where(ends < n, np.log(p), 0.0)
            backwards[start] = np.logaddexp.reduce(log_p[start, start + 1 :] + stay + backwards[start + 1 :])
        return backwards[0]

    own, rng = SegmentFilter(sequences_of(np.zeros(n, dtype=np.int64))), np.random.default_rng(0)
    state.use(rng)
    own.take(state, 0.5)
    for p in (0.5, 1e-70, 0.01, 0.0125, 0.02, 0.3, 1e-12, 1e-3, 0.999, 1.0 - 2.0**-53, 1e-4):
        assert own.log_marginal_at(p) == pytest.approx(log_marginal(p), rel=1e-9)
    assert set(changes) <= set(np.flatnonzero(np.diff(own.draw(rng, 1e-4))) + 1)
    if kind == "one column" and many_rows < n:
        assert own.ends[-1] < 0.8 * n * (n + 1) / 2


def test_equal_places_are_refused():
    with pytest.raises(ValueError, match=r"order has 2.0 for row 1 and for row 2 of one sequence"):
        sequences_of(np.zeros(3, dtype=np.int64), np.array([1.0, 2.0, 2.0]))
    assert sequences_of(np.array([0, 1]), np.array([2.0, 2.0])).rows.tolist() == [0, 1]


def test_a_mistake_in_other_odds_is_seen(monkeypatch):
    """Where first segments of sequences count as changes too, the marginal likelihood is another one."""
    views, real = [view_of("nig-one-column")], filtering.reweigh
    _, _, log_marginal = enumerated(views, SEQUENCES, P)
    own, state = SegmentFilter(SEQUENCES), state_of(views)
    state.use(np.random.default_rng(0))
    own.take(state, 0.5 * P)
    assert own.log_marginal_at(P) == pytest.approx(log_marginal, rel=1e-9)
    monkeypatch.setattr(
        filtering,
        "reweigh",
        lambda block, start, stop, ratio, most: real(block, start, stop, ratio, most) + np.log(ratio),
    )
    own.take(state, 0.5 * P)
    assert abs(own.log_marginal_at(P) - log_marginal) > 1e-3
