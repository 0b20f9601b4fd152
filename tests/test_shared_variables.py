"""Variables that latent rows share move with the rows: posteriors by quadrature, invariance, planted mistakes."""

import ctypes

import arviz as az
import exact
import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import sampled
from numpy.polynomial.hermite_e import hermegauss
from scipy import stats
from scipy.special import logsumexp
from slowly import rest_slow

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.integration.process_density.latent_density import row_terms_of
from pymc_dpgmm.integration.steps.shared_variables import SharedVariables, mean_of_base, shared_variables
from pymc_dpgmm.native.array_calls import PythonCall
from pymc_dpgmm.partitions.draws import draw_labels
from pymc_dpgmm.partitions.priors import pitman_yor
from pymc_dpgmm.sampler.hyperparameters.translations import Directions, second_differences
from pymc_dpgmm.sampler.latent_rows import cluster_shifts, redraws, standardized, translations
from pymc_dpgmm.sampler.latent_rows.moving_rows import MovingRows
from pymc_dpgmm.sampler.latent_rows.row_density import RowDensity
from pymc_dpgmm.sampler.latent_rows.shared_numbers import SharedNumbers
from pymc_dpgmm.sampler.latent_rows.work import Work
from pymc_dpgmm.sampler.state.state import State

NIG = {"mu": 0.4, "kappa": 0.3, "a": 2.5, "b": 0.8}
N_ROWS, SCALE = 6, 0.4
TIMES = np.linspace(-1.0, 1.0, N_ROWS)
BASES = {
    "normal": dp.NormalInverseGamma(0.4, 0.3, 3.0, 1.5),
    "correlated": dp.NormalInverseWishart([0.4, -0.4], 0.3, 8.0, [[6.0, 4.0], [4.0, 5.0]]),
    "regression": dp.LinearRegression([0.4, 0.1], 0.3, 3.0, 1.5, covariates=np.ones((N_ROWS, 2))),
}
GIVEN = {"regression": np.column_stack([np.ones(N_ROWS), TIMES])}


@numba.njit
def seen_with(x, shared, data):
    """Log density of data given rows (m, n, d) and the shared number: a shift, and a scale."""
    scale = SCALE * np.exp(0.5 * shared)
    log_scale, found = np.log(scale), np.empty(x.shape[:2])
    for i in range(N_ROWS):
        rest = shared * (1.0 + TIMES[i])
        for k in range(len(x)):
            found[k, i] = -abs(data[i] - x[k, i].sum() - rest) / scale - log_scale
    return found


def joint_draws(base, n_draws, are_shifted, n_moves=4):
    """Moments of the shared number, rows and data before moves and after them, each (draws, moments)."""
    rng, family = np.random.default_rng(3), BASES[base].family
    given = GIVEN.get(base, np.empty((N_ROWS, 0)))
    d = 2 if base == "correlated" else 1
    params = BASES[base].numbers(d)
    anchors, distances, work = np.full((N_ROWS, d), 0.3), np.full((N_ROWS, d), 0.6), Work()
    # One state takes the labels and rows of all draws.
    first = np.column_stack([family.draw_rows(rng, params, np.arange(N_ROWS), given), given])
    state = State([View(family, params, first)], np.arange(N_ROWS))
    state.set_prior(pitman_yor(1.1, 0.0))
    state.make_own_rows(0)
    of_base = redraws.row_of_base(state.tables[0], d)
    before, after = [], []
    for _ in range(n_draws):
        labels = draw_labels(rng, 1.1, 0.0, np.inf, N_ROWS)
        rows = family.draw_rows(rng, params, labels, given)
        shared = rng.normal()
        data = rng.laplace(rows.sum(axis=1) + shared * (1.0 + TIMES), SCALE * np.exp(0.5 * shared))

        state.take_rows(0, rows, labels + 1)
        before.append(moments(rows, shared, data))
        number = np.array(shared)
        density = RowDensity.of_function(lambda x, data=data, u=number: seen_with(x, float(u), data), N_ROWS, d)
        moving = MovingRows(rng, state, 0, d, density, work)
        kind = cluster_shifts.ClusterShifts if are_shifted else standardized.StandardizedRows
        rows_of = kind(moving, work)
        for _ in range(n_moves):
            moving.begin(anchors, distances, distances[0])
            rows_of.prepare(of_base)
            moved(moving, rows_of, number, data)
        after.append(moments(state.tables[0].values[:, :d], float(number), data))
    return np.array(before), np.array(after)


