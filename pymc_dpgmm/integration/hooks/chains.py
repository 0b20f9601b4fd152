"""Functions of PyMC that sample the chains of a run, where labels are among its variables."""

import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm

from pymc_dpgmm.integration.internals.pymc_internals import sample_in_turn
from pymc_dpgmm.integration.steps.chunked import ChunkedStep
from pymc_dpgmm.integration.steps.labels import LabelsStep
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.variables import LabelsRV
from pymc_dpgmm.integration.variables.chunked_partition import chunked_names
from pymc_dpgmm.native.compiled import logger
from pymc_dpgmm.native.interrupts import is_interrupt
from pymc_dpgmm.sampler.tuning.exchange import Exchange
from pymc_dpgmm.sampler.tuning.preparation import finish

# If the draws of labels take more bytes than this, the user is warned.
LARGEST_TRACE = 2**30


def _methods(step: Any) -> list[Any]:
    """Return a step method, or the parts of a compound step."""
    return list(getattr(step, "methods", [step]))


def has_step(step: Any, kind: type) -> bool:
    """Tell whether a step method, or a part of a compound step, is of a kind."""
    return any(isinstance(method, kind) for method in _methods(step))


def told_of_large_labels(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's set-up of traces, with a warning if those of labels need much memory.

    It is the last that PyMC compiles before chains begin, so that what is compiled meanwhile is waited for here.
    """

    def init_traces(*, model: pm.Model, chains: int, expected_length: int, **others: Any) -> Any:
        variables, point = others.get("trace_vars"), others.get("initial_point") or {}
        stored = None if variables is None else {variable.name for variable in variables}
        for rv in model.free_RVs:
            if not isinstance(rv.owner.op, LabelsRV) or (stored is not None and rv.name not in stored):
                continue
            labels = point.get(rv.name)
            size = 0 if labels is None else chains * expected_length * np.asarray(labels).nbytes
            # Labels on disk do not fill the memory.
            if size > LARGEST_TRACE and others.get("backend") is None:
                warnings.warn(
                    f"the draws of {rv.name}, including tuning, will take {size / 2**30:.1f} GiB of memory, "
                    "and as much again while they are put together. To leave them out, sample with var_names "
                    f"without {rv.name}; to keep the labels of some draws, also pass "
                    f'callback=dp.ThinnedLabels("{rv.name}", every=100)',
                    UserWarning,
                    stacklevel=3,
                )
        made = function(model=model, chains=chains, expected_length=expected_length, **others)
        # Chains in processes of their own begin now.
        for method in _methods(others.get("step")):
            if isinstance(method, PartitionStep):
                method.prepare(point)
        finish()
        return made

    return init_traces


def telling_each_other(function: Callable[..., Any], n_together: int, arguments: dict[str, Any]) -> None:
    """Sample all chains, which tell each other the best partition that each one's search has found."""
    methods = [m for m in _methods(arguments["step"]) if isinstance(m, LabelsStep) and m.share]
    if not methods or arguments["chains"] == 1:
        function(**arguments)
        return
    with tempfile.TemporaryDirectory(prefix="pymc_dpgmm-") as folder:
        n_vectors = sum(len(method.targets) for method in methods)
        for method in methods:
            method.exchange = Exchange(folder, n_together, n_vectors=n_vectors)
        try:
            function(**arguments)
        finally:
            for method in methods:
                method.exchange = None


def together_telling_each_other(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's sampling in several processes, where chains tell each other what they have found."""
    return lambda **arguments: telling_each_other(
        function, min(arguments["cores"], arguments["chains"]), arguments
    )


def in_turn_telling_each_other(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's sampling of chains in turn, of which each hears what those before it have found."""
    return lambda **arguments: telling_each_other(function, 1, arguments)


def in_turn_with_chunks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's sampling in several processes, replaced by sampling chains in turn for rows in chunks.

    A process forked from one with threads or a client of dask would hang.
    """

    def sample(**arguments: Any) -> None:
        if not has_step(arguments["step"], ChunkedStep):
            function(**arguments)
            return
        logger.info("The chains are sampled one after the other: all cores work on the chunks of one of them.")
        sample_in_turn(**arguments)

    return sample


def _has_labels(trace: Any) -> bool:
    """Tell whether a trace belongs to a model with labels, or with a partition of rows in chunks."""
    model = getattr(trace, "model", None)
    if model is None:
        return False
    return bool(chunked_names(model)) or any(isinstance(rv.owner.op, LabelsRV) for rv in model.free_RVs)


def told_of_interrupted_tuning(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's choice among interrupted chains, with an error that explains why there are no draws."""

    def choose_chains(traces: Sequence[Any], tune: int) -> Any:
        # A trace without variables has no length. Models without labels are left to PyMC.
        is_guarded = all(getattr(trace, "varnames", None) and _has_labels(trace) for trace in traces)
        if traces and is_guarded and not any(len(trace) > tune for trace in traces):
            done = max(len(trace) for trace in traces)
            raise ValueError(
                f"sampling was stopped while tuning, after {done} of {tune} tuning draws: there are no draws to "
                "return. If it is stopped after tuning, pm.sample returns the draws so far. To continue an "
                "interrupted run, use dp.ResumableRun"
            )
        return function(traces, tune)

    return choose_chains


def told_of_interrupted_chain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's sampling of one chain in this process, which says how far an interrupted chain has come."""

    def sample(**arguments: Any) -> None:
        for method in _methods(arguments["step"]):
            if isinstance(method, LabelsStep) and method.exchange is not None:
                method.exchange = replace(method.exchange, chain=arguments["chain"])
        try:
            function(**arguments)
        except SystemError as error:
            if not is_interrupt(error):
                raise
        trace, draws, tune = (arguments[key] for key in ("trace", "draws", "tune"))
        if len(trace) >= draws or not has_step(arguments["step"], PartitionStep):
            return
        n_kept = max(len(trace) - tune, 0)
        logger.warning(
            "Chain %s was stopped after %s. PyMC goes on with the next chain, if there is one. It cuts long "
            "chains and leaves out short ones, so that most draws are kept. To continue an interrupted run, use "
            "dp.ResumableRun.",
            arguments["chain"],
            f"{n_kept} of {draws - tune} draws" if n_kept else f"{len(trace)} of {tune} tuning draws",
        )

    return sample
