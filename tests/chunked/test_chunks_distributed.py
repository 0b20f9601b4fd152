"""Rows in chunks on the workers of a client: the same draws, also where a worker dies."""

import os
import signal
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from chunked import RUN, three_groups

import pymc_dpgmm as dp

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    # Sockets and files of processes that have been killed.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def client():
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 10}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client
    # What a client leaves behind as the scheduler of later tests.
    dask.config.config.pop("scheduler", None)


def rows(n):
    return da.from_array(three_groups(n)[0], chunks=(n // 6, 2))


def sample(array, callback=None, base=None):
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), base, observed=array)
        return pm.sample(
            draws=20, tune=10, chains=2, callback=callback, dpmixture={"chunks": {"scanned": 200}}, **RUN
        )


def assert_same_draws(idata, others):
    for group in ("posterior", "y_clusters"):
        xr.testing.assert_identical(idata[group].dataset.drop_attrs(), others[group].dataset.drop_attrs())


def test_draws_are_those_of_threads(client):
    array = rows(6_000)
    found = sample(array)
    labels = dp.chunked_labels(found, "y", array).to_numpy()
    client.close()
    with dask.config.set(scheduler="threads"):
        assert_same_draws(sample(array), found)
        np.testing.assert_array_equal(labels, dp.chunked_labels(found, "y", array))


def test_a_family_of_a_notebook_gets_to_the_workers(client):
    # Workers cannot import what a notebook defines.
    source = (Path(__file__).parents[2] / "docs" / "waiting_times.py").read_text()
    own = {"__name__": "__main__"}
    exec(compile(source.split("\nif __name__")[0], "a cell", "exec"), own)
    times = np.random.default_rng(1).exponential(np.where(np.arange(6_000) % 2, 0.1, 5.0))
    array, base = da.from_array(times[:, None], chunks=(1_000, 1)), own["WaitingTimes"](1.0, 1.0)
    found = sample(array, base=base)
    client.close()
    with dask.config.set(scheduler="threads"):
        assert_same_draws(sample(array, base=base), found)


def test_draws_survive_a_worker(client):
    array = rows(6_000).persist()
    with dask.config.set(scheduler="threads"):
        wanted = sample(rows(6_000))
    killed = []

    def kill(trace, draw):
        if draw.draw_idx == 12 and draw.chain == 0:
            pid = client.run(os.getpid)
            killed.append(next(iter(pid.values())))
            os.kill(killed[0], signal.SIGKILL)

    assert_same_draws(sample(array, kill), wanted)
    assert killed


def test_lost_data_stop_a_run_with_words_and_a_checkpoint(client, tmp_path):
    # Data that only the workers have: nothing tells how to make it again.
    values = three_groups(6_000)[0]
    parts = client.scatter(list(np.split(values, 6)))
    array = da.concatenate([da.from_delayed(part, (1_000, 2), float) for part in parts])

    def build(data):
        with pm.Model() as model:
            dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=data)
        return model

    run = dp.ResumableRun(build(array), chains=1, tune=5, random_seed=1)
    run.sample(5, progressbar=False, checkpoint=tmp_path / "run")
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="checkpoint="):
        run.sample(5, progressbar=False)
    client.close()
    with dask.config.set(scheduler="threads"):
        again = da.from_array(values, chunks=(1_000, 2))
        found = dp.ResumableRun.load(tmp_path / "run", build(again)).sample(5, progressbar=False)
        whole = dp.ResumableRun(build(again), chains=1, tune=5, random_seed=1).sample(10, progressbar=False)
    assert_same_draws(found, whole)


def test_a_closed_client_is_named(client):
    array = rows(600).persist()
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, observed=array)
    client.close()
    with pytest.raises(RuntimeError, match="was not completed"):
        pm.sample(draws=5, tune=5, chains=1, model=model, **RUN)


def test_fit_is_that_of_threads(client):
    array = rows(6_000)

    def fit():
        with pm.Model():
            dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), observed=array)
            return dp.fit(n_starts=1, random_seed=1, progressbar=False)

    found = fit()
    r = found.responsibilities().compute()
    client.close()
    with dask.config.set(scheduler="threads"):
        other = fit()
        np.testing.assert_array_equal(found.elbo, other.elbo)
        np.testing.assert_array_equal(r, other.responsibilities().compute())
