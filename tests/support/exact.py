"""Log marginal likelihoods and priors on partitions by SciPy alone: they share nothing with the package.

Predictives come from SciPy's distributions, one row at a time.
"""

import json
from pathlib import Path

import numpy as np
from scipy.linalg import block_diag
from scipy.special import betaln, gammaln, logsumexp
from scipy.stats import (
    betabinom,
    betaprime,
    dirichlet_multinomial,
    lomax,
    multivariate_normal,
    multivariate_t,
    nbinom,
    vonmises,
)
from scipy.stats import t as student_t

from pymc_dpgmm import testing
from pymc_dpgmm.testing import (
    assert_matches,
    codes,
    frequencies,
    normalized,
    partitions,
    total_variation,
    total_variation_bound,
)

__all__ = ["assert_matches", "codes", "frequencies", "partitions", "total_variation", "total_variation_bound"]

DATA = Path(__file__).parents[1] / "data"


def reference(name):
    return json.loads((DATA / f"{name}.json").read_text())


def log_eppf(labels, alpha):
    """Log probability of a partition under one concentration, or each of an array."""
    sizes = np.bincount(labels)
    return len(sizes) * np.log(alpha) + gammaln(sizes).sum() + gammaln(alpha) - gammaln(alpha + len(labels))


def shares_of_reference(labels, reference):
    """How each cluster of a draw is divided among those of a reference that it corresponds to, by sets of rows."""
    own = [set(np.flatnonzero(labels == k)) for k in range(labels.max() + 1)]
    others = [set(np.flatnonzero(reference == r)) for r in range(reference.max() + 1)]
    shares = np.zeros((len(own), len(others)))
    for k, members in enumerate(own):
        met = [len(members & other) for other in others]
        mates = [r for r, m in enumerate(met) if m / len(members) > 0.5 or m / len(others[r]) > 0.5]
        for r in mates or range(len(met)):
            shares[k, r] = met[r] / sum(met[q] for q in mates or range(len(met)))
    return shares


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
        total += multivariate_t.logpdf(x, mean, scale * (kappa_n + 1) / (kappa_n * df), df)
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


def spherical_log_marginal(rows, mu, kappa, a, b, scale):
    d, total = rows.shape[1], 0.0
    mu, scale = np.broadcast_to(mu, d), np.broadcast_to(scale, d)
    for i, x in enumerate(rows):
        before = rows[:i]
        kappa_n, a_n = kappa + i, a + 0.5 * i * d
        mean = (kappa * mu + before.sum(axis=0)) / kappa_n
        b_n = b + 0.5 * np.sum((kappa * mu**2 + (before**2).sum(axis=0) - kappa_n * mean**2) / scale**2)
        spread = np.diag(scale**2) * b_n * (kappa_n + 1) / (a_n * kappa_n)
        total += multivariate_t.logpdf(x, mean, spread, 2 * a_n)
    return total


def regression_log_marginal(values, mu, precision, a, b):
    """All rows at once: y is a multivariate t."""
    y, x = values[:, 0], values[:, 1:]
    if not len(y):
        return 0.0
    spread = np.eye(len(y)) + x @ np.linalg.solve(precision, x.T)
    return float(multivariate_t.logpdf(y, x @ mu, b / a * spread, 2 * a))


def beta_bernoulli_log_marginal(rows, a, b):
    ones = rows.sum(axis=0)
    return float(np.sum(betaln(a + ones, b + len(rows) - ones) - betaln(a, b)))


def beta_binomial_log_marginal(values, a, b):
    successes, trials = np.hsplit(values, 2)
    total = 0.0
    for i in range(len(values)):
        won = successes[:i].sum(axis=0)
        lost = (trials - successes)[:i].sum(axis=0)
        total += betabinom.logpmf(successes[i], trials[i], a + won, b + lost).sum()
    return total


def gamma_poisson_log_marginal(values, a, b):
    counts, exposure = np.hsplit(values, 2)
    total = 0.0
    for i in range(len(values)):
        rate = b + exposure[:i].sum(axis=0)
        total += nbinom.logpmf(counts[i], a + counts[:i].sum(axis=0), rate / (rate + exposure[i])).sum()
    return total


def dirichlet_multinomial_log_marginal(values, a):
    counts, totals = values[:, :-1].astype(int), values[:, -1].astype(int)
    return sum(
        float(dirichlet_multinomial.logpmf(counts[i], a + counts[:i].sum(axis=0), totals[i]))
        for i in range(len(values))
    )


def categorical_log_marginal(codes, a, levels):
    total = 0.0
    for j, column in enumerate(codes.T.astype(int)):
        weights = a[j, : int(levels[j])].copy()
        for code in column:
            total += np.log(weights[code] / weights.sum())
            weights[code] += 1
    return total


def gamma_exponential_log_marginal(values, a, b):
    """Beta prime densities of sums of times, and survival functions of censored ones, one row after another."""
    times, events = np.hsplit(values, 2)
    total = 0.0
    for i in range(len(values)):
        shape, scale = a + events[:i].sum(axis=0), b + times[:i].sum(axis=0)
        seen = betaprime.logpdf(times[i], np.maximum(events[i], 1), shape, scale=scale)
        total += np.where(events[i] > 0, seen, lomax.logsf(times[i], shape, scale=scale)).sum()
    return total


def gamma_gamma_log_marginal(values, a, b):
    """Compound gamma (beta prime) densities, one row after another."""
    rows, shape = np.hsplit(values, 2)
    total = 0.0
    for i in range(len(values)):
        law = {"a": shape[i], "b": a + shape[:i].sum(axis=0), "scale": b + rows[:i].sum(axis=0)}
        total += betaprime.logpdf(rows[i], **law).sum()
    return total


