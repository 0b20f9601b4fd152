"""Observed data, checked before PyMC sees it, which would silently impute what is missing."""

import contextlib
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pytensor.compile.sharedvalue import SharedVariable

from pymc_dpgmm.checks import listed, refuse_dims
from pymc_dpgmm.families import BaseMeasure
from pymc_dpgmm.families.base_measure import converts, is_variable
from pymc_dpgmm.families.counts import as_triplets, is_sparse

# The sums of squares of larger numbers are infinite.
LARGEST = 1e100


class Observed(NamedTuple):
    """Checked observed data: what PyMC registers, its current values, and the labels of its axes.

    Missing entries are NaN. What PyMC registers of a sparse matrix are its non-zeros as triplets.
    """

    data: Any
    values: Any
    index: Any
    columns: Any


def check_observed(observed: Any, base: BaseMeasure | None = None) -> Observed:
    """Check data of a mixture.

    Raises
    ------
    TypeError
        If the data is not made of real numbers.
    ValueError
        If it is empty, has infinite or enormous values, or has the wrong number of dimensions.
    """
    index, columns = None, None
    if is_sparse(observed):
        return _checked_sparse(observed, base)
    refuse_dims("observed", observed)
    if is_variable(observed):
        if not isinstance(observed, SharedVariable):
            raise TypeError(
                "observed must be numbers or pm.Data, got an expression of variables, which PyMC does not "
                "allow as observed data"
            )
        values = observed.get_value(borrow=True)
    elif isinstance(observed, pd.DataFrame | pd.Series):
        index = observed.index
        columns = getattr(observed, "columns", None)
        _check_columns(observed, base)
        values = observed.to_numpy() if base is None else base.to_numpy(observed)
    else:
        values = observed if isinstance(observed, np.ma.MaskedArray) else np.asarray(observed)
    check_values(values)
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    if is_variable(observed):
        return Observed(observed, np.asarray(values, dtype=np.float64), index, columns)
    values = np.array(values, dtype=np.float64)
    return Observed(values, values, index, columns)


def _check_columns(observed: Any, base: BaseMeasure | None) -> None:
    """Raise TypeError where columns of a table are no numbers and the base measure has no categories for them."""
    if not isinstance(observed, pd.DataFrame) or (
        base is not None and type(base).to_numpy is not BaseMeasure.to_numpy
    ):
        return
    bad = [c for c, dtype in zip(observed.columns, observed.dtypes, strict=True) if dtype.kind not in "biufO"]
    bad += [c for c in observed.columns if observed[c].dtype.kind == "O" and not converts(observed[c])]
    if bad:
        raise TypeError(
            f"the columns {listed(bad)} of observed are not real numbers. Leave them out, or make a mixture of "
            "several views: base={'a': ([columns], base), 'b': ([other columns], dp.DirichletCategorical)}"
        )


def _checked_sparse(observed: Any, base: BaseMeasure | None) -> Observed:
    if base is None or not base.family.takes_sparse:
        kind = "the default base measure" if base is None else type(base).__name__
        raise TypeError(f"observed is sparse, which {kind} does not take; use .toarray(), or DirichletMultinomial")
    from scipy.sparse import csr_array

    values = csr_array(observed, dtype=np.float64)
    check_values(values)
    return Observed(as_triplets(values), values, None, None)


def check_values(values: Any) -> None:
    """Raise where an array cannot be the observed data of any mixture; see :func:`check_observed`."""
    if is_sparse(values):
        if 0 in values.shape:
            raise ValueError(f"observed must have at least one row and one column, got shape {values.shape}")
        if not np.all(np.isfinite(values.data)):
            raise ValueError("observed must be finite, got NaN or infinite values")
        _check_size(values.data)
        return
    if values.dtype.kind == "O":
        with contextlib.suppress(TypeError, ValueError):
            values = values.astype(np.float64)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"observed must be real numbers, got dtype {values.dtype}")
    if values.ndim not in (1, 2):
        raise ValueError(f"observed must have shape (n,) or (n, d), got {values.shape}")
    if values.size == 0:
        raise ValueError(f"observed must have at least one row and one column, got shape {values.shape}")
    numbers = values.astype(np.float64)
    if np.any(np.isinf(numbers)):
        raise ValueError("observed must be finite, got infinite values")
    _check_size(numbers)


def _check_size(numbers: np.ndarray) -> None:
    """Raise ValueError where squares would not be numbers any more."""
    if np.any(np.abs(numbers) > LARGEST):
        largest = np.nanmax(np.abs(numbers))
        raise ValueError(f"observed must be within {LARGEST:g} of 0, got {largest:g}; rescale the data")


def count_missing(values: Any) -> int:
    """Return the number of missing entries (NaN) in checked data."""
    return 0 if is_sparse(values) else int(np.isnan(values).sum())
