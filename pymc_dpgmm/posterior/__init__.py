"""What is done with draws after sampling: numbers below, labelled xarray objects above."""

from pymc_dpgmm.posterior.co_clustering import co_clustering
from pymc_dpgmm.posterior.credible_ball import credible_ball
from pymc_dpgmm.posterior.diagnostics import partition_diagnostics
from pymc_dpgmm.posterior.point_partition import point_partition

__all__ = ["co_clustering", "credible_ball", "partition_diagnostics", "point_partition"]