def beta_negative_binomial_log_marginal(values, a, b):
    """One row after another (Johnson, Kemp and Kotz 2005, section 6.2.3); SciPy's sizes are whole numbers."""
    counts, size = np.hsplit(values, 2)
    total = 0.0
    for i, (k, r) in enumerate(zip(counts, size, strict=True)):
        a_n, b_n = a + size[:i].sum(axis=0), b + counts[:i].sum(axis=0)
        coefficient = gammaln(r + k) - gammaln(r) - gammaln(k + 1.0)
        total += np.sum(coefficient + betaln(a_n + r, b_n + k) - betaln(a_n, b_n))
    return float(total)


def normal_known_variance_log_marginal(values, mu, tau2):
    """All rows of a column at once: they are a multivariate normal."""
    rows, variance = np.hsplit(values, 2)
    if not len(rows):
        return 0.0
    mu, tau2 = np.broadcast_to(mu, rows.shape[1]), np.broadcast_to(tau2, rows.shape[1])
    return sum(
        float(multivariate_normal.logpdf(x, np.full(len(x), m), np.diag(v) + t))
        for x, v, m, t in zip(rows.T, variance.T, mu, tau2, strict=True)
    )


def normal_known_covariance_log_marginal(values, mu, covariance_of_means):
    """All rows at once."""
    d = len(mu)
    rows, covariance = values[:, :d], values[:, d:].reshape(-1, d, d)
    if not len(rows):
        return 0.0
    whole = np.kron(np.ones((len(rows), len(rows))), covariance_of_means) + block_diag(*covariance)
    return float(multivariate_normal.logpdf(rows.ravel(), np.tile(mu, len(rows)), whole))


def shared_covariance_log_marginal(rows, mu, kappa, covariance):
    """All rows at once."""
    if not len(rows):
        return 0.0
    whole = np.kron(np.eye(len(rows)) + 1.0 / kappa, covariance)
    return float(multivariate_normal.logpdf(rows.ravel(), np.tile(mu, len(rows)), whole))


def von_mises_log_marginal(rows, mu, kappa, concentration):
    """The prior times the likelihood, summed over a grid of directions, which converges exponentially."""
    grid = np.linspace(-np.pi, np.pi, 1_000, endpoint=False)
    total = 0.0
    for x, m, k, c in zip(
        rows.T, *(np.broadcast_to(v, rows.shape[1]) for v in (mu, kappa, concentration)), strict=True
    ):
        log_p = vonmises.logpdf(grid, k * c, loc=m)
        log_p = log_p + sum((vonmises.logpdf(one, c, loc=grid) for one in x), start=np.zeros(len(grid)))
        total += float(logsumexp(log_p)) + np.log(2.0 * np.pi / len(grid))
    return total


LOG_MARGINALS = {
    "BetaNegativeBinomial": beta_negative_binomial_log_marginal,
    "GammaExponential": gamma_exponential_log_marginal,
    "GammaGamma": gamma_gamma_log_marginal,
    "NormalKnownCovariance": normal_known_covariance_log_marginal,
    "NormalKnownVariance": normal_known_variance_log_marginal,
    "SharedCovariance": shared_covariance_log_marginal,
    "VonMises": von_mises_log_marginal,
    "NormalInverseWishart": niw_log_marginal,
    "NormalInverseGamma": nig_log_marginal,
    "SphericalNormalInverseGamma": spherical_log_marginal,
    "LinearRegression": regression_log_marginal,
    "BetaBernoulli": beta_bernoulli_log_marginal,
    "BetaBinomial": beta_binomial_log_marginal,
    "GammaPoisson": gamma_poisson_log_marginal,
    "DirichletMultinomial": dirichlet_multinomial_log_marginal,
    "DirichletCategorical": categorical_log_marginal,
}


def log_likelihoods(all_labels, rows, log_marginal, **parameters):
    """Log marginal likelihood of the rows under every partition."""
    return testing.log_likelihoods(all_labels, lambda members: log_marginal(rows[members], **parameters))


def posterior(all_labels, rows, log_marginal, alpha, **parameters):
    log_joint = log_likelihoods(all_labels, rows, log_marginal, **parameters)
    return normalized(log_joint + [log_eppf(p, alpha) for p in all_labels])


# Seating plans: the probability of a partition, row by row, from the weights of joining and opening clusters.


def seated(labels, join, opened):
    """Log probability of labels; ``join(m)`` and ``opened(K, i)`` are weights given i rows before."""
    total, sizes = 0.0, []
    for i, label in enumerate(labels):
        weights = [*(join(m) for m in sizes), opened(len(sizes), i) if i else 1.0]
        total += np.log(max(weights[label], 0.0)) - np.log(sum(weights)) if weights[label] > 0 else -np.inf
        sizes = [*sizes, 0] if label == len(sizes) else sizes
        sizes[label] += 1
    return total


def log_pitman_yor(labels, alpha, discount):
    return seated(labels, lambda m: m - discount, lambda k, i: alpha + k * discount)


def log_finite_dirichlet(labels, alpha, n_components):
    """A sum over all allocations of the clusters to components (Dirichlet-multinomial probabilities)."""
    sizes = np.bincount(labels)
    if len(sizes) > n_components:
        return -np.inf
    a, n = alpha / n_components, len(labels)
    ways = np.prod(np.arange(n_components, n_components - len(sizes), -1.0))
    each = gammaln(alpha) - gammaln(alpha + n) + np.sum(gammaln(a + sizes) - gammaln(a))
    return np.log(ways) + each


def log_mfm(labels, gamma, log_components):
    """A mixture over the number of components."""
    terms = [
        log_p + log_finite_dirichlet(labels, gamma * m, m)
        for m, log_p in enumerate(log_components, start=1)
        if log_p > -np.inf
    ]
    return logsumexp(terms)
