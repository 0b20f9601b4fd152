"""What PyMC does with models: copies of them, interventions, new data, priors of their own."""

import numpy as np
import pymc as pm
import pytest
from pymc.model.fgraph import clone_model

import pymc_dpgmm as dp

ROWS = np.r_[np.linspace(-4, -2, 12), np.linspace(2, 4, 8)]
TRUTH = np.r_[np.zeros(12), np.ones(8)].astype("int16")
BASE = dp.NormalInverseGamma(0.0, 0.1, 2.0, 0.5)


def mixture_model():
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1, 1)
        dp.DPMixture("y", alpha, BASE, observed=ROWS)
    return model


def sample(model, draws=300, **kwargs):
    given = {"tune": 100, "chains": 1, "random_seed": 1, "progressbar": False, "compute_convergence_checks": False}
    return pm.sample(draws, model=model, **(given | kwargs)).posterior


def test_copies_have_the_same_draws():
    model = mixture_model()
    drawn, again = sample(model, draws=50), sample(clone_model(model), draws=50)
    np.testing.assert_array_equal(drawn["y_labels"], again["y_labels"])
    np.testing.assert_array_equal(drawn["alpha"], again["alpha"])


def test_an_intervention_on_alpha():
    drawn = sample(pm.do(mixture_model(), {"alpha": 30.0}))
    assert "alpha" not in drawn
    assert float(drawn["y_n_clusters"].mean()) > float(sample(mixture_model())["y_n_clusters"].mean()) + 2


def test_an_intervention_on_labels_leaves_alpha_to_its_prior():
    drawn = sample(pm.do(mixture_model(), {"y_labels": TRUTH}), draws=2_000)
    assert float(drawn["alpha"].mean()) == pytest.approx(1.0, abs=0.15)


def test_observed_labels_tell_alpha():
    model = pm.observe(mixture_model(), {"y_labels": TRUTH})
    drawn = sample(model, draws=4_000)["alpha"].values.ravel()
    alpha = np.linspace(1e-4, 20, 40_000)
    log_p = -alpha + 2 * np.log(alpha) - np.sum([np.log(alpha + i) for i in range(20)], axis=0)
    p = np.exp(log_p - log_p.max())
    assert drawn.mean() == pytest.approx(np.sum(alpha * p) / p.sum(), abs=0.03)


def test_latent_mixtures_have_the_lengths_of_their_dims():
    with pm.Model(coords={"subject": list("abcde"), "trait": ["u", "v"]}) as model:
        effects = dp.DPMixture("effects", 1.0, BASE, dims="subject")
        both = dp.DPMixture("both", 1.0, dp.NormalInverseGamma([0, 0], 0.1, 2.0, 0.5), dims=("subject", "trait"))
        with pytest.raises(ValueError, match=r"the model has no dimension .unknown.: give it coordinates"):
            dp.DPMixture("z", 1.0, BASE, dims="unknown")
    assert (effects.type.shape, both.type.shape) == ((5,), (5, 2))
    assert model.named_vars_to_dims["both"] == ("subject", "trait")
    assert model.named_vars_to_dims["effects_labels"] == ("subject",)


@pytest.mark.interpreted
def test_a_latent_mixture_that_is_observed_later():
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1, 1), BASE, shape=(20,))
    observed = pm.observe(model, {"y": ROWS})
    point = {"alpha_log__": np.array(0.3), "y_labels": TRUTH}
    np.testing.assert_allclose(observed.compile_logp()(point), mixture_model().compile_logp()(point), rtol=1e-12)
    assert float(sample(observed)["y_n_clusters"].mean()) < 4


def test_new_data_of_the_same_and_of_another_length():
    with pm.Model() as model:
        data = pm.Data("data", ROWS)
        dp.DPMixture("y", 1.0, BASE, observed=data)
    first = sample(model)
    with model:
        pm.set_data({"data": ROWS[::-1]})
    backwards = sample(model)
    together = [(d["y_labels"].values[..., 7] == d["y_labels"].values[..., 8]).mean() for d in (first, backwards)]
    assert together[0] > 0.8
    assert together[1] < 0.2
    with model:
        pm.set_data({"data": ROWS[:7]})
    assert sample(model)["y_labels"].shape == (1, 300, 7)


@pytest.mark.interpreted
def test_log_prior_and_debug(capsys):
    model = mixture_model()
    with model:
        idata = pm.sample(20, tune=20, chains=1, progressbar=False, compute_convergence_checks=False)
        prior = pm.stats.compute_log_prior(idata, progressbar=False).log_prior
        model.debug()
    assert set(prior.data_vars) == {"alpha", "y_labels"}
    logp = model.compile_logp(vars=[model["y_labels"]])
    for draw in range(20):
        own = idata.posterior.isel(chain=0, draw=draw)
        point = {"alpha_log__": np.log(own["alpha"].values), "y_labels": own["y_labels"].values}
        np.testing.assert_allclose(prior["y_labels"].values[0, draw], logp(point), rtol=1e-10)
    assert "No problems found" in capsys.readouterr().out


@pytest.mark.slow
def test_two_mixtures_with_an_alpha_of_both_and_one_of_each():
    """Four mixtures: two share a concentration, and two have an entry of a vector each."""
    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 1.0)
        shared = pm.Gamma("shared", 1.0, rate + 0.1)
        own = pm.Gamma("own", 1.0, rate + 0.1, shape=2)
        dp.DPMixture("a", shared, BASE, observed=ROWS)
        dp.DPMixture("b", shared, BASE, observed=ROWS[:12])
        dp.DPMixture("c", own[0], BASE, observed=ROWS)
        dp.DPMixture("d", own[1], BASE, observed=ROWS[:12])
    drawn = sample(model)
    for name in "ac":
        assert 1.9 < float(drawn[f"{name}_n_clusters"].mean()) < 4
    for name in "bd":
        assert float(drawn[f"{name}_n_clusters"].mean()) < 3
