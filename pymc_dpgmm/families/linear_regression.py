r"""A linear regression in each cluster: normal-inverse-gamma coefficients and variance.

.. math:: s^2 \sim \mathrm{InverseGamma}(a, b), \qquad \beta \mid s^2 \sim N(\mu, s^2 \Lambda^{-1}), \qquad
          y_i \mid \beta, s^2 \sim N(x_i' \beta, s^2)

with known covariates x of length p. For the n rows of a cluster

.. math:: \Lambda_n = \Lambda + X'X, \quad \mu_n = \Lambda_n^{-1} (\Lambda \mu + X'y), \quad a_n = a + n / 2, \quad
          b_n = b + \tfrac12 |y - X \mu_n|^2 + \tfrac12 (\mu_n - \mu)' \Lambda (\mu_n - \mu)

(Gelman et al. 2013, section 14.8; Denison et al. 2002, section 2.4). The predictive is a t with :math:`2 a_n`
degrees of freedom, location :math:`x' \mu_n` and squared scale :math:`b_n (1 + x' \Lambda_n^{-1} x) / a_n`.

Rows hold y, less its fit by one regression of all rows so that sums of squares keep their digits, then the
covariates. Stats keep the inverse of the Cholesky factor of :math:`\Lambda_n`. What subtraction leaves of
:math:`b_n` has 16 digits less twice those by which the fitted values of a cluster, after that one regression,
exceed its residuals.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln
from scipy.special import psi as digamma

from pymc_dpgmm.cholesky import cholesky_in_place, invert_lower_in_place, lower_product, rank_one_inverse
from pymc_dpgmm.dispatch import FASTMATH, compiled, implements
from pymc_dpgmm.families import verbs
from pymc_dpgmm.families.base_measure import BaseMeasure, is_variable
from pymc_dpgmm.families.component import Component
from pymc_dpgmm.families.shares import ROUNDING, WORST_ERROR, log_share
from pymc_dpgmm.families.slots import slotted
from pymc_dpgmm.families.verbs import Family


class Params(NamedTuple):
    """Parameters of the base measure: ``mu`` (p,), ``precision`` (p, p), ``a`` and ``b`` > 0."""

    mu: np.ndarray
    precision: np.ndarray
    a: float
    b: float


@slotted("size", "gram", "cross", "squares")
class Summary(NamedTuple):
    """Number of rows, X'X, X'y and y'y of each cluster: (K,), (K, p, p), (K, p), (K,)."""

    size: np.ndarray
    gram: np.ndarray
    cross: np.ndarray
    squares: np.ndarray


@slotted("size", "mean", "factor", "log_det", "squares", "constant", "error")
class Stats(NamedTuple):
    """Cached predictives: the arrays of ``capacity`` slots and what they share. ``squares`` is b_n."""

    mu: np.ndarray
    precision: np.ndarray
    a: float
    b: float
    log_det_precision: float
    size: np.ndarray
    mean: np.ndarray
    factor: np.ndarray
    log_det: np.ndarray
    squares: np.ndarray
    constant: np.ndarray
    error: np.ndarray
    norms: np.ndarray
    work: np.ndarray


def _log_norms(params: Params, n: int) -> np.ndarray:
    """Normalising constants of the predictive given 0..n rows: (n + 1,)."""
    a_n = params.a + 0.5 * np.arange(n + 1.0)
    return gammaln(a_n + 0.5) - gammaln(a_n) - 0.5 * math.log(2.0 * math.pi)


@implements(verbs.summarize, Summary)
def _(summary, k, rows, members):
    p = rows.shape[1] - 1
    gram = summary.gram[k]
    cross = summary.cross[k]
    summary.size[k] = members.shape[0]
    summary.squares[k] = 0.0
    for i in range(p):
        cross[i] = 0.0
        for j in range(p):
            gram[i, j] = 0.0
    for row in members:
        y = rows[row, 0]
        summary.squares[k] += y * y
        for i in range(p):
            x = rows[row, 1 + i]
            cross[i] += x * y
            for j in range(i + 1):
                gram[i, j] += x * rows[row, 1 + j]
    for i in range(p):
        for j in range(i):
            gram[j, i] = gram[i, j]


@implements(verbs.combine, Summary)
def _(summary, k, j):
    p = summary.cross.shape[1]
    summary.size[k] += summary.size[j]
    summary.squares[k] += summary.squares[j]
    for row in range(p):
        summary.cross[k, row] += summary.cross[j, row]
        for column in range(p):
            summary.gram[k, row, column] += summary.gram[j, row, column]


