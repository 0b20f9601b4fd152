r"""Rows with a known variance each: the normal family with a normal prior of the cluster's mean.

For each column :math:`m \sim N(\mu, \tau^2)` and :math:`x_i \sim N(m, v_i)` with :math:`v_i` known. With the
precisions :math:`w_i = 1 / v_i` of a cluster's rows, :math:`W = \sum w_i`, :math:`\bar x = \sum w_i x_i / W` and
:math:`Q = \sum w_i (x_i - \bar x)^2`, its mean is normal with the precision :math:`1 / \tau^2 + W`, and the rows
have the log density

.. math:: \tfrac12 \sum_i \log \frac{w_i}{2 \pi} - \tfrac12 \log(1 + \tau^2 W)
          - \tfrac12 Q - \frac{W (\bar x - \mu)^2}{2 (1 + \tau^2 W)}

(Murphy 2007, eqs 20-29, by column and with weights). Q is the difference of the sums of w x^2 and of W mean^2,
with values about the mean of all rows: the sums must be totals for variational inference. So data whose errors are
a millionth of its spread, or less for many rows, is refused.

Rows hold values, precisions (both 0 where an entry is missing), and the sum of log(w / 2 pi) / 2.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import (
    Component,
    DrawnValues,
    if_present,
    normal_cdf,
    restore_mean,
)
from pymc_dpgmm.families.contract.defaults import column_means, column_variances
from pymc_dpgmm.families.contract.expected import LinearExpectation
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import positive, real, refuse_where
from pymc_dpgmm.families.shared.gaps import taking_gaps
from pymc_dpgmm.families.shared.origins import column_means_or_zero, refuse_lost_digits, shift_mean

# The products of columns of which the logarithm is taken once, unless they exceed this number.
_LARGEST = 1e300


def _update(p, n, s, x, sign):
    share = 1.0
    for j in range(p.d):
        weight = sign * x[p.d + j]
        before = 1.0 + p.tau2[j] * s.precision[j]
        s.precision[j] = max(s.precision[j] + weight, 0.0)
        s.weighted[j] += weight * x[j]
        s.squares[j] = max(s.squares[j] + weight * x[j] * x[j], 0.0)
        share = min(share, (1.0 + p.tau2[j] * s.precision[j]) / before)
    s.constant[0] += sign * x[2 * p.d]
    return share


def _log_evidence(p, n, s):
    total = s.constant[0]
    for j in range(p.d):
        if s.precision[j] > 0.0:
            growth = 1.0 + p.tau2[j] * s.precision[j]
            mean = s.weighted[j] / s.precision[j]
            about = max(s.squares[j] - s.weighted[j] * mean, 0.0)
            offset = mean - p.mu[j]
            total -= 0.5 * (math.log(growth) + about + s.precision[j] / growth * offset * offset)
    return total


def _refresh(p, n, s, c):
    for j in range(p.d):
        c.precision[j] = 1.0 / p.tau2[j] + s.precision[j]
        c.mean[j] = (p.mu[j] / p.tau2[j] + s.weighted[j]) / c.precision[j]


def _log_predictive(p, n, s, c, x):
    product = 1.0
    total = x[2 * p.d]
    for j in range(p.d):
        deviation = x[j] - c.mean[j]
        growth = 1.0 + x[p.d + j] / c.precision[j]
        total -= 0.5 * x[p.d + j] / growth * deviation * deviation
        product *= growth
    if product < _LARGEST:
        return total, 0.5, product
    for j in range(p.d):
        total -= 0.5 * math.log(1.0 + x[p.d + j] / c.precision[j])
    return total, 0.0, 1.0


def _posterior(params: Any, s: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and the precisions of the clusters' means given their rows: (K, d) each."""
    precision = 1.0 / params.tau2 + s.precision
    return (params.mu / params.tau2 + s.weighted) / precision, precision


def _gradient(params: Any, s: Any) -> DrawnValues:
    # The derivatives of the log density above, in which W (mean - mu) is the weighted sum less W mu.
    growth = 1.0 + params.tau2 * s.precision
    residual = (s.weighted - params.mu * s.precision) / growth
    return {
        "mu": np.sum(residual, axis=0),
        "tau2": 0.5 * np.sum(residual**2 - s.precision / growth, axis=0),
    }


def _expected(params: Any, s: Any) -> LinearExpectation:
    mean, precision = _posterior(params, s)
    factors = {
        "precision": -0.5 * (mean**2 + 1.0 / precision),
        "weighted": mean,
        "squares": np.full(mean.shape, -0.5),
        "constant": np.ones(len(s.n)),
    }
    return LinearExpectation(np.zeros(len(s.n)), factors)


def _draw(rng: np.random.Generator, params: Any, s: Any) -> DrawnValues:
    mean, precision = _posterior(params, s)
    return {"mean": mean + rng.standard_normal(mean.shape) / np.sqrt(precision)}


