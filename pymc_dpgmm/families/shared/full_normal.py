r"""Normal rows with a full covariance in each cluster: draws and densities given drawn parameters.

Some entries given the others (Murphy 2012, eq. 4.69): with known columns k and unknown columns u,

.. math:: E x_u = m_u + S_{uk} S_{kk}^{-1} (x_k - m_k), \qquad S_{u|k} = S_{uu} - S_{uk} S_{kk}^{-1} S_{ku},

and of a t with :math:`\nu` degrees of freedom and scale matrix S, of which p columns are known, it is a t with
:math:`\nu + p` degrees of freedom and scale matrix :math:`S_{u|k} (\nu + (x_k - m_k)' S_{kk}^{-1} (x_k - m_k)) /
(\nu + p)` (Ding 2016).
"""

import math
from collections.abc import Iterator

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


def patterns(missing: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the rows (indices) that miss the same entries, with the columns that these have and those they miss.

    Rows without gaps are left out.
    """
    if np.all(missing == missing[:1]):
        groups = [np.arange(len(missing))]
    else:
        bits = np.packbits(missing, axis=1)
        _, of_row = np.unique(bits.view(f"V{bits.shape[1]}").ravel(), return_inverse=True)
        order = np.argsort(of_row, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(of_row[order])) + 1)
    for rows in groups:
        pattern = missing[rows[0]]
        if pattern.any():
            yield rows, np.flatnonzero(~pattern), np.flatnonzero(pattern)


def conditional_mean(drawn: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    """Return the expected entries of rows in each cluster given those that are not NaN: (n, K, d).

    Given are ``mean`` (K, d), and ``covariance`` (K, d, d) up to a factor.
    """
    mean, covariance = drawn["mean"], drawn["covariance"]
    found = np.repeat(mean[None], len(values), axis=0)
    for rows, known, unknown in patterns(np.isnan(values)):
        slopes = np.linalg.solve(covariance[:, known[:, None], known], covariance[:, known[:, None], unknown])
        offsets = values[rows[:, None], known][:, None, :] - mean[:, known]
        found[rows[:, None], :, unknown] += np.einsum("nkp,kpu->nuk", offsets, slopes)
    return found


def draw_conditional(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Draw the entries of rows that are NaN given the others, from a multivariate t for each cluster: (n, d).

    Given are ``mean`` (K, d), the scale matrix ``covariance`` (K, d, d), and ``degrees`` (K,).
    """
    found = np.array(values)
    for rows, known, unknown in patterns(np.isnan(values)):
        for k in np.unique(labels[rows]):
            own, scale = rows[labels[rows] == k], drawn["covariance"][k]
            offsets = values[np.ix_(own, known)] - drawn["mean"][k, known]
            solved = np.linalg.solve(scale[np.ix_(known, known)], scale[np.ix_(known, unknown)])
            of_known = np.linalg.solve(scale[np.ix_(known, known)], offsets.T).T
            degrees, left = drawn["degrees"][k], scale[np.ix_(unknown, unknown)]
            factor = np.linalg.cholesky(left - scale[np.ix_(unknown, known)] @ solved)
            gamma = rng.standard_gamma(0.5 * (degrees + len(known)), size=len(own))
            spread = np.sqrt((degrees + np.sum(offsets * of_known, axis=1)) / (2.0 * gamma))
            noise = rng.standard_normal((len(own), len(unknown))) @ factor.T
            found[np.ix_(own, unknown)] = drawn["mean"][k, unknown] + offsets @ solved + spread[:, None] * noise
    return found


def log_diagonal(matrices: np.ndarray) -> np.ndarray:
    """Return the log of the product of the diagonal of each matrix: (K, d, d) to (K,)."""
    return np.log(np.diagonal(matrices, axis1=1, axis2=2)).sum(axis=1)


def _log_normal(values: np.ndarray, mean: np.ndarray, root: np.ndarray, log_det: np.ndarray) -> np.ndarray:
    """Log normal densities (n, K) of values (n, d), given roots (K, d, d) of the precisions and their log dets."""
    total = np.empty((len(values), len(mean)))
    for k in range(len(mean)):
        total[:, k] = -0.5 * np.sum(((values - mean[k]) @ root[k].T) ** 2, axis=1)
    return total + log_det - 0.5 * values.shape[1] * math.log(2.0 * math.pi)
