"""What is known of a partition: rows whose clusters are known, and rows that must share one."""

import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import sampled
from exact import assert_matches, log_pitman_yor
from scipy.integrate import trapezoid
from scipy.special import gammaln, logsumexp
from scipy.stats import gamma, multivariate_normal, norm
from slowly import rest_slow
from small_posteriors import PRIORS_OF_EIGHT, N

import pymc_dpgmm as dp
from pymc_dpgmm.families import View, constrained
from pymc_dpgmm.partitions.known import allow, blocks_of, draw_constrained_start, make_constraints
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.amounts import Effort
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.tuning.exploration import explore
from pymc_dpgmm.testing import codes, draw_codes, log_likelihoods, normalized, partitions

pytestmark = pytest.mark.interpreted

KNOWN = np.array([0, -1, 7, -1, -1, 0, -1, -1])
LINKED = np.array([-1, -1, -1, 3, -1, -1, 3, -1])
CONSTRAINTS = make_constraints(N, KNOWN, LINKED)
BLOCKS = blocks_of(CONSTRAINTS)
M = len(BLOCKS.first)
BASE = dp.NormalInverseGamma([0.5, 1.5], 0.3, 1.8, [0.6, 1.1])
MEANS = np.array([0.0, 0.9, 0.3, 1.4, 1.1, 0.4, 0.8, 2.0])


def rows(seed=0):
    rng = np.random.default_rng(seed)
    return MEANS[:, None] + rng.normal(size=(N, 2)) * np.array([0.6, 1.1])


def may_be(labels):
    """Written out for the rows of this file."""
    return labels[0] == labels[5] and labels[0] != labels[2] and labels[3] == labels[6]


def all_allowed():
    """All partitions of rows that keep the constraints, and of blocks, in the same order."""
    of_rows = np.array([labels for labels in partitions(N) if may_be(labels)])
    return of_rows, of_rows[:, BLOCKS.first]


def log_likelihood(all_labels):
    slow = exact.LOG_MARGINALS["NormalInverseGamma"]
    params, data = BASE.numbers(2)._asdict(), rows()
    return log_likelihoods(all_labels, lambda members: slow(data[members], **params))


def views(prior):
    of_blocks = View(constrained.FAMILY, constrained.FAMILY.params(prior.discount), BLOCKS.table)
    return [View(BASE.family, BASE.numbers(2), rows(), BLOCKS.of_row), of_blocks]


def posterior(name):
    of_rows, of_blocks = all_allowed()
    p = normalized(log_likelihood(of_rows) + np.array([PRIORS_OF_EIGHT[name][1](labels) for labels in of_rows]))
    assert p.max() < 0.6
    return of_blocks, p


@pytest.mark.parametrize(
    ("name", "n_draws"),
    [
        ("pitman-yor", 200_000),
        *(pytest.param(name, 500_000, marks=pytest.mark.slow) for name in PRIORS_OF_EIGHT),
    ],
)
def test_partition_frequencies(name, n_draws):
    """Every prior given known labels, against enumeration over what remains possible."""
    prior = PRIORS_OF_EIGHT[name][0]._replace(extra=float(N - M))
    of_blocks, p = posterior(name)
    start = draw_constrained_start(np.random.default_rng(0), CONSTRAINTS)[BLOCKS.first]
    drawn, _ = draw_codes(views(prior), prior, n_draws, labels=start)
    assert_matches(drawn, of_blocks, p)


def test_many_labels_without_data():
    """There are no leader sweeps with constraints, also where nothing but the prior depends on the labels."""
    known = np.full(25_000, -1)
    known[:20] = np.repeat([0, 1], 10)
    with pm.Model() as model:
        dp.CRP("z", 1.0, n=len(known), known_labels=known)
    labels = sampled.sample(model, 2, tune=0, chains=1, random_seed=1).posterior["z"].to_numpy()[0, -1]
    assert len(set(labels[:10])) == len(set(labels[10:20])) == 1
    assert labels[0] != labels[10]


