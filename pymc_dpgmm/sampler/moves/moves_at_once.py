"""Sequential splits and merges of large clusters, several of which are proposed at once, by threads.

Such a move looks at all rows of a large cluster, and is rarely accepted. So the next moves are proposed before it
is known whether this one is accepted: each from the same partition, with its own random numbers, in memory of its
thread. Those up to the first accepted one count. Those after it are proposed again, with the same random numbers,
from the partition that it has made. What is drawn is the same as if one move were made after the other, for any
number of threads.
"""

import threading
from collections.abc import Iterator

import numpy as np

from pymc_dpgmm.native.compiled import INT, INTS, NOTHING, c_function
from pymc_dpgmm.native.threads import InTurn, Threads, lent
from pymc_dpgmm.sampler.moves.split_merge import RIGHT, ROOM, SEQUENTIAL, accept_move, propose_move
from pymc_dpgmm.sampler.state.memory import N_CLUSTERS, memory_at, prior_of, swap_places
from pymc_dpgmm.sampler.state.state import State

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


def sequential_moves(rng: np.random.Generator, state: State, n_moves: int, threads: int | Threads) -> None:
    """Run sequential split and merge moves; ``state.tally`` counts them.

    The posterior of the labels is left invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Of rows that are in no groups and no units. Changed in place.
    n_moves : int, >= 0
    threads : int, >= 1, or Threads
        What is drawn does not depend on their number.
    """
    keys = rng.integers(2**63, size=n_moves).tolist()
    done = 0
    with lent(threads) as own:
        while done < n_moves:
            done += _Proposals(state, keys[done:]).run(own)
    state.check_prior()


class _Proposals:
    """Moves that are proposed from one partition, until one of them is accepted.

    Parameters
    ----------
    state : State
    keys : list of int
        Of the random numbers of each move.
    """

    def __init__(self, state: State, keys: list[int]) -> None:
        self._state, self._keys = state, keys
        self._told = np.zeros((len(keys), TOLD), dtype=np.int64)
        self._tallies = np.zeros((len(keys), *state.tally.shape), dtype=np.int64)
        # The first accepted move, and the place of the thread that has proposed it.
        self._first, self._place = len(keys), 0
        self._lock = threading.Lock()

    def run(self, threads: Threads) -> int:
        """Propose moves, and make the first accepted one; return how many count."""
        state = self._state
        n_threads = min(threads.n_threads, MOST_AT_ONCE, len(self._keys))
        # As much for one thread as for many, since other moves look at how many slots there are.
        needed = state.n_clusters + ROOM * MOST_AT_ONCE
        if needed > state.capacity:
            state.grow(needed)
        memories = [state, *(state.apart(t) for t in range(n_threads - 1))]
        moves = InTurn(len(self._keys))

        def work(places: Iterator[int]) -> None:
            for place in places:
                self._propose(moves, memories[place], place)

        threads.share(work, n_threads)
        if self._first < len(self._keys):
            memory = memories[self._place]
            accept_sequential(memory.address, ROOM * self._place, self._told[self._first].ctypes.data)
            state.head[N_CLUSTERS] = memory.head[N_CLUSTERS]
            if memory is not state:
                state.tally += memory.tally
        n_counted = min(self._first + 1, len(self._keys))
        state.tally += self._tallies[:n_counted].sum(axis=0)
        return n_counted

    def _propose(self, moves: Iterator[int], memory: State, place: int) -> None:
        """Propose one move after the other, until one before the next, or this thread's last, is accepted."""
        before = memory.tally.copy()
        for m in moves:
            if m > self._first:
                break
            memory.use(np.random.Generator(np.random.PCG64(self._keys[m])))
            propose_sequential(memory.address, ROOM * place, self._told[m].ctypes.data)
            self._tallies[m] = memory.tally - before
            memory.tally[:] = before
            if self._told[m, 0]:
                with self._lock:
                    if m < self._first:
                        self._first, self._place = m, place
                break
