"""Which row of parameters each entry of an expression depends on, as far as its graph tells."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.special import LogSoftmax, LogSumExp, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor

from pymc_dpgmm.integration.variables.models import interpreted

# Owners of the entries of a variable: an array that can be broadcast to its shape, -1 for entries without an
# owner. None if no entry has one.
Owners = np.ndarray | None


class OwnersInGraph:
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
        # Values of the data that owners were found with.
        self.data: dict[Variable, np.ndarray] = {}

    def owners(self, expression: Variable) -> Owners:
        """Return the owners of an expression's entries; None if it depends on no parameters.

        Raises
        ------
        ConflictError
            If an entry has several owners.
        UnknownOwnerError
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
                if isinstance(node.op, OpFromGraph):
                    # The graph inside, with what it is called with.
                    written_out = node.op.fgraph.bind(node.inputs)
                    self._found |= zip(node.outputs, map(self.owners, written_out), strict=True)
                    continue
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
                raise UnknownOwnerError(op)
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
        raise UnknownOwnerError(op)

    @staticmethod
    def _dotted(op: Any, of_inputs: list[Owners], ndim: int) -> np.ndarray:
        """Return the owners of a product of matrices, one of which has owners along the axis that remains."""
        left, right = of_inputs
        if left is not None and right is not None:
            raise UnknownOwnerError(op)
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
                    raise UnknownOwnerError(node.op)
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
            raise ConflictError
        assert owners is not None
        numbers = [self._number_of(index) for index in node.inputs[1:]]
        if any(number is None for number in numbers):
            raise UnknownOwnerError(node.op)
        index = []
        for axis, i in enumerate(indices_from_subtensor(numbers, node.op.idx_list)):
            if isinstance(i, np.ndarray) and i.dtype == np.bool_:
                if i.ndim != 1:
                    raise UnknownOwnerError(node.op)
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
        ConflictError
            If it may change while the model is sampled.
        """
        shapes = [node.outputs[0] for node in toposort([index]) if isinstance(node.op, Shape | Shape_i)]
        leaves = [a for a in ancestors([index], blockers=shapes) if a.owner is None]
        if any(not isinstance(a, Constant | SharedVariable) or isinstance(a.type, RandomType) for a in leaves):
            raise ConflictError
        others = [
            a for a in ancestors([index]) if a.owner is None and not isinstance(a, Constant | SharedVariable)
        ]
        # It depends on them by their shapes alone.
        shapes_of = {a: (self._n, *a.type.shape[1:]) if a in self._parameters else a.type.shape for a in others}
        if any(None in shape for shape in shapes_of.values()):
            return None
        zeros = {a: np.zeros(shape, dtype=a.dtype) for a, shape in shapes_of.items()}
        # Data that decide which rows are which stay what they are for as long as the owners are used.
        self.data |= {a: np.array(a.get_value()) for a in leaves if isinstance(a, SharedVariable)}
        return interpreted(list(zeros), index)(*zeros.values())


class ConflictError(Exception):
    """An entry depends on several rows."""


class UnknownOwnerError(Exception):
    """An operation for whose output the owners cannot be determined."""


def _common(owners: Sequence[np.ndarray]) -> np.ndarray:
    """Return the owners of an array that is computed entry by entry from arrays with these owners."""
    common = owners[0]
    for array in owners[1:]:
        if array is common:
            continue
        one, other = np.broadcast_arrays(common, array)
        if np.any((one >= 0) & (other >= 0) & (one != other)):
            raise ConflictError
        common = np.where(one >= 0, one, other)
    return common


def _shuffled(owners: Any, order: Sequence[Any]) -> np.ndarray:
    axes = [axis for axis in order if axis != "x"]
    dropped = tuple(axis for axis in range(owners.ndim) if axis not in axes)
    if any(owners.shape[axis] > 1 for axis in dropped):
        raise ConflictError
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
        raise UnknownOwnerError(op)
    return owners.reshape([1 if length == 1 else varying[0] for length in shape])


def _reduced(owners: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return the owners of an array reduced along axes. Entries along these axes must have one owner."""
    for axis in sorted((axis % max(owners.ndim, 1) for axis in axes), reverse=True):
        least = np.where(owners < 0, np.iinfo(np.int64).max, owners).min(axis=axis)
        most = owners.max(axis=axis)
        if np.any((most >= 0) & (least != most)):
            raise ConflictError
        owners = most
    return owners
