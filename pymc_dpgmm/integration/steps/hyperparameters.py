r"""Draws of hyperparameters together with the labels that they govern, by slices of the collapsed density.

A *hyperparameter* here is a free continuous variable that the density of a model knows only through its own prior,
other hyperparameters, priors on partitions, and parameters of base measures. Given the labels, its density is
cheap: clusters are known by their sums. Each coordinate is drawn in the unconstrained space of PyMC's value
variables, so that the density has the Jacobian of the transforms:

.. math:: \log p(u) + \log p(z \mid u) + \sum_v \log p(y_v \mid z, u)

by an interval that steps out and shrinks (Neal 2003, section 4 and figures 3 and 5), which leaves this density
invariant whatever the widths are. Widths are learnt while tuning.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.integration.steps.concentration import concentration_of
from pymc_dpgmm.integration.steps.targets import is_labels, is_plain_mixture
from pymc_dpgmm.integration.variables import PartitionRV, dependents, mixture_inputs
from pymc_dpgmm.integration.variables.atoms import is_atoms
from pymc_dpgmm.integration.variables.models import values_behind

# Coordinates that are drawn one by one, at most: of more, NUTS makes more of its gradient.
MOST_COORDINATES = 16
# Steps by which an interval grows, at most, in both directions together.
MOST_STEPS = 16
# Weight of one draw in the widths that are learnt.
LEARNING = 0.1


def hyperparameters(model: pm.Model) -> list[Variable]:
    """Return the hyperparameters of a model that can be drawn with its labels.

    Concentrations that have an exact draw are not among them, nor are variables that rows depend on, such as
    coefficients in an offset.
    """
    labels = {rv for rv in model.free_RVs if is_labels(rv) and isinstance(rv.owner.op, PartitionRV)}
    labels = {rv for rv in labels if not any(is_atoms(other) for other in dependents(model, rv))}
    mixtures = {other for rv in labels for other in dependents(model, rv) if is_plain_mixture(model, rv, other)}
    governed = labels | mixtures
    of_rows = set().union(*(_behind_rows(model, mixture) for mixture in mixtures))
    upstream = set(ancestors(list(governed))) - governed - of_rows
    depending = {
        rv: set(dependents(model, rv))
        for rv in model.free_RVs
        if rv in upstream and rv.dtype in pm.vartypes.continuous_types and concentration_of(model, rv)[0] is None
    }
    found = set(depending)
    while found != (kept := {rv for rv in found if depending[rv] <= governed | found}):
        found = kept
    return [rv for rv in model.free_RVs if rv in found]


def assigned(
    model: pm.Model, selected: dict[Any, Sequence[Variable]], choice: Any, labels_step: Any
) -> dict[Any, Sequence[Variable]]:
    """Return which step draws which variables; a user, or their number, decides of hyperparameters.

    Parameters
    ----------
    model : pm.Model
    selected : dict
        Value variables by the classes of their steps, as PyMC assigns them.
    choice : {None, "slices", "nuts"}
    labels_step : type
        The step of the labels.
    """
    everything = [value for values in selected.values() for value in values]
    random = {value: model.values_to_rvs.get(value, value) for value in everything}
    known = set(hyperparameters(model))
    moved = [value for value in everything if random[value] in known]
    if not moved:
        return selected
    by_slices = bool(chosen_hyperparameters(model, list(random.values()), choice))
    rest = {step: [value for value in values if value not in moved] for step, values in selected.items()}
    target = labels_step if by_slices else pm.NUTS
    rest[target] = [*rest.get(target, []), *moved]
    return {step: values for step, values in rest.items() if values}


def _behind_rows(model: pm.Model, mixture: Variable) -> set[Variable]:
    """Return what the inputs of a mixture other than the parameters of its base measure depend on."""
    inputs = mixture_inputs(mixture)
    params = set(inputs.params)
    roots = [value for value in inputs.in_order() if value not in params]
    return set(ancestors(roots, blockers=model.basic_RVs))


def check_choice(choice: Any) -> None:
    """Raise ValueError unless a user's choice is one."""
    if choice not in (None, "slices", "nuts"):
        raise ValueError(f'hyperparameters must be "slices" or "nuts", got {choice!r}')


