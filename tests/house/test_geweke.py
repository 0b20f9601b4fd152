"""Joint-distribution tests (Geweke 2004) of the steps that ``pm.sample`` assigns.

Parameters and labels drawn by the steps given the data, and data drawn anew given them, in turn, have the prior
for their stationary distribution, whatever the data is at first. Moments of such a chain are compared with those
of independent draws from the prior.
"""

import numba
import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats
from pymc.sampling import mcmc
from pymc.step_methods import CompoundStep

import pymc_dpgmm as dp
from pymc_dpgmm.families import FAMILIES
from pymc_dpgmm.partitions.draws import draw_labels
from pymc_dpgmm.partitions.hidden_states import draw_hidden
from pymc_dpgmm.partitions.segments import sequences_of

N = 12
N_TUNE, N_DRAWS, N_PRIOR = 1_500, 12_000, 200_000
# So many draws of the prior are made at once.
AT_ONCE = 10_000
NIG = FAMILIES["NormalInverseGamma"]

# Each case has a model, ``data`` given one draw, and by code of its own many draws of the prior with data, and the
# moments of many draws.


def labels_of_prior(rng, alpha, discount=0.0):
    """Labels (n, N), given a concentration and a discount for each draw."""
    pairs = np.broadcast(alpha, discount)
    return np.array([draw_labels(rng, *own, np.inf, N) for own in pairs])


def nig_rows(rng, labels, mu, kappa, a, b):
    """Rows (n, N) of normal-inverse-gamma clusters, whose parameters are numbers or (n,) arrays."""
    mu, kappa, a, b = (np.reshape(value, (-1, 1)) for value in (mu, kappa, a, b))
    variances = b / rng.gamma(a, size=labels.shape)
    means = rng.normal(mu, np.sqrt(variances / kappa))
    means, variances = (np.take_along_axis(of_clusters, labels, axis=1) for of_clusters in (means, variances))
    return rng.normal(means, np.sqrt(variances))


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

    def prior(self, rng, n):
        drawn = {"alpha": rng.gamma(3.0, size=n) / 2.0, "mu": rng.normal(0.5, size=n)}
        drawn |= {"kappa": rng.gamma(4.0, size=n) / 8.0, "b": rng.gamma(5.0, size=n) / 5.0}
        drawn["y_labels"] = labels_of_prior(rng, drawn["alpha"])
        rows = nig_rows(rng, drawn["y_labels"], drawn["mu"], drawn["kappa"], 4.0, drawn["b"] * self.mistake)
        return drawn, rows

    def data(self, rng, drawn):
        params = NIG.params(*(np.atleast_1d(v) for v in (drawn["mu"],)), drawn["kappa"], 4.0, self._b(drawn))
        return NIG.draw_rows(rng, params, np.asarray(drawn["y_labels"]), np.empty((N, 0)))[:, 0]

    def _b(self, drawn):
        return np.atleast_1d(drawn["b"] * self.mistake)

    def moments(self, drawn, data):
        shared = [drawn["alpha"], drawn["mu"], drawn["mu"] ** 2, np.log(drawn["kappa"]), np.log(drawn["b"])]
        return [*shared, *of_labels(drawn["y_labels"]), data.mean(axis=1), np.log(data.var(axis=1))]


class Latent:
    """Counts whose log rates have a mixture for their distribution, with random alpha and discount."""

    def model(self):
        with pm.Model() as model:
            alpha = pm.LogNormal("alpha", 0.0, 0.5)
            discount = pm.Beta("discount", 2.0, 4.0)
            rate = dp.PYMixture("y", alpha, discount, dp.NormalInverseGamma(0.5, 0.5, 5.0, 0.6), shape=(N,))
            pm.Poisson("counts", pm.math.exp(rate), observed=pm.Data("data", np.zeros(N)))
        return model

    def prior(self, rng, n):
        alpha, discount = np.exp(0.5 * rng.normal(size=n)), rng.beta(2.0, 4.0, size=n)
        labels = labels_of_prior(rng, alpha, discount)
        drawn = {"alpha": alpha, "discount": discount, "y_labels": labels}
        drawn["y"] = nig_rows(rng, labels, 0.5, 0.5, 5.0, 0.6)
        return drawn, self.data(rng, drawn)

    def data(self, rng, drawn):
        return rng.poisson(np.exp(np.minimum(drawn["y"], 20.0))).astype(float)

    def moments(self, drawn, data):
        rates = drawn["y"]
        shared = [np.log(drawn["alpha"]), drawn["discount"], rates.mean(axis=1), rates[:, 0] ** 2]
        return [*shared, *of_labels(drawn["y_labels"]), np.log1p(data).mean(axis=1), np.sum(data == 0, axis=1)]


