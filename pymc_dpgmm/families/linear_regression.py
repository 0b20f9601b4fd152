r"""A linear regression in each cluster: normal-inverse-gamma coefficients and variance.

.. math:: s^2 \sim \mathrm{InverseGamma}(a, b), \qquad \beta \mid s^2 \sim N(\mu, s^2 \Lambda^{-1}), \qquad
          y_i \mid \beta, s^2 \sim N(x_i' \beta, s^2)

with known covariates x of length p. For the n rows of a cluster

.. math:: \Lambda_n = \Lambda + X'X, \quad \mu_n = \Lambda_n^{-1} (\Lambda \mu + X'y), \quad a_n = a + n / 2, \quad
          b_n = b + \tfrac12 |y - X \mu_n|^2 + \tfrac12 (\mu_n - \mu)' \Lambda (\mu_n - \mu)

(Gelman et al. 2013, section 14.8; Denison et al. 2002, section 2.4). The predictive is a t with :math:`2 a_n`
degrees of freedom, location :math:`x' \mu_n` and squared scale :math:`b_n (1 + x' \Lambda_n^{-1} x) / a_n`.

Rows hold y minus its fit by one regression of all rows, which keeps the digits of sums of squares, then the
covariates. The cache holds the inverse of the Cholesky factor of :math:`\Lambda_n`. Subtraction leaves :math:`b_n`
16 digits minus 2 for every factor of 10 by which the fitted values of a cluster, after that one regression, exceed
its residuals.
"""

import math
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, DrawnValues, draw_gammas, normal_cdf
from pymc_dpgmm.families.contract.expected import LinearExpectation, as_packed, expected_log_variance
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import positive, positive_definite, real
from pymc_dpgmm.families.shared.gamma import gradient_in_gamma, log_gamma_ratio, log_t_norms
from pymc_dpgmm.families.shared.origins import shift_mean
from pymc_dpgmm.native.arithmetic import fast_log
from pymc_dpgmm.native.compiled import inlined, shifted
from pymc_dpgmm.native.triangles import (
    add_outer_product,
    cholesky_in_place,
    factors,
    invert_in_place,
    lower_product,
    pack,
    rank_one_inverse,
    scalar_product,
    squared_length,
    symmetric_entry,
    unpacked,
    upper_entry,
)
from pymc_dpgmm.tables.checks import is_variable
from pymc_dpgmm.tables.reading import columns_as_frame, names_of_axes

# If removing a row leaves a smaller share of |Lambda_n| than this, too few digits are left.
_SMALLEST_SHARE = 1e-8


@inlined
def _update(p, n, s, x, sign):
    y, covariates = x[0], shifted(x, 1)
    before = s.squares[0]
    s.squares[0] = max(before + sign * y * y, 0.0)
    for i in range(p.p):
        s.cross[i] += sign * covariates[i] * y
    add_outer_product(s.gram, sign, covariates, p.p)
    return (p.b + s.squares[0]) / (p.b + before) if sign < 0.0 else 1.0


@inlined
def _solve(p, s, c):
    """Set ``c.factor`` to the inverse factor of Lambda_n, ``c.mean`` to mu_n, ``c.squares`` to b_n."""
    at = 0
    for i in range(p.p):
        for j in range(i + 1):
            c.factor[at + j] = p.precision[i * p.p + j] + s.gram[at + j]
        at += i + 1
    c.half_log_det[0] = cholesky_in_place(c.factor, p.p)
    invert_in_place(c.factor, p.p, 1.0)
    # mu_n - mu = inv(Lambda_n) (X'y - X'X mu).
    for i in range(p.p):
        c.mean[i] = s.cross[i] - symmetric_entry(s.gram, p.mu, i, p.p)
    lower_product(c.factor, c.mean, c.root, p.p)
    for i in range(p.p):
        c.mean[i] = p.mu[i] + upper_entry(c.factor, c.root, i, p.p)
    total = s.squares[0]
    for i in range(p.p):
        total += c.mean[i] * (symmetric_entry(s.gram, c.mean, i, p.p) - 2.0 * s.cross[i])
        for j in range(p.p):
            total += (c.mean[i] - p.mu[i]) * p.precision[i * p.p + j] * (c.mean[j] - p.mu[j])
    c.squares[0] = p.b + 0.5 * max(total, 0.0)


