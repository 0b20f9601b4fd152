"""Means and scatters of the rows of clusters, which keep their digits however far apart clusters are.

Sums of squares about the mean change by ``n / (n + sign) (x - mean)(x - mean)'`` when a row joins (sign 1) or
leaves (-1) a cluster of n rows (Welford 1962), and two clusters unite by Chan, Golub and LeVeque (1983), eq. 2.1.
Both hold for fractions of rows as well: then ``sign`` is the weight of the row that joins.
"""

import math
from typing import Any

from pymc_dpgmm.native.compiled import inlined, shifted
from pymc_dpgmm.native.lane_products import add_outer_products
from pymc_dpgmm.native.lanes import LANES


@inlined
def _divisor(n):
    """Return a number of rows to divide by, 1 where there are none."""
    return n if n > 0.0 else 1.0


@inlined
def _move_mean(n, d, mean, x, sign):
    share = sign / _divisor(n + sign)
    for j in range(d):
        mean[j] += share * (x[j] - mean[j])


@inlined
def update_squares(n, d, mean, squares, floor, x, sign):
    """Let a row join (1.0) or leave (-1.0) a cluster of ``n``, given sums of squares (d,) about the mean.

    Returns
    -------
    float
        The smallest share of ``floor + squares`` that is left, of all columns.
    """
    weight = sign * n / _divisor(n + sign)
    share = 1.0
    for j in range(d):
        deviation = x[j] - mean[j]
        before = squares[j]
        squares[j] = max(before + weight * deviation * deviation, 0.0)
        share = min(share, (floor[j] + squares[j]) / (floor[j] + before))
    _move_mean(n, d, mean, x, sign)
    return share


@inlined
def update_scatter(n, d, mean, scatter, floor, x, sign):
    """Let a row join (1.0) or leave (-1.0) a cluster of ``n``, given the scatter matrix, a packed triangle.

    Returns
    -------
    float
        The smallest share of the diagonal of ``floor`` (d, d) and the scatter that is left.
    """
    weight = sign * n / _divisor(n + sign)
    share = 1.0
    at = 0
    for i in range(d):
        deviation = weight * (x[i] - mean[i])
        for j in range(i + 1):
            scatter[at + j] += deviation * (x[j] - mean[j])
        at += i
        lost = deviation * (x[i] - mean[i])
        total = floor[i * d + i] + scatter[at]
        share = min(share, total / (total - lost))
        at += 1
    _move_mean(n, d, mean, x, sign)
    return share


@inlined
def merge_squares(n, d, mean, squares, m, mean_other, squares_other):
    """Add to a cluster of ``n`` rows one of ``m``."""
    share = m / _divisor(n + m)
    for j in range(d):
        between = mean_other[j] - mean[j]
        squares[j] += squares_other[j] + share * n * between * between
        mean[j] += share * between


@inlined
def merge_scatter(n, d, mean, scatter, m, mean_other, scatter_other):
    """Add to a cluster of ``n`` rows one of ``m``, given scatter matrices, packed triangles."""
    share = m / _divisor(n + m)
    at = 0
    for i in range(d):
        between = share * n * (mean_other[i] - mean[i])
        for j in range(i + 1):
            scatter[at + j] += scatter_other[at + j] + between * (mean_other[j] - mean[j])
        at += i + 1
    for j in range(d):
        mean[j] += share * (mean_other[j] - mean[j])


# Rows whose scatter is computed at once.
ROWS_AT_ONCE = 64


@inlined
def gather_scatter(n, d, mean, scatter, data, stride, members, m, scratch):
    """Let the first of the rows ``members[:m]`` join a cluster of ``n``, up to ``ROWS_AT_ONCE`` at a time.

    ``scratch`` has room for ``(ROWS_AT_ONCE + 1) d`` numbers.

    Returns
    -------
    int
        How many have joined: all, or, of few columns, all but the last few.
    """
    if d >= LANES:
        _gather_many_columns(n, d, mean, scatter, data, stride, members, m, scratch)
        return m
    center = shifted(scratch, ROWS_AT_ONCE * d)
    done = 0
    while m - done >= ROWS_AT_ONCE:
        for j in range(d):
            column = shifted(scratch, j * ROWS_AT_ONCE)
            total = 0.0
            for r in range(ROWS_AT_ONCE):
                column[r] = data[members[done + r] * stride + j]
                total += column[r]
            center[j] = total / ROWS_AT_ONCE
            for r in range(ROWS_AT_ONCE):
                column[r] -= center[j]
        share = ROWS_AT_ONCE / (n + done + ROWS_AT_ONCE)
        at = 0
        for i in range(d):
            column = shifted(scratch, i * ROWS_AT_ONCE)
            between = share * (n + done) * (center[i] - mean[i])
            for j in range(i + 1):
                other = shifted(scratch, j * ROWS_AT_ONCE)
                total = 0.0
                for r in range(ROWS_AT_ONCE):
                    total += column[r] * other[r]
                scatter[at] += total + between * (center[j] - mean[j])
                at += 1
        for j in range(d):
            mean[j] += share * (center[j] - mean[j])
        done += ROWS_AT_ONCE
    return done


@inlined
def _gather_many_columns(n, d, mean, scatter, data, stride, members, m, scratch):
    """Let the rows ``members[:m]`` join a cluster of ``n``."""
    for start in range(0, m, ROWS_AT_ONCE):
        n_rows = min(ROWS_AT_ONCE, m - start)
        center = shifted(scratch, n_rows * d)
        for j in range(d):
            center[j] = 0.0
        for r in range(n_rows):
            x = shifted(data, members[start + r] * stride)
            for j in range(d):
                center[j] += x[j]
        for j in range(d):
            center[j] /= n_rows
        for r in range(n_rows):
            x, own = shifted(data, members[start + r] * stride), shifted(scratch, r * d)
            for j in range(d):
                own[j] = x[j] - center[j]
        # What lies between the means counts as one more row.
        share = n_rows / (n + start + n_rows)
        weight = math.sqrt(share * (n + start))
        for j in range(d):
            between = center[j] - mean[j]
            mean[j] += share * between
            center[j] = weight * between
        add_outer_products(scatter, scratch, n_rows + 1, d)


# What families declare whose sums are ``mean`` and ``scatter``: how clusters merge, and how many rows join one.


def merge_scatters(p, n, s, m, t):
    """``merge`` of such a family."""
    merge_scatter(n, p.d, s.mean, s.scatter, m, t.mean, t.scatter)


def gather_scatters(p, n, s, data, stride, members, m, scratch):
    """``gather`` of such a family."""
    return gather_scatter(n, p.d, s.mean, s.scatter, data, stride, members, m, scratch)


def scratch_of_scatters(params: Any) -> int:
    """``scratch`` of such a family, which gathers rows and conditions on some of its columns."""
    d = len(params.mu)
    return int(max(2 * d + d * (d + 1) // 2, (ROWS_AT_ONCE + 1) * d))
