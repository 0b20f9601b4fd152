"""What is taken from inside PyMC, and what others register here."""
