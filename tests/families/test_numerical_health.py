"""The cached factor after very many changes, on data that is hard to represent."""

import warnings

import numpy as np
import pymc as pm
import pytest
from sampled import sample

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.families.contract.defaults import column_variances
from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.compiled import INT, INTS, NOTHING, c_function
from pymc_dpgmm.native.triangles import unpacked
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.moves.sweep import sweep
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.slots import join, leave
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.templates import ERROR


@c_function(NOTHING(INTS, INT))
def churn(head, n_pairs):
    """Move random rows to random ones of two slots, ``n_pairs`` times."""
    s = memory_at(head)
    for _ in range(n_pairs):
        i = below(s.bits, s.n)
        if s.sizes[s.slots[i]] > 1:
            leave(s, i)
            join(s, i, 1 if uniform(s.bits) < 0.5 else 2)


def hard_data(kind):
    rng = np.random.default_rng(5)
    if kind == "far":
        return rng.normal(size=(60, 3)) + 1e6
    if kind == "scales":
        return rng.normal(size=(60, 3)) * [1e-4, 1.0, 1e4] + [0.0, 5.0, -1e6]
    if kind == "correlated":
        z = rng.normal(size=(60, 1))
        return z + np.sqrt(1 / 0.99999**2 - 1) * rng.normal(size=(60, 3))
    if kind == "wide":
        return rng.normal(size=(200, 64)) @ rng.normal(size=(64, 64)) * np.logspace(-4, 4, 64) + 1e6
    return rng.normal(size=(60, 3)) * np.where(np.arange(60) < 3, 3e4, 1.0)[:, None]


def extended_cholesky(matrix):
    """Cholesky factor in extended precision, which NumPy's own routine would drop."""
    lower = np.zeros_like(matrix)
    for j in range(len(matrix)):
        lower[j, j] = np.sqrt(matrix[j, j] - lower[j, :j] @ lower[j, :j])
        lower[j + 1 :, j] = (matrix[j + 1 :, j] - lower[j + 1 :, :j] @ lower[j, :j]) / lower[j, j]
    return lower


def extended_inverse(lower):
    """Inverse of a lower triangular matrix in extended precision."""
    inverse = np.zeros_like(lower)
    for i in range(len(lower)):
        inverse[i, i] = 1 / lower[i, i]
        inverse[i, :i] = -(lower[i, :i] @ inverse[:i, :i]) / lower[i, i]
    return inverse


@pytest.mark.parametrize(
    "kind", ["far", "scales", "correlated", pytest.param("wide", marks=pytest.mark.slow), "outliers"]
)
def test_factor_after_many_changes(kind):
    """Cached factors stay accurate after many rows have come and gone."""
    rows = hard_data(kind)
    n, d = rows.shape
    if kind == "outliers":
        # A prior scale as small as the bulk, so that an outlier that leaves takes nearly all of the scale along.
        base = dp.NormalInverseWishart(0.0, 0.01, d + 2.0, np.eye(d))
    else:
        base = dp.NormalInverseWishart.from_data(rows)
    params = base.numbers(d)
    labels = np.arange(n) % 2
    state = State([View(base.family, params, rows)], labels)
    state.use(np.random.default_rng(8))
    churn(state.address, 1_000_000)
    (table,) = state.tables
    local = table.shifted
    for k in (1, 2):
        own = state.members(k)
        x = table.rows[own].astype(np.longdouble)
        kappa_n = params.kappa + len(own)
        mean = (params.kappa * local.mu + x.sum(axis=0)) / kappa_n
        centred, offset = x - x.mean(axis=0), x.mean(axis=0) - local.mu
        scale = params.psi + centred.T @ centred + params.kappa * len(own) / kappa_n * np.outer(offset, offset)
        unit = np.sqrt(np.diag(scale))
        lower = extended_cholesky(scale / np.outer(unit, unit))
        fresh = extended_inverse(lower) * np.sqrt(kappa_n / (kappa_n + 1))
        cached = np.tril(unpacked(table.cached("factor", k)[None, :])[0]) * unit
        assert np.all(np.isfinite(cached))
        error = np.sqrt(((cached - fresh) ** 2).sum(axis=1) / (fresh**2).sum(axis=1))
        # Sums are rounded, and a factor is no better known than their condition allows: with outliers in all
        # columns at once, columns are correlated up to 1e-9.
        condition = np.linalg.cond((scale / np.outer(unit, unit)).astype(float))
        assert error.max() < max(1e-8, np.finfo(float).eps * condition)
        log_det = 2 * np.log(np.diag(lower)).sum() + 2 * np.log(unit).sum()
        half_log_det = table.cached("half_log_det", k)[0]
        assert 2.0 * half_log_det == pytest.approx(float(log_det), abs=1e-7)
        np.testing.assert_allclose(table.cached("mean", k), mean.astype(float), atol=1e-8 * np.abs(x).max())
        assert np.all(np.isfinite(table.log_predictives(k)))


