"""The memory of a compiled sweep over labels and atoms, and what all of its moves ask of it.

Densities of the user's model are functions at addresses: see :mod:`pymc_dpgmm.native.array_calls`.
"""

import math

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.array_calls import call_entry
from pymc_dpgmm.native.blocks import FUNCTION, NUMBER, Block
from pymc_dpgmm.native.compiled import address_of_floats, inlined, shifted
from pymc_dpgmm.sampler.atoms.auxiliary import scan_at
from pymc_dpgmm.sampler.atoms.beside import evidence_beside, join_beside, leave_beside, odds_beside

# Number of draws from the base among which splits and merges choose their first atoms.
POOL = 16
# What a sweep does next, and how a call of it ends.
SWEEP_BEGINS, SCAN_BEGINS, SCAN_GOES_ON, MOVES, SPLITS = range(5)
DONE, NEEDS_ATOMS, NEEDS_SLOTS, NEEDS_MEMORY, FAILED = range(5)

SWEEP = Block(
    next_double=NUMBER,
    bit_state=NUMBER,
    # Labels are those of n blocks of rows, of which there are n_rows; atoms have n_free numbers, of which the
    # first ones are continuous and the others whole.
    n=NUMBER,
    n_rows=NUMBER,
    n_free=NUMBER,
    n_continuous=NUMBER,
    # Parameters with discrete values, one block after the other: see DISCRETE.
    n_discrete=NUMBER,
    discrete=blocks.INTS,
    # For how many atoms there is room.
    capacity=NUMBER,
    # What is to be done: sweeps, scans of each, and how many of both are left; Hamiltonian moves of a sweep; and
    # splits and merges, of each sweep by how many are left after it, and how many the present one has left.
    phase=NUMBER,
    n_left=NUMBER,
    n_scans=NUMBER,
    scans_left=NUMBER,
    n_hamiltonian=NUMBER,
    splits_of=blocks.INTS,
    n_splits=NUMBER,
    is_tuning=NUMBER,
    # Draws from the base, one after the other: for a scan so many, and more where splits follow; the next one, and
    # the first of those that scales are learnt from.
    n_fresh=NUMBER,
    fresh=blocks.FLOATS,
    next_fresh=NUMBER,
    first_learnt=NUMBER,
    # The prior on partitions and the law of its concentration, by their places below, and the log weights with
    # which a row opens a cluster beside 0, 1, ... others.
    prior=blocks.FLOATS,
    n_log_new=NUMBER,
    log_new=blocks.FLOATS,
    # Clusters, and what has been counted.
    n_clusters=NUMBER,
    n_moved=NUMBER,
    splits_tried=NUMBER,
    splits=NUMBER,
    merges_tried=NUMBER,
    merges=NUMBER,
    # The block of the scan, and where atoms of the pool begin that rows have no densities under yet.
    scan=blocks.INTS,
    weighed=NUMBER,
    # Of rows: the block of each.
    of_row=blocks.INTS,
    row_labels=blocks.INTS,
    # Of blocks of rows.
    labels=blocks.INTS,
    weights=blocks.FLOATS,
    known=blocks.INTS,
    halves=blocks.INTS,
    # Of atoms of the pool: their numbers, names of clusters, and densities of blocks and of rows.
    pool=blocks.FLOATS,
    names=blocks.INTS,
    densities=blocks.FLOATS,
    row_densities=blocks.FLOATS,
    # Of clusters: their atoms, and their sizes in blocks.
    atoms=blocks.FLOATS,
    sizes=blocks.FLOATS,
    # Of Hamiltonian moves.
    moved=blocks.FLOATS,
    momentum=blocks.FLOATS,
    scale=blocks.FLOATS,
    start=blocks.FLOATS,
    energy=blocks.FLOATS,
    # Of splits and merges: two atoms and one, precisions around them, and what is computed on the way.
    modes=blocks.FLOATS,
    precisions=blocks.FLOATS,
    drawn=blocks.FLOATS,
    factor=blocks.FLOATS,
    steps=blocks.FLOATS,
    gradient=blocks.FLOATS,
    hessian=blocks.FLOATS,
    vectors=blocks.FLOATS,
    two_rows=blocks.FLOATS,
    # Numbers that are learnt, by their places below.
    learnt=blocks.FLOATS,
    base=blocks.FLOATS,
    row=blocks.FLOATS,
    # The densities of atoms and their rows, and of each row under each atom: see Entry.
    density_entry=NUMBER,
    density_code=NUMBER,
    density_inputs=blocks.INTS,
    density_outputs=blocks.INTS,
    rows_entry=NUMBER,
    rows_code=NUMBER,
    rows_inputs=blocks.INTS,
    rows_outputs=blocks.INTS,
    points=blocks.FLOATS,
    values=blocks.FLOATS,
    gradients=blocks.FLOATS,
    jacobians=blocks.FLOATS,
    # 1 where a density has failed; what is drawn then means nothing.
    failed=blocks.INTS,
    # Collapsed mixtures on the same labels: the head of their state, 0 if there are none; the slot of each block
    # there; members of a cluster, and the log evidence of these.
    beside=blocks.INTS,
    slots_beside=blocks.INTS,
    members=blocks.INTS,
    evidence=blocks.FLOATS,
    # Log odds of blocks to be in the first half of a cluster, by their columns there.
    odds=blocks.FLOATS,
    leave_beside=leave_beside.signature,
    join_beside=join_beside.signature,
    evidence_beside=evidence_beside.signature,
    odds_beside=odds_beside.signature,
)
# A parameter with discrete values: the columns that it has, the least and the largest value of its type, and its
# part of the density of the base, see Entry.
DISCRETE = Block(
    start=NUMBER,
    stop=NUMBER,
    bounds=blocks.FLOATS,
    entry=FUNCTION,
    code=NUMBER,
    inputs=blocks.INTS,
    outputs=blocks.INTS,
)
TALLY = ("splits_tried", "splits", "merges_tried", "merges")
# Numbers that are learnt, and the sum of the acceptances of Hamiltonian moves.
STEP, N_LEARNT, MEAN_ERROR, LOG_STEP_MEAN, LAST, SHARE_ACCEPTED, ACCEPTED = range(7)
# Of the prior on partitions, and of the gamma law of its concentration, with rate 0 if it has none.
ALPHA, DISCOUNT, MOST, N_ALL_ROWS, LAW_SHAPE, LAW_RATE = range(6)


