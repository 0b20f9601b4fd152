"""Which terms of a model's density depend on the parameters of which row.

Rows are conditionally independent given their parameters if every term of the density depends on the parameters of
one row at most, its *owner*. Owners are found from the graph, by a walk that carries along for each variable an
array of owners, and confirmed by numbers: the parameters of the rows whose number has a certain bit are changed,
and then those of all others. A term with two owners changes both times.
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
from pytensor.scalar import Add, Mul, Neg
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
from pymc_dpgmm.integration.variables.models import SMALL_GRAPH

# How many pairs of points the owners are confirmed at.
N_CHECKS = 3


class SharedTermError(NotImplementedError):
    """A term of the density depends on the parameters of several rows."""


# An array of owners that can be broadcast to a variable's shape, -1 where an entry has none; None where none has.
Owners = np.ndarray | None


class Term:
    """Terms of the log density, an array, and the row that owns each of them.

    Parameters
    ----------
    name : str
        Of the variable that they are of.
    expression : variable
    owners : array
        It can be broadcast to the expression's shape.
    """

    def __init__(self, name: str, expression: Variable, owners: np.ndarray) -> None:
        self.name, self.expression, self.owners = name, expression, owners

    def collected(self, terms: Variable, n: Any, seats: Variable | None = None) -> Variable:
        """Return the sums of terms by owner, in columns, or by what ``seats`` tells for each owner.

        Parameters
        ----------
        terms : variable (..., *shape)
            The terms, with or without an axis in front.
        n : int or variable
            Number of columns.
        seats : variable (n,), optional
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
        Log densities, by the name of the variable or potential, that depend on them.

    Raises
    ------
    SharedTermError
        If the graph shows a term that depends on several rows.
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
            for leaf in _leaves(density):
                expression = without_checks(leaf, self.values)
                try:
                    owners = walk.owners(expression)
                except _ConflictError:
                    raise SharedTermError(self._refusal.format(name)) from None
                except _UnknownError as error:
                    raise SharedTermError(
                        f"it cannot be told which rows of {names} the log density of {name} depends on "
                        f"(through {error}): write it with functions of single elements, sums over columns, or "
                        f"{names} indexed by constants"
                    ) from None
                if owners is not None:
                    self.terms.append(Term(name, expression, owners))
        self._is_elementwise = walk.is_elementwise
        expressions = [term.expression for term in self.terms]
        needed = set(ancestors(expressions))
        self.inputs = [value for value in model.value_vars if value in needed and value not in self.values]

    def confirm(self, draws: Callable[[int], list[np.ndarray]], point: Mapping[str, np.ndarray]) -> None:
        """Confirm by numbers the owners that the graph tells.

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
        given = [point[value.name] for value in self.inputs]
        rows = np.arange(self.n)
        n_bits = max(int(self.n - 1).bit_length(), 1)
        # For each term: which bits of its owner's number have been seen, and with which values.
        seen: list[Any] = [None] * len(self.terms)
        for _ in range(N_CHECKS):
            before, after = draws(self.n), draws(self.n)
            first = [np.asarray(out) for out in function(*before, *given)]
            if seen[0] is None:
                seen = [np.zeros((2, n_bits, *out.shape), dtype=np.bool_) for out in first]
            for bit in range(n_bits):
                for value in (0, 1):
                    changed = (rows >> bit) & 1 == value
                    mixed = [
                        np.where(changed.reshape(-1, *[1] * (old.ndim - 1)), new, old)
                        for old, new in zip(before, after, strict=True)
                    ]
                    for found, own, old in zip(seen, function(*mixed, *given), first, strict=True):
                        found[value, bit] |= ~((own == old) | (np.isnan(own) & np.isnan(old)))
        for term, found in zip(self.terms, seen, strict=True):
            self._confirm_term(term, found)

    def _confirm_term(self, term: Term, found: np.ndarray) -> None:
        """Compare owners with the bits that were seen to matter."""
        bits = np.arange(found.shape[1]).reshape(-1, *[1] * (found.ndim - 2))
        if np.any(found[0] & found[1]):
            raise SharedTermError(self._refusal.format(term.name))
        owners = np.broadcast_to(term.owners, found.shape[2:])
        expected = (owners >> bits) & 1 == 1
        if np.any(found[1] & ~expected) or np.any(found[0] & expected) or np.any(found.any(0) & (owners < 0)):
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
        """Return the log density of each row under each of several atoms of its own: (n_atoms, n).

        Parameters
        ----------
        atoms : sequence of variables (n_atoms, n, ...)
            One for each of the parameters.
        n_atoms : variable
        """
        own = {
            value: pt.specify_shape(given, (None, self.n, *value.type.shape[1:])).astype(value.dtype)
            for value, given in zip(self.values, atoms, strict=True)
        }
        return self._at_once(own, n_atoms)

    def _at_once(self, many: Mapping[Variable, Variable], n_atoms: Any) -> Variable:
        found = pt.zeros((n_atoms, self.n))
        expressions = vectorize_graph([term.expression for term in self.terms], many)
        for term, expression in zip(self.terms, expressions, strict=True):
            found = found + term.collected(expression, self.n)
        return found

    def _many(self, atoms: Sequence[Variable], n_atoms: Any) -> dict[Variable, Variable]:
        """Return for all parameters each of several atoms at all rows: (n_atoms, n, ...)."""
        # Where an atom's own numbers are enough, they are computed once for all rows.
        n = 1 if self._is_elementwise else self.n
        many = {}
        for value, own in zip(self.values, atoms, strict=True):
            shape = (n_atoms, n, *(own.shape[i] for i in range(1, own.type.ndim)))
            static = (None, n, *own.type.shape[1:])
            many[value] = pt.specify_shape(pt.broadcast_to(own[:, None], shape), static).astype(value.dtype)
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
            In the place of its data.
        atoms, n_atoms
            As in :meth:`by_atom`.
        """
        # The data is no part of what the variable is made from: a covariate may be the very same numbers.
        node = observed.owner
        own = node.op.make_node(*model.replace_rvs_by_values(list(node.inputs)))
        expression = pm.logp(own.outputs[node.outputs.index(observed)], data)
        many = self._many(atoms, n_atoms)
        found = vectorize_graph(without_checks(expression, self.values), many)
        return nan_is_impossible(found)

    def by_cluster(self, rows: Sequence[Variable], labels: Variable, n_clusters: Any) -> Variable:
        """Return the log density of the rows of each cluster: (n_clusters,).

        Parameters
        ----------
        rows : sequence of variables (n, ...)
            One for each of the parameters.
        labels : variable (n,)
        n_clusters : variable
        """
        own = {value: new.astype(value.dtype) for value, new in zip(self.values, rows, strict=True)}
        found = pt.zeros((n_clusters,))
        expressions = clone_replace([t.expression for t in self.terms], own, rebuild_strict=False)
        for term, expression in zip(self.terms, expressions, strict=True):
            found = found + term.collected(expression, n_clusters, labels)
        return found


