"""PyTensor operations whose values are computed from labels, and random variables that draw in Python.

The values are computed by :mod:`pymc_dpgmm.sampler.state.marginal`. An ``Op`` here calls it, and keeps no data
itself: statistics that are reused from call to call belong to the compiled function.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.mode import optdb
from pytensor.gradient import disconnected_type, grad_undefined
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.features import ReplaceValidate
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.tensor.random.op import RandomVariable

from pymc_dpgmm.families import FAMILIES, Family
from pymc_dpgmm.families.shared.counts import from_triplets
from pymc_dpgmm.integration.internals import first_use
from pymc_dpgmm.sampler.state.marginal import MarginalLikelihood, MarginalLikelihoodAt, PartitionSizes, same_values


def as_numbers(params: Sequence[Any]) -> Iterator[Any]:
    """Turn arrays without dimensions into floats, as in a family's parameters; other arrays stay arrays."""
    return (p.item() if p.ndim == 0 else p for p in map(np.asarray, params))


def drawable(family: Family, params: Sequence[Any]) -> Any:
    """Return a family's parameters as numbers.

    Raises
    ------
    ValueError
        If they are outside their support, so that nothing can be drawn.
    """
    numbers = family.params(*as_numbers(params))
    if not family.supports(numbers):
        raise ValueError(
            f"the parameters of {family.name} are outside their support, so there is no draw: {numbers}"
        )
    return numbers


class BackendsOp(Op):
    """An ``Op`` that is registered with PyTensor's backends when the first graph is built or unpickled.

    It is not registered when the package is imported, because importing the backends takes long.
    """

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        first_use.begin(first_use.GRAPH)
        return super().__call__(*inputs, **kwargs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        first_use.begin(first_use.GRAPH)
        self.__dict__.update(state)


class NumbersOp(BackendsOp):
    """An ``Op`` whose value is computed in Python by an evaluator, which may reuse earlier results."""

    def evaluator(self, node: Apply) -> Callable[..., tuple[np.ndarray, ...]]:
        """Return a new function of the values of a node's inputs that returns those of its outputs."""
        raise NotImplementedError

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        for storage, value in zip(output_storage, self.evaluator(node)(*inputs), strict=True):
            storage[0] = value


class PartitionSizesOp(NumbersOp):
    """Sizes of the clusters of labels, in order of first appearance.

    Empty if labels are out of range, or violate the constraints, an optional second input.
    """

    __props__ = ()

    def make_node(self, labels: Any, *constraints: Any) -> Apply:
        return Apply(self, [pt.as_tensor(labels), *constraints], [pt.lvector()])

    def evaluator(self, node: Apply) -> Callable[..., tuple[np.ndarray, ...]]:
        sizes = PartitionSizes()
        return lambda labels, *constraints: (sizes(labels, *constraints),)


partition_sizes = PartitionSizesOp()


class SparseValues:
    """Sparse matrices from triplets. The last matrix is reused while the triplets stay the same."""

    def __init__(self) -> None:
        self._triplets = np.empty((0, 3))
        self._matrix: Any = None

    def __call__(self, triplets: np.ndarray, shape: tuple[int, int]) -> Any:
        """Return the matrix of triplets from :func:`pymc_dpgmm.families.shared.counts.as_triplets`."""
        if self._matrix is None or self._matrix.shape != shape or not same_values(triplets, self._triplets):
            self._matrix = from_triplets(triplets, shape)
            self._triplets = triplets.copy()
        return self._matrix


class _MarginalOp(NumbersOp):
    """Log marginal likelihood of values given labels, or a gradient of it. Inputs: labels, values, parameters."""

    __props__: tuple[str, ...] = ("family", "is_sparse")

    def __init__(self, family: str, is_sparse: bool = False) -> None:
        self.family = family
        self.is_sparse = is_sparse

    def make_node(self, labels: Any, values: Any, *params: Any) -> Apply:
        inputs = [
            pt.as_tensor(labels),
            pt.as_tensor(values, ndim=2).astype("float64"),
            *(pt.as_tensor(param).astype("float64") for param in params),
        ]
        return Apply(self, inputs, self._outputs(inputs))

    def _outputs(self, inputs: list[Variable]) -> list[Variable]:
        raise NotImplementedError

    def _evaluate(self, likelihood: MarginalLikelihoodAt) -> tuple[np.ndarray, ...]:
        raise NotImplementedError

    def evaluator(self, node: Apply) -> Callable[..., tuple[np.ndarray, ...]]:
        family = FAMILIES[self.family]
        likelihood = MarginalLikelihood(family, isinstance(node.inputs[1], Constant))
        sparse = SparseValues()

        def evaluate(labels: np.ndarray, values: np.ndarray, *params: np.ndarray) -> Any:
            numbers = family.params(*as_numbers(params))
            if self.is_sparse:
                values = sparse(values, (len(labels), len(numbers[0])))
            return self._evaluate(likelihood.at(labels, values, numbers))

        return evaluate


class MarginalLikelihoodOp(_MarginalOp):
    """Log marginal likelihood of values given labels: a scalar."""

    def _outputs(self, inputs: list[Variable]) -> list[Variable]:
        return [pt.dscalar()]

    def _evaluate(self, likelihood: MarginalLikelihoodAt) -> tuple[np.ndarray, ...]:
        return (np.asarray(likelihood.value()),)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[False]] + [[True]] * (len(node.inputs) - 1)

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], cotangents: Sequence[Variable]
    ) -> list[Variable]:
        (cotangent,) = cotangents
        gradients = ParameterGradientOp(self.family, self.is_sparse)(*inputs, return_list=True)
        if FAMILIES[self.family].has_data_gradient:
            values = cotangent * DataGradientOp(self.family)(*inputs)
        else:
            values = grad_undefined(self, 1, inputs[1], f"{self.family} is for observed data only")
        return [disconnected_type(), values, *(cotangent * g for g in gradients)]


