"""New subjects given their observations, against quadrature and enumeration by separate code."""

import exact
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from drawn import results
from predicted_rows import ALPHAS, CASES, LABELS, NIG, PAIRS, stored, stored_data
from scipy import stats
from scipy.special import logsumexp
from slowly import slow_but

import pymc_dpgmm as dp
from pymc_dpgmm.posterior.arrays.centres import Centre

pytestmark = pytest.mark.interpreted

TIMES = 400
U, SLOPES = PAIRS[:, 0], np.array([0.5, 1.0, -0.3])


def log_predictive(points, family, params, rows, labels, alpha):
    """The log predictive density of points (g, d) in one draw."""
    log_marginal, found = exact.LOG_MARGINALS[family], np.full(len(points), -np.inf)
    for k in range(labels.max() + 2):
        own, n = rows[labels == k], np.sum(labels == k)
        seat = np.log((n if n else alpha) / (len(labels) + alpha)) - log_marginal(own, **params)
        joint = np.array([log_marginal(np.vstack([own, [point]]), **params) for point in points])
        found = np.logaddexp(found, seat + joint)
    return found


def latent(base, likelihood, **more):
    """Draws of latent rows, of their labels and of a slope; they differ in all three."""
    with pm.Model() as model:
        alpha, slope = pm.Gamma("alpha", 2.0, 2.0), pm.Normal("slope")
        u = dp.DPMixture("u", alpha, base, shape=(6,))
        likelihood(u, slope)
    draws = {
        "u_labels": np.tile(LABELS, (TIMES, 1)),
        "alpha": np.tile(ALPHAS, TIMES),
        "u": np.tile(more["rows"], (TIMES, 1)),
        "slope": np.tile(SLOPES, TIMES),
    }
    return results(model, draws, n_chains=2)


@pytest.mark.parametrize(("scale", "y"), [(0.8, [1.0, 2.2]), (0.02, [3.01, 3.6])])
def test_effects_given_observations(scale, y):
    """Two visits, with and without a wide likelihood: the effect, and the slope that goes with it."""
    rows = np.array([U, U + 0.3, 0.8 * U])
    idata = latent(dp.NormalInverseGamma(**NIG), lambda u, b: pm.Normal("y", u + b, 0.5, observed=U), rows=rows)
    times = np.array([0.0, 1.0])

    def log_likelihood(effects, posterior):
        mean = effects + posterior["slope"] * xr.DataArray(times, dims="visit")
        return xr.DataArray(stats.norm.logpdf(y, mean, scale), dims=mean.dims).sum("visit")

    found = dp.new_units(idata, "u", log_likelihood=log_likelihood, random_seed=1)
    assert found["u"].shape == (2, 3 * TIMES // 2, 1)
    assert found["pareto_k"].item() < 0.7
    assert found["effective_draws"].item() > 200
    # An even grid, fine enough for both likelihoods.
    grid = np.linspace(-8, 8, 4_001)
    each = []
    for s in range(3):
        log_p = log_predictive(grid[:, None], "NormalInverseGamma", NIG, rows[s][:, None], LABELS[s], ALPHAS[s])
        log_l = stats.norm.logpdf(y, grid[:, None] + SLOPES[s] * times, scale).sum(axis=1)
        each.append(np.exp(log_p + log_l))
    each = np.array(each) / np.sum(each)
    drawn, below = found["u"].to_numpy().ravel(), np.cumsum(each.sum(axis=0))
    n = found["effective_draws"].item()
    mean = each.sum(axis=0) @ grid
    sd = np.sqrt(each.sum(axis=0) @ (grid - mean) ** 2)
    assert drawn.mean() == pytest.approx(mean, abs=4 * sd / np.sqrt(n))
    assert drawn.std() == pytest.approx(sd, rel=0.15)
    assert np.interp(np.median(drawn), grid, below) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(n))
    # The draws of other variables go with the effects.
    slope = idata.posterior["slope"].sel(chain=found.posterior_chain, draw=found.posterior_draw).to_numpy().ravel()
    for s, b in enumerate(SLOPES):
        is_of, p = slope == b, each[s].sum()
        assert is_of.mean() == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / n) + 0.01)
        if p > 0.1:
            assert drawn[is_of].mean() == pytest.approx(each[s] @ grid / p, abs=5 * sd / np.sqrt(p * n))


