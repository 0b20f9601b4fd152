"""PyMC and PyTensor faces: the random variables of a mixture and their log-density graphs.

The numbers behind the graphs come from :mod:`pymc_dpgmm.kernels.marginal`. An ``Op`` here is a node that
calls them; it keeps no data. What is kept between two calls belongs to the compiled function.
"""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import Discrete, Distribution
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.basic import get_numba_type, numba_funcify, numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.rewriting.basic import register_canonicalize

from pymc_dpgmm.families import FAMILIES, BaseMeasure
from pymc_dpgmm.families.base_measure import is_variable
from pymc_dpgmm.kernels.marginal import MarginalLikelihood, PartitionSizes
from pymc_dpgmm.partitions import draw_crp, draw_start

NO_JAX = "pymc_dpgmm does not support the JAX backend; use the default backend of pm.sample"
# Labels of at most this many rows are stored in two bytes each.
_MOST_ROWS_INT16 = 32_767


def as_numbers(params: Sequence[Any]) -> Iterator[Any]:
    """Turn arrays into what a family's parameters hold: floats where they have no dimensions."""
    return (p.item() if p.ndim == 0 else p for p in map(np.asarray, params))


class NumbersOp(Op):
    """An ``Op`` whose value is computed from labels by an evaluator that keeps what it can reuse."""

    def evaluator(self) -> Callable[..., tuple[np.ndarray, ...]]:
        """Return a new function of the inputs' values that returns the outputs' values."""
        raise NotImplementedError

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        for storage, value in zip(output_storage, self.evaluator()(*inputs), strict=True):
            storage[0] = value


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


def _refuse_jax() -> None:
    """Say in words that there is no JAX version, where JAX is installed."""
    if importlib.util.find_spec("jax") is None:
        return
    from pytensor.link.jax.dispatch import jax_funcify

    def refuse(op: Op, **_: Any) -> Any:
        raise NotImplementedError(NO_JAX)

    jax_funcify.register(NumbersOp)(refuse)
    jax_funcify.register(CRPRV)(refuse)
    jax_funcify.register(CollapsedMixtureRV)(refuse)


class PartitionSizesOp(NumbersOp):
    """Sizes of the clusters of labels, in order of first appearance; empty if they are no partition."""

    __props__ = ()

    def make_node(self, labels: Any) -> Apply:
        return Apply(self, [pt.as_tensor(labels)], [pt.lvector()])

    def evaluator(self) -> Callable[..., tuple[np.ndarray, ...]]:
        sizes = PartitionSizes()
        return lambda labels: (sizes(labels),)


partition_sizes = PartitionSizesOp()


class _MarginalOp(NumbersOp):
    """Part of the log marginal likelihood of rows given labels; the input order is labels, rows, parameters."""

    __props__ = ("family",)

    def __init__(self, family: str) -> None:
        self.family = family

    def make_node(self, labels: Any, rows: Any, *params: Any) -> Apply:
        inputs = [
            pt.as_tensor(labels),
            pt.as_tensor(rows, dtype="float64", ndim=2),
            *(pt.as_tensor(param).astype("float64") for param in params),
        ]
        return Apply(self, inputs, self._outputs(inputs))

    def _outputs(self, inputs: list[Variable]) -> list[Variable]:
        raise NotImplementedError

    def _evaluate(self, likelihood: MarginalLikelihood, *arguments: Any) -> tuple[np.ndarray, ...]:
        raise NotImplementedError

    def evaluator(self) -> Callable[..., tuple[np.ndarray, ...]]:
        family = FAMILIES[self.family]
        likelihood = MarginalLikelihood(family)

        def evaluate(labels: np.ndarray, rows: np.ndarray, *params: np.ndarray) -> Any:
            numbers = family.params(*as_numbers(params))
            return self._evaluate(likelihood, labels, rows, numbers)

        return evaluate


