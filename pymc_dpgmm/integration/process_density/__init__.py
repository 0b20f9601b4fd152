"""Densities of rows and atoms that step methods need, derived from the log density of a model."""

from pymc_dpgmm.integration.process_density.atom_densities import AtomDensities
from pymc_dpgmm.integration.process_density.process_model import ProcessModel
from pymc_dpgmm.integration.process_density.row_terms import RowTerms, SharedTermError

__all__ = ["AtomDensities", "ProcessModel", "RowTerms", "SharedTermError"]
