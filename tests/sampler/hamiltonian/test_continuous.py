"""All that is continuous moves together given the labels: exact draws stay exact, quadrature, planted mistakes."""

import dataclasses

import arviz as az
import exact
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import sampled
from numpy.polynomial.hermite_e import hermegauss
from pytensor.gradient import grad_not_implemented
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy import stats
from scipy.special import logsumexp
from slowly import rest_slow

import pymc_dpgmm as dp
from pymc_dpgmm.integration.continuous.normal_clusters import CLUSTERS_OF_FAMILIES, NormalClusters
from pymc_dpgmm.integration.continuous.rows import can_move
from pymc_dpgmm.integration.steps import continuous
from pymc_dpgmm.native.array_calls import PythonCall
from pymc_dpgmm.partitions.draws import draw_labels
from pymc_dpgmm.sampler.hamiltonian import normal_clusters
from pymc_dpgmm.sampler.hamiltonian.adaptation import AdaptedScales, Directions, StepSize, stretched
from pymc_dpgmm.sampler.hamiltonian.no_u_turn import NoUTurn

NIG = {"mu": 0.4, "kappa": 0.3, "a": 2.5, "b": 0.8}

# --- The No-U-Turn sampler alone

MEAN, COVARIANCE = np.array([1.0, -2.0, 0.5]), np.array([[2.0, 0.9, 0.0], [0.9, 1.0, 0.3], [0.0, 0.3, 0.5]])
PRECISION = np.linalg.inv(COVARIANCE)


def normal_density(x):
    moved = x - MEAN
    return [np.asarray(-0.5 * moved @ PRECISION @ moved), -PRECISION @ moved, 2.0 * x]


def sampler_of(density, rng, max_depth=10, n=3):
    return NoUTurn(rng, PythonCall(density, [(np.dtype(np.float64), 1)]), [], [], [n], max_depth)


@pytest.mark.parametrize(
    ("size", "max_depth", "displacements"),
    [(0.5, 10, []), (0.9, 10, []), (0.1, 2, []), (0.5, 10, [[1.0, 0.5, 0.2], [0.0, 1.0, -1.0]])],
)
def test_draws_have_the_moments_of_a_density(size, max_depth, displacements):
    """Also where trajectories are cut short, where many steps are rejected, and stretched along directions."""
    directions = stretched(np.array(displacements).reshape(-1, 3))
    sampler, n_draws = sampler_of(normal_density, np.random.default_rng(3), max_depth), 6_000
    draws, rates, squares = np.empty((n_draws, 3)), np.empty(n_draws), []
    numbers, scales = sampler.begin(3)
    numbers[:], scales[:] = MEAN, [1.0, 0.7, 0.8]
    for t in range(n_draws):
        told = sampler.draw(size, 10, *directions)
        draws[t], rates[t] = numbers, told.acceptance_rate
        squares.append(told.n_steps)
        assert told.log_p == pytest.approx(float(normal_density(numbers)[0]))
        np.testing.assert_allclose(sampler.gradient(3), normal_density(numbers)[1])
        np.testing.assert_allclose(sampler.further[0], 2.0 * numbers)
        assert told.depth <= max_depth
        assert told.n_steps <= 2 ** (told.depth + 1)
    for moment, expected in ((draws, MEAN), ((draws - MEAN) ** 2, np.diag(COVARIANCE))):
        for j in range(3):
            sampled.assert_mean_matches(moment[None, :, j], expected[j])
    products = (draws[:, 0] - MEAN[0]) * (draws[:, 1] - MEAN[1])
    sampled.assert_mean_matches(products[None], 0.9)
    assert 0.5 < rates.mean() < 1.0


def test_trajectories_that_diverge_are_told_of():
    """A number whose log density is none beyond a bound, and a scale that is far too large."""

    def bounded(x):
        inside = np.all(np.abs(x) < 3.0)
        return [np.asarray(-0.5 * x @ x if inside else np.nan), -x if inside else np.full(3, np.nan), x]

    sampler = sampler_of(bounded, np.random.default_rng(3))
    numbers, scales = sampler.begin(3)
    numbers[:], scales[:] = 0.5, 1.0
    told = [sampler.draw(0.9, 10) for _ in range(400)]
    assert any(one.is_diverging for one in told)
    assert sum(one.n_impossible for one in told) > 0
    assert np.all(np.abs(numbers) < 3.0)
    numbers[:] = 4.0
    assert sampler.draw(0.9, 10) is None


def test_numbers_without_a_scale_stay():
    sampler = sampler_of(normal_density, np.random.default_rng(3))
    numbers, scales = sampler.begin(3)
    numbers[:], scales[:] = MEAN, [1.0, 0.0, 1.0]
    depths = [sampler.draw(0.5, 10).depth for _ in range(200)]
    assert numbers[1] == MEAN[1]
    assert numbers[0] != MEAN[0]
    assert max(depths) < 6


