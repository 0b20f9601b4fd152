"""The contract that every conjugate family keeps, on the same checks for all."""

import exact
import numpy as np
import pytest
from scipy.integrate import quad

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES
from pymc_dpgmm.families.verbs import (
    add,
    combine,
    fit,
    log_marginal,
    log_marginal_likelihood,
    log_predictive,
    log_predictive_without,
    move,
    remove,
    resize,
    summarize,
)
from pymc_dpgmm.kernels.marginal import MarginalLikelihood

SPREAD_PSI = [[1.3, 0.9, -0.2], [0.9, 1.1, 0.1], [-0.2, 0.1, 0.7]]
BASES = {
    "niw": dp.NormalInverseWishart(mu=[0.4, -1.0, 2.0], kappa=0.3, nu=3.4, psi=SPREAD_PSI),
    "niw-tight": dp.NormalInverseWishart(mu=0.0, kappa=20.0, nu=2.05, psi=np.diag([1e-3, 1.0, 1e3])),
    "nig": dp.NormalInverseGamma(mu=[0.4, -1.0, 2.0], kappa=0.3, a=1.7, b=[0.2, 1.0, 3.0]),
    "nig-columns": dp.NormalInverseGamma(mu=0.1, kappa=[0.2, 1.0, 4.0], a=[0.6, 2.0, 5.0], b=0.8),
}


@pytest.fixture(params=list(BASES))
def base(request):
    return BASES[request.param]


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    return rng.normal(size=(9, 3)) @ np.array([[1.0, 0.8, 0.0], [0.0, 0.5, 0.3], [0.0, 0.0, 1.5]]) + [1, -2, 0.5]


def stats_of(base, rows, members, capacity=4):
    """Statistics with slot 0 without rows and slot 1 fitted to ``rows[members]``."""
    family, params = base.family, base.numbers(rows.shape[1])
    stats = family.allocate_stats(params, len(rows), capacity)
    summary = family.allocate_summary(rows.shape[1], 1)
    for k, chosen in enumerate([[], members]):
        summarize(summary, 0, rows, np.array(chosen, dtype=np.int64))
        fit(stats, k, summary, 0)
    return stats


@pytest.mark.parametrize(
    "halves", [([0, 3, 4], [1, 2, 5, 6, 7, 8]), ([2], [5]), ([], [1, 4]), ([1, 4], []), ([], [])]
)
def test_combined_summaries(base, rows, halves):
    """Two summaries make the summary of all rows of both."""
    summary = base.family.allocate_summary(3, 3)
    for k, members in enumerate([*halves, [*halves[0], *halves[1]]]):
        summarize(summary, k, rows, np.array(members, dtype=np.int64))
    combine(summary, 0, 1)
    for field in summary:
        np.testing.assert_allclose(field[0], field[2], rtol=1e-12, atol=1e-12)


def slow_log_marginal(base, rows):
    params = base.numbers(rows.shape[1])
    return exact.LOG_MARGINALS[base.family.name](rows, **params._asdict())


def test_predictives_telescope_to_the_marginal_likelihood(base, rows):
    stats = stats_of(base, rows, [])
    total = 0.0
    for x in rows:
        total += log_predictive(stats, 1, x)
        add(stats, 1, x)
    assert total == pytest.approx(slow_log_marginal(base, rows), rel=1e-9)
    assert log_marginal(stats, 1) == pytest.approx(total, rel=1e-9)
    summary = base.family.allocate_summary(3, 1)
    summarize(summary, 0, rows, np.arange(len(rows)))
    assert log_marginal_likelihood(base.numbers(3), summary) == pytest.approx(total, rel=1e-9)


def test_adding_rows_equals_fitting_them(base, rows):
    added = stats_of(base, rows, [0])
    for x in rows[1:]:
        add(added, 1, x)
    assert_slots_agree(added, 1, stats_of(base, rows, range(9)), 1)


def test_add_then_remove_returns_the_state(base, rows):
    stats = stats_of(base, rows, range(5))
    for x in rows[5:]:
        add(stats, 1, x)
    for x in rows[5:]:
        assert remove(stats, 1, x)
    assert_slots_agree(stats, 1, stats_of(base, rows, range(5)), 1)


def test_density_without_a_row_needs_no_downdate(base, rows):
    stats = stats_of(base, rows, range(9))
    for i in range(9):
        others = [j for j in range(9) if j != i]
        expected = log_predictive(stats_of(base, rows, others), 1, rows[i])
        assert log_predictive_without(stats, 1, rows[i]) == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_a_lost_row_is_refused_rather_than_wrong(base, rows):
    """One row so far out that the rest is rounding error: NaN and False, never a wrong number."""
    far = np.vstack([rows[:3], rows[:1] + 1e9])
    stats = stats_of(base, far, range(4))
    assert np.isnan(log_predictive_without(stats, 1, far[3]))
    assert not remove(stats, 1, far[3])


def test_slots_move_and_resize(base, rows):
    stats = stats_of(base, rows, range(4), capacity=3)
    larger = resize(stats, 7)
    move(larger, 1, 6)
    for slot in (1, 6):
        assert_slots_agree(larger, slot, stats, 1)


