"""Importing the package imports what building and sampling a model needs, and the rest when it is asked for."""

import json
import pickle
import subprocess
import sys

import pytest

import pymc_dpgmm as dp

# What belongs to work after sampling, and takes long to import.
LATER = (
    "arviz",
    "arviz_base",
    "arviz_plots",
    "arviz_stats",
    "matplotlib",
    "pymc_dpgmm.variational.model",
    "pymc_dpgmm.posterior.plots",
    "pymc_dpgmm.posterior",
    "pymc_dpgmm.testing",
    "pymc_dpgmm.variational",
    "scipy.cluster",
    "scipy.optimize",
    "scipy.signal",
    "scipy.sparse",
    "scipy.sparse.csgraph",
    "scipy.stats",
)


def run(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_nothing_is_imported_for_later():
    script = """
import json, sys
import pymc
before = set(sys.modules)
import pymc_dpgmm
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    brought = run(script)
    assert "pymc_dpgmm" in brought
    assert [name for name in brought if name in LATER] == []


def test_every_name_in_a_new_process():
    """Names are there by attribute, by import and by ``*``, and listed before they are imported."""
    script = """
import json
import pymc_dpgmm as dp
listed = dir(dp)
kinds = {name: type(getattr(dp, name)).__name__ for name in (*dp.__all__, "posterior")}
print(json.dumps({"listed": listed, "kinds": kinds}))
"""
    found = run(script)
    assert set(dp.__all__) | {"posterior", "__version__"} <= set(found["listed"])
    assert len(found["listed"]) == len(set(found["listed"]))
    modules = {name for name, kind in found["kinds"].items() if kind == "module"}
    assert modules == {"datasets", "posterior"}
    script = """
import json
from pymc_dpgmm import *
from pymc_dpgmm import posterior
import pymc_dpgmm as dp
same = all(globals()[name] is getattr(dp, name) for name in dp.__all__)
print(json.dumps(same and dp.posterior is posterior))
"""
    assert run(script)


def test_steps_and_densities_are_registered_by_the_import():
    script = """
import json
import pymc_dpgmm as dp
from pymc.logprob.abstract import _logprob
from pymc.step_methods import STEP_METHODS
from pymc_dpgmm.integration.variables import CollapsedMixtureRV, MissingEntriesRV
default = _logprob.dispatch(object)
densities = [_logprob.dispatch(rv) is not default for rv in (CollapsedMixtureRV, MissingEntriesRV)]
steps = [STEP_METHODS.count(step) for step in (dp.DPMixtureStep, dp.ConcentrationGibbs, dp.ComponentsGibbs)]
print(json.dumps([densities, steps]))
"""
    assert run(script) == [[True, True], [1, 1, 1]]


def test_a_name_is_the_same_object_every_time():
    assert dp.summary is dp.summary
    assert dp.plot_density is dp.posterior.plots.plot_density
    assert dp.density is dp.posterior.density
    assert vars(dp)["summary"] is dp.summary


@pytest.mark.parametrize("name", ["summary", "plot_sizes", "DPMixture", "ResumableRun"])
def test_pickled_by_name(name):
    assert pickle.loads(pickle.dumps(getattr(dp, name))) is getattr(dp, name)


def test_unknown_names():
    with pytest.raises(AttributeError, match="module 'pymc_dpgmm' has no attribute 'sumary'"):
        _ = dp.sumary
    with pytest.raises(ImportError, match="sumary"):
        exec("from pymc_dpgmm import sumary")
