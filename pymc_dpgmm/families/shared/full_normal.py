"""Normal rows with a full covariance in each cluster: draws and densities given drawn parameters."""

import math

import numpy as np


def draw_full_rows(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, given: np.ndarray
) -> np.ndarray:
    """Draw rows, given ``mean`` (K, d) and ``factor`` (K, d, d), which times its transpose is the covariance."""
    noise = rng.standard_normal((len(labels), drawn["mean"].shape[1]))
    rows = drawn["mean"][labels]
    for k in np.unique(labels):
        own = labels == k
        rows[own] += noise[own] @ drawn["factor"][k].T
    return rows


def log_full_density(drawn: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    """Log densities (n, K) of the entries of rows that are there.

    Given are ``mean`` (K, d), ``covariance`` (K, d, d), ``root`` (K, d, d), whose transpose times it is the
    precision, and ``log_det`` (K,), the log of its determinant.
    """
    missing = np.isnan(values)
    if not missing.any():
        return _log_normal(values, drawn["mean"], drawn["root"], drawn["log_det"])
    total = np.empty((len(values), len(drawn["mean"])))
    patterns = missing[:1] if np.all(missing == missing[0]) else np.unique(missing, axis=0)
    for pattern in patterns:
        own, columns = np.all(missing == pattern, axis=1), np.flatnonzero(~pattern)
        factor = np.linalg.cholesky(drawn["covariance"][:, columns[:, None], columns])
        root = np.linalg.solve(factor, np.broadcast_to(np.eye(len(columns)), factor.shape))
        mean = drawn["mean"][:, columns]
        total[own] = _log_normal(values[np.ix_(own, columns)], mean, root, -log_diagonal(factor))
    return total


def log_diagonal(matrices: np.ndarray) -> np.ndarray:
    """Return the log of the product of the diagonal of each matrix: (K, d, d) to (K,)."""
    return np.log(np.diagonal(matrices, axis1=1, axis2=2)).sum(axis=1)


def _log_normal(values: np.ndarray, mean: np.ndarray, root: np.ndarray, log_det: np.ndarray) -> np.ndarray:
    """Log normal densities (n, K) of values (n, d), given roots (K, d, d) of the precisions and their log dets."""
    total = np.empty((len(values), len(mean)))
    for k in range(len(mean)):
        total[:, k] = -0.5 * np.sum(((values - mean[k]) @ root[k].T) ** 2, axis=1)
    return total + log_det - 0.5 * values.shape[1] * math.log(2.0 * math.pi)
