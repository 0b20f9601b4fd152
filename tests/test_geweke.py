"""Joint-distribution tests (Geweke 2004) of the steps that ``pm.sample`` assigns.

Parameters and labels drawn by the steps given the data, and data drawn anew given them, in turn, have the prior
for their stationary distribution, whatever the data is at first. Moments of such a chain are compared with those
of independent draws from the prior.
"""

import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats
from pymc.sampling import mcmc
from pymc.step_methods import CompoundStep

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES
from pymc_dpgmm.partitions.priors import draw_labels

N = 12
N_TUNE, N_DRAWS, N_PRIOR = 1_500, 12_000, 200_000
NIG = FAMILIES["NormalInverseGamma"]


class Observed:
    """Reals given labels, with random parameters of the base measure, and the exact draw of alpha."""

    def __init__(self, mistake=1.0):
        self.mistake = mistake

    def model(self):
        with pm.Model() as model:
            alpha = pm.Gamma("alpha", 3.0, 2.0)
            mu = pm.Normal("mu", 0.5, 1.0)
            kappa = pm.Gamma("kappa", 4.0, 8.0)
            b = pm.Gamma("b", 5.0, 5.0)
            base = dp.NormalInverseGamma(mu, kappa, 4.0, b)
            dp.DPMixture("y", alpha, base, observed=pm.Data("data", np.zeros(N)))
        return model

    def prior(self, rng):
        drawn = {"alpha": rng.gamma(3.0) / 2.0, "mu": rng.normal(0.5), "kappa": rng.gamma(4.0) / 8.0}
        drawn["b"] = rng.gamma(5.0) / 5.0
        return drawn | {"y_labels": draw_labels(rng, drawn["alpha"], 0.0, np.inf, N)}

    def data(self, rng, drawn):
        params = NIG.params(*(np.atleast_1d(v) for v in (drawn["mu"],)), drawn["kappa"], 4.0, self._b(drawn))
        return NIG.draw_rows(rng, params, np.asarray(drawn["y_labels"]), np.empty((N, 0)))[:, 0]

    def _b(self, drawn):
        return np.atleast_1d(drawn["b"] * self.mistake)

    def moments(self, drawn, data):
        shared = [drawn["alpha"], drawn["mu"], drawn["mu"] ** 2, np.log(drawn["kappa"]), np.log(drawn["b"])]
        return [*shared, *of_labels(drawn["y_labels"]), data.mean(), np.log(data.var())]


class Latent:
    """Counts whose log rates have a mixture for their distribution, with random alpha and discount."""

    def model(self):
        with pm.Model() as model:
            alpha = pm.LogNormal("alpha", 0.0, 0.5)
            discount = pm.Beta("discount", 2.0, 4.0)
            rate = dp.PYMixture("y", alpha, discount, dp.NormalInverseGamma(0.5, 0.5, 5.0, 0.6), shape=(N,))
            pm.Poisson("counts", pm.math.exp(rate), observed=pm.Data("data", np.zeros(N)))
        return model

    def prior(self, rng):
        alpha, discount = np.exp(0.5 * rng.normal()), rng.beta(2.0, 4.0)
        labels = draw_labels(rng, alpha, discount, np.inf, N)
        params = NIG.params(np.array([0.5]), 0.5, 5.0, np.array([0.6]))
        rates = NIG.draw_rows(rng, params, labels, np.empty((N, 0)))[:, 0]
        return {"alpha": alpha, "discount": discount, "y_labels": labels, "y": rates}

    def data(self, rng, drawn):
        return rng.poisson(np.exp(np.minimum(drawn["y"], 20.0))).astype(float)

    def moments(self, drawn, data):
        shared = [np.log(drawn["alpha"]), drawn["discount"], np.mean(drawn["y"]), drawn["y"][0] ** 2]
        return [*shared, *of_labels(drawn["y_labels"]), np.log1p(data).mean(), float(np.sum(data == 0))]


