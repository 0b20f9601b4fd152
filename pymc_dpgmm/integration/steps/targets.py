"""Targets of label steps: labels with their prior, the mixtures on them, and missing entries of rows."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.families import Family, View, constrained
from pymc_dpgmm.integration.internals.pymc_internals import constant_fold
from pymc_dpgmm.integration.steps.dependents import Dependents, DependentsAt
from pymc_dpgmm.integration.steps.points import PointFunction
from pymc_dpgmm.integration.variables import (
    LabelsRV,
    MissingEntriesRV,
    PartitionRV,
    SparseValues,
    as_numbers,
    constraints_on,
    dependents,
    is_plain_mixture,
    mixture_inputs,
    mixture_values,
    note_sampling,
    of_units,
    prior_parameters,
)
from pymc_dpgmm.integration.variables.lengths import check_lengths
from pymc_dpgmm.integration.variables.observed import check_values, count_missing
from pymc_dpgmm.partitions.known import allow, blocks_of
from pymc_dpgmm.partitions.labels import canonical_labels, cluster_sizes
from pymc_dpgmm.partitions.priors import GibbsType
from pymc_dpgmm.sampler.moves.imputation import impute
from pymc_dpgmm.sampler.state.marginal import same_values
from pymc_dpgmm.sampler.state.state import State


class KeptState(NamedTuple):
    """The state of one partition that a step keeps between draws, and the labels and views it was made from."""

    labels: np.ndarray
    views: list[View]
    state: Any


def sampled_family(model: pm.Model, mixture: Variable) -> Family:
    """Return the family that samplers will use for a mixture, as far as it is known without the data."""
    layout = mixture.owner.op.layout
    family: Family = layout.family
    n_rows = model.rvs_to_values[mixture].type.shape[0]
    if family.wide is None or mixture_inputs(mixture).missing is not None or n_rows is None:
        return family
    return family.wide(n_rows, layout.n_columns) or family


class MixtureTarget:
    """One mixture on the labels of a target: its family, and how to read its numbers from a point."""

    def __init__(self, model: pm.Model, mixture: Variable) -> None:
        self.name = mixture.name
        op, inputs = mixture.owner.op, mixture_inputs(mixture)
        self.family: Family = op.layout.family
        self.power: float = op.layout.power
        check_lengths(mixture, inputs.labels)
        rows = mixture if mixture in model.free_RVs else model.rvs_to_values[mixture]
        self._values = PointFunction(model, [mixture_values(op.layout, rows, inputs)])
        self._params = PointFunction(model, inputs.params)
        self.missing, self.positions = inputs.missing, inputs.positions
        self.sampled_family = sampled_family(model, mixture)
        self.offset = None if inputs.offset is None else PointFunction(model, [inputs.offset])
        _, unit = of_units(inputs.labels)
        self._unit = None if unit is None else PointFunction(model, [unit])
        self._sparse = SparseValues() if op.layout.is_sparse else None
        self._built, self._inputs = op.built, inputs.in_order()
        self.note_sampling()
        self._given: Any = None
        self._numbers: Any = None
        self._checked: Any = None
        self._checked_unit: Any = None
        # The rows that a step has drawn last: their name in a point, the array there, and the values of the table.
        self._drawn: tuple[str, Any, Any] = ("", None, None)
        self._params_at: Callable[[dict[str, np.ndarray]], Any] = self.params_at
        self.supports: Callable[[Any], bool] = self.family.supports

    def note_sampling(self) -> None:
        """Note that the labels are sampled with the present data from now on."""
        note_sampling(self._built, self._inputs)

    def params_at(self, point: dict[str, np.ndarray]) -> Any:
        """Return the parameters of the base measure at a point, as numbers of the family."""
        arrays = self._params(point)
        if arrays is not self._given:
            self._given, self._numbers = arrays, self.family.params(*as_numbers(arrays))
        return self._numbers

    def read_params_by(
        self, params_at: Callable[[dict[str, np.ndarray]], Any], supports: Callable[[Any], bool]
    ) -> None:
        """Take faster functions for :meth:`params_at` and ``Family.supports``."""
        self._params_at, self.supports = params_at, supports

    @property
    def has_unit(self) -> bool:
        """Whether the labels are labels of units."""
        return self._unit is not None

    def view(self, point: dict[str, np.ndarray], n: int) -> View:
        """Return the numbers at a point.

        Raises
        ------
        ValueError
            If the numbers of rows and labels differ, or values are no data for the family.
        """
        values = self._values_at(point)
        unit = None if self._unit is None else self._unit(point)[0]
        params = self._params_at(point)
        if self._sparse is not None:
            values = self._sparse(values, (n if unit is None else len(unit), len(params[0])))
        if unit is not self._checked_unit:
            if unit is not None:
                self._check_unit(unit, values.shape[0], n)
            self._checked_unit = unit
        if values is not self._checked:
            if unit is None and values.shape[0] != n:
                raise ValueError(
                    f"there are {n} labels, but {self.name} has {values.shape[0]} rows: give one label per row, "
                    "also in starting labels"
                )
            check_values(values)
            n_missing = count_missing(values)
            if n_missing and not self.family.takes_missing:
                raise ValueError(
                    f"{self.name} has {n_missing} missing entries (NaN), and none when the model was built"
                )
            self.family.check_values(params, values)
            self._checked = values
        return View(self.family, params, values, unit, power=self.power)

    def note_drawn(self, name: str, rows: np.ndarray, values: np.ndarray) -> None:
        """Note which values the rows are that a step has put into a point: they need no check."""
        self._drawn, self._checked = (name, rows, values), values

    def _values_at(self, point: dict[str, np.ndarray]) -> Any:
        name, rows, values = self._drawn
        if rows is not None and point[name] is rows:
            return values
        return self._values(point)[0]

    def absent(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return which entries are missing: an array of bools."""
        absent = np.zeros(shape, dtype=np.bool_)
        absent.flat[self.positions.data] = True
        return absent

    def write_missing(self, point: dict[str, np.ndarray], entries: np.ndarray, absent: np.ndarray) -> None:
        """Set the missing entries in a point. ``entries`` are drawn without the offset, which is added."""
        if self.offset is not None:
            (offset,) = self.offset(point)
            entries = entries + offset.reshape(absent.shape)[absent]
        point[self.missing.name] = entries

    def _check_unit(self, unit: np.ndarray, n_rows: int, n: int) -> None:
        if len(unit) != n_rows:
            raise ValueError(f"{self.name} has {n_rows} rows, but {len(unit)} of them have a unit")
        if unit.min() < 0 or unit.max() >= n:
            raise ValueError(
                f"there are {n} labels, but the units of {self.name} reach from {unit.min()} to {unit.max()}"
            )


