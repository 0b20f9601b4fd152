r"""Binary columns, independent within a cluster: the beta-Bernoulli family.

For each column :math:`p \sim \mathrm{Beta}(a, b)` and :math:`x_i \mid p \sim \mathrm{Bernoulli}(p)`. With s ones
among n rows of a cluster, p is Beta(a + s, b + n - s) and the predictive of a one is (a + s) / (a + b + n).

The cache holds the logits of the columns' predictive probabilities and the log predictive of a row of
zeros, so that the log predictive of a row is a scalar product.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from pymc_dpgmm.arithmetic import fast_log
from pymc_dpgmm.families import beta_binomial
from pymc_dpgmm.families.base_measure import BaseMeasure
from pymc_dpgmm.families.component import Component
from pymc_dpgmm.families.counts import check_positive, log_rising, missing_as_nothing
from pymc_dpgmm.families.family import Family
from pymc_dpgmm.special import digamma


def _update(p, n, s, x, sign):
    for j in range(p.d):
        s.ones[j] += sign * x[j]
    return 1.0


def _log_evidence(p, n, s):
    total = 0.0
    for j in range(p.d):
        a, b = p.a[j], p.b[j]
        total += log_rising(a, s.ones[j]) + log_rising(b, n - s.ones[j]) - log_rising(a + b, n)
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


def _tabulate(params: Any, n: int) -> dict[str, Any]:
    # Sums over columns of log(a + b + m) for m = 0..n rows.
    rows = np.arange(n + 1.0)
    return {"norms": sum((np.log(total + rows) for total in params.a + params.b), start=np.zeros(n + 1))}


def _gradient(params: Any, s: Any) -> dict[str, Any]:
    common = digamma(params.a + params.b) - digamma(params.a + params.b + s.n)
    return {
        "a": np.sum(common + digamma(params.a + s.ones) - digamma(params.a), axis=0),
        "b": np.sum(common + digamma(params.b + s.n - s.ones) - digamma(params.b), axis=0),
    }


def _check_values(params: Any, values: np.ndarray) -> None:
    bad = (values != 0) & (values != 1)
    if np.any(bad):
        row, column = np.argwhere(bad)[0]
        raise ValueError(f"binary columns must be 0 or 1, got {values[row, column]} in row {row}")


def _draw(rng: np.random.Generator, params: Any, s: Any) -> dict[str, np.ndarray]:
    return {"probability": rng.beta(params.a + s.ones, params.b + s.n - s.ones)}


def _draw_rows(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, given: np.ndarray
) -> np.ndarray:
    probability = drawn["probability"][labels]
    return (rng.random(probability.shape) < probability).astype(np.float64)


def _log_density(drawn: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    # Draws can be 0 or 1 to working precision; products with a zero are then not a number.
    p = np.clip(drawn["probability"], np.finfo(np.float64).tiny, 1.0)
    ones = np.nan_to_num(values, nan=0.0)
    zeros = np.where(np.isnan(values), 0.0, 1.0 - ones)
    return ones @ np.log(p).T + zeros @ np.log(np.maximum(1.0 - p, np.finfo(np.float64).tiny)).T


COMPONENT = Component(axes={"probability": "d"}, draw=_draw, draw_rows=_draw_rows, log_density=_log_density)

FAMILY = Family(
    name="BetaBernoulli",
    axes={"a": "d", "b": "d"},
    check=check_positive,
    check_values=_check_values,
    sums={"ones": "d"},
    update=_update,
    log_evidence=_log_evidence,
    gradient=_gradient,
    tables={"norms": "n"},
    tabulate=_tabulate,
    cache={"logit": "d", "of_zeros": ""},
    refresh=_refresh,
    log_predictive=_log_predictive,
    log_predictive_without=_log_predictive_without,
    component=COMPONENT,
    from_data=lambda rows: {"a": np.ones(rows.shape[1]), "b": np.ones(rows.shape[1])},
)


def _represent_incomplete(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    return beta_binomial.represent(params, missing_as_nothing(np.hstack([values, np.ones_like(values)])))


# One trial, or none where an entry is missing.
FAMILY = replace(
    FAMILY,
    incomplete=replace(
        beta_binomial.FAMILY,
        name="IncompleteBetaBernoulli",
        takes_missing=True,
        check_values=lambda params, values: _check_values(params, np.where(np.isnan(values), 0.0, values)),
        represent=_represent_incomplete,
        component=replace(COMPONENT, draw=beta_binomial.draw),
        given={},
        incomplete=None,
    ),
)


class BetaBernoulli(BaseMeasure):
    """Base measure of binary columns that are independent within a cluster, for (n,) or (n, d) data of 0 and 1.

    ``p ~ Beta(a, b)`` for each cluster and column. A scalar parameter serves all columns.

    Parameters
    ----------
    a, b : scalar or (d,) array_like or variable, > 0
        Prior numbers of ones and zeros.

    Notes
    -----
    ``from_data`` takes a = b = 1: uniform probabilities.
    """

    family = FAMILY

    def __init__(self, a: Any, b: Any) -> None:
        super().__init__(a=a, b=b)