class LatentPairs:
    """Pairs of counts, whose log rates are correlated rows, with a random mean and the exact draw of alpha."""

    psi = np.array([[1.2, 0.5], [0.5, 0.9]])

    def model(self):
        with pm.Model() as model:
            alpha, mu = pm.Gamma("alpha", 3.0, 2.0), pm.Normal("mu", 0.5, 0.5, shape=2)
            rate = dp.DPMixture("y", alpha, dp.NormalInverseWishart(mu, 0.5, 7.0, self.psi), shape=(N, 2))
            pm.Poisson("counts", pm.math.exp(rate), observed=pm.Data("data", np.zeros((N, 2))))
        return model

    def prior(self, rng, n):
        alpha, mu = rng.gamma(3.0, size=n) / 2.0, rng.normal(0.5, 0.5, (n, 2))
        labels = labels_of_prior(rng, alpha)
        # Precisions of clusters by Bartlett's triangles, and roots of the covariances.
        triangles = np.zeros((n, N, 2, 2))
        triangles[:, :, 0, 0], triangles[:, :, 1, 1] = np.sqrt(rng.chisquare([[[7.0]], [[6.0]]], (2, n, N)))
        triangles[:, :, 1, 0] = rng.normal(size=(n, N))
        roots = np.linalg.inv(np.linalg.cholesky(np.linalg.inv(self.psi)) @ triangles).transpose(0, 1, 3, 2)
        means = mu[:, None] + np.einsum("snij,snj->sni", roots, rng.normal(size=(n, N, 2))) / np.sqrt(0.5)
        draws = np.arange(n)[:, None]
        about = np.einsum("snij,snj->sni", roots[draws, labels], rng.normal(size=(n, N, 2)))
        drawn = {"alpha": alpha, "mu": mu, "y_labels": labels, "y": means[draws, labels] + about}
        return drawn, self.data(rng, drawn)

    def data(self, rng, drawn):
        return rng.poisson(np.exp(np.minimum(drawn["y"], 20.0))).astype(float)

    def moments(self, drawn, data):
        rates = np.tanh(drawn["y"])
        shared = [np.log(drawn["alpha"]), *drawn["mu"].T]
        shared += [rates[:, :, 0].mean(axis=1), rates.prod(axis=2).mean(axis=1)]
        seen = [np.log1p(data).mean(axis=(1, 2)), np.sum(data == 0, axis=(1, 2))]
        return [*shared, *of_labels(drawn["y_labels"]), *seen]