class LatentPairs:
    """Pairs of counts, whose log rates are correlated rows, with a random mean and the exact draw of alpha."""

    psi = np.array([[1.2, 0.5], [0.5, 0.9]])

    def model(self):
        with pm.Model() as model:
            alpha, mu = pm.Gamma("alpha", 3.0, 2.0), pm.Normal("mu", 0.5, 0.5, shape=2)
            rate = dp.DPMixture("y", alpha, dp.NormalInverseWishart(mu, 0.5, 7.0, self.psi), shape=(N, 2))
            pm.Poisson("counts", pm.math.exp(rate), observed=pm.Data("data", np.zeros((N, 2))))
        return model

    def prior(self, rng):
        alpha, mu = rng.gamma(3.0) / 2.0, rng.normal(0.5, 0.5, 2)
        labels = draw_labels(rng, alpha, 0.0, np.inf, N)
        family = FAMILIES["NormalInverseWishart"]
        rates = family.draw_rows(rng, family.params(mu, 0.5, 7.0, self.psi), labels, np.empty((N, 0)))
        return {"alpha": alpha, "mu": mu, "y_labels": labels, "y": rates}

    def data(self, rng, drawn):
        return rng.poisson(np.exp(np.minimum(drawn["y"], 20.0))).astype(float)

    def moments(self, drawn, data):
        rates = np.tanh(drawn["y"])
        shared = [np.log(drawn["alpha"]), *drawn["mu"], rates[:, 0].mean(), np.mean(rates[:, 0] * rates[:, 1])]
        return [*shared, *of_labels(drawn["y_labels"]), np.log1p(data).mean(), float(np.sum(data == 0))]


class Grouped:
    """Reals in groups under a hierarchical Dirichlet process: a random base measure, alpha and gamma.

    With ``exact``, alpha and gamma have gamma laws and are drawn with the labels; otherwise NUTS takes gamma.
    """

    group = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2])

    def __init__(self, exact):
        self.exact = exact

    def model(self):
        with pm.Model() as model:
            alpha = pm.Gamma("alpha", 3.0, 2.0)
            gamma = pm.Gamma("gamma", 2.0, 1.5) if self.exact else pm.LogNormal("gamma", 0.0, 0.5)
            mu, b = pm.Normal("mu", 0.5, 1.0), pm.Gamma("b", 5.0, 5.0)
            base = dp.NormalInverseGamma(mu, 0.5, 4.0, b)
            dp.HDPMixture("y", alpha, gamma, base, group=self.group, observed=pm.Data("data", np.zeros(N)))
        return model

    def prior(self, rng):
        gamma = rng.gamma(2.0) / 1.5 if self.exact else np.exp(0.5 * rng.normal())
        drawn = {"alpha": rng.gamma(3.0) / 2.0, "gamma": gamma, "mu": rng.normal(0.5), "b": rng.gamma(5.0) / 5.0}
        # A franchise as the paper tells it, with tables one by one.
        labels, tables, served = np.empty(N, dtype=int), {0: [], 1: [], 2: []}, []
        for i, j in enumerate(self.group):
            weights = np.array([seated for seated, _ in tables[j]] + [drawn["alpha"]])
            t = rng.choice(len(weights), p=weights / weights.sum())
            if t == len(tables[j]):
                dishes = np.append(np.bincount(served, minlength=1) if served else [], gamma)
                dish = rng.choice(len(dishes), p=dishes / dishes.sum())
                served.append(dish)
                tables[j].append([0, dish])
            tables[j][t][0] += 1
            labels[i] = tables[j][t][1]
        return drawn | {"y_labels": labels, "y_n_tables": len(served)}

    def data(self, rng, drawn):
        params = NIG.params(np.atleast_1d(drawn["mu"]), 0.5, 4.0, np.atleast_1d(drawn["b"]))
        return NIG.draw_rows(rng, params, np.asarray(drawn["y_labels"]), np.empty((N, 0)))[:, 0]

    def moments(self, drawn, data):
        shared = [drawn["alpha"], np.log(drawn["gamma"]), drawn["mu"], drawn["mu"] ** 2, np.log(drawn["b"])]
        own = [float(drawn["y_n_tables"]), float(drawn["y_labels"][0] == drawn["y_labels"][9])]
        return [*shared, *own, *of_labels(drawn["y_labels"]), data.mean(), np.log(data.var())]


