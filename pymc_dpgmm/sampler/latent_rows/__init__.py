"""Rows that are no data: drawn with their labels, given what the rest of a model says of each row."""
