"""Which bases a Dirichlet process takes, and data and angles beside it."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.integration.steps.hyperparameters import hyperparameters

Y = np.array([-1.0, 0.2, 0.3, 2.0])


@pytest.mark.parametrize(
    "base",
    [
        lambda: pm.Mixture.dist([0.5, 0.5], [pm.DiracDelta.dist(0.0), pm.Normal.dist(0.0, 1.0)]),
        lambda: pm.HurdleGamma.dist(psi=0.6, alpha=2.0, beta=1.0),
        lambda: pm.Censored.dist(pm.Normal.dist(0.5, 1.0), lower=0.0, upper=None),
    ],
    ids=["spike and slab", "hurdle", "censored"],
)
def test_single_values_beside_a_density_are_refused(base):
    """Continuous moves would leave them and not come back."""
    with pm.Model(), pytest.raises(NotImplementedError, match=r"base has single values .* Give two parameters"):
        dp.DirichletProcess("theta", 1.0, base(), shape=4)


@pytest.mark.parametrize(
    "base",
    [
        lambda: pm.NormalMixture.dist([0.5, 0.5], [0.0, 1.0], 1.0),
        lambda: pm.ZeroInflatedPoisson.dist(0.5, 2.0),
        lambda: pm.Truncated.dist(pm.Normal.dist(0.0, 1.0), lower=0.0),
    ],
    ids=["mixture", "zero-inflated", "truncated"],
)
def test_other_mixtures_are_bases(base):
    with pm.Model():
        assert dp.DirichletProcess("theta", 1.0, base(), shape=4).name == "theta"


@pytest.mark.interpreted
def test_what_the_refusal_advises():
    with pm.Model() as model:
        base = {"is_there": pm.Bernoulli.dist(0.5), "size": pm.Normal.dist(0.0, 1.0)}
        theta = dp.DirichletProcess("theta", 1.0, base, shape=4)
        pm.Normal("y", theta["is_there"] * theta["size"], 0.5, observed=Y)
        step = dp.DirichletProcessStep()
    step.setup_chain(np.random.default_rng(1), 5, 5)
    point, _ = step.step(model.initial_point(random_seed=1))
    assert set(point["theta_is_there"]) <= {0, 1}


@pytest.mark.interpreted
def test_a_base_may_index_by_another_parameter():
    """Values that the base does not have are tried, and then nothing is indexed by them."""
    with pm.Model() as model:
        kind = pm.Categorical.dist([0.2, 0.3, 0.5])
        base = {"kind": kind, "mean": pm.Normal.dist(pt.constant([0.0, 2.0, 4.5])[kind], 0.5)}
        theta = dp.DirichletProcess("theta", 1.0, base, shape=4)
        pm.Normal("y", theta["mean"], 0.5, observed=Y)
        step = dp.DirichletProcessStep()
    step.setup_chain(np.random.default_rng(1), 0, 0)
    point = model.initial_point(random_seed=1)
    for _ in range(5):
        point, _ = step.step(point)
    assert set(point["theta_kind"]) <= {0, 1, 2}


def test_angles_are_left_to_nuts():
    """Of densities that repeat themselves for ever slices would become longer and longer."""
    with pm.Model() as model:
        mu, tau = pm.VonMises("mu", 0.0, 1.0), pm.Gamma("tau", 2.0, 1.0)
        dp.DPMixture("y", 1.0, dp.VonMises(mu, tau, 2.0), observed=Y)
    assert hyperparameters(model) == [tau]


@pytest.mark.interpreted
@pytest.mark.parametrize("of", ["process", "mixture"])
def test_data_that_decide_which_rows_belong_together_may_not_change_under_a_step(of):
    """The step has found which row a term depends on with the data as they were."""
    with pm.Model() as model:
        unit = pm.Data("unit", np.array([0, 0, 0, 1]))
        if of == "process":
            theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 2.0), shape=2)
        else:
            theta = dp.DPMixture("theta", 1.0, dp.NormalInverseGamma(0.0, 1.0, 2.0, 1.0), shape=2)
        pm.Poisson("y", pt.exp(theta[unit]), observed=[1, 2, 0, 9])
        step = dp.DirichletProcessStep() if of == "process" else dp.DPMixtureStep()
    for wanted in ([0, 0, 0, 1], [0, 0, 1, 1]):
        with model:
            pm.set_data({"unit": np.array(wanted)})
        if wanted == [0, 0, 0, 1]:
            step.setup_chain(np.random.default_rng(1), 2, 2)
            step.step(model.initial_point(random_seed=1))
        else:
            with pytest.raises(ValueError, match="unit: these data decide which rows belong together"):
                step.setup_chain(np.random.default_rng(1), 2, 2)
