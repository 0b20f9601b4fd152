"""Integration with PyMC and PyTensor: random variables, step methods, runs, and guards of PyMC's functions."""
