r"""Binary columns, independent within a cluster: the beta-Bernoulli family.

For each column :math:`p \sim \mathrm{Beta}(a, b)` and :math:`x_i \mid p \sim \mathrm{Bernoulli}(p)`. With s ones
among n rows of a cluster, p is Beta(a + s, b + n - s) and the predictive of a one is (a + s) / (a + b + n).

The cache holds the logits of the columns' predictive probabilities and the log predictive of a row of
zeros, so that the log predictive of a row is a scalar product.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from pymc_dpgmm.families.beta_binomial import BetaBinomial
from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, DrawnValues
from pymc_dpgmm.families.contract.expected import LinearExpectation
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import positive, refuse_where
from pymc_dpgmm.families.shared.beta_probabilities import gradient, log_bernoulli
from pymc_dpgmm.families.shared.counts import log_beta_ratio, sums_of_logs
from pymc_dpgmm.families.shared.gaps import missing_as_nothing
from pymc_dpgmm.native.arithmetic import fast_log
from pymc_dpgmm.native.special import digamma


def _update(p, n, s, x, sign):
    for j in range(p.d):
        s.ones[j] += sign * x[j]
    return 1.0


def _log_evidence(p, n, s):
    total = 0.0
    for j in range(p.d):
        # Fractions of rows may add up to a little less than their ones.
        total += log_beta_ratio(p.a[j], p.b[j], s.ones[j], max(n - s.ones[j], 0.0))
    return total


def _refresh(p, n, s, c):
    total = -p.norms[int(n)]
    for j in range(p.d):
        log_zero = fast_log(p.b[j] + (n - s.ones[j]))
        c.logit[j] = fast_log(p.a[j] + s.ones[j]) - log_zero
        total += log_zero
    c.of_zeros[0] = total


def _log_predictive(p, n, s, c, x):
    total = c.of_zeros[0]
    for j in range(p.d):
        total += c.logit[j] * x[j]
    return total, 0.0, 1.0


def _log_predictive_without(p, n, s, c, x):
    total = -p.norms[int(n) - 1]
    for j in range(p.d):
        one = p.a[j] + (s.ones[j] - 1.0)
        zero = p.b[j] + (n - s.ones[j] - 1.0)
        total += fast_log(x[j] * one + (1.0 - x[j]) * zero)
    return total, 0.0, 1.0


def _predictive(params: Any, s: Any) -> DrawnValues:
    return {"probability": (params.a + s.ones) / (params.a + params.b + s.n)}


def _expected(params: Any, s: Any) -> LinearExpectation:
    log_zero = digamma(params.b + np.maximum(s.n - s.ones, 0.0))
    constant = np.sum(log_zero - digamma(params.a + params.b + s.n), axis=1)
    return LinearExpectation(constant, {"ones": digamma(params.a + s.ones) - log_zero})


def _check_values(params: Any, values: np.ndarray) -> None:
    refuse_where(
        (values != 0) & (values != 1), "binary columns must be 0 or 1 (of codes 1 and 2 subtract 1)", values
    )


def _draw_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    probability = drawn["probability"][labels]
    return (rng.random(probability.shape) < probability).astype(np.float64)


def _log_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    return log_bernoulli(drawn, np.nan_to_num(values, nan=0.0), np.nan_to_num(1.0 - values, nan=0.0))


COMPONENT = Component(
    axes={"probability": "d"},
    draw=lambda rng, params, s: {"probability": rng.beta(params.a + s.ones, params.b + s.n - s.ones)},
    draw_rows=_draw_rows,
    log_density=_log_density,
    is_discrete=True,
    mean=lambda drawn, values: drawn["probability"][None],
    cdf=lambda drawn, values, j, points: np.where(
        points[:, None, :] < 1.0, (points >= 0.0)[:, None, :] * (1.0 - drawn["probability"][None, :, j, None]), 1.0
    ),
)


def _represent_incomplete(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    # One trial, or none where an entry is missing.
    return BetaBinomial.family.represent(params, missing_as_nothing(np.hstack([values, np.ones_like(values)])))


INCOMPLETE = replace(
    BetaBinomial.family,
    name="IncompleteBetaBernoulli",
    check_values=lambda params, values: _check_values(params, np.nan_to_num(values, nan=0.0)),
    represent=_represent_incomplete,
    component=replace(COMPONENT, draw=BetaBinomial.family.component.draw),
    given={},
    takes_missing=True,
    incomplete=None,
)


class BetaBernoulli(BaseMeasure):
    """Base measure of binary columns that are independent within a cluster, for (n,) or (n, d) data of 0 and 1.

    Each cluster and column has a probability ``p ~ Beta(a, b)``. A scalar parameter applies to all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Prior numbers of ones and of zeros.

    Notes
    -----
    ``from_data`` sets a = b = 1, so probabilities are uniform.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> base = dp.BetaBernoulli(a=1.0, b=1.0)
    >>> dp.BetaBernoulli.from_data([[0, 1], [1, 1]]).parameters["a"]
    array([1., 1.])
    """

    family = Family(
        name="BetaBernoulli",
        parameters={"a": positive("d"), "b": positive("d")},
        check_values=_check_values,
        sums={"ones": "d"},
        update=_update,
        log_evidence=_log_evidence,
        gradient=lambda params, s: gradient(params, s.ones, s.n - s.ones),
        predictive=_predictive,
        expected=_expected,
        tables={"norms": "n"},
        tabulate=lambda params, n: {"norms": sums_of_logs(params.a + params.b, n)},
        constants=lambda params: {},
        cache={"logit": "d", "of_zeros": ""},
        refresh=_refresh,
        log_predictive=_log_predictive,
        log_predictive_without=_log_predictive_without,
        component=COMPONENT,
        from_data=lambda rows: {"a": np.ones(rows.shape[1]), "b": np.ones(rows.shape[1])},
        incomplete=INCOMPLETE,
    )

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__(a=a, b=b)
