"""What pm.sample tells of convergence: of partitions, and not of names of clusters."""

import logging
import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.sampling import mcmc

import pymc_dpgmm as dp
from pymc_dpgmm.integration.hooks.convergence import checked_without_labels, partition_warnings
from pymc_dpgmm.integration.hooks.guards import guard

ROWS = np.random.default_rng(0).normal(size=(40, 2)) + 6.0 * (np.arange(40) % 3)[:, None]


@pytest.fixture
def told(caplog, monkeypatch):
    """Lines of PyMC's log, which passes nothing on by itself."""
    monkeypatch.setattr(logging.getLogger("pymc"), "propagate", True)
    caplog.set_level("INFO", logger="pymc")
    return lambda: [r.getMessage() for r in caplog.records if r.name.startswith("pymc.stats")]


def sample(draws, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return pm.sample(draws, chains=4, cores=1, random_seed=2, progressbar=False, **options)


@pytest.mark.parametrize("alpha", [1.0, "gamma", pytest.param("exponential", marks=pytest.mark.slow)])
def test_an_ordinary_run_tells_of_nothing(alpha, told):
    """No warning in an ordinary run, however alpha is drawn."""
    with pm.Model():
        if alpha == "gamma":
            alpha = pm.Gamma("alpha", 1.0, 1.0)
        elif alpha == "exponential":
            alpha = pm.Exponential("alpha", 1.0)
        dp.DPMixture("y", alpha, observed=ROWS)
        sample(1_000, tune=300)
    assert told() == []


def test_chains_apart_are_told_of(told):
    with pm.Model() as model:
        pm.Normal("x")
        dp.DPMixture("y", 1.0, observed=ROWS)
        starts = [{"y_labels": labels} for labels in (np.zeros(40, int), np.arange(40) % 3) for _ in range(2)]
        step = dp.CollapsedGibbs([model["y_labels"]])
        sample(150, tune=0, step=[step], initvals=starts)
    (line,) = [line for line in told() if line.startswith("y_labels")]
    assert "R-hat of" in line
    assert "dp.partition_diagnostics" in line


def trace(**statistics):
    values = {f"z_{name}": (("chain", "draw"), value) for name, value in statistics.items()}
    return xr.DataTree.from_dict({"sample_stats": xr.Dataset(values)})


def test_few_effective_draws_and_chains_that_stand_still():
    rng = np.random.default_rng(0)
    fine, slow = rng.normal(size=(4, 1_000)), np.cumsum(rng.normal(size=(4, 1_000)), axis=1)
    still = np.repeat([[1], [1], [2], [2]], 1_000, axis=1)
    assert not list(partition_warnings(trace(n_clusters=np.full((4, 1_000), 3), entropy=fine), ["z"]))
    (told,) = partition_warnings(trace(n_clusters=fine, entropy=slow), ["z"])
    assert "the entropy of the clusters' sizes has" in told.message
    (told,) = partition_warnings(trace(n_clusters=still, entropy=fine), ["z"])
    assert "R-hat of the number of clusters is inf" in told.message
    assert not list(partition_warnings(trace(), ["z"]))


def test_warnings_of_pymc_name_the_worst_entries():
    """R-hat and effective draws of a vector with names, of a matrix without, and of a number."""
    rng = np.random.default_rng(1)
    with pm.Model(coords={"dose": ["low", "high"]}) as model:
        pm.Normal("b", dims="dose")
        pm.Normal("c", shape=(2, 2))
        pm.Normal("d")
        dp.DPMixture("y", 1.0, observed=ROWS)
    draws = {name: rng.normal(size=(4, 500, *shape)) for name, shape in (("b", (2,)), ("c", (2, 2)), ("d", ()))}
    draws["b"][..., 1] += 3.0 * np.arange(4)[:, None]
    draws["c"][:, :, 1, 0] = np.cumsum(draws["c"][:, :, 1, 0], axis=1)
    dims = {"b": ("dose",), "c": ("c_dim_0", "c_dim_1"), "d": ()}
    posterior = xr.Dataset(
        {name: (("chain", "draw", *dims[name]), values) for name, values in draws.items()},
        coords={"chain": range(4), "draw": range(500), "dose": ["low", "high"]},
    )
    told = mcmc.run_convergence_checks(xr.DataTree.from_dict({"posterior": posterior}), model)
    r_hat, fewest = (warning.message for warning in told)
    assert r_hat.startswith("R-hat is largest for b[high] (")
    assert "c[1, 0] (" in r_hat
    assert "low" not in r_hat
    assert fewest.startswith("Effective draws of all chains are fewest for ")


def test_variables_that_stay_are_told_of():
    """R-hat of them is no number, and would say nothing."""
    with pm.Model() as model:
        pm.Normal("b", shape=2)
        pm.Normal("c")
        dp.DPMixture("y", 1.0, observed=ROWS)
    draws = np.random.default_rng(1).normal(size=(4, 500, 2))
    draws[..., 1] = 0.3
    posterior = xr.Dataset({"b": (("chain", "draw", "b_dim_0"), draws), "c": (("chain", "draw"), draws[..., 0])})
    told = mcmc.run_convergence_checks(xr.DataTree.from_dict({"posterior": posterior}), model)
    assert [warning.message[:33] for warning in told] == ["b had the same value in all draws"]


def test_other_models_are_checked_by_pymc_alone(told):
    with pm.Model():
        x = pm.Normal("x")
        pm.Normal("data", x, observed=1.0)
        sample(300, tune=300)
    assert told() == []


def test_the_check_of_pymc_is_where_it_was():
    """The name that pm.sample looks up, what it is called with, and that it is wrapped once."""
    wrapped = mcmc.run_convergence_checks
    assert wrapped.wrapped_by is checked_without_labels
    guard()
    assert mcmc.run_convergence_checks is wrapped
    called = []
    checked_without_labels(lambda idata, model: called.append((idata, model)) or [])(xr.DataTree(), pm.Model())
    assert len(called) == 1


def test_a_number_of_clusters_that_never_changed_is_told_of(told, caplog):
    """It has no R-hat, and a sampler whose moves are never accepted looks like a sure answer."""
    fine = np.random.default_rng(1).normal(size=(2, 200))
    same = trace(n_clusters=np.full((2, 200), 2), entropy=fine, log_joint=fine)
    assert not list(partition_warnings(same, ["z"]))
    assert "z: the number of clusters was the same in every draw, so that R-hat tells nothing of it" in caplog.text