class MarginalLikelihoodOp(_MarginalOp):
    """Log marginal likelihood of rows given labels: a scalar."""

    def _outputs(self, inputs: list[Variable]) -> list[Variable]:
        return [pt.dscalar()]

    def _evaluate(self, likelihood: MarginalLikelihood, *arguments: Any) -> tuple[np.ndarray, ...]:
        return (np.asarray(likelihood.value(*arguments)),)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[False]] + [[True]] * (len(node.inputs) - 1)

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], cotangents: Sequence[Variable]
    ) -> list[Variable]:
        (cotangent,) = cotangents
        gradients = ParameterGradientOp(self.family)(*inputs, return_list=True)
        rows = DataGradientOp(self.family)(*inputs)
        return [disconnected_type(), cotangent * rows, *(cotangent * g for g in gradients)]


class ParameterGradientOp(_MarginalOp):
    """Gradient of the log marginal likelihood in the parameters."""

    def _outputs(self, inputs: list[Variable]) -> list[Variable]:
        return [pt.TensorType("float64", (None,) * param.ndim)() for param in inputs[2:]]

    def _evaluate(self, likelihood: MarginalLikelihood, *arguments: Any) -> tuple[np.ndarray, ...]:
        return tuple(np.asarray(g, dtype=np.float64) for g in likelihood.gradient(*arguments))


class DataGradientOp(_MarginalOp):
    """Gradient of the log marginal likelihood in the rows."""

    def _outputs(self, inputs: list[Variable]) -> list[Variable]:
        return [pt.dmatrix()]

    def _evaluate(self, likelihood: MarginalLikelihood, *arguments: Any) -> tuple[np.ndarray, ...]:
        return (likelihood.data_gradient(*arguments),)


class LabelsMixtureRV(RandomVariable):
    """A random variable that draws in Python."""


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


class RandomStartRV(LabelsMixtureRV):
    """Over-dispersed starting labels: see :func:`pymc_dpgmm.partitions.draw_start`."""

    name = "random_start"
    signature = "()->(n)"
    dtype = "int64"

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        return (dist_params[0],)

    def rng_fn(self, rng: np.random.Generator, n: Any, size: Any) -> np.ndarray:
        return draw_start(rng, int(n))


class CRPRV(LabelsMixtureRV):
    """Labels of n rows from a Chinese restaurant process."""

    name = "CRP"
    signature = "(),()->(n)"
    dtype = "int64"
    _print_name = ("CRP", "\\operatorname{CRP}")

    def make_node(self, rng: Any, size: Any, *dist_params: Any) -> Apply:
        # Without a static shape, starting labels of the wrong length reach the step method, which names them.
        node = super().make_node(rng, size, *dist_params)
        drawn = pt.TensorType(self.dtype, (None,) * node.outputs[1].ndim)()
        return Apply(self, node.inputs, [node.outputs[0].type(), drawn])

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        return (dist_params[1],)

    def rng_fn(self, rng: np.random.Generator, alpha: Any, n: Any, size: Any) -> np.ndarray:
        if np.any(np.asarray(alpha) <= 0):
            raise ValueError(f"alpha must be > 0, got {alpha}")
        if size is None:
            return draw_crp(rng, float(alpha), int(n))
        alpha = np.broadcast_to(alpha, size)
        draws = np.empty((*size, int(np.ravel(n)[0])), dtype=np.int64)
        for index in np.ndindex(*size):
            draws[index] = draw_crp(rng, float(alpha[index]), draws.shape[-1])
        return draws


