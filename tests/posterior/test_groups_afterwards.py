"""What is done after sampling with rows in groups, against enumeration."""

import arviz as az
import exact
import grouped
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from drawn import results
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_matrix
from scipy.special import logsumexp
from small_groups import log_topics, posterior_of_names

import pymc_dpgmm as dp
from pymc_dpgmm.posterior.arrays.seats import GroupedSeats
from pymc_dpgmm.posterior.arrays.topics import estimate_documents, match

pytestmark = pytest.mark.interpreted

ROWS = np.array([-2.0, -1.6, 2.2, 1.9, -1.8])
GROUP = np.array([0, 0, 0, 1, 1])
NAMES = np.array(["a", "b"])[GROUP]
NIG = {"mu": 0.1, "kappa": 0.2, "a": 2.0, "b": 0.7}


def log_evidence(rows, group, *, alpha, gamma=None, n_components=None):
    labels = exact.partitions(len(rows))
    log_p = exact.log_likelihoods(labels, rows[:, None], exact.LOG_MARGINALS["NormalInverseGamma"], **NIG)
    for i, own in enumerate(labels):
        if gamma is None:
            log_p[i] += grouped.log_finite(own, group, alpha, n_components)
        else:
            log_p[i] += grouped.log_hdp(own, group, alpha, gamma)[0]
    return logsumexp(log_p)


PRIORS = {"hdp": {"alpha": 0.8, "gamma": 1.4}, "finite": {"alpha": 1.5, "n_components": 3}}


@pytest.fixture(scope="module", params=list(PRIORS))
def drawn(request):
    prior = PRIORS[request.param]
    kind = dp.HDPMixture if request.param == "hdp" else dp.FiniteMixture
    with pm.Model():
        kind("y", *prior.values(), dp.NormalInverseGamma(**NIG), group=NAMES, observed=ROWS)
        idata = pm.sample(6_000, tune=200, chains=1, random_seed=1, progressbar=False)
    return idata, prior


@pytest.mark.parametrize("group", ["a", None])
def test_weights_of_components_are_those_of_a_group(drawn, group):
    """Their moments, given each partition of two groups, by draws of the random measure that share no code."""
    idata, prior = drawn
    reference = [0, 0, 1, 1, 0]
    found = dp.component_draws(idata, "y", reference, group=group, random_seed=1)
    rng = np.random.default_rng(3)
    labels = idata["posterior"]["y_labels"].to_numpy()[0]
    openers = idata["posterior"]["y_openers"].to_numpy()[0] if "gamma" in prior else None
    expected = np.empty(len(labels))
    for s, own in enumerate(labels):
        # The cluster that has most rows of the reference's first one, the first of these if there are several.
        k = max(dict.fromkeys(own), key=lambda name: sum(own[i] == name for i in (0, 1, 4)))
        in_k = own == k
        if openers is not None:
            # Tables of a cluster, of others, and a new one: beta by the aggregation of a Dirichlet distribution.
            tables = openers[s][in_k].sum()
            share = rng.beta(tables, openers[s].sum() - tables + prior["gamma"])
        else:
            share = 1.0 / prior["n_components"]
        rows = (GROUP == 0) & (group == "a")
        a = prior["alpha"] * share + (rows & in_k).sum()
        b = prior["alpha"] * (1.0 - share) + (rows & ~in_k).sum()
        expected[s] = rng.beta(a, b)
    error = np.sqrt(2.0 / len(labels))
    mean, sd = float(found["weight"][..., 0].mean()), float(found["weight"][..., 0].std())
    assert abs(mean - expected.mean()) < 4.0 * expected.std() * error
    assert sd == pytest.approx(expected.std(), rel=0.06)
    total = found["weight"].isel(cluster=[0]).sum("cluster")
    assert (total + found["new_weight"] <= 1.0 + 1e-9).all()


