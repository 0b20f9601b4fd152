"""Simulation-based calibration (Talts et al. 2018) of the default sampler inside larger models.

Usage: ``python benchmarks/calibration.py [FOLDER] [--replicates 300] [--models hyperpriors ...]``. Parameters, labels
and data are drawn from each model's prior; the model is fitted to the data by ``pm.sample`` as it is; and the ranks of
the true values among the draws must be uniform. Prints a table and writes ``FOLDER/calibration.json`` and ``.png``.
"""

import argparse
import json
import logging
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
from scipy.stats import chi2

import pymc_dpgmm as dp

N_KEPT = 99
N_BINS = 20


def hyperpriors(observed=None):
    """Alpha and all parameters of the base measure are random."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        mu = pm.Normal("mu", 0.0, 2.0)
        kappa = pm.Gamma("kappa", 2.0, 10.0)
        a = 1.0 + pm.Gamma("a", 4.0, 2.0)
        b = pm.Gamma("b", 4.0, 2.0)
        base = dp.NormalInverseGamma(mu, kappa, a, b)
        data = None if observed is None else observed["y"]
        dp.DPMixture("y", alpha, base, observed=data, shape=(30,))
    return model


def random_effects(observed=None):
    """Log rates of 15 groups with unequal numbers of counts have a mixture for their distribution."""
    group = np.repeat(np.arange(15), np.arange(15) % 4 + 1)
    with pm.Model() as model:
        alpha = pm.LogNormal("alpha", 0.0, 1.0)
        mu = pm.Normal("mu", 1.0, 0.5)
        effect = dp.DPMixture("effect", alpha, dp.NormalInverseGamma(mu, 0.3, 4.0, 0.6), shape=(15,))
        pm.Poisson("count", pm.math.exp(effect[group]), observed=None if observed is None else observed["count"])
    return model


def two_views(observed=None):
    """Reals and binary columns on the same labels; the base measure's mean and the concentration are random."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        mu = pm.Normal("mu", 0.0, 2.0)
        labels = dp.CRP("y_labels", alpha, 30)
        given = {} if observed is None else observed
        first = dp.NormalInverseGamma(mu, 0.2, 2.0, 1.0)
        dp.CollapsedMixture("y_a", labels, first, observed=given.get("y_a"), shape=(30,))
        # Binary rows cannot be latent: their prior draws come from a model in which they are observed.
        binary = np.zeros((30, 3)) if observed is None else given["y_b"]
        dp.CollapsedMixture("y_b", labels, dp.BetaBernoulli(0.6, 0.6), observed=binary)
    return model


MODELS = {"hyperpriors": hyperpriors, "random_effects": random_effects, "two_views": two_views}


def quantities(model, point, labels_name, with_data):
    """Numbers of one draw whose ranks are taken: continuous variables, and functions of labels."""
    labels = np.asarray(point[labels_name])
    found = {name: float(np.ravel(value)[0]) for name, value in point.items() if name != labels_name}
    found["n_clusters"] = len(np.unique(labels))
    found["together"] = float(labels[0] == labels[1])
    found["log_joint"] = with_data(point)
    return found


def log_joint_of(model):
    """Log density of everything, as a function of a draw in the space of the model's variables."""
    logp = model.compile_logp(jacobian=False)
    values = {rv.name: model.rvs_to_values[rv] for rv in model.free_RVs}
    transforms = {rv.name: model.rvs_to_transforms[rv] for rv in model.free_RVs}

    def log_joint(point):
        given = {}
        for name, value in values.items():
            # All transforms here are logarithms.
            number = np.asarray(point[name])
            given[value.name] = np.log(number) if transforms[name] is not None else number.astype(value.dtype)
        return float(logp(given))

    return log_joint


