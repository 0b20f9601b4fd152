"""What draws of partitions say of clusters: parameters, densities, members and predictions, against slow twins."""

import subprocess
import sys

import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from drawn import results
from scipy.special import gammaln
from scipy.stats import gamma, multivariate_t

import pymc_dpgmm as dp
from pymc_dpgmm.partitions.draws import seating_probabilities
from pymc_dpgmm.partitions.priors import log_eppf
from pymc_dpgmm.posterior.reading import read_labelled

RNG = np.random.default_rng(20)
ROWS = np.array([[0.1, 2.0], [1.4, 1.1], [1.2, 3.5], [-2.0, 0.3], [0.9, 1.9], [-1.5, 0.4]])
COUNTS = np.array([[0.0, 3], [1, 2], [5, 0], [2, 2], [4, 1], [0, 6]])
COVARIATES = np.column_stack([np.ones(6), [0.3, -1.2, 2.0, 0.1, 1.5, -0.4]])
LABELS = np.array([0, 1, 1, 2, 1, 0])
PSI = np.array([[1.2, 0.3], [0.3, 0.7]])
BASES = {
    "NormalInverseWishart": (dp.NormalInverseWishart([0.3, 1.0], 0.5, 4.5, [[1.2, 0.3], [0.3, 0.7]]), ROWS),
    "NormalInverseGamma": (dp.NormalInverseGamma([0.3, 1.0], [0.5, 0.9], 2.0, [1.0, 0.4]), ROWS),
    "SphericalNormalInverseGamma": (
        dp.SphericalNormalInverseGamma([0.3, 1.0], 0.5, 2.0, 0.8, [1.0, 1.7]),
        ROWS,
    ),
    "LinearRegression": (dp.LinearRegression([0.2, 0.5], [1.0, 2.0], 2.0, 1.0, COVARIATES), ROWS[:, 0]),
    "BetaBernoulli": (dp.BetaBernoulli([0.7, 1.2], 0.9), (COUNTS > 1) * 1.0),
    "BetaBinomial": (dp.BetaBinomial(0.7, [1.2, 0.4], COUNTS + 2), COUNTS),
    "GammaPoisson": (dp.GammaPoisson(1.3, [0.4, 0.9], np.linspace(0.5, 2, 6)), COUNTS),
    "DirichletMultinomial": (dp.DirichletMultinomial([0.7, 1.4]), COUNTS),
    "DirichletCategorical": (dp.DirichletCategorical([0.7, 1.4], [6, 7]), COUNTS),
    "NormalKnownVariance": (dp.NormalKnownVariance([0.3, 1.0], 1.5, np.linspace(0.1, 0.9, 6)), ROWS),
    "NormalKnownCovariance": (
        dp.NormalKnownCovariance([0.3, 1.0], [1.5, 0.8], np.linspace(0.5, 2, 6)[:, None, None] * PSI),
        ROWS,
    ),
    "SharedCovariance": (dp.SharedCovariance([0.3, 1.0], 0.5, PSI), ROWS),
    "GammaExponential": (dp.GammaExponential(1.5, [0.4, 0.9], np.arange(6) % 3 > 0), np.abs(ROWS)),
    "GammaGamma": (dp.GammaGamma(1.5, [0.4, 0.9], np.linspace(0.5, 3, 6)), np.abs(ROWS)),
    "BetaNegativeBinomial": (dp.BetaNegativeBinomial(2.5, [1.4, 3.0], np.linspace(0.5, 3, 6)), COUNTS),
    "VonMises": (dp.VonMises(0.3, 0.5, [1.5, 4.0]), np.clip(ROWS, -3.0, 3.0)),
}
PRIORS = {
    "CRP": lambda name, **kwargs: dp.DPMixture(name, 0.8, **kwargs),
    "PitmanYor": lambda name, **kwargs: dp.PYMixture(name, 0.4, 0.35, **kwargs),
    "FiniteDirichlet": lambda name, **kwargs: dp.FiniteMixture(name, 1.6, 4, **kwargs),
    "MFM": lambda name, **kwargs: dp.MFMixture(name, 0.9, **kwargs),
}


def fixed(base, data, labels=LABELS, n_draws=2, prior="CRP", **kwargs):
    """Results whose draws are all the same partition."""
    with pm.Model() as model:
        PRIORS[prior]("y", base=base, observed=data, **kwargs)
    return results(model, {"y_labels": np.tile(labels, (n_draws, 1))})


def slow_predictives(name, base, values, d, labels, x):
    """Densities of new rows x given each cluster, and a new one, as ratios of marginal likelihoods."""
    parameters = base.numbers(d)._asdict()

    def log_marginal(rows):
        return exact.LOG_MARGINALS[name](rows, **parameters)

    clusters = [values[labels == k] for k in range(labels.max() + 1)] + [values[:0]]
    return np.array([[np.exp(log_marginal(np.vstack([c, row])) - log_marginal(c)) for c in clusters] for row in x])


