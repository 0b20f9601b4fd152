"""The headline of each source document of the package, measured again: docs/papers.md has the results.

Usage: ``python benchmarks/papers.py [SECTION ...] [--folder FOLDER] [--mnist FILE]``. Prints tables, and writes
pictures to FOLDER, which is docs/ by default. Without sections it runs all of them, in less than ten minutes.
Everything is compiled before the clock starts. Arithmetic takes one thread, and ``pm.sample`` two processes.
"""

import argparse
import time
from itertools import product
from pathlib import Path

# First: it sets the numbers of threads before NumPy is imported.
from split_merge import (
    DEFAULT,
    EXACT,
    GIBBS,
    adjusted_rand_index,
    chinese_restaurant,
    gaussians,
    mnist_chains,
    show,
    start_labels,
    warm_up,
)

# isort: split
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from plain_samplers import FROM_ROWS, FROM_SUMS, RANK_ONE, as_printed, finite_symmetric, log_density, plain_run

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.sampler.moves.sweep import sweep
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.schedule import Schedule

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
COLORS = [BLUE, ORANGE, GREEN, PURPLE, "#E69F00", "#56B4E9", "#777777"]
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}


def cholesky(folder, n=1_000, n_clusters=5, dims=(2, 4, 8, 16, 32, 64, 128), n_scans=3):
    """Das (2014): microseconds of a Gibbs scan for each row, by how the factor of a table is kept."""
    table = []
    for d in dims:
        rng = np.random.default_rng(d)
        truth = rng.integers(n_clusters, size=n)
        rows = rng.normal(size=(n_clusters, d))[truth] * 3.0 + rng.normal(size=(n, d))
        rows -= rows.mean(axis=0)
        kappa0, nu0, psi0 = 0.01, d + 2.0, np.eye(d)
        row, ends = {"d": d}, []
        for name, way in (("from rows", FROM_ROWS), ("from sums", FROM_SUMS), ("rank one", RANK_ONE)):
            plain_run(0, rows[:20], truth[:20].copy(), 1.0, kappa0, nu0, psi0, way, 1)
            labels = truth.copy()
            found = plain_run(0, rows, labels, 1.0, kappa0, nu0, psi0, way, n_scans)
            row[name] = np.median(found[:, 0]) / n * 1e6
            ends.append(labels)
        # The same random numbers: three ways to compute the same chain.
        assert np.array_equal(ends[0], ends[1])
        assert np.array_equal(ends[0], ends[2])
        row |= {"moved": found[:, 1].mean() / n, "tables": found[-1, 2]}
        base = dp.NormalInverseWishart(np.zeros(d), kappa0, nu0, psi0)
        state = State([View(base.family, base.numbers(d), rows)], truth)
        state.set_prior(chinese_restaurant(1.0))
        sweep(rng, state, 1, 1, 0, 0)
        seconds, moved = [], []
        for _ in range(5 * n_scans):
            begin = time.perf_counter()
            moved.append(sweep(rng, state, 1, 1, 0, 0))
            seconds.append(time.perf_counter() - begin)
        row |= {"package": np.median(seconds) / n * 1e6, "moved, package": np.mean(moved) / n}
        row["sums / rank one"] = row["from sums"] / row["rank one"]
        row["rows / package"] = row["from rows"] / row["package"]
        table.append(row)
    figure, axis = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
    for name, color in (("from rows", ORANGE), ("from sums", PURPLE), ("rank one", GREEN), ("package", BLUE)):
        axis.loglog(dims, [row[name] for row in table], "o-", color=color, label=name, ms=4)
    axis.set(xlabel="columns", ylabel="microseconds for each row and scan", xticks=dims, xticklabels=dims)
    axis.minorticks_off()
    axis.legend()
    figure.savefig(folder / "papers_cholesky.png", dpi=100)
    return table


# --- The web post of 2013


