"""Priors on partitions and labels."""

import exact
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import sampled
from scipy import stats
from scipy.special import gammaln, logsumexp

import pymc_dpgmm as dp
from pymc_dpgmm.partitions.draws import count_new_clusters, draw_partition, draw_start, seat_rows
from pymc_dpgmm.partitions.labels import canonical_labels, cluster_sizes, matched_names
from pymc_dpgmm.partitions.n_clusters import expected_n_clusters, n_clusters_pmf
from pymc_dpgmm.partitions.priors import (
    check_series,
    chinese_restaurant,
    finite_dirichlet,
    log_eppf,
    log_seat,
    log_seat_new,
    log_split,
    mixture_of_finite_mixtures,
    n_terms,
    pitman_yor,
)
from pymc_dpgmm.sampler.moves.sweep import gibbs_scan
from pymc_dpgmm.sampler.state.state import State

pytestmark = pytest.mark.interpreted

ALPHA = 1.7
N_ROWS = 7


def poisson_components(n):
    """Poisson(2) conditioned on 1 or more: log probabilities of 1, 2, ... components."""
    m = np.arange(1, n_terms(n) + 1)
    return m * np.log(2.0) - gammaln(m + 1.0) - np.log(np.expm1(2.0))


LOG_COMPONENTS = poisson_components(N_ROWS)
PRIORS = {
    "crp": (chinese_restaurant(ALPHA), lambda p: exact.log_eppf(p, ALPHA)),
    "pitman-yor": (pitman_yor(0.6, 0.35), lambda p: exact.log_pitman_yor(p, 0.6, 0.35)),
    "pitman-yor-negative": (pitman_yor(-0.3, 0.7), lambda p: exact.log_pitman_yor(p, -0.3, 0.7)),
    "finite": (finite_dirichlet(1.5, 3), lambda p: exact.log_finite_dirichlet(p, 1.5, 3)),
    "one-component": (finite_dirichlet(1.5, 1), lambda p: exact.log_finite_dirichlet(p, 1.5, 1)),
    "finite-large": (finite_dirichlet(2.0, 50), lambda p: exact.log_finite_dirichlet(p, 2.0, 50)),
    "mfm": (
        mixture_of_finite_mixtures(0.7, LOG_COMPONENTS, N_ROWS),
        lambda p: exact.log_mfm(p, 0.7, LOG_COMPONENTS[:80]),
    ),
}


@pytest.fixture(params=list(PRIORS))
def prior(request):
    return PRIORS[request.param]


def test_eppf_sums_to_one_and_equals_the_slow_one(prior):
    numeric, slow = prior
    logs = []
    for labels in exact.partitions(N_ROWS):
        sizes = cluster_sizes(labels)
        logs.append(log_eppf(numeric, sizes, len(sizes)))
        assert logs[-1] == pytest.approx(slow(labels), rel=1e-11, abs=1e-11)
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-11)


def test_seats_and_splits_are_ratios_of_the_eppf(prior):
    """Weights of a row given all others, and of a division, as the kernels use them."""
    numeric, slow = prior
    for labels in exact.partitions(N_ROWS):
        if slow(labels) == -np.inf:
            continue
        sizes = np.bincount(labels[:-1])
        log_weights = [log_seat(numeric, m) for m in sizes] + [log_seat_new(numeric, len(sizes))]
        joint = [slow(np.append(labels[:-1], k)) for k in range(len(sizes) + 1)]
        np.testing.assert_allclose(log_weights - logsumexp(log_weights), joint - logsumexp(joint), atol=1e-10)
        own = np.flatnonzero(labels == labels.max())
        if len(own) > 1:
            divided = labels.copy()
            divided[own[:-1]] = labels.max() + 1
            divided = canonical_labels(divided)[0]
            assert log_split(numeric, labels.max() + 1, len(own) - 1, 1) == pytest.approx(
                slow(divided) - slow(labels), abs=1e-10
            )


