"""Columns of categories as codes, and the levels that they stand for."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_dpgmm.tables.checks import is_variable, listed
from pymc_dpgmm.tables.kinds import check_kinds
from pymc_dpgmm.tables.names import as_text
from pymc_dpgmm.tables.table import CATEGORIES, NUMBERS, Table

Levels = tuple[tuple[Any, ...] | None, ...]


def numbers_of_levels(table: Table) -> list[int]:
    """Return the number of levels of each column.

    Whole numbers are codes from 0 to the largest one, or from 1 where none of them is 0. Others, and those that
    hardly are codes, such as years, are the names of levels if they repeat.
    """
    check_kinds(table, NUMBERS + CATEGORIES, "categories, text or codes", "DirichletCategorical")
    found = []
    for j, (kind, levels, x) in enumerate(zip(table.kinds, table.levels, _columns(table), strict=True)):
        if np.isnan(x).all() and levels is None:
            raise ValueError(f"all entries of {table.column_name(j)} are missing; give the parameters")
        if levels is not None or kind == "bool":
            found.append(2 if levels is None else len(levels))
        elif (names := _names_of_numbers(table, x)) is not None:
            found.append(len(names))
        else:
            found.append(int(np.nanmax(x)) + (0 if _from_one(table, np.nanmin(x)) else 1))
            _warn_of_gaps(table, j, len(np.unique(x[~np.isnan(x)])), found[-1])
    return found


def _names_of_numbers(table: Table, x: np.ndarray) -> np.ndarray | None:
    """Return the values of numbers that repeat and are no codes, but names; None for other numbers."""
    known = x[~np.isnan(x)]
    values = np.unique(known)
    if table.variable is not None or len(known) < 2 * len(values):
        return None
    are_codes = np.all((values >= 0.0) & (values == np.floor(values))) and not _has_gaps(
        len(values), int(values.max(initial=0.0))
    )
    return None if are_codes else values


def _has_gaps(n_used: int, n_levels: int) -> bool:
    return n_levels > 2 * n_used + 10


def _warn_of_gaps(table: Table, j: int, n_used: int, n_levels: int) -> None:
    """Tell of whole numbers that are hardly codes, such as years: most of the codes up to them are not there."""
    if _has_gaps(n_used, n_levels) and not is_variable(table.variable):
        warnings.warn(
            f"the numbers in {table.column_name(j)} are taken for codes of {n_levels} levels, of which {n_used} "
            "are there; all others keep their prior probability. If the numbers are names, as years are, make "
            "them text or a pandas.Categorical",
            UserWarning,
            stacklevel=3,
        )


def code_columns(table: Table, n_levels: Sequence[int]) -> tuple[np.ndarray, Levels]:
    """Return columns as codes from 0 on, and what the codes stand for.

    Parameters
    ----------
    table : Table
    n_levels : sequence of int
        Number of levels of each column. Whole numbers that are codes from 1 on only, by this number, become codes
        from 0 on, and names as many as this their places in order.
    """
    check_kinds(table, NUMBERS + CATEGORIES, "categories, text or codes", "DirichletCategorical")
    columns: list[np.ndarray] = []
    named: list[tuple[Any, ...] | None] = []
    for j, (levels, x) in enumerate(zip(table.levels, _columns(table), strict=True)):
        most = n_levels[j] if j < len(n_levels) else 0
        if levels is None and _from_one(table, np.nanmin(x, initial=np.inf)) and np.nanmax(x, initial=0) == most:
            x, levels = x - 1.0, tuple(range(1, most + 1))
        elif levels is None and (names := _names_of_numbers(table, x)) is not None and len(names) == most:
            x, levels = np.where(np.isnan(x), np.nan, np.searchsorted(names, x)), tuple(_whole(names))
        texts = [as_text(level) for level in levels or ()]
        if len(set(texts)) < len(texts):
            alike = [level for level, text in zip(levels or (), texts, strict=True) if texts.count(text) > 1]
            raise ValueError(
                f"{table.column_name(j)} has the levels {listed(alike)}, which results could not distinguish: "
                "make them one, as by x.astype(str), or rename them"
            )
        columns.append(x)
        named.append(levels)
    return (columns[0] if table.is_vector else np.column_stack(columns)), tuple(named)


def _whole(values: np.ndarray) -> list[Any]:
    """Return numbers as integers if all of them are whole."""
    numbers: list[Any] = (values.astype(np.int64) if np.all(values == np.floor(values)) else values).tolist()
    return numbers


def codes_of_new(table: Table, j: int, levels: Sequence[Any] | None) -> np.ndarray:
    """Return a column of new rows as codes of the levels that the data had.

    Numbers are matched with levels that are numbers, and everything else, such as categories, text and dates, by
    names. Numbers are codes where the data were codes.

    Parameters
    ----------
    table : Table
    j : int
        Which column.
    levels : sequence or None
        What the codes of the data stand for.

    Raises
    ------
    ValueError
        If there are others.
    """
    x, own = _columns(table)[j], table.levels[j]
    are_numbers = own is None
    if own is None:
        if levels is None:
            return x
        values = np.unique(x[~np.isnan(x)])
        own, x = tuple(values.tolist()), np.where(np.isnan(x), np.nan, np.searchsorted(values, x))
        known = [float(level) if _is_number(level) else np.nan for level in levels]
        places = {value: known.index(value) for value in own if value in known}
    elif levels is None:
        places = {value: int(value) for value in own if isinstance(value, int | float) and value == int(value)}
    else:
        known_names = [as_text(level) for level in levels]
        places = {value: known_names.index(as_text(value)) for value in own if as_text(value) in known_names}
    used = [own[int(code)] for code in np.unique(x[~np.isnan(x)])]
    unknown = [value for value in used if value not in places]
    if unknown:
        there = f"the categories {listed(levels)}" if levels is not None else "codes"
        advice = _advice(levels, are_numbers)
        raise ValueError(
            f"the data of {table.column_name(j)} has {there}, but there are {listed(unknown)}: {advice}"
        )
    codes = np.array([places.get(value, -1) for value in own] or [0], dtype=np.float64)
    return np.where(np.isnan(x), np.nan, codes[np.nan_to_num(x).astype(np.int64)])


def _advice(levels: Sequence[Any] | None, are_numbers: bool) -> str:
    """Return what to do about new rows of categories that the data had not."""
    if levels is not None and are_numbers and not any(map(_is_number, levels)):
        return f"give the names; codes become names with pandas.Categorical.from_codes(codes, {list(levels)})"
    return (
        "a category that is not known is a missing entry, NaN, and is summed out. A level that new rows may have "
        "is declared before sampling, by pandas.CategoricalDtype with all levels"
    )


def _is_number(level: Any) -> bool:
    """Tell whether a level is a number, or the text of one."""
    try:
        float(level)
    except ValueError:
        return False
    return True


def warn_of_unused(table: Table, values: np.ndarray, levels: Levels) -> None:
    """Tell of levels that no row has: they keep their prior probability."""
    columns = values.reshape(len(values), -1).T
    for j, (own, x) in enumerate(zip(levels, columns, strict=True)):
        if own is None:
            continue
        unused = np.setdiff1d(np.arange(len(own)), x[~np.isnan(x)])
        if len(unused):
            warnings.warn(
                f"no row has {len(unused)} of the {len(own)} levels of {table.column_name(j)}: "
                f"{listed([own[code] for code in unused], 5)}. They keep their prior probability. If that "
                "is not meant, leave them out, as by x.cat.remove_unused_categories()",
                UserWarning,
                stacklevel=2,
            )


def _from_one(table: Table, least: float) -> bool:
    """Tell whether codes may begin at one: those of data that may change later cannot be told."""
    return bool(least >= 1) and table.variable is None


def _columns(table: Table) -> Any:
    return table.values.reshape(table.n_rows, -1).T
