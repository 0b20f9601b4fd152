r"""Hyperparameters at a maximum: of the bound, and of their prior density.

The bound depends on hyperparameters through the evidence of the components and through what the weights add, and
given the responsibilities both have exact gradients. Maximising it over them, and over the responsibilities given
these, in turn, raises the sum of the bound and of the log prior density at every step. This is empirical Bayes
with a prior: the mode of what the bound stands in for, :math:`\log p(x, \eta)`.
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
from pymc_dpgmm.integration.variables.models import SMALL_GRAPH
from pymc_dpgmm.integration.variables.partition_priors import FiniteDirichletRV
from pymc_dpgmm.integration.variables.rising import log_rising
from pymc_dpgmm.tables.checks import listed
from pymc_dpgmm.variational.ascent import State
from pymc_dpgmm.variational.rows import RowsAnywhere
from pymc_dpgmm.variational.weights import dirichlet_bound, sticks_bound

# Where the sum is minus infinity, a search is told a number that is worse than any.
_NOWHERE = 1e100
# By how much the sum may be higher elsewhere.
_HIGHER = 0.1


class Hyperparameters:
    """Free variables of a model that are brought to a maximum.

    Parameters
    ----------
    model : pm.Model
    labels : variable
        Or, of rows in chunks, the number of their clusters.
    prior : tuple
        Its operation, and the parameters by their names.
    mixtures : mapping of variables to sequences of variables
        All on these labels, and their families' parameters.
    alpha : variable or None
        The concentration, where it has an approximate posterior.
    names : sequence of str
        Of the free variables.
    point : dict
        A point of the value variables, for their shapes.

    Raises
    ------
    TypeError, ValueError
        If one of them cannot be maximised; the message says why.
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
        params = model.replace_rvs_by_values([p for own in mixtures.values() for p in own])
        self._ends = np.cumsum([len(own) for own in mixtures.values()]).tolist()
        sizes, slopes = pt.dvector("sizes"), [p.type("slope") for p in params]
        rest = [
            v
            for v in (*model.basic_RVs, *model.potentials)
            if v is not labels and v is not alpha and v not in mixtures
        ]
        # The mode of the variables as they are, not of their logs.
        log_density = model.logp(vars=rest, jacobian=False) if rest else pt.constant(0.0)
        added = pt.constant(0.0) if alpha is not None else _added_by_weights(model, *prior, sizes)
        total = log_density + added + sum(pt.sum(p * slope) for p, slope in zip(params, slopes, strict=True))
        gradients = grad(total, self._values, disconnected_inputs="ignore")
        needed = set(ancestors([total, *params]))
        self._inputs = [v for v in model.value_vars if v in needed]
        self._params = pm.compile(self._inputs, params, mode=SMALL_GRAPH, on_unused_input="ignore")
        self._rest = pm.compile(
            [*self._inputs, sizes, *slopes],
            [log_density, added, *gradients],
            mode=SMALL_GRAPH,
            on_unused_input="ignore",
        )
        natural = model.replace_rvs_by_values(chosen)
        self._natural = pm.compile(self._values, natural, mode=SMALL_GRAPH, on_unused_input="ignore")
        self.log_density = -math.inf

    def natural(self, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the variables at a point of value variables, by their names."""
        found = self._natural(*(point[v.name] for v in self._values))
        return dict(zip(self.names, map(np.asarray, found), strict=True))

    def maximized(self, rows: RowsAnywhere, state: State, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return a point at which the sum is highest given responsibilities, and let the rows have its parameters.

        ``log_density`` is afterwards that of all but labels and mixtures there.

        Raises
        ------
        ValueError
            If the density is zero where the search starts.
        """
        from scipy.optimize import minimize

        start = self._joined(point)

        def negative(x: np.ndarray) -> tuple[float, np.ndarray]:
            # Far away numbers overflow, which is no news.
            with np.errstate(all="ignore"):
                value, slope = self._evaluate(rows, state, self._at(x, point))
            is_number = math.isfinite(value) and bool(np.all(np.isfinite(slope)))
            return (-value, -slope) if is_number else (_NOWHERE, np.zeros(len(x)))

        before = negative(start)[0]
        if before >= _NOWHERE:
            raise ValueError(f"the density of {listed(self.names)} is 0 at the start: give other initial values")
        found = minimize(negative, start, jac=True, method="L-BFGS-B").x
        if negative(found)[0] > before:
            found = start
        self._evaluate(rows, state, self._at(found, point))
        return self._at(found, point)

    def check_maximum(self, rows: RowsAnywhere, state: State, point: dict[str, np.ndarray]) -> None:
        """Raise ValueError if the sum is higher further away: where densities are infinite a search does not end.

        Variables are moved by a factor, on the scale of their logs or whatever their transform is.
        """
        best, start = self._evaluate(rows, state, point)[0], self._joined(point)
        for place in np.flatnonzero(self._has_transform):
            for far in (-1.0, 1.0, 10.0 * np.sign(start[place])):
                other = start.copy()
                other[place] += far
                with np.errstate(all="ignore"):
                    value = self._evaluate(rows, state, self._at(other, point))[0]
                if value > best + _HIGHER:
                    told = {name: value.tolist() for name, value in self.natural(point).items()}
                    raise ValueError(
                        f"{listed(self.names)} cannot be maximised: bound and prior density rise without an end "
                        f"beyond {told}. Give a prior that excludes this, or a value in point"
                    )
        self._evaluate(rows, state, point)

    def _joined(self, point: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([np.ravel(point[v.name]).astype(np.float64) for v in self._values])

    def _at(self, x: np.ndarray, point: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return a point with other values of the variables, given one after the other."""
        found, first = dict(point), 0
        for v in self._values:
            shape = np.shape(point[v.name])
            last = first + math.prod(shape)
            found[v.name] = x[first:last].reshape(shape).astype(v.dtype)
            first = last
        return found

    def _evaluate(
        self, rows: RowsAnywhere, state: State, point: dict[str, np.ndarray]
    ) -> tuple[float, np.ndarray]:
        """Return the sum without the entropy, and its gradient, and leave the parameters with the rows."""
        values = [point[v.name] for v in self._inputs]
        found = self._params(*values)
        slopes: list[np.ndarray] = []
        for v, (view, end) in enumerate(zip(rows.views, self._ends, strict=True)):
            own = found[len(slopes) : end]
            numbers = view.family.params(*as_numbers(own))
            if not view.family.supports(numbers):
                return -math.inf, np.zeros(0)
            view.set_params(numbers)
            gradient = view.family.params(**view.gradient(state.sums, v))
            arrays = [np.asarray(value) for value in own]
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
            f"{alpha.name} has an approximate posterior of its own, and its prior depends on what is to be "
            f"maximised: maximise {alpha.name} too, or give values in point"
        )


def _added_by_weights(model: pm.Model, prior: Any, fields: Mapping[str, Variable], sizes: Variable) -> Variable:
    """Return what weights add to the bound, given their prior's parameters: see :mod:`..variational.weights`."""
    params = dict(zip(fields, model.replace_rvs_by_values(list(fields.values())), strict=True))
    alpha = pt.cast(params["alpha"], "float64")
    if isinstance(prior, FiniteDirichletRV):
        return dirichlet_bound(log_rising, alpha, params["n_components"], sizes, sizes.sum())
    later = pt.cumsum(sizes[::-1])[::-1] - sizes
    steps = pt.arange(1, sizes.shape[0] + 1)
    return sticks_bound(log_rising, alpha, params.get("discount", 0.0), sizes, later, steps)
