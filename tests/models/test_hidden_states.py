"""Hidden Markov models with any number of states, from the call to what is asked after sampling."""

import functools
import itertools
import math

import arviz as az
import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from sampled import assert_mean_matches, sample
from scipy.special import gammaln, logsumexp
from scipy.stats import gamma as gamma_law

import pymc_dpgmm as dp
from pymc_dpgmm.partitions.hidden_states import OPENS, count_hidden, log_hidden
from pymc_dpgmm.partitions.labels import named_by_appearance
from pymc_dpgmm.partitions.segments import Sequences, sequences_of

COUNTS = np.array([1, 9, 8, 0, 1])
SEQUENCE = np.array(["b", "a", "b", "b", "a"])
ORDER = np.array([3.0, 0.5, 1.0, 2.0, 0.1])
SEQUENCES = sequences_of(np.unique(SEQUENCE, return_inverse=True)[1], ORDER)
PARTITIONS = exact.partitions(len(COUNTS))
SHAPE, RATE = 1.4, 0.3
# Quadrature over alpha and kappa, whose priors are Gamma(2, 1) and Gamma(2, 1).
GRID = np.exp(np.linspace(-4.5, 2.8, 40))
LAW = gamma_law.logpdf(GRID, 2.0) + np.log(GRID)


def log_evidences():
    """Of the counts under each partition."""
    values = np.column_stack([COUNTS, np.ones(len(COUNTS))])
    return np.array(
        [
            sum(exact.gamma_poisson_log_marginal(values[own == k], SHAPE, RATE) for k in range(own.max() + 1))
            for own in PARTITIONS
        ]
    )


@functools.cache
def log_priors(most=math.inf):
    """Of all partitions, with gamma 0.8, for each alpha and kappa of the grid, and of these."""
    log_p = np.full((len(PARTITIONS), len(GRID), len(GRID)), -np.inf)
    alpha, kappa = GRID[:, None], GRID[None, :]
    for at, labels in enumerate(PARTITIONS):
        for openers in itertools.product(range(3), repeat=len(labels)):
            counts = count_hidden(labels, np.array(openers), SEQUENCES)
            if len(counts.tables):
                tables, n_stays, sizes, log_joined = counts
                own = tables.sum() * np.log(alpha) + n_stays * np.log(kappa) + log_joined
                own = own + gammaln(alpha) - gammaln(alpha + 2)
                own = own + sum(gammaln(alpha + kappa) - gammaln(alpha + kappa + size) for size in sizes)
                own = own + gammaln(0.8) - gammaln(0.8 + tables.sum())
                if most < math.inf:
                    own = own + gammaln(tables + 0.8 / most).sum() - len(tables) * gammaln(0.8 / most)
                    # Which of the states these are: none, if there are more of them.
                    n_ways = math.perm(int(most), len(tables))
                    own = own + math.log(n_ways) if n_ways else -np.inf
                else:
                    own = own + len(tables) * np.log(0.8) + gammaln(tables).sum()
                log_p[at] = np.logaddexp(log_p[at], own)
    return log_p + LAW[:, None] + LAW


def posterior_by_quadrature(most=math.inf, possible=True):
    """Probabilities of all partitions, of those that are possible, E log alpha and E log kappa."""
    log_p = log_priors(most) + np.where(possible, log_evidences(), -np.inf)[:, None, None]
    p = np.exp(log_p - logsumexp(log_p))
    return p.sum(axis=(1, 2)), p.sum(axis=(0, 2)) @ np.log(GRID), p.sum(axis=(0, 1)) @ np.log(GRID)


def model_of_counts(**others):
    with pm.Model() as model:
        alpha, kappa = pm.Gamma("alpha", 2.0, 1.0), pm.Gamma("kappa", 2.0, 1.0)
        base = dp.GammaPoisson(SHAPE, RATE)
        rows = {"observed": COUNTS, "sequence": SEQUENCE, "order": ORDER}
        dp.HDPHMM("y", alpha, 0.8, base, kappa=kappa, **rows, **others)
    return model


@pytest.fixture(scope="module")
def fit():
    model = model_of_counts()
    return model, sample(model, 2_000, tune=100, chains=2, cores=1, random_seed=1)


