"""Slots and rings: which rows a slot has, how rows join and leave it, and which slots are in use."""

from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.sampler.state.views import change, copy_statistics, gather, merge, view_of


@inlined
def count_in_group(s, i, k, by):
    """Count that row ``i`` joins slot ``k``, or leaves it, in its group."""
    if s.n_groups > 0:
        s.group_counts[s.group[i] * (s.capacity + 1) + k] += by


@inlined
def link(s, i, k):
    """Put row ``i``, which is in no ring, into the ring of slot ``k``."""
    ring = s.n + k
    after = s.following[ring]
    s.following[i] = after
    s.preceding[i] = ring
    s.preceding[after] = i
    s.following[ring] = i
    s.slots[i] = k
    s.sizes[k] += 1
    count_in_group(s, i, k, 1)


@inlined
def unlink(s, i):
    """Take row ``i`` out of the ring of its slot."""
    before = s.preceding[i]
    after = s.following[i]
    s.following[before] = after
    s.preceding[after] = before
    s.sizes[s.slots[i]] -= 1
    count_in_group(s, i, s.slots[i], -1)


@inlined
def rows_elsewhere(s, k):
    """Return how many rows of slot ``k`` are elsewhere."""
    away = s.n_elsewhere
    view = view_of(s, 0)
    return int(view.array[(away + k) * view.width]) if k <= away else 0


@inlined
def collect(s, k, found):
    """Write the rows of slot ``k`` to ``found[:n_k]``; return how many are here."""
    i = s.following[s.n + k]
    n_here = s.sizes[k] - rows_elsewhere(s, k)
    for t in range(n_here):
        found[t] = i
        i = s.following[i]
    return n_here


@inlined
def gather_all_of(s, k, slot):
    """Let the statistics of a slot be those of all rows of slot ``k``, computed from these."""
    n_here = collect(s, k, s.gathered)
    gather(s, slot, s.gathered, n_here, 1)
    if n_here < s.sizes[k]:
        merge(s, slot, s.n_elsewhere + k)


@inlined
def refit(s, k):
    """Compute the statistics of slot ``k`` from its rows."""
    gather_all_of(s, k, k)


@inlined
def leave(s, i):
    """Let row ``i`` leave its slot. The statistics of a slot without rows are undefined."""
    k = s.slots[i]
    unlink(s, i)
    if s.sizes[k] > 0 and change(s, i, k, -1.0):
        refit(s, k)


@inlined
def join(s, i, k):
    """Let row ``i``, which is in no slot, join slot ``k``; one without rows begins with nothing."""
    if s.sizes[k] == 0:
        copy_statistics(s, 0, k)
    link(s, i, k)
    change(s, i, k, 1.0)


@inlined
def take_slot(s):
    """Make the first free slot one in use, and return it."""
    k = s.order[s.n_clusters]
    s.n_clusters += 1
    return k


@inlined
def swap_places(s, a, b):
    """Exchange what stands at two places of the list of slots."""
    first, second = s.order[a], s.order[b]
    s.order[a], s.order[b] = second, first
    s.place[first], s.place[second] = b, a


@inlined
def free_slot(s, k):
    """Make a slot in use, which has no rows any more, a free one."""
    s.n_clusters -= 1
    swap_places(s, s.place[k], s.n_clusters)
