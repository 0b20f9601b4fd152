r"""A family of one's own, exponential waiting times with a gamma prior on the rate, and the tests it must pass.

For each column :math:`\lambda \sim \mathrm{Gamma}(a, b)`, b a rate, and :math:`x_i \sim
\mathrm{Exponential}(\lambda)`. The n values of a cluster with sum S have the marginal likelihood

.. math:: \frac{\Gamma(a + n)}{\Gamma(a)} \frac{b^a}{(b + S)^{a + n}}.

Copy this file, and replace the formulas. ``python docs/waiting_times.py`` runs the contract test, and the
sampler against an enumeration of all partitions of six rows.
"""

import math

import numpy as np
from scipy.special import psi as digamma
from scipy.stats import lomax

import pymc_dpgmm as dp
from pymc_dpgmm.families import Component, Family, positive, refuse_where
from pymc_dpgmm.testing import check_family, check_sampler


def update(p, n, s, x, sign):
    """Add a row (sign 1.0) to the sums of a cluster, or take it out (-1.0); return the share that is left."""
    share = 1.0
    for j in range(p.d):
        before = s.total[j]
        s.total[j] = max(before + sign * x[j], 0.0)
        share = min(share, (p.b[j] + s.total[j]) / (p.b[j] + before))
    return share


def log_evidence(p, n, s):
    """Log marginal likelihood of the n rows of a cluster. Predictives and the sampler follow from it."""
    value = 0.0
    for j in range(p.d):
        value += math.lgamma(p.a[j] + n) - math.lgamma(p.a[j]) + p.a[j] * math.log(p.b[j])
        value -= (p.a[j] + n) * math.log(p.b[j] + s.total[j])
    return value


def gradient(params, s):
    """Gradient of the log evidence in the parameters, summed over the clusters: (d,) each, for NUTS."""
    shape, rate = params.a + s.n, params.b + s.total
    return {
        "a": np.sum(digamma(shape) - digamma(params.a) + np.log(params.b / rate), axis=0),
        "b": np.sum(params.a / params.b - shape / rate, axis=0),
    }


def check_values(params, values):
    """Refuse what is no waiting time, where a user's data enters."""
    refuse_where(values < 0, "waiting times must be >= 0", values)


# What is done after sampling: draws of the clusters' parameters, rows given these, and densities (n, K).
COMPONENT = Component(
    axes={"rate": "d"},
    draw=lambda rng, params, s: {"rate": rng.gamma(params.a + s.n, 1.0 / (params.b + s.total))},
    draw_rows=lambda rng, drawn, labels, given: rng.exponential(1.0 / drawn["rate"][labels]),
    log_density=lambda drawn, values: np.log(drawn["rate"]).sum(axis=1) - values @ drawn["rate"].T,
    bounds=(0.0, math.inf),
)


class WaitingTimes(dp.BaseMeasure):
    """Base measure of exponential waiting times: ``rate ~ Gamma(a, b)`` for each cluster and column."""

    family = Family(
        name="WaitingTimes",
        parameters={"a": positive("d"), "b": positive("d")},
        sums={"total": "d"},
        update=update,
        log_evidence=log_evidence,
        gradient=gradient,
        component=COMPONENT,
        check_values=check_values,
    )

    def __init__(self, a, b):
        super().__init__(a=a, b=b)


def slow_log_marginal(values, a, b):
    """Telescoping predictives by SciPy, which share nothing with the above."""
    return sum(lomax.logpdf(x, a + i, scale=b + values[:i].sum(axis=0)).sum() for i, x in enumerate(values))


TIMES = np.array([[0.3], [0.1], [2.5], [4.0], [0.2], [1.1], [0.7]])

if __name__ == "__main__":
    check_family(WaitingTimes(1.3, 0.4), TIMES, slow_log_marginal)
    check_family(WaitingTimes([1.3, 0.5], 2.0), np.hstack([TIMES, TIMES[::-1]]), slow_log_marginal)
    print("the contract is kept")
    check_sampler(WaitingTimes(1.3, 0.4), TIMES[:6], slow_log_marginal, n_draws=200_000)
    print("the sampler agrees with the enumeration")
