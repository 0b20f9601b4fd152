"""Models that look like another one at many points: posteriors by draws from the prior, and what graphs show.

Where a move takes a structure of a model for granted, the graph has shown it, or the acceptance ratio counts every
density, so that a wrong guess costs acceptance alone: ``integration/steps/__init__.py`` lists them.
"""

import exact
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import sampled
from scipy.special import gammaln, logsumexp
from scipy.stats import norm
from slowly import rest_slow

import pymc_dpgmm as dp
from pymc_dpgmm.integration.process_density import ProcessModel

COUNTS = np.array([1, 2, 6])
ROWS = np.array([[-1.2, -0.7], [-0.8, -1.1], [0.4, 0.1], [1.3, 0.8], [1.0, 1.6]])
X = np.array([-1.0, -0.5, 0.2, 0.7, 1.1])
N_PRIOR = 1_000_000


def seats(rng, n_draws, n, alpha):
    """Partitions from the Chinese restaurant process: (n_draws, n)."""
    labels, k = np.zeros((n_draws, n), dtype=int), np.ones(n_draws, dtype=int)
    for i in range(1, n):
        is_new = rng.random(n_draws) < alpha / (alpha + i)
        # The cluster of an earlier row chosen at random.
        mates = labels[np.arange(n_draws), rng.integers(i, size=n_draws)]
        labels[:, i] = np.where(is_new, k, mates)
        k += is_new
    return labels


def weighted_mean(values, log_weights):
    """The mean of values (S, q) by weights, and its standard error."""
    weights = np.exp(log_weights - log_weights.max())
    mean = weights @ values / weights.sum()
    error = np.sqrt(weights**2 @ (values - mean) ** 2) / weights.sum()
    return mean, error


def latent_rows_exactly(rng, mean_of, columns):
    """Means of b0 squared, b0 and the first number of m."""
    m, b0 = rng.normal(0.5, 1.0, size=(N_PRIOR, columns)), rng.normal(size=N_PRIOR)
    clusters = len(COUNTS)
    variance = 0.4 / rng.standard_gamma(3.0, size=(N_PRIOR, clusters, columns))
    mean = mean_of(m)[:, None] + np.sqrt(variance / 3.0) * rng.standard_normal(variance.shape)
    labels, at = seats(rng, N_PRIOR, clusters, 1.0), np.arange(N_PRIOR)[:, None]
    rows = mean[at, labels] + np.sqrt(variance[at, labels]) * rng.standard_normal(variance.shape)
    eta = (rows if columns == 1 else rows * [1.0, 0.5]).sum(axis=2) + b0[:, None]
    return weighted_mean(np.column_stack([b0**2, b0, m[:, 0]]), (COUNTS * eta - np.exp(eta)).sum(axis=1))


def latent_rows(mean_of, columns):
    with pm.Model() as model:
        m, b0 = pm.Normal("m", 0.5, 1.0, shape=() if columns == 1 else columns), pm.Normal("b0")
        base = dp.NormalInverseGamma(mean_of(m), 3.0, 3.0, 0.4)
        u = dp.DPMixture("u", 1.0, base, shape=(3,) if columns == 1 else (3, columns))
        pm.Poisson("y", pm.math.exp((u if columns == 1 else (u * [1.0, 0.5]).sum(axis=1)) + b0), observed=COUNTS)
    return model, lambda found: [found["b0"] ** 2, found["b0"], found["m"] if columns == 1 else found["m"][..., 0]]


def evidences(values, mu, kappa, a, b):
    """Log evidence (S,) of rows (S, n), or (n,), under a normal-inverse-gamma base: Murphy (2007), eq. 203."""
    n, mean = values.shape[-1], values.mean(axis=-1)
    squares = np.sum((values - mean[..., None]) ** 2, axis=-1)
    after = b + 0.5 * squares + 0.5 * kappa * n / (kappa + n) * (mean - mu) ** 2
    risen = gammaln(a + n / 2) - gammaln(a) + a * np.log(b) - (a + n / 2) * np.log(after)
    return risen + 0.5 * np.log(kappa / (kappa + n)) - n / 2 * np.log(2.0 * np.pi)


def over_partitions(evidence, n):
    """The log of the sum over all partitions of n rows, where a cluster of rows has a log evidence (S,)."""
    known, totals = {}, []
    for labels in exact.partitions(n):
        total = exact.log_eppf(labels, 1.0)
        for k in range(labels.max() + 1):
            members = tuple(np.flatnonzero(labels == k))
            if members not in known:
                known[members] = evidence(list(members))
            total = total + known[members]
        totals.append(total)
    return logsumexp(totals, axis=0)


