"""The C functions of a family: the templates, with what the family declares in place of their names."""

import inspect
import math
from collections import namedtuple
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

from pymc_dpgmm.families.contract.family import Family
from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.compiled import CFunction, inlined, specialized
from pymc_dpgmm.native.fingerprints import is_outside
from pymc_dpgmm.native.triangles import squared_distance
from pymc_dpgmm.sampler.state.templates import (
    CACHE,
    ERROR,
    LENGTHS,
    N_BEFORE_SUMS,
    PARAMETERS,
    ROUNDING,
    SIZE,
    SUMS,
    TEMPLATES,
    VIEW,
    cache_of,
    change_cluster,
    copied,
    evidence,
    evidence_now,
    evidence_of_scratch,
    gather_many,
    gather_own,
    kept_evidence,
    least_share,
    log_evidence,
    log_predictive,
    log_predictive_without,
    merge_own,
    predictive,
    quadratic,
    quadratic_predictive,
    refresh,
    row_of,
    sums,
    update,
    weigh_in_lanes,
)

# The glue between templates and a family's functions: what is declared, or what follows from the evidence.


def _declared_predictive(w, p, n, cluster, x):
    return log_predictive(p, n, sums(w, cluster), cache_of(w, cluster), x)


def _declared_predictive_without(w, p, n, cluster, x):
    return log_predictive_without(p, n, sums(w, cluster), cache_of(w, cluster), x)


def _quadratic_predictive(w, p, n, cluster, x):
    s, c = sums(w, cluster), cache_of(w, cluster)
    factor, shift = quadratic(p, c)
    return quadratic_predictive(p, n, s, c, squared_distance(factor, shift, x, p.d))


def _gather_sums(w, p, cluster, s, members, m, fresh):
    if fresh != 0:
        for q in range(w.n_before_cache):
            cluster[q] = 0.0
    done = gather_many(w, p, cluster, s, members, m)
    for t in range(done, m):
        update(p, cluster[SIZE], s, row_of(w, members[t]), 1.0)
        cluster[SIZE] += 1.0
    cluster[ERROR] += ROUNDING


def _declared_gather(w, p, cluster, s, members, m):
    done = gather_own(p, cluster[SIZE], s, w.rows, w.stride, members, m, w.scratch)
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
    update(p, n, sums(w, copied(w, cluster, w.n_before_cache)), x, 1.0)
    with_row = evidence_of_scratch(w, p, n + 1.0)
    return with_row - evidence_now(w, p, n, cluster), 0.0, 1.0


def _predictive_without_by_removal(w, p, n, cluster, x):
    others = copied(w, cluster, w.width)
    share = change_cluster(p, n, sums(w, others), cache_of(w, others), x, -1.0)
    constant, exponent, argument = predictive(w, p, n - 1.0, others, x)
    return constant, exponent, argument if share >= least_share(cluster, exponent) else math.nan


def _predictive_without_by_evidence(w, p, n, cluster, x):
    share = update(p, n, sums(w, copied(w, cluster, w.n_before_cache)), x, -1.0)
    constant = evidence_now(w, p, n, cluster) - evidence_of_scratch(w, p, n - 1.0)
    return constant, 1.0, 1.0 if share >= least_share(cluster, 0.0) else math.nan


def _evidence_by_sums(w, p, n, cluster):
    return log_evidence(p, n, sums(w, cluster))


def _evidence_with_room(w, p, n, cluster):
    return log_evidence(p, n, sums(w, cluster), cache_of(w, w.scratch))


def _evidence_of_scratch(w, p, n):
    return evidence(w, p, n, w.scratch)


def _kept_evidence(w, p, n, cluster):
    return kept_evidence(p, n, sums(w, cluster), cache_of(w, cluster))


def _stored_evidence(w, p, n, cluster):
    return cache_of(w, cluster).evidence[0]


def _store_evidence(p, n, s, c):
    c.evidence[0] = log_evidence(p, n, s)


def _nothing_kept(p, n, s, c):
    pass


def _update_and_refresh(p, n, s, c, x, sign):
    share = update(p, n, s, x, sign)
    refresh(p, n + sign, s, c)
    return share


def _add_sums(w, p, cluster, other):
    for q in range(N_BEFORE_SUMS, w.n_before_cache):
        cluster[q] += other[q]


def _declared_merge(w, p, cluster, other):
    merge_own(p, cluster[SIZE], sums(w, cluster), other[SIZE], sums(w, other))


