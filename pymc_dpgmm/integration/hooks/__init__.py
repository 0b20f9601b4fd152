"""Everything that touches the inside of PyMC, PyTensor and numba."""
