"""The PyMC face of a mixture: data given the labels of its rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import Distribution
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.tensor.rewriting.basic import register_canonicalize
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_dpgmm.distributions.missing_entries import MissingEntries
from pymc_dpgmm.distributions.models import unchanged_on_error
from pymc_dpgmm.distributions.observed import check_observed, count_missing
from pymc_dpgmm.distributions.operations import LabelsMixtureRV, MarginalLikelihoodOp, drawable
from pymc_dpgmm.distributions.partition_priors import PartitionRV, fixed_rows
from pymc_dpgmm.distributions.posterior_rows import PosteriorRowsRV, Witness
from pymc_dpgmm.distributions.records import add_record, stored
from pymc_dpgmm.families import FAMILIES, BaseMeasure, Family
from pymc_dpgmm.families.base_measure import is_variable
from pymc_dpgmm.families.counts import is_sparse


class CollapsedMixtureRV(LabelsMixtureRV):
    """Rows given labels, with the parameters of every cluster integrated out.

    Parameters
    ----------
    family : str
        Key of :data:`pymc_dpgmm.families.FAMILIES`.
    is_vector : bool
        Whether the value is (n,) in place of (n, 1).
    is_sparse : bool
        Whether the value is a table of the non-zeros: row index, column index and value.
    has_missing : bool
        Whether missing entries of the value (NaN) are unknowns: two inputs, their values and their positions.
    has_offset : bool
        Whether the mixture is that of the value less an offset, an input.
    has_data : bool
        Whether the observed data is the last input: draws of rows whose labels come from a posterior need it.
    n_columns : int
        Columns of the data, or of (n,) data, one.
    from_prior : bool
        Whether random draws come from the prior. Drawing rows anew from the prior given labels that were inferred
        from data would silently give nonsense, so by default drawing is refused; a rewrite replaces this op where
        it is known what to draw.

    Attributes
    ----------
    witness : Witness
        What data the labels were last sampled with.
    """

    name = "CollapsedMixture"
    dtype = "float64"
    __props__ = (
        "name",
        "signature",
        "dtype",
        "inplace",
        "family",
        "is_vector",
        "is_sparse",
        "has_missing",
        "has_offset",
        "has_data",
        "from_prior",
        "n_columns",
    )
    _print_name = ("CollapsedMixture", "\\operatorname{CollapsedMixture}")

    def __init__(
        self,
        family: str = "NormalInverseWishart",
        is_vector: bool = False,
        is_sparse: bool = False,
        has_missing: bool = False,
        has_offset: bool = False,
        has_data: bool = False,
        from_prior: bool = False,
        n_columns: int = 1,
        **kwargs: Any,
    ) -> None:
        self.family = family
        self.is_vector = is_vector
        self.is_sparse = is_sparse
        self.has_missing = has_missing
        self.has_offset = has_offset
        self.has_data = has_data
        self.from_prior = from_prior
        self.n_columns = n_columns
        self.witness = Witness()
        axes = FAMILIES[family].axes.values()
        drawn = "n" if is_vector else "n,d"
        inputs = ["n", *(",".join(letters) for letters in axes)]
        inputs += ["n,g"] if FAMILIES[family].given else []
        inputs += ["m", "m"] if has_missing else []
        inputs += [drawn] if has_offset else []
        inputs += ["z,t" if is_sparse else drawn] if has_data else []
        kwargs["signature"] = ",".join(f"({letters})" for letters in inputs) + f"->({drawn})"
        super().__init__(**kwargs)

    def for_prior(self, inplace: bool = False) -> "CollapsedMixtureRV":
        """Return the op that draws from the prior."""
        return CollapsedMixtureRV(
            self.family,
            self.is_vector,
            self.is_sparse,
            self.has_missing,
            self.has_offset,
            self.has_data,
            from_prior=True,
            n_columns=self.n_columns,
            inplace=inplace,
        )

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: list[list[Any]]) -> None:
        # Graphs that are evaluated without rewrites, for their shapes, come here directly.
        drawn_anew = _draws_labels(of_units(node.inputs[2])[0])
        op = self.for_prior(inplace=self.inplace) if drawn_anew and not self.from_prior else self
        super(CollapsedMixtureRV, op).perform(node, inputs, outputs)

    def rng_fn(self, rng: np.random.Generator, labels: Any, *params: Any) -> np.ndarray:
        if not self.from_prior:
            raise NotImplementedError(
                "there are two kinds of draws of a mixture: from its prior, where all that it depends on is "
                "drawn anew, and from its posterior predictive, where its labels are taken from draws, given its "
                "observed data. Here labels are neither: they were fixed by pm.do or pm.observe, or left out of "
                "the draws (var_names), or are to be drawn anew (sample_vars) while others are not"
            )
        *numbers, size = params
        if size:
            raise NotImplementedError("a collapsed mixture has no batch dimensions")
        family = FAMILIES[self.family]
        parts = split_inputs(self, [rng, size, labels, *numbers])
        drawn = drawable(family, parts.params)
        given = parts.given[0] if parts.given else np.empty((len(labels), 0))
        rows = family.draw_rows(rng, drawn, np.asarray(labels), np.asarray(given))
        rows = rows[:, 0] if self.is_vector else rows
        return rows + parts.offset[0] if parts.offset else rows


def _draws_labels(labels: Variable) -> bool:
    return labels.owner is not None and isinstance(labels.owner.op, PartitionRV)


@register_canonicalize("fast_compile")
@node_rewriter([CollapsedMixtureRV])
def draw_rows(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Let a mixture draw from its prior, or given labels and data, as the graph tells.

    Where its labels come from outside they are those of a posterior; where they are drawn in the graph, and
    nothing else comes from outside, everything is drawn from the prior.
    """
    op, (labels, _) = node.op, of_units(node.inputs[2])
    if op.from_prior:
        return None
    given = [variable for variable in fgraph.inputs if not isinstance(variable, SharedVariable)]
    if _draws_labels(labels) and not given:
        return op.for_prior(inplace=op.inplace).make_node(*node.inputs).outputs
    if labels not in given or not op.has_data:
        return None
    parts = split_inputs(op, node.inputs)
    (data,) = parts.data
    values = mixture_values(op, data.astype("float64"), parts)
    behind = {a.name: a for a in ancestors(node.inputs[2:]) if a.owner is None and a.name in op.witness.values}
    posterior = PosteriorRowsRV(
        op.family,
        op.is_vector,
        op.is_sparse,
        op.has_offset,
        d=op.n_columns,
        seen=tuple((name, a.ndim) for name, a in behind.items()),
        witness=op.witness,
    )
    drawn = posterior(
        parts.labels,
        *parts.params,
        values,
        *parts.offset,
        *behind.values(),
        rng=node.inputs[0],
        return_next_rng=True,
    )
    return [drawn[0], pt.specify_shape(drawn[1], node.outputs[1].type.shape)]


