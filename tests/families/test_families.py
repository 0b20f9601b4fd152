"""The contract that every conjugate family keeps, on the same checks for all."""

import dataclasses
from dataclasses import replace

import exact
import numpy as np
import pytest
from family_cases import CASES, FURTHER, SPREAD_PSI, with_further_slow
from scipy.sparse import csr_array

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.sampler.state.marginal import MarginalLikelihood
from pymc_dpgmm.testing import Contract, check_family

CHECKS = sorted(name for name in dir(Contract) if name.startswith("check_") and name != "check_all")


def contract(case):
    base, values, d, support = CASES[case]
    support = None if support is None else np.array(support, dtype=float)
    return Contract(base, values, exact.LOG_MARGINALS[base.family.name], d, support, censored_of(base, values, d))


def censored_of(base, values, d):
    """Which rows have a density that is the probability of longer times; None of other families."""
    return (values[:, d:] == 0).any(axis=1) if isinstance(base, dp.GammaExponential) else None


# Draws of one real column are compared with integrals, which take ten seconds for a family: by default for one.
ONE_REAL_COLUMN = [case for case, (_, _, d, support) in CASES.items() if d == 1 and support is None]


@pytest.mark.parametrize(
    ("case", "check"),
    [
        pytest.param(case, check, marks=pytest.mark.slow)
        if case in FURTHER
        or (check == "check_prior_draws" and case in ONE_REAL_COLUMN and case != "nig-one-column")
        else (case, check)
        for case in CASES
        for check in CHECKS
    ],
)
def test_contract(case, check):
    """Each check of the contract, for each family."""
    getattr(contract(case), check)()


@pytest.mark.parametrize("case", with_further_slow(CASES))
def test_functions_of_families_run_in_python(case):
    """What is wrong in a family of a user's own is told with its line before it is compiled."""
    held = contract(case)
    held.run_in_python()
    broken = dataclasses.replace(held.family, name=f"Broken{case}", log_evidence=lambda p, n, s: p.nothing[0])
    held.family = broken
    if isinstance(broken.represent(held.params, held.values)[0], np.ndarray):
        with pytest.raises(AttributeError, match="nothing") as error:
            held.run_in_python()
        assert error.value.__notes__[0].startswith(f"This is log_evidence of {broken.name} in plain Python")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_case(family):
    # Those for rows with gaps are in tests/integration/variables/test_missing.py.
    without = FAMILIES[family].takes_missing
    assert without or any(base.family.name == family for base, *_ in CASES.values())


@pytest.mark.parametrize("mistake", [{"a": 0.31}, {"b": 0.81}], ids=["a", "b"])
def test_the_contract_sees_mistakes(mistake):
    """Against a slow marginal likelihood with other parameters, the contract fails."""
    base, values, d, support = CASES["bernoulli-one-column"]

    def wrong(rows, **params):
        return exact.beta_bernoulli_log_marginal(rows, **(params | mistake))

    with pytest.raises(AssertionError):
        check_family(base, values, wrong, d=d, support=np.array(support))


def without_correlations(drawn):
    return drawn | {"factor": drawn["factor"] * np.eye(3)}


def a_little_more(drawn):
    return {name: values * 1.1 for name, values in drawn.items()}


@pytest.mark.parametrize(
    ("case", "change"), [("niw", without_correlations), ("poisson", a_little_more), ("regression", a_little_more)]
)
def test_the_contract_sees_wrong_means(case, change):
    base, values, d, _ = CASES[case]
    held = Contract(base, values, exact.LOG_MARGINALS[base.family.name], d)
    right = base.family.predictive
    held.family = replace(
        base.family, name=f"{base.family.name}Wrong", predictive=lambda *given: change(right(*given))
    )
    with pytest.raises(AssertionError):
        held.check_means()


def drawn_as_the_first(family):
    """All clusters' parameters are those of the first one."""
    own = family.component

    def draw(rng, params, sums):
        return own.draw(rng, params, type(sums)(*(np.repeat(field[:1], len(field), axis=0) for field in sums)))

    return {"component": replace(own, draw=draw)}


def rows_too_far_apart(family):
    own = family.component

    def draw_rows(rng, drawn, labels, given):
        rows, middle = own.draw_rows(rng, drawn, labels, given), drawn["mean"][labels]
        return middle + 1.3 * (rows - middle)

    return {"component": replace(own, draw_rows=draw_rows)}


