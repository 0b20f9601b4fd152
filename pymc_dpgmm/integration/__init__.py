"""What PyMC and PyTensor see of mixtures."""
