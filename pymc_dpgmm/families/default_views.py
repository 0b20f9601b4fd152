"""The views of a table with named columns for which the user gives no base measure."""

import warnings
from typing import Any

import numpy as np

from pymc_dpgmm.families.beta_bernoulli import BetaBernoulli
from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.default_base import default_family
from pymc_dpgmm.families.dirichlet_categorical import DirichletCategorical
from pymc_dpgmm.families.gamma_poisson import GammaPoisson
from pymc_dpgmm.tables.checks import listed
from pymc_dpgmm.tables.kinds import as_numbers
from pymc_dpgmm.tables.reading import read_table
from pymc_dpgmm.tables.table import CATEGORIES, NUMBERS, Table

# Numbers with so few values, each in so many rows on average, are codes of categories.
MOST_LEVELS, ROWS_PER_LEVEL = 5, 5
# Counts: a quarter of the rows has at most so many, the variance is at least so many times the mean, and the roots
# of the counts have at most so large a standard deviation (it is .5 in one cluster).
FEW, LEAST_DISPERSION, WIDEST_ROOTS = 5.0, 0.8, 2.5
# Text that differs in each of so many rows names them.
LEAST_NAMED = 10

# In the order of the views.
FAMILIES_OF_VIEWS: dict[str, type[BaseMeasure] | None] = {
    "numbers": None,
    "counts": GammaPoisson,
    "binary": BetaBernoulli,
    "categories": DirichletCategorical,
}


def default_views(observed: Any) -> dict[str, tuple[list[Any], type[BaseMeasure]]]:
    """Return the views that a mixture without ``base=`` makes of a table with named columns.

    The dict can be changed and given as ``base=``.

    - Bools, and numbers that are only 0 and 1, are the view ``binary`` (:class:`BetaBernoulli`).
    - Categories, text, and numbers with 2 to 5 values, of at least 5 rows each on average, are the view
      ``categories`` (:class:`DirichletCategorical`).
    - Whole numbers of which the least is 0 are the view ``counts`` (:class:`GammaPoisson`) if clusters of them may
      be Poisson: a quarter of the rows has at most 5, the variance is at least .8 times the mean, and the standard
      deviation of the square roots is at most 2.5, where it is .5 within one cluster.
    - All other numbers are the view ``numbers`` (:class:`NormalInverseWishart`, or :class:`NormalInverseGamma` for
      one column or more than 50).

    Parameters
    ----------
    observed : frame
        As ``observed`` of a mixture: one of pandas, polars, pyarrow and others, or a DataArray with named columns.

    Returns
    -------
    dict
        For each view the names of its columns, in the order of the table, and the class of its base measure, whose
        ``from_data`` makes one from these columns. Views without columns are left out.

    Raises
    ------
    TypeError
        If columns are dates, durations or objects, text that is all numbers, or text that differs in every row; or
        if the columns have no names. The message says what to do.

    Examples
    --------
    >>> import pandas as pd
    >>> import pymc_dpgmm as dp
    >>> frame = pd.DataFrame({"size": [1.5, 2.5, 0.3], "kind": ["a", "b", "a"], "smokes": [True, False, True]})
    >>> for view, (columns, base) in dp.default_views(frame).items():
    ...     print(view, columns, base.__name__)
    numbers ['size'] NormalInverseGamma
    binary ['smokes'] BetaBernoulli
    categories ['kind'] DirichletCategorical
    """
    table = read_table(observed)
    if not has_views(table):
        raise TypeError("default_views takes a table whose columns have names, such as a DataFrame")
    return {
        view: (columns, FAMILIES_OF_VIEWS[view] or default_family(len(columns)))
        for view, columns in _columns_of_views(table).items()
    }


def has_views(table: Table) -> bool:
    """Tell whether a mixture without ``base=`` makes views of a table: where its columns have names."""
    has_names = table.columns is not None and not table.is_vector
    return has_names and table.variable is None and not table.is_sparse


def _columns_of_views(table: Table) -> dict[str, list[Any]]:
    """Return the names of the columns of each view; see :func:`default_views`."""
    assert table.columns is not None
    _refuse_others(table)
    found = [_view_of(table, j) for j in range(len(table.kinds))]
    views = {
        view: [name for name, own in zip(table.columns, found, strict=True) if own == view]
        for view in (*FAMILIES_OF_VIEWS, "")
    }
    # Constants tell nothing of clusters. Beside other numbers they are told of together with all of their kind.
    constants = views.pop("")
    if constants and (views["numbers"] or not any(views.values())):
        views["numbers"] = [name for name in table.columns if name in {*views["numbers"], *constants}]
    elif constants:
        warnings.warn(
            f"the columns {listed(constants)} of {table.what} are constant, and left out of the mixture: leave "
            "them out of the table yourself to silence this",
            UserWarning,
            stacklevel=4,
        )
    return {view: columns for view, columns in views.items() if columns}


def _refuse_others(table: Table) -> None:
    """Raise TypeError where columns are neither numbers nor categories."""
    others = [j for j, kind in enumerate(table.kinds) if kind not in NUMBERS + CATEGORIES]
    numbers = [j for j, levels in enumerate(table.levels) if table.kinds[j] == "text" and _are_numbers(levels)]
    if others or numbers:
        as_numbers(table.in_column_order(others + numbers))
    named = [
        table.key_of(j)
        for j, levels in enumerate(table.levels)
        if table.kinds[j] == "text" and levels is not None and len(levels) == table.n_rows >= LEAST_NAMED
    ]
    if named:
        raise TypeError(
            f"the columns {listed(named)} of {table.what} have another text in every row, and seem to name the "
            f"rows: put them into the index with .set_index({named[0]!r}), or leave them out with "
            f".drop(columns={named})"
        )


def _are_numbers(levels: Any) -> bool:
    """Tell whether all levels of a column of text are numbers."""
    try:
        return all(np.isfinite(float(level)) for level in levels)
    except ValueError:
        return False


def _view_of(table: Table, j: int) -> str:
    """Return the view of a column, nothing for a constant one."""
    if table.kinds[j] in CATEGORIES:
        return "categories"
    known = table.values[:, j][~np.isnan(table.values[:, j])]
    values = np.unique(known)
    if len(values) == 1 and table.kinds[j] != "bool":
        return ""
    if table.kinds[j] == "bool" or np.array_equal(values, [0.0, 1.0]):
        return "binary"
    if 1 < len(values) <= min(MOST_LEVELS, len(known) / ROWS_PER_LEVEL):
        return "categories"
    return "counts" if len(known) and _are_counts(known) else "numbers"


def _are_counts(known: np.ndarray) -> bool:
    """Tell whether numbers are whole, and spread as counts in Poisson clusters are."""
    if known.min() != 0.0 or np.any(known != np.floor(known)) or np.quantile(known, 0.25) > FEW:
        return False
    return bool(known.var() >= LEAST_DISPERSION * known.mean() and np.sqrt(known).std() <= WIDEST_ROOTS)