def with_given(name, base, data):
    d = 1 if data.ndim == 1 else data.shape[1]
    columns = data.reshape(len(data), -1)
    return np.hstack([columns, *base.given_columns(data.shape, data)]), d


def crp_seats(labels, alpha=0.8):
    weights = np.append(np.bincount(labels), alpha)
    return weights / weights.sum()


@pytest.mark.parametrize("name", BASES)
def test_density_and_membership_on_one_partition(name):
    base, data = BASES[name]
    values, d = with_given(name, base, data)
    idata = fixed(base, data)
    given = {field: value for field, value in base.given.items() if np.ndim(value)} or None
    densities = slow_predictives(name, base, values, d, LABELS, values)
    seats = crp_seats(LABELS)
    found = dp.density(idata, "y", data, given=given, random_seed=0)
    np.testing.assert_allclose(found["mean"], densities @ seats, rtol=1e-9)
    found = dp.membership(idata, "y", data, LABELS, given=given)
    joint = densities * seats
    np.testing.assert_allclose(found["probability"], (joint / joint.sum(axis=1, keepdims=True))[:, :-1], rtol=1e-9)
    np.testing.assert_allclose(found["new_cluster"], joint[:, -1] / joint.sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(found["log_density"], np.log(joint.sum(axis=1)), atol=1e-9)


@pytest.mark.parametrize("prior", PRIORS)
def test_seats_of_one_more_row(prior):
    """They are ratios of the prior on partitions of n + 1 rows."""
    draws = read_labelled(fixed(*BASES["NormalInverseGamma"], prior=prior), "y")
    (partition, *_) = draws.numbers.partitions()
    extended = [np.append(LABELS, k) for k in range(4)]
    sizes = [np.bincount(labels) for labels in extended]
    wanted = np.exp([log_eppf(partition.seats.prior, own, len(own)) for own in sizes])
    seats = seating_probabilities(partition.seats.prior, partition.sizes)
    np.testing.assert_allclose(seats, wanted / wanted.sum(), rtol=1e-10)


# The Dirichlet process stands for all in the default run.
FIRST, *OTHERS = PRIORS


@pytest.mark.parametrize("prior", [FIRST, *(pytest.param(other, marks=pytest.mark.slow) for other in OTHERS)])
def test_drawn_densities_have_the_moments_of_two_new_rows(prior):
    """The mean of f(x) is the predictive of a row, and that of f(x) f(z) of two, which may share a cluster."""
    base, rows = dp.NormalInverseGamma(0.3, 0.5, 3.0, 1.0), ROWS[:, 0]
    labels, n_draws = np.array([0, 1, 1, 2, 1, 0]), 20_000
    draws = read_labelled(fixed(base, rows, n_draws=n_draws, prior=prior), "y")
    x = np.array([-1.8, 0.2, 1.2])
    rng = np.random.default_rng(3)
    found = np.empty((n_draws, len(x)))
    for partition in draws.numbers.partitions([x[:, None]]):
        measure = partition.draw_measure(rng)
        np.testing.assert_allclose(measure.weights.sum(), 1.0, rtol=1e-12)
        (view,) = partition.views
        found[partition.draw] = (
            np.exp(view.family.component.log_density(measure.drawn[0], x[:, None])) @ (measure.weights[0])
        )
    eppf = _eppf(prior)

    def joint(new):
        """Density of new rows, over all ways to seat them."""
        ways = [labels]
        for _ in new:
            ways = [np.append(way, k) for way in ways for k in range(way.max() + 2)]
        total = 0.0
        values = np.append(rows, new)[:, None]
        for way in ways:
            log_marginal = sum(
                exact.nig_log_marginal(values[way == k], 0.3, 0.5, 3.0, 1.0) for k in range(way.max() + 1)
            )
            total += np.exp(eppf(way) + log_marginal)
        return total

    nothing = joint([])
    pairs = [(0, 0), (1, 1), (2, 2), (0, 1), (1, 2)]
    moments = [(found[:, i], joint([x[i]])) for i in range(3)]
    moments += [(found[:, i] * found[:, j], joint([x[i], x[j]])) for i, j in pairs]
    for drawn, wanted in moments:
        error = drawn.std() / np.sqrt(n_draws)
        assert abs(drawn.mean() - wanted / nothing) < 4.5 * error


def _eppf(prior):
    """Log EPPF, written anew."""

    def log_rising(x, n):
        return gammaln(x + n) - gammaln(x)

    def two_parameter(alpha, discount):
        def log_p(labels):
            sizes = np.bincount(labels)
            with np.errstate(divide="ignore"):
                opened = np.log(alpha + discount * np.arange(1, len(sizes))).sum()
            return opened - log_rising(alpha + 1, len(labels) - 1) + log_rising(1 - discount, sizes - 1).sum()

        return log_p

    def mfm(labels):
        sizes, n, k = np.bincount(labels), len(labels), labels.max() + 1
        m = np.arange(k, 400.0)
        terms = np.log(0.1) + (m - 1) * np.log(0.9) + gammaln(m + 1) - gammaln(m - k + 1) - log_rising(0.9 * m, n)
        return np.logaddexp.reduce(terms) + log_rising(0.9, sizes).sum()

    return {
        "CRP": two_parameter(0.8, 0.0),
        "PitmanYor": two_parameter(0.4, 0.35),
        "FiniteDirichlet": two_parameter(1.6, -0.4),
        "MFM": mfm,
    }[prior]


@pytest.mark.slow
def test_component_draws_on_one_partition():
    """Weights and parameters of components have their posterior given a partition."""
    base, data = BASES["NormalInverseWishart"]
    n_draws = 20_000
    idata = fixed(base, data, n_draws=n_draws)
    found = dp.component_draws(idata, "y", LABELS, random_seed=1)
    assert found["covariance"].dims == ("chain", "draw", "cluster", "y_column", "y_column_2")
    sizes = np.bincount(LABELS)
    each = ("chain", "draw")
    # Weights are Dirichlet.
    shapes = np.append(sizes, 0.8)
    weights = np.column_stack([found["weight"].stack(s=each).T, found["new_weight"].stack(s=each)])
    a, total = shapes / shapes.sum(), shapes.sum()
    np.testing.assert_allclose(
        weights.mean(axis=0), a, atol=5 * np.sqrt(a * (1 - a) / (total + 1) / n_draws).max()
    )
    np.testing.assert_allclose(weights.var(axis=0), a * (1 - a) / (total + 1), rtol=0.08)
    np.testing.assert_allclose(found["other_weight"], 0.0)
    np.testing.assert_allclose(found["overlap"], 1.0)
    for k in range(3):
        rows, n = ROWS[k == LABELS], sizes[k]
        kappa_n, nu_n = 0.5 + n, 4.5 + n
        mu = (0.5 * np.array([0.3, 1.0]) + rows.sum(axis=0)) / kappa_n
        m0 = np.array([0.3, 1.0])
        psi = (
            np.array([[1.2, 0.3], [0.3, 0.7]])
            + 0.5 * np.outer(m0, m0)
            + rows.T @ rows
            - kappa_n * np.outer(mu, mu)
        )
        mean = found["mean"].sel(cluster=k).stack(s=each).transpose("s", ...).to_numpy()
        covariance = found["covariance"].sel(cluster=k).stack(s=each).transpose("s", ...).to_numpy()
        spread = psi / (nu_n - 3)
        errors = np.sqrt(np.diag(spread) / kappa_n / n_draws)
        assert np.all(np.abs(mean.mean(axis=0) - mu) < 4.5 * errors)
        errors = covariance.std(axis=0) / np.sqrt(n_draws)
        assert np.all(np.abs(covariance.mean(axis=0) - spread) < 4.5 * errors)
        # The mean is a t: its quantiles, not its moments alone.
        scale = np.sqrt(psi[0, 0] / kappa_n / (nu_n - 1))
        below = np.mean(mean[:, 0] < mu[0] + scale * 1.5)
        wanted = multivariate_t(0, 1, df=nu_n - 1).cdf(1.5)
        assert abs(below - wanted) < 4.5 * np.sqrt(wanted * (1 - wanted) / n_draws)


def test_alignment_and_ragged_draws():
    base, data = BASES["NormalInverseGamma"]
    with pm.Model() as model:
        dp.DPMixture("y", 0.8, base, observed=data)
    labels = np.array([[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0], [0, 1, 1, 2, 2, 2], [0, 0, 0, 1, 1, 2]])
    idata = results(model, {"y_labels": labels})
    found = dp.component_draws(idata, "y", [0, 0, 0, 1, 1, 1], random_seed=0)
    overlap = found["overlap"].to_numpy().reshape(4, 2)
    np.testing.assert_allclose(overlap, [[1, 1], [1, 1], [2 / 3, 1], [1, 2 / 3]])
    united = found.isel(chain=0, draw=1)
    np.testing.assert_array_equal(united["mean"][0], united["mean"][1])
    total = found["weight"].sum("cluster") + found["other_weight"] + found["new_weight"]
    np.testing.assert_allclose(total.to_numpy().ravel()[[0, 2, 3]], 1.0)
    ragged = dp.component_draws(idata, "y", ragged=True, random_seed=0)
    assert ragged.sizes["component"] == 2 + 1 + 3 + 3
    np.testing.assert_array_equal(ragged["size"], [3, 3, 6, 1, 2, 3, 3, 2, 1])
    np.testing.assert_array_equal(ragged["component_chain"], [0] * 3 + [1] * 6)
    np.testing.assert_array_equal(ragged["label"], [0, 1, 0, 0, 1, 2, 0, 1, 2])
    again = dp.component_draws(idata, "y", ragged=True, random_seed=0)
    xr.testing.assert_identical(ragged, again)


def test_averages_over_partitions():
    """Over draws of many partitions: what new rows say of the partition counts in their membership."""
    base = dp.NormalInverseGamma(0.3, 0.5, 2.0, 0.6)
    rows, x = ROWS[:5, 0], np.array([0.7, -1.7, 6.0])
    everything = exact.partitions(5)
    counts = RNG.integers(0, 9, size=len(everything))
    counts[0] += counts.sum() % 2
    draws = np.repeat(everything, counts, axis=0)
    with pm.Model() as model:
        dp.DPMixture("y", 0.8, base, observed=rows)
    idata = results(model, {"y_labels": draws})
    reference = np.array([0, 1, 1, 0, 1])
    joint = np.zeros((3, 3))
    for labels, count in zip(everything, counts, strict=True):
        predictive = slow_predictives("NormalInverseGamma", base, rows[:, None], 1, labels, x[:, None])
        seated = predictive * crp_seats(labels) * count
        joint[:, :2] += seated[:, :-1] @ exact.shares_of_reference(labels, reference)
        joint[:, 2] += seated[:, -1]
    found = dp.membership(idata, "y", x, reference)
    wanted = joint / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["probability"], wanted[:, :2], rtol=1e-9)
    np.testing.assert_allclose(found["new_cluster"], wanted[:, 2], rtol=1e-9)
    mean = dp.density(idata, "y", x, random_seed=0)["mean"]
    np.testing.assert_allclose(mean, joint.sum(axis=1) / counts.sum(), rtol=1e-9)
    np.testing.assert_allclose(np.exp(found["log_density"]), mean, rtol=1e-9)


