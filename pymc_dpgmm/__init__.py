"""Dirichlet process mixtures in PyMC models, never truncated."""

from pymc.distributions.distribution import _support_point
from pymc.logprob.abstract import _logprob
from pymc.step_methods import STEP_METHODS

from pymc_dpgmm import datasets
from pymc_dpgmm import distributions as _distributions
from pymc_dpgmm.distributions import CRP, MFM, CollapsedMixture, FiniteDirichlet, PitmanYor
from pymc_dpgmm.families import (
    BaseMeasure,
    BetaBernoulli,
    BetaBinomial,
    DirichletCategorical,
    DirichletMultinomial,
    GammaPoisson,
    LinearRegression,
    NormalInverseGamma,
    NormalInverseWishart,
    SphericalNormalInverseGamma,
)
from pymc_dpgmm.mixture import DPMixture, FiniteMixture, MFMixture, PYMixture
from pymc_dpgmm.plots import (
    plot_clusters,
    plot_co_clustering,
    plot_density,
    plot_n_clusters,
    plot_sensitivity,
    plot_sizes,
)
from pymc_dpgmm.posterior import (
    co_clustering,
    component_draws,
    credible_ball,
    density,
    log_likelihood,
    membership,
    n_clusters,
    partition_diagnostics,
    point_partition,
    sample_new_rows,
    sensitivity,
    summary,
)
from pymc_dpgmm.resume import ResumableRun
from pymc_dpgmm.steps import CollapsedGibbs, ConcentrationGibbs, DPMixtureStep, SplitMerge
from pymc_dpgmm.thinned import ThinnedLabels

__version__ = "0.1.0"

__all__ = [
    "CRP",
    "MFM",
    "BaseMeasure",
    "BetaBernoulli",
    "BetaBinomial",
    "CollapsedGibbs",
    "CollapsedMixture",
    "ConcentrationGibbs",
    "DPMixture",
    "DPMixtureStep",
    "DirichletCategorical",
    "DirichletMultinomial",
    "FiniteDirichlet",
    "FiniteMixture",
    "GammaPoisson",
    "LinearRegression",
    "MFMixture",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "PYMixture",
    "PitmanYor",
    "ResumableRun",
    "SphericalNormalInverseGamma",
    "SplitMerge",
    "ThinnedLabels",
    "co_clustering",
    "component_draws",
    "credible_ball",
    "datasets",
    "density",
    "log_likelihood",
    "membership",
    "n_clusters",
    "partition_diagnostics",
    "plot_clusters",
    "plot_co_clustering",
    "plot_density",
    "plot_n_clusters",
    "plot_sensitivity",
    "plot_sizes",
    "point_partition",
    "sample_new_rows",
    "sensitivity",
    "summary",
]

_logprob.register(_distributions.CollapsedMixtureRV)(_distributions.mixture_logp)
_logprob.register(_distributions.MissingEntriesRV)(_distributions.missing_logp)
_support_point.register(_distributions.MissingEntriesRV)(_distributions.missing_support_point)
_support_point.register(_distributions.CollapsedMixtureRV)(_distributions.mixture_support_point)
_support_point.register(_distributions.PartitionRV)(_distributions.partition_support_point)
for _step in (DPMixtureStep, ConcentrationGibbs):
    if _step not in STEP_METHODS:
        STEP_METHODS.append(_step)
