"""Everything that this package takes from PyMC beyond its public names.

``tests/test_internals.py`` fails where PyMC changes one of these, and where another module looks inside PyMC.
"""

from collections.abc import Callable
from typing import Any

from pymc.backends.base import MultiTrace
from pymc.backends.ndarray import NDArray
from pymc.distributions.distribution import _support_point as support_point
from pymc.initial_point import make_initial_point_fns_per_chain
from pymc.logprob.abstract import _logprob as logprob
from pymc.logprob.transforms import LogTransform
from pymc.sampling import mcmc
from pymc.sampling.mcmc import assign_step_methods, instantiate_steppers
from pymc.stats.convergence import SamplerWarning, WarningType
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, Competence, CompoundStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_value_vars_from_user_vars

__all__ = [
    "JOINED_INPUTS",
    "REGISTRIES",
    "STEP_METHODS",
    "BlockedStep",
    "Competence",
    "CompoundStep",
    "LogTransform",
    "MultiTrace",
    "NDArray",
    "SamplerWarning",
    "StepMethodState",
    "WarningType",
    "assign_step_methods",
    "dataclass_state",
    "get_value_vars_from_user_vars",
    "instantiate_steppers",
    "logprob",
    "make_initial_point_fns_per_chain",
    "support_point",
    "wrap_convergence_check",
]

# What a model registers variables, data and dimensions in.
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


def wrap_convergence_check(wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Let ``pm.sample`` call, in place of its own check of convergence, what a wrapper makes of it; once only.

    PyMC has no hook for this: its check takes all free variables that have been stored.
    """
    if getattr(mcmc.run_convergence_checks, "wrapped_by", None) is not wrapper:
        wrapped = wrapper(mcmc.run_convergence_checks)
        wrapped.wrapped_by = wrapper  # type: ignore[attr-defined]
        mcmc.run_convergence_checks = wrapped
