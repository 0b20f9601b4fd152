"""How PyTensor's backends evaluate the operations of this package: numba calls Python, and JAX is refused.

This is the only module that imports from ``pytensor.link``, which is no public interface. Where that changes,
``tests/test_internals.py`` fails. The module is imported when the first graph is built, and not with the package,
because PyTensor's backends take long to import.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from pytensor.compile.mode import get_mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.link.jax.linker import JAXLinker
from pytensor.link.numba.dispatch.basic import get_numba_type, numba_funcify, numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_dpgmm.distributions.atoms import SampledValueOp
from pymc_dpgmm.distributions.operations import LabelsMixtureRV, NumbersOp
from pymc_dpgmm.pymc_internals import JOINED_INPUTS

NO_JAX = "pymc_dpgmm does not support the JAX backend; use the default backend of pm.sample"


@numba_funcify.register(NumbersOp)
def numba_numbers(op: NumbersOp, node: Apply, **_: Any) -> Callable[..., Any]:
    """Return compiled code that calls the evaluator of an operation."""
    if any(variable.name == JOINED_INPUTS for variable in ancestors([node.inputs[0]])):
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


@numba_funcify.register(SampledValueOp)
def numba_sampled_value(op: SampledValueOp, node: Apply, **_: Any) -> Callable[..., Any]:
    """Return compiled code that returns its input."""

    @numba_njit
    def same(value):
        return value

    return same


@numba_core_rv_funcify.register(LabelsMixtureRV)
def numba_draw(op: LabelsMixtureRV, node: Apply) -> tuple[Callable[..., Any], None]:
    """Return compiled code that calls the draws of a random variable, and no key to keep it on disk under."""
    returned = numba.types.Array(numba.from_dtype(np.dtype(op.dtype)), op.ndim_supp, "C")

    def draw(rng: np.random.Generator, params: tuple[Any, ...]) -> np.ndarray:
        return np.ascontiguousarray(op.rng_fn(rng, *params, None), dtype=op.dtype)

    @numba_njit
    def core(rng, *params):  # noqa: ANN002
        with numba.objmode(value=returned):
            value = draw(rng, params)
        return value

    return core, None


def check_mode(mode: Any) -> None:
    """Raise NotImplementedError where a compilation mode is that of JAX."""
    if isinstance(get_mode(mode).linker, JAXLinker):
        raise NotImplementedError(NO_JAX)


def refuse_jax() -> None:
    """Say in words that there is no JAX version, where JAX is installed."""
    if importlib.util.find_spec("jax") is None:
        return
    from pytensor.link.jax.dispatch import jax_funcify

    def refuse(op: Op, **_: Any) -> Any:
        raise NotImplementedError(NO_JAX)

    jax_funcify.register(NumbersOp)(refuse)
    jax_funcify.register(LabelsMixtureRV)(refuse)


refuse_jax()
