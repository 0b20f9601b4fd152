"""Calibration of a latent mixture of pairs: does its posterior have as many clusters as it should?

Usage: ``python benchmarks/latent_calibration.py [FOLDER] [--replicates 500] [--processes 2]``. Six rows of two latent
effects have a Pitman-Yor mixture with a random offset for their distribution, and Poisson counts are the data. Three
comparisons are printed, and written to ``FOLDER/latent_calibration.json``:

- draws of the whole model by a simulator that shares no code with the package, and by ``pm.sample_prior_predictive``;
- ranks of the true values among draws of the steps that ``pm.sample`` assigns (Talts et al. 2018);
- the mean number of clusters in these draws, and, for four rows, in long runs, beside the exact posterior: a sum over
  all partitions, with latent effects integrated out by simulation.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pymc as pm
from arviz_stats.base import array_stats
from calibration import assigned_steps, one_chain, p_value, quiet
from scipy.special import gammaln, logsumexp, roots_genlaguerre, roots_jacobi
from scipy.stats import chi2_contingency, invwishart, ks_2samp

import pymc_dpgmm as dp

N_ROWS = 6
MU, KAPPA, NU, PSI = np.array([0.3, 0.6]), 0.3, 5.0, np.array([[0.6, 0.2], [0.2, 0.4]])
OFFSET_SCALE = 0.5
ALPHA_SHAPE, ALPHA_RATE = 2.0, 2.0
DISCOUNT_A, DISCOUNT_B = 2.0, 4.0
# Draws of one replicate, and how they are thinned for ranks. Chains are short: see docs/exactness.md.
TUNE, N_DRAWS, THIN = 150, 190, 10
LOW_ESS = 20


def latent(counts):
    """Return the model; its counts may be replaced."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", ALPHA_SHAPE, ALPHA_RATE)
        discount = pm.Beta("discount", DISCOUNT_A, DISCOUNT_B)
        offset = pm.Normal("offset", 0.0, OFFSET_SCALE, shape=2)
        base = dp.NormalInverseWishart(MU, KAPPA, NU, PSI)
        effect = dp.PYMixture("effect", alpha, discount, base, shape=counts.shape, offset=offset[None, :])
        pm.Poisson("count", pm.math.exp(effect), observed=pm.Data("count_data", counts))
    return model


def seated(rng, n, alpha, discount):
    """Seat n rows one by one: the k-th table with probability proportional to its rows less the discount."""
    labels = np.zeros(n, dtype=int)
    for i in range(1, n):
        sizes = np.bincount(labels[:i])
        weights = np.append(sizes - discount, alpha + discount * len(sizes))
        labels[i] = rng.choice(len(weights), p=weights / weights.sum())
    return labels


def prior_draw(rng, n):
    """Draw everything from the prior with NumPy and SciPy alone."""
    alpha, discount = rng.gamma(ALPHA_SHAPE) / ALPHA_RATE, rng.beta(DISCOUNT_A, DISCOUNT_B)
    labels = seated(rng, n, alpha, discount)
    offset = OFFSET_SCALE * rng.normal(size=2)
    effect = np.empty((n, 2))
    for k in range(labels.max() + 1):
        rows = labels == k
        covariance = invwishart(NU, PSI).rvs(random_state=rng)
        mean = rng.multivariate_normal(MU, covariance / KAPPA)
        effect[rows] = offset + rng.multivariate_normal(mean, covariance, size=rows.sum())
    drawn = {"alpha": alpha, "discount": discount, "offset": offset, "effect": effect, "effect_labels": labels}
    return drawn, rng.poisson(np.exp(np.minimum(effect, 30.0)))


def quantities(drawn, counts):
    """Numbers of one draw, or arrays of those of many, whose ranks are taken."""
    labels, effect = np.asarray(drawn["effect_labels"]), np.asarray(drawn["effect"])
    found = {"n_clusters": labels.max(axis=-1) + 1.0, "together": 1.0 * (labels[..., 0] == labels[..., 1])}
    largest = [np.bincount(row).max() for row in labels.reshape(-1, labels.shape[-1])]
    found["largest"] = np.reshape(np.array(largest, dtype=float), labels.shape[:-1])
    found |= {name: np.asarray(drawn[name]) for name in ("alpha", "discount")}
    found |= {f"offset_{j}": np.asarray(drawn["offset"])[..., j] for j in range(2)}
    found |= {f"effect_{i}{j}": effect[..., i, j] for i in range(labels.shape[-1]) for j in range(2)}
    found["log_likelihood"] = np.sum(counts * effect - np.exp(effect), axis=(-2, -1))
    return found