def test_rows_that_are_counted_as_one_are_seen():
    # The prior of blocks, which takes a block for one row.
    prior = PRIORS_OF_EIGHT["crp"][0]
    of_blocks, p = posterior("crp")
    start = draw_constrained_start(np.random.default_rng(0), CONSTRAINTS)[BLOCKS.first]
    wrong = [
        views(prior)[0],
        View(constrained.FAMILY, constrained.FAMILY.params(0.0), BLOCKS.table * [0, 1] + [1, 0]),
    ]
    drawn, _ = draw_codes(wrong, prior, 200_000, labels=start)
    with pytest.raises(AssertionError, match="total variation"):
        assert_matches(drawn, of_blocks, p)


@pytest.mark.parametrize("name", PRIORS_OF_EIGHT)
def test_the_state_has_the_density_of_rows(name):
    of_rows, of_blocks = all_allowed()
    prior, log_prior = PRIORS_OF_EIGHT[name]
    prior = prior._replace(extra=float(N - M))
    likelihood = log_likelihood(of_rows[::7])
    for labels, blocks, more in zip(of_rows[::7], of_blocks[::7], likelihood, strict=True):
        if log_prior(labels) > -np.inf:
            state = State(views(prior), blocks)
            state.set_prior(prior)
            np.testing.assert_allclose(state.log_joint(), log_prior(labels) + more, rtol=1e-10)


def test_the_model_has_the_density_of_rows_and_none_where_constraints_are_broken():
    with pm.Model() as model:
        dp.DPMixture("y", 0.8, BASE, observed=rows(), known_labels=KNOWN, must_link=LINKED)
    logp = model.compile_logp()
    all_labels = partitions(N)
    values = np.array([logp({"y_labels": labels.astype(np.int16)}) for labels in all_labels[::5]])
    allowed = np.array([may_be(labels) for labels in all_labels[::5]])
    np.testing.assert_array_equal(np.isfinite(values), allowed)
    some = all_labels[::5][allowed]
    wanted = log_likelihood(some) + [exact.log_eppf(labels, 0.8) for labels in some]
    np.testing.assert_allclose(values[allowed], wanted, rtol=1e-9)


@pytest.mark.slow
def test_sampling_with_a_random_concentration():
    """Known labels are data: they bear on alpha too."""
    of_rows, _ = all_allowed()
    likelihood = log_likelihood(of_rows)
    n_clusters = of_rows.max(axis=1) + 1
    within = np.array([gammaln(np.bincount(labels)).sum() for labels in of_rows])
    alpha = np.linspace(1e-4, 40, 4001)
    log_alpha = gamma.logpdf(alpha, 2.0) + gammaln(alpha) - gammaln(alpha + N)
    joint = np.exp(log_alpha[:, None] + np.log(alpha)[:, None] * n_clusters + within + likelihood)
    total = trapezoid(joint.sum(axis=1), alpha)
    mean = trapezoid(alpha * joint.sum(axis=1), alpha) / total
    p = trapezoid(joint, alpha, axis=0) / total
    together = p[of_rows[:, 1] == of_rows[:, 3]].sum()
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 2, 1), BASE, observed=rows(), known_labels=KNOWN, must_link=LINKED)
        idata = pm.sample(4000, tune=500, chains=2, cores=1, random_seed=3, progressbar=False)
    labels = idata.posterior["y_labels"].values.reshape(-1, N)
    assert all(may_be(own) for own in labels[::50])
    # A standard error of the mean of alpha is 0.02, of the probability 0.006.
    np.testing.assert_allclose(idata.posterior["alpha"].mean(), mean, atol=0.08)
    np.testing.assert_allclose(np.mean(labels[:, 1] == labels[:, 3]), together, atol=0.02)
    shares = idata.sample_stats["y_labels_largest_share"].values.reshape(-1)
    np.testing.assert_allclose(shares, [np.bincount(own).max() / N for own in labels])


@pytest.mark.slow
def test_a_random_discount_reaches_the_blocks():
    """Without data, against quadrature over the discount."""
    discount = np.linspace(1e-3, 1 - 1e-3, 500)
    of_rows, _ = all_allowed()
    joint = np.exp([[log_pitman_yor(labels, 1.0, d) for labels in of_rows] for d in discount])
    total = trapezoid(joint.sum(axis=1), discount)
    n_clusters = trapezoid(joint @ (of_rows.max(axis=1) + 1.0), discount) / total
    mean = trapezoid(discount * joint.sum(axis=1), discount) / total
    with pm.Model():
        dp.PitmanYor("labels", 1.0, pm.Uniform("discount", 0, 1), N, known_labels=KNOWN, must_link=LINKED)
        idata = pm.sample(4000, tune=500, chains=2, cores=1, random_seed=5, progressbar=False)
    np.testing.assert_allclose(idata.sample_stats["labels_n_clusters"].mean(), n_clusters, atol=0.1)
    np.testing.assert_allclose(idata.posterior["discount"].mean(), mean, atol=0.02)


