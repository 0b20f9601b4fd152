"""Functions of PyMC that for a model with labels would be wrong without a sign, or lose draws."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.integration.hooks.convergence import checked_without_labels
from pymc_dpgmm.integration.internals.pymc_internals import sample_in_turn, wrap
from pymc_dpgmm.integration.steps.chunked import ChunkedStep, with_clusters
from pymc_dpgmm.integration.steps.sampler import PartitionSampler
from pymc_dpgmm.integration.variables import CollapsedMixtureRV, LabelsRV
from pymc_dpgmm.integration.variables.chunked_partition import chunked_names
from pymc_dpgmm.native.compiled import logger
from pymc_dpgmm.native.interrupts import is_interrupt

# Bytes of the draws of labels from which on a user is warned of them.
LARGEST_TRACE = 2**30


def has_step(step: Any, kind: type) -> bool:
    """Tell whether a step method of PyMC, or one of those that it is made of, is of a kind."""
    return any(isinstance(own, kind) for own in getattr(step, "methods", [step]))


def log_density_by_row(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's pointwise log likelihood, with that of :func:`pymc_dpgmm.log_likelihood` for mixtures.

    PyMC has one number for a mixture, the log density of all rows together, which ``az.loo`` would take for one
    observation.
    """

    def compute_log_density(
        idata: Any,
        *,
        var_names: Sequence[str] | None = None,
        extend_inferencedata: bool = True,
        model: pm.Model | None = None,
        kind: str = "likelihood",
        **others: Any,
    ) -> Any:
        model = pm.modelcontext(model)
        refuse_chunks(model, var_names)
        given = {"model": model, "kind": kind, **others}
        observed = [rv.name for rv in model.observed_RVs]
        mixtures = {rv.name for rv in model.observed_RVs if isinstance(rv.owner.op, CollapsedMixtureRV)}
        wanted = observed if var_names is None else list(var_names)
        if kind != "likelihood" or not mixtures.intersection(wanted):
            return function(idata, var_names=var_names, extend_inferencedata=extend_inferencedata, **given)
        from pymc_dpgmm.posterior import log_likelihood

        rest = [name for name in wanted if name not in mixtures]
        found = xr.Dataset()
        if rest:
            found = function(idata, var_names=rest, extend_inferencedata=False, **given)
        for name in wanted:
            if name not in mixtures:
                continue
            try:
                own = log_likelihood(idata, name, extend_inferencedata=False, random_seed=0, model=model)
            except ValueError as error:
                # Draws must not be lost where the log likelihood of everything is asked for with them.
                if var_names is not None:
                    raise
                warnings.warn(f"the log likelihood of {name} is left out: {error}", UserWarning, stacklevel=3)
            else:
                found = found.merge(own["log_likelihood"].to_dataset())
        if not extend_inferencedata:
            return found
        idata["log_likelihood"] = xr.DataTree(found)
        return idata

    return compute_log_density


