"""Effective draws per second beside the same model, truncated: stick-breaking weights, all of it sampled by NUTS.

Usage: ``python benchmarks/truncated.py [FOLDER] [--sticks 20] [--only NAME ...]``. The same priors, the same data, one
core. The truncated model has its labels summed out, and is sampled by PyMC's NUTS and, where it is installed (the
extra ``bench``), by nutpie, which PyMC takes by itself for such models then. The package's model is sampled as it is,
and with hyperparameters and latent rows by NUTS. Compilation is not counted. Of a variable with several entries, the
least is told, and of the effects the median too. Prints a table and writes ``FOLDER/truncated.json``.
"""

import argparse
import importlib.util
import json
import logging
import os
import time
import warnings
from functools import partial
from pathlib import Path

# Chains of matrices of a Gaussian process are short: threads would wait for each other.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt

import pymc_dpgmm as dp

HERE = Path(__file__).parent


class Observed:
    """Reals in clusters with independent columns; mean and scale of the base measure have priors as wide as the data."""

    names = ("alpha", "mu", "b")
    kappa, shape = 0.1, 2.0

    def __init__(self, rows):
        self.rows = rows

    def hyperparameters(self):
        d = self.rows.shape[1]
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        mu = pm.Normal("mu", self.rows.mean(axis=0), self.rows.std(axis=0), shape=d)
        b = pm.Gamma("b", 2.0, 2.0 / (0.1 * self.rows.var(axis=0)), shape=d)
        return alpha, mu, b

    def collapsed(self):
        with pm.Model() as model:
            alpha, mu, b = self.hyperparameters()
            dp.DPMixture("y", alpha, dp.NormalInverseGamma(mu, self.kappa, self.shape, b), observed=self.rows)
        return model

    def truncated(self, n_sticks):
        with pm.Model() as model:
            alpha, mu, b = self.hyperparameters()
            log_weights, means, precision = sticks(
                alpha, mu, b, self.kappa, self.shape, n_sticks, self.rows.shape[1]
            )
            by_column = pm.logp(pm.Normal.dist(means, tau=precision), self.rows[:, None, :])
            pm.Potential("rows", pt.logsumexp(log_weights + by_column.sum(axis=2), axis=1).sum())
        return model


class Effects:
    """Latent effects of rows, whose distribution is the mixture, with a random mean of the base measure."""

    names = ("alpha", "mu", "effect")
    kappa, shape, scale, spread = 0.1, 2.0, 0.1, 1.5
    centre, columns = 0.0, ()

    def __init__(self, n):
        self.n = n

    def likelihood(self, effect):
        raise NotImplementedError

    def hyperparameters(self):
        return pm.Gamma("alpha", 1.0, 1.0), pm.Normal("mu", self.centre, self.spread, shape=self.columns)

    def collapsed(self):
        with pm.Model() as model:
            alpha, mu = self.hyperparameters()
            base = dp.NormalInverseGamma(mu, self.kappa, self.shape, self.scale)
            self.likelihood(dp.DPMixture("effect", alpha, base, shape=(self.n, *self.columns)))
        return model

    def truncated(self, n_sticks):
        with pm.Model() as model:
            alpha, mu = self.hyperparameters()
            d = sum(self.columns) or 1
            log_weights, means, precision = sticks(alpha, mu, self.scale, self.kappa, self.shape, n_sticks, d)
            shape = self.n, *self.columns
            effect = pm.Flat("effect", shape=shape, initval=np.full(shape, self.centre))
            each = pm.logp(pm.Normal.dist(means, tau=precision), effect.reshape((self.n, 1, d))).sum(axis=2)
            pm.Potential("effects", pt.logsumexp(log_weights + each, axis=1).sum())
            self.likelihood(effect)
        return model


class Counts(Effects):
    """Poisson counts."""

    def __init__(self, n):
        super().__init__(n)
        rng = np.random.default_rng(5)
        of_row = rng.integers(0, 3, n)
        self.counts = rng.poisson(np.exp(np.array([-0.5, 1.2, 2.5])[of_row] + 0.2 * rng.normal(size=n)))

    def likelihood(self, effect):
        pm.Poisson("y", pt.exp(effect), observed=self.counts)


class Rats(Effects):
    """Rats with a tumour in 71 groups."""

    centre, spread, shape, scale, kappa = -2.0, 1.0, 5.0, 1.0, 0.5

    def __init__(self):
        self.data = dp.datasets.load_rat_tumors()
        super().__init__(len(self.data))

    def likelihood(self, effect):
        pm.Binomial("y", self.data["rats"].to_numpy(), logit_p=effect, observed=self.data["tumors"].to_numpy())


