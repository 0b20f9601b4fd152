"""Exact posteriors over all partitions of tiny data, by enumeration and SciPy alone.

Shares nothing with the package: predictives come from SciPy's t distributions, one row at a time.
"""

import json
from pathlib import Path

import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import multivariate_t
from scipy.stats import t as student_t

DATA = Path(__file__).parent / "data"


def reference(name):
    return json.loads((DATA / f"{name}.json").read_text())


def partitions(n):
    """All restricted growth strings of length n, as an (B_n, n) array."""
    found = [[0]]
    for _ in range(n - 1):
        found = [[*p, k] for p in found for k in range(max(p) + 2)]
    return np.array(found)


def log_eppf(labels, alpha):
    sizes = np.bincount(labels)
    return len(sizes) * np.log(alpha) + gammaln(sizes).sum() + gammaln(alpha) - gammaln(alpha + len(labels))


def niw_log_marginal(rows, mu, kappa, nu, psi):
    """Telescoping multivariate t predictives, posterior parameters from all rows before."""
    mu, psi, d = np.asarray(mu, float), np.asarray(psi, float), rows.shape[1]
    total = 0.0
    for i, x in enumerate(rows):
        before = rows[:i]
        kappa_n, nu_n = kappa + i, nu + i
        mean = (kappa * mu + before.sum(axis=0)) / kappa_n
        scale = psi + kappa * np.outer(mu, mu) + before.T @ before - kappa_n * np.outer(mean, mean)
        df = nu_n - d + 1
        total += multivariate_t(mean, scale * (kappa_n + 1) / (kappa_n * df), df=df).logpdf(x)
    return total


def nig_log_marginal(rows, mu, kappa, a, b):
    total = 0.0
    d = rows.shape[1]
    mu, kappa, a, b = (np.broadcast_to(np.asarray(v, float), d) for v in (mu, kappa, a, b))
    for i, x in enumerate(rows):
        before = rows[:i]
        kappa_n, a_n = kappa + i, a + 0.5 * i
        mean = (kappa * mu + before.sum(axis=0)) / kappa_n
        b_n = b + 0.5 * (kappa * mu**2 + (before**2).sum(axis=0) - kappa_n * mean**2)
        scale = np.sqrt(b_n * (kappa_n + 1) / (kappa_n * a_n))
        total += student_t.logpdf(x, 2 * a_n, mean, scale).sum()
    return total


LOG_MARGINALS = {"NormalInverseWishart": niw_log_marginal, "NormalInverseGamma": nig_log_marginal}


def log_likelihoods(all_labels, rows, log_marginal, **parameters):
    """Log marginal likelihood of the rows under every partition."""
    cache = {}

    def cluster(members):
        if members not in cache:
            cache[members] = log_marginal(rows[list(members)], **parameters)
        return cache[members]

    return np.array([sum(cluster(tuple(np.flatnonzero(p == k))) for k in range(p.max() + 1)) for p in all_labels])


def posterior(all_labels, rows, log_marginal, alpha, **parameters):
    log_joint = log_likelihoods(all_labels, rows, log_marginal, **parameters)
    log_joint = log_joint + [log_eppf(p, alpha) for p in all_labels]
    return np.exp(log_joint - logsumexp(log_joint))


def codes(labels):
    """One integer per labelling: (..., n) to (...)."""
    n = labels.shape[-1]
    return np.asarray(labels, dtype=np.int64) @ n ** np.arange(n - 1, -1, -1, dtype=np.int64)


def frequencies(drawn_codes, all_labels):
    """Shares of the enumerated partitions among drawn codes."""
    known = codes(all_labels)
    order = np.argsort(known)
    position = order[np.searchsorted(known[order], drawn_codes)]
    assert np.array_equal(known[position], drawn_codes), "a draw is not canonical"
    return np.bincount(position, minlength=len(known)) / len(drawn_codes)


def total_variation(p, q):
    return 0.5 * np.abs(p - q).sum()


def total_variation_bound(p, effective, seed=0):
    """99.9 % quantile of the total variation of ``effective`` independent draws from p."""
    rng = np.random.default_rng(seed)
    effective = int(effective)
    draws = rng.multinomial(effective, p, size=2000) / effective
    return np.quantile(0.5 * np.abs(draws - p).sum(axis=1), 0.999)


def effective_size(drawn_codes, all_labels, p):
    """Smallest effective sample size of number of clusters and of the five most probable partitions.

    ``drawn_codes`` is (chains, draws).
    """
    import arviz as az

    drawn_codes = np.atleast_2d(drawn_codes)
    known = codes(all_labels)
    order = np.argsort(known)
    position = order[np.searchsorted(known[order], drawn_codes)]
    series = [all_labels.max(axis=1)[position].astype(float)]
    series += [(position == top).astype(float) for top in np.argsort(p)[-5:]]
    return min(float(az.ess(s, method="mean")) for s in series)


def assert_matches(drawn_codes, all_labels, p):
    """Assert that draws (chains, draws) of canonical partitions follow p."""
    effective = min(effective_size(drawn_codes, all_labels, p), np.size(drawn_codes))
    distance = total_variation(frequencies(np.ravel(drawn_codes), all_labels), p)
    bound = total_variation_bound(p, effective)
    assert distance < bound, f"total variation {distance:.5f}, bound {bound:.5f} at {effective:.0f} draws"
