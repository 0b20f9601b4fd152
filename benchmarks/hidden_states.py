"""Hidden states of simulated series beside those of hmmlearn, whose number of states is chosen by BIC.

Usage: ``python benchmarks/hidden_states.py [FOLDER] [--series N] [--only NAME ...] [--three-states]``. The package has alpha ~ Gamma(1, 1),
gamma ~ Gamma(1, 1) and kappa ~ Gamma(2, 0.2), and a base measure as wide as the data. hmmlearn, where it is installed,
fits 1 to 10 states from five starts each, and decodes by Viterbi. The figures are the adjusted Rand index with the true
states, the number of states, and seconds a series, means over the series. Prints a table and writes
``FOLDER/hidden_states.json``. With ``--three-states`` there is a table of a model of earthquakes with three states
instead, beside the same model with the states summed out by pymc-extras under nutpie, where these are installed: means
and standard deviations of the ordered rates, and their effective draws a second.
"""

import argparse
import json
import logging
import time
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm

import pymc_dpgmm as dp


def chain(rng, n, stay, n_states):
    states = np.zeros(n, dtype=np.int64)
    for t in range(1, n):
        states[t] = states[t - 1] if rng.random() < stay else rng.integers(n_states)
    return states


def three_levels(rng):
    states = chain(rng, 300, 0.9, 3)
    return states, np.array([-3.0, 0.0, 3.0])[states, None] + rng.normal(size=(300, 1))


def close_levels(rng):
    states = chain(rng, 1_000, 0.97, 4)
    return states, np.array([-2.0, -0.7, 0.7, 2.0])[states, None] + 0.7 * rng.normal(size=(1_000, 1))


def volatility(rng):
    states = chain(rng, 1_000, 0.98, 3)
    return states, np.array([0.3, 1.0, 3.0])[states, None] * rng.normal(size=(1_000, 1))


def counts(rng):
    states = chain(rng, 500, 0.95, 3)
    return states, rng.poisson(np.array([4.0, 10.0, 20.0])[states, None])


def eight_in_the_plane(rng):
    states = chain(rng, 2_000, 0.9, 8)
    centres = rng.normal(0.0, 4.0, size=(8, 2))
    return states, centres[states] + rng.normal(size=(2_000, 2))


SERIES = {
    own.__name__.replace("_", " "): own
    for own in (three_levels, close_levels, volatility, counts, eight_in_the_plane)
}


def base_of(x):
    if x.dtype.kind == "i":
        return dp.GammaPoisson(1.0, 1.0 / x.mean())
    if x.shape[1] == 1:
        return dp.NormalInverseGamma(x.mean(), 0.05, 1.0, 0.2 * x.var())
    return dp.NormalInverseWishart(x.mean(axis=0), 0.05, 4.0, 0.2 * np.cov(x.T))


def by_this_package(x, seed):
    with pm.Model():
        alpha, gamma, kappa = pm.Gamma("alpha", 1.0, 1.0), pm.Gamma("gamma", 1.0, 1.0), pm.Gamma("kappa", 2.0, 0.2)
        dp.HDPHMM("y", alpha, gamma, base_of(x), kappa=kappa, observed=x if x.shape[1] > 1 else x[:, 0])
        idata = pm.sample(
            500, tune=300, chains=2, cores=1, random_seed=seed, progressbar=False, compute_convergence_checks=False
        )
    return dp.hidden_states(idata, "y")["labels"].to_numpy()


def by_hmmlearn(x, seed):
    from hmmlearn.hmm import GaussianHMM, PoissonHMM

    best, found = np.inf, None
    for n_states in range(1, 11):
        for start in range(5):
            options = {"n_components": n_states, "n_iter": 200, "random_state": 10 * seed + start}
            model = (
                PoissonHMM(**options) if x.dtype.kind == "i" else GaussianHMM(covariance_type="full", **options)
            )
            try:
                model.fit(x)
                bic = model.bic(x)
            except ValueError:
                continue
            if bic < best:
                best, found = bic, model.predict(x)
    return found


def adjusted_rand(a, b):
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1.0)

    def pairs(counts):
        return np.sum(counts * (counts - 1.0)) / 2.0

    rows, columns, n = pairs(table.sum(axis=1)), pairs(table.sum(axis=0)), len(a)
    expected = rows * columns / (n * (n - 1.0) / 2.0)
    most = 0.5 * (rows + columns)
    return 1.0 if most == expected else float((pairs(table) - expected) / (most - expected))


