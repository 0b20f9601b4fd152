"""What is no public interface of PyMC, PyTensor and numba is taken in one module each, and is what it was."""

import ast
import inspect
from pathlib import Path

import numba
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors

import pymc_dpgmm
from pymc_dpgmm.integration.hooks import backends
from pymc_dpgmm.integration.internals import modes, pymc_internals

PACKAGE = Path(pymc_dpgmm.__file__).parent
SOURCES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
# The modules that may look inside. Those of numba are tested in test_compiled.py.
PYMC, PYTENSOR, NUMBA, ARRAYS, POINTERS, LOOPS = (
    "integration/internals/pymc_internals.py",
    "integration/hooks/backends.py",
    "native/compiled.py",
    "native/array_calls.py",
    "native/block_pointers.py",
    "native/lane_products.py",
)


def imported(path):
    """Modules and names that a file imports, with dots between."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def looks_inside(name, library):
    """Whether an import is of something that a library does not offer to users or to authors of extensions."""
    first, *rest = name.split(".")
    if first != library or not rest:
        return False
    private = any(part.startswith("_") for part in rest)
    return (
        private
        or (library == "pymc" and not hasattr(pm, rest[0]))
        or (library == "pymc" and len(rest) > 1)
        or (library == "pytensor" and rest[0] == "link")
        or (library == "numba" and rest[0] == "core")
    )


@pytest.mark.parametrize(("library", "own"), [("pymc", PYMC), ("pytensor", PYTENSOR), ("numba", NUMBA)])
def test_one_module_looks_inside(library, own):
    """Of numba three more, which call machine code with arrays, give pointers attributes, and write loops."""
    found = {file for file, path in SOURCES.items() if any(looks_inside(n, library) for n in imported(path))}
    assert found == ({own, ARRAYS, POINTERS, LOOPS} if library == "numba" else {own})


def test_nothing_private_is_read_from_other_packages():
    """Such as ``pm.model._something``."""
    libraries = {"pm", "pt", "az", "xr", "pd", "np", "pytensor", "numba", "pymc"}
    for file, path in SOURCES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
                root = node.value
                while isinstance(root, ast.Attribute):
                    root = root.value
                assert not (isinstance(root, ast.Name) and root.id in libraries), f"{file}: {ast.unparse(node)}"


def parameters(function):
    return list(inspect.signature(function).parameters)


def test_functions_of_pymc_take_what_they_are_given():
    own = pymc_internals
    assert parameters(own.assign_step_methods)[:1] == ["model"]
    wanted = ["model", "steps", "selected_steps", "step_kwargs", "initial_point", "compile_kwargs"]
    assert parameters(own.instantiate_steppers) == wanted
    assert parameters(own.make_initial_point_fns_per_chain) == ["model", "overrides", "jitter_rvs", "chains"]
    assert parameters(own.get_value_vars_from_user_vars) == ["vars", "model"]
    assert {"model", "test_point"} <= set(parameters(own.NDArray))
    assert parameters(own.NDArray.setup)[:4] == ["self", "draws", "chain", "sampler_vars"]
    assert parameters(own.NDArray.record) == ["self", "point", "sampler_stats", "in_warmup"]
    assert parameters(own.MultiTrace) == ["straces"]


def test_densities_and_starts_are_dispatched_on_operations():
    for dispatched in (pymc_internals.logprob, pymc_internals.support_point):
        assert callable(dispatched.dispatch)
        assert callable(dispatched.register)
    assert parameters(pymc_internals.logprob)[:2] == ["op", "values"]
    assert parameters(pymc_internals.support_point)[:2] == ["op", "rv"]


def test_steps_of_pymc_have_the_state_that_ours_extend():
    own = pymc_internals
    assert own.Competence.INCOMPATIBLE < own.Competence.COMPATIBLE < own.Competence.IDEAL
    assert {"var_names", "rng"} <= set(own.StepMethodState.__dataclass_fields__)
    for name in (
        "_progressbar_config",
        "_make_progressbar_update_functions",
        "setup_chain",
        "stop_tuning",
        "step",
    ):
        assert callable(getattr(own.BlockedStep, name))
    assert isinstance(own.BlockedStep.sampling_state, property)
    assert hasattr(own.BlockedStep, "_state_class")
    assert own.STEP_METHODS is pm.step_methods.STEP_METHODS


def test_a_model_registers_in_these_containers():
    with pm.Model() as model:
        pm.Normal("x")
    for name in pymc_internals.REGISTRIES:
        assert isinstance(getattr(model, name), list | dict), name
    containers = {name for name, value in vars(model).items() if isinstance(value, list | dict)}
    assert containers == set(pymc_internals.REGISTRIES)


def test_generic_steps_join_their_variables_under_this_name():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        pm.Normal("y")
    outputs, joined = pm.pytensorf.join_nonshared_inputs(
        model.initial_point(), [model.logp()], model.value_vars, make_inputs_shared=False
    )
    assert joined.name == pymc_internals.JOINED_INPUTS
    assert joined in set(ancestors(outputs))


def test_logarithms_are_told_from_other_transforms():
    with pm.Model() as model:
        pm.Gamma("x", 1.0, 1.0)
        pm.Beta("y", 1.0, 1.0)
    found = {rv.name: isinstance(t, pymc_internals.LogTransform) for rv, t in model.rvs_to_transforms.items()}
    assert found == {"x": True, "y": False}


def test_backends_of_pytensor():
    assert callable(backends.numba_core_rv_funcify.register)
    assert backends.get_numba_type(pt.dvector().type) == numba.types.Array(numba.types.float64, 1, "A")
    assert callable(backends.numba_njit)
    modes.check_mode(None)
    modes.check_mode("FAST_COMPILE")
