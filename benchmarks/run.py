"""Measures what the README and docs claim of speed and memory; see benchmarks/README.md.

Usage: ``python benchmarks/run.py [FOLDER]``. Prints tables and writes ``FOLDER/bench.json``.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# One core: the kernels are single-threaded, and BLAS is kept from helping the rest.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np
import pymc as pm
from bare_loop import FASTMATH, scaled_squared_norm
from numba import njit

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.moves.sweep import sweep
from pymc_dpgmm.sampler.state.state import State

REPEATS = 21


@njit(fastmath=FASTMATH, error_model="numpy")
def floor(rows, factors, shifts, constants, exponents):
    """The least work per (row, cluster): one triangular product, one log, one exp of the C library."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(factors.shape[0]):
            squared = scaled_squared_norm(factors[k], shifts[k], rows[i])
            total += math.exp(constants[k] - exponents[k] * math.log(1.0 + squared))
    return total


def made_state(n, d, n_clusters, separation, seed=0):
    """A state at clusters whose centres are ``separation`` standard deviations apart, after 20 scans."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_clusters, size=n)
    # On a grid, so that no two clusters overlap and the number stays what it is.
    centres = np.stack([np.arange(n_clusters) // 4 ** (j % 2) % 4 for j in range(d)], axis=1) * separation
    centres = centres + rng.normal(size=centres.shape) * 0.1 + 100.0 * (np.arange(n_clusters) // 16)[:, None]
    rows = centres[labels] + rng.normal(size=(n, d))
    base = dp.NormalInverseWishart.from_data(rows)
    state = State([View(base.family, base.numbers(d), rows)], labels)
    state.set_prior(chinese_restaurant(0.1))
    sweep(rng, state, 20, 1, 0, 0)
    return rng, state


def scan_against_floor(n, d, n_clusters, separation=12.0):
    rng, state = made_state(n, d, n_clusters, separation)
    k = state.n_clusters
    (table,) = state.tables
    used = state.order[:k]
    factors = np.zeros((k, d, d))
    factors[:, *np.tril_indices(d)] = [table.cached("factor", slot) for slot in used]
    shifts, constants = (np.array([table.cached(name, slot) for slot in used]) for name in ("shift", "constant"))
    given = table.rows, factors, shifts, constants[:, 0], np.full(k, 0.5 * (d + 3))
    floor(*given)
    floors, scans, moved, counts = [], [], 0, []
    for _ in range(REPEATS):
        start = time.perf_counter()
        floor(*given)
        middle = time.perf_counter()
        n_moved = sweep(rng, state, 1, 1, 0, 0)
        scans.append(time.perf_counter() - middle)
        floors.append(middle - start)
        moved += n_moved
        counts.append(state.n_clusters)
    pairs, scan_pairs = n * k * 1e-9, n * np.array(counts) * 1e-9
    return {
        "n": n,
        "d": d,
        "K": k,
        "mean_K": float(np.mean(counts)),
        "moved_share": moved / n / REPEATS,
        "floor_ns": float(np.median(floors)) / pairs,
        "scan_ns": float(np.median(scans / scan_pairs)),
        "ratio": float(np.median(np.array(scans) / scan_pairs / (np.array(floors) / pairs))),
    }


PROBE_FIRST_DRAW = """
import time; start = time.perf_counter()
import pymc as pm, pymc_dpgmm as dp
imported = time.perf_counter()
with pm.Model():
    dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=dp.datasets.load_old_faithful())
    first = []
    pm.sample(draws=1, tune=0, chains=1, cores=1, progressbar=False, quiet=True,
              compute_convergence_checks=False, callback=lambda trace, draw: first.append(time.perf_counter()))
print(imported - start, first[0] - start)
"""


def first_draw():
    result = {}
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {
            "NUMBA_CACHE_DIR": f"{cache}/numba",
            "PYTENSOR_FLAGS": f"base_compiledir={cache}/pytensor",
        }
        for kind in ("cold", "warm", "warm again"):
            done = subprocess.run(
                [sys.executable, "-c", PROBE_FIRST_DRAW],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            imported, drawn = map(float, done.stdout.split())
            result[kind] = {"import_s": imported, "first_draw_s": drawn}
    return result


def draws_per_second():
    """``pm.sample`` on Old Faithful beside the kernel's own seconds in the same draws."""
    import pymc as pm

    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=dp.datasets.load_old_faithful())
        options = {
            "chains": 1, "cores": 1, "progressbar": False, "quiet": True,
            "compute_convergence_checks": False, "random_seed": 1,
        }  # fmt: skip
        pm.sample(10, tune=10, **options)
        idata = pm.sample(5000, tune=500, **options)
    elapsed = idata.posterior.attrs["sampling_time"]
    step = float(idata.sample_stats["y_labels_seconds"].mean())
    total = elapsed / 5500
    return {
        "draws_per_s": 1 / total,
        "us_per_draw": total * 1e6,
        "us_in_labels_step": step * 1e6,
        "framework_share": 1 - step / total,
        "mean_clusters": float(idata.posterior["y_n_clusters"].mean()),
    }


