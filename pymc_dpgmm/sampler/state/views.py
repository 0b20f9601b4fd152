"""What is done in all views of a partition: rows are weighed, and join, leave, gather and merge."""

import math

from pymc_dpgmm.native.compiled import (
    c_function,
    inlined,
    shifted,
)
from pymc_dpgmm.sampler.state.memory import HEAD, memory_at
from pymc_dpgmm.sampler.state.templates import (
    BLOCK_LENGTH,
    VIEW,
    view_at,
)

_SPARE = VIEW.place("spare")


@inlined
def view_of(s, v):
    """Return the block of view ``v``."""
    return view_at(shifted(s.views, v * BLOCK_LENGTH))


@inlined
def copy_cluster(view, source, target):
    """Copy the statistics of a slot to another one, in one view."""
    width = view.width
    table = view.array
    for q in range(width):
        table[target * width + q] = table[source * width + q]


# What is done in all views is compiled once, and called by its address: otherwise every kernel would hold a copy
# of it, and take longer to compile than to write.


@c_function(HEAD.signature("weigh_in_views"))
def weigh_in_views(head, rows, n_rows, slots, m, owns, stride, out):
    """Weigh rows in all views: see :func:`weigh_rows`."""
    s = memory_at(head)
    for v in range(s.n_views):
        view = view_of(s, v)
        if not view.has_unit_starts:
            view.weigh(view.head, rows, n_rows, slots, m, owns, stride, out)
        else:
            for t in range(n_rows):
                _weigh_unit(view, rows[t], slots, m, shifted(owns, t), stride, shifted(out, t))


# Rows of a unit are weighed together where their number squared, times this, is more than the numbers that are
# kept of a cluster. Of d columns these are d^2 / 2; a marginal likelihood takes d^3 / 6 steps, and a row 2 d^2.
ROWS_TOGETHER = 72


@inlined
def _weigh_unit(view, unit, slots, m, own, stride, out):
    """Weigh all rows of a unit together: as one, or each given the rows before it."""
    start, stop = view.unit_starts[unit], view.unit_starts[unit + 1]
    size, rows = stop - start, shifted(view.unit_rows, start)
    if size == 1:
        view.weigh(view.head, rows, 1, slots, m, own, stride, out)
    elif size > 1 and ROWS_TOGETHER * size * size > view.n_before_cache:
        view.weigh_together(view.head, rows, size, slots, m, own, stride, out)
    elif size > 1:
        for j in range(m):
            if slots[j] == own[0]:
                # The caller takes the unit out, and asks again.
                out[j * stride] = math.nan
                continue
            copy_cluster(view, slots[j], view.spare)
            spare = shifted(view.head, _SPARE)
            for t in range(size):
                view.weigh(view.head, shifted(rows, t), 1, spare, 1, own, 1, shifted(out, j * stride))
                if t + 1 < size:
                    view.change(view.head, rows[t], view.spare, 1.0)


@c_function(HEAD.signature("change_in_views"))
def change_in_views(head, i, k, sign):
    """Let a row join or leave a slot in all views: see :func:`change`."""
    s = memory_at(head)
    lost = 0
    for v in range(s.n_views):
        view = view_of(s, v)
        if not view.has_unit_starts:
            lost += view.change(view.head, i, k, sign)
        else:
            starts, rows = view.unit_starts, view.unit_rows
            for t in range(starts[i], starts[i + 1]):
                lost += view.change(view.head, rows[t], k, sign)
    return lost


@c_function(HEAD.signature("gather_in_views"))
def gather_in_views(head, k, members, m, fresh):
    """Let rows join a slot in all views: see :func:`gather`."""
    s = memory_at(head)
    for v in range(s.n_views):
        view = view_of(s, v)
        if not view.has_unit_starts:
            view.gather(view.head, k, members, m, fresh)
        else:
            starts, rows, room = view.unit_starts, view.unit_rows, view.room
            found = 0
            for t in range(m):
                for r in range(starts[members[t]], starts[members[t] + 1]):
                    room[found] = rows[r]
                    found += 1
            view.gather(view.head, k, room, found, fresh)


@c_function(HEAD.signature("unite_in_views"))
def unite_in_views(head, k, j):
    """Merge two slots in all views: see :func:`merge`."""
    s = memory_at(head)
    for v in range(s.n_views):
        view = view_of(s, v)
        view.merge(view.head, k, j)


@c_function(HEAD.signature("log_evidence_in_views"))
def log_evidence_in_views(head, k):
    """Add up the log evidence of a slot in all views: see :func:`log_evidence`."""
    s = memory_at(head)
    total = 0.0
    for v in range(s.n_views):
        view = view_of(s, v)
        total += view.evidence(view.head, k)
    return total


@c_function(HEAD.signature("copy_in_views"))
def copy_in_views(head, source, target):
    """Copy the statistics of a slot in all views: see :func:`copy_statistics`."""
    s = memory_at(head)
    for v in range(s.n_views):
        copy_cluster(view_of(s, v), source, target)


# By their fields in the head.
IN_VIEWS = {
    "weigh_in_views": weigh_in_views,
    "change_in_views": change_in_views,
    "gather_in_views": gather_in_views,
    "unite_in_views": unite_in_views,
    "log_evidence_in_views": log_evidence_in_views,
    "copy_in_views": copy_in_views,
}


@inlined
def weigh_rows(s, rows, n_rows, slots, m, owns, stride, out):
    """Add to ``out[j * stride + t]`` the log predictive of row ``rows[t]``, in all views, under slot ``slots[j]``.

    ``owns[t]`` is the slot that has the row, -1 if none has. Under this slot, the predictive is that given its
    other rows, or NaN if the row has to leave before it can be computed. At most ``LANES`` rows are weighed
    together, or ``WEIGHED_AT_ONCE`` where there are at most two slots.
    """
    s.weigh_in_views(s.head, rows, n_rows, slots, m, owns, stride, out)


@inlined
def weigh(s, i, slots, m, own, out):
    """Add to ``out`` the log predictive of row ``i`` under each of ``slots[:m]``; ``own`` has it, none if -1."""
    s.lone[0] = i
    s.lone[1] = own
    weigh_rows(s, s.lone, 1, slots, m, shifted(s.lone, 1), 1, out)


@inlined
def change(s, i, k, sign):
    """Let row ``i`` join (1.0) or leave (-1.0) slot ``k``; return whether it has to be computed anew."""
    return s.change_in_views(s.head, i, k, sign) > 0


@inlined
def gather(s, k, members, m, fresh):
    """Let the rows ``members[:m]`` join slot ``k``, which is emptied first if ``fresh``."""
    s.gather_in_views(s.head, k, members, m, fresh)


@inlined
def merge(s, k, j):
    """Let the statistics of slot ``k`` stand for its own rows and those of slot ``j``."""
    s.unite_in_views(s.head, k, j)


@inlined
def log_evidence(s, k):
    """Return the log marginal likelihood of the rows of slot ``k``, in all views."""
    return s.log_evidence_in_views(s.head, k)


@inlined
def copy_statistics(s, source, target):
    """Copy the statistics of a slot to another one."""
    s.copy_in_views(s.head, source, target)
