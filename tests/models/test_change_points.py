"""Models of change points, from the call to what is asked after sampling."""

import itertools

import arviz as az
import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from sampled import assert_mean_matches, sample
from scipy.special import betaln, gammaln, logsumexp
from scipy.stats import gamma as gamma_law
from scipy.stats import nbinom

import pymc_dpgmm as dp
from pymc_dpgmm.partitions.segments import sequences_of

COUNTS = np.array([1, 0, 7, 9, 0, 8, 3])
SEQUENCE = np.array(["b", "a", "b", "b", "a", "b", "a"])
ORDER = np.array([3.0, 0.5, 1.0, 2.0, 0.1, 7.0, 9.0])
SEQUENCES = sequences_of(np.unique(SEQUENCE, return_inverse=True)[1], ORDER)
SHAPE, RATES = 1.4, np.exp(np.linspace(-4.0, 4.0, 400))


def segmentations():
    """Labels of all segmentations of the counts, with their numbers of changes."""
    free = np.flatnonzero(SEQUENCES.may_change)
    for chosen in itertools.product([False, True], repeat=len(free)):
        begins = ~SEQUENCES.may_change
        begins[free] = chosen
        yield SEQUENCES.labels(begins), sum(chosen)


def log_marginals(rows, rates):
    """Of counts in one segment, for each rate of the gamma base measure."""
    n, total = len(rows), rows.sum()
    return (
        gammaln(SHAPE + total)
        - gammaln(SHAPE)
        + SHAPE * np.log(rates)
        - (SHAPE + total) * np.log(rates + n)
        - gammaln(rows + 1.0).sum()
    )


def posterior_by_quadrature():
    """All segmentations, their probabilities, E p and E log rate, under p ~ Beta(2, 5) and rate ~ Gamma(2, 2)."""
    prior = gamma_law.logpdf(RATES, 2.0, scale=0.5) + np.log(RATES)
    labels, log_p, p, rate = [], [], [], []
    m = int(SEQUENCES.may_change.sum())
    for own, k in segmentations():
        by_rate = prior + sum(log_marginals(COUNTS[own == j], RATES) for j in range(own.max() + 1))
        labels.append(own)
        log_p.append(betaln(2.0 + k, 5.0 + m - k) + logsumexp(by_rate))
        p.append((2.0 + k) / (7.0 + m))
        weights = np.exp(by_rate - logsumexp(by_rate))
        rate.append(weights @ np.log(RATES))
    weights = np.exp(np.array(log_p) - logsumexp(log_p))
    return np.array(labels), weights, weights @ p, weights @ rate


def model_of_counts(p=None):
    with pm.Model() as model:
        p = pm.Beta("p", 2.0, 5.0) if p is None else p
        rate = pm.Gamma("rate", 2.0, 2.0)
        dp.ChangePoints("y", p, dp.GammaPoisson(SHAPE, rate), observed=COUNTS, sequence=SEQUENCE, order=ORDER)
    return model


@pytest.fixture(scope="module")
def fit():
    model = model_of_counts()
    return model, sample(model, 4_000, tune=500, chains=2, cores=1, random_seed=1)


def first_appearance(labels):
    """Canonical labels of draws (..., n)."""
    flat = labels.reshape(-1, labels.shape[-1])
    found = [np.unique(own, return_index=True)[1].argsort().argsort()[own - own.min()] for own in flat]
    return np.array(found).reshape(labels.shape)


def test_segments_probability_and_base_measure_beside_quadrature(fit):
    """The posterior of labels, probability and rate is that of a sum over all segmentations."""
    _, idata = fit
    all_labels, weights, p, log_rate = posterior_by_quadrature()
    drawn = first_appearance(idata.posterior["y_labels"].to_numpy().astype(np.int64))
    exact.assert_matches(exact.codes(drawn), first_appearance(all_labels), weights)
    assert_mean_matches(idata.posterior["p"].to_numpy(), p)
    assert_mean_matches(np.log(idata.posterior["rate"].to_numpy()), log_rate)
    assert float(az.rhat(idata.posterior["p"])) < 1.01


