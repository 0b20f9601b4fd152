"""How PyTensor's backends evaluate the operations of this package: numba mostly calls Python, and JAX is refused.

This is the only module that imports from ``pytensor.link``, which is no public interface. Where that changes,
``tests/integration/internals/test_internals.py`` fails. The module is imported when the first graph is built, and
not with the package, because PyTensor's backends take long to import.
"""

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.basic import (
    get_numba_type,
    numba_njit,
    register_funcify_and_cache_key,
)
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_dpgmm.integration.internals.callbacks import STAMP, callback_of_node, callback_of_operation
from pymc_dpgmm.integration.internals.modes import NO_JAX
from pymc_dpgmm.integration.internals.pymc_internals import JOINED_INPUTS
from pymc_dpgmm.integration.variables.atoms import FirstRowsOp, SampledValueOp
from pymc_dpgmm.integration.variables.operations import LabelsMixtureRV, NumbersOp, PartitionSizesOp
from pymc_dpgmm.integration.variables.rising import OfNumbers
from pymc_dpgmm.native import special
from pymc_dpgmm.native.fingerprints import digest

# From so many labels on, it takes longer to count them than to call Python and compare them with the last ones.
MANY_LABELS = 10_000


def _refuse_generic_steps(node: Apply) -> None:
    """Raise NotImplementedError if a generic step of PyMC, which joins its variables in an array, moves labels."""
    if any(variable.name == JOINED_INPUTS for variable in ancestors([node.inputs[0]])):
        raise NotImplementedError(
            "labels under a prior on partitions can only be sampled by the step methods of "
            "pymc_dpgmm (pm.sample assigns them by itself), not by pm.sample_smc, Metropolis or another "
            "generic step"
        )


@register_funcify_and_cache_key(NumbersOp)
def numba_numbers(op: NumbersOp, node: Apply, **_: Any) -> tuple[Callable[..., Any], str | None]:
    """Return compiled code that calls the evaluator of an operation, and its key on disk."""
    _refuse_generic_steps(node)
    evaluate, key = callback_of_node(node, partial(_evaluate, op.evaluator(node)))
    types = [get_numba_type(output.type) for output in node.outputs]
    returned = types[0] if len(types) == 1 else numba.types.Tuple(types)

    @numba_njit
    def numbers(*inputs):  # noqa: ANN002
        with numba.objmode(value=returned):
            value = evaluate(*inputs)
        return value

    return numbers, key


def _evaluate(evaluate: Callable[..., tuple[np.ndarray, ...]], *inputs: Any) -> Any:
    """Return the outputs of an operation for compiled code: a tuple, or a single output alone.

    They are copies: compiled code may write to these arrays, and an evaluator may keep its own.
    """
    outputs = tuple(map(np.array, evaluate(*inputs)))
    return outputs[0] if len(outputs) == 1 else outputs


@register_funcify_and_cache_key(PartitionSizesOp)
def numba_partition_sizes(
    op: PartitionSizesOp, node: Apply, **extra: Any
) -> tuple[Callable[..., Any], str | None]:
    """Return compiled code for the sizes of clusters, which every draw records, and its key on disk.

    For labels with constraints, and for many labels, the code calls Python, where the sizes are kept while labels
    stay as they are.
    """
    (n,) = node.inputs[0].type.shape
    if len(node.inputs) > 1 or (n is not None and n >= MANY_LABELS):
        return numba_numbers(op, node, **extra)
    _refuse_generic_steps(node)

    @numba_njit
    def sizes(labels):
        # No more of NumPy than this: each of its functions takes long to compile.
        n, n_clusters = labels.shape[0], 0
        cluster_of, counts = np.empty(n, np.int64), np.empty(n, np.int64)
        for i in range(n):
            cluster_of[i], counts[i] = -1, 0
        for i in range(n):
            label = labels[i]
            if label < 0 or label >= n:
                n_clusters = 0
                break
            if cluster_of[label] < 0:
                cluster_of[label] = n_clusters
                n_clusters += 1
            counts[cluster_of[label]] += 1
        return counts[:n_clusters]

    return sizes, f"{STAMP} PartitionSizesOp"


@register_funcify_and_cache_key(FirstRowsOp)
def numba_first_rows(op: FirstRowsOp, node: Apply, **extra: Any) -> tuple[Callable[..., Any], str | None]:
    """Return compiled code for the first row of every label, and its key on disk.

    For many labels the code calls Python, where the result is kept while labels stay as they are. A row whose
    label is out of range, so that the density is zero, is its own first row.
    """
    (n,) = node.inputs[0].type.shape
    if n is not None and n >= MANY_LABELS:
        return numba_numbers(op, node, **extra)
    _refuse_generic_steps(node)

    @numba_njit
    def first_rows(labels):
        n = labels.shape[0]
        first_of, found = np.empty(n, np.int64), np.empty(n, np.int64)
        for i in range(n):
            first_of[i] = -1
        for i in range(n):
            label = labels[i]
            found[i] = i
            if 0 <= label < n:
                if first_of[label] < 0:
                    first_of[label] = i
                found[i] = first_of[label]
        return found

    return first_rows, f"{STAMP} FirstRowsOp"


@register_funcify_and_cache_key(OfNumbers)
def numba_of_numbers(op: OfNumbers, node: Apply, **_: Any) -> tuple[Callable[..., Any], str]:
    """Return compiled code for a function of two numbers, and its key on disk."""
    function = type(op).numbers

    @numba_njit
    def of_numbers(x, m):
        return function(x, m)

    return of_numbers, f"{STAMP} {type(op).__name__} {digest(special.__file__)}"


@register_funcify_and_cache_key(SampledValueOp)
def numba_sampled_value(op: SampledValueOp, node: Apply, **_: Any) -> tuple[Callable[..., Any], str]:
    """Return compiled code that returns its input, and its key on disk."""

    @numba_njit
    def same(value):
        return value

    return same, f"{STAMP} SampledValueOp"


@numba_core_rv_funcify.register(LabelsMixtureRV)
def numba_draw(op: LabelsMixtureRV, node: Apply) -> tuple[Callable[..., Any], int | None]:
    """Return compiled code that calls the draws of a random variable, and None if it cannot be kept on disk."""
    returned = numba.types.Array(numba.from_dtype(np.dtype(op.dtype)), op.ndim_supp, "C")
    draw, key = callback_of_operation(op, partial(_draw, op))

    @numba_njit
    def core(rng, *params):  # noqa: ANN002
        with numba.objmode(value=returned):
            value = draw(rng, *params)
        return value

    # PyTensor takes a number as the key. It is made from the name, so that it changes with it.
    return core, None if key is None else int(key[-15:], base=16)


def _draw(op: LabelsMixtureRV, rng: np.random.Generator, *params: Any) -> np.ndarray:
    return np.ascontiguousarray(op.rng_fn(rng, *params, None), dtype=op.dtype)


def refuse_jax() -> None:
    """Make PyTensor raise an error that explains that there is no JAX version, if JAX is installed."""
    if importlib.util.find_spec("jax") is None:
        return
    from pytensor.link.jax.dispatch import jax_funcify

    def refuse(op: Op, **_: Any) -> Any:
        raise NotImplementedError(NO_JAX)

    jax_funcify.register(NumbersOp)(refuse)
    jax_funcify.register(LabelsMixtureRV)(refuse)


refuse_jax()
