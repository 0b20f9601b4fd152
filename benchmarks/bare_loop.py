"""The yardstick: a plain compiled loop of collapsed Gibbs scans and draws of alpha. Frozen: it must not be changed.

What ``pm.sample`` does per second is measured in units of this loop, so that figures of different versions and of
different machines can be compared. It is a copy of the scan that the package had when the loop was frozen, with
NumPy and numba alone and nothing of the package: to make it faster or slower, or to let it import what can become
so, would change the unit of every figure measured before. A mistake in it, should there be one, stays, and is
described here. Newer Pythons and numbas may need other words for the same loop; then the figures that the old and
the new words give in one run belong into the commit.

The model: a Dirichlet process mixture of normals with alpha ~ Gamma(1, 1), under a normal-inverse-Wishart base
measure for d = 2 columns or more, and a normal-inverse-gamma one for a single column. Every scan draws alpha (Escobar
and West 1995, eqs 13 and 14), then visits all rows in random order (Neal 2000, algorithm 3). A row that stays where it
is changes nothing, its density under the rest of its own cluster coming from statistics that include it; one that moves
costs two changes of rank one. That is what a careful programmer would write for this model alone, and all of it.

Usage: ``python benchmarks/bare_loop.py`` prints microseconds per scan on three data sets.
"""

import math
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

FASTMATH = {"reassoc", "contract"}
# A weight below exp(-50) of the largest is below the resolution of the uniform number that chooses.
NEGLIGIBLE = -50.0
# Relative error of a statistic at which it is computed anew from the rows, and of one change of it.
WORST_ERROR = 1e-10
ROUNDING = 2.3e-16
# Below this share of a scale left without a row, cancellation has cost too many digits.
SMALLEST_SHARE = 1e-4
# Columns share one logarithm of the product of their t arguments, up to this product.
LARGEST = 1e300

# Columns of a trace.
N_CLUSTERS, ENTROPY, LOG_JOINT, ALPHA = range(4)


def compiled(**options):
    return njit(cache=True, error_model="numpy", no_cfunc_wrapper=True, **options)


class Wishart(NamedTuple):
    """Statistics of clusters under a normal-inverse-Wishart base measure; slot 0 is the cluster without rows.

    With kappa_n, mu_n and Psi_n = L L' of a slot (Murphy 2007, eqs 250-254), ``factor`` is
    sqrt(kappa_n / (kappa_n + 1)) inv(L) and ``shift`` its product with mu_n, so that the argument of the predictive t is
    1 + |factor x - shift|^2.
    """

    mu: np.ndarray
    kappa: float
    nu: float
    psi: np.ndarray
    size: np.ndarray
    mean: np.ndarray
    factor: np.ndarray
    shift: np.ndarray
    log_det: np.ndarray
    constant: np.ndarray
    constant_without: np.ndarray
    error: np.ndarray
    norms: np.ndarray
    evidence: np.ndarray
    work: np.ndarray


class InverseGamma(NamedTuple):
    """Statistics of clusters under a normal-inverse-gamma base measure; slot 0 is the cluster without rows.

    With kappa_n, mu_n and b_n (``scale``) of a slot and column (Murphy 2007, eqs 197-200), ``rate`` is
    sqrt(kappa_n / (2 b_n (kappa_n + 1))) and ``shift`` its product with mu_n, so that the argument of the predictive t is
    1 + (rate x - shift)^2.
    """

    mu: np.ndarray
    kappa: np.ndarray
    a: np.ndarray
    b: np.ndarray
    size: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    rate: np.ndarray
    shift: np.ndarray
    constant: np.ndarray
    constant_without: np.ndarray
    error: np.ndarray
    norms: np.ndarray
    evidence: np.ndarray


class State(NamedTuple):
    """Partition and statistics: slots 1..K in order of first appearance, the last slot being spare.

    The rows of slot k form a ring, doubly linked through the entry n + k of ``following`` and ``preceding``. What
    ``fit`` sums up of them is in ``center`` and ``scatter``.
    """

    rows: np.ndarray
    slots: np.ndarray
    sizes: np.ndarray
    following: np.ndarray
    preceding: np.ndarray
    prior_predictive: np.ndarray
    stats: object
    center: np.ndarray
    scatter: np.ndarray
    log_gamma: np.ndarray
    entropy: np.ndarray


def fit(stats, k, rows, members, center, scatter):
    """Compute slot ``k`` from its rows; the last two arguments are scratch."""


def add(stats, k, rows, i):
    """Let a row join slot ``k``."""


