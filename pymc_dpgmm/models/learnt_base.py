"""Base measures of tables whose scale is learnt: variables of the model in place of numbers from the data."""

import math
from typing import Any

import numpy as np
import pymc as pm

from pymc_dpgmm.families import BaseMeasure
from pymc_dpgmm.families.contract.base_measure import Linear
from pymc_dpgmm.families.contract.defaults import column_variances
from pymc_dpgmm.families.contract.scale import FULL, least_degrees
from pymc_dpgmm.integration.variables.learnt_scale import (
    LEAST_SHARE,
    PRIOR_OF_KAPPA,
    RATE_OF_SHARES,
    SD_OF_DEGREES,
)

# Standard deviations of columns with which a scale is learnt: by their fourth powers times the squared number
# of rows.
LEAST_DEVIATION, LARGEST_DEVIATION = 1e-65, 1e65


def is_learnt(kind: type[BaseMeasure], n_columns: int) -> bool:
    """Tell whether a base measure that is made from data learns its scale: normal ones of several columns."""
    return kind.family.scale is not None and n_columns > 1


def learnt_base(name: str, base: BaseMeasure, rows: np.ndarray, column_dim: str | None) -> BaseMeasure:
    """Return a base measure like one that was made from data, with variables for its scale in the current model.

    Parameters
    ----------
    name : str
        Of the mixture. The variables are ``{name}_kappa``, ``{name}_degrees`` and ``{name}_within``.
    base : BaseMeasure
        What ``from_data`` has made.
    rows : (n, d) float64 array
        NaN where an entry is missing.
    column_dim : str, optional
        The dimension of the columns.
    """
    d, scale = rows.shape[1], base.family.scale
    assert scale is not None
    variances, least = column_variances(rows), _known_shares(rows)
    _check_scales(np.sqrt(variances))
    kappa = pm.LogNormal(f"{name}_kappa", *PRIOR_OF_KAPPA)
    constant, slope = scale.degrees(d)
    # Of all degrees of freedom the median is 2 d + 2, with d = 1 for columns that are independent.
    of_columns = d if scale.covariances == FULL else 1
    median = 2.0 * of_columns + 2.0 - least_degrees(scale.covariances, d)
    degrees = pm.LogNormal(f"{name}_degrees", math.log(median), SD_OF_DEGREES)
    shape: dict[str, Any] = {"dims": column_dim} if column_dim else {"shape": d}
    within = pm.Exponential(f"{name}_within", RATE_OF_SHARES, **shape)
    of_degrees, of_shares = Linear(degrees.name, constant, slope), (within.name, variances * least, variances)
    count, typical = constant + slope * degrees, variances * least + variances * within
    learnt = {parameter: scale.product(parameter, count, typical) for parameter in scale.powers}
    found = type(base)(**(base.parameters | {"kappa": kappa} | learnt))
    # Results compute these from the variables, which are few numbers to keep.
    found.products = {
        parameter: [of_degrees] * of_count + ([Linear(*of_shares, of_typical)] if of_typical else [])
        for parameter, (of_count, of_typical) in scale.powers.items()
    }
    return found


def _check_scales(deviations: np.ndarray) -> None:
    """Raise ValueError where the squares of variances that the scale is learnt by would overflow, or be 0."""
    outside = deviations[(deviations < LEAST_DEVIATION) | (deviations > LARGEST_DEVIATION)]
    if len(outside):
        raise ValueError(
            f"a column has a standard deviation of {outside[0]:.2g}, and a scale is learnt for those of "
            f"{LEAST_DEVIATION:g} to {LARGEST_DEVIATION:g}: rescale the data, as by x / x.std()"
        )


def _known_shares(rows: np.ndarray) -> np.ndarray:
    """Return the share (d,) of each column's variance that clusters are known to have, with a floor.

    The unit of a column is the smallest difference between two of its numbers. Typical clusters have a standard
    deviation of at least half a unit: two normals at a distance of two standard deviations are still one mode, so
    that numbers which follow one another are not two clusters. Without this part, a cluster for each number that
    occurs in a column of rounded numbers would have an unbounded density.
    """
    shares = np.full(rows.shape[1], LEAST_SHARE)
    variances = column_variances(rows)
    for j, column in enumerate(rows.T):
        gaps = np.diff(np.unique(column[~np.isnan(column)]))
        if len(gaps):
            unit = gaps[gaps > 1e-9 * gaps.sum()].min()
            shares[j] = max(LEAST_SHARE, unit * unit / (4.0 * variances[j]))
    return shares
