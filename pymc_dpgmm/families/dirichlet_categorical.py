r"""Columns of category codes, independent within a cluster: the Dirichlet-categorical family.

For each column with L levels, :math:`p \sim \mathrm{Dirichlet}(a_1, \ldots, a_L)` and x is level l with
probability :math:`p_l`. With :math:`c_l` of n rows of a cluster at level l, the predictive of it is :math:`(a_l +
c_l) / (\sum a + n)`.

The levels of all columns are laid out in one vector, with ``l`` entries for each column, and rows hold the
positions of their codes in it. The cache holds the logs of :math:`a_l + c_l` in the same layout.

Missing entries are left out: n is then the number of entries of a column that are not missing. Their position is
-1.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.base_measure import BaseMeasure, Coded
from pymc_dpgmm.families.contract.component import Component, DrawnValues, draw_dirichlet, if_present
from pymc_dpgmm.families.contract.expected import LinearExpectation
from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.families.contract.supports import positive, real, refuse_where
from pymc_dpgmm.families.shared.categories import code_columns, numbers_of_levels
from pymc_dpgmm.families.shared.counts import sums_of_logs
from pymc_dpgmm.native.arithmetic import fast_log
from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.native.special import digamma, digamma_rises, log_rising
from pymc_dpgmm.tables.checks import is_variable
from pymc_dpgmm.tables.reading import names_of_axes, read_table
from pymc_dpgmm.tables.table import Table


def _update(p, n, s, x, sign):
    for j in range(p.d):
        s.counts[int(x[j])] += sign
    return 1.0


@inlined
def _log_evidence_of_column(p, s, j, entries):
    """Log evidence of column j, which has ``entries`` entries that are not missing."""
    total, concentration = 0.0, 0.0
    for position in range(j * p.l, (j + 1) * p.l):
        concentration += p.a[position]
        if s.counts[position] > 0.0:
            total += log_rising(p.a[position], s.counts[position])
    return total - log_rising(concentration, entries)


def _log_evidence(p, n, s):
    total = 0.0
    for j in range(p.d):
        total += _log_evidence_of_column(p, s, j, n)
    return total


def _refresh(p, n, s, c):
    for position in range(p.d * p.l):
        c.log_weight[position] = fast_log(p.a[position] + s.counts[position])


def _change(p, n, s, c, x, sign):
    for j in range(p.d):
        position = int(x[j])
        s.counts[position] += sign
        c.log_weight[position] = fast_log(p.a[position] + s.counts[position])
    return 1.0


def _log_predictive(p, n, s, c, x):
    total = -p.norms[int(n)]
    for j in range(p.d):
        total += c.log_weight[int(x[j])]
    return total, 0.0, 1.0


def _log_predictive_without(p, n, s, c, x):
    total = -p.norms[int(n) - 1]
    for j in range(p.d):
        position = int(x[j])
        total += fast_log(p.a[position] + (s.counts[position] - 1.0))
    return total, 0.0, 1.0


def _tabulate(params: Any, n: int) -> dict[str, Any]:
    return {"norms": sums_of_logs(params.a.sum(axis=1), n)}


def _gradient(params: Any, s: Any) -> DrawnValues:
    return _gradient_given(params, s, s.n)


def _gradient_given(params: Any, s: Any, entries: np.ndarray) -> DrawnValues:
    """Gradient of the log evidence given numbers of entries per cluster and column: (K, d) or (K, 1)."""
    totals = params.a.sum(axis=1)
    common = -digamma_rises(totals, entries)
    allowed = params.a > 0
    safe = np.where(allowed, params.a, 1.0)
    gradient = np.sum(common[:, :, None] + digamma_rises(safe, s.counts), axis=0)
    return {"a": np.where(allowed, gradient, 0.0), "levels": np.zeros(len(totals))}


def _expected(params: Any, s: Any) -> LinearExpectation:
    return _expected_given(params, s, s.n)


def _expected_given(params: Any, s: Any, entries: np.ndarray) -> LinearExpectation:
    """Return expected log densities given numbers of entries per cluster and column: (K, d) or (K, 1)."""
    allowed = params.a > 0
    log_p = digamma(np.where(allowed, params.a + s.counts, 1.0))
    log_p -= digamma(params.a.sum(axis=1) + entries)[:, :, None]
    return LinearExpectation(np.zeros(len(s.n)), {"counts": np.where(allowed, log_p, 0.0)})


def _check_together(params: Any) -> None:
    used = np.arange(params.a.shape[1]) < params.levels[:, None]
    if not np.array_equal(params.a > 0, used):
        raise ValueError(f"a must be > 0 for every level of every column, got {params.a.tolist()}")


def _check_values(params: Any, values: np.ndarray) -> None:
    for j, n_levels in enumerate(params.levels.astype(int)):
        x = values[:, j : j + 1]
        # Comparisons with NaN, which marks missing entries, are false.
        bad = (x < 0) | (x >= n_levels) | (x % 1 > 0)
        refuse_where(
            bad, f"column {j} must have codes 0..{n_levels - 1}, for the {n_levels} levels of the base measure", x
        )


def _draw(rng: np.random.Generator, params: Any, s: Any) -> DrawnValues:
    probability = np.zeros_like(s.counts)
    for j, n_levels in enumerate(params.levels.astype(int)):
        probability[:, j, :n_levels] = draw_dirichlet(rng, params.a[j, :n_levels] + s.counts[:, j, :n_levels])
    return {"probability": probability}


def _draw_rows(rng: np.random.Generator, drawn: DrawnValues, labels: np.ndarray, given: np.ndarray) -> np.ndarray:
    below = np.cumsum(drawn["probability"], axis=2)[labels]
    # The last cumulative sum is 1 up to rounding, so u is scaled by it. Levels beyond those of a column have
    # probability 0.
    u = rng.random(below.shape[:2]) * below[:, :, -1]
    return np.sum(below <= u[:, :, None], axis=2).astype(np.float64)


def _log_density(drawn: DrawnValues, values: np.ndarray) -> np.ndarray:
    log_p = np.log(np.maximum(drawn["probability"], np.finfo(np.float64).tiny))
    total = np.zeros((len(values), len(log_p)))
    for j, x in enumerate(values.T):
        total += if_present(x, log_p[:, j, np.nan_to_num(x).astype(np.int64)].T)
    return total


def _represent(params: Any, values: np.ndarray) -> tuple[np.ndarray, None]:
    positions = values + params.a.shape[1] * np.arange(values.shape[1])
    return np.nan_to_num(positions, nan=-1.0), None


def _update_incomplete(p, n, s, x, sign):
    for j in range(p.d):
        if x[j] >= 0.0:
            s.counts[int(x[j])] += sign
            s.entries[j] += sign
    return 1.0


def _log_evidence_incomplete(p, n, s):
    total = 0.0
    for j in range(p.d):
        total += _log_evidence_of_column(p, s, j, s.entries[j])
    return total


def _refresh_incomplete(p, n, s, c):
    for j in range(p.d):
        concentration = s.entries[j]
        for position in range(j * p.l, (j + 1) * p.l):
            concentration += p.a[position]
            c.log_weight[position] = fast_log(p.a[position] + s.counts[position])
        c.log_total[j] = fast_log(concentration)


def _log_predictive_incomplete(p, n, s, c, x):
    total = 0.0
    for j in range(p.d):
        if x[j] >= 0.0:
            total += c.log_weight[int(x[j])] - c.log_total[j]
    return total, 0.0, 1.0


def _one_column(a: Any) -> tuple[Any, int]:
    """Return the parameters of one column as (1, L), and L."""
    if not is_variable(a):
        a = np.asarray(a)
    length = a.type.shape[0] if is_variable(a) and a.ndim == 1 else len(a) if a.ndim == 1 else None
    if length is None:
        raise ValueError("without levels, a must have one entry for each level of a single column, shape (L,)")
    return a[None, :], int(length)


COMPONENT = Component({"probability": "dl"}, _draw, _draw_rows, _log_density, is_discrete=True)
PARAMETERS = {"a": real("dl"), "levels": positive("d")}

INCOMPLETE = Family(
    name="IncompleteDirichletCategorical",
    parameters=PARAMETERS,
    check_together=_check_together,
    check_values=_check_values,
    sums={"counts": "dl", "entries": "d"},
    update=_update_incomplete,
    log_evidence=_log_evidence_incomplete,
    gradient=lambda params, s: _gradient_given(params, s, s.entries),
    expected=lambda params, s: _expected_given(params, s, s.entries),
    cache={"log_weight": "dl", "log_total": "d"},
    refresh=_refresh_incomplete,
    log_predictive=_log_predictive_incomplete,
    represent=_represent,
    component=COMPONENT,
    takes_missing=True,
)

FAMILY = replace(
    INCOMPLETE,
    name="DirichletCategorical",
    sums={"counts": "dl"},
    update=_update,
    log_evidence=_log_evidence,
    gradient=_gradient,
    expected=_expected,
    tables={"norms": "n"},
    tabulate=_tabulate,
    constants=lambda params: {},
    cache={"log_weight": "dl"},
    refresh=_refresh,
    change=_change,
    log_predictive=_log_predictive,
    log_predictive_without=_log_predictive_without,
    incomplete=INCOMPLETE,
    takes_missing=False,
)


class DirichletCategorical(BaseMeasure):
    """Base measure of columns of category codes that are independent within a cluster, for (n,) or (n, d) data.

    In each cluster, the probabilities of the levels of each column are ``p ~ Dirichlet(a)``. Columns of
    categories, of text or of bools are taken as they are. The codes of a column of numbers are 0..levels - 1, or
    1..levels where they do not fit the former.

    Parameters
    ----------
    a : scalar, (d,) or (d, L) array_like or variable, > 0
        Prior numbers of rows at each level: one number for all levels, one per column, or one per column and
        level. In the last case L is the largest number of levels, and entries beyond the levels of a column are
        ignored. Without ``levels``, (L,): one number for each level of a single column.
    levels : int or (d,) integer array_like, optional
        Number of levels of each column, >= 1; an int for a single column. By default there is one column, with one
        level for each entry of ``a``.

    Notes
    -----
    ``from_data`` sets a = 1. The levels of a categorical column are its categories; a warning names categories
    that no row has. The levels of text are its sorted values. The levels of whole numbers are 0 to the largest
    one, or 1 to the largest one if no entry is 0. Numbers that repeat and are no codes, such as years and doses,
    are levels themselves. Categories and text are turned into codes wherever data is passed.

    Examples
    --------
    >>> import pymc_dpgmm as dp
    >>> penguins = dp.datasets.load_penguins()
    >>> base = dp.DirichletCategorical.from_data(penguins[["species", "island"]])
    >>> base.parameters["levels"]
    array([3., 3.])
    """

    family = FAMILY
    takes_categories = True

    def __init__(self, a: Any, levels: Any = None) -> None:
        names = names_of_axes(a)
        if levels is None:
            a, levels = _one_column(a)
            names = (None, *names)
        numbers = np.atleast_1d(np.asarray(levels))
        if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
            raise TypeError(f"levels must be an integer or a vector of integers, got {levels!r}")
        if np.any(numbers < 1):
            raise ValueError(f"levels must be at least 1, got {levels!r}")
        used = (np.arange(numbers.max()) < numbers[:, None]).astype(np.float64)
        if not is_variable(a):
            a = np.asarray(a)
            if a.dtype.kind not in "biuf":
                raise TypeError(f"a must be real numbers or a variable, got {a!r}")
            if a.ndim and a.shape != used.shape[: a.ndim]:
                raise ValueError(f"a has shape {a.shape}, but must have {used.shape} or {used.shape[:1]}")
        super().__init__(a=used * (a[:, None] if a.ndim == 1 else a), levels=numbers)
        self._names["a"] = names

    def lengths(self, d: int) -> dict[str, int]:
        """Return the lengths of the axes. The largest number of levels is known even if ``a`` is a variable."""
        return super().lengths(d) | {"l": int(self.parameters["levels"].max())}

    def check_shape(self, shape: Any) -> None:
        """Raise ValueError where there is not one number of levels for each column of data of this shape."""
        d, n_levels = 1 if len(shape) == 1 else shape[1], len(self.parameters["levels"])
        if d != n_levels:
            raise ValueError(f"levels must have one number per column: the data has {d}, levels {n_levels}")
        super().check_shape(shape)

    @classmethod
    def from_data(cls, data: Any, **given: Any) -> "DirichletCategorical":
        """Make a base measure from columns of categories, text or codes; see the class."""
        cls.check_given(given)
        table = read_table(data, "data")
        base = cls(1.0, numbers_of_levels(table))
        base.name_columns(table)
        return base

    def read(self, table: Table) -> Coded:
        """Return columns of categories, text or codes as codes 0..levels - 1, NaN where an entry is missing."""
        return Coded(*code_columns(table, self.parameters["levels"].astype(int)))
