"""Exact draws of segmentations of rows in order."""
