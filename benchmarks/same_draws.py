"""Tells whether two checkouts give the same draws from the same seeds; see benchmarks/README.md.

Usage: ``python benchmarks/same_draws.py --write FILE`` writes a digest of the draws of each model, and
``python benchmarks/same_draws.py --against FILE`` compares with such a file and fails where one differs. A change
that only moves code changes none of them. Set PYTHONPATH to a checkout to run that one.
"""

import argparse
import hashlib
import json
import logging
import sys
import time
import warnings
from pathlib import Path

import dask.array
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

import pymc_dpgmm as dp

SEED = 20
RNG = np.random.default_rng(8)
LINE = np.concatenate([RNG.normal(-3.0, 1.0, 25), RNG.normal(2.0, 0.5, 35)])
PLANE = np.concatenate([RNG.normal(-2.0, 1.0, (25, 2)), RNG.normal(2.0, 0.7, (35, 2))])
HOLES = np.where(RNG.random(PLANE.shape) < 0.15, np.nan, PLANE)
BINARY = RNG.random((60, 4)) < np.where(np.arange(60)[:, None] < 30, 0.2, 0.8)
CODES = RNG.integers(0, 3, (60, 3))
COUNTS = RNG.poisson(np.where(np.arange(60) < 30, 2.0, 9.0))
TRIALS = np.full(60, 12)
SUCCESSES = RNG.binomial(TRIALS, np.where(np.arange(60) < 30, 0.2, 0.7))
DOCUMENTS = RNG.multinomial(20, [0.5, 0.3, 0.1, 0.1], 60)
SITE = np.arange(60) % 3
CONCENTRATION = (1.0, 1.0)


def alpha():
    return pm.Gamma("alpha", 2.0, 1.0)


def linear():
    x = np.linspace(-1.0, 1.0, 60)
    dp.DPMixture(
        "y",
        alpha(),
        dp.LinearRegression(np.zeros(2), np.eye(2), 2.0, 0.5, np.column_stack([np.ones(60), x])),
        observed=np.abs(x),
    )


def random_base():
    base = dp.NormalInverseGamma(pm.Normal("mu", 0.0, 3.0), 0.1, 2.0, pm.HalfNormal("b", 2.0))
    dp.DPMixture("y", alpha(), base, observed=LINE)


def views():
    bases = {"a": (["x", "z"], dp.NormalInverseWishart), "b": (["s"], dp.BetaBernoulli)}
    table = pd.DataFrame({"x": PLANE[:, 0], "z": PLANE[:, 1], "s": BINARY[:, 0]})
    dp.DPMixture("y", alpha(), bases, observed=table)


def latent():
    effects = dp.DPMixture("effects", 1.0, dp.NormalInverseGamma(0.0, 0.3, 3.0, 1.0), shape=12)
    pm.Poisson("y", pm.math.exp(effects), observed=COUNTS[:12])


def units():
    dp.DPMixture("y", 1.0, dp.NormalInverseGamma, observed=LINE, unit=np.repeat(np.arange(20), 3))


def offset():
    slope = pm.Normal("slope")
    base = dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
    dp.DPMixture("y", 1.0, base, observed=LINE, offset=slope * np.linspace(-1.0, 1.0, 60))


def known():
    labels = np.full(60, -1)
    labels[[0, 1, 40]] = [0, 0, 1]
    dp.DPMixture("y", alpha(), dp.NormalInverseGamma, observed=LINE, known_labels=labels)


def process():
    theta = dp.DirichletProcess("theta", alpha(), pm.Normal.dist(0.0, 3.0), shape=20)
    pm.Laplace("y", theta, 1.0, observed=LINE[:20])


def discrete_process():
    theta = dp.DirichletProcess("theta", 1.0, pm.Poisson.dist(3.0), shape=15)
    pm.Poisson("y", theta + 0.5, observed=COUNTS[:15])


def topics():
    dp.LDA("y", 4, CONCENTRATION[0], 0.5, observed=DOCUMENTS[:15])


