"""Random variables for labels of rows in groups; see :mod:`pymc_dpgmm.partitions.grouped` for their priors."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply

from pymc_dpgmm.integration.variables.operations import LabelsMixtureRV, LabelsRV, NumbersOp, partition_sizes
from pymc_dpgmm.integration.variables.partition_arguments import (
    checked_number_of_components,
    checked_positive,
    checked_start,
    dtype_of_labels,
)
from pymc_dpgmm.integration.variables.partition_operations import RandomStartRV
from pymc_dpgmm.integration.variables.records import add_record, numbers, stored
from pymc_dpgmm.integration.variables.rising import log_rising
from pymc_dpgmm.partitions.grouped import (
    Groups,
    count_by_group,
    count_openers,
    draw_franchise,
    draw_labels_by_group,
    draw_openers,
    franchise,
)
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.sampler.state.marginal import same_values
from pymc_dpgmm.tables.checks import is_variable, without_dims
from pymc_dpgmm.tables.names import as_plain, coordinates
from pymc_dpgmm.tables.reading import factorized, names_of_axes
from pymc_dpgmm.tables.rows import order_of_columns


class _GroupsAt:
    """Groups from the vector of their numbers. The last groups are reused while the vector stays the same."""

    def __init__(self) -> None:
        self._given: Any = None
        self._groups: Any = None

    def __call__(self, group: np.ndarray, n_groups: int | None = None) -> Groups:
        if self._given is None or not same_values(group, self._given):
            self._given, self._groups = group.copy(), Groups(group, n_groups)
        return self._groups


class OpenersOp(NumbersOp):
    """Statistics of openers: the number of openers in each group (J,), and a term of their log density.

    The term is ``log_others`` of :class:`pymc_dpgmm.partitions.grouped.Openers`. The inputs are the openers, each
    row's group, and the number of groups.
    """

    __props__ = ()

    def make_node(self, openers: Any, group: Any, n_groups: Any) -> Apply:
        inputs = [pt.as_tensor(openers), pt.as_tensor(group), pt.as_tensor(n_groups)]
        return Apply(self, inputs, [pt.lvector(), pt.dscalar()])

    def evaluator(self, node: Apply) -> Callable[..., tuple[np.ndarray, ...]]:
        at = _GroupsAt()

        def evaluate(openers: np.ndarray, group: np.ndarray, n_groups: np.ndarray) -> tuple[np.ndarray, ...]:
            counts = count_openers(openers, at(group, int(n_groups)))
            return counts.tables, np.asarray(counts.log_others)

        return evaluate


class FranchiseOp(NumbersOp):
    """Statistics of labels given openers: numbers of openers in clusters (K,), and a term of the log density.

    The term is ``log_joined`` of :class:`pymc_dpgmm.partitions.grouped.Franchise`. The inputs are the labels, the
    openers and each row's group.
    """

    __props__ = ()

    def make_node(self, labels: Any, openers: Any, group: Any) -> Apply:
        inputs = [pt.as_tensor(labels), pt.as_tensor(openers), pt.as_tensor(group)]
        return Apply(self, inputs, [pt.lvector(), pt.dscalar()])

    def evaluator(self, node: Apply) -> Callable[..., tuple[np.ndarray, ...]]:
        at = _GroupsAt()

        def evaluate(labels: np.ndarray, openers: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, ...]:
            counts = franchise(labels, openers, at(group))
            return counts.tables, np.asarray(counts.log_joined)

        return evaluate


class GroupCountsOp(NumbersOp):
    """Numbers of rows by group and label: group, label and number of rows, for all pairs with rows.

    The inputs are the labels, each row's group, and the largest possible number of labels.
    """

    __props__ = ()

    def make_node(self, labels: Any, group: Any, n_labels: Any) -> Apply:
        inputs = [pt.as_tensor(labels), pt.as_tensor(group), pt.as_tensor(n_labels)]
        return Apply(self, inputs, [pt.lvector(), pt.lvector(), pt.lvector()])

    def evaluator(self, node: Apply) -> Callable[..., tuple[np.ndarray, ...]]:
        at = _GroupsAt()
        return lambda labels, group, n_labels: tuple(count_by_group(labels, at(group), int(n_labels)))


class OpenersRV(LabelsMixtureRV):
    """Openers: 1 for rows that open a table. The parameters are the groups' concentrations, and rows' groups."""

    name = "openers"
    signature = "(j),(n)->(n)"
    dtype = "int8"
    _print_name = ("Openers", "\\operatorname{Openers}")

    def make_node(self, rng: Any, size: Any, *dist_params: Any) -> Apply:
        if np.ndim(dist_params[0]) != self.ndims_params[0]:
            # One concentration for all groups.
            op = type(self)(dtype=self.dtype, inplace=self.inplace, signature="(),(n)->(n)")
            return op.make_node(rng, size, *dist_params)
        return super().make_node(rng, size, *dist_params)

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        return (dist_params[1].shape[0],)

    def rng_fn(self, rng: np.random.Generator, alpha: Any, group: Any, size: Any) -> np.ndarray:
        if not np.all(alpha > 0.0):
            raise ValueError(f"alpha must be > 0 in every group, got {alpha}")
        groups = Groups(group, len(alpha) if np.ndim(alpha) else None)
        return draw_openers(rng, np.broadcast_to(alpha, groups.n_groups), groups)


class GroupedLabelsRV(LabelsRV):
    """Labels of rows in groups. The last parameter is each row's group."""

    dtype = "int64"
    # Names of the parameters, all but the last.
    fields: tuple[str, ...]

    def _supp_shape_from_params(self, dist_params: Any, param_shapes: Any = None) -> Any:
        return (dist_params[-1].shape[0],)


