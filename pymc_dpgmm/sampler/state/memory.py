"""The memory of a partition as compiled code sees it.

Clusters live in slots 1, 2, ... of the tables of all views; slot 0 holds the cluster without rows, from which a
new cluster starts and which gives the prior predictive. ``order`` lists the slots: those in use first, in no
order that means anything, then the free ones; ``place`` is where a slot stands in it. The rows of a slot form a
ring, doubly linked through the entry n + k of slot k, so that a row moves, and a slot's rows are found, without a
pass over all rows. Where labels are those of units, a "row" here is a unit.

Rows may come in groups, each with weights of its own: what is kept of these is in
:mod:`pymc_dpgmm.sampler.state.grouping`. ``N_GROUPS`` is 0 where rows do not.

The *head* is a block of whole numbers: sizes, and the addresses of all arrays. ``HEAD`` declares its fields.
Functions that are called by address are in it too: those on all views (``IN_VIEWS``), those that moves register
(:mod:`pymc_dpgmm.sampler.state.provided`), and those that :class:`~pymc_dpgmm.sampler.state.state.State` sets
itself.
"""

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.blocks import FUNCTION, NUMBER, Block
from pymc_dpgmm.native.compiled import FLOAT, FLOATS, INT, INTS, NOTHING, inlined
from pymc_dpgmm.partitions.priors import PriorNumbers

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
    # Sets of rows that guide reallocations.
    n_guides=NUMBER,
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
    # Of each kind of move: what is counted, the address of its kernel, how many moves a sweep has, and how many
    # free slots one needs.
    tally=blocks.INTS,
    kernels=blocks.INTS,
    n_of_kind=blocks.INTS,
    slots_of_kind=blocks.INTS,
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
    # How much rows are like another one, or a cluster, see ``sampler/moves/carving.py``; and which rows these are,
    # and where they are, see ``sampler/moves/reallocation.py``.
    likenesses=blocks.FLOATS,
    candidates=blocks.INTS,
    # Sets of rows that guide reallocations, and of each row whether it is in the one that a move has.
    guides=blocks.INTS,
    guide_starts=blocks.INTS,
    guided=blocks.INTS,
    # The prior on partitions.
    prior=blocks.FLOATS,
    log_v=blocks.FLOATS,
    log_components=blocks.FLOATS,
    # Of rows in groups, see ``grouping.py``.
    group=blocks.INTS,
    group_rows=blocks.INTS,
    group_starts=blocks.INTS,
    group_alphas=blocks.FLOATS,
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
    weigh_in_views=NOTHING(INTS, INTS, INT, INTS, INT, INTS, INT, FLOATS),
    change_in_views=INT(INTS, INT, INT, FLOAT),
    gather_in_views=NOTHING(INTS, INT, INTS, INT, INT),
    unite_in_views=NOTHING(INTS, INT, INT),
    log_evidence_in_views=FLOAT(INTS, INT),
    copy_in_views=NOTHING(INTS, INT, INT),
    # What moves provide, see ``provided.py``, and what else is compiled once.
    allocate=FLOAT(INTS, INT, INT, FLOAT),
    accumulate=FLOAT(FLOATS, INT),
    scan_rows=INT(INTS, INTS, INT, INT),
    series=FUNCTION,
    load_seats=NOTHING(INTS, INT),
    divide=FLOAT(INTS, INT, INT, INT),
    begin_sweep=NOTHING(INTS, INT),
    scan_grouped=INT(INTS, INTS, INT),
)
# Numbers come first.
FIRST_ARRAY = HEAD.place("slots")
# What kernels return that may need more slots, or meet a density that is not a number.
DONE, NEEDS_ROOM, NOT_A_NUMBER = 0, 1, 2
# Places in ``prior``: the prior's numbers, and the shape and rate of a gamma law of alpha, 0 if it has none.
ALPHA, DISCOUNT, MOST, REACH, EXTRA, LAW_SHAPE, LAW_RATE = range(7)
# With groups also: gamma and its law, and the share of all clusters without rows. The last three pass numbers on
# between functions of ``grouping.py``: ``WHOLE``, the share of a cluster that divides, and ``RIGHT_SHARE``, the
# part of its right half, from what begins a split or merge to what ends it; ``LOG_SEATED``, a part of the log
# density of openers, from their draw to the log density of labels.
GAMMA, GAMMA_SHAPE, GAMMA_RATE, REST, WHOLE, RIGHT_SHARE, LOG_SEATED = range(7, 14)
N_PRIOR = 14
# Numbers in ``lanes``. Those that go through the processor at once are slow to read where they have just been
# written one by one, so that there is room for several times as many.
N_LANES = 64


# The view of a head that compiled code reads, with one attribute for each field of ``HEAD``, the head itself, and
# ``bits``, the generator of random numbers.
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
        s.n_log_v,
        s.n_log_components,
        s.log_v,
        s.log_components,
        s.series,
    )
