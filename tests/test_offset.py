"""A mixture of what is left when an expression of other variables is subtracted from the data."""

import numpy as np
import pymc as pm
import pytest

import pymc_dpgmm as dp

pytestmark = pytest.mark.interpreted

BASE = dp.NormalInverseGamma(0.0, 0.2, 2.0, 1.0)


def regression(n=60, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    residual = rng.choice([-2.0, 2.0], size=n) + 0.4 * rng.normal(size=n)
    return x, 1.5 * x + residual


def test_the_density_is_that_of_the_residuals():
    x, y = regression()
    with pm.Model() as model:
        b = pm.Normal("b", 0, 3)
        dp.DPMixture("y", 1.0, BASE, observed=y, offset=b * x)
    labels = (y > 1.5 * x).astype(int)
    point = {"b": np.array(1.2), "y_labels": labels}
    with pm.Model() as residuals:
        dp.DPMixture("y", 1.0, BASE, observed=y - 1.2 * x)
    expected = residuals.compile_logp()({"y_labels": labels})
    prior = model.compile_logp(vars=[model["b"]])(point)
    np.testing.assert_allclose(model.compile_logp()(point) - prior, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("base", "d"),
    [
        (BASE, None),
        (BASE, 2),
        (dp.NormalInverseWishart(np.zeros(2), 0.2, 4.0, np.eye(2)), 2),
        (dp.SphericalNormalInverseGamma(0.0, 0.2, 2.0, 1.0), 2),
        (dp.LinearRegression(0.0, 0.5, 2.0, 1.0, covariates=np.linspace(-1, 1, 60)), None),
    ],
    ids=["nig", "nig-columns", "niw", "spherical", "regression"],
)
def test_gradients_in_the_offset(base, d):
    x, y = regression()
    data = y if d is None else np.column_stack([y, x])
    with pm.Model() as model:
        b = pm.Normal("b", 0, 3, shape=() if d is None else d)
        dp.DPMixture("y", 1.0, base, observed=data, offset=b * x if d is None else b * x[:, None])
    labels = (y > 1.5 * x).astype(int)
    logp, dlogp = model.compile_logp(), model.compile_dlogp(model["b"])
    value = np.full(() if d is None else d, 0.8)
    for j in range(value.size):
        high, low = value.copy(), value.copy()
        high.flat[j] += 1e-5
        low.flat[j] -= 1e-5
        numeric = (logp({"b": high, "y_labels": labels}) - logp({"b": low, "y_labels": labels})) / 2e-5
        exact = np.ravel(dlogp({"b": value, "y_labels": labels}))[j]
        np.testing.assert_allclose(exact, numeric, rtol=1e-5)


def test_a_matrix_offset_may_serve_all_rows_or_all_columns():
    x, y = regression()
    data = np.column_stack([y, x])
    for offset in (2.0, np.array([[1.0, -1.0]]), x[:, None], np.column_stack([x, x])):
        with pm.Model() as model:
            dp.DPMixture("y", 1.0, BASE, observed=data, offset=offset)
        with pm.Model() as shifted:
            dp.DPMixture("y", 1.0, BASE, observed=data - offset)
        point = {"y_labels": np.arange(len(y)) % 3}
        np.testing.assert_allclose(model.compile_logp()(point), shifted.compile_logp()(point), rtol=1e-12)


def test_prior_draws_are_around_the_offset():
    with pm.Model():
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, 100.0, 50.0, 0.5), shape=(40,), offset=1e3)
        drawn = pm.sample_prior_predictive(20, random_seed=1).prior["y"]
    assert abs(float(drawn.mean()) - 1e3) < 1


def test_a_regression_with_residuals_of_unknown_shape():
    x, y = regression(150, seed=2)
    with pm.Model():
        b = pm.Normal("b", 0, 3)
        dp.DPMixture("y", 1.0, BASE, observed=y, offset=b * x)
        drawn = pm.sample(300, tune=300, chains=2, cores=1, random_seed=1, progressbar=False)
    # Within the two groups, known here, least squares are as good as can be.
    group = y > 1.5 * x
    design = np.column_stack([x, group, ~group])
    best, residuals, *_ = np.linalg.lstsq(design, y, rcond=None)
    error = np.sqrt(residuals[0] / 147 * np.linalg.inv(design.T @ design)[0, 0])
    assert abs(float(drawn.posterior["b"].mean()) - best[0]) < 0.5 * error
    assert 0.8 * error < float(drawn.posterior["b"].std()) < 1.3 * error
    assert float(drawn.posterior["y_n_clusters"].min()) >= 2


@pytest.mark.parametrize(
    ("offset", "error", "message"),
    [
        (np.zeros(5), ValueError, r"offset has shape \(5,\), but the data has shape \(60,\)"),
        (np.zeros((60, 1)), ValueError, "offset must be a scalar or have 1 dimensions like the data, got 2"),
        (np.full(60, np.nan), ValueError, "offset must be finite"),
        (np.array(["a"] * 60), TypeError, "offset must be real numbers"),
    ],
)
def test_bad_offsets_are_named(offset, error, message):
    _, y = regression()
    with pm.Model() as model, pytest.raises(error, match=message):
        dp.DPMixture("y", 1.0, BASE, observed=y, offset=offset)
    assert not model.named_vars


def test_families_that_are_not_of_reals_take_no_offset():
    with pm.Model(), pytest.raises(ValueError, match="BetaBernoulli takes no offset"):
        dp.DPMixture("y", 1.0, dp.BetaBernoulli(1.0, 1.0), observed=np.eye(3), offset=0.5)
