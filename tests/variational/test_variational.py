"""Variational inference: a lower bound that is one, as high as it can be, and answers that are read like draws."""

import math
from types import SimpleNamespace

import exact
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from family_cases import CASES, with_further_slow
from scipy import stats
from scipy.special import betaln, digamma, gammaln, logsumexp, softmax
from slowly import rest_slow
from small_fits import ONE, rows_of, seeded

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.native.threads import Threads
from pymc_dpgmm.testing import partitions
from pymc_dpgmm.variational import rows as rows_module
from pymc_dpgmm.variational.ascent import ascend, begin, step
from pymc_dpgmm.variational.draws import draw_labels, log_importance
from pymc_dpgmm.variational.model.answer import difference_of_pairs
from pymc_dpgmm.variational.moves import add_components, merge_pairs
from pymc_dpgmm.variational.rows import RowsInMemory
from pymc_dpgmm.variational.search import SearchLimits, find_optimum
from pymc_dpgmm.variational.weights import DirichletWeights, Sticks

LAW = (1.5, 0.8)
# For every prior, what is fitted and the enumerated log probability of a partition.
PRIORS = {
    "dirichlet-process": (lambda: Sticks(0.7), lambda labels: exact.log_eppf(labels, 0.7)),
    "pitman-yor": (lambda: Sticks(0.7, 0.3), lambda labels: exact.log_pitman_yor(labels, 0.7, 0.3)),
    "pitman-yor-negative": (lambda: Sticks(-0.1, 0.6), lambda labels: exact.log_pitman_yor(labels, -0.1, 0.6)),
    "gamma-prior": (lambda: Sticks(1.0, 0.0, LAW), lambda labels: log_eppf_under_law(labels)),
    "finite": (lambda: DirichletWeights(1.3, 3), lambda labels: exact.log_finite_dirichlet(labels, 1.3, 3)),
}


ALPHAS_UNDER_LAW = stats.gamma(LAW[0], scale=1.0 / LAW[1]).ppf((np.arange(4000) + 0.5) / 4000)


def log_eppf_under_law(labels):
    """Average the density over the concentration, by a fine grid of quantiles."""
    return logsumexp(exact.log_eppf(labels, ALPHAS_UNDER_LAW)) - math.log(len(ALPHAS_UNDER_LAW))


def log_evidence(case, n, log_prior):
    """The log evidence of the first rows of a case: a sum over all partitions."""
    base, values, d, _ = CASES[case]
    parameters = base.numbers(d)._asdict()
    all_labels = partitions(n)
    given = exact.log_likelihoods(all_labels, values[:n], exact.LOG_MARGINALS[base.family.name], **parameters)
    return float(logsumexp(given + [log_prior(labels) for labels in all_labels]))


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("case", with_further_slow(CASES))
def test_bound_is_below_the_enumerated_evidence(case, prior):
    """The best of several fits stays below, and is not far below."""
    n = 5
    make, log_prior = PRIORS[prior]
    rows, evidence = rows_of(case, n), log_evidence(case, n, log_prior)
    bounds = []
    for n_components in (1, 2, 3, 5):
        state = seeded(rows, make(), n_components, n_components)
        assert state.bound <= evidence + 1e-9
        bounds.append(ascend(rows, make(), state, ONE, 1e-9, 500).bound)
    assert max(bounds) <= evidence + 1e-9
    assert max(bounds) > evidence - 4.0


