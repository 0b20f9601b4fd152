"""A prior on partitions, and a kind of move, that another package adds, both held to enumeration."""

import math

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
from pymc_dpgmm.families.contract.view import View
from pymc_dpgmm.integration.variables.partition_operations import PartitionRV
from pymc_dpgmm.integration.variables.records import parse_numbers
from pymc_dpgmm.integration.variables.registered_labels import PartitionPrior, prior_record
from pymc_dpgmm.native.arithmetic import below, uniform
from pymc_dpgmm.native.compiled import INTS, NOTHING, c_function, inlined
from pymc_dpgmm.partitions.draws import draw_partition
from pymc_dpgmm.partitions.n_clusters import expected_n_clusters, n_clusters_pmf
from pymc_dpgmm.partitions.priors import (
    chinese_restaurant,
    given_by_weights,
    mixture_of_finite_mixtures,
    pitman_yor,
)
from pymc_dpgmm.sampler.moves.kinds import MOVES
from pymc_dpgmm.sampler.moves.move import Move, add_kind, tally_of_kind
from pymc_dpgmm.sampler.state.grouping import are_grouped
from pymc_dpgmm.sampler.state.memory import memory_at
from pymc_dpgmm.sampler.state.provided import KINDS_OF_MOVES
from pymc_dpgmm.sampler.state.slots import join, leave
from pymc_dpgmm.sampler.state.views import log_evidence
from pymc_dpgmm.sampler.tuning.corrected import CorrectedSchedule
from pymc_dpgmm.sampler.tuning.schedule import Options
from pymc_dpgmm.testing import draw_codes

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
    """A prior of another package with a random parameter, against enumeration and quadrature."""
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


class TiltedRV(PoissonComponentsRV):
    """The same with an array among its parameters."""

    name = "Tilted"
    fields = ("rate", "tilt")
    signature = "(),(l),()->(n)"


class Tilted(PartitionPrior):
    rv_op = TiltedRV()

    @classmethod
    def dist(cls, rate, tilt, n, **kwargs):
        return cls._made([rate, tilt], n, kwargs)

    def logp(value, rate, tilt, n):  # noqa: N805
        return PoissonComponents.density(value, rate, n)


def test_an_array_of_a_prior_is_recorded_as_it_is():
    """Nothing is known of its numbers; those of components of ``dp.MFM`` are cut where they are negligible."""
    with pm.Model() as model:
        own = Tilted("own", 0.7, np.array([0.0, -2_000.0, -3_000.0]), n=5)
        mixed = dp.MFM("mixed", 1.0, 5, components=pm.Poisson.dist(1.0))
    tilt = parse_numbers(prior_record(model, own, "own")["parameters"]["tilt"])
    assert tilt.tolist() == [0.0, -2_000.0, -3_000.0]
    kept = parse_numbers(prior_record(model, mixed, "mixed")["parameters"]["log_components"])
    assert kept[-1] > kept.max() - 690.0


ALPHAS, SHARES, DISCOUNT = np.array([0.2, 3.0]), np.array([0.4, 0.6]), 0.4


def weights_of_two(n):
    """Log V_n(K) for K = 1, ..., n, of one of two Pitman-Yor processes, which is a third prior of this type."""
    k = np.arange(n)
    parts = [np.cumsum(np.log(np.where(k > 0, a + k * DISCOUNT, 1.0))) - gammaln(a + n) for a in ALPHAS]
    return np.logaddexp(*(np.log(SHARES) + gammaln(ALPHAS + 1.0) + np.transpose(parts)).T)


class OneOfTwoRV(PartitionRV):
    """Known to the package by its weights alone."""

    name = "OneOfTwo"
    fields = ("discount",)
    signature = "(),()->(n)"
    _print_name = ("OneOfTwo", "OneOfTwo")

    def prior(self, discount, n):
        return given_by_weights(discount, weights_of_two(n))

    def log_eppf(self, sizes, n, discount):
        k, rest = sizes.shape[0], (pt.gammaln(sizes - discount) - pt.gammaln(1.0 - discount)).sum()
        later = pt.arange(1.0, pt.maximum(k, 1.0))
        parts = [
            np.log(share) + gammaln(a + 1.0) - pt.gammaln(a + n) + pt.log(a + later * DISCOUNT).sum()
            for a, share in zip(ALPHAS, SHARES, strict=True)
        ]
        return pt.switch(k > 0, pt.logaddexp(*parts) + rest, -np.inf)


