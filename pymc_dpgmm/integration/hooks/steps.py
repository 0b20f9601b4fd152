"""Functions of PyMC that assign and make the step methods of a model, where labels are among its variables."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.steps.assignment import assigned, drawn_with_labels, moves_continuous
from pymc_dpgmm.integration.steps.compilation import begin_to_compile
from pymc_dpgmm.integration.steps.hidden_states import HiddenStatesStep
from pymc_dpgmm.integration.steps.mixture_steps import DPMixtureStep
from pymc_dpgmm.integration.steps.segments import ChangePointsStep
from pymc_dpgmm.native.compiled import logger


def compiling_meanwhile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's assignment of steps, which begins to compile what the step of labels will call."""

    def assign_step_methods(model: pm.Model, step: Any = None, *others: Any, **named: Any) -> Any:
        if step is None:
            begin_to_compile(model)
        return function(model, step, *others, **named)

    return assign_step_methods


def assigned_with_labels(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's making of steps, in which all that is continuous goes to the step of the labels.

    PyMC assigns variables before it looks at options. A model in which NUTS has nothing to do ignores its options.
    """

    def instantiate_steppers(
        model: pm.Model, steps: Any, selected_steps: Any, *, step_kwargs: Any = None, **others: Any
    ) -> Any:
        selected_steps = _with_priors(model, selected_steps)
        if selected_steps.get(DPMixtureStep) or drawn_with_labels(model):
            options = dict(step_kwargs or {})
            chosen = dict(options.get(DPMixtureStep.name) or {})
            selected_steps = assigned(model, selected_steps, chosen, DPMixtureStep)
            if "nuts" in options and moves_continuous(model, selected_steps.get(DPMixtureStep, ())):
                options[DPMixtureStep.name] = chosen | {"nuts": options["nuts"]}
                if not selected_steps.get(pm.NUTS):
                    del options["nuts"]
            elif "nuts" in options and not selected_steps.get(pm.NUTS):
                logger.info(
                    "NUTS has nothing to sample in this model: its options, such as target_accept, are ignored."
                )
                del options["nuts"]
            step_kwargs = options
        return function(model, steps, selected_steps, step_kwargs=step_kwargs, **others)

    return instantiate_steppers


def _with_priors(model: pm.Model, selected: Mapping[Any, Sequence[Variable]]) -> Mapping[Any, Sequence[Variable]]:
    """Return steps in which what governs nothing but the prior of rows in order is drawn with their labels."""
    for step in (ChangePointsStep, HiddenStatesStep):
        if not selected.get(step):
            continue
        governing = {
            model.rvs_to_values[rv]
            for labels, of_labels in step.governing(model).items()
            if model.rvs_to_values[labels] in selected[step]
            for rv in of_labels
        }
        taken = [value for value in selected.get(pm.NUTS, ()) if value in governing]
        steps = dict(selected) | {step: [*selected[step], *taken]}
        steps[pm.NUTS] = [value for value in selected.get(pm.NUTS, ()) if value not in governing]
        selected = {step: values for step, values in steps.items() if values}
    return selected
