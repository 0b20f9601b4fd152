"""Moves of rows in groups, and of words in topics."""