class CRP(Discrete):
    r"""Prior on partitions: the Chinese restaurant process.

    The value is a vector of labels, one per row; two rows are in one cluster if their labels agree.

    .. math:: p(\text{labels}) = \frac{\Gamma(\alpha)}{\Gamma(\alpha + n)} \alpha^K \prod_{k=1}^K \Gamma(n_k)

    (Ewens 1972; Antoniak 1974). The density is that of the partition, whatever names its clusters have, so any
    labels in 0..n-1 are allowed; others have density zero. Without a mixture on the labels, ``pm.sample``
    draws them from this prior.

    Parameters
    ----------
    name : str
    alpha : scalar or variable, > 0
        Concentration.
    n : int or variable, >= 1
        Number of rows.
    dims : str, optional
        Name of the labels' dimension.
    initval : (n,) integer array_like, optional
        Start of all chains. By default each chain starts from its own random partition, whose number of labels
        is log-uniform on 1..min(n, 50).

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range.
    """

    rv_op = CRPRV()

    def __new__(
        cls, name: str, alpha: Any, n: Any, *, dims: Any = None, initval: Any = None, **kwargs: Any
    ) -> Any:
        model = pm.modelcontext(kwargs.get("model"))
        _refuse_jax()
        if initval is not None and not isinstance(initval, str):
            initval = _checked_start(initval, n).astype(_checked_rows(n)[1])
        if is_variable(alpha):
            alpha.tag.is_concentration = True
            spread_starts(model, [alpha])
        return super().__new__(cls, name, alpha, n, dims=dims, initval=initval, **kwargs)

    @classmethod
    def dist(cls, alpha: Any, n: Any, **kwargs: Any) -> Any:
        alpha = _checked_concentration(alpha)
        n, dtype = _checked_rows(n)
        kwargs.pop("shape", None)
        return super().dist([alpha, n], dtype=dtype, **kwargs)

    def support_point(rv: Any, size: Any, alpha: Any, n: Any = None) -> Any:  # noqa: N805
        # PyMC leaves the size out where it is None.
        n = alpha if n is None else n
        return RandomStartRV()(n, rng=pt.random.shared_rng(seed=None), return_next_rng=True)[1]

    def logp(value: Any, alpha: Any, n: Any) -> Any:  # noqa: N805
        sizes = partition_sizes(value)
        allowed = (alpha > 0) & (sizes.shape[0] > 0)
        safe = pt.switch(alpha > 0, alpha, 1.0)
        logp = (
            sizes.shape[0] * pt.log(safe)
            + pt.gammaln(sizes.astype("float64")).sum()
            + pt.gammaln(safe)
            - pt.gammaln(safe + value.shape[0])
        )
        return pt.switch(allowed, logp, -np.inf)


class CollapsedMixtureRV(LabelsMixtureRV):
    """Rows given labels, with the parameters of every cluster integrated out.

    Parameters
    ----------
    family : str
        Key of :data:`pymc_dpgmm.families.FAMILIES`.
    is_vector : bool
        Whether the value is (n,) in place of (n, 1).
    from_prior : bool
        Whether random draws come from the prior. Drawing rows anew from the prior given labels that were inferred
        from data would silently give nonsense, so by default drawing is refused; where a graph draws the labels
        from their prior too, a rewrite sets this.
    """

    name = "CollapsedMixture"
    dtype = "float64"
    __props__ = ("name", "signature", "dtype", "inplace", "family", "is_vector", "from_prior")
    _print_name = ("CollapsedMixture", "\\operatorname{CollapsedMixture}")

    def __init__(
        self,
        family: str = "NormalInverseWishart",
        is_vector: bool = False,
        from_prior: bool = False,
        **kwargs: Any,
    ) -> None:
        self.family = family
        self.is_vector = is_vector
        self.from_prior = from_prior
        ndims = FAMILIES[family].ndims.values()
        params = ",".join("(" + ",".join("d" * ndim) + ")" for ndim in ndims)
        kwargs["signature"] = f"(n),{params}->(n)" if is_vector else f"(n),{params}->(n,d)"
        super().__init__(**kwargs)

    def drawing_op(self, node: Apply) -> "CollapsedMixtureRV":
        """Return the op that may draw at this place of a graph."""
        labels = node.inputs[2]
        if self.from_prior or labels.owner is None or not isinstance(labels.owner.op, CRPRV):
            return self
        return CollapsedMixtureRV(self.family, self.is_vector, from_prior=True, inplace=self.inplace)

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: list[list[Any]]) -> None:
        # Graphs that are evaluated without rewrites, for their shapes, come here directly.
        super(CollapsedMixtureRV, self.drawing_op(node)).perform(node, inputs, outputs)

    def rng_fn(self, rng: np.random.Generator, labels: Any, *params: Any) -> np.ndarray:
        if not self.from_prior:
            raise NotImplementedError(
                "draws of a collapsed mixture given labels from a posterior are not supported: only prior "
                "predictive draws, where the labels are drawn from their prior too"
            )
        *numbers, size = params
        if size:
            raise NotImplementedError("a collapsed mixture has no batch dimensions")
        family = FAMILIES[self.family]
        rows = family.draw_rows(rng, family.params(*as_numbers(numbers)), np.asarray(labels))
        return rows[:, 0] if self.is_vector else rows