class CollapsedMixture(Distribution):
    """Data given the labels of its rows, with every cluster's parameters integrated out.

    The log density is the sum over clusters of the base measure's log marginal likelihood of their rows. Its
    gradient in the base measure's parameters, and in the rows where they may be latent, is exact. Several mixtures
    on the same labels are several views of the same rows.

    Parameters
    ----------
    name : str
    labels : (n,) integer variable
        Such as a :class:`CRP`. Several rows of one unit that must share a cluster have the labels
        ``labels[unit]``, where ``unit`` (n,) are numbers that tell the unit of each row.
    base : BaseMeasure
    observed : (n,) or (n, d) array_like, pandas object or pm.Data, optional
    shape : tuple of int, optional
        (n,) or (n, d), for a latent mixture.
    offset : scalar, (n,) or (n, d) array_like or variable, optional
        What is subtracted from the rows before they are clustered, such as the mean of a regression. For
        matrices also (1, d) or (n, 1). For families of reals only.
    impute : bool
        Whether missing entries are drawn, as the variable ``{name}_missing``, also where they would integrate out.
        Those of a normal-inverse-Wishart are drawn in any case; families of other than Gaussian data cannot.
    dims : tuple of str, optional

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range.
    """

    rv_type = CollapsedMixtureRV

    def __new__(
        cls,
        name: str,
        labels: Any,
        base: BaseMeasure,
        *,
        observed: Any = None,
        shape: Sequence[int] | None = None,
        offset: Any = None,
        impute: bool = False,
        **kwargs: Any,
    ) -> Any:
        model = pm.modelcontext(kwargs.get("model"))
        with unchanged_on_error(model):
            _check_base(base)
            if offset is not None:
                kwargs["offset"] = offset
            names = _names_in(observed, base)
            if observed is None:
                if not base.family.has_data_gradient:
                    raise ValueError(f"{type(base).__name__} describes observed data only, but none is given")
            else:
                checked = check_observed(observed, base)
                if shape is not None and tuple(np.atleast_1d(shape)) != checked.values.shape:
                    raise ValueError(f"shape is {shape}, but observed has shape {checked.values.shape}")
                shape, observed = checked.values.shape, checked.data
                base.check_shape(shape)
                given = base.given_columns(shape, checked.values if is_sparse(checked.values) else observed)
                family = _family_for(base, checked.values, impute)
                if count_missing(checked.values) and family.draws_missing:
                    kwargs["missing"] = MissingEntries(f"{name}_missing", checked.values)
                if not is_variable(observed):
                    # PyMC would impute what is missing in an array.
                    observed = pt.constant(observed)
                _check_with_given(base, family, checked.values, given)
                kwargs |= {
                    "given": given,
                    "is_sparse": is_sparse(checked.values),
                    "data": observed,
                    "family": family,
                }
            mixture = super().__new__(cls, name, labels, base, observed=observed, shape=shape, **kwargs)
            _add_record(model, mixture, shape, base, offset, names)
            mixture.owner.op.witness.see(mixture.owner.inputs[2:])
            return mixture

    @classmethod
    def rv_op(cls, labels: Any, *params: Any, op: CollapsedMixtureRV, size: Any = None, rng: Any = None) -> Any:
        """Make the random variable."""
        rng = pt.random.shared_rng(seed=None) if rng is None else rng
        return op(labels, *params, size=size, rng=rng, return_next_rng=True)[1]

    @classmethod
    def dist(
        cls,
        labels: Any,
        base: BaseMeasure,
        shape: Any = None,
        given: Any = None,
        is_sparse: bool = False,
        offset: Any = None,
        missing: Any = None,
        data: Any = None,
        family: Any = None,
        **kwargs: Any,
    ) -> Any:
        labels = pt.as_tensor(labels)
        if labels.ndim != 1 or labels.dtype not in pm.vartypes.discrete_types:
            raise TypeError(
                f"labels must be a vector of integers, got {labels.dtype} with {labels.ndim} dimensions"
            )
        _check_base(base)
        if shape is None or len(shape) not in (1, 2):
            raise ValueError(f"a collapsed mixture needs shape=(n,) or (n, d), got {shape}")
        is_vector = len(shape) == 1
        base.check_shape(shape)
        _check_rows(labels, shape)
        lengths = base.lengths(1 if is_vector else int(shape[1]))
        params = [
            pt.broadcast_to(
                pt.as_tensor(base.parameters[field], dtype="float64"), tuple(lengths[c] for c in letters)
            )
            for field, letters in base.family.axes.items()
        ]
        inputs = [labels, *params]
        if base.family.given:
            inputs.append(_joined(base.given_columns(shape) if given is None else given))
        if missing is not None:
            inputs += [missing, pt.constant(np.flatnonzero(np.isnan(data.data)))]
        if offset is not None:
            inputs.append(_checked_offset(offset, base, shape, data))
        if data is not None:
            inputs.append(data)
        op = CollapsedMixtureRV(
            (family or base.family).name,
            is_vector,
            is_sparse,
            has_missing=missing is not None,
            has_offset=offset is not None,
            has_data=data is not None,
            n_columns=1 if is_vector else int(shape[1]),
        )
        return super().dist(inputs, op=op, **kwargs)


