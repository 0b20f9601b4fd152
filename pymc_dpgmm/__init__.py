"""Dirichlet process mixtures in PyMC models, never truncated."""

import importlib
from typing import TYPE_CHECKING, Any

from pymc_dpgmm import datasets
from pymc_dpgmm.families import (
    BaseMeasure,
    BetaBernoulli,
    BetaBinomial,
    BetaNegativeBinomial,
    DirichletCategorical,
    DirichletMultinomial,
    GammaExponential,
    GammaGamma,
    GammaPoisson,
    LinearRegression,
    NormalInverseGamma,
    NormalInverseWishart,
    NormalKnownCovariance,
    NormalKnownVariance,
    SharedCovariance,
    SphericalNormalInverseGamma,
    VonMises,
)
from pymc_dpgmm.families.default_views import default_views
from pymc_dpgmm.integration.registration import register as _register
from pymc_dpgmm.integration.runs.resume import ResumableRun
from pymc_dpgmm.integration.runs.thinned import ThinnedLabels
from pymc_dpgmm.integration.steps import (
    CollapsedGibbs,
    ComponentsGibbs,
    ConcentrationGibbs,
    DirichletProcessStep,
    DPMixtureStep,
    SplitMerge,
)
from pymc_dpgmm.integration.variables import CRP, MFM, CollapsedMixture, FiniteDirichlet, PitmanYor
from pymc_dpgmm.models.mixture import (
    LDA,
    DPMixture,
    FiniteMixture,
    HDPMixture,
    MFMixture,
    PYMixture,
)
from pymc_dpgmm.models.ordered import HDPHMM, ChangePoints
from pymc_dpgmm.models.process import DirichletProcess
from pymc_dpgmm.tables.tokens import as_tokens

if TYPE_CHECKING:
    from pymc_dpgmm import posterior as posterior
    from pymc_dpgmm.posterior import (
        certainty,
        chain_differences,
        change_points,
        chunked_labels,
        chunked_membership,
        co_clustering,
        component_draws,
        contrast,
        credible_ball,
        density,
        dependence,
        functional,
        group_weights,
        held_out_log_likelihood,
        hidden_states,
        impute,
        leave_future_out,
        log_density,
        log_likelihood,
        membership,
        n_clusters,
        new_units,
        partition_diagnostics,
        point_partition,
        predict,
        relevance,
        row_parameters,
        sample_new_rows,
        sample_replicates,
        sensitivity,
        summary,
        topics,
        transitions,
    )
    from pymc_dpgmm.posterior.plots.changes import plot_changes
    from pymc_dpgmm.posterior.plots.clusters import plot_clusters
    from pymc_dpgmm.posterior.plots.densities import plot_density
    from pymc_dpgmm.posterior.plots.groups import plot_group_weights, plot_groups, plot_topics
    from pymc_dpgmm.posterior.plots.partitions import (
        plot_chains,
        plot_co_clustering,
        plot_n_clusters,
        plot_sensitivity,
        plot_sizes,
    )
    from pymc_dpgmm.posterior.plots.predictions import plot_predict
    from pymc_dpgmm.posterior.plots.relevance import plot_relevance
    from pymc_dpgmm.posterior.plots.states import plot_states, plot_transitions
    from pymc_dpgmm.variational.model import VariationalFit, fit

__version__ = "0.1.0"

__all__ = [
    "CRP",
    "HDPHMM",
    "LDA",
    "MFM",
    "BaseMeasure",
    "BetaBernoulli",
    "BetaBinomial",
    "BetaNegativeBinomial",
    "ChangePoints",
    "CollapsedGibbs",
    "CollapsedMixture",
    "ComponentsGibbs",
    "ConcentrationGibbs",
    "DPMixture",
    "DPMixtureStep",
    "DirichletCategorical",
    "DirichletMultinomial",
    "DirichletProcess",
    "DirichletProcessStep",
    "FiniteDirichlet",
    "FiniteMixture",
    "GammaExponential",
    "GammaGamma",
    "GammaPoisson",
    "HDPMixture",
    "LinearRegression",
    "MFMixture",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "NormalKnownCovariance",
    "NormalKnownVariance",
    "PYMixture",
    "PitmanYor",
    "ResumableRun",
    "SharedCovariance",
    "SphericalNormalInverseGamma",
    "SplitMerge",
    "ThinnedLabels",
    "VariationalFit",
    "VonMises",
    "as_tokens",
    "certainty",
    "chain_differences",
    "change_points",
    "chunked_labels",
    "chunked_membership",
    "co_clustering",
    "component_draws",
    "contrast",
    "credible_ball",
    "datasets",
    "default_views",
    "density",
    "dependence",
    "fit",
    "functional",
    "group_weights",
    "held_out_log_likelihood",
    "hidden_states",
    "impute",
    "leave_future_out",
    "log_density",
    "log_likelihood",
    "membership",
    "n_clusters",
    "new_units",
    "partition_diagnostics",
    "plot_chains",
    "plot_changes",
    "plot_clusters",
    "plot_co_clustering",
    "plot_density",
    "plot_group_weights",
    "plot_groups",
    "plot_n_clusters",
    "plot_predict",
    "plot_relevance",
    "plot_sensitivity",
    "plot_sizes",
    "plot_states",
    "plot_topics",
    "plot_transitions",
    "point_partition",
    "predict",
    "relevance",
    "row_parameters",
    "sample_new_rows",
    "sample_replicates",
    "sensitivity",
    "summary",
    "topics",
    "transitions",
]

# What is done after sampling, or in place of it, is imported when it is first asked for: ArviZ and what it imports
# take longer than all the rest.
_MODULES = {
    "VariationalFit": "variational.model",
    "fit": "variational.model",
}


def __getattr__(name: str) -> Any:
    """Import what is done after sampling (PEP 562)."""
    if name == "posterior":
        return importlib.import_module(f"{__name__}.posterior")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    plots = name.startswith("plot_")
    module = _MODULES.get(name, "posterior.plots" if plots else "posterior")
    # Kept, so that this function is asked once for each name.
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    """Return all names, also of what is not imported yet."""
    return sorted({*globals(), *__all__, "posterior"})


_register()
