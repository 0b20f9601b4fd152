"""Draws of the concentration of a Chinese restaurant process under a gamma prior."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.internals.pymc_internals import (
    BlockedStep,
    Competence,
    LogTransform,
    StepMethodState,
    dataclass_state,
    get_value_vars_from_user_vars,
)
from pymc_dpgmm.integration.steps.points import PointFunction
from pymc_dpgmm.integration.variables import CRPRV, dependents, prior_parameters
from pymc_dpgmm.integration.variables.chunked_partition import ChunkedClustersRV
from pymc_dpgmm.integration.variables.grouped_labels import HDPLabelsRV, OpenersRV
from pymc_dpgmm.integration.variables.records import is_gamma
from pymc_dpgmm.native.compiled import bits_of_generator
from pymc_dpgmm.partitions.concentration import drawn_concentration
from pymc_dpgmm.partitions.labels import cluster_sizes


@dataclass_state
class ConcentrationGibbsState(StepMethodState):
    """Sampling state: the random generator only."""


class ConcentrationGibbs(BlockedStep):
    """Exact Gibbs draw of a CRP's concentration under a gamma prior (Escobar and West 1995).

    Use it together with a step of your own choice for the labels. :class:`DPMixtureStep` draws such concentrations
    itself.

    Parameters
    ----------
    vars : list of variables
        The concentrations.

    Raises
    ------
    TypeError
        If the prior of a concentration is not a scalar gamma distribution, or anything but one CRP depends on it.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> run = {"draws": 20, "tune": 20, "chains": 1, "progressbar": False}
    >>> with pm.Model() as model:
    ...     alpha = pm.Gamma("alpha", 1.0, 1.0)
    ...     y = dp.DPMixture("y", alpha, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     steps = [dp.SplitMerge([model["y_labels"]]), dp.ConcentrationGibbs([alpha])]
    ...     idata = pm.sample(**run, step=steps)
    """

    name = "concentration_gibbs"
    stats_dtypes_shapes: dict[str, Any] = {}
    _state_class = ConcentrationGibbsState

    def __init__(
        self,
        vars: Sequence[Any],
        *,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: Any = None,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        self.vars = get_value_vars_from_user_vars(vars, model)
        self.rng = pm.util.get_random_generator(rng)
        self._targets = [Concentration(model, value) for value in self.vars]
        in_chunks = [target.name for target in self._targets if target.is_in_chunks]
        if in_chunks:
            raise TypeError(
                f"{', '.join(in_chunks)} of a mixture of rows in chunks can be drawn by the step that pm.sample "
                "assigns to it, or by NUTS"
            )
        by_group = [target.name for target in self._targets if target.is_by_group]
        if by_group:
            raise TypeError(
                f"{', '.join(by_group)} of a hierarchical Dirichlet process can be drawn by dp.DPMixtureStep "
                "together with the labels, or by NUTS"
            )

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Never assigned automatically."""
        return Competence.INCOMPATIBLE

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw the concentrations given the labels."""
        point = dict(point)
        for target in self._targets:
            alpha, (shape, rate) = target.concentration(point), target.law(point)
            sizes = cluster_sizes(target.labels_at(point))
            if len(sizes) and 0.0 < alpha < np.inf and rate > 0.0:
                n = float(sizes.sum())
                bits = bits_of_generator(self.rng)
                target.write(point, drawn_concentration(*bits, alpha, len(sizes), n, shape, rate))
        return point, [{}]


class Concentration:
    """One concentration in a model, and how to read and write it in a point."""

    def __init__(self, model: pm.Model, value: Variable) -> None:
        rv = model.values_to_rvs[value]
        labels, self.role = concentration_of(model, rv)
        if labels is None:
            raise TypeError(
                f"{rv.name} can be drawn from its exact conditional only with a scalar gamma prior, PyMC's "
                "default transform or none, and where one CRP, or one hierarchical Dirichlet process, and "
                "nothing else, depends on it"
            )
        self.name = value.name
        # None if the labels are observed.
        self.labels = model.rvs_to_values[labels].name
        self.is_by_group = isinstance(labels.owner.op, HDPLabelsRV)
        self.is_in_chunks = isinstance(labels.owner.op, ChunkedClustersRV)
        self._labels = PointFunction(model, [labels])
        shape, scale = rv.owner.op.dist_params(rv.owner)
        self._alpha = PointFunction(model, [rv])
        self._numbers = PointFunction(model, [shape, scale])
        self._is_log = model.rvs_to_transforms[rv] is not None

    def concentration(self, point: dict[str, np.ndarray]) -> float:
        """Return the concentration at a point."""
        return float(self._alpha(point)[0])

    def law(self, point: dict[str, np.ndarray]) -> tuple[float, float]:
        """Return shape and rate of the concentration's gamma prior, zeros if they are outside their support."""
        shape, scale = (float(value) for value in self._numbers(point))
        return (shape, 1.0 / scale) if shape > 0 and scale > 0 else (0.0, 0.0)

    def labels_at(self, point: dict[str, np.ndarray]) -> np.ndarray:
        """Return the labels at a point."""
        return self._labels(point)[0]

    def write(self, point: dict[str, np.ndarray], alpha: float) -> None:
        """Replace the concentration in a point."""
        value = math.log(alpha) if self._is_log else alpha
        point[self.name] = np.asarray(value, dtype=point[self.name].dtype)


def concentration_of(model: pm.Model, alpha: Variable) -> tuple[Variable | None, str]:
    """Return the labels whose prior has this variable as its gamma-distributed concentration, and its role.

    The labels are those of a CRP, or of a hierarchical Dirichlet process with the roles ``"alpha"`` and
    ``"gamma"``. The result is (None, "") if other variables depend on it too, or for transforms other than PyMC's
    default, which may exclude a part of the positive numbers.
    """
    nothing = None, ""
    if not is_gamma(alpha) or not isinstance(model.rvs_to_transforms[alpha], LogTransform | None):
        return nothing
    depending = dependents(model, alpha)
    if len(depending) != 1 or depending[0].owner is None:
        return nothing
    (labels,) = depending
    op = labels.owner.op
    if isinstance(op, CRPRV) and prior_parameters(labels)["alpha"] is alpha:
        return labels, "alpha"
    if isinstance(op, ChunkedClustersRV):
        is_alpha = isinstance(op.prior, CRPRV) and op.dist_params(labels.owner)[1] is alpha
        return (labels, "alpha") if is_alpha else nothing
    if isinstance(op, HDPLabelsRV) and prior_parameters(labels)["gamma"] is alpha:
        return labels, "gamma"
    if isinstance(op, OpenersRV) and op.dist_params(labels.owner)[0] is alpha:
        seated = [other for other in dependents(model, labels) if isinstance(other.owner.op, HDPLabelsRV)]
        return (seated[0], "alpha") if len(seated) == 1 else nothing
    return nothing