@pytest.mark.parametrize(
    "name", ["NormalInverseWishart", "NormalInverseGamma", "SphericalNormalInverseGamma", "BetaBernoulli"]
)
def test_marginal_densities_integrate_the_joint_one(name):
    base, data = BASES[name]
    idata = fixed(base, data)
    points = np.array([0.0, 1.0])
    marginal = dp.density(idata, "y", points, columns=0, random_seed=0)
    grid = np.array([0.0, 1.0]) if name == "BetaBernoulli" else np.linspace(-150, 150, 60_001)
    step = 1.0 if name == "BetaBernoulli" else grid[1] - grid[0]
    for point, mean in zip(points, marginal["mean"].to_numpy(), strict=True):
        joint = dp.density(idata, "y", np.column_stack([np.full(len(grid), point), grid]), random_seed=0)["mean"]
        np.testing.assert_allclose(float(joint.sum()) * step, mean, rtol=1e-4)


def test_missing_entries_of_new_rows():
    base, data = BASES["NormalInverseGamma"]
    idata = fixed(base, data)
    row = np.array([[0.4, np.nan], [np.nan, np.nan]])
    found = dp.membership(idata, "y", row, LABELS)
    one = dp.NormalInverseGamma(0.3, 0.5, 2.0, 1.0)
    densities = slow_predictives("NormalInverseGamma", one, ROWS[:, :1], 1, LABELS, row[:1, :1])
    joint = densities[0] * crp_seats(LABELS)
    np.testing.assert_allclose(found["probability"][0], joint[:-1] / joint.sum(), rtol=1e-9)
    np.testing.assert_allclose(found["probability"][1], crp_seats(LABELS)[:-1], rtol=1e-9)