@pytest.mark.parametrize("case", with_further_slow(CASES))
def test_finite_mixture_of_one_component_has_the_evidence_itself(case):
    """With a single component nothing is approximated."""
    base, values, d, _ = CASES[case]
    slow = exact.LOG_MARGINALS[base.family.name](values, **base.numbers(d)._asdict())
    rows, prior = rows_of(case), DirichletWeights(1.3, 1)
    state = step(rows, prior, seeded(rows, prior, 1, 0), ONE)
    assert state.bound == pytest.approx(slow, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("case", ["niw", "multinomial", "regression"])
def test_process_with_one_component_leaves_the_stick_random(case):
    base, values, d, _ = CASES[case]
    slow = exact.LOG_MARGINALS[base.family.name](values, **base.numbers(d)._asdict())
    rows, alpha, n = rows_of(case), 0.7, len(values)
    state = step(rows, Sticks(alpha), seeded(rows, Sticks(alpha), 1, 0), ONE)
    assert state.bound == pytest.approx(slow + betaln(1 + n, alpha) - betaln(1, alpha), rel=1e-9)


def slow_sums(family, params, rows, weights):
    """Sums of weighted rows by the family's own update, one row after another."""
    shapes = {name: [getattr(params, c) for c in letters] for name, letters in family.sums.items()}
    sums = {name: np.zeros(shape).ravel() for name, shape in shapes.items()}
    n, s = 0.0, SimpleNamespace(**sums)
    for x, weight in zip(rows, weights, strict=True):
        family.update(params, n, s, x, weight)
        n += weight
    return n, s


@pytest.mark.parametrize("case", with_further_slow(CASES))
def test_responsibilities_and_sums_match_slow_ones(case):
    """Sums are those of the family's own update, and expected densities derivatives of its log evidence."""
    base, *_ = CASES[case]
    rows, prior = rows_of(case), Sticks(1.0)
    before = seeded(rows, prior, 3, 5)
    after, entropy = rows.respond(before.sums, before.weights.log_weights, ONE)
    densities = rows.log_densities(before.sums)
    family, table = base.family, rows.views[0].table
    numbers, fields = table.shifted, dict(table.shifted._asdict())
    lengths = family.lengths(numbers)
    fields |= lengths | family.tabulate(numbers, 0)
    p = SimpleNamespace(**{k: v.ravel() if isinstance(v, np.ndarray) else v for k, v in fields.items()})
    if table.starts is None:
        data = list(table.rows)
    else:
        data = [table.rows[a:b] for a, b in zip(table.starts[:-1], table.starts[1:], strict=True)]
    cache = {name: np.zeros([lengths[c] for c in letters]).ravel() for name, letters in family.cache.items()}

    def evidence(n, s):
        room = [SimpleNamespace(**cache)] * (family.log_evidence.__code__.co_argcount - 3)
        return family.log_evidence(p, n, s, *room)

    def flat(s):
        return np.concatenate([np.ravel(getattr(s, name)) for name in family.sums])

    r = softmax(densities + before.weights.log_weights, axis=1)
    assert entropy == pytest.approx(-np.sum(r * np.log(np.maximum(r, 1e-300))), rel=1e-9, abs=1e-9)
    for k in range(3):
        n, s = slow_sums(family, p, data, r[:, k])
        assert after.sizes[k] == pytest.approx(n, rel=1e-9)
        np.testing.assert_allclose(after.views[0][k], flat(s), rtol=1e-8, atol=1e-9)
        assert rows.log_evidences(after)[k] == pytest.approx(evidence(n, s), rel=1e-9)
    # The state before has weighted rows too: the derivative in the weight of one more.
    weights = softmax(rows.log_densities(before.source[0]) + before.source[1], axis=1)
    for i in range(3):
        for k in range(3):
            found = []
            # Weights must not become negative.
            for change in (0.0, 1e-5, 2e-5):
                changed = weights[:, k].copy()
                changed[i] += change
                found.append(evidence(*slow_sums(family, p, data, changed)))
            expected = (4.0 * found[1] - found[2] - 3.0 * found[0]) / 2e-5
            assert densities[i, k] == pytest.approx(expected, rel=1e-5, abs=1e-5)


def normal_fit(seed=3, n_components=3):
    """A fit of one normal column under a gamma prior of alpha, at its optimum, and its responsibilities."""
    base, values, d, _ = CASES["nig-one-column"]
    rows, prior = rows_of("nig-one-column"), Sticks(1.0, 0.0, LAW)
    state = ascend(rows, prior, seeded(rows, prior, n_components, seed), ONE, 1e-13, 20_000)
    r = softmax(rows.log_densities(state.source[0]) + state.source[1], axis=1)
    return values[:, 0], base.numbers(d), state, r


def normal_parameters(x, params, r):
    """Posterior parameters of the clusters of one column, from the textbook (Murphy 2007, eqs 197-200)."""
    mu, kappa, a, b = (float(own[0]) for own in params)
    n, total = r.sum(axis=0), r.T @ x
    mean = (kappa * mu + total) / (kappa + n)
    b_n = b + 0.5 * (kappa * mu**2 + r.T @ x**2 - (kappa + n) * mean**2)
    return mean, kappa + n, a + 0.5 * n, b_n


def log_prior_of_sticks(v, alpha):
    return stats.beta.logpdf(v, 1.0, alpha[:, None]).sum(axis=1)


def test_bound_is_the_mean_of_log_p_less_log_q():
    """With draws of every unknown from the approximation, and densities by SciPy."""
    x, params, state, r = normal_fit()
    mu, kappa, a, b = (float(own[0]) for own in params)
    rng, m = np.random.default_rng(1), 20_000
    mean, kappa_n, a_n, b_n = normal_parameters(x, params, r)
    sticks, (shape, rate) = state.weights.parameters, state.weights.alpha
    alpha = rng.gamma(shape, 1.0 / rate, m)
    v = rng.beta(*sticks.T, size=(m, 3))
    z = np.array([rng.choice(3, m, p=own / own.sum()) for own in r]).T
    variance = stats.invgamma.rvs(a_n, scale=b_n, size=(m, 3), random_state=rng)
    centre = rng.normal(mean, np.sqrt(variance / kappa_n))
    log_q = stats.gamma.logpdf(alpha, shape, scale=1.0 / rate) + stats.beta.logpdf(v, *sticks.T).sum(axis=1)
    log_q += np.log(r[np.arange(len(x)), z]).sum(axis=1)
    log_q += stats.invgamma.logpdf(variance, a_n, scale=b_n).sum(axis=1)
    log_q += stats.norm.logpdf(centre, mean, np.sqrt(variance / kappa_n)).sum(axis=1)
    log_p = stats.gamma.logpdf(alpha, LAW[0], scale=1.0 / LAW[1]) + log_prior_of_sticks(v, alpha)
    weights = v * np.cumprod(np.column_stack([np.ones(m), 1.0 - v[:, :-1]]), axis=1)
    each = np.arange(m)[:, None]
    log_p += np.log(weights[each, z]).sum(axis=1)
    log_p += stats.invgamma.logpdf(variance, a, scale=b).sum(axis=1)
    log_p += stats.norm.logpdf(centre, mu, np.sqrt(variance / kappa)).sum(axis=1)
    log_p += stats.norm.logpdf(x, centre[each, z], np.sqrt(variance[each, z])).sum(axis=1)
    error = np.std(log_p - log_q) / math.sqrt(m)
    assert abs(np.mean(log_p - log_q) - state.bound) < 4.0 * error
    assert error < 0.05


def slow_bound(x, params, point):
    """The bound of one normal column at any values of all variational parameters, term by term."""
    mu, kappa, a, b = (float(own[0]) for own in params)
    n_components = 3
    logits = point[: len(x) * n_components].reshape(len(x), n_components)
    r = softmax(logits, axis=1)
    rest = point[len(x) * n_components :]
    stick_a, stick_b, kappa_n, a_n, b_n = np.exp(rest[: 5 * n_components]).reshape(5, n_components)
    mean = rest[5 * n_components : 6 * n_components]
    shape, rate = np.exp(rest[6 * n_components :])
    log_alpha, alpha = digamma(shape) - math.log(rate), shape / rate
    log_v = digamma(stick_a) - digamma(stick_a + stick_b)
    log_left = digamma(stick_b) - digamma(stick_a + stick_b)
    log_weights = log_v + np.concatenate([[0.0], np.cumsum(log_left)[:-1]])
    precision, log_variance = a_n / b_n, np.log(b_n) - digamma(a_n)
    total = np.sum(r * log_weights) - np.sum(r * np.log(r))
    squared = precision * (x[:, None] - mean) ** 2 + 1.0 / kappa_n
    total -= 0.5 * np.sum(r * (math.log(2.0 * math.pi) + log_variance + squared))
    total += np.sum(log_alpha + (alpha - 1.0) * log_left)
    total -= np.sum((stick_a - 1.0) * log_v + (stick_b - 1.0) * log_left - betaln(stick_a, stick_b))
    total += LAW[0] * math.log(LAW[1]) - gammaln(LAW[0]) + (LAW[0] - 1.0) * log_alpha - LAW[1] * alpha
    total -= shape * math.log(rate) - gammaln(shape) + (shape - 1.0) * log_alpha - rate * alpha
    total += np.sum(0.5 * np.log(kappa / kappa_n) + 0.5)
    total -= 0.5 * kappa * np.sum(precision * (mean - mu) ** 2 + 1.0 / kappa_n)
    total += np.sum(a * math.log(b) - gammaln(a) - (a + 1.0) * log_variance - b * precision)
    total -= np.sum(a_n * np.log(b_n) - gammaln(a_n) - (a_n + 1.0) * log_variance - b_n * precision)
    return float(total)


def test_derivatives_of_the_bound_vanish_at_the_optimum():
    """In responsibilities, sticks, concentration, and means, precisions, shapes and scales of clusters."""
    x, params, state, r = normal_fit()
    mean, kappa_n, a_n, b_n = normal_parameters(x, params, r)
    sticks, (shape, rate) = state.weights.parameters, state.weights.alpha
    positive = np.log(np.concatenate([sticks[:, 0], sticks[:, 1], kappa_n, a_n, b_n]))
    point = np.concatenate([np.log(r).ravel(), positive, mean, np.log([shape, rate])])
    assert slow_bound(x, params, point) == pytest.approx(state.bound, rel=1e-10)
    steps = 1e-4 * np.eye(len(point))
    gradient = [(slow_bound(x, params, point + s) - slow_bound(x, params, point - s)) / 2e-4 for s in steps]
    np.testing.assert_allclose(gradient, 0.0, atol=3e-6)


def random_run(seed):
    """Steps, merges and births from a random start of random data; each step itself asserts that none falls."""
    rng = np.random.default_rng(seed)
    case = list(CASES)[seed % len(CASES)]
    prior = list(PRIORS.values())[int(rng.integers(len(PRIORS)))][0]()
    base, values, d, _ = CASES[case]
    rows = RowsInMemory([View(base.family, base.numbers(d), values[rng.choice(9, int(rng.integers(2, 30)))])])
    most = 3 if not prior.is_ordered else 6
    state = begin(rows, prior, rows.of_single(rng.choice(rows.n, most if rng.random() < 0.5 else 2)), ONE)
    bounds = [state.bound]
    for _ in range(3):
        state = ascend(rows, prior, state, ONE, 0.0, 6, bounds)
        state = merge_pairs(rows, prior, state)
        bounds.append(state.bound)
        state, _ = add_components(rows, prior, state, ONE, rng, most, 1e-9)
        bounds.append(state.bound)
        assert state.sums.sizes.sum() == pytest.approx(rows.n, rel=1e-9)
    return np.array(bounds)


def assert_never_falls(seeds):
    for seed in seeds:
        bounds = random_run(seed)
        assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[:-1])), seed


