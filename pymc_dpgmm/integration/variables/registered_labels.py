"""Labels as variables of a model: their registration, the record of their prior, and what is read from them."""

import inspect
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Constant

from pymc_dpgmm.integration.variables.lengths import note_lengths
from pymc_dpgmm.integration.variables.models import value_of
from pymc_dpgmm.integration.variables.named_rows import coords_of, note_rows
from pymc_dpgmm.integration.variables.operations import partition_sizes
from pymc_dpgmm.integration.variables.partition_arguments import (
    KNOWN,
    checked_constraints,
    checked_rows,
    checked_start,
    start_of_rows,
)
from pymc_dpgmm.integration.variables.records import add_record, is_random, stored, with_gamma_law
from pymc_dpgmm.tables.checks import is_variable
from pymc_dpgmm.tables.reading import factorized
from pymc_dpgmm.tables.rows import RowNames


def _observed_labels(rows: RowNames, observed: Any, n: Any) -> np.ndarray:
    """Return labels in 0..n-1 from observed ones, which may be names, or any integers.

    Raises
    ------
    ValueError
        If there is not one label for each row.
    """
    entries = np.asarray(rows.entries("observed", observed, "every row has a label"))
    n_rows = len(entries) if is_variable(n) else int(n)
    if entries.shape != (n_rows,):
        raise ValueError(
            f"observed must have one label for each of {n_rows} rows, got shape {entries.shape}. Where it is "
            "known how many rows each cluster has, labels are np.repeat(np.arange(len(counts)), counts)"
        )
    if entries.dtype.kind in "iu" and n_rows and entries.min() >= 0 and entries.max() < n_rows:
        return entries
    codes, _ = factorized("observed", entries)
    return codes.astype(checked_rows(n)[1])


class PartitionPrior(pm.Discrete):
    """Base class of the priors on partitions, which checks rows and starts.

    The value is a vector of labels, one per row; two rows are in one cluster if their labels agree. The density
    is that of the partition, whatever names its clusters have, so any labels in 0..n-1 are allowed; others have
    density zero.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The signature names the arguments of ``dist`` and the shared ones, so that users find them.
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        own = inspect.signature(cls.dist).parameters.values()
        parameters += [p for p in own if p.kind is not inspect.Parameter.VAR_KEYWORD]
        names = ("dims", "known_labels", "must_link", "initval", "observed")
        shared = [inspect.Parameter(name, keyword, default=None) for name in names]
        cls.__signature__ = inspect.Signature([*parameters, *shared])

    @classmethod
    def density(cls, value: Any, *params: Any) -> Any:
        """Return the log density of labels; the last parameter is n, or constraints (2, n) on n rows."""
        *parameters, n = params
        # The sizes are empty where the density is zero.
        sizes = partition_sizes(value) if n.ndim == 0 else partition_sizes(value, n)
        return cls.rv_op.log_eppf(sizes, value.shape[0], *parameters)

    def __new__(cls, name: str, *args: Any, dims: Any = None, initval: Any = None, **kwargs: Any) -> Any:
        n = kwargs["n"] if "n" in kwargs or not args else args[-1]
        rows = RowNames("the labels", coords=coords_of(pm.modelcontext(kwargs.get("model")), dims))
        kwargs |= {key: rows.entries(key, kwargs[key]) for key in KNOWN if key in kwargs}
        if kwargs.get("observed") is not None and not is_variable(kwargs["observed"]):
            kwargs["observed"] = _observed_labels(rows, kwargs["observed"], n)
        initval = start_of_rows(rows, initval)
        if initval is not None and not isinstance(initval, str):
            constraints = checked_constraints(n, kwargs.get("known_labels"), kwargs.get("must_link"))
            initval = checked_start(initval, n, constraints).astype(checked_rows(n)[1])
        labels = super().__new__(cls, name, *args, dims=dims, initval=initval, **kwargs)
        note_rows(labels, rows)
        start = {"initval": None if isinstance(initval, str) else initval}
        note_lengths(labels, start | {key: kwargs.get(key) for key in KNOWN})
        _add_record(labels)
        return labels

    @classmethod
    def _made(cls, params: list[Any], n: Any, kwargs: dict[str, Any]) -> Any:
        rows = RowNames("the labels")
        known = [rows.entries(key, kwargs.pop(key, None)) for key in KNOWN]
        constraints = checked_constraints(n, *known)
        n, dtype = checked_rows(n)
        kwargs.pop("shape", None)
        labels = super().dist(
            [*params, n if constraints is None else pt.constant(constraints)], dtype=dtype, **kwargs
        )
        note_rows(labels, rows)
        return labels


def register_labels(model: pm.Model, name: str, labels: Any, dims: Any, initval: Any) -> Any:
    """Add labels made with ``.dist`` to a model."""
    rows = RowNames("the labels", coords=coords_of(model, dims))
    noted = labels.tag.rows.names
    if noted is not None and rows.order("known_labels or must_link in prior=", noted) is not None:
        raise ValueError(
            "known_labels or must_link in prior= has the names of the rows in another order than the coords of "
            "the model: put it into the order of the coords"
        )
    initval = start_of_rows(rows, initval)
    if initval is not None and not isinstance(initval, str):
        initval = checked_start(initval, fixed_rows(labels), constraints_on(labels)).astype(labels.dtype)
    labels = model.register_rv(labels, name, dims=dims, initval=initval, default_transform=None)
    note_rows(labels, rows)
    _add_record(labels)
    return labels


def _add_record(labels: Any) -> None:
    """Store the record of labels, with which their draws are read."""
    model = pm.modelcontext(None)
    add_record(model, labels.name, prior_record(model, labels, labels.name))


def prior_record(model: pm.Model, labels: Any, name: str) -> dict[str, Any]:
    """Return the record of labels under a prior on partitions."""
    parameters = {}
    for field, value in prior_parameters(labels).items():
        if value.ndim == 0:
            parameters[field] = with_gamma_law(stored(model, value, f"{name}_{field}"), value)
        elif is_random(value):
            parameters[field] = None
        else:
            parameters[field] = stored(model, labels.owner.op.recorded(field, value_of(value)))
    is_constrained = constraints_on(labels) is not None
    return {"prior": labels.owner.op.name, "parameters": parameters, "is_constrained": is_constrained}


def prior_parameters(labels: Any) -> dict[str, Any]:
    """Return the parameters of the prior of labels, also of labels by group, by their names."""
    op = labels.owner.op
    return dict(zip(op.fields, op.dist_params(labels.owner)[:-1], strict=True))


def fixed_rows(labels: Any) -> int | None:
    """Return the number of rows of labels, None if it may change."""
    n = labels.owner.inputs[-1]
    if not isinstance(n, Constant):
        return None
    return int(n.data) if n.ndim == 0 else n.data.shape[1]


def constraints_on(labels: Any) -> np.ndarray | None:
    """Return the constraints on labels, None if there are none."""
    last = labels.owner.inputs[-1]
    return None if last.ndim == 0 else np.asarray(last.data)
