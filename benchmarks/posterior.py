"""Seconds of everything that is done with 4,000 draws after sampling, at three numbers of rows.

    python benchmarks/posterior.py results

Old Faithful (272 rows), and 2,000 and 10,000 rows of eight normal clusters in two dimensions; four chains of 1,000
draws each. Every function is called once before on 40 draws, so that nothing is compiled while it is timed. Writes
``posterior.json`` into the folder.
"""

import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_dpgmm as dp

warnings.simplefilter("ignore")
logging.getLogger("pymc").setLevel(logging.ERROR)


def synthetic(n):
    rng = np.random.default_rng(n)
    centres = rng.normal(scale=5.0, size=(8, 2))
    return centres[rng.integers(8, size=n)] + rng.normal(size=(n, 2))


def fitted(data):
    with pm.Model() as model:
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=data)
        idata = pm.sample(
            draws=1_000, tune=500, chains=4, progressbar=False, compute_convergence_checks=False, random_seed=1
        )
    return model, idata


def calls(model, idata, data):
    point = {}

    def point_partition():
        point["labels"] = dp.point_partition(idata, "y", random_seed=0)["labels"].to_numpy()

    def replicates():
        with model:
            pm.sample_posterior_predictive(idata, progressbar=False, random_seed=0)

    new = data[:100]
    return {
        "partition_diagnostics": lambda: dp.partition_diagnostics(idata, "y", warn=False),
        "co_clustering": lambda: dp.co_clustering(idata, "y"),
        "point_partition": point_partition,
        "credible_ball": lambda: dp.credible_ball(idata, "y", point["labels"]),
        "component_draws": lambda: dp.component_draws(idata, "y", point["labels"], random_seed=0),
        "density, 200 points of one column": lambda: dp.density(idata, "y", columns=0, random_seed=0),
        "density, 50 x 50 grid": lambda: dp.density(idata, "y", random_seed=0),
        "membership of 100 rows": lambda: dp.membership(idata, "y", new, point["labels"]),
        "sample_new_rows, 100 a draw": lambda: dp.sample_new_rows(idata, "y", 100, random_seed=0),
        "log_likelihood": lambda: dp.log_likelihood(idata, "y", extend_inferencedata=False, random_seed=0),
        "summary": lambda: dp.summary(idata, "y", point["labels"], random_seed=0),
        "n_clusters": lambda: dp.n_clusters(idata, "y", model=model, random_seed=0),
        "sample_posterior_predictive": replicates,
    }


def timed(call):
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main(folder):
    results = {}
    sets = {272: dp.datasets.load_old_faithful().to_numpy()} | {n: synthetic(n) for n in (2_000, 10_000)}
    for n, data in sets.items():
        model, idata = fitted(data)
        few = idata.sel(draw=slice(0, 9))
        for call in calls(model, few, data).values():
            call()
        n_clusters = float(idata["posterior"]["y_n_clusters"].mean())
        print(f"\n{n:,} rows, {n_clusters:.1f} clusters on average, {os.cpu_count()} cores", flush=True)
        results[n] = {"clusters": n_clusters}
        for name, call in calls(model, idata, data).items():
            results[n][name] = seconds = timed(call)
            print(f"{name:36} {seconds:8.2f} s", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "posterior.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
