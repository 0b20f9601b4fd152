"""Check that all arguments of a mixture have the same number of rows, with errors that name the user's arguments.

After ``pm.set_data``, data of a model may have another length. Arguments with entries for its rows must then have
the same length.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from pymc_dpgmm.integration.variables.models import value_of
from pymc_dpgmm.tables.checks import is_sparse, is_variable, listed


def note_lengths(variable: Variable, arguments: Mapping[str, Any]) -> None:
    """Note with a random variable the arguments that have an entry for each of its rows, by name.

    For numbers only their length is noted. Scalars, None and expressions without data are left out.
    """
    noted = {}
    for name, value in arguments.items():
        if is_variable(value) and value.ndim > 0 and _data_behind(value):
            noted[name] = value
        elif value is not None and not is_variable(value) and (is_sparse(value) or np.ndim(value) > 0):
            noted[name] = int(value.shape[0] if is_sparse(value) else len(value))
    variable.tag.lengths = getattr(variable.tag, "lengths", {}) | noted


def check_lengths(variable: Variable, labels: Variable) -> None:
    """Raise ValueError if the arguments of a random variable have different numbers of rows.

    Parameters
    ----------
    variable : random variable
        A mixture.
    labels : variable
        Its labels, of rows or of units.
    """
    noted: dict[str, Any] = dict(getattr(variable.tag, "lengths", {}))
    noted |= getattr(labels.tag, "lengths", {})
    lengths = {name: _length(value) for name, value in noted.items()}
    if "observed" not in lengths:
        return
    n = lengths["observed"]
    others = [name for name, length in lengths.items() if length not in (n, 1)]
    if not others:
        return
    data = noted["observed"]
    differing = " and ".join(f"{name} {_of_data(noted[name])}has {lengths[name]}" for name in others)
    variables = [noted[name] for name in ["observed", *others] if not isinstance(noted[name], int)]
    settable = dict.fromkeys(name for value in variables for name in _data_behind(value))
    fixed = [name for name in others if isinstance(noted[name], int)]
    names = ", ".join(f"{name!r}: ..." for name in settable)
    cure = f"set all of them in one call, pm.set_data({{{names}}})"
    if fixed:
        cure = f"{', '.join(fixed)} cannot change after the model was built: build it again with the new rows"
    if fixed and not set(fixed) & {"known_labels", "must_link", "group", "initval"}:
        cure += f", or make {', '.join(fixed)} pm.Data too, and set them together"
    if isinstance(data, int) and not fixed:
        cure = (
            f"the observed rows are a part of the model, so set {names.replace(': ...', '')} to {n} rows again. "
            "Draw the rest of new rows by dp.sample_new_rows, and add their offset draw by draw"
        )
    raise ValueError(f"observed of {variable.name} {_of_data(data)}has {n} rows, but {differing}: {cure}")


def _data_behind(value: Variable) -> list[str]:
    """Return the names of the data from which an expression is computed."""
    return [
        a.name for a in ancestors([value]) if isinstance(a, SharedVariable) and not isinstance(a.type, RandomType)
    ]


def _length(value: Any) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, SharedVariable):
        return len(value.get_value(borrow=True))
    return int(value_of(value.shape[0]))


def _of_data(value: Any) -> str:
    return "" if isinstance(value, int) else f"(the data {', '.join(map(repr, _data_behind(value)))}) "


def explain_lengths(error: ValueError, model: pm.Model, names: str, n: int, among: list[Variable]) -> None:
    """Raise an error that names the data whose length may have caused an error of shapes, if there is such data.

    Parameters
    ----------
    error : ValueError
        The error of shapes.
    model : pm.Model
    names : str
        Names of the parameters of rows.
    n : int
        Number of rows, which is fixed.
    among : list of variables
        Densities that depend on these parameters.
    """
    behind = set(ancestors(among))
    data = {
        v.name: v.get_value(borrow=True).shape
        for v in model.data_vars
        if isinstance(v, SharedVariable) and v in behind
    }
    other = [f"{name} of shape {shape}" for name, shape in data.items() if n not in shape]
    if other:
        raise ValueError(
            f"{names} has {n} rows, and its likelihood cannot be evaluated with the data {listed(other)}. Set "
            f"data of {n} rows, or build the model again with the new number of rows"
        ) from error