@compiled()
def _solve(mu, precision, gram, cross, factor, mean, work):
    """Set ``factor`` to the inverse factor of Lambda_n and ``mean`` to mu_n; return log |Lambda_n|."""
    p = mu.shape[0]
    for i in range(p):
        for j in range(p):
            factor[i, j] = precision[i, j] + gram[i, j]
    cholesky_in_place(factor)
    invert_lower_in_place(factor)
    log_det = 0.0
    # mu_n - mu = inv(Lambda_n) (X'y - X'X mu).
    for i in range(p):
        log_det -= 2.0 * math.log(factor[i, i])
        mean[i] = cross[i]
        for j in range(p):
            mean[i] -= gram[i, j] * mu[j]
    lower_product(factor, mean, work)
    for i in range(p):
        mean[i] = mu[i]
        for j in range(i, p):
            mean[i] += factor[j, i] * work[j]
    return log_det


@compiled()
def _sum_of_squares(mu, precision, b, gram, cross, squares, mean):
    """b_n, given mu_n."""
    total = squares
    p = mu.shape[0]
    for i in range(p):
        total -= 2.0 * mean[i] * cross[i]
        for j in range(p):
            total += mean[i] * gram[i, j] * mean[j]
            total += (mean[i] - mu[i]) * precision[i, j] * (mean[j] - mu[j])
    return b + 0.5 * max(total, 0.0)


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    mean = stats.mean[k]
    gram, cross = summary.gram[j], summary.cross[j]
    stats.log_det[k] = _solve(stats.mu, stats.precision, gram, cross, stats.factor[k], mean, stats.work[0])
    stats.squares[k] = _sum_of_squares(stats.mu, stats.precision, stats.b, gram, cross, summary.squares[j], mean)
    stats.size[k] = summary.size[j]
    stats.error[k] = 0.0
    stats.constant[k] = stats.norms[stats.size[k]] - 0.5 * math.log(stats.squares[k])


@compiled(_nrt=False, forceinline=True, fastmath=FASTMATH)
def _fitted(mean, x):
    """Value of a regression at the covariates of a row."""
    total = 0.0
    for i in range(mean.shape[0]):
        total += mean[i] * x[1 + i]
    return total


@compiled(_nrt=False, forceinline=True, fastmath=FASTMATH)
def _leverage(factor, x):
    """``x' inv(Lambda_n) x`` for the covariates of a row."""
    total = 0.0
    for i in range(factor.shape[0]):
        root = 0.0
        for j in range(i + 1):
            root += factor[i, j] * x[1 + j]
        total += root * root
    return total


@compiled()
def _change(stats, k, x, sign):
    """Add (1) or remove (-1) a row's share of a slot; return the shares of determinant and b_n that are left."""
    p = stats.mu.shape[0]
    root, work = stats.work[0], stats.work[1]
    factor, mean = stats.factor[k], stats.mean[k]
    lower_product(factor, x[1:], root)
    left = 1.0
    for i in range(p):
        left += sign * root[i] * root[i]
    left = max(left, ROUNDING)
    residual = x[0] - _fitted(mean, x)
    # inv(Lambda_n) x is inv(L)' inv(L) x, with the factor before its change.
    for j in range(p):
        step = 0.0
        for i in range(j, p):
            step += factor[i, j] * root[i]
        mean[j] += sign * step * residual / left
    changed = max(1.0 + sign * 0.5 * residual * residual / (left * stats.squares[k]), ROUNDING)
    rank_one_inverse(factor, root, sign, 1.0, work)
    stats.squares[k] *= changed
    stats.log_det[k] += math.log(left)
    return left, changed


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    _change(stats, k, x, 1.0)
    stats.size[k] += 1
    stats.error[k] += ROUNDING
    stats.constant[k] = stats.norms[stats.size[k]] - 0.5 * math.log(stats.squares[k])


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    left, changed = _change(stats, k, x, -1.0)
    share = left * changed
    # There is no early return: see families/shares.py on branches. A slot that was not to be changed is undefined.
    good = stats.error[k] + ROUNDING <= WORST_ERROR * share
    stats.size[k] -= 1
    stats.error[k] = (stats.error[k] + ROUNDING) / share
    stats.constant[k] = stats.norms[stats.size[k]] - 0.5 * math.log(stats.squares[k])
    return good


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    spread = 1.0 + _leverage(stats.factor[k], x)
    residual = x[0] - _fitted(stats.mean[k], x)
    exponent = stats.a + 0.5 * (stats.size[k] + 1.0)
    argument = 1.0 + 0.5 * residual * residual / (spread * stats.squares[k])
    return stats.constant[k] - 0.5 * math.log(spread) - exponent * math.log(argument)


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    x = rows[i]
    # A ratio of two marginal likelihoods: |Lambda_{n-1}| = |Lambda_n| left, and
    # b_{n-1} = b_n - (y - x' mu_n)^2 / (2 left).
    n = stats.size[k]
    left = 1.0 - _leverage(stats.factor[k], x)
    residual = x[0] - _fitted(stats.mean[k], x)
    share = 1.0 - 0.5 * residual * residual / (left * stats.squares[k])
    constant = stats.norms[n - 1] - 0.5 * math.log(stats.squares[k])
    return constant + 0.5 * log_share(left) + (stats.a + 0.5 * (n - 1.0)) * log_share(share)


