"""Random variables and potentials that depend on labels and are no mixtures on them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_dpgmm.integration.internals.pymc_internals import MixtureRV
from pymc_dpgmm.integration.variables import dependents, of_units
from pymc_dpgmm.integration.variables.atoms import is_of_mixtures
from pymc_dpgmm.integration.variables.models import interpreted, values_behind
from pymc_dpgmm.integration.variables.records import amend_record
from pymc_dpgmm.native.compiled import logger
from pymc_dpgmm.partitions.labels import matched_names
from pymc_dpgmm.sampler.state.state import State


class Dependents:
    """Random variables and potentials that depend on labels and are no mixtures on them.

    Free variables that labels index, as in ``theta[labels]`` and ``mu[:, labels]``, are permuted when clusters are
    renumbered. The density counts them, so that any choice of them is right.

    Parameters
    ----------
    model : pm.Model
    labels, value : variables
        The random variable and its value.
    others : list of variables

    Attributes
    ----------
    watched : list of str
        Names of the others.
    n_impossible : int
        Evaluations in the last draw at which the log density was +inf or NaN.
    """

    def __init__(self, model: pm.Model, labels: Variable, value: Variable, others: Sequence[Variable]) -> None:
        self.watched, self.n_impossible = [other.name for other in others], 0
        for other in others:
            _check_no_weights(model, labels, other)
        # With such dependents, rows of a mixture cannot be left out one at a time for leave-one-out densities.
        potentials = [other.name for other in others if other in model.potentials]
        amend_record(model, labels.name, {"dependents": self.watched, "potentials": potentials})
        indexed = _indexed_by(model, labels, others)
        behind = [other for theta in indexed for other in (theta, *dependents(model, theta))]
        logp = model.logp(vars=list(dict.fromkeys([*others, *behind])))
        inputs = [v for v in values_behind(model, [logp]) if v is not value]
        self.inputs = [v.name for v in inputs]
        self.renamed = {model.rvs_to_values[theta].name: axes for theta, axes in indexed.items()}
        # Evaluated in Python, because compiled code would not notice an index out of range.
        function = interpreted([value, *inputs], logp)
        self._function = lambda labels, point: function(
            labels.astype(value.dtype), *(point[name] for name in self.inputs)
        )

    def at(
        self, point: dict[str, np.ndarray], labels: np.ndarray, labels_of: Callable[[State], np.ndarray]
    ) -> "DependentsAt":
        """Return the density at a point, with a function that reads the labels from a state of the kernels.

        Raises
        ------
        ValueError
            If the labels index out of range.
        """
        try:
            self.n_impossible = 0
            return DependentsAt(self, labels_of, labels, point, float(self._function(labels, point)))
        except IndexError as error:
            names = ", ".join(self.watched)
            raise ValueError(
                f"labels up to {labels.max()} index something shorter in {names} ({error}): give it one entry "
                "per row, or limit the number of clusters with dp.FiniteMixture or dp.FiniteDirichlet"
            ) from None

    def log_density(self, labels: np.ndarray, point: dict[str, np.ndarray]) -> float:
        """Return the log density, -inf where labels index out of range, and where it is none: +inf or NaN."""
        try:
            value = float(self._function(labels, point))
        except IndexError:
            return -np.inf
        self.n_impossible += not value < np.inf
        return value if value < np.inf else -np.inf


class DependentsAt(NamedTuple):
    """Dependents at a point, with labels, and their log density."""

    dependents: Dependents
    labels_of: Callable[[State], np.ndarray]
    labels: np.ndarray
    point: dict[str, np.ndarray]
    value: float

    def write(self, point: dict[str, np.ndarray]) -> None:
        """Set the variables that have been permuted in another point."""
        point.update({name: self.point[name] for name in self.dependents.renamed})

    def proposed(self, state: State) -> "DependentsAt":
        """Return the dependents at the labels of another state, with indexed variables permuted accordingly."""
        point, renamed = self.point, self.dependents.renamed
        labels = self.labels_of(state)
        if renamed:
            names, point = matched_names(self.labels, labels), dict(point)
            if any(point[name].shape[axis] < len(names) for name, axes in renamed.items() for axis in axes):
                return self._replace(labels=labels, value=-np.inf)
            for name, axes in renamed.items():
                for axis in axes:
                    before = np.moveaxis(point[name], axis, 0)
                    after = before.copy()
                    after[names] = before[: len(names)]
                    point[name] = np.ascontiguousarray(np.moveaxis(after, 0, axis))
        return self._replace(labels=labels, point=point, value=self.dependents.log_density(labels, point))


def _check_no_weights(model: pm.Model, labels: Variable, other: Variable) -> None:
    """Raise TypeError if labels are passed as the weights of a mixture of PyMC."""
    if other not in model.basic_RVs or not isinstance(other.owner.op, MixtureRV):
        return
    weights = other.owner.op.dist_params(other.owner)[0]
    if labels in set(ancestors([weights], blockers=model.basic_RVs)):
        raise TypeError(
            f"{other.name} has the labels {labels.name} as the weights of pm.Mixture, but labels are the numbers "
            "of the rows' clusters: use dp.DPMixture or dp.CollapsedMixture, or give each row the parameters of "
            f"its cluster, as in pm.Normal(..., mu=theta[{labels.name}])"
        )


def _indexed_by(model: pm.Model, labels: Variable, others: Sequence[Variable]) -> dict[Variable, list[int]]:
    """Return the free variables that labels index, and along which axes, of those that may be permuted.

    Proposals permute them where clusters are renumbered. Of those that cannot be, it is said that labels that are
    drawn beside them may move rarely.
    """
    roots = [root for other in others for root in (other.owner.inputs if other in model.basic_RVs else [other])]
    indexed: dict[Variable, list[int]] = {}
    kept = set()
    for variable in ancestors(roots, blockers=model.basic_RVs):
        node = variable.owner
        if node is None or not isinstance(node.op, AdvancedSubtensor):
            continue
        for axis, entry in enumerate(node.op.idx_list):
            if isinstance(entry, slice) or _labels_in(node.inputs[1 + entry]) is not labels:
                continue
            own = [rv for rv in ancestors(node.inputs[:1], blockers=model.basic_RVs) if rv in model.free_RVs]
            # Steps of processes and mixtures have their values already.
            own = [rv for rv in own if not any(map(is_of_mixtures, (rv, *dependents(model, rv))))]
            found = {(rv, at) for rv, at in _behind(model, node.inputs[0], axis) if rv in own}
            may_be = {(rv, at) for rv, at in found if _may_be_permuted(model.rvs_to_transforms[rv])}
            for theta, at in may_be:
                axes = indexed.setdefault(theta, [])
                axes += [at] if at not in axes else []
            if not may_be:
                kept |= {rv.name for rv in own if rv.type.ndim}
    if kept:
        logger.warning(
            f"{', '.join(sorted(kept))}: unknowns that {labels.name} indexes, which cannot be renumbered with the "
            "clusters, so that labels may move rarely: index a variable itself, as in theta[labels], without a "
            "transformation that orders its entries"
        )
    return indexed


def _labels_in(index: Variable) -> Variable:
    """Return the labels that an index is, with axes added, and for the units of rows."""
    while index.owner is not None and isinstance(index.owner.op, DimShuffle):
        index = index.owner.inputs[0]
    return of_units(index)[0]


def _may_be_permuted(transform: Any) -> bool:
    return transform is None or transform.ndim_supp == 0


def _behind(model: pm.Model, variable: Variable, axis: int) -> Iterator[tuple[Variable, int]]:
    """Yield the free variables whose entries along an axis become those of an expression along its own."""
    node = variable.owner
    if variable in model.free_RVs:
        yield variable, axis
    elif node is not None and isinstance(node.op, DimShuffle) and node.op.new_order[axis] != "x":
        yield from _behind(model, node.inputs[0], node.op.new_order[axis])
    elif node is not None and isinstance(node.op, Elemwise):
        for part in node.inputs:
            if part.type.shape[axis] != 1:
                yield from _behind(model, part, axis)
    elif node is not None and isinstance(node.op, Subtensor | AdvancedSubtensor):
        at = _axes_that_stay(node)[axis]
        if at is not None:
            yield from _behind(model, node.inputs[0], at)


def _axes_that_stay(node: Any) -> list[int | None]:
    """Return for each axis of indexed entries which axis of the array it is, None for another one."""
    whole, ndim = slice(None), node.inputs[0].type.ndim
    entries = [*node.op.idx_list, *[whole] * (ndim - len(node.op.idx_list))]
    places = [axis for axis, entry in enumerate(entries) if not isinstance(entry, slice)]
    of_index: list[int | None] = [None] * max((index.type.ndim for index in node.inputs[1:]), default=0)
    stay = [axis if entry == whole else None for axis, entry in enumerate(entries) if isinstance(entry, slice)]
    # Axes of the index come where it is, or first where it is in several places.
    first = places[0] if places and places[-1] - places[0] == len(places) - 1 else 0
    return [*stay[:first], *of_index, *stay[first:]]
