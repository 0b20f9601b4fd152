"""Warnings about columns that can be clustered, but were probably not meant to be."""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from pymc_dpgmm.tables.checks import is_variable, listed
from pymc_dpgmm.tables.table import Table

# Fewer rows than this may have consecutive numbers by chance.
_LEAST_NUMBERED = 10
# A value that so many rows have, and such a share of all, where such a share of the others differ, is a spike.
_LEAST_REPEATED, _SHARE_REPEATED, _SHARE_OF_OTHERS = 5, 0.05, 0.5


def warn_of_doubtful_numbers(table: Table) -> None:
    """Warn about columns that the default base takes as real numbers, but that look like something else."""
    if table.is_sparse or is_variable(table.variable):
        return
    # These may be a sample of the rows of a chunked array.
    n_rows = table.n_rows if table.variable is None else table.variable.shape[0]
    if _is_binary(table.values):
        _warn(
            f"all entries of {table.what} are 0 or 1, and are taken as real numbers, with normal clusters. For "
            "binary data give base=dp.BetaBernoulli, or make them bools with .astype(bool); for real numbers give "
            "base= to silence this warning"
        )
        return
    by_column = table.values.reshape(table.n_rows, -1)
    spikes = {j: _spike(by_column[:, j]) for j in range(by_column.shape[1])}
    told = [
        (f"{table.key_of(j)} is " if not table.is_vector else "") + f"{value:g} in {count} of {table.n_rows} rows"
        for j, (value, count) in spikes.items()
        if count
    ]
    if told:
        _warn(
            f"{table.what} has values that many rows share exactly, between others that differ ({listed(told)}). "
            "Normal clusters about them are as narrow as rounding, which decides the partition whatever else rows "
            "are. Make whether a row has the value a column of bools, and leave a gap (NaN) in its place; give "
            "base= to silence this warning"
        )
    if table.is_vector:
        return
    columns = range(table.values.shape[1])
    for are, warning in (
        (
            _is_binary,
            "hold only 0 and 1, and are taken as real numbers, which makes their combinations clusters. Make them "
            "bools with .astype(bool), and put the others into a view of their own",
        ),
        (
            partial(_is_numbering, n_rows=n_rows),
            "number the rows, and are taken as data. Leave them out if they do not measure anything",
        ),
    ):
        names = [table.key_of(j) for j in columns if are(table.values[:, j])]
        if names:
            _warn(f"the columns {listed(names)} of {table.what} {warning}; give base= to silence this warning")


def warn_of_repeated(table: Table | None, what: str, entries: Any) -> None:
    """Warn about a column of the data that repeats another argument, such as ``unit``."""
    if table is None or entries is None or is_variable(entries) or table.is_sparse:
        return
    columns = table.values.reshape(table.n_rows, -1)
    for j, levels in enumerate(table.levels):
        column = columns[:, j]
        if levels is not None:
            column = np.array([*levels, None], dtype=object)[np.nan_to_num(column, nan=-1.0).astype(np.int64)]
        if len(column) == len(entries) and np.all(column == np.asarray(entries)):
            _warn(
                f"{table.column_name(j)} is the same as {what}, and is clustered as if it were a measurement. "
                f"Leave it out: observed=table.drop(columns={table.key_of(j)!r})"
            )


def warn_of_shared_columns(views: Mapping[str, Table]) -> None:
    """Warn about columns that are in several views, where they count several times."""
    views_of: dict[Any, list[str]] = {}
    for view, table in views.items():
        for column in table.columns or ():
            views_of.setdefault(column, []).append(view)
    for column, names in views_of.items():
        if len(names) > 1:
            _warn(
                f"the column {column!r} is in the views {' and '.join(map(repr, names))}, and counts in each, "
                "as if it had been measured again. Leave it out of all but one",
                stacklevel=8,
            )


def _warn(message: str, stacklevel: int = 3) -> None:
    warnings.warn(message, UserWarning, stacklevel=stacklevel)


def _is_binary(values: np.ndarray) -> bool:
    """Whether the known entries are zeros and ones, and both occur."""
    known = values[~np.isnan(values)]
    return bool(np.all((known == 0) | (known == 1)) and 0 < known.sum() < known.size)


def _spike(values: np.ndarray) -> tuple[float, int]:
    """Return a value that many rows have exactly, where most of the others differ, and how many have it, or 0."""
    known = values[~np.isnan(values)]
    found, counts = np.unique(known, return_counts=True)
    if len(found) < 2:
        return 0.0, 0
    most, n_others = int(counts.argmax()), len(known) - int(counts.max())
    is_spike = counts[most] >= max(_LEAST_REPEATED, _SHARE_REPEATED * len(known))
    is_apart = len(found) - 1 >= max(_LEAST_REPEATED, _SHARE_OF_OTHERS * n_others)
    return float(found[most]), int(counts[most]) if is_spike and is_apart else 0


def _is_numbering(values: np.ndarray, n_rows: int) -> bool:
    """Whether the values, of all rows or a sample, are different integers in a range no longer than all rows."""
    steps = np.diff(np.sort(values))
    is_whole = bool(np.all((steps >= 1.0) & (steps == np.floor(steps))))
    return len(values) >= _LEAST_NUMBERED and is_whole and steps.sum() < n_rows