def test_draws_follow_the_eppf(prior):
    numeric, slow = prior
    rng = np.random.default_rng(2)
    all_labels = exact.partitions(N_ROWS)
    p = np.exp([slow(labels) for labels in all_labels])
    draws = np.array([draw_partition(rng, numeric, N_ROWS) for _ in range(50_000)])
    distance = exact.total_variation(exact.frequencies(exact.codes(draws), all_labels), p)
    assert distance <= exact.total_variation_bound(p, len(draws))


def test_number_of_clusters(prior):
    numeric, slow = prior
    all_labels = exact.partitions(N_ROWS)
    expected = np.bincount(
        all_labels.max(axis=1) + 1, np.exp([slow(labels) for labels in all_labels]), minlength=N_ROWS + 1
    )
    pmf = n_clusters_pmf(numeric, N_ROWS)
    np.testing.assert_allclose(pmf, expected, atol=1e-12)
    assert expected_n_clusters(numeric, N_ROWS) == pytest.approx(pmf @ np.arange(N_ROWS + 1), rel=1e-12)


def test_number_of_clusters_of_many_rows():
    """Expectations in closed form, and probabilities that sum to one, where a table of all pairs would not do."""
    n = 100_000
    pmf = dp.CRP.n_clusters_pmf(5.0, n)
    assert pmf.sum() == pytest.approx(1.0, abs=1e-10)
    assert pmf @ np.arange(n + 1) == pytest.approx(np.sum(5.0 / (5.0 + np.arange(n))), rel=1e-10)


def test_parameters_from_an_expected_number():
    n = 250
    numbers = np.arange(n + 1)
    alpha = dp.CRP.alpha_for_n_clusters(8.0, n)
    assert dp.CRP.n_clusters_pmf(alpha, n) @ numbers == pytest.approx(8.0, rel=1e-9)
    alpha = dp.PitmanYor.alpha_for_n_clusters(12.0, 0.25, n)
    assert dp.PitmanYor.n_clusters_pmf(alpha, 0.25, n) @ numbers == pytest.approx(12.0, rel=1e-9)
    alpha = dp.FiniteDirichlet.alpha_for_n_clusters(4.0, 6, n)
    assert dp.FiniteDirichlet.n_clusters_pmf(alpha, 6, n) @ numbers == pytest.approx(4.0, rel=1e-9)
    gamma = dp.MFM.gamma_for_n_clusters(3.0, n, components=pm.Poisson.dist(4))
    pmf = dp.MFM.n_clusters_pmf(gamma, n, components=pm.Poisson.dist(4))
    assert pmf @ numbers == pytest.approx(3.0, rel=1e-9)
    with pytest.raises(ValueError, match=r"lies between 1 and 6 .*cannot be 7"):
        dp.FiniteDirichlet.alpha_for_n_clusters(7.0, 6, n)
    # Few clusters under a heavy tail need a negative alpha.
    alpha = dp.PitmanYor.alpha_for_n_clusters(2.0, 0.5, n)
    assert -0.5 < alpha < 0
    assert dp.PitmanYor.n_clusters_pmf(alpha, 0.5, n) @ numbers == pytest.approx(2.0, rel=1e-6)
    with pytest.raises(ValueError, match=r"got alpha = 0\.5 and discount = 1\.0"):
        dp.PitmanYor.n_clusters_pmf(0.5, 1.0, n)


MODELS = {
    "crp": lambda: dp.CRP("z", pm.Gamma("alpha", 2, 1), N_ROWS),
    "pitman-yor": lambda: dp.PitmanYor("z", pm.Gamma("alpha", 2, 1), pm.Beta("discount", 2, 2), N_ROWS),
    "finite": lambda: dp.FiniteDirichlet("z", pm.Gamma("alpha", 2, 1), 3, N_ROWS),
    "mfm": lambda: dp.MFM(
        "z", pm.Gamma("gamma", 2, 1), N_ROWS, components=pm.Poisson.dist(pm.Gamma("mean", 4, 2))
    ),
}
SLOW = {
    "crp": lambda p, alpha: exact.log_eppf(p, alpha),
    "pitman-yor": exact.log_pitman_yor,
    "finite": lambda p, alpha: exact.log_finite_dirichlet(p, alpha, 3),
    "mfm": lambda p, gamma, mean: exact.log_mfm(p, gamma, zero_truncated_poisson(mean)),
}


