"""Observed data, checked before PyMC sees it, which would silently impute what is missing."""

from dataclasses import dataclass, replace
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


@dataclass(frozen=True, eq=False)
class Observed:
    """Checked observed data: what PyMC registers, its current values, and the table that they are from.

    Missing entries are NaN. What PyMC registers of a sparse matrix are its non-zeros as triplets.

    Parameters
    ----------
    data : array or shared variable
    values : (n,) or (n, d) array, or sparse matrix
    table : Table
    levels : tuple
        What codes of categories stand for, of each column.
    """

    data: Any
    values: Any
    table: Table
    levels: tuple[tuple[Any, ...] | None, ...]

    @property
    def in_model(self) -> Any:
        """The data as the model has it, with as many rows as there are: ``pm.Data``, or the values."""
        return self.values if self.table.variable is None else self.table.variable

    def in_row_order(self, at: np.ndarray | None) -> "Observed":
        """Return the rows in the order of positions, or as they are if these are None."""
        if at is None:
            return self
        values = self.values[at]
        data = as_triplets(values) if is_sparse(values) else values
        return replace(self, data=data, values=values, table=self.table.in_row_order(at, None))


def check_observed(observed: Any, base: BaseMeasure) -> Observed:
    """Check data of a mixture.

    Raises
    ------
    TypeError
        If the data is not of the kinds that the base measure takes.
    ValueError
        If it is empty, has infinite or enormous values, or has the wrong number of dimensions.
    """
    if isinstance(observed, Observed):
        return observed
    table = read_table(observed)
    if is_sparse(table.values):
        if not base.family.takes_sparse:
            raise TypeError(
                f"observed is sparse, which {type(base).__name__} does not take; use .toarray(), or "
                "DirichletMultinomial"
            )
        check_values(table.values)
        return Observed(as_triplets(table.values), table.values, table, (None,) * len(table.kinds))
    read = base.read(table)
    check_values(read.values)
    warn_of_unused(table, read.values, read.levels)
    return Observed(read.values if table.variable is None else table.variable, read.values, table, read.levels)


def check_values(values: Any) -> None:
    """Raise where an array, or a sparse matrix, cannot be the data of any mixture; see :func:`check_observed`."""
    if not is_sparse(values) and (values.dtype.kind not in "biuf" or values.ndim not in (1, 2)):
        # Made into numbers, or refused with what it is.
        values = as_numbers(read_table(values))
    if 0 in values.shape:
        raise ValueError(f"observed must have at least one row and one column, got shape {values.shape}")
    check_finite("observed", values, LARGEST)


def count_missing(values: Any) -> int:
    """Return the number of missing entries (NaN) in checked data."""
    return 0 if is_sparse(values) else int(np.isnan(values).sum())