@pytest.mark.slow
def test_pointwise_log_likelihoods_average_to_the_density():
    """What is stored for leave-one-out is the density that dp.density averages."""
    base, data = BASES["GammaPoisson"]
    n_draws = 20_000
    idata = fixed(base, data, n_draws=n_draws)
    returned = dp.log_likelihood(idata, "y", random_seed=2)
    assert returned is idata
    pointwise = np.exp(idata["log_likelihood"]["y"].stack(s=("chain", "draw")).to_numpy())
    values, d = with_given("GammaPoisson", base, data)
    wanted = slow_predictives("GammaPoisson", base, values, d, LABELS, values) @ crp_seats(LABELS)
    error = pointwise.std(axis=1) / np.sqrt(n_draws)
    assert np.all(np.abs(pointwise.mean(axis=1) - wanted) < 4.5 * error)


def test_hyperparameters_offsets_units_and_missing_entries():
    """Numbers that differ between draws, against what each draw gives with these numbers fixed."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(6, 2)) * [1, 2]
    gaps = rows.copy()
    gaps[1, 0] = gaps[4, 1] = np.nan
    unit = np.array(["b", "a", "b", "c", "a", "c"])
    with pm.Model() as model:
        alpha = pm.HalfNormal("alpha", 1.0)
        kappa = pm.HalfNormal("kappa", 1.0)
        shift = pm.Normal("shift", 0.0, 1.0)
        base = dp.NormalInverseWishart([0.0, 0.5], kappa, 4.0, np.eye(2) * (1 + kappa))
        dp.DPMixture(
            "y", 2 * alpha, base, observed=gaps, offset=pm.Deterministic("eta", shift * np.ones((6, 2))), unit=unit
        )
    labels = np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0], [0, 1, 2]])
    draws = {
        "y_labels": labels,
        "alpha": rng.gamma(2.0, size=4),
        "kappa": rng.gamma(2.0, size=4),
        "shift": rng.normal(size=4),
        "y_missing": rng.normal(size=(4, 2)),
    }
    draws["eta"] = draws["shift"][:, None, None] * np.ones((4, 6, 2))
    draws["y_labels_alpha"] = 2 * draws["alpha"]
    draws["y_psi"] = np.eye(2) * (1 + draws["kappa"])[:, None, None]
    idata = results(model, draws)
    x = rng.normal(size=(3, 2))
    total = np.zeros(3)
    number = np.array([1, 0, 1, 2, 0, 2])
    for s in range(4):
        completed = gaps.copy()
        completed[1, 0], completed[4, 1] = draws["y_missing"][s]
        values = completed - draws["shift"][s]
        fixed_base = dp.NormalInverseWishart([0.0, 0.5], draws["kappa"][s], 4.0, draws["y_psi"][s])
        predictive = slow_predictives("NormalInverseWishart", fixed_base, values, 2, labels[s][number], x)
        total += predictive @ crp_seats(labels[s], 2 * draws["alpha"][s])
    found = dp.density(idata, "y", x, random_seed=0)
    np.testing.assert_allclose(found["mean"], total / 4, rtol=1e-9)
    drawn = dp.component_draws(idata, "y", [0, 0, 1], random_seed=0)
    assert drawn["mean"].dims == ("chain", "draw", "cluster", "y_column")
    assert drawn["reference"].dims == ("y_unit",)
    pointwise = dp.log_likelihood(idata, "y", extend_inferencedata=False, random_seed=0)["log_likelihood"]["y"]
    assert pointwise.dims == ("chain", "draw", "y_unit")


def test_what_has_no_name_needs_the_model():
    rows = ROWS[:, 0]
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.0)
        x = pm.Data("x", ROWS[:, 1])
        dp.DPMixture("y", 0.8, dp.NormalInverseGamma(0.3, 0.5, 2.0, 0.6), observed=rows, offset=slope * x)
    draws = {"y_labels": np.array([LABELS, LABELS]), "slope": np.array([0.3, -0.7])}
    idata = results(model, draws)
    with pytest.raises(ValueError, match=r"the offset of y is an expression without a name, .* pass model="):
        dp.density(idata, "y", [0.3])
    with model:
        # The draws are of the data before.
        pm.set_data({"x": np.zeros(6)})
    found = dp.density(idata, "y", [0.3], model=model, random_seed=0)["mean"]
    wanted = [
        slow_predictives(
            "NormalInverseGamma",
            dp.NormalInverseGamma(0.3, 0.5, 2.0, 0.6),
            (rows - slope * ROWS[:, 1])[:, None],
            1,
            LABELS,
            np.array([[0.3]]),
        )
        @ crp_seats(LABELS)
        for slope in draws["slope"]
    ]
    np.testing.assert_allclose(found, np.mean(wanted, axis=0), rtol=1e-9)


def test_categories_of_new_rows_are_those_of_the_data():
    """A frame of new rows has other categories, and its own codes for them."""
    texts = pd.DataFrame({"colour": list("rgbrgr"), "size": pd.Categorical(list("SLLSSL"), ["S", "M", "L"])})
    with pytest.warns(UserWarning, match=r"1 of the 3 levels of column 'size' of observed: \['M'\]. They keep"):
        idata = fixed(dp.DirichletCategorical.from_data(texts), texts)
    new = pd.DataFrame({"size": ["L", "M"], "colour": ["r", "g"]})
    found = dp.membership(idata, "y", new, LABELS)
    # A model of codes, whose new rows are codes.
    coded = fixed(dp.DirichletCategorical(1.0, [3, 3]), idata["observed_data"]["y"].to_numpy())
    wanted = dp.membership(coded, "y", [[2.0, 2.0], [1.0, 1.0]], LABELS)
    np.testing.assert_array_equal(found["probability"], wanted["probability"])
    # Numbers are no names, and what the message says works.
    with pytest.raises(
        ValueError, match=r"there are \[1.0, 2.0\]: give the names; codes become names with"
    ) as refused:
        dp.membership(idata, "y", [[2.0, 2.0], [1.0, 1.0]], LABELS)
    written = str(refused.value).rpartition("with ")[2]
    colours = eval(written, {"pandas": pd, "codes": [2, 1]})
    xr.testing.assert_identical(dp.membership(idata, "y", new.assign(colour=colours), LABELS), found)
    # One row of a table is a Series.
    one = dp.membership(idata, "y", new.iloc[1], LABELS)
    xr.testing.assert_identical(one, found.isel(new_row=[1]))
    with pytest.raises(ValueError, match=r"'colour' of new rows has the categories .* but there are \['x'\]"):
        dp.membership(idata, "y", new.assign(colour="x"), LABELS)


def test_views_together_and_each_alone():
    counts, binary = BASES["GammaPoisson"][1], BASES["BetaBernoulli"][1]
    poisson, bernoulli = dp.GammaPoisson(1.3, [0.4, 0.9]), dp.BetaBernoulli([0.7, 1.2], 0.9)
    with pm.Model() as model:
        dp.DPMixture("t", 0.8, base={"a": poisson, "b": bernoulli}, observed={"a": counts, "b": binary})
    idata = results(model, {"t_labels": np.tile(LABELS, (2, 1))})
    values = {"a": with_given("GammaPoisson", poisson, counts)[0], "b": binary}
    of_a = slow_predictives("GammaPoisson", poisson, values["a"], 2, LABELS, values["a"])
    of_b = slow_predictives("BetaBernoulli", bernoulli, binary, 2, LABELS, binary)
    # Views are told apart by their names, in whatever order they are given.
    both = of_a * of_b
    given = [({"a": counts, "b": binary}, both), ({"b": binary, "a": counts}, both), ({"b": binary}, of_b)]
    for x, densities in given:
        joint = densities * crp_seats(LABELS)
        found = dp.membership(idata, "t", x, LABELS)
        np.testing.assert_allclose(found["new_cluster"], joint[:, -1] / joint.sum(axis=1), rtol=1e-9)
    np.testing.assert_allclose(
        dp.density(idata, "t_b", binary, random_seed=0)["mean"], of_b @ crp_seats(LABELS), rtol=1e-9
    )
    drawn = dp.component_draws(idata, "t", LABELS, random_seed=0)
    assert {"t_a_rate", "t_b_probability", "weight"} <= set(drawn)
    assert set(dp.component_draws(idata, "t_a", LABELS, random_seed=0)) >= {"rate"}
    assert "t" in dp.log_likelihood(idata, "t", random_seed=0)["log_likelihood"]
    with pytest.raises(ValueError, match=r"has several views: choose .* or name one of"):
        dp.density(idata, "t", counts)
    with pytest.raises(ValueError, match=r"no labels of 'a' .* mixtures on them named \['t_a', 't_b'\]"):
        dp.density(idata, "a", counts)
    with pytest.raises(
        ValueError, match=r"^\['c'\] is no view or column: .* a dict of some of the views \['a', 'b'\]"
    ):
        dp.membership(idata, "t", {"c": counts}, LABELS)


def test_errors_say_what_is_there():
    base, data = BASES["NormalInverseWishart"]
    idata = fixed(base, data)
    with pytest.raises(ValueError, match=r"no labels of 'z' .* \['y_labels'\]"):
        dp.density(idata, "z", data)
    with pytest.raises(ValueError, match=r"shape \(m, 2\) for the columns \[0, 1\], got \(1, 3\)"):
        dp.density(idata, "y", [[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match=r"new rows of y must have shape \(m, 2\) for .*, got \(1, 3\)"):
        dp.membership(idata, "y", [[1.0, 2.0, 3.0]], LABELS)
    with pytest.raises(ValueError, match=r"there is no column 'w', only \[0, 1\]"):
        dp.density(idata, "y", [1.0], columns="w")
    with pytest.raises(ValueError, match=r"probability must lie in \(0, 1\), got 1.5"):
        dp.density(idata, "y", data, probability=1.5)
    frame = pd.DataFrame({"v": [2.0], "u": [1.0]})
    named = fixed(base, pd.DataFrame(data, columns=["u", "v"]))
    xr.testing.assert_identical(
        dp.membership(named, "y", frame, LABELS), dp.membership(named, "y", [[1.0, 2.0]], LABELS)
    )
    # A column of another name is none of the data's, whose own is then unknown.
    with pytest.warns(
        UserWarning, match=r"columns \['w'\] of the new rows are not used: they are none of \['u', 'v'\]"
    ):
        found = dp.membership(named, "y", frame.rename(columns={"u": "w"}), LABELS)
    xr.testing.assert_identical(found, dp.membership(named, "y", [[np.nan, 2.0]], LABELS))
    with pytest.raises(
        ValueError, match=r"column 0 must have codes 0..5, for the 6 levels of the base measure, got 7.0"
    ):
        dp.membership(fixed(*BASES["DirichletCategorical"]), "y", [[7.0, 0.0]], LABELS)
    without = xr.DataTree.from_dict({"posterior": idata["posterior"].to_dataset()})
    with pytest.raises(ValueError, match="no records of mixtures in its group constant_data"):
        dp.density(without, "y", data)
    base, data = BASES["LinearRegression"]
    idata = fixed(base, data)
    with pytest.raises(ValueError, match=r"need \['covariates'\]: pass given="):
        dp.density(idata, "y", [0.3])
    with pytest.raises(ValueError, match=r"given must have \['covariates'\] for y, got \['x'\]"):
        dp.density(idata, "y", [0.3], given={"x": [1.0]})
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        dp.DPMixture("y", alpha, BASES["NormalInverseWishart"][0], observed=ROWS)
    idata = results(model, {"y_labels": np.tile(LABELS, (2, 1))})
    with pytest.raises(ValueError, match=r"alpha is not among the stored variables \(y_labels\)"):
        dp.component_draws(idata, "y", LABELS)


@pytest.mark.slow
def test_sampled_densities_and_members_against_enumeration():
    """What pm.sample and the functions find together, with a random alpha, is known for six rows."""
    rows, x, base = ROWS[:, 0], np.array([0.5, -1.8, 4.0]), dp.NormalInverseGamma(0.3, 0.5, 2.0, 0.6)
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 2.0, 2.0), base, observed=rows)
        idata = pm.sample(draws=5_000, tune=500, chains=4, progressbar=False, random_seed=4)
    # A fine grid of alpha stands for its prior.
    alphas = gamma(2.0, scale=0.5).ppf((np.arange(2_000) + 0.5) / 2_000)
    parameters = base.numbers(1)._asdict()

    def log_joint(values):
        """Log prior times likelihood of all partitions of some values, for each alpha."""
        everything = exact.partitions(len(values))
        of_data = exact.log_likelihoods(everything, values[:, None], exact.nig_log_marginal, **parameters)
        sizes = [np.bincount(labels) for labels in everything]
        k, within = np.array([len(own) for own in sizes]), np.array([gammaln(own).sum() for own in sizes])
        rising = gammaln(alphas) - gammaln(alphas + len(values))
        return everything, of_data + within + np.log(alphas)[:, None] * k + rising[:, None]

    reference = LABELS
    evidence = np.logaddexp.reduce(log_joint(rows)[1].ravel())
    density, members = dp.density(idata, "y", x, random_seed=0), dp.membership(idata, "y", x, reference)
    for i, value in enumerate(x):
        everything, extended = log_joint(np.append(rows, value))
        weights = np.exp(np.logaddexp.reduce(extended, axis=0) - evidence)
        wanted = np.zeros(4)
        for labels, weight in zip(everything, weights, strict=True):
            if np.any(labels[:-1] == labels[-1]):
                wanted[:3] += weight * exact.shares_of_reference(labels[:-1], reference)[labels[-1]]
            else:
                wanted[3] += weight
        # The mean of twenty thousand draws; effective ones are a few times fewer.
        np.testing.assert_allclose(density["mean"][i], wanted.sum(), rtol=0.02)
        found = np.append(members["probability"][i], members["new_cluster"][i])
        np.testing.assert_allclose(found, wanted / wanted.sum(), atol=0.015)


def test_thinned_labels_take_numbers_of_their_own_draws():
    with pm.Model() as model:
        kappa = pm.Gamma("kappa", 2.0, 2.0)
        dp.DPMixture("y", 0.8, dp.NormalInverseGamma(0.3, kappa, 2.0, 0.6), observed=ROWS[:, 0])
    kappas = np.linspace(0.1, 3.0, 10)
    idata = results(model, {"y_labels": np.tile(LABELS, (10, 1)), "kappa": kappas})
    labels = idata["posterior"].dataset[["y_labels"]].sel(draw=[1, 4])
    idata["thinned"] = xr.DataTree(labels)
    idata["posterior"] = xr.DataTree(idata["posterior"].dataset.drop_vars("y_labels"))
    found = dp.density(idata, "y", [0.5], random_seed=0)["mean"]
    wanted = [
        slow_predictives(
            "NormalInverseGamma",
            dp.NormalInverseGamma(0.3, kappas[s], 2.0, 0.6),
            ROWS[:, :1],
            1,
            LABELS,
            np.array([[0.5]]),
        )
        @ crp_seats(LABELS)
        for s in (1, 4, 6, 9)
    ]
    np.testing.assert_allclose(found, np.mean(wanted, axis=0), rtol=1e-9)


def test_from_a_file_in_another_process(tmp_path):
    with pm.Model(coords={"sample": list("abcdef"), "gene": ["u", "v"]}) as model:
        kappa = pm.Gamma("kappa", 2.0, 2.0)
        base = dp.NormalInverseWishart([0.3, 1.0], kappa, 4.5, [[1.2, 0.3], [0.3, 0.7]])
        dp.MFMixture("y", 0.9, base, observed=ROWS, dims=("sample", "gene"))
    idata = results(model, {"y_labels": np.tile(LABELS, (2, 1)), "kappa": np.array([0.5, 1.5])})
    path = tmp_path / "draws.nc"
    idata.to_netcdf(path)
    program = f"""
