"""Priors on labels of rows in groups by enumeration, from Stirling numbers, which the package does not use."""

import itertools

import numpy as np
from scipy.special import gammaln


def stirling(n):
    """Unsigned Stirling numbers of the first kind |s(n, m)|, m = 0..n."""
    row = np.array([1.0])
    for i in range(n):
        row = np.append(0.0, row) + i * np.append(row, 0.0)
    return row


def counts(labels, group):
    found = np.zeros((group.max() + 1, labels.max() + 1), dtype=int)
    np.add.at(found, (group, labels), 1)
    return found


def log_hdp(labels, group, alpha, gamma, use_stirling=True):
    """Log density of labels, and the expected number of tables given them, by sums over all tables."""
    n_jk = counts(labels, group)
    alpha = np.broadcast_to(alpha, len(n_jk)).astype(float)
    n_clusters = n_jk.shape[1]
    fixed = np.sum(gammaln(alpha) - gammaln(alpha + n_jk.sum(axis=1)))
    pairs = [(j, k) for j, k in np.argwhere(n_jk)]
    total, tables = 0.0, 0.0
    for m in itertools.product(*(range(1, n_jk[j, k] + 1) for j, k in pairs)):
        weight, by_cluster = 1.0, np.zeros(n_clusters)
        for (j, k), m_jk in zip(pairs, m, strict=True):
            weight *= (stirling(n_jk[j, k])[m_jk] if use_stirling else 1.0) * alpha[j] ** m_jk
            by_cluster[k] += m_jk
        seated = n_clusters * np.log(gamma) + gammaln(gamma) - gammaln(gamma + sum(m)) + gammaln(by_cluster).sum()
        weight *= np.exp(seated)
        total += weight
        tables += weight * sum(m)
    return fixed + np.log(total), tables / total


def log_finite(labels, group, alpha, n_components):
    """Log density of the partition under symmetric Dirichlet weights in every group."""
    n_jk = counts(labels, group)
    n_clusters = n_jk.shape[1]
    if n_clusters > n_components:
        return -np.inf
    alpha = np.broadcast_to(alpha, len(n_jk)).astype(float)
    own = (alpha / n_components)[:, None]
    within = np.sum(gammaln(own + n_jk) - gammaln(own)) + np.sum(
        gammaln(alpha) - gammaln(alpha + n_jk.sum(axis=1))
    )
    return within + gammaln(n_components + 1) - gammaln(n_components - n_clusters + 1)
