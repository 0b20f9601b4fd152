"""Variational inference for mixtures in PyMC models."""

from pymc_dpgmm.fitting.answer import VariationalFit
from pymc_dpgmm.fitting.fit import fit

__all__ = ["VariationalFit", "fit"]