def zero_truncated_poisson(mean):
    m = np.arange(1, 100)
    return m * np.log(mean) - gammaln(m + 1.0) - np.log(np.expm1(mean))


@pytest.mark.parametrize("kind", MODELS)
def test_densities_in_a_model_and_their_gradients(kind):
    with pm.Model() as model:
        MODELS[kind]()
    logp = model.compile_logp([model["z"]], jacobian=False)
    gradient = model.compile_dlogp([rv for rv in model.free_RVs if rv.name != "z"], jacobian=False)
    point = model.initial_point(3)
    parameters = {
        v.name: float(model.rvs_to_transforms[rv].backward(point[v.name]).eval())
        for rv, v in model.rvs_to_values.items()
        if v.name != "z"
    }
    for labels in ([0, 0, 1, 2, 1, 1, 0], [0] * 7, [4, 4, 4, 2, 2, 2, 2]):
        at = point | {"z": np.array(labels)}
        canonical = canonical_labels(np.array(labels))[0]
        assert logp(at) == pytest.approx(SLOW[kind](canonical, *parameters.values()), rel=1e-9)
        whole = model.compile_logp(jacobian=False)
        free = [v.name for v in model.value_vars if v.name != "z"]
        for i, name in enumerate(free):
            up, down = (whole(at | {name: at[name] + step}) for step in (1e-6, -1e-6))
            assert gradient(at)[i] == pytest.approx((up - down) / 2e-6, rel=1e-4, abs=1e-6)
    assert logp(point | {"z": np.full(7, 7)}) == -np.inf
    if kind == "finite":
        assert logp(point | {"z": np.array([0, 1, 2, 3, 0, 0, 0])}) == -np.inf


@pytest.mark.parametrize("kind", MODELS)
def test_prior_draws_and_starts(kind):
    with pm.Model() as model:
        MODELS[kind]()
        drawn = pm.sample_prior_predictive(50, random_seed=1).prior["z"].to_numpy()[0]
    for labels in drawn:
        np.testing.assert_array_equal(canonical_labels(labels.astype(np.int64))[0], labels)
    starts = {model.initial_point(seed)["z"].max() for seed in range(20)}
    assert len(starts) > 1
    assert kind != "finite" or max(starts) <= 2


def test_a_heavy_tail_of_components_is_refused():
    log_components = -2.0 * np.log(np.arange(1, n_terms(3) + 1)) - np.log(np.pi**2 / 6)
    prior = mixture_of_finite_mixtures(1.0, log_components, 3)
    log_eppf(prior, np.array([1, 1, 1]), 3)
    with pytest.raises(ValueError, match="too heavy a tail"):
        check_series(prior.log_v)
    state = State([], np.array([0, 1, 2]))
    state.set_prior(prior)
    with pytest.raises(ValueError, match="too heavy a tail"):
        gibbs_scan(np.random.default_rng(0), state, np.arange(3))