def numbers_of(number, rows, data, *others, of_others=lambda: 0.0):
    """Log density of data and of the number given rows, a float64 array in which moves place them."""

    def log_density(number, rows, *others):
        log_p = seen_with(rows[None], float(number), data).sum() - 0.5 * float(number) ** 2
        return [np.asarray(log_p + of_others(*others))]

    arrays = [number, rows, *others]
    entry = PythonCall(log_density, [(array.dtype, array.ndim) for array in arrays])
    return SharedNumbers(entry, arrays, rows, None, lambda: None)


def moved(moving, rows_of, number, data):
    at_first = rows_of.begin()
    assert rows_of.place() == pytest.approx(at_first)
    np.testing.assert_allclose(rows_of.rows, moving.rows, atol=1e-9)
    assert numbers_of(number, moving.rows.copy(), data).draw(moving.rng, rows_of, number, 0, 1.0) is not None
    moving.take_others(rows_of.rows)


def moments(rows, shared, data):
    seen = np.tanh(rows[:, 0])
    return [
        np.tanh(shared),
        np.tanh(shared) ** 2,
        seen[2],
        seen[0] ** 2,
        seen[1] * np.tanh(shared),
        seen[4] * np.tanh(data[4]),
        np.tanh(np.abs(data - rows.sum(axis=1) - shared * (1.0 + TIMES))).mean(),
        np.max(np.abs(seen)),
    ]


def largest_score(base, n_draws, are_shifted=False):
    before, after = joint_draws(base, n_draws, are_shifted)
    change = after - before
    return np.max(np.abs(change.mean(axis=0)) / (change.std(axis=0) / np.sqrt(n_draws) + 1e-12))


@pytest.mark.parametrize("are_shifted", rest_slow([False, True]))
@pytest.mark.parametrize(("base", "n_draws"), rest_slow([("normal", 1_200), *((base, 6_000) for base in BASES)]))
def test_moves_leave_the_joint_distribution(base, n_draws, are_shifted):
    """A number that moves with the rows, in both ways, from exact draws, for three families."""
    assert largest_score(base, n_draws, are_shifted) < 4.0


class Scaled:
    """A kernel of rows that follow, whose log density is multiplied by a share: a mistake."""

    def __init__(self, share, kernel):
        self._share, self._kernel = share, kernel
        self._callback = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64, ctypes.c_int64)(self.__call__)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value

    def __call__(self, block, is_first):
        return self._share * self._kernel(block, is_first)


@pytest.mark.slow
def test_a_wrong_density_of_rows_is_seen(monkeypatch):
    """What clusters say of rows, and the Jacobian, count by half."""
    monkeypatch.setattr(standardized.StandardizedRows, "kernel", Scaled(0.5, standardized.place_standardized))
    assert largest_score("normal", 3_000) > 6.0


class ForgottenClusters(cluster_shifts.ClusterShifts):
    """Rows of which the clusters say nothing."""

    kernel = Scaled(0.0, cluster_shifts.place_shifted)


class CentresOfRows(cluster_shifts.ClusterShifts):
    """Centres that depend on the present rows, as they must not."""

    def prepare(self, of_base):
        super().prepare(of_base)
        rows = self._moving.rows
        self._moving.begin(rows.copy(), np.full(rows.shape, 0.6), np.full(rows.shape[1], 0.6))


@pytest.mark.slow
@pytest.mark.parametrize("mistaken", [ForgottenClusters, CentresOfRows])
def test_a_wrong_shift_is_seen(monkeypatch, mistaken):
    """What clusters say of rows is left out, or expansions begin at the rows."""
    monkeypatch.setattr(cluster_shifts, "ClusterShifts", mistaken)
    assert largest_score("normal", 6_000, True) > 6.0


