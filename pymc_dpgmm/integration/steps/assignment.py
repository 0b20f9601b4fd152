"""Which step draws hyperparameters and latent rows: that of the labels, or NUTS."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pymc as pm
from pytensor import config
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.steps.concentration import concentration_of
from pymc_dpgmm.integration.steps.hyperparameters import (
    chosen_hyperparameters,
    hyperparameters,
    hyperparameters_of_processes,
)
from pymc_dpgmm.integration.steps.latent_rows import chosen_latent_rows, shared_of_latent_rows
from pymc_dpgmm.integration.steps.shared_variables import MOST_DRAWN
from pymc_dpgmm.integration.steps.targets import is_missing
from pymc_dpgmm.integration.variables.models import count_numbers
from pymc_dpgmm.integration.variables.records import is_gamma


def drawn_with_labels(model: pm.Model) -> list[Variable]:
    """Return the variables of a model that can be drawn by the step of its labels, or by another one."""
    rows = shared_of_latent_rows(model)
    shared = [rv for own in rows.values() for rv in own]
    return list(dict.fromkeys([*hyperparameters(model), *hyperparameters_of_processes(model), *rows, *shared]))


def refuse_single_precision(rv: Variable) -> None:
    """Raise NotImplementedError where NUTS would join rows or missing entries with numbers of single precision."""
    if config.floatX != rv.dtype:
        raise NotImplementedError(
            f"{rv.name} has double precision, and NUTS joins it with variables of {config.floatX}: set "
            "pytensor.config.floatX to float64 where NUTS samples missing entries or latent rows"
        )


def assigned(
    model: pm.Model, selected: Mapping[Any, Sequence[Variable]], options: Mapping[str, Any], labels_step: Any
) -> dict[Any, Sequence[Variable]]:
    """Return which step draws which variables.

    Concentrations with an exact draw go to the step of the labels.

    Parameters
    ----------
    model : pm.Model
    selected : dict
        Value variables by the classes of their steps, as PyMC assigns them.
    options : dict
        What a user says of these variables: ``hyperparameters`` and ``latent_rows``. By default the number of
        hyperparameters decides, and latent rows go with their labels.
    labels_step : type
        The step of the labels.
    """
    values = [value for of_step in selected.values() for value in of_step]
    random = [model.values_to_rvs.get(value, value) for value in values]
    of_rows = shared_of_latent_rows(model)
    rows = list(of_rows)
    known = [*hyperparameters(model), *hyperparameters_of_processes(model)]
    chosen = [
        *chosen_hyperparameters(model, known, random, options.get("hyperparameters")),
        *chosen_latent_rows(rows, random, options.get("latent_rows")),
    ]
    can_be_chosen = {model.rvs_to_values[rv] for rv in (*rows, *known)}
    is_chosen = {model.rvs_to_values[rv] for rv in chosen}
    not_chosen = can_be_chosen - is_chosen
    steps: dict[Any, Sequence[Variable]] = {}
    for step, of_step in selected.items():
        for value in of_step:
            owner = labels_step if value in is_chosen else step
            rv = model.values_to_rvs.get(value, value)
            if step in (labels_step, pm.NUTS) and is_gamma(rv) and value not in can_be_chosen:
                # Whether a concentration has an exact draw depends on the model, which PyMC does not show.
                owner = pm.NUTS if concentration_of(model, rv)[0] is None else labels_step
            # PyMC offers them to the step of the labels, which leaves the others to NUTS.
            owner = pm.NUTS if owner is labels_step and value in not_chosen else owner
            if owner is pm.NUTS and (is_missing(rv) or rv in rows):
                refuse_single_precision(rv)
            steps[owner] = [*steps.get(owner, ()), value]
    shared = {rv for row, own in of_rows.items() if row in chosen for rv in own}
    if _are_drawn_with_rows(model, steps.get(pm.NUTS, ()), shared):
        steps[labels_step] = [*steps[labels_step], *steps.pop(pm.NUTS)]
    return steps


def _are_drawn_with_rows(model: pm.Model, values: Sequence[Variable], shared: Collection[Variable]) -> bool:
    """Tell whether all that NUTS would draw are few numbers that latent rows share."""
    variables = [model.values_to_rvs.get(value, value) for value in values]
    if not variables or not all(rv in shared for rv in variables):
        return False
    return sum(count_numbers(model, variables).values()) <= MOST_DRAWN
