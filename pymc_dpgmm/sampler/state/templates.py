"""Templates of the C functions of a family.

All statistics of all clusters of one view are one table of float64 numbers. Each line of the table is a cluster:
the number of its rows, the relative error that its sums may have, the sums, and the cache. The functions here
change or read lines of a table. ``table_functions.py`` makes C functions of them for each family.

``VIEW`` declares the block of whole numbers that says where a view's memory lies.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import Bits, take_logarithms
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NOTHING,
    float_of,
    inlined,
    shifted,
)
from pymc_dpgmm.native.lane_products import squared_distances
from pymc_dpgmm.native.lanes import LANES
from pymc_dpgmm.native.triangles import squared_distance

VIEW = Block(
    # The table, and how many numbers a row of it has.
    array=blocks.FLOATS,
    width=NUMBER,
    # The data, and how many numbers a row of it has, or where rows of several lengths start.
    rows=blocks.FLOATS,
    stride=NUMBER,
    starts=blocks.INTS,
    # Parameters.
    shared=blocks.FLOATS,
    # For one call.
    scratch=blocks.FLOATS,
    exponents=blocks.FLOATS,
    arguments=blocks.FLOATS,
    # Rows of units, a slot that units are weighed in, and room for the rows of several units.
    unit_starts=blocks.INTS,
    unit_rows=blocks.INTS,
    spare=NUMBER,
    room=blocks.INTS,
    # Which entries of each row are missing.
    absent=blocks.BYTES,
    # Numbers in a row of the table before its cache.
    n_before_cache=NUMBER,
    # The power of the likelihood, a float64 that is kept bit by bit: see ``float_of``.
    power=NUMBER,
    # The functions of the family, see ``TEMPLATES``.
    weigh=NOTHING(INTS, INTS, INT, INTS, INT, INTS, INT, FLOATS),
    weigh_together=NOTHING(INTS, INTS, INT, INTS, INT, INTS, INT, FLOATS),
    change=INT(INTS, INT, INT, FLOAT),
    gather=NOTHING(INTS, INT, INTS, INT, INT),
    merge=NOTHING(INTS, INT, INT),
    evidence=FLOAT(INTS, INT),
    present=FLOAT(INTS, INT, INT),
    draw_absent=NOTHING(INTS, INT, INT, INT, INT),
    draw_normal=FLOAT(INTS, INT, FLOATS, FLOATS, FLOATS, INT, INT),
    sum_up=NOTHING(INTS, INT, INTS, INT),
    evidence_anew=FLOAT(INTS, INT),
    refresh=NOTHING(INTS, INT),
    add_up=NOTHING(INTS, INT, INT, INT),
    derive=INT(INTS),
    # Lengths of axes, where each sum and each part of the cache begins in a row of the table, and each parameter
    # among all of them.
    lengths=7,
    sums=8,
    cache=16,
    parameters=24,
)
LENGTHS, SUMS, CACHE, PARAMETERS = VIEW.places("lengths", "sums", "cache", "parameters")
BLOCK_LENGTH = len(VIEW)
# The view of its block that compiled code reads.
view_at = VIEW.reader()

# In a row of a table: number of rows, and relative error of the sums.
SIZE, ERROR = 0, 1
N_BEFORE_SUMS = 2

# Relative error at which sums are computed anew from the rows, and that of one change of them.
WORST_ERROR = 1e-10
ROUNDING = 2.3e-16
# Below this share of a statistic left without a row, the row's density is not told from what includes it.
SMALLEST_SHARE = 1e-8
# Nor is it where the log of an argument could so be off by more than this.
WORST_LOG_ERROR = 1e-5


# What the templates below take from a family. Here these functions only say what they are: in the C functions of a
# family, its own take their place under the same names, see ``table_functions.py``.


def _of_a_family(function: Callable[..., Any]) -> Callable[..., Any]:
    def unbound(*arguments: Any) -> Any:
        raise NotImplementedError(
            f"{function.__name__} is a placeholder: functions of a family are made by table_functions.function_of"
        )

    return functools.wraps(function)(unbound)


@_of_a_family
def layout(view):
    """Return where a view's memory lies: the fields of ``VIEW``, and where sums and cache begin in a row."""


