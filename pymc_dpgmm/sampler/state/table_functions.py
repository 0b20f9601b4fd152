"""The C functions of a family, made from what it declares.

All statistics of all clusters of one view are one table of float64 numbers. A row of it is a cluster: the number
of its rows, the relative error that its sums may have, the sums, and the cache. The functions here change or read
rows of a table. They are templates: the names ``parameters``, ``sums``, ``kept`` and those of a family's own
functions are given their meaning when a family's functions are made, see :func:`functions_of`.

Where a view's memory lies, a block of whole numbers tells, whose places are named here.
"""

import inspect
import math
from collections import namedtuple
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

from numba.extending import intrinsic

from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.native.arithmetic import Bits, take_logarithms
from pymc_dpgmm.native.compiled import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NOTHING,
    CFunction,
    bytes_at,
    called_at,
    floats_at,
    inlined,
    ints_at,
    shifted,
    specialized,
)
from pymc_dpgmm.native.fingerprints import is_outside
from pymc_dpgmm.native.lanes import LANES

# Places in the block of a view: addresses of its table, data, parameters and scratch, and numbers.
TABLE, WIDTH, DATA, STRIDE, STARTS, SHARED, SCRATCH, EXPONENTS, ARGUMENTS = range(9)
UNIT_STARTS, UNIT_ROWS, SPARE, ROOM, ABSENT, N_KEPT = range(9, 15)
# Addresses of the functions.
WEIGH, CHANGE, GATHER, MERGE, EVIDENCE, PRESENT, DRAW_ABSENT, SUM_UP, EVIDENCE_ANEW, REFRESH, ADD_UP = range(
    15, 26
)
# Lengths of axes, and where sums and cache begin in a row, and parameters among all of them.
LENGTHS, SUMS, CACHE, PARAMETERS = 26, 33, 41, 57
BLOCK_LENGTH = 81

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
    return shifted(w.data, start)


@inlined
def cluster_of(w, k):
    """Return the row of the table that is slot ``k``."""
    return shifted(w.table, k * w.width)


def weigh(view, rows, n_rows, slots, m, owns, stride, out):
    """Add to ``out[j * stride + t]`` the log predictive of row ``rows[t]`` under slot ``slots[j]``.

    ``owns[t]`` is the slot that has the row, -1 if none has. For that slot, it is the log predictive given the
    other rows, NaN if too many digits would be lost or there are no others: then the row, or the unit that it is
    all of, must leave before it is asked. There are :func:`weights_at_once` pairs at most.
    """
    w = layout(view)
    p = parameters(view)
    exponents = floats_at(view[EXPONENTS])
    arguments = floats_at(view[ARGUMENTS])
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
            out[j * stride + t] += constant
            exponents[j * n_rows + t] = exponent
            arguments[j * n_rows + t] = argument
    take_logarithms(arguments, m * n_rows)
    for j in range(m):
        for t in range(n_rows):
            out[j * stride + t] -= exponents[j * n_rows + t] * arguments[j * n_rows + t]


def change(view, i, k, sign):
    """Let row ``i`` join (1.0) or leave (-1.0) slot ``k``; return whether its sums have to be computed anew."""
    w = layout(view)
    cluster = cluster_of(w, k)
    n = cluster[SIZE]
    share = change_cluster(parameters(view), n, sums(w, cluster), kept(w, cluster), row_of(w, i), sign)
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
    call_refresh(view[REFRESH], view, k)


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
    call_refresh(view[REFRESH], view, k)


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
    refresh(parameters(view), cluster[SIZE], sums(w, cluster), kept(w, cluster))


def log_evidence_of(view, k):
    """Return the log marginal likelihood of the rows of slot ``k``."""
    w = layout(view)
    cluster = cluster_of(w, k)
    return evidence_now(w, parameters(view), cluster[SIZE], cluster)


def log_evidence_anew(view, k):
    """Return the same from the sums of slot ``k`` alone."""
    w = layout(view)
    cluster = cluster_of(w, k)
    return evidence(w, parameters(view), cluster[SIZE], cluster)