class OneOfTwo(PartitionPrior):
    rv_op = OneOfTwoRV()

    @classmethod
    def dist(cls, discount, n, **kwargs):
        return cls._made([discount], n, kwargs)

    def logp(value, discount, n):  # noqa: N805
        return OneOfTwo.density(value, discount, n)


def probabilities_of_two():
    labels = exact.partitions(len(ROWS))
    log_v = weights_of_two(len(ROWS))
    log_p = [log_v[max(c)] + (gammaln(np.bincount(c) - DISCOUNT) - gammaln(1.0 - DISCOUNT)).sum() for c in labels]
    assert np.exp(log_p).sum() == pytest.approx(1.0)
    return labels, np.array(log_p)


@pytest.mark.parametrize("wrong", [0.0, 0.5])
def test_a_prior_given_by_its_weights(wrong, monkeypatch):
    """Neither a two-parameter process nor a mixture over numbers of components; other weights are seen."""
    labels, log_p = probabilities_of_two()
    log_p = log_p + exact.log_likelihoods(labels, ROWS[:, None], exact.LOG_MARGINALS["NormalInverseGamma"], **BASE)

    def prior(self, discount, n):
        return given_by_weights(discount, weights_of_two(n) + wrong * np.arange(n))

    monkeypatch.setattr(OneOfTwoRV, "prior", prior)
    with pm.Model():
        z = OneOfTwo("y_labels", DISCOUNT, 5)
        dp.CollapsedMixture("y", z, dp.NormalInverseGamma(**BASE), observed=ROWS)
        idata = pm.sample(8_000, tune=500, chains=1, random_seed=2, progressbar=False)
    found = exact.codes(idata.posterior["y_labels"].to_numpy())
    if wrong:
        with pytest.raises(AssertionError):
            exact.assert_matches(found, labels, np.exp(log_p - logsumexp(log_p)))
        return
    exact.assert_matches(found, labels, np.exp(log_p - logsumexp(log_p)))
    some = idata.isel(draw=slice(None, None, 80))
    x = np.linspace(-200.0, 200.0, 8_001)
    with pytest.raises(NotImplementedError, match="weights is not known under a prior that is given by its V_n"):
        dp.density(some, "y", x)
    rows = dp.log_density(some, "y", x)["row"]
    assert np.trapezoid(np.exp(rows), x) == pytest.approx(1.0, abs=0.02)


def test_draws_and_clusters_of_a_prior_given_by_its_weights():
    labels, log_p = probabilities_of_two()
    drawn = np.array(pm.draw(OneOfTwo.dist(DISCOUNT, 5), draws=20_000, random_seed=1))
    exact.assert_matches(exact.codes(drawn[None]), labels, np.exp(log_p))
    found = [pm.logp(OneOfTwo.dist(DISCOUNT, 5), np.array(own)).eval() for own in labels]
    np.testing.assert_allclose(found, log_p, rtol=1e-12)
    prior = given_by_weights(DISCOUNT, weights_of_two(5))
    pmf = np.bincount([max(c) + 1 for c in labels], np.exp(log_p), minlength=6)
    np.testing.assert_allclose(n_clusters_pmf(prior, 5), pmf, rtol=1e-12)
    assert expected_n_clusters(prior, 5) == pytest.approx(pmf @ np.arange(6))
    two = [share * n_clusters_pmf(pitman_yor(a, DISCOUNT), 300) for a, share in zip(ALPHAS, SHARES, strict=True)]
    np.testing.assert_allclose(
        n_clusters_pmf(given_by_weights(DISCOUNT, weights_of_two(300)), 300), sum(two), rtol=1e-9, atol=1e-300
    )


def test_weights_of_no_prior_are_refused():
    """NaN and impossible first clusters when the prior is made; weights that add up to something else in draws."""
    assert given_by_weights(DISCOUNT, np.array([np.nan, 0.0])) is None
    assert given_by_weights(DISCOUNT, np.array([-np.inf, 0.0])) is None
    assert given_by_weights(1.0, np.zeros(3)) is None
    assert given_by_weights(-1.0, np.array([-2.0, -1.0, -np.inf])).most == 2
    with pytest.raises(ValueError, match="those of no distribution"):
        draw_partition(np.random.default_rng(1), given_by_weights(DISCOUNT, weights_of_two(4) + 0.1), 4)


