"""Variables that rows with atoms share, moved together with the atoms, against enumeration and quadrature."""

import exact
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import sampled
from scipy import stats
from scipy.special import logsumexp
from slowly import slow_but

import pymc_dpgmm as dp
from pymc_dpgmm.integration.process_density import AtomDensities
from pymc_dpgmm.integration.steps import shared_of_atoms
from pymc_dpgmm.sampler.atoms import compiled_sweeps
from pymc_dpgmm.sampler.atoms.atom_moves import Scales

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
    """Labels and variables as a step alone draws them: nothing else moves what rows share."""
    model = build()
    with model:
        step = dp.DirichletProcessStep(**options)
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
    assert_posterior(*drawn_regressions(30_000, 3))


def test_shared_numbers_move_with_the_atoms():
    assert_posterior(*drawn_regressions(4_000, n_sweeps=1))


def without_the_jacobian(monkeypatch):
    place = compiled_sweeps.CompiledSweeps.place
    monkeypatch.setattr(compiled_sweeps.CompiledSweeps, "place", lambda self, n: 0.0 * place(self, n))
    standardize = compiled_sweeps.CompiledSweeps.standardize
    monkeypatch.setattr(compiled_sweeps.CompiledSweeps, "standardize", lambda self, n: 0.0 * standardize(self, n))


def with_modes_from_the_atoms(monkeypatch):
    def find_modes(self, centre, n_steps):
        n_clusters = len(self.free)
        self._of_sweep["starts"][:n_clusters] = self.free

    monkeypatch.setattr(compiled_sweeps.CompiledSweeps, "find_modes", find_modes)
    monkeypatch.setattr(shared_of_atoms, "STEPS", 0)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [without_the_jacobian, with_modes_from_the_atoms])
def test_mistakes_are_seen(monkeypatch, mistake):
    """The comparison with quadrature fails without the Jacobian, and where modes depend on the atoms."""
    mistake(monkeypatch)
    labels, b, sigma = drawn_regressions(4_000)
    with pytest.raises(AssertionError):
        assert_posterior(labels, b, sigma)


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
    """Nothing but the translation moves the mean."""
    assert_levels(*drawn(30_000, build=levels, names=("b", "m"), n_sweeps=2))


@pytest.mark.slow
def test_a_translation_without_the_prior_of_the_mean_is_seen(monkeypatch):
    """The comparison with quadrature fails."""
    joint = AtomDensities.joint

    def without_mean(self, model, parameters, others):
        return joint(self, model, parameters, [rv for rv in others if rv.name != "m"])

    monkeypatch.setattr(AtomDensities, "joint", without_mean)
    found = drawn(6_000, build=levels, names=("b", "m"), n_sweeps=2)
    with pytest.raises(AssertionError):
        assert_levels(*found)


MEANS = {
    "a variable": (lambda: pm.Normal.dist(pm.Normal("m"), pt.exp(pm.Normal("log_sd"))), [("m", slice(0, 1))]),
    "of logarithms": (lambda: pm.LogNormal.dist(pm.Normal("m"), 0.5), [("m", slice(0, 1))]),
    "twice a variable": (lambda: pm.Normal.dist(2.0 * pm.Normal("m"), 1.0), []),
    "a bounded variable": (lambda: pm.Normal.dist(pm.HalfNormal("m"), 1.0), []),
    "a vector": (lambda: pm.MvNormal.dist(pm.Normal("m", shape=2), np.eye(2)), [("m", slice(0, 2))]),
    "one for two": (lambda: pm.MvNormal.dist(pt.ones(2) * pm.Normal("m"), np.eye(2)), []),
    "several": (
        lambda: {"sd": pm.HalfNormal.dist(1.0), "mu": pm.StudentT.dist(4.0, mu=pm.Normal("m"), sigma=1.0)},
        [("m", slice(1, 2))],
    ),
}


@pytest.mark.parametrize("case", slow_but(MEANS, "a variable"))
def test_which_variables_are_means_of_the_base(case):
    """Densities of atoms tell; all of them move with an intercept, compiled."""
    base, expected = MEANS[case]
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, base(), shape=4)
        rows = theta["mu"] * theta["sd"] if isinstance(theta, dict) else theta
        pm.Normal("y", rows if rows.ndim == 1 else rows.sum(axis=1), pm.HalfNormal("sigma"), observed=Y)
        step = dp.DirichletProcessStep()
    step.setup_chain(np.random.default_rng(1), 2, 2)
    point = model.initial_point(random_seed=1)
    for _ in range(2):
        point, _ = step.step(point)
    assert step.anchors["theta_labels"].means == expected


