r"""Hyperparameters that maximise the bound plus their log prior density.

The bound depends on hyperparameters through the evidence of the components and the contribution of the weights.
Given responsibilities, both have exact gradients. Maximising over hyperparameters and over responsibilities in
turn raises the bound plus the log prior density at every step. This is empirical Bayes with a prior: it
approximates the mode of :math:`\log p(x, \eta)`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dpgmm.integration.variables import as_numbers
from pymc_dpgmm.integration.variables.models import interpreted, values_behind
from pymc_dpgmm.integration.variables.partition_operations import FiniteDirichletRV
from pymc_dpgmm.integration.variables.rising import log_rising
from pymc_dpgmm.tables.checks import listed
from pymc_dpgmm.variational.ascent import Approximation
from pymc_dpgmm.variational.rows import RowsAnywhere
from pymc_dpgmm.variational.weights import dirichlet_bound, sticks_bound

# Value for the optimiser, which needs finite numbers, where bound plus log density is minus infinity.
_NOWHERE = 1e100
# There is no maximum if bound plus log density is higher than there by more than this at a distant point.
_HIGHER = 0.1


class MaximizedParameters:
    """Free variables of a model at which bound plus log prior density is maximised.

    Parameters
    ----------
    model : pm.Model
    labels : variable
        The labels or, for rows in chunks, the number of clusters.
    prior : tuple
        Operation of the prior on partitions, and its parameters by name.
    mixtures : mapping of variables to sequences of variables
        All mixtures that depend on these labels, with the parameters of their families.
    alpha : variable or None
        The concentration, if it has an approximate posterior.
    names : sequence of str
        Names of the free variables.
    point : dict
        A point of the value variables, for their shapes.

    Raises
    ------
    TypeError, ValueError
        If one of them cannot be maximised. The message says why.
    """

    def __init__(
        self,
        model: pm.Model,
        labels: Variable,
        prior: tuple[Any, Mapping[str, Variable]],
        mixtures: Mapping[Variable, Sequence[Variable]],
        alpha: Any,
        names: Sequence[str],
        point: Mapping[str, np.ndarray],
    ) -> None:
        self.names = list(names)
        chosen = [model[name] for name in names]
        self._values = [model.rvs_to_values[rv] for rv in chosen]
        self._has_transform = np.repeat(
            [model.rvs_to_transforms[rv] is not None for rv in chosen],
            [np.size(point[v.name]) for v in self._values],
        )
        _check(model, alpha, chosen)
        params = model.replace_rvs_by_values([p for of_mixture in mixtures.values() for p in of_mixture])
        self._ends = np.cumsum([len(of_mixture) for of_mixture in mixtures.values()]).tolist()
        sizes, slopes = pt.dvector("sizes"), [p.type("slope") for p in params]
        rest = [
            v
            for v in (*model.basic_RVs, *model.potentials)
            if v is not labels and v is not alpha and v not in mixtures
        ]
        # Without Jacobians: the mode of the variables themselves, not of their logs.
        log_density = model.logp(vars=rest, jacobian=False) if rest else pt.constant(0.0)
        added = pt.constant(0.0) if alpha is not None else _added_by_weights(model, *prior, sizes)
        total = log_density + added + sum(pt.sum(p * slope) for p, slope in zip(params, slopes, strict=True))
        gradients = grad(total, self._values, disconnected_inputs="ignore")
        self._inputs = values_behind(model, [total, *params])
        self._params = interpreted(self._inputs, params)
        self._rest = interpreted([*self._inputs, sizes, *slopes], [log_density, added, *gradients])
        natural = model.replace_rvs_by_values(chosen)
        self._natural = interpreted(self._values, natural)
        self.log_density = -math.inf

    def natural(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the untransformed variables by name, at a point of value variables."""
        values = self._natural(*(point[v.name] for v in self._values))
        return dict(zip(self.names, map(np.asarray, values), strict=True))

    def maximized(
        self, rows: RowsAnywhere, state: Approximation, point: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Return the point that maximises bound plus log density given responsibilities.

        Also sets the parameters of ``rows``, and ``log_density`` of all variables but labels and mixtures, to
        those at this point.

        Raises
        ------
        ValueError
            If the density is zero where the search starts.
        """
        from scipy.optimize import minimize

        start = self._joined(point)

        def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
            # Overflow at distant points is handled below.
            with np.errstate(all="ignore"):
                value, slope = self.evaluate(rows, state, self._at(x, point))
            is_number = math.isfinite(value) and bool(np.all(np.isfinite(slope)))
            return (-value, -slope) if is_number else (_NOWHERE, np.zeros(len(x)))

        before = negative(start)[0]
        if before >= _NOWHERE:
            raise ValueError(
                f"the density of {listed(self.names)} is 0 at the initial values: give others with initval="
            )
        best = minimize(negative, start, jac=True, method="L-BFGS-B").x
        if negative(best)[0] > before:
            best = start
        self.evaluate(rows, state, self._at(best, point))
        return self._at(best, point)

    def check_maximum(self, rows: RowsAnywhere, state: Approximation, point: dict[str, np.ndarray]) -> None:
        """Raise ValueError if bound plus log density is higher at distant points: it may be unbounded.

        Each variable with a transform is moved on the transformed scale, such as that of its log.
        """
        best, start = self.evaluate(rows, state, point)[0], self._joined(point)
        for place in np.flatnonzero(self._has_transform):
            for far in (-1.0, 1.0, 10.0 * np.sign(start[place])):
                moved = start.copy()
                moved[place] += far
                with np.errstate(all="ignore"):
                    value = self.evaluate(rows, state, self._at(moved, point))[0]
                if value > best + _HIGHER:
                    reached = {name: value.tolist() for name, value in self.natural(point).items()}
                    raise ValueError(
                        f"{listed(self.names)} cannot be maximised: bound plus log prior density keeps rising "
                        f"beyond {reached}. Give a prior that excludes this, or a value in point"
                    )
        self.evaluate(rows, state, point)

    def _joined(self, point: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([np.ravel(point[v.name]).astype(np.float64) for v in self._values])

    def _at(self, x: np.ndarray, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return a point with the values ``x`` of the variables, which are concatenated in ``x``."""
        moved, first = dict(point), 0
        for v in self._values:
            shape = np.shape(point[v.name])
            last = first + math.prod(shape)
            moved[v.name] = x[first:last].reshape(shape).astype(v.dtype)
            first = last
        return moved

    def evaluate(
        self, rows: RowsAnywhere, state: Approximation, point: dict[str, np.ndarray]
    ) -> tuple[float, np.ndarray]:
        """Return bound (without entropy) plus log density, and the gradient; set the parameters of the rows."""
        values = [point[v.name] for v in self._inputs]
        parameters = self._params(*values)
        slopes: list[np.ndarray] = []
        for v, (view, end) in enumerate(zip(rows.views, self._ends, strict=True)):
            of_view = parameters[len(slopes) : end]
            numbers = view.family.params(*as_numbers(of_view))
            if not view.family.supports(numbers):
                return -math.inf, np.zeros(0)
            view.set_params(numbers)
            gradient = view.family.params(**view.gradient(state.sums, v))
            arrays = [np.asarray(value) for value in of_view]
            slopes += [
                np.asarray(g, dtype=a.dtype).reshape(a.shape) for g, a in zip(gradient, arrays, strict=True)
            ]
        log_density, added, *gradients = self._rest(*values, state.sums.sizes, *slopes)
        self.log_density = float(log_density)
        value = float(rows.log_evidences(state.sums).sum()) + self.log_density + float(added)
        return value, np.concatenate([np.ravel(g).astype(np.float64) for g in gradients])


def _check(model: pm.Model, alpha: Any, chosen: Sequence[Variable]) -> None:
    discrete = [rv.name for rv in chosen if np.dtype(rv.dtype).kind != "f"]
    if discrete:
        raise TypeError(f"{listed(discrete)} cannot be maximised, being discrete: give values in point")
    labelled = [rv.name for rv in chosen if not hasattr(model.rvs_to_values[rv].type, "broadcastable")]
    if labelled:
        raise TypeError(f"{listed(labelled)} of pymc.dims cannot be maximised: give values in point")
    if alpha is not None and set(chosen) & set(ancestors(alpha.owner.inputs)):
        raise TypeError(
            f"{alpha.name} has an approximate posterior, and its prior depends on variables in maximize: put "
            f"{alpha.name} into maximize too, or give values in point"
        )


def _added_by_weights(model: pm.Model, prior: Any, fields: Mapping[str, Variable], sizes: Variable) -> Variable:
    """Return the contribution of the weights to the bound: see :mod:`pymc_dpgmm.variational.weights`."""
    params = dict(zip(fields, model.replace_rvs_by_values(list(fields.values())), strict=True))
    alpha = pt.cast(params["alpha"], "float64")
    if isinstance(prior, FiniteDirichletRV):
        return dirichlet_bound(log_rising, alpha, params["n_components"], sizes, sizes.sum())
    later = pt.cumsum(sizes[::-1])[::-1] - sizes
    steps = pt.arange(1, sizes.shape[0] + 1)
    return sticks_bound(log_rising, alpha, params.get("discount", 0.0), sizes, later, steps)
