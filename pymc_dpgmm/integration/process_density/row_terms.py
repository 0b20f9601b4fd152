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
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import Add, Mul, Neg, Sub, TrueDiv
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import All, Dot, Sum
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor

from pymc_dpgmm.integration.internals.pymc_internals import CheckParameterValue
from pymc_dpgmm.integration.variables.models import SMALL_GRAPH, values_behind

# Number of pairs of points at which owners are checked numerically.
N_CHECKS = 3


class SharedTermError(NotImplementedError):
    """A term of the density depends on the parameters of several rows."""


# Owners of the entries of a variable: an array that can be broadcast to its shape, -1 for entries without an
# owner. None if no entry has one.
Owners = np.ndarray | None


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
        terms = nan_is_impossible(terms)
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
        walk = _Walk(self.values, n)
        self.terms: list[Term] = []
        for name, density in dependents.items():
            for leaf in _leaves(density, self.values):
                expression = without_checks(leaf, self.values)
                try:
                    owners = walk.owners(expression)
                except _ConflictError:
                    raise SharedTermError(self._refusal.format(name)) from None
                except _UnknownError as error:
                    raise SharedTermError(
                        f"cannot determine which rows of {names} the log density of {name} depends on "
                        f"(through {error}): write it with functions of single elements, sums over columns, or "
                        f"{names} indexed by constants"
                    ) from None
                if owners is not None:
                    self.terms.append(Term(name, expression, owners))
        self._is_elementwise = walk.is_elementwise
        expressions = [term.expression for term in self.terms]
        self.inputs = [value for value in values_behind(model, expressions) if value not in self.values]

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
        function = pm.compile(inputs, outputs, mode=SMALL_GRAPH, on_unused_input="ignore")
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
        # Only the value is replaced, not the inputs of the variable: a covariate may be the same data.
        node = observed.owner
        copy = node.op.make_node(*model.replace_rvs_by_values(list(node.inputs)))
        expression = pm.logp(copy.outputs[node.outputs.index(observed)], data)
        many = self._many(atoms, n_atoms)
        density = vectorize_graph(without_checks(expression, self.values), many)
        return nan_is_impossible(density)

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


def nan_is_impossible(density: Variable) -> Variable:
    """Return a log density with minus infinity in place of NaN, so that no move is accepted there."""
    return pt.switch(pt.isnan(density), -np.inf, density)


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


