"""The memory of a partition as compiled code sees it, and what every kernel does with it.

Clusters live in slots 1, 2, ... of the tables of all views; slot 0 holds the cluster without rows, from which a
new cluster starts and which gives the prior predictive. ``order`` lists the slots: those in use first, in no
order that means anything, then the free ones; ``place`` is where a slot stands in it. The rows of a slot form a
ring, doubly linked through the entry n + k of slot k, so that a row moves, and a slot's rows are found, without a
pass over all rows. Where labels are those of units, a "row" here is a unit.

Rows may come in groups, each with weights of its own: what is kept of these is in
:mod:`pymc_dpgmm.sampler.state.grouping`. ``N_GROUPS`` is 0 where rows do not.

The *head* is a block of whole numbers: sizes, and the addresses of all arrays. ``HEAD`` declares its fields.
Functions that are called by address are in it too: those on all views (``IN_VIEWS``), those that moves register
(:mod:`pymc_dpgmm.sampler.state.provided`), and three that :class:`~pymc_dpgmm.sampler.state.state.State` sets
itself.
"""

import math

from numba.extending import intrinsic

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import below, largest_of, take_exponentials, uniform
from pymc_dpgmm.native.blocks import FUNCTION, NUMBER, Block
from pymc_dpgmm.native.compiled import (
    FLOAT,
    FLOATS,
    INT,
    INTS,
    NOTHING,
    c_function,
    called_at,
    floats_at,
    inlined,
    ints_at,
    shifted,
)
from pymc_dpgmm.partitions.priors import PriorNumbers
from pymc_dpgmm.sampler.state.templates import (
    BLOCK_LENGTH,
    CHANGE,
    EVIDENCE,
    GATHER,
    MERGE,
    ROOM,
    SPARE,
    TABLE,
    UNIT_ROWS,
    UNIT_STARTS,
    WEIGH,
    WIDTH,
    call_change,
    call_evidence,
    call_gather,
    call_merge,
    call_weigh,
)

