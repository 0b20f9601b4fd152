"""Rooms import from those before them in the table of CONTRIBUTING; numbers know nothing of the framework."""

import ast
import functools
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

import pymc_dpgmm
from pymc_dpgmm.native import compiled
from pymc_dpgmm.native.compiled import CFunction
from pymc_dpgmm.native.fingerprints import own_sources

PACKAGE = Path(pymc_dpgmm.__file__).parent
# A room imports from those before it. CONTRIBUTING.md tells what each is for.
ROOMS = [
    "native",
    "tables",
    "partitions",
    "families.contract",
    "families.shared",
    "families",
    "sampler",
    "sampler.state",
    "sampler.hyperparameters",
    "sampler.moves",
    "sampler.many_rows",
    "sampler.latent_rows",
    "sampler.hamiltonian",
    "sampler.topics",
    "sampler.segments",
    "sampler.hidden_states",
    "sampler.tuning",
    "sampler.atoms",
    "chunked",
    "variational",
    "posterior.arrays",
    "integration.internals",
    "integration.variables",
    "integration.process_density",
    "integration.continuous",
    "integration.steps",
    "integration.runs",
    "models",
    "variational.model",
    "posterior",
    "posterior.plots",
    "integration.hooks",
    "integration",
    "datasets",
    "",
]


@functools.cache
def modules():
    """Paths of all modules by their names, and the names of those that are packages."""
    paths = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def room_of(module):
    name = module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]
    return name.removeprefix("pymc_dpgmm").removeprefix(".")


def imported_by(module):
    """Modules of the package that one imports, anywhere in it, also by a text that is a name."""
    known = modules()
    tree = ast.parse(known[module].read_text())
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                yield f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.Constant) and node.value in known and node.value != "pymc_dpgmm":
            yield node.value


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_from_earlier_rooms(room):
    later = ROOMS[ROOMS.index(room) + 1 :]
    wrong = {
        f"{module} imports {other}"
        for module in modules()
        if room_of(module) == room
        for other in imported_by(module)
        if room_of(other) in later
    }
    assert not wrong


def test_all_rooms_are_in_the_list_and_in_the_table_for_contributors_in_order():
    assert {room_of(module) for module in modules()} == set(ROOMS)
    table = (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    rooms = re.findall(r"^\| `([\w/]+)/` \|", table, flags=re.MULTILINE)
    assert rooms == [room.replace(".", "/") for room in ROOMS if room]


def test_few_modules_lie_beside_the_rooms():
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "testing.py"}


def test_code_is_stamped_with_all_files_that_it_is_made_from():
    """What the stamped folders compile and call comes from stamped files alone."""
    stamped, seen = set(own_sources()), 0
    for module, path in modules().items():
        if str(path) not in stamped:
            continue
        for value in vars(importlib.import_module(module)).values():
            function = value.__wrapped__ if isinstance(value, CFunction) else getattr(value, "py_func", value)
            if isinstance(function, FunctionType) and (function is not value or function in compiled._inlined):
                seen += 1
                written_out = function.__code__.co_filename.startswith("<fields of")
                assert written_out or function.__code__.co_filename in stamped, (module, function)
    assert seen > 500


def test_pymc_is_left_alone_until_there_is_a_variable_of_the_package():
    script = """
import importlib
import pymc as pm
from pymc_dpgmm.integration.internals.pymc_internals import WRAPPED
import pymc_dpgmm as dp

def wrapped():
    return {
        name for name, places in WRAPPED.items()
        if any(hasattr(getattr(importlib.import_module(place), name), "wrapped_by") for place in places)
    }

# A model keeps the function that prints it from when it is made.
assert wrapped() == {"str_for_model"}, wrapped()
with pm.Model() as model:
    pm.Normal("x")
assert wrapped() == {"str_for_model"}, wrapped()
with model:
    dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0, 1, 2, 1), observed=[0.0, 1.0])
assert wrapped() > {"str_for_model", "run_convergence_checks", "compute_log_density"}, wrapped()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


# PyMC and what it brings, which kernels and families do without, and what labels results.
MODELS = ("pymc", "pytensor")
LABELS = ("xarray", "arviz", "arviz_base", "arviz_stats", "arviz_plots")
ABOVE = MODELS + LABELS
BELOW = [
    "pymc_dpgmm.partitions.draws",
    "pymc_dpgmm.partitions.n_clusters",
    "pymc_dpgmm.tables.rows",
    "pymc_dpgmm.families",
    "pymc_dpgmm.sampler.moves.sweep",
    "pymc_dpgmm.sampler.state.marginal",
    "pymc_dpgmm.sampler.moves.imputation",
    "pymc_dpgmm.sampler.tuning.schedule",
    "pymc_dpgmm.chunked.partition",
    "pymc_dpgmm.chunked.dask_rows",
    "pymc_dpgmm.sampler.atoms.auxiliary",
    "pymc_dpgmm.sampler.atoms.scales",
    "pymc_dpgmm.sampler.atoms.compiled_sweeps",
    "pymc_dpgmm.variational.search",
    "pymc_dpgmm.variational.draws",
]
ARRAYS = sorted(path.stem for path in PACKAGE.glob("posterior/arrays/[!_]*.py"))
SCRIPT = """
import importlib.util, json, os, sys, traceback, types
# What the modules share from elsewhere; each is imported in a process of its own, from the same beginning.
import numba, numpy, scipy.linalg, scipy.optimize, scipy.special, scipy.stats
import cloudpickle, gzip, multiprocessing, numba.extending, pandas, tarfile
# The packages themselves import PyMC and xarray, so their parts are imported below empty stand-ins.
folder = importlib.util.find_spec("pymc_dpgmm").submodule_search_locations[0]
for name in ("pymc_dpgmm", "pymc_dpgmm.posterior"):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [folder + name.removeprefix("pymc_dpgmm").replace(".", "/")]
before = [name for name in sys.modules if name.startswith("pymc_dpgmm.") and name != "pymc_dpgmm.posterior"]
assert not before, before
found = {{}}
for module in {modules!r}:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            __import__(module)
            answer = [name for name in {above!r} if name in sys.modules]
        except BaseException:
            answer = traceback.format_exc()
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as answers:
        found[module] = json.loads(answers.read() or '"its process died"')
    os.waitpid(child, 0)
print(json.dumps(found))
"""


@functools.cache
def imported_from_above():
    """For each module, the packages of those above that are there after it alone was imported, or its error."""
    script = SCRIPT.format(modules=BELOW + [f"pymc_dpgmm.posterior.arrays.{name}" for name in ARRAYS], above=ABOVE)
    return json.loads(subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE).stdout)


@pytest.mark.parametrize("module", BELOW)
def test_no_framework_below(module):
    found = imported_from_above()[module]
    assert isinstance(found, list), found
    assert not set(found) & set(MODELS)


@pytest.mark.parametrize("module", ARRAYS)
def test_numbers_of_draws_have_no_labels(module):
    assert imported_from_above()[f"pymc_dpgmm.posterior.arrays.{module}"] == []


def test_registered_once():
    import importlib

    from pymc.step_methods import STEP_METHODS

    before = list(STEP_METHODS)
    importlib.reload(pymc_dpgmm)
    assert before == STEP_METHODS
