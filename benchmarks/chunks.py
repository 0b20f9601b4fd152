"""Rows on dask workers: seconds of a draw, messages in bytes, and memory of all processes.

    python benchmarks/chunks.py --rows 1e7 --columns 10 --clusters 20 --workers 2

The rows are made on the workers, and stay there. Without ``--workers`` the threads of this process compute.
"""

import argparse
import contextlib
import logging
import pickle
import time
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
import pymc as pm

import pymc_dpgmm as dp
from pymc_dpgmm.chunked.dask_rows import DaskRows


def make_chunk(seed: int, n: int, centers: np.ndarray) -> np.ndarray:
    """Rows of overlapping groups."""
    rng = np.random.default_rng(seed)
    return centers[rng.integers(len(centers), size=n)] + rng.normal(size=(n, centers.shape[1]))


def make_rows(n: int, d: int, n_clusters: int, chunk: int) -> Any:
    """Rows in chunks, made where they are used."""
    centers = np.random.default_rng(1).normal(size=(n_clusters, d)) * (3.0 if d < 5 else 2.0)
    sizes = [chunk] * (n // chunk) + ([n % chunk] if n % chunk else [])
    made = dask.delayed(make_chunk)
    parts = [da.from_delayed(made(i, size, centers), (size, d), float) for i, size in enumerate(sizes)]
    return da.concatenate(parts)


def resident() -> float:
    """Memory of this process and of the workers, in GiB."""
    own = psutil.Process()
    return sum(p.memory_info().rss for p in [own, *own.children(recursive=True)]) / 2**30


_run = DaskRows.run


class Watched(DaskRows):
    """Rows that count what is sent and what comes back."""

    sent: list[int] = []
    returned: list[int] = []

    def run(self, sent: Any) -> Any:
        """Return what a pass has gathered."""
        found = _run(self, sent)
        Watched.sent.append(len(pickle.dumps(sent)))
        Watched.returned.append(len(pickle.dumps(found)))
        return found


def main() -> None:
    """Measure one case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 1e7), ("columns", 10), ("clusters", 20), ("chunk", 250_000), ("workers", 0)):
        parser.add_argument(f"--{name}", type=lambda text: int(float(text)), default=int(default))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--tune", type=int, default=20)
    given = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    with contextlib.ExitStack() as stack:
        if given.workers:
            import distributed

            cluster = distributed.LocalCluster(
                n_workers=given.workers, threads_per_worker=1, dashboard_address=None, memory_limit=None
            )
            stack.enter_context(cluster)
            stack.enter_context(distributed.Client(cluster))
        array = make_rows(given.rows, given.columns, given.clusters, given.chunk).persist()
        DaskRows.run, watched = Watched.run, DaskRows.run  # type: ignore[method-assign]
        begin = time.perf_counter()
        with pm.Model():
            dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=array)
            built = time.perf_counter() - begin
            most = [0.0]
            idata = pm.sample(
                given.draws,
                tune=given.tune,
                chains=1,
                random_seed=1,
                progressbar=False,
                compute_convergence_checks=False,
                callback=lambda trace, draw: most.append(max(most[-1], resident())),
            )
        DaskRows.run = watched  # type: ignore[method-assign]
        total = time.perf_counter() - begin
        seconds = idata["sample_stats"]["y_seconds"].to_numpy()
        print(f"{given.rows} x {given.columns}, {-(-given.rows // given.chunk)} chunks, workers: {given.workers}")
        print(f"built in {built:.1f} s, {given.tune} tuning and {given.draws} draws in {total - built:.1f} s")
        print(f"a draw: {np.median(seconds):.3f} s, {given.rows / np.median(seconds):.2e} rows a second")
        print(f"clusters: {idata['posterior']['y_n_clusters'].to_numpy()[0, -1]} of {given.clusters}")
        print(f"sent to each chunk's worker: {np.median(Watched.sent):.0f} bytes a draw")
        print(f"gathered from all: {np.median(Watched.returned):.0f} bytes a draw")
        print(f"memory of all processes: {most[-1]:.2f} GiB, of which the rows: {array.nbytes / 2**30:.2f}")


if __name__ == "__main__":
    main()
