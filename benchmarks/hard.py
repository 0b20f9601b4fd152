"""Posteriors on which chains do not meet: four chains from two kinds of starts, beside the clock.

    python benchmarks/hard.py results --minutes 10
    python benchmarks/hard.py results --tables "digits, 20" "500 documents" --minutes 3 --cores 2
    python benchmarks/hard.py results --tables "digits, 20" --draws 1000 --alone --seed 100
    python benchmarks/hard.py results --mnist mnist_test_pca50.npz --tables "MNIST, 50"

For each table, two chains begin with all rows in one cluster, and two with rows thrown into many clusters. Each runs
in a process of its own for some minutes, of which the first half is tuning, for ``--tune`` draws at most, or, with
``--draws``, for these and some more. Printed are, at several times: the spread of the chains, which is the largest
less the smallest of their means of the log joint density over the last fifth of what they have drawn by then. At the
end: these means; the seconds of tuning; R-hat of the log joint density, of the entropy of the clusters' sizes and of
their number, over the second half of the draws after tuning; and effective draws per second of all chains together.
With fewer cores than chains these take turns, and times are those of each chain. As in ``pm.sample``, a chain whose
search ends far below another one's begins anew at the clusters of that, unless they run ``--alone``. Writes
``hard.json``, and ``hard.png`` with the log joint density of all chains beside the clock, as in figure 5 of Chang and
Fisher (2013), into the folder.
"""

import argparse
import json
import logging
import multiprocessing
import os
import tempfile
import time
import warnings
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm

import pymc_dpgmm as dp
from pymc_dpgmm.sampler.tuning.exchange import Exchange

# Starts of the four chains: numbers of clusters.
STARTS = (1, 1, 50, 50)
# A chain searches for this share of its time at most.
SEARCH_SHARE = 0.4


def principal(rows, n):
    """Scores on the first principal components."""
    centred = rows - rows.mean(axis=0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][:n].T


def digits(n):
    return principal(dp.datasets.load_digits()[0].astype(float), n)


def overlapping(n, d, k=100, separation=2.5):
    """Normal clusters of unequal sizes whose centres are about ``separation`` standard deviations apart."""
    rng = np.random.default_rng([n, d, k])
    labels = rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 2.0)))
    centres = separation * rng.normal(size=(k, d)) * (k ** (1.0 / d) / 3.0 if d < 4 else 0.6)
    return centres[labels] + rng.normal(size=(n, d))


def embeddings(n=100_000, d=128, k=79):
    """Unit vectors around unequal centres, with heavy overlap, times ten."""
    rng = np.random.default_rng([n, d, k])
    labels = rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 0.7)))
    centres = rng.normal(size=(k, d))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    rows = centres[labels] + rng.normal(size=(n, d)) * 1.2 / np.sqrt(d)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True) * 10.0


def documents(n=500, n_words=200, k=30, length=25):
    rng = np.random.default_rng([n, n_words, k])
    topics = rng.dirichlet(np.full(n_words, 0.3), size=k)
    return np.array([rng.multinomial(length, topics[z]) for z in rng.integers(k, size=n)])


def mixed(n=2_000, d=30, k=12):
    """Ten columns each of reals, of levels, and of counts."""
    rng = np.random.default_rng([n, d, k])
    z = rng.integers(k, size=n)
    reals = rng.normal(size=(k, 10))[z] * 0.6 + rng.normal(size=(n, 10))
    p = rng.dirichlet(np.full(4, 2.0), size=(k, 10))
    levels = np.array([[rng.choice(4, p=p[zi, j]) for j in range(10)] for zi in z])
    counts = rng.poisson(rng.gamma(8.0, 0.5, size=(k, 10))[z])
    return {"reals": reals, "levels": levels, "counts": counts}


def mixture(rows, base=None):
    """Return a function that adds a mixture to a model, with labels to start from."""

    def add(start):
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), base, observed=rows, initval=start)

    first = next(iter(rows.values())) if isinstance(rows, dict) else rows
    return add, len(first)


def of_mnist(file):
    rows = np.load(file)["X"].astype(float)
    return mixture(rows, dp.NormalInverseWishart.from_data(rows))