def _add_record(
    model: pm.Model, mixture: Any, shape: Any, base: BaseMeasure, offset: Any, names: dict[str, Any]
) -> None:
    """Store what the draws of a mixture are to be read with."""
    op, name = mixture.owner.op, mixture.name
    inputs = split_inputs(op, mixture.owner.inputs)
    labels, unit = of_units(inputs.labels)
    add_record(
        model,
        name,
        {
            "labels": labels.name if model.named_vars.get(labels.name) is labels else None,
            "family": op.family,
            "parameters": {
                field: stored(model, value, f"{name}_{field}") for field, value in base.parameters.items()
            },
            "given": {field: stored(model, value) for field, value in base.given.items()},
            "has_unit": unit is not None,
            "unit": None if unit is None else stored(model, unit),
            "has_offset": op.has_offset,
            "offset": None if offset is None else stored(model, offset),
            "missing": inputs.missing[0].name if inputs.missing else None,
            "rows": int(shape[0]) if not inputs.data or isinstance(inputs.data[0], Constant) else None,
            "columns": 1 if op.is_vector else int(shape[1]),
            "is_sparse": op.is_sparse,
            "is_vector": op.is_vector,
        }
        | names,
    )


def _names_in(observed: Any, base: BaseMeasure) -> dict[str, Any]:
    """Return the names that a pandas object has for a column without dims, and for categories."""
    categories, name = base.categories(observed), getattr(observed, "name", None)
    return {
        "categories": categories and [own and [str(value) for value in own] for own in categories],
        "column": name if isinstance(observed, pd.Series) and isinstance(name, str) else None,
    }