def translated_draws(base, n_draws, moves_mean, prior_of_mean=1.0, n_moves=4):
    """Moments of the shared number, mean of the base, rows and data before translations and after them.

    The mean has the precision ``prior_of_mean`` in what a move is told of, and 1 in truth.
    """
    rng, family = np.random.default_rng(3), BASES[base].family
    given, place = GIVEN.get(base, np.empty((N_ROWS, 0))), ("shared", ())
    d = 2 if base == "correlated" else 1
    params = BASES[base].numbers(d)
    directions = Directions(d)
    directions.learn(place, np.full(d, -0.6), np.full(d, -1.0))
    state = State([View(family, params, np.column_stack([np.zeros((N_ROWS, d)), given]))], np.arange(N_ROWS))
    state.set_prior(pitman_yor(1.1, 0.0))
    state.make_own_rows(0)
    before, after = [], []
    for _ in range(n_draws):
        labels = draw_labels(rng, 1.1, 0.0, np.inf, N_ROWS)
        own = params._replace(mu=params.mu + rng.normal(size=d)) if moves_mean else params
        rows = family.draw_rows(rng, own, labels, given)
        shared = np.array(rng.normal())
        data = rng.laplace(rows.sum(axis=1) + shared * (1.0 + TIMES), SCALE * np.exp(0.5 * shared))
        state.take_rows(0, rows, labels + 1, params=own)
        before.append([*moments(rows, float(shared), data), *np.tanh(own.mu - params.mu)[:1] ** 2])

        mean = np.array(own.mu)
        numbers = numbers_of(
            shared,
            rows.copy(),
            data,
            mean,
            of_others=lambda mean: -0.5 * prior_of_mean * np.sum((mean - params.mu) ** 2),
        )
        density = RowDensity.of_function(lambda x: np.zeros(x.shape[:2]), N_ROWS, d)
        moving = MovingRows(rng, state, 0, d, density, Work())
        moving.begin(rows, rows, np.ones(d))
        translated = translations.TranslatedRows(moving)
        for _ in range(n_moves):
            moved_mean = mean if moves_mean else None
            translations.translate_rows(rng, translated, numbers, shared, place, moved_mean, directions, False)
        rows = state.tables[0].values[:, :d]
        after.append(
            [*moments(rows, float(shared), data), *np.tanh(state.tables[0].params.mu - params.mu)[:1] ** 2]
        )
    change = np.array(after) - before
    return np.max(np.abs(change.mean(axis=0)) / (change.std(axis=0) / np.sqrt(n_draws) + 1e-12))


@pytest.mark.parametrize(
    ("base", "moves_mean", "n_draws"),
    rest_slow(
        [("normal", True, 1_500), ("normal", True, 10_000), ("correlated", True, 10_000)]
        + [(base, False, 10_000) for base in BASES]
    ),
)
def test_translations_leave_the_joint_distribution(base, moves_mean, n_draws):
    """All rows move with the number, and with the mean of the base measure, from exact draws."""
    assert translated_draws(base, n_draws, moves_mean) < 4.0


@pytest.mark.slow
def test_a_wrong_prior_of_the_mean_is_seen():
    """A translation that leaves out the prior of the base's mean."""
    assert translated_draws("normal", 25_000, True, prior_of_mean=0.0) > 6.0


@pytest.mark.slow
def test_forgotten_clusters_are_seen_in_translations(monkeypatch):
    """The mean stays, and what clusters say of rows is left out."""
    kernel = Scaled(0.0, translations.place_translated)
    monkeypatch.setattr(translations.TranslatedRows, "kernel", kernel)
    assert translated_draws("normal", 15_000, False) > 6.0


def test_the_direction_of_an_intercept_is_known():
    """Rows go one way where the number goes the other; with a scale, they stay where they are."""
    rng = np.random.default_rng(5)
    rows, data, values = rng.normal(size=(N_ROWS, 1)), rng.normal(size=N_ROWS), np.array([0.3, -0.2])

    def density(shifts):
        eta = rows[:, 0] + shifts + values[0] + 2.0 * values[1]
        return (data * eta - np.exp(eta)).sum(axis=1)

    found = []
    for place in [(0,), (1,)]:
        directions = Directions(1)
        differences = second_differences(density, values, place, np.array([0.02]), 0.02)
        directions.learn(("u", place), *differences)
        found.append(float(directions.of(("u", place))[0]))
    np.testing.assert_allclose(found, [-1.0, -2.0], rtol=1e-3)
    np.testing.assert_array_equal(values, [0.3, -0.2])
    # Where densities are none, nothing is learnt.
    directions.learn(("u", (2,)), np.array([np.nan]), np.array([1.0]))
    assert directions.of(("u", (2,))) == [0.0]


