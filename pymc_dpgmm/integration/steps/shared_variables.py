"""Variables that the density of all rows of a process shares, and draws of some of them by slices."""

from collections.abc import Callable, Mapping

import numpy as np
import pymc as pm
from pytensor.graph.basic import Variable

from pymc_dpgmm.integration.process_density.row_terms import RowTerms
from pymc_dpgmm.integration.variables import dependents
from pymc_dpgmm.integration.variables.atoms import is_of_mixtures
from pymc_dpgmm.integration.variables.models import count_numbers, is_circular
from pymc_dpgmm.sampler.hyperparameters.slices import draw_slice, learnt_width
from pymc_dpgmm.sampler.hyperparameters.translations import Place

# Numbers that are moved with the rows, at most: of more, each would move rarely.
MOST_SHARED = 16
# Widths of slices, by variables and places.
type Widths = dict[Place, float]


def shared_variables(model: pm.Model, mixture: Variable, terms: RowTerms) -> list[Variable]:
    """Return the continuous free variables that terms of rows share, such as coefficients and dispersions.

    There are none if they are many numbers, or if the rows are not of double precision. Variables behind labels,
    mixtures or processes are not among them: rows and labels would have to move too. Nor are angles, whose slices
    would become longer and longer.
    """
    shared = [
        rv
        for rv in model.free_RVs
        if model.rvs_to_values[rv] in terms.inputs
        and rv.dtype == "float64"
        and not is_circular(model.rvs_to_transforms[rv])
        and not any(map(is_of_mixtures, (rv, *dependents(model, rv))))
    ]
    if not shared or mixture.dtype != "float64":
        return []
    return shared if sum(count_numbers(model, shared).values()) <= MOST_SHARED else []


def is_unbounded(model: pm.Model, rv: Variable) -> bool:
    """Tell whether any real numbers may be values of a variable, which has no transformation."""
    return rv.dtype == "float64" and model.rvs_to_transforms[rv] is None


def places_in(current: Mapping[str, np.ndarray]) -> list[Place]:
    """Return the places of all numbers, by variables."""
    return [(name, at) for name, values in current.items() for at in np.ndindex(values.shape)]


def draw_some(
    rng: np.random.Generator,
    current: Mapping[str, np.ndarray],
    log_density: Callable[[], float],
    log_p: float,
    widths: Widths,
    n_moved: int,
    tuning: bool,
) -> int:
    """Draw some numbers by slices, chosen at random, in arrays that a density is computed from.

    Returns at how many numbers the log density was +inf or NaN, which are impossible.

    Parameters
    ----------
    rng : numpy.random.Generator
    current : dict of arrays
        The numbers, by variables.
    log_density : callable
        Of the numbers as they are. Its last call is at the numbers as they are left.
    log_p : float
        Its value now.
    widths : dict
        Of slices, by variables and places, learnt in tuning.
    n_moved : int
    tuning : bool
    """
    places, n_impossible = places_in(current), 0
    for chosen in rng.permutation(len(places))[:n_moved]:
        name, place = places[chosen]
        values = current[name]

        def at(u: float, values: np.ndarray = values, place: tuple[int, ...] = place) -> float:
            values[place] = u
            return log_density()

        width = widths.get((name, place), 1.0)
        sliced = draw_slice(rng, at, float(values[place]), log_p, width)
        log_p, n_impossible = sliced.log_p, n_impossible + sliced.n_impossible
        if tuning:
            widths[name, place] = learnt_width(width, sliced.length)
    return n_impossible