def rows_without_exposure(family):
    own = family.component
    return {
        "component": replace(
            own, draw_rows=lambda rng, drawn, labels, given: own.draw_rows(rng, drawn, labels, 0.0 * given + 1.0)
        )
    }


def expected_of_the_first(family):
    def predictive(params, sums):
        found = family.predictive(params, sums)
        return {name: np.repeat(value[:1], len(value), axis=0) for name, value in found.items()}

    return {"predictive": predictive}


def origin_of_its_own(family):
    def represent(params, values, origin=None):
        rows, own = family.represent(params, values)
        return rows, own if origin is None else origin

    return {"represent": represent}


@pytest.mark.parametrize(
    ("case", "mistake", "check"),
    [
        ("nig-one-column", drawn_as_the_first, "check_clusters_have_parameters_of_their_own"),
        ("niw", drawn_as_the_first, "check_clusters_have_parameters_of_their_own"),
        ("poisson", expected_of_the_first, "check_clusters_have_parameters_of_their_own"),
        ("nig", rows_too_far_apart, "check_drawn_rows"),
        ("niw", rows_too_far_apart, "check_drawn_rows"),
        ("poisson", rows_without_exposure, "check_drawn_rows"),
        ("nig", origin_of_its_own, "check_origin"),
        ("known-variance", origin_of_its_own, "check_origin"),
    ],
)
def test_the_contract_sees_planted_mistakes(case, mistake, check):
    """What a family does for one cluster, one row or its own origin it must do for others."""
    held = contract(case)
    name = f"{held.family.name}{mistake.__name__.title().replace('_', '')}"
    held.family = replace(held.family, name=name, **mistake(held.family))
    with pytest.raises(AssertionError):
        getattr(held, check)()


@pytest.mark.parametrize("scale", [1e-6, 1e3])
def test_the_contract_holds_in_any_unit(scale):
    """Steps of differences, and ranges of integrals, are as large as the data are."""
    base, values, d, _ = CASES["nig-one-column"]
    given = base.parameters
    there = dp.NormalInverseGamma(given["mu"] * scale, given["kappa"], given["a"], given["b"] * scale**2)
    held = Contract(there, values * scale, exact.LOG_MARGINALS["NormalInverseGamma"], d)
    held.check_gradients()
    held.check_predictives_are_normalized()


def test_the_contract_takes_whole_numbers():
    base, _, d, _ = CASES["nig-one-column"]
    Contract(base, np.arange(6)[:, None], exact.LOG_MARGINALS["NormalInverseGamma"], d).check_gradients()


@pytest.mark.parametrize("case", ["niw", "niw-tight", "nig", "nig-columns", "spherical"])
def test_a_lost_row_is_refused_rather_than_wrong(case):
    """One row so far out that the rest is rounding error: NaN, never a wrong number."""
    base, values, d, _ = CASES[case]
    far = np.vstack([values[:3], values[:1] + 1e9])
    held = Contract(base, far, exact.LOG_MARGINALS[base.family.name], d)
    table = held.table([range(4)])
    assert np.isnan(table.log_predictive_without(3, 1))
    assert table.change(3, 1, -1.0)


def by_removal(case, values):
    """The contract of a family that leaves the density of a row given its cluster's others to the default."""
    base, _, d, _ = CASES[case]
    held = Contract(base, values, exact.LOG_MARGINALS[base.family.name], d)
    held.family = replace(base.family, name=f"{base.family.name}ByRemoval", log_predictive_without=None)
    return held


@pytest.mark.parametrize("case", ["nig", "regression", "bernoulli", "categorical"])
def test_a_row_leaves_a_copy_of_its_cluster_where_no_faster_way_is_known(case):
    values = CASES[case][1]
    by_removal(case, values).check_density_without_a_row()


def test_a_row_that_leaves_too_few_digits_is_refused_by_default_too():
    values = CASES["nig"][1]
    table = by_removal("nig", np.vstack([values[:3], values[:1] + 1e9])).table([range(4)])
    assert np.isnan(table.log_predictive_without(3, 1))


def test_sparse_counts_are_dense_ones():
    base, values, d, _ = CASES["multinomial"]
    family, params = base.family, base.numbers(d)
    dense, sparse = family.represent(params, values)[0], family.represent(params, csr_array(values[:, :-1]))[0]
    np.testing.assert_array_equal(dense.numbers, sparse.numbers)
    np.testing.assert_array_equal(dense.starts, sparse.starts)