def test_weights_of_a_group_that_has_a_concentration_of_its_own():
    with pm.Model():
        dp.HDPMixture("y", [0.5, 3.0], 1.0, dp.NormalInverseGamma(**NIG), group=NAMES, observed=ROWS)
        idata = pm.sample(50, tune=50, chains=1, random_seed=1, progressbar=False)
    with pytest.raises(ValueError, match="a new group has none: choose a group by its name, group="):
        dp.component_draws(idata, "y", [0, 0, 1, 1, 0])
    assert dp.component_draws(idata, "y", [0, 0, 1, 1, 0], group="b")["weight"].sizes["cluster"] == 2
    assert dp.summary(idata, "y", [0, 0, 1, 1, 0]).clusters["weight"].between(0.0, 1.0).all()


@pytest.mark.parametrize("group", ["a", "b", None])
def test_predictive_density_of_a_group(drawn, group):
    """It is a ratio of evidences, with the new row and without."""
    idata, prior = drawn
    x = np.array([-1.9, 0.0, 2.0])
    found = dp.density(idata, "y", x, group=group, random_seed=1)["mean"].to_numpy()
    own = {"a": 0, "b": 1, None: 2}[group]
    without = log_evidence(ROWS, GROUP, **prior)
    expected = [
        np.exp(log_evidence(np.append(ROWS, value), np.append(GROUP, own), **prior) - without) for value in x
    ]
    np.testing.assert_allclose(found, expected, rtol=0.02)


def test_a_picture_of_a_group_shows_its_rows():
    rng = np.random.default_rng(0)
    group = np.repeat(["p", "q"], [15, 10])
    rows = pd.DataFrame(rng.normal(size=(25, 2)) + 9.0 * (group == "q")[:, None], columns=["b", "a"])
    with pm.Model():
        dp.HDPMixture("y", 1.0, 1.0, dp.NormalInverseGamma, group=group, observed=rows)
        idata = pm.sample(
            20, tune=20, chains=1, random_seed=1, progressbar=False, compute_convergence_checks=False
        )
    for own, n_rows in ((None, 25), ("q", 10)):
        (axes,) = dp.plot_predict(idata, "y", "b", of="a", group=own, random_seed=1).axes
        (points,) = (drawn for drawn in axes.collections if drawn.get_label() == "data")
        assert len(points.get_offsets()) == n_rows
        assert own is None or points.get_offsets().min() > 4.0


def test_new_rows_follow_the_density(drawn):
    idata, _ = drawn
    rows = dp.sample_new_rows(idata, "y", 2, group="b", random_seed=2)["y"].to_numpy()[0]
    points = np.linspace(-6, 6, 241)
    density = dp.density(idata, "y", points, group="b", random_seed=1)["mean"].to_numpy()
    expected = np.trapezoid(density[points < 0.1], points[points < 0.1])
    for column in rows.T:
        assert abs(np.mean(column < 0.1) - expected) < 4 * np.sqrt(expected * (1 - expected) / len(column)) + 0.01


def test_pointwise_log_likelihoods_average_to_the_density(drawn):
    """Given weights and components, a row of a group has the density of another row of this group."""
    idata, prior = drawn
    found = dp.log_likelihood(idata, "y", random_seed=3, extend_inferencedata=False)["log_likelihood"]["y"]
    without = log_evidence(ROWS, GROUP, **prior)
    expected = [
        log_evidence(np.append(ROWS, x), np.append(GROUP, j), **prior) for x, j in zip(ROWS, GROUP, strict=True)
    ]
    mean = np.exp(found).mean(("chain", "draw")).to_numpy()
    error = np.exp(found).std(("chain", "draw")).to_numpy() / np.sqrt(2_000)
    assert np.all(np.abs(mean - np.exp(np.array(expected) - without)) < 4 * error)


