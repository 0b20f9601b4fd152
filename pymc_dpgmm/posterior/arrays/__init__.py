"""Numbers of draws after sampling: NumPy arrays in, NumPy arrays out, without names or coordinates."""