@pytest.mark.parametrize("family", [dp.NormalInverseGamma, dp.SphericalNormalInverseGamma])
def test_a_row_that_leaves_little_is_not_told_from_inexact_sums(family):
    """The error of the sums bounds that of a density given the rest, whatever form the family's density has."""
    base = family(0.0, 0.01, 1.0, 1e-6)
    rows = np.r_[np.zeros((5, 2)), [[1.0, 2.0]]] + 1e-3 * np.random.default_rng(1).normal(size=(6, 2))
    table = ClusterTable(View(base.family, base.numbers(2), rows), 3)
    table.gather(1, np.arange(6))
    exactly = table.log_predictive_without(5, 1)
    others = ClusterTable(View(base.family, base.numbers(2), rows), 3)
    others.gather(1, np.arange(5))
    assert exactly == pytest.approx(others.log_predictives(1)[5], abs=1e-6)
    # Sums that are off by so much would have the log of a share of 1e-5 off by more than is allowed.
    table.array[1, ERROR] = 1e-11
    assert np.isnan(table.log_predictive_without(5, 1))
    assert np.isfinite(table.log_predictive_without(0, 1))


FAR = 1e11
KINDS = [dp.NormalInverseGamma, dp.NormalInverseWishart, dp.SphericalNormalInverseGamma]


def three_clusters(missing=False):
    """Rows about 0 and 1e11, which are the same but for the shift, and their clusters."""
    rng = np.random.default_rng(4)
    labels = np.arange(150) % 3
    far = FAR + np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])[labels] + rng.normal(size=(150, 2))
    if missing:
        far[::7, 1] = np.nan
    return far - FAR, far, labels


def log_joint(base, rows, labels):
    state = State([View(base.family, base.numbers(2), rows)], labels)
    state.set_prior(chinese_restaurant(1.0))
    return state.log_joint()


def numbers_of_clusters(base, rows):
    """Of more than ten rows, in draws that begin with one cluster."""
    rng, found = np.random.default_rng(1), []
    state = State([View(base.family, base.numbers(2), rows)], np.zeros(150, dtype=int))
    state.set_prior(chinese_restaurant(1.0))
    for _ in range(200):
        sweep(rng, state, 1, 1, 1, 3)
        found.append(np.sum(np.bincount(state.labels()) > 10))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_data_far_from_zero_keeps_its_clusters(kind):
    """Numbers about 1e11 are 1.5e-5 apart, and a standard deviation of 1 has all its digits."""
    near, far, truth = three_clusters()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        here, there = kind.from_data(near), kind.from_data(far)
    for name, value in here.parameters.items():
        moved = there.parameters[name] - (FAR if name == "mu" else 0.0)
        np.testing.assert_allclose(moved, value, rtol=1e-12, atol=2e-5 if name == "mu" else 0.0)
    for labels in (truth, np.zeros(150, dtype=int), np.minimum(truth, 1), np.arange(150) % 30):
        assert log_joint(there, far, labels) == pytest.approx(log_joint(here, near, labels), abs=1e-4)
    for base, rows in ((here, near), (there, far)):
        assert np.median(numbers_of_clusters(base, rows)[50:]) == 3


