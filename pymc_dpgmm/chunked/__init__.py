"""Rows in chunks that need not fit into memory, or on one machine: the partition, and passes over the chunks."""
