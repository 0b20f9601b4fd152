"""What a model knows and its draws do not: families, numbers and names, stored with the results of ``pm.sample``.

PyMC stores a model's data variables in the group ``constant_data``. A record is one of these, JSON as bytes, so
that what is done with draws after sampling needs no model, also when they come from a file. It is no variable of
the model otherwise.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import GammaRV
from pytensor.tensor.random.type import RandomType

from pymc_dpgmm.integration.internals.pymc_internals import constant_fold
from pymc_dpgmm.integration.variables.models import replace_data
from pymc_dpgmm.tables.checks import has_dims, is_variable

# Larger arrays are stored as bytes in place of numbers that can be read.
_MOST_READABLE = 1_000


def record_name(name: str) -> str:
    """Return the name under which the record of a random variable is stored."""
    return f"{name}_record"


def add_record(model: pm.Model, name: str, content: dict[str, Any]) -> None:
    """Store what JSON can hold of a random variable of a model."""
    model.data_vars.append(_as_constant(name, content))


def amend_record(model: pm.Model, name: str, content: dict[str, Any]) -> None:
    """Add to what is stored of a random variable, or replace it."""
    for record in [var for var in model.data_vars if var.name == record_name(name)]:
        replace_data(model, record, _as_constant(name, parse_record(record.data) | content))


def _as_constant(name: str, content: dict[str, Any]) -> Constant:
    text = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    return pt.constant(text, name=record_name(name))


def is_record(var: Variable) -> bool:
    """Tell whether one of a model's data variables is a record."""
    return isinstance(var, Constant) and str(var.name).endswith(record_name("")) and var.dtype == "uint8"


def parse_record(text: Any) -> dict[str, Any]:
    """Return what :func:`add_record` has stored."""
    return json.loads(np.asarray(text, dtype=np.uint8).tobytes())


def stored(model: pm.Model, value: Any, name: str | None = None) -> dict[str, Any] | None:
    """Return how a number, array or variable can be found when only the draws are there.

    Numbers are stored themselves, variables by their names.

    Parameters
    ----------
    model : pm.Model
    value : number, array or variable
    name : str, optional
        What is computed from variables becomes a Deterministic of this name. Without it, None is returned: it can
        be found with the model only.
    """
    if is_variable(value):
        own = _with_dims(value)
        if model.named_vars.get(own.name) is own:
            return {"variable": own.name}
        if depends_on_model(value):
            if name is None:
                return None
            pm.Deterministic(name, value, model=model)
            behind = ancestors([value], blockers=model.named_vars.values())
            named = [a.name for a in behind if a is not value and model.named_vars.get(a.name) is a]
            return {"variable": name, "of": list(dict.fromkeys(named))}
        value = value.data if isinstance(value, Constant) else value.eval()
    return numbers(np.asarray(value))


def with_gamma_law(found: dict[str, Any] | None, value: Variable) -> dict[str, Any] | None:
    """Add shape and rate to how a variable is stored, if it is gamma distributed and these are numbers."""
    if found is None or "variable" not in found or not is_gamma(value):
        return found
    numbers = constant_fold(value.owner.op.dist_params(value.owner), raise_not_constant=False)
    if not all(isinstance(number, np.ndarray) and number.ndim == 0 for number in numbers):
        return found
    shape, scale = (float(number) for number in numbers)
    return found | {"gamma": [shape, 1.0 / scale]}


def _with_dims(value: Variable) -> Variable:
    """Return the variable of ``pymc.dims`` that a plain variable has the numbers of; another one as it is."""
    inputs = value.owner.inputs if value.owner is not None else []
    return inputs[0] if len(inputs) == 1 and has_dims(inputs[0]) else value


def numbers(array: np.ndarray) -> dict[str, Any]:
    """Return an array in a form that JSON can hold."""
    if array.size <= _MOST_READABLE and np.all(np.isfinite(array)):
        return {"value": array.tolist(), "dtype": str(array.dtype)}
    encoded = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"base64": encoded, "dtype": str(array.dtype), "shape": array.shape}


def parse_numbers(found: Mapping[str, Any]) -> np.ndarray:
    """Return the array of :func:`numbers`."""
    if "base64" in found:
        return np.frombuffer(base64.b64decode(found["base64"]), dtype=found["dtype"]).reshape(found["shape"])
    return np.asarray(found["value"], dtype=found["dtype"])


def is_gamma(var: Any) -> bool:
    """Tell whether a variable is a scalar with a gamma distribution."""
    return var.owner is not None and isinstance(var.owner.op, GammaRV) and var.ndim == 0


def is_random(value: Variable) -> bool:
    """Tell whether random variables are behind a variable."""
    return any(isinstance(a.type, RandomType) for a in ancestors([value]))


def depends_on_model(value: Variable) -> bool:
    """Tell whether random variables, or data that may change, are behind a variable."""
    return any(isinstance(a, SharedVariable) for a in ancestors([value]))
