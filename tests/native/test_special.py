"""Ratios of gamma functions and other special functions, also where their arguments are very large."""

import math
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.gradient import verify_grad
from scipy.special import polygamma

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.families.shared.gamma import log_t_norms
from pymc_dpgmm.integration.variables.grouped_labels import (
    GroupedFiniteDirichlet,
    HDPLabels,
    TopicLabels,
    _Openers,
)
from pymc_dpgmm.integration.variables.rising import log_rising as log_rising_of_variables
from pymc_dpgmm.native.compiled import FLOAT, c_function
from pymc_dpgmm.native.special import (
    digamma,
    digamma_rise,
    digamma_rises,
    log_i0,
    log_rising,
    log_risings,
    trigamma_of_sum,
)
from pymc_dpgmm.partitions.draws import with_known_components
from pymc_dpgmm.partitions.grouped import Groups, count_by_group
from pymc_dpgmm.partitions.priors import (
    chinese_restaurant,
    finite_dirichlet,
    log_eppf,
    log_split,
    mixture_of_finite_mixtures,
    n_terms,
    pitman_yor,
)
from pymc_dpgmm.sampler.state.cluster_table import ClusterTable
from pymc_dpgmm.sampler.state.grouping import log_prior
from pymc_dpgmm.sampler.state.marginal import MarginalLikelihood
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.topics.words import Words, log_topics, log_words
from pymc_dpgmm.variational.weights import DirichletWeights, Sticks, sticks_bound

pytestmark = pytest.mark.interpreted

CONCENTRATIONS = [1e-8, 1.0, 1e3, 1e8, 1e12, 1e15]
BASES = [1e-300, 1e-8, 0.3, 1.0, 17.5, 59.9, 60.0, 60.1, 1e3, 1e8, 1e12, 1e15, 1e30]
STEPS = [0.0, 0.5, 1.0, 12.0, 13.0, 37.5, 250.0, 1e6]


# The reference: log gamma with 60 digits, by Stirling's series far from the origin.
DIGITS = 60
# B_2k / (2 k (2 k - 1)).
SERIES = [
    Decimal(numerator) / denominator
    for numerator, denominator in (
        (1, 12),
        (-1, 360),
        (1, 1260),
        (-1, 1680),
        (1, 1188),
        (-691, 360360),
        (1, 156),
        (-3617, 122400),
        (43867, 244188),
        (-174611, 125400),
    )
]


@cache
def log_gamma(x):
    """Log gamma of a Decimal > 0, to about 40 digits."""
    with localcontext(prec=DIGITS):
        product = Decimal(1)
        while x < 200:
            product *= x
            x += 1
        half_log_two_pi = Decimal("0.918938533204672741780329736405617639861397473637783412817152")
        value = (x - Decimal("0.5")) * x.ln() - x + half_log_two_pi - product.ln()
        return value + sum(term / x ** (2 * k + 1) for k, term in enumerate(SERIES))


def rising(x, m):
    """Log of Gamma(x + m) / Gamma(x)."""
    with localcontext(prec=DIGITS):
        return log_gamma(Decimal(x) + Decimal(m)) - log_gamma(Decimal(x))


def slope(function, x):
    """Derivative of a function of a Decimal, times x."""
    with localcontext(prec=DIGITS):
        x, step = Decimal(x), Decimal("1e-10")
        return float((function(x * (1 + step)) - function(x * (1 - step))) / (2 * step))


@c_function(FLOAT(FLOAT, FLOAT))
def compiled_rising(x, m):
    return log_rising(x, m)


@c_function(FLOAT(FLOAT, FLOAT))
def compiled_rise(x, m):
    return digamma_rise(x, m)


@c_function(FLOAT(FLOAT))
def compiled_digamma(x):
    return digamma(x)


@c_function(FLOAT(FLOAT))
def compiled_log_i0(x):
    return log_i0(x)


