"""Observed data, checked before it is passed to PyMC, which would silently impute missing entries."""

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
    """Checked observed data.

    Missing entries are NaN.

    Parameters
    ----------
    data : array or shared variable
        The data that PyMC registers; of a sparse matrix, its non-zeros as triplets.
    values : (n,) or (n, d) array, or sparse matrix
        Current values of the data.
    table : Table
        The table that the data was read into.
    levels : tuple
        For each column, the levels that codes of categories stand for, or None.
    """

    data: Any
    values: Any
    table: Table
    levels: tuple[tuple[Any, ...] | None, ...]

    @property
    def in_model(self) -> Any:
        """The data with one entry per row as in the model: the ``pm.Data``, or else the values."""
        return self.values if self.table.variable is None else self.table.variable

    def in_row_order(self, at: np.ndarray | None) -> "Observed":
        """Return the rows at the positions ``at``, or the same object if ``at`` is None."""
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
