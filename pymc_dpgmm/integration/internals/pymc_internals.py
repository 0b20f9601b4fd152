"""Everything that this package uses of PyMC beyond its public names.

``tests/integration/internals/test_internals.py`` fails if PyMC changes one of these, or if another module uses
internals of PyMC.
"""

import functools
import importlib
import multiprocessing
import re
from collections.abc import Callable
from typing import Any

from pymc.backends.base import MultiTrace
from pymc.backends.ndarray import NDArray
from pymc.distributions.censored import CensoredRV
from pymc.distributions.distribution import DiracDeltaRV, SymbolicRandomVariable
from pymc.distributions.distribution import _support_point as support_point
from pymc.distributions.mixture import MixtureRV
from pymc.distributions.shape_utils import change_dist_size
from pymc.distributions.transforms import CircularTransform
from pymc.distributions.transforms import _default_transform as default_transform
from pymc.initial_point import make_initial_point_fns_per_chain
from pymc.logprob.abstract import _logprob as logprob
from pymc.logprob.transforms import LogTransform
from pymc.logprob.utils import CheckParameterValue
from pymc.printing import _str_for_input_var as str_for_input
from pymc.pytensorf import collect_default_updates, constant_fold, rewrite_pregrad
from pymc.sampling.mcmc import assign_step_methods, instantiate_steppers
from pymc.stats.convergence import SamplerWarning, WarningType, log_warnings
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, Competence, CompoundStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_value_vars_from_user_vars

__all__ = [
    "JOINED_INPUTS",
    "REGISTRIES",
    "STEP_METHODS",
    "BlockedStep",
    "CensoredRV",
    "CheckParameterValue",
    "CircularTransform",
    "Competence",
    "CompoundStep",
    "DiracDeltaRV",
    "LogTransform",
    "MixtureRV",
    "MultiTrace",
    "NDArray",
    "SamplerWarning",
    "StepMethodState",
    "SymbolicRandomVariable",
    "WarningType",
    "assign_step_methods",
    "chain_of_process",
    "change_dist_size",
    "collect_default_updates",
    "constant_fold",
    "dataclass_state",
    "default_transform",
    "get_value_vars_from_user_vars",
    "instantiate_steppers",
    "log_convergence",
    "logprob",
    "make_initial_point_fns_per_chain",
    "rewrite_pregrad",
    "sample_in_turn",
    "str_for_input",
    "support_point",
    "wrap",
]

# Attributes in which a model registers variables, data and dimensions.
REGISTRIES = (
    "named_vars",
    "free_RVs",
    "observed_RVs",
    "deterministics",
    "potentials",
    "data_vars",
    "values_to_rvs",
    "rvs_to_values",
    "rvs_to_transforms",
    "rvs_to_initial_values",
    "named_vars_to_dims",
    "_coords",
    "_dim_lengths",
)

# The name of the vector into which PyMC joins the variables that one of its generic steps moves.
JOINED_INPUTS = "joined_inputs"


# Functions of PyMC that this package may wrap, and the modules in which PyMC looks them up when they are called.
WRAPPED = {
    "run_convergence_checks": ("pymc.sampling.mcmc",),
    "_choose_chains": ("pymc.sampling.mcmc",),
    # This module too, from which interrupted runs take them.
    "assign_step_methods": ("pymc.sampling.mcmc", __name__),
    "instantiate_steppers": ("pymc.sampling.mcmc", __name__),
    "init_traces": ("pymc.sampling.mcmc",),
    "compute_log_density": ("pymc.stats.log_density",),
    "find_MAP": ("pymc", "pymc.tuning", "pymc.tuning.starting"),
    "_mp_sample": ("pymc.sampling.mcmc",),
    "_sample": ("pymc.sampling.mcmc",),
    "_sample_many": ("pymc.sampling.mcmc",),
    "to_inference_data": ("pymc", "pymc.backends", "pymc.backends.arviz"),
    "sample_posterior_predictive": ("pymc", "pymc.sampling", "pymc.sampling.forward"),
    "observe": ("pymc", "pymc.model.transform", "pymc.model.transform.conditioning"),
    "do": ("pymc", "pymc.model.transform", "pymc.model.transform.conditioning"),
    "str_for_dist": ("pymc.printing",),
    "str_for_model": ("pymc.printing",),
}


def wrap(name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function of PyMC by a wrapped version, at most once.

    PyMC has no hooks for these functions.

    Parameters
    ----------
    name : str
        Key of ``WRAPPED``.
    wrapper : callable
    """
    first, *_ = modules = [importlib.import_module(module) for module in WRAPPED[name]]
    function = getattr(first, name)
    inner = function
    while inner is not None:
        if getattr(inner, "wrapped_by", None) is wrapper:
            return
        inner = getattr(inner, "__wrapped__", None)
    wrapped = functools.wraps(function)(wrapper(function))
    wrapped.wrapped_by = wrapper  # type: ignore[attr-defined]
    for module in modules:
        setattr(module, name, wrapped)


def chain_of_process() -> int | None:
    """Return the number of the chain that PyMC samples in this process, None in the one that began the others."""
    found = re.fullmatch(r"worker_chain_(\d+)", multiprocessing.current_process().name)
    return None if found is None else int(found[1])


def sample_in_turn(**arguments: Any) -> None:
    """Sample chains one after the other, with the arguments of PyMC's sampling in several processes."""
    serial = {key: value for key, value in arguments.items() if key not in ("mp_ctx", "blas_cores")}
    importlib.import_module("pymc.sampling.mcmc")._sample_many(**serial)


def log_convergence(idata: Any, model: Any) -> None:
    """Log the convergence warnings of ``pm.sample``."""
    # Looked up at the time of the call, since the function may have been wrapped.
    log_warnings(importlib.import_module("pymc.sampling.mcmc").run_convergence_checks(idata, model))