sweep_at = SWEEP.reader()
discrete_at = DISCRETE.reader()


@inlined
def is_finite(x):
    """Tell whether a number is finite."""
    return -math.inf < x < math.inf


@inlined
def take_labels(s, labels):
    """Let the densities have these labels of blocks."""
    for row in range(s.n_rows):
        s.row_labels[row] = labels[s.of_row[row]] if s.n < s.n_rows else labels[row]


@inlined
def evaluate(s, atoms, n_atoms):
    """Compute the log density of atoms and their rows, ``s.values``, and its gradients."""
    for q in range(n_atoms * s.n_free):
        s.points[q] = atoms[q]
    s.density_inputs[1] = n_atoms
    if call_entry(s.density_entry, s.density_code, s.density_inputs, s.density_outputs) != 0:
        s.failed[0] = 1


@inlined
def weigh_rows(s, atoms, n_atoms, found):
    """Compute the log densities (n_atoms, n) of blocks under atoms."""
    if n_atoms == 0:
        return
    s.rows_inputs[0] = address_of_floats(atoms)
    s.rows_inputs[1] = n_atoms
    s.rows_outputs[0] = address_of_floats(s.row_densities if s.n < s.n_rows else found)
    if call_entry(s.rows_entry, s.rows_code, s.rows_inputs, s.rows_outputs) != 0:
        s.failed[0] = 1
    if s.n < s.n_rows:
        for k in range(n_atoms):
            for block in range(s.n):
                found[k * s.n + block] = 0.0
            for row in range(s.n_rows):
                found[k * s.n + s.of_row[row]] += s.row_densities[k * s.n_rows + row]


@inlined
def weigh_pool(s):
    """Compute the densities of rows under atoms of the pool that have none yet."""
    first, stop = s.weighed, scan_at(s.scan).stop
    s.weighed = stop
    weigh_rows(s, shifted(s.pool, first * s.n_free), stop - first, shifted(s.densities, first * s.n))


@inlined
def count_blocks(s, labels, n_clusters):
    """Count the blocks of each cluster; labels beyond are of rows that do not matter."""
    for k in range(n_clusters):
        s.sizes[k] = 0.0
    for i in range(s.n):
        if labels[i] < n_clusters:
            s.sizes[labels[i]] += 1.0


@inlined
def name_clusters(s, n_names, atoms):
    """Name clusters by the first appearance of their labels, which are places among ``atoms``."""
    for k in range(n_names):
        s.names[k] = -1
    n_clusters = 0
    for i in range(s.n):
        place = s.labels[i]
        if s.names[place] < 0:
            s.names[place] = n_clusters
            for d in range(s.n_free):
                s.atoms[n_clusters * s.n_free + d] = atoms[place * s.n_free + d]
            n_clusters += 1
        s.labels[i] = s.names[place]
    s.n_clusters = n_clusters
