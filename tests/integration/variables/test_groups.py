"""Rows in groups: the hierarchical Dirichlet process and grouped finite mixtures, against enumeration."""

import itertools

import exact
import grouped
import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats
from slowly import rest_slow
from small_groups import CATEGORICAL, GROUP, Case, check

import pymc_dpgmm as dp
from pymc_dpgmm.partitions.grouped import Groups, draw_franchise, draw_openers
from pymc_dpgmm.testing import assert_matches

pytestmark = pytest.mark.interpreted

N_DRAWS = 1_000_000
# Lopsided, for a correlated psi far from the mean.
ROWS = np.array([[0.3, -0.1], [2.9, 3.3], [3.1, 2.9], [-4.0, 5.0], [3.4, 3.2], [0.9, 1.2]])
NIW = {"mu": [-1.0, 2.0], "kappa": 0.7, "nu": 2.3, "psi": [[0.5, 0.44], [0.44, 0.6]]}
MOVES = {"scans": (1, 0, 0), "random": (1, 1, 0), "sequential": (1, 0, 1), "all": (1, 1, 3)}


def hdp_cases():
    yield pytest.param("NormalInverseWishart", ROWS, NIW, {"alpha": 0.9, "gamma": 1.6}, id="niw")
    own = {"alpha": [0.4, 2.5, 1.0], "gamma": 0.6}
    yield pytest.param("DirichletCategorical", [0, 0, 1, 0, 2, 2], CATEGORICAL, own, id="categorical")


FINITE = {"alpha": [1.2, 0.5, 2.0], "n_components": 3}


