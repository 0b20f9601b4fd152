"""Functions that PyTensor compiles, called without its own checks and bookkeeping.

These take two microseconds a call, and ten where there are shared variables, such as ``pm.Data``; the code of a
small function takes one. A draw calls such functions a hundred times.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.native.array_calls import Entry, NativeCall, PythonCall, machine_code, native_call


class DirectFunction:
    """A function of arrays that calls PyTensor's compiled code, or PyTensor where there is none.

    The caller gives C-contiguous arrays of the inputs' own types: nothing is checked.

    Parameters
    ----------
    inputs : sequence of variables
    outputs : variable or sequence of variables
        Without updates of shared variables.
    **options
        Of ``pm.compile``.
    """

    def __init__(self, inputs: Sequence[Variable], outputs: Variable | Sequence[Variable], **options: Any) -> None:
        self._function = pm.compile(inputs, outputs, on_unused_input="ignore", **options)
        self._function.trust_input = True
        self._n_inputs, self._is_single = len(inputs), isinstance(outputs, Variable)
        self._entry: Entry | None = None
        self._n_outputs = 1 if isinstance(outputs, Variable) else len(outputs)
        self._draw: Any = None
        self._find_code()

    def _find_code(self) -> None:
        code = getattr(self._function.vm, "jit_fn", None)
        if getattr(self._function.maker.fgraph, "update_mapping", None):
            code = None
        self._code: Any = code
        # Data of the model: what pm.set_data puts there is read at every call.
        self._shared = [] if code is None else list(self._function.input_storage[self._n_inputs :])

    def drawn(self, *arrays: Any) -> Any:
        """Return the outputs of a function of random variables.

        Generators are used as they are set, and need not have advanced afterwards. Numba takes ten times as long
        to find out what a generator is as to draw a few numbers, so that its machine code is called directly.
        """
        kinds = [(array.dtype, array.ndim) for array in arrays]
        if self._draw is None or self._draw[0] != kinds:
            # PyTensor compiles its function at the first call.
            outputs = self._function(*arrays)
            self._draw = kinds, machine_code(getattr(self._function.vm, "jit_fn", None))
            return outputs
        _, code = self._draw
        if code is None:
            return self._function(*arrays)
        shared = (container.storage[0] for container in self._function.input_storage[self._n_inputs :])
        outputs = code(*arrays, *shared)[: self._n_outputs]
        return outputs[0] if self._is_single else outputs

    def __call__(self, *arrays: Any) -> Any:
        """Return the output, or a sequence of outputs."""
        if self._code is None:
            return self._function(*arrays)
        outputs = self._code(*arrays, *(container.storage[0] for container in self._shared))
        return outputs[0] if self._is_single else outputs

    @property
    def shared(self) -> list[np.ndarray]:
        """The present values of shared variables, which follow the inputs where compiled code is called."""
        # np.ascontiguousarray would give numbers an axis.
        return [np.asarray(container.storage[0], order="C") for container in self._shared]

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
        return {**self.__dict__, "_code": None, "_shared": [], "_entry": None, "_draw": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._find_code()
