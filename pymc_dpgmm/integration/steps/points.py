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

# Numbers of a point for which values are kept.
MOST_KEPT = 64


class PointFunction:
    """Evaluates expressions of a model's random variables at a point of its value variables.

    Values are kept for the numbers of a point, if these are few, and never for its arrays: in processes of its
    own, PyMC writes each draw into the same ones.

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
        self._last_inputs: list[bytes] = []
        self._last_shared: list[Any] = []
        if self._direct is not None:
            behind = set(ancestors(expressions, blockers=model.free_RVs))
            self._names = [model.rvs_to_values[rv].name for rv in model.free_RVs if rv in behind]
            self._shared = []
            return
        outputs = model.replace_rvs_by_values(list(expressions))
        needed = set(ancestors(outputs))
        inputs = [value for value in model.value_vars if value in needed]
        self._names = [value.name for value in inputs]
        self._shared = [v for v in needed if isinstance(v, SharedVariable)]
        self._function = interpreted(inputs, outputs)

    def __call__(self, point: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Return the values, which must not be changed: the same list until numbers or the model's data change."""
        given = [np.asarray(point[name]) for name in self._names]
        if sum(array.size for array in given) > MOST_KEPT:
            return self._evaluate(given, point)
        inputs = [array.tobytes() for array in given]
        shared = [variable.get_value(borrow=True) for variable in self._shared]
        is_kept = self._last is not None and inputs == self._last_inputs
        if not is_kept or any(new is not old for new, old in zip(shared, self._last_shared, strict=True)):
            values = self._evaluate(given, point)
            # Arrays of the point are written to.
            self._last = [value.copy() if _may_be_of(value, given) else value for value in values]
            self._last_inputs, self._last_shared = inputs, shared
        assert self._last is not None
        return self._last

    def _evaluate(self, inputs: Sequence[np.ndarray], point: dict[str, np.ndarray]) -> list[np.ndarray]:
        if self._direct is not None:
            return [read(point) for read in self._direct]
        # PyMC masks missing entries of pm.Data.
        return [
            np.ma.filled(value, np.nan) if isinstance(value, np.ma.MaskedArray) else value
            for value in self._function(*inputs)
        ]


def _may_be_of(value: Any, arrays: Sequence[np.ndarray]) -> bool:
    """Tell whether a value may share memory with one of some arrays."""
    return isinstance(value, np.ndarray) and any(np.may_share_memory(value, array) for array in arrays)


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