def test_weights_of_groups(drawn):
    idata, prior = drawn
    weights = dp.group_weights(idata, "y", [0, 0, 1, 1, 0])
    total = weights["weight"].sum("cluster") + weights["other"]
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)
    assert weights["weight"].sel(y_group="a", cluster=0) > weights["weight"].sel(y_group="b", cluster=0)
    assert weights["weight"].sel(y_group="a", cluster=1) < weights["weight"].sel(y_group="b", cluster=1)
    if "gamma" in prior:
        # A new row's weights integrate the shares out, so that draws of the weights have the same mean.
        assert bool((weights["sd"] > 0).all())


def test_functions_that_need_no_groups(drawn):
    """Shapes and errors, which few draws show."""
    idata = drawn[0].isel(draw=slice(0, 200))
    assert dp.point_partition(idata, "y")["labels"].shape == (5,)
    assert "n_clusters" in dp.summary(idata, "y", random_seed=1).scalars.index
    assert dp.membership(idata, "y", [2.0], group="b")["probability"].shape[0] == 1
    assert dp.component_draws(idata, "y", [0, 0, 1, 1, 0], random_seed=1)["mean"].sizes["cluster"] == 2
    with pytest.raises(ValueError, match="there is no group 'c', only"):
        dp.density(idata, "y", [0.0], group="c")
    with pytest.raises(ValueError, match="sample_prior_predictive"):
        dp.n_clusters(idata, "y")
    with pytest.raises(ValueError, match="is not words"):
        dp.topics(idata, "y")


def test_a_file_is_enough(drawn, tmp_path):
    """Every number is the same, which few draws show."""
    idata = drawn[0].isel(draw=slice(0, 200))
    idata.to_netcdf(tmp_path / "run.nc")
    there = az.from_netcdf(tmp_path / "run.nc")
    kept, own = (dp.group_weights(which, "y", [0, 0, 1, 1, 0], random_seed=1) for which in (there, idata))
    assert kept.equals(own)


def test_replicates_of_rows(drawn):
    idata, prior = drawn
    with pm.Model():
        kind = dp.HDPMixture if "gamma" in prior else dp.FiniteMixture
        kind("y", *prior.values(), dp.NormalInverseGamma(**NIG), group=NAMES, observed=ROWS)
        found = pm.sample_posterior_predictive(idata.isel(draw=slice(0, 500)), random_seed=1, progressbar=False)
    rows = found["posterior_predictive"]["y"].to_numpy()[0]
    assert np.all(np.sign(np.median(rows, axis=0)) == np.sign(ROWS))


def test_each_group_with_its_own_alpha_has_no_new_group():
    with pm.Model():
        base = dp.NormalInverseGamma(**NIG)
        dp.HDPMixture("y", [0.5, 2.0], 1.0, base, group=NAMES, observed=ROWS)
        idata = pm.sample(20, tune=20, chains=1, random_seed=1, progressbar=False)
    with pytest.raises(ValueError, match="choose a group by its name, group="):
        dp.density(idata, "y", [0.0])
    assert dp.density(idata, "y", [0.0], group="a")["mean"].shape == (1,)
    with pm.Model():
        dp.DPMixture("z", 1.0, observed=ROWS)
        idata = pm.sample(5, tune=5, chains=1, progressbar=False)
    with pytest.raises(ValueError, match="the rows of z_labels have no groups"):
        dp.group_weights(idata, "z")


# Words.

WORDS, DOCUMENT = np.array([0, 0, 1, 2, 2, 1]), np.array([0, 0, 0, 1, 1, 1])
ALPHA, ETA = np.array([0.3, 0.8]), np.array([0.5, 0.7, 0.4])


