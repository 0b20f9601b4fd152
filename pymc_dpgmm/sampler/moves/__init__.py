"""Moves that change labels, one in a file."""