@numba.njit
def franchise(uniforms, group, alpha, gamma):
    """Labels (n, N) and numbers of tables (n,) of a franchise as the paper tells it, with tables one by one.

    ``uniforms`` (n, N, 2) choose the table of a row, and the dish of a new table.
    """
    n, most = len(uniforms), len(group)
    labels, n_tables = np.empty((n, most), dtype=np.int64), np.zeros(n, dtype=np.int64)
    for s in range(n):
        at, dish, seated, n_dishes = np.empty_like(group), np.empty_like(group), np.zeros(most), 0
        for i in range(most):
            here = at[: n_tables[s]] == group[i]
            left = uniforms[s, i, 0] * (seated[: n_tables[s]][here].sum() + alpha[s])
            chosen = n_tables[s]
            for t in np.flatnonzero(here):
                left -= seated[t]
                if left < 0.0:
                    chosen = t
                    break
            if chosen == n_tables[s]:
                # Every table counts once for its dish.
                served = int(uniforms[s, i, 1] * (n_tables[s] + gamma[s]))
                at[chosen] = group[i]
                dish[chosen] = dish[served] if served < n_tables[s] else n_dishes
                n_dishes = max(n_dishes, dish[chosen] + 1)
                n_tables[s] += 1
            seated[chosen] += 1.0
            labels[s, i] = dish[chosen]
    return labels, n_tables


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

    def prior(self, rng, n):
        gamma = rng.gamma(2.0, size=n) / 1.5 if self.exact else np.exp(0.5 * rng.normal(size=n))
        drawn = {"alpha": rng.gamma(3.0, size=n) / 2.0, "gamma": gamma, "mu": rng.normal(0.5, size=n)}
        drawn["b"] = rng.gamma(5.0, size=n) / 5.0
        uniforms = rng.random((n, N, 2))
        drawn["y_labels"], drawn["y_n_tables"] = franchise(uniforms, self.group, drawn["alpha"], gamma)
        return drawn, nig_rows(rng, drawn["y_labels"], drawn["mu"], 0.5, 4.0, drawn["b"])

    def data(self, rng, drawn):
        params = NIG.params(np.atleast_1d(drawn["mu"]), 0.5, 4.0, np.atleast_1d(drawn["b"]))
        return NIG.draw_rows(rng, params, np.asarray(drawn["y_labels"]), np.empty((N, 0)))[:, 0]

    def moments(self, drawn, data):
        shared = [drawn["alpha"], np.log(drawn["gamma"]), drawn["mu"], drawn["mu"] ** 2, np.log(drawn["b"])]
        own = [drawn["y_n_tables"], drawn["y_labels"][:, 0] == drawn["y_labels"][:, 9]]
        return [*shared, *own, *of_labels(drawn["y_labels"]), data.mean(axis=1), np.log(data.var(axis=1))]


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

    def prior(self, rng, n):
        alpha, m = rng.gamma(3.0, size=n) / 2.0, rng.normal(0.5, size=n)
        labels = labels_of_prior(rng, alpha)
        atoms = rng.normal(m[:, None], 0.9, (n, N)), rng.normal(-0.3, 0.4, (n, N))
        loc, log_scale = (np.take_along_axis(own, labels, axis=1) for own in atoms)
        drawn = {"alpha": alpha, "m": m, "c_labels": labels, "c_loc": loc, "c_log_scale": log_scale}
        return drawn, self.data(rng, drawn)

    def data(self, rng, drawn):
        return rng.laplace(drawn["c_loc"], np.exp(drawn["c_log_scale"]))

    def moments(self, drawn, data):
        loc, log_scale = drawn["c_loc"], drawn["c_log_scale"]
        shared = [drawn["alpha"], drawn["m"], drawn["m"] ** 2]
        for own in (loc, log_scale):
            shared += [own[:, 0], own.var(axis=1)]
        return [*shared, *of_labels(drawn["c_labels"]), data.mean(axis=1), np.log(data.var(axis=1))]


class Segments:
    """Reals in two sequences with change points, a random probability of these and a random base measure."""

    sequence = np.repeat([0, 1], [8, 4])

    def model(self):
        with pm.Model() as model:
            p, mu, b = pm.Beta("p", 2.0, 5.0), pm.Normal("mu", 0.5, 1.0), pm.Gamma("b", 5.0, 5.0)
            base, rows = dp.NormalInverseGamma(mu, 0.5, 4.0, b), pm.Data("data", np.zeros(N))
            dp.ChangePoints("y", p, base, observed=rows, sequence=self.sequence)
        return model

    def prior(self, rng, n):
        drawn = {"p": rng.beta(2.0, 5.0, size=n), "mu": rng.normal(0.5, size=n)}
        drawn["b"] = rng.gamma(5.0, size=n) / 5.0
        changes = rng.random((n, N)) < drawn["p"][:, None]
        changes[:, 0], changes[:, 8] = False, True
        drawn["y_labels"] = np.cumsum(changes, axis=1)
        return drawn, nig_rows(rng, drawn["y_labels"], drawn["mu"], 0.5, 4.0, drawn["b"])

    def data(self, rng, drawn):
        params = NIG.params(np.atleast_1d(drawn["mu"]), 0.5, 4.0, np.atleast_1d(drawn["b"]))
        return NIG.draw_rows(rng, params, np.asarray(drawn["y_labels"]), np.empty((N, 0)))[:, 0]

    def moments(self, drawn, data):
        shared = [drawn["p"], drawn["p"] ** 2, drawn["mu"], drawn["mu"] ** 2, np.log(drawn["b"])]
        return [*shared, *of_labels(drawn["y_labels"]), data.mean(axis=1), np.log(data.var(axis=1))]


