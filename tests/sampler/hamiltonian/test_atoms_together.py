"""All that is continuous moves together with the atoms of a process, against enumeration and quadrature."""

import arviz as az
import exact
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import sampled
from scipy import stats
from scipy.special import logsumexp

import pymc_dpgmm as dp
from pymc_dpgmm.integration.continuous.atoms import AtomsPart
from pymc_dpgmm.integration.steps.atoms_target import MovingAtoms

Y, X = np.array([-1.1, 0.4, 2.6, 1.9]), np.array([-1.0, 0.2, 0.9, 1.4])
SPREAD = 1.5


def regression():
    """A slope and a dispersion that all rows share, and intercepts that are clustered."""
    with pm.Model() as model:
        b, sigma = pm.Normal("b", 0.0, 1.0), pm.LogNormal("sigma", -0.3, 0.4)
        theta = dp.DirichletProcess("theta", 0.9, pm.Normal.dist(0.3, SPREAD), shape=len(Y))
        pm.Normal("y", theta + b * X, sigma, observed=Y)
    return model


def enumerated():
    """Partitions, a grid of slopes and dispersions, and their joint probabilities."""
    slopes, log_sigma = np.linspace(-4.0, 5.0, 181), np.linspace(-2.6, 2.0, 91)
    b, sigma = (part.ravel() for part in np.meshgrid(slopes, np.exp(log_sigma), indexing="ij"))
    log_p = stats.norm.logpdf(b) + stats.norm.logpdf(np.log(sigma), -0.3, 0.4)
    labels = exact.partitions(len(Y))
    residuals = Y[:, None] - b * X[:, None] - 0.3
    joint = []
    for p in labels:
        total = exact.log_eppf(p, 0.9) + log_p
        for k in range(p.max() + 1):
            rows = residuals[p == k]
            # The intercept is integrated out: a normal likelihood times a normal prior.
            n, s2 = len(rows), sigma**2
            precision = n / s2 + 1.0 / SPREAD**2
            total = total - 0.5 * n * np.log(2.0 * np.pi * s2) - 0.5 * np.log(SPREAD**2 * precision)
            total = total - 0.5 * ((rows**2).sum(axis=0) / s2 - (rows.sum(axis=0) / s2) ** 2 / precision)
        joint.append(total)
    joint = np.exp(np.array(joint) - logsumexp(joint))
    return labels, b, sigma, joint


def drawn(n_draws, seed=3, tune=400, build=regression, names=("b", "sigma_log__"), **options):
    """Labels and variables as the step draws them."""
    model = build()
    with model:
        step = dp.DirichletProcessStep(model.free_RVs, **options)
    step.setup_chain(np.random.default_rng(seed), tune, n_draws)
    point = model.initial_point(random_seed=seed)
    found = []
    for draw in range(tune + n_draws):
        if draw == tune:
            step.stop_tuning()
        point, _ = step.step(point)
        if draw >= tune:
            found.append((point["theta_labels"], *(float(point[name]) for name in names)))
    return tuple(np.array(own) for own in zip(*found, strict=True))


def drawn_regressions(*args, **options):
    labels, b, log_sigma = drawn(*args, **options)
    return labels, b, np.exp(log_sigma)


def assert_posterior(labels, b, sigma):
    partitions, slopes, sigmas, joint = enumerated()
    exact.assert_matches(exact.codes(labels[None]), partitions, joint.sum(axis=1))
    p = joint.sum(axis=0)
    for values, grid in ((b, slopes), (sigma, sigmas), (b**2, slopes**2), (b * sigma, slopes * sigmas)):
        sampled.assert_mean_matches(values[None], p @ grid, 4.5)


@pytest.mark.slow
def test_moves_with_the_atoms_leave_the_posterior_invariant():
    """The shared numbers move in no other way than together with the atoms."""
    assert_posterior(*drawn_regressions(20_000, 3))


@pytest.mark.slow
def test_atoms_that_move_in_no_other_way():
    """Scans bring new atoms; those of clusters move together with all else alone."""
    assert_posterior(*drawn_regressions(20_000, 3, hamiltonian=0, split_merge=0))


def test_shared_numbers_move_with_the_atoms():
    assert_posterior(*drawn_regressions(4_000, n_sweeps=1))


