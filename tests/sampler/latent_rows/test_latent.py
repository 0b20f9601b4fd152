"""Latent pairs with an offset: density and labels' step against a second program, at every partition."""

import exact
import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats
from scipy.special import logsumexp
from scipy.stats import beta, gamma, norm, poisson

import pymc_dpgmm as dp

MU, KAPPA, NU, PSI = np.array([0.3, 0.6]), 0.3, 5.0, np.array([[0.6, 0.2], [0.2, 0.4]])
N = 6
RNG = np.random.default_rng(5)
ALPHA, DISCOUNT, OFFSET = 0.9, 0.35, np.array([0.4, -0.3])
EFFECT = OFFSET + MU + RNG.normal(size=(N, 2)) * np.array([1.0, 0.6])
COUNTS = RNG.poisson(np.exp(EFFECT))
PARTITIONS = np.array(list(exact.partitions(N)))


def model():
    with pm.Model() as built:
        alpha, discount = pm.Gamma("alpha", 2.0, 2.0), pm.Beta("discount", 2.0, 4.0)
        offset = pm.Normal("offset", 0.0, 0.5, shape=2)
        base = dp.NormalInverseWishart(MU, KAPPA, NU, PSI)
        effect = dp.PYMixture("effect", alpha, discount, base, shape=(N, 2), offset=offset[None, :])
        pm.Poisson("count", pm.math.exp(effect), observed=COUNTS)
    return built


def point(labels):
    return {
        "alpha_log__": np.log(ALPHA),
        "discount_logodds__": np.log(DISCOUNT / (1.0 - DISCOUNT)),
        "offset": OFFSET,
        "effect": EFFECT,
        "effect_labels": np.asarray(labels, dtype=np.int16),
    }


def seating(labels, alpha, discount):
    """Log probability of seating the rows one by one."""
    total = 0.0
    for i in range(1, N):
        sizes = np.bincount(labels[:i])
        weights = np.append(sizes - discount, alpha + discount * len(sizes))
        total += np.log(weights[labels[i]] / weights.sum())
    return total


def log_joint(labels, discount=DISCOUNT):
    labels = np.asarray(labels)
    rows = EFFECT - OFFSET
    clusters = [rows[labels == k] for k in range(labels.max() + 1)]
    total = seating(labels, ALPHA, discount)
    total += sum(exact.niw_log_marginal(own, MU, KAPPA, NU, PSI) for own in clusters)
    total += gamma(2.0, scale=0.5).logpdf(ALPHA) + np.log(ALPHA)
    total += beta(2.0, 4.0).logpdf(DISCOUNT) + np.log(DISCOUNT * (1.0 - DISCOUNT))
    return total + norm(0.0, 0.5).logpdf(OFFSET).sum() + poisson(np.exp(EFFECT)).logpmf(COUNTS).sum()


@pytest.mark.slow
def test_density_and_labels_given_the_rest():
    """Latent rows by NUTS: density and labels against quadrature."""
    expected = np.array([log_joint(labels) for labels in PARTITIONS])
    n_clusters = PARTITIONS.max(axis=1) + 1
    with model() as built:
        logp = built.compile_logp()
        step = dp.DPMixtureStep(vars=[built["effect_labels"]])
    np.testing.assert_allclose([logp(point(labels)) for labels in PARTITIONS], expected, rtol=0, atol=1e-6)
    step.setup_chain(np.random.default_rng(1), 100, 10_000)
    now, found = point(np.zeros(N)), []
    for draw in range(10_100):
        if draw == 100:
            step.stop_tuning()
        now, _ = step.step(now)
        found.append(float(len(np.unique(now["effect_labels"]))))
    kept = np.array(found[100:])
    error = kept.std() / np.sqrt(array_stats.ess(kept[None, :], method="mean"))

    def mean(log_p):
        return float(np.exp(log_p - logsumexp(log_p)) @ n_clusters)

    # A chance of 6e-5; a discount that is off by 0.1 is seen.
    assert abs(kept.mean() - mean(expected)) < 4.0 * error
    other = np.array([log_joint(labels, DISCOUNT + 0.1) for labels in PARTITIONS])
    assert abs(kept.mean() - mean(other)) > 4.0 * error
