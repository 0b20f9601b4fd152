"""Dependencies between variables of a model, digests of them, and models that remain unchanged on errors."""

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.integration.internals.pymc_internals import REGISTRIES, CircularTransform

PYTHON_MODE = Mode(linker="py", optimizer="fast_compile")


def interpreted(inputs: Sequence[Variable], outputs: Any) -> Callable[..., Any]:
    """Return a function that evaluates a small graph in Python.

    That takes microseconds; to compile the graph would take up to a second. In every mode PyTensor compiles graphs
    that are inside of operations, such as LogSumExp, with a C++ compiler if it knows of one, in half a second
    for each operation there.
    """
    with pytensor.config.change_flags(cxx=""):
        return pm.compile(inputs, outputs, mode=PYTHON_MODE, on_unused_input="ignore")


def value_of(variable: Variable) -> np.ndarray:
    """Return the value of a variable that depends on constants and shared variables alone."""
    return np.asarray(interpreted([], variable)())


def is_circular(transform: Any) -> bool:
    """Tell whether a transformation takes many numbers to the same one, so that their density has no integral."""
    return isinstance(transform, CircularTransform)


def with_densities(model: pm.Model) -> list[Variable]:
    """Return the random variables and potentials of a model."""
    return [*model.basic_RVs, *model.potentials]


def dependents(model: pm.Model, variable: Variable) -> list[Variable]:
    """Return the variables and potentials whose own log density depends on a variable, given all others.

    A variable that depends on it only through another random variable is not among them, unless that one is known
    by a number between bounds which depend on the variable: with the number as it is, it moves too.
    """
    random = set(model.basic_RVs)
    depending = []
    for other in with_densities(model):
        if other is variable:
            continue
        roots = other.owner.inputs if other in random else [other]
        if variable in set(ancestors(roots, blockers=random - {other})):
            depending.append(other)
    for other in depending:
        # The list grows while it is walked through.
        if _moves_with(model, other, variable):
            depending += [further for further in dependents(model, other) if further not in depending]
    return depending


def _moves_with(model: pm.Model, other: Variable, variable: Variable) -> bool:
    """Tell whether a random variable changes with another one where its value variable does not."""
    transform = model.rvs_to_transforms.get(other)
    if transform is None:
        return False
    others = set(model.basic_RVs) - {variable}
    constrained = transform.backward(model.rvs_to_values[other], *other.owner.inputs)
    return variable in set(ancestors([constrained], blockers=others))


def values_behind(model: pm.Model, roots: Sequence[Variable]) -> list[Variable]:
    """Return the value variables of a model that some expressions of them depend on, in the order of the model."""
    needed = set(ancestors(roots))
    return [value for value in model.value_vars if value in needed]


def count_numbers(model: pm.Model, variables: Sequence[Variable]) -> dict[Variable, int]:
    """Return how many numbers the value variables of some free variables have, by the variables."""
    lengths = {rv: model.rvs_to_values[rv].type.shape for rv in variables}
    if all(None not in shape for shape in lengths.values()):
        return {rv: math.prod(shape) for rv, shape in lengths.items()}
    # PyMC compiles a function for a point.
    point = model.initial_point(random_seed=0)
    return {rv: np.size(point[model.rvs_to_values[rv].name]) for rv in variables}


def digest_of(model: pm.Model, variable: Variable) -> str:
    """Return a digest of the operations and numbers in the density of a variable or potential, and of its data."""
    others = set(model.basic_RVs)
    digest = hashlib.sha256()
    for root in (variable, model.rvs_to_values.get(variable, variable)):
        roots = [root]
        if root.owner is not None:
            # The inner graphs of symbolic random variables have numbers too.
            inside = getattr(root.owner.op, "fgraph", None)
            roots = [*root.owner.inputs, *([] if inside is None else inside.outputs)]
            digest.update(_described(root.owner.op).encode())
        behind = list(ancestors(roots, blockers=others))
        numbered = {ancestor: number for number, ancestor in enumerate(behind)}
        for ancestor in behind:
            if ancestor in others:
                digest.update(str(ancestor.name).encode())
            elif ancestor.owner is not None:
                takes = [numbered[taken] for taken in ancestor.owner.inputs]
                digest.update(f"{_described(ancestor.owner.op)}{takes}".encode())
            value = numbers_in(ancestor)
            if value is not None:
                digest.update(f"{value.dtype}{value.shape}".encode())
                digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def _described(op: Any) -> str:
    """Return what an operation does, in words that are the same in every process."""
    scalar = getattr(op, "scalar_op", None)
    properties = [getattr(op, name, None) for name in getattr(op, "__props__", None) or ()]
    plain = [value for value in properties if _is_plain(value)]
    return f"{type(op).__name__}{'' if scalar is None else scalar}{plain}"


def _is_plain(value: Any) -> bool:
    """Tell whether a property is made of numbers and texts alone, and has no place in memory."""
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def digests_of(model: pm.Model) -> dict[str, str]:
    """Return the digests of all variables and potentials of a model, by their names."""
    return {str(variable.name): digest_of(model, variable) for variable in with_densities(model)}


def numbers_in(leaf: Variable) -> np.ndarray | None:
    """Return the numbers of a constant or of data, None for anything else."""
    value: Any = None
    if getattr(leaf.tag, "is_state", False):
        # The state of a sampler is no data.
        return None
    if isinstance(leaf, Constant):
        value = leaf.data
    elif isinstance(leaf, SharedVariable):
        value = leaf.get_value(borrow=True)
    return value if isinstance(value, np.ndarray) and value.dtype != object else None


def replace_data(model: pm.Model, old: Variable, new: Variable) -> None:
    """Replace a constant registered in a model, also in the models that it is nested in."""
    for registering in _with_parents(model):
        for position, var in enumerate(registering.data_vars):
            if var is old:
                # PyMC's lists of variables forbid assignment to items.
                list.__setitem__(registering.data_vars, position, new)


def _with_parents(model: pm.Model) -> list[pm.Model]:
    """Return a model and those that it is nested in."""
    models = [model]
    while models[-1].parent is not None:
        models.append(models[-1].parent)
    return models


@contextlib.contextmanager
def unchanged_on_error(model: pm.Model) -> Iterator[None]:
    """Restore everything that a model has registered if the body raises."""
    containers = [getattr(m, key) for m in _with_parents(model) for key in REGISTRIES]
    before = [list(c) if isinstance(c, list) else dict(c) for c in containers]
    try:
        yield
    except BaseException:
        # Containers of a nested model pass changes on to those of its parent, which are restored separately.
        for container, content in zip(containers, before, strict=True):
            if isinstance(container, list):
                list.__setitem__(container, slice(None), content)
            else:
                dict.clear(container)
                dict.update(container, content)
        raise