def test_errors_of_a_density_are_raised():
    def failing(x):
        raise ValueError("no density")

    sampler = sampler_of(failing, np.random.default_rng(3))
    sampler.begin(3)
    with pytest.raises(ValueError, match="no density"):
        sampler.draw(0.5, 10)


def test_sizes_and_scales_are_learnt():
    """Standard deviations from 0.001 to 1,000, and the acceptance rate that is wanted."""
    deviations, rng = np.array([1e-3, 1.0, 1e3]), np.random.default_rng(5)

    def density(x):
        return [np.asarray(-0.5 * np.sum((x / deviations) ** 2)), -x / deviations**2, x]

    sampler, size, scales = sampler_of(density, rng), StepSize(0.8), AdaptedScales(3, 1_000)
    rates = []
    for t in range(1_600):
        numbers, own = sampler.begin(3)
        own[:] = scales.scales
        told = sampler.draw(size.size, 10)
        rates.append(told.acceptance_rate)
        if t < 1_000:
            size.learn(told.acceptance_rate)
            if scales.learn(numbers, sampler.gradient(3)):
                size.restart()
        if t == 999:
            size.end()
            learnt = scales.scales
    np.testing.assert_allclose(learnt, deviations, rtol=0.25)
    assert 0.7 < np.mean(rates[1_000:]) < 0.92


def test_a_level_that_many_numbers_share_is_learnt():
    """Of sixty standard normal numbers with a common level, whose standard deviation is 8."""
    n, rng = 60, np.random.default_rng(5)
    level = np.ones(n)
    precision = np.eye(n) - np.outer(level, level) * 64.0 / (1.0 + 64.0 * n)

    def density(x):
        return [np.asarray(-0.5 * x @ precision @ x), -precision @ x, x]

    effective = {}
    for has_directions in (False, True):
        sampler, size, scales = sampler_of(density, rng, n=n), StepSize(0.8), AdaptedScales(n, 1_000)
        directions, levels = Directions(1_000), []
        for t in range(2_000):
            numbers, own = sampler.begin(n)
            own[:] = scales.scales
            told = sampler.draw(size.size, 10, *stretched(directions.found.reshape(-1, n) / scales.scales))
            levels.append(numbers.mean())
            if t < 1_000:
                size.learn(told.acceptance_rate)
                if has_directions:
                    directions.learn(numbers.copy())
                if scales.learn(numbers, sampler.gradient(n)):
                    scales.scales = directions.update(scales.scales)
                    size.restart()
            if t == 999:
                size.end()
        effective[has_directions] = float(az.ess(np.array(levels[1_000:])[None]))
        if has_directions:
            (found,) = directions.found
            assert abs(found @ level) / np.linalg.norm(found) / np.sqrt(n) > 0.98
            np.testing.assert_allclose(scales.scales, 1.0, rtol=0.5)
    assert effective[True] > 5.0 * effective[False]


def test_numbers_that_stay_or_go_their_own_ways_have_no_directions():
    rng, directions = np.random.default_rng(5), Directions(1_000)
    for numbers in (np.ones((100, 60)), rng.normal(size=(100, 60)), rng.normal(size=(100, 4_000))):
        for own in numbers:
            directions.learn(own)
        scales = np.ones(numbers.shape[1])
        np.testing.assert_array_equal(directions.update(scales), scales)
        assert len(directions.found) == 0


# --- The move alone, from exact draws: it leaves the joint distribution as it is

N_ROWS, TIMES = 6, np.linspace(-1.0, 1.0, 6)
UNIT = np.array([0, 0, 1, 2, 2, 2])
BASES = {
    "columns": lambda mu, b: dp.NormalInverseGamma(mu, 0.5, 3.0, b * np.array([1.5, 0.5])),
    "correlated": lambda mu, b: dp.NormalInverseWishart(mu, 0.5, 8.0, b * np.array([[6.0, 4.0], [4.0, 5.0]])),
}


def model_of(base, data, unit=None):
    """Rows with two columns; mean and scale of the base, a slope, a noise and an offset are random."""
    with pm.Model() as model:
        mu, b = pm.Normal("mu", shape=2), pm.LogNormal("b", 0.0, 0.5)
        slope, noise = pm.Normal("slope"), pm.HalfNormal("noise", 0.5)
        labels = dp.CRP("x_labels", 1.1, N_ROWS if unit is None else 3)
        offset = pt.stack([slope * TIMES, pt.zeros(N_ROWS)], axis=1)
        x = dp.CollapsedMixture(
            "x",
            labels if unit is None else labels[unit],
            BASES[base](mu, b),
            shape=(N_ROWS, 2),
            offset=offset,
        )
        y = pm.Data("data", data)
        pm.Potential("seen", pm.logp(pm.Laplace.dist(x[:, 0] + 0.5 * x[:, 1], 0.2 + noise), y).sum())
    return model


