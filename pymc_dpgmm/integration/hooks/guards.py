"""Which functions of PyMC are wrapped, and those that would give wrong answers for models with labels.

``chains.py`` and ``steps.py`` beside this file have what samples chains and makes steps.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dpgmm.integration.hooks.chains import (
    in_turn_telling_each_other,
    in_turn_with_chunks,
    together_telling_each_other,
    told_of_interrupted_chain,
    told_of_interrupted_tuning,
    told_of_large_labels,
)
from pymc_dpgmm.integration.hooks.convergence import checked_without_labels
from pymc_dpgmm.integration.hooks.steps import assigned_with_labels, compiling_meanwhile
from pymc_dpgmm.integration.internals.pymc_internals import wrap
from pymc_dpgmm.integration.steps.chunked import with_clusters
from pymc_dpgmm.integration.variables import CollapsedMixtureRV, LabelsRV, mixture_inputs
from pymc_dpgmm.integration.variables.chunked_partition import chunked_names
from pymc_dpgmm.integration.variables.lengths import check_lengths
from pymc_dpgmm.integration.variables.snapshots import refuse_changes, snapshot
from pymc_dpgmm.tables.checks import is_variable


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


def of_the_type_of_labels(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``pm.observe`` or ``pm.do``, which take labels of any type of integers."""

    def changed(model: pm.Model, values: Mapping[Any, Any], *others: Any, **named: Any) -> Any:
        return function(
            model, {key: _as_labels(model, key, value) for key, value in values.items()}, *others, **named
        )

    return changed


def _as_labels(model: pm.Model, key: Any, value: Any) -> Any:
    """Return labels that a variable of a model is fixed at in its own type; other values as they are."""
    rv = model.named_vars.get(key) if isinstance(key, str) else key
    if rv not in model.free_RVs or not isinstance(rv.owner.op, LabelsRV) or is_variable(value):
        return value
    labels = np.asarray(value)
    if labels.dtype.kind not in "iuf" or not np.all((labels == np.floor(labels)) & (labels >= 0)):
        raise TypeError(f"{rv.name} must be numbers of clusters, integers from 0 to n - 1, got {labels!r}")
    if labels.size and labels.max() >= labels.size:
        raise ValueError(f"{rv.name} must lie in 0..n-1 = 0..{labels.size - 1}, got {labels.max()}")
    return labels.astype(rv.dtype)


def with_drawn_clusters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyMC's conversion of draws, which also keeps the clusters that labels of chunks are computed from."""

    def to_inference_data(trace: Any = None, **others: Any) -> Any:
        idata = function(trace, **others)
        return idata if trace is None else with_clusters(idata)

    return to_inference_data


def stored_data(trace: Any) -> dict[str, np.ndarray]:
    """Return the data that are stored with draws, by name; nothing for draws without data."""
    groups = getattr(trace, "children", None) or {}
    datasets = (groups[name].dataset for name in ("constant_data", "observed_data") if name in groups)
    return {str(key): values.to_numpy() for dataset in datasets for key, values in dataset.items()}


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
    """Return PyMC's posterior predictive sampling, which names the arguments that have other numbers of rows.

    Data that differ from what is stored with the draws are refused too: labels are those of other rows.
    """

    def sample_posterior_predictive(trace: Any, model: pm.Model | None = None, *others: Any, **named: Any) -> Any:
        stored = stored_data(trace)
        for rv in pm.modelcontext(model).basic_RVs:
            if isinstance(rv.owner.op, CollapsedMixtureRV):
                inputs = mixture_inputs(rv)
                check_lengths(rv, inputs.labels)
                present = snapshot(inputs.in_order()).values
                known = {name: stored[name] for name in present if name in stored}
                refuse_changes({name: present[name] for name in known}, known, str(rv.name))
        return function(trace, model, *others, **named)

    return sample_posterior_predictive


def guard_chunks() -> None:
    """Wrap the functions of PyMC that are wrong for rows in chunks."""
    wrap("sample_posterior_predictive", replicates_without_chunks)
    wrap("_mp_sample", in_turn_with_chunks)
    wrap("to_inference_data", with_drawn_clusters)


def guard() -> None:
    """Wrap the functions of PyMC that are wrong for labels, except those of the other two functions here."""
    wrap("run_convergence_checks", checked_without_labels)
    wrap("_choose_chains", told_of_interrupted_tuning)
    wrap("assign_step_methods", compiling_meanwhile)
    wrap("instantiate_steppers", assigned_with_labels)
    wrap("_sample", told_of_interrupted_chain)
    wrap("_sample_many", in_turn_telling_each_other)
    wrap("_mp_sample", together_telling_each_other)
    wrap("init_traces", told_of_large_labels)
    wrap("find_MAP", mode_given_labels)
    wrap("sample_posterior_predictive", replicates_of_rows_alike)
    for name in ("observe", "do"):
        wrap(name, of_the_type_of_labels)


def guard_results() -> None:
    """Wrap PyMC's log likelihood. This is done at the first mixture, because PyMC imports ArviZ for it."""
    wrap("compute_log_density", log_density_by_row)