HEAD = Block(
    n=NUMBER,
    capacity=NUMBER,
    n_clusters=NUMBER,
    n_views=NUMBER,
    next_double=NUMBER,
    bit_state=NUMBER,
    n_log_v=NUMBER,
    n_log_components=NUMBER,
    # Where a kernel that needs more slots goes on once it has them, and what it has counted so far.
    sweep=NUMBER,
    phase=NUMBER,
    position=NUMBER,
    n_moved=NUMBER,
    # Rows in ``pool``, while a kernel waits for more slots.
    n_members=NUMBER,
    # Kinds of moves, and the one that a sweep is running, see ``sampler/moves/move.py``.
    n_kinds=NUMBER,
    kind=NUMBER,
    # Rows in groups, and the group whose seats are in ``seats``.
    n_groups=NUMBER,
    current=NUMBER,
    # Rows of a cluster that random moves divide, at most.
    most_divided=NUMBER,
    # Clusters 1, 2, ... that have rows elsewhere too, of which only sums are here; those of slot k are in slot
    # ``n_elsewhere + k``, which is no cluster's.
    n_elsewhere=NUMBER,
    # Of each row, and of the ring of each slot.
    slots=blocks.INTS,
    sizes=blocks.INTS,
    following=blocks.INTS,
    preceding=blocks.INTS,
    # Of each slot.
    order=blocks.INTS,
    place=blocks.INTS,
    # The rows in the order of a scan, those that are gathered in a slot, those of the clusters that a move is
    # about, the side of a division that each of these is on, and those of one side.
    queue=blocks.INTS,
    gathered=blocks.INTS,
    pool=blocks.INTS,
    side=blocks.INTS,
    half_rows=blocks.INTS,
    # A list with an entry for each cluster, for a moment: sizes, slots, or names.
    listed=blocks.INTS,
    # Of each kind of move: what is counted, the address of its kernel, and how many moves a sweep has.
    tally=blocks.INTS,
    kernels=blocks.INTS,
    n_of_kind=blocks.INTS,
    # Slots of the two halves of a division, and their numbers of rows.
    halves=blocks.INTS,
    half_sizes=blocks.INTS,
    views=blocks.INTS,
    prior_predictive=blocks.FLOATS,
    # Log weights of slots, for rows that join and for those that are in them.
    seats=blocks.FLOATS,
    seats_left=blocks.FLOATS,
    log_weights=blocks.FLOATS,
    cumulative=blocks.FLOATS,
    # Odds of the less likely halves of rows that are weighed at once.
    shrinks=blocks.FLOATS,
    # The prior on partitions.
    prior=blocks.FLOATS,
    log_v=blocks.FLOATS,
    log_components=blocks.FLOATS,
    # Of rows in groups, see ``grouping.py``.
    group=blocks.INTS,
    group_rows=blocks.INTS,
    group_starts=blocks.INTS,
    pulls=blocks.FLOATS,
    group_counts=blocks.INTS,
    shares=blocks.FLOATS,
    seated=blocks.INTS,
    openers=blocks.INTS,
    visited=blocks.INTS,
    half_counts=blocks.INTS,
    touched=blocks.INTS,
    # For one call of the families.
    owns=blocks.INTS,
    lone=blocks.INTS,
    lanes=blocks.FLOATS,
    # What is done in all views, see ``IN_VIEWS``.
    weigh_in_views=FUNCTION,
    change_in_views=FUNCTION,
    gather_in_views=FUNCTION,
    unite_in_views=FUNCTION,
    log_evidence_in_views=FUNCTION,
    copy_in_views=FUNCTION,
    # What moves provide, see ``provided.py``, and what else is compiled once.
    allocate=FUNCTION,
    accumulate=FUNCTION,
    scan_rows=FUNCTION,
    series=FUNCTION,
    load_seats=FUNCTION,
    divide=FUNCTION,
    begin_sweep=FUNCTION,
    scan_grouped=FUNCTION,
)
N, CAPACITY, N_CLUSTERS, N_VIEWS, NEXT_DOUBLE, BIT_STATE, N_LOG_V, N_LOG_COMPONENTS = HEAD.places(
    "n", "capacity", "n_clusters", "n_views", "next_double", "bit_state", "n_log_v", "n_log_components"
)
SWEEP, PHASE, POSITION, N_MOVED, N_MEMBERS, N_KINDS, KIND = HEAD.places(
    "sweep", "phase", "position", "n_moved", "n_members", "n_kinds", "kind"
)
N_GROUPS, CURRENT, MOST_DIVIDED, N_ELSEWHERE = HEAD.places("n_groups", "current", "most_divided", "n_elsewhere")
LOG_V, LOG_COMPONENTS = HEAD.places("log_v", "log_components")
GROUP, PULLS, GROUP_COUNTS, SHARES = HEAD.places("group", "pulls", "group_counts", "shares")
WEIGH_IN_VIEWS, CHANGE_IN_VIEWS, GATHER_IN_VIEWS, UNITE_IN_VIEWS, EVIDENCE_IN_VIEWS, COPY_IN_VIEWS = HEAD.places(
    "weigh_in_views",
    "change_in_views",
    "gather_in_views",
    "unite_in_views",
    "log_evidence_in_views",
    "copy_in_views",
)
ALLOCATE, ACCUMULATE, SCAN_ROWS, SERIES = HEAD.places("allocate", "accumulate", "scan_rows", "series")
LOAD_SEATS, DIVIDE, BEGIN_SWEEP, SCAN_GROUPED = HEAD.places("load_seats", "divide", "begin_sweep", "scan_grouped")
# Numbers come first.
FIRST_ARRAY = HEAD.place("slots")
# What kernels return that may need more slots, or meet a density that is not a number.
DONE, NEEDS_ROOM, NOT_A_NUMBER = 0, 1, 2
# Places in ``prior``: the prior's numbers, and the shape and rate of a gamma law of alpha, 0 if it has none.
ALPHA, DISCOUNT, MOST, REACH, EXTRA, LAW_SHAPE, LAW_RATE = range(7)
# With groups also: gamma and its law, the share of all clusters without rows, that of a cluster that divides and
# of its right half in it, and a part of the log density of openers.
GAMMA, GAMMA_SHAPE, GAMMA_RATE, REST, WHOLE, RIGHT_SHARE, LOG_SEATED = range(7, 14)
N_PRIOR = 14
# Numbers in ``lanes``. Those that go through the processor at once are slow to read where they have just been
# written one by one, so that there is room for several times as many.
N_LANES = 64


# The memory that a head tells of.
memory_at = HEAD.reader()


