"""Cost of a Gibbs scan per (row, cluster) for every family beside its own arithmetic floor; see benchmarks/README.md.

Usage: ``python benchmarks/families.py [FOLDER]``. Prints a table and writes ``FOLDER/families.json``. The floor of a
family is the least work per (row, cluster) that its predictive takes: its arithmetic on contiguous arrays, and one
exponential for the choice.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np
from numba import njit
from scipy.sparse import csr_array

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.native.special import log_i0, log_rising
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.moves.sweep import sweep
from pymc_dpgmm.sampler.state.state import State

REPEATS = 21
OPTIONS = {"fastmath": {"reassoc", "contract"}, "error_model": "numpy"}


@njit(**OPTIONS)
def triangular_floor(rows, factors, shifts):
    """A triangular product, a logarithm: full covariance."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(factors.shape[0]):
            squared = 0.0
            for a in range(rows.shape[1]):
                entry = -shifts[k, a]
                for b in range(a + 1):
                    entry += factors[k, a, b] * rows[i, b]
                squared += entry * entry
            total += math.exp(-3.0 * math.log(1.0 + squared))
    return total


@njit(**OPTIONS)
def columns_floor(rows, rates, shifts):
    """A product over columns, a logarithm: independent columns."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(rates.shape[0]):
            product = 1.0
            for j in range(rows.shape[1]):
                root = rates[k, j] * rows[i, j] - shifts[k, j]
                product *= 1.0 + root * root
            total += math.exp(-3.0 * math.log(product))
    return total


@njit(**OPTIONS)
def distance_floor(rows, means, weights):
    """A weighted distance, a logarithm: one scale."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(means.shape[0]):
            squared = 0.0
            for j in range(rows.shape[1]):
                difference = rows[i, j] - means[k, j]
                squared += weights[j] * difference * difference
            total += math.exp(-3.0 * math.log(1.0 + squared))
    return total


@njit(**OPTIONS)
def regression_floor(rows, factors, means):
    """A triangular and a scalar product, two logarithms."""
    total = 0.0
    for i in range(rows.shape[0]):
        x = rows[i, 1:]
        for k in range(factors.shape[0]):
            fitted = 0.0
            leverage = 1.0
            for j in range(means.shape[1]):
                fitted += means[k, j] * x[j]
                root = 0.0
                for m in range(j + 1):
                    root += factors[k, j, m] * x[m]
                leverage += root * root
            residual = rows[i, 0] - fitted
            total += math.exp(-0.5 * math.log(leverage) - 3.0 * math.log(1.0 + residual * residual / leverage))
    return total


@njit(**OPTIONS)
def product_floor(rows, logits):
    """A scalar product: binary columns."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(logits.shape[0]):
            value = 0.0
            for j in range(rows.shape[1]):
                value += logits[k, j] * rows[i, j]
            total += math.exp(-abs(value))
    return total


@njit(**OPTIONS)
def lookup_floor(rows, log_weights):
    """One look into a table per column: categories."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(log_weights.shape[0]):
            value = 0.0
            for j in range(rows.shape[1]):
                value += log_weights[k, rows[i, j]]
            total += math.exp(-abs(value))
    return total


@njit(**OPTIONS)
def words_floor(starts, columns, counts, totals, weights, sums):
    """As many factors as counts, a logarithm, and a ratio of gamma functions for the total."""
    total = 0.0
    for i in range(totals.shape[0]):
        for k in range(weights.shape[0]):
            product = 1.0
            for t in range(starts[i], starts[i + 1]):
                weight = weights[k, columns[t]]
                for c in range(int(counts[t])):
                    product *= weight + c
                product *= 1e-3
            total += math.exp(-abs(math.log(product) - log_rising(sums[k], totals[i])))
    return total