class LabelsPrior:
    """The prior of labels, and the constraints on them."""

    def __init__(self, model: pm.Model, rv: Variable) -> None:
        self.name = rv.name
        self._op = rv.owner.op
        self.constraints = constraints_on(rv)
        self.blocks = None if self.constraints is None else blocks_of(self.constraints)
        self._parameters = PointFunction(model, list(prior_parameters(rv).values()))
        self._last: tuple[Any, int, GibbsType | None] = (None, 0, None)

    def at(self, point: dict[str, np.ndarray], n: int) -> GibbsType | None:
        """Return the prior on partitions at a point; None where its parameters are outside their support."""
        parameters = self._parameters(point)
        if parameters is not self._last[0] or n != self._last[1]:
            prior = self._op.prior(*as_numbers(parameters), n)
            if prior is not None and self.blocks is not None:
                prior = prior._replace(extra=float(n - len(self.blocks.first)))
            self._last = (parameters, n, prior)
        return self._last[2]

    def check(self, labels: np.ndarray) -> None:
        """Raise ValueError if labels are out of range or contradict the constraints."""
        check_range(self.name, labels)
        if self.constraints is not None and not allow(self.constraints, labels):
            raise ValueError(f"{self.name} contradicts its known_labels or must_link")


def check_range(name: str, labels: np.ndarray) -> None:
    """Raise ValueError if labels are out of range."""
    if not len(cluster_sizes(labels)):
        raise ValueError(
            f"{name} must lie in 0..n-1 = 0..{len(labels) - 1}, got values from {labels.min()} to {labels.max()}"
        )


def n_labels(rv: Variable) -> int:
    """Return the number of labels; 0 if it depends on data of the model that may change."""
    (n,) = constant_fold([rv.shape[0]], raise_not_constant=False)
    return 0 if isinstance(n, Variable) else int(n)


