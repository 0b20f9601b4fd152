"""Draws of hidden states beside an enumeration of all their partitions, for each kind of move and all together."""

import functools
import itertools
import math

import exact
import numpy as np
import pytest
from family_cases import CASES, with_further_slow
from scipy.special import gammaln
from scipy.stats import chi2, dirichlet

import pymc_dpgmm as dp
from pymc_dpgmm.families import View
from pymc_dpgmm.partitions.hidden_states import (
    OPENS,
    count_hidden,
    density_of_transitions,
    draw_hidden,
    draw_openers_of,
    log_hidden,
    transition_counts,
)
from pymc_dpgmm.partitions.labels import named_by_appearance
from pymc_dpgmm.partitions.segments import sequences_of
from pymc_dpgmm.sampler.hidden_states import hidden_states, scans, splits
from pymc_dpgmm.sampler.hidden_states.hidden_states import HiddenStates
from pymc_dpgmm.sampler.hidden_states.splits import split_or_merge
from pymc_dpgmm.sampler.state.state import State

# Six rows in two sequences, in an order of their own.
SEQUENCES = sequences_of(np.array([0, 0, 1, 0, 1, 0]), np.array([3.0, 1.0, 2.0, 2.0, 5.0, 9.0]))
ALPHA, GAMMA, KAPPA = 1.3, 0.8, 1.7
N = len(SEQUENCES.rows)
PARTITIONS = exact.partitions(N)
# Kappa, and the largest number of states.
PRIORS = {"not sticky": (0.0, math.inf), "sticky": (KAPPA, math.inf), "three states": (KAPPA, 3.0)}


def log_prior_of(labels, sequences=SEQUENCES, kappa=KAPPA, alpha=ALPHA, gamma=GAMMA, most=math.inf):
    """Summed over all openers."""
    found = -math.inf
    for openers in itertools.product(range(3), repeat=len(labels)):
        counts = count_hidden(np.asarray(labels), np.array(openers), sequences)
        found = np.logaddexp(found, log_hidden(counts, len(sequences.starts) - 1, alpha, gamma, kappa, most))
    return found


@functools.cache
def log_priors(kappa, most=math.inf):
    return np.array([log_prior_of(labels, kappa=kappa, most=most) for labels in PARTITIONS])


@pytest.fixture(params=PRIORS)
def prior(request):
    """Kappa, the largest number of states, and log probabilities of all partitions."""
    return *PRIORS[request.param], log_priors(*PRIORS[request.param])


def simulated(rng, kappa, most):
    """Labels by tables that have dishes, and dishes by a stick that is broken as far as needed."""
    sticks, left, tables_after = [], 1.0, {}
    if most < math.inf:
        sticks, left = rng.dirichlet(np.full(int(most), GAMMA / most)).tolist(), 0.0
    labels = np.zeros(N, dtype=np.int64)
    for start, stop in itertools.pairwise(SEQUENCES.starts):
        before = -1
        for i in SEQUENCES.rows[start:stop]:
            tables, own = tables_after.setdefault(before, []), kappa if before >= 0 else 0.0
            weights = np.array([size for size, _ in tables] + [ALPHA + own])
            chosen = rng.choice(len(weights), p=weights / weights.sum())
            if chosen < len(tables):
                tables[chosen][0] += 1
            elif rng.random() < own / (ALPHA + own):
                tables.append([1, before])
            else:
                u, dish = rng.random(), 0
                while u >= 0.0:
                    if dish == len(sticks) < most:
                        part = left * rng.beta(1.0, GAMMA)
                        sticks.append(part)
                        left -= part
                    u -= sticks[dish] if dish + 1 < most else 1.0
                    dish += 1
                tables.append([1, dish - 1])
            labels[i] = before = tables[chosen][1]
    return labels


@pytest.mark.parametrize("draw", ["tables", "forwards"])
def test_prior_beside_draws(draw, prior):
    """The density of labels and openers is that of tables with dishes, and of the package's own draws."""
    kappa, most, log_p = prior
    rng = np.random.default_rng(3)
    assert np.logaddexp.reduce(log_p) == pytest.approx(0.0, abs=1e-10)
    drawn = [
        simulated(rng, kappa, most)
        if draw == "tables"
        else draw_hidden(rng, ALPHA, GAMMA, kappa, SEQUENCES, most)[0]
        for _ in range(10_000)
    ]
    labels = np.array([named_by_appearance(own)[0] for own in drawn])
    exact.assert_matches(exact.codes(labels)[None], PARTITIONS, np.exp(log_p))


