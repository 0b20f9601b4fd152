"""A mixture of what is left when an expression of other variables is subtracted from the data."""

import exact
import numpy as np
import pymc as pm
import pytest
import sampled
from slowly import rest_slow
from small_states import check_bookkeeping

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


KINDS = pytest.mark.parametrize(
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


def with_offset(base, d):
    """A model with an offset, and labels of its rows."""
    x, y = regression()
    data = y if d is None else np.column_stack([y, x])
    with pm.Model() as model:
        b = pm.Normal("b", 0, 3, shape=() if d is None else d)
        dp.DPMixture("y", 1.0, base, observed=data, offset=b * x if d is None else b * x[:, None])
    return model, (y > 1.5 * x).astype(int)


@KINDS
def test_a_state_with_other_rows_is_that_of_a_new_start(base, d):
    """Draws of the labels while the offset moves: what is kept of the clusters is that of the rows at hand."""
    model, labels = with_offset(base, d)
    with model:
        step = dp.DPMixtureStep([model["y_labels"]])
    (target,), rng = step.targets, np.random.default_rng(4)
    step.setup_chain(rng, tune=0, draws=20)
    point = model.initial_point() | {"y_labels": labels}
    point, _ = step.step(point)
    state = step.prepared[0].state
    for _ in range(20):
        point["b"] = np.asarray(rng.normal(1.5, 1.0, size=np.shape(point["b"])))
        prior = target.prior(point)
        kept, fresh = target.state(point, prior, step.prepared[0]).state, target.state(point, prior, None).state
        assert kept is state
        fresh.set_prior(prior)
        check_bookkeeping(kept)
        assert kept.log_joint() == pytest.approx(fresh.log_joint(), rel=1e-10)
        np.testing.assert_allclose(kept.prior_predictive, fresh.prior_predictive, rtol=1e-10)
        point, _ = step.step(point)
        assert step.prepared[0].state is state


SLOPES = np.linspace(-6.0, 6.0, 481)


@pytest.mark.parametrize("n_draws", rest_slow([500, 10_000]))
def test_labels_and_a_slope_follow_the_posterior(n_draws):
    """Labels by their own step, and the slope by NUTS, against enumeration and quadrature."""
    x, y = np.array([-1.0, 0.2, 0.9, 1.7]), np.array([-1.9, 1.6, 0.4, 3.9])
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.5)
        dp.DPMixture("y", 0.8, BASE, observed=y, offset=slope * x)
    idata = sampled.sample(model, n_draws, tune=500, chains=2, random_seed=2)
    log_p = np.array(
        [
            [
                exact.log_eppf(labels, 0.8)
                + sum(
                    exact.nig_log_marginal((y - b * x)[labels == k, None], 0.0, 0.2, 2.0, 1.0)
                    for k in range(labels.max() + 1)
                )
                - 0.5 * (b / 1.5) ** 2
                for labels in exact.partitions(4)
            ]
            for b in SLOPES
        ]
    )
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    exact.assert_matches(exact.codes(idata.posterior["y_labels"].to_numpy()), exact.partitions(4), p.sum(axis=0))
    sampled.assert_mean_matches(idata.posterior["slope"].to_numpy(), p.sum(axis=1) @ SLOPES)


@KINDS
def test_gradients_in_the_offset(base, d):
    model, labels = with_offset(base, d)
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


def test_other_lengths_are_told_of_in_replicates():
    """Covariates of new rows, without new rows of the data; PyMC alone would speak of shapes."""
    x, y = regression(20)
    with pm.Model() as model:
        data = pm.Data("x", x)
        slope = pm.Normal("slope", 0.0, 1.5)
        dp.DPMixture("y", 0.8, BASE, observed=y, offset=pm.Deterministic("line", slope * data))
    idata = sampled.sample(model, 5, tune=5, chains=1)
    with model:
        pm.set_data({"x": np.zeros(3)})
        with pytest.raises(ValueError, match=r"offset \(the data 'x'\) has 3: the observed rows are a part of"):
            pm.sample_posterior_predictive(idata, predictions=True, progressbar=False)


def test_new_rows_are_told_to_be_without_an_offset():
    x, y = regression(20)
    with pm.Model() as model:
        dp.DPMixture("y", 0.8, BASE, observed=y, offset=1.5 * x)
    idata = sampled.sample(model, 20, tune=20, chains=1)
    asked = (
        lambda: dp.predict(idata, "y", [np.nan], of="y"),
        lambda: dp.log_density(idata, "y", y[:3]),
        lambda: dp.membership(idata, "y", y[:3]),
        lambda: dp.sample_new_rows(idata, "y", known=[np.nan]),
    )
    for ask in asked:
        with pytest.warns(UserWarning, match="^y is modelled less an offset, .*Subtract it from what you pass"):
            ask()
    # Whoever asks for new residuals, or for their density, is not told.
    dp.sample_new_rows(idata, "y", 3)
    dp.density(idata, "y")