def draw_all(rng, base, unit):
    """Labels, all variables, rows and data, drawn one after the other."""
    mu, b, slope = rng.normal(size=2), np.exp(0.5 * rng.normal()), rng.normal()
    noise = abs(0.5 * rng.normal())
    labels = draw_labels(rng, 1.1, 0.0, np.inf, N_ROWS if unit is None else 3)
    measure = BASES[base](mu, b)
    own = labels if unit is None else labels[unit]
    rows = measure.family.draw_rows(rng, measure.numbers(2), own, np.empty((N_ROWS, 0)))
    rows = rows + np.column_stack([slope * TIMES, np.zeros(N_ROWS)])
    data = rng.laplace(rows[:, 0] + 0.5 * rows[:, 1], 0.2 + noise)
    point = {"mu": mu, "b_log__": np.log(b), "slope": slope, "noise_log__": np.log(noise), "x": rows}
    return {name: np.asarray(value) for name, value in point.items()}, labels, data


def moments(point, data):
    x, tanh = point["x"], np.tanh
    noise = 0.2 + np.exp(point["noise_log__"])
    return [
        tanh(point["mu"][0]),
        tanh(point["mu"][0]) * tanh(point["mu"][1]),
        tanh(point["b_log__"]),
        tanh(point["b_log__"]) ** 2,
        tanh(point["slope"]),
        tanh(point["slope"]) * tanh(x[0, 0] - x[5, 0]),
        tanh(point["noise_log__"]),
        tanh(noise) * tanh(np.abs(data - x[:, 0] - 0.5 * x[:, 1]).mean()),
        tanh(x[0, 0]) * tanh(x[1, 1]),
        tanh(x[2, 1]) ** 2,
        tanh(np.abs(x[:, 0] - point["mu"][0])).mean(),
        tanh(x[3, 0]) * tanh(x[3, 1]),
        tanh(point["b_log__"]) * tanh(1.0 + np.log(np.abs(np.diff(x[:, 0]))).min()),
        tanh(np.abs(x[3] - x[4])).sum() * tanh(point["b_log__"]),
    ]


def largest_score(base, n_draws, unit=None, n_moves=4, has_directions=False):
    rng = np.random.default_rng(11)
    _, _, data = draw_all(rng, base, unit)
    model = model_of(base, data, unit)
    with model:
        step = dp.DPMixtureStep(model.free_RVs)
    assert step.continuous is not None
    learnt = step.continuous.learnt(0)
    learnt.step_size.size = 0.4
    if has_directions:
        # Variables, and rows in two columns.
        learnt.directions.found = 0.7 * rng.normal(size=(2, step.continuous._density.n_values + 2 * N_ROWS))
        learnt.bases_along = [[(rng.normal(size=2), np.full(2, 0.3))] for _ in range(2)]
    (target,) = step.targets
    before, after = [], []
    for _ in range(n_draws):
        point, labels, data = draw_all(rng, base, unit)
        model.set_data("data", data)
        point["x_labels"] = np.unique(labels, return_inverse=True)[1].astype(target.dtype)
        prepared = target.state(point, target.prior(point), None)
        prepared.state.set_prior(target.prior(point))
        before.append(moments(point, data))
        held = [prepared]
        for _ in range(n_moves):
            assert step.continuous.draw(rng, point, held, learnt, False) is not None
        after.append(moments(point, data))
    change = np.array(after) - before
    assert np.all(change.std(axis=0) > 0.0)
    return np.max(np.abs(change.mean(axis=0)) / (change.std(axis=0) / np.sqrt(n_draws)))


CASES = [("columns", None), ("correlated", None), ("columns", UNIT), ("correlated", UNIT)]


@pytest.mark.parametrize(
    ("base", "unit", "n_draws"),
    rest_slow([("columns", None, 1_000), *((base, unit, 8_000) for base, unit in CASES)]),
)
def test_the_move_leaves_the_joint_distribution(base, unit, n_draws):
    """Rows with an offset that moves, coefficients, a noise, mean and scale of the base: all at once."""
    assert largest_score(base, n_draws, unit) < 4.2


@pytest.mark.parametrize(
    ("base", "unit", "n_draws"),
    rest_slow([("correlated", UNIT, 1_000), *((base, unit, 8_000) for base, unit in CASES)]),
)
def test_the_move_along_directions_leaves_the_joint_distribution(base, unit, n_draws):
    """Whatever has been learnt of directions."""
    assert largest_score(base, n_draws, unit, has_directions=True) < 4.2


