"""Sweeps over labels and atoms, beside the same sweeps in Python."""

import math

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.raise_op import Assert
from slowly import slow_but
from sweeps_in_python import SweepsInPython

import pymc_dpgmm as dp
from pymc_dpgmm.integration.internals.direct import DirectFunction
from pymc_dpgmm.native.array_calls import NativeCall
from pymc_dpgmm.native.compiled import FLOATS, INT, NOTHING, c_function
from pymc_dpgmm.native.symmetric import definite_near
from pymc_dpgmm.sampler.atoms.sweep_splits import LEAST_EIGENVALUE

RNG = np.random.default_rng(3)
N = 14
REALS = RNG.normal(size=N) + np.repeat([-3.0, 3.0], [6, N - 6])
COUNTS = RNG.poisson(np.repeat([1.0, 9.0], [6, N - 6]))
EXPOSURE, TRIALS = RNG.uniform(0.5, 2.0, size=N), 13 + RNG.permutation(N)


def one_number(alpha=1.0, **arguments):
    return dp.DirichletProcess("mu", alpha, pm.Normal.dist(0.0, 4.0), shape=N, **arguments)


def heavy_tails():
    pm.StudentT("y", nu=4.0, mu=one_number(), sigma=1.0, observed=REALS)


def counts():
    """With a gamma concentration, a discount, and a hyperparameter of the base."""
    base = pm.LogNormal.dist(pm.Normal("centre"), 1.0)
    rate = dp.DirichletProcess("mu", pm.Gamma("alpha", 2.0, 1.0), base, shape=N)
    pm.Poisson("y", rate * EXPOSURE, observed=COUNTS)


def with_a_discount():
    mu = one_number(None, prior=dp.PitmanYor.dist(1.0, 0.3, N))
    pm.Logistic("y", mu, 1.0, observed=REALS)


def random_number_of_components():
    mu = one_number(None, prior=dp.MFM.dist(1.0, N, components=pm.Geometric.dist(0.3)))
    pm.Normal("y", mu, 1.0, observed=REALS)


def two_parameters():
    """The second is a bound of the first; the data changes."""
    sd = pm.HalfNormal.dist(2.0)
    theta = dp.DirichletProcess("theta", 1.0, {"mu": pm.Normal.dist(0.0, 4.0), "sd": sd}, shape=N)
    offset = pm.Data("offset", np.linspace(0.0, 1.0, N))
    pm.Normal("y", theta["mu"] + offset, theta["sd"], observed=REALS)


def vectors():
    """Three numbers a cluster, two observed variables."""
    beta = dp.DirichletProcess("mu", 1.0, pm.Normal.dist(0.0, 2.0, shape=3), shape=(N, 3))
    design = np.column_stack([np.ones(N), REALS, REALS**2 / 9.0])
    pm.Normal("y", (beta * design).sum(axis=1), 1.0, observed=REALS)
    pm.Poisson("z", pt.exp(beta[:, 0]), observed=COUNTS)


def shares():
    """Probabilities, whose free form is bounded by rounding."""
    p = dp.DirichletProcess("mu", 1.0, pm.Beta.dist(0.5, 0.5), shape=N)
    pm.Binomial("y", TRIALS, p, observed=np.minimum(COUNTS, 13))


def blocks():
    """Rows that must be in one cluster, and rows whose clusters are known."""
    known, linked = np.full(N, -1), np.full(N, -1)
    known[[0, 9]], linked[[1, 2, 5, 7]] = [0, 1], [0, 0, 0, 1]
    mu = one_number(known_labels=known, must_link=linked)
    pm.StudentT("y", nu=4.0, mu=mu, sigma=1.0, observed=REALS)


def profile():
    """A collapsed mixture of two columns on the same labels."""
    heavy_tails()
    x = np.column_stack([REALS, EXPOSURE])
    dp.CollapsedMixture(
        "x", pm.modelcontext(None)["mu_labels"], dp.NormalInverseGamma(0.0, 0.5, 2.0, 1.0), observed=x
    )


def profile_of_blocks():
    """The same beside blocks of rows, with counts as well, and with the base measure random."""
    blocks()
    labels = pm.modelcontext(None)["mu_labels"]
    base = dp.NormalInverseGamma(pm.Normal("centre"), 0.5, 2.0, 1.0)
    dp.CollapsedMixture("x", labels, base, observed=REALS)
    dp.CollapsedMixture("z", labels, dp.GammaPoisson(1.0, 0.5), observed=COUNTS)


def discrete():
    """With hyperparameters, and a type of few numbers."""
    k = dp.DirichletProcess("mu", 1.0, pm.Poisson.dist(pm.LogNormal("centre", 1.0)), shape=N)
    pm.Poisson("y", k + 0.1, observed=COUNTS)