PROBE_MEMORY = """
import re, numpy as np
import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.moves.sweep import sweep
from pymc_dpgmm.partitions.priors import chinese_restaurant
def status(field):
    return int(re.search(field + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
def data(n, d):
    rng = np.random.default_rng(0)
    return rng, rng.normal(size=(n, d)) + 8.0 * rng.integers(5, size=(n, 1))
def work(rng, rows):
    base = dp.NormalInverseWishart.from_data(rows)
    state = State([View(base.family, base.numbers(rows.shape[1]), rows)], np.zeros(len(rows), dtype=np.int64))
    state.set_prior(chinese_restaurant(1.0))
    sweep(rng, state, 3, 1, 0, 0)
    return state.nbytes + state.tables[0].rows.nbytes
work(*data(1000, {d}))
made = data({n}, {d})
open("/proc/self/clear_refs", "w").write("5")  # Linux: the peak counts from here
before = status("VmRSS")
held = work(*made)
print(status("VmHWM") - before, held / 2**20, made[1].nbytes / 2**20)
"""


def memory(n=100_000, d=8):
    done = subprocess.run(
        [sys.executable, "-c", PROBE_MEMORY.format(n=n, d=d)], capture_output=True, text=True, check=True
    )
    grown, held, data = map(float, done.stdout.split())
    return {"n": n, "d": d, "data_MiB": data, "state_MiB": held, "peak_growth_MiB": grown}


def leapfrog(n, d=2, n_clusters=10):
    """Microseconds of one log density and its gradient in alpha, mu, kappa and nu while the labels stand still."""
    rng = np.random.default_rng(0)
    labels = rng.integers(n_clusters, size=n)
    rows = 8.0 * rng.normal(size=(n_clusters, d))[labels] + rng.normal(size=(n, d))
    with pm.Model() as model:
        alpha, mu = pm.LogNormal("alpha", 0.0, 1.0), pm.Normal("mu", 0.0, 10.0, shape=d)
        kappa, nu = pm.Gamma("kappa", 1.0, 1.0), pm.Exponential("nu", 0.2)
        dp.DPMixture("y", alpha, dp.NormalInverseWishart(mu, kappa, nu + d + 1, np.eye(d)), observed=rows)
    value = model.rvs_to_values[model["y_labels"]]
    function = model.logp_dlogp_function([v for v in model.value_vars if v is not value], ravel_inputs=True)
    function.set_extra_values({value.name: labels.astype(value.dtype)})
    start = model.initial_point()
    start.pop(value.name)
    point = pm.blocking.DictToArrayBijection.map(start).data
    function(point)
    timings = []
    for repeat in range(REPEATS):
        started = time.perf_counter()
        for step in range(100):
            function(point + 1e-5 * (100 * repeat + step))
        timings.append((time.perf_counter() - started) * 1e4)
    return {"n": n, "us": float(np.median(timings))}


def show(title, rows):
    print(f"\n{title}")
    rows = rows if isinstance(rows, list) else [rows]
    print("  ".join(f"{key:>16}" for key in rows[0]))
    for row in rows:
        print(
            "  ".join(f"{value:>16.4g}" if isinstance(value, float) else f"{value:>16}" for value in row.values())
        )


def main(folder):
    results = {
        "scan_against_floor": [
            # Clusters that overlap in two dimensions, so that a few percent of the rows move per scan.
            scan_against_floor(*size)
            for size in ((20_000, 2, 10, 4.0), (20_000, 2, 10), (5_000, 16, 10), (2_000, 50, 20))
        ],
        "growth": [
            scan_against_floor(*size)
            for size in (
                *((n, 2, 10) for n in (1_000, 10_000, 100_000)),
                *((5_000, d, 10) for d in (2, 4, 8, 16, 32, 64)),
                *((10_000, 2, k) for k in (1, 3, 10, 30)),
            )
        ],
        "first_draw": first_draw(),
        "draws_per_second": draws_per_second(),
        "memory": memory(),
        "leapfrog": [leapfrog(n) for n in (1_000, 10_000, 100_000)],
    }
    show("(a) Gibbs scan against its arithmetic floor, ns per (row, cluster)", results["scan_against_floor"])
    show("(b) growth with n, d and K", results["growth"])
    show("(c) seconds to the first draw", [{"cache": k, **v} for k, v in results["first_draw"].items()])
    show("(d) pm.sample on Old Faithful", results["draws_per_second"])
    show("(e) memory", results["memory"])
    show("(f) log density and gradient in the hyperparameters, labels standing still", results["leapfrog"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
