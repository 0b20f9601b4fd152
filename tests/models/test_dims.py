"""Variables of ``pymc.dims`` as parameters of a mixture: the same model as with plain variables."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest
from pymc.sampling import mcmc
from pymc.step_methods import CompoundStep

import pymc_dpgmm as dp

pytestmark = [
    pytest.mark.interpreted,
    # PyMC says so of every import of the module, whatever is done with it.
    pytest.mark.filterwarnings("ignore:The `pymc.dims` module is experimental"),
]

COORDS = {"row": np.arange(20), "column": ["a", "b"]}
ROWS = np.random.default_rng(3).normal(size=(20, 2)) + 4.0 * (np.arange(20) % 2)[:, None]
PSI = np.array([[1.0, 0.2], [0.2, 0.8]])


def observed_rows(module):
    """Parameters of the base measure, alpha, the discount and slopes of an offset are variables."""
    labelled = module is pmd
    vector = {"dims": "column"} if labelled else {"shape": 2}
    x = np.linspace(-1.0, 1.0, 20)
    with pm.Model(coords=COORDS) as model:
        alpha = module.LogNormal("alpha", 0.0, 1.0)
        discount = module.Beta("discount", 1.0, 2.0)
        mu = module.Normal("mu", 0.0, 2.0, **vector)
        kappa = module.Gamma("kappa", 2.0, 10.0)
        slope = module.Normal("slope", 0.0, 1.0, **vector)
        offset = pmd.as_xtensor(x, dims=("row",)) * slope if labelled else x[:, None] * slope
        base = dp.NormalInverseWishart(mu, 2.0 * kappa, 5.0, PSI)
        dp.PYMixture("y", alpha, discount, base, observed=ROWS, offset=offset)
    return model


def latent_rows(module):
    """Counts depend on rows of a mixture, whose number of components is fixed."""
    with pm.Model(coords=COORDS) as model:
        alpha = module.LogNormal("alpha", 0.0, 1.0)
        mu = module.Normal("mu", 0.0, 2.0, **({"dims": "column"} if module is pmd else {"shape": 2}))
        kappa = module.Gamma("kappa", 2.0, 10.0)
        base = dp.NormalInverseGamma(mu, kappa, 4.0, 0.6)
        rate = dp.FiniteMixture("y", alpha, 3, base, shape=(20, 2), offset=kappa)
        pm.Poisson("count", pm.math.exp(rate), observed=(np.arange(40) % 4).reshape(20, 2))
    return model


def sampled():
    return pm.sample(
        25, tune=25, chains=1, cores=1, random_seed=5, progressbar=False, compute_convergence_checks=False
    )


@pytest.mark.parametrize("model", [pytest.param(observed_rows, marks=pytest.mark.slow), latent_rows])
def test_the_same_seed_gives_the_draws_of_plain_variables(model):
    """pymc.dims changes names of axes and nothing else."""
    found = {}
    for module in (pm, pmd):
        with model(module) as built:
            idata = sampled()
            found[module] = {name: idata.posterior[name] for name in idata.posterior.data_vars}
            if model is latent_rows:
                continue
            replicates = pm.sample_posterior_predictive(idata, random_seed=6, progressbar=False)
            found[module]["replicates"] = replicates.posterior_predictive["y"]
            prior = pm.sample_prior_predictive(5, random_seed=2)
            found[module]["prior"] = prior.prior_predictive["y"]
        # The offset has no name; all else is found by its name.
        found[module]["log_likelihood"] = dp.log_likelihood(idata, "y", model=built, random_seed=3).log_likelihood[
            "y"
        ]
    assert found[pmd]["mu"].dims == ("chain", "draw", "column")
    plain = {name: values for name, values in found[pm].items() if not name.startswith("y_")}
    np.testing.assert_array_equal(found[pmd]["y_labels"], found[pm]["y_labels"])
    for name, values in plain.items():
        np.testing.assert_allclose(found[pmd][name], values, rtol=1e-6, atol=1e-8, err_msg=name)


def test_what_draws_a_gamma_concentration():
    """The step of the labels draws both, that with dims by a slice."""
    for module, slices in ((pm, []), (pmd, ["alpha_log__"])):
        with pm.Model() as model:
            dp.CRP("labels", module.Gamma("alpha", 2.0, 1.0), 10)
            step = assigned_steps(model)
        assert isinstance(step, dp.DPMixtureStep)
        assert {value.name for value in step.vars} == {"labels", "alpha_log__"}
        assert [name for group in step.hyperparameters for name in group.names] == slices


def assigned_steps(model):
    steps = mcmc.instantiate_steppers(model, *mcmc.assign_step_methods(model))
    return CompoundStep(steps) if isinstance(steps, list) else steps


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda data: dp.DPMixture("y", 1.0, observed=data), "observed must be numbers or pm.Data, got 'data'"),
        (lambda data: dp.DPMixture("y", 1.0, observed=ROWS, unit=data), "unit must be numbers or pm.Data"),
        (lambda data: dp.BetaBinomial(a=1.0, b=1.0, trials=data), "trials must be numbers or pm.Data"),
    ],
)
def test_data_with_dims_is_refused(call, message):
    with pm.Model(coords=COORDS) as built:
        data = pmd.Data("data", ROWS, dims=("row", "column"))
        with pytest.raises(TypeError, match=message):
            call(data)
    assert list(built.named_vars) == ["data"]


def test_more_dims_than_a_parameter_has():
    with pm.Model(coords=COORDS):
        mu = pmd.Normal("mu", 0.0, 1.0, dims=("row", "column"))
        with pytest.raises(
            ValueError, match="mu must be a scalar or a \\(d,\\) vector, got a variable with 2 dim"
        ):
            dp.NormalInverseGamma(mu, 1.0, 2.0, 1.0)
        with pytest.raises(ValueError, match="alpha must be a scalar, got a variable with 2 dimensions"):
            dp.DPMixture("y", mu, observed=ROWS)
