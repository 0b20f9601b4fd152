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


class InTurn(Iterator[int]):
    """The numbers 0 to n - 1, each of which one thread takes."""

    def __init__(self, n: int) -> None:
        self._left: SimpleQueue[int] = SimpleQueue()
        for i in range(n):
            self._left.put(i)

    def __next__(self) -> int:
        try:
            return self._left.get_nowait()
        except Empty:
            raise StopIteration from None


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

    def together(self, work: Callable[[], None], most: int | None = None) -> None:
        """Call ``work()`` in every thread, or in ``most`` of them, which share what there is to do."""
        self.begin_together(work, most)()

    def begin_together(self, work: Callable[[], None], most: int | None = None) -> Callable[[], None]:
        """Let the other threads begin with this; return a function that calls it too, and waits for them."""
        n_threads = self.n_threads if most is None else min(self.n_threads, most)
        others = [self._others.submit(work) for _ in range(n_threads - 1)] if self._others else []

        def finish() -> None:
            work()
            for other in others:
                other.result()

        return finish

    def run(self, call: Callable[[int, int], None], start: int, stop: int) -> None:
        """Call ``call(first, last)`` for ranges that make up ``start`` to ``stop``."""
        n_ranges = max(1, min(2 * self.n_threads, stop - start))
        ends = np.linspace(start, stop, n_ranges + 1).astype(int).tolist()

        def work(numbers: Iterator[int]) -> None:
            for i in numbers:
                call(ends[i], ends[i + 1])

        self.share(work, n_ranges)

    def share(self, work: Callable[[Iterator[int]], None], n: int) -> None:
        """Call ``work(numbers)`` in every thread, each of which takes numbers from 0 to n - 1 as it gets on.

        No thread waits for another one that is slower, by more than one number takes.
        """
        numbers = InTurn(n)
        self.together(lambda: work(numbers), n)


def lent(threads: "int | Threads") -> contextlib.AbstractContextManager[Threads]:
    """Return threads for a ``with`` block: those that are there, which stay alive, or so many new ones."""
    return contextlib.nullcontext(threads) if isinstance(threads, Threads) else Threads(threads)
