"""The samplers of three source documents, written plainly, as units of comparison for benchmarks/papers.py."""

import math
import time

import numpy as np
from bare_loop import FASTMATH, scaled_squared_norm
from numba import njit
from scipy.special import gammaln, logsumexp
from scipy.stats import invwishart, multivariate_t

# How a table that gains or loses a customer gets its factor.
FROM_ROWS, FROM_SUMS, RANK_ONE = range(3)


@njit(fastmath=FASTMATH, error_model="numpy")
def squared_solution(factor, b):
    """b' (U' U)^-1 b for a triangle U; b is overwritten."""
    total = 0.0
    for i in range(len(b)):
        b[i] /= factor[i, i]
        total += b[i] * b[i]
        for j in range(i + 1, len(b)):
            b[j] -= b[i] * factor[i, j]
    return total


@njit(fastmath=FASTMATH, error_model="numpy")
def rank_one(factor, x, sign):
    """The triangle of U' U + sign x x', in place; x is overwritten."""
    for j in range(len(x)):
        diagonal = math.sqrt(factor[j, j] ** 2 + sign * x[j] ** 2)
        c, s = diagonal / factor[j, j], x[j] / factor[j, j]
        factor[j, j] = diagonal
        for i in range(j + 1, len(x)):
            factor[j, i] = (factor[j, i] + sign * s * x[i]) * (1.0 / c)
            x[i] = c * x[i] - s * factor[j, i]


@njit(fastmath=FASTMATH, error_model="numpy")
def log_t(x, n, total, factor, kappa0, nu0):
    """Das's equation 14, where the prior mean is 0."""
    d, kappa = len(x), kappa0 + n
    dof = nu0 + n - d + 1
    scale, log_det = (kappa + 1) / (kappa * dof), 0.0
    for i in range(d):
        log_det += math.log(factor[i, i])
    q = squared_solution(factor, x - total / kappa) / (scale * dof)
    constant = math.lgamma((dof + d) / 2) - math.lgamma(dof / 2) - 0.5 * d * math.log(dof * math.pi * scale)
    return constant - log_det - 0.5 * (dof + d) * math.log1p(q)


@njit
def change(k, i, sign, rows, labels, sizes, totals, squares, factors, kappa0, psi0, way):
    """Table k gains (sign 1) or loses (-1) customer i, and gets its factor in one of three ways."""
    x = rows[i]
    if way == RANK_ONE:
        others, total = (sizes[k], totals[k]) if sign == 1 else (sizes[k] - 1, totals[k] - x)
        kappa = kappa0 + others
        rank_one(factors[k], (x - total / kappa) * math.sqrt(kappa / (kappa + 1)), sign)
    labels[i] = k if sign == 1 else -1
    sizes[k] += sign
    totals[k] += sign * x
    if way == FROM_ROWS:
        customers = rows[labels == k]
        totals[k] = customers.sum(axis=0)
        squares[k] = customers.T @ customers
    elif way == FROM_SUMS:
        squares[k] += sign * np.outer(x, x)
    if way != RANK_ONE:
        scale = psi0 + squares[k] - np.outer(totals[k], totals[k]) / (kappa0 + sizes[k])
        factors[k] = np.linalg.cholesky(scale).T


@njit
def plain_scan(rng, rows, labels, sizes, totals, squares, factors, alpha, kappa0, nu0, psi0, way):
    """Das's Algorithm 1, for rows in their order; one table at least is empty. Returns how many rows moved."""
    moved, logs = 0, np.empty(len(sizes))
    prior_factor = np.linalg.cholesky(psi0).T
    for i in range(len(rows)):
        own = labels[i]
        change(own, i, -1, rows, labels, sizes, totals, squares, factors, kappa0, psi0, way)
        if sizes[own] == 0:
            totals[own], squares[own], factors[own] = 0.0, 0.0, prior_factor
        empty = np.argmin(sizes)
        for k in range(len(sizes)):
            logs[k] = -np.inf
            if sizes[k] > 0 or k == empty:
                prior = float(sizes[k]) if sizes[k] > 0 else alpha
                logs[k] = math.log(prior) + log_t(rows[i], sizes[k], totals[k], factors[k], kappa0, nu0)
        weights = np.cumsum(np.exp(logs - logs.max()))
        k = np.searchsorted(weights, rng.random() * weights[-1])
        moved += k != own
        change(k, i, 1, rows, labels, sizes, totals, squares, factors, kappa0, psi0, way)
    return moved


def plain_run(seed, rows, labels, alpha, kappa0, nu0, psi0, way, n_scans, most=30):
    """Seconds, rows moved and tables after each scan; ``labels`` is changed in place. The prior mean is 0."""
    rng, found = np.random.default_rng(seed), []
    sizes = np.bincount(labels, minlength=most)
    totals = np.array([rows[labels == k].sum(axis=0) for k in range(most)])
    squares = np.array([rows[labels == k].T @ rows[labels == k] for k in range(most)])
    scales = [psi0 + squares[k] - np.outer(totals[k], totals[k]) / (kappa0 + sizes[k]) for k in range(most)]
    factors = np.ascontiguousarray(np.linalg.cholesky(np.array(scales)).transpose(0, 2, 1))
    for _ in range(n_scans):
        begin = time.perf_counter()
        moved = plain_scan(rng, rows, labels, sizes, totals, squares, factors, alpha, kappa0, nu0, psi0, way)
        found.append((time.perf_counter() - begin, moved, np.count_nonzero(sizes)))
    return np.array(found)


