"""Numbers know nothing of the framework above them."""

import subprocess
import sys
from pathlib import Path

import pytest

import pymc_dpgmm

# PyMC and what it brings, which kernels and families do without, and what labels results.
MODELS = ("pymc", "pytensor")
LABELS = ("xarray", "arviz", "arviz_base", "arviz_stats", "arviz_plots")
BELOW = [
    "pymc_dpgmm.partitions.priors",
    "pymc_dpgmm.tables.rows",
    "pymc_dpgmm.families",
    "pymc_dpgmm.sampler.moves.gibbs",
    "pymc_dpgmm.sampler.state.marginal",
    "pymc_dpgmm.sampler.moves.imputation",
    "pymc_dpgmm.sampler.tuning.schedule",
    "pymc_dpgmm.chunked.partition",
    "pymc_dpgmm.chunked.dask_rows",
    "pymc_dpgmm.sampler.atoms.auxiliary",
    "pymc_dpgmm.sampler.atoms.atom_moves",
    "pymc_dpgmm.variational.search",
    "pymc_dpgmm.variational.draws",
]
ARRAYS = sorted(path.stem for path in Path(pymc_dpgmm.__file__).parent.glob("posterior/arrays/[!_]*.py"))
SCRIPT = """
import importlib.util, sys, types
# The packages themselves import PyMC and xarray, so their parts are imported below empty stand-ins.
folder = importlib.util.find_spec("pymc_dpgmm").submodule_search_locations[0]
for name in ("pymc_dpgmm", "pymc_dpgmm.posterior"):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [folder + name.removeprefix("pymc_dpgmm").replace(".", "/")]
__import__({module!r})
loaded = [name for name in {above!r} if name in sys.modules]
assert not loaded, loaded
"""


def assert_not_imported(module, above):
    subprocess.run([sys.executable, "-c", SCRIPT.format(module=module, above=above)], check=True)


@pytest.mark.parametrize("module", BELOW)
def test_no_framework_below(module):
    assert_not_imported(module, MODELS)


@pytest.mark.parametrize("module", ARRAYS)
def test_numbers_of_draws_have_no_labels(module):
    assert_not_imported(f"pymc_dpgmm.posterior.arrays.{module}", MODELS + LABELS)


def test_registered_once():
    import importlib

    from pymc.step_methods import STEP_METHODS

    before = list(STEP_METHODS)
    importlib.reload(pymc_dpgmm)
    assert before == STEP_METHODS