class LabelsTarget:
    """One vector of labels in a model: its prior, the mixtures on it, and other dependents."""

    # Whether splits and merges, and other moves, go with scans.
    has_moves = True
    # What is drawn with labels of rows in groups.
    openers: Variable | None = None

    def __init__(self, model: pm.Model, value: Variable) -> None:
        rv = model.values_to_rvs[value]
        if rv.owner is None or not isinstance(rv.owner.op, LabelsRV):
            raise TypeError(
                f"{value.name} has no prior on partitions; this step method samples labels alone, such as "
                "those of a dp.CRP, dp.PitmanYor, dp.FiniteDirichlet or dp.MFM"
            )
        self.name = value.name
        self.dtype = value.dtype
        self.n_rows = n_labels(rv)
        mixtures, others = self._dependents(model, rv)
        self.mixtures = [MixtureTarget(model, mixture) for mixture in mixtures]
        self.dependents = Dependents(model, rv, value, others) if others else None
        self._op = rv.owner.op
        self._prior = LabelsPrior(model, rv) if isinstance(self._op, PartitionRV) else None
        self._blocks = None if self._prior is None else self._prior.blocks

    @property
    def may_search(self) -> bool:
        """Whether searches help. They ignore groups of rows."""
        return True

    @property
    def takes_leaders(self) -> bool:
        """Whether leader sweeps are possible: not with units, constraints, other dependents or powers."""
        if any(mixture.has_unit or mixture.power != 1.0 for mixture in self.mixtures):
            return False
        return self.dependents is None and self._blocks is None

    @property
    def moves_latent_rows(self) -> bool:
        """Whether a latent row may change its label together with its value: where it could in a leader sweep."""
        return self.takes_leaders

    @staticmethod
    def _dependents(model: pm.Model, rv: Variable) -> tuple[list[Variable], list[Variable]]:
        """Return the mixtures that kernels can sample, and all other dependents of the labels."""
        mixtures: list[Variable] = []
        others: list[Variable] = []
        for other in dependents(model, rv):
            (mixtures if is_plain_mixture(model, rv, other) else others).append(other)
        return mixtures, others

    def prior(self, point: dict[str, np.ndarray]) -> GibbsType | None:
        """Return the prior on partitions at a point; None where its parameters are outside their support."""
        assert self._prior is not None
        return self._prior.at(point, len(point[self.name]))

    def state(
        self, point: dict[str, np.ndarray], prior: GibbsType | None, prepared: KeptState | None
    ) -> KeptState | None:
        """Return the state at a point: the prepared one unless its inputs have changed.

        It is a state of rows or, with constraints, of blocks of rows. Returns None if the parameters of the base
        measures are outside their support.
        """
        labels = point[self.name]
        views = [mixture.view(point, len(labels)) for mixture in self.mixtures]
        if self._blocks is not None:
            assert prior is not None
            views = of_blocks(views, self._blocks.of_row)
            views.append(View(constrained.FAMILY, constrained.FAMILY.params(prior.discount), self._blocks.table))
        same_labels = prepared is not None and (
            labels is prepared.labels or np.array_equal(labels, prepared.labels)
        )
        are_same = prepared is not None and all(map(same_rows, views, prepared.views))
        if prepared is not None and same_labels and are_same and all(map(same_params, views, prepared.views)):
            return prepared
        if not same_labels:
            self._check(labels)
        if not self._support(views):
            return None
        if prepared is not None and same_labels:
            params = [view.params for view in views]
            if are_same:
                prepared.state.set_params(params)
                return prepared._replace(views=views)
            # With an offset that has moved, rows change and the partition does not.
            values, have_shapes = [view.values for view in views], all(map(same_shapes, views, prepared.views))
            if have_shapes and prepared.state.replace_rows(values, params):
                return prepared._replace(views=views)
        labels_of_blocks = labels if self._blocks is None else canonical_labels(labels)[0][self._blocks.first]
        return KeptState(labels, views, State(views, labels_of_blocks))

    def _support(self, views: Sequence[View]) -> bool:
        """Tell whether the parameters of the base measures are inside their support; discounts always are."""
        return all(mixture.supports(view.params) for mixture, view in zip(self.mixtures, views, strict=False))

    def _check(self, labels: np.ndarray) -> None:
        """Raise ValueError if labels are out of range or contradict the constraints."""
        if self._prior is not None:
            self._prior.check(labels)
        else:
            check_range(self.name, labels)

    def impute(
        self,
        rng: np.random.Generator,
        point: dict[str, np.ndarray],
        prepared: KeptState,
        imputed: Sequence[str],
    ) -> KeptState:
        """Draw the missing entries of the named variables with the rows' clusters, and set them in a point."""
        if not any(mixture.missing is not None and mixture.missing.name in imputed for mixture in self.mixtures):
            return prepared
        absent = [
            mixture.absent(view.values.shape)
            if mixture.missing is not None and mixture.missing.name in imputed
            else None
            for mixture, view in zip(self.mixtures, prepared.views, strict=True)
        ]
        values = [view.values for view in prepared.views]
        entries = impute(rng, prepared.state, values, absent)
        views = []
        tables = prepared.state.tables[: len(self.mixtures)]
        for mixture, view, table, drawn, gaps in zip(
            self.mixtures, prepared.views, tables, entries, absent, strict=True
        ):
            if drawn is not None and gaps is not None:
                mixture.write_missing(point, drawn, gaps)
                completed = view.values.copy()
                completed[gaps] = drawn
                # Leader sweeps take the values of families without a quadratic density.
                table.values = completed
                view = view._replace(values=completed)
            views.append(view)
        return KeptState(self.labels_of(prepared.state), views, prepared.state)

    def enter(self, rng: np.random.Generator, point: dict[str, np.ndarray], state: State, laws: Any) -> None:
        """Prepare a state for a draw that is no search."""

    def leave(self, point: dict[str, np.ndarray], state: State) -> None:
        """Set the variables that were drawn together with the labels in a point."""

    def rest(self, point: dict[str, np.ndarray], state: State) -> DependentsAt | None:
        """Return what else depends on the labels, at those of a state; None if nothing does."""
        if self.dependents is None:
            return None
        return self.dependents.at(point, self.labels_of(state), self.labels_of)

    def has_drawn_concentrations(self, state: State) -> bool:
        """Tell whether concentrations were drawn with the labels of a state."""
        return True

    def sizes(self, point: dict[str, np.ndarray], prepared: KeptState | None) -> np.ndarray:
        """Return the sizes of the clusters at a point, in any order."""
        if prepared is None or self._blocks is not None:
            return cluster_sizes(point[self.name])
        return prepared.state.cluster_sizes

    def with_drawn_rows(self, point: dict[str, np.ndarray], prepared: KeptState, v: int, name: str) -> KeptState:
        """Return a state that has the rows of a view that are in a point under a name, with its inputs.

        The table of the view has them already, but for what rounding in the point has changed.
        """
        mixture, state, table = self.mixtures[v], prepared.state, prepared.state.tables[v]
        values, d = table.values, int(np.prod(point[name].shape[1:], dtype=np.int64))
        if mixture.offset is not None or point[name].dtype != np.float64:
            # What the next draw finds is rounded.
            values = mixture.view(point, len(point[self.name])).values
            state.take_rows(v, values[:, :d])
        elif d == values.shape[1]:
            # No known columns, which might be others in the next draw.
            mixture.note_drawn(name, point[name], values)
        views = list(prepared.views)
        views[v] = views[v]._replace(values=values, params=table.params)
        return prepared._replace(views=views)

    def labels_of(self, state: State) -> np.ndarray:
        """Return the labels of rows from a state."""
        labels = state.labels().astype(self.dtype, copy=False)
        return labels if self._blocks is None else labels[self._blocks.of_row]


