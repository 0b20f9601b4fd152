"""Moves of the parameters of clusters under any likelihood."""
