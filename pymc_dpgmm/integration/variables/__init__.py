"""Random variables and operations of mixtures for PyMC and PyTensor, and their log densities."""

from pymc_dpgmm.integration.variables.collapsed_mixture import (
    CollapsedMixture,
    CollapsedMixtureRV,
    is_plain_mixture,
    mixture_logp,
    mixture_support_point,
    mixture_values,
)
from pymc_dpgmm.integration.variables.layout import mixture_inputs, of_units
from pymc_dpgmm.integration.variables.missing_entries import MissingEntriesRV, missing_logp, missing_support_point
from pymc_dpgmm.integration.variables.models import dependents
from pymc_dpgmm.integration.variables.operations import LabelsRV, SparseValues, as_numbers, partition_sizes
from pymc_dpgmm.integration.variables.partition_operations import CRPRV, PartitionRV, partition_support_point
from pymc_dpgmm.integration.variables.partition_priors import CRP, MFM, FiniteDirichlet, PitmanYor
from pymc_dpgmm.integration.variables.registered_labels import constraints_on, fixed_rows, prior_parameters
from pymc_dpgmm.integration.variables.snapshots import note_sampling

__all__ = [
    "CRP",
    "CRPRV",
    "MFM",
    "CollapsedMixture",
    "CollapsedMixtureRV",
    "FiniteDirichlet",
    "LabelsRV",
    "MissingEntriesRV",
    "PartitionRV",
    "PitmanYor",
    "SparseValues",
    "as_numbers",
    "constraints_on",
    "dependents",
    "fixed_rows",
    "is_plain_mixture",
    "missing_logp",
    "missing_support_point",
    "mixture_inputs",
    "mixture_logp",
    "mixture_support_point",
    "mixture_values",
    "note_sampling",
    "of_units",
    "partition_sizes",
    "partition_support_point",
    "prior_parameters",
]