class HalfOfRows(NormalClusters):
    def whitened(self, roots, offsets):
        return 0.5 * super().whitened(roots, offsets)


class RowsFromRows(normal_clusters.StandardizedRows):
    """Pseudo-observations are the present rows, as they must not be."""

    def begin(self, seen, precisions, typical, of_base):
        table = self.state.tables[self._v]
        super().begin(table.values[:, : self.d].copy(), precisions, typical, of_base)


def forgotten_prior(monkeypatch):
    own = CLUSTERS_OF_FAMILIES["NormalInverseGamma"]
    forgotten = dataclasses.replace(own, log_prior=lambda params, roots: 0.0 * own.log_prior(params, roots))
    monkeypatch.setitem(CLUSTERS_OF_FAMILIES, "NormalInverseGamma", forgotten)


def forgotten_rows(monkeypatch):
    own = CLUSTERS_OF_FAMILIES["NormalInverseGamma"]
    given = {field.name: getattr(own, field.name) for field in dataclasses.fields(own)}
    monkeypatch.setitem(CLUSTERS_OF_FAMILIES, "NormalInverseGamma", HalfOfRows(**given))


def rows_from_rows(monkeypatch):
    monkeypatch.setattr(continuous, "StandardizedRows", RowsFromRows)


def mass_from_numbers(monkeypatch):
    """How far numbers reach is taken from where they are, as it must not be."""
    draw = NoUTurn.draw

    def drawn(sampler, size, max_depth, *directions):
        numbers, scales = sampler.begin(sampler._memory.n)
        scales /= 1.0 + numbers**2
        return draw(sampler, size, max_depth, *directions)

    monkeypatch.setattr(NoUTurn, "draw", drawn)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [forgotten_prior, forgotten_rows, rows_from_rows, mass_from_numbers])
def test_a_mistake_is_seen(monkeypatch, mistake):
    """Forgotten: what bases say of scales, half of what clusters say; moved: rows by themselves, and a mass."""
    mistake(monkeypatch)
    assert largest_score("columns", 10_000) > 6.0


# --- Which rows move


class NoGradient(Op):
    """The double of numbers, of which no gradient is known."""

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = 2.0 * inputs[0]

    def pullback(self, inputs, outputs, cotangents):
        return [grad_not_implemented(self, 0, inputs[0])]


def rows_of(base, likelihood):
    with pm.Model() as model:
        x = dp.DPMixture("x", 1.2, base, shape=4)
        likelihood(x)
    return model, x


def test_rows_with_a_gradient_move():
    normal = dp.NormalInverseGamma(**NIG)
    assert can_move(*rows_of(normal, lambda x: pm.Poisson("y", pt.exp(x), observed=COUNTS)))
    assert can_move(*rows_of(normal, lambda x: pm.Potential("sum", -(x.sum() ** 2))))
    assert can_move(*rows_of(normal, lambda x: None))
    assert not can_move(*rows_of(normal, lambda x: pm.Normal("y", NoGradient()(x), 1.0, observed=COUNTS)))
    own = dp.LinearRegression(0.0, 1.0, 2.0, 1.0, covariates=np.arange(4.0))
    assert not can_move(*rows_of(own, lambda x: pm.Poisson("y", pt.exp(x), observed=COUNTS)))


def test_the_statistics_are_those_of_nuts():
    """So that PyMC warns, and ArviZ draws its pictures; ``target_accept`` and ``max_treedepth`` hold."""
    model, _ = rows_of(dp.NormalInverseGamma(**NIG), lambda x: pm.Poisson("y", pt.exp(x), observed=COUNTS))
    rates = []
    for options in ({"target_accept": 0.6}, {"target_accept": 0.95}, {"nuts": {"max_treedepth": 2}}):
        idata = sampled.sample(model, 300, tune=300, chains=1, random_seed=3, **options)
        stats_of_draws = idata.sample_stats
        for name in ("diverging", "energy", "tree_depth", "n_steps", "step_size", "reached_max_treedepth"):
            assert stats_of_draws[name].shape == (1, 300)
        rates.append(float(stats_of_draws["acceptance_rate"].mean()))
        assert len(np.unique(stats_of_draws["step_size"])) == 1
    assert rates[0] < rates[1]
    assert stats_of_draws["tree_depth"].max() <= 2
    assert bool(stats_of_draws["reached_max_treedepth"].any())


# --- Posteriors by quadrature

COUNTS, SEASONS = np.array([0, 2, 3, 11]), np.array([-1.0, 0.0, 0.5, 1.5])
# Rows are seen without the slope too.
BEFORE = np.array([6, 14, 9, 35])
PARTITIONS = exact.partitions(4)
NODES, WEIGHTS = hermegauss(30)
SLOPES = np.linspace(-3.5, 3.5, 57)


