"""What takes the place of functions of PyMC, and how PyTensor's backends evaluate the package's operations."""