import xarray as xr
import pymc_dpgmm as dp
idata = xr.open_datatree({str(path)!r}).load()
density = dp.density(idata, "y", [[0.5, 1.5]], random_seed=0)
print(repr(float(density["mean"][0])))
print(dp.component_draws(idata, "y", random_seed=0)["mean"].dims)
print(dp.density(idata, "y", columns="v", random_seed=0)["mean"].shape)
"""
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    mean, dims, shape = printed.splitlines()
    assert float(mean) == float(dp.density(idata, "y", [[0.5, 1.5]], random_seed=0)["mean"][0])
    assert dims == "('chain', 'draw', 'cluster', 'gene')"
    assert shape == "(200,)"


@pytest.mark.parametrize("family", ["spherical", "categorical"])
def test_densities_of_some_columns_while_clusters_become_more(family):
    """Families without draws of missing entries, in draws with ever more clusters."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        if family == "spherical":
            data = rng.normal(size=(30, 2))
            dp.DPMixture("y", 1.0, dp.SphericalNormalInverseGamma.from_data(data), observed=data)
        else:
            data = rng.integers(0, 3, size=(30, 2))
            dp.DPMixture("y", 1.0, dp.DirichletCategorical(1.0, [3, 3]), observed=data)
    labels = np.array([np.arange(30) % k for k in (1, 2, 5, 12, 25, 30)])
    idata = results(model, {"y_labels": np.concatenate([labels, labels])})
    new = np.array([[1.0, np.nan], [np.nan, 2.0]])
    found = dp.membership(idata, "y", new, np.arange(30) % 2)
    np.testing.assert_allclose(found["probability"].sum("cluster") + found["new_cluster"], 1.0)