def posterior():
    """Probabilities of the partitions, and mean and variance of the slope."""
    means, variances = np.linspace(-12.0, 13.0, 110), np.exp(np.linspace(-4.5, 5.5, 60))
    m, v = (part.ravel() for part in np.meshgrid(means, variances, indexing="ij"))
    log_prior = stats.norm.logpdf(m, NIG["mu"], np.sqrt(v / NIG["kappa"]))
    log_prior += stats.invgamma.logpdf(v, NIG["a"], scale=NIG["b"]) + np.log(v)
    log_prior -= logsumexp(log_prior)
    x = m[:, None] + np.sqrt(v)[:, None] * NODES
    seen = [stats.poisson.logpmf(count, 8.0 * np.exp(x)) + np.log(WEIGHTS) for count in BEFORE]
    log_p = np.empty((len(SLOPES), len(PARTITIONS)))
    for g, slope in enumerate(SLOPES):
        rows = [
            logsumexp(of_row + stats.poisson.logpmf(count, np.exp(x + slope * season)), axis=1)
            for of_row, count, season in zip(seen, COUNTS, SEASONS, strict=True)
        ]
        for number, labels in enumerate(PARTITIONS):
            clusters = [np.flatnonzero(labels == k) for k in range(labels.max() + 1)]
            evidence = sum(logsumexp(log_prior + sum(rows[i] for i in members)) for members in clusters)
            log_p[g, number] = exact.log_eppf(labels, 1.2) + evidence + stats.norm.logpdf(slope)
    p = np.exp(log_p - logsumexp(log_p))
    of_slope = p.sum(axis=1)
    mean = of_slope @ SLOPES
    return p.sum(axis=0), mean, of_slope @ (SLOPES - mean) ** 2


@pytest.mark.slow
@pytest.mark.parametrize(("n_draws", "tolerance"), [(15_000, 0.08)])
def test_labels_and_a_slope_follow_the_posterior(n_draws, tolerance):
    """Rows, their labels and a slope that they share, against enumeration and quadrature."""
    with pm.Model() as model:
        x = dp.DPMixture("x", 1.2, dp.NormalInverseGamma(**NIG), shape=4)
        slope = pm.Normal("slope")
        pm.Poisson("before", 8.0 * pt.exp(x), observed=BEFORE)
        pm.Poisson("y", pt.exp(x + slope * SEASONS), observed=COUNTS)
    idata = sampled.sample(model, n_draws, tune=500, chains=2, cores=1, random_seed=4)
    p, mean, variance = posterior()
    exact.assert_matches(exact.codes(idata.posterior["x_labels"].to_numpy()), PARTITIONS, p)
    slopes = idata.posterior["slope"]
    assert abs(float(slopes.mean()) - mean) < 4.0 * float(az.mcse(slopes))
    assert float(slopes.var()) == pytest.approx(variance, rel=tolerance)


MEANS = np.linspace(-7.0, 8.0, 61)


def posterior_of_level():
    """Probabilities of the partitions, and mean and variance of an intercept, where the base's mean is random.

    The counts depend on the sum g of both alone; both have the prior variance 1, and g has the mean 0.4.
    """
    deviations, variances = np.linspace(-9.0, 9.0, 81), np.exp(np.linspace(-4.5, 5.5, 41))
    m, v = (part.ravel() for part in np.meshgrid(deviations, variances, indexing="ij"))
    log_prior = stats.norm.logpdf(m, 0.0, np.sqrt(v / NIG["kappa"]))
    log_prior += stats.invgamma.logpdf(v, NIG["a"], scale=NIG["b"]) + np.log(v)
    log_prior -= logsumexp(log_prior)
    log_p = np.empty((len(MEANS), len(PARTITIONS)))
    for g, mean in enumerate(MEANS):
        x = mean + m[:, None] + np.sqrt(v)[:, None] * NODES
        rows = [logsumexp(stats.poisson.logpmf(count, np.exp(x)) + np.log(WEIGHTS), axis=1) for count in COUNTS]
        for number, labels in enumerate(PARTITIONS):
            clusters = [np.flatnonzero(labels == k) for k in range(labels.max() + 1)]
            evidence = sum(logsumexp(log_prior + sum(rows[i] for i in members)) for members in clusters)
            log_p[g, number] = exact.log_eppf(labels, 1.2) + evidence + stats.norm.logpdf(mean, 0.4, np.sqrt(2.0))
    p = np.exp(log_p - logsumexp(log_p))
    of_mean = p.sum(axis=1)
    # Given g, the intercept has half of its distance from the prior mean, and the variance 1/2.
    halves = 0.5 * (MEANS - 0.4)
    mean = of_mean @ halves
    return p.sum(axis=0), mean, of_mean @ (halves - mean) ** 2 + 0.5


