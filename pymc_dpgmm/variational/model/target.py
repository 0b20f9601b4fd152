"""Reads mixture, data and priors from a model, and refuses models that variational inference does not support."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.families import View
from pymc_dpgmm.families.contract.base_measure import named_kinds
from pymc_dpgmm.integration.steps.chunked import ChunkedTarget
from pymc_dpgmm.integration.steps.concentration import Concentration, concentration_of
from pymc_dpgmm.integration.steps.points import PointFunction
from pymc_dpgmm.integration.steps.targets import LabelsTarget, is_labels
from pymc_dpgmm.integration.variables import (
    as_numbers,
    constraints_on,
    fixed_rows,
    mixture_inputs,
    of_units,
    prior_parameters,
)
from pymc_dpgmm.integration.variables.chunked_partition import chunked_names, is_chunked_clusters
from pymc_dpgmm.integration.variables.models import value_of
from pymc_dpgmm.integration.variables.partition_operations import (
    CRPRV,
    MFMRV,
    FiniteDirichletRV,
    PartitionRV,
    PitmanYorRV,
)
from pymc_dpgmm.tables.checks import listed
from pymc_dpgmm.variational.ascent import Approximation, Prior, settle
from pymc_dpgmm.variational.model.chunked_rows import ChunkedRows
from pymc_dpgmm.variational.model.maximization import MaximizedParameters
from pymc_dpgmm.variational.rows import RowsAnywhere, RowsInMemory
from pymc_dpgmm.variational.weights import DirichletWeights, Sticks


class FitTarget:
    """The labels of a model, their prior and the mixtures that depend on them, at values of other variables.

    Parameters
    ----------
    model : pm.Model
    point : mapping of str to array_like
        Values of free variables by name.
    maximize : sequence of str
        Names of free variables at which bound plus log density is maximised.

    Raises
    ------
    TypeError, ValueError
        If variational inference does not support the model.
    """

    def __init__(self, model: pm.Model, point: Mapping[str, Any], maximize: Sequence[str] = ()) -> None:
        self.model = model
        self.labels = self._found()
        self.alpha: Any = None
        self._check_labels()
        names = {rv.name: rv for rv in model.free_RVs}
        for argument, argument_names in (("point", point), ("maximize", maximize)):
            unknown = [name for name in argument_names if name not in names or names[name] is self.labels]
            if unknown:
                raise ValueError(
                    f"{argument} must have names of free variables other than labels, "
                    f"{listed(name for name in names if name != self.labels.name)}, got {listed(unknown)}"
                )
        both = [name for name in maximize if name in point]
        if both:
            raise ValueError(f"{listed(both)} must be in point or in maximize, not in both")
        self.given = {name: np.asarray(value) for name, value in point.items()}
        self.point = self._value_point(names, maximize)
        self.n = self._n_rows()
        self.point[model.rvs_to_values[self.labels].name] = self._one_cluster()
        self.prior = self._prior()
        self.views = self._views()
        self.hyperparameters: MaximizedParameters | None = None
        if maximize:
            self._check_offsets(maximize)
            self.hyperparameters = MaximizedParameters(
                model, self.labels, self._prior_inputs(), self._parameters(), self.alpha, maximize, self.point
            )

    def maximize(self, rows: RowsAnywhere, state: Approximation) -> Approximation:
        """Maximise over hyperparameters given responsibilities, and return the new state.

        ``rows``, ``prior`` and ``given`` are updated to the new values.
        """
        assert self.hyperparameters is not None
        self._take(self.hyperparameters, self.hyperparameters.maximized(rows, state, self.point))
        return settle(rows, self.prior, state.sums, state.entropy, None, state.weights)

    def go_to(self, rows: RowsAnywhere, state: Approximation, point: dict[str, np.ndarray]) -> None:
        """Take the hyperparameters of another point; ``rows``, ``prior`` and ``given`` are updated to them."""
        assert self.hyperparameters is not None
        self.hyperparameters.evaluate(rows, state, point)
        self._take(self.hyperparameters, point)

    def _take(self, hyperparameters: MaximizedParameters, point: dict[str, np.ndarray]) -> None:
        """Take a point at which the rows have their parameters already."""
        self.point = point
        self.given |= hyperparameters.natural(point)
        self.prior = self._prior()

    def check_maximum(self, rows: RowsAnywhere, state: Approximation) -> None:
        """Raise ValueError if hyperparameters diverge, to infinity or to a bound of their support."""
        assert self.hyperparameters is not None
        self.hyperparameters.check_maximum(rows, state, self.point)

    @property
    def log_density(self) -> float:
        """Log density of all variables but labels and mixtures if hyperparameters are maximised; else 0."""
        return 0.0 if self.hyperparameters is None else self.hyperparameters.log_density

    @property
    def dtype(self) -> str:
        """Data type of the labels."""
        return str(self.labels.dtype)

    def rows(self) -> RowsAnywhere:
        """Return the rows of the views."""
        return RowsInMemory(self.views)

    def _found(self) -> Any:
        """Return the labels or, for rows in chunks, the number of clusters."""
        labels = [rv for rv in self.model.free_RVs if is_labels(rv) or is_chunked_clusters(rv)]
        if not labels:
            raise TypeError(
                "dp.fit needs a model with free labels of a mixture, such as dp.DPMixture: this one has none"
            )
        if len(labels) > 1:
            raise TypeError(
                f"dp.fit needs a model with one vector of labels, got {listed(rv.name for rv in labels)}: fit a "
                "model of each, or use pm.sample()"
            )
        return labels[0]

    def _one_cluster(self) -> np.ndarray:
        """Return labels with all rows in one cluster."""
        return np.zeros(self.n, dtype=self.labels.dtype)

    def _prior_inputs(self) -> tuple[Any, dict[str, Any]]:
        """Return the operation of the prior on partitions, and its parameters by name."""
        return self.labels.owner.op, prior_parameters(self.labels)

    def _parameters(self) -> dict[Any, Sequence[Any]]:
        """Return the mixtures and the parameters of their families."""
        mixtures = [self.model[mixture.name] for mixture in self._mixtures]
        return {mixture: mixture_inputs(mixture).params for mixture in mixtures}

    def _check_offsets(self, maximize: Sequence[str]) -> None:
        maximized = {self.model[name] for name in maximize}
        for mixture in self._mixtures:
            offset = mixture_inputs(self.model[mixture.name]).offset
            if offset is not None and maximized & set(ancestors([offset])):
                raise TypeError(
                    f"the offset of {mixture.name} depends on variables in maximize, which dp.fit does not "
                    "support: give values in point, or use pm.sample()"
                )

    def _check_labels(self) -> None:
        labels = self.labels
        if not isinstance(labels.owner.op, PartitionRV):
            raise TypeError(f"{labels.name} has groups or topics, which dp.fit does not support: use pm.sample()")
        _check_prior(labels.owner.op)
        if constraints_on(labels) is not None:
            raise TypeError(
                f"dp.fit does not support known_labels and must_link of {labels.name}: leave them out, or use "
                "pm.sample()"
            )
        target = LabelsTarget(self.model, self.model.rvs_to_values[labels])
        if target.dependents is not None:
            raise TypeError(
                f"dp.fit supports only mixtures that depend on {labels.name}, no other variables: use pm.sample()"
            )
        if not target.mixtures:
            raise TypeError(f"no data depends on {labels.name}: add a mixture of these labels")
        self._mixtures = target.mixtures
        for mixture in target.mixtures:
            self._check_mixture(mixture)

    def _check_mixture(self, mixture: Any) -> None:
        rv = self.model[mixture.name]
        if rv in self.model.free_RVs:
            raise TypeError(f"{mixture.name} is latent, and dp.fit needs observed data: use pm.sample()")
        if mixture.power != 1.0:
            raise TypeError(f"{mixture.name} has power=, which dp.fit does not support: use pm.sample()")
        if mixture.missing is not None:
            raise TypeError(
                f"missing entries of {mixture.name} are imputed, which dp.fit does not support: leave out "
                "rows with missing entries, or use pm.sample()"
            )
        if of_units(mixture_inputs(rv).labels)[1] is not None:
            raise TypeError(
                f"rows of {mixture.name} belong to units, which dp.fit does not support: use pm.sample()"
            )
        _check_family(mixture.family)

    def _value_point(self, names: Mapping[str, Any], maximize: Sequence[str]) -> dict[str, np.ndarray]:
        """Return values of the value variables of all free variables except the labels."""
        model, values = self.model, {}
        start = model.initial_point() if maximize else {}
        missing = []
        for name, rv in names.items():
            if rv is self.labels:
                continue
            if name in self.given:
                value = self._transformed(rv, self.given[name])
            elif name in maximize:
                value = start[model.rvs_to_values[rv].name]
            elif self._has_closed_form(rv):
                # Only the type of this value is used: the concentration has an approximate posterior.
                self.alpha, value = rv, np.zeros(())
            else:
                missing.append(name)
                continue
            values[model.rvs_to_values[rv].name] = value
        if missing:
            all_names = [*maximize, *missing]
            raise ValueError(
                f"dp.fit has no approximate posterior of {listed(missing)}: fix values by "
                f"dp.fit(point={{{missing[0]!r}: ...}}), maximise over them by dp.fit(maximize={all_names!r}), or "
                "replace them by numbers in the model. Besides labels and parameters of clusters, only the "
                "concentration of a Dirichlet process with a gamma prior has an approximate posterior"
            )
        return values

    def _has_closed_form(self, rv: Any) -> bool:
        labels, role = concentration_of(self.model, rv)
        return labels is self.labels and role == "alpha"

    def _transformed(self, rv: Any, value: np.ndarray) -> np.ndarray:
        """Check the value of a variable, and transform it to that of its value variable."""
        if value.dtype.kind not in "biuf" or not np.all(np.isfinite(value)):
            raise ValueError(f"point must have finite real numbers, got {rv.name} = {value}")
        if np.dtype(rv.dtype).kind != "f" and np.any(value != np.round(value)):
            raise ValueError(f"{rv.name} in point must be an integer, as {rv.name} is discrete, got {value}")
        shape = rv.type.shape
        if value.ndim != rv.ndim or any(k not in (None, m) for k, m in zip(shape, value.shape, strict=True)):
            raise ValueError(f"{rv.name} in point must have shape {shape}, got {value.shape}")
        transform = self.model.rvs_to_transforms[rv]
        if transform is None:
            return value.astype(rv.dtype)
        transformed = value_of(transform.forward(pt.constant(value.astype(rv.dtype)), *rv.owner.inputs))
        if not np.all(np.isfinite(transformed)):
            raise ValueError(f"{rv.name} in point must lie in its support, got {value}")
        return transformed

    def _n_rows(self) -> int:
        n = fixed_rows(self.labels)
        if n is not None:
            return n
        return int(PointFunction(self.model, [self.labels.owner.inputs[-1]])(self.point)[0])

    def _prior(self) -> Prior:
        op, fields = self._prior_inputs()
        if self.alpha is not None:
            law = Concentration(self.model, self.model.rvs_to_values[self.alpha]).law(self.point)
            if not (law[0] > 0.0 and law[1] > 0.0):
                raise ValueError(f"shape and rate of the prior of {self.alpha.name} must be > 0")
            return Sticks(law[0] / law[1], 0.0, law)
        numbers = [
            float(value) for value in as_numbers(PointFunction(self.model, list(fields.values()))(self.point))
        ]
        if op.prior(*numbers, self.n) is None:
            parameters = ", ".join(f"{name} = {value:g}" for name, value in zip(fields, numbers, strict=True))
            raise ValueError(f"the parameters of {self.labels.name} must lie in their support, got {parameters}")
        if isinstance(op, FiniteDirichletRV):
            return DirichletWeights(numbers[0], int(numbers[1]))
        return Sticks(numbers[0], numbers[1] if len(numbers) > 1 else 0.0)

    def _views(self) -> list[View]:
        views = [mixture.view(self.point, self.n) for mixture in self._mixtures]
        for mixture, view in zip(self._mixtures, views, strict=True):
            if not view.family.supports(view.params):
                raise ValueError(f"the parameters of the base measure of {mixture.name} must lie in their support")
        return views


class ChunkedFitTarget(FitTarget):
    """The target for rows in chunks: the model has the number of clusters in place of labels."""

    def rows(self) -> RowsAnywhere:
        """Return the rows of the views."""
        return ChunkedRows(self._target.source.rows, self.views[0])

    def _check_labels(self) -> None:
        self._target = ChunkedTarget(self.model, self.model.rvs_to_values[self.labels])
        # Empty: these are mixtures of rows in memory, whose inputs are variables of the model.
        self._mixtures = []
        _check_family(self._target.family)
        _check_prior(self.labels.owner.op.prior)

    def _n_rows(self) -> int:
        return int(self._target.source.n)

    def _one_cluster(self) -> np.ndarray:
        return np.asarray(1, dtype=self.labels.dtype)

    def _prior_inputs(self) -> tuple[Any, dict[str, Any]]:
        op = self.labels.owner.op
        _, *params = op.dist_params(self.labels.owner)
        return op.prior, dict(zip(op.prior.fields, params, strict=True))

    def _parameters(self) -> dict[Any, Sequence[Any]]:
        mixture = self.model[self._target.name]
        return {mixture: self._target.parameters}

    def _views(self) -> list[View]:
        if not self._target.take_params(self.point):
            raise ValueError(
                f"the parameters of the base measure of {self._target.name} must lie in their support"
            )
        partition = self._target.partition
        no_rows = np.empty((0, self._target.source.rows.n_columns))
        return [View(partition.family, partition.params, no_rows, origin=partition.origin)]


def fit_target(model: pm.Model, point: Mapping[str, Any], maximize: Sequence[str] = ()) -> FitTarget:
    """Return the target of a model, whether its rows are in memory or in chunks."""
    return (ChunkedFitTarget if chunked_names(model) else FitTarget)(model, point, maximize)


def _check_family(family: Any) -> None:
    if family.expected is None:
        instead = (
            "leave out the rows with gaps, or use pm.sample(), which integrates over them"
            if family.takes_missing
            else f"{named_kinds(lambda family: family.expected is not None)} do. Use pm.sample(), or see "
            "`expected` of pymc_dpgmm.families.Family"
        )
        raise TypeError(
            f"dp.fit needs a family that declares its expected log density; {family.title} does not: {instead}"
        )


def _check_prior(op: Any) -> None:
    if isinstance(op, MFMRV):
        raise TypeError(
            "dp.fit does not support mixtures of finite mixtures (dp.MFM): fit dp.FiniteMixture or "
            "dp.DPMixture, or use pm.sample(), which finds the number of components too"
        )
    if isinstance(op, PartitionRV) and not isinstance(op, CRPRV | PitmanYorRV | FiniteDirichletRV):
        raise TypeError(f"dp.fit does not support the prior {op.name}: use pm.sample()")