def replicate(name, seed, tune=400, thin=8):
    """Ranks of the true values among ``N_KEPT`` draws, by quantity."""
    build = MODELS[name]
    prior = build()
    with prior:
        drawn = pm.sample_prior_predictive(1, random_seed=seed)
    truth = {key: value.values[0, 0] for key, value in drawn.prior.data_vars.items()}
    observed = {}
    if "prior_predictive" in drawn.children:
        observed = {key: value.values[0, 0] for key, value in drawn.prior_predictive.data_vars.items()}
    observed |= {key: truth[key] for key in ("y", "y_a", "count") if key in truth}
    model = build(observed)
    free = [rv.name for rv in model.free_RVs]
    labels_name = next(key for key in free if key.endswith("_labels"))
    with model:
        posterior = pm.sample(
            N_KEPT * thin,
            tune=tune,
            chains=1,
            cores=1,
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
        ).posterior
    log_joint = log_joint_of(model)
    own = quantities(model, {key: truth[key] for key in free}, labels_name, log_joint)
    draws = []
    for draw in range(thin - 1, N_KEPT * thin, thin):
        point = {key: posterior[key].values[0, draw] for key in free}
        draws.append(quantities(model, point, labels_name, log_joint))
    rng = np.random.default_rng(seed)
    ranks = {}
    for key, value in own.items():
        others = np.array([draw[key] for draw in draws])
        # Ties, of numbers of clusters and indicators, are broken at random.
        ranks[key] = int(np.sum(others < value) + rng.integers(np.sum(others == value) + 1))
    return ranks


def p_value(ranks, n_bins=N_BINS, n_ranks=N_KEPT + 1):
    """Chi-square test that ranks 0..n_ranks - 1 are uniform."""
    counts = np.bincount(np.asarray(ranks) * n_bins // n_ranks, minlength=n_bins)
    expected = len(ranks) / n_bins
    return float(chi2.sf(np.sum((counts - expected) ** 2) / expected, n_bins - 1))


def run(name, n_replicates, seed=0, **options):
    """Ranks of all replicates, by quantity."""
    found = {}
    for index in range(n_replicates):
        for key, rank in replicate(name, 10_000 * seed + index, **options).items():
            found.setdefault(key, []).append(rank)
    return found


def plot(results, path):
    """Empirical distribution functions of the ranks less the uniform one, with 99 % bands for each point."""
    import matplotlib.pyplot as plt
    from scipy.stats import binom

    figure, axes = plt.subplots(1, len(results), figsize=(4.6 * len(results), 3.6), sharey=True, squeeze=False)
    for ax, (name, ranks) in zip(axes[0], results.items(), strict=True):
        n = len(next(iter(ranks.values())))
        grid = np.arange(1, N_KEPT + 1) / (N_KEPT + 1)
        low, high = (binom.ppf(q, n, grid) / n - grid for q in (0.005, 0.995))
        ax.fill_between(grid, low, high, color="0.88", label="99 %, each point")
        for key, own in ranks.items():
            below = np.searchsorted(np.sort(own), np.arange(1, N_KEPT + 1), side="left") / n
            ax.plot(grid, below - grid, label=key, linewidth=1)
        ax.set_title(f"{name.replace('_', ' ')}, {n} replicates", fontsize=10)
        ax.set_xlabel("rank of the truth / 100")
        ax.legend(fontsize=7, ncols=2)
    axes[0, 0].set_ylabel("distribution function less uniform")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="results")
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in arguments.models:
        started = time.perf_counter()
        results[name] = run(name, arguments.replicates)
        minutes = (time.perf_counter() - started) / 60
        print(f"{name}: {arguments.replicates} replicates, {minutes:.1f} minutes")
        for key, ranks in results[name].items():
            print(f"    {key:12s} mean rank {np.mean(ranks):5.1f} of {N_KEPT / 2}, p = {p_value(ranks):.3f}")
    (folder / "calibration.json").write_text(json.dumps(results))
    plot(results, folder / "calibration.png")


if __name__ == "__main__":
    main()