def test_left_to_right_is_unbiased():
    """The mean of the estimates is a sum over all topics of the document."""
    topics = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    words = np.array([0, 2, 2, 1])
    total = 0.0
    for labels in np.ndindex(2, 2, 2, 2):
        n = np.bincount(labels, minlength=2)
        prior = exact.gammaln(ALPHA + n) - exact.gammaln(ALPHA)
        prior = prior.sum() + exact.gammaln(ALPHA.sum()) - exact.gammaln(ALPHA.sum() + 4)
        total += np.exp(prior) * np.prod(topics[list(labels), words])
    rng = np.random.default_rng(0)
    found = estimate_documents(rng, words, np.array([0, 4, 4]), topics, ALPHA, 100_000).log_probability
    np.testing.assert_allclose(found, [np.log(total), 0.0], atol=0.005)


def test_weights_of_topics_in_new_documents():
    """They are sums over all topics of the document's words."""
    topics = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    words = np.array([0, 2, 2])
    expected, total = np.zeros(2), 0.0
    for labels in np.ndindex(2, 2, 2):
        n = np.bincount(labels, minlength=2)
        p = np.exp((exact.gammaln(ALPHA + n) - exact.gammaln(ALPHA)).sum()) * np.prod(topics[list(labels), words])
        expected += p * (n + ALPHA) / (3 + ALPHA.sum())
        total += p
    found = estimate_documents(np.random.default_rng(0), words, np.array([0, 3, 3]), topics, ALPHA, 100_000)
    np.testing.assert_allclose(found.weights[0], expected / total, atol=0.005)
    np.testing.assert_allclose(found.weights[1], ALPHA / ALPHA.sum())


def test_documents_held_out():
    """The log of a ratio of evidences, with the document and without, by sums over all labellings."""
    with pm.Model():
        dp.LDA("w", 2, ALPHA, ETA, observed=WORDS, group=DOCUMENT)
        idata = pm.sample(4_000, tune=200, chains=1, random_seed=1, progressbar=False)
    new = [2, 2, 0]
    found = dp.held_out_log_likelihood(
        idata, "w", [str(w) for w in new], group=[0, 0, 0], n_draws=4_000, n_particles=5, random_seed=1
    )
    without = posterior_of_names(WORDS, DOCUMENT, ALPHA, ETA)[2]
    together = posterior_of_names(np.append(WORDS, new), np.append(DOCUMENT, [2, 2, 2]), ALPHA, ETA)[2]
    np.testing.assert_allclose(found["log_likelihood"], [together - without], atol=0.03)
    np.testing.assert_allclose(found.attrs["perplexity"], np.exp(-float(found["log_likelihood"][0]) / 3))


def test_documents_tell_of_the_words_of_topics():
    """With Dirichlet parameters in place of drawn probabilities, the words of a document are exchangeable only."""
    topics = np.array([[2.0, 1e-4, 0.5], [1e-4, 0.7, 3.0]])
    words, total, expected = np.array([1, 1, 2, 1]), 0.0, np.zeros(2)
    for labels in np.ndindex(2, 2, 2, 2):
        n, counts, p = np.zeros(2), topics.copy(), 1.0
        for k, word in zip(labels, words, strict=True):
            p *= (n[k] + ALPHA[k]) / (n.sum() + ALPHA.sum()) * counts[k, word] / counts[k].sum()
            n[k] += 1.0
            counts[k, word] += 1.0
        total, expected = total + p, expected + p * (n + ALPHA) / (4.0 + ALPHA.sum())
    rng, starts = np.random.default_rng(0), np.array([0, 4])
    found = estimate_documents(rng, words, starts, topics, ALPHA, 100_000, are_drawn=False)
    np.testing.assert_allclose(found.log_probability, [np.log(total)], atol=0.01)
    np.testing.assert_allclose(found.weights[0], expected / total, atol=0.01)


