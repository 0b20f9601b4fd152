"""The base measure that a mixture has where none is given."""

import warnings

import numpy as np

from pymc_dpgmm.checks import is_sparse, listed
from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.beta_bernoulli import BetaBernoulli
from pymc_dpgmm.families.dirichlet_categorical import DirichletCategorical
from pymc_dpgmm.families.normal_inverse_gamma import NormalInverseGamma
from pymc_dpgmm.families.normal_inverse_wishart import NormalInverseWishart
from pymc_dpgmm.tables.kinds import as_numbers, in_views
from pymc_dpgmm.tables.table import Table


def default_base(table: Table) -> BaseMeasure:
    """Return a base measure made from rows, of the family that the kinds of their columns tell.

    Raises
    ------
    TypeError
        If the columns are of several kinds, or of none that a family describes; the message says what to do.
    """
    kinds = set(table.kinds)
    if kinds == {"bool"}:
        return BetaBernoulli.from_data(table)
    if kinds == {"category"}:
        return DirichletCategorical.from_data(table)
    as_numbers(table)
    if "bool" in kinds:
        told = ", ".join(
            f"{kind} {listed(names)}" for kind, names in table.by_kind(range(len(table.kinds))).items()
        )
        raise TypeError(
            f"{table.what} has columns of several kinds, and no base: {told}. "
            f"{in_views(table)}; or give one base for all of them, which takes bools as 0 and 1"
        )
    _warn_of_zeros_and_ones(table)
    kind = NormalInverseGamma if table.is_vector else NormalInverseWishart
    return kind.from_data(table)


def _warn_of_zeros_and_ones(table: Table) -> None:
    """Tell where a table of zeros and ones is taken as real numbers."""
    if is_sparse(table.values) or table.variable is not None:
        return
    values = table.values[~np.isnan(table.values)]
    if np.all((values == 0) | (values == 1)) and 0 < values.sum() < values.size:
        warnings.warn(
            f"all entries of {table.what} are 0 or 1, and are taken as real numbers, with normal clusters. For "
            "binary data give base=dp.BetaBernoulli, or make them bools with .astype(bool); for real numbers give "
            "base= to be rid of this warning",
            UserWarning,
            stacklevel=2,
        )
