"""Compiles what a sampler will call before it begins, so that chains in other processes do not do so each."""

import contextlib
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence

from pymc_dpgmm.families import Family
from pymc_dpgmm.native.compiled import CFunction, compiling
from pymc_dpgmm.native.threads import available_cores
from pymc_dpgmm.sampler.moves.imputation import impute_rows
from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.moves.scans import scan_rows
from pymc_dpgmm.sampler.moves.split_merge import allocate_in_turn
from pymc_dpgmm.sampler.moves.sweep import redraw_once, run_sweeps
from pymc_dpgmm.sampler.state.memory import IN_VIEWS, accumulate_weights
from pymc_dpgmm.sampler.state.state import fill, log_joint, refit_all, write_labels
from pymc_dpgmm.sampler.state.table_functions import function_of
from pymc_dpgmm.sampler.state.templates import ALWAYS, DRAW_ABSENT, PRESENT
from pymc_dpgmm.sampler.tuning.schedule import Options
from pymc_dpgmm.sampler.tuning.search import SEARCHES

# The fewest functions for which a process is worth while, and the seconds that it may take longer than its parent.
FEWEST_FUNCTIONS = 4
PATIENCE = 30.0


def prepare(
    families: Sequence[Family],
    options: Options,
    imputed: Sequence[Family] = (),
    others: Sequence[CFunction] = (),
) -> None:
    """Compile the kernels that options ask for, and the functions of some families, or find them on disk.

    A line in PyMC's log tells of it where something has to be compiled. What is rarely used, such as scans of many
    rows in threads, is compiled when it is used.

    Parameters
    ----------
    families : sequence of Family
    options : Options
    imputed : sequence of Family
        Those of data whose missing entries are drawn.
    others : sequence of CFunction
        What the draws of the model need besides.
    """
    # Neighbours have parts in common. One of two processes begins in front, the other one at the end.
    functions: list[CFunction] = [scan_rows]
    functions += [function_of(family, verb) for verb in ALWAYS for family in families]
    functions += [function_of(family, verb) for family in imputed for verb in (PRESENT, DRAW_ABSENT)]
    functions += [impute_rows] if imputed else []
    functions += [*IN_VIEWS.values(), fill, refit_all, write_labels, log_joint]
    functions += [*SEARCHES, redraw_once] if options.search else []
    functions += [accumulate_weights, allocate_in_turn, *(move.kernel for move in MOVES.values()), run_sweeps]
    functions += others
    named = sorted({family.title for family in families})
    missing = [function for function in functions if not function.is_at_hand()]
    with compiling.announced(" and ".join(["the sampler", *named])):
        _compile(missing)
    for function in functions:
        function.prepare()


def _compile(functions: Sequence[CFunction]) -> None:
    """Compile functions, some of them in a process of its own where there are many, and a core is free.

    What does not come of it is compiled when it is needed, as if nothing had been tried.
    """
    # Elsewhere libraries of the system do not survive a fork, or there is none.
    if len(functions) < FEWEST_FUNCTIONS or available_cores() < 2 or sys.platform != "linux":
        for function in functions:
            function.prepare()
        return
    # Each process reads a byte for every function that it compiles, until none is left.
    left, end = os.pipe()
    os.write(end, bytes(len(functions)))
    os.close(end)
    with warnings.catch_warnings():
        # Python and JAX warn of threads, which stay behind: they are of no use to the compiler.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        child = os.fork()
    if child == 0:
        # Nothing of the parent's is run at the end: no handlers, no buffers.
        try:
            logging.disable()
            _compile_some(functions[::-1], left)
        finally:
            os._exit(0)
    try:
        _compile_some(functions, left)
        _wait(child, PATIENCE)
    except BaseException:
        _wait(child, 0.0)
        raise
    finally:
        os.close(left)


def _compile_some(functions: Sequence[CFunction], left: int) -> None:
    """Compile one function after the other for as long as a pipe has bytes left."""
    for function in functions:
        if not os.read(left, 1):
            break
        function.prepare()


def _wait(child: int, seconds: float) -> None:
    """Wait for a process, and end it when time is up."""
    until = time.monotonic() + seconds
    # Others may wait for all children of the process, or have it ignore how they end.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return
            time.sleep(0.01)