@pytest.mark.parametrize("x", [1e-6, 0.3, 5.0, 59.0, 61.0, 1e5, 1e9])
@pytest.mark.parametrize("m", [0.0, 1.0, 12.0, 13.0, 400.0, 1e6])
def test_log_rising(x, m):
    if m <= 400:
        expected = np.sum(np.log(np.longdouble(x) + np.arange(m)))
    else:
        expected = np.sum(np.log(np.longdouble(x) + np.arange(m, dtype=np.longdouble)))
    assert log_rising(x, m) == pytest.approx(float(expected), rel=1e-13, abs=1e-13)


def test_prior_draws_have_the_priors_moments():
    rng = np.random.default_rng(11)
    labels = np.arange(20_000)
    niw = dp.NormalInverseWishart([1.0, -2.0], 2.0, 8.0, [[2.0, 0.7], [0.7, 1.0]]).numbers(2)
    rows = FAMILIES["NormalInverseWishart"].draw_rows(rng, niw, labels, None)
    covariance = np.array([[2.0, 0.7], [0.7, 1.0]]) / (8 - 2 - 1) * (1 + 1 / 2.0)
    error = 5 * rows.std(axis=0) / np.sqrt(len(labels))
    assert np.all(np.abs(rows.mean(axis=0) - niw.mu) < error)
    np.testing.assert_allclose(np.cov(rows.T), covariance, atol=0.03)
    nig = dp.NormalInverseGamma([1.0, -2.0], 2.0, 5.0, [2.0, 1.0]).numbers(2)
    rows = FAMILIES["NormalInverseGamma"].draw_rows(rng, nig, labels, None)
    np.testing.assert_allclose(rows.var(axis=0), np.array([2.0, 1.0]) / 4 * 1.5, rtol=0.06)
    assert np.all(np.abs(rows.mean(axis=0) - nig.mu) < 5 * rows.std(axis=0) / np.sqrt(len(labels)))


@pytest.mark.parametrize("excess", [1e-3, 1e-6])
def test_prior_draws_with_hardly_proper_covariances(excess):
    """With nu close to d - 1 covariances are singular to working precision; draws are finite all the same."""
    params = dp.NormalInverseWishart(0.0, 1.0, 2.0 + excess, SPREAD_PSI).numbers(3)
    rows = FAMILIES["NormalInverseWishart"].draw_rows(
        np.random.default_rng(0), params, np.arange(2_000) // 2, None
    )
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
    with pytest.warns(UserWarning, match="is constant"):
        constant = kind.from_data(np.full((5, 2), 7.0)).numbers(2)
    assert constant is not None


@pytest.mark.parametrize("case", with_further_slow(CASES))
def test_a_density_is_the_same_whatever_was_evaluated_before(case):
    """Statistics that are kept from call to call follow labels, rows and parameters, also after an error."""
    base, values, d, _ = CASES[case]
    family, rng = base.family, np.random.default_rng(5)
    params = family.params(*base.numbers(d))
    other = family.params(*(np.asarray(value) * 1.0 if np.ndim(value) else value for value in params))
    # Outside their support.
    nowhere = params._replace(**{params._fields[0]: np.asarray(params[0]) * np.nan})
    nowhere = family.params(
        *(value.item() if np.ndim(value) == 0 else value for value in map(np.asarray, nowhere))
    )
    n = len(values)
    labels = [np.zeros(n, dtype=np.int64), np.arange(n) % 3, rng.integers(4, size=n), np.full(n, n + 1)]
    rows = [values, values[rng.permutation(n)], values[rng.permutation(n)]]
    if family.has_data_gradient:
        # As an offset moves them.
        rows[2] = values + np.where(np.arange(values.shape[1]) < d, 0.7, 0.0)
    kept = MarginalLikelihood(family)
    for _ in range(40):
        own, data, numbers = (
            labels[rng.integers(4)],
            rows[rng.integers(3)],
            (params, other, nowhere)[rng.integers(3)],
        )
        found, fresh = kept.at(own, data, numbers), MarginalLikelihood(family).at(own, data, numbers)
        assert found.value() == pytest.approx(fresh.value(), rel=1e-10, abs=1e-10)
        for slope, expected in zip(found.gradient(), fresh.gradient(), strict=True):
            np.testing.assert_allclose(slope, expected, rtol=1e-8, atol=1e-8)
        if family.has_data_gradient:
            np.testing.assert_allclose(found.data_gradient(), fresh.data_gradient(), rtol=1e-8, atol=1e-8)
        if rng.random() < 0.3:
            with pytest.raises(ValueError, match="labels, but the data has"):
                kept.at(labels[0][1:], data, numbers)
