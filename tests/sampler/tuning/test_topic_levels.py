"""What tuning does with topics: annealing, and chains that begin anew at the topics of a better one."""

import numpy as np
import pymc as pm
import pytest

import pymc_dpgmm as dp
from pymc_dpgmm.partitions.grouped import Groups
from pymc_dpgmm.sampler.amounts import ANNEALING_SHARE, SHARE_BEFORE_TELLING
from pymc_dpgmm.sampler.topics.topics import TopicState
from pymc_dpgmm.sampler.tuning.exchange import Exchange, Found
from pymc_dpgmm.sampler.tuning.levels import Levels
from pymc_dpgmm.sampler.tuning.schedule import Options
from pymc_dpgmm.sampler.tuning.topic_schedule import TopicSchedule

TUNE = 20
QUIET = {"progressbar": False, "compute_convergence_checks": False}


def bars(side, n_documents, length):
    """Words, documents and topics of tokens; topics are the lines and columns of a square (Griffiths 2004)."""
    rng = np.random.default_rng(0)
    square = np.arange(side * side).reshape(side, side)
    topics = [*square, *square.T]
    document = np.repeat(np.arange(n_documents), length)
    weights = rng.dirichlet(np.full(len(topics), 0.1), size=n_documents)
    topic = np.array([rng.choice(len(topics), p=weights[j]) for j in document])
    return np.array([rng.choice(topics[k]) for k in topic]), document, topic


def drawn(schedule, rng, state, tuning):
    """One draw, as the step makes it."""
    if tuning:
        schedule.begin_draw()
    state, made = schedule.draw(rng, state, tuning)
    if tuning:
        schedule.end_draw()
    return state, made


def begun(words, document, topics, eta, search=True, tune=TUNE, others=None):
    """A state of topics and how it is drawn."""
    n_topics = int(topics.max()) + 1
    eta = np.broadcast_to(eta, words.max() + 1)
    state = TopicState(words, Groups(document), topics, np.full(n_topics, 0.1), eta)
    return state, TopicSchedule(Options(search=search), Levels(tune, others))


def test_annealing_ends_at_the_parameters_of_the_model(monkeypatch):
    """Parameters of the words decline by one factor, whatever their ratios, and only scans know of them."""
    words, document, topics = bars(4, 30, 20)
    eta = np.linspace(0.01, 0.05, 16)
    state, schedule = begun(words, document, topics, eta)
    used, scan = [], type(state.words).scan

    def watched(self, *arguments):
        used.append(self.eta.copy())
        return scan(self, *arguments)

    monkeypatch.setattr(type(state.words), "scan", watched)
    searching, rng = [], np.random.default_rng(0)
    for t in range(TUNE + 3):
        state, made = drawn(schedule, rng, state, t < TUNE)
        searching.append(made.searching)
        np.testing.assert_array_equal(state.words.eta, eta)
        assert made.log_joint == pytest.approx(state.log_joint())
    n_annealed = round(ANNEALING_SHARE * TUNE)
    assert searching == [True] * n_annealed + [False] * (TUNE + 3 - n_annealed)
    ratios = np.array(used[::5]) / eta
    np.testing.assert_allclose(ratios, ratios[:, :1] * np.ones(16), rtol=1e-12)
    np.testing.assert_allclose(ratios[0] * eta.sum(), len(words) / state.alpha.size, rtol=1e-12)
    factors = ratios[1 : n_annealed + 1, 0] / ratios[:n_annealed, 0]
    np.testing.assert_allclose(factors, factors[0], rtol=1e-9)
    np.testing.assert_array_equal(ratios[n_annealed:], 1.0)


def test_no_search_where_a_user_wants_none():
    words, document, topics = bars(4, 30, 20)
    state, schedule = begun(words, document, topics, 0.05, search=False)
    rng = np.random.default_rng(0)
    assert not any(drawn(schedule, rng, state, True)[1].searching for _ in range(TUNE))


@pytest.mark.slow
def test_annealing_finds_topics_that_scans_miss():
    """Eight random starts of sixteen topics: annealing finds them nearly always, scans in half of the chains."""
    words, document, topics = bars(8, 150, 100)

    def level(seed, search, start=None):
        rng = np.random.default_rng(seed)
        start = rng.integers(16, size=len(words)) if start is None else start
        state, schedule = begun(words, document, start, 0.01, search, tune=100)
        return np.array([drawn(schedule, rng, state, t < 100)[1].log_joint for t in range(120)])[100:]

    truth = level(0, False, topics)
    reached = {
        search: sum(level(seed, search).mean() > truth.mean() - 3.0 * truth.std() for seed in range(8))
        for search in (False, True)
    }
    assert reached[True] >= 6
    assert reached[False] <= 5