COMPONENTS = {
    "bounded": lambda: pm.DiscreteUniform.dist(1, 4),
    "around-zero": lambda: pm.DiscreteUniform.dist(-2, 4),
    "far": lambda: pm.DiscreteUniform.dist(1500, 1600),
    "default": lambda: None,
    "wide": lambda: pm.Geometric.dist(0.001),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow) if k == "wide" else k for k in COMPONENTS]
)
def test_components_of_many_kinds(kind):
    """Densities sum to one, agree with the number of clusters, and starts are possible."""
    n = 5
    with pm.Model() as model:
        dp.MFM("z", 0.7, n, components=COMPONENTS[kind]())
    logp, all_labels = model.compile_logp(), exact.partitions(n)
    p = np.exp([logp({"z": labels}) for labels in all_labels])
    assert p.sum() == pytest.approx(1.0, abs=1e-9)
    pmf = dp.MFM.n_clusters_pmf(0.7, n, components=COMPONENTS[kind]())
    np.testing.assert_allclose(pmf, np.bincount(all_labels.max(axis=1) + 1, p, minlength=n + 1), atol=1e-9)
    with pm.Model() as model:
        dp.MFM("z", 0.7, 200, components=COMPONENTS[kind]())
    logp = model.compile_logp()
    assert all(np.isfinite(logp(model.initial_point(seed))) for seed in range(10))
    apart = logp({"z": np.arange(200)})
    assert np.isfinite(apart) == (kind not in ("bounded", "around-zero"))


def test_components_that_hold_no_mass_are_refused():
    heavy = pm.CustomDist.dist(logp=lambda value: -2.0 * pt.log(value) - np.log(np.pi**2 / 6), dtype="int64")
    with pm.Model(), pytest.raises(ValueError, match="too heavy a tail"):
        dp.MFM("z", 1.0, 10, components=heavy)
    with pytest.raises(ValueError, match=r"discount must lie in \[0, 1\), got 1.5"):
        dp.PitmanYor.alpha_for_n_clusters(5, 1.5, 100)
    with pytest.raises(ValueError, match="n_components an integer of at least 1"):
        dp.FiniteDirichlet.n_clusters_pmf(1.0, 2.5, 5)


RANDOM_COMPONENTS = {
    "poisson": (lambda mean: pm.Poisson.dist(mean), [1e-8, 2.0, 900.0, 1e4]),
    "geometric": (lambda mean: pm.Geometric.dist(1.0 / (1.0 + mean)), [1e-3, 30.0, 3e3]),
    "negative binomial": (lambda mean: pm.NegativeBinomial.dist(mu=mean, alpha=0.7), [1e-3, 10.0, 2e3]),
    "zero-inflated": (lambda mean: pm.ZeroInflatedPoisson.dist(0.3, mean), [0.5, 2e3]),
}


@pytest.mark.parametrize("kind", RANDOM_COMPONENTS)
def test_random_components_have_the_density_of_fixed_ones_at_any_values(kind):
    """Slices and NUTS try values far beyond the posterior."""
    make, means = RANDOM_COMPONENTS[kind]
    n = 4
    with pm.Model() as model:
        dp.MFM("z", 0.7, n, components=make(pm.HalfNormal("mean", 1e3)))
    logp = model.compile_logp(vars=[model["z"]])
    for mean in means:
        pmf = dp.MFM.n_clusters_pmf(0.7, n, components=make(mean))
        p = [np.exp(logp({"mean_log__": np.log(mean), "z": labels})) for labels in exact.partitions(n)]
        found = np.bincount([labels.max() + 1 for labels in exact.partitions(n)], p, minlength=n + 1)
        np.testing.assert_allclose(found, pmf, atol=2e-8)
    far = logp({"mean_log__": np.log(1e12), "z": np.zeros(n, dtype=int)})
    assert far == -np.inf


def test_random_components_do_not_end_a_run():
    rows = np.random.default_rng(0).normal(size=40) + 4.0 * (np.arange(40) % 2)
    with pm.Model() as model:
        dp.MFMixture("y", 1.0, components=pm.Poisson.dist(pm.HalfNormal("mean", 20.0)), observed=rows)
    idata = sampled.sample(model, 100, tune=100, chains=1, random_seed=1)
    assert np.all(np.isfinite(idata.posterior["mean"]))