def test_a_changed_discount_reaches_the_blocks_at_once():
    with pm.Model() as model:
        dp.PitmanYor("labels", 1.0, pm.Uniform("discount", 0, 1), N, known_labels=KNOWN, must_link=LINKED)
        step = dp.DPMixtureStep()
        point = model.initial_point(random_seed=1)
        for value in (-1.5, 0.3, 2.0):
            point, _ = step.step(point | {"discount_interval__": np.array(value)})
            assert step.prepared[0].views[-1].params.discount == pytest.approx(1 / (1 + np.exp(-value)))


def test_dependents_of_labels_see_rows():
    with pm.Model() as model:
        labels = dp.CRP("labels", 1.0, N, known_labels=KNOWN, must_link=LINKED)
        theta = pm.Normal("theta", 0, 1, shape=N)
        pm.Normal("x", theta[labels], 0.5, observed=MEANS)
        step = dp.DPMixtureStep()
        point = model.initial_point(random_seed=1)
        for _ in range(50):
            point, _ = step.step(point)
            assert may_be(point["labels"])


def test_all_clusters_known():
    """No cluster can take the rows of another one: neither moves nor the search may fail, or move anything."""
    known = np.array([0, 1, 2, 0, 1, 2, 0, 1])
    with pm.Model():
        dp.DPMixture("y", pm.Gamma("alpha", 1, 1), BASE, observed=rows(), known_labels=known)
        idata = pm.sample(50, tune=100, chains=1, random_seed=1, progressbar=False)
    np.testing.assert_array_equal(idata.posterior["y_labels"].values[0], np.tile(known, (50, 1)))


@pytest.mark.parametrize("fewest", [1, 50])
def test_a_search_keeps_constraints(fewest, monkeypatch):
    monkeypatch.setattr("pymc_dpgmm.sampler.tuning.exploration.CLUSTERS_FOR_CARVINGS", fewest)
    rng = np.random.default_rng(2)
    data = rng.normal(size=(60, 2)) + rng.integers(3, size=60)[:, None] * 4
    known = np.where(rng.random(60) < 0.4, rng.integers(4, size=60), -1)
    constraints = make_constraints(60, known)
    blocks = blocks_of(constraints)
    prior = chinese_restaurant(1.0)._replace(extra=60.0 - len(blocks.first))
    of_blocks = View(constrained.FAMILY, constrained.FAMILY.params(0.0), blocks.table)
    both = [View(BASE.family, BASE.numbers(2), data, blocks.of_row), of_blocks]
    start = draw_constrained_start(rng, constraints)[blocks.first]
    state = State(both, start)
    state.set_prior(prior)
    for _ in range(20):
        found = explore(rng, state, Effort(2, 1, 3))
        state = found.state
        assert np.isfinite(found.merit)
        assert allow(constraints, state.labels()[blocks.of_row])


def test_constraints_join_what_they_imply():
    made = make_constraints(6, ["a", None, "b", None, "a", None], [0, 0, -1, 1, 2, 1])
    np.testing.assert_array_equal(made[0], [0, 0, 1, 2, 0, 2])
    np.testing.assert_array_equal(made[1], [0, 0, 1, -1, 0, -1])
    unknown = np.nan
    for groups in (
        pd.Series([0.0, unknown, 1.0, -1.0]),
        ["a", unknown, "b", None],
        ["a", -1, "b", -2],
        [0, None, 7, -1],
        np.array(["a", None, "b", unknown], dtype=object),
        np.ma.array([0, 0, 1, 1], mask=[False, True, False, True]),
        pd.Series(["a", None, "b", None], dtype="category"),
        pd.Series([3, None, 4, None], dtype="Int64"),
    ):
        np.testing.assert_array_equal(make_constraints(4, groups)[1], [0, -1, 1, -1])
    assert allow(made, np.array([3, 3, 1, 1, 3, 1]))
    assert not allow(made, np.array([3, 3, 3, 1, 3, 1]))
    assert not allow(made, np.array([3, 2, 1, 1, 3, 1]))


