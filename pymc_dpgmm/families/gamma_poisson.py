r"""Counts, with exposure: the gamma-Poisson family.

For each column :math:`\lambda \sim \mathrm{Gamma}(a, b)`, b a rate, and :math:`x_i \sim \mathrm{Poisson}(\lambda
e_i)` for a known exposure :math:`e_i`. With sum S of the counts and E of the exposures of a cluster,
:math:`\lambda` is Gamma(a + S, b + E), and the predictive of a count x with exposure e is negative binomial,

.. math:: \frac{\Gamma(a + S + x)}{\Gamma(a + S) x!} \Big(\frac{b + E}{b + E + e}\Big)^{a + S}
          \Big(\frac{e}{b + E + e}\Big)^x.

Rows hold counts, exposures, and the sum over columns of x log e - log x!, which does not depend on the cluster.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.component import Component
from pymc_dpgmm.families.counts import check_counts, check_positive, log_rising, missing_as_nothing
from pymc_dpgmm.families.family import Family
from pymc_dpgmm.special import digamma, gammaln, xlogy


def _update(p, n, s, x, sign):
    share = 1.0
    for j in range(p.d):
        before = p.b[j] + s.exposure[j]
        s.counts[j] += sign * x[j]
        s.exposure[j] = max(s.exposure[j] + sign * x[p.d + j], 0.0)
        share = min(share, (p.b[j] + s.exposure[j]) / before)
    s.constant[0] += sign * x[2 * p.d]
    return share


def _log_evidence(p, n, s):
    total = s.constant[0]
    for j in range(p.d):
        rate = math.log1p(s.exposure[j] / p.b[j])
        total += log_rising(p.a[j], s.counts[j]) - (p.a[j] + s.counts[j]) * rate - s.counts[j] * math.log(p.b[j])
    return total


def _refresh(p, n, s, c):
    for j in range(p.d):
        c.log_rate[j] = math.log(p.b[j] + s.exposure[j])


def _log_predictive(p, n, s, c, x):
    # Not a difference of two evidences, which would lose digits where counts are large.
    total = x[2 * p.d]
    for j in range(p.d):
        shape = p.a[j] + s.counts[j]
        total += log_rising(shape, x[j]) + shape * c.log_rate[j]
        total -= (shape + x[j]) * math.log(p.b[j] + s.exposure[j] + x[p.d + j])
    return total, 0.0, 1.0


def _log_predictive_without(p, n, s, c, x):
    total = x[2 * p.d]
    smallest = 1.0
    for j in range(p.d):
        shape = p.a[j] + (s.counts[j] - x[j])
        left = 1.0 - x[p.d + j] / (p.b[j] + s.exposure[j])
        smallest = min(smallest, left)
        total += log_rising(shape, x[j]) + shape * math.log(max(left, 1e-300)) - x[j] * c.log_rate[j]
    return total, 0.0, 1.0 if smallest > 1e-8 else math.nan


def _gradient(params: Any, s: Any) -> dict[str, Any]:
    rate, shape = params.b + s.exposure, params.a + s.counts
    return {
        "a": np.sum(digamma(shape) - digamma(params.a) + np.log(params.b / rate), axis=0),
        "b": np.sum(params.a / params.b - shape / rate, axis=0),
    }


def _check_values(params: Any, values: np.ndarray) -> None:
    counts, exposure = np.hsplit(values, 2)
    check_counts("observed", counts)
    bad = ~(exposure > 0)
    if np.any(bad):
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"exposure must be > 0, got {exposure[row, column]} in row {row}")


def _represent(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    counts, exposure = np.hsplit(values, 2)
    constants = np.sum(xlogy(counts, exposure) - gammaln(counts + 1.0), axis=1)
    return np.ascontiguousarray(np.column_stack([values, constants])), None


def _draw(rng: np.random.Generator, params: Any, s: Any) -> dict[str, np.ndarray]:
    return {"rate": rng.gamma(params.a + s.counts, 1.0 / (params.b + s.exposure))}


def _draw_rows(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, given: np.ndarray
) -> np.ndarray:
    return rng.poisson(drawn["rate"][labels] * given).astype(np.float64)


def _log_density(drawn: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    counts, exposure = np.hsplit(missing_as_nothing(values), 2)
    rate = np.maximum(drawn["rate"], np.finfo(np.float64).tiny)
    constants = xlogy(counts, exposure) - gammaln(counts + 1)
    return counts @ np.log(rate).T - exposure @ rate.T + constants.sum(axis=1)[:, None]


FAMILY = Family(
    name="GammaPoisson",
    axes={"a": "d", "b": "d"},
    check=check_positive,
    check_values=_check_values,
    sums={"counts": "d", "exposure": "d", "constant": ""},
    update=_update,
    log_evidence=_log_evidence,
    gradient=_gradient,
    cache={"log_rate": "d"},
    refresh=_refresh,
    log_predictive=_log_predictive,
    log_predictive_without=_log_predictive_without,
    represent=_represent,
    component=Component(axes={"rate": "d"}, draw=_draw, draw_rows=_draw_rows, log_density=_log_density),
    given={"exposure": "d"},
    from_data=lambda rows: {
        "a": np.ones(rows.shape[1]),
        "b": 1.0 / np.maximum(np.nanmean(rows, axis=0), 1.0 / len(rows)),
    },
)


def _check_incomplete(params: Any, values: np.ndarray) -> None:
    counts, exposure = np.hsplit(values, 2)
    _check_values(params, np.hstack([np.where(np.isnan(counts), 0.0, counts), exposure]))


# No counts of no exposure have probability 1, whatever the rate is.
FAMILY = replace(
    FAMILY,
    incomplete=replace(
        FAMILY,
        name="IncompleteGammaPoisson",
        takes_missing=True,
        check_values=_check_incomplete,
        represent=lambda params, values: _represent(params, missing_as_nothing(values)),
    ),
)


class GammaPoisson(BaseMeasure):
    """Base measure of counts that are Poisson and independent within a cluster, for (n,) or (n, d) data.

    ``rate ~ Gamma(a, b)`` with mean ``a / b`` for each cluster and column, and counts Poisson(rate times
    exposure). A scalar parameter serves all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Shape and rate of the prior.
    exposure : scalar, (n,) or (n, d) array_like or variable, > 0
        Exposure of each row, for all columns or each: person-years, area, total depth. 1 by default.

    Notes
    -----
    ``from_data`` takes a = 1 and b = 1 / column means (of at least 1 / n): rates around the data's.
    """

    family = FAMILY

    def __init__(self, a: Any, b: Any, exposure: Any = 1.0) -> None:
        super().__init__(given={"exposure": exposure}, a=a, b=b)
