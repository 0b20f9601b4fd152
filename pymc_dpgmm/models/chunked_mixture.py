"""Mixtures of rows in chunks, for a dask array or DataFrame as ``observed``."""

import inspect
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm

from pymc_dpgmm.chunked.dask_rows import DaskRows, Reader, as_dask_array, columns_in, kinds_in, names_in
from pymc_dpgmm.chunked.partition import ChunkedPartition
from pymc_dpgmm.families import BaseMeasure, Family
from pymc_dpgmm.families.contract.base_measure import check_base
from pymc_dpgmm.families.default_base import default_base
from pymc_dpgmm.integration.internals import first_use
from pymc_dpgmm.integration.variables import CRP
from pymc_dpgmm.integration.variables.chunked_partition import (
    ChunkedClusters,
    ChunkedSource,
    EvidenceOp,
    shared_state,
)
from pymc_dpgmm.integration.variables.collapsed_mixture import of_shape
from pymc_dpgmm.integration.variables.observed import check_values
from pymc_dpgmm.integration.variables.records import add_record, numbers, stored
from pymc_dpgmm.integration.variables.registered_labels import prior_record
from pymc_dpgmm.tables.checks import is_variable, listed
from pymc_dpgmm.tables.reading import read_table
from pymc_dpgmm.tables.table import Table

# Size of the sample of rows from which default base measures and the origin of the sums are made.
ROWS_LOOKED_AT = 20_000
# Arguments that only mixtures of rows in memory take, and what to do instead.
_REFUSED = {
    "shape": "the shape is that of observed",
    "dims": "labels of rows are no variable of the model, and have no dims",
    "offset": "if it is numbers, subtract it from the array",
    "unit": "make every unit one row",
    "known_labels": "only mixtures of rows in memory take it",
    "must_link": "only mixtures of rows in memory take it",
    "impute": "leave out rows with missing entries, or use a family that integrates over them",
    "initval": "all chains start from one cluster with all rows",
    "group": "only mixtures of rows in memory take it",
    "power": "it is for some of several views of the same rows, which chunks do not have",
}


def add_chunked_mixture(name: str, prior: Any, base: Any, arguments: dict[str, Any]) -> Any:
    """Add the number of clusters of rows in chunks to the current model, and their density as a potential.

    Parameters
    ----------
    name : str
    prior : functools.partial
        The class of a prior on partitions, with its parameters as keywords.
    base : BaseMeasure, class of one, or None
    arguments : dict
        The arguments of all mixtures, and ``group``.

    Returns
    -------
    TensorVariable
        The potential ``name``: the log marginal likelihood of the rows given the partition.
    """
    model = pm.modelcontext(None)
    for argument, instead in _REFUSED.items():
        if arguments.get(argument) is not None and arguments[argument] is not False:
            raise NotImplementedError(
                f"{argument} is not supported together with a dask array as observed: {instead}. Rows that fit "
                "into memory take it: observed=array.compute()"
            )
    array = as_dask_array(arguments["observed"])
    rows = DaskRows(array)
    chosen = np.sort(np.random.default_rng(0).choice(rows.n, size=min(ROWS_LOOKED_AT, rows.n), replace=False))
    sample = rows.sample(chosen)
    if not np.isfinite(sample).all():
        # Infinite entries are refused here, with the rows that have them, before a base is made from the sample.
        rows.check_raw(check_values)
    is_made = not isinstance(base, BaseMeasure)
    table = read_table(sample)
    kinds = kinds_in(arguments["observed"]) or table.kinds
    base = _base_for(base, replace(table, kinds=kinds, variable=array))
    base = base.in_order({"d": columns_in(arguments["observed"])})
    _check_given(base)
    base.check_shape(array.shape)
    reader = Reader(type(base).restored({}, base.given))
    values = reader.read(sample)
    rows.read_with(reader, values.shape[1])
    family, ranges = _family_for(base, rows, is_made)
    without = np.flatnonzero(ranges[0] >= 1).tolist()
    if is_made and base.takes_categories and without:
        warnings.warn(
            f"no row of observed has the code 0 in the columns {listed(without)}, where it keeps its prior "
            "probability; subtract 1 from codes that begin at 1",
            UserWarning,
            stacklevel=5,
        )
    d = 1 if array.ndim == 1 else int(array.shape[1])
    lengths = base.lengths(d)
    params = {
        field: of_shape(base.parameters[field], tuple(lengths[c] for c in letters))
        for field, letters in family.axes.items()
    }
    now = _some_numbers(base, family, values, d)
    _, origin = family.represent(now, values)
    if origin is not None and len(inspect.signature(family.represent).parameters) < 3:
        raise NotImplementedError(
            f"{type(base).__name__} cannot be used for a dask array: represent of its family returns an origin "
            "and takes none, so that chunks would have origins of their own: give it a third parameter, origin"
        )
    partition = ChunkedPartition(rows, family, now, origin)
    source = ChunkedSource(
        rows,
        partition,
        shared_state(partition.sizes, f"{name}_sizes"),
        shared_state(partition.sums, f"{name}_sums"),
    )
    labels = prior.func.dist(**prior.keywords, n=rows.n)
    if prior.func is CRP and is_variable(prior.keywords["alpha"]):
        prior.keywords["alpha"].tag.is_concentration = True
    clusters = ChunkedClusters(f"{name}_n_clusters", labels, source)
    add_record(model, clusters.name, prior_record(model, labels, clusters.name))
    at = np.empty(0) if origin is None else origin
    evidence = EvidenceOp(family.name, rows.n_columns)(source.sums, at, *params.values())
    mixture = pm.Potential(name, evidence)
    add_record(
        model,
        mixture.name,
        {
            "chunked": clusters.name,
            "family": family.name,
            "parameters": {f: stored(model, v, f"{name}_{f}") for f, v in base.parameters.items()},
            "given": {field: stored(model, value) for field, value in base.given.items()},
            "origin": None if origin is None else numbers(np.asarray(origin)),
            "rows": rows.n,
            "columns": d,
            "width": rows.n_columns,
            "is_vector": array.ndim == 1,
            "ranges": numbers(ranges[:, :d]),
            "named": names_in(arguments["observed"]),
        },
    )
    first_use.begin(first_use.CHUNKS)
    return mixture