def test_several_subjects():
    """Each of three, given counts of its own, is as if it were alone."""
    rows = np.array([U, U + 0.3, 0.8 * U])
    base = dp.NormalInverseGamma(**NIG)
    idata = latent(base, lambda u, b: pm.Poisson("y", pm.math.exp(u), observed=[1, 2, 2, 0, 1, 0]), rows=rows)
    counts = np.array([0, 3, 40])

    def log_likelihood(effects, posterior):
        return stats.poisson.logpmf(counts, np.exp(np.minimum(effects, 30.0)))

    found = dp.new_units(idata, "u", 3, log_likelihood=log_likelihood, random_seed=2)
    grid, total = np.linspace(-60, 8, 3_001), np.zeros((3, 3_001))
    for s in range(3):
        log_p = log_predictive(grid[:, None], base.family.name, NIG, rows[s][:, None], LABELS[s], ALPHAS[s])
        total += np.exp(log_p + stats.poisson.logpmf(counts[:, None], np.exp(grid)))
    total /= total.sum(axis=1, keepdims=True)
    drawn = np.tanh(found["u"].to_numpy().reshape(-1, 3) - 1.0)
    mean = total @ np.tanh(grid - 1.0)
    sd = np.sqrt(total @ np.tanh(grid - 1.0) ** 2 - mean**2)
    assert np.all(found["pareto_k"] < 0.7)
    np.testing.assert_allclose((drawn.mean(axis=0) - mean) / sd * np.sqrt(found["effective_draws"]), 0, atol=4)


def test_vectors_as_effects():
    """Intercept and slope of a new subject, of dependent columns, against points from the predictive."""
    base = dp.NormalInverseWishart([0.2, -0.1], 0.4, 4.5, [[1.0, 0.6], [0.6, 0.9]])
    with pm.Model(coords={"i": range(6), "part": ["intercept", "slope"]}) as model:
        alpha = pm.Gamma("alpha", 2.0, 2.0)
        u = dp.DPMixture("u", alpha, base, dims=("i", "part"))
        pm.Normal("y", u[:, 0] + u[:, 1], 0.5, observed=U)
    draws = {"u_labels": np.tile(LABELS, (TIMES, 1)), "alpha": np.tile(ALPHAS, TIMES)}
    idata = results(model, draws | {"u": np.tile(PAIRS, (3 * TIMES, 1, 1))})

    def log_likelihood(effects, posterior):
        intercept, slope = effects.sel(part="intercept"), effects.sel(part="slope")
        return -0.5 * ((1.4 - intercept) / 0.2) ** 2 - 0.5 * ((3.0 - intercept - slope) / 0.2) ** 2

    found = dp.new_units(idata, "u", log_likelihood=log_likelihood, random_seed=2)
    x = np.linspace(0.6, 2.2, 41)
    a, b = np.meshgrid(x, np.linspace(0.4, 2.8, 41), indexing="ij")
    points, p = np.column_stack([a.ravel(), b.ravel()]), np.zeros(a.size)
    for s in range(3):
        log_p = log_predictive(points, base.family.name, base.numbers(2)._asdict(), PAIRS, LABELS[s], ALPHAS[s])
        y = -0.5 * ((1.4 - points[:, 0]) / 0.2) ** 2 - 0.5 * ((3.0 - points.sum(axis=1)) / 0.2) ** 2
        p += np.exp(log_p + y)
    p /= p.sum()
    mean = p @ points
    sd = np.sqrt(p @ (points - mean) ** 2)
    drawn = found["u"].to_numpy().reshape(-1, 2)
    np.testing.assert_allclose(
        (drawn.mean(axis=0) - mean) / sd, 0, atol=4 / np.sqrt(found["effective_draws"].item())
    )
    np.testing.assert_allclose(drawn.std(axis=0) / sd, 1.0, atol=0.15)


