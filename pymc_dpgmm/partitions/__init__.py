"""Priors on partitions, and constraints on a partition."""