def log_present(view, i, k):
    """Return the log predictive of the entries of row ``i`` that are not absent, given slot ``k``."""
    w = layout(view)
    p = parameters(view)
    cluster = cluster_of(w, k)
    absent = shifted(bytes_at(view[ABSENT]), i * p.d)
    s, c, scratch = sums(w, cluster), kept(w, cluster), w.scratch
    return log_predictive_present(p, cluster[SIZE], s, c, row_of(w, i), absent, scratch)


def set_absent(view, i, k, next_double, state):
    """Set the absent entries of row ``i`` to a draw given slot ``k`` and the other entries."""
    w = layout(view)
    p = parameters(view)
    cluster = cluster_of(w, k)
    absent = shifted(bytes_at(view[ABSENT]), i * p.d)
    s, c, scratch = sums(w, cluster), kept(w, cluster), w.scratch
    draw_absent(p, cluster[SIZE], s, c, row_of(w, i), absent, scratch, Bits(next_double, state))


# The glue between templates and a family's functions: what is declared, or what follows from the evidence.


def _declared_predictive(w, p, n, cluster, x):
    return log_predictive(p, n, sums(w, cluster), kept(w, cluster), x)


def _declared_predictive_without(w, p, n, cluster, x):
    return log_predictive_without(p, n, sums(w, cluster), kept(w, cluster), x)


def _gather_sums(w, p, cluster, s, members, m, fresh):
    if fresh != 0:
        for q in range(w.n_kept):
            cluster[q] = 0.0
    done = gather_many(w, p, cluster, s, members, m)
    for t in range(done, m):
        update(p, cluster[SIZE], s, row_of(w, members[t]), 1.0)
        cluster[SIZE] += 1.0
    cluster[ERROR] += ROUNDING


def _declared_gather(w, p, cluster, s, members, m):
    done = gather_own(p, cluster[SIZE], s, w.data, w.stride, members, m, w.scratch)
    cluster[SIZE] += done
    return done


def _none_gathered(w, p, cluster, s, members, m):
    return 0


def _copied(w, cluster, length):
    scratch = w.scratch
    for q in range(length):
        scratch[q] = cluster[q]
    return scratch


def _predictive_by_evidence(w, p, n, cluster, x):
    update(p, n, sums(w, copied(w, cluster, w.n_kept)), x, 1.0)
    with_row = evidence_of_scratch(w, p, n + 1.0)
    return with_row - evidence_now(w, p, n, cluster), 0.0, 1.0


def _predictive_without_by_removal(w, p, n, cluster, x):
    others = copied(w, cluster, w.width)
    share = change_cluster(p, n, sums(w, others), kept(w, others), x, -1.0)
    constant, exponent, argument = log_predictive(p, n - 1.0, sums(w, others), kept(w, others), x)
    return constant, exponent, argument if share >= least_share(cluster, exponent) else math.nan


def _predictive_without_by_evidence(w, p, n, cluster, x):
    share = update(p, n, sums(w, copied(w, cluster, w.n_kept)), x, -1.0)
    constant = evidence_now(w, p, n, cluster) - evidence_of_scratch(w, p, n - 1.0)
    return constant, 1.0, 1.0 if share >= least_share(cluster, 0.0) else math.nan


def _evidence_by_sums(w, p, n, cluster):
    return log_evidence(p, n, sums(w, cluster))


def _evidence_with_room(w, p, n, cluster):
    return log_evidence(p, n, sums(w, cluster), kept(w, w.scratch))


def _evidence_of_scratch(w, p, n):
    return evidence(w, p, n, w.scratch)


def _kept_evidence(w, p, n, cluster):
    return kept_evidence(p, n, sums(w, cluster), kept(w, cluster))


def _stored_evidence(w, p, n, cluster):
    return kept(w, cluster).evidence[0]


def _store_evidence(p, n, s, c):
    c.evidence[0] = log_evidence(p, n, s)


def _nothing_kept(p, n, s, c):
    pass


def _update_and_refresh(p, n, s, c, x, sign):
    share = update(p, n, s, x, sign)
    refresh(p, n + sign, s, c)
    return share


def _add_sums(w, p, cluster, other):
    for q in range(N_BEFORE_SUMS, w.n_kept):
        cluster[q] += other[q]