class HDPLabelsRV(GroupedLabelsRV):
    """Labels from a hierarchical Dirichlet process, given the openers."""

    name = "HDP"
    fields = ("openers", "gamma")
    signature = "(n),(),(n)->(n)"
    _print_name = ("HDP", "\\operatorname{HDP}")

    def rng_fn(self, rng: np.random.Generator, openers: Any, gamma: Any, group: Any, size: Any) -> np.ndarray:
        if not gamma > 0.0:
            raise ValueError(f"gamma must be > 0, got {gamma}")
        return draw_franchise(rng, openers, float(gamma), Groups(group))


class GroupedFiniteRV(GroupedLabelsRV):
    """Labels of a finite mixture whose weights are symmetric Dirichlet in every group, up to permutations."""

    name = "GroupedFiniteDirichlet"
    fields = ("alpha", "n_components")
    signature = "(j),(),(n)->(n)"
    _print_name = ("GroupedFiniteDirichlet", "\\operatorname{GroupedFiniteDirichlet}")

    def rng_fn(self, rng: np.random.Generator, alpha: Any, m: Any, group: Any, size: Any) -> np.ndarray:
        weights = np.repeat(np.asarray(alpha)[:, None] / int(m), int(m), axis=1)
        labels = draw_labels_by_group(rng, weights, Groups(group, len(alpha)))
        # Labels must be below n, but there may be more components than rows.
        return canonical_labels(np.unique(labels, return_inverse=True)[1])[0]


class TopicLabelsRV(GroupedLabelsRV):
    """Labels that are numbers of topics, whose weights are Dirichlet in every group."""

    name = "Topics"
    fields = ("alpha",)
    signature = "(k),(n)->(n)"
    _print_name = ("Topics", "\\operatorname{Topics}")

    def rng_fn(self, rng: np.random.Generator, alpha: Any, group: Any, size: Any) -> np.ndarray:
        groups = Groups(group)
        return draw_labels_by_group(rng, np.broadcast_to(alpha, (groups.n_groups, len(alpha))), groups)


