"""Numbers know nothing of the framework above them."""

import subprocess
import sys

import pytest

BELOW = [
    "pymc_dpgmm.partitions",
    "pymc_dpgmm.families",
    "pymc_dpgmm.kernels.gibbs",
    "pymc_dpgmm.kernels.marginal",
    "pymc_dpgmm.kernels.imputation",
    "pymc_dpgmm.kernels.schedule",
]
SCRIPT = """
import importlib.util, sys, types
# The package itself imports PyMC, so its parts are imported below an empty stand-in.
spec = importlib.util.find_spec("pymc_dpgmm")
package = types.ModuleType("pymc_dpgmm")
package.__path__ = list(spec.submodule_search_locations)
sys.modules["pymc_dpgmm"] = package
__import__({module!r})
loaded = [name for name in ("pymc", "pytensor") if name in sys.modules]
assert not loaded, loaded
"""


@pytest.mark.parametrize("module", BELOW)
def test_no_framework_below(module):
    subprocess.run([sys.executable, "-c", SCRIPT.format(module=module)], check=True)


def test_registered_once():
    import importlib

    from pymc.step_methods import STEP_METHODS

    import pymc_dpgmm

    before = list(STEP_METHODS)
    importlib.reload(pymc_dpgmm)
    assert before == STEP_METHODS
