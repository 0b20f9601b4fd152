"""What the steps of rows in order share: labels, and what governs nothing but a few numbers of their prior."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.internals.pymc_internals import (
    Competence,
    StepMethodState,
    dataclass_state,
    get_value_vars_from_user_vars,
)
from pymc_dpgmm.integration.steps.hyperparameters import governing
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.steps.prior_slices import PriorSlices
from pymc_dpgmm.integration.steps.targets import KeptState, LabelsTarget
from pymc_dpgmm.native.compiled import compiling


@dataclass_state
class OrderedRowsStepState(StepMethodState):
    """Sampling state: widths of slices."""

    tune: bool
    widths: dict[str, Any]


class OrderedRowsTarget(LabelsTarget):
    """Labels of rows in order, and the mixtures on them.

    Attributes
    ----------
    numbers : list of variables
        The numbers of the prior, as expressions of the model.
    """

    has_moves = False
    numbers: list[Variable]

    @classmethod
    def is_for(cls, rv: Variable) -> bool:
        """Tell whether a variable is a vector of labels of this kind."""
        raise NotImplementedError

    @classmethod
    def drawn_together(cls, model: pm.Model, labels: Variable) -> list[Variable]:
        """Return labels, and the variables that are always drawn with them."""
        return [labels]

    def compile(self, point: dict[str, np.ndarray]) -> None:
        """Make a draw at a point, in order to compile what it needs."""
        raise NotImplementedError


class OrderedRowsStep(PartitionStep):
    """A step that draws labels of rows in order, and by slices what governs nothing but numbers of their prior."""

    _state_class = OrderedRowsStepState
    _target: ClassVar[type[OrderedRowsTarget]]
    _statistics: ClassVar[Mapping[str, Any]]
    # What is drawn, and the numbers of the prior, in words.
    _what: ClassVar[tuple[str, str]]

    def __init__(
        self,
        vars: Sequence[Any] | None = None,
        *,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        by_labels = {rv: self._target.drawn_together(model, rv) for rv in self._labels(model)}
        by_governed = self.governing(model)
        everything = [rv for labels, own in by_labels.items() for rv in (*own, *by_governed[labels])]
        self.vars = get_value_vars_from_user_vars(everything if vars is None else vars, model)
        given = [model.values_to_rvs[value] for value in self.vars]
        labels = [rv for rv in given if self._target.is_for(rv)]
        own = {rv for of_labels in labels for rv in (*by_labels[of_labels], *by_governed[of_labels])}
        what, numbers = self._what
        strangers = [rv.name for rv in given if rv not in own]
        if strangers:
            raise TypeError(
                f"{', '.join(strangers)} cannot be drawn with {what}, whose step draws labels, and continuous "
                f"variables that govern nothing but {numbers}: leave them out"
            )
        without = [rv.name for of_labels in labels for rv in by_labels[of_labels] if rv not in given]
        if without:
            raise TypeError(f"{', '.join(without)} is drawn together with its labels: name both")
        targets = [self._target(model, model.rvs_to_values[rv]) for rv in labels]
        self._set_targets(targets, self._statistics, rng, compile_kwargs)
        self._slices: list[PriorSlices | None] = []
        for target, rv in zip(targets, labels, strict=True):
            values = [model.rvs_to_values[own] for own in by_governed[rv] if own in given]
            self._slices.append(PriorSlices(model, target.numbers, values, compile_kwargs) if values else None)
        self._watch([target.dependents for target in targets if target.dependents is not None])
        self.prepared: list[KeptState | None] = [None] * len(self.targets)
        self.widths: dict[str, np.ndarray] = {}

    @classmethod
    def competence(cls, var: Any, has_grad: bool = False) -> Competence:
        """Tell PyMC which variables the step takes."""
        return Competence.IDEAL if cls._target.is_for(var) else Competence.INCOMPATIBLE

    @classmethod
    def _labels(cls, model: pm.Model) -> list[Variable]:
        return [rv for rv in model.free_RVs if cls._target.is_for(rv)]

    @classmethod
    def governing(cls, model: pm.Model) -> dict[Variable, list[Variable]]:
        """Return, by labels, continuous variables that govern nothing but the numbers of their prior."""
        found = {
            rv: governing(model, set(cls._target.drawn_together(model, rv)), set()) for rv in cls._labels(model)
        }
        return {rv: [own for own in model.free_RVs if own in of_labels] for rv, of_labels in found.items()}

    def prepare(self, point: Mapping[str, np.ndarray]) -> None:
        """Note with which data the labels are sampled; compile before chains begin."""
        with compiling.announced(f"the draws of {self._what[0]}"), np.errstate(all="ignore"):
            for target in self.targets:
                for mixture in target.mixtures:
                    mixture.note_sampling()
                target.compile(dict(point))

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain with its own random numbers."""
        super().setup_chain(rng, tune, draws)
        self.tune, self.prepared, self.widths = tune > 0, [None] * len(self.targets), {}

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw the labels, and what goes with them, given everything else in the point."""
        with np.errstate(all="ignore"):
            point, statistics = super().step(point)
        statistics[0].update(self._impossible())
        return point, statistics
