"""How PyTensor's numba backend evaluates the operations of this package: it calls Python."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.basic import get_numba_type, numba_funcify, numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_dpgmm.distributions.operations import LabelsMixtureRV, NumbersOp


@numba_funcify.register(NumbersOp)
def _numba_numbers(op: NumbersOp, node: Apply, **_: Any) -> Callable[..., Any]:
    # PyMC joins the variables that one of its generic steps moves into one vector of this name.
    if any(variable.name == "joined_inputs" for variable in ancestors([node.inputs[0]])):
        raise NotImplementedError(
            "the labels of a Chinese restaurant process can only be sampled by the step methods of "
            "pymc_dpgmm (pm.sample assigns them by itself), not by pm.sample_smc, Metropolis or another "
            "generic step"
        )
    evaluate = op.evaluator()
    n_outputs = len(node.outputs)
    types = [get_numba_type(output.type) for output in node.outputs]
    returned = types[0] if n_outputs == 1 else numba.types.Tuple(types)

    def call(inputs: tuple[Any, ...]) -> Any:
        outputs = evaluate(*inputs)
        return outputs[0] if n_outputs == 1 else outputs

    @numba_njit
    def numbers(*inputs):  # noqa: ANN002
        with numba.objmode(value=returned):
            value = call(inputs)
        return value

    return numbers


@numba_core_rv_funcify.register(LabelsMixtureRV)
def _numba_draw(op: LabelsMixtureRV, node: Apply) -> tuple[Callable[..., Any], None]:
    returned = numba.types.Array(numba.from_dtype(np.dtype(op.dtype)), op.ndim_supp, "C")

    def draw(rng: np.random.Generator, params: tuple[Any, ...]) -> np.ndarray:
        return np.ascontiguousarray(op.rng_fn(rng, *params, None), dtype=op.dtype)

    @numba_njit
    def core(rng, *params):  # noqa: ANN002
        with numba.objmode(value=returned):
            value = draw(rng, params)
        return value

    return core, None
