"""Several rows per unit: the labels are those of units, and all rows of a unit are in its cluster."""

import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from exact import assert_matches

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.native.compiled import INT, INTS, NOTHING, c_function
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.slots import free_slot, join, leave, take_slot
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.testing import draw_codes, log_likelihoods, normalized, partitions

pytestmark = pytest.mark.interpreted

N_UNITS = 5
UNIT = np.array([3, 0, 0, 1, 2, 2, 2, 3, 4, 0])
MEANS = np.array([0.0, 0.9, 0.3, 1.4, 1.1])


def rows(d, seed=0):
    rng = np.random.default_rng(seed)
    return MEANS[UNIT][:, None] + rng.normal(size=(len(UNIT), d)) * np.linspace(0.5, 1.0, d)


CASES = {
    "nig": dp.NormalInverseGamma([0.5, 1.5], 0.3, 1.8, [0.6, 1.1]),
    "niw": dp.NormalInverseWishart([0.5, 1.5], 0.3, 4.2, [[0.9, 0.4], [0.4, 1.3]]),
}


def view(case, d=2, unit=UNIT, seed=0):
    base = CASES[case]
    return View(base.family, base.numbers(d), rows(d, seed), unit)


def posterior(views, alpha):
    """Enumerated over partitions of units, the rows of the units of a cluster being its rows."""
    all_labels = partitions(N_UNITS)
    total = np.array([exact.log_eppf(labels, alpha) for labels in all_labels])
    for each in views:
        slow = exact.LOG_MARGINALS[each.family.name]
        unit = np.arange(N_UNITS) if each.unit is None else each.unit

        def log_marginal(members, each=each, slow=slow, unit=unit):
            return slow(each.values[np.isin(unit, members)], **each.params._asdict())

        total += log_likelihoods(all_labels, log_marginal)
    return all_labels, normalized(total)


@pytest.mark.parametrize("case", ["nig", pytest.param("niw", marks=pytest.mark.slow)])
@pytest.mark.parametrize("n_moves", [(1, 3), pytest.param((0, 0), marks=pytest.mark.slow)])
def test_partition_frequencies(case, n_moves):
    """Rows in units, whose labels they share, against enumeration."""
    views = [view(case)]
    all_labels, p = posterior(views, 0.9)
    assert p.max() < 0.6
    drawn, _ = draw_codes(views, chinese_restaurant(0.9), 200_000, n_moves=n_moves)
    assert_matches(drawn, all_labels, p)


@pytest.mark.slow
def test_partition_frequencies_of_two_views_with_units_of_their_own():
    # The second view has one row for each unit; the third none for some of them.
    """Two mixtures whose rows belong to units in different ways."""
    base = CASES["nig"]
    single = View(base.family, base.numbers(2), rows(2, seed=3)[:N_UNITS])
    some = View(base.family, base.numbers(2), rows(2, seed=4)[:3], np.array([4, 1, 4]))
    views = [view("niw"), single, some]
    all_labels, p = posterior([*views[:2], View(*some[:3], np.array([4, 1, 4]))], 0.9)
    drawn, _ = draw_codes(views, chinese_restaurant(0.9), 500_000)
    assert_matches(drawn, all_labels, p)


@pytest.mark.parametrize("n_moves", [(0, 0), (1, 3)])
def test_partition_frequencies_where_some_units_have_no_rows(n_moves):
    # A row may be the only one of its cluster, and yet its unit is not.
    base = CASES["nig"]
    views = [View(base.family, base.numbers(2), rows(2, seed=4)[:3] * 3.0, np.array([4, 1, 2]))]
    all_labels, p = posterior(views, 0.9)
    drawn, _ = draw_codes(views, chinese_restaurant(0.9), 200_000, n_moves=n_moves)
    assert_matches(drawn, all_labels, p)


def test_a_unit_may_be_weighed_beside_its_own_rows():
    # Tables by number of rows reach far enough.
    alone, together = (State([view("niw", unit=unit)], np.zeros(N_UNITS)).tables[0] for unit in (None, UNIT))
    assert len(together.shared) - len(alone.shared) >= np.bincount(UNIT).max()


@pytest.mark.slow
def test_a_unit_counted_once_too_often_is_seen():
    """The comparison with enumeration fails where one row is said to be of another unit."""
    views = [view("nig")]
    all_labels, p = posterior([view("nig", unit=np.r_[UNIT[:-1], 4])], 0.9)
    drawn, _ = draw_codes(views, chinese_restaurant(0.9), 200_000)
    with pytest.raises(AssertionError, match="total variation"):
        assert_matches(drawn, all_labels, p)