def of_mixed():
    columns = {
        "reals": dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0),
        "levels": dp.DirichletCategorical(0.5, [4] * 10),
        "counts": dp.GammaPoisson(1.0, 0.25),
    }
    return mixture(mixed(), columns)


def of_fixed(rows):
    return mixture(rows, dp.NormalInverseWishart.from_data(rows))


def reuters():
    counts = dp.datasets.load_reuters()
    return counts.loc[:, counts.sum() > 0]


def of_topics(counts, n_topics):
    """Return a function that adds a model of topics with names, and the number of tokens."""

    def add(start):
        dp.LDA("y", n_topics, 0.1, 0.01, observed=counts, initval=start % n_topics)

    return add, int(counts.to_numpy().sum())


def of_process(counts):
    """Return a function that adds a hierarchical Dirichlet process of words, and the number of tokens."""
    tokens = dp.as_tokens(counts)
    base = dp.DirichletCategorical(np.full(counts.shape[1], 0.05))

    def add(start):
        dp.HDPMixture("y", 1.0, 1.0, base, group=tokens["document"], observed=tokens["word"], initval=start)

    return add, len(tokens)


TABLES = {
    "digits, 20": lambda: of_fixed(digits(20)),
    "digits, 40": lambda: of_fixed(digits(40)),
    "MNIST, 50": None,
    "30,000 x 2, 100 clusters": lambda: of_fixed(overlapping(30_000, 2)),
    "30,000 x 16, 100 clusters": lambda: of_fixed(overlapping(30_000, 16)),
    # With the default base measure: in so many columns, they are independent given the cluster.
    "embeddings, 100,000 x 128": lambda: mixture(embeddings()),
    "500 documents": lambda: mixture(documents(), dp.DirichletMultinomial(0.1)),
    "mixed, 2,000 x 30": of_mixed,
    "Reuters, 20 topics": lambda: of_topics(reuters(), 20),
    "Reuters, any number of topics": lambda: of_process(reuters()),
}


def run(name, mnist, chain, seed, seconds, n_tuning, n_draws, folder, n_together):
    """Run one chain; return seconds, log joint density, entropy, number of clusters, and whether it was tuning."""
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    add, n = of_mnist(mnist) if name == "MNIST, 50" else TABLES[name]()
    rng = np.random.default_rng(seed + chain)
    start = rng.integers(STARTS[chain], size=n)
    with pm.Model() as model:
        add(start)
        # As pm.sample assigns them: the concentration is drawn with the labels.
        names = [name for name in ("y_labels", "alpha") if name in model.named_vars]
        step = dp.DPMixtureStep([model[name] for name in names])
    if folder:
        step.exchange = Exchange(folder, n_together, chain)
    point = model.initial_point(random_seed=seed + chain)
    # What is compiled at first use is, before the clock starts.
    step.setup_chain(rng, 0, n_tuning)
    step.step(point)
    step.setup_chain(np.random.default_rng(seed + chain), n_tuning, n_tuning)
    found, tuning, begun = [], True, time.perf_counter()
    while (spent := time.perf_counter() - begun) < seconds and len(found) < n_tuning + n_draws:
        if tuning and spent > SEARCH_SHARE * seconds:
            # The clock, which the step does not know, ends the search with its next draw.
            step.schedules[0].search_left = min(step.schedules[0].search_left, 1)
            step.schedules[0].recombining_left = 0
        is_over = spent > 0.5 * seconds or len(found) == n_tuning
        if tuning and is_over and not step.schedules[0].searches(True):
            step.stop_tuning()
            tuning = False
        point, (statistics,) = step.step(point)
        spent = time.perf_counter() - begun
        numbers = (float(statistics[f"y_labels_{key}"]) for key in ("log_joint", "entropy", "n_clusters"))
        found.append([spent, *numbers, float(tuning)])
    return np.array(found)


def means(chains, at):
    """Return the mean log joint density of the last fifth of what each chain has drawn by a time."""
    by_then = [own[own[:, 0] <= at] for own in chains]
    return [float(own[own[:, 0] >= 0.8 * own[-1, 0], 1].mean()) if len(own) else float("nan") for own in by_then]


def spread(chains, at):
    """Return the largest of these means less the smallest."""
    return float(np.ptp(means(chains, at)))