def test_labels_number_segments_in_order(fit):
    """Numbers rise along each sequence, and from one sequence to the next."""
    _, idata = fit
    ordered = idata.posterior["y_labels"].to_numpy()[..., SEQUENCES.rows]
    steps = np.diff(ordered, axis=-1)
    assert (ordered[..., 0] == 0).all()
    assert np.isin(steps, [0, 1]).all()
    assert (steps[..., 2] == 1).all()
    assert (idata.posterior["y_n_clusters"] == ordered.max(axis=-1) + 1).all()


def test_change_points_and_segments_are_those_of_the_draws(fit):
    _, idata = fit
    all_labels, weights, _, _ = posterior_by_quadrature()
    found = dp.change_points(idata, "y")
    ordered = all_labels[:, SEQUENCES.rows]
    expected = np.zeros(7)
    expected[SEQUENCES.rows[1:]] = weights @ (np.diff(ordered, axis=1) > 0)
    expected[SEQUENCES.rows[SEQUENCES.starts[:-1]]] = 0.0
    np.testing.assert_allclose(found["change"], expected, atol=0.03)
    assert np.isin(np.diff(found["segment"].to_numpy()[SEQUENCES.rows]), [0, 1]).all()
    assert found["sequence"].to_numpy().tolist() == SEQUENCE.tolist()
    np.testing.assert_array_equal(found["order"], ORDER)
    assert float(found["n_changes"]) == pytest.approx(weights @ (all_labels.max(axis=1) - 1), abs=0.1)


def test_the_next_row_beside_quadrature(fit):
    """A row after the last one of a sequence goes on with probability 1 - p; the first of a new one does not."""
    model, idata = fit
    all_labels, weights, _, _ = posterior_by_quadrature()
    values = np.arange(12)
    m, prior = int(SEQUENCES.may_change.sum()), gamma_law.logpdf(RATES, 2.0, scale=0.5) + np.log(RATES)
    last = SEQUENCES.rows[SEQUENCES.starts[2] - 1]
    expected, of_new = np.zeros(12), np.zeros(12)
    for labels, weight in zip(all_labels, weights, strict=True):
        by_rate = prior + sum(log_marginals(COUNTS[labels == j], RATES) for j in range(labels.max() + 1))
        of_rate = np.exp(by_rate - logsumexp(by_rate))[:, None]
        rows = COUNTS[labels == labels[last]]
        n, total = len(rows), rows.sum()
        stay = (of_rate * nbinom.pmf(values, SHAPE + total, ((RATES + n) / (RATES + n + 1.0))[:, None])).sum(
            axis=0
        )
        new = (of_rate * nbinom.pmf(values, SHAPE, (RATES / (RATES + 1.0))[:, None])).sum(axis=0)
        p = (2.0 + labels.max() - 1) / (7.0 + m)
        expected += weight * ((1.0 - p) * stay + p * new)
        of_new += weight * new
    asked = {"model": model}
    found = np.exp(dp.log_density(idata, "y", values, group="b", **asked)["row"].to_numpy())
    np.testing.assert_allclose(found, expected, atol=0.01)
    found = np.exp(dp.log_density(idata, "y", values, **asked)["row"].to_numpy())
    np.testing.assert_allclose(found, of_new, atol=0.01)
    drawn = dp.sample_new_rows(idata, "y", 3, group="b", random_seed=1, **asked)
    np.testing.assert_allclose(
        (drawn["y"].isel(new_row=0) == 0).mean(), expected[0], atol=4.0 * np.sqrt(expected[0] / 8_000)
    )


def test_density_of_labels_is_that_of_changes(fit):
    """Labels that are no numbers of segments have density zero."""
    model, _ = fit
    point = model.initial_point()
    log_p = model.compile_logp(model["y_labels"])
    labels = np.zeros(7, dtype=point["y_labels"].dtype)
    labels[SEQUENCES.rows] = [0, 0, 1, 2, 2, 2, 3]
    p = 1.0 / (1.0 + np.exp(-point["p_logodds__"]))
    expected = 2 * np.log(p) + 3 * np.log1p(-p)
    assert log_p(point | {"y_labels": labels}) == pytest.approx(expected)
    for wrong in ([0, 0, 0, 0, 1, 1, 1], [1, 1, 1, 2, 2, 2, 3], [0, 0, 1, 3, 3, 3, 4], [0, 0, 1, 2, 1, 2, 3]):
        labels[SEQUENCES.rows] = wrong
        assert log_p(point | {"y_labels": labels}) == -np.inf