def test_states_and_concentrations_beside_quadrature(fit):
    """The posterior of states, alpha and kappa is that of a sum over all states and openers."""
    _, idata = fit
    p, alpha, kappa = posterior_by_quadrature()
    drawn = idata.posterior["y_labels"].to_numpy().astype(np.int64)
    exact.assert_matches(exact.codes(drawn), PARTITIONS, p)
    assert_mean_matches(np.log(idata.posterior["alpha"].to_numpy()), alpha)
    assert_mean_matches(np.log(idata.posterior["kappa"].to_numpy()), kappa)
    assert float(az.rhat(idata.posterior["alpha"])) < 1.01


@pytest.fixture(scope="module")
def fit_of_two():
    """At most two states, of which those of the first two rows are known."""
    model = model_of_counts(n_states=2, known_labels=["calm", "busy", None, None, None])
    return model, sample(model, 2_000, tune=100, chains=2, cores=1, random_seed=1)


def test_few_states_of_which_some_are_known(fit_of_two):
    """The posterior of states, alpha and kappa is that of a sum over all that are possible."""
    model, idata = fit_of_two
    p, alpha, kappa = posterior_by_quadrature(2.0, [own[0] != own[1] for own in PARTITIONS])
    drawn = idata.posterior["y_labels"].to_numpy().astype(np.int64)
    assert drawn.max() == 1
    exact.assert_matches(exact.codes(drawn), PARTITIONS, p)
    assert_mean_matches(np.log(idata.posterior["alpha"].to_numpy()), alpha)
    assert_mean_matches(np.log(idata.posterior["kappa"].to_numpy()), kappa)
    with model, pytest.raises(NotImplementedError, match="known_labels are not supported"):
        pm.sample_prior_predictive(1)
    # No third state is predicted, and rows that follow have the probabilities of one longer sequence.
    new = dp.sample_new_rows(idata, "y", 4, group="b", random_seed=1)["cluster"].to_numpy()
    assert new.max() == 1
    assert float(dp.transitions(idata, "y", random_seed=1)["new"].max()) == 0.0


@pytest.mark.slow
def test_concentrations_that_nuts_samples_have_the_same_posterior():
    """With a further variable that depends on alpha, its density is that of the model's own graph."""
    with model_of_counts() as model:
        pm.Normal("w", pm.math.log(model["alpha"]), 100.0, observed=0.0)
    idata = sample(model, 6_000, tune=1_000, chains=2, cores=1, random_seed=1)
    p, alpha, kappa = posterior_by_quadrature()
    drawn = idata.posterior["y_labels"].to_numpy().astype(np.int64)
    exact.assert_matches(exact.codes(drawn), PARTITIONS, p)
    assert_mean_matches(np.log(idata.posterior["alpha"].to_numpy()), alpha)
    assert_mean_matches(np.log(idata.posterior["kappa"].to_numpy()), kappa)


def test_a_gamma_that_may_be_tiny():
    """With a prior that has half of its mass below .005, gamma is beside quadrature on a logarithmic grid."""
    x = np.array([0.1, -0.1, 0.2, 0.0, 0.05])
    with pm.Model() as model:
        gamma = pm.Gamma("gamma", 0.1, 0.1)
        dp.HDPHMM("y", 1.0, gamma, dp.NormalInverseGamma(0.0, 0.3, 2.0, 1.0), kappa=1.0, observed=x)
    idata = sample(model, 2_000, tune=100, chains=2, cores=1, random_seed=1)
    grid = np.linspace(-120.0, 4.0, 1_200)
    log_p = gamma_law.logpdf(np.exp(grid), 0.1, scale=10.0) + grid
    sequences, of_gamma = sequences_of(np.zeros(5, dtype=np.int64)), np.full(len(grid), -np.inf)
    for labels in PARTITIONS:
        rows = [x[labels == k, None] for k in range(labels.max() + 1)]
        evidence = sum(exact.nig_log_marginal(own, 0.0, 0.3, 2.0, 1.0) for own in rows)
        for openers in itertools.product(range(3), repeat=5):
            counts = count_hidden(labels, np.array(openers), sequences)
            if len(counts.tables):
                n_tables, n_states = counts.tables.sum(), len(counts.tables)
                own = log_hidden(counts, 1, 1.0, 1.0, 1.0) + gammaln(1.0 + n_tables) + evidence
                log_gamma = n_states * grid + gammaln(np.exp(grid)) - gammaln(np.exp(grid) + n_tables)
                of_gamma = np.logaddexp(of_gamma, own + log_gamma)
    p = np.exp(log_p + of_gamma - logsumexp(log_p + of_gamma))
    drawn = np.log(idata.posterior["gamma"].to_numpy())
    assert_mean_matches((drawn < np.log(0.005)).astype(float), p @ (grid < np.log(0.005)))
    assert_mean_matches(np.maximum(drawn, -40.0), p @ np.maximum(grid, -40.0))


