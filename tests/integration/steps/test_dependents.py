"""Other parts of a model that depend on the labels: the density of canonical labels is the model's."""

import arviz as az
import exact
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import sampled
from exact import assert_matches, codes
from scipy.stats import multivariate_normal, norm

import pymc_dpgmm as dp
from pymc_dpgmm.integration.steps.dependents import Dependents
from pymc_dpgmm.testing import log_likelihoods, normalized, partitions

ROWS = np.array([0.0, 0.7, 1.1, 2.6, 0.4])
EXTRA = np.array([0.2, 1.4, 0.1, 1.9, -0.4])
THETA = np.array([-0.3, 1.5, 0.4, -1.0, 0.8])
BASE = {"mu": 0.5, "kappa": 0.3, "a": 2.0, "b": 0.8}
LABELS = partitions(len(ROWS))


def log_prior_and_rows(alpha=0.9):
    log_rows = log_likelihoods(LABELS, lambda rows: exact.nig_log_marginal(ROWS[rows][:, None], **BASE))
    return log_rows + np.array([exact.log_eppf(labels, alpha) for labels in LABELS])


def extra_density(labels, theta=THETA):
    return norm.logpdf(EXTRA, np.asarray(theta)[labels], 0.8).sum()


def indexed_model(theta=THETA, **kwargs):
    with pm.Model() as model:
        dp.DPMixture("y", 0.9, dp.NormalInverseGamma(**BASE), observed=ROWS, **kwargs)
        pm.Normal("w", pt.as_tensor(theta)[model["y_labels"]], 0.8, observed=EXTRA)
    return model


def drawn_codes(model, step, n_draws, seed=1, between=lambda rng, point: None):
    with model:
        step = step()
    rng = np.random.default_rng(seed + 1)
    step.setup_chain(np.random.default_rng(seed), 300, n_draws)
    point = model.initial_point(random_seed=seed)
    found = np.empty((n_draws, len(ROWS)), dtype=np.int64)
    for draw in range(-300, n_draws):
        point, _ = step.step(point)
        between(rng, point)
        if draw == -1:
            step.stop_tuning()
        found[draw] = point["y_labels"]
    return codes(found)