@pytest.mark.parametrize("x", BASES)
def test_ratios_of_gamma_functions(x):
    expected = [float(rising(x, m)) for m in STEPS]
    # A log of a gamma function that is not large is known to its own rounding.
    close = {"rtol": 1e-14, "atol": 1e-13}
    np.testing.assert_allclose([log_rising(x, m) for m in STEPS], expected, **close)
    np.testing.assert_allclose([compiled_rising(x, m) for m in STEPS], expected, **close)
    np.testing.assert_allclose(log_risings(x, np.array(STEPS)), expected, **close)
    np.testing.assert_allclose(log_rising_of_variables(x, np.array(STEPS)).eval(), expected, **close)


@pytest.mark.parametrize("x", BASES[1:])
def test_their_derivatives(x):
    """Times x, as they enter gradients in the log of a concentration."""
    expected = [slope(lambda y, m=m: rising(y, m), x) for m in STEPS]
    close = {"rtol": 1e-13, "atol": 1e-13 * max(1.0, min(x, 60.0))}
    np.testing.assert_allclose([x * digamma_rise(x, m) for m in STEPS], expected, **close)
    np.testing.assert_allclose([x * compiled_rise(x, m) for m in STEPS], expected, **close)
    np.testing.assert_allclose(x * digamma_rises(x, np.array(STEPS)), expected, **close)
    variable = pt.dscalar()
    gradients = pytensor.gradient.jacobian(log_rising_of_variables(variable, np.array(STEPS)), variable)
    np.testing.assert_allclose(x * gradients.eval({variable: x}), expected, **close)


@pytest.mark.parametrize("x", [0.3, 59.9999, 60.0, 60.0001, 300.0])
def test_derivatives_of_variables_in_both_arguments(x):
    """First and second ones, also about the switch from one formula to the other."""
    rng = np.random.default_rng(0)
    point = [np.array([x, x + 1.0]), np.array([2.5, 31.25])]
    verify_grad(log_rising_of_variables, point, rng=rng, eps=1e-6)

    def derivative(x, m):
        return pt.grad(log_rising_of_variables(x, m).sum(), x)

    verify_grad(derivative, point, rng=rng, eps=1e-6, rel_tol=1e-3)


def test_trigamma():
    x = np.concatenate([np.geomspace(1e-8, 1e8, 60), [19.999, 20.0]])
    found = [trigamma_of_sum(value, 0.0) for value in x]
    np.testing.assert_allclose(found, polygamma(1, x), rtol=1e-13)
    assert trigamma_of_sum(0.25, 0.5) == pytest.approx(float(polygamma(1, 0.75)), rel=1e-14)


def test_compiled_variables():
    """The compiled graph calls the compiled function."""
    x, m = pt.dvector(), pt.lvector()
    value = log_rising_of_variables(x, m)
    found = pytensor.function([x, m], [value, pt.grad(value.sum(), x)], mode="NUMBA")
    bases, steps = np.array([0.3, 60.0, 1e15]), np.array([40, 3, 250])
    value, gradient = found(bases, steps)
    np.testing.assert_allclose(
        value, [float(rising(b, int(s))) for b, s in zip(bases, steps, strict=True)], rtol=1e-14
    )
    np.testing.assert_allclose(gradient, digamma_rises(bases, steps), rtol=1e-13)


LABELS = np.repeat([0, 1, 2, 3], [120, 80, 45, 5])
SIZES = np.bincount(LABELS)
N = len(LABELS)


def crp(alpha):
    return len(SIZES) * alpha.ln() + sum(log_gamma(Decimal(int(m))) for m in SIZES) - rising(alpha, N)


def two_parameters(alpha, discount):
    opened = sum((alpha + discount * i).ln() for i in range(1, len(SIZES)))
    return opened + sum(rising(1 - discount, int(m) - 1) for m in SIZES) - rising(alpha + 1, N - 1)


def finite(alpha):
    m = Decimal(7)
    names = log_gamma(m + 1) - log_gamma(m + 1 - len(SIZES))
    return names + sum(rising(alpha / m, int(size)) for size in SIZES) - rising(alpha, N)


MOST = 12


def mixture(gamma):
    total = Decimal(0)
    for m in range(len(SIZES), MOST + 1):
        names = log_gamma(Decimal(m + 1)) - log_gamma(Decimal(m + 1 - len(SIZES)))
        total += (names - rising(gamma * m, N)).exp() / MOST
    return total.ln() + sum(rising(gamma, int(size)) for size in SIZES)