def test_states_that_others_depend_on():
    """A variable that depends on the states weighs them, beside the enumeration."""
    weights = np.array([0.0, 1.1, -0.7, 0.4, 0.9])
    with model_of_counts() as model:
        same = pm.math.eq(model["y_labels"], model["y_labels"][0])
        pm.Potential("w", (same * weights).sum())
    idata = sample(model, 1_000, tune=50, chains=2, cores=1, random_seed=1)
    p, _, _ = posterior_by_quadrature()
    p = p * np.exp(np.equal(PARTITIONS, PARTITIONS[:, :1]) @ weights)
    drawn = idata.posterior["y_labels"].to_numpy().astype(np.int64)
    exact.assert_matches(exact.codes(drawn), PARTITIONS, p / p.sum())


def next_states(labels, openers, numbers, most=math.inf):
    """Probabilities that a row after sequence b is in each state, or a new one, by the joint density."""
    rows = np.insert(SEQUENCES.rows, len(SEQUENCES.rows), len(COUNTS))
    longer = Sequences(rows, SEQUENCES.starts + np.array([0, 0, 1]))
    before = log_hidden(count_hidden(labels, openers, SEQUENCES), 2, *numbers, most)
    found = []
    for state in range(labels.max() + 2):
        with_row = [
            log_hidden(count_hidden(np.append(labels, state), np.append(openers, does), longer), 2, *numbers, most)
            for does in range(3)
        ]
        found.append(np.exp(logsumexp(with_row) - before))
    return np.array(found)


@pytest.mark.parametrize("which", ["fit", "fit_of_two"])
def test_the_next_row(which, request):
    """Its state has the probabilities of the joint density, one row longer; drawn ones have them too."""
    _, idata = request.getfixturevalue(which)
    most = math.inf if which == "fit" else 2.0
    posterior = idata.posterior.isel(chain=0, draw=slice(0, 400))
    labels, openers = posterior["y_labels"].to_numpy(), posterior["y_openers"].to_numpy()
    expected = np.zeros((400, 7))
    for draw in range(400):
        numbers = float(posterior["alpha"][draw]), 0.8, float(posterior["kappa"][draw])
        own = next_states(labels[draw].astype(np.int64), openers[draw], numbers, most)
        assert own.sum() == pytest.approx(1.0)
        expected[draw, : len(own)] = own
    part = idata.sel(draw=slice(0, 399)).isel(chain=[0])
    values = np.arange(3)
    log_p = dp.log_density(part, "y", values, group="b")
    of_rows = np.zeros((400, 3))
    for draw in range(400):
        for k in range(labels[draw].max() + 2):
            rows = COUNTS[labels[draw] == k]
            a, b = SHAPE + rows.sum(), RATE + len(rows)
            of_rows[draw] += expected[draw, k] * np.exp(exact.nbinom.logpmf(values, a, b / (b + 1.0)))
    np.testing.assert_allclose(np.exp(log_p["row"]), of_rows.mean(axis=0), rtol=1e-6)
    drawn = dp.sample_new_rows(idata, "y", 2, group="b", random_seed=1)["cluster"].to_numpy()
    of_first = drawn[0, :400, 0]
    means = expected[np.arange(400), of_first].mean(), (expected**2).sum(axis=1).mean()
    assert means[0] == pytest.approx(means[1], abs=0.06)