@inlined
def _kept_evidence(p, n, s, c):
    return (
        log_gamma_ratio(p.a, p.b, 0.5 * n, c.squares[0])
        + p.half_log_det_precision
        - c.half_log_det[0]
        - 0.5 * n * math.log(2.0 * math.pi)
    )


def _log_evidence(p, n, s, c):
    _solve(p, s, c)
    return _kept_evidence(p, n, s, c)


def _refresh(p, n, s, c):
    _solve(p, s, c)
    c.constant[0] = p.norms[int(n)] - 0.5 * math.log(c.squares[0])


@inlined
def _residual(p, c, x):
    """Return y minus the value of a cluster's regression."""
    return x[0] - scalar_product(c.mean, shifted(x, 1), p.p)


def _change(p, n, s, c, x, sign):
    _update(p, n, s, x, sign)
    lower_product(c.factor, shifted(x, 1), c.root, p.p)
    det_ratio = max(1.0 + sign * scalar_product(c.root, c.root, p.p), 1e-15)
    residual = _residual(p, c, x)
    # inv(Lambda_n) x is inv(L)' inv(L) x, with the factor before its change.
    for j in range(p.p):
        c.mean[j] += sign * upper_entry(c.factor, c.root, j, p.p) * residual / det_ratio
    squares_ratio = max(1.0 + sign * 0.5 * residual * residual / (det_ratio * c.squares[0]), 1e-15)
    rank_one_inverse(c.factor, c.root, sign, 1.0, c.work, p.p)
    c.squares[0] *= squares_ratio
    c.half_log_det[0] += 0.5 * math.log(det_ratio)
    c.constant[0] = p.norms[int(n + sign)] - 0.5 * math.log(c.squares[0])
    return det_ratio * squares_ratio


def _log_predictive(p, n, s, c, x):
    spread = 1.0 + squared_length(c.factor, shifted(x, 1), p.p)
    residual = _residual(p, c, x)
    argument = 1.0 + 0.5 * residual * residual / (spread * c.squares[0])
    return c.constant[0] - 0.5 * fast_log(spread), p.a + 0.5 * (n + 1.0), argument


def _log_predictive_without(p, n, s, c, x):
    # A ratio of two marginal likelihoods: |Lambda_{n-1}| = |Lambda_n| det_ratio, and
    # b_{n-1} = b_n - (y - x' mu_n)^2 / (2 det_ratio).
    det_ratio = 1.0 - squared_length(c.factor, shifted(x, 1), p.p)
    residual = _residual(p, c, x)
    share = 1.0 - 0.5 * residual * residual / (det_ratio * c.squares[0])
    constant = p.norms[int(n) - 1] - 0.5 * math.log(c.squares[0]) + 0.5 * fast_log(det_ratio)
    return constant, -(p.a + 0.5 * (n - 1.0)), share if det_ratio > _SMALLEST_SHARE else math.nan


def _constants(params: Any) -> dict[str, Any]:
    return {"half_log_det_precision": 0.5 * np.linalg.slogdet(params.precision)[1]}


def _derive(p, t, scratch):
    pack(p.precision, p.p, scratch)
    t.half_log_det_precision[0] = cholesky_in_place(scratch, p.p)
    return True


def _tabulate(params: Any, n: int) -> dict[str, Any]:
    return _constants(params) | {"norms": log_t_norms(params.a + 0.5 * np.arange(n + 1.0))}