def test_parameters_of_rows_are_those_of_their_clusters():
    """Rows of a cluster share them in every draw, and their mean is the posterior mean of the cluster."""
    base, data = BASES["NormalKnownVariance"]
    times = 4_000
    idata = fixed(base, data, n_draws=times)
    found = dp.row_parameters(idata, "y", n_draws=times, random_seed=1)
    assert found["mean"].dims[:2] == ("chain", "draw")
    of_rows = found["mean"].stack(sample=("chain", "draw")).transpose("sample", ...).to_numpy()
    np.testing.assert_array_equal(of_rows[:, [1, 2]], of_rows[:, [4, 1]])
    precision = 1.0 / np.linspace(0.1, 0.9, 6)[:, None]
    for k in range(3):
        own = k == LABELS
        total = 1.0 / 1.5 + precision[own].sum()
        weighted = (precision[own] * data[own]).sum(axis=0)
        wanted = (np.array([0.3, 1.0]) / 1.5 + weighted) / total
        error = 4.0 * np.sqrt(1.0 / total / len(of_rows))
        assert np.all(np.abs(of_rows[:, own].mean(axis=0) - wanted) < error)
    few = dp.row_parameters(idata, "y", n_draws=7, random_seed=1)
    n_chains = idata.posterior.sizes["chain"]
    assert (few.sizes["chain"], few.sizes["draw"]) == (n_chains, 7 // n_chains)
    assert set(few["draw"].to_numpy()) <= set(idata.posterior["draw"].to_numpy())


def test_atoms_that_are_matrices_have_two_dimensions():
    labels = np.tile(LABELS, (4, 1))
    atoms = np.arange(3.0)[:, None, None] + np.array([[0.0, 0.1], [0.2, 0.3]])
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(np.zeros((2, 2)), 1.0), shape=6)
        pm.Normal("y", theta.sum((1, 2)), 1.0, observed=ROWS[:, 0])
    idata = results(model, {"theta_labels": labels, "theta": np.tile(atoms[LABELS], (4, 1, 1, 1))})
    found = dp.component_draws(idata, "theta", LABELS, random_seed=1)["theta"]
    assert found.dims[3:] == ("theta_atoms_column", "theta_atoms_e")
    np.testing.assert_array_equal(found[0, 0], atoms)
    assert dp.summary(idata, "theta", LABELS).clusters["theta[1, 0]"].tolist() == [0.2, 1.2, 2.2]
