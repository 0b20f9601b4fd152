"""Measures a checkout of the package by what users call, and nothing else, so that any version of it can be measured.

Usage: ``python benchmarks/probes.py PROBE [JSON arguments]``, with the checkout on PYTHONPATH. A line of JSON for each
result. :func:`measure` does that in a new process.
"""

import compileall
import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

# Nothing else is imported here: the probes of imports and of first draws begin with an empty process.

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}


@functools.cache
def byte_compiled(checkout):
    """Compile the package's files to byte code, as ``pip install`` does. Nobody pays for that at import."""
    compileall.compile_dir(checkout / "pymc_dpgmm", quiet=1)


def measure(name, checkout=ROOT, caches=None, timeout=None, **arguments):
    """Return what a probe prints in a new process: a list, which is shorter if time was up.

    Parameters
    ----------
    name : str
        Of a function of this module.
    checkout : Path
        Root of the version to measure.
    caches : Path, optional
        Folder of compiled code, by default that of the environment.
    timeout : float, optional
        Seconds.
    **arguments
        Of the probe.
    """
    byte_compiled(checkout)
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    # One thread, so that figures do not depend on what BLAS does with the others.
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    if caches is not None:
        environment["NUMBA_CACHE_DIR"] = str(caches / "numba")
        environment["PYTENSOR_FLAGS"] = f"base_compiledir={caches / 'pytensor'}"
    begin = time.time()
    command = [sys.executable, "-W", "ignore", str(HERE / "probes.py"), name, json.dumps(arguments)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"{name} of {checkout} failed:\n{done.stderr[-4000:]}")
        printed = done.stdout
    except subprocess.TimeoutExpired as expired:
        printed = (expired.stdout or b"").decode()
    results = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    for result in results:
        if "at" in result:
            result["seconds"] = result.pop("at") - begin
    return results


def tell(**result):
    print(json.dumps(result, default=float), flush=True)


def imported():
    """Seconds that ``import pymc`` takes, and the package after it."""
    begin = time.perf_counter()
    import pymc  # noqa: F401

    middle = time.perf_counter()
    import pymc_dpgmm

    tell(pymc=middle - begin, package=time.perf_counter() - middle, file=pymc_dpgmm.__file__)


def leave_at_first_draw(trace, draw):
    tell(at=time.time())
    os._exit(0)


def first_draw():
    """When the first draw of a mixture on Old Faithful is there."""
    import pymc as pm

    import pymc_dpgmm as dp

    X = dp.datasets.load_old_faithful()
    with pm.Model():
        alpha = pm.Gamma("alpha", 1.0, 1.0)
        dp.DPMixture("y", alpha, observed=X)
        pm.sample(chains=1, cores=1, callback=leave_at_first_draw, **QUIET)


def first_draw_of_nuts():
    """When the first draw of a linear regression with three parameters is there."""
    import numpy as np
    import pymc as pm

    x = np.linspace(-1.0, 1.0, 100)
    y = 1.0 + 2.0 * x + np.random.default_rng(0).normal(size=100)
    with pm.Model():
        intercept, slope, sigma = (
            pm.Normal("intercept", 0, 10),
            pm.Normal("slope", 0, 10),
            pm.HalfNormal("sigma", 5),
        )
        pm.Normal("y", intercept + slope * x, sigma, observed=y)
        pm.sample(chains=1, cores=1, callback=leave_at_first_draw, **QUIET)


