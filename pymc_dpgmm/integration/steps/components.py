"""The number of components of a finite mixture, drawn from its conditional distribution given the rest."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph

from pymc_dpgmm.integration.internals.pymc_internals import (
    BlockedStep,
    Competence,
    StepMethodState,
    dataclass_state,
    get_value_vars_from_user_vars,
)
from pymc_dpgmm.integration.variables import dependents
from pymc_dpgmm.integration.variables.chunked_partition import ChunkedClustersRV
from pymc_dpgmm.integration.variables.models import interpreted, values_behind
from pymc_dpgmm.integration.variables.operations import LabelsRV

# Number of consecutive candidates of a draw: a narrow window is faster; a wide one, in this share of the draws,
# helps where the distribution is wide.
NARROW, WIDE, SHARE_OF_WIDE = 32, 256, 0.125


@dataclass_state
class ComponentsGibbsState(StepMethodState):
    """Sampling state: the random generator only."""


class ComponentsGibbs(BlockedStep):
    """Gibbs draw of a discrete variable on which the number of components of finite mixtures depends.

    ``pm.sample`` assigns it automatically to discrete variables from which ``n_components`` of a
    :func:`FiniteMixture` or :class:`FiniteDirichlet` is computed, with or without groups, such as ``m`` in
    ``1 + pm.Poisson("m", 3)``.

    Parameters
    ----------
    vars : list of variables
        Discrete scalars.

    Raises
    ------
    TypeError
        If a variable is not a discrete scalar, or has a transform.

    Notes
    -----
    The new value is drawn from the conditional distribution given all other variables, labels among them, within
    w consecutive numbers: ``u - o, ..., u - o + w - 1``, where ``u`` is the current value and ``o`` is uniform on
    0, ..., w - 1. Given these numbers, ``u`` has its conditional distribution among them. The draw is therefore
    exact for any support, bounded or not. The width w is 32, and 256 in one of eight draws, chosen at random.
    If densities other than that of labels depend on the variable, w is always 32, and these densities are
    evaluated one by one. Values with fewer components than clusters have density zero.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model() as model:
    ...     extra = pm.Poisson("extra", 2.0)
    ...     y = dp.FiniteMixture("y", 1.0, 1 + extra, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
    ...     steps = [dp.DPMixtureStep([model["y_labels"]]), dp.ComponentsGibbs([extra])]
    ...     idata = pm.sample(20, tune=20, chains=1, step=steps, progressbar=False)
    """

    name = "components_gibbs"
    stats_dtypes_shapes: dict[str, Any] = {}
    _state_class = ComponentsGibbsState

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
        self._conditionals = [Conditional(model, value) for value in self.vars]

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Competence:
        """Ideal for discrete scalars from which a number of components is computed, incompatible otherwise."""
        is_ideal = getattr(var.tag, "is_number_of_components", False) and is_discrete_scalar(var)
        return Competence.IDEAL if is_ideal else Competence.INCOMPATIBLE

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Draw the numbers given everything else."""
        point = dict(point)
        for conditional in self._conditionals:
            point[conditional.name] = conditional.draw(self.rng, point)
        return point, [{}]


class Conditional:
    """The distribution of a discrete scalar given everything else in a model, up to a constant.

    Parameters
    ----------
    model : pm.Model
    value : variable
        The value of the scalar.
    """

    def __init__(self, model: pm.Model, value: Variable) -> None:
        rv = model.values_to_rvs[value]
        if not is_discrete_scalar(rv) or model.rvs_to_transforms[rv] is not None:
            raise TypeError(f"{rv.name} must be a discrete scalar without a transform to be drawn by this step")
        self.name, self._dtype = str(value.name), np.dtype(value.dtype)
        depending = dependents(model, rv)
        on_labels = [other for other in depending if is_partition(other)]
        others = [other for other in depending if not is_partition(other)]
        self._widths = (NARROW, NARROW if others else WIDE)
        numbers = pt.vector(self.name, dtype=value.dtype)
        densities = [model.logp(vars=[variable]) for variable in (rv, *on_labels)]
        total = pt.add(*(d.reshape((-1,)) for d in vectorize_graph(densities, {value: numbers})))
        self._names, self._function = _compiled(model, value, numbers, total)
        self._beside = _compiled(model, value, value, model.logp(vars=others)) if others else None

    def log_density(self, numbers: np.ndarray, point: dict[str, np.ndarray]) -> np.ndarray:
        """Return the log densities of candidate numbers (w,) given the rest of a point: (w,) float64 array."""
        numbers = numbers.astype(self._dtype)
        log_p = np.asarray(self._function(numbers, *(point[name] for name in self._names)), dtype=np.float64)
        log_p = np.where(log_p < np.inf, log_p, -np.inf)
        if self._beside is None:
            return log_p
        names, function = self._beside
        for i in np.flatnonzero(log_p > -np.inf):
            log_others = float(function(numbers[i], *(point[name] for name in names)))
            log_p[i] = log_p[i] + log_others if log_others < np.inf else -np.inf
        return log_p

    def draw(self, rng: np.random.Generator, point: dict[str, np.ndarray]) -> np.ndarray:
        """Return a draw of the scalar, or its current value if no candidate has a positive density."""
        current = point[self.name]
        width = self._widths[int(rng.random() < SHARE_OF_WIDE)]
        numbers = int(current) - int(rng.integers(width)) + np.arange(width)
        limits = np.iinfo(self._dtype)
        numbers = numbers[(numbers >= limits.min) & (numbers <= limits.max)]
        log_p = self.log_density(numbers, point)
        largest = log_p.max()
        if largest == -np.inf:
            return current
        sums = np.cumsum(np.exp(log_p - largest))
        chosen = np.searchsorted(sums, rng.random() * sums[-1], side="right")
        return np.asarray(numbers[chosen], dtype=current.dtype)


def _compiled(model: pm.Model, value: Variable, numbers: Variable, logp: Variable) -> tuple[list[str], Any]:
    """Return a function of numbers and of other values of a model, and the names of these."""
    inputs = [other for other in values_behind(model, [logp]) if other is not value]
    function = interpreted([numbers, *inputs], logp)
    return [str(other.name) for other in inputs], function


def is_discrete_scalar(var: Any) -> bool:
    """Tell whether a variable is an integer without dimensions, and not one of ``pymc.dims``."""
    is_tensor = isinstance(var.type, pt.TensorType)
    return is_tensor and var.type.ndim == 0 and np.dtype(var.type.dtype).kind in "iu"


def is_partition(var: Any) -> bool:
    """Tell whether a variable is a vector of labels, or a partition of rows in chunks."""
    return var.owner is not None and isinstance(var.owner.op, LabelsRV | ChunkedClustersRV)