@_of_a_family
def parameters(view):
    """Return the family's parameters, and pointers to those with axes (``Family.axes``)."""


@_of_a_family
def tables(view):
    """Return pointers to the family's numbers beside its parameters (``Family.tables``)."""


@_of_a_family
def derive_numbers(p, t, scratch):
    """``Family.derive``: write what the evidence needs beside the parameters; tell whether these fit together."""


@_of_a_family
def sums(w, cluster):
    """Return pointers to the sums in a row of the table (``Family.sums``)."""


@_of_a_family
def cache_of(w, cluster):
    """Return pointers to the cache in a row of the table (``Family.cache``)."""


@_of_a_family
def update(p, n, s, x, sign):
    """``Family.update``: let a row join or leave sums."""


@_of_a_family
def refresh(p, n, s, c):
    """``Family.refresh``: derive the cache from the sums; by default the evidence, or nothing."""


@_of_a_family
def change_cluster(p, n, s, c, x, sign):
    """``Family.change``: let a row join or leave sums and cache; by default ``update``, then ``refresh``."""


@_of_a_family
def log_evidence(p, n, s, room):
    """``Family.log_evidence``: log marginal likelihood of rows with these sums."""


@_of_a_family
def kept_evidence(p, n, s, c):
    """``Family.kept_evidence``: the same from the cache."""


@_of_a_family
def log_predictive(p, n, s, c, x):
    """``Family.log_predictive``: constant, exponent and argument of a row's density given a cluster."""


@_of_a_family
def log_predictive_without(p, n, s, c, x):
    """``Family.log_predictive_without``: the same of a row of the cluster, given its other rows."""


@_of_a_family
def log_predictive_present(p, n, s, c, x, absent, scratch):
    """``Family.log_predictive_present``: log density of the entries of a row that are not missing."""


@_of_a_family
def draw_absent(p, n, s, c, x, absent, scratch, bits):
    """``Family.draw_absent``: set the missing entries of a row to a draw given the others."""


@_of_a_family
def draw_normal(p, n, s, c, mean, precision, scratch, bits):
    """``Family.draw_normal``: draw mean and precision of normal rows; return half the log of its determinant."""


@_of_a_family
def gather_own(p, n, s, data, stride, members, m, scratch):
    """``Family.gather``: let many rows join sums; return how many have."""


@_of_a_family
def merge_own(p, n, s, n_other, s_other):
    """``Family.merge``: let sums stand for their own rows and those of others."""


@_of_a_family
def quadratic(p, c):
    """``Family.quadratic``: the triangle and the shift that give the squared distance of a row."""


@_of_a_family
def quadratic_predictive(p, n, s, c, square):
    """``Family.quadratic_predictive``: what ``log_predictive`` is of a row of this squared distance."""


@_of_a_family
def quadratic_predictive_without(p, n, s, c, square):
    """``Family.quadratic_predictive_without``: the same of a row of the cluster, given its other rows."""


# What follows from these, chosen among the functions below by what the family declares.


@_of_a_family
def predictive(w, p, n, cluster, x):
    """``log_predictive`` of a row of the table, or a ratio of evidences."""


@_of_a_family
def predictive_without(w, p, n, cluster, x):
    """``log_predictive_without`` of a row of the table, or after the row has left a copy of the cluster."""


@_of_a_family
def gather_many(w, p, cluster, s, members, m):
    """``gather_own`` if it is declared; return how many rows have joined."""


@_of_a_family
def gather_sums(w, p, cluster, s, members, m, fresh):
    """Let rows join sums, by ``gather_own`` as far as it goes, then one by one."""


@_of_a_family
def merge_sums(w, p, cluster, other):
    """``merge_own``, or by default a sum."""


@_of_a_family
def copied(w, cluster, length):
    """Copy the beginning of a row of the table to scratch memory, and return this."""


