"""Topic models and clusters of words: the scans of words against enumeration, and as whole matrices."""

import ctypes
import itertools

import exact
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.sparse import csr_array
from small_groups import CATEGORICAL, GROUP, Case, check, log_topics, posterior_of_names

import pymc_dpgmm as dp
from pymc_dpgmm.partitions.grouped import Groups
from pymc_dpgmm.partitions.labels import canonical_labels
from pymc_dpgmm.partitions.priors import chinese_restaurant
from pymc_dpgmm.sampler.state.state import State
from pymc_dpgmm.sampler.topics.topics import TopicState, sweep_words
from pymc_dpgmm.sampler.topics.words import Words, scan_words
from pymc_dpgmm.testing import assert_matches

WORDS = np.array([0, 0, 1, 0, 2, 2])
ETA = np.array([0.5, 0.7, 0.4])
COUNTS = np.array([[2, 1, 0, 0], [3, 0, 1, 0], [0, 0, 0, 0], [0, 1, 2, 2]])


class Numbers:
    """A source of uniform numbers that a test chooses, for compiled code."""

    def __init__(self):
        self.left = []
        self._function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)(lambda _: self.left.pop(0))
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value

    def scan(self, words, numbers):
        """Scan until the numbers are used up, and return the labels."""
        self.left = [*numbers, *[0.5] * len(words.labels)]
        words.next_double, words.bit_state, words.document, words.token = self.address, 0, 0, 0
        scan_words(words.address)
        return words.topics_of_tokens()


def measure(outcome):
    """The measure of the numbers in [0, 1) that lead to topic 0, and a number for each of two topics."""
    grid = (np.arange(64) + 0.37) / 64
    found = [outcome(u) for u in grid]
    examples = {k: grid[found.index(k)] for k in (0, 1) if k in found}
    total, start = 0.0, 0.0
    for u, v, before, after in zip(grid, grid[1:], found, found[1:], strict=False):
        if before == after:
            continue
        low, high = u, v
        for _ in range(50):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if outcome(middle) == before else (low, middle)
        total += low - start if before == 0 else 0.0
        start = low
    total += 1.0 - start if found[-1] == 0 else 0.0
    assert set(examples) == {0, 1}
    return total, examples


@pytest.mark.parametrize("tables", ["the scan", "weights kept from before the scan"])
def test_the_whole_matrix_of_a_scan(tables):
    """Four tokens and two topics: the scan leaves the posterior as it is, to the last digits.

    Weights that are kept while tokens move, as those of alias tables are, do not.
    """
    words, group = np.array([0, 1, 0, 1]), np.array([0, 0, 0, 1])
    alpha, eta = np.array([0.3, 0.7]), np.array([0.2, 0.5])
    labels, p, _ = posterior_of_names(words, group, alpha, eta)
    code = {tuple(own): i for i, own in enumerate(labels)}
    matrix = np.zeros((16, 16))
    numbers, state = Numbers(), Words(words, Groups(group), eta)
    for start in labels:

        def drawn(us, start=start):
            state.set_labels(start, 2)
            state.shares[:], state.group_alphas[:] = alpha, 1.0
            return numbers.scan(state, us)

        # Numbers that lead to a topic for every token so far, and the probability of it all.
        paths = {(): ([], 1.0)}
        for t in range(4):
            longer = {}
            for path, (us, probability) in paths.items():
                first, examples = measure(lambda u, us=us, t=t: drawn([*us, u])[t])
                if tables != "the scan":
                    # The conditional at the start of the scan, with the token itself in it.
                    own = [
                        log_topics(np.where(np.arange(4) == t, k, start), words, group, alpha, eta) for k in (0, 1)
                    ]
                    first = 1.0 / (1.0 + np.exp(own[1] - own[0]))
                for k, share in ((0, first), (1, 1.0 - first)):
                    longer[(*path, k)] = [*us, examples[k]], probability * share
            paths = longer
        for path, (_, probability) in paths.items():
            matrix[code[tuple(start)], code[path]] += probability
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-12)
    error = np.abs(p @ matrix - p).sum()
    assert error < 1e-12 if tables == "the scan" else error > 0.01


def test_topics_of_every_token():
    """Named topics with unequal parameters: frequencies of all labellings."""
    alpha, rng, n_draws = np.array([0.2, 0.5, 1.1]), np.random.default_rng(8), 300_000
    labels, p, _ = posterior_of_names(WORDS, GROUP, alpha, ETA)
    state = TopicState(WORDS, Groups(GROUP), np.zeros(6, dtype=int), alpha, ETA)
    drawn, ones = np.empty((n_draws, 6), dtype=int), np.ones(3)
    for s in range(n_draws):
        state.words.scan(rng, ones, alpha)
        drawn[s] = state.labels()
    assert_matches(exact.codes(drawn)[None], labels, p)
    np.testing.assert_allclose(state.log_joint(), log_topics(state.labels(), WORDS, GROUP, alpha, ETA), rtol=1e-12)