ITSELF = {
    "the variable": lambda m: m,
    "with an axis": lambda m: m[None],
    "reshaped": lambda m: m.reshape((1,)),
    "broadcast": lambda m: pt.broadcast_to(m, (1,)),
}
FUNCTIONS = {
    "its double": lambda m: 2.0 * m,
    "its absolute value": pt.abs,
    "its positive part": lambda m: pt.maximum(m, 0.0),
    "itself at multiples of a half": lambda m: m + 0.1 * pt.sin(4.0 * np.pi * m),
    "itself between -100 and 100": lambda m: pt.clip(m, -100.0, 100.0),
    "rounded": lambda m: pt.round(m, mode="half_to_even"),
}


@pytest.mark.parametrize("case", [*ITSELF, *FUNCTIONS])
def test_which_variable_is_the_mean_of_the_base_is_read_from_the_graph(case):
    """A function that has the value of the variable at many points is another mean."""
    with pm.Model() as model:
        m = pm.Normal("m")
        base = dp.NormalInverseGamma((ITSELF | FUNCTIONS)[case](m), 0.3, 2.5, 0.8)
        x = dp.DPMixture("x", 1.2, base, shape=4)
    assert mean_of_base(model, x, 1) is (m if case in ITSELF else None)


@pytest.mark.parametrize(
    ("of_columns", "expected"),
    [(lambda m: m, True), (lambda m: m[::-1], False), (lambda m: m[pt.argsort(m)], False), (pt.cumsum, False)],
)
def test_the_mean_of_columns_has_their_order(of_columns, expected):
    with pm.Model() as model:
        m = pm.Normal("m", shape=2)
        x = dp.DPMixture("x", 1.2, dp.NormalInverseGamma(of_columns(m), 0.3, 2.5, 0.8), shape=(4, 2))
    assert (mean_of_base(model, x, 2) is m) == expected


@pytest.mark.parametrize(
    "build",
    {
        "a number": lambda: dp.NormalInverseGamma(0.0, 0.3, 2.5, 0.8),
        "a bounded variable": lambda: dp.NormalInverseGamma(pm.Uniform("m", -3, 3), 0.3, 2.5, 0.8),
        "a scale too": lambda: dp.NormalInverseGamma(pm.Normal("m"), 0.3, 2.5, pt.exp(pm.modelcontext(None)["m"])),
        "a regression": lambda: dp.LinearRegression(
            pm.Normal("m", shape=1), 0.3, 2.5, 0.8, covariates=SEASONS + 2.0
        ),
    }.values(),
)
def test_other_variables_do_not_move_with_rows(build):
    """Densities of rows are not the same where these and the rows move by one number."""
    with pm.Model() as model:
        x = dp.DPMixture("x", 1.2, build(), shape=4)
    assert mean_of_base(model, x, 1) is None


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


def test_what_rows_share_is_recognised():
    with pm.Model() as model:
        mean = pm.Normal("mean")
        x = dp.DPMixture("x", pm.Gamma("alpha", 1.0, 1.0), dp.NormalInverseGamma(mean, 0.3, 2.5, 0.8), shape=4)
        slopes, sigma = pm.Normal("slopes", shape=2), pm.HalfNormal("sigma")
        pm.Normal("y", x + slopes[0] * SEASONS, sigma, observed=SEASONS)
        pm.Normal("other", slopes[1], 1.0, observed=SEASONS)
        beside = pm.Normal("beside")
        pm.Normal("z", beside, 1.0, observed=0.0)
    terms = row_terms_of(model, x)
    assert [rv.name for rv in shared_variables(model, x, terms)] == ["slopes", "sigma"]


