"""Dirichlet process mixtures in PyMC models, never truncated."""

from pymc.distributions.distribution import _support_point
from pymc.logprob.abstract import _logprob
from pymc.step_methods import STEP_METHODS

from pymc_dpgmm import datasets
from pymc_dpgmm import distributions as _distributions
from pymc_dpgmm.distributions import CRP, CollapsedMixture
from pymc_dpgmm.families import BaseMeasure, NormalInverseGamma, NormalInverseWishart
from pymc_dpgmm.mixture import DPMixture
from pymc_dpgmm.resume import ResumableRun
from pymc_dpgmm.steps import CollapsedGibbs, ConcentrationGibbs, DPMixtureStep, SplitMerge
from pymc_dpgmm.thinned import ThinnedLabels

__version__ = "0.1.0"

__all__ = [
    "CRP",
    "BaseMeasure",
    "CollapsedGibbs",
    "CollapsedMixture",
    "ConcentrationGibbs",
    "DPMixture",
    "DPMixtureStep",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "ResumableRun",
    "SplitMerge",
    "ThinnedLabels",
    "datasets",
]

_logprob.register(_distributions.CollapsedMixtureRV)(_distributions._mixture_logp)
_support_point.register(_distributions.CollapsedMixtureRV)(_distributions._mixture_support_point)
for _step in (DPMixtureStep, ConcentrationGibbs):
    if _step not in STEP_METHODS:
        STEP_METHODS.append(_step)