def compared_priors(n_draws=20_000, seed=0):
    """Return p-values of tests that hand-made prior draws and those of PyMC have one distribution."""
    rng = np.random.default_rng(seed)
    own = [quantities(*prior_draw(rng, N_ROWS)) for _ in range(n_draws)]
    with latent(np.zeros((N_ROWS, 2), dtype=int)):
        drawn = pm.sample_prior_predictive(n_draws, random_seed=seed)
    values = {name: drawn.prior[name].values[0] for name in drawn.prior.data_vars}
    theirs = quantities(values, drawn.prior_predictive["count"].values[0])
    found = {}
    for key, value in theirs.items():
        mine = np.array([one[key] for one in own])
        if key in ("n_clusters", "together", "largest"):
            table = [np.bincount(numbers.astype(int), minlength=N_ROWS + 1) for numbers in (mine, value)]
            found[key] = float(chi2_contingency(np.array(table)[:, np.sum(table, axis=0) > 0])[1])
        else:
            found[key] = float(ks_2samp(mine, value).pvalue)
    return found


def replicates(n, seed):
    """Fit n data sets from the prior, with steps that are compiled once: one dict of findings for each."""
    quiet()
    rng = np.random.default_rng(seed)
    model = latent(np.zeros((N_ROWS, 2), dtype=int))
    with model:
        step = assigned_steps(model)
        fresh = step.sampling_state
        for _ in range(n):
            drawn, counts = prior_draw(rng, N_ROWS)
            pm.set_data({"count_data": counts})
            step.sampling_state = fresh
            trace = one_chain(step, N_DRAWS, TUNE, rng)
            names = ("alpha", "discount", "offset", "effect", "effect_labels")
            draws = quantities({name: trace.posterior[name].values[0] for name in names}, counts)
            found = {
                "counts": counts.tolist(),
                "diverging": int(trace.sample_stats["diverging"].sum())
                if "diverging" in trace.sample_stats
                else 0,
                "rank": {},
                "share_below": {},
                "ess": {},
                "mean": {},
            }
            for key, truth in quantities(drawn, counts).items():
                own = np.asarray(draws[key], dtype=float)
                thinned = own[THIN - 1 :: THIN]
                ties = np.sum(thinned == truth)
                found["rank"][key] = int(np.sum(thinned < truth) + rng.integers(ties + 1))
                # Its mean is one half whatever the draws' correlation is; ties count half.
                found["share_below"][key] = float(np.mean(own < truth) + 0.5 * np.mean(own == truth))
                constant = np.all(own == own[0])
                found["ess"][key] = N_DRAWS if constant else float(array_stats.ess(own[None, :], method="mean"))
                found["mean"][key] = float(own.mean())
            yield found


def _written(n, seed, folder):
    """Append what is found to a file as it comes."""
    with (folder / f"latent_replicates_{seed}.jsonl").open("w") as lines:
        for found in replicates(n, seed):
            lines.write(json.dumps(found) + "\n")
            lines.flush()


