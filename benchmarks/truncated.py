"""Effective draws per second beside the same model, truncated: stick-breaking weights, all of it sampled by NUTS.

Usage: ``python benchmarks/truncated.py [FOLDER] [--sticks 20]``. The same priors on alpha and on the base measure, the
same data, one core. The truncated model is sampled by PyMC's NUTS and, where it is installed (the extra ``bench``), by
nutpie, which PyMC takes by itself for such models then. The collapsed one is sampled as it is, and with its
hyperparameters by NUTS. Compilation is not counted. Prints a table and writes ``FOLDER/truncated.json``.
"""

import argparse
import importlib.util
import json
import logging
import time
import warnings
from functools import partial
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dpgmm as dp

KAPPA, SHAPE = 0.1, 2.0
DATA = {
    "galaxies": lambda: dp.datasets.load_galaxies().to_numpy()[:, None],
    "Old Faithful": lambda: dp.datasets.load_old_faithful().to_numpy(),
}


def hyperparameters(rows):
    """Alpha, and mean and scale of the base measure, with priors as wide as the data."""
    d = rows.shape[1]
    alpha = pm.Gamma("alpha", 1.0, 1.0)
    mu = pm.Normal("mu", rows.mean(axis=0), rows.std(axis=0), shape=d)
    b = pm.Gamma("b", 2.0, 2.0 / (0.1 * rows.var(axis=0)), shape=d)
    return alpha, mu, b


def collapsed(rows):
    """The mixture of this package."""
    with pm.Model() as model:
        alpha, mu, b = hyperparameters(rows)
        dp.DPMixture("y", alpha, dp.NormalInverseGamma(mu, KAPPA, SHAPE, b), observed=rows)
    return model


def truncated(rows, n_sticks):
    """The same mixture with finitely many sticks, the labels summed out."""
    d = rows.shape[1]
    with pm.Model() as model:
        alpha, mu, b = hyperparameters(rows)
        weights = pm.StickBreakingWeights("weights", alpha, n_sticks - 1)
        precision = pm.Gamma("precision", SHAPE, b, shape=(n_sticks, d))
        # Not centred, which suits components without rows: most of them.
        raw = pm.Normal("raw", shape=(n_sticks, d))
        means = mu + raw / pt.sqrt(KAPPA * precision)
        by_column = pm.logp(pm.Normal.dist(means, tau=precision), rows[:, None, :])
        pm.Potential("rows", pt.logsumexp(pt.log(weights) + by_column.sum(axis=2), axis=1).sum())
    return model


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


def measure(sample):
    """Effective draws per second of sampling, with R-hat, of alpha and the base measure's parameters."""
    idata, seconds = sample()
    names = ["alpha", "mu", "b"]
    ess, r_hat = az.ess(idata, var_names=names), az.rhat(idata, var_names=names)
    found = {
        name: {
            "ess": float(ess[name].min()),
            "per_second": float(ess[name].min()) / seconds,
            "r_hat": float(r_hat[name].max()),
        }
        for name in names
    }
    means = {name: np.atleast_1d(idata.posterior[name].mean(["chain", "draw"])).tolist() for name in names}
    divergences = int(idata.sample_stats["diverging"].sum()) if "diverging" in idata.sample_stats else 0
    return {"seconds": seconds, "divergences": divergences, "of": found, "means": means}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="results")
    parser.add_argument("--sticks", type=int, default=20)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    results = {}
    for name, load in DATA.items():
        rows = load()
        ours, theirs = collapsed(rows), truncated(rows, arguments.sticks)
        given = arguments.draws, arguments.seed
        nuts = {"nuts_sampler": "pymc"}
        samplers = {
            "collapsed": partial(by_pymc, ours, *given),
            "collapsed, hyperparameters by NUTS": partial(
                by_pymc, ours, *given, dpmixture={"hyperparameters": "nuts"}
            ),
            "truncated, PyMC's NUTS": partial(by_pymc, theirs, *given, **nuts),
        }
        if importlib.util.find_spec("nutpie") is not None:
            samplers["truncated, nutpie"] = partial(by_nutpie, theirs, *given)
        for kind, sample in samplers.items():
            results[f"{name}, {kind}"] = measured = measure(sample)
            print(f"{name}, {kind}: {measured['seconds']:.1f} s, {measured['divergences']} divergences")
            for key, own in measured["of"].items():
                means = ", ".join(f"{mean:.3g}" for mean in measured["means"][key])
                print(
                    f"    {key:6s} ESS {own['ess']:6.0f}, {own['per_second']:7.2f} per second, R-hat {own['r_hat']:.3f}, "
                    f"mean {means}",
                    flush=True,
                )
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "truncated.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
