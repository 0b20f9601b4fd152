"""Compiles what a sampler will call before it begins, so that chains in other processes do not do so each.

:func:`begin` starts a process that compiles while PyMC compiles its own functions, and :func:`finish` waits for it
and helps. A run of ``pm.sample`` begins when steps are assigned and finishes when its traces are made; a step that
a user makes begins when it is made, and finishes at its first chain.
"""

import contextlib
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from pymc_dpgmm.families import Family
from pymc_dpgmm.native.compiled import CFunction, compiling
from pymc_dpgmm.native.threads import available_cores
from pymc_dpgmm.sampler.moves.imputation import impute_rows
from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.moves.scans import scan_rows
from pymc_dpgmm.sampler.moves.split_merge import allocate_in_turn
from pymc_dpgmm.sampler.moves.sweep import redraw_once, run_sweeps
from pymc_dpgmm.sampler.state.all_clusters import fill, log_joint, refit_all, write_labels
from pymc_dpgmm.sampler.state.choices import accumulate_weights
from pymc_dpgmm.sampler.state.table_functions import function_of
from pymc_dpgmm.sampler.state.templates import ALWAYS
from pymc_dpgmm.sampler.state.views import IN_VIEWS
from pymc_dpgmm.sampler.tuning.schedule import Options
from pymc_dpgmm.sampler.tuning.search import SEARCHES

# The fewest functions for which a process is worth while, and the seconds that it may take longer than its parent.
FEWEST_FUNCTIONS = 4
PATIENCE = 30.0


def functions_of(
    families: Sequence[Family],
    options: Options,
    imputed: Sequence[Family] = (),
    others: Sequence[CFunction] = (),
) -> list[CFunction]:
    """Return the kernels that options ask for, and the functions of some families.

    What is rarely used, such as scans of many rows in threads, is compiled when it is used.

    Parameters
    ----------
    families : sequence of Family
    options : Options
    imputed : sequence of Family
        Those of data whose missing entries are drawn.
    others : sequence of CFunction
        What the draws of the model need besides.
    """
    # Neighbours have parts in common. One of two processes begins in front, the other one at the end: where they
    # meet are short functions, so that neither has to wait for the other.
    functions: list[CFunction] = [scan_rows]
    functions += [function_of(family, verb) for verb in ALWAYS for family in families]
    functions += [function_of(family, verb) for family in imputed for verb in ("present", "draw_absent")]
    functions += [impute_rows] if imputed else []
    functions += [*IN_VIEWS.values(), fill, refit_all, write_labels, log_joint]
    functions += [accumulate_weights, allocate_in_turn, run_sweeps]
    functions += [redraw_once, *SEARCHES] if options.search else []
    functions += [*(move.kernel for move in MOVES.values() if move.is_usual), *others]
    return list(dict.fromkeys(functions))


class _Helper(NamedTuple):
    """A process that compiles functions.

    Parameters
    ----------
    parent, child : int
        The process that has started it, and itself.
    left : int
        A pipe with a byte for every function that is left.
    n_shared : int
        How many of the functions, the first ones, the two processes share.
    """

    parent: int
    child: int
    left: int
    n_shared: int


class _Preparation:
    """The functions that are being compiled, in the order in which this process takes them."""

    def __init__(self) -> None:
        self._functions: list[CFunction] = []
        self._helper: _Helper | None = None

    def begin(self, functions: Sequence[CFunction], what: str, are_long: bool) -> None:
        """Compile functions in a process of its own if that is worth while, and a core is free; do not wait."""
        missing = [f for f in functions if not f.is_at_hand() and f not in self._functions]
        if not missing:
            return
        if not self._functions:
            compiling.enter(what)
            compiling.tell()
        is_worth_it = (are_long or len(missing) >= FEWEST_FUNCTIONS) and available_cores() >= 2
        # Elsewhere libraries of the system do not survive a fork, or there is none.
        if self._helper is None and is_worth_it and sys.platform == "linux":
            self._helper = _helper(missing)
            self._functions = missing + self._functions
        else:
            self._functions += missing

    def finish(self) -> None:
        """Compile what is left, wait for the process, and have all functions at hand."""
        functions, helper = self._functions, self._helper
        if not functions:
            return
        self._functions, self._helper = [], None
        is_parent = helper is not None and helper.parent == os.getpid()
        try:
            if helper is not None and is_parent:
                try:
                    _compile_some(functions, helper.left)
                    for function in functions[helper.n_shared :]:
                        function.prepare()
                    _wait(helper.child, PATIENCE)
                except BaseException:
                    _wait(helper.child, 0.0)
                    raise
            # What does not come of the process is compiled here.
            for function in functions:
                function.prepare()
        finally:
            if helper is not None and is_parent:
                os.close(helper.left)
            compiling.leave()


_preparation = _Preparation()


def begin(functions: Sequence[CFunction], families: Sequence[Family], are_long: bool = False) -> None:
    """Begin to compile functions, or find them on disk. A line in PyMC's log tells of it if one is compiled.

    Parameters
    ----------
    functions : sequence of CFunction
    families : sequence of Family
        Those that a user is told of.
    are_long : bool
        Whether a single one of the functions is worth a process.
    """
    named = sorted({family.title for family in families})
    _preparation.begin(functions, " and ".join(["the sampler", *named]), are_long)


def finish() -> None:
    """Have all functions at hand that have been begun."""
    _preparation.finish()


def prepare(families: Sequence[Family], options: Options) -> None:
    """Compile what some families and options need, or find it on disk, and wait for it."""
    begin(functions_of(families, options), families)
    finish()


def _helper(functions: Sequence[CFunction]) -> _Helper:
    """Start a process that compiles functions from the end, as long as its pipe has bytes left."""
    left, end = os.pipe()
    os.write(end, bytes(len(functions)))
    os.close(end)
    parent = os.getpid()
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
    return _Helper(parent, child, left, len(functions))


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
