"""Variational inference beside scikit-learn's BayesianGaussianMixture: same data, same prior.

    python benchmarks/variational.py [FOLDER]
    python benchmarks/variational.py --gaps
    python benchmarks/variational.py --held-out

The first command needs scikit-learn. For each of several data sets it prints, and writes to FOLDER/variational.json,
the lower bound of the log evidence, how many components are in use (half a row or more) and the seconds: of `dp.fit`
with one start and with four, and of scikit-learn with 10 and 20 components, up to 1,000 iterations (300 for 100,000
rows), and for few rows also the best of its ten starts. scikit-learn's own bound lacks constants, so that all bounds
are computed here, by the same code of NumPy and SciPy, from the responsibilities that each of them ends with.
Everything is compiled before the clock starts, and each fit is run three times with different seeds, with one
thread: the medians of seconds and bounds are told, and the least and largest bound.

The second command prints, for the first five rows of the data with which families are tested and for each prior, by
how much the bound is below the log evidence, which is a sum over all partitions by code that shares nothing with the
package.

The third command prints mean log predictive densities of rows that are held out, every fifth one of six data sets in
a random order: by `dp.fit`, with 500 draws of labels, and by the exact sampler, with four chains of 500 draws, and the
mean difference with its standard error over rows.
"""

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
from scipy.special import betaln, multigammaln

import pymc_dpgmm as dp

ALPHA, SEEDS = 1.0, (1, 2, 3)


def simulated(n):
    rng = np.random.default_rng(4)
    means, labels = rng.normal(0.0, 6.0, (8, 2)), rng.choice(8, n)
    return means[labels] + rng.normal(size=(n, 2)) @ np.array([[1.0, 0.4], [0.0, 0.7]])


DATA = {
    "Old Faithful": np.asarray(dp.datasets.load_old_faithful(), dtype=float),
    "galaxies": np.asarray(dp.datasets.load_galaxies(), dtype=float).reshape(-1, 1),
    "100,000 x 2": simulated(100_000),
}


def bound_of(X, r, mu, kappa, nu, psi):
    """The bound at responsibilities (n, K), with the best posteriors of sticks and parameters given these."""
    r = r[:, np.argsort(-r.sum(axis=0))]
    n, d = r.sum(axis=0), X.shape[1]
    later = n[::-1].cumsum()[::-1] - n
    total = float(np.sum(betaln(1.0 + n, ALPHA + later) - betaln(1.0, ALPHA)))
    total -= float(np.sum(r * np.log(np.maximum(r, 1e-300))))
    for k in range(r.shape[1]):
        size = max(n[k], 1e-300)
        mean = r[:, k] @ X / size
        offset = X - mean
        scale = psi + (r[:, k, None] * offset).T @ offset
        scale += kappa * n[k] / (kappa + n[k]) * np.outer(mean - mu, mean - mu)
        total += multigammaln(0.5 * (nu + n[k]), d) - multigammaln(0.5 * nu, d) - 0.5 * n[k] * d * np.log(np.pi)
        total += 0.5 * nu * np.linalg.slogdet(psi)[1] - 0.5 * (nu + n[k]) * np.linalg.slogdet(scale)[1]
        total += 0.5 * d * np.log(kappa / (kappa + n[k]))
    return total


def ours(X, numbers, n_starts, seed):
    with pm.Model():
        dp.DPMixture("y", ALPHA, dp.NormalInverseWishart(**numbers), observed=X)
        began = time.perf_counter()
        fit = dp.fit(n_starts=n_starts, random_seed=seed, progressbar=False)
        seconds = time.perf_counter() - began
    r = fit.responsibilities()
    found = bound_of(X, r, **numbers)
    assert abs(found - fit.elbo[-1]) < 1e-6 * abs(found), (found, fit.elbo[-1])
    return found, fit.n_components, seconds


def theirs(X, numbers, n_components, n_init, seed):
    from sklearn.mixture import BayesianGaussianMixture

    mixture = BayesianGaussianMixture(
        n_components=n_components,
        weight_concentration_prior=ALPHA,
        mean_prior=numbers["mu"],
        mean_precision_prior=numbers["kappa"],
        degrees_of_freedom_prior=numbers["nu"],
        covariance_prior=numbers["psi"],
        max_iter=1_000 if len(X) < 1_000 else 300,
        n_init=n_init,
        random_state=seed,
    )
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixture.fit(X)
    seconds = time.perf_counter() - began
    r = mixture.predict_proba(X)
    return bound_of(X, r, **numbers), int(np.sum(r.sum(axis=0) >= 0.5)), seconds