def _posterior(params: Any, s: Any) -> tuple[np.ndarray, ...]:
    """Return the inverses of the factor of Lambda_n and of Lambda_n (K, p, p), mu_n (K, p), a_n and b_n (K,)."""
    gram = unpacked(s.gram)
    lower = factors(params.precision + gram)
    root = np.linalg.solve(lower, np.broadcast_to(np.eye(lower.shape[-1]), lower.shape))
    inverse = root.transpose(0, 2, 1) @ root
    moved = np.einsum("kij,kj->ki", inverse, s.cross - gram @ params.mu)
    mean = params.mu + moved
    squares = (
        s.squares
        - 2.0 * np.sum(mean * s.cross, axis=1)
        + np.einsum("ki,kij,kj->k", mean, gram, mean)
        + np.einsum("ki,ij,kj->k", moved, params.precision, moved)
    )
    return root, inverse, mean, params.a + 0.5 * s.n[:, 0], params.b + 0.5 * np.maximum(squares, 0.0)


def _predictive(params: Any, s: Any) -> DrawnValues:
    _, _, mean, a_n, b_n = _posterior(params, s)
    return {"coefficients": mean, "variance": b_n / a_n}


def _expected(params: Any, s: Any) -> LinearExpectation:
    # -1/2 E[(y - x' beta)^2 / s2] is linear in y^2, x y and x x'.
    _, inverse, mean, a_n, b_n = _posterior(params, s)
    precision = a_n / b_n
    constant = -0.5 * (expected_log_variance(a_n, b_n) + math.log(2.0 * math.pi))
    spread = precision[:, None, None] * mean[:, :, None] * mean[:, None, :] + inverse
    return LinearExpectation(
        constant,
        {"gram": -0.5 * as_packed(spread), "cross": precision[:, None] * mean, "squares": -0.5 * precision},
    )


def _gradient(params: Any, s: Any) -> DrawnValues:
    # b_n is a minimum over the coefficients attained at mu_n: in mu and Lambda only the explicit dependence of
    # (m - mu)' Lambda (m - mu) / 2 counts (envelope theorem).
    _, inverse, mean, a_n, b_n = _posterior(params, s)
    moved, precisions = mean - params.mu, a_n / b_n
    each = np.linalg.inv(params.precision) - inverse - np.einsum("k,ki,kj->kij", precisions, moved, moved)
    return gradient_in_gamma(params, a_n, b_n) | {
        "mu": params.precision @ (precisions @ moved),
        "precision": 0.5 * each.sum(axis=0),
    }