def test_predictive_density_integrates_to_one(base, rows):
    """In the last column, given the first two: the ratio of two integrals of the joint density."""
    one = rows[:, :1]
    params = base.parameters
    if base.family.name == "NormalInverseWishart":
        narrow = dp.NormalInverseWishart(0.3, params["kappa"], params["nu"], [[0.8]])
    else:
        narrow = dp.NormalInverseGamma(0.3, np.max(params["kappa"]), np.min(params["a"]), 0.8)
    stats = stats_of(narrow, one, range(4))
    for slot in (0, 1):
        total, _ = quad(
            lambda z: np.exp(log_predictive(stats, slot, np.array([np.tan(z)]))) / np.cos(z) ** 2,  # noqa: B023
            -np.pi / 2,
            np.pi / 2,
            limit=400,
        )
        assert total == pytest.approx(1.0, abs=1e-7)


def test_gradients_equal_finite_differences(base, rows):
    labels = np.array([0, 1, 0, 0, 2, 1, 0, 1, 1], dtype=np.int64)
    likelihood = MarginalLikelihood(base.family)
    params = base.numbers(3)
    gradient = likelihood.gradient(labels, rows, params)
    for field, value in params._asdict().items():
        value = np.asarray(value)
        numeric = np.zeros(value.shape)
        for index in np.ndindex(*value.shape):
            step = 1e-5 * max(abs(value[index]), 1e-3)
            ends = []
            for sign in (1, -1):
                moved = value.copy()
                moved[index] += sign * step
                if value.ndim == 2 and index[0] != index[1]:
                    moved[index[::-1]] += sign * step
                moved = moved if value.ndim else moved.item()
                ends.append(likelihood.value(labels, rows, params._replace(**{field: moved})))
            numeric[index] = (ends[0] - ends[1]) / (2 * step)
            if value.ndim == 2 and index[0] != index[1]:
                numeric[index] /= 2
        np.testing.assert_allclose(getattr(gradient, field), numeric, rtol=2e-5, atol=1e-6)
    numeric = np.zeros(rows.shape)
    for index in np.ndindex(*rows.shape):
        ends = []
        for sign in (1, -1):
            moved = rows.copy()
            moved[index] += sign * 1e-6
            ends.append(likelihood.value(labels, moved, params))
        numeric[index] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(
        likelihood.data_gradient(labels, rows, params), numeric, rtol=2e-5, atol=1e-5 * np.abs(numeric).max()
    )


def test_prior_draws_have_the_priors_moments():
    rng = np.random.default_rng(11)
    labels = np.arange(20_000)
    niw = dp.NormalInverseWishart([1.0, -2.0], 2.0, 8.0, [[2.0, 0.7], [0.7, 1.0]]).numbers(2)
    rows = FAMILIES["NormalInverseWishart"].draw_rows(rng, niw, labels)
    covariance = np.array([[2.0, 0.7], [0.7, 1.0]]) / (8 - 2 - 1) * (1 + 1 / 2.0)
    error = 5 * rows.std(axis=0) / np.sqrt(len(labels))
    assert np.all(np.abs(rows.mean(axis=0) - niw.mu) < error)
    np.testing.assert_allclose(np.cov(rows.T), covariance, atol=0.03)
    nig = dp.NormalInverseGamma([1.0, -2.0], 2.0, 5.0, [2.0, 1.0]).numbers(2)
    rows = FAMILIES["NormalInverseGamma"].draw_rows(rng, nig, labels)
    np.testing.assert_allclose(rows.var(axis=0), np.array([2.0, 1.0]) / 4 * 1.5, rtol=0.06)
    assert np.all(np.abs(rows.mean(axis=0) - nig.mu) < 5 * rows.std(axis=0) / np.sqrt(len(labels)))


@pytest.mark.parametrize("excess", [1e-3, 1e-6])
def test_prior_draws_with_hardly_proper_covariances(excess):
    """With nu close to d - 1 covariances are singular to working precision; draws are finite all the same."""
    params = dp.NormalInverseWishart(0.0, 1.0, 2.0 + excess, SPREAD_PSI).numbers(3)
    rows = FAMILIES["NormalInverseWishart"].draw_rows(np.random.default_rng(0), params, np.arange(2_000) // 2)
    assert np.all(np.isfinite(rows))


@pytest.mark.parametrize("kind", [dp.NormalInverseWishart, dp.NormalInverseGamma])
def test_defaults_follow_shifts_and_scales(kind):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 2))
    scale, shift = np.array([1e-4, 1e4]), np.array([3.0, -1e6])
    plain, moved = kind.from_data(rows).numbers(2), kind.from_data(rows * scale + shift).numbers(2)
    np.testing.assert_allclose(moved.mu, plain.mu * scale + shift, rtol=1e-9)
    if kind is dp.NormalInverseWishart:
        np.testing.assert_allclose(moved.psi, plain.psi * np.outer(scale, scale), rtol=1e-6)
        np.testing.assert_allclose(plain.psi, np.diag(0.1 * rows.var(axis=0)))
        assert (plain.kappa, plain.nu) == (0.01, 4.0)
    else:
        np.testing.assert_allclose(moved.b, plain.b * scale**2, rtol=1e-6)
    constant = kind.from_data(np.full((5, 2), 7.0)).numbers(2)
    assert constant is not None


def assert_slots_agree(stats, k, other, j):
    for field in stats._fields:
        mine, theirs = getattr(stats, field), getattr(other, field)
        shared = np.ndim(mine) == 0 or field in ("mu", "kappa", "a", "b", "psi", "norms", "work", "error")
        if not shared:
            np.testing.assert_allclose(mine[k], theirs[j], rtol=1e-9, atol=1e-11, err_msg=field)