def test_mixtures_of_numbers_of_components_are_fixed_too():
    # Python numbers would be of single precision.
    parts = [pm.Poisson.dist(np.array(mean)) for mean in (3.0, 1500.0)]
    pmf = dp.MFM.n_clusters_pmf(1.0, 3, components=pm.Mixture.dist([0.5, 0.5], parts))
    halves = [dp.MFM.n_clusters_pmf(1.0, 3, components=part) for part in parts]
    # Conditioned on one component at the least, which the first part is not always.
    share = -np.expm1(-3.0)
    np.testing.assert_allclose(pmf, (share * halves[0] + halves[1]) / (1.0 + share), atol=1e-8)


def test_canonical_labels():
    canonical, n_clusters = canonical_labels(np.array([4, 4, 0, 3, 0]))
    assert canonical.tolist() == [0, 0, 1, 2, 1]
    assert n_clusters == 3
    assert cluster_sizes(np.array([4, 4, 0, 3, 0])).tolist() == [2, 2, 1]


@pytest.mark.parametrize("bad", [[0, 5, 1, 1, 1], [0, -1, 1, 1, 1]])
def test_labels_outside_the_range(bad):
    assert len(cluster_sizes(np.array(bad))) == 0
    with pytest.raises(ValueError, match=r"0\.\.n-1"):
        canonical_labels(np.array(bad))


@pytest.mark.parametrize("n", [1, 3, 500])
def test_starts_are_spread(n):
    counts = [draw_start(np.random.default_rng(seed), n).max() + 1 for seed in range(300)]
    assert min(counts) == 1
    assert max(counts) <= min(n, 50)
    if n == 500:
        assert max(counts) > 40
        assert 5 < np.median(counts) < 10


def test_matched_names_follow_clusters_and_lead_back():
    rng = np.random.default_rng(0)
    for _ in range(200):
        labels, others = (canonical_labels(rng.integers(k, size=12))[0] for k in rng.integers(1, 8, size=2))
        names, back = matched_names(labels, others), matched_names(others, labels)
        np.testing.assert_array_equal(back[names], np.arange(len(names)))
        assert len(names) == max(labels.max(), others.max()) + 1
    moved = np.array([0, 1, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(matched_names(np.array([0, 0, 0, 0, 1, 1, 1]), moved), [1, 2, 0])
    np.testing.assert_array_equal(matched_names(moved, np.array([0, 0, 0, 0, 1, 1, 1])), [2, 0, 1])


@pytest.mark.parametrize(("alpha", "discount"), [(1.3, 0.0), (0.7, 0.4), (1.5, -0.5)])
def test_counted_new_clusters_are_those_of_seated_rows(alpha, discount):
    """A finite mixture of three components among them, which opens one more cluster at the most."""
    rng, sizes, m = np.random.default_rng(3), np.array([4, 2]), 12
    seated = [len(set(seat_rows(rng, alpha, discount, sizes, m).tolist()) - {0, 1}) for _ in range(5_000)]
    counted = [count_new_clusters(rng, alpha, discount, sizes, m) for _ in range(5_000)]
    width = max(*seated, *counted) + 1
    table = np.array([np.bincount(own, minlength=width) for own in (seated, counted)])
    table = table[:, table.sum(axis=0) > 10]
    assert stats.chi2_contingency(table).pvalue > 1e-4
    if discount < 0.0:
        assert max(counted) == 1


@pytest.mark.parametrize("observed", [["b", "a", "b", "b"], [70, 900, 70, 70], [1, 0, 1, 1]])
def test_observed_labels_may_be_names(observed):
    """The density is that of the partition, whatever its clusters are called."""
    with pm.Model() as model:
        dp.PitmanYor("z", 0.8, 0.3, n=4, observed=observed)
    found = model.compile_logp()(model.initial_point())
    assert found == pytest.approx(exact.log_pitman_yor(np.array([0, 1, 0, 0]), 0.8, 0.3))


def test_counts_are_no_labels():
    with pm.Model(), pytest.raises(ValueError, match=r"one label for each of 10 rows.*np.repeat"):
        dp.CRP("z", 1.0, n=10, observed=[4, 3, 3])