def _declared_merge(w, p, cluster, other):
    merge_own(p, cluster[SIZE], sums(w, cluster), other[SIZE], sums(w, other))


TEMPLATES: dict[int, tuple[Callable[..., Any], Any]] = {
    WEIGH: (weigh, NOTHING(INTS, INTS, INT, INTS, INT, INTS, INT, FLOATS)),
    CHANGE: (change, INT(INTS, INT, INT, FLOAT)),
    GATHER: (gather, NOTHING(INTS, INT, INTS, INT, INT)),
    MERGE: (merge, NOTHING(INTS, INT, INT)),
    EVIDENCE: (log_evidence_of, FLOAT(INTS, INT)),
    PRESENT: (log_present, FLOAT(INTS, INT, INT)),
    REFRESH: (refresh_cache, NOTHING(INTS, INT)),
    EVIDENCE_ANEW: (log_evidence_anew, FLOAT(INTS, INT)),
    SUM_UP: (sum_up, NOTHING(INTS, INT, INTS, INT)),
    ADD_UP: (add_up, NOTHING(INTS, INT, INT, INT)),
    DRAW_ABSENT: (set_absent, NOTHING(INTS, INT, INT, INT, INT)),
}
# What every sampler calls; the others are compiled where they are needed.
ALWAYS = (WEIGH, CHANGE, GATHER, MERGE, EVIDENCE, REFRESH)


@intrinsic
def call_weigh(typing_context, address, view, rows, n_rows, slots, m, owns, stride, out):
    return called_at(TEMPLATES[WEIGH][1])


@intrinsic
def call_change(typing_context, address, view, i, k, sign):
    return called_at(TEMPLATES[CHANGE][1])


@intrinsic
def call_gather(typing_context, address, view, k, members, m, fresh):
    return called_at(TEMPLATES[GATHER][1])


@intrinsic
def call_merge(typing_context, address, view, k, j):
    return called_at(TEMPLATES[MERGE][1])


@intrinsic
def call_refresh(typing_context, address, view, k):
    return called_at(TEMPLATES[REFRESH][1])


@intrinsic
def call_evidence(typing_context, address, view, k):
    return called_at(TEMPLATES[EVIDENCE][1])


@intrinsic
def call_present(typing_context, address, view, i, k):
    return called_at(TEMPLATES[PRESENT][1])


@intrinsic
def call_draw_absent(typing_context, address, view, i, k, next_double, state):
    return called_at(TEMPLATES[DRAW_ABSENT][1])


def _reader(name: str, arguments: str, fields: dict[str, str]) -> Callable[..., Any]:
    """Return a function of the view's block that reads a ``namedtuple`` of the given fields.

    Compiled code knows fields by name only, so that the function is written out.
    """
    kind: Any = namedtuple(name, list(fields))  # type: ignore[misc]
    namespace: dict[str, Any] = {"kind": kind, "floats_at": floats_at, "ints_at": ints_at, "shifted": shifted}
    body = ", ".join(fields.values())
    exec(compile(f"def read({arguments}):\n    return kind({body})\n", f"<fields of {name}>", "exec"), namespace)
    return inlined(namespace["read"])


def _readers(family: Family) -> dict[str, Callable[..., Any]]:
    """Return how parameters, sums and cache of a family are read."""
    letters = letters_of(family)
    fields = {letter: f"view[{LENGTHS + q}]" for q, letter in enumerate(letters)}
    fields["data"] = f"floats_at(view[{DATA}])"
    shared = f"floats_at(view[{SHARED}])"
    for q, (name, axes) in enumerate({**family.axes, **family.tables}.items()):
        place = f"view[{PARAMETERS + q}]"
        fields[name] = f"shifted({shared}, {place})" if axes else f"{shared}[{place}]"
    places = {
        "table": f"floats_at(view[{TABLE}])",
        "width": f"view[{WIDTH}]",
        "data": f"floats_at(view[{DATA}])",
        "stride": f"view[{STRIDE}]",
        "is_ragged": f"view[{STARTS}] != 0",
        "starts": f"ints_at(view[{STARTS}])",
        "scratch": f"floats_at(view[{SCRATCH}])",
        "n_kept": f"view[{N_KEPT}]",
    }
    places |= {f"sum_{name}": f"view[{SUMS + q}]" for q, name in enumerate(family.sums)}
    places |= {f"kept_{name}": f"view[{CACHE + q}]" for q, name in enumerate(family.cache)}
    return {
        "parameters": _reader(f"{family.name}Numbers", "view", fields),
        # Read once, before a loop over clusters: compiled code cannot know that memory stays what it is.
        "layout": _reader(f"{family.name}Layout", "view", places),
        "sums": _reader(
            f"{family.name}SumsAt", "w, row", {name: f"shifted(row, w.sum_{name})" for name in family.sums}
        ),
        "kept": _reader(
            f"{family.name}CacheAt", "w, row", {name: f"shifted(row, w.kept_{name})" for name in family.cache}
        ),
    }


