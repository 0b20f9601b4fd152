"""Compiles what a sampler will call before it begins, so that chains in other processes do not do so each."""

import contextlib
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence

from pymc_dpgmm.compiled import CFunction, compiling
from pymc_dpgmm.families import Family
from pymc_dpgmm.families.verbs import ALWAYS, DRAW_ABSENT, PRESENT, function_of
from pymc_dpgmm.kernels.imputation import impute_rows
from pymc_dpgmm.kernels.memory import IN_VIEWS, accumulate_weights
from pymc_dpgmm.kernels.scans import scan_rows
from pymc_dpgmm.kernels.schedule import Options
from pymc_dpgmm.kernels.search import SEARCHES
from pymc_dpgmm.kernels.split_merge import allocate_in_turn
from pymc_dpgmm.kernels.state import fill, log_joint, refit_all, write_labels
from pymc_dpgmm.kernels.sweep import redraw_once, run_sweeps
from pymc_dpgmm.threads import available_cores

# Functions for which a process is worth while, and the seconds that it may take longer than its parent.
FEW = 4
PATIENCE = 30.0


def prepare(families: Sequence[Family], options: Options, imputed: Sequence[Family] = ()) -> None:
    """Compile the kernels that options ask for, and the functions of some families, or find them on disk.

    A line in PyMC's log tells of it where something has to be compiled. What is rarely used, such as scans of many
    rows in threads, is compiled when it is used.

    Parameters
    ----------
    families : sequence of Family
    options : Options
    imputed : sequence of Family
        Those of data whose missing entries are drawn.
    """
    functions: list[CFunction] = [
        *IN_VIEWS,
        accumulate_weights,
        allocate_in_turn,
        scan_rows,
        fill,
        log_joint,
        refit_all,
        write_labels,
        run_sweeps,
    ]
    if options.search:
        functions += [redraw_once, *SEARCHES]
    named = sorted({family.title for family in families})
    functions += [function_of(family, verb) for family in families for verb in ALWAYS]
    functions += [function_of(family, verb) for family in imputed for verb in (PRESENT, DRAW_ABSENT)]
    functions += [impute_rows] if imputed else []
    missing = [function for function in functions if not function.is_at_hand()]
    with compiling.announced(" and ".join(["the sampler", *named])), _compiled_beside(missing[1::2]):
        for function in missing[::2]:
            function.prepare()
    for function in functions:
        function.prepare()


@contextlib.contextmanager
def _compiled_beside(functions: Sequence[CFunction]) -> Iterator[None]:
    """Compile functions in a process of its own while the body runs, where there are many, and a core is free.

    What does not come of it is compiled when it is needed, as if nothing had been tried.
    """
    # Elsewhere libraries of the system do not survive a fork, or there is none.
    if len(functions) < FEW or available_cores() < 2 or sys.platform != "linux":
        yield
        return
    with warnings.catch_warnings():
        # Python and JAX warn of threads, which stay behind: they are of no use to the compiler.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        child = os.fork()
    if child == 0:
        # Nothing of the parent's is run at the end: no handlers, no buffers.
        try:
            logging.disable()
            for function in functions:
                function.prepare()
        finally:
            os._exit(0)
    try:
        yield
        _wait(child, PATIENCE)
    except BaseException:
        _wait(child, 0.0)
        raise


def _wait(child: int, seconds: float) -> None:
    """Wait for a process, and end it when time is up."""
    until = time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.01)