def mixing(data, repeats=3, draws=5_000, tune=500, scans=40_000):
    """Effective draws per second through ``pm.sample`` as it is, and of the bare loop.

    Seconds are those of sampling, with the share of the tuning draws taken off; compilation is not in them.
    """
    import arviz as az
    import bare_loop
    import numpy as np
    import pymc as pm

    import pymc_dpgmm as dp

    rows = bare_loop.small_data()[data]
    base = dp.NormalInverseGamma if rows.ndim == 1 else dp.NormalInverseWishart
    watched = {"n_clusters": bare_loop.N_CLUSTERS, "entropy": bare_loop.ENTROPY, "log_joint": bare_loop.LOG_JOINT}

    def sample(draws, tune, seed):
        with pm.Model():
            alpha = pm.Gamma("alpha", 1.0, 1.0)
            dp.DPMixture("y", alpha=alpha, base=base.from_data(rows), observed=rows)
            return pm.sample(draws, tune=tune, chains=1, cores=1, random_seed=seed, **QUIET)

    sample(5, 5, 0)
    bare_loop.run(rows, 5, 5, 0)
    for seed in range(repeats):
        idata = sample(draws, tune, seed)
        seconds = idata.posterior.attrs["sampling_time"] / (draws + tune)
        bare_seconds, trace = bare_loop.run(rows, scans, tune, seed)
        result = {"us": 1e6 * seconds, "bare_us": 1e6 * bare_seconds / scans}
        for name, column in watched.items():
            drawn = idata.sample_stats[f"y_labels_{name}"].astype(float)
            result[name] = float(az.ess(drawn)) / (seconds * draws)
            result[f"bare_{name}"] = float(az.ess(np.ascontiguousarray(trace[None, :, column]))) / bare_seconds
        tell(**result)


