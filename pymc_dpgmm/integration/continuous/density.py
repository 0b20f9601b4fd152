"""The log density of a model given its labels, and its gradient, as one function of one vector.

The vector has the values of free variables, and what moves of each *part*: rows of a latent mixture with their
clusters (``rows.py``), or atoms of a Dirichlet process (``atoms.py``). All else is a further input.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError, grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.xtensor import as_xtensor

from pymc_dpgmm.integration.internals.direct import DirectFunction
from pymc_dpgmm.integration.internals.pymc_internals import rewrite_pregrad
from pymc_dpgmm.integration.variables.models import values_behind, with_densities
from pymc_dpgmm.tables.checks import has_dims, without_dims


class ModelPart(Protocol):
    """Variables of a model whose values are functions of what moves, as graphs.

    Attributes
    ----------
    variables : list of variables
        Random variables whose density is part of :attr:`log_density`.
    numbers : variable
        A matrix of floats, a row of it for each row of data, which is written as ``expression``.
    values : dict of variable to variable
        Functions of ``numbers``, and of other value variables, by value variables.
    expression : variable
        A function of what moves.
    of_rows, of_clusters : lists of variables
        What moves, float64 matrices: a row of each for each row of ``numbers``, or for each cluster.
    shape_of_clusters : tuple
        Of each of ``of_clusters``: a variable, and an int.
    fixed : list of variables
        Further inputs.
    log_density : variable
        Of what moves, given the values of all other variables.
    """

    variables: list[Variable]
    numbers: Variable
    values: dict[Variable, Variable]
    expression: Variable
    of_rows: list[Variable]
    of_clusters: list[Variable]
    shape_of_clusters: tuple[Variable, int]
    fixed: list[Variable]
    log_density: Variable


class Piece(NamedTuple):
    """What stands in the vector.

    Parameters
    ----------
    start, stop : int
    shape : tuple of int
    """

    start: int
    stop: int
    shape: tuple[int, ...]


class JointDensity:
    """The log density of all that is continuous, given the labels and everything else.

    Parameters
    ----------
    model : pm.Model
    values : sequence of variables
        Value variables that move, but for those of ``parts``.
    parts : sequence of ModelPart
    point : dict
        Of the model, for the shapes of its variables.
    compile_kwargs : dict, optional

    Attributes
    ----------
    pieces : dict of str to Piece
        Of variables, by the names of value variables.
    n_values, n_fixed : int
        Lengths of the vector up to what moves of rows, which follows the variables, and up to what moves of
        clusters, whose number changes, and which comes last.
    inputs : list of str
        Names of the value variables that the function takes last.
    function : DirectFunction
        ``(vector, *fixed, *inputs) -> (log density, gradient, *seen)``. ``seen`` are, for each part, its values,
        its numbers, and the gradient in these of what the rest of the model says.
    """

    def __init__(
        self,
        model: pm.Model,
        values: Sequence[Variable],
        parts: Sequence[ModelPart],
        point: Mapping[str, np.ndarray],
        compile_kwargs: Any,
    ) -> None:
        self.pieces: dict[str, Piece] = {}
        start = 0
        for value in values:
            shape = tuple(np.shape(point[value.name]))
            self.pieces[value.name] = Piece(start, start + int(np.prod(shape, dtype=np.int64)), shape)
            start = self.pieces[value.name].stop
        self.n_values = self.n_fixed = start
        # The variables first stand by themselves, so that the gradient is one in each of them.
        own = {value: pt.tensor(dtype="float64", shape=self.pieces[value.name].shape) for value in values}
        by_value = {value: _like(variable, value) for value, variable in own.items()}
        of_parts = {value: _like(graph, value) for part in parts for value, graph in part.values.items()}
        rest = _rest(model, {*values, *of_parts}, {rv for part in parts for rv in part.variables})
        # Values of a part may depend on those of another one, and all on variables that move.
        placed = clone_replace(_replaced([rest, *of_parts.values()], of_parts), by_value, rebuild_strict=False)
        prior = pt.add(pt.constant(0.0), *(part.log_density for part in parts))
        graphs = _replaced([prior, *(part.expression for part in parts)], of_parts)
        prior, *expressions = _differentiable(clone_replace(graphs, by_value, rebuild_strict=False))
        rest, *placed = placed
        (rest,) = _differentiable([rest])
        numbers = [part.numbers for part in parts]
        of_rest = grad(rest, [*own.values(), *numbers], disconnected_inputs="ignore")
        of_rest, pulls = of_rest[: len(own)], of_rest[len(own) :]
        by_number = dict(zip(numbers, expressions, strict=True))
        prior, *expressions = _replaced([prior, *expressions], by_number)
        # The chain rule, with the gradient of the rest in the numbers as a constant.
        known = [pull.type() for pull in pulls]
        through = [(pull * graph).sum() for pull, graph in zip(known, expressions, strict=True)]
        moving = [variable for part in parts for variable in part.of_rows]
        of_clusters = [variable for part in parts for variable in part.of_clusters]
        wanted = [*own.values(), *moving, *of_clusters]
        slopes = grad(pt.add(prior, *through) if through else prior, wanted, disconnected_inputs="ignore")
        slopes[: len(own)] = [a + b for a, b in zip(slopes, of_rest, strict=False)]
        gradient = pt.concatenate([slope.ravel() for slope in slopes])
        seen, ends = [], iter(placed)
        for part, pull in zip(parts, pulls, strict=True):
            seen += [*(next(ends) for _ in part.values), part.numbers, pull]
        outputs = [(rest + prior).astype("float64"), gradient, *seen]
        outputs = clone_replace(outputs, dict(zip(known, pulls, strict=True)), rebuild_strict=False)
        by_number = dict(zip(numbers, expressions, strict=True))
        outputs = clone_replace(outputs, by_number, rebuild_strict=False)
        vector = pt.dvector("vector")
        sliced = {
            variable: vector[piece.start : piece.stop].reshape(piece.shape)
            for variable, piece in zip(own.values(), self.pieces.values(), strict=True)
        }
        for variable in moving:
            n, d = variable.type.shape
            sliced[variable] = vector[self.n_fixed : self.n_fixed + n * d].reshape((n, d))
            self.n_fixed += n * d
        first = pt.as_tensor(self.n_fixed)
        for part in parts:
            n_clusters, d = part.shape_of_clusters
            for variable in part.of_clusters:
                last = first + n_clusters * d
                sliced[variable] = vector[first:last].reshape((n_clusters, d))
                first = last
        outputs = clone_replace(outputs, sliced, rebuild_strict=False)
        behind = values_behind(model, outputs)
        self.inputs = [str(value.name) for value in behind]
        fixed = [variable for part in parts for variable in part.fixed]
        self.function = DirectFunction([vector, *fixed, *behind], outputs, **(compile_kwargs or {}))


def _replaced(graphs: Sequence[Variable], by: Mapping[Variable, Variable]) -> list[Variable]:
    """Return graphs without some variables, also where what takes the place of one depends on another."""
    found = list(graphs)
    while not set(by).isdisjoint(ancestors(found)):
        found = clone_replace(found, by, rebuild_strict=False)
    return found


def _rest(model: pm.Model, moving: set[Variable], without: set[Variable]) -> Variable:
    """Return the sum of the terms of a model that depend on value variables, but for those of some variables."""
    others = [other for other in with_densities(model) if other not in without]
    terms = model.logp(vars=others, sum=False) if others else []
    depending = [without_dims(term).sum() for term in terms if moving & set(ancestors([term]))]
    return pt.add(pt.constant(0.0), *depending)


def _differentiable(expressions: Sequence[Variable]) -> list[Variable]:
    """Return expressions without operations of ``pymc.dims``, which have no gradient."""
    found: list[Variable] = rewrite_pregrad(rewrite_graph(list(expressions), include=("lower_xtensor",)))
    return found


def has_gradient(model: pm.Model, values: Sequence[Variable], without: Sequence[Variable]) -> bool:
    """Tell whether a model has a gradient in value variables, but for the densities of some variables."""
    try:
        (rest,) = _differentiable([_rest(model, set(values), set(without))])
        grad(rest, list(values), disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError, TypeError):
        return False
    return True


def _like(variable: Variable, value: Variable) -> Variable:
    """Return a variable with the numbers' type of a value variable, and its dims if that has any."""
    typed = variable.astype(value.dtype)
    return as_xtensor(typed, dims=value.type.dims) if has_dims(value) else typed