def mode_given_labels(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``pm.find_MAP``, which refuses to hold labels at a random start."""

    def find_map(
        *args: Any, model: pm.Model | None = None, initvals: Mapping[Any, Any] | None = None, **kwargs: Any
    ) -> Any:
        in_chunks = chunked_names(pm.modelcontext(model))
        if in_chunks:
            raise ValueError(
                f"find_MAP would hold the partition behind {', '.join(in_chunks)} where it is: use pm.sample, and "
                "dp.chunked_membership for one clustering"
            )
        labels = [rv.name for rv in pm.modelcontext(model).free_RVs if isinstance(rv.owner.op, LabelsRV)]
        given = {getattr(key, "name", key) for key in initvals or {}}
        unknown = [name for name in labels if name not in given]
        if unknown:
            raise ValueError(
                f"find_MAP optimises continuous variables only and would hold {', '.join(unknown)} at a random "
                "start. For one clustering, draw from the posterior with pm.sample and call dp.point_partition; "
                f'for the mode given a partition, pass it: initvals={{"{unknown[0]}": labels}}'
            )
        return function(*args, model=model, initvals=initvals, **kwargs)

    return find_map


def _has_labels(trace: Any) -> bool:
    """Tell whether a trace is of a model with labels, or with a partition of rows in chunks."""
    model = getattr(trace, "model", None)
    if model is None:
        return False
    return bool(chunked_names(model)) or any(isinstance(rv.owner.op, LabelsRV) for rv in model.free_RVs)


def told_of_interrupted_tuning(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's choice among chains of different lengths, which says what an interruption has left of them."""

    def choose_chains(traces: Sequence[Any], tune: int) -> Any:
        # A trace without variables has no length, and models without labels are PyMC's alone.
        told = all(getattr(trace, "varnames", None) and _has_labels(trace) for trace in traces)
        if traces and told and not any(len(trace) > tune for trace in traces):
            done = max(len(trace) for trace in traces)
            raise ValueError(
                f"sampling was stopped while tuning, after {done} of {tune} tuning draws: there are no draws to "
                "return. Stopped after tuning, pm.sample returns the draws so far. A run by dp.ResumableRun can "
                "be continued"
            )
        return function(traces, tune)

    return choose_chains


def told_of_interrupted_chain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's sampling of one chain in this process, which says what an interruption has left of it."""

    def sample(**arguments: Any) -> None:
        try:
            function(**arguments)
        except SystemError as error:
            if not is_interrupt(error):
                raise
        trace, draws, tune = (arguments[key] for key in ("trace", "draws", "tune"))
        if len(trace) >= draws or not has_step(arguments["step"], PartitionSampler):
            return
        kept = max(len(trace) - tune, 0)
        logger.warning(
            "Chain %s was stopped after %s. PyMC goes on with the next chain, if there is one. It cuts long "
            "chains and leaves out short ones, so that most draws are kept. A run by dp.ResumableRun can be "
            "continued.",
            arguments["chain"],
            f"{kept} of {draws - tune} draws" if kept else f"{len(trace)} of {tune} tuning draws",
        )

    return sample


def told_of_large_labels(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's set-up of traces, which warns where those of labels are large."""

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
                    f"the draws of {rv.name}, those of tuning too, will take {size / 2**30:.1f} GiB of memory, "
                    "and as much again while they are put together. To leave them out, sample with var_names "
                    f'without {rv.name}; to keep those of some draws, pass callback=dp.ThinnedLabels("{rv.name}", '
                    "every=100) too",
                    UserWarning,
                    stacklevel=3,
                )
        return function(model=model, chains=chains, expected_length=expected_length, **others)

    return init_traces


def in_turn_with_chunks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's sampling in several processes, which samples chains in turn where rows are in chunks.

    A process that is forked beside the threads or the client of dask does not get through.
    """

    def sample(**arguments: Any) -> None:
        if not has_step(arguments["step"], ChunkedStep):
            function(**arguments)
            return
        logger.info("The chains are sampled one after the other: all cores work on the chunks of one of them.")
        sample_in_turn(**arguments)

    return sample


def with_drawn_clusters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's conversion of draws, which keeps from what labels of rows in chunks can be computed."""

    def to_inference_data(trace: Any = None, **others: Any) -> Any:
        found = function(trace, **others)
        return found if trace is None else with_clusters(found)

    return to_inference_data


def refuse_chunks(model: pm.Model, var_names: Sequence[str] | None) -> None:
    """Raise NotImplementedError where everything observed is asked for, and the rows are in chunks."""
    in_chunks = chunked_names(model)
    if in_chunks and var_names is None:
        raise NotImplementedError(
            f"the rows behind {', '.join(in_chunks)} are in chunks, and no variable of the model: there are no "
            "replicates and no pointwise log likelihoods of them. dp.sample_new_rows draws new rows, and "
            "dp.density has the posterior density. For other variables pass var_names"
        )


def replicates_without_chunks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's posterior predictive draws, which refuses models whose rows are in chunks."""

    def sample_posterior_predictive(
        trace: Any, model: pm.Model | None = None, var_names: Sequence[str] | None = None, **others: Any
    ) -> Any:
        refuse_chunks(pm.modelcontext(model), var_names)
        return function(trace, model=model, var_names=var_names, **others)

    return sample_posterior_predictive


def guard_chunks() -> None:
    """Set what models with rows in chunks need in PyMC's place."""
    wrap("sample_posterior_predictive", replicates_without_chunks)
    wrap("_mp_sample", in_turn_with_chunks)
    wrap("to_inference_data", with_drawn_clusters)


def guard() -> None:
    """Set these in PyMC's place, but for what :func:`guard_results` sets."""
    wrap("run_convergence_checks", checked_without_labels)
    wrap("_choose_chains", told_of_interrupted_tuning)
    wrap("_sample", told_of_interrupted_chain)
    wrap("init_traces", told_of_large_labels)
    wrap("find_MAP", mode_given_labels)


def guard_results() -> None:
    """Set the log likelihood in PyMC's place: once there is a mixture, because PyMC imports ArviZ for it."""
    wrap("compute_log_density", log_density_by_row)
