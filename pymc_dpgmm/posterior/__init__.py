"""What is done with draws after sampling: numbers below, labelled xarray objects above."""

from pymc_dpgmm.posterior.co_clustering import co_clustering
from pymc_dpgmm.posterior.point_partition import point_partition

__all__ = ["co_clustering", "point_partition"]
