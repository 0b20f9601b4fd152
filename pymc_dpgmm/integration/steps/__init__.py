"""PyMC step methods: read the point, call a kernel, write the point."""

from pymc_dpgmm.integration.steps.atoms import DirichletProcessStep
from pymc_dpgmm.integration.steps.components import ComponentsGibbs
from pymc_dpgmm.integration.steps.concentration import ConcentrationGibbs
from pymc_dpgmm.integration.steps.mixture_steps import CollapsedGibbs, DPMixtureStep, SplitMerge

__all__ = [
    "CollapsedGibbs",
    "ComponentsGibbs",
    "ConcentrationGibbs",
    "DPMixtureStep",
    "DirichletProcessStep",
    "SplitMerge",
]
