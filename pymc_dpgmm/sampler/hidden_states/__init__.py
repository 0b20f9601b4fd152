"""Draws of hidden states: rows in order, each of whose states depends on the one before."""