def _check_base(base: Any) -> None:
    if not isinstance(base, BaseMeasure):
        raise TypeError(
            f"base must be a base measure such as dp.NormalInverseWishart(...), got {type(base).__name__}"
        )


def _checked_offset(offset: Any, base: BaseMeasure, shape: Sequence[int], data: Any) -> Any:
    """Return an offset as a variable of the shape of the rows, which may change where they are pm.Data."""
    if not base.family.has_data_gradient:
        raise ValueError(f"{type(base).__name__} takes no offset: its data are not real numbers")
    if not is_variable(offset):
        offset = np.asarray(offset)
        if offset.dtype.kind not in "biuf":
            raise TypeError(f"offset must be real numbers or a variable, got dtype {offset.dtype}")
        if not np.all(np.isfinite(offset)):
            raise ValueError("offset must be finite, got NaN or infinite values")
    offset = pt.as_tensor(offset).astype("float64")
    if offset.ndim not in (0, len(shape)):
        raise ValueError(
            f"offset must be a scalar or have {len(shape)} dimensions like the data, got {offset.ndim}"
        )
    lengths = zip(offset.type.shape, shape[-offset.ndim :] if offset.ndim else (), strict=True)
    if any(own not in (None, 1, int(wanted)) for own, wanted in lengths):
        raise ValueError(f"offset has shape {offset.type.shape}, but the data has shape {tuple(shape)}")
    return pt.broadcast_to(offset, data.shape if is_variable(data) else tuple(shape))


def _family_for(base: BaseMeasure, values: Any, impute: bool) -> Family:
    """Return the family for data, which may have missing entries that are to be drawn."""
    n_missing = count_missing(values)
    if n_missing == 0 or (base.family.draws_missing and (impute or base.family.incomplete is None)):
        return base.family
    if impute and base.family.incomplete is not None:
        raise ValueError(
            f"missing entries of {type(base).__name__} integrate out and cannot be drawn; leave out impute=True"
        )
    if base.family.incomplete is None:
        raise ValueError(
            f"observed has {n_missing} missing entries (NaN), which {type(base).__name__} does not take"
        )
    return base.family.incomplete


