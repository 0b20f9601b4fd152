"""Variational inference for mixtures, as numbers: what it computes, and why, is in ``docs/variational.md``."""