def two_likelihoods():
    x, slope = dp.DPMixture("x", 1.2, dp.NormalInverseGamma(**NIG), shape=4), pm.Normal("slope")
    pm.Poisson("before", pt.exp(x), observed=BEFORE)
    pm.Poisson("y", pt.exp(x + slope * SEASONS), observed=COUNTS)
    pm.Potential("near", -((x - slope) ** 2))
    pm.Potential("small", -(slope**4))


def bounds():
    """A variable between bounds moves with them."""
    x, slope = dp.DPMixture("x", 1.2, dp.NormalInverseGamma(**NIG), shape=4), pm.Normal("slope")
    below = pm.Uniform("below", 0.0, pt.exp(slope))
    pm.Normal("seen", below, 0.3, observed=2.0)
    pm.Normal("y", x + slope * SEASONS, 0.5, observed=SEASONS)


def two_mixtures():
    x = dp.DPMixture("x", 1.2, dp.NormalInverseGamma(**NIG), shape=4)
    other = dp.DPMixture("other", 1.2, dp.NormalInverseGamma(**NIG), shape=4)
    sigma = pm.HalfNormal("sigma")
    pm.Normal("y", x + other, sigma, observed=SEASONS)
    pm.Normal("z", pm.Normal("latent", x, sigma, shape=4), 1.0, observed=SEASONS)


def random_mean():
    """The mean of the base measure has a prior that depends on another variable, and so does the intercept."""
    spread = pm.HalfNormal("spread")
    mean, level = pm.Normal("mean", 0.3, spread), pm.Normal("level", 0.0, spread)
    x = dp.DPMixture("x", 1.2, dp.NormalInverseGamma(mean, 0.3, 2.5, 0.8), shape=4)
    pm.Normal("y", x + level, 0.5, observed=SEASONS)


@pytest.mark.interpreted
@pytest.mark.parametrize("build", [two_likelihoods, bounds, two_mixtures, random_mean])
def test_all_terms_that_change_are_counted(build):
    """What the density of the model changes by, but for that of the mixture, which standardized rows have."""
    with pm.Model() as model:
        build()
    x = model["x"]
    terms = row_terms_of(model, x)
    shared = shared_variables(model, x, terms)
    mean = mean_of_base(model, x, 1)
    moved = SharedVariables(model, x, shared, mean, None)
    total = model.compile_logp(vars=[rv for rv in (*model.basic_RVs, *model.potentials) if rv is not x])
    start, rng = model.initial_point(random_seed=1), np.random.default_rng(2)
    start["x"] = rng.normal(size=4)
    other = start | {"x": rng.normal(size=4)}
    for rv in (*shared, *([] if mean is None else [mean])):
        name = model.rvs_to_values[rv].name
        other[name] = np.asarray(start[name] + 0.7)
    assert shared
    assert (mean is not None) == (build is random_mean)
    assert moved.log_density(other) - moved.log_density(start) == pytest.approx(total(other) - total(start))


def test_a_variable_behind_a_mixture_through_bounds_is_not_shared():
    with pm.Model() as model:
        slope = pm.Normal("slope")
        mean = pm.Uniform("mean", 0.0, pt.exp(slope))
        x = dp.DPMixture("x", 1.2, dp.NormalInverseGamma(mean, 0.3, 2.5, 0.8), shape=4)
        pm.Normal("y", x + slope * SEASONS, 0.5, observed=SEASONS)
    assert shared_variables(model, x, row_terms_of(model, x)) == []


def test_many_numbers_stay_with_their_step():
    with pm.Model() as model:
        x = dp.DPMixture("x", 1.0, dp.NormalInverseGamma(**NIG), shape=20)
        noise = pm.HalfNormal("noise", shape=20)
        pm.Normal("y", x, noise, observed=np.zeros(20))
    assert shared_variables(model, x, row_terms_of(model, x)) == []


def test_a_mean_that_is_in_the_offset_too_does_not_move_with_rows():
    with pm.Model() as model:
        mean = pm.Normal("mean")
        x = dp.DPMixture("x", 1.2, dp.NormalInverseGamma(mean, 0.3, 2.5, 0.8), shape=4, offset=mean * SEASONS)
        pm.Normal("y", x + pm.Normal("level"), 0.5, observed=SEASONS)
    assert mean_of_base(model, x, 1) is None