def test_a_large_gamma_makes_transitions_dirichlet():
    """With at most three states and equal shared weights, they are Dirichlet with three equal parameters."""
    found = [log_prior_of(labels, gamma=1e7, most=3.0) for labels in PARTITIONS]
    each, expected = ALPHA / 3.0, []
    for labels in PARTITIONS:
        n_states = int(labels.max()) + 1
        if n_states > 3:
            expected.append(-math.inf)
            continue
        counts = transition_counts(np.asarray(labels)[SEQUENCES.rows], SEQUENCES, n_states)
        pseudo = np.full(counts.shape, each)
        pseudo[1:][np.diag_indices(n_states)] += KAPPA
        totals = np.array([ALPHA] + [ALPHA + KAPPA] * n_states)
        log_p = np.sum(gammaln(pseudo + counts) - gammaln(pseudo))
        log_p += np.sum(gammaln(totals) - gammaln(totals + counts.sum(axis=1)))
        expected.append(log_p + math.lgamma(4.0) - math.lgamma(4.0 - n_states))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("kappa", [0.0, KAPPA], ids=["not sticky", "sticky"])
def test_transitions_given_shared_weights_add_up_to_the_prior(kappa):
    """The integral over shared weights of states, by draws of sticks, is the prior."""
    log_p = log_priors(kappa)
    rng, n_draws = np.random.default_rng(0), 4_000
    chosen = [0, 5, 50, 120]
    found = np.zeros((len(chosen), n_draws))
    for place, at in enumerate(chosen):
        labels = np.asarray(PARTITIONS[at])
        n_states = labels.max() + 1
        counts = transition_counts(labels[SEQUENCES.rows], SEQUENCES, n_states)
        for draw in range(n_draws):
            # Weights of states in the order in which they appear, each chosen with its own weight, are sticks.
            parts = rng.beta(1.0, GAMMA, size=n_states)
            shares = np.maximum(parts * np.cumprod(np.append(1.0, 1.0 - parts[:-1])), 1e-300)
            # The density of sticks over that of p(labels, shares), gamma^K rest^(gamma - 1) / prod(shares).
            rest = max(1.0 - shares.sum(), 1e-300)
            log_sticks = n_states * np.log(GAMMA) + (GAMMA - 1.0) * np.log1p(-parts).sum()
            log_sticks -= np.log(np.cumprod(np.append(1.0, 1.0 - parts[:-1]))).sum()
            log_own = n_states * np.log(GAMMA) + (GAMMA - 1.0) * np.log(rest) - np.log(shares).sum()
            found[place, draw] = log_own - log_sticks + density_of_transitions(counts, shares)(ALPHA, kappa)
    weights = np.exp(found - log_p[chosen, None])
    error = weights.std(axis=1) / np.sqrt(n_draws)
    np.testing.assert_array_less(np.abs(weights.mean(axis=1) - 1.0), 4.5 * error)
    assert error.max() < 0.2


def test_openers_given_labels(prior):
    kappa, most, _ = prior
    labels = np.array([0, 0, 1, 0, 0, 1])
    rng = np.random.default_rng(4)
    all_openers = [
        openers
        for openers in itertools.product(range(3), repeat=N)
        if len(count_hidden(labels, np.array(openers), SEQUENCES).tables)
    ]
    log_p = [
        log_hidden(count_hidden(labels, np.array(own), SEQUENCES), 2, ALPHA, GAMMA, kappa, most)
        for own in all_openers
    ]
    p = exact.normalized(np.array(log_p))
    n_draws = 1_500
    found = [tuple(draw_openers_of(rng, labels, SEQUENCES, ALPHA, GAMMA, kappa, most)) for _ in range(n_draws)]
    counts = np.array([found.count(own) for own in all_openers])
    many = p * n_draws > 5.0
    counts, expected = np.append(counts[many], counts[~many].sum()), np.append(p[many], p[~many].sum()) * n_draws
    kept = expected > 0.0
    statistic = np.sum((counts - expected)[kept] ** 2 / expected[kept])
    assert counts.sum() == n_draws
    assert chi2.sf(statistic, kept.sum() - 1) > 1e-4


@pytest.mark.parametrize("most", [2.0, 5.0])
def test_density_of_shares_of_few_states(most):
    """As a function of gamma it is that of a Dirichlet distribution, also where no state is without rows."""
    rng, moves = np.random.default_rng(5), HiddenStates(SEQUENCES, most)
    view = view_of("nig-one-column")
    moves.set_concentrations(ALPHA, GAMMA, KAPPA)
    moves.take(rng, State([view], np.array([0, 0, 1, 0, 1, 0])), np.full(N, OPENS))
    own, log_density = moves.own_shares(), moves.log_density()

    def expected(gamma):
        parameters, shares = [gamma / most] * 2, own
        if most > 2.0:
            parameters, shares = [*parameters, gamma * (1.0 - 2.0 / most)], np.append(own, 1.0 - own.sum())
        return dirichlet.logpdf(shares / shares.sum(), parameters)

    found = log_density(ALPHA, 2.5, KAPPA) - log_density(ALPHA, 0.4, KAPPA)
    assert found == pytest.approx(expected(2.5) - expected(0.4), rel=1e-6)