@inlined
def prior_of(s):
    """Return the prior on partitions, as numbers."""
    return PriorNumbers(
        s.prior[ALPHA],
        s.prior[DISCOUNT],
        s.prior[MOST],
        s.prior[REACH],
        s.prior[EXTRA],
        s.head[N_LOG_V],
        s.head[N_LOG_COMPONENTS],
        floats_at(s.head[LOG_V]),
        floats_at(s.head[LOG_COMPONENTS]),
        s.head[SERIES],
    )


@inlined
def view_of(s, v):
    """Return the block of view ``v``."""
    return shifted(s.views, v * BLOCK_LENGTH)


@inlined
def _copy_cluster(view, source, target):
    width = view[WIDTH]
    table = floats_at(view[TABLE])
    for q in range(width):
        table[target * width + q] = table[source * width + q]


# What is done in all views is compiled once, and called by its address: otherwise every kernel would hold a copy
# of it, and take longer to compile than to write.


@c_function(NOTHING(INTS, INTS, INT, INTS, INT, INTS, INT, FLOATS))
def weigh_in_views(head, rows, n_rows, slots, m, owns, stride, out):
    """Do what :func:`weigh_rows` does."""
    s = memory_at(head)
    for v in range(s.n_views):
        view = view_of(s, v)
        if view[UNIT_STARTS] == 0:
            call_weigh(view[WEIGH], view, rows, n_rows, slots, m, owns, stride, out)
        else:
            for t in range(n_rows):
                _weigh_unit(view, rows[t], slots, m, shifted(owns, t), stride, shifted(out, t))


@inlined
def _weigh_unit(view, unit, slots, m, own, stride, out):
    """Weigh a unit: a sum of log predictives of its rows, each given the rows before it."""
    rows = ints_at(view[UNIT_ROWS])
    start, stop = ints_at(view[UNIT_STARTS])[unit], ints_at(view[UNIT_STARTS])[unit + 1]
    if stop - start == 1:
        call_weigh(view[WEIGH], view, shifted(rows, start), 1, slots, m, own, stride, out)
    elif stop > start:
        for j in range(m):
            if slots[j] == own[0]:
                # The caller takes the unit out, and asks again.
                out[j * stride] = math.nan
                continue
            _copy_cluster(view, slots[j], view[SPARE])
            spare = shifted(view, SPARE)
            for t in range(start, stop):
                call_weigh(view[WEIGH], view, shifted(rows, t), 1, spare, 1, own, 1, shifted(out, j * stride))
                if t + 1 < stop:
                    call_change(view[CHANGE], view, rows[t], view[SPARE], 1.0)


@c_function(INT(INTS, INT, INT, FLOAT))
def change_in_views(head, i, k, sign):
    """Do what :func:`change` does."""
    s = memory_at(head)
    lost = 0
    for v in range(s.n_views):
        view = view_of(s, v)
        if view[UNIT_STARTS] == 0:
            lost += call_change(view[CHANGE], view, i, k, sign)
        else:
            starts, rows = ints_at(view[UNIT_STARTS]), ints_at(view[UNIT_ROWS])
            for t in range(starts[i], starts[i + 1]):
                lost += call_change(view[CHANGE], view, rows[t], k, sign)
    return lost


@c_function(NOTHING(INTS, INT, INTS, INT, INT))
def gather_in_views(head, k, members, m, fresh):
    """Do what :func:`gather` does."""
    s = memory_at(head)
    for v in range(s.n_views):
        view = view_of(s, v)
        if view[UNIT_STARTS] == 0:
            call_gather(view[GATHER], view, k, members, m, fresh)
        else:
            starts, rows, room = ints_at(view[UNIT_STARTS]), ints_at(view[UNIT_ROWS]), ints_at(view[ROOM])
            found = 0
            for t in range(m):
                for r in range(starts[members[t]], starts[members[t] + 1]):
                    room[found] = rows[r]
                    found += 1
            call_gather(view[GATHER], view, k, room, found, fresh)


@c_function(NOTHING(INTS, INT, INT))
def unite_in_views(head, k, j):
    """Do what :func:`merge` does."""
    s = memory_at(head)
    for v in range(s.n_views):
        view = view_of(s, v)
        call_merge(view[MERGE], view, k, j)


@c_function(FLOAT(INTS, INT))
def log_evidence_in_views(head, k):
    """Do what :func:`log_evidence` does."""
    s = memory_at(head)
    total = 0.0
    for v in range(s.n_views):
        view = view_of(s, v)
        total += call_evidence(view[EVIDENCE], view, k)
    return total


