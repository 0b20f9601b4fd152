"""Many rows: seconds, effective draws and memory of a draw of the labels, by rows, columns, clusters and threads.

Each case runs in a process of its own, with the default mix and beside it with scans of all rows
(``leader_sweeps=0``). Both start from what the search finds: the true clusters would not do, since some coincide. Run alone on a machine: ``python benchmarks/many_rows.py --folder results``.
"""

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import arviz as az
import numpy as np

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.many_rows.drawn_clusters import DrawnClusters, LabelDraws, draw_clusters
from pymc_dpgmm.sampler.many_rows.leader_sweep import leader_sweep
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.schedule import Options, Schedule

# Draws that search, and draws that find out which moves pay.
SEARCH, TUNE = 20, 1_000


def clusters(n, d, n_clusters, seed=1):
    """Rows of Gaussians with unit covariance whose means have a spread that lets neighbours overlap."""
    rng = np.random.default_rng(seed)
    spread = 3.0 * n_clusters ** (1.0 / d) / np.sqrt(min(d, 4) / 2.0)
    means = rng.normal(size=(n_clusters, d)) * spread
    labels = rng.integers(n_clusters, size=n)
    return means[labels] + rng.normal(size=(n, d)), labels


def measure(n, d, n_clusters, threads, leaders, seconds, seed):
    """Figures of one case."""
    rows = clusters(n, d, n_clusters, seed)[0]
    base = dp.NormalInverseWishart.from_data(rows)
    state = State([View(base.family, base.numbers(d), rows)], np.zeros(n, dtype=np.int64))
    state.set_prior(chinese_restaurant(1.0))
    rng = np.random.default_rng(0)
    finding = Schedule(Options(threads=threads), SEARCH)
    while finding.searches(True):
        state, _ = finding.draw(rng, state, True)
    schedule = Schedule(Options(search=False, threads=threads, leader_sweeps=leaders), TUNE)
    begin = time.perf_counter()
    for t in range(TUNE):
        state, _ = schedule.draw(rng, state, True)
        if t >= 2 and time.perf_counter() - begin > seconds:
            break
    trace, begin = [], time.perf_counter()
    while len(trace) < 3 or time.perf_counter() - begin < seconds:
        state, drawn = schedule.draw(rng, state, False)
        shares = np.sort(state.cluster_sizes) / n
        trace.append((len(shares), -(shares @ np.log(shares)), drawn.log_joint))
    total = time.perf_counter() - begin
    found = {
        "n": n,
        "d": d,
        "clusters": n_clusters,
        "threads": threads,
        "seed": seed,
        "mix": "scans" if leaders == 0 else "default",
        "seconds": total / len(trace),
        "sequential moves": float(schedule.numbers["sequential"]),
        "GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "GiB of data": rows.nbytes / 2**30,
    }
    for name, values in zip(("n_clusters", "entropy", "log_joint"), np.array(trace).T, strict=True):
        is_long = len(values) >= 100 and values.std() > 0
        found[f"ESS/s {name}"] = float(az.ess(values[None])) / total if is_long else None
    if leaders != 0:
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            leader_sweep(rng, state, threads)
            times.append(time.perf_counter() - begin)
        found["ns of a leader sweep per row and cluster"] = min(times) / n / state.n_clusters * 1e9
    return found


class NearRows:
    """Labels of few rows, drawn again and again: what two threads can do at once if no memory is in the way."""

    def __init__(self, state, rng, n=2_048, parts=4):
        (table,) = state.tables
        slots = state.order[: state.n_clusters].copy()
        log_weights, drawn = draw_clusters(rng, [table], slots, state.sizes[slots].astype(float))
        given = DrawnClusters(slots, np.full(len(slots), np.iinfo(np.int64).min), log_weights, drawn, 1, 2)
        view = View(table.family, table.params, table.values[:n], origin=table.origin)
        near = ClusterTable(view, 1, for_sampling=False)
        self.n, self.draws = n, [LabelDraws(given, [near], np.full(n, slots[0])) for _ in range(parts)]

    def __call__(self, start, stop):
        for labels in self.draws[start:stop]:
            scratch = labels.scratch(self.n)
            for _ in range(250):
                labels.draw(0, self.n, scratch)


def scaling(n=1_000_000, d=2, n_clusters=10, repeats=40):
    """Print how many times faster two threads are than one: draws, leader sweeps, and labels of rows close by.

    Draws with one thread and two take turns, so that both meet the same other work; the figures are of the sums.
    """
    rows, labels = clusters(n, d, n_clusters)
    base, rng = dp.NormalInverseWishart.from_data(rows), np.random.default_rng(0)
    state = State([View(base.family, base.numbers(d), rows)], labels)
    state.set_prior(chinese_restaurant(1.0), (1.0, 1.0))
    learned = Schedule(Options(search=False), TUNE)
    for _ in range(TUNE):
        state, _ = learned.draw(rng, state, True)
    schedules = {threads: replace(learned, options=Options(search=False, threads=threads)) for threads in (1, 2)}
    near = NearRows(state, rng)
    seconds = {(name, threads): 0.0 for name in ("draw", "leader sweep", "machine") for threads in (1, 2)}
    calls = dict.fromkeys(seconds, 0)

    def timed(name, threads, call, *arguments):
        begin = time.perf_counter()
        found = call(*arguments)
        seconds[name, threads] += time.perf_counter() - begin
        calls[name, threads] += 1
        return found

    with Threads(2) as two:
        for _ in range(repeats):
            for threads in (1, 2):
                for _ in range(5):
                    state, _ = timed("draw", threads, schedules[threads].draw, rng, state, False)
                timed("leader sweep", threads, leader_sweep, rng, state, threads)
            timed("machine", 1, near, 0, 4)
            timed("machine", 2, two.run, near, 0, 4)
    print(f"{learned.numbers['sequential']:.2f} sequential moves in a draw")
    for name in ("draw", "leader sweep", "machine"):
        one, both = (seconds[name, threads] / calls[name, threads] * 1e3 for threads in (1, 2))
        print(f"{name}: {one:.1f} ms on one thread, {both:.1f} on two: {one / both:.2f} times")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("results"))
    parser.add_argument("--rows", type=float, nargs="*", default=[1e4, 1e5, 1e6, 1e7])
    parser.add_argument("--columns", type=int, nargs="*", default=[2, 16, 50])
    parser.add_argument("--clusters", type=int, nargs="*", default=[10, 100])
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--seeds", type=int, nargs="*", default=[1], help="of the data")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--most", type=float, default=2.0, help="GiB of data, at most")
    parser.add_argument("--scaling", action="store_true", help="only two threads against one, by turns")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.scaling:
        scaling()
        return
    if options.case:
        print(json.dumps(measure(*json.loads(options.case))))
        return
    table = []
    numbers = (options.rows, options.columns, options.clusters, options.seeds, options.threads)
    for n, d, n_clusters, seed, threads, leaders in itertools.product(*numbers, (None, 0)):
        # Scans do not use threads.
        if 8 * n * d > options.most * 2**30 or (leaders == 0 and threads > 1):
            continue
        case = json.dumps([int(n), d, n_clusters, threads, leaders, options.seconds, seed])
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, "--case", case], capture_output=True, text=True, check=True
        )
        table.append(json.loads(done.stdout.splitlines()[-1]))
        print({key: round(x, 5) if isinstance(x, float) else x for key, x in table[-1].items()}, flush=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "many_rows.json").write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
