"""What depends on what in a model, and models that errors leave as they were."""

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.mode import Mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.integration.internals.pymc_internals import REGISTRIES

# Graphs that turn a point into a handful of numbers: interpreting them takes microseconds, compiling them
# would take a good part of a second.
SMALL_GRAPH = Mode(linker="py", optimizer="fast_compile")


def with_densities(model: pm.Model) -> list[Variable]:
    """Return the random variables and potentials of a model."""
    return [*model.basic_RVs, *model.potentials]


def dependents(model: pm.Model, variable: Variable) -> list[Variable]:
    """Return the variables and potentials of a model whose own log density depends on a variable.

    A variable that depends on it only through another random variable is not among them.
    """
    random = set(model.basic_RVs)
    found = []
    for other in with_densities(model):
        if other is variable:
            continue
        roots = other.owner.inputs if other in random else [other]
        if variable in set(ancestors(roots, blockers=random - {other})):
            found.append(other)
    return found


def digest_of(model: pm.Model, variable: Variable) -> str:
    """Return a digest of what the density of a variable, or a potential, is made of, and of its data."""
    others = set(model.basic_RVs)
    digest = hashlib.sha256()
    for own in (variable, model.rvs_to_values.get(variable, variable)):
        roots = [own]
        if own.owner is not None:
            # Variables that are graphs of their own have numbers inside too.
            inside = getattr(own.owner.op, "fgraph", None)
            roots = [*own.owner.inputs, *([] if inside is None else inside.outputs)]
            digest.update(type(own.owner.op).__name__.encode())
        for found in ancestors(roots, blockers=others):
            if found.owner is not None:
                digest.update(type(found.owner.op).__name__.encode())
            value = numbers_in(found)
            if value is not None:
                digest.update(f"{value.dtype}{value.shape}".encode())
                digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def digests_of(model: pm.Model) -> dict[str, str]:
    """Return the digests of all variables and potentials of a model, by their names."""
    return {str(variable.name): digest_of(model, variable) for variable in with_densities(model)}


def numbers_in(leaf: Variable) -> np.ndarray | None:
    """Return the numbers of a constant or of data, None for anything else."""
    value: Any = None
    if getattr(leaf.tag, "is_state", False):
        # Of a sampler, which sets it.
        return None
    if isinstance(leaf, Constant):
        value = leaf.data
    elif isinstance(leaf, SharedVariable):
        value = leaf.get_value(borrow=True)
    return value if isinstance(value, np.ndarray) and value.dtype != object else None


def replace_data(model: pm.Model, old: Variable, new: Variable) -> None:
    """Register another constant in place of one of a model's, also in the models around it."""
    for own in _with_parents(model):
        for position, var in enumerate(own.data_vars):
            if var is old:
                # PyMC's lists of variables let nothing be replaced by itself.
                list.__setitem__(own.data_vars, position, new)


def _with_parents(model: pm.Model) -> list[pm.Model]:
    """Return a model and those that it is nested in."""
    models = [model]
    while models[-1].parent is not None:
        models.append(models[-1].parent)
    return models


@contextlib.contextmanager
def unchanged_on_error(model: pm.Model) -> Iterator[None]:
    """Put back what a model has registered if the body raises."""
    containers = [getattr(m, key) for m in _with_parents(model) for key in REGISTRIES]
    before = [list(c) if isinstance(c, list) else dict(c) for c in containers]
    try:
        yield
    except BaseException:
        # The containers of a nested model pass changes on to its parent's, which are put back themselves.
        for container, content in zip(containers, before, strict=True):
            if isinstance(container, list):
                list.__setitem__(container, slice(None), content)
            else:
                dict.clear(container)
                dict.update(container, content)
        raise