def two_gaussians(n=500, seed=0):
    """The data of scikit-learn's example of Gaussian mixtures, which the post's comparison comes from."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(n, 2)) @ np.array([[0.0, -0.1], [1.7, 0.4]])
    return np.vstack([first, 0.7 * rng.normal(size=(n, 2)) + [-6.0, 3.0]]), np.repeat([0, 1], n)


def exact(make, rows, *arguments, draws=1_000):
    """Draws of ``pm.sample``, and seconds of sampling."""
    with pm.Model():
        make("y", *arguments, observed=rows)
        idata = pm.sample(draws, tune=500, chains=4, cores=2, random_seed=1, **QUIET)
    return idata, idata.posterior.attrs["sampling_time"]


def shares(clusters):
    """Text: how often there were so many clusters."""
    values, counts = np.unique(clusters, return_counts=True)
    return ", ".join(f"{k}: {c / counts.sum():.3f}" for k, c in zip(values, counts, strict=True))


def post(folder, alpha=1.0, kappa0=0.01):
    """The post of 2013: nu = d, psi the identity, the mean of rows; alpha = 1, and kappa = 0.01 instead of 0."""
    rows, truth = two_gaussians()
    rows -= rows.mean(axis=0)
    try:
        dp.NormalInverseWishart(np.zeros(2), 0.0, 2.0, np.eye(2)).numbers(2)
    except ValueError as error:
        print(f"kappa = 0 is refused: {error}")
    base, table = dp.NormalInverseWishart(np.zeros(2), kappa0, 2.0, np.eye(2)), []

    def found(method, labels, seconds, clusters):
        ari = adjusted_rand_index(np.unique(labels, return_inverse=True)[1], truth)
        table.append({"method": method, "s": seconds, "ARI": ari, "clusters": clusters})

    plain = (alpha, kappa0, 2.0, np.eye(2), RANK_ONE)
    plain_run(0, rows, np.zeros(len(rows), dtype=np.int64), *plain, 1)
    for start in (1, 20):
        labels = start_labels(start, len(rows), truth, np.random.default_rng(0))
        trace = plain_run(1, rows, labels, *plain, 1_000)
        found(f"Algorithm 3 from {start}", labels, trace[:, 0].sum(), shares(trace[200:, 2].astype(int)))
    try:
        from sklearn.mixture import BayesianGaussianMixture
    except ImportError:
        print("scikit-learn is not installed: its line is left out")
    else:
        for n_components in (5, 20):
            mixture = BayesianGaussianMixture(
                n_components=n_components, weight_concentration_prior=alpha, mean_prior=np.zeros(2), max_iter=1_000,
                mean_precision_prior=kappa0, degrees_of_freedom_prior=2.0, covariance_prior=np.eye(2), random_state=1,
            )  # fmt: skip
            begin = time.perf_counter()
            labels = mixture.fit_predict(rows)
            used = int(np.sum(mixture.predict_proba(rows).sum(axis=0) >= 0.5))
            found(f"scikit-learn, {n_components} offered", labels, time.perf_counter() - begin, used)
    with pm.Model():
        dp.DPMixture("y", alpha, base, observed=rows)
        dp.fit(random_seed=1, max_steps=20, n_starts=1, progressbar=False)
        begin = time.perf_counter()
        fit = dp.fit(random_seed=1, progressbar=False)
    found("dp.fit", fit.responsibilities().argmax(axis=1), time.perf_counter() - begin, fit.n_components)
    idata, seconds = exact(dp.DPMixture, rows, alpha, base)
    labels = dp.point_partition(idata, "y")["labels"].to_numpy()
    clusters = idata.posterior["y_n_clusters"].to_numpy().astype(int)
    found("pm.sample", labels, seconds, shares(clusters))
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    left.scatter(*rows.T, c=[COLORS[k % len(COLORS)] for k in labels], s=4)
    left.set_title("Point partition of the exact draws")
    values, counts = np.unique(clusters, return_counts=True)
    right.bar(values, counts / counts.sum(), color=BLUE, label="exact draws")
    right.axvline(fit.n_components, color=ORANGE, label="dp.fit")
    right.set(xlabel="clusters", ylabel="probability", xticks=range(1, values.max() + 1))
    right.legend()
    figure.savefig(folder / "papers_post.png", dpi=100)
    return table


# --- Sugiyama (2016), chapter 20


def of_the_listing(seed):
    """The data of listings 20.3 and 20.5: 100 rows and 50."""
    rng = np.random.default_rng(seed)
    first = np.column_stack([2.0 * rng.normal(size=100) - 5.0, rng.normal(size=100)])
    return np.vstack([first, np.column_stack([rng.normal(size=50), rng.normal(size=50) + 3.0])])


def sugiyama(folder, n_sets=10):
    """Figures 20.4 and 20.6: five components offered for data of two; sorted weights, medians over data sets.

    The prior is that of listing 20.3: alpha = 1 for each, beta = 1, nu = 3, W = identity. Listing 20.5 has
    nu = 1.
    """
    base = dp.NormalInverseWishart(mu=0.0, kappa=1.0, nu=3.0, psi=np.eye(2))
    weights, used, process = {}, {}, []

    def found(method, own_weights, own_used):
        weights.setdefault(method, []).append(np.sort(own_weights, axis=-1)[..., ::-1].reshape(-1, 5).mean(axis=0))
        used.setdefault(method, []).append(np.atleast_1d(own_used))

    for seed in range(n_sets):
        rows = of_the_listing(seed)
        with pm.Model():
            dp.FiniteMixture("y", 5.0, 5, base, observed=rows)
            fit = dp.fit(random_seed=1, progressbar=False)
        found("dp.fit, finite", fit.weights, fit.n_components)
        for nu in (1, 3):
            sizes = as_printed(rows, seed, nu0=nu)
            found(f"as printed, nu = {nu}", (sizes + 1) / (len(rows) + 5), np.count_nonzero(sizes))
        idata, _ = exact(dp.FiniteMixture, rows, 5.0, 5, base, draws=250)
        labels = idata.posterior["y_labels"].to_numpy().reshape(-1, len(rows))
        sizes = (labels[:, :, None] == np.arange(5)).sum(axis=1)
        found("pm.sample, finite", (sizes + 1) / (len(rows) + 5), np.count_nonzero(sizes, axis=1))
        if seed == 0:
            approximate = np.unique(fit.responsibilities().argmax(axis=1), return_inverse=True)[1]
            panels = [approximate, dp.point_partition(idata, "y")["labels"].to_numpy()]
            axes = (figure := plt.figure(figsize=(8, 3.2), layout="constrained")).subplots(1, 2, sharey=True)
            for axis, title, panel in zip(axes, ("dp.fit", "Exact draws, point partition"), panels, strict=True):
                axis.scatter(*rows.T, c=[COLORS[k % len(COLORS)] for k in panel], s=8)
                axis.set(title=title, aspect="equal")
            figure.savefig(folder / "papers_sugiyama.png", dpi=100)
        idata, _ = exact(dp.DPMixture, rows, 1.0, base, draws=250)
        process.append(idata.posterior["y_n_clusters"].to_numpy().ravel().astype(int))
    print(f"Dirichlet process with alpha = 1, occupied clusters: {shares(np.concatenate(process))}")
    return [
        {"method": method}
        | {f"weight {i + 1}": weight for i, weight in enumerate(np.median(own, axis=0))}
        | {"occupied": shares(np.concatenate(used[method]))}
        for method, own in weights.items()
    ]


# --- Chang and Fisher (2013)


def named(values, third="log density"):
    return dict(zip(("s", "K", third, "ARI"), values, strict=True))


def scheduled(rows, labels, alpha, options, tune, n_iterations, seed, base):
    """Draws of the package: yields the seconds so far, and the labels."""
    rng, seconds = np.random.default_rng(seed), 0.0
    state = State([View(base.family, base.numbers(rows.shape[1]), rows)], labels)
    state.set_prior(chinese_restaurant(alpha))
    schedule = Schedule(options, tune)
    for iteration in range(n_iterations):
        begin = time.perf_counter()
        state, _ = schedule.draw(rng, state, iteration < tune)
        seconds += time.perf_counter() - begin
        yield seconds, state.labels()


def chang_fisher(folder, n=100_000, n_new=2_000, n_iterations=40, tune=30):
    """Figure 4: 100,000 rows of ten Gaussians in the plane, by start and alpha; mean log density of new rows.

    A run has reached the level of a chain that was started at the truth once it is less than 0.01 below it.
    """
    rows, truth = gaussians(n + n_new, 2, 10, 12.0, 1)
    rows, new, truth = rows[:n], rows[n:], truth[:n]
    numbers = {"mu": rows.mean(axis=0), "kappa": 0.01, "nu": 4.0, "psi": np.diag(0.1 * rows.var(axis=0))}
    base, table = dp.NormalInverseWishart(**numbers), []

    def followed(draws, alpha):
        trace = []
        for seconds, drawn in draws:
            k = len(np.unique(drawn))
            ari = adjusted_rand_index(np.unique(drawn, return_inverse=True)[1], truth)
            trace.append((seconds, k, log_density(new, rows, drawn, alpha, numbers), ari))
        return np.array(trace)

    warm_up(2)
    list(finite_symmetric(rows[:500], truth[:500], 1.0, numbers, 2, 0))
    samplers = {"default": (BLUE, 3, DEFAULT), "plain Gibbs": (ORANGE, 3, GIBBS), "finite, 100": (PURPLE, 1, None)}
    figure, axes = plt.subplots(2, 2, figsize=(8, 5.5), sharex=True, layout="constrained")
    for (alpha, start), axis in zip(product((0.1, 10.0), (1, 50)), axes.flat, strict=True):
        if start == 1:
            top = np.median(followed(scheduled(rows, truth, alpha, EXACT, 20, 60, 0, base), alpha)[20:], axis=0)
            table.append({"alpha": alpha, "start": "truth", "sampler": "default"} | named(top) | {"s": ""})
        for name, (color, runs, options) in samplers.items():
            ends, first = [], []
            for seed in range(runs):
                labels = start_labels(start, n, truth, np.random.default_rng(seed))
                if options is None:
                    draws = finite_symmetric(rows, labels, alpha, numbers, n_iterations, seed)
                else:
                    draws = scheduled(rows, labels, alpha, options, tune, n_iterations, seed, base)
                trace = followed(draws, alpha)
                axis.plot(
                    *trace[:, [0, 2]].T, ".-", color=color, lw=1, markevery=[0], label=None if seed else name
                )
                near = trace[trace[:, 2] > top[2] - 0.01, 0]
                first.append(near[0] if len(near) else np.inf)
                ends.append(trace[-1])
            reached = {"reached": f"{np.isfinite(first).sum()} of {runs}", "s to there": np.median(first)}
            row = {"alpha": alpha, "start": start, "sampler": name}
            table.append(row | named(np.median(ends, axis=0)) | reached)
        axis.axhline(top[2], color=GREEN, lw=1, ls="--", label="started at the truth")
        axis.set(title=f"alpha = {alpha:g}, from {start}", xscale="log")
    for axis in axes[:, 0]:
        axis.set_ylabel("mean log density of new rows")
    for axis in axes[1]:
        axis.set_xlabel("seconds")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(folder / "papers_chang_fisher.png", dpi=90)
    return table


def mnist(folder, file=None, n_iterations=20, tune=2):
    """Figure 5a, on the 10,000 test images instead of all 70,000: 50 principal components, alpha = 1."""
    table = []
    for start, name, trace in mnist_chains(file, n_iterations, tune):
        for at in (0, n_iterations - 1):
            row = {"start": start, "sampler": name, "draw": at + 1}
            table.append(row | named(trace[at] / [1, 1, 10_000, 1], "log joint / n"))
    return table


# --- News


def topics(folder):
    """Topics of 395 stories of Reuters, and their clusters if each story is a single draw from a multinomial."""
    counts, table = dp.datasets.load_reuters(), []
    for start in (1, 50):
        labels = start_labels(start, len(counts), None, np.random.default_rng(0))
        with pm.Model():
            base = dp.DirichletMultinomial(np.full(counts.shape[1], 0.1))
            dp.DPMixture("y", 1.0, base, observed=counts, initval=labels)
            idata = pm.sample(200, tune=200, chains=1, random_seed=1, **QUIET)
        joint = float(idata.sample_stats["y_labels_log_joint"].mean())
        clusters = idata.posterior["y_n_clusters"].to_numpy().astype(int)
        print(f"stories in clusters, from {start}: {shares(clusters)}; mean log joint density {joint:.1f}")
    with pm.Model():
        dp.LDA("words", n_topics=20, alpha=0.1, eta=0.05, observed=counts)
        idata = pm.sample(200, tune=400, chains=2, random_seed=1, **QUIET)
    found = dp.topics(idata, "words", n_words=8, relevance=0.6).isel(topic=slice(8))
    for share, overlap, words in zip(found["share"], found["overlap"], found["top_word"].to_numpy(), strict=True):
        table.append({"share": float(share), "overlap": float(overlap), "words": " ".join(words)})
    return table


SECTIONS = {f.__name__: f for f in (cholesky, post, sugiyama, chang_fisher, mnist, topics)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []])
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent.parent / "docs")
    parser.add_argument("--mnist")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.sections or SECTIONS:
        begin = time.perf_counter()
        print(f"\n{name}: {SECTIONS[name].__doc__}", flush=True)
        show(SECTIONS[name](arguments.folder, **({"file": arguments.mnist} if name == "mnist" else {})))
        print(f"{time.perf_counter() - begin:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
