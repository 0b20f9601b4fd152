"""The log density of a model given its labels, and its gradient, as one function of one vector.

The vector has the values of free variables, and for each latent mixture of normal clusters what moves of its rows
and of the means of its clusters: see ``sampler/hamiltonian/normal_clusters.py``. All else is a further input.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError, grad
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.xtensor import as_xtensor

from pymc_dpgmm.integration.continuous.normal_clusters import CLUSTERS_OF_FAMILIES, NormalClusters
from pymc_dpgmm.integration.internals.direct import DirectFunction
from pymc_dpgmm.integration.internals.pymc_internals import rewrite_pregrad
from pymc_dpgmm.integration.variables import mixture_inputs
from pymc_dpgmm.integration.variables.models import values_behind, with_densities
from pymc_dpgmm.tables.checks import has_dims, without_dims


class Piece(NamedTuple):
    """What stands in the vector.

    Parameters
    ----------
    start, stop : int
    shape : tuple of int
    """

    start: int
    stop: int
    shape: tuple[int, ...]


class JointDensity:
    """The log density of all that is continuous, given the labels and everything else.

    Parameters
    ----------
    model : pm.Model
    values : sequence of variables
        Value variables that move, but for those of ``mixtures``.
    mixtures : sequence of variables
        Latent mixtures whose rows move: see :func:`can_move`.
    point : dict
        Of the model, for the shapes of its variables.
    compile_kwargs : dict, optional

    Attributes
    ----------
    pieces : dict of str to Piece
        Of variables and of rows, by the names of value variables.
    n_fixed : int
        Length of the vector without the means of clusters, whose number changes; they come last.
    clusters : list of NormalClusters
        Of the mixtures.
    inputs : list of str
        Names of the value variables that the function takes last.
    function : DirectFunction
        ``(vector, *fixed, *inputs) -> (log density, gradient, *rows, *residuals, *pulls)``. ``fixed`` are, for
        each mixture, those of ``CentredRows``. Rows are those of the model, residuals these without the mixture's
        offset, and pulls the precisions times the offsets of the residuals from the means of their clusters.
    """

    def __init__(
        self,
        model: pm.Model,
        values: Sequence[Variable],
        mixtures: Sequence[Variable],
        point: Mapping[str, np.ndarray],
        compile_kwargs: Any,
    ) -> None:
        self.clusters: list[NormalClusters] = [
            CLUSTERS_OF_FAMILIES[m.owner.op.layout.family.name] for m in mixtures
        ]
        rows = [model.rvs_to_values[mixture] for mixture in mixtures]
        self.pieces: dict[str, Piece] = {}
        start = 0
        for value in (*values, *rows):
            shape = tuple(np.shape(point[value.name]))
            self.pieces[value.name] = Piece(start, start + int(np.prod(shape, dtype=np.int64)), shape)
            start = self.pieces[value.name].stop
        self.n_fixed = start
        # The variables first stand by themselves, so that the gradient is one in each of them.
        own = {value: pt.tensor(dtype="float64", shape=self.pieces[value.name].shape) for value in values}
        moving = {*values, *rows}
        others = [other for other in with_densities(model) if other not in mixtures]
        terms = [term for term in model.logp(vars=others, sum=False) if moving & set(ancestors([term]))]
        made = [_Rows(model, m, c, point) for m, c in zip(mixtures, self.clusters, strict=True)]
        total = pt.add(*(without_dims(term).sum() for term in terms), *(m.log_density for m in made))
        residuals, pulls = [m.residuals for m in made], [m.pulls for m in made]
        outputs = [total.astype("float64"), *(m.rows for m in made), *residuals, *pulls]
        # Offsets of rows may depend on variables that move, so that these are replaced last.
        by_rows = {value: _like(m.rows, value) for value, m in zip(rows, made, strict=True)}
        outputs = clone_replace(outputs, by_rows, rebuild_strict=False)
        by_value = {value: _like(variable, value) for value, variable in own.items()}
        total, *placed = clone_replace(outputs, by_value, rebuild_strict=False)
        total = _differentiable(total)
        parts = [*own.values(), *(m.moving for m in made), *(m.moving_means for m in made)]
        gradient = pt.concatenate([part.ravel() for part in grad(total, parts, disconnected_inputs="ignore")])
        vector = pt.dvector("vector")
        places = zip([*own.values(), *(m.moving for m in made)], self.pieces.values(), strict=True)
        sliced = {part: vector[p.start : p.stop].reshape(part.type.shape) for part, p in places}
        first = pt.as_tensor(self.n_fixed)
        for m in made:
            last = first + m.shares_of_centre.size
            sliced[m.moving_means] = vector[first:last].reshape(m.shares_of_centre.shape)
            first = last
        outputs = clone_replace([total, gradient, *placed], sliced, rebuild_strict=False)
        behind = values_behind(model, outputs)
        self.inputs = [str(value.name) for value in behind]
        fixed = [variable for m in made for variable in m.fixed]
        self.function = DirectFunction([vector, *fixed, *behind], outputs, **(compile_kwargs or {}))


def _differentiable(expression: Variable) -> Variable:
    """Return an expression without operations of ``pymc.dims``, which have no gradient."""
    return rewrite_pregrad(rewrite_graph(expression, include=("lower_xtensor",)))


def _like(variable: Variable, value: Variable) -> Variable:
    """Return a variable with the numbers' type of a value variable, and its dims if that has any."""
    typed = variable.astype(value.dtype)
    return as_xtensor(typed, dims=value.type.dims) if has_dims(value) else typed