def test_probabilities_and_transitions(fit):
    """Rows add up to one, and those of transitions have the means of their posterior given states and openers."""
    _, idata = fit
    reference = np.array([0, 1, 1, 0, 0])
    found = dp.hidden_states(idata, "y", reference)
    np.testing.assert_allclose(found["probability"].sum("state"), 1.0)
    assert found["sequence"].to_numpy().tolist() == SEQUENCE.tolist()
    part = idata.sel(draw=slice(0, 0)).isel(chain=[0])
    labels, openers = (
        part.posterior[f"y_{key}"].to_numpy()[0, 0].astype(np.int64) for key in ("labels", "openers")
    )
    drawn = xr_mean([dp.transitions(part, "y", labels, random_seed=seed) for seed in range(400)])
    numbers = float(part.posterior["alpha"][0, 0]), 0.8, float(part.posterior["kappa"][0, 0])
    # The last row of sequence b is row 0.
    expected = next_states(labels, openers, numbers)
    state = labels[0]
    np.testing.assert_allclose(drawn["transition"][0, 0, state], expected[:-1], atol=0.06)
    np.testing.assert_allclose(drawn["new"][0, 0, state], expected[-1], atol=0.06)
    total = drawn["transition"].sum("next_state") + drawn["new"]
    np.testing.assert_allclose(total, 1.0)
    np.testing.assert_allclose(drawn["first"].sum("next_state"), 1.0, atol=0.6)
    assert (drawn["duration"] >= 1.0).all()


def xr_mean(datasets):
    return sum(datasets[1:], datasets[0]) / len(datasets)


def test_names_and_pictures(fit):
    _, idata = fit
    assert dp.hidden_states(idata, "y", list("uvvuu"))["labels"].to_numpy().tolist() == list("uvvuu")
    dp.plot_states(idata, "y", sequence="b").canvas.draw()
    dp.plot_transitions(idata, "y", random_seed=1).canvas.draw()
    with pytest.raises(ValueError, match="name one of the sequences"):
        dp.plot_states(idata, "y")
    with pytest.raises(ValueError, match=r"are hidden states: use dp\.hidden_states"):
        dp.change_points(idata, "y")
    with pytest.raises(NotImplementedError, match="rows in order"):
        dp.log_likelihood(idata, "y")


@pytest.mark.parametrize("which", ["fit", "fit_of_two"])
def test_densities_of_states_and_openers(which, request):
    """The graph has the density of the numbers; what is impossible has none."""
    model, _ = request.getfixturevalue(which)
    most = math.inf if which == "fit" else 2.0
    point = model.initial_point(random_seed=1)
    log_p = model.compile_logp([model["y_labels"], model["y_openers"]])
    alpha, kappa = np.exp(point["alpha_log__"]), np.exp(point["kappa_log__"])
    rng = np.random.default_rng(0)
    seen = 0
    for _ in range(600):
        labels, openers = rng.integers(3, size=5), rng.integers(3, size=5)
        openers[rng.random(5) < 0.5] = OPENS
        expected = log_hidden(count_hidden(labels, openers, SEQUENCES), 2, alpha, 0.8, kappa, most)
        if which == "fit_of_two" and labels[0] == labels[1]:
            expected = -np.inf
        seen += expected > -np.inf
        given = {"y_labels": labels.astype("int16"), "y_openers": openers.astype("int8")}
        assert log_p(point | given) == pytest.approx(expected)
    assert seen > 20


def test_prior_draws():
    """Draws of the model are those of tables that have dishes; openers are possible with their labels."""
    with model_of_counts():
        drawn = pm.sample_prior_predictive(1_000, random_seed=1).prior
    labels, openers = (drawn[f"y_{key}"].to_numpy()[0].astype(np.int64) for key in ("labels", "openers"))
    assert all(len(count_hidden(*own, SEQUENCES).tables) for own in zip(labels, openers, strict=True))
    p = np.exp(log_priors()).sum(axis=(1, 2))
    canonical = np.array([named_by_appearance(own)[0] for own in labels])
    exact.assert_matches(exact.codes(canonical)[None], PARTITIONS, p / p.sum())


