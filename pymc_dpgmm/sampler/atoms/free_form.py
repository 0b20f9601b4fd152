"""Atoms in free form: unbounded numbers, and discrete values."""

from typing import NamedTuple

import numpy as np


class FreeForm(NamedTuple):
    """Some atoms in free form.

    Parameters
    ----------
    free : (K, D) float64 array
        Their continuous values, transformed to unbounded numbers.
    fixed : list of arrays (K, ...)
        Their discrete values.
    """

    free: np.ndarray
    fixed: list[np.ndarray]

    def take(self, chosen: list[int]) -> "FreeForm":
        """Return some of the atoms, by their positions."""
        return FreeForm(self.free[chosen], [values[chosen] for values in self.fixed])

    def followed_by(self, other: "FreeForm") -> "FreeForm":
        """Return these atoms and then others."""
        pairs = zip(self.fixed, other.fixed, strict=True)
        return FreeForm(np.vstack([self.free, other.free]), [np.concatenate(pair) for pair in pairs])
