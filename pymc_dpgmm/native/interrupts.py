"""Ctrl-C where other libraries are not ready for it."""

import contextlib
import importlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def interrupted_later() -> Iterator[None]:
    """Let Ctrl-C wait until the body is done.

    Numba's compiler, for one, takes part of its orders from callbacks, in which Python drops exceptions.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        # Python handles signals in the main thread only, and there may be nothing that would stop the body.
        yield
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda *given: came.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if came:
        usual(*came[0])


def imported(module: str) -> Any:
    """Import a module when it is needed; Ctrl-C waits until it is imported.

    Behind ArviZ is scipy.ndimage, which cannot be imported again in the same process if its import was stopped.
    """
    with interrupted_later():
        return importlib.import_module(module)


def is_interrupt(error: BaseException | None) -> bool:
    """Tell whether Ctrl-C is behind an exception: numba makes SystemErrors of it where it calls compiled code."""
    while isinstance(error, SystemError):
        error = error.__cause__
    return isinstance(error, KeyboardInterrupt)