def _data_gradient(params: Any, s: Any, rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    # Covariates are known constants: their columns have no gradient.
    _, _, mean, a_n, b_n = _posterior(params, s)
    gradient = np.zeros_like(rows)
    fitted = np.sum(rows[:, 1:] * mean[labels], axis=1)
    gradient[:, 0] = -(a_n / b_n)[labels] * (rows[:, 0] - fitted)
    return gradient


def _represent(params: Any, values: np.ndarray, origin: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    origin = np.linalg.lstsq(values[:, 1:], values[:, 0], rcond=None)[0] if origin is None else origin
    rows = np.array(values, dtype=np.float64, order="C")
    rows[:, 0] -= rows[:, 1:] @ origin
    return rows, origin


def _draw(rng: np.random.Generator, params: Any, s: Any) -> DrawnValues:
    root, _, mean, a_n, b_n = _posterior(params, s)
    variance = b_n / draw_gammas(rng, a_n)
    noise = np.sqrt(variance)[:, None] * rng.standard_normal(mean.shape)
    coefficients = mean + np.einsum("kji,kj->ki", root, noise)
    return {"coefficients": coefficients, "variance": variance}


def _draw_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    noise = np.sqrt(drawn["variance"])[labels] * rng.standard_normal(len(labels))
    return (np.sum(given * drawn["coefficients"][labels], axis=1) + noise)[:, None]


def _log_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    residual, variance = values[:, :1] - values[:, 1:] @ drawn["coefficients"].T, drawn["variance"]
    return -0.5 * (residual**2 / variance + np.log(2.0 * math.pi * variance))


def _normal_rows(drawn: DrawnValues, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    means = drawn["coefficients"] @ values[:, 1:].T
    return means[:, :, None], 1.0 / np.sqrt(drawn["variance"])[:, None]


COMPONENT = Component(
    axes={"coefficients": "p", "variance": ""},
    draw=_draw,
    draw_rows=_draw_rows,
    log_density=_log_density,
    given_columns=_normal_rows,
    restore=lambda drawn, origin: drawn | {"coefficients": drawn["coefficients"] + origin},
    mean=lambda drawn, values: (values[:, 1:] @ drawn["coefficients"].T)[:, :, None],
    cdf=lambda drawn, values, j, points: normal_cdf(
        points, values[:, 1:] @ drawn["coefficients"].T, np.sqrt(drawn["variance"])[None]
    ),
)


class LinearRegression(BaseMeasure):
    """Base measure of clusters that each have their own linear regression, for (n,) data.

    Each cluster has a variance ``s2 ~ InverseGamma(a, b)`` with mean ``b / (a - 1)``, coefficients
    ``beta ~ N(mu, s2 inv(precision))``, and rows ``y ~ N(covariates @ beta, s2)``.

    Parameters
    ----------
    mu : scalar or (p,) array_like or variable
        Prior mean of the coefficients.
    precision : scalar, (p,) or (p, p) array_like or variable
        Prior precision of the coefficients relative to that of one row: a number, the diagonal, or a symmetric
        positive definite matrix.
    a, b : scalar or variable, > 0
        Shape and scale of the prior of the variance.
    covariates : (n,) or (n, p) array_like, frame, dict of columns, or pm.Data
        Known covariates of each row. A column of ones is an intercept.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> import numpy as np
    >>> import pymc as pm
    >>> covariates = np.column_stack([np.ones(4), [0.0, 1.0, 2.0, 3.0]])
    >>> with pm.Model():
    ...     base = dp.LinearRegression(mu=0.0, precision=0.1, a=2.0, b=1.0, covariates=covariates)
    ...     y = dp.DPMixture("y", 1.0, base, observed=[0.1, 0.9, 2.1, -5.0])
    """

    family = Family(
        name="LinearRegression",
        parameters={"mu": real("p"), "precision": positive_definite("pp"), "a": positive(), "b": positive()},
        sums={"gram": "P", "cross": "p", "squares": ""},
        update=_update,
        log_evidence=_log_evidence,
        kept_evidence=_kept_evidence,
        gradient=_gradient,
        predictive=_predictive,
        expected=_expected,
        data_gradient=_data_gradient,
        tables={"half_log_det_precision": "", "norms": "n"},
        tabulate=_tabulate,
        constants=_constants,
        derive=_derive,
        tabulated_by=("a",),
        cache={
            "factor": "P",
            "mean": "p",
            "root": "p",
            "work": "p",
            "squares": "",
            "half_log_det": "",
            "constant": "",
        },
        refresh=_refresh,
        change=_change,
        log_predictive=_log_predictive,
        log_predictive_without=_log_predictive_without,
        represent=_represent,
        shift=shift_mean,
        component=COMPONENT,
        given={"covariates": "p"},
        takes=(1,),
    )

    def __init__(self, mu: Any, precision: Any, a: Any, b: Any, covariates: Any) -> None:
        covariates = columns_as_frame(covariates)
        shape = np.shape(covariates.get_value() if is_variable(covariates) else covariates)
        if len(shape) not in (1, 2):
            raise ValueError(f"covariates must be (n,) or (n, p), got shape {shape}")
        p = 1 if len(shape) == 1 else shape[1]
        names = names_of_axes(precision)
        if not is_variable(precision):
            precision = np.asarray(precision)
        if precision.ndim < 2:
            if getattr(precision, "size", None) not in (None, 1, p):
                raise ValueError(
                    f"precision must be a number, ({p},) or ({p}, {p}) for {p} covariates, "
                    f"got shape {precision.shape}"
                )
            precision = precision * np.eye(p)
        super().__init__(given={"covariates": covariates}, mu=mu, precision=precision, a=a, b=b)
        self._names["precision"] = names * 2 if len(names) == 1 else names