def remove(stats, k, rows, i):
    """Let a row leave slot ``k``; return whether its statistics are still good."""


def move(stats, source, target):
    """Copy slot ``source`` to slot ``target``."""


def resize(stats, capacity):
    """Return statistics with room for more slots."""


def log_predictive(stats, k, rows, i):
    """Log predictive density of a row in slot ``k``."""


def log_predictive_without(stats, k, rows, i):
    """Log predictive density of a row given the others of its slot; NaN if too many digits would be lost."""


def log_evidence(stats, k):
    """Log marginal likelihood of the rows of slot ``k``."""


def implements(declared, of_class, allocates=False):
    def register(function):
        def choose(*args):
            return function if args[0].instance_class is of_class else None

        options = {"fastmath": FASTMATH, "error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": allocates}
        overload(declared, strict=False, jit_options=options)(choose)
        return function

    return register


@compiled()
def log_share(share):
    # In a function of its own: a branch would keep numba from removing reference counts.
    if share < SMALLEST_SHARE:
        return math.nan
    return math.log(share)


@compiled()
def enlarged(array, length):
    larger = np.zeros((length, *array.shape[1:]), dtype=array.dtype)
    source, target = array.reshape(array.size), larger.reshape(larger.size)
    for i in range(source.shape[0]):
        target[i] = source[i]
    return larger


@compiled(fastmath=FASTMATH, inline="always")
def lower_product(factor, x, out):
    for i in range(x.shape[0]):
        entry = 0.0
        for j in range(i + 1):
            entry += factor[i, j] * x[j]
        out[i] = entry


@compiled(fastmath=FASTMATH, inline="always")
def scaled_squared_norm(factor, shift, x):
    total = 0.0
    for i in range(x.shape[0]):
        entry = -shift[i]
        for j in range(i + 1):
            entry += factor[i, j] * x[j]
        total += entry * entry
    return total


@compiled(fastmath=FASTMATH, inline="always")
def rank_one_inverse(inverse, p, sign, scale, work):
    """Change an inverse Cholesky factor for a change of rank one (Gill, Golub, Murray and Saunders 1974, method C)."""
    d = p.shape[0]
    for j in range(d):
        work[j] = 0.0
    before = 1.0
    for i in range(d):
        after = before + sign * p[i] * p[i]
        ratio = math.sqrt(before / after)
        step = sign * p[i]
        weight = p[i] / math.sqrt(after * before)
        for j in range(i + 1):
            entry = (inverse[i, j] - step * work[j]) * ratio
            work[j] += weight * entry
            inverse[i, j] = scale * entry
        before = after


