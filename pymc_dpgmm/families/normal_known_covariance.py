r"""Rows with a known covariance each: the normal family with a normal prior of the cluster's mean.

:math:`m \sim N(\mu, T)` and :math:`x_i \sim N(m, S_i)` with :math:`S_i` known, as for measurements whose errors
are correlated. With :math:`P = T^{-1} + \sum S_i^{-1}` and :math:`h = T^{-1} \mu + \sum S_i^{-1} x_i`, the mean of
a cluster is :math:`N(P^{-1} h, P^{-1})`, and its rows have the log density

.. math:: \tfrac12 \sum_i \log \frac{|S_i^{-1}|}{(2 \pi)^d} - \tfrac12 \log |T| - \tfrac12 \log |P|
          - \tfrac12 \Big(\mu' T^{-1} \mu + \sum_i x_i' S_i^{-1} x_i - h' P^{-1} h\Big)

(Gelman et al. 2013, section 3.5, with a covariance for each row). This is extreme deconvolution (Bovy, Hogg and
Roweis 2011) with clusters that are points: one covariance of a cluster beside those of its rows has no conjugate
prior.

Rows hold the packed precision, precision times values, x' S^-1 x, and the log of the norm. The last difference
loses digits where errors are a millionth of the spread of the rows: such data is refused.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, DrawnValues, normal_cdf, restore_mean
from pymc_dpgmm.families.contract.defaults import column_means, column_variances
from pymc_dpgmm.families.contract.expected import LinearExpectation, as_packed
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import positive_definite, real, with_unit_diagonal
from pymc_dpgmm.families.shared.full_normal import patterns, patterns_of
from pymc_dpgmm.families.shared.gaps import taking_gaps
from pymc_dpgmm.families.shared.origins import column_means_or_zero, refuse_lost_digits, shift_mean
from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.native.triangles import cholesky_in_place, solve_lower, unpacked
from pymc_dpgmm.tables.checks import is_variable

# The least share of the variance of a column that the others may leave over.
_LEAST_SHARE = 1e-10


def _update(p, n, s, x, sign):
    size = p.d * (p.d + 1) // 2
    for q in range(size):
        s.precision[q] += sign * x[q]
    for j in range(p.d):
        s.weighted[j] += sign * x[size + j]
    before = 1.0 + s.squares[0]
    s.squares[0] = max(s.squares[0] + sign * x[size + p.d], 0.0)
    s.constant[0] += sign * x[size + p.d + 1]
    return (1.0 + s.squares[0]) / before


@inlined
def _evidence(p, s, c):
    for q in range(p.d * (p.d + 1) // 2):
        c.work[q] = p.prior_precision[q] + s.precision[q]
    half_log_det = cholesky_in_place(c.work, p.d)
    for j in range(p.d):
        c.pull[j] = p.prior_pull[j] + s.weighted[j]
    solve_lower(c.work, c.pull, c.pull, p.d)
    explained = 0.0
    for j in range(p.d):
        explained += c.pull[j] * c.pull[j]
    return s.constant[0] + p.prior_constant - half_log_det - 0.5 * (s.squares[0] - explained)


def _log_evidence(p, n, s, c):
    return _evidence(p, s, c)


def _refresh(p, n, s, c):
    c.evidence[0] = _evidence(p, s, c)


def _constants(params: Any) -> dict[str, Any]:
    precision = np.linalg.inv(params.covariance_of_means)
    pull = precision @ params.mu
    constant = -0.5 * (np.linalg.slogdet(params.covariance_of_means)[1] + params.mu @ pull)
    lower = np.tril_indices(len(params.mu))
    return {"prior_precision": precision[lower], "prior_pull": pull, "prior_constant": float(constant)}


def _posterior(params: Any, s: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the means (K, d) and covariances (K, d, d) of the clusters' means given their rows."""
    prior = np.linalg.inv(params.covariance_of_means)
    covariance = np.linalg.inv(prior + unpacked(s.precision))
    return np.einsum("kij,kj->ki", covariance, prior @ params.mu + s.weighted), covariance