@compiled()
def _log_evidence(a, b, log_det_precision, n, log_det, squares):
    a_n = a + 0.5 * n
    return (
        math.lgamma(a_n)
        - math.lgamma(a)
        + a * math.log(b)
        - a_n * math.log(squares)
        + 0.5 * (log_det_precision - log_det)
        - 0.5 * n * math.log(2.0 * math.pi)
    )


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    return _log_evidence(
        stats.a, stats.b, stats.log_det_precision, stats.size[k], stats.log_det[k], stats.squares[k]
    )


@implements(verbs.log_marginal_likelihood, Params)
def _(params, summary):
    factor, mean, work = params.precision.copy(), params.mu.copy(), params.mu.copy()
    nothing, nowhere = np.zeros_like(params.precision), np.zeros_like(params.mu)
    log_det_precision = _solve(params.mu, params.precision, nothing, nowhere, factor, mean, work)
    total = 0.0
    for k in range(summary.size.shape[0]):
        gram, cross = summary.gram[k], summary.cross[k]
        log_det = _solve(params.mu, params.precision, gram, cross, factor, mean, work)
        squares = _sum_of_squares(params.mu, params.precision, params.b, gram, cross, summary.squares[k], mean)
        total += _log_evidence(params.a, params.b, log_det_precision, summary.size[k], log_det, squares)
    return total


def _posterior(params: Params, summary: Summary) -> tuple[np.ndarray, ...]:
    """Return inverses of Lambda_n (K, p, p), mu_n (K, p), a_n and b_n (K,)."""
    inverse = np.linalg.inv(params.precision + summary.gram)
    moved = np.einsum("kij,kj->ki", inverse, summary.cross - summary.gram @ params.mu)
    mean = params.mu + moved
    squares = (
        summary.squares
        - 2.0 * np.sum(mean * summary.cross, axis=1)
        + np.einsum("ki,kij,kj->k", mean, summary.gram, mean)
        + np.einsum("ki,ij,kj->k", moved, params.precision, moved)
    )
    return inverse, mean, params.a + 0.5 * summary.size, params.b + 0.5 * np.maximum(squares, 0.0)


@implements(verbs.log_marginal_gradient, Params)
def _(params, summary):
    # b_n is a minimum over the coefficients attained at mu_n: in mu and Lambda only the explicit dependence of
    # (m - mu)' Lambda (m - mu) / 2 counts (envelope theorem).
    inverse, mean, a_n, b_n = _posterior(params, summary)
    moved, pull = mean - params.mu, a_n / b_n
    n_clusters = len(summary.size)
    return Params(
        mu=params.precision @ (pull @ moved),
        precision=0.5
        * (
            n_clusters * np.linalg.inv(params.precision)
            - inverse.sum(axis=0)
            - np.einsum("k,ki,kj->ij", pull, moved, moved)
        ),
        a=np.sum(digamma(a_n) - digamma(params.a) + np.log(params.b / b_n)),
        b=np.sum(params.a / params.b - pull),
    )


@implements(verbs.data_gradient, Params)
def _(params, summary, rows, labels):
    # Covariates are given, not modelled: their columns have no gradient.
    _, mean, a_n, b_n = _posterior(params, summary)
    gradient = np.zeros_like(rows)
    fitted = np.sum(rows[:, 1:] * mean[labels], axis=1)
    gradient[:, 0] = -(a_n / b_n)[labels] * (rows[:, 0] - fitted)
    return gradient


def _check(name: str, value: np.ndarray) -> None:
    if not np.all(np.isfinite(value)):
        raise ValueError(f"{name} must be finite, got {value}")
    if name in ("a", "b") and not value > 0:
        raise ValueError(f"{name} must be > 0, got {value}")
    if name == "precision":
        if np.abs(value - value.T).max() > 1e-10 * np.abs(value).max():
            raise ValueError(f"precision must be symmetric, got {value.tolist()}")
        try:
            np.linalg.cholesky(value)
        except np.linalg.LinAlgError:
            raise ValueError(f"precision must be positive definite, got {value.tolist()}") from None


