r"""Counts, with exposure: the gamma-Poisson family.

For each column :math:`\lambda \sim \mathrm{Gamma}(a, b)`, b a rate, and :math:`x_i \sim \mathrm{Poisson}(\lambda
e_i)` for a known exposure :math:`e_i`. With sum S of the counts and E of the exposures of a cluster,
:math:`\lambda` is Gamma(a + S, b + E), and the predictive of a count x with exposure e is negative binomial,

.. math:: \frac{\Gamma(a + S + x)}{\Gamma(a + S) x!} \Big(\frac{b + E}{b + E + e}\Big)^{a + S}
          \Big(\frac{e}{b + E + e}\Big)^x.

Rows hold counts, exposures, and the sum over columns of x log e - log x!, which does not depend on the cluster.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, Drawn
from pymc_dpgmm.families.contract.expected import Linear
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import positive, refuse_where
from pymc_dpgmm.families.shared.counts import check_counts, missing_as_nothing, with_missing
from pymc_dpgmm.families.shared.gamma import gradient_in_gamma
from pymc_dpgmm.native.special import digamma, gammaln, log_rising, xlogy


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
    # A difference of two log evidences would lose digits where counts are large.
    total = x[2 * p.d]
    for j in range(p.d):
        shape = p.a[j] + s.counts[j]
        total += log_rising(shape, x[j]) + shape * c.log_rate[j]
        total -= (shape + x[j]) * math.log(p.b[j] + s.exposure[j] + x[p.d + j])
    return total, 0.0, 1.0


def _predictive(params: Any, s: Any) -> Drawn:
    return {"rate": (params.a + s.counts) / (params.b + s.exposure)}


def _expected(params: Any, s: Any) -> Linear:
    shape, rate = params.a + s.counts, params.b + s.exposure
    factors = {"counts": digamma(shape) - np.log(rate), "exposure": -shape / rate}
    return Linear(np.zeros(len(s.n)), factors | {"constant": np.ones(len(s.n))})


def _check_values(params: Any, values: np.ndarray) -> None:
    counts, exposure = np.hsplit(values, 2)
    check_counts("observed", counts)
    refuse_where(~(exposure > 0), "exposure must be > 0", exposure)


def _constants(counts: np.ndarray, exposure: np.ndarray) -> np.ndarray:
    return np.sum(xlogy(counts, exposure) - gammaln(counts + 1.0), axis=1)


def _represent(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    return np.column_stack([values, _constants(*np.hsplit(values, 2))]), None


def _log_density(drawn: Drawn, values: np.ndarray) -> np.ndarray:
    counts, exposure = np.hsplit(missing_as_nothing(values), 2)
    rate = np.maximum(drawn["rate"], np.finfo(np.float64).tiny)
    return counts @ np.log(rate).T - exposure @ rate.T + _constants(counts, exposure)[:, None]


COMPONENT = Component(
    axes={"rate": "d"},
    draw=lambda rng, params, s: {"rate": rng.gamma(params.a + s.counts, 1.0 / (params.b + s.exposure))},
    draw_rows=lambda rng, drawn, labels, given: rng.poisson(drawn["rate"][labels] * given).astype(np.float64),
    log_density=_log_density,
    is_discrete=True,
    mean=lambda drawn, values: np.hsplit(values, 2)[1][:, None, :] * drawn["rate"],
)


class GammaPoisson(BaseMeasure):
    """Base measure of counts that are Poisson and independent within a cluster, for (n,) or (n, d) data.

    Each cluster and column has a ``rate ~ Gamma(a, b)`` with mean ``a / b``, and the counts are Poisson(rate times
    exposure). A scalar parameter applies to all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Shape and rate of the prior.
    exposure : scalar, (n,) or (n, d) array_like or variable, > 0
        Exposure of each row, such as person-years, area or total depth, the same for all columns or one for each.
        1 by default.

    Notes
    -----
    ``from_data`` sets a = 1 and b = 1 / column means, with means of at least 1 / n. The prior mean of each rate is
    then that of the data.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.GammaPoisson.from_data([2, 4, 6]).parameters["b"]
    array([0.25])
    """

    family = with_missing(
        Family(
            name="GammaPoisson",
            parameters={"a": positive("d"), "b": positive("d")},
            check_values=_check_values,
            sums={"counts": "d", "exposure": "d", "constant": ""},
            update=_update,
            log_evidence=_log_evidence,
            gradient=lambda params, s: gradient_in_gamma(params, params.a + s.counts, params.b + s.exposure),
            predictive=_predictive,
            expected=_expected,
            cache={"log_rate": "d"},
            refresh=_refresh,
            log_predictive=_log_predictive,
            represent=_represent,
            component=COMPONENT,
            given={"exposure": "d"},
            from_data=lambda rows: {
                "a": np.ones(rows.shape[1]),
                "b": 1.0 / np.maximum(np.nanmean(rows, axis=0), 1.0 / len(rows)),
            },
        )
    )

    def __init__(self, a: Any, b: Any, exposure: Any = 1.0) -> None:
        super().__init__(given={"exposure": exposure}, a=a, b=b)
