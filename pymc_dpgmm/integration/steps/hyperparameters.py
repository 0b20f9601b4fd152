r"""Draws of hyperparameters together with the labels that they govern, by slices of the collapsed density.

A *hyperparameter* here is a free continuous variable that the density of a model knows only through its own prior,
other hyperparameters, priors on partitions, and parameters of base measures. Given the labels, its density is
cheap: clusters are known by their sums. Each coordinate is drawn in the unconstrained space of PyMC's value
variables, so that the density has the Jacobian of the transforms:

.. math:: \log p(u) + \log p(z \mid u) + \sum_v \log p(y_v \mid z, u)

by an interval that steps out and shrinks (Neal 2003, section 4 and figures 3 and 5), which leaves this density
invariant whatever the widths are. Widths are learnt while tuning.

Numbers in the offset of observed rows, such as the coefficients of a regression whose residuals are a mixture, are
hyperparameters too where there are few of them: the clusters are summed up anew wherever one moves. They and the
other hyperparameters of these rows are drawn along the principal axes of their draws, which are learnt while
tuning: coefficients are often correlated, and an intercept can take the place of the mean of a base measure.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.integration.internals.direct import DirectFunction
from pymc_dpgmm.integration.steps.concentration import concentration_of
from pymc_dpgmm.integration.steps.evidence import EvidenceOfMixture
from pymc_dpgmm.integration.steps.learnt_scales import LearntScaleDraw
from pymc_dpgmm.integration.steps.targets import LabelsTarget, is_labels
from pymc_dpgmm.integration.variables import (
    CollapsedMixtureRV,
    PartitionRV,
    constraints_on,
    dependents,
    fixed_rows,
    is_plain_mixture,
    mixture_inputs,
    mixture_values,
    of_units,
)
from pymc_dpgmm.integration.variables.atoms import has_atoms
from pymc_dpgmm.integration.variables.learnt_scale import LearntScale, learnt_scale
from pymc_dpgmm.integration.variables.models import count_numbers, is_circular, values_behind
from pymc_dpgmm.native.array_calls import PythonCall
from pymc_dpgmm.native.compiled import CFunction
from pymc_dpgmm.sampler.hyperparameters.coordinate_slices import KERNELS, CoordinateSlices
from pymc_dpgmm.sampler.hyperparameters.learnt_directions import LearntDirections
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.tables.checks import without_dims

# Coordinates that are drawn one by one, at most: of more, a gradient tells more.
MOST_COORDINATES = 16
# Numbers in the offset of rows that are drawn so, at most, and the most of them times rows: every slice takes the
# time of all rows some times, and a gradient tells of all numbers at once.
MOST_IN_OFFSET, MOST_ROWS_TIMES_NUMBERS = 8, 10_000


def hyperparameters(model: pm.Model) -> list[Variable]:
    """Return the hyperparameters of a model that can be drawn with the labels of its mixtures.

    Concentrations that have an exact draw are not among them, nor are variables that rows depend on, but for few
    numbers in the offset of observed rows.
    """
    labels = {rv for rv in _partitions(model) if not has_atoms(model, rv)}
    mixtures = {other for rv in labels for other in dependents(model, rv) if is_plain_mixture(model, rv, other)}
    of_rows = set().union(*(_behind_rows(model, mixture) for mixture in mixtures))
    found = governing(model, labels | mixtures, of_rows)
    found |= {rv for scale in learnt_scales(model).values() for rv in scale.variables}
    return [rv for rv in model.free_RVs if rv in found]


def _partitions(model: pm.Model) -> list[Variable]:
    return [rv for rv in model.free_RVs if is_labels(rv) and isinstance(rv.owner.op, PartitionRV)]


def governing(model: pm.Model, governed: set[Variable], of_rows: set[Variable]) -> set[Variable]:
    """Return the continuous variables on which nothing depends but ``governed`` and each other.

    Angles are not among them: slices of a density that repeats itself for ever would become longer and longer.
    """
    upstream = set(ancestors(list(governed))) - governed - of_rows
    depending = {
        rv: set(dependents(model, rv))
        for rv in model.free_RVs
        if rv in upstream
        and rv.dtype in pm.vartypes.continuous_types
        and not is_circular(model.rvs_to_transforms[rv])
        and concentration_of(model, rv)[0] is None
    }
    found = set(depending)
    while found != (kept := {rv for rv in found if depending[rv] <= governed | found}):
        found = kept
    return found


def learnt_scales(model: pm.Model) -> dict[Variable, LearntScale]:
    """Return the learnt scales of a model's mixtures, also of rows in groups, by the mixtures.

    There is an exact draw of them, which takes little longer for many columns than for a few.
    """
    found = {}
    for mixture in model.basic_RVs:
        if isinstance(mixture.owner.op, CollapsedMixtureRV):
            labels, _ = of_units(mixture_inputs(mixture).labels)
            if labels not in model.free_RVs or not is_labels(labels) or has_atoms(model, labels):
                continue
            if is_plain_mixture(model, labels, mixture):
                scale = learnt_scale(model, mixture)
                if scale is not None:
                    found[mixture] = scale
    return found


def _behind_rows(model: pm.Model, mixture: Variable) -> set[Variable]:
    """Return what keeps its step since the rows of a mixture depend on it."""
    inputs = mixture_inputs(mixture)
    others = {*inputs.params, *([inputs.offset] if moved_by_offset(model, mixture) else [])}
    roots = [value for value in inputs.in_order() if value not in others]
    return set(ancestors(roots, blockers=model.basic_RVs))


def moved_by_offset(model: pm.Model, mixture: Variable) -> list[Variable]:
    """Return the free variables in the offset of a mixture's rows, if these can be drawn as hyperparameters.

    The rows are observed, without missing entries and units, and their clusters are normal.
    """
    inputs, layout = mixture_inputs(mixture), mixture.owner.op.layout
    labels = inputs.labels
    if inputs.offset is None or inputs.missing is not None or layout.is_sparse or layout.power != 1.0:
        return []
    is_plain = labels in model.free_RVs and isinstance(labels.owner.op, PartitionRV) and mixture.dtype == "float64"
    if not is_plain or mixture in model.free_RVs or layout.family.component.normal_rows is None:
        return []
    n = fixed_rows(labels)
    behind = set(ancestors([inputs.offset], blockers=model.basic_RVs))
    moving = [rv for rv in model.free_RVs if rv in behind]
    if n is None or constraints_on(labels) is not None or any(rv.dtype != "float64" for rv in moving):
        return []
    number = sum(count_numbers(model, moving).values())
    return moving if number <= MOST_IN_OFFSET and number * n <= MOST_ROWS_TIMES_NUMBERS else []


def chosen_hyperparameters(
    model: pm.Model, known: Sequence[Variable], given: Sequence[Variable]
) -> list[Variable]:
    """Return which of a model's :func:`hyperparameters` a step that has all labels among its variables draws.

    They are learnt scales, and few other coordinates.

    Parameters
    ----------
    model : pm.Model
    known : sequence of variables
        The hyperparameters.
    given : sequence of variables
        Those that PyMC gives to the step.
    """
    if not known or any(is_labels(rv) and rv not in given for rv in model.free_RVs):
        return []
    chosen = [rv for rv in known if rv in given]
    by_scale = [rv for scale in learnt_scales(model).values() for rv in scale.variables]
    values = [model.rvs_to_values[rv] for rv in chosen if rv not in by_scale]
    of_groups = [[model.values_to_rvs[value] for value in group.values] for group in separate(model, values)]
    numbers = count_numbers(model, [rv for own in of_groups for rv in own])
    too_many = {rv for own in of_groups if sum(numbers[rv] for rv in own) > MOST_COORDINATES for rv in own}
    return [rv for rv in chosen if rv not in too_many]


class _Group(NamedTuple):
    """Value variables of hyperparameters, and the variables whose density depends on them."""

    values: list[Variable]
    terms: set[Variable]


def separate(model: pm.Model, values: Sequence[Variable]) -> list[_Group]:
    """Return hyperparameters in groups that are independent of each other given all else.

    A coordinate is drawn from the terms of its group, so that each of many mixtures costs what it costs alone.
    """
    groups: list[_Group] = []
    for value in values:
        rv = model.values_to_rvs[value]
        new = _Group([value], {rv, *dependents(model, rv)})
        for group in [group for group in groups if group.terms & new.terms]:
            new = _Group(group.values + new.values, group.terms | new.terms)
            groups.remove(group)
        groups.append(new)
    return groups


def hyperparameters_of_step(
    model: pm.Model,
    values: Sequence[Variable],
    targets: Sequence[LabelsTarget],
    compile_kwargs: dict[str, Any] | None,
) -> list["Hyperparameters | LearntScaleDraw"]:
    """Return the hyperparameters that a step draws, in groups; see :class:`Hyperparameters`."""
    made: list[Hyperparameters | LearntScaleDraw] = []
    for mixture, scale in learnt_scales(model).items():
        own = {model.rvs_to_values[rv] for rv in scale.variables}
        if own <= set(values):
            made.append(LearntScaleDraw(model, mixture, scale, targets))
            values = [value for value in values if value not in own]
    groups = separate(model, values)
    terms = [rv for rv in model.basic_RVs if any(rv in group.terms for group in groups)]
    plain = [rv for rv in terms if not isinstance(rv.owner.op, CollapsedMixtureRV)]
    # PyMC takes as long for the density of one variable as for those of all.
    densities = dict(zip(plain, model.logp(vars=plain, sum=False), strict=True)) if plain else {}
    for group in groups:
        of_group = [rv for rv in terms if rv in group.terms]
        log_p = pt.add(*(without_dims(densities[rv]).sum() for rv in of_group if rv in densities))
        mixtures = [rv for rv in of_group if rv not in densities]
        made.append(Hyperparameters(model, group.values, log_p, mixtures, targets, compile_kwargs))
    return made


class Hyperparameters:
    """Hyperparameters that a step draws, and the density of each given all else.

    Rows enter the density through the clusters' sums, which the state of the labels has.

    Parameters
    ----------
    model : pm.Model
    values : sequence of variables
        Value variables of hyperparameters.
    log_p : variable
        The log density of their priors, and of labels and hyperparameters that depend on them.
    mixtures : sequence of variables
        The mixtures whose base measures depend on them.
    targets : sequence of LabelsTarget
        All labels of the step, in the order in which states are given.
    compile_kwargs : dict, optional

    Attributes
    ----------
    watched : list of str
        Names of the variables.
    n_impossible : int
        Evaluations in the last draw at which the log density was +inf or NaN.
    """

    def __init__(
        self,
        model: pm.Model,
        values: Sequence[Variable],
        log_p: Variable,
        mixtures: Sequence[Variable],
        targets: Sequence[LabelsTarget],
        compile_kwargs: dict[str, Any] | None,
    ) -> None:
        self.names = [value.name for value in values]
        self._evidences = []
        outputs = [log_p]
        self._ends = [1]
        moving = set()
        for mixture in mixtures:
            layout, inputs_of = mixture.owner.op.layout, mixture_inputs(mixture)
            names, params = layout.family.parameters, inputs_of.params
            changing = {n: p for n, p in zip(names, params, strict=True) if not isinstance(p, Constant)}
            own = {model.rvs_to_values[rv].name for rv in moved_by_offset(model, mixture)} & set(self.names)
            moving |= own
            self._evidences.append(EvidenceOfMixture(mixture, list(changing), targets, bool(own)))
            expressions = list(changing.values())
            if own:
                expressions.append(mixture_values(layout, model.rvs_to_values[mixture], inputs_of))
            outputs += [value.astype("float64") for value in model.replace_rvs_by_values(expressions)]
            self._ends.append(len(outputs))
        inputs = values_behind(model, outputs)
        self._inputs = [value.name for value in inputs]
        # Those that leave the rows where they are, and those that are drawn along directions.
        self._still = [name for name in self.names if name not in moving]
        self._along = list(self.names) if moving else []
        self._dtypes = [value.dtype for value in inputs]
        self._positions = [self._inputs.index(name) for name in self.names]
        self._shapes = [output.type.shape for output in outputs]
        self._function = DirectFunction(inputs, outputs, **(compile_kwargs or {}))
        self._slices: CoordinateSlices | None = None
        self._is_native = False
        self._arguments: list[np.ndarray] = []
        self.watched, self.n_impossible = [model.values_to_rvs[value].name for value in values], 0

    def __getstate__(self) -> dict[str, Any]:
        # Code belongs to one process.
        return {**self.__dict__, "_slices": None}

    @property
    def kernels(self) -> list[CFunction]:
        """What is called for draws without Python."""
        return [*KERNELS, *(kernel for evidence in self._evidences for kernel in evidence.kernels)]

    def draw(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        states: Sequence[State | None],
        widths: dict[str, Any],
        tuning: bool,
    ) -> None:
        """Draw all coordinates in a point, one after the other, each given everything else.

        ``states`` are those of the targets, None where labels have no posterior. ``widths`` are those of slices,
        by the names of variables, and learnt directions, by the names of those that move rows; none before the
        first draw. In tuning they change.
        """
        arguments, self.n_impossible = self._arguments_at(point), 0
        for evidence in self._evidences:
            state = states[evidence.target]
            if state is None:
                # There is no density to slice: the variables wait until labels and rows allow them.
                return
            evidence.begin(state)
        of_variables = [widths.setdefault(name, np.ones(np.shape(point[name]))) for name in self._still]
        along = self._arrays_of(self._along, arguments)
        of_rows = ", ".join(["rows", *self._along])
        directions = widths.get(of_rows)
        if directions is None:
            directions = widths[of_rows] = LearntDirections(sum(array.size for array in along))
        if self._slices is None:
            # PyTensor compiles its function at the first call.
            self._function(*self._typed(arguments))
            self._slices, self._is_native = self._slices_of(arguments)
        slices, given = self._slices, arguments
        if self._is_native:
            given = [*arguments, *self._function.shared]
            for position, evidence in enumerate(self._evidences):
                of_table = evidence.table, evidence.n_clusters, evidence.names
                slices.set_clusters(position, *of_table, self._ends[position], evidence.rows)
        values = self._arrays_of(self._still, arguments)
        n_impossible = slices.draw(rng, given, values, of_variables, tuning, along, directions)
        if n_impossible is None:
            # What failed is in the arguments: PyTensor tells what it is.
            self._log_density(arguments)
            raise RuntimeError(f"the log density of {', '.join(self.names)} could not be computed")
        self.n_impossible = n_impossible
        if tuning and len(directions.widths) > 1:
            directions.learn(np.concatenate([array.ravel() for array in along]))
        drawn = {
            name: np.array(arguments[at], self._dtypes[at])
            for name, at in zip(self.names, self._positions, strict=True)
        }
        point.update(drawn)

    def _arguments_at(self, point: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return the inputs at a point, in arrays that stay where they are as long as shapes do.

        What is drawn has double precision there.
        """
        given = [np.asarray(point[name]) for name in self._inputs]
        kept = self._arguments
        if len(kept) != len(given) or any(
            own.shape != array.shape for own, array in zip(kept, given, strict=True)
        ):
            kept = self._arguments = [np.array(array, order="C") for array in given]
            for at in self._positions:
                kept[at] = kept[at].astype(np.float64)
        for own, array in zip(kept, given, strict=True):
            own[...] = array
        return kept

    @property
    def moves_rows(self) -> bool:
        """Whether rows depend on some of the variables, so that the state has others after a draw."""
        return bool(self._along)

    def _arrays_of(self, names: Sequence[str], arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the arrays of some variables among the arguments."""
        return [arguments[self._inputs.index(name)] for name in names]

    def _slices_of(self, arguments: Sequence[np.ndarray]) -> tuple[CoordinateSlices, bool]:
        """Return what draws, and whether it needs no Python."""
        native = self._function.native() if self._may_be_native() else None
        if native is not None:
            return CoordinateSlices(
                native, [np.empty(shape) for shape in self._shapes], len(self._evidences)
            ), True
        kinds = [(array.dtype, array.ndim) for array in arguments]
        entry = PythonCall(lambda *arrays: [np.array(self._log_density(arrays))], kinds)
        return CoordinateSlices(entry, [np.empty(1)], 0), False

    def _may_be_native(self) -> bool:
        is_known = all(isinstance(n, int) for shape in self._shapes for n in shape)
        are_floats = all(self._dtypes[at] == "float64" for at in self._positions)
        return is_known and are_floats and all(evidence.table.is_native for evidence in self._evidences)

    def _typed(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return arguments of the types of the inputs."""
        return [array.astype(t, copy=False) for array, t in zip(arguments, self._dtypes, strict=True)]

    def _log_density(self, arguments: Sequence[np.ndarray]) -> float:
        """Return the log density of everything that hyperparameters govern, and of themselves."""
        outputs = self._function(*self._typed(arguments))
        log_p = float(outputs[0])
        for evidence, start, stop in zip(self._evidences, self._ends, self._ends[1:], strict=False):
            # Where the priors say that it cannot be, parameters may be no numbers.
            if not -math.inf < log_p < math.inf:
                return log_p
            params = outputs[start : stop - 1] if evidence.moves_rows else outputs[start:stop]
            log_p += evidence.at(params, outputs[stop - 1] if evidence.moves_rows else None)
        return log_p
