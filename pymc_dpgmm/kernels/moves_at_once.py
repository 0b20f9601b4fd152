"""Sequential splits and merges of large clusters, several of which are proposed at once, by threads.

Such a move looks at all rows of a large cluster, and is rarely accepted. So the next moves are proposed before it
is known whether this one is accepted: each from the same partition, with its own random numbers, in memory of its
own. They are then looked at in their order. Those up to the first accepted one count. Those after it are proposed
again, with the same random numbers, from the partition that it has made. What is drawn is the same as if one move
were made after the other, for any number of threads.
"""

import numpy as np

from pymc_dpgmm.compiled import INT, INTS, NOTHING, c_function
from pymc_dpgmm.kernels.memory import N_CLUSTERS, memory_at, prior_of, swap_places
from pymc_dpgmm.kernels.split_merge import RIGHT, ROOM, SEQUENTIAL, accept_move, propose_move
from pymc_dpgmm.kernels.state import State
from pymc_dpgmm.threads import Threads

# Moves that are proposed at once, at most: each needs memory for the rows of the clusters it looks at.
MOST_AT_ONCE = 4
# What is told of a proposed move: whether it is accepted and is a split, the clusters' places, and their rows.
TOLD = 5


@c_function(NOTHING(INTS, INT, INTS))
def propose_sequential(head, n_passed, told):
    """Propose a sequential move, in free slots of which the first ``n_passed`` are passed over."""
    s = memory_at(head)
    is_accepted, is_split, left_place, right_place, size = propose_move(
        s, prior_of(s), SEQUENTIAL, head[N_CLUSTERS] + n_passed
    )
    told[0] = is_accepted
    told[1] = is_split
    told[2] = left_place
    told[3] = right_place
    told[4] = size


@c_function(NOTHING(INTS, INT, INTS))
def accept_sequential(head, n_passed, told):
    """Make a move that was proposed in free slots of which the first ``n_passed`` were passed over."""
    s = memory_at(head)
    n_clusters = head[N_CLUSTERS]
    if told[1] != 0:
        # The new cluster's slot becomes the first one that is free, and so the next in use.
        swap_places(s, n_clusters, s.place[s.halves[RIGHT]])
    accept_move(s, SEQUENTIAL, n_clusters + n_passed, told[1] != 0, told[2], told[3], told[4])


def sequential_moves(rng: np.random.Generator, state: State, n_moves: int, n_threads: int) -> None:
    """Run sequential split and merge moves; ``state.tally`` counts them.

    The posterior of the labels is left invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Of rows that are in no groups and no units. Changed in place.
    n_moves : int, >= 0
    n_threads : int, >= 1
        What is drawn does not depend on it.
    """
    keys = rng.integers(2**63, size=n_moves).tolist()
    done = 0
    with Threads(n_threads) as threads:
        while done < n_moves:
            done += _propose_some(state, keys[done : done + min(n_threads, MOST_AT_ONCE)], threads)
    state.check_prior()


def _propose_some(state: State, keys: list[int], threads: Threads) -> int:
    """Propose a move for each key, all at once, and make the first accepted one; return how many count."""
    # As much for one thread as for many, since other moves look at how many slots there are.
    needed = state.n_clusters + ROOM * MOST_AT_ONCE
    if needed > state.capacity:
        state.grow(needed)
    memories = [state, *(state.apart(t) for t in range(len(keys) - 1))]
    generators = [np.random.Generator(np.random.PCG64(key)) for key in keys]
    told = np.zeros((len(keys), TOLD), dtype=np.int64)
    for memory, own in zip(memories, generators, strict=True):
        memory.use(own)

    def propose(start: int, stop: int) -> None:
        for t in range(start, stop):
            propose_sequential(memories[t].address, ROOM * t, told[t].ctypes.data)

    threads.run(propose, 0, len(keys))
    for t, memory in enumerate(memories):
        if told[t, 0]:
            accept_sequential(memory.address, ROOM * t, told[t].ctypes.data)
            state.head[N_CLUSTERS] = memory.head[N_CLUSTERS]
        if t > 0:
            state.tally += memory.tally
        if told[t, 0]:
            return t + 1
    return len(keys)