@pytest.mark.parametrize(
    "moves", [pytest.param((1, 0, 0), marks=pytest.mark.slow, id="scans"), pytest.param((2, 1, 1), id="all")]
)
def test_words_under_a_hierarchical_process(moves):
    """What scans of words draw under the process, topics opened and closed, is what scans of rows draw."""
    case = Case("DirichletCategorical", WORDS, CATEGORICAL, alpha=[0.4, 2.5, 1.0], gamma=0.6)
    rng, n_draws = np.random.default_rng(4), 30_000 if moves[0] == 1 else 12_000
    state = State([case.view], np.zeros(6, dtype=int))
    state.set_groups(Groups(GROUP))
    state.set_prior(chinese_restaurant(case.gamma))
    state.set_grouping(rng, case.alpha, np.ones(6), case.gamma)
    words = Words(WORDS, Groups(GROUP), CATEGORICAL["a"][0])
    drawn, tables = np.empty((n_draws, 6), dtype=int), np.empty(n_draws)
    for s in range(n_draws):
        sweep_words(rng, state, words, 1, *moves)
        drawn[s], tables[s] = state.labels(), state.openers.sum()
        if s % 7 == 0:
            state.set_grouping(rng, case.alpha, state.openers.copy(), case.gamma)
    check(case, exact.codes(drawn)[None], tables)


def test_many_topics_are_opened_and_closed():
    """Counts are those of the labels after topics have come and gone, and memory has grown."""
    rng = np.random.default_rng(0)
    group, given = np.repeat(np.arange(30), 40), rng.integers(50, size=1200)
    words = Words(given, Groups(group), np.full(50, 0.05))
    words.set_labels(np.zeros(1200, dtype=int), 2)
    shares, rest = np.array([0.5, 0.0]), 0.5
    for _ in range(30):
        words.scan(rng, np.full(30, 5.0), shares, rest, 20.0)
        shares, rest = words.shares, words.rest
        found = np.zeros((50, words.n_topics), dtype=int)
        np.add.at(found, (given, words.topics_of_tokens()), 1)
        listed = np.zeros_like(found)
        for w in range(50):
            own = slice(words.places[w], words.places[w] + words.lengths[w])
            listed[w, words.topics[own]] = words.counts[own]
            assert len(set(words.topics[own])) == words.lengths[w]
        np.testing.assert_array_equal(listed, found)
        np.testing.assert_array_equal(words.totals, found.sum(axis=0))
        np.testing.assert_allclose(shares.sum() + rest, 1.0, rtol=1e-12)
        np.testing.assert_array_equal(shares > 0, words.totals > 0)
    assert words.n_topics > 2


# In a model.


def test_density_of_a_model():
    alpha = np.array([0.2, 0.5, 1.1])
    with pm.Model() as model:
        dp.LDA("w", 3, alpha, ETA, observed=WORDS, group=GROUP)
    log_p = model.compile_logp()
    for labels in itertools.islice(itertools.product(range(3), repeat=6), 0, None, 37):
        expected = log_topics(np.array(labels), WORDS, GROUP, alpha, ETA)
        np.testing.assert_allclose(log_p({"w_labels": np.array(labels, dtype=np.int16)}), expected, rtol=1e-12)
    assert log_p({"w_labels": np.array([0, 0, 3, 0, 0, 0], dtype=np.int16)}) == -np.inf


def test_draws_of_a_model():
    """The reference has names summed out."""
    given = exact.reference("lda_categorical")
    with pm.Model():
        dp.LDA("w", 3, given["alpha_per_topic"], given["eta"], observed=np.array(given["y"]), group=given["group"])
        idata = pm.sample(40_000, tune=100, chains=1, random_seed=3, progressbar=False)
    drawn = [canonical_labels(own)[0] for own in idata["posterior"]["w_labels"].to_numpy()[0]]
    assert_matches(exact.codes(np.array(drawn))[None], exact.partitions(6), np.array(given["posterior"]))


