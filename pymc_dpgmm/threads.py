"""Threads of Python around compiled code, which releases its lock."""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

import numpy as np
from numba import config


def available_cores() -> int:
    """Return on how many cores this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_threads() -> int:
    """Return how many threads a chain may use: 1 in a child process, where other chains run beside it.

    Elsewhere it is numba's number, the cores of the machine unless the environment variable NUMBA_NUM_THREADS
    says otherwise.
    """
    return 1 if multiprocessing.parent_process() is not None else int(config.NUMBA_NUM_THREADS)


class Threads:
    """Runs compiled code on ranges of indices, in threads if there are more than one.

    Numba's parallel loops would not do: a process that has used its OpenMP layer cannot fork chains, and its own
    layer ends the process when two threads enter it. The threads end with the ``with`` block, so that none is
    alive when a process forks.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> "Threads":
        if self.n_threads > 1:
            self._pool = ThreadPoolExecutor(self.n_threads)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def run(self, call: Callable[[int, int], None], start: int, stop: int) -> None:
        """Call ``call(first, last)`` for ranges that make up ``start`` to ``stop``."""
        n_ranges = min(2 * self.n_threads, stop - start)
        if self._pool is None or n_ranges < 2:
            call(start, stop)
        else:
            ends = np.linspace(start, stop, n_ranges + 1).astype(int).tolist()
            list(self._pool.map(call, ends[:-1], ends[1:]))

    def share(self, work: Callable[[Iterator[int]], None], n: int) -> None:
        """Call ``work(taken)`` in every thread, each of which takes numbers from 0 to n - 1 as it gets on.

        No thread waits for another one that is slower, by more than one number takes.
        """
        left: SimpleQueue[int] = SimpleQueue()
        for i in range(n):
            left.put(i)

        def taken() -> Iterator[int]:
            with contextlib.suppress(Empty):
                while True:
                    yield left.get_nowait()

        if self._pool is None:
            work(taken())
        else:
            list(self._pool.map(lambda _: work(taken()), range(min(self.n_threads, n))))
