"""How PyMC prints a model that holds mixtures: what a user has written, and nothing that is stored beside it."""

import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pymc as pm

from pymc_dpgmm.integration.hooks.pymc_internals import wrap
from pymc_dpgmm.integration.variables import CollapsedMixtureRV
from pymc_dpgmm.integration.variables.records import is_record

# What a reader of a model wants to know of a mixture beside its labels and its base measure.
_SHOWN = ("offset",)


def mixtures_by_family(function: Callable[..., str]) -> Callable[..., str]:
    """Return PyMC's text of a model, with the base measures of mixtures and without their records."""

    def str_for_model(model: pm.Model, formatting: str = "plain", include_params: bool = True) -> str:
        text = function(model, formatting=formatting, include_params=include_params)
        latex = "latex" in formatting
        for name in [str(var.name) for var in model.data_vars if is_record(var)]:
            if latex:
                escaped = re.escape(name.replace("_", r"\_"))
                text = re.sub(
                    rf"\\text\{{{escaped}\}} &= &\\operatorname\{{Data\}}[^&]*?(\\\\(?=\\text)|(?=\n))", "", text
                )
            else:
                text = re.sub(rf"^ *{re.escape(name)} = Data.*\n?", "", text, flags=re.MULTILINE)
        for rv in model.basic_RVs if include_params else ():
            if isinstance(rv.owner.op, CollapsedMixtureRV):
                text = _with_base_measure(text, rv, latex)
        return text if latex else textwrap.dedent(text).rstrip("\n")

    return str_for_model


def _with_base_measure(text: str, rv: Any, latex: bool) -> str:
    """Write the arguments of a mixture as its labels and its base measure."""
    layout = rv.owner.op.layout
    name, between, comma = rv.name, " ~ CollapsedMixture(", ", "
    if latex:
        name = rf"\text{{{rv.name.replace('_', r'\_')}}}"
        between, comma = r" &\sim & \operatorname{CollapsedMixture}(", ",~"
    start = text.find(name + between)
    if start < 0:
        return text
    begin = start + len(name + between)
    labels, *others = _arguments(text[begin:], comma)
    end = begin + len(comma.join([labels, *others]))
    fields = [field.replace("_", r"\_") if latex else field for field in layout.family.axes]
    base = comma.join(f"{field}={value}" for field, value in zip(fields, others, strict=False))
    family = rf"\text{{{layout.family_name}}}" if latex else layout.family_name
    present = dict(zip(layout.present, others[len(fields) :], strict=False))
    shown = [f"{key}={value}" for key, value in present.items() if key in _SHOWN]
    return text[:begin] + comma.join([labels, f"{family}({base})", *shown]) + text[end:]


def _arguments(text: str, comma: str) -> Iterator[str]:
    """Split what follows an opening bracket, up to the closing one."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        if letter in ")]}" and depth == 0:
            yield text[begin:at]
            return
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and text.startswith(comma, at):
            yield text[begin:at]
            begin = at + len(comma)


def print_by_family() -> None:
    """Set this in PyMC's place."""
    wrap("str_for_model", mixtures_by_family)
