r"""Rates with a gamma prior that are seen through events and an exposure: what such families share.

For each column :math:`\lambda \sim \mathrm{Gamma}(a, b)`, b a rate, and a row with u events in an exposure v has
the density :math:`c \lambda^u e^{-\lambda v}`, where c does not depend on the cluster. With the sums U and V of a
cluster, :math:`\lambda` is Gamma(a + U, b + V), and the density of a row given these is

.. math:: c \, \frac{\Gamma(a + U + u)}{\Gamma(a + U)} \frac{(b + V)^{a + U}}{(b + V + v)^{a + U + u}}.

Counts are events, and their exposure is given; waiting times are exposures, with one event or, censored, none;
gamma values are exposures with as many events as their known shape. Rows hold events, exposures, and the sum over
columns of log c.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.component import DrawnValues
from pymc_dpgmm.families.contract.expected import LinearExpectation
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import positive
from pymc_dpgmm.families.shared.gamma import gradient_in_gamma
from pymc_dpgmm.native.special import digamma, log_rising


def _update(p, n, s, x, sign):
    share = 1.0
    for j in range(p.d):
        before = p.b[j] + s.exposure[j]
        s.events[j] = max(s.events[j] + sign * x[j], 0.0)
        s.exposure[j] = max(s.exposure[j] + sign * x[p.d + j], 0.0)
        share = min(share, (p.b[j] + s.exposure[j]) / before)
    s.constant[0] += sign * x[2 * p.d]
    return share


def _log_evidence(p, n, s):
    total = s.constant[0]
    for j in range(p.d):
        rate = math.log1p(s.exposure[j] / p.b[j])
        total += log_rising(p.a[j], s.events[j]) - (p.a[j] + s.events[j]) * rate - s.events[j] * math.log(p.b[j])
    return total


def _refresh(p, n, s, c):
    for j in range(p.d):
        c.rate[j] = p.b[j] + s.exposure[j]


def _log_predictive(p, n, s, c, x):
    # A difference of log evidences, or of logarithms of rates, would lose digits where there are many events.
    total = x[2 * p.d]
    for j in range(p.d):
        shape = p.a[j] + s.events[j]
        total += log_rising(shape, x[j]) - shape * math.log1p(x[p.d + j] / c.rate[j])
        if x[j] > 0.0:
            total -= x[j] * math.log(c.rate[j] + x[p.d + j])
    return total, 0.0, 1.0


def _expected(params: Any, s: Any) -> LinearExpectation:
    shape, rate = params.a + s.events, params.b + s.exposure
    factors = {"events": digamma(shape) - np.log(rate), "exposure": -shape / rate}
    return LinearExpectation(np.zeros(len(s.n)), factors | {"constant": np.ones(len(s.n))})


def draw_rates(rng: np.random.Generator, params: Any, s: Any) -> DrawnValues:
    """Draw the rates of clusters given their rows."""
    return {"rate": rng.gamma(params.a + s.events, 1.0 / (params.b + s.exposure))}


def log_densities_of_events(drawn: DrawnValues, events: np.ndarray, exposure: np.ndarray) -> np.ndarray:
    """Return log densities of rows, without log c: (n, K)."""
    # Draws of a rate can round to 0. Without a lower bound, no events times log 0 would be NaN.
    rate = np.maximum(drawn["rate"], np.finfo(np.float64).tiny)
    return events @ np.log(rate).T - exposure @ rate.T


def draw_exposures(
    rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, events: np.ndarray
) -> np.ndarray:
    """Draw exposures up to so many events, (n, d) each, in the clusters ``labels``."""
    return rng.gamma(events) / np.maximum(drawn["rate"][labels], np.finfo(np.float64).tiny)


def cdf_of_exposures(drawn: DrawnValues, events: np.ndarray, j: int, points: np.ndarray) -> np.ndarray:
    """Return the probability (n, K, g) in each cluster that exposures up to so many events are at most points."""
    from scipy.special import gammainc

    scaled = np.maximum(points, 0.0)[:, None, :] * drawn["rate"][None, :, j, None]
    found: np.ndarray = gammainc(events[:, [j], None], scaled)
    return found


def mean_exposures(drawn: DrawnValues, events: np.ndarray) -> np.ndarray:
    """Return their means in each cluster: (n, K, d)."""
    with np.errstate(divide="ignore"):
        return events[:, None, :] / drawn["rate"]


def rate_at_mean_of_inverse(params: Any, s: Any) -> DrawnValues:
    """Return the rates at which 1 / rate is its mean given the rows.

    That mean is (b + V) / (a + U - 1), and infinite where a + U is at most 1.
    """
    return {"rate": np.maximum(params.a + s.events - 1.0, 0.0) / (params.b + s.exposure)}


def gamma_rates(name: str, **fields: Any) -> Family:
    """Return the family of rows that ``represent`` takes apart into events, exposures and log c."""
    return Family(
        name=name,
        parameters={"a": positive("d"), "b": positive("d")},
        sums={"events": "d", "exposure": "d", "constant": ""},
        update=_update,
        log_evidence=_log_evidence,
        gradient=lambda params, s: gradient_in_gamma(params, params.a + s.events, params.b + s.exposure),
        expected=_expected,
        cache={"rate": "d"},
        refresh=_refresh,
        log_predictive=_log_predictive,
        **fields,
    )