def levels():
    """An intercept that all rows share, and the mean of the base: only their priors tell them apart."""
    with pm.Model() as model:
        b, m = pm.Normal("b", 0.4, 1.5), pm.Normal("m", -0.2, 1.2)
        theta = dp.DirichletProcess("theta", 0.9, pm.Normal.dist(m, SPREAD), shape=len(Y))
        pm.Normal("y", theta + b, 0.5, observed=Y)
    return model


def assert_levels(labels, b, m):
    partitions = exact.partitions(len(Y))
    grid = np.linspace(-7.0, 7.0, 121)
    bs, ms = (part.ravel() for part in np.meshgrid(grid, grid, indexing="ij"))
    residuals = Y - bs[:, None] - ms[:, None]
    log_p = stats.norm.logpdf(bs, 0.4, 1.5) + stats.norm.logpdf(ms, -0.2, 1.2)
    joint = []
    for p in partitions:
        covariance = SPREAD**2 * (p[:, None] == p) + 0.25 * np.eye(len(Y))
        log_rows = stats.multivariate_normal.logpdf(residuals, cov=covariance)
        joint.append(exact.log_eppf(p, 0.9) + log_p + log_rows)
    joint = np.exp(np.array(joint) - logsumexp(joint))
    exact.assert_matches(exact.codes(labels[None]), partitions, joint.sum(axis=1))
    p = joint.sum(axis=0)
    for values, truth in ((b, bs), (m, ms), (b**2, bs**2), (m**2, ms**2), (b * m, bs * ms)):
        sampled.assert_mean_matches(values[None], p @ truth, 4.5)


@pytest.mark.slow
def test_the_mean_of_the_base_moves_with_an_intercept():
    """Only their priors tell them apart, so that both move with all atoms."""
    labels, b, m = drawn(10_000, build=levels, names=("b", "m"), n_sweeps=2)
    assert_levels(labels, b, m)
    assert float(az.ess(b[None])) > 0.1 * len(b)


@pytest.mark.slow
def test_two_processes_with_one_mean():
    """All rows of each share an atom, so that the posterior is normal."""
    with pm.Model() as model:
        m, u = pm.Normal("m", 0.0, 2.0), pm.Normal("u", 0.0, 2.0)
        linked = [0] * len(Y)
        a = dp.DirichletProcess("a", 1.0, pm.Normal.dist(m, 0.5), shape=len(Y), must_link=linked)
        b = dp.DirichletProcess("b", 1.0, pm.Normal.dist(m, 0.5), shape=len(Y), must_link=linked)
        pm.Normal("y", u + a, 0.5, observed=Y)
        pm.Normal("z", b, 0.5, observed=X)
    # Variables m, u, a and b.
    terms = [
        ([1, 0, 0, 0], 0.0, 2.0),
        ([0, 1, 0, 0], 0.0, 2.0),
        ([-1, 0, 1, 0], 0.0, 0.5),
        ([-1, 0, 0, 1], 0.0, 0.5),
    ]
    terms += [([0, 1, 1, 0], y, 0.5) for y in Y] + [([0, 0, 0, 1], x, 0.5) for x in X]
    precision = sum(np.outer(v, v) / sd**2 for v, _, sd in terms)
    mean = np.linalg.solve(precision, sum(np.array(v) * value / sd**2 for v, value, sd in terms))
    drawn = sampled.sample(model, 2_000, tune=500, chains=2, cores=1, random_seed=2).posterior
    for j, name in enumerate("muab"):
        values = drawn[name].to_numpy()
        sampled.assert_mean_matches(values if values.ndim == 2 else values[:, :, 0], mean[j], 4.5)


BASES = {
    "a scale": lambda: pm.Normal.dist(pm.Normal("m"), pt.exp(pm.Normal("log_sd"))),
    "of logarithms": lambda: pm.LogNormal.dist(pm.Normal("m"), pm.HalfNormal("sd")),
    "bounded": lambda: pm.Beta.dist(pm.Gamma("m", 4.0, 1.0), 2.0),
    "a vector": lambda: pm.MvNormal.dist(pm.Normal("m", shape=2), np.eye(2)),
    "heavy tails": lambda: pm.StudentT.dist(4.0, mu=pm.Normal("m"), sigma=1.0),
    "several": lambda: {"sd": pm.HalfNormal.dist(1.0), "mu": pm.Normal.dist(pm.Normal("m"), 1.0)},
    "given each other": lambda: {"sd": (sd := pm.HalfNormal.dist(1.0)), "mu": pm.Normal.dist(pm.Normal("m"), sd)},
}


