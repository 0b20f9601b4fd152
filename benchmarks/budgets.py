"""Prints figures that matter beside their limits, and exits with 1 if a limit is exceeded; see benchmarks/README.md.

Usage: ``python benchmarks/budgets.py [SECTION ...] [--folder FOLDER]``. Without sections it runs all, in less than five
minutes where code is compiled already. Writes ``FOLDER/budgets.json``.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from probes import ROOT, measure

# The checkout that this file is in is measured, whatever is installed.
sys.path.insert(0, str(ROOT))


class Figure(NamedTuple):
    """A figure and its limit; one that was not measured is NaN."""

    name: str
    value: float
    limit: float
    unit: str
    # Whether the figure must be at least its limit, not at most.
    at_least: bool = False

    @property
    def verdict(self):
        if math.isnan(self.value):
            return "not measured"
        return "ok" if (self.value >= self.limit if self.at_least else self.value <= self.limit) else "EXCEEDED"

    def __str__(self):
        value = "-" if math.isnan(self.value) else f"{self.value:.3g}"
        sign = ">=" if self.at_least else "<="
        return f"{self.name:<64} {value:>8}   {sign} {self.limit:<6.3g} {self.unit:<12} {self.verdict}"


def first_draw(folder):
    """Seconds from the start of a process to the first draw of ``pm.sample``, beside a regression by NUTS."""
    cold, warm = {}, {}
    for probe in ("first_draw", "first_draw_of_nuts"):
        with tempfile.TemporaryDirectory() as caches:
            seconds = [measure(probe, caches=Path(caches))[0]["seconds"] for _ in range(4)]
        cold[probe], warm[probe] = seconds[0], statistics.median(seconds[1:])
    for state, found in (("cold", cold), ("warm", warm)):
        yield Figure(f"first draw, caches {state}", found["first_draw"], 12.0, "s")
        ratio = found["first_draw"] / found["first_draw_of_nuts"]
        yield Figure(f"first draw, caches {state}, over a regression by NUTS", ratio, 2.5, "times")


def imports(folder):
    """Seconds of ``import pymc_dpgmm`` after ``import pymc``."""
    seconds = [measure("imported")[0]["package"] for _ in range(7)]
    yield Figure("import pymc_dpgmm after import pymc", statistics.median(seconds), 0.3, "s")


def mixing(folder):
    """Effective draws per second through ``pm.sample``, in those of the bare loop."""
    for data, limit in (("galaxies", 2.0), ("Old Faithful", 3.0), ("five clusters", 3.0)):
        runs = measure("mixing", data=data)
        for name in ("n_clusters", "entropy", "log_joint"):
            ratio = statistics.median(run[name] / run[f"bare_{name}"] for run in runs)
            yield Figure(f"effective draws of {name}, {data}, over the bare loop", ratio, limit, "times", True)


def inside_models(folder):
    """Milliseconds of a draw of models that have more than labels: a random base measure, and latent rows."""
    for name, limit in (("galaxies", 0.6), ("100 counts", 1.5)):
        found = statistics.median(measure("inside_models", model=name)[0]["ms_per_draw"] for _ in range(3))
        yield Figure(f"a draw of {name} with a random base measure", found, limit, "ms")


def gibbs_scans(rows, labels, n_warm_up, n_scans):
    """Seconds and numbers of clusters of Gibbs scans. All that is here of the kernels, which may change."""
    import numpy as np

    import pymc_dpgmm as dp
    from pymc_dpgmm.families import View
    from pymc_dpgmm.partitions.priors import chinese_restaurant
    from pymc_dpgmm.sampler.moves.sweep import sweep
    from pymc_dpgmm.sampler.state.state import State

    base = dp.NormalInverseWishart.from_data(rows)
    state = State([View(base.family, base.numbers(rows.shape[1]), rows)], labels)
    state.set_prior(chinese_restaurant(0.1))
    rng = np.random.default_rng(0)
    for t in range(n_warm_up + n_scans):
        begin = time.perf_counter()
        sweep(rng, state, 1, 1, 0, 0)
        seconds = time.perf_counter() - begin
        if t >= n_warm_up:
            yield seconds, state.n_clusters


def least_arithmetic(rows, labels, n_repeats):
    """Seconds of one triangular product, one log and one exp for each row and cluster."""
    import numpy as np
    from bare_loop import FASTMATH, scaled_squared_norm
    from numba import njit

    @njit(fastmath=FASTMATH, error_model="numpy")
    def floor(rows, factors, shifts, constants, exponents):
        total = 0.0
        for i in range(rows.shape[0]):
            for k in range(factors.shape[0]):
                squared = scaled_squared_norm(factors[k], shifts[k], rows[i])
                total += math.exp(constants[k] - exponents[k] * math.log(1.0 + squared))
        return total

    d, rows = rows.shape[1], rows - rows.mean(axis=0)
    clusters = [rows[labels == k] for k in range(labels.max() + 1)]
    scatters = [np.cov(own.T, bias=True).reshape(d, d) * len(own) for own in clusters]
    factors = np.linalg.inv(np.linalg.cholesky(np.array(scatters) + 0.1 * np.diag(rows.var(axis=0))))
    shifts = np.array([factor @ own.mean(axis=0) for factor, own in zip(factors, clusters, strict=True)])
    constants = np.linalg.slogdet(factors)[1]
    arrays = factors, shifts, constants, np.full(len(clusters), 0.5 * (d + 3))
    floor(rows, *arrays)
    for _ in range(n_repeats):
        begin = time.perf_counter()
        floor(rows, *arrays)
        yield time.perf_counter() - begin


def scan_over_floor(n=20_000, d=2, n_clusters=10, separation=4.0, repeats=21):
    """Return the seconds of a Gibbs scan over those of its least arithmetic, where clusters overlap.

    Their centres are on a grid, so many standard deviations apart.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    labels = rng.integers(n_clusters, size=n)
    centres = np.stack([np.arange(n_clusters) // 4 ** (j % 2) % 4 for j in range(d)], axis=1) * separation
    rows = (centres + rng.normal(size=centres.shape) * 0.1)[labels] + rng.normal(size=(n, d))
    pairs = zip(gibbs_scans(rows, labels, 20, repeats), least_arithmetic(rows, labels, repeats), strict=True)
    return statistics.median((scan / k) / (floor / n_clusters) for (scan, k), floor in pairs)


def scan(folder):
    """A Gibbs scan over its least arithmetic."""
    yield Figure("Gibbs scan of 20,000 x 2, ten clusters, over its arithmetic", scan_over_floor(), 1.3, "times")


def tests(folder):
    """Seconds of the last ``make test`` that passed."""
    path = folder / "test_seconds"
    seconds = float(path.read_text()) if path.exists() else math.nan
    yield Figure("the last make test", seconds, 480.0, "s")


SECTIONS = {f.__name__: f for f in (first_draw, imports, mixing, inside_models, scan, tests)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []])
    parser.add_argument("--folder", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    begin = time.perf_counter()
    figures = []
    for name in arguments.sections or SECTIONS:
        for figure in SECTIONS[name](arguments.folder):
            figures.append(figure)
            print(figure, flush=True)
    print(f"\nmeasured in {time.perf_counter() - begin:.0f} s")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    told = [figure._asdict() | {"verdict": figure.verdict} for figure in figures]
    (arguments.folder / "budgets.json").write_text(json.dumps(told, indent=1))
    exceeded = [figure for figure in figures if figure.verdict == "EXCEEDED"]
    if exceeded:
        sys.exit(f"{len(exceeded)} of {len(figures)} limits are exceeded")


if __name__ == "__main__":
    main()