@pytest.mark.parametrize("known_by", slow_but(["another process", "a concentration", "a profile"], "a profile"))
def test_means_that_others_know_stay(known_by):
    """Densities of other labels' atoms are not counted, and labels are those of the draw before."""
    with pm.Model() as model:
        m, b = pm.Normal("m"), pm.Normal("b")
        alpha = pt.exp(m) if known_by == "a concentration" else 1.0
        theta = dp.DirichletProcess("theta", alpha, pm.Normal.dist(m, 1.0), shape=len(Y))
        pm.Normal("y", theta + b, 0.5, observed=Y)
        if known_by == "another process":
            other = dp.DirichletProcess("other", 1.0, pm.Normal.dist(m, 0.5), shape=len(Y))
            pm.Normal("seen", other, 0.5, observed=-Y)
        elif known_by == "a profile":
            base = dp.NormalInverseGamma(m, 1.0, 2.0, 1.0)
            dp.CollapsedMixture("profile", model["theta_labels"], base, observed=X)
        step = dp.DirichletProcessStep()
    step.setup_chain(np.random.default_rng(1), 2, 2)
    point = model.initial_point(random_seed=1)
    for _ in range(2):
        point, _ = step.step(point)
    assert step.anchors["theta_labels"].means == []


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


def vectors():
    """Two numbers a cluster, tied to each other."""
    atoms = {"mu": pm.Normal.dist(0.0, 4.0), "sd": pm.HalfNormal.dist(2.0)}
    theta = dp.DirichletProcess("theta", 1.0, atoms, shape=6)
    b = pm.Normal("b", 0.0, 2.0, shape=2)
    x = np.random.default_rng(1).normal(size=(6, 2))
    pm.Normal("y", theta["mu"] + x @ b, theta["sd"], observed=np.array([-2.0, -1.7, 0.1, 3.0, 3.3, 2.0]))


def test_standard_numbers_and_their_jacobian():
    """Placed where they were, atoms are the same; the Jacobian is that of finite differences."""
    with pm.Model() as model:
        vectors()
        step = dp.DirichletProcessStep()
    step.setup_chain(np.random.default_rng(1), 100, 100)
    point = model.initial_point(random_seed=1)
    for _ in range(80):
        point, _ = step.step(point)
    (target,) = step.targets
    (native,) = target._sweeps.values()
    labels, atoms = target.read(point)
    densities = target.densities.at(point)
    free = densities.to_free(atoms)
    native.begin(step.rng, labels, free, densities.native_values)
    native.find_modes(step.anchors["theta_labels"].centre, 8)
    log_jacobian = native.standardize(2)
    standard = native._of_sweep["standard"]
    kept = standard[: len(free)].copy()
    assert native.place(2) == pytest.approx(log_jacobian)
    np.testing.assert_allclose(native.free, free, rtol=1e-9, atol=1e-12)
    columns = []
    for q in range(kept.size):
        ends = []
        for sign in (1.0, -1.0):
            standard[: len(free)].flat[q] = kept.flat[q] + sign * 1e-4
            native.place(2)
            ends.append(native.free.ravel())
            standard[: len(free)].flat[q] = kept.flat[q]
        columns.append((ends[0] - ends[1]) / 2e-4)
    assert np.linalg.slogdet(np.array(columns))[1] == pytest.approx(log_jacobian, rel=1e-5)


def test_which_variables_are_shared():
    """Those of likelihoods; not hyperparameters, other processes, or what is drawn with labels."""
    with pm.Model():
        m, b, alpha = pm.Normal("m"), pm.Normal("b"), pm.Gamma("alpha", 1.0, 1.0)
        theta = dp.DirichletProcess("theta", alpha, pm.Normal.dist(m, 1.0), shape=4)
        other = dp.DirichletProcess("other", 1.0, pm.Normal.dist(0.0, 1.0), shape=4)
        pm.Normal("y", theta + other + b * X, pm.HalfNormal("sigma"), observed=Y)
        step = dp.DirichletProcessStep()
    assert [target.shared.names for target in step.targets] == [["b", "sigma_log__"]] * 2
    with pm.Model():
        k = dp.DirichletProcess("k", 1.0, pm.Poisson.dist(2.0), shape=4)
        pm.Normal("y", k + pm.Normal("b") * X, 1.0, observed=Y)
        step = dp.DirichletProcessStep()
    assert [target.shared.names for target in step.targets] == [[]]


def test_moves_wait_for_clusters():
    """In the first half of tuning shared numbers stay where another step puts them."""
    model = regression()
    with model:
        step = dp.DirichletProcessStep()
    step.setup_chain(np.random.default_rng(1), 20, 20)
    point = model.initial_point(random_seed=1)
    seen = []
    for _ in range(30):
        point, _ = step.step(point)
        seen.append(float(point["b"]))
    assert len(set(seen[:10])) == 1
    assert len(set(seen[10:])) > 10
    assert isinstance(step.scales[0], Scales)
