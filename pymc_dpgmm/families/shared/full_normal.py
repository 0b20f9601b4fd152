r"""Normal rows with a full covariance in each cluster: draws and densities given drawn parameters.

Some entries given the others (Murphy 2012, eq. 4.69): with known columns k and unknown columns u,

.. math:: E x_u = m_u + S_{uk} S_{kk}^{-1} (x_k - m_k), \qquad S_{u|k} = S_{uu} - S_{uk} S_{kk}^{-1} S_{ku},

and of a t with :math:`\nu` degrees of freedom and scale matrix S, of which p columns are known, it is a t with
:math:`\nu + p` degrees of freedom and scale matrix :math:`S_{u|k} (\nu + (x_k - m_k)' S_{kk}^{-1} (x_k - m_k)) /
(\nu + p)` (Ding 2016).
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from pymc_dpgmm.families.contract.component import Component, draw_gammas, normal_cdf, restore_mean


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

    Given are ``mean`` (K, d), ``factor`` (K, d, d), ``root`` (K, d, d), whose transpose times it is the precision,
    and ``log_det`` (K,), the log of its determinant.
    """
    missing = np.isnan(values)
    if not missing.any():
        return _log_normal(values, drawn["mean"], drawn["root"], drawn["log_det"])
    total = np.empty((len(values), len(drawn["mean"])))
    whole = np.flatnonzero(~missing.any(axis=1))
    total[whole] = _log_normal(values[whole], drawn["mean"], drawn["root"], drawn["log_det"])
    for rows, known, _ in patterns(missing):
        _, inverse = _of_known(drawn["factor"], known)
        root, mean = inverse.transpose(0, 2, 1), drawn["mean"][:, known]
        total[rows] = _log_normal(values[rows[:, None], known], mean, root, log_diagonal(root))
    return total


def _of_known(factor: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Q (K, d, p) and the inverse of R (K, p, p), where R' Q' are the lines of known columns in ``factor``.

    The covariance is never formed: drawn from a vague base measure, it can be singular to working precision.
    """
    q, r = np.linalg.qr(factor[:, known].transpose(0, 2, 1))
    # Signs that make the diagonal positive.
    diagonal = np.diagonal(r, axis1=1, axis2=2)
    signs = np.where(diagonal < 0.0, -1.0, 1.0)
    q, r = q * signs[:, None, :], r * signs[:, :, None]
    each = np.arange(len(known))
    r[:, each, each] = np.maximum(r[:, each, each], np.finfo(np.float64).tiny)
    return q, np.linalg.solve(r, np.broadcast_to(np.eye(len(known)), r.shape))


def patterns(missing: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the rows (indices) that miss the same entries, with the columns that these have and those they miss.

    Rows without gaps are left out.
    """
    return (found for found in patterns_of(missing) if len(found[2]))


def patterns_of(missing: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the same, and rows without gaps too."""
    if not len(missing):
        return
    if np.all(missing == missing[:1]):
        groups = [np.arange(len(missing))]
    else:
        bits = np.packbits(missing, axis=1)
        _, of_row = np.unique(bits.view(f"V{bits.shape[1]}").ravel(), return_inverse=True)
        order = np.argsort(of_row, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(of_row[order])) + 1)
    for rows in groups:
        pattern = missing[rows[0]]
        yield rows, np.flatnonzero(~pattern), np.flatnonzero(pattern)


def conditional_mean(drawn: dict[str, np.ndarray], values: np.ndarray) -> np.ndarray:
    """Return the expected entries of rows in each cluster given those that are not NaN: (n, K, d).

    Given are ``mean`` (K, d), and ``factor`` (K, d, d) of the covariance up to a number.
    """
    mean, factor = drawn["mean"], drawn["factor"]
    found = np.repeat(mean[None], len(values), axis=0)
    for rows, known, unknown in patterns(np.isnan(values)):
        q, inverse = _of_known(factor, known)
        slopes = inverse @ q.transpose(0, 2, 1) @ factor[:, unknown].transpose(0, 2, 1)
        offsets = values[rows[:, None], known][:, None, :] - mean[:, known]
        found[rows[:, None], :, unknown] += np.einsum("nkp,kpu->nuk", offsets, slopes)
    return found


def conditional_cdf(drawn: dict[str, np.ndarray], values: np.ndarray, j: int, points: np.ndarray) -> np.ndarray:
    """Return the probability (n, K, g) that entry ``j`` is at most each point (n, g) given those that are not NaN.

    Given are ``mean`` (K, d), and ``factor`` (K, d, d) of the covariance.
    """
    deviation = np.ones((len(values), len(drawn["mean"])))
    for rows, known, _ in patterns(np.isnan(values)):
        q, _ = _of_known(drawn["factor"], known)
        own = drawn["factor"][:, j]
        left = own - np.einsum("kp,kdp->kd", np.einsum("kd,kdp->kp", own, q), q)
        deviation[rows] = np.linalg.norm(left, axis=1)
    return normal_cdf(points, conditional_mean(drawn, values)[:, :, j], deviation)


def draw_conditional(
    rng: np.random.Generator, drawn: dict[str, np.ndarray], labels: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Draw the entries of rows that are NaN given the others, from a multivariate t for each cluster: (n, d).

    Given are ``mean`` (K, d), the ``factor`` (K, d, d) of the scale matrix, and ``degrees`` (K,), infinite ones
    for a normal.
    """
    found, d = np.array(values), values.shape[1]
    for rows, known, unknown in patterns(np.isnan(values)):
        q, inverse = _of_known(drawn["factor"], known)
        for k in np.unique(labels[rows]):
            own, of_unknown = rows[labels[rows] == k], drawn["factor"][k, unknown]
            # Coordinates of what is known, of unit scale, and what is left of the unknown without them.
            whitened = (values[np.ix_(own, known)] - drawn["mean"][k, known]) @ inverse[k]
            shared = of_unknown @ q[k]
            degrees, spread = drawn["degrees"][k], np.ones(len(own))
            if np.isfinite(degrees):
                gamma = draw_gammas(rng, 0.5 * (degrees + len(known)), size=len(own))
                spread = np.sqrt((degrees + np.sum(whitened**2, axis=1)) / (2.0 * gamma))
            noise = rng.standard_normal((len(own), d)) @ (of_unknown - shared @ q[k].T).T
            found[np.ix_(own, unknown)] = drawn["mean"][k, unknown] + whitened @ shared.T + spread[:, None] * noise
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


def full_component(draw: Callable[..., dict[str, np.ndarray]]) -> Component:
    """Return what a family with a full covariance in each cluster knows of parameters that ``draw`` draws."""
    return Component(
        axes={"mean": "d", "covariance": "dd"},
        draw=draw,
        draw_rows=draw_full_rows,
        log_density=log_full_density,
        quadratic=lambda drawn: (drawn["mean"], np.linalg.qr(drawn["root"]).R),
        restore=restore_mean,
        mean=conditional_mean,
        draw_unknown=draw_conditional,
        cdf=conditional_cdf,
    )
