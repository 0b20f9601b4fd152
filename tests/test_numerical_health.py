"""The cached factor after very many changes, on data that is hard to represent."""

import numpy as np
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.arithmetic import below, uniform
from pymc_dpgmm.compiled import INT, INTS, NOTHING, c_function
from pymc_dpgmm.families import View
from pymc_dpgmm.families.verbs import ERROR
from pymc_dpgmm.kernels.memory import join, leave, memory_at
from pymc_dpgmm.kernels.state import State
from pymc_dpgmm.kernels.table import Table
from pymc_dpgmm.triangles import unpacked


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
    table = Table(View(base.family, base.numbers(2), rows), 3)
    table.gather(1, np.arange(6))
    exactly = table.log_predictive_without(5, 1)
    others = Table(View(base.family, base.numbers(2), rows), 3)
    others.gather(1, np.arange(5))
    assert exactly == pytest.approx(others.log_predictives(1)[5], abs=1e-6)
    # Sums that are off by so much would have the log of a share of 1e-5 off by more than is allowed.
    table.array[1, ERROR] = 1e-11
    assert np.isnan(table.log_predictive_without(5, 1))
    assert np.isfinite(table.log_predictive_without(0, 1))
