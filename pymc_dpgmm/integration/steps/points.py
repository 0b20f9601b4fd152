"""Evaluate expressions of a model at a point of its value variables."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc

from pymc_dpgmm.integration.internals.pymc_internals import LogTransform
from pymc_dpgmm.integration.variables.models import interpreted


class PointFunction:
    """Evaluates expressions of a model's random variables at a point of its value variables.

    Nothing is kept by the arrays of a point: in processes of its own, PyMC writes each draw into the same ones.

    Parameters
    ----------
    model : pm.Model
    expressions : sequence of variables
    """

    def __init__(self, model: pm.Model, expressions: Sequence[Variable]) -> None:
        # Numbers and free variables, which most models have, are read from the point without evaluating a graph.
        direct = [_read_directly(model, expression) for expression in expressions]
        self._direct = None if None in direct else [read for read in direct if read is not None]
        self._last: list[np.ndarray] | None = None
        self._last_shared: list[Any] = []
        if self._direct is not None:
            behind = set(ancestors(expressions, blockers=model.free_RVs))
            self._names = [rv.name for rv in model.free_RVs if rv in behind]
            self._shared = []
            return
        outputs = model.replace_rvs_by_values(list(expressions))
        needed = set(ancestors(outputs))
        inputs = [value for value in model.value_vars if value in needed]
        self._names = [value.name for value in inputs]
        self._shared = [v for v in needed if isinstance(v, SharedVariable)]
        self._function = interpreted(inputs, outputs)

    def __call__(self, point: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Return the values. Without random inputs they are kept until ``pm.set_data`` changes the data."""
        if self._names and self._direct is not None:
            return [read(point) for read in self._direct]
        if self._names:
            return self._evaluate(*(point[name] for name in self._names))
        shared = [variable.get_value(borrow=True) for variable in self._shared]
        if self._last is None or any(new is not old for new, old in zip(shared, self._last_shared, strict=True)):
            self._last = self._evaluate()
            self._last_shared = shared
        return self._last

    def _evaluate(self, *inputs: np.ndarray) -> list[np.ndarray]:
        if self._direct is not None:
            return [read({}) for read in self._direct]
        # PyMC masks missing entries of pm.Data.
        return [
            np.ma.filled(value, np.nan) if isinstance(value, np.ma.MaskedArray) else value
            for value in self._function(*inputs)
        ]


def _read_directly(model: pm.Model, expression: Variable) -> Callable[[dict[str, np.ndarray]], np.ndarray] | None:
    """Return a function that reads a number or a free variable, or repeats it; None for other expressions."""
    if isinstance(expression, Constant):
        number = np.asarray(expression.data)
        return lambda point: number
    if expression in model.free_RVs:
        transform, name = model.rvs_to_transforms[expression], model.rvs_to_values[expression].name
        if transform is None:
            return lambda point: point[name]
        return (lambda point: np.exp(point[name])) if isinstance(transform, LogTransform) else None
    node = expression.owner
    if node is None or not isinstance(node.op, Alloc) or not all(isinstance(n, Constant) for n in node.inputs[1:]):
        return None
    repeated = _read_directly(model, node.inputs[0])
    if repeated is None:
        return None
    shape = tuple(int(n.data) for n in node.inputs[1:])
    if isinstance(node.inputs[0], Constant):
        numbers = np.full(shape, node.inputs[0].data)
        return lambda point: numbers
    return lambda point: np.full(shape, repeated(point))
