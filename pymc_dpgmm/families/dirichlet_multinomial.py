r"""Rows of counts: the Dirichlet-multinomial family.

:math:`p \sim \mathrm{Dirichlet}(a_1, \ldots, a_d)` and :math:`x_i \sim \mathrm{Multinomial}(N_i, p)` given the
row's total :math:`N_i`. With sums :math:`S_j` of the counts of a cluster, :math:`S = \sum S_j` and :math:`A = \sum
a_j`, the predictive of a row is

.. math:: \frac{N!}{\prod_j x_j!} \frac{\Gamma(A + S)}{\Gamma(A + S + N)}
          \prod_{j: x_j > 0} \frac{\Gamma(a_j + S_j + x_j)}{\Gamma(a_j + S_j)},

so that only the columns with counts matter: data may be sparse, and the cost is in the non-zeros. A row without
counts has density 1 everywhere; it belongs anywhere.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import gammaln
from scipy.special import psi as digamma

from pymc_dpgmm.dispatch import compiled, implements
from pymc_dpgmm.families import verbs
from pymc_dpgmm.families.base_measure import BaseMeasure, is_variable
from pymc_dpgmm.families.component import Component, draw_dirichlet
from pymc_dpgmm.families.counts import check_counts, check_positive, is_sparse, log_rising
from pymc_dpgmm.families.slots import slotted
from pymc_dpgmm.families.verbs import Family

# A product of weights is turned into its logarithm before it leaves this range; one factor, a weight to the power
# of at most _FEW, is within it.
_LARGE = 1e150
_SMALL = 1e-150
_FEW = 4


class Params(NamedTuple):
    """Parameters of the base measure: ``a`` > 0 (d,)."""

    a: np.ndarray


class Rows(NamedTuple):
    """Rows one after the other: row i is ``columns[starts[i]:starts[i + 1]]``, and so on."""

    starts: np.ndarray
    columns: np.ndarray
    counts: np.ndarray
    totals: np.ndarray
    constants: np.ndarray


@slotted("size", "counts", "total", "constant")
class Summary(NamedTuple):
    """Number of rows, sums of counts, of all counts, and of the rows' constants: (K,), (K, d), (K,), (K,)."""

    size: np.ndarray
    counts: np.ndarray
    total: np.ndarray
    constant: np.ndarray


@slotted("size", "counts", "total", "constant")
class Stats(NamedTuple):
    """Counts of each slot, and the parameters."""

    a: np.ndarray
    sum_a: float
    size: np.ndarray
    counts: np.ndarray
    total: np.ndarray
    constant: np.ndarray


@implements(verbs.summarize, Summary)
def _(summary, k, rows, members):
    summary.size[k] = members.shape[0]
    summary.total[k] = 0.0
    summary.constant[k] = 0.0
    for j in range(summary.counts.shape[1]):
        summary.counts[k, j] = 0.0
    for i in members:
        summary.total[k] += rows.totals[i]
        summary.constant[k] += rows.constants[i]
        for t in range(rows.starts[i], rows.starts[i + 1]):
            summary.counts[k, rows.columns[t]] += rows.counts[t]


@implements(verbs.combine, Summary)
def _(summary, k, j):
    summary.size[k] += summary.size[j]
    summary.total[k] += summary.total[j]
    summary.constant[k] += summary.constant[j]
    for column in range(summary.counts.shape[1]):
        summary.counts[k, column] += summary.counts[j, column]


@implements(verbs.fit, Stats)
def _(stats, k, summary, j):
    stats.size[k] = summary.size[j]
    stats.total[k] = summary.total[j]
    stats.constant[k] = summary.constant[j]
    for column in range(stats.a.shape[0]):
        stats.counts[k, column] = summary.counts[j, column]


@implements(verbs.add, Stats)
def _(stats, k, rows, i):
    stats.size[k] += 1
    stats.total[k] += rows.totals[i]
    stats.constant[k] += rows.constants[i]
    for t in range(rows.starts[i], rows.starts[i + 1]):
        stats.counts[k, rows.columns[t]] += rows.counts[t]


@implements(verbs.remove, Stats)
def _(stats, k, rows, i):
    stats.size[k] -= 1
    stats.total[k] -= rows.totals[i]
    stats.constant[k] -= rows.constants[i]
    for t in range(rows.starts[i], rows.starts[i + 1]):
        stats.counts[k, rows.columns[t]] -= rows.counts[t]
    return True


@compiled(_nrt=False)
def _log_row(stats, k, rows, i, removed):
    """Log predictive of a row; ``removed`` of it (0 or 1) is in the slot and does not count."""
    counts = stats.counts[k]
    total = rows.totals[i]
    log_sum = rows.constants[i] - log_rising(stats.sum_a + (stats.total[k] - removed * total), total)
    product = 1.0
    for t in range(rows.starts[i], rows.starts[i + 1]):
        count, column = rows.counts[t], rows.columns[t]
        weight = stats.a[column] + (counts[column] - removed * count)
        if count <= _FEW:
            for c in range(int(count)):
                product *= weight + c
            if not _SMALL < product < _LARGE:
                log_sum += math.log(product)
                product = 1.0
        else:
            log_sum += log_rising(weight, count)
    return log_sum + math.log(product)


@implements(verbs.log_predictive, Stats)
def _(stats, k, rows, i):
    return _log_row(stats, k, rows, i, 0.0)


@implements(verbs.log_predictive_without, Stats)
def _(stats, k, rows, i):
    return _log_row(stats, k, rows, i, 1.0)


@compiled()
def _log_evidence(a, sum_a, counts, total):
    """Log marginal likelihood of the rows of a cluster without their constants."""
    value = -log_rising(sum_a, total)
    for j in range(a.shape[0]):
        if counts[j] > 0.0:
            value += log_rising(a[j], counts[j])
    return value


