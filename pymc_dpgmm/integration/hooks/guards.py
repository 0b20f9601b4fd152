"""Guards of functions of PyMC that would silently give wrong answers, or lose draws, for models with labels."""

import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.integration.hooks.convergence import checked_without_labels
from pymc_dpgmm.integration.internals.pymc_internals import sample_in_turn, wrap
from pymc_dpgmm.integration.steps.assignment import assigned, drawn_with_labels
from pymc_dpgmm.integration.steps.chunked import ChunkedStep, with_clusters
from pymc_dpgmm.integration.steps.compilation import begin_to_compile
from pymc_dpgmm.integration.steps.labels import LabelsStep
from pymc_dpgmm.integration.steps.mixture_steps import DPMixtureStep
from pymc_dpgmm.integration.steps.partition_step import PartitionStep
from pymc_dpgmm.integration.variables import CollapsedMixtureRV, LabelsRV, mixture_inputs
from pymc_dpgmm.integration.variables.chunked_partition import chunked_names
from pymc_dpgmm.integration.variables.lengths import check_lengths
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


def log_density_by_row(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's pointwise log likelihood, with that of :func:`pymc_dpgmm.log_likelihood` for mixtures.

    PyMC has one number for a mixture, the log density of all rows together, which ``az.loo`` would treat as a
    single observation.
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
        options = {"model": model, "kind": kind, **others}
        observed = [rv.name for rv in model.observed_RVs]
        mixtures = {rv.name for rv in model.observed_RVs if isinstance(rv.owner.op, CollapsedMixtureRV)}
        wanted = observed if var_names is None else list(var_names)
        if kind != "likelihood" or not mixtures.intersection(wanted):
            return function(idata, var_names=var_names, extend_inferencedata=extend_inferencedata, **options)
        from pymc_dpgmm.posterior import log_likelihood

        rest = [name for name in wanted if name not in mixtures]
        densities = xr.Dataset()
        if rest:
            densities = function(idata, var_names=rest, extend_inferencedata=False, **options)
        for name in wanted:
            if name not in mixtures:
                continue
            try:
                by_row = log_likelihood(idata, name, extend_inferencedata=False, random_seed=0, model=model)
            except ValueError as error:
                # An error would lose the draws if pm.sample computes the log likelihood of everything.
                if var_names is not None:
                    raise
                warnings.warn(f"the log likelihood of {name} is left out: {error}", UserWarning, stacklevel=3)
            else:
                densities = densities.merge(by_row["log_likelihood"].to_dataset())
        if not extend_inferencedata:
            return densities
        idata["log_likelihood"] = xr.DataTree(densities)
        return idata

    return compute_log_density


def mode_given_labels(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``pm.find_MAP`` that refuses to hold labels at a random start."""

    def find_map(
        *args: Any, model: pm.Model | None = None, initvals: Mapping[Any, Any] | None = None, **kwargs: Any
    ) -> Any:
        in_chunks = chunked_names(pm.modelcontext(model))
        if in_chunks:
            raise ValueError(
                f"find_MAP would not change the partition behind {', '.join(in_chunks)}: use pm.sample, and "
                "dp.chunked_membership for one clustering"
            )
        labels = [rv.name for rv in pm.modelcontext(model).free_RVs if isinstance(rv.owner.op, LabelsRV)]
        started = {getattr(key, "name", key) for key in initvals or {}}
        unknown = [name for name in labels if name not in started]
        if unknown:
            raise ValueError(
                f"find_MAP optimises continuous variables only and would hold {', '.join(unknown)} at a random "
                "start. For one clustering, draw from the posterior with pm.sample and call dp.point_partition; "
                f'for the mode given a partition, pass it: initvals={{"{unknown[0]}": labels}}'
            )
        return function(*args, model=model, initvals=initvals, **kwargs)

    return find_map


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


def compiled_meanwhile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's assignment of steps, which begins to compile what the step of labels will call."""

    def assign_step_methods(model: pm.Model, step: Any = None, *others: Any, **named: Any) -> Any:
        if step is None:
            begin_to_compile(model)
        return function(model, step, *others, **named)

    return assign_step_methods


def with_step_of_labels(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's making of steps, in which hyperparameters and latent rows go to the labels' step or to NUTS.

    PyMC assigns variables before it looks at options. A model in which NUTS has nothing to do ignores its options.
    """

    def instantiate_steppers(
        model: pm.Model, steps: Any, selected_steps: Any, *, step_kwargs: Any = None, **others: Any
    ) -> Any:
        if selected_steps.get(DPMixtureStep) or drawn_with_labels(model):
            options = dict(step_kwargs or {})
            chosen = dict(options.get(DPMixtureStep.name) or {})
            selected_steps = assigned(model, selected_steps, chosen, DPMixtureStep)
            if "nuts" in options and not selected_steps.get(pm.NUTS):
                logger.info(
                    "NUTS has nothing to sample in this model: its options, such as target_accept, are ignored."
                )
                del options["nuts"]
            step_kwargs = options
        return function(model, steps, selected_steps, step_kwargs=step_kwargs, **others)

    return instantiate_steppers


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


def telling_each_other(function: Callable[..., Any], n_together: int, arguments: dict[str, Any]) -> None:
    """Sample all chains, which tell each other the best partition that each one's search has found."""
    methods = [method for method in _methods(arguments["step"]) if isinstance(method, LabelsStep)]
    if not methods or arguments["chains"] == 1:
        function(**arguments)
        return
    with tempfile.TemporaryDirectory(prefix="pymc_dpgmm-") as folder:
        for method in methods:
            method.exchange = Exchange(folder, n_together)
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


def with_drawn_clusters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's conversion of draws, which also keeps the clusters that labels of chunks are computed from."""

    def to_inference_data(trace: Any = None, **others: Any) -> Any:
        idata = function(trace, **others)
        return idata if trace is None else with_clusters(idata)

    return to_inference_data


def refuse_chunks(model: pm.Model, var_names: Sequence[str] | None) -> None:
    """Raise NotImplementedError if all observed variables are requested, and rows are in chunks."""
    in_chunks = chunked_names(model)
    if in_chunks and var_names is None:
        raise NotImplementedError(
            f"the rows behind {', '.join(in_chunks)} are in chunks, and no variable of the model: they have no "
            "replicates and no pointwise log likelihoods. Use dp.sample_new_rows to draw new rows, and dp.density "
            "for the posterior density. For other variables pass var_names"
        )


def replicates_without_chunks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's posterior predictive sampling, which refuses rows in chunks."""

    def sample_posterior_predictive(
        trace: Any, model: pm.Model | None = None, var_names: Sequence[str] | None = None, **others: Any
    ) -> Any:
        refuse_chunks(pm.modelcontext(model), var_names)
        return function(trace, model=model, var_names=var_names, **others)

    return sample_posterior_predictive


def replicates_of_rows_alike(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's posterior predictive sampling, which names the arguments that have other numbers of rows."""

    def sample_posterior_predictive(trace: Any, model: pm.Model | None = None, *others: Any, **named: Any) -> Any:
        for rv in pm.modelcontext(model).basic_RVs:
            if isinstance(rv.owner.op, CollapsedMixtureRV):
                check_lengths(rv, mixture_inputs(rv).labels)
        return function(trace, model, *others, **named)

    return sample_posterior_predictive


def guard_chunks() -> None:
    """Wrap the functions of PyMC that are wrong for rows in chunks."""
    wrap("sample_posterior_predictive", replicates_without_chunks)
    wrap("_mp_sample", in_turn_with_chunks)
    wrap("to_inference_data", with_drawn_clusters)


def guard() -> None:
    """Wrap the functions of PyMC that are wrong for labels, except that of :func:`guard_results`."""
    wrap("run_convergence_checks", checked_without_labels)
    wrap("_choose_chains", told_of_interrupted_tuning)
    wrap("assign_step_methods", compiled_meanwhile)
    wrap("instantiate_steppers", with_step_of_labels)
    wrap("_sample", told_of_interrupted_chain)
    wrap("_sample_many", in_turn_telling_each_other)
    wrap("_mp_sample", together_telling_each_other)
    wrap("init_traces", told_of_large_labels)
    wrap("find_MAP", mode_given_labels)
    wrap("sample_posterior_predictive", replicates_of_rows_alike)


def guard_results() -> None:
    """Wrap PyMC's log likelihood. This is done at the first mixture, because PyMC imports ArviZ for it."""
    wrap("compute_log_density", log_density_by_row)