def test_prior_draws_have_as_many_changes(fit):
    model, _ = fit
    with model:
        prior = pm.sample_prior_predictive(4_000, random_seed=1)
    changes = prior["prior"]["y_n_clusters"].to_numpy() - 2
    assert changes.mean() == pytest.approx(5 * 2.0 / 7.0, abs=0.1)
    with pytest.raises(Exception, match="not supported for rows in order"):
        dp.log_likelihood(fit[1], "y", model=model)


def test_order_sorts_rows_whatever_their_place_in_the_table():
    """Draws of a shuffled table with dates are those of the table in order."""
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.normal(size=20), rng.normal(5.0, size=20)])
    at = rng.permutation(40)
    dates = pd.date_range("2020-01-31", periods=40, freq="ME")
    run = {"tune": 20, "chains": 1, "cores": 1, "random_seed": 1}
    base = dp.NormalInverseGamma.from_data(x)
    with pm.Model() as sorted_rows:
        dp.ChangePoints("y", 0.05, base, observed=x)
    with pm.Model() as shuffled:
        frame = pd.DataFrame({"x": x}, index=[f"r{i}" for i in range(40)]).iloc[at]
        dp.ChangePoints("y", 0.05, base, observed=frame, order=pd.Series(dates[at], index=frame.index))
    one, other = (sample(model, 100, **run) for model in (sorted_rows, shuffled))
    np.testing.assert_array_equal(
        one.posterior["y_labels"].to_numpy(), other.posterior["y_labels"].to_numpy()[..., np.argsort(at)]
    )
    found = dp.change_points(other, "y")
    assert found["order"].to_numpy()[0] == dates[at[0]]
    assert int(found["segment"].max()) == 1


@pytest.mark.parametrize(
    "order",
    [
        pd.date_range("2020-01-01", periods=6, tz="Europe/Berlin"),
        pd.Series(pd.date_range("2020-01-01", periods=6, tz="UTC")),
        ["1500-01-01", "1600-01-01", "1700-01-01", "1800-01-01", "1900-01-01", "2500-01-01"],
        pd.to_timedelta([1, 2, 3, 5, 8, 13], unit="h"),
        [-3, -2, 0, 7, 8, 2**62],
    ],
    ids=["zone", "series", "centuries", "durations", "integers"],
)
def test_orders_of_many_kinds(order):
    """Dates of any zone and century, durations and large integers; the picture has them along its axis."""
    with pm.Model() as model:
        dp.ChangePoints("y", 0.1, dp.GammaPoisson(1.0, 1.0), observed=[9, 8, 9, 0, 0, 1], order=order)
    idata = sample(model, 20, tune=2, chains=1, cores=1, random_seed=1)
    assert dp.change_points(idata, "y")["segment"].to_numpy().tolist() == [0, 0, 0, 1, 1, 1]
    dp.plot_changes(idata, "y", random_seed=1).canvas.draw()


def test_the_start_of_p_does_not_matter():
    """Long segments that a large p at the start makes improbable are found with the p of the posterior."""
    x = np.random.default_rng(1).random(1_200) < 0.9
    with pm.Model() as model:
        dp.ChangePoints("y", pm.Uniform("p", initval=0.5), dp.BetaBernoulli(1.0, 1.0), observed=x)
    idata = sample(model, 60, tune=20, chains=1, cores=1, random_seed=1)
    assert float(idata.posterior["p"].mean()) < 0.004
    assert float(idata.posterior["y_n_clusters"].mean()) < 3.0


