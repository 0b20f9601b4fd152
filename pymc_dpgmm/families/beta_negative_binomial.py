r"""Counts that vary more than Poisson ones: the beta-negative-binomial family.

For each column :math:`p \sim \mathrm{Beta}(a, b)`, and :math:`x_i` is the number of failures before the success
number :math:`r_i`, the known size, in trials that succeed with probability p:

.. math:: \frac{\Gamma(x_i + r_i)}{\Gamma(r_i) x_i!} p^{r_i} (1 - p)^{x_i}.

The size need not be whole. It is the number of successes of a row of
:mod:`pymc_dpgmm.families.shared.beta_probabilities`, and the count its number of failures.
"""

from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, DrawnValues
from pymc_dpgmm.families.contract.supports import refuse_where
from pymc_dpgmm.families.shared.beta_probabilities import beta_probabilities, draw_probabilities, log_bernoulli
from pymc_dpgmm.families.shared.counts import check_counts, draw_counts
from pymc_dpgmm.families.shared.gaps import missing_as_nothing, with_missing
from pymc_dpgmm.native.special import gammaln, log_risings


def _predictive(params: Any, s: Any) -> DrawnValues:
    # The mean of the odds (1 - p) / p is (b + V) / (a + U - 1), and infinite where a + U is at most 1.
    a_n, b_n = np.maximum(params.a + s.successes - 1.0, 0.0), params.b + s.failures
    return {"probability": a_n / (a_n + b_n)}


def _check_values(params: Any, values: np.ndarray) -> None:
    counts, size = np.hsplit(values, 2)
    check_counts("entries", counts)
    # Where a count is missing, it is 0 here; any size will do.
    refuse_where(~(size > 0), "size must be > 0", size)


def _log_coefficients(counts: np.ndarray, size: np.ndarray) -> np.ndarray:
    # Where a count is missing, both are 0.
    size = np.where(size > 0, size, 1.0)
    return np.sum(log_risings(size, counts) - gammaln(counts + 1.0), axis=1)


def _represent(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    counts, size = np.hsplit(values, 2)
    return np.column_stack([size, counts, _log_coefficients(counts, size)]), None


def _draw_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    p = drawn["probability"][labels]
    # A negative binomial count is Poisson with a gamma mean.
    odds = (1.0 - p) / np.maximum(p, np.finfo(np.float64).tiny)
    return draw_counts(rng, rng.gamma(given) * odds)


def _log_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    counts, size = np.hsplit(missing_as_nothing(values), 2)
    return log_bernoulli(drawn, size, counts) + _log_coefficients(counts, size)[:, None]


def _cdf(drawn: DrawnValues, values: np.ndarray, j: int, points: np.ndarray) -> np.ndarray:
    from scipy.special import betainc

    size, counts = np.hsplit(values, 2)[1][:, [j]], np.floor(points)
    # The distribution function of a negative binomial count is an incomplete beta function, for any real size.
    found = betainc(
        size[:, :, None], np.maximum(counts, 0.0)[:, None, :] + 1.0, drawn["probability"][None, :, j, None]
    )
    return np.where(counts[:, None, :] < 0.0, 0.0, found)


def _mean(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    size, p = np.hsplit(values, 2)[1], drawn["probability"]
    with np.errstate(divide="ignore"):
        return size[:, None, :] * ((1.0 - p) / p)


def _from_data(rows: np.ndarray, size: np.ndarray | float = 1.0) -> dict[str, np.ndarray | float]:
    sizes = np.sum(np.where(np.isnan(rows), 0.0, size), axis=0)
    # The mean of (1 - p) / p under the prior is b / (a - 1).
    return {"a": np.full(rows.shape[1], 2.0), "b": np.maximum(np.nansum(rows, axis=0), 1.0) / sizes}


class BetaNegativeBinomial(BaseMeasure):
    """Base measure of overdispersed counts, independent within a cluster, for (n,) or (n, d) data.

    Each cluster and column has a probability ``p ~ Beta(a, b)``, and the counts are NegativeBinomial(size, p),
    with mean ``m = size (1 - p) / p`` and variance ``m + m**2 / size``. A scalar parameter applies to all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Parameters of the prior of p.
    size : scalar, (n,), (1, d) or (n, d) array_like or pm.Data, > 0
        Known size of each row, the same for all columns or one for each: ``alpha`` of ``pm.NegativeBinomial``.
        Small sizes stand for much overdispersion, large ones for almost Poisson counts.

    Notes
    -----
    ``from_data(data, size=...)`` sets a = 2 and b = total count / total size of each column, a total count of 0
    standing for 1: the prior mean of the counts is that of the data. A cluster whose a + (sum of sizes) is at most
    1 has an infinite mean.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> import pymc as pm
    >>> reads = [3, 0, 8, 120, 96, 5]
    >>> with pm.Model():
    ...     base = dp.BetaNegativeBinomial.from_data(reads, size=4.0)
    ...     y = dp.DPMixture("y", 1.0, base, observed=reads)
    """

    family = with_missing(
        beta_probabilities(
            "BetaNegativeBinomial",
            check_values=_check_values,
            represent=_represent,
            component=Component(
                {"probability": "d"},
                draw_probabilities,
                _draw_rows,
                _log_density,
                is_discrete=True,
                mean=_mean,
                cdf=_cdf,
            ),
            predictive=_predictive,
            given={"size": "d"},
            from_data=_from_data,
        )
    )

    def __init__(self, a: Any, b: Any, size: Any) -> None:
        super().__init__(given={"size": size}, a=a, b=b)
