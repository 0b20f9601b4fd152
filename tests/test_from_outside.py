"""A prior on partitions that another package adds, held to enumeration: sampled, summarised and stored."""

import arviz as az
import exact
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp
from slowly import rest_slow

import pymc_dpgmm as dp
from pymc_dpgmm.integration.variables.partition_priors import PartitionPrior, PartitionRV
from pymc_dpgmm.partitions.priors import mixture_of_finite_mixtures

ROWS = np.array([-2.0, -1.8, 0.0, 1.9, 2.2])
BASE = {"mu": 0.0, "kappa": 0.1, "a": 2.0, "b": 1.0}


TERMS = 200


def log_weights(rate, n):
    """Log V_n(K) for K = 1, ..., n, where one more than a Poisson number of components share the rows evenly."""
    m = np.arange(1, TERMS)
    terms = stats.poisson.logpmf(m - 1, rate) + gammaln(m) - gammaln(m + n)
    # Of m components, K have rows: m! / (m - K)!.
    ways = [np.where(m >= k, gammaln(m + 1) - gammaln(np.maximum(m - k, 0) + 1), -np.inf) for k in range(1, n + 1)]
    return np.array([logsumexp(terms + own) for own in ways])


class PoissonComponentsRV(PartitionRV):
    name = "PoissonComponents"
    fields = ("rate",)
    signature = "(),()->(n)"
    _print_name = ("PoissonComponents", "PoissonComponents")

    def prior(self, rate, n):
        if not rate > 0.0:
            return None
        return mixture_of_finite_mixtures(1.0, stats.poisson.logpmf(np.arange(TERMS), rate), n)

    def log_eppf(self, sizes, n, rate):
        m, k = pt.arange(1.0, TERMS), sizes.shape[0]
        terms = (m - 1.0) * pt.log(rate) - rate + pt.gammaln(m + 1.0) - pt.gammaln(m + n)
        ways = pt.switch(m >= k, -pt.gammaln(pt.maximum(m - k, 0.0) + 1.0), -np.inf)
        log_p = pt.logsumexp(terms + ways) + pt.gammaln(sizes + 1.0).sum()
        return pt.switch((rate > 0) & (k > 0), log_p, -np.inf)


class PoissonComponents(PartitionPrior):
    rv_op = PoissonComponentsRV()

    def __new__(cls, name, rate, n, **kwargs):
        return super().__new__(cls, name, rate, n, **kwargs)

    @classmethod
    def dist(cls, rate, n, **kwargs):
        return cls._made([rate], n, kwargs)

    def logp(value, rate, n):  # noqa: N805
        return PoissonComponents.density(value, rate, n)


def posterior(rates, weights):
    """Probabilities of all partitions of the rows, with a distribution of the rate on a grid."""
    labels = exact.partitions(len(ROWS))
    likelihood = exact.log_likelihoods(labels, ROWS[:, None], exact.LOG_MARGINALS["NormalInverseGamma"], **BASE)
    p = 0.0
    for rate, weight in zip(rates, weights, strict=True):
        log_v = log_weights(rate, len(ROWS))
        log_prior = [log_v[max(c)] + gammaln(np.bincount(c) + 1.0).sum() for c in labels]
        assert np.exp(log_prior).sum() == pytest.approx(1.0)
        p = p + weight * np.exp(log_prior + likelihood - likelihood.max())
    return labels, p / p.sum()


@pytest.mark.parametrize("is_random", rest_slow([False, True]))
def test_a_prior_from_outside(is_random, tmp_path):
    grid = np.linspace(0.005, 12.0, 1_500)
    rates, weights = (grid, stats.gamma.pdf(grid, 2.0)) if is_random else ([0.7], [1.0])
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 1.0) if is_random else 0.7
        labels = PoissonComponents("y_labels", rate, 5)
        dp.CollapsedMixture("y", labels, dp.NormalInverseGamma(**BASE), observed=ROWS)
        idata = pm.sample(6_000, tune=500, chains=1, random_seed=2, progressbar=False)
    exact.assert_matches(exact.codes(idata.posterior["y_labels"].to_numpy()), *posterior(rates, weights))
    assert pm.draw(model["y_labels"], draws=3, random_seed=1).shape == (3, 5)
    idata.to_netcdf(tmp_path / "draws.nc")
    stored = az.from_netcdf(tmp_path / "draws.nc")
    assert dp.summary(stored.isel(draw=slice(None, None, 60)), "y").clusters["size"].sum() == 5
    x = np.linspace(-60.0, 60.0, 4_001)
    density = dp.density(stored.isel(draw=slice(None, None, 60)), "y", x)["mean"]
    assert np.trapezoid(density.to_numpy(), x) == pytest.approx(1.0, abs=0.03)
    if not is_random:
        with model, pytest.raises(TypeError, match="does not support the prior PoissonComponents"):
            dp.fit(progressbar=False)