def chosen_hyperparameters(model: pm.Model, given: Sequence[Variable], choice: Any) -> list[Variable]:
    """Return which of some variables a step that has all labels among them draws by slices.

    Parameters
    ----------
    model : pm.Model
    given : sequence of variables
        Those that PyMC gives to the step.
    choice : {None, "slices", "nuts"}
        By default few coordinates are drawn by slices.
    """
    check_choice(choice)
    known = hyperparameters(model)
    if not known or choice == "nuts" or any(is_labels(rv) and rv not in given for rv in model.free_RVs):
        return []
    chosen = [rv for rv in known if rv in given]
    if choice is None:
        point = model.initial_point(random_seed=0)
        if sum(np.size(point[model.rvs_to_values[rv].name]) for rv in chosen) > MOST_COORDINATES:
            return []
    return chosen


class Hyperparameters:
    """The hyperparameters that a step draws, and the density of each given all else.

    Parameters
    ----------
    model : pm.Model
    values : sequence of variables
        Value variables of hyperparameters.
    compile_kwargs : dict, optional
    """

    def __init__(self, model: pm.Model, values: Sequence[Variable], compile_kwargs: dict[str, Any] | None) -> None:
        self.names = [value.name for value in values]
        drawn = [model.values_to_rvs[value] for value in values]
        depending = {other for rv in drawn for other in dependents(model, rv)}
        terms = [rv for rv in model.basic_RVs if rv in depending or rv in drawn]
        density = model.logp(vars=terms, sum=True)
        inputs = values_behind(model, [density])
        self._inputs = [value.name for value in inputs]
        self._positions = [self._inputs.index(name) for name in self.names]
        self._function = pm.compile(inputs, density, **(compile_kwargs or {}))
        self._function.trust_input = True

    def draw(
        self, rng: np.random.Generator, point: dict[str, np.ndarray], widths: list[np.ndarray], tuning: bool
    ) -> list[np.ndarray]:
        """Draw all coordinates in a point, one after the other, each given everything else.

        ``widths`` are those of the last draw, none before the first. Those of the next draw are returned.
        """
        arguments = [np.asarray(point[name]) for name in self._inputs]
        widths = widths or [np.ones(np.shape(point[name])) for name in self.names]
        log_p = float(self._function(*arguments))
        if not log_p > -math.inf:
            # There is no density to slice: the variables wait until labels and rows allow them.
            return widths
        for name, position, of_variable in zip(self.names, self._positions, widths, strict=True):
            current = np.array(arguments[position])
            arguments[position] = current
            for place in np.ndindex(current.shape):
                log_p = self._draw_coordinate(rng, arguments, current, place, of_variable, log_p, tuning)
            point[name] = current
        return widths

    def _draw_coordinate(
        self,
        rng: np.random.Generator,
        arguments: list[np.ndarray],
        current: np.ndarray,
        place: tuple[int, ...],
        widths: np.ndarray,
        log_p: float,
        tuning: bool,
    ) -> float:
        """Draw a coordinate by a slice, and return the log density there."""

        def at(u: float) -> float:
            current[place] = u
            return float(self._function(*arguments))

        before, width = float(current[place]), float(widths[place])
        level = log_p - rng.standard_exponential()
        left = before - width * rng.random()
        right = left + width
        to_left = int(MOST_STEPS * rng.random())
        to_right = MOST_STEPS - 1 - to_left
        while to_left > 0 and at(left) > level:
            left -= width
            to_left -= 1
        while to_right > 0 and at(right) > level:
            right += width
            to_right -= 1
        while True:
            drawn = left + (right - left) * rng.random()
            log_p = at(drawn)
            if log_p > level:
                break
            if drawn < before:
                left = drawn
            else:
                right = drawn
            if not right - left > 1e-14 * (1.0 + abs(before)):
                # Nothing but rounding is left of the interval, in which the present value lies.
                log_p = at(before)
                break
        if tuning:
            # What the slice has shrunk to: about as long as the slice itself.
            widths[place] += LEARNING * (right - left - width)
        return log_p
