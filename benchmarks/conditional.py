"""One column given the others, on held-out rows: dp.predict beside other ways.

    python benchmarks/conditional.py results
    python benchmarks/conditional.py results --tables lidar --ways package sticks

Each of five tables is divided in halves three times. For each way: the mean log density of the response of held-out
rows, the share of them inside their central 90 % interval, and seconds, compilation included. The ways are

package
    ``dp.DPMixture`` with its default base measure, and ``dp.predict``;
mixture
    scikit-learn's ``GaussianMixture`` on standardised columns, conditioned by hand: full, tied or diagonal
    covariances and 1 to 9 components, whichever have the smallest BIC;
line
    a linear regression with normal errors, with the t predictive of a flat prior;
bart
    Bayesian additive regression trees with normal errors, where ``pymc-bart`` is installed;
sticks
    the dependent density regression of PyMC's examples for one covariate: 20 probit sticks that are linear in it,
    with a line in each component; by PyMC's NUTS, which its authors replaced by a slice sampler.

Writes ``conditional.json`` into the folder.
"""

import argparse
import importlib.util
import json
import logging
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from scipy import stats
from scipy.special import logsumexp, ndtr
from sklearn import datasets
from sklearn.mixture import GaussianMixture

import pymc_dpgmm as dp

logging.getLogger("pymc").setLevel(logging.ERROR)
HALVES = 3
LEVELS = (0.05, 0.95)
RUN = {"chains": 4, "cores": 2, "progressbar": False, "compute_convergence_checks": False}


def penguins():
    columns = ["bill_length", "bill_depth", "flipper_length", "body_mass"]
    return dp.datasets.load_penguins()[columns].dropna(), "body_mass"


def shipped(load, response):
    bunch = load(as_frame=True)
    return bunch.frame.drop(columns=[] if response in ("target",) else ["target"]).astype(float), response


TABLES = {
    "lidar": lambda: (dp.datasets.load_lidar().astype(float), "logratio"),
    "old faithful": lambda: (dp.datasets.load_old_faithful().astype(float), "waiting"),
    "penguins": penguins,
    "diabetes": lambda: shipped(datasets.load_diabetes, "target"),
    "wine": lambda: shipped(datasets.load_wine, "alcohol"),
}


def of_mixture_of_normals(log_weights, means, deviations, y):
    """Log densities of y (m,), and whether it is inside its central interval, for weights, ... (m, K)."""
    density = logsumexp(log_weights + stats.norm.logpdf(y[:, None], means, deviations), axis=1)
    below = np.sum(np.exp(log_weights) * ndtr((y[:, None] - means) / deviations), axis=1)
    return density, (below > LEVELS[0]) & (below < LEVELS[1])


def by_package(train, test, response, seed):
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=train)
        idata = pm.sample(1_000, tune=1_000, random_seed=seed, **RUN)
    rest, y = test.drop(columns=response), test[response].to_numpy()
    found = dp.log_density(idata, "y", test)["entry"].sel(column=response).to_numpy()
    limits = dp.predict(idata, "y", rest, of=response, kind="quantiles", quantiles=LEVELS, random_seed=1)
    low, high = limits["quantiles"].to_numpy()
    return found, (y > low) & (y < high)


def by_mixture(train, test, response, seed):
    centre, scale = train.mean(), train.std()
    z, w = ((rows - centre) / scale for rows in (train, test))
    fits = [
        GaussianMixture(k, covariance_type=kind, reg_covar=1e-3, n_init=3, random_state=seed).fit(z.to_numpy())
        for k in range(1, 10)
        for kind in ("full", "tied", "diag")
    ]
    fit = min(fits, key=lambda own: own.bic(z.to_numpy()))
    covariances = {
        "full": fit.covariances_,
        "tied": np.broadcast_to(fit.covariances_, (fit.n_components, *fit.covariances_.shape[-2:])),
        "diag": [np.diag(own) for own in np.atleast_2d(fit.covariances_)],
    }[fit.covariance_type]
    j = train.columns.get_loc(response)
    others = [i for i in range(train.shape[1]) if i != j]
    x, y = w.to_numpy()[:, others], w.to_numpy()[:, j]
    log_weights, means, deviations = (np.empty((len(x), len(fit.weights_))) for _ in range(3))
    for k, (weight, mean, full) in enumerate(zip(fit.weights_, fit.means_, covariances, strict=True)):
        known = full[np.ix_(others, others)]
        log_weights[:, k] = np.log(weight) + stats.multivariate_normal(mean[others], known).logpdf(x)
        slopes = np.linalg.solve(known, full[others, j])
        means[:, k] = mean[j] + (x - mean[others]) @ slopes
        deviations[:, k] = np.sqrt(full[j, j] - full[others, j] @ slopes)
    log_weights -= logsumexp(log_weights, axis=1, keepdims=True)
    density, inside = of_mixture_of_normals(log_weights, means, deviations, y)
    return density - np.log(scale[response]), inside


def by_line(train, test, response, seed):
    def design(rows):
        return np.column_stack([np.ones(len(rows)), rows.drop(columns=response)])

    x, y, new = design(train), train[response].to_numpy(), design(test)
    inverse = np.linalg.inv(x.T @ x)
    line = inverse @ x.T @ y
    degrees = len(y) - x.shape[1]
    variance = np.sum((y - x @ line) ** 2) / degrees
    spread = np.sqrt(variance * (1.0 + np.sum((new @ inverse) * new, axis=1)))
    law = stats.t(degrees, new @ line, spread)
    below = law.cdf(test[response].to_numpy())
    return law.logpdf(test[response].to_numpy()), (below > LEVELS[0]) & (below < LEVELS[1])