@_of_a_family
def evidence(w, p, n, cluster):
    """``log_evidence`` of a row of the table."""


@_of_a_family
def evidence_of_scratch(w, p, n):
    """Return the log evidence of what has been copied to scratch memory."""


@_of_a_family
def evidence_now(w, p, n, cluster):
    """Return the log evidence from the cache, where it has it."""


# So many rows are weighed in one call with one or two slots, and ``LANES`` rows with any number of slots.
WEIGHED_AT_ONCE = 4 * LANES


def weights_at_once(n_slots: int) -> int:
    """Return how many pairs of a row and a slot can be weighed in one call."""
    return max(n_slots * LANES, 2 * WEIGHED_AT_ONCE)


@inlined
def least_share(cluster, exponent):
    """Return below which share left without a row its density is not told from what includes it.

    A relative error of the sums is one of the share, which enters the density by a power that a cluster's rows and
    the ``exponent`` of the density bound.
    """
    return max(SMALLEST_SHARE, (abs(exponent) + cluster[SIZE]) * cluster[ERROR] / WORST_LOG_ERROR)


@inlined
def row_of(w, i):
    """Return the data of row ``i``."""
    start = i * w.stride
    if w.is_ragged:
        start = w.starts[i]
    return shifted(w.rows, start)


@inlined
def cluster_of(w, k):
    """Return the row of the table that is slot ``k``."""
    return shifted(w.array, k * w.width)


def weigh(view, rows, n_rows, slots, m, owns, stride, out):
    """Add to ``out[j * stride + t]`` the log predictive of row ``rows[t]`` under slot ``slots[j]``.

    ``owns[t]`` is the slot that has the row, -1 if none has. For that slot, it is the log predictive given the
    other rows, NaN if too many digits would be lost or there are no others: then the row, or the unit that it is
    all of, must leave before it is asked. There are :func:`weights_at_once` pairs at most.
    """
    w = layout(view)
    p = parameters(view)
    power = float_of(view_at(view).power)
    exponents = view_at(view).exponents
    arguments = view_at(view).arguments
    for j in range(m):
        slot = slots[j]
        cluster = cluster_of(w, slot)
        n = cluster[SIZE]
        for t in range(n_rows):
            x = row_of(w, rows[t])
            constant, exponent, argument = 0.0, 0.0, math.nan
            if owns[t] != slot:
                constant, exponent, argument = predictive(w, p, n, cluster, x)
            elif n > 1.0:
                constant, exponent, argument = predictive_without(w, p, n, cluster, x)
                if argument < least_share(cluster, exponent):
                    argument = math.nan
            out[j * stride + t] += power * constant
            exponents[j * n_rows + t] = power * exponent
            arguments[j * n_rows + t] = argument
    take_logarithms(arguments, m * n_rows)
    for j in range(m):
        for t in range(n_rows):
            out[j * stride + t] -= exponents[j * n_rows + t] * arguments[j * n_rows + t]


# Rows and columns from which on rows are weighed in lanes: with fewer, to bring them there takes longer.
FEWEST_IN_LANES, FEWEST_COLUMNS_IN_LANES = 3, 3


def scratch_in_lanes(n_columns: int) -> int:
    """Return how many numbers :func:`weigh_in_lanes` has in scratch memory."""
    return (n_columns + 1) * LANES


