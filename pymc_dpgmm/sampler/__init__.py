"""Compiled kernels: a random generator, a prior and a state in, a state out."""