class _Openers(pm.Discrete):
    """Openers under a hierarchical Dirichlet process: 1 for rows that open a table."""

    rv_op = OpenersRV()

    @classmethod
    def dist(cls, alpha: Any, group: Any, **kwargs: Any) -> Any:
        kwargs.pop("shape", None)
        return super().dist([pt.as_tensor(alpha, dtype="float64"), pt.constant(group)], **kwargs)

    def logp(value: Any, alpha: Any, group: Any) -> Any:  # noqa: N805
        sizes = np.bincount(group.data)
        tables, log_others = OpenersOp()(value, group, pt.constant(len(sizes)))
        inside = pt.all(alpha > 0.0)
        # Outside the support, any valid number keeps the branch that is not taken finite.
        safe = pt.switch(inside, alpha, 1.0)
        # Groups at the end may have no rows.
        safe = safe[: len(sizes)] if safe.ndim else safe
        value = (tables * pt.log(safe) - log_rising(safe, sizes)).sum() + log_others
        return pt.switch(inside, value, -np.inf)


class _GroupedLabels(pm.Discrete):
    """Base class of priors on labels of rows in groups."""

    @classmethod
    def dist(cls, *params: Any, **kwargs: Any) -> Any:
        *parameters, group = params
        kwargs.pop("shape", None)
        dtype = dtype_of_labels(len(group))
        return super().dist([*map(pt.as_tensor, parameters), pt.constant(group)], dtype=dtype, **kwargs)


class HDPLabels(_GroupedLabels):
    """Labels from a hierarchical Dirichlet process, given the openers."""

    rv_op = HDPLabelsRV()

    def logp(value: Any, openers: Any, gamma: Any, group: Any) -> Any:  # noqa: N805
        tables, log_joined = FranchiseOp()(value, openers, group)
        inside = (gamma > 0.0) & (tables.shape[0] > 0)
        gamma = pt.switch(inside, gamma, 1.0)
        value = (
            tables.shape[0] * pt.log(gamma)
            - log_rising(gamma, tables.sum())
            + pt.gammaln(tables).sum()
            + log_joined
        )
        return pt.switch(inside, value, -np.inf)


class GroupedFiniteDirichlet(_GroupedLabels):
    """Labels of a finite mixture whose weights are symmetric Dirichlet in every group, up to permutations."""

    rv_op = GroupedFiniteRV()

    def logp(value: Any, alpha: Any, n_components: Any, group: Any) -> Any:  # noqa: N805
        m = pt.maximum(n_components, 1).astype("float64")
        n_clusters = partition_sizes(value).shape[0]
        inside = pt.all(alpha > 0.0) & (n_components >= 1) & (n_clusters > 0) & (n_clusters <= m)
        alpha = pt.switch(inside, alpha, 1.0)
        names = log_rising(pt.switch(inside, m - n_clusters, 0) + 1.0, n_clusters)
        within = _log_dirichlet_counts(value, (alpha / m)[:, None], alpha, group, value.shape[0])
        return pt.switch(inside, names + within, -np.inf)


class TopicLabels(_GroupedLabels):
    """Labels that are numbers of topics, whose weights are Dirichlet in every group."""

    rv_op = TopicLabelsRV()

    def logp(value: Any, alpha: Any, group: Any) -> Any:  # noqa: N805
        n_topics = alpha.shape[0]
        inside = pt.all(alpha > 0.0) & (value.min() >= 0) & (value.max() < n_topics)
        alpha = pt.switch(inside, alpha, 1.0)
        n_groups = int(group.data.max()) + 1
        total = pt.repeat(alpha.sum()[None], n_groups)
        within = _log_dirichlet_counts(value, alpha[None, :], total, group, n_topics)
        return pt.switch(inside, within, -np.inf)


def _log_dirichlet_counts(value: Any, parameters: Any, total: Any, group: Any, n_labels: Any) -> Any:
    r"""Log density of labels by group, with Dirichlet parameters (J or 1, K or 1) and their sums ``total`` (J,).

    .. math:: \prod_j \frac{\Gamma(A_j)}{\Gamma(A_j + n_j)}
        \prod_k \frac{\Gamma(a_{jk} + n_{jk})}{\Gamma(a_{jk})}
    """
    groups, labels, counts = GroupCountsOp()(value, group, n_labels)
    entries = parameters[
        groups if parameters.type.shape[0] != 1 else 0, labels if parameters.type.shape[1] != 1 else 0
    ]
    sizes = np.bincount(group.data)
    total = total[: len(sizes)]
    return log_rising(entries, counts).sum() - log_rising(total, sizes).sum()


