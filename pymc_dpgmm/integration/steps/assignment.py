"""Which step draws hyperparameters and latent rows: that of the labels, or NUTS."""

from collections.abc import Mapping, Sequence
from typing import Any

import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.steps.hyperparameters import chosen_hyperparameters, hyperparameters
from pymc_dpgmm.integration.steps.latent_rows import chosen_latent_rows, latent_rows


def drawn_with_labels(model: pm.Model) -> list[Variable]:
    """Return the variables of a model that can be drawn by the step of its labels, or by another one."""
    return [*hyperparameters(model), *latent_rows(model)]


def assigned(
    model: pm.Model, selected: Mapping[Any, Sequence[Variable]], options: Mapping[str, Any], labels_step: Any
) -> dict[Any, Sequence[Variable]]:
    """Return which step draws which variables.

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
    steps: dict[Variable, Any] = {}
    rows = latent_rows(model)
    for known, chosen in (
        (hyperparameters(model), chosen_hyperparameters(model, random, options.get("hyperparameters"))),
        (rows, chosen_latent_rows(rows, random, options.get("latent_rows"))),
    ):
        step = labels_step if chosen else pm.NUTS
        steps |= {model.rvs_to_values[rv]: step for rv in known if rv in random}
    rest: dict[Any, list[Variable]] = {
        step: [value for value in of_step if value not in steps] for step, of_step in selected.items()
    }
    for value, step in steps.items():
        rest.setdefault(step, []).append(value)
    return {step: of_step for step, of_step in rest.items() if of_step}
