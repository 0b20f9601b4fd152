"""Sweeps of many rows at once."""
