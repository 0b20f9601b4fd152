"""Random variables for a mixture of rows in chunks.

A model has no variable with a label for every row, because rows and labels are with the chunks. It has the number
of clusters instead, a scalar that only the step method of the package can change. With this number, the step sets
the sizes of the clusters and the sums of their rows, which are shared variables. The densities of the model are
computed from these.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable

from pymc_dpgmm.chunked.partition import ChunkedPartition
from pymc_dpgmm.chunked.passes import sums_table
from pymc_dpgmm.families import FAMILIES
from pymc_dpgmm.integration.variables.operations import LabelsMixtureRV, NumbersOp, as_numbers
from pymc_dpgmm.integration.variables.partition_operations import PartitionRV
from pymc_dpgmm.integration.variables.registered_labels import prior_parameters


class ChunkedClustersRV(LabelsMixtureRV):
    """The number of clusters of rows in chunks.

    The first parameter is the vector of cluster sizes. The others are the parameters of a prior on partitions.

    Parameters
    ----------
    prior : PartitionRV
    source : ChunkedSource
    """

    name = "ChunkedClusters"
    dtype = "int64"
    __props__ = ("name", "signature", "dtype", "inplace", "prior", "source")
    _print_name = ("ChunkedClusters", "\\operatorname{ChunkedClusters}")

    def __init__(self, prior: PartitionRV, source: "ChunkedSource", **kwargs: Any) -> None:
        self.prior, self.source = prior, source
        # The last parameter of the prior, the number of rows, is left out.
        parameters = prior.signature.partition("->")[0].rpartition(",")[0]
        super().__init__(**kwargs | {"signature": f"(k),{parameters}->()"})

    def rng_fn(self, rng: np.random.Generator, *params: Any) -> Any:
        raise NotImplementedError(
            "a mixture of rows in chunks has no prior predictive draws, and no replicates of rows: its labels are "
            "no variable of the model. For these, build the model with some of the rows: "
            "observed=array[:1000].compute()"
        )


def chunked_logp(
    op: ChunkedClustersRV, values: Any, rng: Any, size: Any, sizes: Any, *params: Any, **_: Any
) -> Any:
    """Log probability of the current partition of the step, from its cluster sizes, for PyMC.

    The value, the number of clusters, does not matter: the partition is in shared variables. It enters the graph
    only because PyMC requires that the density of a variable depends on its value.
    """
    (value,) = values
    return pt.switch(sampled_count(value) >= 1, op.prior.log_eppf(sizes, op.source.n, *params), -np.inf)


def chunked_support_point(op: ChunkedClustersRV, rv: Any, *inputs: Any) -> Any:
    """Start of the number of clusters: one."""
    return pt.constant(1, dtype="int64")


class SampledCountOp(NumbersOp):
    """Returns its input, a number of clusters; generic steps are refused in ``integration/hooks/backends.py``."""

    __props__ = ()

    def make_node(self, value: Any) -> Apply:
        return Apply(self, [pt.as_tensor(value)], [pt.lscalar()])

    def evaluator(self, node: Apply) -> Callable[..., tuple[np.ndarray, ...]]:
        return lambda value: (np.asarray(value, dtype=np.int64),)


sampled_count = SampledCountOp()


class ChunkedSource:
    """Rows and partition of a mixture of rows in chunks, which are no variables of the model.

    Parameters
    ----------
    rows : DaskRows
    partition : ChunkedPartition
        The partition with all rows in one cluster, from which chains start.
    sizes, sums : shared variables
        Sizes (K,) and sums (K, w) of the clusters of the current partition.
    """

    def __init__(self, rows: Any, partition: ChunkedPartition, sizes: Any, sums: Any) -> None:
        self.rows, self.partition, self.sizes, self.sums = rows, partition, sizes, sums
        self.n = rows.n

    def show(self, partition: ChunkedPartition) -> None:
        """Set the shared variables to those of a partition, at which the model's densities are then evaluated."""
        self.sizes.set_value(partition.sizes)
        self.sums.set_value(partition.sums)