@compiled(fastmath=FASTMATH, inline="always")
def inverse_cholesky_in_place(matrix):
    """Overwrite a symmetric positive definite matrix by the inverse of its lower Cholesky factor."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(i):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = total / matrix[j, j]
            matrix[j, i] = 0.0
        pivot = matrix[i, i]
        smallest = pivot * d * 2.3e-16
        for k in range(i):
            pivot -= matrix[i, k] * matrix[i, k]
        matrix[i, i] = math.sqrt(max(pivot, smallest))
    for i in range(d):
        reciprocal = 1.0 / matrix[i, i]
        for j in range(i):
            total = 0.0
            for k in range(j, i):
                total += matrix[i, k] * matrix[k, j]
            matrix[i, j] = -reciprocal * total
        matrix[i, i] = reciprocal


@compiled(inline="always")
def set_wishart_constants(stats, k):
    n = stats.size[k]
    half = 0.5 * stats.log_det[k]
    stats.constant[k] = stats.norms[n] - half
    stats.constant_without[k] = stats.norms[max(n - 1, 0)] - half


@implements(fit, Wishart)
def _(stats, k, rows, members, center, scatter):
    d = stats.mu.shape[0]
    n = members.shape[0]
    factor = stats.factor[k]
    for i in range(d):
        center[i] = 0.0
        for j in range(d):
            scatter[i, j] = 0.0
    for t in range(n):
        for j in range(d):
            center[j] += rows[members[t], j]
    for j in range(d):
        center[j] /= max(n, 1)
    for t in range(n):
        for i in range(d):
            deviation = rows[members[t], i] - center[i]
            for j in range(i + 1):
                scatter[i, j] += deviation * (rows[members[t], j] - center[j])
    kappa_n = stats.kappa + n
    weight = stats.kappa * n / kappa_n
    for i in range(d):
        for j in range(i + 1):
            between = (center[i] - stats.mu[i]) * (center[j] - stats.mu[j])
            factor[i, j] = factor[j, i] = stats.psi[i, j] + scatter[i, j] + weight * between
    inverse_cholesky_in_place(factor)
    scale = math.sqrt(kappa_n / (kappa_n + 1.0))
    log_det = 0.0
    for i in range(d):
        log_det -= 2.0 * math.log(factor[i, i])
        for j in range(i + 1):
            factor[i, j] *= scale
        stats.mean[k, i] = (stats.kappa * stats.mu[i] + n * center[i]) / kappa_n
    stats.size[k] = n
    stats.log_det[k] = log_det
    stats.error[k] = 0.0
    lower_product(factor, stats.mean[k], stats.shift[k])
    set_wishart_constants(stats, k)


@implements(add, Wishart)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.mu.shape[0]
    n = stats.size[k]
    kappa_n = stats.kappa + n
    p = stats.work[0]
    # Psi_{n+1} = Psi_n + v v' with v = sqrt(kappa_n / (kappa_n + 1)) (x - mu_n), and factor x - shift is inv(L) v.
    lower_product(stats.factor[k], x, p)
    gained = 1.0
    for i in range(d):
        p[i] -= stats.shift[k, i]
        gained += p[i] * p[i]
    scale = math.sqrt((kappa_n + 1.0) / (kappa_n + 2.0) * (kappa_n + 1.0) / kappa_n)
    rank_one_inverse(stats.factor[k], p, 1.0, scale, stats.work[1])
    for i in range(d):
        stats.mean[k, i] += (x[i] - stats.mean[k, i]) / (kappa_n + 1.0)
    lower_product(stats.factor[k], stats.mean[k], stats.shift[k])
    stats.size[k] = n + 1
    stats.log_det[k] += math.log(gained)
    stats.error[k] += ROUNDING
    set_wishart_constants(stats, k)


@implements(remove, Wishart)
def _(stats, k, rows, i):
    x = rows[i]
    d = stats.mu.shape[0]
    n = stats.size[k]
    kappa_n = stats.kappa + n
    p = stats.work[0]
    # Psi_{n-1} = Psi_n - v v' with v = sqrt(kappa_n / (kappa_n - 1)) (x - mu_n).
    lower_product(stats.factor[k], x, p)
    ratio = math.sqrt((kappa_n + 1.0) / (kappa_n - 1.0))
    left = 1.0
    for i in range(d):
        p[i] = (p[i] - stats.shift[k, i]) * ratio
        left -= p[i] * p[i]
    good = stats.error[k] + ROUNDING <= WORST_ERROR * left
    left = max(left, ROUNDING)
    scale = math.sqrt((kappa_n - 1.0) / kappa_n * (kappa_n + 1.0) / kappa_n)
    rank_one_inverse(stats.factor[k], p, -1.0, scale, stats.work[1])
    for i in range(d):
        stats.mean[k, i] -= (x[i] - stats.mean[k, i]) / (kappa_n - 1.0)
    lower_product(stats.factor[k], stats.mean[k], stats.shift[k])
    stats.size[k] = n - 1
    stats.log_det[k] += math.log(left)
    stats.error[k] = (stats.error[k] + ROUNDING) / left
    set_wishart_constants(stats, k)
    return good


@implements(move, Wishart)
def _(stats, source, target):
    for i in range(stats.mu.shape[0]):
        for j in range(stats.mu.shape[0]):
            stats.factor[target, i, j] = stats.factor[source, i, j]
        stats.mean[target, i] = stats.mean[source, i]
        stats.shift[target, i] = stats.shift[source, i]
    stats.size[target] = stats.size[source]
    stats.log_det[target] = stats.log_det[source]
    stats.constant[target] = stats.constant[source]
    stats.constant_without[target] = stats.constant_without[source]
    stats.error[target] = stats.error[source]


@implements(resize, Wishart, allocates=True)
def _(stats, capacity):
    return Wishart(
        stats.mu,
        stats.kappa,
        stats.nu,
        stats.psi,
        enlarged(stats.size, capacity),
        enlarged(stats.mean, capacity),
        enlarged(stats.factor, capacity),
        enlarged(stats.shift, capacity),
        enlarged(stats.log_det, capacity),
        enlarged(stats.constant, capacity),
        enlarged(stats.constant_without, capacity),
        enlarged(stats.error, capacity),
        stats.norms,
        stats.evidence,
        stats.work,
    )


@implements(log_predictive, Wishart)
def _(stats, k, rows, i):
    x = rows[i]
    squared = scaled_squared_norm(stats.factor[k], stats.shift[k], x)
    return stats.constant[k] - 0.5 * (stats.nu + 1.0 + stats.size[k]) * math.log(1.0 + squared)


@implements(log_predictive_without, Wishart)
def _(stats, k, rows, i):
    x = rows[i]
    # A ratio of two marginal likelihoods, |Psi_{n-1}| = |Psi_n| left.
    n = stats.size[k]
    kappa_n = stats.kappa + n
    squared = scaled_squared_norm(stats.factor[k], stats.shift[k], x)
    left = 1.0 - squared * (kappa_n + 1.0) / (kappa_n - 1.0)
    return stats.constant_without[k] + 0.5 * (stats.nu + n - 1.0) * log_share(left)


@implements(log_evidence, Wishart)
def _(stats, k):
    # Murphy (2007), eq. 266.
    return stats.evidence[stats.size[k]] - 0.5 * (stats.nu + stats.size[k]) * stats.log_det[k]


@compiled(inline="always")
def set_inverse_gamma_constants(stats, k):
    n = stats.size[k]
    log_scales = 0.0
    for j in range(stats.mu.shape[0]):
        kappa_n = stats.kappa[j] + n
        rate = math.sqrt(kappa_n / (2.0 * stats.scale[k, j] * (kappa_n + 1.0)))
        stats.rate[k, j] = rate
        stats.shift[k, j] = rate * stats.mean[k, j]
        log_scales += math.log(stats.scale[k, j])
    stats.constant[k] = stats.norms[n] - 0.5 * log_scales
    stats.constant_without[k] = stats.norms[max(n - 1, 0)] - 0.5 * log_scales


@implements(fit, InverseGamma)
def _(stats, k, rows, members, center, scatter):
    d = stats.mu.shape[0]
    n = members.shape[0]
    for j in range(d):
        center[j] = 0.0
        scatter[j] = 0.0
    for t in range(n):
        for j in range(d):
            center[j] += rows[members[t], j]
    for j in range(d):
        center[j] /= max(n, 1)
    for t in range(n):
        for j in range(d):
            deviation = rows[members[t], j] - center[j]
            scatter[j] += deviation * deviation
    for j in range(d):
        kappa_n = stats.kappa[j] + n
        offset = center[j] - stats.mu[j]
        stats.mean[k, j] = stats.mu[j] + n / kappa_n * offset
        stats.scale[k, j] = stats.b[j] + 0.5 * (scatter[j] + stats.kappa[j] * n / kappa_n * offset * offset)
    stats.size[k] = n
    stats.error[k] = 0.0
    set_inverse_gamma_constants(stats, k)


@implements(add, InverseGamma)
def _(stats, k, rows, i):
    x = rows[i]
    n = stats.size[k]
    for j in range(stats.mu.shape[0]):
        kappa_n = stats.kappa[j] + n
        deviation = x[j] - stats.mean[k, j]
        stats.scale[k, j] += 0.5 * kappa_n / (kappa_n + 1.0) * deviation * deviation
        stats.mean[k, j] += deviation / (kappa_n + 1.0)
    stats.size[k] = n + 1
    stats.error[k] += ROUNDING
    set_inverse_gamma_constants(stats, k)


@implements(remove, InverseGamma)
def _(stats, k, rows, i):
    x = rows[i]
    n = stats.size[k]
    smallest = 1.0
    for j in range(stats.mu.shape[0]):
        kappa_n = stats.kappa[j] + n
        deviation = x[j] - stats.mean[k, j]
        lost = 0.5 * kappa_n / (kappa_n - 1.0) * deviation * deviation
        left = max(1.0 - lost / stats.scale[k, j], ROUNDING)
        smallest = min(smallest, left)
        stats.scale[k, j] *= left
        stats.mean[k, j] -= deviation / (kappa_n - 1.0)
    good = stats.error[k] + ROUNDING <= WORST_ERROR * smallest
    stats.size[k] = n - 1
    stats.error[k] = (stats.error[k] + ROUNDING) / smallest
    set_inverse_gamma_constants(stats, k)
    return good


@implements(move, InverseGamma)
def _(stats, source, target):
    for j in range(stats.mu.shape[0]):
        stats.mean[target, j] = stats.mean[source, j]
        stats.scale[target, j] = stats.scale[source, j]
        stats.rate[target, j] = stats.rate[source, j]
        stats.shift[target, j] = stats.shift[source, j]
    stats.size[target] = stats.size[source]
    stats.constant[target] = stats.constant[source]
    stats.constant_without[target] = stats.constant_without[source]
    stats.error[target] = stats.error[source]


@implements(resize, InverseGamma, allocates=True)
def _(stats, capacity):
    return InverseGamma(
        stats.mu,
        stats.kappa,
        stats.a,
        stats.b,
        enlarged(stats.size, capacity),
        enlarged(stats.mean, capacity),
        enlarged(stats.scale, capacity),
        enlarged(stats.rate, capacity),
        enlarged(stats.shift, capacity),
        enlarged(stats.constant, capacity),
        enlarged(stats.constant_without, capacity),
        enlarged(stats.error, capacity),
        stats.norms,
        stats.evidence,
    )


@compiled(_nrt=False, forceinline=True, fastmath=FASTMATH)
def product_of_arguments(rate, shift, x):
    product = 1.0
    for j in range(rate.shape[0]):
        root = rate[j] * x[j] - shift[j]
        product *= 1.0 + root * root
    return product


@implements(log_predictive, InverseGamma)
def _(stats, k, rows, i):
    x = rows[i]
    half = 0.5 * stats.size[k] + 0.5
    rate = stats.rate[k]
    shift = stats.shift[k]
    product = product_of_arguments(rate, shift, x)
    if product < LARGEST:
        return stats.constant[k] - (stats.a[0] + half) * math.log(product)
    total = stats.constant[k]
    for j in range(rate.shape[0]):
        root = rate[j] * x[j] - shift[j]
        total -= (stats.a[j] + half) * math.log(1.0 + root * root)
    return total


@implements(log_predictive_without, InverseGamma)
def _(stats, k, rows, i):
    x = rows[i]
    # A ratio of two marginal likelihoods, b_{n-1} = b_n left.
    n = stats.size[k]
    total = stats.constant_without[k]
    for j in range(stats.mu.shape[0]):
        kappa_n = stats.kappa[j] + n
        root = stats.rate[k, j] * x[j] - stats.shift[k, j]
        left = 1.0 - root * root * (kappa_n + 1.0) / (kappa_n - 1.0)
        total += (stats.a[j] + 0.5 * n - 0.5) * log_share(left)
    return total


@implements(log_evidence, InverseGamma)
def _(stats, k):
    # Murphy (2007), eq. 203.
    total = stats.evidence[stats.size[k]]
    for j in range(stats.mu.shape[0]):
        total -= (stats.a[j] + 0.5 * stats.size[k]) * math.log(stats.scale[k, j])
    return total


@compiled()
def choose(rng, log_weights, n_choices):
    """Draw an index with probability proportional to ``exp(log_weights)``, which are overwritten."""
    largest = -math.inf
    for j in range(n_choices):
        largest = max(largest, log_weights[j])
    total = 0.0
    for j in range(n_choices):
        difference = log_weights[j] - largest
        if difference > NEGLIGIBLE:
            total += math.exp(difference)
        log_weights[j] = total
    u = rng.random() * total
    choice = 0
    while choice < n_choices - 1 and log_weights[choice] <= u:
        choice += 1
    return choice


@compiled(_nrt=False, forceinline=True)
def weigh(stats, rows, i, seats, slots, start, stop, log_weights):
    for j in range(start, stop):
        k = slots[j]
        log_weights[j] = seats[k] + log_predictive(stats, k, rows, i)


@compiled(_nrt=False, forceinline=True)
def draw_place(rng, log_alpha, state, i, slots, seats, own_place, n_clusters, detached, log_weights):
    """Draw a row's place in the list of slots, ``n_clusters`` for a new cluster; -1 if it must be detached first."""
    own = slots[own_place]
    weigh(state.stats, state.rows, i, seats, slots, 0, own_place, log_weights)
    weigh(state.stats, state.rows, i, seats, slots, own_place + 1, n_clusters, log_weights)
    if state.sizes[own] + detached == 1:
        # The only row of a slot: staying there is opening a new cluster. The first row has no choice.
        log_weights[own_place] = (log_alpha if n_clusters > 1 else 0.0) + state.prior_predictive[i]
        return choose(rng, log_weights, n_clusters)
    if detached:
        density = log_predictive(state.stats, own, state.rows, i)
    else:
        density = log_predictive_without(state.stats, own, state.rows, i)
        if math.isnan(density):
            return -1
    log_weights[own_place] = math.log(state.sizes[own] - (not detached)) + density
    log_weights[n_clusters] = log_alpha + state.prior_predictive[i]
    return choose(rng, log_weights, n_clusters + 1)


