"""Priors on partitions, and what is known of a partition."""