def as_printed(rows, seed, n_components=5, n_scans=100, nu0=1):
    """Sizes of components after the sampler of listing 20.5: one of size n weighs n, and none comes back."""
    (n, d), rng = rows.shape, np.random.default_rng(seed)
    labels = rng.permutation(n) % n_components
    counts = np.bincount(labels, minlength=n_components)
    sums = np.array([rows[labels == k].sum(axis=0) for k in range(n_components)])
    squares = np.array([rows[labels == k].T @ rows[labels == k] for k in range(n_components)])
    for _ in range(n_scans):
        for i, x in enumerate(rows):
            own, products = labels[i], np.outer(x, x)
            counts[own], sums[own], squares[own] = counts[own] - 1, sums[own] - x, squares[own] - products
            left = np.flatnonzero(counts)
            m, c, u = counts[left], sums[left], nu0 + counts[left] - d + 1
            outer = c[:, :, None] * c[:, None, :] / (1 + m)[:, None, None]
            scale = ((2 + m) / (1 + m))[:, None, None] * (np.eye(d) + squares[left] - outer)
            offset = x - c / m[:, None]
            q = np.einsum("ka,kab,kb->k", offset, np.linalg.inv(scale), offset)
            log_p = gammaln((u + d) / 2) - gammaln(u / 2) - 0.5 * (u + d) * np.log1p(q)
            p = m * np.exp(log_p) / np.sqrt(np.linalg.det(scale))
            k = labels[i] = rng.choice(left, p=p / p.sum())
            counts[k], sums[k], squares[k] = counts[k] + 1, sums[k] + x, squares[k] + products
    return counts


@njit
def draw_labels(rows, factors, shifts, constants, uniform, labels):
    """One label for each row, given weights and parameters of all components."""
    p = np.empty(len(constants))
    for i in range(len(rows)):
        for k in range(len(p)):
            p[k] = constants[k] - 0.5 * scaled_squared_norm(factors[k], shifts[k], rows[i])
        p = np.exp(p - p.max())
        labels[i] = np.searchsorted(np.cumsum(p), uniform[i] * p.sum())


def finite_symmetric(rows, labels, alpha, numbers, n_iterations, seed, n_components=100):
    """Ishwaran and Zarepour's finite approximation, weights drawn: yields the seconds so far, and the labels."""
    rng, seconds = np.random.default_rng(seed), 0.0
    labels, (n, d) = labels.copy(), rows.shape
    mu, kappa, nu, psi = numbers["mu"], numbers["kappa"], numbers["nu"], numbers["psi"]
    for _ in range(n_iterations):
        begin = time.perf_counter()
        counts = np.bincount(labels, minlength=n_components)
        products = rows[:, :, None] * rows[:, None, :]
        sums = np.stack([np.bincount(labels, rows[:, a], n_components) for a in range(d)], axis=1)
        squares = np.stack([np.bincount(labels, v, n_components) for v in products.reshape(n, -1).T], axis=1)
        mean = (kappa * mu + sums) / (kappa + counts)[:, None]
        outer = (kappa + counts)[:, None, None] * mean[:, :, None] * mean[:, None, :]
        scale = psi + squares.reshape(-1, d, d) + kappa * np.outer(mu, mu) - outer
        covariance = [invwishart.rvs(nu + c, s, random_state=rng) for c, s in zip(counts, scale, strict=True)]
        half = np.linalg.cholesky(covariance)
        factors = np.linalg.inv(half)
        mean += (half @ rng.normal(size=(n_components, d, 1)))[:, :, 0] / np.sqrt(kappa + counts)[:, None]
        constants = np.log(np.maximum(rng.dirichlet(alpha / n_components + counts), 1e-300))
        constants += np.linalg.slogdet(factors)[1]
        shifts = (factors @ mean[:, :, None])[:, :, 0]
        draw_labels(rows, factors, shifts, constants, rng.random(n), labels)
        seconds += time.perf_counter() - begin
        yield seconds, labels


def log_density(new, rows, labels, alpha, numbers):
    """Mean log density of new rows given the labels: a mixture of t densities (Das's equation 14)."""
    mu, kappa, nu, psi = numbers["mu"], numbers["kappa"], numbers["nu"], numbers["psi"]
    logs = []
    for own in (rows[labels == k] for k in (*np.unique(labels), -1)):
        n, d = own.shape
        mean = (kappa * mu + own.sum(axis=0)) / (kappa + n)
        scale = psi + own.T @ own + kappa * np.outer(mu, mu) - (kappa + n) * np.outer(mean, mean)
        dof = nu + n - d + 1
        density = multivariate_t(mean, scale * (kappa + n + 1) / ((kappa + n) * dof), dof)
        logs.append(density.logpdf(new) + math.log((n if n else alpha) / (len(rows) + alpha)))
    return float(np.mean(logsumexp(logs, axis=0)))