@compiled(inline="always")
def link(state, i, k):
    ring = state.slots.shape[0] + k
    after = state.following[ring]
    state.following[i] = after
    state.preceding[i] = ring
    state.preceding[after] = i
    state.following[ring] = i
    state.slots[i] = k
    state.sizes[k] += 1


@compiled(inline="always")
def unlink(state, i):
    before = state.preceding[i]
    after = state.following[i]
    state.following[before] = after
    state.preceding[after] = before
    state.sizes[state.slots[i]] -= 1


@compiled()
def refit(state, k):
    members = np.empty(state.sizes[k], dtype=np.int64)
    i = state.following[state.slots.shape[0] + k]
    for t in range(members.shape[0]):
        members[t] = i
        i = state.following[i]
    fit(state.stats, k, state.rows, members, state.center, state.scatter)


@compiled(inline="always")
def leave(state, i):
    k = state.slots[i]
    unlink(state, i)
    if not remove(state.stats, k, state.rows, i):
        refit(state, k)


@compiled(inline="always")
def join(state, i, k):
    link(state, i, k)
    add(state.stats, k, state.rows, i)


@compiled()
def grow(state):
    """Return the state with room for twice the slots."""
    n = state.slots.shape[0]
    old = state.sizes.shape[0]
    capacity = 2 * old
    following = enlarged(state.following, n + capacity)
    preceding = enlarged(state.preceding, n + capacity)
    for entry in range(n + old, n + capacity):
        following[entry] = entry
        preceding[entry] = entry
    return State(
        state.rows,
        state.slots,
        enlarged(state.sizes, capacity),
        following,
        preceding,
        state.prior_predictive,
        resize(state.stats, capacity),
        state.center,
        state.scatter,
        state.log_gamma,
        state.entropy,
    )