def test_starts_keep_constraints_and_spread():
    rng = np.random.default_rng(0)
    starts = [draw_constrained_start(rng, CONSTRAINTS) for _ in range(300)]
    assert all(may_be(labels) for labels in starts)
    assert {int(labels.max()) for labels in starts} >= {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"known_labels": KNOWN[:5]}, ValueError, r"known_labels must have shape \(8,\)"),
        ({"must_link": np.zeros((8, 1), int)}, ValueError, r"must_link must have shape \(8,\)"),
        ({"known_labels": np.zeros(8, complex)}, TypeError, "integers or names, got dtype complex128"),
        ({"known_labels": ["a", "", *"bbbbbb"]}, ValueError, "known_labels has empty names"),
        ({"must_link": [0, 1, 2, 3, 4, 5, 6, True]}, TypeError, "must_link must be integers or names, got True"),
        ({"known_labels": KNOWN, "must_link": np.zeros(8, int)}, ValueError, "two known labels into one cluster"),
        ({"known_labels": KNOWN, "initval": np.zeros(8, int)}, ValueError, "initval of labels contradicts"),
    ],
)
def test_bad_constraints_are_named(arguments, error, message):
    with pm.Model() as model, pytest.raises(error, match=message):
        dp.DPMixture("y", 1.0, BASE, observed=rows(), **arguments)
    assert not model.named_vars


def test_more_known_clusters_than_components():
    with pm.Model(), pytest.raises(ValueError, match="known_labels have 4 clusters, but n_components is 3"):
        dp.FiniteMixture("y", 1.0, 3, BASE, observed=rows(), known_labels=np.arange(8) % 4)


def test_prior_draws_are_refused():
    with pm.Model():
        dp.DPMixture("y", 1.0, BASE, observed=rows(), known_labels=KNOWN)
        with pytest.raises(NotImplementedError, match="leave these out for draws from the prior"):
            pm.sample_prior_predictive(2)


def test_labels_of_units_may_be_known():
    unit = np.array([0, 0, 1, 1, 2, 3, 3, 3])
    with pm.Model() as model:
        dp.DPMixture("y", 1.0, BASE, observed=rows(), unit=unit, known_labels=["a", "b", None, "a"])
        step = dp.DPMixtureStep()
        point = model.initial_point(random_seed=0)
        for _ in range(20):
            point, _ = step.step(point)
            labels = point["y_labels"]
            assert labels[0] == labels[3] != labels[1]


def alpha_and_partitions(all_labels, log_likelihood, n):
    """Posterior of the partitions, and the mean of alpha, under Gamma(2, 1); the likelihood may have more axes."""
    alpha = np.linspace(1e-3, 30, 3_000)
    n_clusters = all_labels.max(axis=1) + 1
    within = np.array([gammaln(np.bincount(labels)).sum() for labels in all_labels])
    log_alpha = gamma.logpdf(alpha, 2.0) + gammaln(alpha) - gammaln(alpha + n)
    prior = log_alpha[:, None] + np.log(alpha)[:, None] * n_clusters + within
    joint = prior + logsumexp(log_likelihood.reshape(-1, len(all_labels)), axis=0)
    return normalized(logsumexp(joint, axis=0)), normalized(logsumexp(joint, axis=1)) @ alpha