def ranks_table(found):
    """Z of the mean, and chi-square p-value of the ranks, by quantity."""
    table = {}
    for key in found[0]["rank"]:
        below = np.array([one["share_below"][key] for one in found])
        ess = np.array([one["ess"][key] for one in found])
        table[key] = {
            "z": float((below.mean() - 0.5) / (below.std(ddof=1) / np.sqrt(len(below)))),
            "p": p_value([one["rank"][key] for one in found], n_bins=10, n_ranks=N_DRAWS // THIN + 1),
            "median_ess": float(np.median(ess)),
            "low_ess": int(np.sum(ess < LOW_ESS)),
        }
    return table


def partitions(n):
    """Return all partitions of n rows, as labels in order of appearance."""
    found = [[0]]
    for _ in range(n - 1):
        found = [[*labels, k] for labels in found for k in range(max(labels) + 2)]
    return np.array(found)


@cache
def prior_probability(shape):
    """Return the prior probability of one partition into clusters of these sizes, over alpha and the discount."""
    alphas, alpha_weights = roots_genlaguerre(60, ALPHA_SHAPE - 1.0)
    nodes, discount_weights = roots_jacobi(60, DISCOUNT_B - 1.0, DISCOUNT_A - 1.0)
    alpha, discount = np.meshgrid(alphas / ALPHA_RATE, (1.0 + nodes) / 2.0, indexing="ij")
    weights = np.outer(alpha_weights / alpha_weights.sum(), discount_weights / discount_weights.sum())
    n, founded = sum(shape), np.arange(1, len(shape))[:, None, None]
    log_p = np.log(alpha + founded * discount).sum(axis=0) - gammaln(alpha + n) + gammaln(alpha + 1.0)
    for size in shape:
        log_p = log_p + gammaln(size - discount) - gammaln(1.0 - discount)
    return float(np.sum(weights * np.exp(log_p)))


def inverse_wishart_factors(rng, n_draws):
    """Draw F, (n_draws, 2, 2), with F F' inverse-Wishart: Bartlett's decomposition of its inverse, inverted."""
    bartlett = np.zeros((n_draws, 2, 2))
    for j in range(2):
        bartlett[:, j, j] = np.sqrt(rng.chisquare(NU - j, size=n_draws))
    bartlett[:, 1, 0] = rng.normal(size=n_draws)
    return np.linalg.cholesky(PSI) @ np.linalg.inv(bartlett).transpose(0, 2, 1)


def effects(rng, shape, n_draws):
    """Draw effects, (n_draws, n, 2), of rows in clusters of these sizes, one cluster after the other."""
    offset = OFFSET_SCALE * rng.normal(size=(n_draws, 1, 2))
    found = []
    for size in shape:
        factor = inverse_wishart_factors(rng, n_draws)
        around = rng.normal(size=(n_draws, size, 2)) + rng.normal(size=(n_draws, 1, 2)) / np.sqrt(KAPPA)
        found.append(MU + offset + np.einsum("nij,nkj->nki", factor, around))
    return np.concatenate(found, axis=1)


def exact_n_clusters(counts, n_draws=50_000, n_batches=10, seed=0):
    """Return the posterior mean of the number of clusters, and its standard error, of every data set.

    The sum goes over all partitions. The density of counts given a partition is the mean of the Poisson density over
    draws of the latent effects from their prior given the partition; batches of them tell the error.

    Parameters
    ----------
    counts : (m, n, 2) int array
        Data sets.

    Returns
    -------
    means, errors : (m,) arrays
    """
    counts = np.asarray(counts)
    m, n, _ = counts.shape
    rng = np.random.default_rng(seed)
    # Partitions of the same sizes have the same effects, but for the order of the rows.
    by_shape = {}
    for labels in partitions(n):
        sizes = np.bincount(labels)
        clusters = np.argsort(-sizes, kind="stable")
        rows = np.concatenate([np.flatnonzero(labels == k) for k in clusters])
        by_shape.setdefault(tuple(sizes[clusters].tolist()), []).append(rows)
    log_density = np.full((n_batches, n + 1, m), -np.inf)
    for batch in range(n_batches):
        for shape, orders in by_shape.items():
            drawn = effects(rng, shape, n_draws // n_batches).reshape(-1, 2 * n)
            total = np.exp(drawn).sum(axis=1)
            for order in orders:
                log_likelihood = drawn @ counts[:, order].reshape(m, 2 * n).T - total[:, None]
                own = logsumexp(log_likelihood, axis=0) - np.log(len(drawn)) + np.log(prior_probability(shape))
                k = len(shape)
                log_density[batch, k] = np.logaddexp(log_density[batch, k], own)

    def mean(log_weights):
        weights = np.exp(log_weights - log_weights.max(axis=0))
        return np.arange(n + 1) @ weights / weights.sum(axis=0)

    # The jackknife over batches, for the mean and its error.
    full = mean(logsumexp(log_density, axis=0))
    without = np.array([mean(logsumexp(np.delete(log_density, b, axis=0), axis=0)) for b in range(n_batches)])
    spread = (n_batches - 1) / n_batches * np.sum((without - without.mean(axis=0)) ** 2, axis=0)
    return n_batches * full - (n_batches - 1) * without.mean(axis=0), np.sqrt(spread)


def against_enumeration(found, most=6, part=16, n_draws=100_000):
    """Compare the mean number of clusters in the draws of replicates with the exact one.

    Data sets with larger counts than ``most`` are left out: few draws of the prior come near them. They are chosen by
    their counts and not by the error of the exact mean, which tells of the weights that were drawn. Those of one part
    share their draws.
    """
    chosen = [one for one in found if np.max(one["counts"]) <= most]
    parts = [chosen[i : i + part] for i in range(0, len(chosen), part)]
    computed = [
        exact_n_clusters([one["counts"] for one in own], n_draws, seed=seed) for seed, own in enumerate(parts)
    ]
    exact, error = (np.concatenate(arrays) for arrays in zip(*computed, strict=True))
    sampled = np.array([one["mean"]["n_clusters"] for one in chosen])
    difference = sampled - exact
    return {
        "data_sets": len(chosen),
        "mean_exact": float(exact.mean()),
        "mean_sampled": float(sampled.mean()),
        "difference": float(difference.mean()),
        "error": float(difference.std(ddof=1) / np.sqrt(len(difference))),
        "largest_error_of_one": float(error.max()),
    }


def four_rows(n_sets=4, n_draws=5_000, tune=500, seed=0):
    """Compare long runs, at four rows, with the exact mean number of clusters."""
    rng = np.random.default_rng(seed)
    counts = np.array([prior_draw(rng, 4)[1] for _ in range(n_sets)])
    exact, error = exact_n_clusters(counts, n_draws=1_000_000, n_batches=20)
    found = []
    with latent(counts[0]):
        step = assigned_steps(pm.modelcontext(None))
        fresh = step.sampling_state
        for index in range(n_sets):
            pm.set_data({"count_data": counts[index]})
            step.sampling_state = fresh
            trace = one_chain(step, n_draws, tune, rng)
            k = trace.posterior["effect_n_clusters"].values.astype(float)
            mcse = k.std() / np.sqrt(array_stats.ess(k, method="mean"))
            found.append(
                {
                    "counts": counts[index].tolist(),
                    "exact": float(exact[index]),
                    "error": float(error[index]),
                    "sampled": float(k.mean()),
                    "mcse": float(mcse),
                    "z": float((k.mean() - exact[index]) / np.hypot(mcse, error[index])),
                }
            )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default="results")
    parser.add_argument("--replicates", type=int, default=500)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=("prior", "ranks", "six", "four"), default=None)
    arguments = parser.parse_args()
    parts = arguments.parts or ["prior", "ranks", "six", "four"]
    quiet()
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "latent_calibration.json"
    results = json.loads(report.read_text()) if report.exists() else {}
    if "prior" in parts:
        results["prior"] = compared_priors(seed=arguments.seed)
        print("prior draws by hand and by PyMC, p-values of equality:")
        print("    " + ", ".join(f"{key} {p:.2f}" for key, p in results["prior"].items()))
    if "ranks" in parts:
        started = time.perf_counter()
        numbers = [len(part) for part in np.array_split(np.arange(arguments.replicates), arguments.processes)]
        seeds = [1_000 * arguments.seed + part for part in range(arguments.processes)]
        for old in folder.glob("latent_replicates_*.jsonl"):
            old.unlink()
        with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(_written, folder=folder), numbers, seeds))
        print(f"{arguments.replicates} replicates in {(time.perf_counter() - started) / 60:.1f} minutes")
    lines = [line for path in sorted(folder.glob("latent_replicates_*.jsonl")) for line in path.open()]
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    if "ranks" in parts or ("six" in parts and found):
        results["n_replicates"], results["ranks"] = len(found), ranks_table(found)
        diverging = sum(one["diverging"] > 0 for one in found)
        print(f"ranks of the truth in {len(found)} replicates, {diverging} of them with divergences:")
        for key, row in results["ranks"].items():
            print(
                f"    {key:15s} z = {row['z']:5.2f}, p = {row['p']:.3f}, median ESS {row['median_ess']:.0f}, "
                f"below {LOW_ESS} in {row['low_ess']}"
            )
    if "six" in parts:
        results["six_rows"] = against_enumeration(found)
        print("six rows, mean number of clusters in replicates and by enumeration:", results["six_rows"])
    if "four" in parts:
        results["four_rows"] = four_rows(seed=arguments.seed)
        print("four rows, long runs and enumeration:")
        for row in results["four_rows"]:
            print(
                f"    sampled {row['sampled']:.4f} ({row['mcse']:.4f}), exact {row['exact']:.4f} "
                f"({row['error']:.4f}), z = {row['z']:.2f}"
            )
    report.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