class _Walk:
    """Computes owners along a graph.

    Parameters
    ----------
    parameters : sequence of variables
        Parameters of rows.
    n : int
        Number of rows.
    """

    def __init__(self, parameters: Sequence[Variable], n: int) -> None:
        self._found: dict[Variable, Owners] = {
            value: np.arange(n).reshape(n, *[1] * (value.type.ndim - 1)) for value in parameters
        }
        self._parameters, self._n = parameters, n
        self.is_elementwise = True

    def owners(self, expression: Variable) -> Owners:
        """Return the owners of an expression's entries; None if it depends on no parameters.

        Raises
        ------
        _ConflictError
            If an entry has several owners.
        _UnknownError
            If the owners cannot be determined.
        """
        known = list(self._found)
        nodes = toposort([expression], blockers=known)
        # The lengths of arrays have no owners, but they are right only if arrays have all rows.
        lengths = [node.outputs[0] for node in nodes if isinstance(node.op, Shape | Shape_i)]
        if set(self._parameters) & set(ancestors(lengths)):
            self.is_elementwise = False
        for node in toposort([expression], blockers=[*known, *lengths]):
            of_inputs = [self._found.get(variable) for variable in node.inputs]
            if any(owners is not None for owners in of_inputs):
                owners = self._through(node, of_inputs)
                for output in node.outputs:
                    self._found[output] = None if owners is None else np.asarray(owners)
        return self._found.get(expression)

    def _through(self, node: Any, of_inputs: list[Owners]) -> Owners:
        """Return the owners of the output of an operation."""
        op, out = node.op, node.outputs[0]
        arrays = [owners for owners in of_inputs if owners is not None]
        if isinstance(op, Elemwise):
            return _common(arrays)
        if isinstance(op, DimShuffle):
            return _shuffled(of_inputs[0], op.new_order)
        if isinstance(op, CheckAndRaise) and of_inputs[0] is not None:
            return of_inputs[0]
        if isinstance(op, Alloc) and of_inputs[0] is not None:
            return of_inputs[0].reshape((1,) * (out.type.ndim - of_inputs[0].ndim) + of_inputs[0].shape)
        self.is_elementwise = False
        if isinstance(op, Subtensor | AdvancedSubtensor):
            return self._indexed(node, of_inputs)
        if isinstance(op, SpecifyShape | ScalarFromTensor | TensorFromScalar):
            return of_inputs[0]
        if isinstance(op, CAReduce | LogSumExp):
            owners = arrays[0]
            axes = range(owners.ndim) if op.axis is None else np.ravel(op.axis).tolist()
            return _reduced(owners, tuple(axes))
        if isinstance(op, MakeVector):
            return np.array([-1 if owners is None else int(owners) for owners in of_inputs])
        if isinstance(op, Softmax | LogSoftmax | CumOp):
            owners = arrays[0]
            axes = tuple(range(owners.ndim)) if op.axis is None else tuple(np.ravel(op.axis) % owners.ndim)
            return np.expand_dims(_reduced(owners, axes), axes)
        if isinstance(op, Dot) or (isinstance(op, Blockwise) and [len(c) for c in op.inputs_sig] == [2, 2]):
            if not isinstance(op, Dot) and not isinstance(op.core_op, Dot):
                raise _UnknownError(op)
            return self._dotted(op, of_inputs, out.type.ndim)
        if isinstance(op, Join):
            return self._joined(node, of_inputs)
        if isinstance(op, Reshape):
            return _reshaped(op, arrays[0], out.type.shape)
        if isinstance(op, Blockwise):
            n_core = [len(core) for core in op.inputs_sig]
            batches = [
                _reduced(owners, tuple(range(owners.ndim - n, owners.ndim)))
                for owners, n in zip(of_inputs, n_core, strict=True)
                if owners is not None
            ]
            common = _common(batches)
            return common.reshape(common.shape + (1,) * len(op.outputs_sig[0]))
        raise _UnknownError(op)

    @staticmethod
    def _dotted(op: Any, of_inputs: list[Owners], ndim: int) -> np.ndarray:
        """Return the owners of a product of matrices, one of which has owners along the axis that remains."""
        left, right = of_inputs
        if left is not None and right is not None:
            raise _UnknownError(op)
        if left is not None:
            owners = _reduced(left, (left.ndim - 1,))
            return owners[..., None] if left.ndim > 1 and ndim >= left.ndim else owners
        assert right is not None
        if right.ndim == 1:
            owners = _reduced(right, (0,))
            return owners.reshape((1,) * ndim)
        owners = _reduced(right, (right.ndim - 2,))
        return np.expand_dims(owners, -2) if ndim >= right.ndim else owners

    def _joined(self, node: Any, of_inputs: list[Owners]) -> Owners:
        """Return the owners of joined arrays, whose lengths must be known."""
        axis, parts = node.op.axis % node.outputs[0].type.ndim, []
        for variable, of_input in zip(node.inputs, of_inputs, strict=True):
            owners = np.full((1,) * variable.type.ndim, -1) if of_input is None else of_input
            if owners.shape[axis] == 1:
                length = variable.type.shape[axis]
                if length is None:
                    length = self._number_of(variable.shape[axis])
                if length is None:
                    raise _UnknownError(node.op)
                owners = np.repeat(owners, int(length), axis=axis)
            parts.append(owners)
        shape = np.max([part.shape for part in parts], axis=0)
        wide = [np.broadcast_to(p, (*shape[:axis], p.shape[axis], *shape[axis + 1 :])) for p in parts]
        return np.concatenate(wide, axis=axis)

    def _indexed(self, node: Any, of_inputs: list[Owners]) -> Owners:
        """Return the owners of indexed entries."""
        owners, *others = of_inputs
        if owners is None and len(others) == 1 and others[0] is not None and node.op.idx_list == (0,):
            # Parameters that index known numbers: the owners are those of the index.
            n_beyond = node.outputs[0].type.ndim - others[0].ndim
            return others[0].reshape(others[0].shape + (1,) * n_beyond)
        if any(index is not None for index in others):
            # The parameters decide which of their own entries are taken.
            raise _ConflictError
        assert owners is not None
        numbers = [self._number_of(index) for index in node.inputs[1:]]
        if any(number is None for number in numbers):
            raise _UnknownError(node.op)
        index = []
        for axis, i in enumerate(indices_from_subtensor(numbers, node.op.idx_list)):
            if isinstance(i, np.ndarray) and i.dtype == np.bool_:
                if i.ndim != 1:
                    raise _UnknownError(node.op)
                (i,) = i.nonzero()
            # Along an axis of length 1, which is broadcast, the only entry stands for all.
            if owners.shape[axis] == 1:
                i = slice(None) if isinstance(i, slice) else np.zeros_like(i)
            index.append(i)
        return np.asarray(owners[tuple(index)])

    def _number_of(self, index: Variable) -> Any:
        """Return the value of an index, None if it is unknown for another reason than that it may change.

        Raises
        ------
        _ConflictError
            If it may change while the model is sampled.
        """
        shapes = [node.outputs[0] for node in toposort([index]) if isinstance(node.op, Shape | Shape_i)]
        leaves = [a for a in ancestors([index], blockers=shapes) if a.owner is None]
        if any(not isinstance(a, Constant | SharedVariable) or isinstance(a.type, RandomType) for a in leaves):
            raise _ConflictError
        others = [
            a for a in ancestors([index]) if a.owner is None and not isinstance(a, Constant | SharedVariable)
        ]
        # It depends on them by their shapes alone.
        shapes_of = {a: (self._n, *a.type.shape[1:]) if a in self._parameters else a.type.shape for a in others}
        if any(None in shape for shape in shapes_of.values()):
            return None
        zeros = {a: np.zeros(shape, dtype=a.dtype) for a, shape in shapes_of.items()}
        return index.eval(zeros)


