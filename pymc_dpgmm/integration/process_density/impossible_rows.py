"""Rows to which the rest of a model gives the density zero, whatever their parameters: mistakes in the data.

PyMC looks at the density of its starting points before NUTS begins. Where no variable is left to NUTS, it does
not, and such rows would be drawn from their prior without a word.
"""

from collections.abc import Callable

import numpy as np
import pymc as pm

from pymc_dpgmm.integration.process_density.row_terms import RowTerms

# Draws from the base that are tried, and numbers that they have in all, at most.
MOST_TRIED, MOST_NUMBERS = 1_000, 5_000_000


def refuse_impossible_rows(
    name: str, terms: RowTerms, present: np.ndarray, tried: Callable[[int], np.ndarray]
) -> None:
    """Raise if rows have no density where they start, nor at any draw from the base measure.

    Parameters
    ----------
    name : str
        Of the rows' variable.
    terms : RowTerms
    present : (n,) array
        Log density that the rest of the model gives each row at the start.
    tried : callable
        Returns the same at a number of draws from the base: (m, n).

    Raises
    ------
    pymc.exceptions.SamplingError
    """
    if np.all(present > -np.inf):
        return
    possible = np.any(tried(max(1, min(MOST_TRIED, MOST_NUMBERS // len(present)))) > -np.inf, axis=0)
    rows = np.flatnonzero(~(possible | (present > -np.inf)))
    if not len(rows):
        return
    one, many = f"row {rows[0]} of {name}", f"{len(rows)} rows of {name}, of which the first is row {rows[0]}"
    shared = ", ".join(terms.shared)
    names = " and ".join(dict.fromkeys(term.name for term in terms.terms))
    held, look = "", "Look at the data and covariates there"
    if shared:
        held = f", with {shared} as at the start"
    if shared and len(rows) == len(present) > 1:
        # Where all rows are impossible, it is mostly what they share.
        look = f"Look first at where {shared} starts (initval= moves it), and then at the data and covariates"
    raise pm.exceptions.SamplingError(
        f"{names}: there is no density, or it is zero, for {one if len(rows) == 1 else many}, neither at the "
        f"start nor at any draw from the base measure{held}. {look}: a value outside the support of its "
        "distribution, such as a count above the number of trials or an angle beyond pi, has the density zero; a "
        "density that is infinite, as at the ends of some supports, is none; and where an entry is missing (NaN) "
        "there is none. model.debug() tells more. If the data are right, give the rows a start at which there is "
        "a density by initval=, or a wider base measure"
    )