def weigh_in_lanes(view, rows, n_rows, slots, m, owns, stride, out):
    """Weigh rows (:func:`weigh`) of which densities are quadratic, up to ``LANES`` of them at once."""
    w = layout(view)
    p = parameters(view)
    power = float_of(view_at(view).power)
    exponents = view_at(view).exponents
    arguments = view_at(view).arguments
    columns, squares = w.scratch, shifted(w.scratch, p.d * LANES)
    for first in range(0, n_rows, LANES):
        n_lanes = min(LANES, n_rows - first)
        are_in_lanes = n_lanes >= FEWEST_IN_LANES and p.d >= FEWEST_COLUMNS_IN_LANES
        if are_in_lanes:
            for lane in range(LANES):
                # Lanes without a row repeat the last one.
                x = row_of(w, rows[first + min(lane, n_lanes - 1)])
                for j in range(p.d):
                    columns[j * LANES + lane] = x[j]
        for j in range(m):
            slot = slots[j]
            cluster = cluster_of(w, slot)
            n, s, c = cluster[SIZE], sums(w, cluster), cache_of(w, cluster)
            factor, shift = quadratic(p, c)
            if are_in_lanes:
                squared_distances(factor, shift, columns, p.d, squares)
            else:
                for lane in range(n_lanes):
                    squares[lane] = squared_distance(factor, shift, row_of(w, rows[first + lane]), p.d)
            for lane in range(n_lanes):
                t = first + lane
                constant, exponent, argument = 0.0, 0.0, math.nan
                if owns[t] != slot:
                    constant, exponent, argument = quadratic_predictive(p, n, s, c, squares[lane])
                elif n > 1.0:
                    found = quadratic_predictive_without(p, n, s, c, squares[lane])
                    constant, exponent, argument = found
                    if argument < least_share(cluster, exponent):
                        argument = math.nan
                out[j * stride + t] += power * constant
                exponents[j * n_rows + t] = power * exponent
                arguments[j * n_rows + t] = argument
    take_logarithms(arguments, m * n_rows)
    for j in range(m):
        for t in range(n_rows):
            out[j * stride + t] -= exponents[j * n_rows + t] * arguments[j * n_rows + t]


def weigh_together(view, rows, n_rows, slots, m, owns, stride, out):
    """Add to ``out[j * stride]`` the log density of all of some rows together under slot ``slots[j]``.

    It is a ratio of marginal likelihoods. Under the slot ``owns[0]``, which has the rows, it is NaN: they must
    leave before it is asked.
    """
    w, p = layout(view), parameters(view)
    power = float_of(view_at(view).power)
    together = cluster_of(w, view_at(view).spare)
    gather_sums(w, p, together, sums(w, together), rows, n_rows, 1)
    for j in range(m):
        cluster = cluster_of(w, slots[j])
        with_rows = copied(w, cluster, w.n_before_cache)
        merge_sums(w, p, with_rows, together)
        log_p = evidence_of_scratch(w, p, cluster[SIZE] + n_rows)
        if slots[j] == owns[0]:
            out[j * stride] = math.nan
        else:
            out[j * stride] += power * (log_p - evidence_now(w, p, cluster[SIZE], cluster))


def change(view, i, k, sign):
    """Let row ``i`` join (1.0) or leave (-1.0) slot ``k``; return whether its sums have to be computed anew."""
    w = layout(view)
    cluster = cluster_of(w, k)
    n = cluster[SIZE]
    share = change_cluster(parameters(view), n, sums(w, cluster), cache_of(w, cluster), row_of(w, i), sign)
    cluster[SIZE] = n + sign
    cluster[ERROR] += ROUNDING
    if sign < 0.0:
        cluster[ERROR] /= max(share, ROUNDING)
    # Not a number is an error too.
    return 0 if cluster[ERROR] <= WORST_ERROR else 1


def gather(view, k, members, m, fresh):
    """Let the rows ``members[:m]`` join slot ``k``, which is emptied first if ``fresh``; derive its cache."""
    w = layout(view)
    cluster = cluster_of(w, k)
    p = parameters(view)
    s = sums(w, cluster)
    gather_sums(w, p, cluster, s, members, m, fresh)
    view_at(view).refresh(view, k)


def sum_up(view, k, members, m):
    """Set the sums of slot ``k`` to those of the rows ``members[:m]``, and nothing else."""
    w = layout(view)
    cluster = cluster_of(w, k)
    gather_sums(w, parameters(view), cluster, sums(w, cluster), members, m, 1)