@pytest.mark.parametrize(("above", "restarts"), [(10.0, True), (0.3, False), (-10.0, False)])
def test_a_chain_begins_anew_where_its_level_is_lower(tmp_path, above, restarts):
    """By the standard deviation of its own last draws."""
    exchange, theirs, own = Exchange(str(tmp_path), 1), np.array([0, 1, 1]), np.array([0, 0, 1])
    log_joints = np.random.default_rng(0).normal(-5e4, 100.0, size=200)
    last = log_joints[100:120]
    exchange.place(0, "w_labels").tell(Found(theirs, last.mean() + above * last.std()))
    levels = Levels(200, exchange.place(1, "w_labels"))
    found = []
    for log_joint in log_joints:
        levels.begin_draw()
        found.append(levels.better(log_joint, own.copy))
        levels.end_draw()
    assert [t for t, labels in enumerate(found) if labels is not None] == ([119] if restarts else [])
    assert (levels.left is not None) == restarts
    if restarts:
        np.testing.assert_array_equal(found[119], theirs)
    (told,) = exchange.place(2, "w_labels").of_others()[1:]
    np.testing.assert_array_equal(told.labels, own)
    assert told.merit == pytest.approx(last.mean())


def test_a_chain_alone_and_one_without_tuning_wait_for_nobody(tmp_path):
    Levels(200, None).leave()
    levels = Levels(0, Exchange(str(tmp_path), 2).place(0, "w_labels"))
    assert levels.better(-1.0, np.array([0]).copy) is None
    levels.leave()
    assert Exchange(str(tmp_path), 2).place(2, "w_labels")._read(0, 0).merit == -np.inf


def topic_model(words, document, topics):
    dp.LDA("w", int(topics.max()) + 1, 0.1, 0.05, observed=words, group=document)


def process(words, document, topics):
    base = dp.DirichletCategorical(0.05, [words.max() + 1])
    dp.HDPMixture("w", pm.Gamma("alpha", 1.0, 1.0), 1.0, base, group=document, observed=words)


@pytest.mark.parametrize("add", [topic_model, process])
def test_topics_that_a_chain_begins_anew_at(tmp_path, add):
    """The point has the other chain's topics, which are possible, and the chain goes on from them."""
    words, document, topics = bars(5, 60, 60)
    with pm.Model() as model:
        add(words, document, topics)
        names = [name for name in ("w_labels", "alpha") if name in model.named_vars]
        step = dp.DPMixtureStep([model[name] for name in names])
    exchange = Exchange(str(tmp_path), 1)
    exchange.place(0, "w_labels").tell(Found(topics, 0.0))
    step.exchange = Exchange(str(tmp_path), 1, 1)
    step.setup_chain(np.random.default_rng(0), TUNE, TUNE)
    point, logp = model.initial_point(random_seed=0), model.compile_logp()
    restarted = []
    for t in range(TUNE):
        point, (statistics, *_) = step.step(point)
        restarted.append(bool(statistics["w_labels_restarted"]))
        assert np.isfinite(logp(point))
        if t == round(SHARE_BEFORE_TELLING * TUNE) - 1:
            np.testing.assert_array_equal(np.unique(point["w_labels"] + 1j * topics).size, topics.max() + 1)
    n_before = round(SHARE_BEFORE_TELLING * TUNE) - 1
    assert restarted == [False] * n_before + [True] * (TUNE - n_before)


def test_chains_of_one_run_end_at_one_level():
    """Later chains hear the first ones, and say so."""
    words, document, topics = bars(5, 100, 60)
    with pm.Model():
        topic_model(words, document, topics)
        idata = pm.sample(50, tune=30, chains=5, cores=1, random_seed=3, **QUIET)
    statistics = idata["sample_stats"]
    levels = statistics["w_labels_log_joint"].to_numpy()
    restarted = statistics["w_labels_restarted"].to_numpy()[:, -1]
    assert not restarted[0]
    assert restarted.any()
    for chain in range(1, 5):
        best = levels[:chain].mean(axis=1).max()
        assert levels[chain].mean() > best - 3.0 * levels[chain].std()


def test_a_chain_whose_labels_waited_at_that_draw_keeps_nobody_waiting(tmp_path):
    levels = Levels(10, Exchange(str(tmp_path), 2).place(0, "w_labels"))
    for t in range(7):
        levels.begin_draw()
        if t != 5:
            assert levels.better(-1.0, np.array([0]).copy) is None
        levels.end_draw()
    assert Exchange(str(tmp_path), 2).place(2, "w_labels")._read(0, 0).merit == -np.inf