class EvidenceOp(NumbersOp):
    """Log marginal likelihood of rows, given the sums of clusters: inputs are sums, origin and parameters."""

    __props__ = ("family", "n_columns")

    def __init__(self, family: str, n_columns: int) -> None:
        self.family, self.n_columns = family, n_columns

    def make_node(self, sums: Any, origin: Any, *params: Any) -> Apply:
        inputs = [pt.as_tensor(value).astype("float64") for value in (sums, origin, *params)]
        return Apply(self, inputs, self._outputs(inputs))

    def _outputs(self, inputs: list[Variable]) -> list[Variable]:
        return [pt.dscalar()]

    def evaluator(self, node: Apply) -> Callable[..., tuple[np.ndarray, ...]]:
        family = FAMILIES[self.family]

        def evaluate(sums: np.ndarray, origin: np.ndarray, *params: np.ndarray) -> tuple[np.ndarray, ...]:
            numbers = family.params(*as_numbers(params))
            if not family.supports(numbers):
                return self._outside(numbers)
            # An empty array stands for no origin.
            shift = origin if len(origin) else None
            table = sums_table(family, numbers, shift, self.n_columns, len(sums))
            table.array[: len(sums), : sums.shape[1]] = sums
            return self._evaluate(table, len(sums))

        return evaluate

    def _outside(self, params: Any) -> tuple[np.ndarray, ...]:
        return (np.asarray(-np.inf),)

    def _evaluate(self, table: Any, n_clusters: int) -> tuple[np.ndarray, ...]:
        return (np.asarray(table.total_log_evidence(n_clusters)),)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[False], [False]] + [[True]] * (len(node.inputs) - 2)

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], cotangents: Sequence[Variable]
    ) -> list[Variable]:
        (cotangent,) = cotangents
        gradients = EvidenceGradientOp(self.family, self.n_columns)(*inputs, return_list=True)
        return [disconnected_type(), disconnected_type(), *(cotangent * g for g in gradients)]


class EvidenceGradientOp(EvidenceOp):
    """Gradient of :class:`EvidenceOp` in the parameters."""

    def _outputs(self, inputs: list[Variable]) -> list[Variable]:
        return [pt.TensorType("float64", (None,) * param.ndim)() for param in inputs[2:]]

    def _outside(self, params: Any) -> tuple[np.ndarray, ...]:
        return tuple(np.zeros(np.shape(value)) for value in params)

    def _evaluate(self, table: Any, n_clusters: int) -> tuple[np.ndarray, ...]:
        gradients = table.family.params(**table.family.gradient(table.shifted, table.sums(0, n_clusters)))
        return tuple(np.asarray(g, dtype=np.float64) for g in gradients)


class ChunkedClusters(pm.Discrete):
    """Number of clusters of rows in chunks, under a prior on partitions: made by mixtures of dask data."""

    rv_type = ChunkedClustersRV

    @classmethod
    def dist(cls, labels: Any, source: ChunkedSource, **kwargs: Any) -> Any:
        """Make the variable. Of the labels only their prior is used."""
        op = ChunkedClustersRV(labels.owner.op, source)
        params = [source.sizes, *prior_parameters(labels).values()]
        return super().dist(params, op=op, **kwargs)

    @classmethod
    def rv_op(cls, *params: Any, op: ChunkedClustersRV, size: Any = None, rng: Any = None) -> Any:
        """Make the random variable."""
        rng = pt.random.shared_rng(seed=None) if rng is None else rng
        return op(*params, size=size, rng=rng, return_next_rng=True)[1]


def is_chunked_clusters(var: Any) -> bool:
    """Tell whether a variable is the number of clusters of rows in chunks."""
    return var.owner is not None and isinstance(var.owner.op, ChunkedClustersRV)


def chunked_names(model: pm.Model) -> list[str]:
    """Return the names of a model's variables that are numbers of clusters of rows in chunks."""
    return [str(rv.name) for rv in model.free_RVs if is_chunked_clusters(rv)]


def shared_state(value: np.ndarray, name: str) -> Any:
    """Return a shared variable for the state of a sampler, which does not count as data of the model."""
    shape = (None,) * value.ndim
    variable = pytensor.shared(value, name=name, shape=shape)
    variable.tag.is_state = True
    return variable
