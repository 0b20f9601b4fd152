"""Measures how split-merge moves find and explore partitions; see benchmarks/README.md.

Usage: ``python benchmarks/split_merge.py [SECTION ...] [--folder FOLDER] [--mnist FILE]``. Prints tables, writes
``FOLDER/split_merge_SECTION.json`` and pictures. Without sections it runs all.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import arviz as az
import bare_loop
import matplotlib as mpl
import numpy as np

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.schedule import Options, Schedule

mpl.use("Agg")
import matplotlib.pyplot as plt

DEFAULT = Options(threads=1)
GIBBS = Options(n_sweeps=1, moves={"random": 0, "sequential": 0}, search=False, threads=1, leader_sweeps=0)
EXACT = Options(search=False, threads=1)
COLORS = {"default": "#0072B2", "plain Gibbs": "#D55E00", "from the truth": "#009E73"}


def adjusted_rand_index(a, b):
    """Hubert and Arabie (1985), eq. 5."""
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)

    def pairs(x):
        return (x * (x - 1) / 2).sum()

    rows, columns, all_pairs = pairs(table.sum(1)), pairs(table.sum(0)), pairs(table.sum())
    expected = rows * columns / all_pairs
    return float((pairs(table) - expected) / ((rows + columns) / 2 - expected))


def gaussians(n, d, n_clusters, spread, seed):
    """Rows from Gaussians with random covariances and with means of standard deviation ``spread``."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n_clusters, d)) * spread
    factors = [
        np.linalg.cholesky(np.cov(rng.normal(size=(d, 2 * d + 2))).reshape(d, d) + 0.1 * np.eye(d))
        for _ in range(n_clusters)
    ]
    labels = rng.integers(n_clusters, size=n)
    rows = np.empty((n, d))
    for k in range(n_clusters):
        own = labels == k
        rows[own] = means[k] + rng.normal(size=(own.sum(), d)) @ factors[k].T
    return rows, labels


def start_labels(start, n, truth, rng):
    if start == "truth":
        return truth
    return rng.integers(start, size=n)


def chain(rows, labels, truth, alpha, options, tune, n_iterations, seed, base=None):
    """Seconds, number of clusters, log joint and ARI after each iteration."""
    base = dp.NormalInverseWishart.from_data(rows) if base is None else base
    rng = np.random.default_rng(seed)
    begin = time.perf_counter()
    state = State([View(base.family, base.numbers(rows.shape[1]), rows)], labels)
    state.set_prior(chinese_restaurant(alpha))
    schedule = Schedule(options, tune)
    seconds = time.perf_counter() - begin
    trace = []
    for iteration in range(n_iterations):
        begin = time.perf_counter()
        state, drawn = schedule.draw(rng, state, iteration < tune)
        seconds += time.perf_counter() - begin
        ari = adjusted_rand_index(state.labels(), truth)
        trace.append((seconds, state.n_clusters, drawn.log_joint, ari))
    return np.array(trace)


def warm_up(d):
    rows, truth = gaussians(400, d, 3, 5.0, 0)
    for options in (DEFAULT, GIBBS):
        chain(rows, np.zeros(400, dtype=np.int64), truth, 1.0, options, 4, 10, 0)


def inside_from(trace, band):
    """First iteration from which all three stay in the band for nine iterations in ten, or None."""
    inside = np.all((trace[:, 1:] >= band[0]) & (trace[:, 1:] <= band[1]), axis=1)
    for i in range(len(inside)):
        if inside[i] and inside[i:].mean() >= 0.9:
            return i
    return None


