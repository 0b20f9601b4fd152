r"""Counts, with exposure: the gamma-Poisson family.

For each column :math:`\lambda \sim \mathrm{Gamma}(a, b)`, b a rate, and :math:`x_i \sim \mathrm{Poisson}(\lambda
e_i)` for a known exposure :math:`e_i`. With sum S of the counts and E of the exposures of a cluster,
:math:`\lambda` is Gamma(a + S, b + E), and the predictive of a count x with exposure e is negative binomial,

.. math:: \frac{\Gamma(a + S + x)}{\Gamma(a + S) x!} \Big(\frac{b + E}{b + E + e}\Big)^{a + S}
          \Big(\frac{e}{b + E + e}\Big)^x.

Rows hold counts, exposures, and the sum over columns of x log e - log x!, which does not depend on the cluster.
"""

from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, DrawnValues
from pymc_dpgmm.families.contract.supports import refuse_where
from pymc_dpgmm.families.shared.counts import check_counts, draw_counts
from pymc_dpgmm.families.shared.gamma_rates import draw_rates, gamma_rates, log_densities_of_events
from pymc_dpgmm.families.shared.gaps import missing_as_nothing, with_missing
from pymc_dpgmm.native.special import gammaln, xlogy


def _check_values(params: Any, values: np.ndarray) -> None:
    counts, exposure = np.hsplit(values, 2)
    check_counts("entries", counts)
    refuse_where(~(exposure > 0), "exposure must be > 0", exposure)


def _constants(counts: np.ndarray, exposure: np.ndarray) -> np.ndarray:
    return np.sum(xlogy(counts, exposure) - gammaln(counts + 1.0), axis=1)


def _represent(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    return np.column_stack([values, _constants(*np.hsplit(values, 2))]), None


def _log_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    counts, exposure = np.hsplit(missing_as_nothing(values), 2)
    return log_densities_of_events(drawn, counts, exposure) + _constants(counts, exposure)[:, None]


def _cdf(drawn: DrawnValues, values: np.ndarray, j: int, points: np.ndarray) -> np.ndarray:
    from scipy.special import pdtr

    counts, mean = np.floor(points)[:, None, :], np.hsplit(values, 2)[1][:, [j]] * drawn["rate"][:, j]
    return np.where(counts < 0.0, 0.0, pdtr(np.maximum(counts, 0.0), mean[:, :, None]))


COMPONENT = Component(
    axes={"rate": "d"},
    draw=draw_rates,
    draw_rows=lambda rng, drawn, labels, given: draw_counts(rng, drawn["rate"][labels] * given),
    log_density=_log_density,
    is_discrete=True,
    mean=lambda drawn, values: np.hsplit(values, 2)[1][:, None, :] * drawn["rate"],
    cdf=_cdf,
)


def _from_data(rows: np.ndarray, exposure: np.ndarray | float = 1.0) -> dict[str, np.ndarray | float]:
    total = np.sum(np.where(np.isnan(rows), 0.0, exposure), axis=0)
    return {"a": np.ones(rows.shape[1]), "b": 1.0 / np.maximum(np.nansum(rows, axis=0) / total, 1.0 / total)}


class GammaPoisson(BaseMeasure):
    """Base measure of counts that are Poisson and independent within a cluster, for (n,) or (n, d) data.

    Each cluster and column has a ``rate ~ Gamma(a, b)`` with mean ``a / b``, and the counts are Poisson(rate times
    exposure). A scalar parameter applies to all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Shape and rate of the prior.
    exposure : scalar, (n,), (1, d) or (n, d) array_like or variable, > 0
        Exposure of each row, such as person-years, area or total depth, the same for all columns or one for each.
        1 by default.

    Notes
    -----
    ``from_data`` sets a = 1 and b = total exposure / total count of each column, where a total of 0 counts as 1.
    The prior mean of each rate is then that of the data.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> dp.GammaPoisson.from_data([2, 4, 6]).parameters["b"]
    array([0.25])
    """

    family = with_missing(
        gamma_rates(
            "GammaPoisson",
            check_values=_check_values,
            represent=_represent,
            component=COMPONENT,
            predictive=lambda params, s: {"rate": (params.a + s.events) / (params.b + s.exposure)},
            given={"exposure": "d"},
            from_data=_from_data,
        )
    )

    def __init__(self, a: Any, b: Any, exposure: Any = 1.0) -> None:
        super().__init__(given={"exposure": exposure}, a=a, b=b)