def merge(view, k, j):
    """Let slot ``k`` stand for its own rows and those of slot ``j`` together."""
    w = layout(view)
    cluster, other = cluster_of(w, k), cluster_of(w, j)
    merge_sums(w, parameters(view), cluster, other)
    cluster[SIZE] += other[SIZE]
    cluster[ERROR] = max(cluster[ERROR], other[ERROR]) + ROUNDING
    view_at(view).refresh(view, k)


def add_up(view, first, n_slots, by):
    """Let the sums of ``n_slots`` slots stand for their own rows and those of the slots ``by`` further on."""
    w, p = layout(view), parameters(view)
    for k in range(first, first + n_slots):
        cluster, other = cluster_of(w, k), cluster_of(w, k + by)
        if other[SIZE] > 0.0:
            merge_sums(w, p, cluster, other)
            cluster[SIZE] += other[SIZE]
            cluster[ERROR] = max(cluster[ERROR], other[ERROR]) + ROUNDING


def refresh_cache(view, k):
    """Derive the cache of slot ``k`` from its sums."""
    w = layout(view)
    cluster = cluster_of(w, k)
    refresh(parameters(view), cluster[SIZE], sums(w, cluster), cache_of(w, cluster))


def log_evidence_of(view, k):
    """Return the log marginal likelihood of the rows of slot ``k``."""
    w = layout(view)
    cluster = cluster_of(w, k)
    return float_of(view_at(view).power) * evidence_now(w, parameters(view), cluster[SIZE], cluster)


def log_evidence_anew(view, k):
    """Return the log marginal likelihood of the rows of slot ``k`` from their sums alone."""
    w = layout(view)
    cluster = cluster_of(w, k)
    return float_of(view_at(view).power) * evidence(w, parameters(view), cluster[SIZE], cluster)


def log_present(view, i, k):
    """Return the log predictive of the entries of row ``i`` that are not absent, given slot ``k``."""
    w = layout(view)
    p = parameters(view)
    cluster = cluster_of(w, k)
    absent = shifted(view_at(view).absent, i * p.d)
    s, c, scratch = sums(w, cluster), cache_of(w, cluster), w.scratch
    log_p = log_predictive_present(p, cluster[SIZE], s, c, row_of(w, i), absent, scratch)
    return float_of(view_at(view).power) * log_p


def set_absent(view, i, k, next_double, state):
    """Set the absent entries of row ``i`` to a draw given slot ``k`` and the other entries."""
    w = layout(view)
    p = parameters(view)
    cluster = cluster_of(w, k)
    absent = shifted(view_at(view).absent, i * p.d)
    s, c, scratch = sums(w, cluster), cache_of(w, cluster), w.scratch
    draw_absent(p, cluster[SIZE], s, c, row_of(w, i), absent, scratch, Bits(next_double, state))


def draw_normal_cluster(view, k, mean, precision, scratch, next_double, state):
    """Draw mean and precision of the normal rows of slot ``k``; return half the log of its determinant."""
    w = layout(view)
    cluster = cluster_of(w, k)
    p, s, c = parameters(view), sums(w, cluster), cache_of(w, cluster)
    return draw_normal(p, cluster[SIZE], s, c, mean, precision, scratch, Bits(next_double, state))


def derive(view):
    """Write what the log evidence needs beside the parameters; return whether these fit together, 1 or 0."""
    return 1 if derive_numbers(parameters(view), tables(view), layout(view).scratch) else 0


TEMPLATES: dict[str, Callable[..., Any]] = {
    "weigh": weigh,
    "weigh_together": weigh_together,
    "change": change,
    "gather": gather,
    "merge": merge,
    "evidence": log_evidence_of,
    "present": log_present,
    "refresh": refresh_cache,
    "evidence_anew": log_evidence_anew,
    "sum_up": sum_up,
    "add_up": add_up,
    "draw_absent": set_absent,
    "draw_normal": draw_normal_cluster,
    "derive": derive,
}
# What every sampler calls; the others are compiled where they are needed.
ALWAYS = ("weigh", "change", "gather", "merge", "evidence", "refresh")