def scale_exactly(rng):
    kr, dg = np.exp(rng.normal(-2.0, 1.0, N_PRIOR)), np.exp(rng.normal(1.0, 1.0, N_PRIOR))
    within = rng.exponential(0.5, size=(N_PRIOR, 2))
    a, kappa = 0.5 + 0.5 * dg, np.maximum(kr, 0.1)
    log_weights = over_partitions(
        lambda members: sum(evidences(ROWS[members, j], 0.0, kappa, a, a * within[:, j]) for j in range(2)), 5
    )
    return weighted_mean(np.log(np.column_stack([kr, dg, within[:, 0]])), log_weights)


def scale():
    """A learnt scale written out, but for kappa, which is the same where it is more than 0.1."""
    with pm.Model() as model:
        kr, dg = pm.LogNormal("kr", -2.0, 1.0), pm.LogNormal("dg", 1.0, 1.0)
        within = pm.Exponential("within", 2.0, shape=2)
        a = 0.5 + 0.5 * dg
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(0.0, pt.maximum(kr, 0.1), a, a * within), observed=ROWS)
    return model, lambda found: [np.log(found["kr"]), np.log(found["dg"]), np.log(found["within"][..., 0])]


def offset_exactly(rng):
    m, b = rng.normal(size=N_PRIOR), rng.normal(size=N_PRIOR)
    values = ROWS[:, 0] - np.abs(b)[:, None] * X
    log_weights = over_partitions(
        lambda members: evidences(values[:, members], np.where(m < 0.3, m, 0.6 - m), 0.5, 3.0, 0.4), 5
    )
    return weighted_mean(np.column_stack([m, b**2]), log_weights)


def offset():
    """A coefficient by its absolute value, and a mean that falls from 0.3 on."""
    with pm.Model() as model:
        m, b = pm.Normal("m"), pm.Normal("b")
        base = dp.NormalInverseGamma(pt.switch(m < 0.3, m, 0.6 - m), 0.5, 3.0, 0.4)
        dp.DPMixture("y", 1.0, base, observed=ROWS[:, 0], offset=pt.abs(b) * X)
    return model, lambda found: [found["m"], found["b"] ** 2]


def atoms_exactly(rng):
    m, b = rng.normal(1.0, 1.0, N_PRIOR), rng.normal(size=N_PRIOR)
    theta = np.abs(m)[:, None] + 0.5 * rng.standard_normal((N_PRIOR, 3))
    eta = theta[np.arange(N_PRIOR)[:, None], seats(rng, N_PRIOR, 3, 1.0)] + b[:, None]
    return weighted_mean(np.column_stack([m, b, b**2]), (COUNTS * eta - np.exp(eta)).sum(axis=1))


def atoms():
    """The mean of the base is |m|, and is the variable itself where a chain begins."""
    with pm.Model() as model:
        m, b = pm.Normal("m", 1.0, 1.0, initval=3.0), pm.Normal("b")
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(pt.abs(m), 0.5), shape=3)
        pm.Poisson("y", pm.math.exp(theta + b), observed=COUNTS)
    return model, lambda found: [found["m"], found["b"], found["b"] ** 2]


CASES = {
    "a mean by its absolute value": (
        lambda: latent_rows(pt.abs, 1),
        lambda rng: latent_rows_exactly(rng, np.abs, 1),
    ),
    "the positive part of a mean": (
        lambda: latent_rows(lambda m: pt.maximum(m, 0.0), 1),
        lambda rng: latent_rows_exactly(rng, lambda m: np.maximum(m, 0.0), 1),
    ),
    "means of columns in another order": (
        lambda: latent_rows(lambda m: m[::-1], 2),
        lambda rng: latent_rows_exactly(rng, lambda m: m[:, ::-1], 2),
    ),
    "a scale of a user's own": (scale, scale_exactly),
    "a coefficient and a mean in an offset": (offset, offset_exactly),
    "atoms around an absolute value": (atoms, atoms_exactly),
}