def test_bound_never_falls():
    assert_never_falls(range(100))


@pytest.mark.slow
def test_bound_never_falls_in_many_runs():
    """Every step of the ascent raises the bound, for every family and prior."""
    assert_never_falls(range(100, 1_100))


def test_a_bound_that_falls_is_an_error():
    rows, prior = rows_of("nig"), Sticks(1.0)
    state = seeded(rows, prior, 2, 1)
    with pytest.raises(FloatingPointError, match="the bound fell from"):
        step(rows, prior, state._replace(entropy=state.entropy + 50.0), ONE)


def clouds(n=300, d=2, seed=1):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    return 8.0 * np.eye(3, d)[labels] + rng.normal(size=(n, d)), labels


def rows_of_clouds(n=300):
    values, _ = clouds(n)
    base = dp.NormalInverseWishart.from_data(values)
    return RowsInMemory([View(base.family, base.numbers(2), values)])


def test_births_find_clusters_and_merges_take_copies_away():
    rows, prior, rng = rows_of_clouds(), Sticks(1.0), np.random.default_rng(1)
    state = begin(rows, prior, rows.of_single(np.array([0])), ONE)
    for _ in range(4):
        state = ascend(rows, prior, state, ONE, 1e-8, 100)
        state, _ = add_components(rows, prior, state, ONE, rng, 10, 1e-6)
    state = merge_pairs(rows, prior, ascend(rows, prior, state, ONE, 1e-10, 200))
    np.testing.assert_allclose(state.sums.sizes, 100.0, atol=0.5)
    # Every component twice, with half of its rows each.
    half = rows.scaled(state.sums, np.full(3, 0.5))
    doubled = step(rows, prior, begin(rows, prior, half.beside(half), ONE), ONE)
    merged = merge_pairs(rows, prior, doubled)
    assert merged.n_components == 3
    assert merged.bound > doubled.bound
    assert step(rows, prior, merged, ONE).bound == pytest.approx(state.bound, abs=0.1)


