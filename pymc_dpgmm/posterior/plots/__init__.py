"""Plots of what is asked after sampling. They need matplotlib."""

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

__all__ = [
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
]