class Trials(Effects):
    """Infarctions in both arms of 49 trials, whose control arms differ; the treatment has one effect on the logits."""

    names = (*Effects.names, "treatment")
    centre, spread = -5.0, 1.5

    def __init__(self):
        self.data = pd.read_csv(HERE / "data" / "avandia.csv", comment="#")
        super().__init__(len(self.data))

    def likelihood(self, effect):
        treatment = pm.Normal("treatment", 0.0, 1.0)
        data = {name: column.to_numpy() for name, column in self.data.items()}
        pm.Binomial("control", data["nControl"], logit_p=effect, observed=data["controlMI"])
        pm.Binomial("treated", data["nAvandia"], logit_p=effect + treatment, observed=data["avandiaMI"])


class Narrow(Counts):
    """Counts whose clusters are far narrower than their distances."""

    def __init__(self, scale):
        super().__init__(90)
        rng = np.random.default_rng(55)
        self.counts = rng.poisson(np.exp(np.array([-0.3, 1.3, 2.7])[rng.integers(0, 3, self.n)]))
        self.shape, self.scale, self.kappa = 3.0, scale, scale / 3.0 / 2.25


class Regression(Effects):
    """Negative binomial counts with twelve coefficients and an overdispersion, beside latent intercepts."""

    names = (*Effects.names, "coefficients", "overdispersion")

    def __init__(self):
        super().__init__(150)
        rng = np.random.default_rng(8)
        self.design = rng.normal(size=(self.n, 12))
        log_mean = np.array([-0.5, 1.5])[rng.integers(0, 2, self.n)] + self.design @ rng.normal(0.0, 0.2, 12)
        self.counts = rng.negative_binomial(5.0, 5.0 / (5.0 + np.exp(log_mean)))

    def likelihood(self, effect):
        line = self.design @ pm.Normal("coefficients", 0.0, 1.0, shape=12)
        overdispersion = pm.Gamma("overdispersion", 2.0, 0.3)
        pm.NegativeBinomial("y", mu=pt.exp(effect + line), alpha=overdispersion, observed=self.counts)


class Slopes(Effects):
    """Intercepts and slopes of 60 groups of six rows, from a mixture in two columns."""

    names, columns = (*Effects.names, "noise"), (2,)

    def __init__(self):
        super().__init__(60)
        rng = np.random.default_rng(9)
        self.times, self.group = np.tile(np.linspace(-1.0, 1.0, 6), self.n), np.repeat(np.arange(self.n), 6)
        own = np.array([[-1.0, 0.5], [1.5, -1.0]])[rng.integers(0, 2, self.n)] + 0.3 * rng.normal(size=(self.n, 2))
        self.rows = own[self.group, 0] + own[self.group, 1] * self.times + 0.7 * rng.normal(size=6 * self.n)

    def likelihood(self, effect):
        line = effect[self.group, 0] + effect[self.group, 1] * self.times
        pm.Normal("y", line, pm.HalfNormal("noise", 1.0), observed=self.rows)


class Curve(Effects):
    """Poisson counts in 120 places: a latent Gaussian process over time beside effects of places."""

    names = (*Effects.names, "length")

    def __init__(self, by_basis):
        super().__init__(120)
        rng = np.random.default_rng(10)
        self.times, self.by_basis = np.linspace(0.0, 10.0, self.n)[:, None], by_basis
        log_mean = np.sin(self.times[:, 0]) + np.array([0.0, 2.0])[rng.integers(0, 2, self.n)]
        self.counts = rng.poisson(np.exp(log_mean))

    def likelihood(self, effect):
        covariance = pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("length", 0.5, 0.5))
        if self.by_basis:
            curve = pm.gp.HSGP(m=[20], c=1.5, cov_func=covariance).prior("curve", X=self.times)
        else:
            curve = pm.gp.Latent(cov_func=covariance).prior("curve", X=self.times)
        pm.Poisson("y", pt.exp(effect + curve), observed=self.counts)


class Residuals(Observed):
    """A regression with three coefficients, whose residuals are a mixture with a random scale."""

    names = ("alpha", "b", "coefficient")

    def __init__(self, n=200):
        rng = np.random.default_rng(7)
        self.design = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
        groups = rng.choice(3, size=n, p=[0.6, 0.3, 0.1])
        residuals = np.array([-0.5, 0.4, 2.5])[groups] + np.array([0.3, 0.2, 0.8])[groups] * rng.normal(size=n)
        super().__init__((self.design @ [1.0, 2.0, -1.0] + residuals)[:, None])

    def hyperparameters(self):
        alpha, b = pm.Gamma("alpha", 1.0, 1.0), pm.Gamma("b", 2.0, 10.0, shape=1)
        return alpha, b, self.design @ pm.Normal("coefficient", 0.0, 3.0, shape=3)

    def collapsed(self):
        with pm.Model() as model:
            alpha, b, line = self.hyperparameters()
            base = dp.NormalInverseGamma(0.0, self.kappa, self.shape, b)
            dp.DPMixture("y", alpha, base, observed=self.rows[:, 0], offset=line)
        return model

    def truncated(self, n_sticks):
        with pm.Model() as model:
            alpha, b, line = self.hyperparameters()
            log_weights, means, precision = sticks(alpha, 0.0, b, self.kappa, self.shape, n_sticks, 1)
            residuals = pt.as_tensor(self.rows[:, 0]) - line
            each = pm.logp(pm.Normal.dist(means[:, 0], tau=precision[:, 0]), residuals[:, None])
            pm.Potential("rows", pt.logsumexp(log_weights + each, axis=1).sum())
        return model