class Hidden:
    """Reals in two sequences with hidden states, random concentrations and a random base measure."""

    sequence = np.repeat([0, 1], [8, 4])

    def model(self):
        with pm.Model() as model:
            alpha, gamma, kappa = (pm.Gamma(name, 2.0, 1.0) for name in ("alpha", "gamma", "kappa"))
            mu, b = pm.Normal("mu", 0.5, 1.0), pm.Gamma("b", 5.0, 5.0)
            base, rows = dp.NormalInverseGamma(mu, 0.5, 4.0, b), pm.Data("data", np.zeros(N))
            dp.HDPHMM("y", alpha, gamma, base, kappa=kappa, observed=rows, sequence=self.sequence)
        return model

    def prior(self, rng, n):
        drawn = {name: rng.gamma(2.0, size=n) for name in ("alpha", "gamma", "kappa")}
        drawn |= {"mu": rng.normal(0.5, size=n), "b": rng.gamma(5.0, size=n) / 5.0}
        concentrations = zip(drawn["alpha"], drawn["gamma"], drawn["kappa"], strict=True)
        sequences = sequences_of(self.sequence)
        both = np.array([draw_hidden(rng, *own, sequences) for own in concentrations])
        drawn["y_labels"], drawn["y_openers"] = both[:, 0], both[:, 1]
        return drawn, nig_rows(rng, drawn["y_labels"], drawn["mu"], 0.5, 4.0, drawn["b"])

    data = Segments.data

    def moments(self, drawn, data):
        shared = [np.log(drawn[name]) for name in ("alpha", "gamma", "kappa", "b")]
        shared += [drawn["mu"], drawn["mu"] ** 2, *((drawn["y_openers"] == does).sum(axis=1) for does in (0, 1))]
        return [*shared, *of_labels(drawn["y_labels"]), data.mean(axis=1), np.log(data.var(axis=1))]


def of_labels(labels):
    sizes = (labels[:, :, None] == np.arange(N)).sum(axis=1)
    return [np.sum(sizes > 0, axis=1), np.sum(sizes**2, axis=1), labels[:, 0] == labels[:, 1]]


def successive(case, n_tune, n_draws, seed=1):
    """Moments of a chain that draws parameters given data, and data given parameters, in turn."""
    rng = np.random.default_rng(seed)
    model = case.model()
    untransform = model.compile_fn(model.unobserved_value_vars, inputs=model.value_vars, on_unused_input="ignore")
    names = [v.name for v in model.unobserved_value_vars]
    found = {name: [] for name in [*names, "data"]}
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
                for name, value in (drawn | {"data": data}).items():
                    found[name].append(value)
    drawn = {name: np.array(values) for name, values in found.items()}
    return np.column_stack(case.moments(drawn, drawn["data"])).astype(float)


def independent(case, seed=2):
    rng = np.random.default_rng(seed)
    parts = [np.column_stack(case.moments(*case.prior(rng, AT_ONCE))) for _ in range(N_PRIOR // AT_ONCE)]
    return np.concatenate(parts).astype(float)


def z_scores(case, n_draws):
    chain, prior = successive(case, N_TUNE, n_draws), independent(case)
    ess = np.array([array_stats.ess(column[None, :], method="mean") for column in chain.T])
    assert ess.min() > 200
    variance = prior.var(axis=0)
    return (chain.mean(axis=0) - prior.mean(axis=0)) / np.sqrt(variance / ess + variance / len(prior))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [Observed(), Latent(), LatentPairs(), Grouped(True), Grouped(False), Process(), Segments(), Hidden()],
    ids=lambda c: type(c).__name__,
)
def test_successive_draws_have_the_prior_for_their_distribution(case):
    # Of nine to twelve scores, one exceeds 4 with probability 8e-4 at the most.
    """All steps that pm.sample assigns, together: data drawn anew after every step."""
    # Proposals of latent rows are learnt for one data set, and here every draw has another: a chain may stand
    # still for hundreds of draws.
    n_draws = {Latent: 40_000, LatentPairs: 120_000}.get(type(case), N_DRAWS)
    assert np.max(np.abs(z_scores(case, n_draws))) < 4.0


@pytest.mark.slow
def test_a_small_mistake_is_seen():
    """Data drawn with a scale that is 10 % too large."""
    # Three runs of as many draws as above had largest scores of 4.5 to 5.8, two of twice as many 6.7 and 6.9.
    assert np.max(np.abs(z_scores(Observed(mistake=1.1), 2 * N_DRAWS))) > 5.0
