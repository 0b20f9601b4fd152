"""PyMC step methods: read the point, call a kernel, write the point."""

from pymc_dpgmm.steps.atoms import DirichletProcessStep
from pymc_dpgmm.steps.components import ComponentsGibbs
from pymc_dpgmm.steps.concentration import ConcentrationGibbs
from pymc_dpgmm.steps.labels import CollapsedGibbs, DPMixtureStep, SplitMerge

__all__ = [
    "CollapsedGibbs",
    "ComponentsGibbs",
    "ConcentrationGibbs",
    "DPMixtureStep",
    "DirichletProcessStep",
    "SplitMerge",
]