@pytest.mark.slow
def test_labels_and_an_intercept_follow_the_posterior():
    """An intercept and the mean of the base measure, of which only the priors tell apart."""
    with pm.Model() as model:
        mean, level = pm.Normal("mean", 0.4), pm.Normal("level")
        x = dp.DPMixture("x", 1.2, dp.NormalInverseGamma(mean, NIG["kappa"], NIG["a"], NIG["b"]), shape=4)
        pm.Poisson("y", pt.exp(x + level), observed=COUNTS)
    idata = sampled.sample(model, 15_000, tune=500, chains=2, cores=1, random_seed=4)
    p, mean, variance = posterior_of_level()
    exact.assert_matches(exact.codes(idata.posterior["x_labels"].to_numpy()), PARTITIONS, p)
    for name, expected in (("level", mean), ("mean", mean + 0.4)):
        draws = idata.posterior[name]
        assert abs(float(draws.mean()) - expected) < 4.0 * float(az.mcse(draws))
        assert float(draws.var()) == pytest.approx(variance, rel=0.08)
        # Each holds the other one: one draw in a hundred is independent where they do not move together.
        assert float(az.ess(draws)) > 0.1 * draws.size


# --- Terms that join rows, against Gaussian integrals given drawn variances of clusters


def joined_model():
    """Rows that a potential joins, a random walk beside them, and a mean of the base that is random."""
    with pm.Model() as model:
        mean = pm.Normal("mean", 0.4)
        x = dp.DPMixture("x", 1.2, dp.NormalInverseGamma(mean, NIG["kappa"], NIG["a"], NIG["b"]), shape=4)
        pm.Potential("near zero", -0.5 * x.sum() ** 2)
        pm.Potential("smooth", -2.0 * ((x[1:] - x[:-1]) ** 2).sum())
        pm.Normal("y", x, 0.7, observed=SEASONS)
    return model


def by_gaussian_integrals(n_draws=40_000):
    """Probabilities of the partitions, and means of the rows and of the base.

    Given the partition and the variances of its clusters, which are drawn from the prior, all is normal.
    """
    rng, log_p, means = np.random.default_rng(4), [], []
    steps = np.diff(np.eye(4), axis=0)
    of_terms, pull = np.eye(4) / 0.49 + 1.0 + 4.0 * steps.T @ steps, SEASONS / 0.49
    for labels in PARTITIONS:
        variances = stats.invgamma.rvs(
            NIG["a"], scale=NIG["b"], size=(n_draws, labels.max() + 1), random_state=rng
        )[:, labels]
        is_shared = labels[:, None] == labels
        covariance = 1.0 + is_shared * variances[:, :, None] / NIG["kappa"] + np.eye(4) * variances[:, :, None]
        prior = np.linalg.inv(covariance)
        precision, weighted = prior + of_terms, prior.sum(axis=2) * 0.4 + pull
        x = np.linalg.solve(precision, weighted[:, :, None])[:, :, 0]
        log_w = 0.5 * (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(precision)[1])
        log_w += 0.5 * np.sum(weighted * x, axis=1) - 0.5 * 0.16 * prior.sum(axis=(1, 2))
        mean = 0.4 + np.einsum("nij,nj->n", prior, x - 0.4)
        log_p.append(exact.log_eppf(labels, 1.2) + logsumexp(log_w) - np.log(n_draws))
        means.append(np.exp(log_w - logsumexp(log_w)) @ np.column_stack([x, mean]))
    p = np.exp(log_p - logsumexp(log_p))
    return p, p @ np.array(means)


@pytest.mark.parametrize("n_draws", rest_slow([2_000, 20_000]))
def test_rows_that_terms_join_follow_the_posterior(n_draws):
    """Labels are drawn given the rows, which move together: a sum, a random walk, a random mean of the base."""
    idata = sampled.sample(joined_model(), n_draws, tune=500, chains=2, cores=1, random_seed=4)
    p, means = by_gaussian_integrals()
    exact.assert_matches(exact.codes(idata.posterior["x_labels"].to_numpy()), PARTITIONS, p)
    rows = idata.posterior["x"].to_numpy()
    for j in range(4):
        sampled.assert_mean_matches(rows[:, :, j], means[j])
    sampled.assert_mean_matches(idata.posterior["mean"].to_numpy(), means[4])


