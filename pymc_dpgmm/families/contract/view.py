"""A view: data of one family, as numbers."""

from typing import Any, NamedTuple

from pymc_dpgmm.families.contract.family import Family


class View(NamedTuple):
    """Data of one family, and the family's parameters.

    Parameters
    ----------
    family : Family
    params : NamedTuple
        The parameters, as numbers.
    values : (n, c) array or sparse matrix
    unit : (n,) int array, optional
        What each row belongs to, where labels are those of units.
    origin : (c,) array, optional
        Where the family counts columns from, if it does so from somewhere; by default the means of these rows.
        Sums of parts of the rows can be added up if they have one origin.
    power : float, > 0
        Of the densities of rows and of the evidence: 1 unless the view counts for less, or more, than it is.
    """

    family: Family
    params: Any
    values: Any
    unit: Any = None
    origin: Any = None
    power: float = 1.0