@pytest.mark.filterwarnings("ignore:no row has 1 of the 3 levels")
def test_words_that_are_rare_in_every_topic_are_held_out():
    """Probabilities of words are integrated out: drawn, those of unseen words would be 0 in nearly all draws."""
    alpha, eta = np.full(2, 0.5), np.full(3, 1e-4)
    words = np.where(WORDS == 2, 1, WORDS)
    names = pd.Series(pd.Categorical.from_codes(words, categories=["a", "b", "never"]))
    with pm.Model():
        dp.LDA("w", 2, alpha, eta, observed=names, group=DOCUMENT)
        idata = pm.sample(500, tune=200, chains=1, random_seed=1, progressbar=False)
    without = posterior_of_names(words, DOCUMENT, alpha, eta)[2]
    new = [0, 2, 2]
    together = posterior_of_names(np.append(words, new), np.append(DOCUMENT, [2] * 3), alpha, eta)[2]
    run = {"group": [0, 0, 0], "n_draws": 500, "n_particles": 20, "random_seed": 1}
    found = dp.held_out_log_likelihood(idata, "w", ["a", "never", "never"], **run)
    # Draws with a topic without words, which are few, make up most of it.
    np.testing.assert_allclose(found["log_likelihood"], [together - without], atol=0.4)
    assert float(found["weight"].sum() + found["other_weight"].sum()) == pytest.approx(1.0)


def test_documents_under_topics_without_words():
    """Dirichlet parameters near 0 leave no words to topics that have none, and no numbers that are none."""
    counts = pd.DataFrame({"cat": [4, 5, 0], "dog": [5, 4, 0], "tax": [0, 0, 6]})
    with pm.Model():
        dp.LDA("w", 6, 0.5, 0.001, observed=counts)
        idata = pm.sample(60, tune=60, chains=1, random_seed=1, progressbar=False)
    found = dp.held_out_log_likelihood(idata, "w", counts, random_seed=1)
    assert np.isfinite(found["log_likelihood"]).all()
    assert np.isfinite(found["weight"]).all()


def test_topics_without_words_have_their_weights():
    """A document without words has the weights of its prior, whatever topics of a draw have words."""
    with pm.Model() as model:
        dp.LDA("w", 3, 2.0, 0.5, observed=[[2, 0], [0, 2], [0, 0]])
    idata = results(model, {"w_labels": [[0, 0, 1, 1], [2, 2, 0, 0], [1, 1, 1, 1], [0, 0, 2, 1]]}, n_chains=1)
    found = dp.group_weights(idata, "w", [0, 0, 1, 2], random_seed=1)
    np.testing.assert_allclose(found["weight"].to_numpy()[2], 1.0 / 3.0, atol=1e-9)
    np.testing.assert_allclose(found["weight"].sum("cluster"), 1.0)
    np.testing.assert_allclose(found["other"], 0.0, atol=1e-12)
    assert np.all(found["lower"].to_numpy()[2] > 0.001)


def test_clusters_without_a_common_row_do_not_match():
    """The third of the reference has its rows with those of the second, and the first is divided."""
    labels, reference = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 0, 0, 1, 1, 2])
    found = match(labels, 3, reference, 3)
    assert found.cluster.tolist() == [0, 2, -1]
    assert found.shared.tolist() == [2, 2, 0]


def test_shares_of_many_small_clusters():
    """None of the clusters without rows takes what drawing leaves over: E sum of squares is 1 / (1 + gamma)."""
    rng = np.random.default_rng(1)
    seats = GroupedSeats(np.zeros((1, 0)), np.ones(1), np.zeros(0), gamma=1_000.0)
    squares = [np.sum(seats.draw_shares(rng) ** 2) for _ in range(200)]
    assert np.mean(squares) == pytest.approx(1.0 / 1_001.0, rel=0.1)
    assert max(np.max(seats.draw_shares(rng)) for _ in range(50)) < 0.05