def nan_is_impossible(density: Variable) -> Variable:
    """Return a log density that is minus infinity where it was NaN, for which no move goes."""
    return pt.switch(pt.isnan(density), -np.inf, density)


def _leaves(expression: Variable) -> list[Variable]:
    """Return arrays whose entries sum up to a scalar expression; another expression as it is."""
    node = expression.owner
    if expression.type.ndim or node is None:
        return [expression]
    if isinstance(node.op, Sum):
        return _leaves(node.inputs[0])
    if isinstance(node.op, Elemwise):
        kind = node.op.scalar_op
        if isinstance(kind, Add):
            return [leaf for part in node.inputs for leaf in _leaves(part)]
        if isinstance(kind, Neg):
            return [-leaf for leaf in _leaves(node.inputs[0])]
        if isinstance(kind, Mul) and len(node.inputs) == 2:
            for one, other in (node.inputs, node.inputs[::-1]):
                if other.owner is None and isinstance(other, Constant):
                    return [leaf * other.data for leaf in _leaves(one)]
    return [expression]


def without_checks(expression: Variable, values: Sequence[Variable]) -> Variable:
    """Let a parameter outside its support make its own entries minus infinity, and not all of them.

    PyMC reduces the conditions on parameters of all rows to one number.
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
        # The innermost one, since replacing it makes new ones of all around it.
        checked, *conditions = checks[0].inputs
        for condition in (part for whole in conditions for part in _conditions(whole)):
            beyond = tuple(range(checked.type.ndim, condition.type.ndim))
            own = pt.all(condition, axis=beyond) if beyond else condition
            if depending.isdisjoint(ancestors([condition])):
                own = pt.all(condition)
            checked = pt.switch(own, checked, -np.inf)
        expression = clone_replace(expression, {checks[0].outputs[0]: checked}, rebuild_strict=False)


def _conditions(condition: Variable) -> list[Variable]:
    """Return the conditions that must all hold for one to hold."""
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
    """Carries owners along a graph.

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
            If the graph does not tell.
        """
        known = list(self._found)
        nodes = toposort([expression], blockers=known)
        # Lengths are known, whatever the entries depend on, but only where all rows are there.
        lengths = [node.outputs[0] for node in nodes if isinstance(node.op, Shape | Shape_i)]
        if set(self._parameters) & set(ancestors(lengths)):
            self.is_elementwise = False
        for node in toposort([expression], blockers=[*known, *lengths]):
            given = [self._found.get(variable) for variable in node.inputs]
            if any(own is not None for own in given):
                own = self._through(node, given)
                for output in node.outputs:
                    self._found[output] = None if own is None else np.asarray(own)
        return self._found.get(expression)

    def _through(self, node: Any, given: list[Owners]) -> Owners:
        """Return the owners of what an operation makes."""
        op, out = node.op, node.outputs[0]
        arrays = [own for own in given if own is not None]
        if isinstance(op, Elemwise):
            return _common(arrays)
        if isinstance(op, DimShuffle):
            return _shuffled(given[0], op.new_order)
        if isinstance(op, CheckAndRaise) and given[0] is not None:
            return given[0]
        if isinstance(op, Alloc) and given[0] is not None:
            return given[0].reshape((1,) * (out.type.ndim - given[0].ndim) + given[0].shape)
        self.is_elementwise = False
        if isinstance(op, Subtensor | AdvancedSubtensor):
            return self._indexed(node, given)
        if isinstance(op, SpecifyShape | ScalarFromTensor | TensorFromScalar):
            return given[0]
        if isinstance(op, CAReduce | LogSumExp):
            own = arrays[0]
            axes = range(own.ndim) if op.axis is None else np.ravel(op.axis).tolist()
            return _reduced(own, tuple(axes))
        if isinstance(op, MakeVector):
            return np.array([-1 if own is None else int(own) for own in given])
        if isinstance(op, Softmax | LogSoftmax | CumOp):
            own = arrays[0]
            axes = tuple(range(own.ndim)) if op.axis is None else tuple(np.ravel(op.axis) % own.ndim)
            return np.expand_dims(_reduced(own, axes), axes)
        if isinstance(op, Dot) or (isinstance(op, Blockwise) and [len(c) for c in op.inputs_sig] == [2, 2]):
            if not isinstance(op, Dot) and not isinstance(op.core_op, Dot):
                raise _UnknownError(op)
            return self._dotted(op, given, out.type.ndim)
        if isinstance(op, Join):
            return self._joined(node, given)
        if isinstance(op, Reshape):
            return _reshaped(op, arrays[0], out.type.shape)
        if isinstance(op, Blockwise):
            n_core = [len(core) for core in op.inputs_sig]
            batches = [
                _reduced(own, tuple(range(own.ndim - n, own.ndim)))
                for own, n in zip(given, n_core, strict=True)
                if own is not None
            ]
            common = _common(batches)
            return common.reshape(common.shape + (1,) * len(op.outputs_sig[0]))
        raise _UnknownError(op)

    @staticmethod
    def _dotted(op: Any, given: list[Owners], ndim: int) -> np.ndarray:
        """Return the owners of a product of matrices, of which one has owners by the axis that stays."""
        left, right = given
        if left is not None and right is not None:
            raise _UnknownError(op)
        if left is not None:
            own = _reduced(left, (left.ndim - 1,))
            return own[..., None] if left.ndim > 1 and ndim >= left.ndim else own
        assert right is not None
        if right.ndim == 1:
            own = _reduced(right, (0,))
            return own.reshape((1,) * ndim)
        own = _reduced(right, (right.ndim - 2,))
        return np.expand_dims(own, -2) if ndim >= right.ndim else own

    def _joined(self, node: Any, given: list[Owners]) -> Owners:
        """Return the owners of arrays one after the other, whose lengths must be known."""
        axis, parts = node.op.axis % node.outputs[0].type.ndim, []
        for variable, own in zip(node.inputs, given, strict=True):
            found = np.full((1,) * variable.type.ndim, -1) if own is None else own
            if found.shape[axis] == 1:
                length = variable.type.shape[axis]
                if length is None:
                    length = self._number_of(variable.shape[axis])
                if length is None:
                    raise _UnknownError(node.op)
                found = np.repeat(found, int(length), axis=axis)
            parts.append(found)
        shape = np.max([part.shape for part in parts], axis=0)
        wide = [np.broadcast_to(p, (*shape[:axis], p.shape[axis], *shape[axis + 1 :])) for p in parts]
        return np.concatenate(wide, axis=axis)

    def _indexed(self, node: Any, given: list[Owners]) -> Owners:
        """Return the owners of what indices take."""
        own, *others = given
        if own is None and len(others) == 1 and others[0] is not None and node.op.idx_list == (0,):
            # Parameters that choose among numbers: the owners are those of the choice.
            n_beyond = node.outputs[0].type.ndim - others[0].ndim
            return others[0].reshape(others[0].shape + (1,) * n_beyond)
        if any(index is not None for index in others):
            # Which entries are taken depends on the parameters themselves.
            raise _ConflictError
        assert own is not None
        numbers = [self._number_of(index) for index in node.inputs[1:]]
        if any(number is None for number in numbers):
            raise _UnknownError(node.op)
        index = []
        for axis, i in enumerate(indices_from_subtensor(numbers, node.op.idx_list)):
            if isinstance(i, np.ndarray) and i.dtype == np.bool_:
                if i.ndim != 1:
                    raise _UnknownError(node.op)
                (i,) = i.nonzero()
            # Along an axis with the same owner everywhere, the first entry stands for all.
            if own.shape[axis] == 1:
                i = slice(None) if isinstance(i, slice) else np.zeros_like(i)
            index.append(i)
        return np.asarray(own[tuple(index)])

    def _number_of(self, index: Variable) -> Any:
        """Return the value of an index, None where only its shape is in the way.

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
        if any(a not in self._parameters for a in others):
            return None
        given = {a: np.zeros((self._n, *a.type.shape[1:]), dtype=a.dtype) for a in others}
        return index.eval(given)