def grouped_labels_support_point(op: GroupedLabelsRV, rv: Any, rng: Any, size: Any, *inputs: Any) -> Any:
    """Over-dispersed start of labels, for PyMC."""
    group = inputs[-1]
    most: Any = np.inf
    if isinstance(op, GroupedFiniteRV):
        most = inputs[1].astype("float64")
    if isinstance(op, TopicLabelsRV):
        most = inputs[0].shape[0].astype("float64")
    own_rng = pt.random.shared_rng(seed=None)
    return RandomStartRV()(most, group.shape[0], rng=own_rng, return_next_rng=True)[1]


def openers_support_point(op: OpenersRV, rv: Any, rng: Any, size: Any, alpha: Any, group: Any) -> Any:
    """Start of openers, for PyMC: every row opens a table, which is possible for any labels."""
    return pt.ones(group.shape, dtype="int8")


def group_of(labels: Any) -> np.ndarray:
    """Return the number of each row's group."""
    return np.asarray(labels.owner.op.dist_params(labels.owner)[-1].data)


class NamedGroups(NamedTuple):
    """The group of each row as a number (n,), and the names of the groups (J,)."""

    codes: np.ndarray
    names: np.ndarray


def numbered_groups(group: Any, n: int, observed: str = "observed") -> NamedGroups:
    """Return the groups of n rows, given an entry for each.

    Raises
    ------
    TypeError, ValueError
        If there is not one name or number for each row, or one is missing.
    """
    if is_variable(group):
        raise TypeError("group must be an array of names or numbers; variables and pm.Data are not supported")
    values = np.asarray(group)
    if values.shape != (n,):
        raise ValueError(
            f"group must have one entry for each row, shape ({n},) as {observed} has {n}, got {values.shape}"
        )
    if values.dtype.kind not in "biufOUSM":
        raise TypeError(f"group must be names or integers, got dtype {values.dtype}")
    if values.dtype.kind == "f" and not np.all(
        np.isnan(values) | (np.isfinite(values) & (values == np.floor(values)))
    ):
        raise TypeError("group must be names or integers, got fractional or infinite numbers")
    codes, names = factorized("group", values)
    if np.any(codes < 0):
        raise ValueError(f"group has {np.sum(codes < 0)} missing entries; every row belongs to a group")
    if names.dtype.kind == "f":
        names = names.astype(np.int64)
    return NamedGroups(codes.astype(np.int64), np.asarray(names))


def _checked_concentration(name: str, value: Any, n: int, of_what: str, names: Any = None) -> Any:
    """Return a concentration: positive, a scalar or one for each of n groups or topics in their order."""
    value, (own, *_) = without_dims(value), (*names_of_axes(value), None)
    if is_variable(value):
        if value.ndim > 1 or (value.ndim == 1 and value.type.shape[0] not in (None, n)):
            raise ValueError(
                f"{name} must be a scalar or have one entry for each of {n} {of_what}, got a variable of shape "
                f"{value.type.shape}"
            )
        if isinstance(value, SharedVariable) and value.ndim == 1 and len(value.get_value(borrow=True)) != n:
            raise ValueError(
                f"{name} must be a scalar or have one entry for each of {n} {of_what}, got "
                f"{len(value.get_value(borrow=True))} of {value.name}"
            )
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be real numbers or a variable, got {value!r}")
    if array.ndim > 1 or (array.ndim == 1 and len(array) != n):
        raise ValueError(
            f"{name} must be a scalar or have one entry for each of {n} {of_what}, got shape {array.shape}"
        )
    if not np.all((array > 0) & np.isfinite(array)):
        raise ValueError(f"{name} must be finite and > 0, got {value!r}")
    at = order_of_columns(name, own, names, f"the {of_what}")
    return (array if at is None else array[at]).astype(np.float64)