def _gradient(params: Any, s: Any) -> DrawnValues:
    # Of log p(rows) in the parameters of p(m): the expectation of the gradient of log p(m) given the rows.
    mean, covariance = _posterior(params, s)
    prior, offset = np.linalg.inv(params.covariance_of_means), mean - params.mu
    spread = np.sum(offset[:, :, None] * offset[:, None, :] + covariance, axis=0)
    return {
        "mu": prior @ offset.sum(axis=0),
        "covariance_of_means": 0.5 * (prior @ spread @ prior - len(mean) * prior),
    }


def _expected(params: Any, s: Any) -> LinearExpectation:
    mean, covariance = _posterior(params, s)
    ones = np.ones(len(mean))
    second = as_packed(mean[:, :, None] * mean[:, None, :] + covariance)
    factors = {"precision": -0.5 * second, "weighted": mean, "squares": -0.5 * ones, "constant": ones}
    return LinearExpectation(np.zeros(len(mean)), factors)


def _draw(rng: np.random.Generator, params: Any, s: Any) -> DrawnValues:
    mean, covariance = _posterior(params, s)
    noise = rng.standard_normal(mean.shape)
    return {"mean": mean + np.einsum("kij,kj->ki", np.linalg.cholesky(covariance), noise)}


def _split(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, d) and their covariances (n, d, d)."""
    d = _n_columns(values.shape[1])
    return values[:, :d], values[:, d:].reshape(-1, d, d)


def _n_columns(width: int) -> int:
    """Return d of d + d^2 columns."""
    return (math.isqrt(1 + 4 * width) - 1) // 2


def _draw_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    d = drawn["mean"].shape[1]
    factor = np.linalg.cholesky(given.reshape(-1, d, d))
    return drawn["mean"][labels] + np.einsum("nij,nj->ni", factor, rng.standard_normal((len(labels), d)))


def _log_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    rows, covariance = _split(values)
    total = np.zeros((len(rows), len(drawn["mean"])))
    for own, known, _ in patterns_of(np.isnan(rows)):
        root = np.linalg.inv(np.linalg.cholesky(covariance[np.ix_(own, known, known)]))
        log_det = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        offsets = rows[np.ix_(own, known)][:, None, :] - drawn["mean"][:, known]
        whitened = np.einsum("nij,nkj->nki", root, offsets)
        constant = log_det - 0.5 * len(known) * math.log(2.0 * math.pi)
        total[own] = constant[:, None] - 0.5 * np.sum(whitened**2, axis=2)
    return total


def _conditional(
    drawn: DrawnValues, values: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield rows with the same gaps, these columns, and the means (m, K, u) and covariances (m, K, u, u) there.

    They are given the other columns (Murphy 2012, eq. 4.69). Of the predictive, ``spread`` is the covariance of
    the cluster's mean, which adds to that of the row.
    """
    rows, covariance = _split(values)
    spread, mean = drawn.get("spread", np.zeros((1, 1, 1))), drawn["mean"]
    for own, known, unknown in patterns(np.isnan(rows)):
        whole = covariance[own][:, None] + spread
        shape = len(own), len(mean), len(known) + len(unknown), len(known) + len(unknown)
        whole = np.broadcast_to(whole, shape)
        across = whole[..., unknown[:, None], known]
        slopes = np.linalg.solve(whole[..., known[:, None], known], across.swapaxes(-1, -2)).swapaxes(-1, -2)
        offsets = rows[np.ix_(own, known)][:, None, :] - mean[:, known]
        means = mean[:, unknown] + np.einsum("mkup,mkp->mku", slopes, offsets)
        yield own, unknown, means, whole[..., unknown[:, None], unknown] - slopes @ across.swapaxes(-1, -2)