class _ConflictError(Exception):
    """Entries that depend on several rows."""


class _UnknownError(Exception):
    """An operation after which the graph does not tell the owners."""


def _common(owners: Sequence[np.ndarray]) -> np.ndarray:
    """Return the owners of what combines arrays entry by entry."""
    found = owners[0]
    for own in owners[1:]:
        if own is found:
            continue
        one, other = np.broadcast_arrays(found, own)
        if np.any((one >= 0) & (other >= 0) & (one != other)):
            raise _ConflictError
        found = np.where(one >= 0, one, other)
    return found


def _shuffled(own: Any, order: Sequence[Any]) -> np.ndarray:
    kept = [axis for axis in order if axis != "x"]
    dropped = tuple(axis for axis in range(own.ndim) if axis not in kept)
    if any(own.shape[axis] > 1 for axis in dropped):
        raise _ConflictError
    own = np.squeeze(own, axis=dropped)
    renamed = {axis: position for position, axis in enumerate(sorted(kept))}
    own = own.transpose([renamed[axis] for axis in kept])
    return own.reshape([1 if axis == "x" else own.shape[kept.index(axis)] for axis in order])


def _reshaped(op: Any, own: np.ndarray, shape: Sequence[int | None]) -> np.ndarray:
    """Return the owners of a reshaped array, where one axis alone has owners and keeps its length."""
    varying = [length for length in own.shape if length > 1]
    if not varying:
        return own.reshape((1,) * len(shape))
    if len(varying) > 1 or sum(length != 1 for length in shape) != 1 or varying[0] not in shape:
        raise _UnknownError(op)
    return own.reshape([1 if length == 1 else varying[0] for length in shape])


def _reduced(own: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return the owners of what reduces an array along axes, which must be one along them."""
    for axis in sorted((axis % max(own.ndim, 1) for axis in axes), reverse=True):
        least = np.where(own < 0, np.iinfo(np.int64).max, own).min(axis=axis)
        most = own.max(axis=axis)
        if np.any((most >= 0) & (least != most)):
            raise _ConflictError
        own = most
    return own
