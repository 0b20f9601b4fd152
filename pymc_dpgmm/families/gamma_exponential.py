r"""Waiting times, of which some may be censored: the gamma-exponential family.

For each column :math:`\lambda \sim \mathrm{Gamma}(a, b)`, b a rate, and the time :math:`t_i` of row i ends with
:math:`u_i` events: one of an exponential waiting time, none of one that is censored on the right, and several of a
sum of such times. The density of a row is :math:`c \lambda^{u_i} e^{-\lambda t_i}` with :math:`c = t_i^{u_i - 1} /
(u_i - 1)!` for :math:`u_i \ge 1`; that of a censored row is the probability of a longer time, and c is 1.
:mod:`pymc_dpgmm.families.shared.gamma_rates` has the rest.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, DrawnValues
from pymc_dpgmm.families.contract.supports import refuse_where
from pymc_dpgmm.families.shared.counts import check_counts
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
from pymc_dpgmm.native.special import gammaln, xlogy


def _check_values(params: Any, values: np.ndarray) -> None:
    times, events = np.hsplit(values, 2)
    refuse_where(times < 0, "times must be >= 0", times)
    check_counts("events", events)
    refuse_where((times == 0.0) & (events > 1.0), "times of several events must be > 0", times, events)


def _log_coefficients(times: np.ndarray, events: np.ndarray) -> np.ndarray:
    more = np.maximum(events - 1.0, 0.0)
    return np.sum(xlogy(more, times) - gammaln(more + 1.0), axis=1)


def _represent(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    times, events = np.hsplit(values, 2)
    return np.column_stack([events, times, _log_coefficients(times, events)]), None


def _log_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    times, events = np.hsplit(missing_as_nothing(values), 2)
    return log_densities_of_events(drawn, events, times) + _log_coefficients(times, events)[:, None]


def _draw_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    return draw_exposures(rng, drawn, labels, np.maximum(given, 1.0))


def _mean(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    return mean_exposures(drawn, np.maximum(np.hsplit(values, 2)[1], 1.0))


def _cdf(drawn: DrawnValues, values: np.ndarray, j: int, points: np.ndarray) -> np.ndarray:
    return cdf_of_exposures(drawn, np.maximum(np.hsplit(values, 2)[1], 1.0), j, points)


def _from_data(rows: np.ndarray, events: np.ndarray | float = 1.0) -> dict[str, np.ndarray | float]:
    present = ~np.isnan(rows)
    total = np.maximum(np.sum(np.where(present, events, 0.0), axis=0), 1.0)
    times = np.nansum(rows, axis=0)
    return {"a": np.full(rows.shape[1], 2.0), "b": 2.0 * np.where(times > 0, times / total, 1.0)}


class GammaExponential(BaseMeasure):
    """Base measure of waiting times that are exponential within a cluster, for (n,) or (n, d) data.

    Each cluster and column has a ``rate ~ Gamma(a, b)`` with mean ``a / b``, and times are Exponential(rate).
    Times may be censored on the right. A scalar parameter applies to all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Shape and rate of the prior.
    events : scalar, (n,), (1, d) or (n, d) array_like or pm.Data, >= 0
        How many events the time of each row ends with, the same for all columns or one number for each: 1 (by
        default) where the event was seen, 0 where the time is censored. More than one stands for several times in
        one row, whose sum is observed.

    Notes
    -----
    ``from_data`` sets a = 2 and b = 2 total time / number of events of each column: the prior mean of the rate is
    that of the data.

    The density of a row with ``events=0`` is the probability of a longer time, so that ``dp.density(..., given=
    {"events": 0})`` is the survival function. Rows are drawn as times up to the event, those of censored rows too.
    A cluster whose a + (number of events) is at most 1 has an infinite mean time.

    Weibull times with a known shape k are exponential when raised to the power k; their density at t is that at
    ``t**k`` times ``k * t**(k - 1)``.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> import pymc as pm
    >>> seen = [1, 1, 0, 1]
    >>> with pm.Model():
    ...     base = dp.GammaExponential(a=2.0, b=6.0, events=seen)
    ...     y = dp.DPMixture("y", 1.0, base, observed=[0.3, 2.5, 8.0, 0.1])
    """

    family = with_missing(
        gamma_rates(
            "GammaExponential",
            check_values=_check_values,
            represent=_represent,
            component=Component(
                axes={"rate": "d"},
                draw=draw_rates,
                draw_rows=_draw_rows,
                log_density=_log_density,
                bounds=(0.0, math.inf),
                mean=_mean,
                cdf=_cdf,
            ),
            predictive=rate_at_mean_of_inverse,
            given={"events": "d"},
            from_data=_from_data,
        ),
        # A time of several events is not 0.
        allowed=1.0,
    )

    def __init__(self, a: Any, b: Any, events: Any = 1.0) -> None:
        super().__init__(given={"events": events}, a=a, b=b)