@pytest.mark.interpreted
@pytest.mark.parametrize("kind", KINDS)
def test_densities_of_data_far_from_zero(kind):
    """Also with missing entries, and after the parameters of clusters have been drawn."""
    near, far, labels = three_clusters(missing=kind is not dp.SphericalNormalInverseGamma)
    found = []
    for rows in (near, far):
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, kind.from_data(rows), observed=rows)
        point = model.initial_point(1) | {"y_labels": labels}
        if "y_unobserved" in point:
            point["y_unobserved"] = np.full_like(point["y_unobserved"], rows[0, 1])
        found.append(float(model.compile_logp()(point)))
    assert found[1] == pytest.approx(found[0], abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_are_constant_up_to_rounding(kind):
    rng = np.random.default_rng(2)
    for value in (0.3, -7e11, 1e-20):
        # The same number by several ways.
        nearly = np.array([value, value / 3.0 * 3.0, (value + value * 1e-3) - value * 1e-3, value * 49.0 / 49.0])
        rows = np.column_stack([rng.normal(size=400), np.tile(nearly, 100)])
        with pytest.warns(UserWarning, match=r"column 1 is constant( up to rounding)?: "):
            base = kind.from_data(rows)
        (variance,) = column_variances(rows[:, 1:])
        assert variance == (4.0 * np.finfo(np.float64).eps * np.abs(rows[:, 1]).max()) ** 2
        for labels in (np.zeros(400, dtype=int), (rows[:, 0] > 0.0).astype(int)):
            assert np.isfinite(log_joint(base, rows, labels))
    assert column_variances(np.zeros((5, 1))) == 1.0


def test_constant_columns_do_not_move_by_the_errors_of_their_sums():
    """They have no say in the clusters, although their scale is that of rounding."""
    rng = np.random.default_rng(2)
    for n in (200, 100_000):
        rows = np.column_stack([rng.normal(size=n), np.full(n, 0.1)])
        with pytest.warns(UserWarning, match="column 1 is constant"):
            base = dp.NormalInverseGamma.from_data(rows)
        alone = dp.NormalInverseGamma.from_data(rows[:, 0])
        assert base.parameters["mu"][1] == 0.1
        halves = (rows[:, 0] > 0.0).astype(int)
        table, own = (
            ClusterTable(View(b.family, b.numbers(d), rows[:, :d]), 3) for b, d in ((base, 2), (alone, 1))
        )
        for each in (table, own):
            for k in range(2):
                each.gather(k, np.flatnonzero(halves == k))
        # Clusters of as many rows gain as much from the column, however they lie.
        gains = [table.log_evidence(k) - own.log_evidence(k) for k in range(2)]
        half = np.bincount(halves)
        table.gather(2, np.arange(half[0]))
        other = ClusterTable(View(alone.family, alone.numbers(1), rows[:, :1]), 3)
        other.gather(0, np.arange(half[0]))
        assert table.log_evidence(2) - other.log_evidence(0) == pytest.approx(gains[0], rel=1e-9)


def test_the_spread_of_a_column_is_that_of_scaled_ones():
    rows = np.column_stack([three_clusters()[1], np.full(150, 0.7)])
    for scale in (2.0**-40, 2.0**70):
        np.testing.assert_array_equal(column_variances(rows * scale), column_variances(rows) * scale**2)


VAGUE = {
    "columns": lambda a: dp.NormalInverseGamma(0.0, 0.01, a, a),
    "full": lambda a: dp.NormalInverseWishart(0.0, 0.01, 1.0 + 2.0 * a, 2.0 * a * np.eye(2)),
    "spherical": lambda a: dp.SphericalNormalInverseGamma(0.0, 0.01, a, a),
}


@pytest.mark.parametrize("a", [0.001, 0.01])
@pytest.mark.parametrize("kind", VAGUE)
def test_answers_under_vague_priors_of_variances(kind, a):
    """Variances of clusters without rows, which divide by gamma numbers near 0, are numbers; so is all else."""
    rng = np.random.default_rng(2)
    z = np.repeat([0.0, 8.0], 10)
    data = np.column_stack([rng.normal(z), rng.normal(-z)])
    with pm.Model():
        dp.DPMixture("y", 1.0, VAGUE[kind](a), observed=data)
        idata = sample(pm.modelcontext(None), 60, tune=60, chains=1, random_seed=1)
    points = np.array([[0.0, 0.0], [8.0, -8.0], [3.0, 3.0]])
    band = dp.density(idata, "y", points, random_seed=1)
    assert all(np.isfinite(band[part]).all() for part in ("mean", "lower", "upper"))
    log_likelihood = dp.log_likelihood(idata, "y", random_seed=1, extend_inferencedata=False)["log_likelihood"][
        "y"
    ]
    assert np.isfinite(log_likelihood).all()
    assert np.isfinite(dp.sample_new_rows(idata, "y", 50, random_seed=1)["y"]).all()
    tells = dp.dependence(idata, "y", random_seed=1)["mean"].to_numpy()
    assert np.isfinite(tells[~np.eye(2, dtype=bool)]).all()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = dp.contrast(idata, "y", [[0.0, np.nan]], [[8.0, np.nan]], of=1, random_seed=1)
    assert all(np.isfinite(found[part]).all() for part in ("mean", "lower", "upper"))
    is_told = any("one draw makes up most of the differences" in str(warning.message) for warning in told)
    assert is_told == (abs(float(found["mean"]) + 8.0) > 4.0)


def test_a_regression_under_a_vague_prior_of_variances():
    x = np.linspace(-1.0, 1.0, 20)
    with pm.Model():
        base = dp.LinearRegression(0.0, 0.01, 0.001, 0.001, covariates=np.column_stack([np.ones(20), x]))
        dp.DPMixture("y", 1.0, base, observed=2.0 * x)
        idata = sample(pm.modelcontext(None), 60, tune=60, chains=1, random_seed=1)
    band = dp.density(idata, "y", [0.0, 1.0], given={"covariates": [1.0, 0.2]}, random_seed=1)
    assert all(np.isfinite(band[part]).all() for part in ("mean", "lower", "upper"))


@pytest.mark.parametrize("impute", ["columns", "full"])
def test_entries_imputed_under_a_vague_prior_are_numbers(impute):
    data = np.random.default_rng(3).normal(size=(12, 2))
    data[3, 1] = data[7, 0] = np.nan
    with pm.Model():
        dp.DPMixture("y", 5.0, VAGUE[impute](0.001), observed=data, impute=True)
        idata = sample(pm.modelcontext(None), 300, tune=10, chains=1, random_seed=1)
    assert np.isfinite(idata["posterior"]["y_missing"]).all()