@pytest.mark.slow
def test_known_units_beside_an_offset():
    """Known units of several rows, with an offset that NUTS draws."""
    unit = np.array([0, 0, 1, 2, 2, 3, 4])
    x, y = np.array([1.0, -1, 0.5, 0.3, -0.8, 1.2, -0.4]), np.array([0.2, -0.3, 1.1, 0.6, 0.4, 1.9, 0.9])
    params = {"mu": [0.3], "kappa": 0.4, "a": 2.0, "b": [0.6]}
    all_labels = partitions(5)
    all_labels = all_labels[(all_labels[:, 0] != all_labels[:, 2]) & (all_labels[:, 1] == all_labels[:, 3])]

    def log_rows(b):
        rest = (y - x * b)[:, None]
        return log_likelihoods(
            all_labels, lambda members: exact.nig_log_marginal(rest[np.isin(unit, members)], **params)
        )

    slopes = np.linspace(-3, 3, 241)
    joint = np.array([log_rows(b) + norm.logpdf(b) for b in slopes])
    p, mean = alpha_and_partitions(all_labels, joint, 5)
    with pm.Model():
        alpha, b = pm.Gamma("alpha", 2, 1), pm.Normal("b", 0, 1)
        dp.DPMixture(
            "y",
            alpha,
            dp.NormalInverseGamma(**params),
            observed=y,
            offset=x * b,
            unit=unit,
            known_labels=["s", None, "t", None, None],
            must_link=[-1, 0, -1, 0, -1],
        )
        drawn = pm.sample(12_000, tune=500, chains=1, random_seed=1, progressbar=False).posterior
    assert_matches(codes(drawn["y_labels"].values[0]), all_labels, p)
    assert float(drawn["alpha"].mean()) == pytest.approx(mean, abs=0.1)


@pytest.mark.slow
def test_known_labels_as_an_index():
    """Known labels whose parameters another variable has."""
    x = np.array([0.2, 1.1, -0.3, 1.9, 0.9, -0.8])
    all_labels = partitions(6)
    kept = (all_labels[:, 0] != all_labels[:, 2]) & (all_labels[:, 1] == all_labels[:, 4])
    all_labels = all_labels[kept & (all_labels[:, 0] == all_labels[:, 5])]

    def log_rows(members):
        m = len(members)
        return multivariate_normal(np.zeros(m), np.ones((m, m)) + 0.25 * np.eye(m)).logpdf(x[members])

    p, mean = alpha_and_partitions(all_labels, log_likelihoods(all_labels, log_rows), 6)
    with pm.Model():
        labels = dp.CRP(
            "labels",
            pm.Gamma("alpha", 2, 1),
            6,
            known_labels=[0, -1, 1, -1, -1, -1],
            must_link=[5, 2, -1, -1, 2, 5],
        )
        theta = pm.Normal("theta", 0, 1, shape=6)
        pm.Normal("x", theta[labels], 0.5, observed=x)
        drawn = pm.sample(12_000, tune=1_000, chains=1, random_seed=1, progressbar=False).posterior
    assert_matches(codes(drawn["labels"].values[0]), all_labels, p)
    assert float(drawn["alpha"].mean()) == pytest.approx(mean, abs=0.1)


def one_concentration(alpha, discount, **known):
    return dp.CRP("labels", alpha, N, **known)


def one_discount(alpha, discount, **known):
    return dp.PitmanYor("labels", alpha, discount, N, **known)


def finite(alpha, discount, **known):
    return dp.FiniteDirichlet("labels", alpha, 5, N, **known)


def random_mixture_of_finite(alpha, discount, **known):
    return dp.MFM("labels", alpha, N, components=1 + pm.Poisson.dist(3.0), **known)


@pytest.mark.parametrize("known", [{}, {"known_labels": KNOWN, "must_link": LINKED}], ids=["free", "known"])
@pytest.mark.parametrize("prior", rest_slow([one_concentration, one_discount, finite, random_mixture_of_finite]))
def test_densities_are_the_same_whatever_was_evaluated_before(prior, known):
    """Sizes that are kept while labels stay the same were overwritten by the compiled density."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0)
        prior(alpha, pm.Uniform("discount", 0.0, 1.0), **known)
    point = model.initial_point(random_seed=1)
    logp, slope = model.compile_logp(), model.compile_dlogp([alpha])
    slow = model.compile_logp(mode="FAST_COMPILE")

    def at(function, log_alpha):
        return float(np.ravel(function(point | {"alpha_log__": np.array(log_alpha)}))[0])

    values = [-1.0, 0.5, -1.0, 2.0, -1.0]
    np.testing.assert_allclose([at(logp, v) for v in values], [at(slow, v) for v in values], rtol=1e-10)
    for v in values:
        difference = (at(logp, v + 1e-5) - at(logp, v - 1e-5)) / 2e-5
        assert at(slope, v) == pytest.approx(difference, abs=1e-5)