def test_what_is_refused():
    x = np.arange(6.0)
    base = dp.NormalInverseGamma(0.0, 0.1, 2.0, 1.0)
    for options, message in [
        ({"p": 0.0}, "p must lie in"),
        ({"order": [1, 2, 2, 3, 4, 5]}, "order has 2 for row 1 and for row 2"),
        ({"order": list("abcdef")}, "order must be numbers or dates"),
        ({"sequence": [1, 1, None, 1, 1, 1]}, "sequence has 1 missing"),
        ({"order": [1, 2, 3]}, "order must have"),
        ({"known_labels": [0, -1, -1, -1, -1, -1]}, "known_labels is not supported"),
        ({"unit": [0, 0, 1, 1, 2, 2]}, "unit is not supported for change points"),
        ({"initval": [0] * 6}, "initval is not needed"),
    ]:
        with pm.Model(), pytest.raises((TypeError, ValueError, NotImplementedError), match=message):
            dp.ChangePoints("y", **({"p": 0.1, "base": base, "observed": x} | options))


def test_the_default_base_measure_counts_as_one_row():
    """Real columns have the mean and the variance of the table, and nothing is learnt; a class still learns."""
    x = np.random.default_rng(3).normal(5.0, 2.0, size=(40, 2))
    with pm.Model() as model:
        dp.ChangePoints("y", 0.1, observed=x)
    assert [rv.name for rv in model.free_RVs] == ["y_labels"]
    params = [
        np.ravel(v.data) for v in model["y"].owner.inputs if hasattr(v, "data") and np.size(v.data) in (1, 2)
    ]
    for wanted in (x.mean(axis=0), x.var(axis=0)):
        assert any(len(own) == 2 and np.allclose(own, wanted) for own in params)
    with pm.Model() as model:
        dp.ChangePoints("y", 0.1, dp.NormalInverseGamma, observed=x)
    assert len(model.free_RVs) == 4


def test_a_prior_on_the_number_of_changes():
    """With p uniform, a potential of the number of changes is their prior; the posterior is a sum over all."""
    with pm.Model() as model:
        p = pm.Uniform("p")
        base = dp.GammaPoisson(SHAPE, 0.5)
        dp.ChangePoints("y", p, base, observed=COUNTS, sequence=SEQUENCE, order=ORDER)
        pm.Potential("number", pm.logp(pm.Poisson.dist(0.7), model["y_n_clusters"] - 2))
    idata = sample(model, 6_000, tune=200, chains=2, cores=1, random_seed=1)
    labels, log_p, m = [], [], int(SEQUENCES.may_change.sum())
    for own, k in segmentations():
        labels.append(own)
        evidence = sum(log_marginals(COUNTS[own == j], np.array([0.5]))[0] for j in range(own.max() + 1))
        log_p.append(evidence + betaln(1.0 + k, 1.0 + m - k) + k * np.log(0.7) - gammaln(k + 1.0))
    weights = np.exp(np.array(log_p) - logsumexp(log_p))
    drawn = first_appearance(idata.posterior["y_labels"].to_numpy().astype(np.int64))
    exact.assert_matches(exact.codes(drawn), first_appearance(np.array(labels)), weights)
    k = np.array([own.max() - 1 for own in labels])
    assert_mean_matches(idata.posterior["p"].to_numpy(), weights @ ((1.0 + k) / (2.0 + m)))
    assert idata.sample_stats["y_labels_log_joint"].to_numpy().max() < 0.0


def test_variables_that_segments_index():
    """Means that segments index are beside the same with the rows of a known variance, integrated out."""
    x = np.array([0.1, -0.3, 0.2, 3.9, 4.2, 4.0])
    run = {"tune": 500, "chains": 2, "cores": 1, "random_seed": 1}
    with pm.Model() as integrated:
        dp.ChangePoints("y", 0.2, dp.NormalKnownVariance(0.0, 9.0, np.ones(6)), observed=x)
    with pm.Model() as indexed:
        dp.ChangePoints("w", 0.2, dp.BetaBernoulli(1.0, 1.0), observed=np.zeros(6, dtype=bool))
        mu = pm.Normal("mu", 0.0, 3.0, shape=6)
        pm.Normal("y", mu[indexed["w_labels"]], 1.0, observed=x)
    one, other = sample(integrated, 4_000, **run), sample(indexed, 6_000, **run)
    # The bits of the second model weigh the segmentations, by their lengths alone.
    labels = one.posterior["y_labels"].to_numpy().reshape(-1, 6)
    sizes = (labels[:, :, None] == np.arange(6)).sum(axis=1)
    weights = np.prod(1.0 / (1.0 + sizes), axis=1)
    expected = np.average(np.diff(labels, axis=1), axis=0, weights=weights)
    found = np.diff(other.posterior["w_labels"].to_numpy().reshape(-1, 6), axis=1).mean(axis=0)
    np.testing.assert_allclose(found, expected, atol=0.06)