class Process:
    """Parameters of rows under a Dirichlet process with a normal base whose mean is random, under any likelihood."""

    names = ("alpha", "mean")
    spread = 2.0

    def log_density(self, parameter):
        """Log density of rows (..., n) under parameters (..., n) or (..., 1)."""
        raise NotImplementedError

    def hyperparameters(self):
        return pm.Gamma("alpha", 1.0, 1.0), pm.Normal("mean", 0.0, 3.0)

    def collapsed(self):
        with pm.Model() as model:
            alpha, mean = self.hyperparameters()
            base = pm.Normal.dist(mean, self.spread)
            theta = dp.DirichletProcess("theta", alpha, base=base, shape=self.n)
            pm.Potential("rows", self.log_density(theta).sum())
        return model

    def truncated(self, n_sticks):
        with pm.Model() as model:
            alpha, mean = self.hyperparameters()
            weights = pm.StickBreakingWeights("weights", alpha, n_sticks - 1)
            atoms = mean + self.spread * pm.Normal("raw", shape=n_sticks)
            each = pt.log(weights)[:, None] + self.log_density(atoms[:, None])
            pm.Potential("rows", pt.logsumexp(each, axis=0).sum())
        return model


class StudentClusters(Process):
    """Student-t clusters."""

    n = 100

    def log_density(self, parameter):
        rng = np.random.default_rng(3)
        rows = rng.choice([-3.0, 0.0, 4.0], size=self.n) + 0.5 * rng.standard_t(4.0, size=self.n)
        return pm.logp(pm.StudentT.dist(4.0, mu=parameter, sigma=0.5), rows)


class Survival(Process):
    """Censored exponential times, with log rates that are clustered."""

    n = 100

    def log_density(self, parameter):
        rng = np.random.default_rng(4)
        times = rng.exponential(np.exp(-rng.choice([-2.0, 0.5], size=self.n)))
        limit = rng.uniform(1.0, 10.0, size=self.n)
        events = (times < limit).astype(float)
        return events * parameter - np.minimum(times, limit) * pt.exp(parameter)


class Overdispersed(Process):
    """Poisson counts whose log-normal means are integrated by a rule of 15 nodes."""

    n = 100

    def log_density(self, parameter):
        rng = np.random.default_rng(5)
        counts = rng.poisson(np.exp(rng.choice([0.0, 2.5], size=self.n) + 0.4 * rng.normal(size=self.n)))
        nodes, weights = np.polynomial.hermite_e.hermegauss(15)
        each = [
            pm.logp(pm.Poisson.dist(pt.exp(parameter + 0.4 * node)), counts)
            + np.log(weight / np.sqrt(2.0 * np.pi))
            for node, weight in zip(nodes, weights, strict=True)
        ]
        return pt.logsumexp(pt.stack(each), axis=0)


class Schools:
    """Effects of coaching in eight schools (Rubin 1981), whose distribution is a process with a random base."""

    names = ("mu", "tau")
    seen = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    errors = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def hyperparameters(self):
        return pm.Normal("mu", 0.0, 5.0), pm.HalfCauchy("tau", 5.0)

    def collapsed(self):
        with pm.Model() as model:
            effect = dp.DirichletProcess("effect", 5.0, pm.Normal.dist(*self.hyperparameters()), shape=8)
            pm.Normal("y", effect, self.errors, observed=self.seen)
        return model

    def truncated(self, n_sticks):
        with pm.Model() as model:
            mu, tau = self.hyperparameters()
            weights = pm.StickBreakingWeights("weights", 5.0, n_sticks - 1)
            atoms = mu + tau * pm.Normal("raw", shape=n_sticks)
            each = pm.logp(pm.Normal.dist(atoms, self.errors[:, None]), self.seen[:, None])
            pm.Potential("rows", pt.logsumexp(pt.log(weights) + each, axis=1).sum())
        return model