@njit(**OPTIONS)
def poisson_floor(rows, shapes, rates):
    """A ratio of gamma functions and a logarithm."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(shapes.shape[0]):
            value = log_rising(shapes[k, 0], rows[i, 0])
            value -= (shapes[k, 0] + rows[i, 0]) * math.log(rates[k, 0] + rows[i, 1])
            total += math.exp(-abs(value))
    return total


@njit(**OPTIONS)
def binomial_floor(rows, a, b):
    """Three ratios of gamma functions."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(a.shape[0]):
            value = log_rising(a[k, 0], rows[i, 0]) + log_rising(b[k, 0], rows[i, 1])
            value -= log_rising(a[k, 0] + b[k, 0], rows[i, 0] + rows[i, 1])
            total += math.exp(-abs(value))
    return total


@njit(**OPTIONS)
def shared_floor(rows, factor, shifts):
    """A triangular product."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(shifts.shape[0]):
            squared = 0.0
            for a in range(rows.shape[1]):
                entry = -shifts[k, a]
                for b in range(a + 1):
                    entry += factor[a, b] * rows[i, b]
                squared += entry * entry
            total += math.exp(-squared)
    return total


@njit(**OPTIONS)
def known_floor(rows, means, precisions):
    """A quotient and a logarithm for each column: known variances."""
    total = 0.0
    d = means.shape[1]
    for i in range(rows.shape[0]):
        for k in range(means.shape[0]):
            squared, product = 0.0, 1.0
            for j in range(d):
                difference = rows[i, j] - means[k, j]
                growth = 1.0 + rows[i, d + j] / precisions[k, j]
                squared += rows[i, d + j] / growth * difference * difference
                product *= growth
            total += math.exp(-squared - 0.5 * math.log(product))
    return total


@njit(**OPTIONS)
def pairs_floor(rows, precisions, weighted):
    """A 2 x 2 Cholesky factor and a solution with it: known covariances of two columns."""
    total = 0.0
    for i in range(rows.shape[0]):
        for k in range(precisions.shape[0]):
            a = math.sqrt(precisions[k, 0] + rows[i, 0])
            b = (precisions[k, 1] + rows[i, 1]) / a
            c = math.sqrt(precisions[k, 2] + rows[i, 2] - b * b)
            u = (weighted[k, 0] + rows[i, 3]) / a
            v = (weighted[k, 1] + rows[i, 4] - b * u) / c
            total += math.exp(-math.log(a * c) - u * u - v * v)
    return total


@njit(**OPTIONS)
def directions_floor(rows, lengths, concentration):
    """A square root and the log of a Bessel function for each column."""
    total = 0.0
    d = lengths.shape[1] // 2
    for i in range(rows.shape[0]):
        for k in range(lengths.shape[0]):
            value = 0.0
            for j in range(d):
                cosine, sine = lengths[k, j] + rows[i, j], lengths[k, d + j] + rows[i, d + j]
                value += log_i0(concentration * math.sqrt(cosine * cosine + sine * sine))
            total += math.exp(-abs(value))
    return total


def of_rates(t, s, c):
    return t.rows, t.shifted.a + s.events, t.shifted.b + s.exposure


def square(triangles, d):
    """Packed lower triangles as matrices: (K, d, d)."""
    matrices = np.zeros((len(triangles), d, d))
    matrices[:, *np.tril_indices(d)] = triangles
    return matrices


def cases(n, n_clusters, rng, labels):
    """Name, size, base measure, values, and arguments of the floor from a state with k clusters."""
    for d in (2, 16):
        # Far apart, on a grid in every pair of columns.
        rows = np.where(np.arange(d) % 2, labels[:, None] % 4, labels[:, None] // 4) * 15.0 + rng.normal(
            size=(n, d)
        )
        yield (
            f"normal-inverse-Wishart, d = {d}", dp.NormalInverseWishart.from_data(rows), rows,
            triangular_floor, lambda t, s, c: (t.rows, square(c("factor"), t.rows.shape[1]), c("shift")),
        )  # fmt: skip
        yield (
            f"normal-inverse-gamma, d = {d}", dp.NormalInverseGamma.from_data(rows), rows,
            columns_floor, lambda t, s, c: (t.rows, c("rate"), c("shift")),
        )  # fmt: skip
        yield (
            f"spherical, d = {d}", dp.SphericalNormalInverseGamma.from_data(rows), rows,
            distance_floor, lambda t, s, c: (t.rows, c("mean"), 1.0 / t.shifted.scale**2),
        )  # fmt: skip
    for p in (2, 8):
        x = np.column_stack([np.ones(n), rng.normal(size=(n, p - 1))])
        slopes = rng.normal(size=(n_clusters, p)) * 20.0
        y = np.sum(x * slopes[labels], axis=1) + rng.normal(size=n)
        yield (
            f"regression, p = {p}", dp.LinearRegression(0.0, 0.01, 1.5, 1.0, x), np.column_stack([y, x]),
            regression_floor, lambda t, s, c: (t.rows, square(c("factor"), t.rows.shape[1] - 1), c("mean")),
        )  # fmt: skip
    for d in (16, 64):
        p = rng.beta(0.3, 0.3, size=(n_clusters, d))
        bits = (rng.random((n, d)) < p[labels]).astype(float)
        yield (
            f"beta-Bernoulli, d = {d}", dp.BetaBernoulli(0.5, 0.5), bits,
            product_floor, lambda t, s, c: (t.rows, c("logit")),
        )  # fmt: skip
    d, levels = 16, 5
    p = rng.dirichlet(np.full(levels, 0.2), size=(n_clusters, d)).cumsum(axis=-1)
    codes = (rng.random((n, d, 1)) > p[labels]).sum(axis=-1).clip(max=levels - 1).astype(float)
    yield (
        f"Dirichlet-categorical, d = {d}", dp.DirichletCategorical(0.5, np.full(d, levels)), codes,
        lookup_floor, lambda t, s, c: (t.rows.astype(np.int64), c("log_weight")),
    )  # fmt: skip
    for d, total in ((50, 30), (2_000, 100)):
        p = rng.dirichlet(np.full(d, 0.1), size=n_clusters)
        words = np.stack([rng.multinomial(total, p[label]) for label in labels])
        values = csr_array(words.astype(float))
        yield (
            f"Dirichlet-multinomial, d = {d}, {values.nnz / n:.0f} non-zeros", dp.DirichletMultinomial(0.1), values,
            words_floor,
            lambda t, s, c: (
                t.values.indptr, t.values.indices, t.values.data, t.values.sum(axis=1),
                t.shifted.a + s.counts, t.shifted.a.sum() + s.total,
            ),
        )  # fmt: skip
    for mean in (2.0, 40.0):
        y = rng.poisson(mean * (1.0 + labels) ** 2).astype(float)
        yield (
            f"gamma-Poisson, counts about {y.mean():.0f}", dp.GammaPoisson(1.0, 0.05),
            np.column_stack([y, np.ones(n)]),
            poisson_floor,
            of_rates,
        )  # fmt: skip
    trials = rng.poisson(80, size=n).astype(float)
    won = rng.binomial(trials.astype(int), (labels + 0.5) / n_clusters).astype(float)
    yield (
        "beta-binomial, 80 trials", dp.BetaBinomial(1.0, 1.0, trials), np.column_stack([won, trials]),
        binomial_floor,
        lambda t, s, c: (t.rows, t.shifted.a + s.successes, t.shifted.b + s.failures),
    )  # fmt: skip
    counts, size = rng.poisson(2.0 * (1.0 + labels) ** 2).astype(float), np.full(n, 4.0)
    yield (
        "beta-negative-binomial, size 4", dp.BetaNegativeBinomial.from_data(counts, size=4.0),
        np.column_stack([counts, size]),
        binomial_floor,
        lambda t, s, c: (t.rows, t.shifted.a + s.successes, t.shifted.b + s.failures),
    )  # fmt: skip
    times = rng.exponential(10.0 ** (labels / 2.0))
    seen = (rng.random(n) < 0.7).astype(float)
    yield (
        "gamma-exponential, 30 % censored", dp.GammaExponential.from_data(times, events=seen),
        np.column_stack([times, seen]), poisson_floor, of_rates,
    )  # fmt: skip
    yield (
        "gamma-gamma, shape 4.5", dp.GammaGamma.from_data(times, shape=4.5),
        np.column_stack([times, np.full(n, 4.5)]), poisson_floor, of_rates,
    )  # fmt: skip
    rows = np.column_stack([labels % 4, labels // 4]) * 15.0 + rng.normal(size=(n, 2))
    variance = rng.gamma(4.0, 0.25, size=(n, 2))
    yield (
        "normal, known variances, d = 2", dp.NormalKnownVariance.from_data(rows, variance=variance),
        np.column_stack([rows, variance]), known_floor, lambda t, s, c: (t.rows, c("mean"), c("precision")),
    )  # fmt: skip
    covariance = np.einsum("ni,nj->nij", variance, 0.5 * variance) + 0.5 * np.eye(2)
    covariance = 0.5 * (covariance + covariance.transpose(0, 2, 1))
    yield (
        "normal, known covariances, d = 2", dp.NormalKnownCovariance.from_data(rows, covariance=covariance),
        np.column_stack([rows, covariance.reshape(n, 4)]), pairs_floor,
        lambda t, s, c: (t.rows, s.precision + 1e-3, s.weighted),
    )  # fmt: skip
    for d in (2, 16):
        rows = np.where(np.arange(d) % 2, labels[:, None] % 4, labels[:, None] // 4) * 15.0 + rng.normal(
            size=(n, d)
        )
        yield (
            f"shared covariance, d = {d}", dp.SharedCovariance(rows.mean(axis=0), 0.05, np.eye(d)), rows,
            shared_floor, lambda t, s, c: (t.rows, np.eye(t.rows.shape[1]), c("shift")),
        )  # fmt: skip
    angles = rng.vonmises(labels[:, None] * 2.0 * np.pi / n_clusters - np.pi, 100.0, size=(n, 2))
    yield (
        "von Mises, d = 2", dp.VonMises(0.0, 0.01, 100.0), angles,
        directions_floor, lambda t, s, c: (t.rows, np.hstack([s.cosines, s.sines]), 100.0),
    )  # fmt: skip


def measure(name, base, values, floor, arguments, n, labels, rng):
    d = len(next(iter(base.parameters.values()))) if name.startswith("Dirichlet-cat") else values.shape[1]
    if set(base.family.given.values()) == {"d"}:
        d //= 1 + len(base.family.given)
    elif base.family.name == "NormalKnownCovariance":
        d = 2
    state = State([View(base.family, base.numbers(d), values)], labels)
    state.set_prior(chinese_restaurant(0.1))
    sweep(rng, state, 10, 1, 0, 0)
    (table,) = state.tables

    def given():
        used = state.order[: state.n_clusters]
        every = table.sums(0, table.capacity + 1)
        return arguments(
            table,
            type(every)(*(field[used] for field in every)),
            lambda name: np.array([table.cached(name, slot) for slot in used]),
        )

    floor(*given())
    floors, scans, moved = [], [], 0
    for _ in range(REPEATS):
        k, now = state.n_clusters, given()
        start = time.perf_counter()
        floor(*now)
        middle = time.perf_counter()
        n_moved = sweep(rng, state, 1, 1, 0, 0)
        scans.append((time.perf_counter() - middle) / (n * k) * 1e9)
        floors.append((middle - start) / (n * k) * 1e9)
        moved += n_moved
    return {
        "family": name,
        "K": k,
        "moved_share": moved / n / REPEATS,
        "floor_ns": float(np.median(floors)),
        "scan_ns": float(np.median(scans)),
        "ratio": float(np.median(np.array(scans) / np.array(floors))),
    }


def main(folder):
    n, n_clusters = 2_000, 10
    rng = np.random.default_rng(0)
    labels = np.sort(rng.integers(n_clusters, size=n))
    results = []
    print(f"{'family':48} {'K':>4} {'moved':>7} {'floor ns':>9} {'scan ns':>9} {'ratio':>6}")
    for case in cases(n, n_clusters, rng, labels):
        row = measure(*case, n, labels, rng)
        results.append(row)
        print(
            f"{row['family']:48} {row['K']:4d} {row['moved_share']:7.3f} {row['floor_ns']:9.1f} "
            f"{row['scan_ns']:9.1f} {row['ratio']:6.2f}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "families.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