@c_function(NOTHING(INTS, INT, INT))
def move_unit(head, i, k):
    """Let a unit join another slot, or a new one if ``k`` is -1."""
    s = memory_at(head)
    own = s.slots[i]
    leave(s, i)
    if s.sizes[own] == 0:
        free_slot(s, own)
    join(s, i, k if k > 0 else take_slot(s))


def test_units_move_with_all_their_rows():
    prior = chinese_restaurant(1.0)
    state, fresh = (State([view("niw")], np.array(labels)) for labels in ([0, 0, 1, 1, 0], [0, 1, 2, 2, 1]))
    for each in (state, fresh):
        each.set_prior(prior)
    before = state.log_joint()
    move_unit(state.address, 0, -1)
    np.testing.assert_allclose(state.log_joint(), fresh.log_joint(), rtol=1e-12)
    move_unit(state.address, 0, 1)
    np.testing.assert_allclose(state.log_joint(), before, rtol=1e-12)


def test_the_model_has_the_density_of_rows_labelled_by_their_units():
    data = rows(2)
    with pm.Model() as model:
        dp.DPMixture("y", 0.9, CASES["niw"], observed=data, unit=UNIT)
    all_labels, p = posterior([view("niw")], 0.9)
    logp = model.compile_logp()
    values = np.array([logp({"y_labels": labels}) for labels in all_labels])
    np.testing.assert_allclose(normalized(values), p, rtol=1e-9)


def test_named_units_and_prior_draws():
    names = np.array(["a", "b", "c", "d", "e"])[UNIT]
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1, 1), CASES["nig"], observed=rows(2), unit=pd.Series(names))
        drawn = pm.sample_prior_predictive(3, random_seed=1)
    assert list(model.coords["y_unit"]) == list("abcde")
    assert drawn.prior["y_labels"].shape == (1, 3, N_UNITS)
    assert drawn.prior_predictive["y"].shape == (1, 3, *rows(2).shape)


@pytest.mark.slow
def test_a_view_per_unit_beside_a_view_per_row():
    """One mixture has a row per unit, the other one several."""
    with pm.Model() as model:
        views = dp.DPMixture(
            "y",
            1.0,
            {"visits": CASES["niw"], "subject": dp.BetaBernoulli(1.0, 1.0)},
            observed={"visits": rows(2), "subject": np.array([[0], [1], [1], [0], [1]])},
            unit={"visits": UNIT},
        )
        step = dp.DPMixtureStep()
        point, _ = step.step(model.initial_point())
    assert list(views) == ["visits", "subject"]
    assert point["y_labels"].shape == (N_UNITS,)
    assert np.isfinite(model.compile_logp()(point))


def test_units_may_change_with_the_data():
    with pm.Model() as model:
        data, unit = pm.Data("data", rows(2)), pm.Data("unit", UNIT)
        dp.DPMixture("y", 1.0, CASES["nig"], observed=data, unit=unit)
        step = dp.DPMixtureStep()
        pm.set_data({"data": rows(2)[:4], "unit": np.array([0, 1, 1, 2])})
        point, _ = step.step({"y_labels": np.array([0, 0, 0])})
        assert len(point["y_labels"]) == 3
        assert np.isfinite(model.compile_logp()(point))
        pm.set_data({"unit": np.array([0, 1, 1, 7])})
        with pytest.raises(ValueError, match="there are 3 labels, but the units of y reach from 0 to 7"):
            step.step(point)


@pytest.mark.parametrize(
    ("unit", "error", "message"),
    [
        (UNIT[:-1], ValueError, r"one entry per row, shape \(10,\), got \(9,\)"),
        (UNIT - 1, ValueError, "from 0 on, got -1"),
        (UNIT * 1.0, TypeError, "integers or names, got dtype float64"),
        (
            np.array([*"abcabcabc", None], dtype=object),
            ValueError,
            r"1 missing entries, in the rows \[9\]: every row belongs",
        ),
    ],
)
def test_bad_units_are_named(unit, error, message):
    with pm.Model() as model, pytest.raises(error, match=message):
        dp.DPMixture("y", 1.0, CASES["nig"], observed=rows(2), unit=unit)
    assert not model.named_vars
    assert not model.coords
