"""How code is compiled, stamped and kept, and the arithmetic of compiled code."""