def of_several_kinds():
    """Vectors of whole numbers, and one that decides on a continuous one."""
    kind = pm.Categorical.dist([0.2, 0.5, 0.3])
    base = {"kind": kind, "mu": pm.Normal.dist(pt.constant(np.array([-3.0, 0.0, 3.0]))[kind], 0.7)}
    base["more"] = pm.Binomial.dist([3, 2], [0.4, 0.5])
    c = dp.DirichletProcess("c", 1.0, base, shape=N)
    pm.Normal("y", c["mu"] + c["more"][:, 0] - 0.5 * c["more"][:, 1], 1.0, observed=REALS)


CASES = {
    case.__name__: case
    for case in (
        heavy_tails,
        two_parameters,
        blocks,
        counts,
        vectors,
        with_a_discount,
        random_number_of_components,
        shares,
        profile,
        profile_of_blocks,
        discrete,
        of_several_kinds,
    )
}


class Numbers:
    """The random numbers of compiled code, for the draw in Python."""

    def __init__(self, rng):
        self.bit_generator, self.random = rng.bit_generator, rng.random
        self.integers, self.binomial = rng.integers, rng.binomial

    def _normal(self):
        radius = math.sqrt(-2.0 * math.log(1.0 - self.random()))
        return radius * math.cos(2.0 * math.pi * self.random())

    def standard_normal(self, shape):
        return np.array([self._normal() for _ in range(math.prod(shape))]).reshape(shape)

    def _gamma(self, shape):
        d = shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self._normal()
            v = (1.0 + c * x) ** 3
            if v > 0.0 and math.log(1.0 - self.random()) < 0.5 * x * x + d - d * v + d * math.log(v):
                return d * v

    def chisquare(self, freedom, size):
        return np.array([2.0 * self._gamma(0.5 * freedom) for _ in range(size)])


def started(case, *, in_python, tuning, seed, **options):
    """Return a step of a model with its own numbers, and a point."""
    with pm.Model() as model:
        case()
        step = dp.DirichletProcessStep(**options)
    if in_python:
        for target in step.targets:
            target.sweeps = SweepsInPython(target).begin
    step.setup_chain(np.random.default_rng(seed), 100 if tuning else 0, 100)
    if in_python:
        step.rng = Numbers(step.rng)
    return step, model.initial_point(random_seed=seed)


OPTIONS = {
    "default": {},
    "twice": {"n_scans": 2, "n_auxiliary": 1, "hamiltonian": 1, "split_merge": 3},
    "no scans": {"n_scans": 0, "n_sweeps": 2},
}
RUNS = [f"{case}, {options}, {when}" for case in CASES for options in OPTIONS for when in ("tuning", "drawing")]
FAST = (
    "heavy_tails, default, tuning",
    "blocks, no scans, tuning",
    "profile_of_blocks, default, drawing",
)


@pytest.mark.parametrize("run", slow_but(RUNS, *FAST))
def test_a_draw_is_that_in_python(run):
    """The same labels, atoms, counts and scales, draw after draw: every family of moves, each case."""
    case, options, when = run.split(", ")
    (native, point), (slow, _) = (
        started(CASES[case], in_python=in_python, tuning=when == "tuning", seed=5, **OPTIONS[options])
        for in_python in (False, True)
    )
    n_splits = n_accepted = 0
    for draw in range(60):
        state = slow.rng.bit_generator.state
        (new, (told,)), (wanted, (expected,)) = native.step(point), slow.step(point)
        for name, value in wanted.items():
            np.testing.assert_allclose(new[name], value, rtol=1e-7, atol=1e-9, err_msg=f"{name}, draw {draw}")
        for name, value in expected.items():
            if not name.endswith("seconds"):
                np.testing.assert_allclose(told[name], value, rtol=1e-7, atol=1e-9, err_msg=name)
        of_native, of_slow = native.scales[0], slow.scales[0]
        for name in ("step", "base", "row"):
            np.testing.assert_allclose(getattr(of_native, name), getattr(of_slow, name), rtol=1e-6)
        assert native.rng.bit_generator.state == slow.rng.bit_generator.state != state
        point = wanted
        slow.scales[0].take(of_native.numbers(), of_native.base.copy(), of_native.row.copy())
        n_splits += sum(told[name] for name in told if name.endswith("_tried"))
        n_accepted += sum(told[name] for name in told if name.endswith(("splits", "merges")))
    assert is_without_python(native)
    if not native.targets[0].densities.discrete:
        assert n_splits >= 5
        assert n_accepted >= 1


def is_without_python(step):
    (target,) = step.targets
    (sweeps,) = target._sweeps.values()
    return all(isinstance(entry, NativeCall) for entry in sweeps._entries)