@compiled()
def scan(rng, alpha, state, n_clusters, order):
    """Draw the clusters of all rows, one after the other; return the state, a new tuple if it needed more room."""
    capacity = state.sizes.shape[0]
    log_alpha = math.log(alpha)
    # Slots in use, in no order, and their places in that list; the rest of the list are free slots.
    slots = np.arange(1, capacity - 1)
    place = np.arange(-1, capacity - 1)
    seats = np.empty(capacity)
    for k in range(1, n_clusters + 1):
        seats[k] = math.log(state.sizes[k])
    log_weights = np.empty(capacity)
    for t in range(order.shape[0]):
        i = order[t]
        own = state.slots[i]
        alone = state.sizes[own] == 1
        own_place = place[own]
        detached = False
        choice = draw_place(rng, log_alpha, state, i, slots, seats, own_place, n_clusters, False, log_weights)
        if choice < 0:
            leave(state, i)
            detached = True
            choice = draw_place(rng, log_alpha, state, i, slots, seats, own_place, n_clusters, True, log_weights)
        if choice == own_place:
            if detached:
                join(state, i, own)
            continue
        if not detached:
            leave(state, i)
        target = slots[choice]
        if choice == n_clusters:
            move(state.stats, 0, target)
        join(state, i, target)
        seats[target] = math.log(state.sizes[target])
        if choice == n_clusters:
            n_clusters += 1
        if alone:
            # The last slot in use takes the place of the emptied one.
            n_clusters -= 1
            last = slots[n_clusters]
            slots[own_place] = last
            place[last] = own_place
            slots[n_clusters] = own
            place[own] = n_clusters
        else:
            seats[own] = math.log(state.sizes[own])
        if n_clusters == slots.shape[0]:
            state = grow(state)
            more = np.arange(1, state.sizes.shape[0] - 1)
            more[: slots.shape[0]] = slots
            for j in range(slots.shape[0], more.shape[0]):
                more[j] = j + 1
            slots = more
            capacity = state.sizes.shape[0]
            place = np.empty(capacity, dtype=np.int64)
            for j in range(capacity - 2):
                place[slots[j]] = j
            seats = enlarged(seats, capacity)
            log_weights = np.empty(capacity)
    rename(state)
    return state