class Process:
    """Parameters of rows under a Dirichlet process: NUTS for the mean of the base, the exact draw of alpha."""

    def model(self):
        with pm.Model() as model:
            alpha, m = pm.Gamma("alpha", 3.0, 2.0), pm.Normal("m", 0.5, 1.0)
            base = {"loc": pm.Normal.dist(m, 0.9), "log_scale": pm.Normal.dist(-0.3, 0.4)}
            c = dp.DirichletProcess("c", alpha, base, shape=N)
            data = pm.Data("data", np.zeros(N))
            pm.Laplace("y", c["loc"], pm.math.exp(c["log_scale"]), observed=data)
        return model

    def prior(self, rng):
        alpha, m = rng.gamma(3.0) / 2.0, rng.normal(0.5)
        labels = draw_labels(rng, alpha, 0.0, np.inf, N)
        loc, log_scale = rng.normal(m, 0.9, N)[labels], rng.normal(-0.3, 0.4, N)[labels]
        return {"alpha": alpha, "m": m, "c_labels": labels, "c_loc": loc, "c_log_scale": log_scale}

    def data(self, rng, drawn):
        return rng.laplace(drawn["c_loc"], np.exp(drawn["c_log_scale"]))

    def moments(self, drawn, data):
        loc, log_scale = drawn["c_loc"], drawn["c_log_scale"]
        shared = [drawn["alpha"], drawn["m"], drawn["m"] ** 2, loc[0], loc.var(), log_scale[0], log_scale.var()]
        return [*shared, *of_labels(drawn["c_labels"]), data.mean(), np.log(data.var())]


def of_labels(labels):
    sizes = np.bincount(labels)
    return [float(np.sum(sizes > 0)), float(np.sum(sizes**2)), float(labels[0] == labels[1])]


def successive(case, n_tune, n_draws, seed=1):
    """Moments of a chain that draws parameters given data, and data given parameters, in turn."""
    rng = np.random.default_rng(seed)
    model = case.model()
    untransform = model.compile_fn(model.unobserved_value_vars, inputs=model.value_vars, on_unused_input="ignore")
    names = [v.name for v in model.unobserved_value_vars]
    found = []
    with model:
        steps = mcmc.instantiate_steppers(model, *mcmc.assign_step_methods(model))
        step = CompoundStep(steps) if isinstance(steps, list) else steps
        step.setup_chain(rng, n_tune, n_draws)
        step.tune = True
        point = model.initial_point(random_seed=seed)
        for draw in range(n_tune + n_draws):
            if draw == n_tune:
                step.stop_tuning()
            point, _ = step.step(point)
            drawn = dict(zip(names, untransform(point), strict=True))
            data = case.data(rng, drawn)
            model.set_data("data", data)
            if draw >= n_tune:
                found.append(case.moments(drawn, data))
    return np.array(found)


def independent(case, seed=2):
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(N_PRIOR):
        drawn = case.prior(rng)
        draws.append(case.moments(drawn, case.data(rng, drawn)))
    return np.array(draws)


def z_scores(case, n_draws=N_DRAWS):
    chain, prior = successive(case, N_TUNE, n_draws), independent(case)
    ess = np.array([array_stats.ess(column[None, :], method="mean") for column in chain.T])
    assert ess.min() > 200
    variance = prior.var(axis=0)
    return (chain.mean(axis=0) - prior.mean(axis=0)) / np.sqrt(variance / ess + variance / len(prior))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [Observed(), Latent(), LatentPairs(), Grouped(True), Grouped(False), Process()],
    ids=lambda c: type(c).__name__,
)
def test_successive_draws_have_the_prior_for_their_distribution(case):
    # Of nine to twelve scores, one exceeds 4 with probability 8e-4 at the most.
    """All steps that pm.sample assigns, together: data drawn anew after every step."""
    assert np.max(np.abs(z_scores(case))) < 4.0


@pytest.mark.slow
def test_a_small_mistake_is_seen():
    """Data drawn with a scale that is 10 % too large."""
    # Three runs of as many draws as above had largest scores of 4.5 to 5.8, two of twice as many 6.7 and 6.9.
    assert np.max(np.abs(z_scores(Observed(mistake=1.1), 2 * N_DRAWS))) > 5.0