STEPS = {
    "default": dp.DPMixtureStep,
    "gibbs": dp.CollapsedGibbs,
    # Sequential moves alone are irreducible on so few rows.
    "split-merge": lambda: dp.SplitMerge(sequential=4, random=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", ["default", "gibbs", "split-merge"])
def test_labels_as_an_index(step):
    """Parameters of clusters that labels index, beside a mixture, against enumeration."""
    p = normalized(log_prior_and_rows() + np.array([extra_density(labels) for labels in LABELS]))
    without = normalized(log_prior_and_rows())
    assert p.max() < 0.6
    assert exact.total_variation(p, without) > 0.2
    assert_matches(drawn_codes(indexed_model(), STEPS[step], 20_000), LABELS, p)


@pytest.mark.slow
def test_an_index_out_of_range_has_density_zero():
    """Labels that no parameter is there for are never drawn."""
    reached = LABELS.max(axis=1) < 3
    p = np.zeros(len(LABELS))
    log_p = log_prior_and_rows()[reached] + np.array([extra_density(labels) for labels in LABELS[reached]])
    p[reached] = normalized(log_p)
    model = indexed_model(THETA[:3], initval=np.zeros(5, dtype=int))
    assert_matches(drawn_codes(model, dp.DPMixtureStep, 20_000), LABELS, p)


def test_a_start_out_of_range_is_named():
    model = indexed_model(THETA[:3], initval=np.arange(5))
    with model:
        step = dp.DPMixtureStep()
    with pytest.raises(ValueError, match="labels up to 4 index something shorter in w"):
        step.step(model.initial_point())


@pytest.mark.slow
def test_a_potential_of_the_number_of_clusters():
    """A potential of the labels changes their posterior by what it says."""
    with pm.Model() as model:
        dp.DPMixture("y", 0.9, dp.NormalInverseGamma(**BASE), observed=ROWS)
        pm.Potential("few", -1.5 * model["y_n_clusters"].astype("float64"))
    p = normalized(log_prior_and_rows() - 1.5 * LABELS.max(axis=1))
    assert_matches(drawn_codes(model, dp.DPMixtureStep, 20_000), LABELS, p)


def test_a_ratio_left_out_is_seen():
    p = normalized(log_prior_and_rows() + np.array([extra_density(labels) for labels in LABELS]))
    with pm.Model() as model:
        dp.DPMixture("y", 0.9, dp.NormalInverseGamma(**BASE), observed=ROWS)
    with pytest.raises(AssertionError, match="total variation"):
        assert_matches(drawn_codes(model, dp.DPMixtureStep, 20_000), LABELS, p)


PRIOR_MEANS = np.array([0.0, 0.6, -0.5, 0.3, 1.0])


def draw_theta(rng, point):
    """Exact draw given labels: theta[k] ~ N(mean[k], 1), w ~ N(theta[labels], 0.8)."""
    counts = np.bincount(point["y_labels"], minlength=5)
    sums = np.bincount(point["y_labels"], weights=EXTRA, minlength=5)
    precision = 1 + counts / 0.64
    point["theta"] = (PRIOR_MEANS + sums / 0.64) / precision + rng.normal(size=5) / np.sqrt(precision)


@pytest.mark.slow
def test_unknowns_that_labels_index_are_renamed_with_the_clusters():
    # Their prior means differ, so that renaming changes the prior density.
    """What belongs to a cluster follows it when labels are renamed."""
    with pm.Model() as model:
        dp.DPMixture("y", 0.9, dp.NormalInverseGamma(**BASE), observed=ROWS)
        theta = pm.Normal("theta", PRIOR_MEANS, 1.0)
        pm.Normal("w", theta[model["y_labels"]], 0.8, observed=EXTRA)
    log_w = np.array(
        [
            sum(
                multivariate_normal.logpdf(
                    EXTRA[labels == k],
                    np.full(np.sum(labels == k), PRIOR_MEANS[k]),
                    0.64 * np.eye(np.sum(labels == k)) + 1.0,
                )
                for k in range(labels.max() + 1)
            )
            for labels in LABELS
        ]
    )
    p = normalized(log_prior_and_rows() + log_w)
    assert_matches(drawn_codes(model, dp.DPMixtureStep, 40_000, between=draw_theta), LABELS, p)


@pytest.mark.slow
def test_effects_of_clusters_beside_nuts_and_a_gamma_concentration():
    """Effects by NUTS, labels and alpha by the package, against quadrature."""
    rng = np.random.default_rng(3)
    group = np.repeat([0, 1], 20)
    rows = np.where(group, 6.0, -6.0) + rng.normal(size=40)
    extra = np.where(group, -1.0, 2.0) + 0.3 * rng.normal(size=40)
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1, 2)
        dp.DPMixture("y", alpha, dp.NormalInverseGamma(0.0, 0.02, 2.0, 2.0), observed=rows)
        theta = pm.Normal("theta", 0, 3, shape=40)
        pm.Normal("w", theta[model["y_labels"]], 0.3, observed=extra)
        drawn = pm.sample(300, tune=500, chains=2, cores=1, random_seed=1, progressbar=False)
    together = (drawn.posterior["y_labels"].values[..., :20] == drawn.posterior["y_labels"].values[..., :1]).mean()
    assert together > 0.9
    labels, theta = (drawn.posterior[name].values for name in ("y_labels", "theta"))
    effects = np.take_along_axis(theta, labels.astype(int), axis=-1).mean(axis=(0, 1))
    for own in (group == 0, group == 1):
        np.testing.assert_allclose(effects[own].mean(), extra[own].mean(), atol=0.1)
    assert np.isfinite(drawn.sample_stats["y_labels_log_joint"].values).all()


CROSSED = np.array([[0.1, 1.9, 2.2], [-0.2, 1.4, 2.6], [1.5, -0.4, 0.3]])
MEANS = np.arange(9.0).reshape(3, 3) / 9.0
INDEXED = {
    "both at once": lambda mu, c, r: mu[c[:, None], r[None, :]],
    "rows first": lambda mu, c, r: mu[c][:, r],
    "columns first": lambda mu, c, r: mu[:, r][c],
    "transposed": lambda mu, c, r: mu.T[r].T[c],
    "a function": lambda mu, c, r: (2.0 * mu / 2.0)[c[:, None], r[None, :]],
}


def crossed(form):
    """Rows and columns of a table in partitions, with a mean for every pair of clusters."""
    with pm.Model() as model:
        c, r = dp.CRP("c", 1.0, 3), dp.CRP("r", 1.5, 3)
        mu = pm.Normal("mu", MEANS, 1.0)
        pm.Normal("y", INDEXED[form](mu, c, r), 0.6, observed=CROSSED)
    return model


def crossed_posterior():
    """Probabilities of pairs of partitions: given them, the table is multivariate normal."""
    log_p = np.empty((5, 5))
    for i, rows in enumerate(partitions(3)):
        for j, columns in enumerate(partitions(3)):
            names = 3 * rows[:, None] + columns[None, :]
            covariance = 0.36 * np.eye(9) + (names.reshape(-1, 1) == names.reshape(1, -1))
            log_p[i, j] = exact.log_eppf(rows, 1.0) + exact.log_eppf(columns, 1.5)
            log_p[i, j] += multivariate_normal.logpdf(CROSSED.ravel(), MEANS.ravel()[names.ravel()], covariance)
    return normalized(log_p.ravel()).reshape(5, 5)


def drawn_of(form, n_draws, tune):
    found = sampled.sample(crossed(form), n_draws, tune=tune, chains=2, cores=1, random_seed=2).posterior
    return [np.stack([codes(chain) for chain in found[name].to_numpy()]) for name in ("c", "r")]


def test_labels_of_crossed_partitions_move():
    """One draw in eight thousand changed them while unknowns stayed where they were along other axes."""
    for drawn in drawn_of("both at once", 200, 50):
        assert np.mean(np.diff(drawn, axis=1) != 0) > 0.03


@pytest.mark.slow
@pytest.mark.parametrize("form", INDEXED)
def test_labels_index_any_axis(form):
    """Two partitions that cross, against enumeration: unknowns are renumbered along the axis of each."""
    p, known = crossed_posterior(), codes(partitions(3))
    for drawn, expected in zip(drawn_of(form, 6_000, 1_000), (p.sum(axis=1), p.sum(axis=0)), strict=True):
        is_first = (drawn == known[expected.argmax()]).astype(float)
        n_effective = float(az.ess(is_first, method="mean"))
        assert n_effective > 200
        shares = np.array([np.mean(drawn == code) for code in known])
        assert np.all(np.abs(shares - expected) < 4.0 * np.sqrt(expected * (1.0 - expected) / n_effective))


def test_where_labels_index():
    def axes_of(build, **shape):
        with pm.Model() as model:
            theta, z = pm.Normal("theta", **shape), dp.CRP("z", 1.0, 4)
            indexed = build(theta, z)
            pm.Normal("w", indexed, 1.0, observed=np.zeros((4,) * indexed.ndim))
        return Dependents(model, z, model.rvs_to_values[z], [model["w"]]).renamed

    units = np.array([0, 1, 1, 3])
    assert axes_of(lambda theta, z: theta[z], shape=4) == {"theta": [0]}
    assert axes_of(lambda theta, z: theta[z[units]], shape=4) == {"theta": [0]}
    assert axes_of(lambda theta, z: theta[0, z], shape=(2, 4)) == {"theta": [1]}
    assert axes_of(lambda theta, z: theta[:, 1][z], shape=(4, 2)) == {"theta": [0]}
    assert axes_of(lambda theta, z: theta[1, :, 0][z], shape=(2, 4, 3)) == {"theta": [1]}
    assert sorted(axes_of(lambda theta, z: theta[z[:, None], z[None, :]], shape=(4, 4))["theta"]) == [0, 1]
    assert axes_of(lambda theta, z: theta[2:][z], shape=6) == {}


def test_unknowns_that_cannot_be_renumbered_are_told_of(caplog):
    with pm.Model(), caplog.at_level("WARNING"):
        theta = pm.Normal("theta", np.arange(4.0), 1.0, transform=pm.distributions.transforms.ordered)
        pm.Normal("w", theta[dp.CRP("z", 1.0, 4)], 1.0, observed=np.zeros(4))
        dp.DPMixtureStep()
    assert "theta: unknowns that z indexes, which cannot be renumbered" in caplog.text


def test_potentials_are_not_in_the_prior_of_the_number_of_clusters():
    with pm.Model() as model:
        dp.DPMixture("y", 0.9, dp.NormalInverseGamma(**BASE), observed=ROWS)
        pm.Potential("few", -1.5 * model["y_n_clusters"].astype("float64"))
        pm.Normal("w", model["y_labels"].astype("float64"), 1.0, observed=EXTRA)
    idata = sampled.sample(model, 20, tune=20, chains=1, random_seed=1)
    with pytest.warns(UserWarning, match=r"the potentials \['few'\] change"):
        dp.n_clusters(idata, "y")