@compiled()
def copy_slot(state, source, target):
    move(state.stats, source, target)
    state.sizes[target] = state.sizes[source]
    n = state.slots.shape[0]
    if state.sizes[source] == 0:
        state.following[n + target] = n + target
        state.preceding[n + target] = n + target
        return
    first = state.following[n + source]
    last = state.preceding[n + source]
    state.following[n + target] = first
    state.preceding[n + target] = last
    state.preceding[first] = n + target
    state.following[last] = n + target


@compiled()
def rename(state):
    """Rename slots in order of the first appearance of their rows."""
    capacity = state.sizes.shape[0]
    names = np.zeros(capacity, dtype=np.int64)
    n_clusters = 0
    in_order = True
    for i in range(state.slots.shape[0]):
        k = state.slots[i]
        if names[k] == 0:
            n_clusters += 1
            names[k] = n_clusters
            in_order = in_order and k == n_clusters
        state.slots[i] = names[k]
    if in_order:
        return
    # Slots without rows take the names that are left, which makes names a permutation.
    unused = n_clusters
    for k in range(1, capacity):
        if names[k] == 0:
            unused += 1
            names[k] = unused
    origins = np.empty(capacity, dtype=np.int64)
    for k in range(capacity):
        origins[names[k]] = k
    spare = capacity - 1
    moved = np.zeros(capacity, dtype=np.bool_)
    for start in range(1, spare):
        if moved[start] or origins[start] == start:
            continue
        copy_slot(state, start, spare)
        hole = start
        while origins[hole] != start:
            copy_slot(state, origins[hole], hole)
            moved[hole] = True
            hole = origins[hole]
        copy_slot(state, spare, hole)
        moved[hole] = True
    state.sizes[spare] = 0
    ring = state.slots.shape[0] + spare
    state.following[ring] = ring
    state.preceding[ring] = ring


