"""Variational inference for mixtures in PyMC models."""

from pymc_dpgmm.variational.model.answer import VariationalFit
from pymc_dpgmm.variational.model.fit import fit

__all__ = ["VariationalFit", "fit"]
