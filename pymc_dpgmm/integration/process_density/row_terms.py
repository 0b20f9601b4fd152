"""Find for each term of a model's density the row on whose parameters it depends.

Rows are conditionally independent given their parameters if every term of the density depends on the parameters of
at most one row, its *owner*. A walk through the graph computes an array of owners for each variable. The owners
are then checked numerically, for each bit of the row numbers: the parameters of all rows whose number has this bit
are changed, and then those of all other rows. For some bit, a term with two owners changes both times.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import Add, Mul, Neg, Sub, TrueDiv
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import All, Sum
from pytensor.tensor.shape import Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_dpgmm.integration.internals.pymc_internals import CheckParameterValue
from pymc_dpgmm.integration.process_density.owners import ConflictError, OwnersInGraph, UnknownOwnerError
from pymc_dpgmm.integration.variables.models import interpreted, numbers_in, values_behind

# Number of pairs of points at which owners are checked numerically.
N_CHECKS = 3


class SharedTermError(NotImplementedError):
    """A term of the density depends on the parameters of several rows."""


class Term:
    """An array of terms of the log density, and the row that owns each of them.

    Parameters
    ----------
    name : str
        Name of the variable or potential whose density has these terms.
    expression : variable
    owners : array
        Can be broadcast to the expression's shape.
    """

    def __init__(self, name: str, expression: Variable, owners: np.ndarray) -> None:
        self.name, self.expression, self.owners = name, expression, owners

    def collected(self, terms: Variable, n: Any, seats: Variable | None = None) -> Variable:
        """Return the sums of terms by owner, in columns, or by the labels of the owners.

        Parameters
        ----------
        terms : variable (..., *shape)
            The terms, with or without a leading axis.
        n : int or variable
            Number of columns.
        seats : variable (n,), optional
            Column, such as the cluster, of each owner.
        """
        batched = terms.type.ndim - self.owners.ndim
        terms = or_impossible(terms)
        alone = [batched + axis for axis, length in enumerate(self.owners.shape) if length == 1]
        terms = terms.sum(axis=alone) if alone else terms
        owners = self.owners.reshape(-1)
        if terms.type.ndim > batched + 1:
            terms = terms.reshape((*(terms.shape[i] for i in range(batched)), -1), ndim=batched + 1)
        if seats is None and terms.type.ndim == batched + 1 and np.array_equal(owners, np.arange(n)):
            return terms
        if terms.type.ndim == batched:
            terms = terms[..., None]
        owned = np.flatnonzero(owners >= 0)
        if len(owned) < len(owners):
            terms, owners = terms[..., owned], owners[owned]
        columns = pt.constant(owners) if seats is None else seats[owners]
        if batched:
            return pt.zeros((terms.shape[0], n))[:, columns].inc(terms)
        return pt.zeros((n,))[columns].inc(terms)


class RowTerms:
    """The terms of a model's density that depend on parameters of rows.

    Parameters
    ----------
    model : pm.Model
    parameters : sequence of variables
        Random variables, each with one entry per row along its first axis.
    n : int
        Number of rows.
    dependents : dict of variables
        Log densities that depend on the parameters, by the name of the variable or potential.

    Raises
    ------
    SharedTermError
        If a term depends on several rows, or the graph does not show on which rows it depends.
    """

    def __init__(
        self, model: pm.Model, parameters: Sequence[Variable], n: int, dependents: Mapping[str, Variable]
    ) -> None:
        self.n = n
        self.values = [model.rvs_to_values[rv] for rv in parameters]
        names = " and ".join(rv.name for rv in parameters)
        self._refusal = (
            f"the log density of {{}} has a term that depends on {names} of several rows, so that rows are not "
            f"independent given {names}; dp.DirichletProcess needs a likelihood in which each row, or each unit, "
            "has its own parameters"
        )
        walk = OwnersInGraph(self.values, n)
        self.terms: list[Term] = []
        for name, density in dependents.items():
            for leaf in _leaves(density, self.values):
                expression = without_checks(leaf, self.values)
                try:
                    owners = walk.owners(expression)
                except ConflictError:
                    raise SharedTermError(self._refusal.format(name)) from None
                except UnknownOwnerError as error:
                    raise SharedTermError(
                        f"cannot determine which rows of {names} the log density of {name} depends on "
                        f"(through {error}): write it with functions of single elements, sums over columns, or "
                        f"{names} indexed by constants"
                    ) from None
                if owners is not None:
                    self.terms.append(Term(name, expression, owners))
        self._is_elementwise, self._data = walk.is_elementwise, walk.data
        expressions = [term.expression for term in self.terms]
        self.inputs = [value for value in values_behind(model, expressions) if value not in self.values]
        # Names of the variables that they are values of.
        self.shared = [str(model.values_to_rvs[value].name) for value in self.inputs]

    def check_data(self) -> None:
        """Raise ValueError if data have changed that decide which rows terms depend on."""
        changed = [
            str(data.name) for data, value in self._data.items() if not np.array_equal(data.get_value(), value)
        ]
        if changed:
            raise ValueError(
                f"{', '.join(changed)}: these data decide which rows belong together, and have changed since the "
                "step was made: make a new step, or leave it to pm.sample"
            )

    def confirm(self, draws: Callable[[int], list[np.ndarray]], point: Mapping[str, np.ndarray]) -> None:
        """Check the owners from the graph numerically.

        Parameters
        ----------
        draws : callable
            Returns parameters for a number of rows, drawn independently from their base.
        point : dict of arrays
            Values of the other variables.

        Raises
        ------
        SharedTermError
            If a term depends on several rows.
        """
        if not self.terms:
            return
        inputs = [*self.values, *self.inputs]
        outputs = [term.expression for term in self.terms]
        function = interpreted(inputs, outputs)
        fixed = [point[value.name] for value in self.inputs]
        rows = np.arange(self.n)
        n_bits = max(int(self.n - 1).bit_length(), 1)
        # For each term, whether it has changed with the rows that have a bit, and with those that do not have it.
        changes: list[Any] = [None] * len(self.terms)
        for _ in range(N_CHECKS):
            before, after = draws(self.n), draws(self.n)
            first = [np.asarray(out) for out in function(*before, *fixed)]
            if changes[0] is None:
                changes = [np.zeros((2, n_bits, *out.shape), dtype=np.bool_) for out in first]
            for bit in range(n_bits):
                for value in (0, 1):
                    changed = (rows >> bit) & 1 == value
                    mixed = [
                        np.where(changed.reshape(-1, *[1] * (old.ndim - 1)), new, old)
                        for old, new in zip(before, after, strict=True)
                    ]
                    for has_changed, out, old in zip(changes, function(*mixed, *fixed), first, strict=True):
                        has_changed[value, bit] |= ~((out == old) | (np.isnan(out) & np.isnan(old)))
        for term, has_changed in zip(self.terms, changes, strict=True):
            self._confirm_term(term, has_changed)

    def _confirm_term(self, term: Term, changed: np.ndarray) -> None:
        """Compare the owners of a term with the bits of row numbers with which it has changed."""
        bits = np.arange(changed.shape[1]).reshape(-1, *[1] * (changed.ndim - 2))
        if np.any(changed[0] & changed[1]):
            raise SharedTermError(self._refusal.format(term.name))
        owners = np.broadcast_to(term.owners, changed.shape[2:])
        expected = (owners >> bits) & 1 == 1
        if (
            np.any(changed[1] & ~expected)
            or np.any(changed[0] & expected)
            or np.any(changed.any(0) & (owners < 0))
        ):
            raise SharedTermError(self._refusal.format(term.name))

    def by_atom(self, atoms: Sequence[Variable], n_atoms: Any) -> Variable:
        """Return the log density of each row under each of several atoms: (n_atoms, n).

        Parameters
        ----------
        atoms : sequence of variables (n_atoms, ...)
            One for each of the parameters.
        n_atoms : variable
        """
        return self._at_once(self._many(atoms, n_atoms), n_atoms)

    def by_row_of_atoms(self, atoms: Sequence[Variable], n_atoms: Any) -> Variable:
        """Return the log density of each row under its own atoms, several per row: (n_atoms, n).

        Parameters
        ----------
        atoms : sequence of variables (n_atoms, n, ...)
            One for each of the parameters.
        n_atoms : variable
        """
        many = {
            value: pt.specify_shape(atom, (None, self.n, *value.type.shape[1:])).astype(value.dtype)
            for value, atom in zip(self.values, atoms, strict=True)
        }
        return self._at_once(many, n_atoms)

    def _at_once(self, many: Mapping[Variable, Variable], n_atoms: Any) -> Variable:
        total = pt.zeros((n_atoms, self.n))
        expressions = vectorize_graph([term.expression for term in self.terms], many)
        for term, expression in zip(self.terms, expressions, strict=True):
            total = total + term.collected(expression, self.n)
        return total

    def _many(self, atoms: Sequence[Variable], n_atoms: Any) -> dict[Variable, Variable]:
        """Return for each parameter every atom repeated for all rows: (n_atoms, n, ...)."""
        # Functions of single elements are computed once for all rows, by broadcasting.
        n = 1 if self._is_elementwise else self.n
        many = {}
        for value, atom in zip(self.values, atoms, strict=True):
            shape = (n_atoms, n, *(atom.shape[i] for i in range(1, atom.type.ndim)))
            static = (None, n, *atom.type.shape[1:])
            many[value] = pt.specify_shape(pt.broadcast_to(atom[:, None], shape), static).astype(value.dtype)
        return many

    def by_observation(
        self, model: pm.Model, observed: Variable, data: Variable, atoms: Sequence[Variable], n_atoms: Any
    ) -> Variable:
        """Return the log density of each observation under each of several atoms: (n_atoms, ...).

        Parameters
        ----------
        model : pm.Model
        observed : variable
            Random variable.
        data : variable
            Replaces its data.
        atoms, n_atoms
            As in :meth:`by_atom`.
        """
        many = self._many(atoms, n_atoms)
        return or_impossible(vectorize_graph(self._of_observations(model, observed, data), many))

    def _of_observations(self, model: pm.Model, observed: Variable, data: Variable) -> Variable:
        # Only the value is replaced, not the inputs of the variable: a covariate may be the same data.
        node = observed.owner
        copy = node.op.make_node(*model.replace_rvs_by_values(list(node.inputs)))
        return without_checks(pm.logp(copy.outputs[node.outputs.index(observed)], data), self.values)

    def are_alike(self, model: pm.Model, observed: Variable, n: int) -> bool:
        """Tell whether the graph shows that (n,) observations have the same density under the same parameters.

        Then nothing in it differs between them, as covariates, exposures and effects do.

        Parameters
        ----------
        model, observed
            As in :meth:`by_observation`.
        n : int
        """
        data = model.rvs_to_values[observed].type()
        expression = self._of_observations(model, observed, data)
        # Which row of parameters an observation has does not matter: they are the same.
        chosen = [node.outputs[0] for node in toposort([expression]) if _chooses_rows(node, {*self.values, data})]
        leaves = [leaf for leaf in ancestors([expression], blockers=chosen) if leaf not in {*self.values, data}]
        axes = {leaf: _differing_axes(leaf, n) for leaf in leaves if leaf.owner is None}
        differing = [leaf for leaf, found in axes.items() if found]
        made = [node for node in toposort([expression], blockers=chosen) if _may_differ(node, n)]
        try:
            is_known = expression.type.ndim == 1 and not made and all(axes[leaf] == [0] for leaf in differing)
            return is_known and OwnersInGraph(differing, n).owners(expression) is None
        except (ConflictError, UnknownOwnerError):
            return False

    def by_cluster(self, rows: Sequence[Variable], labels: Variable, n_clusters: Any) -> Variable:
        """Return the log density of the rows of each cluster: (n_clusters,).

        Parameters
        ----------
        rows : sequence of variables (n, ...)
            One for each of the parameters.
        labels : variable (n,)
        n_clusters : variable
        """
        replaced = {value: new.astype(value.dtype) for value, new in zip(self.values, rows, strict=True)}
        total = pt.zeros((n_clusters,))
        expressions = clone_replace([t.expression for t in self.terms], replaced, rebuild_strict=False)
        for term, expression in zip(self.terms, expressions, strict=True):
            total = total + term.collected(expression, n_clusters, labels)
        return total


def _chooses_rows(node: Any, alike: set[Variable]) -> bool:
    """Tell whether an operation takes entries of what has the same in every row."""
    if not isinstance(node.op, Subtensor | AdvancedSubtensor):
        return False
    leaves = [leaf for leaf in ancestors(node.inputs[:1]) if leaf.owner is None]
    by_entry = all(isinstance(inner.op, Elemwise | DimShuffle) for inner in toposort(node.inputs[:1]))
    return by_entry and all(leaf in alike or getattr(leaf.type, "ndim", 0) == 0 for leaf in leaves)


# Operations whose results differ along an axis only if one of their inputs does.
_BY_ENTRY = (
    Elemwise,
    DimShuffle,
    Alloc,
    CAReduce,
    CheckAndRaise,
    Subtensor,
    AdvancedSubtensor,
    SpecifyShape,
    ScalarFromTensor,
    TensorFromScalar,
    Shape,
    Shape_i,
    Softmax,
    LogSoftmax,
    LogSumExp,
    OpFromGraph,
)


def _may_differ(node: Any, n: int) -> bool:
    """Tell whether an operation may make n numbers that differ of what does not, as stacks, ranges and sums do."""
    if isinstance(node.op, _BY_ENTRY):
        return False
    if isinstance(node.op, Join):
        axis = node.op.axis % node.outputs[0].type.ndim
        return node.outputs[0].type.shape[axis] in (n, None)
    return any(length in (n, None) for output in node.outputs for length in getattr(output.type, "shape", ()))


def _differing_axes(leaf: Variable, n: int) -> list[int]:
    """Return the axes of length n along which the numbers of data, or those of a variable, differ."""
    array = numbers_in(leaf)
    if array is None:
        return [axis for axis, length in enumerate(getattr(leaf.type, "shape", ())) if length in (n, None)]
    lengths = enumerate(array.shape)
    return [axis for axis, length in lengths if length == n and np.any(array != array.take([0], axis))]


def or_impossible(density: Variable) -> Variable:
    """Return a log density with minus infinity in place of NaN and +inf, so that no move is accepted there."""
    return pt.switch(pt.lt(density, np.inf), density, -np.inf)


def _leaves(expression: Variable, values: Sequence[Variable]) -> list[Variable]:
    """Return arrays whose entries add up to a scalar expression; other expressions as they are.

    A sum may be multiplied or divided by what does not depend on ``values``.
    """
    node = expression.owner
    if expression.type.ndim or node is None:
        return [expression]
    if isinstance(node.op, Sum):
        return _leaves(node.inputs[0], values)
    if isinstance(node.op, Elemwise):
        kind, (first, *others) = node.op.scalar_op, node.inputs
        if isinstance(kind, Add):
            return [leaf for part in node.inputs for leaf in _leaves(part, values)]
        if isinstance(kind, Neg):
            return [-leaf for leaf in _leaves(first, values)]
        if isinstance(kind, Sub):
            return [*_leaves(first, values), *(-leaf for leaf in _leaves(others[0], values))]
        depending = [part for part in node.inputs if not set(values).isdisjoint(ancestors([part]))]
        if isinstance(kind, Mul) and len(depending) == 1:
            factors = [part for part in node.inputs if part is not depending[0]]
            return [pt.mul(leaf, *factors) for leaf in _leaves(depending[0], values)]
        if isinstance(kind, TrueDiv) and depending == [first]:
            return [leaf / others[0] for leaf in _leaves(first, values)]
    return [expression]


def without_checks(expression: Variable, values: Sequence[Variable]) -> Variable:
    """Make entries with a parameter outside its support minus infinity, but not all other entries.

    PyMC reduces the conditions on the parameters of all rows to one number.
    """
    depending = set(values)
    while True:
        checks = [
            node
            for node in toposort([expression])
            if isinstance(node.op, CheckParameterValue) and depending & set(ancestors(node.inputs[1:]))
        ]
        if not checks:
            return expression
        # The innermost check first, since replacing it makes new nodes of all checks around it.
        checked, *conditions = checks[0].inputs
        for condition in (part for whole in conditions for part in _conditions(whole)):
            beyond = tuple(range(checked.type.ndim, condition.type.ndim))
            holds = pt.all(condition, axis=beyond) if beyond else condition
            if depending.isdisjoint(ancestors([condition])):
                holds = pt.all(condition)
            checked = pt.switch(holds, checked, -np.inf)
        expression = clone_replace(expression, {checks[0].outputs[0]: checked}, rebuild_strict=False)


def _conditions(condition: Variable) -> list[Variable]:
    """Return the conditions of which one is the conjunction."""
    node = condition.owner
    if node is not None:
        if isinstance(node.op, All | ScalarFromTensor) or (
            isinstance(node.op, DimShuffle) and not node.inputs[0].type.ndim
        ):
            return _conditions(node.inputs[0])
        if isinstance(node.op, MakeVector | Join):
            return [condition for part in node.inputs for condition in _conditions(part)]
    return [condition]
