"""Collapsed mixtures beside atoms: other columns of the same rows, whose parameters are integrated out.

A scan over labels with atoms (:mod:`pymc_dpgmm.sampler.atoms.auxiliary`) weighs each row also by the log
predictive of these columns given the other rows of a cluster. They are a state like that of a mixture alone
(:mod:`pymc_dpgmm.sampler.state`), of which the scan has the address. What it does with it is compiled where there
are such columns only, and called by its address.
"""

from typing import Any

import numpy as np

from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.native.compiled import FLOATS, INT, INTS, NOTHING, address_of, c_function
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.slots import free_slot, join, leave, take_slot
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.views import gather, log_evidence, weigh


@c_function(NOTHING(INTS, INT))
def leave_beside(head, i):
    """Let row ``i`` leave its slot, which becomes a free one if it has no other rows."""
    s = memory_at(head)
    k = s.slots[i]
    leave(s, i)
    if s.sizes[k] == 0:
        free_slot(s, k)


@c_function(NOTHING(INTS, INT, FLOATS))
def weigh_beside(head, i, found):
    """Set ``found[k]`` to the log predictive of row ``i``, in no slot now, in each slot in use, and in slot 0."""
    s = memory_at(head)
    n_clusters = s.n_clusters
    for place in range(n_clusters):
        s.log_weights[place] = 0.0
    weigh(s, i, s.order, n_clusters, -1, s.log_weights)
    for place in range(n_clusters):
        found[s.order[place]] = s.log_weights[place]
    found[0] = s.prior_predictive[i]


@c_function(INT(INTS, INT, INT))
def join_beside(head, i, k):
    """Let row ``i`` join slot ``k``, a free one if it is 0; return the slot."""
    s = memory_at(head)
    slot = take_slot(s) if k == 0 else k
    join(s, i, slot)
    return slot


@c_function(NOTHING(INTS, INTS, INT, FLOATS))
def evidence_beside(head, rows, n_rows, found):
    """Set ``found[0]`` to the log marginal likelihood of some rows in a cluster of their own."""
    s = memory_at(head)
    # The statistics of free slots mean nothing.
    free = s.order[s.n_clusters]
    gather(s, free, rows, n_rows, 1)
    found[0] = log_evidence(s, free)


@c_function(NOTHING(INTS, INTS, INT, INTS, FLOATS))
def odds_beside(head, rows, n_rows, sides, found):
    """Set ``found[i]`` for rows i to their log predictive on the left less that on the right.

    ``sides`` has 0 for rows on the left and 1 for rows on the right. A row's own side counts without the row,
    unless it has no other.
    """
    s = memory_at(head)
    halves, counts = s.halves, s.half_sizes
    for side in range(2):
        halves[side], counts[side] = s.order[s.n_clusters + side], 0
        for t in range(n_rows):
            if sides[rows[t]] == side:
                s.half_rows[counts[side]] = rows[t]
                counts[side] += 1
        gather(s, halves[side], s.half_rows, counts[side], 1)
    for t in range(n_rows):
        i = rows[t]
        side = sides[i]
        own = halves[side] if side < 2 and counts[min(side, 1)] > 1 else -1
        s.log_weights[0] = 0.0
        s.log_weights[1] = 0.0
        weigh(s, i, halves, 2, own, s.log_weights)
        found[i] = s.log_weights[0] - s.log_weights[1]


class Beside:
    """Collapsed mixtures on the labels of atoms, at a point of a model.

    Parameters
    ----------
    views : sequence of View
        Parameters are inside their support.
    labels : (n,) int64 array
    """

    def __init__(self, views: list[View], labels: np.ndarray) -> None:
        self.state = State(views, labels)

    def roomy(self) -> State:
        """Return the state, with a slot for one more cluster and one to compute in."""
        if self.state.n_clusters + 2 > self.state.capacity:
            self.state.grow()
        return self.state

    def begin(self, labels: np.ndarray, params: list[Any] | None) -> None:
        """Take a partition, and other parameters of the views unless they are None.

        All sums are computed from the rows, so that a draw is the same to the last bit whatever was drawn before.
        """
        if params is not None:
            self.state.set_params(params)
        self.state.relabel(labels)

    def log_evidence(self, rows: np.ndarray) -> float:
        """Return the log marginal likelihood of some rows in a cluster of their own."""
        found, members = np.empty(1), np.ascontiguousarray(rows, dtype=np.int64)
        evidence_beside(self.roomy().address, address_of(members), len(members), address_of(found))
        return float(found[0])

    def total_log_evidence(self) -> float:
        """Return the log marginal likelihood of all rows."""
        slots = self.state.order[: self.state.n_clusters]
        return sum(self.log_evidence(self.state.members(int(k))) for k in slots)
