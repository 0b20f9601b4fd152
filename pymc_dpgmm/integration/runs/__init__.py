"""Runs that can be interrupted and continued, and thinned draws."""
