"""Sweeps for many rows: given weights and parameters of the clusters, all rows draw their cluster at once.

Weights and parameters are drawn given the labels, then the labels given these, and weights and parameters are
forgotten. A cluster that lost its last row could not come back, so that nothing is left invariant if rows may join
any cluster that there is (Chang and Fisher 2013, section 4). Here a random order of the rows decides who may join
what: the first row of a cluster in it is its *leader*, and stays; another row may join only clusters whose leader
comes before it. Leaders then stay leaders, and the order and the leaders tell which partitions can be reached, so
that the sweep draws from the posterior of the partition given these. ``docs/moves.md`` has the proof.

Rows are worked on in chunks, of which threads take one at a time. The random numbers of row i are functions of a
key and of i, so that what is drawn does not depend on the number of threads.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numba.extending import intrinsic

from pymc_dpgmm.native.arithmetic import bits_at
from pymc_dpgmm.native.compiled import (
    FLOATS,
    INT,
    INTS,
    NOTHING,
    address_of,
    c_function,
    called_at,
    inlined,
    shifted,
    take_next,
)
from pymc_dpgmm.native.threads import Threads, lent
from pymc_dpgmm.sampler.many_rows import super_clusters
from pymc_dpgmm.sampler.many_rows.drawn_clusters import (
    DrawnClusters,
    LabelDraws,
    call_draw_listed,
    draw_clusters,
    draw_listed,
    draws_at,
    put_in_lists,
)
from pymc_dpgmm.sampler.state.memory import DISCOUNT, memory_at
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.state.views import gather, merge

# Numbers of a table, or rows, from which threads are worth while for what is quickly done.
WORTH_THREADS = 500_000
# Rows of a chunk, at least, and the most chunks.
CHUNK, MOST_CHUNKS = 8_192, 64
# The place in an order of rows that comes after all rows.
LAST = 0x7FFFFFFFFFFFFFFF
# Numbers in the tables of all chunks, at most, beside those of two chunks.
MOST_NUMBERS = 8_000_000


class _LeaderSweep:
    """One sweep: its chunks, the order of the rows, and what is drawn for the clusters.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
    threads : Threads
    chunk : int
        See :func:`leader_sweep`.
    """

    def __init__(self, rng: np.random.Generator, state: State, threads: Threads, chunk: int) -> None:
        self.state, self.threads = state, threads
        self.order_key, self.uniform_key = (int(key) for key in rng.integers(2**63, size=2))
        self.stride = state.capacity + 1
        width = sum(table.width for table in state.tables)
        most = max(2, min(MOST_CHUNKS, MOST_NUMBERS // max(self.stride * width, 1)))
        self.n_chunks = max(1, min(most, state.n // chunk))
        self.ends = np.linspace(0, state.n, self.n_chunks + 1).astype(np.int64)
        self.slots = state.order[: state.n_clusters].copy()

    def _memory(self) -> State:
        """Return the memory of the chunks, with scratch of its own for every thread but the first that asks."""
        with contextlib.suppress(IndexError):
            return self._not_taken.pop()
        return self.outside.sharing()

    def look_for_leaders(self) -> Callable[[], np.ndarray]:
        """Begin to look for the first row of each cluster; return a function that tells its place in the order."""
        found: list[np.ndarray] = []
        slots, ends = address_of(self.state.slots), address_of(self.ends)
        taken = np.zeros(1, dtype=np.int64)

        def run() -> None:
            own = np.empty(self.stride, dtype=np.int64)
            find_first_in_chunks(
                slots, self.order_key, ends, self.n_chunks, address_of(taken), self.stride, address_of(own)
            )
            found.append(own)

        finish = self.threads.begin_together(run) if self.state.n >= WORTH_THREADS else run

        def priorities() -> np.ndarray:
            finish()
            own: np.ndarray = np.min(found, axis=0)[self.slots]
            return own

        return priorities

    def draw_clusters(self, rng: np.random.Generator, given: State, sizes: np.ndarray) -> None:
        """Draw the weights and parameters of the clusters, given statistics and numbers of rows in their slots."""
        shapes = sizes[self.slots] - self.state.prior[DISCOUNT]
        self.log_weights, self.drawn = draw_clusters(rng, given.tables, self.slots, shapes)

    def take_leaders(self, priorities: np.ndarray) -> None:
        """Bring the clusters into the order of their leaders."""
        clusters = DrawnClusters(
            self.slots, priorities, self.log_weights, self.drawn, self.order_key, self.uniform_key
        )
        self.clusters = clusters.in_order(np.argsort(priorities, kind="stable"))
        self.slots = self.clusters.slots

    def form_super_clusters(self, rng: np.random.Generator) -> None:
        """Bring together clusters that rows go between, so that a row looks at few of many clusters."""
        if super_clusters.has_super_clusters(self.state.n, len(self.slots)):
            labels = LabelDraws(self.clusters, self.state.tables, self.state.slots)
            self.clusters = super_clusters.in_super_clusters(rng, self.clusters, labels, self.state.n)

    def make_room(self) -> None:
        """Make memory for the statistics of each chunk."""
        self.outside = self.state.shadow(self.stride * (1 + self.n_chunks))
        self._not_taken = [self.outside]
        self.parts = np.empty((self.n_chunks, 3, self.stride), dtype=np.int64)

    def draw_labels(self) -> int:
        """Draw the label of every row, and gather the rows of each cluster; return how many have moved."""
        labels = LabelDraws(self.clusters, self.state.tables, self.state.slots)
        n_moved: list[int] = []
        taken = np.zeros(1, dtype=np.int64)
        ends, parts, stride = self.ends.tolist(), address_of(self.parts), self.parts.strides[0]
        longest = -(-self.state.n // self.n_chunks)

        def run() -> None:
            memory, scratch = self._memory(), labels.scratch(longest)
            moved = draw_chunks(
                draw_listed.address,
                gather_chunk.address,
                labels.address,
                scratch.address,
                memory.address,
                self.stride,
                address_of(scratch.rows),
                address_of(scratch.begins),
                address_of(self.ends),
                self.n_chunks,
                address_of(taken),
                parts,
            )
            n_moved.append(moved)

        def run_in_numpy(chunks: Iterator[int]) -> None:
            memory, scratch = self._memory(), labels.scratch(longest)
            for c in chunks:
                first, last = ends[c : c + 2]
                n_moved.append(labels.draw(first, last, scratch))
                offset, own = self.stride * (1 + c), parts + c * stride
                gather_chunk(memory.address, offset, self.stride, first, last, address_of(scratch.rows), own)

        if labels.are_compiled:
            self.threads.together(run, self.n_chunks)
        else:
            self.threads.share(run_in_numpy, self.n_chunks)
        return sum(n_moved)

    def settle(self) -> None:
        """Give the state the statistics of its clusters, and their rows."""
        state, slots = self.state, np.sort(self.slots)

        def unite(memory: State, start: int, stop: int) -> None:
            unite_chunks(
                memory.address, address_of(slots), start, stop, self.n_chunks, self.stride, address_of(self.parts)
            )

        if state.tables and self.outside.tables[0].array.size >= WORTH_THREADS:
            self.threads.run(lambda start, stop: unite(self.outside.sharing(), start, stop), 0, len(slots))
        else:
            unite(self.outside, 0, len(slots))
        for table, united in zip(state.tables, self.outside.tables, strict=True):
            table.array[slots] = united.array[slots]
        state.sizes[slots] = self.parts[:, 0, slots].sum(axis=0)


@inlined
def _note_first(slots, key, start, stop, priorities):
    """Lower ``priorities`` to the place in the order of the first row of each slot in ``start`` to ``stop``."""
    for i in range(start, stop):
        priority = bits_at(key, i)
        k = slots[i]
        priorities[k] = min(priorities[k], priority)


@c_function(NOTHING(INTS, INT, INT, INT, INT, INTS))
def find_first(slots, key, start, stop, stride, priorities):
    """Find, for every slot, the place in the order of the first of its rows in ``start`` to ``stop``."""
    for k in range(stride):
        priorities[k] = LAST
    _note_first(slots, key, start, stop, priorities)


@c_function(NOTHING(INTS, INT, INTS, INT, INTS, INT, INTS))
def find_first_in_chunks(slots, key, ends, n_chunks, taken, stride, priorities):
    """Find the same in chunks that threads take in turn, for as long as there are some."""
    for k in range(stride):
        priorities[k] = LAST
    c = take_next(taken)
    while c < n_chunks:
        _note_first(slots, key, ends[c], ends[c + 1], priorities)
        c = take_next(taken)


@c_function(INT(INT, INT, INTS, FLOATS, INTS, INT, INTS, INTS, INTS, INT, INTS, INTS))
def draw_chunks(draw, gather, draws, scratch, head, stride, rows, begins, ends, n_chunks, taken, parts):
    """Draw the labels of chunks that threads take in turn, and gather their rows; return how many have moved.

    ``draw`` and ``gather`` are the addresses of :func:`draw_listed` and :func:`gather_chunk`.
    """
    n_moved = 0
    c = take_next(taken)
    while c < n_chunks:
        first, last = ends[c], ends[c + 1]
        put_in_lists(draws, first, last, rows, begins)
        for g in range(draws_at(draws).n_super_clusters):
            own, n_rows = shifted(rows, begins[g]), begins[g + 1] - begins[g]
            n_moved += call_draw_listed(draw, draws, g, own, n_rows, draws_at(draws).rows_of_block, 0, scratch)
        _call_gather_chunk(
            gather, head, stride * (1 + c), stride, first, last, rows, shifted(parts, 3 * stride * c)
        )
        c = take_next(taken)
    return n_moved


@c_function(NOTHING(INTS, INT, INT, INT, INT, INTS, INTS))
def gather_chunk(head, offset, stride, start, stop, rows, parts):
    """Sort the rows of a chunk by slot into ``rows``, link those of each slot, and gather them.

    Those of slot k are gathered in the slot ``offset + k``. ``parts`` tells of every slot how many there are, the
    first and the last, in three arrays of ``stride`` numbers; of slots without any, only that there are none.
    """
    s = memory_at(head)
    sizes, firsts, lasts = parts, shifted(parts, stride), shifted(parts, 2 * stride)
    for k in range(stride):
        sizes[k] = 0
    for i in range(start, stop):
        sizes[s.slots[i]] += 1
    # Where those of a slot end, which becomes where they begin while rows are put in from the back.
    begins, end = lasts, 0
    for k in range(stride):
        end += sizes[k]
        begins[k] = end
        firsts[k] = -1
    for i in range(stop - 1, start - 1, -1):
        k = s.slots[i]
        begins[k] -= 1
        rows[begins[k]] = i
        following = firsts[k]
        if following >= 0:
            s.following[i] = following
            s.preceding[following] = i
        firsts[k] = i
    for k in range(stride):
        if sizes[k] > 0:
            own = shifted(rows, begins[k])
            gather(s, offset + k, own, sizes[k], 1)
            lasts[k] = own[sizes[k] - 1]


@intrinsic
def _call_gather_chunk(typing_context, address, head, offset, stride, start, stop, rows, parts):
    return called_at(gather_chunk.signature)


@c_function(NOTHING(INTS, INTS, INT, INT, INT, INT, INTS))
def unite_chunks(head, slots, start, stop, n_chunks, stride, parts):
    """Unite what chunks have gathered in ``slots[start:stop]``, and join their rows into rings."""
    s = memory_at(head)
    for q in range(start, stop):
        k = slots[q]
        ring = s.n + k
        last = ring
        is_first = True
        for c in range(n_chunks):
            own = shifted(parts, 3 * stride * c + k)
            if own[0] == 0:
                continue
            if is_first:
                gather(s, k, slots, 0, 1)
                is_first = False
            merge(s, k, stride * (1 + c) + k)
            first = own[stride]
            s.following[last] = first
            s.preceding[first] = last
            last = own[2 * stride]
        s.following[last] = ring
        s.preceding[ring] = last


def leader_sweep(rng: np.random.Generator, state: State, threads: int | Threads, chunk: int = CHUNK) -> int:
    """Draw all labels given weights and parameters of the clusters there are, which are drawn and forgotten.

    The posterior of the labels is left invariant. The number of clusters stays what it is: other moves open and
    close clusters.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Of rows that are in no groups and no units. Changed in place.
    threads : int, >= 1, or Threads
        What is drawn does not depend on their number.
    chunk : int, >= 1
        Rows that a thread works on at a time, at least.

    Returns
    -------
    int
        Number of rows that changed their cluster.
    """
    with lent(threads) as own:
        sweep = _LeaderSweep(rng, state, own, chunk)
        priorities = sweep.look_for_leaders()
        sweep.draw_clusters(rng, state, state.sizes)
        sweep.make_room()
        sweep.take_leaders(priorities())
        sweep.form_super_clusters(rng)
        n_moved = sweep.draw_labels()
        sweep.settle()
    return n_moved


def place_rows(rng: np.random.Generator, state: State, members: Sequence[np.ndarray], n_threads: int) -> None:
    """Let all rows join clusters whose weights and parameters are drawn given some of the rows.

    For searches: the posterior of the labels is not left invariant.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : State
        Of rows that are in no groups and no units. Changed in place.
    members : sequence of int64 arrays
        The rows of each cluster that are given.
    n_threads : int, >= 1
    """
    n_clusters = len(members)
    given = state.shadow(n_clusters)
    sizes = np.array([0, *map(len, members)])
    for table in given.tables:
        for k, own in enumerate(members):
            table.gather(k + 1, own)
    # Any partition with as many clusters will do, since all rows are drawn anew.
    state.relabel(np.arange(state.n) % n_clusters)
    with Threads(n_threads) as threads:
        sweep = _LeaderSweep(rng, state, threads, CHUNK)
        sweep.slots = np.arange(1, n_clusters + 1)
        sweep.draw_clusters(rng, given, sizes)
        sweep.make_room()
        # All rows may join any of the clusters, as if their leaders came before all rows.
        sweep.take_leaders(np.full(n_clusters, np.iinfo(np.int64).min))
        sweep.draw_labels()
        sweep.settle()
    if state.sizes[sweep.slots].min() == 0:
        state.relabel(state.labels())