def model_of(base):
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.2, BASES[base](), shape=6)
        rows = theta["mu"] * theta["sd"] if isinstance(theta, dict) else theta
        data, noise = pm.Data("data", np.zeros(6)), pm.HalfNormal("noise")
        pm.Laplace("y", rows if rows.ndim == 1 else rows.sum(axis=1), 0.3 + noise, observed=data)
    return model


def moments(point, data):
    values = [np.tanh(point[name].ravel()) for name in point if not name.endswith("labels")]
    found = np.concatenate(values)
    of_data = np.tanh(data)
    products = [np.outer(values[-1], of_data[:2]).ravel(), found[:4] * found[-1], found**2]
    return np.concatenate([found, *products, [np.tanh(np.std(found)), np.tanh(np.std(found)) * found[0]]])


def largest_score(base, n_draws):
    model, rng = model_of(base), np.random.default_rng(4)
    with model:
        step = dp.DirichletProcessStep(model.free_RVs)
        drawn = pm.sample_prior_predictive(n_draws, random_seed=5)
    prior, seen = drawn.prior, drawn.prior_predictive["y"].to_numpy()[0]
    learnt = step.continuous.learnt(0)
    learnt.step_size.size = 0.4
    before, after = [], []
    for t in range(n_draws):
        point = {}
        for rv in model.free_RVs:
            value, numbers = model.rvs_to_values[rv], prior[rv.name].to_numpy()[0, t]
            point[value.name] = np.asarray(np.log(numbers) if value.name.endswith("_log__") else numbers)
        model.set_data("data", seen[t])
        point["theta_labels"] = np.unique(point["theta_labels"], return_inverse=True)[1].astype(np.int16)
        before.append(moments(point, seen[t]))
        for _ in range(3):
            assert step.continuous.draw(rng, point, [], learnt, False) is not None
        after.append(moments(point, seen[t]))
    change = np.array(after) - before
    moved = change.std(axis=0) > 0.0
    assert np.mean(moved) > 0.8
    return np.max(np.abs(change.mean(axis=0))[moved] / (change.std(axis=0)[moved] / np.sqrt(n_draws)))


@pytest.mark.slow
@pytest.mark.parametrize("base", BASES)
def test_the_move_leaves_the_joint_distribution(base):
    """Of atoms, hyperparameters, a noise and data, drawn one after the other (Geweke 2004)."""
    assert largest_score(base, 3_000) < 4.5


def without_the_jacobian(monkeypatch):
    init = AtomsPart.__init__

    def without(self, *args):
        init(self, *args)
        self.log_density = self.log_density + 0.5 * pt.log(self.known).sum()

    monkeypatch.setattr(AtomsPart, "__init__", without)


def with_observations_from_the_atoms(monkeypatch):
    begin = MovingAtoms.begin

    def from_atoms(self, rng, point, prepared, learnt, tuning):
        learnt.of_rows.pop(self.name, None)
        return begin(self, rng, point, prepared, learnt, tuning)

    monkeypatch.setattr(MovingAtoms, "begin", from_atoms)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [without_the_jacobian, with_observations_from_the_atoms])
def test_mistakes_are_seen(monkeypatch, mistake):
    """Without the Jacobian, and where atoms are standardized by where they are."""
    mistake(monkeypatch)
    assert largest_score("a scale", 3_000) > 6.0


def test_discrete_atoms_stay_and_all_else_moves():
    """Also beside another process, whose atoms move."""
    with pm.Model() as model:
        b, alpha = pm.Normal("b"), pm.Gamma("alpha", 1.0, 1.0)
        k = dp.DirichletProcess("k", alpha, pm.Poisson.dist(pm.Gamma("rate", 2.0, 1.0)), shape=4)
        other = dp.DirichletProcess("other", 1.0, pm.Normal.dist(pm.Normal("m"), 1.0), shape=4)
        pm.Normal("y", k + other + b * X, pm.HalfNormal("sigma"), observed=Y)
        step = dp.DirichletProcessStep(model.free_RVs)
    assert step.continuous.watched == ["b", "rate", "m", "sigma"]
    idata = sampled.sample(model, 100, tune=100, chains=1, random_seed=1)
    assert {"diverging", "energy", "tree_depth"} <= set(idata.sample_stats)
    for name in ("b", "rate", "m", "sigma", "other"):
        assert np.unique(idata.posterior[name]).size > 50
