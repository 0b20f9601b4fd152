"""A Gibbs scan over labels whose clusters have atoms: Neal (2000), Algorithm 8, with a pool of auxiliary atoms.

The auxiliary atoms are part of the state of the chain, m independent draws from the base. A row joins cluster k
with weight (n_k - discount) f(row | atom k), and an auxiliary atom with weight v / m f(row | atom), where v is the
weight of a new cluster. An auxiliary atom that is taken is replaced by a fresh draw; the atom of a cluster that
loses its only row takes the place of one of the m, chosen at random (Favaro and Teh 2013, section 4.3, "ReUse").
No atom serves two clusters, and the density of each row under each atom is computed once.

Where there are collapsed mixtures on the same labels (:mod:`pymc_dpgmm.sampler.atoms.beside`), all weights are
times the predictive of the row's other columns given the rows of the cluster; an auxiliary atom has none.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_dpgmm.native import blocks
from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.blocks import NUMBER, Block
from pymc_dpgmm.native.compiled import inlined
from pymc_dpgmm.native.special import log_rising
from pymc_dpgmm.sampler.atoms.beside import join_beside, leave_beside, weigh_beside
from pymc_dpgmm.sampler.state.memory import memory_at

# The memory of a scan.
HEAD = Block(
    next_double=NUMBER,
    bit_state=NUMBER,
    n=NUMBER,
    n_auxiliary=NUMBER,
    # The next row, and the number of rows that have joined another cluster.
    row=NUMBER,
    n_moved=NUMBER,
    # Clusters that have rows.
    n_active=NUMBER,
    # The next atom that nobody has, and where such atoms end.
    next=NUMBER,
    stop=NUMBER,
    # Of rows: their atoms, numbers of single rows, and whether their cluster is known.
    labels=blocks.INTS,
    weights=blocks.FLOATS,
    known=blocks.INTS,
    # Of atoms: numbers of rows, whether a row with a known cluster has it, its place in ``active``, and log
    # densities of all rows.
    sizes=blocks.FLOATS,
    known_slots=blocks.INTS,
    places=blocks.INTS,
    densities=blocks.FLOATS,
    # Atoms that have rows, and the auxiliary ones.
    active=blocks.INTS,
    auxiliary=blocks.INTS,
    # Log weights of a new cluster beside some number of others, and the weights from which one row draws.
    log_new=blocks.FLOATS,
    log_weights=blocks.FLOATS,
    # Collapsed mixtures on the same labels: the head of their state, 0 if there are none; by atoms their slots
    # there; by slots the log predictives of a row; and what is done with them.
    beside=blocks.INTS,
    slots_beside=blocks.INTS,
    weights_beside=blocks.FLOATS,
    leave_beside=leave_beside.signature,
    weigh_beside=weigh_beside.signature,
    join_beside=join_beside.signature,
)

scan_at = HEAD.reader()
# Fresh atoms at hand beside the auxiliary ones, before more are drawn.
SPARE = 6


@inlined
def let_rows_join(s, discount):
    """Let rows join clusters, from ``s.row`` until all have, or fresh atoms or slots beside them run out."""
    bits, n, m, log_weights = s.bits, s.n, s.n_auxiliary, s.log_weights
    labels, weights, sizes, known, known_slots = s.labels, s.weights, s.sizes, s.known, s.known_slots
    densities, active, places, auxiliary, log_new = s.densities, s.active, s.places, s.auxiliary, s.log_new
    beside, slots_beside, weights_beside = s.beside, s.slots_beside, s.weights_beside
    has_beside = s.has_beside
    while s.row < n and s.next < s.stop:
        if has_beside and memory_at(beside).n_clusters + 1 >= memory_at(beside).capacity:
            break
        i = s.row
        own = labels[i]
        weight = weights[i]
        sizes[own] -= weight
        if known[i]:
            known_slots[own] = 0
        n_active = s.n_active
        if sizes[own] < 0.5:
            last = active[n_active - 1]
            active[places[own]] = last
            places[last] = places[own]
            n_active -= 1
            auxiliary[below(bits, m)] = own
        alone = 0.0
        if has_beside:
            s.leave_beside(beside, i)
            s.weigh_beside(beside, i, weights_beside)
            alone = weights_beside[0]
        largest = -math.inf
        for k in range(n_active):
            slot = active[k]
            if known[i] and known_slots[slot]:
                log_weights[k] = -math.inf
                continue
            seat = math.log(sizes[slot] - discount)
            if weight > 1.0:
                seat = log_rising(sizes[slot] - discount, weight)
            log_weights[k] = seat + densities[slot * n + i]
            if has_beside:
                log_weights[k] += weights_beside[slots_beside[slot]]
            largest = max(largest, log_weights[k])
        opened = log_new[n_active] - math.log(m) + alone
        if weight > 1.0:
            opened += log_rising(1.0 - discount, weight - 1.0)
        for j in range(m):
            log_weights[n_active + j] = opened + densities[auxiliary[j] * n + i]
            largest = max(largest, log_weights[n_active + j])
        total = 0.0
        for k in range(n_active + m):
            # Where all densities underflow, the row joins by the prior alone; no such state is ever kept.
            log_weights[k] = math.exp(log_weights[k] - largest) if largest > -math.inf else 1.0
            total += log_weights[k]
        left = uniform(bits) * total
        chosen = 0
        while chosen < n_active + m - 1 and left >= log_weights[chosen]:
            left -= log_weights[chosen]
            chosen += 1
        if chosen < n_active:
            slot = active[chosen]
        else:
            slot = auxiliary[chosen - n_active]
            auxiliary[chosen - n_active] = s.next
            s.next += 1
            active[n_active] = slot
            places[slot] = n_active
            sizes[slot] = 0.0
            slots_beside[slot] = 0
            n_active += 1
        if has_beside:
            slots_beside[slot] = s.join_beside(beside, i, slots_beside[slot])
        s.n_active = n_active
        s.n_moved += slot != own
        labels[i] = slot
        sizes[slot] += weight
        if known[i]:
            known_slots[slot] = 1
        s.row += 1


class ScannedRows(NamedTuple):
    """What a scan moves: rows, or blocks of rows that are in one cluster for certain.

    Parameters
    ----------
    weights : (n,) float64 array
        Number of rows in each.
    known : (n,) int64 array
        1 where the cluster is known; no two of these share one.
    """

    weights: np.ndarray
    known: np.ndarray