@register_canonicalize("fast_compile")
@node_rewriter([CollapsedMixtureRV])
def draw_from_prior(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Let a mixture draw from its prior where its labels are drawn from theirs in the same graph."""
    prior_op = node.op.drawing_op(node)
    return None if prior_op is node.op else prior_op.make_node(*node.inputs).outputs


class CollapsedMixture(Distribution):
    """Data given the labels of its rows, with every cluster's parameters integrated out.

    The log density is the sum over clusters of the base measure's log marginal likelihood of their rows. Its
    gradient in the base measure's parameters, and in the rows, is exact.

    Parameters
    ----------
    name : str
    labels : (n,) integer variable
        Such as a :class:`CRP`.
    base : BaseMeasure
    observed : (n,) or (n, d) array_like, pandas object or pm.Data, optional
    shape : tuple of int, optional
        (n,) or (n, d), for a latent mixture.
    dims : tuple of str, optional

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range.
    """

    rv_type = CollapsedMixtureRV

    @classmethod
    def rv_op(
        cls, labels: Any, *params: Any, family: str, is_vector: bool, size: Any = None, rng: Any = None
    ) -> Any:
        """Make the random variable."""
        rng = pt.random.shared_rng(seed=None) if rng is None else rng
        op = CollapsedMixtureRV(family, is_vector)
        return op(labels, *params, size=size, rng=rng, return_next_rng=True)[1]

    @classmethod
    def dist(cls, labels: Any, base: BaseMeasure, shape: Any = None, **kwargs: Any) -> Any:
        labels = pt.as_tensor(labels)
        if labels.ndim != 1 or labels.dtype not in pm.vartypes.discrete_types:
            raise TypeError(
                f"labels must be a vector of integers, got {labels.dtype} with {labels.ndim} dimensions"
            )
        if not isinstance(base, BaseMeasure):
            raise TypeError(
                f"base must be a base measure such as dp.NormalInverseWishart(...), got {type(base).__name__}"
            )
        if shape is None or len(shape) not in (1, 2):
            raise ValueError(f"a collapsed mixture needs shape=(n,) or (n, d), got {shape}")
        is_vector = len(shape) == 1
        if is_vector and not base.family.takes_vector:
            raise ValueError(
                f"{type(base).__name__} needs data of shape (n, d), got {len(shape)} dimension; reshape it "
                "to (n, 1), or use NormalInverseGamma"
            )
        d = 1 if is_vector else int(shape[1])
        base.check_columns(d)
        params = [
            pt.broadcast_to(pt.as_tensor(base.parameters[field], dtype="float64"), (d,) * ndim)
            for field, ndim in base.family.ndims.items()
        ]
        return super().dist([labels, *params], family=base.family.name, is_vector=is_vector, **kwargs)


def _mixture_logp(op: CollapsedMixtureRV, values: Any, *inputs: Any, **_: Any) -> Any:
    (value,) = values
    _, _, labels, *params = inputs
    rows = value[:, None] if op.is_vector else value
    return MarginalLikelihoodOp(op.family)(labels, rows, *params)


def _mixture_support_point(op: CollapsedMixtureRV, rv: Any, *inputs: Any) -> Any:
    # A latent mixture starts from a draw of its prior given the labels it starts from.
    return CollapsedMixtureRV(op.family, op.is_vector, from_prior=True).make_node(*inputs).outputs[1]


def spread_starts(model: pm.Model, expressions: Sequence[Any]) -> None:
    """Let the free continuous variables behind expressions start from a different place in each chain.

    PyMC jitters starts only in models that NUTS samples alone. Variables for which the user gave a start keep it;
    the others start as NUTS would start them, uniformly within 1 of their support point in the space of the
    sampler, or from a draw of their prior where that depends on other variables.
    """
    behind = set(ancestors([e for e in expressions if is_variable(e)]))
    for rv in model.free_RVs:
        if rv not in behind or model.rvs_to_initial_values.get(rv) is not None:
            continue
        if rv.dtype not in pm.vartypes.continuous_types:
            continue
        start = pm.distributions.distribution.support_point(rv)
        if any(other in model.free_RVs for other in ancestors([start])):
            model.rvs_to_initial_values[rv] = "prior"
            continue
        transform = model.rvs_to_transforms[rv]
        inputs = rv.owner.inputs
        if any(other in model.free_RVs for other in ancestors(inputs)):
            model.rvs_to_initial_values[rv] = "prior"
            continue
        free = start if transform is None else transform.forward(start, *inputs)
        _, jitter = pt.random.uniform(
            -1.0, 1.0, size=free.shape, rng=pt.random.shared_rng(seed=None), return_next_rng=True
        )
        moved = free + jitter
        model.rvs_to_initial_values[rv] = moved if transform is None else transform.backward(moved, *inputs)


def _checked_concentration(alpha: Any) -> Any:
    if is_variable(alpha):
        if alpha.ndim != 0:
            raise ValueError(f"alpha must be a scalar, got a variable with {alpha.ndim} dimensions")
        return alpha
    value = np.asarray(alpha)
    if value.dtype.kind not in "biuf":
        raise TypeError(f"alpha must be a real number or a variable, got {alpha!r}")
    if value.ndim != 0 or not np.isfinite(value) or not value > 0:
        raise ValueError(f"alpha must be a finite number > 0, got {alpha!r}")
    return np.float64(value)


def _checked_rows(n: Any) -> tuple[Any, str]:
    """Return the number of rows and the dtype of their labels."""
    if is_variable(n):
        # The length of pm.Data may grow later.
        return n, "int32"
    if not isinstance(n, int | np.integer) or isinstance(n, bool):
        raise TypeError(f"n must be an integer or a variable, got {n!r}")
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    return int(n), "int16" if n <= _MOST_ROWS_INT16 else "int32"


def _checked_start(initval: Any, n: Any) -> Any:
    start = np.asarray(initval)
    if start.dtype.kind not in "iu":
        raise TypeError(f"initval of labels must be integers, got dtype {start.dtype}")
    if start.ndim != 1 or (not is_variable(n) and len(start) != n):
        raise ValueError(f"initval of labels must have shape ({n},), got {start.shape}")
    if start.size and (start.min() < 0 or start.max() >= len(start)):
        raise ValueError(
            f"initval of labels must lie in 0..n-1 = 0..{len(start) - 1}, got values from {start.min()} to "
            f"{start.max()}"
        )
    return start


def dependents(model: pm.Model, variable: Variable) -> list[Variable]:
    """Return the variables and potentials of a model whose own log density depends on a variable.

    A variable that depends on it only through another random variable is not among them.
    """
    random = set(model.basic_RVs)
    found = []
    for other in [*model.basic_RVs, *model.potentials]:
        if other is variable:
            continue
        roots = other.owner.inputs if other in random else [other]
        if variable in set(ancestors(roots, blockers=random - {other})):
            found.append(other)
    return found