@pytest.mark.slow
def test_alpha_and_eta_by_nuts():
    """Posterior means of random alpha and eta are those of a sum over all labellings on a grid."""
    grid = np.exp(np.linspace(-2.0, 1.0, 41))
    log_p = np.array(
        [[posterior_of_names(WORDS, GROUP, np.full(2, a), np.full(3, e))[2] for e in grid[::4]] for a in grid]
    )
    p = np.exp(log_p - log_p.max())
    log_a, log_e = np.log(grid), np.log(grid[::4])
    weights = np.ones(len(log_a))
    weights[[0, -1]] = 0.5
    other = np.ones(len(log_e))
    other[[0, -1]] = 0.5
    p = p * weights[:, None] * other
    expected = (p.sum(axis=1) @ log_a / p.sum(), p.sum(axis=0) @ log_e / p.sum())
    with pm.Model():
        a, e = pm.Uniform("a", -2.0, 1.0), pm.Uniform("e", -2.0, 1.0)
        dp.LDA("w", 2, pm.math.exp(a), pm.math.exp(e), observed=WORDS, group=GROUP)
        idata = pm.sample(4_000, tune=500, chains=2, random_seed=1, progressbar=False)
    for name, mean in zip("ae", expected, strict=True):
        drawn = idata["posterior"][name]
        assert abs(float(drawn.mean()) - mean) < 4 * float(drawn.std()) / np.sqrt(2_000) + 0.005


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, csr_array, pd.DataFrame])
def test_a_matrix_of_counts(kind):
    """Documents without words have no tokens, and keep their names."""
    with pm.Model() as model:
        dp.LDA("w", 2, 0.5, 0.1, observed=kind(COUNTS))
        idata = pm.sample(20, tune=20, chains=1, random_seed=1, progressbar=False)
    assert model.coords["w_group"] == (0, 1, 2, 3)
    np.testing.assert_array_equal(
        idata["observed_data"]["w"], np.repeat([0, 1, 0, 2, 1, 2, 3], [2, 1, 3, 1, 1, 2, 2])
    )
    assert idata["posterior"]["w_labels"].dims == ("chain", "draw", "w_token")


@pytest.mark.interpreted
def test_prior_predictive_words():
    with pm.Model():
        dp.LDA("w", 3, [0.1, 0.1, 2.0], ETA, observed=WORDS, group=GROUP)
        prior = pm.sample_prior_predictive(4_000, random_seed=1)
    share = float((prior["prior"]["w_labels"] == 2).mean())
    assert abs(share - 2.0 / 2.2) < 0.02
    words = prior["prior_predictive"]["w"].to_numpy()
    np.testing.assert_allclose(np.bincount(words.ravel().astype(int)) / words.size, ETA / ETA.sum(), atol=0.03)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"observed": COUNTS - 1}, "whole numbers >= 0, but \\[0\\] has -1 of the word \\[2\\]"),
        ({"observed": COUNTS + 0.5}, "whole numbers"),
        ({"observed": 0 * COUNTS}, "all counts are 0"),
        ({"observed": COUNTS, "group": [0, 1, 2, 3]}, "exclude each other"),
        ({"observed": WORDS}, "need group="),
        ({"observed": WORDS, "group": [0, 0, 1]}, "one document for each of 6 words"),
        ({"observed": WORDS, "group": ["a", None, "a", "b", "b", "b"]}, "1 missing entries"),
        ({"observed": ["a", None], "group": [0, 1]}, "1 missing words"),
        ({"alpha": [0.1, 0.2, 0.3]}, "each of 2 topics"),
        ({"alpha": 0.0}, "alpha must be finite and > 0"),
        ({"eta": [0.1, 0.2]}, "each of 4 words"),
        ({"n_topics": 0}, "n_topics must be at least 1"),
        ({"n_topics": 1000}, "at most the number of tokens"),
        ({"n_topics": 2.5}, "n_topics must be an integer"),
    ],
)
def test_bad_input(changed, message):
    given = {"n_topics": 2, "alpha": 0.5, "eta": 0.1, "observed": COUNTS} | changed
    with pm.Model() as model:
        with pytest.raises((TypeError, ValueError), match=message):
            dp.LDA("w", **given)
        assert not model.named_vars
        assert not model.coords


def test_a_word_that_no_document_has_is_named():
    with (
        pm.Model(),
        pytest.warns(UserWarning, match=r"no row has 1 of the 2 levels of the words of observed: \['b'\]"),
    ):
        dp.LDA("w", 2, 0.5, 0.1, observed=pd.DataFrame({"a": [1, 2], "b": [0, 0]}))


def test_one_column_of_categories():
    base = dp.DirichletCategorical([0.5, 0.7, 0.4])
    np.testing.assert_array_equal(base.parameters["a"], [[0.5, 0.7, 0.4]])
    with pytest.raises(ValueError, match="one entry for each level"):
        dp.DirichletCategorical(0.5)
