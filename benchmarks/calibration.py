"""Simulation-based calibration (Talts et al. 2018) of the default sampler inside larger models.

Usage: ``python benchmarks/calibration.py [FOLDER] [--replicates 300] [--models hyperpriors ...]``. Parameters, labels
and data are drawn from each model's prior; the model is fitted to the data with the steps that ``pm.sample`` assigns,
which are compiled once; and the ranks of the true values among the draws must be uniform. Prints a table and writes
``FOLDER/calibration.json`` and ``.png``.
"""

import argparse
import json
import logging
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pymc as pm
from pymc.step_methods import CompoundStep
from scipy.stats import chi2

import pymc_dpgmm as dp
from pymc_dpgmm.models.learnt_base import learnt_base

N_KEPT = 99
N_BINS = 20
# Draws of the prior among which true values have their quantiles.
N_PRIOR = 4_000
# Okabe and Ito's colours.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")


def given(observed, name):
    """Data that may be replaced, or None where a variable is to be drawn."""
    return None if observed is None else pm.Data(f"{name}_data", observed[name])


def hyperpriors(observed=None):
    """Alpha and all parameters of the base measure are random."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        mu = pm.Normal("mu", 0.0, 2.0)
        kappa = pm.Gamma("kappa", 2.0, 10.0)
        a = 1.0 + pm.Gamma("a", 4.0, 2.0)
        b = pm.Gamma("b", 4.0, 2.0)
        base = dp.NormalInverseGamma(mu, kappa, a, b)
        dp.DPMixture("y", alpha, base, observed=given(observed, "y"), shape=(30,))
    return model


def random_effects(observed=None):
    """Log rates of 15 groups with unequal numbers of counts have a mixture for their distribution."""
    group = np.repeat(np.arange(15), np.arange(15) % 4 + 1)
    with pm.Model() as model:
        alpha = pm.LogNormal("alpha", 0.0, 1.0)
        mu = pm.Normal("mu", 1.0, 0.5)
        effect = dp.DPMixture("effect", alpha, dp.NormalInverseGamma(mu, 0.3, 4.0, 0.6), shape=(15,))
        pm.Poisson("count", pm.math.exp(effect[group]), observed=given(observed, "count"))
    return model


def two_views(observed=None):
    """Reals and binary columns on the same labels; the base measure's mean and the concentration are random."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        mu = pm.Normal("mu", 0.0, 2.0)
        labels = dp.CRP("y_labels", alpha, 30)
        first = dp.NormalInverseGamma(mu, 0.2, 2.0, 1.0)
        dp.CollapsedMixture("y_a", labels, first, observed=given(observed, "y_a"), shape=(30,))
        # Binary rows cannot be latent: their prior draws come from a model in which they are observed.
        binary = np.zeros((30, 3)) if observed is None else given(observed, "y_b")
        dp.CollapsedMixture("y_b", labels, dp.BetaBernoulli(0.6, 0.6), observed=binary)
    return model


def any_likelihood(observed=None):
    """Log rates of 20 counts have a Dirichlet process for their prior, with a random mean and concentration."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        mu = pm.Normal("mu", 1.0, 0.7)
        theta = dp.DirichletProcess("theta", alpha, pm.Normal.dist(mu, 0.8), shape=20)
        pm.Poisson("count", pm.math.exp(theta), observed=given(observed, "count"))
    return model


def groups(observed=None):
    """Four groups of eight rows share clusters; both concentrations and the mean of the base measure are random."""
    with pm.Model() as model:
        alpha, gamma = pm.Gamma("alpha", 2.0, 1.0), pm.Gamma("gamma", 2.0, 1.0)
        mu = pm.Normal("mu", 0.0, 2.0)
        base = dp.NormalInverseGamma(mu, 0.2, 3.0, 2.0)
        group, data = np.repeat(np.arange(4), 8), given(observed, "y")
        dp.HDPMixture("y", alpha, gamma, base, group=group, observed=data, shape=None if observed else (32,))
    return model


def shared_effect(observed=None):
    """Twelve trials of two arms: latent logits, and an effect of the treatment that all trials share."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        mu = pm.Normal("mu", -1.0, 0.5)
        logit = dp.DPMixture("logit", alpha, dp.NormalInverseGamma(mu, 0.3, 4.0, 0.6), shape=12)
        treatment = pm.Normal("treatment", 0.0, 0.7)
        pm.Binomial("control", 20, logit_p=logit, observed=given(observed, "control"))
        pm.Binomial("treated", 20, logit_p=logit + treatment, observed=given(observed, "treated"))
    return model


def learnt_scale(observed=None, d=2):
    """25 rows of ``d`` columns, whose base measure has a learnt scale, with the variances of another table."""
    rows = np.random.default_rng(0).normal(size=(50, d))
    kind = dp.NormalInverseWishart if d > 1 else dp.NormalInverseGamma
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        base = learnt_base("y", kind.from_data(rows), rows, None)
        dp.DPMixture("y", alpha, base, observed=given(observed, "y"), shape=None if observed else (25, d))
    return model


