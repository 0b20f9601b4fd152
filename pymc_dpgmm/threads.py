"""Threads of Python around compiled code, which releases its lock."""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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
    """Runs compiled code on numbers or ranges of indices, in threads if there are more than one.

    The calling thread is one of them: a processor that it has been working on need not be found for another one.

    Numba's parallel loops would not do: a process that has used its OpenMP layer cannot fork chains, and its own
    layer ends the process when two threads enter it. The threads end with the ``with`` block, so that none is
    alive when a process forks.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._others: ThreadPoolExecutor | None = None

    def __enter__(self) -> "Threads":
        if self.n_threads > 1:
            self._others = ThreadPoolExecutor(self.n_threads - 1)
        return self

    def __exit__(self, *_: object) -> None:
        if self._others is not None:
            self._others.shutdown()

    def run(self, call: Callable[[int, int], None], start: int, stop: int) -> None:
        """Call ``call(first, last)`` for ranges that make up ``start`` to ``stop``."""
        self.begin(call, start, stop)()

    def begin(self, call: Callable[[int, int], None], start: int, stop: int) -> Callable[[], None]:
        """Let the other threads begin with this; return a function that does what is left, and waits for them."""
        n_ranges = max(1, min(2 * self.n_threads, stop - start))
        ends = np.linspace(start, stop, n_ranges + 1).astype(int).tolist()

        def work(taken: Iterator[int]) -> None:
            for i in taken:
                call(ends[i], ends[i + 1])

        return self._begin_sharing(work, n_ranges)

    def share(self, work: Callable[[Iterator[int]], None], n: int) -> None:
        """Call ``work(taken)`` in every thread, each of which takes numbers from 0 to n - 1 as it gets on.

        No thread waits for another one that is slower, by more than one number takes.
        """
        self._begin_sharing(work, n)()

    def _begin_sharing(self, work: Callable[[Iterator[int]], None], n: int) -> Callable[[], None]:
        left: SimpleQueue[int] = SimpleQueue()
        for i in range(n):
            left.put(i)

        def taken() -> Iterator[int]:
            with contextlib.suppress(Empty):
                while True:
                    yield left.get_nowait()

        others: list[Future[None]] = []
        if self._others is not None:
            others = [self._others.submit(work, taken()) for _ in range(min(self.n_threads, n) - 1)]

        def finish() -> None:
            work(taken())
            for other in others:
                other.result()

        return finish
