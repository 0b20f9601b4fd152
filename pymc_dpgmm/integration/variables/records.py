"""Records: families, numbers and names of a model, stored with the draws, which are then read without the model.

PyMC stores a model's data variables in the group ``constant_data`` of the results. A record is a data variable,
JSON as bytes, that no other variable uses. Functions for the posterior therefore need no model, also for draws
from a file.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import GammaRV
from pytensor.tensor.random.type import RandomType

from pymc_dpgmm.families.contract.base_measure import LinearTransform
from pymc_dpgmm.integration.internals.pymc_internals import constant_fold
from pymc_dpgmm.integration.variables.models import replace_data, value_of
from pymc_dpgmm.tables.checks import has_dims, is_variable

# Arrays with more entries are stored as bytes, smaller ones as readable numbers.
_MOST_READABLE = 1_000


def record_name(name: str) -> str:
    """Return the name under which the record of a random variable is stored."""
    return f"{name}_record"


def dataset_of(idata: xr.DataTree, group: str) -> xr.Dataset:
    """Return a group of results, without variables where results have no such group."""
    return idata[group].dataset if group in idata.children else xr.Dataset()


def add_record(model: pm.Model, name: str, content: dict[str, Any]) -> None:
    """Store a record, which JSON can hold, of a random variable of a model.

    Raises
    ------
    ValueError
        If it has one: PyMC could not copy the model.
    """
    if any(var.name == record_name(name) for var in model.data_vars):
        raise ValueError(f"the model already has a record of {name}")
    model.data_vars.append(_as_constant(name, content))


def amend_record(model: pm.Model, name: str, content: dict[str, Any]) -> None:
    """Add entries to the record of a random variable, or replace them."""
    for record in [var for var in model.data_vars if var.name == record_name(name)]:
        replace_data(model, record, _as_constant(name, parse_record(record.data) | content))


def record_of(model: pm.Model, name: str) -> dict[str, Any]:
    """Return the record of a random variable of a model; it is empty if there is none."""
    return next((parse_record(var.data) for var in model.data_vars if var.name == record_name(name)), {})


def _as_constant(name: str, content: dict[str, Any]) -> Constant:
    text = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    return pt.constant(text, name=record_name(name))


def is_record(var: Variable) -> bool:
    """Tell whether one of a model's data variables is a record."""
    return isinstance(var, Constant) and str(var.name).endswith(record_name("")) and var.dtype == "uint8"


def parse_record(text: Any) -> dict[str, Any]:
    """Return the content that :func:`add_record` has stored."""
    return json.loads(np.asarray(text, dtype=np.uint8).tobytes())


def stored(model: pm.Model, value: Any, name: str | None = None) -> dict[str, Any] | None:
    """Return an entry of a record from which a number, array or variable can be read with the draws alone.

    Numbers are stored themselves, variables by their names.

    Parameters
    ----------
    model : pm.Model
    value : number, array or variable
    name : str, optional
        Expressions of variables become a Deterministic of this name. Without a name, None is returned: their value
        can only be computed with the model.
    """
    if is_variable(value):
        named_variable = _with_dims(value)
        if model.named_vars.get(named_variable.name) is named_variable:
            return {"variable": named_variable.name}
        if depends_on_model(value):
            if name is None:
                return None
            pm.Deterministic(name, value, model=model)
            behind = ancestors([value], blockers=model.named_vars.values())
            named = [a.name for a in behind if a is not value and model.named_vars.get(a.name) is a]
            return {"variable": name, "of": list(dict.fromkeys(named))}
        value = value.data if isinstance(value, Constant) else value_of(value)
    return numbers(np.asarray(value))


def product(factors: Sequence[LinearTransform]) -> dict[str, Any]:
    """Return an entry from which a product of linear functions of variables can be computed with the draws."""
    parts = []
    for factor in factors:
        shift, slope = numbers(np.asarray(factor.constant)), numbers(np.asarray(factor.slope))
        part = {"variable": factor.variable, "constant": shift, "slope": slope}
        parts.append(part if factor.power == 1.0 else part | {"power": factor.power})
    return {"product": parts, "of": [factor.variable for factor in factors]}


def with_gamma_law(entry: dict[str, Any] | None, value: Variable) -> dict[str, Any] | None:
    """Add shape and rate to the entry of a variable, if it is gamma distributed and they are numbers."""
    if entry is None or "variable" not in entry or not is_gamma(value):
        return entry
    numbers = constant_fold(value.owner.op.dist_params(value.owner), raise_not_constant=False)
    if not all(isinstance(number, np.ndarray) and number.ndim == 0 for number in numbers):
        return entry
    shape, scale = (float(number) for number in numbers)
    return entry | {"gamma": [shape, 1.0 / scale]}


def _with_dims(value: Variable) -> Variable:
    """Return the variable of ``pymc.dims`` behind a plain variable; other variables as they are."""
    inputs = value.owner.inputs if value.owner is not None else []
    return inputs[0] if len(inputs) == 1 and has_dims(inputs[0]) else value


def numbers(array: np.ndarray) -> dict[str, Any]:
    """Return an array in a form that JSON can hold."""
    if array.size <= _MOST_READABLE and array.dtype.kind not in "Mm" and np.all(np.isfinite(array)):
        return {"value": array.tolist(), "dtype": str(array.dtype)}
    encoded = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"base64": encoded, "dtype": str(array.dtype), "shape": array.shape}


def parse_numbers(entry: Mapping[str, Any]) -> np.ndarray:
    """Return the array of :func:`numbers`."""
    if "base64" in entry:
        return np.frombuffer(base64.b64decode(entry["base64"]), dtype=entry["dtype"]).reshape(entry["shape"])
    return np.asarray(entry["value"], dtype=entry["dtype"])


def is_gamma(var: Any) -> bool:
    """Tell whether a variable is a scalar with a gamma distribution."""
    return var.owner is not None and isinstance(var.owner.op, GammaRV) and var.ndim == 0


def is_random(value: Variable) -> bool:
    """Tell whether a variable depends on random variables."""
    return any(isinstance(a.type, RandomType) for a in ancestors([value]))


def depends_on_model(value: Variable) -> bool:
    """Tell whether a variable depends on random variables, or on data that may change."""
    return any(isinstance(a, SharedVariable) for a in ancestors([value]))
