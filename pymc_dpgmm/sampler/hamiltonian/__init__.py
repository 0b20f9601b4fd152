"""Hamiltonian moves of numbers whose log density and gradient are at an address."""