def _begin(name: str, groups: NamedGroups, known: Mapping[str, Any]) -> tuple[pm.Model, str]:
    """Add the names of the groups; return the model, and the name of the mixture that the labels are for."""
    for key, value in known.items():
        if value is not None:
            # Rows that share a cluster for certain are moved as a block, which scans by group cannot do.
            raise NotImplementedError(f"{key} is not supported together with groups")
    model, mixture = pm.modelcontext(None), name.removesuffix("_labels")
    model.add_coord(f"{mixture}_group", coordinates(groups.names))
    return model, mixture


def _start(initval: Any, groups: NamedGroups) -> Any:
    if initval is None or isinstance(initval, str):
        return initval
    return checked_start(initval, len(groups.codes)).astype(dtype_of_labels(len(groups.codes)))


def add_hdp_labels(
    name: str,
    *,
    alpha: Any,
    gamma: Any,
    groups: NamedGroups,
    dims: Any = None,
    initval: Any = None,
    **known: Any,
) -> Any:
    """Add labels from a hierarchical Dirichlet process, their openers, and the number of tables."""
    model, base = _begin(name, groups, known)
    alpha = _checked_concentration("alpha", alpha, len(groups.names), "groups", list(groups.names))
    gamma = checked_positive("gamma", gamma)
    for concentration in (alpha, gamma):
        if is_variable(concentration):
            concentration.tag.is_concentration = True
    openers = _Openers(f"{base}_openers", alpha, groups.codes, dims=dims)
    labels = HDPLabels(name, openers, gamma, groups.codes, dims=dims, initval=_start(initval, groups))
    pm.Deterministic(f"{base}_n_tables", openers.sum(dtype="int64"))
    _add_record(model, labels, groups, {"alpha": alpha, "gamma": gamma}, openers.name)
    return labels


def add_finite_labels(
    name: str,
    *,
    alpha: Any,
    n_components: Any,
    groups: NamedGroups,
    dims: Any = None,
    initval: Any = None,
    **known: Any,
) -> Any:
    """Add labels of a finite mixture with symmetric Dirichlet weights in every group."""
    model, _ = _begin(name, groups, known)
    alpha = _checked_concentration("alpha", alpha, len(groups.names), "groups", list(groups.names))
    n_components = checked_number_of_components(n_components)
    by_group = pt.broadcast_to(pt.as_tensor(alpha, dtype="float64"), (len(groups.names),))
    labels = GroupedFiniteDirichlet(
        name, by_group, n_components, groups.codes, dims=dims, initval=_start(initval, groups)
    )
    _add_record(model, labels, groups, {"alpha": alpha, "n_components": n_components})
    return labels


def add_topic_labels(
    name: str,
    *,
    alpha: Any,
    n_topics: int,
    groups: NamedGroups,
    dims: Any = None,
    initval: Any = None,
    **known: Any,
) -> Any:
    """Add labels that are numbers of topics, whose weights are Dirichlet in every group."""
    model, _ = _begin(name, groups, known)
    alpha = _checked_concentration("alpha", alpha, n_topics, "topics")
    if n_topics > len(groups.codes):
        raise ValueError(f"n_topics must be at most the number of tokens, {len(groups.codes)}, got {n_topics}")
    by_topic = pt.broadcast_to(pt.as_tensor(alpha, dtype="float64"), (n_topics,))
    labels = TopicLabels(name, by_topic, groups.codes, dims=dims, initval=_start(initval, groups))
    _add_record(model, labels, groups, {"alpha": alpha, "n_topics": n_topics})
    return labels


def _add_record(
    model: pm.Model, labels: Any, groups: NamedGroups, parameters: dict[str, Any], openers: str | None = None
) -> None:
    """Store the record of labels by group, with which their draws are read."""
    content = {
        "prior": labels.owner.op.name,
        "parameters": {
            field: stored(model, value, f"{labels.name}_{field}") for field, value in parameters.items()
        },
        "is_constrained": False,
        "group": numbers(groups.codes),
        "groups": [as_plain(name) for name in groups.names],
        "openers": openers,
    }
    add_record(model, labels.name, content)