def test_eta_and_alpha_are_matched_or_refused():
    counts = pd.DataFrame({"cat": [4, 5, 0], "dog": [5, 4, 1], "tax": [0, 0, 6]})
    with pm.Model() as model:
        eta = pd.Series({"tax": 9.0, "dog": 0.5, "cat": 0.1})
        dp.LDA("w", 2, 0.5, eta, observed=counts)
    parameters = [value for value in model["w"].owner.inputs if np.shape(getattr(value, "data", 0))[-1:] == (3,)]
    assert [np.ravel(value.data).tolist() for value in parameters] == [[0.1, 0.5, 9.0]]
    with pm.Model(), pytest.raises(ValueError, match=r"several documents are named \['d'\]"):
        dp.LDA("w", 2, 0.5, 0.5, observed=counts.set_axis(["d", "d", "e"]))
    with pm.Model():
        alpha = pm.Data("alpha", np.ones(5))
        with pytest.raises(ValueError, match="one entry for each of 2 groups, got 5 of alpha"):
            dp.HDPMixture("y", alpha, 1.0, dp.NormalInverseGamma(**NIG), group=NAMES, observed=ROWS)


# A word that no document has is what this is about; that a warning tells of it is shown in test_topics.py.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no row has 1 of the 2 levels of the words")
def test_topics_without_words_have_their_own_alpha():
    """Documents held out, and new words, where topics without words differ in alpha."""
    words, document, eta = np.zeros(4, dtype=int), np.zeros(4, dtype=int), np.full(2, 0.1)
    alpha = np.array([2.0, 2.0, 1e-3, 1e-3])
    with pm.Model():
        given = pd.Series(pd.Categorical.from_codes(words, categories=["x", "y"]))
        dp.LDA("w", 4, alpha, eta, observed=given, group=document)
        idata = pm.sample(4_000, tune=200, chains=1, random_seed=1, progressbar=False)
    without = posterior_of_names(words, document, alpha, eta)[2]
    for new in (["y"] * 4, ["x", "y"]):
        codes = np.array([{"x": 0, "y": 1}[w] for w in new])
        added = np.append(words, codes), np.append(document, np.ones(len(new), dtype=int))
        together = posterior_of_names(*added, alpha, eta)[2]
        found = dp.held_out_log_likelihood(
            idata, "w", new, group=[0] * len(new), n_draws=4_000, n_particles=5, random_seed=1
        )
        np.testing.assert_allclose(found["log_likelihood"], [together - without], atol=0.06)
    rows = dp.sample_new_rows(idata, "w", 2, group=0, random_seed=1)
    assert set(np.unique(rows["cluster"])) <= {0, 1, 2, 3}
    together = posterior_of_names(np.append(words, [0, 0]), np.zeros(6, dtype=int), alpha, eta)[2]
    share = float((rows["w"] == "x").all("new_row").mean())
    assert abs(share - np.exp(together - without)) < 0.03


def test_weights_of_groups_vary_with_the_shares():
    """Standard deviations are those of drawn shares and weights."""
    with pm.Model():
        dp.HDPMixture("y", 50.0, 1.0, dp.NormalInverseGamma(**NIG), group=NAMES, observed=ROWS)
        idata = pm.sample(1_000, tune=100, chains=1, random_seed=1, progressbar=False)
    reference = np.array([0, 0, 1, 1, 0])
    found = dp.group_weights(idata, "y", reference, probability=0.95, random_seed=1)
    rng, drawn = np.random.default_rng(0), []
    posterior = idata["posterior"]
    for labels, openers in zip(
        posterior["y_labels"][0].to_numpy(), posterior["y_openers"][0].to_numpy(), strict=True
    ):
        n_clusters = labels.max() + 1
        shared = np.zeros((2, n_clusters))
        np.add.at(shared, (reference, labels), 1)
        rows, columns = linear_sum_assignment(shared, maximize=True)
        for _ in range(20):
            shares = rng.dirichlet(np.append(np.bincount(labels[openers == 1], minlength=n_clusters), 1.0))
            own = np.zeros((2, 2))
            for j in (0, 1):
                n = np.append(np.bincount(labels[j == GROUP], minlength=n_clusters), 0)
                own[j, rows] = rng.dirichlet(n + 50.0 * shares)[columns]
            drawn.append(own)
    np.testing.assert_allclose(found["weight"], np.mean(drawn, axis=0), atol=0.02)
    np.testing.assert_allclose(found["sd"], np.std(drawn, axis=0), rtol=0.05)
    narrow = dp.group_weights(idata, "y", reference, probability=0.5, random_seed=1)
    for given, tail in ((found, 0.025), (narrow, 0.25)):
        np.testing.assert_allclose(given["lower"], np.quantile(drawn, tail, axis=0), atol=0.05)
        np.testing.assert_allclose(given["upper"], np.quantile(drawn, 1.0 - tail, axis=0), atol=0.05)
    with pytest.raises(ValueError, match="probability"):
        dp.group_weights(idata, "y", reference, probability=95)