class _Rows:
    """The graphs of the rows of a latent mixture, as functions of what moves."""

    def __init__(
        self, model: pm.Model, mixture: Variable, clusters: NormalClusters, point: Mapping[str, np.ndarray]
    ) -> None:
        layout, inputs = mixture.owner.op.layout, mixture_inputs(mixture)
        inputs = layout.split(model.replace_rvs_by_values(inputs.in_order()))
        shape, d = np.shape(point[model.rvs_to_values[mixture].name]), layout.n_columns
        self.moving = pt.tensor(dtype="float64", shape=(shape[0], d))
        self.moving_means = pt.tensor(dtype="float64", shape=(None, d))
        shares = pt.tensor(dtype="float64", shape=(shape[0], d))
        roots = pt.tensor(dtype="float64", shape=(None, d, d) if clusters.is_full else (None, d))
        self.shares_of_centre = pt.tensor(dtype="float64", shape=(None, d))
        self.fixed = shares, roots, self.shares_of_centre
        params = {
            name: _in_full(param, layout.family.parameters[name].axes, d)
            for name, param in zip(layout.family.parameters, inputs.params, strict=True)
        }
        means = self.moving_means + self.shares_of_centre * params["mu"]
        of_rows = means[inputs.labels]
        self.residuals = self.moving + shares * of_rows
        whitened = clusters.whitened(roots[inputs.labels], self.residuals - of_rows)
        self.pulls = clusters.pulls(roots[inputs.labels], whitened)
        of_means = clusters.whitened(roots, means - params["mu"])
        self.log_density = (
            clusters.log_prior(params, roots).sum()
            - 0.5 * (params["kappa"] * of_means**2).sum()
            - 0.5 * (whitened**2).sum()
        )
        rows = self.residuals.reshape(shape)
        self.rows = rows if inputs.offset is None else rows + inputs.offset


def can_move(model: pm.Model, mixture: Variable) -> bool:
    """Tell whether rows of a latent mixture can move with all else: their family, and a gradient, are known."""
    if mixture.owner.op.layout.family.name not in CLUSTERS_OF_FAMILIES or mixture not in model.free_RVs:
        return False
    value = model.rvs_to_values[mixture]
    others = [other for other in with_densities(model) if other is not mixture]
    terms = [term for term in model.logp(vars=others, sum=False) if value in set(ancestors([term]))]
    try:
        return (
            not terms or grad(_differentiable(pt.add(*(without_dims(t).sum() for t in terms))), value) is not None
        )
    except (NotImplementedError, NullTypeGradError, TypeError):
        return False


def _in_full(param: Variable, axes: str, d: int) -> Variable:
    """Return a parameter whose axes have the lengths that the graph shows."""
    if set(axes) <= {"d"} and axes:
        return pt.specify_shape(pt.broadcast_to(param, (d,) * len(axes)), (d,) * len(axes))
    return param