class ParameterGradientOp(_MarginalOp):
    """Gradient of the log marginal likelihood in the parameters."""

    def _outputs(self, inputs: list[Variable]) -> list[Variable]:
        return [pt.TensorType("float64", (None,) * param.ndim)() for param in inputs[2:]]

    def _evaluate(self, likelihood: MarginalLikelihoodAt) -> tuple[np.ndarray, ...]:
        return tuple(np.asarray(g, dtype=np.float64) for g in likelihood.gradient())


class DataGradientOp(_MarginalOp):
    """Gradient of the log marginal likelihood in the values."""

    def _outputs(self, inputs: list[Variable]) -> list[Variable]:
        return [pt.dmatrix()]

    def _evaluate(self, likelihood: MarginalLikelihoodAt) -> tuple[np.ndarray, ...]:
        return (likelihood.data_gradient(),)


class JointOp(_MarginalOp):
    """Log marginal likelihood and gradients together, from the same inputs and the same statistics.

    Parameters
    ----------
    parts : tuple of _MarginalOp
        Operations of one family.
    """

    __props__ = (*_MarginalOp.__props__, "parts")

    def __init__(self, parts: tuple[_MarginalOp, ...]) -> None:
        super().__init__(parts[0].family, parts[0].is_sparse)
        self.parts = parts

    def _outputs(self, inputs: list[Variable]) -> list[Variable]:
        return [output for part in self.parts for output in part._outputs(inputs)]

    def _evaluate(self, likelihood: MarginalLikelihoodAt) -> tuple[np.ndarray, ...]:
        return tuple(value for part in self.parts for value in part._evaluate(likelihood))


class JoinMarginals(GraphRewriter):
    """Rewrite that evaluates value and gradients of a mixture's density in one node."""

    def add_requirements(self, fgraph: Any) -> None:
        fgraph.attach_feature(ReplaceValidate())

    def apply(self, fgraph: Any) -> None:
        """Join nodes of one family that have the same inputs."""
        alike: dict[Any, list[Apply]] = {}
        for node in fgraph.toposort():
            if isinstance(node.op, _MarginalOp) and not isinstance(node.op, JointOp):
                alike.setdefault((node.op.family, node.op.is_sparse, *node.inputs), []).append(node)
        for nodes in alike.values():
            if len(nodes) > 1:
                outputs = [output for node in nodes for output in node.outputs]
                joint = JointOp(tuple(node.op for node in nodes)).make_node(*nodes[0].inputs)
                fgraph.replace_all_validate(list(zip(outputs, joint.outputs, strict=True)), reason="JoinMarginals")


# The position is after the merging of equal nodes, and before rewrites to operations that work in place.
optdb.register("join_marginals", JoinMarginals(), "fast_run", position=49.2)


class LabelsMixtureRV(BackendsOp, RandomVariable):
    """A random variable that draws in Python."""


class LabelsRV(LabelsMixtureRV):
    """Labels of rows under a prior on partitions."""

    # Whether rows move between clusters whatever other rows do, so that the step of labels can draw them.
    are_free = True

    def make_node(self, rng: Any, size: Any, *dist_params: Any) -> Apply:
        # Without a static shape, starting labels of the wrong length reach the step method, which names them.
        node = super().make_node(rng, size, *dist_params)
        drawn = pt.TensorType(self.dtype, (None,) * node.outputs[1].ndim)()
        return Apply(self, node.inputs, [node.outputs[0].type(), drawn])