@pytest.mark.parametrize("case", rest_slow(CASES))
def test_what_is_no_such_structure_has_its_own_posterior(case):
    """Functions that agree with a variable at many points, against a million draws from the prior."""
    build, exactly = CASES[case]
    model, quantities = build()
    mean, error = exactly(np.random.default_rng(0))
    found = sampled.sample(model, 8_000, tune=1_500, chains=2, cores=1, random_seed=3).posterior
    drawn = {name: found[name].to_numpy() for name in found if "labels" not in str(name)}
    for values, expected, uncertain in zip(quantities(drawn), mean, error, strict=True):
        sampled.assert_mean_matches(values, expected, n_errors=4.0)
        assert uncertain < 0.1 * values.std()


def alike(build):
    with pm.Model() as model:
        theta = dp.DirichletProcess("theta", 1.0, pm.Normal.dist(0.0, 1.0), shape=6)
        rv = build(theta)
    process = ProcessModel(model, model["theta_labels"])
    return process.terms.are_alike(model, rv, 6)


LATE = np.where(X[[0, 1, 2, 3, 4, 4]] > 0.5, 1.0, 0.0)
SAME = {
    "nothing else": lambda theta: pm.Normal("y", theta, 1.0, observed=LATE),
    "a shared scale": lambda theta: pm.Normal("y", theta, pm.HalfNormal("s"), observed=LATE),
    "equal ends": lambda theta: pm.Censored(
        "y", pm.Normal.dist(theta, 1.0), lower=None, upper=np.full(6, 2.0), observed=LATE
    ),
    "units": lambda theta: pm.Normal("y", pt.exp(theta)[[0, 0, 1, 2, 4, 5]], 1.0, observed=LATE),
    "a mixture over components": lambda theta: pm.NormalMixture(
        "y", [0.3, 0.7], theta[:, None] + np.array([0.0, 1.0]), 1.0, observed=LATE
    ),
}
DIFFERING = {
    "a covariate": lambda theta: pm.Normal("y", theta + LATE, 1.0, observed=LATE),
    # The density is the same for all values and parameters but large ones.
    "a covariate beyond 50": lambda theta: pm.Normal(
        "y", theta + LATE * pt.maximum(theta - 50.0, 0.0), 1.0, observed=LATE
    ),
    "data": lambda theta: pm.Normal("y", theta, pm.Data("errors", LATE + 1.0), observed=LATE),
    "an effect of groups": lambda theta: pm.Normal(
        "y", theta + pm.Normal("g", shape=2)[LATE.astype(int)], 1.0, observed=LATE
    ),
    "a stack by groups": lambda theta: pm.Normal(
        "y", theta + pt.stack([0.0, pm.Normal("b")])[LATE.astype(int)], 1.0, observed=LATE
    ),
    "a range": lambda theta: pm.Normal("y", theta + pt.arange(6), 1.0, observed=LATE),
    "two halves": lambda theta: pm.Normal(
        "y", theta + pt.concatenate([pt.zeros(3), 8.0 * pt.ones(3)]), 1.0, observed=LATE
    ),
    "repeated numbers": lambda theta: pm.Normal(
        "y", theta + pt.repeat(pm.Normal("b", shape=3), 2), 1.0, observed=LATE
    ),
    "a sum that grows": lambda theta: pm.Normal("y", theta + pt.cumsum(pt.ones(6)), 1.0, observed=LATE),
    "halves of parameters": lambda theta: pm.Normal(
        "y", pt.concatenate([theta[:3], theta[3:] + 10.0]), 1.0, observed=LATE
    ),
    "an effect of each row": lambda theta: pm.Normal("y", theta + pm.Normal("g", shape=6), 1.0, observed=LATE),
}


@pytest.mark.parametrize("case", [*SAME, *DIFFERING])
def test_whether_observations_are_alike_is_read_from_the_graph(case):
    """A density of a new row of a process exists where nothing but the parameters differs between rows."""
    assert alike((SAME | DIFFERING)[case]) == (case in SAME)


def test_the_prior_draws_are_those_of_the_model():
    """Partitions of three rows from the Chinese restaurant process, and weighted means, against closed forms."""
    rng = np.random.default_rng(1)
    labels = seats(rng, 200_000, 3, 1.5)
    for partition in exact.partitions(3):
        p = np.exp(exact.log_eppf(partition, 1.5))
        share = np.mean(np.all(labels == partition, axis=1))
        assert abs(share - p) < 4.0 * np.sqrt(p * (1.0 - p) / 200_000)
    x = rng.normal(size=200_000)
    mean, error = weighted_mean(x[:, None], norm.logpdf(1.0, x))
    assert abs(mean - 0.5)[0] < 4.0 * error[0]
