"""Base measures of tables whose scale is learnt: variables of the model in place of numbers from the data."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm

from pymc_dpgmm.families import BaseMeasure
from pymc_dpgmm.families.contract.base_measure import LinearTransform
from pymc_dpgmm.families.contract.defaults import (
    WithoutScatter,
    column_variances,
    columns_without_scatter,
    unit_of,
)
from pymc_dpgmm.families.contract.scale import FULL, least_degrees
from pymc_dpgmm.families.default_base import MOST_FULL_COLUMNS
from pymc_dpgmm.integration.variables.learnt_scale import (
    KAPPA_OF_ONE,
    KAPPA_OF_SEVERAL,
    LEAST_SHARE,
    RATE_OF_SHARES,
    SD_OF_DEGREES,
    SD_OF_KAPPA,
)
from pymc_dpgmm.tables.checks import is_sparse, listed
from pymc_dpgmm.tables.table import NUMBERS, Table

# Standard deviations of columns with which a scale is learnt: by their fourth powers times the squared number
# of rows.
LEAST_DEVIATION, LARGEST_DEVIATION = 1e-65, 1e65


def with_scatter(table: Table, base: type[BaseMeasure] | None, is_fixed: bool) -> tuple[Table, dict[int, Any]]:
    """Return a table without the columns that a base measure made from it leaves out, and these by position.

    Parameters
    ----------
    table : Table
    base : class of base measures or None
    is_fixed : bool
        Whether columns can only be warned of, and not left out.
    """
    values, kinds = table.values, set(table.kinds)
    if base is None:
        are_normal, is_full = "bool" not in kinds, values.ndim == 2 and values.shape[1] <= MOST_FULL_COLUMNS
    else:
        scale = base.family.scale
        are_normal, is_full = scale is not None, scale is not None and scale.covariances == FULL
    if table.is_vector or not are_normal or not kinds <= set(NUMBERS) or is_sparse(values):
        return table, {}
    # Other tables are refused where the data is checked.
    is_checked = len(values) and not (np.isinf(values).any() or np.isnan(values).all(axis=0).any())
    found = columns_without_scatter(values, is_full) if is_checked else {}
    if not found:
        return table, {}
    is_fixed = is_fixed or table.variable is not None
    names = table.columns or tuple(range(values.shape[1]))
    done = "may hide the clusters that its other columns show" if is_fixed else "are left out of the mixture"
    told = "; ".join(f"{names[j]!r}, {_described(why, names, len(values))}" for j, why in found.items())
    warnings.warn(
        f"columns of {table.what} {done}, since clusters have no scatter of their own in them: {told}. Leave them "
        "out of the table yourself to silence this. Where what a column adds to others matters, put the "
        "difference in its place; where rare values do, make them a view of their own, of dp.BetaBernoulli",
        UserWarning,
        stacklevel=6,
    )
    if is_fixed:
        return table, {}
    kept = [j for j in range(values.shape[1]) if j not in found]
    return replace(table, columns=names).in_column_order(kept), {j: names[j] for j in found}


def _described(why: WithoutScatter, names: Sequence[Any], n: int) -> str:
    """Return in words why clusters have no scatter in a column."""
    if why.of:
        nearly = f" but for {why.value:.1g} of its standard deviation" if why.value > 1e-6 else ""
        return f"a linear combination of {listed([names[i] for i in why.of])}{nearly}"
    others = f" but {why.n_others} of {n}" if why.n_others else ""
    return f"which is {why.value:g} in all rows{others}"


def learnt_base(name: str, base: BaseMeasure, rows: np.ndarray, column_dim: str | None) -> BaseMeasure:
    """Return a base measure like one that was made from data, with variables for its scale in the current model.

    Parameters
    ----------
    name : str
        Of the mixture. The variables are ``{name}_kappa``, ``{name}_degrees`` and ``{name}_within``.
    base : BaseMeasure
        What ``from_data`` has made.
    rows : (n,) or (n, d) float64 array
        NaN where an entry is missing.
    column_dim : str, optional
        The dimension of the columns.
    """
    rows = rows.reshape(len(rows), -1)
    d, scale = rows.shape[1], base.family.scale
    assert scale is not None
    variances, least = column_variances(rows), _known_shares(rows)
    _check_scales(np.sqrt(variances))
    kappa = pm.LogNormal(f"{name}_kappa", math.log(KAPPA_OF_ONE if d == 1 else KAPPA_OF_SEVERAL), SD_OF_KAPPA)
    constant, slope = scale.degrees(d)
    # Of all degrees of freedom the median is 2 d + 2, with d = 1 for columns that are independent.
    of_columns = d if scale.covariances == FULL else 1
    median = 2.0 * of_columns + 2.0 - least_degrees(scale.covariances, d)
    degrees = pm.LogNormal(f"{name}_degrees", math.log(median), SD_OF_DEGREES)
    shape: dict[str, Any] = {"dims": column_dim} if column_dim else {"shape": d}
    within = pm.Exponential(f"{name}_within", RATE_OF_SHARES, **shape)
    of_degrees, of_shares = (
        LinearTransform(degrees.name, constant, slope),
        (within.name, variances * least, variances),
    )
    count, typical = constant + slope * degrees, variances * least + variances * within
    learnt = {parameter: scale.product(parameter, count, typical) for parameter in scale.powers}
    found = type(base)(**(base.parameters | {"kappa": kappa} | learnt))
    # Results compute these from the variables, which are few numbers to keep.
    found.products = {
        parameter: [of_degrees] * of_count + ([LinearTransform(*of_shares, of_typical)] if of_typical else [])
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
    units = np.array([unit_of(column) for column in rows.T])
    return np.maximum(LEAST_SHARE, units**2 / (4.0 * column_variances(rows)))