@c_function(NOTHING(INTS, INT, INT))
def copy_in_views(head, source, target):
    """Do what :func:`copy_statistics` does."""
    s = memory_at(head)
    for v in range(s.n_views):
        _copy_cluster(view_of(s, v), source, target)


# By their places in the head.
IN_VIEWS = {
    WEIGH_IN_VIEWS: weigh_in_views,
    CHANGE_IN_VIEWS: change_in_views,
    GATHER_IN_VIEWS: gather_in_views,
    UNITE_IN_VIEWS: unite_in_views,
    EVIDENCE_IN_VIEWS: log_evidence_in_views,
    COPY_IN_VIEWS: copy_in_views,
}


@intrinsic
def _call_weigh(typing_context, address, head, rows, n_rows, slots, m, owns, stride, out):
    return called_at(weigh_in_views.signature)


@intrinsic
def _call_change(typing_context, address, head, i, k, sign):
    return called_at(change_in_views.signature)


@intrinsic
def _call_gather(typing_context, address, head, k, members, m, fresh):
    return called_at(gather_in_views.signature)


@intrinsic
def _call_unite(typing_context, address, head, k, j):
    return called_at(unite_in_views.signature)


@intrinsic
def _call_evidence(typing_context, address, head, k):
    return called_at(log_evidence_in_views.signature)


@intrinsic
def _call_copy(typing_context, address, head, source, target):
    return called_at(copy_in_views.signature)


@inlined
def weigh_rows(s, rows, n_rows, slots, m, owns, stride, out):
    """Add to ``out[j * stride + t]`` the log predictive of row ``rows[t]``, in all views, under slot ``slots[j]``.

    ``owns[t]`` is the slot that has the row, -1 if none has. Under this slot, the predictive is that given its
    other rows, or NaN if the row has to leave before it can be computed. At most ``LANES`` rows are weighed
    together, or ``WEIGHED_AT_ONCE`` where there are at most two slots.
    """
    _call_weigh(s.head[WEIGH_IN_VIEWS], s.head, rows, n_rows, slots, m, owns, stride, out)


@inlined
def weigh(s, i, slots, m, own, out):
    """Add to ``out`` the log predictive of row ``i`` under each of ``slots[:m]``; ``own`` has it, none if -1."""
    s.lone[0] = i
    s.lone[1] = own
    weigh_rows(s, s.lone, 1, slots, m, shifted(s.lone, 1), 1, out)


@inlined
def change(s, i, k, sign):
    """Let row ``i`` join (1.0) or leave (-1.0) slot ``k``; return whether it has to be computed anew."""
    return _call_change(s.head[CHANGE_IN_VIEWS], s.head, i, k, sign) > 0


@inlined
def gather(s, k, members, m, fresh):
    """Let the rows ``members[:m]`` join slot ``k``, which is emptied first if ``fresh``."""
    _call_gather(s.head[GATHER_IN_VIEWS], s.head, k, members, m, fresh)


@inlined
def merge(s, k, j):
    """Let the statistics of slot ``k`` stand for its own rows and those of slot ``j``."""
    _call_unite(s.head[UNITE_IN_VIEWS], s.head, k, j)


@inlined
def log_evidence(s, k):
    """Return the log marginal likelihood of the rows of slot ``k``, in all views."""
    return _call_evidence(s.head[EVIDENCE_IN_VIEWS], s.head, k)


@inlined
def copy_statistics(s, source, target):
    """Copy the statistics of a slot to another one."""
    _call_copy(s.head[COPY_IN_VIEWS], s.head, source, target)


@inlined
def count_in_group(s, i, k, by):
    """Count that row ``i`` joins slot ``k``, or leaves it, in its group."""
    if s.head[N_GROUPS] > 0:
        ints_at(s.head[GROUP_COUNTS])[ints_at(s.head[GROUP])[i] * (s.capacity + 1) + k] += by


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
    away = s.head[N_ELSEWHERE]
    view = view_of(s, 0)
    return int(floats_at(view[TABLE])[(away + k) * view[WIDTH]]) if k <= away else 0


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
        merge(s, slot, s.head[N_ELSEWHERE] + k)


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
    k = s.order[s.head[N_CLUSTERS]]
    s.head[N_CLUSTERS] += 1
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
    s.head[N_CLUSTERS] -= 1
    swap_places(s, s.place[k], s.head[N_CLUSTERS])


