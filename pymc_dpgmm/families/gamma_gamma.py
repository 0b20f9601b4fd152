r"""Positive numbers: the gamma-gamma family.

For each column :math:`\lambda \sim \mathrm{Gamma}(a, b)` and :math:`x_i \sim \mathrm{Gamma}(k_i, \lambda)`, both
with rates, for a known shape :math:`k_i`. The density of a row is that of
:mod:`pymc_dpgmm.families.shared.gamma_rates` with :math:`k_i` events in the exposure :math:`x_i` and :math:`c =
x_i^{k_i - 1} / \Gamma(k_i)`, so that :math:`\lambda` is Gamma(a + sum of shapes, b + sum of values), and the
predictive is a compound gamma (beta prime) density.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, DrawnValues
from pymc_dpgmm.families.contract.supports import refuse_where
from pymc_dpgmm.families.shared.gamma_rates import (
    cdf_of_exposures,
    draw_exposures,
    draw_rates,
    gamma_rates,
    log_densities_of_events,
    mean_exposures,
    rate_at_mean_of_inverse,
)
from pymc_dpgmm.families.shared.gaps import missing_as_nothing, with_missing
from pymc_dpgmm.native.special import gammaln

# Values are positive: zero itself is none of them.
_SMALLEST = float(np.finfo(np.float64).tiny)


def _check_values(params: Any, values: np.ndarray) -> None:
    numbers, shape = np.hsplit(values, 2)
    refuse_where(~(numbers > 0), "values must be > 0", numbers)
    refuse_where(~(shape > 0), "shape must be > 0", shape)


def _log_norms(numbers: np.ndarray, shape: np.ndarray) -> np.ndarray:
    # Where an entry is missing, both are 0.
    present = shape > 0
    logs = np.log(np.where(present, numbers, 1.0))
    return np.sum(np.where(present, (shape - 1.0) * logs - gammaln(np.where(present, shape, 1.0)), 0.0), axis=1)


def _represent(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    numbers, shape = np.hsplit(values, 2)
    return np.column_stack([shape, numbers, _log_norms(numbers, shape)]), None


def _log_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    numbers, shape = np.hsplit(missing_as_nothing(values), 2)
    return log_densities_of_events(drawn, shape, numbers) + _log_norms(numbers, shape)[:, None]


def _mean(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    return mean_exposures(drawn, np.hsplit(values, 2)[1])


def _cdf(drawn: DrawnValues, values: np.ndarray, j: int, points: np.ndarray) -> np.ndarray:
    return cdf_of_exposures(drawn, np.hsplit(values, 2)[1], j, points)


def _draw_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    return np.maximum(draw_exposures(rng, drawn, labels, given), _SMALLEST)


def _from_data(rows: np.ndarray, shape: np.ndarray | float = 1.0) -> dict[str, np.ndarray | float]:
    shapes = np.sum(np.where(np.isnan(rows), 0.0, shape), axis=0)
    return {"a": np.full(rows.shape[1], 2.0), "b": 2.0 * np.nansum(rows, axis=0) / shapes}


class GammaGamma(BaseMeasure):
    """Base measure of positive numbers that are gamma and independent within a cluster, for (n,) or (n, d) data.

    Each cluster and column has a ``rate ~ Gamma(a, b)`` with mean ``a / b``, and values are Gamma(shape, rate)
    with mean ``shape / rate``. The coefficient of variation within a cluster is ``1 / sqrt(shape)``, the same for
    all of them. A scalar parameter applies to all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Shape and rate of the prior of the rate.
    shape : scalar, (n,), (1, d) or (n, d) array_like or pm.Data, > 0
        Known shape of each row, the same for all columns or one for each. 1 by default, for exponential values.
        For the variance of m normal values it is (m - 1) / 2.

    Notes
    -----
    ``from_data`` sets a = 2 and b = 2 total of the values / total of the shapes of each column: the prior mean of
    the rate is that of the data. A cluster whose a + (sum of shapes) is at most 1 has an infinite mean.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> import pymc as pm
    >>> claims = [12.0, 15.0, 240.0, 310.0, 9.0]
    >>> with pm.Model():
    ...     base = dp.GammaGamma.from_data(claims, shape=4.0)
    ...     y = dp.DPMixture("y", 1.0, base, observed=claims)
    """

    family = with_missing(
        gamma_rates(
            "GammaGamma",
            check_values=_check_values,
            represent=_represent,
            component=Component(
                axes={"rate": "d"},
                draw=draw_rates,
                draw_rows=_draw_rows,
                log_density=_log_density,
                bounds=(_SMALLEST, math.inf),
                mean=_mean,
                cdf=_cdf,
            ),
            predictive=rate_at_mean_of_inverse,
            given={"shape": "d"},
            from_data=_from_data,
        ),
        allowed=1.0,
    )

    def __init__(self, a: Any, b: Any, shape: Any = 1.0) -> None:
        super().__init__(given={"shape": shape}, a=a, b=b)
