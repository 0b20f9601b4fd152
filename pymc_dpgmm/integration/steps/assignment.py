"""Which variables the step of the labels draws beside them, and which are left to PyMC."""

from collections.abc import Mapping, Sequence
from typing import Any

import pymc as pm
from pytensor import config
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.continuous.rows import can_move
from pymc_dpgmm.integration.steps.concentration import concentration_of
from pymc_dpgmm.integration.steps.grouped import is_openers
from pymc_dpgmm.integration.steps.hyperparameters import (
    chosen_hyperparameters,
    hyperparameters,
    learnt_scales,
)
from pymc_dpgmm.integration.steps.latent_rows import chosen_latent_rows, latent_rows
from pymc_dpgmm.integration.steps.targets import is_labels, is_missing, labels_of_missing
from pymc_dpgmm.integration.variables.atoms import is_atoms
from pymc_dpgmm.integration.variables.chunked_partition import is_chunked_clusters
from pymc_dpgmm.integration.variables.models import dependents
from pymc_dpgmm.integration.variables.records import is_gamma

CHOICES = (None, "nuts")


def check_choice(choice: Any) -> None:
    """Raise ValueError unless a user's choice of who moves what is continuous is one."""
    if choice not in CHOICES:
        raise ValueError(f'continuous must be "nuts" or be left out, got {choice!r}')


def drawn_with_labels(model: pm.Model) -> list[Variable]:
    """Return the variables of a model that can be drawn by the step of its labels, or by another one."""
    return list(dict.fromkeys([*hyperparameters(model), *latent_rows(model)]))


def moved_together(model: pm.Model, values: Sequence[Variable]) -> list[Variable]:
    """Return which value variables a step moves together with its labels, latent rows or atoms.

    They are all that is continuous, but for what has a draw of its own: concentrations with an exact draw, learnt
    scales, missing entries that are drawn with their labels, and few hyperparameters that latent rows do not
    depend on.
    """
    given = [model.values_to_rvs[value] for value in values]
    labels = [rv for rv in given if is_labels(rv)]
    if not labels:
        return []
    rows = [rv for rv in latent_rows(model) if rv in given]
    by_scale = {rv for scale in learnt_scales(model).values() for rv in scale.variables}
    sliced = chosen_hyperparameters(model, hyperparameters(model), given)
    of_others = {rv for rv in sliced if not set(rows) & _all_dependents(model, rv)}
    own = {*rows, *by_scale, *of_others}
    return [
        value
        for value, rv in zip(values, given, strict=True)
        if rv not in own
        and rv.dtype in pm.vartypes.continuous_types
        and not (is_labels(rv) or is_openers(rv) or is_atoms(rv) or is_chunked_clusters(rv))
        and not (is_missing(rv) and labels_of_missing(model, rv) in labels)
        and not _has_own_draw(model, rv)
    ]


def _has_own_draw(model: pm.Model, rv: Variable) -> bool:
    """Tell whether a variable is a concentration with an exact draw."""
    on, _ = concentration_of(model, rv)
    return on is not None


def moves_continuous(model: pm.Model, values: Sequence[Variable]) -> bool:
    """Tell whether a step of labels with these value variables has a Hamiltonian move."""
    rows = [rv for rv in latent_rows(model) if model.rvs_to_values[rv] in values]
    return any(can_move(model, rv) for rv in rows) or bool(moved_together(model, values))


def _all_dependents(model: pm.Model, rv: Variable) -> set[Variable]:
    found: set[Variable] = set()
    left = [rv]
    while left:
        new = [other for other in dependents(model, left.pop()) if other not in found]
        found.update(new)
        left += [other for other in new if other in model.free_RVs]
    return found


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
        What a user says: with ``continuous`` "nuts" NUTS samples all that is continuous. By default the number of
        hyperparameters decides, and all else that is continuous goes with latent rows, or with atoms.
    labels_step : type
        The step of the labels.
    """
    values = [value for of_step in selected.values() for value in of_step]
    random = [model.values_to_rvs.get(value, value) for value in values]
    rows, known = latent_rows(model), hyperparameters(model)
    choice = options.get("continuous")
    check_choice(choice)
    chosen = []
    if choice is None:
        chosen = [*chosen_hyperparameters(model, known, random), *chosen_latent_rows(rows, random)]
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
    if choice is None:
        differentiable = [*selected.get(pm.NUTS, ()), *selected.get(labels_step, ()), *is_chosen]
        together = moved_together(model, [value for value in values if value in differentiable])
        steps = {step: [value for value in of_step if value not in together] for step, of_step in steps.items()}
        steps[labels_step] = [*steps.get(labels_step, ()), *together]
    return {step: of_step for step, of_step in steps.items() if of_step}
