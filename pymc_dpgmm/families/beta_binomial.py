r"""Successes out of known numbers of trials: the beta-binomial family.

For each column :math:`p \sim \mathrm{Beta}(a, b)` and :math:`x_i \sim \mathrm{Binomial}(t_i, p)`. With S successes
and F failures in a cluster, p is Beta(a + S, b + F), and the predictive of x successes out of t is

.. math:: \binom{t}{x} \frac{B(a + S + x, b + F + t - x)}{B(a + S, b + F)}.

Rows hold successes, failures, and the sum over columns of the logs of the binomial coefficients.
"""

from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, DrawnValues
from pymc_dpgmm.families.contract.supports import refuse_where
from pymc_dpgmm.families.shared.beta_probabilities import beta_probabilities, draw_probabilities, log_bernoulli
from pymc_dpgmm.families.shared.counts import check_counts
from pymc_dpgmm.families.shared.gaps import missing_as_nothing, with_missing
from pymc_dpgmm.native.special import gammaln


def _predictive(params: Any, s: Any) -> DrawnValues:
    a_n, b_n = params.a + s.successes, params.b + s.failures
    return {"probability": a_n / (a_n + b_n)}


def _check_values(params: Any, values: np.ndarray) -> None:
    successes, trials = np.hsplit(values, 2)
    check_counts("entries", successes)
    check_counts("trials", trials)
    refuse_where(successes > trials, "successes must not exceed trials", successes, trials)


def _log_coefficients(successes: np.ndarray, failures: np.ndarray) -> np.ndarray:
    logs = gammaln(successes + failures + 1.0) - gammaln(successes + 1.0) - gammaln(failures + 1.0)
    return np.sum(logs, axis=1)


def _represent(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    successes, trials = np.hsplit(values, 2)
    failures = trials - successes
    return np.column_stack([successes, failures, _log_coefficients(successes, failures)]), None


def _draw_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    return rng.binomial(given.astype(np.int64), drawn["probability"][labels]).astype(np.float64)


def _mean(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    return np.hsplit(values, 2)[1][:, None, :] * drawn["probability"]


def _cdf(drawn: DrawnValues, values: np.ndarray, j: int, points: np.ndarray) -> np.ndarray:
    from scipy.special import betainc

    trials, successes = np.hsplit(values, 2)[1][:, [j]], np.floor(points)
    failures = (trials - successes)[:, :, None].swapaxes(1, 2)
    successes = successes[:, None, :]
    # The distribution function of a binomial number is an incomplete beta function.
    found = betainc(
        np.maximum(failures, 1.0), np.maximum(successes, 0.0) + 1.0, 1.0 - drawn["probability"][None, :, j, None]
    )
    return np.where(failures <= 0.0, 1.0, np.where(successes < 0.0, 0.0, found))


def _log_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    successes, trials = np.hsplit(missing_as_nothing(values), 2)
    failures = trials - successes
    return log_bernoulli(drawn, successes, failures) + _log_coefficients(successes, failures)[:, None]


class BetaBinomial(BaseMeasure):
    """Base measure of successes out of known trials, independent within a cluster, for (n,) or (n, d) data.

    Each cluster and column has a probability ``p ~ Beta(a, b)``, and the successes are Binomial(trials, p). An
    example is the number of variant reads among all reads. A scalar parameter applies to all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Prior numbers of successes and of failures.
    trials : scalar, (n,), (1, d) or (n, d) array_like or pm.Data, >= 0
        Number of trials of each row, the same for all columns or one for each: whole numbers. Rows without trials
        are allowed; only the prior decides about their cluster.

    Notes
    -----
    ``from_data(data, trials=...)`` sets a = b = 1, so probabilities are uniform.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> import pymc as pm
    >>> with pm.Model():
    ...     base = dp.BetaBinomial(a=1.0, b=1.0, trials=[30, 42, 25])
    ...     y = dp.DPMixture("y", 1.0, base, observed=[14, 3, 12])
    """

    family = with_missing(
        beta_probabilities(
            "BetaBinomial",
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
            given={"trials": "d"},
            from_data=lambda rows, **given: {"a": np.ones(rows.shape[1]), "b": np.ones(rows.shape[1])},
        )
    )

    def __init__(self, a: Any, b: Any, trials: Any) -> None:
        super().__init__(given={"trials": trials}, a=a, b=b)
