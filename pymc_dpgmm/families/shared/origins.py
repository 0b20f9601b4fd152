"""Origins close to the data, so that values far from zero cost no digits."""

from typing import Any

import numpy as np


def centred(params: Any, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with column means zero, and the means; missing entries (NaN) stay missing."""
    means = values.sum(axis=0) / max(len(values), 1)
    if not np.isfinite(means).all():
        # Not np.nanmean, which warns of columns without entries.
        present = ~np.isnan(values)
        means = np.where(present, values, 0.0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
    return np.ascontiguousarray(values - means), means


def shift_mean(params: Any, origin: np.ndarray) -> Any:
    """Return parameters whose ``mu`` is relative to ``origin``."""
    return params._replace(mu=params.mu - origin)
