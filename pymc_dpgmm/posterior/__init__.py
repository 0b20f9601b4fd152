"""Analysis of draws after sampling. The functions here label with xarray what :mod:`.arrays` computes."""

from pymc_dpgmm.posterior.certainty import certainty
from pymc_dpgmm.posterior.chains import chain_differences
from pymc_dpgmm.posterior.change_points import change_points
from pymc_dpgmm.posterior.chunked import chunked_labels, chunked_membership
from pymc_dpgmm.posterior.co_clustering import co_clustering
from pymc_dpgmm.posterior.component_draws import component_draws, row_parameters
from pymc_dpgmm.posterior.contrast import contrast
from pymc_dpgmm.posterior.credible_ball import credible_ball
from pymc_dpgmm.posterior.density import density, membership
from pymc_dpgmm.posterior.dependence import dependence, log_density, relevance
from pymc_dpgmm.posterior.diagnostics import partition_diagnostics
from pymc_dpgmm.posterior.functional import functional
from pymc_dpgmm.posterior.hidden_states import hidden_states, transitions
from pymc_dpgmm.posterior.impute import impute
from pymc_dpgmm.posterior.leave_future_out import leave_future_out
from pymc_dpgmm.posterior.log_likelihood import log_likelihood, sample_replicates
from pymc_dpgmm.posterior.n_clusters import n_clusters
from pymc_dpgmm.posterior.new_rows import sample_new_rows
from pymc_dpgmm.posterior.new_units import new_units
from pymc_dpgmm.posterior.point_partition import point_partition
from pymc_dpgmm.posterior.predict import predict
from pymc_dpgmm.posterior.sensitivity import sensitivity
from pymc_dpgmm.posterior.summary import MixtureSummary, summary
from pymc_dpgmm.posterior.topics import group_weights, held_out_log_likelihood, topics

__all__ = [
    "MixtureSummary",
    "certainty",
    "chain_differences",
    "change_points",
    "chunked_labels",
    "chunked_membership",
    "co_clustering",
    "component_draws",
    "contrast",
    "credible_ball",
    "density",
    "dependence",
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
