"""Draws of hyperparameters by slices, without Python and with it."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import sampled
from pytensor.raise_op import Assert
from slices import draw_slice, learnt_width
from slowly import rest_slow

import pymc_dpgmm as dp
from pymc_dpgmm.integration.steps.hyperparameters import Hyperparameters
from pymc_dpgmm.native.array_calls import NativeCall, PythonCall
from pymc_dpgmm.sampler.hyperparameters.coordinate_slices import CoordinateSlices

RNG = np.random.default_rng(8)
ROWS = RNG.normal(size=(25, 2)) + np.repeat([[50.0, 0.0], [54.0, 4.0]], [10, 15], axis=0)
WITH_GAPS = np.where(RNG.random(ROWS.shape) < 0.1, np.nan, ROWS)
COUNTS = RNG.poisson(3.0, size=(25, 2))
COVARIATES = np.column_stack([np.ones(25), RNG.normal(size=25)])


def columns():
    base = dp.NormalInverseGamma(pm.Normal("mu", 52.0, 3.0, shape=2), 0.2, 2.0, pm.HalfNormal("b"))
    return dp.DPMixture("y", 1.0, base, observed=ROWS)


def columns_with_gaps():
    base = dp.NormalInverseGamma(52.0, 0.2, pm.HalfNormal("a", 3.0, shape=2), pm.HalfNormal("b"))
    return dp.DPMixture("y", 1.0, base, observed=WITH_GAPS)


def full_covariances():
    """With matrices that are not always positive definite, and too few degrees of freedom."""
    correlation, nu = pm.Uniform("correlation", -1.5, 1.5), pm.HalfNormal("nu", 3.0)
    psi = pt.stacklists([[1.0, correlation], [correlation, 1.0]]) * pm.HalfNormal("spread")
    base = dp.NormalInverseWishart(pm.Normal("mu", 52.0, 3.0), 0.2, nu, psi)
    return dp.DPMixture("y", 1.0, base, observed=ROWS)


def spherical():
    base = dp.SphericalNormalInverseGamma(52.0, pm.HalfNormal("kappa"), 2.0, 1.0, pm.HalfNormal("scale", shape=2))
    return dp.DPMixture("y", 1.0, base, observed=ROWS)


def regressions():
    base = dp.LinearRegression(
        pm.Normal("mu", shape=2), pm.HalfNormal("precision", shape=2) * np.eye(2), 2.0, 1.0, COVARIATES
    )
    return dp.DPMixture("y", 1.0, base, observed=ROWS[:, 0])


def counts_and_numbers():
    """Two mixtures on the same labels, with a variable in common, and alpha by slices."""
    shared = pm.HalfNormal("shared")
    y = dp.DPMixture("y", pm.LogNormal("alpha"), dp.GammaPoisson(shared, pm.HalfNormal("b")), observed=COUNTS)
    labels = pm.modelcontext(None)["y_labels"]
    dp.CollapsedMixture("z", labels, dp.NormalInverseGamma(52.0, shared, 2.0, 1.0), observed=ROWS)
    return y


def events():
    base = dp.BetaBernoulli(pm.HalfNormal("a", shape=2), pm.HalfNormal("b"))
    return dp.DPMixture("y", 1.0, base, observed=COUNTS > 2)


def changing_data():
    centre = pm.Data("centre", 50.0)
    base = dp.NormalInverseGamma(centre + pm.Normal("mu", 0.0, 5.0), 1.0, 2.0, 1.0)
    return dp.DPMixture("y", 1.0, base, observed=ROWS[:, 0])


def of_whole_numbers():
    """A parameter of whole numbers, which another step draws."""
    kappa = pm.Poisson("k", 2.0) + 1
    base = dp.NormalInverseGamma(pm.Normal("mu", 52.0, 3.0), kappa, 2.0, 1.0)
    return dp.DPMixture("y", 1.0, base, observed=ROWS[:, 0])


def residuals():
    """Rows that move with coefficients, which have a hyperparameter of their own."""
    coefficients = pm.Normal("coefficients", 52.0, pm.HalfNormal("spread", 5.0), shape=2)
    base = dp.NormalInverseGamma(0.0, 0.2, 2.0, pm.HalfNormal("b"))
    return dp.DPMixture("y", pm.LogNormal("alpha"), base, observed=ROWS[:, 0], offset=COVARIATES @ coefficients)


def moving_planes():
    """Rows of which one column moves, with data that change, beside a mixture whose rows stay."""
    slope, centre = pm.Normal("slope"), pm.Data("centre", 50.0)
    covariance = pm.HalfNormal("spread") * np.eye(2)
    offset = pt.stack([centre + slope * COVARIATES[:, 1], pt.zeros(25)], axis=1)
    base = dp.NormalInverseWishart([2.0, 2.0], 0.2, 4.0, covariance)
    y = dp.DPMixture("y", 1.0, base, observed=ROWS, offset=offset)
    labels = pm.modelcontext(None)["y_labels"]
    dp.CollapsedMixture("z", labels, dp.GammaPoisson(2.0, pm.HalfNormal("rate")), observed=COUNTS)
    return y


def moving_regressions():
    base = dp.LinearRegression([52.0, 0.0], pm.HalfNormal("precision") * np.eye(2), 2.0, 1.0, COVARIATES)
    offset = pm.Normal("slope") * np.linspace(-1.0, 1.0, 25)
    return dp.DPMixture("y", 1.0, base, observed=ROWS[:, 0], offset=offset)


def of_other_supports():
    """A family whose parameters must fit together, which only Python tells."""
    a = pm.HalfNormal("a", shape=(2, 3)) * np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    codes = np.column_stack([COUNTS[:, 0] % 2, COUNTS[:, 1] % 3])
    return dp.DPMixture("y", 1.0, dp.DirichletCategorical(a, levels=[2, 3]), observed=codes)


NATIVE = [
    columns,
    full_covariances,
    of_whole_numbers,
    counts_and_numbers,
    columns_with_gaps,
    spherical,
    regressions,
    events,
    changing_data,
    residuals,
    moving_planes,
    moving_regressions,
]


def draws(build, n_draws, **options):
    with pm.Model() as model:
        build()
    options = {"tune": 10, "chains": 1, "random_seed": 3} | options
    return sampled.sample(model, n_draws, **options).posterior


@pytest.fixture
def n_native(monkeypatch):
    """How many draws were made without Python."""
    found = []
    draw = CoordinateSlices.draw

    def counted(slices, *given):
        if isinstance(slices._entry, NativeCall):
            found.append(1)
        return draw(slices, *given)

    monkeypatch.setattr(CoordinateSlices, "draw", counted)
    return found


@pytest.mark.parametrize("build", rest_slow(NATIVE, 3))
def test_draws_are_those_of_python(build, n_native, monkeypatch):
    """The density, and its support, from the same random numbers.

    Up to rounding: after more draws, labels may part where two choices are equally probable.
    """
    native = draws(build, 15)
    # Once for each group of variables.
    n_draws = len(n_native)
    assert n_draws in (25, 50)
    monkeypatch.setattr(Hyperparameters, "_may_be_native", lambda _: False)
    in_python = draws(build, 15)
    assert len(n_native) == n_draws
    for name in native:
        np.testing.assert_allclose(native[name], in_python[name], rtol=1e-7, atol=1e-9, err_msg=str(name))


DENSITIES = {
    "normal": lambda u: -0.5 * u * u,
    "two bounds": lambda u: np.inf if u > 0.9 else np.nan if u < -0.4 else -0.5 * u * u,
    "a wall": lambda u: 0.0 if 0.0 < u < 1e-3 else -np.inf,
}


def sliced_in_compiled_code(at, x, widths):
    """A function that draws a number by a density in Python, and returns how many numbers were impossible."""
    entry = PythonCall(lambda values: [np.array(at(float(values[0])))], [(x.dtype, 1)])
    slices = CoordinateSlices(entry, [np.empty(1)], 0)
    return lambda rng: slices.draw(rng, [x], [x], [widths], True)


def test_a_slice_without_an_end_ends():
    """Widths are halved then, and the present value stays."""
    x, widths = np.zeros(1), np.full(1, 1e308)
    draw = sliced_in_compiled_code(lambda u: 0.0, x, widths)
    assert draw(np.random.default_rng(1)) == 0
    assert x[0] == 0.0
    assert widths[0] == 5e307


@pytest.mark.parametrize("width", [1e-2, 1.0])
@pytest.mark.parametrize("of", DENSITIES)
def test_slices_are_those_of_python(of, width):
    """The numbers, the widths and the count of what is impossible, from the same random numbers."""
    at, n = DENSITIES[of], 300
    x, widths = np.full(1, 5e-4), np.full(1, width)
    draw, rng = sliced_in_compiled_code(at, x, widths), np.random.default_rng(4)
    own_rng, own, own_width = np.random.default_rng(4), 5e-4, width
    for _ in range(n):
        n_impossible = draw(rng)
        sliced = draw_slice(own_rng, at, own, at(own), own_width)
        own, own_width = sliced.drawn, learnt_width(own_width, sliced.length)
        assert n_impossible == sliced.n_impossible
        np.testing.assert_allclose([x[0], widths[0]], [own, own_width], rtol=1e-9, atol=1e-12)


def test_numbers_of_single_precision_are_drawn_as_those_of_double_precision():
    """What a step writes has the type of the variable."""
    with pytensor.config.change_flags(floatX="float32"):
        posterior = draws(columns, 20)
    assert posterior["mu"].dtype == np.float32
    assert len(np.unique(posterior["mu"])) > 20


@pytest.mark.parametrize("build", [of_other_supports])
def test_what_compiled_code_does_not_know_is_drawn_in_python(build, n_native):
    draws(build, 5)
    assert not n_native


def test_errors_of_a_graph_are_those_of_pytensor():
    """In a draw without Python, an error is raised as it would be in one with it."""

    def refusing():
        mu = pm.Normal("mu", 52.0, 3.0)
        refused = Assert("mu is too large")(mu, pt.lt(mu, 52.4))
        return dp.DPMixture("y", 1.0, dp.NormalInverseGamma(refused, 0.2, 2.0, 1.0), observed=ROWS)

    with pytest.raises(AssertionError, match="mu is too large"):
        draws(refusing, 400, tune=50)


def test_a_step_in_another_process_has_code_of_its_own():
    """Addresses mean nothing there."""
    with pm.Model() as model:
        columns()
        step = dp.DPMixtureStep([model["y_labels"], model["mu"], model["b"]])
    step.setup_chain(np.random.default_rng(0), 0, 0)
    point = model.initial_point()
    for _ in range(3):
        point, _ = step.step(point)
    (group,) = step.hyperparameters
    assert group._slices is not None
    again = cloudpickle.loads(cloudpickle.dumps(group))
    assert again._slices is None
    assert again.names == group.names


def test_data_that_changes_between_runs_is_read(n_native):
    with pm.Model() as model:
        changing_data()
    means = []
    for centre in (50.0, 60.0):
        with model:
            pm.set_data({"centre": centre})
        found = sampled.sample(model, 100, tune=50, chains=1, random_seed=3).posterior
        means.append(float(found["mu"].mean()))
    # The base measure is in about the same place, so that mu makes up for it as far as its prior lets it.
    assert n_native
    assert means[0] - means[1] > 2.0
