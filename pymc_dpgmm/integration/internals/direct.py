"""Functions that PyTensor compiles, called without its own checks and bookkeeping.

These take two microseconds a call, and ten where there are shared variables, such as ``pm.Data``; the code of a
small function takes one. A draw calls such functions a hundred times.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.rewriting.basic import topo_constant_folding
from pytensor.tensor.type import TensorType

from pymc_dpgmm.native.array_calls import Entry, NativeCall, PythonCall, machine_code, native_call

# Arrays with fewer numbers stay in the graph, where PyTensor can simplify what is computed from them.
LEAST_DATA = 8
# Compiled functions that are kept for later models: machine code is never freed, so that each more takes memory.
MOST_KEPT = 256
_kept: OrderedDict[Any, Any] = OrderedDict()


class DirectFunction:
    """A function of arrays that calls PyTensor's compiled code, or PyTensor where there is none.

    The caller gives C-contiguous arrays of the inputs' own types: nothing is checked. Functions that differ in
    data alone have the same code, which is compiled once: constant arrays and shared variables are its inputs.

    Parameters
    ----------
    inputs : sequence of variables
    outputs : variable or sequence of variables
        Without updates of shared variables.
    **options
        Of ``pm.compile``.
    """

    def __init__(self, inputs: Sequence[Variable], outputs: Variable | Sequence[Variable], **options: Any) -> None:
        self._is_single = isinstance(outputs, Variable)
        listed = [outputs] if isinstance(outputs, Variable) else list(outputs)
        self._n_inputs, self._n_outputs = len(inputs), len(listed)
        self._data, *graph = _without_data(inputs, listed)
        with_bounds = pm.modelcontext(None).check_bounds if pm.Model.get_context(error_if_none=False) else True
        self._made_from: tuple[Any, ...] = (*graph, with_bounds, options)
        self._entry: Entry | None = None
        self._draw: Any = None
        self._find_code()

    def _find_code(self) -> None:
        are_shared = [isinstance(data, SharedVariable) for data in self._data]
        self._function = _compiled(are_shared, *self._made_from)
        self._code: Any = getattr(self._function.vm, "jit_fn", None)
        # What pm.set_data puts there is read at every call.
        self._storage = [d.container.storage if isinstance(d, SharedVariable) else [d] for d in self._data]

    def drawn(self, *arrays: Any) -> Any:
        """Return the outputs of a function of random variables.

        Generators are used as they are set, and need not have advanced afterwards. Numba takes ten times as long
        to find out what a generator is as to draw a few numbers, so that its machine code is called directly.
        """
        kinds = [(array.dtype, array.ndim) for array in arrays]
        if self._draw is None or self._draw[0] != kinds:
            # PyTensor compiles its function at the first call.
            outputs = self(*arrays)
            self._draw = kinds, machine_code(self._code)
            return outputs
        _, code = self._draw
        if code is None:
            return self(*arrays)
        outputs = code(*arrays, *(storage[0] for storage in self._storage))[: self._n_outputs]
        return outputs[0] if self._is_single else outputs

    def __call__(self, *arrays: Any) -> Any:
        """Return the output, or a sequence of outputs."""
        outputs = (self._code or self._function)(*arrays, *(storage[0] for storage in self._storage))
        return outputs[0] if self._is_single else outputs

    @property
    def shared(self) -> list[np.ndarray]:
        """The present values of data, which follow the inputs where compiled code is called."""
        # np.ascontiguousarray would give numbers an axis.
        return [] if self._code is None else [np.asarray(storage[0], order="C") for storage in self._storage]

    def native(self) -> NativeCall | None:
        """Return how C functions call it, after it has been called; None where there is no such code."""
        return None if self._code is None else native_call(self._code)

    def entry(self, arrays: Sequence[np.ndarray]) -> Entry:
        """Return how C functions call it, in Python where there is no native code.

        Parameters
        ----------
        arrays : sequence of arrays
            Inputs, of the types that it is called with; :attr:`shared` follow them.
        """
        if self._entry is None:
            # PyTensor compiles its function at the first call.
            self(*arrays)
            native = self.native()
            kinds = [(array.dtype, array.ndim) for array in (*arrays, *self.shared)]
            self._entry = PythonCall(self._listed, kinds) if native is None else native
        return self._entry

    def _listed(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        outputs = self(*arrays[: self._n_inputs])
        return [outputs] if self._is_single else outputs

    def __getstate__(self) -> dict[str, Any]:
        # Code belongs to one process.
        state = {**self.__dict__, "_entry": None, "_draw": None}
        return {name: value for name, value in state.items() if name not in ("_function", "_code", "_storage")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._find_code()


def _without_data(inputs: Sequence[Variable], outputs: Sequence[Variable]) -> tuple[Any, ...]:
    """Return the data of a graph, arrays or shared variables; its inputs, the last for the data; its outputs."""
    shared = [v for v in ancestors(outputs, blockers=inputs) if isinstance(v, SharedVariable)]
    shared = [v for v in dict.fromkeys(shared) if v not in inputs]
    places = [v.type() for v in shared]
    outputs = clone_replace(outputs, dict(zip(shared, places, strict=True)))
    graph = FunctionGraph([*inputs, *places], outputs, clone=True)
    topo_constant_folding.rewrite(graph)
    constants: dict[Any, list[Constant]] = {}
    for variable in dict.fromkeys(v for node in graph.toposort() for v in node.inputs):
        is_array = isinstance(variable, Constant) and isinstance(variable.type, TensorType)
        if is_array and variable.data.size >= LEAST_DATA:
            constants.setdefault(variable.signature(), []).append(variable)
    arrays = []
    for equal in constants.values():
        place = equal[0].type()
        graph.add_input(place)
        graph.replace_all([(constant, place) for constant in equal], import_missing=True)
        # Numba compiles code anew for arrays that can be written to.
        arrays.append(np.asarray(equal[0].data, order="C").view())
        arrays[-1].flags.writeable = False
    return [*shared, *arrays], list(graph.inputs), list(graph.outputs)


def _compiled(
    are_shared: Sequence[bool],
    inputs: Sequence[Variable],
    outputs: Sequence[Variable],
    with_bounds: bool,
    options: Any,
) -> Any:
    """Return PyTensor's function of a graph, which is compiled unless one of an equal graph is kept."""
    if any(_is_foreign(node.op) for node in toposort(outputs)):
        # Operations of a user's own may be equal by what they declare, and differ in what they hold.
        return _newly_compiled(inputs, outputs, with_bounds, options)
    config = pytensor.config
    settings = [config.mode, config.linker, config.cxx, config.numba__fastmath, with_bounds, options]
    key = FrozenFunctionGraph.from_io(inputs, outputs), repr(settings), tuple(are_shared)
    if key not in _kept:
        _kept[key] = _newly_compiled(inputs, outputs, with_bounds, options)
        if len(_kept) > MOST_KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]


def _newly_compiled(
    inputs: Sequence[Variable], outputs: Sequence[Variable], with_bounds: bool, options: Any
) -> Any:
    """Compile a graph to a function that does not check its inputs."""
    with pm.Model(check_bounds=with_bounds):
        function = pm.compile(inputs, outputs, on_unused_input="ignore", **options)
    function.trust_input = True
    return function


def _is_foreign(op: Any) -> bool:
    """Tell whether an operation, or one inside of it, comes from neither PyTensor, PyMC nor this package."""
    inner = [getattr(op, name) for name in ("core_op", "scalar_op") if hasattr(op, name)]
    inner += [node.op for node in getattr(getattr(op, "fgraph", None), "apply_nodes", ())]
    is_known = type(op).__module__.partition(".")[0] in ("pytensor", "pymc", __name__.partition(".")[0])
    return not is_known or any(map(_is_foreign, inner))
