"""Error messages, shared by all base measures, for columns of kinds that they do not take."""

from collections.abc import Collection
from typing import Any

import numpy as np

from pymc_dpgmm.tables.checks import is_sparse, listed
from pymc_dpgmm.tables.table import CATEGORIES, NUMBERS, OBJECTS, Table

_DAYS = "days = (t - t.min()) / pandas.Timedelta('1D') (for new rows since the same one)"
# How to turn columns of other kinds into numbers.
_ADVICE = {
    "text": "numbers written as text become numbers with pandas.to_numeric(x), and categories are taken by "
    "dp.DirichletCategorical",
    "category": "categories are taken by dp.DirichletCategorical, and become numbers, if they are, with "
    "x.astype(float)",
    "date": f"dates become numbers as days since the first of them, t = pandas.to_datetime(x); {_DAYS}",
    "period": f"periods become numbers as days since the first of them, t = x.dt.to_timestamp(); {_DAYS}",
    "duration": "durations become numbers with x / pandas.Timedelta('1h')",
}
# The same for arguments with one entry per row, such as covariates.
_DUMMIES = "categories become columns of zeros and ones with pandas.get_dummies(x, drop_first=True, dtype=float)"
_BESIDE = {
    "text": f"numbers written as text become numbers with pandas.to_numeric(x), and {_DUMMIES}",
    "category": _DUMMIES,
}
# And for new rows, whose columns are numbers in the data.
_AS_IN_DATA = "the data has numbers there: give numbers, as by pandas.to_numeric(x), or leave the column out"
_NEW = {"text": _AS_IN_DATA, "category": _AS_IN_DATA}
_OF_OBJECTS = (
    "objects that are numbers, such as fractions, become floats with x.astype(float), and others become missing "
    "with pandas.to_numeric(x, errors='coerce')"
)


def as_numbers(table: Table, taker: str = "") -> Any:
    """Return the values of a table that is all numbers.

    Parameters
    ----------
    table : Table
    taker : str
        Name of the base measure, for the message.

    Raises
    ------
    TypeError
        If some columns are no numbers. The message names them and says how to convert them.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dpgmm.tables.reading import read_table
    >>> as_numbers(read_table(np.array(["1", "2"])), "NormalInverseGamma")
    Traceback (most recent call last):
    ...
    TypeError: observed must be real numbers for NormalInverseGamma, but it is text: numbers written as text ...
    """
    check_kinds(table, NUMBERS, "real numbers", taker)
    return table.values


def check_kinds(table: Table, taken: Collection[str], must: str, taker: str) -> None:
    """Raise TypeError where columns are of kinds that are not among ``taken``; see :func:`as_numbers`."""
    bad = [j for j, kind in enumerate(table.kinds) if kind not in taken]
    if bad:
        of = f" for {taker}" if taker else ""
        raise TypeError(f"{table.what} must be {must}{of}, but {_told(table, bad)}{_advice(table, bad)}")


def _told(table: Table, bad: list[int]) -> str:
    """Return a text that names columns by their kinds."""
    if table.is_vector:
        return f"it is {_plural(table.kinds[0])}"
    return " and ".join(
        f"the {'columns' if len(names) > 1 else 'column'} {listed(names)} {'are' if len(names) > 1 else 'is'} "
        f"{_plural(kind)}"
        for kind, names in table.by_kind(bad).items()
    )


def _plural(kind: str) -> str:
    return {"category": "categories", "text": "text"}.get(kind, f"{kind}s" if kind in _ADVICE else kind)


def _advice(table: Table, bad: list[int]) -> str:
    kinds = dict.fromkeys(table.kinds[j] for j in bad)
    takes_views = table.what in ("observed", "data")
    beside = _NEW if table.what.startswith("new rows") else _BESIDE
    advices = _ADVICE if takes_views else _ADVICE | beside
    hints = [advices[kind] for kind in kinds if kind in advices]
    if any(kind.startswith(OBJECTS) for kind in kinds):
        hints.append(_OF_OBJECTS)
    advice = f": {'; '.join(hints)}" if hints else ""
    if table.is_vector or not takes_views:
        return advice
    return f"{advice}. {in_views(table)}"


def in_views(table: Table) -> str:
    """Return advice on how to pass a table with columns of several kinds: as one view for each kind."""
    kinds = set(table.kinds)
    if kinds <= set(CATEGORIES):
        return "Give base=dp.DirichletCategorical"
    if not kinds & {*NUMBERS, *CATEGORIES}:
        return "Leave these columns out"
    frame = "" if table.columns is not None else "pass a DataFrame, and "
    return (
        f"Leave these columns out; or {frame}give no base=, which makes a view for each kind of columns: "
        "dp.default_views(observed) returns them as a dict that can be changed and given as base="
    )


def check_finite(what: str, values: Any, largest: float) -> None:
    """Raise ValueError where an array or a sparse matrix is infinite, or so large that squares overflow.

    NaN is refused in sparse matrices only: in arrays it marks a missing entry.
    """
    entries = values.data if is_sparse(values) else values
    if is_sparse(values) and np.isnan(entries).any():
        raise ValueError(f"{what} must be finite, got NaN or infinite values")
    if np.isinf(entries).any():
        raise ValueError(f"{what} must be finite, got infinite values")
    # A number of float32 cannot be compared with what only float64 holds.
    if entries.size and float(np.nanmax(np.abs(entries), initial=0.0)) > largest:
        raise ValueError(
            f"{what} must be within {largest:g} of 0, got {np.nanmax(np.abs(entries)):g}; rescale the data"
        )