def view_of(case, n=N):
    base, values, d, _ = CASES[case]
    return View(base.family, base.numbers(d), np.asarray(values, dtype=np.float64)[:n])


def state_of(views):
    return State(views, np.zeros(len(views[0].values), dtype=np.int64))


def log_evidence(views, rows):
    own = state_of([view._replace(values=view.values[rows]) for view in views])
    (slot,) = own.order[: own.n_clusters]
    return sum(table.log_evidence(int(slot)) for table in own.tables)


def log_evidence_of_all(views, labels):
    return sum(log_evidence(views, np.flatnonzero(labels == k)) for k in range(labels.max() + 1))


def posterior(views, log_p):
    """Probabilities of all partitions."""
    return exact.normalized(log_p + [log_evidence_of_all(views, labels) for labels in PARTITIONS])


MOVES = {
    "scans": lambda moves: moves.scan(N),
    "sequences": lambda moves: moves.draw_sequences(),
    "parts": lambda moves: moves.draw_part(),
    "splits and merges": lambda moves: split_or_merge(moves),
    "all": lambda moves: (moves.scan(2), moves.draw_sequences(), split_or_merge(moves)),
}
# Draws of each that are enough: some stand still for long.
N_DRAWS = {"scans": 6_000, "sequences": 8_000, "parts": 8_000, "splits and merges": 4_000, "all": 3_000}


# Rows whose states are known, and states that agree with them.
KNOWN, AGREEING = np.array([0, -1, 1, -1, -1, 0]), np.array([0, 0, 1, 0, 1, 0])


def draws_of(views, kappa, move, n_draws, seed=1, most=math.inf, known=None):
    rng, state, moves = np.random.default_rng(seed), state_of(views), HiddenStates(SEQUENCES, most, known)
    if known is not None:
        state.relabel(AGREEING)
    openers, labels = np.full(N, OPENS), np.empty((n_draws, N), dtype=np.int64)
    moves.set_concentrations(ALPHA, GAMMA, kappa)
    with np.errstate(all="ignore"):
        for draw in range(n_draws):
            moves.take(rng, state, openers)
            move(moves)
            openers, labels[draw] = moves.end(), state.labels()
    return labels


@pytest.mark.parametrize("move", MOVES)
def test_moves_follow_the_posterior(move, prior):
    kappa, most, log_p = prior
    views = [view_of("nig-one-column")]
    labels = draws_of(views, kappa, MOVES[move], N_DRAWS[move], most=most)
    exact.assert_matches(exact.codes(labels)[None], PARTITIONS, posterior(views, log_p))


@pytest.mark.parametrize("most", [math.inf, 3.0], ids=["any number", "three states"])
@pytest.mark.parametrize("move", MOVES)
def test_states_that_are_known(move, most):
    """Rows of a known state stay together, those of others apart; the rest follows the posterior given these."""
    views = [view_of("nig-one-column")]
    agree = np.array([own[0] == own[5] != own[2] for own in PARTITIONS])
    p = posterior(views, np.where(agree, log_priors(KAPPA, most), -math.inf))
    labels = draws_of(views, KAPPA, MOVES[move], N_DRAWS[move], most=most, known=KNOWN)
    exact.assert_matches(exact.codes(labels)[None], PARTITIONS, p)


def test_transitions_that_are_smaller_than_any_number():
    """With a tiny alpha, what follows a state that nothing has followed is one state, by the shared weights."""
    sequences = sequences_of(np.array([0, 0, 1, 2]))
    rows = np.array([[np.nan], [np.nan], [-30.0], [30.0]])
    family = dp.NormalInverseGamma.family.incomplete
    view = View(family, family.params(*dp.NormalInverseGamma(0.0, 1e-3, 50.0, 50.0).numbers(1)), rows)
    rng, state, moves, n_draws = np.random.default_rng(1), state_of([view]), HiddenStates(sequences), 3_000
    moves.set_concentrations(1e-4, 0.3, 0.0)
    openers, found = np.full(4, OPENS), np.zeros(n_draws)
    for draw in range(n_draws):
        moves.take(rng, state, openers)
        moves.scan(1)
        for _ in range(4):
            moves.draw_sequences()
        openers = moves.end()
        found[draw] = state.n_clusters
    # By the same enumeration as above; the two partitions of two states in which row 1 leaves have .065 each.
    log_p, number = [], []
    for labels in exact.partitions(4):
        total = log_evidence_of_all([view], labels)
        total += log_prior_of(labels, sequences, kappa=0.0, alpha=1e-4, gamma=0.3)
        log_p.append(total)
        number.append(labels.max() + 1)
    expected = exact.normalized(np.array(log_p)) @ np.array(number)
    assert found.mean() == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("case", with_further_slow(CASES))
