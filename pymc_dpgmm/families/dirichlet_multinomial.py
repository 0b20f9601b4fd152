r"""Rows of counts: the Dirichlet-multinomial family.

:math:`p \sim \mathrm{Dirichlet}(a_1, \ldots, a_d)` and :math:`x_i \sim \mathrm{Multinomial}(N_i, p)` given the
row's total :math:`N_i`. With sums :math:`S_j` of the counts of a cluster, :math:`S = \sum S_j` and :math:`A = \sum
a_j`, the predictive of a row is

.. math:: \frac{N!}{\prod_j x_j!} \frac{\Gamma(A + S)}{\Gamma(A + S + N)}
          \prod_{j: x_j > 0} \frac{\Gamma(a_j + S_j + x_j)}{\Gamma(a_j + S_j)},

so that only columns with counts matter: data may be sparse, and the cost grows with the number of non-zeros. A row
without counts has density 1 in every cluster.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure
from pymc_dpgmm.families.contract.component import Component, DrawnValues, draw_dirichlet
from pymc_dpgmm.families.contract.expected import LinearExpectation
from pymc_dpgmm.families.contract.family import Family, Ragged
from pymc_dpgmm.families.contract.supports import positive
from pymc_dpgmm.families.shared.counts import as_ragged, check_counts
from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.native.special import digamma, digamma_rises, gammaln, log_rising
from pymc_dpgmm.tables.checks import is_sparse, is_variable

# The product of weights is turned into its logarithm as soon as it leaves the range from _SMALL to _LARGE. At most
# _AT_ONCE weights are multiplied between two checks, so that the product does not overflow in between.
_LARGE = 1e150
_SMALL = 1e-150
_AT_ONCE = 4
# Layout of a row: total, log multinomial coefficient, number of non-zeros, then column and count of each non-zero.
_TOTAL, _CONSTANT, _N_NONZERO, _FIRST = range(4)


def _update(p, n, s, x, sign):
    s.total[0] += sign * x[_TOTAL]
    s.constant[0] += sign * x[_CONSTANT]
    for t in range(int(x[_N_NONZERO])):
        s.counts[int(x[_FIRST + 2 * t])] += sign * x[_FIRST + 2 * t + 1]
    return 1.0


def _log_evidence(p, n, s):
    value = s.constant[0]
    sum_a = 0.0
    for j in range(p.d):
        sum_a += p.a[j]
        if s.counts[j] > 0.0:
            value += log_rising(p.a[j], s.counts[j])
    return value - log_rising(sum_a, s.total[0])


@inlined
def _log_row(p, s, x, removed):
    """Log predictive of a row. ``removed`` is 1 if the row is in the cluster and must be left out, and else 0."""
    total = x[_TOTAL]
    log_sum = x[_CONSTANT] - log_rising(p.sum_a + (s.total[0] - removed * total), total)
    product = 1.0
    for t in range(int(x[_N_NONZERO])):
        column, count = int(x[_FIRST + 2 * t]), x[_FIRST + 2 * t + 1]
        weight = p.a[column] + (s.counts[column] - removed * count)
        if count <= _AT_ONCE:
            for c in range(int(count)):
                product *= weight + c
            if not _SMALL < product < _LARGE:
                log_sum += math.log(product)
                product = 1.0
        else:
            log_sum += log_rising(weight, count)
    return log_sum + math.log(product)


def _gradient(params: Any, s: Any) -> DrawnValues:
    common = np.sum(digamma_rises(params.a.sum(), s.total))
    return {"a": np.sum(digamma_rises(params.a, s.counts), axis=0) - common}


def _predictive(params: Any, s: Any) -> DrawnValues:
    a_n = params.a + s.counts
    return {"probability": a_n / a_n.sum(axis=1, keepdims=True)}


def _expected(params: Any, s: Any) -> LinearExpectation:
    a_n = params.a + s.counts
    log_p = digamma(a_n) - digamma(a_n.sum(axis=1, keepdims=True))
    return LinearExpectation(np.zeros(len(s.n)), {"counts": log_p, "constant": np.ones(len(s.n))})


def _counts(values: Any) -> Any:
    """Return counts without the last column of dense values, which holds the totals."""
    return values if is_sparse(values) else values[:, :-1]


def _log_coefficients(counts: Any) -> np.ndarray:
    """Return the logs of the multinomial coefficients of the rows of a CSR matrix."""
    of_row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    factorials = np.bincount(of_row, gammaln(counts.data + 1.0), minlength=counts.shape[0])
    return gammaln(counts.sum(axis=1) + 1.0) - factorials


def _represent(params: Any, values: Any) -> tuple[Ragged, None]:
    from scipy.sparse import csr_array

    counts = csr_array(_counts(values), dtype=np.float64, copy=True)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    return as_ragged(counts, np.column_stack([counts.sum(axis=1), _log_coefficients(counts)])), None


def _draw_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    return rng.multinomial(given[:, 0].astype(np.int64), drawn["probability"][labels]).astype(np.float64)


def _log_density(drawn: DrawnValues, values: Any) -> np.ndarray:
    from scipy.sparse import csr_array

    counts = csr_array(_counts(values))
    p = np.maximum(drawn["probability"], np.finfo(np.float64).tiny)
    return counts @ np.log(p).T + _log_coefficients(counts)[:, None]


COMPONENT = Component(
    axes={"probability": "d"},
    draw=lambda rng, params, s: {"probability": draw_dirichlet(rng, params.a + s.counts)},
    draw_rows=_draw_rows,
    log_density=_log_density,
    is_discrete=True,
    mean=lambda drawn, values: values[:, -1:, None] * drawn["probability"],
)


class DirichletMultinomial(BaseMeasure):
    """Base measure of rows of counts, such as the words of documents or the reads of taxa, for (n, d) data.

    Each cluster has probabilities ``p ~ Dirichlet(a)``, and a row with total N is Multinomial(N, p). A row without
    counts is allowed; only the prior decides about its cluster. Observed data may be a SciPy sparse matrix, and
    the cost of sampling then grows with the number of non-zeros.

    Parameters
    ----------
    a : scalar or (d,) array_like or variable, > 0
        Prior numbers of counts in each column.

    Notes
    -----
    ``from_data`` sets a = 1, so the vectors of probabilities are uniform. Prior predictive draws have the totals
    of the observed rows.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> import pymc as pm
    >>> with pm.Model():
    ...     y = dp.DPMixture("y", 1.0, dp.DirichletMultinomial(0.5), observed=[[9, 1, 0], [0, 2, 7]])
    """

    family = Family(
        name="DirichletMultinomial",
        parameters={"a": positive("d")},
        check_values=lambda params, values: check_counts("entries", _counts(values)),
        sums={"counts": "d", "total": "", "constant": ""},
        update=_update,
        log_evidence=_log_evidence,
        gradient=_gradient,
        predictive=_predictive,
        expected=_expected,
        tables={"sum_a": ""},
        tabulate=lambda params, n: {"sum_a": params.a.sum()},
        cache={},
        log_predictive=lambda p, n, s, c, x: (_log_row(p, s, x, 0.0), 0.0, 1.0),
        log_predictive_without=lambda p, n, s, c, x: (_log_row(p, s, x, 1.0), 0.0, 1.0),
        represent=_represent,
        component=COMPONENT,
        given={"totals": "t"},
        from_data=lambda rows: {"a": np.ones(rows.shape[1])},
        takes=(2,),
        takes_sparse=True,
    )

    def __init__(self, a: Any) -> None:
        super().__init__(a=a)

    def given_columns(self, shape: Sequence[int], data: Any = None) -> list[Any]:
        """Return the totals of the rows: those given for rows to be drawn, or else those of the data."""
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