def report(chains, minutes):
    after = [own[own[:, 4] == 0.0] for own in chains]
    after = [own[len(own) // 2 :] for own in after]
    length = min(map(len, after))
    found = {
        "draws": [len(own) for own in chains],
        "spread": {str(m): spread(chains, 60.0 * m) for m in (1, 3, 10) if m <= minutes}
        | {"end": spread(chains, np.inf)},
        "log_joint": [round(mean) for mean in means(chains, np.inf)],
        "seconds_of_search_and_tuning": [round(float(own[own[:, 4] == 1.0, 0].max())) for own in chains],
        "clusters": [float(own[-1, 3]) for own in chains],
    }
    if length >= 4:
        stacked = np.array([own[-length:] for own in after])
        seconds = sum(float(own[-1, 0] - own[0, 0]) for own in stacked) / len(stacked)
        for j, key in ((1, "log_joint"), (2, "entropy"), (3, "n_clusters")):
            found[f"rhat_{key}"] = float(az.rhat(stacked[:, :, j]))
            found[f"ess_per_second_{key}"] = float(az.ess(stacked[:, :, j])) / seconds
    return found


def draw(results, file):
    import matplotlib.pyplot as plt

    n_columns = min(3, len(results))
    n_lines = -(-len(results) // n_columns)
    figure, axes = plt.subplots(n_lines, n_columns, figsize=(4.2 * n_columns, 3.0 * n_lines), squeeze=False)
    for panel, (name, chains) in zip(axes.flat, results.items(), strict=False):
        # Searches may visit what is more probable than all that a draw ever is.
        best = max(own[own[:, 4] == own[:, 4].min(), 1].max() for own in chains)
        for chain, own in enumerate(chains):
            color, style = ("#0072B2", "#D55E00")[STARTS[chain] > 1], ("-", "--")[chain % 2]
            label = f"from {STARTS[chain]}" if chain % 2 == 0 else None
            below = np.maximum(best - own[:, 1] + 1.0, 1.0)
            panel.plot(own[:, 0], below, style, color=color, linewidth=1, label=label)
        panel.set(xscale="log", yscale="log", title=name, xlabel="seconds", ylabel="below the best draw")
        panel.tick_params(which="minor", labelbottom=False, labelleft=False)
        panel.invert_yaxis()
        panel.legend(fontsize=8)
    for panel in axes.flat[len(results) :]:
        panel.remove()
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", nargs="+", choices=TABLES)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--tune", type=int, default=1_000, help="draws of tuning, at most; half of the minutes if less"
    )
    parser.add_argument("--draws", type=int, help="after those of tuning, in place of minutes")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0, help="of the first chain; the next one has the next number")
    parser.add_argument("--alone", action="store_true", help="chains do not tell each other what they have found")
    parser.add_argument("--mnist", help="an .npz file with X, (10000, 50)")
    arguments = parser.parse_args()
    names = arguments.tables or [name for name in TABLES if name != "MNIST, 50" or arguments.mnist]
    if "MNIST, 50" in names and not arguments.mnist:
        parser.error("MNIST needs --mnist FILE")
    seconds = np.inf if arguments.draws else 60.0 * arguments.minutes
    n_draws = arguments.draws or np.inf
    together = min(arguments.cores, len(STARTS))
    folders = {name: None if arguments.alone else tempfile.mkdtemp() for name in names}
    jobs = [
        (name, arguments.mnist, chain, arguments.seed, seconds, arguments.tune, n_draws, folders[name], together)
        for name in names
        for chain in range(len(STARTS))
    ]
    with multiprocessing.get_context("spawn").Pool(arguments.cores) as pool:
        chains = pool.starmap(run, jobs, chunksize=1)
    by_table = {name: [own for job, own in zip(jobs, chains, strict=True) if job[0] == name] for name in names}
    found = {name: report(own, arguments.minutes) for name, own in by_table.items()}
    print(pd.DataFrame(found).T.to_string())
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "hard.json").write_text(json.dumps(found, indent=1))
    np.savez_compressed(
        arguments.folder / "hard.npz",
        **{f"{name} {chain}": own for name, of in by_table.items() for chain, own in enumerate(of)},
    )
    draw(by_table, arguments.folder / "hard.png")


if __name__ == "__main__":
    main()