def mixture_numbers(gamma):
    log_components = np.full(n_terms(N), -np.inf)
    log_components[:MOST] = -np.log(MOST)
    return mixture_of_finite_mixtures(gamma, log_components, N)


UNIFORM = pm.DiscreteUniform.dist(1, MOST)
PRIORS = {
    "crp": (dp.CRP, {}, crp, chinese_restaurant),
    "pitman-yor": (
        dp.PitmanYor,
        {"discount": 0.25},
        lambda alpha: two_parameters(alpha, Decimal("0.25")),
        lambda alpha: pitman_yor(alpha, 0.25),
    ),
    "finite": (dp.FiniteDirichlet, {"n_components": 7}, finite, lambda alpha: finite_dirichlet(alpha, 7)),
    "mfm": (dp.MFM, {"components": UNIFORM}, mixture, mixture_numbers),
}


def assert_density(density, reference, x):
    """Assert that a density of a variable, and its gradient in the variable's log, are those of the reference."""
    log_x = pt.dscalar()
    value = density(pt.exp(log_x))
    at, own = np.log(x), Decimal(float(np.exp(np.log(x))))
    with localcontext(prec=DIGITS):
        expected, expected_slope = float(reference(own)), slope(reference, own)
    found, gradient = (v.eval({log_x: at}) for v in (value, pt.grad(value, log_x)))
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-11)
    assert gradient == pytest.approx(expected_slope, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
@pytest.mark.parametrize("kind", PRIORS)
def test_densities_of_partitions(kind, concentration):
    prior, given, reference, numeric = PRIORS[kind]
    name = "gamma" if kind == "mfm" else "alpha"

    def density(x):
        return pm.logp(prior.dist(**{name: x}, n=N, **given), LABELS)

    assert_density(density, reference, concentration)
    with localcontext(prec=DIGITS):
        expected = float(reference(Decimal(concentration)))
    own = numeric(concentration)
    assert log_eppf(own, SIZES, len(SIZES)) == pytest.approx(expected, rel=1e-12, abs=1e-11)
    state = State([], LABELS)
    state.set_prior(own)
    assert state.log_joint() == pytest.approx(expected, rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
@pytest.mark.parametrize("kind", ["finite", "mfm"])
def test_ratios_of_densities(kind, concentration):
    """Of a cluster that divides, and of the numbers of components given a partition."""
    own = PRIORS[kind][3](concentration)
    discount = Decimal(float(own.discount))
    left, right = 45, 5
    expected = rising(1 - discount, left - 1) - rising(Decimal(right) - discount, left)
    from_seats = log_split(own, 3, left, right) - log_split(own, 3, 1, 1)
    with localcontext(prec=DIGITS):
        expected += (1 - discount).ln()
    assert from_seats == pytest.approx(float(expected), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("gamma", CONCENTRATIONS)
def test_draws_of_a_number_of_components(gamma):
    n_draws, numbers, rng = 2_000, np.arange(len(SIZES), MOST + 1), np.random.default_rng(1)
    own = mixture_numbers(gamma)
    chosen = [with_known_components(rng, own, SIZES).most for _ in range(n_draws)]
    log_p = []
    for m in numbers.tolist():
        names = log_gamma(Decimal(m + 1)) - log_gamma(Decimal(m + 1 - len(SIZES)))
        log_p.append(float(names - rising(Decimal(gamma) * m, N) + rising(Decimal(gamma) * MOST, N)))
    p = np.exp(log_p) / np.exp(log_p).sum()
    mean = p @ numbers
    assert abs(np.mean(chosen) - mean) <= 5 * math.sqrt(p @ (numbers - mean) ** 2 / n_draws)


GROUP = np.arange(N) % 2
OPENERS = (np.arange(N) < 12).astype(np.int8)
OPENERS[[120, 121, 200, 201, 245, 246]] = 1
COUNTS = count_by_group(LABELS, Groups(GROUP), 4).rows
GROUP_SIZES = np.bincount(GROUP)


def openers_of(alpha):
    positions = Groups(GROUP).positions[OPENERS == 0]
    total = sum(Decimal(int(p)).ln() for p in positions) + int(OPENERS.sum()) * alpha.ln()
    return total - sum(rising(alpha, int(n)) for n in GROUP_SIZES)


def hdp(gamma):
    tables = [int(OPENERS[k == LABELS].sum()) for k in range(4)]
    joined = Decimal(HDP_JOINED)
    return joined + 4 * gamma.ln() - rising(gamma, sum(tables)) + sum(log_gamma(Decimal(t)) for t in tables)


HDP_JOINED = 0.0
for j in range(2):
    own_labels, own_openers = LABELS[j == GROUP], OPENERS[j == GROUP]
    for i in np.flatnonzero(own_openers == 0):
        HDP_JOINED += math.log(np.sum(own_labels[:i] == own_labels[i]) / i)


def grouped_finite(alpha):
    m = Decimal(7)
    names = log_gamma(m + 1) - log_gamma(m + 1 - 4)
    return names + topics(alpha, m)


def topics(alpha, m=Decimal(4)):
    within = sum(rising(alpha / m, int(count)) for count in COUNTS)
    return within - sum(rising(alpha, int(n)) for n in GROUP_SIZES)


GROUPED = {
    "openers": (lambda x: pm.logp(_Openers.dist(x, GROUP), OPENERS), openers_of),
    "openers-by-group": (lambda x: pm.logp(_Openers.dist(pt.stack([x, x]), GROUP), OPENERS), openers_of),
    "hdp": (lambda x: pm.logp(HDPLabels.dist(OPENERS, x, GROUP), LABELS), hdp),
    "finite": (lambda x: pm.logp(GroupedFiniteDirichlet.dist(pt.stack([x, x]), 7, GROUP), LABELS), grouped_finite),
    "topics": (lambda x: pm.logp(TopicLabels.dist(pt.stack([x / 4] * 4), GROUP), LABELS), topics),
}


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
@pytest.mark.parametrize("kind", GROUPED)
def test_densities_of_labels_in_groups(kind, concentration):
    assert_density(*GROUPED[kind], concentration)


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_compiled_densities_of_labels_in_groups(concentration):
    with localcontext(prec=DIGITS):
        own = Decimal(concentration)
        finite, named = float(grouped_finite(own)), float(topics(own))
    state = State([], LABELS)
    state.set_groups(Groups(GROUP))
    state.set_prior(finite_dirichlet(concentration, 7))
    state.set_grouping(np.random.default_rng(1), np.full(2, concentration), None, 1.0)
    assert log_prior(state.address) == pytest.approx(finite, rel=1e-12, abs=1e-11)
    # The four labels are words of one topic, and then topics of one word.
    words = Words(LABELS, Groups(GROUP), np.full(4, concentration / 4))
    with localcontext(prec=DIGITS):
        expected = sum(rising(own / 4, int(m)) for m in SIZES) - rising(own, N)
    assert log_words(words.address, 4) == pytest.approx(float(expected), rel=1e-12, abs=1e-11)
    words = Words(np.zeros(N, dtype=int), Groups(GROUP), np.ones(1))
    words.set_labels(LABELS, 4)
    words.shares[:], words.group_alphas[:] = 0.25, concentration
    assert log_topics(words.address) == pytest.approx(named, rel=1e-12, abs=1e-11)


def test_very_many_components():
    """Of which labels have four, whatever their number is."""
    m = Decimal(10**12)
    with localcontext(prec=DIGITS):
        names = sum((m - i).ln() for i in range(4))
        expected = float(names + topics(Decimal(1), m))
    found = pm.logp(GroupedFiniteDirichlet.dist(np.ones(2), 10**12, GROUP), LABELS).eval()
    assert found == pytest.approx(expected, rel=1e-12)
    state = State([], LABELS)
    state.set_groups(Groups(GROUP))
    state.set_prior(finite_dirichlet(1.0, 10**12))
    state.set_grouping(np.random.default_rng(1), np.ones(2), None, 1.0)
    assert log_prior(state.address) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
def test_weights_of_an_approximate_posterior(concentration):
    with localcontext(prec=DIGITS):
        expected = float(topics(Decimal(concentration)))
    sizes = COUNTS.reshape(2, 4).astype(float)
    found = sum(DirichletWeights(concentration, 4).fit(own).bound for own in sizes)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-11)
    own, later = SIZES.astype(float), N - np.cumsum(SIZES)
    with localcontext(prec=DIGITS):
        alpha = Decimal(concentration)
        expected = 0
        for k in range(4):
            expected += log_gamma(Decimal(int(SIZES[k]) + 1)) + rising(alpha, int(later[k]))
            expected -= rising(alpha + 1, int(SIZES[k] + later[k]))
    bound = Sticks(concentration).fit(own).bound
    assert bound == pytest.approx(float(expected), rel=1e-12, abs=1e-11)
    density = sticks_bound(log_rising_of_variables, pt.constant(concentration), 0.0, own, later, np.arange(1, 5))
    assert density.eval() == pytest.approx(bound, rel=1e-12, abs=1e-11)


CODES = np.column_stack([np.arange(40) % 2, np.arange(40) % 3 == 0]).astype(float)
TRIALS = np.full((40, 2), 9.0)
COUNTED = np.column_stack([np.arange(40) % 5, np.arange(40) % 3, np.arange(40) % 2]).astype(float)
FAMILIES = {
    "bernoulli": (lambda c: dp.BetaBernoulli(c, 1.0), 2, CODES, "a"),
    "binomial": (lambda c: dp.BetaBinomial(c, c, 9), 2, np.hstack([CODES + 3.0, TRIALS]), "a"),
    "categorical": (lambda c: dp.DirichletCategorical(c, [2, 2]), 2, CODES, "a"),
    "multinomial": (
        lambda c: dp.DirichletMultinomial(c),
        3,
        np.column_stack([COUNTED, COUNTED.sum(axis=1)]),
        "a",
    ),
}


def of_beta(ones, zeros, a, b):
    return rising(a, ones) + rising(b, zeros) - rising(a + b, ones + zeros)


def of_dirichlet(counts, own):
    return sum(rising(a, n) for a, n in zip(own, counts, strict=True)) - rising(sum(own), sum(counts))


def slow_evidence(kind, moved, c):
    """Of one cluster of all rows, without coefficients; ``moved`` takes the place of the first entry of ``a``."""
    if kind in ("bernoulli", "categorical"):
        pairs = [(int(x.sum()), int(40 - x.sum())) for x in CODES.T]
    else:
        pairs = [(int(x.sum()) + 120, int(240 - x.sum())) for x in CODES.T]
    if kind == "bernoulli":
        return sum(of_beta(*own, a, Decimal(1)) for own, a in zip(pairs, (moved, c), strict=True))
    if kind == "binomial":
        return sum(of_beta(*own, a, c) for own, a in zip(pairs, (moved, c), strict=True))
    if kind == "categorical":
        return sum(of_dirichlet(own[::-1], (a, c)) for own, a in zip(pairs, (moved, c), strict=True))
    return of_dirichlet([int(total) for total in COUNTED.sum(axis=0)], (moved, c, c))


@pytest.mark.parametrize("concentration", CONCENTRATIONS)
@pytest.mark.parametrize("kind", FAMILIES)
def test_evidences_of_counts(kind, concentration):
    make, d, values, name = FAMILIES[kind]
    base, c = make(concentration), Decimal(concentration)
    params, labels = base.numbers(d), np.zeros(40, dtype=np.int64)
    found = MarginalLikelihood(base.family).at(labels, values, params)
    with localcontext(prec=DIGITS):
        expected = float(slow_evidence(kind, c, c))
    constant = float(base.family.represent(params, values)[0][:, 2 * d].sum()) if kind == "binomial" else 0.0
    if kind == "multinomial":
        constant = float(multinomial_coefficients())
    assert found.value() - constant == pytest.approx(expected, rel=1e-12, abs=1e-10)
    gradient = concentration * np.ravel(getattr(found.gradient(), name))[0]
    expected = slope(lambda moved: slow_evidence(kind, moved, c), concentration)
    assert gradient == pytest.approx(expected, rel=1e-9, abs=1e-9)


def multinomial_coefficients():
    totals = sum(log_gamma(Decimal(int(n) + 1)) for n in COUNTED.sum(axis=1))
    return totals - sum(log_gamma(Decimal(int(n) + 1)) for n in np.ravel(COUNTED))


def density_at_the_centre(base, d):
    """Of a row at mu, in a cluster without rows."""
    table = ClusterTable(View(base.family, base.numbers(d), np.zeros((1, d))), 2)
    table.gather(0, np.zeros(0, dtype=np.int64))
    return table.log_predictives(0)[0]


@pytest.mark.parametrize("a", CONCENTRATIONS)
def test_norms_of_t_densities(a):
    expected = float(rising(a, 1.5)) - 1.5 * math.log(2.0 * math.pi)
    assert log_t_norms(np.array([a]), 3)[0] == pytest.approx(expected, rel=1e-13, abs=1e-13)
    base = dp.NormalInverseGamma(0.0, 1.0, a, a)
    density = density_at_the_centre(base, 1)
    with localcontext(prec=DIGITS):
        expected = float(rising(a, 0.5)) - 0.5 * math.log(4.0 * math.pi * a)
    assert density == pytest.approx(expected, rel=1e-12, abs=1e-13)
    nu = a + 2.0
    wishart = dp.NormalInverseWishart(np.zeros(2), 1.0, nu, nu * np.eye(2))
    density = density_at_the_centre(wishart, 2)
    expected = float(rising(0.5 * (nu - 1.0), 1.0)) - math.log(2.0 * math.pi * nu)
    assert density == pytest.approx(expected, rel=1e-12, abs=1e-13)


def bessel_series(x):
    """Log I0(x) with 60 digits, by its power series."""
    with localcontext(prec=DIGITS):
        quarter, term, total, k = Decimal(x) ** 2 / 4, Decimal(1), Decimal(0), 1
        while term > total * Decimal("1e-50"):
            term *= quarter / (k * k)
            total += term
            k += 1
        # The log of what is near 1 has too few digits.
        return float(total - total**2 / 2 + total**3 / 3) if total < Decimal("1e-12") else float((1 + total).ln())


def bessel_far(x):
    """Log I0(x) with 20 digits, for x >= 50, by its asymptotic series."""
    with localcontext(prec=DIGITS):
        x, term, total = Decimal(x), Decimal(1), Decimal(1)
        for k in range(1, 40):
            term *= Decimal((2 * k - 1) ** 2) / (8 * k * x)
            total += term
        two_pi = Decimal("6.283185307179586476925286766559005768394")
        return float(x - (two_pi * x).ln() / 2 + total.ln())


def test_log_of_a_bessel_function():
    near = [0.0, 1e-150, 1e-8, 1e-3, 0.5, 0.9999, 1.0, 2.5, 7.9, 19.999, 20.0, 30.0, 49.0]
    far = [50.0, 300.0, 713.0, 1e4, 1e8]
    x, expected = np.array([*near, *far]), [*map(bessel_series, near), *map(bessel_far, far)]
    np.testing.assert_allclose(log_i0(x), expected, rtol=1e-14)
    np.testing.assert_allclose(log_i0(-x), expected, rtol=1e-14)
    for sign in (1.0, -1.0):
        np.testing.assert_allclose([compiled_log_i0(sign * own) for own in x], expected, rtol=1e-14)
    assert bessel_far(60.0) == pytest.approx(bessel_series(60.0), rel=1e-15)
    assert np.isnan(compiled_log_i0(math.nan))


def test_digamma_in_compiled_code():
    x = np.array([1e-300, 1e-8, 0.3, 1.0, 1.4616321449683622, 2.0, 9.99, 10.0, 11.0, 1e3, 1e15, 1e300])
    np.testing.assert_allclose([compiled_digamma(own) for own in x], digamma(x), rtol=1e-14, atol=1e-15)
    assert np.isnan([compiled_digamma(own) for own in (0.0, -1.5, math.nan)]).all()
