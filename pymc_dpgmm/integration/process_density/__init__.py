"""What the density of a model says of rows and atoms: between random variables and step methods."""

from pymc_dpgmm.integration.process_density.atom_densities import AtomDensities
from pymc_dpgmm.integration.process_density.hints import family_for
from pymc_dpgmm.integration.process_density.process_model import ProcessModel
from pymc_dpgmm.integration.process_density.row_terms import RowTerms, SharedTermError

__all__ = ["AtomDensities", "ProcessModel", "RowTerms", "SharedTermError", "family_for"]
