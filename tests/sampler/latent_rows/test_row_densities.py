"""Densities of latent rows at addresses: in Python, in compiled code, with errors; slices of shared numbers."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import sampled
from pytensor.raise_op import Assert

import pymc_dpgmm as dp
from pymc_dpgmm.integration.internals import direct
from pymc_dpgmm.integration.process_density import ProcessModel
from pymc_dpgmm.integration.process_density.latent_density import LatentDensity, row_terms_of
from pymc_dpgmm.native.array_calls import NativeCall, words_of
from pymc_dpgmm.sampler.latent_rows.row_density import RowDensity

BASE = dp.NormalInverseGamma(0.4, 0.3, 2.5, 0.8)
COUNTS, SEASONS = np.array([0, 2, 3, 11]), np.array([-1.0, 0.0, 0.5, 1.5])


def test_a_python_function_has_an_address():
    """It is given the rows with their offset."""
    rng, offset = np.random.default_rng(1), np.arange(8.0).reshape(4, 2)
    density = RowDensity.of_function(lambda rows: np.sin(rows).sum(axis=2), 4, 2)
    for n_sets in (1, 3, 7):
        rows = rng.normal(size=(n_sets, 4, 2))
        np.testing.assert_allclose(density(rows), np.sin(rows).sum(axis=2))
    density.add(offset)
    np.testing.assert_allclose(density(rows), np.sin(rows + offset).sum(axis=2))


@pytest.mark.parametrize("error", [ValueError("no density"), KeyboardInterrupt()])
def test_errors_of_a_python_function_are_raised(error):
    """They do not pass through compiled code, and are forgotten once they have been raised."""
    is_bad = [True]

    def function(rows):
        if is_bad[0]:
            raise error
        return rows[..., 0]

    density = RowDensity.of_function(function, 4, 1)
    with pytest.raises(type(error)):
        density(np.zeros((2, 4, 1)))
    is_bad[0] = False
    np.testing.assert_array_equal(density(np.ones((2, 4, 1))), 1.0)


def latent(observed):
    with pm.Model() as model:
        x, slope = dp.DPMixture("x", 1.2, BASE, shape=4), pm.Normal("slope")
        pm.Normal("y", x + slope * pytensor.shared(observed), 0.5, observed=SEASONS)
    return model


@pytest.mark.parametrize(("dtype", "is_native"), [("float64", True), ("float32", True), ("float64", False)])
def test_densities_of_a_model_at_arrays_that_change(dtype, is_native, monkeypatch):
    """Compiled by numba, or called back in Python, with data of the model of any type."""
    if not is_native:
        monkeypatch.setattr(direct, "native_call", lambda code: None)
    model = latent(SEASONS.astype(dtype))
    x = model["x"]
    density = LatentDensity(model, x, row_terms_of(model, x), None)
    point = model.initial_point(random_seed=1)
    rows, slope = np.random.default_rng(2).normal(size=(3, 4, 1)), np.array(0.7)
    for value in (0.7, -1.1):
        slope[...] = value
        at_point = density.at(point | {"slope": slope})
        assert isinstance(at_point.entry, NativeCall) == is_native
        mean = rows[..., 0] + value * SEASONS
        expected = -0.5 * ((SEASONS - mean) / 0.5) ** 2 - np.log(0.5 * np.sqrt(2.0 * np.pi))
        np.testing.assert_allclose(at_point(rows), expected, rtol=1e-6)


def test_arrays_of_other_kinds_are_refused():
    """Compiled code would read addresses that are none."""
    kinds = [(np.dtype(np.float64), 0), (np.dtype(np.float64), 2)]
    number, matrix = np.array(1.0), np.zeros((2, 3))
    assert words_of([number, matrix], kinds).tolist()[2:] == [2, 3]
    for arrays in ([number.reshape(1), matrix], [number, matrix.T], [number, matrix.astype(int)], [number]):
        with pytest.raises(TypeError, match="compiled code for arrays of the kinds"):
            words_of(arrays, kinds)


def rows_beside(c, s):
    pm.Normal("y", dp.DPMixture("x", 1.0, BASE, shape=4) + c, s, observed=SEASONS)


def rows_that_share(c, s):
    pm.Normal("y", dp.DPMixture("x", 1.0, BASE, shape=4) + c * pm.Normal("b"), s, observed=SEASONS)


def hyperparameter(c, s):
    base = dp.NormalInverseGamma(pm.Normal("mu", c, s), 0.3, 2.5, 0.8)
    dp.DPMixture("x", 1.0, base, observed=SEASONS)


def numbers_in_an_offset(c, s):
    dp.DPMixture("x", 1.0, BASE, observed=SEASONS, offset=c * pm.Normal("b", c, s) * np.arange(4.0))


def any_likelihood(c, s):
    x = dp.DirichletProcess("x", 1.0, pm.Normal.dist(0.0, 1.0), shape=4)
    pm.Normal("y", x + c, s, observed=SEASONS)


BESIDE_DATA = [rows_beside, rows_that_share, hyperparameter, numbers_in_an_offset, any_likelihood]


@pytest.mark.parametrize("build", BESIDE_DATA)
def test_several_numbers_among_the_data_of_a_model(build):
    """Containers without axes, in all that calls densities by address: draws are those with constants."""
    found = []
    for of_data in (pm.Data, lambda name, value: np.asarray(value)):
        with pm.Model() as model:
            build(of_data("c", 0.5), of_data("s", 0.7))
        found.append(sampled.sample(model, 5, tune=5, chains=1, random_seed=1).posterior)
    for name, draws in found[1].data_vars.items():
        np.testing.assert_allclose(found[0][name], draws, rtol=1e-6)


@pytest.mark.parametrize("name", ["x", "slope"])
def test_errors_of_a_graph_are_those_of_pytensor(name):
    """In compiled draws of rows, and of a number that they share."""
    with pm.Model() as model:
        x, slope = dp.DPMixture("x", 1.2, BASE, shape=4), pm.Normal("slope")
        refused = Assert(f"{name} is too large")
        value = refused(x, pt.lt(x.max(), 2.0)) if name == "x" else x + refused(slope, pt.lt(slope, 0.5))
        pm.Poisson("y", pt.exp(value + slope), observed=COUNTS)
    with pytest.raises(AssertionError, match=f"{name} is too large"):
        sampled.sample(model, 400, tune=50, chains=1, random_seed=3)


def steps_of(build):
    with pm.Model() as model:
        build()
        made = pm.sampling.mcmc.instantiate_steppers(model, *pm.sampling.mcmc.assign_step_methods(model))
    return {
        type(step).__name__: {value.name for value in step.vars}
        for step in (made if isinstance(made, list) else [made])
    }


def slopes(n=2):
    x, slope = dp.DPMixture("x", 1.2, BASE, shape=4), pm.Normal("slope", shape=n)
    pm.Poisson("y", pt.exp(x + slope.sum() * SEASONS), observed=COUNTS)


def slopes_and_a_parent():
    x, slope = dp.DPMixture("x", 1.2, BASE, shape=4), pm.Normal("slope", 0.0, pm.HalfNormal("sd"))
    pm.Poisson("y", pt.exp(x + slope * SEASONS), observed=COUNTS)


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "build", [slopes, lambda: slopes(9), slopes_and_a_parent], ids=["few", "many", "a parent"]
)
def test_what_is_continuous_is_drawn_with_latent_rows(build):
    (name, values), *others = steps_of(build).items()
    assert name == "DPMixtureStep"
    assert values >= {"x_labels", "x", "slope"}
    assert others == []


def test_a_number_without_its_rows_moves_given_these():
    with pm.Model() as model:
        slopes()
        step = dp.DPMixtureStep([model["x_labels"], model["slope"]])
    assert step.continuous.watched == ["slope"]
    assert step.latent == [[]]


def negative_binomial(theta, **given):
    return pm.NegativeBinomial.dist(mu=pt.exp(theta), **given)


WITH_A_GRAPH_INSIDE = {
    "censored counts": lambda theta: pm.Censored(
        "y", pm.Poisson.dist(pt.exp(theta)), lower=None, upper=4, observed=[0, 4, 2]
    ),
    "censored on both sides": lambda theta: pm.Censored(
        "y", negative_binomial(theta, alpha=pm.HalfNormal("s")), lower=1, upper=4, observed=[1, 4, 2]
    ),
    "two signs": lambda theta: pm.Potential(
        "y", pt.logaddexp(-((theta - SIGNED) ** 2), -((theta + SIGNED) ** 2) - 0.3)
    ),
    "units": lambda theta: pm.Potential("y", pt.logaddexp(theta[[0, 0, 2, 1]], -(theta[[0, 0, 2, 1]] ** 2))),
    "truncated counts": lambda theta: pm.Truncated(
        "y", pm.Poisson.dist(pt.exp(theta)), lower=1, observed=[1, 3, 2]
    ),
}
SIGNED = np.array([0.3, -1.0, 2.0])


@pytest.mark.parametrize("case", WITH_A_GRAPH_INSIDE)
def test_operations_with_a_graph_inside_are_by_row(case):
    """Densities of rows under each of several atoms add up to PyMC's where all rows have the atom."""
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=3)
        WITH_A_GRAPH_INSIDE[case](theta)
    process, point = ProcessModel(model, model["theta_labels"]), model.initial_point(random_seed=1)
    process.confirm(point)
    atoms = np.array([-0.7, 0.4, 1.1])
    found = process.densities.at(point).by_row([atoms])
    density = model.compile_logp(vars=[model["y"]], sum=True)
    whole = [density(point | {"theta": np.full(3, atom)}) for atom in atoms]
    np.testing.assert_allclose(found.sum(axis=1), whole, rtol=1e-9)
    one = density(point | {"theta": np.array([atoms[0], atoms[1], atoms[2]])})
    np.testing.assert_allclose(np.trace(found), one, rtol=1e-9)