def _mean(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    found = np.repeat(drawn["mean"][None], len(values), axis=0)
    for own, unknown, means, _ in _conditional(drawn, values):
        found[own[:, None], :, unknown] = means.swapaxes(1, 2)
    return found


def _cdf(drawn: DrawnValues, values: np.ndarray, j: int, points: np.ndarray) -> np.ndarray:
    deviation = np.ones((len(values), len(drawn["mean"])))
    for own, unknown, _, covariance in _conditional(drawn, values):
        if j in unknown:
            at = int(np.searchsorted(unknown, j))
            deviation[own] = np.sqrt(covariance[:, :, at, at])
    return normal_cdf(points, _mean(drawn, values)[:, :, j], deviation)


def _draw_unknown(
    rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, values: np.ndarray
) -> np.ndarray:
    found = np.array(_split(values)[0])
    for own, unknown, means, covariance in _conditional(drawn, values):
        each, of = np.arange(len(own)), labels[own]
        factor = np.linalg.cholesky(covariance[each, of])
        noise = rng.standard_normal((len(own), len(unknown)))
        found[np.ix_(own, unknown)] = means[each, of] + np.einsum("mij,mj->mi", factor, noise)
    return found


def _check_values(params: Any, values: np.ndarray) -> None:
    # A number stands for all columns; what is a variable is not known here.
    known = [value for value in (params.mu, params.covariance_of_means) if np.ndim(value) > 0]
    d = len(known[0]) if known else _n_columns(values.shape[1])
    if values.shape[1] != d * (1 + d):
        raise ValueError(
            f"covariance must be (n, d, d), or (n, d * d), for the d = {d} columns of data, got "
            f"{values.shape[1] - d} numbers with each row"
        )
    rows, covariance = _split(values)
    for row, matrix in enumerate(covariance):
        positive_definite("dd").check(f"covariance of row {row}", matrix)
        if np.linalg.cholesky(with_unit_diagonal(matrix)).diagonal().min() ** 2 < _LEAST_SHARE:
            raise ValueError(
                f"covariance of row {row} is nearly singular: less than {_LEAST_SHARE:g} of the variance of a "
                "column is not told by the others; leave out one of the columns"
            )
    offsets = np.nan_to_num(rows - column_means_or_zero(rows), nan=0.0)
    refuse_lost_digits(np.einsum("ni,nij,nj->n", offsets, np.linalg.inv(covariance), offsets)[:, None])


def _represent(params: Any, values: np.ndarray, origin: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    rows, covariance = _split(values)
    (n, d), is_part = rows.shape, origin is not None
    origin = column_means_or_zero(rows) if origin is None else origin
    rows, precision, constant = rows - origin, np.zeros_like(covariance), np.zeros(n)
    # Of a row with gaps, the precision of what is there; the other entries say nothing.
    for own, known, _ in patterns_of(np.isnan(rows)):
        inverse = np.linalg.inv(covariance[np.ix_(own, known, known)])
        precision[np.ix_(own, known, known)] = inverse
        constant[own] = 0.5 * np.linalg.slogdet(inverse)[1] - 0.5 * len(known) * math.log(2.0 * math.pi)
    rows = np.nan_to_num(rows, nan=0.0)
    weighted = np.einsum("nij,nj->ni", precision, rows)
    lower_rows, lower_columns = np.tril_indices(d)
    packed, squares = precision[:, lower_rows, lower_columns], np.sum(rows * weighted, axis=1)
    if is_part:
        # The checks of a part of the rows do not know where the others are.
        refuse_lost_digits(squares[:, None])
    return np.column_stack([packed, weighted, squares, constant]), origin


def _from_data(rows: np.ndarray, covariance: np.ndarray | None = None) -> dict[str, np.ndarray | float]:
    return {"mu": column_means(rows), "covariance_of_means": np.diag(column_variances(rows))}


FAMILY = taking_gaps(
    Family(
        name="NormalKnownCovariance",
        parameters={"mu": real("d"), "covariance_of_means": positive_definite("dd")},
        check_values=_check_values,
        sums={"precision": "D", "weighted": "d", "squares": "", "constant": ""},
        update=_update,
        log_evidence=_log_evidence,
        gradient=_gradient,
        predictive=lambda params, s: dict(zip(("mean", "spread"), _posterior(params, s), strict=True)),
        expected=_expected,
        tables={"prior_precision": "D", "prior_pull": "d", "prior_constant": ""},
        tabulate=lambda params, n: _constants(params),
        constants=_constants,
        tabulated_by=(),
        cache={"evidence": "", "work": "D", "pull": "d"},
        refresh=_refresh,
        represent=_represent,
        shift=shift_mean,
        component=Component(
            axes={"mean": "d"},
            draw=_draw,
            draw_rows=_draw_rows,
            log_density=_log_density,
            restore=restore_mean,
            mean=_mean,
            draw_unknown=_draw_unknown,
            cdf=_cdf,
        ),
        given={"covariance": "q"},
        from_data=_from_data,
        takes=(2,),
    )
)


class NormalKnownCovariance(BaseMeasure):
    """Base measure of rows that are normal with a known covariance each, for (n, d) data.

    Each cluster has a mean ``m ~ N(mu, covariance_of_means)``, and row i is ``x ~ N(m, covariance[i])``: a
    measurement whose errors are correlated.

    Parameters
    ----------
    mu : scalar or (d,) array_like or variable
        Prior mean of the means.
    covariance_of_means : (d, d) or (d,) array_like or variable
        Prior covariance of the means, symmetric positive definite, or the diagonal of one that is diagonal.
    covariance : (n, d, d) or (1, d, d) array_like, or (n, d * d) array_like or pm.Data
        Known covariance of each row, symmetric positive definite, or one for all rows.

    Notes
    -----
    ``from_data(data, covariance=...)`` sets mu and covariance_of_means to the means and variances of the columns.
    For new rows, ``given={"covariance": ...}`` takes matrices as (n, d * d), or one as (1, d * d). Where
    errors are independent, :class:`NormalKnownVariance` is faster.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dpgmm as dp
    >>> import pymc as pm
    >>> seen = np.array([[0.1, 0.2], [-0.2, 0.1], [3.0, 2.5], [2.8, 3.1]])
    >>> errors = np.array([[[0.2, 0.1], [0.1, 0.3]]] * 4)
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, dp.NormalKnownCovariance(0.0, [4.0, 4.0], errors), observed=seen)
    """

    family = FAMILY

    def __init__(self, mu: Any, covariance_of_means: Any, covariance: Any) -> None:
        given = {"covariance": _as_columns(covariance)}
        super().__init__(given=given, mu=mu, covariance_of_means=covariance_of_means)

    @classmethod
    def from_data(cls, data: Any, **given: Any) -> "NormalKnownCovariance":
        """Make a weakly informative base measure from data and the covariances of its rows; see the class."""
        return super().from_data(data, **{name: _as_columns(value) for name, value in given.items()})


def _as_columns(covariance: Any) -> Any:
    """Return matrices (n, d, d) as (n, d * d), and anything else as it is."""
    if isinstance(covariance, list | tuple) and any(hasattr(matrix, "columns") for matrix in covariance):
        raise TypeError(
            "covariance must be an array (n, d, d) in the order of the rows and columns of the data, or a frame "
            "(n, d * d) whose index has their names; got frames, whose names of columns would not be read"
        )
    if is_variable(covariance) or np.ndim(covariance) != 3:
        return covariance
    if hasattr(covariance, "dims"):
        raise TypeError(
            "covariance must be an array (n, d, d) in the order of the rows, or a frame (n, d * d) whose index "
            "has their names; got a labelled array"
        )
    return np.asarray(covariance, dtype=np.float64).reshape(len(covariance), -1)