def hidden_states(observed=None):
    """Two sequences of 15 rows of a hidden Markov model, whose concentrations and mean are random."""
    with pm.Model() as model:
        alpha, gamma = pm.Gamma("alpha", 2.0, 1.0), pm.Gamma("gamma", 2.0, 1.0)
        kappa, mu = pm.Gamma("kappa", 2.0, 0.5), pm.Normal("mu", 0.0, 2.0)
        base, sequence = dp.NormalInverseGamma(mu, 0.2, 3.0, 1.0), np.repeat([0, 1], 15)
        data = given(observed, "y")
        dp.HDPHMM(
            "y",
            alpha,
            gamma,
            base,
            kappa=kappa,
            sequence=sequence,
            observed=data,
            shape=None if observed else (30,),
        )
    return model


def change_points(observed=None):
    """Thirty rows in order that change at unknown places, with random probability of a change, and mean."""
    with pm.Model() as model:
        p, mu = pm.Beta("p", 2.0, 8.0), pm.Normal("mu", 0.0, 2.0)
        base = dp.NormalInverseGamma(mu, 0.2, 3.0, 1.0)
        dp.ChangePoints("y", p, base, observed=given(observed, "y"), shape=None if observed else (30,))
    return model


MODELS = {
    "hyperpriors": hyperpriors,
    "random_effects": random_effects,
    "two_views": two_views,
    "any_likelihood": any_likelihood,
    "groups": groups,
    "shared_effect": shared_effect,
    "learnt_scale": learnt_scale,
    "learnt_scale_of_one_column": partial(learnt_scale, d=1),
    "hidden_states": hidden_states,
    "change_points": change_points,
}


def quantities(point, labels_name, with_data):
    """Numbers of one draw whose ranks are taken: continuous variables, and functions of labels."""
    labels = np.asarray(point[labels_name])
    found = {}
    for name, value in point.items():
        if name.endswith("_openers"):
            found["n_tables"] = float(np.sum(value))
        elif name != labels_name:
            found[name] = float(np.ravel(value)[0])
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
            # All transforms here are logarithms, and those of probabilities.
            number = np.asarray(point[name])
            if transforms[name] is not None:
                is_logit = transforms[name] is pm.distributions.transforms.logodds
                number = np.log(number) - (np.log1p(-number) if is_logit else 0.0)
            given[value.name] = number.astype(value.dtype)
        return float(logp(given))

    return log_joint


def prior_draws(name, n, seed):
    """Draw everything from a model's prior, n times: a dict of arrays."""
    with MODELS[name]():
        drawn = pm.sample_prior_predictive(n, random_seed=seed)
    groups = [drawn.prior, *([drawn.prior_predictive] if "prior_predictive" in drawn.children else [])]
    return {key: value.values[0] for group in groups for key, value in group.data_vars.items()}


def one_chain(step, draws, tune, rng):
    """Sample the current model once, by steps that are made already and without anything printed."""
    return pm.sample(
        draws,
        tune=tune,
        step=step,
        chains=1,
        cores=1,
        random_seed=rng,
        progressbar=False,
        compute_convergence_checks=False,
    )


def assigned_steps(model):
    """Return the step that ``pm.sample`` would make, to be used again: PyMC compiles it anew for every sample."""
    # Looked up now: with its first variable in a model, the package puts its own in their place.
    mcmc = pm.sampling.mcmc
    steps = mcmc.instantiate_steppers(model, *mcmc.assign_step_methods(model))
    return CompoundStep(steps) if isinstance(steps, list) else steps


def replicates(name, n, seed, tune=400, thin=8, fitted=None):
    """Ranks of the true values among ``N_KEPT`` draws, by quantity, of ``n`` data sets.

    The model that is fitted is the one that the data is drawn from, unless another one is given.
    """
    truths = prior_draws(name, n, seed)
    model = (fitted or MODELS[name])({key: value[0] for key, value in truths.items()})
    data = [key.removesuffix("_data") for key in model.named_vars if key.endswith("_data")]
    free = [rv.name for rv in model.free_RVs]
    labels_name = next(key for key in free if key.endswith("_labels"))
    log_joint = log_joint_of(model)
    rng = np.random.default_rng(seed)
    with model:
        step = assigned_steps(model)
        fresh = step.sampling_state
        for index in range(n):
            truth = {key: value[index] for key, value in truths.items()}
            pm.set_data({f"{key}_data": truth[key] for key in data})
            step.sampling_state = fresh
            posterior = one_chain(step, N_KEPT * thin, tune, rng).posterior
            own = quantities({key: truth[key] for key in free}, labels_name, log_joint)
            draws = []
            for draw in range(thin - 1, N_KEPT * thin, thin):
                point = {key: posterior[key].values[0, draw] for key in free}
                draws.append(quantities(point, labels_name, log_joint))
            ranks = {}
            for key, value in own.items():
                others = np.array([draw[key] for draw in draws])
                # Ties, of numbers of clusters and indicators, are broken at random.
                ranks[key] = int(np.sum(others < value) + rng.integers(np.sum(others == value) + 1))
            yield ranks