def _represent(params: Params, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    origin = np.linalg.lstsq(values[:, 1:], values[:, 0], rcond=None)[0]
    rows = np.array(values, dtype=np.float64, order="C")
    rows[:, 0] -= rows[:, 1:] @ origin
    return rows, origin


def _shift(params: Params, origin: np.ndarray) -> Params:
    return params._replace(mu=params.mu - origin)


def _allocate_summary(params: Params, capacity: int) -> Summary:
    p = len(params.mu)
    return Summary(
        size=np.zeros(capacity, dtype=np.int64),
        gram=np.zeros((capacity, p, p)),
        cross=np.zeros((capacity, p)),
        squares=np.zeros(capacity),
    )


def _allocate_stats(params: Params, n: int, capacity: int) -> Stats:
    p = len(params.mu)
    return Stats(
        mu=np.ascontiguousarray(params.mu, dtype=np.float64),
        precision=np.ascontiguousarray(params.precision, dtype=np.float64),
        a=float(params.a),
        b=float(params.b),
        log_det_precision=float(np.linalg.slogdet(params.precision)[1]),
        size=np.zeros(capacity, dtype=np.int64),
        mean=np.zeros((capacity, p)),
        factor=np.zeros((capacity, p, p)),
        log_det=np.zeros(capacity),
        squares=np.ones(capacity),
        constant=np.zeros(capacity),
        error=np.zeros(capacity),
        norms=_log_norms(params, n),
        work=np.zeros((2, p)),
    )


def _draw(rng: np.random.Generator, params: Params, summary: Summary) -> dict[str, np.ndarray]:
    inverse, mean, a_n, b_n = _posterior(params, summary)
    variance = b_n / rng.standard_gamma(a_n)
    noise = np.sqrt(variance)[:, None] * rng.standard_normal(mean.shape)
    return {
        "coefficients": mean + np.einsum("kij,kj->ki", np.linalg.cholesky(inverse), noise),
        "variance": variance,
    }


def _draw_rows(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, given: np.ndarray
) -> np.ndarray:
    noise = np.sqrt(drawn["variance"])[labels] * rng.standard_normal(len(labels))
    return (np.sum(given * drawn["coefficients"][labels], axis=1) + noise)[:, None]


def _log_density(drawn: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    residual, variance = values[:, :1] - values[:, 1:] @ drawn["coefficients"].T, drawn["variance"]
    return -0.5 * (residual**2 / variance + np.log(2.0 * math.pi * variance))


def _restore(drawn: dict[str, np.ndarray], origin: np.ndarray) -> dict[str, np.ndarray]:
    return drawn | {"coefficients": drawn["coefficients"] + origin}


FAMILY = Family(
    name="LinearRegression",
    params=Params,
    axes={"mu": "p", "precision": "pp", "a": "", "b": ""},
    check=_check,
    allocate_summary=_allocate_summary,
    allocate_stats=_allocate_stats,
    represent=_represent,
    shift=_shift,
    component=Component(
        axes={"coefficients": "p", "variance": ""},
        draw=_draw,
        draw_rows=_draw_rows,
        log_density=_log_density,
        restore=_restore,
    ),
    given={"covariates": "p"},
    takes=(1,),
)


class LinearRegression(BaseMeasure):
    """Base measure of clusters that each have a linear regression of their own, for (n,) data.

    ``s2 ~ InverseGamma(a, b)`` with mean ``b / (a - 1)``, coefficients ``beta ~ N(mu, s2 inv(precision))`` and
    ``y ~ N(covariates @ beta, s2)`` in each cluster.

    Parameters
    ----------
    mu : scalar or (p,) array_like or variable
        Prior mean of the coefficients.
    precision : scalar, (p,) or (p, p) array_like or variable
        Prior precision of the coefficients relative to that of a row: a number, the diagonal, or a symmetric
        positive definite matrix.
    a, b : scalar or variable, > 0
        Shape and scale of the variance's prior.
    covariates : (n,) or (n, p) array_like or pm.Data
        Known covariates of each row; a column of ones is an intercept.
    """

    family = FAMILY

    def __init__(self, mu: Any, precision: Any, a: Any, b: Any, covariates: Any) -> None:
        shape = np.shape(covariates.get_value() if is_variable(covariates) else covariates)
        if len(shape) not in (1, 2):
            raise ValueError(f"covariates must be (n,) or (n, p), got shape {shape}")
        p = 1 if len(shape) == 1 else shape[1]
        if not is_variable(precision):
            precision = np.asarray(precision)
        if precision.ndim < 2:
            precision = precision * np.eye(p)
        super().__init__(given={"covariates": covariates}, mu=mu, precision=precision, a=a, b=b)