@c_function(NOTHING(FLOATS, FLOATS, INT))
def _definite_near(matrix, work, d):
    definite_near(matrix, work, d, LEAST_EIGENVALUE)


@pytest.mark.parametrize("d", [2, 3, 7])
def test_absolute_eigenvalues(d):
    """Those of NumPy, also where matrices are diagonal, singular, indefinite, or have scales far apart."""
    rng = np.random.default_rng(d)
    scales = 10.0 ** np.linspace(-3.0, 3.0, d)
    random = rng.normal(size=(d, d))
    repeated = np.full((d, d), 2.0)
    for matrix in (random + random.T, np.diag(scales), repeated, np.zeros((d, d)), np.outer(scales, scales)):
        found, work = matrix.copy(), np.empty((2, d, d))
        _definite_near(found.ctypes.data, work.ctypes.data, d)
        values, vectors = np.linalg.eigh(matrix)
        wanted = (vectors * np.maximum(np.abs(values), LEAST_EIGENVALUE)) @ vectors.T
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12 * np.abs(matrix).max())


@pytest.mark.parametrize("case", ["two_parameters", "of_several_kinds"])
def test_densities_that_need_python_are_called_from_compiled_code(case, monkeypatch):
    """The same draws, with densities that PyTensor has not compiled."""
    (compiled, point), (called_back, _) = (
        started(CASES[case], in_python=False, tuning=True, seed=5) for _ in range(2)
    )
    points = [compiled.step(point)[0]]
    monkeypatch.setattr(DirectFunction, "native", lambda _: None)
    assert_same(called_back.step(point)[0], points[0])
    assert not is_without_python(called_back)


def assert_same(point, other):
    for name, value in other.items():
        np.testing.assert_allclose(point[name], value, rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ArithmeticError])
def test_what_a_density_in_python_raises_is_raised(kind, monkeypatch):
    step, point = started(heavy_tails, in_python=False, tuning=True, seed=5)
    monkeypatch.setattr(DirectFunction, "native", lambda _: None)
    point, _ = step.step(point)
    (sweeps,) = step.targets[0]._sweeps.values()

    def fails(*_):
        raise kind

    monkeypatch.setattr(sweeps._entries[0], "_function", fails)
    with pytest.raises(kind):
        step.step(point)


def test_an_error_of_a_density_is_its_own():
    """A check of the user's that fails is told of in its words."""
    with pm.Model() as model:
        limit = pm.Data("limit", 1.0)
        sigma = Assert("limit must be positive")(pm.HalfNormal("sigma") + 0.1, limit > 0.0)
        pm.Normal("y", one_number(), sigma, observed=REALS)
        step = dp.DirichletProcessStep()
    step.setup_chain(np.random.default_rng(1), 100, 100)
    point, _ = step.step(model.initial_point(random_seed=1))
    assert is_without_python(step)
    with model:
        pm.set_data({"limit": -1.0})
    with pytest.raises(AssertionError, match="limit must be positive"):
        step.step(point)


def test_copies_begin_anew():
    """A step that has drawn can be sent to another process, and goes on there with the same numbers."""
    step, point = started(heavy_tails, in_python=False, tuning=False, seed=2)
    point, _ = step.step(point)
    copied = cloudpickle.loads(cloudpickle.dumps(step))
    (new, _), (wanted, _) = copied.step(point), step.step(point)
    for name, value in wanted.items():
        np.testing.assert_array_equal(new[name], value)
    assert is_without_python(copied)


def test_memory_grows():
    """Many clusters at once: the pool of atoms and all memory of clusters grow, and draws stay those in Python."""

    def case():
        pm.Normal("y", one_number(200.0), 0.01, observed=REALS)

    (native, point), (slow, _) = (
        started(case, in_python=in_python, tuning=True, seed=5, n_auxiliary=1) for in_python in (False, True)
    )
    for _ in range(5):
        (new, _), (wanted, _) = native.step(point), slow.step(point)
        for name, value in wanted.items():
            np.testing.assert_allclose(new[name], value, rtol=1e-7, atol=1e-9)
        point = wanted
    assert len(np.unique(point["mu_labels"])) > 8


def test_data_that_changes_is_read():
    """pm.set_data between draws changes what is drawn."""
    with pm.Model() as model:
        two_parameters()
        step = dp.DirichletProcessStep()
    step.setup_chain(np.random.default_rng(1), 100, 100)
    point = model.initial_point(random_seed=1)
    for _ in range(20):
        point, _ = step.step(point)
    before = point["theta_mu"].mean()
    with model:
        pm.set_data({"offset": np.full(N, 50.0)})
    for _ in range(60):
        point, _ = step.step(point)
    assert point["theta_mu"].mean() < before - 5.0