@pytest.mark.parametrize("prior", ["finite", "gamma-prior", "pitman-yor"])
def test_search_ends_at_the_same_optimum_from_any_start(prior):
    rows = rows_of_clouds()
    found = [
        find_optimum(rows, PRIORS[prior][0](), np.random.default_rng(s), SearchLimits(20, 1e-9, 500), ONE)
        for s in (1, 2)
    ]
    assert all(optimum.has_converged for optimum in found)
    assert found[0].state.bound == pytest.approx(found[1].state.bound, abs=1e-3)


def test_chunks_and_threads_change_nothing(monkeypatch):
    rows, prior = rows_of_clouds(5_000), Sticks(1.0)
    state = seeded(rows, prior, 4, 1)
    whole = step(rows, prior, state, ONE)
    monkeypatch.setattr(rows_module, "CHUNK", 600)
    parts = step(rows, prior, state, ONE)
    with Threads(3) as threads:
        shared = step(rows, prior, state, threads)
    assert shared.bound == parts.bound
    assert parts.bound == pytest.approx(whole.bound, rel=1e-12)


@pytest.mark.parametrize("case", ["bernoulli", "categorical", "multinomial", "poisson"])
@pytest.mark.parametrize("share", [1.0, 0.0], ids=["sparse", "anew"])
def test_sums_of_rows_that_are_not_kept(case, share, monkeypatch):
    prior, chosen = Sticks(1.0), np.array([2, 5, 7])
    kept = rows_of(case)
    monkeypatch.setattr(rows_module, "_MOST_KEPT", 0)
    monkeypatch.setattr(rows_module, "_SPARSE_SHARE", share)
    other = rows_of(case)
    assert (other.views[0].rows is None) == (share == 0.0)
    for some, same in ((kept, other), (kept.subset(chosen), other.subset(chosen))):
        state, found = (step(r, prior, seeded(r, prior, 2, 3), ONE) for r in (some, same))
        assert found.bound == pytest.approx(state.bound, rel=1e-12)