@compiled()
def count_clusters(state):
    k = 1
    while k < state.sizes.shape[0] and state.sizes[k] > 0:
        k += 1
    return k - 1


@compiled()
def random_order(rng, n):
    """Draw a permutation of 0..n-1 (Fisher and Yates)."""
    order = np.arange(n)
    for i in range(n - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        order[i], order[j] = order[j], order[i]
    return order


@compiled()
def draw_alpha(rng, alpha, n_clusters, n):
    smallest = np.finfo(np.float64).tiny
    rate_given = 1.0 - np.log(max(rng.beta(alpha + 1.0, n), smallest))
    shape_given = 1.0 + n_clusters - 1.0
    odds = shape_given / (n * rate_given)
    if rng.random() * (1.0 + odds) < odds:
        shape_given += 1.0
    return max(rng.standard_gamma(shape_given) / rate_given, smallest)


@compiled()
def bare_loop(rng, alpha, state, trace):
    """Draw alpha and scan the rows, as often as ``trace`` (T, 4) has lines; return the last alpha and state.

    A line is number of clusters, entropy of their sizes in nats, log joint density of labels and data given alpha,
    and alpha: numbers that are looked up or are there already.
    """
    n = state.slots.shape[0]
    for t in range(trace.shape[0]):
        alpha = draw_alpha(rng, alpha, count_clusters(state), n)
        state = scan(rng, alpha, state, count_clusters(state), random_order(rng, n))
        n_clusters = count_clusters(state)
        entropy = math.log(n)
        joint = math.lgamma(alpha + 1.0) - math.lgamma(alpha + n) + (n_clusters - 1) * math.log(alpha)
        for k in range(1, n_clusters + 1):
            entropy -= state.entropy[state.sizes[k]]
            joint += state.log_gamma[state.sizes[k]] + log_evidence(state.stats, k)
        trace[t, 0] = n_clusters
        trace[t, 1] = entropy
        trace[t, 2] = joint
        trace[t, 3] = alpha
    return alpha, state


@compiled()
def fill(state):
    for i in range(state.slots.shape[0] - 1, -1, -1):
        link(state, i, 1)
    for k in range(2):
        refit(state, k)
    for i in range(state.slots.shape[0]):
        state.prior_predictive[i] = log_predictive(state.stats, 0, state.rows, i)


def log_gammas(x):
    return np.array([math.lgamma(value) for value in np.ravel(x)]).reshape(np.shape(x))


def wishart(rows, capacity):
    """Statistics under mu = 0, kappa = 0.01, nu = d + 2, psi = 0.1 times the variances of centred rows."""
    n, d = rows.shape
    kappa, nu, psi = 0.01, d + 2.0, np.diag(0.1 * rows.var(axis=0))
    counts = np.arange(n + 1.0)
    degrees = 0.5 * (nu + counts[:, None] - np.arange(-1, d))
    gammas = log_gammas(degrees)
    return Wishart(
        mu=np.zeros(d),
        kappa=kappa,
        nu=nu,
        psi=psi,
        size=np.zeros(capacity, dtype=np.int64),
        mean=np.zeros((capacity, d)),
        factor=np.zeros((capacity, d, d)),
        shift=np.zeros((capacity, d)),
        log_det=np.zeros(capacity),
        constant=np.zeros(capacity),
        constant_without=np.zeros(capacity),
        error=np.zeros(capacity),
        norms=gammas[:, 0] - gammas[:, -1] - 0.5 * d * (math.log(math.pi) + np.log1p(1.0 / (kappa + counts))),
        evidence=(gammas[:, 1:] - gammas[0, 1:]).sum(axis=1)
        - 0.5 * d * (counts * math.log(math.pi) - np.log(kappa / (kappa + counts)))
        + 0.5 * nu * np.linalg.slogdet(psi)[1],
        work=np.zeros((2, d)),
    )


def inverse_gamma(rows, capacity):
    """Statistics under mu = 0, kappa = 0.01, a = 1.5, b = 0.05 times the variances of centred rows."""
    n, d = rows.shape
    kappa, a, b = 0.01, 1.5, 0.05 * rows.var(axis=0)
    counts = np.arange(n + 1.0)
    gammas = log_gammas(a + 0.5 * counts)
    steps = log_gammas(a + 0.5 * counts + 0.5) - gammas
    return InverseGamma(
        mu=np.zeros(d),
        kappa=np.full(d, kappa),
        a=np.full(d, a),
        b=b,
        size=np.zeros(capacity, dtype=np.int64),
        mean=np.zeros((capacity, d)),
        scale=np.zeros((capacity, d)),
        rate=np.zeros((capacity, d)),
        shift=np.zeros((capacity, d)),
        constant=np.zeros(capacity),
        constant_without=np.zeros(capacity),
        error=np.zeros(capacity),
        norms=d * (steps - 0.5 * math.log(2.0 * math.pi) - 0.5 * np.log1p(1.0 / (kappa + counts))),
        evidence=d * (gammas - gammas[0] + 0.5 * np.log(kappa / (kappa + counts)))
        - 0.5 * d * counts * math.log(2.0 * math.pi)
        + a * np.log(b).sum(),
    )


def start(data):
    """Return the state with all rows, (n,) or (n, d), in one cluster, under the default base measure."""
    rows = np.asarray(data, dtype=np.float64)
    rows = np.ascontiguousarray(rows.reshape(len(rows), -1))
    rows = rows - rows.mean(axis=0)
    (n, d), capacity = rows.shape, 9
    counts = np.arange(n + 1)
    shares = np.maximum(counts, 1)
    state = State(
        rows=rows,
        slots=np.ones(n, dtype=np.int64),
        sizes=np.zeros(capacity, dtype=np.int64),
        following=np.arange(n + capacity),
        preceding=np.arange(n + capacity),
        prior_predictive=np.empty(n),
        stats=(inverse_gamma if d == 1 else wishart)(rows, capacity),
        center=np.zeros(d),
        scatter=np.zeros(d if d == 1 else (d, d)),
        log_gamma=log_gammas(shares),
        entropy=counts / n * np.log(shares),
    )
    fill(state)
    return state


def run(data, n_scans, n_tuning, seed):
    """Return seconds of ``n_scans`` scans after others, and their trace (n_scans, 4)."""
    rng, state = np.random.default_rng(seed), start(data)
    alpha, state = bare_loop(rng, 1.0, state, np.empty((n_tuning, 4)))
    trace = np.empty((n_scans, 4))
    begin = time.perf_counter()
    bare_loop(rng, alpha, state, trace)
    return time.perf_counter() - begin, trace


def five_clusters(n=1_000, seed=5):
    """1,000 rows of two columns from five normal clusters, two of them overlapping."""
    rng = np.random.default_rng(seed)
    centers = np.array([[0.0, 0.0], [2.5, 0.5], [8.0, 0.0], [0.0, 8.0], [8.0, 8.0]])
    factors = np.array([[[1.0, 0.0], [r, math.sqrt(1.0 - r * r)]] for r in (0.0, 0.6, -0.5, 0.3, 0.0)])
    labels = rng.integers(5, size=n)
    return centers[labels] + np.einsum("nij,nj->ni", factors[labels], rng.normal(size=(n, 2)))


def small_data():
    """The data sets of the comparison, by name."""
    folder = Path(__file__).resolve().parent.parent / "pymc_dpgmm" / "datasets"
    return {
        "galaxies": np.loadtxt(folder / "galaxies.csv"),
        "Old Faithful": np.loadtxt(folder / "old_faithful.csv", delimiter=","),
        "five clusters": five_clusters(),
    }


def main(n_scans=20_000):
    for name, data in small_data().items():
        run(data, 10, 10, 0)
        seconds, trace = run(data, n_scans, 500, 0)
        means = ", ".join(f"{value:.4g}" for value in trace.mean(axis=0))
        print(
            f"{name}: {1e6 * seconds / n_scans:.1f} us a scan; means of clusters, entropy, log joint, alpha: {means}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
