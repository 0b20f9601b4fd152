"""A Dirichlet process as the prior of rows' parameters, beside the same model truncated and sampled by NUTS.

Usage: ``python benchmarks/any_likelihood.py [FOLDER] [--sticks 20] [--draws 2000]``. Three data sets, the same priors,
``pm.sample`` as it is for both, one core. The numbers that are compared mean the same in both models: the concentration,
and the density of a new row at three points given the process. Prints a table of the least effective draws per second
of sampling, compilation apart, and writes ``FOLDER/any_likelihood.json``.
"""

import argparse
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
from scipy import stats

import pymc_dpgmm as dp

# Shape of the Weibull clusters.
SHAPE = 1.2


def old_faithful():
    """Student-t clusters of the durations."""
    y = dp.datasets.load_old_faithful()["duration"].to_numpy()
    # Durations repeat: a scale with a density above zero at zero would have no proper posterior.
    bases = {"loc": partial(pm.Normal.dist, 3.5, 2.0), "scale": partial(pm.LogNormal.dist, -1.0, 0.7)}

    def density(values, loc, scale):
        return pm.logp(pm.StudentT.dist(nu=4, mu=loc, sigma=scale), values)

    def numbers(x, loc, scale):
        return stats.t.logpdf(x, 4, loc, scale)

    return y, bases, density, numbers, [1.8, 3.0, 4.4]


def sunspots():
    """Counts of sunspots with log-normal means."""
    y = np.round(dp.datasets.load_sunspots().to_numpy()).astype(int)

    def density(values, rate):
        return pm.logp(pm.Poisson.dist(rate), values)

    def numbers(x, rate):
        return stats.poisson.logpmf(x, rate)

    return y, {"rate": partial(pm.LogNormal.dist, 3.5, 1.2)}, density, numbers, [5, 40, 120]


def survival():
    """Censored survival after heart transplants: Weibull clusters."""
    patients = dp.datasets.load_heart_transplants()
    y, died = patients["days"].to_numpy(dtype=float), patients["died"].to_numpy(dtype=float)

    def density(values, log_scale):
        # PyMC's censored Weibull loses its gradient where survival is next to impossible; NUTS would not start.
        log_time = np.log(values) - log_scale
        return died.reshape(values.shape) * (np.log(SHAPE) + SHAPE * log_time - np.log(values)) - pt.exp(
            SHAPE * log_time
        )

    def numbers(x, log_scale):
        return stats.weibull_min.logpdf(x, SHAPE, scale=np.exp(log_scale))

    return y, {"log_scale": partial(pm.Normal.dist, 5.5, 2.0)}, density, numbers, [20.0, 200.0, 1000.0]


CASES = {
    "Old Faithful, Student t": old_faithful,
    "sunspots, Poisson": sunspots,
    "heart transplants, censored": survival,
}


def process(y, bases, density):
    """The process of this package."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 2.0)
        theta = dp.DirichletProcess("theta", alpha, {key: base() for key, base in bases.items()}, shape=len(y))
        pm.Potential("y", density(y, **theta).sum())
    return model


def truncated(y, bases, density, n_sticks):
    """The same with finitely many sticks, the labels summed out."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 2.0)
        weights = pm.StickBreakingWeights("weights", alpha, n_sticks - 1)
        theta = {key: model.register_rv(base(shape=n_sticks), f"theta_{key}") for key, base in bases.items()}
        # One column for each stick.
        rows = density(y[:, None], **theta)
        pm.Potential("y", pt.logsumexp(pt.log(weights) + rows, axis=1).sum())
    return model


def densities_of_process(idata, bases, numbers, points, rng):
    """The density of a new row at points given the process, by draws of the weights."""
    posterior = idata.posterior
    keys = list(bases)
    labels = posterior["theta_labels"].to_numpy()
    alpha = posterior["alpha"].to_numpy()
    atoms = {key: posterior[f"theta_{key}"].to_numpy() for key in keys}
    fresh = [np.asarray(pm.draw(bases[key](), 256, random_seed=int(rng.integers(2**31)))) for key in keys]
    found = np.empty((*labels.shape[:2], len(points)))
    for chain, draw in np.ndindex(*labels.shape[:2]):
        _, first, sizes = np.unique(labels[chain, draw], return_index=True, return_counts=True)
        weights = rng.dirichlet(np.append(sizes, alpha[chain, draw]))
        own = [atoms[key][chain, draw][first] for key in keys]
        for i, x in enumerate(points):
            inside = weights[:-1] @ np.exp(numbers(x, *own))
            # Clusters without rows: their atoms are draws from the base, with weights of their own.
            sticks = rng.beta(1.0, alpha[chain, draw], 256)
            rest = np.cumprod(np.append(1.0, 1.0 - sticks[:-1])) * sticks
            found[chain, draw, i] = inside + weights[-1] * rest @ np.exp(numbers(x, *fresh))
    return found


def densities_of_truncated(idata, bases, numbers, points):
    """The same of the truncated model."""
    posterior = idata.posterior
    weights = posterior["weights"].to_numpy()
    atoms = [posterior[f"theta_{key}"].to_numpy() for key in bases]
    return np.stack([(weights * np.exp(numbers(x, *atoms))).sum(axis=-1) for x in points], axis=-1)


def measure(model, densities, draws, tune, seed):
    """Least effective draws of alpha and densities, seconds of sampling, means, and the largest R-hat."""
    started = time.perf_counter()
    with model:
        pm.sample(
            5, tune=5, chains=1, cores=1, random_seed=seed, progressbar=False, compute_convergence_checks=False
        )
    compiled = time.perf_counter() - started
    with model:
        idata = pm.sample(
            draws,
            tune=tune,
            chains=4,
            cores=1,
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
        )
    seconds = float(idata.posterior.attrs["sampling_time"])
    found = densities(idata)
    values = [idata.posterior["alpha"].to_numpy(), *np.moveaxis(found, -1, 0)]
    effective = [float(az.ess(own)) for own in values]
    return {
        "effective": min(effective),
        "each": effective,
        "seconds": seconds,
        "first": compiled,
        "per_second": min(effective) / seconds,
        "r_hat": max(float(az.rhat(own)) for own in values),
        "means": [float(own.mean()) for own in values],
    }


def main():
    """Measure all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="results")
    parser.add_argument("--sticks", type=int, default=20)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    rows = {}
    for name, case in CASES.items():
        if arguments.only not in name:
            continue
        y, bases, density, numbers, points = case()
        rng = np.random.default_rng(1)
        ours = measure(
            process(y, bases, density),
            lambda idata: densities_of_process(idata, bases, numbers, points, rng),  # noqa: B023
            arguments.draws,
            1000,
            1,
        )
        print(name, "process", json.dumps(ours), flush=True)
        theirs = measure(
            truncated(y, bases, density, arguments.sticks),
            lambda idata: densities_of_truncated(idata, bases, numbers, points),  # noqa: B023
            arguments.draws // 2,
            1000,
            1,
        )
        print(name, "truncated", json.dumps(theirs), flush=True)
        rows[name] = {"process": ours, "truncated": theirs, "ratio": ours["per_second"] / theirs["per_second"]}
        print(f"{name:30s} {ours['per_second']:8.1f} {theirs['per_second']:8.1f} {rows[name]['ratio']:8.1f} x")
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "any_likelihood.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
