"""The base measure of a mixture for which the user gives none."""

import warnings

from pymc_dpgmm.families.beta_bernoulli import BetaBernoulli
from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.dirichlet_categorical import DirichletCategorical
from pymc_dpgmm.families.normal_inverse_gamma import NormalInverseGamma
from pymc_dpgmm.families.normal_inverse_wishart import NormalInverseWishart
from pymc_dpgmm.families.shared.normal_columns import SHARE_WITHIN
from pymc_dpgmm.tables.checks import listed
from pymc_dpgmm.tables.doubtful import warn_of_doubtful_numbers
from pymc_dpgmm.tables.kinds import as_numbers, in_views
from pymc_dpgmm.tables.table import Table

# With more columns, by default, covariances are diagonal.
MOST_FULL_COLUMNS = 50
# With fewer rows for each column, and not just a few columns, covariances of clusters are mostly the prior's.
FEWEST_ROWS_PER_COLUMN, FEW_COLUMNS = 3, 4


def default_family(d: int) -> type[BaseMeasure]:
    """Return the class of the default base measure of ``d`` columns of real numbers."""
    return NormalInverseWishart if 1 < d <= MOST_FULL_COLUMNS else NormalInverseGamma


def _base_of_codes(table: Table) -> BaseMeasure | None:
    """Return a base measure of bools or categories, None for real numbers; see :func:`default_base`."""
    kinds = set(table.kinds)
    if kinds == {"bool"}:
        return BetaBernoulli.from_data(table)
    if kinds == {"category"}:
        return DirichletCategorical.from_data(table)
    as_numbers(table)
    if "bool" in kinds:
        kinds_of_columns = ", ".join(
            f"{kind} {listed(names)}" for kind, names in table.by_kind(range(len(table.kinds))).items()
        )
        raise TypeError(
            f"{table.what} has columns of several kinds, and no base: {kinds_of_columns}. "
            f"{in_views(table)}; or give one base for all of them, which takes bools as 0 and 1"
        )
    return None


def default_base(table: Table) -> BaseMeasure:
    """Return a base measure made from the data, of the family that suits the kinds of its columns.

    Raises
    ------
    TypeError
        If the columns are of several kinds, or of kinds that no family describes. The message says what to do.
    """
    base = _base_of_codes(table)
    if base is not None:
        return base
    warn_of_doubtful_numbers(table)
    if table.is_vector:
        return NormalInverseGamma.from_data(table)
    d = table.values.shape[1]
    if d > MOST_FULL_COLUMNS:
        warnings.warn(
            f"{table.what} has {d} columns: without base=, more than {MOST_FULL_COLUMNS} are taken as independent "
            "within clusters, since few tables have the rows for full covariances of so many. Give "
            "base=dp.NormalInverseGamma to silence this, base=dp.NormalInverseWishart for full covariances, or "
            "reduce the columns first",
            UserWarning,
            stacklevel=2,
        )
        return NormalInverseGamma.from_data(table)
    n = table.values.shape[0]
    if d > FEW_COLUMNS and 1 < n < FEWEST_ROWS_PER_COLUMN * d:
        warnings.warn(
            f"{table.what} has {n} rows of {d} columns, few for clusters with full covariances, which are then "
            "mostly those of the prior. base=dp.NormalInverseGamma takes columns as independent within clusters; "
            "base=dp.NormalInverseWishart keeps full covariances, and silences this",
            UserWarning,
            stacklevel=2,
        )
    return default_family(d).from_data(table)


def default_base_of_segments(table: Table) -> BaseMeasure:
    """Return a base measure of segments of rows in order, made from the data.

    Of numbers it counts as about one row of the whole table, with a variance like that of the table: a segment
    differs from its neighbours if its rows say so. A base measure that learns how narrow segments are would divide
    trends, and rows that are like the rows before them, into many.
    """
    base = _base_of_codes(table)
    if base is not None:
        return base
    warn_of_doubtful_numbers(table)
    made = NormalInverseGamma.from_data(table).parameters
    return NormalInverseGamma(made["mu"], 1.0, 1.0, made["b"] / SHARE_WITHIN)


def default_base_of_states(table: Table) -> BaseMeasure:
    """Return a base measure of hidden states, made from the data: that of a mixture, of which nothing is learnt.

    Learnt scales are hyperparameters, which have an exact draw in mixtures alone.
    """
    return default_base(table)