@pytest.mark.parametrize("name", ["hdp_niw", "hdp_categorical", "lda_categorical"])
def test_enumeration_agrees_with_the_reference(name):
    given = exact.reference(name)
    if "base_measure" in given:
        base = dict(given["base_measure"])
        family, prior = base.pop("family"), {"alpha": given["alpha"], "gamma": given["gamma"]}
    else:
        family, base = "DirichletCategorical", {"eta": given["eta"]}
        prior = {"alpha": 3 * given["alpha_per_topic"], "n_components": given["n_topics"]}
    if family == "DirichletCategorical":
        base = {"a": np.array([base["eta"]]), "levels": np.array([3])}
    assert given["group"] == GROUP.tolist()
    case = Case(family, given["y"], base, **prior)
    assert ["".join(map(str, p)) for p in case.labels] == given["partitions"]
    np.testing.assert_allclose(case.p, given["posterior"], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(case.log_evidence, given["log_evidence"], rtol=1e-10)
    if "mean_number_of_tables" in given:
        np.testing.assert_allclose(case.mean_tables, given["mean_number_of_tables"], rtol=1e-10)


# All moves together in every run, which would show a mistake in one of them; each alone is slow.
EACH = [pytest.param(moves, marks=() if moves == "all" else pytest.mark.slow) for moves in MOVES]


@pytest.mark.parametrize("moves", ["all"])
@pytest.mark.parametrize(("family", "rows", "base", "prior"), list(hdp_cases()))
def test_partition_frequencies(family, rows, base, prior, moves):
    case = Case(family, rows, base, **prior)
    codes, tables = case.draw(MOVES[moves], N_DRAWS // 8)
    check(case, codes, tables)


@pytest.mark.slow
@pytest.mark.parametrize("moves", MOVES)
@pytest.mark.parametrize(("family", "rows", "base", "prior"), list(hdp_cases()))
def test_partition_frequencies_long(family, rows, base, prior, moves):
    """Rows in groups under hierarchical processes, against enumeration over tables."""
    case = Case(family, rows, base, **prior)
    check(case, *case.draw(MOVES[moves], N_DRAWS // 2, seed=5))


@pytest.mark.parametrize("moves", EACH)
def test_partition_frequencies_of_finite_mixtures(moves):
    """Rows in groups under grouped finite mixtures, against enumeration."""
    case = Case("NormalInverseWishart", ROWS, NIW, **FINITE)
    codes, _ = case.draw(MOVES[moves], N_DRAWS // 8)
    assert_matches(codes, case.labels, case.p)


@pytest.mark.parametrize(
    "mistake",
    rest_slow(["tables weighed alike", "a forgotten Stirling number", "alpha"]),
)
def test_mistakes_are_seen(mistake):
    """With alpha off by 5 %, without Stirling numbers, or with tables weighed alike, the comparison fails."""
    family, rows, base, prior = next(hdp_cases()).values
    case = Case(family, rows, base, **prior)
    if mistake == "a forgotten Stirling number":
        wrong = Case(family, rows, base, **prior, use_stirling=False)
        codes, _ = case.draw(MOVES["all"], N_DRAWS // 8)
        with pytest.raises(AssertionError, match="total variation"):
            assert_matches(codes, case.labels, wrong.p)
        return
    if mistake == "alpha":
        codes, _ = case.draw(MOVES["all"], N_DRAWS, alpha_factor=1.05)
    else:
        # One over the number of clusters in place of m_k / (M + gamma): a weight that is in use elsewhere.
        alike = np.array([log_alike(own, prior["alpha"], prior["gamma"]) for own in case.labels])
        right = np.array([grouped.log_hdp(own, GROUP, prior["alpha"], prior["gamma"])[0] for own in case.labels])
        p = case.p * np.exp(alike - right)
        drawn = np.random.default_rng(0).choice(len(p), p=p / p.sum(), size=(1, N_DRAWS))
        codes = exact.codes(case.labels)[drawn]
    with pytest.raises(AssertionError, match="total variation"):
        assert_matches(codes, case.labels, case.p)


def log_alike(labels, alpha, gamma):
    """Log density if a new table of one of K clusters took each with weight one."""
    n_jk = grouped.counts(labels, GROUP)
    n_clusters = n_jk.shape[1]
    pairs = [(j, k) for j, k in np.argwhere(n_jk)]
    total = 0.0
    for m in itertools.product(*(range(1, n_jk[j, k] + 1) for j, k in pairs)):
        weight = gamma**n_clusters / (n_clusters + gamma) ** (sum(m) - n_clusters)
        for (j, k), m_jk in zip(pairs, m, strict=True):
            weight *= grouped.stirling(n_jk[j, k])[m_jk] * alpha**m_jk
        total += weight
    return np.log(total)


# Densities of models.


def hdp_model(alpha=0.9, gamma=1.6, **others):
    with pm.Model() as model:
        dp.HDPMixture("y", alpha, gamma, dp.NormalInverseWishart(**NIW), group=GROUP, observed=ROWS, **others)
    return model


@pytest.mark.parametrize("alpha", [0.9, [0.4, 2.5, 1.0]], ids=["one", "each"])
def test_density_of_a_model(alpha):
    """Labels and openers sum to one, and openers sum out to what Stirling numbers say."""
    model = hdp_model(alpha)
    log_p = model.compile_logp(vars=[model["y_labels"], model["y_openers"]])
    openers = [np.array(own, dtype=np.int8) for own in itertools.product((0, 1), repeat=len(GROUP))]
    total = 0.0
    for labels in exact.partitions(len(GROUP)):
        own = [log_p({"y_labels": labels.astype(np.int16), "y_openers": b}) for b in openers]
        log_prior, _ = grouped.log_hdp(labels, GROUP, alpha, 1.6)
        np.testing.assert_allclose(np.logaddexp.reduce(own), log_prior, rtol=1e-12)
        total += np.exp(log_prior)
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)


def test_density_of_a_finite_model():
    with pm.Model() as model:
        base = dp.NormalInverseWishart(**NIW)
        dp.FiniteMixture("y", [1.2, 0.5, 2.0], 3, base, group=["a", "a", "a", "b", "b", "c"], observed=ROWS)
    log_p = model.compile_logp(vars=[model["y_labels"]])
    for labels in exact.partitions(len(GROUP)):
        expected = grouped.log_finite(labels, GROUP, [1.2, 0.5, 2.0], 3)
        np.testing.assert_allclose(log_p({"y_labels": labels.astype(np.int16)}), expected, rtol=1e-12)


def test_impossible_labels_and_openers_have_density_zero():
    model = hdp_model()
    log_p = model.compile_logp()
    openers, labels = np.ones(6, dtype=np.int8), np.zeros(6, dtype=np.int16)
    assert np.isfinite(log_p({"y_labels": labels, "y_openers": openers}))
    for position, value in ((0, 0), (3, 0), (1, 2)):
        changed = openers.copy()
        changed[position] = value
        assert log_p({"y_labels": labels, "y_openers": changed}) == -np.inf
    # The second row opens no table, so it must be in the cluster of the first.
    changed = np.array([1, 0, 1, 1, 1, 1], dtype=np.int8)
    assert log_p({"y_labels": np.array([0, 1, 0, 0, 0, 0], dtype=np.int16), "y_openers": changed}) == -np.inf
    assert log_p({"y_labels": labels + 6, "y_openers": openers}) == -np.inf


@pytest.mark.slow
def test_draws_from_the_prior():
    """Simulated franchises have the frequencies of the density."""
    groups, rng, n_draws = Groups(GROUP), np.random.default_rng(3), 200_000
    alpha, gamma = np.array([0.4, 2.5, 1.0]), 0.7
    labels = exact.partitions(6)
    p = np.exp([grouped.log_hdp(own, GROUP, alpha, gamma)[0] for own in labels])
    drawn = [draw_franchise(rng, draw_openers(rng, alpha, groups), gamma, groups) for _ in range(n_draws)]
    assert_matches(exact.codes(np.array(drawn))[None], labels, p)


def test_prior_predictive_draws():
    with hdp_model():
        prior = pm.sample_prior_predictive(2_000, random_seed=1)
    tables = prior["prior"]["y_n_tables"].to_numpy().ravel()
    expected = 1 + 0.9 / 1.9 + 0.9 / 2.9 + 1 + 0.9 / 1.9 + 1
    assert abs(tables.mean() - expected) < 4 * tables.std() / np.sqrt(tables.size)
    assert prior["prior_predictive"]["y"].shape == (1, 2_000, 6, 2)


# Random concentrations: quadrature.


def concentrations_posterior(law_alpha, law_gamma):
    """Posterior of partitions with gamma-distributed alpha and gamma, by Gauss-Laguerre quadrature."""
    from scipy.special import roots_genlaguerre

    labels = exact.partitions(len(GROUP))
    log_likelihood = exact.log_likelihoods(labels, ROWS, exact.LOG_MARGINALS["NormalInverseWishart"], **NIW)
    p = np.zeros(len(labels))
    alphas, weights = roots_genlaguerre(24, law_alpha[0] - 1.0)
    gammas, other_weights = roots_genlaguerre(24, law_gamma[0] - 1.0)
    sums = {tuple(own): _tables_by_number(own) for own in labels}
    for a, w in zip(alphas / law_alpha[1], weights, strict=True):
        for g, v in zip(gammas / law_gamma[1], other_weights, strict=True):
            p += w * v * np.exp([_log_hdp(sums[tuple(own)], a, g) for own in labels] + log_likelihood)
    return labels, p / p.sum()


def _tables_by_number(labels):
    """What a density with one alpha depends on: for each number of tables the sum over their places."""
    n_jk = grouped.counts(labels, GROUP)
    pairs = [(j, k) for j, k in np.argwhere(n_jk)]
    found = {}
    for m in itertools.product(*(range(1, n_jk[j, k] + 1) for j, k in pairs)):
        weight, by_cluster = 1.0, np.zeros(n_jk.shape[1])
        for (j, k), m_jk in zip(pairs, m, strict=True):
            weight *= grouped.stirling(n_jk[j, k])[m_jk]
            by_cluster[k] += m_jk
        found[sum(m)] = found.get(sum(m), 0.0) + weight * np.exp(exact.gammaln(by_cluster).sum())
    return n_jk.shape[1], found


def _log_hdp(of_labels, alpha, gamma):
    n_clusters, sums = of_labels
    fixed = np.sum([exact.gammaln(alpha) - exact.gammaln(alpha + n) for n in np.bincount(GROUP)])
    terms = [
        np.log(weight) + m * np.log(alpha) + exact.gammaln(gamma) - exact.gammaln(gamma + m)
        for m, weight in sums.items()
    ]
    return fixed + n_clusters * np.log(gamma) + np.logaddexp.reduce(terms)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law_alpha", "law_gamma"),
    [
        ((2.0, 1.5), (1.5, 1.0)),
        pytest.param((0.3, 0.3), (0.3, 0.3), id="near-zero"),
    ],
)
def test_gamma_concentrations_are_drawn_with_the_labels(law_alpha, law_gamma):
    """Also where the laws have much of their mass near zero, where a gamma number underflows."""
    labels, p = concentrations_posterior(law_alpha, law_gamma)
    with pm.Model() as model:
        alpha, gamma = pm.Gamma("alpha", *law_alpha), pm.Gamma("gamma", *law_gamma)
        dp.HDPMixture("y", alpha, gamma, dp.NormalInverseWishart(**NIW), group=GROUP, observed=ROWS)
        step = dp.DPMixtureStep([model["y_labels"], alpha, gamma])
        assert {v.name for v in step.vars} == {"y_labels", "y_openers", "alpha_log__", "gamma_log__"}
        idata = pm.sample(60_000, tune=300, chains=1, random_seed=2, progressbar=False)
    assert_matches(exact.codes(idata["posterior"]["y_labels"].to_numpy()), labels, p)


@pytest.mark.slow
def test_concentrations_of_groups_that_are_alike():
    """Small concentrations are likely here; drawn exactly and by NUTS, they have the same posterior."""
    rows, group = np.random.default_rng(0).normal(size=60), np.repeat([0, 1, 2], 20)
    found = []
    for is_exact in (True, False):
        with pm.Model():
            alpha, gamma = pm.Gamma("alpha", 1.0, 1.0), pm.Gamma("gamma", 1.0, 1.0)
            own = (alpha, gamma) if is_exact else (1.0 * alpha, 1.0 * gamma)
            dp.HDPMixture("y", *own, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), group=group, observed=rows)
            idata = pm.sample(2_000, tune=500, chains=1, random_seed=1, progressbar=False)
        logs = np.log(np.stack([idata["posterior"][name].to_numpy() for name in ("alpha", "gamma")]))
        errors = [own.std() / np.sqrt(float(array_stats.ess(own))) for own in logs]
        found.append((logs.mean(axis=(1, 2)), np.array(errors)))
    (first, error), (second, other) = found
    assert np.all(np.abs(first - second) < 4 * np.hypot(error, other))


@pytest.mark.slow
def test_concentrations_by_nuts():
    """Uniform laws of the logs have no exact draw: NUTS takes them, beside openers and labels."""
    alphas, gammas = np.exp((np.arange(30) + 0.5) / 30 * 3 - 1.5), np.exp((np.arange(30) + 0.5) / 30 * 2 - 1.0)
    labels = exact.partitions(len(GROUP))
    log_likelihood = exact.log_likelihoods(labels, ROWS, exact.LOG_MARGINALS["NormalInverseWishart"], **NIW)
    sums = [_tables_by_number(own) for own in labels]
    p = sum(
        np.exp([_log_hdp(own, a, g) for own in sums] + log_likelihood)
        for a, g in itertools.product(alphas, gammas)
    )
    with pm.Model():
        log_alpha, log_gamma = pm.Uniform("log_alpha", -1.5, 1.5), pm.Uniform("log_gamma", -1.0, 1.0)
        alpha, gamma = pm.math.exp(log_alpha), pm.math.exp(log_gamma)
        dp.HDPMixture("y", alpha, gamma, dp.NormalInverseWishart(**NIW), group=GROUP, observed=ROWS)
        idata = pm.sample(10_000, tune=1_000, chains=2, random_seed=3, progressbar=False)
    assert_matches(exact.codes(idata["posterior"]["y_labels"].to_numpy()), labels, p / p.sum())


def test_a_concentration_for_each_group_and_a_random_base_measure():
    """Runs, and gradients equal finite differences."""
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 2.0, 1.0, shape=3)
        gamma, mu = pm.Gamma("gamma", 1.0, 1.0), pm.Normal("mu", 0.0, 2.0, shape=2)
        base = dp.NormalInverseWishart(mu, 0.7, 4.0, np.eye(2))
        dp.HDPMixture("y", alpha, gamma, base, group=GROUP, observed=ROWS)
        idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    assert idata["posterior"]["alpha"].shape == (1, 50, 3)
    point = model.initial_point(random_seed=1)
    log_p, gradient = model.compile_logp(), model.compile_dlogp()
    found, place = gradient(point), 0
    for value in model.continuous_value_vars:
        for index in np.ndindex(point[value.name].shape):
            moved = []
            for sign in (1.0, -1.0):
                changed = {**point, value.name: point[value.name].copy()}
                changed[value.name][index] += sign * 1e-5
                moved.append(log_p(changed))
            np.testing.assert_allclose(found[place], (moved[0] - moved[1]) / 2e-5, rtol=1e-5, atol=1e-6)
            place += 1


def test_the_same_seed_gives_the_same_draws():
    runs = []
    for cores in (1, 2):
        with hdp_model():
            runs.append(pm.sample(50, tune=20, chains=2, cores=cores, random_seed=4, progressbar=False))
    for name in ("y_labels", "y_openers"):
        np.testing.assert_array_equal(*(run["posterior"][name].to_numpy() for run in runs))


# Bad input.


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"group": [0, 0, 1]}, "one entry for each row"),
        ({"group": [0, 0, None, 1, 1, 2]}, "1 missing entries"),
        ({"group": [0, 0, 0.5, 1, 1, 2]}, "fractional"),
        ({"group": [0, 0, np.inf, 1, 1, 2]}, "infinite"),
        ({"group": np.array([0, 0, 1, 1, 2, 2j])}, "dtype complex"),
        ({"alpha": [1.0, 2.0]}, "each of 3 groups"),
        ({"alpha": -1.0}, "alpha must be finite and > 0"),
        ({"gamma": 0.0}, "gamma must be"),
        ({"known_labels": [0, 0, -1, -1, 1, 1]}, "known_labels is not supported"),
        ({"unit": [0, 0, 1, 1, 2, 2]}, "unit is not supported"),
        ({"initval": [0, 0, 0, 0, 0, 9]}, "initval of labels must lie in"),
    ],
)
def test_bad_input(changed, message):
    given = {"alpha": 1.0, "gamma": 1.0, "group": GROUP, "observed": ROWS} | changed
    with pm.Model() as model:
        with pytest.raises((TypeError, ValueError, NotImplementedError), match=message):
            dp.HDPMixture("y", given.pop("alpha"), given.pop("gamma"), **given)
        assert not model.named_vars
        assert not model.coords


def test_others_on_tables_are_refused():
    with hdp_model() as model:
        pm.Potential("few", -3.0 * model["y_n_tables"])
        with pytest.raises(NotImplementedError, match="few depends on y_openers"):
            pm.sample(10, tune=10, chains=1, progressbar=False)


def test_a_random_number_of_components():
    with pm.Model():
        m = pm.DiscreteUniform("m", 1, 6)
        dp.FiniteMixture("y", 1.0, m, dp.NormalInverseWishart(**NIW), group=GROUP, observed=ROWS)
        idata = pm.sample(200, tune=100, chains=1, random_seed=1, progressbar=False)
    assert bool((idata["posterior"]["y_n_clusters"] <= idata["posterior"]["m"]).all())


def test_others_on_labels_by_group_are_refused():
    with hdp_model() as model:
        theta = pm.Normal("theta", 0.0, 1.0, shape=6)
        pm.Normal("z", theta[model["y_labels"]], 1.0, observed=np.zeros(6))
        with pytest.raises(NotImplementedError, match="z depends on y_labels"):
            pm.sample(10, tune=10, chains=1, progressbar=False)