def recovery(folder, n=100_000, n_iterations=60, tune=45, seeds=5):
    """100,000 rows from ten Gaussians, some of them overlapping (after Chang and Fisher 2013, figure 4)."""
    warm_up(2)
    rows, truth = gaussians(n, 2, 10, 12.0, 1)
    table, figure = [], plt.figure(figsize=(13, 9), layout="constrained")
    axes = figure.subplots(3, 3, sharex=True)
    for column, alpha in enumerate((0.1, 1.0, 10.0)):
        long = [chain(rows, truth, truth, alpha, EXACT, 20, 120, 100 + s)[20:] for s in range(5)]
        stacked = np.concatenate(long)[:, 1:]
        middle, spread = np.median(stacked, axis=0), stacked.std(axis=0)
        band = np.array([middle - 3 * spread, middle + 3 * spread])
        for row in range(3):
            axes[row, column].axhspan(*band[:, row], color=COLORS["from the truth"], alpha=0.25)
        for start in (1, 50):
            for name, options in (("default", DEFAULT), ("plain Gibbs", GIBBS)):
                reached = []
                for seed in range(seeds if name == "default" else 1):
                    labels = start_labels(start, n, truth, np.random.default_rng(seed))
                    trace = chain(rows, labels, truth, alpha, options, tune, n_iterations, seed)
                    at = inside_from(trace, band)
                    reached.append((at, trace))
                    for row in range(3):
                        axes[row, column].plot(
                            trace[:, 0],
                            trace[:, 1 + row],
                            color=COLORS[name],
                            ls="-" if start == 1 else "--",
                            lw=1,
                            label=f"{name}, from {start}" if seed == 0 else None,
                        )
                firsts = [np.inf if at is None else at + 1 for at, _ in reached]
                times = [np.inf if at is None else trace[at, 0] for at, trace in reached]
                end = np.median([trace[-1] for _, trace in reached], axis=0)
                table.append(
                    {
                        "alpha": alpha,
                        "start": start,
                        "sampler": name,
                        "runs_inside": sum(np.isfinite(firsts)),
                        "runs": len(reached),
                        "iterations": float(np.median(firsts)),
                        "seconds": float(np.median(times)),
                        "s_for_60": end[0],
                        "K": end[1],
                        "log_joint": end[2],
                        "ARI": end[3],
                    }
                )
                print(table[-1], flush=True)
        table.append(
            {
                "alpha": alpha,
                "start": "truth",
                "sampler": "band, half width",
                **dict(zip(("K", "log_joint", "ARI"), middle, strict=True)),
                **dict(zip(("K_3sd", "log_joint_3sd", "ARI_3sd"), 3 * spread, strict=True)),
            }
        )
        print(table[-1], flush=True)
        axes[0, column].set_title(f"alpha = {alpha:g}")
        axes[0, column].set_yscale("log")
        axes[1, column].set_ylim(band[0, 1] - 60_000, band[1, 1] + 10_000)
        axes[2, column].set_xlabel("seconds")
    for row, label in enumerate(("clusters", "log joint density", "adjusted Rand index")):
        axes[row, 0].set_ylabel(label)
    axes[2, 2].legend(fontsize=8)
    figure.savefig(folder / "split_merge_recovery.png", dpi=110)
    return table


def sixteen(folder, n=5_000, d=16, n_clusters=8, seeds=5):
    """5,000 rows of 16 columns in eight clusters, from one cluster: seconds until all eight are found."""
    warm_up(d)
    table = []
    for seed in range(seeds):
        rows, truth = gaussians(n, d, n_clusters, 3.0, seed)
        trace = chain(rows, np.zeros(n, dtype=np.int64), truth, 1.0, DEFAULT, 30, 40, seed)
        found = np.flatnonzero((trace[:, 1] == n_clusters) & (trace[:, 3] > 0.99))
        first = found[0] if len(found) else -1
        table.append(
            {
                "seed": seed,
                "iterations": int(first) + 1,
                "seconds": trace[first, 0] if len(found) else np.inf,
                "K_end": trace[-1, 1],
                "ARI_end": trace[-1, 3],
            }
        )
    return table


def mnist_chains(file, n_iterations, tune):
    """Yield start, sampler's name and trace on MNIST's test images, from one cluster and from 50, alpha = 1."""
    if file is None:
        print("skipped: needs --mnist with an .npz of X (10000, 50) and digit (10000,)")
        return
    data = np.load(file)
    rows, truth = data["X"].astype(np.float64), data["digit"].astype(np.int64)
    warm_up(50)
    for start in (1, 50):
        for name, options in (("default", DEFAULT), ("plain Gibbs", GIBBS)):
            labels = start_labels(start, len(rows), truth, np.random.default_rng(0))
            yield start, name, chain(rows, labels, truth, 1.0, options, tune, n_iterations, 0)


