"""Rows in chunks that need not be in memory, or on one machine: what is sent to them, and what comes back."""