class _ConflictError(Exception):
    """An entry depends on several rows."""


class _UnknownError(Exception):
    """An operation for whose output the owners cannot be determined."""


def _common(owners: Sequence[np.ndarray]) -> np.ndarray:
    """Return the owners of an array that is computed entry by entry from arrays with these owners."""
    common = owners[0]
    for array in owners[1:]:
        if array is common:
            continue
        one, other = np.broadcast_arrays(common, array)
        if np.any((one >= 0) & (other >= 0) & (one != other)):
            raise _ConflictError
        common = np.where(one >= 0, one, other)
    return common


def _shuffled(owners: Any, order: Sequence[Any]) -> np.ndarray:
    axes = [axis for axis in order if axis != "x"]
    dropped = tuple(axis for axis in range(owners.ndim) if axis not in axes)
    if any(owners.shape[axis] > 1 for axis in dropped):
        raise _ConflictError
    owners = np.squeeze(owners, axis=dropped)
    renamed = {axis: position for position, axis in enumerate(sorted(axes))}
    owners = owners.transpose([renamed[axis] for axis in axes])
    return owners.reshape([1 if axis == "x" else owners.shape[axes.index(axis)] for axis in order])


def _reshaped(op: Any, owners: np.ndarray, shape: Sequence[int | None]) -> np.ndarray:
    """Return the owners of a reshaped array, of which a single axis has owners and keeps its length."""
    varying = [length for length in owners.shape if length > 1]
    if not varying:
        return owners.reshape((1,) * len(shape))
    if len(varying) > 1 or sum(length != 1 for length in shape) != 1 or varying[0] not in shape:
        raise _UnknownError(op)
    return owners.reshape([1 if length == 1 else varying[0] for length in shape])


def _reduced(owners: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return the owners of an array reduced along axes. Entries along these axes must have one owner."""
    for axis in sorted((axis % max(owners.ndim, 1) for axis in axes), reverse=True):
        least = np.where(owners < 0, np.iinfo(np.int64).max, owners).min(axis=axis)
        most = owners.max(axis=axis)
        if np.any((most >= 0) & (least != most)):
            raise _ConflictError
        owners = most
    return owners