def test_draws_of_labels_follow_the_responsibilities():
    rows, prior = rows_of("nig-one-column"), Sticks(1.0)
    state = ascend(rows, prior, seeded(rows, prior, 3, 2), ONE, 1e-9, 30)
    r = softmax(rows.log_densities(state.source[0]) + state.source[1], axis=1)
    labels, log_q = draw_labels(rows, state, 40_000, np.random.default_rng(1))
    for k in range(3):
        np.testing.assert_allclose(np.mean(labels == k, axis=0), r[:, k], atol=4.0 * 0.5 / 200.0)
    np.testing.assert_allclose(log_q, np.log(r[np.arange(rows.n), labels]).sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("prior", rest_slow(["dirichlet-process", "gamma-prior", "finite"], 0))
def test_importance_weights_estimate_the_evidence(prior):
    """Where as many components are offered as there are rows, their mean is the enumerated evidence."""
    make, log_prior = PRIORS[prior]
    n = 3
    rows, evidence = rows_of("bernoulli", n), log_evidence("bernoulli", n, log_prior)
    state = ascend(rows, make(), begin(rows, make(), rows.of_single(np.arange(3)), ONE), ONE, 1e-9, 50)
    found, _ = log_importance(rows, make(), state, 40_000, np.random.default_rng(1))
    share = np.exp(found - evidence)
    # Sticks beyond the third, which no row chooses here, have what is left.
    assert share.mean() <= 1.0 + 5.0 * share.std() / 200.0
    if prior == "finite":
        assert abs(share.mean() - 1.0) < 5.0 * share.std() / 200.0
    assert np.mean(found) == pytest.approx(state.bound, abs=3.0)


def test_seed_003_five_components_offered_for_data_of_two():
    """Sugiyama (2016), figure 20.4: weights (.01, .33, .01, .01, .65), by the prior of the listing 20.3."""
    rng = np.random.default_rng(1)
    first = np.column_stack([2.0 * rng.normal(size=100) - 5.0, rng.normal(size=100)])
    second = np.column_stack([rng.normal(size=50), rng.normal(size=50) + 3.0])
    base = dp.NormalInverseWishart(mu=0.0, kappa=1.0, nu=3.0, psi=np.eye(2))
    with pm.Model():
        dp.FiniteMixture("y", 5.0, 5, base, observed=np.vstack([first, second]))
        fit = dp.fit(random_seed=1, progressbar=False)
    np.testing.assert_allclose(np.sort(fit.weights), [0.01, 0.01, 0.01, 0.33, 0.65], atol=0.02)
    assert fit.n_components == 2


def fitted(base=None, values=None, make=dp.DPMixture, alpha=1.0, seed=1, **arguments):
    values = clouds(90)[0] if values is None else values
    with pm.Model() as model:
        alpha = pm.Gamma("alpha", 1.0, 1.0) if alpha is None else alpha
        make("y", alpha, base=base, observed=values, **arguments)
        return model, dp.fit(random_seed=seed, progressbar=False)


def test_draws_take_the_functions_of_the_package():
    _, fit = fitted(alpha=None)
    idata = fit.to_datatree(60, random_seed=1)
    assert idata["posterior"]["y_labels"].shape == (1, 60, 90)
    said = "From mean-field variational inference: not draws of the posterior"
    assert said in repr(dp.summary(idata, "y", random_seed=1))
    np.testing.assert_allclose(idata["posterior"]["alpha"].mean(), fit.alpha[0] / fit.alpha[1], rtol=0.5)
    # A row far from its cloud may be a cluster of its own.
    labels = dp.point_partition(idata, "y")["labels"].to_numpy()
    assert np.mean(labels == clouds(90)[1]) > 0.97
    components = dp.component_draws(idata, "y", labels, random_seed=1)
    assert components["mean"].sizes["cluster"] == labels.max() + 1
    assert float(dp.density(idata, "y", [[8.0, 0.0]])["mean"][0]) > 0.02
    assert float(dp.membership(idata, "y", [[8.0, 0.0]])["probability"].max()) > 0.9
    assert dp.summary(idata, "y").clusters is not None
    assert isinstance(dp.co_clustering(idata, "y"), xr.DataArray | xr.Dataset)
    np.testing.assert_array_equal(idata["variational"]["elbo"], fit.elbo)
    assert np.all(np.diff(fit.elbo) > -1e-6)


def test_repr_says_what_it_is_not():
    _, fit = fitted()
    text = repr(fit)
    for part in (
        f"{fit.n_components} components in use",
        "not the posterior",
        "variances are too small",
        "fit.check()",
    ):
        assert part in text


def test_starts_begin_chains_at_different_optima():
    values = np.concatenate([clouds(60)[0], [[4.0, 4.0], [4.2, 3.9]]])
    model, fit = fitted(values=values, alpha=None)
    starts = fit.initvals(chains=4, random_seed=1)
    assert [set(start) for start in starts] == [{"alpha", "y_labels", "y_kappa", "y_degrees", "y_within"}] * 4
    for start in starts:
        assert start["y_labels"].shape == (62,)
        assert start["alpha"] > 0.0
    with model:
        idata = pm.sample(
            20,
            tune=20,
            chains=2,
            cores=1,
            initvals=starts[:2],
            progressbar=False,
            compute_convergence_checks=False,
        )
    assert idata["posterior"].sizes["draw"] == 20


def test_same_seed_same_answer():
    first, second = (fitted(seed=5)[1] for _ in range(2))
    np.testing.assert_array_equal(first.elbo, second.elbo)
    np.testing.assert_array_equal(
        first.initvals(random_seed=1)[0]["y_labels"], second.initvals(random_seed=1)[0]["y_labels"]
    )


def test_responsibilities_add_up_to_one():
    _, fit = fitted()
    r = fit.responsibilities()
    np.testing.assert_allclose(r.sum(axis=1), 1.0)
    np.testing.assert_allclose(r.sum(axis=0), fit.sizes)


@pytest.mark.parametrize("case", with_further_slow(CASES))
def test_every_base_measure_by_its_model_line(case):
    """The fit of a model is that of its rows, for every family."""
    base, values, d, _ = CASES[case]
    observed = values[:, :d] if base.family.name != "DirichletMultinomial" else values[:, :-1]
    observed = observed[:, 0] if base.family.takes == (1,) else observed
    _, fit = fitted(base, observed)
    assert fit.elbo[-1] == pytest.approx(rows_bound(case, fit), rel=1e-9)


def rows_bound(case, fit):
    """The bound at the responsibilities of a fit, from sums that are merged row by row."""
    rows = rows_of(case)
    r = fit.responsibilities()
    singles, sums = rows.of_single(np.arange(rows.n)), rows.empty(r.shape[1])
    for i in range(rows.n):
        sums = rows.merged(sums, rows.scaled(singles.take(np.full(r.shape[1], i)), r[i]))
    entropy = -np.sum(r * np.log(np.maximum(r, 1e-300)))
    return float(rows.log_evidences(sums).sum() + Sticks(1.0).fit(sums.sizes).bound + entropy)


def test_several_views_and_sparse_rows():
    values, labels = clouds(60)
    counts = np.random.default_rng(1).multinomial(20, [0.2, 0.3, 0.5], size=60)
    base = {"a": dp.NormalInverseWishart.from_data(values), "b": dp.DirichletMultinomial(1.0)}
    with pm.Model():
        dp.DPMixture("y", 1.0, base, observed={"a": values, "b": counts})
        fit = dp.fit(random_seed=1, progressbar=False)
    assert fit.n_components == 3
    np.testing.assert_array_equal(dp.point_partition(fit.to_datatree(20), "y_labels")["labels"], labels)


def test_missing_bits_integrate_out():
    """A column's entries that are there have the evidence of one component; NaN adds nothing."""
    bits = CASES["bernoulli"][1].copy()
    bits[2, 0] = bits[5, 1] = np.nan
    _, fit = fitted(dp.BetaBernoulli(0.7, 1.2), bits, make=dp.FiniteMixture, n_components=1)
    slow = sum(
        exact.beta_bernoulli_log_marginal(column[~np.isnan(column)][:, None], 0.7, 1.2) for column in bits.T
    )
    assert fit.elbo[-1] == pytest.approx(slow, rel=1e-9)


def test_finite_mixture_that_is_full_does_not_warn():
    _, fit = fitted(make=dp.FiniteMixture, n_components=2)
    assert fit.n_components == 2


@pytest.mark.parametrize("values", [[[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]], [[1.0, 2.0]] * 5 + [[9.0, 2.0]]])
def test_very_few_rows(values):
    base = dp.NormalInverseWishart(mu=0.0, kappa=0.1, nu=4.0, psi=np.eye(2))
    _, fit = fitted(base, np.array(values))
    assert np.isfinite(fit.elbo[-1])
    assert fit.initvals(1)[0]["y_labels"].shape == (len(values),)


def test_largest_number_of_components_warns():
    with pm.Model():
        dp.DPMixture("y", 1.0, observed=clouds()[0])
        with pytest.warns(UserWarning, match="max_components=2"):
            fit = dp.fit(max_components=2, random_seed=1, progressbar=False)
    assert fit.n_components == 2


def test_hyperparameters_at_a_point():
    values = clouds(60)[0]
    with pm.Model():
        kappa = pm.Gamma("kappa", 1.0, 1.0)
        base = dp.NormalInverseWishart(mu=0.0, kappa=kappa, nu=4.0, psi=np.eye(2))
        dp.DPMixture("y", 1.0, base, observed=values)
        with pytest.raises(ValueError, match=r"point=\{'kappa': \.\.\.\}"):
            dp.fit(progressbar=False)
        with pytest.raises(ValueError, match="kappa in point must lie in its support"):
            dp.fit(point={"kappa": -1.0}, progressbar=False)
        with pytest.raises(ValueError, match="point must have names"):
            dp.fit(point={"kapa": 1.0}, progressbar=False)
        fit = dp.fit(point={"kappa": 0.1}, random_seed=1, progressbar=False)
        assert "given kappa. An approximation" in repr(fit)
    _, other = fitted(dp.NormalInverseWishart(mu=0.0, kappa=0.1, nu=4.0, psi=np.eye(2)), values)
    assert fit.elbo[-1] == pytest.approx(other.elbo[-1], rel=1e-9)
    assert fit.initvals(1)[0]["kappa"] == 0.1
    assert float(fit.to_datatree(5)["posterior"]["kappa"].max()) == pytest.approx(0.1)


def refused_models():
    values = clouds(12)[0]
    gaps = values.copy()
    gaps[0, 0] = np.nan
    nig = dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
    yield "mixtures of finite", lambda: dp.MFMixture("y", 1.0, observed=values)
    yield "units", lambda: dp.DPMixture("y", 1.0, nig, observed=values, unit=np.arange(12) // 2)
    yield "groups", lambda: dp.HDPMixture("y", 1.0, 1.0, group=np.arange(12) % 2, observed=values)
    yield "known_labels", lambda: dp.DPMixture("y", 1.0, observed=values, known_labels=[0] + [-1] * 11)
    yield "latent", lambda: dp.DPMixture("y", 1.0, nig, shape=(12, 2))
    yield "missing entries", lambda: dp.DPMixture("y", 1.0, dp.NormalInverseWishart, observed=gaps)
    yield "expected log density.*leave out the rows with gaps", lambda: dp.DPMixture("y", 1.0, nig, observed=gaps)
    yield "no data depends", lambda: dp.CRP("y_labels", 1.0, n=12)
    yield "free labels of a mixture", lambda: pm.Normal("x")


@pytest.mark.parametrize(("words", "make"), list(refused_models()))
def test_models_that_are_refused_in_words(words, make):
    with pm.Model():
        make()
        with pytest.raises(TypeError, match=words):
            dp.fit(progressbar=False)


def test_bad_arguments():
    with pm.Model():
        dp.PYMixture("y", pm.Gamma("alpha", 1.0, 1.0), 0.3, observed=clouds(12)[0])
        with pytest.raises(ValueError, match="no approximate posterior of"):
            dp.fit(progressbar=False)
        for arguments, words in (
            ({"method": "advi"}, "method must be"),
            ({"max_components": 0}, "max_components must be at least 1"),
            ({"n_starts": 0}, "n_starts must be at least 1"),
            ({"tol": 0.0}, "tol must be > 0"),
            ({"max_steps": 0}, "max_steps must be at least 1"),
        ):
            with pytest.raises(ValueError, match=words):
                dp.fit(point={"alpha": 1.0}, progressbar=False, **arguments)
        assert dp.fit(point={"alpha": 1.0}, progressbar=False, random_seed=1).alpha is None


@pytest.mark.slow
def test_check_compares_with_exact_draws():
    """What it says of either is what draws of both say; the approximation has too few clusters."""
    model, fit = fitted(alpha=None)
    found = fit.check(500, tune=200, chains=2, random_seed=1, progressbar=False)
    ours, exact = found["n_clusters"].to_numpy()
    with model:
        idata = pm.sample(1_000, chains=4, cores=1, random_seed=2, progressbar=False)
    drawn = idata["posterior"]["y_n_clusters"].to_numpy()
    assert abs(exact - drawn.mean()) < 0.3
    assert abs(float(found["within"]) - np.mean(drawn <= fit.n_components)) < 0.1
    assert ours == pytest.approx(float(fit.to_datatree(500)["posterior"]["y_n_clusters"].mean()), abs=0.1)
    assert ours < exact
    # The clouds are far apart.
    assert float(found["pairs_differ_by_chance"]) < float(found["pairs_differ"]) < 0.1
    assert float(found["elbo"]) == fit.elbo[-1]


def test_check_of_an_approximation_that_is_sure():
    """All draws of the labels are one partition: their weights are equal, and have no tail."""
    with pm.Model():
        dp.DPMixture("y", 1.0, observed=[-2.1, -1.9, -2.0, 3.9, 4.1, 4.0])
        found = dp.fit(random_seed=1, progressbar=False).check(30, tune=20, random_seed=1, progressbar=False)
    assert np.isnan(found["pareto_k"])
    assert float(found["pairs_differ"]) > 0.0


def test_the_difference_by_chance_is_what_is_expected():
    """Of independent draws, and of a chain that often stays where it is, from the same distribution."""
    rng = np.random.default_rng(4)
    shares = np.linspace(0.1, 0.9, 12)

    def independent(n):
        return (rng.random((n, len(shares))) < shares).astype(np.int64)

    for stays in (0.0, 0.8):
        found = []
        for _ in range(60):
            fresh = independent(800)
            kept = np.maximum.accumulate(np.where(rng.random(800) < stays, 0, np.arange(800)))
            found.append(difference_of_pairs(independent(300), fresh[kept].reshape(2, 400, -1)))
        differ, by_chance = np.array(found).mean(axis=0)
        assert by_chance == pytest.approx(differ, rel=0.08)


def blobs():
    rng = np.random.default_rng(5)
    return rng.normal(size=(200, 10)) + 10.0 * rng.normal(size=(4, 10))[np.repeat(np.arange(4), 50)]


@pytest.mark.parametrize("n_starts", [1, 4])
def test_components_without_rows_are_left_out(n_starts):
    """Each costs some of the bound, and narrows the approximation of alpha."""
    with pm.Model():
        base = dp.NormalInverseWishart.from_data(blobs())
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), base, observed=blobs())
        fits = [dp.fit(n_starts=n_starts, random_seed=seed, progressbar=False) for seed in range(4)]
    for fit in fits:
        assert len(fit.sizes) == 4
        assert np.all(fit.sizes > 0.0)
        assert np.ptp(fit.bounds) < 1e-3
        # The same posterior of alpha from every start.
        np.testing.assert_allclose(fit.alpha, fits[0].alpha, rtol=1e-4)