def sticks(alpha, mu, b, kappa, shape, n_sticks, d):
    """Log weights, means and precisions of the components of a truncated mixture."""
    weights = pm.StickBreakingWeights("weights", alpha, n_sticks - 1)
    precision = pm.Gamma("precision", shape, b, shape=(n_sticks, d))
    # Not centred, which suits components without rows: most of them.
    raw = pm.Normal("raw", shape=(n_sticks, d))
    return pt.log(weights), mu + raw / pt.sqrt(kappa * precision), precision


CASES = {
    "galaxies": lambda: Observed(dp.datasets.load_galaxies().to_numpy()[:, None]),
    "Old Faithful": lambda: Observed(dp.datasets.load_old_faithful().to_numpy()),
    "100 counts": lambda: Counts(100),
    "1000 counts": lambda: Counts(1_000),
    "rat tumours": Rats,
    "trials": Trials,
    "narrow clusters": lambda: Narrow(0.01),
    "very narrow clusters": lambda: Narrow(0.0005),
    "regression": Regression,
    "intercepts and slopes": Slopes,
    "curve by a basis": lambda: Curve(True),
    "curve": lambda: Curve(False),
    "eight schools": Schools,
    "residuals": Residuals,
    "Student clusters": StudentClusters,
    "censored survival": Survival,
    "overdispersed counts": Overdispersed,
}


def by_pymc(model, draws, seed, **options):
    """Draws by ``pm.sample``, and the seconds of sampling."""
    run = {"chains": 4, "cores": 1, "random_seed": seed, "progressbar": False, "compute_convergence_checks": False}
    with model:
        # Once for what is compiled.
        pm.sample(2, tune=2, **run, **options)
        idata = pm.sample(draws, tune=1000, **run, **options)
    return idata, float(idata.posterior.attrs["sampling_time"])


def by_nutpie(model, draws, seed):
    """The same by nutpie, compiled before the clock starts."""
    import nutpie

    compiled = nutpie.compile_pymc_model(model)
    begin = time.perf_counter()
    idata = nutpie.sample(compiled, draws=draws, tune=1000, chains=4, cores=1, seed=seed, progress_bar=False)
    return idata, time.perf_counter() - begin


def measure(sample, names):
    """Effective draws per second of sampling, with R-hat, least and median over the entries of each variable."""
    idata, seconds = sample()
    ess, r_hat = az.ess(idata, var_names=list(names)), az.rhat(idata, var_names=list(names))
    of = {
        name: {
            "ess": float(ess[name].min()),
            "per_second": float(ess[name].min()) / seconds,
            "median_per_second": float(ess[name].median()) / seconds,
            "r_hat": float(r_hat[name].max()),
            "means": np.ravel(idata.posterior[name].mean(["chain", "draw"])).tolist(),
        }
        for name in names
    }
    divergences = int(idata.sample_stats["diverging"].sum()) if "diverging" in idata.sample_stats else 0
    n_draws = 4 * (idata.posterior.sizes["draw"] + 1000)
    return {"seconds": seconds, "ms_per_draw": 1e3 * seconds / n_draws, "divergences": divergences, "of": of}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="results")
    parser.add_argument("--sticks", type=int, default=20)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--without", nargs="*", default=[], help="samplers that are left out: pymc, nutpie, nuts")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    results = {}
    for name in arguments.only:
        case = CASES[name]()
        ours, theirs = case.collapsed(), case.truncated(arguments.sticks)
        given = arguments.draws, arguments.seed
        samplers = {"this package": partial(by_pymc, ours, *given)}
        if "nuts" not in arguments.without and not isinstance(case, Process):
            by_nuts = {"continuous": "nuts"}
            samplers["this package, all but labels by NUTS"] = partial(by_pymc, ours, *given, dpmixture=by_nuts)
        if "pymc" not in arguments.without:
            samplers["truncated, PyMC's NUTS"] = partial(by_pymc, theirs, *given, nuts_sampler="pymc")
        if "nutpie" not in arguments.without and importlib.util.find_spec("nutpie") is not None:
            samplers["truncated, nutpie"] = partial(by_nutpie, theirs, *given)
        for kind, sample in samplers.items():
            results[f"{name}, {kind}"] = measured = measure(sample, case.names)
            print(
                f"{name}, {kind}: {measured['seconds']:.1f} s, {measured['ms_per_draw']:.2f} ms a draw, "
                f"{measured['divergences']} divergences"
            )
            for key, own in measured["of"].items():
                means = ", ".join(f"{mean:.3g}" for mean in own["means"][:3])
                print(
                    f"    {key:9s} ESS {own['ess']:6.0f}, {own['per_second']:7.2f} per second "
                    f"(median {own['median_per_second']:7.2f}), R-hat {own['r_hat']:.3f}, means {means}",
                    flush=True,
                )
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "truncated.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
