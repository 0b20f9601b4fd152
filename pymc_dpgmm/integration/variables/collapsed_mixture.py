"""The random variable of a mixture: data given the labels of its rows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.rewriting.basic import register_canonicalize

from pymc_dpgmm.families import BaseMeasure, Family
from pymc_dpgmm.families.contract.base_measure import check_base, named_kinds
from pymc_dpgmm.integration.internals import first_use
from pymc_dpgmm.integration.variables.drawn_rows import PosteriorRowsRV, PriorRowsRV
from pymc_dpgmm.integration.variables.layout import Layout, MixtureInputs, mixture_inputs, of_units
from pymc_dpgmm.integration.variables.lengths import note_lengths
from pymc_dpgmm.integration.variables.missing_entries import MissingEntries
from pymc_dpgmm.integration.variables.models import unchanged_on_error
from pymc_dpgmm.integration.variables.named_rows import named_by_coords, rows_of
from pymc_dpgmm.integration.variables.observed import check_observed, count_missing, registered
from pymc_dpgmm.integration.variables.operations import LabelsMixtureRV, LabelsRV, MarginalLikelihoodOp
from pymc_dpgmm.integration.variables.partition_operations import PartitionRV
from pymc_dpgmm.integration.variables.records import add_record, amend_record, product, stored
from pymc_dpgmm.integration.variables.registered_labels import fixed_rows
from pymc_dpgmm.integration.variables.snapshots import Snapshot, last_sampled, snapshot
from pymc_dpgmm.tables.checks import is_sparse, is_variable, stacked, without_dims
from pymc_dpgmm.tables.names import as_plain, as_text
from pymc_dpgmm.tables.reading import read_table
from pymc_dpgmm.tables.rows import RowNames
from pymc_dpgmm.tables.table import Table


class CollapsedMixtureRV(LabelsMixtureRV):
    """Rows given labels, with the parameters of every cluster integrated out.

    Prior draws of rows given labels from a posterior would be silently wrong. This op therefore refuses to draw. A
    rewrite replaces it by an op that draws from the prior or the posterior predictive, where the graph shows
    which.

    Parameters
    ----------
    layout : Layout
        Description of its inputs.
    built : Snapshot
        The data with which it was built.
    """

    name = "CollapsedMixture"
    dtype = "float64"
    __props__ = ("name", "signature", "dtype", "inplace", "layout", "built")
    _print_name = ("CollapsedMixture", "\\operatorname{CollapsedMixture}")

    def __init__(self, layout: Layout, built: Snapshot, **kwargs: Any) -> None:
        self.layout = layout
        self.built = built
        super().__init__(**kwargs | {"signature": layout.signature()})

    def perform(self, node: Apply, inputs: Sequence[Any], outputs: list[list[Any]]) -> None:
        # Graphs that PyMC evaluates without rewrites, for their shapes, still have this op.
        params = self.dist_params(node)
        if _are_drawn(self.layout.split(params).labels) and not any(map(_is_from_outside, ancestors(params))):
            PriorRowsRV(self.layout, inplace=self.inplace).perform(node, inputs, outputs)
        else:
            super().perform(node, inputs, outputs)

    def rng_fn(self, rng: np.random.Generator, *params: Any) -> np.ndarray:
        raise NotImplementedError(
            "cannot draw this mixture: its labels, and the variables of its base measure and offset, are neither "
            "all drawn anew (prior predictive) nor all taken from the draws (posterior predictive). Usual causes "
            "and cures: Some of them were left out of the draws: sample again with the default var_names. "
            "They were fixed by pm.do or pm.observe: use dp.sample_new_rows, or known_labels= instead of observed "
            "labels. Or sample_vars has only some of them: leave it out"
        )


def _is_drawn(variable: Variable) -> bool:
    """Tell whether a variable is drawn within its graph."""
    return variable.owner is not None and isinstance(variable.owner.op, RandomVariable)


def _is_from_outside(variable: Variable) -> bool:
    """Tell whether a variable is an input of its graph."""
    return variable.owner is None and not isinstance(variable, Constant | SharedVariable)


def _are_drawn(labels: Variable) -> bool:
    """Tell whether labels of rows, or of the units of rows, are drawn within their graph."""
    drawn, _ = of_units(labels)
    return drawn.owner is not None and isinstance(drawn.owner.op, LabelsRV)


@register_canonicalize("fast_compile")
@node_rewriter([CollapsedMixtureRV])
def draw_rows(fgraph: Any, node: Apply) -> list[Variable] | None:
    """Replace a mixture by an op that draws from its prior, or by one that draws given labels and data.

    Labels that are inputs of the graph are posterior draws. If labels are drawn within the graph, and the graph
    has no other inputs, everything is drawn from the prior.
    """
    op = node.op
    inputs = op.layout.split(op.dist_params(node))
    from_outside = [variable for variable in fgraph.inputs if not isinstance(variable, SharedVariable)]
    if _are_drawn(inputs.labels) and not from_outside:
        return PriorRowsRV(op.layout, inplace=op.inplace).make_node(*node.inputs).outputs
    labels = of_units(inputs.labels)[0]
    if labels not in from_outside or inputs.data is None:
        return None
    if any(_is_drawn(variable) for variable in ancestors(inputs.beside_labels(), blockers=from_outside)):
        # Parameters, offsets or missing entries without posterior draws would be drawn from their prior.
        return None
    leaves = {a.name: a for a in ancestors(inputs.in_order()) if a.owner is None}
    known = {name: leaves[name] for name in last_sampled(op.built).values if name in leaves}
    posterior_inputs = MixtureInputs(
        inputs.labels,
        inputs.params,
        offset=inputs.offset,
        rows=mixture_values(op.layout, inputs.data.astype("float64"), inputs),
        behind=list(known.values()),
    )
    layout = op.layout.having(posterior_inputs)._replace(behind=tuple((name, a.ndim) for name, a in known.items()))
    posterior = PosteriorRowsRV(layout, op.built, (labels.name or "y").removesuffix("_labels"))
    next_rng, rows = posterior(*posterior_inputs.in_order(), rng=op.rng_param(node), return_next_rng=True)
    return [next_rng, pt.specify_shape(rows, node.outputs[1].type.shape)]


def is_plain_mixture(model: pm.Model, labels: Variable, other: Variable) -> bool:
    """Tell whether a variable is a mixture on labels of rows or units that depends on them in no other way."""
    if other not in model.basic_RVs or not isinstance(other.owner.op, CollapsedMixtureRV):
        return False
    inputs = mixture_inputs(other)
    mixture_labels, unit = of_units(inputs.labels)
    if mixture_labels is not labels or labels in set(ancestors(inputs.beside_labels(), blockers=model.basic_RVs)):
        return False
    return unit is None or not set(ancestors([unit])) & set(model.basic_RVs)


class CollapsedMixture(pm.Distribution):
    """Data given the labels of its rows, with the parameters of every cluster integrated out.

    The log density is the sum over clusters of the log marginal likelihood of their rows under the base measure.
    Its gradient in the parameters of the base measure, and in latent rows, is exact. Several mixtures on the same
    labels are several views of the same rows.

    Parameters
    ----------
    name : str
        Name of the mixture in the model.
    labels : (n,) integer variable
        The labels of the rows, for example a :class:`CRP`. If several rows of one unit must share a cluster, pass
        ``labels[unit]``, where ``unit`` (n,) holds the number of each row's unit.
    base : BaseMeasure
        Prior of the parameters of every cluster.
    observed : (n,) or (n, d) array_like, pandas object or pm.Data, optional
        The data. Without it, the mixture is latent.
    shape : int or tuple of int, optional
        Shape n, (n,) or (n, d) of a latent mixture.
    offset : scalar, (n,) or (n, d) array_like or variable, optional
        Subtracted from the rows before they are clustered, for example the mean of a regression. For matrices it
        may also be (1, d) or (n, 1). Only normal families without known errors, and regressions, take an offset.
    impute : bool
        Whether to draw missing entries, as the variable ``{name}_missing``, even if they could be integrated out.
        Its dimension ``{name}_missing_entry`` has the names of their rows and columns. Missing entries of a
        normal-inverse-Wishart, and of a shared covariance, are always drawn. Families of data that is not Gaussian
        cannot draw them.
    power : float, > 0
        The log density is multiplied by it. Below 1, the rows tell less of the labels than they would: so many
        covariates do not drown a response that other mixtures describe. This is a coarsened similarity in the
        terms of product partition models (Page and Quintana 2018). The rows must be observed. It bears on the
        labels alone: given these, the parameters of clusters, and replicates of the rows, are those of power 1. It
        is no density of rows, so that nothing is predicted from it but the cluster, and there is no LOO beside it.
    dims : tuple of str, optional
        Names of the dimensions of the data.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or outside its range.

    Examples
    --------
    Two views of the same rows:

    >>> import pymc as pm
    >>> import pymc_dpgmm as dp
    >>> with pm.Model() as model:
    ...     labels = dp.CRP("labels", alpha=1.0, n=4)
    ...     size = dp.CollapsedMixture(
    ...         "size", labels, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=[-2.0, -1.8, 2.1, 1.9]
    ...     )
    ...     sick = dp.CollapsedMixture("sick", labels, dp.BetaBernoulli(1.0, 1.0), observed=[0, 0, 1, 1])
    >>> together = model.compile_logp()({"labels": [0, 0, 0, 0]})
    >>> apart = model.compile_logp()({"labels": [0, 0, 1, 1]})
    >>> bool(apart > together)
    True
    """

    rv_type = CollapsedMixtureRV

    def __new__(
        cls,
        name: str,
        labels: Any,
        base: BaseMeasure,
        *,
        observed: Any = None,
        shape: Any = None,
        offset: Any = None,
        impute: bool = False,
        power: float = 1.0,
        **kwargs: Any,
    ) -> Any:
        model = pm.modelcontext(kwargs.get("model"))
        with unchanged_on_error(model):
            check_base(base)
            check_power(power, observed)
            if isinstance(shape, int | np.integer):
                shape = (int(shape),)
            rows = rows_of(model, labels, kwargs.get("dims"))
            table, columns = None, None
            if observed is not None:
                table = read_table(observed)
                if not table.is_checked:
                    of_data = model.named_vars_to_dims.get(getattr(table.variable, "name", None))
                    table = named_by_coords(model, table, kwargs.get("dims") or of_data)
                    table = rows.arrange(table)
                    base = base.in_order({"d": table.columns_of_matrix})
                    table = check_observed(table, base)
                columns = table.columns_of_matrix
            by_column = [field for field, letter in base.family.given.items() if letter == "d"]
            base = base.for_rows(rows, dict.fromkeys(by_column, columns))
            base = base.in_order(_names_of_axes(model, base, table, kwargs.get("dims")))
            offset = rows.numbers("offset", without_dims(stacked(offset)), columns)
            if offset is not None:
                kwargs["offset"] = offset
            if table is None:
                if not base.family.has_data_gradient:
                    raise ValueError(f"{type(base).__name__} describes observed data only, but none is given")
            else:
                if shape is not None and tuple(np.atleast_1d(shape)) != table.values.shape:
                    raise ValueError(f"shape is {shape}, but observed has shape {table.values.shape}")
                shape, observed = table.values.shape, registered(table)
                base.check_shape(shape)
                given_columns = base.given_columns(shape, table.values if table.is_sparse else observed)
                family = _family_for(base, table.values, impute)
                if count_missing(table.values) and family.draws_missing:
                    if power != 1.0:
                        raise ValueError(
                            f"{name} has missing entries, which {type(base).__name__} draws, and they have no law "
                            "under power=: leave these rows out, or use a family that integrates over them, such "
                            "as NormalInverseGamma"
                        )
                    entries = model.name_for(f"{name}_missing_entry")
                    model.add_coord(entries, _names_of_missing(model, table, rows, kwargs.get("dims")))
                    kwargs["missing"] = MissingEntries(f"{name}_missing", table.values, dims=entries)
                if not is_variable(observed):
                    # PyMC would impute missing entries of an array.
                    observed = pt.constant(observed)
                _check_with_given(base, family, table.values, given_columns)
                kwargs |= {
                    "given": given_columns,
                    "is_sparse": table.is_sparse,
                    "data": observed,
                    "family": family,
                    "power": float(power),
                }
            first_use.begin(first_use.MIXTURE)
            mixture = super().__new__(cls, name, labels, base, observed=observed, shape=shape, **kwargs)
            unit = of_units(mixture_inputs(mixture).labels)[1]
            note_lengths(
                mixture,
                {
                    "observed": None if table is None else table.in_model,
                    "offset": offset,
                    "unit": unit.data if isinstance(unit, Constant) else unit,
                    **base.given,
                },
            )
            _add_record(model, mixture, shape, base, offset, _names_in(table))
            if columns is not None and kwargs.get("dims") is None and not kwargs.get("is_sparse"):
                # Without a dimension of the model, results take the names of the columns from the record.
                named = {"column_dim": f"{name}_column", "columns_named": list(map(as_text, columns))}
                amend_record(model, name, named)
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
        power: float = 1.0,
        **kwargs: Any,
    ) -> Any:
        labels = pt.as_tensor(labels)
        if labels.ndim != 1 or labels.dtype not in pm.vartypes.discrete_types:
            raise TypeError(
                f"labels must be a vector of integers, got {labels.dtype} with {labels.ndim} dimensions"
            )
        check_base(base)
        if np.ndim(shape) != 1 or len(shape) not in (1, 2):
            raise ValueError(f"a collapsed mixture needs shape=(n,) or (n, d), got {shape}")
        is_vector = len(shape) == 1
        base.check_shape(shape)
        _check_rows(labels, shape)
        lengths = base.lengths(1 if is_vector else int(shape[1]))
        params = [
            of_shape(base.parameters[field], tuple(lengths[c] for c in letters))
            for field, letters in base.family.axes.items()
        ]
        inputs = MixtureInputs(
            labels,
            params,
            given=_joined(base.given_columns(shape) if given is None else given) if base.family.given else None,
            missing=missing,
            positions=None if missing is None else pt.constant(np.flatnonzero(np.isnan(data.data))),
            offset=None if offset is None else _checked_offset(offset, base, shape, data),
            data=data,
        )
        family_name = (family or base.family).name
        n_columns = 1 if is_vector else int(shape[1])
        layout = Layout(family_name, n_columns, is_vector, is_sparse, power=power).having(inputs)
        op = CollapsedMixtureRV(layout, snapshot([pt.as_tensor(value) for value in inputs.in_order()]))
        return super().dist(inputs.in_order(), op=op, **kwargs)


def of_shape(value: Any, shape: tuple[int, ...]) -> Any:
    """Return a parameter as a variable of this shape; a square matrix may be given by its diagonal."""
    variable = pt.as_tensor(value, dtype="float64")
    if variable.ndim == 1 and len(shape) == 2:
        # For pt.diag, PyTensor would compile its virtual machine, which takes half a second.
        variable = variable * np.eye(shape[0])
    return variable if variable.type.shape == shape else pt.broadcast_to(variable, shape)


def _add_record(
    model: pm.Model, mixture: Any, shape: Any, base: BaseMeasure, offset: Any, names: dict[str, Any]
) -> None:
    """Store the record of a mixture, with which its draws are read."""
    layout, inputs, name = mixture.owner.op.layout, mixture_inputs(mixture), mixture.name
    labels, unit = of_units(inputs.labels)
    add_record(
        model,
        name,
        {
            "labels": labels.name if model.named_vars.get(labels.name) is labels else None,
            "family": layout.family_name,
            "parameters": {
                field: product(base.products[field])
                if field in base.products
                else stored(model, value, f"{name}_{field}")
                for field, value in base.parameters.items()
            },
            "given": {field: stored(model, value) for field, value in base.given.items()},
            "given_names": {field: [as_plain(n) for n in names] for field, names in base.given_names().items()},
            "has_unit": unit is not None,
            "unit": None if unit is None else stored(model, unit),
            "has_offset": offset is not None,
            "offset": None if offset is None else stored(model, offset),
            "missing": None if inputs.missing is None else inputs.missing.name,
            "rows": int(shape[0]) if inputs.data is None or isinstance(inputs.data, Constant) else None,
            "columns": layout.n_columns,
            "is_sparse": layout.is_sparse,
            "power": layout.power,
            "is_vector": layout.is_vector,
        }
        | names,
    )


def check_power(power: Any, observed: Any) -> None:
    """Raise unless a power is a number > 0, and 1 where nothing is observed."""
    if isinstance(power, bool) or not isinstance(power, int | float | np.integer | np.floating):
        raise TypeError(f"power must be a number, got {type(power).__name__}")
    if not 0.0 < power < math.inf:
        raise ValueError(f"power must be > 0 and finite, got {power}")
    if power != 1.0 and observed is None:
        raise ValueError("power= is for observed data: the density of latent rows must be one")


def _names_in(table: Table | None) -> dict[str, Any]:
    """Return the names in the data of categories, and of the column of (n,) data."""
    if table is None:
        return {"categories": None, "levels": None, "column": None, "kinds": None}
    levels, columns = table.levels, table.columns
    has_levels = any(of_column is not None for of_column in levels)
    return {
        "categories": [of_column and [as_text(value) for value in of_column] for of_column in levels]
        if has_levels
        else None,
        "levels": [of_column and [as_plain(value) for value in of_column] for of_column in levels]
        if has_levels
        else None,
        "column": as_plain(columns[0]) if table.is_vector and columns else None,
        # Of many columns, as of words, all alike.
        "kinds": list(table.kinds) if set(table.kinds) - {"real"} else None,
    }


def _names_of_axes(model: pm.Model, base: BaseMeasure, table: Table | None, dims: Any) -> dict[str, Any]:
    """Return the names of what parameters have entries for: columns, levels and covariates."""
    given: dict[str, Any] = {base.family.given[field]: own for field, own in base.given_names().items()}
    if table is None:
        dims = (dims,) if isinstance(dims, str) else tuple(dims or ())
        return given | {"d": model.coords.get(dims[1]) if len(dims) == 2 else None}
    levels = list(table.levels)
    if base.takes_categories and len(set(levels)) == 1:
        n_levels = int(np.max(base.parameters["levels"]))
        given["l"] = list(range(n_levels)) if levels[0] is None else levels[0]
    # Columns were matched before the data was read.
    return given


def _names_of_missing(model: pm.Model, table: Table, rows: RowNames, dims: Any) -> list[str]:
    """Return names of missing entries: that of the row and, in matrices, that of the column."""
    known = [model.coords.get(dim) for dim in ((dims,) if isinstance(dims, str) else tuple(dims or ()))]
    of_columns = known[1] if len(known) == 2 else None
    axes = [(rows.coords, rows.names), (of_columns, table.columns)]
    missing = np.isnan(table.values)
    named = [
        next((names for names in axis if names is not None), range(length))
        for axis, length in zip(axes, missing.shape, strict=False)
    ]
    places = np.argwhere(missing)
    return [as_text(tuple(names[i] for names, i in zip(named, place, strict=True))) for place in places]


def _checked_offset(offset: Any, base: BaseMeasure, shape: Sequence[int], data: Any) -> Any:
    """Return an offset as a variable of the shape of the rows, which may change if they are pm.Data."""
    if not base.family.has_data_gradient:
        raise ValueError(
            f"{type(base).__name__} takes no offset: only normal families without known errors, and "
            "LinearRegression, do"
        )
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
    if any(length not in (None, 1, int(wanted)) for length, wanted in lengths):
        raise ValueError(f"offset has shape {offset.type.shape}, but the data has shape {tuple(shape)}")
    return pt.broadcast_to(offset, data.shape if is_variable(data) else tuple(shape))


def _family_for(base: BaseMeasure, values: Any, impute: bool) -> Family:
    """Return the family for data: that of the base, or the one that integrates missing entries out."""
    n_missing = count_missing(values)
    if n_missing == 0 or (base.family.draws_missing and (impute or base.family.incomplete is None)):
        return base.family
    if impute and base.family.incomplete is not None:
        raise ValueError(
            f"missing entries of {type(base).__name__} are integrated out and cannot be drawn; leave out "
            "impute=True"
        )
    if base.family.incomplete is None:
        taking = named_kinds(lambda family: family.draws_missing or family.incomplete is not None)
        row = int(np.flatnonzero(np.isnan(values).reshape(len(values), -1).any(axis=1))[0])
        raise ValueError(
            f"observed has {n_missing} missing entries (NaN), which {type(base).__name__} does not take; the "
            f"first is in row {row}. Leave these rows out, or use a base measure that takes missing entries: "
            f"{taking}"
        )
    return base.family.incomplete


def _check_with_given(base: BaseMeasure, family: Family, values: Any, given: Sequence[Any]) -> None:
    """Raise ValueError if data and its known columns are invalid for the family, unless they are variables."""
    if is_sparse(values):
        base.check_values(values, family)
        return
    if any(is_variable(column) for column in given):
        return
    columns = [values.reshape(len(values), -1), *given]
    base.check_values(_joined(columns), family)


def _check_rows(labels: Variable, shape: Sequence[int]) -> None:
    """Raise ValueError if the number of labels is known and differs from the number of rows."""
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


def mixture_values(layout: Layout, value: Any, inputs: MixtureInputs) -> Any:
    """Return data minus its offset, with the known columns of its rows, as a matrix (n, c); triplets unchanged."""
    if layout.is_sparse:
        return value
    if inputs.missing is not None:
        value = pt.set_subtensor(value.ravel()[inputs.positions], inputs.missing).reshape(value.shape)
    if inputs.offset is not None:
        value = value - inputs.offset
    columns = value[:, None] if layout.is_vector else value
    return columns if inputs.given is None else pt.concatenate([columns, inputs.given], axis=1)


def mixture_logp(op: CollapsedMixtureRV, values: Any, rng: Any, size: Any, *inputs: Any, **_: Any) -> Any:
    """Log density of a collapsed mixture, for PyMC."""
    named = op.layout.split(inputs)
    rows = mixture_values(op.layout, values[0], named)
    log_p = MarginalLikelihoodOp(op.layout.family_name, op.layout.is_sparse)(named.labels, rows, *named.params)
    return log_p if op.layout.power == 1.0 else op.layout.power * log_p


def mixture_support_point(op: CollapsedMixtureRV, rv: Any, *inputs: Any) -> Any:
    """Start of a latent mixture: a draw from its prior given the starting labels."""
    return PriorRowsRV(op.layout).make_node(*inputs).outputs[1]