@implements(verbs.log_marginal, Stats)
def _(stats, k):
    return stats.constant[k] + _log_evidence(stats.a, stats.sum_a, stats.counts[k], stats.total[k])


@implements(verbs.log_marginal_likelihood, Params)
def _(params, summary):
    total = 0.0
    sum_a = params.a.sum()
    for k in range(summary.size.shape[0]):
        total += summary.constant[k] + _log_evidence(params.a, sum_a, summary.counts[k], summary.total[k])
    return total


@implements(verbs.log_marginal_gradient, Params)
def _(params, summary):
    sum_a = params.a.sum()
    common = np.sum(digamma(sum_a) - digamma(sum_a + summary.total))
    return Params(a=common + np.sum(digamma(params.a + summary.counts) - digamma(params.a), axis=0))


def _counts_alone(values: Any) -> Any:
    """Return the counts of values, whose last column is the total where they are dense."""
    return values if is_sparse(values) else values[:, :-1]


def _check_values(params: Params, values: Any) -> None:
    values = _counts_alone(values)
    if is_sparse(values):
        rows = np.repeat(np.arange(values.shape[0]), np.diff(values.indptr))
        for bad, kind in ((values.data < 0, "negative"), (values.data != np.floor(values.data), "fractional")):
            if np.any(bad):
                first = np.flatnonzero(bad)[0]
                raise ValueError(
                    f"observed must be counts 0, 1, 2, ..., got {kind} values, as {values.data[first]} in row "
                    f"{rows[first]}"
                )
    else:
        check_counts("observed", values)


def _represent(params: Params, values: Any) -> tuple[Rows, None]:
    sparse = csr_array(_counts_alone(values), dtype=np.float64, copy=True)
    sparse.sum_duplicates()
    sparse.eliminate_zeros()
    n = sparse.shape[0]
    totals = np.asarray(sparse.sum(axis=1), dtype=np.float64).reshape(n)
    of_row = np.repeat(np.arange(n), np.diff(sparse.indptr))
    constants = gammaln(totals + 1.0) - np.bincount(of_row, gammaln(sparse.data + 1.0), minlength=n)
    return Rows(
        starts=sparse.indptr.astype(np.int64),
        columns=sparse.indices.astype(np.int64),
        counts=sparse.data,
        totals=totals,
        constants=constants,
    ), None


def _allocate(capacity: int, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(capacity, dtype=np.int64), np.zeros((capacity, d)), np.zeros(capacity), np.zeros(capacity)


def _allocate_summary(params: Params, capacity: int) -> Summary:
    return Summary(*_allocate(capacity, len(params.a)))


def _allocate_stats(params: Params, n: int, capacity: int) -> Stats:
    a = np.ascontiguousarray(params.a, dtype=np.float64)
    return Stats(a, float(a.sum()), *_allocate(capacity, len(a)))


def _draw(rng: np.random.Generator, params: Params, summary: Summary) -> dict[str, np.ndarray]:
    return {"probability": draw_dirichlet(rng, params.a + summary.counts)}


def _draw_rows(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, given: np.ndarray
) -> np.ndarray:
    return rng.multinomial(given[:, 0].astype(np.int64), drawn["probability"][labels]).astype(np.float64)


def _log_density(drawn: dict[str, np.ndarray], values: Any) -> np.ndarray:
    if not is_sparse(values):
        # The last column is the total that goes with each row.
        values = values[:, : drawn["probability"].shape[1]]
    matrix = csr_array(values)
    factorials = csr_array((gammaln(matrix.data + 1), matrix.indices, matrix.indptr), shape=matrix.shape)
    constants = gammaln(matrix.sum(axis=1) + 1) - factorials.sum(axis=1)
    p = np.maximum(drawn["probability"], np.finfo(np.float64).tiny)
    return matrix @ np.log(p).T + constants[:, None]


FAMILY = Family(
    name="DirichletMultinomial",
    params=Params,
    axes={"a": "d"},
    check=check_positive,
    check_values=_check_values,
    allocate_summary=_allocate_summary,
    allocate_stats=_allocate_stats,
    represent=_represent,
    component=Component(axes={"probability": "d"}, draw=_draw, draw_rows=_draw_rows, log_density=_log_density),
    given={"totals": "t"},
    from_data=lambda rows: {"a": np.ones(rows.shape[1])},
    takes=(2,),
    takes_sparse=True,
)


class DirichletMultinomial(BaseMeasure):
    """Base measure of rows of counts, such as words of documents or reads of taxa, for (n, d) data.

    ``p ~ Dirichlet(a)`` for each cluster, and rows Multinomial(N, p) given their own totals N. A row without
    counts is allowed: it says nothing about its cluster. Observed data may be a SciPy sparse matrix; the cost of
    sampling is in the non-zeros.

    Parameters
    ----------
    a : scalar or (d,) array_like or variable, > 0
        Prior numbers of counts in each column.

    Notes
    -----
    ``from_data`` takes a = 1: uniform probabilities. Prior predictive draws have the totals of the observed rows.
    """

    family = FAMILY

    def __init__(self, a: Any) -> None:
        super().__init__(a=a)

    def given_columns(self, shape: Sequence[int], data: Any = None) -> list[Any]:
        """Return the rows' totals: those of the data, where they are not given for rows that are to be drawn."""
        if self.given:
            columns = super().given_columns(shape, data)
            check_counts("totals", columns[0])
            return columns
        if data is None:
            raise ValueError("DirichletMultinomial takes the totals of its rows from observed data")
        totals = data.sum(axis=1)
        return [
            np.asarray(totals, dtype=np.float64).reshape(-1, 1) if not is_variable(totals) else totals[:, None]
        ]
