"""PyMC step methods: read the point, call a kernel, write the point."""

from pymc_dpgmm.steps.atoms import DirichletProcessStep
from pymc_dpgmm.steps.concentration import ConcentrationGibbs
from pymc_dpgmm.steps.labels import CollapsedGibbs, DPMixtureStep, SplitMerge

__all__ = ["CollapsedGibbs", "ConcentrationGibbs", "DPMixtureStep", "DirichletProcessStep", "SplitMerge"]