N_STATES, SHAPE, RATE, KAPPA = 3, 2.0, 0.1, 5.0


def earthquakes():
    path = Path(__file__).parents[1] / "docs" / "howto" / "data" / "earthquakes.csv"
    return pd.read_csv(path)["earthquakes"].to_numpy()


def rates_by_this_package():
    """Ordered rates (chain, draw, state), and seconds. Each row of the transition matrix is Dirichlet."""
    y = earthquakes()
    options = {"cores": 1, "progressbar": False, "compute_convergence_checks": False}
    with pm.Model():
        base = dp.GammaPoisson(SHAPE, RATE)
        dp.HDPHMM("y", N_STATES, 1e7, base, kappa=KAPPA, n_states=N_STATES, observed=y)
        pm.sample(1, tune=1, chains=1, random_seed=0, **options)
        started = time.perf_counter()
        labels = pm.sample(2_000, tune=300, chains=2, random_seed=1, **options).posterior["y_labels"].to_numpy()
        seconds = time.perf_counter() - started
    is_in = labels[..., None] == np.arange(N_STATES)
    gamma = np.random.default_rng(0).gamma(SHAPE + np.einsum("cdnk,n->cdk", is_in, y))
    return np.sort(gamma / (RATE + is_in.sum(axis=2))), seconds


def rates_by_nutpie():
    """The same."""
    import nutpie
    from pymc.distributions.transforms import Chain, log, ordered
    from pymc_extras import DiscreteMarkovChain, marginalize

    y = earthquakes()
    with pm.Model() as model:
        transitions = pm.Dirichlet("transitions", 1.0 + KAPPA * np.eye(N_STATES))
        first = pm.Categorical.dist(pm.Dirichlet("first", np.ones(N_STATES)))
        rates = pm.Gamma("rates", SHAPE, RATE, shape=N_STATES, transform=Chain([log, ordered]))
        states = DiscreteMarkovChain("states", P=transitions, init_dist=first, shape=len(y))
        pm.Poisson("y", rates[states], observed=y)
    start = {"rates": np.array([12.0, 20.0, 30.0])}
    compiled = nutpie.compile_pymc_model(marginalize(model, ["states"]), initial_points=start)
    started = time.perf_counter()
    idata = nutpie.sample(compiled, draws=1_000, tune=500, chains=2, cores=1, seed=1, progress_bar=False)
    return idata.posterior["rates"].to_numpy(), time.perf_counter() - started


def print_three_states():
    print("| method | rates | standard deviations | effective draws a second | R-hat |\n|---|---|---|---|---|")
    for method, run in {"this package": rates_by_this_package, "nutpie": rates_by_nutpie}.items():
        try:
            rates, seconds = run()
        except ImportError:
            continue
        ess, r_hat = ([float(of(rates[..., k])) for k in range(N_STATES)] for of in (az.ess, az.rhat))
        texts = [f"{own:.2f}" for own in (*rates.mean(axis=(0, 1)), *rates.std(axis=(0, 1)))]
        speeds = ", ".join(f"{own / seconds:.0f}" for own in ess)
        print(
            f"| {method} | {', '.join(texts[:3])} | {', '.join(texts[3:])} | {speeds} | {max(r_hat):.3f} |",
            flush=True,
        )


METHODS = {"this package": by_this_package, "hmmlearn, BIC": by_hmmlearn}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="results", type=Path)
    parser.add_argument("--series", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(SERIES))
    parser.add_argument("--three-states", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in ("pymc", "pymc_dpgmm", "hmmlearn"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if arguments.three_states:
        print_three_states()
        return
    found = {}
    print("| series | method | adjusted Rand index | states | seconds |\n|---|---|---|---|---|")
    for name in arguments.only:
        for method, run in METHODS.items():
            scores = []
            for seed in range(arguments.series):
                states, x = SERIES[name](np.random.default_rng(seed))
                started = time.perf_counter()
                try:
                    labels = run(x, seed)
                except ImportError:
                    break
                labels = np.unique(labels, return_inverse=True)[1]
                scores.append((adjusted_rand(states, labels), labels.max() + 1, time.perf_counter() - started))
            if scores:
                rand, number, seconds = np.mean(scores, axis=0)
                found[f"{name}, {method}"] = [rand, number, seconds]
                print(f"| {name} | {method} | {rand:.3f} | {number:.1f} | {seconds:.1f} |", flush=True)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "hidden_states.json").write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