def of_blocks(views: Sequence[View], of_row: np.ndarray) -> list[View]:
    """Return views whose units are blocks of rows, or of units, that are in one cluster for certain."""
    return [view._replace(unit=of_row if view.unit is None else of_row[view.unit]) for view in views]


def same_rows(view: View, other: View) -> bool:
    """Tell whether two views have the same data."""
    return same_values(view.values, other.values) and (
        view.unit is other.unit or np.array_equal(view.unit, other.unit)
    )


def same_shapes(view: View, other: View) -> bool:
    """Tell whether two views have arrays of the same shape, of rows of the same units."""
    arrays = isinstance(view.values, np.ndarray) and isinstance(other.values, np.ndarray)
    return arrays and view.values.shape == other.values.shape and np.array_equal(view.unit, other.unit)


def same_params(view: View, other: View) -> bool:
    """Tell whether two views of a family have the same parameters."""
    pairs = zip(view.params, other.params, strict=True)
    return view.params is other.params or all(np.array_equal(new, old) for new, old in pairs)


def is_labels(var: Any) -> bool:
    """Tell whether a variable is a vector of labels that moves can draw."""
    return var.owner is not None and isinstance(var.owner.op, LabelsRV) and var.owner.op.are_free


def is_missing(var: Any) -> bool:
    """Tell whether a variable is the vector of missing entries of data."""
    return var.owner is not None and isinstance(var.owner.op, MissingEntriesRV)


def labels_of_missing(model: pm.Model, missing: Variable) -> Variable | None:
    """Return the labels together with which missing entries can be drawn, or None.

    This is possible if only a mixture on labels of rows depends on the missing entries, and only mixtures on rows
    depend on the labels.
    """
    depending = dependents(model, missing) if is_missing(missing) else []
    if len(depending) != 1:
        return None
    (mixture,) = depending
    labels = mixture_inputs(mixture).labels
    if labels not in model.free_RVs or not isinstance(labels.owner.op, PartitionRV):
        return None
    if constraints_on(labels) is not None:
        return None
    for other in dependents(model, labels):
        if not is_plain_mixture(model, labels, other) or mixture_inputs(other).labels is not labels:
            return None
    return labels