def mnist(folder, file=None, n_iterations=60, tune=45):
    """MNIST's test images on 50 principal components (10,000 x 50), from one cluster and from 50."""
    table = []
    for start, name, trace in mnist_chains(file, n_iterations, tune):
        for at in (9, 29, n_iterations - 1):
            table.append(
                {
                    "start": start,
                    "sampler": name,
                    "iteration": at + 1,
                    **dict(zip(("seconds", "K", "log_joint", "ARI"), trace[at], strict=True)),
                }
            )
            print(table[-1], flush=True)
    return table


def small_data():
    return {
        "Old Faithful": dp.datasets.load_old_faithful(),
        "galaxies": dp.datasets.load_galaxies(),
    }


def sample(data, **kwargs):
    import pymc as pm

    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=data)
        return pm.sample(progressbar=False, quiet=True, compute_convergence_checks=False, **kwargs)


def mixing(folder, seeds=20):
    """R-hat of four over-dispersed chains with default settings, and effective draws per second of the number of clusters."""
    table = []
    watched = ("n_clusters", "entropy", "log_joint")
    for name, data in small_data().items():
        sample(data, draws=5, tune=5, chains=1, cores=1)
        rhats, elapsed = [], []
        for seed in range(seeds):
            idata = sample(data, cores=1, random_seed=seed)
            stats = idata.sample_stats
            rhats.append([float(az.rhat(stats[f"y_labels_{w}"].astype(float))) for w in watched])
            elapsed.append(idata.posterior.attrs["sampling_time"])
        rhats = np.array(rhats)
        row = {"data": name, "seeds": seeds, "all_below_1.01": int((rhats <= 1.01).all(axis=1).sum())}
        row |= {f"worst_{w}": rhats[:, i].max() for i, w in enumerate(watched)}
        row["s_per_run"] = float(np.median(elapsed))
        no_moves = {"n_sweeps": 1, "split_merge": {"sequential": 0, "random": 0, "search": False}}
        repeats = {"with": [], "without": [], "bare": []}
        for repeat in range(3):
            for kind, options in (("with", {}), ("without", no_moves)):
                idata = sample(
                    data, draws=5000, tune=500, chains=1, cores=1, random_seed=repeat, dpmixture=options
                )
                k = idata.sample_stats["y_labels_n_clusters"].astype(float)
                seconds = idata.posterior.attrs["sampling_time"] * 5000 / 5500
                repeats[kind].append(float(az.ess(k)) / seconds)
            seconds, trace = bare_loop.run(data, 20_000, 500, repeat)
            repeats["bare"].append(float(az.ess(trace[None, :, bare_loop.N_CLUSTERS])) / seconds)
        rates = {kind: float(np.median(values)) for kind, values in repeats.items()}
        row |= {f"ess_per_s_{kind}": rate for kind, rate in rates.items()}
        row["with/bare"] = rates["with"] / rates["bare"]
        row["without/bare"] = rates["without"] / rates["bare"]
        table.append(row)
        print(row, flush=True)
    return table


