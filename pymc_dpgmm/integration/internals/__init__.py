"""Internals of PyMC that the package uses, and actions that wait for the first variable of the package."""