def _draw_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    mean = drawn["mean"][labels]
    return mean + np.sqrt(given) * rng.standard_normal(mean.shape)


def _cdf(drawn: DrawnValues, values: np.ndarray, j: int, points: np.ndarray) -> np.ndarray:
    deviation = np.sqrt(np.hsplit(values, 2)[1][:, [j]])
    return normal_cdf(points, drawn["mean"][None, :, j], deviation)


def _log_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    rows, variances = np.hsplit(values, 2)
    total = np.zeros((len(values), len(drawn["mean"])))
    for x, variance, mean in zip(rows.T, variances.T[:, :, None], drawn["mean"].T, strict=True):
        total += if_present(x, -0.5 * ((x[:, None] - mean) ** 2 / variance + np.log(2.0 * math.pi * variance)))
    return total


def _check_values(params: Any, values: np.ndarray) -> None:
    rows, variance = np.hsplit(values, 2)
    refuse_where(~(variance > 0), "variance must be > 0", variance)
    refuse_lost_digits((rows - column_means_or_zero(rows)) ** 2 / variance)


def _represent(params: Any, values: np.ndarray, origin: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    rows, variance = np.hsplit(values, 2)
    present, is_part = ~np.isnan(rows), origin is not None
    origin = column_means_or_zero(rows) if origin is None else origin
    rows = np.where(present, rows - origin, 0.0)
    precision = np.where(present, 1.0 / variance, 0.0)
    if is_part:
        # The checks of a part of the rows do not know where the others are.
        refuse_lost_digits(rows**2 * precision)
    logs = np.log(np.where(present, precision, 1.0) / (2.0 * math.pi))
    constant = 0.5 * np.sum(np.where(present, logs, 0.0), axis=1)
    return np.column_stack([rows, precision, constant]), origin


def _from_data(rows: np.ndarray, variance: np.ndarray | float = 1.0) -> dict[str, np.ndarray | float]:
    return {"mu": column_means(rows), "tau2": column_variances(rows)}


class NormalKnownVariance(BaseMeasure):
    """Base measure of rows that are normal with a known variance each, for (n,) or (n, d) data.

    Each cluster and column has a mean ``m ~ N(mu, tau2)``, and row i is ``x ~ N(m, variance[i])``: the estimate of
    a study with its squared standard error, or a measurement with its error. Columns are independent within a
    cluster. A scalar parameter applies to all columns.

    Parameters
    ----------
    mu : scalar or (d,) array_like or variable
        Prior mean of the means.
    tau2 : scalar or (d,) array_like or variable, > 0
        Prior variance of the means.
    variance : scalar, (n,), (1, d) or (n, d) array_like or pm.Data, > 0
        Known variance of each row, the same for all columns or one for each: squares of standard errors.

    Notes
    -----
    ``from_data(data, variance=...)`` sets mu and tau2 to the means and variances of the columns.

    The true values of rows, their effects, have a discrete distribution, of which the clusters' means are the
    atoms: ``dp.component_draws`` draws them, and ``dp.density(..., given={"variance": h**2})`` is their density,
    smoothed by a normal with standard deviation h. Where errors of several columns are correlated, use
    :class:`NormalKnownCovariance`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dpgmm as dp
    >>> import pymc as pm
    >>> effects, errors = np.array([-0.3, -0.2, 0.9, 1.1]), np.array([0.2, 0.3, 0.2, 0.4])
    >>> with pm.Model():
    ...     tau = pm.HalfNormal("tau", 1.0)
    ...     base = dp.NormalKnownVariance(mu=0.0, tau2=tau**2, variance=errors**2)
    ...     y = dp.DPMixture("y", 1.0, base, observed=effects)
    """

    family = taking_gaps(
        Family(
            name="NormalKnownVariance",
            parameters={"mu": real("d"), "tau2": positive("d")},
            check_values=_check_values,
            sums={"precision": "d", "weighted": "d", "squares": "d", "constant": ""},
            update=_update,
            log_evidence=_log_evidence,
            gradient=_gradient,
            predictive=lambda params, s: {"mean": _posterior(params, s)[0]},
            expected=_expected,
            cache={"precision": "d", "mean": "d"},
            refresh=_refresh,
            log_predictive=_log_predictive,
            represent=_represent,
            shift=shift_mean,
            component=Component(
                axes={"mean": "d"},
                draw=_draw,
                draw_rows=_draw_rows,
                log_density=_log_density,
                restore=restore_mean,
                mean=lambda drawn, values: drawn["mean"][None],
                cdf=_cdf,
            ),
            given={"variance": "d"},
            from_data=_from_data,
        )
    )

    def __init__(self, mu: Any, tau2: Any, variance: Any) -> None:
        super().__init__(given={"variance": variance}, mu=mu, tau2=tau2)