def _base_for(base: Any, sample: Table) -> BaseMeasure:
    """Return the base measure: the user's, or one made from a sample of the rows."""
    if base is None:
        return default_base(sample)
    if isinstance(base, type) and issubclass(base, BaseMeasure):
        return base.from_data(sample)
    check_base(base)
    return base


def _check_given(base: BaseMeasure) -> None:
    """Raise NotImplementedError where an argument of the base, such as exposure, is not a single number."""
    for field, value in base.given.items():
        if is_variable(value) or np.ndim(value) > 0:
            raise NotImplementedError(
                f"{field} of {type(base).__name__} must be one number where observed is a dask array: values for "
                "each row would have to be in chunks too, which is not supported"
            )


def _family_for(base: BaseMeasure, rows: DaskRows, is_made: bool) -> tuple[Family, np.ndarray]:
    """Check all rows; return their family and the ranges of their columns (2, c)."""
    family = base.family
    known = {field: None if is_variable(value) else value for field, value in base.parameters.items()}
    try:
        n_missing, ranges, _ = rows.check(family, known, check_values)
    except ValueError as error:
        if is_made and family.component.is_discrete:
            error.add_note(
                f"The base measure was made from {ROWS_LOOKED_AT:,} of the rows. If other rows have other levels, "
                "pass a base measure with all of them."
            )
        raise
    if n_missing == 0:
        return family, ranges
    if family.incomplete is None:
        raise NotImplementedError(
            f"observed has {n_missing} missing entries (NaN). {type(base).__name__} has to draw them, which is "
            "done for rows in memory only. Leave these rows out: "
            "frame.dropna(), or array[~dask.array.isnan(array).any(axis=1)].compute_chunk_sizes()"
        )
    return family.incomplete, ranges


def _some_numbers(base: BaseMeasure, family: Family, rows: np.ndarray, d: int) -> Any:
    """Return the parameters as numbers. Variables take arbitrary values, since sums do not depend on them."""
    random = {field for field, value in base.parameters.items() if is_variable(value)}
    values: dict[str, Any] = dict(base.parameters)
    if random:
        with warnings.catch_warnings():
            # Warnings about scales that the data do not determine.
            warnings.simplefilter("ignore", UserWarning)
            from_data = {} if family.from_data is None else dict(family.from_data(rows[:, :d]))
        missing = [field for field in random if field not in from_data]
        drawn = pm.draw([values[field] for field in missing], random_seed=0) if missing else []
        values |= {field: from_data[field] for field in random - set(missing)} | dict(
            zip(missing, drawn, strict=True)
        )
    return family.params(*base.numbers(d, values))