def test_states_of_every_family(case):
    """All moves together, for each family: states are drawn from their posterior."""
    views = [view_of(case)]
    labels = draws_of(views, KAPPA, MOVES["all"], 1_500)
    exact.assert_matches(exact.codes(labels)[None], PARTITIONS, posterior(views, log_priors(KAPPA)))


def test_views_with_gaps():
    rows = np.array([[0.1, np.nan], [0.4, 1.0], [np.nan, np.nan], [5.0, 0.2], [4.4, np.nan], [5.2, 0.4]])
    base = dp.NormalInverseGamma([0.0, 1.0], 0.3, 2.0, 0.5)
    family = base.family.incomplete
    views = [View(family, family.params(*base.numbers(2)), rows), view_of("poisson")]
    labels = draws_of(views, KAPPA, MOVES["all"], 3_000)
    exact.assert_matches(exact.codes(labels)[None], PARTITIONS, posterior(views, log_priors(KAPPA)))


def mistaken_first(monkeypatch):
    """The first row of a sequence follows the last one of the sequence before."""
    real = splits.transition_counts

    def wrong(codes, sequences, n_states):
        return real(codes, sequences._replace(starts=sequences.starts[[0, -1]]), n_states)

    monkeypatch.setattr(splits, "transition_counts", wrong)


def mistaken_openers(monkeypatch):
    """Rows that join count as rows that open."""
    monkeypatch.setattr(hidden_states, "draw_openers", lambda rng, codes, *_: np.full(len(codes), OPENS))


def mistaken_threshold(monkeypatch):
    """A path is accepted whatever its least share."""
    real = hidden_states.draw_paths

    def wrong(next_double, state, first, last, within, densities, shares, n_states, *others):
        equal = np.full(n_states, 0.5)
        return real(next_double, state, first, last, within, densities, equal.ctypes.data, n_states, *others)

    monkeypatch.setattr(hidden_states, "draw_paths", wrong)


def mistaken_rest(monkeypatch):
    """What states without rows have does not depend on how many states are left."""
    real = splits._States.of_rest
    monkeypatch.setattr(splits._States, "of_rest", lambda states, hidden: (GAMMA, real(states, hidden)[1]))


def mistaken_known(monkeypatch):
    """On which side known rows are counts as given."""
    real = splits._side_of_known
    monkeypatch.setattr(
        splits, "_side_of_known", lambda *arguments: (found := real(*arguments)) and (*found[:2], 0.0)
    )


def mistaken_split(monkeypatch):
    """The density of the part that a side takes is that of its logit."""
    real = splits._log_beta_density

    def wrong(log_parts, *parameters):
        return real(log_parts, *parameters) + log_parts.sum()

    monkeypatch.setattr(splits, "_log_beta_density", wrong)


MISTAKES = {
    "the first row of a sequence": ("splits and merges", mistaken_first),
    "table counts": ("scans", mistaken_openers),
    "the threshold": ("sequences", mistaken_threshold),
    "the part of a side": ("splits and merges", mistaken_split),
    "what is left": ("splits and merges", mistaken_rest),
    "known rows": ("splits and merges", mistaken_known),
}
# Three states at most, and known ones, where a mistake is about these.
ABOUT = {"what is left": {"most": 3.0}, "known rows": {"known": np.array([0, -1, -1, -1, -1, -1])}}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_seen(mistake, monkeypatch):
    move, make = MISTAKES[mistake]
    views, about = [view_of("nig-one-column")], ABOUT.get(mistake, {})
    p = posterior(views, log_priors(KAPPA, about.get("most", math.inf)))
    make(monkeypatch)
    labels = draws_of(views, KAPPA, MOVES[move], 3 * N_DRAWS[move], **about)
    with pytest.raises(AssertionError):
        exact.assert_matches(exact.codes(labels)[None], PARTITIONS, p)


def test_many_states_find_room():
    """A scan goes on where it has stopped for want of slots."""
    rng = np.random.default_rng(0)
    x = rng.permutation(60)[:, None] * 100.0
    view = View(dp.NormalInverseGamma.family, dp.NormalInverseGamma(3_000.0, 1e-9, 50.0, 1.0).numbers(1), x)
    state, moves = state_of([view]), HiddenStates(sequences_of(np.zeros(60, dtype=np.int64)))
    moves.set_concentrations(50.0, 50.0, 0.0)
    moves.take(rng, state, np.full(60, OPENS))
    for _ in range(5):
        moves.scan(60)
    assert state.n_clusters > 50
    scans.count_all(moves.address)
    assert moves.counts.sum() == 60
