"""Gaussian clusters with independent columns, for rows with missing entries (NaN), which are integrated out.

Each column of a cluster has its number of entries, and a missing entry contributes nothing. The cache holds, per
column, the terms of :mod:`pymc_dpgmm.families.normal_inverse_gamma` and the constant of the t density.
"""

import math

from pymc_dpgmm.families.shared.moments import merge_squares, update_squares
from pymc_dpgmm.families.shared.normal_columns import (
    ColumnsFamily,
    log_evidence,
    set_column,
    squared_deviation,
    t_constant,
)
from pymc_dpgmm.native.arithmetic import fast_log
from pymc_dpgmm.native.compiled import shifted


def _update(p, n, s, x, sign):
    share = 1.0
    for j in range(p.d):
        if not math.isnan(x[j]):
            mean, squares, floor = shifted(s.mean, j), shifted(s.squares, j), shifted(p.b, j)
            left = update_squares(s.entries[j], 1, mean, squares, floor, shifted(x, j), sign)
            share = min(share, left)
            s.entries[j] += sign
    return share


def _merge(p, n, s, m, t):
    for j in range(p.d):
        mean, squares = shifted(s.mean, j), shifted(s.squares, j)
        merge_squares(s.entries[j], 1, mean, squares, t.entries[j], shifted(t.mean, j), shifted(t.squares, j))
        s.entries[j] += t.entries[j]


def _log_evidence(p, n, s):
    total = 0.0
    for j in range(p.d):
        total += log_evidence(p, j, s.entries[j], s)
    return total


def _refresh(p, n, s, c):
    for j in range(p.d):
        set_column(p, j, s.entries[j], s, c)
        c.constant[j] = t_constant(p, j, s.entries[j], c)


def _log_predictive(p, n, s, c, x):
    total = 0.0
    for j in range(p.d):
        if not math.isnan(x[j]):
            total += c.constant[j] - (p.a[j] + 0.5 * s.entries[j] + 0.5) * fast_log(
                1.0 + squared_deviation(c, j, x)
            )
    return total, 0.0, 1.0


FAMILY = ColumnsFamily(
    name="IncompleteNormalInverseGamma",
    sums={"entries": "d", "mean": "d", "squares": "d"},
    update=_update,
    merge=_merge,
    log_evidence=_log_evidence,
    cache={"rate": "d", "shift": "d", "constant": "d"},
    refresh=_refresh,
    log_predictive=_log_predictive,
    takes_missing=True,
    expected=None,
)