# A word that no document has is what this is about; that a warning tells of it is shown in test_topics.py.
@pytest.mark.filterwarnings("ignore:no row has 1 of the 3 levels of the words")
def test_words_of_topics():
    """Means and standard deviations are those of the enumerated posterior, names matched to a reference."""
    words, document = np.array([0, 0, 0, 2, 2, 2]), np.array([0, 0, 0, 1, 1, 1])
    alpha, reference = np.array([0.01, 0.01]), np.array([0, 0, 0, 1, 1, 1])
    with pm.Model():
        given = pd.Series(pd.Categorical.from_codes(words, categories=["x", "y", "z"]))
        dp.LDA("w", 2, alpha, ETA, observed=given, group=document, initval=reference)
        idata = pm.sample(5_000, tune=100, chains=1, random_seed=1, progressbar=False)
    found = dp.topics(idata, "w", n_words=2, reference=reference)
    table = dp.summary(idata, "w", reference, random_seed=1)
    assert table.clusters["words"].str.split(", ").str[0].tolist() == ["x", "z"]
    assert "dp.group_weights has those of the groups" in " ".join(repr(table).split())
    labels, p, _ = posterior_of_names(words, document, alpha, ETA)
    mean = second = 0.0
    for own, weight in zip(labels, p, strict=True):
        # The topic that shares most with the first one of the reference.
        shared = [np.sum((own == k) & (reference == 0)) + np.sum((own != k) & (reference == 1)) for k in (0, 1)]
        # Where both share as much, all words are in one topic: this is the first one, not the one without words.
        k = int(np.argmax(shared)) if shared[0] != shared[1] else own[0]
        n = np.bincount(words[own == k], minlength=3) + ETA
        m = n / n.sum()
        mean = mean + weight * m
        second = second + weight * (m**2 + m * (1 - m) / (n.sum() + 1))
    found = found.sel(topic=0)
    np.testing.assert_allclose(found["probability"], mean, atol=0.01)
    np.testing.assert_allclose(found["sd"], np.sqrt(second - mean**2), atol=0.01)
    assert found["top_word"].isel(rank=0) == "x"
    assert np.isfinite(log_topics(reference, words, document, alpha, ETA))