@pytest.mark.slow
def test_more_starts_are_no_worse_where_hyperparameters_are_fitted():
    """They are fitted to several optima, since the best one at some values need not be the best at its own."""
    x = dp.datasets.load_galaxies().to_numpy(dtype=float)
    with pm.Model() as model:
        kappa, scale = pm.Gamma("kappa", 1.0, 10.0), pm.Gamma("scale", 2.0, 0.5)
        base = dp.NormalInverseGamma(x.mean(), kappa, 2.0, scale)
        dp.DPMixture("y", pm.Gamma("alpha", 1.0, 1.0), base, observed=x)
    ends = {}
    for n_starts in (1, 6):
        for seed in (1, 2, 3):
            with model:
                fit = dp.fit(maximize=["kappa", "scale"], n_starts=n_starts, random_seed=seed, progressbar=False)
            priors = stats.gamma(1.0, scale=0.1), stats.gamma(2.0, scale=2.0)
            values = fit.point["kappa"], fit.point["scale"]
            rest = sum(float(own.logpdf(value)) for own, value in zip(priors, values, strict=True))
            ends[n_starts, seed] = float(fit.elbo[-1]) + rest
    for seed in (1, 2, 3):
        assert ends[6, seed] > ends[1, seed] - 1e-3


def test_the_share_of_draws_within_counts_components_in_use():
    """A finite mixture always has all of its components, most of them without rows."""
    with pm.Model():
        y = np.random.default_rng(1).normal(size=12)
        dp.FiniteMixture("y", 3.0, 6, dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0), observed=y)
        fit = dp.fit(random_seed=1, progressbar=False)
        found = fit.check(draws=200, tune=100, random_seed=1, progressbar=False)
    assert fit.n_components == 1
    assert found["within"] < 0.9