def _readers(family: Family) -> dict[str, Callable[..., Any]]:
    """Return how parameters, sums and cache of a family are read."""
    letters = letters_of(family)
    fields = {letter: f"view[{LENGTHS + q}]" for q, letter in enumerate(letters)}
    fields["data"], shared = VIEW.read("rows", "view"), VIEW.read("shared", "view")
    written = {}
    for q, (name, axes) in enumerate({**family.axes, **family.tables}.items()):
        place = f"view[{PARAMETERS + q}]"
        pointer = f"shifted({shared}, {place})"
        fields[name] = pointer if axes else f"{shared}[{place}]"
        if name in family.tables:
            written[name] = pointer
    places = {
        name: VIEW.read(name, "view")
        for name in ("array", "width", "rows", "stride", "starts", "n_before_cache", "scratch")
    }
    places["is_ragged"] = f"view[{VIEW.place('starts')}] != 0"
    places |= {f"sum_{name}": f"view[{SUMS + q}]" for q, name in enumerate(family.sums)}
    places |= {f"cache_{name}": f"view[{CACHE + q}]" for q, name in enumerate(family.cache)}
    sums = {name: f"shifted(row, w.sum_{name})" for name in family.sums}
    cached = {name: f"shifted(row, w.cache_{name})" for name in family.cache}
    return {
        "parameters": _reader(f"{family.name}Numbers", ["view"], fields),
        "tables": _reader(f"{family.name}Tables", ["view"], written),
        # Read once, before a loop over clusters: compiled code cannot know that memory stays what it is.
        "layout": _reader(f"{family.name}Layout", ["view"], places),
        "sums": _reader(f"{family.name}SumsAt", ["w", "row"], sums),
        "cache_of": _reader(f"{family.name}CacheAt", ["w", "row"], cached),
    }


def _reader(name: str, arguments: list[str], fields: dict[str, str]) -> Callable[..., Any]:
    kind: Any = namedtuple(name, list(fields))  # type: ignore[misc]
    return blocks.reader(kind, arguments, fields)


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
    "quadratic",
    "quadratic_predictive",
    "quadratic_predictive_without",
    "log_predictive_present",
    "draw_absent",
    "draw_normal",
    "derive",
)


@cache
def _meaning(family: Family) -> dict[str, Any]:
    """Return what the names in the templates mean for a family."""
    known: dict[str, Any] = _readers(family)
    for verb in (
        "update",
        "log_evidence",
        "log_predictive",
        "log_predictive_without",
        "quadratic",
        "quadratic_predictive",
        "quadratic_predictive_without",
        "log_predictive_present",
    ):
        own = getattr(family, verb)
        if own is not None:
            known[verb] = _jitable(own)
    for verb, name in (("draw_absent",) * 2, ("draw_normal",) * 2, ("derive", "derive_numbers")):
        own = getattr(family, verb)
        if own is not None:
            known[name] = _jitable(own)
    if family.merge is not None:
        known["merge_own"] = _jitable(family.merge)
    if family.gather is not None:
        known["gather_own"] = _jitable(family.gather)

    def bound(function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of this module that finds the family's functions under their names."""
        return inlined(FunctionType(function.__code__, {**function.__globals__, **known}, function.__name__))  # type: ignore

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
    by_evidence = family.log_predictive is None and family.quadratic is None
    declared = _declared_predictive if family.quadratic is None else _quadratic_predictive
    known["predictive"] = bound(_predictive_by_evidence if by_evidence else declared)
    if family.log_predictive_without is not None:
        known["predictive_without"] = bound(_declared_predictive_without)
    else:
        known["predictive_without"] = bound(
            _predictive_without_by_evidence if by_evidence else _predictive_without_by_removal
        )
    return known


def evidence_functions(family: Family) -> list[CFunction]:
    """Return what gives log evidence at other parameters: ``evidence_anew``, and ``derive`` if there is one."""
    return [function_of(family, verb) for verb in ("evidence_anew", "derive")[: 1 if family.derive is None else 2]]


def sum_up_function(family: Family) -> CFunction:
    """Return what sums up clusters of other rows."""
    return function_of(family, "sum_up")


def is_weighed_in_lanes(family: Family) -> bool:
    """Tell whether several rows of a family are weighed at once."""
    return family.quadratic is not None


@cache
def function_of(family: Family, verb: str) -> CFunction:
    """Return a C function of a family, by its field of ``VIEW``."""
    template = TEMPLATES[verb]
    if verb == "weigh" and is_weighed_in_lanes(family):
        template = weigh_in_lanes
    own = (getattr(family, name) for name in OWN_FUNCTIONS)
    outside = tuple(function for function in own if function is not None and is_outside(function))
    name, maker = f"{family.name}_{template.__name__}", (function_of, (family, verb))
    return specialized(template, name, _meaning(family), VIEW.signature(verb), outside, maker)