def _check_with_given(base: BaseMeasure, family: Family, values: Any, given: Sequence[Any]) -> None:
    """Raise ValueError where data and what is given with it are not of the family's kind, as far as is known."""
    if is_sparse(values):
        base.check_values(values, family)
        return
    if any(is_variable(column) for column in given):
        return
    columns = [values.reshape(len(values), -1), *given]
    base.check_values(_joined(columns), family)


def _check_rows(labels: Variable, shape: Sequence[int]) -> None:
    """Raise ValueError where labels of a known number are not as many as the data has rows."""
    labels, unit = of_units(labels)
    if unit is not None:
        if isinstance(unit, Constant) and unit.data.shape != (int(shape[0]),):
            raise ValueError(f"{unit.data.size} rows have a unit, but the data has {shape[0]} rows")
        return
    if labels.owner is None or not isinstance(labels.owner.op, PartitionRV):
        return
    n = fixed_rows(labels)
    if n is not None and n != int(shape[0]):
        raise ValueError(f"the labels {labels.name} are for n = {n} rows, but the data has {shape[0]}")


def _joined(columns: Sequence[Any]) -> Any:
    if any(is_variable(column) for column in columns):
        return pt.concatenate([pt.as_tensor(column).astype("float64") for column in columns], axis=1)
    return np.concatenate(columns, axis=1)


class MixtureInputs(NamedTuple):
    """Inputs of a mixture's node, or their values: ``given``, ``offset`` and ``data`` are lists of one or none.

    ``missing`` is a list of the values and of the positions of missing entries, or empty.
    """

    labels: Any
    params: Sequence[Any]
    given: Sequence[Any]
    missing: Sequence[Any]
    offset: Sequence[Any]
    data: Sequence[Any]


def split_inputs(op: CollapsedMixtureRV, inputs: Sequence[Any]) -> MixtureInputs:
    """Tell the inputs of a mixture's node apart."""
    _, _, labels, *others = inputs
    n_params = len(FAMILIES[op.family].axes)
    params, rest = others[:n_params], others[n_params:]
    ends = np.cumsum([bool(FAMILIES[op.family].given), 2 * op.has_missing, op.has_offset])
    given, missing, offset, data = (rest[a:b] for a, b in zip([0, *ends], [*ends, None], strict=True))
    return MixtureInputs(labels, params, given, missing, offset, data)


def of_units(labels: Variable) -> tuple[Variable, Variable | None]:
    """Return labels of units and the unit of each row, for labels of rows that are ``labels_of_units[unit]``.

    Other labels are returned as they are, with None.
    """
    node = labels.owner
    if node is None or not isinstance(node.op, AdvancedSubtensor) or len(node.inputs) != 2:
        return labels, None
    return node.inputs[0], node.inputs[1]


def mixture_values(op: CollapsedMixtureRV, value: Any, inputs: MixtureInputs) -> Any:
    """Return data less its offset, and what is given with its rows, as one matrix: (n, c). Triplets stay alone."""
    if op.is_sparse:
        return value
    if inputs.missing:
        entries, positions = inputs.missing
        value = pt.set_subtensor(value.ravel()[positions], entries).reshape(value.shape)
    for offset in inputs.offset:
        value = value - offset
    columns = value[:, None] if op.is_vector else value
    return pt.concatenate([columns, *inputs.given], axis=1) if inputs.given else columns


def mixture_logp(op: CollapsedMixtureRV, values: Any, *inputs: Any, **_: Any) -> Any:
    """Log density of a collapsed mixture, for PyMC."""
    parts = split_inputs(op, inputs)
    rows = mixture_values(op, values[0], parts)
    return MarginalLikelihoodOp(op.family, op.is_sparse)(parts.labels, rows, *parts.params)


def mixture_support_point(op: CollapsedMixtureRV, rv: Any, *inputs: Any) -> Any:
    """Start of a latent mixture: a draw of its prior given the labels it starts from."""
    return op.for_prior().make_node(*inputs).outputs[1]
