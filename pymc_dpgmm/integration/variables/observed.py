"""Observed data, checked before it is passed to PyMC, which would silently impute missing entries."""

from dataclasses import replace
from typing import Any

import numpy as np

from pymc_dpgmm.families import BaseMeasure
from pymc_dpgmm.families.contract.base_measure import LARGEST
from pymc_dpgmm.families.shared.categories import warn_of_unused
from pymc_dpgmm.families.shared.counts import as_triplets
from pymc_dpgmm.tables.checks import is_sparse
from pymc_dpgmm.tables.kinds import as_numbers, check_finite
from pymc_dpgmm.tables.reading import read_table
from pymc_dpgmm.tables.table import Table


def check_observed(table: Table, base: BaseMeasure) -> Table:
    """Return data of a mixture as a table of what the base measure takes.

    Raises
    ------
    TypeError
        If the data is not of the kinds that the base measure takes.
    ValueError
        If it is empty, has infinite or enormous values, or has the wrong number of dimensions.
    """
    if table.is_sparse:
        if not base.family.takes_sparse:
            raise TypeError(
                f"observed is sparse, which {type(base).__name__} does not take; use .toarray(), or "
                "DirichletMultinomial"
            )
        check_values(table.values)
        return replace(table, is_checked=True)
    read = base.read(table)
    check_values(read.values)
    warn_of_unused(table, read.values, read.levels)
    return replace(table, values=read.values, levels=read.levels, is_checked=True)


def registered(table: Table) -> Any:
    """Return what PyMC registers as the data: of a sparse matrix, its non-zeros as triplets."""
    return as_triplets(table.values) if table.is_sparse else table.in_model


def check_values(values: Any) -> None:
    """Raise if an array or a sparse matrix cannot be the data of any mixture; see :func:`check_observed`."""
    if not is_sparse(values) and (values.dtype.kind not in "biuf" or values.ndim not in (1, 2)):
        # Converted to numbers, or refused with a message that names its kind.
        values = as_numbers(read_table(values))
    if 0 in values.shape:
        raise ValueError(f"observed must have at least one row and one column, got shape {values.shape}")
    check_finite("observed", values, LARGEST)


def count_missing(values: Any) -> int:
    """Return the number of missing entries (NaN) in checked data."""
    return 0 if is_sparse(values) else int(np.isnan(values).sum())