def letters_of(family: Family) -> list[str]:
    """Return the letters of a family's axes, in the order in which their lengths are stored."""
    used = "".join([*family.axes.values(), *family.sums.values(), *family.cache.values()])
    return sorted(set(used))


@cache
def _jitable(function: Callable[..., Any]) -> Callable[..., Any]:
    return inlined(function)


# What a family may declare to be compiled.
OWN_FUNCTIONS = (
    "update",
    "log_evidence",
    "refresh",
    "change",
    "kept_evidence",
    "merge",
    "gather",
    "log_predictive",
    "log_predictive_without",
    "log_predictive_present",
    "draw_absent",
)


@cache
def _meaning(family: Family) -> dict[str, Any]:
    """Return what the names in the templates mean for a family."""
    known: dict[str, Any] = _readers(family)
    for verb in ("update", "log_evidence", "log_predictive", "log_predictive_without", "log_predictive_present"):
        own = getattr(family, verb)
        if own is not None:
            known[verb] = _jitable(own)
    if family.draw_absent is not None:
        known["draw_absent"] = _jitable(family.draw_absent)
    if family.merge is not None:
        known["merge_own"] = _jitable(family.merge)
    if family.gather is not None:
        known["gather_own"] = _jitable(family.gather)

    def bound(function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of this module that finds the family's functions under their names."""
        return inlined(FunctionType(function.__code__, {**globals(), **known}, function.__name__))  # type: ignore

    takes_room = len(inspect.signature(family.log_evidence).parameters) > 3
    stores_evidence = "evidence" in family.cache
    by_default = bound(_store_evidence if stores_evidence else _nothing_kept)
    known["refresh"] = _jitable(family.refresh) if family.refresh is not None else by_default
    known["gather_many"] = bound(_none_gathered if family.gather is None else _declared_gather)
    known["gather_sums"] = bound(_gather_sums)
    known["copied"] = bound(_copied)
    known["evidence"] = bound(_evidence_with_room if takes_room else _evidence_by_sums)
    known["evidence_of_scratch"] = bound(_evidence_of_scratch)
    if family.kept_evidence is not None:
        known["kept_evidence"] = _jitable(family.kept_evidence)
        known["evidence_now"] = bound(_kept_evidence)
    else:
        known["evidence_now"] = bound(_stored_evidence) if stores_evidence else known["evidence"]
    known["change_cluster"] = _jitable(family.change) if family.change is not None else bound(_update_and_refresh)
    known["merge_sums"] = bound(_add_sums if family.merge is None else _declared_merge)
    by_evidence = family.log_predictive is None
    known["predictive"] = bound(_predictive_by_evidence if by_evidence else _declared_predictive)
    if family.log_predictive_without is not None:
        known["predictive_without"] = bound(_declared_predictive_without)
    else:
        known["predictive_without"] = bound(
            _predictive_without_by_evidence if by_evidence else _predictive_without_by_removal
        )
    return known


@cache
def function_of(family: Family, verb: int) -> CFunction:
    """Return a C function of a family, by its place in the block."""
    template, signature = TEMPLATES[verb]
    own = (getattr(family, name) for name in OWN_FUNCTIONS)
    outside = tuple(function for function in own if function is not None and is_outside(function))
    return specialized(template, f"{family.name}_{template.__name__}", _meaning(family), signature, outside)