MODELS = {
    "normal-inverse-gamma, Dirichlet process": lambda: dp.DPMixture("y", alpha(), observed=LINE),
    "normal-inverse-Wishart": lambda: dp.DPMixture("y", alpha(), observed=PLANE),
    "normal-inverse-Wishart, 9 columns": lambda: dp.DPMixture(
        "y", 1.0, dp.NormalInverseWishart, observed=np.hstack([PLANE, RNG_OF_COLUMNS])
    ),
    "missing entries": lambda: dp.DPMixture("y", 1.0, observed=HOLES),
    "missing entries integrated out": lambda: dp.DPMixture("y", 1.0, dp.NormalInverseGamma, observed=HOLES),
    "spherical": lambda: dp.DPMixture("y", 1.0, dp.SphericalNormalInverseGamma, observed=PLANE),
    "Pitman-Yor, random discount": lambda: dp.PYMixture("y", 1.0, pm.Beta("d", 1.0, 2.0), observed=LINE),
    "finite": lambda: dp.FiniteMixture("y", 1.0, 3, observed=LINE),
    "mixture of finite mixtures": lambda: dp.MFMixture("y", 1.0, observed=LINE),
    "bernoulli": lambda: dp.DPMixture("y", alpha(), dp.BetaBernoulli, observed=BINARY),
    "categories": lambda: dp.DPMixture("y", 1.0, dp.DirichletCategorical, observed=CODES),
    "counts": lambda: dp.DPMixture("y", 1.0, dp.GammaPoisson, observed=COUNTS),
    "binomial": lambda: dp.DPMixture("y", 1.0, dp.BetaBinomial(1.0, 1.0, TRIALS), observed=SUCCESSES),
    "rows of counts": lambda: dp.DPMixture("y", 1.0, dp.DirichletMultinomial, observed=DOCUMENTS),
    "regression": linear,
    "random base measure": random_base,
    "two views": views,
    "latent rows": latent,
    "units": units,
    "offset": offset,
    "known labels": known,
    "groups": lambda: dp.HDPMixture("y", *CONCENTRATION, observed=LINE, group=SITE),
    "topics": topics,
    "any likelihood": process,
    "any likelihood, discrete": discrete_process,
    "chunks": lambda: dp.DPMixture(
        "y", alpha(), dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=dask.array.from_array(LINE, chunks=20)
    ),
    "1,000 rows": lambda: dp.DPMixture("y", alpha(), observed=np.tile(PLANE, (17, 1))),
}
RNG_OF_COLUMNS = np.random.default_rng(4).normal(size=(60, 7))


def digest(data):
    """Return a digest of all variables of a Dataset that are numbers."""
    total = hashlib.sha256()
    for name in sorted(data.data_vars):
        values = data[name].to_numpy()
        if values.dtype.kind in "biuf":
            total.update(name.encode() + str(values.shape).encode())
            # Labels are kept in types of several sizes.
            total.update(np.ascontiguousarray(values, dtype=np.float64 if values.dtype.kind == "f" else np.int64))
    return total.hexdigest()[:16]


def drawn(make):
    with pm.Model():
        make()
        idata = pm.sample(
            60, tune=60, chains=2, cores=1, random_seed=SEED, progressbar=False, compute_convergence_checks=False
        )
    return {"draws": digest(idata.posterior.to_dataset())}


def fitted(make):
    with pm.Model():
        make()
        fit = dp.fit(random_seed=SEED, progressbar=False)
    return {"fit": digest(fit.to_datatree(50, random_seed=SEED).posterior.to_dataset())}


def answers(make):
    """Return digests of what is asked for after sampling."""
    with pm.Model():
        make()
        idata = pm.sample(
            60, tune=60, chains=2, cores=1, random_seed=SEED, progressbar=False, compute_convergence_checks=False
        )
    dp.log_likelihood(idata, "y", random_seed=SEED)
    dp.sample_replicates(idata, "y", random_seed=SEED)
    found = {
        "new rows": dp.sample_new_rows(idata, "y", 3, random_seed=SEED),
        "replicates": idata["posterior_predictive"].to_dataset(),
        "component draws": dp.component_draws(idata, "y", random_seed=SEED),
        "density": dp.density(idata, "y", np.array([0.0, 1.0]), random_seed=SEED),
        "membership": dp.membership(idata, "y", np.array([0.0, 1.0])),
        "log likelihood": idata["log_likelihood"].to_dataset(),
    }
    return {
        f"answers, {key}": digest(value.to_dataset(name="value") if isinstance(value, xr.DataArray) else value)
        for key, value in found.items()
    }


def all_digests():
    for name, make in MODELS.items():
        yield name, drawn, make
    for name in ("normal-inverse-gamma, Dirichlet process", "counts", "two views", "finite"):
        yield f"{name}, fit", fitted, MODELS[name]
    yield "finite", answers, MODELS["finite"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    before = json.loads(arguments.against.read_text()) if arguments.against else {}
    found, begin = {}, time.perf_counter()
    for name, how, make in all_digests():
        for key, value in how(make).items():
            entry = f"{name}: {key}"
            found[entry] = value
            told = "" if entry not in before else ("  same" if before[entry] == value else "  DIFFERENT")
            print(f"{entry:70s} {value}{told}", flush=True)
    print(f"{len(found)} digests of {Path(dp.__file__).parent}, {time.perf_counter() - begin:.0f} s")
    if arguments.write:
        arguments.write.write_text(json.dumps(found, indent=1))
    different = [entry for entry, value in before.items() if found.get(entry) != value]
    if different:
        sys.exit(f"{len(different)} differ: {', '.join(different)}")


if __name__ == "__main__":
    main()
