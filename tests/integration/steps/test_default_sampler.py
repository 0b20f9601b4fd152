"""The moves of the default sampler against enumeration: every family, every prior on partitions, and views."""

import exact
import numpy as np
import pymc as pm
import pytest
from exact import log_finite_dirichlet, log_mfm, log_pitman_yor
from family_cases import CASES
from scipy.special import gammaln, logsumexp

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.priors import (
    chinese_restaurant,
    finite_dirichlet,
    mixture_of_finite_mixtures,
    n_terms,
    pitman_yor,
)
from pymc_dpgmm.testing import assert_matches, draw_codes, log_likelihoods, normalized, partitions

N_DRAWS = 1_000_000
FEW_DRAWS = 200_000
N = 6
# Poisson(2) conditioned on 1 or more.
LOG_COMPONENTS = np.array(
    [-2 + m * np.log(2) - np.sum(np.log(np.arange(1, m + 1))) for m in range(1, n_terms(N) + 1)]
)
LOG_COMPONENTS -= np.log1p(-np.exp(-2))

PRIORS = {
    "crp": (chinese_restaurant(0.8), lambda p: exact.log_eppf(p, 0.8)),
    "pitman-yor": (pitman_yor(0.3, 0.45), lambda p: log_pitman_yor(p, 0.3, 0.45)),
    "pitman-yor-negative": (pitman_yor(-0.2, 0.6), lambda p: log_pitman_yor(p, -0.2, 0.6)),
    "finite": (finite_dirichlet(1.5, 3), lambda p: log_finite_dirichlet(p, 1.5, 3)),
    "mfm": (
        mixture_of_finite_mixtures(0.7, LOG_COMPONENTS, N),
        lambda p: log_mfm(p, 0.7, LOG_COMPONENTS[:60]),
    ),
}
FAMILY_CASES = {
    "niw": "niw",
    "nig": "nig-columns",
    "spherical": "spherical",
    "regression": "regression",
    "bernoulli": "bernoulli",
    "categorical": "categorical",
    "multinomial": "multinomial",
    "poisson": "poisson",
    "binomial": "binomial",
    "known-variance": "known-variance",
    "known-covariance": "known-covariance",
    "shared-covariance": "shared-covariance",
    "exponential": "exponential",
    "gamma": "gamma",
    "negative-binomial": "negative-binomial",
    "directions": "directions",
}
# What the default run compiles and checks, with fewer draws; the rest is slow.
BY_DEFAULT = {("nig", prior) for prior in PRIORS}


def scaled(case):
    """A base measure and few rows of a contract case, close enough together for clusters to be in doubt."""
    base, values, d, _ = CASES[case]
    return View(base.family, base.numbers(d), values[:N])


def log_marginal_of(view):
    slow = exact.LOG_MARGINALS[view.family.name]
    return lambda members: slow(view.values[members], **view.params._asdict())


def check(views, prior, n_draws, seed=1):
    numeric, log_prior = PRIORS[prior]
    all_labels = partitions(N)
    log_joint = sum(log_likelihoods(all_labels, log_marginal_of(view)) for view in views)
    p = normalized(log_joint + np.array([log_prior(labels) for labels in all_labels]))
    # A posterior that is one partition would hide mistakes.
    assert p.max() < 0.9
    codes, tally = draw_codes(views, numeric, n_draws, seed=seed)
    assert_matches(codes, all_labels, p)
    return tally


@pytest.mark.parametrize(
    ("family", "prior"),
    [
        pytest.param(family, prior, marks=() if (family, prior) in BY_DEFAULT else pytest.mark.slow)
        for family in FAMILY_CASES
        for prior in PRIORS
    ],
)
def test_partition_frequencies(family, prior):
    """Every family with every prior, in the default mix of moves; one prior with 10^6 draws."""
    n_draws = FEW_DRAWS if (family, prior) in BY_DEFAULT or prior != "pitman-yor" else N_DRAWS
    check([scaled(FAMILY_CASES[family])], prior, n_draws)


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
def test_partition_frequencies_of_every_prior(prior):
    """Every prior with data that make its clusters large and small."""
    check([scaled("nig-columns")], prior, N_DRAWS, seed=2)


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIORS)
def test_two_views(prior):
    """Two mixtures on the same labels, of different families."""
    check([scaled("nig-one-column"), scaled("bernoulli")], prior, N_DRAWS)


@pytest.mark.slow
def test_three_views():
    """Three mixtures on the same labels."""
    check([scaled("multinomial"), scaled("niw"), scaled("categorical")], "pitman-yor", N_DRAWS)


REFERENCES = [
    "beta_bernoulli_crp",
    "dirichlet_multinomial_crp",
    "gamma_poisson_crp",
    "nig_finite",
    "nig_pitman_yor",
]