def summarized(runs):
    bounds, components, seconds = (np.array(values) for values in zip(*runs, strict=True))
    return {
        "bound": round(float(np.median(bounds)), 2),
        "least": round(float(bounds.min()), 2),
        "largest": round(float(bounds.max()), 2),
        "components": int(np.median(components)),
        "seconds": round(float(np.median(seconds)), 3),
    }


def gaps():
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
    from small_fits import ONE, rows_of, seeded
    from test_variational import CASES, PRIORS, ascend, log_evidence

    print("family", *PRIORS, sep=" | ")
    for case in CASES:
        found = []
        for make, log_prior in PRIORS.values():
            rows, prior = rows_of(case, 5), make()
            fits = [ascend(rows, prior, seeded(rows, prior, k, k), ONE, 1e-9, 500) for k in (1, 2, 3)]
            found.append(log_evidence(case, 5, log_prior) - max(fit.bound for fit in fits))
        print(case, *(f"{gap:.2f}" for gap in found), sep=" | ", flush=True)


def six_data_sets():
    penguins = dp.datasets.load_penguins()
    measures = (
        penguins[["bill_length", "bill_depth", "flipper_length", "body_mass"]].dropna().to_numpy(dtype=float)
    )
    names = penguins[["species", "island", "sex"]].dropna()
    codes = np.column_stack([names[column].astype("category").cat.codes for column in names]).astype(float)
    pixels = np.asarray(dp.datasets.load_digits()[0], dtype=float)
    return {
        "Old Faithful, 2 columns": (DATA["Old Faithful"], dp.NormalInverseWishart),
        "galaxies, 1 column": (DATA["galaxies"], dp.NormalInverseWishart),
        "penguins, 4 measures": (measures, dp.NormalInverseWishart),
        "penguins, 3 categories": (codes, dp.DirichletCategorical),
        "sunspots, counts": (np.round(np.asarray(dp.datasets.load_sunspots(), dtype=float)), dp.GammaPoisson),
        "digits, 64 bits": (pixels, dp.BetaBernoulli),
    }


def held_out():
    for name, (X, kind) in six_data_sets().items():
        order = np.random.default_rng(1).permutation(len(X))
        kept, other = X[np.sort(order[len(X) // 5 :])], X[np.sort(order[: len(X) // 5])]
        base = dp.DirichletCategorical.from_data(X) if kind is dp.DirichletCategorical else kind.from_data(kept)
        with pm.Model():
            dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), base, observed=kept)
            began = time.perf_counter()
            fit = dp.fit(random_seed=1, progressbar=False)
            seconds = time.perf_counter() - began
            began = time.perf_counter()
            idata = pm.sample(500, tune=500, chains=4, cores=1, random_seed=1, progressbar=False)
            slow = time.perf_counter() - began
        logs = [
            dp.membership(draws, "y", other, np.zeros(len(kept), dtype=int))["log_density"].to_numpy()
            for draws in (fit.to_datatree(500, random_seed=1), idata)
        ]
        difference = logs[0] - logs[1]
        clusters = float(idata["posterior"]["y_n_clusters"].mean())
        error = difference.std() / np.sqrt(len(other))
        print(
            f"{name} | {logs[0].mean():.3f} | {logs[1].mean():.3f} | {difference.mean():.3f} ({error:.3f})",
            f"{fit.n_components} | {clusters:.1f} | {seconds:.1f} | {slow:.1f}",
            sep=" | ",
            flush=True,
        )


def main(folder):
    found = {}
    for name, X in DATA.items():
        d = X.shape[1]
        numbers = {
            "mu": X.mean(axis=0),
            "kappa": 0.01,
            "nu": d + 2.0,
            "psi": np.diag(0.1 * X.var(axis=0)),
        }
        ours(X[:50], numbers, 1, 0)
        methods = {
            "dp.fit, 1 start": lambda s, X=X, p=numbers: ours(X, p, 1, s),
            "dp.fit, 4 starts": lambda s, X=X, p=numbers: ours(X, p, 4, s),
            "scikit-learn, 10 components": lambda s, X=X, p=numbers: theirs(X, p, 10, 1, s),
        }
        if len(X) < 1_000:
            methods["scikit-learn, 20 components"] = lambda s, X=X, p=numbers: theirs(X, p, 20, 1, s)
            methods["scikit-learn, 10 components, 10 starts"] = lambda s, X=X, p=numbers: theirs(X, p, 10, 10, s)
        for method, run in methods.items():
            found[f"{name}: {method}"] = own = summarized([run(seed) for seed in SEEDS])
            print(f"{name:14} {method:40}", *(f"{key} {value:<10}" for key, value in own.items()), flush=True)
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "variational.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    if "--gaps" in sys.argv:
        gaps()
    elif "--held-out" in sys.argv:
        held_out()
    else:
        main(sys.argv[1] if len(sys.argv) > 1 else None)