def joined(found):
    """Lists of ranks, by quantity, of one dict of ranks per replicate."""
    found = list(found)
    return {key: [ranks[key] for ranks in found] for key in found[0]}


def quiet():
    """Let nothing but the table be printed: single replicates have warnings and settings of their own."""
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)


def parts_of(n_replicates, seed, processes):
    """Numbers of replicates of each process, and their seeds."""
    numbers = [len(part) for part in np.array_split(np.arange(n_replicates), processes)]
    return numbers, [1_000 * seed + part for part in range(processes)]


def run(name, n_replicates, seed=0, processes=1, **options):
    """Ranks of all replicates, by quantity."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=quiet) as pool:
        parts = pool.map(partial(_replicates, name, **options), *parts_of(n_replicates, seed, processes))
        return joined(ranks for part in parts for ranks in part)


def prior_quantiles(name, n_replicates, seed=0, processes=1):
    """Quantiles (n_replicates,) of the true values in the prior, by variables of the model."""
    drawn = [prior_draws(name, n, own) for n, own in zip(*parts_of(n_replicates, seed, processes), strict=True)]
    others, found = prior_draws(name, N_PRIOR, 987_654_321), {}
    for key, values in others.items():
        if not key.endswith(("_labels", "_openers", "_n_clusters")):
            first = np.sort(values.reshape(len(values), -1)[:, 0])
            truths = np.concatenate([part[key].reshape(len(part[key]), -1)[:, 0] for part in drawn])
            found[key] = np.searchsorted(first, truths) / len(first)
    return found


def less_explained(ranks, quantiles):
    """Mean rank less what the quantiles of the truths in the prior explain, which have the mean 1/2, and its error.

    Where data say little, the rank of the truth is about its quantile in the prior: what a mean rank owes to the
    truths that were drawn is no fault of the sampler (a control variate).
    """
    ranks, centred = np.asarray(ranks, dtype=float), np.asarray(quantiles) - 0.5
    slope = np.cov(centred, ranks)[0, 1] / centred.var(ddof=1)
    left = ranks - slope * centred
    # The quantiles are those among draws of the prior, whose mean has an error too.
    return left.mean(), np.sqrt(left.var(ddof=2) / len(left) + slope**2 / 12.0 / N_PRIOR)


def _replicates(*arguments, **options):
    return list(replicates(*arguments, **options))


def p_value(ranks, n_bins=N_BINS, n_ranks=N_KEPT + 1):
    """Chi-square test that ranks 0..n_ranks - 1 are uniform."""
    counts = np.bincount(np.asarray(ranks) * n_bins // n_ranks, minlength=n_bins)
    expected = len(ranks) / n_bins
    return float(chi2.sf(np.sum((counts - expected) ** 2) / expected, n_bins - 1))


def plot(results, path):
    """Empirical distribution functions of the ranks less the uniform one, with 99 % bands for each point."""
    import matplotlib.pyplot as plt
    from scipy.stats import binom

    figure, axes = plt.subplots(1, len(results), figsize=(4.2 * len(results), 4.2), sharey=True, squeeze=False)
    for ax, (name, ranks) in zip(axes[0], results.items(), strict=True):
        n = len(next(iter(ranks.values())))
        grid = np.arange(1, N_KEPT + 1) / (N_KEPT + 1)
        low, high = (binom.ppf(q, n, grid) / n - grid for q in (0.005, 0.995))
        ax.fill_between(grid, low, high, color="0.88", label="99 %, each point")
        for (key, own), colour in zip(ranks.items(), COLOURS, strict=False):
            below = np.searchsorted(np.sort(own), np.arange(1, N_KEPT + 1), side="left") / n
            ax.plot(grid, below - grid, label=key.replace("_", " "), color=colour, linewidth=1)
        ax.set_title(f"{name.replace('_', ' ')}, {n} replicates", fontsize=10)
        ax.set_xlabel("rank of the truth / 100")
        ax.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False)
    axes[0, 0].set_ylabel("distribution function less uniform")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="results")
    parser.add_argument("--replicates", type=int, default=300)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    quiet()
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in arguments.models:
        started = time.perf_counter()
        results[name] = run(name, arguments.replicates, arguments.seed, arguments.processes)
        explained = prior_quantiles(name, arguments.replicates, arguments.seed, arguments.processes)
        minutes = (time.perf_counter() - started) / 60
        print(f"{name}: {arguments.replicates} replicates, {minutes:.1f} minutes")
        for key, ranks in results[name].items():
            line = f"    {key:12s} mean rank {np.mean(ranks):5.1f} of {N_KEPT / 2}, p = {p_value(ranks):.3f}"
            if key in explained:
                left, error = less_explained(ranks, explained[key])
                line += f", less what truths explain {left:5.1f} ({error:.1f})"
            print(line, flush=True)
        (folder / "calibration.json").write_text(json.dumps(results))
    plot(results, folder / "calibration.png")


if __name__ == "__main__":
    main()