def reference_case(name):
    given = exact.reference(name)
    base = dict(given["base_measure"])
    family = base.pop("family")
    values, prior = np.array(given["y"], dtype=float), dict(given["partition_prior"])
    if family == "GammaPoisson":
        values = np.column_stack([values, np.ones(len(values))])
    if family == "DirichletMultinomial":
        values = np.column_stack([values, values.sum(axis=1)])
    measure = getattr(dp, family)(**base)
    d = np.shape(given["y"])[1]
    kind = prior.pop("kind")
    make = {"CRP": chinese_restaurant, "FiniteDirichlet": finite_dirichlet, "PitmanYor": pitman_yor}[kind]
    return View(measure.family, measure.numbers(d), values), make(**prior), np.array(given["posterior"])


@pytest.mark.parametrize("name", REFERENCES)
def test_enumeration_agrees_with_the_reference(name):
    view, _, posterior = reference_case(name)
    log_prior = {
        "FiniteDirichlet": lambda p, alpha, n_components: log_finite_dirichlet(p, alpha, n_components),
        "PitmanYor": lambda p, alpha, discount: log_pitman_yor(p, alpha, discount),
        "CRP": lambda p, alpha: exact.log_eppf(p, alpha),
    }
    given = dict(exact.reference(name)["partition_prior"])
    kind = given.pop("kind")
    all_labels = partitions(len(view.values))
    p = normalized(
        log_likelihoods(all_labels, log_marginal_of(view))
        + np.array([log_prior[kind](labels, **given) for labels in all_labels])
    )
    np.testing.assert_allclose(p, posterior, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in REFERENCES])
def test_references(name):
    """Exact posteriors that were computed by other programs."""
    view, prior, posterior = reference_case(name)
    codes, _ = draw_codes([view], prior, N_DRAWS)
    assert_matches(codes, partitions(len(view.values)), posterior)


@pytest.mark.parametrize(
    ("prior", "wrong"),
    [
        ("finite", finite_dirichlet(1.5, 4)),
        pytest.param("pitman-yor", pitman_yor(0.3, 0.48), marks=pytest.mark.slow),
        pytest.param("mfm", mixture_of_finite_mixtures(0.74, LOG_COMPONENTS, N), marks=pytest.mark.slow),
    ],
)
def test_small_mistakes_are_seen(prior, wrong, monkeypatch):
    """With a parameter a little off in the moves, the comparison fails."""
    monkeypatch.setitem(PRIORS, prior, (wrong, PRIORS[prior][1]))
    with pytest.raises(AssertionError, match="total variation"):
        check([scaled("nig-columns")], prior, FEW_DRAWS if prior == "finite" else N_DRAWS)


@pytest.mark.slow
def test_a_view_left_out_is_seen():
    """The comparison of two views can fail."""
    views = [scaled("nig-one-column"), scaled("bernoulli")]
    all_labels = partitions(N)
    log_joint = log_likelihoods(all_labels, log_marginal_of(views[0]))
    p = normalized(log_joint + np.array([exact.log_eppf(labels, 0.8) for labels in all_labels]))
    codes, _ = draw_codes(views, PRIORS["crp"][0], 100_000)
    with pytest.raises(AssertionError, match="total variation"):
        assert_matches(codes, all_labels, p)


@pytest.mark.slow
def test_two_views_of_a_model():
    """Through pm.sample, with alpha under a gamma prior, by quadrature over it."""
    n = 5
    gaussian, binary = scaled("nig-one-column"), scaled("bernoulli")
    with pm.Model():
        alpha = pm.Gamma("alpha", 2.0, 1.5)
        labels = dp.CRP("labels", alpha, n)
        base, binary_base = CASES["nig-one-column"][0], CASES["bernoulli"][0]
        dp.CollapsedMixture("x", labels, base, observed=gaussian.values[:n])
        dp.CollapsedMixture("z", labels, binary_base, observed=binary.values[:n])
        idata = pm.sample(
            6_000, tune=200, chains=2, cores=1, random_seed=1, progressbar=False, compute_convergence_checks=False
        )
    all_labels = partitions(n)
    grid = np.linspace(0.002, 15.0, 6_000)
    log_prior = np.log(grid) - 1.5 * grid
    counts = all_labels.max(axis=1) + 1
    sizes = [np.bincount(labels) for labels in all_labels]
    log_joint = sum(log_likelihoods(all_labels, log_marginal_of(view)) for view in (gaussian, binary))
    rising = gammaln(grid) - gammaln(grid + n)
    over_alpha = [logsumexp(log_prior + k * np.log(grid) + rising) for k in counts]
    within = [gammaln(s).sum() for s in sizes]
    p = normalized(log_joint + np.array(over_alpha) + np.array(within))
    drawn = idata.posterior["labels"].to_numpy().astype(np.int64)
    assert_matches(exact.codes(drawn), all_labels, p)
