"""Replacements of functions of PyMC, and compiled versions of the package's operations for PyTensor's backends."""
