"""Whether collapsed scans, leader sweeps, and passes over chunks have the same posterior, in long runs.

    python benchmarks/agreement.py --rows 2000 10000 --draws 4000

For the number of clusters, the concentration, the entropy of the sizes and the log joint density: means of each
sampler with Monte Carlo errors and effective draws, and the largest difference of two means in errors. An error that
comes from fewer than a hundred effective draws is hardly known: take more draws.
"""

import argparse
import logging
from typing import Any

import arviz_stats.base
import dask.array as da
import numpy as np
import pymc as pm

import pymc_dpgmm as dp


def overlapping(n: int) -> np.ndarray:
    """Rows of six groups, some of which overlap."""
    rng = np.random.default_rng(5)
    centers = np.array([[0, 0], [2.5, 0], [0, 4], [5, 5], [6.5, 5], [-5, 3]])
    return centers[rng.integers(6, size=n)] + rng.normal(size=(n, 2))


def summarized(
    rows: Any, base: Any, draws: int, step: dict[str, Any], seed: int
) -> dict[str, tuple[float, float, float]]:
    """Return means, their errors, and the effective draws that these come from."""
    with pm.Model():
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        dp.DPMixture("y", alpha, base, observed=rows)
        idata = pm.sample(
            draws,
            tune=300,
            chains=2,
            cores=1,
            random_seed=seed,
            progressbar=False,
            var_names=["alpha"],
            compute_convergence_checks=False,
            dpmixture=step,
        )
    statistics = idata["sample_stats"].dataset
    prefix = "y" if "y_entropy" in statistics else "y_labels"
    values = {name: statistics[f"{prefix}_{name}"].to_numpy() for name in ("n_clusters", "entropy", "log_joint")}
    values["alpha"] = idata["posterior"]["alpha"].to_numpy()
    found = {}
    for name, own in values.items():
        effective = float(arviz_stats.base.array_stats.ess(own.astype(float)))
        found[name] = float(own.mean()), float(own.std() / np.sqrt(effective)), effective
    return found


def compare(n: int, draws: int, seed: int) -> float:
    """Print the means of the samplers, and return the largest difference of two of them in errors."""
    rows = overlapping(n)
    base = dp.NormalInverseWishart.from_data(rows)
    samplers = {
        "collapsed scans": (rows, {"leader_sweeps": 0}),
        "leader sweeps": (rows, {"leader_sweeps": 1}),
        "chunks": (da.from_array(rows, chunks=(n // 4, 2)), {"chunks": {"scanned": max(n // 10, 200)}}),
    }
    found = {name: summarized(own, base, draws, step, seed) for name, (own, step) in samplers.items()}
    worst = 0.0
    for quantity in ("n_clusters", "alpha", "entropy", "log_joint"):
        print(f"{n:7d} {quantity:12s}", end="")
        for name, own in found.items():
            mean, error, effective = own[quantity]
            print(f"  {name} {mean:.4f} +- {error:.4f} ({effective:.0f})", end="")
            for other in found.values():
                difference = abs(mean - other[quantity][0])
                worst = max(worst, difference / np.hypot(error, other[quantity][1]) if difference else 0.0)
        print()
    print(f"{n:7d} largest difference: {worst:.1f} errors")
    return worst


def main() -> None:
    """Compare for some numbers of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000, 10_000])
    parser.add_argument("--draws", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    for n in arguments.rows:
        compare(n, arguments.draws, arguments.seed)


if __name__ == "__main__":
    main()