def test_labels_may_begin_with_any_names():
    """Names that are not in order, and one cluster for each row."""
    for labels in ([3, 3, 0, 1], [0, 1, 2, 3]):
        with pm.Model() as model:
            own = dp.CRP("x_labels", 1.2, 4, initval=labels)
            x = dp.CollapsedMixture("x", own, dp.NormalInverseGamma(**NIG), shape=(4,))
            pm.Poisson("y", pt.exp(x), observed=COUNTS)
        assert sampled.sample(model, 20, tune=20, chains=1, random_seed=1).posterior["x"].shape == (1, 20, 4)


# --- Sums of rows, and a Gaussian process

JOINED = np.array([[1.0, 0.5, 0.0, 0.2], [0.0, 1.0, -0.7, 0.0], [0.3, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, -1.0]])
SEEN, NOISE = np.array([1.9, 0.2, 3.4, -2.1]), 0.6
PLACES = np.arange(4.0)
KERNEL = 0.8 * np.exp(-0.5 * ((PLACES[:, None] - PLACES) / 1.5) ** 2) + 1e-6 * np.eye(4)


def joined_posterior():
    """Probabilities of the partitions, and means and second moments of the rows and of a curve.

    Given variances of clusters all is normal; these are summed over on a grid.
    """
    log_v = np.linspace(-3.5, 4.5, 25)
    log_prior = stats.invgamma.logpdf(np.exp(log_v), NIG["a"], scale=NIG["b"]) + log_v
    log_prior -= logsumexp(log_prior)
    log_p, moments_of = [], []
    for labels in PARTITIONS:
        same = labels[:, None] == labels
        grid = np.meshgrid(*[np.arange(len(log_v))] * (labels.max() + 1), indexing="ij")
        places = np.array([part.ravel() for part in grid])
        variances = np.exp(log_v)[places][labels]
        prior = np.einsum("ig,ij->gij", variances, np.eye(4) + same / NIG["kappa"])
        of_data = JOINED @ prior @ JOINED.T + KERNEL + NOISE**2 * np.eye(4)
        offset = SEEN - JOINED @ np.full(4, NIG["mu"])
        solved = np.linalg.solve(of_data, np.broadcast_to(offset, (len(prior), 4))[:, :, None])[:, :, 0]
        log_density = -0.5 * (np.linalg.slogdet(of_data)[1] + solved @ offset) + log_prior[places].sum(axis=0)
        weights = np.exp(log_density - logsumexp(log_density))
        found = []
        for gain, mean in ((prior @ JOINED.T, NIG["mu"]), (np.broadcast_to(KERNEL, prior.shape), 0.0)):
            own = gain[:, :, :] @ solved[:, :, None]
            known = gain @ np.linalg.solve(of_data, np.swapaxes(gain, 1, 2))
            before = prior if mean else np.broadcast_to(KERNEL, prior.shape)
            middle = mean + own[:, :, 0]
            second = middle**2 + np.diagonal(before - known, axis1=1, axis2=2)
            found += [weights @ middle, weights @ second]
        log_p.append(exact.log_eppf(labels, 1.2) + logsumexp(log_density))
        moments_of.append(found)
    p = np.exp(np.array(log_p) - logsumexp(log_p))
    return p, np.einsum("p,pqi->qi", p, np.array(moments_of))


@pytest.mark.slow
def test_a_gaussian_process_on_top_of_sums_of_rows():
    """No term depends on one row alone."""
    with pm.Model() as model:
        x = dp.DPMixture("x", 1.2, dp.NormalInverseGamma(**NIG), shape=4)
        curve = pm.Deterministic("curve", pt.constant(np.linalg.cholesky(KERNEL)) @ pm.Normal("z", shape=4))
        pm.Normal("y", pt.constant(JOINED) @ x + curve, NOISE, observed=SEEN)
    idata = sampled.sample(model, 15_000, tune=500, chains=2, cores=1, random_seed=4)
    p, (mean, second, mean_of_curve, second_of_curve) = joined_posterior()
    exact.assert_matches(exact.codes(idata.posterior["x_labels"].to_numpy()), PARTITIONS, p)
    for name, expected, square in (("x", mean, second), ("curve", mean_of_curve, second_of_curve)):
        drawn = idata.posterior[name].to_numpy()
        for i in range(4):
            sampled.assert_mean_matches(drawn[:, :, i], expected[i], 4.5)
            sampled.assert_mean_matches(drawn[:, :, i] ** 2, square[i], 4.5)


# --- One latent mixture behind another


def drawn_rows(rng, n_draws, mean):
    """Labels and rows of many draws of a mixture of three rows, from the prior."""
    p = np.exp([exact.log_eppf(own, 1.0) for own in THREE])
    labels = THREE[rng.choice(len(THREE), size=n_draws, p=p / p.sum())]
    variances = 1.0 / rng.gamma(3.0, 1.0, size=(n_draws, 3))
    means = mean[:, None] + np.sqrt(variances / 0.5) * rng.normal(size=(n_draws, 3))
    variance, own = (np.take_along_axis(part, labels, axis=1) for part in (variances, means))
    return labels, own + np.sqrt(variance) * rng.normal(size=(n_draws, 3))