def by_bart(train, test, response, seed):
    import pymc_bart as pmb

    centre, scale = train.mean(), train.std()
    z, w = ((rows - centre) / scale for rows in (train, test))
    with pm.Model():
        x = pm.Data("x", z.drop(columns=response).to_numpy())
        mean = pmb.BART("mean", x, z[response].to_numpy(), m=50)
        deviation = pm.HalfNormal("deviation", 1.0)
        pm.Normal("y", mean, deviation, observed=z[response].to_numpy(), shape=mean.shape)
        idata = pm.sample(1_000, tune=1_000, random_seed=seed, **RUN)
        pm.set_data({"x": w.drop(columns=response).to_numpy()})
        found = pm.sample_posterior_predictive(
            idata,
            var_names=["mean"],
            sample_vars=["mean"],
            predictions=True,
            progressbar=False,
            random_seed=seed,
        )
    means = found["predictions"]["mean"].to_numpy().reshape(-1, len(w)).T
    deviations = idata["posterior"]["deviation"].to_numpy().ravel()
    log_weights = np.full(means.shape, -np.log(means.shape[1]))
    density, inside = of_mixture_of_normals(log_weights, means, deviations, w[response].to_numpy())
    return density - np.log(scale[response]), inside


def by_sticks(train, test, response, seed, n_components=20):
    if train.shape[1] != 2:
        return None
    centre, scale = train.mean(), train.std()
    z, w = ((rows - centre) / scale for rows in (train, test))
    x, y = z.drop(columns=response).to_numpy()[:, 0], z[response].to_numpy()

    def weights_of(x, intercepts, slopes, functions, cdf):
        v = cdf(intercepts + slopes * x[:, None])
        rest = functions.concatenate(
            [functions.ones_like(v[:, :1]), functions.cumprod(1.0 - v, axis=1)[:, :-1]], axis=1
        )
        return v * rest

    def probit(value):
        return 0.5 * (1.0 + pt.erf(value / np.sqrt(2.0)))

    with pm.Model():
        a = pm.Normal("a", 0.0, 5.0, shape=n_components)
        b = pm.Normal("b", 0.0, 5.0, shape=n_components)
        weights = weights_of(x, a, b, pt, probit)
        c = pm.Normal("c", 0.0, 10.0, shape=n_components)
        e = pm.Normal("e", 0.0, 10.0, shape=n_components)
        tau = pm.Gamma("tau", 1.0, 1.0, shape=n_components)
        components = pm.Normal.dist(c + e * x[:, None], 1.0 / pt.sqrt(tau), shape=(len(x), n_components))
        pm.Mixture("y", weights / weights.sum(axis=1, keepdims=True), components, observed=y)
        idata = pm.sample(1_000, tune=1_000, random_seed=seed, **RUN)
    drawn = {key: idata["posterior"][key].to_numpy().reshape(-1, n_components) for key in "abce"}
    deviations = 1.0 / np.sqrt(idata["posterior"]["tau"].to_numpy().reshape(-1, n_components))
    new, truth = w.drop(columns=response).to_numpy()[:, 0], w[response].to_numpy()
    density, below = [], []
    for s in range(0, len(deviations), 4):
        own = weights_of(new, drawn["a"][s], drawn["b"][s], np, ndtr)
        own = own / own.sum(axis=1, keepdims=True)
        means = drawn["c"][s] + drawn["e"][s] * new[:, None]
        with np.errstate(divide="ignore"):
            density.append(
                logsumexp(np.log(own) + stats.norm.logpdf(truth[:, None], means, deviations[s]), axis=1)
            )
        below.append(np.sum(own * ndtr((truth[:, None] - means) / deviations[s]), axis=1))
    found = logsumexp(density, axis=0) - np.log(len(density))
    share = np.mean(below, axis=0)
    return found - np.log(scale[response]), (share > LEVELS[0]) & (share < LEVELS[1])


WAYS = {
    "package": by_package,
    "mixture": by_mixture,
    "line": by_line,
    "bart": by_bart,
    "sticks": by_sticks,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    ways = [way for way in options.ways if way != "bart" or importlib.util.find_spec("pymc_bart")]
    options.folder.mkdir(exist_ok=True)
    results = []
    for name in options.tables:
        table, response = TABLES[name]()
        table = table.reset_index(drop=True)
        for way in ways:
            found, seconds = [], []
            for seed in range(HALVES):
                order = np.random.default_rng(seed).permutation(len(table))
                train, test = (
                    pd.DataFrame(table.to_numpy()[np.sort(part)], columns=table.columns)
                    for part in np.array_split(order, 2)
                )
                start = time.perf_counter()
                answer = WAYS[way](train, test, response, seed)
                seconds.append(time.perf_counter() - start)
                if answer is not None:
                    found.append((answer[0].mean(), answer[1].mean()))
            if not found:
                continue
            density, inside = np.mean(found, axis=0)
            results.append(
                {
                    "table": name,
                    "rows": len(table),
                    "columns": table.shape[1],
                    "way": way,
                    "log density": round(float(density), 3),
                    "inside": round(float(inside), 3),
                    "seconds": round(float(np.mean(seconds)), 2),
                }
            )
            print(results[-1], flush=True)
            (options.folder / "conditional.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