def hard(folder, n=50, dims=(2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), runs=10):
    """Two unit Gaussians, somewhat apart along every axis, 50 rows: is the right partition found from a bad start?

    The base measure has independent columns with variances near 1 and means of that spread.
    """
    base = dp.NormalInverseGamma(mu=0.0, kappa=1.0, a=5.0, b=4.0)
    table = []
    curves = {
        "default, from 1": (DEFAULT, 1, "#0072B2", "-"),
        "default, from 25": (DEFAULT, 25, "#0072B2", "--"),
        "plain Gibbs, from 1": (GIBBS, 1, "#D55E00", "-"),
        "plain Gibbs, from 25": (GIBBS, 25, "#D55E00", "--"),
        "from the truth": (EXACT, "truth", "#009E73", "-"),
    }
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for axis, (low, high) in zip(axes, ((0.5, 1.0), (1.5, 3.0)), strict=True):
        for d in dims:
            found = dict.fromkeys(curves, 0.0)
            for run in range(runs):
                rng = np.random.default_rng(1000 * d + run)
                truth = np.repeat([0, 1], n // 2)
                rows = rng.normal(size=(n, d)) + (truth[:, None] - 0.5) * rng.uniform(low, high, size=d)
                for name, (options, start, _, _) in curves.items():
                    labels = start_labels(start, n, truth, rng)
                    trace = chain(rows, labels, truth, 1.0, options, 200, 600, run, base=base)
                    found[name] += trace[200:, 3].mean() / runs
            table.append({"d": d, "apart": f"{low} to {high}", **found})
            print(table[-1], flush=True)
        for name, (_, _, color, line) in curves.items():
            ys = [row[name] for row in table[-len(dims) :]]
            axis.plot(dims, ys, line, marker="o", color=color, label=name, ms=4)
        axis.set(xlabel="columns", ylim=(-0.05, 1.05), title=f"{low} to {high} apart along each axis")
    axes[0].set_ylabel("adjusted Rand index, mean over draws and runs")
    axes[0].legend()
    figure.savefig(folder / "split_merge_hard.png", dpi=110)
    return table


PROBE_MEMORY = """
import sys, threading, time
import numpy as np, pymc as pm
import pymc_dpgmm as dp
def tree(pid):
    total = 0
    stack = [pid]
    while stack:
        p = stack.pop()
        try:
            stack += [int(c) for c in open(f"/proc/{{p}}/task/{{p}}/children").read().split()]
            total += next(int(l.split()[1]) for l in open(f"/proc/{{p}}/smaps_rollup") if l.startswith("Pss:"))
        except (OSError, StopIteration):
            pass
    return total / 1024
peak = [0.0]
def watch():
    import os
    while True:
        peak[0] = max(peak[0], tree(os.getpid()))
        time.sleep(0.5)
rng = np.random.default_rng(0)
truth = rng.integers(10, size={n})
rows = rng.normal(size=({n}, 2)) + 12 * rng.normal(size=(10, 2))[truth]
threading.Thread(target=watch, daemon=True).start()
begin = time.perf_counter()
keep = dp.ThinnedLabels("y_labels")
with pm.Model():
    dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=rows)
    idata = pm.sample({draws}, tune={tune}, chains=4, cores=2, var_names=["alpha", "y_n_clusters"], callback=keep,
                      progressbar=False, compute_convergence_checks=False, random_seed=1)
idata["thinned"] = keep.to_datatree()
assert idata.posterior["y_n_clusters"].shape == (4, {draws})
assert idata.sample_stats["y_labels_log_joint"].shape == (4, {draws})
assert idata["thinned"]["y_labels"].shape == (4, 1, {n})
print(peak[0], time.perf_counter() - begin, idata.posterior["y_n_clusters"].to_numpy()[:, -1].tolist())
"""


def memory(folder, n=1_000_000, draws=100, tune=10):
    """Peak memory of all processes (shared pages counted once): four chains, labels of the last draws kept.

    A thousand draws take 1 MiB more: what is recorded of a draw are some forty numbers.
    """
    script = PROBE_MEMORY.format(n=n, draws=draws, tune=tune)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True
    )
    peak, seconds, clusters = done.stdout.strip().splitlines()[-1].split(" ", 2)
    return [
        {"n": n, "draws": draws, "chains": 4, "peak_GiB": float(peak) / 1024, "s": float(seconds), "K": clusters}
    ]


SECTIONS = {f.__name__: f for f in (recovery, sixteen, mixing, hard, mnist, memory)}


def show(rows):
    if not rows:
        return
    keys = list(dict.fromkeys(key for row in rows for key in row))
    print("  ".join(f"{key:>16}" for key in keys))
    for row in rows:
        cells = [row.get(key, "") for key in keys]
        print("  ".join(f"{cell:>16.5g}" if isinstance(cell, float) else f"{cell!s:>16}" for cell in cells))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []])
    parser.add_argument("--folder", type=Path, default=Path("results"))
    parser.add_argument("--mnist")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.sections or SECTIONS:
        function = SECTIONS[name]
        print(f"\n{name}: {function.__doc__}", flush=True)
        rows = function(arguments.folder, **({"file": arguments.mnist} if name == "mnist" else {}))
        show(rows)
        path = arguments.folder / f"split_merge_{name}.json"
        path.write_text(json.dumps(rows, indent=1, default=float))


if __name__ == "__main__":
    main()