def test_effects_of_a_process():
    """Atoms and the base, which is a normal here: sums of normal densities."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 2.0)
        theta = dp.DirichletProcess("theta", alpha, pm.Normal.dist(0.5, 1.5), shape=(6,))
        pm.Normal("y", theta, 0.5, observed=U)
    atoms = np.array([0.3, 1.5, -1.0])
    draws = {
        "theta_labels": np.tile(LABELS, (TIMES, 1)),
        "alpha": np.tile(ALPHAS, TIMES),
        "theta": np.tile(atoms[LABELS], (TIMES, 1)),
    }
    idata = results(model, draws)

    def log_likelihood(effects, posterior):
        return -0.5 * ((1.1 - effects) / 0.6) ** 2

    found = dp.new_units(idata, "theta", log_likelihood=log_likelihood, random_seed=3, model=model)
    p_of_atoms, total = np.zeros(3), 0.0
    grid = np.linspace(-6, 6, 2_001)
    of_new = stats.norm.pdf(grid, 0.5, 1.5) * np.exp(-0.5 * ((1.1 - grid) / 0.6) ** 2) * (grid[1] - grid[0])
    for labels, alpha in zip(LABELS, ALPHAS, strict=True):
        sizes = np.bincount(labels, minlength=3) / (6 + alpha)
        p_of_atoms += sizes * np.exp(-0.5 * ((1.1 - atoms) / 0.6) ** 2)
        total += alpha / (6 + alpha) * of_new.sum()
    whole = p_of_atoms.sum() + total
    drawn = found["theta"].to_numpy().ravel()
    for atom, p in zip(atoms, p_of_atoms / whole, strict=True):
        assert np.mean(drawn == atom) == pytest.approx(p, abs=0.05)
    mean = (p_of_atoms @ atoms + total / of_new.sum() * (of_new @ grid)) / whole
    assert drawn.mean() == pytest.approx(mean, abs=0.08)


@pytest.mark.parametrize("name", slow_but(CASES, "niw", "binomial"))
def test_parameters_of_rows_that_are_known(name):
    """Densities at a point, averaged over the drawn parameters, are those of one more row of the unit."""
    case = CASES[name]
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 2.0), case.base, observed=case.rows)
    idata = results(model, {"y_labels": np.tile(LABELS, (TIMES, 1)), "alpha": np.tile(ALPHAS, TIMES)}, n_chains=1)
    row = np.asarray(case.rows, float)[[4]]
    found = dp.new_units(idata, "y", known=row, given=case.given, random_seed=1)
    component = case.base.family.component
    drawn = {key: found[key].to_numpy()[0, :, 0] for key in component.axes}
    log_marginal, data = exact.LOG_MARGINALS[case.base.family.name], stored_data(case)
    params, known = case.base.numbers(2)._asdict(), stored(case, row)
    point = stored(case, np.asarray(case.rows, float)[[1]])
    before, after = [], []
    for labels, alpha in zip(LABELS, ALPHAS, strict=True):
        for k in range(labels.max() + 2):
            own, n = data[labels == k], np.sum(labels == k)
            seat = np.log((n if n else alpha) / (6 + alpha)) - log_marginal(own, **params)
            before.append(seat + log_marginal(np.vstack([own, known]), **params))
            after.append(seat + log_marginal(np.vstack([own, known, point]), **params))
    if "covariance" in drawn:
        densities = stats.multivariate_normal.pdf
        densities = np.array([densities(point[0, :2], *own) for own in zip(*drawn.values(), strict=True)])
    else:
        densities = np.exp(component.log_density(drawn, point)[0])
    error = densities.std() / np.sqrt(len(densities))
    assert densities.mean() == pytest.approx(np.exp(logsumexp(after) - logsumexp(before)), abs=4 * error)


def test_few_effects_are_possible():
    """An effect between limits so near that few of the first effects are: it is uniform between them."""
    rows = np.array([U, U + 0.3, 0.8 * U])
    idata = latent(dp.NormalInverseGamma(**NIG), lambda u, b: pm.Normal("y", u + b, 0.5, observed=U), rows=rows)

    def log_likelihood(effects, posterior):
        return np.where(abs(effects - 0.9) < 0.005, 0.0, -np.inf)

    found = dp.new_units(idata, "u", log_likelihood=log_likelihood, random_seed=1)
    assert found["pareto_k"].item() < 0.7
    standard = (found["u"].to_numpy().ravel() - 0.9) / 0.005
    assert np.all(abs(standard) < 1.0)
    n = found["effective_draws"].item()
    assert standard.mean() == pytest.approx(0.0, abs=4 / np.sqrt(3 * n))
    assert standard.std() == pytest.approx(np.sqrt(1 / 3), rel=0.15)


def test_moments_of_few_weighed_points():
    """Weights are tempered until enough points count, or all that are possible."""
    points = np.random.default_rng(0).normal(size=(50, 3, 2))
    log_weights = np.full((50, 3), -np.inf)
    log_weights[7, 0] = 2.0
    log_weights[:4, 1] = 2.0
    log_weights[:, 2] = -1e9 * points[:, 2, 0] ** 2
    found = Centre.of_weighed(points, log_weights)
    np.testing.assert_allclose(found.location[0], points[7, 0])
    np.testing.assert_allclose(found.location[1], points[:4, 1].mean(axis=0))
    # So many count that they have a covariance, in their own scale.
    assert 0.0 < found.variances[2, 0] < 0.5
    assert 0.3 < found.variances[2, 1] < 3.0


def test_what_is_refused():
    idata = latent(
        dp.NormalInverseGamma(**NIG), lambda u, b: pm.Normal("y", u + b, 0.5, observed=U), rows=np.tile(U, (3, 1))
    )
    with pytest.raises(TypeError, match="takes one of log_likelihood="):
        dp.new_units(idata, "u")
    for wrong, message in (
        (lambda effects, posterior: np.zeros(3), "must return shape"),
        (lambda effects, posterior: effects * np.nan, "got NaN or inf"),
        (lambda effects, posterior: effects * 0.0 - np.inf, "is -inf at all effects"),
    ):
        with pytest.raises(ValueError, match=message):
            dp.new_units(idata, "u", log_likelihood=wrong)