@pytest.mark.parametrize("is_sparse", [True, False])
def test_words_of_clusters_of_documents(is_sparse):
    rng = np.random.default_rng(1)
    p = np.array([[0.6, 0.3, 0.05, 0.05], [0.05, 0.05, 0.4, 0.5]])
    kind, words = np.repeat([0, 1], [12, 8]), ["cat", "dog", "tax", "law"]
    counts = np.array([rng.multinomial(40, p[k]) for k in kind])
    given = csr_matrix(counts) if is_sparse else pd.DataFrame(counts, columns=words)
    with pm.Model(coords={"document": range(20), "word": words} if is_sparse else None):
        own = {"dims": ("document", "word")} if is_sparse else {}
        dp.DPMixture("d", 1.0, dp.DirichletMultinomial(np.full(4, 0.5)), observed=given, initval=kind, **own)
        idata = pm.sample(100, tune=100, chains=1, random_seed=1, progressbar=False)
    found = dp.topics(idata, "d", n_words=2, reference=kind)
    assert found["top_word"].to_numpy().tolist() == [["cat", "dog"], ["law", "tax"]]
    means, squares, shares = (np.zeros(shape) for shape in ((2, 4), (2, 4), 2))
    draws = idata.posterior["d_labels"].to_numpy()[0]
    for labels in draws:
        shared = np.array([[np.sum((labels == k) & (kind == r)) for k in range(20)] for r in range(2)])
        for r, k in zip(*linear_sum_assignment(shared, maximize=True), strict=True):
            total = counts[labels == k].sum(axis=0) + 0.5
            mean = total / total.sum()
            means[r] += mean / len(draws)
            squares[r] += (mean**2 + mean * (1 - mean) / (total.sum() + 1)) / len(draws)
            shares[r] += np.mean(labels == k) / len(draws)
    np.testing.assert_allclose(found["probability"], means)
    np.testing.assert_allclose(found["sd"], np.sqrt(squares - means**2))
    np.testing.assert_allclose(found["share"], shares)


def test_words_that_are_rare_elsewhere():
    counts = pd.DataFrame({"the": [30, 30], "cat": [20, 0], "tax": [0, 20]})
    with pm.Model():
        dp.LDA("w", 2, 0.01, 0.1, observed=counts, initval=np.repeat([0, 1], 50))
        idata = pm.sample(50, tune=0, chains=1, random_seed=1, progressbar=False)
    by_probability = dp.topics(idata, "w", n_words=1)["top_word"].to_numpy().ravel()
    by_relevance = dp.topics(idata, "w", n_words=1, relevance=0.2)["top_word"].to_numpy().ravel()
    assert set(by_probability) == {"the"}
    assert set(by_relevance) == {"cat", "tax"}
    held = dp.held_out_log_likelihood(idata, "w", pd.DataFrame({"tax": [2], "the": [1]}, index=["new"]))
    assert held["document"].to_numpy().tolist() == ["new"]
    taxed = dp.topics(idata, "w")["probability"].sel(word="tax").idxmax("topic")
    assert held["weight"].sel(document="new").idxmax("topic") == taxed
    with pytest.raises(ValueError, match="only words of the data, got also \\['dog'\\]"):
        dp.held_out_log_likelihood(idata, "w", ["dog"], group=[0])
    with pytest.raises(ValueError, match="must have 3 columns, as the data, got 2"):
        dp.held_out_log_likelihood(idata, "w", np.ones((1, 2), dtype=int))
    with pytest.raises(ValueError, match="relevance must lie"):
        dp.topics(idata, "w", relevance=2.0)


def test_a_point_partition_of_words_has_the_topics_of_the_draws():
    """Words are so uncertain one by one that joining all topics has the smallest variation of information."""
    rng = np.random.default_rng(0)
    # Of each word, the probability of the second of two topics, and independent draws.
    second = np.where(np.arange(300) < 100, 0.8, 0.2)
    labels = (rng.random((200, 300)) < second).astype(np.int64)
    with pm.Model() as model:
        base = dp.DirichletCategorical(np.ones(3))
        dp.HDPMixture("y", 1.0, 1.0, base, group=np.repeat(np.arange(3), 100), observed=rng.integers(3, size=300))
    idata = results(model, {"y_labels": labels})
    point = dp.point_partition(idata, "y")
    assert point.attrs["loss"] == "binder"
    assert int(dp.point_partition(idata, "y", loss="vi")["n_clusters"]) == 1
    shares = pd.crosstab(point["labels"].to_numpy(), second)
    assert shares.to_numpy().max(axis=0).sum() >= 290
    assert dp.credible_ball(idata, "y").attrs["loss"] == "binder"
    np.testing.assert_array_equal(dp.certainty(idata, "y")["labels"], point["labels"])