def wide_scans(d, n=1_000, n_clusters=4, draws=4):
    """Seconds of Gibbs scans of rows with many columns, one after the other, from the clusters that rows come from."""
    import numpy as np
    import pymc as pm

    import pymc_dpgmm as dp

    def sample(n, d, draws, **options):
        rng = np.random.default_rng(0)
        labels = np.repeat(np.arange(n_clusters), n // n_clusters)
        rows = rng.normal(size=(n, d)) + 5.0 * rng.normal(size=(n_clusters, d))[labels]
        base = dp.NormalInverseWishart(rows.mean(axis=0), 0.01, d + 2.0, 0.1 * np.diag(rows.var(axis=0)))
        with pm.Model():
            dp.DPMixture("y", 1.0, base, observed=rows, initval=labels)
            step = dp.CollapsedGibbs()
            pm.sample(draws, tune=0, chains=1, cores=1, step=step, random_seed=1, **options, **QUIET)

    def tell_seconds(trace, draw):
        own = next(own for own in draw.stats if "y_labels_seconds" in own)
        tell(seconds=float(own["y_labels_seconds"]), n_clusters=int(own["y_labels_n_clusters"]))

    # What is compiled, or read from the cache, is not counted.
    sample(40, 2, 2)
    tell(ready=True)
    sample(n, d, draws, callback=tell_seconds)


def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{field}:"))) / 1024


def memory(n, draws=5, tune=5):
    """MiB by which the process grows at the most while few draws are made and the labels of the last are kept."""
    import numpy as np
    import pymc as pm

    import pymc_dpgmm as dp

    def sample(n):
        rng = np.random.default_rng(0)
        truth = rng.integers(10, size=n)
        rows = rng.normal(size=(n, 2)) + 12.0 * rng.normal(size=(10, 2))[truth]
        # Linux: the peak counts from here.
        Path("/proc/self/clear_refs").write_text("5")
        before, begin = status("VmRSS"), time.perf_counter()
        keep = dp.ThinnedLabels("y_labels")
        with pm.Model():
            alpha = pm.Gamma("alpha", 1.0, 1.0)
            dp.DPMixture("y", alpha, dp.NormalInverseWishart.from_data(rows), observed=rows)
            names = ["alpha", "y_n_clusters"]
            options = {"chains": 1, "cores": 1, "var_names": names, "callback": keep, "random_seed": 1}
            pm.sample(draws, tune=tune, **options, **QUIET)
        assert keep.to_datatree()["y_labels"].shape == (1, 1, n)
        return {"mib": status("VmHWM") - before, "data_mib": rows.nbytes / 2**20, "s": time.perf_counter() - begin}

    # What is compiled is not counted; 100,000 rows are scanned in threads, as more are.
    sample(100_000)
    tell(**sample(n))


def inside_models(model, draws=2_000, tune=1_000):
    """Milliseconds of a draw of a model of ``truncated.py``, which has more than labels, on one core."""
    import pymc as pm
    from truncated import CASES

    run = {"chains": 1, "cores": 1, "random_seed": 1} | QUIET
    with CASES[model]().collapsed():
        # Once for what is compiled.
        pm.sample(2, tune=2, **run)
        idata = pm.sample(draws, tune=tune, **run)
    tell(ms_per_draw=1e3 * float(idata.posterior.attrs["sampling_time"]) / (draws + tune))


def task(of):
    """Seconds of one of the things that users do, once what is compiled is there; of several runs the least."""
    import itertools

    import dask.array
    import numpy as np
    import pymc as pm

    import pymc_dpgmm as dp

    # Searches take longer from some starts than from others.
    rng, seeds = np.random.default_rng(1), itertools.count(1)

    def rows(n, d):
        return 3.0 * rng.normal(size=(8, d))[rng.integers(8, size=n)] + rng.normal(size=(n, d))

    def sampled(make, draws, tune, **options):
        with pm.Model():
            make()
            seed = next(seeds)
            idata = pm.sample(draws, tune=tune, chains=1, cores=1, random_seed=seed, **options, **QUIET)
        return float(idata.posterior.attrs["sampling_time"]) / (draws + tune), idata

    def drawn(make, draws=300, tune=300, **options):
        return lambda: sampled(make, draws, tune, **options)[0]

    def timed(function):
        def run():
            begin = time.perf_counter()
            function()
            return time.perf_counter() - begin

        return run

    def latent():
        rate = dp.DPMixture("rate", 1.0, dp.NormalInverseGamma(pm.Normal("mu"), 0.3, 3.0, 1.0), shape=100)
        pm.Poisson("y", pm.math.exp(rate), observed=COUNTS)

    def process():
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 3.0), shape=100)
        pm.Laplace("y", theta, 1.0, observed=LINE)

    COUNTS, LINE = rng.poisson(rng.choice([2.0, 9.0], 100)), rows(100, 1)[:, 0]
    documents = rng.multinomial(200, rng.dirichlet(np.full(300, 0.05)), 100)
    small, many, group = rows(500, 2), rows(1_000_000, 2), np.arange(500) % 10
    truth = (many[:, 0] > 0).astype(int)
    base = dp.NormalInverseWishart.from_data(many)
    chunks = dask.array.from_array(many, chunks=(250_000, 2))
    asked = sampled(lambda: dp.DPMixture("y", 1.0, observed=small), 300, 100)[1] if of == "asked" else None
    grid = np.stack(np.meshgrid(*[np.linspace(-9.0, 9.0, 30)] * 2), axis=-1).reshape(-1, 2)
    few = {"draws": 40, "tune": 0, "var_names": ["y_n_clusters"]}
    tasks = {
        "words": {"draw": drawn(lambda: dp.LDA("y", 10, 0.1, 0.1, observed=documents), 50, 50)},
        "groups": {"draw": drawn(lambda: dp.HDPMixture("y", 1.0, 1.0, observed=small, group=group), 200, 200)},
        "process": {"draw": drawn(process)},
        "latent rows": {"draw": drawn(latent)},
        "a million rows": {
            f"draw, threads {n}": drawn(
                lambda: dp.DPMixture("y", 1.0, base, observed=many, initval=truth), dpmixture={"threads": n}, **few
            )
            for n in (1, 2)
        },
        "asked": {
            "density": timed(lambda: dp.density(asked, "y", grid)),
            "membership": timed(lambda: dp.membership(asked, "y", grid)),
            "summary": timed(lambda: dp.summary(asked, "y")),
            "new rows": timed(lambda: dp.sample_new_rows(asked, "y", 1_000, random_seed=1)),
        },
        "fit": {"fit": timed(lambda: fitted(small))},
        "dask": {"draw": drawn(lambda: dp.DPMixture("y", 1.0, base, observed=chunks), 5, 5)},
    }

    def fitted(data):
        with pm.Model():
            dp.DPMixture("y", 1.0, observed=data)
            dp.fit(random_seed=1, progressbar=False)

    for what, run in tasks[of].items():
        run()
        tell(what=what, seconds=min(run() for _ in range(3)))


TASKS = ("words", "groups", "process", "latent rows", "a million rows", "asked", "fit", "dask")
PROBES = {
    f.__name__: f
    for f in (task, imported, first_draw, first_draw_of_nuts, mixing, wide_scans, memory, inside_models)
}

if __name__ == "__main__":
    PROBES[sys.argv[1]](**json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}"))