@inlined
def shuffle(bits, rows, start, stop):
    """Bring ``rows[start:stop]`` into random order (Fisher and Yates)."""
    for t in range(stop - 1, start, -1):
        other = start + below(bits, t - start + 1)
        rows[t], rows[other] = rows[other], rows[t]


# From so many rows on, rows are scanned in runs of neighbours in memory, and the runs in random order.
ROWS_IN_RUNS = 2_048
RUN = 32


@inlined
def shuffle_rows(s):
    """Bring all rows into an order, in ``queue``, for scans; it does not depend on the partition."""
    if s.n < ROWS_IN_RUNS:
        shuffle(s.bits, s.queue, 0, s.n)
        return
    n_runs = (s.n + RUN - 1) // RUN
    for r in range(n_runs):
        s.gathered[r] = r * RUN
    shuffle(s.bits, s.gathered, 0, n_runs)
    t = 0
    for r in range(n_runs):
        start = s.gathered[r]
        for i in range(start, min(start + RUN, s.n)):
            s.queue[t] = i
            t += 1


@c_function(FLOAT(FLOATS, INT))
def accumulate_weights(log_weights, m):
    """Do what :func:`accumulate` does."""
    largest = largest_of(log_weights, m)
    take_exponentials(log_weights, m, largest)
    total = 0.0
    for j in range(m):
        total += log_weights[j]
        log_weights[j] = total
    return largest


@intrinsic
def _call_accumulate(typing_context, address, log_weights, m):
    return called_at(accumulate_weights.signature)


@inlined
def accumulate(s, log_weights, m):
    """Replace log weights by sums of weights in units of the largest; return the largest log weight.

    The arrays have room up to the end of the lanes, which is lost.
    """
    return _call_accumulate(s.head[ACCUMULATE], log_weights, m)


@inlined
def pick(u, sums, m, stride):
    """Return the index below ``m`` whose part of sums of weights a share ``u`` of their total falls into.

    ``sums[j * stride]`` is the sum of the weights of all indices up to j; ``u`` is in [0, 1).
    """
    reached = u * sums[(m - 1) * stride]
    choice = 0
    while choice < m - 1 and sums[choice * stride] <= reached:
        choice += 1
    return choice


# The part of the smaller weight that :func:`pick_metropolized` leaves out of the sum.
LEFT_OUT = 0.9


@inlined
def choose(s, log_weights, m):
    """Draw an index below ``m`` with probability proportional to ``exp(log_weights)``; see :func:`accumulate`."""
    accumulate(s, log_weights, m)
    return pick(uniform(s.bits), log_weights, m, 1)


@inlined
def stays_surely(u, total, weight, rest):
    """Tell whether ``u`` is above what the probabilities of all other indices sum up to, by a bound of the sum.

    ``total`` is ``weight``, that of the own index, and the ``rest``.
    """
    return u * (total - LEFT_OUT * min(weight, rest)) > rest


@inlined
def pick_metropolized(u, sums, m, own, stride):
    """Return an index below ``m``, given the index ``own``, which is left more often than by :func:`pick`.

    ``sums[j * stride]`` is the sum of the weights ``w`` of all indices up to j, and ``u`` is uniform on [0, 1).
    This is a transition that leaves probabilities proportional to the weights invariant
    (Liu 1996, "Peskun's theorem and a modified discrete-state Gibbs sampler"): another index is proposed by its
    weight, and accepted as Metropolis and Hastings have it. Index j follows with probability
    ``w[j] / (sum(w) - min(w[j], w[own]))``, which balances, since the minimum is the same both ways. So does a
    part of the minimum: with all of it, one of two indices that weigh alike would always follow the other, and two
    rows that change places in turn would go round in circles.
    """
    total = sums[(m - 1) * stride]
    weight = sums[own * stride] - (sums[(own - 1) * stride] if own > 0 else 0.0)
    rest = total - weight
    if stays_surely(u, total, weight, rest):
        # Most rows stay, and need no more than this.
        return own
    reached, before = 0.0, 0.0
    for j in range(m):
        other = sums[j * stride] - before
        before = sums[j * stride]
        if j != own:
            reached += other / (total - LEFT_OUT * min(other, weight))
            if u < reached:
                return j
    return own
