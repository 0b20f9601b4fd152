"""Print models with mixtures as the user has written them, without the records that the package stores."""

from collections.abc import Callable
from typing import Any

import pymc as pm
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type_other import NoneTypeT

from pymc_dpgmm.integration.internals.pymc_internals import str_for_input, wrap
from pymc_dpgmm.integration.variables import CollapsedMixtureRV
from pymc_dpgmm.integration.variables.records import is_record

# Inputs of a mixture that are printed in addition to labels and base measure.
_SHOWN = ("offset",)


def without_records(function: Callable[..., str]) -> Callable[..., str]:
    """Return PyMC's text of a model, without the package's records."""

    def str_for_model(model: pm.Model, formatting: str = "plain", include_params: bool = True) -> str:
        shown, data = model, [var for var in model.data_vars if not is_record(var)]
        if len(data) < len(model.data_vars):
            shown = object.__new__(type(model))
            shown.__dict__ = {**vars(model), "data_vars": data}
        return function(shown, formatting=formatting, include_params=include_params)

    return str_for_model


def mixtures_by_family(function: Callable[..., str]) -> Callable[..., str]:
    """Return PyMC's text of a distribution, with the base measure of a mixture in place of its inputs."""

    def str_for_dist(
        dist: Any, formatting: str = "plain", include_params: bool = True, named_vars: Any = None
    ) -> str:
        if not include_params or not isinstance(dist.owner.op, CollapsedMixtureRV):
            return function(dist, formatting=formatting, include_params=include_params, named_vars=named_vars)
        latex, layout = "latex" in formatting, dist.owner.op.layout
        inputs = [
            variable for variable in dist.owner.inputs if not isinstance(variable.type, RandomType | NoneTypeT)
        ]
        labels, *others = [
            str_for_input(variable, formatting, named_vars or set()).strip("$") for variable in inputs
        ]
        comma = ",~" if latex else ", "
        axes = layout.family.axes
        fields = [field.replace("_", r"\_") if latex else field for field in axes]
        family = rf"\text{{{layout.family_name}}}" if latex else layout.family_name
        base = comma.join(f"{field}={value}" for field, value in zip(fields, others, strict=False))
        present = dict(zip(layout.present, others[len(axes) :], strict=False))
        arguments = comma.join(
            [labels, f"{family}({base})", *(f"{key}={present[key]}" for key in _SHOWN if key in present)]
        )
        head = function(dist, formatting=formatting, include_params=False, named_vars=named_vars)
        return f"{head.rstrip('$')}({arguments}){'$' if latex else ''}"

    return str_for_dist


def hide_records() -> None:
    """Print models without records. A model keeps the printing function from the time when it was made."""
    wrap("str_for_model", without_records)


def print_by_family() -> None:
    """Print mixtures with their base measures."""
    wrap("str_for_dist", mixtures_by_family)