def series(rng, n, stay=0.95, n_states=3):
    states = np.zeros(n, dtype=np.int64)
    for t in range(1, n):
        states[t] = states[t - 1] if rng.random() < stay else rng.integers(n_states)
    return states


def test_views_gaps_regressions_and_latent_rows():
    """Columns of several kinds share states; rows may be latent, have gaps, and be regressions."""
    rng = np.random.default_rng(5)
    states = series(rng, 120)
    run = {"tune": 200, "chains": 1, "cores": 1, "random_seed": 1}
    x = states[:, None] * 3.0 + rng.normal(size=(120, 2))
    x[rng.random((120, 2)) < 0.1] = np.nan
    table = pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "kind": np.array(list("abc"))[states]})
    base = {
        "reals": (["u", "v"], dp.NormalInverseGamma(3.0, 0.1, 2.0, 1.0)),
        "kind": (["kind"], dp.DirichletCategorical([0.5, 0.5, 0.5])),
    }
    with pm.Model() as model:
        dp.HDPHMM("y", 1.0, 1.0, base, kappa=10.0, observed=table)
    found = dp.hidden_states(sample(model, 100, **run), "y")
    assert (found["labels"].to_numpy() == named_by_appearance(states)[0]).mean() > 0.95
    at = rng.normal(size=120)
    slope = np.array([-3.0, 0.0, 3.0])[states]
    with pm.Model() as model:
        regression = dp.LinearRegression(mu=0.0, precision=0.1, a=2.0, b=1.0, covariates=at)
        dp.HDPHMM("y", 1.0, 1.0, regression, kappa=10.0, observed=slope * at + 0.3 * rng.normal(size=120))
    found = dp.hidden_states(sample(model, 150, **run), "y")
    assert (found["labels"].to_numpy() == named_by_appearance(states)[0]).mean() > 0.8
    with pm.Model() as model:
        rate = dp.HDPHMM("rate", 1.0, 1.0, dp.NormalInverseGamma(2.0, 0.1, 3.0, 0.1), kappa=10.0, shape=120)
        pm.Poisson("y", pm.math.exp(rate), observed=rng.poisson(np.array([2.0, 20.0, 90.0])[states]))
    found = dp.hidden_states(sample(model, 150, **run), "rate")
    assert (found["labels"].to_numpy() == named_by_appearance(states)[0]).mean() > 0.9


def test_the_default_base_measure_has_numbers():
    """Real columns learn nothing, where the user names no base measure; a class still learns."""
    x = np.random.default_rng(3).normal(5.0, 2.0, size=(40, 2))
    with pm.Model() as model:
        dp.HDPHMM("y", 1.0, 1.0, observed=x)
    assert [rv.name for rv in model.free_RVs] == ["y_labels", "y_openers"]
    with pm.Model() as model:
        dp.HDPHMM("y", 1.0, 1.0, dp.NormalInverseGamma, observed=x)
    assert len(model.free_RVs) == 5


def test_what_is_refused():
    x, base = np.arange(6.0), dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
    for options, message in [
        ({"alpha": 0.0}, "alpha must be"),
        ({"kappa": -1.0}, "kappa must be"),
        ({"order": [1, 2, 2, 3, 4, 5]}, "order has 2 for row 1 and for row 2"),
        ({"must_link": [0, 0, -1, -1, -1, -1]}, "must_link is not supported"),
        ({"n_states": 0}, "n_states must be at least 1"),
        ({"n_states": 2.5}, "n_states must be"),
        ({"n_states": 1, "known_labels": [0, 1, -1, -1, -1, -1]}, "known_labels have 2 states, but n_states is 1"),
        ({"known_labels": [0, 1, -1, -1, -1, -1], "initval": [0] * 6}, "initval of labels contradicts"),
        ({"unit": [0, 0, 1, 1, 2, 2]}, "unit is not supported for hidden states"),
        ({"initval": [9] * 6}, "initval of labels must lie"),
    ]:
        given = {"alpha": 1.0, "gamma": 1.0, "base": base, "observed": x} | options
        with pm.Model(), pytest.raises((TypeError, ValueError, NotImplementedError), match=message):
            dp.HDPHMM("y", **given)