THREE = exact.partitions(3)
BEHIND = {
    "offset": (lambda x: (0.0, x), lambda x: (np.zeros(len(x)), x)),
    "base": (lambda x: (0.5 * pt.sum(x), None), lambda x: (0.5 * x.sum(axis=1), 0.0)),
}


@pytest.mark.parametrize(("how", "n_draws"), rest_slow([("offset", 1_500), ("offset", 8_000), ("base", 8_000)]))
def test_rows_behind_other_rows(how, n_draws):
    """Importance sampling from the prior."""
    of_model, of_draws = BEHIND[how]
    seen = np.array([1.5, 2.0, 0.5])
    with pm.Model() as model:
        x = dp.DPMixture("x", 1.0, dp.NormalInverseGamma(0.0, 0.5, 3.0, 1.0), shape=3)
        mean, offset = of_model(x)
        u = dp.DPMixture("u", 1.0, dp.NormalInverseGamma(mean, 0.5, 3.0, 1.0), shape=3, offset=offset)
        pm.Normal("y", u, 0.5, observed=seen)
        step = dp.DPMixtureStep(model.free_RVs)
    assert sorted(step.continuous._density.inputs) == ["u_labels", "x_labels"]
    rng = np.random.default_rng(1)
    _, rows = drawn_rows(rng, 1_000_000, np.zeros(1_000_000))
    mean, offset = of_draws(rows)
    labels, others = drawn_rows(rng, 1_000_000, mean)
    others = others + offset
    weights = np.exp(-0.5 * (((seen - others) / 0.5) ** 2).sum(axis=1))
    weights /= weights.sum()
    posterior = sampled.sample(model, n_draws, tune=500, chains=2, cores=1, random_seed=2).posterior
    own, sums = posterior["x"].sum("x_dim_0").to_numpy(), rows.sum(axis=1)
    for drawn, values in (
        (own, sums),
        (own**2, sums**2),
        (posterior["u"].sum("u_dim_0").to_numpy(), others.sum(axis=1)),
        (posterior["u_n_clusters"].to_numpy(), labels.max(axis=1) + 1.0),
    ):
        expected = weights @ values
        error = np.sqrt(weights**2 @ (values - expected) ** 2)
        ess = float(az.ess(drawn))
        assert abs(drawn.mean() - expected) < 4.5 * np.hypot(error, drawn.std() / np.sqrt(ess))


def test_steps_do_not_vanish_where_a_gradient_is_no_number():
    size = StepSize(0.8)
    for _ in range(3):
        for _ in range(2_000):
            size.learn(0.0)
        size.restart()
    size.end()
    assert 0.0 < size.size < 1e-5


# --- Densities without a gradient


def root(s, bound):
    """Nothing, whose gradient is a number below a bound alone."""
    return 1e-300 * pt.sqrt(pt.maximum(bound - s, 0.0))


@pytest.mark.parametrize("bound", [0.5, -1e9])
@pytest.mark.parametrize("kind", rest_slow(["latent", "process", "coefficient"], 1))
def test_numbers_without_a_gradient_are_drawn_by_slices(kind, bound, caplog):
    """Also where there is a gradient at some numbers only, among which trajectories stay."""
    y = np.array([-1.0, 0.4, 1.3])
    with pm.Model():
        s = pm.Normal("s", 0.3, 1.0)
        pm.Potential("root", root(s, bound))
        if kind == "latent":
            u = dp.DPMixture("u", 1.0, dp.NormalInverseGamma(**NIG), shape=3)
            pm.Normal("y", u, 1.0, observed=y)
        elif kind == "process":
            u = dp.DirichletProcess("u", 1.0, pm.Normal.dist(0.0, 1.0), shape=3)
            pm.Normal("y", u, 1.0, observed=y)
        else:
            b = pm.Normal("b", s)
            dp.DPMixture("u", 1.0, dp.NormalInverseGamma(**NIG), observed=y, offset=0.0 * b)
        idata = pm.sample(3_000, tune=300, chains=2, cores=1, random_seed=4, progressbar=False)
    draws = idata["posterior"]["s"].to_numpy()
    sampled.assert_mean_matches(draws, 0.3)
    sampled.assert_mean_matches((draws - 0.3) ** 2, 1.0)
    sampled.assert_mean_matches(1.0 * (draws > 0.5), stats.norm.sf(0.2))
    told = [record for record in caplog.records if "has no finite gradient" in record.getMessage()]
    assert len(told) == 1
