"""Random variables and potentials that depend on labels and are no mixtures on them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dpgmm.integration.internals.pymc_internals import MixtureRV
from pymc_dpgmm.integration.variables import dependents, of_units
from pymc_dpgmm.integration.variables.atoms import is_of_mixtures
from pymc_dpgmm.integration.variables.models import interpreted, values_behind
from pymc_dpgmm.integration.variables.records import amend_record
from pymc_dpgmm.partitions.labels import matched_names
from pymc_dpgmm.sampler.state.state import State


class Dependents:
    """Random variables and potentials that depend on labels and are no mixtures on them.

    Free variables that labels index along their first axis, as in ``theta[labels]``, are permuted when clusters
    are renumbered.

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
        amend_record(model, labels.name, {"dependents": [other.name for other in others]})
        indexed = _indexed_by(model, labels, others)
        behind = [other for theta in indexed for other in (theta, *dependents(model, theta))]
        logp = model.logp(vars=list(dict.fromkeys([*others, *behind])))
        inputs = [v for v in values_behind(model, [logp]) if v is not value]
        self.inputs = [v.name for v in inputs]
        self.renamed = [model.rvs_to_values[theta].name for theta in indexed]
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

    def proposed(self, state: State) -> "DependentsAt":
        """Return the dependents at the labels of another state, with indexed variables permuted accordingly."""
        point, renamed = self.point, self.dependents.renamed
        labels = self.labels_of(state)
        if renamed:
            names, point = matched_names(self.labels, labels), dict(point)
            if any(len(point[name]) < len(names) for name in renamed):
                return self._replace(labels=labels, value=-np.inf)
            for name in renamed:
                point[name] = point[name].copy()
                point[name][names] = self.point[name][: len(names)]
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


def _indexed_by(model: pm.Model, labels: Variable, others: Sequence[Variable]) -> list[Variable]:
    """Return the free variables with entries that may be permuted, and that are indexed as ``theta[labels]``."""
    roots = [root for other in others for root in (other.owner.inputs if other in model.basic_RVs else [other])]
    indexed = []
    for variable in ancestors(roots, blockers=model.basic_RVs):
        node = variable.owner
        if node is None or not isinstance(node.op, AdvancedSubtensor) or node.op.idx_list[0] != 0:
            continue
        theta, index = node.inputs[:2]
        if theta not in model.free_RVs or theta in indexed or of_units(index)[0] is not labels:
            continue
        if any(map(is_of_mixtures, (theta, *dependents(model, theta)))):
            # Their steps have these values already.
            continue
        transform = model.rvs_to_transforms[theta]
        if transform is None or transform.ndim_supp == 0:
            indexed.append(theta)
    return indexed