@inlined
def _exchange(head, trust):
    """Let two rows change places, which leaves the sizes of clusters as they are, and judge it by the evidence."""
    s = memory_at(head)
    if are_grouped(s):
        return
    tally = tally_of_kind(s)
    tally[0] += 1
    i, j = below(s.bits, s.n), below(s.bits, s.n)
    a, b = s.slots[i], s.slots[j]
    if a == b:
        return
    before = log_evidence(s, a) + log_evidence(s, b)
    leave(s, i)
    leave(s, j)
    join(s, i, b)
    join(s, j, a)
    if math.log(uniform(s.bits)) < trust * (log_evidence(s, a) + log_evidence(s, b) - before):
        tally[1] += 1
    else:
        leave(s, i)
        leave(s, j)
        join(s, i, a)
        join(s, j, b)


@c_function(NOTHING(INTS))
def exchange(head):
    _exchange(head, 1.0)


@c_function(NOTHING(INTS))
def exchange_too_often(head):
    _exchange(head, 0.9)


@pytest.fixture
def kind(request):
    move = Move("exchange", request.param, 0, 0, counts={"tried": 0, "exchanges": 1}, means={})
    add_kind(move)
    yield move
    del MOVES[move.name]
    KINDS_OF_MOVES.remove(move.name)


CLOSE = np.array([-1.2, -0.9, 0.0, 0.8, 1.3])


def crp_posterior():
    labels = exact.partitions(len(CLOSE))
    log_p = exact.log_likelihoods(labels, CLOSE[:, None], exact.LOG_MARGINALS["NormalInverseGamma"], **BASE)
    log_p = log_p + [gammaln(np.bincount(c).astype(float)).sum() for c in labels]
    return labels, np.exp(log_p - logsumexp(log_p))


def codes_and_counts(n_draws):
    base = dp.NormalInverseGamma(**BASE)
    view = View(base.family, base.numbers(1), CLOSE[:, None])
    # A kind from outside comes after those of the package.
    n_moves = [0] * (len(MOVES) - 1) + [4]
    return draw_codes([view], chinese_restaurant(1.0), n_draws, n_moves=n_moves)


@pytest.mark.parametrize("kind", [exchange], indirect=True)
def test_a_move_from_outside(kind):
    found, tally = codes_and_counts(1_000_000)
    assert tally[-1, 0] == 4_000_000
    assert tally[-1, 1] > 100_000
    exact.assert_matches(found, *crp_posterior())


@pytest.mark.parametrize("kind", [exchange_too_often], indirect=True)
def test_a_wrong_move_from_outside_is_seen(kind):
    found, _ = codes_and_counts(1_000_000)
    with pytest.raises(AssertionError, match="total variation"):
        exact.assert_matches(found, *crp_posterior())


@pytest.mark.parametrize("kind", [exchange], indirect=True)
def test_options_and_statistics_of_a_move_from_outside(kind):
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(**BASE), observed=CLOSE)
        run = {"draws": 20, "tune": 10, "chains": 1, "random_seed": 1, "progressbar": False}
        stats = pm.sample(**run, dpmixture={"n_sweeps": 1, "split_merge": {"exchange": 3}}).sample_stats
        assert (stats["y_labels_exchange_tried"] == 3).all()
        assert stats["y_labels_exchange_exchanges"].dtype == np.int64
        alone = pm.sample(**run, step=[dp.SplitMerge(exchange=2, search=False)]).sample_stats
        assert (alone["y_labels_exchange_tried"] == 2).all()
        with pytest.raises(ValueError, match="exchange must be at least 0"):
            dp.SplitMerge(exchange=-1)
        # Where other parts of the model depend on the labels, it is a proposal.
        pm.Potential("together", -1.0 * pt.neq(model["y_labels"][0], model["y_labels"][1]))
        stats = pm.sample(**run, dpmixture={"split_merge": {"exchange": 3}}).sample_stats
        assert (stats["y_labels_exchange_tried"] == 3).all()


@pytest.mark.parametrize("kind", [exchange], indirect=True)
def test_a_move_that_is_not_reversible_is_no_proposal(kind, monkeypatch):
    """Metropolis and Hastings would accept as if it were, and the labels had another posterior."""
    monkeypatch.setitem(MOVES, "exchange", kind._replace(reversible=False))
    with pytest.raises(NotImplementedError, match="exchange are not reversible, and cannot move labels"):
        CorrectedSchedule(Options(moves={"exchange": 1}))
    CorrectedSchedule(Options(moves={"exchange": 0}))
    CorrectedSchedule(Options())


def test_a_kind_of_move_has_one_name():
    with pytest.raises(ValueError, match="named 'random' already"):
        add_kind(MOVES["random"])
    with pm.Model():
        dp.DPMixture("y", 1.0, dp.NormalInverseGamma(**BASE), observed=CLOSE)
        with pytest.raises(TypeError, match="unknown kinds of moves: swap; there are random, sequential"):
            dp.SplitMerge(swap=1)