def test_views_and_latent_rows_have_segments():
    """Columns of several kinds change together; latent rows with a likelihood of their own change too."""
    rng = np.random.default_rng(5)
    kind = np.repeat(["u", "v"], 15)
    table = pd.DataFrame({"x": np.where(kind == "u", 0.0, 3.0) + rng.normal(size=30), "kind": kind})
    run = {"tune": 100, "chains": 1, "cores": 1, "random_seed": 1}
    with pm.Model() as model:
        dp.ChangePoints("y", 0.05, observed=table)
    found = dp.change_points(sample(model, 100, **run), "y")
    assert np.argmax(found["change"].to_numpy()) == 15
    with pm.Model() as model:
        rate = dp.ChangePoints("rate", 0.05, dp.NormalInverseGamma(1.0, 0.1, 3.0, 0.1), shape=20)
        pm.Poisson("y", pm.math.exp(rate), observed=np.repeat([2, 30], 10))
    idata = sample(model, 200, **run | {"tune": 300})
    assert np.argmax(dp.change_points(idata, "rate")["change"].to_numpy()) == 10


def test_coal_mining_disasters():
    """Disasters become rarer about 1890: probabilities beside sums over all segments, forwards and backwards."""
    table = pd.read_csv(exact.DATA / "cases" / "disasters.csv")
    years, counts = table["year"].to_numpy(), table["disasters"].to_numpy()
    with pm.Model() as model:
        dp.ChangePoints("y", 0.02, dp.GammaPoisson(1.0, 1.0), observed=counts, order=years)
    idata = sample(model, 2_000, tune=10, chains=2, cores=1, random_seed=1)
    found = dp.change_points(idata, "y")
    labels = idata.posterior["y_labels"].to_numpy()[..., (years >= 1883) & (years <= 1896)]
    assert (labels[..., -1] > labels[..., 0]).mean() > 0.9
    n, sums = len(counts), np.concatenate([[0], np.cumsum(counts)])
    factorials = np.concatenate([[0.0], np.cumsum(gammaln(counts + 1.0))])

    def log_segment(start, stop):
        total, length = sums[stop] - sums[start], stop - start
        return gammaln(1.0 + total) - (1.0 + total) * np.log(1.0 + length) - factorials[stop] + factorials[start]

    log_p = np.array([[log_segment(s, t) if t > s else -np.inf for t in range(n + 1)] for s in range(n)])
    stay = np.array([[max(t - s - 1, 0) * np.log(0.98) for t in range(n + 1)] for s in range(n)])
    own = log_p + stay
    forwards, backwards = np.full(n + 1, -np.inf), np.full(n + 1, -np.inf)
    forwards[0] = backwards[n] = 0.0
    for t in range(1, n + 1):
        forwards[t] = logsumexp([forwards[s] + own[s, t] + (np.log(0.02) if s else 0.0) for s in range(t)])
    for s in range(n - 1, -1, -1):
        ends = range(s + 1, n + 1)
        backwards[s] = logsumexp([own[s, t] + backwards[t] + (np.log(0.02) if t < n else 0.0) for t in ends])
    expected = np.exp(forwards[1:n] + np.log(0.02) + backwards[1:n] - forwards[n])
    drawn = found["change"].to_numpy()[1:]
    errors = np.sqrt(np.maximum(expected * (1.0 - expected), 1e-4) / 4_000)
    assert np.abs((drawn - expected) / errors).max() < 4.5
