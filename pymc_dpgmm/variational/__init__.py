"""Variational inference for mixtures, on arrays. ``docs/variational.md`` explains the method."""
